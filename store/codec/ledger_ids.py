"""The ledger ids that a ZooKeeper has allocated, computed from the paths of its nodes.

Upstream ``ZkLedgerIdGenerator`` and ``LongZkLedgerIdGenerator`` (BookKeeper 4.17), ``PulsarLedgerIdGenerator`` (Pulsar 4.0.8): an id is the
number of a sequential node, which is how many were made below ``idgen`` before it, or below ``idgen-long/HOB-N``, which has the upper half.
"""

from __future__ import annotations

import re

_LAYOUT = "/LAYOUT"
_GIVEN = re.compile(r"(.*)/(?:idgen|idgen-long/HOB-(\d{10}))(?:/ID-(-?\d{10,}))?")


class LedgerIds:
    """Tracks the ids allocated below each ledger root, such as ``/ledgers``: a ZooKeeper may serve several clusters."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}
        self._roots: set[str] = set()

    def see(self, path: str, children_made: int = 0) -> None:
        """Note a node below which ``children_made`` nodes were ever created."""
        if path.endswith(_LAYOUT):
            self._roots.add(path[: -len(_LAYOUT)])
        elif "/idgen" in path and (found := _GIVEN.fullmatch(path)):
            root, high, number = found.groups()
            given = children_made if number is None else int(number) + 1
            self._next[root] = max(self._next.get(root, 0), (int(high or 0) << 32) | given)

    def moved(self, root: str, to: str) -> LedgerIds:
        """Return the ids below ``root`` only, as ids below ``to``."""
        found = LedgerIds()
        if root in self._next:
            found._next[to] = self._next[root]
        if root in self._roots:
            found._roots.add(to)
        return found

    def next_id(self, root: str, *, whole: bool) -> int | None:
        """Return the next ledger id below ``root``, None if it is unknown. ``whole``: every node was seen.

        The first id creates ``idgen``, so a root with a layout and without ``idgen`` has allocated none.
        """
        return self._next.get(root, 0 if whole and root in self._roots else None)
