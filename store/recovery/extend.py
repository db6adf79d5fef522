"""Entries behind the recorded end of a closed ledger that their producer was told are stored.

Upstream: a client that closes or recovers a ledger may record an end in front of entries that were acknowledged (bookkeeper#4812). That one
was acknowledged is proven by a later entry, which carries it as last add confirmed, or by as many copies as the ack quorum; a broker writes
what was not acknowledged to the next ledger again, with the same producer and sequence id (``ManagedLedgerImpl``, Pulsar 4.0.8).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.store.changes.log_writer import put_managed_ledger
from pulsar_admin.store.changes.plan import ChangePart, Plan, Step, put_value_step
from pulsar_admin.store.codec.ledgermetadata import LedgerMetadata, LedgerState, encode_ledger_metadata, ledger_path
from pulsar_admin.store.codec.message import decode_message_entry
from pulsar_admin.store.db.owners import OwnerKind, find_owners
from pulsar_admin.store.db.tree import read_node
from pulsar_admin.store.errors import LedgerNotFound, Refused, StoreError
from pulsar_admin.store.model.coverage import read_disks, read_held
from pulsar_admin.store.model.cursors import iter_cursor_names, read_cursor
from pulsar_admin.store.model.ledgers import find_metadata, find_times, iter_entry_ids, sorted_ledger_ids
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic, read_topic
from pulsar_admin.store.names import Position, TopicName, parse_owner
from pulsar_admin.store.wording import counted, plural

COMMAND = "ledgers restore"


class Behind(Struct, frozen=True):
    """What lies behind a ledger's end: entries ``first`` to ``last`` were acknowledged, up to ``proven`` by a later entry; ``again``: of
    those behind ``last``, how many the next ledger has once more; ``unsure``: how many too few bookies have."""

    ledger_id: int
    topic: TopicName
    first: int
    last: int
    proven: int
    again: int
    unsure: int

    @property
    def entries(self) -> int:
        return self.last - self.first + 1


def iter_behind(reader: EntryReader, ledger_ids: Iterable[int] = ()) -> Iterator[Behind]:
    """Yield what lies behind the end of LEDGER_IDS, or of every closed ledger of a topic."""
    for ledger_id in ledger_ids or sorted_ledger_ids(reader.txn):
        metadata, times = find_metadata(reader.txn, ledger_id), find_times(reader.txn, ledger_id)
        if metadata is None or metadata.state is not LedgerState.CLOSED or times is None:
            continue
        owners = [owner for owner in find_owners(reader.txn, ledger_id) if owner.kind is OwnerKind.TOPIC]
        if times.sums.last_entry > metadata.last_entry_id and owners:
            yield _judge(reader, ledger_id, metadata, parse_owner(owners[0].topic), times.sums.max_lac)


def _judge(reader: EntryReader, ledger_id: int, metadata: LedgerMetadata, name: TopicName, max_lac: int) -> Behind:
    """Return how far the entries behind the end were acknowledged; the first that was not, or is not here, ends it."""
    first = metadata.last_entry_id + 1
    held = read_held(reader.txn, ledger_id, read_disks(reader.txn)) or {}
    copies = {bookie: {*entries.tolist()} for bookie, entries in held.items()}
    sent = _sent(reader, _following(read_topic(reader.txn, name), ledger_id))

    def was_acknowledged(entry_id: int) -> bool:
        return entry_id <= max_lac or sum(entry_id in entries for entries in copies.values()) >= metadata.ack_quorum

    ids = list(iter_entry_ids(reader.txn, ledger_id, first))
    again = {one for one in ids if one > max_lac and _key(reader, ledger_id, one) in sent}
    last = first - 1
    for entry_id in ids:
        if entry_id != last + 1 or entry_id in again or not was_acknowledged(entry_id):
            break
        last = entry_id
    unsure = sum(one > last and one not in again for one in ids)
    return Behind(ledger_id, name, first, last, min(max_lac, last), len(again), unsure)


def _following(topic: Topic, ledger_id: int) -> int | None:
    return next((ledger.ledger_id for ledger in topic.ledgers if ledger.ledger_id > ledger_id and ledger.entries), None)


def _sent(reader: EntryReader, ledger_id: int | None) -> set[tuple[str, int]]:
    """Return the producers and sequence ids of a ledger's entries."""
    if ledger_id is None:
        return set()
    keys = (_key(reader, ledger_id, entry_id) for entry_id in iter_entry_ids(reader.txn, ledger_id))
    return {key for key in keys if key is not None}


