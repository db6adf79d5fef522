"""Every command that the recorded command lines print can be typed as it stands: in the same directory where no store was named, and in any
other where one was."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, chdir
from pathlib import Path

import click
import pytest
from msgspec.structs import replace

from pulsar_admin.cli import root, run
from pulsar_admin.typable import WITHOUT_STORE
from tests.printed import is_placeholder, parse_error, printed_commands, words_of
from tests.transcript.recording import PROGRAM, Line, lines_of, own_directory, run_line, transcripts

TRANSCRIPTS = transcripts()
_GENERIC = ("--help", "-h", "--schema", "completion", "--version")
"""What prints examples for everybody, or a script."""
_NAMES_ELSEWHERE = ("--store", "--tables")


def is_generic(line: Line) -> bool:
    return any(word in _GENERIC for word in line.words)


def names_a_store(line: Line) -> bool:
    return any(word.partition("=")[0] in _NAMES_ELSEWHERE for word in line.words)


def named(line: Line) -> Line:
    """The line with the store that it works on named, as a path from where it runs."""
    if line.words[0] != PROGRAM or is_generic(line) or names_a_store(line) or "PULSAR_ADMIN_STORE" in line.settings:
        return line
    return replace(line, words=(PROGRAM, "--store", "pulsar-store", *line.words[1:]))


def previewing(words: list[str]) -> list[str]:
    """The words of a command, so that it changes nothing."""
    if "--help" in words:
        return words
    group: click.Command | None = root()
    context = click.Context(root())
    rest = [*words]
    while rest and rest[0].startswith("--"):
        del rest[:2]
    while isinstance(group, click.Group) and rest:
        _, group, rest = group.resolve_command(context, rest)
    changes = getattr(group, "changes", False) or "dry_run" in getattr(group, "uses", ())
    return [*words, "--dry-run"] if changes and "--dry-run" not in words else words


def printed_by(name: str, change: Callable[[Line], Line]) -> Iterator[tuple[Line, str]]:
    """Run a transcript, its lines as CHANGE makes them, and yield each command that a line prints, once, just after it was printed."""
    seen = set()
    with own_directory() as (_, clock), ExitStack() as held:
        for line in lines_of(TRANSCRIPTS[name].read_text()):
            clock.start()
            if not line.words:
                continue
            line = change(line)
            _, stdout, stderr = run_line(line, held)
            if line.words[0] != PROGRAM or is_generic(line):
                continue
            for command in printed_commands(stdout + "\n" + stderr):
                if command not in seen:
                    seen.add(command)
                    yield line, command


def why_not(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Return why a printed command cannot be typed; "": it can. One with a word to be replaced is only looked at."""
    words = words_of(command)
    if any(is_placeholder(word) for word in words):
        return ""
    if error := parse_error(words):
        return error
    code = run(previewing(words))
    said = capsys.readouterr().err
    return f"exit code {code}: {said}" if code in (2, 70) else ""


@pytest.mark.parametrize("name", TRANSCRIPTS)
def test_without_a_store_named_they_run_here(
    name: str, damages_stores: None, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = [
        (line.text, command, why)
        for line, command in printed_by(name, lambda line: line)
        if (why := why_not(command, capsys))
    ]
    assert failed == []


@pytest.mark.parametrize("name", TRANSCRIPTS)
def test_with_a_store_named_they_run_anywhere(
    name: str, damages_stores: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = []
    for line, command in printed_by(name, named):
        words = words_of(command)
        wants_none = words[0] in WITHOUT_STORE or "--help" in words
        if not wants_none and names_a_store(line):
            options = {word: words[place + 1] for place, word in enumerate(words) if word in _NAMES_ELSEWHERE}
            if not any(os.path.isabs(value) or is_placeholder(value) for value in options.values()):
                failed.append((line.text, command, "it names no store, or one from here"))
                continue
        with chdir(tmp_path):
            if why := why_not(command, capsys):
                failed.append((line.text, command, why))
    assert failed == []
