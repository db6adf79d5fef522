"""What the reading commands of topics share: one topic's answer as it is, several topics' as rows, problems counted."""

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
    """The topics meant on the command line. ``several``: asked for more than one, so that each gets a row, however many are there."""

    def __init__(self, names: tuple[TopicName, ...], several: bool) -> None:
        self.names = names
        self.several = several

    def each(self, app: App, work: Callable[[TopicName], Found]) -> Iterator[tuple[TopicName, Found]]:
        """Yield (topic, its result of ``work``); if one of several topics fails it is reported, and the others continue."""
        return app.each(self.names, lambda name: (name, work(name)))


def selected(app: App, txn: Txn, selection: TopicSelection, *, broken: bool = True) -> tuple[TopicName, ...]:
    """Return the topics meant by ``selection``, all or nothing; ``broken``: warns of broken ledgers. Raises TopicNotFound."""
    names = topics.select_topics(txn, selection)
    if broken:
        app.session.warn_of_broken(txn, names)
    return names


def choose(app: App, txn: Txn, selection: TopicSelection, *, broken: bool = True) -> ChosenTopics:
    """Return the topics meant by ``selection``, partitioned ones as their partitions; ``broken``: warns of broken ledgers.

    Of several names one that does not exist is reported, and the others are answered; raises TopicNotFound when it is the only one.
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
    """Return the partitioned topics meant by ``selection`` by their base names; raises TopicNotFound as ``choose``.

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
    """Return ``work``'s answer for the topic meant, in upstream's shape; for several topics rows with the topic in front."""
    with app.session.reader() as reader:
        chosen = choose(app, reader.txn, selection)
        answers = list(chosen.each(app, lambda name: work(app.topic(name))))
    return answers_of(answers, columns, several=chosen.several, redact=redact)


def answer_partitioned(
    app: App, selection: TopicSelection, work: Work, columns: Sequence[Column] = (), *, redact: bool = False
) -> Result:
    """Return ``work``'s answer for the partitioned topic meant, as ``answer``."""
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
    """Return ``work``'s answer for each topic meant, all in one snapshot: an object (as a table: of the columns ``one``) with the text
    ``plain`` where there is one topic, else rows of ``columns``. ``scan`` opens what ``work`` scans with."""
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
    """Return an object (as a table: of the columns ``one``) with the text ``plain`` where it stands ``alone``, else ``rows`` of
    ``columns``."""
    if alone and rows:
        return Result(rows[0], columns=one, plain=plain)
    return Result(rows=rows, columns=columns)


@contextmanager
def bulk_on(app: App, reader: EntryReader) -> Iterator[None]:
    """Let what ``reader`` scans run on the engine that settings choose, should it come to a scan."""
    with app.bulk() as engine, app.session.asked_of(reader.scanning_on(engine)):
        yield


def answers_of(
    answers: Sequence[tuple[TopicName, object]], columns: Sequence[Column], *, several: bool, redact: bool = False
) -> Result:
    """Return ``answers``: one as it is, ``several`` (and CSV, which knows nothing else) as rows of ``columns``.

    ``redact``: what ``store.model.redaction.redact_metadata`` leaves of them.
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
