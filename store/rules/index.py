"""Rules about the rows that ``store index --rebuild`` derives anew: places, times, copies and owners."""

from collections.abc import Iterator
from contextlib import suppress
from itertools import accumulate, pairwise
from operator import add

from pulsar_admin.store.db import blocks
from pulsar_admin.store.db.copies import check_copies_row, has_copies
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.files import LogFile, iter_logs
from pulsar_admin.store.errors import IndexCorrupt, StoreError
from pulsar_admin.store.facts.cluster import ClusterFacts
from pulsar_admin.store.facts.file_sums import IndexPass
from pulsar_admin.store.model.references import find_references, iter_wrong_owners
from pulsar_admin.store.rules.finding import Finding
from pulsar_admin.store.rules.rule import Sweep
from pulsar_admin.store.rules.words import of_index
from pulsar_admin.store.wording import listed

_INDEX = Sweep[ClusterFacts]("the index")
_OWNERS = Sweep[ClusterFacts]("the owners of ledgers")
_COPIES = Sweep[ClusterFacts]("the rows of copies")
INDEX_SWEEPS = _INDEX, _OWNERS, _COPIES

BLOCK_DAMAGED = of_index(
    _INDEX,
    "block-damaged",
    "A block of the location index is damaged",
    "The places of the entries of that block are unknown.",
)
BLOCK_INCONSISTENT = of_index(
    _INDEX,
    "block-inconsistent",
    "A block of the location index contradicts itself",
    "Its counts, its order or its places cannot all be right.",
)
TIMES_MISSING = of_index(
    _INDEX,
    "times-missing",
    "A ledger has entries but no row of times",
    "Queries by time skip the ledger.",
)
TIMES_DAMAGED = of_index(
    _INDEX,
    "times-damaged",
    "A row of times is damaged",
    "Queries by time cannot use it.",
)
TIMES_DIFFER = of_index(
    _INDEX,
    "times-differ",
    "A row of times does not match its ledger's blocks",
    "Counts and queries by time may be wrong for that ledger.",
)
TIMES_SURPLUS = of_index(
    _INDEX,
    "times-surplus",
    "A row of times has no entries",
    "The ledger is shown with entries that do not exist.",
)
COPIES_ROW_DAMAGED = of_index(
    _COPIES,
    "copies-row-damaged",
    "A row of copies is damaged",
    "The number of copies of some entries is unknown.",
)
COPIES_WITHOUT_FILE = of_index(
    _COPIES,
    "copies-without-file",
    "Copies in a file that is not catalogued",
    "The number of copies of some entries may be wrong.",
)
OWNERS_DIFFER = of_index(
    _OWNERS,
    "owners-differ",
    "The owners of a ledger do not match the metadata",
    "Lists of orphans and lost ledgers may be wrong.",
)
OWNERS_DAMAGED = of_index(
    _OWNERS,
    "owners-damaged",
    "The owners of ledgers cannot be read",
    "It is not known to which topic or cursor a ledger belongs.",
)


@_INDEX.by
def _check_index(facts: ClusterFacts) -> Iterator[Finding]:
    """Check every location block in itself, and every time row against its ledger's blocks."""
    txn = facts.reader.txn
    files: dict[int, LogFile] = {}
    with suppress(IndexCorrupt):  # the sweep over the catalogue tells
        files = {log.file_id: log for log in iter_logs(txn)}
    index = IndexPass(txn, {file_id: log.size_bytes for file_id, log in files.items()})
    ledger: _LedgerCheck | None = None
    checked = 0
    for key, block in index.iter_blocks():
        if ledger is not None and key[:8] != blocks.ledger_key(ledger.ledger_id):
            yield from ledger.finish(txn)
            checked += ledger.has_times
            ledger = None
        if isinstance(block, IndexCorrupt):
            yield BLOCK_DAMAGED.at(f"entries {key.hex()}", block.message)
            continue
        number = blocks.block_of_key(key)[1]
        ledger = ledger or _LedgerCheck(block.ledger_id)
        ledger.add(number, block)
        yield from _check_block(number, block, files)
    if ledger is not None:
        yield from ledger.finish(txn)
        checked += ledger.has_times
    if checked + index.usual != txn.count("times"):
        yield from _check_times_without_blocks(txn)


