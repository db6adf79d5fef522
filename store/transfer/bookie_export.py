"""``store export bookie``: ledgers that this toolkit wrote, put on bookies of a cluster, and their metadata naming
those bookies.

Each ledger goes, whole, to as many bookies as the newest ledger of its topic has copies (write quorum), and these
become its ensemble. A bookie with DbLedgerStorage keeps a ledger in the directory ``ledgerId mod N`` of its N ledger
directories (``DbLedgerStorage``, ``MathUtils.signSafeMod``; BookKeeper 4.17). Entries are written first, then the
store's metadata is changed; an export of the metadata brings the change to the cluster. Leftovers of a stopped export
belong to no ledger, and the next export uses them. The ``VERSION`` files of a bookie that a change renamed are written
last, each by one rename.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.store.changes.plan import ChangeKind, ChangePart, Plan, apply_plan, put_value_step
from pulsar_admin.store.codec import ledgermetadata
from pulsar_admin.store.codec.bookie import COOKIE_FILE, decode_cookie, encode_cookie
from pulsar_admin.store.db.bookies import Bookie, iter_renamed, read_renamed
from pulsar_admin.store.db.entry_files import EntryFiles
from pulsar_admin.store.db.environment import Store, Txn
from pulsar_admin.store.db.own_ledgers import find_placed, put_placed
from pulsar_admin.store.db.owners import find_owners
from pulsar_admin.store.db.tree import find_node, read_node
from pulsar_admin.store.errors import InvalidValue, Refused, stale
from pulsar_admin.store.files import read_file, replace_like
from pulsar_admin.store.model.ledgers import Ledger, find_metadata, iter_ledger_ids, read_ledger
from pulsar_admin.store.model.topics import read_topic
from pulsar_admin.store.names import parse_owner
from pulsar_admin.store.sources.given_bookies import GivenBookie, check_apart, find_bookie
from pulsar_admin.store.sources.rocksdb import check_unlocked, damaged_in_place, lock_database
from pulsar_admin.store.sources.storage import Storage, cookie_of, storages_of
from pulsar_admin.store.transfer.exports import Previewed, is_own, iter_changed_nodes
from pulsar_admin.store.transfer.ledger_export import not_held, write_to_storage
from pulsar_admin.store.wording import Answer, counted


class PlacedLedger(Struct, frozen=True):
    """A ledger, and the bookies that get all of its entries and become its ensemble."""

    ledger_id: int
    entries: int
    size_bytes: int
    ack_quorum: int
    bookies: tuple[str, ...]


class StorageWrites(Struct, frozen=True):
    """The ledgers that a ledger directory of a bookie lacks."""

    storage: Storage
    ledger_ids: tuple[int, ...]


class LedgerPlaced(Answer, frozen=True):
    """A ledger that was written to ``bookies`` (their ids)."""

    ledger_id: int
    entries: int
    bytes: int
    bookies: tuple[str, ...]


class DirectoryWritten(Answer, frozen=True):
    """A ledger directory of a bookie, and the ids of the ledgers that were written to it."""

    directory: str
    ledgers: tuple[int, ...]


class CookieWritten(Answer, frozen=True):
    """A file ``VERSION`` of a bookie that a change renamed: it now names ``bookie`` instead of ``was``."""

    path: str
    was: str
    bookie: str


class BookieExportReport(Answer, frozen=True):
    """What was written to bookies, or with ``dry_run`` would be. ``change``: its number in the audit log, None if nothing changed."""

    ledgers: tuple[LedgerPlaced, ...]
    written: tuple[DirectoryWritten, ...]
    cookies: tuple[CookieWritten, ...]
    change: int | None
    dry_run: bool


class BookieExportPlan(Struct, Previewed, frozen=True):
    """The plan of an export to bookies: ``writes`` first, then ``change`` of the store."""

    given: tuple[Bookie, ...]
    ledgers: tuple[PlacedLedger, ...]
    writes: tuple[StorageWrites, ...]
    change: Plan
    cookies: tuple[CookieWritten, ...] = ()
    loses: str = ""

    def report(self, *, dry_run: bool, change: int | None = None) -> BookieExportReport:
        return BookieExportReport(
            ledgers=tuple(
                LedgerPlaced(ledger.ledger_id, ledger.entries, ledger.size_bytes, ledger.bookies)
                for ledger in self.ledgers
            ),
            written=tuple(DirectoryWritten(str(write.storage.logs), write.ledger_ids) for write in self.writes),
            cookies=self.cookies,
            change=change,
            dry_run=dry_run,
        )


def plan_bookie_export(store: Store, given: Sequence[GivenBookie], now_ms: int) -> BookieExportPlan:
    """Plan writing every ledger that this toolkit created and no cluster has to some of the bookies.

    Raises Refused, NotFound, InvalidValue, SourceBusy for bookies that cannot take them.
    """
    if not given:
        raise InvalidValue("no bookie is named", hint="name each as ID=DIR,DIR")
    with store.read() as txn:
        renamed = read_renamed(txn)
    bookies = [find_bookie(one, renamed) for one in given]
    check_apart(bookies)
    for bookie in bookies:
        for storage in storages_of(bookie):
            for database in storage.databases:
                check_unlocked(database)
    return _plan(store, bookies, now_ms)


def _plan(store: Store, bookies: Sequence[Bookie], now_ms: int) -> BookieExportPlan:
    """Return the plan without opening any LOCK file, so that it can be made while this process holds the locks."""
    given = tuple(bookies)
    with store.read() as txn:
        for bookie in bookies:
            node, cookie = find_node(txn, ledgermetadata.INSTANCE_ID), cookie_of(bookie)
            expected = "" if node is None else node.value.decode("utf-8", "replace").strip()
            if expected and cookie.instance_id not in (None, expected):
                raise Refused(
                    f"bookie {bookie.name} belongs to another cluster: the instance id of its cookie is {cookie.instance_id}, the"
                    f" store's {expected}",
                    hint="name a bookie of the cluster that was imported",
                    expected=expected,
                    found=cookie.instance_id,
                )
        renamed, cookies = dict(iter_renamed(txn)), list[CookieWritten]()
        for place, bookie in enumerate(bookies):
            if bookie.bookie_id in renamed:
                now = renamed[bookie.bookie_id].bookie_id
                files = (path / COOKIE_FILE for path in bookie.directories)
                cookies += (CookieWritten(str(file), bookie.bookie_id, now) for file in files if not _is_of(file, now))
                bookies = (*bookies[:place], replace(bookie, bookie_id=now), *bookies[place + 1 :])
        created = [
            ledgermetadata.ledger_id_of_path(node.path) for node in iter_changed_nodes(txn) if node.action == "create"
        ]
        ours = [ledger_id for ledger_id in created if ledger_id is not None and is_own(txn, ledger_id)]
        placed = tuple(_place(txn, ledger_id, bookies) for ledger_id in ours)
        writes = tuple(write for bookie in bookies for write in _writes(txn, bookie, placed))
        return BookieExportPlan(given, placed, writes, _change(txn, placed, now_ms), tuple(cookies))


def _is_of(file: Path, bookie_id: str) -> bool:
    """Whether a ``VERSION`` file names this bookie, or does not exist: then nothing is written to its directory."""
    return not file.is_file() or decode_cookie(read_file(file), str(file)).bookie_id == bookie_id


def _place(txn: Txn, ledger_id: int, bookies: Sequence[Bookie]) -> PlacedLedger:
    """Choose a ledger's bookies: those it was placed on before, else the given ones in rotation; raises Refused."""
    ledger, like = read_ledger(txn, ledger_id), _like(txn, ledger_id)
    copies, acks = (1, 1) if like is None else (like.write_quorum, like.ack_quorum)
    ids = [bookie.bookie_id for bookie in bookies]
    if len(ids) < copies:
        raise Refused(
            f"ledger {ledger_id} must be on {copies} bookies, like the others of its topic; "
            f"{counted(len(ids), 'bookie is', 'bookies are')} given",
            hint="name more bookies: ID=DIR[,DIR…] for each",
            expected=copies,
            found=len(ids),
        )
    members = find_placed(txn).get(ledger_id, ())
    if len(members) != copies or not set(members) <= set(ids):
        members = tuple(ids[(ledger_id + turn) % len(ids)] for turn in range(copies))
    return PlacedLedger(ledger_id, ledger.entries, ledger.size_bytes, acks, members)


