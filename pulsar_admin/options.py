"""How a command is declared: the ``command`` decorator, shared parameter types and the global options.

::

    @command(
        "topics find-by-time",
        examples=["public/default/orders --time @1700000000000"],
        output="One object per topic: the position found, null when nothing is at or after the time.",
        errors=[TopicNotFound, NothingMatches],
    )
    @click.argument("topic", type=TOPIC)
    @click.option("--time", "time_ms", type=TIME_POINT, required=True, help="Point in time.")
    def find_by_time(app: App, topic: TopicName, time_ms: int) -> Result:
        \"\"\"Find the first entry at or after a point in time.\"\"\"

``make docs`` adds it to ``pulsar_admin/commands.json``, with the docstring's first sentence. Examples run on the demo store in the
test suite; those in ``elsewhere`` need something it lacks and are only parsed.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click
from msgspec import Struct

from pulsar_admin import command_table
from pulsar_admin.global_options import CHANGING, COMMON, GIVEN, IGNORED, OF_ROWS, SPARK, WORDS, HasLeft, TakesGlobals
from pulsar_admin.store.errors import InvalidValue, Refused, StoreError
from pulsar_admin.store.extras import require
from pulsar_admin.store.names import TopicSelection as TopicSelection

if TYPE_CHECKING:
    from pulsar_admin.context import App

    _ParamType = click.ParamType[object]
else:
    _ParamType = click.ParamType  # older releases of click cannot be subscripted

Function = TypeVar("Function", bound=Callable[..., Any])  # Any: click calls commands with whatever was declared
_APP = "pulsar_admin.app"
_FILES_WRITTEN = ("dumptofile", "html", "out", "png", "svg")
"""Options whose file a command writes, and of which --dry-run shows nothing."""


# -- parameter types --------------------------------------------------------------------------------------------------


class ColumnsOf(click.Choice[str]):
    """The tools whose column names are accepted; 0.1 had more, which are refused with a hint."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:  # Any: click's signature
        if value in command_table.LEFT_COLUMNS:
            raise HasLeft(f"`--columns {value}` left in 0.2: see {command_table.LEFT_COLUMNS[value]}", ctx)
        return super().convert(value, param, ctx)


class ParsedType(_ParamType):
    """The type of a parameter that a function of ``store`` parses; errors of the function name the parameter."""

    def __init__(self, name: str, parse: Callable[[str], object], metavar: str) -> None:
        self.name = name
        self._parse = parse
        self._metavar = metavar

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> object:
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except InvalidValue as error:
            where = self.name if param is None else re.sub(r"^'\[(.*)\]'$", r"'\1'", param.get_error_hint(ctx))
            text = f"{where}: {error.message}"
            raise InvalidValue(text, hint=error.hint, **error.context) from error

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        if isinstance(param, click.Argument):
            return (param.name or self.name).upper()
        return self._metavar


def _parser(module: str, function: str, **fixed: bool) -> Callable[[str], object]:
    """Return a parser that imports its module when a value is parsed, as help needs none."""

    def parse(text: str) -> object:
        return getattr(import_module(module), function)(text, **fixed)

    return parse


def _time_parser(function: str, module: str = "pulsar_admin.store.timespec") -> Callable[[str], object]:
    """Return a parser of times that uses now and the time zone of the running command's settings."""

    def parse(text: str) -> object:
        return current_app().parse_time(getattr(import_module(module), function), text)

    return parse


_TIMESPEC = "pulsar_admin.store.timespec"
TOPIC = ParsedType("topic", _parser("pulsar_admin.store.names", "parse_topic"), "TOPIC")
NAMESPACE = ParsedType("namespace", _parser("pulsar_admin.store.names", "parse_namespace"), "TENANT/NAMESPACE")
POSITION = ParsedType("position", _parser("pulsar_admin.store.names", "parse_position"), "LEDGER:ENTRY")
TIME = ParsedType("time", _time_parser("parse_time"), "TIME")
TIME_POINT = ParsedType("time", _time_parser("parse_time_point"), "TIME")
TIME_OR_AGO = ParsedType("time", _time_parser("parse_time_or_ago"), "AGO|TIME")
MOMENT = ParsedType("moment", _time_parser("parse_moment", "pulsar_admin.store.history.as_of"), "TIME|ZXID")
DURATION = ParsedType("duration", _parser(_TIMESPEC, "parse_duration_ms"), "DURATION")
DURATION_OR_MINUS = ParsedType("duration", _parser(_TIMESPEC, "parse_duration_ms", allow_negative=True), "DURATION")
SIZE = ParsedType("size", _parser(_TIMESPEC, "parse_size_bytes"), "SIZE")
SIZE_OR_MINUS = ParsedType("size", _parser(_TIMESPEC, "parse_size_bytes", allow_negative=True), "SIZE")


