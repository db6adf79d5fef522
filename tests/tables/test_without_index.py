"""Tables of a store that was imported without an index: every entry of the files, and no row in LMDB for any of them."""

from pathlib import Path

import pytest

from pulsar_admin.store.db.environment import open_store
from tests.conftest import Cli
from tests.stores import imported
from tests.tables.test_export import table_of
from tests.worlds import CLUSTER, world

DERIVED = ("entries", "times", "damage", "logs", "copies", "owners")


def import_words(name: str) -> list[str]:
    if name != CLUSTER:
        return ["store", "import", "standalone", str(world(name) / "crashed")]
    parts = world(name) / "crashed"
    bookies = [word for bookie in sorted(parts.glob("bookkeeper*")) for word in ("--bookie", str(bookie))]
    return ["store", "import", "cluster", "--zookeeper", str(parts / "zookeeper"), *bookies]


@pytest.mark.parametrize("name", ["nometa", CLUSTER])
def test_the_entries_are_those_of_an_indexed_store(name: str, tmp_path: Path, cli: Cli) -> None:
    """``test_export`` compares what an indexed store exports with a reader of its own."""
    store = tmp_path / "store"
    said = cli("--store", store, *import_words(name), "--no-index", "-o", "json")
    assert said.exit_code in (0, 1), said.stderr
    assert (said.json["entries"], said.json["records"], said.json["checksums"]) == (0, 0, False)
    assert said.json["files"] > 2
    assert "no entry was read" in said.stderr
    for path, folder in ((store, "without"), (imported(name, "crashed"), "with")):
        words = ("store", "export", "tables", tmp_path / folder, "--cluster", "c")
        assert cli("--store", path, *words).exit_code == 0
    without, indexed = ({t: table_of(tmp_path / f, t) for t in ("entries", "nodes")} for f in ("without", "with"))
    assert len(without["entries"]) > 1000
    assert without["entries"].equals(indexed["entries"])
    assert without["nodes"].select(["path", "value"]).equals(indexed["nodes"].select(["path", "value"]))
    with open_store(store, unindexed=True) as opened, opened.read() as txn:
        assert [txn.count(database) for database in ("entries", "times", "damage")] == [0, 0, 0]


def test_all_else_is_refused_and_the_same_import_makes_the_index(tmp_path: Path, cli: Cli) -> None:
    store, words = tmp_path / "store", import_words("small")
    assert cli("--store", store, *words, "--no-index").exit_code == 0
    for asked in (("topics", "list", "public/default"), ("store", "check"), ("store", "refresh")):
        refused = cli("--store", store, *asked).ends(3, "imported without an index", "store export tables")
    refused = cli("--store", store, "store", "export", "tables", tmp_path / "tables", "--only", "topics,cursors")
    assert refused.exit_code == 3
    assert "the table cursors needs entries" in refused.stderr
    assert not (tmp_path / "tables").exists()
    assert cli("--store", store, *words).exit_code == 0
    direct = tmp_path / "direct"
    assert cli("--store", direct, *words).exit_code == 0
    assert cli("--store", store, *words, "--no-index").exit_code == 3
    rows = []
    for path in (store, direct):
        with open_store(path) as opened, opened.read() as txn:
            rows.append({name: [(key, bytes(row)) for key, row in txn.items(name)] for name in DERIVED})
    assert rows[0] == rows[1]


def test_without_metadata_it_is_refused(tmp_path: Path, cli: Cli) -> None:
    bookie = next(iter(sorted((world(CLUSTER) / "crashed").glob("bookkeeper*"))))
    words = ("store", "import", "cluster", "--bookie", bookie, "--no-index")
    cli("--store", tmp_path / "store", *words).ends(2, "without metadata")
    assert not (tmp_path / "store").exists()
