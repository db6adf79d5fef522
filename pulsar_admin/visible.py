r"""Cleaning all output: names come from data and must neither control a terminal nor forge a line.

``clean_text`` is for one name, message or cell and also escapes line breaks. ``clean_lines`` is applied to everything
that goes to stdout and stderr and keeps line breaks and tabs. Both keep JSON valid and equal, as they escape a character
as JSON does: ``\u202e``.
"""

import os
import re
import sys
from collections.abc import Mapping
from enum import Enum
from typing import Any, TextIO

from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.store.wording import HIDDEN
from pulsar_admin.store.wording import clean_text as clean_text
from pulsar_admin.typable import own_text

TONES = {"critical": "1;31", "warning": "33", "note": "36", "good": "32", "faint": "2", "head": "1"}
"""What a value means, and how a terminal shows it (parameters of SGR, ECMA-48). The words say the same without it."""
_PRINTABLE = bytes(range(0x20, 0x7F))
_LAYOUT = b"\n\t"
_MARKS = r"""(?mx) ^
    (?P<before> [ ]* (?: (?:look|look[ ]first|undo):[ ] | see:[ ] | \$[ ] | and[ ][\d,]+[ ]more:[ ] )? )
    (?: (?P<critical> (?:problem|critical)\b | error: )
      | (?P<warning> warning\b:? )
      | (?P<note> (?:note|hint)\b:? )
      | (?P<head> (?<![ ])(?:persistent|topic|segment)://[^\s,]+ | [A-Z]{3,}(?:[ :]+[A-Z%]+)*\b )
      | (?P<faint> pulsar-admin[ ].* )
    )"""
"""What a line of a text begins with that a terminal shows in a tone of its own: a severity, a topic, a heading, a command."""


def clean_document(document: Any) -> Any:  # Any: a result of any type, and the same type
    """Return a JSON document with ``clean_text`` applied to every text in it."""
    if isinstance(document, Enum):
        return document
    if isinstance(document, str):
        return clean_text(document)
    if isinstance(document, os.PathLike):  # pathlib itself takes 6 ms, which --help does without
        kind: Any = type(document)
        return kind(clean_text(os.fspath(document)))
    if isinstance(document, Mapping):
        return {clean_document(key): clean_document(item) for key, item in document.items()}
    if isinstance(document, tuple) and hasattr(document, "_fields"):
        return type(document)(*(clean_document(own_text(document, name)) for name in document._fields))
    if isinstance(document, (list, tuple)):
        return type(document)(map(clean_document, document))
    if isinstance(document, Struct):
        named = document.__struct_fields__
        return replace(document, **{name: clean_document(own_text(document, name)) for name in named})
    return document


def clean_lines(text: str) -> str:
    """Return a text of several lines, or JSON, with invisible characters escaped except line breaks and tabs."""
    if text.isascii() and not text.encode().translate(None, _PRINTABLE + _LAYOUT):
        return text
    return re.sub(f"(?![\n\t])[{HIDDEN}]", lambda match: _json_escape(match[0]), text)


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def painted(text: str) -> str:
    """Return a text of several lines, cleaned and colored for a terminal; colors carry no information of their own."""

    def paint(found: re.Match[str]) -> str:
        tone, before = found.lastgroup or "", found["before"]
        return f"{before}\x1b[{TONES[tone]}m{found[0].removeprefix(before)}\x1b[0m"

    return re.sub(_MARKS, paint, clean_lines(text))


def folded_text(text: str, width: int, indent: str = "", hang: str = "  ") -> str:
    """Return a sentence, cleaned and folded between words, its first line after ``indent``, the others ``hang`` further.

    A command is not folded.
    """
    from textwrap import fill

    return fill(
        _with_whole_commands(clean_text(text)),
        width,
        initial_indent=indent,
        subsequent_indent=indent + hang,
        break_long_words=False,
        break_on_hyphens=False,
    ).replace("\0", " ")


def _with_whole_commands(line: str) -> str:
    """Return a cleaned line with NUL for the blanks of commands: a shell runs the first half of one pasted with a line's end in it."""
    return re.sub(r"pulsar-admin\S* [^\n;)`]*|`[^`\n]*`", lambda found: found[0].replace(" ", "\0"), line)


def wrapped(text: str, stream: TextIO | None = None) -> str:
    """Return text for a stream (stderr): on a terminal, lines are folded between words, but never inside a command."""
    if not (stream or sys.stderr).isatty():
        return text
    from shutil import get_terminal_size

    width = get_terminal_size().columns
    return "\n".join(_wrapped_line(line, width) if len(_spaced(line)) > width else line for line in text.split("\n"))


def _spaced(text: str) -> str:
    """Return a text with one character per terminal column: after each wide character a filler that cleaned texts lack."""
    if text.isascii():
        return text
    from unicodedata import east_asian_width

    return "".join(letter + "\1" * (east_asian_width(letter) in "WF") for letter in text)


def _wrapped_line(line: str, width: int) -> str:
    from textwrap import fill

    if re.match(r" *(?:[\w ]+: |\$ )?pulsar-admin ", line):
        return line  # a command stands beside its label
    whole = _with_whole_commands(line)
    label = re.match(r" {,20}\S.{,20}? {2,}(?=\S)", line)
    indent = len(line) - len(line.lstrip(" "))
    folded = fill(
        _spaced(whole[indent:]),
        width,
        initial_indent=" " * indent,
        subsequent_indent=" " * (label.end() if label else indent + 2),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return folded.replace("\0", " ").replace("\1", "")


def write_error(text: str, *, end: str = "\n", colored: bool = False) -> None:
    """Write a cleaned text to stderr: errors, warnings, notes, progress as lines, questions; ``colored`` if that is a terminal."""
    shown = painted(text) if colored and sys.stderr.isatty() else clean_lines(text)
    print(shown, end=end, file=sys.stderr, flush=True)
