"""The root command: groups and commands come from the command table, and a command's module is imported when it is called.

``main`` is the console script; ``run`` is the same without ending the process, for tests. The table in
``pulsar_admin.errors`` gives every error its exit code.
"""

from __future__ import annotations

import atexit
import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING, Any, NoReturn

import click

from pulsar_admin import command_table, lookup
from pulsar_admin.config import colors_text, completion_instruction, limit_library_threads, preset_color, preset_output
from pulsar_admin.errors import PipeClosed, failure_of
from pulsar_admin.global_options import COMMON, UPSTREAMS, TakesGlobals, check_left
from pulsar_admin.options import app_of, current_app
from pulsar_admin.store.names import shell_word
from pulsar_admin.typable import begin, end

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from pulsar_admin.context import App

PROGRAMS = ("pulsar-admin", "pulsar-admin-offline")
_JSON = ("json", "jsonl")
_AGAIN_S = 0.2
"""Long enough that ``interrupt_again`` has returned on a busy machine: a signal within it would be lost, too."""
_OFFERED = 3
_FEW = 12
"""Commands of a group that are listed without sections."""
CONTEXT: dict[str, Any] = {  # Any: click's settings
    "help_option_names": ["-h", "--help"],
    "max_content_width": 100,
}
"""Of the root command's context."""