def _like(txn: Txn, ledger_id: int) -> ledgermetadata.LedgerMetadata | None:
    """Return the metadata of the newest ledger of the same topic that a broker wrote, else of a broker's newest
    ledger."""
    topics = [parse_owner(owner.topic) for owner in find_owners(txn, ledger_id) if owner.topic]
    siblings = sorted({ledger.ledger_id for name in topics for ledger in read_topic(txn, name).ledgers}, reverse=True)
    return next(_of_brokers(txn, siblings), None) or next(
        _of_brokers(txn, sorted(iter_ledger_ids(txn), reverse=True)), None
    )


def _of_brokers(txn: Txn, ledger_ids: Sequence[int]) -> Iterator[ledgermetadata.LedgerMetadata]:
    for ledger_id in ledger_ids:
        metadata = find_metadata(txn, ledger_id)
        if metadata is not None and not is_own(txn, ledger_id):
            yield metadata


def _writes(txn: Txn, bookie: Bookie, placed: Sequence[PlacedLedger]) -> Iterator[StorageWrites]:
    storages = storages_of(bookie)
    problems: list[str] = []
    for number, storage in enumerate(storages):
        here: list[Ledger] = [
            read_ledger(txn, ledger.ledger_id)
            for ledger in placed
            if bookie.bookie_id in ledger.bookies and ledger.ledger_id % len(storages) == number
        ]
        missing = tuple(ledger.ledger_id for ledger in not_held(txn, storage, here, problems)) if here else ()
        if problems:
            raise damaged_in_place(problems)
        if missing:
            yield StorageWrites(storage, missing)


