"""Rules about each ledger: who references it, whether its entries have their copies, and marks of those that lack some."""

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from pulsar_admin.store.codec.ledgermetadata import ledger_path
from pulsar_admin.store.db.blocks import ledger_of_key
from pulsar_admin.store.db.copies import has_copies
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.owners import Owner, OwnerKind, decode_owners, is_listed
from pulsar_admin.store.db.tree import find_node
from pulsar_admin.store.errors import IndexCorrupt, MetadataCorrupt, StoreError
from pulsar_admin.store.facts.cluster import ClusterFacts
from pulsar_admin.store.facts.unlisted import Unlisted, UnlistedLedgers
from pulsar_admin.store.model.broken import NO_LEDGER, find_missing
from pulsar_admin.store.model.coverage import (
    absent_in,
    bring_hint,
    ensemble_bookies,
    is_final,
    read_confirmed,
    read_damaged,
    read_disks,
    read_open_end,
    read_shortfalls,
    write_set,
)
from pulsar_admin.store.model.ledger_owners import all_owners, iter_loose_owners, loose_of
from pulsar_admin.store.model.ledgers import Ledger, iter_ledger_ids, read_ledger, sorted_ledger_ids
from pulsar_admin.store.rules.finding import Finding, Severity
from pulsar_admin.store.rules.nodes import VALUE_UNDECODABLE
from pulsar_admin.store.rules.rule import Evidence, Rule, Rules, Sweep, first_of
from pulsar_admin.store.rules.topic_data import NEWER_LEDGER_MISSING, judge_missing, repair_of
from pulsar_admin.store.rules.words import KEEP_COPIES
from pulsar_admin.store.wording import counted, listed, plural

_REFERENCED = Sweep[ClusterFacts]("references to ledgers")
_LEDGERS = Sweep[ClusterFacts]("the ledgers")
LEDGER_SWEEPS = _REFERENCED, _LEDGERS

