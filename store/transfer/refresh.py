"""``store refresh``: updates a store from the directory it was imported from. ``store add``: adds a part of a cluster
to a store that has others.

Entry logs and journals are append-only: a file that grew is read from where the last scan ended, a new one from its
beginning. A metadata node that the store did not change takes the source's state. A node that the store changed keeps
the store's state, and is reported if the source changed it too; values that an interrupted export in place of this
store wrote do not count as the source's changes. A missing file leaves the catalogue if none of its entries is needed
any more (a flushed journal, a compacted entry log). Otherwise it is reported, and its entries stay in the index unless
``forget`` says otherwise.

An added part becomes a source, and the store is refreshed. A source is marked in ``store.json`` until it is complete: a
stopped addition continues with the same command, or with the next refresh.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from pulsar_admin.store.codec.digest import DIGEST_SIZE, DigestType
from pulsar_admin.store.codec.ledgermetadata import INSTANCE_ID
from pulsar_admin.store.db import ledger_ids
from pulsar_admin.store.db.audit_log import append_change
from pulsar_admin.store.db.backups import keep_hint
from pulsar_admin.store.db.blocks import Block, ledger_of_key
from pulsar_admin.store.db.bookies import UNFINISHED, iter_present_bookies
from pulsar_admin.store.db.environment import Store, Txn
from pulsar_admin.store.db.export_intent import find_exported_zxid, intended_rows
from pulsar_admin.store.db.files import (
    METADATA_FILE_ID,
    WHOLE_METADATA,
    Damage,
    LogFile,
    clear_damage,
    iter_damage,
    iter_differing,
    iter_logs,
    put_damage,
)
from pulsar_admin.store.db.rows import altered_row
from pulsar_admin.store.db.storeinfo import REMOTE
from pulsar_admin.store.db.tree import Node, Row, decode_node, find_node, iter_nodes
from pulsar_admin.store.errors import IndexCorrupt, Refused
from pulsar_admin.store.files import scratch_directory
from pulsar_admin.store.index.build import Advance, Scanning, ledger_digests
from pulsar_admin.store.index.rebuild import (
    RebuildResult,
    build_index,
    compare_index,
    open_scratch,
    read_catalogue,
    rebuild_index,
)
from pulsar_admin.store.index.unserved import has_moved, index_unserved
from pulsar_admin.store.model.copy_age import find_as_of, put_as_of, put_refreshed
from pulsar_admin.store.model.coverage import (
    find_absent_bookies,
    find_underreplicated,
    tells_journals,
)
from pulsar_admin.store.model.references import count_wrong_owners, index_owners
from pulsar_admin.store.scan.ledgers_map import read_ledger_sizes
from pulsar_admin.store.sources import cluster
from pulsar_admin.store.sources.bookies import find_strangers, journal_marks
from pulsar_admin.store.sources.layout import Layout
from pulsar_admin.store.sources.nodes import MetadataDirectory, Source, iter_source_rows
from pulsar_admin.store.sources.zookeeper import is_zookeeper, newest_zxid
from pulsar_admin.store.transfer import imports
from pulsar_admin.store.transfer.cataloguing import Survey, delete_logs, survey_files
from pulsar_admin.store.transfer.reading import grown, read_disks
from pulsar_admin.store.wording import Answer, counted, one_line

if TYPE_CHECKING:
    from pulsar_admin.store.engine.operation import Engine


_Held = Mapping[str, Mapping[bytes, "np.ndarray[Any, Any]"]]
"""Path → key of a location block → the slots (u16) of its entries there."""
_UNPROVEN = (DIGEST_SIZE[DigestType.DUMMY], DIGEST_SIZE[DigestType.HMAC])
"""Digest sizes of the types with which a scan without metadata takes good entries for damaged."""


class RefreshOptions(Struct, frozen=True):
    """How to refresh. ``forget``: remove the entries of missing files from the index, and read changed files again."""

    verify: bool = True
    forget: bool = False
    now_ms: int = 0
    engine: Engine | None = None  # None: files are scanned in this process
    added: tuple[dict[str, Any], ...] = ()  # Any: JSON; rows of ``store.json`` for sources that come now


class RefreshResult(Struct):
    """The result of a refresh.

    ``lost``: missing file → how many of its entries no other file has; ``elsewhere``: missing file → how many of its
    entries another file has, to which the index points after ``forget``; ``conflicts``: nodes changed both in the
    source and in the store; ``stopped_export``: nodes that an interrupted export in place wrote into the source.
    """

    __repr__ = one_line

    JSON_OPTIONAL = ("findings",)

    store: str
    source: str
    new_files: list[str] = field(default_factory=list)
    grown_files: list[str] = field(default_factory=list)
    forgotten_files: list[str] = field(default_factory=list)
    changed_files: list[str] = field(default_factory=list)
    lost: dict[str, int] = field(default_factory=dict)
    elsewhere: dict[str, int] = field(default_factory=dict)
    bytes: int = 0
    entries_before: int = 0
    entries: int = 0
    nodes_added: int = 0
    nodes_updated: int = 0
    nodes_removed: int = 0
    undecodable_values: int = 0
    conflicts: list[str] = field(default_factory=list)
    stopped_export: list[str] = field(default_factory=list)
    differing_copies: int = 0
    strangers: list[str] = field(default_factory=list)
    vanished_files: list[str] = field(default_factory=list)  # that a running bookie deleted meanwhile
    doubts: list[str] = field(default_factory=list)  # what may be missing because of that, or because it is no file
    findings: list[str] | None = None
    """Codes of findings of which others may come; None: no such findings."""
    damaged_places: int = 0
    seconds: float = 0.0
    checksums: bool = True
    forget: bool = False
    source_in_use_by: int | None = None
    under_replicated: int = 0  # ledgers, when an entry log was forgotten

    @property
    def changes(self) -> int:
        """How many parts of the store changed."""
        files = len(self.new_files) + len(self.grown_files) + len(self.forgotten_files)
        renewed = len(self.changed_files) if self.forget else 0
        return files + renewed + self.nodes_added + self.nodes_updated + self.nodes_removed

    @property
    def problems(self) -> int:
        """How many problems a person has to look at."""
        gone = len(self.lost.keys() | self.elsewhere.keys())
        open_losses = 0 if self.forget else gone + len(self.changed_files)
        doubtful = self.differing_copies + len(self.strangers) + len(self.doubts)
        unsettled = len(self.conflicts) + len(self.stopped_export)
        damage = self.damaged_places + self.undecodable_values
        return open_losses + unsettled + damage + doubtful + self.under_replicated + len(self.findings or ())


class RefreshPreview(Answer, frozen=True):
    """The files and changes that a refresh would read; ``bytes`` to read. ``lost``, ``elsewhere``: as in ``RefreshResult``;
    ``doubts``: files that cannot be read."""

    store: str
    new_files: list[str]
    grown_files: list[str]
    forgotten_files: list[str]
    changed_files: list[str]
    lost: dict[str, int]
    elsewhere: dict[str, int]
    bytes: int
    doubts: list[str]
    dry_run: bool = True


def preview_refresh(store: Store, warn: imports.Warn) -> RefreshPreview:
    """Return what ``refresh_store`` would read; raises the errors that it raises before it writes."""
    if (store.path / REMOTE).exists():
        warn("URLs are listed by a refresh alone: logs that are new or longer there do not count here")
    layout = cluster.read_stored_layout(store.info)
    with store.read() as txn:
        altered = read_altered(txn, layout)
    if altered:
        warn(
            f"rows of the metadata were altered on the disk: a refresh reads {_count_nodes(altered)} from the source again"
        )
    survey = survey_files(store, layout, altered)
    lost, elsewhere = _find_lost(store, survey)
    doubts = [*survey.unreadable_texts()]
    for text in doubts:
        warn(text)
    return RefreshPreview(
        str(store.path),
        [str(file.path) for file in survey.new],
        [log.path for log in survey.grown],
        [log.path for log, held in survey.gone if not held],
        [log.path for log in survey.changed],
        lost,
        elsewhere,
        survey.bytes(),
        doubts,
    )


def prepare_refresh(store: Store) -> int:
    """List bookies at URLs again, and return how many bytes ``refresh_store`` has to read; the store is open for writing."""
    store.add_digests()  # also where the source is gone
    if (store.path / REMOTE).exists():
        from pulsar_admin.store.transfer.fetching import list_again  # hardly any store has bookies at URLs

        list_again(store)
    return _survey(store).bytes()


def _survey(store: Store) -> Survey:
    """Compare the sources' files with the store's catalogue, if necessary with altered metadata rows read from the
    source."""
    layout = cluster.read_stored_layout(store.info)
    try:
        return survey_files(store, layout)
    except IndexCorrupt:
        with store.read() as txn:
            return survey_files(store, layout, read_altered(txn, layout))


def refresh_store(
    store: Store, options: RefreshOptions, advance: Advance = lambda count: None, warn: imports.Warn = lambda text: None
) -> RefreshResult:
    """Update a store (open for writing) from its source; an interrupted refresh continues when run again.

    Raises Refused for a store without a source, SourceNotFound if the source is gone or incomplete.
    """
    started = time.monotonic()
    layout = cluster.read_stored_layout(store.info, options.added)
    marks = journal_marks(layout.bookies)  # first: a bookie that runs moves them on
    result = RefreshResult(str(store.path), layout.name, checksums=options.verify, forget=options.forget)
    _warn_of_holder(layout, result, warn)
    _restore_altered(store, layout, warn)
    try:
        with store.read() as txn:
            tells_journals(txn)
    except IndexCorrupt as error:
        store.write(lambda txn: imports.index_bookies(store, txn, [*iter_present_bookies(txn)], None))
        warn(f"{error.message}; it was written again from the source")
    with store.read() as txn:
        result.entries_before = imports.count_entries(txn)
        tree = read_tree(txn, layout)
        result.nodes_added, result.nodes_updated, result.nodes_removed = tree.added, tree.updated, tree.removed
        result.conflicts, result.stopped_export = tree.conflicts, tree.stopped_export
        result.undecodable_values = tree.undecodable_values
        node_ms = _newest_node_ms(txn, options, tree)
        if options.added:
            cluster.check_instance(layout, [*tree.nodes(INSTANCE_ID), *iter_nodes(txn, INSTANCE_ID)][:1])
            cluster.check_known(find_strangers(txn, layout.bookies), options.added)
    if options.added:
        store.write(_begin)
        store.update_info(sources=(*store.info.sources, *options.added))
    _warn_of_metadata(result, tree, warn)
    # Metadata is read before the files and written after them, so that it names no entry that is not indexed.
    _read_files(store, layout, options, result, advance, tree, warn)
    _note_given_meanwhile(store, layout, tree.next_ledger_id)
    for text in result.strangers:
        warn(text)
    _put_strangers(store, result.strangers)
    if options.forget:
        store.write(lambda txn: _take_tree(store, txn, tree))
        tree = replace(tree, rows={})
    _forget(store, layout, options, result, warn)
    with store.read() as txn:
        result.entries = imports.count_entries(txn)
        result.differing_copies = sum(1 for _ in iter_differing(txn))
        was_stopped = txn.get("state", ledger_ids.UNFINISHED_REFRESH) is not None
        marks_moved = has_moved(store, txn, marks)
    as_of = imports.read_as_of(store, layout, options.now_ms, node_ms)

    def finish(txn: Txn) -> None:
        if result.changes or was_stopped or marks_moved:
            index_unserved(store, txn, marks)
        if result.changes or was_stopped:
            _finish(store, txn, options, result, tree)
        else:
            _put_tree_facts(txn, tree)
            if marks_moved or not tells_journals(txn):
                imports.index_bookies(store, txn, [*iter_present_bookies(txn)], None)
        if as_of is not None:
            put_as_of(txn, as_of)

    store.write(finish)
    _read_otherwise(store, options, result)
    _settle_sources(store, layout, warn)
    _count_copies(store, result, warn)
    leading = imports.leading_findings(store)
    result.findings = [*leading] or None
    for text in leading.values():
        warn(text)
    result.seconds = time.monotonic() - started
    return result


def _newest_node_ms(txn: Txn, options: RefreshOptions, tree: _NewTree) -> int:
    """Return the newest modification (ms) of the nodes that the source changed; of all unchanged nodes as well if an
    older version imported the store, or a refresh was stopped."""
    newest = imports.NewestNode(options.now_ms)
    if (
        find_as_of(txn) is None or txn.get("state", ledger_ids.UNFINISHED_REFRESH) is not None
    ):  # an older version's import, or a refresh was stopped
        for key, row in txn.items("tree"):
            if txn.view("base", key) is None:
                newest.see(row)
    for changed in filter(None, tree.rows.values()):
        newest.see(changed)
    return newest.time_ms


def _restore_altered(store: Store, layout: Layout, warn: imports.Warn) -> None:
    """Replace metadata rows that were altered on the disk by the source's; raises IndexCorrupt if it lacks a node."""
    with store.read() as txn:
        rows = read_altered(txn, layout)
    if not rows:
        return

    def work(txn: Txn) -> None:
        for key, row in rows.items():
            txn.put_or_delete("tree", key, row)
        _begin(txn)  # the owners of ledgers must follow the new rows

    store.write(work)
    warn(f"rows of the metadata were altered on the disk: {_count_nodes(rows)} read from the source again")


