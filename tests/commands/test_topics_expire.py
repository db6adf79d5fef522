"""``topics expire`` and ``topics expire-all-subscriptions`` on recorded and on made-up topics."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from pulsar_admin.store.codec.cursor import CursorInfo
from pulsar_admin.store.model.copy_age import AsOf, put_as_of, put_refreshed
from pulsar_admin.store.names import Position
from tests.conftest import Cli
from tests.plans.test_expiry import put_json
from tests.stores import write_rows
from tests.synthetic import CREATED_MS, Made, MadeTopic, make_store
from tests.worlds import assert_unchanged

STEADY = "public/default/steady"


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


# -- the TTL in force -------------------------------------------------------------------------------------------------


def test_a_topic_without_ttl_stays(cli: Cli, made: Path) -> None:
    put_json(made, "/admin/topic-policies/local/a/b/persistent/t", {"messageTTLInSeconds": 150})
    ask = f"--store {made} --now @{CREATED_MS} topics expire a/b/t a/b/p -s sub --ttl -o jsonl".split()
    rows = cli(*ask).json_lines
    assert [(row["entries"], row.get("warnings")) for row in rows] == [(2, None), *[(0, ["no TTL applies"])] * 2]


def test_policies_that_cannot_be_read_stop_it(cli: Cli, tmp_path: Path) -> None:
    cursors = {"sub": CursorInfo(-1, Position(10, -1))}
    one = [[Made(CREATED_MS)]]
    topics = {"a/b/t": MadeTopic(one, cursors=cursors), "a/b/__change_events": MadeTopic(one)}
    path = make_store(tmp_path / "made", topics)
    put_json(path, "/admin/policies/a/b", {"message_ttl_in_seconds": 1})
    result = cli.on(path, "topics expire a/b/t -s sub --ttl --dry-run -o json")
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


def test_a_forecast_passes_over_topics_without_a_ttl(cli: Cli, tmp_path: Path) -> None:
    cursors = {"sub": CursorInfo(-1, Position(10, -1))}
    names = ("a/a/t", "a/b/t", "a/c/t")
    path = make_store(tmp_path / "s", {name: MadeTopic([[Made(CREATED_MS)]], cursors=cursors) for name in names})
    put_json(path, "/admin/policies/a/b", {"message_ttl_in_seconds": 250})
    ask = ("--store", path, "--now", f"@{CREATED_MS}", "topics", "expire", "--all-topics", "-s", "sub")
    rows = cli(*ask, "--forecast", "4m", "-o", "jsonl").json_lines
    assert {row["topic"] for row in rows} == {"persistent://a/b/t"}


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
    (("a/b/t", *_SUB, "-t", "3h", "-e"), 2, "only a position can be excluded"),
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


def test_all_subscriptions_of_a_topic_without_entries(cli: Cli, tmp_path: Path) -> None:
    cursors = dict.fromkeys(("sub", "two"), CursorInfo(-1, Position(10, -1)))
    path = make_store(tmp_path / "made", {"a/b/empty": MadeTopic([[]], cursors=cursors)})
    result = cli.on(path, "topics expire-all-subscriptions a/b/empty -t 1h --dry-run -o json")
    assert (result.exit_code, "has no entries" in result.error["message"]) == (5, True)


def test_the_log_has_the_command_that_was_given(cli: Cli, tmp_path: Path) -> None:
    cursors = dict.fromkeys(("sub", "two"), CursorInfo(-1, Position(10, -1)))
    path = make_store(tmp_path / "made", {"a/b/t": MadeTopic([[Made(CREATED_MS)] * 3, []], cursors=cursors)})
    cli.on(path, "topics expire a/b/t -s sub -p 10:0")
    cli.on(path, "topics expire-all-subscriptions a/b/t -t 1h --force")
    commands = [row["command"] for row in cli.rows(path, "store log")]
    assert commands == ["topics expire", "topics expire-all-subscriptions"]


def test_all_subscriptions_of_nobody(cli: Cli, tmp_path: Path) -> None:
    path = make_store(
        tmp_path / "made",
        {"a/b/t": MadeTopic([[Made(CREATED_MS)]], cursors={"__compaction": CursorInfo(-1, Position(10, -1))})},
    )
    cli.on(path, "topics expire-all-subscriptions a/b/t -t 1h -o json").fails(5, "subscription-not-found")


# -- as recorded ------------------------------------------------------------------------------------------------------

# -- resets and expiries by time that would meet nothing, or everything ---------------------------------------------

T = CREATED_MS  # 2023-11-14T22:13:20Z
HOUR = 3_600_000


@pytest.fixture
def dated(tmp_path: Path) -> Path:
    """a/b/t: ledger 10, 0 h and a batch of 3 at 1 h, ledger 11, 2 h; a/b/p: partition 0 of 0 and 5 h, 1 of 0 h, 2 empty."""
    start = CursorInfo(-1, Position(10, -1))
    topics = {
        "a/b/t": MadeTopic(
            [[Made(T), Made(T + HOUR, batch=3)], [Made(T + 2 * HOUR)]],
            cursors={"sub": start, "done": CursorInfo(-1, Position(11, 0))},
        ),
        "a/b/p-partition-0": MadeTopic(
            [[Made(T), Made(T + 5 * HOUR)]], cursors={"sub": CursorInfo(-1, Position(12, -1))}
        ),
        "a/b/p-partition-1": MadeTopic([[Made(T)]], cursors={"sub": CursorInfo(-1, Position(13, -1))}),
        "a/b/p-partition-2": MadeTopic([[]], cursors={"sub": CursorInfo(-1, Position(14, -1))}),
    }
    path = make_store(tmp_path / "made", topics)
    put_json(path, "/admin/partitioned-topics/a/b/persistent/p", {"partitions": 3, "deleted": False})
    return path


def refused(cli: Cli, store: Path, *arguments: str) -> dict[str, Any]:
    """The error of a command that changes nothing, dry run or not."""
    errors = []
    for more in ((), ("--dry-run",)):
        with assert_unchanged(store / "meta" / "data.mdb"):
            result = cli("--store", store, "topics", *arguments, *more, "-o", "json")
        assert (result.exit_code, result.stdout) == (5, ""), result.stderr
        errors.append(result.error)
    assert errors[0]["code"] == "nothing-matches"
    return errors[1]


# -- resets -----------------------------------------------------------------------------------------------------------


def test_a_reset_past_the_newest_entry(cli: Cli, dated: Path) -> None:
    ask = ("reset-cursor", "a/b/t", "-s", "sub", "-t", f"@{T + 3 * HOUR}")
    error = refused(cli, dated, *ask, "--now", f"@{T + 30 * HOUR}")
    assert error["message"] == (
        "persistent://a/b/t: nothing is at or after 2023-11-15T01:13:20.000Z: sub would move to the end and skip 5 messages; "
        "the newest entry, 11:0 of 2023-11-15T00:13:20.000Z, is 1d4h old"
    )
    assert error["hint"] == "--force moves to the end anyway"
    context = error["context"]
    assert (context["newestPosition"], context["newestTime"]) == ("11:0", T + 2 * HOUR)
    assert (context["skips"]["entries"], context["skips"]["messages"]) == (3, 5)
    done = cli("--store", dated, "topics", *ask, "--force", "-o", "json").json
    assert (done["after"]["markDeletePosition"], done["skipped"]["messages"]) == ("11:0", 5)


def test_a_partition_that_would_skip_is_named(cli: Cli, dated: Path) -> None:
    error = refused(cli, dated, "reset-cursor", "a/b/p", "-s", "sub", "-t", f"@{T + HOUR}")
    assert error["context"]["topic"] == "persistent://a/b/p-partition-1"
    assert cli.on(dated, "topics skip a/b/p-partition-1 -s sub -n 1").exit_code == 0
    # With nothing left to skip, partitions without a match hold nobody back.
    done = cli.on(dated, f"topics reset-cursor a/b/p -s sub -t @{T + HOUR} -o jsonl")
    assert [row["after"]["markDeletePosition"] for row in done.json_lines] == ["12:0", "13:0", "14:-1"]
    error = refused(cli, dated, "reset-cursor", "a/b/p", "-s", "sub", "-t", f"@{T + 6 * HOUR}")
    assert error["context"]["topic"] == "persistent://a/b/p-partition-0"


def test_a_row_of_a_file_is_named(cli: Cli, dated: Path, tmp_path: Path) -> None:
    rows = [{"topic": "a/b/p-partition-1", "subscription": "sub", "time": T}]
    rows += [{"topic": "a/b/t", "subscription": "sub", "time": "1h"}]
    (tmp_path / "rows").write_text("\n".join(map(json.dumps, rows)))
    error = refused(cli, dated, "reset-cursor", "--from-file", str(tmp_path / "rows"))
    assert error["message"].startswith("persistent://a/b/t: nothing is at or after")
    assert "--now 2023-11-15T00:13:20.000Z" in error["hint"]


# -- expiries ---------------------------------------------------------------------------------------------------------


def test_a_subscription_without_a_backlog_has_nothing_to_lose(cli: Cli, dated: Path) -> None:
    result = cli.on(dated, f"topics expire a/b/t -s done -t @{T} -o json")
    assert (result.exit_code, result.json["change"]) == (0, None)


def test_of_several_one_that_expires_is_enough(cli: Cli, dated: Path) -> None:
    ask = ("expire-all-subscriptions", "a/b/p", "-t")
    error = refused(cli, dated, *ask, f"@{T}")
    assert error["message"].endswith(" (also for sub of persistent://a/b/p-partition-1)")
    done = cli("--store", dated, "topics", *ask, f"@{T + 1}", "-o", "jsonl").json_lines
    assert [row["entries"] for row in done] == [1, 1, 0]


def test_an_age_that_begins_after_the_copy_ends(cli: Cli, dated: Path) -> None:
    """Everything in a copy of 2023 is older than two hours: that says nothing of what a broker had since."""
    error = refused(cli, dated, "expire", "a/b/t", "-s", "sub", "-t", "2h")
    assert "everything in it is older than the limit" in error["message"]
    assert error["message"].endswith("and sub of persistent://a/b/t would lose 5 messages, the whole backlog")
    assert error["hint"].endswith("the newest entry: --now 2023-11-15T00:13:20.000Z; --force drops the whole backlog")
    as_of = cli.on(dated, f"topics expire a/b/t -s sub -t 1h --now @{T + 2 * HOUR} -o json")
    assert as_of.json["after"]["markDeletePosition"] == "10:0"
    forced = cli.on(dated, "topics expire a/b/t -s sub -t 2h --force -o json")
    assert forced.json["after"]["markDeletePosition"] == "11:0"


def test_an_age_within_a_fresh_copy_expires(cli: Cli, store: Path) -> None:
    """A copy that was read a moment ago knows that nothing came in the last two hours only where it tells of that moment itself."""
    ask = ("--store", store, "topics", "expire", STEADY, "-s", "expire-me", "-t", "2h", "-o", "json")
    now_ms = time.time_ns() // 1_000_000
    write_rows(store, lambda txn: put_refreshed(txn, now_ms))
    assert cli(*ask).exit_code == 5
    write_rows(store, lambda txn: put_as_of(txn, AsOf(now_ms, "files")))
    left = cli(*ask)
    assert (left.exit_code, left.json["after"]["backlogEntries"]) == (0, 0), left.stderr


# -- which now, and how old -------------------------------------------------------------------------------------------


# -- Python -----------------------------------------------------------------------------------------------------------


# -- as recorded ------------------------------------------------------------------------------------------------------