def _change(txn: Txn, placed: Sequence[PlacedLedger], now_ms: int) -> Plan:
    """Return the change that names the bookies of every ledger in its metadata."""
    steps, parts = [], []
    for ledger in placed:
        path = ledgermetadata.ledger_path(ledger.ledger_id)
        before = find_metadata(txn, ledger.ledger_id)
        assert before is not None
        after = replace(
            before,
            write_quorum=len(ledger.bookies),
            ensemble_size=len(ledger.bookies),
            ack_quorum=ledger.ack_quorum,
            segments=(ledgermetadata.Segment(0, ledger.bookies),),
        )
        if after != before:
            value = ledgermetadata.encode_ledger_metadata(after, read_node(txn, path).value)
            steps.append(put_value_step(txn, path, value, now_ms))
            members = {"bookies": list(before.segments[0].members)}, {"bookies": list(ledger.bookies)}
            parts.append(ChangePart(resource=f"ledger {ledger.ledger_id}", before=members[0], after=members[1]))
    return Plan(ChangeKind("store export bookie", "export {place}"), txn.id, tuple(steps), tuple(parts))


def apply_bookie_export(store: Store, plan: BookieExportPlan, now_ms: int) -> BookieExportReport:
    """Write the entries, directory by directory, then the change of the store; return the report.

    Raises StalePlan if the store or a bookie changed since, SourceBusy if a bookie was started.
    """
    with ExitStack() as locks:
        for write in plan.writes:
            for database in write.storage.databases:
                locks.enter_context(lock_database(database))
        if _plan(store, plan.given, now_ms).writes != plan.writes:
            raise stale(f"{store.path} or a bookie", "the export")
        with store.read() as txn, EntryFiles(store, txn) as files:
            for write in plan.writes:
                write_to_storage(files, txn, write.ledger_ids, write.storage)
    for row in plan.cookies:
        file = Path(row.path)
        cookie = replace(decode_cookie(read_file(file), row.path), bookie_id=row.bookie)
        replace_like(file, encode_cookie(cookie), f"{COOKIE_FILE}.renaming")
    placed = {ledger.ledger_id: ledger.bookies for ledger in plan.ledgers}
    if plan.change.steps:
        report = apply_plan(store, plan.change, now_ms, first=lambda txn: put_placed(txn, placed))
        return plan.report(dry_run=False, change=report.number)
    if placed:
        store.write(lambda txn: put_placed(txn, placed))
    return plan.report(dry_run=False)