def _key(reader: EntryReader, ledger_id: int, entry_id: int) -> tuple[str, int] | None:
    try:
        where = f"{ledger_id}:{entry_id}"
        metadata = decode_message_entry(reader.read(ledger_id, entry_id).payload, where, verify=False).metadata
    except StoreError:
        return None
    return metadata.producer_name, metadata.sequence_id


# -- the change -------------------------------------------------------------------------------------------------------


def plan_extend(reader: EntryReader, ledger_ids: Sequence[int], now_ms: int) -> Plan:
    """Plan that LEDGER_IDS, or all, end behind the last entry that was acknowledged, and that topics list them so.

    Raises LedgerNotFound where nothing lies behind an end, Refused where nothing of it was acknowledged.
    """
    found = list(iter_behind(reader, ledger_ids))
    if not found:
        what = f"ledger {ledger_ids[0]}" if len(ledger_ids) == 1 else "any ledger of a topic"
        raise LedgerNotFound(f"no entry lies behind the end of {what}", hint="see: pulsar-admin ledgers list")
    steps: list[Step] = []
    parts: list[ChangePart] = []
    warnings: list[str] = []
    topics: dict[TopicName, list[Behind]] = {}
    for one in found:
        warnings += _texts(reader, one)
        if one.entries:
            steps.append(_ledger_step(reader, one, now_ms))
            topics.setdefault(one.topic, []).append(one)
            before, after = {"lastEntryId": one.first - 1}, {"lastEntryId": one.last, "topic": str(one.topic)}
            parts.append(ChangePart(resource=f"ledger {one.ledger_id}", before=before, after=after))
    if not steps:
        raise Refused(
            "no entry behind an end was acknowledged: " + "; ".join(warnings), hint="there is nothing to extend"
        )
    steps += [_topic_step(reader, name, some, now_ms) for name, some in topics.items()]
    return Plan(COMMAND, reader.txn.id, tuple(steps), tuple(parts), warnings=tuple(warnings))


def _ledger_step(reader: EntryReader, found: Behind, now_ms: int) -> Step:
    node = read_node(reader.txn, ledger_path(found.ledger_id))
    metadata = find_metadata(reader.txn, found.ledger_id)
    assert metadata is not None
    length = reader.read(found.ledger_id, found.last).length
    longer = replace(metadata, last_entry_id=found.last, length=length)
    return put_value_step(reader.txn, node.path, encode_ledger_metadata(longer, node.value), now_ms)


def _topic_step(reader: EntryReader, name: TopicName, found: Iterable[Behind], now_ms: int) -> Step:
    ends = {one.ledger_id: one.last for one in found}
    managed = read_topic(reader.txn, name).managed
    infos = tuple(
        info._replace(
            entries=ends[info.ledger_id] + 1, size_bytes=reader.read(info.ledger_id, ends[info.ledger_id]).length
        )
        if info.ledger_id in ends and info.timestamp_ms
        else info
        for info in managed.ledgers
    )
    return put_managed_ledger(reader.txn, name, replace(managed, ledgers=infos), now_ms)


def _texts(reader: EntryReader, found: Behind) -> Iterator[str]:
    where = f"ledger {found.ledger_id} of {found.topic}"
    if found.entries:
        proven, were = max(found.proven - found.first + 1, 0), plural(found.entries, "was", "were")
        yield (
            f"{where}: {counted(found.entries, 'entry')} behind its end {were} acknowledged: {proven:,} by a later entry,"
            f" {found.entries - proven:,} by copies on as many bookies as the ack quorum"
        )
        passed = _passed(reader, found)
        if passed:
            yield f"{where}: subscriptions that are past them do not get them unless they are reset: {', '.join(passed)}"
    for count, why in ((found.again, "in the next ledger again"), (found.unsure, "not proven to be acknowledged")):
        if count:
            yield f"{where}: {counted(count, 'entry')} more {plural(count, 'is', 'are')} {why}, and left out"


def _passed(reader: EntryReader, found: Behind) -> list[str]:
    topic, behind = read_topic(reader.txn, found.topic), Position(found.ledger_id + 1, -1)
    names = iter_cursor_names(reader.txn, found.topic)
    return sorted(name for name in names if read_cursor(reader.txn, reader, topic, name).mark_delete >= behind)
