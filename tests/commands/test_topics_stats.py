"""``stats`` and ``partitioned-stats`` on the command line; the fields themselves are compared in test_stats_oracle."""

from pathlib import Path
from typing import Any

import pytest

from pulsar_admin.store.codec.cursor import CursorInfo, encode_cursor_info
from pulsar_admin.store.codec.ledgermetadata import ledger_path
from pulsar_admin.store.codec.managedledger import LedgerInfo, ManagedLedger, encode_managed_ledger
from pulsar_admin.store.codec.rocksvalue import NodeStat
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.db.own_ledgers import OwnLedgers, put_own_ledgers
from pulsar_admin.store.db.tree import Node, put_nodes, read_node
from pulsar_admin.store.names import Position, parse_topic
from pulsar_admin.store.reports.overview import read_newest_ms
from pulsar_admin.store.reports.stats import _earliest
from tests.conftest import Cli
from tests.cures.curing import put_values
from tests.stores import imported, lose_nodes, put_node, read_store, write_rows
from tests.synthetic import CREATED_MS, Made, MadeTopic, make_store
from tests.worlds import CLUSTER, WORLD_NAMES, oracle

START_MS = 1_700_000_000_000


@pytest.mark.parametrize("world", WORLD_NAMES)
def test_earliest_times(world: str, cli: Cli) -> None:
    """-etb: the time of the first entry behind the mark-delete, on the broker's clock where the entry has it."""
    store = imported(world, "clean")
    for topic, answers in oracle(world)["topics"].items():
        found = ask(cli, store, "stats", topic, "-etb", "-gpb")
        publish = {(row[0], row[1]): row[3] for row in answers["messages"]}
        for name, cursor in found["subscriptions"].items():
            expected = answers["stats"]["subscriptions"][name]
            assert cursor["msgBacklog"] == expected["msgBacklog"]
            earliest = cursor["earliestMsgPublishTimeInBacklog"]
            if not cursor["msgBacklog"]:
                assert earliest == -1
            elif world == "nometa":
                internal = ask(cli, store, "stats-internal", topic)["cursors"]
                encoded = {"fail/over:1": "fail%2Fover%3A1"}.get(name, name)
                ledger_id, entry_id = map(int, internal[encoded]["readPosition"].split(":"))
                assert earliest == publish[ledger_id, entry_id]
        assert ask(cli, store, "stats", topic)["earliestMsgPublishTimeInBacklogs"] == 0


@pytest.mark.parametrize(
    ("times", "earliest"), [((), 0), ((0, -1), 0), ((-1, -1), -1), ((0, 5), 5), ((7, -1, 5), 5), ((1,), 1)]
)
def test_an_unknown_time_of_a_partition_is_not_the_earliest(times: tuple[int, ...], earliest: int) -> None:
    assert _earliest(times) == earliest


def test_earliest_time_of_known_entries(cli: Cli, tmp_path: Path) -> None:
    topic = MadeTopic(
        [[Made(START_MS + 50, START_MS + 1), Made(START_MS + 40)], [Made(START_MS + 30)]],
        cursors={
            "begin": CursorInfo(-1, Position(10, -1)),
            "second": CursorInfo(-1, Position(10, 0)),
            "third": CursorInfo(-1, Position(10, 1)),
            "end": CursorInfo(-1, Position(11, 0)),
        },
    )
    read = MadeTopic([[Made(START_MS)]], cursors={"end": CursorInfo(-1, Position(12, 0))})
    store = make_store(tmp_path / "store", {"public/default/t": topic, "public/default/read": read})
    found = ask(cli, store, "stats", "public/default/t", "-etb")
    times = {name: row["earliestMsgPublishTimeInBacklog"] for name, row in found["subscriptions"].items()}
    assert times == {"begin": START_MS + 1, "second": START_MS + 40, "third": START_MS + 30, "end": -1}
    assert found["earliestMsgPublishTimeInBacklogs"] == START_MS + 1
    assert ask(cli, store, "stats", "public/default/read", "-etb")["earliestMsgPublishTimeInBacklogs"] == 0


