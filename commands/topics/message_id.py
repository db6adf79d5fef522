"""``topics get-message-id``: upstream's question by time; ``commands.topics.find`` has ours."""

from __future__ import annotations

from pulsar_admin.context import App
from pulsar_admin.jsonify import message_id_json
from pulsar_admin.upstream import mirrored
from store.dump.finding import TimeQuestion, find_as_broker
from store.errors import TopicNotFound
from store.model.ledgers import open_reader
from store.model.topics import read_topic
from store.names import TopicName
from store.timespec import parse_time_point


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
    with open_reader(app.store) as reader:
        answer = find_as_broker(reader, read_topic(reader.txn, topic), TimeQuestion(time_ms))
    app.answer(message_id_json(answer.position, topic.partition_index))
