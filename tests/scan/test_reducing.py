"""What entries add up to does not depend on how they are cut, nor on where and in which order rows are merged."""

import pickle
from collections.abc import Iterator, Mapping, Sequence
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from msgspec import field

from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.engine.counts import COUNTS
from pulsar_admin.store.engine.local import LocalEngine
from pulsar_admin.store.engine.operation import Finished, Reducing
from pulsar_admin.store.engine.slices import FileRange
from pulsar_admin.store.model.cursors import iter_ledger_parts
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.model.topics import iter_topics, read_topic
from pulsar_admin.store.scan.entries import EntryScan
from pulsar_admin.store.scan.operations import PlainFiles
from pulsar_admin.store.scan.places import Places, PlacesReader, pack_places
from pulsar_admin.store.search.skew import SkewOfTopics, SkewOptions, SumClocks, read_skew
from tests.deep import deep_but_for
from tests.stores import imported

WINDOW = 7


class Scattering(LocalEngine):
    """Runs slices as if elsewhere, loses some of them, and merges the rows of the others in no order, by one column after the other."""

    runs: int = 0
    merged: int = field(default=0)

    def reduce(
        self, operation: Reducing, pieces: Sequence[FileRange], finished: Finished, merged_by: Mapping[str, int]
    ) -> Iterator[pa.Table]:
        self.runs += 1
        draw = Random(self.runs)
        operation, pieces = pickle.loads(pickle.dumps((operation, pieces)))
        kept = [piece for piece in pieces if draw.random() < 0.9]
        tables = [table for _, table in LocalEngine(1).run(operation, kept, finished)]
        table = pa.concat_tables([operation.schema.empty_table(), *tables])
        for name in merged_by:
            table = table.take(pa.array(draw.sample(range(len(table)), len(table)), pa.int64()))
            values = np.array(table[name])
            groups = [table.filter(pa.array(values % 3 == rest)) for rest in range(3)]
            merged = pa.concat_tables(map(operation.merge, groups))
            self.merged += len(table) - len(merged)
            table = merged
        yield from (table.slice(place, 1) for place in draw.sample(range(len(table)), len(table)))


@deep_but_for((0, 2), ("state", "clock"), [("clean", "publish"), ("mutated", "broker"), ("mutated", "auto")])
def test_clocks_are_the_same_however_rows_are_merged(monkeypatch: pytest.MonkeyPatch, state: str, clock: str) -> None:
    monkeypatch.setattr(SumClocks, "window_entries", WINDOW)
    monkeypatch.setattr("pulsar_admin.store.scan.reducing._JOB_BYTES", 1_000)
    monkeypatch.setattr("pulsar_admin.store.scan.reducing._LEAST_PIECE_BYTES", 2_000)
    monkeypatch.setattr("pulsar_admin.store.scan.reducing._TOGETHER", 3)
    options = SkewOptions(clock, 5)  # type: ignore[arg-type]  # one of them
    engine = Scattering(12)
    store_path = imported("small" if state == "clean" else "nometa", state)
    with open_store(store_path) as store, open_reader(store) as reader, engine:
        topics = [read_topic(reader.txn, name) for name in iter_topics(reader.txn)]
        on_engine = SkewOfTopics(reader.scanning_on(engine), topics, options)
        for index, topic in enumerate(topics):
            assert on_engine.find(index) == read_skew(reader, topic, options)
    assert engine.runs > 3
    assert engine.merged > 10


def _groups(path_of: str) -> Iterator[tuple[EntryScan, Places]]:
    with open_store(imported("small", path_of)) as store, open_reader(store) as reader:
        for name in iter_topics(reader.txn):
            topic = read_topic(reader.txn, name)
            scan = EntryScan(reader, iter_ledger_parts(topic, 0, topic.number_of_entries), heads=True)
            yield from ((scan, places) for places in scan.groups())


def _plain(scan: EntryScan, places: Places) -> PlainFiles:
    """Return the files of places as executors have them."""
    return PlainFiles({file_id: scan.reader.files.path_of(file_id) for file_id in set(places.files.tolist())})


@pytest.mark.parametrize("cut", ["as they lie", "every other", "backwards"])
def test_packed_places_are_read_as_places_are(cut: str) -> None:
    steps = {"as they lie": np.s_[:], "every other": np.s_[::2], "backwards": np.s_[::-1]}
    scattered = []
    read_bytes = size_bytes = 0
    for scan, whole in _groups("clean"):
        places = whole.take(steps[cut])
        packed = pickle.loads(pickle.dumps(pack_places(places, heads=True)))
        scattered.append(packed.is_scattered)
        found = packed.read(_plain(scan, places), heads=True, digests=None)
        before = COUNTS.now()
        expected = PlacesReader(scan.reader.files, True, None).read_places(places)
        assert COUNTS.now().entries - before.entries == len(places)
        read_bytes += COUNTS.now().bytes - before.bytes
        size_bytes += int(places.sizes.sum())
        assert found is not None
        assert (found.rows == expected.rows).all()
        for name in ("ledger_ids", "entry_ids"):
            assert (getattr(found, name) == getattr(expected, name)).all()
        for at in range(len(places)):
            body = [batch.data[batch.offsets[at] :][: batch.held[at] + 4].tobytes() for batch in (found, expected)]
            assert body[0] == body[1]
    assert 0 < sum(scattered) < len(scattered)
    assert 0 < read_bytes < size_bytes  # of large entries the beginnings alone


def test_other_entries_than_the_packed_ones_are_not_given() -> None:
    for scan, places in _groups("clean"):
        for name, by in (("entry_ids", 1), ("ledger_ids", 1), ("offsets", 3)):
            wrong = places.take(np.s_[:])
            setattr(wrong, name, getattr(wrong, name) + getattr(wrong, name).dtype.type(by))
            assert pack_places(wrong, heads=True).read(_plain(scan, places), heads=True, digests=None) is None
        return
    pytest.fail("no entries")
