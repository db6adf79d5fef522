"""Rules of the deep check: every catalogued byte is read again, and the index compared with the records."""

from collections.abc import Collection, Iterator
from pathlib import Path

from pulsar_admin.store.codec.entrylog import MAP_OFFSET_BYTES, MAP_OFFSET_PLACE, log_file_name
from pulsar_admin.store.codec.ledgermetadata import LedgerState
from pulsar_admin.store.db.blocks import Block, ledger_of_key
from pulsar_admin.store.db.bookies import iter_imported_bookies
from pulsar_admin.store.db.copies import has_copies, iter_all_copies
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.files import Damage, iter_damage, iter_logs
from pulsar_admin.store.errors import StoreError, Unsupported
from pulsar_admin.store.facts.deep import DeepFacts
from pulsar_admin.store.facts.unlisted import UnlistedLedgers
from pulsar_admin.store.files import scratch_directory
from pulsar_admin.store.index.idx_files import verify_indexes
from pulsar_admin.store.model.ledgers import iter_ledger_ids, read_ledger
from pulsar_admin.store.names import FileKind, shell_word
from pulsar_admin.store.rules.finding import Finding, Severity
from pulsar_admin.store.rules.rule import Evidence, Sweep, first_of
from pulsar_admin.store.rules.starts import START_RULES, code_of, evidence_of
from pulsar_admin.store.rules.words import KEEP_COPIES, STUCK, UNSEEN, of_index
from pulsar_admin.store.wording import counted, plural

_LENGTHS = Sweep[DeepFacts]("the lengths of ledgers")
_INDEX_FILES = Sweep[DeepFacts]("index files of bookies")
_ROWS = Sweep[DeepFacts]("rows of bookies' indexes")
_MAPS = Sweep[DeepFacts]("ledgers maps of entry logs")
_STARTS = Sweep[DeepFacts]("what starts read")
_FILES = Sweep[DeepFacts]("the files of entries")
DEEP_SWEEPS = _LENGTHS, _INDEX_FILES, _ROWS, _MAPS, _STARTS, _FILES

UNREADABLE_ENTRY = _LENGTHS.row(
    "entry-unreadable",
    Severity.CRITICAL,
    "The last entry of a ledger cannot be read",
    "Its record is damaged, or its digest is wrong.",
    STUCK,
    "pulsar-admin ledgers verify {ledgerId}",
    "Read the whole ledger. Get a good copy of the file from another bookie or a backup.",
    KEEP_COPIES,
)
LENGTH_DIFFERS = _LENGTHS.row(
    "length-differs",
    Severity.WARNING,
    "A ledger's length does not match its entries",
    "The payload bytes in the metadata differ from those in the last entry, or from the sum of the payloads.",
    "Uses it for sizes, quotas and retention.",
    "pulsar-admin ledgers verify {ledgerId}",
    "Read the whole ledger. By itself this loses nothing.",
)
INDEX_FILE_WRONG = _INDEX_FILES.row(
    "index-file-wrong",
    Severity.WARNING,
    "A bookie's index file points to the wrong place",
    "An `.idx` file names entry logs or offsets that do not have its ledger. This store reads the logs and "
    "needs no index.",
    "The bookie returns NoSuchEntry or another error, and a broker reads from another bookie with a copy.",
    "pulsar-admin ledgers info {ledgerId}",
    "While the bookie is stopped, let BookKeeper rebuild the index: `bookkeeper shell "
    "regenerate-interleaved-storage-index-file`.",
)
INDEX_ROWS_WRONG = _ROWS.row(
    "index-rows-wrong",
    Severity.CRITICAL,
    "A bookie's index points entries to other records",
    "Rows of its `locations` point to bytes in its entry logs that are not their entry's record, or to a log that is gone "
    "while an older one has the entry: the index belongs to other logs, or is damaged. Only a deep check reads every row. "
    "Critical if clients get no other copy, otherwise a warning.",
    "The bookie compares the ids at the start of what it reads and answers with an I/O error; clients ask the entry's "
    "other bookies. If none has it the reader is stuck.",
    "pulsar-admin store salvage {disks}",
    "Salvage the bookie while it is stopped, which rebuilds its index, then run `store refresh`. Until then `store "
    "index --rebuild` also reads every row: after it, `ledgers missing` and the other answers count these entries as not served.",
    KEEP_COPIES,
    of_disks=True,
)
LEDGERS_MAP_FALSE = _MAPS.row(
    "ledgers-map-false",
    Severity.CRITICAL,
    "The ledgers map of an entry log does not match its records",
    "The map at the end of a finished log says which ledgers it contains, and how many bytes of each. It has no "
    "digest: a deep check compares it with the records. Critical if it lacks a ledger that bookies keep, otherwise a "
    "warning; also a warning if the header points to no map.",
    "Reads every entry as before. Garbage collection trusts the map: the bookie deletes the log when the ledgers in "
    "the map are deleted, and compaction copies only their entries. What the map lacks is lost on this bookie. Wrong "
    "sizes only let compaction choose other logs.",
    "pulsar-admin store salvage {disks}",
    "Stop the bookie soon, salvage it and start it again: salvage removes the map from the log's header, and the bookie reads the "
    "records instead. Then run `store refresh`. A restart alone reads the same map again.",
    KEEP_COPIES,
    of_disks=True,
)
SCAN_UNFINISHED = _FILES.row(
    "scan-unfinished",
    Severity.NOTE,
    "The scan of a file was stopped",
    "A refresh was interrupted: the index does not reach the end of its files.",
    UNSEEN,
    "pulsar-admin store refresh",
    "Run the same command again; it continues.",
)
NOT_CHECKED = _FILES.row(
    "not-checked",
    Severity.WARNING,
    "Files have changed, so the index was not compared with every file",
    "A deep check compares the index with the files as they were imported. In files that are being written, it "
    "verifies the imported part, and does not compare the ledgers in them.",
    UNSEEN,
    "pulsar-admin store refresh",
    "Refresh, then check again; to compare everything, stop the processes that write first.",
)
ENTRY_DAMAGED = _FILES.row(
    "entry-damaged",
    Severity.CRITICAL,
    "An entry that was good at import is damaged now",
    "A deep check read its bytes again, and the digest is wrong: the disk failed, or another program wrote to the file.",
    "The client verifies the digest and asks another bookie. If none has a good copy, it stops there, as at a "
    "lost entry.",
    "pulsar-admin ledgers verify {ledgerId}",
    "Restore the file from another replica or a backup, then check the disk.",
    KEEP_COPIES,
)
INDEX_DIFFERS = of_index(
    _FILES,
    "index-differs",
    "The index does not match the files",
    "A deep check read every byte again and got a different index.",
)


