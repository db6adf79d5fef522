"""What is fuzzed: every decoder, every reader of whole files, and every file that a user may hand in.

A target takes bytes and may raise StoreError alone, whatever the bytes are.
"""

import atexit
import json
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct

from pulsar_admin.commands.topics.moving import read_lines
from pulsar_admin.config import build_settings
from pulsar_admin.store import names, timespec
from pulsar_admin.store.changes import plan as plans
from pulsar_admin.store.changes.resets import iter_reset_rows
from pulsar_admin.store.codec import (
    batch,
    bookie,
    brokerentry,
    compactedentry,
    compression,
    cursor,
    dbledger,
    delayedbucket,
    entry,
    entrylog,
    journal,
    ledgermetadata,
    logscan,
    managedledger,
    message,
    offload,
    policies,
    policyevent,
    rocksvalue,
    schema,
    sequencefile,
    value,
    wrapper,
    zookeeper,
    zookeeper_log,
)
from pulsar_admin.store.codec.digest import DigestType
from pulsar_admin.store.codec.protobuf import parse_text
from pulsar_admin.store.codec.strict_values import json_object
from pulsar_admin.store.db import audit_log as change_rows
from pulsar_admin.store.db import blocks as index
from pulsar_admin.store.db import delayed as delayedindexes
from pulsar_admin.store.db import delayed_entries as delayedindex
from pulsar_admin.store.db import delayed_rules as delayedpolicy
from pulsar_admin.store.db import files as catalog
from pulsar_admin.store.db import nacks as nackrow
from pulsar_admin.store.db import owners, storeinfo
from pulsar_admin.store.db.tree import decode_node
from pulsar_admin.store.dump.source import EntryDump
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.kernels import records as kernel
from pulsar_admin.store.kernels.columns import BAD_DIGEST, RECORD
from pulsar_admin.store.model.schemas import Encoded, PlainValues, TopicSchemas, ValueReader
from pulsar_admin.store.nacks import bitmaps as nack_bitmaps
from pulsar_admin.store.nacks import segments as nacks
from pulsar_admin.store.nacks.tracker import NegativeAcksTracker
from pulsar_admin.store.proto.bookkeeper_pb2 import LedgerMetadataFormat
from pulsar_admin.store.scan import files
from pulsar_admin.store.scan.messages import message_runs, message_schema
from pulsar_admin.store.scan.places import EntryBatch
from pulsar_admin.store.scan.typed_values import TypedValues
from pulsar_admin.store.sources.zookeeper import read_snapshot
from tests.fuzz.mutators import (
    Mutate,
    Seal,
    any_bytes,
    headed,
    join,
    json_lines,
    json_text,
    parts,
    protobuf,
    seal_delayed_index,
    seal_entry,
    seal_journal,
    seal_log,
    seal_message,
    seal_nack_row,
    seal_nacks,
    seal_zookeeper_log,
    seal_zookeeper_snapshot,
    split,
    two,
    unsealed,
)
from tests.zookeeper_files import iter_transactions, read_zookeeper_nodes

NOW_MS = 1_795_260_000_000
_NOTHING_KNOWN = files.LedgerDigests(np.zeros(0, np.int64), np.zeros(0, np.int16))


class Target(Struct, frozen=True):
    """What reads bytes, how to change them so that it has something to read, and how to make their checksums right."""

    run: Callable[[bytes], object]
    mutate: Mutate = any_bytes
    seal: Seal = unsealed


def each(*functions: Callable[[], object]) -> None:
    """Call every one of FUNCTIONS, also where an earlier one raises StoreError."""
    for function in functions:
        try:
            found = function()
            if isinstance(found, Iterator):
                for _ in found:
                    pass
        except StoreError:
            pass


def _entry(data: bytes) -> None:
    each(*(partial(entry.decode_entry, data, kind, where="x") for kind in (None, *DigestType)))


def _entry_log(data: bytes) -> None:
    view = memoryview(data)
    each(
        lambda: entrylog.decode_ledgers_map(data, entrylog.decode_header(data, "x"), "x"),
        lambda: logscan.iter_records(data, "x"),
        lambda: logscan.find_record(view, min(7, len(view)), len(view)),
    )


