"""Restoring deleted topics and namespaces, trimmed ledgers, and a topic as it was at an earlier time.

A ledger is in one topic only: a broker that trims or deletes a topic deletes its ledgers. So a referenced ledger never
becomes part of a second topic: unreferenced ledgers are restored themselves; from the first ledger that is still referenced on, entries
are copied into new ledgers.
"""

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.store import errors
from pulsar_admin.store.changes.cursors import info_of_state, state_json
from pulsar_admin.store.changes.log_writer import LedgerSpec, WrittenLedgers, apply_written, write_ledgers
from pulsar_admin.store.changes.plan import (
    ChangeKind,
    ChangePart,
    ChangeReport,
    Plan,
    ReturnedPart,
    WritingPlan,
    check_transaction,
    put_value_step,
)
from pulsar_admin.store.changes.resets import check_now_is_meant
from pulsar_admin.store.codec.claims import COMPACTED_TOPIC, schema_claims, topic_claims
from pulsar_admin.store.codec.cursor import CursorState, decode_cursor_info, encode_cursor_info
from pulsar_admin.store.codec.ledgermetadata import ledger_path
from pulsar_admin.store.codec.managedledger import (
    LedgerInfo,
    ManagedLedger,
    decode_managed_ledger,
    encode_managed_ledger,
)
from pulsar_admin.store.codec.message import decode_entry_times
from pulsar_admin.store.codec.policies import decode_json_object
from pulsar_admin.store.codec.rocksvalue import NodeStat
from pulsar_admin.store.codec.schema import IndexEntry, SchemaLocator, decode_schema_locator, encode_schema_locator
from pulsar_admin.store.db.audit_log import Step
from pulsar_admin.store.db.environment import Store
from pulsar_admin.store.db.owners import find_owners
from pulsar_admin.store.db.tree import find_node, tree_key
from pulsar_admin.store.facts.indexes import find_bookies_without_rows, read_indexed
from pulsar_admin.store.facts.vanished import find_vanished
from pulsar_admin.store.model.cursors import (
    COMPACTION_CURSOR,
    REPLICATOR_PREFIX,
    Cursor,
    CursorSource,
    extent_of,
    is_own,
    read_cursor,
    union,
)
from pulsar_admin.store.model.ledgers import read_ledger
from pulsar_admin.store.model.reader import EntryReader, open_reader
from pulsar_admin.store.model.resources import local_policies_path, tenant_path
from pulsar_admin.store.model.topics import COMPACTED_LEDGER, Topic, TopicLedger, read_topic
from pulsar_admin.store.names import NamespaceName, Position, TopicName, decode_name, parse_topic, shell_word
from pulsar_admin.store.recovery import ack_history
from pulsar_admin.store.recovery.deleted_nodes import (
    Keep,
    Past,
    PastCursor,
    PastTopic,
    find_deletion,
    find_fate,
    is_ledger,
    read_deleted,
    read_own_past,
)
from pulsar_admin.store.recovery.ledgers import RestorableLedger, find_restorable, index_texts, ledger_step, lost_text
from pulsar_admin.store.recovery.missing_topics import read_deletions
from pulsar_admin.store.timespec import format_time_ms
from pulsar_admin.store.wording import counted, listed, plural

_SUFFIX = "-restored"
_SHOWN = 10
Copies = Mapping[int, LedgerInfo]
"""Ledger id → how a topic lists its copy."""
_NO_COPIES: Copies = {}
_ROOTS = ("/managed-ledgers", "/admin/partitioned-topics", "/admin/policies", "/admin/local-policies", "/schemas")


class Undelete(Struct, frozen=True):
    """Options of a restore.

    ``in_place``: under the old name; ``trimmed``: of deleted topics also ledgers trimmed before; ``with_gaps``: ledgers
    keep their end although entries are lost; ``hold``: name of a subscription that retains ledgers no other one needs,
    "" for none; ``copy``: copy all entries into new ledgers, and restore no old one.
    """

    in_place: bool = False
    trimmed: bool = False
    with_gaps: bool = False
    hold: str = "restored"
    copy: bool = False


def keep_of(namespaces: Iterable[NamespaceName]) -> Keep:
    """Return a filter for ``read_past`` that keeps the history of topics of these namespaces."""
    names = [str(name) for name in dict.fromkeys(namespaces)]
    tenants = {tenant_path(name.partition("/")[0]) for name in names}
    prefixes = tuple(f"{root}/{name}" for name in names for root in _ROOTS)
    claims = [f"{name}/".encode() for name in names]

    def keep(path: str, value: bytes) -> bool:
        # The value is searched, not decoded: the logs have millions of ledgers, and custom metadata names the topic in plain text.
        if is_ledger(path):
            return any(claim in value for claim in claims)
        return path in tenants or path.startswith(prefixes)

    return keep


