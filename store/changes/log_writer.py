"""Writing ledgers into new entry logs in BookKeeper's format under ``entries/``, and adding them to the store and to
topics' lists.

Order: the logs' bytes are durable first (``write_ledgers``); then one transaction catalogues and indexes them, reserves
their ids and applies the change that references them (``apply_written``). A process killed in between leaves a file
under ``entries/`` without a catalogue row, which ``store check`` reports. Undoing the change removes the references and
leaves the entries in the index, so that the undo can itself be undone.

Ledgers are written closed: one ensemble of one bookie, last-add-confirmed = entry id − 1.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.store.changes.cursors import CursorMove, plan_moves
from pulsar_admin.store.changes.plan import ChangeKind, ChangePart, ChangeReport, Plan, apply_plan, put_value_step
from pulsar_admin.store.changes.resets import check_position
from pulsar_admin.store.codec import ledgermetadata
from pulsar_admin.store.codec.brokerentry import BrokerEntry, encode_broker_entry, strip
from pulsar_admin.store.codec.claims import APPLICATION, COMPONENT
from pulsar_admin.store.codec.digest import DigestType
from pulsar_admin.store.codec.interceptors import Append, InterceptorChain
from pulsar_admin.store.codec.managedledger import LedgerInfo, ManagedLedger, encode_managed_ledger
from pulsar_admin.store.codec.message import decode_message_entry, message_count, transaction_id
from pulsar_admin.store.db.audit_log import Step
from pulsar_admin.store.db.environment import Store, Txn
from pulsar_admin.store.db.files import iter_logs, next_file_id
from pulsar_admin.store.db.own_ledgers import OwnLedgers, put_own_ledgers
from pulsar_admin.store.db.owners import find_owners
from pulsar_admin.store.db.tree import find_node, iter_children
from pulsar_admin.store.errors import ENTRY_UNREADABLE, EntryCorrupt, LedgerNotFound, Refused, StoreError
from pulsar_admin.store.files import remove_file
from pulsar_admin.store.index.own_logs import LogWriter, index_own_file, next_own_ledgers
from pulsar_admin.store.model.cursors import read_topic_cursor
from pulsar_admin.store.model.ledgers import find_metadata, find_times
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic, read_topic
from pulsar_admin.store.names import Position, TopicName
from pulsar_admin.store.wording import counted, listed

if TYPE_CHECKING:
    from pulsar_admin.store.scan.payloads import Payload

DEFAULT_BOOKIE = "127.0.0.1:3181"


class LedgerSpec(Struct, frozen=True):
    """A ledger to write. ``custom``: its custom metadata (``store.codec.claims``).

    ``ledger_id`` None: the next id for ledgers of this store; any other must be unknown to it. ``digest_type``: CRC32C
    or CRC32.
    """

    custom: Mapping[str, bytes]
    digest_type: DigestType = DigestType.CRC32C
    ledger_id: int | None = None


class WrittenLedger(Struct, frozen=True):
    """A ledger that is on disk.

    ``entries``: last entry id + 1; ``size_bytes``: payload bytes, as in ``LedgerInfo.size``.
    """

    ledger_id: int
    entries: int
    size_bytes: int
    spec: LedgerSpec


class WrittenLedgers(Struct, frozen=True):
    """Durable ledgers that the store does not know yet.

    Use in a ``with`` block, which removes their files on an error.
    """

    store: Store
    ledgers: tuple[WrittenLedger, ...]
    files: tuple[Path, ...]
    own: OwnLedgers
    bookie: str

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is not None:
            self._discard()

    def steps(self, txn: Txn, now_ms: int) -> tuple[Step, ...]:
        """Return the steps that create the ledgers' metadata nodes."""
        return tuple(
            put_value_step(txn, ledgermetadata.ledger_path(ledger.ledger_id), self._metadata(ledger), now_ms)
            for ledger in self.ledgers
        )

    def _metadata(self, ledger: WrittenLedger) -> bytes:
        spec = ledger.spec
        return ledgermetadata.encode_ledger_metadata(
            ledgermetadata.closed_ledger(
                self.bookie,
                ledger.entries,
                ledger.size_bytes,
                {COMPONENT: b"", **APPLICATION, **spec.custom},
                spec.digest_type,
            )
        )

    def index(self, txn: Txn) -> None:
        """Catalogue and index the files, verifying every digest, and reserve the ids; call it in the change's transaction."""
        kinds = {ledger.ledger_id: ledger.spec.digest_type for ledger in self.ledgers}
        for path in self.files:
            index_own_file(self.store, txn, path, kinds)
        put_own_ledgers(txn, self.own)

    def _discard(self) -> None:
        """Remove the files, unless the catalogue names them or cannot be read; raising here would hide the block's error."""
        try:
            with self.store.read() as txn:
                known = {log.path for log in iter_logs(txn)}
        except StoreError:
            return
        for path in self.files:
            if str(path.relative_to(self.store.path)) not in known:
                remove_file(path)


