"""The options that every command takes, at any level of the command line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from functools import cache
from typing import Any

import click

from pulsar_admin.numbers import whole
from pulsar_admin.schemas import schema_option

GIVEN = "pulsar_admin.given"
"""Where the context keeps the global options of the command line."""
IGNORED = "pulsar_admin.ignored"


def _remember(ctx: click.Context, param: click.Parameter, value: object) -> object:
    """Keep a global option given at any level; the one nearest the command wins, repeated ones add up."""
    source = ctx.get_parameter_source(param.name or "")
    if source is click.core.ParameterSource.COMMANDLINE:
        if value == "" and param.name not in _MAY_BE_EMPTY:
            # As if it were not given, --plan "$UNSET" would make the change at once.
            raise click.BadParameter("it is empty", ctx, param)
        given = ctx.meta.setdefault(GIVEN, {})
        if param.multiple and isinstance(value, tuple):
            value = given.get(param.name, ()) + value
        given[param.name] = value
    return value


def _show_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if not value or ctx.resilient_parsing:
        return
    # Imported here: importlib.metadata costs more than the rest of --help.
    from importlib.metadata import version

    click.echo(f"pulsar-admin-toolkit {version('pulsar-admin-toolkit')}")
    ctx.exit()


_FORMATS = click.Choice(["table", "json", "jsonl", "csv", "plain"])
_CLOCKS = click.Choice(["auto", "publish", "broker", "event"])
_GLOBALS: tuple[tuple[tuple[str, ...], Mapping[str, Any]], ...] = (  # Any: click.Option's keywords
    (("--store",), {"metavar": "DIR", "help": "The store [PULSAR_ADMIN_STORE; default ./pulsar-store]."}),
    (
        ("--tables",),
        {
            "metavar": "DIR|URL",
            "help": "Answer from the tables that `store export tables` wrote, without a store.",
        },
    ),
    # Its own name: some commands have an argument CLUSTER.
    (
        ("tables_cluster", "--cluster"),
        {"metavar": "NAME", "help": "Use the tables of this cluster, if --tables has several."},
    ),
    (
        ("-o", "--output"),
        {
            "type": _FORMATS,
            "help": "Output format; the default is the command's own. COMMAND --schema shows its schema.",
        },
    ),
    (
        ("--where",),
        {
            "metavar": "CONDITION",
            "multiple": True,
            "help": "Only rows such as 'BYTES>10MiB', STATE=OPEN, TOPIC~orders; also != !~ < <= >=; may be repeated.",
        },
    ),
    (("--sort",), {"metavar": "COLUMN[:desc]", "multiple": True, "help": "Sort the rows by value; A,B by both."}),
    (("--top",), {"type": whole(1), "metavar": "N", "help": "Only the first N rows after sorting."}),
    (("--columns",), {"metavar": "A,B", "multiple": True, "help": "Only these columns, or JSON keys, in this order."}),
    (("--total",), {"is_flag": True, "help": "Add a line with the totals of sizes and numbers to tables."}),
    (("--pager",), {"is_flag": True, "help": "In a terminal, show the output in $PAGER or less -RFX."}),
    (("--now",), {"metavar": "TIME", "help": "Take this time as now, for reproducible runs."}),
    (
        ("--tz",),
        {
            "metavar": "ZONE",
            "help": "Time zone for output, and for times given without one, such as Europe/Berlin [UTC; none].",
        },
    ),
    (("--clock",), {"type": _CLOCKS, "help": "Which time of an entry counts: auto, publish, broker or event."}),
    (("--dry-run",), {"is_flag": True, "help": "Show what would change; write nothing."}),
    (("--plan",), {"metavar": "FILE", "help": "Save the change to FILE for `pulsar-admin apply`; write nothing else."}),
    (("-y", "--yes"), {"is_flag": True, "help": "Do not ask before changes that cannot be undone."}),
    (("--wait",), {"metavar": "DURATION", "help": "How long to wait while another process writes the store [0s]."}),
    (("-q", "--quiet"), {"is_flag": True, "help": "No progress, notes or warnings on stderr, only errors."}),
    (("--no-progress",), {"is_flag": True, "help": "No progress bar."}),
    (("--progress",), {"type": click.Choice(["bar", "json", "none"]), "help": "Progress on stderr; json: lines."}),
    (("--color",), {"type": click.Choice(["auto", "always", "never"]), "help": "Color in tables."}),
    (("--verbose",), {"is_flag": True, "help": "Notes on stderr about what is read and why."}),
    (
        ("--jobs",),
        {"type": whole(1, 1024), "metavar": "N", "help": "Processes for bulk work [one per core if it is worth it]."},
    ),
    (("--memory",), {"metavar": "SIZE", "help": "Memory for each scanning process, such as 512M."}),
    (
        ("--interceptors",),
        {"metavar": "NAMES", "help": "Broker entry metadata to write: timestamp,index, class names, or none."},
    ),
    (("--broker-conf",), {"metavar": "FILE", "help": "Read brokerEntryMetadataInterceptors from this broker.conf."}),
    (("--spark",), {"is_flag": True, "help": "Do bulk work on Spark."}),
    (("--spark-master",), {"metavar": "URL", "help": "Spark master, such as local[2] or spark://host:7077."}),
    (("--spark-remote",), {"metavar": "URL", "help": "Spark Connect server, sc://host:15002."}),
    (("--spark-conf",), {"metavar": "KEY=VALUE", "multiple": True, "help": "Spark setting; may be repeated."}),
)
_MAY_BE_EMPTY = {"interceptors"}  # as in broker.conf
CHANGING = ("dry_run", "plan", "yes")
SPARK = ("spark", "jobs", "memory")
OF_ROWS = ("where", "sort", "top", "columns", "total")


def _global_name(flags: tuple[str, ...]) -> str:
    return flags[-1].lstrip("-").replace("-", "_")


@cache
def _built() -> Mapping[str, click.Option]:
    """Make the options, once: every level of a command line takes them, and click needs 50 microseconds for each."""
    options = {}
    for flags, attributes in _GLOBALS:
        # Eager: settings must be complete before a time or a zone is parsed.
        options[_global_name(flags)] = click.Option(
            flags, callback=_remember, expose_value=False, is_eager=True, default=None, **attributes
        )
    version: dict[str, Any] = {"is_flag": True, "callback": _show_version, "expose_value": False, "is_eager": True}
    return options | {"version": click.Option(("-v", "--version"), help="Show the version and exit.", **version)}


@cache
def _hidden(name: str) -> click.Option:
    option = copy(_built()[name])
    option.hidden = True
    return option


def global_options(shown: Sequence[str] | None = None) -> Iterator[click.Option]:
    """Yield the global options, shared by all levels; those not in SHOWN are hidden from help (None shows all)."""
    for name, option in _built().items():
        yield option if shown is None or name in shown else _hidden(name)
    if shown is not None:  # of a command
        yield schema_option()


_UPSTREAMS = (
    "--admin-url",
    "--auth-plugin",
    "--auth-params",
    "--request-timeout",
    "--tls-trust-cert-path",
    "--tls-provider",
)
_UPSTREAMS_FLAGS = ("--tls-allow-insecure", "--tls-enable-hostname-verification")


def ignored_options() -> Iterator[click.Option]:
    """Yield the options of upstream's program that say where a broker is: they are accepted, noted and ignored."""
    for flag in (*_UPSTREAMS, *_UPSTREAMS_FLAGS):
        yield click.Option(
            (flag,), is_flag=flag in _UPSTREAMS_FLAGS, callback=_ignore, expose_value=False, hidden=True, default=None
        )


def _ignore(ctx: click.Context, param: click.Parameter, value: object) -> None:
    if ctx.get_parameter_source(param.name or "") is click.core.ParameterSource.COMMANDLINE:
        ctx.meta.setdefault(IGNORED, []).append(param.opts[0])