def _message(data: bytes) -> None:
    header = None
    each(partial(message.decode_entry_times, data), partial(message.decode_message_entry, data, "x"))
    header = message.decode_message_entry(data, "x", verify=False)
    found = header.metadata
    each(lambda: message.deliver_at_ms(found))
    each(lambda: message.message_count(found))


def _message_columns(data: bytes) -> None:
    """The columns that the compiled reader makes of messages."""
    bodies = [bytes(24) + (9).to_bytes(8, "big") + bytes(4) + part for part in parts(data)[:8]]
    if not bodies:
        return
    sizes = np.array([len(body) for body in bodies], np.int64)
    offsets = np.cumsum(sizes + 4) - sizes - 4
    raw = np.frombuffer(bytearray(b"".join(len(b).to_bytes(4, "big") + b for b in bodies)), np.uint8)
    rows = np.zeros(len(bodies), RECORD)
    kernel.read_bodies(raw, offsets, sizes, (np.zeros(1, np.int64), np.full(1, 4, np.int16)), False, rows)
    ids = np.arange(len(bodies), dtype=np.int64)
    for markers in (False, True):
        schema = message_schema(payload=True, markers=markers)
        list(message_runs(EntryBatch(ids, ids, raw, offsets, sizes, rows), schema, None))


def _cursor_ledger(data: bytes) -> object:
    return cursor.decode_cursor_ledger(parts(data), "x")


def _avro(data: bytes) -> None:
    definition, payload = split(data)
    found = value.ValueSchema("AVRO", definition)
    read = ValueReader(TopicSchemas({0: found}), PlainValues().text).read(Encoded(0, payload))
    assert read.value is None or read.value.encode() is not None
    typed = TypedValues(found)
    ValueReader(TopicSchemas({0: found}), typed.value).read(Encoded(0, payload))


_VALUE_TYPES = ["JSON", "AVRO", "STRING", "BYTES", "BOOLEAN", "INT8", "INT16", "INT32", "INT64", "FLOAT", "DOUBLE"]
_VALUE_TYPES += [
    "DATE",
    "TIME",
    "TIMESTAMP",
    "INSTANT",
    "LOCAL_DATE",
    "LOCAL_TIME",
    "LOCAL_DATE_TIME",
    "KEY_VALUE",
    "NONE",
]


def _value(data: bytes) -> None:
    kind = _VALUE_TYPES[(data[0] if data else 0) % len(_VALUE_TYPES)]
    inner = _VALUE_TYPES[(data[1] if len(data) > 1 else 0) % len(_VALUE_TYPES)]
    definition, payload = split(data[2:])
    properties = {
        "key.schema.type": inner,
        "value.schema.type": "JSON",
        "key.schema.properties": definition.decode("latin1"),
    }
    found = value.ValueSchema(kind, definition, properties)
    read = ValueReader(TopicSchemas({0: found}), PlainValues().text).read(Encoded(0, payload, "a2V5", True))
    assert (read.value is None) or read.value.encode() is not None


def _policy_event(data: bytes) -> object:
    definition, payload = split(data)
    return policyevent.decode_policy_event(
        payload, policyevent.AvroSchema(definition or policyevent.builtin_schema()), "x"
    )


def _batch(data: bytes) -> None:
    count, compacted = (data[0], list(data[1:2])) if len(data) > 1 else (1, [])
    each(lambda: batch.iter_batch(data[2:], count, "x"), lambda: batch.iter_batch(data[2:], count, "x", compacted))


def _compressed(data: bytes) -> object:
    return compression.decompress(data[0] % 6 if data else 0, data[4:], int.from_bytes(data[1:4], "big"), where="x")


def _zookeeper_log(data: bytes) -> None:
    def both() -> list[object]:
        whole = list(iter_transactions(data, "x"))
        assert list(zookeeper_log.read_transactions(BytesIO(data), "x")) == whole
        return whole

    each(both)


