"""Plan files of commands that write ledgers before the change: applied by asking again, where nothing has changed."""

from __future__ import annotations

import json
import shutil
from base64 import b64decode, b64encode
from hashlib import sha1
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


@pytest.mark.parametrize("word", ["--help", "--version"])
def test_words_that_end_a_command_are_no_plan(word: str, cli: Cli, store: Path, tmp_path: Path) -> None:
    """Else a plan that did nothing would end as one that was applied."""
    plan = tmp_path / "a.plan"
    assert cli("--store", store, *TTL, "--plan", plan).exit_code == 0
    plan.write_text(json.dumps({**json.loads(plan.read_text()), "words": [word]}))
    result = cli("--store", store, "apply", plan, "-o", "json")
    assert (result.exit_code, result.error["code"]) == (2, "invalid-value")


def test_a_command_with_words_behind_it_is_no_command(cli: Cli, store: Path, tmp_path: Path) -> None:
    """The audit log names it."""
    plan = tmp_path / "a.plan"
    skip = ("topics", "skip", PLAIN, "-s", "half", "-n", "1")
    assert cli("--store", store, *skip, "--plan", plan).exit_code == 0
    plan.write_text(json.dumps({**json.loads(plan.read_text()), "command": "topics skip as agreed"}))
    assert cli("--store", store, "apply", plan).exit_code == 2
    undone, popped = tmp_path / "undo.plan", tmp_path / "pop.plan"
    assert cli("--store", store, *skip).exit_code == 0
    assert cli("--store", store, "store", "undo", "1", "--plan", undone).exit_code == 0
    assert cli("--store", store, "apply", undone).exit_code == 0
    nack = ("nacks", "add", PLAIN, "-s", "half", "32:1", "--delay", "1s")
    assert cli("--store", store, "--now", "2026-11-21T10:00:00Z", *nack).exit_code == 0
    assert cli("--store", store, *NOW, "nacks", "due", "--pop", "--plan", popped).exit_code == 0
    assert cli("--store", store, *NOW, "apply", popped).exit_code == 0


def test_a_plan_of_another_store_is_refused(cli: Cli, store: Path, tmp_path: Path) -> None:
    """Every fresh import has as many transactions, and so have two copies that were changed in different ways."""
    other, plan = tmp_path / "other", tmp_path / "a.plan"
    shutil.copytree(store, other)
    assert cli("--store", store, *TTL, "--plan", plan).exit_code == 0
    assert cli("--store", other, "apply", plan, "--dry-run").exit_code == 0
    info = json.loads((other / "store.json").read_text())
    (other / "store.json").write_text(json.dumps({**info, "created": info["created"] + 1}))
    assert cli("--store", other, "apply", plan, "-o", "json").error["code"] == "stale-plan"

    (other / "store.json").write_text(json.dumps(info))
    for copy, messages in ((store, "1"), (other, "2")):
        assert cli("--store", copy, "topics", "skip", PLAIN, "-s", "half", "-n", messages).exit_code == 0
    assert cli("--store", store, *TTL, "--plan", tmp_path / "b.plan").exit_code == 0
    result = cli("--store", other, "apply", tmp_path / "b.plan", "-o", "json")
    assert (result.exit_code, result.error["message"]) == (4, "the plan was made on another store")


def test_a_load_is_of_the_same_dump_in_every_directory(
    cli: Cli, store: Path, dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(dump.parent)
    load = ("topics", "load", dump.name, "--topic", "public/default/copy")
    assert cli("--store", store, *load, "--plan", tmp_path / "a.plan").exit_code == 0
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert cli("--store", store, "apply", tmp_path / "a.plan").exit_code == 0


def test_another_dump_by_the_same_name_is_not_loaded(cli: Cli, store: Path, tmp_path: Path) -> None:
    """It has as many entries and bytes: only the bytes tell."""
    text = cli("--store", store, "topics", "dump", "public/default/plain", "--level", "entries", "-o", "jsonl").stdout
    dump, plan = tmp_path / "dumped.jsonl", tmp_path / "a.plan"
    dump.write_text(text)
    load = ("topics", "load", dump, "--topic", "public/default/copy")
    assert cli("--store", store, *load, "--plan", plan).exit_code == 0
    first, rest = text.split("\n", 1)
    row = json.loads(first)
    payload = bytearray(b64decode(row["payload"]))
    payload[-1] ^= 1
    row |= {"payload": b64encode(payload).decode(), "sha1": sha1(payload).hexdigest()}
    dump.write_text(json.dumps(row) + "\n" + rest)
    assert cli("--store", store, *load, "--dry-run").exit_code == 0
    refused = cli("--store", store, "apply", plan)
    assert refused.exit_code == 4
    assert "what topics load reads has changed" in refused.stderr
    dump.write_text(text)
    assert cli("--store", store, "apply", plan).exit_code == 0
