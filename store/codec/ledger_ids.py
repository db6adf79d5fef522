"""Which ledger ids a ZooKeeper has given, by the paths of its nodes.

Upstream ``ZkLedgerIdGenerator`` and ``LongZkLedgerIdGenerator`` (BookKeeper 4.17), ``PulsarLedgerIdGenerator`` (Pulsar 4.0.8): an id is the
number of a sequential node, which is how many were made below ``idgen`` before it, or below ``idgen-long/HOB-N``, which has the upper half.
"""

from __future__ import annotations

import re

_LAYOUT = "/LAYOUT"
_GIVEN = re.compile(r"(.*)/(?:idgen|idgen-long/HOB-(\d{10}))(?:/ID-(-?\d{10,}))?")


class LedgerIds:
    """Follows the ids that are given below each root of ledgers, such as ``/ledgers``: one ZooKeeper may serve several clusters."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}
        self._roots: set[str] = set()

    def see(self, path: str, children_made: int = 0) -> None:
        """Note the node at PATH, below which CHILDREN_MADE nodes were ever made."""
        if path.endswith(_LAYOUT):
            self._roots.add(path[: -len(_LAYOUT)])
        elif "/idgen" in path and (found := _GIVEN.fullmatch(path)):
            root, high, number = found.groups()
            given = children_made if number is None else int(number) + 1
            self._next[root] = max(self._next.get(root, 0), (int(high or 0) << 32) | given)

    def moved(self, root: str, to: str) -> LedgerIds:
        """Return those below ROOT as if that were TO."""
        found = LedgerIds()
        if root in self._next:
            found._next[to] = self._next[root]
        if root in self._roots:
            found._roots.add(to)
        return found

    def next_id(self, root: str, *, whole: bool) -> int | None:
        """Return the id that is given next below ROOT, None where that is not known. WHOLE: every node was seen.

        The first id makes ``idgen``, so a root that has a layout and no ``idgen`` has given none.
        """
        return self._next.get(root, 0 if whole and root in self._roots else None)
