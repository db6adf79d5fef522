"""Questions by time where entries are lost or not seen: what real brokers answered, and what is exact."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bench.generate import generate
from pulsar_admin.store.sources.rocksdb import apply_changes, open_for_reading
from tests.conftest import Cli
from tests.worlds import CLUSTER, scratch_copy, world

TOPIC = "public/default/gen"
START_MS = 1_700_000_000_000
LOST = range(58, 337)  # of ledger 2, whose entries lie in 1.log, 2.log and 3.log
BROKERS_SAID: dict[int, tuple[int, int] | None] = {
    100: None,
    600: None,
    700: None,
    1500: (4, 3),
    2600: (6, 101),
    3100: (7, 105),
    4800: (10, 302),
}
"""Milliseconds after the first entry → what Pulsar 4.0.8 and 4.2.4, which started on this data, answered to GET messageid.

None: 404 (Message ID not found), and 500 to a reset, which moved nothing. Resets to the other times ended just before these positions."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cluster of 5,000 entries in ten ledgers, without the entry log 2.log."""
    directory = tmp_path_factory.mktemp("lost") / "data"
    sizes = ("--entries", 5000, "--entries-per-ledger", 500, "--log-size-limit", "300K")
    generate(directory, "--topic", TOPIC, *sizes, "--subscriptions", 2)
    (directory / "bookkeeper" / "current" / "2.log").unlink()
    return directory


@pytest.fixture
def lost(made: Path, tmp_path: Path, cli: Cli, damages_stores: None) -> Path:
    """Its store."""
    assert cli("--store", tmp_path / "s", "store", "import", "standalone", made, "-q").exit_code == 0
    return tmp_path / "s"


@pytest.mark.parametrize(("after_ms", "said"), BROKERS_SAID.items())
def test_a_probe_that_cannot_be_read_fails_the_search(
    lost: Path, cli: Cli, after_ms: int, said: tuple[int, int] | None
) -> None:
    version = "4.2" if after_ms in (600, 4800) else "4.0"
    ask = ("--store", lost, "topics", "find-by-time", TOPIC, "--time", f"@{START_MS + after_ms}", "-o", "json")
    versioned = ("--broker-version", version)
    by_rule = cli(*ask, "--rule", "broker", *versioned)
    broker = cli(*ask, "--explain", *versioned).json["broker"]
    reset = ("--store", lost, "topics", "reset-cursor", TOPIC, "-s", "sub-0", "-t", f"@{START_MS + after_ms}")
    moved = cli(*reset, *versioned, "--rule", "broker", "--force", "--dry-run", "-o", "json")
    if said is None:
        assert by_rule.exit_code == 5
        assert "a broker answers 404 (Message ID not found) here: its search reads 2:" in by_rule.error["message"]
        assert (broker["position"], broker["agrees"]) == (None, False)
        assert "404" in broker["why"]
        assert moved.exit_code == 5
        assert "a broker answers 500 and moves nothing: its search reads 2:" in moved.error["message"]
        ours = cli(*reset, *versioned, "--force", "--dry-run", "-o", "json").json
        assert ours["broker"] is None
        assert "a broker answers 500 and moves nothing" in ours["warnings"][0]
    else:
        position = {"ledgerId": said[0], "entryId": said[1]}
        assert by_rule.json["position"] == {**position, "partitionIndex": -1}
        assert (by_rule.exit_code, by_rule.json["exact"]) == (0, True), "lost entries before it do not change it"
        assert broker["agrees"] is True
        assert moved.json["after"]["markDeletePosition"] == f"{said[0]}:{said[1] - 1}"


@pytest.mark.parametrize(("after_ms", "exact"), [(100, True), (2600, False), (3100, False), (4800, False)])
def test_exact_unless_what_is_lost_could_precede_the_answer(lost: Path, cli: Cli, after_ms: int, exact: bool) -> None:
    for more in ((), ("--explain",), ("--rule", "all-before")):
        found = cli(
            "--store", lost, "topics", "find-by-time", TOPIC, "--time", f"@{START_MS + after_ms}", "-o", "json", *more
        )
        assert (found.exit_code, found.json["exact"]) == (0 if exact else 1, exact)
        assert ("279 lost entries of ledger 2 (2:58 to 2:336)" in found.stderr) != exact
    assert LOST.stop - LOST.start == 279


