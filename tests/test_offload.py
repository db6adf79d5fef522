"""Ledgers of tiered storage: what a real broker offloaded, read as the broker read it, and what is wrong with objects."""

import base64
import hashlib
import json
import shutil
import struct
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

import pulsar_admin as pa
from pulsar_admin.store.codec.offload import decode_offload_index, iter_block_entries
from pulsar_admin.store.codec.sequencefile import iter_map_file
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.errors import EntryLogCorrupt, StoreError, Unsupported
from pulsar_admin.store.sources.objects import find_offloaded, open_objects
from pulsar_admin.store.transfer.offloads import add_offload, plan_offload
from tests.conftest import Cli
from tests.spark.servers import free_port, wait_for
from tests.worlds import oracle, world

TOPICS = tuple(f"persistent://acme/{kind}/{name}" for kind in ("fs", "s3") for name in ("small", "batched"))
PLACES = {"fs": "tiered", "s3": "objects"}


@pytest.fixture
def store(cli: Cli, tmp_path: Path) -> Path:
    """The store of the world's metadata, without any entry."""
    path = tmp_path / "store"
    cli("--store", path, "store", "import", "standalone", world("offloaded") / "data")
    return path


def _add(cli: Cli, store: Path, place: object) -> int:
    return cli("--store", store, "store", "add", "offload", place).exit_code


def test_messages_are_those_that_the_broker_read(cli: Cli, store: Path) -> None:
    said = oracle("offloaded")
    for place in PLACES.values():
        assert _add(cli, store, world("offloaded") / place) == 1  # those of topic large are not there
    for topic in TOPICS:
        answer = cli("--store", store, "topics", "read", topic, "--payload", "-o", "jsonl")
        assert (answer.exit_code, answer.stderr) == (0, "")
        rows = [json.loads(line) for line in answer.stdout.splitlines()]
        found = [
            [
                *(row["ledgerId"], row["entryId"], row["batchIndex"]),
                hashlib.sha256(base64.b64decode(row["payload"])).hexdigest()[:16],
                *(row["publishTime"], row["key"]),
            ]
            for row in rows
        ]
        assert found == said["messages"][topic]
        stats = cli("--store", store, "topics", "stats", topic, "-o", "json").json
        assert said["stats"][topic] == {
            **{key: stats[key] for key in ("storageSize", "backlogSize", "offloadedStorageSize")},
            "msgBacklog": stats["subscriptions"]["keep"]["msgBacklog"],
        }
        internal = cli("--store", store, "topics", "stats-internal", topic, "-o", "json").json
        listed = [
            {key: one[key] for key in ("ledgerId", "entries", "size", "offloaded")} for one in internal["ledgers"]
        ]
        assert listed == [{key: one[key] for key in listed[0]} for one in said["ledgers"][topic]]


def test_a_time_in_the_middle(cli: Cli, store: Path) -> None:
    rows = oracle("offloaded")["messages"]["persistent://acme/s3/small"]
    _add(cli, store, world("offloaded") / "objects")
    words = ["topics", "find-by-time", "acme/s3/small", "--time", f"@{rows[500][4]}", "--clock", "publish"]
    found = cli("--store", store, *words, "-o", "json").json["position"]
    first = next(row for row in rows if row[4] >= rows[500][4])
    assert (found["ledgerId"], found["entryId"]) == tuple(first[:2])


def test_the_proof_of_a_time_counts_what_is_not_imported(cli: Cli, store: Path) -> None:
    words = ["topics", "find-by-time", "acme/fs/small", "--time", "2026-01-01T00:00:00Z", "--explain"]
    answer = cli("--store", store, *words, "-o", "json")
    shown = [(row["ledgerId"], row["entries"], row["unseen"]) for row in answer.json["ledgers"]]
    assert (answer.exit_code, shown) == (1, [(3, 400, 400), (4, 400, 400), (5, 200, 200), (19, 0, 0)])


def test_python_brings_them_as_the_command_does(store: Path) -> None:
    said = oracle("offloaded")["messages"]["persistent://acme/s3/small"]
    with pa.open_store(store, writable=True) as opened:
        assert opened.add_offload(str(world("offloaded") / "objects"), dry_run=True).entries == 1150
        assert opened.add_offload(str(world("offloaded") / "objects")).ledgers == 4
        (part,) = opened.changes()[-1].parts
        assert (part.more["place"], len(part.more["ledgers"])) == (str(world("offloaded") / "objects"), 4)
        keys = opened.topic("acme/s3/small").messages(columns=["key"]).to_arrow()["key"].to_pylist()
    assert keys == [row[5] for row in said]


