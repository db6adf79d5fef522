"""Make the corpus from the golden data: ``python -m tests.fuzz.gather [DIRECTORY OF MORE INPUTS]``.

Of all inputs, the smallest first, those stay that reach a line of ours by a way that none before has taken, and one rich one.
"""

from __future__ import annotations

import gzip
import json
import random
import sys
import tarfile
from collections import defaultdict
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pulsar_admin.store.codec import compression, delayedbucket, entrylog, journal, rocksvalue
from pulsar_admin.store.codec.dbledger import LocationRow, encode_location_row
from pulsar_admin.store.codec.entry import decode_entry
from pulsar_admin.store.codec.policyevent import builtin_schema
from pulsar_admin.store.codec.wrapper import Wrapping, wrap
from pulsar_admin.store.db import delayed_entries as delayedindex
from pulsar_admin.store.db import nacks as nackrow
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.db.tree import decode_node
from pulsar_admin.store.nacks.tracker import NegativeAcksTracker
from pulsar_admin.store.names import Position
from tests import encoders
from tests.fuzz.mutators import join
from tests.fuzz.running import CORPUS, Runner, inputs_of, keep
from tests.fuzz.targets import TARGETS
from tests.stores import imported
from tests.worlds import GOLDEN, world

MOST_BYTES = 6000
MOST_INPUTS = 60
RICH_BYTES = 1500

Seeds = dict[str, list[bytes]]


def main() -> None:
    more = [Path(argument) for argument in sys.argv[1:]]
    seeds = _seeds()
    for name in TARGETS:
        inputs = [*seeds[name], *inputs_of(name), *(data for folder in more for data in inputs_of(name, folder))]
        kept = _minimised(name, inputs)
        for old in (CORPUS / name).glob("*"):
            old.unlink()
        for data in kept:
            keep(CORPUS / name, data)
        print(f"{name}: {len(kept)} of {len(inputs)} inputs, {sum(map(len, kept))} bytes", flush=True)


def _minimised(name: str, inputs: Iterable[bytes]) -> list[bytes]:
    """Return the inputs of which each reaches lines of the package that those before do not."""
    runner = Runner(name)
    seen: set[tuple[str, int, int]] = set()
    kept = []
    for data in sorted({data for data in inputs if len(data) <= MOST_BYTES}, key=lambda data: (len(data), data)):
        reached: set[tuple[str, int, int]] = set()

        def trace(frame: FrameType, event: str, argument: object, reached: Any = reached) -> Any:  # Any: a tracer
            path = frame.f_code.co_filename
            if "/store/" not in path and "/commands/" not in path and "/pulsar_admin/" not in path:
                return None
            before = 0

            def lines(frame: FrameType, event: str, argument: object) -> Any:  # Any: a tracer
                nonlocal before
                if event == "line":
                    reached.add((path, before, frame.f_lineno))
                    before = frame.f_lineno
                return lines

            return lines

        sys.settrace(trace)
        try:
            runner.run(data)
        finally:
            sys.settrace(None)
        if reached - seen and len(kept) < MOST_INPUTS:
            seen |= reached
            kept.append(data)
    rich = [data for data in inputs if len(data) <= RICH_BYTES and runner.run(data)]
    return sorted({*kept, *([max(rich, key=len)] if rich else [])}, key=len)


def _seeds() -> Seeds:
    found: Seeds = defaultdict(list)
    source = random.Random(1)
    for name, state in (("small", "mutated"), ("small", "clean"), ("nometa", "clean")):
        _from_store(imported(name, state), found)
        _from_files(world(name) / state, found)
    _from_zookeeper(found)
    _from_encoders(found, source)
    _from_texts(found)
    return found


def _from_store(path: Path, found: Seeds) -> None:
    with open_store(path) as store, store.read() as txn:
        for key, row in txn.items("tree"):
            found["tree-row"].append(join(key, bytes(row)))
            node = rocksvalue.NodeStat(1, 0, 1, 2, False)
            value = decode_node(key, row).value
            found["rocks-value"].append(rocksvalue.encode_value(node, value))
            _sort_value(key.decode("utf-8", "replace"), value, found)
        for database, target in (("entries", "index-rows"), ("times", "index-rows"), ("nacks", "nack-rows")):
            found[target] += [join(key, bytes(row)) for key, row in txn.items(database)][:300]


