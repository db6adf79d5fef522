"""Read model of ledgers: metadata, where their entries are, and where they end."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain, compress, islice
from operator import gt, not_
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from pulsar_admin.store.codec import ledgermetadata
from pulsar_admin.store.db import blocks
from pulsar_admin.store.db.environment import Txn, once
from pulsar_admin.store.db.files import Damage, iter_damage
from pulsar_admin.store.db.tree import find_node, path_of_key, plain_value, tree_key
from pulsar_admin.store.errors import IndexCorrupt, LedgerNotFound, MetadataCorrupt, StoreError, Unsupported
from pulsar_admin.store.names import INT_MAX, parse_owner
from pulsar_admin.store.wording import counted, plural

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Numbers = npt.NDArray[np.int64]

_Found = TypeVar("_Found")
_KEPT_LEDGERS = 256
_KEPT_BLOCKS = 1024
"""Blocks of usual ledgers have some hundred bytes, and the largest ten thousand."""
NOT_STAMPED = blocks.NO_MAX
_USUAL_KEY = (
    rb"/ledgers/([0-9]{2})/([0-9]{4})/L([0-9]{4})"  # compiled where it is first used: a cold question needs none
)


class Ledger(Struct, frozen=True):
    """One ledger: its metadata (None: deleted, or never listed), what the index holds, and where it ends.

    ``last_entry_id`` is the metadata's for a closed ledger, else what a client's recovery would find (−1: empty).
    """

    ledger_id: int
    metadata: ledgermetadata.LedgerMetadata | None
    sums: blocks.LedgerSums | None
    last_entry_id: int
    size_bytes: int  # payload bytes: metadata's length when CLOSED, else counted

    @property
    def entries(self) -> int:
        """Entries the ledger has by its end, whether or not their bytes are here."""
        return self.last_entry_id + 1


class WholeLedger(Struct, frozen=True):
    """How many entries and payload bytes a ledger has of which its one bookie has every entry, and whether it is closed.

    ``publish_min_ms``, ``publish_max_ms``: as of ``LedgerSums``. ``off_ms``: how far publish times are after, or before, those of the
    broker at most; None where entries lack the broker's.
    """

    entries: int
    size_bytes: int
    is_closed: bool
    publish_min_ms: int = blocks.NO_MIN
    publish_max_ms: int = blocks.NO_MAX
    off_ms: int | None = None


class WholeLedgers:
    """The ledgers that a check of all found to be whole: their metadata can be read, names one bookie, and that serves every entry up to
    their end. In 49 bytes each, as there may be millions; kept in the memo of a transaction."""

    def __init__(self) -> None:
        self._ids, self._entries, self._sizes, self._closed = array("q"), array("q"), array("q"), array("b")
        self._publish_min, self._publish_max, self._off = array("q"), array("q"), array("q")

    def add(self, ledger_id: int, found: WholeLedger) -> None:
        """Add a ledger; it is ignored unless its id is larger than all ids added before."""
        if not self._ids or self._ids[-1] < ledger_id:
            self._ids.append(ledger_id)
            self._entries.append(found.entries)
            self._sizes.append(found.size_bytes)
            self._closed.append(found.is_closed)
            self._publish_min.append(found.publish_min_ms)
            self._publish_max.append(found.publish_max_ms)
            self._off.append(NOT_STAMPED if found.off_ms is None else found.off_ms)

    def extend(self, ids: Numbers, columns: Numbers) -> None:
        """Add ledgers with larger ids, ascending. ``columns``: per field of ``WholeLedger``, the values of all ledgers."""
        mine = self._entries, self._sizes, self._closed, self._publish_min, self._publish_max, self._off
        for column, more in zip((self._ids, *mine), (ids, *columns), strict=True):
            column.frombytes(more.astype(column.typecode).tobytes())

    def iter_ids(self) -> Iterator[int]:
        """Yield the ids, ascending."""
        return iter(self._ids)

    def iter_open(self) -> Iterator[int]:
        """Yield the ids of those that are not closed."""
        return compress(self._ids, map(not_, self._closed))

    def find(self, ledger_id: int) -> WholeLedger | None:
        """Return the ledger, None where it is not known to be whole."""
        place = bisect_left(self._ids, ledger_id)
        if place == len(self._ids) or self._ids[place] != ledger_id:
            return None
        off_ms = self._off[place]
        return WholeLedger(
            self._entries[place],
            self._sizes[place],
            bool(self._closed[place]),
            self._publish_min[place],
            self._publish_max[place],
            None if off_ms == NOT_STAMPED else off_ms,
        )


class LoneLedgers:
    """The metadata of the ledgers whose only bookie is ``bookie``, in the order of their nodes; kept in the memo of a transaction.

    In 25 bytes each, as there may be millions.
    """

    def __init__(self, bookie: str) -> None:
        self.bookie = bookie
        self.ids, self._last_entry_ids, self._lengths, self._closed = array("q"), array("q"), array("q"), array("b")

    @property
    def columns(self) -> tuple[array[int], ...]:
        """The ids, last entries, lengths, and which are closed."""
        return self.ids, self._last_entry_ids, self._lengths, self._closed

    def __len__(self) -> int:
        return len(self.ids)

    def part(self, start: int, end: int) -> LoneLedgers:
        """Return the ledgers from index ``start`` to ``end`` (excluded)."""
        some = LoneLedgers(self.bookie)
        some.ids, some._last_entry_ids, some._lengths, some._closed = (column[start:end] for column in self.columns)
        return some

    def add(self, ledger_id: int, found: ledgermetadata.LoneLedger) -> None:
        """Add a ledger; one of another bookie is left out."""
        if found.bookie == self.bookie:
            self.ids.append(ledger_id)
            self._last_entry_ids.append(found.last_entry_id)
            self._lengths.append(found.length)
            self._closed.append(found.is_closed)

    def extend(self, later: LoneLedgers) -> None:
        """Add the ledgers of ``later``, of the same bookie, whose nodes come after these."""
        for column, more in zip(self.columns, later.columns, strict=True):
            column.extend(more)

    def __iter__(self) -> Iterator[tuple[int, ledgermetadata.LoneLedger]]:
        columns = zip(self.ids, self._closed, self._last_entry_ids, self._lengths, strict=True)
        return (
            (ledger_id, ledgermetadata.LoneLedger(bool(closed), last, length, self.bookie))
            for ledger_id, closed, last, length in columns
        )


def find_whole(txn: Txn, ledger_id: int) -> WholeLedger | None:
    """Return a ledger that is known to be complete; None for others, and before ``read_shortfalls`` looked at all ledgers."""
    kept: WholeLedgers | None = txn.memo.get(WholeLedgers)
    return None if kept is None else kept.find(ledger_id)


def _kept(txn: Txn, find: Callable[[Txn, int], _Found], ledger_id: int) -> _Found:
    """Return ``find(txn, ledger_id)``; a snapshot caches the results for some ledgers, because one query needs them in many places."""
    if not txn.is_snapshot:
        return find(txn, ledger_id)
    kept: dict[int, _Found] = txn.memo.setdefault(find, {})
    if ledger_id not in kept:
        if len(kept) >= _KEPT_LEDGERS:
            kept.clear()
        kept[ledger_id] = find(txn, ledger_id)
    return kept[ledger_id]


def find_metadata(txn: Txn, ledger_id: int) -> ledgermetadata.LedgerMetadata | None:
    """Return the ledger's metadata, or None; raises MetadataCorrupt."""
    return _kept(txn, _find_metadata, ledger_id)


