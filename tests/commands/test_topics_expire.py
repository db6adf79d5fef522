"""``topics expire`` and ``topics expire-all-subscriptions`` on recorded and on made-up topics."""

from __future__ import annotations

from pathlib import Path

import pytest

from pulsar_admin.store.codec.cursor import CursorInfo
from pulsar_admin.store.names import Position
from tests.commands.changing import check_undo, rows_of
from tests.conftest import Cli
from tests.plans.test_expiry import put_json
from tests.stores import imported
from tests.synthetic import CREATED_MS, Made, MadeTopic, make_store
from tests.worlds import assert_unchanged, oracle

PLAIN = "public/default/plain"
STEADY = "public/default/steady"
LIMIT = "2026-11-21T09:23:14Z"  # the steady producers of the small world were half done


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """Topic a/b/t, ages 300, 200, 100 s and one an hour ahead; a/b/empty; a/b/p in two partitions."""
    entries = [
        [Made(CREATED_MS - age * 1000, batch=2) for age in (300, 200)],
        [Made(CREATED_MS - 100_000), Made(CREATED_MS + 3_600_000)],
    ]
    first = CursorInfo(-1, Position(10, -1))
    parts = {
        f"a/b/p-partition-{number}": MadeTopic([entries[0]], cursors={"sub": CursorInfo(-1, Position(13 + number, -1))})
        for number in range(2)
    }
    topics = {
        "a/b/t": MadeTopic(entries, cursors={"sub": first, "other": first, "__compaction": first}),
        "a/b/empty": MadeTopic([[]], cursors={"sub": CursorInfo(-1, Position(12, -1))}),
        **parts,
    }
    path = make_store(tmp_path / "made", topics)
    put_json(path, "/admin/partitioned-topics/a/b/persistent/p", {"partitions": 2, "deleted": False})
    return path


def steady_times() -> dict[tuple[int, int], int]:
    return {(row[0], row[1]): row[3] for row in oracle("small")["topics"][STEADY]["messages"]}


def test_expires_what_is_older_and_undo_brings_it_back(cli: Cli, store: Path) -> None:
    before = rows_of(store)
    with assert_unchanged(store / "meta" / "data.mdb"):
        shown = cli(
            "--store", store, "topics", "expire", STEADY, "-s", "expire-me", "-t", LIMIT, "--dry-run", "-o", "json"
        ).json
    done = cli("--store", store, "topics", "expire", STEADY, "-s", "expire-me", "-t", LIMIT, "-o", "json").json
    assert done == {**shown, "change": 1, "dryRun": False, "undo": "pulsar-admin store undo 1"}
    assert done["before"]["markDeletePosition"] == "12:-1"
    assert done["before"]["backlogEntries"] - done["after"]["backlogEntries"] == done["entries"] == done["messages"]
    assert [row["entries"] for row in done["ledgers"]] == [25] * (len(done["ledgers"]) - 1) + [done["entries"] % 25]
    assert sum(row["bytes"] for row in done["ledgers"]) == done["bytes"]
    ledger, entry = map(int, done["after"]["markDeletePosition"].split(":"))
    # The world's broker times follow the publish times of these producers within a second.
    published = steady_times()
    assert abs(published[ledger, entry] - done["limit"]) < 1_000
    check_undo(cli, store, 1, before)


def test_alias_and_text(cli: Cli, store: Path) -> None:
    result = cli("--store", store, "topics", "expire-messages", PLAIN, "-s", "expire-me", "-p", "18:4")
    assert result.stdout == ""  # as pulsar-admin; by our own name the report is the answer
    assert result.stderr == (
        "change 1: expire messages of expire-me on persistent://public/default/plain\n"
        "  markDeletePosition: 9:-1 -> 18:4\n"
        "  backlogEntries: 300 -> 270\n"
        f"  consumers lose 30 messages ({_bytes(PLAIN, 30):,} bytes)\n"
        f"  ledger 9: 25 messages ({_bytes(PLAIN, 25):,} bytes)\n"
        f"  ledger 18: 5 messages ({_bytes(PLAIN, 30) - _bytes(PLAIN, 25):,} bytes)\n"
        "  13 ledgers from 9 to 47 retained by subscription never at 9:-1\n"
        "  undo: pulsar-admin store undo 1\n"
    )