def _count_nodes(rows: _Rows) -> str:
    return counted(sum(row is not None for row in rows.values()), "node")


def _note_given_meanwhile(store: Store, layout: Layout, next_ledger_id: int | None) -> None:
    """Record the ledger ids that a running broker may have assigned after the tree was read."""
    next_id = imports.next_id_meanwhile(store, layout, next_ledger_id)
    with store.read() as txn:
        is_noted = bool(ledger_ids.find_given_meanwhile(txn))
    if is_noted or next_id is not None:
        store.write(lambda txn: ledger_ids.put_given_meanwhile(txn, next_id))


def _warn_of_holder(layout: Layout, result: RefreshResult, warn: imports.Warn) -> None:
    result.source_in_use_by = holder = None if layout.metadata is None else layout.metadata.holder()
    if layout.metadata is not None and holder is not None:
        warn(f"process {holder} has {layout.metadata.name} open: its later writes are not imported")


def _count_copies(store: Store, result: RefreshResult, warn: imports.Warn) -> None:
    """Count ledgers with too few copies if an entry log was dropped, and warn: garbage collection drops no needed
    log."""
    if not any(path.endswith(".log") for path in result.forgotten_files):
        return
    with store.read() as txn:
        result.under_replicated = sum(row.short > 0 for row in find_underreplicated(txn))
    if result.under_replicated:
        ledgers = counted(result.under_replicated, "ledger has", "ledgers have")
        warn(
            f"entry logs are gone, and {ledgers} entries on fewer bookies than the write quorum:"
            " see them with: pulsar-admin ledgers underreplicated"
        )


