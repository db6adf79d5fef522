"""Python: what would be lost, and earlier acknowledgements."""

from __future__ import annotations

from pathlib import Path

import pytest

import pulsar_admin as pa
from tests.recovery.test_preflight import BOOKIES, listed, replayed, rows_of
from tests.stores import copied, imported
from tests.worlds import CLUSTER, oracle, world

FRESH, HOLES = "public/default/fresh", "crash-holes"


def test_what_bookies_would_delete_is_what_the_metadata_does_not_list(tmp_path: Path) -> None:
    root = world(CLUSTER) / "crashed"
    alive = listed(root / "zookeeper" / "version-2")
    with pa.open_store(imported(CLUSTER, "crashed")) as store:
        found = sorted((one.holds.ledgers, one.loses.ledgers) for one in store.preflight().bookies)
        emptied = store.preflight(empty=True)
        with pytest.raises(pa.InvalidValue, match="no topics"):
            store.preflight(empty=True, brokers=True)
    given = pa.preflight(metadata=root / "zookeeper", bookies=[str(root / name) for name in BOOKIES], brokers=True)
    assert sorted((one.holds.ledgers, one.loses.ledgers) for one in given.bookies) == found
    assert given.brokers is not None
    assert all(one.loses.ledgers == one.holds.ledgers for one in emptied.bookies)
    with pytest.raises(pa.InvalidValue, match="no topics"):
        pa.preflight(bookies=[str(root / name) for name in BOOKIES], brokers=True)
    counted = []
    for name in BOOKIES:
        current = root / name / "current"
        held = {int.from_bytes(key[:8], signed=True) for key in rows_of(current / "ledgers", tmp_path)}
        held = {ledger_id for ledger_id in held if ledger_id >= 0} | replayed(current)
        counted.append((len(held), len(held - alive)))
    assert found == sorted(counted)


def test_states_of_a_subscription_come_back_holes_included(tmp_path: Path) -> None:
    """What each state has acknowledged behind its mark-delete position, the consumer had sent."""
    sent = {(ledger, entry) for ledger, entry, _ in oracle(CLUSTER)["crash"]["acks_sent"][f"{FRESH} {HOLES}"]}
    with pa.open_store(copied(CLUSTER, "crashed", tmp_path), writable=True) as store:
        cursor = store.topic(FRESH).cursor(HOLES)
        states = {one.name: one for one in cursor.history()}
        before = cursor.state()
        assert [*states][-1] == "269:19"
        for one in states.values():
            for lower, upper in one.state.ranges:
                span = range(lower.entry_id + 1, upper.entry_id + 1)
                assert lower.ledger_id == upper.ledger_id
                assert {(upper.ledger_id, entry) for entry in span} <= sent
        wanted = states["269:12"].state
        number = store.apply(cursor.reset(as_of="269:12")).number
        assert (cursor.state().mark_delete, cursor.state().individually_deleted) == (
            wanted.mark_delete,
            tuple(wanted.ranges),
        )
        assert cursor.state() != before
        assert number is not None
        store.undo(number)
        assert cursor.state() == before
        with pytest.raises(pa.Refused, match="may have been at 16 states"):
            cursor.reset(as_of=1795253616300)
        assert not cursor.reset(as_of=1795253616300, if_unsure="oldest").changes_nothing
        with pytest.raises(pa.EntryNotFound, match="has no state 269:99"):
            cursor.reset(as_of="269:99")
        with pytest.raises(pa.SubscriptionNotFound):
            store.topic(FRESH).cursor("never-there").history()