@pytest.mark.parametrize("world", WORLD_NAMES)
def test_sums_over_partitions(world: str, cli: Cli) -> None:
    store = imported(world, "clean")
    parts = [oracle(world)["topics"][f"acme/orders/parts-partition-{number}"]["stats"] for number in range(3)]
    sums = ask(cli, store, "partitioned-stats", "acme/orders/parts")
    assert sums["storageSize"] == sum(part["storageSize"] for part in parts)
    assert sums["backlogSize"] == sum(part["backlogSize"] for part in parts)
    assert (sums["metadata"]["partitions"], sums["partitions"]) == (3, {})
    each = ask(cli, store, "partitioned-stats", "acme/orders/parts", "--per-partition")["partitions"]
    assert list(each) == [f"persistent://acme/orders/parts-partition-{number}" for number in range(3)]
    assert [part["storageSize"] for part in each.values()] == [part["storageSize"] for part in parts]
    assert each["persistent://acme/orders/parts-partition-1"] == ask(
        cli, store, "stats", "acme/orders/parts-partition-1"
    )


def test_sums_of_subscriptions(cli: Cli, tmp_path: Path) -> None:
    entries = [Made(START_MS + number) for number in range(6)]
    names = ("shared", "only-here")
    topics = {
        f"public/default/p-partition-{number}": MadeTopic(
            [entries[number:]],
            cursors={name: CursorInfo(-1, Position(10 + number, -1)) for name in names[: 2 - number]},
        )
        for number in range(2)
    }
    store = make_store(tmp_path / "store", topics)
    put_node(store, parse_topic("public/default/p").partitioned_path, b'{"partitions":3}')
    found = ask(cli, store, "partitioned-stats", "public/default/p", "-etb", "--per-partition")
    assert {name: row["msgBacklog"] for name, row in found["subscriptions"].items()} == {"only-here": 6, "shared": 11}
    assert found["earliestMsgPublishTimeInBacklogs"] == START_MS
    assert len(found["partitions"]) == 2  # the third was never opened


def test_the_flag_of_backlog_sizes_switches_them_off(cli: Cli) -> None:
    """As pulsar-admin 4.0.8 does: its option is on by default, and picocli's flag is the opposite of a default."""
    store = imported("small", "clean")
    assert ask(cli, store, "stats", "public/default/plain")["backlogSize"] >= 0
    without = ask(cli, store, "stats", "public/default/plain", "-sbs")
    assert {row["backlogSize"] for row in without["subscriptions"].values()} == {-1}


def test_what_newer_brokers_say(cli: Cli) -> None:
    """PIP-431, with --explain alone: 4.0 has no such keys. The time is that of the last message its producer sent."""
    store = imported("small", "clean")
    said = cli.on(store, "topics stats public/default/plain --explain").json
    last = cli.rows(store, "topics read public/default/plain")[-1]
    assert said["lastPublishTimeStamp"] == last["publishTime"]
    assert 1795252800000 < said["topicCreationTimeStamp"] < 1795260000000
    assert "topicCreationTimeStamp" not in cli.on(store, "topics stats public/default/plain").json


# -- stats-internal and info-internal: shape, cursors after a crash, what is lost -----------------------------------

OURS = {"beginPublishTimestamp", "endPublishTimestamp", "publishTimestampsFrom"}


def ask(cli: Cli, store: Path, *arguments: object, exit_code: int = 0) -> Any:
    result = cli("--store", store, "topics", *arguments, "-o", "json")
    assert result.exit_code == exit_code, result.stderr
    return result.json


@pytest.mark.parametrize(
    ("command", "key"), [("stats-internal", "internal_stats"), ("info-internal", "internal_info"), ("stats", "stats")]
)
def test_keys_and_their_order(command: str, key: str, cli: Cli, demo_store: Path) -> None:
    for topic in ("public/default/plain", "acme/orders/compacted", "public/default/avro"):
        expected = oracle("small")["topics"][topic][key]
        found = ask(cli, demo_store, command, topic)
        assert_same_keys(found, expected)


