"""Plan files of commands that write ledgers before the change: applied by asking again, where nothing has changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Cli
from tests.worlds import assert_unchanged

PLAIN = "public/default/plain"
NOW = ("--now", "2026-11-22T12:00:00Z")
TTL = ("topics", "set-message-ttl", PLAIN, "-t", "3d")
COMPACT = ("compaction", "run", "acme/orders/compacted-single", "--retain-null-key", "--format", "legacy")


@pytest.fixture
def store(demo_copy: Path) -> Path:
    return demo_copy / "pulsar-store"


@pytest.fixture
def dump(cli: Cli, store: Path, tmp_path: Path) -> Path:
    options = ("--level", "entries", "--directory", tmp_path / "dumped")
    assert cli("--store", store, "topics", "dump", "public/default/batched", *options).exit_code == 0
    return tmp_path / "dumped"


def without(document: Any) -> Any:  # Any: JSON
    """Return a report without what tells a dry run from a change, and without the ledger ids that only a change knows."""
    kept = {key: value for key, value in document.items() if key not in ("change", "dryRun", "undo", "position")}
    for key in ("entries", "messages", "bytes") if "events" in kept else ():
        kept.pop(key, None)
    kept["after"] = {
        key: value for key, value in kept["after"].items() if key not in ("compactedLedger", "lastConfirmedEntry")
    }
    return kept


@pytest.mark.parametrize("kind", ["policy", "compaction", "load"])
def test_a_plan_does_what_it_shows(kind: str, cli: Cli, store: Path, dump: Path, tmp_path: Path) -> None:
    words = {"policy": TTL, "compaction": COMPACT, "load": ("topics", "load", dump, "--topic", "public/default/copy")}
    plan = tmp_path / "a.plan"
    base = ("--store", store, *NOW)
    with assert_unchanged(store / "meta" / "data.mdb"):
        shown = cli(*base, *words[kind], "--plan", plan, "-o", "json").json
        assert cli(*base, "apply", plan, "--dry-run", "-o", "json").json == shown
    assert cli(*base, "apply", plan, "--dry-run").stdout.startswith("dry run, nothing was written: ")
    done = cli(*base, "apply", plan, "-o", "json").json
    assert (done["change"], done["dryRun"]) == (1, False)
    assert without(done) == without(shown)
    again = cli(*base, "apply", plan, "-o", "json")
    assert again.error["code"] == "stale-plan"


def test_text_says_where_the_plan_is(cli: Cli, store: Path, tmp_path: Path) -> None:
    text = cli("--store", store, *TTL, "--plan", tmp_path / "a.plan").stdout
    assert text.startswith(f"plan written to {tmp_path / 'a.plan'}, nothing was changed: set message TTL of ")


def test_only_own_words_are_kept(cli: Cli, store: Path, tmp_path: Path) -> None:
    options = ("--interceptors", "timestamp,index", "-o", "json", "--plan", tmp_path / "a.plan")
    assert cli("--store", store, *TTL, *options).exit_code == 0
    fields = json.loads((tmp_path / "a.plan").read_text())
    assert fields["words"] == ["-t", "3d", "--", PLAIN]
    assert ["Timestamp" in name for name in fields["interceptors"]] == [True, False]


def test_a_plan_with_other_reports_is_refused(cli: Cli, store: Path, tmp_path: Path) -> None:
    """What the file shows is what somebody agreed to."""
    plan = tmp_path / "a.plan"
    assert cli("--store", store, *TTL, "--plan", plan).exit_code == 0
    fields = json.loads(plan.read_text())
    fields["words"][1] = "4d"
    plan.write_text(json.dumps(fields))
    with assert_unchanged(store / "meta" / "data.mdb"):
        result = cli("--store", store, "apply", plan, "-o", "json")
    assert result.error["code"] == "stale-plan"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("words", ["--store", "elsewhere", "-t", "3d", "--", PLAIN]),
        ("words", "-t 3d"),
        ("command", "topics skip"),
        ("command", "topics nothing"),
        ("interceptors", [3]),
        ("reports", None),
    ],
)
def test_a_file_no_command_wrote_is_refused(name: str, value: object, cli: Cli, store: Path, tmp_path: Path) -> None:
    plan = tmp_path / "a.plan"
    assert cli("--store", store, *TTL, "--plan", plan).exit_code == 0
    plan.write_text(json.dumps({**json.loads(plan.read_text()), name: value}))
    with assert_unchanged(store / "meta" / "data.mdb"):
        result = cli("--store", store, "apply", plan, "-o", "json")
    assert result.exit_code == 2
    assert result.error["code"] == "invalid-value"


def test_stdin_is_no_dump_of_a_plan(cli: Cli, store: Path, tmp_path: Path) -> None:
    result = cli("--store", store, "topics", "load", "-", "--plan", tmp_path / "a.plan", "-o", "json")
    assert result.error["message"].startswith("--plan: what stdin held is gone")
    assert not (tmp_path / "a.plan").exists()
