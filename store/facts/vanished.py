"""Topics that vanished: their node is gone, but ledgers whose metadata names them are still listed, or their subscriptions are.

Upstream ``ManagedLedgerImpl.asyncDelete`` and ``ManagedLedgerFactoryImpl`` (Pulsar 4.0.8): a broker deletes a topic's ledgers first and its
node last; subscriptions are deleted earlier still. So no such deletion leaves a ledger or cursor of a topic without a node, unless the
topic did not list the ledger any more: ZooKeeper's logs show what it listed.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress

from msgspec import Struct, field

from pulsar_admin.store.codec import claims
from pulsar_admin.store.codec.ledgermetadata import LedgerState, ledger_path
from pulsar_admin.store.codec.managedledger import LedgerInfo, decode_ledger_ids
from pulsar_admin.store.db.environment import Txn, once
from pulsar_admin.store.db.files import iter_metadata_damage
from pulsar_admin.store.db.ledger_ids import find_deleted
from pulsar_admin.store.db.owners import OwnerKind, find_owners, has_owners
from pulsar_admin.store.db.tree import has_row, read_node, tree_key
from pulsar_admin.store.errors import Refused, StoreError
from pulsar_admin.store.facts import Unknown
from pulsar_admin.store.history.servers import iter_logged
from pulsar_admin.store.model.broken import NOT_SEEN, find_missing
from pulsar_admin.store.model.broken_beside import find_unseen_states
from pulsar_admin.store.model.cursors import COMPACTION_CURSOR, iter_cursor_names, read_cursor
from pulsar_admin.store.model.ledger_owners import claimed_paths, loose_of
from pulsar_admin.store.model.ledgers import find_ledger, find_metadata, sorted_ledger_ids
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import (
    COMPACTED_LEDGER,
    Topic,
    iter_headless,
    iter_namespaces,
    iter_topics,
    list_all_tenants,
    partition_count,
    read_topic,
)
from pulsar_admin.store.names import LATEST, NamespaceName, Position, TopicName
from pulsar_admin.store.sources.roots import stored_roots

_OF_BROKERS = ("pulsar", "sla-monitor")
"""Tenants of namespaces for health checks."""


class VanishedTopic(Struct, frozen=True):
    """A topic whose node is gone without a deletion: its listed message ledgers, their entries and bytes, and the
    subscriptions whose nodes exist. ``has_namespace``: whether its namespace exists; if not, the topic may be another Pulsar's."""

    name: TopicName
    ledger_ids: tuple[int, ...]
    entries: int
    bytes: int
    subscriptions: tuple[str, ...] = ()
    has_namespace: bool = True


class BareNamespace(Struct, frozen=True):
    """A namespace of ``topics`` topics, those of the system not counted, whose policies are gone: a deletion removes its topics first."""

    name: NamespaceName
    topics: int


class DetachedView(Struct, frozen=True):
    """A compacted ledger that its topic no longer names, although the topic names no other one.

    ``unfit``: why a broker's readers would not get the whole view if the topic named it again; "" if they would. ``absent``: bookies that
    are not imported and should have all its missing entries, or, if the topic ``may_name_it``, the newest state of its compaction's cursor.
    """

    name: TopicName
    ledger_id: int
    entries: int
    bytes: int
    unfit: str
    absent: tuple[str, ...] = ()
    may_name_it: bool = False


class VanishedSchema(Struct, frozen=True):
    """A schema whose node (``BookkeeperSchemaStorage``'s locator) is gone, while its topic is there and ledgers of its versions are."""

    name: TopicName
    ledger_ids: tuple[int, ...]


class Vanished(Struct, frozen=True):
    """Nodes that are gone from the metadata while their ledgers are listed. ``schemas``: lost schemas of existing topics. ``kept``: ledgers
    that may be the only copy of something, including those of cursors and schemas of such topics: no finding advises to delete them.
    ``foreign``: those of ``kept`` whose owner is not in this metadata, without a log that shows its deletion: it vanished, or belongs to
    another Pulsar. ``owners``: the path of the node that each of these names as its owner. ``disowned``: listed ledgers whose owner was
    deleted, as a log or a change shows, here or where the incident bundle was made. ``off_list``: ledgers with messages of topics, and
    the topic of each, which does not list it, but lists none, or earlier ledgers, or has cursors at earlier positions: brokers remove
    ledgers only from the beginning of a list, only those before all cursors, and never all."""

    topics: tuple[VanishedTopic, ...] = ()
    views: tuple[DetachedView, ...] = ()
    schemas: tuple[VanishedSchema, ...] = ()
    kept: frozenset[int] = field(default_factory=frozenset)
    foreign: frozenset[int] = field(default_factory=frozenset)
    owners: Mapping[int, str] = field(default_factory=dict)
    disowned: frozenset[int] = field(default_factory=frozenset)
    off_list: Mapping[int, TopicName] = field(default_factory=dict)