def _zookeeper_directory(data: bytes) -> None:
    """A snapshot and a log behind it."""
    snapshot, log = split(data)
    folder = _folder()
    (folder / "snapshot.0").write_bytes(snapshot)
    (folder / "log.1").write_bytes(log)
    list(read_zookeeper_nodes(folder, []))


def _packed_snapshot(data: bytes) -> None:
    packed = _folder() / "snapshot.0"
    packed.write_bytes(data)
    each(*(partial(read_snapshot, packed, kind) for kind in ("gz", "snappy")))


def _bookie(data: bytes) -> None:
    each(lambda: bookie.decode_cookie(data, "x"), lambda: bookie.decode_last_id(data, "x"))


def _ledger_rows(data: bytes) -> None:
    key, row = split(data)
    each(lambda: dbledger.decode_location_row(key, row, "x"))


def _delayed_bucket(data: bytes) -> None:
    each(
        lambda: delayedbucket.decode_snapshot_metadata(data, "x"),
        lambda: delayedbucket.decode_snapshot_segment(data, "x"),
        lambda: delayedbucket.decode_entry_ids(data, "x"),
    )


def _delayed_policy(data: bytes) -> None:
    each(lambda: delayedpolicy.decode_rules(data, "x"), lambda: delayedpolicy.parse_width_ms(_text(data)))


def _nacks(data: bytes) -> None:
    found = nacks.decode_tracker(data)
    each(lambda: nack_bitmaps.decode_groups(found.lengths, found.bitmaps), lambda: NegativeAcksTracker.from_bytes(data))


def _nack_rows(data: bytes) -> None:
    key, row = split(data)
    each(lambda: nackrow.decode_tracker_row(key, row), lambda: nackrow.decode_bucket_row(key, row))
    each(lambda: nackrow.bucket_of_key(key), lambda: nackrow.bucket_row_entries(key, row))


def _index_rows(data: bytes) -> None:
    key, row = split(data)
    each(partial(index.decode_publish_bounds, 1, row), partial(index.decode_entry_count, 1, row))
    each(
        partial(index.decode_times, 1, row), *(partial(_latest, row, clock) for clock in ("auto", "publish", "broker"))
    )
    each(lambda: index.ledger_of_key(key), lambda: _block(key, row))


def _latest(row: bytes, clock: str) -> int:
    return index.decode_latest(1, memoryview(row), clock)


def _block(key: bytes, row: bytes) -> None:
    block = index.Block(key, row)
    for at in range(len(block)):
        block.place(at), block.payload_bytes(at), block.index_of(block.entry_id(at))


def _tree_row(data: bytes) -> object:
    return decode_node(*split(data))


def _store_rows(data: bytes) -> None:
    """Rows of the store's own databases, which are JSON."""
    key, row = split(data)
    topic = names.parse_topic("a/b/c")
    each(*(partial(function, key, row) for function in (catalog._decode_log, change_rows._decode_change)))
    packed = zlib.compress(row)
    each(
        partial(change_rows._decode_change, bytes(8), packed), partial(delayedindexes.decode_index, packed, topic, "s")
    )
    each(lambda: delayedindexes.decode_index(row, topic, "s"), lambda: owners.decode_owners(1, row))
    (_folder() / "store.json").write_bytes(row)
    each(lambda: storeinfo.read_store_info(_folder()))


def _json_policies(data: bytes) -> None:
    found = policies.decode_json_object(data, "x")
    each(lambda: policies.decode_policies(data, "x"), lambda: policies.decode_partitioned_topic(data, "x"))
    each(lambda: policies.decode_topic_policies(found, "x"))


def _schema(data: bytes) -> None:
    each(lambda: schema.decode_schema_locator(data, "x"), lambda: schema.decode_schema_entry(data, "x"))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _texts(data: bytes) -> None:
    """What users and data spell: names, positions, times, widths."""
    text = _text(data)
    each(*(partial(parse, text) for parse in (names.parse_topic, names.parse_namespace, names.parse_position)))
    each(*(partial(parse, text) for parse in (names.topic_of_path, timespec.parse_size_bytes, timespec.parse_tz)))
    each(*(partial(parse, text, now_ms=NOW_MS) for parse in (timespec.parse_time, timespec.parse_time_or_ago)))
    each(lambda: timespec.parse_duration_ms(text, allow_negative=True), lambda: journal.journal_id_of(text))
    each(lambda: entrylog.log_id_of(text), lambda: delayedbucket.parse_bucket_key(text))