def target_of(name: TopicName, to: TopicName | None, *, in_place: bool) -> TopicName:
    """Return the name for a restored topic: its own, ``to``, or ``NAME-restored``; partitions keep their numbers."""
    if in_place:
        return name
    base = to or TopicName(name.namespace, name.base.local_name + _SUFFIX)
    return base.partition(name.partition_index) if name.is_partition else base


def find_deleted(past: Past, names: Iterable[TopicName], namespaces: Iterable[NamespaceName]) -> list[TopicName]:
    """Return the deleted topics with these names, partitions instead of a partitioned topic, and all deleted topics of the namespaces.

    Raises TopicNotFound, NamespaceNotFound.
    """
    topics: dict[TopicName, None] = {}
    for name in names:
        parts = [
            one
            for one, listed in past.listed.items()
            if one.base == name != one and any(listing.gone_ms is not None for listing in listed.values())
        ]
        for one in sorted(parts) if parts else [name]:
            topics[one] = None
    for namespace in namespaces:
        gone = [one for one in past.listed if one.namespace == namespace and find_deletion(past, one) is not None]
        if not gone:
            raise errors.NamespaceNotFound(
                f"the history has no deleted topic of {namespace}",
                hint="name older files of ZooKeeper with --zookeeper DIR",
                namespace=str(namespace),
            )
        topics.update(dict.fromkeys(sorted(gone)))
    return list(topics)


def check_vanished(reader: EntryReader, names: Iterable[TopicName], why: errors.StoreError) -> None:
    """Raise Refused if a topic's node is gone without a recorded deletion: then only its ledgers show its state.

    ``why``: the error that the history gave.
    """
    for topic in find_vanished(reader).topics:
        if topic.name in names or topic.name.base in names:
            count, what = len(topic.ledger_ids), "ledger"
            hint = "rebuild the node from the ledgers: pulsar-admin store recover --level A"
            if not count:
                count, what = len(topic.subscriptions), "subscription"
                hint = (
                    "no list names its ledgers either; for unlisted ledgers on bookies, see: pulsar-admin ledgers "
                    "orphans"
                )
            raise errors.Refused(
                f"{topic.name} was not deleted the way brokers delete: its node is gone, but {counted(count, what)} "
                f"{plural(count, 'is', 'are')} still listed ({why.message})",
                hint=hint,
                topic=str(topic.name),
            ) from why


