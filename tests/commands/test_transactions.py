"""``transactions``: entries that a broker 4.0.8 wrote, and what it said of them: (0,0) committed, (0,1) aborted, (0,2) and (0,3) open."""

from pathlib import Path

import pytest

import pulsar_admin as pa
from pulsar_admin.jsonify import to_json
from pulsar_admin.store.changes.log_writer import LedgerSpec, apply_written, write_ledgers
from pulsar_admin.store.changes.plan import ChangeKind, Plan, put_value_step
from pulsar_admin.store.codec import transactions as codec
from pulsar_admin.store.codec.managedledger import LedgerInfo, ManagedLedger, encode_managed_ledger
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.db.tree import find_node
from pulsar_admin.store.errors import EntryCorrupt, Unsupported
from pulsar_admin.store.model.transactions import log_topic
from pulsar_admin.store.names import Position, encode_name, parse_topic
from tests.altering import alter, raw_rows
from tests.commands.changing import check_undo, rows_of
from tests.conftest import Cli
from tests.stores import copied, imported, put_node
from tests.worlds import oracle

LOG = [
    "0800100018004080aea60a48e4c3cea9a03450e4c3cea9a0345800",
    "080110001800320b74646f2f6f6e652f74786e508ec4cea9a0345800",
    "0802100018003a120a0b74646f2f6f6e652f74786e120373756250f5c4cea9a0345800",
    "08031000180020002801509cc7cea9a0345800",
    "0803100018002001280250c8c7cea9a0345800",
    "0800100118004080aea60a48e3c7cea9a03450e3c7cea9a0345801",
    "080110011800320b74646f2f6f6e652f74786e50ecc7cea9a0345801",
    "0802100118003a120a0b74646f2f6f6e652f74786e120373756250f6c7cea9a0345801",
    "0803100118002000280350ffc7cea9a0345801",
    "08031001180020032804508acacea9a0345801",
    "0800100218004080aea60a4891cacea9a0345091cacea9a0345802",
    "080110021800320b74646f2f6f6e652f74786e5094cacea9a0345802",
    "0802100218003a120a0b74646f2f6f6e652f74786e1203737562509bcacea9a0345802",
    "0800100318004080aea60a48a3cacea9a03450a3cacea9a0345803",
    "080110031800320b74646f2f6f6e652f74786e50aacacea9a0345803",
]
PENDING = [
    "08011000180020002a0708920210002000",
    "0802100018002000",
    "08011000180120002a0708920210012000",
    "0803100018012000",
    "08011000180220002a0708920210022000",
]
METADATA = """{
  "txnId" : "(0,2)",
  "status" : "OPEN",
  "openTimestamp" : 1795383600401,
  "timeoutAt" : 21600000,
  "producedPartitions" : {
    "tdo/one/txn" : {
      "aborted" : false
    }
  },
  "ackedPartitions" : {
    "tdo/one/txn" : {
      "sub" : { }
    }
  }
}
"""
"""What the broker said, but for ``startPosition``: the topic's own entries are not recorded here."""
SLOW = (
    "(0,3)    TransactionMetadata(txnId=(0,3), status=OPEN, openTimestamp=1795383600419, timeoutAt=21600000, "
    "producedPartitions={tdo/one/txn=TransactionInBufferStats(startPosition=null, aborted=false)}, ackedPartitions={}, owner=null)\n"
    "(0,2)    TransactionMetadata(txnId=(0,2), status=OPEN, openTimestamp=1795383600401, timeoutAt=21600000, "
    "producedPartitions={tdo/one/txn=TransactionInBufferStats(startPosition=null, aborted=false)}, "
    "ackedPartitions={tdo/one/txn={sub=TransactionInPendingAckStats(cumulativeAckPosition=null)}}, owner=null)\n"
)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """The world small with these logs in place of its own."""
    made = copied("small", "clean", tmp_path)
    topic = parse_topic("tdo/one/txn")
    logs = {log_topic(0): LOG, topic.pending_ack("sub"): PENDING}
    with open_store(made, writable=True) as opened:
        specs = [
            (LedgerSpec({"component": b"managed-ledger"}), [bytes.fromhex(one) for one in entries])
            for entries in logs.values()
        ]
        written = write_ledgers(opened, specs)
        with opened.read() as txn:
            steps = [*written.steps(txn, 0), put_value_step(txn, topic.path, b"", 0)]
            cursor = bytes.fromhex("08ffffffffffffffffff01100118ffffffffffffffffff01")
            steps.append(put_value_step(txn, topic.cursor_path("sub"), cursor, 0))
            for name, ledger in zip(logs, written.ledgers, strict=True):
                info = LedgerInfo(ledger.ledger_id, ledger.entries, ledger.size_bytes, 1)
                steps.append(put_value_step(txn, name.path, encode_managed_ledger(ManagedLedger((info,))), 0))
            plan = Plan(ChangeKind("test", "test"), txn.id, tuple(steps), ())
        apply_written(written, plan, 0)
    return made


