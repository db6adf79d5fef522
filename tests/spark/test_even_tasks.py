"""Tasks of ``pulsar_entries`` are even, whatever the data: one topic has almost all of it, and one entry is larger than many tasks."""

from __future__ import annotations

import random
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pulsar_admin.store import urls
from pulsar_admin.store.scan import sources
from pulsar_admin.store.scan.files import LOOK_BACK_BYTES
from tests.synthetic import CREATED_MS, Made, MadeTopic, make_store

SLICE_BYTES = 32_768
SHARE_BYTES = 3 * SLICE_BYTES // 2
"""A file is cut into equal slices, as many as are nearest to what was asked for: none has more than half as much again."""
LARGE_BYTES = 40 * SLICE_BYTES
AHEAD_BYTES = 4096
HOT = "public/default/hot"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A topic with 95 % of the entries, one of them forty times as large as a slice, and five with the others."""
    draw = random.Random(95)

    def entries(count: int) -> list[Made]:
        return [Made(CREATED_MS, payload=draw.randbytes(draw.randrange(1500))) for _ in range(count)]

    hot = [entries(950), [*entries(475), Made(CREATED_MS, payload=draw.randbytes(LARGE_BYTES)), *entries(474)]]
    others = {f"public/default/cold-{number}": MadeTopic([entries(20)]) for number in range(5)}
    return make_store(tmp_path_factory.mktemp("skewed") / "store", {HOT: MadeTopic(hot), **others})


def sizes_of(store: Path) -> dict[tuple[int, int], int]:
    """Return the bytes of each entry of the log: a size of four bytes, then as many, its ids first."""
    data, at = (store / "entries" / "0.log").read_bytes(), 1024
    found: dict[tuple[int, int], int] = {}
    while at < len(data):
        size, *key = struct.unpack_from(">iqq", data, at)
        assert tuple(key) not in found
        found[key[0], key[1]] = 4 + size
        at += 4 + size
    assert len(found) == 2000
    return found


def source(options: dict[str, str]) -> Any:  # Any: the data source
    from pulsar_admin.store.scan.datasource import PulsarEntries

    return PulsarEntries({"sliceBytes": str(SLICE_BYTES), **options})


def rows_of(reader: Any, part: Any) -> list[dict[str, Any]]:  # Any: Spark's reader and partition, a column's own type
    return [row for batch in reader.read(part) for row in batch.to_pylist()]


def check(tasks: list[list[tuple[int, int]]], sizes: dict[tuple[int, int], int]) -> None:
    """Each entry is in one task, and none reads more than its share and one entry."""
    assert Counter(key for task in tasks for key in task) == Counter(sizes.keys())
    assert len(tasks) > (sum(sizes.values()) - max(sizes.values())) // SHARE_BYTES
    for task in tasks:
        assert sum(sizes[key] for key in task[:-1]) < SHARE_BYTES
    large = max(sizes, key=lambda key: sizes[key])
    (own,) = [task for task in tasks if large in task]
    assert sum(sizes[key] for key in own if key != large) < SHARE_BYTES


@pytest.mark.parametrize("level", ["entries", "messages"])
def test_tasks_of_files(store: Path, level: str) -> None:
    found = source({"path": str(store / "entries" / "0.log"), "level": level, "columns": "ledger_id,entry_id"})
    reader = found.reader(found.schema())
    tasks = [[(row["ledger_id"], row["entry_id"]) for row in rows_of(reader, part)] for part in reader.partitions()]
    check(tasks, sizes_of(store))


def test_tasks_of_a_stream(store: Path) -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    found = source({"path": str(store / "entries" / "0.log"), "columns": "ledger_id,entry_id"})
    reader = found.streamReader(found.schema())
    start = reader.initialOffset()
    parts = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    check([[(row["ledger_id"], row["entry_id"]) for row in rows_of(reader, part)] for part in parts], sizes_of(store))


def test_tasks_of_topics(store: Path) -> None:
    """Pieces of a topic hold places: they are counted by the entries in them."""
    found = source({"store": str(store), "topicsPattern": "public/default/.*"})
    reader = found.reader(found.schema())
    tasks = []
    for part in reader.partitions():
        ids = [(batch.ledger_ids.tolist(), batch.entry_ids.tolist()) for batch in part.value.batches]
        tasks.append([key for pair in ids for key in zip(*pair, strict=True)])
        assert len(rows_of(reader, part)) == len(tasks[-1])
    check(tasks, sizes_of(store))


class CountedFile:
    """A file of pyarrow, and how many bytes were read of it."""

    def __init__(self, file: Any) -> None:  # Any: pyarrow's NativeFile
        self._file = file
        self.read = 0

    def read_at(self, count: int, offset: int) -> bytes:
        raw: bytes = self._file.read_at(count, offset)
        self.read += len(raw)
        return raw

    def size(self) -> int:
        return int(self._file.size())

    def __enter__(self) -> CountedFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def test_what_tasks_fetch_of_an_object(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its slice, what is before it, and what its last entry has behind it, which is asked for twice as far each time; inside of an entry
    nothing behind the slice."""
    opened: list[CountedFile] = []
    find = urls.file_system_of

    class Counting:
        """The file system, but for files that are counted."""

        def __init__(self, system: Any) -> None:  # Any: pyarrow's FileSystem
            self.get_file_info = system.get_file_info
            self._system = system

        def open_input_file(self, path: str) -> CountedFile:
            opened.append(CountedFile(self._system.open_input_file(path)))
            return opened[-1]

    def counting(url: str) -> tuple[Counting, str]:
        system, path = find(url.replace("s3://bucket", "file://"))
        return Counting(system), path

    for module in (sources, urls):
        monkeypatch.setattr(module, "file_system_of", counting)
    monkeypatch.setattr(sources, "READ_AHEAD_BYTES", AHEAD_BYTES)
    found = source({"path": f"s3://bucket{store}/entries/0.log", "columns": "ledger_id,entry_id"})
    reader = found.reader(found.schema())
    sizes, tasks = sizes_of(store), []
    for part in reader.partitions():
        opened.clear()
        tasks.append([(row["ledger_id"], row["entry_id"]) for row in rows_of(reader, part)])
        assert opened
        reach = 2 * sizes[tasks[-1][-1]] if tasks[-1] else 0
        back = min(part.value.start, LOOK_BACK_BYTES)
        assert sum(file.read for file in opened) <= back + part.value.bytes + max(AHEAD_BYTES, reach)
    check(tasks, sizes)
    assert sum(not task for task in tasks) > LARGE_BYTES // SHARE_BYTES, "slices that lie in the large entry"
