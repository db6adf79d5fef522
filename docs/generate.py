"""Write the generated pages: ``docs/cli/<group>.md`` from the commands, ``docs/exit-codes.md`` from the error table,
``docs/compatibility.md`` from upstream's command tree, ``docs/doctor.md`` from the table of causes.

``python docs/generate.py`` (or ``make docs``). The test suite compares the pages with what this makes.
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

import compatibility  # noqa: E402 - works on a checkout that is not installed

from pulsar_admin import command_table, errors, lookup  # noqa: E402 - works on a checkout that is not installed
from pulsar_admin.cli import CONTEXT, TableGroup, root  # noqa: E402
from pulsar_admin.store.errors import StoreError  # noqa: E402
from pulsar_admin.store.rules.finding import Severity  # noqa: E402
from pulsar_admin.store.rules.table import RULES_BY_CODE  # noqa: E402

WIDTH = 100
NOTE = "<!-- made by docs/generate.py: `make docs` writes it again -->\n\n"


SIGNALS = """
A shell reports a number above 128 for a process that a signal ended. 134 (SIGABRT), 135 (SIGBUS) and 139 (SIGSEGV) can mean that a page
of the store's `meta/data.mdb` is damaged on disk. If the file's size or time differs from what the last change left, all pages are
verified before any is read; a page that was damaged in place goes unnoticed. Run `store check`: unless a command is writing to the store,
it first verifies every page, without LMDB, and names the damage. Its hint says how to keep the changes.
"""


def all_pages() -> dict[str, str]:
    """Return every generated page: path below ``docs/`` → text."""
    pages = {"exit-codes.md": exit_codes_page(), "cli/pulsar-admin.md": root_page()}
    pages["doctor.md"] = doctor_page()
    pages["compatibility.md"] = NOTE + compatibility.page()
    for name in lookup.subgroups_of(command_table.ROOT):
        pages[f"cli/{name}.md"] = group_page(name)
    return pages


def commands_of(path: str) -> Iterator[tuple[str, click.Context]]:
    """Yield (path, context) of every command in group PATH and the groups in it, in the table's order."""
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
    """Return the click context of group PATH, as it is when the group is called."""
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
    text = f"{NOTE}# pulsar-admin\n\n{_help(group_context(command_table.ROOT))}"
    groups = lookup.subgroups_of(command_table.ROOT)
    if groups:
        text += "\n## Groups\n\n" + "".join(f"- [`{name}`]({name}.md): {line}\n" for name, line in groups.items())
    return text + _command_sections(command_table.ROOT)


def group_page(path: str) -> str:
    """Return the page of one group."""
    text = f"{NOTE}# {path}\n\n{command_table.GROUPS[path]}\n\n| command | |\n|---|---|\n"
    for name, context in commands_of(path):
        line = context.command.get_short_help_str(200)
        text += f"| [`{name}`](#{name.replace(' ', '-').lower()}) | {line} |\n"
    return text + _command_sections(path)


def _command_sections(path: str) -> str:
    return "".join(f"\n## {name}\n\n{_help(context)}" for name, context in commands_of(path))


def _help(context: click.Context) -> str:
    return f"```text\n{context.get_help()}\n```\n"


def exit_codes_page() -> str:
    """Return the page of exit codes and error codes."""
    text = (
        f"{NOTE}# Exit codes and error codes\n\nScripts test the exit code. The error code is finer and stable; with `-o json`"
        ' it is in the JSON on stderr: `{"error":{"code":…,"message":…,"hint":…,"context":{…}}}`.\n\n'
        "| exit | meaning | error codes |\n|---|---|---|\n"
    )
    rows = [*error_rows(), *((code, number, meaning) for code, (number, meaning) in errors.OTHER_CODES.items())]
    for number, meaning in errors.MEANINGS.items():
        codes = ", ".join(f"`{code}`" for code, exit_code, _ in rows if exit_code == number)
        text += f"| {number} | {meaning} | {codes} |\n"
    text += "\nIf the reader stops early (`| head`), the program ends quietly with 0.\n"
    text += SIGNALS
    text += "\n## Error codes\n\n| code | exit | when |\n|---|---|---|\n"
    return text + "".join(f"| `{code}` | {number} | {meaning} |\n" for code, number, meaning in sorted(rows))


DOCTOR = """# What the doctor finds

`pulsar-admin doctor` looks for everything below, and ranks its findings by severity, then by messages and bytes at stake.
It only reads. `pulsar-admin doctor --explain CODE` shows one section in the terminal.

- `critical`: data is lost or cannot be served.
- `warning`: data will be lost, or something is wrong that nobody notices yet.
- `note`: worth knowing.

Brokers and bookies behave as described in Pulsar 4.0.8 with BookKeeper 4.17.
"""


def doctor_page() -> str:
    """Return the page of the doctor's rules: a section a code, with an example of what ``tests/doctor/recording.py`` saw of each."""
    text = NOTE + DOCTOR
    examples = json.loads((ROOT / "docs" / "examples" / "findings.json").read_text())
    for severity in Severity:
        causes = sorted(cause.code for cause in RULES_BY_CODE.values() if cause.severity is severity)
        text += "\n" + _filled(f"{severity}: " + ", ".join(f"[`{code}`](#{code})" for code in causes)) + "\n"
    for code, cause in sorted(RULES_BY_CODE.items()):
        text += f"\n## {code}\n\n**{cause.title}** ({cause.severity})\n\n{_filled(cause.means)}\n\n"
        one = examples[code]
        head = f"{one['severity']} {code}: {one['where'].removeprefix('persistent://')}"
        text += (
            "```text\n" + "\n".join([head, *(f"  {line}" for line in textwrap.wrap(one["message"], 100))]) + "\n```\n\n"
        )
        text += f"{_filled(f'**A broker**: {cause.broker}')}\n\n{_filled(f'**Repair**: {cause.how}')}\n\n"
        text += f"```\n{cause.command({})}\n```\n"
        text += f"\n{_filled(f'**Prevent**: {cause.prevent}')}\n" if cause.prevent else ""
    return text


def _filled(text: str) -> str:
    """Return TEXT in lines of 120 columns."""
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
    """Write all pages and remove those of commands that are gone."""
    docs = ROOT / "docs"
    pages = all_pages()
    (docs / "cli").mkdir(exist_ok=True)
    for name, text in pages.items():
        (docs / name).write_text(text)
    for path in (docs / "cli").glob("*.md"):
        if f"cli/{path.name}" not in pages:
            path.unlink()


if __name__ == "__main__":
    main()
