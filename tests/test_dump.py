"""``topics dump`` and ``topics load``: against what a real client read, against ``topics read``, and round trips to the byte."""

import errno
import hashlib
import json
import os
import random
import re
import shutil
import signal
from base64 import b64decode, b64encode
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import google_crc32c
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench.measuring import ADMIN
from bench.memory import watch
from pulsar_admin.cli import run
from pulsar_admin.store.codec.brokerentry import split_broker_entry
from pulsar_admin.store.codec.cursor import Position
from pulsar_admin.store.codec.message import decode_message_entry
from pulsar_admin.store.db.environment import create_store, open_store
from pulsar_admin.store.dump import files as dump_files
from pulsar_admin.store.dump import job, tables
from pulsar_admin.store.dump import source as dump_source
from pulsar_admin.store.dump.files import write_apart
from pulsar_admin.store.dump.job import Dumped, dump_text
from pulsar_admin.store.dump.options import DumpOptions
from pulsar_admin.store.engine import starting
from pulsar_admin.store.engine.local import LocalEngine
from pulsar_admin.store.errors import AlreadyExists
from pulsar_admin.store.kernels import sha1_machine
from pulsar_admin.store.kernels.sha1 import sha1_spans
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.model.topics import read_topic
from pulsar_admin.store.names import parse_topic
from pulsar_admin.store.scan import entries as scan_entries
from pulsar_admin.store.scan import messages as scan_messages
from tests import shapes
from tests.conftest import Cli
from tests.stores import NOW_MS, imported, read_rows
from tests.synthetic import Made, MadeTopic, make_store, message_bytes
from tests.worlds import CLUSTER, asked_topics, oracle

START_MS = 1_700_000_000_000


def _tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def _rows(folder: Path) -> list[dict[str, Any]]:
    from pyarrow.dataset import dataset

    table = dataset(folder, format="parquet", partitioning="hive").to_table()
    rows: list[dict[str, Any]] = table.to_pylist()
    return sorted(rows, key=lambda row: (row["topic"], row["ledgerId"], row["entryId"], row.get("batchIndex", 0)))


# -- messages ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("world", ["small", CLUSTER])
def test_parquet_equals_what_a_client_read(world: str, cli: Cli, tmp_path: Path) -> None:
    store = imported(world, "clean")
    assert cli("--store", store, "topics", "dump", "--all-topics", "--directory", tmp_path / "d", "-q").exit_code == 0
    rows = _rows(tmp_path / "d")
    topics = asked_topics(world)
    encrypted = 0
    for name, topic in topics.items():
        found = [row for row in rows if row["topic"] == f"persistent://{name}"]
        encrypted += sum(row["encrypted"] for row in found)
        seen = [
            [
                *(row[key] for key in ("ledgerId", "entryId", "batchIndex", "publishTime", "eventTime")),
                row["key"] or "",
                row["size"],
                row["sha1"].hex(),
                dict(row["properties"]),
                row["producer"],
            ]
            for row in found
            if not row["encrypted"]
        ]
        if not any(row["encrypted"] for row in found):
            assert seen == [[*row[:6], *row[7:11]] for row in topic["messages"]], name
    assert encrypted >= 20


SMALL_PAYLOADS = ("acme/orders/codecs", "acme/iot/skewed", "acme/secure/compacted-secret", "public/default/batched")


