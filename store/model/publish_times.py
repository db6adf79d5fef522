"""PIP-345's begin and end publish time of every ledger, compared with the index and written as ledger properties.

The proposal wanted fields 6 and 7 of LedgerInfo; merged Pulsar has its properties in field 6. So the numbers are read from either
and written in either form: as the properties ``beginPublishTimestamp`` and ``endPublishTimestamp``, or as the proposal's fields. What
brokers make of them: docs/formats/managed-ledger.md.
"""

from typing import Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.store.codec.managedledger import LedgerInfo, decode_managed_ledger, encode_managed_ledger
from pulsar_admin.store.db.blocks import NO_MAX, decode_latest, decode_publish_bounds, ledger_key
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.errors import IndexCorrupt
from pulsar_admin.store.model.ledgers import find_sums
from pulsar_admin.store.model.topics import Topic, TopicLedger

BEGIN, END = "beginPublishTimestamp", "endPublishTimestamp"
Form = Literal["properties", "fields"]
FORMS: tuple[Form, ...] = ("properties", "fields")


class StatedTime(Struct, frozen=True):
    """A publish time stated in the metadata that differs from the index. ``where``: "field" or "property"."""

    name: str
    where: str
    stated: str
    found_ms: int


class PublishTimes(NamedTuple):
    """The smallest and largest publish time of a ledger, and from where: "entries" (derived), or stated: "field", "property"."""

    begin_ms: int
    end_ms: int
    source: str


def find_publish_times(txn: Txn, info: LedgerInfo) -> PublishTimes | None:
    """Return the publish times of a ledger: those of its entries on disk, else those stated in its LedgerInfo; None if neither exist."""
    row = txn.view("times", ledger_key(info.ledger_id))
    bounds = None if row is None else decode_publish_bounds(info.ledger_id, row)
    return stated_times(info) if bounds is None else PublishTimes(*bounds, "entries")


def stated_times(info: LedgerInfo) -> PublishTimes | None:
    """Return the times in the proposal's fields of ``info``, else in its properties; None if begin or end is missing or invalid."""
    if info.begin_publish_ms is not None and info.end_publish_ms is not None:
        stated = PublishTimes(info.begin_publish_ms, info.end_publish_ms, "field")
    else:
        texts = info.properties.get(BEGIN, ""), info.properties.get(END, "")
        if not all(text.isascii() and text.isdigit() and len(text) <= 19 for text in texts):
            return None
        stated = PublishTimes(int(texts[0]), int(texts[1]), "property")
    return stated if 0 <= stated.begin_ms <= stated.end_ms else None


def may_be_stated(info: LedgerInfo) -> bool:
    """Whether ``info`` may state a publish time."""
    return bool(info.properties) or info.begin_publish_ms is not None or info.end_publish_ms is not None


def is_stated_earlier(txn: Txn, topic: Topic, ledger: TopicLedger, time_ms: int, clock: str) -> bool:
    """Return whether metadata states that a ledger without imported entries was published before ``time_ms``, if
    ``clock`` uses that.

    Broker times and event times do not; ``auto`` does unless an imported entry of ``topic`` carries a broker time.
    """
    stated = stated_times(ledger.info)
    if stated is None or stated.end_ms >= time_ms or clock in ("broker", "event"):
        return False
    if clock == "publish":
        return True
    key = ("broker times", topic.name)
    if key not in txn.memo:
        rows = ((ledger_id, txn.view("times", ledger_key(ledger_id))) for ledger_id in topic.ids)
        txn.memo[key] = any(row is not None and decode_latest(one, row, "broker") > NO_MAX for one, row in rows)
    return not txn.memo[key]


def wrong_times(txn: Txn, listed: TopicLedger) -> list[StatedTime]:
    """Return the stated times of a ledger that differ from those of its entries; empty if entries are missing."""
    if not may_be_stated(listed.info):
        return []
    try:
        actual = _found(txn, listed.ledger_id, listed.entries)
    except IndexCorrupt:
        return []  # the check of the index tells
    if actual is None:
        return []
    info = listed.info
    stated = [
        (BEGIN, "field", None if info.begin_publish_ms is None else str(info.begin_publish_ms), actual[0]),
        (END, "field", None if info.end_publish_ms is None else str(info.end_publish_ms), actual[1]),
        (BEGIN, "property", info.properties.get(BEGIN), actual[0]),
        (END, "property", info.properties.get(END), actual[1]),
    ]
    return [StatedTime(name, where, text, time) for name, where, text, time in stated if text not in (None, str(time))]


def _found(txn: Txn, ledger_id: int, entries: int) -> tuple[int, int] | None:
    """Return the publish times (first, last) of a ledger whose entries are all imported and contain messages."""
    sums = find_sums(txn, ledger_id)
    if sums is None or sums.entries < entries:
        return None
    begin_ms, end_ms = sums.begin_publish_ms, sums.end_publish_ms
    return None if begin_ms is None or end_ms is None else (begin_ms, end_ms)


def annotated_value(txn: Txn, path: str, value: bytes, form: Form) -> bytes:
    """Return the ManagedLedgerInfo ``value`` with both times, in ``form``, on every closed ledger whose entries are all here.

    A value that has them already is returned as it is. Raises MetadataCorrupt, IndexCorrupt.
    """
    managed = decode_managed_ledger(value, path)
    ledgers = tuple(_annotated(txn, info, form) for info in managed.ledgers)
    return value if ledgers == managed.ledgers else encode_managed_ledger(replace(managed, ledgers=ledgers), value)


def _annotated(txn: Txn, info: LedgerInfo, form: Form) -> LedgerInfo:
    times = _found(txn, info.ledger_id, info.entries) if info.timestamp_ms else None
    if times is None:
        return info
    if form == "fields":
        return replace(info, begin_publish_ms=times[0], end_publish_ms=times[1])
    return replace(info, properties={**info.properties, BEGIN: str(times[0]), END: str(times[1])})
