"""``delayed status`` and ``delayed verify``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from commands.delayed.choosing import UNKNOWN_TYPE, delaying, iter_delaying, open_delivery
from pulsar_admin.columns import Column, alarm, caution
from pulsar_admin.context import App
from pulsar_admin.jsonify import to_json
from pulsar_admin.options import TopicSelection, command, pass_app
from store.errors import DiskFull, IndexCorrupt, MetadataCorrupt, TopicNotFound
from store.model.cursors import Cursor
from store.model.reader import EntryReader
from store.model.topics import Topic
from store.names import TopicName
from store.wording import counted, plural

if TYPE_CHECKING:
    from store.delayed.runs import RunFile

Json = dict[str, Any]  # Any: JSON values

_STATUS_COLUMNS = (
    Column("TOPIC", "topic"),
    Column("SUBSCRIPTION", "subscription"),
    Column("ACTIVE", lambda row: row["policy"]["active"], drop=2),
    Column("WAITING", "messages", "number", sums=True),
    Column("DUE NOW", lambda row: row["due"]["now"], "number", tone=caution, sums=True),
    Column("FIRST", "firstDue", "time", drop=6),
    Column("LAST", "lastDue", "time", drop=3),
    Column("INDEX CURSOR", lambda row: (row["index"] or {}).get("cursor"), drop=5),
    Column("LAG", lambda row: (row["index"] or {}).get("lagEntries"), "number", drop=4, tone=caution),
    Column("BYTES/MESSAGE", lambda row: (row["index"] or {}).get("bytesPerMessage"), "number", drop=1),
    Column(
        "TTL DROPS", lambda row: (row["ttlConflict"] or {}).get("messages"), "number", drop=7, tone=alarm, sums=True
    ),
)
_VERIFY_COLUMNS = (
    Column("TOPIC", "topic"),
    Column("SUBSCRIPTION", "subscription"),
    Column("WAITING", "waiting", "number"),
    Column("BUCKETS", "buckets", "number", drop=1),
    Column("IN BUCKETS", "inBuckets", "number", drop=2),
    Column("IN NONE", "outside", "number", drop=3),
    Column("STALE", "stale", "number"),
    Column("INDEXED", "indexed", "number"),
    Column("PROBLEMS", lambda row: sum(one["severity"] == "problem" for one in row["findings"]), "number"),
)


@command(
    "status",
    examples=[
        "pulsar-admin delayed status acme/delayed/reminders",
        "pulsar-admin delayed status acme/delayed/reminders -s workers -o json",
    ],
    output="Policy, messages that wait, the index and its lag, what real trackers would need, and TTL and quota conflicts.",
    errors=[TopicNotFound, IndexCorrupt, MetadataCorrupt, DiskFull],
    uses=["now", "spark"],
)
@delaying
@pass_app
def status(app: App, selection: TopicSelection, subscription: str | None) -> None:
    """Show the delayed backlog of subscriptions, its cost, and what a TTL or quota drops before it is due.

    Memory and rebuild time of the brokers' trackers are estimates; docs/howto/delayed-messages.md explains them.
    """
    from store.delayed.runs import open_runs

    rows = []
    with app.session.scan() as reader:
        for one in iter_delaying(app, reader, selection, subscription, unsubscribed=True):
            with open_runs() as file:
                row = _status(app, reader, *one, file)
            if row["subscription"] or row["messages"]:
                rows.append(row)
    app.note(UNKNOWN_TYPE)
    app.emit_rows(rows, _STATUS_COLUMNS)


def _status(app: App, reader: EntryReader, topic: Topic, cursor: Cursor, file: RunFile) -> Json:
    from store.delayed.summary import summarize

    found = summarize(reader, topic, cursor, open_delivery(app, reader, topic, cursor, file), app.now_ms)
    _warn_conflicts(app, topic, cursor, found.ttl_conflict)
    trackers = [{**to_json(tracker), "rebuildMs": tracker.rebuild_ms} for tracker in found.trackers]
    return {**to_json(found), "trackers": trackers}


def _warn_conflicts(app: App, topic: Topic, cursor: Cursor, conflict: Any) -> None:  # Any: TtlConflict or None
    if conflict is not None and conflict.messages:
        first = ", ".join(map(str, conflict.first))
        app.warn(
            f"{topic.name} {cursor.name}: the TTL of {conflict.ttl_seconds} s drops {counted(conflict.messages, 'message')} "
            f"before {plural(conflict.messages, 'it is', 'they are')} due: {first}"
        )


@command(
    "verify",
    examples=["pulsar-admin delayed verify acme/delayed/reminders", "pulsar-admin delayed verify --all-topics -o json"],
    output="A row a subscription: what waits, what buckets and index hold, findings. Exit code 1 when there is a problem.",
    errors=[TopicNotFound, MetadataCorrupt],
    uses=["spark"],
)
@delaying
@pass_app
def verify(app: App, selection: TopicSelection, subscription: str | None) -> None:
    """Compare a broker's bucket snapshots and our index with the topic's entries and acknowledgements.

    A message in no bucket is only a note: the bucket of the newest ledgers exists only in the broker's memory, and
    messages that were due when the broker read them need none. Missing or damaged bucket ledgers, duplicates, different
    times and leaked bucket ledgers are problems.
    """
    from store.delayed.verify import verify_cursor

    with app.session.scan() as reader:
        chosen = list(iter_delaying(app, reader, selection, subscription))
        rows: list[Json] = [to_json(verify_cursor(reader, *one)) for one in chosen]
        rows += _leaked(reader, frozenset(topic.name for topic, _ in chosen))
    for row in rows:
        wrong = [one for one in row["findings"] if one["severity"] == "problem"]
        for finding in row["findings"]:
            (app.warn if finding in wrong else app.note)(f"{row['topic']} {row['subscription']}: {finding['message']}")
        app.problems(len(wrong))
    app.emit_rows(rows, _VERIFY_COLUMNS)


def _leaked(reader: EntryReader, topics: frozenset[TopicName]) -> list[Json]:
    from store.delayed.buckets import iter_leaked
    from store.delayed.verify import DelayedFinding, Verified

    rows = []
    for ledger_id, topic, cursor in iter_leaked(reader, topics):
        text = f"bucket ledger {ledger_id} is leaked: no cursor points to it"
        finding = DelayedFinding("problem", "bucket-ledger-leaked", text, 0, ledger_id)
        rows.append(to_json(Verified(topic, cursor, 0, 0, 0, 0, 0, None, [finding])))
    return rows
