"""Rules of topics beside what ``topics why`` says of the same store: one judge."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from pulsar_admin.store.codec.cursor import CursorInfo
from pulsar_admin.store.codec.ledgermetadata import LedgerState
from pulsar_admin.store.codec.policies import BacklogQuota
from pulsar_admin.store.facts.topics import TopicFacts
from pulsar_admin.store.model.topics import read_topic
from pulsar_admin.store.names import Position, parse_topic
from pulsar_admin.store.policies.in_force import QuotaInForce
from pulsar_admin.store.policies.quotas import iter_quota_states
from tests.conftest import Cli
from tests.moved_bookies import change_ledgers
from tests.stores import change_value, copied, put_node
from tests.synthetic import CREATED_MS, Made, MadeTopic, make_store
from tests.why.planted import SUB, TOPIC, Planted, ask, opened, plant


@pytest.mark.parametrize(("more", "is_reached"), [(-1, True), (0, True), (1, False)])
def test_a_size_quota_is_reached_at_its_limit(more: int, is_reached: bool, tmp_path: Path, cli: Cli) -> None:
    """``PersistentTopic.isSizeBacklogExceeded`` (4.0.8): a backlog of just the limit is over it."""
    with opened(plant(tmp_path / "sizes", Planted(mark=(10, -1)))) as reader:
        size = read_topic(reader.txn, parse_topic(TOPIC)).total_size_bytes
    quota = {"limitSize": size + more, "limitTime": -1, "policy": "producer_exception"}
    store = plant(
        tmp_path / "s", Planted(mark=(10, -1), policies={"backlog_quota_map": {"destination_storage": quota}})
    )
    assert ("quota-reached" in {reason.code for reason in ask(store).reasons}) == is_reached
    found = cli("--store", store, "doctor", "--code", "backlog-over-quota", "-o", "json").json
    assert [row["where"] for row in found] == [f"persistent://{TOPIC} {SUB}"] * is_reached


@pytest.mark.parametrize(("kind", "is_known"), [("destination_storage", False), ("message_age", True)])
def test_a_size_quota_may_be_reached_by_what_an_open_ledger_has_elsewhere(
    kind: str, is_known: bool, tmp_path: Path
) -> None:
    """Its bookie was not imported: that the quota is not reached is unknown, but for one of age, which needs closed ledgers."""
    quota = {"limitSize": 1 << 20, "limitTime": 10**6, "policy": "producer_exception"}
    store = plant(tmp_path / "s", Planted(policies={"backlog_quota_map": {kind: quota}}))
    assert "quota-left" in {reason.code for reason in ask(store).reasons}
    opened_again = {"state": LedgerState.OPEN, "last_entry_id": -1, "length": 0}
    change_ledgers(store, lambda ledger_id, one: replace(one, **opened_again) if ledger_id == 12 else one)
    assert ("quota-left" in {reason.code for reason in ask(store).reasons}) == is_known


def test_a_cursor_that_cannot_be_read_may_need_every_ledger(tmp_path: Path, cli: Cli, damages_stores: None) -> None:
    """All but 10:0 is acknowledged: that message alone keeps ledger 11, unless somebody else may need it."""
    store = plant(tmp_path / "s", Planted(ranges=(((10, 0), (12, 9)),)))
    asked = ("--store", store, "doctor", "--code", "ack-hole-pins-ledgers", "-o", "json")
    assert [row["where"] for row in cli(*asked).json] == [f"persistent://{TOPIC} {SUB}"]
    put_node(store, parse_topic(TOPIC).cursor_path("other"), b"\xff")
    assert cli(*asked).json == []


def test_a_cursor_that_cannot_be_read_keeps_the_topic_from_being_loaded(tmp_path: Path, damages_stores: None) -> None:
    """``ManagedLedgerImpl.initializeCursors`` fails (4.0.8), whoever else subscribed; and it may be the slowest for a quota."""
    quota = {"limitSize": 1 << 20, "limitTime": -1, "policy": "producer_exception"}
    store = plant(tmp_path / "s", Planted(policies={"backlog_quota_map": {"destination_storage": quota}}))
    assert {reason.code for reason in ask(store).reasons} == {"backlog", "ttl-none", "quota-left"}
    put_node(store, parse_topic(TOPIC).cursor_path("other"), b"\xff")
    found = ask(store)
    assert (found.held, [reason.code for reason in found.reasons]) == (True, ["cursor-not-opened", "ttl-none"])


@pytest.mark.parametrize(("is_empty", "command"), [(True, "status"), (False, "run --from-start")])
def test_a_topic_without_entries_is_not_to_be_compacted_again(
    is_empty: bool, command: str, tmp_path: Path, cli: Cli, damages_stores: None
) -> None:
    """Its cursor names the ledger of a schema as the compacted one."""
    store, name = copied("small", "clean", tmp_path), "acme/orders/compacted"
    path = parse_topic(name).path
    change_value(
        store,
        f"{path}/__compaction",
        lambda value: value.replace(b"CompactedTopicLedger\x10\x5b", b"CompactedTopicLedger\x10\x4b"),
    )
    if is_empty:
        change_value(store, path, lambda _: b"")
    (found,) = cli.rows(store, "doctor --code compaction-inconsistent")
    verb, _, option = command.partition(" ")
    assert found["mend"].endswith(f"compaction {verb} persistent://{name} {option}".rstrip())


@pytest.mark.parametrize(
    ("ahead", "mark", "through", "begins"), [(9, -1, None, "10:9"), (0, 1, None, "10:0"), (4, 3, "11:4", None)]
)
def test_a_ttl_is_checked_once_for_all_subscriptions(
    ahead: int, mark: int, through: str | None, begins: str | None, tmp_path: Path, cli: Cli
) -> None:
    """Seen on 4.0.8: two ledgers, one message of a clock a year ahead, a TTL of a minute, checked two minutes after the first was closed.

    The last entry of the closed ledger is where the search begins then, and if the clocks are right no message from the future is kept.
    """
    closed_ms, minute_ms = CREATED_MS + 20, 60_000
    now_ms = closed_ms + (2 if ahead == 9 else 1) * minute_ms + 1000
    times = [CREATED_MS + number + (365 * 86_400_000 if number == ahead else 0) for number in range(15)]
    ledgers = [[*map(Made, times[:10])], [*map(Made, times[10:])]]
    cursors = {"s": CursorInfo(-1, Position(10, mark))}
    store = make_store(tmp_path / "s", {TOPIC: MadeTopic(ledgers, cursors=cursors, closed_ms=(closed_ms,))})
    put_node(store, "/admin/policies/public/default", b'{"message_ttl_in_seconds": 60}')
    reasons = ask(store, now_ms=now_ms).reasons
    overdue = [one.evidence["through"] for one in reasons if one.code == "ttl-overdue"]
    later = [f"its search begins at {begins}, of 2024-" in one.sentence for one in reasons if one.code == "ttl-later"]
    assert later == [True] * (begins is not None)
    assert overdue == [through] * (through is not None)
    found = cli.json(store, f"--now @{now_ms} doctor --code ttl-blocked")
    told = [(row["code"], row["evidence"]["position"]) for row in found]
    assert told == [("ttl-blocked", begins)] * (begins is not None)


def test_a_ttl_whose_search_meets_a_lost_entry_after_an_old_one(tmp_path: Path) -> None:
    made = MadeTopic(
        [[Made(CREATED_MS), Made(CREATED_MS), Made(CREATED_MS, lost=True)]],
        cursors={"s": CursorInfo(-1, Position(10, -1))},
    )
    store = make_store(tmp_path / "s", {TOPIC: made})
    put_node(store, "/admin/policies/public/default", b'{"message_ttl_in_seconds": 60}')
    (later,) = (one for one in ask(store, now_ms=CREATED_MS + 120_000).reasons if one.code == "ttl-later")
    assert later.sentence.endswith("a broker does not find it: its search fails on an entry that it cannot read.")


CLOSED = (1_700_000_100_000, 1_700_000_200_000)  # of the ledgers 10 and 11, of two entries each; 12 is written


@pytest.mark.parametrize(
    ("marks", "seconds", "now", "expected"),
    [
        ({"s": (10, -1)}, 5, CLOSED[0] + 5000, ("s", 5000, 5000, CLOSED[0], False)),
        ({"s": (10, -1)}, 5, CLOSED[0] + 5001, ("s", 5001, 5000, CLOSED[0], True)),
        ({"s": (10, 0)}, 1, CLOSED[0] + 10**6, ("s", 10**6, 1000, CLOSED[0], True)),
        ({"s": (10, 1)}, 5, CLOSED[1] + 5001, ("s", 5001, 5000, CLOSED[1], True)),  # the next entry is 11:0
        ({"s": (11, 1)}, 5, CLOSED[1] + 5001, ("s", 0, 5000, None, False)),
        ({"s": (12, -1)}, 5, CLOSED[1] + 5001, ("s", 0, 5000, None, False)),
        ({"b": (11, -1), "a": (11, -1), "c": (12, 0)}, 5, CLOSED[1], ("a", 0, 5000, CLOSED[1], False)),
        ({"s": (10, -1)}, 0, CLOSED[1], None),
        ({"s": (10, -1)}, -1, CLOSED[1], None),
        ({}, 5, CLOSED[1], None),
    ],
)
def test_an_age_quota_goes_by_when_the_ledger_of_the_first_message_was_closed(
    marks: dict[str, tuple[int, int]], seconds: int, now: int, expected: tuple[object, ...] | None, tmp_path: Path
) -> None:
    """``PersistentTopic.estimatedTimeBasedBacklogQuotaCheck`` (4.0.8): beyond the limit, of the slowest cursor."""
    ledgers = [[Made(CLOSED[0]), Made(CLOSED[0])], [Made(CLOSED[1]), Made(CLOSED[1])], [Made(CLOSED[1])]]
    store = make_store(tmp_path / "s", {"a/b/t": MadeTopic(ledgers, closed_ms=CLOSED)})
    quotas = {"message_age": QuotaInForce(BacklogQuota(-1, seconds, "producer_exception"), "namespace")}
    with opened(store) as reader:
        topic = read_topic(reader.txn, parse_topic("a/b/t"))
        found = list(iter_quota_states(topic, {name: Position(*at) for name, at in marks.items()}, quotas, now))
    states = [(one.slowest, one.used, one.limit, one.closed_ms, one.is_reached) for one in found]
    assert states == ([] if expected is None else [expected])
    assert not any(one.is_size or one.evicts for one in found)


@pytest.mark.parametrize(("entries", "closed_ms"), [(1, CLOSED[1]), (2, CLOSED[0])])
def test_an_age_quota_after_a_deleted_ledger(entries: int, closed_ms: int, tmp_path: Path) -> None:
    """``estimatedTimeBasedBacklogQuotaCheck`` (4.0.8, 5.0.1) takes the next entry for consumed: a lone one is passed over."""
    ledgers = [[Made(CLOSED[0])] * entries, [Made(CLOSED[1])], [Made(CLOSED[1])]]
    store = make_store(tmp_path / "s", {"a/b/t": MadeTopic(ledgers, closed_ms=CLOSED)})
    quotas = {"message_age": QuotaInForce(BacklogQuota(-1, 5, "producer_exception"), "namespace")}
    with opened(store) as reader:
        topic = read_topic(reader.txn, parse_topic("a/b/t"))
        (found,) = iter_quota_states(topic, {"s": Position(9, 5)}, quotas, CLOSED[1])
    assert found.closed_ms == closed_ms


@pytest.mark.parametrize(
    ("name", "limit", "expected"),
    [("t", -1, []), ("t", 0, [(0, True)]), ("t", 10**9, [(10**9, False)]), ("__change_events", 0, [])],
)
def test_a_size_quota_of_0_is_one_and_a_system_topic_has_none(
    name: str, limit: int, expected: list[tuple[int, bool]], tmp_path: Path
) -> None:
    store = make_store(tmp_path / "s", {f"a/b/{name}": MadeTopic([[Made(CLOSED[0])]])})
    quota = BacklogQuota(limit, -1, "consumer_backlog_eviction")
    with opened(store) as reader:
        topic = read_topic(reader.txn, parse_topic(f"a/b/{name}"))
        quotas = {"destination_storage": QuotaInForce(quota, "topic"), "none": QuotaInForce(quota, "topic")}
        found = list(iter_quota_states(topic, {"s": Position(10, 0)}, quotas, CLOSED[1]))
    assert [(one.limit, one.is_reached) for one in found] == expected
    assert all(one.is_size and one.evicts and one.closed_ms is None and one.used == 0 for one in found)


@pytest.mark.parametrize(("threshold", "deleted"), [(b"0", 1), (b"1000", 0), (b'"soon"', 0)])
def test_trim_topic_keeps_what_is_to_be_compacted_first(
    threshold: bytes, deleted: int, tmp_path: Path, cli: Cli
) -> None:
    """A broker with a threshold creates compaction's cursor at the beginning, before it trims."""
    made = MadeTopic([[Made(CLOSED[0])], [Made(CLOSED[1])]], cursors={"s": CursorInfo(-1, Position(11, 0))})
    store = make_store(tmp_path / "s", {TOPIC: made})
    put_node(store, "/admin/policies/public/default", b'{"compaction_threshold": ' + threshold + b"}")
    cli.on(store, f"topics trim-topic {TOPIC}").ends(0)
    with opened(store) as reader:
        assert len(read_topic(reader.txn, parse_topic(TOPIC)).ids) == 2 - deleted