def _find_metadata(txn: Txn, ledger_id: int) -> ledgermetadata.LedgerMetadata | None:
    path = ledgermetadata.ledger_path(ledger_id)
    node = find_node(txn, path)
    try:
        return None if node is None else ledgermetadata.decode_ledger_metadata(node.value, path)
    except MetadataCorrupt as error:
        hint = f"see what can be done: pulsar-admin ledgers missing {ledger_id}"
        raise MetadataCorrupt(error.message, hint=hint, **error.context) from error


def is_damaged(txn: Txn, ledger_id: int) -> bool:
    """Whether the ledger's metadata exists and is damaged; metadata of a later version, or in a damaged row of the store, may be whole."""
    try:
        find_metadata(txn, ledger_id)
    except (Unsupported, IndexCorrupt):
        return False
    except MetadataCorrupt:
        return True
    return False


def has_node(txn: Txn, ledger_id: int) -> bool:
    """Whether the metadata lists the ledger, even if its node cannot be decoded."""
    return txn.view("tree", tree_key(ledgermetadata.ledger_path(ledger_id))) is not None


def find_times(txn: Txn, ledger_id: int) -> blocks.LedgerTimes | None:
    """Return the ledger's time row (views into the map: valid while ``txn`` is open), or None when no entry is indexed."""
    return _kept(txn, _find_times, ledger_id)


