"""Which bookies should hold an entry, and where a recovery closes a ledger: against brute force on upstream's rules."""

import random
from collections import Counter
from itertools import permutations

import numpy as np

from pulsar_admin.store.codec.ledgermetadata import LedgerMetadata, LedgerState, Segment
from pulsar_admin.store.model.coverage import Coverage, OpenEnd, count_copies, find_open_end, stripes_of, write_set

NAMES = [f"bk{number}" for number in range(7)]
Held = dict[str, set[int]]


def ledger(segments: list[tuple[int, tuple[str, ...]]], write_quorum: int, ack_quorum: int) -> LedgerMetadata:
    return LedgerMetadata(
        version=3,
        write_quorum=write_quorum,
        ensemble_size=len(segments[0][1]),
        ack_quorum=ack_quorum,
        length=0,
        last_entry_id=-1,
        state=LedgerState.OPEN,
        segments=tuple(Segment(first, members) for first, members in segments),
    )


def random_ledger(rng: random.Random) -> LedgerMetadata:
    size = rng.randint(1, 5)
    write_quorum = rng.randint(1, size)
    starts = sorted(rng.sample(range(1, 40), rng.randint(0, 3)))
    segments = [(first, tuple(rng.sample(NAMES, size))) for first in (0, *starts)]
    return ledger(segments, write_quorum, rng.randint(1, write_quorum))


def upstream_write_set(metadata: LedgerMetadata, entry_id: int) -> list[str]:
    """``RoundRobinDistributionSchedule.getWriteSet`` on ``LedgerMetadata.getEnsembleAt``: the last ensemble that begins at or before."""
    members = [s.members for s in metadata.segments if s.first_entry_id <= entry_id][-1]
    return [members[(entry_id + w) % metadata.ensemble_size] for w in range(metadata.write_quorum)]


def test_the_example_of_the_specification() -> None:
    metadata = ledger([(0, ("b0", "b1", "b2"))], 2, 2)
    assert [write_set(metadata, entry) for entry in range(3)] == [("b0", "b1"), ("b1", "b2"), ("b2", "b0")]


def test_write_sets_and_expected_entries() -> None:
    rng = random.Random(17)
    for _ in range(300):
        metadata, last = random_ledger(rng), rng.randint(-1, 60)
        everything = np.arange(-2, 70)
        stripes = list(stripes_of(metadata, last))
        assert [entry for stripe in stripes for entry in range(stripe.first, stripe.last + 1)] == list(range(last + 1))
        for entry in range(70):
            assert list(write_set(metadata, entry)) == upstream_write_set(metadata, entry)
        for bookie in NAMES:
            should = [entry for entry in range(last + 1) if bookie in upstream_write_set(metadata, entry)]
            assert sum(stripe.count(bookie) for stripe in stripes) == len(should)
            found = [everything[stripe.holds(bookie, everything)].tolist() for stripe in stripes]
            assert [entry for part in found for entry in part] == should


def counted_one_by_one(
    metadata: LedgerMetadata,
    last: int,
    bookies: tuple[set[str], set[str]],
    files: tuple[Held, Held],
    damaged: set[tuple[str, int]],
) -> tuple[list[int], int, int, int, int, int, dict[str, tuple[int, ...]]]:
    """BOOKIES: imported, gone; FILES: what bookies serve, what their files have."""
    (imported, gone), (served, held) = bookies, files
    on, unknown, short, lost, outside, lowest = [0] * (metadata.write_quorum + 1), 0, 0, 0, 0, metadata.write_quorum
    rows = {member: [0, 0, 0, 0, 0] for segment in metadata.segments for member in segment.members}
    for entry in range(last + 1):
        there = upstream_write_set(metadata, entry)
        copies = sum(bookie in imported and entry in served.get(bookie, ()) for bookie in there)
        known = sum(bookie in imported | gone for bookie in there)
        on[copies] += 1
        unknown += known < len(there)
        short += copies < known
        is_somewhere = any(entry in entries for entries in held.values())
        lost += copies == 0 and known == len(there) and not is_somewhere
        outside += copies == 0 and known == len(there) and is_somewhere
        lowest = min(lowest, copies) if copies < known else lowest
        for bookie in there:
            has, is_bad = entry in served.get(bookie, ()), (bookie, entry) in damaged
            row = rows[bookie]
            row[0] += 1
            row[1] += has
            row[2] += not has and is_bad
            row[3] += not has and not is_bad and bookie in imported | gone
            row[4] += not has and not is_bad and entry in held.get(bookie, ())
    return on, unknown, short, lost, outside, lowest, {name: tuple(row) for name, row in rows.items()}