class TopicRestorer:
    """Collects the steps and report parts of restored topics; ``nothing``: why no ledger of a topic is restored."""

    def __init__(self, reader: EntryReader, past: Past, asked: Undelete, now_ms: int, nothing: str) -> None:
        self._indexed = read_indexed(reader.txn.store.info)
        self._forgotten: dict[int, list[str]] = {}
        self._reader = reader
        self._txn = reader.txn
        self._past = past
        self._asked = asked
        self._now_ms = now_ms
        self._nothing = nothing
        self._steps: dict[bytes, Step] = {}
        self._parts: list[ChangePart] = []
        self._taken: set[int] = set()
        self._warnings: dict[str, None] = {}

    def plan(self, kind: ChangeKind) -> Plan:
        """Return everything that was added as one change."""
        if self._taken:
            self._warnings.update(dict.fromkeys(index_texts(self._indexed, self._forgotten)))
        names = sorted({str(parse_topic(part.topic).namespace) for part in self._parts if part.topic})
        self._warnings[
            f"a broker that serves {', '.join(names)} does not notice: unload it on the live cluster (namespaces unload), then:"
            " pulsar-admin store export zookeeper HOST:PORT"
        ] = None
        for gap in self._past.gaps:
            self._warnings[f"the history is not whole: {gap}"] = None
        return Plan(kind, self._txn.id, tuple(self._steps.values()), tuple(self._parts), warnings=tuple(self._warnings))

    def warn(self, text: str) -> None:
        """Add a warning to the plan."""
        self._warnings[text] = None

    def _put(self, path: str, value: bytes) -> None:
        step = put_value_step(self._txn, path, value, self._now_ms)
        self._steps[step.key] = step

    # -- topics -------------------------------------------------------------------------------------------------------

    def add_topic(self, then: PastTopic, target: TopicName, copies: Copies = _NO_COPIES) -> None:
        """Restore a topic as ``target``, with copies in the place of some ledgers; raises AlreadyExists, TopicNotFound, Refused."""
        node = find_node(self._txn, target.path)
        if node is not None and not self._asked.in_place:
            raise errors.AlreadyExists(
                f"{target} exists", hint="name another topic with --to, or give --in-place", topic=str(target)
            )
        present = ManagedLedger() if node is None else decode_managed_ledger(node.value, node.path)
        there = {info.ledger_id: info for info in present.ledgers}
        texts = list(self._past.witnesses.get(then.name, ()))
        own = [info.ledger_id for info in then.infos if info.ledger_id in copies]
        if own:
            texts.append(
                f"the entries of {plural(len(own), 'ledger')} {listed(own, _SHOWN)} are copied into ledgers of its own"
            )
        returned = dict(self._returning(then, target, there, texts, copies))
        if not returned and (not then.cursors if then.gone_ms is None else node is not None):
            raise errors.TopicNotFound(
                f"nothing of {then.name} can be restored: {'; '.join(texts) or self._nothing}",
                hint="bookies have freed the missing entries; see: pulsar-admin ledgers list" if texts else "",
                topic=str(then.name),
            )
        infos = there | returned
        managed = replace(present, ledgers=tuple(infos[one] for one in sorted(infos)))
        # An existing topic keeps its own properties and end, which are newer than the history's.
        if node is None:
            managed = replace(managed, properties=then.managed.properties, terminated=then.managed.terminated)
        self._put(target.path, encode_managed_ledger(managed, then.value if node is None else node.value))
        measured = () if node is None else read_topic(self._txn, target).ledgers
        topic = _topic(target, managed, measured, self._now_ms)
        cursors = dict(self._cursors(then, topic, there, {one: copies[one] for one in own}))
        held = [state for name, state in cursors.items() if name != COMPACTION_CURSOR]
        # Nothing would keep what was just restored: a broker that loads the topic would trim it at once.
        if self._asked.hold and returned and not _is_held(topic, min(returned), held):
            cursors[self._asked.hold] = CursorState(Position(min(returned), -1))
            self._put_cursor(topic, self._asked.hold, cursors[self._asked.hold])
            texts.append(
                f"subscription {self._asked.hold} keeps messages that no other one keeps: brokers trim them once it "
                "is removed, unless retention keeps them"
            )
        self._parts.append(self._topic_part(then, topic, tuple(returned), tuple(there)))
        self._warnings.update(dict.fromkeys(f"{target}: {text}" for text in texts))
        self._parts += [
            ChangePart(topic=str(target), subscription=name, after=state_json(topic, state))
            for name, state in cursors.items()
        ]

    def _returning(
        self, then: PastTopic, target: TopicName, there: Mapping[int, LedgerInfo], texts: list[str], copies: Copies
    ) -> Iterator[tuple[int, LedgerInfo]]:
        """Yield the ledgers to restore, or their copies, that the target does not list yet; add sentences about the others to ``texts``."""
        for info in then.infos:
            if info.ledger_id in copies:  # as its entries are ours, no other topic loses them
                yield copies[info.ledger_id].ledger_id, copies[info.ledger_id]
            if info.ledger_id in there or info.ledger_id in copies:
                continue
            try:
                returning = self._take(info.ledger_id, topic_claims(target), then.ends.get(info.ledger_id))
            except errors.LedgerNotFound as error:
                texts.append(error.message)
                continue
            if lost_text(returning):
                texts.append(lost_text(returning))
            if returning.entries:
                # A topic lists a ledger that comes back as closed, and on bookies, wherever it was offloaded to.
                listed_again = replace(
                    info,
                    entries=returning.entries,
                    size_bytes=returning.metadata.length,
                    timestamp_ms=info.timestamp_ms or returning.written_ms,
                    offloaded=False,
                    offload_uuid=None,
                    bookkeeper_deleted=False,
                )
                yield info.ledger_id, listed_again

    def _take(self, ledger_id: int, claims: Mapping[str, bytes], last: int | None = None) -> RestorableLedger:
        """Return an unreferenced ledger, restored up to the entry ``last``, and plan its metadata node.

        A ledger without entries is not needed, so it may be referenced. Raises Refused, LedgerNotFound.
        """
        fate = find_fate(self._past, ledger_id)
        returning = find_restorable(self._reader, ledger_id, fate, with_gaps=self._asked.with_gaps, last=last)
        if not returning.entries:
            return returning
        owners = find_owners(self._txn, ledger_id)
        if owners or ledger_id in self._taken:
            who = f"{owners[0].kind} {owners[0].topic}" if owners else "another restored topic"
            raise errors.Refused(
                f"ledger {ledger_id} is referenced by {who}: of two topics that list a ledger, the first to trim it deletes it for both",
                hint="copy the content of the old topic at that time with: pulsar-admin topics restore TOPIC --at TIME",
                ledgerId=ledger_id,
            )
        self._taken.add(ledger_id)
        forgetful = find_bookies_without_rows(self._indexed, ledger_id, returning.metadata)
        self._forgotten.update({ledger_id: forgetful} if forgetful else {})
        # The ledger's own metadata must name the topic under its new name; a claim that it never made is not added.
        custom = returning.metadata.custom
        kept = {key: claims.get(key, value) for key, value in custom.items()}
        step = ledger_step(self._txn, returning, self._now_ms, kept)
        self._steps[step.key] = step
        return returning

    def _leave(self, taken: Iterable[RestorableLedger]) -> None:
        """Drop the planned ledgers ``taken``, because nothing would reference them."""
        for one in taken:
            self._taken.discard(one.ledger_id)
            self._forgotten.pop(one.ledger_id, None)
            self._steps.pop(tree_key(ledger_path(one.ledger_id)), None)

    def _topic_part(
        self, then: PastTopic, topic: Topic, returned: tuple[int, ...], there: tuple[int, ...]
    ) -> ChangePart:
        ranks = [(topic.ranks[place], topic.ranks[place + 1]) for place, one in enumerate(topic.ids) if one in returned]
        before = {"ledgers": list(there)} if there else None
        after = {
            "was": str(then.name),
            "deleted": then.gone_ms or None,
            "ledgers": topic.ids,
            "entries": topic.number_of_entries,
        }
        return ReturnedPart(
            topic=str(topic.name), before=before, after=after, extent=extent_of(self._txn, topic, ranks)
        )

    # -- subscriptions ------------------------------------------------------------------------------------------------

    def _cursors(
        self, then: PastTopic, topic: Topic, there: Mapping[int, LedgerInfo], copies: Copies
    ) -> Iterator[tuple[str, CursorState]]:
        """Plan the topic's cursors as they were; ``there``: the ledgers that the topic has already, whose acknowledgements stay."""
        for name, cursor in then.cursors.items():
            if name.startswith(REPLICATOR_PREFIX) and topic.name != then.name:
                continue  # a topic that is not replicated has no use for it, and it would keep every ledger
            state = _in_copies(cursor.state, copies)
            if cursor.problem:
                self._warnings[f"{topic.name} {name}: {cursor.problem}"] = None
            node = find_node(self._txn, topic.name.cursor_path(name))
            if node is not None and then.gone_ms is not None:  # the topic was created again, and the subscription
                if not is_own(name):
                    present = read_cursor(self._txn, self._reader, read_topic(self._txn, topic.name), name)
                    joined = _joined_state(topic, there, state, present.state)
                    self._put_cursor(topic, name, joined, PastCursor(present.info, joined, node.value))
                    yield name, joined
                continue
            if name == COMPACTION_CURSOR:
                state = self._compacted(topic, state)
            self._put_cursor(topic, name, state, cursor)
            yield name, state

    def _put_cursor(self, topic: Topic, name: str, state: CursorState, was: PastCursor | None = None) -> None:
        kept = {} if was is None else was.info.shown_properties
        active_ms = self._now_ms if was is None else was.info.last_active_ms
        value = encode_cursor_info(info_of_state(state, kept, active_ms), b"" if was is None else was.value)
        self._put(topic.name.cursor_path(name), value)

    def _compacted(self, topic: Topic, state: CursorState) -> CursorState:
        """Return the state of the compaction cursor: with its compacted ledger where that comes back whole, else at the beginning."""
        ledger_id = state.properties.get(COMPACTED_LEDGER)
        if ledger_id is None:
            return state
        reason = ""
        try:
            returning = self._take(ledger_id, {COMPACTED_TOPIC: str(topic.name).encode()})
            reason = lost_text(returning) or ("" if returning.entries else f"ledger {ledger_id} has no entries")
            if reason:
                self._leave([returning])
        except (errors.Refused, errors.LedgerNotFound) as error:
            reason = error.message
        # A view that lost entries would hide keys from readers; without one they get the topic itself.
        if not reason:
            return state
        self._warnings[f"{topic.name}: its compacted view cannot be restored, compact it again: {reason}"] = None
        return CursorState(topic.first_position)

    # -- namespaces, base topics --------------------------------------------------------------------------------------

    def add_namespace(self, namespace: NamespaceName) -> None:
        """Restore a namespace's policies, and its tenant, if they were deleted."""
        tenant = tenant_path(namespace.tenant)
        for path in (tenant, namespace.policies_path, local_policies_path(namespace)):
            fate = self._past.fates.get(path)
            if fate is not None and find_node(self._txn, path) is None:
                self._put(path, _not_deleted(fate.value, path))
                if path == namespace.policies_path:
                    self._parts.insert(0, ChangePart(namespace=str(namespace), after={"policies": "as they were"}))
        if (
            find_node(self._txn, namespace.policies_path) is None
            and tree_key(namespace.policies_path) not in self._steps
        ):
            raise errors.NamespaceNotFound(
                f"{namespace} does not exist, and the history has no policies for it",
                hint=f"create it first: pulsar-admin namespaces create {shell_word(namespace)}",
                namespace=str(namespace),
            )

    def add_base(self, base: TopicName, target: TopicName, copies: Copies) -> None:
        """Restore the record of a partitioned topic and its schema under the target's name, with copies in the place of some ledgers."""
        fate = self._past.fates.get(base.partitioned_path)
        if fate is not None and find_node(self._txn, target.partitioned_path) is None:
            self._put(target.partitioned_path, _not_deleted(fate.value, base.partitioned_path))
        schema = self._past.fates.get(base.schema_path)
        if schema is None or find_node(self._txn, target.schema_path) is not None or not schema.value:
            return
        locator = decode_schema_locator(schema.value, base.schema_path)
        returning = list[RestorableLedger]()
        try:
            for one in locator.ledger_ids:
                returning += [] if one in copies else [self._take(one, schema_claims(target))]
        except (errors.Refused, errors.LedgerNotFound) as error:
            self._leave(returning)
            self._warnings[f"{target}: its schema cannot be restored: {error.message}"] = None
            return
        lost = [text for text in map(lost_text, returning) if text]
        if lost:
            self._warnings[f"{target}: versions of its schema are lost: {'; '.join(lost)}"] = None
        moved = SchemaLocator(_moved(locator.newest, copies), tuple(_moved(one, copies) for one in locator.index))
        self._put(target.schema_path, encode_schema_locator(moved, schema.value))


