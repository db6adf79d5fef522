"""What the reading commands of topics share: one topic's answer as it is, several topics' as rows, problems counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pulsar_admin.columns import Column
from pulsar_admin.context import App
from pulsar_admin.jsonify import to_json
from pulsar_admin.options import TopicSelection
from store.errors import StoreError
from store.ledgers import EntryReader, open_reader
from store.meta import Txn
from store.names import TopicName
from store.topics import select_topics

PROBLEMS_SHOWN = 5
TOPIC_COLUMN = Column("TOPIC", "topic")

Work = Callable[[EntryReader, TopicName], object]


def selected(txn: Txn, selection: TopicSelection) -> tuple[TopicName, ...]:
    """Return the topics meant on the command line; raises TopicNotFound."""
    return select_topics(txn, selection.topics, all_topics=selection.all_topics, pattern=selection.pattern)


def answer(app: App, selection: TopicSelection, work: Work, columns: Sequence[Column] = ()) -> None:
    """Emit WORK's answer for the topic meant, in upstream's shape; for several topics rows with the topic in front."""
    with open_reader(app.store) as reader:
        names = selected(reader.txn, selection)
        found = list(app.each(names, lambda name: (name, work(reader, name))))
    emit_answers(app, names, found, columns)


def emit_answers(
    app: App, names: Sequence[TopicName], found: Sequence[tuple[TopicName, object]], columns: Sequence[Column]
) -> None:
    """Emit the answers FOUND for the topics NAMES."""
    if len(names) == 1:
        for _, value in found:
            app.emit(value)
        return
    rows = ({"topic": str(name), **_members(value)} for name, value in found)
    app.emit_rows(rows, (TOPIC_COLUMN, *columns) if columns else ())


def _members(value: object) -> dict[str, object]:
    plain = to_json(value)
    return plain if isinstance(plain, dict) else {"value": plain}


def report(app: App, problems: Sequence[StoreError]) -> None:
    """Say what could not be read and make the exit code 1; the first few in full, all of them counted."""
    for error in problems[:PROBLEMS_SHOWN]:
        app.warn(error.message)
    if len(problems) > PROBLEMS_SHOWN:
        app.warn(f"{len(problems)} problems in all; the first {PROBLEMS_SHOWN} are shown")
    app.problems(len(problems))