class TableGroup(TakesGlobals, click.Group):
    """A group whose commands are rows of the command table; its help imports none of them."""

    def __init__(self, path: str, *, upstream: str | None = None, text: str | None = None) -> None:
        """``path``: the group's in the command table; ``upstream``: its path in upstream, if different; ``text``: the
        help of a group without rows.
        """
        name = path.rpartition(" ")[2] or PROGRAMS[0]
        is_root = path == command_table.ROOT
        super().__init__(
            name,
            help=text or command_table.GROUPS[path],
            no_args_is_help=not is_root,
            invoke_without_command=is_root,
            callback=_without_command if is_root else None,
            context_settings=CONTEXT,
        )
        self.path = path
        self.upstream = upstream or path
        self.shown = None if is_root else ()
        if is_root:
            self.declared = {**COMMON, **UPSTREAMS}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*lookup.subgroups_of(self.path), *lookup.rows_of(self.path)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if lookup.is_subgroup(self.path, cmd_name):
            return TableGroup(f"{self.path} {cmd_name}".strip())
        row = lookup.find_row(self.path, cmd_name)
        if self.upstream != self.path and (refused := self._refusing(cmd_name)) is not None:
            return refused
        if row is None:
            return self._upstreams_group(cmd_name) if self.path == command_table.ROOT else self._refusing(cmd_name)
        module, _, attribute = row.target.partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def _refusing(self, name: str) -> click.Command | None:
        from pulsar_admin.upstream import refusing_command

        return refusing_command(self.upstream, name)

    def _upstreams_group(self, name: str) -> click.Command | None:
        """Return upstream's group ``name`` if it has another name here, or if all its commands need a running broker."""
        path = command_table.ALIASES.get(name, name)
        if path in command_table.GROUPS:
            return TableGroup(path, upstream=name) if path != name else None
        from pulsar_admin.needs_broker import group_need

        need = group_need(path)
        return need and TableGroup(path, text=f"Needs a running broker: {need.reason}.")

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        from click.shell_completion import CompletionItem

        lines = [*lookup.subgroups_of(self.path).items()]
        lines += [(name, row.help) for name, row in lookup.rows_of(self.path).items()]
        items = [CompletionItem(name, help=text) for name, text in lines if name.startswith(incomplete)]
        return items + click.Command.shell_complete(self, ctx, incomplete)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_commands(ctx, formatter)
        click.Command.format_options(self, ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, lines in self._sections().items():
            if lines:
                with formatter.section(title):
                    formatter.write_dl(list(lines.items()))

    def _sections(self) -> dict[str, dict[str, str]]:
        """Return the sections of the help: title → command → text.

        The root lists its most used commands first, a large group its reading commands before those that change.
        """
        groups = lookup.subgroups_of(self.path)
        lines = {name: row.help for name, row in lookup.rows_of(self.path).items() if not row.hidden}
        if self.path == command_table.ROOT:
            often = {
                title: {
                    path: command_table.COMMANDS[path.rpartition(" ")[0]][path.rpartition(" ")[2]].help
                    for path in paths
                }
                for title, paths in command_table.OFTEN.items()
            }
            listed = {path for paths in command_table.OFTEN.values() for path in paths}
            return {
                **often,
                "Other commands": {name: text for name, text in lines.items() if name not in listed},
                "Groups": groups,
            }
        if len(lines) < _FEW:
            return {"Groups": groups, "Commands": lines}
        from pulsar_admin.suggest import READS, verbs_of

        own = command_table.COMMANDS.get(self.path, {})
        sections: dict[str, dict[str, str]] = {"Groups": groups, "Look": {}, "Change": {}, "Policies": {}}
        for name, text in lines.items():
            title = "Policies" if name not in own else "Look" if verbs_of(name) is READS else "Change"
            sections[title][name] = text
        return sections

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        args = self._meant(ctx, args)
        name = args[0]
        if name == "--help" or name == "--version":
            self.make_context(ctx.info_name, args, ctx.parent)  # which shows it and exits
        if self.get_command(ctx, name) is None and not name.startswith("-") and not ctx.resilient_parsing:
            check_left(ctx, f"{self.path} {name}".strip())
            raise click.UsageError(f"No such command {name!r}.{self._suggestion(ctx, name, args[1:])}", ctx)
        return super().resolve_command(ctx, args)

    def _meant(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Return ``args`` with known near misses replaced by the command they mean; raises UsageError with a suggestion
        for others."""
        own = self.path.split()
        if args[0] == "help" and not ctx.resilient_parsing:
            args = [*args[1:], "--help"]
        if self.path == "store import" and self.get_command(ctx, args[0]) is None and os.path.exists(args[0]):
            return ["standalone", *args]
        tails = [" -s", ""] if any(re.match("-s|--subscription", word) for word in args) else [""]
        for count, tail in ((count, tail) for count in (3, 2, 1) for tail in tails):
            plain = " ".join([*own, *args[:count]]) + tail
            meant, offered = command_table.MEANT.get(plain, ""), command_table.OFFERED.get(plain, "")
            words, left = meant.split(), args[count:]
            if meant and ": " not in meant and words[: len(own)] == own:
                return [*words[len(own) :], *left]
            if meant or offered:
                typed = _filled(meant, left) if ": " in meant else _did_you_mean(offered or meant, left)
                raise click.UsageError(f"No such command {' '.join(args[:count])!r}. {typed}", ctx)
        return args

    def _suggestion(self, ctx: click.Context, name: str, left: Sequence[str]) -> str:
        """Return "Did you mean …" for an unknown ``name``: similar names in this group, otherwise commands and groups
        elsewhere."""
        from pulsar_admin.suggest import suggestions

        names = self.list_commands(ctx) + [alias for row in lookup.rows_of(self.path).values() for alias in row.aliases]
        close = suggestions(name, names)
        meant = [f"{self.path} {one}".strip() for one in close]
        groups = command_table.GROUPS
        meant = meant or [f"{group} {name}".strip() for group in groups if name in lookup.rows_of(group)]
        meant = meant or [group for group in groups if group.rpartition(" ")[2] == name]
        if len(meant) == 1:
            return f" {_did_you_mean(meant[0], left)}"
        return f" Did you mean {' or '.join(close or meant)}?" if 0 < len(meant) <= _OFFERED else ""


def _did_you_mean(command: str, left: Sequence[str]) -> str:
    return " ".join([f"Did you mean: pulsar-admin {command}", *map(shell_word, left)])


def _filled(sentence: str, words: Sequence[str]) -> str:
    rest = takewhile(lambda word: not word.startswith("-"), words)
    return re.sub(r"{([A-Z]+)}", lambda place: shell_word(next(rest, place[1])), sentence)


class _NoStore(click.exceptions.NoArgsIsHelpError):
    """The message when neither a command nor a store was given: how to create a store, and how to get help."""

    def format_message(self) -> str:
        return (
            "No store here. Create one from Pulsar's files: pulsar-admin store import DIR\n"
            "or name one that is elsewhere:                 pulsar-admin --store DIR\n"
            "Then `pulsar-admin`, without a command, shows an overview.\n"
            "All commands:                                  pulsar-admin --help"
        )


@click.pass_context
def _without_command(ctx: click.Context) -> None:
    """Without a command, show the overview if there is a store or one was named, otherwise help."""
    if ctx.invoked_subcommand is not None:
        return
    app = current_app()
    if not (app.settings.store / "store.json").exists() and not app.settings.store_given:
        raise _NoStore(ctx)
    assert isinstance(ctx.command, TableGroup)
    overview = ctx.command.get_command(ctx, "overview")
    assert overview is not None
    with overview.make_context("overview", [], parent=ctx) as inner:
        overview.invoke(inner)


def root() -> TableGroup:
    """Return the root group."""
    return TableGroup(command_table.ROOT)


def run(argv: Sequence[str] | None = None, *, program: str = PROGRAMS[0]) -> int:
    """Run one command line and return its exit code; results are on stdout, everything else on stderr."""
    arguments = tuple(sys.argv[1:] if argv is None else argv)
    _, instruction = completion_instruction(program)
    begin(program)
    try:
        code = _complete(program, instruction) if instruction else _invoke(arguments, program)
        sys.stdout.flush()
    except (PipeClosed, BrokenPipeError):
        _silence_stdout()
        return 0
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the one place where every error gets its number
        return _report(error, program, arguments)
    finally:
        end()
    return code


def _complete(program: str, instruction: str) -> int:
    from pulsar_admin.completing import complete

    return complete(root(), program, instruction)


def _invoke(arguments: Sequence[str], program: str) -> int:
    # Not click's main(): it turns a closed pipe into exit code 1.
    app: App | None = None
    code = 0
    group = root()
    try:
        with group.make_context(program, list(arguments)) as ctx:
            try:
                group.invoke(ctx)
            finally:
                app = app_of(ctx)
    except click.exceptions.Exit as stop:
        code = stop.exit_code
    return code or (app.exit_code if app is not None else 0)


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Console script: run the command line and end the process with its exit code."""
    limit_library_threads()
    sys.unraisablehook = interrupt_again
    name = os.path.basename(sys.argv[0])
    code = run(argv, program=name if name in PROGRAMS else PROGRAMS[0])
    if "pyspark" in sys.modules:
        sys.exit(code)  # Spark's own exit hooks end its JVM
    # Taking an interpreter with numba and numpy apart costs 0.1 s and frees what the system frees anyway. Not so files of
    # multiprocessing, which its hook removes.
    atexit._run_exitfuncs()
    with suppress(OSError, ValueError):
        sys.stderr.flush()
    os._exit(code)


def interrupt_again(lost: Any) -> None:  # Any: sys.UnraisableHookArgs, which only type checkers know
    """Handle an exception that Python could not raise: repeat a Ctrl-C a moment later, report any other exception.

    Otherwise a Ctrl-C during a callback of LLVM, with which numba loads kernels, would be ignored.
    """
    if lost.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(lost)
        return
    import signal
    import threading

    threading.Timer(_AGAIN_S, os.kill, (os.getpid(), signal.SIGINT)).start()


def _report(error: BaseException, program: str, arguments: Sequence[str]) -> int:
    failure = failure_of(error)
    again = failure.context.pop("again", None)
    if isinstance(again, list):
        line = " ".join(map(shell_word, (program, *arguments)))
        failure.hint += ": " + ", or: ".join(f"{line} {option}" for option in again)
    try:
        failure.write(as_json=_wants_json(arguments), colored=colors_text(preset_color(arguments)))
        sys.stdout.flush()
    except OSError:
        _silence_stdout()
    return failure.exit_code


def _wants_json(arguments: Sequence[str]) -> bool:
    """Return whether to print errors as JSON; reads the raw arguments, because parsing may have failed."""
    for word, following in pairwise((*arguments, "")):
        value = following if word in {"-o", "--output"} else ""
        value = value or (word.removeprefix("--output=") if word.startswith("--output=") else "")
        if value in _JSON or word in {"-ojson", "-ojsonl"}:
            return True
    return not any(word == "-o" or word.startswith("--output") for word in arguments) and preset_output() in _JSON


def _silence_stdout() -> None:
    """Point stdout at the null device, so that the interpreter's last flush cannot fail."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)