SCHEMA_LEDGER_WITHOUT_METADATA = _REFERENCED.row(
    "schema-ledger-without-metadata",
    Severity.CRITICAL,
    "The ledger of a schema version is lost",
    "A version of the topic's schema cannot be read.",
    "Answers 500 for that version. If it is the newest, the broker refuses producers with a schema.",
    "pulsar-admin ledgers restore {ledgerId}",
    "If its entries are gone, `ledgers forget` keeps the remaining versions of the schema.",
    KEEP_COPIES,
)
BUCKET_LEDGER_WITHOUT_METADATA = _REFERENCED.row(
    "bucket-ledger-without-metadata",
    Severity.WARNING,
    "The ledger of a bucket of delayed messages is lost",
    "The messages are still in the topic. Only their index is gone.",
    "Reads all messages and rebuilds the bucket.",
    "pulsar-admin ledgers forget {ledgerId}",
    "Nothing is lost. Forget the ledger to save the broker the error.",
    KEEP_COPIES,
)
LEDGERS_UNREFERENCED = _LEDGERS.row(
    "ledgers-unreferenced",
    Severity.NOTE,
    "Ledgers that nothing references",
    "They have metadata, but no topic, cursor, schema, compaction or bucket names them.",
    "Never deletes them, and neither do bookies: they keep their disk space forever.",
    "pulsar-admin ledgers orphans",
    "Look at what they claim to be. `ledgers delete` frees them. If a topic lost its list, its ledgers are among "
    "these: use `store recover`.",
)
LEDGERS_DELETED = _LEDGERS.row(
    "ledgers-deleted",
    Severity.NOTE,
    "Deleted ledgers that still have entries on disk",
    "Their metadata is gone and nothing references them, so they wait for garbage collection. A change of this store deleted them,"
    " or ZooKeeper's logs show it. `topics undelete` may restore them.",
    "Bookies free them in a garbage collection, if a whole entry log is dead or compaction reaches them.",
    "pulsar-admin ledgers orphans",
    "Nothing to do. To keep them, stop the bookies and see `topics undelete`.",
)
LEDGERS_GONE = _LEDGERS.row(
    "ledgers-gone",
    Severity.NOTE,
    "Ledgers with entries on disk whose metadata is gone, for an unknown reason",
    "The metadata is complete and had assigned their ids, but nothing references them. Most often they were deleted, "
    "but losing the nodes of a topic and its ledgers looks the same. RocksDB keeps no history that would tell the two "
    "apart, nor does ZooKeeper once its logs are purged.",
    "Bookies free them in a garbage collection, if a whole entry log is dead or compaction reaches them.",
    "pulsar-admin ledgers orphans",
    "If you miss no topic, there is nothing to do. Otherwise start no bookie before the topic is restored, from a "
    "backup of the metadata or, with ZooKeeper, from its older files and `topics undelete`.",
)
COPIES_UNKNOWN = _LEDGERS.row(
    "copies-unknown",
    Severity.NOTE,
    "Which bookie has which entry is unknown",
    "The store does not record which file belongs to which bookie.",
    "Nothing.",
    "pulsar-admin store index --rebuild",
    "Import the cluster's bookies by name, so that copies are counted.",
)
BOOKIE_NOT_IMPORTED = _LEDGERS.row(
    "bookie-not-imported",
    Severity.NOTE,
    "A bookie of the cluster was not imported",
    "Ledgers name it, but its disks were not imported. Nothing indicates a loss.",
    "Reads from it, if it runs.",
    "pulsar-admin store add bookie {bookie}=DIR",
    "Add its disks to check.",
)
COPIES_MISSING = _LEDGERS.row(
    "copies-missing",
    Severity.WARNING,
    "Entries are on fewer bookies than their write quorum",
    "A bookie that should have them does not. Other copies are good, unless another finding names the ledger.",
    "Reads from the remaining copies. Autorecovery replicates the ledger only if it knows that a bookie or "
    "disk is lost.",
    "pulsar-admin ledgers underreplicated",
    "On the live cluster: `bookkeeper shell recover BOOKIE`, or mark the ledgers with `bookkeeper shell triggeraudit`.",
    "Run autorecovery, and never replace a bookie's disk with an empty one under the same cookie.",
)
COPIES_DAMAGED = _LEDGERS.row(
    "copies-damaged",
    Severity.NOTE,
    "Entries have damaged copies, and good ones",
    "Records on one bookie have a wrong digest. The same entries on another bookie are good.",
    "The client verifies the digest and reads the good copy.",
    "pulsar-admin ledgers underreplicated",
    "Replace the damaged bookie's disk through autorecovery before the other copy fails.",
)
RECOVERY_DROPS = _LEDGERS.row(
    "recovery-drops-entries",
    Severity.WARNING,
    "A ledger is open, and its recovery may drop entries",
    "Bookies have entries after one that no imported bookie has. A bookie that is not imported may have it: then the "
    "disk of another one is an old copy, or lost it. Otherwise neither that entry nor any after it was acknowledged.",
    "Recovers the ledger when it loads the topic, and closes it before that entry as soon as a bookie without it answers.",
    "pulsar-admin ledgers info {ledgerId}",
    "Add the bookies that are not imported: `openEnd` then says whether they have the entry. If they do, keep bookies "
    "that lack it stopped until a broker has loaded the topic, but at most one fewer than the ledger's ack quorum; "
    "otherwise the recovery fails. As many bookies as the ensemble has must run meanwhile, because the recovery writes "
    "the entries again.",
    KEEP_COPIES,
    loss="the entries after the gap, if a broker loads the topic",
)
OPEN_END_UNCERTAIN = _LEDGERS.row(
    "open-end-uncertain",
    Severity.NOTE,
    "A ledger is open, and its recovery may keep or drop its last entries",
    "Too few bookies have them for every recovery to find them, and no later entry says that they were acknowledged. Either they were in"
    " flight when the cluster stopped, or the disk of a bookie that lacks them is an old copy, or lost them.",
    "Recovers the ledger when it loads the topic: it keeps an entry if a bookie that has it answers first, and "
    "otherwise closes the ledger before it.",
    "pulsar-admin ledgers info {ledgerId}",
    "Nothing to do after a crash. If a disk is an old copy, keep its bookie stopped until a broker has loaded the topic, or let `store"
    " salvage` look at the bookies' disks first.",
    "Never start a bookie on an old copy of its disk.",
)
RECOVERY_FAILS = _LEDGERS.row(
    "recovery-fails",
    Severity.CRITICAL,
    "A ledger is open, and its recovery will fail",
    "No bookie has a good record of the entry after the last acknowledged one, and the bookies that should "
    "have it do not rule it out either.",
    "Cannot open the topic: each load tries to recover the ledger and fails.",
    "pulsar-admin ledgers info {ledgerId}",
    "Look at `openEnd`. Add the bookie that has the entry, or a good copy of its file. If there is none, `ledgers restore LEDGER"
    " --to-bookies` closes the ledger before the damaged entry.",
    KEEP_COPIES,
)


