"""Write the generated pages: ``docs/cli/<group>.md`` from the commands, ``docs/exit-codes.md`` from the error table,
``docs/compatibility.md`` from upstream's command tree, ``docs/doctor.md`` and ``docs/doctor/<code>.md`` from the table of causes;
``pulsar_admin/__init__.pyi`` from the table of public names, and ``pulsar_admin/commands.json`` from what commands declare.

``python docs/generate.py`` (or ``make docs``). The test suite compares the pages with what this makes.
"""

from __future__ import annotations

import inspect
import json
import pkgutil
import re
import sys
import textwrap
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

import compatibility  # noqa: E402 - works on a checkout that is not installed

import pulsar_admin  # noqa: E402
from pulsar_admin import command_table, commands, errors, lookup, schemas  # noqa: E402 - works on a checkout that is not installed
from pulsar_admin.cli import CONTEXT, TableGroup, root  # noqa: E402
from pulsar_admin.options import Command  # noqa: E402
from pulsar_admin.store.errors import StoreError  # noqa: E402
from pulsar_admin.store.rules.finding import Severity  # noqa: E402
from pulsar_admin.store.rules.rule import Rule  # noqa: E402
from pulsar_admin.store.rules.table import RULES_BY_CODE  # noqa: E402

WIDTH = 100
PAGE_COMMANDS = 100
"""A group of more commands has its policies on pages of their own."""
STUB = ROOT / "pulsar_admin" / "__init__.pyi"
TABLE = ROOT / "pulsar_admin" / "commands.json"
LIMITS = re.compile("max|rate|quota")
NOTE = "<!-- made by docs/generate.py: `make docs` writes it again -->\n\n"

MEANINGS: dict[int, str] = {
    errors.DONE: "done",
    errors.PROBLEMS: "done, but problems were found (by check, verify or doctor), or part of a batch failed",
    errors.USAGE: "usage: the command line is not valid",
    errors.REFUSED: "refused or cancelled",
    errors.BUSY: "busy, or the plan is stale",
    errors.NOT_FOUND: "not found (topic, subscription, ledger, or nothing matches)",
    errors.DAMAGED: "stopped by damaged or missing data, or a failing disk",
    errors.UNSUPPORTED: "unsupported, or a component is missing (codec, Java, key)",
    errors.NO_ROOM: "out of disk space, memory or map space",
    errors.BUG: "a bug in this toolkit",
    errors.INTERRUPTED: "interrupted",
}
OTHER_CODES: dict[str, tuple[int, str]] = {
    "usage": (errors.USAGE, "The command line is not valid: an unknown option, a missing argument."),
    "out-of-memory": (errors.NO_ROOM, "The process ran out of memory."),
    "bug": (errors.BUG, "An unexpected error; the traceback follows."),
    "interrupted": (errors.INTERRUPTED, "Ctrl-C, or the end of input at a prompt."),
}
"""Codes of errors that are not a ``StoreError``: number and meaning."""

SIGNALS = """
A shell reports a number above 128 for a process that a signal ended. 134 (SIGABRT), 135 (SIGBUS) and 139 (SIGSEGV) can mean that a page
of the store's `meta/data.mdb` is damaged on disk. If the file's size or time differs from what the last change left, all pages are
verified before any is read; a page that was damaged in place goes unnoticed. Run `store check`: unless a command is writing to the store,
it first verifies every page, without LMDB, and names the damage. Its hint says how to keep the changes.
"""


def all_pages() -> dict[str, str]:
    """Return every generated page: path below ``docs/`` → text."""
    pages = {"exit-codes.md": exit_codes_page(), "cli/pulsar-admin.md": root_page()}
    pages |= doctor_pages()
    pages["compatibility.md"] = NOTE + compatibility.page()
    for name in lookup.subgroups_of(command_table.ROOT):
        pages |= group_pages(name)
    return pages


def public_names() -> str:
    """Return what type checkers read of the package: each public name and where it is, as ruff formats that."""
    lines = ["# made by docs/generate.py: `make docs` writes it again", ""]
    homes: dict[str, list[str]] = {}
    for name, module in pulsar_admin._HOMES.items():
        homes.setdefault(module, []).append(name)
    for module, names in sorted(homes.items()):
        names.sort(key=lambda name: (name[0].islower(), name.lower()))
        line = f"from {module} import {', '.join(names)}"
        lines += [line] if len(line) <= 120 else [f"from {module} import (", *(f"    {name}," for name in names), ")"]
    lines += ["", "__version__: str", "", "__all__ = [", *(f'    "{name}",' for name in pulsar_admin.__all__), "]", ""]
    return "\n".join(lines)


