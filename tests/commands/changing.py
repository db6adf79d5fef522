"""What tests of changing commands share: the rows of a store, and undoing."""

from pathlib import Path

from pulsar_admin.store.db.environment import open_store
from tests.conftest import Cli

DERIVED = ("tree", "owners")

Rows = dict[str, dict[bytes, bytes]]


def rows_of(store: Path, *databases: str) -> Rows:
    """Every row of the databases of STORE (default: metadata and who owns which ledger)."""
    with open_store(store) as opened, opened.read() as txn:
        return {name: {key: bytes(value) for key, value in txn.items(name)} for name in databases or DERIVED}


def check_undo(cli: Cli, store: Path, change: int, before: Rows) -> None:
    """Undo CHANGE and compare every byte with BEFORE."""
    assert rows_of(store) != before
    cli.done("--store", store, *f"store undo {change} -o json".split())
    assert rows_of(store) == before
