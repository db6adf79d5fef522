"""``compaction verify``: silent on what a broker or this toolkit wrote, and every kind of damage named."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pulsar_admin.store.compaction import forms as kinds
from pulsar_admin.store.compaction.forms import Verification
from pulsar_admin.store.compaction.verify import verify_view
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.model.topics import read_topic
from pulsar_admin.store.names import Position, parse_topic
from tests.compaction.entries import LZ4, PUBLISH_MS, Batch, Slot, compacted, entry
from tests.compaction.test_recorded import COMPACTED
from tests.conftest import Cli
from tests.deep import deep_but_for
from tests.stores import copied, imported
from tests.synthetic import Made, MadeCompacted, MadeTopic, make_store
from tests.worlds import assert_unchanged

TOPIC = "public/default/t"

LOG = [
    Batch([Slot("a", b"a0"), Slot("b", b"b0"), Slot(None, b"keyless")], LZ4),
    Batch([Slot("c", b"c0")], alone=True),
    Batch([Slot("a", b"a1"), Slot("b", None), Slot("d", b"d0")]),
    Batch([Slot("c", b"c1")], alone=True),
]
RAW = [entry(batch, number) for number, batch in enumerate(LOG)]
"""What is left of it: a of 10:2:0, d of 10:2:2, c of 10:3."""
KEPT_2 = Batch([Slot("a", b"a1"), Slot("d", b"d0")], count=3, indexes=[0, 2])
GOOD = [compacted(10, 2, entry(KEPT_2, 2)), compacted(10, 3, RAW[3])]


def _store(path: Path, payloads: Sequence[bytes], raw: Sequence[bytes] = RAW, **fields: Any) -> Path:
    horizon = fields.pop("horizon", Position(10, len(raw) - 1))
    made = MadeCompacted(77, payloads, horizon, **fields)
    return make_store(
        path / "pulsar-store", {TOPIC: MadeTopic([[Made(PUBLISH_MS, raw=r) for r in raw]], compacted=made)}
    )


def _verify(path: Path, limit_keys: int = 1000) -> Verification:
    from pulsar_admin.store.model.compacted_view import find_compacted_view

    with open_store(path) as store, open_reader(store) as reader:
        topic = read_topic(reader.txn, parse_topic(TOPIC))
        view = find_compacted_view(reader, topic)
        assert view is not None
        return verify_view(reader, topic, view, limit_keys=limit_keys)


def _kinds(found: Verification) -> list[tuple[str, str]]:
    return [(row.kind, str(row.position)) for row in found.findings]


@deep_but_for((0, 2, 3, 5, 11), ("world", "name"), COMPACTED)
def test_recorded_ledgers_and_our_own(world: str, name: str, tmp_path: Path, cli: Cli) -> None:
    report = cli.on(imported(world, "clean"), f"compaction verify {name} -o json")
    assert (report.exit_code, report.json["problems"]) == (0, 0)
    assert report.json["topicEntries"] > 0
    store = copied(world, "clean", tmp_path)
    for form in ("reduced", "legacy"):
        cli.on(store, f"compaction run {name} --from-start --format {form}")
        report = cli.on(store, f"compaction verify {name} -o json")
        assert (report.exit_code, report.json["problems"]) == (0, 0)


@pytest.mark.parametrize("limit_keys", [1, 1000])
def test_what_is_right(tmp_path: Path, limit_keys: int) -> None:
    found = _verify(_store(tmp_path, GOOD), limit_keys)
    assert found.findings == []
    assert (found.entries, found.messages, found.topic_entries, found.topic_messages) == (2, 3, 4, 8)


BAD: dict[str, tuple[list[bytes], list[tuple[str, str]]]] = {
    "an entry is missing": ([GOOD[0]], [(kinds.MISSING, "10:3")]),
    "a message is missing": (
        [compacted(10, 2, entry(Batch([Slot("a", b"a1")], count=3, indexes=[0]), 2)), GOOD[1]],
        [(kinds.MISSING, "10:2:2")],
    ),
    "an old value is there": ([compacted(10, 1, RAW[1]), *GOOD], [(kinds.STALE, "10:1")]),
    "a deleted key is there": (
        [compacted(10, 0, entry(Batch([Slot("b", b"b0")], LZ4, count=3, indexes=[1]))), *GOOD],
        [(kinds.STALE, "10:0:1")],
    ),
    "a null value is there": (
        [compacted(10, 2, entry(Batch(LOG[2].slots, count=3, indexes=[0, 1, 2]), 2)), GOOD[1]],
        [(kinds.DELETED, "10:2:1")],
    ),
    "another value": (
        [compacted(10, 2, entry(Batch([Slot("a", b"XX"), Slot("d", b"d0")], count=3, indexes=[0, 2]), 2)), GOOD[1]],
        [(kinds.DIFFERS, "10:2:0")],
    ),
    "another message alone": ([GOOD[0], compacted(10, 3, RAW[1])], [(kinds.DIFFERS, "10:3")]),
    "out of order": ([GOOD[1], GOOD[0]], [(kinds.ORDER, "10:2"), (kinds.MISSING, "10:2:0"), (kinds.MISSING, "10:2:2")]),
    "not to be decompressed": (
        [compacted(10, 2, entry(Batch(KEPT_2.slots, LZ4, count=3, indexes=[0, 2], payload=b"\xff" * 9), 2)), GOOD[1]],
        [(kinds.DAMAGED, "10:2")],
    ),
    "twice": ([*GOOD, GOOD[1]], [(kinds.ORDER, "10:3")]),
    "twice, and what comes after": ([GOOD[0], *GOOD], [(kinds.ORDER, "10:2")]),
    "of no entry": ([*GOOD, compacted(10, 9, RAW[3])], [(kinds.FOREIGN, "10:9")]),
    "indexes doubled": (
        [compacted(10, 2, entry(Batch(KEPT_2.slots, count=3, indexes=[0, 0]), 2)), GOOD[1]],
        [(kinds.INDEXES, "10:2"), (kinds.DIFFERS, "10:2:0"), (kinds.MISSING, "10:2:2")],
    ),
    "an index out of range": (
        [compacted(10, 2, entry(Batch(KEPT_2.slots, count=3, indexes=[0, 3]), 2)), GOOD[1]],
        [(kinds.INDEXES, "10:2"), (kinds.MISSING, "10:2:2")],
    ),
    "an index out of range before another value": (
        [compacted(10, 2, entry(Batch([Slot("d", b"d0"), Slot("a", b"XX")], count=3, indexes=[3, 0]), 2)), GOOD[1]],
        [(kinds.INDEXES, "10:2"), (kinds.DIFFERS, "10:2:0"), (kinds.MISSING, "10:2:2")],
    ),
    "out of order before another message": (
        [GOOD[0], compacted(10, 1, RAW[1]), compacted(10, 3, RAW[1])],
        [(kinds.ORDER, "10:1"), (kinds.DIFFERS, "10:3")],
    ),
    "indexes beside the flags": (
        [
            compacted(
                10,
                2,
                entry(Batch([Slot("a", b"a1"), Slot(None, b"", True), Slot("d", b"d0")], count=3, indexes=[0, 1]), 2),
            ),
            GOOD[1],
        ],
        [(kinds.INDEXES, "10:2")],
    ),
    "count beside the payload": (
        [compacted(10, 2, entry(Batch(KEPT_2.slots, count=3), 2)), GOOD[1]],
        [(kinds.DAMAGED, "10:2")],
    ),
    "another count": (
        [compacted(10, 2, entry(Batch(KEPT_2.slots, count=9, indexes=[0, 2]), 2)), GOOD[1]],
        [(kinds.DIFFERS, "10:2")],
    ),
    "no entry at all": ([b"\x00\x00\x00\x09nothing", *GOOD], [(kinds.DAMAGED, "None")]),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_wrong(tmp_path: Path, case: str, cli: Cli) -> None:
    payloads, expected = BAD[case]
    store = _store(tmp_path, payloads)
    assert _kinds(_verify(store)) == expected
    with assert_unchanged(store / "entries"), assert_unchanged(store / "meta" / "data.mdb"):
        result = cli.on(store, f"compaction verify {TOPIC} -o json")
    assert result.exit_code == 1
    assert result.json["problems"] == len(expected)


def test_lost_entry(tmp_path: Path) -> None:
    found = _verify(_store(tmp_path, GOOD, lost=(1,)))
    assert _kinds(found) == [(kinds.MISSING, "10:3"), (kinds.DAMAGED, "None")]


def test_keyless_messages_may_be_kept(tmp_path: Path) -> None:
    kept = compacted(10, 0, entry(Batch([Slot(None, b"keyless")], LZ4, count=3, indexes=[2])))
    found = _verify(_store(tmp_path, [kept, *GOOD]))
    assert (found.findings, found.keyless) == ([], 1)


def test_trimmed_topic(tmp_path: Path) -> None:
    """Ledger 5 is gone from the topic: what was kept of it cannot be compared, but must not be older than what is there."""
    fine = compacted(5, 0, entry(Batch([Slot("z", b"z0")], alone=True)))
    found = _verify(_store(tmp_path / "a", [fine, *GOOD]))
    assert (found.findings, found.trimmed_before) == ([], Position(10, 0))
    stale = compacted(5, 0, entry(Batch([Slot("z", b"z0"), Slot("b", b"old")])))
    found = _verify(_store(tmp_path / "b", [stale, *GOOD]))
    assert _kinds(found) == [(kinds.STALE, "5:0:1")]


def test_markers_and_transactions(tmp_path: Path) -> None:
    marker = entry(Batch([Slot(None, b"")], alone=True, more={"marker_type": 12}))
    aborted = entry(Batch([Slot("t", b"x")], alone=True, more={"txnid_most_bits": 0, "txnid_least_bits": 1}))
    end = entry(
        Batch([Slot(None, b"")], alone=True, more={"txnid_most_bits": 0, "txnid_least_bits": 1, "marker_type": 22})
    )
    raw = [*RAW, marker, aborted, end]
    payloads = [*GOOD, compacted(10, 4, marker), compacted(10, 5, aborted)]
    assert _kinds(_verify(_store(tmp_path, payloads, raw))) == [(kinds.FOREIGN, "10:4"), (kinds.FOREIGN, "10:5")]


def test_chunks_that_a_broker_leaves_behind(tmp_path: Path) -> None:
    """4.0.8 keeps the last chunk of a message with a key only."""
    more = {"uuid": "u", "num_chunks_from_msg": 2, "uncompressed_size": 6, "total_chunk_msg_size": 6}
    chunks = [entry(Batch([Slot("k", b"abc")], alone=True, more={**more, "chunk_id": n})) for n in (0, 1)]
    broken = _verify(_store(tmp_path / "a", [compacted(10, 1, chunks[1])], chunks))
    assert _kinds(broken) == [(kinds.MISSING, "10:1")]
    whole = _verify(_store(tmp_path / "b", [compacted(10, n, chunks[n]) for n in (0, 1)], chunks))
    assert whole.findings == []


def test_encrypted_entries_are_compared_as_bytes(tmp_path: Path) -> None:
    secret = entry(Batch([Slot("k", b"a"), Slot("l", b"b")], encrypted=True, payload=b"\x91" * 40))
    found = _verify(_store(tmp_path / "a", [compacted(10, 0, secret)], [secret]))
    assert (found.findings, found.unchecked) == ([], 1)
    other = entry(Batch([Slot("k", b"a"), Slot("l", b"b")], encrypted=True, payload=b"\x92" * 40))
    assert _kinds(_verify(_store(tmp_path / "b", [compacted(10, 0, other)], [secret]))) == [(kinds.DIFFERS, "10:0")]