RECOVERY_NEEDS = _LEDGERS.row(
    "recovery-needs-bookie",
    Severity.WARNING,
    "A ledger is open, and its recovery fails unless a bookie that is not imported answers",
    "A damaged record tells a recovery neither that the entry exists nor that it does not, and the only other bookie "
    "that it can ask is not imported.",
    "Opens the topic if that bookie runs and has a good record. Otherwise each load tries to recover the ledger and "
    "fails.",
    "pulsar-admin ledgers info {ledgerId}",
    "Start the bookies that `needs` names before the broker, or add their disks to look. If one is gone for good, "
    "delete its cookie (`bookkeeper shell cookie_delete`) and run `store refresh`: `ledgers missing` then names the "
    "ledger, and the command that closes it before the damaged entry.",
    KEEP_COPIES,
)


_REFERENCES = {
    OwnerKind.SCHEMA: (
        SCHEMA_LEDGER_WITHOUT_METADATA,
        "BookKeeper's metadata of a schema version is gone: a broker answers 500 for it, and if it is the newest, it "
        "refuses producers",
    ),
    OwnerKind.BUCKET: (
        BUCKET_LEDGER_WITHOUT_METADATA,
        "BookKeeper's metadata of a bucket of delayed messages is gone: a broker rebuilds it from the messages",
    ),
    OwnerKind.PACKAGE: (
        NEWER_LEDGER_MISSING,
        "BookKeeper's metadata of a package of functions, sinks or sources is gone: a broker cannot read it",
    ),
}
"""What references ledgers beside topics and cursors: the rule, and what its loss means."""
_HINT = "see: pulsar-admin ledgers underreplicated"


@_REFERENCED.by
def _check_references(facts: ClusterFacts) -> Iterator[Finding]:
    """Check that schemas and delayed messages have the ledgers that they name; other rules check those of topics and cursors."""
    txn = facts.reader.txn
    try:
        for key, row in iter_loose_owners(txn):
            ledger_id = ledger_of_key(key)
            owners = decode_owners(ledger_id, row)
            lost = [owner for owner in owners if owner.kind in _REFERENCES]
            if lost and find_node(txn, ledger_path(ledger_id)) is None:
                rule, what = _REFERENCES[lost[0].kind]
                where, hint = f"ledger {ledger_id} of {lost[0].topic}", repair_of(ledger_id)
                if lost[0].is_of_newer:
                    rule, hint = NEWER_LEDGER_MISSING, ""
                missing = find_missing(txn, ledger_id)
                bring = "" if missing is None else missing.cure
                if missing is not None and bring:
                    what, hint = f"{what}; what is not imported may have its entries", bring_hint(missing.absent)
                yield rule.at(where, what, hint, bring or None, ledgerId=ledger_id)
    except IndexCorrupt:
        return  # the sweep over owners tells


def mend_damaged(txn: Txn, ledger_id: int) -> str | None:
    """Return the command for a ledger with damaged metadata that something lists, None if nothing restores or removes it."""
    missing = find_missing(txn, ledger_id)
    if missing is None:
        return None
    if missing.cure:
        return missing.cure
    if missing.reason == NO_LEDGER:
        return f"pulsar-admin ledgers forget {ledger_id}" if missing.may_be_forgotten else None
    return f"pulsar-admin ledgers restore {ledger_id}" if missing.may_be_restored else None