@pytest.mark.parametrize(
    ("limit", "policy", "is_reached"),
    [(0, "producer_exception", True), (0, "consumer_backlog_eviction", False), (1, "producer_exception", False)],
)
def test_a_size_quota_of_0_is_reached_without_a_subscription(
    limit: int, policy: str, is_reached: bool, tmp_path: Path, cli: Cli
) -> None:
    """``PersistentTopic.isSizeBacklogExceeded`` (4.0.8): 0 bytes reach a limit of 0."""
    store = make_store(tmp_path / "s", {TOPIC: MadeTopic([[Made(CREATED_MS)]])})
    quota = {"destination_storage": {"limitSize": limit, "limitTime": -1, "policy": policy}}
    put_node(store, "/admin/policies/public/default", json.dumps({"backlog_quota_map": quota}).encode())
    found = cli.json(store, "doctor --code backlog-over-quota")
    assert [row["where"] for row in found] == [f"persistent://{TOPIC}"] * is_reached
    for row in found:
        assert "0 bytes of backlog, 0 allowed: producers get an error" in row["message"]
        assert cli("--store", store, *row["mend"].split()[1:]).exit_code == 0


@pytest.mark.parametrize(
    ("name", "cursor", "released"),
    [
        ("t", "s", 0),
        ("__change_events", "__compaction", 2),
        ("__change_events", "", 0),
        ("__change_events_of_mine", "s", 0),
        ("t-s__transaction_pending_ack", "p", 2),
    ],
)
def test_a_system_topic_has_no_retention_of_its_namespace(
    name: str, cursor: str, released: int, tmp_path: Path, cli: Cli
) -> None:
    """``BrokerService.getManagedLedgerConfig`` (4.0.8 to 5.0.1); without a cursor nothing goes, as a broker first makes one."""
    ledgers, cursors = [[Made(CLOSED[0])]] * 3, {cursor: CursorInfo(-1, Position(12, -1))} if cursor else {}
    store = make_store(tmp_path / "s", {f"a/b/{name}": MadeTopic(ledgers, cursors=cursors, closed_ms=CLOSED)})
    put_node(
        store, "/admin/policies/a/b", b'{"retention_policies": {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}}'
    )
    change = cli.json(store, f"--now @{CLOSED[1] + 1} topics trim-topic a/b/{name} --dry-run")
    with opened(store) as reader:
        topic = read_topic(reader.txn, parse_topic(f"a/b/{name}"))
        assert TopicFacts(reader, topic, CLOSED[1] + 1).released == released
    assert change["after"]["ledgers"] == [*range(10 + released, 13)]


