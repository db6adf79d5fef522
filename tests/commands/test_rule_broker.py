"""Questions by time where entries are lost or not seen: what real brokers answered, and what is exact."""

from pathlib import Path

import pytest

from bench.generate import generate
from pulsar_admin.store.codec.cursor import CursorInfo
from pulsar_admin.store.codec.ledgermetadata import ledger_path
from pulsar_admin.store.db.tree import tree_key
from pulsar_admin.store.names import Position
from pulsar_admin.store.sources.rocksdb import apply_changes, open_for_reading
from tests.conftest import Cli
from tests.stores import imported, write_rows
from tests.synthetic import Made, MadeTopic, make_store
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
    assert cli.on(tmp_path / "s", f"store import standalone {made} -q").exit_code == 0
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
    for more in ("", "--explain", "--rule all-before"):
        found = cli.on(lost, f"topics find-by-time {TOPIC} --time @{START_MS + after_ms} -o json {more}")
        assert (found.exit_code, found.json["exact"]) == (0 if exact else 1, exact)
        assert ("279 lost entries of ledger 2 (2:58 to 2:336)" in found.stderr) != exact
    assert LOST.stop - LOST.start == 279


def test_nothing_at_or_after_the_time_is_not_exact_where_entries_are_lost(lost: Path, cli: Cli) -> None:
    found = cli.on(lost, f"topics find-by-time {TOPIC} --time @{START_MS + 10**6} -o json")
    assert (found.exit_code, found.json["position"], found.json["exact"]) == (1, None, False)


def test_event_times_are_as_exact(lost: Path, cli: Cli) -> None:
    ask = ("--store", lost, "topics", "find-by-time", TOPIC, "--time", f"@{START_MS}", "--clock", "event")
    found = cli(*ask, "-o", "json")
    assert (found.exit_code, found.json["position"], found.json["exact"]) == (1, None, False)
    assert "damaged" not in found.stderr


def test_an_expiry_whose_probe_cannot_be_read_drops_whole_ledgers_only(lost: Path, cli: Cli) -> None:
    """The broker of 4.0.8 expired the first ledger, closed at 0.5 s, and nothing of the second with a limit of 0.867 s."""
    expire = ("--store", lost, "--now", f"@{START_MS + 100_867}", "topics", "expire", TOPIC, "-s", "all")
    created = cli.on(lost, f"topics create-subscription {TOPIC} -s all -m earliest")
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
    cli.on(store, f"store import standalone {source} -q")
    asked = cli.on(store, f"topics find-by-time {PLAIN[0]} --time {PLAIN[1]} --rule broker -o json")
    assert (asked.exit_code, "which no bookie that clients ask serves" in asked.error["message"]) == (5, True)


def test_the_proof_shows_every_ledger_or_counts_it(lost: Path, cli: Cli) -> None:
    ask = ("--store", lost, "topics", "find-by-time", TOPIC, "--time", f"@{START_MS + 2600}", "--explain")
    proof = cli(*ask, "-o", "json").json
    assert [row["ledgerId"] for row in proof["ledgers"]] == list(range(1, 11))
    assert [row["lost"] for row in proof["ledgers"]] == [0, 279, 0, 0, 0, 0, 0, 0, 0, 0]
    assert proof["ledgersLeftOut"] == []
    assert "500 entries (279 lost)" in cli(*ask).stdout


def test_the_proof_counts_what_it_leaves_out(tmp_path: Path, cli: Cli) -> None:
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
    assert "is unknown: its search reads 30:27" in broker["why"]
    for words in (("find-by-time", topic, "--time", time, "--rule", "broker"), ("get-message-id", topic, "-d", time)):
        cli("--store", one_of_three, "topics", *words, "-o", "json").fails(6, "not-seen")


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
    refused = cli(*expire, "--dry-run", "-o", "json").ends(3)
    assert "11 entries of ledger 33 not seen here (33:1 to 33:31; bk1test and bk2test" in refused.error["message"]
    forced = cli(*expire, "--dry-run", "--force", "-o", "json").json
    assert any("half loses 11 entries of ledger 33" in text for text in forced["warnings"])
    assert any("a broker's answer is unknown" in text for text in forced["warnings"])
    assert "broker" not in forced


def test_a_reset_says_what_it_does_not_see(one_of_three: Path, cli: Cli) -> None:
    reset = ("--store", one_of_three, "topics", "reset-cursor", PLAIN[0], "-s", "half", "-t", PLAIN[1], "--dry-run")
    report = cli(*reset, "-o", "json").json
    assert any("13 entries of ledger 8 not seen here" in text for text in report["warnings"])
    assert "broker" not in report


def test_with_all_bookies_the_same_questions_are_exact(cli: Cli) -> None:
    ask = ("--store", imported(CLUSTER, "clean"), "topics", "find-by-time", PLAIN[0], "--time", PLAIN[1], "-o", "json")
    found = cli(*ask, "--explain")
    assert (found.exit_code, found.json["exact"], found.json["broker"]["agrees"]) == (0, True, True)


# -- the rule of a broker: which version, what it prunes by, what loading a topic changes ---------------------------

MADE = "a/b/t"
AHEAD_MS = 10**12  # the clock of a producer that is years ahead of the others


def _store(path: Path, ledgers: list[list[int]], closed_ms: tuple[int, ...], mark_delete: Position) -> Path:
    made = MadeTopic(
        [[Made(time_ms) for time_ms in times] for times in ledgers],
        closed_ms=closed_ms,
        cursors={"s": CursorInfo(-1, mark_delete)},
    )
    return make_store(path / "store", {MADE: made})


