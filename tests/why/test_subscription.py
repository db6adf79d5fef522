"""``topics why`` on planted causes: each alone, two at a time, and none."""

import shlex
from itertools import combinations
from pathlib import Path

import pytest

from pulsar_admin.store.db.files import METADATA_FILE_ID, WHOLE_METADATA, Damage, put_damage
from pulsar_admin.store.model.ledgers import find_place
from pulsar_admin.store.names import Position
from pulsar_admin.store.proto.transaction_pb2 import PendingAckMetadataEntry
from pulsar_admin.store.rules.holders import HOLDERS
from pulsar_admin.store.rules.subscriptions import STOPPING_RULES, SUBSCRIPTION_RULES
from tests.altering import flip
from tests.conftest import Cli
from tests.cures.curing import put_values
from tests.stores import lose_nodes, write_rows
from tests.synthetic import CREATED_MS, Made
from tests.why.planted import ABORT, COMMIT, NOW_MS, SUB, TOPIC, Message, Planted, ask, opened, plant
from tests.worlds import CLUSTER, world

QUOTA = {"limitSize": 1, "limitTime": -1, "policy": "producer_exception"}
NOTHING = Planted()
CAUSES = {
    "cursor-lost": Planted(cursor_ledger=99),
    "lost-entries": Planted({(10, entry): Message(lost=True) for entry in range(3)}),
    "open-transaction": Planted({(10, 0): Message(transaction=(1, 7))}),
    "delayed": Planted({(10, 0): Message(due_hours=2, key="k7")}),
    "ack-holes": Planted(ranges=(((10, 3), (10, 5)), ((10, 6), (10, 8)))),
    "open-transaction-ahead": Planted({(12, 3): Message(transaction=(1, 8))}),
    "lost-ahead": Planted({(11, 4): Message(lost=True)}),
}
"""The cause by the code of the first sentence; those in front are told before those behind."""
BESIDE = {
    "ttl-none": Planted(),
    "ttl-overdue": Planted(policies={"message_ttl_in_seconds": 3600}),
    "ttl-later": Planted(policies={"message_ttl_in_seconds": 36_000}),
    "ttl-future": Planted({(11, 2): Message(hours=-48)}, policies={"message_ttl_in_seconds": 36_000}),
    "quota-reached": Planted(policies={"backlog_quota_map": {"destination_storage": QUOTA}}),
    "quota-left": Planted(policies={"backlog_quota_map": {"destination_storage": {**QUOTA, "limitSize": 1 << 30}}}),
    "batch-acks": Planted(batch_deletes={Position(10, 5): (1,)}),
    "no-message": Planted({(10, 0): Message(raw=b"no message")}),
    "delayed-later": Planted({(10, 5): Message(due_hours=2)}),
    "ttl-drops-delayed": Planted({(10, 5): Message(due_hours=5)}, policies={"message_ttl_in_seconds": 36_000}),
    "ack-ranges-limit": Planted(ranges=tuple(((12, 9 + n), (12, 10 + n)) for n in range(0, 20_000, 2))),
    "aborted-transactions": Planted(
        {(10, 0): Message(transaction=(1, 7)), (10, 4): Message(transaction=(1, 7), marker=ABORT)}
    ),
}


@pytest.mark.parametrize("code", CAUSES)
def test_each_cause_is_told_first(code: str, tmp_path: Path, damages_stores: None) -> None:
    found = ask(plant(tmp_path / "s", CAUSES[code]))
    assert found.held
    assert found.reasons[0].code == code
    assert not {reason.code for reason in found.reasons} & (CAUSES.keys() - {code})


@pytest.mark.parametrize(("first", "second"), list(combinations(CAUSES, 2)))
def test_two_causes_are_both_told(first: str, second: str, tmp_path: Path, damages_stores: None) -> None:
    both = CAUSES[second].and_also(CAUSES[first])
    expected = {first, second}
    if expected == {"open-transaction", "delayed"}:
        both = both.and_also(Planted({(10, 0): Message(transaction=(1, 7), due_hours=2)}))
    if first == "lost-entries" and second in ("open-transaction", "delayed", "ack-holes"):
        # The first entries are lost: what they said is lost with them, and what they hold is behind the loss.
        expected = {first} | ({second} & {"ack-holes"})
    if expected == {"lost-entries", "lost-ahead"}:
        expected = {"lost-entries"}  # a broker gets no further than the first
    if expected == {"open-transaction", "open-transaction-ahead"}:
        expected = {"open-transaction"}
    found = ask(plant(tmp_path / "s", both))
    assert found.reasons[0].code == first
    assert {reason.code for reason in found.reasons} & CAUSES.keys() == expected


