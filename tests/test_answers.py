"""Command lines that the real pulsar-admin was asked, asked here: the same answers, and the same metadata in the end."""

import json
from pathlib import Path

from pulsar_admin.store.codec.rocksvalue import NodeStat
from pulsar_admin.store.db.environment import create_store, open_store
from pulsar_admin.store.db.tree import Node, iter_nodes, put_nodes
from tests.answers import FOLDER, Answers, own_nodes, read_answers
from tests.conftest import Cli
from tests.deep import deep_but_for

NAMES = sorted(path.stem for path in FOLDER.glob("*.txt"))


def _store(found: Answers, path: Path) -> Path:
    stat = NodeStat(0, 0, 0, 0, False)
    nodes = [Node(name, stat, json.dumps(value).encode()) for name, value in found.before.items()]
    create_store(path, now_ms=0)
    with open_store(path, writable=True) as store:
        store.write(lambda txn: put_nodes(txn, nodes))
    return path


@deep_but_for((0, 2), "name", NAMES)
def test_answers_and_metadata_are_upstreams(name: str, cli: Cli, tmp_path: Path) -> None:
    found = read_answers(name)
    store = _store(found, tmp_path / "store")
    for asked in found.answers:
        said = cli("--store", store, *asked.words)
        assert said.stdout == asked.stdout, asked.line
        error = said.stderr.partition("\n")[0].removeprefix("error: ") if said.exit_code else None
        assert error == asked.error, asked.line
    with open_store(store) as opened, opened.read() as txn:
        left = own_nodes({node.path: node.value for node in iter_nodes(txn, "/")})
    assert left == found.after