def _find_times(txn: Txn, ledger_id: int) -> blocks.LedgerTimes | None:
    row = txn.view("times", blocks.ledger_key(ledger_id))
    return None if row is None else blocks.decode_times(ledger_id, row)


def find_sums(txn: Txn, ledger_id: int) -> blocks.LedgerSums | None:
    """Return the sums of the ledger's time row, or None when no entry is indexed, as ``find_times`` in half its time."""
    return _kept(txn, _find_sums, ledger_id)


def _find_sums(txn: Txn, ledger_id: int) -> blocks.LedgerSums | None:
    row = txn.view("times", blocks.ledger_key(ledger_id))
    return None if row is None else blocks.decode_sums(ledger_id, row)


def read_ledger(txn: Txn, ledger_id: int) -> Ledger:
    """Return the ledger; raises LedgerNotFound when neither metadata nor entries know it."""
    ledger = find_ledger(txn, ledger_id)
    if ledger is None:
        damaged = _count_damaged(txn)[ledger_id]
        raise LedgerNotFound(
            f"ledger {ledger_id} is not in the metadata, and no entry is good: {counted(damaged, 'record')} of it"
            f" {plural(damaged, 'has', 'have')} a wrong digest"
            if damaged
            else f"ledger {ledger_id} is neither in the metadata nor in any entry log",
            ledgerId=ledger_id,
            hint=_hint_where(txn, ledger_id),
        )
    return ledger


def read_past_damage(txn: Txn, ledger_id: int) -> tuple[Txn, Ledger, MetadataCorrupt | None]:
    """Return (transaction, ledger, error). If the ledger's metadata is damaged, the ledger is derived from its entries: the transaction is
    a view without that metadata, and ``error`` says what is damaged.

    Raises LedgerNotFound, and MetadataCorrupt for a ledger without entries.
    """
    try:
        return txn, read_ledger(txn, ledger_id), None
    except MetadataCorrupt as error:
        if find_sums(txn, ledger_id) is None:
            raise
        without = txn.with_rows("tree", {tree_key(ledgermetadata.ledger_path(ledger_id)): None})
        return without, read_ledger(without, ledger_id), error


def find_ledger(txn: Txn, ledger_id: int) -> Ledger | None:
    """Return the ledger, or None when neither metadata nor entries know it; raises MetadataCorrupt and IndexCorrupt."""
    return _kept(txn, _find_ledger, ledger_id)


def _find_ledger(txn: Txn, ledger_id: int) -> Ledger | None:
    metadata = find_metadata(txn, ledger_id)
    sums = find_sums(txn, ledger_id)
    if metadata is None and sums is None:
        return None
    if metadata is not None and metadata.state is ledgermetadata.LedgerState.CLOSED:
        return Ledger(ledger_id, metadata, sums, metadata.last_entry_id, metadata.length)
    first_of_last = metadata.segments[-1].first_entry_id if metadata else 0
    return Ledger(
        ledger_id, metadata, sums, _find_end(txn, ledger_id, sums, first_of_last), sums.payload_bytes if sums else 0
    )


