"""The options that every command takes, at any level of the command line."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import click

from pulsar_admin import command_table
from pulsar_admin.numbers import whole
from pulsar_admin.typable import carry

GIVEN = "pulsar_admin.given"
"""Where the context keeps the global options of the command line."""
WORDS = "pulsar_admin.words"
"""The key of the context under which the words after the command's name are kept."""
IGNORED = "pulsar_admin.ignored"
_PARSED = "pulsar_admin.parsed"
"""Where the context keeps the words of the level that is being parsed."""


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
        carry(given)
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
_Option = tuple[tuple[str, ...], Mapping[str, Any]]  # Any: click.Option's keywords


def _global(*flags: str, **attributes: Any) -> _Option:  # Any: as above
    return flags, {"callback": _remember, "default": None, **attributes}


_GLOBALS = (
    _global("--store", metavar="DIR", help="The store [PULSAR_ADMIN_STORE; default ./pulsar-store]."),
    _global(
        "--tables",
        metavar="DIR|URL",
        help="Of `sql` and `store check`: the tables that `store export tables` wrote, instead of a store.",
    ),
    # Its own name: some commands have an argument CLUSTER.
    _global(
        "tables_cluster", "--cluster", metavar="NAME", help="Use the tables of this cluster, if --tables has several."
    ),
    _global(
        "-o",
        "--output",
        type=_FORMATS,
        help="Output format; the default is the command's own. COMMAND --schema shows its schema.",
    ),
    _global(
        "--where",
        metavar="CONDITION",
        multiple=True,
        help="Only rows such as 'BYTES>10MiB', STATE=OPEN, TOPIC~orders; also != !~ < <= >=; may be repeated.",
    ),
    _global("--sort", metavar="COLUMN[:desc]", multiple=True, help="Sort the rows by value; A,B by both."),
    _global("--top", type=whole(1), metavar="N", help="Only the first N rows after sorting."),
    _global("--columns", metavar="A,B", multiple=True, help="Only these columns, or JSON keys, in this order."),
    _global("--total", is_flag=True, help="Add a line with the totals of sizes and numbers to tables."),
    _global("--fail-if-any", is_flag=True, help="Exit with 1 if the list has any row (after --where)."),
    _global("--fail-if-none", is_flag=True, help="Exit with 1 if the list is empty (after --where)."),
    _global("--pager", is_flag=True, help="In a terminal, show the output in $PAGER or less -RFX."),
    _global("--now", metavar="TIME", help="Pretend it is this time; `now` is the clock's [the time of the copy]."),
    _global(
        "--tz",
        metavar="ZONE",
        help="Zone for output [UTC], and for input without a zone [none: refused], such as Europe/Berlin.",
    ),
    _global("--clock", type=_CLOCKS, help="Which time of an entry counts: auto, publish, broker or event."),
    _global("--dry-run", is_flag=True, help="Show what would change; write nothing."),
    _global("--plan", metavar="FILE", help="Save the change to FILE for `pulsar-admin apply`; write nothing else."),
    _global("-y", "--yes", is_flag=True, help="Do not ask before changes that cannot be undone."),
    _global("--wait", metavar="DURATION", help="How long to wait while another process writes the store [0s]."),
    _global("-q", "--quiet", is_flag=True, help="No progress, notes or warnings on stderr, only errors."),
    _global("--no-progress", is_flag=True, help="No progress bar."),
    _global("--progress", type=click.Choice(["bar", "json", "none"]), help="Progress on stderr; json: lines."),
    _global(
        "--color", type=click.Choice(["auto", "always", "never"]), help="Color [auto: on a terminal, without NO_COLOR]."
    ),
    _global("--verbose", is_flag=True, help="Notes on stderr: which files are read, and why."),
    _global("--jobs", type=whole(1, 1024), metavar="N", help="Worker processes for bulk work [automatic]."),
    _global("--memory", metavar="SIZE", help="Memory for each worker process, such as 512M."),
    _global(
        "--interceptors", metavar="NAMES", help="Broker entry metadata to write: timestamp,index, class names, or none."
    ),
    _global("--broker-conf", metavar="FILE", help="Read brokerEntryMetadataInterceptors from this broker.conf."),
    _global("--spark", is_flag=True, help="Do bulk work on Spark."),
    _global("--spark-master", metavar="URL", help="Spark master, such as local[2] or spark://host:7077."),
    _global("--spark-remote", metavar="URL", help="Spark Connect server, sc://host:15002."),
    _global("--spark-conf", metavar="KEY=VALUE", multiple=True, help="Spark setting; may be repeated."),
    _global(
        "--spark-local-fallback",
        is_flag=True,
        help="Read files that Spark's workers do not see on this machine, with a warning.",
    ),
)
_MAY_BE_EMPTY = {"interceptors"}  # as in broker.conf
CHANGING = ("dry_run", "plan", "yes")
SPARK = ("spark", "jobs", "memory")
OF_ROWS = ("where", "sort", "top", "columns", "total", "fail_if_any", "fail_if_none")

_UPSTREAMS = (
    "--admin-url",
    "--auth-plugin",
    "--auth-params",
    "--request-timeout",
    "--tls-trust-cert-path",
    "--tls-provider",
)
_UPSTREAMS_FLAGS = ("--tls-allow-insecure", "--tls-enable-hostname-verification")


