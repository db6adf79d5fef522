"""Earlier states of a subscription's acknowledgements, from its cursor ledgers, its metadata and ZooKeeper's
history, and the change that restores one.

Upstream: ``ManagedCursorImpl`` (Pulsar 4.0.8). A new cursor ledger gets the current state as its first entry, then the metadata
names it (``createNewMetadataLedger``, ``switchToNewLedger``), and only then are later states written to it: mark-deletes wait
meanwhile. So entry 0 is older than the metadata that names its ledger, all other entries are younger, and all are older than the
next metadata that names another ledger or none. Entries carry no time; only an earliest and a latest possible time can be derived.
If the bookie's journal still has an entry, its neighbours there bound the time to milliseconds (``journal_times``).

If several states may have been in force, one redelivers the most to consumers and one the least. Neither need be one of the states:
after a reset back, a later state has acknowledged less than an earlier one. The state that redelivers most has acknowledged only what all
of them have; the one that redelivers least has acknowledged what any of them has.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from pulsar_admin.store import errors
from pulsar_admin.store.changes.cursors import RESET, CursorMove, plan_moves
from pulsar_admin.store.changes.plan import MoveBasis, Plan
from pulsar_admin.store.codec.claims import CURSOR_KEY
from pulsar_admin.store.codec.cursor import CursorInfo, CursorState, decode_cursor_info, decode_cursor_ledger
from pulsar_admin.store.codec.ledgermetadata import (
    LEDGERS_ROOT,
    LedgerState,
    decode_ledger_metadata,
    ledger_id_of_path,
    ledger_path,
)
from pulsar_admin.store.codec.message import decode_entry_times
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.tree import find_imported
from pulsar_admin.store.history.servers import find_servers, iter_gone_texts
from pulsar_admin.store.history.versions import Version, iter_versions
from pulsar_admin.store.model.cursors import (
    Cursor,
    Intervals,
    backlog_entries,
    is_own,
    iter_ledger_parts,
    normal_ranges,
    pending_intervals,
    subtract,
    union,
)
from pulsar_admin.store.model.ledgers import read_ledger
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic
from pulsar_admin.store.names import Position, shell_word
from pulsar_admin.store.recovery.journal_times import (
    WriteTime,
    WriteTimes,
    journals_of,
    logs_of,
    read_flush_times,
    read_write_times,
)
from pulsar_admin.store.sources.zookeeper import ServerFiles
from pulsar_admin.store.timespec import format_time_ms
from pulsar_admin.store.wording import Answer, counted, listed

CURSOR_LEDGER, METADATA = "cursor-ledger", "metadata"


class TimeBound(Answer, frozen=True):
    """An earliest or latest possible time, and ``by`` what it is proved."""

    time_ms: int
    by: str


class CursorVersion(Struct, frozen=True):
    """A cursor's value in the metadata from ``time_ms`` on; ``info`` None: it was deleted. ``zxid``: None if unknown.

    ``since_known``: whether it was written at that time, rather than some time before.
    """

    time_ms: int
    info: CursorInfo | None
    zxid: int | None = None
    since_known: bool = True


class LedgerLife(Struct, frozen=True):
    """When a cursor ledger was created, and when it was closed or deleted, as far as the metadata says."""

    made_ms: int | None = None
    ended_ms: int | None = None


_UNKNOWN: Mapping[int, LedgerLife] = {}
_BROKER_TIME = "broker time"
_Read = tuple[int, CursorState | None, str]
"""An entry of a cursor ledger: its id, the state, and why it cannot be read."""


class AckState(Answer, frozen=True):
    """One state of a subscription, from the ``entry`` of a cursor ledger, or from the metadata (``zxid`` if known).

    ``state`` None: the subscription was deleted, or (``problem``) the entry cannot be read. ``backlog`` and ``gaps`` (unacknowledged
    entries before the last acknowledged one) count the topic's present entries. ``acknowledged`` and ``reopened``: entries that
    the previous state had the other way round.
    """

    SHOWN = ("name", "backlog", "gaps", "acknowledged", "reopened")

    entry: Position | None
    zxid: int | None
    state: CursorState | None
    not_before: TimeBound | None
    not_after: TimeBound | None
    backlog: int = 0
    gaps: int = 0
    acknowledged: int = 0
    reopened: int = 0
    problem: str = ""

    @property
    def source(self) -> str:
        """Where the state was read: ``metadata`` or ``cursor-ledger``."""
        return METADATA if self.entry is None else CURSOR_LEDGER

    @property
    def name(self) -> str:
        """The value of ``--as-of`` that selects this state: an entry, or a transaction of ZooKeeper's."""
        if self.entry is not None:
            return str(self.entry)
        return METADATA if self.zxid is None else f"{self.zxid:#x}"