@_LENGTHS.by
def _check_lengths(facts: DeepFacts) -> Iterator[Finding]:
    """Check that the length in a closed ledger's metadata is the one in its last entry and the sum of its payloads."""
    reader = facts.reader
    for ledger_id in iter_ledger_ids(reader.txn):
        where, problems = f"ledger {ledger_id}", list[str]()
        try:
            ledger = read_ledger(reader.txn, ledger_id)
            sums, metadata = ledger.sums, ledger.metadata
            if metadata is None or metadata.state is not LedgerState.CLOSED or sums is None:
                continue
            if sums.last_entry == ledger.last_entry_id:
                length = reader.read(ledger_id, ledger.last_entry_id).length
                if length != metadata.length:
                    problems.append(f"its last entry says {length}")
            if sums.entries == ledger.entries and sums.payload_bytes != metadata.length:
                problems.append(f"its payloads have {sums.payload_bytes}")
        except Unsupported:
            continue  # the rule of values that are not known here tells
        except StoreError as error:
            yield UNREADABLE_ENTRY.at(where, error.message, error.hint, ledgerId=ledger_id)
            continue
        for what in problems:
            text = f"its metadata says {metadata.length} payload bytes, {what}"
            yield LENGTH_DIFFERS.at(where, text, ledgerId=ledger_id)


@_INDEX_FILES.by
def _check_index_files(facts: DeepFacts) -> Iterator[Finding]:
    """Compare the ``.idx`` files of the bookies that were imported with the entry logs that they lead to.

    Bookies whose files are no longer there are skipped: the store has the entries.
    """
    store = facts.store
    logs = [(log, log.locate(store.path)) for log in iter_logs(facts.reader.txn) if log.kind == FileKind.ENTRY_LOG]
    for bookie in iter_imported_bookies(store.info):
        here = {log.log_id: path for log, path in logs if Path(log.origin or log.path).parent in bookie.ledger_dirs}
        for verdict in verify_indexes(bookie.indexes, here):
            problems = list(verdict.problems)
            if verdict.absent_logs:
                absent = ", ".join(map(log_file_name, verdict.absent_logs))
                problems.append(f"{verdict.path}: names logs that {bookie.name} does not have: {absent}")
            for problem in problems[:1]:
                more = f", and {counted(len(problems) - 1, 'place')} more" if len(problems) > 1 else ""
                yield INDEX_FILE_WRONG.at(
                    f"ledger {verdict.ledger_id}",
                    f"{problem}{more}: the bookie cannot read there, this store can",
                    "let BookKeeper rebuild the index: bookkeeper shell regenerate-interleaved-storage-index-file",
                    ledgerId=verdict.ledger_id,
                )


