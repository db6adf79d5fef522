"""The overview against what the live broker answered, and against counting by hand."""

from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.db.files import iter_logs
from pulsar_admin.store.doctor.diagnosing import DoctorOptions, diagnose
from pulsar_admin.store.doctor.overview import count_findings
from pulsar_admin.store.facts.parts import Counting
from pulsar_admin.store.model.copy_age import GIVEN, Now
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.names import Position
from pulsar_admin.store.reports.overview import Overview, Totals, read_overview
from tests.conftest import Cli
from tests.deep import deep_but_for
from tests.reference_index import reference_index
from tests.stores import NOW_MS, imported, read_rows
from tests.test_cli_output import on_terminal
from tests.why.test_disk import kept, place, retention
from tests.worlds import WORLD_NAMES, asked_topics, oracle, scratch_copy, world

ALL = 10_000
LATER_MS = NOW_MS + 1000


def overview_of(path: Path, top: int = ALL) -> Overview:
    with open_store(path) as store, open_reader(store) as reader:
        findings = count_findings(diagnose(store, now_ms=LATER_MS, options=DoctorOptions(each=1)))
        counting, now = Counting((Totals(top),), LATER_MS), Now(LATER_MS, GIVEN, LATER_MS)
        return read_overview(reader, now, findings, counting, 0, lambda _: None)


@cache
def whole(name: str) -> Overview:
    """The overview of a clean world with every row."""
    return overview_of(imported(name, "clean"))


@pytest.mark.parametrize("name", WORLD_NAMES)
def test_oldest_entries_are_as_old_as_their_bytes_say(name: str) -> None:
    store = imported(name, "clean")
    with open_store(store) as opened, opened.read() as txn:
        times = {key: publish_ms for key, (_, publish_ms) in reference_index(iter_logs(txn), store).items()}
    found = whole(name)
    assert "entry" in {row.oldest_source for row in found.backlogs}
    for row in found.backlogs:
        assert not row.topic.rpartition("/")[2].startswith("__")
        assert isinstance(row.oldest_position, Position)
        assert row.oldest_publish_ms == times[row.oldest_position.ledger_id, row.oldest_position.entry_id]
        assert row.oldest_age_ms == LATER_MS - row.oldest_publish_ms


def test_of_entries_whose_file_is_gone_the_index_knows_a_bound(tmp_path: Path, cli: Cli) -> None:
    """A block is 1,024 entries of one ledger, and ledgers of this world have 25."""
    source, store = scratch_copy("small", "clean", tmp_path), tmp_path / "pulsar-store"
    assert cli("--store", store, "store", "import", "standalone", source).exit_code == 0
    times = read_rows(store, lambda txn: {key: ms for key, (_, ms) in reference_index(iter_logs(txn), store).items()})
    for log in (source / "bookkeeper" / "current").glob("*.log"):
        log.unlink()
    found = overview_of(store)
    (row,) = (one for one in found.backlogs if one.topic.endswith("/plain") and one.subscription == "expire-me")
    ledger = [ms for (ledger_id, _), ms in times.items() if ledger_id == row.oldest_position.ledger_id]
    assert (row.oldest_source, row.oldest_publish_ms) == ("block", min(ledger))
    assert "≤ " in cli("--store", store, "overview").stdout
    assert found.disk.missing_files == 2


@pytest.mark.parametrize("name", WORLD_NAMES)
def test_every_byte_of_a_topic_is_held_once(name: str) -> None:
    found, compared = whole(name), 0
    assert sum(found.held.values()) == found.bytes == sum(row.bytes for row in found.namespaces)
    for row in found.blockers:
        assert bool(row.subscription) == (row.reason == "cursor")
        if row.reason == "cursor" and (told := asked_topics(name).get(row.topic.removeprefix("persistent://"))):
            stats = told["internal_stats"]
            marks = {cursor: place(one["markDeletePosition"]) for cursor, one in stats["cursors"].items()}
            ends = [(one["ledgerId"], one["entries"] - 1) for one in stats["ledgers"][:-1]]
            first = next(end for end in ends if any(mark < end for mark in marks.values()))
            assert row.others == sum(mark < first for mark in marks.values()) - 1
            assert row.subscription == min(marks, key=lambda cursor: (marks[cursor], cursor))
            compared += 1
    assert compared > 8


