"""``bookkeeper``: the commands of ``bookkeeper shell`` that a store can answer, with the output of BookKeeper 4.17.2."""

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from pulsar_admin.context import App, Lines, Printed, Shown
from pulsar_admin.store import errors
from pulsar_admin.store.files import write_new_file
from pulsar_admin.store.names import LONG_MAX, FileKind
from pulsar_admin.store.reports import shell
from pulsar_admin.upstream import mirrored

_FORMATTED = "Lines as the shell logs them, without time, thread and class."
_logged = partial(mirrored, output=_FORMATTED)


def _printed(lines: Iterable[str]) -> Shown:
    """Return ``lines`` to be printed unchanged, as the shell does; in CSV and tables they are the column LINE."""
    return Lines(lines, "LINE", as_text=True)


def _ledger_id(value: int | None) -> int:
    if value is None or value < 0:
        raise errors.InvalidValue("-ledgerid is missing", hint="list ledgers with: pulsar-admin bookkeeper listledgers")
    return value


@_logged(
    "bookkeeper listledgers",
    "",
    "-m",
    helps={"meta": "Also the metadata.", "bookieid": "Only ledgers with this bookie in an ensemble."},
    errors=[errors.StoreNotFound, errors.MetadataCorrupt],
)
def listledgers(app: App, meta: bool, bookieid: str | None) -> Iterator[Shown]:
    """List the ledgers of the metadata."""
    with app.session.read() as txn:
        yield _printed(shell.ledger_lines(txn, bookieid, meta))


@_logged(
    "bookkeeper ledgermetadata",
    "-ledgerid 9",
    helps={
        "ledgerid": "The ledger.",
        "dumptofile": "Write the stored metadata to this file, which must not exist.",
        "restorefromfile": "Refused: it changes a running cluster's metadata.",
        "update": "Refused.",
    },
    errors=[errors.LedgerNotFound, errors.MetadataCorrupt, errors.Unsupported],
)
def ledgermetadata(
    app: App, ledgerid: int | None, dumptofile: str | None, restorefromfile: str | None, update: bool
) -> Iterator[Shown]:
    """Show the metadata of a ledger, or write it to a file."""
    if restorefromfile is not None or update:
        raise errors.Unsupported(
            "ledgers are not put back into the metadata here", hint="the node is in: store cat PATH"
        )
    with app.session.read() as txn:
        if dumptofile is not None:
            write_new_file(Path(dumptofile), shell.metadata_bytes(txn, _ledger_id(ledgerid)))
        else:
            yield _printed(shell.metadata_lines(txn, _ledger_id(ledgerid)))


@mirrored(
    "bookkeeper ledger",
    "9",
    helps={"meta": "Accepted; adds nothing, as upstream's for DbLedgerStorage."},
    output="A line for each entry in an entry log: the log's number, and where in it the entry begins.",
    errors=[errors.StoreNotFound, errors.InvalidValue],
)
def ledger(app: App, ledger_id: str, meta: bool) -> Iterator[Shown]:
    """Show where the entries of a ledger are."""
    if not ledger_id.isascii() or not ledger_id.isdigit() or int(ledger_id) > LONG_MAX:
        raise errors.InvalidValue(f"invalid ledger id {ledger_id!r}", hint="give its number")
    with app.session.read() as txn:
        yield _printed(shell.index_lines(txn, int(ledger_id)))


@mirrored(
    "bookkeeper readledger",
    "-l 9 -fe 0 -le 2",
    helps={
        "msg": "Also the entries, as text.",
        "ledgerid": "The ledger.",
        "firstentryid": "First entry [0].",
        "lastentryid": "Last entry [the ledger's last].",
        "force_recovery": "Nothing is recovered here: a ledger ends where its recovery would close it.",
        "bookie": "Has no effect: an entry comes from the file that has it.",
    },
    output=f"{_FORMATTED} EntrySize is the payload of the ledger up to and with the entry.",
    errors=[errors.LedgerNotFound],
)
def readledger(
    app: App, msg: bool, ledgerid: int | None, firstentryid: int | None, lastentryid: int | None, **_ignored: object
) -> Iterator[Shown]:
    """Show the entries of a ledger, each read and its digest verified."""
    last = -1 if lastentryid is None else lastentryid
    first = max(firstentryid or 0, 0)
    with app.session.reader() as reader:
        shell.metadata_bytes(reader.txn, _ledger_id(ledgerid))
        yield _printed(shell.read_lines(reader, _ledger_id(ledgerid), first, last, msg))


@_logged(
    "bookkeeper readlog",
    "0 -l 9 -e 3",
    "1.log -sp 1024 -ep 2048",
    helps={
        "msg": "Also the bytes after the header, digest and all, as text.",
        "ledgerid": "Only this ledger.",
        "entryid": "Only this entry of the ledger.",
        "startpos": "Only records that end at this offset or after it.",
        "endpos": "Only records that begin at this offset or before it.",
    },
    errors=[errors.SourceNotFound],
)
def readlog(
    app: App, log: str, msg: bool, ledgerid: int | None, entryid: int | None, startpos: int | None, endpos: int | None
) -> Iterator[Shown]:
    """Show the records of an entry log.

    LOG is its number, or its name, such as 1f.log, or the end of its path.
    """
    given = (-1 if value is None else value for value in (ledgerid, entryid, startpos, endpos))
    selection = shell.Selection(*given)
    if 0 <= selection.end < selection.start:
        raise errors.InvalidValue("-startpos is after -endpos", hint="exchange them")
    with app.session.read() as txn:
        file = shell.find_file(txn, log, FileKind.ENTRY_LOG, 10)
        yield _printed(shell.log_lines(app.store, file, selection, msg))