@pytest.mark.parametrize(
    ("state", "topics", "plain_bytes", "piece_bytes"),
    [("clean", ("--all-topics",), 64 << 20, 3 << 20), ("crashed", SMALL_PAYLOADS, 100, 24)],
    ids=["all", "small"],
)
def test_lines_equal_topics_read(
    state: str, topics: tuple[str, ...], plain_bytes: int, piece_bytes: int, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when few payloads are decompressed at once, and nearly all are written piece by piece."""
    monkeypatch.setattr(scan_messages, "PLAIN_BYTES_MAX", plain_bytes)
    monkeypatch.setattr(tables, "PIECE_BYTES", piece_bytes)
    common = ("--store", imported("small", state), "topics")
    read = cli(*common, "read", *topics, "--payload", "-o", "jsonl", "-q")
    dump = cli(*common, "dump", *topics, "--payload", "-q")
    assert dump.stdout == read.stdout
    assert dump.exit_code == read.exit_code


@pytest.mark.parametrize("clock", ["auto", "publish", "broker"])
def test_windows_equal_topics_read(clock: str, cli: Cli) -> None:
    rng = random.Random(9)
    common = ("--store", imported("small", "clean"), "topics")
    rows = oracle("small")["topics"]["acme/iot/skewed"]["messages"]
    times = sorted(row[3] for row in rows)
    for _ in range(6):
        start, end = sorted(rng.choices(times, k=2))
        first, last = sorted((row[0], row[1]) for row in rng.choices(rows, k=2))
        options = ["--start-time", f"@{start}", "--end-time", f"@{end}", "--from", f"{first[0]}:{first[1]}"]
        options += ["--to", f"{last[0]}:{last[1]}", "--clock", clock, "-q"]
        read = cli(*common, "read", "acme/iot/skewed", "-o", "jsonl", *options)
        assert cli(*common, "dump", "acme/iot/skewed", *options).stdout == read.stdout


def test_sha1_equals_hashlib(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    data = rng.integers(0, 256, 50_000, dtype=np.uint8)
    sizes = np.array([*range(200), 1000, 4096], np.int64)
    starts = rng.integers(0, 40_000, len(sizes)).astype(np.int64)
    wanted = [hashlib.sha1(data[a : a + n].tobytes()).digest() for a, n in zip(starts, sizes, strict=True)]
    assert [row.tobytes() for row in sha1_spans(data, starts, sizes)] == wanted
    monkeypatch.setattr(sha1_machine, "HAS_INSTRUCTIONS", False)
    assert [row.tobytes() for row in sha1_spans(data, starts, sizes)] == wanted


# -- files ------------------------------------------------------------------------------------------------------------


def test_days_and_open_files(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clocks that jump over many days, few open files, small groups: every row once, in its day, in order within a file."""
    monkeypatch.setattr(dump_files, "OPEN_FILES_MAX", 3)
    monkeypatch.setattr(dump_files, "GROUP_ROWS", 7)
    monkeypatch.setattr(scan_entries, "BATCH_ENTRIES", 60)
    monkeypatch.setattr(scan_entries, "_TOGETHER_ENTRIES", 60)
    rng = random.Random(2)
    times = [[START_MS + 86_400_000 * rng.randrange(9) for _ in range(50)] for _ in range(10)]
    ledgers = [[Made(time_ms) for time_ms in part] for part in times]
    path = make_store(tmp_path / "s", {"t/n/x": MadeTopic(ledgers)})
    common = ("--store", path, "topics", "dump", "t/n/x", "--level", "entries")
    report = cli(*common, "--directory", tmp_path / "d", "-o", "json").json
    files = list((tmp_path / "d").rglob("part-*.parquet"))
    assert (report["rows"], report["files"]) == (500, len(files))
    assert len(files) > 9
    assert report["bytes"] == sum(file.stat().st_size for file in files)
    for file in files:
        table = pq.read_table(file, partitioning=None)
        ids = [(row["ledgerId"], row["entryId"]) for row in table.select(["ledgerId", "entryId"]).to_pylist()]
        assert ids == sorted(ids)
        found = [times[ledger - 10][entry] for ledger, entry in ids]
        day = file.parent.name.removeprefix("day=")
        assert {str(np.datetime64(time_ms, "ms").astype("datetime64[D]")) for time_ms in found} == {day}
    _load(cli, tmp_path / "other", tmp_path / "d", "--keep-ledger-ids")
    cli("--store", tmp_path / "other", *common[2:], "--directory", tmp_path / "d2", "-q")
    assert _tree(tmp_path / "d") == _tree(tmp_path / "d2")


@pytest.mark.parametrize("level", ["messages", "entries"])
def test_a_large_value_has_a_file_for_itself(
    level: str, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dump_files, "GROUP_BYTES", 40_000)
    monkeypatch.setattr(dump_files, "LARGE_BYTES", 50_000)
    monkeypatch.setattr(scan_entries, "EntryScan", partial(scan_entries.EntryScan, batch_bytes=20_000))
    payloads = [random.Random(size).randbytes(size) for size in (10, 9_000, 8_000, 60_000, 30, 70_000, 55_000, 5)]
    made = [Made(NOW_MS + index, payload=payload) for index, payload in enumerate(payloads)]
    store = make_store(tmp_path / "s", {"public/default/t": MadeTopic([made])})
    options = ("--payload",) if level == "messages" else ("--level", "entries")
    dump = ("topics", "dump", "public/default/t", *options, "--directory", tmp_path / "d")
    assert cli("--store", store, *dump).exit_code == 0
    files = sorted((tmp_path / "d").rglob("*.parquet"))
    rows = [pq.read_table(file).to_pylist() for file in files]
    assert [len(part) for part in rows] == [3, 1, 1, 1, 1, 1]
    found = [row["payload"] for part in rows for row in part]
    assert [value.endswith(payload) for value, payload in zip(found, payloads, strict=True)] == [True] * len(payloads)
    assert [len(found[index]) for index in (0, 3)] == [10, 60_000] or level == "entries"
    codecs = [pq.ParquetFile(file).metadata.row_group(0).column(0).compression for file in files]
    assert codecs == ["ZSTD", "UNCOMPRESSED", "ZSTD", "UNCOMPRESSED", "UNCOMPRESSED", "ZSTD"]
    raw = bytearray(files[1].read_bytes())
    raw[raw.index(payloads[3]) + 9] ^= 1
    files[1].write_bytes(raw)
    with pytest.raises(OSError, match="CRC"):
        pq.read_table(files[1], page_checksum_verification=True)


_LARGE_MIB = 64


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    """A store with a value of 64 MiB, and that."""
    value = np.random.default_rng(1).bytes(_LARGE_MIB << 20)
    topic = MadeTopic([[Made(NOW_MS), Made(NOW_MS, payload=value)]])
    return make_store(tmp_path_factory.mktemp("large") / "s", {"t/n/x": topic}), value


@pytest.mark.parametrize(("level", "form"), [("messages", "parquet"), ("entries", "jsonl")])
def test_a_large_value_is_hardly_ever_copied(
    level: str, form: str, large: tuple[Path, bytes], tmp_path: Path, cli: Cli
) -> None:
    """It and one copy in the process that reads it, three copies where Arrow writes it, and what the programs themselves take."""
    store, value = large
    options = ["--payload"] if level == "messages" else ["--level", "entries"]
    common = ["-q", "--store", store, "topics", "dump", "t/n/x", *options, "--format", form, "--directory"]
    cli(*common, tmp_path / "small", "--to", "10:0")  # compiling takes memory
    (little,) = (seen.peak_bytes for seen in watch([ADMIN, *common, tmp_path / "little", "--to", "10:0"])[1])
    own_mib = (little >> 20) + 40  # libraries take 85 MiB on Python 3.11, 114 and more on 3.13
    peaks = sorted((seen.peak_bytes, seen.name) for seen in watch([ADMIN, *common, tmp_path / "d"])[1])
    by_name = {name: bytes_ >> 20 for bytes_, name in peaks}
    assert by_name["command"] < own_mib + 2 * _LARGE_MIB
    assert by_name.get("process", 0) < own_mib + 3 * _LARGE_MIB
    assert ("process" in by_name) == (form == "parquet")
    file = max((tmp_path / "d").rglob("part-*"), key=lambda path: path.stat().st_size)
    if form == "parquet":
        payload = pq.read_table(file, columns=["payload"])["payload"][-1].as_py()
    else:
        payload = b64decode(json.loads(file.read_text().splitlines()[-1])["payload"])
    assert payload.endswith(value)


def test_what_a_process_that_writes_cannot_do_is_an_error_here(tmp_path: Path) -> None:
    table = pa.table({"payload": pa.array([b"x"])})
    with pytest.raises(FileNotFoundError):
        write_apart(tmp_path / "none" / "part", table)


def test_a_process_that_writes_and_is_killed_is_short_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = starting.start_process
    monkeypatch.setattr(starting, "start_process", lambda target, *arguments: real(_die, *arguments))
    for value in (b"x", bytes(8 << 20)):  # what a pipe holds, and more
        with pytest.raises(MemoryError, match="killed"):
            write_apart(tmp_path / "part", pa.table({"payload": pa.array([value])}))


def _die(connection: object, path: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _load(cli: Cli, store: Path, dump: Path, *options: object) -> Any:
    if not store.exists():
        create_store(store, now_ms=NOW_MS)
    result = cli.done("--store", store, "topics", "load", dump, *options, "-o", "json")
    return result.json


def test_a_failed_dump_leaves_nothing(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    store = imported("small", "clean")
    written: list[int] = []

    def full(self: Any, table: Any, row_group_size: int) -> None:
        written.append(len(table))
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pq.ParquetWriter, "write_table", full)
    result = cli("--store", store, "topics", "dump", "public/default/plain", "--directory", tmp_path / "d")
    assert (result.exit_code, written) == (8, [300])
    assert re.match(r"error: no space left writing .*/day=.*/part-00000\.parquet: ", result.stderr)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "d").mkdir()
    assert cli("--store", store, "topics", "dump", "public/default/plain", "--directory", tmp_path / "d").exit_code == 3


def test_what_a_link_leads_to_is_kept(tmp_path: Path, cli: Cli) -> None:
    """What a killed dump left under that name is removed; a link there is nobody's dump."""
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    (tmp_path / "d.unfinished").symlink_to(kept)
    dump = ("topics", "dump", "public/default/plain", "--directory", tmp_path / "d")
    result = cli("--store", imported("small", "clean"), *dump)
    assert (result.exit_code, [*kept.iterdir()]) == (3, [kept / "file"])
    assert result.stderr.startswith(f"error: {tmp_path / 'd.unfinished'} is a link\n")


# -- round trips ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("state", "form"), [("clean", "parquet"), ("crashed", "jsonl")])
def test_dump_load_dump_is_the_same_to_the_byte(state: str, form: str, cli: Cli, tmp_path: Path) -> None:
    dump = ("topics", "dump", "--all-topics", "--level", "entries", "--format", form, "-q", "--directory")
    cli("--store", imported("small", state), *dump, tmp_path / "a")
    _load(cli, tmp_path / "s", tmp_path / "a", "--keep-ledger-ids")
    cli("--store", tmp_path / "s", *dump, tmp_path / "b")
    first, second = _tree(tmp_path / "a"), _tree(tmp_path / "b")
    assert first
    assert first == second


def test_new_ledgers_hold_the_same_entries(cli: Cli, store: Path, tmp_path: Path) -> None:
    """Without --keep-ledger-ids only ledger ids differ; into topics that are there, behind what they have; undo, and again."""
    dump = ("topics", "dump", "--pattern", "*/acme/*", "--level", "entries", "-q")
    read = ("topics", "read", "--all-topics", "-o", "jsonl")
    lines = cli("--store", store, *dump).stdout
    (tmp_path / "a.jsonl").write_text(lines)
    before = cli("--store", store, *read).json_lines
    changes = _load(cli, store, tmp_path / "a.jsonl")
    names = {
        f"persistent://{name}"
        for name, said in oracle("small")["topics"].items()
        if "/acme/" in f"/{name}" and said["messages"]
    }
    assert len(changes) == len(names)
    for change in changes:
        stats = cli.json(store, f"topics stats-internal {change['topic']}")
        there = {key: stats[key] for key in ("numberOfEntries", "lastConfirmedEntry")} | {
            "ledgers": len(stats["ledgers"])
        }
        assert change["after"] == there
    after = cli("--store", store, *dump).json_lines
    expected = [json.loads(line) for line in lines.splitlines()]
    assert {row["topic"] for row in expected} == names
    for name in names:
        found = [row for row in after if row["topic"] == name]
        old = [row for row in expected if row["topic"] == name]
        assert [_without(row) for row in found] == [_without(row) for row in old] * 2
        ledgers = [row["ledgerId"] for row in found]
        assert ledgers == sorted(ledgers)
        assert min(ledgers[len(old) :]) > max(row["ledgerId"] for row in expected)
    assert cli("--store", store, "store", "undo", 1).exit_code == 0
    assert cli("--store", store, *read).json_lines == before
    assert cli("--store", store, "store", "undo", 2).exit_code == 0
    assert cli("--store", store, *dump).json_lines == after


def _without(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in ("ledgerId", "ledgerTimestamp")}


def test_interceptors_give_what_the_real_broker_gave(cli: Cli, tmp_path: Path) -> None:
    """The recorded broker ran AppendIndexMetadataInterceptor: a chain of ours must number the same entries the same."""
    source = imported("small", "clean")
    compared = 0
    for name in ("public/default/chunked", "public/default/txn-out", "acme/orders/codecs"):
        (tmp_path / "a.jsonl").write_text(cli("--store", source, "topics", "dump", name, "--level", "entries").stdout)
        store = tmp_path / name.replace("/", "-")
        told = _load(cli, store, tmp_path / "a.jsonl", "--interceptors", "timestamp,index", "--now", f"@{NOW_MS}")
        assert told["bytes"] == sum(map(len, _entries(store, name)))
        for old, new in zip(_entries(source, name), _entries(store, name), strict=True):
            recorded, rest = split_broker_entry(memoryview(old), "entry")
            ours, same = split_broker_entry(memoryview(new), "entry")
            assert (ours.index, ours.timestamp_ms) == (recorded.index, NOW_MS)
            assert same == rest
            compared += 1
    assert compared > 100


def test_interceptors_none_leaves_what_a_client_receives(cli: Cli, tmp_path: Path) -> None:
    """Dumped, or loaded: the checksum in front covers the rest, payloads are those that the real client received."""
    source = imported("small", "clean")
    for name in ("public/default/batched", "acme/orders/codecs"):
        words = ("--store", source, "topics", "dump", name, "--level", "entries")
        whole = cli(*words).json_lines
        bare = cli(*words, "--interceptors", "none").json_lines
        assert [row["entryId"] for row in bare] == [row["entryId"] for row in whole]
        assert all(row["brokerIndex"] is not None for row in whole)
        for row in bare:
            payload = b64decode(row["payload"])
            assert payload[:2] == b"\x0e\x01"
            assert int.from_bytes(payload[2:6], "big") == google_crc32c.value(payload[6:])
            assert (row.get("brokerTime"), row.get("brokerIndex")) == (None, None)
            assert (row["size"], row["sha1"]) == (len(payload), hashlib.sha1(payload).hexdigest())
        (tmp_path / "whole.jsonl").write_text(cli(*words).stdout)
        store = tmp_path / name.replace("/", "-")
        _load(cli, store, tmp_path / "whole.jsonl", "--interceptors", "none")
        assert list(_entries(store, name)) == [b64decode(row["payload"]) for row in bare]
        read = cli("--store", store, "topics", "read", name, "-o", "jsonl").json_lines
        received = oracle("small")["topics"][name]["messages"]
        assert [row["sha1"] for row in read] == [row[8] for row in received]
        assert {row.get("brokerTime") for row in read} == {None}


def test_interceptors_of_a_broker_conf(cli: Cli, tmp_path: Path, monkeypatch: Any) -> None:
    """The option, the variable and the file of settings; the command line's one wins; the last line of a key counts."""
    source = imported("small", "clean")
    (tmp_path / "a.jsonl").write_text(cli.on(source, "topics dump public/default/plain --level entries").stdout)
    conf = tmp_path / "broker.conf"
    conf.write_text(
        "# brokerEntryMetadataInterceptors=x\nbrokerEntryMetadataInterceptors=\nclusterName=a\n"
        "brokerEntryMetadataInterceptors = org.apache.pulsar.common.intercept.AppendBrokerTimestampMetadataInterceptor,\\\n"
        "   org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor\n"
    )
    cases: list[tuple[tuple[object, ...], dict[str, object]]] = [
        (("--broker-conf", conf), {}),
        ((), {"PULSAR_ADMIN_BROKER_CONF": conf}),
        ((), {"PULSAR_ADMIN_INTERCEPTORS": "timestamp,index"}),
        (("--broker-conf", conf), {"PULSAR_ADMIN_INTERCEPTORS": "none"}),
    ]
    for number, (words, environment) in enumerate(cases):
        with monkeypatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, str(value))
            store = tmp_path / str(number)
            _load(cli, store, tmp_path / "a.jsonl", *words, "--now", f"@{NOW_MS}")
        found = [decode_message_entry(raw, "entry").broker for raw in _entries(store, "public/default/plain")]
        assert [(entry.timestamp_ms, entry.index) for entry in found if entry] == [
            (NOW_MS, index) for index in range(300)
        ]
    conf.write_text("brokerEntryMetadataInterceptors=com.example.Own\n")
    refused = cli("--store", store, "topics", "load", tmp_path / "a.jsonl", "--broker-conf", conf, "-o", "json")
    assert (refused.exit_code, refused.error["code"]) == (2, "invalid-value")
    cli(
        "--store", store, "topics", "load", tmp_path / "a.jsonl", "--broker-conf", tmp_path / "none", "-o", "json"
    ).ends(5)


