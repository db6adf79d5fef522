"""Damaged metadata is read as far as it goes: what is taken is told, and what the rest may change says so."""

import json
import random
import shutil
import struct
import warnings
from contextlib import closing
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import pulsar_admin
from pulsar_admin.store.codec.zookeeper import ZooKeeperNode
from pulsar_admin.store.db.files import Damage
from pulsar_admin.store.db.locks import writer_lock
from pulsar_admin.store.sources.nodes import MetadataDirectory, iter_source_rows
from pulsar_admin.store.sources.rocksdb import open_for_reading
from pulsar_admin.store.sources.zookeeper import read_snapshot
from pulsar_admin.store.tables.iceberg import open_warehouse
from tests.altering import flip
from tests.conftest import Cli
from tests.cures.curing import diagnoses, run_printed
from tests.deep import deep_but_for
from tests.sources.test_roots import of_cluster, tree, write_files
from tests.test_clusters import bookie, disks  # noqa: F401 - a fixture
from tests.worlds import assert_unchanged, scratch_copy, world
from tests.zookeeper_files import read_zookeeper_nodes

Read = tuple[dict[str, ZooKeeperNode], list[str], list[str]]


def read(directory: Path) -> Read:
    problems: list[str] = []
    notes: list[str] = []
    nodes = {node.path: node for node in read_zookeeper_nodes(directory, problems, notes)}
    return nodes, problems, notes


@pytest.fixture
def alone(tmp_path: Path) -> Path:
    """The one snapshot of a dataDir in which nothing else is."""
    folder = write_files(tmp_path / "zk", of_cluster())
    (file,) = (folder / "version-2").iterdir()
    return file


def ends(file: Path) -> dict[str, int]:
    """Where each node of a sound snapshot ends, by its parts' lengths."""
    raw = file.read_bytes()
    nodes = read_snapshot(file, "").nodes.values()
    return {
        node.path: raw.index(struct.pack(">i", len(node.path.encode())) + node.path.encode())
        + 4 + len(node.path.encode()) + 4 + len(node.data) + 68
        for node in nodes
    }  # fmt: skip


@pytest.mark.parametrize("zeros", [60, 4_000, 30_000])
def test_a_snapshot_whose_end_is_zeros_gives_every_node_before_them(zeros: int, alone: Path) -> None:
    sound, raw, places = read(alone.parent)[0], alone.read_bytes(), ends(alone)
    alone.write_bytes(raw[:-zeros] + bytes(zeros))
    nodes, problems, notes = read(alone.parent)
    expected = {path for path, end in places.items() if end <= len(raw) - zeros}
    assert nodes == {path: sound[path] for path in sound if path in expected}
    assert 0 < len(nodes) <= len(sound) - (zeros > 1_000)
    (text,) = problems
    assert f"{len(expected)} nodes can be read, there is no older one, so the others are missing" in text
    assert notes == []


def test_a_cut_snapshot_gives_every_node_before_the_cut(alone: Path) -> None:
    sound, raw, places = read(alone.parent)[0], alone.read_bytes(), ends(alone)
    for cut in random.Random(1).sample(range(2_000, len(raw)), 30):
        alone.write_bytes(raw[:cut])
        nodes, problems, _ = read(alone.parent)
        assert nodes == {path: sound[path] for path, end in places.items() if end <= cut and path in sound}
        assert len(problems) == 1


def test_a_flipped_bit_costs_a_node_or_two_and_is_told(alone: Path) -> None:
    """Behind it reading goes on; of all that is taken one node at most is not what it was."""
    sound, raw, random_ = read(alone.parent)[0], alone.read_bytes(), random.Random(3)
    for _ in range(150):
        at, bit = random_.randrange(len(raw)), 1 << random_.randrange(8)
        alone.write_bytes(raw[:at] + bytes([raw[at] ^ bit]) + raw[at + 1 :])
        nodes, problems, _ = read(alone.parent)
        assert len(problems) == 1, (at, bit)
        assert sum(nodes.get(path) != node for path, node in sound.items()) <= 2, (at, bit)
        assert len(nodes.keys() - sound.keys()) <= 1


