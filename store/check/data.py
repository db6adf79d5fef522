"""Checks of what Pulsar left: every metadata value can be read, and lists, metadata, entries and cursors agree."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import chain

from store.check.finding import Finding, data_problem, note, problem_of, to_the_end
from store.check.replicas import Copies
from store.codec.ledgermetadata import LedgerState, ledger_id_of_path, ledger_path
from store.db.blocks import decode_times, ledger_of_key
from store.db.environment import Store, Txn
from store.db.files import WHOLE_METADATA, iter_metadata_damage
from store.db.owners import Owner, OwnerKind, has_owners, iter_owners
from store.db.tree import decode_node, find_node
from store.errors import IndexCorrupt, MetadataCorrupt, StoreError, Unsupported
from store.facts.unlisted import UnlistedLedgers
from store.model.absent_journals import find_absent_journals
from store.model.broken import find_broken_ledger
from store.model.coverage import absent_of, count_unseen
from store.model.cursors import COMPACTION_CURSOR, Cursor, CursorSource, iter_cursor_names, read_cursor
from store.model.ledger_owners import all_owners
from store.model.ledgers import (
    Ledger,
    find_ledger,
    find_times,
    iter_ledger_ids,
    missing_ranges,
    read_ledger,
)
from store.model.managed_nodes import iter_other_cursors, iter_other_ledgers
from store.model.open_end import read_shortfalls
from store.model.publish_times import wrong_times
from store.model.reader import EntryReader
from store.model.references import COMPACTED_LEDGER
from store.model.structures import decode_structure, structure_of
from store.model.topics import Topic, TopicLedger, iter_topics, read_topic
from store.model.unknown_values import is_known_node
from store.names import PERSISTENT, shell_word, topic_of_path
from store.wording import counted, plural

_REFERENCES = {
    OwnerKind.SCHEMA: (
        "schema",
        "BookKeeper's metadata of a schema version is gone: a broker answers 500 for it, and where it is the newest refuses producers",
    ),
    OwnerKind.BUCKET: (
        "bucket",
        "BookKeeper's metadata of a bucket of delayed messages is gone: a broker makes it again from the messages",
    ),
}
"""What references ledgers beside topics and cursors: the name in a code, and what its loss means."""
_OF_NEWER = "newer-ledger-missing"


TopicVisitor = Callable[[Topic, Sequence[Cursor]], None]
"""What is told of each topic that can be read, with those of its cursors that can be: one pass serves several askers."""


def check_data(
    store: Store, reader: EntryReader, visit: TopicVisitor = lambda topic, cursors: None
) -> Iterator[Finding]:
    """Yield what the checks of this module find; VISIT is called with each topic."""
    yield from to_the_end(check_nodes(reader.txn), "the metadata")
    yield from to_the_end(check_topics(reader, visit), "the topics")
    yield from to_the_end(check_references(reader.txn), "references to ledgers")
    yield from to_the_end(check_journals(store, reader.txn), "the journals")
    yield from to_the_end(check_ledgers(reader.txn), "the ledgers")


def check_nodes(txn: Txn) -> Iterator[Finding]:
    """Check that every row of the tree, and every value of a known structure, can be read."""
    for key, row in txn.items("tree"):
        try:
            node = decode_node(key, row)
        except IndexCorrupt as error:
            yield problem_of(error, "node-damaged", "store", f"tree {key!r}")
            continue
        topic = topic_of_path(node.path)
        if topic is not None and topic.path != node.path:
            yield data_problem(
                "name-not-encoded", node.path, f"the node of {topic} would be {topic.path}: no topic name leads to this one",
                "read it with: pulsar-admin store cat PATH",
            )  # fmt: skip
        if structure_of(node.path, node.value) is not None and not _is_of_ledger(node.path):
            try:
                decode_structure(node.path, node.value)
            except Unsupported:
                continue  # the rule of values that are not known here tells
            except StoreError as error:
                yield problem_of(error, "value-undecodable", "data", node.path)
    try:
        for damage in iter_metadata_damage(txn):
            if damage.offset >= WHOLE_METADATA:
                hint = "what depends on it may be missing or old here: bring sound files, then run: pulsar-admin store refresh"
                yield data_problem("metadata-incomplete", "metadata store", damage.reason, hint)
            else:
                hint = "the value was left out of the import"
                yield data_problem("value-undecodable", "metadata store", damage.reason, hint)
    except IndexCorrupt:
        return  # the catalogue's check tells


def _is_of_ledger(path: str) -> bool:
    """Whether PATH is where the metadata of a ledger lies: ``check_ledgers`` decodes it, once for all that asks for it."""
    ledger_id = ledger_id_of_path(path)
    return ledger_id is not None and ledger_path(ledger_id) == path


def check_journals(store: Store, txn: Txn) -> Iterator[Finding]:
    """Tell of bookies without a journal whose last entries may have been there only."""
    try:
        absent = find_absent_journals(store, txn)
    except IndexCorrupt:
        return  # the catalogue's check tells
    if absent is not None:
        yield data_problem("journal-absent", "journals", absent.text(), absent.hint(), bookies=list(absent.bookies))


def check_topics(reader: EntryReader, visit: TopicVisitor = lambda topic, cursors: None) -> Iterator[Finding]:
    """Check the ledgers and cursors of each topic, then VISIT it; and of what a newer Pulsar keeps beside topics."""
    for name in chain(iter_topics(reader.txn), iter_other_ledgers(reader.txn)):
        try:
            topic = read_topic(reader.txn, name)
        except Unsupported:
            continue  # as above
        except StoreError as error:
            yield problem_of(error, "topic-unreadable", "data", str(name))
            continue
        for ledger in topic.ledgers:
            yield from _check_topic_ledger(reader.txn, topic, ledger)
        cursors: list[Cursor] = []
        for cursor in (
            iter_cursor_names(reader.txn, name) if name.domain == PERSISTENT else iter_other_cursors(reader.txn, name)
        ):
            yield from _check_cursor(reader, topic, cursor, cursors)
        if name.domain == PERSISTENT:
            visit(topic, cursors)


def _check_topic_ledger(txn: Txn, topic: Topic, listed: TopicLedger) -> Iterator[Finding]:
    where = f"ledger {listed.ledger_id} of {topic.name}"
    if listed.info.offloaded:
        return
    try:
        ledger = find_ledger(txn, listed.ledger_id)
    except StoreError:
        return  # check_nodes tells
    if ledger is None:
        lost = (
            f"it is in the topic's list, and neither metadata nor entries of it are here; {_broker(txn, topic, listed)}"
        )
        repair = f"repair it with: pulsar-admin ledgers forget {listed.ledger_id}"
        code, hint = ("ledger-missing", repair) if topic.name.domain == PERSISTENT else (_OF_NEWER, "")
        yield data_problem(code, where, lost, hint, **_size(listed))
        return
    if ledger.metadata is None:
        yield data_problem(
            "ledger-without-metadata", where, f"it is in the topic's list and has no BookKeeper metadata; {_broker(txn, topic, listed)}",
            _repair(listed.ledger_id), **_size(listed),
        )  # fmt: skip
    elif not listed.is_open and ledger.metadata.state is LedgerState.CLOSED:
        found = (ledger.entries, ledger.size_bytes)
        if found != (listed.entries, listed.size_bytes):
            yield data_problem(
                "ledger-list-differs",
                where,
                f"the topic's list says {counted(listed.entries, 'entry')} of {counted(listed.size_bytes, 'byte')}, BookKeeper's metadata"
                f" {found[0]} of {found[1]}",
                ledgerId=listed.ledger_id,
            )
    yield from _check_missing(txn, ledger, where)
    for time in wrong_times(txn, listed):
        yield data_problem(
            "publish-time-differs",
            where,
            f"its {time.where} {time.name} says {time.stated}, its entries {time.found_ms}",
            topic=str(topic.name),
            ledgerId=listed.ledger_id,
        )


def _size(listed: TopicLedger) -> dict[str, object]:
    return {"ledgerId": listed.ledger_id, "entries": listed.entries, "bytes": listed.size_bytes}


def _broker(txn: Txn, topic: Topic, listed: TopicLedger) -> str:
    found = find_broken_ledger(txn, topic, listed)
    return "" if found is None else found.broker()


def _check_missing(txn: Txn, ledger: Ledger, where: str) -> Iterator[Finding]:
    ranges = missing_ranges(txn, ledger) if ledger.metadata else ()
    unseen, bookies = count_unseen(txn, ledger, ranges)
    missing = sum(last - first + 1 for first, last in ranges) - unseen
    if missing:
        yield data_problem(
            "entries-missing",
            where,
            f"{missing:,} of its {counted(ledger.entries, 'entry')} {plural(missing, 'is', 'are')} in no file",
            f"list them with: pulsar-admin ledgers missing {ledger.ledger_id}",
            ledgerId=ledger.ledger_id,
            missing=missing,
        )
    if unseen:
        yield note(
            "entries-not-seen",
            where,
            f"{unseen:,} of its {counted(ledger.entries, 'entry')} {plural(unseen, 'is', 'are')} on {', '.join(bookies)}, which"
            f" {plural(len(bookies), 'is', 'are')} not imported",
            f"bring its disks: pulsar-admin store add bookie {shell_word(bookies[0])}=DIR,DIR",
            ledgerId=ledger.ledger_id,
            unseen=unseen,
        )


def _check_cursor(reader: EntryReader, topic: Topic, name: str, readable: list[Cursor]) -> Iterator[Finding]:
    where = f"subscription {name!r} of {topic.name}"
    try:
        cursor = read_cursor(reader.txn, reader, topic, name)
    except StoreError as error:
        if isinstance(error, Unsupported) and not is_known_node(reader.txn, topic.name.cursor_path(name)):
            return  # as above; a state in a cursor ledger is no value of a node
        yield data_problem(
            "cursor-unreadable", where, error.message, error.hint, topic=str(topic.name), subscription=name
        )
        return
    readable.append(cursor)
    if name == COMPACTION_CURSOR:
        yield from _check_compacted(reader.txn, cursor, where)
    if cursor.recoverable is not None:
        yield data_problem(
            "cursor-ledger-without-metadata",
            where,
            f"BookKeeper's metadata of its ledger {cursor.info.cursors_ledger_id} is gone: a broker starts it at {cursor.mark_delete}; "
            f"the ledger's entries still say {cursor.recoverable.mark_delete}, which no broker sees",
            f"read them with: pulsar-admin ledgers entries {cursor.info.cursors_ledger_id}",
            **_whose(cursor),
            recoverable=str(cursor.recoverable.mark_delete),
        )
    else:
        yield from _check_cursor_ledger(reader.txn, cursor, where)


def _check_cursor_ledger(txn: Txn, cursor: Cursor, where: str) -> Iterator[Finding]:
    if cursor.is_incomplete and (absent := absent_of(txn, cursor.info.cursors_ledger_id)):
        yield note(
            "entries-not-seen",
            where,
            f"the newest of its ledger {cursor.info.cursors_ledger_id} may be on {', '.join(absent)}, which"
            f" {plural(len(absent), 'is', 'are')} not imported: where it stands is not known",
            f"bring its disks: pulsar-admin store add bookie {shell_word(absent[0])}=DIR,DIR",
            **_whose(cursor),
        )
    elif cursor.source is CursorSource.FALLBACK:
        yield data_problem(
            "cursor-ledger-lost",
            where,
            f"its ledger {cursor.info.cursors_ledger_id} is gone, empty or unreadable: acknowledgements since it was made are lost",
            "a broker starts it at the snapshot in its metadata",
            **_whose(cursor),
        )
    elif cursor.skipped_entries:
        yield data_problem(
            "cursor-ledger-damaged",
            where,
            f"the newest {counted(cursor.skipped_entries, 'entry')} of its ledger {cursor.info.cursors_ledger_id} cannot be read",
            "acknowledgements in them are lost",
            **_whose(cursor),
        )


def _whose(cursor: Cursor) -> dict[str, object]:
    return {
        "topic": str(cursor.topic),
        "subscription": cursor.name,
        "ledgerId": cursor.info.cursors_ledger_id,
    }


def _check_compacted(txn: Txn, cursor: Cursor, where: str) -> Iterator[Finding]:
    ledger_id = cursor.state.properties.get(COMPACTED_LEDGER)
    if ledger_id is None or find_node(txn, ledger_path(ledger_id)) is not None:
        return
    times = find_times(txn, ledger_id)
    there = (
        f"{counted(times.sums.entries, 'entry', 'entries')} of it can be read here"
        if times
        else "no entry of it is here"
    )
    yield data_problem(
        "compacted-ledger-without-metadata",
        where,
        f"BookKeeper's metadata of the compacted ledger {ledger_id} is gone: a broker cannot open it; {there}",
        "compact the topic again; until then readers of the compacted view fail",
        ledgerId=ledger_id,
    )


def check_references(txn: Txn) -> Iterator[Finding]:
    """Check that schemas and delayed messages have the ledgers that they name; topics and cursors are looked at with their own."""
    try:
        for ledger_id, owners in iter_owners(txn):
            lost = [owner for owner in owners if owner.kind in _REFERENCES]
            if lost and find_node(txn, ledger_path(ledger_id)) is None:
                yield _lost_reference(ledger_id, lost[0])
    except IndexCorrupt:
        return  # check_owners tells


def _lost_reference(ledger_id: int, owner: Owner) -> Finding:
    kind, what = _REFERENCES[owner.kind]
    if owner.is_of_newer:
        return data_problem(_OF_NEWER, f"ledger {ledger_id} of {owner.topic}", what, ledgerId=ledger_id)
    return data_problem(
        f"{kind}-ledger-without-metadata",
        f"ledger {ledger_id} of {owner.topic}",
        what,
        _repair(ledger_id),
        ledgerId=ledger_id,
    )


def _repair(ledger_id: int) -> str:
    return f"repair it with: pulsar-admin ledgers restore {ledger_id}, or ledgers forget {ledger_id}"


def check_ledgers(txn: Txn) -> Iterator[Finding]:
    """Check each ledger's metadata and copies, more of those that belong to no topic's list; note unreferenced and deleted ones."""
    unreferenced = 0
    copies = Copies(txn)
    yield from copies.begin()
    shortfalls = read_shortfalls(txn)
    for ledger_id in iter_ledger_ids(txn):
        ledger = None
        owners: tuple[Owner, ...] = ()
        with suppress(StoreError):  # check_owners tells
            owners = all_owners(txn, ledger_id)
            unreferenced += not owners
            if shortfalls.settles(ledger_id) and any(owner.kind is OwnerKind.TOPIC for owner in owners):
                continue  # check_topics looks at these
        try:
            ledger = read_ledger(txn, ledger_id)
        except MetadataCorrupt as error:
            yield problem_of(error, "value-undecodable", "data", ledger_path(ledger_id))
        except StoreError:
            pass  # the index's check tells
        try:
            if ledger is not None and all(owner.kind is not OwnerKind.TOPIC for owner in owners):
                yield from _check_missing(txn, ledger, f"ledger {ledger_id}")
        except StoreError:
            pass  # the index's check tells
        if ledger is not None:
            with suppress(StoreError):  # the catalogue's check and that of the rows of copies tell
                yield from copies.check(ledger)
    yield from copies.end()
    if unreferenced:
        yield note(
            "ledgers-unreferenced",
            "metadata",
            counted(unreferenced, "ledger has no owner", "ledgers have no owner"),
            "see: pulsar-admin ledgers orphans",
        )
    deleted = sum(1 for _ in _iter_deleted(txn))
    if deleted:
        yield note(
            "ledgers-deleted",
            "entry logs",
            f"{counted(deleted, 'ledger has', 'ledgers have')} entries and no metadata: deleted, and not yet garbage-collected",
            "see: pulsar-admin ledgers orphans",
        )


def _iter_deleted(txn: Txn) -> Iterator[int]:
    unlisted = UnlistedLedgers(txn)
    for key, row in txn.items("times"):
        try:
            ledger_id = ledger_of_key(key)
            decode_times(ledger_id, row)
            if not has_owners(txn, ledger_id) and unlisted.is_deleted(
                ledger_id
            ):  # else offloaded, or lost: told elsewhere
                yield ledger_id
        except StoreError:
            continue
