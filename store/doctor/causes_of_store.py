"""Causes in the store's own rows and files: no broker sees them, but what this toolkit answers may be wrong."""

from __future__ import annotations

from store.doctor.diagnosis import Cause, Severity

_UNSEEN = "Nothing: no broker reads the store. Until it is mended, answers and changes from here may be wrong."
_REBUILD = "pulsar-admin store index --rebuild"
_HOW_REBUILD = (
    "Make the index again from the files. Metadata and changes of the store stay as they are; the old index is kept "
    "as a back-up."
)
_PREVENT = "Change a store with this toolkit only, and keep it on a disk that tells errors."


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
        "Import the source again into a new store, or copy a back-up of the store back. Changes that were not "
        "exported are lost.",
        _PREVENT,
    ),
    Cause(
        "catalogue-damaged",
        Severity.CRITICAL,
        "The catalogue of files cannot be read",
        "A row that says which file of a bookie holds what is damaged, so that no entry of it can be found.",
        _UNSEEN,
        "pulsar-admin store import standalone DIR --store NEW-STORE",
        "Import the source again into a new store.",
        _PREVENT,
    ),
    Cause(
        "node-damaged",
        Severity.CRITICAL,
        "A metadata node of the store is damaged",
        "A row of the metadata tree cannot be read: the topic, cursor or policy of that path is missing in every "
        "answer.",
        _UNSEEN,
        "pulsar-admin store refresh",
        "Read the source's metadata again.",
        _PREVENT,
    ),
    _of_index(
        "damage-without-file",
        "Damage of a file that is not catalogued",
        "A row tells of damage in a file that the store does not know.",
    ),
    _of_index(
        "block-damaged", "A block of the location index is damaged", "Where the entries of that block lie is not known."
    ),
    _of_index(
        "block-inconsistent",
        "A block of the location index contradicts itself",
        "Its counts, its order or its places cannot all be right.",
    ),
    _of_index(
        "times-missing",
        "A ledger has entries and no row of times",
        "Questions by time pass the ledger over.",
    ),
    _of_index(
        "times-damaged",
        "A row of times is damaged",
        "Questions by time cannot use it.",
    ),
    _of_index(
        "times-differ",
        "A row of times is not that of its ledger's blocks",
        "Counts and questions by time may be wrong for that ledger.",
    ),
    _of_index(
        "times-surplus",
        "A row of times has no entries",
        "The ledger is shown with entries that nothing holds.",
    ),
    _of_index(
        "owners-damaged",
        "The owners of ledgers cannot be read",
        "Which topic or cursor a ledger belongs to is not known.",
    ),
    _of_index(
        "owners-differ",
        "The owners of a ledger are not those of the metadata",
        "Lists of orphans and lost ledgers may be wrong.",
    ),
    _of_index(
        "copies-row-damaged",
        "A row of copies is damaged",
        "On how many bookies some entries are is not known.",
    ),
    _of_index(
        "copies-without-file",
        "Copies in a file that is not catalogued",
        "On how many bookies some entries are may be wrong.",
    ),
    _of_index(
        "index-differs",
        "The index is not what the files say",
        "A deep check read every byte again and came to another index.",
    ),
    Cause(
        "changes-damaged",
        Severity.WARNING,
        "The log of changes is damaged",
        "A record of a change made with this toolkit cannot be read: it cannot be undone.",
        _UNSEEN,
        "pulsar-admin store log",
        "Look at the changes that are left. What was exported stays as it is.",
        _PREVENT,
    ),
    Cause(
        "changes-altered",
        Severity.WARNING,
        "Somebody altered the log of changes",
        "Each change carries the digest of the one before it. One does not fit: it was changed or taken out behind "
        "our back.",
        _UNSEEN,
        "pulsar-admin store log",
        "Find out who did it before you trust the log. Nothing makes it whole again.",
        _PREVENT,
    ),
    Cause(
        "base-damaged",
        Severity.WARNING,
        "What was imported of a changed node cannot be read",
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
        "Negative acks are kept for a subscription that is not there",
        "The subscription was deleted since they were kept.",
        _UNSEEN,
        "pulsar-admin nacks stats",
        "Nothing needs them. They cost a few bytes.",
    ),
    Cause(
        "file-missing",
        Severity.CRITICAL,
        "A file of a bookie is gone",
        "The store knows entries in it and can read none of them.",
        "If it is gone from the bookie, too: the bookie answers NoSuchEntry, and a broker reads from another one "
        "that has a copy.",
        "pulsar-admin store refresh",
        "Bring the file back and refresh. `store refresh --forget` does without it.",
        "Do not let a running bookie collect garbage in a directory that a store was imported from; import with "
        "`--copy` instead.",
    ),
    Cause(
        "file-changed",
        Severity.CRITICAL,
        "A file of a bookie is another one than at import",
        "It is shorter, or another file of the same name: places of entries in it are wrong.",
        "A bookie that runs in that directory wrote it, and reads it well.",
        "pulsar-admin store refresh --forget",
        "Refresh: what is gone is forgotten, and what is new is read.",
        "Import with `--copy` from bookies that run.",
    ),
    Cause(
        "file-unreadable",
        Severity.CRITICAL,
        "A file of a bookie cannot be read",
        "The operating system refuses: permissions, or the disk.",
        "A bookie that cannot read it either answers with an error, and a broker reads from another one that has a "
        "copy.",
        "pulsar-admin store refresh",
        "Look at its permissions and at the disk (`dmesg`), then refresh.",
    ),
    Cause(
        "file-touched",
        Severity.NOTE,
        "A file's time of change is another than at import",
        "Its size is the same. Somebody copied or touched it.",
        _UNSEEN,
        "pulsar-admin store check --deep",
        "Read every byte once, if you doubt it.",
    ),
    Cause(
        "file-grown",
        Severity.NOTE,
        "More was written to a file since the import",
        "The store is older than its source: what came since is not in any answer.",
        "A bookie runs on that directory.",
        "pulsar-admin store refresh",
        "Refresh the store.",
    ),
    Cause(
        "stray-file",
        Severity.NOTE,
        "A file in the store that nothing names",
        "A command that was killed left it. It takes room, and no more.",
        _UNSEEN,
        "pulsar-admin store check",
        "Delete it once no command runs.",
    ),
    Cause(
        "scan-unfinished",
        Severity.NOTE,
        "The scan of a file was stopped",
        "A refresh was interrupted: the index does not reach the end of its files.",
        _UNSEEN,
        "pulsar-admin store refresh",
        "The same command goes on where it was.",
    ),
    Cause(
        "not-checked",
        Severity.WARNING,
        "Files have changed, so the index was not compared with them",
        "A deep check needs the files that were imported.",
        _UNSEEN,
        "pulsar-admin store refresh",
        "Refresh, then check again.",
    ),
)
"""Of the store itself. A row for each code of ``store.check.rows``, ``nacks`` and the deep check that is not about what Pulsar left."""
