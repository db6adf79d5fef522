"""``compaction read`` as columns: what is read entry by entry, of every kind of compacted entry; in processes, too."""

import hashlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pulsar_admin.store.compaction.keys import survey
from pulsar_admin.store.kernels.slots import SLOT
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.names import Position
from tests import shapes
from tests.compaction.entries import PUBLISH_MS, Batch, Slot, compacted, entry
from tests.conftest import Cli
from tests.deep import deep_but_for
from tests.stores import imported
from tests.synthetic import Made, MadeCompacted, MadeTopic, make_store

T = "persistent://public/default/t"
OUT = Slot(None, b"", compacted_out=True)


def _kinds() -> list[bytes]:
    """A compacted entry of every kind, 0 to 15, and what is none."""
    three = [Slot("a", b"1"), OUT, Slot("c", b"3")]
    found = [entry(Batch([*three[:2], Slot("c", b"%d" % codec)], codec, indexes=(0, 2))) for codec in range(5)]
    found += [
        entry(Batch(three, more={"schema_version": bytes(8)})),  # 5: placeholders without indexes, as before 4.2
        entry(Batch([three[0], three[2]], count=3, indexes=(0, 2))),  # 6: no placeholders
        entry(Batch([three[0], three[2]], count=3, indexes=(2, 0))),  # 7: indexes that do not ascend
        entry(Batch([OUT, OUT])),  # 8: nothing is left
        entry(Batch([Slot("s", b"alone")], alone=True)),  # 9
        entry(Batch([Slot("s", b"alone")], alone=True, indexes=(0,))),  # 10
        entry(Batch([Slot("z", b"alone" * 99)], 3, alone=True)),  # 11
        entry(Batch(three, encrypted=True, payload=b"\x91" * 40)),  # 12
        entry(Batch(three, payload=b"no batch")),  # 13
        entry(Batch([Slot("t", b"x")], alone=True, more={"txnid_most_bits": 0, "txnid_least_bits": 7})),  # 14
        b"\x08\x01no message",  # 15
    ]
    rows = [compacted(10, number, one) for number, one in enumerate(found)]
    packed = _packed(compacted(10, 20, found[0]))
    return [*rows, b"\x00\x00\x00\x01no entry", rows[0][:-1], b"", packed, compacted(10, 30, found[9])]


def _packed(payload: bytes) -> bytes:
    """Return a compacted entry whose field 31 is packed, which readers of protobuf take as well."""
    import struct

    import google_crc32c

    id_size = struct.unpack_from(">I", payload)[0]
    head, inner = payload[4 : 4 + id_size], payload[8 + id_size :]
    size = struct.unpack_from(">I", inner, 6)[0]
    metadata, rest = inner[10 : 10 + size], inner[10 + size :]
    assert b"\xf8\x01\x00\xf8\x01\x02" in metadata
    metadata = metadata.replace(b"\xf8\x01\x00\xf8\x01\x02", b"\xfa\x01\x02\x00\x02")
    body = struct.pack(">I", len(metadata)) + metadata + rest
    inner = b"\x0e\x01" + struct.pack(">I", google_crc32c.value(body)) + body
    return struct.pack(">I", len(head)) + head + struct.pack(">I", len(inner)) + inner


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of a topic with every kind of compacted entry, some lost, and messages behind its horizon."""
    behind = [Made(PUBLISH_MS + number) for number in range(40)]
    view = MadeCompacted(77, _kinds(), Position(10, 30), lost=(4,))
    topics = {T: MadeTopic([behind[:35], behind[35:]], compacted=view)}
    return make_store(tmp_path_factory.mktemp("made") / "store", topics)


@pytest.fixture
def columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """However little there is to read, it is read as columns."""
    monkeypatch.setattr("pulsar_admin.store.search.window.SMALL_MESSAGES", -1)


def read(cli: Cli, store: Path, *words: str) -> tuple[int, str]:
    """Return the exit code, but where reading stops early: columns have seen more by then; and the output."""
    result = cli("--store", store, "compaction", "read", *words)
    return 0 if "-n" in words else result.exit_code, result.stdout


PARTS: list[tuple[str, ...]] = [
    ("--payload", "--value", "-o", "jsonl"),
    ("--redact", "--payload", "-o", "csv"),
    ("--key", "k0003", "--key", "c", "-o", "json"),
    ("-n", "3", "--key", "s", "-o", "jsonl"),
]


VIEWS = ("--pattern", "acme/*/compacted*")
WITHOUT_A_VIEW = ("public/default/txn-out", "public/default/chunked", "public/default/avro")


@deep_but_for((1, 3), "words", PARTS, ids=" ".join)
def test_columns_are_the_messages_read_one_by_one(words: tuple[str, ...], cli: Cli, made: Path, request: Any) -> None:
    """Of topics without a view, all are read once, with everything that is shown of a message; else three of them."""
    all_topics = ("--all-topics",)
    worlds = [(imported("small", "clean"), all_topics if "--value" in words else WITHOUT_A_VIEW)]
    worlds += [(imported(name, state), VIEWS) for name, state in (("small", "clean"), ("nometa", "mutated"))]
    asked = [*worlds, (shapes.store(), all_topics), (made, all_topics)]
    expected = [read(cli, store, *topics, *words) for store, topics in asked]
    request.getfixturevalue("columns")
    assert [read(cli, store, *topics, *words) for store, topics in asked] == expected
    if words == PARTS[0]:
        assert [read(cli, store, *topics, *words, "--jobs", "2") for store, topics in asked] == expected
    assert any(text for _, text in expected)


@pytest.mark.usefixtures("columns")
def test_every_kind_of_entry(cli: Cli, made: Path) -> None:
    found = cli.on(made, f"compaction read {T} --payload -o jsonl")
    rows = [
        (row["entryId"], row["batchIndex"], row["key"], row["size"])
        for row in found.json_lines
        if row["ledgerId"] == 10 and row["entryId"] <= 30
    ]
    batch = [(0, "a", 1), (2, "c", 1)]
    expected = [(number, *one) for number in (0, 1, 2, 3, 5, 6) for one in batch]
    expected += [(9, -1, "s", 5), (10, -1, "s", 5), (11, -1, "z", 495), (12, -1, "a", 40), (14, -1, "t", 1)]
    expected += [(20, *one) for one in batch] + [(30, -1, "s", 5)]
    assert rows == expected
    assert found.exit_code == 1
    assert "7 problems in all" in found.stderr


def test_a_large_view_is_not_read_one_by_one(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 3,000 batches with placeholders, two messages left in each, none is read alone but the last."""
    kept = [
        compacted(10, number, entry(Batch([Slot("a", b"%d" % number), OUT, Slot("b", b"x")], indexes=(0, 2))))
        for number in range(3000)
    ]
    view = MadeCompacted(77, kept, Position(10, 5000))
    store = make_store(tmp_path / "store", {T: MadeTopic([[Made(PUBLISH_MS)]], compacted=view)})
    monkeypatch.setattr("pulsar_admin.store.search.window.SMALL_MESSAGES", 2500)
    alone: list[int] = []
    plain = EntryReader.read

    def counted(reader: EntryReader, ledger_id: int, entry_id: int) -> Any:  # Any: Entry
        alone.append(entry_id)
        return plain(reader, ledger_id, entry_id)

    monkeypatch.setattr(EntryReader, "read", counted)
    rows = cli.rows(store, f"compaction read {T} --key a")
    assert [row["entryId"] for row in rows if row["ledgerId"] == 10] == list(range(3000))
    assert rows[7]["sha1"] == hashlib.sha1(b"7", usedforsecurity=False).hexdigest()
    assert len(alone) <= 10


