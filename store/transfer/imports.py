"""``store import``: a Pulsar data directory, or the parts of a cluster → tree, catalogue, location and time index.

The sources are only read. Facts about metadata nodes that are needed later are noted while the nodes are written: there may be millions,
and reading them again costs a fifth of an import. Findings that may cause others are reported at once.

A store is a copy as of the latest time that its sources record themselves. Producers' clocks and this toolkit's own writes do not count.
Times of files count only if they are older than the files' contents: ``cp -r`` gives all files the time of the copying.

When an import is stopped, the same command continues after the last commit (``store.index.build``).
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from pulsar_admin.store.codec.ledgermetadata import LEDGERS_ROOT, ledger_id_of_path
from pulsar_admin.store.db.blocks import NO_MAX, decode_entry_count, decode_latest, ledger_key, ledger_of_key
from pulsar_admin.store.db.bookies import Bookie, decode_bookie, encode_bookie
from pulsar_admin.store.db.entry_files import FileState, file_state
from pulsar_admin.store.db.environment import DATABASES, Store, Txn, create_store, open_store
from pulsar_admin.store.db.files import (
    METADATA_FILE_ID,
    WHOLE_METADATA,
    Damage,
    FileMode,
    clear_damage,
    damage_text,
    iter_differing,
    iter_logs,
    put_damage,
)
from pulsar_admin.store.db.ledger_ids import put_given_meanwhile, put_next_ledger_id
from pulsar_admin.store.db.locks import writer_lock
from pulsar_admin.store.db.own_ledgers import find_own_ledgers
from pulsar_admin.store.db.storeinfo import StoreState, check_new_store, is_leftover, read_store_info
from pulsar_admin.store.db.tree import Row, modified_ms, path_and_value
from pulsar_admin.store.db.unserved import Marks
from pulsar_admin.store.errors import AlreadyExists, IndexCorrupt, InvalidValue, Refused, SourceChanged
from pulsar_admin.store.facts.cluster import ClusterFacts
from pulsar_admin.store.files import PRIVATE_DIRECTORY, remove_file
from pulsar_admin.store.index.build import Advance, Scanning, SeenDigests
from pulsar_admin.store.index.unserved import index_unserved
from pulsar_admin.store.model import coverage
from pulsar_admin.store.model.copy_age import AsOf, find_as_of, put_as_of
from pulsar_admin.store.model.ledgers import has_node
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.model.references import NAMING_PREFIXES, References, make_owners
from pulsar_admin.store.names import FileKind
from pulsar_admin.store.rules.cluster import CLUSTER_RULES
from pulsar_admin.store.rules.ledgers import LEDGER_RULES
from pulsar_admin.store.scan.files import LedgerDigests
from pulsar_admin.store.sources.bookies import files_of, foreign_ids, journal_marks, size_of
from pulsar_admin.store.sources.given_bookies import missing_directories
from pulsar_admin.store.sources.index_places import read_newest_ledgers
from pulsar_admin.store.sources.journals import without_journal
from pulsar_admin.store.sources.layout import Layout, is_live
from pulsar_admin.store.sources.nodes import MetadataDirectory, iter_source_rows
from pulsar_admin.store.sources.zookeeper import is_zookeeper, last_transaction
from pulsar_admin.store.transfer.reading import Reading, read_disks
from pulsar_admin.store.wording import Answer, counted

if TYPE_CHECKING:
    from pulsar_admin.store.engine.operation import Engine


Warn = Callable[[str], None]  # called at once; ``ImportResult.warnings`` has the same texts


class ImportOptions(Struct, frozen=True):
    """How to import. ``mode``: of entry logs; without ``index`` entries are not read."""

    mode: FileMode = FileMode.REFERENCED
    verify: bool = True
    now_ms: int = 0
    engine: Engine | None = None  # None: files are scanned in this process
    wait_ms: int = 0  # for another process that writes there
    index: bool = True


class ImportResult(Answer, frozen=True):
    """The result of an import."""

    JSON_OPTIONAL = ("findings",)

    store: str
    source: str
    nodes: int
    files: int
    bytes: int
    records: int
    entries: int
    problems: int
    undecodable_values: int
    differing_copies: int
    strangers: list[str]
    vanished_files: list[str]  # that a running bookie deleted meanwhile
    doubts: list[str]  # what may be missing because of that, or because it is no file
    findings: list[str] | None
    """Codes of findings of which others may come; None: no such findings."""
    seconds: float
    checksums: bool
    source_in_use_by: int | None
    without_journal: list[str]  # bookies whose last entries may not be here
    absent_bookies: list[str]  # that the metadata names
    warnings: list[str]


class ImportPreview(Answer, frozen=True):
    """The files and metadata that an import would read."""

    store: str
    source: str
    nodes: int
    undecodable_values: int
    files: int
    bytes: int
    source_in_use_by: int | None
    dry_run: bool = True


def preview_import(layout: Layout, path: Path) -> ImportPreview:
    """Return what an import would read; raises what ``import_layout`` raises before it writes."""
    _check_target(path, layout, source_rows(layout, ImportOptions()))
    return preview_of(layout, path)


def preview_of(layout: Layout, path: Path) -> ImportPreview:
    """Return what an import of a layout into a store would read."""
    damaged = [isinstance(item, Damage) for item in iter_source_rows(layout.metadata)]
    files = [file.path for file in files_of(layout.bookies)]
    return ImportPreview(
        str(path),
        layout.name,
        damaged.count(False),
        damaged.count(True),
        len(files),
        sum(map(size_of, files)),
        layout.metadata.holder() if layout.metadata else None,
    )


def import_layout(
    layout: Layout, path: Path, options: ImportOptions, advance: Advance, warn: Warn = lambda text: None
) -> ImportResult:
    """Import the parts of a layout into a new store, or finish an interrupted import of the same parts.

    Without an index the store has metadata and the list of files: tables can be exported, and the same import can
    continue. Raises AlreadyExists for a finished store, InvalidValue without index and metadata.
    """
    if not options.index and layout.metadata is None:
        raise InvalidValue(
            "without metadata nothing says which entries there are", hint="omit --no-index, or also name the metadata"
        )
    started = time.monotonic()
    sources = source_rows(layout, options)
    _check_target(path, layout, sources)
    mode = _mode_of(layout)
    # One lock from before the store exists until it is complete: the second of two imports into a path is refused.
    with writer_lock(path, mode, wait_ms=options.wait_ms) as lock, _begin(path, layout, sources, mode, lock) as store:
        holder = None if layout.metadata is None else layout.metadata.holder()
        in_use: list[str] = []
        if layout.metadata is not None and holder is not None:
            in_use.append(
                f"process {holder} has {layout.metadata.name} open: continuing, read-only; its later writes are not imported"
            )
            warn(in_use[0])
        marks = journal_marks(layout.bookies)  # before the files: a running bookie moves its marks
        seen = SeenNodes(options.now_ms)
        tree = import_tree(store, layout, seen)
        reading = _import_files(store, layout, options, advance, seen.digests.digests())
        meanwhile = next_id_meanwhile(store, layout, tree.next_ledger_id)
        make_owners(store, seen.references)
        as_of = read_as_of(store, layout, options.now_ms, seen.newest.time_ms)
        store.write(
            lambda txn: _index_state(store, txn, layout, marks, as_of, tree.next_ledger_id, meanwhile, seen.members)
        )
        with store.read() as txn:
            logs, entries, differing = list(iter_logs(txn)), count_entries(txn), sum(1 for _ in iter_differing(txn))
            damaged = [
                f"{log.path}: {damage_text(txn, log)}{', torn tail' if log.torn else ''}"
                for log in logs
                if log.problems
            ]
            journals, absent = coverage.find_absent_journals(txn), coverage.find_absent_bookies(txn)
        leading = leading_findings(store)
        first, *others = as_read(sources, layout)
        state = StoreState.READY if options.index else StoreState.UNINDEXED
        store.update_info(state=state, sources=(first | {"strangers": reading.strangers}, *others))
    copies = counted(differing, "entry has", "entries have")
    warnings = [
        *(damage.reason for damage in tree.damages if damage.offset >= WHOLE_METADATA),
        *reading.strangers,
        *damaged,
        *([f"{copies} copies that differ: see them with: pulsar-admin store check"] if differing else []),
        *reading.texts(),
        *reading.doubts,
        *([] if journals is None else [f"{journals.text()}; {journals.hint()}"]),
        *absent_texts(layout, absent),
        *leading.values(),
    ]
    for text in warnings:
        warn(text)
    return ImportResult(
        str(path),
        layout.name,
        nodes=tree.nodes,
        files=len(logs),
        bytes=sum(log.size_bytes for log in logs),
        records=sum(log.records for log in logs),
        entries=entries,
        problems=sum(log.problems for log in logs),
        undecodable_values=sum(not damage.costs_nothing for damage in tree.damages),
        differing_copies=differing,
        strangers=reading.strangers,
        vanished_files=[str(file.path) for file in reading.vanished],
        doubts=reading.doubts,
        findings=[*leading] or None,
        seconds=time.monotonic() - started,
        checksums=options.verify and options.index,
        source_in_use_by=holder,
        without_journal=[] if journals is None else list(journals.bookies),
        absent_bookies=[] if absent is None else list(absent.absent),
        warnings=in_use + warnings,
    )


def next_id_meanwhile(store: Store, layout: Layout, next_ledger_id: int | None) -> int | None:
    """Return the metadata's present next ledger id if the bookies have entries of ledgers from ``next_ledger_id`` on;
    else None.

    Running brokers may have created those ledgers after the tree was read; then the tree is not older than the bookies.
    """
    if layout.metadata is None or next_ledger_id is None:
        return None
    with store.read() as txn:
        is_newer = next(iter(txn.items("times", start=ledger_key(next_ledger_id))), None) is not None
    return layout.metadata.next_ledger_id() if is_newer else None


def _index_state(
    store: Store,
    txn: Txn,
    layout: Layout,
    marks: Marks,
    as_of: AsOf | None,
    next_ledger_id: int | None,
    meanwhile: int | None,
    members: set[str],
) -> None:
    put_next_ledger_id(txn, next_ledger_id)
    put_given_meanwhile(txn, meanwhile)
    index_bookies(store, txn, layout.bookies, members)
    index_unserved(store, txn, marks)
    if as_of is not None:
        put_as_of(txn, as_of)


def index_bookies(store: Store, txn: Txn, bookies: Sequence[Bookie], members: Collection[str] | None) -> None:
    """Write which of the imported bookies, and what of them, is not here; ``members``: as of ``index_absent_bookies``."""
    unlogged = without_journal(bookies)
    newest = read_newest_ledgers(bookies, unlogged, partial(has_node, txn))
    coverage.index_absent_bookies(store, txn, foreign_ids(txn, bookies), members, unlogged, newest)


def absent_texts(layout: Layout, absent: coverage.AbsentBookies | None) -> list[str]:
    """Return sentences about bookies, and directories of bookies, that are not in the layout."""
    texts = [] if absent is None else [f"{absent.text()}; {absent.hint()}"]
    return texts + [text for bookie in layout.bookies if layout.root is None for text in missing_directories(bookie)]


def way_back(layout: Layout) -> str:
    """Return a sentence on how changes get back to this kind of source, "" if ``store export standalone`` does that."""
    metadata = layout.metadata
    if metadata is None:
        return (
            "no metadata is imported, so nothing can be changed or written back: add it with `store add zookeeper`, or, if "
            "it is lost, see what `store recover --dry-run` rebuilds"
        )
    kind = metadata.row()["kind"]
    if kind != "rocksdb":
        return (
            "to apply changes later: `store export zookeeper HOST:PORT` or `store export zookeeper-snapshot DIR` "
            "(export new ledgers with `store export bookie` first)"
        )
    if layout.root is None:
        return (
            "changes cannot be written back into this RocksDB; to apply them, start a ZooKeeper on the output of"
            " `store export zookeeper-snapshot DIR`"
        )
    return ""


def layout_bytes(layout: Layout) -> int:
    """Return how many bytes an import will scan, for a progress display."""
    return sum(size_of(file.path) for file in files_of(layout.bookies))


def _begin(
    path: Path,
    layout: Layout,
    sources: tuple[dict[str, Any], ...],  # Any: JSON
    mode: int,
    lock: int,
) -> Store:
    if _check_target(path, layout, sources):
        imported = sources[0]["imported"]
        remove_file(path / "store.json")  # of a blank store: without it the rest is that of a creation that was stopped
        create_store(path, now_ms=imported, state=StoreState.IMPORTING, sources=sources, mode=mode, lock=lock)
    store = open_store(path, writable=True, unfinished=True, lock=lock)
    if store.info.state is StoreState.UNINDEXED:
        store.update_info(state=StoreState.IMPORTING)
    return store


def _mode_of(layout: Layout) -> int:
    """Return the mode of a store's directories: a user who may not read all of the source may not read the store."""
    directories = layout.directories
    if layout.metadata is not None and not isinstance(layout.metadata, MetadataDirectory):
        return PRIVATE_DIRECTORY  # who may read files of another server is unknown here
    files = [file.path for file in files_of(layout.bookies)]
    if isinstance(layout.metadata, MetadataDirectory):
        inside = (file for directory in layout.metadata.directories for file in directory.iterdir())
        files += [file for file in inside if file.is_file()]
    mode, readable = 0o077, 0o044
    for directory in directories:
        mode &= directory.stat().st_mode
    for parent in {parent for directory in directories for parent in directory.resolve().parents}:
        mode &= parent.stat().st_mode | 0o066  # permission to enter the parent is enough
    for file in files:
        with suppress(FileNotFoundError):  # a running bookie has deleted it
            readable &= file.stat().st_mode
    readers = (0o070 if readable & 0o040 else 0) | (0o007 if readable & 0o004 else 0)
    return PRIVATE_DIRECTORY | (mode & readers)