def _topic(name: TopicName, managed: ManagedLedger, measured: Iterable[TopicLedger], now_ms: int) -> Topic:
    """Return the topic of a ManagedLedgerInfo; ``measured``: more exact sizes of some of its ledgers."""
    known = {ledger.ledger_id: ledger for ledger in measured}
    ledgers = tuple(
        known.get(info.ledger_id) or TopicLedger(info, info.entries, info.size_bytes, False) for info in managed.ledgers
    )
    return Topic(name, NodeStat(0, 0, now_ms, now_ms, False), managed, ledgers)


def _moved(entry: IndexEntry, copies: Copies) -> IndexEntry:
    copy = copies.get(entry.position.ledger_id)
    return entry if copy is None else replace(entry, position=Position(copy.ledger_id, entry.position.entry_id))


def _in_copies(state: CursorState, copies: Copies) -> CursorState:
    """Return a cursor's state with its positions moved into the copies of its topic's ledgers.

    Positions in a ledger that was not copied, because it was empty or is lost, move to the end of the copy before it: copies
    have higher ids than any original, so otherwise all their entries would come after the position.
    """
    ids = sorted(copies)

    def moved(position: Position) -> Position:
        place = bisect_right(ids, position.ledger_id)
        if not place:
            return position
        copy = copies[ids[place - 1]]
        return Position(copy.ledger_id, position.entry_id if position.ledger_id in copies else copy.entries - 1)

    ranges = ((moved(lower), moved(upper)) for lower, upper in state.ranges)
    batches = {
        moved(position): words
        for position, words in state.batch_deletes.items()
        if position.ledger_id in copies or moved(position) == position
    }
    return replace(
        state,
        mark_delete=moved(state.mark_delete),
        ranges=tuple((lower, upper) for lower, upper in ranges if lower < upper),
        batch_deletes=batches,
    )


