"""Losses outside a topic's own ledgers that affect it: of its compacted view, and of the topic policies in its namespace's
``__change_events``. Imports little: most topics have neither.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pulsar_admin.store.codec.ledgermetadata import ledger_path
from pulsar_admin.store.db.environment import Txn, once
from pulsar_admin.store.db.tree import find_node, has_row, tree_key
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.model import topics
from pulsar_admin.store.names import EVENTS, NamespaceName, TopicName

if TYPE_CHECKING:
    from pulsar_admin.store.model.cursors import Cursor


def find_broken_beside(txn: Txn, topic: topics.Topic) -> tuple[str, ...]:
    """Return sentences about losses outside the topic's ledger list, and how a broker behaves."""
    lost = _lost_view(txn, topic)
    return (*lost, *find_lost_events(txn, topic.name))


def find_unseen_states(txn: Txn, cursor: Cursor) -> tuple[str, ...]:
    """Return the bookies that are not imported and may have newer states of ``cursor``."""
    if not cursor.info.is_in_ledger or not topics.lacks_bookies(txn):
        return ()
    from pulsar_admin.store.model.coverage import absent_of, read_open_end
    from pulsar_admin.store.model.ledgers import read_ledger

    ledger_id = cursor.info.cursors_ledger_id
    if cursor.is_incomplete:
        return absent_of(txn, ledger_id)
    try:
        end = read_open_end(txn, read_ledger(txn, ledger_id))
    except StoreError:  # damage, which is told
        return ()
    return () if end is None or end.verdict != "open" else end.bookies


def unseen_position(txn: Txn, cursor: Cursor) -> str:
    """Return that the position of ``cursor`` is unknown, if a bookie that is not imported may have its newest state; else ""."""
    absent = find_unseen_states(txn, cursor)
    return (
        f"the position of {cursor.name} is unknown: the newest entries of its cursor ledger {cursor.info.cursors_ledger_id} may be on"
        f" {', '.join(absent)}, not imported"
        if absent
        else ""
    )


def find_lost_events(txn: Txn, name: TopicName) -> tuple[str, ...]:
    """Return sentences about lost policy events of the topic's namespace."""
    return () if name.local_name == EVENTS else _lost_events(txn, name.namespace)


def _lost_view(txn: Txn, topic: topics.Topic) -> Iterator[str]:
    ledger_id = _compacted_ledger(txn, topic)
    if ledger_id is not None and txn.view("tree", tree_key(ledger_path(ledger_id))) is None:
        yield (
            f"the metadata of its compacted ledger {ledger_id} is lost: compacted reads and compaction hang or fail "
            "on a broker, searches by time and stats-internal fail with No such ledger exists on Metadata Server"
        )


def _compacted_ledger(txn: Txn, topic: topics.Topic) -> int | None:
    if not has_row(txn, topic.name.cursor_path(topics.COMPACTION)):
        return None
    # Imported here: few topics are compacted.
    from pulsar_admin.store.db.entry_files import EntryFiles
    from pulsar_admin.store.model.cursors import read_cursor
    from pulsar_admin.store.model.reader import EntryReader

    # Of one that cannot be read the doctor tells: nobody knows its ledger.
    with EntryFiles(txn.store, txn) as files:
        try:
            cursor = read_cursor(txn, EntryReader(files, txn), topic, topics.COMPACTION)
        except StoreError:
            return None
    return cursor.state.properties.get(topics.COMPACTED_LEDGER)


@once
def _lost_events(txn: Txn, namespace: NamespaceName) -> tuple[str, ...]:
    """Return sentences about lost policy events of ``namespace``."""
    name, texts = TopicName(namespace, EVENTS), list[str]()
    for one in topics.existing_partitions(txn, name) or (name,):
        if find_node(txn, one.path) is None:
            continue
        try:
            events = topics.read_topic(txn, one)
        except StoreError:
            continue  # who asks for policies is told
        if not topics.may_be_broken(txn, events):
            continue
        from pulsar_admin.store.model.broken import NOT_SEEN, find_broken  # hardly any is

        for broken in find_broken(txn, events):
            if broken.reason != NOT_SEEN:
                texts.append(
                    f"ledger {broken.ledger_id} of {one.local_name}, its namespace's policies: {broken.what()}: {broken.broker()}"
                )
    return tuple(texts)