def _check_target(path: Path, layout: Layout, sources: tuple[dict[str, Any], ...]) -> bool:  # Any: JSON
    """Return whether a new store is to be created, also in place of one that an import left blank; else it is the same
    import, unfinished. Raises AlreadyExists."""
    if (path / "store.json").exists():
        info = read_store_info(path)
        if info.state is StoreState.READY:
            raise AlreadyExists(
                f"{path} is a store already",
                hint="name a new directory with --store; or update this one: pulsar-admin store refresh",
                path=str(path),
            )
        if [*map(source_place, info.sources)] == [*map(source_place, sources)]:
            return False
        if not _is_blank(path):
            raise AlreadyExists(
                f"{path} is an import of {', '.join(str(source['path']) for source in info.sources)} that was stopped",
                hint="run that import again, remove the directory, or name a new one with --store",
                path=str(path),
            )
    else:
        check_new_store(path)
    check_outside(path, layout)
    return True


def _is_blank(path: Path) -> bool:
    """Whether an import stopped before it read anything: its source was not there, or refused to be read."""
    if not all(is_leftover(entry) for entry in path.iterdir() if entry.name != "store.json"):
        return False
    try:
        with open_store(path, unfinished=True) as store, store.read() as txn:
            return all(txn.last(database) is None for database in DATABASES)
    except IndexCorrupt:
        return False


