"""``compaction run`` and ``upgrade``: the broker's own ledgers byte by byte, a dictionary replay, undo, and what is left alone."""

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench.generate import generate
from pulsar_admin.store.compaction.compactor import Compaction, CompactionRules, SourceOptions, prepare
from pulsar_admin.store.compaction.occurrences import KEPT, explain_key
from pulsar_admin.store.compaction.reading import iter_view
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.model.compacted_view import find_compacted_view, open_view
from pulsar_admin.store.model.cursors import iter_ledger_parts
from pulsar_admin.store.model.ledgers import find_metadata
from pulsar_admin.store.model.messages import Message
from pulsar_admin.store.model.reader import EntryReader, open_reader
from pulsar_admin.store.model.topics import read_topic
from pulsar_admin.store.names import Position, parse_topic
from tests.altering import flip
from tests.compaction.entries import LZ4, PUBLISH_MS, Batch, Slot, compacted, decompressed, entry, split
from tests.compaction.test_recorded import COMPACTED
from tests.conftest import Cli
from tests.stores import copied, imported, read_store
from tests.synthetic import Made, MadeCompacted, MadeTopic, make_store
from tests.worlds import assert_unchanged, oracle

TOPIC = "public/default/t"
GONE = bytes.fromhex("00000004 18002001")


def _payloads(reader: EntryReader, topic: str) -> list[bytes]:
    view = find_compacted_view(reader, read_topic(reader.txn, parse_topic(topic)))
    return [bytes(reader.read(view.ledger_id, entry_id).payload) for entry_id in range(view.last_entry_id + 1)]


def _stored(path: Path, topic: str = TOPIC) -> list[bytes]:
    return read_store(path, lambda reader: _payloads(reader, topic))


def _view(path: Path, topic: str = TOPIC) -> list[Message]:
    problems: list[StoreError] = []
    with open_store(path) as store, open_reader(store) as reader:
        found = read_topic(reader.txn, parse_topic(topic))
        messages = list(iter_view(reader, found, open_view(reader, found), problems))
    assert problems == []
    return messages


def _rows(path: Path, topic: str = TOPIC) -> list[tuple[Position, str | None, bytes]]:
    return [(message.position, message.key, bytes(message.payload)) for message in _view(path, topic)]


# -- what the broker itself wrote -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("world", "name"), COMPACTED)
def test_legacy_ledger_is_the_broker_s(world: str, name: str) -> None:
    """The two phases over the topic's own entries give, byte by byte, the ledger that Pulsar 4.0.8 wrote from them.

    With three keys in memory nearly all of them go through files.
    """
    with open_store(imported(world, "clean")) as store, open_reader(store) as reader:
        topic = read_topic(reader.txn, parse_topic(name))
        view = find_compacted_view(reader, topic)
        prepared = prepare(reader, topic, SourceOptions(from_start=True, encrypted_by_key=True, rule="4.0"))
        prepared.source.parts = tuple(iter_ledger_parts(topic, 0, topic.rank(view.horizon) + 1))
        compaction = Compaction(prepared.source, CompactionRules("legacy", limit_keys=3), -1)
        latest = compaction.find_latest()
        if latest.keys + latest.nulls > 8:
            assert latest.spilled_runs > 1
        written = [found if isinstance(found, bytes) else list(found) for found in compaction.payloads()]
        flat = [payload for found in written for payload in ([found] if isinstance(found, bytes) else found)]
        assert flat == _payloads(reader, name)


def test_reduced_payloads_are_smaller_and_can_be_upgraded(tmp_path: Path, cli: Cli) -> None:
    store, name = copied("nometa", "clean", tmp_path), "acme/orders/compacted"
    before = _stored(store, name)
    report = cli.json(store, f"compaction run {name} --format reduced")
    assert report["payloadBytes"]["after"] < report["payloadBytes"]["before"]
    assert "without placeholders: no broker writes that" in report["warnings"][0]
    formats = [cli.json(store, f"compaction status {name}")["ledger"]["format"]]
    for command in (("upgrade",), ("run", "--format", "legacy")):
        assert "warnings" not in cli("--store", store, "compaction", command[0], name, *command[1:], "-o", "json").json
        formats.append(cli.json(store, f"compaction status {name}")["ledger"]["format"])
    assert formats == ["reduced", "indexed", "legacy"]
    assert _stored(store, name) == before


