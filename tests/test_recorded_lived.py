"""The recorded cluster that has lived (``tests/live/lived_recipe.py``) against what its real processes said, started again."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.conftest import Cli
from tests.live.comparing import unacknowledged
from tests.stores import lived
from tests.worlds import oracle

WORLD = "lived"
COLUMNS = ("ledgerId", "entryId", "batchIndex", "publishTime", "key", "size", "sha1", "producer")


def said(key: str) -> Any:  # Any: JSON
    return oracle(WORLD)[key]


def rows_of(cli: Cli, store: Path, options: str = "") -> Iterator[tuple[str, list[Any]]]:
    """The topic of every message, and what is said of it."""
    for row in cli.rows(store, f"topics read --all-topics {options}"):
        yield (
            row["topic"].removeprefix("persistent://"),
            [row[key] if key != "key" else row[key] or "" for key in COLUMNS],
        )


def test_every_message_that_readers_got_is_read(cli: Cli) -> None:
    found: dict[str, list[list[Any]]] = {}
    for topic, row in rows_of(cli, lived()):
        found.setdefault(topic, []).append(row)
    assert {topic: found.get(topic) for topic in said("rows")} == said("rows")


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
