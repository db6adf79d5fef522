"""How a subscription's acknowledgements came about: every state that its cursor ledgers and its metadata still hold.

Upstream: ``ManagedCursorImpl`` (Pulsar 4.0.8). A cursor ledger is made with the present state as its first entry, then the
metadata names it (``createNewMetadataLedger``, ``switchToNewLedger``), and only then states go on there: mark-deletes wait
meanwhile. So an entry 0 is older than the metadata that names its ledger, all others are younger, and all are older than the
next metadata that names another ledger or none. Entries carry no time: what is known is a time they cannot be before, and one
they cannot be after.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.store.codec.cursor import CursorInfo, CursorState, decode_cursor_info, decode_cursor_ledger
from pulsar_admin.store.codec.ledgermetadata import LedgerState, decode_ledger_metadata, ledger_path
from pulsar_admin.store.codec.message import decode_entry_times
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.tree import Node, decode_node, find_node, tree_key
from pulsar_admin.store.errors import EntryCorrupt, EntryNotFound, LedgerNotFound, MetadataCorrupt, Unsupported
from pulsar_admin.store.model.cursors import backlog_entries, normal_ranges
from pulsar_admin.store.model.extent import Intervals, pending_intervals, subtract
from pulsar_admin.store.model.ledgers import read_ledger
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic
from pulsar_admin.store.names import Position

CURSOR_LEDGER, METADATA = "cursor-ledger", "metadata"


class Bound(Struct, frozen=True):
    """A time, and what proves it."""

    time_ms: int
    by: str


class CursorVersion(Struct, frozen=True):
    """What the metadata said of a cursor from ``time_ms`` on; ``info`` None: it was deleted. ``zxid``: None where none is known.

    ``since_known``: whether it was written at that time, not only there by then.
    """

    time_ms: int
    info: CursorInfo | None
    zxid: int | None = None
    since_known: bool = True


class LedgerLife(Struct, frozen=True):
    """When a cursor ledger was made, and when it was closed or deleted, as far as the metadata says."""

    made_ms: int | None = None
    ended_ms: int | None = None


_UNKNOWN: Mapping[int, LedgerLife] = {}


class AckState(Struct, frozen=True):
    """One state of a subscription. ``entry``: of a cursor ledger; else it is of the metadata, by ``zxid`` where one is known.

    ``state`` None: the subscription was deleted, or (``problem``) the entry cannot be read. ``backlog`` and ``gaps`` (entries not
    acknowledged before the last one that is) count the topic's entries of today. ``acknowledged`` and ``reopened``: entries that
    the state before had otherwise.
    """

    entry: Position | None
    zxid: int | None
    state: CursorState | None
    not_before: Bound | None
    not_after: Bound | None
    backlog: int = 0
    gaps: int = 0
    acknowledged: int = 0
    reopened: int = 0
    problem: str = ""

    @property
    def source(self) -> str:
        return METADATA if self.entry is None else CURSOR_LEDGER

    @property
    def name(self) -> str:
        """What ``--as-of`` takes for it: an entry, or a transaction of ZooKeeper's."""
        if self.entry is not None:
            return str(self.entry)
        return METADATA if self.zxid is None else f"{self.zxid:#x}"


def imported_versions(txn: Txn, topic: Topic, subscription: str) -> list[CursorVersion]:
    """Return what the imported metadata says of a cursor, whatever was changed here since; nothing where it was not there."""
    path = topic.name.cursor_path(subscription)
    node = _imported_node(txn, path)
    if node is None:
        return []
    return [CursorVersion(node.stat.modified_ms, decode_cursor_info(node.value, path), since_known=False)]


def _imported_node(txn: Txn, path: str) -> Node | None:
    row = txn.get("base", tree_key(path))
    if row is None:
        return find_node(txn, path)
    return decode_node(tree_key(path), row) if row else None


def iter_ack_states(
    reader: EntryReader, topic: Topic, versions: Sequence[CursorVersion], lives: Mapping[int, LedgerLife] = _UNKNOWN
) -> Iterator[AckState]:
    """Yield every state that VERSIONS of a cursor and the ledgers they name hold, the oldest first.

    LIVES: what is known of these ledgers beyond the imported metadata, by their ids.
    """
    reading = _Reading(reader, topic, lives)
    named: int | None = None
    for index, version in enumerate(versions):
        info = version.info
        if info is not None and info.cursors_ledger_id >= 0:
            if info.cursors_ledger_id != named:
                named = info.cursors_ledger_id
                after = (later.time_ms for later in versions[index + 1 :] if _ledger_of(later) != named)
                yield from reading.ledger(named, version, next(after, None))
            continue
        named = None
        yield reading.version(version)


def _ledger_of(version: CursorVersion) -> int:
    return -1 if version.info is None else version.info.cursors_ledger_id


