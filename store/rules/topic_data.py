"""Rules about what a topic lists: its ledgers and cursors, against BookKeeper's metadata and the entries."""

from collections.abc import Iterator
from contextlib import suppress

from pulsar_admin.store import errors
from pulsar_admin.store.codec.cursor import decode_cursor_info
from pulsar_admin.store.codec.ledgermetadata import LedgerState, ledger_path
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.tree import ROW_OF_NODE, find_node, read_node
from pulsar_admin.store.facts.topics import TopicFacts
from pulsar_admin.store.model.broken import GONE, find_broken, find_broken_ledger, find_missing
from pulsar_admin.store.model.broken_beside import find_unseen_states
from pulsar_admin.store.model.coverage import bookie_of, bring_command, bring_hint, count_unseen, is_journal
from pulsar_admin.store.model.cursors import COMPACTION_CURSOR, Cursor, CursorSource
from pulsar_admin.store.model.ledgers import Ledger, find_ledger, find_times, find_whole, missing_ranges
from pulsar_admin.store.model.nodes import is_known_node
from pulsar_admin.store.model.publish_times import may_be_stated, wrong_times
from pulsar_admin.store.model.topics import COMPACTED_LEDGER, Topic, TopicLedger
from pulsar_admin.store.names import PERSISTENT, shell_word
from pulsar_admin.store.rules.finding import Finding, Severity
from pulsar_admin.store.rules.rule import Sweep
from pulsar_admin.store.rules.words import KEEP_COPIES, NO_HAND, REBUILD, STUCK, forced_reset
from pulsar_admin.store.wording import counted, plural

TOPIC_SWEEP = Sweep[TopicFacts]("the topics")