def write_ledgers(store: Store, ledgers: Iterable[tuple[LedgerSpec, Iterable[Payload]]]) -> WrittenLedgers:
    """Write ledgers into new entry logs, each from the payloads of its entries 0, 1, 2 … (or columns of them); durable
    on return.

    The store is open for writing. An error leaves no files. Raises Refused for a ledger id that is in use,
    LimitExceeded, DiskFull, NotWritable.
    """
    with store.read() as txn:
        own = next_own_ledgers(store, txn)
        bookie = find_bookie(txn)
        first_log_id = next_file_id(txn)
    next_id = own.next_id
    written: list[WrittenLedger] = []
    kept: set[int] = set()
    with LogWriter(store.path / "entries", first_log_id) as writer:
        for spec, payloads in ledgers:
            ledger_id = next_id if spec.ledger_id is None else spec.ledger_id
            if spec.ledger_id is not None:
                _check_free(store, ledger_id, kept)
                kept.add(ledger_id)
            next_id = max(next_id, ledger_id + 1)
            entries, size_bytes = writer.write_ledger(ledger_id, spec.digest_type, payloads)
            written.append(WrittenLedger(ledger_id, entries, size_bytes, spec))
        files = writer.finish()
    return WrittenLedgers(store, tuple(written), files, OwnLedgers(own.first_id, next_id), bookie)


def _check_free(store: Store, ledger_id: int, kept: set[int]) -> None:
    with store.read() as txn:
        taken = find_metadata(txn, ledger_id) is not None or find_times(txn, ledger_id) is not None
        # What references an id that has no ledger would get the new one's entries; those in ``kept`` are in no row yet.
        if taken or find_owners(txn, ledger_id) or ledger_id in kept:
            raise Refused(
                f"ledger {ledger_id} is in this store already",
                hint="let it get a new id: omit --keep-ledger-ids",
                ledgerId=ledger_id,
            )


def apply_written(written: WrittenLedgers, plan: Plan, now_ms: int) -> ChangeReport:
    """Apply ``plan`` (which contains ``written.steps``) and catalogue the written ledgers in one transaction;
    return its report.

    Any error leaves the store unchanged. Raises StalePlan.
    """
    advice = way_back_of(written.store, [ledger.ledger_id for ledger in written.ledgers])
    return apply_plan(written.store, replace(plan, warnings=(*plan.warnings, *advice)), now_ms, first=written.index)


def find_bookie(txn: Txn) -> str:
    """Return the first bookie with a cookie, otherwise ``DEFAULT_BOOKIE``: the ensemble of ledgers written here."""
    return next(iter_children(txn, ledgermetadata.COOKIES), DEFAULT_BOOKIE)


def way_back_of(store: Store, ledger_ids: Sequence[int]) -> tuple[str, ...]:
    """Return the advice to export new ledgers to bookies before the metadata; none for a standalone, which is exported
    as a whole."""
    sources = [source for source in store.info.sources if not _is_standalone(source)]
    if not ledger_ids or not sources:
        return ()
    return (
        f"no bookie has {counted(len(ledger_ids), 'ledger')} that this wrote ({listed(ledger_ids, 3)}): write the "
        "entries to bookies with `store export bookie` first; until then `store export zookeeper` refuses them",
    )


def _is_standalone(source: Mapping[str, Any]) -> bool:  # Any: JSON
    """Return whether the source is a standalone's directory with RocksDB metadata; a missing directory counts as one."""
    root = Path(source.get("path", ""))
    return source.get("kind") == "standalone" and ((root / "metadata" / "CURRENT").is_file() or not root.is_dir())


# -- appending ---------------------------------------------------------------------------------------------------------
# Shared by all commands that append to topics: broker metadata that continues that of the last entry.


def append_payload(payload: bytes | memoryview, chain: InterceptorChain, now_ms: int) -> bytes:
    """Return the entry as a broker with the interceptors in ``chain`` would append it; a payload that is not a message gets no header."""
    try:
        metadata = decode_message_entry(payload, "entry", verify=False).metadata
    except EntryCorrupt:
        return bytes(payload)
    # A batch of a transaction is appended as one message, see docs/formats/message.md.
    told = 1 if transaction_id(metadata) is not None else message_count(metadata)
    broker = chain.intercept(Append(now_ms, told))
    front = b"" if broker is None else encode_broker_entry(broker)
    return front + bytes(strip(memoryview(payload), "entry"))


def recover_chain(reader: EntryReader, name: TopicName, chain: InterceptorChain) -> None:
    """Set ``chain`` so that its indexes and times continue after the last entry of the stored topic."""
    if find_node(reader.txn, name.path) is None:
        return
    topic = read_topic(reader.txn, name)
    chain.recover(topic.managed.properties, last_broker_entry(reader, topic))