@pytest.mark.parametrize(("world", "rule"), [("small", "4.0"), ("nometa", "4.2")])
def test_run_behind_the_horizon(world: str, rule: str, tmp_path: Path, cli: Cli) -> None:
    """The single topic went on after its compaction: all of it compacted, the producer's record replayed."""
    name = "acme/orders/compacted-single"
    store = copied(world, "clean", tmp_path)
    report = cli.json(store, f"compaction run {name} --rule {rule}")
    rows = oracle(world)["topics"][name]["messages"]
    latest = {row[5]: row for row in rows}
    # Their producer states no sizes, so that by the rule of 4.0 an empty message never deletes its key.
    expected = sorted((Position(*row[:2]), key, row[7]) for key, row in latest.items() if row[7] or rule == "4.0")
    assert len(expected) < len(latest) or rule == "4.0"
    assert [(place, key, len(value)) for place, key, value in _rows(store, name)] == expected
    assert report["keys"] == len(expected)
    last = rows[-1]
    assert report["after"]["markDeletePosition"] == f"{last[0]}:{last[1]}"


# -- the example of the proposal, on bytes ----------------------------------------------------------------------------

SEED = [Slot("k0", b"v0"), Slot("k0", b"v1"), Slot("k1", b"v0"), Slot("k1", None)]


def _store_of(path: Path, entries: Sequence[bytes], made: MadeCompacted | None = None) -> Path:
    rows = [Made(PUBLISH_MS, raw=raw) for raw in entries]
    return make_store(path, {TOPIC: MadeTopic([rows], compacted=made)})


def _alone(key: str | None, value: bytes | None) -> bytes:
    return entry(Batch([Slot(key, value)], alone=True))


def _only_payload(store: Path) -> bytes:
    (payload,) = _stored(store)
    return payload


@pytest.mark.parametrize(
    ("form", "codec"), [("indexed", 0), ("reduced", 1), ("legacy", 2), ("indexed", 3), ("legacy", 4)]
)
def test_example_of_the_proposal(tmp_path: Path, cli: Cli, form: str, codec: int) -> None:
    store = _store_of(tmp_path / "s", [entry(Batch(SEED, codec))])
    report = cli.json(store, f"compaction run {TOPIC} --format {form}")
    message_id, metadata, payload = split(_only_payload(store))
    assert message_id == bytes.fromhex("080a 1000 18ffffffffffffffffff01")
    slot = bytes.fromhex("00000006 12026b30 1802 7631")
    plain = slot if form == "reduced" else GONE + slot + GONE + GONE
    assert metadata.num_messages_in_batch == 4
    assert metadata.compression == codec
    assert metadata.uncompressed_size == len(plain)
    assert list(metadata.compacted_batch_indexes) == ([] if form == "legacy" else [1])
    assert decompressed(codec, payload, len(plain)) == plain
    assert _rows(store) == [(Position(10, 0, 1), "k0", b"v1")]
    assert report["messagesByReason"]["superseded"] == 2
    assert report["messagesByReason"]["nullValues"] == 1


