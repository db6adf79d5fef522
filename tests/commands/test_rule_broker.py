"""``--rule broker``: which broker, what it prunes by, what loading a topic changes. Expected values by hand from upstream's rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from pulsar_admin.store.codec.cursor import CursorInfo
from pulsar_admin.store.codec.ledgermetadata import ledger_path
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.db.tree import tree_key
from pulsar_admin.store.names import Position
from tests.conftest import Cli
from tests.synthetic import Made, MadeTopic, make_store

TOPIC = "a/b/t"
AHEAD_MS = 10**12  # the clock of a producer that is years ahead of the others


def _store(path: Path, ledgers: list[list[int]], closed_ms: tuple[int, ...], mark_delete: Position) -> Path:
    made = MadeTopic(
        [[Made(time_ms) for time_ms in times] for times in ledgers],
        closed_ms=closed_ms,
        cursors={"s": CursorInfo(-1, mark_delete)},
    )
    return make_store(path / "store", {TOPIC: made})


def _moved(cli: Cli, store: Path, now_s: int, *arguments: str) -> str:
    command, *options = arguments
    asked = ("--store", store, "--now", f"@{now_s}", "topics", command, TOPIC, "-s", "s", *options)
    result = cli(*asked, "--rule", "broker", "--force", "--dry-run", "-o", "json")
    assert result.exit_code == 0, result.stderr
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
    store = make_store(tmp_path / "store", {TOPIC: made})
    assert _moved(cli, store, 10**6, "reset-cursor", "-t", "@4") == "11:0"
    assert _moved(cli, store, 10**6, "reset-cursor", "-t", "@900000") == "11:1"


@pytest.mark.parametrize(("version", "mark_delete"), [("4.0", "10:2"), ("4.2", "10:0")])
def test_expiry_by_age(cli: Cli, tmp_path: Path, version: str, mark_delete: str) -> None:
    """4.0.8 searches from the cursor on, 4.2.4 from the topic's first entry, which is not old."""
    store = _store(tmp_path, [[AHEAD_MS, 1_000, 2_000]], (), Position(10, 0))
    assert _moved(cli, store, 10_000, "expire", "-t", "1h", "--broker-version", version) == mark_delete


def _lose(store: Path, ledger_id: int) -> None:
    with open_store(store, writable=True) as opened:
        opened.write(lambda txn: txn.delete("tree", tree_key(ledger_path(ledger_id))))


def test_a_ledger_that_bookkeeper_does_not_know(cli: Cli, tmp_path: Path, damages_stores: None) -> None:
    """The second probe of five entries is the last, the third the fourth of them, in the ledger that is lost."""
    store = _store(tmp_path, [[1_000, 2_000], [3_000, 4_000], [5_000]], (2_500, 4_500), Position(10, -1))
    _lose(store, 11)
    find = ("--store", store, "topics", "find-by-time", TOPIC, "--time", "@3", "-o")
    asked = cli(*find, "json", "--rule", "broker")
    assert asked.exit_code == 5
    assert "a broker answers 404 (Message ID not found) here" in asked.error["message"]
    assert "no metadata of ledger 11" in asked.error["message"]
    broker = cli(*find, "json", "--explain").json["broker"]
    assert broker["position"] is None
    assert "404" in broker["why"]
    reset = f"--store {store} topics reset-cursor {TOPIC} -s s -t @3 --max-clock-skew -1 --dry-run".split()
    refused = cli(*reset, "--rule", "broker", "-o", "json")
    assert refused.exit_code == 5
    assert "a broker answers 500 and moves nothing" in refused.error["message"]
    assert cli(*reset, "-o", "json").exit_code == 3  # the first entry it would get is lost
    assert cli(*reset, "--force", "-o", "json").json["after"]["markDeletePosition"] == "10:1"


@pytest.mark.parametrize(("version", "position"), [("4.0", [10, 0]), ("4.2", [-1, -1])])
def test_time_0(cli: Cli, tmp_path: Path, version: str, position: list[int]) -> None:
    store = _store(tmp_path, [[1_000, 2_000]], (), Position(10, -1))
    asked = f"--store {store} topics find-by-time {TOPIC} --rule broker --broker-version {version} -o json".split()
    answer = cli(*asked, "--time", "@0").json["position"]
    assert [answer["ledgerId"], answer["entryId"]] == position
    later = cli(*asked, "--time", "@2").json["position"]
    assert [later["ledgerId"], later["entryId"]] == [10, 1]


def test_facts_are_those_of_the_broker_s_search(cli: Cli, tmp_path: Path) -> None:
    """Of five entries it looks at the first, the last, and two between; the index prunes the first ledger, a broker nothing."""
    store = _store(tmp_path, [[1_000, 2_000], [3_000, 4_000, 5_000]], (2_500,), Position(10, -1))
    found = cli(*f"--store {store} topics find-by-time {TOPIC} --time @3 --rule broker --clock broker -o json".split())
    assert found.json["clock"] == "auto"
    probed = [(row["position"]["ledgerId"], row["position"]["entryId"]) for row in found.json["probes"]]
    assert probed == [(10, 0), (11, 2), (11, 0), (10, 1)]
    assert (found.json["entriesRead"], found.json["ledgersPruned"], found.json["ledgersScanned"]) == (4, 0, 2)
    assert "--clock broker plays no part" in found.stderr


def test_clock_broker_says_which_entries_have_no_broker_time(cli: Cli, tmp_path: Path) -> None:
    made = MadeTopic([[Made(1_000, 1_000), Made(2_000), Made(3_000)]], cursors={"s": CursorInfo(-1, Position(10, -1))})
    store = make_store(tmp_path / "store", {TOPIC: made})
    for command in (
        ("find-by-time", TOPIC, "--time", "@1"),
        ("reset-cursor", TOPIC, "-s", "s", "-t", "@1", "--dry-run"),
        ("expire", TOPIC, "-s", "s", "-t", "1h", "--dry-run"),
    ):
        assert (
            "2 of 3 entries carry no broker time"
            in cli("--store", store, "topics", *command, "--clock", "broker").stderr
        )
        assert "broker time" not in cli("--store", store, "topics", *command).stderr
