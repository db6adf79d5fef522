"""Rules about the store's files: its database, the bookies' files in its catalogue, and stray files."""

from collections import Counter
from collections.abc import Iterator

from pulsar_admin.store.db.entry_files import FileState, file_state
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.file import check_file
from pulsar_admin.store.db.files import DIFFERS, LogFile, damage_text, iter_damage, iter_logs
from pulsar_admin.store.db.storeinfo import damaged_pages
from pulsar_admin.store.errors import IndexCorrupt
from pulsar_admin.store.facts.cluster import ClusterFacts
from pulsar_admin.store.names import shell_word
from pulsar_admin.store.rules.finding import Finding, Severity
from pulsar_admin.store.rules.rule import Sweep
from pulsar_admin.store.rules.words import KEEP_COPIES, PREVENT, UNSEEN, of_index
from pulsar_admin.store.wording import counted, plural

_PAGES = Sweep[ClusterFacts]("the database", "store")
_CATALOGUE = Sweep[ClusterFacts]("the catalogue of files")
FILE_SWEEPS = _PAGES, _CATALOGUE

PAGES_DAMAGED = _PAGES.row(
    "pages-damaged",
    Severity.CRITICAL,
    "Pages of the store's database are damaged",
    "The file `meta/data.mdb` is not what the last commit left. The evidence names the page.",
    UNSEEN,
    "pulsar-admin store log",
    "Put a backup of the store in place (`backups/` in the store has some), or import the source into a new store, "
    "and repeat the changes that the log still shows.",
    PREVENT,
)
CATALOGUE_DAMAGED = _CATALOGUE.row(
    "catalogue-damaged",
    Severity.CRITICAL,
    "The catalogue of files cannot be read",
    "A row about a bookie's file is damaged, so no entry of that file can be found.",
    UNSEEN,
    "pulsar-admin store log",
    "Import the source into a new store (`store import`), and make the changes again that the log shows.",
    PREVENT,
    scope="store",
)
DAMAGE_WITHOUT_FILE = of_index(
    _CATALOGUE,
    "damage-without-file",
    "Damage in a file that is not catalogued",
    "A row records damage in a file that the store does not know.",
)
BOOKIE_NOT_KNOWN = _CATALOGUE.row(
    "bookie-not-known",
    Severity.WARNING,
    "Disks of a bookie that the cluster does not know",
    "The cookie of a directory is not in the metadata: the disks may belong to another cluster.",
    "A bookie with a cookie that the metadata does not have refuses to start (InvalidCookieException).",
    "pulsar-admin bookies list-bookies",
    "Remove the directory from the source and import into a new store, or keep it if you know it.",
)
STRAY_FILE = _CATALOGUE.row(
    "stray-file",
    Severity.NOTE,
    "A file in the store is not referenced",
    "A killed command left it. It only takes space.",
    UNSEEN,
    "pulsar-admin store check",
    "Delete it when no command is running.",
)
COPIES_DIFFER = _CATALOGUE.row(
    "copies-differ",
    Severity.WARNING,
    "Copies of an entry have different bytes",
    "Two bookies have good digests for the same entry but different content: disks of two clusters, or a "
    "reused ledger id.",
    "Delivers whichever copy it happens to read.",
    "pulsar-admin logs dump {where}",
    "Look at both. Remove disks of another cluster from the source directory and import again.",
    "Never restore an old ZooKeeper backup under bookies that kept running: ledger ids are assigned twice.",
)
FILE_MISSING = _CATALOGUE.row(
    "file-missing",
    Severity.CRITICAL,
    "A file of a bookie is gone",
    "The store's index has entries of this file, and none can be read.",
    "If it is gone from the bookie too, the bookie returns NoSuchEntry, and a broker reads from another bookie"
    " with a copy.",
    "pulsar-admin store refresh --forget",
    "Restore the file if a copy exists. The command then reads what differs; without the file it removes its entries from the index, and a "
    "refresh after it is back adds them again.",
    "Do not let a running bookie collect garbage in a directory that a store was imported from; import with "
    "`--copy` instead.",
)
FILE_CHANGED = _CATALOGUE.row(
    "file-changed",
    Severity.CRITICAL,
    "A file of a bookie is not the one that was imported",
    "It is shorter, or a different file with the same name. Places of entries in it are wrong.",
    "A bookie that runs in that directory wrote it, and reads it without problems.",
    "pulsar-admin store refresh --forget",
    "Refresh: files that are gone are forgotten, and new ones are read.",
    "Use `--copy` to import from running bookies.",
)
FILE_UNREADABLE = _CATALOGUE.row(
    "file-unreadable",
    Severity.CRITICAL,
    "A file of a bookie cannot be read",
    "The operating system refuses: permissions, or the disk.",
    "If the bookie cannot read it either, it returns an error, and a broker reads from another bookie with a copy.",
    "pulsar-admin store refresh",
    "Look at its permissions and at the disk (`dmesg`), then refresh.",
)
FILE_TOUCHED = _CATALOGUE.row(
    "file-touched",
    Severity.NOTE,
    "A file's modification time differs from the import",
    "Its size is the same. Somebody copied or touched it.",
    UNSEEN,
    "pulsar-admin store check --deep",
    "If in doubt, read every byte once.",
)
FILE_GROWN = _CATALOGUE.row(
    "file-grown",
    Severity.NOTE,
    "More was written to a file since the import",
    "The store is older than its source: newer data is missing in every answer.",
    "A bookie runs on that directory.",
    "pulsar-admin store refresh",
    "Refresh the store.",
)
FILE_DAMAGED = _CATALOGUE.row(
    "file-damaged",
    Severity.WARNING,
    "An entry log or journal is damaged",
    "Parts of the file are not records, or are records with a wrong digest. Other findings list what was lost,"
    " by ledger.",
    "The bookie returns an error for entries there, and the client asks another bookie. One damaged log "
    "silently stops compaction (bookkeeper#4596).",
    "pulsar-admin logs verify {where}",
    "See which entries they were. If other copies are good, BookKeeper's `recover` creates the missing ones.",
    KEEP_COPIES,
)


