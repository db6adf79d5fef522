"""For each rule a fault: exactly what it brings is found, the printed command is run as it stands, and then all is as before.

A finding whose printed command only looks says so (``look:``): which those are, and why, is the second table. Faults that need files
of a bookie or metadata of their own have tests of their own, which the third table names.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

from pulsar_admin.cures import look_first
from store.codec.cursor import CursorInfo, encode_cursor_info
from store.codec.ledgermetadata import ledger_path
from store.codec.rocksvalue import NodeStat
from store.db.environment import open_store
from store.db.tree import Node, put_nodes, tree_key
from store.doctor import Diagnosis
from store.model.references import index_owners
from store.names import Position
from tests.conftest import Cli
from tests.doctor.test_checked import told
from tests.stores import NOW_MS, copied, imported
from tests.test_check import CASES, DEEP, Change, _drop, _set_value

PLAIN = "/managed-ledgers/public/default/persistent/plain"
SUBSCRIPTIONS = ("expire-me", "half", "holes", "never", "reset-me")
END = Position(47, -1)
"""Behind the last entry of the topic."""
DAY_MS = 86_400_000


@dataclass
class Fault:
    """What plants a fault in a copy of the small world's store, and which findings it brings beside the rule's own.

    ``goes``: those of them that the rule's cure ends, too; the others have cures of their own. ``deep``: a deep check alone finds it.
    """

    plant: Callable[[Path], object]
    brings: set[str] = field(default_factory=set)
    deep: bool = False


def change(work: Change, *, owners: bool = True) -> Callable[[Path], object]:
    """Change rows of a store; OWNERS: and make what is derived from its metadata anew, as an import would."""

    def plant(path: Path) -> None:
        with open_store(path, writable=True) as store:
            store.write(work)
            if owners:
                store.write(lambda txn: index_owners(store, txn))

    return plant


def cursors(*, beside: dict[str, bytes] | None = None, **infos: CursorInfo) -> Change:
    """Set the cursors of ``public/default/plain``: all at its end but those of INFOS."""

    def work(txn):  # type: ignore[no-untyped-def]
        for name in SUBSCRIPTIONS:
            _set_value(
                f"{PLAIN}/{name}", lambda _, name=name: encode_cursor_info(infos.get(name, CursorInfo(-1, END)))
            )(txn)
        for name, value in (beside or {}).items():
            put_nodes(txn, [Node(f"{PLAIN}/{name}", NodeStat(0, 1, NOW_MS, NOW_MS, False), value)])

    return work


def stored(name: str) -> Callable[[Path], object]:
    """Plant a contradiction of the store's own rows."""
    return change({**CASES, **DEEP}[name][0], owners=False)


def replace_owners(path: Path) -> None:
    change(lambda txn: txn.put("owners", next(iter(txn.keys("owners", b""))), b"x"), owners=False)(path)


LEAKS = {"ledgers-unreferenced", "ledgers-deleted"}
"""What is told of ledgers without an owner where damage forbids to call them leaked."""
CURED: dict[str, Fault] = {
    "block-inconsistent": Fault(stored("messages of a block"), {"times-differ"}),
    "block-damaged": Fault(stored("count of a block")),
    "times-differ": Fault(stored("sum of a ledger")),
    "times-damaged": Fault(stored("version of a time row")),
    "times-missing": Fault(stored("no time row")),
    "times-surplus": Fault(stored("no block")),
    "owners-differ": Fault(stored("no owner"), LEAKS),
    "owners-damaged": Fault(replace_owners, LEAKS),
    "damage-without-file": Fault(stored("damage of no file")),
    "index-differs": Fault(stored("near offset"), deep=True),
    "node-damaged": Fault(stored("rubbish in the tree"), {"unknown-tree", *LEAKS}),
    "ledger-without-metadata": Fault(change(_drop("tree", tree_key(ledger_path(9))))),
    "ledger-missing": Fault(change(lambda txn: _drop_ledger(txn, 9))),
}


def _drop_ledger(txn, ledger_id):  # type: ignore[no-untyped-def]
    for key in [*txn.keys("entries", ledger_id.to_bytes(8, "big"))]:
        txn.delete("entries", key)
    txn.delete("times", ledger_id.to_bytes(8, "big"))
    txn.delete("tree", tree_key(ledger_path(ledger_id)))


@cache
def clean(*, deep: bool) -> frozenset[tuple[str, str]]:
    return frozenset(places(told(imported("small", "clean"), deep=deep)))


def places(found: list[Diagnosis]) -> set[tuple[str, str]]:
    return {(one.code, one.where) for one in found}


@pytest.mark.parametrize("code", CURED)
def test_the_printed_command_cures_it(code: str, tmp_path: Path, cli: Cli, damages_stores: None) -> None:
    fault, path = CURED[code], copied("small", "clean", tmp_path)
    fault.plant(path)
    found = [one for one in told(path, deep=fault.deep) if (one.code, one.where) not in clean(deep=fault.deep)]
    assert {one.code for one in found} == {code} | fault.brings
    mine = next(one for one in found if one.code == code)
    assert look_first(mine.mend), "a look cures nothing"
    done = cli("--store", path, *shlex.split(mine.mend)[1:])
    assert done.exit_code == 0, done.stderr
    left = places(told(path, deep=fault.deep))
    assert left - clean(deep=fault.deep) == set()
    assert clean(deep=fault.deep) - left == set()
