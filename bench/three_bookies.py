"""Importing the disks of three bookies in one run (E 3, Qw 2: every entry on two), beside ``cat`` of the same logs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from bench.bulk import beside_cat
from bench.data import WORK, Bench, logs_of
from bench.measuring import ADMIN, Row
from pulsar_admin.store.codec.entrylog import EntryLogHeader, encode_header
from pulsar_admin.store.codec.ledgermetadata import (
    Segment,
    decode_ledger_metadata,
    encode_ledger_metadata,
    ledger_id_of_path,
)
from pulsar_admin.store.codec.logscan import Record, iter_records
from pulsar_admin.store.codec.rocksvalue import decode_value, encode_value
from pulsar_admin.store.sources.rocksdb import apply_changes, open_for_reading

BOOKIES = ("bk0", "bk1", "bk2")
_ROUND_BYTES = 64 << 20


def measure(bench: Bench) -> Iterator[Row]:
    """``store import cluster`` of the largest topic, each entry on two of three bookies, and of the same files as one bookie's."""
    entries = bench.count(bench.sizes[-1])
    source = spread(bench.generated(entries), WORK / f"three-bookies-{entries}")
    files = [source / bookie / "current" / "0.log" for bookie in BOOKIES]
    store = WORK / "import"
    words = [ADMIN, "-q", "--store", store, "store", "import", "cluster", "--metadata", source / "metadata"]
    disks = [word for bookie in BOOKIES for word in ("--bookie", f"{bookie}={source / bookie}")]
    row = beside_cat([*words, *disks], files, 2 * entries, bench.runs, store)
    yield Row(f"store import of three bookies, {entries:,} entries on two each", *row)
    together = ["--bookie", "bk0=" + ",".join(str(source / bookie) for bookie in BOOKIES)]
    row = beside_cat([*words, *together], files, 2 * entries, bench.runs, store)
    yield Row("the same files as those of one bookie: no copies are kept", *row)


def spread(source: Path, target: Path) -> Path:
    """Return a copy of the standalone directory ``source`` whose entries lie on BOOKIES, an ensemble with write quorum 2."""
    if target.exists():
        return target
    made = target.with_suffix(".unfinished")
    shutil.rmtree(made, ignore_errors=True)
    shutil.copytree(source / "metadata", made / "metadata")
    with open_for_reading(made / "metadata") as pairs:
        rows = [
            (key, _spread_ledger(key, value)) for key, value in pairs if ledger_id_of_path(key.decode()) is not None
        ]
    apply_changes(made / "metadata", lambda: rows)
    parts = [bytearray(encode_header(EntryLogHeader(1, 0, 0))) for _ in BOOKIES]
    for bookie in BOOKIES:
        (made / bookie / "current").mkdir(parents=True)
    for log in logs_of(source):
        data = log.read_bytes()
        for item in iter_records(data, "log"):
            if isinstance(item, Record):
                _add(parts, item, data)
                if len(parts[0]) > _ROUND_BYTES:
                    _write(parts, made)
    _write(parts, made)
    made.rename(target)
    return target


def _spread_ledger(key: bytes, value: bytes) -> bytes:
    stat, node = decode_value(value, str(key))
    metadata = decode_ledger_metadata(node, str(key))
    segments = (Segment(0, BOOKIES),)
    changed = replace(metadata, ensemble_size=3, write_quorum=2, ack_quorum=2, segments=segments)
    return encode_value(stat, encode_ledger_metadata(changed))


def _add(parts: list[bytearray], record: Record, data: bytes) -> None:
    body = record.body(data)
    entry_id = int.from_bytes(body[8:16], "big")
    for place in (entry_id, entry_id + 1):
        parts[place % 3] += len(body).to_bytes(4, "big") + body


def _write(parts: list[bytearray], made: Path) -> None:
    for bookie, part in zip(BOOKIES, parts, strict=True):
        with open(made / bookie / "current" / "0.log", "ab") as file:
            file.write(part)
        part.clear()