# -- the running command ----------------------------------------------------------------------------------------------


def current_app() -> App:
    """Return the running command's App, made on first use from the options given so far."""
    from pulsar_admin.config import build_settings
    from pulsar_admin.context import App

    ctx = click.get_current_context().find_root()
    if _APP not in ctx.meta:
        app = App(build_settings(ctx.meta.get(GIVEN, {})))
        if app.settings.quiet:
            import logging

            logging.getLogger("pulsar_admin").setLevel(logging.ERROR)
        if app.settings.tz is not None:
            from pulsar_admin.columns import times_shown_in

            ctx.with_resource(times_shown_in(app.settings.tz))
        ctx.meta[_APP] = app
        ctx.call_on_close(app.end)
    return cast("App", ctx.meta[_APP])


def app_of(ctx: click.Context) -> App | None:
    """Return the App that was created under a root context, None if the command did not need one."""
    return ctx.meta.get(_APP)


def _with_app(function: Function) -> Function:
    """Return ``function`` with the App passed as its first argument."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:  # Any: click calls it
        return function(current_app(), *args, **kwargs)

    return wrapper  # type: ignore[return-value]


# -- commands ---------------------------------------------------------------------------------------------------------


class Help(Struct, frozen=True):
    """A command's path, and the parts of its help besides its docstring and options."""

    path: str
    examples: tuple[str, ...]
    elsewhere: tuple[str, ...]
    output: str
    errors: tuple[type[StoreError], ...]
    no_plan: str = ""
    no_preview: bool = False


def _without_equals(word: str) -> str:
    """Return ``-p7`` for ``-p=7``, which picocli accepts."""
    is_short = len(word) > 3 and word[0] == "-" and word[2] == "=" and word[1].isascii() and word[1].isalpha()
    return word[:2] + word[3:] if is_short else word


_IN_STORE = frozenset(
    ["topic", "topics", "namespace", "tenant", "subscription", "sub", "ledger", "ledgers", "ledger_id", "ledgerid"]
)


def _complete_from_store(ctx: click.Context, param: click.Parameter, incomplete: str) -> Any:  # Any: imported when used
    from pulsar_admin.completing import from_store

    return from_store(ctx, param, incomplete)


