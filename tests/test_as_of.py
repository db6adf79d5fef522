"""The time that a store is a copy of: what tells it, what does not, and that answers count from it and changes ask."""

import io
import json
import os
import shlex
import shutil
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

import pulsar_admin as pa
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.model.copy_age import AsOf, find_as_of
from pulsar_admin.store.transfer import imports
from tests.conftest import Cli
from tests.deep import deep_but_for
from tests.reading_zookeeper import last_time_of
from tests.stores import apply_values, copied, imported, read_rows, write_rows
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


def newest_node_ms(source: Path) -> int:
    """The newest modification of a node, read by RocksDB alone: the 41 bytes before a value have it at 32 (big-endian, ms)."""
    import rocksdict

    database = rocksdict.Rdict(str(source), rocksdict.Options(raw_mode=True))
    times = [struct.unpack_from(">q", value, 32)[0] for key, value in database.items() if key.startswith(b"/")]
    database.close()
    return max(times)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return scratch_copy("small", "clean", tmp_path)


def stamp(source: Path, old_ms: int, new_ms: int) -> None:
    """Give every file of a bookie the time ``old_ms``, and its journals ``new_ms``."""
    for file in (source / "bookkeeper").rglob("*"):
        moment_ns = (new_ms if file.suffix == ".txn" else old_ms) * 1_000_000
        os.utime(file, ns=(moment_ns, moment_ns))


# -- what tells it ----------------------------------------------------------------------------------------------------


