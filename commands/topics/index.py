"""``topics find-by-index``: message index → position."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pulsar_admin.columns import Column
from pulsar_admin.commands.topics.answers import answer_each, bulk_on
from pulsar_admin.context import App
from pulsar_admin.jsonify import partition_json
from pulsar_admin.numbers import whole
from pulsar_admin.options import TopicSelection, command, pass_app, topics_argument
from pulsar_admin.store.errors import InvalidValue, NothingMatches, TopicNotFound
from pulsar_admin.store.names import parse_topic

if TYPE_CHECKING:
    from pulsar_admin.api.topic import Topic

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
    """Find a message by the index assigned by the broker.

    Brokers with AppendIndexMetadataInterceptor number the messages of a topic in their broker entry metadata (PIP-70).
    A batch in a transaction has one index for all of its messages.
    """
    answer_each(
        app, selection, lambda topic: _find(app, topic, index), COLUMNS, scan=lambda reader, _: bulk_on(app, reader)
    )


def _find(app: App, topic: Topic, index: int) -> Json:
    found = topic.find_by_index(index)
    if not found.indexed:
        raise NothingMatches(
            f"no entry of {topic.name} carries an index",
            hint="brokers write one with brokerEntryMetadataInterceptors="
            "org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor",
            topic=topic.name,
        )
    if found.position is None:
        app.nothing_matches()
    return {"topic": topic.name, "index": index, **partition_json(found, parse_topic(topic.name).partition_index)}