def _moved(cli: Cli, store: Path, now_s: int, *arguments: str) -> str:
    command, *options = arguments
    asked = ("--store", store, "--now", f"@{now_s}", "topics", command, MADE, "-s", "s", *options)
    result = cli.done(*asked, "--rule", "broker", "--force", "--dry-run", "-o", "json")
    after: str = result.json["after"]["markDeletePosition"]
    return after


# The close times, with the margin, leave the last entry of ledger 11 as the start of the search: it is not earlier, so the search ends
# without an answer and the reset goes to the first entry. Without that start the newest earlier entry is the last one.
@pytest.mark.parametrize(
    ("options", "mark_delete"),
    [((), "10:-1"), (("--max-clock-skew", "-1"), "12:0"), (("--max-clock-skew", "90s"), "12:0")],
    ids=str,
)
def test_close_times_prune_by_the_margin_of_the_broker(
    cli: Cli, tmp_path: Path, options: tuple[str, ...], mark_delete: str
) -> None:
    ledgers = [[1_000, 2_000], [AHEAD_MS, AHEAD_MS], [30_000]]
    store = _store(tmp_path, ledgers, (10_000, 20_000), Position(10, -1))
    assert _moved(cli, store, 10**6, "reset-cursor", "-t", "@100", *options) == mark_delete


def test_a_broker_that_loads_a_topic_closes_its_last_ledger(cli: Cli, tmp_path: Path) -> None:
    store = _store(tmp_path, [[1_000], [AHEAD_MS], [4_000]], (2_000, 3_000), Position(10, -1))
    assert _moved(cli, store, 5, "reset-cursor", "-t", "@8000") == "12:0"


def test_what_a_cursor_acknowledged_plays_no_part_in_a_reset(cli: Cli, tmp_path: Path) -> None:
    ledgers = [[Made(1_000), Made(2_000)], [Made(3_000), Made(4_000)]]
    holes = ((Position(10, 0), Position(11, 1)),)
    made = MadeTopic(ledgers, closed_ms=(2_500,), cursors={"s": CursorInfo(-1, Position(10, -1), holes)})
    store = make_store(tmp_path / "store", {MADE: made})
    assert _moved(cli, store, 10**6, "reset-cursor", "-t", "@4") == "11:0"
    assert _moved(cli, store, 10**6, "reset-cursor", "-t", "@900000") == "11:1"


@pytest.mark.parametrize(("version", "mark_delete"), [("4.0", "10:2"), ("4.2", "10:0")])
def test_expiry_by_age(cli: Cli, tmp_path: Path, version: str, mark_delete: str) -> None:
    """4.0.8 searches from the cursor on, 4.2.4 from the topic's first entry, which is not old."""
    store = _store(tmp_path, [[AHEAD_MS, 1_000, 2_000]], (), Position(10, 0))
    assert _moved(cli, store, 10_000, "expire", "-t", "1h", "--broker-version", version) == mark_delete


def test_a_ledger_that_bookkeeper_does_not_know(cli: Cli, tmp_path: Path, damages_stores: None) -> None:
    """The second probe of five entries is the last, the third the fourth of them, in the ledger that is lost."""
    store = _store(tmp_path, [[1_000, 2_000], [3_000, 4_000], [5_000]], (2_500, 4_500), Position(10, -1))
    write_rows(store, lambda txn: txn.delete("tree", tree_key(ledger_path(11))))
    find = ("--store", store, "topics", "find-by-time", MADE, "--time", "@3", "-o")
    asked = cli(*find, "json", "--rule", "broker").ends(5)
    assert "a broker answers 404 (Message ID not found) here" in asked.error["message"]
    assert "no metadata of ledger 11" in asked.error["message"]
    broker = cli(*find, "json", "--explain").json["broker"]
    assert broker["position"] is None
    assert "404" in broker["why"]
    reset = f"--store {store} topics reset-cursor {MADE} -s s -t @3 --max-clock-skew -1 --dry-run".split()
    refused = cli(*reset, "--rule", "broker", "-o", "json").ends(5)
    assert "a broker answers 500 and moves nothing" in refused.error["message"]
    assert cli(*reset, "-o", "json").exit_code == 3  # the first entry it would get is lost
    assert cli(*reset, "--force", "-o", "json").json["after"]["markDeletePosition"] == "10:1"


@pytest.mark.parametrize(("version", "position"), [("4.0", [10, 0]), ("4.2", [-1, -1])])
def test_time_0(cli: Cli, tmp_path: Path, version: str, position: list[int]) -> None:
    store = _store(tmp_path, [[1_000, 2_000]], (), Position(10, -1))
    asked = f"--store {store} topics find-by-time {MADE} --rule broker --broker-version {version} -o json".split()
    answer = cli(*asked, "--time", "@0").json["position"]
    assert [answer["ledgerId"], answer["entryId"]] == position
    later = cli(*asked, "--time", "@2").json["position"]
    assert [later["ledgerId"], later["entryId"]] == [10, 1]


def test_facts_are_those_of_the_broker_s_search(cli: Cli, tmp_path: Path) -> None:
    """Of five entries it looks at the first, the last, and two between; the index prunes the first ledger, a broker nothing."""
    store = _store(tmp_path, [[1_000, 2_000], [3_000, 4_000, 5_000]], (2_500,), Position(10, -1))
    found = cli(*f"--store {store} topics find-by-time {MADE} --time @3 --rule broker --clock broker -o json".split())
    assert found.json["clock"] == "auto"
    probed = [(row["position"]["ledgerId"], row["position"]["entryId"]) for row in found.json["probes"]]
    assert probed == [(10, 0), (11, 2), (11, 0), (10, 1)]
    assert (found.json["entriesRead"], found.json["ledgersPruned"], found.json["ledgersScanned"]) == (4, 0, 2)
    assert "--clock broker plays no part" in found.stderr