def find_end(txn: Txn, ledger_id: int) -> tuple[int, int] | None:
    """Return (entries, payload bytes) of a ledger as ``read_ledger`` does, in a third of the time; None if ``read_ledger`` is needed."""
    row = txn.view("tree", tree_key(ledgermetadata.ledger_path(ledger_id)))
    lone = None if row is None else ledgermetadata.find_lone_ledger(plain_value(row))
    if lone is None:
        return None
    if lone.is_closed:
        return lone.last_entry_id + 1, lone.length
    sums = find_sums(txn, ledger_id)
    if sums is None:
        return 0, 0
    end = _dense_end(sums, max(-1, sums.max_lac))
    return None if end is None else (end + 1, sums.payload_bytes)


def _hint_where(txn: Txn, ledger_id: int) -> str:
    """Return what to do about a ledger without any imported entry."""
    if is_in_tiered_storage(txn, ledger_id):
        return "it is in tiered storage; import it: pulsar-admin store add offload DIR|URL"
    return "list ledgers with: pulsar-admin ledgers list"


@once
def _count_damaged(txn: Txn) -> Counter[int]:
    """Return ledger → its damaged records; read once, as thousands of lost ledgers may be asked for."""
    return Counter(damage.ledger_id for damage in iter_damage(txn))


def is_in_tiered_storage(txn: Txn, ledger_id: int) -> bool:
    """Whether the topic that lists a ledger marks it as offloaded: its entries are in tiered storage, whatever bookies have."""
    from pulsar_admin.store.db.owners import OwnerKind, find_owners

    owners = find_owners(txn, ledger_id)
    return any(ledger_id in _offloaded_of(txn, one.topic) for one in owners if one.kind is OwnerKind.TOPIC)


def _offloaded_of(txn: Txn, topic: str) -> frozenset[int]:
    """Return the ledgers that a topic marks as offloaded; a snapshot caches the last topic's, as all of its ledgers may be asked for."""
    from pulsar_admin.store.codec.managedledger import decode_managed_ledger

    kept: dict[str, frozenset[int]] = txn.memo.setdefault(_offloaded_of, {}) if txn.is_snapshot else {}
    if topic not in kept:
        kept.clear()
        kept[topic] = frozenset()
        with suppress(StoreError):  # a list that cannot be read says nothing, nor does a name of no topic
            node = find_node(txn, parse_owner(topic).path)
            infos = () if node is None else decode_managed_ledger(node.value, node.path).ledgers
            kept[topic] = frozenset(info.ledger_id for info in infos if info.offloaded)
    return kept[topic]


def _find_end(txn: Txn, ledger_id: int, sums: blocks.LedgerSums | None, first_of_last_segment: int) -> int:
    """Return where a ledger that was never closed ends: as far as entries follow the largest last-add-confirmed (bookkeeper §7.3)."""
    end = max(first_of_last_segment - 1, sums.max_lac if sums else -1)
    if sums is None:
        return end
    dense_end = _dense_end(sums, end)
    if dense_end is not None:
        return dense_end
    for entry_id in iter_entry_ids(txn, ledger_id, end + 1):
        if entry_id != end + 1:
            break
        end = entry_id
    return end


def _dense_end(sums: blocks.LedgerSums, end: int) -> int | None:
    """Return the last entry that follows ``end`` without a gap, if none is missing at all; None if blocks must be read to find it."""
    is_dense = sums.entries == sums.last_entry - sums.first_entry + 1 and sums.first_entry <= end + 1
    return max(end, sums.last_entry) if is_dense else None


