"""``delayed verify`` counts and names exactly what is wrong in an index, and lists it in order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from pulsar_admin.store.db.delayed_entries import DelayedRows
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.delayed.backlog import DelayScan
from pulsar_admin.store.delayed.build import Draft, apply_draft
from pulsar_admin.store.delayed.runs import SortedRuns, open_runs
from pulsar_admin.store.model.reader import open_reader
from tests.conftest import Cli
from tests.delayed.world import TOPIC, Message, build, held, index_of
from tests.stores import copied

TICK_MS = 1000


def verified(cli: Cli, path: Path, change: Any) -> tuple[int, int, list[tuple[str, int, str]]]:
    """Write the index of ``workers`` anew with what CHANGE makes of its messages; return messages, exit code, findings."""
    with open_store(path, writable=True) as store:
        build(store, "workers")
        messages = held(store, "workers")
        index = index_of(store, "workers")
        with open_runs() as file:
            with open_reader(store) as reader:
                draft = Draft(
                    replace(index, partitions=()), DelayScan(reader), reader.txn.id, SortedRuns(file, index.rules)
                )
            for message in change(messages):
                draft.writes.add(DelayedRows(*np.array([message], np.int64).T))
            apply_draft(store, draft)
    result = cli("--store", path, "delayed", "verify", TOPIC, "-s", "workers", "-o", "json")
    (row,) = result.json
    findings = [
        (one["kind"], one["messages"], one["message"].split(": ")[1].split(";")[0])
        for one in row["findings"]
        if one["kind"].startswith("index")
    ]
    return len(messages), result.exit_code, findings


@pytest.mark.parametrize("shift_ms", [TICK_MS, -TICK_MS])
def test_lost_moved_and_strange_messages(shift_ms: int, cli: Cli, tmp_path: Path) -> None:
    named: dict[str, list[Message]] = {}

    def change(messages: list[Message]) -> list[Message]:
        first, *rest = sorted(messages, key=lambda message: message[1:])
        named["lost"] = sorted(rest[5:10], key=lambda message: message[1:])
        strange = (first[0], first[1], 999_999)
        named["wrong"] = [first, strange]
        moved = (first[0] + shift_ms, *first[1:])
        return [moved, *rest[:5], *rest[10:], strange]

    _, code, findings = verified(cli, copied("small", "clean", tmp_path), change)
    assert code == 1
    assert findings == [("index-surplus", 2, text(named["wrong"])), ("index-lacks", 5, text(named["lost"]) + " …")]


def text(messages: list[Message]) -> str:
    return ", ".join(f"{ledger}:{entry}" for _, ledger, entry in messages[:3])


def test_a_message_twice(cli: Cli, tmp_path: Path) -> None:
    """The same place at two times: nothing is lacking, one of the two is wrong."""

    def change(messages: list[Message]) -> list[Message]:
        time, *place = messages[0]
        return [*messages, (time - 5 * TICK_MS, *place)]

    _, code, findings = verified(cli, copied("small", "clean", tmp_path), change)
    assert code == 1
    assert [(kind, count) for kind, count, _ in findings] == [("index-surplus", 1), ("index-lacks", 0)]
