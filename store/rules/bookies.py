"""Rules about bookies: entry logs that are gone, entries that only journals have, ledgers on bookies that are not of the cluster."""

from collections.abc import Iterator, Sequence
from functools import partial

from pulsar_admin.store.facts.bookies import Unreadable
from pulsar_admin.store.facts.cluster import ClusterFacts
from pulsar_admin.store.rules.finding import Severity
from pulsar_admin.store.rules.rule import Evidence, Rules, first_of
from pulsar_admin.store.wording import counted, listed, plural

_FORGOTTEN = 50
"""Ledgers of one command."""
_COPIES = "Keep write quorum at 2 or more, and never delete files of a bookie by hand."
_ASKED = (
    "A client asks the bookies that the ledger's metadata names, and no others. Consumers stop at such an entry (`No "
    "such entry`), a topic whose last ledger cannot be closed does not load (`BKLedgerRecoveryException`), and a "
    "schema or subscription stored in one cannot be used."
)
BOOKIE_RULES = Rules[ClusterFacts]()


def _logs(facts: ClusterFacts, *, is_database: bool) -> Iterator[Evidence]:
    unseen = "may be on bookies or in journals that are not imported"
    for log in (one for one in facts.bookies.lost_logs if one.is_database is is_database):
        counts = (
            (log.elsewhere, "has another copy that clients get", "have another copy that clients get"),
            (log.outside, "is only where no client can read it", "are only where no client can read them"),
            (log.nowhere, "is nowhere", "are nowhere"),
            (log.unseen, unseen, unseen),
        )
        rest = ", ".join(f"{count:,} {plural(count, one, many)}" for count, one, many in counts if count)
        yield Evidence(
            str(log.path),
            f"the index of bookie {log.bookie} points {counted(log.entries, 'entry')} of "
            f"{counted(len(log.ledgers), 'ledger')} to this entry log, which {'is empty' if log.is_empty else 'does not exist'}: {rest}",
            {
                "bookie": log.bookie,
                "ledgers": len(log.ledgers),
                "ledgerIds": first_of(log.ledgers),
                "entries": log.entries,
                "elsewhere": log.elsewhere,
                "outside": log.outside,
                "nowhere": log.nowhere,
                "disks": facts.bookies.disks(log.bookie),
            },
            severity=Severity.CRITICAL if log.outside or log.nowhere else Severity.WARNING,
        )


BOOKIE_RULES.row(
    "entry-log-missing",
    Severity.CRITICAL,
    "An entry log that a bookie's index names does not exist",
    "The index points entries of existing ledgers to this log. Journals may still have them, but before the mark at "
    "which a start begins to read. Critical if clients get no other copy, otherwise a warning, also where that is unknown as bookies "
    "are not imported.",
    "The bookie answers with an I/O error, and the client asks the entry's other bookies. If none has it the "
    "reader is stuck, and a ledger that was not closed cannot be recovered.",
    "pulsar-admin store salvage {disks}",
    "Restore the file from a backup. Without one, salvage the bookie while it is stopped, which writes the "
    "entries anew from old journals and other bookies, then run `store refresh`.",
    _COPIES,
    of_disks=True,
)(partial(_logs, is_database=True))


BOOKIE_RULES.row(
    "idx-log-missing",
    Severity.CRITICAL,
    "An entry log that a bookie's .idx files name does not exist",
    "As `entry-log-missing`, of a bookie with SortedLedgerStorage or InterleavedLedgerStorage. Critical if "
    "clients get no other copy, otherwise a warning.",
    "The bookie answers with an I/O error, and the client asks the entry's other bookies. If none has it the "
    "reader is stuck, and a ledger that was not closed cannot be recovered.",
    "pulsar-admin ledgers underreplicated",
    "Restore the file from a backup. Without one, `bookkeeper shell recover` copies the entries that other "
    "bookies have; `topics dump` writes those that only old journals have to files, which `topics load` reads. "
    "See which ledgers lack copies.",
    _COPIES,
    of_disks=True,
)(partial(_logs, is_database=False))


def _unserved(facts: ClusterFacts, *, is_database: bool) -> Iterator[Evidence]:
    """Yield the bookies that alone have some entries and do not serve them, unless a missing log explains it."""
    explained = {(log.bookie, ledger_id) for log in facts.bookies.lost_logs for ledger_id in log.ledgers}
    unserved: dict[str, list[Unreadable]] = {}
    for one in facts.bookies.unreadable:
        if not one.is_open and one.missing.outside is not None:
            for bookie in one.missing.outside.asked:
                if (bookie, one.ledger_id) not in explained:
                    unserved.setdefault(bookie, []).append(one)
    for bookie, ledgers in sorted(unserved.items()):
        if facts.bookies.has_database(bookie) is not is_database:
            continue
        entries, in_logs = sum(one.outside_entries for one in ledgers), facts.bookies.off_index(bookie, ledgers)
        in_journals = entries - in_logs
        counts = (
            (in_logs, "in its entry logs, but not in its index"),
            (in_journals, "only in parts of its journals that it does not replay"),
        )
        where = " or ".join(
            f"{text}{f' ({count:,})' * bool(in_logs and in_journals)}" for count, text in counts if count
        )
        yield Evidence(
            f"bookie {bookie}",
            f"{counted(entries, 'entry')} of {counted(len(ledgers), 'ledger')} {plural(entries, 'lies', 'lie')} {where}",
            {
                "bookie": bookie,
                "ledgers": len(ledgers),
                "ledgerIds": first_of(one.ledger_id for one in ledgers),
                "entries": entries,
                "offIndex": in_logs,
                "disks": facts.bookies.disks(bookie),
            },
        )