def _bytes(topic: str, entries: int) -> int:
    """Payload bytes of the first entries, from the entry logs by way of the raw reader."""
    from pulsar_admin.store.db.environment import open_store
    from pulsar_admin.store.model.reader import open_reader
    from pulsar_admin.store.model.topics import read_topic
    from pulsar_admin.store.names import parse_topic

    with open_store(imported("small", "clean")) as opened, open_reader(opened) as reader:
        found = read_topic(reader.txn, parse_topic(topic))
        places = [found.at_rank(rank) for rank in range(entries)]
        return sum(len(reader.read(place.ledger_id, place.entry_id).payload) for place in places)


def test_the_brokers_rule_and_its_difference(cli: Cli, made: Path) -> None:
    """Publish times 300, 200, 100 s ago and an hour ahead; a fifth from 50 s ago would stand behind the last."""
    now = f"@{CREATED_MS}"
    arguments = f"--store {made} --now {now} topics expire a/b/t -s sub -t 150s --dry-run -o json".split()
    safe = cli(*arguments).json
    assert safe["after"]["markDeletePosition"] == "10:1"
    assert (safe["entries"], safe["messages"]) == (2, 4)
    assert safe["broker"]["agrees"] is True
    assert safe["futureDated"] == {
        "entries": 1,
        "messages": 1,
        "first": "11:1",
        "latestTime": CREATED_MS + 3_600_000,
        "producers": ["p"],
    }
    assert cli(*arguments, "--rule", "broker").json["after"] == safe["after"]
    text = cli(*arguments[:-2]).stdout
    assert "1 message never expires by age: from 11:1 on, dated up to 2023-11-14T23:13:20.000Z, sent by p" in text


def test_partitions_are_one_change(cli: Cli, made: Path) -> None:
    before = rows_of(made)
    result = cli(
        "--store", made, "--now", f"@{CREATED_MS}", "topics", "expire", "a/b/p", "-s", "sub", "-t", "250s", "-o", "json"
    )
    assert [(row["change"], row["topic"], row["entries"]) for row in result.json] == [
        (1, "persistent://a/b/p-partition-0", 1),
        (1, "persistent://a/b/p-partition-1", 1),
    ]
    check_undo(cli, made, 1, before)


def test_all_topics_take_those_that_have_it(cli: Cli, made: Path) -> None:
    arguments = f"--store {made} --now @{CREATED_MS} topics expire --all-topics -t 1s --dry-run".split()
    rows = cli(*arguments, "-s", "other", "-o", "json").json
    assert rows["topic"] == "persistent://a/b/t"
    several = cli(*arguments, "-s", "sub", "-o", "jsonl").json_lines
    assert [(row["topic"].rpartition("/")[2], row["entries"]) for row in several] == [
        ("empty", 0),
        ("p-partition-0", 2),
        ("p-partition-1", 2),
        ("t", 3),
    ]
    assert cli(*arguments, "-s", "nobody").exit_code == 5


def test_nothing_to_expire_is_no_change(cli: Cli, store: Path) -> None:
    with assert_unchanged(store / "meta" / "data.mdb"):
        result = cli(
            *("--store", store, "topics", "expire", PLAIN, "-s", "half", "-t", "2000-01-01T00:00:00Z", "--force"),
            *("-o", "json"),
        )
    assert result.exit_code == 0
    assert (result.json["change"], result.json["undo"], result.json["dryRun"], result.json["entries"]) == (
        None,
        None,
        False,
        0,
    )
    text = cli(
        *("--store", store, "topics", "expire", PLAIN, "-s", "half", "-t", "2000-01-01T00:00:00Z", "--force")
    ).stdout
    assert text.startswith(
        "no change: expire messages of half on persistent://public/default/plain\n  nothing to change\n"
    )


def test_all_subscriptions(cli: Cli, made: Path) -> None:
    before = rows_of(made)
    result = cli(*f"--store {made} --now @{CREATED_MS} topics expire-all-subscriptions a/b/t -t 50 -o json".split())
    assert [(row["subscription"], row["after"]["markDeletePosition"]) for row in result.json] == [
        ("other", "11:0"),
        ("sub", "11:0"),
    ]
    # __compaction still stands at the beginning: nothing may be deleted
    assert result.json[0]["deletable"]["ledgers"] == []
    assert result.json[0]["deletable"]["blockedBy"] == {"subscription": "__compaction", "markDeletePosition": "10:-1"}
    check_undo(cli, made, 1, before)