def imported_versions(txn: Txn, topic: Topic, subscription: str) -> list[CursorVersion]:
    """Return the cursor's value in the imported metadata, without changes made here since; empty if it did not exist."""
    path = topic.name.cursor_path(subscription)
    node = find_imported(txn, path)
    if node is None:
        return []
    return [CursorVersion(node.stat.modified_ms, decode_cursor_info(node.value, path), since_known=False)]


def iter_ack_states(
    reader: EntryReader,
    topic: Topic,
    versions: Sequence[CursorVersion],
    lives: Mapping[int, LedgerLife] = _UNKNOWN,
    writes: Sequence[WriteTimes] = (),
) -> Iterator[AckState]:
    """Yield every recorded state of a cursor, oldest first: from the versions of its node and from the ledgers that these name.

    ``lives``: these ledgers in the history, by ledger id, as far as the imported metadata lacks them; ``writes``: when their entries
    were written.
    """
    reading = _StatesReader(reader, topic, lives, writes)
    named: int | None = None
    for index, version in enumerate(versions):
        info = version.info
        if info is not None and info.is_in_ledger:
            # Several versions of the node may name one ledger: its entries are yielded once, at the first of them.
            if info.cursors_ledger_id != named:
                named = info.cursors_ledger_id
                after = (
                    later.time_ms
                    for later in versions[index + 1 :]
                    if later.info is None or later.info.cursors_ledger_id != named
                )
                yield from reading.ledger(named, version, next(after, None))
            continue
        named = None
        yield reading.version(version)


