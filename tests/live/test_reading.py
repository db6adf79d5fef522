"""What the toolkit reads from a fresh world is what its broker and the real clients said of it."""

from typing import Any
from urllib.parse import unquote

import pytest

from tests.conftest import Cli
from tests.live.comparing import first_unacknowledged
from tests.live.conftest import Asked, Live, run_toolkit
from tests.live.recipe import INTERRUPTED, SKEWED, SKEWED_BATCHED

pytestmark = pytest.mark.live


def test_every_confirmed_message_is_found(asked: Asked, cli: Cli) -> None:
    confirmed = asked.said["confirmed"]
    assert bool(confirmed) == asked.killed
    if confirmed:
        rows = cli("--store", asked.store, "topics", "read", INTERRUPTED, "-o", "jsonl").json_lines
        found = {(row["ledgerId"], row["entryId"], row["batchIndex"], row["sha1"]) for row in rows}
        assert {tuple(row) for row in confirmed} <= found


def test_every_message_is_read_as_the_client_read_it(asked: Asked, cli: Cli) -> None:
    keys = ("ledgerId", "entryId", "batchIndex", "publishTime", "sha1", "producer")
    for topic, rows in asked.said["rows"].items():
        found = cli("--store", asked.store, "topics", "read", topic, "-o", "jsonl").json_lines
        assert [[row[key] for key in keys] for row in found] == rows


def test_internal_stats_are_the_brokers(asked: Asked) -> None:
    for topic, said in asked.said["internal"].items():
        stats = run_toolkit(asked.store, "topics", "stats-internal", topic)
        for key in ("numberOfEntries", "totalSize", "lastConfirmedEntry"):
            assert stats[key] == said[key], f"{topic} {key}"
        assert [ledger["ledgerId"] for ledger in stats["ledgers"]] == [ledger["ledgerId"] for ledger in said["ledgers"]]
        assert stats["cursors"].keys() == said["cursors"].keys()
        for name, cursor in said["cursors"].items():
            for key in ("markDeletePosition", "individuallyDeletedMessages", "properties"):
                assert stats["cursors"][name][key] == cursor[key], f"{topic} {name} {key}"


def test_the_next_message_of_every_cursor(asked: Asked, cli: Cli) -> None:
    for topic, said in asked.said["internal"].items():
        for encoded, cursor in said["cursors"].items():
            peeked = cli(
                "--store", asked.store, "topics", "peek-messages", topic, "-s", unquote(encoded), "-n", 1, "-o", "jsonl"
            ).json_lines
            expected = first_unacknowledged(asked.said["rows"][topic], cursor)
            assert [(row["ledgerId"], row["entryId"]) for row in peeked[:1]] == ([expected] if expected else []), (
                f"{topic} {encoded}"
            )


def _first_at_or_after(rows: list[list[Any]], time_ms: int) -> tuple[int, int] | None:
    return next(((row[0], row[1]) for row in rows if row[3] >= time_ms), None)


def test_find_by_time_is_exact_on_client_clocks(asked: Asked, cli: Cli) -> None:
    for topic, time_ms, _ in asked.said["probes"]:
        result = cli.on(asked.store, f"topics find-by-time {topic} --time @{time_ms} --clock publish -o json")
        position = result.json["position"]
        expected = _first_at_or_after(asked.said["rows"][topic], time_ms)
        assert (position and (position["ledgerId"], position["entryId"])) == expected, f"{topic} {time_ms}"
        assert result.exit_code == (0 if expected else 5)


def test_rule_broker_is_the_brokers_answer(asked: Asked, cli: Cli) -> None:
    for topic, time_ms, answer in asked.said["probes"]:
        result = cli.on(asked.store, f"topics find-by-time {topic} --time @{time_ms} --rule broker -o json")
        position = result.json["position"]
        assert [position["ledgerId"], position["entryId"]] == answer, f"{topic} {time_ms}"


def test_the_probes_reach_where_clocks_disagree(live: Live) -> None:
    rows = live.world.said["rows"]
    misled = [
        topic
        for topic, time_ms, answer in live.world.said["probes"]
        if (exact := _first_at_or_after(rows[topic], time_ms)) is not None and list(exact) != answer
    ]
    assert {SKEWED, SKEWED_BATCHED} <= set(misled)
