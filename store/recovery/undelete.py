"""Deleted topics and namespaces, and trimmed ledgers of topics, come back.

A ledger is in one topic only: a broker that trims or deletes a topic deletes its ledgers. So what anything references is never given
to a topic a second time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.store.changes.cursors import info_of_state, state_json
from pulsar_admin.store.changes.plan import ChangePart, Plan, Step, put_value_step
from pulsar_admin.store.changes.subscriptions import shown_properties
from pulsar_admin.store.codec.claims import COMPACTED_TOPIC, schema_claims, topic_claims
from pulsar_admin.store.codec.cursor import CursorState, encode_cursor_info
from pulsar_admin.store.codec.managedledger import (
    LedgerInfo,
    ManagedLedger,
    decode_managed_ledger,
    encode_managed_ledger,
)
from pulsar_admin.store.codec.policies import decode_json_object
from pulsar_admin.store.codec.rocksvalue import NodeStat
from pulsar_admin.store.codec.schema import IndexEntry, SchemaLocator, decode_schema_locator, encode_schema_locator
from pulsar_admin.store.db.owners import find_owners
from pulsar_admin.store.db.tree import find_node, tree_key
from pulsar_admin.store.errors import (
    AlreadyExists,
    LedgerNotFound,
    NamespaceNotFound,
    Refused,
    StoreError,
    TopicNotFound,
)
from pulsar_admin.store.facts.vanished import find_vanished
from pulsar_admin.store.model.bundles import local_policies_path
from pulsar_admin.store.model.cursors import COMPACTION_CURSOR, REPLICATOR_PREFIX
from pulsar_admin.store.model.extent import extent_of
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.references import COMPACTED_LEDGER
from pulsar_admin.store.model.resources import tenant_path
from pulsar_admin.store.model.topics import Topic, TopicLedger, read_topic
from pulsar_admin.store.names import NamespaceName, Position, TopicName, parse_topic, shell_word
from pulsar_admin.store.recovery.ledgers import Returning, find_returning, index_texts, ledger_step, lost_text
from pulsar_admin.store.recovery.metadata_index import find_forgetful, read_indexed
from pulsar_admin.store.recovery.past import CursorThen, Keep, Past, TopicThen, find_fate, is_ledger
from pulsar_admin.store.wording import counted, listed, plural

SUFFIX = "-restored"
_SHOWN = 10
Copies = Mapping[int, LedgerInfo]
"""Ledger id → how a topic lists the copy of it."""
_NO_COPIES: Copies = {}
_ROOTS = ("/managed-ledgers", "/admin/partitioned-topics", "/admin/policies", "/admin/local-policies", "/schemas")


class Undelete(Struct, frozen=True):
    """What is asked for. ``in_place``: under the old name; ``trimmed``: of deleted topics also what was trimmed before; ``with_gaps``:
    ledgers keep their end though entries are lost; ``hold``: the subscription that keeps what no other one does, "" for none; ``copy``:
    all entries go into new ledgers, none of the old ones comes back.
    """

    in_place: bool = False
    trimmed: bool = False
    with_gaps: bool = False
    hold: str = "restored"
    copy: bool = False


def keep_of(namespaces: Iterable[NamespaceName]) -> Keep:
    """Return what of the history is of topics of NAMESPACES, for ``store.recovery.past.read_past``."""
    names = [str(name) for name in dict.fromkeys(namespaces)]
    tenants = {tenant_path(name.partition("/")[0]) for name in names}
    prefixes = tuple(f"{root}/{name}" for name in names for root in _ROOTS)
    claims = [f"{name}/".encode() for name in names]

    def keep(path: str, value: bytes) -> bool:
        if is_ledger(path):
            return any(claim in value for claim in claims)
        return path in tenants or path.startswith(prefixes)

    return keep


def target_of(name: TopicName, to: TopicName | None, *, in_place: bool) -> TopicName:
    """Return the name that NAME comes back under: its own, TO, or ``NAME-restored``; partitions keep their numbers."""
    if in_place:
        return name
    base = to or TopicName(name.namespace, name.base.local_name + SUFFIX)
    return base if name.partition_index < 0 else base.partition(name.partition_index)


def find_deleted(past: Past, names: Iterable[TopicName], namespaces: Iterable[NamespaceName]) -> list[TopicName]:
    """Return the topics that NAMES mean, partitions in place of a partitioned one, and all deleted ones of NAMESPACES.

    Raises TopicNotFound, NamespaceNotFound.
    """
    found: dict[TopicName, None] = {}
    for name in names:
        parts = [
            one
            for one, listed in past.listed.items()
            if one.base == name != one and any(listing.gone_ms is not None for listing in listed.values())
        ]
        for one in sorted(parts) if parts else [name]:
            found[one] = None
    for namespace in namespaces:
        gone = [one for one in past.listed if one.namespace == namespace and past.fates[one.path].gone_ms is not None]
        if not gone:
            raise NamespaceNotFound(
                f"the history has no deleted topic of {namespace}",
                hint="name files of ZooKeeper that reach further back with --zookeeper DIR",
                namespace=str(namespace),
            )
        found.update(dict.fromkeys(sorted(gone)))
    return list(found)


def check_vanished(reader: EntryReader, names: Iterable[TopicName], why: StoreError) -> None:
    """Raise Refused where the node of one of NAMES is gone without a deletion: no history says what it was, its ledgers do. WHY: what
    the history was not enough for.
    """
    for topic in find_vanished(reader).topics:
        if topic.name in names or topic.name.base in names:
            count, what = len(topic.ledger_ids), "ledger"
            hint = "make the node again from what the ledgers say: pulsar-admin store recover --level A"
            if not count:
                count, what = len(topic.subscriptions), "subscription"
                hint = "no list names its ledgers either; what bookies hold and nothing lists: pulsar-admin ledgers orphans"
            raise Refused(
                f"{topic.name} was not deleted as brokers do it: its node is gone, and {counted(count, what)} of it"
                f" {plural(count, 'is', 'are')} still listed ({why.message})",
                hint=hint,
                topic=str(topic.name),
            ) from why


class Comeback:
    """Collects the steps and parts of topics that come back."""

    def __init__(self, reader: EntryReader, past: Past, asked: Undelete, now_ms: int) -> None:
        self._indexed = read_indexed(reader.txn.store.info)
        self._forgotten: dict[int, list[str]] = {}
        self._reader = reader
        self._txn = reader.txn
        self._past = past
        self._asked = asked
        self._now_ms = now_ms
        self._steps: dict[bytes, Step] = {}
        self._parts: list[ChangePart] = []
        self._taken: set[int] = set()
        self._warnings: dict[str, None] = {}

    def plan(self, command: str) -> Plan:
        """Return all of it as one change."""
        if self._taken:
            self._warnings.update(dict.fromkeys(index_texts(self._indexed, self._forgotten)))
        names = sorted({str(parse_topic(part.topic).namespace) for part in self._parts if part.topic})
        self._warnings[
            f"a broker that serves {', '.join(names)} does not notice: unload it on the live cluster (namespaces unload), then:"
            " pulsar-admin store export zookeeper HOST:PORT"
        ] = None
        for gap in self._past.gaps:
            self._warnings[f"the history is not whole: {gap}"] = None
        return Plan(
            command, self._txn.id, tuple(self._steps.values()), tuple(self._parts), warnings=tuple(self._warnings)
        )

    def warn(self, text: str) -> None:
        """Tell TEXT with the plan."""
        self._warnings[text] = None

    def _put(self, path: str, value: bytes) -> None:
        step = put_value_step(self._txn, path, value, self._now_ms)
        self._steps[step.key] = step

    # -- topics -------------------------------------------------------------------------------------------------------

    def add_topic(self, then: TopicThen, target: TopicName, copies: Copies = _NO_COPIES) -> None:
        """Bring THEN back as TARGET, COPIES in place of ledgers of it; raises AlreadyExists, TopicNotFound, Refused."""
        node = find_node(self._txn, target.path)
        if node is not None and not self._asked.in_place:
            raise AlreadyExists(
                f"{target} exists", hint="name another topic with --to, or give --in-place", topic=str(target)
            )
        present = ManagedLedger() if node is None else decode_managed_ledger(node.value, node.path)
        there = {info.ledger_id: info for info in present.ledgers}
        texts = list(self._past.witnesses.get(then.name, ()))
        own = [info.ledger_id for info in then.infos if info.ledger_id in copies]
        if own:
            texts.append(f"the entries of {_ids_text(own)} are copied into ledgers of its own")
        returned = dict(self._returning(then, target, there, texts, copies))
        if not (returned or then.cursors) and (node is not None or then.gone_ms is None):
            raise TopicNotFound(
                f"nothing of {then.name} comes back: {'; '.join(texts) or 'it lists every ledger that it had'}",
                hint="bookies have freed what is missing; see: pulsar-admin ledgers list",
                topic=str(then.name),
            )
        infos = there | returned
        managed = replace(present, ledgers=tuple(infos[one] for one in sorted(infos)))
        if node is None:
            managed = replace(managed, properties=then.managed.properties, terminated=then.managed.terminated)
        self._put(target.path, encode_managed_ledger(managed, then.value if node is None else node.value))
        measured = () if node is None else read_topic(self._txn, target).ledgers
        topic = _topic(target, managed, measured, self._now_ms)
        cursors = dict(self._cursors(then, topic, copies))
        held = [state for name, state in cursors.items() if name != COMPACTION_CURSOR]
        if self._asked.hold and returned and not _is_held(topic, min(returned), held):
            cursors[self._asked.hold] = CursorState(Position(min(returned), -1))
            self._put_cursor(topic, self._asked.hold, cursors[self._asked.hold])
            texts.append(
                f"subscription {self._asked.hold} keeps what no other one does: brokers trim it once that is removed, unless retention"
                " keeps it"
            )
        self._parts.append(self._topic_part(then, topic, tuple(returned), tuple(there)))
        self._warnings.update(dict.fromkeys(f"{target}: {text}" for text in texts))
        self._parts += [
            ChangePart(topic=str(target), subscription=name, after=state_json(topic, state))
            for name, state in cursors.items()
        ]

    def _returning(
        self,
        then: TopicThen,
        target: TopicName,
        there: Mapping[int, LedgerInfo],
        texts: list[str],
        copies: Copies,
    ) -> Iterator[tuple[int, LedgerInfo]]:
        """Yield the ledgers of THEN that come back, or COPIES of them, and are not THERE, and tell of others in TEXTS."""
        for info in then.infos:
            if info.ledger_id in copies:  # as its entries are ours, no other topic loses them
                yield copies[info.ledger_id].ledger_id, copies[info.ledger_id]
            if info.ledger_id in there or info.ledger_id in copies:
                continue
            try:
                found = self._take(info.ledger_id, topic_claims(target), then.ends.get(info.ledger_id))
            except LedgerNotFound as error:
                texts.append(error.message)
                continue
            if lost_text(found):
                texts.append(lost_text(found))
            if found.entries:
                yield info.ledger_id, _listed_again(info, found)

    def _take(self, ledger_id: int, claims: Mapping[str, bytes], last: int | None = None) -> Returning:
        """Return a ledger that nothing references, up to its entry LAST, with its step made; raises Refused, LedgerNotFound."""
        owners = find_owners(self._txn, ledger_id)
        if owners or ledger_id in self._taken:
            who = f"{owners[0].kind} {owners[0].topic}" if owners else "another topic that comes back"
            raise Refused(
                f"ledger {ledger_id} is referenced by {who}: of two topics that list a ledger, the first to trim it deletes it for both",
                hint="copy what the old topic had then with: pulsar-admin topics restore TOPIC --at TIME",
                ledgerId=ledger_id,
            )
        self._taken.add(ledger_id)
        fate = find_fate(self._past, ledger_id)
        found = find_returning(self._reader, ledger_id, fate, with_gaps=self._asked.with_gaps, last=last)
        if found.entries:
            forgetful = find_forgetful(self._indexed, ledger_id, found.metadata)
            self._forgotten.update({ledger_id: forgetful} if forgetful else {})
            custom = found.metadata.custom
            kept = {key: claims.get(key, value) for key, value in custom.items()}
            step = ledger_step(self._txn, found, self._now_ms, kept)
            self._steps[step.key] = step
        return found

    def _topic_part(
        self, then: TopicThen, topic: Topic, returned: tuple[int, ...], there: tuple[int, ...]
    ) -> ChangePart:
        ranks = [(topic.ranks[place], topic.ranks[place + 1]) for place, one in enumerate(topic.ids) if one in returned]
        before = {"ledgers": list(there)} if there else None
        after = {
            "was": str(then.name),
            "deleted": then.gone_ms or None,
            "ledgers": topic.ids,
            "entries": topic.number_of_entries,
        }
        return ChangePart(
            topic=str(topic.name),
            before=before,
            after=after,
            extent=extent_of(self._txn, topic, ranks),
        )

    # -- subscriptions ------------------------------------------------------------------------------------------------

    def _cursors(self, then: TopicThen, topic: Topic, copies: Copies) -> Iterator[tuple[str, CursorState]]:
        for name, cursor in then.cursors.items():
            if name.startswith(REPLICATOR_PREFIX) and topic.name != then.name:
                continue  # a topic that is not replicated has no use for it, and it would keep every ledger
            state = _in_copies(cursor.state, copies)
            if cursor.problem:
                self._warnings[f"{topic.name} {name}: {cursor.problem}"] = None
            if name == COMPACTION_CURSOR:
                state = self._compacted(topic, state)
            self._put_cursor(topic, name, state, cursor)
            yield name, state

    def _put_cursor(self, topic: Topic, name: str, state: CursorState, was: CursorThen | None = None) -> None:
        kept = {} if was is None else shown_properties(was.info.cursor_properties)
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
            found = self._take(ledger_id, {COMPACTED_TOPIC: str(topic.name).encode()})
            reason = lost_text(found)
        except (Refused, LedgerNotFound) as error:
            reason = error.message
        if not reason:
            return state
        self._warnings[f"{topic.name}: its compacted view does not come back, compact it again: {reason}"] = None
        return CursorState(topic.first_position)

    # -- what is beside topics ----------------------------------------------------------------------------------------

    def add_namespace(self, namespace: NamespaceName) -> None:
        """Bring back NAMESPACE's policies, and its tenant, where they were deleted."""
        tenant = tenant_path(namespace.tenant)
        for path in (tenant, namespace.policies_path, local_policies_path(namespace)):
            value = self._lost(path)
            if value is not None:
                self._put(path, _not_deleted(value, path))
                if path == namespace.policies_path:
                    self._parts.insert(0, ChangePart(namespace=str(namespace), after={"policies": "as they were"}))
        if (
            find_node(self._txn, namespace.policies_path) is None
            and tree_key(namespace.policies_path) not in self._steps
        ):
            raise NamespaceNotFound(
                f"{namespace} does not exist, and the history has no policies of it",
                hint=f"make it first: pulsar-admin namespaces create {shell_word(namespace)}",
                namespace=str(namespace),
            )

    def add_base(self, base: TopicName, target: TopicName, copies: Copies = _NO_COPIES) -> None:
        """Bring back the record of partitions of BASE, and its schema, as TARGET's; COPIES in place of ledgers."""
        fate = self._past.fates.get(base.partitioned_path)
        if fate is not None and find_node(self._txn, target.partitioned_path) is None:
            self._put(target.partitioned_path, _not_deleted(fate.value, base.partitioned_path))
        schema = self._past.fates.get(base.schema_path)
        if schema is None or find_node(self._txn, target.schema_path) is not None or not schema.value:
            return
        locator = decode_schema_locator(schema.value, base.schema_path)
        try:
            found = [self._take(one, schema_claims(target)) for one in locator.ledger_ids if one not in copies]
        except (Refused, LedgerNotFound) as error:
            self._warnings[f"{target}: its schema does not come back: {error.message}"] = None
            return
        lost = [text for text in map(lost_text, found) if text]
        if lost:
            self._warnings[f"{target}: versions of its schema are lost: {'; '.join(lost)}"] = None
        moved = SchemaLocator(_moved(locator.newest, copies), tuple(_moved(one, copies) for one in locator.index))
        self._put(target.schema_path, encode_schema_locator(moved, schema.value))

    def _lost(self, path: str) -> bytes | None:
        """Return the value that the node at PATH had, None where it is there or never was."""
        fate = self._past.fates.get(path)
        return None if fate is None or find_node(self._txn, path) is not None else fate.value