def _joined_state(topic: Topic, there: Iterable[int], then: CursorState, present: CursorState) -> CursorState:
    """Return a state with the acknowledgements of ``then`` in restored ledgers, and of ``present`` in those
    ``there``."""
    first = topic.rank(Position(min(there, default=topic.ids[-1] + 1), 0))
    earlier, later = ack_history.pending_of(topic, then), ack_history.pending_of(topic, present)
    entries = union(
        (
            *((start, min(end, first)) for start, end in earlier.entries if start < first),
            *((max(start, first), end) for start, end in later.entries if end > first),
        )
    )
    batches = {at: words for at, words in earlier.batches.items() if topic.rank(at) < first}
    batches |= {at: words for at, words in later.batches.items() if topic.rank(at) >= first}
    return ack_history.state_of(topic, ack_history.Pending(entries, batches), present)


def _is_held(topic: Topic, ledger_id: int, states: Iterable[CursorState]) -> bool:
    """Whether a subscription's position is in or before this ledger, so that no broker trims it."""
    ledger = topic.ledger(ledger_id)
    assert ledger is not None
    end = topic.rank(Position(ledger_id, ledger.entries))
    return any(topic.place(state.mark_delete) < end for state in states)


def _not_deleted(value: bytes, path: str) -> bytes:
    """Return a node's JSON value without ``deleted``, which a broker sets before it deletes an object of several
    parts."""
    fields = decode_json_object(value, path) if value else {}
    if fields.get("deleted") is not True:
        return value
    return json.dumps(fields | {"deleted": False}, separators=(",", ":")).encode()


