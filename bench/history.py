"""How the history of metadata grows with ZooKeeper's logs: topics that roll over, one ledger created, closed and deleted each time."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from bench.data import WORK, Bench
from bench.measuring import ADMIN, Row, run
from pulsar_admin.store.codec.cursor import CursorInfo, encode_cursor_info
from pulsar_admin.store.codec.ledgermetadata import closed_ledger, encode_ledger_metadata, ledger_path
from pulsar_admin.store.codec.managedledger import LedgerInfo, ManagedLedger, encode_managed_ledger
from pulsar_admin.store.names import Position, parse_topic

SIZES = (400_000, 1_600_000, 4_000_000)
"""Transactions: about 0.1, 0.45 and 1.2 GB."""
TOPICS, LISTED = 500, 20
LOG = 100_000  # transactions in a file: zookeeper.snapCount
_TIME_MS = 1_700_000_000_000
_ACLS = bytes.fromhex("00000001 0000001f 00000005") + b"world" + bytes.fromhex("00000006") + b"anyone"


def _jute(raw: bytes) -> bytes:
    return struct.pack(">i", len(raw)) + raw


def _create(path: str, data: bytes) -> tuple[int, bytes]:
    return 1, _jute(path.encode()) + _jute(data) + _ACLS + b"\0" + struct.pack(">i", 1)


def _set(path: str, data: bytes, version: int) -> tuple[int, bytes]:
    return 5, _jute(path.encode()) + _jute(data) + struct.pack(">i", version)


def iter_changes() -> Iterator[tuple[int, bytes]]:
    """Yield (type, bytes) of transactions without end, each in a multi as Pulsar writes them."""
    names = [parse_topic(f"public/default/topic-{number}") for number in range(TOPICS)]
    listed: list[list[LedgerInfo]] = [[] for _ in names]
    for turn in count():
        name, infos = names[turn % TOPICS], listed[turn % TOPICS]
        custom = {"application": b"pulsar", "component": b"managed-ledger"}
        custom["pulsar/managed-ledger"] = name.managed_ledger_name.encode()
        metadata = encode_ledger_metadata(closed_ledger("10.0.0.1:3181", 1000, 1 << 20, custom))
        yield _create(ledger_path(turn), metadata)
        yield _set(ledger_path(turn), metadata, 1)
        infos.append(LedgerInfo(turn, 1000, 1 << 20, _TIME_MS + turn))
        value = encode_managed_ledger(ManagedLedger(tuple(infos)))
        yield _create(name.path, value) if turn < TOPICS else _set(name.path, value, turn // TOPICS)
        cursor = encode_cursor_info(CursorInfo(-1, Position(turn, 999), last_active_ms=_TIME_MS))
        path = name.cursor_path("sub")
        yield _create(path, cursor) if turn < TOPICS else _set(path, cursor, turn // TOPICS)
        if len(infos) > LISTED:
            yield 2, _jute(ledger_path(infos.pop(0).ledger_id).encode())


def make(folder: Path, transactions: int) -> None:
    """Write the logs of ``transactions`` into ``folder``."""
    folder.mkdir(parents=True)
    changes = iter_changes()
    for first in range(1, transactions + 1, LOG):
        with open(folder / f"log.{first:x}", "wb") as file:
            file.write(b"ZKLG" + struct.pack(">iq", 2, 0))
            for zxid in range(first, min(first + LOG, transactions + 1)):
                kind, change = next(changes)
                head = struct.pack(">qiqqi", 1, zxid, zxid, _TIME_MS + zxid, 14)
                body = head + struct.pack(">iii", 1, kind, len(change)) + change
                file.write(struct.pack(">qi", zlib.adler32(body), len(body)) + body + b"B")
            file.write(bytes(1 << 16))


def measure(bench: Bench) -> Iterator[Row]:
    """One topic, everything below a path, and two moments, at each size."""
    for transactions in map(bench.count, SIZES):
        folder = WORK / f"history-{transactions}" / "version-2"
        if not folder.exists():
            make(folder, transactions)
        size = sum(file.stat().st_size for file in folder.iterdir())
        commands: dict[str, list[object]] = {
            "store history TOPIC": ["store", "history", "public/default/topic-7", "-o", "jsonl"],
            "store history PATH": ["store", "history", ledger_path(7), "-o", "jsonl"],
            "store diff": [
                "store",
                "diff",
                "--from",
                f"{transactions // 2:#x}",
                "--to",
                f"{transactions:#x}",
                "-o",
                "jsonl",
            ],
        }
        for what, words in commands.items():
            found = run([ADMIN, "-q", "--store", WORK / "none", *words, "--zookeeper", folder])
            note = f"{size / 1e6 / found.seconds:.0f} MB/s, {found.peak_bytes / 2**20:.0f} MiB"
            yield Row(f"{what}, {size / 1e9:.2f} GB of logs", found.seconds, found.processor_seconds, note=note)