class _StatesReader:
    """Reads states in order. If a time is proved to be before one state, it is before all later states, too."""

    def __init__(
        self, reader: EntryReader, topic: Topic, lives: Mapping[int, LedgerLife], writes: Sequence[WriteTimes]
    ) -> None:
        self._reader = reader
        self._topic = topic
        self._lives = lives
        self._writes = writes
        self._floor: TimeBound | None = None
        self._pending: Intervals | None = None
        self._times: dict[Position, TimeBound | None] = {}

    def version(self, version: CursorVersion) -> AckState:
        """Return the state that is in the metadata itself."""
        when = TimeBound(version.time_ms, "the metadata's version")
        state = None
        if version.info is not None:
            info = version.info
            place = info.mark_delete or self._topic.first_position
            state = CursorState(place, info.ranges, info.batch_deletes, info.properties)
        before = self._raise(when if version.since_known else self._proof(state), when)
        return self._counted(AckState(None, version.zxid, state, before, when))

    def ledger(self, ledger_id: int, version: CursorVersion, next_ms: int | None) -> Iterator[AckState]:
        """Yield the states in a cursor ledger that the metadata named from ``version`` on, and at least until ``next_ms``."""
        life = self._lives.get(ledger_id) or _life(self._reader.txn, ledger_id)
        ends = [TimeBound(next_ms, "the next version of the metadata")] if next_ms is not None else []
        ends += [TimeBound(life.ended_ms, f"ledger {ledger_id} was closed")] if life.ended_ms is not None else []
        end = min(ends, key=lambda bound: bound.time_ms, default=None)
        naming = TimeBound(version.time_ms, f"the metadata names ledger {ledger_id}")
        made = None if life.made_ms is None else TimeBound(life.made_ms, f"ledger {ledger_id} was made")
        # A broker writes entry 0 before its metadata names the ledger, so that version is later than entry 0.
        end_of_first = naming if end is None or naming.time_ms < end.time_ms else end
        states = [*_iter_ledger(self._reader, ledger_id)]
        for (entry_id, state, problem), written_by in zip(
            states, self._written_by(ledger_id, states, made), strict=True
        ):
            bounds = [bound for bound in (end_of_first if entry_id == 0 else end, written_by) if bound is not None]
            after = min(bounds, key=lambda bound: bound.time_ms, default=None)
            known = naming if entry_id and version.since_known else made
            for write in self._written(ledger_id, entry_id):
                # What was written before the first copy of an entry bounds it, and not what was before a later one.
                low = write.not_before_ms
                if low is not None and (after is None or low <= after.time_ms):
                    known = _later(known, TimeBound(low, f"a message before it in {write.place}"))
            before = self._raise(_later(known, self._proof(state)), after)
            undated = AckState(Position(ledger_id, entry_id), None, state, before, after, problem=problem)
            yield self._counted(undated)

    def _written_by(self, ledger_id: int, states: Sequence[_Read], made: TimeBound | None) -> list[TimeBound | None]:
        """Return by when each state was written, according to journals and logs, and no later than any state after it.

        The message that follows a record there is an old one if it is older than the ledger, or than an entry that the state
        acknowledges: then it bounds nothing.
        """
        bounds: list[TimeBound | None] = []
        earliest: TimeBound | None = None
        for entry_id, state, _ in reversed(states):
            for write in self._written(ledger_id, entry_id):
                if write.not_after_ms is None:
                    continue
                proof = self._proof(state)
                is_old = proof is not None and proof.by.startswith(_BROKER_TIME) and proof.time_ms > write.not_after_ms
                is_old = is_old or (made is not None and made.time_ms > write.not_after_ms)
                if not is_old and (earliest is None or write.not_after_ms < earliest.time_ms):
                    earliest = TimeBound(write.not_after_ms, f"a message after it in {write.place}")
            bounds.append(earliest)
        return bounds[::-1]

    def _written(self, ledger_id: int, entry_id: int) -> list[WriteTime]:
        return [times[ledger_id, entry_id] for times in self._writes if (ledger_id, entry_id) in times]

    def _raise(self, bound: TimeBound | None, end: TimeBound | None) -> TimeBound | None:
        """Return the latest time that this state or an earlier one proves; a time after ``end`` comes from a wrong
        clock and proves nothing."""
        raised = _later(self._floor, bound)
        if raised is not None and end is not None and raised.time_ms > end.time_ms:
            return self._floor if self._floor is not None and self._floor.time_ms <= end.time_ms else None
        self._floor = raised
        return raised

    def _proof(self, state: CursorState | None) -> TimeBound | None:
        """Return the publish time of the last acknowledged entry: it cannot have been acknowledged before that."""
        if state is None:
            return None
        place = max([self._topic.place(state.mark_delete), *(end for _, end in normal_ranges(self._topic, state))])
        if not place:
            return None
        position = self._topic.at_rank(place - 1)
        if position not in self._times:
            time = None
            with suppress(errors.EntryCorrupt, errors.EntryNotFound, errors.LedgerNotFound):
                payload = self._reader.read(position.ledger_id, position.entry_id).payload
                publish_ms, broker_ms = decode_entry_times(payload)
                time = TimeBound(publish_ms, f"publish time of {position}, by its producer's clock")
                if broker_ms is not None:
                    time = TimeBound(broker_ms, f"{_BROKER_TIME} of {position}")
            self._times[position] = time
        return self._times[position]

    def _counted(self, recorded: AckState) -> AckState:
        if recorded.state is None:
            return recorded
        topic, before = self._topic, self._pending
        after = self._pending = pending_intervals(topic, recorded.state)
        ends = [end for _, end in normal_ranges(topic, recorded.state)]
        return replace(
            recorded,
            backlog=backlog_entries(topic, recorded.state),
            gaps=_count(part for part in after if ends and part[0] < ends[-1]),
            acknowledged=0 if before is None else _count(subtract(before, after)),
            reopened=0 if before is None else _count(subtract(after, before)),
        )


def _count(intervals: Iterable[tuple[int, int]]) -> int:
    return sum(end - start for start, end in intervals)