def read_deleted_topics(reader: EntryReader, names: Sequence[TopicName], places: Iterable[str]) -> list[Topic]:
    """Return deleted topics, or the deleted partitions of topics, with the entries of their ledgers that are still here.

    None unless the ZooKeeper files of the store's sources, or of other places, record the deletion of each.
    """
    try:
        past = read_own_past(reader, places, keep_of(name.namespace for name in names))
        gone = [read_deleted(reader, one, past, trimmed=True) for one in find_deleted(past, names, [])]
    except (errors.Refused, errors.TopicNotFound):
        return []
    deleted = []
    for then in gone:
        ledgers = []
        for info in then.infos:
            with suppress(errors.LedgerNotFound):
                entries = read_ledger(reader.txn, info.ledger_id).last_entry_id + 1
                ledgers.append(TopicLedger(info, entries, info.size_bytes, False))
        managed = ManagedLedger(tuple(ledger.info for ledger in ledgers))
        deleted.append(Topic(then.name, NodeStat(0, 0, 0, then.gone_ms or 0, False), managed, tuple(ledgers)))
    return deleted


# -- a topic as it was at a time --------------------------------------------------------------------------------------


def read_topic_at(
    reader: EntryReader, name: TopicName, past: Past, cursors: ack_history.CursorHistory, at_ms: int
) -> PastTopic:
    """Return a topic as it was at ``at_ms``; raises TopicNotFound if it did not exist then, or if the history begins later."""
    fate = past.fates.get(name.path)
    if fate is None or fate.then is None:
        began = "" if past.begins_ms is None else f", which begins at {format_time_ms(past.begins_ms)}"
        raise errors.TopicNotFound(
            f"{name} did not exist at {format_time_ms(at_ms)} according to the history{began}",
            hint="name older files of ZooKeeper with --zookeeper DIR",
            topic=str(name),
        )
    infos, ends = list[LedgerInfo](), dict[int, int]()
    for info in decode_managed_ledger(fate.then, name.path).ledgers:
        infos.append(past.listed[name][info.ledger_id].info)
        if not info.timestamp_ms:  # it was open
            last = _last_until(reader, info.ledger_id, at_ms)
            ends |= {} if last is None else {info.ledger_id: last}
    then = PastTopic(name, fate.then, tuple(infos), {}, None, ends)
    return replace(then, cursors=dict(_cursors(reader, then, past, cursors, at_ms)))


def _last_until(reader: EntryReader, ledger_id: int, at_ms: int) -> int | None:
    """Return the last entry that a ledger had at ``at_ms`` by the broker's clock, otherwise by the producers'; None if no entry has a time.

    Unreadable entries have no known time: like lost ones, they count if the entry before them does.
    """
    try:
        end = last = read_ledger(reader.txn, ledger_id).last_entry_id
    except errors.LedgerNotFound:
        return None
    while last >= 0:
        with suppress(errors.EntryCorrupt, errors.EntryNotFound):
            publish_ms, broker_ms = decode_entry_times(reader.read(ledger_id, last).payload)
            if (publish_ms if broker_ms is None else broker_ms) <= at_ms:
                break
            end = last - 1
        last -= 1
    return end


def _cursors(
    reader: EntryReader, then: PastTopic, past: Past, history: ack_history.CursorHistory, at_ms: int
) -> Iterator[tuple[str, PastCursor]]:
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
    reader: EntryReader, topic: Topic, name: str, value: bytes, history: ack_history.CursorHistory, at_ms: int
) -> PastCursor:
    """Return a cursor's state at ``at_ms``; if several may have been in force, the one that redelivers most, to lose
    nothing."""
    info = decode_cursor_info(value, topic.name.cursor_path(name))
    state = CursorState(info.mark_delete or topic.first_position, info.ranges, info.batch_deletes, info.properties)
    if not info.is_in_ledger:
        return PastCursor(info, state, value)
    cursor = Cursor(topic.name, name, topic.stat, info, state, CursorSource.METADATA)
    try:
        in_force = ack_history.state_in_force(history.states(reader, topic, name), topic, cursor, at_ms, "redeliver")
    except (errors.NothingMatches, errors.SubscriptionNotFound) as error:
        return PastCursor(info, state, value, error.message)
    return PastCursor(info, in_force.state or state, value, "; ".join(in_force.warnings) or in_force.problem)