@_ROWS.by
def _check_rows(facts: DeepFacts) -> Iterator[Finding]:
    """Compare each row of each bookie's database of places with the record that it leads to."""
    for one in facts.iter_misled():
        entries = one.entries
        yield INDEX_ROWS_WRONG.found(
            Evidence(
                f"bookie {one.bookie}",
                f"its index points {counted(entries, 'entry')} of {counted(len(one.ledgers), 'ledger')} to bytes that "
                f"are not {plural(entries, 'its record', 'their records')}; clients get {one.elsewhere:,} of these from another bookie",
                {
                    "bookie": one.bookie,
                    "ledgers": len(one.ledgers),
                    "ledgerIds": first_of(one.ledgers),
                    "entries": entries,
                    "elsewhere": one.elsewhere,
                    "disks": facts.bookies.disks(one.bookie),
                },
                severity=Severity.CRITICAL if one.elsewhere < entries else Severity.WARNING,
            )
        )


@_MAPS.by
def _check_maps(facts: DeepFacts) -> Iterator[Finding]:
    """Compare the ledgers map of each entry log with its records."""
    store, unlisted = facts.store, UnlistedLedgers(facts.reader.txn)
    bookies = {directory: one for one in iter_imported_bookies(store.info) for directory in one.ledger_dirs}
    for log, false in facts.iter_false_maps():
        kept = [one for one in false.lacking if not unlisted.is_freed(one)]
        named = first_of((*kept, *sorted({*false.lacking} - {*kept}), *false.differing))
        lacking = f"lacks {counted(len(false.lacking), 'ledger')} with records in the log" if false.lacking else ""
        wrong = f"has wrong sizes of {counted(len(false.differing), 'ledger')}" if false.differing else ""
        told = (
            f"its ledgers map {' and '.join(filter(None, (lacking, wrong)))}, first {named[0]}; "
            f"all of the log: {false.mapped_bytes:,} bytes in the map, {false.record_bytes:,} in the records"
        )
        if is_empty := not false.differing and false.mapped_bytes == 0:
            told = (
                f"its header points to no ledgers map and counts no ledgers, but it has {false.record_bytes:,} bytes "
                f"of {counted(len(false.lacking), 'ledger')}: a bookie before BookKeeper 4.16.7 or 4.17.2 considers "
                "the log empty and deletes it"
            )
        bookie = bookies.get(Path(log.origin or log.path).parent)
        path, hint = str(log.locate(store.path)), ""
        place, mend = dict[str, object](), None
        if bookie is not None:
            place = {"bookie": bookie.bookie_id, "disks": facts.bookies.disks(bookie.bookie_id)}
        if bookie is None or not facts.may_salvage(bookie):
            bookies_own = shell_word(log.origin or path)
            mend = (
                f"dd if=/dev/zero of={bookies_own} bs=1 seek={MAP_OFFSET_PLACE} count={MAP_OFFSET_BYTES} conv=notrunc"
            )
            hint = (
                "while the bookie is stopped, remove the map from the log's header, so that the bookie reads the "
                f"records; then run `store refresh`: {mend}"
            )
        yield LEDGERS_MAP_FALSE.found(
            Evidence(
                path,
                told,
                {
                    "lacking": len(false.lacking),
                    "kept": len(kept),
                    "differing": len(false.differing),
                    "ledgerIds": named,
                    "mapBytes": false.mapped_bytes,
                    "recordBytes": false.record_bytes,
                    **place,
                },
                hint,
                severity=None if kept and not is_empty else Severity.WARNING,
                mend=mend,
            )
        )


@_STARTS.by
def _check_starts(facts: DeepFacts) -> Iterator[Finding]:
    """Read what a start of each bookie and ZooKeeper server reads: databases, journals, snapshots."""
    rules = {rule.code: rule for rule in START_RULES}
    for fact in facts.deep_start_facts:
        if code_of(fact) in rules:
            yield rules[code_of(fact)].found(evidence_of(fact))