def test_a_system_topic_is_not_deduplicated_whatever_the_policies_are(tmp_path: Path, cli: Cli) -> None:
    """``SystemTopic.isDeduplicationEnabled`` (4.0.8 to 5.0.1): a broker removes the cursor."""
    made = MadeTopic([[Made(CLOSED[0])]], cursors={"pulsar.dedup": CursorInfo(-1, Position(10, -1))})
    names = {f"a/b/{name}": made for name in ("t", "__transaction_buffer_snapshot")}
    store = make_store(tmp_path / "s", names)
    put_node(store, "/admin/policies/a/b", b'{"deduplicationEnabled": true}')
    found = cli.json(store, "doctor --code dedup-cursor-left")
    assert [row["where"] for row in found] == ["persistent://a/b/__transaction_buffer_snapshot"]


@pytest.mark.usefixtures("damages_stores")
@pytest.mark.parametrize(("event", "lost", "is_told"), [(b"x", False, True), (b"x", True, False), (b"", False, False)])
def test_events_of_policies_that_nobody_can_read(
    event: bytes, lost: bool, is_told: bool, tmp_path: Path, cli: Cli
) -> None:
    """No topic of the namespace loads, as ``topics why`` says; of entries that are lost another finding tells."""
    events = MadeTopic([[Made(CLOSED[0], payload=event, lost=lost)] if event else []])
    topic = MadeTopic([[Made(CLOSED[0])]], cursors={"s": CursorInfo(-1, Position(10, -1))})
    store = make_store(tmp_path / "s", {"a/b/__change_events": events, "a/b/t": topic, "a/other/t": topic})
    found = cli("--store", store, "doctor", "--code", "topic-policies-unreadable", "-o", "json").json
    where = "persistent://a/b/__change_events"
    assert [(row["severity"], row["where"]) for row in found] == [("critical", where)] * is_told
    for namespace, loads in (("a/b", not event), ("a/other", True)):
        told = cli("--store", store, "topics", "why", f"{namespace}/t", "-s", "s", "-o", "json").json["reasons"]
        assert "list index" not in str(told)
        assert ("policies-unreadable" in {reason["code"] for reason in told}) != loads
    codes = {row["code"] for row in cli("--store", store, "doctor", "--severity", "critical", "-o", "json").json}
    assert bool(codes) == bool(event)
    assert cli("--store", store, "topics", "delete", where, "-f", "-y").exit_code == 0
    assert cli("--store", store, "doctor", "--code", "topic-policies-unreadable", "-o", "json").json == []


