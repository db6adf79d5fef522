"""``ledgers restore``: the metadata of every referenced ledger that real Pulsars wrote, taken away and made again, is what it was."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pulsar_admin.store.changes.ledger_metadata import find_ensembles, restored_metadata
from pulsar_admin.store.codec.ledgermetadata import LedgerMetadata, LedgerState, Segment
from pulsar_admin.store.db.owners import iter_owners
from pulsar_admin.store.errors import Refused
from pulsar_admin.store.model.ledgers import find_metadata
from pulsar_admin.store.model.reader import EntryReader
from tests.deep import deep_but_for
from tests.stores import imported, read_store
from tests.worlds import CLUSTER, STATES, WORLD_NAMES


def of_closed(reader: EntryReader) -> dict[int, tuple[LedgerMetadata, LedgerMetadata]]:
    found = {}
    for ledger_id, owners in iter_owners(reader.txn):
        metadata = find_metadata(reader.txn, ledger_id)
        if metadata is not None and metadata.state is LedgerState.CLOSED and metadata.last_entry_id >= 0:
            found[ledger_id] = (metadata, restored_metadata(reader, ledger_id, owners[0]))
    return found


@pytest.mark.parametrize("name", WORLD_NAMES)
@deep_but_for((2,), "state", STATES)
def test_every_ledger_of_the_recorded_worlds(name: str, state: str) -> None:
    found = read_store(imported(name, state), of_closed)
    assert found
    for ledger_id, (metadata, restored) in found.items():
        assert restored == metadata, ledger_id


@deep_but_for((0, 2), "state", STATES)
def test_every_ledger_of_the_recorded_cluster(state: str) -> None:
    """Three bookies, write quorum 2: equal, but for the order of bookies that too few entries tell."""
    found = read_store(imported(CLUSTER, state), of_closed)
    striped = 0
    for ledger_id, (metadata, restored) in found.items():
        assert replace(restored, segments=metadata.segments) == metadata, ledger_id
        assert holders_of(restored) == holders_of(metadata)
        if metadata.last_entry_id + 1 >= metadata.ensemble_size:
            assert restored.segments == metadata.segments
            striped += 1
    assert striped > 50


BOOKIES = ("b1:3181", "b2:3181", "b3:3181", "b4:3181", "b5:3181")


@st.composite
def ledgers(draw: st.DrawFn) -> LedgerMetadata:
    """A ledger of one or more ensembles, each in place of one bookie of the one in front."""
    size = draw(st.integers(1, 4))
    members = draw(st.permutations(BOOKIES))[:size]
    firsts = draw(st.lists(st.integers(1, 40), max_size=3, unique=True).map(sorted))
    segments = [Segment(0, tuple(members))]
    for first in firsts:
        members = list(segments[-1].members)
        members[draw(st.integers(0, size - 1))] = draw(st.sampled_from([b for b in BOOKIES if b not in members]))
        segments.append(Segment(first, tuple(members)))
    last = draw(st.integers(max(firsts, default=0), 50))
    quorum = draw(st.integers(1, size))
    return LedgerMetadata(3, quorum, size, quorum, 9, last, LedgerState.CLOSED, tuple(segments))


def holders_of(metadata: LedgerMetadata) -> list[set[str]]:
    """By the rule itself: entry e is on the bookies at e, e + 1, … modulo the ensemble's size."""
    found = []
    for entry in range(metadata.last_entry_id + 1):
        members = [one.members for one in metadata.segments if one.first_entry_id <= entry][-1]
        found.append({members[(entry + k) % len(members)] for k in range(metadata.write_quorum)})
    return found


@given(ledgers(), st.booleans())
def test_ensembles_are_found_from_who_has_what(metadata: LedgerMetadata, knows_size: bool) -> None:
    holders = holders_of(metadata)
    held = {b: np.array([e for e, one in enumerate(holders) if b in one], np.int64) for b in BOOKIES}
    held = {bookie: entries for bookie, entries in held.items() if len(entries)}
    quorum, segments = find_ensembles(7, held, metadata.last_entry_id, metadata if knows_size else None)
    found = replace(metadata, write_quorum=quorum, segments=segments, ensemble_size=len(segments[0].members))
    assert holders_of(found) == holders
    assert {len(one.members) for one in segments} == {found.ensemble_size}
    assert all(len(set(one.members)) == len(one.members) for one in segments)
    if knows_size:
        assert len(segments) <= len(metadata.segments)


def test_what_cannot_be_told_is_refused() -> None:
    """A copy that is not here may be on a bookie that is not imported, or lost: nobody knows the ensemble then."""
    whole = np.arange(6, dtype=np.int64)
    with pytest.raises(Refused, match="entry 4 is on b1 alone, others on 2 bookies"):
        find_ensembles(7, {"b1": whole, "b2": whole[whole != 4]}, 5, None)
    with pytest.raises(Refused, match="is empty"):
        find_ensembles(7, {}, -1, None)