def _ignore(ctx: click.Context, param: click.Parameter, value: object) -> None:
    if ctx.get_parameter_source(param.name or "") is click.core.ParameterSource.COMMANDLINE:
        ctx.meta.setdefault(IGNORED, []).append(param.opts[0])


def _show_help(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


Declared = Mapping[str, _Option]
COMMON: Declared = {
    **{flags[-1].lstrip("-").replace("-", "_"): (flags, attributes) for flags, attributes in _GLOBALS},
    "version": (
        ("-v", "--version"),
        {"is_flag": True, "callback": _show_version, "help": "Show the version and exit."},
    ),
}
"""The options at any level, by name."""
UPSTREAMS: Declared = {
    flag: ((flag,), {"is_flag": flag in _UPSTREAMS_FLAGS, "callback": _ignore, "default": None, "hidden": True})
    for flag in (*_UPSTREAMS, *_UPSTREAMS_FLAGS)
}
"""Those of upstream's program that say where a broker is: they are accepted, noted and ignored."""


@cache
def _made(flags: tuple[str, ...], hidden: bool, **attributes: Any) -> click.Option:  # Any: click.Option's keywords
    # Eager: settings must be complete before a time or a zone is parsed.
    return click.Option(flags, expose_value=False, is_eager=True, hidden=hidden, **attributes)


@cache
def _help_option(names: tuple[str, ...]) -> click.Option:
    """Return click's help option with the same text, but without gettext, which imports locale."""
    attributes: dict[str, Any] = {"is_flag": True, "expose_value": False, "is_eager": True, "callback": _show_help}
    return click.Option((*names, "_click_default_help"), help="Show this message and exit.", **attributes)


def _possible(words: Sequence[str]) -> Callable[[Iterable[str]], bool]:
    """Return a test whether ``words`` may contain one of an option's flags."""
    options = [word for word in words if word.startswith("-")]
    whole_words = {word.partition("=")[0] for word in options}
    letters = {f"-{letter}" for word in options if not word.startswith("--") for letter in word[1:]}
    return lambda flags: not (whole_words.isdisjoint(flags) and letters.isdisjoint(flags))


def _path_of(ctx: click.Context) -> str:
    """Return the path of the running command in the table."""
    return "" if ctx.parent is None else f"{_path_of(ctx.parent)} {ctx.command.name}".strip()


class HasLeft(click.UsageError):
    """The error for a command or option that only an earlier version had."""


def check_left(ctx: click.Context, *names: str) -> None:
    """Raise HasLeft if the command or an option is a row of ``command_table.LEFT``."""
    for name in names:
        if name in command_table.LEFT:
            raise HasLeft(f"`{name}` left in 0.2: see {command_table.LEFT[name]}", ctx)


class TakesGlobals(click.Command):
    """A command with its own parameters and the global options, of which help shows those in ``shown`` (None: all).

    Only global options that the arguments may name are made: each costs click 50 microseconds, and 20 more for parsing,
    at each level of the command line.
    """

    declared: Declared = COMMON
    shown: Sequence[str] | None = None
    _own: list[click.Parameter]

    @property
    def params(self) -> list[click.Parameter]:
        return [*self._own, *self.global_options()]

    @params.setter
    def params(self, own: list[click.Parameter]) -> None:
        self._own = own

    @property
    def own_params(self) -> Sequence[click.Parameter]:
        """The parameters other than the global options."""
        return self._own

    def global_options(self, wanted: Callable[[Iterable[str]], bool] = bool) -> Iterator[click.Option]:
        """Yield the wanted global options, except those whose flags the command defines itself."""
        taken = {flag for param in self._own for flag in param.opts}
        for name, (flags, attributes) in self.declared.items():
            if wanted(flags) and taken.isdisjoint(flags):
                is_hidden = self.shown is not None and name not in self.shown
                yield _made(flags, **{"hidden": is_hidden, **attributes})

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        if _PARSED not in ctx.meta:
            return super().get_params(ctx)
        helping = self.get_help_option(ctx)
        return [*self._own, *self.global_options(_possible(ctx.meta[_PARSED])), *([helping] if helping else ())]

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        taken = {flag for param in self._own for flag in param.opts}
        names = tuple(name for name in ctx.help_option_names if name not in taken)
        return _help_option(names) if names else None

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if ctx.resilient_parsing:
            return super().parse_args(ctx, args)
        ctx.meta[_PARSED] = tuple(args)
        try:
            return super().parse_args(ctx, list(args))
        except click.NoSuchOption:
            del ctx.meta[_PARSED]  # with all options there is one to suggest
            try:
                return super().parse_args(ctx, args)
            except click.NoSuchOption as error:
                check_left(ctx, error.option_name, f"{_path_of(ctx)} {error.option_name}")
                raise
        except click.BadOptionUsage as error:  # click's parser does not say whose option lacks a value
            error.ctx = error.ctx or ctx
            raise
        finally:
            ctx.meta.pop(_PARSED, None)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        ctx.meta.pop(_PARSED, None)
        super().format_help(ctx, formatter)