def _show_schema(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if not value or ctx.resilient_parsing:
        return
    from pulsar_admin.jsonify import dump_json
    from pulsar_admin.schemas import schema_of

    made = cast("Command", ctx.command)
    if not made.details.output:
        return  # the command itself says why a broker alone answers it
    click.echo(dump_json(schema_of(made.details.path, made.details.output), pretty=True))
    ctx.exit()


_SCHEMA = {
    "is_flag": True,
    "callback": _show_schema,
    "hidden": True,
    "help": "Show the JSON Schema of -o json and exit.",
}


class Command(TakesGlobals):
    """A click command with global options, examples, and the errors that its help lists."""

    declared = MappingProxyType({**COMMON, "schema": (("--schema",), _SCHEMA)})

    def __init__(
        self,
        *args: Any,  # Any: click's own arguments pass through
        details: Help,
        changes: bool,
        uses: Sequence[str],
        aliases: Sequence[str] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.details = details
        self.changes = changes
        self.uses = tuple(uses)
        self.aliases = tuple(aliases)
        changing = [name for name in CHANGING if name != "plan" or not details.no_plan]
        self.shown = (*(changing if changes else ()), *(SPARK if "spark" in uses else ()), *uses)
        for param in self.own_params:
            if (param.name in _IN_STORE or param.type in (TOPIC, NAMESPACE)) and param._custom_shell_complete is None:
                param._custom_shell_complete = _complete_from_store

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        args[:end] = map(_without_equals, args[:end])
        ctx.meta[WORDS] = tuple(args)
        return super().parse_args(ctx, args)

    def own_words(self, ctx: click.Context) -> tuple[str, ...]:
        """Return this command's own arguments, without global options.

        Paths are made absolute, because the arguments may be used in another directory.
        """
        raw, _, _ = self.make_parser(ctx).parse_args(list(ctx.meta[WORDS]))
        options: list[str] = []
        arguments: list[str] = []
        for param in self.own_params:
            value = raw.get(param.name or "")
            if not (value is True or isinstance(value, (str, tuple, list))):
                continue
            if value is True:
                options.append(param.opts[0])
                continue
            values = [value] if isinstance(value, str) else [str(one) for one in value]
            if isinstance(param.type, click.Path):
                values = [one if one == "-" else os.path.abspath(one) for one in values]
            if isinstance(param, click.Argument):
                arguments += values
            else:
                options += [word for one in values for word in (param.opts[0], one)]
        return (*options, "--", *arguments)

    def invoke(self, ctx: click.Context) -> Any:  # Any: click's signature
        given = ctx.meta.get(GIVEN, {})
        if IGNORED in ctx.meta:
            current_app().tell(f"{', '.join(ctx.meta[IGNORED])}: ignored, no broker is asked; --store names the data")
        if any("://" in word for word in ctx.meta[WORDS]):
            self._check_urls(ctx)
        if given.get("dry_run"):
            self._check_dry_run(ctx)
        if given.get("plan"):
            self._check_plan(ctx)
        wants_spark = any(given.get(name) for name in ("spark", "spark_master", "spark_remote"))
        if wants_spark and "spark" not in self.uses:
            raise click.UsageError(f"--spark: this command has no bulk work{_reason(ctx.command_path)}", ctx)
        if any(given.get(name) for name in OF_ROWS):
            self._check_rows(ctx)
        if "tables" in given:
            self._check_tables(ctx)
        try:
            result = super().invoke(ctx)
            if result is not None:
                current_app().show_all(result)
            if (app := app_of(ctx.find_root())) is not None:
                app.report(app.partial)
                app.warn_of_more_broken()
                app.check_asked()
            return None
        except click.UsageError as error:
            error.ctx = error.ctx or ctx  # click knows it only of errors before a result is shown
            raise
        except StoreError as error:
            if (app := app_of(ctx)) is not None:
                app.suggest(error)
            raise

    def _check_dry_run(self, ctx: click.Context) -> None:
        """Raise UsageError for --dry-run if the command, or one of its options, writes a file that it does not preview."""
        if self.details.no_preview:
            raise click.UsageError("--dry-run: this command writes files and has no preview", ctx)
        for name in _FILES_WRITTEN:
            if ctx.params.get(name) is not None:
                raise click.UsageError(f"--dry-run: --{name} writes a file and has no preview", ctx)

    def _check_urls(self, ctx: click.Context) -> None:
        """Raise InvalidValue for a URL if the command only reads local files."""
        from pulsar_admin.config import check_path

        raw, _, _ = self.make_parser(ctx).parse_args(list(ctx.meta[WORDS]))
        for param in self.own_params:
            given = raw.get(param.name or "")
            for value in [given] if isinstance(given, str) else given if isinstance(given, (list, tuple)) else ():
                if type(param.type) is click.Path and isinstance(value, str):
                    check_path(value)

    def _check_rows(self, ctx: click.Context) -> None:
        """Raise UsageError for options on rows that would otherwise fail only after the change was made."""
        previews = current_app().settings.dry_run
        if (self.changes or "dry_run" in self.uses) and not previews:
            asked = ", ".join(f"--{name.replace('_', '-')}" for name in OF_ROWS if ctx.meta[GIVEN].get(name))
            raise click.UsageError(f"{asked}: only the preview of this command is a list: add --dry-run", ctx)

    def _check_tables(self, ctx: click.Context) -> None:
        """Raise UsageError for --tables beside --store, or on a command that does not read exported tables."""
        if "store" in ctx.meta[GIVEN]:
            raise click.UsageError("--store and --tables: answers come from one or the other; name only one", ctx)
        if "tables" not in self.uses:
            raise HasLeft(
                "`--tables` left in 0.2 for all commands but `sql` and `store check`: see docs/howto/fleet.md", ctx
            )

    def _check_plan(self, ctx: click.Context) -> None:
        """Raise Refused or UsageError for --plan, if this command's change cannot be saved as a plan."""
        if self.changes and self.details.no_plan:
            raise Refused(f"--plan: {self.details.no_plan}", hint="use --dry-run to see what it would do")
        if not self.changes:
            reason = self.details.no_plan or "the work of this command is not kept as a plan"
            if "dry_run" in self.uses:
                reason += "; --dry-run shows what it would do"
            elif not self.details.no_preview:
                reason = "this command changes nothing"
            raise click.UsageError(f"--plan: {reason}", ctx)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        lines = [f"$ {example}" for example in (*self.details.examples, *self.details.elsewhere)]
        _write_lines(formatter, "Examples", lines)
        if self.details.output:
            _write_text(formatter, "Output", self.details.output)
        from pulsar_admin.schemas import units_in

        if units := units_in(self.details.path):
            _write_text(formatter, "Units (-o json, CSV)", units)
        if self.details.errors:
            from pulsar_admin.errors import EXIT_CODES

            named = (f"{error.code} ({EXIT_CODES[error]})" for error in self.details.errors)
            _write_text(formatter, "Errors (exit code)", ", ".join(named))
        if self.aliases:
            _write_text(formatter, "Also called", ", ".join(self.aliases))
        _write_text(
            formatter,
            "Global options",
            "--store, -o, --where, --now … may also be given here: see `pulsar-admin --help`.",
        )


def _reason(command_path: str) -> str:
    """Return why the command has no --spark, from the table of reasons; "" for a command that is not in it."""
    from pulsar_admin.without_spark import reason_without_spark

    reason = reason_without_spark(command_path.partition(" ")[2])
    return "" if reason is None else f": {reason}"


def _write_lines(formatter: click.HelpFormatter, title: str, lines: Sequence[str]) -> None:
    if lines:
        with formatter.section(title):
            for line in lines:
                formatter.write(f"{'':>{formatter.current_indent}}{line}\n")


def _write_text(formatter: click.HelpFormatter, title: str, text: str) -> None:
    with formatter.section(title):
        formatter.write_text(text)


def command(
    path: str,
    *,
    examples: Sequence[str] = (),
    changes: bool = False,
    uses: Sequence[str] = (),
    **more: Any,  # Any: output=, errors=, elsewhere=, no_plan=, aliases=, and what click.command takes
) -> Callable[[Callable[..., Any]], Command]:
    """Declare the command ``path`` (``topics skip``), whose function gets the App and then its parameters by keyword.

    ``examples`` run on the demo store: the words that follow the command, or a whole line; ``changes`` adds --dry-run,
    --plan and --yes. ``uses`` names global options that matter here and are shown in help (``clock``, ``now``, ``tz``;
    ``spark`` also shows --jobs and --memory and allows --spark). Further keywords: ``output`` (text), ``errors``
    (classes), ``elsewhere`` (examples not run), ``no_plan`` (why --plan is refused and hidden), ``no_preview`` (it
    writes, and --dry-run is refused), ``aliases`` (other names).
    """
    details = Help(
        path,
        examples=tuple(_typed(path, examples)),
        elsewhere=tuple(_typed(path, more.pop("elsewhere", ()))),
        output=more.pop("output", ""),
        errors=tuple(more.pop("errors", ())),
        no_plan=more.pop("no_plan", ""),
        no_preview=more.pop("no_preview", False),
    )
    declare = click.command(path.rpartition(" ")[2], cls=Command, details=details, changes=changes, uses=uses, **more)
    return lambda function: declare(_with_app(function))


def _typed(path: str, examples: Iterable[str]) -> Iterator[str]:
    for words in examples:
        yield words if words.startswith("pulsar-admin ") else f"pulsar-admin {path} {words}".rstrip()


class AliasedOption(click.Option):
    """An option with additional names that help does not show."""

    def __init__(self, *args: Any, aliases: Sequence[str], **kwargs: Any) -> None:  # Any: click's own
        super().__init__(*args, **kwargs)
        self._aliases = aliases

    def handle_parse_result(self, ctx: click.Context, opts: Mapping[str, Any], args: list[str]) -> Any:  # Any: click's
        names = {word.partition("=")[0] for word in ctx.meta.get(WORDS, ())}
        given = sorted(names & {*self.opts, *self._aliases})
        if len(given) > 1 and not ctx.resilient_parsing:
            raise click.UsageError(f"{' and '.join(given)} are one option: give it once", ctx)
        return super().handle_parse_result(ctx, opts, args)

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:  # Any: click's parser is private
        shown = self.opts
        self.opts = [*shown, *self._aliases]
        super().add_to_parser(parser, ctx)
        self.opts = shown


def topics_argument(function: Function, *, or_file: bool = False) -> Function:
    """Add ``[TOPICS]… --all-topics --pattern GLOB``, exactly one of them, handed over as ``selection: TopicSelection``.

    With ``or_file`` another way is ``--from-file FILE``, handed over as ``from_file: Path | None``.
    """
    ways = "--all-topics, --pattern GLOB or --from-file FILE" if or_file else "--all-topics, or --pattern GLOB"

    @functools.wraps(function)
    def wrapper(*args: Any, named: Any, all_topics: bool, pattern: str | None, **kwargs: Any) -> Any:  # Any: click's
        if bool(named) + all_topics + (pattern is not None) + (or_file and kwargs["from_file"] is not None) != 1:
            raise click.UsageError(f"name topics, or give {ways}", click.get_current_context())
        return function(*args, selection=TopicSelection(named, all_topics, pattern), **kwargs)

    decorated: Any = wrapper
    if or_file:
        path = click.Path(path_type=Path, allow_dash=True)
        text = "One JSON object per line; `-` reads stdin."
        decorated = click.option("--from-file", type=path, metavar="FILE", help=text)(decorated)
    decorated = click.option("--pattern", metavar="GLOB", help="Topics whose full name matches.")(decorated)
    decorated = click.option("--all-topics", is_flag=True, help="Every topic of the store.")(decorated)
    decorated = click.argument("named", metavar="[TOPICS]...", type=TOPIC, nargs=-1)(decorated)
    return decorated  # type: ignore[no-any-return]


def flag(*names: str, help: str) -> Callable[[Any], Any]:
    """Return a boolean option."""
    return click.option(*names, is_flag=True, help=help)


def choice_option(*names: str, words: Sequence[str], default: str | None = None, **more: Any) -> Callable[[Any], Any]:
    """Return an option for one of ``words``: the first, unless another is the ``default``."""
    # Any: of click.option
    return click.option(*names, type=click.Choice(words), default=default or words[0], show_default=True, **more)


def together(*decorators: Callable[[Any], Any]) -> Callable[[Function], Function]:  # Any: click's
    """Return one decorator that adds all these options, in the order of the help."""
    return lambda function: functools.reduce(lambda inner, decorate: decorate(inner), reversed(decorators), function)


def subscription_option(function: Function) -> Function:
    """Add the required ``-s/--subscription``, handed over as ``subscription: str``."""
    return click.option("-s", "--subscription", required=True, help="The subscription.")(function)


def redact_properties_option(function: Function) -> Function:
    """Add ``--redact`` of commands that show metadata, handed over as ``redact: bool``."""
    return click.option("--redact", is_flag=True, help="SHA-256 and length instead of the values of properties.")(
        function
    )


def gather(cls: type[Struct]) -> Callable[[Function], Function]:
    """Pass the options named like the fields of ``cls`` as one argument, ``options: cls``."""
    names = cls.__struct_fields__

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:  # Any: click calls it
            options = cls(**{name: kwargs.pop(name) for name in names if name in kwargs})
            return function(*args, options=options, **kwargs)

        return wrapper  # type: ignore[return-value]

    return decorate


def _limit_rate(ctx: click.Context, param: click.Parameter, value: int | None) -> None:
    if value is None or ctx.resilient_parsing:
        return
    if value < 1:
        raise click.BadParameter("it is a number of bytes a second, such as 100M", ctx, param)
    from pulsar_admin.store.pace import PACE

    PACE.limit(value)
    ctx.call_on_close(PACE.unlimit)


max_rate = click.option(
    "--max-rate",
    type=SIZE,
    callback=_limit_rate,
    expose_value=False,
    help="Read at most this many bytes a second, in this process alone, such as 100M: for disks that a bookie uses.",
)
"""For commands that read the disks of bookies whole."""


# -- pictures ---------------------------------------------------------------------------------------------------------


def picture_option(form: str) -> Callable[[Any], Any]:  # Any: click's decorators
    """Add ``--png FILE``, or the option of another format; raises MissingComponent before the command runs if it cannot
    draw."""
    text = f"Also draw it into a new {form.upper()} file."
    path = click.Path(path_type=Path)
    return click.option(f"--{form}", type=path, callback=_check_picture, metavar="FILE", help=text)


def plot_option(text: str) -> Callable[[Any], Any]:  # Any: click's decorators
    """Add the flag ``--plot`` with the help ``text``; raises MissingComponent."""
    return click.option("--plot", is_flag=True, callback=_check_plot, help=text)


def require_plot(app: App | None = None) -> None:
    """Raise MissingComponent if the requested format shows a plot and no plotting library is installed."""
    if app is None or app.writes_text:
        require("plotext", "a plot", instead="ask for the numbers: -o json")


def _check_plot(ctx: click.Context, parameter: click.Parameter, plot: bool) -> bool:
    if plot:
        require_plot()
    return plot


def _check_picture(ctx: click.Context, parameter: click.Parameter, path: Path | None) -> Path | None:
    if path is not None:
        require("matplotlib", f"--{parameter.name}")
    return path