def test_vectors_of_the_specification(tmp_path: Path, cli: Cli) -> None:
    """Vector 4 (k0, k1 in a batch) with a newer k0 behind it: what is left of it is vectors 5 and 6, but for field 31."""
    vector_4 = bytes.fromhex(
        "0e0187aa57330000 00100a0170100818 80d095ffbc314818 580200000006 12026b3018027630 00000006 12026b3118027631"
    )
    vector_5 = bytes.fromhex("00000004 18002001 00000006 12026b31 18027631")
    store = _store_of(tmp_path / "s", [vector_4, _alone("k0", b"new")])
    cli.on(store, f"compaction run {TOPIC} --format legacy")
    first = _stored(store)[0]
    assert split(first)[2] == vector_5
    vector_6 = bytes.fromhex(
        "00000004 080a1003 00000031 0e011617538b 00000013 0a017010081880d095ffbc3148145802f80101"
        "0000000418002001 0000000612026b3118027631"
    )
    made = MadeCompacted(77, [vector_6], Position(10, 3))
    read = _store_of(tmp_path / "b", [vector_4] * 4, made)
    assert _rows(read) == [(Position(10, 3, 1), "k1", b"v1")]
    cli.on(read, f"compaction upgrade {TOPIC}")
    assert split(_only_payload(read))[2] == vector_5
    cli.on(read, f"compaction run {TOPIC} --format reduced")
    assert split(_only_payload(read))[2] == vector_5[8:]
    assert _rows(read) == [(Position(10, 3, 1), "k1", b"v1")]


# -- a dictionary replay ----------------------------------------------------------------------------------------------

_KEYS = st.one_of(st.none(), st.sampled_from(["a", "b", "c", "d", "", "é", "key of more than eight bytes"]))
_VALUES = st.one_of(st.none(), st.just(b""), st.binary(min_size=1, max_size=12))
_SLOTS = st.builds(Slot, _KEYS, _VALUES)
_BATCHES = st.one_of(
    st.builds(Batch, st.lists(_SLOTS, min_size=1, max_size=6), st.integers(0, 4)),
    st.builds(Batch, st.lists(_SLOTS, min_size=1, max_size=1), st.integers(0, 4), alone=st.just(True)),
)


def _replay(entries: Sequence[Batch], retain_keyless: bool, rule: str) -> list[tuple[Position, str | None, bytes]]:
    """What compaction is, one message after the other in a dictionary."""
    latest: dict[str, tuple[Position, str | None, bytes]] = {}
    keyless = []
    for entry_id, batch in enumerate(entries):
        for index, slot in enumerate(batch.slots):
            value = slot.value or b""
            row = (Position(10, entry_id, -1 if batch.alone else index), slot.key, value)
            size_is_known = rule == "4.2" or not batch.alone or batch.codec != 0
            if slot.key is None:
                keyless.append(row)
            elif not value and size_is_known:
                latest.pop(slot.key, None)
            else:
                latest[slot.key] = row
    return sorted([*latest.values(), *(keyless if retain_keyless else [])])


def _batches(path: Path, entries: Sequence[Batch], made: MadeCompacted | None = None) -> Path:
    return _store_of(path, [entry(batch, number) for number, batch in enumerate(entries)], made)


def _run(store: Path, form: str, retain_keyless: bool, *more: str) -> dict[str, Any]:
    from pulsar_admin.cli import run

    options = ["--format", form, *(["--retain-null-key"] if retain_keyless else []), *more]
    assert run(["--store", str(store), "-q", "compaction", "run", TOPIC, *options, "-o", "json"]) == 0
    return {}


@settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    st.lists(_BATCHES, min_size=1, max_size=12),
    st.booleans(),
    st.sampled_from(["indexed", "reduced", "legacy"]),
    st.sampled_from(["indexed", "reduced", "legacy"]),
    st.integers(0, 12),
    st.sampled_from([("4.2", "4.2"), ("4.0", "4.0"), ("4.0", "4.2")]),
)
def test_run_then_read_is_a_replay(
    tmp_path_factory: pytest.TempPathFactory,
    entries: list[Batch],
    retain_keyless: bool,
    form: str,
    second: str,
    cut: int,
    rules: tuple[str, str],
) -> None:
    """In one go, and in two with more messages in between; a second run changes nothing. 4.2 takes over what 4.0 left."""
    folder = tmp_path_factory.mktemp("replay")
    store, replayed = _batches(folder / "whole", entries), _replay(entries, retain_keyless, rules[1])
    with open_store(store) as opened, open_reader(opened) as reader:
        topic = read_topic(reader.txn, parse_topic(TOPIC))
        for key in {slot.key for batch in entries for slot in batch.slots if slot.key is not None}:
            rows = explain_key(reader, topic, None, key, rule=rules[1]).occurrences
            assert [row.position for row in rows if row.next == KEPT] == [row[0] for row in replayed if row[1] == key]
    _run(store, form, retain_keyless, "--rule", rules[1])
    assert _rows(store) == replayed
    with open_store(store) as opened:
        transaction = opened.last_txn_id()
    _run(store, form, retain_keyless, "--rule", rules[1])
    with open_store(store) as opened:
        assert opened.last_txn_id() == transaction

    cut = min(cut, len(entries) - 1)
    if cut == 0:
        return
    first = _batches(folder / "first", entries[:cut])
    _run(first, form, retain_keyless, "--rule", rules[0])
    made = MadeCompacted(77, _stored(first), Position(10, cut - 1))
    both = _batches(folder / "both", entries, made)
    _run(both, second, retain_keyless, "--rule", rules[1])
    assert _rows(both) == _replay(entries, retain_keyless, rules[1])


# -- the change -------------------------------------------------------------------------------------------------------


def test_one_of_several_has_nothing_to_compact(tmp_path: Path, cli: Cli) -> None:
    """A topic without entries, or without a compacted ledger to upgrade, is a row of its own in every format."""
    empty, raw = "public/default/empty", _alone("k", b"v")
    made = {TOPIC: MadeTopic([[Made(PUBLISH_MS, raw=raw)]]), empty: MadeTopic([[]])}
    store = make_store(tmp_path / "pulsar-store", made)
    assert cli.on(store, "compaction run --all-topics --dry-run -o csv").stdout.splitlines()[1:] == [
        f"persistent://{empty},,,,,,,",
        f"persistent://{TOPIC},,10:0,,1,1,{len(compacted(10, 0, raw))},{-len(compacted(10, 0, raw)) + len(raw)}",
    ]
    for form in ("table", "csv", "plain", "jsonl"):
        answer = cli.done("--store", store, *f"compaction upgrade --all-topics --dry-run -o {form}".split())
        assert f"persistent://{empty}" in answer.stdout


def test_partition_is_written_into_ids(tmp_path: Path, cli: Cli) -> None:
    raw = _alone("a", b"x")
    name = "public/default/p-partition-3"
    store = make_store(tmp_path / "pulsar-store", {name: MadeTopic([[Made(PUBLISH_MS, raw=raw)]])})
    report = cli.json(store, f"compaction run {name}")
    with open_store(store) as opened, open_reader(opened) as reader:
        assert split(_payloads(reader, name)[0])[0] == bytes.fromhex("080a 1000 1803")
        metadata = find_metadata(reader.txn, report["after"]["compactedLedger"])
    assert metadata.custom["pulsar/compactedTo"] == bytes.fromhex("080a 1000 1803 3000")


# -- entries that stay as they are ------------------------------------------------------------------------------------


def _transaction(number: int, marker: int | None = None) -> bytes:
    more: dict[str, Any] = {"txnid_most_bits": 0, "txnid_least_bits": number}
    if marker is not None:
        more["marker_type"] = marker
    return entry(Batch([Slot("k", b"of %d" % number)], alone=True, more=more))


def _run_of(path: Path, cli: Cli, entries: list[bytes], *options: str) -> tuple[Path, dict[str, Any]]:
    store = _store_of(path / "s", entries)
    return store, cli("--store", store, "compaction", "run", TOPIC, *options, "-o", "json").json