@_LEDGERS.by
def _check_ledgers(facts: ClusterFacts) -> Iterator[Finding]:
    """Check each ledger's metadata and copies, more of those that belong to no topic's list; note unreferenced and deleted ones."""
    txn, unreferenced = facts.reader.txn, 0
    are_known = False
    with suppress(IndexCorrupt):  # the sweep over the catalogue tells
        disks = read_disks(txn)
        # Of one bookie the index knows enough.
        are_known = disks.unknown is None or (disks.tells and not has_copies(txn))
        if disks.unknown is not None and not are_known:
            yield COPIES_UNKNOWN.at("bookies", *disks.unknown)
    shortfalls = read_shortfalls(txn)
    looked_at = {*loose_of(txn, sorted_ledger_ids(txn)), *shortfalls.ledgers, *shortfalls.others}
    for ledger_id in filter(looked_at.__contains__, iter_ledger_ids(txn)):  # of nearly all there is nothing to say
        ledger = None
        owners: tuple[Owner, ...] = ()
        with suppress(StoreError):  # the sweep over owners tells
            is_settled = shortfalls.settles(ledger_id) or is_final(txn, ledger_id)
            if is_settled and is_listed(txn, ledger_id):
                continue  # as below
            owners = all_owners(txn, ledger_id)
            unreferenced += not owners
            if is_settled and any(owner.kind is OwnerKind.TOPIC for owner in owners):
                continue  # the sweep of topics looks at these
        try:
            ledger = read_ledger(txn, ledger_id)
        except MetadataCorrupt as error:
            yield VALUE_UNDECODABLE.of(error, ledger_path(ledger_id), mend_damaged(txn, ledger_id) if owners else None)
        except StoreError:
            pass  # the index's check tells
        if ledger is not None and all(owner.kind is not OwnerKind.TOPIC for owner in owners):
            with suppress(StoreError):  # the index's check tells
                yield from judge_missing(txn, ledger, f"ledger {ledger_id}")
        if ledger is not None and are_known:
            with suppress(StoreError):  # the sweeps over the catalogue and the rows of copies tell
                yield from _check_ledger(txn, ledger)
    for bookie, ledgers in sorted(shortfalls.absent.items()) if are_known else ():
        yield BOOKIE_NOT_IMPORTED.at(
            f"bookie {bookie}",
            f"{counted(ledgers, 'ledger has', 'ledgers have')} entries that it should have; whether it has them is "
            "unknown",
            _HINT,
            bookie=bookie,
            ledgers=ledgers,
        )
    if unreferenced:
        yield LEDGERS_UNREFERENCED.at(
            "metadata",
            counted(unreferenced, "ledger has no owner", "ledgers have no owner"),
            "see: pulsar-admin ledgers orphans",
        )
    fates = Counter(why for _, why in UnlistedLedgers(txn).iter_unowned())
    for why, rule, fate in (
        (Unlisted.DELETED, LEDGERS_DELETED, "deleted, and not yet garbage-collected"),
        (Unlisted.GONE, LEDGERS_GONE, "deleted by a broker, or lost"),
    ):
        if fates[why]:
            yield rule.at(
                "entry logs",
                f"{counted(fates[why], 'ledger has', 'ledgers have')} entries and no metadata: {fate}",
                "see: pulsar-admin ledgers orphans",
            )


