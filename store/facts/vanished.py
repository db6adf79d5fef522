"""Topics that vanished: their node is gone, and ledgers that say they are theirs are still listed.

Upstream ``ManagedLedgerImpl.asyncDelete`` and ``ManagedLedgerFactoryImpl`` (Pulsar 4.0.8): a broker deletes a topic's ledgers first and its
node last. So a ledger of a topic without a node was left by no such deletion, unless the topic did not list it then: ZooKeeper's logs
tell what it listed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import field

from store.codec.claims import COMPACTED_COMPONENT, COMPONENT, CURSOR_KEY, SCHEMA_KEY, TOPIC_KEY, claimed_topic
from store.codec.ledgermetadata import LedgerState, ledger_path
from store.codec.managedledger import decode_ledger_ids
from store.db.environment import Txn
from store.db.files import iter_metadata_damage
from store.db.owners import OwnerKind, find_owners, has_owners
from store.db.tree import find_node, tree_key
from store.errors import MetadataCorrupt, Refused, SourceNotFound, StoreError
from store.frozen import frozen
from store.history.servers import find_servers
from store.history.versions import Version, iter_versions
from store.model.cursors import COMPACTION_CURSOR, read_cursor
from store.model.ledgers import find_ledger, sorted_ledger_ids
from store.model.reader import EntryReader
from store.model.references import COMPACTED_LEDGER
from store.model.topics import partition_count, read_topic
from store.names import TopicName

_MEMO = "vanished-topics"


@frozen
class VanishedTopic:
    """A topic whose node is gone without a deletion: the ledgers of its messages that are listed, their entries and bytes."""

    name: TopicName
    ledger_ids: tuple[int, ...]
    entries: int
    bytes: int


@frozen
class DetachedView:
    """A compacted ledger that its topic does not name any more, although it names no other one."""

    name: TopicName
    ledger_id: int
    entries: int
    bytes: int


@frozen
class VanishedSchema:
    """A schema whose node (``BookkeeperSchemaStorage``'s locator) is gone, while its topic is there and ledgers of its versions are."""

    name: TopicName
    ledger_ids: tuple[int, ...]


@frozen
class Vanished:
    """What is gone from the metadata while its ledgers are listed. ``schemas``: those of topics that are there. ``kept``: ledgers that may
    be the only copy of something, those of cursors and schemas of such topics among them: nobody advises to delete them."""

    topics: tuple[VanishedTopic, ...] = ()
    views: tuple[DetachedView, ...] = ()
    schemas: tuple[VanishedSchema, ...] = ()
    kept: frozenset[int] = field(default_factory=frozenset)


@frozen
class _Orphan:
    name: TopicName
    ledger_id: int
    component: bytes | None
    is_of_messages: bool
    is_of_schema: bool
    entries: int
    bytes: int


def find_vanished(reader: EntryReader) -> Vanished:
    """Return what vanished, as one snapshot and ZooKeeper's logs show it. Of metadata that is not whole nobody knows what is gone."""
    memo = reader.txn.memo
    if _MEMO not in memo:
        memo[_MEMO] = _find(reader)
    found: Vanished = memo[_MEMO]
    return found


def kept_ledgers(txn: Txn) -> frozenset[int]:
    """Return ``Vanished.kept`` where this snapshot was asked for it, else nothing."""
    found: Vanished = txn.memo.get(_MEMO) or Vanished()
    return found.kept


def _find(reader: EntryReader) -> Vanished:
    txn = reader.txn
    if next(iter_metadata_damage(txn), None) is not None:
        return Vanished()
    orphans = [*_iter_orphans(reader)]
    gone: dict[TopicName, list[_Orphan]] = defaultdict(list)
    for one in orphans:
        if one.is_of_messages and one.entries and find_node(txn, one.name.path) is None:
            gone[one.name].append(one)
    last_listed = _last_listed(reader, gone) if gone else {}
    topics = []
    for name, all_of_it in sorted(gone.items(), key=lambda item: str(item[0])):
        listed = last_listed.get(name)
        lost = [one for one in all_of_it if listed is None or one.ledger_id in listed]
        if lost:
            ids = tuple(one.ledger_id for one in lost)
            topics.append(VanishedTopic(name, ids, sum(one.entries for one in lost), sum(one.bytes for one in lost)))
    views = tuple(_detached(reader, orphans))
    names = {topic.name for topic in topics} | {topic.name.base for topic in topics}
    bare: dict[TopicName, list[int]] = defaultdict(list)
    for one in orphans:
        if one.is_of_schema and find_node(txn, one.name.schema_path) is None:
            bare[one.name].append(one.ledger_id)
    schemas = tuple(
        VanishedSchema(name, tuple(ids))
        for name, ids in sorted(bare.items(), key=lambda item: str(item[0]))
        if find_node(txn, name.path) is not None or partition_count(txn, name)
    )
    kept = {one.ledger_id for one in orphans if one.name in names} | {view.ledger_id for view in views}
    kept.update(*bare.values())
    return Vanished(tuple(topics), views, schemas, frozenset(kept))


def _iter_orphans(reader: EntryReader) -> Iterable[_Orphan]:
    """Yield the listed ledgers that nothing references and that name a topic."""
    txn = reader.txn
    for ledger_id in sorted_ledger_ids(txn):
        if has_owners(txn, ledger_id) or txn.get("base", tree_key(ledger_path(ledger_id))) == b"":
            continue  # an empty row: a change of this store brought it back
        with suppress(StoreError):  # what cannot be decoded names nothing
            ledger = find_ledger(txn, ledger_id)
            custom = {} if ledger is None or ledger.metadata is None else ledger.metadata.custom
            name = claimed_topic(custom)
            if ledger is None or ledger.metadata is None or name is None:
                continue
            is_closed = ledger.metadata.state is LedgerState.CLOSED
            entries = ledger.metadata.last_entry_id + 1 if is_closed else ledger.entries
            is_of_messages = TOPIC_KEY in custom and CURSOR_KEY not in custom
            component, is_of_schema = custom.get(COMPONENT), SCHEMA_KEY in custom
            yield _Orphan(name, ledger_id, component, is_of_messages, is_of_schema, entries, ledger.size_bytes)


def _last_listed(reader: EntryReader, names: Iterable[TopicName]) -> Mapping[TopicName, frozenset[int]]:
    """Return what each of NAMES listed last before its node was deleted; nothing of those whose deletion no log shows."""
    by_path = {name.path: name for name in names}
    values: dict[str, bytes] = {}
    found: dict[TopicName, frozenset[int]] = {}
    with suppress(
        Refused, SourceNotFound, MetadataCorrupt, OSError
    ):  # no history, or none that can be read: it shows nothing
        for item in iter_versions(find_servers(reader.txn.store.info.sources), lambda path: path in by_path):
            if not isinstance(item, Version):
                continue
            name = by_path[item.path]
            if item.value is not None:
                values[item.path] = item.value
                found.pop(name, None)
            elif item.path in values:
                with suppress(StoreError):
                    found[name] = frozenset(decode_ledger_ids(values[item.path], item.path))
    return found


def _detached(reader: EntryReader, orphans: Iterable[_Orphan]) -> Iterable[DetachedView]:
    """Yield the newest compacted ledger of each topic that is there and names none."""
    newest = {one.name: one for one in orphans if one.component == COMPACTED_COMPONENT and one.entries}
    for name, one in newest.items():
        if find_node(reader.txn, name.path) is not None and not _has_view(reader, name):
            yield DetachedView(name, one.ledger_id, one.entries, one.bytes)


def _has_view(reader: EntryReader, name: TopicName) -> bool:
    """Whether the topic names a compacted ledger, or nobody knows."""
    if find_node(reader.txn, name.cursor_path(COMPACTION_CURSOR)) is None:
        return False
    try:
        cursor = read_cursor(reader.txn, reader, read_topic(reader.txn, name), COMPACTION_CURSOR)
    except StoreError:
        return True
    ledger_id = cursor.state.properties.get(COMPACTED_LEDGER)
    return ledger_id is not None and any(one.kind is OwnerKind.COMPACTED for one in find_owners(reader.txn, ledger_id))