def check_outside(path: Path, layout: Layout) -> None:
    """Raise AlreadyExists if the store is inside of a directory of the layout."""
    for root in layout.directories:
        if path.resolve().is_relative_to(root.resolve()):
            raise AlreadyExists(f"{path} is inside the source {root}", hint="name a directory outside it with --store")


def source_rows(layout: Layout, options: ImportOptions) -> tuple[dict[str, Any], ...]:  # Any: JSON
    """Return the rows of ``store.json`` for the sources: one for a standalone directory, else one for each part."""
    how = {"imported": options.now_ms, "mode": options.mode, "checksums": options.verify}
    if layout.root is not None:
        bookies = [encode_bookie(bookie) for bookie in layout.bookies]
        row = {} if layout.metadata is None else layout.metadata.row()
        when = {key: row[key] for key in ("asOf", "chroot", "ledgersRoot") if key in row}
        return ({"kind": "standalone", "path": str(layout.root.resolve())} | how | when | {"bookies": bookies},)
    metadata = () if layout.metadata is None else (layout.metadata.row() | how,)
    return (
        *metadata,
        *(
            {"kind": "bookie", "path": str(bookie.directories[0].resolve())}
            | how
            | {"bookies": [encode_bookie(bookie)]}
            for bookie in layout.bookies
        ),
    )