def test_nothing_at_or_after_the_time_is_not_exact_where_entries_are_lost(lost: Path, cli: Cli) -> None:
    found = cli("--store", lost, "topics", "find-by-time", TOPIC, "--time", f"@{START_MS + 10**6}", "-o", "json")
    assert (found.exit_code, found.json["position"], found.json["exact"]) == (1, None, False)


def test_event_times_are_as_exact(lost: Path, cli: Cli) -> None:
    ask = ("--store", lost, "topics", "find-by-time", TOPIC, "--time", f"@{START_MS}", "--clock", "event")
    found = cli(*ask, "-o", "json")
    assert (found.exit_code, found.json["position"], found.json["exact"]) == (1, None, False)
    assert "damaged" not in found.stderr


def test_an_expiry_whose_probe_cannot_be_read_drops_whole_ledgers_only(lost: Path, cli: Cli) -> None:
    """The broker of 4.0.8 expired the first ledger, closed at 0.5 s, and nothing of the second with a limit of 0.867 s."""
    expire = ("--store", lost, "--now", f"@{START_MS + 100_867}", "topics", "expire", TOPIC, "-s", "all")
    created = cli("--store", lost, "topics", "create-subscription", TOPIC, "-s", "all", "-m", "earliest")
    assert created.exit_code == 1  # ledger 2
    found = cli(*expire, "-t", "100", "--rule", "broker", "--dry-run", "-o", "json")
    assert found.json["after"]["markDeletePosition"] == "1:499"


def test_a_probe_of_what_no_bookie_serves_fails_the_search(tmp_path: Path, cli: Cli) -> None:
    """The entry logs have every entry, and the bookie's index leads to none of them."""
    source, store = scratch_copy("small", "clean", tmp_path), tmp_path / "s"
    locations = source / "bookkeeper" / "current" / "locations"
    with open_for_reading(locations) as pairs:
        rows = [key for key, _ in pairs]
    apply_changes(locations, lambda: ((key, None) for key in rows))
    cli("--store", store, "store", "import", "standalone", source, "-q")
    asked = cli(
        "--store", store, "topics", "find-by-time", PLAIN[0], "--time", PLAIN[1], "--rule", "broker", "-o", "json"
    )
    assert (asked.exit_code, "which no bookie that clients ask serves" in asked.error["message"]) == (5, True)


def test_the_proof_shows_every_ledger_or_counts_it(lost: Path, cli: Cli) -> None:
    ask = ("--store", lost, "topics", "find-by-time", TOPIC, "--time", f"@{START_MS + 2600}", "--explain")
    proof = cli(*ask, "-o", "json").json
    assert [row["ledgerId"] for row in proof["ledgers"]] == list(range(1, 11))
    assert [row["lost"] for row in proof["ledgers"]] == [0, 279, 0, 0, 0, 0, 0, 0, 0, 0]
    assert proof["ledgersLeftOut"] == []
    assert "500 entries (279 lost)" in cli(*ask).stdout


def test_the_proof_counts_what_it_leaves_out(tmp_path: Path, cli: Cli) -> None:
    from tests.synthetic import Made, MadeTopic, make_store

    path = make_store(tmp_path / "s", {"a/b/c": MadeTopic([[Made(START_MS + number)] for number in range(60)])})
    ask = ("--store", path, "topics", "find-by-time", "a/b/c", "--time", f"@{START_MS + 40}", "--explain")
    proof = cli(*ask, "-o", "json").json
    assert [row["ledgerId"] for row in proof["ledgers"]] == list(range(40, 61))  # 50 holds the answer
    left = {row["verdict"]: row["ledgers"] for row in proof["ledgersLeftOut"]}
    assert left == {"pruned: all its entries are earlier": 30, "not looked at: after the answer": 9}
    assert "30 more ledgers with 30 entries: pruned" in cli(*ask).stdout


# -- what is not imported is not lost ---------------------------------------------------------------------------------


@pytest.fixture
def one_of_three(tmp_path: Path, cli: Cli, damages_stores: None) -> Path:
    """A store of bk0test alone, on which are two thirds of the entries of ``plain``."""
    (tmp_path / "cluster").mkdir()
    for part in ("bookkeeper0", "zookeeper"):
        (tmp_path / "cluster" / part).symlink_to(world(CLUSTER) / "clean" / part)
    assert cli("--store", tmp_path / "s", "store", "import", "standalone", tmp_path / "cluster", "-q").exit_code == 0
    return tmp_path / "s"