def _check_block(number: int, block: blocks.Block, files: dict[int, LogFile]) -> Iterator[Finding]:
    where = f"location block {number} of ledger {block.ledger_id}"
    header, slots, counts = block.header, block.slots(), block.message_counts()
    is_ascending = isinstance(slots, range) or all(before < after for before, after in pairwise(slots))
    if not is_ascending or slots[0] != header.first_slot:
        yield BLOCK_INCONSISTENT.at(where, "its entries are not in ascending order")
    messages = len(block) if isinstance(counts, int) else sum(counts)
    head_bytes = 32 + header.digest_bytes
    sizes = block.sizes().tolist()  # a list is read several times as fast
    if min(sizes) >= head_bytes:
        payload_bytes = sum(sizes) - head_bytes * len(sizes)
    else:
        payload_bytes = sum(size - head_bytes for size in sizes if size > head_bytes)
    if (messages, payload_bytes) != (header.messages, header.payload_bytes):
        yield BLOCK_INCONSISTENT.at(
            where,
            f"expected {messages} messages of {payload_bytes} bytes, found {header.messages} of {header.payload_bytes}",
        )
    column, offsets = block.files(), block.offsets().tolist()
    most = max(offsets) + max(sizes)  # no entry ends later
    for file_id in {column} if isinstance(column, int) else sorted(set(column)):
        log = files.get(file_id)
        if log is not None and most + 4 <= log.size_bytes:
            continue
        ends = map(add, offsets, sizes)
        end = max(
            ends if isinstance(column, int) else (at for at, own in zip(ends, column, strict=True) if own == file_id)
        )
        if log is None:
            yield BLOCK_INCONSISTENT.at(where, f"it points to file {file_id}, which is not catalogued")
        elif end + 4 > log.size_bytes:
            yield BLOCK_INCONSISTENT.at(
                where,
                f"it points to {end + 4:#x} in file {file_id}, which has {log.size_bytes} bytes",
            )


class _LedgerCheck:
    """The sums of one ledger, computed from its blocks to compare with its time row."""

    def __init__(self, ledger_id: int) -> None:
        self.ledger_id = ledger_id
        self.has_times = False
        """Whether it has a time row."""
        self._headers: dict[int, blocks.BlockHeader] = {}
        self._first = -1
        self._last = -1

    def add(self, number: int, block: blocks.Block) -> None:
        if not self._headers:
            self._first = block.entry_id(0)
        self._last = block.entry_id(len(block) - 1)
        self._headers[number] = block.header

    def finish(self, txn: Txn) -> Iterator[Finding]:
        """Yield the findings of the ledger's time row."""
        where = f"time row of ledger {self.ledger_id}"
        row = txn.view("times", blocks.ledger_key(self.ledger_id))
        if row is None:
            yield TIMES_MISSING.at(where, "the ledger has entries and no time row")
            return
        self.has_times = True
        try:
            times = blocks.decode_times(self.ledger_id, row)
        except IndexCorrupt as error:
            yield TIMES_DAMAGED.at(where, error.message)
            return
        expected = self._sums(times.sums.max_lac)
        if expected == times.sums and self._columns_match(times):
            return
        wrong = [name for name in blocks.LedgerSums._fields if getattr(expected, name) != getattr(times.sums, name)]
        if wrong:
            actual = ", ".join(f"{name} {getattr(times.sums, name)}" for name in wrong)
            wanted = ", ".join(f"{name} {getattr(expected, name)}" for name in wrong)
            yield TIMES_DIFFER.at(where, f"expected {wanted}, found {actual}")
        else:
            yield TIMES_DIFFER.at(where, "its running minima and maxima are not those of the blocks")

    def _sums(self, max_lac: int) -> blocks.LedgerSums:
        """Return the sums of the blocks, not by the indexer's own code, whose rows are checked here."""
        headers = list(self._headers.values())
        return blocks.LedgerSums(
            first_block=min(self._headers),
            entries=sum(h.entries for h in headers),
            first_entry=self._first,
            last_entry=self._last,
            messages=sum(h.messages for h in headers),
            payload_bytes=sum(h.payload_bytes for h in headers),
            publish_min_ms=min(h.publish_min_ms for h in headers),
            publish_max_ms=max(h.publish_max_ms for h in headers),
            broker_min_ms=min(h.broker_min_ms for h in headers),
            broker_max_ms=max(h.broker_max_ms for h in headers),
            broker_count=sum(h.broker_count for h in headers),
            unframed=sum(h.unframed for h in headers),
            max_lac=max_lac,
        )

    def _columns_match(self, times: blocks.LedgerTimes) -> bool:
        first, last = min(self._headers), self._last >> blocks.BLOCK_BITS
        headers = [self._headers.get(number) for number in range(first, last + 1)]
        nothing = blocks.NO_MIN, blocks.NO_MAX  # of a block that is not there
        publish = [nothing if one is None else (one.publish_min_ms, one.publish_max_ms) for one in headers]
        auto = [nothing if one is None else (one.auto_min_ms, one.auto_max_ms) for one in headers]
        return times.blocks == last - first + 1 and all(
            list(maxima) == list(accumulate((largest for _, largest in bounds), max))
            and list(minima) == list(accumulate((smallest for smallest, _ in reversed(bounds)), min))[::-1]
            for bounds, maxima, minima in (
                (publish, times.publish_max, times.publish_min),
                (auto if times.sums.broker_count else publish, times.auto_max, times.auto_min),
            )
        )


