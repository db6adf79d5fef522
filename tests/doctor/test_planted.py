"""Causes where nothing is damaged, planted one by one: each is told, and nothing else that was not there before."""

from collections import namedtuple
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pulsar_admin.store.codec.cursor import CursorInfo, encode_cursor_info
from pulsar_admin.store.codec.ledgermetadata import closed_ledger, encode_ledger_metadata, ledger_path
from pulsar_admin.store.codec.managedledger import LedgerInfo, decode_managed_ledger, encode_managed_ledger
from pulsar_admin.store.db.tree import read_node
from pulsar_admin.store.facts import file_sums
from pulsar_admin.store.names import Position
from pulsar_admin.store.rules import storage, topics
from pulsar_admin.store.rules.finding import Finding, Severity
from tests.conftest import Cli
from tests.doctor.test_checked import told
from tests.stores import NOW_MS, change_value, imported, put_node, read_rows
from tests.worlds import oracle

PLAIN = "persistent://public/default/plain"
PLAIN_PATH = "/managed-ledgers/public/default/persistent/plain"
SUBSCRIPTIONS = ("expire-me", "half", "holes", "never", "reset-me")
DAY_MS = 86_400_000


def set_cursors(path: Path, topic_path: str, cursors: dict[str, CursorInfo]) -> None:
    for name, info in cursors.items():
        change_value(path, f"{topic_path}/{name}", lambda _, info=info: encode_cursor_info(info))


def new_in(path: Path, before: list[Finding], now_ms: int = NOW_MS) -> list[Finding]:
    """Return what is told now and was not BEFORE."""
    seen = {(one.code, one.where, one.severity) for one in before}
    return [one for one in told(path, now_ms=now_ms) if (one.code, one.where, one.severity) not in seen]


def the_one(found: list[Finding]) -> Finding:
    assert len(found) == 1, found
    return found[0]


@cache
def told_of_clean() -> list[Finding]:
    """What is told of every copy of the clean store that nothing was planted in."""
    return told(imported("small", "clean"))


@pytest.fixture
def before() -> list[Finding]:
    return told_of_clean()


# -- clocks, TTL, delays --------------------------------------------------------------------------------------------------


def test_a_ledger_closed_in_the_future(store: Path, before: list[Finding], damages_stores: None) -> None:
    def later(value: bytes) -> bytes:
        managed = decode_managed_ledger(value, "test")
        first, *rest = managed.ledgers
        return encode_managed_ledger(
            replace(managed, ledgers=(replace(first, timestamp_ms=NOW_MS + 30 * DAY_MS), *rest)), value
        )

    change_value(store, PLAIN_PATH, later)
    found = the_one([one for one in new_in(store, before) if one.code == "ledger-closed-in-future"])
    assert (found.severity, found.where, found.at_stake_bytes) == (Severity.WARNING, PLAIN, 3987)
    assert found.evidence == {"topic": PLAIN, "ledgers": 1, "bytes": 3987}


def test_a_ttl_shorter_than_delays(store: Path, before: list[Finding], cli: Cli) -> None:
    cli.done("--store", store, "namespaces", "set-message-ttl", "acme/delayed", "-ttl", "60")
    found = new_in(store, before)
    assert {one.code for one in found} == {"delay-beyond-ttl"}
    status = oracle("small")["topics"]["acme/delayed/reminders"]["internal_stats"]["cursors"]
    assert {one.evidence["subscription"] for one in found} == set(status)
    sent = {row[0]: row for row in oracle("small")["topics"]["acme/delayed/reminders"]["messages"]}
    assert sent
    assert all(one.severity is Severity.WARNING and one.at_stake_messages > 0 for one in found)
    # What delays no longer than the TTL is no conflict.
    cli.done("--store", store, "namespaces", "set-message-ttl", "acme/delayed", "-ttl", "99999999")
    assert new_in(store, before) == []


# -- quotas, acknowledgements -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "does"),
    [
        (("-l", "1K", "-p", "consumer_backlog_eviction"), "drops the oldest messages"),
        (("-l", "1K", "-p", "producer_exception"), "producers get an error"),
        (("-lt", "60", "-p", "producer_request_hold", "-t", "message_age"), "producers wait"),
    ],
)
def test_a_backlog_over_its_quota(
    words: tuple[str, ...], does: str, store: Path, before: list[Finding], cli: Cli
) -> None:
    cli.done("--store", store, "namespaces", "set-backlog-quota", "public/default", *words)
    found = new_in(store, before)
    assert {one.code for one in found} == {"backlog-over-quota"}
    mine = next(one for one in found if one.evidence["topic"] == PLAIN)
    assert does in mine.message
    if "1K" in words:
        stats = oracle("small")["topics"]["public/default/plain"]["stats"]
        assert mine.evidence["backlogBytes"] == stats["backlogSize"]


