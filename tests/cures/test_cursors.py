"""Cursors that are stored ahead of their topic, and those of deduplication that nothing moves."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from pulsar_admin import open_store as open_api
from pulsar_admin.store.codec.cursor import CursorInfo, decode_cursor_info, encode_cursor_info
from pulsar_admin.store.codec.ledgermetadata import ledger_path
from pulsar_admin.store.codec.managedledger import decode_managed_ledger, encode_managed_ledger
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.db.tree import read_node
from pulsar_admin.store.model.cursors import COMPACTION_CURSOR, DEDUP_CURSOR
from pulsar_admin.store.names import Position, parse_topic
from pulsar_admin.store.rules import topics as deduplication
from tests.conftest import Cli
from tests.cures.curing import check_cured, check_told, diagnoses, put_values, run_printed, told
from tests.stores import lose_nodes, read_rows
from tests.synthetic import CREATED_MS, Made, MadeTopic, make_store

NAME = parse_topic("a/b/t")
LEDGERS = [[Made(CREATED_MS + entry) for entry in range(4)] for _ in range(3)]
END = Position(12, 3)


def made(path: Path, **cursors: Position) -> Path:
    named = {name.replace("_", "."): CursorInfo(-1, position) for name, position in cursors.items()}
    return make_store(path, {str(NAME): MadeTopic(LEDGERS, cursors=named)})


def test_a_cursor_stored_ahead_of_its_topic(whole_cli: Cli, tmp_path: Path) -> None:
    """apache/pulsar#2666, #20094: the stored position is shown beside the one at which a broker starts, and the cure stores that one."""
    before, store = diagnoses(whole_cli, made(tmp_path / "whole", s=END)), made(tmp_path / "s", s=Position(40, 7))
    (row,) = check_told(whole_cli, store, before, [("cursor-ahead", f"{NAME} s")])
    shown = ("--store", store, "topics", "subscriptions", NAME, "--table")
    assert "12:3 (stored: 40:7)" in whole_cli(*shown).stdout
    (facts,) = whole_cli(*shown, "-o", "jsonl").json_lines
    shown_at = [(facts[key]["ledgerId"], facts[key]["entryId"]) for key in ("markDelete", "storedMarkDelete")]
    assert shown_at == [(12, 3), (40, 7)]
    truth = whole_cli("--store", store, "store", "cat", NAME.cursor_path("s"), "-o", "json").json["truth"]
    assert (truth["markDeletePosition"], truth["storedMarkDeletePosition"]) == ("12:3", "40:7")
    with open_api(store) as asked:
        place = asked.topic(str(NAME)).cursor("s").state()
    assert (str(place.mark_delete), str(place.stored_mark_delete)) == ("12:3", "40:7")
    look = whole_cli.on(store, f"topics reset-cursor {NAME} -s s -m latest --dry-run -o json")
    assert look.json["before"]["storedMarkDeletePosition"] == "40:7"
    check_cured(whole_cli, store, row, told(before), [NAME.cursor_path("s")])
    with open_store(store) as opened, opened.read() as txn:
        node = read_node(txn, NAME.cursor_path("s"))
        assert decode_cursor_info(node.value, node.path).mark_delete == END


@pytest.mark.parametrize("name", [DEDUP_CURSOR, COMPACTION_CURSOR, "pulsar.repl.west"])
def test_a_cursor_of_a_broker_ahead_is_stored_at_the_end(name: str, whole_cli: Cli, tmp_path: Path) -> None:
    """Moving what a broker keeps for itself is refused but with ``--force``, which the printed command has."""
    before, store = diagnoses(whole_cli, made(tmp_path / "whole", s=END)), made(tmp_path / "s", s=END)
    put_values(store, {NAME.cursor_path(name): encode_cursor_info(CursorInfo(-1, Position(40, 7)))})
    (row,) = check_told(whole_cli, store, before, [("cursor-ahead", f"{NAME} {name}")])
    assert row["message"].endswith("a broker starts it at 12:3, the end.")  # it delivers nothing
    check_cured(whole_cli, store, row, told(before), [NAME.cursor_path(name)])