def test_copies_of_entries() -> None:
    rng = random.Random(23)
    for _ in range(300):
        metadata, last = random_ledger(rng), rng.randint(-1, 60)
        imported = {name for name in NAMES if rng.random() < 0.8}
        gone = {name for name in NAMES if name not in imported and rng.random() < 0.5}
        held = {name: {e for e in range(last + 9) if rng.random() < 0.8} for name in imported}
        served = {name: {e for e in entries if rng.random() < 0.7} for name, entries in held.items()}
        damaged = {(name, e) for name in imported for e in range(last + 3) if rng.random() < 0.1}
        arrays = [
            {name: np.array(sorted(entries), np.int64) for name, entries in one.items()} for one in (served, held)
        ]
        bad = [(*row, False) for row in damaged]
        found = count_copies(metadata, last, frozenset(imported), arrays[0], bad, gone=frozenset(gone), held=arrays[1])
        rows = {r.bookie: (r.expected, r.held, r.damaged, r.missing, r.unserved) for r in found.bookies}
        expected = counted_one_by_one(metadata, last, (imported, gone), (served, held), damaged)
        counts = (list(found.on), found.unknown, found.short, found.lost, found.outside, found.lowest)
        assert (*counts, rows) == expected


def test_a_ledger_without_end_costs_nothing() -> None:
    """Metadata may claim any last entry."""
    metadata = ledger([(0, ("b0", "b1", "b2"))], 2, 2)
    found: Coverage = count_copies(metadata, (1 << 62) - 1, frozenset({"b0", "b1"}), {"b0": np.array([0, 2], np.int64)})
    assert found.on == ((1 << 62) - 2, 2, 0)
    assert found.lost + found.unknown + 1 == 1 << 62


# -- where a recovery closes a ledger -------------------------------------------------------------------------------------


def recoveries(metadata: LedgerMetadata, confirmed: int, answers: dict[str, dict[int, str]]) -> set[int | None]:
    """Every end that a recovery can come to, None for one that fails, over all orders in which bookies answer.

    ``LedgerRecoveryOp.doRecoveryRead`` and ``PendingReadOp.ParallelReadRequest``: an entry is read when a good record comes before
    write quorum − ack quorum + 1 bookies said that they have none, which ends the ledger; when all have answered and neither came
    about, the recovery fails.
    """
    required, ends, front = metadata.write_quorum - metadata.ack_quorum + 1, set[int | None](), {confirmed}
    while front:
        entry = front.pop() + 1
        asked = upstream_write_set(metadata, entry)
        for order in permutations(asked):
            missing = 0
            for bookie in order:
                answer = answers[bookie].get(entry, "none")
                if answer == "good":
                    front.add(entry)
                    break
                missing += answer == "none"
                if missing >= required:
                    ends.add(entry - 1)
                    break
            else:
                ends.add(None)
    return ends


def random_answers(
    rng: random.Random, entries: int, good: int
) -> tuple[LedgerMetadata, int, dict[str, dict[int, str]], list[str]]:
    """Return a ledger, its last confirmed entry, what each bookie says of the entries behind that, and the bookies that are imported."""
    metadata = random_ledger(rng)
    confirmed = max(metadata.segments[-1].first_entry_id - 1, rng.randint(-1, 50))
    answers = {name: dict[int, str]() for name in metadata.segments[-1].members}
    for entry in range(confirmed + 1, confirmed + 1 + entries):
        for name in upstream_write_set(metadata, entry):
            answers[name][entry] = rng.choice(["good"] * good + ["none", "bad"])
    return metadata, confirmed, answers, [name for name in answers if rng.random() < 0.8]