def command_rows() -> str:
    """Return the command table: a row of each command that a module declares, in the order that the table has."""
    groups: dict[str, dict[str, list[object]]] = {
        path: {name: [] for name in rows} for path, rows in command_table.COMMANDS.items()
    }
    for found in pkgutil.walk_packages(commands.__path__, f"{commands.__name__}."):
        for name, command in vars(import_module(found.name)).items():
            if (
                not isinstance(command, Command)
                or command.callback is None
                or command.callback.__module__ != found.name
            ):
                continue
            group, _, own = command.details.path.rpartition(" ")
            sentence = " ".join((command.help or "").split("\n\n")[0].split())
            groups.setdefault(group, {})[own] = [
                f"{found.name}:{name}",
                sentence,
                *([command.aliases] * bool(command.aliases)),
            ]
    lines = []
    for group, rows in groups.items():
        told = (f"    {json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items() if row)
        lines.append(f"  {json.dumps(group)}: {{\n" + ",\n".join(told) + "\n  }")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def commands_of(path: str) -> Iterator[tuple[str, click.Context]]:
    """Yield (path, context) of every command in group ``path`` and the groups in it, in the table's order."""
    context = group_context(path)
    group = context.command
    assert isinstance(group, TableGroup)
    for name in lookup.rows_of(path):
        command = group.get_command(context, name)
        assert command is not None
        yield f"{path} {name}".strip(), click.Context(command, info_name=name, parent=context, terminal_width=WIDTH)
    if path != command_table.ROOT:
        for name in lookup.subgroups_of(path):
            yield from commands_of(f"{path} {name}")


def group_context(path: str) -> click.Context:
    """Return the click context of group ``path``, as it is when the group is called."""
    context = click.Context(root(), info_name="pulsar-admin", **{**CONTEXT, "terminal_width": WIDTH})
    for name in path.split():
        group = context.command
        assert isinstance(group, TableGroup)
        command = group.get_command(context, name)
        assert command is not None
        context = click.Context(command, info_name=name, parent=context, terminal_width=WIDTH)
    return context


def root_page() -> str:
    """Return the page of the program itself: global options and the commands without a group."""
    context = group_context(command_table.ROOT)
    text = f"{NOTE}# pulsar-admin\n\n{_told(context)}"
    groups = lookup.subgroups_of(command_table.ROOT)
    text += "\n## Groups\n\n" + "".join(f"- [`{name}`]({name}.md): {line}\n" for name, line in groups.items())
    return text + _sections(dict(commands_of(command_table.ROOT)))


def group_pages(path: str) -> dict[str, str]:
    """Return the page of one group; of one with many commands, those that policies make of it are on pages by subject."""
    commands, line = dict(commands_of(path)), command_table.GROUPS[path]
    if len(commands) <= PAGE_COMMANDS:
        return {f"cli/{path}.md": _group_page(path, line, commands)}
    own = command_table.COMMANDS[path].keys()
    parts: dict[str, dict[str, click.Context]] = {"": {}, "limits": {}, "policies": {}}
    for name, context in commands.items():
        short = name.removeprefix(f"{path} ")
        parts["" if short in own else "limits" if LIMITS.search(short) else "policies"][name] = context
    pages = {part: f"{path}-{part}".removesuffix("-") for part in parts}
    links = f"[limits, rates and quotas]({pages['limits']}.md), [other policies]({pages['policies']}.md)"
    text = f"{line} On pages of their own: the commands of {links}."
    return {
        f"cli/{pages[part]}.md": _group_page(f"{path}: {part}" if part else path, text, found)
        for part, found in parts.items()
    }


def _group_page(title: str, line: str, commands: dict[str, click.Context]) -> str:
    text = f"{NOTE}# {title}\n\n{line}\n\n| command | |\n|---|---|\n"
    for name, context in commands.items():
        text += f"| [`{name}`](#{_anchor(name)}) | {_plain(context.command.get_short_help_str(200))} |\n"
    return text + _sections(commands)


def _sections(commands: dict[str, click.Context]) -> str:
    return "".join(f"\n## {name}\n\n{_told(context)}" for name, context in commands.items())


def _told(context: click.Context) -> str:
    """Return what ``--help`` says of a command as Markdown, whose lines are as long as the reader's screen: each option has an anchor."""
    command = context.command
    paragraphs = inspect.cleandoc(command.help or "").partition("\f")[0].split("\n\n")
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    text = "".join(_paragraph(one) for one in paragraphs) + f"```text\n{usage}\n```\n\n"
    for param in command.get_params(context):
        record = param.get_help_record(context)
        if record is not None and record[1] and "--help" not in param.opts:
            anchor = _anchor(
                f"{context.command_path.removeprefix('pulsar-admin ')} {max(param.opts, key=len).lstrip('-')}"
            )
            text += f'- <a id="{anchor}"></a>`{record[0]}`: {_plain(record[1])}\n'
    details = getattr(command, "details", None)
    if details is None:
        return text
    lines = "\n".join(f"$ {one}" for one in (*details.examples, *details.elsewhere))
    text += f"\n```console\n{lines}\n```\n\n**Output.** {_plain(details.output)}\n\n"
    if units := schemas.units_in(command.details.path):
        text += f"**Units** (`-o json`, CSV): {_plain(units)}.\n\n"
    named = ", ".join(f"`{error.code}` ({errors.EXIT_CODES[error]})" for error in details.errors)
    text += f"**Errors** ([exit code](../exit-codes.md)): {named}.\n"
    if command.aliases:
        text += f"\n**Also called** {', '.join(f'`{name}`' for name in command.aliases)}.\n"
    return text


def _paragraph(text: str) -> str:
    """Return a paragraph of a docstring as Markdown; one that begins with click's mark keeps its lines."""
    if text.startswith("\b"):
        return f"```text\n{textwrap.dedent(text[1:].strip(chr(10)))}\n```\n\n"
    return f"{_plain(' '.join(text.split()))}\n\n"


def _plain(text: str) -> str:
    """Return a text in which nothing but code between backticks means something to Markdown."""
    parts = " ".join(text.split()).split("`")
    return "`".join(part if number % 2 else re.sub(r"([*<|])", r"\\\1", part) for number, part in enumerate(parts))


def _anchor(name: str) -> str:
    return name.replace(" ", "-").lower()


def exit_codes_page() -> str:
    """Return the page of exit codes and error codes."""
    text = (
        f"{NOTE}# Exit codes and error codes\n\nScripts test the exit code. The error code is finer and stable; with `-o json`"
        ' it is in the JSON on stderr: `{"error":{"code":…,"message":…,"hint":…,"context":{…}}}`.\n\n'
        "| exit | meaning | error codes |\n|---|---|---|\n"
    )
    rows = [*error_rows(), *((code, number, meaning) for code, (number, meaning) in OTHER_CODES.items())]
    for number, meaning in MEANINGS.items():
        codes = ", ".join(f"`{code}`" for code, exit_code, _ in rows if exit_code == number)
        text += f"| {number} | {meaning} | {codes} |\n"
    text += "\nIf the reader stops early (`| head`), the program ends quietly with 0.\n"
    text += SIGNALS
    text += "\n## Error codes\n\n| code | exit | when |\n|---|---|---|\n"
    return text + "".join(f"| `{code}` | {number} | {meaning} |\n" for code, number, meaning in sorted(rows))


DOCTOR = """# What the doctor finds

`pulsar-admin doctor` looks for everything below: a page a code. It ranks its findings by severity, then by messages and bytes at
stake, and only reads. `pulsar-admin doctor --explain CODE` shows one page in the terminal.

- `critical`: data is lost or cannot be served.
- `warning`: data will be lost, or something is wrong that nobody notices yet.
- `note`: worth knowing.

Brokers and bookies behave as described in Pulsar 4.0.8 with BookKeeper 4.17.
"""


def doctor_pages() -> dict[str, str]:
    """Return the list of the doctor's rules, and a page a code, with an example of what ``tests/doctor/recording.py`` saw of it."""
    text = NOTE + DOCTOR
    examples = json.loads((ROOT / "docs" / "examples" / "findings.json").read_text())
    pages = {}
    for severity in Severity:
        text += f"\n## {severity}\n\n| code | |\n|---|---|\n"
        for code, cause in sorted(RULES_BY_CODE.items()):
            if cause.severity is severity:
                text += f"| [`{code}`](doctor/{code}.md) | {_plain(cause.title)} |\n"
                pages[f"doctor/{code}.md"] = _rule_page(code, cause, examples[code])
    return {"doctor.md": text, **pages}


def _rule_page(code: str, cause: Rule, one: dict[str, str]) -> str:
    text = f"{NOTE}# {code}\n\n**{cause.title}** ([{cause.severity}](../doctor.md))\n\n{_filled(cause.means)}\n\n"
    head = f"{one['severity']} {code}: {one['where'].removeprefix('persistent://')}"
    text += "```text\n" + "\n".join([head, *(f"  {line}" for line in textwrap.wrap(one["message"], 100))]) + "\n```\n\n"
    text += f"{_filled(f'**A broker**: {cause.broker}')}\n\n"
    text += f"{_filled(f'**Can be lost**: {cause.loss}.')}\n\n" if cause.loss else ""
    text += f"{_filled(f'**Repair**: {cause.how}')}\n\n"
    text += f"```\n{cause.command({})}\n```\n"
    return text + (f"\n{_filled(f'**Prevent**: {cause.prevent}')}\n" if cause.prevent else "")


def _filled(text: str) -> str:
    """Return ``text`` in lines of 120 columns."""
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def error_rows() -> Iterator[tuple[str, int, str]]:
    """Yield (code, exit code, first sentence) of every error class."""
    for cls, number in errors.EXIT_CODES.items():
        assert issubclass(cls, StoreError)
        yield (
            cls.code,
            number,
            " ".join((cls.__doc__ or "").split("\n\n")[0].split()).replace("|", "\\|").replace("``", "`"),
        )


def main() -> None:
    """Write the command table, the public names and all pages, and remove those of commands that are gone."""
    TABLE.write_text(command_rows())
    command_table.COMMANDS.update(command_table.read_rows())
    STUB.write_text(public_names())
    docs = ROOT / "docs"
    pages = all_pages()
    for name, text in pages.items():
        (docs / name).parent.mkdir(exist_ok=True)
        (docs / name).write_text(text)
    for path in [*docs.glob("cli/*.md"), *docs.glob("doctor/*.md")]:
        if f"{path.parent.name}/{path.name}" not in pages:
            path.unlink()


if __name__ == "__main__":
    main()
