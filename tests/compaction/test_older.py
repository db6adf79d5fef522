"""Compacted topics that Pulsar 2.11.0 wrote, some closed before their last add: what its readers got of them (tests/golden/README.md)."""

from __future__ import annotations

from typing import Any

import pytest

from pulsar_admin.store.compaction.status import read_status
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.model.topics import read_topic
from pulsar_admin.store.names import parse_topic
from tests.compaction.test_recorded import read_rows
from tests.conftest import Cli
from tests.stores import imported
from tests.worlds import oracle

Row = list[Any]
SAID: dict[str, dict[str, Any]] = oracle("compacted-old")["topics"]
LOST = {"public/default/batched-lz4": (5, 13), "public/default/batched-none": (1, 14)}
"""Where their ledgers' pulsar/compactedTo ends, short of the cursor: a batch with a null value in it was taken for deleted."""


def _got(name: str) -> list[Row]:
    """Rows of the reader; 2.11.0 says of a last message outside batches that it has index 0, so that its reader waits for more."""
    return [row for row in SAID[name]["compacted_messages"] if row != ["Pulsar error: TimeOut"]]


def _horizon(name: str) -> tuple[int, int]:
    ledger, _, entry = SAID[name]["internal_stats"]["cursors"]["__compaction"]["markDeletePosition"].partition(":")
    return int(ledger), int(entry)


def _missed(name: str, end: tuple[int, int]) -> set[tuple[int, ...]]:
    """The latest values up to END, by a reader of all messages, that the reader with read-compacted did not get."""
    latest: dict[str, Row] = {}
    for row in SAID[name]["messages"]:
        if row[3] and (row[0], row[1]) <= end:
            latest[row[3]] = row
    got = _got(name)
    return {tuple(row[:3]) for row in latest.values() if row[5] and row not in got}


@pytest.mark.parametrize("name", SAID)
def test_read_is_the_recorded_reader(name: str) -> None:
    """The client shows no empty messages without a key in a batch."""
    with open_store(imported("compacted-old", "clean")) as store, open_reader(store) as reader:
        rows = read_rows(reader, name)
    found = [[ledger, entry_id, index, key, sha1, size] for ledger, entry_id, index, _, key, size, sha1 in rows]
    assert [row for row in found if row[3] or row[5]] == _got(name)


@pytest.mark.parametrize("name", SAID)
def test_verify_names_what_the_reader_missed_and_nothing_else(name: str, cli: Cli) -> None:
    found = cli("--store", imported("compacted-old", "clean"), "compaction", "verify", name, "-o", "json").json
    places = [row["position"] for row in found["findings"] if row["kind"] == "missing"]
    named = {(place["ledgerId"], place["entryId"], place["batchIndex"]) for place in places}
    assert named == _missed(name, LOST.get(name, _horizon(name)))
    assert {row["kind"] for row in found["findings"]} == ({"status", "missing"} if name in LOST else set())
    assert found["rule"] in ("4.2", None)


@pytest.mark.parametrize("name", SAID)
def test_status_counts_what_is_there(name: str) -> None:
    with open_store(imported("compacted-old", "clean")) as store, open_reader(store) as reader:
        found = read_status(reader, read_topic(reader.txn, parse_topic(name)))
    stated = SAID[name]["internal_stats"]["compactedLedger"]
    assert (found.ledger.entries, found.ledger.size_bytes) == (stated["entries"], stated["size"])
    assert found.ledger.missing_entries == 0
    assert found.ledger.unread_entries == (1 if name == "public/default/batched-none" else 0)
    assert bool(found.problems) == (name in LOST)
