"""Removing under-replication marks of ledgers that are gone or complete."""

from __future__ import annotations

from collections.abc import Sequence

from store.changes.plan import ChangePart, Plan, delete_step
from store.db.environment import Txn
from store.errors import NotFound, Refused
from store.facts.marks import iter_emptied, iter_marks
from store.wording import listed, plural

_NAMED = 10


def plan_unmark(txn: Txn, ledgers: Sequence[int], *, force: bool = False) -> Plan:
    """Plan that LEDGERS, or none: all that are gone or complete, are marked as under-replicated no more.

    Raises NotFound for a ledger without a mark, and unless FORCE Refused for one that lacks copies or that nobody can judge.
    """
    marks = {mark.ledger_id: mark for mark in iter_marks(txn)}
    unmarked = [one for one in ledgers if one not in marks]
    if unmarked:
        raise NotFound(
            f"no under-replication mark of {plural(len(unmarked), 'ledger')} {listed(unmarked, _NAMED)}",
            hint="list the marks with: pulsar-admin bookkeeper listunderreplicated",
        )
    chosen = [marks[one] for one in dict.fromkeys(ledgers)] or [mark for mark in marks.values() if mark.is_stale]
    needed = [mark.ledger_id for mark in chosen if not mark.is_stale]
    if needed and not force:
        raise Refused(
            f"{plural(len(needed), 'ledger')} {listed(needed, _NAMED)} {plural(len(needed), 'lacks', 'lack')} copies, or may lack some: the"
            f" {plural(len(needed), 'mark has', 'marks have')} a reason",
            hint="see: pulsar-admin ledgers underreplicated; add --force to remove the marks all the same",
            ledgerIds=needed,
        )
    paths = frozenset(mark.path for mark in chosen)
    steps = tuple(delete_step(txn, path) for path in (*sorted(paths), *iter_emptied(txn, paths)))
    parts = tuple(
        ChangePart(
            resource=f"mark of ledger {mark.ledger_id}",
            before={"ledgerId": mark.ledger_id, "missingReplicas": list(mark.bookies), "isGone": mark.is_gone},
        )
        for mark in sorted(chosen, key=lambda mark: mark.ledger_id)
    )
    nothing = (ChangePart(resource="marks", before={"marks": len(marks)}, after={"marks": len(marks)}),)
    return Plan("ledgers unmark", txn.id, steps, parts or nothing)
