"""Every command that the recorded command lines print can be typed as it stands: in the same directory where no store was named, and in any
other where one was."""

import os
from collections.abc import Iterator
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
"""What prints examples for everybody, or a script; and so do other programs."""
_NAMES_ELSEWHERE = ("--store", "--tables")


def is_generic(line: Line) -> bool:
    return line.words[:1] != (PROGRAM,) or any(word in _GENERIC for word in line.words)


def names_a_store(line: Line) -> bool:
    return any(word.partition("=")[0] in _NAMES_ELSEWHERE for word in line.words)


def named(line: Line) -> Line:
    """The line with the store that it works on named, as a path from where it runs."""
    if (
        not line.words
        or line.words[0] != PROGRAM
        or is_generic(line)
        or names_a_store(line)
        or "PULSAR_ADMIN_STORE" in line.settings
    ):
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


def new_commands(line: Line, said: str, seen: set[str]) -> Iterator[str]:
    """Yield the commands that a line printed and no one before it."""
    for command in () if is_generic(line) else printed_commands(said):
        if command not in seen:
            seen.add(command)
            yield command


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


@pytest.mark.parametrize(
    "name",
    [
        "mending",
        "topics",
        *(pytest.param(name, marks=pytest.mark.deep) for name in ("cursors", "replicas", "store", "undelete")),
    ],
)
@pytest.mark.usefixtures("damages_stores")
def test_with_a_store_named_they_run_anywhere(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``test_says_what_it_said`` runs them where the lines do, without one."""
    failed: list[tuple[str, str, str]] = []
    seen: set[str] = set()
    with own_directory() as (_, clock), ExitStack() as held:
        for line in map(named, lines_of(TRANSCRIPTS[name].read_text())):
            clock.start()
            _, stdout, stderr = run_line(line, held) if line.words else (0, "", "")
            for command in new_commands(line, f"{stdout}\n{stderr}", seen):
                if why := _names_no_store(line, words_of(command)):
                    failed.append((line.text, command, why))
                    continue
                with chdir(tmp_path):
                    if why := why_not(command, capsys):
                        failed.append((line.text, command, why))
    assert failed == []


def _names_no_store(line: Line, words: list[str]) -> str:
    """Return what is wrong with a printed command that only works where LINE ran; "": nothing."""
    if words[0] in WITHOUT_STORE or "--help" in words or not names_a_store(line):
        return ""
    options = {word: words[place + 1] for place, word in enumerate(words) if word in _NAMES_ELSEWHERE}
    is_named = any(os.path.isabs(value) or is_placeholder(value) for value in options.values())
    return "" if is_named else "it names no store, or one from here"