def _check_ledger(txn: Txn, ledger: Ledger) -> Iterator[Finding]:
    where = f"ledger {ledger.ledger_id}"
    coverage = read_confirmed(txn, ledger) if ledger.ledger_id in read_shortfalls(txn).ledgers else None
    if coverage is not None and any(row.imported and (row.missing or row.damaged) for row in coverage.bookies):
        bookies = {row.bookie: row.missing + row.damaged for row in coverage.bookies if row.missing or row.damaged}
        text = coverage.text(ledger.entries)
        if coverage.short > coverage.outside and (any(row.missing for row in coverage.bookies) or coverage.lost):
            yield COPIES_MISSING.at(where, text, _HINT, ledgerId=ledger.ledger_id, bookies=bookies)
        elif coverage.short > coverage.outside:
            yield COPIES_DAMAGED.at(where, text, _HINT, ledgerId=ledger.ledger_id, bookies=bookies)
    end = read_open_end(txn, ledger)

    def told(rule: Rule[Any], why: str, **values: object) -> Finding:
        see = f"see: pulsar-admin ledgers info {ledger.ledger_id}"
        return rule.at(where, f"it was never closed, and {why}", see, ledgerId=ledger.ledger_id, **values)

    if end is not None and end.verdict == "damaged":
        why = f"no bookie has a good record of entry {end.last_entry_id + 1}: its recovery fails there"
        if end.bookies:
            what = plural(len(end.bookies), "the last record of it is", "the last records of it are")
            why = f"{what} damaged on {listed(end.bookies)}: its recovery, which asks for them, fails"
        yield told(RECOVERY_FAILS, why)
    if end is not None and end.needs:
        having = sorted({bookie for bookie, _, _ in read_damaged(txn).get(ledger.ledger_id, ())})
        yield told(
            RECOVERY_NEEDS,
            f"{listed(having)} {plural(len(having), 'has', 'have')} damaged records of it: its recovery fails"
            f" unless {listed(end.needs)}, not imported, {plural(len(end.needs), 'answers', 'answer')}",
        )
    if end is not None and ledger.metadata is not None and end.verdict == "final" and end.bookies:
        next_id, absent = end.last_entry_id + 1, listed(end.bookies)
        bad = {bookie for bookie, entry_id, _ in read_damaged(txn).get(ledger.ledger_id, ()) if entry_id == next_id}
        lacking = read_disks(txn).imported.intersection(write_set(ledger.metadata, next_id)) - bad
        damaged = f" ({listed(sorted(bad))} {plural(len(bad), 'has', 'have')} a damaged record of it)" if bad else ""
        yield told(
            RECOVERY_DROPS,
            f"{listed(sorted(lacking))} {plural(len(lacking), 'lacks', 'lack')} entry {next_id}{damaged}, but"
            f" {counted(end.entries_beyond, 'entry')} after it {plural(end.entries_beyond, 'is', 'are')} here: a recovery may close it"
            f" after entry {end.last_entry_id}, also where {absent}, not imported, has entry {next_id}",
            entries=end.entries_beyond,
        )
    members = () if ledger.metadata is None else ensemble_bookies(ledger.metadata)
    if end is not None and end.verdict == "final" and end.kept < end.last_entry_id and not absent_in(txn, members):
        first, last = end.kept + 1, end.last_entry_id
        entries = f"entry {last} is" if first == last else f"entries {first} to {last} are"
        why = f"{entries} on too few bookies for every recovery to find: some would drop them"
        yield told(OPEN_END_UNCERTAIN, why, entries=last - end.kept)


# -- under-replication marks ------------------------------------------------------------------------------------------

MARK_RULES = Rules[ClusterFacts]()


@MARK_RULES.row(
    "marks-stale",
    Severity.NOTE,
    "Ledgers are marked as under-replicated without a reason",
    "The node below `/ledgers/underreplication` exists, but the ledger was deleted, or each of its entries is on "
    "as many bookies as its write quorum (bookkeeper#3316, pulsar#1886).",
    "The mark stays while no autorecovery runs, or it is disabled, and tools that count marks report lost copies. A "
    "running one finds nothing to replicate and removes the mark (BookKeeper 4.17; earlier versions were seen retrying "
    "it forever).",
    "pulsar-admin ledgers unmark",
    "Remove the marks, all in one change; the auditor marks a ledger again if necessary.",
)
def _stale(facts: ClusterFacts) -> Iterator[Evidence]:
    stale = [mark for mark in facts.marks if mark.is_stale]
    if not stale:
        return
    ids = sorted(mark.ledger_id for mark in stale)
    gone = sorted(mark.ledger_id for mark in stale if mark.is_gone)
    complete = sorted(mark.ledger_id for mark in stale if mark.is_complete)
    why = (f"{word} ({listed(some)})" for word, some in (("gone", gone), ("complete", complete)) if some)
    yield Evidence(
        f"{plural(len(ids), 'ledger')} {listed(ids)}",
        f"{counted(len(ids), 'ledger is', 'ledgers are')} marked as under-replicated and {' and '.join(why)}:"
        " there is nothing to replicate",
        {
            "ledgers": len(ids),
            "ledgerIds": first_of(ids),
            "gone": len(gone),
            "complete": len(complete),
            "bookies": first_of(sorted({bookie for mark in stale for bookie in mark.bookies})),
        },
    )