def test_what_is_there_is_no_deleted_ledger(cli: Cli, store: Path) -> None:
    for place in PLACES.values():
        _add(cli, store, world("offloaded") / place)
    orphans = {row["ledgerId"] for row in cli("--store", store, "ledgers", "orphans", "-o", "jsonl").json_lines}
    codes = {row["code"] for row in cli("--store", store, "store", "check", "-o", "jsonl").json_lines}
    assert ("ledgers-gone" in codes) == bool(orphans)


def test_no_screen_calls_lost_what_is_in_tiered_storage(cli: Cli, store: Path) -> None:
    name, ledger_id = "acme/fs/batched", 6
    answer = cli("--store", store, "topics", "why", name, "-s", "keep", "-o", "json").json
    reasons = {reason["code"]: reason for reason in answer["reasons"]}
    assert (answer["held"], "unreadable" in reasons) == (False, False)
    assert reasons["in-tiered-storage"]["command"] == "pulsar-admin store add offload DIR"
    assert "messages" not in reasons["backlog"]["evidence"]  # of batches nobody knows here
    facts = cli("--store", store, "ledgers", "info", ledger_id, "-o", "json").json
    assert (facts["state"], facts["lost"]) == ("OFFLOADED", None)
    assert cli("--store", store, "ledgers", "missing", ledger_id, "-o", "jsonl").json_lines == []
    assert cli("--store", store, "store", "preflight", "-o", "json").json["topics"] == []
    _add(cli, store, world("offloaded") / "tiered")
    assert "in-tiered-storage" not in cli("--store", store, "topics", "why", name, "-s", "keep", "-o", "json").stdout