def _put_strangers(store: Store, strangers: list[str]) -> None:
    (source, *others) = store.info.sources
    if strangers != source.get("strangers", []):
        store.update_info(sources=(source | {"strangers": strangers}, *others))


def _read_otherwise(store: Store, options: RefreshOptions, result: RefreshResult) -> None:
    """Rebuild the index if added metadata gives ledgers other digest types than those their entries were read with."""
    if not any(UNFINISHED in source and "bookies" not in source for source in store.info.sources):
        return
    with store.read() as txn:
        is_other = _has_other_digests(txn)
    if is_other:
        rebuild_index(store, verify=options.verify, advance=lambda count: None, engine=options.engine)
        with store.read() as txn:
            result.entries = imports.count_entries(txn)


def remake_index(
    store: Store, *, verify: bool, writes: bool, advance: Callable[[int], None], engine: Engine | None
) -> RebuildResult:
    """Rebuild the index from the files, and the owners of ledgers from the metadata; without ``writes``, only compare
    with the present rows.

    Raises SourceChanged, DiskFull.
    """
    make = rebuild_index if writes else compare_index
    result = make(store, verify=verify, advance=advance, engine=engine)
    with store.read() as txn:
        owners = count_wrong_owners(store, txn)
    if owners and writes:
        store.write(lambda txn: index_owners(store, txn))
    return replace(result, changed_rows=result.changed_rows + owners)


