"""Causes in the store's own rows and files: no broker sees them, but what this toolkit answers may be wrong."""

from __future__ import annotations

from store.rules.cause import Cause, Severity

_UNSEEN = "Nothing: no broker reads the store. Until it is repaired, this toolkit's answers and changes may be wrong."
_REBUILD = "pulsar-admin store index --rebuild"
_HOW_REBUILD = (
    "Rebuild the index from the files. Metadata and changes of the store stay as they are; the old index is kept "
    "as a backup."
)
_PREVENT = "Change a store only with this toolkit, and keep it on a reliable disk."


def _of_index(code: str, title: str, means: str) -> Cause:
    return Cause(code, Severity.WARNING, title, means, _UNSEEN, _REBUILD, _HOW_REBUILD, _PREVENT)


CAUSES_OF_STORE = (
    Cause(
        "pages-damaged",
        Severity.CRITICAL,
        "Pages of the store's database are damaged",
        "The file `meta/data.mdb` is not what the last commit left. The evidence names the page.",
        _UNSEEN,
        "pulsar-admin store import standalone DIR --store NEW-STORE",
        "Import the source again into a new store, or restore a backup of the store. Changes that were not "
        "exported are lost.",
        _PREVENT,
    ),
    Cause(
        "catalogue-damaged",
        Severity.CRITICAL,
        "The catalogue of files cannot be read",
        "A row about a bookie's file is damaged, so no entry of that file can be found.",
        _UNSEEN,
        "pulsar-admin store import standalone DIR --store NEW-STORE",
        "Import the source again into a new store.",
        _PREVENT,
    ),
    Cause(
        "node-damaged",
        Severity.CRITICAL,
        "A metadata node of the store is damaged",
        "A row of the metadata tree cannot be read. The topic, cursor or policy of that path is missing in every "
        "answer.",
        _UNSEEN,
        "pulsar-admin store refresh",
        "Read the source's metadata again.",
        _PREVENT,
    ),
    _of_index(
        "damage-without-file",
        "Damage in a file that is not catalogued",
        "A row records damage in a file that the store does not know.",
    ),
    _of_index(
        "block-damaged",
        "A block of the location index is damaged",
        "The places of the entries of that block are unknown.",
    ),
    _of_index(
        "block-inconsistent",
        "A block of the location index contradicts itself",
        "Its counts, its order or its places cannot all be right.",
    ),
    _of_index(
        "times-missing",
        "A ledger has entries but no row of times",
        "Queries by time skip the ledger.",
    ),
    _of_index(
        "times-damaged",
        "A row of times is damaged",
        "Queries by time cannot use it.",
    ),
    _of_index(
        "times-differ",
        "A row of times does not match its ledger's blocks",
        "Counts and queries by time may be wrong for that ledger.",
    ),
    _of_index(
        "times-surplus",
        "A row of times has no entries",
        "The ledger is shown with entries that do not exist.",
    ),
    _of_index(
        "owners-damaged",
        "The owners of ledgers cannot be read",
        "It is not known to which topic or cursor a ledger belongs.",
    ),
    _of_index(
        "owners-differ",
        "The owners of a ledger do not match the metadata",
        "Lists of orphans and lost ledgers may be wrong.",
    ),
    _of_index(
        "copies-row-damaged",
        "A row of copies is damaged",
        "The number of copies of some entries is unknown.",
    ),
    _of_index(
        "copies-without-file",
        "Copies in a file that is not catalogued",
        "The number of copies of some entries may be wrong.",
    ),
    _of_index(
        "index-differs",
        "The index does not match the files",
        "A deep check read every byte again and got a different index.",
    ),
    Cause(
        "changes-damaged",
        Severity.WARNING,
        "The log of changes is damaged",
        "A record of a change made with this toolkit cannot be read, so the change cannot be undone.",
        _UNSEEN,
        "pulsar-admin store log",
        "Look at the remaining changes. What was exported stays as it is.",
        _PREVENT,
    ),
    Cause(
        "changes-altered",
        Severity.WARNING,
        "Somebody altered the log of changes",
        "Each change has the digest of the previous one. One digest is wrong: a record was altered or removed.",
        _UNSEEN,
        "pulsar-admin store log",
        "Find out who did it before you trust the log. It cannot be repaired.",
        _PREVENT,
    ),
    Cause(
        "base-damaged",
        Severity.WARNING,
        "The imported value of a changed node cannot be read",
        "An export compares with it and will refuse.",
        _UNSEEN,
        "pulsar-admin store import standalone DIR --store NEW-STORE",
        "Import again into a new store and repeat the changes there.",
        _PREVENT,
    ),
    Cause(
        "nacks-damaged",
        Severity.WARNING,
        "Kept negative acks are damaged",
        "A row of the negative acks that scripts keep in the store cannot be read.",
        _UNSEEN,
        "pulsar-admin nacks stats",
        "Look at what is left and add the positions again with `nacks add`.",
        _PREVENT,
    ),
    Cause(
        "nacks-of-nobody",
        Severity.NOTE,
        "Negative acks are kept for a subscription that does not exist",
        "The subscription was deleted since they were kept.",
        _UNSEEN,
        "pulsar-admin nacks stats",
        "Nothing needs them. They cost a few bytes.",
    ),
    Cause(
        "file-missing",
        Severity.CRITICAL,
        "A file of a bookie is gone",
        "The store has entries in it and can read none of them.",
        "If it is gone from the bookie too, the bookie returns NoSuchEntry, and a broker reads from another bookie"
        " with a copy.",
        "pulsar-admin store refresh",
        "Restore the file and refresh. `store refresh --forget` continues without it.",
        "Do not let a running bookie collect garbage in a directory that a store was imported from; import with "
        "`--copy` instead.",
    ),
    Cause(
        "file-changed",
        Severity.CRITICAL,
        "A file of a bookie is not the one that was imported",
        "It is shorter, or a different file with the same name. Places of entries in it are wrong.",
        "A bookie that runs in that directory wrote it, and reads it without problems.",
        "pulsar-admin store refresh --forget",
        "Refresh: what is gone is forgotten, and what is new is read.",
        "Use `--copy` to import from running bookies.",
    ),
    Cause(
        "file-unreadable",
        Severity.CRITICAL,
        "A file of a bookie cannot be read",
        "The operating system refuses: permissions, or the disk.",
        "If the bookie cannot read it either, it returns an error, and a broker reads from another bookie with a copy.",
        "pulsar-admin store refresh",
        "Look at its permissions and at the disk (`dmesg`), then refresh.",
    ),
    Cause(
        "file-touched",
        Severity.NOTE,
        "A file's modification time differs from the import",
        "Its size is the same. Somebody copied or touched it.",
        _UNSEEN,
        "pulsar-admin store check --deep",
        "If in doubt, read every byte once.",
    ),
    Cause(
        "file-grown",
        Severity.NOTE,
        "More was written to a file since the import",
        "The store is older than its source: newer data is missing in every answer.",
        "A bookie runs on that directory.",
        "pulsar-admin store refresh",
        "Refresh the store.",
    ),
    Cause(
        "stray-file",
        Severity.NOTE,
        "A file in the store is not referenced",
        "A killed command left it. It only takes space.",
        _UNSEEN,
        "pulsar-admin store check",
        "Delete it when no command is running.",
    ),
    Cause(
        "scan-unfinished",
        Severity.NOTE,
        "The scan of a file was stopped",
        "A refresh was interrupted: the index does not reach the end of its files.",
        _UNSEEN,
        "pulsar-admin store refresh",
        "Run the same command again; it continues.",
    ),
    Cause(
        "check-stopped",
        Severity.CRITICAL,
        "A check could not be finished",
        "A row that the check needs cannot be read. What comes after it was not checked.",
        _UNSEEN,
        "pulsar-admin store check",
        "Repair the rows that other findings name, then check again.",
    ),
    Cause(
        "not-checked",
        Severity.WARNING,
        "Files have changed, so the index was not compared with all of them",
        "A deep check compares the index with the files as they were imported. Of files that somebody writes it verifies what was"
        " imported, and leaves out the ledgers in them.",
        _UNSEEN,
        "pulsar-admin store refresh",
        "Refresh, then check again; stop what writes before, to compare all.",
    ),
)
"""Of the store itself. A row for each code of ``store.check.rows``, ``nacks`` and the deep check that is not about what Pulsar left."""