@pytest.mark.usefixtures("damages_stores")
def test_the_lost_ledger_of_a_broker_s_cursor(whole_cli: Cli, tmp_path: Path) -> None:
    before, store = (made(tmp_path / where, s=END, pulsar_dedup=Position(10, 1)) for where in ("whole", "s"))
    put_values(store, {NAME.cursor_path(DEDUP_CURSOR): encode_cursor_info(CursorInfo(99, Position(10, 1)))})
    (row,) = [one for one in diagnoses(whole_cli, store) if one["code"] == "cursor-ledger-lost"]
    check_cured(whole_cli, store, row, told(diagnoses(whole_cli, before)), [NAME.cursor_path(DEDUP_CURSOR)])


def test_a_cursor_ahead_of_a_topic_without_ledgers(whole_cli: Cli, tmp_path: Path) -> None:
    """apache/pulsar#20094: the topic was created again, and its subscription kept."""
    topic = MadeTopic([], cursors={"s": CursorInfo(-1, Position(40, 7)), "new": CursorInfo(-1, Position(-1, -1))})
    store = make_store(tmp_path / "s", {str(NAME): topic})
    (row,) = check_told(whole_cli, store, (), [("cursor-ahead", f"{NAME} s")])
    assert "which lists no ledger: a broker starts it at -1:-1" in row["message"]
    check_cured(whole_cli, store, row, told(()), [NAME.cursor_path("s")])


def test_a_cursor_at_the_beginning_of_a_ledger_that_was_empty(whole_cli: Cli, tmp_path: Path) -> None:
    """apache/pulsar#2666: a broker that loaded the topic deleted the empty ledger 13, and 14 is the next one."""
    store = make_store(tmp_path / "s", {str(NAME): MadeTopic([*LEDGERS, [], []], cursors={"s": CursorInfo(-1, END)})})
    before = diagnoses(whole_cli, store)
    listed = read_rows(store, lambda txn: decode_managed_ledger(read_node(txn, NAME.path).value, NAME.path))
    listed = replace(listed, ledgers=tuple(one for one in listed.ledgers if one.ledger_id != 13))
    ahead = {NAME.cursor_path("s"): encode_cursor_info(CursorInfo(-1, Position(13, -1)))}
    put_values(store, ahead | {NAME.path: encode_managed_ledger(listed)})
    lose_nodes(store, ledger_path(13))
    (row,) = [one for one in diagnoses(whole_cli, store) if one["code"] == "cursor-ahead"]
    assert row["severity"] == "note"
    assert "that its topic no longer lists, after its last entry 12:3" in row["message"]
    assert "12:3 (stored: 13:-1)" in whole_cli("--store", store, "topics", "subscriptions", NAME, "--table").stdout
    check_cured(whole_cli, store, row, told(before), [NAME.cursor_path("s")])


@pytest.mark.usefixtures("damages_stores")
def test_of_a_state_of_an_unknown_form_the_command_is_a_look(whole_cli: Cli, tmp_path: Path) -> None:
    """Nothing here replaces what a newer version may have written: the reset that is printed for damage would be refused."""
    store = made(tmp_path / "s", s=END)
    put_values(store, {NAME.cursor_path("s"): encode_cursor_info(CursorInfo(11, END))})  # a ledger of messages
    (row,) = diagnoses(whole_cli, store, "--code", "cursor-unreadable")
    whole_cli.on(store, f"topics reset-cursor {NAME} -s s -m earliest --force").ends(7)
    assert row["mend"].endswith(f"store cat {NAME.cursor_path('s')} --hex")
    run_printed(whole_cli, row["mend"])


def deduplicate(store: Path, *, is_enabled: bool | None) -> None:
    policies = {} if is_enabled is None else {"deduplicationEnabled": is_enabled}
    put_values(store, {NAME.namespace.policies_path: json.dumps(policies).encode()})


