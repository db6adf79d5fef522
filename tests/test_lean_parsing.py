"""Command lines parsed with the global options that they name are parsed as with all of them."""

import io
import random
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from itertools import islice

import click
import pytest

from pulsar_admin import global_options
from pulsar_admin.cli import run
from pulsar_admin.global_options import GIVEN, IGNORED
from pulsar_admin.options import Command
from tests.fuzz.command_lines import HOSTILE, Lines

_LINES = 250
_ANYWHERE = [
    "-q",
    "-y",
    "-qy",
    "-ojson",
    "-o=json",
    "-o",
    "--store",
    "--store=x",
    "--tz",
    "--tz=",
    "--where=A=1",
    "--plan",
    "-v",
]
_ANYWHERE += [
    "--admin-url",
    "--admin-url=http://x",
    "--help",
    "-h",
    "-qh",
    "--jobs=2",
    "--jobs",
    "--stroe",
    "-Q",
    "--",
    "-",
    "",
]


def _parsed(words: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> tuple[object, ...]:
    """Return what WORDS give a command, the exit code, and what was said."""
    found: list[object] = []

    def keep(command: Command, ctx: click.Context) -> None:
        found.extend((command.name, ctx.params, ctx.meta.get(GIVEN), ctx.meta.get(IGNORED)))

    monkeypatch.setattr(Command, "invoke", keep)
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run(words)
    return (*map(repr, found), code, out.getvalue(), err.getvalue())


def test_lines_are_parsed_as_with_all_options(monkeypatch: pytest.MonkeyPatch) -> None:
    source = random.Random(11)
    reached = 0
    for line in islice(Lines(11), _LINES):
        words = ["--now=2026-11-20T00:00:00Z", *line.words]
        for _ in range(source.choice([0, 1, 1, 2, 3])):
            more = [source.choice(_ANYWHERE), *([source.choice(HOSTILE)] if source.random() < 0.4 else [])]
            at = source.randrange(len(words) + 1)
            words[at:at] = more
        lean = _parsed(words, monkeypatch)
        with monkeypatch.context() as patch:
            patch.setattr(global_options, "_possible", lambda words: bool)
            assert lean == _parsed(words, monkeypatch), words
        reached += len(lean) > len(("code", "out", "err"))
    assert reached > _LINES // 5
