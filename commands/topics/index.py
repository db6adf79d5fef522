"""``topics find-by-index``: message index → position."""

from __future__ import annotations

from typing import Any

import click

from commands.topics.answers import selected
from pulsar_admin.columns import Column
from pulsar_admin.context import App
from pulsar_admin.jsonify import position_json
from pulsar_admin.numbers import whole
from pulsar_admin.options import TopicSelection, command, pass_app, topics_argument
from store.errors import InvalidValue, NothingMatches, TopicNotFound
from store.model.reader import EntryReader, open_reader
from store.model.topics import read_topic
from store.names import TopicName

Json = dict[str, Any]  # Any: JSON values

COLUMNS = (
    Column("TOPIC", "topic"),
    Column("INDEX", "index", "id"),
    Column("POSITION", "position"),
    Column("FIRST", "firstIndex", "id"),
    Column("LAST", "lastIndex", "id"),
)


@command(
    "find-by-index",
    examples=[
        "pulsar-admin topics find-by-index public/default/batched --index 59",
        "pulsar-admin topics find-by-index --pattern 'acme/orders/parts-*' --index 3",
    ],
    output="One object a topic: the position (with the index in its batch) and the indexes its entry covers; null when no entry "
    "covers the one asked for, with the next that is there.",
    errors=[TopicNotFound, NothingMatches, InvalidValue],
    uses=["spark"],
)
@topics_argument
@click.option("--index", type=whole(), required=True, help="The index, counted from 0.")
@pass_app
def find_by_index(app: App, selection: TopicSelection, index: int) -> None:
    """Find a message by the index that the broker gave it.

    Brokers with AppendIndexMetadataInterceptor number the messages of a topic in their broker entry metadata (PIP-70). A batch in
    a transaction has one index for all of its messages.
    """
    with app.bulk() as engine, open_reader(app.store, engine) as reader:
        topics = selected(app, reader.txn, selection)
        rows = list(app.each(topics, lambda name: _find(app, reader, name, index)))
    if len(topics) == 1 and rows:
        app.emit(rows[0])
    else:
        app.emit_rows(rows, COLUMNS)


def _find(app: App, reader: EntryReader, name: TopicName, index: int) -> Json:
    from store.search.by_index import find_by_index as find

    found = find(reader, read_topic(reader.txn, name), index)
    if not found.indexed:
        raise NothingMatches(
            f"no entry of {name} carries an index",
            hint="brokers write one with brokerEntryMetadataInterceptors="
            "org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor",
            topic=str(name),
        )
    if found.position is None:
        app.nothing_matches()
    following = found.next_index
    return {
        "topic": str(name),
        "index": index,
        "position": None if found.position is None else position_json(found.position, name.partition_index),
        "firstIndex": found.first_index,
        "lastIndex": found.last_index,
        "entriesRead": found.entries_read,
        "scanned": found.scanned,
        "next": None
        if following is None
        else {"index": following[0], "position": position_json(following[1], name.partition_index)},
    }