def test_pulsar_5_reads_acknowledgements_inside_a_batch_from_the_metadata(tmp_path: Path, damages_stores: None) -> None:
    store = plant(tmp_path / "s", BESIDE["batch-acks"])
    assert "batch-acks" in {reason.code for reason in ask(store).reasons}
    put_values(store, {"/txn/tc/parallelism": b"16"})
    assert "batch-acks" not in {reason.code for reason in ask(store).reasons}


@pytest.mark.parametrize("code", BESIDE)
def test_what_bears_on_a_healthy_one_is_told_behind(code: str, tmp_path: Path) -> None:
    found = ask(plant(tmp_path / "s", BESIDE[code]))
    assert not found.held
    assert found.reasons[0].code == "backlog"
    assert code in {reason.code for reason in found.reasons}
    markers = sum(one.marker is not None for one in BESIDE[code].messages.values())
    what = f"{30 - markers} messages and {markers} marker" if markers else "30 messages"
    assert f"No obstacle found: 30 entries ({what}) wait for a consumer" in found.reasons[0].sentence


def test_acknowledgements_of_an_open_transaction_are_told(tmp_path: Path) -> None:
    """As a broker writes them: an entry of the subscription's own log for each acknowledgement; one transaction has been committed."""
    acks = [
        PendingAckMetadataEntry(pending_ack_op=op, ack_type=0, txnid_most_bits=1, txnid_least_bits=least)
        for op, least in ((1, 7), (1, 8), (2, 8))
    ]
    log = {f"{TOPIC}-{SUB}__transaction_pending_ack": [Made(CREATED_MS, raw=ack.SerializeToString()) for ack in acks]}
    found = ask(plant(tmp_path / "s", Planted(), log))
    assert found.held
    (reason,) = (reason for reason in found.reasons if reason.code == "pending-acks")
    assert reason.evidence["transactions"] == ["(1,7)"]
    assert "1 open transaction" in reason.sentence


def test_all_is_acknowledged(tmp_path: Path) -> None:
    found = ask(plant(tmp_path / "s", Planted(mark=(12, 9))))
    assert [reason.sentence for reason in found.reasons] == ["s has no backlog: everything up to 12:9 is acknowledged."]


def test_a_position_ahead_of_the_topic_is_told_as_stored(tmp_path: Path) -> None:
    """A broker starts such a cursor at the topic's last entry (``ManagedCursorImpl.recoveredCursor``)."""
    consumed, ahead = ask(plant(tmp_path / "s", Planted(mark=(26, 5)))).reasons
    assert (consumed.code, ahead.code) == ("consumed", "cursor-ahead")
    for reason in (consumed, ahead):
        assert (reason.evidence["markDelete"], reason.evidence["storedMarkDelete"]) == ("12:9", "26:5")
    assert "stored at 26:5, beyond the end of its topic, whose last ledger is 12" in ahead.sentence


def test_committed_transactions_hold_nothing(tmp_path: Path) -> None:
    entries = {(10, 0): Message(transaction=(1, 7)), (10, 4): Message(transaction=(1, 7), marker=COMMIT)}
    assert not ask(plant(tmp_path / "s", Planted(entries))).held


def test_the_sentence_has_the_message(tmp_path: Path) -> None:
    """Published nine hours ago, delayed by two more."""
    first = ask(plant(tmp_path / "s", CAUSES["delayed"])).reasons[0]
    for part in (
        "10:0, the oldest",
        "(in 2h)",
        "(9h ago)",
        "by maker",
        "key 'k7'",
        "1 of 30 entries waits for its time",
    ):
        assert part in first.sentence
    assert first.evidence["oldest"]["deliverAtTime"] == NOW_MS + 2 * 3_600_000
    assert first.evidence["nextDue"] == first.evidence["lastDue"] == NOW_MS + 2 * 3_600_000


