"""Message index → position (PIP-415), on the index that the broker's AppendIndexMetadataInterceptor put into entries (PIP-70).

An entry carries the index of its last message; it covers the indexes after those of the entry before it. Upstream
(``PersistentTopicsBase.internalGetMessageIDByIndexAsync``) looks for the first entry whose index is not below the one asked for,
by binary search over positions. That is right as long as the index grows with the position, which it does not do after the interceptor
was switched off and lost its count. So if the binary search finds nothing, every entry is read.

A batch published in a transaction is counted as one message by the broker: it covers one index however many messages it has.
"""

from typing import NamedTuple

from msgspec import Struct, field

from pulsar_admin.store.codec.message import decode_message_entry, is_batch, message_count, transaction_id
from pulsar_admin.store.errors import EntryCorrupt, EntryLogCorrupt, EntryNotFound
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic
from pulsar_admin.store.names import Position
from pulsar_admin.store.wording import Answer, one_line

_UNREADABLE = (EntryCorrupt, EntryLogCorrupt, EntryNotFound)


class NextIndex(NamedTuple):
    """An index that an entry covers, and where that entry is."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody calls
    position: Position

    def __repr__(self) -> str:
        return one_line(self)


class IndexFound(Answer, frozen=True):
    """The result of a search by index. ``position``: with the batch index if the entry is a batch; None: no entry covers it.

    ``indexed``: whether any entry carries an index at all; ``scanned``: whether every entry was looked at.
    ``next_index``: the least index after the gap that contains the wanted one, with its entry.
    """

    JSON_HIDDEN = ("indexed",)

    position: Position | None
    first_index: int | None
    last_index: int | None
    entries_read: int
    scanned: bool
    indexed: bool
    next_index: NextIndex | None = field(default=None, name="next")


class _Covered(Struct, frozen=True):
    """The indexes an entry covers."""

    position: Position
    first: int
    last: int
    batch: bool


def find_by_index(reader: EntryReader, topic: Topic, index: int) -> IndexFound:
    """Return the entry of a topic that covers a message index."""
    search = _Search(reader, topic)
    entry = search.find(index)
    if entry is not None:
        return _answer(index, entry, search.read)
    return _scan(reader, topic, index, search.read)


def _answer(index: int, found: _Covered, entries_read: int, *, scanned: bool = False) -> IndexFound:
    position = found.position
    if found.batch:
        position = Position(position.ledger_id, position.entry_id, index - found.first)
    return IndexFound(position, found.first, found.last, entries_read, scanned, True)


class _Search:
    """A binary search over ranks; entries without an index are skipped."""

    def __init__(self, reader: EntryReader, topic: Topic) -> None:
        self._reader = reader
        self._topic = topic
        self.read = 0

    def find(self, index: int) -> _Covered | None:
        """Return the entry that covers an index; None if this method does not find one."""
        low, high = 0, self._topic.number_of_entries
        best = None
        while low < high:
            middle = (low + high) // 2
            covered = self._covered_from(middle, high)
            if covered is None:
                high = middle
            elif covered[1].last < index:
                low = covered[0] + 1
            else:
                best, high = covered[1], middle
        return best if best is not None and best.first <= index <= best.last else None

    def _covered_from(self, rank: int, end: int) -> tuple[int, _Covered] | None:
        """Return (rank, covered indexes) of the first entry between ``rank`` and ``end`` (excluded) that carries an index."""
        for here in range(rank, end):
            self.read += 1
            position = self._topic.at_rank(here)
            try:
                payload = self._reader.read(position.ledger_id, position.entry_id).payload
                header = decode_message_entry(payload, f"entry {position}")
            except _UNREADABLE:
                continue
            if header.broker is not None and header.broker.index is not None:
                last = header.broker.index
                # The broker counts a batch of a transaction as one message.
                batch = is_batch(header.metadata) and transaction_id(header.metadata) is None
                first = last - (message_count(header.metadata) - 1 if batch else 0)
                return here, _Covered(position, first, last, batch)
        return None


def _is_sound(reader: EntryReader, position: Position) -> bool:
    """Whether the whole entry can be read with a good digest: of large entries, a scan reads only the first bytes, without the digest."""
    try:
        reader.read(position.ledger_id, position.entry_id)
    except _UNREADABLE:
        return False
    return True


def _scan(reader: EntryReader, topic: Topic, index: int, entries_read: int) -> IndexFound:
    """Search every entry, in batches of columns. ``entries_read``: how many the binary search has read."""
    from pulsar_admin.store.model.cursors import iter_ledger_parts
    from pulsar_admin.store.scan.entries import EntryScan
    from pulsar_admin.store.scan.reducing import Reductions
    from pulsar_admin.store.search.index_cover import FindCover

    scan = EntryScan(reader, iter_ledger_parts(topic, 0, topic.number_of_entries), heads=True)
    cover = FindCover(index)
    row = cover.read(Reductions(reader, [scan], cover).row(0))
    for hit in row.hits:
        position = Position(hit.ledger_id, hit.entry_id)
        if hit.is_verified or _is_sound(reader, position):
            covered = _Covered(position, hit.first, hit.last, hit.batch)
            return _answer(index, covered, entries_read + hit.entries, scanned=True)
    following = None if row.following is None else NextIndex(row.following[0], Position(*row.following[1:]))
    return IndexFound(None, None, None, entries_read + row.entries, True, row.indexed, following)
