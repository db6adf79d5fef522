"""Reading text from a file or stdin."""

import sys
from pathlib import Path

from pulsar_admin.store.errors import InvalidValue, reason_of


def shown_path(path: Path) -> str:
    """Return the name of the file ``path`` for messages: ``-`` means stdin."""
    return "stdin" if str(path) == "-" else str(path)


def read_lines(path: Path) -> list[str]:
    """Return the lines of the file ``path``, or of stdin for ``-``; raises InvalidValue."""
    return read_text(path).splitlines()


def read_text(path: Path) -> str:
    """Return the text of the file ``path``, or of stdin for ``-``; raises InvalidValue."""
    try:
        return sys.stdin.read() if str(path) == "-" else path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = (error.strerror if isinstance(error, OSError) else "") or reason_of(error)
        raise InvalidValue(f"{shown_path(path)} cannot be read: {why}", path=str(path)) from error
