"""Compacted topics that Pulsar 4.2.4 wrote: what its readers got of them and where it left its cursors (tests/golden/README.md)."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from pulsar_admin.store.compaction.compactor import Compaction, CompactionRules, SourceOptions, prepare
from pulsar_admin.store.compaction.last_id import find_last_id
from pulsar_admin.store.compaction.status import read_status
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.model.compacted_view import find_compacted_view
from pulsar_admin.store.model.cursors import iter_ledger_parts
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.model.topics import read_topic
from pulsar_admin.store.names import Position, parse_topic
from pulsar_admin.store.proto.pulsar_api_pb2 import MessageMetadata
from tests.compaction.entries import LZ4, PUBLISH_MS, Batch, Slot, compacted, decompressed, entry, split
from tests.compaction.test_recorded import read_rows
from tests.conftest import Cli
from tests.stores import imported
from tests.synthetic import Made, MadeCompacted, MadeTopic, make_store
from tests.worlds import oracle

SAID: dict[str, dict[str, Any]] = oracle("compacted")["topics"]
SECRET = "public/default/secret"
TOPIC = "public/default/t"


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
    assert (found.ledger.ledger_id, found.ledger.entries, found.ledger.size_bytes) == (
        stats["compactedLedger"]["ledgerId"],
        stats["compactedLedger"]["entries"],
        stats["compactedLedger"]["size"],
    )
    assert found.entries_since == {"public/default/batched-lz4": 2, "public/default/single": 10}.get(name, 0)


@pytest.mark.parametrize("name", SAID)
def test_verify_finds_nothing_and_recognises_the_broker(name: str, cli: Cli) -> None:
    """Its compactor is a client: entries that it kept whole lack the broker metadata that the topic's have."""
    report = cli("--store", imported("compacted", "clean"), "compaction", "verify", name, "-o", "json")
    assert (report.exit_code, report.json["findings"]) == (0, [])
    entries = SAID[name]["internal_stats"]["compactedLedger"]["entries"]
    is_batched = "batched" in name or "parts" in name or "once" in name
    assert report.json["formats"] == ({"indexed": entries} if is_batched and entries else {})
    # Only messages alone that state no size are null by one rule and not by the other.
    is_told = name.split("/")[-1] in ("single", "all-null", "ends-with-nulls")
    assert report.json["rule"] == ("4.2" if is_told else None)


@pytest.mark.parametrize("name", SAID)
def test_ledger_is_the_broker_s(name: str) -> None:
    """The two phases over the topic's own entries give what 4.2.4 wrote in two compactions one after the other.

    Byte by byte but for compressed payloads, which its libraries pack otherwise.
    """
    with open_store(imported("compacted", "clean")) as store, open_reader(store) as reader:
        topic = read_topic(reader.txn, parse_topic(name))
        view = find_compacted_view(reader, topic)
        prepared = prepare(reader, topic, SourceOptions(from_start=True, encrypted_by_key=True))
        prepared.source.parts = tuple(iter_ledger_parts(topic, 0, topic.place(view.horizon)))
        compaction = Compaction(prepared.source, CompactionRules(), topic.name.partition_index)
        compaction.find_latest()
        written = [[found] if isinstance(found, bytes) else list(found) for found in compaction.payloads()]
        recorded = [bytes(reader.read(view.ledger_id, number).payload) for number in range(view.last_entry_id + 1)]
    assert [_unpacked(_without_broker_metadata(payload)) for part in written for payload in part] == list(
        map(_unpacked, recorded)
    )


def _unpacked(payload: bytes) -> tuple[bytes, MessageMetadata, bytes] | bytes:
    """A compacted entry with its payload uncompressed, one that is not compressed as it is."""
    front, metadata, packed = split(payload)
    if not metadata.compression:
        return payload
    return front, metadata, decompressed(metadata.compression, packed, metadata.uncompressed_size)


def _without_broker_metadata(payload: bytes) -> bytes:
    """The entry of a compacted ledger as a client writes that never got the broker's part of it."""
    (id_size,) = struct.unpack_from(">I", payload)
    front, inner = payload[: 4 + id_size], payload[8 + id_size :]
    assert inner[:2] == b"\x0e\x02"
    (size,) = struct.unpack_from(">I", inner, 2)
    return front + struct.pack(">I", len(inner) - 6 - size) + inner[6 + size :]


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


@pytest.mark.parametrize("behind", [[], [VALUE]])
@pytest.mark.parametrize("empty", [0, 2])
def test_the_beginning_of_a_ledger_is_the_end_of_those_before(tmp_path: Path, empty: int, behind: list[bytes]) -> None:
    ledgers = [[VALUE, VALUE], *[[]] * empty, behind]
    assert _problems(tmp_path, ledgers, Position(11 + empty, -1), Position(10, 1)) == ()