def _later(one: TimeBound | None, other: TimeBound | None) -> TimeBound | None:
    return max((bound for bound in (one, other) if bound is not None), key=lambda bound: bound.time_ms, default=None)


def _life(txn: Txn, ledger_id: int) -> LedgerLife:
    """Return when a ledger was created, and if it is closed, when its metadata was last written; empty for a deleted
    one."""
    path = ledger_path(ledger_id)
    node = find_imported(txn, path)
    if node is None:
        return LedgerLife()
    try:
        closed = decode_ledger_metadata(node.value, path).state is LedgerState.CLOSED
    except errors.MetadataCorrupt:
        closed = False
    return LedgerLife(node.stat.created_ms, node.stat.modified_ms if closed else None)


def _iter_ledger(reader: EntryReader, ledger_id: int) -> Iterator[_Read]:
    """Yield (entry id, state, problem) of each entry of a cursor ledger; a state in several parts counts if its footer exists."""
    try:
        last = read_ledger(reader.txn, ledger_id).last_entry_id
    except errors.LedgerNotFound:
        return
    unclear: list[_Read] = []  # perhaps parts of a state: the footer after them decides
    for entry_id in range(last + 1):
        taken: list[bytes] = []
        try:
            state = decode_cursor_ledger(_payloads(reader, ledger_id, entry_id, taken), f"entry {ledger_id}:{entry_id}")
        except (errors.EntryNotFound, errors.EntryCorrupt, errors.Unsupported) as error:
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


# -- the history of the metadata --------------------------------------------------------------------------------------


_CURSOR_KEY = CURSOR_KEY.encode()


class CursorHistory(Struct):
    """Earlier versions by path of a cursor's node, lives by cursor ledger, and sentences about unreadable parts.

    ``writes``: when entries of cursor ledgers were written.
    """

    versions: dict[str, list[CursorVersion]] = field(default_factory=dict)
    lives: dict[int, LedgerLife] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    writes: Sequence[WriteTimes] = ()

    def ledgers(self, txn: Txn, topic: Topic, subscription: str) -> set[int]:
        """Return the cursor ledgers that are named, now or in the history."""
        versions = self.versions.get(topic.name.cursor_path(subscription), [])
        infos = [one.info for one in (*versions, *imported_versions(txn, topic, subscription))]
        return {info.cursors_ledger_id for info in infos if info is not None and info.is_in_ledger}

    def states(self, reader: EntryReader, topic: Topic, subscription: str) -> Iterator[AckState]:
        """Yield every state of a subscription that is left; raises SubscriptionNotFound if nothing ever had its name."""
        versions = self.versions.get(topic.name.cursor_path(subscription), [])
        last = versions[-1] if versions else None
        imported = imported_versions(reader.txn, topic, subscription)
        new = [one for one in imported if last is None or (one.time_ms >= last.time_ms and one.info != last.info)]
        if not versions and not new:
            raise errors.SubscriptionNotFound(
                f"topic {topic.name} had no subscription {subscription!r}",
                hint=f"list them with: pulsar-admin topics subscriptions {shell_word(topic.name)}",
                topic=str(topic.name),
                subscription=subscription,
            )
        return iter_ack_states(reader, topic, [*versions, *new], self.lives, self.writes)


def find_cursor_history(
    sources: Iterable[Mapping[str, Any]], places: Iterable[str], paths: Iterable[str]
) -> CursorHistory:  # Any: JSON
    """Return the history of cursors from the ZooKeeper files of a store's sources and of other places; without such files
    empty, with a problem if they are gone.

    Raises SourceNotFound for a place without ZooKeeper's files, and as ``read_cursor_history``.
    """
    try:
        servers = find_servers(sources, places)
    except errors.Refused:
        return CursorHistory(problems=[*iter_gone_texts(sources)])
    return read_cursor_history(servers, paths)


