"""The recorded command lines say what they said, and every command, format and exit code is among them."""

import difflib
from collections.abc import Iterator

import click
import pytest

from pulsar_admin.cli import TableGroup, root
from pulsar_admin.config import FORMATS
from pulsar_admin.errors import BUG, EXIT_CODES
from tests.transcript.recording import PROGRAM, Line, lines_of, record, transcripts
from tests.transcript.test_printed_commands import new_commands, why_not

TRANSCRIPTS = transcripts()
LINES = [
    line
    for path in TRANSCRIPTS.values()
    for line in lines_of(path.read_text())
    if line.words and line.words[0] == PROGRAM
]


@pytest.mark.parametrize("name", TRANSCRIPTS)
def test_says_what_it_said(name: str, damages_stores: None, capsys: pytest.CaptureFixture[str]) -> None:
    """And each command that a line prints can be typed as it stands, just after that, where the line ran."""
    failed: list[tuple[str, str, str]] = []
    seen: set[str] = set()

    def type_printed(line: Line, said: str) -> None:
        for command in new_commands(line, said, seen):
            if why := why_not(command, capsys):
                failed.append((line.text, command, why))

    recorded = TRANSCRIPTS[name].read_text()
    now = record(recorded, type_printed)
    text = "\n".join(difflib.unified_diff(recorded.splitlines(), now.splitlines(), "recorded", "now", lineterm=""))
    if text:
        pytest.fail(
            f"{name}: says something else; tests/transcript/__init__.py tells when to record anew\n{text}",
            pytrace=False,
        )
    assert failed == []


def _commands(group: TableGroup, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, TableGroup):
            yield from _commands(command, (*path, name))
        elif (
            command is not None and command.callback.__module__ != "pulsar_admin.commands.policies"
        ):  # tests/golden/policies.txt
            yield (*path, name)


def _is_of(line: Line, path: tuple[str, ...]) -> bool:
    words = f" {' '.join(line.words)} "
    return f" {' '.join(path)} " in words and "--help" not in words


def test_every_command_format_and_exit_code_is_recorded() -> None:
    assert [path for path in _commands(root()) if not any(_is_of(line, path) for line in LINES)] == []
    assert [form for form in FORMATS if not any(f"-o {form}" in " ".join(line.words) for line in LINES)] == []
    texts = [path.read_text() for path in TRANSCRIPTS.values()]
    codes = {*EXIT_CODES.values()} - {BUG}
    assert [code for code in codes if not any(f"\n? {code}\n" in text for text in texts)] == []
