"""``topics copy``: what a live broker said of a topic in its own store is true of the copy, ledger ids apart."""

import os
import re
from pathlib import Path
from typing import Any

import pytest

import pulsar_admin as pa
from pulsar_admin.store.codec.cursor import CursorInfo
from pulsar_admin.store.db.locks import take_writer_lock
from pulsar_admin.store.errors import AlreadyExists
from pulsar_admin.store.names import Position
from tests.conftest import Cli
from tests.plans.test_expiry import put_json
from tests.stores import copied, imported
from tests.synthetic import Made, MadeTopic, make_store
from tests.worlds import assert_unchanged, oracle

PARTS = "acme/orders/parts"


@pytest.fixture
def empty(cli: Cli, tmp_path: Path) -> Path:
    path = tmp_path / "copy"
    assert cli("--store", path, "store", "init").exit_code == 0
    return path


def rows(cli: Cli, store: Path, *words: str) -> list[Any]:
    result = cli.done("--store", store, *words, "-o", "jsonl")
    return result.json_lines


def test_all_topics_of_a_recorded_world(cli: Cli, empty: Path) -> None:
    """Messages, positions, holes and backlogs: chunks, batches, delayed, compacted, encrypted and partitioned topics together."""
    source = imported("small", "mutated")
    answers = {name: found for name, found in oracle("small")["topics"].items() if "internal_stats_after" in found}
    assert len(answers) > 10
    with assert_unchanged(source / "meta" / "data.mdb"):
        done = cli("--store", empty, "topics", "copy", *answers, "--from", source, "-o", "jsonl")
    assert done.exit_code == 0, done.stderr
    assert "has a schema here" not in done.stdout + done.stderr
    holes = 0
    for name, found in answers.items():
        theirs = found["internal_stats_after"]
        listed = [ledger["ledgerId"] for ledger in theirs["ledgers"] if ledger["entries"]]
        ours = cli("--store", empty, "topics", "stats-internal", name, "-o", "json").json
        copies = [ledger["ledgerId"] for ledger in ours["ledgers"] if ledger["entries"]]
        assert ours["numberOfEntries"] == theirs["numberOfEntries"]
        assert ours["totalSize"] == theirs["totalSize"]
        if not listed:
            continue
        ids = dict(zip(listed, copies, strict=True))
        for cursor, wanted in theirs["cursors"].items():
            if cursor == "__compaction":
                assert cursor not in ours["cursors"]
                continue
            got = ours["cursors"][cursor]
            for key in ("markDeletePosition", "individuallyDeletedMessages"):
                assert got[key] == _moved(wanted[key], ids), (name, cursor, key)
            assert got["numberOfEntriesSinceFirstNotAckedMessage"] == wanted["numberOfEntriesSinceFirstNotAckedMessage"]
            holes += got["individuallyDeletedMessages"] != "[]"
        keys = ("ledgerId", "entryId", "batchIndex", "publishTime", "size", "sha1")
        messages = [(*row[:4], *row[7:9]) for row in found["messages"] if row[0] in ids]
        if "secret" in name:  # encrypted batches are one row without the key
            messages = [tuple(row[key] for key in keys) for row in rows(cli, source, "topics", "read", name)]
        read = [tuple(row[key] for key in keys) for row in rows(cli, empty, "topics", "read", name)]
        assert sorted(read) == sorted((ids[row[0]], *row[1:]) for row in messages), name
    assert holes > 1


def _moved(text: str, ids: dict[int, int]) -> str:
    """TEXT with the positions of the copy; one in a ledger that was trimmed is in front of the first entry there is."""
    first = min(ids.values())
    return re.sub(
        r"(\d+):(-?\d+)",
        lambda match: f"{ids[int(match[1])]}:{match[2]}" if int(match[1]) in ids else f"{first}:-1",
        text,
    )