def assert_same_keys(found: Any, expected: Any) -> None:
    if isinstance(found, dict) and isinstance(expected, dict):
        keys = [key for key in found if key not in OURS]
        optional = {
            "ownerBroker",
            "metadata",
            "entries",
            "size",
            "individualDeletedMessages",
            "properties",
            "keySharedMode",
        }
        assert [key for key in keys if key not in optional] == [key for key in expected if key not in optional] or set(
            keys
        ) == set(expected)
        for key in set(found) & set(expected):
            assert_same_keys(found[key], expected[key])
    if isinstance(found, list) and isinstance(expected, list):
        for ours, theirs in zip(found, expected, strict=False):
            assert_same_keys(ours, theirs)


def test_the_stored_metadata_is_printed_as_gson_does(cli: Cli, store: Path) -> None:
    """As pulsar-admin 4.0.8 prints it: two blanks, no blank in front of a colon, ``=`` and ``'`` escaped."""
    topic = parse_topic("public/default/made")
    properties = {"a": "b,c=d", "b": "<it's>"}
    put_values(store, {topic.path: encode_managed_ledger(ManagedLedger((LedgerInfo(97),), properties=properties))})
    text = cli.on(store, f"topics info-internal {topic}").stdout
    assert text.split('"ledgers": ')[1] == (
        '[\n    {\n      "ledgerId": 97,\n      "timestamp": 0,\n      "isOffloaded": false\n    }\n  ],\n'
        '  "cursors": {},\n  "properties": {\n    "a": "b,c\\u003dd",\n    "b": "\\u003cit\\u0027s\\u003e"\n  }\n}\n'
    )


def test_partitions(cli: Cli, demo_store: Path) -> None:
    names = [f"persistent://acme/orders/parts-partition-{n}" for n in range(3)]
    internal = ask(cli, demo_store, "partitioned-stats-internal", "acme/orders/parts")
    assert (internal["metadata"], list(internal["partitions"])) == ({"partitions": 3, "deleted": False}, names)
    info = ask(cli, demo_store, "info-internal", "acme/orders/parts")
    assert (info["version"], list(info["partitions"])) == (0, names)
    for name in names:
        assert internal["partitions"][name] == ask(cli, demo_store, "stats-internal", name)
        assert info["partitions"][name] == ask(cli, demo_store, "info-internal", name)
    cli.on(demo_store, "topics partitioned-stats-internal acme/iot/skewed").ends(5)


@pytest.mark.parametrize("world", [*WORLD_NAMES, CLUSTER])
def test_cursors_after_a_crash(world: str, cli: Cli) -> None:
    """The truth is in cursor ledgers: nothing counts as acknowledged that no consumer acknowledged."""
    store = imported(world, "crashed")
    deleted = 0
    for question, acks in oracle(world)["crash"]["acks_sent"].items():
        topic, subscription = question.split(" ")
        cursor = ask(cli, store, "stats-internal", topic)["cursors"][subscription]
        if (world, subscription) == (CLUSTER, "crash-batch"):  # killed before any of its acknowledgements was durable
            assert (cursor["state"], cursor["individuallyDeletedMessages"]) == ("NoLedger", "[]")
            continue
        assert (cursor["state"], cursor["cursorLedger"] >= 0) == ("Open", True)
        assert cursor["cursorLedgerLastEntry"] >= 0
        assert cursor["lastLedgerSwitchTimestamp"].startswith("2026-11-21T")
        sent = {(ledger_id, entry_id) for ledger_id, entry_id, _ in acks}
        ranges = cursor["individuallyDeletedMessages"].strip("[]").removesuffix("]").removeprefix("(").split("],(")
        for lower, upper in (text.split("..") for text in ranges if text):
            (ledger_id, first), (_, last) = (map(int, part.split(":")) for part in (lower, upper))
            for entry_id in range(first + 1, last + 1):
                assert (ledger_id, entry_id) in sent
                deleted += 1
        info = ask(cli, store, "info-internal", topic)["cursors"][subscription]
        assert info["cursorsLedgerId"] == cursor["cursorLedger"]
    assert deleted > 50


