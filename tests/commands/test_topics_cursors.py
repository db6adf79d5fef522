"""``topics skip``, ``clear-backlog``, ``create-subscription``, ``unsubscribe``, and the two of them for a whole namespace."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pulsar_admin.store.codec.cursor import CursorInfo, CursorState, decode_cursor_info
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.db.owners import find_owners
from pulsar_admin.store.db.tree import read_node
from pulsar_admin.store.model.cursors import COMPACTION_CURSOR, iter_cursor_names
from pulsar_admin.store.names import Position, parse_topic
from tests.commands.changing import check_undo, rows_of
from tests.conftest import Cli
from tests.stores import copied, read_rows
from tests.synthetic import CREATED_MS, Made, MadeTopic, make_store
from tests.worlds import assert_unchanged, oracle

PLAIN = "public/default/plain"
COMPACTED = "acme/orders/compacted-single"


def info_of(store: Path, topic: str, cursor: str) -> CursorInfo:
    with open_store(store) as opened, opened.read() as txn:
        path = parse_topic(topic).cursor_path(cursor)
        return decode_cursor_info(read_node(txn, path).value, path)


def cursors_of(store: Path, topic: str) -> list[str]:
    return read_rows(store, lambda txn: sorted(iter_cursor_names(txn, parse_topic(topic))))


# -- skip and clear-backlog -------------------------------------------------------------------------------------------


def test_skip(cli: Cli, store: Path) -> None:
    before = rows_of(store)
    done = cli.json(store, f"topics skip {PLAIN} -s half -n 7")
    recorded = next(m for m in oracle("small")["mutations"] if m["kind"] == "skip")
    assert recorded["path"] == "skip/7"
    assert done["after"]["markDeletePosition"] == recorded["after"]["markDeletePosition"]
    assert (done["entries"], done["skipped"]["entries"], done["replayed"]["entries"]) == (7, 7, 0)
    assert info_of(store, PLAIN, "half").cursors_ledger_id == -1
    check_undo(cli, store, 1, before)


def test_skip_over_holes(cli: Cli, store: Path) -> None:
    """Of the recorded holes (9:2, then 4..8, 14..18 …) the next three entries not acknowledged are 9:3, 9:4 and 9:9."""
    done = cli.json(store, f"topics skip {PLAIN} -s holes -n 3")
    assert done["before"]["individuallyDeletedMessages"].startswith("[(9:4..9:8],(9:14..9:18],")
    assert done["after"]["markDeletePosition"] == "9:9"
    assert done["after"]["individuallyDeletedMessages"].startswith("[(9:14..9:18],")
    # the next one swallows nothing, the fourth after it stops before 9:14 … 9:18 and swallows them
    more = cli.json(store, f"topics skip {PLAIN} -s holes -n 5")
    assert more["after"]["markDeletePosition"] == "9:18"


def test_skip_further_than_there_is(cli: Cli, store: Path) -> None:
    done = cli.json(store, f"topics skip {PLAIN} -s half -n {10**6}")
    assert (done["after"]["markDeletePosition"], done["entries"]) == ("46:24", 150)
    again = cli.json(store, f"topics skip {PLAIN} -s half -n 1")
    assert (again["change"], again["entries"]) == (None, 0)


def test_the_truth_in_a_cursor_ledger(cli: Cli, tmp_path: Path) -> None:
    """After the kill the state is in a ledger: it is read from there, written into metadata, and the ledger has no owner then."""
    store = copied("small", "crashed", tmp_path)
    before = rows_of(store)
    info = info_of(store, "public/default/fresh", "crash-holes")
    assert info.cursors_ledger_id >= 0
    assert info.ranges == ()
    done = cli.json(store, "topics skip public/default/fresh -s crash-holes -n 2")
    assert len(done["before"]["individuallyDeletedMessages"].split(",")) > 50
    after = info_of(store, "public/default/fresh", "crash-holes")
    assert after.cursors_ledger_id == -1
    assert len(after.ranges) > 50
    assert read_rows(store, lambda txn: find_owners(txn, info.cursors_ledger_id)) == ()
    check_undo(cli, store, 1, before)


@pytest.mark.parametrize("command", [["skip", "-n", "1"], ["clear-backlog"]], ids=str)
def test_the_compaction_cursor(cli: Cli, store: Path, command: list[str]) -> None:
    arguments = ("--store", store, "topics", *command, COMPACTED, "-s", COMPACTION_CURSOR, "-o", "json")
    with assert_unchanged(store / "meta" / "data.mdb"):
        refused = cli(*arguments)
    assert (refused.exit_code, refused.error["code"]) == (3, "refused")
    assert "marks how far the topic is compacted" in refused.error["message"]
    before = info_of(store, COMPACTED, COMPACTION_CURSOR)
    assert cli(*arguments, "--force").json["entries"] > 0
    after = info_of(store, COMPACTED, COMPACTION_CURSOR)
    assert dict(after.properties) == dict(before.properties)
    assert "CompactedTopicLedger" in after.properties


# -- create-subscription ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "mark", "backlog"),
    [((), "46:24", 0), (("-m", "earliest"), "9:-1", 300), (("-m", "18:0"), "9:24", 275), (("-m", "18:5"), "18:4", 270)],
    ids=str,
)
def test_create_subscription(cli: Cli, store: Path, options: tuple[str, ...], mark: str, backlog: int) -> None:
    before = rows_of(store)
    done = cli("--store", store, "topics", "create-subscription", PLAIN, "-s", "new/one", *options, "-o", "json").json
    assert done["before"] is None
    assert done["after"]["markDeletePosition"] == mark
    assert done["after"]["backlogEntries"] == done["entries"] == backlog
    assert "new/one" in cursors_of(store, PLAIN)
    check_undo(cli, store, 1, before)


def test_create_with_properties(cli: Cli, store: Path) -> None:
    now = 1_795_260_000_000
    options = ("-r", "-p", "owner=billing", "-p", "note=a=b")
    result = cli("--store", store, "--now", f"@{now}", "topics", "create-subscription", PLAIN, "-s", "new", *options)
    assert result.stdout == ""  # as pulsar-admin
    info = info_of(store, PLAIN, "new")
    assert info == CursorInfo(
        -1,
        Position(46, 24),
        properties={"pulsar.replicated.subscription": 1},
        cursor_properties={"owner": "billing", "note": "a=b"},
        last_active_ms=now,
    )


def test_create_on_all_partitions(cli: Cli, store: Path) -> None:
    before = rows_of(store)
    done = cli(*f"--store {store} topics create-subscription acme/orders/parts -s new -m earliest -o json".split()).json
    assert [(row["topic"][-1], row["entries"]) for row in done] == [("0", 12), ("1", 13), ("2", 12)]
    assert {row["change"] for row in done} == {1}
    check_undo(cli, store, 1, before)


def test_create_is_all_or_nothing(cli: Cli, store: Path) -> None:
    assert cli.on(store, "topics create-subscription acme/orders/parts-partition-1 -s new").exit_code == 0
    with assert_unchanged(store / "meta" / "data.mdb"):
        result = cli.on(store, "topics create-subscription acme/orders/parts -s new -o json")
    assert (result.exit_code, result.error["code"]) == (3, "already-exists")
    assert "already exists for topic: persistent://acme/orders/parts-partition-1" in result.error["message"]
    assert cursors_of(store, "acme/orders/parts-partition-0") == []


def test_create_on_a_topic_never_opened(cli: Cli, tmp_path: Path) -> None:
    path = make_store(tmp_path / "made", {"a/b/t": MadeTopic([])})
    done = cli.json(path, "topics create-subscription a/b/t -s new")
    assert (done["after"]["markDeletePosition"], done["entries"]) == ("-1:-1", 0)


# -- the first ledger of a cluster -------------------------------------------------------------------------------------


def test_ledger_0_is_a_cursor_ledger_as_any_other(cli: Cli, tmp_path: Path) -> None:
    cursors = {"s": CursorInfo(0, Position(10, -1)), "other": CursorInfo(-1, Position(10, -1))}
    named = {"s+": CursorInfo(0, Position(11, -1))}
    ledger = [Made(CREATED_MS)] * 3
    topics = {"a/b/t": MadeTopic([ledger], cursors=cursors), "a/b/u": MadeTopic([ledger], cursors=named)}
    store = make_store(tmp_path / "made", topics, {0: CursorState(Position(10, 1))})
    rows = {row["subscription"]: row for row in cli.json(store, "topics subscriptions a/b/t --table")}
    told = {name: (row["markDelete"]["entryId"], row["source"], row["cursorLedger"]) for name, row in rows.items()}
    assert told == {"s": (1, "cursor-ledger", 0), "other": (-1, "metadata", None)}
    internal = cli.json(store, "topics stats-internal a/b/t")["cursors"]
    assert {name: one["cursorLedger"] for name, one in internal.items()} == {"s": 0, "other": -1}
    owners = read_rows(store, lambda txn: find_owners(txn, 0))
    assert sorted((owner.kind, owner.topic, owner.cursor) for owner in owners) == [
        ("cursor", "persistent://a/b/t", "s"),
        ("cursor", "persistent://a/b/u", "s+"),
    ]
    gone = cli.json(store, "topics unsubscribe a/b/t -s s --dry-run")
    assert gone["unreferencedLedgers"] == [0]
    moving = "managed-ledger update-mark-delete-cursor -mlp a/b/persistent/t -cm 10:0 --dry-run -cn"
    warned = "the position was in the cursor ledger 0, where pulsar-managed-ledger-admin would have left it"
    assert warned in cli.on(store, f"{moving} s").stdout
    assert "where pulsar-managed-ledger-admin" not in cli.on(store, f"{moving} other").stdout


# -- unsubscribe ------------------------------------------------------------------------------------------------------


def test_unsubscribe(cli: Cli, store: Path) -> None:
    before = rows_of(store)
    done = cli.json(store, "topics unsubscribe acme/delayed/reminders -s workers -f")
    assert done["after"] is None
    assert done["before"]["markDeletePosition"] == "99:-1"
    statistics = oracle("small")["topics"]["acme/delayed/reminders"]["stats"]["subscriptions"]["workers"]
    assert done["entries"] == statistics["msgBacklog"]
    assert len(done["unreferencedLedgers"]) >= 1  # its delayed-delivery buckets
    assert cursors_of(store, "acme/delayed/reminders") == ["audit"]
    assert not read_rows(store, lambda txn: any(find_owners(txn, ledger) for ledger in done["unreferencedLedgers"]))
    check_undo(cli, store, 1, before)


def test_unsubscribe_frees_ledgers(cli: Cli, tmp_path: Path) -> None:
    ledgers = [[Made(CREATED_MS)], [Made(CREATED_MS)], [Made(CREATED_MS)]]
    cursors = {"slow": CursorInfo(-1, Position(10, -1)), "fast": CursorInfo(-1, Position(11, 0))}
    path = make_store(tmp_path / "made", {"a/b/t": MadeTopic(ledgers, cursors=cursors)})
    text = cli.on(path, "topics unsubscribe a/b/t -s slow").stderr
    assert (
        "  then deletable: ledgers 10, 11 (2 entries, 46 bytes)\n  ledger 12 retained by subscription fast at 11:0\n"
        in text
    )


def test_unsubscribe_leaves_the_pending_ack_topic(cli: Cli, store: Path) -> None:
    done = cli.json(store, "topics unsubscribe public/default/txn-in -s perf")
    assert done["warnings"] == [
        "the topic persistent://public/default/txn-in-perf__transaction_pending_ack of its transactions stays; "
        "a broker would delete it too"
    ]


def test_unsubscribe_from_compaction(cli: Cli, store: Path) -> None:
    before = rows_of(store)
    arguments = ("--store", store, "topics", "unsubscribe", COMPACTED, "-s", COMPACTION_CURSOR, "-o", "json")
    cli(*arguments).fails(3, "refused", "without it the compacted view is gone")
    assert cli(*arguments, "-f").json["unreferencedLedgers"] == [94]
    check_undo(cli, store, 1, before)


# -- whole namespaces -------------------------------------------------------------------------------------------------


def test_clear_a_namespace(cli: Cli, store: Path) -> None:
    before = rows_of(store)
    done = cli.json(store, "namespaces clear-backlog public/default --force")
    assert {row["change"] for row in done} == {1}
    expected = {
        (f"persistent://{topic}", name): row["msgBacklog"]
        for topic, said in oracle("small")["topics"].items()
        if topic.startswith("public/default/")
        for name, row in said["stats"]["subscriptions"].items()
        if name != COMPACTION_CURSOR
    }
    found = {(row["topic"], row["subscription"]): row["entries"] for row in done}
    # the broker was asked about most topics: those it spoke of are there, with its counts
    assert {key: found[key] for key in expected} == expected
    assert all(row["after"]["backlogEntries"] == 0 for row in done)
    assert COMPACTION_CURSOR not in {row["subscription"] for row in done}
    check_undo(cli, store, 1, before)


def test_clear_one_subscription_of_a_namespace(cli: Cli, store: Path) -> None:
    arguments = f"--store {store} namespaces clear-backlog public/default -s expire-me --dry-run -o json".split()
    topics = [row["topic"].rpartition("/")[2] for row in cli(*arguments).json]
    assert topics == ["plain", "steady", "steady-batched"]


def test_bundles_part_the_namespace(cli: Cli, store: Path) -> None:
    """The four bundles of the recorded policies hold every subscription once."""
    bounds = oracle("small")["namespaces"]["public/default"]["policies"]["bundles"]["boundaries"]
    arguments = ("--store", store, "namespaces", "clear-backlog", "public/default", "--dry-run", "-o", "jsonl")
    whole = [(row["topic"], row["subscription"]) for row in cli(*arguments).json_lines]
    parts: list[Any] = []
    for low, high in pairwise(bounds):
        result = cli(*arguments, "-b", f"{low}_{high}")
        if result.exit_code == 0:
            parts += [(row["topic"], row["subscription"]) for row in result.json_lines]
    assert sorted(parts) == sorted(whole)
    # CRC-32 of "persistent://public/default/plain", computed with another program (gzip), is 0xdd337939
    last = [(row["topic"], row["subscription"]) for row in cli(*arguments, "-b", "0xdd337939_0xdd33793a").json_lines]
    assert {topic for topic, _ in last} == {"persistent://public/default/plain"}


def test_unsubscribe_a_namespace(cli: Cli, store: Path) -> None:
    before = rows_of(store)
    done = cli.json(store, "namespaces unsubscribe public/default -s expire-me")
    assert [row["topic"].rpartition("/")[2] for row in done] == ["plain", "steady", "steady-batched"]
    assert "expire-me" not in cursors_of(store, PLAIN)
    check_undo(cli, store, 1, before)


# -- what is refused --------------------------------------------------------------------------------------------------

BAD: list[tuple[tuple[str, ...], int, str]] = [
    (("topics", "skip", PLAIN, "-s", "half", "-n", "-1"), 2, "-1 is not a 64-bit number of 0 or more"),
    (("topics", "skip", PLAIN, "-s", "half", "-n", "many"), 2, "'many' is not a valid integer"),
    (("topics", "skip", PLAIN, "-s", "nobody", "-n", "1"), 5, "has no subscription 'nobody'"),
    (("topics", "clear-backlog", "-s", "half"), 2, "name topics, or give --all-topics, or --pattern GLOB"),
    (("topics", "create-subscription", PLAIN, "-s", "half"), 3, "Subscription already exists for topic"),
    (("topics", "create-subscription", PLAIN, "-s", ""), 2, "a subscription needs a name"),
    (("topics", "create-subscription", PLAIN, "-s", "__compaction"), 3, "is a name of the broker's own cursors"),
    (("topics", "create-subscription", PLAIN, "-s", "pulsar.repl.b"), 3, "is a name of the broker's own cursors"),
    (("topics", "create-subscription", PLAIN, "-s", "n", "-p", "x"), 2, "'x' is not a KEY=VALUE"),
    (("topics", "create-subscription", PLAIN, "-s", "n", "-p", "#pulsar.internal.a=b"), 2, "is the broker's own"),
    (("topics", "create-subscription", PLAIN, "-s", "n", "-m", "5:0"), 5, "what was before ledger 9 is trimmed"),
    (("topics", "create-subscription", PLAIN, "-s", "n", "-m", "9:77"), 5, "ledger 9 has entries 0 to 24"),
    (("topics", "create-subscription", "acme/orders/parts", "-s", "n", "-m", "5:0"), 2, "is in one of 3 topics"),
    (("topics", "unsubscribe", PLAIN, "-s", "nobody"), 5, "has no subscription 'nobody'"),
    (("topics", "unsubscribe", "--pattern", "acme/*", "-s", "nobody"), 5, "no topic that matches has a subscription"),
    (("namespaces", "clear-backlog", "no/where"), 5, "no namespace no/where"),
    (("namespaces", "clear-backlog", "public/default", "-s", "nobody"), 5, "has a subscription 'nobody'"),
    (("namespaces", "clear-backlog", "public/default", "-s", "__compaction"), 3, "is the broker's own cursor"),
    (("namespaces", "clear-backlog", "public/default", "-b", "0x10_0x00"), 2, "Invalid range: [16..0)"),
    (("namespaces", "unsubscribe", "public/default"), 2, "Missing option '-s'"),
    (("namespaces", "unsubscribe", "public/default", "-s", "pulsar.dedup"), 3, "is the broker's own cursor"),
]


@pytest.mark.parametrize(
    ("arguments", "code", "message"), BAD, ids=lambda value: " ".join(value) if isinstance(value, tuple) else None
)
def test_bad_input(cli: Cli, demo_store: Path, arguments: tuple[str, ...], code: int, message: str) -> None:
    with assert_unchanged(demo_store / "meta" / "data.mdb"):
        result = cli("--store", demo_store, *arguments, "-o", "json")
    assert (result.exit_code, result.stdout) == (code, "")
    assert message in result.error["message"]


@pytest.mark.parametrize("verb", ["unsubscribe", "clear-backlog"])
def test_what_a_namespace_refuses_of_a_brokers_cursor_is_typed_for_a_topic(verb: str, cli: Cli, store: Path) -> None:
    refused = cli.on(store, f"-o json namespaces {verb} acme/orders -s __compaction -y").ends(3)
    words = refused.error["hint"].partition("pulsar-admin ")[2].split()
    assert words[:2] == ["topics", verb]
    assert cli("--store", store, *words, "-y").exit_code == 0