TOPIC_UNREADABLE = TOPIC_SWEEP.row(
    "topic-unreadable",
    Severity.CRITICAL,
    "A topic's metadata cannot be read",
    "The list of the topic's ledgers is damaged: none of its messages can be found.",
    "Fails to load the topic: producers and consumers get errors.",
    "pulsar-admin store cat {path} --hex",
    "Restore an earlier list: `topics restore TOPIC --at TIME` creates a topic as ZooKeeper's logs had it at that "
    "time. RocksDB keeps no earlier values: there you need a backup of the metadata.",
    NO_HAND,
)
LEDGER_MISSING = TOPIC_SWEEP.row(
    "ledger-missing",
    Severity.CRITICAL,
    "A topic lists a ledger that is lost completely",
    "The topic lists the ledger, but its BookKeeper metadata and all its entries are gone.",
    STUCK,
    "pulsar-admin ledgers forget {ledgerId}",
    "If another bookie or a backup has its entries, add that first (`store add bookie`). Otherwise remove the "
    "ledger from the list.",
    KEEP_COPIES,
)
NEWER_LEDGER_MISSING = TOPIC_SWEEP.row(
    "newer-ledger-missing",
    Severity.CRITICAL,
    "A ledger that only a newer Pulsar reads, or of a package, is lost",
    "A segment of a scalable topic, a package of functions, sinks or sources, or something that this version does not know, names the"
    " ledger, and its BookKeeper metadata is gone.",
    STUCK,
    "pulsar-admin ledgers missing {ledgerId}",
    "No command removes it: nothing here changes what a newer version wrote, or packages. Add another bookie or a backup that has "
    "it, and the metadata.",
    KEEP_COPIES,
)
LEDGER_WITHOUT_METADATA = TOPIC_SWEEP.row(
    "ledger-without-metadata",
    Severity.CRITICAL,
    "A topic's ledger has lost its BookKeeper metadata",
    "The topic lists the ledger and bookies may still have its entries. But the metadata does not list it, so "
    "their garbage collection deletes them.",
    STUCK + " Bookies delete the entries at their next garbage collection (`gcWaitTime`, 15 minutes).",
    "pulsar-admin ledgers restore {ledgerId}",
    "Keep the bookies stopped. Rebuild the metadata from the entries; if they are gone, use `ledgers forget`.",
    KEEP_COPIES,
)
LEDGER_LIST_DIFFERS = TOPIC_SWEEP.row(
    "ledger-list-differs",
    Severity.WARNING,
    "A topic's list and BookKeeper count a ledger differently",
    "The number of entries or bytes of a closed ledger differs between them.",
    "Trusts its own list for closed ledgers: entries after the smaller count are not delivered.",
    "pulsar-admin ledgers info {ledgerId}",
    "Look at the end of the ledger. If entries come after it, `ledgers restore LEDGER --extend` proves that it is too "
    "early, and moves it; otherwise there is nothing to do as long as the entries that the list counts exist.",
    "See bookkeeper#4812.",
)
PUBLISH_TIME_DIFFERS = TOPIC_SWEEP.row(
    "publish-time-differs",
    Severity.WARNING,
    "The recorded publish times of a ledger do not match its entries",
    "The first and last publish time (PIP-345) in the metadata contradict the entries.",
    "Searches by time use them, and look in the wrong ledger.",
    "pulsar-admin store annotate {topic}",
    "Rewrite the times from the entries.",
)
ENTRIES_MISSING = TOPIC_SWEEP.row(
    "entries-missing",
    Severity.CRITICAL,
    "Entries of a ledger are in no file",
    "According to the metadata the ledger has them, but no imported bookie has a good record of them.",
    STUCK,
    "pulsar-admin ledgers missing {ledgerId}",
    "Add a bookie or backup that has them (`store add bookie`). Otherwise dump what is readable, then use "
    "`ledgers forget`.",
    KEEP_COPIES,
)
ENTRIES_NOT_SEEN = TOPIC_SWEEP.row(
    "entries-not-seen",
    Severity.NOTE,
    "Entries exist only on a bookie that was not imported",
    "They may be intact: their bookie was not imported.",
    "Reads them from that bookie, if it runs.",
    "pulsar-admin store add bookie {bookie}=DIR",
    "Add the bookie's disks to see them.",
)
CURSOR_UNREADABLE = TOPIC_SWEEP.row(
    "cursor-unreadable",
    Severity.CRITICAL,
    "A subscription's position cannot be read",
    "The cursor's node is damaged, or an imported file with its acknowledgements cannot be read now.",
    "If the node is damaged: fails to open the cursor; the topic does not load.",
    "pulsar-admin topics reset-cursor {topic} -s {subscription} -m earliest --force",
    "If a file cannot be read, make it readable again: a reset would forget what it has. If the node is damaged, reset the "
    "subscription to the beginning of the topic: nothing is lost, and all remaining messages are delivered "
    "again. An earlier state may be in ZooKeeper's logs (`topics subscription-history`); `topics unsubscribe --force` removes it.",
    NO_HAND,
)
COMPACTED_LEDGER_WITHOUT_METADATA = TOPIC_SWEEP.row(
    "compacted-ledger-without-metadata",
    Severity.CRITICAL,
    "A compacted ledger has lost its BookKeeper metadata",
    "The `__compaction` cursor names a compacted ledger that no broker can open.",
    "Compacted reads hang. If no message comes after the compacted view, a reader that asks for the last message gets "
    "an error, and so does compaction; otherwise compaction hangs as well.",
    "pulsar-admin ledgers restore {ledgerId}",
    "If its entries are gone, use `compaction run --from-start` or `ledgers forget`.",
    KEEP_COPIES,
)
CURSOR_LEDGER_WITHOUT_METADATA = TOPIC_SWEEP.row(
    "cursor-ledger-without-metadata",
    Severity.CRITICAL,
    "A cursor ledger has lost its BookKeeper metadata",
    "The entries of the cursor ledger still exist and contain the subscription's position, but no broker will see them.",
    "Starts the subscription at the snapshot in its node, and redelivers everything acknowledged since.",
    "pulsar-admin ledgers restore {ledgerId}",
    "Rebuild the ledger's metadata, or reset the subscription to the position in the evidence.",
    KEEP_COPIES,
)
CURSOR_LEDGER_LOST = TOPIC_SWEEP.row(
    "cursor-ledger-lost",
    Severity.CRITICAL,
    "A cursor's ledger is lost",
    "The ledger with the subscription's acknowledgements is gone, empty or unreadable.",
    "Starts the subscription at the snapshot in its node, and redelivers everything acknowledged since the "
    "ledger was created.",
    "pulsar-admin topics reset-cursor {topic} -s {subscription} -m {position}",
    "Continue from the newest readable state. If consumers know how far they got, move it there instead "
    "(`topics subscription-history` names earlier states).",
    KEEP_COPIES,
)
CURSOR_LEDGER_DAMAGED = TOPIC_SWEEP.row(
    "cursor-ledger-damaged",
    Severity.CRITICAL,
    "The newest entries of a cursor's ledger cannot be read",
    "Only an older state of the subscription can be read.",
    "Reads only the last entry of the ledger. If that fails, it starts at the snapshot in the cursor's node.",
    "pulsar-admin topics reset-cursor {topic} -s {subscription} -m {position}",
    "Continue from the newest readable state. If consumers know how far they got, move it there instead "
    "(`topics subscription-history` names earlier states).",
    KEEP_COPIES,
)


