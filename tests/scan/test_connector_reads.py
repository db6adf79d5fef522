"""Reads with the Spark connector's options: what the real one read of the same data, topics whole and in small pieces."""

import json
import shutil
import warnings
from base64 import b64encode
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pulsar_admin.store.errors import (
    EncryptedPayload,
    EntryNotFound,
    InvalidValue,
    SourceChanged,
    StoreError,
    Unsupported,
)
from pulsar_admin.store.proto.pulsar_api_pb2 import MessageIdData
from pulsar_admin.store.scan.datasource import read_stream_options
from pulsar_admin.store.scan.source_options import CONNECTOR_OPTIONS, OPTIONS, is_connector_read, read_connector_options
from pulsar_admin.store.scan.topic_reads import plan_topic_pieces, topics_operation
from pulsar_admin.store.transfer.imports import ImportOptions
from tests.connector import Recorded, as_here, readings, recorded, written
from tests.cures.test_backlogs import chunks, entry
from tests.deep import deep_but_for
from tests.stores import import_standalone, imported
from tests.synthetic import MadeTopic, make_store
from tests.worlds import oracle, world

LIVE = {"service.url": "pulsar://localhost:6650", "admin.url": "http://localhost:8080"}


def _read(options: dict[str, str], *, store: Path | None = None, defaults: dict[str, str] | None = None) -> pa.Table:
    asked = {"store": str(store or imported("small", "clean")), **LIVE, **options}
    read = read_connector_options(asked, defaults or {})
    operation = topics_operation(read)
    batches = [batch for piece in plan_topic_pieces(read) for batch in operation.run(piece)]
    return pa.Table.from_batches(batches, operation.schema)


def _ids(table: pa.Table) -> list[str]:
    return [b64encode(data).decode() for data in table.column("__messageId").to_pylist()]


@deep_but_for((1,), "slice_bytes", ["64m", "4096"])
@pytest.mark.parametrize("world", ["small", "shapes"])
def test_rows_of_topics(world: str, slice_bytes: str) -> None:
    for one in readings(world):
        options = dict(one["options"])
        if slice_bytes == "4096" and "txn" in options.get("topic", ""):
            continue  # their task reads them whole, whatever the size
        table = _read(options | {"sliceBytes": slice_bytes}, store=imported(world, "clean"))
        assert written(table.to_batches()) == as_here(one), options


@pytest.mark.parametrize("one", [one for one in recorded()["options"] if "ids" in one and "never" not in str(one)])
def test_what_options_choose(one: Recorded) -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert sorted(_ids(_read(one["options"]))) == sorted(one["ids"])
    reverse = "[8, 38," in one["options"].get("startingOffsets", "")
    assert [str(one.message) for one in said] == reverse * [
        "pulsar_entries: persistent://public/default/plain: the end, 25:0, is before the start, 38:0: skipped, "
        "as failOnDataLoss is false"
    ]


@pytest.mark.parametrize(
    "one", [one for one in recorded()["options"] if "error" in one], ids=lambda one: str(one["options"])[:60]
)
def test_what_the_connector_refuses(one: Recorded) -> None:
    with pytest.raises(InvalidValue):
        _read(one["options"])


def test_copies_on_three_bookies_are_one_message() -> None:
    topics = {name: topic for name, topic in oracle("cluster")["topics"].items() if "secure" not in name}
    for name, topic in topics.items():
        found = _read({"topic": name}, store=imported("cluster", "clean"))
        ids = map(MessageIdData.FromString, found.column("__messageId").to_pylist())  # protobuf's own reader
        expected = [tuple(row[:3]) for row in topic["messages"]]
        assert [(one.ledgerId, one.entryId, one.batch_index) for one in ids] == expected, name


def test_a_message_of_chunks_is_in_the_piece_of_its_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pulsar_admin.store.scan.topic_reads.has_transactions", lambda txn, namespace: False)
    read = read_connector_options(
        {"store": str(imported("small", "clean")), "topic": "chunked", "sliceBytes": "4096"}, {}
    )
    pieces = plan_topic_pieces(read)
    rows = [sum(map(len, topics_operation(read).run(piece))) for piece in pieces]
    assert rows == [0, 1, 0, 1]  # each has two chunks


def test_chunks_sent_again_in_a_later_piece_make_no_message(tmp_path: Path) -> None:
    others = [entry() for _ in range(300)]
    store = make_store(tmp_path / "s", {"a/b/t": MadeTopic([[*chunks("u", 3), *others, *chunks("u", 3)[1:]]])})
    read = read_connector_options({"store": str(store), "topic": "persistent://a/b/t", "sliceBytes": "4096"}, {})
    pieces = plan_topic_pieces(read)
    assert len(pieces) > 1
    assert sum(sum(map(len, topics_operation(read).run(piece))) for piece in pieces) == 1 + len(others)


def test_a_transaction_in_a_topic_that_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pulsar_admin.store.scan.topic_reads.has_transactions", lambda txn, namespace: False)
    with pytest.raises(Unsupported, match="transaction"):
        _read({"topic": "public/default/txn-out", "sliceBytes": "4096"})


