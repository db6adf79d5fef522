"""``ledgers``: list, info, entries, orphans, missing, underreplicated, verify."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from pulsar_admin.columns import Column, alarm, caution, size_text
from pulsar_admin.context import App, Result, Table
from pulsar_admin.cures import cure_lines
from pulsar_admin.jsonify import to_json
from pulsar_admin.numbers import whole
from pulsar_admin.options import command
from pulsar_admin.store.errors import IndexCorrupt, LedgerNotFound, MetadataCorrupt, StoreNotFound
from pulsar_admin.store.model.ledger_owners import custom_text
from pulsar_admin.store.names import shell_word
from pulsar_admin.store.wording import counted

if TYPE_CHECKING:
    from pulsar_admin.store.db.owners import Owner
    from pulsar_admin.store.model.broken import Missing
    from pulsar_admin.store.model.coverage import BookieCopies, Coverage, UnderReplicated
    from pulsar_admin.store.reports.ledger_facts import LedgerFacts
    from pulsar_admin.store.reports.verify import LedgerVerdict

_LEDGER_ID = whole()


def _owner_text(owners: Iterable[Owner]) -> str:
    return ", ".join(f"{owner.kind} {owner.topic}" + (f" {owner.cursor}" if owner.cursor else "") for owner in owners)


def _ranges_text(ranges: Iterable[tuple[int, int]]) -> str:
    return ", ".join(str(first) if first == last else f"{first}..{last}" for first, last in ranges)


# -- list -------------------------------------------------------------------------------------------------------------

_LIST_COLUMNS = (
    Column("LEDGER", "ledger_id", "id"),
    Column("STATE", "state", drop=3),
    Column("ENTRIES", "entries", "number", sums=True),
    Column("MISSING", "missing_entries", "number", drop=4, tone=alarm, sums=True),
    Column("BYTES", "size_bytes", "bytes", sums=True),
    Column("MESSAGES", "messages", "number", drop=2, sums=True),
    Column("FROM", "begin_publish_timestamp", "time", drop=1),
    Column("TO", "end_publish_timestamp", "time", drop=5),
    Column("OWNER", lambda row: _owner_text(row.owners) or "-"),
)


@command(
    "ledgers list",
    examples=["", "--topic plain -o jsonl"],
    output="One row per ledger: state, entries, bytes, publish times, and who references it.",
    errors=[StoreNotFound],
)
@click.option("--topic", "word", metavar="TEXT", help="Only ledgers whose owner's name contains TEXT.")
def list_ledgers(app: App, word: str | None) -> Result:
    """List every ledger of the metadata and of the entry logs.

    States of entries without metadata: DELETED, not garbage-collected yet; GONE, deleted by a broker, or lost: nothing
    shows which; NEWER, the metadata is older than the ledger and never assigned its id; UNLISTED, nothing shows whether it
    was deleted. INDEX: part of a delayed message index, unknown to brokers. UNREADABLE: its metadata is damaged. MISSING
    counts the entries before the ledger's end that are in no file.
    """
    return Result(rows=app.api.ledger_rows(word or ""), columns=_LIST_COLUMNS)


# -- info -------------------------------------------------------------------------------------------------------------


@command(
    "ledgers info",
    examples=["9"],
    output="One object per ledger: metadata, its entries in the index, files, owners, losses, and the bookies that "
    "hold its entries; `lost` is what `ledgers missing` says, and makes the exit code 1.",
    errors=[LedgerNotFound, MetadataCorrupt],
)
@click.argument("ledgers", type=_LEDGER_ID, nargs=-1, required=True)
def info(app: App, ledgers: tuple[int, ...]) -> Result:
    """Show everything known about a ledger.

    `coverage` counts the entries that each bookie of its ensembles should have and does have; `entriesOn` counts the
    entries that are on 0, 1, 2 … of those bookies, or is null if the store does not know. `openEnd` is where a recovery
    would close a ledger that is still open.
    """
    with app.session.read():
        documents = list(app.each(ledgers, lambda ledger_id: _document(app.ledger(ledger_id).info())))
    app.problems(sum(document["lost"] is not None for document in documents))
    return Result(documents[0]) if len(ledgers) == 1 else Result(rows=documents)


def _document(facts: LedgerFacts) -> dict[str, Any]:  # Any: JSON
    return {
        **to_json(facts),
        "metadata": _metadata_document(facts.metadata),
        "indexed": None if facts.sums is None else _sums_document(facts.sums),
        "coverage": None if facts.coverage is None else _coverage_document(facts.coverage),
    }


def _metadata_document(metadata: Any) -> dict[str, Any] | None:  # Any: LedgerMetadata or None, and JSON
    if metadata is None:
        return None
    return {
        "formatVersion": metadata.version,
        "ensembleSize": metadata.ensemble_size,
        "writeQuorumSize": metadata.write_quorum,
        "ackQuorumSize": metadata.ack_quorum,
        "digestType": None if metadata.digest_type is None else metadata.digest_type.name,
        "length": metadata.length,
        "lastEntryId": metadata.last_entry_id,
        "ctime": metadata.ctime_ms,
        "ensembles": {str(segment.first_entry_id): list(segment.members) for segment in metadata.segments},
        "customMetadata": custom_text(metadata),
    }


def _sums_document(sums: Any) -> dict[str, Any]:  # Any: LedgerSums, and JSON
    return {
        "entries": sums.entries,
        "firstEntryId": sums.first_entry,
        "lastEntryId": sums.last_entry,
        "messages": sums.messages,
        "payloadBytes": sums.payload_bytes,
        "beginPublishTimestamp": sums.begin_publish_ms,
        "endPublishTimestamp": sums.end_publish_ms,
        "entriesWithBrokerTime": sums.broker_count,
        "entriesWithoutMessage": sums.unframed,
        "lastAddConfirmed": sums.max_lac,
    }


def _coverage_document(coverage: Coverage) -> dict[str, Any]:  # Any: JSON
    return {
        "bookies": [_copies_document(row) for row in coverage.bookies],
        "entriesOn": {str(copies): entries for copies, entries in enumerate(coverage.on)},
        "underReplicated": coverage.short,
        "lost": coverage.lost,
        "outside": coverage.outside,
        "unknown": coverage.unknown,
    }


def _copies_document(row: BookieCopies) -> dict[str, Any]:  # Any: JSON
    return {
        "bookie": row.bookie,
        "imported": row.imported,
        "expected": row.expected,
        "held": row.held,
        "gone": row.gone,
        "missing": row.missing if row.imported or row.gone else None,
        "unserved": row.unserved,
        "damaged": row.damaged,
        "differing": row.differing,
    }


# -- entries ----------------------------------------------------------------------------------------------------------

_ENTRY_COLUMNS = (
    Column("ENTRY", "entry_id", "id"),
    Column("STATE", "state"),
    Column("PUBLISHED", "publish_time_ms", "time"),
    Column("BROKER TIME", "broker_time_ms", "time", drop=5),
    Column("MESSAGES", "messages", "number"),
    Column("LAC", "last_add_confirmed", "id", drop=1),
    Column("LENGTH", "length", "number", drop=2),
    Column("SIZE", "size_bytes", "number"),
    Column("OFFSET", "offset", "id", drop=3),
    Column("FILE", "file", drop=4),
)


@command(
    "ledgers entries",
    examples=["9 --limit 5", "9 --from 20 -o jsonl"],
    output="One row per entry: its place, times, sizes, and whether its digest is right. Exit code 1 if one is wrong.",
    errors=[LedgerNotFound, MetadataCorrupt],
)
@click.argument("ledger", type=_LEDGER_ID)
@click.option("--from", "first", type=whole(), default=0, help="First entry id.")
@click.option("--to", "last", type=whole(), help="Last entry id.")
@click.option("--limit", type=whole(1), help="At most this many rows.")
def entries(app: App, ledger: int, first: int, last: int | None, limit: int | None) -> Result:
    """List the entries of a ledger, each read and its digest verified.

    STATE is `ok`, `missing` (no file holds it), or what is wrong with it.
    """
    found = app.counting(islice(app.ledger(ledger).entries(first, last), limit), lambda row: row.state != "ok")
    return Result(rows=found, columns=_ENTRY_COLUMNS)


# -- orphans, missing, verify -----------------------------------------------------------------------------------------

_ORPHAN_COLUMNS = (
    Column("LEDGER", "ledger_id", "id"),
    Column("REASON", "reason"),
    Column("ENTRIES", "entries", "number", sums=True),
    Column("BYTES", "size_bytes", "bytes", sums=True),
    Column("CLAIMS", lambda row: ", ".join(f"{key}={value}" for key, value in row.claims.items())),
)


@command(
    "ledgers orphans",
    examples=[""],
    output="One row per unreferenced ledger: why, how big it is, and what its own metadata claims.",
    errors=[StoreNotFound, IndexCorrupt],
)
def orphans(app: App) -> Result:
    """List ledgers that no topic, cursor, schema, compaction or delayed index references.

    `unreferenced` ledgers have metadata: they were created but never listed, or their list was lost. `unknown`
    ones name an owner that this metadata does not have, without a sign of its deletion: it may be lost, or belong to
    another Pulsar on the same BookKeeper. `deleted` ones have only entries that a bookie has not garbage-collected yet;
    so have `gone` ones, but it is unknown whether a broker deleted them or their metadata was lost. `newer` ones have
    ids that this metadata never assigned: it is older than the bookies. Whether `unlisted` ones were deleted is unknown: the
    metadata is incomplete, or does not say which ids it gave. `leaked-index` ones were written by
    this store alone: for a delayed message index that was rebuilt, or by a change that was undone.
    """
    return Result(rows=app.api.orphans(), columns=_ORPHAN_COLUMNS)


_MISSING_COLUMNS = (
    Column("LEDGER", "ledger_id", "id"),
    Column("MISSING", "reason"),
    Column("ENTRIES", "missing_entries", "number", tone=alarm, sums=True),
    Column("RANGES", lambda row: _ranges_text(row.ranges)),
    Column("OWNER", lambda row: _owner_text(row.owners) or "-"),
)


@command(
    "ledgers missing",
    elsewhere=["", "9 -o json"],
    output="One row per ledger that is incomplete: no ledger, no metadata, or missing entries. Exit code 1 if "
    "there is any.",
    errors=[StoreNotFound, IndexCorrupt],
)
@click.argument("ledgers", type=_LEDGER_ID, nargs=-1)
def missing(app: App, ledgers: tuple[int, ...]) -> Result:
    """List losses: referenced ledgers that do not exist, and entries that no file has.

    Ledgers in tiered storage are not checked. Files that disappeared since the import are listed with their number of
    entries (exit code 1).
    """
    losses = app.api.missing(*ledgers)
    app.problems(len(losses))
    notes = (line for text, cure in _next_steps(losses) for line in (text, *cure_lines(cure)))
    return Result(rows=losses, columns=_MISSING_COLUMNS, notes=notes)


def _next_steps(found: Iterable[Missing]) -> Iterator[tuple[str, str]]:
    """Yield (what to do, command) for each reason of a loss, with its first ledger as the example."""
    from pulsar_admin.store.model.coverage import is_journal

    firsts: dict[str, Missing] = {}
    for row in found:
        first = firsts.get(row.reason)
        if (row.owners or row.outside) and (first is None or row.may_be_forgotten > first.may_be_forgotten):
            firsts[row.reason] = row
    for row in firsts.values():
        forget = f"pulsar-admin ledgers forget {row.ledger_id}"
        bring = "pulsar-admin store add bookie ID=DIR,DIR"
        places = row.absent or row.bookies
        disks = f"import {'' if places and is_journal(places[0]) else 'the disks of '}{', '.join(places)}"
        or_forget = "or take the ledger out of its topic"
        closes = "import the disks that may have the rest" if row.absent else "name the bookies that have it"
        if not row.may_be_forgotten:
            forget, or_forget = (
                f"pulsar-admin ledgers info {row.ledger_id}",
                "nothing here changes what a newer version wrote",
            )
        yield {
            "no-metadata": (
                f"no-metadata: {disks}, which may have more of it, then rebuild the metadata"
                if row.absent
                else "no-metadata: rebuild the metadata"
                if row.cure
                else "no-metadata: restore ZooKeeper's copy; a package can be uploaded again",
                row.cure or f"pulsar-admin store ls {shell_word(row.owners[0].topic)}",
            ),
            "not-imported": (f"not-imported: {disks}", row.cure),
            "no-ledger": (f"no-ledger: {disks}, which may have it", row.cure)
            if row.cure
            else (f"no-ledger: restore ZooKeeper's copy and the bookies' disks, {or_forget}", forget),
            "gone-bookies": (f"gone-bookies: nobody can close it: {closes}", row.cure)
            if row.cure
            else (f"gone-bookies: nobody can close it: {disks}: {bring}; {or_forget}", forget),
            "not-served": ("not-served: put the entries back, bookie by bookie", row.cure),
            "elsewhere": ("elsewhere: name the bookies that have the entries", row.cure),
            "entries": (f"entries: import the disks that have them: {bring}; {or_forget}", forget),
        }[row.reason]


_UNDERREPLICATED_COLUMNS = (
    Column("LEDGER", "ledger_id", "id"),
    Column("ENTRIES", "entries", "number", drop=2),
    Column("QUORUM", "write_quorum", "number", drop=1),
    Column("SHORT", "short", "number", tone=caution, sums=True),
    Column("LOWEST", "lowest", "number", drop=3),
    Column("LOST", "lost", "number", tone=alarm, sums=True),
    Column("UNKNOWN", "unknown", "number"),
    Column("BOOKIES", lambda row: "; ".join(bookie.lacks for bookie in row.bookies), drop=4),
    Column("OWNER", lambda row: _owner_text(row.owners) or "-"),
)


@command(
    "ledgers underreplicated",
    elsewhere=["", "-o json"],
    output="One row per ledger whose entries are, or may be, on too few bookies, the worst first. Exit code 1 "
    "if there is any.",
    errors=[StoreNotFound, IndexCorrupt],
)
def underreplicated(app: App) -> Result:
    """List ledgers with entries on fewer bookies than their write quorum.

    SHORT: entries that an imported bookie should have but lacks, or has only damaged. LOWEST: the copies of the worst
    entry. LOST: entries on no bookie. UNKNOWN: entries that bookies or journals which were not imported may have. For
    a ledger that is still open, only entries that are known to be acknowledged count.
    """
    shortfalls = app.api.underreplicated()
    app.problems(len(shortfalls))
    return Result(
        rows=shortfalls, columns=_UNDERREPLICATED_COLUMNS, notes=[_shortfall_text(shortfalls)] if shortfalls else ()
    )


def _shortfall_text(found: Iterable[UnderReplicated]) -> str:
    rows = [*found]
    lost, short, unknown = (sum(getattr(row, name) for row in rows) for name in ("lost", "short", "unknown"))
    texts = [f"{counted(lost, 'entry')} lost", f"{short - lost:,} with too few copies"]
    texts += [f"{unknown:,} that a bookie or journal which is not imported may have"] * bool(unknown)
    return f"{counted(len(rows), 'ledger')}: {', '.join(texts)}" + "; see: pulsar-admin ledgers missing" * bool(lost)


_VERDICT_COLUMNS = (
    Column("LEDGER", "ledger_id", "id"),
    Column("ENTRIES", "entries", "number"),
    Column("BYTES", "bytes", "bytes", drop=2, sums=True),
    Column("DAMAGED", "damaged_entries", "number", tone=alarm, sums=True),
    Column("MISSING", "missing_entries", "number", tone=alarm, sums=True),
    Column("NOT SERVED", "unserved", "number", drop=1, tone=alarm, sums=True),
    Column("UNVERIFIED", "unverified", "number", drop=1),
    Column(
        "PROBLEMS", lambda row: "; ".join((*row.metadata_problems, *(text for _, text in row.damaged[:3]))) or "none"
    ),
)


@command(
    "ledgers verify",
    examples=["9", "-o jsonl"],
    output="One row per ledger: entries read, damaged and missing ones, those that files have and clients do not get, contradictions "
    "with its metadata. Exit code 1 for any.",
    errors=[LedgerNotFound, MetadataCorrupt],
    uses=["spark"],
)
@click.argument("ledgers", type=_LEDGER_ID, nargs=-1)
def verify(app: App, ledgers: tuple[int, ...]) -> Result:
    """Read every entry of the given ledgers, or of all, and check digests, ids and lengths."""
    verdicts = app.counting(app.api.verify_ledgers(*ledgers), lambda verdict: verdict.problems)
    return Result(
        rows=verdicts, columns=_VERDICT_COLUMNS, terminal=None if ledgers else lambda _: _verdict_screen(verdicts)
    )


def _verdict_screen(verdicts: Iterable[LedgerVerdict]) -> Iterator[str | Table]:
    """Yield a table of the ledgers with problems, without those that are sound, and a line with the amounts read."""
    wrong: list[LedgerVerdict] = []
    ledgers = entries = size_bytes = unverified = 0
    for one in verdicts:
        ledgers += 1
        entries += one.entries
        size_bytes += one.bytes
        unverified += one.unverified
        wrong += [one] if one.problems else []
    if wrong:
        yield Table(wrong, _VERDICT_COLUMNS)
        yield "\n"
    told = f"{counted(len(wrong), 'ledger')} with problems" if wrong else "no problem"
    more = f", {counted(unverified, 'entry')} unverified" if unverified else ""
    yield f"{told} in {counted(ledgers, 'ledger')}: {counted(entries, 'entry')} read, {size_text(size_bytes)}{more}\n"