def read_history(
    reader: EntryReader,
    subscription: str,
    topics: Collection[Topic],
    places: Iterable[str],
    progress: Callable[[int, str, str], AbstractContextManager[Callable[[int], None]]] | None,
) -> CursorHistory:
    """Return the history of a subscription's cursors in topics as ``find_cursor_history``, which raises as it does.

    Unless ``progress`` is None, also the times at which its states were written, from journals and entry logs.
    """
    store = reader.txn.store
    past = find_cursor_history(store.info.sources, places, [one.name.cursor_path(subscription) for one in topics])
    ledgers = {one for topic in topics for one in past.ledgers(reader.txn, topic, subscription)}
    if progress is not None and ledgers:
        journals, logs = journals_of(reader.txn), logs_of(reader.txn, ledgers)
        size_bytes = sum(journals.values()) + sum(log.size_bytes for log in logs)
        with progress(size_bytes, "bytes", "journals and entry logs") as advance:
            past.writes = (
                read_write_times(journals, ledgers, advance),
                read_flush_times(logs, store.path, advance),
            )
    return past


def read_cursor_history(servers: Sequence[ServerFiles], paths: Iterable[str]) -> CursorHistory:
    """Return the recorded versions of the cursors at ``paths`` from servers of one ensemble; raises as ``iter_versions``."""
    history = CursorHistory()
    cursors = dict.fromkeys(paths, -1)  # the last version's number, by which a missing one shows
    for item in iter_versions(servers, lambda path: path in cursors or path.startswith(LEDGERS_ROOT)):
        if isinstance(item, Version):
            if item.path in cursors:
                follows = item.kind != "snapshot" or item.version == cursors[item.path] + 1
                cursors[item.path] = -1 if item.version is None else item.version
                try:
                    info = None if item.value is None else decode_cursor_info(item.value, item.path)
                except (errors.MetadataCorrupt, errors.Unsupported) as error:
                    history.problems.append(f"transaction {item.zxid:#x}: {error.message}")
                else:
                    history.versions.setdefault(item.path, []).append(
                        CursorVersion(item.time_ms, info, item.zxid, follows)
                    )
            else:
                _note_ledger(history.lives, item)
        else:
            history.problems.append(item.text)
    return history


def _note_ledger(lives: dict[int, LedgerLife], item: Version) -> None:
    """Record what a version of a ledger's node says, if its custom metadata names a cursor: then it is a cursor
    ledger."""
    ledger_id = ledger_id_of_path(item.path)
    if ledger_id is None:
        return
    life = lives.get(ledger_id)
    if item.value is None:
        if life is not None and life.ended_ms is None:
            lives[ledger_id] = replace(life, ended_ms=item.time_ms)
    elif _CURSOR_KEY in item.value:
        life = life or LedgerLife()
        if item.kind == "create":
            life = replace(life, made_ms=item.time_ms)
        elif life.ended_ms is None:
            # An unreadable version leaves the end open: bounds become wider, not wrong.
            with suppress(errors.MetadataCorrupt, errors.Unsupported):
                if decode_ledger_metadata(item.value, item.path).state is LedgerState.CLOSED:
                    life = replace(life, ended_ms=item.time_ms)
        lives[ledger_id] = life


# -- back to a state --------------------------------------------------------------------------------------------------


IfUnsure = Literal["refuse", "redeliver", "skip", "oldest", "newest"]
"""If several states may have been in force: refuse, or restore what redelivers the most (so that nothing is lost) or
the least."""

_OLD_WORDS: Mapping[str, IfUnsure] = {"oldest": "redeliver", "newest": "skip"}
_SHOWN = 3
_NAME = re.compile(r"[0-9]+:[0-9]+|0x[0-9a-f]+|" + METADATA)


class WantedState(Struct, frozen=True):
    """The state to restore: ``at`` a time in ms, or by name (an entry of a cursor ledger, or a zxid).

    ``past``: history beyond the imported metadata. ``force``: allow the broker's own cursors.
    """

    at: int | str
    if_unsure: IfUnsure = "refuse"
    past: CursorHistory = field(default_factory=CursorHistory)
    force: bool = False

    def __post_init__(self) -> None:
        """Raise InvalidValue for an unknown word."""
        errors.check_choice("if_unsure", self.if_unsure, IfUnsure)


