"""Phase one of compaction on an engine: the same ledger, report and findings, byte for byte, as in one process."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import asdict

from pulsar_admin.store.compaction.batches import MessageSource
from pulsar_admin.store.compaction.compactor import Compaction, CompactionRules, SourceOptions, prepare
from pulsar_admin.store.compaction.keys import Latest
from pulsar_admin.store.compaction.verify import verify_view
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.engine.local import LocalEngine
from pulsar_admin.store.engine.operation import Engine
from pulsar_admin.store.model.compacted_view import find_compacted_view
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.model.topics import read_topic
from pulsar_admin.store.names import Position, parse_topic
from pulsar_admin.store.scan.entries import EntryScan
from pulsar_admin.store.scan.places import EntryBatch
from tests.compaction.entries import PUBLISH_MS, Batch, Slot, compacted, entry
from tests.conftest import Cli
from tests.stores import copied
from tests.synthetic import Made, MadeCompacted, MadeTopic, make_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC = "public/default/t"
SNAPSHOT = "public/default/__transaction_buffer_snapshot"


def _transaction(number: int, key: str, marker: int | None = None) -> bytes:
    more: dict[str, Any] = {"txnid_most_bits": 0, "txnid_least_bits": number}
    if marker is not None:
        more["marker_type"] = marker
    return entry(Batch([Slot(key, b"in %d" % number)], alone=True, more=more))


def _chunk(uuid: str, number: int, key: str | None) -> bytes:
    more = {"uuid": uuid, "num_chunks_from_msg": 3, "chunk_id": number, "total_chunk_msg_size": 9}
    return entry(Batch([Slot(key, b"%d  " % number)], alone=True, more={**more, "uncompressed_size": 9}))


def _everything(seed: int) -> list[bytes]:
    """Entries of every kind: batches in all codecs, single messages, null values, no keys, encrypted, broken, chunks, markers."""
    draw = Random(seed)
    found = []
    for number in range(400):
        keys = [draw.choice([None, "", "a", f"k{draw.randrange(60)}"]) for _ in range(draw.randrange(1, 8))]
        slots = [Slot(key, draw.choice([None, b"", b"v%d" % number])) for key in keys]
        kind = draw.randrange(12)
        if kind < 7:
            found.append(entry(Batch(slots, codec=draw.randrange(5))))
        elif kind < 9:
            found.append(entry(Batch(slots[:1], draw.randrange(2), alone=True)))
        elif kind == 9:
            found.append(entry(Batch(slots, encrypted=True, payload=b"\x91" * 40)))
        elif kind == 10:
            found.append(entry(Batch(slots, count=9)))
        else:
            found += [_chunk(f"u{number}", part, keys[0]) for part in range(draw.randrange(1, 4))]
    found.insert(50, _transaction(1, "a"))
    found.insert(60, _transaction(2, "a"))
    found.insert(70, _transaction(1, "a", 21))
    found.insert(300, _transaction(2, "a", 22))
    found.insert(310, b"\x08\x01no message")
    return found


def _store(path: Path, raw: list[bytes], *, known: bool, lost: tuple[int, ...] = ()) -> Path:
    """The entries in two ledgers, the first fifty of them behind a compacted ledger that holds some; KNOWN: a snapshot tells of
    the topic's transactions."""
    rows = [Made(PUBLISH_MS, raw=one, lost=number in lost) for number, one in enumerate(raw)]
    kept = [compacted(10, number, raw[number]) for number in range(0, 50, 3)]
    topics = {TOPIC: MadeTopic([rows[:200], rows[200:]], compacted=MadeCompacted(77, kept, Position(10, 49)))}
    if known:
        snapshot = entry(Batch([Slot(f"persistent://{TOPIC}", b"x")], alone=True))
        topics[SNAPSHOT] = MadeTopic([[Made(PUBLISH_MS, raw=snapshot)]])
    return make_store(path, topics)


def _compact(store: Path, engine: Engine | None, retain: bool, options: SourceOptions) -> tuple[Any, ...]:
    """Return everything that a run comes to: latest messages, payloads, numbers, damage."""
    with open_store(store) as opened, open_reader(opened, engine) as reader:
        prepared = prepare(reader, read_topic(reader.txn, parse_topic(TOPIC)), options)
        compaction = Compaction(prepared.source, CompactionRules("reduced", retain, limit_keys=17), -1)
        latest: Latest = compaction.find_latest()
        written = [found if isinstance(found, bytes) else list(found) for found in compaction.payloads()]
        flat = [payload for found in written for payload in ([found] if isinstance(found, bytes) else found)]
        damage = [error.message for error in prepared.source.damaged], prepared.source.lost
        return bytes(latest.bits), latest.keys, latest.nulls, flat, asdict(compaction.result), damage