def test_interceptors_go_on_where_the_topic_ends(cli: Cli, store: Path, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(cli.on(store, "topics dump public/default/plain --level entries").stdout)
    last = decode_message_entry(list(_entries(store, "public/default/plain"))[-1], "entry").broker
    assert last.index is not None
    there = oracle("small")["topics"]["public/default/plain"]["internal_stats"]
    before = _load(cli, store, tmp_path / "a.jsonl", "--interceptors", "index")["before"]
    said = (len(there["ledgers"]), there["numberOfEntries"], there["lastConfirmedEntry"])
    assert (before["ledgers"], before["numberOfEntries"], before["lastConfirmedEntry"]) == said
    found = [decode_message_entry(raw, "entry").broker for raw in _entries(store, "public/default/plain")]
    assert [entry.index for entry in found if entry] == list(range(last.index + 1 + 300))
    managed = read_rows(store, lambda txn: read_topic(txn, parse_topic("public/default/plain")).managed)
    assert managed.properties["index"] == str(last.index + 300)


def _entries(store: Path, name: str) -> Iterator[bytes]:
    with open_store(store) as opened, open_reader(opened) as reader:
        topic = read_topic(reader.txn, parse_topic(name))
        for position in topic.iter_positions(topic.first_position):
            yield bytes(reader.read(position.ledger_id, position.entry_id).payload)


def test_rows_of_entries_are_what_was_written(cli: Cli, tmp_path: Path) -> None:
    first = [Made(START_MS), Made(START_MS + 5, START_MS + 7), Made(START_MS + 9, batch=3), Made(0, raw=b"no message")]
    ledgers = [first, [Made(START_MS + 11)]]
    path = make_store(tmp_path / "s", {"a/b/t": MadeTopic(ledgers, closed_ms=(START_MS + 50,))})
    dump = ("--store", path, "topics", "dump", "a/b/t", "--level", "entries")
    rows = cli(*dump).json_lines
    for row in rows:
        made = ledgers[row["ledgerId"] - 10][row["entryId"]]
        stored = message_bytes(made, row["entryId"])
        times = row["publishTime"] or 0, row["brokerTime"], row["ledgerTimestamp"]
        assert times == (made.publish_ms, made.broker_ms, START_MS + 50 if made in first else None)
        assert (row["messages"], row["size"]) == (made.batch or 1, len(stored))
        assert row["payload"] == b64encode(stored).decode()
        assert row["sha1"] == hashlib.sha1(stored).hexdigest()
    assert len(rows) == 5
    bare = cli(*dump, "--interceptors", "none").json_lines
    assert [row["brokerTime"] for row in bare] == [None] * 5
    assert [row["size"] for row in bare] == [row["size"] - 13 * (row["brokerTime"] is not None) for row in rows]


def test_gaps(cli: Cli, tmp_path: Path) -> None:
    made = [Made(START_MS + number, lost=number in (3, 4)) for number in range(10)]
    source = make_store(tmp_path / "s", {"t/n/x": MadeTopic([made], open_last=False)})
    dump = cli("--store", source, "topics", "dump", "t/n/x", "--level", "entries").ends(1, "2 entries")
    (tmp_path / "a.jsonl").write_text(dump.stdout)
    kept = _load(cli, tmp_path / "kept", tmp_path / "a.jsonl", "--keep-ledger-ids")
    assert (kept["entries"], kept["after"]["numberOfEntries"]) == (8, 10)
    moved = _load(cli, tmp_path / "moved", tmp_path / "a.jsonl")
    assert moved["after"]["numberOfEntries"] == 8
    assert "2 entries are missing" in "".join(moved["warnings"])
    assert cli("--store", tmp_path / "kept", "topics", "dump", "t/n/x", "--level", "entries").stdout == dump.stdout


# -- bad dumps --------------------------------------------------------------------------------------------------------


@pytest.fixture
def dumped(cli: Cli, tmp_path: Path) -> Path:
    store = imported("small", "clean")
    options = ("--level", "entries", "--clock", "publish", "--directory", tmp_path / "d", "-q")
    assert cli("--store", store, "topics", "dump", "acme/iot/skewed", *options).exit_code == 0
    create_store(tmp_path / "s", now_ms=NOW_MS)
    return tmp_path / "d"


def _refused(cli: Cli, store: Path, dump: Path, *options: str) -> tuple[int, str]:
    result = cli("--store", store, "topics", "load", dump, *options, "-o", "json")
    assert read_rows(store, lambda txn: txn.count("changes")) == 0
    assert list((store / "entries").iterdir()) == []
    return result.exit_code, result.error["message"]


def test_damaged_parquet_is_refused(cli: Cli, dumped: Path, tmp_path: Path) -> None:
    file = max(dumped.rglob("*.parquet"), key=lambda path: path.stat().st_size)
    data = bytearray(file.read_bytes())
    rng = random.Random(4)
    wanted = list(_entries(imported("small", "clean"), "acme/iot/skewed"))
    codes = []
    for trial in range(8):
        broken = bytearray(data)
        broken[rng.randrange(4, len(data) // 2)] ^= 1 << rng.randrange(8)
        file.write_bytes(broken)
        store = tmp_path / f"s{trial}"
        create_store(store, now_ms=NOW_MS)
        result = cli("--store", store, "topics", "load", dumped, "-o", "json")
        codes.append(result.exit_code)
        # What is not needed may be damaged unseen (times, statistics): then every entry is what it was.
        if result.exit_code == 0:
            assert list(_entries(store, "acme/iot/skewed")) == wanted
        else:
            assert file.name in result.error["message"]
    assert set(codes) <= {0, 6}
    assert codes.count(6) > 3
    file.write_bytes(data[: len(data) // 2])
    assert _refused(cli, tmp_path / "s", dumped)[0] == 6
    file.unlink()
    code, message = _refused(cli, tmp_path / "s", dumped)
    assert (code, "is missing" in message) == (6, True)


def test_large_entries_are_read_few_at_a_time(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dump_files, "GROUP_BYTES", 60_000)
    monkeypatch.setattr(dump_source, "BATCH_BYTES", 40_000)
    payloads = [random.Random(number).randbytes(9_000) for number in range(50)]
    made = [Made(NOW_MS, payload=payload) for payload in payloads]
    store = make_store(tmp_path / "s", {"t/n/x": MadeTopic([made])})
    common = ("--store", store, "topics", "dump", "t/n/x", "--level", "entries", "--directory")
    for form in ("parquet", "jsonl"):
        cli(*common, tmp_path / form, "--format", form)
        ((_, stream),) = [(name, list(rows)) for name, rows in dump_source.EntryDump(tmp_path / form).topics()]
        assert max(int(rows.sizes.sum()) for rows in stream) <= 50_000
        found = [bytes(rows.data[a : a + n]) for rows in stream for a, n in zip(rows.starts, rows.sizes, strict=True)]
        assert [entry[-9_000:] for entry in found] == payloads


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_an_entry_that_no_bookie_takes_is_refused_before_it_is_read(form: str, tmp_path: Path, cli: Cli) -> None:
    made = [Made(NOW_MS), Made(NOW_MS, payload=random.Random(1).randbytes(16 << 20)), Made(NOW_MS)]
    store = make_store(tmp_path / "s", {"t/n/x": MadeTopic([made])})
    dump = ("topics", "dump", "t/n/x", "--level", "entries", "--format", form, "--directory", tmp_path / "d")
    assert cli("--store", store, *dump).exit_code == 0
    create_store(tmp_path / "other", now_ms=NOW_MS)
    for options in ((), ("--dry-run",)):
        result = cli("--store", tmp_path / "other", "topics", "load", tmp_path / "d", *options, "-o", "json")
        assert (result.exit_code, "a bookie takes" in result.error["message"]) == (8, True)
    assert list((tmp_path / "other" / "entries").iterdir()) == []


def test_bad_lines_are_refused(cli: Cli, tmp_path: Path) -> None:
    create_store(tmp_path / "s", now_ms=NOW_MS)
    store = imported("small", "clean")
    lines = cli("--store", store, "topics", "dump", "public/default/plain", "--level", "entries").stdout.splitlines()
    file = tmp_path / "a.jsonl"

    def refused(*texts: str) -> tuple[int, str]:
        file.write_text("\n".join(texts))
        return _refused(cli, tmp_path / "s", file)

    assert refused()[0] == 2
    assert refused("[1]")[0] == 6
    assert refused(lines[0][:-5])[0] == 6
    assert refused(lines[1], lines[0])[0] == 6
    assert refused(lines[0], lines[0])[0] == 6
    code, message = refused(lines[0], lines[1].replace('"payload":"D', '"payload":"E'))
    assert (code, "line 2" in message, "SHA-1" in message) == (6, True, True)
    other = lines[2].replace("/plain", "/other")
    assert refused(lines[0], other, lines[1])[0] == 2
    message_lines = cli("--store", store, "topics", "dump", "public/default/plain").stdout.splitlines()
    code, message = refused(message_lines[0])
    assert (code, "not a dump of entries" in message) == (2, True)
    assert _refused(cli, tmp_path / "s", tmp_path / "nothing")[0] == 5
    file.write_text("\n".join([lines[0], other]))
    assert _refused(cli, tmp_path / "s", file, "--topic", "t/n/x")[0] == 2


def test_ids_that_are_taken_and_topics_that_take_nothing(cli: Cli, store: Path, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(cli.on(store, "topics dump public/default/plain --level entries").stdout)
    options = ("--store", store, "topics", "load", tmp_path / "a.jsonl", "-o", "json")
    assert cli(*options, "--keep-ledger-ids").exit_code == 3
    assert cli(*options, "--topic", "acme/orders/parts").exit_code == 3
    assert cli(*options, "--interceptors", "nonsense").exit_code == 2
    assert cli.on(store, "topics terminate public/default/json").exit_code == 0
    ended = cli(*options, "--topic", "public/default/json")
    assert (ended.exit_code, "is terminated" in ended.stderr) == (3, True)
    assert list((store / "entries").glob("own-*")) == []


@pytest.mark.parametrize("jobs", [1, 2])
def test_values_are_dumped_by_every_engine(jobs: int) -> None:
    """What the producers sent, batched and not, in this process and in others."""
    options = DumpOptions(value=True)
    found: dict[tuple[str, int, int, int], Any] = {}
    dumped = Dumped()
    with open_store(shapes.store()) as opened, open_reader(opened, LocalEngine(2) if jobs > 1 else None) as reader:
        topics = [read_topic(reader.txn, parse_topic(shapes.PREFIX + name)) for name in shapes.TOPICS]
        for line in tables.whole_lines(dump_text(reader, topics, options, dumped)):
            row = json.loads(line)
            found[row["topic"], row["ledgerId"], row["entryId"], row["batchIndex"]] = row
    expected = {(row["topic"], *row["id"]): row.get("value") for row in shapes.sent()}
    assert {key: row.get("value") for key, row in found.items()} == expected
    undecoded = [row["valueError"] for row in found.values() if "valueError" in row]
    assert len(undecoded) == 2
    assert [error.message.split(": ")[1] for error in dumped.problems] == [
        "1 value cannot be decoded; valueError says why"
    ] * 2


# -- several at once, and halves --------------------------------------------------------------------------------------


def test_a_dump_leaves_the_directory_of_another_alone(cli: Cli, tmp_path: Path) -> None:
    """While the one holds the lock, nothing of it is removed; when it is gone, what it left is."""
    target = tmp_path / "d"
    store = imported("small", "clean")
    kept = tmp_path / "d.unfinished" / "part"

    def attack() -> None:
        with dump_files.DumpDirectory(target, "jsonl", "publish", "entries"):
            kept.write_bytes(b"x")
            cli("--store", store, "topics", "dump", "--all-topics", "--directory", target).ends(4)
            assert kept.read_bytes() == b"x"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        attack()
    assert not (tmp_path / "d.unfinished").exists()
    (tmp_path / "d.unfinished" / "left").mkdir(parents=True)
    (tmp_path / "d.unfinished" / "left" / "part-00000.jsonl").write_bytes(b"{}\n")
    assert cli("--store", store, "topics", "dump", "--all-topics", "--directory", target).exit_code == 0
    assert not (target / "left").exists()


def test_executors_of_a_dump_that_was_killed_write_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They find no directory by the name that they know while the next dump removes what they wrote."""
    staging = tmp_path / "d.unfinished" / dump_files.STAGING
    staging.mkdir(parents=True)
    (staging / "written").write_bytes(b"x")
    remove, removed = dump_files.remove_tree, []

    def remove_beside(path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            (staging / "late").write_bytes(b"x")
        removed.append(path)
        remove(path)

    monkeypatch.setattr(dump_files, "remove_tree", remove_beside)
    with dump_files.DumpDirectory(tmp_path / "d", "jsonl", "publish", "entries"):
        assert len(removed) == 1
    assert sorted(path.name for path in (tmp_path / "d").iterdir()) == [dump_files.MANIFEST]


@pytest.mark.parametrize("leads_to", ["kept", "nowhere", ""])
def test_a_link_or_file_where_executors_would_write_goes(leads_to: str, tmp_path: Path) -> None:
    """And what the link leads to stays."""
    kept, left = tmp_path / "kept", tmp_path / "d.unfinished" / dump_files.STAGING
    kept.mkdir()
    left.parent.mkdir()
    left.symlink_to(tmp_path / leads_to) if leads_to else left.write_bytes(b"x")
    with dump_files.DumpDirectory(tmp_path / "d", "jsonl", "publish", "entries"):
        pass
    assert kept.is_dir()
    assert [path.name for path in (tmp_path / "d").iterdir()] == [dump_files.MANIFEST]


def test_a_dump_that_another_finished_first(tmp_path: Path) -> None:
    target = tmp_path / "d"
    with pytest.raises(AlreadyExists), dump_files.DumpDirectory(target, "jsonl", "publish", "entries"):
        target.mkdir()
    assert list(target.iterdir()) == []
    assert not (tmp_path / "d.unfinished").exists()


def test_what_is_dumped_is_nobody_elses(cli: Cli, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = imported("small", "clean")
        for form in ("parquet", "jsonl"):
            assert cli(
                "--store", store, "topics", "dump", "--all-topics", "--directory", tmp_path / form, "--format", form
            ).exit_code in (0, 1)
    finally:
        os.umask(before)
    for path in [tmp_path / "parquet", tmp_path / "jsonl", *tmp_path.rglob("*/**/*")]:
        assert path.stat().st_mode & 0o077 == 0, path


@pytest.fixture(scope="module")
def both_forms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both formats of a dump of entries, to be copied."""
    folder = tmp_path_factory.mktemp("dumped")
    store = make_store(folder / "store", {"public/default/t": MadeTopic([[Made(START_MS + n) for n in range(40)]])})
    for form in ("parquet", "jsonl"):
        options = ["--level", "entries", "--format", form, "--directory", str(folder / form), "-q"]
        assert run(["--store", str(store), "topics", "dump", "--all-topics", *options]) == 0
    return folder


@pytest.mark.parametrize(
    ("form", "damage"),
    [
        *(("parquet", damage) for damage in ("no manifest", "fewer rows", "a number", "deep", "infinite", "not JSON")),
        ("jsonl", "fewer rows"),
    ],
)
def test_half_a_dump_is_not_loaded(form: str, damage: str, both_forms: Path, cli: Cli, tmp_path: Path) -> None:
    shutil.copytree(both_forms / form, tmp_path / "d")
    manifest = tmp_path / "d" / "_manifest.json"
    fields = json.loads(manifest.read_text())
    texts = {
        "a number": b'{"files": [{"path": "x", "rows": true}]}',
        "deep": b"[" * 100_000,
        "infinite": json.dumps({**fields, "dump": float("inf")}).encode(),
        "not JSON": b"\xff\xfe",
    }
    if damage == "no manifest":
        manifest.unlink()
    elif damage == "fewer rows":
        fields["files"][0]["rows"] += 1
        manifest.write_text(json.dumps(fields))
    else:
        manifest.write_bytes(texts[damage])
    create_store(tmp_path / "s", now_ms=NOW_MS)
    for dry in (("--dry-run",), ()):
        cli("--store", tmp_path / "s", "topics", "load", tmp_path / "d", *dry).ends(6, "manifest")
    with open_store(tmp_path / "s") as store, store.read() as txn:
        assert txn.count("tree") == txn.count("changes") == 0


ROW = {"topic": "persistent://public/default/t", "ledgerId": 1, "entryId": 0, "payload": "eA=="}


@pytest.mark.parametrize(
    "changed",
    [
        {"ledgerId": 1.9},
        {"ledgerId": True},
        {"ledgerId": -1},
        {"ledgerId": 2**63},
        {"ledgerId": 10**400},
        {"entryId": float("inf")},
        {"entryId": None},
        {"messages": 2**31},
        {"ledgerTimestamp": [1]},
        {"payload": "ü"},
        {"payload": 5},
        {"sha1": 5},
        {"topic": ["a"]},
        {"topic": "\ud800"},
        {"topic": "persistent://public/default/" + "x" * 100_000},
        {"topic": "persistent://public/default/t-partition-" + "1" * 4300},
        {"more": [[[]] * 3] * 30},
        {"topic": "persistent://public/default/x\0y"},
    ],
)
def test_rows_that_no_dump_has(changed: dict[str, Any], cli: Cli, tmp_path: Path) -> None:
    """Refused, or loaded under the very name and ids that stand there: never as others, never as a bug."""
    create_store(tmp_path / "s", now_ms=NOW_MS)
    row = {**ROW, **changed}
    (tmp_path / "d.jsonl").write_text(json.dumps(row) + "\n")
    done = cli("--store", tmp_path / "s", "topics", "load", tmp_path / "d.jsonl")
    with open_store(tmp_path / "s") as store, store.read() as txn:
        if done.exit_code:
            assert done.exit_code in (2, 6), done.stderr
            assert txn.count("tree") == txn.count("changes") == 0
        else:
            assert read_topic(txn, parse_topic(row["topic"])).number_of_entries == 1
            assert changed.keys() <= {"topic", "more"}


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("ledgerId", pa.array(["1"])),
        ("ledgerId", pa.array([2**63], pa.uint64())),
        ("entryId", pa.array([-1], pa.int64())),
        ("payload", pa.array(["text"])),
        ("payload", pa.array([None], pa.binary())),
        ("payload", pa.array([b"x"]).dictionary_encode()),
        ("sha1", pa.array([b"short"])),
        ("ledgerTimestamp", pa.array([True])),
    ],
)
def test_parquet_of_other_types(name: str, column: pa.Array, cli: Cli, tmp_path: Path) -> None:
    columns = {"ledgerId": pa.array([1]), "entryId": pa.array([0]), "payload": pa.array([b"x"]), name: column}
    table = pa.table(columns).replace_schema_metadata({"topic": "persistent://public/default/t"})
    pq.write_table(table, tmp_path / "d.parquet")
    create_store(tmp_path / "s", now_ms=NOW_MS)
    done = cli("--store", tmp_path / "s", "topics", "load", tmp_path / "d.parquet")
    assert done.exit_code in (2, 6), done.stderr


def test_parquet_that_names_no_topic(cli: Cli, tmp_path: Path) -> None:
    table = pa.table({"ledgerId": pa.array([1]), "entryId": pa.array([0]), "payload": pa.array([b"x"])})
    create_store(tmp_path / "s", now_ms=NOW_MS)
    for metadata, said in (
        ({"topic": b"\xff"}, "its topic is not UTF-8"),
        ({}, "it names no topic"),
        (None, "d.parquet"),
    ):
        pq.write_table(table.replace_schema_metadata(metadata), tmp_path / "d.parquet")
        if metadata is None:
            (tmp_path / "d.parquet").write_bytes(b"PAR1" * 9)
        done = cli("--store", tmp_path / "s", "topics", "load", tmp_path / "d.parquet")
        assert (done.exit_code, said in done.stderr) == (6, True), done.stderr
    for name in table.schema.names:
        pq.write_table(table.drop([name]).replace_schema_metadata({"topic": "a/b/c"}), tmp_path / "d.parquet")
        cli("--store", tmp_path / "s", "topics", "load", tmp_path / "d.parquet").ends(2, f"it has no column {name}")


def test_a_directory_that_is_no_dump_is_not_searched(cli: Cli, demo_copy: Path, tmp_path: Path) -> None:
    """PATH may be all of a file system."""
    inner = tmp_path / "of" / "somebody" / "else"
    inner.mkdir(parents=True)
    (inner / "part-00000.parquet").write_bytes(b"x")
    refused = cli("--store", demo_copy / "pulsar-store", "topics", "load", tmp_path, "-o", "json")
    assert (refused.exit_code, refused.error["message"]) == (5, f"{tmp_path} holds no dump")


def test_the_first_message_of_a_time_is_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def rows(*of: object) -> Iterator[pa.RecordBatch]:
        for number in range(3):
            columns = [pa.array([one], pa.int64()) for one in (7, number, -1, 10 * number)]
            yield pa.RecordBatch.from_arrays(columns, [*"abcd"])

    monkeypatch.setattr(job, "iter_window_rows", rows)
    found = job.find_event_time(None, SimpleNamespace(ids=[7]), 10)
    assert (found.position, found.entries_read) == (Position(7, 1), 2)
