"""Which subscription a cursor ledger is of that nothing names: it begins where that subscription stood.

Upstream: ``ManagedCursorImpl.createNewMetadataLedger`` writes the position of the moment as the first entry of a new cursor ledger
(Pulsar 4.0.8). That its positions lie in ledgers of one topic is the first witness, that one subscription of it alone stood there the
second.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from pulsar_admin.store.codec.cursor import CursorState, decode_cursor_ledger
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.model.cursors import read_cursor_ledger
from pulsar_admin.store.model.ledgers import iter_entry_ids
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.references import COMPACTED_LEDGER
from pulsar_admin.store.model.topics import Topic
from pulsar_admin.store.recovery.evidence import COMPACTED, CURSOR, LedgerEvidence


class Unnamed(Struct, frozen=True):
    """A cursor ledger that nothing names: the states in its first and its last entry."""

    ledger_id: int
    first: CursorState
    last: CursorState


class Followed(Struct, frozen=True):
    """Where a subscription went on: its newest state, and the cursor ledgers that say so, in order. ``compacted``: a ledger, or −1."""

    state: CursorState
    ledger_ids: tuple[int, ...]
    compacted: int = -1

    @property
    def witnesses(self) -> tuple[str, ...]:
        if self.compacted >= 0:
            return (
                f"cursor ledger {self.ledger_ids[-1]} names compacted ledger {self.compacted}, and positions of this topic alone",
                f"compacted ledger {self.compacted} holds messages of this topic alone",
            )
        return tuple(
            f"cursor ledger {ledger_id} begins where this subscription alone stood, and names this topic alone"
            for ledger_id in self.ledger_ids
        )


def read_unnamed(reader: EntryReader, topic: Topic, evidence: Iterable[LedgerEvidence]) -> list[Unnamed]:
    """Return the cursor ledgers among EVIDENCE whose positions all lie in TOPIC, by id."""
    there = set(topic.ids)
    found = []
    for one in sorted(evidence, key=lambda each: each.ledger_id):
        if one.kind == CURSOR and one.points and one.points.keys() <= there:
            first, last = _first_state(reader, one.ledger_id), read_cursor_ledger(reader.txn, reader, one.ledger_id)[0]
            if first is not None and last is not None:
                found.append(Unnamed(one.ledger_id, first, last))
    return found


def _first_state(reader: EntryReader, ledger_id: int) -> CursorState | None:
    for entry_id in iter_entry_ids(reader.txn, ledger_id):
        try:
            payload = reader.read(ledger_id, entry_id).payload
            return decode_cursor_ledger([payload], f"cursor ledger {ledger_id}:{entry_id}")
        except StoreError:
            return None
    return None


def follow(topic: Topic, states: Mapping[str, CursorState], ledgers: Sequence[Unnamed]) -> dict[str, Followed]:
    """Return the subscriptions of TOPIC that go on in LEDGERS, from where each stood by STATES.

    A ledger at whose beginning two of them stood, or two ledgers that begin where one stood, are of none.
    """
    now = {name: Followed(state, ()) for name, state in states.items()}
    left = list(ledgers)
    while True:
        pairs = [(name, one) for one in left for name, at in now.items() if _is_same(at.state, one.first)]
        names, ids = [name for name, _ in pairs], [one.ledger_id for _, one in pairs]
        sure = [
            (name, one)
            for name, one in pairs
            if names.count(name) == 1 and ids.count(one.ledger_id) == 1 and _is_distinct(topic, one.first)
        ]
        if not sure:
            return {name: at for name, at in now.items() if at.ledger_ids}
        for name, one in sure:
            now[name] = Followed(one.last, (*now[name].ledger_ids, one.ledger_id))
            left.remove(one)


def newest_compaction(
    topic: Topic, ledgers: Sequence[Unnamed], evidence: Mapping[int, LedgerEvidence]
) -> Followed | None:
    """Return the newest compaction of TOPIC that a cursor ledger and a compacted ledger both say is of this topic alone."""
    there = set(topic.ids)
    found = []
    for one in ledgers:
        compacted = evidence.get(one.last.properties.get(COMPACTED_LEDGER, -1))
        if compacted is None or compacted.kind != COMPACTED or not compacted.is_whole:
            continue
        points = compacted.points.keys()
        # What was trimmed before has no entries any more; a ledger of another topic has some.
        if points & there and not (points - there) & evidence.keys():
            found.append(Followed(one.last, (one.ledger_id,), compacted.ledger_id))
    return max(found, key=lambda one: one.ledger_ids, default=None)


def _is_same(a: CursorState, b: CursorState) -> bool:
    return (a.mark_delete, a.ranges, dict(a.properties)) == (b.mark_delete, b.ranges, dict(b.properties))


def _is_distinct(topic: Topic, state: CursorState) -> bool:
    """Whether a subscription that was made since would hardly stand there: those begin at an end of the topic."""
    return bool(state.ranges) or 0 < topic.place(state.mark_delete) < topic.number_of_entries
