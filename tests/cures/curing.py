"""What tests of rules share: what the doctor tells of a store, and the printed command run as it stands."""

import shlex
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from pulsar_admin.store.codec.rocksvalue import NodeStat
from pulsar_admin.store.db.environment import Txn, open_store
from pulsar_admin.store.db.tree import Node, put_nodes
from pulsar_admin.store.model.references import index_owners
from tests.agreeing import check_agreement
from tests.commands.changing import rows_of
from tests.conftest import Cli
from tests.synthetic import CREATED_MS

Json = Any  # a JSON value
Told = tuple[str, str]
"""The code of a diagnosis, and where."""


def diagnoses(cli: Cli, store: Path, *options: object) -> list[Json]:
    """What the doctor tells of STORE."""
    return cli("--store", store, "doctor", *options, "-o", "jsonl").json_lines


def told(rows: Sequence[Json]) -> Counter[Told]:
    """How often each code is told of each place."""
    return Counter((row["code"], row["where"]) for row in rows)


def check_told(cli: Cli, store: Path, before: Sequence[Json], expected: Collection[Told]) -> list[Json]:
    """Fail unless EXPECTED and nothing else is told that was not BEFORE, and all screens agree; return it."""
    rows = diagnoses(cli, store)
    check_agreement(store)
    assert told(rows) - told(before) == Counter(expected)
    assert told(before) - told(rows) == Counter()
    known = told(before)
    return [row for row in rows if (row["code"], row["where"]) not in known]


def run_printed(cli: Cli, command: str) -> None:
    """Run a printed command as it stands."""
    program, *words = shlex.split(command)
    assert program == "pulsar-admin"
    cli.done(*words)


def check_cured(cli: Cli, store: Path, row: Json, rest: Counter[Told], changed: Collection[str]) -> None:
    """Run what ROW says, and fail unless REST is told and the metadata nodes at the paths CHANGED alone are others."""
    rows = rows_of(store, "tree")["tree"]
    run_printed(cli, row["mend"])
    assert told(diagnoses(cli, store)) == rest
    after = rows_of(store, "tree")["tree"]
    assert {key.decode() for key in rows.keys() | after.keys() if rows.get(key) != after.get(key)} == set(changed)


def put_values(store: Path, values: Mapping[str, bytes]) -> None:
    """Write metadata nodes into STORE as if its source had had them; who owns which ledger is found again."""

    def work(txn: Txn) -> None:
        put_nodes(
            txn, [Node(path, NodeStat(0, 1, CREATED_MS, CREATED_MS, False), value) for path, value in values.items()]
        )
        index_owners(opened, txn)

    with open_store(store, writable=True) as opened:
        opened.write(work)