def test_a_backlog_below_its_quota(store: Path, before: list[Finding], cli: Cli) -> None:
    words = ("-l", "10G", "-p", "consumer_backlog_eviction")
    assert cli("--store", store, "namespaces", "set-backlog-quota", "public/default", *words).exit_code == 0
    assert new_in(store, before) == []


@pytest.mark.usefixtures("damages_stores")
def test_one_hole_that_pins_ledgers(store: Path, before: list[Finding], monkeypatch: pytest.MonkeyPatch) -> None:
    end = Position(47, -1)
    held = CursorInfo(-1, Position(9, 3), ranges=((Position(9, 4), end),))  # 9:4 alone is open
    cursors = {name: CursorInfo(-1, end) for name in SUBSCRIPTIONS}
    set_cursors(store, PLAIN_PATH, {**cursors, "half": held})
    found = the_one([one for one in new_in(store, before) if one.code == "ack-hole-pins-ledgers"])
    ledgers = oracle("small")["topics"]["public/default/plain"]["internal_info"]["ledgers"]
    sizes = [one["size"] for one in ledgers if 9 < one["ledgerId"] < 47]
    assert (found.where, found.severity) == (f"{PLAIN} half", Severity.NOTE)
    assert (found.evidence["position"], found.evidence["ledgers"]) == ("9:4", len(sizes))
    assert found.at_stake_bytes == sum(sizes)
    monkeypatch.setattr(topics, "PINNED_BYTES", sum(sizes))
    assert {one.severity for one in told(store) if one.code == found.code} == {Severity.WARNING}
    set_cursors(store, PLAIN_PATH, {"never": CursorInfo(-1, Position(9, -1))})  # needs them all
    assert not [one for one in told(store) if one.code == found.code]


def test_more_ranges_than_a_broker_stores(store: Path, before: list[Finding], damages_stores: None) -> None:
    def with_ranges(count: int) -> CursorInfo:
        ranges = tuple((Position(8, 2 * one), Position(8, 2 * one + 1)) for one in range(count))
        return CursorInfo(-1, Position(9, 3), ranges=ranges)

    set_cursors(store, PLAIN_PATH, {"half": with_ranges(9_999)})
    assert not [one for one in told(store) if one.code == "ack-ranges-at-limit"]
    set_cursors(store, PLAIN_PATH, {"half": with_ranges(10_000)})
    found = the_one([one for one in new_in(store, before) if one.code == "ack-ranges-at-limit"])
    assert found.where == f"{PLAIN} half"


# -- compaction, ledgers ----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("damages_stores")
def test_a_compaction_that_nobody_repeats(store: Path, before: list[Finding], cli: Cli) -> None:
    """`__compaction` stands at the beginning of a topic whose subscriptions are at its end."""
    set_cursors(store, PLAIN_PATH, {name: CursorInfo(-1, Position(47, -1)) for name in SUBSCRIPTIONS})
    info = encode_cursor_info(CursorInfo(-1, Position(9, 24), properties={}))
    put_node(store, f"{PLAIN_PATH}/__compaction", info)
    found = the_one([one for one in new_in(store, before) if one.code == "compaction-stale"])
    ledgers = oracle("small")["topics"]["public/default/plain"]["internal_info"]["ledgers"]
    assert found.at_stake_bytes == sum(one["size"] for one in ledgers if 9 < one["ledgerId"] < 47)
    assert cli("--store", store, "topics", "set-compaction-threshold", PLAIN, "-t", "1K").exit_code == 0
    assert not [one for one in told(store) if one.code == "compaction-stale"]


@pytest.mark.parametrize(
    ("count", "entries", "size_bytes", "expected"),
    [
        (1_001, 99, 10, {"ledgers-tiny"}),
        (1_001, 100, 10, set()),
        (1_000, 99, 10, set()),  # the last one is open
        (2, 10, 10 << 30, set()),
        (2, 10, (10 << 30) + 1, {"ledger-huge"}),
    ],
)
def test_ledgers_of_odd_sizes(
    count: int,
    entries: int,
    size_bytes: int,
    expected: set[str],
    store: Path,
    before: list[Finding],
    damages_stores: None,
) -> None:
    def listed(value: bytes) -> bytes:
        ledgers = tuple(LedgerInfo(5_000_000 + one, entries, size_bytes, NOW_MS) for one in range(count))
        return encode_managed_ledger(replace(decode_managed_ledger(value, "test"), ledgers=ledgers), value)

    change_value(store, PLAIN_PATH, listed)
    ours = {"ledgers-tiny", "ledger-huge", "ledger-list-large"}
    found = [one for one in new_in(store, before) if one.code in ours]
    assert {one.code for one in found} == expected
    for one in found:
        if one.code == "ledgers-tiny":
            assert (one.evidence["ledgers"], one.evidence["averageEntries"]) == (count - 1, entries)