def iter_blocks(txn: Txn, ledger_id: int, first_entry: int = 0) -> Iterator[blocks.Block]:
    """Yield the location blocks of a ledger from the one of ``first_entry`` on (views: use them while ``txn`` is open)."""
    prefix = blocks.ledger_key(ledger_id)
    for key, value in txn.items(
        "entries", prefix, blocks.block_key(ledger_id, max(first_entry, 0) >> blocks.BLOCK_BITS)
    ):
        yield blocks.Block(key, value)


def iter_blocks_of(txn: Txn, ledger_id: int, first_entry: int, last_entry: int) -> Iterable[blocks.Block]:
    """Return the location blocks of entries ``first_entry`` to ``last_entry``; a snapshot caches some that are read part by part."""
    number = max(first_entry, 0) >> blocks.BLOCK_BITS
    if not txn.is_snapshot or last_entry >> blocks.BLOCK_BITS != number:
        return iter_blocks(txn, ledger_id, first_entry)
    kept: dict[tuple[int, int], tuple[blocks.Block, ...]] = txn.memo.setdefault(iter_blocks_of, {})
    place = ledger_id, number
    if place not in kept:
        if len(kept) >= _KEPT_BLOCKS:
            kept.clear()
        block = find_block(txn, ledger_id, number << blocks.BLOCK_BITS)
        kept[place] = () if block is None else (block,)
    return kept[place]


def iter_entry_ids(txn: Txn, ledger_id: int, first_entry: int = 0) -> Iterator[int]:
    """Yield the ids of the indexed entries from ``first_entry`` on."""
    for block in iter_blocks(txn, ledger_id, first_entry):
        for index in range(block.index_of(first_entry), len(block)):
            yield block.entry_id(index)


def missing_ranges(txn: Txn, ledger: Ledger) -> tuple[tuple[int, int], ...]:
    """Return the entry ids up to the ledger's end that no file holds, as ranges with both ends included."""
    sums = ledger.sums
    if sums is not None and (sums.entries, sums.first_entry, sums.last_entry) == (
        ledger.entries,
        0,
        ledger.last_entry_id,
    ):
        return ()
    return tuple(iter_gaps(txn, ledger.ledger_id, ledger.last_entry_id))


def count_missing(txn: Txn, ledger: Ledger) -> int:
    """Return how many entries up to the ledger's end no file holds; one without metadata has no known end, so 0.

    Entries after the end, which a writer's recovery left out, do not make up for missing ones before it.
    """
    return sum(last - first + 1 for first, last in missing_ranges(txn, ledger)) if ledger.metadata else 0