PLAIN = ("public/default/plain", "2026-11-21T09:31:09.600Z")


def test_what_a_bookie_that_is_not_imported_may_have_makes_the_answer_unknown(one_of_three: Path, cli: Cli) -> None:
    topic, time = PLAIN
    ask = ("--store", one_of_three, "topics", "find-by-time", topic, "--time", time, "-o", "json")
    found = cli(*ask, "--explain")
    assert (found.exit_code, found.json["exact"]) == (1, None)
    assert "13 entries of ledger 8 not seen here (8:2 to 8:38; bk1test and bk2test are not imported)" in found.stderr
    assert "store add bookie bk1test=DIR,DIR" in found.stderr
    assert "lost" not in found.stderr
    broker = found.json["broker"]
    assert (broker["position"], broker["agrees"]) == (None, None)
    assert "is not known: its search reads 30:27" in broker["why"]
    for words in (("find-by-time", topic, "--time", time, "--rule", "broker"), ("get-message-id", topic, "-d", time)):
        asked = cli("--store", one_of_three, "topics", *words, "-o", "json")
        assert (asked.exit_code, asked.error["code"]) == (6, "not-seen")


def test_a_last_ledger_that_may_go_on_makes_a_brokers_answer_unknown(tmp_path: Path, cli: Cli) -> None:
    """The entries that it looks at are all here, of a ledger that nobody closed and whose other bookies are not."""
    (tmp_path / "cluster").mkdir()
    for part in ("bookkeeper0", "zookeeper"):
        (tmp_path / "cluster" / part).symlink_to(world(CLUSTER) / "crashed" / part)
    cli("--store", tmp_path / "s", "store", "import", "standalone", tmp_path / "cluster", "-q")
    ask = ("topics", "find-by-time", "acme/orders/fresh-batched", "--time", PLAIN[1], "--rule", "broker", "-o", "json")
    found = cli("--store", tmp_path / "s", *ask)
    assert (found.exit_code, found.json["exact"], found.json["position"]["entryId"]) == (1, None, 0)
    assert "a broker's probes depend on what ledger 263 may have from entry" in found.stderr


def test_the_first_entry_is_exact_whatever_is_not_seen_after_it(one_of_three: Path, cli: Cli) -> None:
    ask = ("--store", one_of_three, "topics", "find-by-time", PLAIN[0], "--time", "2026-11-20T00:00:00Z", "-o", "json")
    found = cli(*ask)
    assert (found.exit_code, found.json["exact"], found.json["position"]["entryId"]) == (0, True, 0)


def test_an_expiry_refuses_what_it_does_not_see(one_of_three: Path, cli: Cli) -> None:
    """Ledger 33 was closed after the limit: what of it is on the other bookies may be younger."""
    expire = ("--store", one_of_three, "topics", "expire", PLAIN[0], "-s", "half", "-t", "2026-11-21T09:31:12Z")
    refused = cli(*expire, "--dry-run", "-o", "json")
    assert refused.exit_code == 3
    assert "11 entries of ledger 33 not seen here (33:1 to 33:31; bk1test and bk2test" in refused.error["message"]
    forced = cli(*expire, "--dry-run", "--force", "-o", "json").json
    assert any("half loses 11 entries of ledger 33" in text for text in forced["warnings"])
    assert any("what a broker answers is not known" in text for text in forced["warnings"])
    assert "broker" not in forced


def test_a_reset_says_what_it_does_not_see(one_of_three: Path, cli: Cli) -> None:
    reset = ("--store", one_of_three, "topics", "reset-cursor", PLAIN[0], "-s", "half", "-t", PLAIN[1], "--dry-run")
    report = cli(*reset, "-o", "json").json
    assert any("13 entries of ledger 8 not seen here" in text for text in report["warnings"])
    assert "broker" not in report


def test_with_all_bookies_the_same_questions_are_exact(tmp_path: Path, cli: Cli) -> None:
    shutil.copytree(world(CLUSTER) / "clean", tmp_path / "cluster", symlinks=True)
    cli("--store", tmp_path / "s", "store", "import", "standalone", tmp_path / "cluster", "-q")
    ask = ("--store", tmp_path / "s", "topics", "find-by-time", PLAIN[0], "--time", PLAIN[1], "-o", "json")
    found = cli(*ask, "--explain")
    assert (found.exit_code, found.json["exact"], found.json["broker"]["agrees"]) == (0, True, True)