def test_of_policies_that_cannot_be_read_retention_is_unknown(tmp_path: Path, cli: Cli) -> None:
    """As `store usage --why` says it: all cursors have left two ledgers, and nothing says whether retention keeps them."""
    readable = kept(tmp_path / "readable", {"done": (12, 9)}, retention(-1, -1))
    damaged = kept(tmp_path / "damaged", {"done": (12, 9)}, b"{")
    held = {path.name: cli("--store", path, "overview", "-o", "json").json["held"] for path in (readable, damaged)}
    assert held["readable"].keys() == {"retention", "open-ledger"}
    assert held["damaged"].keys() == {"retention-unknown", "open-ledger"}
    assert held["damaged"]["retention-unknown"] == held["readable"]["retention"]
    text = " ".join(cli("--store", damaged, "overview").stdout.split())
    assert "unknown retention (unreadable policies)" in text
    assert "unknown retention, 2 ledgers" in text
    assert 'kept_bytes{reason="retention-unknown"}' in cli("--store", damaged, "metrics").stdout


def test_the_age_of_what_was_not_imported_is_unknown(tmp_path: Path, cli: Cli) -> None:
    zookeeper = world("cluster") / "clean" / "zookeeper"
    cli.done("--store", tmp_path / "s", "store", "import", "cluster", "--zookeeper", zookeeper)
    rows = cli("--store", tmp_path / "s", "overview").stdout.partition("WORST BACKLOGS")[2].splitlines()
    assert rows[1].endswith(" unknown")


# -- the command ------------------------------------------------------------------------------------------------------


@deep_but_for((0,), "height", [24, 40])
def test_it_fits_one_screen(height: int) -> None:
    variables = {"PULSAR_ADMIN_STORE": str(imported("small", "crashed"))}  # lines that name no store are short
    lines = on_terminal(80, "-q", "overview", rows=height, NO_COLOR="1", **variables).splitlines()
    assert len(lines) < height  # the prompt needs one
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    sections = ("NAMESPACE", "LARGEST TOPICS", "WORST BACKLOGS", "DISKS", "FINDINGS", "ASK NEXT")
    assert [text.count(title) for title in sections] == [1] * len(sections)
    facts = [line for line in lines if line.startswith(("3 tenants, ", "  Reclaimable now: ", "  Why bytes "))]
    assert len(facts) == 3
    assert not any(line.endswith("…") for line in facts)


def test_totals_on_a_terminal_have_the_columns_of_the_rows() -> None:
    store = str(imported("small", "crashed"))
    lines = on_terminal(120, "--store", store, "store", "usage", NO_COLOR="1").splitlines()
    assert lines[0].split() == ["TOPIC", "LEDGERS", "ENTRIES", "BYTES", "ON", "DISK"]


def test_an_empty_store_has_an_overview(cli: Cli, tmp_path: Path) -> None:
    store = tmp_path / "empty"
    assert cli("--store", store, "store", "init").exit_code == 0
    text = cli("--store", store, "overview").stdout
    assert "nothing imported" in text
    assert "BACKLOGS: none" in text
    found = cli("--store", store, "overview", "--no-check", "-o", "json").json
    assert (found["topics"], found["findings"], found["newestEntryTime"]) == (0, None, None)


def test_topics_and_namespaces_list_without_arguments_list_all(cli: Cli) -> None:
    store = imported("small", "clean")
    namespaces = cli("--store", store, "namespaces", "list").stdout.splitlines()
    assert namespaces == [
        name for tenant in cli("--store", store, "tenants", "list").stdout.split()
        for name in cli("--store", store, "namespaces", "list", tenant).stdout.splitlines()
    ]  # fmt: skip
    assert set(oracle("small")["namespaces"]) <= set(namespaces)
    for system in ((), ("-ist",)):
        listed = cli("--store", store, "topics", "list", *system).stdout
        assert listed == "".join(cli("--store", store, "topics", "list", one, *system).stdout for one in namespaces)
    assert cli("--store", store, "topics", "list", "-b", "0x00000000_0xffffffff").exit_code == 2


def test_bookies_alone_lead_to_the_recovery_of_their_metadata(cli: Cli, tmp_path: Path) -> None:
    store, bookie = tmp_path / "alone", world("small") / "clean" / "bookkeeper" / "current"
    done = cli("--store", store, "store", "import", "cluster", "--bookie", bookie)
    assert "store recover --dry-run" in done.stderr
    lines = cli("--store", store, "overview").stdout.partition("ASK NEXT\n")[2].splitlines()
    assert lines[0].endswith(" store recover --dry-run")


def test_where_nothing_was_found_no_list_begins() -> None:
    from pulsar_admin.commands.overview import _findings
    from pulsar_admin.commands.store.recover import _topic_lines

    nothing: Any = SimpleNamespace(findings=(), topics=(), topic_count=0)
    assert _findings(nothing, nothing) == ["FINDINGS: none"]
    assert _topic_lines(nothing) == []
