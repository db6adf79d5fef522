"""Whether the broker's buckets and our index say what the topic's entries and the acknowledgements say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Literal

import numpy as np
from msgspec import Struct, field

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.db.delayed import find_index
from pulsar_admin.store.db.delayed_entries import DelayedRows
from pulsar_admin.store.delayed.backlog import DelayScan, read_delayed
from pulsar_admin.store.delayed.build import PartitionSource
from pulsar_admin.store.delayed.trackers import Bucket, iter_buckets, iter_leaked
from pulsar_admin.store.delayed.waiting import is_current
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.model.cursors import Cursor, parts_of, pending_intervals
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic
from pulsar_admin.store.names import TopicName, shell_word
from pulsar_admin.store.wording import Answer, counted, one_line

Place = tuple[int, int]
"""(ledger, entry)."""
_ENTRY_BITS = 32  # no ledger of Pulsar is longer


class _Column:
    """Numbers of a column that grows in place: pieces put together at the end would need twice the memory."""

    def __init__(self) -> None:
        self._whole: Array = np.zeros(1 << 16, np.int64)
        self._count = 0

    @property
    def values(self) -> Array:
        """The rows added so far; valid until more are added."""
        return self._whole[: self._count]

    def append(self, more: Array) -> None:
        """Append more rows."""
        end = self._count + len(more)
        if end > len(self._whole):
            self._whole.resize(end + end // 8, refcheck=False)
        self._whole[self._count : end] = more
        self._count = end


class MessagePlaces(Struct, frozen=True):
    """Messages in order of their places, 16 bytes each. ``keys``: number of the ledger in ``ledger_ids`` << 32 | entry id."""

    ledger_ids: Array  # i64, ascending
    keys: Array  # i64, ascending
    times_ms: Array  # i64

    def __len__(self) -> int:
        return len(self.keys)

    @staticmethod
    def of(ledger_ids: Iterable[int], batches: Iterable[DelayedRows]) -> MessagePlaces:
        """Return the messages of batches, each once, that are in these ledgers (ascending)."""
        ids = np.array(list(ledger_ids), np.int64)
        keys, times = _Column(), _Column()
        for rows in batches:
            keys.append(np.searchsorted(ids, rows.ledger_ids) << _ENTRY_BITS | rows.entry_ids)
            times.append(rows.times_ms)
        if np.any(keys.values[1:] < keys.values[:-1]):
            order = np.argsort(keys.values)
            return MessagePlaces(ids, keys.values[order], times.values[order])
        return MessagePlaces(ids, keys.values, times.values)

    def find(self, rows: DelayedRows) -> Array:
        """Return the index of each row's message, −1 if it is missing."""
        if not len(self):
            return np.full(len(rows), -1, np.int64)
        numbers = np.minimum(np.searchsorted(self.ledger_ids, rows.ledger_ids), len(self.ledger_ids) - 1)
        is_key = (self.ledger_ids[numbers] == rows.ledger_ids) & (rows.entry_ids >> _ENTRY_BITS == 0)
        keys = numbers << _ENTRY_BITS | np.where(is_key, rows.entry_ids, 0)
        places = np.minimum(np.searchsorted(self.keys, keys), len(self) - 1)
        return np.where(is_key & (self.keys[places] == keys), places, -1)

    def between(self, first_ledger_id: int, last_ledger_id: int) -> slice:
        """Return where the messages of those ledgers are, both included."""
        numbers = np.array(
            [
                np.searchsorted(self.ledger_ids, first_ledger_id),
                np.searchsorted(self.ledger_ids, last_ledger_id, "right"),
            ]
        )
        low, high = np.searchsorted(self.keys, numbers << _ENTRY_BITS).tolist()
        return slice(low, high)

    def place(self, index: int) -> Place:
        """Return the place of one."""
        key = int(self.keys[index])
        return int(self.ledger_ids[key >> _ENTRY_BITS]), key & ((1 << _ENTRY_BITS) - 1)


