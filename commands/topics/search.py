"""``topics search``."""

from __future__ import annotations

from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.api.messages import MessageQuery, messages_of
from pulsar_admin.columns import Column
from pulsar_admin.commands.topics.answers import choose, size_of
from pulsar_admin.commands.topics.printout import columns_for, message_columns
from pulsar_admin.commands.topics.values import open_with, private_key_option, redact_option, value_option
from pulsar_admin.context import FEW_MESSAGES, App
from pulsar_admin.numbers import whole
from pulsar_admin.options import (
    POSITION,
    TIME,
    ParsedType,
    TopicSelection,
    command,
    gather,
    pass_app,
    topics_argument,
)
from pulsar_admin.store.errors import InvalidValue, NothingMatches, TopicNotFound
from pulsar_admin.store.model.messages import redacted
from pulsar_admin.store.model.schemas import PathTest, parse_path_test
from pulsar_admin.store.names import Position

if TYPE_CHECKING:
    from pulsar_admin.store.scan.messages import Match


def _property(text: str) -> tuple[str, str | None]:
    name, given, value = text.partition("=")
    if not name:
        raise InvalidValue(f"{text!r} names no property", hint="write NAME=VALUE, or NAME for any value")
    return name, value if given else None


_PATH = ParsedType("path", parse_path_test, "PATH[=VALUE]")
_PROPERTY = ParsedType("property", _property, "NAME[=VALUE]")


class Request(Struct, frozen=True):
    """What is looked for, where, and what is shown of it."""

    keys: tuple[str, ...]
    key_prefix: str | None
    properties: tuple[tuple[str, str | None], ...]
    producer: str | None
    sequence_id: int | None
    texts: tuple[str, ...]
    regex: str | None
    ignore_case: bool
    paths: tuple[PathTest, ...]
    first: Position | None
    last: Position | None
    start_ms: int | None
    end_ms: int | None
    limit: int | None
    before: int | None
    after: int | None
    around: int | None
    payload: bool
    value: bool
    redact: bool
    private_keys: tuple[Path, ...]
    uncommitted: bool


_MARK = Column("", lambda row: "" if row.context else "*")


@command(
    "search",
    uses=["clock", "spark"],
    examples=[
        "pulsar-admin topics search acme/orders/compacted --key k0003",
        "pulsar-admin topics search --pattern 'public/default/*' --property i=7 -n 4",
        "pulsar-admin topics search public/default/avro --json-path '$.id>=18' -o jsonl",
        "pulsar-admin topics search public/default/batched --regex '^.{0,9}[0-9]{2}' -n 1 -C 2",
    ],
    output="One row per message, as `topics read` shows it, in the order of the topics. With -A, -B or -C also those around it, "
    "and a star in front of what was found (JSON: the others have `context`). What cannot be read, and what is encrypted "
    "and may be what is looked for, is counted on stderr and makes the exit code 1.",
    errors=[TopicNotFound, InvalidValue, NothingMatches],
)
@topics_argument
@click.option("--key", "keys", multiple=True, help="Messages with this key; if repeated, any of them.")
@click.option("--key-prefix", help="Messages whose key starts with this.")
@click.option(
    "--property", "properties", type=_PROPERTY, multiple=True, help="Messages with this property; may be repeated."
)
@click.option("--producer", help="Messages of the producer with this name.")
@click.option("--sequence-id", type=whole(), help="Messages with this sequence id.")
@click.option("--text", "texts", multiple=True, help="Payloads that contain this text; if repeated, any of them.")
@click.option("--regex", metavar="REGEX", help="Payloads that match this regular expression (RE2).")
@click.option("-i", "--ignore-case", is_flag=True, help="Ignore case in --text and --regex.")
@click.option(
    "--json-path", "paths", type=_PATH, multiple=True, help="Values that satisfy this test, for example $.order.id=42."
)
@click.option("--from", "first", type=POSITION, help="From this position on; latest is the last entry.")
@click.option("--to", "last", type=POSITION, help="Through this position.")
@click.option("--start-time", "start_ms", type=TIME, help="Messages at or after this time.")
@click.option("--end-time", "end_ms", type=TIME, help="Messages before this time.")
@click.option("-n", "--limit", type=whole(1), help="Stop after this many messages, over all topics.")
@click.option("-B", "--before", type=whole(0, 10_000), help="Also this many messages before each.")
@click.option("-A", "--after", type=whole(0, 10_000), help="Also this many messages after each.")
@click.option("-C", "--context", "around", type=whole(0, 10_000), help="Also this many messages on either side.")
@click.option("--payload", is_flag=True, help="Also payloads, in base64.")
@value_option
@redact_option
@private_key_option
@click.option("--uncommitted", is_flag=True, help="Also messages of open and aborted transactions.")
@gather(Request)
@pass_app
def search(app: App, selection: TopicSelection, options: Request) -> None:
    """Search the messages of topics: by key, property, producer, time, payload or value.

    All given conditions must hold. --text and --regex search the payload, and with --value also the value decoded by
    the topic's schema, as it is shown; --json-path searches that value, or a JSON payload that was sent without a
    schema. Batches are split, chunks joined, payloads decompressed. Times use --clock: auto, publish, broker or event.
    Exit code 5 if nothing is found.
    """
    query = _query(app, options)
    with app.session.reader() as reader:
        open_with(reader, options.private_keys)
        chosen = choose(app, reader.txn, selection)
        found = messages_of(app.session, lambda txn: chosen.names, query)
        with app.scan(reader, size_of(reader, chosen.names), "search", unused=FEW_MESSAGES):
            rows = map(redacted, found.records()) if options.redact else found.records()
            first = list(islice(rows, 1))
            if first or found.problems or app.exit_code:
                app.emit_rows(chain(first, rows), _columns(app, query, several=chosen.several), live=True)
    app.report(found.problems)
    if not first and app.exit_code == 0:  # else it may be in what could not be read
        raise NothingMatches("no message matches", hint=_hint(options))


def _hint(options: Request) -> str:
    if options.uncommitted:
        return "look into other topics, or at other times"
    return "--uncommitted looks into messages of open and aborted transactions, too"


def _columns(app: App, query: MessageQuery, *, several: bool) -> tuple[Column, ...]:
    columns = columns_for(app.settings.output, several=several, value="value" in query.columns)
    return (_MARK, *columns) if query.before or query.after else columns


def _query(app: App, options: Request) -> MessageQuery:
    match = _match(options)
    bounds = options.start_ms, options.end_ms, options.first, options.last
    window = app.session.window(*bounds, clock=app.settings.clock)
    before, after = (options.around if side is None else side for side in (options.before, options.after))
    columns = message_columns(payload=options.payload, value=options.value or match.needs_value)
    query = MessageQuery(window, columns, limit=options.limit, uncommitted=options.uncommitted, match=match)
    return replace(query, before=before or 0, after=after or 0)


def _match(options: Request) -> Match:
    from pulsar_admin.store.scan.messages import Match

    return Match(
        keys=options.keys,
        key_prefix=options.key_prefix,
        properties=options.properties,
        producer=options.producer,
        sequence_id=options.sequence_id,
        texts=options.texts,
        regex=options.regex,
        ignore_case=options.ignore_case,
        in_value=options.value,
        paths=options.paths,
    ).check()
