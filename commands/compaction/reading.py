"""``compaction status``, ``read`` and ``find-by-time``: reading the compacted view."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.api.messages import messages_of
from pulsar_admin.columns import Column, alarm
from pulsar_admin.commands.topics import printout
from pulsar_admin.commands.topics.answers import answer_each, selected
from pulsar_admin.context import FEW_MESSAGES, App, Result, Shown
from pulsar_admin.jsonify import partition_json
from pulsar_admin.numbers import whole
from pulsar_admin.options import TIME_POINT, TopicSelection, choice_option, command, flag, gather, topics_argument
from pulsar_admin.store.compaction.reading import FoundInView, views_bytes
from pulsar_admin.store.dump.messages import MessageQuery
from pulsar_admin.store.errors import EntryCorrupt, MetadataCorrupt, NothingMatches, TopicNotFound
from pulsar_admin.store.names import parse_topic, shell_word

if TYPE_CHECKING:
    from pulsar_admin.api.topics import Topic, ViewRule
    from pulsar_admin.store.compaction.status import CompactionStatus

# -- status -----------------------------------------------------------------------------------------------------------

_STATUS_COLUMNS = (
    Column("TOPIC", "topic"),
    Column("COMPACTED", "compacted"),
    Column("HORIZON", lambda row: row.horizon, drop=3),
    Column("LEDGER", lambda row: None if row.ledger is None else row.ledger.ledger_id, "id", drop=4),
    Column("ENTRIES", lambda row: None if row.ledger is None else row.ledger.entries, "number", drop=5),
    Column("BYTES", lambda row: None if row.ledger is None else row.ledger.size_bytes, "bytes", drop=2, sums=True),
    Column("FORMAT", lambda row: None if row.ledger is None else row.ledger.form, drop=1),
    Column("SINCE", "entries_since", "number", sums=True),
    Column("PROBLEMS", lambda row: "; ".join(row.problems), "prose", tone=alarm),
)


@command(
    "compaction status",
    examples=["acme/orders/compacted", "--pattern 'acme/orders/compacted*' -o table"],
    output="Horizon, compacted ledger, what follows the horizon, leaked ledgers and problems; exit code 1 if "
    "there are problems.",
    errors=[TopicNotFound, MetadataCorrupt],
)
@topics_argument
def status(app: App, selection: TopicSelection) -> Result:
    """Show how far topics are compacted, and any problems."""
    return answer_each(app, selection, lambda topic: _status(app, topic), _STATUS_COLUMNS, one=_STATUS_COLUMNS)


def _status(app: App, topic: Topic) -> CompactionStatus:
    found = topic.compaction().status()
    app.problems(len(found.problems))
    return found


# -- read -------------------------------------------------------------------------------------------------------------


class ReadOptions(Struct, frozen=True):
    """The options of ``compaction read``: which messages of the view, and how much of them to show."""

    keys: tuple[str, ...]
    limit: int | None
    payload: bool
    value: bool
    redact: bool


@command(
    "compaction read",
    uses=["spark"],
    examples=["acme/orders/compacted --key k0028", "acme/orders/compacted-single -n 5 -o jsonl"],
    output="One row per message, the columns of `topics read`; an encrypted entry is one row with its stored bytes.",
    errors=[TopicNotFound, MetadataCorrupt, EntryCorrupt],
)
@topics_argument
@click.option("--key", "keys", multiple=True, metavar="KEY", help="Only messages with this key; may be repeated.")
@click.option("-n", "--limit", type=whole(), help="At most this many messages per topic.")
@flag("--payload", help="Show payloads, as base64.")
@printout.value_option
@printout.redact_option
@gather(ReadOptions)
def read(app: App, selection: TopicSelection, options: ReadOptions) -> Iterator[Shown]:
    """Read the compacted view message by message, as a reader with read-compacted does.

    First the messages that compaction kept, then those after its horizon. Messages that compaction removed are left
    out, as in the Java client; the C++ and Python clients deliver them as empty messages without a key.
    """
    with app.session.reader() as reader:
        names = selected(app, reader.txn, selection)
        seen = printout.seen_columns(reader, names, value=options.value) if printout.is_read(app, options) else None
        columns = printout.message_columns(payload=options.payload, value=options.value, seen=seen)
        query = MessageQuery(columns=columns, limit=options.limit, each=True, compacted=True, keys=options.keys)
        query = replace(query, lenient=not options.value)
        messages = messages_of(app.session, lambda txn: names, query)
        size_bytes = 0 if options.limit is not None else views_bytes(reader, names)
        with app.scan(reader, size_bytes, "read", unused=FEW_MESSAGES):
            yield printout.messages_result(
                messages, several=len(names) > 1, value=options.value, hide=options.redact, seen=seen
            )
    app.report(messages.problems)


# -- find-by-time -----------------------------------------------------------------------------------------------------

EXACT, BROKER = "first-at-or-after", "broker"
_NEVER_COMPACTED = "this topic was never compacted: there is no compacted ledger to search"
_NOTHING_LATER = "the compacted ledger holds nothing published at or after the time"
_FOUND_COLUMNS = (
    Column("TOPIC", "topic"),
    Column("POSITION", "position"),
    Column("PUBLISHED", "entryTime", "time"),
    Column("READ", "entriesRead", "number"),
)


@command(
    "compaction find-by-time",
    uses=["spark"],
    examples=[
        "acme/orders/compacted --time @1795253002970",
        "--pattern 'acme/*/compacted-s*' --time @1795253002 -o jsonl",
    ],
    output="One object per topic; `position` is null when the compacted ledger holds nothing at or after the time, `why` says so.",
    errors=[TopicNotFound, NothingMatches, MetadataCorrupt, EntryCorrupt],
)
@topics_argument
@click.option("-d", "--time", "--datetime", "time_ms", type=TIME_POINT, required=True, help="The point in time.")
@choice_option(
    "--rule",
    words=[EXACT, BROKER],
    help="first-at-or-after: exact. broker: bisection, which assumes that clocks do not run backwards.",
)
def find_by_time(app: App, selection: TopicSelection, time_ms: int, rule: ViewRule) -> Result:
    """Find the first entry of a compacted ledger published at or after a point in time.

    This is findEntryByPublishTime of PIP-429: the answer is the entry's position in the topic. Only what compaction
    kept is searched, always by publish time.
    """
    return answer_each(
        app,
        selection,
        lambda topic: _find(app, topic, time_ms, rule),
        _FOUND_COLUMNS,
        scan=lambda reader, names: app.scan(reader, views_bytes(reader, names), "find-by-time", unused=FEW_MESSAGES),
    )


def _find(app: App, topic: Topic, time_ms: int, rule: ViewRule) -> dict[str, Any]:  # Any: JSON
    name = parse_topic(topic.name)
    first = topic.compaction().find(time_ms, rule=rule)
    why = _NEVER_COMPACTED if first is None else _NOTHING_LATER if first.position is None else None
    if why is not None:
        app.nothing_matches()
        then = f"pulsar-admin topics find-by-time {shell_word(name)} --time {time_ms}"
        app.warn(f"{name}: {why}; to search the topic itself: {then}")
    first = first or FoundInView(None, None, 0)
    head = {"topic": topic.name, "time": time_ms, "clock": "publish", "rule": rule}
    return {**head, **partition_json(first, name.partition_index), "why": why}