@pytest.mark.parametrize(
    ("cursor", "policy", "does", "severity"),
    [
        ("s", "producer_exception", "producers get an error", "warning"),
        ("s", "consumer_backlog_eviction", "drops the oldest messages of the slowest subscription", "warning"),
        ("pulsar.dedup", "producer_request_hold", "with a snapshot, and refuses new producers until then", "note"),
        ("pulsar.dedup", "consumer_backlog_eviction", "no message is lost", "note"),
        ("pulsar.dedup", "off", "deletes pulsar.dedup when it loads the topic", "note"),
        ("__compaction", "consumer_backlog_eviction", "drops the compacted view", "warning"),
        ("__compaction", "producer_exception", "producers get an error", "warning"),
        ("pulsar.repl.west", "consumer_backlog_eviction", "that cluster west has not received", "warning"),
    ],
)
def test_what_a_reached_quota_does_depends_on_whose_cursor_is_the_slowest(
    cursor: str, policy: str, does: str, severity: str, tmp_path: Path, cli: Cli
) -> None:
    """``BacklogQuotaManager.advanceSlowestSystemCursor`` and ``dropBacklogForSizeLimit`` (4.0.8)."""
    quota = {"destination_storage": {"limitSize": 1, "limitTime": -1, "policy": policy}}
    if is_off := policy == "off":
        quota["destination_storage"]["policy"] = "producer_exception"
    planted = Planted(cursor=cursor, policies={"backlog_quota_map": quota, "deduplicationEnabled": not is_off})
    store = plant(tmp_path / "s", planted)
    [found] = cli("--store", store, "doctor", "--code", "backlog-over-quota", "-o", "json").json
    assert (found["severity"], found["where"]) == (severity, f"persistent://{TOPIC} {cursor}")
    assert does in found["message"]
    assert any(does in reason.sentence for reason in ask(store, cursor).reasons if reason.code == "quota-reached")
    program, *words = found["mend"].split()
    assert ("compaction" in words) == (cursor == "__compaction")
    if cursor == "__compaction":
        assert (program, cli("--store", store, *words, "-y").exit_code) == ("pulsar-admin", 0)
        assert cli("--store", store, "doctor", "--code", "backlog-over-quota", "-o", "json").json == []


@pytest.mark.parametrize(("cursors", "is_reached"), [({"pulsar.dedup": 0}, False), ({"pulsar.dedup": 0, "s": 1}, True)])
def test_no_backlog_of_a_subscription_has_no_age(cursors: dict[str, int], is_reached: bool, tmp_path: Path) -> None:
    """``PersistentTopic.updateOldPositionInfo`` (4.0.8): where no subscription has a backlog, no age is looked for."""
    ledgers = [[Made(CLOSED[0]), Made(CLOSED[0])], [Made(CLOSED[1])]]
    store = make_store(tmp_path / "s", {"a/b/t": MadeTopic(ledgers, closed_ms=CLOSED)})
    quotas = {"message_age": QuotaInForce(BacklogQuota(-1, 5, "producer_exception"), "namespace")}
    marks = {"s": Position(11, 0)} | {name: Position(10, entry - 1) for name, entry in cursors.items()}
    with opened(store) as reader:
        topic = read_topic(reader.txn, parse_topic("a/b/t"))
        [state] = iter_quota_states(topic, marks, quotas, CLOSED[0] + 10_000)
    assert (state.slowest, state.is_reached) == ("pulsar.dedup", is_reached)