def test_transactions_and_markers(tmp_path: Path, cli: Cli) -> None:
    """Committed messages count, aborted ones do not, an open transaction ends what may be compacted."""
    alone = _alone("k", b"plain")
    other = _alone("o", b"other")
    marker = entry(Batch([Slot(None, b"")], alone=True, more={"marker_type": 12}))
    entries = [alone, _transaction(1), _transaction(2), _transaction(1, 21), _transaction(2, 22), marker, other]
    store, report = _run_of(tmp_path / "a", cli, entries)
    assert _rows(store) == [(Position(10, 1), "k", b"of 1"), (Position(10, 6), "o", b"other")]
    assert report["messagesByReason"]["uncommitted"] == 1
    assert report["messagesByReason"]["markers"] == 3
    snapshot = _alone(f"persistent://{TOPIC}", b"x")
    topics = {
        TOPIC: MadeTopic([[Made(PUBLISH_MS, raw=raw) for raw in (other, alone, _transaction(3), other)]]),
        "public/default/__transaction_buffer_snapshot": MadeTopic([[Made(PUBLISH_MS, raw=snapshot)]]),
    }
    store = make_store(tmp_path / "b", topics)
    report = cli.json(store, f"compaction run {TOPIC}")
    assert report["after"]["markDeletePosition"] == "10:1"
    assert report["entries"] == 2
    assert _rows(store) == [(Position(10, 0), "o", b"other"), (Position(10, 1), "k", b"plain")]


@pytest.mark.parametrize("open_at", [0, 2])
def test_open_transaction_without_a_snapshot(tmp_path: Path, cli: Cli, open_at: int) -> None:
    """Found while reading: nothing behind its first message is compacted, or it would be lost once it is committed."""
    alone = _alone("k", b"plain")
    entries = [_transaction(1), _transaction(1, 21), alone, alone]
    entries.insert(open_at, _transaction(3))
    store = _store_of(tmp_path / "s", entries)
    result = cli.on(store, f"compaction run {TOPIC} -o json")
    assert "an open transaction" in result.stderr
    if open_at == 0:
        assert result.json["change"] is None
        return
    assert result.json["after"]["markDeletePosition"] == "10:0"
    assert _rows(store)[0] == (Position(10, 0), "k", b"of 1")
    later = [*entries, _transaction(3, 21)]
    made = MadeCompacted(77, _stored(store), Position(10, 0))
    both = _store_of(tmp_path / "b", later, made)
    cli.on(both, f"compaction run {TOPIC}")
    assert _rows(both) == [(Position(10, 4), "k", b"plain")]


BAD = {
    "count": Batch([Slot("k", b"a"), Slot("k", b"b")], count=3),
    "cut": Batch([], count=2, payload=b"\x00\x00\x00\x06\x12\x02k0\x18\x02"),
    "no batch": Batch([], LZ4, count=2, payload=b"\xff" * 30),
    "unknown codec": Batch([Slot("k", b"a")], count=1, payload=b"abc", more={"uncompressed_size": 3}),
    "bomb": Batch([], LZ4, count=2, payload=b"\x10" * 30, more={"uncompressed_size": 2_000_000_000}),
}


@pytest.mark.parametrize("case", BAD)
def test_batches_that_cannot_be_decoded_stay_whole(tmp_path: Path, cli: Cli, case: str) -> None:
    raw = entry(BAD[case])
    store, report = _run_of(tmp_path, cli, [raw, entry(Batch([Slot("k", b"new")]))])
    assert report["messagesByReason"]["undecodable"] == 1
    first = _stored(store)[0]
    assert first.endswith(raw)


def test_bytes_that_are_no_message_stay(tmp_path: Path, cli: Cli) -> None:
    wrong_checksum = bytearray(_alone("k", b"a"))
    wrong_checksum[-1] ^= 1
    store, report = _run_of(tmp_path, cli, [b"\x08\x01no message", bytes(wrong_checksum), b""])
    assert (report["entries"], report["messagesByReason"]["undecodable"]) == (3, 3)
    assert [payload[23:] for payload in _stored(store)] == [b"\x08\x01no message", bytes(wrong_checksum), b""]


