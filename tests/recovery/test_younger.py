"""Level B of ``store recover``: ledgers since that go on with no topic's messages, against what the real cluster's metadata had later."""

import json
import shutil
from pathlib import Path

from pulsar_admin.store.codec.ledgermetadata import LedgerState
from pulsar_admin.store.codec.schema import decode_schema_locator
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.db.tree import find_node, read_node
from pulsar_admin.store.model.cursors import read_cursors
from pulsar_admin.store.model.ledgers import find_metadata, find_times, sorted_ledger_ids
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.model.topics import iter_topics, read_topic
from pulsar_admin.store.names import parse_topic
from pulsar_admin.store.recovery.chains import LOST_AND_FOUND
from tests.conftest import Cli
from tests.deep import deep_but_for
from tests.plans.test_restoring import holders_of
from tests.recovery.test_rolling import rolled, state_of
from tests.stores import imported, put_back
from tests.worlds import CLUSTER, world

BOOKIES = tuple(f"bookkeeper{number}" for number in range(3))


@deep_but_for((1,), ("state", "zxid"), [("clean", 0xF0), ("crashed", 0x35D)])
def test_no_bookie_deletes_a_ledger_that_was_listed(state: str, zxid: int, tmp_path: Path, cli: Cli) -> None:
    """What the forecast has deleted on the result is what it has deleted on the metadata of the end, or less."""
    store, _ = rolled(state, zxid, tmp_path, cli)
    with (
        open_store(imported(CLUSTER, state)) as original,
        original.read() as was,
        open_store(store) as again,
        again.read() as now,
    ):
        for ledger_id in sorted_ledger_ids(was):
            old, new = find_metadata(was, ledger_id), find_metadata(now, ledger_id)
            if find_times(was, ledger_id) is None:
                continue  # without an entry
            assert new is not None, ledger_id
            if old.state is LedgerState.CLOSED and new.state is LedgerState.CLOSED:
                assert (old.last_entry_id, old.length, old.digest_type) == (
                    new.last_entry_id,
                    new.length,
                    new.digest_type,
                ), ledger_id
                assert holders_of(new) == holders_of(old), ledger_id
    assert cli("--store", store, "store", "export", "zookeeper-snapshot", tmp_path / "zk").exit_code == 0
    words = [word for name in BOOKIES for word in ("--bookie", world(CLUSTER) / state / name)]
    found = cli("store", "preflight", *words, "--zookeeper", tmp_path / "zk", "-o", "json").json
    before = cli("store", "preflight", *words, "--zookeeper", world(CLUSTER) / state / "zookeeper", "-o", "json").json
    assert found["loses"]["ledgers"] <= before["loses"]["ledgers"]


def test_topics_made_since_get_their_names_and_schemas(tmp_path: Path, cli: Cli) -> None:
    """Those that two witnesses name have the ledgers and the schema versions that the broker's own metadata listed."""
    store, then = rolled("clean", 0xF0, tmp_path, cli)
    truth, now = state_of(imported(CLUSTER, "clean")), state_of(store)
    named = {one for one in now.ledgers.keys() - then.ledgers.keys() if str(LOST_AND_FOUND) not in one}
    assert named == {f"persistent://public/default/{name}" for name in ("avro", "json", "txn-in", "txn-out")}
    for topic in named:
        assert now.ledgers[topic] == truth.ledgers[topic]
    with (
        open_store(imported(CLUSTER, "clean")) as original,
        original.read() as was,
        open_store(store) as again,
        again.read() as made,
    ):
        for name in ("avro", "json"):
            path = parse_topic(f"public/default/{name}").schema_path
            old, new = (decode_schema_locator(read_node(txn, path).value, path) for txn in (was, made))
            assert old == new
            ledger_id = new.index[0].position.ledger_id
            one, other = find_metadata(was, ledger_id), find_metadata(made, ledger_id)
            assert one.custom == other.custom
        of_none = parse_topic("acme/delayed/__change_events")  # which nothing names
        assert find_node(made, of_none.schema_path) is None


def test_a_compaction_since_is_its_topics(tmp_path: Path, cli: Cli) -> None:
    store, _ = rolled("clean", 0x1E0, tmp_path, cli)
    name = parse_topic("public/default/__transaction_buffer_snapshot")
    found = []
    for path in (imported(CLUSTER, "clean"), store):
        with open_store(path) as opened, open_reader(opened) as reader:
            assert name in iter_topics(reader.txn)
            state = read_cursors(reader.txn, reader, read_topic(reader.txn, name))["__compaction"].state
            metadata = find_metadata(reader.txn, state.properties["CompactedTopicLedger"])
            found.append((state.mark_delete, dict(state.properties), metadata.last_entry_id, dict(metadata.custom)))
    assert found[0] == found[1]


def test_what_is_tied_to_nothing_is_listed_and_counted(tmp_path: Path, cli: Cli) -> None:
    store = Path(shutil.copytree(imported(CLUSTER, "clean"), tmp_path / "store"))
    put_back(store, world(CLUSTER) / "clean" / "zookeeper", 0x1E0)
    words = ("--store", store, "store", "recover", "--cluster", "standalone")
    first, *rows = map(json.loads, cli(*words, "-o", "jsonl").stdout.splitlines())
    others = [row["after"] for row in rows if row.get("resource", "").startswith("ledger ")]
    assert first["after"]["others"] == len(others)
    assert {one["kind"] for one in others} == {"cursor", "schema", "delayed-bucket"}
    count = sum(one["kind"] == "schema" for one in others)
    assert any(text.startswith(f"{count} ledgers of schema versions and 0 compactions") for text in first["warnings"])
    assert cli(*words, "-o", "json").json["change"] is None  # nothing is left