def _has_other_digests(txn: Txn) -> bool:
    ids, sizes = ledger_digests(txn)
    known = dict(zip(ids.tolist(), sizes.tolist(), strict=True))
    for damage in iter_damage(txn):
        # Only of these two digest types does a scan without metadata take good entries for damaged.
        if damage.file_id != METADATA_FILE_ID and known.get(damage.ledger_id) in _UNPROVEN:
            return True
    for key, _ in txn.items("times"):
        first = next(txn.items("entries", key), None)
        if first is not None:
            digest_bytes = Block(*first).header.digest_bytes
            if known.get(ledger_of_key(key), digest_bytes) != digest_bytes:
                return True
    return False


def _settle_sources(store: Store, layout: Layout, warn: imports.Warn) -> None:
    """Mark all sources in ``store.json`` as complete, and warn of bookies that are not among them."""
    finished = ({key: value for key, value in source.items() if key != UNFINISHED} for source in store.info.sources)
    sources = tuple(imports.as_read(finished, layout))
    if sources != store.info.sources:
        store.update_info(sources=sources)
    with store.read() as txn:
        for text in imports.absent_texts(layout, find_absent_bookies(txn)):
            warn(text)


def _warn_of_metadata(result: RefreshResult, tree: _NewTree, warn: imports.Warn) -> None:
    if result.stopped_export:
        warn(
            f"an export in place was stopped after writing {counted(len(result.stopped_export), 'metadata node')} of"
            f" {result.source}; the store keeps its own values: run that export again"
        )
    if result.conflicts:
        warn(
            f"{counted(len(result.conflicts), 'metadata node')} changed in the source and in the store, which keeps its own; to take the"
            " source's, undo the change of the store (pulsar-admin store log, store undo) and refresh again"
        )
    for text in tree.unknown:
        warn(f"{text}; the store keeps the metadata that it has")


