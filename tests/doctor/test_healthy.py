"""Recorded worlds: nothing is called broken that is not, and the clocks that were planted are found, all of them and no other."""

from typing import Any

import pytest

from pulsar_admin.store.facts.topics import Clocks
from pulsar_admin.store.rules.finding import Severity
from tests.deep import deep_but_for
from tests.doctor.test_checked import told
from tests.stores import imported
from tests.worlds import STATES, oracle

WORLDS = ("small", "nometa", "cluster")
NOTES = {"ledgers-gone", "ledgers-deleted", "leaked-schema-ledgers", "leaked-cursor-ledgers", "dead-bytes-kept"}
CLOCKS = {"clock-ahead", "clock-behind"}
CRASH = {"not-closed", "acknowledgements-not-stored", "entries-only-in-journal"}


@pytest.mark.parametrize("name", WORLDS)
@deep_but_for((2,), "state", STATES)
def test_no_false_alarm(name: str, state: str) -> None:
    found = told(imported(name, state))
    assert [one for one in found if one.severity is Severity.CRITICAL] == []
    warnings = {one.code for one in found if one.severity is Severity.WARNING}
    # Brokers that stamp entries search and expire by their own clock, whatever producers say.
    is_stamped = name != "nometa"
    assert warnings == (set() if is_stamped else CLOCKS)
    clocks = [one.message for one in found if one.code in CLOCKS]  # without a broker's times nobody knows its clock
    assert all(message.endswith("the broker's clock") == is_stamped for message in clocks)
    assert all((" by at least " in message) != is_stamped for message in clocks)
    notes = {one.code for one in found if one.severity is Severity.NOTE} - NOTES
    assert (notes >= CLOCKS) == is_stamped
    notes -= CLOCKS
    # A client had the stopping broker of the cluster load one topic again: see tests.worlds.TRIMMED.
    if (name, state) == ("cluster", "crashed"):  # an entry was in flight: one bookie has it
        assert "open-end-uncertain" in notes
        notes -= {"open-end-uncertain"}
    assert notes == (
        CRASH if state == "crashed" else {"not-closed"} if (name, state) == ("cluster", "clean") else set()
    )


def wrong_clocks(name: str) -> tuple[set[str], set[str]]:
    """Return the topics with messages ahead and behind by more than the tolerance, of ledgers that the broker said it closed.

    By what a client read and when the broker closed ledgers: a message came after the ledger in front was closed, and before its own.
    """
    answers = oracle(name)
    ahead, behind = set(), set()
    for topic, facts in answers["topics"].items():
        closed: dict[int, tuple[int, int]] = {}
        before = 0
        for ledger in _ledgers(facts):
            closed[ledger["ledgerId"]] = (before, ledger["timestamp"])
            before = ledger["timestamp"]
        for row in facts.get("messages") or ():
            opened_ms, closed_ms = closed.get(row[0], (0, 0))
            if closed_ms and row[3] > closed_ms + Clocks.TOLERANCE_MS:
                ahead.add(f"persistent://{topic}")
            if opened_ms and row[3] < opened_ms - Clocks.TOLERANCE_MS:
                behind.add(f"persistent://{topic}")
    return ahead, behind


def _ledgers(facts: dict[str, Any]) -> list[dict[str, Any]]:
    return list((facts.get("internal_info") or {}).get("ledgers") or ())


@pytest.mark.parametrize("name", WORLDS)
def test_wrong_clocks_are_those_that_the_client_saw(name: str) -> None:
    found = told(imported(name, "clean"))
    ahead, behind = wrong_clocks(name)
    assert ahead
    assert behind
    for code, expected in (("clock-ahead", ahead), ("clock-behind", behind)):
        topics = {one.evidence["topic"] for one in found if one.code == code}
        assert expected <= topics, code
