"""Reads for passes over millions of rows say what the full decoders say, or nothing."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from pulsar_admin.store.codec.cursor import CursorInfo, UsualCursor
from pulsar_admin.store.codec.digest import DigestType
from pulsar_admin.store.codec.ledgermetadata import (
    LedgerMetadata,
    LedgerState,
    LoneLedger,
    Segment,
    UsualLedger,
    decode_ledger_metadata,
    encode_ledger_metadata,
    find_lone_ledger,
    find_usual_ledger,
    ledger_id_of_path,
)
from pulsar_admin.store.codec.managedledger import ManagedLedger, UsualLedgers
from pulsar_admin.store.db.blocks import LedgerSums, decode_sums, decode_times, encode_times
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.db.tree import decode_node
from pulsar_admin.store.doctor.diagnosing import diagnose
from pulsar_admin.store.errors import IndexCorrupt, MetadataCorrupt, StoreError
from pulsar_admin.store.facts import values
from pulsar_admin.store.facts.values import find_usual, iter_unusual, look_at_nodes, parts_of_nodes
from pulsar_admin.store.model import coverage
from pulsar_admin.store.model.coverage import look_at_ledgers_one_by_one, read_open_end, read_shortfalls
from pulsar_admin.store.model.ledgers import LoneLedgers, find_ledger, find_whole, iter_ledger_ids, missing_ranges
from pulsar_admin.store.model.nodes import decode_structure, unknown_in
from pulsar_admin.store.model.reader import EntryReader, open_reader
from pulsar_admin.store.model.references import References
from pulsar_admin.store.model.topics import iter_topics
from pulsar_admin.store.names import topic_of_path
from pulsar_admin.store.reports.subscriptions import Asked, iter_facts, iter_subscription_facts, prepare_facts
from pulsar_admin.store.rules import judging
from pulsar_admin.store.rules.table import ALL_TOPIC_RULES
from tests.rules.test_quiet import damage_drawn
from tests.stores import NOW_MS, copied, imported, read_rows
from tests.worlds import STATES

_CUSTOM = {
    "component": b"managed-ledger",
    "pulsar/managed-ledger": b"a/b/persistent/a-name-with-which-the-value-has-as-many-bytes-as-nearly-all",
}


def _ledgers() -> Iterator[LedgerMetadata]:
    for state in LedgerState:
        for members in (("b:1",), ("b:1", "b:2")):
            for starts in ((0,), (0, 5), (3,)):
                segments = tuple(Segment(start, members) for start in starts)
                for ack_quorum in (0, 1):
                    end = (7, 700) if state is LedgerState.CLOSED else (-1, 0)
                    yield LedgerMetadata(
                        3, 1, len(members), ack_quorum, end[1], end[0], state, segments, DigestType.CRC32C, b"",
                        custom=_CUSTOM, ctime_ms=1, ctoken=0,
                    )  # fmt: skip


def _damaged(value: bytes, seed: int, count: int) -> Iterator[bytes]:
    draw = random.Random(seed)
    yield value
    for _ in range(count):
        changed = bytearray(value)
        for _ in range(draw.randint(1, 3)):
            changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
        yield bytes(changed[: draw.randint(0, len(changed))] if draw.random() < 0.2 else changed)


def test_a_lone_ledger_is_what_its_metadata_says() -> None:
    found = 0
    for seed, metadata in enumerate(_ledgers()):
        for value in _damaged(encode_ledger_metadata(metadata), seed, 200):
            lone = find_lone_ledger(value)
            if lone is None:
                continue
            found += 1
            whole = decode_ledger_metadata(value, "")
            assert (whole.last_entry_id, whole.length) == (lone.last_entry_id, lone.length)
            assert (whole.state is LedgerState.CLOSED) == lone.is_closed
            assert (whole.ensemble_size, whole.write_quorum, whole.ack_quorum) == (1, 1, 1)
            assert whole.segments == (Segment(0, (lone.bookie,)),)
    assert found > 100


def test_a_ledger_that_the_decoder_refuses_or_knows_in_part_is_not_usual() -> None:
    usual = next(one for one in _ledgers() if one.state is LedgerState.CLOSED and one.ack_quorum == 1)
    assert find_usual_ledger(encode_ledger_metadata(usual)) == UsualLedger(LoneLedger(True, 7, 700, "b:1"))
    assert find_lone_ledger(encode_ledger_metadata(replace(usual, length=-1))) is None
    negative = encode_ledger_metadata(replace(usual, ack_quorum=-1))
    short = negative.replace(b"\xff" * 9 + b"\x01", b"\xff" * 4 + b"\x0f")  # the same for 32 bits
    assert find_usual_ledger(short + b"r\x03abc") is None


def test_sums_are_those_of_the_whole_time_row() -> None:
    sums = LedgerSums(*range(13))
    good = 0
    for seed, columns in enumerate(([b"12345678"] * 2, [b"12345678" * 3] * 4)):
        for row in (*_damaged(encode_times(sums, columns), seed, 500), encode_times(sums, columns) + b"\0"):
            try:
                expected = decode_times(1, row).sums
            except IndexCorrupt as error:
                with pytest.raises(IndexCorrupt, match=error.message.replace("(", r"\(")):
                    decode_sums(1, row)
            else:
                assert decode_sums(1, row) == expected
                good += 1
    assert good > 100


@pytest.mark.parametrize("state", STATES)
def test_whole_ledgers_lack_nothing_and_no_other_is_left_out(state: str) -> None:
    with open_store(imported("small", state)) as store, open_reader(store) as reader:
        txn = reader.txn
        read_shortfalls(txn)
        seen = 0
        for ledger_id in iter_ledger_ids(txn):
            whole = find_whole(txn, ledger_id)
            try:
                ledger = find_ledger(txn, ledger_id)
            except (MetadataCorrupt, StoreError):
                ledger = None
            if whole is None:
                assert ledger is None or missing_ranges(txn, ledger) or _goes_on(ledger.metadata)
                continue
            seen += 1
            assert (ledger.entries, ledger.size_bytes) == (whole.entries, whole.size_bytes)
            assert (ledger.metadata.state is LedgerState.CLOSED) == whole.is_closed
            assert missing_ranges(txn, ledger) == ()
            end = read_open_end(txn, ledger)
            assert end is None or end.verdict == "final"
        assert seen > 10


def _goes_on(metadata: LedgerMetadata | None) -> bool:
    """Whether a ledger is not closed, so that entries may lie behind its end."""
    return metadata is not None and metadata.state is not LedgerState.CLOSED


def test_usual_nodes_are_decoded_and_say_nothing_unknown() -> None:
    rows = read_rows(imported("small", "clean"), lambda txn: [(key, bytes(row)) for key, row in txn.items("tree")])
    usual = 0
    for seed, (key, row) in enumerate(rows):
        for changed in (row[:33] + value for value in _damaged(row[33:] or b"\0", seed, 20)):
            found = find_usual(key, memoryview(changed))
            if found is None:
                continue
            usual += 1
            node = decode_node(key, changed)
            if ledger_id_of_path(node.path) is None:
                _assert_says_the_same(decode_structure(node.path, node.value)[1], found.said)
            assert unknown_in(node.path, node.value)[1] == ()
            topic = topic_of_path(node.path)
            assert topic is None or topic.path == node.path
    assert usual > len(rows) // 2


def _assert_says_the_same(whole: object, said: object) -> None:
    if isinstance(whole, ManagedLedger):
        assert isinstance(said, UsualLedgers)
        assert sorted(said.ledger_ids) == [one.ledger_id for one in whole.ledgers]
        plain = [(one.ledger_id, one.entries, one.size_bytes, one.timestamp_ms or 0) for one in whole.ledgers]
        assert said.plain in (None, plain)
    else:
        assert isinstance(whole, CursorInfo)
        assert isinstance(said, UsualCursor)
        assert said.ledger_id == whole.cursors_ledger_id
        assert said.has_properties == bool(whole.properties or whole.cursor_properties)
        if said.plain is not None:
            assert whole.mark_delete is not None
            assert said.plain.position == (whole.mark_delete.ledger_id, whole.mark_delete.entry_id)
            ranges = [(lower.ledger_id, lower.entry_id, upper.entry_id) for lower, upper in whole.ranges]
            assert list(said.plain.ranges) == ranges


def test_a_pass_in_parts_keeps_what_one_over_all_nodes_does(monkeypatch: pytest.MonkeyPatch) -> None:
    def kept(reader: EntryReader) -> tuple[object, ...]:
        memo = reader.txn.memo
        return memo[iter_unusual], list(memo[iter_ledger_ids]), list(memo[LoneLedgers]), list(memo[References].rows())

    with open_store(imported("small", "clean")) as store:
        with open_reader(store) as reader:
            list(iter_unusual(reader.txn))
            expected = kept(reader)
        monkeypatch.setattr(values, "others_that_pay", lambda txn, most: most)
        monkeypatch.setattr(values, "parts_of_nodes", lambda txn: parts_of_nodes(txn, 7))
        with open_reader(store) as reader:
            assert len(parts_of_nodes(reader.txn, 7)) > 3
            look_at_nodes(reader, 1)
            assert kept(reader) == expected
    assert all(expected)


def test_rules_that_need_a_fact_hold_nowhere_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the doctor finds where every rule is asked of every topic is what it finds."""
    for state in STATES:
        with open_store(imported("small", state)) as store:
            found = list(diagnose(store, now_ms=NOW_MS))
            with monkeypatch.context() as patch:
                patch.setattr(judging, "_BY_NEED", [("", ALL_TOPIC_RULES)])
                assert list(diagnose(store, now_ms=NOW_MS)) == found


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("quick", [False, True])
def test_facts_of_subscriptions_read_together_are_those_of_each(state: str, quick: bool) -> None:
    asked = Asked.of(NOW_MS, quick=quick)
    with open_store(imported("small", state)) as store:
        with open_reader(store) as reader:
            names = list(iter_topics(reader.txn))
            failed: list[str] = []
            expected = list(iter_subscription_facts(reader, names, asked, lambda error: failed.append(str(error))))
        with open_reader(store) as reader:
            again: list[str] = []
            prepared = prepare_facts(reader, names, asked)
            found = []
            for name in names:
                one = prepared.get(name)
                found += (
                    iter_subscription_facts(reader, [name], asked, lambda error: again.append(str(error)))
                    if one is None
                    else iter_facts(one, asked, lambda error: again.append(str(error)))
                )
            assert found == expected
            assert len(prepared) > len(names) // 2
        assert again == failed
        assert any(one.delayed is not None and one.delayed.entries for one in expected) != quick