def test_a_lost_cursor_ledger_is_said(cli: Cli, store: Path) -> None:
    topic = parse_topic("public/default/plain")
    info = CursorInfo(999_999, Position(9, 1))
    put_values(store, {topic.cursor_path("half"): encode_cursor_info(info)})
    result = cli.on(store, f"topics stats-internal {topic}")
    assert result.exit_code == 1
    assert "half: its newest state is lost (cursor ledger 999999: no such ledger)" in result.stderr
    cursor = ask(cli, store, "stats-internal", topic, exit_code=1)["cursors"]["half"]
    assert (cursor["markDeletePosition"], cursor["state"], cursor["cursorLedger"]) == ("9:1", "NoLedger", -1)


def test_a_bad_cursor_is_left_out_and_counted(cli: Cli, store: Path) -> None:
    topic = parse_topic("public/default/plain")
    put_values(store, {topic.cursor_path("half"): b"\x08\xff"})
    for command in ("stats-internal", "info-internal"):
        found = ask(cli, store, command, topic, exit_code=1)
        assert sorted(found["cursors"]) == ["expire-me", "holes", "never", "reset-me"]
    assert sorted(ask(cli, store, "stats", topic, exit_code=1)["subscriptions"]) == sorted(found["cursors"])


@pytest.mark.usefixtures("damages_stores")
def test_a_lost_compacted_ledger(cli: Cli, store: Path) -> None:
    ledger_id = ask(cli, store, "stats-internal", "acme/orders/compacted")["compactedLedger"]["ledgerId"]
    lose_nodes(store, ledger_path(ledger_id))
    write_rows(store, lambda txn: txn.delete("times", ledger_id.to_bytes(8, "big")))
    found = ask(cli, store, "stats-internal", "acme/orders/compacted", exit_code=1)
    assert found["compactedLedger"]["ledgerId"] == ledger_id
    assert (found["compactedLedger"]["entries"], found["compactedLedger"]["size"]) == (-1, -1)


def test_offloaded_terminated_and_annotated(cli: Cli, store: Path) -> None:
    """What the recorded worlds lack: offload contexts, ledger properties, PIP-345's own fields, a terminated topic."""
    topic = parse_topic("public/default/made")
    uuid = "00000000-0000-0001-0000-000000000002"
    managed = ManagedLedger(
        (
            LedgerInfo(900, 5, 500, 1_700_000_000_000, True, uuid, {"k": "v"}),
            LedgerInfo(901, 3, 300, 1_700_000_000_500, False, uuid),
        ),
        Position(901, 2),
        {"b": "2", "a": "1"},
    )
    stat = NodeStat(7, 1, 1_700_000_000_000, 1_700_000_000_120, False)
    cursor = encode_cursor_info(CursorInfo(-1, Position(901, 0), properties={"retries": 3}))
    nodes = [Node(topic.path, stat, encode_managed_ledger(managed)), Node(topic.cursor_path("c"), stat, cursor)]
    write_rows(store, lambda txn: put_nodes(txn, nodes))
    internal = ask(cli, store, "stats-internal", topic, exit_code=1)  # ledger 901 is lost
    assert (internal["state"], internal["lastConfirmedEntry"], internal["totalSize"]) == ("Terminated", "901:2", 800)
    assert [ledger["offloaded"] for ledger in internal["ledgers"]] == [True, False]
    assert internal["ledgers"][0]["properties"] == {"k": "v"}
    assert internal["lastLedgerCreatedTimestamp"] is None
    info = ask(cli, store, "info-internal", topic, exit_code=1)
    dates = {"creationDate": "2023-11-14T22:13:20Z", "modificationDate": "2023-11-14T22:13:20.12Z"}
    mark = {"cursorsLedgerId": -1, "markDelete": {"ledgerId": 901, "entryId": 0}}
    offloaded = {"isOffloaded": True, "offloadedContextUuid": uuid}
    assert info == {
        "version": 7,
        **dates,
        "ledgers": [
            {"ledgerId": 900, "entries": 5, "size": 500, "timestamp": 1_700_000_000_000, **offloaded},
            {"ledgerId": 901, "entries": 3, "size": 300, "timestamp": 1_700_000_000_500, **offloaded},
        ],
        "terminatedPosition": {"ledgerId": 901, "entryId": 2},
        "cursors": {"c": {"version": 7, **dates, **mark, "properties": {"retries": 3}}},
        "properties": {"a": "1", "b": "2"},
    }
    assert list(info["properties"]) == ["a", "b"]
    assert ask(cli, store, "stats", topic, exit_code=1)["offloadedStorageSize"] == 500
    described = ask(cli, store, "describe", topic, exit_code=1)["ledgers"]
    assert [row["state"] for row in described] == ["offloaded", "closed"]


