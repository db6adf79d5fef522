"""A topic as it was at a time: its ledgers and its subscriptions of then, in a topic beside it or in its place.

Beside it, ledgers that nothing references any more come back themselves; from the first one that is still referenced on, entries are
copied into ledgers of their own, because of two topics that list a ledger the first to trim it deletes it for both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.store.changes.log_writer import LedgerSpec, WrittenLedgers, apply_written, write_ledgers
from pulsar_admin.store.changes.plan import ChangeReport, Plan, WritingPlan, check_transaction
from pulsar_admin.store.codec.claims import schema_claims, topic_claims
from pulsar_admin.store.codec.cursor import CursorState, decode_cursor_info
from pulsar_admin.store.codec.managedledger import LedgerInfo, decode_managed_ledger
from pulsar_admin.store.codec.message import decode_entry_times
from pulsar_admin.store.codec.rocksvalue import NodeStat
from pulsar_admin.store.codec.schema import decode_schema_locator
from pulsar_admin.store.db.environment import Store
from pulsar_admin.store.db.owners import find_owners
from pulsar_admin.store.db.tree import find_node
from pulsar_admin.store.errors import (
    EntryCorrupt,
    LedgerNotFound,
    NothingMatches,
    Refused,
    SubscriptionNotFound,
    TopicNotFound,
)
from pulsar_admin.store.model.cursors import Cursor, CursorSource
from pulsar_admin.store.model.ledgers import read_ledger
from pulsar_admin.store.model.reader import EntryReader, open_reader
from pulsar_admin.store.model.topics import Topic, TopicLedger
from pulsar_admin.store.names import TopicName, decode_name
from pulsar_admin.store.recovery.acks import AsOf, CursorHistory, read_cursor_history, state_in_force
from pulsar_admin.store.recovery.ledgers import Returning, find_returning
from pulsar_admin.store.recovery.past import CursorThen, Past, TopicThen, find_fate, read_deleted
from pulsar_admin.store.recovery.undelete import Comeback, Copies, Undelete, target_of
from pulsar_admin.store.sources.zookeeper import ServerFiles
from pulsar_admin.store.timespec import format_time_ms


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
    """Return where a cursor stood: where several states may have been in force, what redelivers the most, so that nothing is lost."""
    info = decode_cursor_info(value, topic.name.cursor_path(name))
    state = CursorState(info.mark_delete or topic.first_position, info.ranges, info.batch_deletes, info.properties)
    if info.cursors_ledger_id < 0:
        return CursorThen(info, state, value)
    cursor = Cursor(topic.name, name, topic.stat, info, state, CursorSource.METADATA)
    as_of = AsOf(at_ms, if_unsure="redeliver", past=history)
    try:
        found = state_in_force(history.states(reader, topic, name), topic, cursor, as_of)
    except (NothingMatches, SubscriptionNotFound) as error:
        return CursorThen(info, state, value, error.message)
    return CursorThen(info, found.state or state, value, "; ".join(found.warnings) or found.problem)


# -- the change -------------------------------------------------------------------------------------------------------


def find_then(past: Past, name: TopicName) -> list[TopicName]:
    """Return what NAME means: the partitions that it had then, else itself."""
    had = [one for one in past.listed if one.base == name and past.fates[one.path].then is not None]
    return sorted(one for one in had if one != name) or [name]


class RestoreAt(Struct, frozen=True):
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
    thens = [read_then(reader, name, past, cursors, wanted.at_ms) for name in names]
    named = _named(thens, wanted.to, wanted.asked)
    return Restoring("topics restore", past, named, wanted.asked, now_ms, not wanted.asked.in_place).plan(reader)


def plan_undelete(
    reader: EntryReader,
    names: Iterable[TopicName],
    past: Past,
    asked: Undelete,
    now_ms: int,
    to: TopicName | None = None,
) -> Plan | WritingPlan:
    """Plan bringing the deleted topics NAMES back, or what was trimmed of those that are there, under the names of ``target_of``.

    Raises TopicNotFound, AlreadyExists, Refused, LedgerNotFound, MetadataCorrupt.
    """
    wanted = [name for name in names if asked.in_place or not name.is_system]
    thens = [read_deleted(reader, name, past, trimmed=asked.trimmed) for name in wanted]
    return Restoring("topics undelete", past, _named(thens, to, asked), asked, now_ms).plan(reader)


def _named(thens: Iterable[TopicThen], to: TopicName | None, asked: Undelete) -> dict[TopicName, TopicThen]:
    return {target_of(then.name, to, in_place=asked.in_place): then for then in thens}


class _Copy(Struct, frozen=True):
    """A ledger to copy: how it is listed, up to its last entry to copy, and what the copy says of itself."""

    info: LedgerInfo
    spec: LedgerSpec


class Restoring(Struct, frozen=True):
    """Topics as they were, each under its name to be; ``copies_referenced``: what anything references is copied, else refused."""

    command: str
    past: Past
    thens: Mapping[TopicName, TopicThen]
    asked: Undelete
    now_ms: int
    copies_referenced: bool = False

    def plan(self, reader: EntryReader) -> Plan | WritingPlan:
        """Return the change; one that copies ledgers writes them first. Raises what ``Comeback`` does."""
        copied = [copy for target, then in self.thens.items() for copy in self._topic_copies(reader, then, target)]
        copied += [copy for base, target in self._bases() for copy in self._schema_copies(reader, base, target)]
        planned = self._planned(reader, {copy.info.ledger_id: copy.info for copy in copied})
        if not copied:
            return planned

        def make(store: Store) -> tuple[ChangeReport, ...]:
            with open_reader(store) as current:
                check_transaction(planned.txn_id, current.txn.id)
                written, copies = self._write(store, current, copied)
            with written:
                with open_reader(store) as current:
                    plan = self._planned(current, copies)
                    steps = (*written.steps(current.txn, self.now_ms), *plan.steps)
                # The copies are not in the index yet: how much they have was counted by the ledgers they are of.
                parts = tuple(
                    replace(one, extent=two.extent) for one, two in zip(plan.parts, planned.parts, strict=True)
                )
                return (apply_written(written, replace(plan, steps=steps, parts=parts), self.now_ms),)

        return WritingPlan(self.command, planned.txn_id, lambda: (planned.preview(),), make)

    def _bases(self) -> list[tuple[TopicName, TopicName]]:
        """Return (topic without partition number, its name to be), each once."""
        return list({then.name.base: target.base for target, then in self.thens.items()}.items())

    def _planned(self, reader: EntryReader, copies: Copies) -> Plan:
        comeback = Comeback(reader, self.past, self.asked, self.now_ms)
        nothing: list[TopicNotFound] = []
        for target, then in self.thens.items():
            try:
                comeback.add_topic(then, target, copies)
            except TopicNotFound as error:
                nothing.append(error)
                comeback.warn(error.message)
        if len(nothing) == len(self.thens) > 0:
            raise nothing[0]
        for namespace in dict.fromkeys(target.namespace for target in self.thens):
            comeback.add_namespace(namespace)
        for base, target in self._bases():
            comeback.add_base(base, target, copies)
        return comeback.plan(self.command)

    def _topic_copies(self, reader: EntryReader, then: TopicThen, target: TopicName) -> Iterator[_Copy]:
        """Yield the ledgers to copy: all of them, else those from the first on that anything references; in place none of these."""
        ids = [info.ledger_id for info in then.infos]
        referenced = (place for place, one in enumerate(ids) if self.copies_referenced and find_owners(reader.txn, one))
        first = 0 if self.asked.copy else next(referenced, len(ids))
        if self.asked.copy and find_node(reader.txn, target.path) is not None:
            raise Refused(
                f"{target} is there: copies would come behind its messages",
                hint="bring them back beside it, without --in-place",
                topic=str(target),
            )
        spec = LedgerSpec(topic_claims(target))
        for info in then.infos[first:]:
            found = self._find(reader, info.ledger_id, then.ends.get(info.ledger_id))
            if found is not None:
                closed_ms = info.timestamp_ms or found.written_ms or self.now_ms
                yield _Copy(LedgerInfo(info.ledger_id, found.entries, found.metadata.length, closed_ms), spec)

    def _schema_copies(self, reader: EntryReader, base: TopicName, target: TopicName) -> Iterator[_Copy]:
        fate = self.past.fates.get(base.schema_path)
        if fate is None or not fate.value or find_node(reader.txn, target.schema_path) is not None:
            return
        spec = LedgerSpec(schema_claims(target))
        for ledger_id in decode_schema_locator(fate.value, base.schema_path).ledger_ids:
            if self.asked.copy or (self.copies_referenced and find_owners(reader.txn, ledger_id)):
                found = self._find(reader, ledger_id, None)
                if found is not None:
                    yield _Copy(LedgerInfo(ledger_id, found.entries, found.metadata.length, self.now_ms), spec)

    def _find(self, reader: EntryReader, ledger_id: int, last: int | None) -> Returning | None:
        """Return a ledger up to the first entry that is lost, or LAST; None where that is nothing."""
        with suppress(LedgerNotFound):
            found = find_returning(reader, ledger_id, find_fate(self.past, ledger_id), last=last)
            return found if found.entries else None
        return None

    def _write(
        self, store: Store, reader: EntryReader, copied: Sequence[_Copy]
    ) -> tuple[WrittenLedgers, dict[int, LedgerInfo]]:
        """Write the copies; return them, and how they are listed by the ids of the ledgers they are of."""
        written = write_ledgers(
            store, ((copy.spec, reader.payloads(copy.info.ledger_id, copy.info.entries)) for copy in copied)
        )
        pairs = zip((copy.info for copy in copied), written.ledgers, strict=True)
        return written, {info.ledger_id: info._replace(ledger_id=new.ledger_id) for info, new in pairs}