@_FILES.by
def _check_files(facts: DeepFacts) -> Iterator[Finding]:
    """Read every file again with every digest verified, and compare index and known damage with the result."""
    store, txn = facts.store, facts.reader.txn
    # numpy and numba: only a deep check pays for them.
    from pulsar_admin.store.index.rebuild import build_index, differences, open_scratch

    logs = list(iter_logs(txn))
    stopped = sum(log.unfinished for log in logs)
    if stopped:
        yield SCAN_UNFINISHED.at(
            "files",
            f"the scan of {counted(stopped, 'file')} was stopped: the index was not compared with them",
            "continue it: pulsar-admin store refresh",
        )
        return
    gone, live, proof = facts.gone, facts.live, facts.proof
    if proof is not None and proof.of_index:
        return
    logs = [log for log in logs if log.file_id not in gone]
    advance, engine = facts.advance if proof is None else _nothing, facts.engine  # of a proof every byte was counted
    with scratch_directory() as folder, open_scratch(folder / "scratch") as scratch:
        build_index(txn, scratch, logs, verify=True, advance=advance, engine=engine)
        with scratch.read() as new:
            paths = {log.file_id: str(log.locate(store.path)) for log in logs}
            ends = {log.file_id: log.next_offset for log in logs if log.file_id in live}
            yield from _new_damage(txn, new, paths, ends)
            left = {*_ledgers_in(txn, live | gone), *_ledgers_in(new, live)} if live or gone else set()
            for difference in differences(txn, new):
                if difference.ledger_id in left:
                    continue
                yield INDEX_DIFFERS.at(
                    f"{difference.database} of ledger {difference.ledger_id}",
                    f"a row is {difference.kind}, compared with the files",
                    ledgerId=difference.ledger_id,
                )

    if live or gone:
        # A problem, unless somebody writes and files come and go.
        parts = [
            f"{counted(len(live), 'file')} written to since, read to where the import ended" if live else "",
            f"{counted(len(gone), 'file')} gone or changed" if gone else "",
        ]
        hint = "restore the files, or continue without them: pulsar-admin store refresh --forget"
        if live:
            hint = "to compare every file, stop the processes that write, run `pulsar-admin store refresh`, then check again"
        evidence = Evidence(
            "files",
            f"{counted(len(logs), 'file')} read with every digest; {', '.join(filter(None, parts))}: of "
            f"{counted(len(left), 'ledger')} in these files the index was not compared",
            {"read": len(logs), "live": len(live), "gone": len(gone), "ledgers": len(left)},
            hint,
            Severity.NOTE if live else None,
            "pulsar-admin store refresh --forget" if gone else None,  # without --forget it keeps them
        )
        yield NOT_CHECKED.found(evidence)


def _nothing(_: int) -> None:
    """Ignore that bytes were read."""


def _ledgers_in(txn: Txn, file_ids: Collection[int]) -> Iterator[int]:
    """Yield the ledgers of which one of the files has an entry or a copy."""
    for key, row in txn.items("entries"):
        block = Block(key, row)
        if any(file_id in file_ids for file_id, _, _ in block.iter_parts()):
            yield ledger_of_key(key)
    if has_copies(txn):
        yield from (ledger_id for ledger_id, file_id, _ in iter_all_copies(txn) if file_id in file_ids)


def _new_damage(txn: Txn, new: Txn, paths: dict[int, str], ends: dict[int, int]) -> Iterator[Finding]:
    """Yield the damage found in ``new`` that ``txn`` does not know. ``ends``: file id → offset after which the file is being written."""
    known = {(damage.file_id, damage.offset) for damage in iter_damage(txn)}
    damages: list[Damage] = [
        damage
        for damage in iter_damage(new)
        if (damage.file_id, damage.offset) not in known
        and not damage.offset >= ends.get(damage.file_id, damage.offset + 1)
    ]
    for damage in damages:
        whose = f", entry {damage.ledger_id}:{damage.entry_id}" if damage.ledger_id >= 0 else ""
        yield ENTRY_DAMAGED.at(
            f"{paths[damage.file_id]} @ {damage.offset:#x}",
            f"{damage.reason}{whose}: {counted(damage.length_bytes, 'byte')}; it was good when it was imported",
            "restore the file from another replica or a backup",
            ledgerId=damage.ledger_id,
            entryId=damage.entry_id,
        )
