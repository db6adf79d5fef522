"""``topics read`` of much: columns give what is read entry by entry, here, in processes, and stop early."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pulsar_admin.store.engine.local import LocalEngine
from tests import shapes
from tests.conftest import Cli
from tests.stores import imported
from tests.synthetic import Made, MadeTopic, make_store

T = "persistent://public/default/t"
START_MS = 1_700_000_000_000
ALL = ("--all-topics",)
PARTS: list[tuple[str, ...]] = [
    ALL,
    (*ALL, "--payload", "--value"),
    (*ALL, "--uncommitted", "--markers"),
    (*ALL, "--redact", "--payload"),
    (*ALL, "--key", "k0021"),
    (*ALL, "-n", "7", "--key", "k0003"),
    (*ALL, "--from", "8:3:2", "--to", "16:0:1"),
    (*ALL, "--from", "latest"),
    (*ALL, "--start-time", "@1795200000", "--end-time", "@1795230000", "--clock", "event"),
    (*ALL, "--start-time", "@1795230000", "--end-time", "@1795253003", "--payload"),
    (*ALL, "--start-time", "@1795230000", "--clock", "publish", "--key", "k0003", "-n", "9"),
    (*ALL, "--end-time", "@1795253003", "--clock", "broker", "--from", "8:3:2"),
]


@pytest.fixture
def columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """However little there is to read, it is read as columns."""
    monkeypatch.setattr("pulsar_admin.store.search.window.SMALL_MESSAGES", -1)


def read(cli: Cli, store: Path, *words: str) -> tuple[int, str]:
    result = cli("--store", store, "topics", "read", *words)
    return result.exit_code, result.stdout


@pytest.mark.parametrize("words", PARTS, ids=" ".join)
def test_columns_are_the_messages_read_one_by_one(words: tuple[str, ...], cli: Cli, request: Any) -> None:
    """``nometa`` has no times of a broker: it is read whole, and by each clock that would take them; ``shapes`` has every schema."""
    stores = [imported("small", "clean")]
    if words == ALL or "--value" in words:
        stores.append(shapes.store())
    if words == ALL or ("--end-time" in words and "publish" not in words):
        stores.append(imported("nometa", "mutated"))
    expected = [read(cli, store, *words, "-o", "jsonl") for store in stores]
    request.getfixturevalue("columns")
    assert [read(cli, store, *words, "-o", "jsonl") for store in stores] == expected
    assert any(text for _, text in expected)


@pytest.mark.parametrize("form", ["table", "csv", "json", "plain"])
def test_every_format_is_the_same(form: str, cli: Cli, request: Any) -> None:
    words = ("public/default/batched", "public/default/txn-out", "public/default/chunked", "--payload", "-o", form)
    expected = read(cli, imported("small", "clean"), *words)
    request.getfixturevalue("columns")
    assert read(cli, imported("small", "clean"), *words) == expected


@pytest.mark.usefixtures("columns")
def test_what_is_lost_is_counted_and_the_first_named(tmp_path: Path, cli: Cli) -> None:
    ledger = [Made(START_MS + index, lost=index in (1, 2)) for index in range(5)]
    store = make_store(tmp_path / "store", {T: MadeTopic([ledger, [Made(START_MS + 9)]])})
    answers = [cli("--store", store, "topics", "read", T, "-o", "jsonl", *more) for more in ((), ("--jobs", "2"))]
    for result in answers:
        assert (result.exit_code, [row["entryId"] for row in result.json_lines]) == (1, [0, 3, 4, 0])
        assert "of the window 2 entries are in no imported file; the first: entry" in result.stderr
        assert result.stderr.count(":1 is lost") == 1
    # What lies behind the last message wanted is not looked at.
    assert cli("--store", store, "topics", "read", T, "-n", "1", "--key", "none").exit_code == 1


@pytest.mark.usefixtures("columns")
def test_reading_stops_with_the_last_message_wanted(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 20 batches of entries one is read, not all."""
    store = make_store(tmp_path / "store", {T: MadeTopic([[Made(START_MS + index) for index in range(2000)]])})
    monkeypatch.setattr("pulsar_admin.store.scan.entries.BATCH_ENTRIES", 100)
    from pulsar_admin.store.scan.places import PlacesReader

    reads: list[int] = []
    plain = PlacesReader.read_places

    def watched(scan: PlacesReader, places: Any) -> Any:  # Any: Places → EntryBatch
        reads.append(len(places))
        return plain(scan, places)

    monkeypatch.setattr(PlacesReader, "read_places", watched)
    found = cli("--store", store, "topics", "read", T, "-n", "5", "-o", "jsonl").json_lines
    assert [row["entryId"] for row in found] == [0, 1, 2, 3, 4]
    assert sum(reads) <= 1024
    reads.clear()
    assert len(cli("--store", store, "topics", "read", T, "-o", "jsonl").json_lines) == 2000
    assert sum(reads) == 2000


def test_a_large_window_of_times_is_read_as_columns(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 6,000 messages none is read alone; a narrow window, or a few of a wide one, are read without numpy's help."""
    store = make_store(tmp_path / "store", {T: MadeTopic([[Made(START_MS + index) for index in range(6000)]])})
    alone, heads = _counted(monkeypatch)
    times = ("--start-time", f"@{START_MS + 10}", "-o", "jsonl")

    def entries(*words: str) -> list[int]:
        alone.clear()
        heads.clear()
        return [row["entryId"] for row in cli("--store", store, "topics", "read", T, *times, *words).json_lines]

    assert (entries(), len(alone)) == (list(range(10, 6000)), 0)
    assert sum(heads) <= 6000
    assert (entries("--end-time", f"@{START_MS + 20}"), heads) == (list(range(10, 20)), [])
    assert (entries("-n", "3"), heads) == ([10, 11, 12], [])


def _counted(monkeypatch: pytest.MonkeyPatch) -> tuple[list[int], list[int]]:
    """Count the entries that are read one by one, and those read as columns."""
    from pulsar_admin.store.model.reader import EntryReader
    from pulsar_admin.store.scan.places import PlacesReader

    alone: list[int] = []
    together: list[int] = []
    read_one, read_many = EntryReader.read, PlacesReader.read_places

    def one(reader: EntryReader, ledger_id: int, entry_id: int) -> Any:  # Any: Entry
        alone.append(entry_id)
        return read_one(reader, ledger_id, entry_id)

    def many(scan: PlacesReader, places: Any) -> Any:  # Any: Places → EntryBatch
        together.append(len(places))
        return read_many(scan, places)

    monkeypatch.setattr(EntryReader, "read", one)
    monkeypatch.setattr(PlacesReader, "read_places", many)
    return alone, together


@pytest.mark.usefixtures("columns")
def test_processes_are_used(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    run = LocalEngine.run

    def watched(engine: LocalEngine, operation: Any, pieces: Any, finished: Any) -> Any:
        asked.append(len(pieces))
        return run(engine, operation, pieces, finished)

    monkeypatch.setattr(LocalEngine, "run", watched)
    words = ("public/default/batched", "-o", "jsonl")
    assert read(cli, imported("small", "clean"), *words, "--jobs", "2") == read(cli, imported("small", "clean"), *words)
    assert asked
