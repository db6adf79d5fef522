"""``delayed verify`` counts and names exactly what is wrong in an index, and lists it in order."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from pulsar_admin.store.codec.cursor import decode_cursor_info, encode_cursor_info
from pulsar_admin.store.codec.ledgermetadata import ledger_path
from pulsar_admin.store.db.delayed_entries import DelayedRows, sorted_rows
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.db.tree import read_node
from pulsar_admin.store.delayed.backlog import DelayScan, read_due_times
from pulsar_admin.store.delayed.build import Draft, apply_draft
from pulsar_admin.store.delayed.runs import SortedRuns, open_runs
from pulsar_admin.store.delayed.trackers import bitmap_bytes, queue_bytes
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.model.references import index_owners
from pulsar_admin.store.names import parse_topic
from tests.conftest import Cli
from tests.delayed.world import TOPIC, Message, build, held, index_of, sent
from tests.stores import copied, imported, put_node, read_store

TICK_MS = 1000


def verified(cli: Cli, path: Path, change: Any) -> tuple[int, int, list[tuple[str, int, str]]]:
    """Write the index of ``workers`` anew with what CHANGE makes of its messages; return messages, exit code, findings."""
    with open_store(path, writable=True) as store:
        build(store, "workers")
        messages = held(store, "workers")
        index = index_of(store, "workers")
        with open_runs() as file:
            with open_reader(store) as reader:
                draft = Draft(
                    replace(index, partitions=()), DelayScan(reader), reader.txn.id, SortedRuns(file, index.rules)
                )
            for message in change(messages):
                draft.writes.add(DelayedRows(*np.array([message], np.int64).T))
            apply_draft(store, draft)
    result = cli.on(path, f"delayed verify {TOPIC} -s workers -o json")
    (row,) = result.json
    findings = [
        (one["kind"], one["messages"], one["message"].partition(";")[0].split(": ")[-1])
        for one in row["findings"]
        if one["kind"].startswith("index")
    ]
    return len(messages), result.exit_code, findings


@pytest.mark.parametrize("shift_ms", [TICK_MS, -TICK_MS])
def test_lost_moved_and_strange_messages(shift_ms: int, cli: Cli, tmp_path: Path) -> None:
    named: dict[str, list[Message]] = {}

    def change(messages: list[Message]) -> list[Message]:
        first, *rest = sorted(messages, key=lambda message: message[1:])
        named["lost"] = sorted(rest[5:10], key=lambda message: message[1:])
        strange = (first[0], first[1], 999_999)
        named["wrong"] = [first, strange]
        moved = (first[0] + shift_ms, *first[1:])
        return [moved, *rest[:5], *rest[10:], strange]

    _, code, findings = verified(cli, copied("small", "clean", tmp_path), change)
    assert code == 1
    assert findings == [("index-surplus", 2, text(named["wrong"])), ("index-lacks", 5, text(named["lost"]) + " …")]


def text(messages: list[Message]) -> str:
    return ", ".join(f"{ledger}:{entry}" for _, ledger, entry in messages[:3])


def test_a_message_twice(cli: Cli, tmp_path: Path) -> None:
    """The same place at two times: nothing is lacking, one of the two is wrong. At one time: neither is."""

    def change(messages: list[Message]) -> list[Message]:
        time, *place = messages[0]
        return [*messages, (time - 5 * TICK_MS, *place)]

    _, code, findings = verified(cli, copied("small", "clean", tmp_path), change)
    assert code == 1
    assert [(kind, count) for kind, count, _ in findings] == [("index-surplus", 1)]
    again = copied("small", "clean", tmp_path / "again")
    _, code, findings = verified(cli, again, lambda messages: [*messages, messages[0]])
    assert (code, findings) == (1, [("index-surplus", 0, "the index has messages twice")])


# -- ledgers of an index are named as what they are; those that no directory names any more are told apart ----------


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return copied("small", "clean", tmp_path)


def rows(cli: Cli, path: Path, *words: str) -> list[Any]:
    result = cli("--store", path, *words, "-o", "jsonl")
    assert result.exit_code in (0, 1), result.stderr
    return result.json_lines


def findings(cli: Cli, path: Path) -> list[Any]:
    return [row for row in rows(cli, path, "store", "check") if row["severity"] != "summary"]


def test_ledgers_of_an_index_are_named(cli: Cli, path: Path) -> None:
    orphans, checked = rows(cli, path, "ledgers", "orphans"), findings(cli, path)
    usage = rows(cli, path, "store", "usage")
    with open_store(path, writable=True) as store:
        build(store, "workers")
        mine = set(index_of(store, "workers").ledger_ids)
    assert len(mine) > 50
    assert rows(cli, path, "ledgers", "orphans") == orphans
    assert findings(cli, path) == checked
    (used,) = [row for row in rows(cli, path, "store", "usage") if row not in usage]
    assert (used["owner"], used["kind"], used["ledgers"]) == (TOPIC, "delayed-index", len(mine))
    (log,) = [row for row in rows(cli, path, "store", "usage", "--by", "log") if "/own-" in row["path"]]
    assert (log["dead"], log["freed"], log["keptFor"]) == (0, False, [TOPIC])
    listed = {row["ledgerId"]: row for row in rows(cli, path, "ledgers", "list")}
    for ledger_id in mine:
        assert listed[ledger_id]["state"] == "INDEX"
        assert listed[ledger_id]["owners"] == [{"kind": "delayed-index", "topic": TOPIC, "cursor": "workers"}]
    document = cli.json(path, f"ledgers info {min(mine)}")
    assert (document["state"], document["owners"]) == ("INDEX", listed[min(mine)]["owners"])


def test_leaked_ledgers_are_told_apart(cli: Cli, path: Path) -> None:
    """What a rebuild leaves behind: in entry files, in no directory."""
    orphans = rows(cli, path, "ledgers", "orphans")
    with open_store(path, writable=True) as store:
        build(store, "workers")
        before = set(index_of(store, "workers").ledger_ids)
        build(store, "workers", rebuild=True)
        after = set(index_of(store, "workers").ledger_ids)
    assert not before & after
    leaked = [row for row in rows(cli, path, "ledgers", "orphans") if row not in orphans]
    assert {row["ledgerId"] for row in leaked} == before
    assert {row["reason"] for row in leaked} == {"leaked-index"}
    told = [row for row in rows(cli, path, "doctor") if row["code"] == "leaked-index"]
    assert [row["evidence"]["ledgers"] for row in told] == [len(before)]


# -- what a broker needs for a delayed backlog ----------------------------------------------------------------------


# TripleLongPriorityQueue.bytesCapacity() of pulsar-common 4.0.8 after so many add().
ADDED = (1, 16, 17, 142, 1000, 100_000, 1_000_000, 5_000_000)
CAPACITIES = (384, 384, 768, 4608, 34_992, 3_026_312, 33_554_432, 134_217_728)


@pytest.mark.parametrize(("messages", "size_bytes"), [*zip(ADDED, CAPACITIES, strict=True)])
def test_queues_are_as_large_as_real_ones(messages: int, size_bytes: int) -> None:
    assert queue_bytes(messages) == size_bytes


def test_bitmaps_by_trimmed_time() -> None:
    """A tick of 1000 ms trims 9 bits: 0 and 511 are one time, 512 another; two ledgers are two bitmaps."""
    columns = np.array([(0, 5, 1), (511, 5, 2), (511, 5, 4), (511, 6, 1), (512, 5, 3)])
    rows = sorted_rows(columns[:, 0], columns[:, 1], columns[:, 2])
    assert bitmap_bytes([rows], 1000) == 2 * 56 + 3 * 176 + 5 * 2


def test_a_bucket_whose_ledger_is_gone_hides_no_other(cli: Cli, path: Path, damages_stores: None) -> None:
    whole = cli.json(path, f"delayed status {TOPIC} -s workers")[0]["trackers"]
    where = parse_topic(TOPIC).cursor_path("workers")
    with open_store(path) as store, store.read() as txn:
        info = decode_cursor_info(read_node(txn, where).value, where)
    gone = {"#a": "1", "#pulsar.internal.delayed.bucket_1_2": "99999", "#pulsar.internal.delayed.bucket_1_3": "9"}
    put_node(path, where, encode_cursor_info(replace(info, cursor_properties=gone | info.cursor_properties)))
    assert cli.json(path, f"delayed status {TOPIC} -s workers")[0]["trackers"] == whole
    (found,) = cli.on(path, f"delayed verify {TOPIC} -s workers -o json").json
    assert (found["buckets"], found["inBuckets"]) == (3, 100)
    assert [one["kind"] for one in found["findings"]] == [*("bucket-ledger-gone", "bucket-damaged", "buckets-overlap")]
    put_node(path, where, encode_cursor_info(replace(info, cursor_properties={})))
    put_node(path, ledger_path(89), b"\xff")  # before the leaked one
    with open_store(path, writable=True) as store:
        store.write(lambda txn: index_owners(store, txn))
    _, leaked = cli.on(path, f"delayed verify {TOPIC} -s workers -o json").json
    assert [one["ledgerId"] for one in leaked["findings"]] == [108]


def test_due_times_of_entries_that_are_there() -> None:
    times = sent("small")
    place = min(times)
    rows = DelayedRows(*np.array([(0, 1, 10**6), (0, 9, 0), (0, *place)], np.int64).T)  # lost, not delayed, delayed
    found = read_store(imported("small", "clean"), lambda reader: read_due_times(reader, rows))
    assert found[place] - times[place] in range(4)  # clients round up
    assert found.keys() == {(9, 0), place}


def test_an_index_whose_ledger_is_lost_is_told(cli: Cli, path: Path, damages_stores: None) -> None:
    with open_store(path, writable=True) as store:
        build(store, "workers")
        lost = index_of(store, "workers").ledger_ids[0]
        store.write(lambda txn: txn.delete("times", lost.to_bytes(8, "big")))
    (found,) = cli.on(path, f"delayed verify {TOPIC} -s workers -o json").json
    (told,) = found["findings"]
    assert (told["kind"], f"ledger {lost} " in told["message"]) == ("index-damaged", True)
