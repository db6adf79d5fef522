"""Messages: ``topics read``, ``search``, ``last-message-id``, ``get-message-by-id``, ``examine-messages``, ``peek-messages``."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from itertools import chain, count, islice
from pathlib import Path
from typing import Any

import click
from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.api.messages import Messages, messages_of
from pulsar_admin.columns import Column
from pulsar_admin.commands.topics.answers import ChosenTopics, answer, choose
from pulsar_admin.commands.topics.printout import (
    FULL,
    SEPARATOR,
    Printing,
    content_options,
    is_read,
    message_columns,
    messages_result,
    open_with,
    render_message,
    seen_columns,
    seen_line,
    short_columns,
    value_line,
)
from pulsar_admin.context import FEW_MESSAGES, App, Result, Shown
from pulsar_admin.numbers import INTEGER, whole
from pulsar_admin.options import (
    POSITION,
    TIME,
    ParsedType,
    TopicSelection,
    choice_option,
    command,
    flag,
    gather,
    subscription_option,
    together,
    topics_argument,
)
from pulsar_admin.store import errors
from pulsar_admin.store.dump.messages import MessageQuery
from pulsar_admin.store.model.messages import find_topic_of, nth_position, redacted
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.schemas import PathTest, parse_path_test
from pulsar_admin.store.model.topics import read_topic, scan_bytes
from pulsar_admin.store.names import Position
from pulsar_admin.visible import clean_text

_ID_COLUMNS = (
    Column("LEDGER", "ledgerId", "id"),
    Column("ENTRY", "entryId", "id"),
    Column("BATCH INDEX", "batchIndex", "id"),
)


# -- last-message-id --------------------------------------------------------------------------------------------------


@command(
    "topics last-message-id",
    examples=["public/default/batched", "acme/orders/parts -o jsonl"],
    output="The id with upstream's keys; `batchIndex` is that of the last message of a batch. Several topics: one row each.",
    errors=[errors.TopicNotFound],
)
@topics_argument
def last_message_id(app: App, selection: TopicSelection) -> Result:
    """Show the id of the last message of a topic.

    The last entry counts even if it is a marker or an encrypted batch; for a topic without entries the entry id is -1.
    """
    return answer(app, selection, lambda topic: topic.last_entry_id(), _ID_COLUMNS)


class MessageOptions(Struct, frozen=True):
    """The options for showing single messages."""

    value: bool
    redact: bool
    private_keys: tuple[Path, ...]


# -- one entry --------------------------------------------------------------------------------------------------------


@command(
    "topics get-message-by-id",
    examples=["public/default/plain -l 9 -e 3", "public/default/batched -l 8 -e 0 -o json"],
    output="The message as text with a hex dump, of a batch the first one; as JSON with its payload in base64. --value: the "
    "value below it, and the keys of `topics read --value`.",
    errors=[errors.TopicNotFound, errors.EntryNotFound, errors.EntryCorrupt],
)
@topics_argument
@click.option("-l", "--ledgerId", "ledger_id", type=INTEGER, required=True, help="The ledger.")
@click.option("-e", "--entryId", "entry_id", type=INTEGER, required=True, help="The entry.")
@content_options
@gather(MessageOptions)
def get_message_by_id(
    app: App, selection: TopicSelection, ledger_id: int, entry_id: int, options: MessageOptions
) -> Iterator[Shown]:
    """Show one entry of a topic by its id.

    `topics read --from LEDGER:ENTRY --to LEDGER:ENTRY` shows all messages of a batch.
    """
    position = Position(ledger_id, entry_id)
    query = _query(app, options, entry=lambda topic: position)
    with _chosen(app, selection, options) as (reader, chosen):
        topic = find_topic_of(app.each(chosen.names, lambda name: read_topic(reader.txn, name)), position)
        messages = messages_of(app.session, lambda txn: (topic,), query)
        yield from _shown(messages, _Style(False, options.value, _printing(app, options, redelivery=True)), one=True)
    app.report(messages.problems)


@contextmanager
def _chosen(app: App, selection: TopicSelection, options: MessageOptions) -> Iterator[tuple[EntryReader, ChosenTopics]]:
    """Open a reader with the given private keys, and choose the selected topics."""
    with app.session.reader() as reader:
        open_with(reader, options.private_keys)
        yield reader, choose(app, reader.txn, selection)


def _query(app: App, options: MessageOptions, **wanted: Any) -> MessageQuery:  # Any: fields of MessageQuery
    columns = message_columns(payload=True, value=options.value or is_read(app, options))
    return MessageQuery(columns=columns, each=True, lenient=not options.value, **wanted)


def _printing(app: App, options: MessageOptions, **what: bool) -> Printing:
    reads = is_read(app, options) and not options.value
    return Printing(iso=app.settings.tz is not None, redact=options.redact, reads=reads, **what)


# -- examine-messages -------------------------------------------------------------------------------------------------


@command(
    "topics examine-messages",
    examples=["public/default/plain -i earliest -m 10", "acme/orders/parts"],
    output="The message as text with a hex dump, of a batch the first one; as JSON with its payload in base64.",
    errors=[errors.TopicNotFound, errors.NothingMatches, errors.EntryNotFound, errors.EntryCorrupt],
)
@topics_argument
@choice_option(
    "-i", "--initialPosition", "origin", words=["latest", "earliest"], help="The end of the topic to count from."
)
@click.option("-m", "--messagePosition", "number", type=INTEGER, default=1, help="Which one, counted in entries [1].")
@content_options
@gather(MessageOptions)
def examine_messages(
    app: App, selection: TopicSelection, origin: str, number: int, options: MessageOptions
) -> Iterator[Shown]:
    """Show the n-th entry of a topic from its beginning or its end."""
    query = _query(app, options, entry=lambda topic: nth_position(topic, number, from_end=origin == "latest"))
    with _chosen(app, selection, options) as (_, chosen):
        found = messages_of(app.session, lambda txn: chosen.names, query)
        yield from _shown(found, _Style(chosen.several, options.value, _printing(app, options)))
    app.report(found.problems)


class _Style(Struct, frozen=True):
    """Additional columns of messages: the topic if there are ``several``, and the ``value``."""

    several: bool
    value: bool
    printing: Printing


def _shown(found: Messages, style: _Style, *, one: bool = False) -> Generator[Shown, None, bool]:
    """Yield messages as pulsar-admin prints them, or as rows, or (``one``) as an object; return whether there were any."""
    hide, seen = style.printing.redact, count()

    def rows() -> Iterator[object]:
        for row, _ in zip(found.json_rows(), seen, strict=False):
            yield redacted(row) if hide else row

    def texts(_: int) -> Iterator[str]:
        for (name, message, decoded), number in zip(found.as_admin_shows(), seen, strict=False):
            title = f"Topic: {clean_text(str(name))}\n" if style.several else ""
            text = render_message(message, style.printing)
            text += seen_line(message, decoded) if style.printing.reads else value_line(decoded, redacted=hide)
            yield (SEPARATOR if number else "") + title + text

    columns = short_columns(several=style.several, value=style.value)
    if one:
        yield Result(lambda: next(rows()), columns=columns, csv=FULL, screen=texts)
    else:
        yield Result(rows=rows, columns=columns, csv=FULL, screen=texts)
    return next(seen) > 0


# -- peek-messages ----------------------------------------------------------------------------------------------------


_COMMITTED = "READ_COMMITTED"


class PeekOptions(MessageOptions, frozen=True):
    """The options of ``peek-messages``: how many messages, and whether others than committed ones."""

    count: int
    markers: bool
    isolation: str


@command(
    "topics peek-messages",
    examples=["public/default/plain -s holes -n 3", "public/default/batched -s batch-holes -n 25 -o jsonl"],
    output="Messages as text with a hex dump, a line of dashes between them; as JSON with payloads in base64. "
    "Entries that cannot be read are skipped and make the exit code 1.",
    errors=[errors.TopicNotFound, errors.SubscriptionNotFound],
)
@topics_argument
@subscription_option
@click.option("-n", "--count", type=whole(1), default=1, help="How many messages [1].")
@flag("-ssm", "--show-server-marker", "markers", help="Also markers of the broker.")
@choice_option(
    "-til",
    "--transaction-isolation-level",
    "isolation",
    words=[_COMMITTED, "READ_UNCOMMITTED"],
    help="READ_UNCOMMITTED: also messages of open and aborted transactions.",
)
@content_options
@gather(PeekOptions)
def peek_messages(app: App, selection: TopicSelection, subscription: str, options: PeekOptions) -> Iterator[Shown]:
    """Show the first messages of a subscription's backlog.

    Individually deleted entries are skipped and batches are split; nothing is acknowledged.
    """
    wanted = {"limit": options.count, "uncommitted": options.isolation != _COMMITTED, "markers": options.markers}
    query = _query(app, options, subscription=subscription, **wanted)
    with _chosen(app, selection, options) as (reader, chosen):
        messages = messages_of(app.session, lambda txn: chosen.names, query)
        style = _Style(chosen.several, options.value, _printing(app, options, markers=options.markers))
        if not (yield from _shown(messages, style)):
            from pulsar_admin.store.doctor.why import (
                why_nothing_is_given,  # all rules: few backlogs have nothing to show
            )

            for name in chosen.names:
                for sentence in why_nothing_is_given(reader, name, subscription, app.now_ms):
                    app.warn(f"{subscription} of {name}: {sentence}")
    app.report(messages.problems)


_uncommitted = flag("--uncommitted", help="Also messages of open and aborted transactions.")
_window = together(
    click.option("--from", "start", type=POSITION, help="From this position on; latest is the last entry."),
    click.option("--to", "end", type=POSITION, help="Through this position."),
    click.option("--start-time", "since", type=TIME, help="Messages at or after this time."),
    click.option("--end-time", "until", type=TIME, help="Messages before this time."),
)


class ReadRequest(MessageOptions, frozen=True):
    """The options of ``topics read``: which messages, and which of their columns."""

    limit: int | None
    payload: bool
    uncommitted: bool
    key: str | None
    markers: bool


@command(
    "topics read",
    uses=["clock", "spark"],
    examples=[
        "public/default/plain -n 5",
        "public/default/batched --from 8:0:3 --to 8:0:6 -o jsonl",
        "acme/iot/skewed --start-time 2026-11-21T09:23:18Z --end-time 2026-11-21T09:23:19Z",
        "acme/orders/compacted --key k0003 --payload -o jsonl",
        "public/default/avro --value -n 3",
    ],
    output="One row per message: position, times, key, producer, sequence id, properties, size and SHA-1 of the payload; on a "
    "terminal also the fields of its value, or the beginning of a payload that is text. Entries that cannot be read are skipped, "
    "named on stderr and make the exit code 1; so are values that cannot be decoded, with --value.",
    errors=[errors.TopicNotFound, errors.InvalidValue],
)
@topics_argument
@_window
@click.option("--key", help="Messages with this key.")
@click.option("-n", "--limit", type=whole(), help="At most this many messages per topic.")
@flag("--payload", help="Also payloads, in base64.")
@content_options
@_uncommitted
@flag("--markers", help="Also markers, the broker's own entries.")
@gather(ReadRequest)
def read(
    app: App, selection: TopicSelection, options: ReadRequest, **bounds: Any
) -> Iterator[Shown]:  # Any: of Session.window
    """Read the messages of a topic: batches split, chunks joined, payloads decompressed.

    Times are exact even if clocks run backwards: every message whose own time is in the window, in topic order. --clock
    chooses the clock: auto (broker time if the entry has one, otherwise publish time), publish, broker, or event.
    Encrypted payloads are shown as stored, or with --private-key as the consumer with that key reads them.
    """
    window = app.session.window(**bounds, clock=app.settings.clock, key=options.key)
    query = MessageQuery(
        window, limit=options.limit, each=True, uncommitted=options.uncommitted, lenient=not options.value
    )
    with _chosen(app, selection, options) as (reader, chosen):
        seen = seen_columns(reader, chosen.names, value=options.value) if is_read(app, options) else None
        columns = message_columns(payload=options.payload, value=options.value, markers=options.markers, seen=seen)
        query = replace(query, columns=columns)
        messages = messages_of(app.session, lambda txn: chosen.names, query)
        size_bytes = 0 if options.limit is not None else scan_bytes(reader.txn, chosen.names)
        with app.scan(reader, size_bytes, "read", unused=FEW_MESSAGES):
            yield messages_result(messages, several=chosen.several, value=options.value, hide=options.redact, seen=seen)
    app.report(messages.problems)


def _property(text: str) -> tuple[str, str | None]:
    name, given, value = text.partition("=")
    if not name:
        raise errors.InvalidValue(f"{text!r} names no property", hint="write NAME=VALUE, or NAME for any value")
    return name, value if given else None


_PATH = ParsedType("path", parse_path_test, "PATH[=VALUE]")
_PROPERTY = ParsedType("property", _property, "NAME[=VALUE]")


class SearchRequest(MessageOptions, frozen=True):
    """The options of ``topics search``: the criteria, and the number of messages to show around each match."""

    keys: tuple[str, ...]
    key_prefix: str | None
    properties: tuple[tuple[str, str | None], ...]
    producer: str | None
    sequence_id: int | None
    texts: tuple[str, ...]
    regex: str | None
    ignore_case: bool
    paths: tuple[PathTest, ...]
    before: int | None
    after: int | None
    around: int | None
    limit: int | None
    payload: bool
    uncommitted: bool


_MARK = Column("", lambda row: "" if row.context else "*")


@command(
    "topics search",
    uses=["clock", "spark"],
    examples=[
        "acme/orders/compacted --key k0003",
        "--pattern 'public/default/*' --property i=7 -n 4",
        "public/default/avro --json-path '$.id>=18' -o jsonl",
        "public/default/batched --regex '^.{0,9}[0-9]{2}' -n 1 -C 2",
    ],
    output="One row per message, as `topics read` shows it, in the order of the topics; of a scalable topic in the order of "
    "`topics read`, but segment by segment with -A, -B or -C. With these also the messages around it, and a star before each "
    "match (JSON: the others have `context`). Messages that cannot be read, or are encrypted and may match, are counted on stderr "
    "and make the exit code 1.",
    errors=[errors.TopicNotFound, errors.InvalidValue, errors.NothingMatches],
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
@flag("-i", "--ignore-case", help="Ignore case in --text and --regex.")
@click.option(
    "--json-path", "paths", type=_PATH, multiple=True, help="Values that satisfy this test, for example $.order.id=42."
)
@_window
@click.option("-n", "--limit", type=whole(1), help="Stop after this many messages, over all topics.")
@click.option("-B", "--before", type=whole(0, 10_000), help="Also this many messages before each.")
@click.option("-A", "--after", type=whole(0, 10_000), help="Also this many messages after each.")
@click.option("-C", "--context", "around", type=whole(0, 10_000), help="Also this many messages on either side.")
@flag("--payload", help="Also payloads, in base64.")
@content_options
@_uncommitted
@gather(SearchRequest)
def search(
    app: App, selection: TopicSelection, options: SearchRequest, **bounds: Any
) -> Iterator[Shown]:  # Any: of Session.window
    """Search the messages of topics: by key, property, producer, time, payload or value.

    All given conditions must hold. --text and --regex search the payload, and with --value also the value decoded by
    the topic's schema, as it is shown; --json-path searches that value, or a JSON payload that was sent without a
    schema. Batches are split, chunks joined, payloads decompressed. Times use --clock: auto, publish, broker or event.
    Exit code 5 if nothing is found.
    """
    query = _search_query(app, options, bounds)
    with _chosen(app, selection, options) as (reader, chosen):
        value = options.value or (query.match is not None and query.match.needs_value)
        seen = seen_columns(reader, chosen.names, value=value) if is_read(app, options) else None
        query = replace(
            query, columns=message_columns(payload=options.payload, value=value, seen=seen), lenient=not value
        )
        messages = messages_of(app.session, lambda txn: chosen.names, query)
        with app.scan(reader, scan_bytes(reader.txn, chosen.names), "search", unused=FEW_MESSAGES):
            rows = map(redacted, messages.json_rows()) if options.redact else messages.json_rows()
            first = list(islice(rows, 1))
            if first or messages.problems or app.exit_code:
                columns = short_columns(several=chosen.several, value=value, seen=seen)
                beside = (_MARK,) if query.before or query.after else ()
                yield Result(rows=chain(first, rows), columns=(*beside, *columns), csv=(*beside, *FULL), live=True)
    app.report(messages.problems)
    if not first and app.exit_code == 0:  # else it may be in what could not be read
        hint = "--uncommitted also searches messages of open and aborted transactions"
        if options.uncommitted:
            hint = "look into other topics, or at other times"
        raise errors.NothingMatches("no message matches", hint=hint)


def _search_query(app: App, options: SearchRequest, bounds: dict[str, Any]) -> MessageQuery:  # Any: as above
    from pulsar_admin.store.scan.messages import Match

    criteria = {name: getattr(options, name) for name in Match.__struct_fields__ if name != "in_value"}
    match = Match(**criteria, in_value=options.value).check()
    window = app.session.window(**bounds, clock=app.settings.clock)
    before, after = (options.around if side is None else side for side in (options.before, options.after))
    query = MessageQuery(window, limit=options.limit, uncommitted=options.uncommitted, match=match)
    return replace(query, before=before or 0, after=after or 0)
