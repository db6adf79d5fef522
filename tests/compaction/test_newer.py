"""Compacted topics that Pulsar 4.2.4 wrote: what its readers got of them and where it left its cursors (tests/golden/README.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from store.compaction.last_id import find_last_id
from store.compaction.status import read_status
from store.ledgers import open_reader
from store.meta import open_store
from store.names import Position, parse_topic
from store.topics import read_topic
from tests.compaction.entries import PUBLISH_MS, Batch, Slot, compacted, entry
from tests.compaction.test_recorded import read_rows
from tests.conftest import Cli
from tests.stores import imported
from tests.synthetic import Made, MadeCompacted, MadeTopic, make_store
from tests.worlds import oracle

SAID: dict[str, dict[str, Any]] = oracle("compacted")["topics"]
SECRET = "public/default/secret"
TOPIC = "public/default/t"


def test_there_is_something_to_compare() -> None:
    assert len(SAID) == 14
    assert sum(len(said["compacted_messages"]) for said in SAID.values()) > 140
    marks = [said["internal_stats"]["cursors"]["__compaction"]["markDeletePosition"] for said in SAID.values()]
    assert sum(mark.endswith(":-1") for mark in marks) == 4


@pytest.mark.parametrize("name", SAID)
def test_read_is_the_recorded_reader(name: str) -> None:
    """Message by message; the reader had the key of the encrypted ones, whose entries are compared."""
    said = SAID[name]["compacted_messages"]
    with open_store(imported("compacted", "clean")) as store, open_reader(store) as reader:
        rows = read_rows(reader, name)
    found = [[ledger, entry_id, index, key, sha1, size] for ledger, entry_id, index, _, key, size, sha1 in rows]
    if name == SECRET:
        assert [row[:2] for row in found] == [list(place) for place in sorted({tuple(row[:2]) for row in said})]
    else:
        assert found == said


@pytest.mark.parametrize("name", SAID)
def test_last_id_is_the_broker_s(name: str) -> None:
    with open_store(imported("compacted", "clean")) as store, open_reader(store) as reader:
        found = find_last_id(reader, read_topic(reader.txn, parse_topic(name)), verify=True).position
    assert [found.ledger_id, found.entry_id, found.batch_index] == SAID[name]["last_message_id"]


@pytest.mark.parametrize("name", SAID)
def test_status_of_a_healthy_topic(name: str) -> None:
    """``batched-lz4`` stands at (next ledger, −1), others so in an empty one; ``ends-with-nulls`` behind its last value."""
    stats = SAID[name]["internal_stats"]
    with open_store(imported("compacted", "clean")) as store, open_reader(store) as reader:
        found = read_status(reader, read_topic(reader.txn, parse_topic(name)))
    assert found.problems == ()
    assert found.ledger is not None
    assert (found.ledger.ledger_id, found.ledger.entries, found.ledger.size_bytes) == (
        stats["compactedLedger"]["ledgerId"],
        stats["compactedLedger"]["entries"],
        stats["compactedLedger"]["size"],
    )
    assert found.entries_since == {"public/default/batched-lz4": 2, "public/default/single": 10}.get(name, 0)


@pytest.mark.parametrize("name", [SECRET, "public/default/single-lz4", "public/default/batched-lz4"])
def test_a_broker_keeps_its_own_metadata_to_itself(name: str, cli: Cli) -> None:
    """Its compactor is a client: entries that it kept whole lack the broker metadata that the topic's have."""
    report = cli("--store", imported("compacted", "clean"), "compaction", "verify", name, "-o", "json")
    assert (report.exit_code, report.json["findings"]) == (0, [])


# -- the place of a position ------------------------------------------------------------------------------------------

VALUE, NULL = (entry(Batch([Slot("k", value)], alone=True)) for value in (b"v", None))
HALF = entry(Batch([Slot("k", None), Slot("l", b"v")]))
NULLS = entry(Batch([Slot("k", None), Slot(None, b"no key")]))


def _problems(path: Path, ledgers: list[list[bytes]], horizon: Position, compacted_to: Position) -> tuple[str, ...]:
    made = MadeCompacted(77, [compacted(10, 0, VALUE)], horizon, compacted_to=compacted_to)
    entries = [[Made(PUBLISH_MS, raw=raw) for raw in ledger] for ledger in ledgers]
    store = make_store(path / "s", {TOPIC: MadeTopic(entries, compacted=made)})
    with open_store(store) as opened, open_reader(opened) as reader:
        return read_status(reader, read_topic(reader.txn, parse_topic(TOPIC))).problems


@pytest.mark.parametrize("behind", [[], [VALUE], [VALUE, VALUE]])
@pytest.mark.parametrize("empty", [0, 1, 2])
def test_the_beginning_of_a_ledger_is_the_end_of_those_before(tmp_path: Path, empty: int, behind: list[bytes]) -> None:
    ledgers = [[VALUE, VALUE], *[[]] * empty, behind]
    assert _problems(tmp_path, ledgers, Position(11 + empty, -1), Position(10, 1)) == ()


@pytest.mark.parametrize("horizon", [Position(11, 0), Position(12, -1)])
def test_a_message_between_is_missed(tmp_path: Path, horizon: Position) -> None:
    (problem,) = _problems(tmp_path, [[VALUE, VALUE], [VALUE], []], horizon, Position(10, 1))
    assert problem.startswith("__compaction is ahead: it stands at 11:0, its ledger is compacted to 10:1;")
    assert problem.endswith("miss what lies between them, 11:0 first")


def test_what_a_compaction_deletes_is_not_missed(tmp_path: Path) -> None:
    behind = [VALUE, NULL, NULLS, NULL]
    assert _problems(tmp_path / "a", [behind], Position(10, 3), Position(10, 0)) == ()
    (problem,) = _problems(tmp_path / "b", [[*behind, HALF]], Position(10, 4), Position(10, 0))
    assert problem.endswith("miss what lies between them, 10:4 first")


def test_a_ledger_is_rewritten_where_the_cursor_stands_at_the_beginning_of_another(tmp_path: Path, cli: Cli) -> None:
    old = compacted(10, 0, entry(Batch([Slot("k", b"v"), Slot("l", compacted_out=True)])))
    made = MadeCompacted(77, [old], Position(11, -1), compacted_to=Position(10, 0))
    store = make_store(
        tmp_path / "s",
        {TOPIC: MadeTopic([[Made(PUBLISH_MS, raw=VALUE)], [Made(PUBLISH_MS, raw=VALUE)]], compacted=made)},
    )
    report = cli("--store", store, "compaction", "upgrade", TOPIC, "-o", "json").json
    assert report["after"]["markDeletePosition"] == "11:-1"
    status = cli("--store", store, "compaction", "status", TOPIC, "-o", "json").json
    place = status["ledger"]["compactedTo"]
    assert (status["problems"], place["ledgerId"], place["entryId"]) == ([], 10, 0)