@TOPIC_SWEEP.by
def _judge_topic(facts: TopicFacts) -> Iterator[Finding]:
    """Check the ledgers and cursors of a topic, or of another managed ledger of a newer Pulsar."""
    txn = facts.reader.txn
    for ledger in facts.topic.ledgers:
        yield from _judge_ledger(txn, facts.topic, ledger)
    for name, cursor in facts.cursor_readings:
        where = f"subscription {name!r} of {facts.where}"
        if isinstance(cursor, Cursor):
            yield from _judge_cursor(txn, facts.topic, cursor, where)
        elif not isinstance(cursor, errors.Unsupported) or is_known_node(txn, facts.topic.name.cursor_path(name)):
            # Else the rule of values that are not known here tells; a state in a cursor ledger is no value of a node.
            mend = None
            if isinstance(
                cursor, (errors.EntryLogCorrupt, errors.MissingComponent, errors.NotWritable, errors.SourceChanged)
            ):
                mend = "pulsar-admin store refresh"  # its file, once readable, has the state that a reset forgets
            elif isinstance(cursor, errors.IndexCorrupt):
                mend = mend_row(cursor)
            elif isinstance(cursor, errors.Unsupported):  # which is not replaced
                path = facts.topic.name.cursor_path(name)
                mend = f"pulsar-admin store cat {shell_word(path)} --hex"
            elif (ledger_id := _damaged_ledger(txn, facts.topic, name)) is not None:
                missing = find_missing(txn, ledger_id)
                bring = "" if missing is None else missing.cure
                mend = bring or f"pulsar-admin ledgers restore {ledger_id}"
            yield CURSOR_UNREADABLE.at(where, cursor.message, cursor.hint, mend, topic=facts.where, subscription=name)


def mend_row(error: errors.IndexCorrupt) -> str:
    """Return the command that recreates a damaged row of the store."""
    is_node = error.message.startswith(ROW_OF_NODE) or error.context.get("database") == "tree"
    return "pulsar-admin store refresh" if is_node else REBUILD


def _damaged_ledger(txn: Txn, topic: Topic, cursor_name: str) -> int | None:
    """Return the id of a cursor's ledger if the metadata of that ledger is damaged and its entries are imported, else None."""
    with suppress(errors.StoreError):
        node = read_node(txn, topic.name.cursor_path(cursor_name))
        ledger_id = decode_cursor_info(node.value, node.path).cursors_ledger_id
        try:
            find_ledger(txn, ledger_id)
        except errors.MetadataCorrupt:
            return ledger_id if find_times(txn, ledger_id) is not None else None
    return None


