"""How much arrived when, of one topic or of several on one scale."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pulsar_admin.api.session import Session
from pulsar_admin.store.db.clocks import check_clock
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import read_topic
from pulsar_admin.store.names import TopicName
from pulsar_admin.store.reports.timeline import Timeline, TimelineOptions, choose_bucket_ms, read_timeline, usual_range
from pulsar_admin.store.wording import counted

if TYPE_CHECKING:
    import pyarrow as pa


def usual_times(session: Session, names: Iterable[TopicName], clock: str) -> tuple[int, int] | None:
    """Return the first and the last usual time of the topics NAMES together; None where none has an entry with a time."""
    checked = check_clock(clock)
    with session.reader() as reader:
        sample = EntryReader(reader.files, reader.txn)  # a sample is not bulk work
        sample.failed = []  # the scan lists it again
        found = (usual_range(sample, read_topic(reader.txn, name), checked) for name in names)
        ranges = [times for times in found if times is not None]
    return (min(low for low, _ in ranges), max(high for _, high in ranges)) if ranges else None


def timeline_of(session: Session, name: TopicName, options: TimelineOptions) -> Timeline:
    """Return how much of the topic NAME arrived when; raises TopicNotFound, LimitExceeded."""
    with session.scan() as reader:
        found = read_timeline(reader, read_topic(reader.txn, name), options)
    session.warn(missing_texts(name, found.missing_entries))
    session.partial(damaged_texts(name, found.unreadable_entries))
    return found


def timeline_table(
    session: Session, name: TopicName, clock: str, width_ms: int | None, start_ms: int | None, end_ms: int | None
) -> pa.Table:
    """Return the timeline of the topic NAME as columns, its width chosen where WIDTH_MS is None."""
    import pyarrow as pa

    from pulsar_admin.store.scan.message_rows import timestamps

    if width_ms is None:
        width_ms = choose_bucket_ms(*(usual_times(session, [name], clock) or (0, 0)))
    found = timeline_of(session, name, TimelineOptions(width_ms, check_clock(clock), start_ms, end_ms))
    if found.entries_without_time:
        without = counted(found.entries_without_time, "entry is", "entries are")
        session.partial([f"{name}: {without} without such a time"])
    times, entries, messages, size_bytes = (
        pa.array((row[index] for row in found.buckets), pa.int64()) for index in range(4)
    )
    return pa.table({"start": timestamps(times), "entries": entries, "messages": messages, "bytes": size_bytes})


def missing_texts(name: TopicName, missing: int) -> list[str]:
    """Return what to say of MISSING entries of the topic NAME; nothing where there are none."""
    return [f"{name}: {counted(missing, 'entry is', 'entries are')} in no imported file"] if missing else []


def damaged_texts(name: TopicName, damaged: int) -> list[str]:
    """Return what to say of DAMAGED entries of the topic NAME; nothing where there are none."""
    return [f"{name}: {counted(damaged, 'entry is', 'entries are')} damaged and left out"] if damaged else []