def as_read(sources: Iterable[dict[str, Any]], layout: Layout) -> Iterator[dict[str, Any]]:  # Any: JSON
    """Yield source rows with facts known after reading: the metadata's moment, a standalone directory's bookies."""
    row = {} if layout.metadata is None else layout.metadata.row()
    for source in sources:
        if source["kind"] == "standalone" and layout.root is not None:
            root = layout.root
            inside = (one for one in layout.bookies if one.directories[0].is_relative_to(root))
            yield source | {"bookies": [encode_bookie(bookie) for bookie in inside]}
        else:
            yield source | row if source_place(source) == (row.get("kind"), row.get("path")) else source


def source_place(source: Mapping[str, Any]) -> tuple[object, ...]:  # Any: JSON
    """Return a value that is equal for two rows of ``store.json`` if they are the same source."""
    bookies = () if source["kind"] == "standalone" else source.get("bookies", ())
    return (source["kind"], source["path"], *map(decode_bookie, bookies))


# -- metadata ---------------------------------------------------------------------------------------------------------


class ImportedTree(Struct, frozen=True):
    """The number of nodes, the damage, and the next ledger id (None: unknown) of imported metadata."""

    nodes: int
    damages: list[Damage]
    next_ledger_id: int | None


def import_tree(store: Store, layout: Layout, seen: SeenNodes) -> ImportedTree:
    """Read the metadata store into ``tree``; ``seen`` gets every node."""
    damages: list[Damage] = []
    next_ids: list[int] = []
    store.replace_all("tree", seen.watch(_rows_of(layout, damages, next_ids.append)))

    def finish(txn: Txn) -> int:
        clear_damage(txn, METADATA_FILE_ID)
        for damage in damages:
            put_damage(txn, damage)
        return txn.count("tree")

    return ImportedTree(store.write(finish), damages, next_ids[-1] if next_ids else None)


