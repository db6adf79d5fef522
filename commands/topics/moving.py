"""Which topics a command that moves cursors means, and files and stdin as commands read them."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from pulsar_admin.options import TOPIC, TopicSelection, flag
from pulsar_admin.store.errors import InvalidValue, reason_of

Function = TypeVar("Function", bound=Callable[..., Any])  # Any: click calls commands with whatever was declared


def topics_or_file(function: Function) -> Function:
    """Add ``[TOPICS]… --all-topics --pattern GLOB --from-file FILE``, exactly one of them.

    Handed over as ``selection: TopicSelection`` and ``from_file: Path | None``.
    """

    @functools.wraps(function)
    def wrapper(*args: Any, topics: Any, all_topics: bool, pattern: str | None, **kwargs: Any) -> Any:  # Any: click's
        if bool(topics) + all_topics + (pattern is not None) + (kwargs["from_file"] is not None) != 1:
            raise click.UsageError(
                "name topics, or give --all-topics, --pattern GLOB or --from-file FILE", click.get_current_context()
            )
        return function(*args, selection=TopicSelection(topics, all_topics, pattern), **kwargs)

    path = click.Path(path_type=Path, allow_dash=True)
    decorated: Any = click.option(
        "--from-file", "from_file", type=path, metavar="FILE", help="One JSON object per line; `-` reads stdin."
    )(wrapper)
    decorated = click.option("--pattern", metavar="GLOB", help="Topics whose full name matches.")(decorated)
    decorated = flag("--all-topics", help="Every topic of the store.")(decorated)
    return click.argument("topics", type=TOPIC, nargs=-1)(decorated)  # type: ignore[no-any-return]


def shown_path(path: Path) -> str:
    """Return what messages call the file ``path`` that ``read_text`` reads."""
    return "stdin" if str(path) == "-" else str(path)


def read_lines(path: Path) -> list[str]:
    """Return the lines of the file ``path``, or of stdin for ``-``; raises InvalidValue."""
    return read_text(path).splitlines()


def read_text(path: Path) -> str:
    """Return the file ``path``, or stdin for ``-``; raises InvalidValue."""
    try:
        return sys.stdin.read() if str(path) == "-" else path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = (error.strerror if isinstance(error, OSError) else "") or reason_of(error)
        raise InvalidValue(f"{shown_path(path)} cannot be read: {why}", path=str(path)) from error