# -- whole files ------------------------------------------------------------------------------------------------------


@cache
def _folder() -> Path:
    """A directory for files that are read by their names."""
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _file(name: str, data: bytes) -> Path:
    path = _folder() / name
    path.write_bytes(data)
    return path


class _Carefully(files.FileScan):
    """A scan of which the kernel read in vain too often, from the first record on."""

    def _reads_in_vain(self, window: Any) -> bool:  # Any: the base class says
        return True


@contextmanager
def _small_limits() -> Iterator[None]:
    """Let a kilobyte cross the borders of batches and windows."""
    before = files.BATCH_RECORDS, files.WINDOW_BYTES
    files.BATCH_RECORDS, files.WINDOW_BYTES = 5, 1 << 11
    try:
        yield
    finally:
        files.BATCH_RECORDS, files.WINDOW_BYTES = before


@_small_limits()
def _scan(name: str, kind: Any, data: bytes) -> None:  # Any: a literal
    path = _file(name, data)
    found = []
    for scanner in (files.FileScan, _Carefully):
        for start in (0, 1100):
            scan = scanner(files.Slice(str(path), kind, min(start, len(data)), len(data), start > 0), _NOTHING_KNOWN)
            if start and kind == "journal":
                continue
            found.append([tuple(row) for part in scan.batches() for row in part if not row["flags"] & BAD_DIGEST])
    # What the kernel reads and what the reference readers read are the same records.
    assert kind == "journal" or found[0] == found[2], "the two ways to scan a log differ"


def _dump_lines(data: bytes) -> None:
    for _, entries in EntryDump(Path("-"), BytesIO(data)).topics():
        list(entries)


def _dump_directory(data: bytes) -> None:
    """A manifest and the rows of its file."""
    manifest, rows = split(data)
    folder = _folder() / "dump"
    (folder / "day=2024-05-01").mkdir(parents=True, exist_ok=True)
    (folder / "_manifest.json").write_bytes(manifest)
    (folder / "day=2024-05-01" / "part-00000.jsonl").write_bytes(rows)
    for _, entries in EntryDump(folder).topics():
        list(entries)


def _dump_parquet(data: bytes) -> None:
    for _, entries in EntryDump(_file("x.parquet", data)).topics():
        list(entries)


def _settings(data: bytes) -> None:
    os.environ["PULSAR_ADMIN_CONFIG"] = str(_file("x.toml", data))
    try:
        build_settings({})
    finally:
        del os.environ["PULSAR_ADMIN_CONFIG"]


def _resets(data: bytes) -> None:
    parse_time = partial(timespec.parse_time_or_ago, now_ms=NOW_MS)
    list(iter_reset_rows(read_lines(_file("x.jsonl", data)), "x", None, parse_time))


def _plan_file(data: bytes) -> None:
    """Its digest fits, else nothing behind that is reached."""
    with suppress(ValueError):
        fields = json_object(data)
        fields.pop("digest", None)
        data = json.dumps({**fields, "digest": plans._document_digest(fields)}).encode()
    plans.load_plan(data, "x")


