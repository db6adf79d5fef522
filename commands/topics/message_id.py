"""``topics find-by-index``, and upstream's ``get-message-id`` and ``get-message-id-by-index``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pulsar_admin.columns import Column
from pulsar_admin.commands.topics.answers import answer_each, bulk_on
from pulsar_admin.context import App, Printed, Result, Shown
from pulsar_admin.jsonify import message_id_json, partition_json
from pulsar_admin.numbers import whole
from pulsar_admin.options import TOPIC, TopicSelection, command, topics_argument
from pulsar_admin.store.errors import InvalidValue, NothingMatches, TopicNotFound
from pulsar_admin.store.names import TopicName, parse_topic
from pulsar_admin.store.timespec import parse_time_point
from pulsar_admin.upstream import mirrored

if TYPE_CHECKING:
    from pulsar_admin.api.topics import Topic


@mirrored(
    "topics get-message-id",
    "public/default/plain -d 2026-11-20T00:00:00Z",
    output="The id of the message that a broker finds for the time, as `find-by-time --rule broker`; `find-by-time` is exact.",
    errors=[TopicNotFound],
    helps={"datetime": "The point in time."},
)
def get_message_id(app: App, topic: TopicName, datetime: str) -> Shown:
    """Show the id that a broker finds for a point in time."""
    time_ms = parse_time_point(datetime, now_ms=app.now_ms, tz=app.settings.tz)
    with app.session.reader():
        entry = app.topic(topic).find(time_ms, rule="broker")
    assert entry.position is not None
    return Printed(message_id_json(entry.position, topic.partition_index))


@command(
    "topics get-message-id-by-index",
    examples=["public/default/batched -i 59"],
    output="The id of the entry that covers the index (PIP-415); `find-by-index` also names the message in its batch.",
    errors=[TopicNotFound, NothingMatches],
)
@click.argument("topic", type=TOPIC)
@click.option("-i", "--index", type=whole(), required=True, help="The index, counted from 0.")
def get_message_id_by_index(app: App, topic: TopicName, index: int) -> Shown:
    """Show the id of the entry with an index assigned by the broker."""
    with app.session.reader():
        entry = app.topic(topic).find_by_index(index)
    if entry.position is None:
        raise NothingMatches(f"Message not found for index {index}", topic=str(topic), index=index)
    return Printed(message_id_json(entry.position, topic.partition_index))


Json = dict[str, Any]  # Any: JSON values

COLUMNS = (
    Column("TOPIC", "topic"),
    Column("INDEX", "index", "id"),
    Column("POSITION", "position"),
    Column("FIRST", "firstIndex", "id"),
    Column("LAST", "lastIndex", "id"),
)


@command(
    "topics find-by-index",
    examples=["public/default/batched --index 59", "--pattern 'acme/orders/parts-*' --index 3"],
    output="One object per topic: the position (with the index in its batch) and the indexes its entry covers; null "
    "if no entry covers the given index, with the next existing one.",
    errors=[TopicNotFound, NothingMatches, InvalidValue],
    uses=["spark"],
)
@topics_argument
@click.option("--index", type=whole(), required=True, help="The index, counted from 0.")
def find_by_index(app: App, selection: TopicSelection, index: int) -> Result:
    """Find a message by the index assigned by the broker.

    Brokers with AppendIndexMetadataInterceptor number the messages of a topic in their broker entry metadata (PIP-70).
    A batch in a transaction has one index for all of its messages.
    """
    return answer_each(
        app, selection, lambda topic: _find(app, topic, index), COLUMNS, scan=lambda reader, _: bulk_on(app, reader)
    )


def _find(app: App, topic: Topic, index: int) -> Json:
    place = topic.find_by_index(index)
    if not place.indexed:
        raise NothingMatches(
            f"no entry of {topic.name} carries an index",
            hint="brokers write one with brokerEntryMetadataInterceptors="
            "org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor",
            topic=topic.name,
        )
    if place.position is None:
        app.nothing_matches()
    return {"topic": topic.name, "index": index, **partition_json(place, parse_topic(topic.name).partition_index)}
