"""Whether the broker's buckets and our index say what the topic's entries and the acknowledgements say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from store.codec.delayedindex import DelayedRows
from store.cursors import Cursor
from store.delayed.backlog import DelayScan, parts_of
from store.delayed.buckets import Bucket, iter_buckets
from store.delayed.partitions import PartitionSource
from store.delayed.waiting import is_current
from store.delayedindexes import find_index
from store.errors import StoreError
from store.extent import pending_intervals
from store.ledgers import EntryReader
from store.topics import Topic

Places = dict[tuple[int, int], int]
"""(ledger, entry) → due time in ms."""
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class DelayedFinding:
    """Something wrong (problem), or worth knowing (note)."""

    severity: Literal["problem", "note"]
    kind: str
    message: str
    messages: int = 0
    ledger_id: int | None = None


@dataclass(slots=True)
class Verified:
    """One cursor. ``waiting``: delayed messages it has still to be given; ``in_buckets``: those of them that a bucket holds;
    ``outside``: those that none holds (in the broker's memory only); ``stale``: acknowledged ones still in a bucket."""

    topic: str
    subscription: str
    waiting: int
    buckets: int
    in_buckets: int
    outside: int
    stale: int
    indexed: int | None
    findings: list[DelayedFinding] = field(default_factory=list)


def verify_cursor(reader: EntryReader, topic: Topic, cursor: Cursor) -> Verified:
    """Compare the buckets and the index of CURSOR with the entries of TOPIC."""
    scan = DelayScan(reader, parts_of(topic, pending_intervals(topic, cursor.state)))
    exact = _places(scan.rows())
    buckets = list(iter_buckets(reader, cursor))
    held = [place for bucket in buckets if bucket.rows is not None for place in _places(bucket.rows)]
    waiting = exact.keys()
    result = Verified(
        str(topic.name),
        cursor.name,
        len(exact),
        len(buckets),
        len(waiting & set(held)),
        len(waiting - set(held)),
        len(set(held) - waiting),
        None,
    )
    if scan.missing or scan.unreadable:
        count = scan.missing + scan.unreadable
        result.findings.append(
            DelayedFinding("problem", "entries-lost", f"{count} entries that wait are lost or damaged", count)
        )
    result.findings += _bucket_findings(buckets, exact)
    result.findings += _index_findings(reader, topic, cursor, (exact, result))
    return result


def _places(rows: DelayedRows) -> Places:
    keys = zip(rows.ledger_ids.tolist(), rows.entry_ids.tolist(), strict=True)
    return dict(zip(keys, rows.times_ms.tolist(), strict=True))


def _bucket_findings(buckets: list[Bucket], exact: Places) -> Iterator[DelayedFinding]:
    seen: Counter[tuple[int, int]] = Counter()
    for bucket in buckets:
        if bucket.rows is None:
            kind = "bucket-ledger-gone" if bucket.is_gone else "bucket-damaged"
            yield DelayedFinding("problem", kind, f"{bucket.key}: {bucket.problem}", 0, bucket.ledger_id)
            continue
        seen.update(zip(bucket.rows.ledger_ids.tolist(), bucket.rows.entry_ids.tolist(), strict=True))
        places = _places(bucket.rows)
        wrong = [place for place, due in places.items() if exact.get(place, due) != due]
        if wrong:
            text = f"{bucket.key}: {len(wrong)} messages at another time than their entries say: {_text(wrong)}"
            yield DelayedFinding("problem", "bucket-time-differs", text, len(wrong), bucket.ledger_id)
        inside = range(bucket.first_ledger_id, bucket.last_ledger_id + 1)
        absent = [place for place in exact if place[0] in inside and place not in places]
        if absent:
            text = f"{bucket.key} holds none of {len(absent)} delayed messages of its ledgers: {_text(absent)}"
            yield DelayedFinding("note", "in-no-bucket", text, len(absent), bucket.ledger_id)
    doubles = [place for place, count in seen.items() if count > 1]
    if doubles:
        text = f"{len(doubles)} messages are in two buckets: {_text(doubles)}"
        yield DelayedFinding("problem", "double", text, len(doubles))
    firsts = sorted((bucket.first_ledger_id, bucket.last_ledger_id, bucket.key) for bucket in buckets)
    for one, other in pairwise(firsts):
        if other[0] <= one[1]:
            yield DelayedFinding("problem", "buckets-overlap", f"{one[2]} and {other[2]} span the same ledgers")


def _index_findings(
    reader: EntryReader, topic: Topic, cursor: Cursor, known: tuple[Places, Verified]
) -> Iterator[DelayedFinding]:
    exact, result = known
    again = f"pulsar-admin delayed build {topic.name} -s {cursor.name}"
    try:
        index = find_index(reader.txn, topic.name, cursor.name)
        if index is None:
            return
        result.indexed = index.messages
        source = PartitionSource(reader, index)
        rows = source.all_rows()
    except StoreError as error:
        yield DelayedFinding("problem", "index-damaged", f"{error.message}; {again} --rebuild")
        return
    if not is_current(topic, cursor, index):
        yield DelayedFinding("note", "index-behind", f"the index is behind the topic or its acknowledgements: {again}")
        return
    places = _places(rows)
    # Partitions keep the tick that they were made with; none is wider than the widest of them.
    tick_ms = index.rules.tick_ms
    wrong = [place for place in places if place not in exact or not 0 <= exact[place] - places[place] < tick_ms]
    absent = [place for place in exact if place not in places]
    for kind, found in (("index-surplus", wrong), ("index-lacks", absent)):
        if found or len(rows) != len(places):
            text = f"the index differs from the topic in {len(found)} messages: {_text(found)}; {again} --rebuild"
            yield DelayedFinding("problem", kind, text, len(found))


def _text(places: Iterable[tuple[int, int]]) -> str:
    listed = sorted(places)
    shown = ", ".join(f"{ledger}:{entry}" for ledger, entry in listed[:_SHOWN])
    return shown + (" …" if len(listed) > _SHOWN else "")