def distinct(parts: Iterable[DelayedRows]) -> tuple[Array, Array]:
    """Return the distinct places in order, as (ledger, entry) rows, and how often each occurs."""
    pairs = [np.stack((rows.ledger_ids, rows.entry_ids), axis=1) for rows in parts]
    whole = np.concatenate([np.zeros((0, 2), np.int64), *pairs])
    whole = whole[np.lexsort((whole[:, 1], whole[:, 0]))]
    firsts = np.flatnonzero(np.append(True, np.any(whole[1:] != whole[:-1], axis=1))[: len(whole)])
    return whole[firsts], np.diff(np.append(firsts, len(whole)))


_SHOWN = 3


class DelayedFinding(Answer, frozen=True):
    """Something wrong (problem), or worth knowing (note)."""

    severity: Literal["problem", "note"]
    kind: str
    message: str
    messages: int = 0
    ledger_id: int | None = None


class Verified(Struct):
    """The result for one cursor. ``waiting``: delayed messages in its backlog; ``in_buckets``: those that a bucket
    holds; ``outside``: those that no bucket holds (only in the broker's memory); ``stale``: acknowledged ones still in
    a bucket."""

    __repr__ = one_line

    topic: str
    subscription: str
    waiting: int
    buckets: int
    in_buckets: int
    outside: int
    stale: int
    indexed: int | None
    findings: list[DelayedFinding] = field(default_factory=list)

    @property
    def problems(self) -> int:
        """How many findings are problems."""
        return sum(one.severity == "problem" for one in self.findings)


def iter_leaked_buckets(reader: EntryReader, topics: frozenset[TopicName]) -> Iterator[Verified]:
    """Yield a finding for each bucket ledger that no cursor points to."""
    for ledger_id, topic, cursor in iter_leaked(reader, topics):
        text = f"bucket ledger {ledger_id} is leaked: no cursor points to it"
        finding = DelayedFinding("problem", "bucket-ledger-leaked", text, 0, ledger_id)
        yield Verified(topic, cursor, 0, 0, 0, 0, 0, None, [finding])


def verify_cursor(reader: EntryReader, topic: Topic, cursor: Cursor) -> Verified:
    """Compare the buckets and the index of a cursor with the topic's entries; about 20 bytes per delayed message are in memory."""
    scan = DelayScan(reader, parts_of(topic, pending_intervals(topic, cursor.state)))
    exact = MessagePlaces.of(topic.ids, (rows for _, rows in read_delayed([scan])))
    buckets = list(iter_buckets(reader, cursor))
    parts = [bucket.rows for bucket in buckets if bucket.rows is not None]
    held = np.zeros(len(exact), bool)
    others = []
    for part in parts:
        places = exact.find(part)
        held[places[places >= 0]] = True
        others.append(part.take(places < 0))
    in_buckets, stale = int(held.sum()), len(distinct(others)[0])
    result = Verified(
        str(topic.name), cursor.name, len(exact), len(buckets), in_buckets, len(exact) - in_buckets, stale, None
    )
    if scan.missing or scan.unreadable:
        count = scan.missing + scan.unreadable
        text = f"{counted(count, 'waiting entry is', 'waiting entries are')} lost or damaged"
        result.findings.append(DelayedFinding("problem", "entries-lost", text, count))
    result.findings += _bucket_findings(buckets, exact)
    result.findings += _index_findings(reader, topic, cursor, exact, result)
    return result


