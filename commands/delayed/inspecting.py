"""``delayed status`` and ``delayed verify``."""

from __future__ import annotations

from pulsar_admin.columns import Column, alarm, caution
from pulsar_admin.commands.delayed.choosing import UNKNOWN_TYPE, delaying
from pulsar_admin.context import App
from pulsar_admin.options import TopicSelection, command, pass_app
from pulsar_admin.store.errors import DiskFull, IndexCorrupt, MetadataCorrupt, TopicNotFound
from pulsar_admin.store.wording import counted, plural

_STATUS_COLUMNS = (
    Column("TOPIC", "topic"),
    Column("SUBSCRIPTION", "subscription"),
    Column("ACTIVE", lambda row: row.policy["active"], drop=2),
    Column("WAITING", "messages", "number", sums=True),
    Column("DUE NOW", lambda row: row.due["now"], "number", tone=caution, sums=True),
    Column("FIRST", "first_due_ms", "time", drop=6),
    Column("LAST", "last_due_ms", "time", drop=3),
    Column("INDEX CURSOR", lambda row: row.index and row.index.cursor, drop=5),
    Column("LAG", lambda row: row.index and row.index.lag_entries, "number", drop=4, tone=caution),
    Column("BYTES/MESSAGE", lambda row: row.index and row.index.bytes_per_message, "number", drop=1),
    Column(
        "TTL DROPS", lambda row: row.ttl_conflict and row.ttl_conflict.messages, "number", drop=7, tone=alarm, sums=True
    ),
)
_VERIFY_COLUMNS = (
    Column("TOPIC", "topic"),
    Column("SUBSCRIPTION", "subscription"),
    Column("WAITING", "waiting", "number"),
    Column("BUCKETS", "buckets", "number", drop=1),
    Column("IN BUCKETS", "in_buckets", "number", drop=2),
    Column("IN NONE", "outside", "number", drop=3),
    Column("STALE", "stale", "number"),
    Column("INDEXED", "indexed", "number"),
    Column("PROBLEMS", "problems", "number"),
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
    rows = []
    with app.session.scan() as reader:
        for topic, cursor in app.session.delayed(selection, subscription).cursors(reader, unsubscribed=True):
            found = app.session.topic(topic.name).delayed(cursor.name or None).status()
            if (conflict := found.ttl_conflict) is not None and conflict.messages:
                app.warn(
                    f"{topic.name} {cursor.name}: the TTL of {conflict.ttl_seconds} s drops "
                    f"{counted(conflict.messages, 'message')} before {plural(conflict.messages, 'it is', 'they are')} "
                    f"due: {', '.join(map(str, conflict.first))}"
                )
            if found.subscription or found.messages:
                rows.append(found)
    app.note(UNKNOWN_TYPE)
    app.emit_rows(rows, _STATUS_COLUMNS)


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
    from pulsar_admin.store.delayed.verify import iter_leaked_buckets

    with app.session.scan() as reader:
        chosen = list(app.session.delayed(selection, subscription).cursors(reader))
        rows = [app.session.topic(topic.name).delayed(cursor.name).verify() for topic, cursor in chosen]
        rows += iter_leaked_buckets(reader, frozenset(topic.name for topic, _ in chosen))
    for row in rows:
        for finding in row.findings:
            say = app.warn if finding.severity == "problem" else app.note
            say(f"{row.topic} {row.subscription}: {finding.message}")
        app.problems(row.problems)
    app.emit_rows(rows, _VERIFY_COLUMNS)