def test_what_only_a_damaged_snapshot_has_is_put_over_what_is_older(tmp_path: Path) -> None:
    """Snapshots of 35d and 481 without the logs between; of the damaged one the first half counts, of the other the rest."""
    source = world("cluster") / "crashed" / "zookeeper" / "version-2"
    whole = tmp_path / "whole"
    shutil.copytree(source, whole)
    newest = max(whole.glob("snapshot.*"), key=lambda file: int(file.suffix[1:], 16))
    older = sorted(whole.glob("snapshot.*"), key=lambda file: int(file.suffix[1:], 16))[-2]
    folder = tmp_path / "damaged"
    folder.mkdir()
    raw = newest.read_bytes()
    (folder / newest.name).write_bytes(raw[: len(raw) // 2])
    shutil.copy(older, folder)
    old, new = read_snapshot(older, "").nodes, read_snapshot(newest, "").nodes
    kept = {path for path, end in ends(newest).items() if end <= len(raw) // 2}
    expected = {path: new[path] if path in kept else old[path] for path in old.keys() | kept}
    nodes, problems, _ = read(folder)
    assert nodes == {path: node for path, node in expected.items() if not node.ephemeral}
    assert any(
        f"{len(kept)} nodes can be read, the others are as of transaction 0x{older.suffix[1:]}" in text
        for text in problems
    )


# -- through the commands ---------------------------------------------------------------------------------------------

ASKED = (
    ("topics", "list", "acme/orders"),
    ("overview",),
    ("store", "info"),
    ("store", "check"),
    ("namespaces", "topics", "acme/orders"),
    ("topics", "stats", "public/default/plain"),
    ("ledgers", "orphans"),
    ("store", "preflight"),
    ("topics", "create", "acme/orders/new", "--dry-run"),
)
DESTROY = (
    ("ledgers", "delete", "5", "--force", "--dry-run"),
    ("ledgers", "forget", "5", "--force", "--dry-run"),
    ("store", "recover", "--dry-run"),
)


def test_each_answer_of_an_incomplete_store_says_so_until_sound_files_come(
    alone: Path,
    disks: Path,  # noqa: F811
    tmp_path: Path,
    cli: Cli,
) -> None:
    store, raw = tmp_path / "s", alone.read_bytes()
    alone.write_bytes(raw[:-4_000] + bytes(4_000))
    words = [word for number in (1, 2, 3) for word in ("--bookie", bookie(disks, number))]
    answer = cli("--store", store, "store", "import", "cluster", "--zookeeper", alone.parent, *words)
    assert (answer.exit_code, "nodes can be read" in answer.stderr) == (1, True)
    for question in ASKED:
        answer = cli("--store", store, *question)
        assert (answer.exit_code, "the metadata is incomplete" in answer.stderr) == (1, True), question
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pulsar_admin.open_store(store).close()
    assert [warning.category for warning in caught] == [pulsar_admin.PartialData]
    for command in DESTROY:
        refused = cli("--store", store, *command, "-o", "json")
        assert refused.exit_code == 3, command
        hint = json.loads(refused.stderr.splitlines()[-1])["error"]["hint"]
        assert "store refresh" in hint
        assert hint.endswith("--accept-unknown-tree /")
        accepted = cli("--store", store, *command, "--accept-unknown-tree", "/")
        assert "the metadata is incomplete: " not in accepted.stderr
    refused = cli("--store", store, "store", "reclaim", bookie(disks, 1), "--dry-run")
    assert (refused.exit_code, "could not be read completely" in refused.stderr) == (3, True)
    rows = cli("--store", store, "doctor", "--code", "metadata-incomplete", "-o", "json").json
    alone.write_bytes(raw)
    assert {cli("--store", store, *row["mend"].split()[1:]).exit_code for row in rows} == {0}
    assert "metadata-incomplete" not in findings(store, cli)
    assert {path: row[0] for path, row in tree(store).items()} == {node.path: node.data for node in of_cluster()}
    for question in ASKED[:3]:
        assert "incomplete" not in cli("--store", store, *question).stderr


def marked(path: Path) -> str | None:
    """What a Parquet file says of incomplete metadata."""
    found = pq.read_metadata(path).metadata.get(b"pulsar-admin.incomplete")
    return None if found is None else found.decode()


def test_tables_of_an_incomplete_store_say_so_too(
    alone: Path,
    disks: Path,  # noqa: F811
    tmp_path: Path,
    cli: Cli,
) -> None:
    """So that an answer from them is not taken for whole, until tables of whole metadata take their place."""
    store, raw, tables, ice = tmp_path / "s", alone.read_bytes(), tmp_path / "tables", tmp_path / "ice"
    alone.write_bytes(raw[:-4_000] + bytes(4_000))
    words = [word for number in (1, 2, 3) for word in ("--bookie", bookie(disks, number))]
    cli("--store", store, "store", "import", "cluster", "--zookeeper", alone.parent, *words)
    sound = ("sql", "select count(*) from topics")
    for folder, more in ((tables, []), (ice, ["--iceberg", "--only", "topics"])):
        assert cli("--store", store, "store", "export", "tables", folder, *more).exit_code == 1
    (cluster,) = json.loads((tables / "tables.json").read_text())["clusters"].values()
    assert cluster["incomplete"].keys() == cluster["tables"].keys()
    marks = {path: marked(path) for folder in (tables, ice) for path in folder.rglob("*.parquet")}
    assert {path.relative_to(tables).parts[0] for path in marks if path.is_relative_to(tables)} >= {"entries", "topics"}
    assert {*marks.values()} == {*cluster["incomplete"].values()}
    loading = ("--store", tmp_path / "loaded", "store", "import", "tables", tables)
    for words in (("--tables", tables, *sound), loading):
        answer = cli(*words)
        assert (answer.exit_code, "from an incomplete store" in answer.stderr) == (1, True), words
    assert cli("--store", tmp_path / "loaded", "topics", "list", "acme/orders").exit_code == 1
    with closing(open_warehouse(str(ice)).catalog) as catalog:
        table = catalog.load_table("pulsar.topics")
    assert table.current_snapshot().summary["pulsar-admin.incomplete"] == cluster["incomplete"]["topics"]
    alone.write_bytes(raw)
    assert cli("--store", store, "store", "refresh").exit_code == 0
    assert cli("--store", store, "store", "export", "tables", tables, "--only", "topics").exit_code == 0
    (cluster,) = json.loads((tables / "tables.json").read_text())["clusters"].values()
    assert cluster["incomplete"].keys() == cluster["tables"].keys() - {"topics"}
    assert cli("--store", store, "store", "export", "tables", tables).exit_code == 0
    assert {marked(path) for path in tables.rglob("*.parquet")} == {None}
    answer = cli("--tables", tables, *sound)
    assert (answer.exit_code, answer.stderr.count("incomplete")) == (0, 0)


def test_a_damaged_snapshot_that_was_not_needed_is_a_note(tmp_path: Path, cli: Cli, whole_cli: Cli) -> None:
    folder, store = tmp_path / "zk" / "version-2", tmp_path / "s"
    shutil.copytree(world("cluster") / "crashed" / "zookeeper" / "version-2", folder)
    newest = max(folder.glob("snapshot.*"), key=lambda file: int(file.suffix[1:], 16))
    raw = newest.read_bytes()
    newest.write_bytes(raw[:-4_000] + bytes(4_000))
    answer = cli("--store", store, "store", "import", "cluster", "--zookeeper", folder.parent, "-o", "json")
    assert (answer.exit_code, answer.json["undecodableValues"]) == (0, 0)
    rows = cli("--store", store, "store", "check", "-o", "json").json
    (row,) = [row for row in rows if "metadata" in row["code"]]
    assert (row["severity"], row["code"], "not needed" in row["message"]) == ("note", "metadata-file-damaged", True)
    assert "incomplete" not in cli("--store", store, "topics", "list", "acme/orders").stderr
    assert cli("--store", store, "store", "export", "zookeeper-snapshot", tmp_path / "out").exit_code == 0
    newest.write_bytes(raw)
    (told,) = [row for row in diagnoses(whole_cli, store) if row["code"] == "metadata-file-damaged"]
    run_printed(whole_cli, told["mend"])
    assert not [row for row in cli("--store", store, "store", "check", "-o", "json").json if "metadata" in row["code"]]


# -- metadata of others -----------------------------------------------------------------------------------------------


def findings(store: Path, cli: Cli) -> dict[str, str]:
    rows = cli("--store", store, "doctor", "-o", "json").json
    return {row["code"]: row["severity"] for row in rows}


def test_a_bookie_that_the_metadata_does_not_know_is_a_critical(disks: Path, tmp_path: Path, cli: Cli) -> None:  # noqa: F811
    new = [node for node in of_cluster() if node.path.startswith("/admin") or node.path == "/ledgers/LAYOUT"]
    words = [word for number in (1, 2, 3) for word in ("--bookie", bookie(disks, number))]
    zookeeper = write_files(tmp_path / "zk", new)
    assert cli("--store", tmp_path / "s", "store", "import", "cluster", "--zookeeper", zookeeper, *words).exit_code == 1
    assert findings(tmp_path / "s", cli)["bookie-unknown"] == "critical"
    assert "belongs to another cluster" in cli("--store", tmp_path / "s", "doctor").ends(1).stdout
    whole = write_files(tmp_path / "whole", of_cluster())
    assert cli("--store", tmp_path / "t", "store", "import", "cluster", "--zookeeper", whole, *words).exit_code == 0
    assert findings(tmp_path / "t", cli).keys().isdisjoint({"bookie-unknown", "bookkeeper-metadata-absent"})
    for file in disks.rglob("VERSION"):
        file.write_text(file.read_text() + 'instanceId: "one"\n')
    older = write_files(tmp_path / "older", [*new, new[-1]._replace(path="/ledgers/INSTANCEID", data=b"one")])
    assert cli("--store", tmp_path / "u", "store", "import", "cluster", "--zookeeper", older, *words).exit_code == 1
    found = cli("--store", tmp_path / "u", "doctor", "--code", "bookie-unknown").ends(1)
    assert "this metadata is older than it" in found.stdout


def test_metadata_without_bookkeepers_part_is_a_critical(tmp_path: Path, cli: Cli) -> None:
    zookeeper = write_files(tmp_path / "zk", [node for node in of_cluster() if not node.path.startswith("/ledgers")])
    done = cli("--store", tmp_path / "s", "store", "import", "cluster", "--zookeeper", zookeeper, "-o", "json")
    assert (done.exit_code, done.json["findings"]) == (1, ["bookkeeper-metadata-absent"])
    assert findings(tmp_path / "s", cli)["bookkeeper-metadata-absent"] == "critical"


def test_metadata_whose_addition_was_stopped_is_not_seen_rather_than_absent(
    tmp_path: Path,
    whole_cli: Cli,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, store = world("small") / "clean", tmp_path / "s"
    whole_cli("--store", store, "store", "import", "cluster", "--bookie", source / "bookkeeper")
    before = {row["code"] for row in diagnoses(whole_cli, store)}
    with monkeypatch.context() as stopped:
        stopped.setattr("pulsar_admin.store.transfer.refresh._read_files", interrupted)
        assert whole_cli("--store", store, "store", "add", "zookeeper", source / "metadata").exit_code == 130
    rows = {row["code"]: row for row in diagnoses(whole_cli, store)}
    assert rows.keys() - before == {"refresh-unfinished"}
    with writer_lock(store):  # as the addition itself holds it
        (row,) = [row for row in diagnoses(whole_cli, store) if row["code"] == "refresh-unfinished"]
    assert (row["severity"], rows["refresh-unfinished"]["severity"]) == ("note", "warning")
    run_printed(whole_cli, rows["refresh-unfinished"]["mend"])
    whole_cli("--store", tmp_path / "t", "store", "import", "standalone", source)
    listed = [whole_cli("--store", path, "topics", "list", "public/default").stdout for path in (store, tmp_path / "t")]
    assert listed[0] == listed[1] != ""
    assert [row["code"] for row in diagnoses(whole_cli, store) if row["code"] in rows] == []


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


# -- RocksDB ----------------------------------------------------------------------------------------------------------


def rocks_rows(directory: Path) -> tuple[dict[bytes, bytes], list[str]]:
    rows: dict[bytes, bytes] = {}
    problems: list[str] = []
    for row in iter_source_rows(MetadataDirectory(directory)):
        if isinstance(row, Damage):
            problems.append(row.reason)
        else:
            rows[row[0]] = row[1]
    return rows, problems


@deep_but_for((0, 2), "name", ["000010.sst", "000017.sst", "MANIFEST-000019", "CURRENT"])
def test_a_flipped_bit_of_rocksdb_is_read_past_and_told(name: str, tmp_path: Path) -> None:
    """Old write-ahead logs have what a lost table had; nothing is written, and nothing is wrong without a word."""
    source = scratch_copy("small", "crashed", tmp_path) / "metadata"
    sound, random_ = rocks_rows(source)[0], random.Random(name)
    raw = (source / name).read_bytes()
    told = 0
    for _ in range(3):
        at = random_.randrange(len(raw))
        (source / name).write_bytes(raw[:at] + bytes([raw[at] ^ 1 << random_.randrange(8)]) + raw[at + 1 :])
        with assert_unchanged(source):
            rows, problems = rocks_rows(source)
        assert rows == sound
        told += len(problems)
        assert all(
            "rebuilt from its write-ahead logs, which have all 1,934 changes: 317 nodes" in text for text in problems
        )
    assert told


@pytest.mark.parametrize("lost", ["000004.log", "000011.log", "000018.log"])
def test_a_rocksdb_whose_logs_lack_changes_is_not_called_whole(lost: str, tmp_path: Path) -> None:
    """Without the first log, one in the middle, or the newest one, which a table may be of."""
    source = scratch_copy("small", "crashed", tmp_path) / "metadata"
    flip(source / "000010.sst", 200)
    (source / lost).unlink()
    (text,) = rocks_rows(source)[1]
    assert "others may be missing" in text


def test_a_damaged_rocksdb_that_its_logs_replace_lacks_nothing_and_is_written_anew(
    tmp_path: Path, cli: Cli, whole_cli: Cli
) -> None:
    source, store = scratch_copy("small", "crashed", tmp_path), tmp_path / "s"
    (source / "metadata" / "CURRENT").write_bytes(b"MANIFEST-000018\n")
    answer = cli("--store", store, "store", "import", "standalone", source, "-o", "json")
    assert (answer.exit_code, "rebuilt from its write-ahead logs" in answer.stderr) == (0, True)
    rows = cli("--store", store, "store", "check", "-o", "json").json
    assert [row["severity"] for row in rows if "metadata" in row.get("code", "")] == ["problem"]
    assert "incomplete" not in cli("--store", store, "topics", "list", "acme/orders").stderr
    (told,) = [row for row in diagnoses(whole_cli, store) if row["code"] == "metadata-file-damaged"]
    assert told["severity"] == "warning"
    forecast = cli("--store", store, "store", "preflight")
    assert "the standalone does not start\n" in forecast.stdout
    assert "    next: pulsar-admin store clone DIR\n" in forecast.stdout
    given = cli(
        "store", "preflight", "--metadata", source / "metadata", "--bookie", source / "bookkeeper", "-o", "json"
    )
    assert [one["cure"] for one in given.json["rocksdb"]] == ["pulsar-admin store clone DIR"]
    run_printed(whole_cli, told["mend"].replace("DIR", str(tmp_path / "new")))
    with open_for_reading(tmp_path / "new" / "metadata", []) as pairs:
        assert sum(key.startswith(b"/") for key, _ in pairs) > 300


def test_preflight_says_that_pulsar_forgets_what_comes_after_damage_in_a_log(tmp_path: Path, cli: Cli) -> None:
    source, store = scratch_copy("small", "clean", tmp_path), tmp_path / "s"
    flip(source / "metadata" / "000004.log", 100_000)
    assert cli("--store", store, "store", "import", "standalone", source).exit_code == 1
    for place in (["--store", store], []):
        given = [] if place else ["--metadata", source / "metadata", "--bookie", source / "bookkeeper"]
        (told,) = cli(*place, "store", "preflight", *given, "-o", "json").json["rocksdb"]
        assert (told["code"], told["starts"]) == ("metadata-incomplete", True)
        assert "loses the changes there, and all later ones" in told["text"]
        assert told["cure"].endswith("store clone DIR")


def test_a_table_that_no_log_replaces_is_named_and_the_store_is_incomplete(tmp_path: Path, cli: Cli) -> None:
    source, store = scratch_copy("small", "crashed", tmp_path), tmp_path / "s"
    metadata = source / "metadata"
    sound = rocks_rows(metadata)[0]
    for log in ("000004.log", "000011.log"):  # which the tables have taken in
        (metadata / log).unlink()
    assert rocks_rows(metadata) == (sound, [])
    flip(metadata / "000010.sst", 200)
    answer = cli("--store", store, "store", "import", "standalone", source, "-o", "json").ends(1)
    assert 0 < answer.json["nodes"] < len(sound)
    assert "000010.sst" in answer.stderr
    answer = cli("--store", store, "topics", "list", "acme/orders").ends(1, "the metadata is incomplete")
    before = tree(store)
    flip(metadata / "000010.sst", 200)
    assert cli("--store", store, "store", "refresh").exit_code == 0
    assert len(tree(store)) == len(sound) > len(before)
    flip(metadata / "000010.sst", 200)
    answer = cli("--store", store, "store", "refresh").ends(1, "keeps the metadata that it has")
    assert len(tree(store)) == len(sound)
