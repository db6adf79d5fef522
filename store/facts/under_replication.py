"""Under-replication marks, nodes by which BookKeeper's auditor requests replication, compared with the copies that ledgers lack."""

import re
from collections.abc import Iterator
from contextlib import suppress

from msgspec import Struct

from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.owners import has_owners
from pulsar_admin.store.db.tree import find_node, iter_nodes
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.facts.unlisted import Unlisted, UnlistedLedgers
from pulsar_admin.store.model.coverage import read_confirmed
from pulsar_admin.store.model.ledgers import find_ledger, find_times

MARKS = "/ledgers/underreplication/ledgers/"
"""Of ``ZkLedgerUnderreplicationManager`` (BookKeeper 4.17): below it a node ``urL0000000009`` for a ledger, in four levels of its id."""
_LEVELS = 4
REPLICA = re.compile(r'^\s*replica:\s*"([^"]*)"', re.MULTILINE)


class Mark(Struct, frozen=True):
    """The mark of a ledger. ``bookies``: those that lack entries, according to the mark; ``is_gone``: the ledger was deleted or never
    existed; otherwise ``is_complete``: no entry lacks a copy.

    If neither holds, entries lack copies, or that is unknown.
    """

    ledger_id: int
    path: str
    bookies: tuple[str, ...]
    is_gone: bool
    is_complete: bool

    @property
    def is_stale(self) -> bool:
        """Whether there is nothing to replicate."""
        return self.is_gone or self.is_complete


def iter_marks(txn: Txn) -> Iterator[Mark]:
    """Yield the marks in the order of their nodes; the mark of a ledger in an unknown state is not stale."""
    unlisted = UnlistedLedgers(txn)
    for node in iter_nodes(txn, MARKS):
        name = node.path.rpartition("/urL")[2]
        if name.isascii() and name.isdigit():
            ledger_id, is_gone, is_complete = int(name), False, False
            with suppress(StoreError):  # the checks tell of what cannot be read
                is_gone = unlisted.is_freed(ledger_id) or _is_nowhere(unlisted, txn, ledger_id)
                is_complete = not is_gone and _is_complete(txn, ledger_id)
            bookies = tuple(REPLICA.findall(node.value.decode(errors="replace")))
            yield Mark(ledger_id, node.path, bookies, is_gone, is_complete)


def _is_nowhere(unlisted: UnlistedLedgers, txn: Txn, ledger_id: int) -> bool:
    """Whether a ledger has no node, no owner and no entry in any file: its mark was created by hand, or by another cluster's auditor."""
    is_newer = unlisted.is_absent(ledger_id) and unlisted.why(ledger_id) is Unlisted.NEWER
    return is_newer and unlisted.is_whole and not has_owners(txn, ledger_id) and find_times(txn, ledger_id) is None


def _is_complete(txn: Txn, ledger_id: int) -> bool:
    """Whether every entry of a ledger is on as many bookies as its write quorum, all of which were imported."""
    ledger = find_ledger(txn, ledger_id)
    if ledger is None or ledger.metadata is None:
        return False
    coverage = read_confirmed(txn, ledger)
    return coverage is not None and not (coverage.short or coverage.unknown or coverage.lost)


def iter_emptied(txn: Txn, paths: frozenset[str]) -> Iterator[str]:
    """Yield the nodes above the marks at ``paths`` that have nothing else below them, as a replication worker removes them."""
    parents = {path.rsplit("/", level)[0] for path in paths for level in range(1, _LEVELS + 1)}
    gone = set(paths)
    for parent in sorted(parents, key=len, reverse=True):
        below = {node.path for node in iter_nodes(txn, f"{parent}/")}
        if below <= gone:
            gone.add(parent)
            if find_node(txn, parent) is not None:
                yield parent
