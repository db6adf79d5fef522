"""Copying topics whole from one store into another: entries byte by byte, subscriptions where they stand, partitions, schema, properties.

Ledgers get new ids, and every position is translated: mark-delete positions and acknowledged ranges of subscriptions
(also inside batches), the end of a terminated topic, places of schema versions. Entry ids stay. A warning names what is
not copied: compacted views (their entries contain positions), topic policies, pending acknowledgements of transactions.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.store.changes.cursors import info_of_state, state_json
from pulsar_admin.store.changes.log_writer import LedgerSpec, WrittenLedgers, apply_written, write_ledgers
from pulsar_admin.store.changes.plan import (
    ChangeKind,
    ChangePart,
    ChangeReport,
    CopiedPart,
    Plan,
    WritingPlan,
    check_transaction,
    put_value_step,
)
from pulsar_admin.store.changes.topics import warned_of_lost
from pulsar_admin.store.codec.claims import schema_claims, topic_claims
from pulsar_admin.store.codec.cursor import CursorState, encode_cursor_info
from pulsar_admin.store.codec.managedledger import encode_managed_ledger
from pulsar_admin.store.codec.schema import IndexEntry, SchemaLocator, decode_schema_locator, encode_schema_locator
from pulsar_admin.store.db.audit_log import Step
from pulsar_admin.store.db.environment import Store, Txn, open_store
from pulsar_admin.store.db.tree import find_node
from pulsar_admin.store.errors import AlreadyExists, InvalidValue, Refused
from pulsar_admin.store.model.cursors import (
    COMPACTION_CURSOR,
    REPLICATOR_PREFIX,
    Cursor,
    extent_of,
    iter_cursor_names,
    read_cursor,
)
from pulsar_admin.store.model.ledgers import find_metadata, find_times
from pulsar_admin.store.model.reader import EntryReader, open_reader
from pulsar_admin.store.model.resources import local_policies_path, tenant_path
from pulsar_admin.store.model.topics import Topic, TopicLedger, expand_topic, find_pending_ack, read_topic
from pulsar_admin.store.names import NamespaceName, Position, TopicName, shell_word
from pulsar_admin.store.policies.in_force import iter_stored
from pulsar_admin.store.wording import counted

_COPY = ChangeKind("topics copy", "copy {place}")
_OWN_FIELDS = {"isGlobal"}


class CopyRequest(Struct, frozen=True):
    """Topics of another store to copy, partitions in place of a partitioned one; ``to``: the new name of a single topic."""

    source: Path
    names: tuple[TopicName, ...]
    to: TopicName | None
    now_ms: int


class CopiedTopic(Struct, frozen=True):
    """A topic of the source, its cursors, and its name in the copy."""

    topic: Topic
    cursors: tuple[Cursor, ...]
    target: TopicName


class _Ledger(Struct, frozen=True):
    """A ledger to copy: its id in the source, its number of entries, and the custom metadata of the copy."""

    ledger_id: int
    entries: int
    spec: LedgerSpec


Ids = Mapping[int, int]
"""Ledger id in the source → in the target; in a preview the same."""


def plan_copy(store: Store, request: CopyRequest) -> WritingPlan:
    """Plan the requested copy into a store.

    Raises TopicNotFound, AlreadyExists, Refused (entries are not here), InvalidValue, and what opening the source raises.
    """
    with store.read() as txn:
        planned = txn.id

    def show() -> tuple[ChangeReport, ...]:
        with _source(store, request) as theirs, open_reader(store) as ours:
            return (warned_of_lost(ours, _Copying(theirs, ours.txn, request).plan({})).preview(),)

    def make(target: Store) -> tuple[ChangeReport, ...]:
        with _source(target, request) as theirs:
            with target.read() as txn:
                check_transaction(planned, txn.id)
                ledgers = _Copying(theirs, txn, request).ledgers()
            copies = ((one.spec, theirs.payloads(one.ledger_id, one.entries)) for one in ledgers)
            with write_ledgers(target, copies) as written:
                ids = {one.ledger_id: new.ledger_id for one, new in zip(ledgers, written.ledgers, strict=True)}
                with open_reader(target) as ours:
                    plan = warned_of_lost(ours, _Copying(theirs, ours.txn, request).plan(ids, written))
                return (apply_written(written, plan, request.now_ms),)

    return WritingPlan(_COPY, planned, show, make, digest=lambda: _digest(store, request))


def _digest(store: Store, request: CopyRequest) -> str:
    with _source(store, request) as theirs:
        return f"transaction {theirs.txn.id}"


@contextmanager
def _source(store: Store, request: CopyRequest) -> Iterator[EntryReader]:
    """Open the store that is copied from; raises InvalidValue if that is the target itself."""
    if request.source.resolve() == store.path.resolve():
        raise InvalidValue(f"--from {request.source} is this store itself", hint="name another store with --store")
    with open_store(request.source) as opened, open_reader(opened) as reader:
        yield reader


class _Copying:
    """One copy, planned on one state of both stores."""

    def __init__(self, theirs: EntryReader, txn: Txn, request: CopyRequest) -> None:
        self._theirs = theirs
        self._txn = txn
        self._request = request
        if request.to is not None and len(request.names) != 1:
            raise InvalidValue("--to names one topic", hint="copy one topic at a time, or omit --to")
        # Of a partitioned topic its partitions, each once.
        names = dict.fromkeys(name for given in request.names for name in expand_topic(theirs.txn, given))
        self._topics = [self._read(name) for name in names]
        self._warnings: dict[str, None] = {}

    def _read(self, name: TopicName) -> CopiedTopic:
        to = self._request.to
        target = name if to is None else to if name in self._request.names else to.partition(name.partition_index)
        if find_node(self._txn, target.path) is not None:
            raise AlreadyExists(
                f"{target} is in this store already",
                hint="name another topic with --to, or delete it first",
                topic=str(target),
            )
        topic = read_topic(self._theirs.txn, name)
        for ledger in topic.ledgers:
            times = find_times(self._theirs.txn, ledger.ledger_id)
            here = 0 if times is None else times.sums.entries
            if here < ledger.entries:
                lost = counted(ledger.entries - here, "entry", "entries")
                raise Refused(
                    f"{name}: {lost} of ledger {ledger.ledger_id} are in no file of {self._request.source}: later positions would shift",
                    hint="copy from a store with all bookies; or dump the entries that this store has: pulsar-admin topics dump "
                    f"{shell_word(name)} --level entries --directory DIR",
                    topic=str(name),
                    ledgerId=ledger.ledger_id,
                )
        names = sorted(iter_cursor_names(self._theirs.txn, name))
        cursors = tuple(
            read_cursor(self._theirs.txn, self._theirs, topic, one)
            for one in names
            if one != COMPACTION_CURSOR and not one.startswith(REPLICATOR_PREFIX)
        )
        return CopiedTopic(topic, cursors, target)

    def _bases(self) -> dict[TopicName, TopicName]:
        """Names of topics without partition numbers → their names in the copy."""
        return {one.topic.name.base: one.target.base for one in self._topics}

    # -- steps --------------------------------------------------------------------------------------------------------

    def ledgers(self) -> list[_Ledger]:
        """Return the ledgers to write in the order of their new ids: those of topics, then those of schemas."""
        ledgers: list[_Ledger] = []
        for one in self._topics:
            spec = LedgerSpec(topic_claims(one.target))
            ledgers += (_Ledger(ledger.ledger_id, ledger.entries, spec) for ledger in _kept(one.topic))
        for base, target in self._bases().items():
            locator = self._locator(base, target)
            spec = LedgerSpec(schema_claims(target))
            for ledger_id in () if locator is None else locator.ledger_ids:
                metadata = find_metadata(self._theirs.txn, ledger_id)
                last = -1 if metadata is None else metadata.last_entry_id
                times = find_times(self._theirs.txn, ledger_id)
                entries = max(last + 1, 0 if times is None else times.sums.entries)
                ledgers.append(_Ledger(ledger_id, entries, spec))
        return ledgers

    def _locator(self, base: TopicName, target: TopicName) -> SchemaLocator | None:
        """Return where the schema of the topic ``base`` is stored; None if it has none, or ``target`` has one already."""
        node = find_node(self._theirs.txn, base.schema_path)
        if node is None or not node.value or find_node(self._txn, target.schema_path) is not None:
            return None
        return decode_schema_locator(node.value, node.path)

    # -- the change ---------------------------------------------------------------------------------------------------

    def plan(self, ids: Ids, written: WrittenLedgers | None = None) -> Plan:
        """Return the plan. ``ids``: the new id of each ledger in ``written``; None: the source's ids, for a preview."""
        now_ms = self._request.now_ms
        steps = [] if written is None else list(written.steps(self._txn, now_ms))
        parts: list[ChangePart] = []
        for namespace in dict.fromkeys(one.target.namespace for one in self._topics):
            steps += self._namespace_steps(namespace)
        for base, target in self._bases().items():
            steps += self._base_steps(base, target, ids)
        for one in self._topics:
            steps += self._topic_steps(one, ids)
            parts += self._parts(one, ids)
            self._name_what_stays(one)
        once = {step.key: step for step in steps}  # a tenant has several namespaces
        return Plan(_COPY, self._txn.id, tuple(once.values()), tuple(parts), warnings=tuple(self._warnings))

    def _namespace_steps(self, namespace: NamespaceName) -> Iterator[Step]:
        """Yield the steps that create a missing namespace like the source's; warn if an existing one differs."""
        paths = (tenant_path(namespace.tenant), namespace.policies_path, local_policies_path(namespace))
        for path in paths:
            theirs, ours = find_node(self._theirs.txn, path), find_node(self._txn, path)
            if theirs is not None and ours is None:
                yield put_value_step(self._txn, path, theirs.value, self._request.now_ms)
            elif theirs is not None and ours is not None and path == paths[1] and theirs.value != ours.value:
                self._warnings[
                    f"the policies of {namespace} here are others than in the source, and stay as they are"
                ] = None
            elif theirs is None and ours is None and path == paths[1]:
                self._warnings[f"{namespace} has no policies here: a broker serves its topics only when it exists"] = (
                    None
                )

    def _base_steps(self, base: TopicName, target: TopicName, ids: Ids) -> Iterator[Step]:
        record = find_node(self._theirs.txn, base.partitioned_path)
        if record is not None and find_node(self._txn, target.partitioned_path) is None:
            yield put_value_step(self._txn, target.partitioned_path, record.value, self._request.now_ms)
        node, locator = find_node(self._theirs.txn, base.schema_path), self._locator(base, target)
        if node is None:
            return
        if locator is None:
            self._warnings[f"{target} has a schema here, which stays; that of the source is not copied"] = None
            return
        moved = SchemaLocator(_entry(locator.newest, ids), tuple(_entry(one, ids) for one in locator.index))
        yield put_value_step(
            self._txn, target.schema_path, encode_schema_locator(moved, node.value), self._request.now_ms
        )

    def _topic_steps(self, one: CopiedTopic, ids: Ids) -> Iterator[Step]:
        now_ms = self._request.now_ms
        managed, node = one.topic.managed, find_node(self._theirs.txn, one.topic.name.path)
        assert node is not None
        infos = tuple(
            replace(
                ledger.info,
                ledger_id=ids.get(ledger.ledger_id, ledger.ledger_id),
                entries=ledger.entries,
                size_bytes=ledger.size_bytes,
                timestamp_ms=ledger.info.timestamp_ms or now_ms,
                offloaded=False,
                offload_uuid=None,
                bookkeeper_deleted=False,
            )
            for ledger in _kept(one.topic)
        )
        ended = None if managed.terminated is None else _moved(one.topic, managed.terminated, ids)
        value = encode_managed_ledger(replace(managed, ledgers=infos, terminated=ended), node.value)
        yield put_value_step(self._txn, one.target.path, value, now_ms)
        for cursor in one.cursors:
            state = _moved_state(one.topic, cursor.state, ids)
            info = info_of_state(state, cursor.info.shown_properties, cursor.info.last_active_ms)
            yield put_value_step(self._txn, one.target.cursor_path(cursor.name), encode_cursor_info(info), now_ms)

    def _parts(self, one: CopiedTopic, ids: Ids) -> Iterator[ChangePart]:
        topic = one.topic
        ledgers = [ids.get(ledger.ledger_id, ledger.ledger_id) for ledger in _kept(topic)] if ids else len(_kept(topic))
        after = {"from": str(topic.name), "ledgers": ledgers, "numberOfEntries": topic.number_of_entries}
        extent = extent_of(self._theirs.txn, topic, ((0, topic.number_of_entries),))
        yield CopiedPart(topic=str(one.target), after=after, extent=extent)
        for cursor in one.cursors:
            state = _moved_state(topic, cursor.state, ids)
            # The backlog of the copy is that of the source: only ids differ.
            shown = {**state_json(topic, cursor.state), "markDeletePosition": str(state.mark_delete)}
            yield ChangePart(topic=str(one.target), subscription=cursor.name, after={key: shown[key] for key in _SHOWN})

    def _name_what_stays(self, one: CopiedTopic) -> None:
        """Warn of what is not copied with the topic."""
        txn, name = self._theirs.txn, one.topic.name
        left: list[str] = []
        for cursor in sorted(iter_cursor_names(txn, name)):
            if cursor == COMPACTION_CURSOR:
                left.append(
                    f"its compacted view (rebuild it: pulsar-admin compaction run {shell_word(one.target)};"
                    " of trimmed ledgers nothing is left)"
                )
            elif cursor.startswith(REPLICATOR_PREFIX):
                left.append(f"the replicator's cursor {cursor}")
            log = find_pending_ack(txn, name, cursor)
            if log is not None:
                left.append(f"acknowledgements of open transactions on {cursor} ({log})")
        for source, fields in iter_stored(txn, name):
            keys = [key for key, value in fields.items() if value not in (None, {}, []) and key not in _OWN_FIELDS]
            if keys:
                left.append(f"its {source} policies: {', '.join(sorted(keys))} (set them here)")
        if left:
            self._warnings[f"{one.target}: not copied: {'; '.join(left)}"] = None


