"""The time that a store is a copy of: what tells it, what does not, and that answers count from it and changes ask."""

import io
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.model.copy_age import AsOf, find_as_of
from pulsar_admin.store.transfer import imports
from tests.conftest import Cli
from tests.deep import deep_but_for
from tests.reading_zookeeper import last_time_of
from tests.stores import imported, read_rows, write_rows
from tests.worlds import scratch_copy, world

HOUR = 3_600_000
STEADY = "public/default/steady"
SMALL_MS = 1_795_253_057_132
"""The newest modification of a node of the world small, clean: 2026-11-21T09:24:17.132Z."""


def as_of(store: Path) -> AsOf | None:
    return read_rows(store, find_as_of)


def bring(cli: Cli, source: Path, store: Path) -> AsOf | None:
    assert cli("--store", store, "store", "import", "standalone", source, "--quiet").exit_code == 0
    return as_of(store)


def stamp(source: Path, old_ms: int, new_ms: int) -> None:
    """Give every file of a bookie the time ``old_ms``, and its journals ``new_ms``."""
    for file in (source / "bookkeeper").rglob("*"):
        moment_ns = (new_ms if file.suffix == ".txn" else old_ms) * 1_000_000
        os.utime(file, ns=(moment_ns, moment_ns))


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return scratch_copy("small", "clean", tmp_path)


# -- what tells it ----------------------------------------------------------------------------------------------------


@deep_but_for((1,), "state", ["mutated", "crashed"])
def test_zookeepers_last_transaction_tells_it(cli: Cli, state: str, tmp_path: Path) -> None:
    disks = tmp_path / "disks"
    shutil.copytree(world("cluster") / state, disks, copy_function=shutil.copyfile)
    bookies = [word for number in range(3) for word in ("--bookie", disks / f"bookkeeper{number}" / "current")]
    parts = ("--zookeeper", disks / "zookeeper", *bookies)
    assert cli("--store", tmp_path / "s", "store", "import", "cluster", *parts, "--quiet").exit_code in (0, 1)
    last = last_time_of(world("cluster") / state / "zookeeper" / "version-2")
    found = as_of(tmp_path / "s")
    assert found is not None
    if state == "crashed":  # a broker dated one more entry
        assert (found.source, last < found.time_ms < last + 1000) == ("broker", True)
    else:
        assert found == AsOf(last, "zookeeper")


def test_journals_tell_it_where_files_have_times_of_their_own(cli: Cli, small: Path, tmp_path: Path) -> None:
    stamp(small, SMALL_MS - 2 * HOUR, SMALL_MS + HOUR)
    assert bring(cli, small, tmp_path / "s") == AsOf(SMALL_MS + HOUR, "files")