@pytest.mark.parametrize("named", ["s%2Fslash%3A1+%C3%BC", "s/slash:1 ü"], ids=["4.2", "4.0"])
def test_a_log_of_a_subscription_whose_name_is_encoded(named: str, cli: Cli, store: Path) -> None:
    """As brokers of 4.2.4 and 5.0.1 named it, and one of 4.0.8 by its classes: ``topics list`` of 4.2.4 said ``t2-s%2Fslash%3A1__…``."""
    topic, subscription = parse_topic("tdo/one/txn"), "s/slash:1 ü"
    with open_store(store) as opened, opened.read() as txn:
        log, cursor = (find_node(txn, path) for path in (topic.pending_ack("sub").path, topic.cursor_path("sub")))
    assert log is not None
    assert cursor is not None
    path = f"{topic.namespace.managed_ledgers_path}/{encode_name(f'txn-{named}__transaction_pending_ack')}"
    put_node(store, path, log.value)
    put_node(store, topic.cursor_path(subscription), cursor.value)
    said = cli("--store", store, "transactions", "pending-ack-stats", "-t", str(topic), "-s", subscription)
    assert said.json["ongoingTxnSize"] == 1
    why = cli("--store", store, "topics", "why", str(topic), "-s", subscription).stdout
    assert "1 open transaction ((0,2)) holds acknowledgements" in " ".join(why.split())
    gone = cli("--store", store, "topics", "delete", str(topic), "-f", "-y", "-o", "json").stdout
    with open_store(store) as opened, opened.read() as txn:
        assert find_node(txn, path) is None, gone


def test_log_entries() -> None:
    entries = [codec.decode_log_entry(bytes.fromhex(one), "entry") for one in LOG]
    operations = [codec.NEW, codec.ADD_PARTITION, codec.ADD_SUBSCRIPTION, codec.UPDATE, codec.UPDATE]
    assert [entry.operation for entry in entries] == [*operations, *operations, *operations[:3], *operations[:2]]
    assert [entry.txn.least for entry in entries] == [0] * 5 + [1] * 5 + [2] * 3 + [3] * 2
    assert (entries[0].timeout_ms, entries[0].start_ms) == (21_600_000, 1795383599588)
    assert entries[1].partitions == ("tdo/one/txn",)
    assert entries[2].subscriptions == (("tdo/one/txn", "sub"),)
    assert entries[3].status == codec.COMMITTING


def test_pending_ack_entries() -> None:
    entries = [codec.decode_pending_ack(bytes.fromhex(one), "entry") for one in PENDING]
    assert entries[0].positions == (Position(274, 0),)
    assert (entries[0].operation, entries[3].operation, entries[4].txn) == (codec.ACK, codec.ABORT, codec.TxnId(0, 2))
    assert not entries[0].is_cumulative


def test_other_entries_are_refused() -> None:
    with pytest.raises(Unsupported):
        codec.decode_log_entry(bytes.fromhex("0e010001"), "entry")
    with pytest.raises(EntryCorrupt):
        codec.decode_log_entry(bytes.fromhex("0809"), "entry")
    with pytest.raises(EntryCorrupt):
        codec.decode_pending_ack(b"\xff\xff", "entry")


def test_coordinator(cli: Cli, store: Path) -> None:
    assert cli.on(store, "transactions coordinator-stats -c 0").json == {
        "state": "Ready",
        "leastSigBits": 3,
        "lowWaterMark": 1,
        "ongoingTxnSize": 2,
        "recoverStartTime": 0,
        "recoverEndTime": 0,
    }
    assert cli.on(store, "transactions transaction-metadata -m 0 -l 2").stdout == METADATA
    assert cli.on(store, "transactions slow-transactions -t 5h").stdout == SLOW
    assert cli.on(store, "transactions slow-transactions -t 7h").stdout == ""
    over = cli.on(store, "transactions transaction-metadata -m 0 -l 1")
    assert (over.exit_code, "The transaction with this txdID `(0,1)`not found" in over.stderr) == (5, True)
    none = cli.on(store, "transactions coordinator-stats -c 99")
    assert "Transaction coordinator not found! coordinator id : 99" in none.stderr


def test_a_coordinator_without_open_transactions_has_no_low_water_mark(cli: Cli) -> None:
    """A broker of 4.0.8 said 0 after its 17th transaction was over."""
    found = cli.on(imported("small", "clean"), "transactions coordinator-stats -c 0").json
    assert found["leastSigBits"] > 0
    assert (found["ongoingTxnSize"], found["lowWaterMark"]) == (0, 0)