BOOKIE_RULES.row(
    "entries-not-served",
    Severity.CRITICAL,
    "A bookie has entries that it does not serve",
    "Its entry logs have them, but its index has no row for them or their ledger, or one that leads to a damaged record or past the "
    "end of a log while an older log has a good one: part of the index is lost or outdated, or a log is damaged or cut. Or only "
    "its journals have them, before the mark, as an entry log is lost or cut, or after damage that ends a replay. In neither case "
    "does a start read them again.",
    f"It answers that it has no such entry, or with the damaged record, which clients refuse. {_ASKED}",
    "pulsar-admin store salvage {disks}",
    "Salvage the bookie while it is stopped, which rebuilds its index and writes entries that only journals have "
    "into an entry log, then run `store refresh`.",
    _COPIES,
    of_disks=True,
)(partial(_unserved, is_database=True))


BOOKIE_RULES.row(
    "idx-entries-not-served",
    Severity.CRITICAL,
    "A bookie with .idx files has entries that it does not serve",
    "As `entries-not-served`, of a bookie with SortedLedgerStorage or InterleavedLedgerStorage: an `.idx` file is "
    "gone, or does not have the entries.",
    f"It answers that it has no such entry. {_ASKED}",
    "pulsar-admin ledgers missing",
    "While the bookie is stopped, `bookkeeper shell regenerate-interleaved-storage-index-file -l LEDGER,LEDGER` "
    "rebuilds the files from its entry logs; then run `store refresh`. `topics dump` writes entries that only old "
    "journals have to files. See which entries they are.",
    _COPIES,
    of_disks=True,
)(partial(_unserved, is_database=False))


@BOOKIE_RULES.row(
    "ensemble-elsewhere",
    Severity.CRITICAL,
    "Ledgers name other bookies than those that have their entries",
    "The bookies of their ensembles are gone (no cookie, not imported) or do not have the entries, but other "
    "imported bookies do: a bookie's id was changed, or disks were moved to other bookies.",
    _ASKED,
    "pulsar-admin ledgers restore --to-bookies",
    "Make the metadata name the bookies that have the entries. A ledger that nobody can close is closed at its last imported entry.",
    "Give bookies fixed ids (`bookieId`), so that a new address does not make a new bookie.",
)
def _elsewhere(facts: ClusterFacts) -> Iterator[Evidence]:
    elsewhere: dict[tuple[str, ...], list[Unreadable]] = {}
    for one in facts.bookies.unreadable:
        if one.missing.is_astray:
            elsewhere.setdefault(one.gone, []).append(one)
    thinned: dict[tuple[str, ...], dict[int, tuple[str, ...]]] = {}
    for thin in facts.bookies.thinned:
        if thin.spare:
            thinned.setdefault(tuple(sorted(thin.gone)), {})[thin.ledger_id] = thin.spare
    for gone in sorted({*elsewhere, *thinned}):
        lost, kept = elsewhere.get(gone, []), thinned.get(gone, {})
        ids = sorted([*(one.ledger_id for one in lost), *kept])
        entries = sum(one.outside_entries for one in lost)
        holders = {bookie for one in lost if one.missing.outside for bookie in one.missing.outside.bookies}
        holders |= {bookie for spare in kept.values() for bookie in spare}
        whose, have = ", ".join(sorted(holders)), plural(len(holders), "has", "have")
        named = ", ".join(gone) + f", {_are_gone(gone)}" if gone else "bookies that do not have their entries"
        what = (
            f"clients do not get {counted(entries, 'entry')} of {plural(len(ids), 'it', 'them')} that {whose} {have}"
            if lost
            else f"clients read the entries from other bookies, and {whose} also {have} copies"
        )
        yield Evidence(
            f"bookie {', '.join(gone)}" if gone else f"ledgers {listed(ids)}",
            f"{counted(len(ids), 'ledger')} {plural(len(ids), 'names', 'name')} {named}; {what}{_needs(lost)}",
            {
                "bookies": list(gone),
                "holders": sorted(holders),
                "ledgers": len(ids),
                "ledgerIds": first_of(ids),
                "entries": entries,
            },
            severity=None if lost else Severity.WARNING,
        )