class _LedgerOfGoneNode(Struct, frozen=True):
    """A ledger that names a missing node ``owner``; ``name``: that node's topic, None if it belongs to no topic that this version reads."""

    owner: str
    name: TopicName | None
    ledger_id: int
    component: bytes | None
    is_of_messages: bool
    is_of_schema: bool
    entries: int
    bytes: int


@once
def find_bare_namespaces(txn: Txn) -> tuple[BareNamespace, ...]:
    """Return the namespaces whose policies are gone, except brokers' own, which need none.

    None are returned if no namespace has policies, as brokers may keep them in another store (``configurationMetadataStoreUrl``), or
    if the metadata is incomplete."""
    bare, is_whole = list[BareNamespace](), next(iter_metadata_damage(txn), None) is None
    namespaces = [one for tenant in list_all_tenants(txn) if is_whole for one in iter_namespaces(txn, tenant)]
    without = [one for one in namespaces if not has_row(txn, one.policies_path)]
    for namespace in without if len(without) < len(namespaces) else ():
        topics = sum(not name.is_system for name in iter_topics(txn, namespace))
        if topics and namespace.tenant not in _OF_BROKERS:
            bare.append(BareNamespace(namespace, topics))
    return tuple(bare)


@once
def find_vanished(reader: EntryReader) -> Vanished:
    """Return the vanished topics by one snapshot and ZooKeeper's logs. With incomplete metadata they are unknown."""
    txn = reader.txn
    is_shared = bool(stored_roots(txn.store.info).shared)
    orphans = [*_iter_orphans(reader)]
    absent = [one for one in orphans if is_shared or not has_row(txn, one.owner)]
    if is_shared or next(iter_metadata_damage(txn), None) is not None:
        owners = {one.ledger_id: one.owner for one in absent}
        return Vanished((), (), (), frozenset(owners), frozenset(owners), owners, off_list=_off_list(reader, orphans))
    last = _last_values(reader, {one.owner for one in absent}) if absent else {}
    deleted_here = {
        one.owner for one in absent if txn.get("base", tree_key(one.owner))
    }  # a change of this store did it
    bundled = find_deleted(txn)
    disowned = frozenset(
        one.ledger_id for one in absent if one.owner in deleted_here.union(last) or one.ledger_id in bundled
    )
    owners = {one.ledger_id: one.owner for one in absent if one.ledger_id not in disowned}
    gone: dict[TopicName, list[_LedgerOfGoneNode]] = defaultdict(list)
    bare: dict[TopicName, list[int]] = defaultdict(list)
    for one in absent:
        if one.name is not None and one.is_of_messages and one.entries:
            gone[one.name].append(one)
        if one.name is not None and one.is_of_schema:
            bare[one.name].append(one.ledger_id)
    headless = {name: tuple(iter_cursor_names(txn, name)) for name in iter_headless(txn)}
    topics = []
    for name in sorted(gone.keys() | headless.keys(), key=str):
        listed: frozenset[int] | None = None
        with suppress(StoreError):  # one that cannot be decoded tells nothing
            if name.path in last:
                listed = frozenset(decode_ledger_ids(last[name.path], name.path))
        lost = [one for one in gone[name] if listed is None or one.ledger_id in listed]
        if lost or name in headless:
            ids = tuple(one.ledger_id for one in lost)
            entries, size_bytes = sum(one.entries for one in lost), sum(one.bytes for one in lost)
            has_namespace = has_row(txn, name.namespace.policies_path)
            topics.append(VanishedTopic(name, ids, entries, size_bytes, headless.get(name, ()), has_namespace))
    views = tuple(_detached(reader, orphans))
    names = {topic.name for topic in topics} | {topic.name.base for topic in topics}
    schemas = tuple(
        VanishedSchema(name, tuple(ids))
        for name, ids in sorted(bare.items(), key=lambda item: str(item[0]))
        if has_row(txn, name.path) or partition_count(txn, name)
    )
    kept = {one.ledger_id for one in orphans if one.name in names} | {view.ledger_id for view in views}
    kept.update(owners, *bare.values())
    off_list = _off_list(reader, orphans)
    return Vanished(tuple(topics), views, schemas, frozenset(kept), frozenset(owners), owners, disowned, off_list)