@pytest.mark.usefixtures("damages_stores")
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("seed", [None, 0, 1])
def test_ledgers_of_many_are_whole_as_of_few(
    state: str, seed: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = copied("small", state, tmp_path)
    if seed is not None:
        damage_drawn(store, random.Random(seed))
    found = []
    for many in (1 << 40, 1):
        monkeypatch.setattr(coverage, "_MANY_LEDGERS", many)
        monkeypatch.setattr(coverage, "_CHUNK_LEDGERS", 7)
        for looks in (False, True):
            with open_store(store) as opened, open_reader(opened) as reader, reader.txn.passing_altered():
                if looks:
                    look_at_nodes(reader, 1)
                shortfalls = read_shortfalls(reader.txn)
                ids = [*iter_ledger_ids(reader.txn)]
                found.append((shortfalls, [find_whole(reader.txn, ledger_id) for ledger_id in ids]))
    assert all(one == found[0] for one in found)
    assert any(found[0][1])


@pytest.mark.parametrize("state", STATES)
def test_ledgers_looked_at_one_by_one_are_whole_as_in_a_look_at_all(state: str) -> None:
    found = []
    for look in (read_shortfalls, look_at_ledgers_one_by_one):
        with open_store(imported("small", state)) as store, open_reader(store) as reader:
            look(reader.txn)
            ids = [*iter_ledger_ids(reader.txn), -1, 1 << 31, 1 << 40]
            found.append([find_whole(reader.txn, ledger_id) for ledger_id in ids])
    assert found[0] == found[1]
    assert any(found[0])