_LOST = {
    FileState.MISSING: (FILE_MISSING, "is gone"),
    FileState.CHANGED: (FILE_CHANGED, "is not the file that was imported, or is shorter"),
    FileState.UNREADABLE: (FILE_UNREADABLE, "cannot be read"),
}


@_PAGES.by
def _check_pages(facts: ClusterFacts) -> Iterator[Finding]:
    """Check the pages of the database that hold the state of the snapshot."""
    store, txn = facts.store, facts.reader.txn
    if store.walked == txn.id:
        return
    try:
        check_file(store.path / "meta", txn.id)
    except IndexCorrupt as error:
        yield PAGES_DAMAGED.at(str(store.path / "meta"), error.message, damaged_pages(store.path, error).hint)


@_CATALOGUE.by
def _check_catalogue(facts: ClusterFacts) -> Iterator[Finding]:
    """Check the catalogued files, their known damage, and stray files."""
    store, txn = facts.store, facts.reader.txn
    names = set()
    try:
        for log in iter_logs(txn):
            names.add(log.path)
            yield from _check_file(txn, log)
        known = {log.file_id: log for log in iter_logs(txn)}
        differing: Counter[tuple[int, str, int]] = Counter()
        for damage in iter_damage(txn):
            if damage.file_id in known and damage.reason.startswith(DIFFERS):
                differing[damage.file_id, damage.reason, damage.ledger_id] += 1
            if damage.file_id and damage.file_id not in known:
                yield DAMAGE_WITHOUT_FILE.at(f"damage of file {damage.file_id}", "no such file is catalogued")
        for (file_id, reason, ledger_id), count in differing.items():
            log = known[file_id]
            hint = "neither cookies nor metadata prove which is right: read both with: pulsar-admin logs dump FILE"
            if log.stranger:
                hint = "the copy that is shown is of a bookie that the metadata knows"
            yield COPIES_DIFFER.at(
                log.path,
                f"{counted(count, 'entry', 'entries')} of ledger {ledger_id} in it{f', of bookie {log.bookie},' if log.bookie else ''}"
                f" {plural(count, 'is', 'are')} ignored: each {reason}",
                hint,
                fileId=log.file_id,
                bookie=log.bookie,
                ledgerId=ledger_id,
                entries=count,
            )
    except IndexCorrupt as error:
        yield CATALOGUE_DAMAGED.of(error, "logs")
    for text in (text for source in store.info.sources for text in source.get("strangers", ())):
        yield BOOKIE_NOT_KNOWN.at(
            "bookies",
            text,
            "its disks may be of another cluster: remove them from the source directory and import into a new store, or keep them",
        )
    if len(names) < txn.count("logs"):
        return  # a row that cannot be read may name the file
    for path in sorted((store.path / "entries").iterdir()):
        if str(path.relative_to(store.path)) not in names:
            yield STRAY_FILE.at(
                str(path),
                "no catalogue row names it: left by a process that was killed",
                "it may be deleted",
            )


def _check_file(txn: Txn, log: LogFile) -> Iterator[Finding]:
    store = txn.store
    where = str(log.locate(store.path))
    state = file_state(log, store.path)
    if state in _LOST:
        rule, is_lost = _LOST[state]
        hint = "restore it, or continue without it: pulsar-admin store refresh --forget"
        if state is FileState.UNREADABLE:
            hint = "look at its permissions and at the disk, then: pulsar-admin store refresh"
        yield rule.at(
            where,
            f"{where} {is_lost}; it held {counted(log.records, 'record')}",
            hint,
            fileId=log.file_id,
        )
    if state is FileState.GROWN and log.locate(store.path).stat().st_size == log.size_bytes:
        yield FILE_TOUCHED.at(
            where,
            "its modification time differs from the one at import, its size does not",
            "read it with: pulsar-admin store check --deep",
        )
    elif state is FileState.GROWN:
        yield FILE_GROWN.at(where, "more was written to it since import", "read it with: pulsar-admin store refresh")
    if log.problems:
        torn = ", torn tail" if log.torn else ""
        yield FILE_DAMAGED.at(
            where,
            f"{damage_text(txn, log)}{torn}",
            f"see them with: pulsar-admin logs verify {shell_word(where)}",
            fileId=log.file_id,
            problems=log.problems,
        )