def _judge_ledger(txn: Txn, topic: Topic, listed: TopicLedger) -> Iterator[Finding]:
    where = f"ledger {listed.ledger_id} of {topic.name}"
    info = listed.info
    if info.offloaded:
        return
    whole = find_whole(txn, listed.ledger_id)
    counts = listed.entries, listed.size_bytes
    agrees = whole is not None and (
        listed.is_open or not whole.is_closed or (whole.entries, whole.size_bytes) == counts
    )
    if agrees and not may_be_stated(info):
        return
    try:
        ledger = find_ledger(txn, listed.ledger_id)
    except errors.StoreError:
        return  # the sweeps over nodes and ledgers tell
    lacks_metadata = ledger is None or ledger.metadata is None
    broken = find_broken_ledger(txn, topic, listed) if lacks_metadata else None
    what_follows = "" if broken is None else broken.broker()
    if broken is not None and broken.cure:
        yield LEDGER_WITHOUT_METADATA.at(
            where,
            "the topic lists this ledger, but BookKeeper has no metadata for it, and what is not imported may have its entries; "
            f"{what_follows}",
            bring_hint(broken.bookies),
            broken.cure,
            **_size(listed),
        )
        return
    if ledger is None:
        lost = (
            f"the topic lists this ledger, but BookKeeper has no metadata for it, and no imported file has its "
            f"entries; {what_follows}"
        )
        repair = f"repair it with: pulsar-admin ledgers forget {listed.ledger_id}"
        rule, hint = (LEDGER_MISSING, repair) if topic.name.domain == PERSISTENT else (NEWER_LEDGER_MISSING, "")
        yield rule.at(where, lost, hint, **_size(listed))
        return
    if ledger.metadata is None:
        yield LEDGER_WITHOUT_METADATA.at(where, f"the topic lists this ledger, but BookKeeper has no metadata for it; "
        f"{what_follows}",
            repair_of(listed.ledger_id), **_size(listed),
        )  # fmt: skip
    elif not listed.is_open and ledger.metadata.state is LedgerState.CLOSED:
        actual = (ledger.entries, ledger.size_bytes)
        if actual != (listed.entries, listed.size_bytes):
            times = find_times(txn, listed.ledger_id)
            is_behind = times is not None and times.sums.last_entry > ledger.last_entry_id
            extend = f"pulsar-admin ledgers restore {listed.ledger_id} --extend"
            yield LEDGER_LIST_DIFFERS.at(
                where,
                f"the topic's list says {counted(listed.entries, 'entry')} of {counted(listed.size_bytes, 'byte')}, BookKeeper's metadata"
                f" {actual[0]} of {actual[1]}",
                "",
                extend if is_behind and topic.name.domain == PERSISTENT else None,  # else a controller's list: refused
                ledgerId=listed.ledger_id,
            )
    yield from judge_missing(txn, ledger, where)
    fields = f"pulsar-admin store annotate {shell_word(topic.name)} --form fields"
    for time in wrong_times(txn, listed):
        yield PUBLISH_TIME_DIFFERS.at(
            where,
            f"its {time.where} {time.name} says {time.stated}, its entries {time.found_ms}",
            "",
            fields if time.where == "field" else None,
            topic=str(topic.name),
            ledgerId=listed.ledger_id,
        )


def repair_of(ledger_id: int) -> str:
    """Return a hint with the commands for a ledger whose metadata is gone."""
    return f"repair it with: pulsar-admin ledgers restore {ledger_id}, or ledgers forget {ledger_id}"


def _size(listed: TopicLedger) -> dict[str, object]:
    return {"ledgerId": listed.ledger_id, "entries": listed.entries, "bytes": listed.size_bytes}


def judge_missing(txn: Txn, ledger: Ledger, where: str) -> Iterator[Finding]:
    """Yield the findings of a ledger whose entries are in no file, or on bookies that are not imported."""
    ranges = missing_ranges(txn, ledger) if ledger.metadata else ()
    unseen, bookies = count_unseen(txn, ledger, ranges)
    missing = sum(last - first + 1 for first, last in ranges) - unseen
    if missing:
        yield ENTRIES_MISSING.at(
            where,
            f"{missing:,} of its {counted(ledger.entries, 'entry')} {plural(missing, 'is', 'are')} in no file",
            f"list them with: pulsar-admin ledgers missing {ledger.ledger_id}",
            ledgerId=ledger.ledger_id,
            missing=missing,
        )
    if unseen:
        yield ENTRIES_NOT_SEEN.at(
            where,
            f"{unseen:,} of its {counted(ledger.entries, 'entry')} may be on {', '.join(bookies)}, which"
            f" {plural(len(bookies), 'is', 'are')} not imported",
            bring_hint(bookies),
            bring_command(bookies[0]) if is_journal(bookies[0]) else None,
            ledgerId=ledger.ledger_id,
            bookie=bookie_of(bookies[0]),
            unseen=unseen,
        )


