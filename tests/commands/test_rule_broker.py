"""``--rule broker``: which broker, what it prunes by, what loading a topic changes. Expected values by hand from upstream's rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from store.codec.cursor import CursorInfo
from store.names import Position
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
    result = cli(*asked, "--rule", "broker", "--dry-run", "-o", "json")
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
    store = _store(tmp_path, [[1_000, 2_000], [3_000, 4_000]], (2_500,), Position(11, 1))
    assert _moved(cli, store, 10**6, "reset-cursor", "-t", "@4") == "11:0"
    assert _moved(cli, store, 10**6, "reset-cursor", "-t", "@900000") == "11:1"


@pytest.mark.parametrize(("version", "mark_delete"), [("4.0", "10:2"), ("4.2", "10:0")])
def test_expiry_by_age(cli: Cli, tmp_path: Path, version: str, mark_delete: str) -> None:
    """4.0.8 searches from the cursor on, 4.2.4 from the topic's first entry, which is not old."""
    store = _store(tmp_path, [[AHEAD_MS, 1_000, 2_000]], (), Position(10, 0))
    assert _moved(cli, store, 10_000, "expire", "-t", "1h", "--broker-version", version) == mark_delete
