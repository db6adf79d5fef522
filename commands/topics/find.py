"""``topics find-by-time``."""

from __future__ import annotations

from typing import Any

import click

from pulsar_admin.columns import Column
from pulsar_admin.context import App
from pulsar_admin.jsonify import position_json
from pulsar_admin.options import TIME_POINT, TopicSelection, command, pass_app, topics_argument
from store.errors import NothingMatches, TopicNotFound
from store.ledgers import EntryReader, open_reader
from store.names import Position, TopicName
from store.search import Found, check_clock, find_first_at_or_after
from store.topics import read_topic, select_topics


def _document(topic: TopicName, time_ms: int, clock: str, found: Found) -> dict[str, Any]:  # Any: JSON
    return {
        "topic": str(topic),
        "time": time_ms,
        "clock": clock,
        "rule": "first-at-or-after",
        "position": _position(topic, found.position),
        "entryTime": found.entry_time_ms,
        "entriesRead": found.entries_read,
        "ledgersPruned": found.ledgers_pruned,
        "ledgersScanned": found.ledgers_scanned,
        "ledgersWithoutIndex": list(found.ledgers_without_index),
    }


def _position(topic: TopicName, position: Position | None) -> dict[str, int] | None:
    return None if position is None else position_json(position, topic.partition_index)


@command(
    "find-by-time",
    examples=[
        "pulsar-admin topics find-by-time public/default/plain --time 2026-11-20T00:00:00Z",
        "pulsar-admin topics find-by-time --pattern 'acme/iot/*' --time @1795253000 -o jsonl",
    ],
    output="One object a topic; `position` is null when nothing is at or after the time.",
    errors=[TopicNotFound, NothingMatches],
)
@topics_argument
@click.option("-d", "--time", "--datetime", "time_ms", type=TIME_POINT, required=True, help="The point in time.")
@pass_app
def find_by_time(app: App, selection: TopicSelection, time_ms: int) -> None:
    """Find the first entry at or after a point in time.

    Exact on clocks that run backwards: the first entry in topic order whose time is the one given or later. --clock chooses
    the clock: auto (broker time where the entry carries one, else publish time), publish, broker.
    """
    clock = check_clock(app.settings.clock)
    with open_reader(app.store) as reader:
        topics = select_topics(reader.txn, selection.topics, all_topics=selection.all_topics, pattern=selection.pattern)
        rows = list(app.each(topics, lambda topic: _find(app, reader, topic, (time_ms, clock))))
    if len(topics) == 1 and rows:
        app.emit(rows[0])
    else:
        app.emit_rows(rows, COLUMNS)


def _find(app: App, reader: EntryReader, name: TopicName, question: tuple[int, Any]) -> dict[str, Any]:  # Any: JSON
    time_ms, clock = question
    found = find_first_at_or_after(reader, read_topic(reader.txn, name), time_ms, clock)
    if found.position is None:
        app.nothing_matches()
    if found.ledgers_without_index:
        app.warn(f"{name}: no entry of ledgers {', '.join(map(str, found.ledgers_without_index))} is here")
    return _document(name, time_ms, clock, found)


COLUMNS = (
    Column("TOPIC", lambda row: row["topic"]),
    Column(
        "POSITION",
        lambda row: "-" if row["position"] is None else f"{row['position']['ledgerId']}:{row['position']['entryId']}",
    ),
    Column("ENTRY TIME", lambda row: row["entryTime"], "time"),
    Column("READ", lambda row: row["entriesRead"]),
)