def test_holes_are_where_they_were_planted(tmp_path: Path) -> None:
    """Acknowledged are 4, 5, 7 and 8 behind 10:-1: holes are 0 to 3 and 6."""
    first = ask(plant(tmp_path / "s", CAUSES["ack-holes"])).reasons[0]
    assert first.evidence["firstHoles"] == ["10:0 to 10:3", "10:6"]
    assert (first.evidence["holes"], first.evidence["holeEntries"], first.evidence["acknowledgedBehind"]) == (2, 5, 4)
    assert first.command == f"pulsar-admin topics get-message-by-id persistent://{TOPIC} -l 10 -e 0"


def test_delays_that_the_policy_disables_hold_nothing(tmp_path: Path) -> None:
    off = {"delayed_delivery_policies": {"active": False, "tickTime": 1000}}
    found = ask(plant(tmp_path / "s", CAUSES["delayed"].and_also(Planted(policies=off))))
    assert not found.held


def test_a_due_message_holds_nothing(tmp_path: Path) -> None:
    assert not ask(plant(tmp_path / "s", Planted({(10, 0): Message(due_hours=-1)}))).held


def test_where_the_lost_entries_end(tmp_path: Path, damages_stores: None) -> None:
    found = ask(plant(tmp_path / "s", CAUSES["lost-ahead"])).reasons[0]
    assert (found.evidence["entriesBefore"], found.evidence["first"], found.evidence["lostEntries"]) == (14, "11:4", 1)
    assert found.command == "pulsar-admin ledgers missing 11"  # a reset to 11:5 would skip the 14


def test_lost_entries_that_are_acknowledged_hold_nothing(tmp_path: Path, damages_stores: None) -> None:
    acked = CAUSES["lost-entries"].and_also(Planted(mark=(10, 2)))
    assert not ask(plant(tmp_path / "s", acked)).held


@pytest.mark.parametrize("policies", [{}, {"message_ttl_in_seconds": 3600}])
@pytest.mark.usefixtures("damages_stores")
def test_an_entry_that_was_damaged_since_is_told(policies: dict[str, int], tmp_path: Path, cli: Cli) -> None:
    path = plant(tmp_path / "s", Planted(policies=policies))
    log = path / "entries" / "0.log"
    with opened(path) as reader:
        _, offset, size = find_place(reader.txn, 10, 0) or (0, 0, 0)
    flip(log, offset + 4 + size - 1, 0xFF)
    result = cli("--store", path, "topics", "why", TOPIC, "-s", "s", "--now", f"@{NOW_MS}", "-o", "json").ends(1)
    first = result.json["reasons"][0]
    assert (first["code"], first["evidence"]["position"]) == ("unreadable", "10:0")


def test_bookies_that_are_not_imported_are_told_once(tmp_path: Path, cli: Cli) -> None:
    source, store = world(CLUSTER) / "clean", tmp_path / "part"
    arguments = ("--zookeeper", source / "zookeeper", "--bookie", source / "bookkeeper0")
    assert cli("--store", store, "store", "import", "cluster", *arguments).exit_code == 0
    reasons = cli.json(store, "-q topics why public/default/plain -s holes")["reasons"]
    (told,) = (reason for reason in reasons if reason["code"] == "not-imported")
    assert told["evidence"]["bookies"] == ["bk1test", "bk2test"]
    assert told["evidence"]["entries"] > 100
    assert told["command"] == "pulsar-admin store add bookie bk1test=DIR,DIR"
    idle = cli("-q", "--store", store, "topics", "why", "public/default/batched", "-s", "nacker").stdout
    assert "No obstacle found: 38 entries wait for a consumer; part of the backlog was not imported;" in idle


def test_a_ledger_without_metadata_can_be_restored(tmp_path: Path, damages_stores: None) -> None:
    path = plant(tmp_path / "s", NOTHING)
    assert lose_nodes(path, "/ledgers/00/0000/L0010") == 1
    first = ask(path).reasons[0]
    assert first.code == "lost-entries"
    assert first.command == "pulsar-admin ledgers restore 10"