def _check_times_without_blocks(txn: Txn) -> Iterator[Finding]:
    for key, _ in txn.items("times"):
        try:
            ledger_id = blocks.ledger_of_key(key)
        except IndexCorrupt as error:
            yield TIMES_DAMAGED.at(f"times {key.hex()}", error.message)
            continue
        if next(txn.items("entries", key), None) is None:
            yield TIMES_SURPLUS.at(f"time row of ledger {ledger_id}", "the ledger has no entries")


@_OWNERS.by
def _check_owners(facts: ClusterFacts) -> Iterator[Finding]:
    """Check the owners against the references in the tree."""
    txn = facts.reader.txn
    try:
        references = find_references(facts.store, txn)
    except StoreError as error:  # of a metadata node, which no rebuild reads again
        yield OWNERS_DAMAGED.of(error, "owners", "pulsar-admin store refresh")
        return
    try:
        for ledger_id, wanted, stored in list(iter_wrong_owners(txn, references)):
            # The references of an altered node are unknown, and no rebuild reads it again.
            is_altered = any(altered.database == "tree" for altered in facts.altered_rows)
            yield OWNERS_DIFFER.at(
                f"ledger {ledger_id}",
                f"expected owners: {listed(sorted(map(str, wanted)), 5) or 'none'}; found: {listed(sorted(map(str, stored)), 5) or 'none'}",
                "",
                "pulsar-admin store refresh" if is_altered else None,
                ledgerId=ledger_id,
            )
    except StoreError as error:
        yield OWNERS_DAMAGED.of(error, "owners")


@_COPIES.by
def _check_copies(facts: ClusterFacts) -> Iterator[Finding]:
    """Check the rows of copies against the catalogue."""
    txn = facts.reader.txn
    if not has_copies(txn):
        return
    try:
        known = {log.file_id for log in iter_logs(txn)}
    except IndexCorrupt:
        return  # the sweep over the catalogue tells
    for key, value in txn.items("copies"):
        try:
            file_id = check_copies_row(key, value)
        except IndexCorrupt as error:
            yield COPIES_ROW_DAMAGED.at(f"copies {key.hex()}", error.message)
            continue
        if file_id not in known:
            yield COPIES_WITHOUT_FILE.at(f"copies of file {file_id}", "no such file is catalogued")
