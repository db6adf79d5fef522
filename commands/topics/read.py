"""``topics read``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import click

from commands.topics.answers import Chosen, choose, size_of
from commands.topics.printout import columns_for
from commands.topics.values import Decoders, open_with, private_key_option, redact_option, value_option
from pulsar_admin.context import FEW_MESSAGES, App
from pulsar_admin.jsonify import dump_json
from pulsar_admin.numbers import whole
from pulsar_admin.options import POSITION, TIME, TopicSelection, command, gather, pass_app, topics_argument
from store.db.blocks import Block
from store.db.clocks import Clock, check_clock
from store.errors import InvalidValue, NotWritable, SourceChanged, StoreError, TopicNotFound
from store.model.message_row import MessageRow, message_row
from store.model.messages import ReadOptions
from store.model.reader import EntryReader
from store.model.topics import Topic, read_topic
from store.model.window import EVENT, Window
from store.names import EARLIEST, LATEST, Position
from store.search.window import is_small, iter_window, read_block_times

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Request:
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


@dataclass(frozen=True, slots=True)
class Asked:
    """What to read, and where to add what could not be read."""

    window: Window
    options: Request
    problems: list[StoreError]


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
    window = _window(app, options)
    problems: list[StoreError] = []
    with app.session.reader() as reader:
        open_with(reader, options.private_keys)
        chosen = choose(app, reader.txn, selection)
        size_bytes = 0 if options.limit is not None else size_of(reader, chosen.names)
        with app.scan(reader, size_bytes, "read", unused=FEW_MESSAGES):
            _emit(app, reader, chosen, Asked(window, options, problems))
    app.report(problems)


def _emit(app: App, reader: EntryReader, chosen: Chosen, request: Asked) -> None:
    topics = chosen.each(app, lambda name: read_topic(reader.txn, name))
    if app.settings.output == "jsonl" and app.settings.query is None:  # as text, not as rows
        for _, topic in topics:
            for piece in _iter_json(reader, topic, request):
                app.writer.write(piece)
    else:
        rows = (row for _, topic in topics for row in _iter_rows(reader, topic, request))
        app.emit_rows(rows, columns_for(app.settings.output, several=chosen.several, value=request.options.value))


def _times_here(reader: EntryReader, blocks: Iterable[Block], clock: Clock) -> Iterator[tuple[int, int | None]]:
    """Yield (entry id, time) of the entries of BLOCKS; what lies in a file that cannot be read is listed as failed."""
    for block in blocks:
        try:
            yield from read_block_times(reader, [block], clock)
        except (SourceChanged, NotWritable) as error:
            from store.scan.places import Places, note_failure  # brings numpy, which good files do without

            assert reader.failed is not None
            note_failure(reader.failed, Places.of(block, 0, len(block)), error)
        reader.advance(sum(block.sizes()))


def _window(app: App, options: Request) -> Window:
    clock = app.settings.clock
    if clock != EVENT:
        check_clock(clock)
    return Window(
        EARLIEST if options.first is None else options.first,
        LATEST if options.last is None else options.last,
        options.start_ms,
        options.end_ms,
        clock,
        options.key,
    ).checked()


def _iter_json(reader: EntryReader, topic: Topic, request: Asked) -> Iterator[str]:
    """Yield the messages as JSON, in pieces of text."""
    window, options = request.window, request.options
    if options.redact or is_small(reader.txn, topic, window, options.limit):
        yield from (dump_json(row, pretty=False) + "\n" for row in _iter_rows(reader, topic, request))
        return
    from store.dump.tables import json_text

    for batch in _iter_columns(reader, topic, request):
        yield from json_text(str(topic.name), batch)


def _iter_rows(reader: EntryReader, topic: Topic, request: Asked) -> Iterator[MessageRow]:
    window, options = request.window, request.options
    if is_small(reader.txn, topic, window, options.limit):
        yield from _iter_few(reader, topic, request)
        return
    from store.dump.reading import iter_rows

    for batch in _iter_columns(reader, topic, request):
        yield from iter_rows(topic.name, batch, redact=options.redact)


def _iter_columns(reader: EntryReader, topic: Topic, request: Asked) -> Iterator[pa.RecordBatch]:
    from store.dump.job import DumpOptions
    from store.dump.reading import iter_columns

    window, options, problems = request.window, request.options, request.problems
    wanted = DumpOptions(
        "messages", window, options.payload, options.value, committed=not options.uncommitted, markers=options.markers
    )
    return iter_columns(reader, topic, wanted, options.limit, problems)


def _iter_few(reader: EntryReader, topic: Topic, request: Asked) -> Iterator[MessageRow]:
    window, options, problems = request.window, request.options, request.problems
    wanted = ReadOptions(committed=not options.uncommitted, markers=options.markers)
    messages = iter_window(reader, topic, window, wanted, problems=problems, times_of=_times_here)
    decoders = Decoders(reader, problems, wanted=options.value)
    for message in islice(messages, options.limit):
        if not window.is_timed:  # else what the times are read from is counted
            reader.advance(len(message.payload))
        decoded = decoders.decode(topic.name, message)
        yield message_row(topic.name, message, payload=options.payload, redact=options.redact, decoded=decoded)