def test_pending_acks(cli: Cli, store: Path) -> None:
    found = cli.on(store, "transactions pending-ack-stats -t tdo/one/txn -s sub").json
    assert (found["state"], found["ongoingTxnSize"]) == ("Ready", 1)
    internal = cli.on(store, "transactions pending-ack-internal-stats -t tdo/one/txn -s sub").json
    assert internal["pendingAckLogStats"]["managedLedgerName"] == "tdo/one/persistent/txn-sub__transaction_pending_ack"
    missing = cli.on(store, "transactions pending-ack-stats -t tdo/one/txn -s nosub")
    assert "persistent://tdo/one/txn not found subscription : nosub" in missing.stderr


@pytest.mark.parametrize("topic", ["public/default/txn-in", "public/default/txn-out"])
def test_buffer(cli: Cli, store: Path, topic: str) -> None:
    said = oracle("small")["topics"][topic]["stats"]
    found = cli.on(store, f"transactions transaction-buffer-stats -t {topic}").json
    assert (found["ongoingTxnSize"], found["totalAbortedTransactions"]) == (
        said["ongoingTxnCount"],
        said["abortedTxnCount"],
    )


def test_scale(cli: Cli, store: Path) -> None:
    rows = rows_of(store)
    assert cli.on(store, "transactions scale-transactionCoordinators -r 0").exit_code == 2
    assert cli.on(store, "transactions scale-transactionCoordinators -r 32").ends(0).stdout == ""
    assert len(cli.on(store, "transactions coordinators-list").stdout.splitlines()) == 32
    check_undo(cli, store, 2, rows)


@pytest.mark.parametrize(
    ("path", "url"),
    [
        (
            "/admin/partitioned-topics/pulsar/system/persistent/transaction_coordinator_assign",
            "pulsar://127.0.0.1:6652",
        ),
        ("/admin/clusters/standalone", ""),
    ],
)
def test_coordinators_are_listed_beside_a_damaged_node(path: str, url: str, cli: Cli, store: Path) -> None:
    put_node(store, path, b"{")
    found = cli.on(store, "transactions coordinators-list -o json").ends(1, f"{path} is not JSON")
    assert found.json == {"0": url}


def test_coordinators_are_listed_without_a_look_at_their_logs(cli: Cli, store: Path, damages_stores: None) -> None:
    listed = cli.json(store, "transactions coordinators-list")
    log = b"/persistent/__transaction_log_0"
    (row,) = [row for row in raw_rows(store) if row.database == "tree" and row.key.endswith(log)]
    alter(store, row, len(row.value) // 2, 1)
    assert cli.on(store, "transactions coordinators-list -o json").ends(0).json == listed


def test_python_says_what_is_printed(cli: Cli, store: Path) -> None:
    of = "-t tdo/one/txn"
    with pa.open_store(store, writable=True) as opened:
        found, topic = opened.transactions(), opened.topic("tdo/one/txn")
        of_topic, acks = topic.transactions(), topic.cursor("sub").transactions()
        answers = {
            "coordinator-stats": found.stats(),
            "transaction-metadata -m 0 -l 2": found.transaction(0, 2),
            "slow-transactions -t 5h": found.open(coordinator=0, timeout_above="5h"),
            f"transaction-buffer-stats {of}": of_topic.stats(),
            f"transaction-in-buffer-stats {of} -m 0 -l 2": of_topic.transaction(0, 2),
            f"pending-ack-stats {of} -s sub": acks.stats(),
        }
        internal = found.internal_stats(0, metadata=True), acks.internal_stats()
        snapshots = opened.topic("plain").transactions().snapshot_stats()
        assert (sorted(found.open()), found.open(timeout_above="6h")) == (["(0,2)", "(0,3)"], {})
        assert acks.transaction(0, 2).cumulative_ack_position is None
        for wrong, says in (
            (lambda: found.transaction(0, 1), r"`\(0,1\)`not found"),
            (lambda: found.stats(99), "id : 99"),
        ):
            with pytest.raises(pa.NotFound, match=says):
                wrong()
        number = opened.apply(found.scale(32)).number
        assert (number, len(found.coordinators())) == (2, 32)
        with pytest.raises(pa.Refused):
            found.scale(32)
        opened.undo(2)
    for line, answer in answers.items():
        assert to_json(answer) == cli.json(store, f"transactions {line}"), line
    log = cli.json(store, "transactions coordinator-internal-stats -c 0 -m")["transactionLogStats"]
    assert internal[0].managed_ledger_name == log["managedLedgerName"]
    assert to_json(internal[0].managed_ledger_internal_stats.ledgers) == log["managedLedgerInternalStats"]["ledgers"]
    assert internal[1].managed_ledger_name == "tdo/one/persistent/txn-sub__transaction_pending_ack"
    shown = cli.json(store, "transactions buffer-snapshot-internal-stats -t plain")
    assert snapshots.managed_ledger_name == shown["singleSnapshotSystemTopicInternalStats"]["managedLedgerName"]