def test_a_cursor_of_deduplication_that_is_off(whole_cli: Cli, tmp_path: Path) -> None:
    """apache/pulsar#15363: two of three ledgers are kept by it alone."""
    store = made(tmp_path / "s", s=END, pulsar_dedup=Position(10, 1))
    before = diagnoses(whole_cli, store)
    for is_enabled in (True, None):  # without a policy the broker's setting counts, which is in no store
        deduplicate(store, is_enabled=is_enabled)
        check_told(whole_cli, store, before, [])
    deduplicate(store, is_enabled=False)
    (row,) = check_told(whole_cli, store, before, [("dedup-cursor-left", str(NAME))])
    assert (row["evidence"]["ledgers"], row["evidence"]["position"]) == (2, "10:1")
    check_cured(whole_cli, store, row, told(before), [NAME.cursor_path(DEDUP_CURSOR)])


def test_a_cursor_of_deduplication_keeps_the_ledgers_of_a_topic_without_subscriptions(
    whole_cli: Cli, tmp_path: Path
) -> None:
    store = made(tmp_path / "s", pulsar_dedup=Position(10, 1))
    deduplicate(store, is_enabled=False)
    (row,) = diagnoses(whole_cli, store, "--code", "dedup-cursor-left")
    assert (row["evidence"]["ledgers"], "keeps 2 ledgers" in row["message"]) == (2, True)
    kept = whole_cli("--store", store, "topics", "why", NAME, "--disk", "-o", "jsonl").json_lines
    ledgers = next(one["reason"]["evidence"] for one in kept if one["reason"]["code"] == "cursor")
    assert (ledgers["firstLedger"], ledgers["lastLedger"]) == (10, 11)


def test_a_cursor_of_deduplication_that_keeps_much(
    whole_cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = made(tmp_path / "s", s=END, pulsar_dedup=Position(10, 1))
    before = diagnoses(whole_cli, store)
    monkeypatch.setattr(deduplication, "HELD_BYTES", 1)
    (row,) = check_told(whole_cli, store, before, [("dedup-holds-ledgers", str(NAME))])
    assert (row["severity"], row["evidence"]["ledgers"]) == ("note", 2)
    monkeypatch.setattr(deduplication, "HELD_BYTES", row["evidence"]["bytes"] + 1)
    check_told(whole_cli, store, before, [])


def test_a_cursor_of_deduplication_that_is_far_behind(
    whole_cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """apache/pulsar#22479: a broker replays what is after it, also if a subscription needs those entries itself."""
    store = made(tmp_path / "s", s=Position(10, -1), pulsar_dedup=Position(10, 1))
    asked = ("--code", "dedup-holds-ledgers")
    assert diagnoses(whole_cli, store, *asked) == []
    entries = sum(map(len, LEDGERS)) - 2
    monkeypatch.setattr(deduplication, "REPLAYED_ENTRIES", entries)
    (row,) = diagnoses(whole_cli, store, *asked)
    assert (row["severity"], f"the {entries} entries after its cursor at 10:1 " in row["message"]) == ("warning", True)
    deduplicate(store, is_enabled=False)
    assert diagnoses(whole_cli, store, *asked) == []
    deduplicate(store, is_enabled=True)
    monkeypatch.setattr(deduplication, "REPLAYED_ENTRIES", entries + 1)
    assert diagnoses(whole_cli, store, *asked) == []


def test_the_beginning_of_an_empty_last_ledger_is_the_end(whole_cli: Cli, tmp_path: Path) -> None:
    """So a real 4.2.4 left ``__compaction`` when it unloaded topics."""
    cursors = {"s": CursorInfo(-1, Position(13, -1))}
    store = make_store(tmp_path / "s", {str(NAME): MadeTopic([*LEDGERS, []], cursors=cursors)})
    assert diagnoses(whole_cli, store, "--code", "cursor-ahead") == []
    assert "stored" not in whole_cli("--store", store, "topics", "subscriptions", NAME, "--table").stdout