def test_a_copy_beside_its_topic_under_another_name(cli: Cli, tmp_path: Path) -> None:
    here, there = copied("small", "mutated", tmp_path), imported("small", "clean")
    before = (here / "meta" / "data.mdb").read_bytes()
    ask = ("--store", here, "topics", "copy", PARTS, "--from", there, "--to", "acme/orders/again")
    assert cli("--store", here, "topics", "copy", PARTS, "--from", there).exit_code == 3
    with assert_unchanged(here / "meta" / "data.mdb"):
        previewed = cli(*ask, "--dry-run", "-o", "jsonl").json_lines
    done = cli(*ask, "-o", "jsonl").json_lines
    assert [(row["topic"], row.get("messages")) for row in done] == [
        (row["topic"], row.get("messages")) for row in previewed
    ]
    assert {row["topic"].rpartition("/")[2] for row in done} == {f"again-partition-{number}" for number in range(3)}
    assert cli("--store", here, "store", "undo", "1").exit_code == 0
    assert cli("--store", here, "topics", "stats", "acme/orders/again").exit_code == 5
    assert before != (here / "meta" / "data.mdb").read_bytes()


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """a/b/t: ledgers 10 (a batch of 3, 1), 11 (empty), 12 (1, 1); cursors in a batch, in the empty ledger, at the end."""
    cursors = {
        "batch": CursorInfo(-1, Position(10, -1), ((Position(10, 0), Position(10, 1)),), {Position(10, 0): (6,)}),
        "between": CursorInfo(-1, Position(11, -1)),
        "hole": CursorInfo(-1, Position(10, 0), ((Position(12, -1), Position(12, 0)),)),
        "end": CursorInfo(-1, Position(12, 1)),
        ".": CursorInfo(-1, Position(12, 1)),  # clients make such ones of brokers with RocksDB
        "pulsar.repl.west": CursorInfo(-1, Position(10, -1)),
    }
    ledgers = [[Made(1, batch=3), Made(2)], [], [Made(3), Made(4)]]
    path = make_store(tmp_path / "made", {"a/b/t": MadeTopic(ledgers, cursors=cursors), "a/b/empty": MadeTopic([[]])})
    put_json(path, "/admin/policies/a/b", {"replication_clusters": ["c"]})
    put_json(path, "/admin/topic-policies/local/a/b/persistent/t", {"messageTTLInSeconds": 250})
    return path


def test_a_topic_whose_entries_are_not_all_there_is_refused(cli: Cli, tmp_path: Path, empty: Path) -> None:
    path = make_store(tmp_path / "lost", {"a/b/t": MadeTopic([[Made(1), Made(2, lost=True), Made(3)]])})
    for more in ((), ("--dry-run",)):
        with assert_unchanged(empty / "meta" / "data.mdb"):
            result = cli("--store", empty, "topics", "copy", "a/b/t", "--from", path, *more, "-o", "json")
        assert (result.exit_code, result.error["code"]) == (3, "refused")
        assert "1 entry of ledger 10" in result.error["message"]


def test_a_flipped_bit_in_the_source_is_not_copied(cli: Cli, tmp_path: Path, empty: Path) -> None:
    """Entries are read with their digests: nothing is written, not even a log, and the position is named."""
    around = bytes(1 << 18)  # a file that is short is known as another one by its first bytes
    middle = Made(2, payload=around + b"flip me" + around)
    path = make_store(tmp_path / "rotten", {"a/b/t": MadeTopic([[Made(1), middle, Made(3)]])})
    log = path / "entries" / "0.log"
    log.write_bytes(log.read_bytes().replace(b"flip me", b"flip mE"))
    with assert_unchanged(empty / "meta" / "data.mdb"):
        result = cli("--store", empty, "topics", "copy", "a/b/t", "--from", path, "-o", "json")
    assert result.exit_code == 6, result.stderr
    assert "10:1" in result.error["message"] or "entry 1 of ledger 10" in result.error["message"]
    assert list((empty / "entries").iterdir()) == []


def test_a_copy_beside_a_writer_is_refused(cli: Cli, made: Path, empty: Path) -> None:
    """Another copy holds the lock of the target; that of the source, which is read, may be held."""
    copy = ("--store", empty, "topics", "copy", "a/b/t", "--from", made, "-o", "json")
    for lock in map(take_writer_lock, (empty, made)):
        result = cli(*copy)
        os.close(lock)
        if result.exit_code == 0:
            break
        assert (result.exit_code, result.error["code"]) == (4, "store-busy")
        assert list((empty / "entries").iterdir()) == []
    assert result.exit_code == 0, result.stderr
    cli(*copy).fails(3, "already-exists")


def test_python(made: Path, empty: Path) -> None:
    with pa.open_store(empty, writable=True) as store:
        plan = store.copy("a/b/t", source=made, to="a/b/u")
        assert [part.subscription for part in plan.preview().parts] == [None, ".", "batch", "between", "end", "hole"]
        store.apply(plan)
        assert store.topic("a/b/u").cursor("hole").state().backlog_entries == 2
        with pytest.raises(AlreadyExists):
            store.copy("a/b/t", source=made, to="a/b/u").preview()
