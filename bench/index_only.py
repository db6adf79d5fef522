"""A store of a topic far larger than the disk: every index row that an import makes, and of the logs only what is asked.

``python -m bench.index_only FOLDER [--entries 100M]``. The entries are really made, in memory, and scanned by the product's own
scanner into the product's own index; the entry logs are sparse files that hold the blocks of the questions alone. So
``topics find-by-time`` reads what it would read of the whole topic. ``FOLDER/questions.json`` lists the times to ask and the
positions to be answered, computed from the plan.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from typing import Any

import numpy as np

from bench.generate.cluster import pattern_of
from bench.generate.logs import EntryLogs
from bench.generate.metadata import iter_cluster_nodes
from bench.generate.spec import ClusterSpec, TopicSpec, entry_bytes_max, parse_count
from bench.generate.topic import TopicWriter
from pulsar_admin.store.codec.interceptors import open_chain, parse_interceptors
from pulsar_admin.store.codec.rocksvalue import NodeStat
from pulsar_admin.store.db.blocks import BLOCK_BITS
from pulsar_admin.store.db.environment import Store, Txn, create_store, open_store
from pulsar_admin.store.db.files import LogFile, file_fingerprint, put_log
from pulsar_admin.store.db.tree import Node, put_nodes
from pulsar_admin.store.index.writer import Indexer
from pulsar_admin.store.kernels import records as kernel
from pulsar_admin.store.kernels.columns import RECORD
from pulsar_admin.store.model.references import index_owners
from pulsar_admin.store.names import parse_topic

TOPIC = "public/default/hundred-million"
QUESTIONS = 12
LEDGER_ENTRIES = 50_000


class _NoLocations:
    """The bookie's own index is not asked here."""

    def add(self, *_: object) -> None:
        pass


class _SparseLogs(EntryLogs):
    """Entry logs of which only wanted blocks reach the disk; ``scanned`` collects (log id, records) of all."""

    def __init__(self, directory: Path, record_bytes_max: int, wanted: set[tuple[int, int]]) -> None:
        self.scanned: list[tuple[int, Any]] = []
        self._wanted = wanted
        self._rows = np.zeros(1 << 18, RECORD)
        super().__init__(directory, 1 << 30, record_bytes_max, _NoLocations())  # type: ignore[arg-type]

    def take(self) -> list[tuple[int, Any]]:
        """What was scanned since the last call, all that was written included."""
        self._flush()
        taken, self.scanned = self.scanned, []
        return taken

    def _flush(self) -> None:
        data = self.buffer[: self.at]
        known = (np.zeros(0, np.int64), np.zeros(0, np.int16))
        count, _, why = kernel.scan_log(data, 0, self.at, 0, known, True, self._rows)
        assert why == kernel.END
        records = self._rows[:count]
        self._write_wanted(data, records)
        records["offset"] += self._base
        if count:
            self.scanned.append((self.last_id, records.copy()))
        self._base += self.at
        self.bytes += self.at
        self._file.truncate(self._base)
        self._file.seek(self._base)
        self.at = 0

    def _write_wanted(self, data: Any, records: Any) -> None:
        blocks = records["entry_id"] >> BLOCK_BITS
        for ledger_id, block in self._wanted:
            rows = records[(records["ledger_id"] == ledger_id) & (blocks == block)]
            if len(rows):
                start, end = int(rows["offset"][0]), int(rows["offset"][-1] + rows["size"][-1]) + 4
                self._file.seek(self._base + start)
                self._file.write(memoryview(data.data)[start:end])


def make(folder: Path, entries: int, seed: int = 1) -> None:
    """Make ``store`` and ``questions.json`` in ``folder``."""
    folder.mkdir(parents=True)
    topic = TopicSpec(parse_topic(TOPIC), entries=entries, rate=10_000, producers=4)
    spec = ClusterSpec(
        seed, (topic,), str(folder), parse_interceptors("timestamp,index"), entries_per_ledger=LEDGER_ENTRIES
    )
    numbers = sorted(random.Random(seed).sample(range(entries), QUESTIONS))
    places = [(1 + number // LEDGER_ENTRIES, number % LEDGER_ENTRIES) for number in numbers]
    wanted = {(ledger, entry >> BLOCK_BITS) for ledger, entry in places}
    store = folder / "store"
    create_store(store, now_ms=topic.start_ms)
    with open_store(store, writable=True) as opened:
        writer, logs = _write_entries(opened, spec, wanted)
        opened.write(lambda txn: _write_rest(txn, opened, writer, logs, spec))
        opened.write(lambda txn: index_owners(opened, txn))
    questions = [{"time": topic.broker_ms(number), "position": list(_first_at(topic, number))} for number in numbers]
    (folder / "questions.json").write_text(json.dumps({"topic": TOPIC, "entries": entries, "questions": questions}))


def _first_at(topic: TopicSpec, number: int) -> tuple[int, int]:
    """Ledger and entry of the first entry with the broker time of entry ``number``."""
    first = topic.entries_before(topic.broker_ms(number))
    return 1 + first // LEDGER_ENTRIES, first % LEDGER_ENTRIES


def _write_entries(store: Store, spec: ClusterSpec, wanted: set[tuple[int, int]]) -> tuple[TopicWriter, EntryLogs]:
    """Make and index all entries, one transaction a ledger."""
    (topic,) = spec.topics
    writer = TopicWriter(spec.seed, 0, topic, open_chain(spec.interceptors), pattern_of(spec.seed))
    with _SparseLogs(store.path / "entries", entry_bytes_max(topic), wanted) as logs:
        for first in range(0, topic.entries, LEDGER_ENTRIES):
            writer.open_ledger(1 + first // LEDGER_ENTRIES)
            writer.write(logs, min(first + LEDGER_ENTRIES, topic.entries))
            scanned = logs.take()
            store.write(lambda txn, scanned=scanned: _index(txn, scanned))  # type: ignore[misc]
    return writer, logs


def _index(txn: Txn, scanned: list[tuple[int, Any]]) -> None:
    indexer = Indexer(txn)
    for log_id, records in scanned:
        indexer.add(records, log_id + 1)
    indexer.finish()


def _write_rest(txn: Txn, store: Store, writer: TopicWriter, logs: EntryLogs, spec: ClusterSpec) -> None:
    for log_id in range(logs.files):
        put_log(txn, _row(store, log_id))
    for path, value, time_ms in iter_cluster_nodes(spec, [writer]):
        put_nodes(txn, [Node(path, NodeStat(0, 1, time_ms, time_ms, False), value)])


def _row(store: Store, log_id: int) -> LogFile:
    inside = Path("entries", f"{log_id:x}.log")
    status = (store.path / inside).stat()
    return LogFile(
        file_id=log_id + 1,
        path=str(inside),
        kind="entry-log",
        log_id=log_id,
        origin="",
        mode="own",
        size_bytes=status.st_size,
        mtime_ns=status.st_mtime_ns,
        fingerprint=file_fingerprint(store.path / inside, status.st_size),
        next_offset=status.st_size,
        records=0,
        problems=0,
        torn=False,
        sealed=False,
    )


def main() -> None:
    """Make the store from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--entries", type=parse_count, default=100_000_000)
    arguments = parser.parse_args()
    make(arguments.folder, arguments.entries)


if __name__ == "__main__":
    main()
