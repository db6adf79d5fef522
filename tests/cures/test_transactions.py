"""Pending-ack logs that no broker can replay."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from pulsar_admin.store.codec.cursor import CursorInfo, encode_cursor_info
from pulsar_admin.store.codec.ledgermetadata import LedgerState, encode_ledger_metadata, ledger_path
from pulsar_admin.store.codec.managedledger import LedgerInfo, ManagedLedger, encode_managed_ledger
from pulsar_admin.store.db.ledger_ids import find_next_ledger_id, put_next_ledger_id
from pulsar_admin.store.facts.transactions import PendingAckLog
from pulsar_admin.store.model.broken import BrokenLedger
from pulsar_admin.store.model.cursors import PENDING_ACK_CURSOR
from pulsar_admin.store.model.ledgers import find_metadata
from pulsar_admin.store.model.topics import Topic, read_topic
from pulsar_admin.store.model.transactions import ASSIGN, log_topic
from pulsar_admin.store.names import Position, parse_topic
from pulsar_admin.store.proto.transaction_pb2 import PendingAckMetadataEntry, TransactionMetadataEntry
from tests.conftest import Cli
from tests.cures.curing import check_cured, check_told, diagnoses, put_values, run_printed, told
from tests.stores import copied, lose_nodes, put_node, read_rows, read_store, write_rows
from tests.synthetic import CREATED_MS, Made, MadeTopic, make_store
from tests.why.planted import Message, Planted, ask, plant
from tests.worlds import CLUSTER

VICTIM = parse_topic("public/default/txn-in")
LOG = VICTIM.pending_ack("perf")
CURSOR = LOG.cursor_path(PENDING_ACK_CURSOR)
WHERE = f"{VICTIM} perf"
WORLDS = ("small", CLUSTER)
CODE = "transaction-coordinators-unassigned"


def read_log(store: Path) -> Topic:
    return read_store(store, lambda reader: read_topic(reader.txn, LOG))


def reason_of(cli: Cli, store: Path) -> str:
    """What ``topics why`` tells first of the subscription."""
    first = cli("--store", store, "topics", "why", VICTIM, "-s", "perf", "-o", "json").json["reasons"][0]
    return str(first["code"])


def acks(least: int) -> PendingAckMetadataEntry:
    """What an open transaction acknowledged."""
    return PendingAckMetadataEntry(pending_ack_op=1, ack_type=0, txnid_most_bits=1, txnid_least_bits=least)


def put_cursor(store: Path, position: Position) -> None:
    put_values(store, {CURSOR: encode_cursor_info(CursorInfo(-1, position))})


def trim(store: Path, empty: Sequence[int]) -> Position:
    """Leave of the log ledgers without entries alone, with ids EMPTY (or none) after its last one's; return where that one ended.

    So a broker leaves it that trimmed what was consumed and loaded the log again.
    """
    log = read_log(store)
    last = log.ledgers[-1]
    metadata = read_rows(store, lambda txn: find_metadata(txn, last.ledger_id))
    assert metadata is not None
    opened_again = encode_ledger_metadata(replace(metadata, state=LedgerState.OPEN, last_entry_id=-1, length=0))
    ids = [last.ledger_id + more for more in empty]
    listed = (*(LedgerInfo(one, timestamp_ms=1) for one in ids[:-1]), *(LedgerInfo(one) for one in ids[-1:]))
    values = {ledger_path(one): opened_again for one in ids}
    put_values(store, values | {LOG.path: encode_managed_ledger(ManagedLedger(listed))})
    lose_nodes(store, *(ledger_path(one) for one in log.ids))
    write_rows(
        store, lambda txn: put_next_ledger_id(txn, max([find_next_ledger_id(txn) or 0, *(one + 1 for one in ids)]))
    )
    return Position(last.ledger_id, last.entries - 1)


@pytest.mark.usefixtures("damages_stores")
@pytest.mark.parametrize(
    ("name", "empty"),
    [
        *(("small", empty) for empty in ((1000,), (1000, 1007), ())),
        *(pytest.param(CLUSTER, empty, marks=pytest.mark.deep) for empty in ((1000,), (1000, 1007), ())),
    ],
)
def test_a_log_whose_replay_never_ends(name: str, empty: Sequence[int], whole_cli: Cli, tmp_path: Path) -> None:
    """apache/pulsar#26368: the consumed ledgers are gone, and the cursor still stands at the last entry of one of them."""
    store = copied(name, "clean", tmp_path)
    end = trim(store, empty)
    beginning = read_log(store).last_confirmed
    put_cursor(store, beginning)
    before, stats = (
        diagnoses(whole_cli, store),
        ("--store", store, "transactions", "pending-ack-stats", "-t", VICTIM, "-s", "perf"),
    )
    assert whole_cli(*stats, "-o", "json").json["state"] == "Ready"
    put_cursor(store, end)
    assert whole_cli(*stats, "-o", "json").json["state"] == "Initializing"
    (row,) = check_told(whole_cli, store, before, [("pending-ack-replay-endless", WHERE)])
    assert reason_of(whole_cli, store) == row["code"]
    assert (row["severity"], row["evidence"]["position"]) == ("critical", str(beginning))
    check_cured(whole_cli, store, row, told(before), [CURSOR])
    assert whole_cli(*stats, "-o", "json").json["state"] == "Ready"


