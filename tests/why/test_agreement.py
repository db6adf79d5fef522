"""The same questions asked of ``topics why``, ``transactions pending-ack-stats`` and all screens on planted faults: no two that disagree.

``tests.agreeing`` asks the screens; the planted faults of ``tests/cures`` are asked there.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct, field

from pulsar_admin import open_store as open_api
from pulsar_admin.store.doctor.why import why_subscription
from pulsar_admin.store.model.cursors import read_cursors
from pulsar_admin.store.model.topics import iter_topics, read_topic
from pulsar_admin.store.proto.transaction_pb2 import PendingAckMetadataEntry
from pulsar_admin.store.rules.transactions import TRANSACTION_RULES
from tests.agreeing import check_agreement
from tests.conftest import Cli
from tests.stores import NOW_MS as IMPORTED_MS
from tests.stores import imported
from tests.synthetic import CREATED_MS, Made
from tests.why.planted import NOW_MS, SUB, TOPIC, Message, Planted, opened, plant
from tests.why.test_subscription import BESIDE, CAUSES, NOTHING
from tests.worlds import oracle, scratch_copy

LOG = f"{TOPIC}-{SUB}__transaction_pending_ack"
ACK = PendingAckMetadataEntry(pending_ack_op=1, ack_type=0, txnid_most_bits=1, txnid_least_bits=7).SerializeToString()
TEN_HOURS = {"message_ttl_in_seconds": 36_000}
OVER = {"message_age": {"limitSize": -1, "limitTime": 9 * 3600, "policy": "consumer_backlog_eviction"}}


class Fault(Struct, frozen=True):
    planted: Planted = NOTHING
    beside: Mapping[str, Sequence[Made]] = field(default_factory=dict)


FAULTS = {
    **{name: Fault(planted) for name, planted in (CAUSES | BESIDE).items()},
    "healthy": Fault(),
    "cursor-ahead": Fault(Planted(mark=(26, 5))),
    "consumed": Fault(Planted(mark=(12, 9))),
    "lost-and-consumed": Fault(CAUSES["lost-entries"].and_also(Planted(mark=(10, 2)))),
    "one-range-less": Fault(Planted(ranges=BESIDE["ack-ranges-limit"].ranges[1:])),
    "age-reached": Fault(Planted(policies={"backlog_quota_map": OVER})),
    "future-in-front": Fault(Planted({(10, 0): Message(hours=-48)}, policies=TEN_HOURS)),
    "future-by-a-minute": Fault(Planted({(10, 0): Message(hours=-1 / 60)}, policies=TEN_HOURS)),
    "delayed-within-the-ttl": Fault(Planted({(10, 5): Message(due_hours=0.5)}, policies=TEN_HOURS)),
    "delays-that-are-over": Fault(
        Planted({(10, 5): Message(hours=9, due_hours=-1)}, policies={"message_ttl_in_seconds": 3600})
    ),
    "acknowledged-in-a-transaction": Fault(beside={LOG: [Made(CREATED_MS, raw=ACK)]}),
    "pending-ack-entries-lost": Fault(beside={LOG: [Made(CREATED_MS, raw=ACK, lost=True)]}),
    "both": Fault(CAUSES["delayed"], {LOG: [Made(CREATED_MS, raw=ACK, lost=True)]}),
}
SAME = {
    "ack-ranges-limit": {"ack-ranges-at-limit"},
    "quota-reached": {"backlog-over-quota"},
    "ttl-drops-delayed": {"delay-beyond-ttl"},
    "cursor-lost": {"cursor-ledger-lost", "cursor-ledger-without-metadata", "cursor-ledger-damaged"},
    "cursor-ahead": {"cursor-ahead"},
    **{rule.code: {rule.code} for rule in TRANSACTION_RULES},
}
"""Code of a reason → codes of the doctor's findings of the same."""
REPLAYS = {rule.code for rule in TRANSACTION_RULES}