# -- the TTL in force -------------------------------------------------------------------------------------------------


def test_ttl_in_force(cli: Cli, made: Path) -> None:
    ask = f"--store {made} --now @{CREATED_MS} topics expire a/b/t -s sub --ttl --dry-run -o json".split()
    none = cli(*ask)
    assert (none.exit_code, none.error["code"]) == (5, "nothing-matches")
    assert "no TTL applies for persistent://a/b/t" in none.error["message"]
    put_json(made, "/admin/policies/a/b", {"message_ttl_in_seconds": 150})
    row = cli(*ask).json
    assert (row["ttl"], row["ttlSource"], row["after"]["markDeletePosition"]) == (150, "namespace", "10:1")
    put_json(made, "/admin/topic-policies/local/a/b/persistent/t", {"messageTTLInSeconds": 250})
    row = cli(*ask).json
    assert (row["ttl"], row["ttlSource"], row["after"]["markDeletePosition"]) == (250, "topic", "10:0")


def test_a_topic_without_ttl_stays(cli: Cli, made: Path) -> None:
    put_json(made, "/admin/topic-policies/local/a/b/persistent/t", {"messageTTLInSeconds": 150})
    ask = f"--store {made} --now @{CREATED_MS} topics expire a/b/t a/b/p -s sub --ttl -o jsonl".split()
    rows = cli(*ask).json_lines
    assert [(row["entries"], row.get("warnings")) for row in rows] == [
        (2, None),
        (0, ["no TTL applies"]),
        (0, ["no TTL applies"]),
    ]


def test_policies_that_cannot_be_read_stop_it(cli: Cli, tmp_path: Path) -> None:
    cursors = {"sub": CursorInfo(-1, Position(10, -1))}
    topics = {
        "a/b/t": MadeTopic([[Made(CREATED_MS)]], cursors=cursors),
        "a/b/__change_events": MadeTopic([[Made(CREATED_MS)]]),
    }
    path = make_store(tmp_path / "made", topics)
    put_json(path, "/admin/policies/a/b", {"message_ttl_in_seconds": 1})
    result = cli("--store", path, "topics", "expire", "a/b/t", "-s", "sub", "--ttl", "--dry-run", "-o", "json")
    assert (result.exit_code, result.error["code"]) == (6, "metadata-corrupt")
    assert "the topic policies of a/b are unknown" in result.error["message"]


# -- forecast ---------------------------------------------------------------------------------------------------------


def test_forecast(cli: Cli, made: Path) -> None:
    put_json(made, "/admin/policies/a/b", {"message_ttl_in_seconds": 250})
    ask = ("--store", made, "--now", f"@{CREATED_MS}", "topics", "expire", "a/b/t", "-s", "sub", "--forecast", "4m")
    with assert_unchanged(made / "meta" / "data.mdb"):
        rows = cli(*ask, "--interval", "2m", "-o", "jsonl").json_lines
    assert [(row["from"], row["to"], row["entries"], row["messages"]) for row in rows] == [
        (None, CREATED_MS, 1, 2),
        (CREATED_MS, CREATED_MS + 120_000, 1, 2),
        (CREATED_MS + 120_000, CREATED_MS + 240_000, 1, 1),
        (CREATED_MS + 240_000, None, 1, 1),
    ]
    assert {(row["ttl"], row["ttlSource"]) for row in rows} == {(250, "namespace")}
    table = cli(*ask, "-o", "table").stdout.splitlines()
    assert len(table) == 1 + 1 + 24 + 1
    assert table[0].split() == ["TOPIC", "SUBSCRIPTION", "FROM", "TO", "ENTRIES", "MESSAGES", "BYTES", "MARK-DELETE"]


# -- what is refused --------------------------------------------------------------------------------------------------