def _judge_cursor(txn: Txn, topic: Topic, cursor: Cursor, where: str) -> Iterator[Finding]:
    if cursor.name == COMPACTION_CURSOR:
        yield from _judge_compacted(txn, cursor, where)
    missing = find_missing(txn, cursor.info.cursors_ledger_id) if cursor.source is CursorSource.FALLBACK else None
    following = topic.next_valid(cursor.mark_delete)
    next_position = str(following)
    if missing is not None and missing.absent and missing.reason != GONE:
        yield CURSOR_LEDGER_WITHOUT_METADATA.at(
            where,
            f"BookKeeper's metadata of its ledger {missing.ledger_id} is gone: a broker starts it at {cursor.mark_delete}; what is not "
            "imported may have its newest position",
            bring_hint(missing.absent),
            missing.cure,
            **_whose(cursor),
        )
    elif cursor.recoverable is not None:
        yield CURSOR_LEDGER_WITHOUT_METADATA.at(
            where,
            f"BookKeeper's metadata of its ledger {cursor.info.cursors_ledger_id} is gone: a broker starts it at {cursor.mark_delete}; "
            f"the ledger's entries still say {cursor.recoverable.mark_delete}, which no broker sees",
            f"read them with: pulsar-admin ledgers entries {cursor.info.cursors_ledger_id}",
            **_whose(cursor),
            recoverable=str(cursor.recoverable.mark_delete),
        )
    elif absent := find_unseen_states(txn, cursor):
        yield ENTRIES_NOT_SEEN.at(
            where,
            f"the newest entries of its ledger {cursor.info.cursors_ledger_id} may be on {', '.join(absent)}, which"
            f" {plural(len(absent), 'is', 'are')} not imported: its position is not known",
            bring_hint(absent),
            bring_command(absent[0]) if is_journal(absent[0]) else None,
            **_whose(cursor),
            bookie=bookie_of(absent[0]),
        )
    elif cursor.source is CursorSource.FALLBACK:
        yield CURSOR_LEDGER_LOST.at(
            where,
            f"its ledger {cursor.info.cursors_ledger_id} is gone, empty or unreadable: acknowledgements since its creation are lost",
            "",
            forced_reset(cursor, next_position, is_lost=any(one.holds(following) for one in find_broken(txn, topic))),
            **_whose(cursor),
            position=next_position,
        )
    elif cursor.skipped_entries:
        yield CURSOR_LEDGER_DAMAGED.at(
            where,
            f"the newest {counted(cursor.skipped_entries, 'entry')} of its ledger {cursor.info.cursors_ledger_id} cannot be read",
            "",
            forced_reset(cursor, next_position, is_lost=any(one.holds(following) for one in find_broken(txn, topic))),
            **_whose(cursor),
            position=next_position,
        )


def _whose(cursor: Cursor) -> dict[str, object]:
    return {
        "topic": str(cursor.topic),
        "subscription": cursor.name,
        "ledgerId": cursor.info.cursors_ledger_id,
    }


def _judge_compacted(txn: Txn, cursor: Cursor, where: str) -> Iterator[Finding]:
    ledger_id = cursor.state.properties.get(COMPACTED_LEDGER)
    if ledger_id is None or find_node(txn, ledger_path(ledger_id)) is not None:
        return
    times = find_times(txn, ledger_id)
    there = (
        f"{counted(times.sums.entries, 'entry', 'entries')} can be read"
        if times
        else "none of its entries was imported"
    )
    missing = find_missing(txn, ledger_id)
    bring = "" if missing is None else missing.cure
    forget = "" if times else f"pulsar-admin ledgers forget {ledger_id}"
    first = bring_hint(missing.absent) if missing is not None and bring else "restore the ledger"
    yield COMPACTED_LEDGER_WITHOUT_METADATA.at(
        where,
        f"BookKeeper's metadata of the compacted ledger {ledger_id} is gone: a broker cannot open it; {there}",
        f"{first}, or compact the topic here; until then compacted reads hang or fail",
        bring or forget or None,
        ledgerId=ledger_id,
    )