class ChosenState(Struct, frozen=True):
    """The state called ``name``, or one made of the several states that ``name`` lists; None: ``problem`` gives the reason."""

    state: CursorState | None
    name: str
    problem: str = ""
    warnings: tuple[str, ...] = ()


def is_state_name(text: str) -> bool:
    """Whether a text names a state (``253:4``, ``0x4a1``) rather than a time."""
    return _NAME.fullmatch(text) is not None


def plan_as_of(reader: EntryReader, cursors: Iterable[tuple[Topic, Cursor]], wanted: WantedState, now_ms: int) -> Plan:
    """Return one plan that moves all cursors back to earlier states, or none of them.

    Raises EntryNotFound (no such state), NothingMatches (nothing is known about that time), and Refused if several
    states may have been in force, or for a cursor of the broker's own.
    """
    listed = list(cursors)
    if isinstance(wanted.at, str) and len(listed) > 1:
        raise errors.InvalidValue(
            f"--as-of {wanted.at} is a state of one subscription, but {len(listed)} are selected",
            hint="name its topic, or a time",
        )
    moves = [_move(reader, topic, cursor, wanted) for topic, cursor in listed]
    return plan_moves(reader, RESET, moves, now_ms)


def _move(reader: EntryReader, topic: Topic, cursor: Cursor, wanted: WantedState) -> CursorMove:
    states, at = wanted.past.states(reader, topic, cursor.name), wanted.at
    if isinstance(at, str):
        named = next((state for state in states if state.name == at), None)
        if named is None:
            raise errors.EntryNotFound(f"{cursor.topic}: {cursor.name} has no state {at}", hint=_list_hint(cursor))
        chosen = ChosenState(named.state, at, named.problem)
    else:
        chosen = state_in_force(states, topic, cursor, at, wanted.if_unsure)
    if chosen.state is None:
        why = chosen.problem or f"{cursor.name} was deleted then"
        raise errors.EntryNotFound(f"{topic.name}: {chosen.name} is not a state: {why}", hint=_list_hint(cursor))
    warnings = [*chosen.warnings]
    if topic.ids and chosen.state.mark_delete.ledger_id < topic.ids[0]:
        warnings.append(f"the backlog of that state before ledger {topic.ids[0]} is trimmed: it is not redelivered")
    return CursorMove(
        topic,
        cursor,
        chosen.state,
        MoveBasis(f"as-of {chosen.name}", time_ms=None if isinstance(at, str) else at),
        warnings=tuple(warnings),
        force=wanted.force,
    )


def state_in_force(
    states: Iterator[AckState], topic: Topic, cursor: Cursor, time_ms: int, if_unsure: IfUnsure
) -> ChosenState:
    """Return the state of a cursor that was in force at a time; raises NothingMatches, Refused."""
    possible: _Possible | None = None
    for state in states:
        # States come in their order, so all further ones are later than the time as well.
        if state.not_before is not None and state.not_before.time_ms > time_ms:
            break
        # This state was certainly written by then, so none before it can have been in force.
        if possible is None or (state.not_after is not None and state.not_after.time_ms <= time_ms):
            possible = _Possible(topic, cursor.name)
        possible.add(state)
    else:
        state = None
    if possible is None or possible.last is None:
        why = "nothing is left of its states"
        if state is not None and state.not_before is not None:
            why = f"the earliest known state, {state.name}, is not before {_text(state.not_before)}"
        raise errors.NothingMatches(f"{cursor.topic}: {cursor.name}: {why}", hint=_list_hint(cursor))
    if possible.was_there_by(time_ms) and possible.are_alike:
        return ChosenState(possible.last.state, possible.last.name, possible.last.problem)
    return _chosen(cursor, possible, time_ms, if_unsure)


class _Extreme(Struct, frozen=True):
    """A possible state, its name ("" if it was combined from several), and the entries that consumers would get."""

    state: CursorState
    name: str
    pending: Pending


