"""Commands in the text that the program prints: ``pulsar-admin …`` in a sentence, a hint, a table or JSON."""

import json
import re
import shlex
from collections.abc import Iterator

import click

from pulsar_admin.cli import root
from pulsar_admin.lookup import is_subgroup
from pulsar_admin.store.errors import StoreError

PROGRAM = "pulsar-admin"
PLACEHOLDER = re.compile(r"…|\[?[A-Z][A-Z-]+([=,:/|][A-Z-]+)*(,…)?\]?|\S*[=,][A-Z][A-Z-]{2,}")
"""A word that a person replaces: ``TOPIC``, ``ID=DIR,DIR``, ``HOST:PORT``."""
_START = re.compile(r"(?<![\w./-])pulsar-admin (?=(?:--(?:store|tables|now|tz|cluster) )?[a-z'/@-])")
_JSON_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
_END = re.compile(r"(?<=\S)[;,):`.]+$")


def commands_in(text: str) -> Iterator[str]:
    """Yield the commands in a text, each to its end: of the line, or the first word that a comma, semicolon or bracket ends."""
    for start in _START.finditer(text):
        rest = text[start.end() :].partition("\n")[0].partition(f" {PROGRAM} ")[0]
        yield f"{PROGRAM} {' '.join(_words_to_the_end(rest))}"


def _words_to_the_end(rest: str) -> Iterator[str]:
    for word in re.findall(r"(?:'[^']*'|\"[^\"]*\"|[^\s'\"])+", rest):
        if word.startswith("("):
            return
        end = _END.search(word)
        yield word[: end.start()] if end else word
        if end:
            return


def printed_commands(text: str) -> Iterator[str]:
    """Yield the commands in what a command line printed, JSON or not."""
    for line in text.splitlines():
        if line.startswith("Usage: "):
            continue
        texts = _JSON_TEXT.findall(line) if re.match(r'\s*["{\[]', line) else []
        for one in texts or [line]:
            yield from commands_in(json.loads(one) if texts else one)


def is_placeholder(word: str) -> bool:
    """Whether a word of a command is to be replaced before it is typed."""
    return PLACEHOLDER.fullmatch(word) is not None


def parse_error(words: list[str]) -> str:
    """Return why the words behind the program's name are no command line; "": they are one. Nothing runs."""
    group: click.Command | None = root()
    assert group is not None
    try:
        with group.make_context(PROGRAM, words) as ctx:
            rest = [*ctx._protected_args, *ctx.args]
            while isinstance(group, click.Group):
                if not rest:
                    return "" if group.path == "" else "it names a group"  # type: ignore[attr-defined]
                name, group, rest = group.resolve_command(ctx, rest)
                ctx = group.make_context(name, rest, parent=ctx)
                if isinstance(group, click.Group):
                    rest = [*ctx._protected_args, *ctx.args]
    except click.exceptions.Exit:
        return ""
    except (click.ClickException, StoreError) as error:
        return error.message
    return ""


def words_of(command: str) -> list[str]:
    """Return the words of a command behind the program's name, as a shell takes them apart."""
    return shlex.split(command)[1:]


__all__ = ["commands_in", "is_placeholder", "is_subgroup", "parse_error", "printed_commands", "words_of"]