@BOOKIE_RULES.row(
    "bookie-gone",
    Severity.CRITICAL,
    "Entries were on a bookie that is gone",
    "Ledgers name a bookie that has no cookie in the metadata and was not imported; no imported bookie has these entries.",
    _ASKED,
    "pulsar-admin store add bookie {bookie}=DIR,DIR",
    "If its disks are gone, `ledgers missing` lists the losses, and `ledgers forget` lets topics continue. Otherwise import them.",
    "Decommission a bookie (`bookkeeper shell decommissionbookie`) before removing its disks.",
    loss="the entries that no bookie has",
)
def _gone(facts: ClusterFacts) -> Iterator[Evidence]:
    unreadable: dict[str, list[Unreadable]] = {}
    thinned: dict[str, list[int]] = {}
    for one in facts.bookies.unreadable:
        if _nowhere(one) or (_is_empty(one) and not _is_to_go(one)):
            for bookie in one.gone:
                unreadable.setdefault(bookie, []).append(one)
    for thin in facts.bookies.thinned:
        if not thin.spare:
            for bookie in thin.gone:
                thinned.setdefault(bookie, []).append(thin.ledger_id)
    for bookie in sorted({*unreadable, *thinned}):
        lost = unreadable.get(bookie, [])
        ids = sorted([*(one.ledger_id for one in lost), *thinned.get(bookie, [])])
        entries = sum(_nowhere(one) for one in lost)
        what = (
            f"{counted(entries, 'entry')} of {plural(len(ids), 'it', 'them')} {plural(entries, 'is', 'are')} nowhere here"
            if entries
            else "no imported bookie has their entries, and nobody can close them"
            if lost
            else "clients get the entries from other bookies, but there are fewer copies than the write quorum"
        )
        yield Evidence(
            f"bookie {bookie}",
            f"{counted(len(ids), 'ledger')} {plural(len(ids), 'names', 'name')} it, {_are_gone([bookie])}; {what}{_needs(lost)}",
            {"bookie": bookie, "ledgers": len(ids), "ledgerIds": first_of(ids), "entries": entries},
            severity=None if any(one.needed for one in lost) else Severity.WARNING,
        )


def _nowhere(one: Unreadable) -> int:
    return one.missing.missing_entries - one.outside_entries - one.missing.unseen_entries


def _is_empty(one: Unreadable) -> bool:
    """Whether the ledger was never closed and none of its entries was imported."""
    return one.is_open and one.missing.outside is None


def _is_to_go(one: Unreadable) -> bool:
    """Whether the ledger can be removed from its topic: no bookie that is not imported may have entries of it."""
    return one.missing.may_be_forgotten and not one.missing.absent


@BOOKIE_RULES.row(
    "ledger-on-gone-bookies",
    Severity.CRITICAL,
    "A ledger without imported entries cannot be closed",
    "It is open, and so many of its bookies are gone (no cookie, not imported) that a recovery cannot get enough answers.",
    "Each load of the topic tries to recover its last ledger and fails: `BKLedgerRecoveryException`. A "
    "subscription that stores its position in this ledger starts at the position in its metadata.",
    "pulsar-admin ledgers forget {ledgerIds}",
    "If the disks of the bookies exist, import them first (`store add bookie`). Otherwise remove the ledgers.",
    "Decommission a bookie (`bookkeeper shell decommissionbookie`) before removing its disks.",
    loss="the ledger's entries on the lost bookies",
)
def _empty(facts: ClusterFacts) -> Iterator[Evidence]:
    unreadable: dict[tuple[str, ...], list[Unreadable]] = {}
    for one in facts.bookies.unreadable:
        if _is_empty(one) and _is_to_go(one):
            unreadable.setdefault(tuple(sorted(one.missing.bookies)), []).append(one)
    for bookies, ledgers in sorted(unreadable.items()):
        ledgers.sort(key=lambda one: not one.needed)
        for start in range(0, len(ledgers), _FORGOTTEN):
            some = ledgers[start : start + _FORGOTTEN]
            ids = sorted(one.ledger_id for one in some)
            they, them = plural(len(ids), "it was", "they were"), plural(len(ids), "it", "them")
            yield Evidence(
                f"{plural(len(ids), 'ledger')} {listed(ids)}",
                f"{they} never closed, no imported bookie has an entry of {them}, and nobody can close {them} without "
                f"{', '.join(bookies)}, {_are_gone(bookies)}{_needs(some)}",
                {"ledgerIds": ids, "ledgers": len(ids), "bookies": list(bookies), "bookie": bookies[0]},
                severity=None if any(one.needed for one in some) else Severity.WARNING,
            )


def _are_gone(bookies: Sequence[str]) -> str:
    return f"which {plural(len(bookies), 'has no cookie and is', 'have no cookies and are')} not imported"


def _needs(ledgers: Sequence[Unreadable]) -> str:
    """Return who needs the first needed one of ``ledgers`` now, and how many more are needed; "" if none is."""
    needed = [f"ledger {one.ledger_id}: {one.needed}" for one in ledgers if one.needed]
    more = f", and {len(needed) - 1:,} more that are needed" if len(needed) > 1 else ""
    return f"; {needed[0]}{more}" if needed else ""
