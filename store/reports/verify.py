"""Reading every entry of a ledger: digests, ids, and the running length that each entry carries.

The kernel checks a location block at a time; what it does not believe, the entry reader reads again and explains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from pulsar_admin.store.codec.claims import COMPACTED_COMPONENT, COMPONENT
from pulsar_admin.store.codec.compactedentry import decode_compacted_entry
from pulsar_admin.store.codec.message import decode_entry_times
from pulsar_admin.store.db.blocks import Block
from pulsar_admin.store.db.files import find_log
from pulsar_admin.store.errors import EntryCorrupt, EntryNotFound, InvalidValue, StoreError
from pulsar_admin.store.model.coverage import find_outside
from pulsar_admin.store.model.ledgers import iter_blocks, missing_ranges, read_past_damage
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.wording import Answer, one_line

if TYPE_CHECKING:
    from pulsar_admin.store.scan.length_chains import LedgerChains


class LedgerVerdict(Struct):
    """The result of reading a whole ledger. ``damaged``: (entry id, the reason); ``unverified``: no digest to check (DUMMY);
    ``unserved``: entries that files have and clients do not get."""

    __repr__ = one_line

    ledger_id: int
    entries: int = 0
    bytes: int = 0
    missing_entries: int = 0
    missing: tuple[tuple[int, int], ...] = ()
    unserved: int = 0
    damaged_entries: int = 0
    damaged: list[tuple[int, str]] = field(default_factory=list)
    unverified: int = 0
    metadata_problems: list[str] = field(default_factory=list)

    @property
    def problems(self) -> int:
        """How much is wrong."""
        return self.damaged_entries + self.missing_entries + self.unserved + len(self.metadata_problems)


class EntryRow(Answer, frozen=True):
    """One entry of a ledger as it was read. ``state``: "ok", "missing", or the error; unknown fields are None."""

    ledger_id: int
    entry_id: int
    state: str
    file: str | None = None
    offset: int | None = None
    size_bytes: int | None = None
    last_add_confirmed: int | None = None
    length: int | None = None
    digest_type: str | None = None
    publish_time_ms: int | None = None
    broker_time_ms: int | None = None
    messages: int | None = None


def iter_entry_rows(
    reader: EntryReader, ledger_id: int, first: int, last: int | None, fail: Callable[[StoreError], None]
) -> Iterator[EntryRow]:
    """Yield the entries ``first`` to ``last`` (default: to the end) of a ledger in order, those that no file holds included.

    Damaged metadata goes to ``fail``, and the entries in the files are yielded. Raises LedgerNotFound, EntryNotFound if ``first`` is after
    the last entry, and InvalidValue if it is after ``last``; a bad entry is a row.
    """
    _, ledger, damage = read_past_damage(reader.txn, ledger_id)
    if damage is not None:
        fail(damage)
    # -1 is the last entry id of an empty ledger, and of no other.
    if last is not None and first > last and (last > -1 or ledger.entries):
        raise InvalidValue(f"first={first} is after last={last}")
    if first > max(ledger.last_entry_id, 0):
        raise EntryNotFound(
            f"ledger {ledger_id} has no entry {first}: its last one is {ledger.last_entry_id}",
            ledger_id=ledger_id,
            entry_id=first,
        )
    is_compacted = ledger.metadata is not None and ledger.metadata.custom.get(COMPONENT) == COMPACTED_COMPONENT
    end = ledger.last_entry_id
    stop = end + 1 if last is None else min(end, last) + 1
    expected = first
    for block in iter_blocks(reader.txn, ledger_id, first):
        for index in range(block.index_of(first), len(block)):
            entry_id = block.entry_id(index)
            if last is not None and entry_id > last:
                break
            yield from (EntryRow(ledger_id, lost, "missing") for lost in range(expected, min(entry_id, stop)))
            yield _entry_row(reader, block, index, is_compacted)
            expected = entry_id + 1
    yield from (EntryRow(ledger_id, lost, "missing") for lost in range(expected, stop))


def _entry_row(reader: EntryReader, block: Block, index: int, is_compacted: bool) -> EntryRow:
    place = file_id, offset, size = block.place(index)
    log = find_log(reader.txn, file_id)
    row = EntryRow(block.ledger_id, block.entry_id(index), "ok", log.path if log else None, offset, size)
    try:
        entry = reader.read_at(block.ledger_id, row.entry_id, place)
    except StoreError as error:
        return replace(row, state=error.message)
    publish_ms: int | None
    try:
        payload: bytes | memoryview = entry.payload
        if is_compacted:
            payload = decode_compacted_entry(payload, "entry").headers_and_payload
        publish_ms, broker_ms = decode_entry_times(payload)
    except EntryCorrupt:
        publish_ms = broker_ms = None  # a cursor's, schema's … entry
    return replace(
        row,
        last_add_confirmed=entry.last_add_confirmed,
        length=entry.length,
        digest_type=entry.digest_type.name,
        publish_time_ms=publish_ms,
        broker_time_ms=broker_ms,
        messages=block.messages(index),
    )


def verify_ledger(reader: EntryReader, ledger_id: int, chains: LedgerChains | None = None) -> LedgerVerdict:
    """Read and check every entry of a ledger; raises LedgerNotFound, MetadataCorrupt for damaged metadata of a ledger without entries.

    ``chains`` reads the entries of several ledgers.
    """
    from pulsar_admin.store.scan.length_chains import LedgerChains, LengthChain

    txn, ledger, damage = read_past_damage(reader.txn, ledger_id)
    chain = LengthChain(last=(-1, 0))  # the first entry carries its own payload
    chain.join((chains or LedgerChains(reader, [ledger_id])).chain(ledger_id))
    verdict = LedgerVerdict(ledger_id, chain.entries, chain.bytes)
    verdict.missing = missing_ranges(reader.txn, ledger) if ledger.metadata else ()
    verdict.missing_entries = sum(last - first + 1 for first, last in verdict.missing)
    verdict.metadata_problems += [] if damage is None else [damage.message]
    outside = find_outside(txn, ledger)
    verdict.unserved = outside.entries if outside else 0
    verdict.damaged_entries, verdict.damaged = chain.damaged_entries, chain.damaged
    verdict.unverified = chain.unverified
    last_id, last_length = chain.last or (-1, 0)
    metadata = ledger.metadata
    is_closed = metadata is not None and metadata.state.name == "CLOSED"
    if metadata is not None and is_closed and 0 <= last_id == metadata.last_entry_id and last_length != metadata.length:
        text = f"the metadata says {metadata.length} payload bytes, the last entry {last_length}"
        verdict.metadata_problems.append(text)
    return verdict