@pytest.mark.usefixtures("damages_stores")
def test_a_log_that_may_go_on_in_a_journal_is_not_called_endless(whole_cli: Cli, store: Path) -> None:
    put_cursor(store, trim(store, (1000,)))
    (bookie,) = json.loads(read_rows(store, lambda txn: txn.get("state", b"bookies") or b""))["imported"]
    row = {"imported": [bookie], "absent": [], "withoutJournal": [bookie]}
    write_rows(store, lambda txn: txn.put("state", b"bookies", json.dumps(row).encode()))
    assert diagnoses(whole_cli, store, "--code", "pending-ack-replay-endless") == []


@pytest.mark.usefixtures("damages_stores")
def test_a_cursor_in_front_of_a_ledger_that_is_gone_moves_on(whole_cli: Cli, store: Path) -> None:
    """``ManagedCursorImpl.recoveredCursor``: (ledger, -1) of a ledger that is gone is the next one's beginning."""
    end = trim(store, (1000,))
    put_cursor(store, Position(end.ledger_id, -1))
    assert diagnoses(whole_cli, store, "--code", "pending-ack-replay-endless") == []


@pytest.mark.usefixtures("damages_stores")
@pytest.mark.parametrize("name", WORLDS)
def test_a_ledger_of_a_log_without_metadata(name: str, whole_cli: Cli, tmp_path: Path) -> None:
    """apache/pulsar#26374: the subscription that is dead is named, beside what is wrong with the ledger."""
    store = copied(name, "clean", tmp_path)
    before, lost = diagnoses(whole_cli, store), read_log(store).ids[1]
    lose_nodes(store, ledger_path(lost))
    expected = [("pending-ack-ledger-lost", WHERE), ("ledger-without-metadata", f"ledger {lost} of {LOG}")]
    rows = check_told(whole_cli, store, before, expected)
    row = next(row for row in rows if row["code"] == "pending-ack-ledger-lost")
    assert (row["severity"], row["evidence"]["ledgerIds"]) == ("critical", [lost])
    assert reason_of(whole_cli, store) == row["code"]
    check_cured(whole_cli, store, row, told(before), [ledger_path(lost)])
    assert not reason_of(whole_cli, store).startswith("pending-ack-ledger")


@pytest.mark.usefixtures("damages_stores")
@pytest.mark.parametrize("path", [CURSOR, LOG.path])
def test_a_log_that_no_broker_opens_holds_the_subscription(path: str, whole_cli: Cli, store: Path) -> None:
    """Tried on 4.0.8: it retries to open the log, and no consumer gets the subscription."""
    put_node(store, path, b"\xff\xff")
    why = whole_cli("--store", store, "topics", "why", VICTIM, "-s", "perf", "-o", "json").json
    assert (why["held"], why["reasons"][0]["code"]) == (True, "pending-ack-unreadable")
    assert path in {
        row["where"] for row in diagnoses(whole_cli, store, "--severity", "critical", "--code", "value-undecodable")
    }


def test_a_ledger_of_a_log_that_is_acknowledged_hurts_nobody(whole_cli: Cli, store: Path) -> None:
    first = read_log(store).ledgers[0]
    put_cursor(store, Position(first.ledger_id, first.entries - 1))
    lose_nodes(store, ledger_path(first.ledger_id))
    assert diagnoses(whole_cli, store, "--code", "pending-ack-ledger-lost") == []


@pytest.mark.parametrize(("mark", "open_"), [(Position(10, -1), 3), (Position(10, 1), 1), (Position(10, 2), 0)])
@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.usefixtures("damages_stores")
def test_a_replay_begins_after_the_logs_cursor(
    lost: bool, mark: Position, open_: int, whole_cli: Cli, tmp_path: Path
) -> None:
    """What lies before it, lost or not, no broker reads, and all screens say so."""
    made = [
        Made(CREATED_MS, raw=acks(least).SerializeToString(), lost=lost and Position(10, least) <= mark)
        for least in range(3)
    ]
    store = make_store(
        tmp_path / "s",
        {
            "a/b/t-s__transaction_pending_ack": MadeTopic(
                [made, []], cursors={PENDING_ACK_CURSOR: CursorInfo(-1, mark)}
            ),
            "a/b/t": MadeTopic([[Made(CREATED_MS)]], cursors={"s": CursorInfo(-1, Position(12, -1))}),
        },
    )
    why = whole_cli("--store", store, "topics", "why", "a/b/t", "-s", "s", "-o", "json").json["reasons"]
    told_of = [reason["evidence"]["transactions"] for reason in why if reason["code"] == "pending-acks"]
    assert [len(one) for one in told_of] == ([open_] if open_ else [])
    assert "transactions-unknown" not in {reason["code"] for reason in why}
    stats = whole_cli.json(store, "transactions pending-ack-stats -t a/b/t -s s")
    assert (stats["state"], stats["ongoingTxnSize"]) == ("Ready", open_)