def test_an_s3_server(cli: Cli, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same objects below a prefix of a bucket, from moto on loopback."""
    from pyarrow import fs

    port = free_port()
    words = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    query = f"?endpoint_override=127.0.0.1%3A{port}&scheme=http&region=us-east-1"
    try:
        wait_for(port, server)
        system, _ = fs.FileSystem.from_uri(f"s3://key:secret@tier/x{query}&allow_bucket_creation=true")
        system.create_dir("tier")
        for path in (world("offloaded") / "objects").iterdir():
            with system.open_output_stream(f"tier/prod/{path.name}") as out:
                out.write(path.read_bytes())
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        url = f"s3://tier/{{}}{query}"
        assert _add(cli, store, url.format("nothing")) == 5
        answer = cli("--store", store, "store", "add", "offload", url.format("prod"), "-o", "json")
        assert (answer.json["ledgers"], answer.json["entries"]) == (4, 1150)
    finally:
        server.kill()
        server.wait()
    assert len(cli("--store", store, "topics", "read", "acme/s3/batched", "-o", "jsonl").stdout.splitlines()) == 1500


@pytest.mark.parametrize("place", ["objects", "tiered"])
@pytest.mark.parametrize("damage", ["cut", "longer", "flipped", "index"])
def test_what_does_not_fit_leaves_the_store_as_it_was(
    place: str, damage: str, cli: Cli, store: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(world("offloaded") / place, copy)
    target = next(path for path in sorted(copy.rglob("*")) if path.name == "data" or "-ledger-12" in path.name)
    if damage == "index":
        target = (
            target.with_name(target.name + "-index") if place == "objects" else target
        )  # a MapFile's own is not read
    raw = bytearray(target.read_bytes())
    before = {path: path.read_bytes() for path in (store / "entries").iterdir()}
    target.write_bytes(
        {"cut": raw[:-7], "longer": raw + b"\0", "flipped": _flipped(raw), "index": raw[: len(raw) // 2]}[damage]
    )
    cli("--store", store, "store", "add", "offload", copy).ends(6, str(target).removesuffix("-index"))
    assert {path: path.read_bytes() for path in (store / "entries").iterdir()} == before
    assert cli("--store", store, "topics", "read", "acme/s3/small", "-o", "jsonl").stdout == ""


def _flipped(raw: bytearray) -> bytes:
    """Change the id of an entry, or what zlib's checksum is of."""
    at = 128 + 4 + 7 if raw[:3] != b"SEQ" else len(raw) - 40
    return bytes(raw[:at]) + bytes([raw[at] ^ 1]) + bytes(raw[at + 1 :])


def test_another_uuid_is_another_object(cli: Cli, store: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(world("offloaded") / "objects", copy)
    for path in copy.iterdir():
        path.rename(path.with_name("0" * 8 + path.name[8:]))
    answer = cli("--store", store, "store", "add", "offload", copy, "-o", "json")
    assert (answer.exit_code, answer.json["ledgers"]) == (1, 0)
    assert {12, 13, 14, 15} <= set(answer.json["absent"])


def test_cut_anywhere() -> None:
    """An index or a block that is cut at any byte is no index and no block."""
    objects = open_objects(str(world("offloaded") / "objects"))
    held = find_offloaded(objects)
    ledger = min(held.values(), key=lambda one: objects.size(one.data_path))
    raw = objects.read(ledger.index_path, 0, 1 << 20)
    index = decode_offload_index(raw, "index")
    for end in range(len(raw)):
        with pytest.raises(StoreError):
            decode_offload_index(raw[:end], "index")
    metadata = raw[32 : len(raw) - 20 * len(index.blocks)]
    head = raw[:4] + struct.pack(">iqqii", 32 + len(metadata) + 40, index.data_bytes, 128, 2, len(metadata))
    ends = index.data_bytes
    for entry, offset, rises in ((1, 1, True), (0, 1, False), (1, 0, False), (1, ends - 1, True), (1, ends, False)):
        with nullcontext() if rises else pytest.raises(EntryLogCorrupt):
            decode_offload_index(head + metadata + struct.pack(">qiqqiq", 0, 1, 0, entry, 2, offset), "index")
    data = objects.read(ledger.data_path, 0, index.data_bytes)
    for end in (0, 27, 28, 127, 128, 131, 140, len(data) - 1):
        with pytest.raises(EntryLogCorrupt):
            list(iter_block_entries(data[:end], 0, "data"))


def test_blocks_with_padding() -> None:
    """As ``BlockAwareSegmentInputStreamImpl`` fills a block whose last entry did not fit."""
    entries = [b"one", b"", b"three" * 9]
    body = b"".join(struct.pack(">iq", len(entry), number) + entry for number, entry in enumerate(entries, 7))
    for padding in range(20):
        size = 128 + len(body) + padding
        block = struct.pack(">Iqqq", 0xFBDBABCB, 128, size, 7) + bytes(100) + body + (b"\xfe\xdc\xde\xad" * 5)[:padding]
        assert [bytes(entry) for entry in iter_block_entries(block, 7, "block")] == entries
        with pytest.raises(EntryLogCorrupt):
            list(iter_block_entries(block, 8, "block"))
        if padding:
            with pytest.raises(EntryLogCorrupt):
                list(iter_block_entries(block[:-1] + b"\0", 7, "block"))


def test_a_sequence_file_by_records() -> None:
    """Hadoop's other form: records alone, plain, with a mark in between; bytes as ``SequenceFile.Writer.append`` writes them."""
    mark = bytes(range(16))
    head = (
        b"SEQ\x06"
        + b"\x21org.apache.hadoop.io.LongWritable"
        + b"\x22org.apache.hadoop.io.BytesWritable"
        + b"\0\0"
        + bytes(4)
        + mark
    )

    def record(key: int, value: bytes) -> bytes:
        return struct.pack(">iiqi", 12 + len(value), 8, key, len(value)) + value

    raw = head + record(-1, b"metadata") + record(0, b"a") + struct.pack(">i", -1) + mark + record(1, b"")
    assert [(key, bytes(value)) for key, value in iter_map_file(raw, "data")] == [
        (-1, b"metadata"),
        (0, b"a"),
        (1, b""),
    ]
    with pytest.raises(EntryLogCorrupt):
        list(iter_map_file(raw[:-1], "data"))
    with pytest.raises(Unsupported, match="IntWritable"):
        list(iter_map_file(raw.replace(b"\x21org.apache.hadoop.io.Long", b"\x20org.apache.hadoop.io.Int"), "data"))
    with pytest.raises(EntryLogCorrupt):
        list(iter_map_file(raw.replace(struct.pack(">i", -1) + mark, struct.pack(">i", -1) + bytes(16)), "data"))


def test_what_another_process_brought_meanwhile_is_not_written_again(cli: Cli, store: Path) -> None:
    place = world("offloaded") / "objects"
    with open_store(store) as opened:
        plan = plan_offload(opened, str(place), open_objects(str(place)))
    assert _add(cli, store, place) == 1
    files = sorted((store / "entries").iterdir())
    with open_store(store, writable=True) as opened:
        late = add_offload(opened, plan, 0)
    assert (late.ledgers, late.entries, late.here) == (0, 0, 4)
    assert sorted((store / "entries").iterdir()) == files