def _begin(txn: Txn) -> None:
    txn.put("state", ledger_ids.UNFINISHED_REFRESH, b"")


def _finish(store: Store, txn: Txn, options: RefreshOptions, result: RefreshResult, tree: _NewTree) -> None:
    _take_tree(store, txn, tree)
    txn.delete("state", ledger_ids.UNFINISHED_REFRESH)
    put_refreshed(txn, options.now_ms)
    is_adding = any(UNFINISHED in source for source in store.info.sources)
    report = {
        "source": result.source,
        "before": {"entries": result.entries_before},
        "after": {"entries": result.entries},
        "files": [*result.new_files, *result.grown_files, *result.forgotten_files],
        "nodes": result.nodes_added + result.nodes_updated + result.nodes_removed,
    }
    append_change(txn, options.now_ms, "store add" if is_adding else "store refresh", (report,))


def _take_tree(store: Store, txn: Txn, tree: _NewTree) -> None:
    """Write the source's metadata changes into the store, and update the owners of ledgers."""
    for key, row in tree.rows.items():
        txn.put_or_delete("tree", key, row)
        txn.delete("base", key)
    if tree.rows:
        _begin(txn)
    _put_tree_facts(txn, tree)
    index_owners(store, txn)
    imports.index_bookies(store, txn, [*iter_present_bookies(txn)], None)


# -- files ------------------------------------------------------------------------------------------------------------


def _read_files(
    store: Store,
    layout: Layout,
    options: RefreshOptions,
    result: RefreshResult,
    advance: Advance,
    tree: _NewTree,
    warn: imports.Warn,
) -> None:
    with store.read() as txn:
        digests = ledger_digests(txn, tree.nodes("/ledgers/"))
    how = Scanning(digests, options.verify, advance, options.engine)
    reading = read_disks(store, layout, how, begin=lambda: store.write(_begin))
    result.strangers = reading.strangers
    result.vanished_files = [str(file.path) for file in reading.vanished]
    result.doubts = reading.doubts
    for text in (*reading.texts(), *reading.doubts):
        warn(text)
    for row in reading.rows.values():
        before = reading.before.get(row.file_id)
        result.bytes += row.size_bytes - (before.next_offset if before else 0)
        result.damaged_places += row.problems - (before.problems - before.tail_problems if before else 0)
        (result.grown_files if before else result.new_files).append(row.path)


def _forget(store: Store, layout: Layout, options: RefreshOptions, result: RefreshResult, warn: imports.Warn) -> None:
    """Drop missing files from the catalogue: those without needed entries; with ``forget`` all, then rebuild the
    index."""
    survey = survey_files(store, layout)
    useless = [log for log, held in survey.gone if not held]
    result.changed_files = [log.path for log in survey.changed]
    dropped = [log for log, _ in survey.gone] if options.forget else useless
    result.forgotten_files = [log.path for log in dropped]
    held = _held_entries(store, survey)
    if options.forget and (held or survey.changed):
        renewed = {log.file_id: row for log in survey.changed if (row := grown(store, log)) is not None}
        away = {log.file_id for log in dropped}
        logs = [renewed.get(log.file_id, log) for log in read_catalogue(store) if log.file_id not in away]
        rebuild_index(store, verify=options.verify, advance=lambda count: None, logs=logs, engine=options.engine)
        with store.read() as txn:
            result.lost, result.elsewhere = _split_held(txn, held)
        return
    result.lost, result.elsewhere = _find_lost(store, survey, verify=options.verify, engine=options.engine)
    if result.elsewhere:
        warn(
            "the index names files that are gone, but other files also have these entries: restore the files, or read "
            "the others: pulsar-admin store refresh --forget"
        )
    if useless:
        store.write(lambda txn: delete_logs(txn, useless))