def _sort_value(path: str, value: bytes, found: Seeds) -> None:
    for kind, target in (
        ("/managed-ledgers/", "managed-ledger"),
        ("/managed-ledgers/", "cursor-info"),
        ("/ledgers/", "ledger-metadata"),
        ("/ledgers/", "bookie"),
        ("/schemas/", "schema"),
        ("/admin/", "policies"),
    ):
        if kind in path:
            found[target].append(value)
    if "/managed-ledgers/" in path:
        for codec in (compression.LZ4, compression.ZSTD, compression.SNAPPY):
            found["wrapper"] += [wrap(value, Wrapping(codec), "cursor"), wrap(value, Wrapping(codec), "managed-ledger")]
    if b"BookieMetadataFormatVersion" in value:
        found["prototext"].append(value)


def _from_files(root: Path, found: Seeds) -> None:
    current = root / "bookkeeper/current"
    for log in sorted(current.glob("*.log")):
        data = log.read_bytes()
        records = [item for item in entrylog.iter_records(data, "x") if isinstance(item, entrylog.Record)]
        payloads: dict[int, list[bytes]] = defaultdict(list)
        for record in records:
            body = bytes(record.body(data))
            found["entry"].append(body)
            payload = bytes(decode_entry(body, None, where="x").payload)
            payloads[record.ledger_id].append(payload)
            _sort_payload(payload, found)
        for first in range(0, len(records), max(1, len(records) // 6)):
            piece = b"".join(data[record.offset : record.end] for record in records[first : first + 4])
            found["entry-log"].append(data[:1024] + piece)
            found["entry-log-scan"].append(data[:1024] + piece + bytes(100))
        if records:
            found["entry-log"].append(
                data[:24] + bytes(1000) + data[records[-1].end - 40 - records[-1].size : records[-1].end + 200]
            )
        for entries in payloads.values():
            found["cursor-ledger"].append(b"".join(join(part, b"") for part in entries[-3:][::-1] if len(part) < 2000))
            found["message-columns"].append(b"".join(join(part, b"") for part in entries[:3] if len(part) < 2000))
    for file in sorted(current.glob("*.txn")):
        data = file.read_bytes()
        items = [item for item in journal.iter_records(data, "x") if hasattr(item, "offset")]
        for first in range(0, len(items) - 5, max(1, len(items) // 8)):
            piece = (
                data[: journal.PADDED_HEADER_BYTES] + data[items[first].offset : items[first + 4].offset] + bytes(64)
            )
            found["journal"].append(piece)
            found["journal-scan"].append(piece)
    for file in (*current.glob("VERSION"), *current.glob("last*"), *root.glob("bookkeeper/current/*Mark")):
        found["bookie"].append(file.read_bytes())


def _sort_payload(payload: bytes, found: Seeds) -> None:
    for name in ("message", "broker-entry", "compacted-entry", "cursor-position", "delayed-bucket", "schema"):
        found[name].append(payload)
    found["batch"].append(b"\x03\x01" + payload[40:])
    for codec in (compression.LZ4, compression.ZSTD, compression.SNAPPY):
        packed = compression.compress(codec, payload)
        found["compressed"].append(bytes([codec]) + len(payload).to_bytes(3, "big") + packed)
    found["policy-event"].append(join(b"", payload[60:]))
    found["value"] += [bytes([kind, 1]) + join(b"", payload[50:]) for kind in (0, 2, 3)]


def _from_zookeeper(found: Seeds) -> None:
    with tarfile.open(GOLDEN / "zookeeper-version-2.tar.xz") as tar:
        for member in tar:
            file = tar.extractfile(member) if member.isfile() else None
            if file is None:
                continue
            data = file.read()
            if data.startswith(b"ZKLG"):
                end = len(data.rstrip(b"\0"))
                found["zookeeper-log"] += [data[: min(end, 3000)] + bytes(40), data[: min(end, 500)]]
            if data.startswith(b"ZKSN"):
                found["zookeeper-snapshot"].append(data)
    snapshot = _small_snapshot()
    found["zookeeper-snapshot"].append(snapshot)
    found["zookeeper-directory"] += [join(snapshot, log) for log in found["zookeeper-log"]]
    found["zookeeper-packed"].append(gzip.compress(snapshot, mtime=0))
    block = compression.compress(compression.SNAPPY, snapshot)
    head = b"\x82SNAPPY\0" + (1).to_bytes(4, "big") * 2
    found["zookeeper-packed"].append(head + len(block).to_bytes(4, "big") + block)


def _small_snapshot() -> bytes:
    import struct

    from tests.fuzz.mutators import seal_zookeeper_snapshot

    out = b"ZKSN" + struct.pack(">iqi", 2, -1, 1) + struct.pack(">qi", 7, 30_000) + struct.pack(">i", 1)
    out += struct.pack(">qi", 1, 1) + struct.pack(">i", 31) + b"\0\0\0\x05world\0\0\0\x06anyone"
    for path, owner in ((b"", 0), (b"/a", 0), (b"/a/b", 5)):
        out += struct.pack(">i", len(path)) + path + struct.pack(">i", 3) + b"abc"
        out += struct.pack(">qqqqqiiiqq", 1, 1, 2, 3, 4, 0, 0, 0, owner, 2)
    seal = struct.pack(">qi", 0, 1) + b"/"
    return seal_zookeeper_snapshot(out + struct.pack(">i", 1) + b"/" + seal[1 + 0 :].rjust(13, b"\0")[:13])


def _from_encoders(found: Seeds, source: random.Random) -> None:
    for count, spread in ((1, 1), (50, 10), (300, 100_000)):
        times = np.sort(np.array([source.randrange(spread) * 1000 for _ in range(count)], np.int64))
        rows = delayedindex.sorted_rows(times, np.full(count, 7, np.int64), np.arange(count, dtype=np.int64))
        found["delayed-index"] += [data for data, _ in delayedindex.iter_encoded(rows, 1000)]
    found["delayed-bucket"] += [
        encoders.encode_entry_ids(range(5, 900)),
        encoders.encode_snapshot_metadata(
            [delayedbucket.SegmentMetadata(1, 9, {4: encoders.encode_entry_ids([1, 5])})]
        ),
        encoders.encode_snapshot_segment([delayedbucket.DelayedIndex(5, 4, 1)]),
    ]
    tracker = NegativeAcksTracker(precision_bits=8)
    for number in range(40):
        tracker.add(Position(number // 9, number * 3), number * 700, now_ms=1_700_000_000_000)
    found["nacks"].append(tracker.to_bytes())
    from pyroaring import BitMap64

    row = nackrow.TrackerRow("persistent://a/b/c", "s", 8, 1)
    found["nack-rows"].append(join(nackrow.tracker_key(row.id), nackrow.encode_tracker_row(row)))
    key = nackrow.bucket_key(row.id, 256, 7)
    found["nack-rows"].append(join(key, nackrow.encode_bucket_row(key, BitMap64([1, 2, 3, 900]))))
    found["ledger-rows"].append(join(*encode_location_row(LocationRow(4, 5, 1, 1028))))


def _from_texts(found: Seeds) -> None:
    found["policy-event"] += [join(builtin_schema(), data[2:]) for data in found["policy-event"][:50]]
    fields = [
        {"name": "a", "type": ["null", "string"], "default": None},
        {"name": "b", "type": {"type": "array", "items": {"type": "map", "values": "long"}}},
        {"name": "c", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "d", "type": {"type": "enum", "name": "E", "symbols": ["X", "Y"]}},
        {"name": "e", "type": {"type": "fixed", "name": "F", "size": 3}},
        {"name": "f", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "g", "type": ["null", "R"]},
    ]
    definition = json.dumps({"type": "record", "name": "R", "fields": fields}).encode()
    value = b"\x02\x02x" + b"\x02\x02\x02k\x08\x00\x00" + b"\x04\x01\x02" + b"\x02" + b"abc" + b"\x80\x01" + b"\x00"
    found["avro"] += [
        join(definition, value),
        *(join(json.dumps(field["type"]).encode(), value) for field in fields[:6]),
    ]
    found["value"] += [
        bytes([kind, 4]) + join(b"{}", bytes(range(size))) for kind in range(20) for size in (1, 4, 8, 12, 16)
    ]
    found["value"] += [b"\x00\x00" + join(b"", b'{"a":[1,2.5,null,"x",1e400]}'), b"\x01\x00" + join(definition, value)]
    for database in ("logs", "changes", "owners", "damage"):
        with open_store(imported("small", "mutated")) as store, store.read() as txn:
            found["store-rows"] += [join(key, bytes(row)) for key, row in txn.items(database)][:20]
    info = {"formatVersion": 1, "created": 5, "state": "ready", "sources": [{}]}
    change = {"time": 5, "command": "c", "reports": [{}], "steps": [["tree", "YQ==", None, "YQ=="]], "undoes": None}
    delayed = {"format": 1, "granularity": 300000, "tick": 1000, "cursor": [1, 2], "built": 5, "covered": [[1, 0, 4]]}
    delayed["partitions"] = [[0, 300000, [[1, 2, 3]]]]
    found["store-rows"] += [join(bytes(8), json.dumps(row).encode()) for row in (info, change, delayed)]
    found["delayed-policy"] += [b'{"format": 1, "granularity": 300000, "tick": 1000}', b"500ms", b"3d"]
    plan = {"planFormat": 3, "command": "topics x", "transaction": 7, "steps": ["change tree /a"]}
    plan |= {
        "request": {
            "of": "Store",
            "madeOf": {"tuple": []},
            "method": "annotate",
            "values": {"tuple": ["a"]},
            "options": {},
        },
        "state": "00",
        "reports": [{"topic": "a", "before": {"x": 1}, "after": None}],
        "loses": "",
        "reads": "",
    }
    found["plan"].append(json.dumps(plan).encode())
    row = {
        "topic": "persistent://a/b/c",
        "ledgerId": 4,
        "entryId": 0,
        "payload": "YWJj",
        "messages": 1,
        "ledgerTimestamp": 5,
    }
    lines = b"\n".join(json.dumps(row | {"entryId": number}).encode() for number in range(3))
    manifest = {
        "dump": 1,
        "level": "entries",
        "format": "jsonl",
        "files": [{"path": "day=2024-05-01/part-00000.jsonl", "rows": 3}],
    }
    found["dump-lines"].append(lines)
    found["dump-directory"].append(join(json.dumps(manifest).encode(), lines))
    table = pa.table({"ledgerId": [4, 4], "entryId": [0, 1], "payload": [b"a", b"bc"], "messages": [1, 1]})
    out = BytesIO()
    pq.write_table(table.replace_schema_metadata({"topic": "persistent://a/b/c"}), out)
    found["dump-parquet"].append(out.getvalue())
    found["settings"] += [
        b'store = "x"\noutput = "json"\njobs = 3\nmemory = "1GiB"\n',
        b'now = "@5"\ntz = "Europe/Berlin"\n',
        b'[spark-conf]\n"a.b" = "c"\n',
        b'broker_conf = "/x"\ninterceptors = "org.x.Y, Z"\nclock = "auto"\nquiet = true\n',
    ]
    reset = {"topic": "public/default/t", "subscription": "s"}
    for target in (
        {"messageId": "1:2"},
        {"messageId": {"ledgerId": 1, "entryId": 2}},
        {"time": 5},
        {"time": "2h"},
        {"shiftBy": -3},
        {"toSubscription": "x"},
    ):
        found["resets"].append(json.dumps(reset | target | {"exclude": True}).encode() + b"\n")
    texts = [
        "public/default/t-partition-3",
        "persistent://a/b/c",
        "1:2:3",
        "2024-05-01T09:00:00Z",
        "@1714546800",
        "-2h",
        "2h ago",
        "today 09:00",
    ]
    found["texts"] += [
        text.encode()
        for text in (
            *texts,
            "P1DT2H",
            "1.5GiB",
            "Europe/Berlin",
            "+02:00",
            "2024-05-01",
            "0.log",
            "ff.txn",
            "/managed-ledgers/a/b/persistent/c%2F",
        )
    ]
    found["bookie"] += [
        b'5\nbookieHost: "a:1"\njournalDir: "j"\nledgerDirs: "1\\td"\ninstanceId: "i"\n',
        bytes(16),
        b"v1,READ_WRITE,1,5",
        b"1f\n",
        b"3\na:1\nj\n1\td\n",
    ]
    found["prototext"].append(
        b"quorumSize: 1\nensembleSize: 1\nlength: 5\nlastEntryId: 4\nstate: CLOSED\n"
        b'segment {\n ensembleMember: "a:1"\n firstEntryId: 0\n}\n'
        b'digestType: CRC32C\npassword: "x\\001"\n'
    )
    found["ledger-metadata"] += [
        b"BookieMetadataFormatVersion\t2\n" + found["prototext"][-1],
        b"BookieMetadataFormatVersion\t1\n1\n1\n0\n0\ta:1\nCLOSED\n",
    ]


if __name__ == "__main__":
    main()
