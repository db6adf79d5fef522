"""The delayed message index built by an engine: the bytes of the one built here, for many topics at once."""

import json
from pathlib import Path

import numpy as np
import pytest

from pulsar_admin.store.codec.cursor import CursorInfo
from pulsar_admin.store.codec.message import encode_message_entry
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.delayed.backlog import DelayScan
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.names import Position
from pulsar_admin.store.proto.pulsar_api_pb2 import MessageMetadata
from tests.conftest import Cli
from tests.delayed.world import messages_of
from tests.stores import copied, imported
from tests.synthetic import Made, MadeTopic, make_store

NOW = ("--now", "@1795260000000")
BUILD = ("delayed", "build", "--all-topics", "-o", "json", *NOW)
ENGINES = [("--jobs", "2"), pytest.param(("--spark",), marks=pytest.mark.spark)]
READING = [
    ("delayed", "histogram", "--pattern", "*/acme/*", "-o", "json", *NOW),
    ("delayed", "verify", "--all-topics", "-o", "json"),
]


def answer(cli: Cli, store: Path, *words: str) -> tuple[int, str, str]:
    result = cli("--store", store, *words)
    return result.exit_code, result.stdout, result.stderr


def written(path: Path) -> tuple[list[bytes], list[tuple[bytes, bytes]]]:
    """What a build leaves: entry logs of its own, and every index row."""
    logs = [log.read_bytes() for log in sorted((path / "entries").glob("own-*.log"))]
    with open_store(path) as store, store.read() as txn:
        return logs, [(bytes(key), bytes(row)) for key, row in txn.items("delayed")]


@pytest.mark.parametrize("engine", ENGINES, ids=" ".join)
def test_index_is_the_same(cli: Cli, tmp_path: Path, on_spark: list[int], engine: tuple[str, ...]) -> None:
    here, there = (copied("small", "mutated", tmp_path / name) for name in ("here", "there"))
    plain = answer(cli, here, *BUILD)
    assert answer(cli, there, *BUILD, *engine) == plain
    assert written(there) == written(here)
    assert len(written(here)[0]) > 0
    assert on_spark == ([1] if "--spark" in engine else [])


@pytest.mark.parametrize("engine", ENGINES, ids=" ".join)
@pytest.mark.parametrize("words", READING, ids=lambda words: words[1])
def test_answers_are_the_same(cli: Cli, on_spark: list[int], words: tuple[str, ...], engine: tuple[str, ...]) -> None:
    store = imported("small", "mutated")
    assert answer(cli, store, *words, *engine) == answer(cli, store, *words)


@pytest.mark.parametrize("engine", ENGINES, ids=" ".join)
def test_entries_of_all_kinds(cli: Cli, tmp_path: Path, on_spark: list[int], engine: tuple[str, ...]) -> None:
    """Lost entries, both fields of a delay, nothing delayed: over several topics."""
    stores = [made(tmp_path / name) for name in ("here", "there")]
    plain = answer(cli, stores[0], *BUILD)
    assert answer(cli, stores[1], *BUILD, *engine) == plain
    assert [(row["added"], row["missing"], row["unreadable"]) for row in json.loads(plain[1])] == [(4, 1, 0)] * 3
    assert plain[0] == 1
    assert written(stores[1]) == written(stores[0])


def test_what_an_engine_doubts_is_read_here(tmp_path: Path) -> None:
    """As if every second entry had been found changed since the import: this process has the last word."""
    with open_store(made(tmp_path / "one")) as store, open_reader(store) as reader:
        plain, asked = (DelayScan(reader, [(10, 0, 5)]) for _ in range(2))
        (places,) = plain.entry_scan.groups()
        (places,) = asked.entry_scan.groups()
        wanted = messages_of(plain.take(places))
        due = {place[1:]: place[0] for place in wanted}
        sure = [row for row in (0, 2, 4) if (10, int(places.entry_ids[row])) in due]
        found = {
            "rows": np.array(sure, np.int32).tobytes(),
            "due_ms": np.array([due[10, int(places.entry_ids[row])] for row in sure], np.int64).tobytes(),
            "doubtful": np.array([1, 3], np.int32).tobytes(),
        }
        assert sorted(messages_of(asked.take_found(places, found))) == sorted(wanted)
        assert asked.entries == plain.entries == 5


def made(path: Path) -> Path:
    topics = {}
    for number in range(3):
        entries = [
            delayed(1000, 70_000 + number),
            Made(1, lost=True),
            Made(2, raw=with_delay_field(6_000)),
            Made(3, batch=3),
            delayed(1000, 90_000),
            delayed(1000, 95_000),
        ]
        cursors = {"s": CursorInfo(cursors_ledger_id=-1, mark_delete=Position(10 + number, -1))}
        topics[f"persistent://a/b/t{number}"] = MadeTopic([entries], cursors=cursors)
    path.mkdir()
    return make_store(path / "store", topics)


def delayed(publish_ms: int, due_ms: int) -> Made:
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=publish_ms, deliver_at_time=due_ms)
    return Made(publish_ms, raw=encode_message_entry(metadata, b"x"))


def with_delay_field(publish_ms: int) -> bytes:
    body = MessageMetadata(producer_name="p", sequence_id=0, publish_time=publish_ms).SerializeToString()
    body += b"\x90\x01\x80\xdd\xdb\x01"  # 18 varint 3_600_000
    return len(body).to_bytes(4, "big") + body + b"x"