def iter_gaps(txn: Txn, ledger_id: int, last_entry_id: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of entry ids up to ``last_entry_id``, both ends included, that no file holds."""
    return gaps_between(chain.from_iterable(map(_runs_of, iter_blocks(txn, ledger_id))), last_entry_id)


def _runs_of(block: blocks.Block) -> Iterable[tuple[int, int]]:
    if isinstance(block.slots(), range):  # none is missing
        return ((block.entry_id(0), block.entry_id(len(block) - 1)),)
    return ((entry_id, entry_id) for entry_id in map(block.entry_id, range(len(block))))


def gaps_between(runs: Iterable[tuple[int, int]], last_entry_id: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of entry ids up to ``last_entry_id`` that are in none of ``runs``, which ascend; all with both ends included."""
    expected = 0
    for first, last in runs:
        if first > last_entry_id:
            break
        if first > expected:
            yield expected, first - 1
        expected = last + 1
    if expected <= last_entry_id:
        yield expected, last_entry_id


def find_block(txn: Txn, ledger_id: int, entry_id: int) -> blocks.Block | None:
    """Return the location block that would hold ``entry_id``, or None."""
    key = blocks.block_key(ledger_id, entry_id >> blocks.BLOCK_BITS)
    value = txn.view("entries", key)
    return None if value is None else blocks.Block(key, value)


def find_place(txn: Txn, ledger_id: int, entry_id: int) -> tuple[int, int, int] | None:
    """Return (file id, offset, size) of an entry's record, or None."""
    if entry_id < 0:
        return None
    block = find_block(txn, ledger_id, entry_id)
    if block is None:
        return None
    index = block.index_of(entry_id)
    return block.place(index) if index < len(block) and block.entry_id(index) == entry_id else None


def find_damage(txn: Txn, ledger_id: int, entry_id: int) -> Damage | None:
    """Return the damaged record that claims to be this entry, or None."""
    for damage in iter_damage(txn):
        if (damage.ledger_id, damage.entry_id) == (ledger_id, entry_id):
            return damage
    return None


def iter_ledger_ids(txn: Txn) -> Iterator[int]:
    """Yield the ids of every ledger that the metadata lists, in path order (which is id order below 2³¹)."""
    kept: array[int] | None = txn.memo.get(iter_ledger_ids)
    if kept is not None:
        yield from kept
        return
    ids, altered = array("q"), list[bytes]()
    with txn.noting_altered(altered):
        for key in txn.keys("tree", b"/ledgers/"):
            ledger_id = find_ledger_of_key(txn, key)
            if ledger_id is not None:
                ids.append(ledger_id)
                yield ledger_id
    if txn.is_snapshot and not altered:  # many passes ask for them
        txn.memo[iter_ledger_ids] = ids


def find_ledger_of_key(txn: Txn, key: bytes) -> int | None:
    """Return the id of the ledger whose node has the ``key`` in the tree, None if it is another node's; raises IndexCorrupt."""
    usual = re.fullmatch(_USUAL_KEY, key)
    if usual is not None:
        return int(b"".join(usual.groups()))
    return ledgermetadata.ledger_id_of_path(path_of_key(txn, key))


def iter_ledger_values(txn: Txn) -> Iterator[tuple[int, bytes]]:
    """Yield (ledger id, node value) as ``iter_ledger_ids``; the value is empty for unusual keys: look the node up then."""
    for key, row in txn.items("tree", b"/ledgers/"):
        usual = re.fullmatch(_USUAL_KEY, key)
        if usual is not None and (ledger_id := int(b"".join(usual.groups()))) < INT_MAX:
            yield ledger_id, plain_value(row)
        else:
            other = ledgermetadata.ledger_id_of_path(path_of_key(txn, key))
            if other is not None:
                yield other, b""


def iter_indexed_ids(txn: Txn) -> Iterator[int]:
    """Yield the ids of the ledgers that any file has entries of, ascending."""
    return map(blocks.ledger_of_key, txn.keys("times", b""))


def merge_ids(*each: Iterable[int]) -> Iterator[int]:
    """Yield every ledger id of ``each``, which ascend, once, ascending."""
    from heapq import merge  # no question about one topic needs it

    last = None
    for ledger_id in merge(*each):
        if ledger_id != last:
            yield ledger_id
        last = ledger_id


def sorted_ledger_ids(txn: Txn) -> array[int]:
    """Return the ids of every ledger that the metadata lists, ascending; not to be changed, as a snapshot keeps them."""
    kept: array[int] | None = txn.memo.get(sorted_ledger_ids)
    if kept is not None:
        return kept
    ids: array[int] = txn.memo.get(iter_ledger_ids) or array("q", iter_ledger_ids(txn))
    if any(map(gt, ids, islice(ids, 1, None))):
        ids = array("q", sorted(ids))
    if iter_ledger_ids in txn.memo:  # they are those of a snapshot, and whole
        txn.memo[sorted_ledger_ids] = ids
    return ids


def kept_once(txn: Txn, ledger_ids: array[int]) -> array[int]:
    """Return ``ledger_ids``, or the equal ``sorted_ledger_ids`` that the snapshot keeps, to hold millions of ids only once."""
    kept: array[int] | None = txn.memo.get(sorted_ledger_ids)
    return kept if kept is not None and kept == ledger_ids else ledger_ids
