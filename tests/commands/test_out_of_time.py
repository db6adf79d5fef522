"""Resets and expiries by time that would meet nothing, or everything, are refused; ``--force`` does them. Values by hand."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from pulsar_admin.store.codec.cursor import CursorInfo
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.model.copy_age import AsOf, put_as_of, put_refreshed
from pulsar_admin.store.names import Position
from tests.conftest import Cli
from tests.plans.test_expiry import put_json
from tests.stores import copied
from tests.synthetic import CREATED_MS, Made, MadeTopic, make_store
from tests.worlds import assert_unchanged

T = CREATED_MS  # 2023-11-14T22:13:20Z
HOUR = 3_600_000
STEADY = "public/default/steady"


@pytest.fixture
def made(tmp_path: Path) -> Path:
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


def test_a_reset_past_the_newest_entry(cli: Cli, made: Path) -> None:
    ask = ("reset-cursor", "a/b/t", "-s", "sub", "-t", f"@{T + 3 * HOUR}")
    error = refused(cli, made, *ask, "--now", f"@{T + 30 * HOUR}")
    assert error["message"] == (
        "persistent://a/b/t: nothing is at or after 2023-11-15T01:13:20.000Z: sub would move to the end and skip 5 messages; "
        "the newest entry, 11:0 of 2023-11-15T00:13:20.000Z, is 1d4h old"
    )
    assert error["hint"] == "--force moves to the end anyway"
    context = error["context"]
    assert (context["newestPosition"], context["newestTime"]) == ("11:0", T + 2 * HOUR)
    assert (context["skips"]["entries"], context["skips"]["messages"]) == (3, 5)
    done = cli("--store", made, "topics", *ask, "--force", "-o", "json").json
    assert (done["after"]["markDeletePosition"], done["skipped"]["messages"]) == ("11:0", 5)


def test_the_time_of_the_newest_entry_is_met(cli: Cli, made: Path) -> None:
    ask = ("reset-cursor", "a/b/t", "-s", "sub", "-t", f"@{T + 2 * HOUR}", "-o", "json")
    assert cli("--store", made, "topics", *ask).json["after"]["markDeletePosition"] == "10:1"


def test_an_age_on_an_old_copy(cli: Cli, made: Path) -> None:
    """Two hours before the newest entry is what was meant: the hint can be typed, and then does it."""
    error = refused(cli, made, "reset-cursor", "a/b/t", "-s", "sub", "-t", "1h")
    hint = "to count back from the newest entry: --now 2023-11-15T00:13:20.000Z; --force moves to the end anyway"
    assert error["hint"] == hint
    as_of = ("--now", "2023-11-15T00:13:20.000Z")
    done = cli("--store", made, "topics", "reset-cursor", "a/b/t", "-s", "sub", "-t", "1h", *as_of, "-o", "json")
    assert done.json["after"]["markDeletePosition"] == "10:0"
    assert done.stderr == ""  # whoever says what now is knows it


def test_a_cursor_at_the_end_is_refused_too(cli: Cli, made: Path) -> None:
    error = refused(cli, made, "reset-cursor", "a/b/t", "-s", "done", "-t", f"@{T + 3 * HOUR}", "--now", f"@{T}")
    assert "skip" not in error["message"]
    assert error["message"].endswith("the newest entry, 11:0 of 2023-11-15T00:13:20.000Z, is dated 2h ahead of now")


def test_a_partition_that_would_skip_is_named(cli: Cli, made: Path) -> None:
    error = refused(cli, made, "reset-cursor", "a/b/p", "-s", "sub", "-t", f"@{T + HOUR}")
    assert error["context"]["topic"] == "persistent://a/b/p-partition-1"
    assert cli("--store", made, "topics", "skip", "a/b/p-partition-1", "-s", "sub", "-n", "1").exit_code == 0
    # With nothing left to skip, partitions without a match hold nobody back.
    done = cli("--store", made, "topics", "reset-cursor", "a/b/p", "-s", "sub", "-t", f"@{T + HOUR}", "-o", "jsonl")
    assert [row["after"]["markDeletePosition"] for row in done.json_lines] == ["12:0", "13:0", "14:-1"]
    error = refused(cli, made, "reset-cursor", "a/b/p", "-s", "sub", "-t", f"@{T + 6 * HOUR}")
    assert error["context"]["topic"] == "persistent://a/b/p-partition-0"


def test_a_row_of_a_file_is_named(cli: Cli, made: Path, tmp_path: Path) -> None:
    rows = [{"topic": "a/b/p-partition-1", "subscription": "sub", "time": T}]
    rows += [{"topic": "a/b/t", "subscription": "sub", "time": "1h"}]
    (tmp_path / "rows").write_text("\n".join(map(json.dumps, rows)))
    error = refused(cli, made, "reset-cursor", "--from-file", str(tmp_path / "rows"))
    assert error["message"].startswith("persistent://a/b/t: nothing is at or after")
    assert "--now 2023-11-15T00:13:20.000Z" in error["hint"]


# -- expiries ---------------------------------------------------------------------------------------------------------


def test_an_expiry_before_the_oldest_entry(cli: Cli, made: Path) -> None:
    ask = ("expire", "a/b/t", "-s", "sub", "-t", f"@{T}")
    error = refused(cli, made, *ask, "--now", f"@{T + 30 * HOUR}")
    assert error["message"] == (
        "persistent://a/b/t: sub has nothing to expire before 2023-11-14T22:13:20.000Z; "
        "its next entry, 10:0 of 2023-11-14T22:13:20.000Z, is 1d6h old"
    )
    assert "--force" in error["hint"]
    assert cli("--store", made, "topics", *ask, "--force", "-o", "json").json["change"] is None


def test_a_subscription_without_a_backlog_has_nothing_to_lose(cli: Cli, made: Path) -> None:
    result = cli("--store", made, "topics", "expire", "a/b/t", "-s", "done", "-t", f"@{T}", "-o", "json")
    assert (result.exit_code, result.json["change"]) == (0, None)


def test_of_several_one_that_expires_is_enough(cli: Cli, made: Path) -> None:
    ask = ("expire-all-subscriptions", "a/b/p", "-t")
    error = refused(cli, made, *ask, f"@{T}")
    assert error["message"].endswith(" (also for sub of persistent://a/b/p-partition-1)")
    done = cli("--store", made, "topics", *ask, f"@{T + 1}", "-o", "jsonl").json_lines
    assert [row["entries"] for row in done] == [1, 1, 0]


def test_an_age_that_begins_after_the_copy_ends(cli: Cli, made: Path) -> None:
    """Everything in a copy of 2023 is older than two hours: that says nothing of what a broker had since."""
    error = refused(cli, made, "expire", "a/b/t", "-s", "sub", "-t", "2h")
    assert "everything in it is older than the limit" in error["message"]
    assert error["message"].endswith("and sub of persistent://a/b/t would lose 5 messages, the whole backlog")
    assert (
        error["hint"]
        == "to count back from the newest entry: --now 2023-11-15T00:13:20.000Z; --force drops the whole backlog"
    )
    as_of = cli(
        "--store", made, "topics", "expire", "a/b/t", "-s", "sub", "-t", "1h", "--now", f"@{T + 2 * HOUR}", "-o", "json"
    )
    assert as_of.json["after"]["markDeletePosition"] == "10:0"
    forced = cli("--store", made, "topics", "expire", "a/b/t", "-s", "sub", "-t", "2h", "--force", "-o", "json")
    assert forced.json["after"]["markDeletePosition"] == "11:0"


def test_an_age_within_a_fresh_copy_expires(cli: Cli, tmp_path: Path) -> None:
    """A copy that was read a moment ago knows that nothing came in the last two hours only where it tells of that moment itself."""
    path = copied("small", "clean", tmp_path)
    ask = ("--store", path, "topics", "expire", STEADY, "-s", "expire-me", "-t", "2h", "-o", "json")
    now_ms = time.time_ns() // 1_000_000
    with open_store(path, writable=True) as store:
        store.write(lambda txn: put_refreshed(txn, now_ms))
    assert cli(*ask).exit_code == 5
    with open_store(path, writable=True) as store:
        store.write(lambda txn: put_as_of(txn, AsOf(now_ms, "files")))
    left = cli(*ask)
    assert (left.exit_code, left.json["after"]["backlogEntries"]) == (0, 0), left.stderr


def test_a_ttl_is_the_brokers_rule_and_never_refused(cli: Cli, made: Path) -> None:
    put_json(made, "/admin/policies/a/b", {"message_ttl_in_seconds": 2**30})
    done = cli("--store", made, "topics", "expire", "a/b/t", "-s", "sub", "--ttl", "-o", "json")
    assert (done.exit_code, done.json["change"]) == (0, None)


# -- which now, and how old -------------------------------------------------------------------------------------------


def test_an_age_says_which_now_it_counts_from(cli: Cli, tmp_path: Path) -> None:
    path = copied("small", "clean", tmp_path)
    result = cli("--store", path, "topics", "reset-cursor", STEADY, "-s", "reset-me", "-t", "10000d", "--dry-run")
    note = result.stderr.splitlines()[0]
    assert note.startswith("note: 10000d is counted back from now (20")
    assert "), but this copy ends 2026-11-21T09:24:17.132Z, " in note
    ask = ("--store", path, "topics", "find-by-time", STEADY, "-d", "-10000d")
    assert cli(*ask).stderr.count("is counted back from the time of this copy, 2026-11-21T09:24:17.132Z") == 1
    assert cli(*ask, "--quiet").stderr == ""


# -- Python -----------------------------------------------------------------------------------------------------------


# -- as recorded ------------------------------------------------------------------------------------------------------
