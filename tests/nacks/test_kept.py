"""Kept nacks against a plain list of (time, subscription, position), through random additions, pops and undos."""

import random
from collections.abc import Iterable
from pathlib import Path

from pyroaring import BitMap64

from pulsar_admin.store.changes.nacks import plan_add, plan_pop, popped_groups
from pulsar_admin.store.changes.plan import NacksPart, apply_plan, plan_undo
from pulsar_admin.store.db import nacks as kept
from pulsar_admin.store.db.audit_log import read_change
from pulsar_admin.store.db.environment import Store, create_store, open_store
from pulsar_admin.store.rules.changes import check_nacks
from tests.deep import deep_but_for

OWNERS = [(f"persistent://a/b/{topic}", name) for topic in ("t", "t2") for name in ("s", "x" * 600)]
Row = tuple[int, tuple[str, str], int, int]  # bucket, owner, ledger, entry


class Model:
    """What is kept, as a set of rows; BITS per owner."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.rows: set[Row] = set()
        self.bits = {owner: self.random.choice((0, 1, 4, 8)) for owner in OWNERS}

    def drawn(self, now: int) -> list[tuple[tuple[str, str], int, int, int]]:
        """Draw nacks: owner, due time, ledger, entry."""
        owner = self.random.choice(OWNERS)
        count = self.random.randrange(1, 30)
        return [
            (owner, now + self.random.randrange(600), self.random.randrange(3), self.random.choice((0, 2**40)) + number)
            for number in range(count)
        ]

    def due(self, now: int) -> list[Row]:
        return sorted(row for row in self.rows if row[0] <= now)


def rows_of(groups: Iterable[kept.KeptGroup]) -> list[Row]:
    return [(g.due_ms, (g.topic, g.subscription), p.ledger_id, p.entry_id) for g in groups for p in g.positions()]


def listed(store: Store, now: int) -> list[Row]:
    with store.read() as txn:
        return rows_of(kept.iter_due(txn, kept.iter_trackers(txn), now))


def add(store: Store, model: Model, now: int) -> None:
    drawn = model.drawn(now)
    owner = drawn[0][0]
    groups: dict[tuple[int, int], BitMap64] = {}
    for _, due, ledger, entry in drawn:
        groups.setdefault((due, ledger), BitMap64()).add(entry)
    with store.read() as txn:
        plan = plan_add(txn, owner[1], {owner[0]: groups}, model.bits[owner])
    new = {(due >> model.bits[owner] << model.bits[owner], owner, ledger, entry) for _, due, ledger, entry in drawn}
    assert plan.parts[0].entries == len(new - model.rows)
    if plan.steps:
        apply_plan(store, plan, now)
    model.rows |= new
    for _, due, ledger, entry in drawn:  # never late, early by less than a bucket
        assert any(due - 2 ** model.bits[owner] < row[0] <= due for row in new if row[2:] == (ledger, entry))


def pop(store: Store, model: Model, now: int) -> None:
    expected = model.due(now)
    with store.read() as txn:
        plan = plan_pop(txn, kept.iter_due(txn, kept.iter_trackers(txn), now), now)
    assert sum(part.entries or 0 for part in plan.parts if isinstance(part, NacksPart)) == len(expected)
    assert bool(plan.steps) == bool(expected)
    if not plan.steps:
        return
    apply_plan(store, plan, now)
    with store.read() as txn:
        number = max(int.from_bytes(key, "big") for key, _ in txn.items("changes"))
        groups = list(popped_groups(read_change(txn, number)))
    assert rows_of(groups) == expected
    if model.random.random() < 0.4:
        with store.read() as txn:
            undo = plan_undo(txn, number)
        apply_plan(store, undo, now)
    else:
        model.rows -= set(expected)


@deep_but_for((0, 1), "seed", range(4))
def test_against_a_list(tmp_path: Path, seed: int) -> None:
    create_store(tmp_path / "store", now_ms=0)
    model = Model(seed)
    now = 10_000
    with open_store(tmp_path / "store", writable=True) as store:
        for _ in range(60):
            now += model.random.randrange(120)
            model.random.choice((add, add, pop))(store, model, now)
            assert listed(store, now) == model.due(now)
            assert listed(store, 2**63 - 1) == model.due(2**63 - 1)
        check_counts(store, model, now)


def check_counts(store: Store, model: Model, now: int) -> None:
    with store.read() as txn:
        assert [found for found in check_nacks(txn) if found.is_problem] == []
        for owner in OWNERS:
            tracker = kept.find_tracker(txn, *owner)
            rows = sorted(row for row in model.rows if row[1] == owner)
            if tracker is None:
                assert not rows
                continue
            stats = kept.read_stats(txn, tracker, now)
            assert kept.pending_entries(txn, tracker) == stats.entries == len(rows)
            assert stats.due_entries == sum(row[0] <= now for row in rows)
            assert stats.bitmaps == len({(row[0], row[2]) for row in rows})
            assert (stats.buckets, stats.ledgers) == (len({row[0] for row in rows}), len({row[2] for row in rows}))
            behind = min((row[0] for row in rows if row[0] > now), default=None)
            assert kept.next_deadline_ms(txn, tracker, now) == behind