@mirrored(
    "bookkeeper readlogmetadata",
    "0",
    output=f"{_FORMATTED} Ledgers are sorted, which upstream's are not.",
    errors=[errors.SourceNotFound],
)
def readlogmetadata(app: App, log: str) -> Iterator[Shown]:
    """Show how many bytes of each ledger an entry log holds.

    LOG is its name, or its number in hexadecimal, which is how upstream reads it in this command only.
    """
    with app.session.read() as txn:
        file = shell.find_file(txn, log, FileKind.ENTRY_LOG, 16)
        yield _printed(shell.log_metadata_lines(app.store, file))


@_logged(
    "bookkeeper readjournal",
    "1a1fd6a8c5d.txn",
    helps={
        "dir": "Has no effect: a journal of several bookies is named by its path.",
        "msg": "Also the bytes, as text.",
    },
    errors=[errors.SourceNotFound],
)
def readjournal(app: App, journal: str, msg: bool, **_ignored: object) -> Iterator[Shown]:
    """Show the records of a journal.

    JOURNAL is its number, or its name, such as 18f.txn, or the end of its path.
    """
    with app.session.read() as txn:
        file = shell.find_file(txn, journal, FileKind.JOURNAL, 10)
        yield _printed(shell.journal_lines(app.store, file, msg))


@_logged(
    "bookkeeper activeledgers",
    "-l 0",
    helps={"log_id": "The entry log's number.", "timeout": "Has no effect."},
    errors=[errors.SourceNotFound, errors.InvalidValue],
)
def activeledgers(app: App, log_id: int | None, timeout: int | None) -> Iterator[Shown]:
    """List the ledgers of an entry log that are still in the metadata."""
    if log_id is None:
        raise errors.InvalidValue("-logId is missing", hint="give the number of an entry log")
    with app.session.read() as txn:
        file = shell.find_file(txn, str(log_id), FileKind.ENTRY_LOG, 10)
        yield _printed(shell.active_lines(txn, file))


@_logged("bookkeeper lastmark", "", errors=[errors.SourceNotFound, errors.MetadataCorrupt])
def lastmark(app: App) -> Shown:
    """Show the journal position up to which a bookie's entry logs are complete."""
    return _printed(shell.last_mark_lines(app.store))


@mirrored(
    "bookkeeper listfilesondisc",
    elsewhere=["-log -txn"],
    helps={"journal": "Journals.", "entrylog": "Entry logs, and RocksDB's logs.", "index": "Index files."},
    output=f"{_FORMATTED} Files are sorted by path.",
    errors=[errors.SourceNotFound],
)
def listfilesondisc(app: App, journal: bool, entrylog: bool, index: bool) -> Shown:
    """List the files of the bookies that the store came from."""
    return _printed(shell.file_lines(shell.bookie_directories(app.store), journal, entrylog, index))


@_logged(
    "bookkeeper listbookies",
    "-a",
    helps={
        "hostnames": "Has no effect: hostnames are always shown.",
        "readwrite": "Those that ran and took entries when the metadata was copied.",
        "readonly": "Those that ran and took none.",
        "all": "All that have a cookie.",
    },
    errors=[errors.StoreNotFound, errors.InvalidValue],
)
def listbookies(app: App, hostnames: bool, readwrite: bool, readonly: bool, all: bool) -> Iterator[Shown]:
    """List bookies."""
    if readwrite + readonly + all != 1:
        raise errors.InvalidValue(
            "One and only one of -readwrite, -readonly and -all must be specified", hint="give -a"
        )
    with app.session.read() as txn:
        yield _printed(shell.bookie_lines(txn, readwrite, readonly, all))


@mirrored("bookkeeper cookie_get", "127.0.0.1:34299", output="The cookie as it is stored.", errors=[errors.NotFound])
def cookie_get(app: App, bookie_id: str) -> Iterator[Shown]:
    """Show the cookie of a bookie."""
    with app.session.read() as txn:
        yield _printed(shell.cookie_lines(txn, bookie_id))


@_logged(
    "bookkeeper listunderreplicated",
    "",
    helps={
        "missingreplica": "Only ledgers that lack this bookie's replica.",
        "excludingmissingreplica": "Only ledgers that do not lack it.",
        "printmissingreplica": "Also the bookies whose replicas are missing.",
        "printreplicationworkerid": "Has no effect: no worker replicates the ledgers of a store.",
        "onlydisplayledgercount": "Only how many there are.",
    },
    errors=[errors.StoreNotFound],
)
def listunderreplicated(
    app: App,
    missingreplica: str | None,
    excludingmissingreplica: str | None,
    printmissingreplica: bool,
    onlydisplayledgercount: bool,
    **_ignored: object,
) -> Iterator[Shown]:
    """List the ledgers that are marked as under-replicated."""
    with app.session.read() as txn:
        wanted = (missingreplica, excludingmissingreplica)
        yield _printed(shell.under_replicated_lines(txn, *wanted, printmissingreplica, onlydisplayledgercount))


@mirrored(
    "bookkeeper whatisinstanceid",
    "",
    output="The id of the cluster, and the source of the store instead of the metadata service.",
    errors=[errors.StoreNotFound],
)
def whatisinstanceid(app: App) -> Iterator[Shown]:
    """Show the instance id of the cluster."""
    with app.session.read() as txn:
        yield _printed(shell.instance_lines(txn))


@mirrored(
    "bookkeeper clusterinfo",
    "",
    output="One object: bookies with a cookie, those that were registered when the metadata was copied; no auditor.",
    errors=[errors.StoreNotFound],
)
def clusterinfo(app: App) -> Shown:
    """Count the bookies of the cluster."""
    with app.session.read() as txn:
        info = shell.read_cluster_info(txn)
    return Printed(info, head=("Starting fill cluster info.", "--------- Cluster Info ---------"))