@pytest.mark.parametrize("horizon", [Position(11, 0), Position(12, -1)])
def test_a_message_between_is_missed(tmp_path: Path, horizon: Position) -> None:
    (problem,) = _problems(tmp_path, [[VALUE, VALUE], [VALUE], []], horizon, Position(10, 1))
    assert problem.startswith("__compaction is ahead: it is at 11:0, but its ledger is compacted to 10:1;")
    assert problem.endswith("miss the messages between the two, 11:0 first")


def test_what_a_compaction_deletes_is_not_missed(tmp_path: Path) -> None:
    behind = [VALUE, NULL, NULLS, NULL]
    assert _problems(tmp_path / "a", [behind], Position(10, 3), Position(10, 0)) == ()
    (problem,) = _problems(tmp_path / "b", [[*behind, HALF]], Position(10, 4), Position(10, 0))
    assert problem.endswith("miss the messages between the two, 10:4 first")


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


# -- null values ------------------------------------------------------------------------------------------------------

FIRST = entry(Batch([Slot("k", b"first")], alone=True))
STATED_EMPTY = {"uncompressed_size": 0}
CASES = {  # the last message of a key, and the rules by which it deletes the key
    "says null, no size": (Batch([Slot("k", None)], alone=True), {"4.2"}),
    "says null, size 0": (Batch([Slot("k", None)], alone=True, more=STATED_EMPTY), {"4.0", "4.2"}),
    "says null, has a value": (Batch([Slot("k", None)], alone=True, payload=b"v"), {"4.2"}),
    "says null, compressed": (Batch([Slot("k", None)], LZ4, alone=True), {"4.0", "4.2"}),
    "empty, no size": (Batch([Slot("k", b"")], alone=True), {"4.2"}),
    "empty, size 0": (Batch([Slot("k", b"")], alone=True, more=STATED_EMPTY), {"4.0", "4.2"}),
    "empty, compressed": (Batch([Slot("k", b"")], LZ4, alone=True), {"4.0", "4.2"}),
    "a value, no size": (Batch([Slot("k", b"v")], alone=True), set[str]()),
    "a value, compressed": (Batch([Slot("k", b"v")], LZ4, alone=True), set[str]()),
    "empty in a batch": (Batch([Slot("k", b"")]), {"4.0", "4.2"}),
}


@pytest.mark.parametrize(
    ("case", "rule"),
    [(case, rule) for case in CASES for rule in ("4.0", "4.2")]
    + [(case, None) for case, (_, rules) in CASES.items() if len(rules) == 1],  # the default shows where they differ
)
def test_what_deletes_a_key(tmp_path: Path, cli: Cli, case: str, rule: str | None) -> None:
    """With and without an earlier compaction; ``verify`` tells the rule where it matters."""
    batch, rules = CASES[case]
    raw = [FIRST, entry(batch, 1), entry(Batch([Slot("other", b"x")], alone=True), 2)]
    log = {TOPIC: MadeTopic([[Made(PUBLISH_MS, raw=found) for found in raw]])}
    earlier = MadeCompacted(77, [compacted(10, 0, FIRST)], Position(10, 0))
    for number, made in enumerate((None, earlier)):
        topic = MadeTopic(log[TOPIC].ledgers, compacted=made)
        store = make_store(tmp_path / str(number), {TOPIC: topic})
        option = [] if rule is None else ["--rule", rule]
        report = cli("--store", store, "compaction", "run", TOPIC, *option, "-o", "json").json
        is_deleted = (rule or "4.2") in rules
        rows = cli("--store", store, "compaction", "read", TOPIC, "-o", "jsonl").json_lines
        assert [row["entryId"] for row in rows] == ([2] if is_deleted else [1, 2])
        assert report["messagesByReason"]["nullValues"] == is_deleted
        found = cli("--store", store, "compaction", "verify", TOPIC, "-o", "json").json
        assert (found["problems"], found["rule"]) == (0, (rule or "4.2") if len(rules) == 1 else None)


@pytest.mark.parametrize(
    ("kept", "rule", "problems"),
    [
        ([0, 1], "4.0", []),
        ([], "4.2", []),
        ([1], "both", []),
        ([2], "4.2", ["stale"]),  # what an empty message replaced is gone by either rule
        ([1, 2], "both", ["stale"]),
    ],
)
def test_verify_tells_the_rule(tmp_path: Path, cli: Cli, kept: list[int], rule: str, problems: list[str]) -> None:
    empty = [entry(Batch([Slot(key, None)], alone=True), number) for number, key in ((1, "k"), (2, "l"))]
    raw = [FIRST, *empty]
    chosen = sorted({0: 1, 1: 2, 2: 0}[number] for number in kept)
    made = MadeCompacted(77, [compacted(10, number, raw[number]) for number in chosen], Position(10, 2))
    store = make_store(
        tmp_path / "s", {TOPIC: MadeTopic([[Made(PUBLISH_MS, raw=found) for found in raw]], compacted=made)}
    )
    found = cli("--store", store, "compaction", "verify", TOPIC, "-o", "json").json
    assert (found["rule"], [row["kind"] for row in found["findings"]]) == (rule, problems)
