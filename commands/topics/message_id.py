"""``topics get-message-id`` and ``get-message-id-by-index``: upstream's questions; ``commands.topics.find`` and ``index`` have ours."""

from __future__ import annotations

import click

from pulsar_admin.context import App
from pulsar_admin.jsonify import message_id_json
from pulsar_admin.numbers import whole
from pulsar_admin.options import TOPIC, command, pass_app
from pulsar_admin.store.errors import NothingMatches, TopicNotFound
from pulsar_admin.store.names import TopicName
from pulsar_admin.store.timespec import parse_time_point
from pulsar_admin.upstream import mirrored


@mirrored(
    "topics get-message-id",
    examples=["pulsar-admin topics get-message-id public/default/plain -d 2026-11-20T00:00:00Z"],
    output="The id of the message that a broker finds for the time, as `find-by-time --rule broker`; `find-by-time` is exact.",
    errors=[TopicNotFound],
    helps={"datetime": "The point in time."},
)
def get_message_id(app: App, topic: TopicName, datetime: str) -> None:
    """Show the id that a broker finds for a point in time."""
    time_ms = parse_time_point(datetime, now_ms=app.now_ms, tz=app.settings.tz)
    with app.session.reader():
        found = app.session.topic(topic).find(time_ms, rule="broker")
    assert found.position is not None
    app.answer(message_id_json(found.position, topic.partition_index))


@command(
    "get-message-id-by-index",
    examples=["pulsar-admin topics get-message-id-by-index public/default/batched -i 59"],
    output="The id of the entry that covers the index (PIP-415); `find-by-index` also names the message in its batch.",
    errors=[TopicNotFound, NothingMatches],
)
@click.argument("topic", type=TOPIC)
@click.option("-i", "--index", type=whole(), required=True, help="The index, counted from 0.")
@pass_app
def get_message_id_by_index(app: App, topic: TopicName, index: int) -> None:
    """Show the id of the entry with an index assigned by the broker."""
    with app.session.reader():
        found = app.session.topic(topic).find_by_index(index)
    if found.position is None:
        raise NothingMatches(f"Message not found for index {index}", topic=str(topic), index=index)
    app.answer(message_id_json(found.position, topic.partition_index))