@pytest.mark.usefixtures("damages_stores")
def test_a_damaged_time_row_is_an_error(cli: Cli, store: Path) -> None:
    key = (9).to_bytes(8, "big")
    write_rows(store, lambda txn: txn.put("times", key, b"\x01\x00"))
    cli.on(store, "topics stats-internal public/default/plain --explain -o json").fails(6, "index-corrupt")


# -- get-backlog-size and analyze-backlog ---------------------------------------------------------------------------

T = "public/default/t"


def analyze(cli: Cli, store: Path, topic: str, *arguments: object, exit_code: int = 0) -> Any:
    result = cli("--store", store, "topics", "analyze-backlog", topic, *arguments, "-o", "json")
    assert result.exit_code == exit_code, result.stderr
    return result.json


@pytest.mark.parametrize("world", WORLD_NAMES)
def test_sizes_equal_the_broker(world: str, cli: Cli) -> None:
    """The broker estimates each subscription's backlog from its mark-delete position."""
    compared = 0
    command = ("--store", imported(world, "clean"), "topics", "get-backlog-size")
    for topic, answers in oracle(world)["topics"].items():
        sizes = answers["stats"]["subscriptions"]
        cursors = answers["internal_stats"]["cursors"]
        for name, cursor in cursors.items():
            expected = sizes[{"fail%2Fover%3A1": "fail/over:1"}.get(name, name)]["backlogSize"]
            position = cursor["markDeletePosition"]
            assert cli(*command, topic, f"--messageId={position}").stdout == f"{expected}\n"
            compared += 1
        assert cli(*command, topic).stdout == f"{answers['stats']['storageSize']}\n"
    assert compared == 27


def test_sizes_of_several(cli: Cli, demo_store: Path) -> None:
    result = cli.on(demo_store, "topics get-backlog-size --pattern acme/iot/* -o jsonl")
    assert result.json_lines == [
        {"topic": "persistent://acme/iot/skewed", "backlogSize": 29044},
        {"topic": "persistent://acme/iot/skewed-batched", "backlogSize": 19421},
    ]


def test_counting_has_no_cap(cli: Cli, tmp_path: Path) -> None:
    """More than the broker's 10,000 entries, in batches and singles, over blocks and ledgers, with holes."""
    ledgers = [[Made(START_MS, batch=index % 3) for index in range(count)] for count in (6000, 1, 6000)]
    messages = [max(made.batch, 1) for ledger in ledgers for made in ledger]
    holes = ((Position(10, 9), Position(10, 2000)), (Position(10, 5990), Position(12, 1030)))
    cursor = CursorInfo(-1, Position(10, 4), ranges=holes)
    store = make_store(tmp_path / "store", {T: MadeTopic(ledgers, cursors={"s": cursor})})
    deleted = {*range(10, 2001), *range(5991, 6001 + 1031)}
    left = [index for index in range(5, 12001) if index not in deleted]
    found = analyze(cli, store, T, "-s", "s")
    assert (found["entries"], found["messages"]) == (len(left), sum(messages[index] for index in left))
    assert (found["firstMessageId"], found["lastMessageId"], found["aborted"]) == ("10:5", "12:5999", False)
    from_earlier = [index for index in range(1, 12001) if index not in deleted]
    found = analyze(cli, store, T, "-s", "s", "-p", "10:1")
    assert (found["entries"], found["messages"]) == (len(from_earlier), sum(messages[i] for i in from_earlier))
    assert found["firstMessageId"] == "10:1"
    assert analyze(cli, store, T, "-s", "s", "-p", "12:5999")["entries"] == 1