def _chunk(uuid: str, number: int, key: str | None) -> bytes:
    more = {
        "uuid": uuid,
        "num_chunks_from_msg": 3,
        "chunk_id": number,
        "total_chunk_msg_size": 9,
        "uncompressed_size": 9,
    }
    return entry(Batch([Slot(key, b"%d  " % number)], alone=True, more=more))


def test_chunks_stay_or_go_together(tmp_path: Path, cli: Cli) -> None:
    """Interleaved; one superseded, one the latest, one whose end is not there yet."""
    entries = [
        *(_chunk("old", number, "k") for number in (0, 1, 2)),
        _chunk("new", 0, "k"),
        _chunk("open", 0, "m"),
        *(_chunk("new", number, "k") for number in (1, 2)),
        _chunk("open", 1, "m"),
        *(_chunk("none", number, None) for number in (0, 1, 2)),
    ]
    store, _ = _run_of(tmp_path, cli, entries)
    kept = [payload[5:].split(b"\x18")[0][-1] for payload in _stored(store)]
    assert kept == [3, 4, 5, 6, 7]
    assert [(message.key, bytes(message.payload)) for message in _view(store)] == [("k", b"0  1  2  ")]


# -- damaged input ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fate", ["is lost", "CRC32C digest"])
def test_lost_and_damaged_entries_stop_it(tmp_path: Path, cli: Cli, fate: str) -> None:
    rows = [Made(PUBLISH_MS, raw=_alone("k", b"value %d" % n), lost=n == 1 and fate == "is lost") for n in range(3)]
    store = make_store(tmp_path / "pulsar-store", {TOPIC: MadeTopic([rows])})
    if fate != "is lost":
        (log,) = (file for file in (store / "entries").rglob("*") if file.is_file() and b"value 1" in file.read_bytes())
        flip(log, log.read_bytes().index(b"value 1"), by_disk=True)
    with assert_unchanged(store / "entries"), assert_unchanged(store / "meta" / "data.mdb"):
        result = cli.on(store, f"compaction run {TOPIC} -o json")
    assert result.exit_code == 6
    assert re.search(f"entry 10:1:? {fate}", result.error["message"])
    report = cli.json(store, f"compaction run {TOPIC} --skip-damaged")
    assert (report["damaged"], report["entries"]) == (1, 1)


def test_a_batch_that_cannot_be_decompressed_hides_none_after_it(tmp_path: Path, cli: Cli) -> None:
    batches = [Batch([Slot(key, b"v")], LZ4, payload=b"\xff" * 9 if key in "bd" else None) for key in "abacdc"]
    _, report = _run_of(tmp_path, cli, [*map(entry, batches)])
    kinds = ("retained", "undecodable", "superseded")
    assert (report["keys"], *(report["messagesByReason"][kind] for kind in kinds)) == (2, 2, 2, 2)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"listed": False}, "compacted ledger 77 of .* is gone"),
        ({"lost": (1,)}, "entry 77:1 is lost"),
        ({"claims": "persistent://public/default/u"}, "names ledger 77, the compacted ledger of"),
    ],
)
def test_damaged_compacted_ledger(tmp_path: Path, cli: Cli, fields: dict[str, Any], text: str) -> None:
    """Named, nothing touched; the topic's own entries, where they are still there, make it anew."""
    entries = [_alone("k", b"%d" % number) for number in range(4)]
    made = MadeCompacted(77, [compacted(10, n, entries[n]) for n in (0, 1)], Position(10, 1), **fields)
    store = _store_of(tmp_path / "s", entries, made)
    for name in ("run", "upgrade"):
        with assert_unchanged(store / "entries"), assert_unchanged(store / "meta" / "data.mdb"):
            result = cli.on(store, f"compaction {name} {TOPIC} -o json")
        assert result.exit_code == 6
        assert re.search(text, result.error["message"])
    cli.on(store, f"compaction run {TOPIC} --from-start")
    assert _rows(store) == [(Position(10, 3), "k", b"3")]


