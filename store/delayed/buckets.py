"""A real broker's delayed-message buckets of one cursor, read from their ledgers (pulsar.md §5.3)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from pulsar_admin.store.codec.claims import BUCKET_COMPONENT, BUCKET_CURSOR, BUCKET_TOPIC, COMPONENT
from pulsar_admin.store.codec.delayedbucket import (
    decode_entry_ids,
    decode_snapshot_metadata,
    decode_snapshot_segment,
    parse_bucket_key,
)
from pulsar_admin.store.codec.given import parse_integer
from pulsar_admin.store.db.delayed_entries import DelayedRows, join_rows, sorted_rows
from pulsar_admin.store.db.owners import find_owners
from pulsar_admin.store.errors import EntryCorrupt, StoreError
from pulsar_admin.store.model.cursors import Cursor
from pulsar_admin.store.model.ledger_owners import custom_text
from pulsar_admin.store.model.ledgers import find_metadata, find_times, iter_ledger_ids
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.names import TopicName


class Bucket(Struct, frozen=True):
    """A bucket as its pointer names it. ``rows`` None: its ledger cannot be read, ``problem`` says why."""

    key: str
    first_ledger_id: int
    last_ledger_id: int
    ledger_id: int
    rows: DelayedRows | None
    problem: str = ""
    is_gone: bool = False


def iter_buckets(reader: EntryReader, cursor: Cursor) -> Iterator[Bucket]:
    """Yield the buckets that CURSOR's properties point to; what is wrong with one is in it, never raised."""
    for key, value in sorted(cursor.info.cursor_properties.items()):
        ledgers = parse_bucket_key(key)
        if ledgers is None:
            continue
        ledger_id = parse_integer(value)
        if ledger_id is None or (
            find_metadata(reader.txn, ledger_id) is None and find_times(reader.txn, ledger_id) is None
        ):
            yield Bucket(
                key, *ledgers, -1 if ledger_id is None else ledger_id, None, f"its ledger {value} is gone", True
            )
            continue
        try:
            yield Bucket(key, *ledgers, ledger_id, _read(reader, ledger_id))
        except StoreError as error:
            yield Bucket(key, *ledgers, ledger_id, None, error.message)


def _read(reader: EntryReader, ledger_id: int) -> DelayedRows:
    """Return what a bucket's ledger holds; raises EntryCorrupt where segment and metadata contradict each other."""
    where = f"bucket ledger {ledger_id}"
    parts = []
    for number, segment in enumerate(decode_snapshot_metadata(reader.read(ledger_id, 0).payload, f"{where}:0"), 1):
        payload = reader.read(ledger_id, number).payload
        found = decode_snapshot_segment(payload, f"{where}:{number}")
        columns = np.array([(one.timestamp_ms, one.ledger_id, one.entry_id) for one in found], np.int64).reshape(-1, 3)
        described = {
            (ledger, entry) for ledger, raw in segment.bitmaps.items() for entry in decode_entry_ids(raw, where)
        }
        if {(one.ledger_id, one.entry_id) for one in found} != described:
            raise EntryCorrupt(f"{where}: segment {number} holds other messages than its metadata says", where=where)
        parts.append(sorted_rows(columns[:, 0], columns[:, 1], columns[:, 2]))
    return join_rows(parts)


def iter_leaked(reader: EntryReader, topics: frozenset[TopicName]) -> Iterator[tuple[int, str, str]]:
    """Yield (ledger id, topic, cursor) of bucket ledgers of TOPICS that no cursor points to: the broker forgot to delete them."""
    names = {str(topic) for topic in topics} | {topic.path.removeprefix("/managed-ledgers/") for topic in topics}
    for ledger_id in iter_ledger_ids(reader.txn):
        if find_owners(reader.txn, ledger_id):
            continue
        try:
            metadata = find_metadata(reader.txn, ledger_id)
        except StoreError:
            continue
        claims = {} if metadata is None else custom_text(metadata)
        if claims.get(COMPONENT) == BUCKET_COMPONENT.decode() and claims.get(BUCKET_TOPIC) in names:
            yield ledger_id, claims[BUCKET_TOPIC], claims.get(BUCKET_CURSOR, "")
