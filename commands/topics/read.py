"""``topics read``."""

from __future__ import annotations

from pathlib import Path

import click
from msgspec import Struct

from pulsar_admin.api.messages import MessageQuery, messages_of
from pulsar_admin.commands.topics.answers import choose, size_of
from pulsar_admin.commands.topics.printout import emit_messages, message_columns
from pulsar_admin.commands.topics.values import open_with, private_key_option, redact_option, value_option
from pulsar_admin.context import FEW_MESSAGES, App
from pulsar_admin.numbers import whole
from pulsar_admin.options import POSITION, TIME, TopicSelection, command, gather, pass_app, topics_argument
from pulsar_admin.store.errors import InvalidValue, TopicNotFound
from pulsar_admin.store.names import Position


class Request(Struct, frozen=True):
    """Which part of the topic, and what of its messages."""

    first: Position | None
    last: Position | None
    start_ms: int | None
    end_ms: int | None
    key: str | None
    limit: int | None
    payload: bool
    value: bool
    redact: bool
    private_keys: tuple[Path, ...]
    uncommitted: bool
    markers: bool


@command(
    "read",
    uses=["clock", "spark"],
    examples=[
        "pulsar-admin topics read public/default/plain -n 5",
        "pulsar-admin topics read public/default/batched --from 8:0:3 --to 8:0:6 -o jsonl",
        "pulsar-admin topics read acme/iot/skewed --start-time 2026-11-21T09:23:18Z --end-time 2026-11-21T09:23:19Z",
        "pulsar-admin topics read acme/orders/compacted --key k0003 --payload -o jsonl",
        "pulsar-admin topics read public/default/avro --value -n 3",
    ],
    output="One row per message: position, times, key, producer, sequence id, properties, size and SHA-1 of the payload. Entries "
    "that cannot be read are passed over, named on stderr and make the exit code 1; so are values that cannot be decoded.",
    errors=[TopicNotFound, InvalidValue],
)
@topics_argument
@click.option("--from", "first", type=POSITION, help="From this position on; latest is the last entry.")
@click.option("--to", "last", type=POSITION, help="Through this position.")
@click.option("--start-time", "start_ms", type=TIME, help="Messages at or after this time.")
@click.option("--end-time", "end_ms", type=TIME, help="Messages before this time.")
@click.option("--key", help="Messages with this key.")
@click.option("-n", "--limit", type=whole(), help="At most this many messages per topic.")
@click.option("--payload", is_flag=True, help="Also payloads, in base64.")
@value_option
@redact_option
@private_key_option
@click.option("--uncommitted", is_flag=True, help="Also messages of open and aborted transactions.")
@click.option("--markers", is_flag=True, help="Also markers, the broker's own entries.")
@gather(Request)
@pass_app
def read(app: App, selection: TopicSelection, options: Request) -> None:
    """Read the messages of a topic: batches split, chunks joined, payloads decompressed.

    Times are exact even if clocks run backwards: every message whose own time is in the window, in topic order. --clock
    chooses the clock: auto (broker time if the entry has one, otherwise publish time), publish, broker, or event.
    Encrypted payloads are shown as stored, or with --private-key as the consumer with that key reads them.
    """
    columns = message_columns(payload=options.payload, value=options.value, markers=options.markers)
    bounds = options.start_ms, options.end_ms, options.first, options.last
    window = app.session.window(*bounds, clock=app.settings.clock, key=options.key)
    query = MessageQuery(window, columns, limit=options.limit, each=True, uncommitted=options.uncommitted)
    with app.session.reader() as reader:
        open_with(reader, options.private_keys)
        chosen = choose(app, reader.txn, selection)
        found = messages_of(app.session, lambda txn: chosen.names, query)
        size_bytes = 0 if options.limit is not None else size_of(reader, chosen.names)
        with app.scan(reader, size_bytes, "read", unused=FEW_MESSAGES):
            emit_messages(app, found, several=chosen.several, value=options.value, hide=options.redact)
    app.report(found.problems)