TARGETS: dict[str, Target] = {
    "avro": Target(_avro, two(json_text, any_bytes)),
    "batch": Target(_batch, headed(2, any_bytes)),
    "bookie": Target(_bookie),
    "broker-entry": Target(lambda data: brokerentry.split_broker_entry(memoryview(data), "x"), headed(6, protobuf)),
    "compacted-entry": Target(
        lambda data: each(
            lambda: compactedentry.decode_compacted_entry(data, "x"),
            lambda: compactedentry.decode_original_id(data, "x"),
        )
    ),
    "compressed": Target(_compressed, headed(1, any_bytes)),
    "cursor-info": Target(
        lambda data: each(lambda: cursor.decode_cursor_info(data, "x"), lambda: cursor.decode_cursor_head(data, "x")),
        protobuf,
    ),
    "cursor-ledger": Target(_cursor_ledger, two(protobuf, any_bytes)),
    "cursor-position": Target(lambda data: cursor.decode_position_info(data, "x"), protobuf),
    "delayed-bucket": Target(_delayed_bucket, protobuf),
    "delayed-index": Target(lambda data: delayedindex.decode_entry_rows(data, "x"), any_bytes, seal_delayed_index),
    "delayed-policy": Target(_delayed_policy, json_text),
    "dump-directory": Target(_dump_directory, two(json_text, json_lines)),
    "dump-lines": Target(_dump_lines, json_lines),
    "dump-parquet": Target(_dump_parquet),
    "entry": Target(_entry, any_bytes, seal_entry),
    "entry-log": Target(_entry_log, any_bytes, seal_log),
    "entry-log-scan": Target(partial(_scan, "0.log", "entry-log"), any_bytes, seal_log),
    "index-rows": Target(_index_rows, two(any_bytes, any_bytes)),
    "journal": Target(lambda data: each(lambda: journal.iter_records(data, "x")), any_bytes, seal_journal),
    "journal-scan": Target(partial(_scan, "0.txn", "journal"), any_bytes, seal_journal),
    "ledger-metadata": Target(
        lambda data: each(
            lambda: ledgermetadata.decode_ledger_metadata(data, "x"),
            lambda: ledgermetadata.decode_digest_type(data, "x"),
        )
    ),
    "ledger-rows": Target(_ledger_rows, two(any_bytes, protobuf)),
    "managed-ledger": Target(lambda data: managedledger.decode_managed_ledger(data, "x"), protobuf),
    "message": Target(_message, headed(6, protobuf), seal_message),
    "message-columns": Target(_message_columns, two(any_bytes, any_bytes)),
    "nack-rows": Target(_nack_rows, two(any_bytes, any_bytes), seal_nack_row),
    "nacks": Target(_nacks, any_bytes, seal_nacks),
    "offload-block": Target(lambda data: each(lambda: offload.iter_block_entries(data, 0, "x"))),
    "offload-index": Target(lambda data: offload.decode_offload_index(data, "x")),
    "plan": Target(_plan_file, json_text),
    "policies": Target(_json_policies, json_text),
    "policy-event": Target(_policy_event, two(json_text, any_bytes)),
    "prototext": Target(lambda data: parse_text(LedgerMetadataFormat, data, "x")),
    "resets": Target(_resets, json_lines),
    "rocks-value": Target(
        lambda data: each(lambda: rocksvalue.decode_value(data, "x"), lambda: rocksvalue.decode_counter(data, "x"))
    ),
    "schema": Target(_schema, protobuf),
    "sequence-file": Target(lambda data: each(lambda: sequencefile.iter_map_file(data, "x"))),
    "settings": Target(_settings),
    "store-rows": Target(_store_rows, two(any_bytes, json_text)),
    "texts": Target(_texts),
    "tree-row": Target(_tree_row, two(any_bytes, any_bytes)),
    "value": Target(_value, headed(2, two(json_text, any_bytes))),
    "wrapper": Target(
        lambda data: each(
            lambda: wrapper.unwrap(data, "cursor", "x"), lambda: wrapper.unwrap(data, "managed-ledger", "x")
        )
    ),
    "zookeeper-directory": Target(
        _zookeeper_directory,
        two(any_bytes, any_bytes),
        lambda data: join(seal_zookeeper_snapshot(split(data)[0]), seal_zookeeper_log(split(data)[1])),
    ),
    "zookeeper-log": Target(_zookeeper_log, any_bytes, seal_zookeeper_log),
    "zookeeper-packed": Target(_packed_snapshot),
    "zookeeper-snapshot": Target(
        lambda data: zookeeper.decode_snapshot(BytesIO(data), "x"), any_bytes, seal_zookeeper_snapshot
    ),
}
