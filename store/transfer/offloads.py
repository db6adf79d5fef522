"""``store add offload``: copies the entries of offloaded ledgers from tiered storage into the store.

They are written into entry logs of the store's own, where every command reads them like any others. Tiered storage
keeps no digests: the checks are that entries are consecutive, and that their number and bytes match the ledger's
metadata stored with them and the topic's list. The digests of the logs are computed here. A ledger that does not match
stops the whole command.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress

from msgspec import Struct, field
from msgspec.structs import replace

from pulsar_admin.store.codec.digest import DigestType
from pulsar_admin.store.codec.ledgermetadata import LedgerMetadata, decode_offloaded_metadata
from pulsar_admin.store.codec.managedledger import LedgerInfo, decode_managed_ledger
from pulsar_admin.store.codec.offload import decode_offload_index, iter_block_entries
from pulsar_admin.store.codec.sequencefile import METADATA_KEY, iter_map_file
from pulsar_admin.store.db.audit_log import append_change
from pulsar_admin.store.db.environment import Store, Txn
from pulsar_admin.store.db.files import next_file_id
from pulsar_admin.store.db.tree import iter_values
from pulsar_admin.store.errors import EntryLogCorrupt, NotFound, StoreError
from pulsar_admin.store.files import remove_file
from pulsar_admin.store.index.own_logs import LogWriter, index_own_file
from pulsar_admin.store.model.ledgers import find_times
from pulsar_admin.store.model.nodes import managed_node
from pulsar_admin.store.names import MANAGED_LEDGERS
from pulsar_admin.store.sources.objects import Objects, OffloadedLedger, find_offloaded
from pulsar_admin.store.wording import counted, one_line

Advance = Callable[[int], None]
_HINT = "copy the objects of this ledger again, or remove them from the directory"


class OffloadPlan(Struct, frozen=True):
    """The offloaded ledgers that the store lacks, and their objects at ``place``.

    ``absent``: ledgers without objects; ``here``: those that the store has completely.
    """

    place: str
    objects: Objects
    ledgers: tuple[tuple[LedgerInfo, OffloadedLedger], ...]
    absent: tuple[int, ...]
    here: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """Bytes of payload."""
        return sum(info.size_bytes for info, _ in self.ledgers)


class OffloadResult(Struct):
    """What ``store add offload`` read, or would read."""

    __repr__ = one_line

    store: str
    place: str
    ledgers: int
    entries: int
    bytes: int
    here: int
    absent: list[int] = field(default_factory=list)
    dry_run: bool = False


def plan_offload(store: Store, place: str, objects: Objects) -> OffloadPlan:
    """Return what adding the objects at a place would read; raises NotFound if the metadata names no offloaded ledger."""
    there = find_offloaded(objects)
    ledgers, absent, here = [], [], []
    with store.read() as txn:
        offloaded: list[LedgerInfo] = []
        for path, value in iter_values(txn, MANAGED_LEDGERS + "/"):
            with suppress(StoreError):  # `store check` names it
                node = managed_node(path, value)
                if node is not None and node.cursor is None:
                    offloaded += (info for info in decode_managed_ledger(value, path).ledgers if info.offloaded)
        for info in offloaded:
            held = there.get((info.ledger_id, info.offload_uuid or ""))
            if _is_whole(txn, info):
                here.append(info.ledger_id)
            elif held is None:
                absent.append(info.ledger_id)
            else:
                ledgers.append((info, held))
    if not (ledgers or absent or here):
        raise NotFound(
            f"no topic of {store.path} has an offloaded ledger", hint="see: pulsar-admin topics stats-internal TOPIC"
        )
    return OffloadPlan(place, objects, tuple(ledgers), tuple(absent), tuple(here))


def _is_whole(txn: Txn, info: LedgerInfo) -> bool:
    times = find_times(txn, info.ledger_id)
    return times is not None and times.sums.entries >= info.entries


def preview_offload(store: Store, plan: OffloadPlan) -> OffloadResult:
    """Return what a plan would read."""
    return _result(store, plan, dry_run=True)


def _result(store: Store, plan: OffloadPlan, *, dry_run: bool = False) -> OffloadResult:
    entries = sum(info.entries for info, _ in plan.ledgers)
    return OffloadResult(
        str(store.path), plan.place, len(plan.ledgers), entries, plan.bytes, len(plan.here), list(plan.absent), dry_run
    )


def add_offload(store: Store, plan: OffloadPlan, now_ms: int, advance: Advance = lambda count: None) -> OffloadResult:
    """Write the planned ledgers into a store (open for writing), all or none. Raises EntryLogCorrupt, DiskFull.

    Ledgers that another process added since the plan are not written again.
    """
    with store.read() as txn:
        first_log_id = next_file_id(txn)
        brought = tuple(info.ledger_id for info, _ in plan.ledgers if _is_whole(txn, info))
    missing = tuple((info, held) for info, held in plan.ledgers if info.ledger_id not in brought)
    plan = replace(plan, ledgers=missing, here=(*plan.here, *brought))
    result = _result(store, plan)
    if not plan.ledgers:
        return result
    kinds = {info.ledger_id: DigestType.CRC32C for info, _ in plan.ledgers}
    with LogWriter(store.path / "entries", first_log_id) as writer:
        for info, held in plan.ledgers:
            payloads = _iter_payloads(plan.objects, info, held)
            _, size_bytes = writer.write_ledger(info.ledger_id, kinds[info.ledger_id], payloads)
            advance(size_bytes)
        files = writer.finish()

    def index(txn: Txn) -> None:
        for path in files:
            index_own_file(store, txn, path, kinds)
        report = {
            "place": plan.place,
            "after": {"entries": result.entries},
            "ledgers": list(kinds),
        }
        append_change(txn, now_ms, "store add offload", (report,))

    try:
        store.write(index)
    except BaseException:
        for path in files:
            remove_file(path)
        raise
    return result


def _iter_payloads(objects: Objects, info: LedgerInfo, held: OffloadedLedger) -> Iterator[memoryview]:
    """Yield the payloads of entries 0, 1, 2 … of a ledger; at its end, raise EntryLogCorrupt unless they are all."""
    metadata, payloads = _open_ledger(objects, held)
    entries = size_bytes = 0
    for payload in payloads:
        entries += 1
        size_bytes += len(payload)
        yield payload
    expected = {(metadata.last_entry_id + 1, metadata.length), (info.entries, info.size_bytes)}
    if expected != {(entries, size_bytes)}:
        said = " and ".join(f"{counted(count, 'entry')} of {size:,} bytes" for count, size in sorted(expected))
        raise EntryLogCorrupt(
            f"{held.data_path}: expected {said}, found {counted(entries, 'entry')} of {size_bytes:,} bytes",
            hint=_HINT,
            where=held.data_path,
        )


def _open_ledger(objects: Objects, held: OffloadedLedger) -> tuple[LedgerMetadata, Iterator[memoryview]]:
    size_bytes = objects.size(held.data_path)
    if not held.index_path:
        pairs = iter_map_file(objects.read(held.data_path, 0, size_bytes), held.data_path)
        key, value = next(pairs, (0, b""))
        if key != METADATA_KEY:
            raise EntryLogCorrupt(
                f"{held.data_path}: the ledger's metadata is not its first record", hint=_HINT, where=held.data_path
            )
        return decode_offloaded_metadata(bytes(value), held.data_path), _in_order(pairs, held.data_path)
    index = decode_offload_index(objects.read(held.index_path, 0, objects.size(held.index_path)), held.index_path)
    if index.data_bytes != size_bytes:
        raise EntryLogCorrupt(
            f"{held.data_path}: expected {index.data_bytes:,} bytes by its index, found {size_bytes:,}",
            hint=_HINT,
            where=held.data_path,
        )

    def payloads() -> Iterator[memoryview]:
        for number, block in enumerate(index.blocks):
            start, end = index.extent(number)
            where = f"{held.data_path} @ {start:#x}"
            yield from iter_block_entries(objects.read(held.data_path, start, end - start), block.first_entry_id, where)

    return index.metadata, payloads()


def _in_order(pairs: Iterator[tuple[int, bytes | memoryview]], where: str) -> Iterator[memoryview]:
    for expected, (key, value) in enumerate(pairs):
        if key != expected:
            raise EntryLogCorrupt(f"{where}: expected entry {expected}, found {key}", hint=_HINT, where=where)
        yield memoryview(value)