# -- the change -------------------------------------------------------------------------------------------------------


def find_topics_at(past: Past, name: TopicName) -> list[TopicName]:
    """Return the topics that a name means: the partitions at that time, else the topic itself."""
    had = [one for one in past.listed if one.base == name and past.fates[one.path].then is not None]
    return sorted(one for one in had if one != name) or [name]


class RestoreAt(Struct, frozen=True):
    """The request: a topic as of ``at_ms``, restored as ``to`` or under the name of ``target_of``; ``zookeeper``: other places of its
    files than the store's. Raises InvalidValue."""

    topic: TopicName
    at_ms: int
    asked: Undelete
    to: TopicName | None
    zookeeper: Sequence[str]

    def __post_init__(self) -> None:
        if self.to is not None and self.asked.in_place:
            text = "to names the restored topic, in_place restores it under its own name"
            raise errors.InvalidValue(text, value=str(self.to))


def plan_restore_at(reader: EntryReader, wanted: RestoreAt, now_ms: int) -> Plan | WritingPlan:
    """Plan restoring a topic as it was at a time, from ZooKeeper's files; raises as ``read_topic_at`` and ``TopicRestorer``, Refused and
    SourceNotFound without files, NothingMatches for a time that is counted from now, but after the end of an older copy."""
    check_now_is_meant(reader, wanted.at_ms, now_ms)
    past = read_own_past(reader, wanted.zookeeper, keep_of([wanted.topic.namespace]), wanted.at_ms)
    names = find_topics_at(past, wanted.topic)
    paths = [path for path in past.fates if path.startswith(tuple(f"{name.path}/" for name in names))]
    cursors = ack_history.find_cursor_history(reader.txn.store.info.sources, wanted.zookeeper, paths)
    thens = [read_topic_at(reader, name, past, cursors, wanted.at_ms) for name in names]
    named = _named(thens, wanted.to, wanted.asked)
    return Restoring(
        ChangeKind("topics restore", "restore {place}"), past, named, wanted.asked, now_ms, not wanted.asked.in_place
    ).plan(reader)


class RestoreDeleted(Struct, frozen=True):
    """The request: deleted topics, and all of namespaces; ``to``: a single one's new name. ``zookeeper``: other places of its files than
    the store's; ``by_evidence``: entries instead of a history. Raises InvalidValue."""

    topics: Sequence[TopicName]
    namespaces: Sequence[NamespaceName]
    asked: Undelete
    to: TopicName | None
    zookeeper: Sequence[str]
    by_evidence: bool

    def __post_init__(self) -> None:
        if self.to is not None and (self.asked.in_place or self.namespaces or len(self.topics) != 1):
            hint = "name one topic; leave out --namespace and --in-place"
            raise errors.InvalidValue(
                f"the name {self.to} is for a single restored topic", hint=hint, value=str(self.to)
            )


def plan_undelete(reader: EntryReader, wanted: RestoreDeleted, now_ms: int) -> Plan | WritingPlan:
    """Plan restoring deleted topics, or the trimmed ledgers of existing ones, under the names of ``target_of``.

    Raises TopicNotFound, NamespaceNotFound, AlreadyExists, Refused, LedgerNotFound, MetadataCorrupt, SourceNotFound.
    """
    keep, asked = keep_of((*(name.namespace for name in wanted.topics), *wanted.namespaces)), wanted.asked
    try:
        past = read_deletions(reader, wanted.zookeeper, keep, by_evidence=wanted.by_evidence)
        deleted = find_deleted(past, wanted.topics, wanted.namespaces)
        names = (name for name in deleted if asked.in_place or not name.is_system)
        thens = [read_deleted(reader, name, past, trimmed=asked.trimmed) for name in names]
        kind = ChangeKind("topics undelete", "restore {place}")
        return Restoring(kind, past, _named(thens, wanted.to, asked), asked, now_ms).plan(reader)
    except (errors.TopicNotFound, errors.Refused) as error:
        check_vanished(reader, wanted.topics, error)
        raise


def _named(thens: Iterable[PastTopic], to: TopicName | None, asked: Undelete) -> dict[TopicName, PastTopic]:
    return {target_of(then.name, to, in_place=asked.in_place): then for then in thens}


