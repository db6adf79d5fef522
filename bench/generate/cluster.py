"""Writing a whole cluster: windows of time over all topics, as checkpoints of a bookie cut them, then the metadata."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from msgspec import Struct

from bench.generate import draws, kernel
from bench.generate.logs import EntryLogs
from bench.generate.metadata import write_bookie, write_metadata
from bench.generate.spec import ClusterSpec, check_cluster, entry_bytes_max
from bench.generate.topic import TopicWriter
from pulsar_admin.store.aliases import Array
from pulsar_admin.store.codec.interceptors import open_chain
from pulsar_admin.store.errors import AlreadyExists
from pulsar_admin.store.files import create_directory, new_directory
from pulsar_admin.store.sources.locations_writer import Locations

FIRST_LEDGER_ID = 1
_WINDOW_ENTRIES = 1 << 18

Advance = Callable[[int], None]  # told how many more entries are written


class GenerateResult(Struct, frozen=True):
    """What was written."""

    directory: str
    seed: int
    topics: int
    ledgers: int
    entries: int
    messages: int
    cursors: int
    logs: int
    bytes: int
    nodes: int
    seconds: float
    entries_per_second: int


def apply_generate(path: Path, spec: ClusterSpec, advance: Advance = lambda _: None) -> GenerateResult:
    """Write ``spec`` as a standalone data directory at ``path``; after an error nothing is left.

    The same spec gives the same entry logs byte for byte and the same rows in the databases, whose own files carry random
    ids. Raises InvalidValue, DiskFull, NotWritable, AlreadyExists, StoreBusy when another process is at it.
    """
    check_cluster(spec)
    if path.exists() or path.is_symlink():
        raise AlreadyExists(f"{path} exists", hint="name a directory that does not exist", path=str(path))
    started = time.monotonic()
    with new_directory(path) as unfinished:
        create_directory(unfinished)
        topics, logs, next_ledger_id = _write_entries(unfinished, spec, advance)
        write_bookie(_current(unfinished), spec, topics, logs.last_id)
        nodes = write_metadata(unfinished, spec, topics, next_ledger_id)
    seconds = time.monotonic() - started
    entries = sum(topic.entries for topic in spec.topics)
    return GenerateResult(
        directory=str(path),
        seed=spec.seed,
        topics=len(topics),
        ledgers=sum(len(topic.ledgers) for topic in topics),
        entries=entries,
        messages=sum(topic.messages for topic in topics),
        cursors=sum(topic.spec.subscriptions for topic in topics),
        logs=logs.files,
        bytes=logs.bytes,
        nodes=nodes,
        seconds=round(seconds, 3),
        entries_per_second=round(entries / seconds),
    )


def pattern_of(seed: int) -> Array:
    """Return the bytes that payloads of ``seed`` are cut from."""
    words = [draws.draw(draws.stream(seed, -1), number, draws.PAYLOAD) for number in range(kernel.PATTERN_BYTES // 8)]
    return np.array(words, ">u8").view(np.uint8)


def _current(root: Path) -> Path:
    return root / "bookkeeper" / "current"


def _write_entries(root: Path, spec: ClusterSpec, advance: Advance) -> tuple[list[TopicWriter], EntryLogs, int]:
    current = _current(root)
    create_directory(current.parent)
    create_directory(current)
    pattern = pattern_of(spec.seed)
    topics = [
        TopicWriter(spec.seed, number, topic, open_chain(spec.interceptors), pattern)
        for number, topic in enumerate(spec.topics)
    ]
    record_bytes_max = max(map(entry_bytes_max, spec.topics))
    with (
        Locations(current / "locations") as locations,
        EntryLogs(current, spec.log_size_limit_bytes, record_bytes_max, locations) as logs,
    ):
        next_ledger_id = _write_windows(spec, topics, logs, advance)
    return topics, logs, next_ledger_id


def _write_windows(spec: ClusterSpec, topics: list[TopicWriter], logs: EntryLogs, advance: Advance) -> int:
    """Write all entries; return the ledger id that is free then."""
    next_ledger_id = FIRST_LEDGER_ID
    for until_ms in _windows(spec):
        runs = _plan_runs(topics, until_ms, spec.entries_per_ledger, next_ledger_id)
        next_ledger_id += sum(run.is_new for run in runs)
        for run in sorted(runs, key=lambda run: run.ledger_id):
            if run.is_new:
                run.topic.open_ledger(run.ledger_id)
            run.topic.write(logs, run.stop)
            advance(run.stop - run.first)
    for topic in topics:
        if not topic.ledgers:  # a topic that was opened and never written to
            topic.open_ledger(next_ledger_id)
            next_ledger_id += 1
    return next_ledger_id


def _windows(spec: ClusterSpec) -> Iterator[int]:
    """Yield the ends of windows of time that hold a bounded number of entries of all topics together."""
    busy = [topic for topic in spec.topics if topic.entries]
    if not busy:
        return
    now_ms = min(topic.start_ms for topic in busy)
    end_ms = max(topic.broker_ms(topic.entries - 1) for topic in busy) + 1
    while now_ms < end_ms:
        running = [t for t in busy if t.start_ms <= now_ms < t.broker_ms(t.entries - 1) + 1]
        starts = [t.start_ms for t in busy if t.start_ms > now_ms]
        entries_per_ms = sum(1000 / t.period_us for t in running)
        until_ms = now_ms + max(int(_WINDOW_ENTRIES / entries_per_ms), 1) if running else min(starts)
        now_ms = min([until_ms, end_ms, *starts])
        yield now_ms


class _Run(Struct, frozen=True):
    """Entries of one ledger within a window: numbers ``first`` to ``stop`` (excluded) of the topic."""

    topic: TopicWriter
    first: int
    stop: int
    is_new: bool
    ledger_id: int


def _plan_runs(topics: list[TopicWriter], until_ms: int, entries_per_ledger: int, next_ledger_id: int) -> list[_Run]:
    """Return the runs up to ``until_ms``; new ledgers take ids in the order in which they are begun."""
    found: list[tuple[int, int, TopicWriter, int, int]] = []
    for topic in topics:
        first, end = topic.entries, topic.spec.entries_before(until_ms)
        while first < end:
            stop = min(end, first - first % entries_per_ledger + entries_per_ledger)
            found.append((topic.spec.broker_ms(first), topic.number, topic, first, stop))
            first = stop
    runs = []
    for _, _, topic, first, stop in sorted(found, key=lambda item: (item[0], item[1], item[3])):
        is_new = first % entries_per_ledger == 0
        if is_new:
            current, next_ledger_id = next_ledger_id, next_ledger_id + 1
        else:
            current = topic.ledgers[-1].ledger_id
        runs.append(_Run(topic, first, stop, is_new, current))
    return runs