def last_broker_entry(reader: EntryReader, topic: Topic) -> BrokerEntry | None:
    """Return the broker metadata of a topic's last entry; None if it has none or cannot be read."""
    last = topic.last_confirmed
    if last.entry_id < 0:
        return None
    try:
        return decode_message_entry(reader.read(last.ledger_id, last.entry_id).payload, f"entry {last}").broker
    except ENTRY_UNREADABLE:
        return None


# -- ledger list -------------------------------------------------------------------------------------------------------
# The list of a topic's ledgers as it is changed: what nobody here knows of ManagedLedgerInfo stays as it is.


def put_managed_ledger(txn: Txn, name: TopicName, managed: ManagedLedger, now_ms: int) -> Step:
    """Return the step that writes ``managed`` as the topic's ManagedLedgerInfo."""
    node = find_node(txn, name.path)
    value = encode_managed_ledger(managed, b"" if node is None else node.value)
    return put_value_step(txn, name.path, value, now_ms)


def append_ledgers(
    txn: Txn, name: TopicName, infos: Sequence[LedgerInfo], properties: Mapping[str, str], now_ms: int
) -> Step:
    """Return the step that appends one or more ledgers to the topic's list and adds ``properties``; raises Refused."""
    there = find_node(txn, name.path) is not None
    managed = closed_ledgers(read_topic(txn, name), now_ms) if there else ManagedLedger()
    if managed.ledgers and managed.ledgers[-1].ledger_id >= infos[0].ledger_id:
        raise Refused(
            f"{name} ends with ledger {managed.ledgers[-1].ledger_id}: ledger {infos[0].ledger_id} cannot come after it",
            hint="let the ledgers get new ids: omit --keep-ledger-ids",
        )
    more = {**managed.properties, **properties}
    return put_managed_ledger(txn, name, replace(managed, ledgers=(*managed.ledgers, *infos), properties=more), now_ms)


def closed_ledgers(topic: Topic, now_ms: int) -> ManagedLedger:
    """Return the topic's ledger list with its last ledger closed: a broker only determines the length of a list's last
    ledger."""
    if not topic.ledgers or not topic.ledgers[-1].is_open:
        return topic.managed
    last = topic.ledgers[-1]
    info = replace(last.info, entries=last.entries, size_bytes=last.size_bytes, timestamp_ms=now_ms)
    return replace(topic.managed, ledgers=(*topic.managed.ledgers[:-1], info))


# -- managed ledgers ---------------------------------------------------------------------------------------------------
# What ``pulsar-managed-ledger-admin`` (4.0.8) changes: the list of a topic's ledgers, and the mark-delete of a cursor.


def plan_forget_ledgers(txn: Txn, name: TopicName, ledger_ids: Collection[int], now_ms: int) -> Plan:
    """Plan removing ``ledger_ids`` from the topic's list; the ledgers and the cursors that mention them stay.

    Raises TopicNotFound, and LedgerNotFound for an id that is not listed.
    """
    topic = read_topic(txn, name)
    before = topic.ids
    for ledger_id in ledger_ids:
        if ledger_id not in before:
            listed = ", ".join(map(str, before)) or "none"
            raise LedgerNotFound(
                f"{name} has no ledger {ledger_id}", hint=f"its ledgers: {listed}", topic=str(name), ledgerId=ledger_id
            )
    managed = topic.managed
    left = tuple(ledger for ledger in managed.ledgers if ledger.ledger_id not in ledger_ids)
    step = put_managed_ledger(txn, name, replace(managed, ledgers=left), now_ms)
    after = [ledger.ledger_id for ledger in left]
    part = ChangePart(topic=str(name), before={"ledgers": list(before)}, after={"ledgers": after})
    kind = ChangeKind("managed-ledger delete-managed-ledger-ids", "delete managed ledger ids of {place}")
    return Plan(kind, txn.id, (step,), (part,))


def plan_mark_delete(
    reader: EntryReader, name: TopicName, cursor: str, position: Position, force: bool, now_ms: int
) -> Plan:
    """Plan a cursor's mark-delete at exactly ``position``; individually acknowledged entries stay acknowledged.

    Upstream's script writes ManagedCursorInfo, which a broker ignores while the position is in a cursor ledger; here
    the whole state moves into ManagedCursorInfo in that case. Raises SubscriptionNotFound, LedgerNotFound and
    EntryNotFound, and unless ``force`` Refused for one of the broker's own cursors.
    """
    topic, before = read_topic_cursor(reader, name, cursor)
    check_position(topic, position, "")
    ledger_id = before.info.cursors_ledger_id
    said = f"the position was in the cursor ledger {ledger_id}, where pulsar-managed-ledger-admin would have left it"
    move = CursorMove(
        topic,
        before,
        replace(before.state, mark_delete=position),
        warnings=(said,) if ledger_id >= 0 else (),
        force=force,
    )
    words = "update mark delete cursor of {subscription} of {place}"
    return plan_moves(reader, ChangeKind("managed-ledger update-mark-delete-cursor", words), [move], now_ms)