@pytest.mark.parametrize("fault", FAULTS)
def test_they_agree(fault: str, tmp_path: Path, cli: Cli, damages_stores: None) -> None:
    store = plant(tmp_path / "s", FAULTS[fault].planted, FAULTS[fault].beside)

    def ask(*words: str) -> Any:
        return cli("--store", store, "--now", f"@{NOW_MS}", *words, "-o", "json").json

    why = ask("topics", "why", TOPIC, "-s", SUB)
    reasons = {reason["code"]: reason["evidence"] for reason in why["reasons"]}
    found = ask("doctor")
    codes = {row["code"] for row in found}
    for code, others in SAME.items():
        assert (code in reasons) == bool(codes & others), code

    in_front = reasons.get("ttl-future", {}).get("first") == "10:0"
    assert ("ttl-blocked" in codes) == in_front
    # What a broker gets to is lost to it: the doctor names the ledger, whoever stands where.
    if reasons.keys() & {"lost-entries", "lost-ahead"}:
        assert codes & {"entries-missing", "ledger-without-metadata", "ledger-missing"}
    # Where nothing holds it, nothing critical is of it.
    of_it = [row for row in found if row["evidence"].get("subscription") == SUB and row["severity"] == "critical"]
    assert why["held"] or not of_it

    stats = ask("transactions", "pending-ack-stats", "-t", TOPIC, "-s", SUB)
    assert (stats["state"] == "Initializing") == bool(reasons.keys() & REPLAYS)
    assert ("pending-acks" in reasons) == (stats["state"] == "Ready" and stats["ongoingTxnSize"] > 0)
    check_agreement(store, NOW_MS)


def test_a_log_that_no_bookie_serves(tmp_path: Path, cli: Cli, damages_stores: None) -> None:
    """Without its entry log the only bookie serves nothing of what its journals alone have."""
    source, store = scratch_copy("small", "clean", tmp_path), tmp_path / "s"
    (source / "bookkeeper" / "current" / "1.log").unlink()
    assert cli("--store", store, "store", "import", "standalone", source, "-q").exit_code == 0
    whose, code = ("public/default/txn-in", "-s", "perf"), "pending-ack-entries-not-served"
    first = cli("--store", store, "topics", "why", *whose, "-o", "json").json["reasons"][0]
    assert (first["code"], first["command"].split()[:3]) == (code, ["pulsar-admin", "store", "salvage"])
    (found,) = cli("--store", store, "doctor", "--code", code, "-o", "json").json
    assert found["evidence"] == first["evidence"]
    stats = cli("--store", store, "transactions", "pending-ack-stats", "-t", *whose, "-o", "json").json
    assert stats["state"] == "Initializing"


@pytest.mark.parametrize("state", ["clean", "crashed"])
@pytest.mark.parametrize("name", ["small", "nometa", "cluster"])
def test_they_agree_of_every_subscription(name: str, state: str, cli: Cli) -> None:
    """In recorded worlds, in which nothing holds a subscription."""
    store, of = imported(name, state), SAME.keys() - {"quota-reached"}
    said = set()
    with opened(store) as reader:
        for topic in iter_topics(reader.txn):
            for cursor in read_cursors(reader.txn, reader, read_topic(reader.txn, topic)).values():
                found = why_subscription(reader, read_topic(reader.txn, topic), cursor, IMPORTED_MS).reasons
                codes = {code for reason in found if reason.code in of for code in SAME[reason.code]}
                said |= {(str(topic), cursor.name, code) for code in codes}
    rows = cli("--store", store, "--now", f"@{IMPORTED_MS}", "doctor", "--each", "1000", "-o", "json").json
    told = {(row["evidence"].get("topic"), row["evidence"].get("subscription"), row["code"]) for row in rows}
    judged = {code for one in of for code in SAME[one]}
    assert {one for one in told if one[2] in judged} == said
    assert said == set()


def test_every_kind_is_planted() -> None:
    """Each pair of ``SAME`` is met by a fault, so that it is compared where it holds, but for three that other tests plant."""
    others = {"pending-ack-replay-endless", "pending-ack-ledger-lost", "pending-ack-entries-not-served"}
    assert SAME.keys() - FAULTS.keys() == others


def test_the_oldest_message_is_what_a_client_read_there() -> None:
    """Publish time, producer and key; three subscriptions acknowledged some messages of the batch."""
    rests = []
    with open_api(imported("small", "clean")) as store:
        for name, answers in oracle("small")["topics"].items():
            for subscription in store.topic(name).subscriptions():
                for reason in store.topic(name).cursor(subscription).why().reasons:
                    told = reason.evidence.get("oldest")
                    if told is None:
                        continue
                    read = [row for row in answers["messages"] if f"{row[0]}:{row[1]}" == told["position"]]
                    assert (told["publishTime"], told["producer"]) == (read[0][3], read[0][10])
                    assert told.get("batchSize") == (len(read) if read[0][2] >= 0 else None)
                    if "leftInBatch" not in told:
                        assert told.get("key", "") == read[0][5]
                        continue
                    rests.append(subscription)
                    assert 0 < told["leftInBatch"] < len(read)
                    assert told["key"] in {row[5] for row in read[: len(read) - told["leftInBatch"] + 1]}
    assert rests == ["batch-holes", "nacker", "keys"]
