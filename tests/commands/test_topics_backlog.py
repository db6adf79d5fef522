"""``get-backlog-size`` and ``analyze-backlog`` on the command line; the recorded answers are in test_stats_oracle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pulsar_admin.store.codec.cursor import CursorInfo
from pulsar_admin.store.names import Position
from tests.conftest import Cli
from tests.stores import imported
from tests.synthetic import Made, MadeTopic, make_store
from tests.worlds import WORLD_NAMES, oracle

START_MS = 1_700_000_000_000
T = "public/default/t"


def analyze(cli: Cli, store: Path, topic: str, *arguments: object, exit_code: int = 0) -> Any:
    result = cli("--store", store, "topics", "analyze-backlog", topic, *arguments, "-o", "json")
    assert result.exit_code == exit_code, result.stderr
    return result.json


@pytest.mark.parametrize("world", WORLD_NAMES)
def test_sizes_equal_the_broker(world: str, cli: Cli) -> None:
    """The broker estimates each subscription's backlog from its mark-delete position."""
    compared = 0
    command = ("--store", imported(world, "clean"), "topics", "get-backlog-size")
    for topic, answers in oracle(world)["topics"].items():
        sizes = answers["stats"]["subscriptions"]
        cursors = answers["internal_stats"]["cursors"]
        for name, cursor in cursors.items():
            expected = sizes[{"fail%2Fover%3A1": "fail/over:1"}.get(name, name)]["backlogSize"]
            position = cursor["markDeletePosition"]
            assert cli(*command, topic, f"--messageId={position}").stdout == f"{expected}\n"
            compared += 1
        assert cli(*command, topic).stdout == f"{answers['stats']['storageSize']}\n"
    assert compared == 27


def test_sizes_of_several(cli: Cli, demo_store: Path) -> None:
    result = cli("--store", demo_store, "topics", "get-backlog-size", "--pattern", "acme/iot/*", "-o", "jsonl")
    assert result.json_lines == [
        {"topic": "persistent://acme/iot/skewed", "backlogSize": 29044},
        {"topic": "persistent://acme/iot/skewed-batched", "backlogSize": 19421},
    ]


def test_counting_has_no_cap(cli: Cli, tmp_path: Path) -> None:
    """More than the broker's 10,000 entries, in batches and singles, over blocks and ledgers, with holes."""
    ledgers = [[Made(START_MS, batch=index % 3) for index in range(count)] for count in (6000, 1, 6000)]
    messages = [max(made.batch, 1) for ledger in ledgers for made in ledger]
    holes = ((Position(10, 9), Position(10, 2000)), (Position(10, 5990), Position(12, 1030)))
    cursor = CursorInfo(-1, Position(10, 4), ranges=holes)
    store = make_store(tmp_path / "store", {T: MadeTopic(ledgers, cursors={"s": cursor})})
    deleted = {*range(10, 2001), *range(5991, 6001 + 1031)}
    left = [index for index in range(5, 12001) if index not in deleted]
    found = analyze(cli, store, T, "-s", "s")
    assert (found["entries"], found["messages"]) == (len(left), sum(messages[index] for index in left))
    assert (found["firstMessageId"], found["lastMessageId"], found["aborted"]) == ("10:5", "12:5999", False)
    from_earlier = [index for index in range(1, 12001) if index not in deleted]
    found = analyze(cli, store, T, "-s", "s", "-p", "10:1")
    assert (found["entries"], found["messages"]) == (len(from_earlier), sum(messages[i] for i in from_earlier))
    assert found["firstMessageId"] == "10:1"
    assert analyze(cli, store, T, "-s", "s", "-p", "12:5999")["entries"] == 1


def test_nothing_left(cli: Cli, tmp_path: Path) -> None:
    topic = MadeTopic([[Made(START_MS)] * 3], cursors={"done": CursorInfo(-1, Position(10, 2))})
    store = make_store(tmp_path / "store", {T: topic})
    found = analyze(cli, store, T, "-s", "done")
    assert (found["entries"], found["messages"], "firstMessageId" in found) == (
        0,
        0,
        False,
    )  # Pulsar 4.0.8 leaves it out
    assert analyze(cli, store, T, "-s", "done", "-p", "latest")["entries"] == 0


def test_lost_entries_are_said(cli: Cli, tmp_path: Path) -> None:
    ledger = [Made(START_MS, batch=5, lost=index in (0, 3)) for index in range(6)]
    topic = MadeTopic(
        [ledger, [Made(START_MS, lost=True)] * 2, [Made(START_MS)]], cursors={"s": CursorInfo(-1, Position(10, -1))}
    )
    store = make_store(tmp_path / "store", {T: topic})
    result = cli("--store", store, "topics", "analyze-backlog", T, "-s", "s", "-o", "json")
    assert (result.exit_code, result.json["entries"], result.json["messages"]) == (1, 9, 4 * 5 + 2 + 2 + 1)
    assert "4 entries of the backlog of s are in no imported file" in result.stderr


def test_errors(cli: Cli, demo_store: Path) -> None:
    command = ("--store", demo_store, "topics")
    result = cli(*command, "analyze-backlog", "public/default/plain", "-s", "none", "-o", "json")
    assert (result.exit_code, result.error["code"]) == (5, "subscription-not-found")
    assert cli(*command, "analyze-backlog", "public/default/plain").exit_code == 2
    assert cli(*command, "analyze-backlog", "public/default/plain", "-s", "half", "-p", "9").exit_code == 2
    assert cli(*command, "get-backlog-size", "public/default/none").exit_code == 5
    # Of several topics those without the subscription are named, the others answered.
    result = cli(*command, "analyze-backlog", "--pattern", "public/default/*", "-s", "half", "-o", "jsonl")
    assert (result.exit_code, [row["entries"] for row in result.json_lines]) == (1, [150])