_INDEXED = Batch([Slot("a", b"a1"), Slot("e", b"e0")], LZ4, count=3, indexes=[0, 2])
_OLD = compacted(10, 0, entry(Batch([Slot("c", b"c0")], LZ4, count=3, indexes=[2])))


def _wrong(**fields: Any) -> bytes:
    from msgspec.structs import replace

    return compacted(10, 2, entry(replace(_INDEXED, **fields)))


@pytest.mark.parametrize(
    ("payloads", "text"),
    [
        ([_OLD, _wrong(indexes=[2, 0])], r"\[2, 0\] of a batch of 3: 0 is not ascending"),
        ([_OLD, _wrong(count=1)], "a batch of 1: 2 is out of range"),
        ([_OLD, _wrong(indexes=[2])], "a batch of 3 messages that lists 1 does not hold them"),
        ([_OLD, _wrong(indexes=[0, 1, 2])], "a batch of 3 messages that lists 3 does not hold them"),
        ([_wrong(), _OLD], "77:1: 10:0 comes after 10:2"),
        ([_OLD, _OLD], "77:1: 10:0 comes after 10:0"),
        ([b"\x00\x00\x00\x09nothing", _OLD], "11 bytes, its framing asks for 13"),
    ],
)
def test_compacted_ledger_that_contradicts_itself(tmp_path: Path, cli: Cli, payloads: list[bytes], text: str) -> None:
    """Named, exit code 6 and nothing touched; without what is damaged it goes on when asked."""
    made = MadeCompacted(77, payloads, Position(10, 2))
    store = _store_of(tmp_path / "s", [entry(Batch([Slot("z", b"z")] * 3))] * 4, made)
    for name in ("run", "upgrade"):
        with assert_unchanged(store / "entries"), assert_unchanged(store / "meta" / "data.mdb"):
            result = cli.on(store, f"compaction {name} {TOPIC} -o json")
        assert (result.exit_code, result.error["code"]) == (6, "entry-corrupt")
        assert re.search(text, result.error["message"])
    report = cli.json(store, f"compaction run {TOPIC} --skip-damaged")
    assert report["damaged"] == 1


def test_a_compacted_ledger_of_one_entry_that_the_topic_lacks_is_told(tmp_path: Path, cli: Cli) -> None:
    made = MadeCompacted(77, [compacted(5, 0, _alone("k0", b"v"))], Position(5, 0))
    store = _store_of(tmp_path / "s", [_alone("k1", b"v")], made)
    told = cli.on(store, f"compaction run {TOPIC} --from-start --dry-run")
    assert "content that only the compacted ledger 77 has is lost" in told.stderr


def test_trimmed_topic(tmp_path: Path, cli: Cli) -> None:
    """What only the compacted ledger holds stays; without that ledger it would go, which is said. Undone in order, all is back."""
    raw = [_alone(f"k{number}", b"v") for number in range(5)]
    made = MadeCompacted(77, [compacted(5, 0, raw[0]), compacted(10, 0, raw[1])], Position(10, 0))
    store = _store_of(tmp_path / "s", raw[1:], made)
    before = _rows(store)
    first = cli.on(store, f"compaction run {TOPIC} -o json")
    assert first.stderr == ""
    assert [row[1] for row in _rows(store)] == ["k0", "k1", "k2", "k3", "k4"]
    assert cli.on(store, f"compaction verify {TOPIC}").exit_code == 0
    second = cli.on(store, f"compaction run {TOPIC} --from-start -o json")
    assert (
        f"content that only the compacted ledger {first.json['after']['compactedLedger']} has is lost" in second.stderr
    )
    assert [row[1] for row in _rows(store)] == ["k1", "k2", "k3", "k4"]
    cli("--store", store, "store", "undo", first.json["change"]).ends(4)
    for change in (second.json["change"], first.json["change"]):
        assert cli.on(store, f"store undo {change}").exit_code == 0
    assert _rows(store) == before


