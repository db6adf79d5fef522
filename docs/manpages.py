"""Write a manual page for the program and for each command: ``python docs/manpages.py FOLDER`` (or ``make man``)."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

from generate import commands_of  # noqa: E402 - works on a checkout that is not installed

from pulsar_admin import command_table, lookup  # noqa: E402
from pulsar_admin.cli import CONTEXT, root  # noqa: E402
from pulsar_admin.options import Command  # noqa: E402

_SECTIONS = re.compile(r"^([A-Z][A-Za-z ()]*):$")


def pages() -> Iterator[tuple[str, str]]:
    """Yield (file name, text) of every page."""
    program = click.Context(root(), info_name="pulsar-admin", **{**CONTEXT, "terminal_width": 72})
    rows = [
        (name, context)
        for group in [command_table.ROOT, *lookup.subgroups_of(command_table.ROOT)]
        for name, context in commands_of(group)
    ]
    yield "pulsar-admin.1", _page("pulsar-admin", "pulsar-admin, offline", program, [name for name, _ in rows])
    for name, context in rows:
        assert isinstance(context.command, Command)
        sentence = " ".join((context.command.help or "").split("\n\n")[0].split())
        context.terminal_width = 72
        yield f"pulsar-admin-{name.replace(' ', '-')}.1", _page(f"pulsar-admin {name}", sentence, context, [])


def _page(title: str, sentence: str, context: click.Context, others: list[str]) -> str:
    dashed = title.replace(" ", "-")
    out = [
        f'.TH "{dashed.upper()}" "1" "" "pulsar-admin-toolkit" "User Commands"',
        ".SH NAME",
        _plain(f"{dashed} - {sentence.rstrip('.')}"),
    ]
    body = context.command.get_help(context).splitlines()
    usage = next(number for number, line in enumerate(body) if not line.strip())
    out += [".SH SYNOPSIS", ".nf", *map(_plain, body[:usage]), ".fi", ".SH DESCRIPTION", ".nf"]
    for line in body[usage + 1 :]:
        heading = _SECTIONS.match(line)
        if heading is not None:
            out += [".fi", f'.SH "{heading[1].upper()}"', ".nf"]
        else:
            out.append(_plain(line.removeprefix("  ")))
    out += [
        ".fi",
        ".SH SEE ALSO",
        _plain(", ".join(f"pulsar-admin-{name.replace(' ', '-')}(1)" for name in others) or "pulsar-admin(1)"),
    ]
    return "\n".join(out) + "\n"


def _plain(line: str) -> str:
    """Return ``line`` as roff takes it literally; an empty one is a space, as paragraphs are no matter here."""
    text = line.rstrip().replace("\\", "\\e").replace("-", "\\-").replace("`", "\\(ga").replace("'", "\\(aq")
    return "\\&" + text if text.startswith((".", "\\(aq")) else text or ".sp"


def main() -> None:
    """Write the pages into the folder that is named."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages():
        (folder / name).write_text(text)


if __name__ == "__main__":
    main()
