"""Java properties files, as ``java.util.Properties.load`` reads them: the configuration of brokers and bookies."""

import re
from pathlib import Path

from pulsar_admin.store.errors import InvalidValue, NotFound, SourceNotFound, reason_of
from pulsar_admin.store.files import read_file

_LINE = re.compile(r"((?:[^\\\s=:]|\\.)*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_properties(
    path: Path, hint: str, *, missing: type[NotFound] = SourceNotFound, errors: str = "strict"
) -> dict[str, str]:
    """Return the settings in a file; raises ``missing`` and InvalidValue with ``hint``. ``errors``: how to decode
    bytes that are not UTF-8."""
    try:
        return parse_properties(read_file(path).decode("utf-8", errors))
    except OSError as error:
        raise missing(f"cannot read {path}: {error.strerror}", hint=hint, path=str(path)) from error
    except UnicodeDecodeError as error:
        raise InvalidValue(f"{path} is not UTF-8: {reason_of(error)}", hint=hint) from error


def parse_properties(text: str) -> dict[str, str]:
    """Return the settings in a text; of a repeated one the last."""
    joined = re.sub(r"(?m)^[ \t\f]*[#!].*$", "", text)
    joined = re.sub(r"(?<!\\)((?:\\\\)*)\\\r?\n[ \t\f]*", r"\1", joined)
    found = {}
    for line in re.split(r"\r?\n|\r", joined):
        match = _LINE.fullmatch(line.strip(" \t\f"))
        if match is not None and match[1]:
            found[_unescaped(match[1])] = _unescaped(match[2])
    return found


def _unescaped(text: str) -> str:
    def character(match: re.Match[str]) -> str:
        escape = match[1]
        return chr(int(escape[1:], 16)) if len(escape) == 5 else _CONTROLS.get(escape, escape)

    return _ESCAPE.sub(character, text)
