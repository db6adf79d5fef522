"""A topic as it was at a time: its ledgers and its subscriptions of then, in a topic beside it or in its place.

Beside it, ledgers that nothing references any more come back themselves; from the first one that is still referenced on, entries are
copied into ledgers of their own, because of two topics that list a ledger the first to trim it deletes it for both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from store.changes.intent import WritingPlan, check_transaction
from store.changes.log_writer import LedgerSpec, Payload, WrittenLedgers, apply_written, write_ledgers
from store.changes.plan import Plan
from store.changes.report import ChangeReport
from store.codec.cursor import CursorState, decode_cursor_info
from store.codec.managedledger import LedgerInfo, decode_managed_ledger
from store.codec.message import decode_entry_times
from store.codec.rocksvalue import NodeStat
from store.db.environment import Store
from store.db.owners import find_owners
from store.errors import EntryCorrupt, LedgerNotFound, NothingMatches, SubscriptionNotFound, TopicNotFound
from store.model.cursors import Cursor
from store.model.ledgers import EntryReader, iter_gaps, open_reader, read_ledger
from store.model.topics import Topic, TopicLedger
from store.names import TopicName, decode_name
from store.recovery.as_of import AsOf, state_in_force
from store.recovery.cursor_versions import CursorHistory, read_cursor_history
from store.recovery.past import Past
from store.recovery.topics import CursorThen, TopicThen
from store.recovery.undelete import MANAGED_LEDGER_CLAIM, Comeback, Undelete, target_of
from store.sources.zookeeper import ServerFiles
from store.timespec import format_time_ms

COMMAND = "topics restore"


def read_then(reader: EntryReader, name: TopicName, past: Past, cursors: CursorHistory, at_ms: int) -> TopicThen:
    """Return NAME as it was AT_MS; raises TopicNotFound where it was not there, or the history begins later."""
    fate = past.fates.get(name.path)
    if fate is None or fate.then is None:
        began = "" if past.begins_ms is None else f", which begins at {format_time_ms(past.begins_ms)}"
        raise TopicNotFound(
            f"{name} was not there at {format_time_ms(at_ms)} by the history{began}",
            hint="name files of ZooKeeper that reach further back with --zookeeper DIR",
            topic=str(name),
        )
    infos, ends = [], {}
    for info in decode_managed_ledger(fate.then, name.path).ledgers:
        infos.append(past.listed[name][info.ledger_id].info)
        if not info.timestamp_ms:  # it was open
            ends[info.ledger_id] = _last_until(reader, info.ledger_id, at_ms)
    then = TopicThen(name, fate.then, tuple(infos), {}, None, ends)
    return replace(then, cursors=dict(_cursors(reader, then, past, cursors, at_ms)))


def _last_until(reader: EntryReader, ledger_id: int, at_ms: int) -> int:
    """Return the last entry of a ledger that was there AT_MS by the broker's clock, else by the producers'."""
    try:
        last = read_ledger(reader.txn, ledger_id).last_entry_id
    except LedgerNotFound:
        return -1
    while last >= 0:
        try:
            publish_ms, broker_ms = decode_entry_times(reader.read(ledger_id, last).payload)
        except EntryCorrupt:
            return last
        if (publish_ms if broker_ms is None else broker_ms) <= at_ms:
            break
        last -= 1
    return last


def _cursors(
    reader: EntryReader, then: TopicThen, past: Past, history: CursorHistory, at_ms: int
) -> Iterator[tuple[str, CursorThen]]:
    sizes = {info.ledger_id: then.ends.get(info.ledger_id, info.entries - 1) + 1 for info in then.infos}
    ledgers = tuple(TopicLedger(info, sizes[info.ledger_id], info.size_bytes, False) for info in then.infos)
    stat = NodeStat(0, 0, at_ms, at_ms, False)
    topic = Topic(then.name, stat, then.managed, ledgers)
    prefix = then.name.path + "/"
    for path, fate in sorted(past.fates.items()):
        if path.startswith(prefix) and fate.then is not None:
            name = decode_name(path.removeprefix(prefix))
            yield name, _cursor(reader, topic, name, fate.then, history, at_ms)


def _cursor(
    reader: EntryReader, topic: Topic, name: str, value: bytes, history: CursorHistory, at_ms: int
) -> CursorThen:
    """Return where a cursor stood: of the states that may have been in force the oldest, so that nothing is left out."""
    info = decode_cursor_info(value, topic.name.cursor_path(name))
    state = CursorState(info.mark_delete or topic.first_position, info.ranges, info.batch_deletes, info.properties)
    if info.cursors_ledger_id < 0:
        return CursorThen(info, state, value)
    cursor = Cursor(topic.name, name, topic.stat, info, state, "metadata")
    as_of = AsOf(at_ms, if_unsure="oldest", past=history)
    try:
        found, texts = state_in_force(history.states(reader, topic, name), cursor, as_of)
    except (NothingMatches, SubscriptionNotFound) as error:
        return CursorThen(info, state, value, error.message)
    return CursorThen(info, found.state or state, value, "; ".join(texts))


# -- the change -------------------------------------------------------------------------------------------------------


def find_then(past: Past, name: TopicName) -> list[TopicName]:
    """Return what NAME means: the partitions that it had then, else itself."""
    had = [one for one in past.listed if one.base == name and past.fates[one.path].then is not None]
    return sorted(one for one in had if one != name) or [name]


@dataclass(frozen=True, slots=True)
class RestoreAt:
    """What is asked for: a topic as of ``at_ms``, as ``to`` or the name of ``target_of``."""

    topic: TopicName
    at_ms: int
    asked: Undelete
    to: TopicName | None = None


def plan_restore_at(
    reader: EntryReader, wanted: RestoreAt, past: Past, servers: Sequence[ServerFiles], now_ms: int
) -> Plan | WritingPlan:
    """Plan bringing a topic back as it was, by PAST, what SERVERS have of it; raises what ``read_then`` and ``Comeback`` do."""
    names = find_then(past, wanted.topic)
    paths = [path for path in past.fates if path.startswith(tuple(f"{name.path}/" for name in names))]
    cursors = read_cursor_history(servers, paths)
    thens = {
        target_of(name, wanted.to, in_place=wanted.asked.in_place): read_then(reader, name, past, cursors, wanted.at_ms)
        for name in names
    }
    return Restoring(past, thens, wanted.asked, now_ms).plan(reader)


@dataclass(frozen=True, slots=True)
class Restoring:
    """Topics as they were, each under its name to be."""

    past: Past
    thens: Mapping[TopicName, TopicThen]
    asked: Undelete
    now_ms: int

    def plan(self, reader: EntryReader) -> Plan | WritingPlan:
        """Return the change; one that copies ledgers writes them first. Raises what ``Comeback`` does."""
        copied = {name: self._copied(reader, then) for name, then in self.thens.items()}
        planned = self._planned(reader, {one: info for infos in copied.values() for one, info in infos.items()})
        if not any(copied.values()):
            return planned

        def make(store: Store) -> tuple[ChangeReport, ...]:
            with open_reader(store) as current:
                check_transaction(planned.txn_id, current.txn.id)
                written, copies = self._write(store, current, copied)
            try:
                with open_reader(store) as current:
                    plan = self._planned(current, copies)
                    steps = (*written.steps(current.txn, self.now_ms), *plan.steps)
                parts = tuple(
                    replace(part, extent=shown.extent) for part, shown in zip(plan.parts, planned.parts, strict=True)
                )  # the copies are not in the index yet
                return (apply_written(written, replace(plan, steps=steps, parts=parts), self.now_ms),)
            except BaseException:
                written.discard()
                raise

        return WritingPlan(COMMAND, planned.txn_id, lambda: (planned.preview(),), make)

    def _planned(self, reader: EntryReader, copies: Mapping[int, LedgerInfo]) -> Plan:
        comeback = Comeback(reader, self.past, self.asked, self.now_ms)
        for target, then in self.thens.items():
            comeback.add_topic(then, target, copies)
        for namespace in dict.fromkeys(then.name.namespace for then in self.thens.values()):
            comeback.add_namespace(namespace)
        for base, target in {then.name.base: target.base for target, then in self.thens.items()}.items():
            comeback.add_base(base, target)
        return comeback.plan(COMMAND)

    def _copied(self, reader: EntryReader, then: TopicThen) -> dict[int, LedgerInfo]:
        """Return the ledgers to copy, as they are listed now: those from the first on that anything references. In place: none."""
        if self.asked.in_place:
            return {}
        ids = [info.ledger_id for info in then.infos]
        first = next((place for place, one in enumerate(ids) if find_owners(reader.txn, one)), len(ids))
        ends = [(info, self._end(reader, then, info)) for info in then.infos[first:]]
        return {
            info.ledger_id: info._replace(entries=end + 1, size_bytes=reader.read(info.ledger_id, end).length)
            for info, end in ends
            if end >= 0
        }

    def _end(self, reader: EntryReader, then: TopicThen, info: LedgerInfo) -> int:
        """Return the last entry to copy: in front of the first one that is in no file."""
        last = then.ends.get(info.ledger_id, info.entries - 1)
        gap = next(iter_gaps(reader.txn, info.ledger_id, last), None)
        return last if gap is None else gap[0] - 1

    def _write(
        self, store: Store, reader: EntryReader, copied: Mapping[TopicName, Mapping[int, LedgerInfo]]
    ) -> tuple[WrittenLedgers, dict[int, LedgerInfo]]:
        """Write the copies; return them, and how they are listed by the ids of the ledgers they are of."""
        wanted = [(target, info) for target, infos in copied.items() for info in infos.values()]
        written = write_ledgers(store, (self._ledger(reader, target, info) for target, info in wanted))
        copies = {
            info.ledger_id: LedgerInfo(new.ledger_id, new.entries, new.size_bytes, info.timestamp_ms or self.now_ms)
            for (_, info), new in zip(wanted, written.ledgers, strict=True)
        }
        return written, copies

    def _ledger(self, reader: EntryReader, target: TopicName, info: LedgerInfo) -> tuple[LedgerSpec, Iterator[Payload]]:
        end = self._end(reader, self.thens[target], info)
        spec = LedgerSpec("managed-ledger", {MANAGED_LEDGER_CLAIM: target.managed_ledger_name.encode()})
        return spec, (reader.read(info.ledger_id, entry_id).payload for entry_id in range(end + 1))