def _bucket_findings(buckets: list[Bucket], exact: MessagePlaces) -> Iterator[DelayedFinding]:
    for bucket in buckets:
        if bucket.rows is None:
            kind = "bucket-ledger-gone" if bucket.is_gone else "bucket-damaged"
            yield DelayedFinding("problem", kind, f"{bucket.key}: {bucket.problem}", 0, bucket.ledger_id)
            continue
        indexes = exact.find(bucket.rows)
        is_here = indexes >= 0
        is_wrong = is_here.copy()
        is_wrong[is_here] = exact.times_ms[indexes[is_here]] != bucket.rows.times_ms[is_here]
        wrong, _ = distinct([bucket.rows.take(is_wrong)])
        if len(wrong):
            they_say = counted(len(wrong), "message has", "messages have") + " another time than in the entries"
            text = f"{bucket.key}: {they_say}: {_text(wrong)}"
            yield DelayedFinding("problem", "bucket-time-differs", text, len(wrong), bucket.ledger_id)
        inside = exact.between(bucket.first_ledger_id, bucket.last_ledger_id)
        held = np.zeros(len(exact), bool)
        held[indexes[is_here]] = True
        absent = inside.start + np.flatnonzero(~held[inside])
        if len(absent):
            listed = _text_of(exact, absent)
            text = f"{bucket.key} holds none of {counted(len(absent), 'delayed message')} of its ledgers: {listed}"
            yield DelayedFinding("note", "in-no-bucket", text, len(absent), bucket.ledger_id)
    places, counts = distinct(bucket.rows for bucket in buckets if bucket.rows is not None)
    doubles = places[counts > 1]
    if len(doubles):
        text = f"{counted(len(doubles), 'message is', 'messages are')} in two buckets: {_text(doubles)}"
        yield DelayedFinding("problem", "double", text, len(doubles))
    firsts = sorted((bucket.first_ledger_id, bucket.last_ledger_id, bucket.key) for bucket in buckets)
    for one, other in pairwise(firsts):
        if other[0] <= one[1]:
            yield DelayedFinding("problem", "buckets-overlap", f"{one[2]} and {other[2]} span the same ledgers")


def _index_findings(
    reader: EntryReader, topic: Topic, cursor: Cursor, exact: MessagePlaces, result: Verified
) -> Iterator[DelayedFinding]:
    again = f"pulsar-admin delayed build {shell_word(topic.name)} -s {shell_word(cursor.name)}"
    try:
        index = find_index(reader.txn, topic.name, cursor.name)
        if index is None:
            return
        result.indexed = index.messages
        compared = _compare(exact, PartitionSource(reader, index), index.rules.tick_ms)
    except StoreError as error:
        yield DelayedFinding("problem", "index-damaged", f"{error.message}; {again} --rebuild")
        return
    if not is_current(topic, cursor, index):
        yield DelayedFinding(
            "note", "index-behind", f"the index lags behind the topic or its acknowledgements: {again}"
        )
        return
    absent = np.flatnonzero(~compared.held)
    surplus = len(compared.wrong), _text(compared.wrong)
    for kind, (count, listed) in (("index-surplus", surplus), ("index-lacks", (len(absent), _text_of(exact, absent)))):
        if count or compared.has_doubles:
            text = f"the index differs from the topic in {counted(count, 'message')}: {listed}; {again} --rebuild"
            yield DelayedFinding("problem", kind, text, count)


class _Compared(Struct, frozen=True):
    """An index beside the topic. ``held``: which messages it has, a mask; ``wrong``: places of those it should not have so."""

    held: Array
    wrong: Array
    has_doubles: bool


def _compare(exact: MessagePlaces, source: PartitionSource, tick_ms: int) -> _Compared:
    """Return the index's verdict, reading it entry by entry; raises IndexCorrupt.

    Partitions keep the tick that they were made with; ``tick_ms`` is the widest.
    """
    held = np.zeros(len(exact), bool)
    inside = 0
    wrong, unknown = [], []
    for rows in source.iter_rows():
        places = exact.find(rows)
        is_here = places >= 0
        here = places[is_here]
        held[here] = True
        inside += len(here)
        early = exact.times_ms[here] - rows.times_ms[is_here]
        is_right = is_here.copy()
        is_right[is_here] = (early >= 0) & (early < tick_ms)
        wrong.append(rows.take(~is_right))
        unknown.append(rows.take(~is_here))
    different = len(distinct(unknown)[0])
    has_doubles = inside != int(held.sum()) or sum(map(len, unknown)) != different
    return _Compared(held, distinct(wrong)[0], has_doubles)


def _text(places: Array) -> str:
    """Return the first of some places, (ledger, entry) rows in order."""
    return _joined([(ledger, entry) for ledger, entry in places[:_SHOWN].tolist()], len(places))


def _text_of(exact: MessagePlaces, chosen: Array) -> str:
    return _joined([exact.place(index) for index in chosen[:_SHOWN].tolist()], len(chosen))


def _joined(shown: list[Place], count: int) -> str:
    return ", ".join(f"{ledger}:{entry}" for ledger, entry in shown) + (" …" if count > _SHOWN else "")