TIMES = [PUBLISH_MS + number for number in (-1, 0, 1, 150, 299, 300)]


@pytest.fixture(scope="module")
def backwards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of two topics: clocks that run backwards; and an entry that is none, and one that is lost, in the middle."""
    late = [(number * 37) % 300 for number in range(300)]
    kept = [
        compacted(10, number, entry(Batch([Slot("a", b"x")], alone=True, publish_ms=PUBLISH_MS + ms)))
        for number, ms in enumerate(late)
    ]
    sound = MadeCompacted(77, kept, Position(10, 500))
    broken = MadeCompacted(78, [*kept[:200], b"none", *kept[201:]], Position(11, 500), lost=(250,))
    topics = {
        T: MadeTopic([[Made(PUBLISH_MS)]], compacted=sound),
        f"{T}2": MadeTopic([[Made(PUBLISH_MS)]], compacted=broken),
    }
    return make_store(tmp_path_factory.mktemp("backwards") / "store", topics)


@pytest.mark.usefixtures("columns")
def test_a_time_is_found_as_one_by_one(cli: Cli, backwards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    late = [(number * 37) % 300 for number in range(300)]
    monkeypatch.setattr("pulsar_admin.store.scan.entries.BATCH_ENTRIES", 64)
    for time_ms in TIMES:
        first = next((number for number, ms in enumerate(late) if PUBLISH_MS + ms >= time_ms), None)
        words = ("--store", backwards, "compaction", "find-by-time", T, "--time", f"@{time_ms}", "-o", "json")
        for more in ((), ("--jobs", "2")):
            found = cli(*words, *more).json
            assert found["entriesRead"] == (300 if first is None else first + 1)
            assert (found["position"] or {}).get("entryId") == first
            assert found["entryTime"] == (None if first is None else PUBLISH_MS + late[first])


def test_an_empty_value_is_a_null_value_of_a_key_that_may_be_empty() -> None:
    slots = np.zeros(4, SLOT)
    slots["value_bytes"], slots["key_length"] = (0, -1, 1, 1), (0, 1, 0, -1)
    names = ("kind", "messages", "id_start", "id_end", "start", "end", "meta_end")
    found = survey(SimpleNamespace(rows={name: np.ones(1, np.int64) for name in names}, slots=slots))  # type: ignore[arg-type]
    assert (found.null_values, found.keyed, found.keyless) == (2, 1, 1)
