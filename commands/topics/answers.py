"""Shared by reading commands of topics: one topic's answer as an object, several topics' answers as rows, counting problems."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

from pulsar_admin.columns import Column
from pulsar_admin.context import App, Result
from pulsar_admin.jsonify import redacted_json, to_json
from pulsar_admin.options import TopicSelection
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.model import topics
from pulsar_admin.store.names import TopicName

if TYPE_CHECKING:
    from pulsar_admin.api.topics import Topic
    from pulsar_admin.store.db.environment import Txn
    from pulsar_admin.store.model.reader import EntryReader

TOPIC_COLUMN = Column("TOPIC", "topic")
_BUT_CSV = (None, "plain", "json", "jsonl", "table")
"""The formats that have one object as it is: CSV knows nothing but rows."""

Found = TypeVar("Found")
Work = Callable[["Topic"], object]
Scan = Callable[["EntryReader", Sequence[TopicName]], AbstractContextManager[object]]


class ChosenTopics:
    """The topics selected on the command line. ``several``: show rows even if there is only one topic."""

    def __init__(self, names: tuple[TopicName, ...], several: bool) -> None:
        self.names = names
        self.several = several

    def each(self, app: App, work: Callable[[TopicName], Found]) -> Iterator[tuple[TopicName, Found]]:
        """Yield (topic, result of ``work``); if one of several topics fails, the error is reported and the others continue."""
        return app.each(self.names, lambda name: (name, work(name)))


def selected(app: App, txn: Txn, selection: TopicSelection, *, broken: bool = True) -> tuple[TopicName, ...]:
    """Return the selected topics, ``broken``: with warnings about broken ledgers; raises TopicNotFound if any is missing."""
    names = topics.select_topics(txn, selection)
    if broken:
        app.session.warn_of_broken(txn, names)
    return names


def choose(app: App, txn: Txn, selection: TopicSelection, *, broken: bool = True) -> ChosenTopics:
    """Return the selected topics, with partitioned topics replaced by partitions; ``broken``: warn of broken ledgers.

    A missing topic among several is reported and left out; a single one raises TopicNotFound.
    """
    if not selection.topics:
        return ChosenTopics(selected(app, txn, selection, broken=broken), True)
    names = tuple(
        name for names in _found(app, selection, lambda name: topics.expand_topic(txn, name)) for name in names
    )
    if broken:
        app.session.warn_of_broken(txn, names)
    return ChosenTopics(names, selection.single is None or len(names) > 1)


def choose_partitioned(app: App, txn: Txn, selection: TopicSelection) -> ChosenTopics:
    """Return the selected partitioned topics, without partition numbers; raises TopicNotFound as ``choose``.

    Warns of broken ledgers of their partitions.
    """
    if selection.topics:
        names = tuple(_found(app, selection, lambda name: topics.check_partitioned(txn, name)))
    else:
        names = topics.select_partitioned(txn, selection.pattern)
    for name in names:
        app.session.warn_of_broken(txn, topics.existing_partitions(txn, name))
    return ChosenTopics(names, selection.single is None)


def _found(app: App, selection: TopicSelection, find: Callable[[TopicName], Found]) -> Iterator[Found]:
    for name in selection.topics:
        try:
            yield find(name)
        except StoreError as error:
            if selection.single is not None:
                raise
            app.fail(error)


def answer(
    app: App, selection: TopicSelection, work: Work, columns: Sequence[Column] = (), *, redact: bool = False
) -> Result:
    """Return the result of ``work`` for the selected topic in upstream's form, or rows with a TOPIC column for several."""
    with app.session.reader() as reader:
        chosen = choose(app, reader.txn, selection)
        answers = list(chosen.each(app, lambda name: work(app.topic(name))))
    return answers_of(answers, columns, several=chosen.several, redact=redact)


def answer_partitioned(
    app: App, selection: TopicSelection, work: Work, columns: Sequence[Column] = (), *, redact: bool = False
) -> Result:
    """Return ``answer`` for partitioned topics."""
    with app.session.read() as txn:
        chosen = choose_partitioned(app, txn, selection)
        answers = list(chosen.each(app, lambda name: work(app.topic(name))))
    return answers_of(answers, columns, several=chosen.several, redact=redact)


def answer_each(
    app: App,
    selection: TopicSelection,
    work: Work,
    columns: Sequence[Column],
    *,
    one: Sequence[Column] = (),
    plain: Callable[[Any], str] | None = None,  # Any: an answer of WORK
    scan: Scan | None = None,
) -> Result:
    """Return the results of ``work`` for the selected topics, read in one snapshot, as ``one_or_rows``.

    ``scan`` opens the engine and progress with which ``work`` scans.
    """
    with app.session.reader() as reader:
        names = selected(app, reader.txn, selection)
        with nullcontext() if scan is None else scan(reader, names):
            rows = list(app.each(names, lambda name: work(app.topic(name))))
    return one_or_rows(rows, columns, one=one, plain=plain, alone=len(names) == 1)


def one_or_rows(
    rows: Sequence[object],
    columns: Sequence[Column],
    *,
    one: Sequence[Column] = (),
    plain: Callable[[Any], str] | None,  # Any: a row
    alone: bool,
) -> Result:
    """Return ``rows`` as rows of ``columns``, or the only row as an object if ``alone``.

    ``one``: the object's columns as a table; ``plain``: the function that renders it as text.
    """
    if alone and rows:
        return Result(rows[0], columns=one, plain=plain)
    return Result(rows=rows, columns=columns)


@contextmanager
def bulk_on(app: App, reader: EntryReader) -> Iterator[None]:
    """Let scans of ``reader`` in the block run on the engine that the settings choose."""
    with app.bulk() as engine, app.session.asked_of(reader.scanning_on(engine)):
        yield


def answers_of(
    answers: Sequence[tuple[TopicName, object]], columns: Sequence[Column], *, several: bool, redact: bool = False
) -> Result:
    """Return (topic, answer) pairs as rows of ``columns`` if ``several`` or for CSV, otherwise the only answer as a value.

    ``redact``: pass answers through ``store.model.redaction.redact_metadata``.
    """
    if redact:
        answers = [(name, redacted_json(value)) for name, value in answers]
    rows = ({"topic": str(name), **_members(value)} for name, value in answers)
    columns = (TOPIC_COLUMN, *columns) if columns else ()
    if several:
        return Result(rows=rows, columns=columns)
    value = answers[0][1] if answers else None
    return Result(value, rows=rows if columns else None, columns=columns, documents=_BUT_CSV)


def _members(value: object) -> dict[str, object]:
    plain = to_json(value)
    return plain if isinstance(plain, dict) else {"value": plain}