def test_a_list_of_ledgers_near_what_zookeeper_takes(
    store: Path, before: list[Finding], monkeypatch: pytest.MonkeyPatch, damages_stores: None
) -> None:
    def listed(value: bytes) -> bytes:
        ledgers = tuple(LedgerInfo(5_000_000 + one, 100, 10, NOW_MS) for one in range(1_001))
        return encode_managed_ledger(replace(decode_managed_ledger(value, "test"), ledgers=ledgers), value)

    change_value(store, PLAIN_PATH, listed)
    assert not [one for one in new_in(store, before) if one.code == "ledger-list-large"]
    size = read_rows(store, lambda txn: len(read_node(txn, PLAIN_PATH).value))
    monkeypatch.setattr(topics, "NODE_BYTES", size * 2 + 1)
    assert not [one for one in told(store) if one.code == "ledger-list-large"]
    for limit, severity in (
        (size * 2, Severity.WARNING),
        (size * 10 // 9 + 1, Severity.WARNING),
        (size * 10 // 9, Severity.CRITICAL),
    ):
        monkeypatch.setattr(topics, "NODE_BYTES", limit)
        found = the_one([one for one in told(store) if one.code == "ledger-list-large"])
        assert (found.severity, found.evidence["nodeBytes"]) == (severity, size)


# -- the whole store --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("claims", "code"),
    [
        (
            {"component": b"compacted-ledger", "pulsar/compactedTopic": b"persistent://public/default/plain"},
            "leaked-compacted-ledgers",
        ),
        ({"component": b"delayed-index-bucket"}, "leaked-buckets"),
        (
            {"component": b"managed-ledger", "pulsar/managed-ledger": b"public/default/persistent/plain"},
            "leaked-topic-ledgers",
        ),
        ({"component": b"managed-ledger", "pulsar/cursor": b"x"}, "leaked-cursor-ledgers"),
        ({"component": b"schema"}, "leaked-schema-ledgers"),
        ({}, "leaked-ledgers"),
    ],
)
def test_ledgers_that_nothing_references(
    claims: dict[str, bytes], code: str, store: Path, before: list[Finding], damages_stores: None
) -> None:
    counts = {one.code: one.evidence["ledgers"] for one in before if one.code == code}
    put_node(store, ledger_path(4_000_000), encode_ledger_metadata(closed_ledger("127.0.0.1:3181", 0, 0, claims)))
    found = the_one([one for one in told(store) if one.code == code])
    assert found.evidence["ledgers"] == counts.get(code, 0) + 1
    if code not in counts:
        assert found.evidence["ledgerIds"] == [4_000_000]


def test_nothing_is_called_leaked_where_metadata_is_damaged(store: Path, damages_stores: None) -> None:
    """The ledgers of a topic whose list cannot be read look as if nothing referenced them."""
    change_value(store, PLAIN_PATH, lambda _: b"\xff")
    found = {one.code for one in told(store)}
    assert "topic-unreadable" in found
    assert not [code for code in found if code.startswith("leaked")]
    assert "ledgers-unreferenced" in found


def test_what_a_crash_cost() -> None:
    """The last write is at or behind the last message that the broker had acknowledged when it was killed."""
    found = {one.code: one for one in told(imported("small", "crashed"))}
    crash = oracle("small")["crash"]
    assert found["not-closed"].evidence["topics"] >= len(crash["acknowledged_to_producer"])
    assert (
        found["not-closed"].evidence["lastWrite"] > oracle("small")["topics"]["public/default/plain"]["messages"][-1][3]
    )
    assert found["entries-only-in-journal"].at_stake_messages > 0
    not_stored = found["acknowledgements-not-stored"]
    assert not_stored.evidence["subscriptions"] == len(crash["acks_sent"])
    killed = {f"{name} of persistent://{topic}" for topic, name in map(str.split, crash["acks_sent"])}
    assert set(not_stored.evidence["examples"]) == killed
    assert all(name in not_stored.message for name in killed)


def test_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    usage: Any = namedtuple("usage", "total used free")
    for used, expected in ((94, set()), (95, {"disk-full"})):
        monkeypatch.setattr(file_sums, "disk_usage", lambda folder, used=used: usage(100, used, 100 - used))
        found = {one.code for one in told(imported("small", "clean"))}
        assert found & {"disk-full"} == expected


def test_dead_bytes_that_compaction_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log goes when less than half of it lives: with a higher share wanted, none is kept."""
    (found,) = [one for one in told(imported("small", "clean")) if one.code == "dead-bytes-kept"]
    assert found.severity is Severity.NOTE
    assert found.at_stake_bytes > 0
    monkeypatch.setattr(storage, "COMPACTED_BELOW", 1.1)
    assert not [one for one in told(imported("small", "clean")) if one.code == "dead-bytes-kept"]
