"""What the commands that move cursors share: which cursors are meant, and one plan for all of them."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import click

from pulsar_admin.broken import warn_of_broken_ledgers
from pulsar_admin.options import TOPIC, TopicSelection, current_app
from store.errors import InvalidValue, NothingMatches, SubscriptionNotFound, reason_of
from store.model.cursors import Cursor, iter_cursor_names, read_cursor
from store.model.reader import EntryReader
from store.model.topics import Topic, read_topic, select_topics

Function = TypeVar("Function", bound=Callable[..., Any])  # Any: click calls commands with whatever was declared


def iter_cursors(reader: EntryReader, selection: TopicSelection, subscription: str) -> Iterator[tuple[Topic, Cursor]]:
    """Yield the cursor SUBSCRIPTION of every topic meant, partitions of a partitioned one each.

    A topic named must have it; of --all-topics and --pattern those that have it are taken, and one that cannot be read is
    reported. Raises TopicNotFound and SubscriptionNotFound, the latter also when no topic has it.
    """
    named = bool(selection.topics)
    found = False
    for topic in read_topics(reader, selection):
        if named or subscription in iter_cursor_names(reader.txn, topic.name):
            for cursor in read_cursors(reader, topic, (subscription,), named=named):
                found = True
                yield topic, cursor
    if not found:
        raise SubscriptionNotFound(
            f"no topic that matches has a subscription {subscription!r}", subscription=subscription
        )


def read_topics(reader: EntryReader, selection: TopicSelection) -> Iterator[Topic]:
    """Yield the topics meant, partitions of a partitioned one each, and warn of their broken ledgers; raises TopicNotFound.

    One that cannot be read is reported and the rest go on, unless it was named itself.
    """
    names = select_topics(reader.txn, selection.topics, all_topics=selection.all_topics, pattern=selection.pattern)
    named = bool(selection.topics)
    app = current_app()
    for topic in app.each(dict.fromkeys(names), lambda name: read_topic(reader.txn, name), alone=named):
        warn_of_broken_ledgers(app, reader.txn, topic)
        yield topic


def read_cursors(reader: EntryReader, topic: Topic, names: Iterable[str], *, named: bool) -> Iterator[Cursor]:
    """Yield the cursors NAMES of TOPIC; one that cannot be read is reported and the rest go on, unless its topic was NAMED."""
    yield from current_app().each(names, lambda name: read_cursor(reader.txn, reader, topic, name), alone=named)


def check_entries(selection: TopicSelection, topics: Iterable[Topic]) -> None:
    """Raise NothingMatches when the one topic asked about has no entries, so that no time means anything there."""
    listed = list(topics)
    if len(listed) == 1 and selection.single is not None and not listed[0].number_of_entries:
        raise NothingMatches(
            f"{listed[0].name} has no entries, so it has no times",
            hint="list topics and their entries with: pulsar-admin topics stats",
            topic=str(listed[0].name),
        )


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
        "--from-file", "from_file", type=path, metavar="FILE", help="One JSON object a change and line; - is stdin."
    )(wrapper)
    decorated = click.option("--pattern", metavar="GLOB", help="Topics whose full name matches.")(decorated)
    decorated = click.option("--all-topics", is_flag=True, help="Every topic of the store.")(decorated)
    return click.argument("topics", type=TOPIC, nargs=-1)(decorated)  # type: ignore[no-any-return]


def shown_path(path: Path) -> str:
    """Return what messages call the file PATH that ``read_text`` reads."""
    return "stdin" if str(path) == "-" else str(path)


def read_lines(path: Path) -> list[str]:
    """Return the lines of the file PATH, or of stdin for ``-``; raises InvalidValue."""
    return read_text(path).splitlines()


def read_text(path: Path) -> str:
    """Return the file PATH, or stdin for ``-``; raises InvalidValue."""
    try:
        return sys.stdin.read() if str(path) == "-" else path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = (error.strerror if isinstance(error, OSError) else "") or reason_of(error)
        raise InvalidValue(f"{shown_path(path)} cannot be read: {why}", path=str(path)) from error
