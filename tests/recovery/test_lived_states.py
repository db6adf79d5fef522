"""Where a subscription stood at a time, on the cluster that has lived: each recorded move is asked for in the middle of its standing."""

from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import pairwise
from typing import Any, NamedTuple

from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.errors import Refused
from pulsar_admin.store.model.cursors import range_text, read_cursor
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.model.topics import read_topic
from pulsar_admin.store.names import parse_topic
from pulsar_admin.store.recovery.ack_history import read_history, state_in_force
from tests.live.comparing import unacknowledged
from tests.stores import lived
from tests.worlds import oracle

AT_REST_MS = 3_000
"""So long a cursor had not moved when it was recorded."""
SUBSCRIPTION = "walker"


class Standing(NamedTuple):
    """Where a cursor stood from when until when; ``begin_ms``: when it began to move there; ``name``: the state as its ledger has it."""

    topic: str
    begin_ms: int
    since_ms: int
    until_ms: int
    cursor: dict[str, str]
    name: str


def standings() -> Iterator[Standing]:
    """What was recorded, all but the last one of each topic: until when that one stood was not."""
    by_topic: dict[str, list[list[Any]]] = {}
    for move in oracle("lived")["moves"]:
        by_topic.setdefault(move[0], []).append(move)
    for topic, moves in by_topic.items():
        for (_, _, begin_ms, end_ms, mark_delete, ranges, ledger, entry, _), after in pairwise(moves):
            cursor = {"markDeletePosition": mark_delete, "individuallyDeletedMessages": ranges}
            yield Standing(topic, begin_ms, end_ms - AT_REST_MS, after[2], cursor, f"{ledger}:{entry}")


def test_a_time_is_answered_right_or_not_at_all() -> None:
    """Of the later 24 the journals are mostly there; of the earlier 12 only entry logs are, which were compacted meanwhile."""
    answers: dict[str, Counter[str]] = {"earlier": Counter(), "later": Counter()}
    rows, names = oracle("lived")["rows"], set[str]()
    asked = sorted(standings(), key=lambda one: one.since_ms)
    with open_store(lived()) as store, open_reader(store) as reader:
        topics = {one.topic: read_topic(reader.txn, parse_topic(one.topic)) for one in asked}
        past = read_history(reader, SUBSCRIPTION, topics.values(), (), lambda *_: nullcontext(lambda _: None))
        for number, one in enumerate(asked):
            topic = topics[one.topic]
            states = [*past.states(reader, topic, SUBSCRIPTION)]
            written = next((state for state in states if state.name == one.name), None)
            # What a cursor ledger could not take any more went into the metadata, and the broker names the entry before.
            if written is not None and one.name not in names:
                assert written.not_before is not None
                assert written.not_after is not None
                assert written.not_before.time_ms <= one.since_ms
                assert written.not_after.time_ms >= one.begin_ms
            names.add(one.name)
            at_ms = (one.since_ms + one.until_ms) // 2
            counts = answers["earlier" if number < 12 else "later"]
            try:
                cursor = read_cursor(reader.txn, reader, topic, SUBSCRIPTION)
                chosen = state_in_force(iter(states), topic, cursor, at_ms, "refuse")
            except Refused:
                counts["refused"] += 1
                continue
            assert chosen.state is not None
            found = {
                "markDeletePosition": str(chosen.state.mark_delete),
                "individuallyDeletedMessages": range_text(chosen.state.ranges),
            }
            assert unacknowledged(rows[one.topic], found) == unacknowledged(rows[one.topic], one.cursor), one
            counts["right"] += 1
    assert answers == {"earlier": {"right": 2, "refused": 10}, "later": {"right": 18, "refused": 6}}
