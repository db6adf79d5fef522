"""The recorded cluster that has lived (``tests/live/lived_recipe.py``) against what its real processes said, started again."""

from __future__ import annotations

from typing import Any

from tests.conftest import Cli
from tests.live.comparing import unacknowledged
from tests.stores import lived
from tests.worlds import oracle

WORLD = "lived"
COLUMNS = ("ledgerId", "entryId", "batchIndex", "publishTime", "key", "size", "sha1", "producer")


def said(key: str) -> Any:  # Any: JSON
    return oracle(WORLD)[key]


def test_every_message_that_readers_got_is_read(cli: Cli) -> None:
    found: dict[str, list[list[Any]]] = {topic: [] for topic in said("rows")}
    for row in cli.rows(lived(), "topics read --all-topics"):
        topic = row["topic"].removeprefix("persistent://")
        if topic in found:
            found[topic].append([row[key] or "" if key == "key" else row[key] for key in COLUMNS])
    assert found == said("rows")


def test_every_subscription_stands_where_the_broker_had_it(cli: Cli) -> None:
    """A broker that loads a topic moves a cursor at a ledger's end to the next ledger: what it gives is compared."""
    internal = said("marks")["again"]["internal"]
    cursors = 0
    for topic, rows in said("rows").items():
        found = cli.json(lived(), f"topics stats-internal {topic}")["cursors"]
        assert found.keys() == internal[topic]["cursors"].keys(), topic
        for name, cursor in internal[topic]["cursors"].items():
            assert unacknowledged(rows, found[name]) == unacknowledged(rows, cursor), (topic, name)
            cursors += 1
    assert cursors == 9