def off_list_of(reader: EntryReader, name: TopicName) -> tuple[int, ...]:
    """Return the ledgers of ``Vanished.off_list`` that a topic's list lacks."""
    memo = reader.txn.memo
    if off_list_of not in memo:
        by_topic = memo[off_list_of] = defaultdict[TopicName, list[int]](list)
        for ledger_id, topic in find_vanished(reader).off_list.items():
            by_topic[topic].append(ledger_id)
    return tuple(memo[off_list_of].get(name, ()))


def kept_ledgers(txn: Txn) -> frozenset[int]:
    """Return ``Vanished.kept`` if ``find_vanished`` ran on this snapshot, else an empty set."""
    vanished: Vanished = txn.memo.get(find_vanished) or Vanished()
    return vanished.kept


def _off_list(reader: EntryReader, orphans: Iterable[_LedgerOfGoneNode]) -> dict[int, TopicName]:
    ends = {
        Position(one.ledger_id, one.entries - 1): one.name
        for one in orphans
        if one.name and one.is_of_messages and one.entries
    }
    floors = {name: _floor(reader, name) for name in set(ends.values())}
    return {end.ledger_id: name for end, name in ends.items() if end > floors[name]}


def _floor(reader: EntryReader, name: TopicName) -> Position:
    """Return the position after which an existing topic lists all its messages: the start of its first ledger, or an earlier cursor.

    A topic that a broker has loaded always lists a ledger.
    """
    floors = [LATEST]
    with suppress(StoreError):  # one that cannot be read tells nothing
        topic = read_topic(reader.txn, name)
        floors.append(Position(topic.ids[0] if topic.ids else 0, -1))
        for cursor_name in iter_cursor_names(reader.txn, name):
            with suppress(StoreError):
                cursor = read_cursor(reader.txn, reader, topic, cursor_name)
                floors.append(cursor.ahead or cursor.mark_delete)
    return min(floor for floor in floors if floor.ledger_id >= 0)


def find_place_in_list(txn: Txn, ledger_id: int) -> tuple[Topic, LedgerInfo]:
    """Return the topic whose list should name a ledger of ``Vanished.off_list``, and how it would name it.

    Raises Refused where a broker could not read the topic with it, or where its end is unknown; MetadataCorrupt.
    """
    metadata, node = find_metadata(txn, ledger_id), read_node(txn, ledger_path(ledger_id))
    name = None if metadata is None else claims.claimed_topic(metadata.custom)
    assert metadata is not None
    assert name is not None
    topic = read_topic(txn, name)
    terminated, missing = topic.managed.terminated, find_missing(txn, ledger_id)
    why, hint = "", ""
    if metadata.state is not LedgerState.CLOSED:
        why = "it is not closed, so nobody knows where it ends"
        hint = f"while the cluster runs, close it with: bookkeeper shell readledger -r -l {ledger_id}; then import it again"
    elif missing is not None:
        why, hint = "entries of it are missing", f"see: pulsar-admin ledgers missing {ledger_id}"
    elif terminated is not None and terminated.ledger_id < ledger_id:
        why = f"the topic is terminated at {terminated}"
    elif stored_roots(txn.store.info).shared:
        why, hint = "it may be another Pulsar's", "see: pulsar-admin doctor --code bookkeeper-shared"
    elif topic.ids and topic.ids[-1] < ledger_id and topic.ledgers[-1].is_open:
        why = f"the list does not say where the ledger before it, {topic.ids[-1]}, ends"
    if why:
        raise Refused(f"{name} cannot list ledger {ledger_id}: {why}", hint=hint, ledgerId=ledger_id)
    # A time of 0 means that the ledger is open.
    return topic, LedgerInfo(ledger_id, metadata.last_entry_id + 1, metadata.length, max(node.stat.modified_ms, 1))


@once
def is_listable(txn: Txn, ledger_id: int) -> bool:
    """Whether ``ledgers restore`` puts a ledger of ``Vanished.off_list`` back into its topic's list."""
    try:
        find_place_in_list(txn, ledger_id)
    except StoreError:
        return False
    return True


