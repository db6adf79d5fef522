"""Cursors reset offline are where the real broker goes on, and nothing else moved."""

import random
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pytest
from msgspec import Struct

from tests.live.comparing import facts_of, first_unacknowledged, moved
from tests.live.conftest import Live, run_toolkit
from tests.live.producing import open_client, receive_first
from tests.live.recipe import INTERRUPTED, PLAIN, STEADY, ask
from tests.worlds import assert_unchanged, digest_of

pytestmark = pytest.mark.live

Entry = tuple[int, int]


class Reset(Struct, frozen=True):
    """One ``topics reset-cursor``: its options and the entry that must come first afterwards."""

    topic: str
    subscription: str
    options: tuple[str, str]
    first: Entry


def _resets(said: dict[str, Any], seed: int) -> list[Reset]:
    """By position, by position on a cursor with holes, by time: the broker itself said which entry that time finds."""
    rng = random.Random(f"{seed} resets")
    ledger_truth, holes = (tuple(row[:2]) for row in rng.sample(said["rows"][PLAIN], 2))
    entries = {(row[0], row[1]) for row in said["rows"][STEADY]}
    probes = [probe for probe in said["probes"] if probe[0] == STEADY and tuple(probe[2]) in entries]
    _, time_ms, found = rng.choice(probes)
    return [
        Reset(PLAIN, "reset-cursor-ledger", ("-m", f"{ledger_truth[0]}:{ledger_truth[1]}"), ledger_truth),
        Reset(PLAIN, "reset-holes", ("-m", f"{holes[0]}:{holes[1]}"), holes),
        Reset(STEADY, "reset-time", ("-t", f"@{time_ms}"), tuple(found)),
    ]


def _check_starting_point(said: dict[str, Any], killed: bool) -> None:
    """The world is worth the test: holes beyond what metadata holds, and after a kill the truth in cursor ledgers."""
    holes = said["internal"][PLAIN]["cursors"]["reset-holes"]
    assert holes["totalNonContiguousDeletedMessagesRange"] > 5
    for subscription in ("reset-cursor-ledger", "reset-holes"):
        info = said["info"][PLAIN]["cursors"][subscription]
        cursor = said["internal"][PLAIN]["cursors"][subscription]
        assert info["cursorsLedgerId"] >= 0, "the broker has not opened a cursor ledger"
        stale = info["markDelete"]
        assert (
            f"{stale['ledgerId']}:{stale['entryId']}" != cursor["markDeletePosition"] or subscription == "reset-holes"
        )
    assert killed or not said["confirmed"]


def _change_offline(store: Path, resets: list[Reset], said: dict[str, Any]) -> None:
    for reset in resets:
        change = run_toolkit(store, "topics", "reset-cursor", reset.topic, "-s", reset.subscription, *reset.options)
        before = said["internal"][reset.topic]["cursors"][reset.subscription]
        assert change["before"]["markDeletePosition"] == before["markDeletePosition"]
        assert change["dryRun"] is False


def _expected_firsts(said: dict[str, Any], resets: list[Reset]) -> dict[tuple[str, str], Entry | None]:
    """What the broker's own account, and the resets, say must come first for every subscription."""
    firsts = {
        (topic, unquote(encoded)): first_unacknowledged(said["rows"][topic], cursor)
        for topic, internal in said["internal"].items()
        for encoded, cursor in internal["cursors"].items()
    }
    return firsts | {(reset.topic, reset.subscription): reset.first for reset in resets}


def _predicted_firsts(store: Path, subscriptions: list[tuple[str, str]]) -> dict[tuple[str, str], Entry | None]:
    """What the toolkit predicts."""
    found: dict[tuple[str, str], Entry | None] = {}
    for topic, subscription in subscriptions:
        peeked = run_toolkit(store, "topics", "peek-messages", topic, "-s", subscription, "-n", 1)
        found[topic, subscription] = (peeked[0]["ledgerId"], peeked[0]["entryId"]) if peeked else None
    return found


def _check_facts(said: dict[str, Any], after: dict[str, Any], resets: list[Reset]) -> None:
    """Nothing but the three cursors moved, and they stand right before their entry with nothing acknowledged after."""
    changes = moved(facts_of(said), facts_of(after))
    names = {f"{reset.topic} {reset.subscription}" for reset in resets}
    kinds = ("mark-delete", "acknowledged", "backlog", "backlog bytes")
    allowed = {f"{name} {kind}" for name in names for kind in kinds}
    strangers = {name: change for name, change in changes.items() if not name.startswith(INTERRUPTED)}
    assert {name: change for name, change in strangers.items() if name not in allowed} == {}
    for reset in resets:
        positions = sorted({(row[0], row[1]) for row in said["rows"][reset.topic]})
        cursor = after["internal"][reset.topic]["cursors"][quote(reset.subscription, safe="")]
        statistics = after["stats"][reset.topic]["subscriptions"][reset.subscription]
        assert cursor["individuallyDeletedMessages"] == "[]"
        assert first_unacknowledged(after["rows"][reset.topic], cursor) == reset.first
        assert statistics["msgBacklog"] == sum(position >= reset.first for position in positions)


def _check_interrupted(said: dict[str, Any], after: dict[str, Any]) -> None:
    if said["confirmed"]:
        found = {(row[0], row[1], row[2], row[4]) for row in after["rows"][INTERRUPTED]}
        assert {tuple(row) for row in said["confirmed"]} <= found


def test_the_broker_goes_on_where_the_store_says(live: Live) -> None:
    world, said = live.world, live.world.said
    _check_starting_point(said, live.killed)
    resets = _resets(said, world.seed)
    expected = _expected_firsts(said, resets)
    with assert_unchanged(world.broker.data):
        _change_offline(live.store, resets, said)
        assert _predicted_firsts(live.store, list(expected)) == expected
    bookkeeper = digest_of(world.broker.data / "bookkeeper")
    run_toolkit(live.store, "store", "export", "standalone", world.broker.data, "--in-place", "--yes")
    assert digest_of(world.broker.data / "bookkeeper") == bookkeeper, "export wrote outside the metadata"

    world.broker.start()
    after = ask(world.broker)
    _check_facts(said, after, resets)
    _check_interrupted(said, after)
    client = open_client(world.broker.service_url)
    for (topic, subscription), entry in expected.items():
        received = receive_first(client, topic, subscription, comes=entry is not None)
        assert (received and tuple(received[:2])) == entry, f"{topic} {subscription}"
        digests = {row[4] for row in said["rows"][topic] if (row[0], row[1]) == entry}
        assert received is None or received[3] in digests, f"{topic} {subscription}"
    client.close()
    world.broker.stop()