class _Possible:
    """The states that may have been in force, and the entries that consumers would get under any or all of them."""

    def __init__(self, topic: Topic, cursor: str) -> None:
        self._topic = topic
        self._can_be_joined = not is_own(cursor)
        self.states = 0
        self.first: AckState | None = None
        self.last: AckState | None = None
        self.unknown: list[AckState] = []
        """States that cannot be read, or in which the subscription was deleted."""
        self.most: _Extreme | None = None
        self.least: _Extreme | None = None

    def add(self, state: AckState) -> None:
        """Add a state that is later than those added before."""
        self.states += 1
        self.first, self.last = self.first or state, state
        if state.state is None:
            self.unknown.append(state)
            return
        extreme = _Extreme(state.state, state.name, pending_of(self._topic, state.state))
        if self.most is None or self.least is None:
            self.most = self.least = extreme
            return
        lower, higher = sorted((self.most, extreme), key=lambda one: one.state.mark_delete)
        self.most = self._joined(either(self._topic, self.most.pending, extreme.pending), lower, higher)
        lower, higher = sorted((self.least, extreme), key=lambda one: one.state.mark_delete)
        self.least = self._joined(both(self._topic, self.least.pending, extreme.pending), higher, lower)

    def _joined(self, pending: Pending, nearer: _Extreme, other: _Extreme) -> _Extreme:
        """Return a state with these pending entries: ``nearer``, ``other``, or a new one; for a cursor of the broker's
        own ``nearer``, as its properties belong to one state."""
        for extreme in (nearer, other):
            if extreme.pending == pending:
                return extreme
        if not self._can_be_joined:
            return nearer
        return _Extreme(state_of(self._topic, pending, nearer.state), "", pending)

    def was_there_by(self, time_ms: int) -> bool:
        """Whether the first possible state had been written by this time (epoch ms)."""
        return self.first is not None and self.first.not_after is not None and self.first.not_after.time_ms <= time_ms

    @property
    def are_alike(self) -> bool:
        """Whether consumers would get the same messages under all of them."""
        if self.most is None or self.least is None:
            return self.states == 1
        return not self.unknown and self.most.pending == self.least.pending

    def text(self) -> str:
        """Return the name of the only state, or the number of states and the names of the first and last."""
        assert self.first is not None
        assert self.last is not None
        if self.states == 1:
            return self.first.name
        return f"{counted(self.states, 'state')}, {self.first.name} to {self.last.name}"


def _chosen(cursor: Cursor, possible: _Possible, time_ms: int, if_unsure: IfUnsure) -> ChosenState:
    most, least, last = possible.most, possible.least, possible.last
    assert last is not None
    text = f"{cursor.name} may have been at {possible.text()}, at {format_time_ms(time_ms)}"
    if not possible.was_there_by(time_ms):
        text += ", or earlier: the time of the first state is unknown"
    elif last.not_after is not None:
        text += f": {last.name} was written by {_text(last.not_after)}"
    if possible.unknown:
        names = listed((state.name for state in possible.unknown), _SHOWN)
        text += f"; of {names} it is unknown what was acknowledged"
    # No possible state can be read: there is nothing that an option could choose.
    if most is None or least is None:
        return ChosenState(None, possible.text(), possible.unknown[0].problem)
    between = counted(most.pending.count - least.pending.count, "entry")
    if if_unsure == "refuse":
        ways = f"to use it anyway: --as-of {last.name}"
        if most.pending != least.pending:
            ways = (
                f"--if-unsure redeliver: consumers get up to {between} again that one of these states had not "
                f"acknowledged; --if-unsure skip: they lose up to {between} that were not acknowledged; or name one: "
                f"--as-of {last.name}"
            )
        raise errors.Refused(
            f"{cursor.topic}: {text}",
            hint=ways,
            topic=str(cursor.topic),
            subscription=cursor.name,
            states=possible.states,
        )
    chosen, effect = (
        (most, f"consumers get up to {between} again")
        if if_unsure in ("redeliver", "oldest")
        else (least, f"consumers lose up to {between} that were not acknowledged")
    )
    warnings = [text if most.pending == least.pending else f"{text}; {effect}"]
    if if_unsure in _OLD_WORDS:
        warnings.insert(0, f"--if-unsure {if_unsure} is an older word for {_OLD_WORDS[if_unsure]}")
    return ChosenState(chosen.state, chosen.name or f"all of {possible.text()}", "", tuple(warnings))