_SHOWN = ("markDeletePosition", "backlogEntries", "individuallyDeletedMessages", "batchIndexAcks")


def _kept(topic: Topic) -> Sequence[TopicLedger]:
    """Return the ledgers of a topic to copy: those with entries, or an empty one for a topic without any."""
    return [ledger for ledger in topic.ledgers if ledger.entries] or list(topic.ledgers[-1:])


def _moved(topic: Topic, position: Position, ids: Ids) -> Position:
    """Return where a position of a topic is in the copy: before the same entry."""
    kept = [ledger.ledger_id for ledger in _kept(topic)]
    if position.ledger_id in kept or not kept:
        entry = position
    else:
        rank = topic.place(position)
        entry = topic.at_rank(rank - 1) if rank > 0 else Position(kept[0], -1)
    return Position(ids.get(entry.ledger_id, entry.ledger_id), entry.entry_id, entry.batch_index)


def _moved_state(topic: Topic, state: CursorState, ids: Ids) -> CursorState:
    """Return a cursor's state with every position in the ledgers of the copy."""
    ranges = tuple((_moved(topic, lower, ids), _moved(topic, upper, ids)) for lower, upper in state.ranges)
    batches = {_moved(topic, entry, ids): words for entry, words in state.batch_deletes.items()}
    return replace(state, mark_delete=_moved(topic, state.mark_delete, ids), ranges=ranges, batch_deletes=batches)


def _entry(entry: IndexEntry, ids: Ids) -> IndexEntry:
    """Return where a version of a schema lies in the copy."""
    new_id = ids.get(entry.position.ledger_id)
    return entry if new_id is None else replace(entry, position=Position(new_id, entry.position.entry_id))
