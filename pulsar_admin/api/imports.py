"""New stores: empty, or imported from a Pulsar data directory."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pulsar_admin.api.session import Time, check_choice, open_engine, time_ms_of, warn_partial
from store.db.storeinfo import check_new_store
from store.errors import InvalidValue

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from store.sources.layout import Layout
    from store.transfer.imports import ImportPreview, ImportResult

Mode = Literal["referenced", "copied", "linked"]
"""Where the entry logs of an import lie: where they are, or copied or hard-linked into the store."""


def import_standalone(
    source: Path | str,
    path: Path | str,
    *,
    mode: Mode = "referenced",
    verify: bool = True,
    now: Time | None = None,
    jobs: int = 1,
    spark: SparkSession | None = None,
) -> ImportResult:
    """Read a standalone Pulsar's data directory SOURCE into a new store at PATH; SOURCE is only read, also while Pulsar runs.

    VERIFY: the digest of every entry. JOBS and SPARK as of ``open_store``. An import that was stopped goes on when it is called
    again. The result counts nodes, files, bytes, records, entries and ``problems``; ``warnings`` are PartialData warnings, too.
    Raises SourceNotFound, AlreadyExists, StoreBusy, MetadataCorrupt, DiskFull, NotWritable.
    """
    from store.db.files import FileMode
    from store.transfer.imports import ImportOptions
    from store.transfer.imports import import_standalone as run_import

    check_choice("mode", mode, Mode)
    now_ms = int(time.time() * 1000)
    now_ms = now_ms if now is None else time_ms_of(now, now_ms)
    with open_engine(jobs, spark, []) as engine:
        options = ImportOptions(FileMode(mode), verify, now_ms, engine)
        result = run_import(Path(source), Path(path), options, lambda size_bytes: None)
    warn_partial(result.warnings)
    return result


def import_cluster(
    path: Path | str,
    *,
    metadata: Path | str | None = None,
    bookies: Iterable[str] = (),
    mode: Mode = "referenced",
    verify: bool = True,
    now: Time | None = None,
    jobs: int = 1,
    spark: SparkSession | None = None,
    at: Time | None = None,
    index: bool = True,
) -> ImportResult:
    """Read the parts of a cluster that are at hand into a new store at PATH; ``Store.add_parts`` brings others later.

    METADATA: a directory of ZooKeeper or RocksDB, or ``HOST:PORT,…/CHROOT`` of a running ensemble. BOOKIES: ``ID=DIR,DIR`` or
    ``DIR,DIR`` each, with all its directories. AT: the metadata as of a time, or a zxid such as
    "0x4a1", of ZooKeeper's files. INDEX False: no entry is read, and the store answers ``export_tables`` alone.
    ``absent_bookies`` of the result are those that the metadata names. The rest is as of ``import_standalone``.
    Raises InvalidValue, Refused, Unsupported for what cannot be one cluster's disks, too.
    """
    from pulsar_admin.api.history import moment_of
    from store.db.files import FileMode
    from store.history.as_of import past_metadata
    from store.transfer.imports import ImportOptions, import_layout

    check_choice("mode", mode, Mode)
    now_ms = int(time.time() * 1000)
    now_ms = now_ms if now is None else time_ms_of(now, now_ms)
    layout = layout_of(metadata, bookies)
    problems: list[str] = []
    if at is not None:
        layout = replace(layout, metadata=past_metadata(layout.metadata, moment_of(at), problems))
    with open_engine(jobs, spark, []) as engine:
        options = ImportOptions(FileMode(mode), verify, now_ms, engine, index=index)
        result = import_layout(layout, Path(path), options, lambda size_bytes: None)
    warn_partial([*problems, *result.warnings])
    return result


def layout_of(metadata: Path | str | None, bookies: Iterable[str]) -> Layout:
    """Return the parts of a cluster that are named; raises InvalidValue where none is."""
    from store.sources.cluster import make_layout, open_metadata
    from store.sources.given import parse_bookie

    given = [*map(parse_bookie, bookies)]
    if metadata is None and not given:
        raise InvalidValue("no part of a cluster is named", hint="name metadata, bookies or both")
    return make_layout(None if metadata is None else open_metadata(str(metadata)), given)


def preview_import(source: Path | str, path: Path | str) -> ImportPreview:
    """Return what ``import_standalone`` would read: metadata nodes, files, bytes. Raises what it raises before it writes."""
    from store.transfer.imports import preview_standalone

    return preview_standalone(Path(source), Path(path))


def create_store(path: Path | str) -> None:
    """Make an empty store at PATH, which must not exist, or be empty; raises AlreadyExists, NotWritable, DiskFull."""
    from store.db.environment import create_store as create

    check_new_store(Path(path))
    create(Path(path), now_ms=int(time.time() * 1000))