def _find_lost(
    store: Store, survey: Survey, *, verify: bool = True, engine: Engine | None = None
) -> tuple[dict[str, int], dict[str, int]]:
    """Return two maps from the path of a missing file to a number of its entries: those in no other file, those in
    another file.

    The index has one place per entry, so the files that may hold the entries in question are scanned.
    """
    held = _held_entries(store, survey)
    if not held:
        return {}, {}
    with store.read() as txn, scratch_directory() as folder, open_scratch(folder / "scratch") as scratch:
        ledgers = {ledger_of_key(key) for blocks in held.values() for key in blocks}
        # Only a sealed entry log says which ledgers it has.
        others = [
            log
            for log in _files_here(txn, survey)
            if not log.sealed or not read_ledger_sizes(log.locate(store.path)).keys().isdisjoint(ledgers)
        ]
        build_index(txn, scratch, others, verify=verify, advance=lambda count: None, engine=engine)
        with scratch.read() as new:
            return _split_held(new, held)


def _held_entries(store: Store, survey: Survey) -> _Held:
    """Return the entries whose place in the index is in a missing file."""
    paths = {log.file_id: log.path for log, count in survey.gone if count}
    held: dict[str, dict[bytes, Any]] = {path: {} for path in paths.values()}
    if not held:
        return held
    with store.read() as txn:
        for key, value in txn.items("entries"):
            block = Block(key, value)
            files, slots = np.asarray(block.files()), np.array(block.slots(), "<u2")
            for file_id in paths.keys() & set(np.unique(files).tolist()):
                held[paths[file_id]][key] = slots if files.ndim == 0 else slots[files == file_id]
    return held


def _split_held(txn: Txn, held: _Held) -> tuple[dict[str, int], dict[str, int]]:
    """Return two maps from the path of a missing file to a number of its entries: those that the index in ``txn``
    lacks, and those that it has. Files with no such entries are omitted."""
    lost, elsewhere = dict.fromkeys(held, 0), dict.fromkeys(held, 0)
    for path, blocks in held.items():
        for key, slots in blocks.items():
            value = txn.get("entries", key)
            found = 0 if value is None else int(np.isin(slots, np.asarray(Block(key, value).slots())).sum())
            lost[path] += len(slots) - found
            elsewhere[path] += found
    return {path: count for path, count in lost.items() if count}, {
        path: count for path, count in elsewhere.items() if count
    }


def _files_here(txn: Txn, survey: Survey) -> Iterator[LogFile]:
    """Yield the catalogued files that can be read; a changed file with its present size."""
    changed = {log.file_id for log in survey.changed}
    gone = {log.file_id for log in (*(log for log, _ in survey.gone), *survey.unreadable)}
    for log in iter_logs(txn):
        if log.file_id in changed:
            yield replace(log, path=log.origin, size_bytes=Path(log.origin).stat().st_size, sealed=False)
        elif log.file_id not in gone:
            yield log


def preview_add(store: Store, layout: Layout) -> imports.ImportPreview:
    """Return what adding a layout would read; raises what ``add_sources`` raises before it writes."""
    layout = cluster.without_known(store.info, layout)
    rows = _added_rows(store, layout, imports.ImportOptions())
    with store.read() as txn:
        node = find_node(txn, INSTANCE_ID)
        cluster.check_known(find_strangers(txn, cluster.read_stored_layout(store.info, rows).bookies), rows)
    cluster.check_instance(layout, [] if node is None else [node])
    return imports.preview_of(layout, store.path)