@pytest.mark.filterwarnings("ignore:pulsar_entries")
@pytest.mark.parametrize("damage", ["gone", "cut", "flipped"])
def test_lost_data_ends_a_job_or_is_passed_over(damage: str, tmp_path: Path) -> None:
    store, logs = tmp_path / "store", tmp_path / "data"
    _import(store, logs)
    rows = _read({"topic": "plain"}, store=store)
    whole, payload = _ids(rows), rows.column("value")[0].as_py()[:40]
    log = next(log for log in sorted(logs.glob("bookkeeper/current/*.log")) if payload in log.read_bytes())
    data = log.read_bytes()
    if damage == "gone":
        log.unlink()
    else:
        at = data.index(payload)
        log.write_bytes(data[:at] if damage == "cut" else data[:at] + bytes(40) + data[at + 40 :])
    with pytest.raises((EntryNotFound, SourceChanged, StoreError)):
        _read({"topic": "plain", "failOnDataLoss": "true"}, store=store)
    left = _ids(_read({"topic": "plain"}, store=store))
    assert left == (whole[1:] if damage == "flipped" else [one for one in whole if one in left])
    assert len(left) < len(whole)


def _import(store: Path, data: Path) -> None:
    shutil.copytree(world("small") / "clean", data)
    import_standalone(data, store, ImportOptions(), lambda count: None)


def test_encrypted_messages_have_no_value_or_end_a_job() -> None:
    assert set(_read({"topic": "acme/secure/secret-single"}).column("value").to_pylist()) == {None}
    with pytest.raises(EncryptedPayload):
        _read({"topic": "acme/secure/secret-single", "failOnDataLoss": "true"})


def test_options_of_a_live_cluster_are_named_once() -> None:
    with pytest.warns(UserWarning, match="predefinedsubscription, pulsar.client.authparams$"):
        _read({"topic": "avro", "predefinedSubscription": "x", "pulsar.client.authParams": "token:x"})


def test_a_job_says_nothing_of_a_store() -> None:
    defaults = {"store": str(imported("small", "clean"))}
    read = read_connector_options({**LIVE, "topic": "avro"}, defaults)
    assert read.store == defaults["store"]
    with pytest.raises(InvalidValue, match="through a store"):
        read_connector_options({**LIVE, "topic": "avro"}, {})


@pytest.mark.parametrize(
    "options",
    [
        {"topic": "avro", "startingOffsets": "{]"},
        {"topic": "avro", "startingOffsets": json.dumps({"avro": [255, 255]})},
        {"topic": "avro", "startingOffsets": json.dumps({"avro": [8, 29]})},  # a ledger without an entry
        {"topic": "avro", "endingOffsets": json.dumps({"avro": []})},
        {"topic": "avro", "startingOffsets": json.dumps({"avro": "x"})},
        {"topic": "avro", "startingOffsets": json.dumps({"avro": {"a": 1}})},
        {"topic": "avro", "startingTime": "0"},
        {"topic": "avro", "startingTime": "-7"},
        {"topic": "avro", "startingTime": "1795100403871", "endingTime": "1795092063126"},
        {"topic": "avro", "startingTime": json.dumps({"avro": 1795100403871}), "endingTime": "1795092063126"},
        {"topic": "avro", "startingTime": "1795100403871", "endingTime": json.dumps({"avro": 1795092063126})},
        {"topic": "avro", "failOnDataLoss": "perhaps"},
        {"topic": "avro", "value": "typed"},
        {"topic": "avro", "pulsar.reader.readCompacted": "true"},
        {"topicsPattern": "acme/orders/("},
        {"topicsPattern": "orders/x"},
        {"columns": "trino"},
    ],
    ids=str,
)
def test_bad_options(options: dict[str, str]) -> None:
    with pytest.raises(InvalidValue):
        _read(options)


def test_the_page_has_every_option() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "howto" / "spark.md").read_text()
    section = page.partition("## A job that was written for the Pulsar connector")[2].partition("## End")[0]
    rows = "".join(line.split("|")[1] for line in section.splitlines() if line.startswith("|"))
    assert [option.name for option in CONNECTOR_OPTIONS if f"`{option.name}`" not in rows] == []


def test_positions_are_taken_as_text_too() -> None:
    by_bytes: Any = next(
        one for one in recorded()["options"] if "startingOffsets" in one["options"] and len(one["ids"]) == 101
    )
    options = {name: text.replace("[8, 25, 16, 0, 48, 0]", '"25:0"') for name, text in by_bytes["options"].items()}
    assert options != by_bytes["options"]
    assert _ids(_read(options)) == by_bytes["ids"]


def test_ordinary_reads_are_not_taken_for_the_connectors() -> None:
    assert not is_connector_read({"path": "/x", "topics": "a", "columns": "ledger_id,topic", "startTime": "1"})
    assert is_connector_read({"columns": "Pulsar-Spark"})


@pytest.mark.parametrize("name", sorted({one.name for one in CONNECTOR_OPTIONS} - {one.name for one in OPTIONS}))
def test_a_stream_refuses_the_connectors_options_by_name(name: str) -> None:
    with pytest.raises(
        InvalidValue, match=f"option {name}: the Pulsar connector's options work only with batch reads here"
    ):
        read_stream_options({"path": "/x", name.upper(): "1"})
    assert read_stream_options({"path": "/x", "maxFilesPerTrigger": "3"})["maxFilesPerTrigger"] == 3
