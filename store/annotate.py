"""PIP-345's begin and end publish time of every ledger, compared with the index and written as ledger properties.

The proposal wanted fields 6 and 7 of LedgerInfo; merged Pulsar has its properties in field 6. So the numbers are read from the
proposal's fields where a value has them, and written as the properties ``beginPublishTimestamp`` and ``endPublishTimestamp`` only,
which every broker keeps and none looks at.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from store.codec.managedledger import LedgerInfo, decode_managed_ledger, encode_managed_ledger
from store.errors import IndexCorrupt
from store.ledgers import find_times
from store.meta import Txn
from store.topics import TopicLedger

BEGIN, END = "beginPublishTimestamp", "endPublishTimestamp"


@dataclass(frozen=True, slots=True)
class StatedTime:
    """A publish time that the metadata states and the index knows better. ``where``: "field" or "property"."""

    name: str
    where: str
    stated: str
    found_ms: int


def wrong_times(txn: Txn, listed: TopicLedger) -> list[StatedTime]:
    """Return the times stated for a ledger that are not those of its entries; nothing when entries of it are missing."""
    try:
        found = _found(txn, listed.ledger_id, listed.entries)
    except IndexCorrupt:
        return []  # the check of the index tells
    if found is None:
        return []
    info = listed.info
    stated = [
        (BEGIN, "field", None if info.begin_publish_ms is None else str(info.begin_publish_ms), found[0]),
        (END, "field", None if info.end_publish_ms is None else str(info.end_publish_ms), found[1]),
        (BEGIN, "property", info.properties.get(BEGIN), found[0]),
        (END, "property", info.properties.get(END), found[1]),
    ]
    return [StatedTime(name, where, text, time) for name, where, text, time in stated if text not in (None, str(time))]


def _found(txn: Txn, ledger_id: int, entries: int) -> tuple[int, int] | None:
    """Return (begin, end) of a ledger of which every entry is here and some are messages."""
    times = find_times(txn, ledger_id)
    if times is None or times.sums.entries < entries:
        return None
    begin_ms, end_ms = times.sums.begin_publish_ms, times.sums.end_publish_ms
    return None if begin_ms is None or end_ms is None else (begin_ms, end_ms)


def annotated_value(txn: Txn, path: str, value: bytes) -> bytes:
    """Return the ManagedLedgerInfo VALUE with the two properties on every closed ledger whose entries are all here.

    A value that has them already is returned as it is. Raises MetadataCorrupt, IndexCorrupt.
    """
    managed = decode_managed_ledger(value, path)
    ledgers = tuple(_annotated(txn, info) for info in managed.ledgers)
    return value if ledgers == managed.ledgers else encode_managed_ledger(replace(managed, ledgers=ledgers), value)


def _annotated(txn: Txn, info: LedgerInfo) -> LedgerInfo:
    found = _found(txn, info.ledger_id, info.entries) if info.timestamp_ms else None
    if found is None:
        return info
    return info._replace(properties={**info.properties, BEGIN: str(found[0]), END: str(found[1])})