def add_sources(
    store: Store,
    layout: Layout,
    options: imports.ImportOptions,
    advance: Advance,
    warn: imports.Warn = lambda text: None,
) -> RefreshResult:
    """Add the parts of a layout to a store (open for writing), or finish an interrupted addition of the same parts.

    Raises Refused for parts that the store has or that belong to another cluster, AlreadyExists if the store is inside
    of one of them.
    """
    rows = _added_rows(store, cluster.without_known(store.info, layout), options)
    return refresh_store(
        store, RefreshOptions(options.verify, False, options.now_ms, options.engine, rows), advance, warn
    )


def _added_rows(
    store: Store, layout: Layout, options: imports.ImportOptions
) -> tuple[dict[str, Any], ...]:  # Any: JSON
    rows = imports.source_rows(layout, options)
    begun = {imports.source_place(source) for source in store.info.sources if UNFINISHED in source}
    begun &= {imports.source_place(row) for row in rows}
    imports.check_outside(store.path, layout)
    cluster.check_addable(
        replace(
            store.info,
            sources=tuple(source for source in store.info.sources if imports.source_place(source) not in begun),
        ),
        layout,
    )
    return tuple(row | {UNFINISHED: True} for row in rows if imports.source_place(row) not in begun)


_Rows = Mapping[bytes, bytes | None]


class _NewTree(Struct):
    """The changes in the source's metadata, and its facts.

    ``rows``: key → row, None: deleted; ``damage``: damage of nodes, None: the tree's facts stay as they are;
    ``next_ledger_id`` None: unknown; ``unknown``: new problems of the whole tree; ``conflicts``, ``stopped_export``:
    paths of nodes.
    """

    rows: dict[bytes, bytes | None] = field(default_factory=dict)
    damage: tuple[Damage, ...] | None = None
    next_ledger_id: int | None = None
    unknown: tuple[str, ...] = ()
    added: int = 0
    updated: int = 0
    removed: int = 0
    undecodable_values: int = 0
    conflicts: list[str] = field(default_factory=list)
    stopped_export: list[str] = field(default_factory=list)

    def nodes(self, prefix: str) -> Iterator[Node]:
        """Yield the new or changed nodes whose path begins with a prefix."""
        nodes = (decode_node(key, row) for key, row in self.rows.items() if row is not None)
        return (node for node in nodes if node.path.startswith(prefix))


def read_tree(txn: Txn, layout: Layout) -> _NewTree:
    """Compare the nodes of the source with the store's.

    If the source's metadata as a whole is newly damaged, no node is taken: in a tree that lost changes, new and deleted nodes
    cannot be told apart.
    """
    known = {damage.reason for damage in iter_damage(txn, METADATA_FILE_ID)}
    if layout.metadata is None:
        return _NewTree()
    _check_not_older(txn, layout.metadata)
    next_ids: list[int] = []
    whole, items = _split_damage(iter_source_rows(layout.metadata, next_ids.append))
    unknown = tuple(one.reason for one in whole if one.reason not in known and not one.costs_nothing)
    if unknown:
        return _NewTree(unknown=unknown, undecodable_values=len(unknown))
    ours = intended_rows(txn)
    tree = _NewTree()
    damages: list[Damage] = []
    seen: set[bytes] = set()
    for item in chain(whole, items):
        if isinstance(item, Damage):
            damages.append(item)
        else:
            seen.add(_compare_node(txn, item, ours, tree))
    late = tuple(one.reason for one in damages if one.offset >= WHOLE_METADATA and not one.costs_nothing)
    if unknown := tuple(reason for reason in late if reason not in known):
        return _NewTree(unknown=unknown, undecodable_values=len(unknown))
    tree.damage = tuple(damages)
    tree.undecodable_values = sum(not damage.costs_nothing for damage in damages)
    tree.next_ledger_id = next_ids[-1] if next_ids else None
    for key, _ in txn.items("tree"):
        if key not in seen:
            _compare_gone(txn, key, ours, tree)
    return tree


