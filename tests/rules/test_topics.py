"""Rules of topics beside what ``topics why`` says of the same store: one judge."""

from __future__ import annotations

from pathlib import Path

import pytest

from pulsar_admin.store.model.topics import read_topic
from pulsar_admin.store.names import parse_topic
from tests.conftest import Cli
from tests.why.planted import SUB, TOPIC, Planted, ask, opened, plant, put


@pytest.mark.parametrize(("more", "is_reached"), [(-1, True), (0, True), (1, False)])
def test_a_size_quota_is_reached_at_its_limit(more: int, is_reached: bool, tmp_path: Path, cli: Cli) -> None:
    """``PersistentTopic.isSizeBacklogExceeded`` (4.0.8): a backlog of just the limit is over it."""
    with opened(plant(tmp_path / "sizes", Planted(mark=(10, -1)))) as reader:
        size = read_topic(reader.txn, parse_topic(TOPIC)).total_size_bytes
    quota = {"limitSize": size + more, "limitTime": -1, "policy": "producer_exception"}
    store = plant(
        tmp_path / "s", Planted(mark=(10, -1), policies={"backlog_quota_map": {"destination_storage": quota}})
    )
    assert ("quota-reached" in {reason.code for reason in ask(store).reasons}) == is_reached
    found = cli("--store", store, "doctor", "--code", "backlog-over-quota", "-o", "json").json
    assert [row["where"] for row in found] == [f"persistent://{TOPIC} {SUB}"] * is_reached


def test_a_cursor_that_cannot_be_read_may_need_every_ledger(tmp_path: Path, cli: Cli, damages_stores: None) -> None:
    """All but 10:0 is acknowledged: that message alone keeps ledger 11, unless somebody else may need it."""
    store = plant(tmp_path / "s", Planted(ranges=(((10, 0), (12, 9)),)))
    asked = ("--store", store, "doctor", "--code", "ack-hole-pins-ledgers", "-o", "json")
    assert [row["where"] for row in cli(*asked).json] == [f"persistent://{TOPIC} {SUB}"]
    put(store, parse_topic(TOPIC).cursor_path("other"), b"\xff")
    assert cli(*asked).json == []