class _Copy(Struct, frozen=True):
    """A ledger to copy: its ``LedgerInfo``, up to the last entry to copy, and the custom metadata of the copy."""

    info: LedgerInfo
    spec: LedgerSpec


class Restoring(Struct, frozen=True):
    """Topics at an earlier time, by the name under which each is restored.

    ``copies_referenced``: copy ledgers that something else references; otherwise they are refused.
    """

    kind: ChangeKind
    past: Past
    thens: Mapping[TopicName, PastTopic]
    asked: Undelete
    now_ms: int
    copies_referenced: bool = False

    def plan(self, reader: EntryReader) -> Plan | WritingPlan:
        """Return the change; one that copies ledgers writes them first. Raises what ``TopicRestorer`` does."""
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

        return WritingPlan(self.kind, planned.txn_id, lambda: (planned.preview(),), make)

    def _bases(self) -> list[tuple[TopicName, TopicName]]:
        """Return (topic without partition number, the name it is restored under), each once."""
        return list({then.name.base: target.base for target, then in self.thens.items()}.items())

    def _planned(self, reader: EntryReader, copies: Copies) -> Plan:
        why = "its ledgers had no entries then" if self.copies_referenced else "it lists every ledger that had entries"
        comeback = TopicRestorer(reader, self.past, self.asked, self.now_ms, why)
        nothing: list[errors.TopicNotFound] = []
        for target, then in self.thens.items():
            try:
                comeback.add_topic(then, target, copies)
            except errors.TopicNotFound as error:
                nothing.append(error)
                comeback.warn(error.message)
        if nothing and len(nothing) == len(self.thens):
            raise nothing[0]
        for namespace in dict.fromkeys(target.namespace for target in self.thens):
            comeback.add_namespace(namespace)
        for base, target in self._bases():
            comeback.add_base(base, target, copies)
        return comeback.plan(self.kind)

    def _topic_copies(self, reader: EntryReader, then: PastTopic, target: TopicName) -> Iterator[_Copy]:
        """Yield the ledgers to copy: all, or those from the first referenced one on; none when restoring in place."""
        ids = [info.ledger_id for info in then.infos]
        referenced = (place for place, one in enumerate(ids) if self.copies_referenced and find_owners(reader.txn, one))
        first = 0 if self.asked.copy else next(referenced, len(ids))
        if self.asked.copy and find_node(reader.txn, target.path) is not None:
            raise errors.Refused(
                f"{target} exists: copies would come after its messages",
                hint="restore them under another name, without --in-place",
                topic=str(target),
            )
        spec = LedgerSpec(topic_claims(target))
        for info in then.infos[first:]:
            readable = self._find(reader, info.ledger_id, then.ends.get(info.ledger_id))
            if readable is not None:
                closed_ms = info.timestamp_ms or readable.written_ms or self.now_ms
                yield _Copy(LedgerInfo(info.ledger_id, readable.entries, readable.metadata.length, closed_ms), spec)

    def _schema_copies(self, reader: EntryReader, base: TopicName, target: TopicName) -> Iterator[_Copy]:
        fate = self.past.fates.get(base.schema_path)
        if fate is None or not fate.value or find_node(reader.txn, target.schema_path) is not None:
            return
        spec = LedgerSpec(schema_claims(target))
        for ledger_id in decode_schema_locator(fate.value, base.schema_path).ledger_ids:
            if self.asked.copy or (self.copies_referenced and find_owners(reader.txn, ledger_id)):
                readable = self._find(reader, ledger_id, None)
                if readable is not None:
                    yield _Copy(LedgerInfo(ledger_id, readable.entries, readable.metadata.length, self.now_ms), spec)

    def _find(self, reader: EntryReader, ledger_id: int, last: int | None) -> RestorableLedger | None:
        """Return a ledger up to its first lost entry, or up to ``last``; None if no entry can be restored."""
        with suppress(errors.LedgerNotFound):
            returning = find_restorable(reader, ledger_id, find_fate(self.past, ledger_id), last=last)
            return returning if returning.entries else None
        return None

    def _write(
        self, store: Store, reader: EntryReader, copied: Sequence[_Copy]
    ) -> tuple[WrittenLedgers, dict[int, LedgerInfo]]:
        """Write the copies; return them, and their entries for the topic's list by the id of the copied ledger."""
        written = write_ledgers(
            store, ((copy.spec, reader.payloads(copy.info.ledger_id, copy.info.entries)) for copy in copied)
        )
        pairs = zip((copy.info for copy in copied), written.ledgers, strict=True)
        return written, {info.ledger_id: replace(info, ledger_id=new.ledger_id) for info, new in pairs}