_SUB = ("-s", "sub")
BAD: list[tuple[tuple[str, ...], int, str]] = [
    (("a/b/t", *_SUB), 2, "Either time (--expireTime) or message position (--position) has to be provided to expire"),
    (("a/b/t", *_SUB, "-t", "3h", "-p", "10:1"), 2, "Can't expire message by time and by message position at the"),
    (("a/b/t", *_SUB, "-t", "5x"), 2, "Invalid time unit 'x'"),
    (("a/b/t", *_SUB, "-t", ""), 2, "time cannot be empty"),
    (("a/b/t", *_SUB, "-t", "-1"), 2, "is negative"),
    (("a/b/t", *_SUB, "-t", "2026-11-20T00:00:00"), 2, "has no time zone"),
    (("a/b/t", *_SUB, "-t", "1969-12-31T23:59:59Z"), 2, "is before 1970"),
    (("a/b/t", *_SUB, "-p", "10"), 2, "invalid position '10'"),
    (("a/b/t", *_SUB, "-p", "9:0"), 5, "persistent://a/b/t has no ledger 9: what was before ledger 10 is trimmed"),
    (("a/b/t", *_SUB, "-p", "99:0"), 5, "persistent://a/b/t has no ledger 99: its ledgers are 10 to 11"),
    (("a/b/t", *_SUB, "-p", "10:9"), 5, "persistent://a/b/t has no entry 10:9: ledger 10 has entries 0 to 1"),
    (("a/b/t", *_SUB, "-p", "99:0", "--rule", "broker"), 3, "invalid message position provided."),
    (("a/b/empty", *_SUB, "-t", "3h"), 5, "persistent://a/b/empty has no entries, so it has no times"),
    (("a/b/empty", *_SUB, "-p", "12:5"), 5, "persistent://a/b/empty has no entry 12:5: ledger 12 has no entries"),
    (("a/b/p", *_SUB, "-p", "13:0"), 2, "Expire message at position is not supported for 2 topics"),
    (("a/b/t", "-s", "__compaction", "-t", "3h"), 3, "expiry never touches __compaction"),
    (("a/b/t", "-s", "nobody", "-t", "3h"), 5, "has no subscription 'nobody'"),
    (("a/b/nowhere", *_SUB, "-t", "3h"), 5, "no topic persistent://a/b/nowhere"),
    (("a/b/t", *_SUB, "-t", "3h", "-e"), 2, "--exclude-reset-position goes with --position"),
    (("a/b/t", *_SUB, "-t", "3h", "--ttl"), 2, "--ttl takes the limit from the policy in force"),
    (("a/b/t", *_SUB, "-t", "3h", "--interval", "1h"), 2, "--interval needs --forecast"),
    (("a/b/t", *_SUB, "-p", "10:1", "--forecast", "1h"), 2, "a forecast goes by age"),
    (("a/b/t", *_SUB, "-t", "3h", "--forecast", "24h", "--interval", "1s"), 2, "more than 1000 intervals"),
    (("a/b/t", *_SUB, "-t", "3h", "--forecast", "0"), 2, "must be above 0"),
    (("a/b/t", *_SUB, "--forecast", "24h"), 5, "no TTL applies"),
    (("a/b/t", *_SUB, "-t", "0", "--forecast", "24h"), 2, "a forecast needs an age above 0"),
    (("a/b/t", *_SUB, "-t", "0", "--rule", "broker"), 2, "a broker expires by an age above 0"),
    (("a/b/t", *_SUB, "-t", "+1h", "--rule", "broker"), 2, "it knows no limit ahead of now"),
    (("a/b/t", *_SUB, "-t", "3h", "--rule", "broker", "--clock", "publish"), 2, "--rule broker goes by the broker's"),
    (("a/b/t", *_SUB, "-t", "3h", "--clock", "event"), 2, "clock 'event' is not indexed"),
    (("a/b/t", "-t", "3h"), 2, "Missing option '-s'"),
]


@pytest.mark.parametrize(
    ("arguments", "code", "message"), BAD, ids=lambda value: " ".join(value) if isinstance(value, tuple) else None
)
def test_bad_input(cli: Cli, made: Path, arguments: tuple[str, ...], code: int, message: str) -> None:
    with assert_unchanged(made / "meta" / "data.mdb"):
        result = cli("--store", made, "topics", "expire", *arguments, "-o", "json")
    assert (result.exit_code, result.stdout) == (code, "")
    assert message in result.error["message"]


def test_all_subscriptions_of_nobody(cli: Cli, tmp_path: Path) -> None:
    path = make_store(
        tmp_path / "made",
        {"a/b/t": MadeTopic([[Made(CREATED_MS)]], cursors={"__compaction": CursorInfo(-1, Position(10, -1))})},
    )
    result = cli("--store", path, "topics", "expire-all-subscriptions", "a/b/t", "-t", "1h", "-o", "json")
    assert (result.exit_code, result.error["code"]) == (5, "subscription-not-found")


# -- as recorded ------------------------------------------------------------------------------------------------------