class EngineContract:
    """What every engine does alike; subclasses hand it over as the fixture ``engine``."""

    piece_bytes, batch_bytes = 4000, 1000

    @pytest.fixture(autouse=True)
    def small_slices(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Many slices of several batches each, and keys handed over in the middle of a slice."""
        monkeypatch.setattr("pulsar_admin.store.scan.operations.PIECE_BYTES", self.piece_bytes)
        monkeypatch.setattr(
            "pulsar_admin.store.compaction.batches.EntryScan", partial(EntryScan, batch_bytes=self.batch_bytes)
        )
        monkeypatch.setattr("pulsar_admin.store.compaction.spread._KEYS_A_ROW", 20)

    @pytest.mark.parametrize(("known", "retain", "from_start"), [(False, False, False), (True, True, True)])
    def test_a_run_is_the_same(
        self, engine: Engine, tmp_path: Path, known: bool, retain: bool, from_start: bool
    ) -> None:
        store = _store(tmp_path / "store", _everything(1), known=known)
        options = SourceOptions(from_start=from_start)
        here = _compact(store, None, retain, options)
        assert len(here[3]) > 50
        assert here[4]["messages"].uncommitted == 1
        assert _compact(store, engine, retain, options) == here

    def test_nothing_sound_is_read_twice(self, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where the transactions are known the driver decodes no entry of the topic."""
        store = _store(tmp_path / "store", _everything(1), known=True)
        exploded = MessageSource.exploded

        def of_the_compacted_ledger(source: MessageSource, entries: EntryBatch, compacted: bool) -> Any:
            assert compacted, "read on the driver"
            return exploded(source, entries, compacted)

        monkeypatch.setattr(MessageSource, "exploded", of_the_compacted_ledger)
        with open_store(store) as opened, open_reader(opened, engine) as reader:
            prepared = prepare(reader, read_topic(reader.txn, parse_topic(TOPIC)), SourceOptions())
            assert Compaction(prepared.source, CompactionRules(), -1).find_latest().keys > 20
        assert not engine.failed

    @pytest.mark.usefixtures("damages_stores")
    def test_what_is_lost_or_damaged(self, engine: Engine, tmp_path: Path) -> None:
        raw = _everything(2)
        store = _store(tmp_path / "store", raw, known=False, lost=(60, 250))
        _flip(store, raw[120])
        options = SourceOptions(skip_damaged=True)
        here = _compact(store, None, False, options)
        assert here[5][1] == 2
        assert len(here[5][0]) == 1
        assert _compact(store, engine, False, options) == here

    def test_encrypted_by_key(self, engine: Engine, tmp_path: Path) -> None:
        store = _store(tmp_path / "store", _everything(3), known=True)
        options = SourceOptions(encrypted_by_key=True, rule="4.0")
        assert _compact(store, engine, False, options) == _compact(store, None, False, options)

    def test_verify_finds_the_same(self, engine: Engine, tmp_path: Path) -> None:
        store = _store(tmp_path / "store", _everything(4), known=False)
        found = []
        for chosen in (None, engine):
            with open_store(store) as opened, open_reader(opened, chosen) as reader:
                topic = read_topic(reader.txn, parse_topic(TOPIC))
                view = find_compacted_view(reader, topic)
                assert view is not None
                found.append(asdict(verify_view(reader, topic, view, limit_keys=5)))
        assert found[0]["total"] > 3
        assert found[1] == found[0]


def _flip(store: Path, raw: bytes) -> None:
    """Change a byte of an entry in the store's log."""
    for log in (store / "entries").glob("*.log"):
        data = bytearray(log.read_bytes())
        at = data.find(raw)
        if at >= 0:
            data[at + len(raw) - 1] ^= 1
            log.write_bytes(data)
            return
    raise AssertionError("the entry is in no log")


class TestInThisProcess(EngineContract):
    @pytest.fixture
    def engine(self) -> Engine:
        return LocalEngine(1)


@pytest.mark.spark
class TestOnSpark(EngineContract):
    piece_bytes, batch_bytes = 40_000, 3000  # every slice is a task, and a task costs a tenth of a second

    @pytest.fixture
    def engine(self, spark: SparkSession) -> Engine:
        from pulsar_admin.store.engine.spark import SparkEngine

        return SparkEngine(spark)


# -- the commands -----------------------------------------------------------------------------------------------------

NAMES = ("acme/orders/compacted", "acme/orders/compacted-single", "acme/secure/compacted-secret")


def _commands(cli: Cli, store: Path, *more: str) -> list[Any]:
    """Run and verify recorded topics; return what was said and the logs that were written."""
    said = []
    for words in (("run", "--from-start", "--now", "@1795260000"), ("verify",)):
        result = cli.done("--store", store, "compaction", *words, *NAMES, *more, "-o", "json")
        said.append(result.json)
    return [said, [log.read_bytes() for log in sorted((store / "entries").glob("*.log"))]]


def test_commands_in_processes(cli: Cli, tmp_path: Path) -> None:
    here = _commands(cli, copied("small", "clean", tmp_path / "a"))
    assert here[1]
    assert _commands(cli, copied("small", "clean", tmp_path / "b"), "--jobs", "2") == here


@pytest.mark.spark
def test_commands_on_spark(cli: Cli, tmp_path: Path, on_spark: list[int]) -> None:
    here = _commands(cli, copied("small", "clean", tmp_path / "a"))
    assert _commands(cli, copied("small", "clean", tmp_path / "b"), "--spark") == here
    assert len(on_spark) == 2
