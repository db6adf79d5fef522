"""``store preflight`` of one bookie with 3,000,000 ledgers: its index, its entry logs' ledgers maps, and a ZooKeeper snapshot.

The entry logs are sparse: what lies between a header and a map is never read.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import numpy as np
import rocksdict

from bench.data import WORK, Bench
from bench.measuring import ADMIN, Row, median, run
from pulsar_admin.store.codec.bookie import Cookie, encode_cookie
from pulsar_admin.store.codec.dbledger import LedgerData, LocationRow, encode_ledgers_row, encode_location_row
from pulsar_admin.store.codec.digest import DigestType
from pulsar_admin.store.codec.entrylog import EntryLogHeader, encode_header, encode_ledgers_map
from pulsar_admin.store.codec.ledgermetadata import closed_ledger, encode_ledger_metadata, ledger_path
from pulsar_admin.store.codec.managedledger import LedgerInfo, ManagedLedger, encode_managed_ledger
from pulsar_admin.store.codec.zookeeper import SnapshotNode, iter_snapshot
from pulsar_admin.store.names import parse_topic

LEDGERS, TOPICS, LOGS, ENTRIES = 3_000_000, 10_000, 600, 2
BOOKIE, INSTANCE = "bk1:3181", "00000000-0000-0000-0000-000000000001"
_MS = 1_700_000_000_000
_LOG_BYTES = 1 << 30
_RECORD_BYTES = 1_000
_LAYOUT = b"2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1"
GOAL = "≤ 512 MiB"


def measure(bench: Bench) -> Iterator[Row]:
    """On the right metadata, on one that lacks the youngest third, and on none."""
    ledgers = bench.count(LEDGERS)
    folder = made(ledgers)
    for what, words in (
        ("the right metadata", ["--zookeeper", folder / "right"]),
        ("metadata without the youngest third", ["--zookeeper", folder / "older"]),
        ("no metadata", ["--no-metadata"]),
    ):
        command = [ADMIN, "-q", "store", "preflight", "--bookie", folder / "bookie", *words]
        runs = median([run(command) for _ in range(bench.runs)])
        note = f"peak {runs.peak_bytes >> 20} MiB"
        yield Row(
            f"store preflight, {ledgers:,} ledgers, {what}", runs.seconds, runs.processor_seconds, goal=GOAL, note=note
        )


def made(ledgers: int) -> Path:
    """Return the folder with the bookie and both metadata stores."""
    target = WORK / f"preflight-{ledgers}"
    if not target.exists():
        unfinished = target.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        make_bookie(unfinished / "bookie" / "current", ledgers)
        make_zookeeper(unfinished / "right" / "version-2", ledgers)
        make_zookeeper(unfinished / "older" / "version-2", ledgers * 2 // 3)
        unfinished.rename(target)
    return target


def make_bookie(current: Path, ledgers: int) -> None:
    """Write a bookie's directory: each ledger has its entries in one log, ids from 0 on."""
    current.mkdir(parents=True)
    (current / "VERSION").write_bytes(encode_cookie(Cookie(4, BOOKIE, ("/journal",), ("/ledgers",), INSTANCE)))
    per_log = max(ledgers // LOGS, 1)
    put_rows(
        current / "ledgers", (encode_ledgers_row(one, LedgerData(True, True, bytes(20))) for one in range(ledgers))
    )
    rows = (LocationRow(one, entry, one // per_log, 1028) for one in range(ledgers) for entry in range(ENTRIES))
    put_rows(current / "locations", map(encode_location_row, rows))
    for number, first in enumerate(range(0, ledgers, per_log)):
        sizes = dict.fromkeys(range(first, min(first + per_log, ledgers)), ENTRIES * _RECORD_BYTES)
        with (current / f"{number:x}.log").open("wb") as log:
            log.write(encode_header(EntryLogHeader(1, _LOG_BYTES, len(sizes))))
            log.seek(_LOG_BYTES)
            log.write(encode_ledgers_map(sizes))


def put_rows(path: Path, rows: Iterator[tuple[bytes, bytes]]) -> None:
    """Write a RocksDB as a bookie's is."""
    database = rocksdict.Rdict(str(path), rocksdict.Options(raw_mode=True))
    batch = rocksdict.WriteBatch(raw_mode=True)
    for number, (key, value) in zip(count(1), rows, strict=False):
        batch.put(key, value)
        if number % 10_000 == 0:
            database.write(batch)
            batch = rocksdict.WriteBatch(raw_mode=True)
    database.write(batch)
    database.flush()
    database.close()
    (path / "rocksdict-config.json").unlink(missing_ok=True)


def make_zookeeper(version_2: Path, ledgers: int) -> None:
    """Write a snapshot of the metadata of ``ledgers`` ledgers."""
    version_2.mkdir(parents=True)
    with (version_2 / "snapshot.100000001").open("wb") as file:
        for part in iter_snapshot(iter_nodes(ledgers), 0x100000001):
            file.write(part)


def iter_nodes(ledgers: int) -> Iterator[SnapshotNode]:
    """Yield the nodes of TOPICS topics that share ``ledgers`` ledgers, and what a cluster has besides."""

    def node(path: str, data: bytes = b"", children: int = 0) -> SnapshotNode:
        return SnapshotNode(path, data, 0, children, _MS, _MS)

    cookie = encode_cookie(Cookie(4, BOOKIE, ("/journal",), ("/ledgers",), INSTANCE))
    yield from (node(""), node("/ledgers"), node("/ledgers/idgen", children=ledgers), node("/ledgers/LAYOUT", _LAYOUT))
    yield from (node("/ledgers/INSTANCEID", INSTANCE.encode()), node("/ledgers/cookies"))
    yield node(f"/ledgers/cookies/{BOOKIE}", cookie)
    share = max(ledgers // TOPICS, 1)
    topics = [f"public/default/persistent/many-{number}" for number in range(ledgers // share)]
    parents = set[str]()
    for one in range(ledgers):
        custom = {"application": b"pulsar", "component": b"managed-ledger"}
        custom["pulsar/managed-ledger"] = topics[min(one // share, len(topics) - 1)].encode()
        value = encode_ledger_metadata(closed_ledger(BOOKIE, ENTRIES, 64, custom, DigestType.CRC32C))
        path = ledger_path(one)
        for depth in (3, 4):
            parent = "/".join(path.split("/")[:depth])
            if parent not in parents:
                parents.add(parent)
                yield node(parent)
        yield node(path, value)
    for parent in ("/managed-ledgers", "/managed-ledgers/public", "/managed-ledgers/public/default"):
        yield node(parent)
    yield node("/managed-ledgers/public/default/persistent")
    for number in range(len(topics)):
        ids = np.arange(number * share, (number + 1) * share).tolist()
        infos = tuple(LedgerInfo(one, entries=ENTRIES, size_bytes=64, timestamp_ms=_MS) for one in ids)
        yield node(parse_topic(f"public/default/many-{number}").path, encode_managed_ledger(ManagedLedger(infos)))