def test_nothing_left(cli: Cli, tmp_path: Path) -> None:
    topic = MadeTopic([[Made(START_MS)] * 3], cursors={"done": CursorInfo(-1, Position(10, 2))})
    store = make_store(tmp_path / "store", {T: topic})
    found = analyze(cli, store, T, "-s", "done")
    assert (found["entries"], found["messages"], "firstMessageId" in found) == (
        0,
        0,
        False,
    )  # Pulsar 4.0.8 leaves it out
    assert analyze(cli, store, T, "-s", "done", "-p", "latest")["entries"] == 0


def test_lost_entries_are_said(cli: Cli, tmp_path: Path) -> None:
    ledger = [Made(START_MS, batch=5, lost=index in (0, 3)) for index in range(6)]
    topic = MadeTopic(
        [ledger, [Made(START_MS, lost=True)] * 2, [Made(START_MS)]], cursors={"s": CursorInfo(-1, Position(10, -1))}
    )
    store = make_store(tmp_path / "store", {T: topic})
    result = cli.on(store, f"topics analyze-backlog {T} -s s -o json")
    assert result.exit_code == 1
    assert "4 entries of the backlog of s are in no imported file" in result.stderr
    shown = result.json
    (row,) = cli.on(store, f"topics subscriptions {T} --table -o json").json
    described = cli.on(store, f"topics describe {T} -o json").json
    removal = cli.on(store, f"topics unsubscribe {T} -s s --dry-run -o json").json
    # Nobody knows how many messages the other four have.
    for one, key in ((shown, "entries"), (row, "backlogEntries"), (described, "entries"), (removal, "entries")):
        messages = one["backlogMessages" if one is row else "messages"]
        assert (one[key], messages, one["uncountedEntries"]) == (9, 4 * 5 + 1, 4)
    for line, said in (
        (f"topics analyze-backlog {T} -s s -o table", "uncountedEntries           4"),
        (f"topics subscriptions {T} --table -o csv", ",≥21,"),
        (f"topics subscriptions {T} --table --quick", "≥ 21"),
        (f"topics describe {T}", "9 entries, at least 21 messages"),
        (f"topics unsubscribe {T} -s s --dry-run", "at least 21 messages in 9 entries ("),
        (f"topics expire {T} -s s -t 1h --forecast 1h -o csv", "≥21"),
    ):
        assert said in cli.on(store, line).stdout, line


def test_the_newest_entry_is_of_a_ledger_that_a_broker_wrote(tmp_path: Path) -> None:
    """Of this store's own are those up to the id that it would give next."""
    ledgers = [[Made(CREATED_MS + 1_000 * number)] for number in range(3)]  # 10 to 12
    path = make_store(tmp_path / "made", {"a/b/t": MadeTopic(ledgers)})
    told = {}
    for own in ((10, 10), (10, 12), (11, 13), (12, 13), (10, 13), (13, 14)):
        with open_store(path, writable=True) as store:
            store.write(lambda txn, own=own: put_own_ledgers(txn, OwnLedgers(*own)))
            with store.read() as txn:
                found = read_newest_ms(txn)
        told[own] = None if found is None else (found - CREATED_MS) // 1_000
    assert told == {(10, 10): 2, (10, 12): 2, (11, 13): 0, (12, 13): 1, (10, 13): None, (13, 14): 2}


def test_a_damaged_topic_is_an_error(cli: Cli, store: Path) -> None:
    path = parse_topic("public/default/plain").path
    value = read_store(store, lambda reader: read_node(reader.txn, path).value)
    put_values(store, {path: value[:-1]})
    result = cli.on(store, "topics stats-internal public/default/plain -o json").fails(6, "metadata-corrupt")
    result = cli.on(store, "topics stats-internal --pattern public/default/* -o json")
    assert (result.exit_code, len(result.json), result.error["code"]) == (1, 9, "metadata-corrupt")