def read_altered(txn: Txn, layout: Layout) -> dict[bytes, bytes | None]:
    """Return the source's version of rows of ``tree`` that were altered on the disk: key → row; None for a key that no
    node has.

    Raises IndexCorrupt if one of them may be a node that the store changed, or one that the source does not have: its
    content is then unknown.
    """
    altered: list[bytes] = []
    with txn.passing_altered(altered.append):
        here = {key for key, _ in txn.items("tree")}
    if not altered:
        return {}
    if layout.metadata is None:
        raise _not_there(txn, altered[0], "no metadata was imported")
    _check_not_older(txn, layout.metadata)
    changed = {key for key, _ in txn.items("base")}
    rows: dict[bytes, bytes | None] = dict.fromkeys(altered)
    is_whole = True
    for item in iter_source_rows(layout.metadata):
        if isinstance(item, Damage):
            is_whole &= item.costs_nothing
        elif item[0] not in here and item[0] not in changed:
            rows[item[0]] = item[1]
    for key in altered:
        # An altered key that no node of the source has may belong to a node that the store changed or created.
        if key in changed or (rows[key] is None and not changed <= here):
            raise _not_there(txn, key, "it may be a node that was changed in this store")
        if rows[key] is None and not is_whole:
            raise _not_there(txn, key, f"{layout.metadata.name} is damaged")
    if None in map(rows.get, altered):
        return rows  # with every node that the store lacks: one of them may have the altered key
    return {key: rows[key] for key in altered}


def _not_there(txn: Txn, key: bytes, why: str) -> IndexCorrupt:
    error = altered_row(txn.store.path, "tree", key)
    return IndexCorrupt(
        f"{error.message}, and the source does not show its value: {why}",
        hint=keep_hint(txn.store.path),
        **error.context,
    )


def _check_not_older(txn: Txn, metadata: Source) -> None:
    """Raise Refused for files of a ZooKeeper that end before an export of the store into the live ensemble."""
    exported = find_exported_zxid(txn)
    if exported and isinstance(metadata, MetadataDirectory) and is_zookeeper(metadata.path):
        found = max(map(newest_zxid, metadata.directories))
        if found < exported:
            raise Refused(
                f"{metadata.name} ends with transaction {found:#x}; this store has exported {exported:#x} since: "
                "importing the older state would revert that",
                hint="copy the ensemble's version-2 again",
            )


def _put_tree_facts(txn: Txn, tree: _NewTree) -> None:
    """Write the problems of the source's metadata and its next ledger id, unless the tree is unchanged as a whole."""
    if tree.damage is not None:
        ledger_ids.put_next_ledger_id(txn, tree.next_ledger_id)
        clear_damage(txn, METADATA_FILE_ID)
        for damage in tree.damage:
            put_damage(txn, damage)


def _split_damage(items: Iterator[Row | Damage]) -> tuple[list[Damage], Iterator[Row | Damage]]:
    """Return the damage of files as a whole, which comes first, and the remaining items."""
    whole: list[Damage] = []
    for item in items:
        if not isinstance(item, Damage) or item.offset < WHOLE_METADATA:
            return whole, chain((item,), items)
        whole.append(item)
    return whole, iter(())


def _compare_node(txn: Txn, item: Row, ours: _Rows, tree: _NewTree) -> bytes:
    """Add a node of the source to the changes unless the store has it, changed it, or wrote it there itself (``ours``); return its key."""
    key, row = item
    now, base = txn.get("tree", key), txn.get("base", key)
    imported = now if base is None else (base or None)
    if row == imported:
        return key
    written = ours.get(key)
    if written is not None:
        # A node that this store's export wrote has its value and version, but ZooKeeper's own times.
        there, wanted = decode_node(key, row), decode_node(key, written)
        if (there.stat.version, there.value) == (wanted.stat.version, wanted.value):
            tree.stopped_export.append(there.path)
            return key
    if base is not None and not _same_value(key, now, base):
        tree.conflicts.append(decode_node(key, row).path)
        return key
    tree.rows[key] = row
    if now is None:
        tree.added += 1
    else:
        tree.updated += 1
    return key


def _compare_gone(txn: Txn, key: bytes, ours: _Rows, tree: _NewTree) -> None:
    """Add a node that the source no longer has, unless the store created or changed it, or deleted it there itself (``ours``)."""
    now, base = txn.get("tree", key), txn.get("base", key)
    if base and key in ours and ours[key] is None:
        tree.stopped_export.append(key.decode("utf-8", "replace"))
        return
    if base is not None and not _same_value(key, now, base):
        if base:
            tree.conflicts.append(key.decode("utf-8", "replace"))
        return
    tree.rows[key] = None
    tree.removed += 1


def _same_value(key: bytes, now: bytes | None, base: bytes) -> bool:
    """Whether the store's node has the source's value (an empty ``base``: the source has no such node)."""
    if not now or not base:
        return not now and not base
    return decode_node(key, now).value == decode_node(key, base).value