def test_a_replay_stops_at_the_first_entry_that_is_lost_behind_the_cursor() -> None:
    broken = BrokenLedger(10, "missing", 9, ((0, 1), (4, 4)), is_last=True)
    assert PendingAckLog(parse_topic("a/b/t"), Position(10, 3), None, (broken,)).replayed_until == Position(10, 4)
    assert PendingAckLog(parse_topic("a/b/t"), Position(10, 4), None, (broken,)).replayed_until is None


@pytest.mark.usefixtures("damages_stores")
def test_entries_of_a_log_that_are_in_no_file(whole_cli: Cli, tmp_path: Path) -> None:
    name = parse_topic("a/b/t")

    def made(where: str, *, lost: bool) -> Path:
        ledgers = [
            [Made(CREATED_MS, raw=acks(least).SerializeToString(), lost=lost and place == 0) for least in range(3)]
            for place in range(2)
        ]
        log = MadeTopic(ledgers, cursors={PENDING_ACK_CURSOR: CursorInfo(-1, Position(11, -1))})
        topic = MadeTopic([[Made(CREATED_MS)]], cursors={"s": CursorInfo(-1, Position(10, -1))})
        return make_store(tmp_path / where, {str(name): topic, str(name.pending_ack("s")): log})

    before, store = diagnoses(whole_cli, made("whole", lost=False)), made("lost", lost=True)
    expected = [("pending-ack-entries-lost", f"{name} s"), ("entries-missing", f"ledger 11 of {name.pending_ack('s')}")]
    rows = check_told(whole_cli, store, before, expected)
    row = next(row for row in rows if row["code"] == "pending-ack-entries-lost")
    assert (row["severity"], row["evidence"]["ledgerIds"], row["evidence"]["entries"]) == ("critical", [11], 3)
    run_printed(whole_cli, row["mend"])
    assert told(diagnoses(whole_cli, store)) == told(before)


def log_entry(operation: int, least: int) -> Made:
    entry = TransactionMetadataEntry(metadata_op=operation, txnid_most_bits=1, txnid_least_bits=least, new_status=2)
    return Made(CREATED_MS, raw=entry.SerializeToString())


@pytest.mark.usefixtures("damages_stores")
@pytest.mark.parametrize("ended", [(0,), (0, 1)])
@pytest.mark.parametrize("count", [None, 0, 1, 2])
def test_coordinators_that_no_client_asks_for(
    count: int | None, ended: Sequence[int], whole_cli: Cli, tmp_path: Path
) -> None:
    """A log without an open transaction matters where nothing counts the coordinators; metadata kept elsewhere says nothing."""
    entries = [*(log_entry(0, least) for least in range(2)), *(log_entry(3, least) for least in ended)]
    store = make_store(tmp_path / "s", {str(log_topic(number)): MadeTopic([entries * number]) for number in range(2)})
    values = {} if count is None else {ASSIGN.partitioned_path: json.dumps({"partitions": count}).encode()}
    put_values(store, values)
    code = ("--code", CODE)
    if count is None:
        assert diagnoses(whole_cli, store, *code) == []
    put_values(store, values | {"/admin/policies/public/default": b"{}"})
    rows = diagnoses(whole_cli, store, *code)
    severity = "critical" if len(ended) == 1 else "warning"
    is_told = count != 2 and (not count or severity == "critical")
    assert [row["severity"] for row in rows] == [severity] * is_told
    for row in rows:
        assert row["evidence"]["numbers"] == ([1] if count else [0, 1])
        check_cured(whole_cli, store, row, told(diagnoses(whole_cli, store)) - told(rows), [ASSIGN.partitioned_path])


@pytest.mark.usefixtures("damages_stores")
@pytest.mark.parametrize(("value", "code"), [(b"x", "value-undecodable"), (b'{"partitions":-1}', CODE)])
def test_a_number_of_coordinators_that_is_none(value: bytes, code: str, whole_cli: Cli, store: Path) -> None:
    before = told(diagnoses(whole_cli, store))
    put_values(store, {ASSIGN.partitioned_path: value})
    assert code in {one for one, _ in told(diagnoses(whole_cli, store)) - before}


def test_a_transaction_that_nothing_ends(tmp_path: Path) -> None:
    planted = Planted({(10, 0): Message(transaction=(1, 7))}, policies={"message_ttl_in_seconds": 0})
    path = plant(tmp_path / "s", planted, {str(log_topic(1)): [log_entry(0, 7)]})
    reason = ask(path).reasons[0]
    assert (reason.code, reason.command) == ("open-transaction", f"pulsar-admin doctor --code {CODE}")
    assert "No broker loads coordinator 1" in reason.sentence
    put_values(path, {ASSIGN.partitioned_path: b'{"partitions":2}'})
    assert "No broker" not in ask(path).reasons[0].sentence


def test_a_standalone_starts_with_one_coordinator(whole_cli: Cli, store: Path) -> None:
    lose_nodes(store, ASSIGN.partitioned_path)
    assert diagnoses(whole_cli, store, "--code", CODE) == []