def _text(bound: TimeBound) -> str:
    return f"{format_time_ms(bound.time_ms)} ({bound.by})"


def _list_hint(cursor: Cursor) -> str:
    return (
        f"list the known states with: pulsar-admin topics subscription-history {shell_word(cursor.topic)}"
        f" -s {shell_word(cursor.name)}"
    )


# -- several states together ------------------------------------------------------------------------------------------


Words = tuple[int, ...]
"""Messages of a batch that are not acknowledged, as words of a bit set."""


class Pending(Struct, frozen=True):
    """The entries that a state gives consumers, as intervals of ranks, and the remaining messages of partly acknowledged batches."""

    entries: Intervals
    batches: Mapping[Position, Words]

    @property
    def count(self) -> int:
        """How many entries are pending."""
        return sum(end - start for start, end in self.entries)

    def has(self, rank: int) -> bool:
        """Whether the entry at a rank, counted from the topic's first entry, is pending."""
        return any(start <= rank < end for start, end in self.entries)


def pending_of(topic: Topic, state: CursorState) -> Pending:
    """Return the entries of a topic that a subscription in this state has not acknowledged."""
    entries = pending_intervals(topic, state)
    pending = Pending(entries, {})
    batches = {
        at: words for at, words in state.batch_deletes.items() if topic.is_entry(at) and pending.has(topic.rank(at))
    }
    return Pending(entries, batches)


def either(topic: Topic, one: Pending, other: Pending) -> Pending:
    """Return the entries that are pending in at least one of two states."""
    batches: dict[Position, Words] = {}
    # A batch that is pending as a whole in one state stays whole, whatever the other acknowledged of it.
    for at in (*one.batches, *other.batches):
        mine, theirs = one.batches.get(at), other.batches.get(at)
        rank = topic.rank(at)
        if mine is not None and theirs is not None:
            batches[at] = _joined(mine, theirs)
        elif mine is not None and not other.has(rank):
            batches[at] = mine
        elif theirs is not None and not one.has(rank):
            batches[at] = theirs
    return Pending(union((*one.entries, *other.entries)), batches)


def both(topic: Topic, one: Pending, other: Pending) -> Pending:
    """Return the entries that are pending in both states."""
    entries = subtract(one.entries, subtract(one.entries, other.entries))
    common = Pending(entries, {})
    batches: dict[Position, Words] = {}
    for at in (*one.batches, *other.batches):
        if not common.has(topic.rank(at)):
            continue
        mine, theirs = one.batches.get(at), other.batches.get(at)
        if mine is not None and theirs is not None:
            batches[at] = tuple(left & right for left, right in zip(mine, theirs, strict=False))
        else:
            batches[at] = mine or theirs or ()
    # A batch with no message that both have pending is acknowledged as a whole.
    done = tuple(sorted((topic.rank(at), topic.rank(at) + 1) for at, words in batches.items() if not any(words)))
    return Pending(subtract(entries, done), {at: words for at, words in batches.items() if any(words)})


def _joined(mine: Words, theirs: Words) -> Words:
    longest = max(len(mine), len(theirs))
    padded = (words + (0,) * (longest - len(words)) for words in (mine, theirs))
    return tuple(left | right for left, right in zip(*padded, strict=True))


def state_of(topic: Topic, pending: Pending, like: CursorState) -> CursorState:
    """Return the state in which exactly these entries are pending, with the properties of ``like``, and its
    mark-delete position if it is the same place."""
    count = topic.number_of_entries
    first = pending.entries[0][0] if pending.entries else count
    mark_delete = like.mark_delete
    if topic.place(mark_delete) != first:
        mark_delete = topic.at_rank(first - 1) if first else topic.first_position
    acknowledged = subtract(((first, count),), pending.entries)
    # Upstream's ranges do not contain their lower end.
    ranges = tuple(
        (Position(ledger_id, low - 1), Position(ledger_id, high))
        for start, end in acknowledged
        for ledger_id, low, high in iter_ledger_parts(topic, start, end)
    )
    return CursorState(mark_delete, ranges, dict(pending.batches), like.properties)