def test_chunks_of_two_messages_with_one_uuid(tmp_path: Path, cli: Cli) -> None:
    """A producer that comes back without deduplication counts from 0 again: each message stays or goes by itself."""
    old = [_chunk("u", part, "old") for part in range(3)]
    new = [_chunk("u", part, "new") for part in range(3)]
    gone = entry(Batch([Slot("old", b"z")], LZ4, alone=True))
    store, _ = _run_of(tmp_path / "a", cli, [*old, *new, gone])
    assert [payload[5:].split(b"\x18")[0][-1] for payload in _stored(store)] == [3, 4, 5, 6]
    assert cli.on(store, f"compaction verify {TOPIC}").exit_code == 0
    gone = entry(Batch([Slot("new", b"z")], LZ4, alone=True))
    store, _ = _run_of(tmp_path / "b", cli, [*old, *new, gone])
    assert [payload[5:].split(b"\x18")[0][-1] for payload in _stored(store)] == [0, 1, 2, 6]
    assert cli.on(store, f"compaction verify {TOPIC}").exit_code == 0


def test_cursor_that_was_moved(tmp_path: Path, cli: Cli) -> None:
    """Moved back, nothing is compacted twice; moved ahead, what it skipped is compacted after all."""
    entries = [_alone(f"k{number}", b"v") for number in range(6)]
    for number, horizon in enumerate((Position(10, 0), Position(10, 4))):
        kept = [compacted(10, n, entries[n]) for n in (0, 1, 2)]
        made = MadeCompacted(77, kept, horizon, compacted_to=Position(10, 2))
        store = _store_of(tmp_path / str(number), entries, made)
        assert cli.on(store, f"compaction status {TOPIC}").exit_code == 1
        cli.on(store, f"compaction run {TOPIC}")
        assert [row[0].entry_id for row in _rows(store)] == [0, 1, 2, 3, 4, 5]
        assert cli.on(store, f"compaction status {TOPIC}").exit_code == 0


# -- phase one under a limit of memory that all its keys do not fit into --------------------------------------------

ROOT = Path(__file__).resolve().parent.parent.parent
_PROGRAM = """
import hashlib, json, resource, sys
from pathlib import Path
from pulsar_admin.store.compaction.compactor import Compaction, CompactionRules
from pulsar_admin.store.compaction.compactor import SourceOptions, prepare
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.names import parse_topic
from pulsar_admin.store.model.topics import read_topic

def run(limit_keys):
    with open_store(Path(sys.argv[1])) as store, open_reader(store) as reader:
        prepared = prepare(reader, read_topic(reader.txn, parse_topic("public/default/generated")), SourceOptions())
        latest = Compaction(prepared.source, CompactionRules(limit_keys=limit_keys), -1).find_latest()
    return {"keys": latest.keys, "runs": latest.spilled_runs, "bits": hashlib.sha256(latest.bits).hexdigest()}

free = [run(1 << 24), run(1 << 15)]
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
limit = (int(status["VmData"].split()[0]) << 10) + (80 << 20)
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
bounded = run(1 << 15)
try:
    run(1 << 24)
except MemoryError:
    print(json.dumps([*free, bounded]))
"""


def test_keys_beyond_the_limit_go_through_a_file(cli: Cli, tmp_path: Path) -> None:
    """80 MiB beside what two runs left behind: a run takes some 40 of them, the table of all keys 72 more."""
    options = ("--entries", "8000", "--batch", "100", "--message-size", "16", "--keys", "10000000")
    generate(tmp_path / "data", *options)
    store = tmp_path / "store"
    assert cli("--store", store, "store", "import", "standalone", tmp_path / "data").exit_code == 0
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, store], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stdout, done.stderr
    whole, spilled, bounded = json.loads(done.stdout)
    assert whole["keys"] > 1 << 19
    assert (whole["runs"], spilled["runs"] > 20) == (0, True)
    assert bounded == spilled
    assert (spilled["keys"], spilled["bits"]) == (whole["keys"], whole["bits"])