def _topic(name: TopicName, managed: ManagedLedger, measured: Iterable[TopicLedger], now_ms: int) -> Topic:
    """Return the topic of MANAGED; MEASURED: ledgers of it whose sizes are known better."""
    known = {ledger.ledger_id: ledger for ledger in measured}
    ledgers = tuple(
        known.get(info.ledger_id) or TopicLedger(info, info.entries, info.size_bytes, False) for info in managed.ledgers
    )
    return Topic(name, NodeStat(0, 0, now_ms, now_ms, False), managed, ledgers)


def _listed_again(info: LedgerInfo, found: Returning) -> LedgerInfo:
    """Return how a topic lists a ledger that comes back: closed, and on bookies, wherever it was offloaded to."""
    return info._replace(
        entries=found.entries,
        size_bytes=found.metadata.length,
        timestamp_ms=info.timestamp_ms or found.written_ms,
        offloaded=False,
        offload_uuid=None,
        bookkeeper_deleted=False,
    )


def _moved(entry: IndexEntry, copies: Copies) -> IndexEntry:
    copy = copies.get(entry.position.ledger_id)
    return entry if copy is None else replace(entry, position=Position(copy.ledger_id, entry.position.entry_id))


def _ids_text(ids: Sequence[int]) -> str:
    """Return ledger ids for a person."""
    return f"{plural(len(ids), 'ledger')} {listed(ids, _SHOWN)}"


def _in_copies(state: CursorState, copies: Copies) -> CursorState:
    """Return STATE with its positions in the ledgers that were copied."""

    def moved(position: Position) -> Position:
        copy = copies.get(position.ledger_id)
        return position if copy is None else Position(copy.ledger_id, position.entry_id)

    ranges = tuple((moved(lower), moved(upper)) for lower, upper in state.ranges)
    batches = {moved(position): words for position, words in state.batch_deletes.items()}
    return replace(state, mark_delete=moved(state.mark_delete), ranges=ranges, batch_deletes=batches)


def _is_held(topic: Topic, ledger_id: int, states: Iterable[CursorState]) -> bool:
    """Whether a subscription stands in or in front of the ledger, so that no broker trims it."""
    ledger = topic.ledger(ledger_id)
    assert ledger is not None
    end = topic.rank(Position(ledger_id, ledger.entries))
    return any(topic.place(state.mark_delete) < end for state in states)


def _not_deleted(value: bytes, path: str) -> bytes:
    """Return VALUE without the mark that a broker sets before it deletes what has several parts."""
    fields = decode_json_object(value, path) if value else {}
    if fields.get("deleted") is not True:
        return value
    return json.dumps(fields | {"deleted": False}, separators=(",", ":")).encode()