def _rows_of(layout: Layout, damages: list[Damage], tell_next_id: Callable[[int], None]) -> Iterator[Row]:
    """Yield the nodes of the metadata store as rows; unreadable ones are added to ``damages``, the next ledger id goes
    to ``tell_next_id``."""
    for item in iter_source_rows(layout.metadata, tell_next_id):
        if isinstance(item, Damage):
            damages.append(item)
        else:
            yield item


# -- entries ----------------------------------------------------------------------------------------------------------


def _import_files(
    store: Store, layout: Layout, options: ImportOptions, advance: Advance, digests: LedgerDigests
) -> Reading:
    """Read the files; raises SourceChanged if a file differs from the one that the import began with, Refused if the
    import began with an index and continues without one."""
    with store.read() as txn:
        known = list(iter_logs(txn))
    if not options.index and any(log.next_offset for log in known):
        raise Refused(f"the import into {store.path} has begun its index", hint="finish it without --no-index")
    for log in (log for log in known if log.unfinished):
        state = file_state(log, store.path)
        if state is not FileState.MISSING and not state.holds_the_imported:
            raise SourceChanged(
                f"{log.locate(store.path)} is {state} since its scan was stopped at {log.next_offset:,}",
                hint="restore the file, or import into another store, with --store NEW",
                path=log.path,
            )
    advance(sum(log.next_offset if log.unfinished else log.size_bytes for log in known))
    how = Scanning(digests, options.verify, advance, options.engine)
    return read_disks(store, layout, how, from_start=True, index=options.index)


def count_entries(txn: Txn) -> int:
    """Return how many different entries the index holds."""
    return sum(decode_entry_count(ledger_of_key(key), row) for key, row in txn.items("times"))


def leading_findings(store: Store) -> dict[str, str]:
    """Return code → sentence of the findings that may cause other findings; the other rules are not judged.

    A finding that is less severe than its rule causes no others.
    """
    with open_reader(store) as reader:
        facts = ClusterFacts(reader)
        leading = [rule for rule in (*LEDGER_RULES, *CLUSTER_RULES) if rule.leads]
        leading_ones = (one for rule in leading for one in rule.judge(facts) if one.severity is rule.severity)
        return {one.code: f"{one.where}: {one.message}. {one.hint}" for one in leading_ones}


_LEDGERS = f"{LEDGERS_ROOT}/".encode()
_NAMING = tuple(prefix.encode() for prefix in NAMING_PREFIXES)