class _Reading:
    """Makes states in their order: what one proves not to be before a time, holds for all later ones."""

    def __init__(self, reader: EntryReader, topic: Topic, lives: Mapping[int, LedgerLife]) -> None:
        self._reader = reader
        self._topic = topic
        self._lives = lives
        self._floor: Bound | None = None
        self._pending: Intervals | None = None
        self._times: dict[Position, Bound | None] = {}

    def version(self, version: CursorVersion) -> AckState:
        """Return the state that is in the metadata itself."""
        when = Bound(version.time_ms, "the metadata's version")
        state = None
        if version.info is not None:
            info = version.info
            place = info.mark_delete or self._topic.first_position
            state = CursorState(place, info.ranges, info.batch_deletes, info.properties)
        before = self._raise(when if version.since_known else self._proof(state), when)
        return self._counted(AckState(None, version.zxid, state, before, when))

    def ledger(self, ledger_id: int, version: CursorVersion, next_ms: int | None) -> Iterator[AckState]:
        """Yield the states in a cursor ledger that VERSION is the first to name; the metadata named no other before NEXT_MS."""
        life = self._lives.get(ledger_id) or _life(self._reader.txn, ledger_id)
        ends = [Bound(next_ms, "the next version of the metadata")] if next_ms is not None else []
        ends += [Bound(life.ended_ms, f"ledger {ledger_id} was closed")] if life.ended_ms is not None else []
        end = min(ends, key=lambda bound: bound.time_ms, default=None)
        naming = Bound(version.time_ms, f"the metadata names ledger {ledger_id}")
        made = None if life.made_ms is None else Bound(life.made_ms, f"ledger {ledger_id} was made")
        for entry_id, state, problem in _iter_ledger(self._reader, ledger_id):
            after = _earlier(end, naming) if entry_id == 0 else end
            known = naming if entry_id and version.since_known else made
            before = self._raise(_later(known, self._proof(state)), after)
            found = AckState(Position(ledger_id, entry_id), None, state, before, after, problem=problem)
            yield self._counted(found)

    def _raise(self, bound: Bound | None, end: Bound | None) -> Bound | None:
        """Return the latest time that this state or one before it proves; a producer's clock that contradicts END proves nothing."""
        found = _later(self._floor, bound)
        if found is not None and end is not None and found.time_ms > end.time_ms:
            return self._floor if self._floor is not None and self._floor.time_ms <= end.time_ms else None
        self._floor = found
        return found

    def _proof(self, state: CursorState | None) -> Bound | None:
        """Return when the last entry that STATE has as acknowledged was published: nobody acknowledges it before."""
        if state is None:
            return None
        place = max([self._topic.place(state.mark_delete), *(end for _, end in normal_ranges(self._topic, state))])
        return self._published(self._topic.at_rank(place - 1)) if place else None

    def _published(self, position: Position) -> Bound | None:
        if position not in self._times:
            self._times[position] = self._read_time(position)
        return self._times[position]

    def _read_time(self, position: Position) -> Bound | None:
        try:
            payload = self._reader.read(position.ledger_id, position.entry_id).payload
            publish_ms, broker_ms = decode_entry_times(payload)
        except (EntryCorrupt, EntryNotFound, LedgerNotFound):
            return None
        if broker_ms is not None:
            return Bound(broker_ms, f"broker time of {position}")
        return Bound(publish_ms, f"publish time of {position}, by its producer's clock")

    def _counted(self, found: AckState) -> AckState:
        if found.state is None:
            return found
        topic, before = self._topic, self._pending
        after = self._pending = pending_intervals(topic, found.state)
        ends = [end for _, end in normal_ranges(topic, found.state)]
        return replace(
            found,
            backlog=backlog_entries(topic, found.state),
            gaps=_count(part for part in after if ends and part[0] < ends[-1]),
            acknowledged=0 if before is None else _count(subtract(before, after)),
            reopened=0 if before is None else _count(subtract(after, before)),
        )


def _count(intervals: Iterable[tuple[int, int]]) -> int:
    return sum(end - start for start, end in intervals)


def _later(one: Bound | None, other: Bound | None) -> Bound | None:
    return max((bound for bound in (one, other) if bound is not None), key=lambda bound: bound.time_ms, default=None)


def _earlier(one: Bound | None, other: Bound) -> Bound:
    return other if one is None or other.time_ms < one.time_ms else one


def _life(txn: Txn, ledger_id: int) -> LedgerLife:
    """Return what the metadata of a ledger's node tells; of a deleted one nothing."""
    path = ledger_path(ledger_id)
    node = _imported_node(txn, path)
    if node is None:
        return LedgerLife()
    try:
        closed = decode_ledger_metadata(node.value, path).state is LedgerState.CLOSED
    except MetadataCorrupt:
        closed = False
    return LedgerLife(node.stat.created_ms, node.stat.modified_ms if closed else None)


def _iter_ledger(reader: EntryReader, ledger_id: int) -> Iterator[tuple[int, CursorState | None, str]]:
    """Yield (entry id, state, what is wrong with it) of each entry of a cursor ledger; parts of a state count by their footer."""
    try:
        last = read_ledger(reader.txn, ledger_id).last_entry_id
    except LedgerNotFound:
        return
    unclear: list[tuple[int, CursorState | None, str]] = []  # parts of a state may be: the footer behind them tells
    for entry_id in range(last + 1):
        taken: list[bytes] = []
        try:
            state = decode_cursor_ledger(_payloads(reader, ledger_id, entry_id, taken), f"entry {ledger_id}:{entry_id}")
        except (EntryNotFound, EntryCorrupt, Unsupported) as error:
            unclear.append((entry_id, None, error.message))
            continue
        if len(taken) == 1 or taken[0][:1] == b"{":
            yield from (one for one in unclear if one[0] <= entry_id - len(taken))
            unclear.clear()
            yield entry_id, state, ""
    yield from unclear


def _payloads(reader: EntryReader, ledger_id: int, newest: int, taken: list[bytes]) -> Iterator[bytes]:
    for entry_id in range(newest, -1, -1):
        taken.append(bytes(reader.read(ledger_id, entry_id).payload))
        yield taken[-1]