def test_the_end_is_where_recoveries_end() -> None:
    rng, verdicts = random.Random(31), set()
    for _ in range(1500):
        metadata, confirmed, answers, imported = random_answers(rng, 5, 8)
        held, damaged = (
            {name: {e for e, answer in answers[name].items() if answer == kind} for name in imported}
            for kind in ("good", "bad")
        )
        found: OpenEnd = find_open_end(metadata, confirmed, imported, held, damaged)
        possible = recoveries(metadata, confirmed, answers)
        certain = {end for end in possible if end is not None}
        assert all(end >= found.kept for end in certain)
        verdicts.add(found.verdict)
        if len(imported) < len(answers):
            if found.verdict == "final":
                behind = found.last_entry_id + 1
                stored = sum(answers[name].get(behind) == "good" for name in upstream_write_set(metadata, behind))
                assert stored < metadata.ack_quorum  # nobody was told that it is there
            continue
        assert found.verdict in ("final", "damaged")
        assert (found.verdict == "damaged") == (found.last_entry_id not in certain)
        if found.verdict == "final":
            assert max(certain) == found.last_entry_id
        if None not in possible:
            assert found.kept == min(certain)
    assert verdicts == {"final", "open", "damaged"}


def last_confirmed_is_read(metadata: LedgerMetadata, silent: set[str]) -> bool:
    """``ReadLastConfirmedOp`` with ``RoundRobinDistributionSchedule.getCoverageSet``: of no write set may an ack quorum be silent."""
    first = metadata.segments[-1].first_entry_id
    sets = (upstream_write_set(metadata, first + place) for place in range(metadata.ensemble_size))
    return all(sum(bookie in silent for bookie in one) < metadata.ack_quorum for one in sets)


def test_a_recovery_fails_without_the_bookies_that_it_needs() -> None:
    """Bookies whose last record is damaged tell no last entry: over all of the others that are imported, or not and down."""
    rng, seen = random.Random(7), Counter[str]()
    for _ in range(3000):
        metadata, confirmed, answers, imported = random_answers(rng, 3, 4)
        mute = {name for name in imported if "bad" in [*answers[name].values(), ""][-1:] or rng.random() < 0.2}
        held, damaged = (
            {name: {e for e, answer in answers[name].items() if answer == kind} for name in imported}
            for kind in ("good", "bad")
        )
        found: OpenEnd = find_open_end(metadata, confirmed, imported, held, damaged, (), mute)
        down = {name: dict.fromkeys(range(confirmed + 1, confirmed + 9), "bad") for name in found.needs}
        fails = not last_confirmed_is_read(metadata, {*mute, *found.needs})
        if found.verdict == "damaged" and found.bookies:
            assert fails
            seen["mute"] += 1
        elif found.needs:
            assert fails or recoveries(metadata, confirmed, answers | down) >= {None}
            seen["needs, to the last entry" if fails else "needs, to the next one"] += 1
        elif len(imported) == len(answers):
            assert not fails
            seen["all there"] += 1
    assert min(seen.values()) > 20
    assert len(seen) == 4


def test_a_bookie_that_is_gone_does_not_say_that_it_lacks_an_entry() -> None:
    metadata = ledger([(0, ("bk0", "bk1", "bk2"))], 2, 2)
    held = {"bk0": {0}, "bk1": {0, 1}}
    found: OpenEnd = find_open_end(metadata, -1, held, held, {}, gone=["bk2"])
    answers = {name: dict.fromkeys(entries, "good") for name, entries in held.items()}
    assert recoveries(metadata, -1, answers | {"bk2": dict.fromkeys(range(3), "bad")}) == {found.kept} == {1}