def test_broker_times_make_ttl_deaf_to_clocks(tmp_path: Path) -> None:
    """Published in the future, stamped by the broker nine hours ago: the TTL of ten hours fires in one."""
    wrong = Message(hours=-48, broker_hours=9)
    found = ask(plant(tmp_path / "s", Planted(usual=wrong, policies={"message_ttl_in_seconds": 36_000})))
    later = next(reason for reason in found.reasons if reason.code.startswith("ttl"))
    assert later.code == "ttl-later"
    assert later.evidence["expires"] == NOW_MS + 3_600_000


def test_overdue_entries_are_counted(tmp_path: Path) -> None:
    """The open ledger is half an hour old: the TTL of an hour drops the first twenty entries."""
    young = {(12, entry): Message(hours=0.5) for entry in range(10)}
    found = ask(plant(tmp_path / "s", Planted(young, policies={"message_ttl_in_seconds": 3600})))
    reason = next(one for one in found.reasons if one.code == "ttl-overdue")
    assert (reason.evidence["overdueEntries"], reason.evidence["through"]) == (20, "11:9")


@pytest.mark.parametrize("cursor", ["__compaction", "pulsar.dedup"])
def test_no_ttl_expires_the_brokers_own_cursors(cursor: str, tmp_path: Path) -> None:
    path = plant(tmp_path / "s", Planted(cursor=cursor, policies={"message_ttl_in_seconds": 3600}))
    codes = [reason.code for reason in ask(path, cursor).reasons]
    assert "ttl-never" in codes
    assert "ttl-overdue" not in codes
    assert ("compaction" in codes) == (cursor == "__compaction")
    assert ("deduplication" in codes) == (cursor == "pulsar.dedup")
    assert not [reason for reason in ask(path, cursor).reasons if "no broker moves it" in reason.sentence]
    assert "backlog" not in codes  # no consumer waits


@pytest.mark.usefixtures("damages_stores")
def test_the_cursor_of_deduplication_that_is_off_is_to_be_removed(tmp_path: Path, cli: Cli) -> None:
    """As the doctor says; what it leaves behind no consumer loses."""
    path = plant(tmp_path / "s", Planted(cursor="pulsar.dedup", policies={"deduplicationEnabled": False}))
    (told,) = cli("--store", path, "doctor", "--code", "dedup-cursor-left", "-o", "json").json
    reason = ask(path, "pulsar.dedup").reasons[0]
    assert (reason.code, "no broker moves it, as deduplication is off" in reason.sentence) == ("deduplication", True)
    assert f"{reason.command}".split()[-5:] == told["mend"].split()[-5:]
    assert "drops a backlog of" in cli(*reason.command.split()[1:], "--store", path, "--dry-run").stdout
    moved = cli("--store", path, "topics", "clear-backlog", TOPIC, "-s", "pulsar.dedup", "--force", "--dry-run").stdout
    assert "a broker skips" in moved
    assert "consumers" not in moved
    # The policy that turned it on again may be in what was not read.
    write_rows(path, lambda txn: put_damage(txn, Damage(METADATA_FILE_ID, WHOLE_METADATA, 1, "cut", -1, -1)))
    assert ask(path, "pulsar.dedup").reasons[0].command == "pulsar-admin store refresh"


def test_a_replicator_waits_for_its_cluster(tmp_path: Path) -> None:
    path = plant(tmp_path / "s", Planted(cursor="pulsar.repl.west"))
    reason = ask(path, "pulsar.repl.west").reasons[0]
    assert (reason.code, reason.command) == ("replicator", "pulsar-admin clusters list")
    put_values(path, {"/admin/clusters/west": b"{}"})
    assert ask(path, "pulsar.repl.west").reasons[0].command == "pulsar-admin clusters get west"


@pytest.mark.parametrize(("ttl", "code"), [(0, "ttl-none"), (3600, "ttl-overdue"), (36_000, "ttl-later")])
def test_no_command_is_printed_that_refuses_to_expire_for_a_replicator(
    ttl: int, code: str, cli: Cli, tmp_path: Path
) -> None:
    """A broker expires its messages as those of subscriptions (``PersistentTopic.checkMessageExpiry``)."""
    path = plant(tmp_path / "s", Planted(cursor="pulsar.repl.west", policies={"message_ttl_in_seconds": ttl}))
    reasons = {reason.code: reason for reason in ask(path, "pulsar.repl.west").reasons}
    assert not reasons[code].command
    assert "expire-messages" not in cli("--store", path, "topics", "why", TOPIC, "-s", "pulsar.repl.west").stdout