def _iter_orphans(reader: EntryReader) -> Iterable[_LedgerOfGoneNode]:
    """Yield the listed ledgers that nothing references and that name an owner."""
    txn = reader.txn
    for ledger_id in loose_of(txn, sorted_ledger_ids(txn)):
        if has_owners(txn, ledger_id) or txn.get("base", tree_key(ledger_path(ledger_id))) == b"":
            continue  # an empty row: a change of this store brought it back
        with suppress(StoreError):  # what cannot be decoded names nothing
            ledger = find_ledger(txn, ledger_id)
            custom = {} if ledger is None or ledger.metadata is None else ledger.metadata.custom
            owner = next(claimed_paths(custom), None)
            if ledger is None or ledger.metadata is None or owner is None:
                continue
            is_closed = ledger.metadata.state is LedgerState.CLOSED
            entries = ledger.metadata.last_entry_id + 1 if is_closed else ledger.entries
            is_of_messages = claims.TOPIC_KEY in custom and claims.CURSOR_KEY not in custom
            component, is_of_schema = custom.get(claims.COMPONENT), claims.SCHEMA_KEY in custom
            name, size_bytes = claims.claimed_topic(custom), ledger.size_bytes
            yield _LedgerOfGoneNode(
                owner, name, ledger_id, component, is_of_messages, is_of_schema, entries, size_bytes
            )


def _last_values(reader: EntryReader, paths: Collection[str]) -> Mapping[str, bytes]:
    """Return the last value of each node before it was deleted; a node whose deletion no log shows is left out."""
    last_values: dict[str, bytes] = {}
    deleted: dict[str, bytes] = {}
    for version in iter_logged(reader.txn.store.info.sources, lambda path: path in paths):
        if version.value is not None:
            last_values[version.path] = version.value
            deleted.pop(version.path, None)
        elif version.path in last_values:
            deleted[version.path] = last_values[version.path]
    return deleted


def _detached(reader: EntryReader, orphans: Iterable[_LedgerOfGoneNode]) -> Iterable[DetachedView]:
    """Yield, for each existing topic that names no compacted ledger, its newest one that it could name again, else its newest one."""
    detached: dict[TopicName, list[_LedgerOfGoneNode]] = defaultdict(list)
    for one in orphans:
        if one.name and one.component == claims.COMPACTED_COMPONENT and one.entries:
            detached[one.name].append(one)
    for name, ledgers in detached.items():
        if not has_row(reader.txn, name.path) or (unseen := _view_unseen_on(reader, name)) is None:
            continue
        if unseen:
            for one in ledgers:
                yield DetachedView(name, one.ledger_id, one.entries, one.bytes, "its topic may name it", unseen, True)
            continue
        from pulsar_admin.store.compaction.status import unfit_text  # a store without such a ledger needs none of it

        views = []
        for one in ledgers:
            try:
                unfit = unfit_text(reader, read_topic(reader.txn, name), one.ledger_id)
            except StoreError as error:
                unfit = error.message
            missing = find_missing(reader.txn, one.ledger_id) if unfit else None
            absent = missing.bookies if missing is not None and missing.reason == NOT_SEEN else ()
            views.append(DetachedView(name, one.ledger_id, one.entries, one.bytes, unfit, absent))
        yield max(views, key=lambda view: (not view.unfit, view.ledger_id))


def keys_of_view_alone(reader: EntryReader, view: DetachedView) -> tuple[str, ...] | Unknown:
    """Return the keys that ``view`` has and the ledgers of its topic do not have."""
    from pulsar_admin.store.compaction.reading import find_dropped_keys
    from pulsar_admin.store.compaction.status import read_detached

    try:
        topic = read_topic(reader.txn, view.name)
        dropped = find_dropped_keys(reader, topic, read_detached(reader, topic, view.ledger_id), 0)
    except StoreError as error:
        return Unknown(error.message)
    return Unknown("there is too much to read") if dropped is None else dropped.of_view


def _view_unseen_on(reader: EntryReader, name: TopicName) -> tuple[str, ...] | None:
    """Return the bookies that are not imported and may have what names a compacted ledger of the topic; None if it names one, or its
    cursor cannot be read."""
    if not has_row(reader.txn, name.cursor_path(COMPACTION_CURSOR)):
        return ()
    try:
        cursor = read_cursor(reader.txn, reader, read_topic(reader.txn, name), COMPACTION_CURSOR)
    except StoreError:
        return None
    ledger_id = cursor.state.properties.get(COMPACTED_LEDGER)
    if ledger_id is not None and any(one.kind is OwnerKind.COMPACTED for one in find_owners(reader.txn, ledger_id)):
        return None
    return find_unseen_states(reader.txn, cursor)