def test_nodes_tell_it_where_files_have_the_time_of_their_copying(cli: Cli, small: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(small, copy, copy_function=shutil.copyfile)  # as cp -r: every file is of now
    shutil.copytree(small / "metadata", tmp_path / "nodes")
    assert bring(cli, copy, tmp_path / "s") == AsOf(newest_node_ms(tmp_path / "nodes"), "metadata")


def test_journals_tell_it_where_files_have_times_of_their_own(cli: Cli, small: Path, tmp_path: Path) -> None:
    stamp(small, SMALL_MS - 2 * HOUR, SMALL_MS + HOUR)
    assert bring(cli, small, tmp_path / "s") == AsOf(SMALL_MS + HOUR, "files")


def test_files_that_all_came_after_what_is_in_them_do_not(cli: Cli, small: Path, tmp_path: Path) -> None:
    stamp(small, SMALL_MS + HOUR, SMALL_MS + 2 * HOUR)
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


def test_a_file_of_the_future_does_not(cli: Cli, small: Path, tmp_path: Path) -> None:
    stamp(small, SMALL_MS - HOUR, (time.time_ns() // 1_000_000) + 48 * HOUR)
    assert bring(cli, small, tmp_path / "s") == AsOf(SMALL_MS, "metadata")


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


def test_a_moment_that_was_chosen_is_it(cli: Cli, tmp_path: Path) -> None:
    directory = world("cluster") / "mutated" / "zookeeper"
    until = last_time_of(directory / "version-2") - 5_000
    parts = ("--zookeeper", directory, "--at", f"@{until}")
    assert cli("--store", tmp_path / "s", "store", "import", "cluster", *parts, "--quiet").exit_code in (0, 1)
    found = as_of(tmp_path / "s")
    assert found.source == "zookeeper"
    assert until - 60_000 < found.time_ms <= until
    assert found.time_ms == last_time_of(directory / "version-2", until)


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


def test_a_refresh_takes_what_the_source_changed(cli: Cli, small: Path, tmp_path: Path) -> None:
    store = tmp_path / "s"
    bring(cli, small, store)
    assert cli("--store", store, "store", "refresh", "--quiet").exit_code == 0
    assert as_of(store) == AsOf(SMALL_MS, "metadata")
    key = b"/admin/policies/public/default"
    apply_values(small / "metadata", {key: changed_value(small, key, SMALL_MS + HOUR)})
    assert cli("--store", store, "store", "refresh", "--quiet").exit_code == 0
    assert as_of(store) == AsOf(SMALL_MS + HOUR, "metadata")


def changed_value(source: Path, key: bytes, modified_ms: int) -> bytes:
    """The value of a node as it would be had a broker written it again at that time."""
    from pulsar_admin.store.sources.rocksdb import open_for_reading

    with open_for_reading(source / "metadata") as pairs:
        value = dict(pairs)[key]
    return value[:32] + struct.pack(">q", modified_ms) + value[40:]


def test_an_older_stores_refresh_finds_it(cli: Cli, small: Path, tmp_path: Path) -> None:
    store = tmp_path / "s"
    bring(cli, small, store)
    write_rows(store, lambda txn: txn.delete("state", b"as-of"))
    said = cli("--store", store, "overview", "--no-check").stdout.splitlines()[0]
    assert said.endswith(", by the clock: the time of this copy is unknown")
    assert cli("--store", store, "store", "refresh", "--quiet").exit_code == 0
    assert as_of(store) == AsOf(SMALL_MS, "metadata")


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


def test_the_first_line_says_it(cli: Cli, tmp_path: Path) -> None:
    store = imported("small", "clean")
    days = (time.time_ns() // 1_000_000 - SMALL_MS) // (24 * HOUR)
    line = f"as of 2026-11-21T09:24Z, {days} days old, by the newest metadata node"
    lines = cli("--store", store, "overview", "--no-check").stdout.splitlines()
    assert lines[0] == line
    # What was read a moment ago and an entry of days ago are told from different nows.
    assert lines[2].startswith("read ")
    assert "before the copy's time (2026-11-21T09:2" in lines[2]
    assert cli("--store", store, "doctor").stdout.splitlines()[0] == line
    assert cli("--store", store, "doctor", "--html", tmp_path / "page.html").stdout.splitlines()[0] == line
    assert line in (tmp_path / "page.html").read_text()
    given = cli("--store", store, "doctor", "--now", "2026-11-22T12:00:00Z").stdout.splitlines()[0]
    assert given == "as of 2026-11-22T12:00Z, by --now"


def test_delayed_messages_are_due_by_it(cli: Cli) -> None:
    """What waits in the copy still waits days later; the clock is asked for by its name."""
    store = imported("small", "clean")
    ask = ("--store", store, "delayed", "status", "acme/delayed/reminders", "-s", "workers", "-o", "json")
    assert cli(*ask).json == cli(*ask, "--now", f"@{SMALL_MS}").json
    (found,), (by_clock,) = cli(*ask).json, cli(*ask, "--now", "now").json
    assert (found["messages"], found["due"]["now"]) == (142, 2)
    assert by_clock["due"]["now"] == 142


def test_a_relative_time_of_a_question_counts_from_it(cli: Cli) -> None:
    store = imported("small", "clean")
    ask = ("--store", store, "topics", "find-by-time", STEADY, "-o", "json", "--time")
    found = cli(*ask, "-30m")
    assert found.json == cli(*ask, f"@{SMALL_MS - HOUR // 2}").json
    assert found.json["time"] == SMALL_MS - HOUR // 2
    assert found.stderr.count("is counted back from the time of this copy, 2026-11-21T09:24:17.132Z") == 1
    assert cli(*ask, "-30m", "--now", "now").exit_code == 5


def test_python_counts_from_it() -> None:
    store = imported("small", "clean")
    with pa.open_store(store) as opened:
        assert opened.topic(STEADY).find("30m").time_ms == SMALL_MS - HOUR // 2
        assert opened.overview(check=False).now_ms == SMALL_MS
    with pa.open_store(store, now="now") as opened:
        assert opened.overview(check=False).as_of_source == "given"
        assert abs(opened.overview(check=False).now_ms - time.time() * 1000) < HOUR


# -- changes ask ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ("topics", "reset-cursor", STEADY, "-s", "reset-me", "-t", "63s"),
        ("topics", "expire", STEADY, "-s", "expire-me", "-t", "63s"),
        ("topics", "expire-all-subscriptions", STEADY, "-t", "63s"),
    ],
)
def test_a_change_that_counts_from_now_asks_which(words: tuple[str, ...], cli: Cli) -> None:
    store = imported("small", "clean")
    result = cli("--store", store, *words).ends(5, "error: which time is now?")
    lines = [line.removeprefix("  $ ") for line in result.stderr.splitlines() if line.startswith("  $ ")]
    assert [shlex.split(line)[-2:] for line in lines] == [["--now", "2026-11-21T09:24:17.132Z"], ["--now", "now"]]
    by_copy = cli.done("--store", store, *shlex.split(lines[0])[1:], "--dry-run", "-o", "jsonl")
    error = cli("--store", store, *words, "-o", "json").error
    assert error["context"]["commands"] == lines
    looking = cli("--store", store, *words, "--dry-run", "-o", "json").error["context"]["commands"]
    assert looking == [line.replace(" --now", " --dry-run --now") for line in lines]
    if words[1] == "expire":  # of what is days old all goes: whoever says so gets it
        by_clock = cli("--store", store, *shlex.split(lines[1])[1:], "--dry-run", "-o", "json")
        assert by_clock.json["after"]["backlogEntries"] == 0 < by_copy.json["after"]["backlogEntries"]


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


def test_a_ttl_counts_from_now_too(cli: Cli, tmp_path: Path) -> None:
    store = copied("small", "clean", tmp_path)
    assert cli("--store", store, "namespaces", "set-message-ttl", "public/default", "-ttl", "3600").exit_code == 0
    ask = ("--store", store, "topics", "expire", STEADY, "-s", "expire-me", "--ttl")
    refused = cli(*ask)
    assert (refused.exit_code, refused.stderr.count("  $ pulsar-admin")) == (5, 2)
    assert cli(*ask, "--now", f"@{SMALL_MS}", "-o", "json").json["entries"] == 0
    assert cli(*ask, "--now", "now", "-o", "json").json["entries"] == 240


def test_nows_that_agree_are_not_asked_about(cli: Cli, tmp_path: Path) -> None:
    store = copied("small", "clean", tmp_path)
    cli.done("--store", store, "topics", "reset-cursor", STEADY, "-s", "reset-me", "-t", "10000d", "-o", "json")


def test_an_import_a_moment_ago_from_a_disk_in_use_is_not_asked_about(cli: Cli, tmp_path: Path) -> None:
    store = copied("small", "clean", tmp_path)
    with open_store(store, writable=True) as opened:
        moment = time.time_ns() // 1_000_000 - 60_000
        opened.write(lambda txn: txn.put("state", b"as-of", f"{moment} live".encode()))
    done = cli("--store", store, "topics", "expire", STEADY, "-s", "expire-me", "-t", "2h", "-o", "json")
    assert (done.exit_code, done.json["after"]["backlogEntries"]) == (0, 0), done.stderr


def test_a_moment_of_the_past_asks_too(cli: Cli) -> None:
    store = imported("small", "clean")
    cli("--store", store, "topics", "restore", STEADY, "--at", "-2h", "--dry-run").ends(5, "which time is now?")


def test_store_info_says_the_time_of_the_copy_and_its_source(cli: Cli) -> None:
    store = imported("small", "clean")
    found = cli("--store", store, "store", "info", "-o", "json").json
    assert (found["asOf"], found["asOfSource"]) == (SMALL_MS, "metadata")
    assert "by the newest metadata node" in cli("--store", store, "store", "info").stdout