def test_a_lost_cursor_ledger_is_named(tmp_path: Path, damages_stores: None) -> None:
    (told, *_) = ask(plant(tmp_path / "s", CAUSES["cursor-lost"])).reasons
    assert told.evidence == {"cursorLedger": 99, "markDelete": "10:-1", "recoverable": None}


@pytest.mark.parametrize(
    ("limit", "mark", "reached"),
    # Ledgers were closed ten hours before now; a broker takes the last ledger for young.
    [(9 * 3600, (10, -1), True), (11 * 3600, (10, -1), False), (9 * 3600, (11, 9), False), (9 * 3600, (10, 9), True)],
)
def test_age_quota_goes_by_closed_ledgers(limit: int, mark: tuple[int, int], reached: bool, tmp_path: Path) -> None:
    ample = {"limitSize": 1 << 40, "limitTime": -1, "policy": "producer_exception"}
    quota = {"limitSize": -1, "limitTime": limit, "policy": "consumer_backlog_eviction"}
    policies = {"backlog_quota_map": {"message_age": quota, "destination_storage": ample}}
    codes = [reason.code for reason in ask(plant(tmp_path / "s", Planted(mark=mark, policies=policies))).reasons]
    assert (codes.count("quota-reached"), codes.count("quota-left")) == (reached, 2 - reached)


def test_policies_that_cannot_be_read_are_told(tmp_path: Path, damages_stores: None) -> None:
    """No obstacle would be wrong beside the doctor's critical: a broker does not load the topic."""
    found = ask(plant(tmp_path / "s", Planted(policies={"message_ttl_in_seconds": "soon"})))
    assert ([reason.code for reason in found.reasons], found.held) == (["policies-unreadable"], True)


def test_transactions_that_cannot_be_read_hide_no_answer(tmp_path: Path, damages_stores: None) -> None:
    """The file with the topic's entries is gone since the import: where the cursor stands, and its holes, are still told."""
    path = plant(tmp_path / "s", CAUSES["ack-holes"].and_also(CAUSES["open-transaction-ahead"]))
    assert "open-transaction-ahead" in {reason.code for reason in ask(path).reasons}
    (path / "entries" / "0.log").unlink()
    codes = {reason.code for reason in ask(path).reasons}
    assert codes >= {"unreadable", "ack-holes", "transactions-unknown"}


@pytest.mark.parametrize("code", [*CAUSES, *BESIDE])
def test_the_commands_can_be_pasted(code: str, tmp_path: Path, cli: Cli, damages_stores: None) -> None:
    path = plant(tmp_path / "s", {**CAUSES, **BESIDE}[code])
    for reason in ask(path).reasons:
        program, *words = shlex.split(reason.command) if reason.command else ("pulsar-admin", "store", "info")
        assert program == "pulsar-admin"
        result = cli("--store", path, *words)
        assert result.exit_code in (0, 1, 5), (
            reason.command,
            result.stderr,
        )  # 5: nothing matches, all the same asked rightly


def test_the_page_has_every_code() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "howto" / "why.md").read_text()
    rows = [f"| `{rule.code}` | {'yes' if rule in STOPPING_RULES else ''} |" for rule in SUBSCRIPTION_RULES]
    assert [row for row in (*rows, *(f"| `{code}` |" for code in HOLDERS)) if row not in page] == []


def test_without_a_subscription_all_are_explained_those_that_something_holds_first(cli: Cli, demo_store: Path) -> None:
    words = ("--store", demo_store, "topics", "why", "public/default/plain")
    rows = cli(*words, "-o", "json").json
    assert [(row["subscription"], row["held"]) for row in rows] == [
        ("expire-me", False),
        ("half", False),
        ("holes", True),
        ("never", False),
        ("reset-me", False),
    ]
    text = cli(*words).stdout
    assert text.startswith("persistent://public/default/plain, subscription holes\n\nStuck at 9:3")
    assert text.count("No TTL applies") == 1
    bare = cli("--store", demo_store, "topics", "why", "public/default/chunked")
    assert (bare.exit_code, bare.stdout) == (0, "")
    assert "topics why persistent://public/default/chunked --disk" in bare.stderr