def test_a_file_of_the_future_does_not(cli: Cli, small: Path, tmp_path: Path) -> None:
    stamp(small, SMALL_MS - HOUR, (time.time_ns() // 1_000_000) + 48 * HOUR)
    assert bring(cli, small, tmp_path / "s") == AsOf(SMALL_MS, "metadata")


def test_what_is_gone_when_it_is_looked_at_says_nothing(
    cli: Cli, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bookie may delete files between the listing and the look at each; a link to itself is never there."""
    current = small / "bookkeeper" / "current"
    expected = bring(cli, small, tmp_path / "s")
    (current / "7.log.tmp").symlink_to("7.log.tmp")
    listed = os.walk

    def walk(directory: Path) -> object:
        yield from ((folder, folders, [*names, "gone.txn"]) for folder, folders, names in listed(directory))

    monkeypatch.setattr(imports.os, "walk", walk)
    assert bring(cli, small, tmp_path / "t") == expected


def holding_lock(source: Path) -> str:
    """Hold the lock of the metadata as RocksDB does."""
    return f"import fcntl; file = open({str(source / 'metadata' / 'LOCK')!r}, 'r+'); fcntl.lockf(file, fcntl.LOCK_EX)"


def writing_journal(source: Path) -> str:
    """Have a journal open for writing."""
    (journal, *_) = sorted((source / "bookkeeper").rglob("*.txn"))
    return f"file = open({str(journal)!r}, 'ab')"


def reading_journal(source: Path) -> str:
    """Have a journal open for reading: that changes nothing."""
    return writing_journal(source).replace("'ab'", "'rb'")


@pytest.mark.parametrize(
    ("opened", "source"), [(holding_lock, "live"), (writing_journal, "live"), (reading_journal, "metadata")]
)
def test_a_disk_in_use_is_as_of_its_import(opened: object, source: str, cli: Cli, small: Path, tmp_path: Path) -> None:
    code = f"{opened(small)}; print(flush=True); input()"  # type: ignore[operator]
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        before_ms = time.time_ns() // 1_000_000
        found = bring(cli, small, tmp_path / "s")
        child.communicate(b"\n")
    assert found.source == source
    assert (found.time_ms >= before_ms) is (source == "live")


# -- what does not ----------------------------------------------------------------------------------------------------


def test_our_own_writes_do_not_move_it(cli: Cli, small: Path, tmp_path: Path) -> None:
    store = tmp_path / "s"
    bring(cli, small, store)
    before = cli("--store", store, "overview", "--no-check", "-o", "json").json
    set_policy = ("topicPolicies", "set-retention", "public/default/plain", "-t", "1h", "-s", "1M")
    assert cli("--store", store, *set_policy).exit_code == 0
    after = cli("--store", store, "overview", "--no-check", "-o", "json").json
    assert before["newestEntryTime"] == after["newestEntryTime"] < SMALL_MS
    assert (after["asOf"], after["asOfSource"]) == (SMALL_MS, "metadata")
    cli.done("--store", store, "store", "export", "standalone", small, "--in-place", "--yes", "--quiet")
    assert cli("--store", store, "store", "refresh", "--quiet").exit_code == 0
    assert as_of(store) == AsOf(SMALL_MS, "metadata")


# -- who counts from it -----------------------------------------------------------------------------------------------


def test_a_relative_time_of_a_question_counts_from_it(cli: Cli) -> None:
    store = imported("small", "clean")
    ask = ("--store", store, "topics", "find-by-time", STEADY, "-o", "json", "--time")
    found = cli(*ask, "-30m")
    assert found.json == cli(*ask, f"@{SMALL_MS - HOUR // 2}").json
    assert found.json["time"] == SMALL_MS - HOUR // 2
    assert found.stderr.count("is counted back from the time of this copy, 2026-11-21T09:24:17.132Z") == 1
    assert cli(*ask, "-30m", "--now", "now").exit_code == 5
    now = cli("--store", store, "topics", "find-by-time", STEADY, "-d", "now")
    now.ends(5, "now is the time of this copy", "no entry is at or after 2026-11-21T09:24:17.132Z on the auto clock")


# -- changes ask ------------------------------------------------------------------------------------------------------


def test_the_printed_line_names_a_file_from_anywhere(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path in it is absolute, and stdin is stdin."""
    rows = json.dumps({"topic": STEADY, "subscription": "reset-me", "time": "63s"})
    (tmp_path / "rows.jsonl").write_text(rows)
    monkeypatch.chdir(tmp_path)
    for given, named in (("rows.jsonl", str(tmp_path / "rows.jsonl")), ("-", "-")):
        monkeypatch.setattr("sys.stdin", io.StringIO(rows))
        words = ("topics", "reset-cursor", "--from-file", given, "-o", "json")
        lines = cli("--store", imported("small", "clean"), *words).error["context"]["commands"]
        assert [shlex.split(line)[3:5] for line in lines] == [["--from-file", named]] * 2


def test_a_ttl_counts_from_now_too(cli: Cli, store: Path) -> None:
    assert cli("--store", store, "namespaces", "set-message-ttl", "public/default", "-ttl", "3600").exit_code == 0
    ask = ("--store", store, "topics", "expire", STEADY, "-s", "expire-me", "--ttl")
    refused = cli(*ask)
    assert (refused.exit_code, refused.stderr.count("  $ pulsar-admin")) == (5, 2)
    assert cli(*ask, "--now", f"@{SMALL_MS}", "-o", "json").json["entries"] == 0
    assert cli(*ask, "--now", "now", "-o", "json").json["entries"] == 240


def test_an_import_a_moment_ago_from_a_disk_in_use_is_not_asked_about(cli: Cli, store: Path) -> None:
    with open_store(store, writable=True) as opened:
        moment = time.time_ns() // 1_000_000 - 60_000
        opened.write(lambda txn: txn.put("state", b"as-of", f"{moment} live".encode()))
    done = cli("--store", store, "topics", "expire", STEADY, "-s", "expire-me", "-t", "2h", "-o", "json")
    assert (done.exit_code, done.json["after"]["backlogEntries"]) == (0, 0), done.stderr


def test_an_older_stores_refresh_finds_it(cli: Cli, small: Path, tmp_path: Path) -> None:
    store = tmp_path / "s"
    bring(cli, small, store)
    write_rows(store, lambda txn: txn.delete("state", b"as-of"))
    said = cli("--store", store, "overview", "--no-check").stdout.splitlines()[0]
    assert said.endswith(", by the clock: the time of this copy is unknown")
    assert cli("--store", store, "store", "refresh", "--quiet").exit_code == 0
    assert as_of(store) == AsOf(SMALL_MS, "metadata")