class SeenNodes:
    """Facts from metadata nodes as they are imported: newest modification, ledgers' digest types, bookies in ensembles,
    and who names which ledger."""

    def __init__(self, read_ms: int) -> None:
        self.newest = NewestNode(read_ms)
        self.digests = SeenDigests()
        self.members: set[str] = set()
        self.references = References()

    def watch(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield the rows of nodes unchanged, and collect the facts in them."""
        see_newest, see_reference = self.newest.see, self.references.see
        for row in rows:
            key, value = row
            see_newest(value)
            if key.startswith(_LEDGERS):
                path, metadata = path_and_value(key, value)
                ledger_id = ledger_id_of_path(path)
                if ledger_id is not None:
                    self.digests.see(ledger_id, path, metadata)
                    self.members |= coverage.members_of(path, metadata)
            elif key.startswith(_NAMING):
                see_reference(*path_and_value(key, value))
            yield row


def read_as_of(store: Store, layout: Layout, read_ms: int, node_ms: int) -> AsOf | None:
    """Return the time as of which the store is a copy, after reading ``layout`` at ``read_ms``; None if it is unknown.

    ``node_ms``: the newest modification of a metadata node; 0 if there was none. Earlier knowledge stays valid.
    """
    with store.read() as txn:
        known = find_as_of(txn)
        said = [*_iter_said(txn, layout, read_ms, node_ms), *((known,) if known else ())]
    return max(said, key=lambda one: one.time_ms, default=None)


class NewestNode:
    """Finds the newest modification (``time_ms``) of the metadata nodes passed to ``see``, ignoring times after
    ``read_ms``; 0 without any."""

    def __init__(self, read_ms: int) -> None:
        self._limit_ms = _limit(read_ms)
        self.time_ms = 0

    def see(self, row: bytes | memoryview) -> None:
        """Take the modification time of a node's row into account."""
        if self.time_ms < (time_ms := modified_ms(row)) <= self._limit_ms:
            self.time_ms = time_ms


def _limit(read_ms: int) -> int:
    """Return the latest credible time of a copy: now, or the time of reading if a later one was given."""
    return max(read_ms, time.time_ns() // 1_000_000)


def _iter_said(txn: Txn, layout: Layout, read_ms: int, node_ms: int) -> Iterator[AsOf]:
    metadata = layout.metadata
    if isinstance(metadata, MetadataDirectory) and metadata.as_of_zxid is not None:
        # The moment that was chosen: what bookies wrote after it is not of this copy's state.
        last = last_transaction(metadata.logs or metadata.path, metadata.as_of_zxid)
        yield AsOf(node_ms, "metadata") if last is None else AsOf(last.time_ms, "zookeeper")
        return
    if is_live(layout):
        yield AsOf(read_ms, "live")
        return
    said = [AsOf(node_ms, "metadata"), *_iter_times(txn)]
    if isinstance(metadata, MetadataDirectory) and is_zookeeper(metadata.path):
        last = last_transaction(metadata.logs or metadata.path)
        if last is not None:
            said.append(AsOf(last.time_ms, "zookeeper"))
    limit_ms = _limit(read_ms)
    dated = [one for one in said if 0 < one.time_ms <= limit_ms]
    yield from dated
    if dated:
        written_ms = newest_written_ms(txn, layout.bookies, max(one.time_ms for one in dated))
        if 0 < written_ms <= limit_ms:
            yield AsOf(written_ms, "files")


def _iter_times(txn: Txn) -> Iterator[AsOf]:
    """Yield the times of the newest journal and of each ledger's newest entry that a broker dated."""
    for log in iter_logs(txn):
        if log.kind == FileKind.JOURNAL:
            yield AsOf(log.log_id, "journal")
    own = find_own_ledgers(txn)
    for key, row in txn.items("times"):
        ledger_id = ledger_of_key(key)
        if own is None or not own.first_id <= ledger_id < own.next_id:
            found_ms = decode_latest(ledger_id, row, "broker")
            if found_ms != NO_MAX:
                yield AsOf(found_ms, "broker")


def newest_written_ms(txn: Txn, bookies: Iterable[Bookie], dated_ms: int) -> int:
    """Return when a journal, or an entry log in use, was last written, by the files' times if these are credible.

    They are the times of a copy if every file of a bookie is newer than ``dated_ms``, the newest time in the files.
    """
    believed = [bookie for bookie in bookies if any(_oldest_ms(path) < dated_ms for path in bookie.directories)]
    ids = {bookie.bookie_id for bookie in believed if bookie.bookie_id}
    directories = {str(path.resolve()) for bookie in believed for path in bookie.directories}
    # A sealed log says less than the journals, and may be one of an export of ours: only what bookies write to until
    # they stop counts.
    logs = (
        log
        for log in iter_logs(txn)
        if log.mode is not FileMode.OWN and (log.kind == FileKind.JOURNAL or not log.sealed)
    )
    theirs = (log for log in logs if log.bookie in ids or str(Path(log.origin).parent) in directories)
    return max((log.mtime_ns // 1_000_000 for log in theirs), default=0)


def _oldest_ms(directory: Path) -> int:
    """Return when the oldest file below a directory was written: of those that are still there, and that links lead to."""
    files = (os.path.join(folder, name) for folder, _, names in os.walk(directory) for name in names)
    return min((written_ms for file in files if (written_ms := _written_ms(file)) is not None), default=0)


def _written_ms(file: str) -> int | None:
    """Return when a file was written; None if a bookie has deleted it by now, and for a dangling link."""
    try:
        return os.stat(file).st_mtime_ns // 1_000_000
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP):
            return None
        raise
