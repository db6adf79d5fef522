"""At the bound, with 0, with an empty one, and with a good one after a bad one: where most wrong comparisons hide."""

import os
import re
import struct
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from hashlib import sha256
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zlib import adler32, compress

import duckdb
import lmdb
import numpy as np
import pyarrow as pa
import pytest
from kazoo.exceptions import AuthFailedError, NoAuthError, UnimplementedError
from msgspec import to_builtins
from msgspec.structs import replace
from pyroaring import BitMap64

from pulsar_admin.api.cursors import Cursors
from pulsar_admin.api.plan import Plan
from pulsar_admin.commands.store.check import CheckRow
from pulsar_admin.page.charts import Box
from pulsar_admin.store.changes.resets import ToTime
from pulsar_admin.store.codec import entrylog, journal, offload, sequencefile
from pulsar_admin.store.codec.avro import VALUES_PER_BYTE
from pulsar_admin.store.codec.buffer import Reader
from pulsar_admin.store.codec.claims import SCHEMA_KEY, TOPIC_KEY
from pulsar_admin.store.codec.compression import ZLIB
from pulsar_admin.store.codec.cursor import (
    CursorInfo,
    CursorState,
    PlainCursor,
    Position,
    encode_cursor_info,
)
from pulsar_admin.store.codec.dbledger import LocationRow
from pulsar_admin.store.codec.digest import DIGEST_SIZE
from pulsar_admin.store.codec.journal import JournalHeader
from pulsar_admin.store.codec.ledgermetadata import (
    DigestType,
    LedgerState,
    LoneLedger,
    ledger_path,
)
from pulsar_admin.store.codec.logscan import Record
from pulsar_admin.store.codec.managedledger import (
    LedgerInfo,
    ManagedLedger,
    decode_managed_ledger,
    encode_managed_ledger,
)
from pulsar_admin.store.codec.policies import PartitionedTopic, Retention
from pulsar_admin.store.codec.policyevent import AvroSchema, PolicyEvent
from pulsar_admin.store.codec.transactions import COMMITTED, TxnId
from pulsar_admin.store.codec.zookeeper_reads import NO_AUTH, Failed
from pulsar_admin.store.db import file as lmdb_file
from pulsar_admin.store.db.audit_log import append_change
from pulsar_admin.store.db.blocks import BLOCK_ENTRIES, BLOCK_HEADER
from pulsar_admin.store.db.entry_files import FileState
from pulsar_admin.store.db.environment import Store, _translated
from pulsar_admin.store.db.locks import writer_lock
from pulsar_admin.store.db.nacks import BUCKET, ID_SIZE_BYTES, _sealed
from pulsar_admin.store.db.storeinfo import read_store_info
from pulsar_admin.store.disks import reclaim
from pulsar_admin.store.disks.reclaim import Room
from pulsar_admin.store.dump.source import _iter_files
from pulsar_admin.store.engine.slices import FileRange
from pulsar_admin.store.errors import (
    Corrupt,
    DiskFull,
    EntryCorrupt,
    EntryLogCorrupt,
    EntryNotFound,
    IndexCorrupt,
    InvalidValue,
    JournalCorrupt,
    LimitExceeded,
    MetadataCorrupt,
    NothingMatches,
    NotSeen,
    Refused,
    StalePlan,
    StoreError,
    TopicNotFound,
    Unsupported,
)
from pulsar_admin.store.facts import Unknown
from pulsar_admin.store.facts.backlogs import CutMessage
from pulsar_admin.store.facts.indexes import iter_log_ledgers
from pulsar_admin.store.facts.numbers import Blocker
from pulsar_admin.store.facts.starts import _why_closed, _why_epochs_refused
from pulsar_admin.store.history.as_of import Moment
from pulsar_admin.store.index.idx_files import _problem
from pulsar_admin.store.index.rebuild import Difference
from pulsar_admin.store.model.broken import NO_METADATA
from pulsar_admin.store.model.coverage import Stripe
from pulsar_admin.store.model.cursors import DEDUP_CURSOR, CursorSource
from pulsar_admin.store.model.publish_times import PublishTimes
from pulsar_admin.store.model.resources import (
    RACKS_PATH,
    Bundle,
    TenantInfo,
    isolation_path,
    parse_bundle,
    resource_group_path,
)
from pulsar_admin.store.model.topics import PARTITIONS_MAX
from pulsar_admin.store.nacks.tracker import NegativeAcksTracker
from pulsar_admin.store.names import EARLIEST, EVENTS, LATEST, FileKind, NamespaceName, parse_topic
from pulsar_admin.store.policies.rules import TOPIC_POLICIES
from pulsar_admin.store.proto.bookkeeper_pb2 import LedgerMetadataFormat
from pulsar_admin.store.proto.pulsar_api_pb2 import MessageIdData
from pulsar_admin.store.recovery.ack_history import ChosenState, TimeBound
from pulsar_admin.store.recovery.chains import CLOCK_SKEW_MS
from pulsar_admin.store.recovery.deleted_nodes import PastCursor
from pulsar_admin.store.recovery.evidence import COMPACTED, CURSOR
from pulsar_admin.store.recovery.journal_times import WriteTime
from pulsar_admin.store.recovery.rolling import COMPACTED_LEDGER, FollowedCursor
from pulsar_admin.store.reports.log_files import LogVerdict, _verify_map, read_log_summary
from pulsar_admin.store.reports.shell import Selection
from pulsar_admin.store.reports.verify import EntryRow
from pulsar_admin.store.rules.finding import Severity
from pulsar_admin.store.scan import ledgers_map
from pulsar_admin.store.scan.ledgers_map import FalseMap
from pulsar_admin.store.scan.operations import PlainFiles
from pulsar_admin.store.sources.ensemble import Address, Session
from pulsar_admin.store.sources.layout import _nearest_hint
from pulsar_admin.store.sources.zookeeper import Gap
from pulsar_admin.store.tables.folder import TableFile
from tests.conftest import Cli
from tests.stores import (
    change_value,
    lose_nodes,
    narrow,
    narrow_copy,
    put_node,
    write_rows,
)
from tests.worlds import assert_unchanged

DAY, LONG = 86_400_000, 2**63 - 1
A_TOPIC, PLAIN = parse_topic("a/b/c"), "/managed-ledgers/a/b/persistent/c"
N = SimpleNamespace


class _Unreadable:
    """In the place of a transaction or reader: whatever is asked of it is damaged."""

    def __init__(self, error: StoreError) -> None:
        self.memo, self._error = dict[object, object](), error

    def __getattr__(self, name: str) -> Any:
        if name in ("txn", "store"):
            return self

        def asked(*of: object, **more: object) -> None:
            raise EntryCorrupt("it is damaged") if name == "read" else self._error

        return asked


UNREADABLE, NEWER = _Unreadable(MetadataCorrupt("it is damaged")), _Unreadable(Unsupported("it is newer"))
IN_LEDGER = encode_cursor_info(CursorInfo(7, Position(1, 2)))
IN_LEDGER_THEN = PastCursor(CursorInfo(7, Position(1, 2)), CursorState(Position(1, 2)), IN_LEDGER, "it is damaged")
SMALL = N(entries=0, live_bytes=1, live_ledgers=1)
BAD = N(bad={0: [N(offset=10, length_bytes=5, ledger_id=0), N(offset=20, length_bytes=7, ledger_id=-1)]})
KIND = N(name="x", like=None, default=None, unset=None)
NODES = [N(path=f"/ledgers/00/0000/L000{number}", change="created") for number in range(7)]
RECORD_HEAD = b"ZKLG" + bytes(12)
PLACES = N(
    ledger_ids=np.array([0, 0, 1]),
    entry_ids=np.array([0, 1, 0]),
    messages=np.zeros(3, int),
    closed_ms=np.zeros(3, int),
    sizes=np.zeros(3, int),
    where="x",
)
CLOSED = N(
    state=LedgerState.CLOSED,
    segments=[N(first_entry_id=0, members=("a",)), N(first_entry_id=3, members=("b",))],
    write_quorum=1,
)
TOPIC = N(
    number_of_entries=8,
    ids=[7, 9],
    ranks=[0, 5, 8],
    last_confirmed=Position(9, 2),
    first_position=Position(7, -1),
    ledgers=[N(ledger_id=7, entries=5), N(ledger_id=9, entries=3)],
)
COMPACTING = CursorState(EARLIEST, properties={COMPACTED_LEDGER: 9})
LEDGERS = N(names=set(), kinds=set(), indexed=[], timed=[], contradiction="")
LISTS = [N(ledger_id=5, entries=1), N(ledger_id=6, entries=0), N(ledger_id=9, entries=1)]
BATCH = N(key=None, clock="publish", first=Position(1, 5, 2), last=Position(1, 5, 3))
WINDOW = {"base": 5, "data": b"abc", "_buffer": b"abcd", "_fill": partial(int, "x")}
"""A window onto a file from byte 5 to before 8; reading elsewhere is an error."""
FILE = N(kind=FileKind.ENTRY_LOG, path="0.log", id=5)
PART = N(start=0, end=10)
COVERED = [N(first=0, last=4), N(first=5, last=9)]
READ = N(file_id=1, problems=4)
SAME = N(pending=N(count=1))
NO_PART = N(ledgers=0, topics=0, bytes=0)
DEV_NULL = os.open(os.devnull, os.O_RDONLY)
LONE = N(
    ids=[7],
    ranks=[0, 5],
    number_of_entries=5,
    place=lambda position: position.entry_id + 1,
    rank=lambda position: position.entry_id,
    at_rank=lambda rank: Position(7, rank),
    last_confirmed=Position(7, 4),
    ledgers=[N(ledger_id=7, entries=5)],
)
# fmt: off
BOUNDS: dict[str, list[tuple[Any, object]]] = {
    "store.db.locks:is_written_now": [((Path("none"),), False)],
    "store.db.tree:iter_children_and_keys": [((N(parts=lambda *of: [(b"\xff", b"k\xff"), (b"b", b"kb")]), "/t"), [("b", b"kb")])],
    "store.facts.backlogs:_find_cut_at": [
        ((N(around=lambda edge: {"a": {1: 50}, "b": {0: 51, 1: 52}}, is_read=lambda *of: False, whole_from=lambda rank: 51,
            at=lambda rank: N(number=0, total=2, producer="p", uuid="b"), topic=N(at_rank=lambda rank: Position(1, rank))),
          [(40, 52)], [2**20]), CutMessage(Position(1, 51), 0, 2, "p", (1,), Position(1, 51), False, Position(1, 51), 0))],
    "store.index.writer:Copies.differ": [
        ((N(_bookies={1: "a", 2: "b", 9: "a"}, _marks=lambda *of: np.zeros((1, 1)), _content=lambda file_id, *of: bytes([file_id])),
          np.array([1, 2]), (np.zeros(2, int), np.ones(2, int)), 9, (np.zeros(2, int), np.full(2, 2)), 0), [False, True])],
    "store.model.suggestions:near_names": [((None, TopicNotFound("none", topic="a/b/c/d/e/f")), ())],
    "store.tables.folder:Folder.size": [((N(is_remote=False, at=str), "none"), None)],
    "store.transfer.bundle:_value": [
        ((N(path="/topics/a/b/c", value=b'{"segments":{"0":{"segmentId":0,"hashRange":{"start":0,"end":65535},"state":"NEWER",'
            b'"legacyTopicName":"persistent://a/b/secret"}}}'), None),
         b'{"segments":{"0":{"segmentId":0,"hashRange":{"start":0,"end":65535},"state":"NEWER"}}}')],
    "commands.bookkeeper:_ledger_id": [((0,), 0)],
    "commands.overview:_part": [((1, 100), "1 %"), ((1, 101), "<1 %"), ((0, 5), "0 %")],
    "commands.overview:_cut": [(("abc", 3), "abc"), (("abcd", 3), "ab…")],
    "commands.overview:_cell": [(("abc", 3, True), "abc"), (("  abcd", 5, True), "  …cd")],
    "commands.store.check:_screen": [((iter([CheckRow(severity="summary", code="", where="w", message="m"),
        CheckRow(severity="problem", code="c", where="w", message="m")]), 80), ["w: m\n", "problem c\n  w: m\n", "\n"])],
    "commands.topics.clocks:_labels": [(([0, DAY], DAY), ["1970-01-01", "1970-01-02"]),
        (([0, 61_000], 1000), ["00:00:00", "00:01:01"]), (([0, DAY], 60_000), ["01-01 00:00", "01-02 00:00"]),
        (([0, 365 * DAY], 1), ["1970-01-01 00:00:00.000", "1971-01-01 00:00:00.000"])],
    "commands.topics.printout:_beginning": [(("x" * 120,), "x" * 120), (("x" * 121,), "x" * 120 + " …")],
    "arguments:whole_number": [(("n", 5, 5, 5), 5), (("n", 4, 5), InvalidValue), (("n", 6, 5, 5), InvalidValue)],
    "changes:_ledgers": [((tuple(range(10)),), "ledgers 0, 1, 2, 3, 4, 5, 6, 7, 8, 9"),
        ((tuple(range(11)),), "11 ledgers from 0 to 10")],
    "columns:_offset_text": [((0,), "0s"), ((DAY,), "+1d"), ((10_000,), "+10s"), ((10_999,), "+10s"),
        ((9_999,), "+9s999ms"), ((-3_600_001,), "-1h")],
    "columns:size_text": [((999.5,), "0.976 KiB"), ((1000 * 2**40,), "1,000 TiB"), ((999 * 2**40,), "999 TiB")],
    "columns:age_text": [((DAY,), "1d0h"), ((60_000,), "1m0s"), ((59_999,), "59s"), ((-1000,), "-1s"), ((-999,), "0s")],
    "columns:kind_of": [(("closeTime", 10**11), "time"), (("closeTime", 10**11 - 1), "number")],
    "config:_jobs": [((1,), 1), ((1024,), 1024), ((0,), InvalidValue), ((1025,), InvalidValue)],
    "jsonify:position_json": [
        ((Position(1, 2, 0),), {"ledgerId": 1, "entryId": 2, "partitionIndex": -1, "batchIndex": 0})],
    "output:_told_text": [(("sizeBytes", 0), "0 B")],
    "output:_widest": [((["ab", "abc"], 2), 2)],
    "page.rendering:_value": [(("x", 10**12), "2001-09-09T01:46:40.000Z")],
    "page.texts:age_text": [((1000,), "1s"), ((999,), "0s"), ((60_000,), "1m"), ((DAY + 3_600_000,), "1d 1h"),
        ((-1000,), "in 1s"), ((-999,), "0s")],
    "page.texts:clipped": [(("x" * 8, 8), "x" * 8), (("123456789", 8), "123456 … 89 (9 characters)")],
    "plot:short_number": [((1000.0,), "1k"), ((999.0,), "999")],
    "plot:_ticks": [((3, 3), [0, 1, 2]), ((4, 3), [0, 2])],
    "table_layout:_shrunk": [(([(5, 2), (5, 2)], 7), (3, 4)), (([(5, 5), (5, 2)], 9), (5, 4))],
    "store.changes.resets:bit_words": [(([63],), (-(2**63),)), (([64],), (0, 1)), (([62],), (2**62,))],
    "store.changes.resets:_position": [(({"ledgerId": 1, "entryId": 2, "batchIndex": 0},), Position(1, 2, 0)),
        (({"ledgerId": 1, "entryId": 2},), Position(1, 2))],
    "store.changes.resources:_yaml_value": [(("'",), "'"), (('"x"',), "x"), (("[a, b]",), ["a", "b"])],
    "store.codec.buffer:signed": [((2**63,), -(2**63)), ((LONG,), LONG)],
    "store.codec.buffer:number_of": [((b"\xff" * 8 + b"\x7f",), LONG), ((b"\x80" * 9 + b"\x01",), -1)],
    "store.codec.compression:codec_name": [((0,), "NONE"), ((4,), "SNAPPY"), ((5,), "5"), ((-1,), "-1")],
    "store.codec.compression:may_fill": [((1, b"x", 255 + 64), True), ((1, b"x", 255 + 65), False), ((1, b"", 0), True),
        ((0, b"", 0), False)],
    "store.codec.dbledger:decode_location_row": [((bytes(16), bytes(8), "x"), LocationRow(0, 0, 0, 0))],
    "store.codec.journal:encode_header": [((4,), b"BKLG\0\0\0\4"), ((5,), b"BKLG\0\0\0\5".ljust(512, b"\0"))],
    "store.codec.ledgermetadata:ledger_path": [((2**31 - 2,), "/ledgers/21/4748/L3646"),
        ((2**31 - 1,), "/ledgers/000/0000/0021/4748/L3647")],
    "store.codec.ledgermetadata:ledger_id_of_path": [(("/ledgers/922/3372/0368/5477/L5807",), LONG),
        (("/ledgers/922/3372/0368/5477/L5808",), None)],
    "store.codec.packages:decode_log_segment": [((b"0;1;2", "x"), MetadataCorrupt), ((b"256;1;2;3", "x"), (3, 1, 0))],
    "store.codec.strict_values:integer": [((0, "x"), 0), ((LONG, "x"), LONG), ((-1, "x"), ValueError),
        ((LONG + 1, "x"), ValueError)],
    "store.codec.strict_values:parse_integer": [((str(LONG),), LONG), ((str(LONG + 1),), None)],
    "store.codec.value:_fraction": [((0,), ""), ((1,), ".000000001"), ((1000,), ".000001"), ((500_000_000,), ".500")],
    "store.codec.value:_instant": [((bytes(12),), "1970-01-01T00:00:00Z"),
        ((struct.pack(">qi", 0, 10**9),), ValueError)],
    "store.codec.value:_time_of_day": [((0,), "00:00:00"), ((DAY * 10**6,), ValueError)],
    "store.codec.value:split_pair": [((b"\xff" * 8,), (None, None)), ((bytes(8),), (b"", b"")),
        ((b"\xff\xff\xff\xfe" + bytes(4),), ValueError), ((b"\0\0\0\1a\0\0\0\1b",), (b"a", b"b"))],
    "store.codec.zookeeper_log:_may_go_on": [((bytes(8) + b"\xff" * 4,), True), ((bytes(12),), True),
        ((bytes(13),), False), ((bytes(11) + b"\1\0",), True)],
    "store.db.nacks:check_precision_bits": [((0,), 0), ((62,), 62), ((63,), InvalidValue), ((-1,), InvalidValue)],
    "store.db.delayed_rules:parse_width_ms": [(("1ms",), 1), (("0ms",), InvalidValue), ((f"{LONG}ms",), LONG),
        ((f"{LONG + 1}ms",), InvalidValue)],
    "store.delayed.trackers:queue_bytes": [((0,), 384), ((16,), 384), ((17,), 768), ((2**21 // 3,), 2**24),
        ((2**21 // 3 + 1,), 2**25)],
    "store.dump.source:_check_entry": [((5_252_620 + 2**20, "x"), None), ((5_252_621 + 2**20, "x"), LimitExceeded)],
    "store.dump.tables:day_name": [((-719_162,), "0001-01-01"), ((-719_163,), "day-719163"),
        ((2_932_896,), "9999-12-31"), ((2_932_897,), "day2932897")],
    "store.engine.memory:check_memory": [((198 << 20,), None), (((198 << 20) - 1,), LimitExceeded)],
    "store.history.words:_ids": [((range(6),), "ledgers 0, 1, 2, 3, 4, 5"), ((range(7),), "7 ledgers, 0 to 6")],
    "store.history.words:_shown": [(({1},), "{1}"), (("x" * 90,), "x" * 90), (("x" * 91,), "x" * 90 + "…")],
    "store.index.own_logs:_check_size": [((5_252_620, 0), None), ((5_252_621, 0), LimitExceeded)],
    "store.model.coverage:_residues": [((("a", "b", "c"), 2, "a"), (0, 2)), ((("a", "b", "c"), 3, "a"), (0, 1, 2))],
    "store.model.cursors:union": [(([(1, 1)],), ()), (([(1, 2), (2, 3), (4, 5)],), ((1, 3), (4, 5)))],
    "store.model.messages:check_times": [((5, 5), None), ((6, 5), InvalidValue)],
    "store.model.topics:rank_of": [(([7, 9], [0, 5, 8], 7, 4), 4), (([7, 9], [0, 5, 8], 7, 6), 5),
        (([7, 9], [0, 5, 8], 8, 1), 5), (([7, 9], [0, 5, 8], 9, 1), 6)],
    "store.db.nacks:check_delay": [((0,), 0), ((LONG,), LONG), ((LONG + 1,), InvalidValue), ((-1,), InvalidValue)],
    "store.db.nacks:due_time": [((0, LONG), LONG), ((1, LONG), InvalidValue), ((0, 0), 0)],
    "store.nacks.sizes:seed_bytes": [((10, 4096, 4096), 20), ((10, 4095, 4096), 40)],
    "store.names:parse_position": [((f"{LONG}:{LONG}:{2**31 - 1}",), Position(LONG, LONG, 2**31 - 1)),
        ((f"0:0:{2**31}",), InvalidValue), ((f"0:{2**63}",), InvalidValue)],
    "store.policies.retention:consumed_by": [(([0, 3, 6, 6], {"a": 6}), (2, None)),
        (([0, 3, 6, 6], {"a": 3, "b": 5}), (1, "a"))],
    "store.recovery.from_ledgers:newer_index": [(("5", 5), {"index": "5"})],
    "store.recovery.preflight:parse_percent": [(("0",), 0.0), (("100%",), 100.0), (("100.1",), InvalidValue),
        (("-0.1",), InvalidValue)],
    "store.recovery.recover:_named": [((range(10),), "0, 1, 2, 3, 4, 5, 6, 7, 8, 9"),
        ((range(11),), "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 …")],
    "store.reports.internal_stats:iso_time": [((0,), "1970-01-01T00:00:00Z"),
        ((253_402_300_799_999,), "9999-12-31T23:59:59.999Z"), ((253_402_300_800_000,), "253402300800000ms"),
        ((-1,), "-1ms")],
    "store.reports.stats:_earliest": [(([0, 5, 7],), 5), (([0],), 0)],
    "store.reports.timeline:choose_bucket_ms": [((0, 59), 1), ((0, 60), 2)],
    "store.rules.partitions:_numbered": [(([1], 1), "partition 1"), (([1], 2), "partitions 1 and 1 more")],
    "store.scan.source_options:_read_slice_bytes": [(("4096",), 4096), (("4095",), InvalidValue)],
    "store.scan.source_options:_time": [(("1",), 1), (("0",), InvalidValue)],
    "store.scan.sources:split_paths": [(("a,{b,c},d",), ["a", "{b,c}", "d"])],
    "store.tables.rows:_micros": [((1,), 1000), ((253_402_300_799_999,), 253_402_300_799_999_000),
        ((253_402_300_800_000,), None)],
    "store.tables.sql:_is_unicode": [(("\ud800",), False), (("\udfff",), False), (("\ud7ff\ue000",), True)],
    "store.timespec:parse_duration_ms": [((f"{LONG}ms",), LONG), ((f"{LONG + 1}ms",), InvalidValue),
        (("1" + "0" * 19 + "ms",), InvalidValue)],
    "store.timespec:_offset": [(("+18:00", ""), timezone(timedelta(hours=18))),
        (("-18:59", ""), timezone(-timedelta(hours=18, minutes=59))), (("+18:60", ""), InvalidValue)],
    "store.timespec:_in_range": [((0, ""), 0), ((253_402_300_799_999, ""), 253_402_300_799_999),
        ((-1, ""), InvalidValue)],
    "store.timespec:shown_minute": [((0,), "1970-01-01T00:00Z")],
    "store.timespec:old_text": [((DAY,), "1 day old"), ((60_000,), "1 minute old")],
    "store.timespec:format_age_ms": [((-60_000,), "-1m"), ((DAY + 3_600_000,), "1d1h"), ((0,), "0s")],
    "store.timespec:moment": [((253_402_300_800_000,), None), ((-62_135_596_800_000,), datetime(1, 1, 1, tzinfo=UTC)),
        ((253_402_300_799_999,), datetime(9999, 12, 31, 23, 59, 59, 999_000, UTC))],
    "store.wording:listed": [((range(3), 3), "0, 1 and 2"), ((range(4), 2), "0, 1 and 2 more")],
    "store.wording:shortened": [(("abc", 3), "abc"), (("abcd", 3), "ab…"), (("/abc", 3), "…bc")],
    "store.wording:says": [(("",), False), (("x",), True), ((0,), False)],
    "store.sources.index_places:_key_after": [((LONG,), b"\xff"), ((LONG - 1,), LONG.to_bytes(8, "big"))],
    "arguments:time_ms_of": [
        ((0, 0), 0), ((253_402_300_799_999, 0), 253_402_300_799_999), ((253_402_300_800_000, 0), InvalidValue),
        ((-1, 0), InvalidValue), ((timedelta(), 5), 5), ((10**8 - 1, 0), 10**8 - 1), ((10**8, 0), InvalidValue),
        ((10**11 - 1, 0), InvalidValue), ((10**11, 0), 10**11)],
    "arguments:delay_ms": [((0,), 0), ((-1,), InvalidValue)],
    "store.changes.ledger_references:parse_ledger_ids": [
        ((["0", "", '{"ledgerId":7}'], "x"), [0, 7]), ((["-1"], "x"), InvalidValue)],
    "store.disks.logs:LogSurvey.lost_bytes.fget": [((BAD,), 7)],
    "store.disks.logs:LogSurvey.is_bad": [
        ((BAD, 0, place), place in range(10, 15)) for place in (9, 10, 14, 15)],
    "store.doctor.diagnosing:_Run.told": [((N(_count=2, _first=[1, 2]), 2), [1, 2])],
    "store.history.as_of:parse_moment": [
        ({"text": "0x7fffffffffffffff", "now_ms": 0}, Moment(zxid=LONG)),
        ({"text": "0x8000000000000000", "now_ms": 0}, InvalidValue)],
    "store.history.differences:_part_words": [
        ((NODES[:6],), ["6 ledgers created in BookKeeper: 0, 1, 2, 3, 4, 5"]),
        ((NODES,), ["7 ledgers created in BookKeeper: 0 to 6"])],
    "store.history.events:Span.has_begun": [
        ((N(since=Moment(zxid=5)), 5, 0), True), ((N(since=Moment(time_ms=5)), 9, 4), False)],
    "store.history.events:Span.is_over": [
        ((N(until=Moment(zxid=5)), 5, 0), False), ((N(until=Moment(zxid=5)), 6, 0), True)],
    "store.history.words:entries_between": [
        (([N(ledger_id=1, entries=5), N(ledger_id=2, entries=3)], Position(1, 0), Position(2, 1)), 6),
        (([N(ledger_id=1, entries=5)], Position(1, 2), Position(1, 2)), 0),
        (([N(ledger_id=1, entries=5)], Position(2, 1), Position(1, 0)), -6)],
    "store.policies.retention:count_let_go": [
        (([(5, 1000), (1, 0)], 1, Retention(1, -1), 61_000), 0), (([(5, 1000), (1, 0)], 1, Retention(1, -1), 61_001), 1),
        (([(5, 1000)], 1, Retention(0, -1), 1001), 1), (([(5, 1000)], 1, Retention(-1, 0), 1000), 1),
        (([(5, 1000), (2**20, 0)], 1, Retention(-1, 1), 1000), 1),
        (([(5, 1000), (2**20 - 1, 0)], 1, Retention(-1, 1), 1000), 0)],
    "store.policies.rules:_exceeds": [
        (({"limitSize": 1 << 20}, {"retentionSizeInMB": 1}), True),
        (({"limitSize": (1 << 20) - 1}, {"retentionSizeInMB": 1}), False),
        (({"limitTime": 60}, {"retentionTimeInMinutes": 1}), True),
        (({"limitTime": 59}, {"retentionTimeInMinutes": 1}), False), (({"limit": 0, "limitTime": 0}, {}), False)],
    "store.policies.rules:check_retention": [
        ((N(of_topic=False, namespace_policies={}), {"retentionTimeInMinutes": minutes, "retentionSizeInMB": -1}, {}), answer)
        for minutes, answer in ((-1, None), (-2, InvalidValue))],
    "store.policies.rules:check_persistence": [
        ((None, {"bookkeeperEnsemble": most, "bookkeeperWriteQuorum": write, "bookkeeperAckQuorum": ack}, {}), answer)
        for most, write, ack, answer in ((5, 5, 5, None), (6, 5, 5, InvalidValue), (3, 2, 3, InvalidValue))],
    "store.policies.rules:check_message_size": [
        ((None, size, {}), answer) for size, answer in ((0, None), (5 << 20, None), ((5 << 20) + 1, InvalidValue))],
    "store.policies.table:Policy.check_kind": [
        ((KIND, {"k": number}), None if -(2**31) <= number < 2**31 else InvalidValue)
        for number in (2**31 - 1, 2**31, -(2**31), -(2**31) - 1)],
    "store.policies.table:_fits": [
        ((LONG, 0), True), ((LONG + 1, 0), False), ((LONG + 1, int), False), (({"a": 1}, {"a": 1}), True),
        (({"a": 1, "b": 1}, {"a": 1}), False), (({}, {"a": 1}), False)],
    "store.recovery.ack_history:_StatesReader._raise": [
        ((N(_floor=TimeBound(5, "f")), TimeBound(7, "b"), TimeBound(end, "e")), answer)
        for end, answer in ((7, TimeBound(7, "b")), (6, TimeBound(5, "f")), (5, TimeBound(5, "f")), (4, None))],
    "store.recovery.ack_history:_Possible.was_there_by": [
        ((N(first=N(not_after=N(time_ms=5))), time_ms), time_ms >= 5) for time_ms in (4, 5)],
    "store.recovery.ack_history:Pending.has": [
        ((N(entries=((2, 4),)), rank), rank in (2, 3)) for rank in (1, 2, 3, 4)],
    "store.recovery.chains:_meeting": [
        (([1, 3], [3, 5]), [(1, 3), (3, 3), (3, 5)]), (([3, 5], [1, 3]), [(1, 3), (3, 3), (3, 5)]),
        (([1, 3], [4, 5]), [(3, 4)]), (([4, 5], [1, 3]), [(3, 4)])],
    "store.recovery.chains:_shared": [
        (({"p": [(N(low=1, high=2, first_publish_ms=1, last_publish_ms=2), 0),
                 (N(low=low, high=4, first_publish_ms=2, last_publish_ms=3), 0)]},), answer)
        for low, answer in ((3, []), (2, ["p"]))],
    "store.recovery.chains:_has_fields": [((b'{"a":1}', {"a"}), True), ((b'{"a":1}', {"b"}), False)],
    "store.recovery.deleted_nodes:_went_with": [
        ((N(gone_ms=gone_ms), N(gone_ms=60_000)), 0 <= gone_ms <= 60_000) for gone_ms in (-1, 0, 60_000, 60_001)],
    "store.recovery.journal_times:_together": [
        (([WriteTime(5, 10, "f"), WriteTime(10, 20, "g")],), (5, 20, "f")),
        (([WriteTime(5, 10, "f"), WriteTime(11, 20, "g")],), (5, 10, "f"))],
    "store.recovery.journal_times:_between": [
        (([5], [7], 7, "f"), (5, 107, "f")), (([5], [6], 7, "f"), (5, None, "f"))],
    "store.recovery.preflight:check_loss": [
        ((N(brokers=N(percent=5.0), bookies=[N(percent=5.0, bookie="b")]), 5.0), None),
        ((N(brokers=None, bookies=[N(percent=5.1, bookie="b")]), 5.0), Refused),
        ((N(brokers=N(percent=5.1), bookies=[]), 5.0), Refused)],
    "store.recovery.restore:_is_held": [
        ((N(ledger=lambda one: N(entries=5), rank=lambda one: one.entry_id, place=int), 7, [N(mark_delete=rank)]), rank < 5)
        for rank in (4, 5)],
    "store.recovery.rolling:_is_distinct": [
        ((N(place=int, number_of_entries=5), N(ranges=(), mark_delete=place)), 0 < place < 5) for place in (0, 1, 4, 5)],
    "store.reports.shell:_holds": [
        ((N(state=LedgerState.CLOSED, last_entry_id=last, ensemble_size=2, write_quorum=1,
            segments=[N(first_entry_id=0, members=("a", "b"))]), bookie), answer)
        for last, bookie, answer in ((-1, "a", False), (0, "a", True), (0, "b", False), (1, "b", True))],
    "store.reports.shell:Selection.takes": [
        ((Selection(start=10, end=20), N(offset=20, size_bytes=9)), True),
        ((Selection(start=10, end=20), N(offset=21, size_bytes=9)), False),
        ((Selection(start=10), N(offset=0, size_bytes=7)), True), ((Selection(start=10), N(offset=0, size_bytes=6)), False),
        ((Selection(start=0, end=0), N(offset=1, size_bytes=9)), False),
        ((Selection(0, 3), N(ledger_id=0, entry_id=4)), False)],
    "store.reports.shell:Selection.title": [
        ((Selection(start=0, end=0), 1), "Scan entry log 1 (1.log) for PositionRange: 0 - 0"),
        ((Selection(0, 0), 1), "Scan entry log 1 (1.log) for LedgerId 0  for EntryId 0")],
    "store.search.broker:BrokerSearch._expire_whole_ledgers": [
        ((N(broker=N(rules=N(expires_whole_ledgers=True)), _closed_ms=lambda one: 100,
            topic=N(ledgers=[N(ledger_id=1, entries=3)], last_confirmed=Position(9, 9))), Position(1, 0), limit), answer)
        for limit, answer in ((100, Position(1, 0)), (101, Position(1, 2)))] + [
        ((N(broker=N(rules=N(expires_whole_ledgers=True)), _closed_ms=lambda one: 200 if one.ledger_id == 2 else 100,
            topic=N(ledgers=[N(ledger_id=number, entries=3) for number in range(4)], last_confirmed=Position(9, 9))), Position(1, 0), 150),
         Position(1, 2))],
    "table_layout:fold": [
        (("ab cd", 2, len), ["ab", "cd"]), (("abc", 3, len), ["abc"]), (("a-b c", 3, len), ["a-b", "c"]),
        (("a b c", 3, len), ["a b", "c"]), (("abcd", 3, len), ["abc", "d"])],
    "store.timespec:parse_time": [
        ({"text": "@123456789012", "now_ms": 0}, 123_456_789_012),
        ({"text": "@12345678901", "now_ms": 0}, 12_345_678_901_000)],
    "store.compaction.compactor:passes_open_transaction": [
        ((N(transactional=False, transactions=lambda: N(first_open=1)), count), count > 0) for count in (0, 1)],
    "store.compaction.heads:_Head.take": [
        ((N(total_bytes=5, _data=memoryview(b"abcde"), where="x"), 2, 3), b"cde"),
        ((N(total_bytes=5, _data=memoryview(b"abcde"), where="x"), 2, 4), EntryCorrupt)],
    "store.compaction.heads:why_unread": [
        ((N(position=Position(1, 5)), N(first_open=Position(1, 5))), "at or after 1:5, where a transaction is open")],
    "store.compaction.status:_cursor_problems": [
        ((N(last_confirmed=Position(1, 5)), N(source=CursorSource.METADATA, info=N(mark_delete=Position(*place)),
                                              state=N(ranges=()), skipped_entries=0)), answer)
        for place, answer in (((1, 5), []), ((2, -1), []),
                              ((2, 0), ["__compaction is at 2:0, after the end of the topic (1:5)"]))],
    "store.delayed.build:PartitionSource.next_time_ms": [
        ((N(_starts=[0, 150], _widest_ms=100, _partitions=[N(end_ms=100), N(end_ms=250)]), start_ms), answer)
        for start_ms, answer in ((99, 99), (100, 150), (250, None))],
    "store.delayed.build:iter_turns": [
        (([1 << 23, 1 << 23, 1], int), [[1 << 23, 1 << 23], [1]]), (([1] * 4097, int), [[1] * 4096, [1]])],
    "store.delayed.expiry_plans:_texts": [
        ((N(messages=count, first=[N(position="1:0", due_ms=0)], unread=0), "s", "early"),
         [f"s: early: {count}, first 1:0 due 1970-01-01T00:00:00.000Z{more}"]) for count, more in ((1, ""), (2, ", …"))],
    "store.delayed.trackers:_joined": [(([(1, 2)] * 3, 3), "1:2, 1:2, 1:2"), (([(1, 2)] * 3, 4), "1:2, 1:2, 1:2 …")],
    "store.delayed.waiting:TimeWheel.add": [
        ((N(_current=N(end_ms=100, slot=5, slot_of=lambda one: one // 10, added={}), _overdue=set(),
            _next=None if end_ms is None else N(end_ms=end_ms, slot=10, slot_of=lambda one: one // 10, added={})),
          time_ms, 1, 2), answer)
        for end_ms, time_ms, answer in ((None, 99, True), (None, 100, False), (200, 100, True), (200, 199, True), (200, 200, False),
                                        (None, 50, True))],
    "store.delayed.waiting:AtOnce.load": [((N(at_ms=5, _rows="rows"), 5, 6), "rows")],
    "store.delayed.waiting:AtOnce.next_time_ms": [((N(at_ms=5), 5), 5), ((N(at_ms=5), 6), None)],
    "store.dump.messages:MessageQuery.check": [
        ((N(limit=limit, columns=["key"], window=N(clock="auto")),), answer)
        for limit, answer in ((0, None), (LONG, None), (LONG + 1, InvalidValue), (-1, InvalidValue))],
    "store.dump.messages:_cell": [
        ((N(publish_time=0), "publish_time"), None),
        ((N(publish_time=1), "publish_time"), datetime(1970, 1, 1, 0, 0, 0, 1000, UTC))],
    "store.dump.source:_checked": [
        (([PLACES],), [PLACES]), (([PLACES, PLACES],), Corrupt),
        *((([N(**vars(PLACES) | {name: np.array([0, 1, -1])})],), Corrupt)
          for name in ("ledger_ids", "entry_ids", "messages", "closed_ms")),
        (([N(**vars(PLACES) | {"entry_ids": np.array([1, 1, 0])})],), Corrupt),
        (([N(**vars(PLACES) | {"entry_ids": np.array([1, 0, 0])})],), Corrupt)],
    "store.engine.local:Worker.can_take": [
        ((N(tasks=[N(alone=False)] * count), N(alone=False)), count < 2) for count in (0, 1, 2)],
    "store.engine.slices:plan_slices": [
        (([("0.log", 3, 10), ("1.log", 4, 0)],), [FileRange("0.log", FileKind.ENTRY_LOG, 3, 0, 10, False)])],
    "store.engine.workers:_hosts": [
        (([N(host=host) for host in "abc"],), "a, b, c"), (([N(host=host) for host in "abcd"],), "a, b, c and 1 more")],
    "store.facts.backlogs:_Chunk.is_last.fget": [((N(number=1, total=2),), True), ((N(number=0, total=2),), False)],
    "store.facts.backlogs:_Chunks.is_read": [((N(_unread=set()), 0, 1), True), ((N(_unread=set()), -1, 1), False)],
    "store.facts.backlogs:_Chunks.whole_from": [
        ((N(around=lambda rank: {"u": {0: 3, 1: 5}}), rank), answer) for rank, answer in ((3, 3), (5, 3), (6, 6))],
    "store.facts.numbers:_iter_blockers": [
        (("t", [1, 2, 4], [0, 3, 6, 9], [3, place], (1, 1, "s")),
         [Blocker("t", "trim", "", 1, 1), Blocker("t", "cursor", "s", 1, 2, others), Blocker("t", "open-ledger", "", 1, 4)])
        for place, others in ((5, 1), (6, 0))],
    "store.facts.partitions:Partitions.counts_too_many.fget": [
        ((N(there=(last,), record=None),), last > 10_000) for last in (10_000, 10_001)],
    "store.facts.partitions:Partitions.missing.fget": [
        ((N(record=N(partitions=2), there=(0, last)),), last - 1) for last in (1, 2)],
    "store.facts.partitions:Partitions.beyond.fget": [((N(record=N(partitions=2), there=(0, 1, 2)),), (2,))],
    "store.facts.quiet:_needs": [
        ((PlainCursor((1, 1), [(1, 2, 4)]), 1, 4), False), ((PlainCursor((1, 1), [(1, 2, 4)]), 1, 5), True),
        ((PlainCursor((0, 9), [(1, -1, 3)]), 1, 4), False), ((PlainCursor((1, -1), [(1, -1, 2)]), 1, 4), True)],
    "store.facts.quiet:_pin_nothing": [
        (([(1, 5), (2, 0)], [PlainCursor((1, entry), [(2, -1, 0)])]), answer)
        for entry, answer in ((4, True), (3, True))],
    "store.facts.scalable:ScalableFacts.is_pruned.fget": [
        ((N(record=N(segments=[1, 2], next_segment_id=following)),), following > 2) for following in (2, 3)],
    "store.facts.starts:_replay": [
        ((b"",), (0, "", 0)), ((bytes(15),), (0, "a log of 15 bytes, without a header", 0)), ((RECORD_HEAD,), (16, "", 0)),
        *(((RECORD_HEAD + struct.pack(">qi", 0, size) + bytes(9),), (16, why, longest))
          for size, why, longest in ((0, "", 0), (-1, "a record of -1 bytes (Unreasonable length)", 0), (20 << 20, "", 20 << 20),
            ((20 << 20) + 1, "a record of 20971521 bytes (Unreasonable length)", 0))),
        ((RECORD_HEAD + struct.pack(">qi", 1, 0) + b"B",), (16, "", 0)),
        ((RECORD_HEAD + struct.pack(">qi", 0, -2),), (16, "a record of -2 bytes (Unreasonable length)", 0)),
        ((RECORD_HEAD + struct.pack(">qi", adler32(b"x"), 1) + b"xB",), (30, "", 1)),
        ((RECORD_HEAD + struct.pack(">qi", adler32(b"x"), 1) + b"x",), (16, "", 1)),
        ((RECORD_HEAD + struct.pack(">qi", 1, 1) + b"xB",), (16, "a record with a wrong checksum (CRC check failed)", 1))],
    "store.facts.topics:ReadBudget.has_edges.fget": [
        ((N(unlimited=False, edges_left=left),), left > 0) for left in (0, 1)],
    "store.facts.topics:ReadBudget.take": [
        ((N(unlimited=False, left=5), 5), True), ((N(unlimited=False, left=5), 6), False),
        ((N(unlimited=False, left=10**6), 100_000), True), ((N(unlimited=False, left=10**6), 100_001), False)],
    "store.facts.transactions:never_replays": [
        ((None, N(number_of_entries=0, ids=[5]), Position(*place)), answer)
        for place, answer in (((4, 0), True), ((5, -1), False), ((4, -1), False), ((5, 0), False))],
    "store.facts.transactions:PendingAckLog.replayed_until.fget": [
        ((N(mark_delete=Position(1, 4), lost=[N(ledger_id=1, lost=[(2, last)])]),), answer)
        for last, answer in ((5, Position(1, 5)), (4, None))],
    "store.facts.unclosed:last_write_ms": [
        ((N(end_publish_ms=1, broker_count=count, broker_max_ms=9, publish_max_ms=5),), answer)
        for count, answer in ((0, 5), (1, 9))],
    "store.index.rebuild:_differences": [
        (("d", iter([(b"a", b"1"), (b"b", b"2"), (b"d", b"4")]), iter([(b"a", b"1"), (b"c", b"3"), (b"d", b"5")])),
         [Difference("d", b"b", "surplus"), Difference("d", b"c", "missing"), Difference("d", b"d", "different")])],
    "store.index.scan:EngineScan.missing.fget": [((N(pieces=[7], _due=0),), 7), ((N(pieces=[7], _due=1),), None)],
    "store.index.unserved:_start": [
        ((N(origin="/d/1.txn", log_id=log_id), {"/d": (5, 9)}), answer) for log_id, answer in ((4, None), (5, 9), (6, 0))],
    "store.nacks.holes:_begins_by": [((5, N(entry_id=lambda index: 5)), True), ((4, N(entry_id=lambda index: 5)), False)],
    "store.changes.nacks:NackedEntries.add": [
        ((N(_topics={}, _default=None, _names="t"), Position(*ids), 0), answer)
        for ids, answer in (((0, 0), EntryNotFound), ((LONG - 1, LONG - 1), EntryNotFound), ((LONG, 0), InvalidValue),
                            ((0, LONG), InvalidValue))],
    "store.nacks.segments:check_column": [
        (("x", [0]), [0]), (("x", [LONG]), [LONG]), (("x", [-1]), InvalidValue), (("x", [LONG + 1]), InvalidValue)],
    "store.nacks.segments:add_times": [
        ((np.array([LONG]), np.array([0])), [LONG]), ((np.array([LONG]), np.array([1])), InvalidValue)],
    "store.nacks.sizes:NackLoad.__post_init__": [
        ((N(messages_per_second=1, delay_ms=delay_ms, batch_size=1, entries_per_ledger=1, acknowledged_every=every),), answer)
        for delay_ms, every, answer in ((1, 0, None), (LONG // 2**20, 2, None), (0, 0, InvalidValue), (1, 1, InvalidValue),
                                        (LONG // 2**20 + 1, 0, InvalidValue), (1, -1, InvalidValue))] + [
        ((N(messages_per_second=rate, delay_ms=1, batch_size=1, entries_per_ledger=1, acknowledged_every=0),), answer)
        for rate, answer in ((10**9, None), (10**9 + 1, InvalidValue), (0, InvalidValue))],
    "store.nacks.tracker:NegativeAcksTracker.__init__": [
        ({"self": N(), "partition_index": index}, None if -2 <= index < 2**31 else InvalidValue)
        for index in (-3, -2, 2**31 - 1, 2**31)],
    "store.nacks.tracker:NegativeAcksTracker.add": [
        ({"self": N(precision_bits=0, _put=lambda *ids: None), "position": Position(*ids), "delay_ms": 0, "now_ms": 7}, answer)
        for ids, answer in (((0, 0), 7), ((LONG, LONG), 7), ((LONG + 1, 0), InvalidValue), ((0, LONG + 1), InvalidValue))],
    "store.search.broker:BrokerSearch._prune": [
        ((N(broker=N(max_clock_skew_ms=0, rules=N(prunes=True), loaded_ms=5), _closed_ms=lambda ledger: ledger.closed_ms,
            topic=N(ledgers=[N(ledger_id=1, entries=0, closed_ms=1), N(ledger_id=2, entries=5, closed_ms=900)])), 1000),
         (Position(2, 4), None))] + [
        ((N(broker=N(max_clock_skew_ms=skew_ms, rules=N(prunes=True), loaded_ms=None), _closed_ms=lambda one: one.closed_ms,
            topic=N(ledgers=[N(ledger_id=number, entries=5, closed_ms=time_ms)
                             for number, time_ms in enumerate((980, 981, 1020, 1021))])), 1000), answer)
        for skew_ms, answer in ((20, (Position(0, 4), Position(3, 4))), (0, (Position(1, 4), Position(2, 4))),
                                (-1, (None, None)))],
    "store.search.broker:BrokerSearch._has_more": [
        ((N(topic=N(number_of_entries=5)), rank, None), rank < 5) for rank in (4, 5)],
    "store.search.broker:BrokerSearch.expire_position": [((N(), None, 0, 0), None)] + [
        ((N(_expire_whole_ledgers=lambda mark, limit: Position(1, 4), broker=N(rules=N(expires_as_it_resets=True)),
            _find_message=lambda limit: Position(1, 2)), N(mark_delete=Position(1, entry)), 5000, 1), answer)
        for entry, answer in ((3, Position(1, 4)), (4, None))],
    "store.search.doubts:Doubt.text": [
        ((N(ledger_id=7, first=3, last=last, lost=1, unseen=0, unseen_from=None),), f"1 lost entry of ledger 7 ({place})")
        for last, place in ((3, "7:3"), (4, "7:3 to 7:4"))],
    "store.model.ledgers:gaps_between": [
        (([(1, 1), (3, 3)], 4), [(0, 0), (2, 2), (4, 4)]), (([(0, 1), (5, 5)], 1), []), (([(0, 1)], 1), []),
        (([(0, 1), (3, 3)], 2), [(2, 2)]), (([], -1), []), (([], 0), [(0, 0)]), (([(0, 9)], 4), [])],
    "store.search.expiry:broker_through_position": [
        ((N(is_entry=lambda place: True), N(mark_delete=Position(1, 5)), Position(1, entry)), answer)
        for entry, answer in ((5, None), (6, Position(1, 6)))] + [
        ((N(is_entry=lambda place: False, last_confirmed=Position(1, 9), place=lambda one: one.entry_id, at_rank=int),
          N(mark_delete=Position(1, entry)), Position(1, 9)), answer) for entry, answer in ((9, None), (7, 8))],
    "store.search.expiry:expire_by_time": [
        ((N(topic=N(rank=int, at_rank=int), intervals=((5, 6),), find_first=lambda time_ms: N(position=time_ms)), None, rank,
          "all-before"), answer) for rank, answer in ((5, None), (6, 5))],
    "store.search.expiry:ForecastQuestion.__post_init__": [
        ((N(horizon_ms=horizon_ms, interval_ms=interval_ms),), answer)
        for horizon_ms, interval_ms, answer in ((1000, 1, None), (1001, 1, InvalidValue), (0, 1, InvalidValue),
                                                (1, 0, InvalidValue))],
    "store.search.expiry:_clip": [((((0, 2), (2, 4), (4, 6)), 2, 4), ((2, 4),))],
    "store.search.window:is_few": [
        ((N(entries=entries, messages=messages, bytes=size), limit), answer)
        for entries, messages, size, limit, answer in (
            (4096, 4096, 1 << 24, None, True), (4097, 1, 1, None, False), (1, 4097, 1, None, False),
            (1, 1, (1 << 24) + 1, None, False), (4097, 1, 1, 4096, True), (4097, 1, 1, 4097, False))],
    "store.search.window:is_small": [((None, None, N(is_timed=False, chooses=False), 4096), True)],
    "store.codec.brokerentry:metadata_end": [
        ((memoryview(b"\x0e\x02" + data), "x"), answer)
        for data, answer in ((bytes(4), 6), (bytes(3), EntryCorrupt), (b"\0\0\0\1", EntryCorrupt), (b"\0\0\0\1a", 7))],
    "store.codec.compression:_stated_size_bytes": [
        ((4, b"\x05"), 5), ((4, b"\x80\x80\x80\x80\x01"), 1 << 28), ((4, b"\xff" * 5), None), ((3, b"\x28\xb5\x2f\xfd"), None),
        ((3, b"\x28\xb5\x2f\xfd\x20\x07"), 7), ((3, b"\x28\xb5\x2f\xfd\x40\0\x01\0"), 257), ((3, b"\x28\xb5\x2f\xfd\0\0"), None)],
    "store.codec.entry:_check_size": [((memoryview(b"ab"), 2, "x"), None), ((memoryview(b"ab"), 3, "x"), EntryCorrupt)],
    "store.codec.entrylog:EntryLogHeader.has_map.fget": [
        ((N(version=version, ledgers_map_offset=1),), version == 1) for version in (0, 1)],
    "store.codec.entrylog:decode_header": [
        (((b"BKLO" + struct.pack(">iqi", version, 0, 0)).ljust(1024, b"\0"), "x"), answer)
        for version, answer in ((0, entrylog.EntryLogHeader(0, 0, 0)), (1, entrylog.EntryLogHeader(1, 0, 0)), (2, Unsupported))],
    "store.codec.entrylog:_decode_map_batch": [
        ((struct.pack(">iqqi", 20 + 16 * count, -1, -2, count) + b"".join(struct.pack(">qq", ledger_id, size)
          for ledger_id in range(first, first + count)), 0, "x", {}), answer)
        for first, count, size, answer in ((0, 1, 1, 40), (0, 10_000, 1, 160_024), (0, 10_001, 1, EntryLogCorrupt),
                                           (-1, 1, 1, EntryLogCorrupt), (0, 1, 0, EntryLogCorrupt))],
    "store.codec.java:java_split": [(("",), [""]), (("a,,",), ["a"]), ((",",), [""])],
    "store.codec.journal:decode_header": [
        ((b"BKLG" + struct.pack(">i", version), "x"), answer)
        for version, answer in ((1, Unsupported), (2, JournalHeader(2, 8)), (4, JournalHeader(4, 8)),
                                (5, JournalHeader(5, 512)), (6, JournalHeader(6, 512)), (7, Unsupported))],
    "store.codec.journal:journal_id_of": [
        (("f" * 16 + ".txn",), 2**64 - 1), (("f" * 17 + ".txn",), None), (("0.txn",), 0), ((".txn",), None)],
    "store.codec.jute:read_count": [
        ((N(i32=lambda: 5, remaining=left, where="x"),), 5 if left == 5 else MetadataCorrupt) for left in (4, 5)],
    "store.codec.jute:read_buffer": [((N(i32=lambda: 0, take=lambda size: b"!"),), b"")],
    "store.codec.ledgerindex:_length": [
        ((N(i32=partial(int, size)), "x", "size"), size if 0 <= size <= 1024 else MetadataCorrupt)
        for size in (-1, 0, 1024, 1025)],
    "store.codec.ledgermetadata:_version_of": [
        ((b"BookieMetadataFormatVersion\t%d\nrest" % version, "x"), (version, b"rest") if 1 <= version <= 3 else Unsupported)
        for version in (0, 1, 3, 4)],
    "store.codec.ledgermetadata:_check": [
        ((N(ensemble_size=quorums[0], write_quorum=quorums[1], ack_quorum=quorums[2], length=length, last_entry_id=last,
            segments=[N(members=("a",), first_entry_id=first)]), "x"), answer)
        for quorums, length, last, first, answer in (
            ((1, 1, 1), 0, -1, 0, None), ((1, 1, 0), 0, -1, 0, None), ((1, 1, -1), 0, -1, 0, MetadataCorrupt),
            ((1, 0, 0), 0, -1, 0, MetadataCorrupt), ((1, 2, 1), 0, -1, 0, MetadataCorrupt),
            ((1, 1, 2), 0, -1, 0, MetadataCorrupt), ((1, 1, 1), -1, -1, 0, MetadataCorrupt),
            ((1, 1, 1), 0, -2, 0, MetadataCorrupt), ((1, 1, 1), 0, -1, -1, MetadataCorrupt))],
    "store.codec.ledgermetadata:_lone_of": [
        ((N(ensembleSize=1, quorumSize=1, ackQuorumSize=1, state=3, lastEntryId=last, length=length, customMetadata=[],
            segment=[N(ensembleMember=["b"], firstEntryId=0)], HasField=bool),), answer)
        for last, length, answer in ((-1, 0, LoneLedger(True, -1, 0, "b")), (-2, 0, None), (-1, -1, None))],
    "store.codec.logscan:_frame": [
        ((struct.pack(">iqqqq", size, *ids) + bytes(8), 0, limit), answer)
        for size, ids, limit, answer in (
            (32, (0, 0, -1, 0), 36, Record(0, 32, 0, 0)), (40, (0, 0, -1, 0), 44, Record(0, 40, 0, 0)), (41, (0, 0, -1, 0), 44, None),
            (31, (0, 0, -1, 0), 44, None), (32, (0, -1, -1, 0), 44, None), (32, (0, 0, -2, 0), 44, None), (32, (0, 0, -1, -1), 44, None))],
    "store.codec.logscan:_torn_bytes": [
        ((struct.pack(">iqqqq", size, *ids), 0, limit), answer)
        for size, ids, limit, answer in (
            (40, (0, 0, -1, 0), 36, 44), (40, (0, 0, -1, 0), 3, 4), (40, (0, 0, -1, 0), 4, 44), (32, (0, 0, -1, 0), 36, None),
            (32, (0, 0, -1, 0), 20, 36), (31, (0, 0, -1, 0), 20, None), (256 << 20, (0, 0, -1, 0), 36, 4 + (256 << 20)),
            ((256 << 20) + 1, (0, 0, -1, 0), 36, None), (40, (-1, 0, 0, 0), 36, 44), (40, (-1, -2, 0, 0), 36, 44),
            (40, (-1, -3, 0, 0), 36, None), (40, (-1, 1, 0, 0), 36, None), (40, (0, 0, -2, 0), 36, None))],
    "store.codec.message:is_chunk": [((N(num_chunks_from_msg=count),), count > 1) for count in (1, 2)],
    "store.codec.message:is_encrypted": [((N(encryption_keys=keys),), bool(keys)) for keys in ([], [1])],
    "store.codec.offload:OffloadIndex.extent": [
        ((N(blocks=[N(offset=0), N(offset=5)], data_bytes=9), number), answer) for number, answer in ((0, (0, 5)), (1, (5, 9)))],
    "store.codec.policies:_partitioned_topic": [
        (({"partitions": 2**31 - 1}, "x"), PartitionedTopic(2**31 - 1, False, None)),
        (({"partitions": 2**31}, "x"), MetadataCorrupt)],
    "store.codec.schema:SchemaLocator.ledger_ids.fget": [
        ((N(index=[N(position=N(ledger_id=0))], newest=N(position=N(ledger_id=-1))),), (0,))],
    "store.codec.sequencefile:_vint": [
        ((N(u8=partial(int, first), take=lambda size: bytes([size])),), answer)
        for first, answer in ((127, 127), (144, -112), (143, 1), (136, 8), (135, -2), (128, -9))],
    "store.codec.value:plain": [((float(text),), text) for text in ("Infinity", "-Infinity", "NaN")],
    "store.codec.zookeeper_log:_record_end": [
        ((struct.pack(">qi", checksum, size) + rest, 0), answer)
        for checksum, size, rest, answer in (
            (1, 0, b"", 0), (1, 0, b"B", 0), (adler32(b"x"), 1, b"x", 0), (adler32(b"x"), 1, b"xB", 14), (1, 1, b"xB", 0))],
    "store.db.blocks:LedgerSums.begin_publish_ms.fget": [
        ((N(publish_min_ms=least, publish_max_ms=5),), answer) for least, answer in ((5, 5), (6, None))],
    "store.db.blocks:LedgerSums.end_publish_ms.fget": [
        ((N(publish_min_ms=least, publish_max_ms=5),), answer) for least, answer in ((5, 5), (6, None))],
    "store.db.blocks:ledger_of_key": [((bytes(8),), 0), ((bytes(7),), IndexCorrupt)],
    "store.db.clocks:first_candidate": [
        ((N(sums=N(first_block=3, broker_max_ms=5), blocks=2, publish_max=[1, 5], auto_max=[1, 5]), time_ms, clock), answer)
        for time_ms, clock, answer in ((5, "publish", 4), (6, "publish", None), (5, "broker", 3), (6, "broker", None))],
    "store.db.delayed_rules:check_rules": [
        ((N(granularity_ms=granularity_ms, tick_ms=tick_ms, slots=slots),), answer)
        for granularity_ms, tick_ms, slots, answer in (
            (1, 1, 1 << 20, None), (0, 0, 1, InvalidValue), (2, 0, 1, InvalidValue), (1, 2, 1, InvalidValue),
            (1, 1, (1 << 20) + 1, InvalidValue))],
    "store.db.delayed_rules:check_growth": [
        ({"before": N(granularity_ms=5), "after": N(granularity_ms=after), "split": False}, None if after == 5 else Refused)
        for after in (4, 5)],
    "store.db.file:_newest": [
        (((N(transaction=5, page=0), N(transaction=other, page=1)),), N(transaction=max(5, other), page=int(other > 5)))
        for other in (4, 5, 6)],
    "store.db.file:_Walk._mark": [
        ((N(_seen=[0, 0, 0], _pages=3), page), None if page == 2 else IndexCorrupt) for page in (1, 2, 3)],
    "store.db.own_ledgers:sequence_after_export": [
        ((N(first_id=5, next_id=9), number, "x"), StalePlan if number == 6 else 9) for number in (4, 5, 6, 9)],
    "store.db.tree:tree_key": [
        (("x" * 500,), b"x" * 500), (("x" * 65_535,), b"x" * 400 + b"\xff" + sha256(b"x" * 65_535).digest()),
        (("x" * 65_536,), InvalidValue)],
    "store.model.broken:BrokenLedger.holds": [
        ((N(ledger_id=7, lost=((2, 4),)), Position(7, entry)), 2 <= entry <= 4) for entry in (1, 2, 4, 5)],
    "store.model.compacted_view:parts_of_view": [
        ((N(ledger_id=7, last_entry_id=last),), ((7, 0, 0),) if last == 0 else ()) for last in (-1, 0)],
    "store.model.coverage:stripes_of": [
        ((CLOSED, 2), [Stripe(0, 2, ("a",), 1)]), ((CLOSED, 3), [Stripe(0, 2, ("a",), 1), Stripe(3, 3, ("b",), 1)]),
        ((CLOSED, 3, 2), [Stripe(2, 2, ("a",), 1), Stripe(3, 3, ("b",), 1)])],
    "store.model.cursors:Cursor.is_incomplete.fget": [
        ((N(source=CursorSource.METADATA, skipped_entries=count),), count > 0) for count in (0, 1)],
    "store.model.cursors:_recovered": [
        ((N(last_confirmed=Position(1, 5)), N(state=N(mark_delete=Position(1, 5)))), N(state=N(mark_delete=Position(1, 5))))],
    "store.model.cursors:backlog_size_bytes": [
        ((N(total_size_bytes=82, ledgers=[N(ledger_id=7, entries=5, size_bytes=52), N(ledger_id=9, entries=3, size_bytes=30)]),
          Position(*place)), answer)
        for place, answer in (((7, -1), 82), ((7, 0), 72), ((7, 3), 42), ((7, 4), 30), ((8, 0), 30), ((9, 2), 0), ((6, 9), 82))],
    "store.model.cursors:subtract": [
        ((((3, 5),), right), answer)
        for right, answer in ((((5, 6),), ((3, 5),)), (((1, 3),), ((3, 5),)), (((3, 4),), ((4, 5),)), (((4, 5),), ((3, 4),)))],
    "store.model.cursors:iter_ledger_parts": [((TOPIC, 4, 6), [(7, 4, 4), (9, 0, 0)]), ((TOPIC, 4, 5), [(7, 4, 4)])],
    "store.model.ledgers:_dense_end": [
        ((N(entries=3, first_entry=first, last_entry=first + 2), end), answer)
        for first, end, answer in ((0, -1, 2), (1, -1, None), (1, 0, 3), (0, 7, 7))],
    "store.model.messages:nth_position": [
        ({"topic": N(number_of_entries=5, at_rank=int, name="t"), "number": number, "from_end": from_end}, answer)
        for number, from_end, answer in ((5, False, 4), (5, True, 0), (0, False, 0), (6, False, NothingMatches))],
    "store.model.messages:Window.checked": [
        ((N(start_ms=None, end_ms=None, first=Position(1, first), last=Position(1, 5)),), answer)
        for first, answer in ((5, N(start_ms=None, end_ms=None, first=Position(1, 5), last=Position(1, 5))), (6, InvalidValue))],
    "store.model.messages:Window.holds": [
        *(((BATCH, N(position=Position(1, 5, index))), index in (2, 3)) for index in (0, 1, 2, 3, 4)),
        *(((N(key=None, clock="event", start_ms=5, end_ms=9, times=(5, 9)), N(position=Position(1, 5), event_ms=time_ms)),
           5 <= time_ms < 9) for time_ms in (4, 5, 8, 9)),
        ((N(key=None, clock="publish", first=EARLIEST, last=Position(1, 5, 0)), N(position=Position(1, 5, 1))), False)],
    "store.model.nodes:_usual_structure": [
        (("/managed-ledgers/t/n/persistent/x",), "ManagedLedgerInfo"),
        (("/managed-ledgers/t/n/persistent/x/c",), "ManagedCursorInfo"), (("/managed-ledgers/t/n/persistent/x/c/d",), ""),
        (("/managed-ledgers/t/n/persistent",), ""), (("/ledgers/00/0000/L0001",), "LedgerMetadata")],
    "store.model.publish_times:stated_times": [
        ((N(begin_publish_ms=begin, end_publish_ms=end),), answer)
        for begin, end, answer in ((0, 0, PublishTimes(0, 0, "field")), (1, 0, None), (-1, 0, None))],
    "store.model.publish_times:is_stated_earlier": [
        ((None, None, N(info=N(begin_publish_ms=0, end_publish_ms=5)), time_ms, "publish"), time_ms > 5) for time_ms in (5, 6)],
    "store.model.resources:Bundle.holds": [
        ((N(lower=5, upper=upper), value), answer)
        for upper, value, answer in ((9, 4, False), (9, 5, True), (9, 9, False), (2**32 - 1, 2**32 - 1, True))],
    "store.model.resources:parse_bundle": [
        (("n", "0x00000000_0xffffffff"), Bundle("n", 0, 2**32 - 1)),
        (("n", "0xffffffff_0xffffffff"), Bundle("n", 2**32 - 1, 2**32 - 1)),
        *((("n", text), InvalidValue) for text in ("0x00000001_0x00000001", "0x00000002_0x00000001", "0x00000001"))],
    "store.model.schemas:_lead": [
        (([1, 2], (step,)), answer) for step, answer in ((-3, []), (-2, [1]), (0, [1]), (1, [2]), (2, []))]
    + [(({"a": {"b": 1}}, ("a", "b")), [1])],
    "store.model.topics:Topic.at_rank": [
        ((TOPIC, rank), Position(*place))
        for rank, place in ((-1, (7, 0)), (0, (7, 0)), (4, (7, 4)), (5, (9, 0)), (7, (9, 2)), (8, (9, 3)))],
    "store.model.topics:Topic.ledger": [
        ((N(ids=[7], ledgers=["x"]), ledger_id), "x" if ledger_id == 7 else None) for ledger_id in (6, 7, 8)],
    "store.model.topics:Topic.is_entry": [
        ((N(ledger=lambda ledger_id: N(entries=5)), Position(7, entry)), 0 <= entry < 5) for entry in (-1, 0, 4, 5)],
    "store.model.topics:Topic.next_valid": [
        ((N(place=lambda position: 8, number_of_entries=8, ledgers=[], last_confirmed=Position(9, 2)), None), Position(9, 3))],
    "store.model.topics:Topic.previous": [
        ((TOPIC, Position(*place)), Position(*answer))
        for place, answer in (((9, 1), (9, 0)), ((9, 0), (7, 4)), ((9, -1), (7, 4)), ((7, 0), (7, -1)))],
    "store.model.transactions:SegmentStates.of": [
        ((N(given={1: 5}, aborted=set(), states={}), TxnId(1, number)), COMMITTED if number < 5 else NotSeen)
        for number in (0, 4, 5)],
    "store.db.rows:side_by_side": [
        ((iter([(b"a", b"1"), (b"b", b"2")]), iter([(b"a", b"3"), (b"c", b"4")])),
         [(b"a", b"1", b"3"), (b"b", b"2", None), (b"c", None, b"4")])],
    "store.changes.ledger_references:_moved": [
        ((N(ids=[7, 9], last_confirmed=Position(9, 2)), Position(ledger_id, 3), {6, 8, 10}), answer)
        for ledger_id, answer in ((6, Position(7, -1)), (8, Position(9, -1)), (10, Position(9, 2)), (9, Position(9, 3)))],
    "store.changes.resets:check_position": [
        ((N(ledger=lambda ledger_id: N(entries=5), name="t"), Position(7, entry), ""), None if -1 <= entry <= 5 else EntryNotFound)
        for entry in (-2, -1, 5, 6)],
    "store.changes.resets:_ledgers_text": [
        ((N(ids=[5, 7]), Position(5, 0)), "its ledgers are 5 to 7"),
        ((N(ids=[5, 7]), Position(4, 0)), "what was before ledger 5 is trimmed")],
    "store.changes.resets:_dated": [
        ((N(position="1:0", time_ms=5), 5), "1:0 of 1970-01-01T00:00:00.005Z, is 0s old"),
        ((N(position="1:0", time_ms=2005), 5), "1:0 of 1970-01-01T00:00:02.005Z, is dated 2s ahead of now")],
    "store.changes.resets:_younger_warnings": [
        ((N(find_first=lambda limit_ms: N(position=Position(1, 5), time_ms=2)), N(mark_delete=Position(1, entry)), 1), answer)
        for entry, answer in ((4, []), (5, [
            "the broker's search drops 1:5 of 1970-01-01T00:00:00.002Z, which is younger than the limit 1970-01-01T00:00:00.001Z: "
            "clocks run backwards here"]))],
    "store.changes.resources:_with_deleter": [
        (({"replication_clusters": ["a"], "allowed_clusters": allowed},),
         {"replication_clusters": ["a"], "allowed_clusters": allowed} | more)
        for allowed, more in ((["a"], {"clusterThatCanDeleteNamespace": "a"}), (["a", "b"], {}))],
    "store.rules.bookies:_needs": [
        (([N(ledger_id=number, needed="x") for number in range(count)],), answer)
        for count, answer in ((0, ""), (1, "; ledger 0: x"), (2, "; ledger 0: x, and 1 more that are needed"))],
    "store.rules.rule:first_of": [((range(11),), [*range(10)]), ((range(3), 2), [0, 1])],
    "store.rules.starts:_no_snapshot": [
        ((N(values={"first": first}),), "logs but no snapshot (No snapshot found, but there are log entries): a server starts only "
         f"with zookeeper.snapshot.trust.empty=true, which bin/pulsar sets{more}")
        for first, more in ((1, ""), (2, ", and it would start without the transactions before 0x2"))],
    "store.rules.starts:_older_snapshot": [
        ((N(values={"base": 5, "first": first, "names": ["a"]}),), f"a cannot be read: a server starts from snapshot.5 {more}")
        for first, more in (
            (6, "and its logs from there on"),
            (7, "and forgets what came after it, because those logs are missing: the first one begins at 0x7"))],
    "store.rules.subscriptions:stores_most_ranges": [
        ((N(cursor=N(state=N(ranges=range(count)))),), count >= 10_000) for count in (9_999, 10_000)],
    "store.rules.subscriptions:_is_young": [
        ((N(next_message=N(born_ms=born_ms), of=N(now_ms=3 * DAY)),), born_ms > 0) for born_ms in (0, 1)],
    "store.rules.topics:_needed": [
        (([((3, 5),)], start, end), answer)
        for start, end, answer in ((5, 9, False), (4, 9, True), (0, 3, False), (0, 4, True))],
    "store.rules.topics:_by_size": [
        ((100 * 2**20,), Severity.WARNING), ((100 * 2**20 - 1,), Severity.NOTE)],
    "store.scan.entries:window_ranks": [
        ((None, N(first=Position(1, 0, first), last=Position(1, 5, last))), InvalidValue) for first, last in ((0, -1), (-1, 0))],
    "store.scan.files:FileScan.reaches": [
        ((N(slice=N(seek=False), records=0, is_inside=False, torn=False, next_offset=5), end), end <= 5) for end in (5, 6)],
    "store.scan.files:FileScan._digest_sizes": [
        ((N(ledgers=(np.array([7]), np.array([8]))), 7), (8,)),
        ((N(ledgers=(np.array([7]), np.array([8]))), 9), tuple(DIGEST_SIZE.values()))],
    "store.scan.files:FileWindow.move_to": [
        ((N(**WINDOW), offset), None if 5 <= offset < 8 else ValueError) for offset in (4, 5, 7, 8)],
    "store.scan.files:FileWindow.cover": [
        ((N(**WINDOW), *edges), answer)
        for edges, answer in (((5, 8), None), ((5, 9), ValueError), ((4, 8), ValueError), ((5, 7), None))],
    "store.scan.files:close_together": [
        ((iter([(0, 1), (5, 1)]), most), answer)
        for most, answer in ((1, [[(0, 1)], [(5, 1)]]), (2, [[(0, 1), (5, 1)]]))] + [
        ((iter([(0, 1), ((8 << 20) - 5, size)]), 9), answer)
        for size, answer in ((1, [[(0, 1), ((8 << 20) - 5, 1)]]), (2, [[(0, 1)], [((8 << 20) - 5, 2)]]))],
    "store.scan.following:_Folder.is_done": [
        ((N(done=[(1, 5)], begun={}), N(id=number, name="x")), 1 <= number <= 5) for number in (0, 1, 5, 6)],
    "store.scan.following:_pieces_of": [
        ((FILE, 0, 10, 10), [FileRange("0.log", FileKind.ENTRY_LOG, -1, 0, 10, seek=False, limit=10)]), ((FILE, 5, 5, 10), []),
        ((FILE, 0, 10, 5), [FileRange("0.log", FileKind.ENTRY_LOG, -1, start, start + 5, seek=start > 0, limit=10)
                            for start in (0, 5)])],
    "store.scan.following:_between": [
        ((PART, np.array([0, 5]), np.array([5, 10])), []), ((PART, np.array([2]), np.array([8])), [(0, 2), (8, 10)]),
        ((PART, np.array([0, 6]), np.array([5, 10])), [(5, 6)]), ((PART, np.array([], int), np.array([], int)), [(0, 10)])],
    "store.scan.following:_Taking._journal_start": [
        ((N(_marks={"o": (log_id, 9)}, _follower=N(
            has_logs=True, look=lambda *given, **how: N(offsets=np.array([8, 9, 12]), end=20))), FILE, "o", start), answer)
        for log_id, start, answer in ((6, 0, -1), (4, 0, 0), (5, 9, 9), (5, 8, 9), (5, 10, 10))],
    "store.scan.following:_Taking._cut": [
        ({"self": N(_bytes_left=5, _follower=N(look=lambda *given, **how: N(ends=np.array([3, 5, 9])))),
          "file": N(size_bytes=20), "start": 0, "end": end, "looked_at": True}, 5) for end in (5, 6)],
    "store.scan.integer_rows:_Front.fill": [
        ((N(_held=[], _next=0, _read_rows=2, _run=N(rows=rows, read=lambda start, end: [[1] * (end - start)])),), rows > 0)
        for rows in (0, 1)],
    "store.scan.messages:_iter_places": [((b"aba", b"a"), [0, 2]), ((b"b", b"a"), [])],
    "store.scan.ledgers_map:compare_map": [
        ({"mapped": {1: 5}, "records": {1: size}, "is_sound": is_sound}, answer)
        for size, is_sound, answer in ((5, True, None), (6, False, FalseMap((), (1,), 5, 6)), (4, False, None),
                                       (4, True, FalseMap((), (1,), 5, 4)))],
    "store.sources.index_places:_are_inside": [
        ((np.array([0, 1, 2, 3, 5, 6]), np.array([[1, 3], [5, 6]])), [False, True, True, False, True, False])],
    "store.sources.index_places:_join": [
        ((iter([(bytes(16), bytes(size))] * 2), 1), answer) for size, answer in ((8, bytes(24)), (7, b"?"))],
    "store.sources.zookeeper:LogOrder.take": [
        ((N(last=5, bad=None), None, N(zxid=zxid)), answer)
        for zxid, answer in ((6, None), (8, Gap(None, 5, 8, 2, None)))],
    "commands.compaction.last_id:_text": [
        (({"ledgerId": 1, "entryId": 2, "batchIndex": index},), text) for index, text in ((0, "1:2:0"), (-1, "1:2"))],
    "commands.nacks:_tell_floor": [
        ((N(warn=len), delay_ms), 0 < delay_ms < 100) for delay_ms in (0, 1, 99, 100)],
    "commands.overview:_ago": [
        ((0, time_ms, N(tight=True)), answer) for time_ms, answer in ((0, "0s ago"), (1000, "1s AHEAD of now"))],
    "commands.overview:_findings": [
        ((N(findings=[N(severity="note", count=count, code="c", where="w")] * codes), N(rows=1)), answer)
        for count, codes, answer in (
            (1, 1, ["FINDINGS  1 note", "  note 1 × c: w"]), (2, 1, ["FINDINGS  2 notes", "  note 2 × c: w, …"]),
            (1, 2, ["FINDINGS  2 notes", "  note 1 × c: w", "  … and 1 more code"]))],
    "commands.topics.listing:_ttl_text": [
        ((N(ttl=N(seconds=seconds, source="x")),), answer) for seconds, answer in ((0, None), (1, "1s (x)"))],
    "commands.topics.printout:_position": [((N(ledger_id=1, entry_id=2, batch_index=0),), "1:2:0")],
    "api.pending:NackSizes.recommended_bits": [
        ({"self": N(precisions=[N(precision_bits=bits, java_bytes=size) for bits, size in sizes]), "memory_bytes": 10}, answer)
        for sizes, answer in ((((7, 10), (8, 10), (9, 5)), 8), (((8, 11), (9, 10), (10, 5)), 9), (((8, 11), (9, 11)), 9))],
    "api.session:Program.__init__": [
        ((N(), None, None, jobs, None), None if jobs == 0 else InvalidValue) for jobs in (0, -1)],
    "columns:_number_text": [((0, "seconds", False), "0s"), ((-1, "seconds", False), "-"), ((0, "age", False), "0s")],
    "numbers:WholeNumber.convert": [
        ((N(_low=0, _high=high, _range=str, fail=lambda *said: int("x")), text, None, None), answer)
        for high, text, answer in ((5, "0", 0), (5, "+5", 5), (5, "6", ValueError), (5, "-1", ValueError), (LONG, str(LONG), LONG))],
    "numbers:Number.convert": [
        ((N(_low=0.0, _high=5.0, fail=lambda *said: int("x")), text, None, None), answer)
        for text, answer in (("0", 0.0), ("5", 5.0), ("5.1", ValueError), ("-0.1", ValueError))],
    "options:_without_equals": [(("-a=x",), "-ax"), (("-a=",), "-a=")],
    "page.charts:_label": [
        ((name, Box(0, 0, width, height), "k"), [(5, 13, "k", shown)] if shown else [])
        for name, width, height, shown in (
            ("abcd", 34, 16, "abcd"), ("abcde", 34, 16, "abc…"), ("abcd", 33.9, 16, ""), ("abcd", 34, 15.9, ""))],
    "query:_Descending.__lt__": [((N(value=1), N(value=other)), other < 1) for other in (0, 1, 2)],
    "table_layout:_cut": [(("abc", 2, len), 2), (("abc", 0, len), 1), (("ab", 2, len), 2)],
    "upstream:_default": [
        (({"default": text, "converter": "Seconds"},), int(text) * 1000) for text in ("0", "1")] + [
        (({"default": "-1", "converter": "Seconds"},), -1)],
    "store.names:_ansi_c": [(("\udc80",), "\\200"), (("\udcff",), "\\377"), (("\udd00",), "\\355\\264\\200")],
    "store.names:Position.__str__": [((Position(1, 2, 0),), "1:2:0"), ((Position(1, 2),), "1:2")],
    "store.names:Position.entry.fget": [((Position(1, 2, 0),), Position(1, 2))],
    "store.tables.rows:_ledger_ranges": [((TOPIC, 4, 6), [(7, 4, 4), (9, 0, 0)]), ((TOPIC, 4, 5), [(7, 4, 4)])],
    "store.tables.folder:_part_of": [
        (({"path": "p", "rows": 1, "bytes": 2, "sha256": "s", "ledgers": [first, 5]}, "w"), answer)
        for first, answer in ((5, TableFile("p", 1, 2, "s", (5, 5))), (6, ValueError))],
    "store.timespec:parse_size_bytes": [
        ((str(LONG),), LONG), ((str(LONG + 1),), InvalidValue), (("8388607T",), 8388607 << 40), (("8388608T",), InvalidValue)],
    "store.timespec:format_time_ms": [
        ((253_402_300_799_999,), "9999-12-31T23:59:59.999Z"), ((253_402_300_800_000,), "253402300800000ms"),
        ((-62_135_596_800_000,), "0001-01-01T00:00:00.000Z"), ((-62_135_596_800_001,), "-62135596800001ms")],
    "store.timespec:_integer": [(("9" * 19, ""), 10**19 - 1), (("1" * 20, ""), InvalidValue)],
    "columns:render_cell": [(({"ledgerId": 1, "entryId": 2, "batchIndex": 0},), "1:2:0"), (({"ledgerId": 1, "entryId": 2},), "1:2"),
        ((["a", "b", "c"], "names"), "a, b, c"), ((["a", "b", "c", "d"], "names"), "a, b, c and 1 more")],
    "store.history.differences:_belongs_to": [
        ((N(path=path, before=b"", after=b""),), (2, "topic", "persistent://t/n/x"))
        for path in ("/admin/partitioned-topics/t/n/persistent/x", "/schemas/t/n/x")],
    "store.kernels.wire:varint.plain": [
        ((b"\xff" * 9 + b"\1", 0, 10), (-1, 10)), ((b"\xff" * 8 + b"\x7f", 0, 9), (LONG, 9)), ((b"\x80", 0, 1), (0, -1)),
        ((b"\x80\1", 0, 2), (128, 2))],
    "store.policies.quotas:_closed_ms": [
        ((N(ids=[7, 9], next_valid=lambda place: Position(9, 0),
            ledger=lambda ledger_id: N(entries=5, info=N(timestamp_ms=ledger_id))), Position(*place)), answer)
        for place, answer in (((7, 3), 7), ((7, 4), 9), ((9, 0), None))],
    "store.search.by_index:_Search.find": [
        ((N(_topic=N(number_of_entries=2), _covered_from=lambda rank, end: (rank, COVERED[rank])), index), answer)
        for index, answer in ((-1, None), (0, COVERED[0]), (4, COVERED[0]), (5, COVERED[1]), (9, COVERED[1]), (10, None))],
    "store.tables.rows:cluster_name": [
        ((None, name), InvalidValue) for name in ("", "\ud800", "\udfff")] + [((None, "\ud7ff\ue000"), "\ud7ff\ue000")],
    "store.db.delayed_entries:_read_packed": [((b"", (0, 1, 1, 0), "x"), EntryCorrupt), ((b"\0", (0, 1, 1, 63), "x"), EntryCorrupt)],
    "store.transfer.reading:_half_seen": [
        ((N(rows={1: READ}, before=before), N(is_live=bool)), [READ] if is_new else [])
        for before, is_new in (({}, True), ({1: N(problems=6, tail_problems=2)}, False), ({1: N(problems=5, tail_problems=2)}, True))],
    "store.changes.cursors:advanced": [
        ((LONE, CursorState(Position(7, 0), batch_deletes={Position(7, 2): (1,), Position(7, 3): (1,)}), Position(7, 2)),
         CursorState(Position(7, 2), batch_deletes={Position(7, 3): (1,)})),
        *(((LONE, CursorState(Position(7, 0), ((Position(7, 1), Position(7, 3)),)), Position(7, entry)), CursorState(Position(7, 3)))
          for entry in (1, 3))],
    "store.changes.cursors:skipped": [
        ((LONE, CursorState(Position(7, -1)), count), CursorState(Position(7, mark)))
        for count, mark in ((0, -1), (1, 0), (5, 4), (6, 4))],
    "store.changes.resets:_with_batch": [
        ((LONE, CursorState(Position(7, 1)), Position(7, entry), (1,)),
         CursorState(Position(7, 1), batch_deletes={Position(7, 2): (1,)} if entry == 2 else {})) for entry in (1, 2, 5)],
    "store.delayed.waiting:Waiting.iter_rows": [
        ((N(rules=N(granularity_ms=10), source=N(
            next_time_ms=lambda start_ms: start_ms, load=lambda start_ms, end_ms: [start_ms, end_ms])), 0, 20), [[0, 10], [10, 20]])],
    "store.dump.copying:_moved": [
        ((N(ledgers=LONE.ledgers, at_rank=LONE.at_rank, place=lambda position, rank=rank: rank), Position(9, 0), {}), Position(7, rank - 1))
        for rank in (0, 1)],
    "store.index.scan:EngineScan._lacks_lengths": [
        ((N(_lengths={1: (5, 3)}), {"problems": [(0, 0, "", ledger_id, 0)], "unknown": [(1, entry_id, surplus)]}), answer)
        for ledger_id, entry_id, surplus, answer in (
            (0, 6, -3, False), (0, 6, -2, True), (0, 5, 9, False), (-1, 5, 0, True))],
    "store.scan.operations:check_is_log": [
        (("x", FileKind.ENTRY_LOG, head), answer)
        for head, answer in ((bytes(1024), None), (b"BK", None), (b"BX", EntryLogCorrupt),
                             ((b"BKLO" + bytes(3) + b"\1").ljust(1024, b"\0"), None), (b"BK".ljust(1024, b"x"), EntryLogCorrupt))],
    "store.model.topics:_split": [(("",), []), (("a\0b",), ["a", "b"]), (("a",), ["a"])],
    "store.compaction.last_id:check_indexes": [
        (([0, 2], 3, "x"), [0, 2]), *(((wrong, 3, "x"), EntryCorrupt) for wrong in ([0, 0], [1, 0], [3], [-1]))],
    "store.db.rows:name_of_row": [
        (("entries", struct.pack(">qq", 7, 2)), "(ledger 7, block 2)"), (("times", bytes(8)), "(ledger 0)"),
        (("copies", struct.pack(">qI", 7, 1)), "(ledger 7, file 1)"), (("changes", struct.pack(">Q", 3)), "(change 3)"),
        (("damage", struct.pack(">IQ", 1, 0)), "(file 1, offset 0)"), (("times", bytes(7)), "00" * 7),
        (("times", bytes(9)), "00" * 9), (("tree", b"/a\xff"), r"'/a\\xff'")],
    "store.recovery.restore:_not_deleted": [
        ((b'{"partitions":3,"deleted":true}', "x"), b'{"partitions":3,"deleted":false}'),
        ((b'{"partitions":3}', "x"), b'{"partitions":3}')],
    "store.scan.source_options:pattern_namespace": [
        (("t.*",), "public/default"), (("a/b/t.*",), "a/b"), (("persistent://a/b/.*",), "a/b"), (("b/t.*",), InvalidValue)],
    "store.sources.ensemble:parse_address": [
        (("zk:65535",), Address("zk:65535", "")), (("zk1:2181,zk2:65536",), InvalidValue)],
    "commands.topics.listing:_drawn": [
        (([N(start=0, end=0x7FFF, segment_id=1, is_active=False), N(start=0x8000, end=0xFFFF, segment_id=2, is_active=True)],),
         f"[{'1':-^30}][{'2':=^30}]"), (([N(start=0, end=0x3FF, segment_id=1, is_active=True)],), "[")],
    "store.engine.spark_session:cause_of": [(("x" * 301,), "x" * 300)],
    "table_layout:_iter_pieces": [(("ab-c d", 4, len), ["ab-c ", "d"])],
    "store.codec.interceptors:parse_interceptors": [(("timestamp,,timestamp, index",),
        ("AppendBrokerTimestampMetadataInterceptor", "AppendIndexMetadataInterceptor")), (("none",), ())],
    "store.disks.reclaim:fitting": [  # a group is the first of those that wait, also where a later one would fit
        ((N(logs="/", index="/"), [SMALL, N(entries=0, live_bytes=1 << 40, live_ledgers=1), SMALL], Room(1 << 62, 1 << 62)), [SMALL])],
    "store.recovery.rolling:newest_compaction": [((N(ids=[1]), [N(last=CursorState(EARLIEST), ledger_id=5),
        N(last=COMPACTING, ledger_id=6)], {9: N(kind=COMPACTED, is_whole=True, points={1: 0}, ledger_id=9)}),
        FollowedCursor(COMPACTING, (6,), 9))],
    "store.changes.policies:_topic_warnings": [
        ((UNREADABLE, A_TOPIC.namespace), ("whether topics have a TTL or quota of their own is unknown: it is damaged",))],
    "store.db.entry_files:path_state": [
        ((None, Path("/nowhere")), FileState.MISSING), ((None, Path("/")), FileState.UNREADABLE)],
    "store.engine.workers:_version": [(("no-such-package",), "*")],
    "store.sources.bookies:size_of": [((Path("/nowhere"),), 0)],
    "store.sources.layout:_directories": [((Path("/nowhere"), 1), [])],
    "store.tables.sql:_raise": [((duckdb.OutOfMemoryException("x"),), LimitExceeded), ((duckdb.IOException("x"),), DiskFull),
        ((duckdb.PermissionException("x"),), Refused), ((duckdb.InternalException("x"),), Unsupported)],
    "store.delayed.expiry_plans:_policy_delays": [((UNREADABLE, A_TOPIC), True)],
    "store.delayed.expiry_plans:find_evicting_quotas": [({"txn": UNREADABLE, "topic": A_TOPIC, "assumed": False}, [])],
    "store.facts.starts:_stop": [((Path("/nowhere"), 0, {}), (0, "[Errno 2] No such file or directory: '/nowhere'"))],
    "store.model.coverage:is_final": [((UNREADABLE, 7), False)],
    "store.model.coverage:_may_lack_entries": [((UNREADABLE, 7), True)],
    "store.policies.in_force:may_delay": [((UNREADABLE, A_TOPIC), True)],
    "store.recovery.chains:_NamesSaid.say": [((None, None, "a//b", ""), None)],
    "store.recovery.chains:_read_own": [((N(key="a/b/c", null_value=False, payload=b"\xff"), b"x"), ("", None))],
    "store.recovery.from_bookies:_read_cursor": [
        ((N(txn=UNREADABLE, read=UNREADABLE.read), N(kind=CURSOR, ledger_id=7)), None)],
    "store.recovery.ledgers:_key": [((UNREADABLE, 7, 0), None)],
    "store.recovery.rolling:_is_told_of": [((UNREADABLE, A_TOPIC), False)],
    "store.search.by_index:_is_sound": [((UNREADABLE, Position(7, 0)), False)],
    "store.transfer.bundle:_has_ledger": [((N(value=b"\xff", path="p"),), False)],
    "store.codec.avro:_Values._of": [((N(), {"type": "fixed", "size": size}), answer)
        for size, answer in ((0, 1), (1, 1 - VALUES_PER_BYTE), (-1, EntryCorrupt))] + [
        ((N(unpaid=int), schema), answer) for schema, answer in (  # more values than its bytes pay for, of each item 0 at most
            ({"type": "array", "items": 0}, 1 - VALUES_PER_BYTE), ({"type": "array", "items": 1}, EntryCorrupt),
            ({"type": "map", "values": VALUES_PER_BYTE}, EntryCorrupt),
            ({"type": "map", "values": VALUES_PER_BYTE - 1}, 1 - VALUES_PER_BYTE),
            ({"type": "record", "fields": [{"type": 2}, {"type": 3}]}, 6), ({"type": "enum"}, 1 - VALUES_PER_BYTE), ({"type": 5}, 5))],
    "store.codec.entrylog:decode_trusted_map": [  # a size of 0 ends it, as the padding of direct writes does; a cut map is none
        ((bytes(1024) + tail, entrylog.EntryLogHeader(1, 1024, 0)), answer)
        for tail, answer in ((bytes(4), {}), (bytes(3), None), (b"\xff" * 4, {}), (b"", {}), (struct.pack(">i", 1), None),
                             (struct.pack(">iqqi", 20, -1, -2, 0), {}))] + [
        ((b"x" + struct.pack(">iqqiqqqq", 52, *batch) + bytes(4), entrylog.EntryLogHeader(version, 1, ledgers)), answer)
        for version, ledgers, *batch, answer in (
            (1, 1, -1, -2, 2, 0, 5, 0, 7, {0: 12}), (1, 2, -1, -2, 2, 0, 0, 1, 0, {0: 0, 1: 0}), (1, 2, -1, -2, 2, 0, 5, 0, 7, None),
            (0, 1, -1, -2, 2, 0, 5, 0, 7, None), (1, 1, -2, -2, 2, 0, 5, 0, 7, None), (1, 1, -1, -1, 2, 0, 5, 0, 7, None),
            (1, 1, -1, -2, 1, 0, 5, 0, 7, None), (1, 2, -1, -2, 2, 0, 5, -1, 7, None), (1, 2, -1, -2, 2, 0, 5, 1, -1, None))],
    "store.codec.zookeeper:SnapshotReader._fill": [
        ((N(_where="x", _data=b"", _more=lambda size: 5), size), answer)
        for size, answer in ((0, None), (5, None), (6, MetadataCorrupt), (-1, MetadataCorrupt))],
    "store.changes.resets:reset_target": [
        ({"time_ms": 5, "until_ms": until_ms, "exclude": False}, answer)
        for until_ms, answer in ((5, InvalidValue), (6, ToTime(5, False, 6)))],
    "store.changes.topics:_missing": [
        ((UNREADABLE, A_TOPIC, count, 0), answer)
        for count, answer in ((0, []), (PARTITIONS_MAX, MetadataCorrupt), (PARTITIONS_MAX + 1, InvalidValue))],
    "store.facts.backlogs:_Chunks._look": [  # no entry is read before the first or after the last
        ((N(_read={}, _unread=set(), topic=N(number_of_entries=2, at_rank=partial(Position, 7)), _reader=N(read=lambda *ids: int("x"))),
          rank), answer) for rank, answer in ((-1, (False, None)), (0, ValueError), (1, ValueError), (2, (False, None)))],
    "store.recovery.ack_history:state_in_force": [  # not written before the time, and written by it, both ends included
        ((iter([N(state=None, name=name, problem="p", not_before=N(time_ms=before), not_after=N(time_ms=after, by="b"))
                for name, before, after in (("A", 5, 7), ("B", *span))]), None, N(name="s"), 10, "refuse"), answer)
        for span, answer in (((10, 20), ChosenState(None, "2 states, A to B", "p")), ((11, 20), ChosenState(None, "A", "p")),
                             ((8, 10), ChosenState(None, "B", "p")), ((8, 11), ChosenState(None, "2 states, A to B", "p")))],
    "store.recovery.chains:_LedgerSets.join_pointed": [  # joins, here an error, what names entries that both ledgers have
        ((N(found={1: N(kind="messages", last_entry=5), 2: N(kind="messages", last_entry=3)}, join=lambda join: int("x")),
          N(points={1: span, 2: (0, 3)}, kind="cursor", ledger_id=9)), answer)
        for span, answer in (((-1, 5), ValueError), ((-2, 5), None), ((0, 6), None))],
    "store.recovery.chains:_LedgerSets._contradiction": [
        ((N(found={1: N(index=(3, 4, 8), broker_ms=(0, last)), 2: N(index=(8, first, 12), broker_ms=(10**6, 10**7))}),
          N(**vars(LEDGERS) | {"indexed": [1], "timed": [1]}), N(**vars(LEDGERS) | {"indexed": [2], "timed": [2]})), answer)
        for first, last, answer in (
            (9, 5, ""), (8, 5, "the broker's index goes back from ledger 1 to 2"), (9, 10**6 + CLOCK_SKEW_MS, ""),
            (9, 10**6 + CLOCK_SKEW_MS + 1, "the broker's time goes back from ledger 1 to 2"))] + [
        ((N(), N(**vars(LEDGERS) | {"names": {"a"}}), N(**vars(LEDGERS) | {"names": {name}})), answer)
        for name, answer in (("a", ""), ("b", "the metadata names them a and b"))] + [
        ((N(), N(**vars(LEDGERS) | {"kinds": {"a"}}), N(**vars(LEDGERS) | {"kinds": {kind}, "contradiction": "c"})), answer)
        for kind, answer in (("a", "c"), ("b", "their contents differ in kind"))],
    "store.recovery.closing:_end_of": [
        ((N(txn=UNREADABLE, read=lambda *ids: N(length=3, digest_type=None)), 7, last, 9), (length, DigestType.CRC32C))
        for last, length in ((0, 3), (-1, 0))],
    "store.recovery.preflight:_Forecast._add_log": [((N(), N(bytes=np.array([100])), 100), None)],
    "store.changes.compaction:_attach_warnings": [
        ((N(get=lambda *key: None, view=lambda *key: None), N(ids=ids, name=A_TOPIC, at_rank=lambda rank: Position(5, 0)),
          N(horizon=Position(ledger, 3), ledger_id=9)), answer)
        for ids, ledger, answer in (([], 4, []), ([5], 5, []), ([5], 4, [
            "what the topic had between 4:3 and 5:0 is gone: a key that was changed or deleted there gets back its value of 4:3"]))],
    "store.codec.journal:_record": [
        ((struct.pack(">iqq", size, *ids) + tail, 0, size, "x", N(written_end=int, digest_type=lambda *span: "CRC32C")), answer)
        for size, *ids, tail, answer in (
            (16, 0, -0x2000, b"", journal.Fence(0, 0)), (16, -1, -0x2000, b"", JournalCorrupt),
            (17, 0, -0x2000, b"x", JournalCorrupt),
            (20, 0, -0x1000, bytes(4), journal.MasterKey(0, 0, b"")), (16, 0, -0x1000, b"", JournalCorrupt),
            (21, 0, -0x1000, b"\0\0\0\1k", journal.MasterKey(0, 0, b"k")), (21, 0, -0x1000, b"\0\0\0\2k", JournalCorrupt),
            (20, 0, -0x8000, bytes(4), journal.ExplicitLac(0, 0, b"")), (16, 0, -1, b"", journal.UnknownRecord(0, 16, 0, -1)),
            (32, 0, 0, bytes(16), journal.JournalEntry(0, 32, 0, 0)), (31, 0, 0, bytes(15), JournalCorrupt))],
    "store.recovery.recover:_left_out": [
        ((N(leftovers=(), headless=(), namespaces_without_policies=(), unsure=0),
          N(left_out=(), passed_over=dict.fromkeys(range(count), "x")), None), answer)
        for count, answer in ((0, []), (1, ["1 node that cannot be decoded stays as it is:", "x"]),
                              (10, ["10 nodes that cannot be decoded stay as they are:", *["x"] * 10]),
                              (11, ["11 nodes that cannot be decoded stay as they are:", *["x"] * 10,
                                    "… and 1 more: see them with: pulsar-admin store check"]))],
    "store.search.broker:BrokerSearch._find_in_compacted": [
        ((N(_read_compacted=lambda view, entry: N(position=entry, header=N(metadata=N(publish_time=(10, 40, 20, 30)[entry])))),
          N(last_entry_id=3), time_ms), answer)
        for time_ms, answer in ((5, 0), (10, 0), (11, 1), (20, 1), (21, 1), (30, 3), (31, None))],
    "store.search.window:_listed": [
        ((N(ledgers=LISTS, last_confirmed=Position(9, 0)), N(first=first, last=N(ledger_id=last))), answer)
        for first, last, answer in ((EARLIEST, 9, [LISTS[0], LISTS[2]]), (Position(5, 0), 5, [LISTS[0]]), (Position(9, 0), 9, [LISTS[2]]),
                                    (Position(6, 0), 8, []), (LATEST, LONG, [LISTS[2]]))],
    "store.codec.claims:claimed_topic": [(({TOPIC_KEY: b"\xff"},), None), (({SCHEMA_KEY: b"x"},), None)],
    "store.codec.compression:fills": [((ZLIB, b"xx", memoryview(bytearray(3))), False)],
    "store.codec.cursor:rename_properties": [((b"\xff", str), None)],
    "store.codec.cursor:_footer": [((b"{",), None), ((b'{"numParts":1}',), None), ((b'{"numParts":1,"length":2}',), (1, 2))],
    "store.codec.zookeeper_log:_decode_usual": [((b"", 0, 0), None)],
    "store.disks.live_records:_is_good": [((Path("/nowhere/0.log"), (0, 0), (7, 0)), False)],
    "store.disks.reclaim:_ledgers_in": [((Path("/nowhere/0.log"), None), []), ((Path("/nowhere/0.log"), {7: 1}), [7])],
    "store.model.broken:_find_missing": [((NEWER, 7, ()), None)],
    "store.reports.stats:_earliest_time": [((UNREADABLE, N(next_valid=lambda at: at, is_entry=lambda at: True), Position(7, 0)), -1)],
    "store.reports.verify:_entry_row": [((N(txn=N(get=lambda *of: None), read_at=UNREADABLE.read),
        N(ledger_id=7, place=lambda index: (1, 10, 5), entry_id=lambda index: 3), 0, False), EntryRow(7, 3, "it is damaged", None, 10, 5))],
    "store.recovery.restore:_cursor": [((None, N(name=A_TOPIC, stat=None), "s", IN_LEDGER,
        _Unreadable(NothingMatches("it is unknown")), 0), replace(IN_LEDGER_THEN, problem="it is unknown"))],
    "store.changes.log_writer:append_payload": [((b"\xff", None, 0), b"\xff")],
    "store.changes.log_writer:WrittenLedgers._discard": [((N(store=UNREADABLE, files=[Path("0.log")]),), None)],
    "store.changes.resets:ttl_warnings": [((UNREADABLE, N(name=A_TOPIC), N(name="s"), None, 0),
        ("whether a TTL skips the replayed messages is unknown: it is damaged",))],
    "store.compaction.last_id:_of_compacted_ledger": [
        ((_Unreadable(EntryNotFound("it is gone")), N(last_entry_id=0, ledger_id=7), (), False), EntryCorrupt)],
    "store.compaction.verify:_why_strange": [((N(position=Position(1, 2), batch=N(stored=lambda index: b"\xff"), index=0),),
        "compacted entry of 1:2: the entry has 1 bytes, its framing asks for 4")],
    "store.scan.ledgers_map:_ledgers_of": [(("/nowhere/0.log",), None)],
    "store.transfer.ledger_export:_is_entry": [((Path("/nowhere"), N(metadata=None), N(log_id=0, pos=0), 5), False)],
    "store.transfer.reading:_state_of": [((Path("/nowhere"),), None)],
    "store.history.words:_deleted": [((PLAIN, b"\xff"), ["deleted"])],
    "store.recovery.deleted_nodes:_read_cursor_then": [((UNREADABLE, "p", IN_LEDGER), IN_LEDGER_THEN)],
    "store.sources.bookies:find_cookie": [((b"x", "c"), None), ((b"9\n", "c"), None)],
    "store.history.words:describe": [((PLAIN, None, b"\xff"),
        f"a value that cannot be read: {PLAIN}: no ManagedLedgerInfo: the protobuf cannot be parsed"),
        ((PLAIN, b"\xff", encode_managed_ledger(ManagedLedger())),
        "a value that could not be read was replaced: topic created")],
    "store.model.ledger_owners:_text": [((b"\xff",), "ff"), ((b"a",), "a"), ((b"\n",), "0a")],
    "store.recovery.chains:_decoder_of": [((N(type_name=kind, definition=text),), None) for kind, text in (
        ("AVRO", b"x"), ("JSON", b"x"), ("JSON", b"{}"), ("JSON", b'{"fields": [1]}'), ("STRING", b'{"fields": []}'))],
    "store.recovery.from_bookies:_time": [((10**18,), str(10**18)), ((0,), "1970-01-01T00:00:00+00:00")],
    "store.tables.sql:_check_name": [(("a//b",), None)],
    "store.transfer.bundle:_custom": [((b"\xff", None), b"")],
}
# fmt: on
"""By function: what it is given at its bounds, and what it answers, or which error it raises."""


def _called(place: str, given: Any) -> object:
    module, _, name = place.partition(":")
    call = attrgetter(name)(import_module(f"pulsar_admin.{module}"))
    found = call(**given) if isinstance(given, dict) else call(*given)
    return found.tolist() if isinstance(found, np.ndarray) else list(found) if isinstance(found, Iterator) else found


def _answer(place: str, given: Any) -> object:
    try:
        return _called(place, given)
    except (StoreError, ValueError) as error:
        return type(error)


def test_at_its_bounds() -> None:
    asked = [(place, given, expected) for place, rows in BOUNDS.items() for given, expected in rows]
    assert [
        (place, given, found) for place, given, expected in asked if (found := _answer(place, given)) != expected
    ] == []


GIB, MIB, NOTE, WARNING = 1 << 30, 1 << 20, Severity.NOTE, Severity.WARNING
DEDUP = N(mark_deletes={DEDUP_CURSOR: Position(1, 1)}, is_deduplicated=None)
MANY = [N(entries=100)] * 999
FIRST = N(born_ms=5, position=Position(1, 2), deliver_at_ms=5)
OF_TTL = N(ttl=N(seconds=60, source="namespace"), next_message=FIRST, overdue=None, cursor=N(name="s"))
CHILD = N(segment_id=2, topic="two", parents=(1,), children=(), start=5, end=9, is_active=True)
PARENT = N(segment_id=1, topic="one", parents=(), children=(2,), start=0, end=9, is_active=False)
HOLDING = N(
    cursors=[N(state=N(ranges=[1]))],
    unreadable_cursors=False,
    consumed=(1, ("s", Position(7, 1))),
    retention=N(time_minutes=0),
    topic=N(
        name="t",
        ranks=[0, 5, 10, 15, 20],
        at_rank=lambda rank: f"at {rank}",
        place=lambda at: at.entry_id,
        ledgers=[N(entries=5, size_bytes=1)] * 4,
    ),
)
LISTED = N(of=N(topic=N(name="t", number_of_entries=8, at_rank=lambda rank: f"7:{rank}")), cursor=N(name="s"))
LOSS = N(
    entries_before=0, entries=1, first=Position(1, 1), last=Position(1, 1),
    broken=N(ledger_id=1, what=str, fate="is lost", reason="x", cure="", broker=str),
)  # fmt: skip
# fmt: off
JUDGED: dict[str, list[tuple[Any, list[Severity | str | None]]]] = {
    "topics:_holds": [
        ((N(**vars(DEDUP), held_by=lambda name, size=size: (1, size), topic=N(entries_after=lambda at, after=after: after)),), told)
        for after, size, told in ((10**6, 0, [WARNING]), (10**6 - 1, 0, []), (0, 100 * MIB, [None]), (0, 100 * MIB - 1, []))] + [
        ((N(mark_deletes={}, is_deduplicated=None),), []), ((N(**vars(DEDUP) | {"is_deduplicated": False}),), [])],
    "topics:_ledgers_tiny": [
        ((N(topic=N(ledgers=[N(entries=first), *more, N(entries=0)])),), told)
        for first, more, told in ((100, MANY, []), (99, MANY, [None]), (0, MANY[:-1], []))],
    "topics:_ledger_huge": [
        ((N(where="t", topic=N(ledgers=[N(ledger_id=1, size_bytes=10 * GIB + more, info=N(offloaded=offloaded))])),), told)
        for more, offloaded, told in ((0, False, []), (1, False, ["bytes in one ledger"]), (1, True, []))],
    "topics:_ledger_list_large": [
        ((N(topic=N(ledgers=range(count)), node_bytes=size),), told)
        for count, size, told in ((999, MIB, []), (1000, MIB // 2, [None]), (1000, MIB // 2 - 1, []), (1000, 943_718, [None]),
                                  (1000, 943_719, [Severity.CRITICAL]))],
    "topics:_compaction_stale": [
        ((N(compaction_cursor=N(mark_delete="1:1"), mark_deletes=range(count), compaction_threshold=None,
            held_by=lambda name, size=size: (1, size)),), told)
        for count, size, told in ((1, 1, []), (2, 1, [NOTE]), (2, 0, []), (2, 100 * MIB - 1, [NOTE]), (2, 100 * MIB, [WARNING]))],
    "topics:_hole_pins_ledgers": [  # the last ledger stays in any case, and those before the slowest position are consumed
        ((N(**vars(HOLDING) | {"subscriptions": [N(pending=pending)]} | more),), told) for pending, more, told in (
            (((1, 2),), {}, ["message at 1 is not acknowledged: 2 ledgers after it of 2 bytes"]),
            (((1, 6), (10, 11)), {}, []), (((1, 5), (14, 15)), {}, ["1 ledger after it"]), (((1, 2), (15, 20)), {}, ["2 ledgers"]),
            (((1, 2),), {"retention": N(time_minutes=-1)}, []), (((1, 2),), {"cursors": [N(state=N(ranges=[]))]}, []),
            (((1, 2),), {"unreadable_cursors": True}, []), (((1, 2),), {"consumed": (1, None)}, []))],
    "topics:_clock": [
        ({"facts": N(wrong_producers={"future": count}, clocks=N(
            ahead_ms=off_ms, behind_ms=0, future_ledgers=1, past_ledgers=0, is_stamped=True)), "is_ahead": True}, told)
        for off_ms, count, told in ((600_000, 1, ["1 entry up to 10m ahead"]), (599_999, 2, ["2 entries up to 9m59s ahead"]), (0, 1, []),
                                    (36_000_000, 0, ["entries up to 10h ahead"]), (864_000_000, 0, ["entries up to 10d ahead"]))],
    "storage:_dead_bytes": [
        ((N(stuck_logs=[N(live_bytes=live, size_bytes=100, dead_bytes=dead, path="a/0.log", kept_for="t")]),), told)
        for live, dead, told in ((50, 1, [NOTE]), (49, 1, []), (50, 0, []), (50, 10 * GIB - 1, [NOTE]), (50, 10 * GIB, [WARNING]))],
    "storage:_full_disks": [
        ((N(disks=[("d", N(total=total, used=used, free=0))]),), told)
        for total, used, told in ((100, 95, ["95%"]), (1000, 949, []), (0, 0, []))],
    "storage:_leaked": [
        ((N(vanished=N(off_list=off), reader=UNREADABLE, leaked=[
            N(ledger_id=number, claims={}, reason="", entries=1, size_bytes=GIB // count - less) for number in range(count)]),), told)
        for count, less, off, told in ((1, 0, (), [WARNING]), (1, 1, (), [NOTE]), (5, 0, (), ["ledgers 0, 1, 2, 3, 4"]))],
    "backlogs:_markers": [
        ((N(contents=N(markers=markers, entries=entries), of=N(where="t"), cursor=N(name="s")),), told)
        for markers, entries, told in ((1, 2, ["1 entry is left"]), (1, 3, []), (0, 0, []), (2, 2, ["no other entry"]))],
    "scalable:_wrong_relations": [
        ((N(record=N(next_segment_id=following, segments=[N(**vars(PARENT) | parent), N(**vars(CHILD) | segment)])),), told)
        for following, parent, segment, told in (
            (3, {}, {}, []), (2, {}, {}, ["segment 2 has the id that the next segment gets (2)"]), (3, {"end": 5}, {}, []),
            (3, {"end": 4}, {}, ["segment 2 has none of the hashes of its parent 1"]), (3, {"start": 9}, {}, []),
            (3, {"start": 10}, {}, ["segment 2 has none"]), (3, {"is_active": True}, {}, ["segment 1 is active and has children"]),
            (3, {"topic": "two"}, {}, ["segments 1 and 2 are the same ledger, two"]),
            (3, {"children": ()}, {}, ["segment 1 is sealed and has no children", "2 has the parent 1, which has no such child"]),
            (3, {}, {"is_active": False}, ["segment 2 is sealed and has no children"]),
            (3, {}, {"parents": ()}, ["segment 1 has the child 2, which has no such parent"]),
            (5, {"segment_id": 3}, {}, ["child 2, which has no such", "segment 2 has the parent 1, which is not in the record"]),
            (5, {}, {"segment_id": 3}, ["segment 1 has the child 2, which is not in the record", "parent 1, which has no such child"]),
            (3, {"parents": (2,), "children": (2,)}, {"parents": (1,), "children": (1,), "is_active": False}, ["they form a circle"]),
            (3, {}, {"parents": (1, 2), "children": (2,), "is_active": False}, ["they form a circle"]))],
    "starts:_long_record": [
        ((N(where="log.1", values={"size": 2 * (10 << 20) + more}),), [told])
        for more, told in ((0, "10485760, which is enough"), (1, "more than what bin/pulsar sets"))],
    "subscriptions:_lost": [
        ({"facts": N(**vars(LISTED), loss=N(**vars(LOSS), end=end)), "is_next": True}, [told])
        for end, told in ((8, "clear-backlog t"), (7, "reset-cursor t -s s -m 7:7"))] + [
        ({"facts": N(**vars(LISTED), loss=N(**vars(LOSS) | {"broken": N(**vars(LOSS.broken) | broken)}, end=8)), "is_next": True}, [told])
        for broken, told in (({"cure": "cure it"}, "cure it"), ({"reason": NO_METADATA}, "ledgers restore 1"))] + [
        ({"facts": N(loss=loss, cursor=None), "is_next": False}, []) for loss in (None, N(entries_before=0))],
    "subscriptions:_delayed": [
        ({"facts": N(not_due=N(next_due_ms=9, last_due_ms=9, entries=1), next_message=FIRST, of=N(now_ms=now_ms), pending_entries=1,
                     producer=None), "is_next": False}, told) for now_ms, told in ((5, ["1 of 1 entry"]), (4, []))] + [
        ({"facts": N(not_due=not_due, next_message=None, of=N(now_ms=5)), "is_next": False}, [])
        for not_due in (Unknown("x"), N(next_due_ms=None, last_due_ms=9), N(next_due_ms=9, last_due_ms=None))],
    "subscriptions:_ttl_later": [
        ((N(**vars(OF_TTL), of=N(now_ms=now_ms, topic=N(name="t"))),), told) for now_ms, told in ((5, ["1:2"]), (4, []))] + [
        ((N(**vars(OF_TTL) | more, of=N(now_ms=5, topic=N(name="t"))),), told) for more, told in (
            ({"ttl": None}, []), ({"next_message": None}, []), ({"overdue": Unknown("x")}, []), ({}, ["at 1970-01-01T00:01:00.005Z"]),
            ({"overdue": N(extent=N(entries=1))}, []), ({"overdue": N(extent=N(entries=0))}, ["1:2"]))],
    "transactions:_replay_endless": [
        ((N(pending_ack_log=N(endless_until=Position(ledger, -1), mark_delete="m", name=A_TOPIC), of=N(where="t"), cursor=N(name="s")),),
         [told])
        for ledger, told in ((-1, "lists no ledger"), (0, "is empty and ends at 0:-1"))],
}
# fmt: on
"""By rule: facts at its bounds, and the severity of what it finds (None: its own), or words of it."""


@pytest.mark.parametrize("place", JUDGED)
def test_a_rule_at_its_bounds(place: str) -> None:
    for given, expected in JUDGED[place]:
        found = _called(f"store.rules.{place}", given)
        told = [found] if isinstance(found, str) else list(found)
        assert len(told) == len(expected), (given, told)
        for one, wanted in zip(told, expected, strict=True):
            is_severity = wanted is None or isinstance(wanted, Severity)
            assert one.severity is wanted if is_severity else wanted in str(one), given


def _sealed_row(*fields: Any) -> dict[str, bytes]:
    return {"key": b"k", "value": _sealed(b"k", *fields)}


def _raise(error: Exception) -> None:
    raise error


def _segment(segment_id: int, start: int, end: int, **more: Any) -> SimpleNamespace:
    ids = {"parents": (), "children": (), "is_active": True, "topic": segment_id}
    return N(segment_id=segment_id, start=start, end=end, **(ids | more))


def _offload_index(count: int, *blocks: tuple[int, int, int]) -> bytes:
    """Return the index of a data object of 5 bytes that says it has so many blocks."""
    metadata = LedgerMetadataFormat(
        quorumSize=1, ensembleSize=1, ackQuorumSize=1, length=0, state="OPEN", lastEntryId=-1
    )
    metadata.segment.add(ensembleMember=["a:1"], firstEntryId=0)
    body = metadata.SerializeToString()
    rows = b"".join(struct.pack(">qiq", *block) for block in blocks)
    size = offload._INDEX_HEAD.size + len(body) + len(rows)
    head = offload._INDEX_HEAD.pack(offload.INDEX_MAGIC, size, 5, offload._BLOCK_HEAD.size, count, len(body))
    return head + body + rows


MAP_FILE = b"SEQ\x06" + b"".join(
    bytes([len(name)]) + name.encode() for name in (sequencefile._KEY, sequencefile._VALUE)
)
EVENT = {"domain": "x", "tenant": "a", "namespace": "b", "topic": "c"}
HASHES = {"segmentId": 0, "hashRange": {"start": 0, "end": 1}, "state": "ACTIVE"}
# fmt: off
REFUSED: dict[str, list[tuple[Any, str]]] = {
    "store.files:_entries": [((Path("none"),), "cannot read none: No such file")],
    "store.files:_open_to_copy": [((Path("none"),), "cannot read none: No such file")],
    "store.transfer.bundle:read_names": [((Path("/"),), "cannot read /: it is a directory")],
    "store.recovery.preflight:_Forecast._add_log": [  # BookKeeper's getUsage() < threshold: what it counts is the error's word
        ((N(_count=lambda *row: int(str(row))), N(bytes=np.array([total, 0]), size_bytes=7), live), counted)
        for total, live, counted in ((100, 0, "('at_once', 7)"), (100, 1, "('minor', 99)"), (100, 19, "('minor', 81)"),
                                     (100, 20, "('major', 80)"), (100, 49, "('major', 51)"), (100, 50, "('kept', 50)"),
                                     (0, 0, "('at_once', 7)"))],
    "store.codec.bookie:decode_cookie": [((b"3\nx", "c"), "lines of a cookie")],
    "store.codec.bookie:decode_last_mark": [((b"x", "m"), "last log mark")],
    "store.codec.buffer:Reader.varint": [((Reader(b"\xff" * 9 + b"\2", "v", EntryCorrupt),), "longer than 64 bits"),
        ((Reader(b"\xff" * 11, "v", EntryCorrupt),), "longer than 64 bits")],
    "store.codec.dbledger:decode_location_row": [((b"\xff" * 8 + bytes(8), bytes(8), "r"), "ledger, entry and log")],
    "store.codec.entrylog:_decode_map_batch": [((memoryview(bytes(64)), 0, "m", {}), "no ledgers map @ 0x0")],
    "store.codec.jute:read_text": [((Reader(b"\0\0\0\1\xff", "j", MetadataCorrupt),), "a path that is not UTF-8")],
    "store.codec.ledgerindex:decode_ledger_index_header": [
        ((b"BKLE" + struct.pack(">4i", 1, 0, 0, 8) + bytes(1024), "i"), "length of the explicit LAC")],
    "store.codec.ledgermetadata:_decode_text_v1": [((b"x", "m"), "version 1 text")],
    "store.codec.ledgermetadata:_check": [((N(ensemble_size=2, write_quorum=1, ack_quorum=1, length=0, last_entry_id=-1,
        segments=[N(members=("a",), first_entry_id=0)]), "m"), "members of each segment")],
    "store.codec.message:decode_message_id": [((b"\xff",), "no message id"), ((b"",), "no whole message id")],
    "store.codec.policyevent:_event": [(({"topicPoliciesEvent": None}, "e"), "names no topic"),
        (({"topicPoliciesEvent": EVENT}, "e"), "e: invalid topic domain")],
    "store.codec.protobuf:parse_text": [((MessageIdData, b"nonsense", "t"), "no MessageIdData"),
        ((MessageIdData, b"", "t"), "a required field is missing")],
    "store.codec.scalable:decode_scalable_topic": [((b'{"segments": []}', "s", A_TOPIC), "s: segments: expected an object"),
        ((b'{"properties": [1]}', "s", A_TOPIC), "properties: expected an object")],
    "store.codec.scalable:_segment": [(("1", HASHES, "s", A_TOPIC), "its id is 0"),
        (("1", [], "s", A_TOPIC), "segment 1: expected an object"),
        (("0", HASHES | {"entryBucketSplits": {"a": 1}}, "s", A_TOPIC), "entryBucketSplits of segment 0: expected a list"),
        (("0", HASHES | {"legacyTopicName": "topic://a/b/c"}, "s", A_TOPIC), "is no persistent topic")],
    "store.codec.scalable:_ids": [(({"parentIds": {"a": 1}}, "parentIds"), "parentIds: expected a list")],
    "store.codec.sequencefile:_inflated": [((memoryview(b"xx"), "f", 0), "zlib: "),
        ((memoryview(compress(b"a"))[:-1], "f", 0), "do not end with it")],
    "store.codec.sequencefile:_block": [((Reader(b"\0" + b"".join(bytes([len(part)]) + part
        for part in map(compress, (b"", b"", b"\1", b""))), "f", EntryLogCorrupt), "f", 0), "more than its records")],
    "store.codec.sequencefile:iter_map_file": [((MAP_FILE + b"\1\0\3lzo", "f"), "compressed with lzo"),
        ((b"SEQ\5", "f"), "version 6, found b'SEQ' version 5"), ((MAP_FILE + bytes(22) + b"\0\0\0\5\0\0\0\7", "f"), "a key of 7 bytes"),
        ((MAP_FILE + b"\0\1" + bytes(20) + b"\0\0\0\5", "f"), "no mark before a block")],
    "store.codec.strict_values:finite": [(("NaN",), "is not a number of JSON")],
    "store.codec.strict_values:json_value": [(("[" * 10**6,), "more than")],
    "store.codec.transactions:txn_of_key": [(("x", "t"), "expected COORDINATOR_NUMBER, found x")],
    "store.codec.transactions:decode_txn_header": [((b"{}", "t"), "no TxnHeader")],
    "store.codec.transactions:decode_txn_operation": [((b"{}", "t"), "no TxnOp")],
    "store.codec.wrapper:unwrap": [((b"\x47\x78" + b"\0\0\0\x63" + bytes(9), None, "w"), "compression header of 99 bytes")],
    "store.codec.zookeeper:iter_snappy": [((b"\0\0\0\1x", "z"), "no snappy stream")],
    "store.db.delayed_entries:_read_roaring": [((b"\0\0\1x", 1, "d"), "no RoaringBitmap")],
    "store.db.file:_check_metas": [
        (((N(transaction=2), N(transaction=0)), None), "one of its meta pages went back"),
        (((N(transaction=2, raw=b"a"), N(transaction=1, raw=b"b")),
        N(transaction=2, meta="62", change=1)), "is not the one that was committed")],
    "store.db.nacks:bucket_of_key": [((BUCKET + bytes(ID_SIZE_BYTES) + b"\xff" * 16,), "beyond 63 bits")],
    "store.db.nacks:bucket_row_entries": [((b"k", b""), "0 bytes")],
    "store.db.nacks:decode_tracker_row": [(_sealed_row((0, 2, 0), b"\xff\xfe"), "6b is damaged: 'utf-8' codec"),
        (_sealed_row((0, 3, 0), b"ab"), "do not fit its key")],
    "arguments:time_ms_of": [((timedelta(-1), 0), "is an age, and negative"), ((datetime(2026, 1, 1), 0), "has no time zone")],
    "store.scan.messages:match_of": [(({name: []},), f"{name} is empty") for name in ("keys", "properties", "texts", "json_paths")],
    "store.changes.plan:decode_argument": [((1.5,), "no method takes a fraction")],
    "api.plan:_tuple": [(([],), "expected a tuple")],
    "api.plan:Request.as_json": [((N(of=int),), "a int")],
    "config:check_path": [(("s3://a/b",), "is a URL")],
    "config:_plain": [(("f", "x", value), f"sets x to {kind}") for value, kind in (({}, "a table"), ([], "a list"), (1.5, "a fraction"))],
    "config:_flag": [(("x", "maybe"), "x is 'maybe'")],
    "config:_pairs": [((("a=b", "c"),), "is not a pair")],
    "store.changes.resets:_row": [(([], "f", None, int), "not a JSON object"), (({"x": 1}, "f", None, int), "unknown key 'x'"),
        (({"topic": "a"}, "f", None, int), "are required strings"),
        (({"topic": "a", "time": 1, "exclude": 1}, "f", "s", int), "exclude is true or false")],
    "store.changes.resets:_target": [(({"toSubscription": 1}, False, int), "toSubscription must be a string")],
    "store.changes.resets:_position": [((1,), "messageId is")],
    "store.changes.resets:_time": [(([], int), "time is epoch milliseconds")],
    "store.changes.resources:plan_set_rack": [((None, "b:1", "g", {"rack": rack}, 0), text) for rack, text in (
        ("/", "rack name is invalid"), ("/a/b", "Bookie 'rack' parameter is invalid"))],
    "store.changes.resources:isolation_of": [(({"namespaces": ["a"], "primary": primary}, kind, {}, None), text)
        for primary, kind, text in (([""], "min_available", "unable to parse primary"), (["b"], "x", "policy type specified : x"),
        (["b"], "min_available", "policy params specified"))],
    "store.changes.resources:_choose_bundle": [((None, None, "a", "HOT"), "mutually exclusive")],
    "store.changes.subscriptions:check_new": [((N(name="", properties={}),), "needs a name"),
        ((N(name="__compaction", properties={}),), "the broker's own cursors"),
        ((N(name="pulsar.repl.x", properties={}),), "the broker's own cursors"),
        ((N(name="s", properties={"a": "", "#pulsar.internal.x": ""}),), "is the broker's own")],
    "store.db.audit_log:_decode_change": [((b"k", b"x"), "the audit record 6b is damaged")],
    "store.db.audit_log:_link_of": [((1, row), "the audit record of change 1 is damaged")
        for row in (b"x", compress(b"x"), compress(b"[]"))],
    "store.db.audit_log:_step_of": [((["nodes", "", None, None],), "a step without a key"),
        ((["x", "YQ==", None, None],), "in no database: 'x'")],
    "store.db.copies:decode_row": [((database, key, b"x"), f"the row {key.hex()} of {database} is damaged")
        for database, key in (("copies", b"x"), ("state", bytes(12)))],
    "store.db.files:iter_damage": [((N(items=lambda *of: [(b"k", b"x")]),), "the damage row 6b is damaged")],
    "store.db.ledger_ids:find_deleted": [((N(get=lambda *of, row=row: row),), "damaged") for row in (b"x", b'"ab"', b"[true]")],
    "store.db.owners:decode_owners": [((1, b"x"), "the owners row of ledger 1 is damaged")],
    "store.db.tree:_encoded": [(("\ud800",), "is not Unicode")],
    "store.model.resources:record_of": [((TenantInfo, {"adminRoles": 5}, "x"), "x is not as Pulsar stores it")],
    "store.recovery.preflight:parse_percent": [((text,), "is not a percentage from 0 to 100") for text in ("x", "-1", "101%")],
    "store.scan.following:_listed_at": [(("/a/x.log", 1), "neither as an entry log nor as a journal")],
    "store.tables.sql:_check_name": [(("a/b/c",), "no row has the topic 'a/b/c'")],
    "store.transfer.bundle:_create_stand_in": [((Path(), N(size_bytes=-1)), "a file of less than 0 bytes")],
    "store.changes.resets:iter_reset_rows": [((["", "x"], "f", None, int), "f line 2: "), (([""], "f", None, int), "no change in f")],
    "store.scan.following:Progress.decode": [(({"version": 0},), "has an offset of version 0")],
    "store.tables.folder:_part_of": [(({"path": path}, "t"), "t.path: expected a file of this directory")
        for path in ("/a", "a/../b", "s3://a/b")],
    "store.tables.folder:_typed": [((1, "t", str), "t: expected ")],
    "store.tables.making:run_pieces": [((N(engine=N(run=lambda *of: (), failed=[N(out_of_memory=is_full, reason=reason,
        piece=N(path="p"), error=lambda: N(message="it failed"))])), None, (), None), said) for is_full, reason, said in (
        (True, "it does not see p", "it failed"), (False, "it does not see p", "it does not see p"), (False, "", "it failed"))],
    "store.tables.rows:cluster_name": [((None, ""), "'' is no name of a cluster"), ((None, "\ud800"), "is no name of a cluster")],
    "store.changes.bookies:plan_rename": [((None, "a:1", "b c", 0), "'b c' is not the id of a bookie")],
    "store.changes.deleting:_terminal_position": [((N(ledgers=(), name=A_TOPIC),), "has no ledger yet")],
    "store.changes.resources:plan_set_setting": [((None, "maxTenants", "", 0), "the value is empty"),
        ((None, "loadManagerClassName", "x", 0), "Invalid dynamic-config value"), ((None, "x", "1", 0), "non-dynamic configuration")],
    "upstream:parse_pairs": [(([pair],), f"Invalid key value pair '{pair}'") for pair in ("a", "=b")],
    "store.changes.schemas:_check_definition": [
        ((N(type_name="INT32", definition=b"x"),), "Invalid schema definition data for int32 schema : 'x'")],
    "store.changes.plan:read_plan": [((Path("/"),), "/ cannot be read")],
    "store.db.export_intent:find_intent": [((N(get=lambda *of: b"x"),), "what an export meant to write is damaged")],
    "store.files:open_lock_file": [((Path("/"),), "it is a directory")],
    "store.model.copy_age:find_as_of": [((N(get=lambda *of: b"x y", store=N(path=Path("p"))),), "the row of the copy's time is damaged")],
    "store.sources.ensemble:read_client": [((Path("/nowhere"),), "/nowhere cannot be read")],
    "store.doctor.since:_finding_of": [(({"change": "new"},), "it was made with --since")],
    "store.model.schemas:parse_path_test": [(("x",), "x"), (("x.a == 3",), "x.a == 3"), (("$.a ~ 3",), "$.a ~ 3")],
    "store.nacks.buckets:iter_position_rows": [((['{"ledgerId": 1, "entryId": 1, ' + more], "f", A_TOPIC), text) for more, text in (
        ('"topic": "a/b/d"}', "it belongs to topic a/b/d"), ('"chunks": {}}', "chunks must be a list"),
        ('"chunks": [1]}', "a chunk is a position"), ('"delay": []}', "delay is a duration"))],
    "store.nacks.segments:_verify": [((N(precision_bits=0, buckets=np.array(buckets), ledgers=np.array([0, 0]), lengths=np.array([0, 0]),
        bitmaps=b""),), text) for buckets, text in (([-1, 0], "a negative number"), ([2, 1], "not in order"), ([1, 1], "not in order"))],
    "store.nacks.segments:check_column": [(("x", [1.5]), "is not a column"), (("x", [[1], [1, 2]]), "invalid x: setting an array element")],
    "store.nacks.segments:add_times": [((np.arange(2), np.arange(3)), "columns of different lengths")],
    "store.nacks.tracker:NegativeAcksTracker.add_many": [({"self": NegativeAcksTracker(), "ledger_ids": [1], "entry_ids": [1, 2],
        "delays_ms": 1, "now_ms": 1}, "columns of different lengths")],
    "store.names:parse_topic": [(("non-persistent://a/b/c",), "it has no data on disk")],
    "store.names:parse_scalable": [(("segment://a/b/c/0000-ffff-0",), "is a segment")],
    "store.names:parse_topics": [((["a"], "b"), "not both")],
    "store.policies.offload:check_offload": [((N(group=TOPIC_POLICIES), {"managedLedgerOffloadReadBufferSizeInBytes": 0}, {}),
        "readBufferSizeInBytes cannot be less than or equal to 0!")],
    "store.reports.scalable:_rates": [((N(path="p", value=b'{"msgRateIn": "1"}'),), "msgRateIn: expected a number, found a text")],
    "store.scan.source_options:_paths": [(("x",), "no JSON list of texts"), (("[1]",), "no JSON list of texts")],
    "store.scan.source_options:_count": [(("0",), "no number from 1 on")],
    "store.scan.source_options:_trigger_bytes": [(("0",), "no size from 1 on")],
    "store.scan.source_options:_offsets": [(({}, "latest", "Latest"), "can't be latest"),
        (({}, "earliest", '{"a/b/c": "-1:-1"}'), "can't be earliest for a topic")],
    "store.scan.source_options:_message_id": [((value,), "has no message id ") for value in (5, {}, "a", ["a"])],
    "store.scan.source_options:read_connector_options": [
        (({"pulsar.reader.readCompacted": "true"}, {}), "compacted views are not read here")],
    "store.scan.source_options:_topics": [(({"topic": "", "topics": "", "topicsPattern": ""},), "none is given"),
        (({"topic": "a", "topics": "b", "topicsPattern": ""},), "topic and topics are given"),
        (({"topic": "a,b", "topics": "", "topicsPattern": ""},), "names one topic")],
    "store.scan.source_options:_places": [(({"startingOffsets": 1, "startingTime": 2}, "starting"), "are both given")],
    "store.scan.source_options:pattern_topics": [(("(", []), "is not a regular expression")],
    "store.sources.ensemble:read_client_secret": [((Path("/nowhere"),), "no password can be read from it")],
    "store.timespec:parse_time": [({"text": text, "now_ms": 0}, said) for text, said in (("10000-01-01", "beyond the year 9999"),
        ("2026-13-01T00:00:00Z", "month must be in"), ("today 25:00", "hour must be in"))],
    "store.timespec:_in_range": [((10**15, "x"), "beyond the year 9999")],
    "store.codec.bookie:_decode_dirs": [(("3\ta", "c"), "expected 3 of them")],
    "store.codec.offload:decode_offload_index": [
        ((offload._INDEX_HEAD.pack(offload.INDEX_V2_MAGIC, 32, 0, 28, 1, 0), "o"), "an index of streaming offload"),
        ((_offload_index(1, (0, 0, 0), (1, 0, 3)), "o"), "1 blocks do not fill"),
        ((_offload_index(1, (1, 0, 0)), "o"), "do not follow each other"),
        ((_offload_index(1, (0, 0, 5)), "o"), "do not follow each other"),
        ((_offload_index(2, (0, 0, 0), (0, 1, 1)), "o"), "do not follow each other")],
    "store.codec.offload:iter_block_entries": [
        ((offload._BLOCK_HEAD.pack(offload.BLOCK_MAGIC, 28, 40, 3) + offload._ENTRY_HEAD.pack(size, entry_id), 3, "o"), said)
        for size, entry_id, said in ((0, 4, "o + 0x1c: expected entry 3, found one of id 4"), (1, 3, "found one of id 3 and 1 bytes"))],
    "store.codec.policyevent:encode_policy_event": [
        ((PolicyEvent(A_TOPIC, "INSERT", {}), AvroSchema(b'"int"')), "does not fit the schema of __change_events")],
    "store.db.blocks:block_of_key": [((b"x",), "a key of 1 bytes: 78")],
    "store.db.file:_decode_meta": [((lmdb_file._PAGE_HEADER.pack(0, 0, 8, 0, 0) + lmdb_file._META_HEAD.pack(0xBEEFC0DE, 1, 0, 0)
        + lmdb_file._DATABASE.pack(7, *[0] * 7) + bytes(64), 0), "page 0: a page size of 7 bytes")],
    "store.db.file:_Walk.run": [((N(_meta=N(free=0, main=0, transaction=2), _rows=lambda *_, rows=rows: rows, _mark=id, _seen=""),), said)
        for rows, said in (([(bytes(8), b"x")], "a key of 8 and a value of 1 bytes"), ([(b"\3" + bytes(7), bytes(8))],
        "newest free pages are of transaction 3, its state is of 2"), ([(bytes(8), struct.pack("<QQ", 5, 3))],
        "a row of 1 free pages claims 5"))] + [
        ((N(_meta=N(free=0, main=1, transaction=0), _rows=lambda name, _: [(b"x", b"y")] if name == "databases" else []),),
        "the database 'x' is described in 1 bytes")],
    "store.db.environment:Store.write": [((N(writable=False, path="p"), None), "p was opened for reading")],
    "store.db.entry_files:EntryFiles.read": [
        ((N(_opened=lambda _: (-1, N(path="p"))), 0, 16, 4), "p @ 0x10: the disk cannot read it: Bad file descriptor"),
        ((None, 0, 16, 2**31), "the index claims a record of 2147483648 bytes")],
    "store.disks.live_records:_read": [((N(name="f", fileno=partial(os.open, os.devnull, os.O_RDONLY)), 0, 4),
        "f @ 0x0: wanted 4 bytes, got 0")],
    "store.scan.operations:PlainFiles.read": [((PlainFiles({0: "/nowhere"}), 0, 0, 1), "/nowhere is gone"),
        ((PlainFiles({0: __file__}), 0, 2**40, 4), ".py @ 0x10000000000: expected 4 bytes, found 0")],
    "store.scan.operations:PlainFiles.read_into": [((PlainFiles({0: "/nowhere"}), memoryview(bytearray(4)), 0, 0), "/nowhere is gone"),
        ((PlainFiles({0: __file__}), memoryview(bytearray(4)), 0, 2**40), "expected 4 bytes, found 0")],
    "store.scan.topic_reads:_PlacedReader._group_of": [((N(_groups=[PLACES]), 9, 0), "entry 9:0 is not among those of its topic")],
    "store.scan.topic_reads:ReadTopicPieces._check": [((N(fail=True), N(unfinished=None, errors=[EntryCorrupt("damaged")])), "damaged"),
        ((N(fail=True), N(unfinished="x", errors=[])), "x belongs to a transaction that may end in another task")],
    "store.scan.unindexed:find_unindexed": [((N(run=lambda *_: (), failed=[N(error=lambda: EntryCorrupt("it failed"))], memory_bytes=1),
        N(items=lambda *_: (), store=N(path=Path())), None, (), 0, "auto"), "it failed")],
    "store.sources.ensemble:Session.data": [((N(address="z:1"), "/x", Failed(-5)), "z:1: /x cannot be read (error -5)"),
        ((N(address="z:1"), "/x", Failed(NO_AUTH)), "z:1: this user may not read /x")],
    "store.sources.ensemble:_committed": [((N(address="z:1", answer=lambda _: [KeyError()]), N(commit_async=lambda: 0)),
        "gives no ids (KeyError)")],
    "store.sources.ensemble:Transaction.commit": [((N(_session=N(address="z:1", answer=lambda _: [NoAuthError()]),
        _request=N(commit_async=lambda: 0), _writes=[N(path="/x")]),), "z:1: this user may not write /x")],
    "store.sources.ensemble:Session.told": [
        ((N(address="z:1", _explained=partial(Session._explained, N(address="z:1"))), partial(_raise, error)), said) for error, said in (
        (AuthFailedError(), "does not let this user read every node (AuthFailedError)"), (UnimplementedError(), "3.6 or newer is needed"),
        (OSError("x"), "the connection was lost (OSError: x)"))],
    "store.tables.sql:Database.split": [((None, "\udcff"), "the statement is not UTF-8")],
    "store.transfer.fetching:_check_keeps_no_secret": [((url,), "has a password, and a store keeps the URLs") for url in (
        "s3://u:p@b/x", "s3://b/x?secret_key=y")],
    "store.transfer.offloads:_in_order": [((iter([(0, b""), (2, b"")]), "o"), "o: expected entry 1, found 2")],
    "store.transfer.offloads:_open_ledger": [((N(size=lambda _: 1, read=lambda *_: MAP_FILE + bytes(22)),
        N(index_path="", data_path="d")), "d: the ledger's metadata is not its first record")],
    "store.urls:_explained": [(("s3://b", text), said) for text, said in (("Unrecognized filesystem type in URI: s3://b",
        "there is no file system s3://"),
        ("Unable to load libhdfs", "needs Hadoop's native client"), ("x", "s3://b cannot be read: x"))],
    "jsonify:_fields": [((Plan,), "a Plan is not an answer")],
    "jsonify:to_json": [((object.__new__(Cursors),), "a Cursors is not an answer")],
    "store.db.blocks:Block": [((bytes(16), bytes(3)), "block 0 of ledger 0 is damaged: 3 bytes"),
        ((bytes(16), BLOCK_HEADER.pack(2, *[0] * 13, BLOCK_ENTRIES - 1) + bytes(16)), f"slots {BLOCK_ENTRIES - 1} to")],
    "store.db.file:_Walk._rows": [({"self": N(_meta=N(free=None)), "name": "x", "database": (0, 0, 0, 0, 0, 0, 5, 2**64 - 1)},
        "x: no root, and 5 rows"),
        ((N(_meta=N(free=None), _mark=id, _read=id, _read_page=lambda *_, **__: ([], [])), "x", (0, 0, 1, 0, 0, 0, 7, 5)),
        "x: expected 0 branch pages, 0 leaf pages and 7 rows, found 0, 1 and 0"),
        ((N(_meta=N(free=None), _mark=id, _read=id, _read_page=lambda *_, **__: ([(6, b"")], [])), "x", (0, 0, 1, 0, 0, 0, 0, 5)),
        "x, page 5: deeper than 1 levels")],
    "store.db.file:_Walk._read": [((N(_page_bytes=64, _descriptor=DEV_NULL), 7), "it ends in page 7")],
    "store.db.file:_Walk._overflow": [({"self": N(_pages=3, _page_bytes=64), "name": "x", "data": struct.pack("<Q", 9), "size_bytes": 1,
        "read": True},
        "x: a value lies in page 9, the file has 3 pages")],
    "store.db.file:_Walk._read_page": [({"self": N(_page_bytes=64), "name": "x", "page": struct.pack("<QHHHHH", 1, 0, 2, 18, 40,
        40).ljust(40, b"\0")
        + struct.pack("<HHHH", size, 0, flags, 1).ljust(24, b"\0"), "number": 1, "is_leaf": True}, said) for size, flags, said in (
        (0, 8, "x, page 1: a row with flags 0x8 and a key of 1 bytes"), (100, 0, "x, page 1: a row that ends at 149"))],
    "store.db.nacks:decode_bucket_row": [(_sealed_row((0, 0, 1), b"x"), "6b is damaged: "),
        (_sealed_row((0, 0, 2), BitMap64([1]).serialize()), "1 entries, 2 expected")],
    "store.dump.source:_rows_of": [((pa.RecordBatch.from_pydict({"ledgerId": [1], "entryId": [None], "payload": [b"x"]}), "p"),
        "a position, payload or digest is null")],
    "store.recovery.ack_history:_move": [((None, N(name=A_TOPIC), N(name="s", topic=A_TOPIC), N(at="x",
        past=N(states=lambda *_: [N(name="x", state=None, problem="")]))), "x is not a state: s was deleted then")],
    "store.recovery.ack_history:_chosen": [((N(name="s", topic=A_TOPIC), N(most=SAME, least=SAME, last=N(name="x", not_after=None),
        states=[],
        text=lambda: "x", was_there_by=lambda _: False, unknown=[N(name="y")]), 0, "refuse"), said) for said in (
        ", or earlier: the time of the first state is unknown", "; of y it is unknown what was acknowledged")],
    "store.recovery.from_bookies:plan_from_bookies": [((N(reader=N(txn=None), cluster=""), N(evidence={})),
        "the name of the cluster is in no entry")],
    "store.recovery.restore:RestoreAt.__post_init__": [((N(to="x", asked=N(in_place=True)),), "to names the restored topic")],
    "store.recovery.restore:RestoreDeleted.__post_init__": [
        ((N(to="x", asked=N(in_place=False), namespaces=(), topics=()),), "the name x is for a single restored topic")],
    "store.sources.index_places:_iter_range": [((N(items=lambda **_: iter([(b"x", b"y")])), b"", b""), "rows of another form"),
        ((N(items=lambda **_: iter(()), iter=lambda: N(seek_for_prev=id, valid=lambda: True, status=int, key=lambda: b"k")), b"", b""),
        "a block cannot be read")],
    "store.changes.ledger_metadata:find_ensembles": [((7, {}, -1, None), "ledger 7 is empty"),
        ((7, {"a": np.arange(2), "b": np.arange(1)}, 1, None), "entry 1 is on a alone, others on 2 bookies")],
    "store.tables.sql:_raise": [((duckdb.OutOfMemoryException("full"),), "full"), ((duckdb.PermissionException("no"),),
        "a statement here reads no files"),
        ((duckdb.InternalException("x"),), "failed: x"), ((duckdb.IOException("disk"),), "disk")],
    "store.scan.following:Follower.owner": [((N(_owners={"a": "a"}, owner=lambda one: one.folder), N(folder="a", path="a/1.txn",
        kind=FileKind.JOURNAL),
        [N(folder="b", kind=FileKind.ENTRY_LOG), N(folder="c", kind=FileKind.ENTRY_LOG)]), "nothing says whose journal a/1.txn is")],
    "store.model.messages:MessageReader._join_chunk": [((N(_chunks={}, _joined={}, options=N(whole=True)), N(metadata=N(chunk_id=1,
        uuid="u")),
        Position(1, 2)), "entry 1:2: chunk 1 of u without the ones before it")],
}
# fmt: on
"""By function: what it refuses, and a part of what it says then."""


def _refusal(place: str, given: Any) -> str:
    try:
        return f"no refusal: {_called(place, given)}"
    except (StoreError, ValueError) as error:
        return str(error)


def test_what_is_refused_says_why() -> None:
    asked = [(place, given, text) for place, rows in REFUSED.items() for given, text in rows]
    assert [(place, text, said) for place, given, text in asked if text not in (said := _refusal(place, given))] == []


A, B, C = (parse_topic(f"a/b/{name}") for name in "abc")


# fmt: off
SAID: dict[str, list[tuple[Any, str]]] = {
    "commands.overview:_oldest": [((N(oldest_age_ms=None),), "unreadable")],
    "commands.topics.printout:value_line": [(((None, "it is cut"),), "Value: not decoded: it is cut\n")],
    "columns:_number_text": [((1.5, "duration", False), "1.5ms")],
    "columns:words_of": [(({},), "none"), (([],), "none"), (({"a": [1, 2], "b": {}},), "a 1, 2, b none")],
    "cures:look_first": [(("pulsar-admin store check 'x",), ""), (("pulsar-admin no such",), "")],
    "store.changes.resets:_ledgers_text": [((N(ids=[]), Position(1, 2)), "it has no ledgers")],
    "store.compaction.occurrences:_judged": [(([N(slot=None, position=Position(1, 2, 0), publish_ms=0, size=0, null=False, in_view=False)],
        None), "of a transaction that was")],
    "store.compaction.status:_cursor_problems": [((TOPIC, N(source=CursorSource.LEDGER, skipped_entries=2, state=CursorState(EARLIEST,
        ranges=((1, 2),)),
        info=CursorInfo(7, Position(1, 2)))), said) for said in ("2 newer states of __compaction", "has individually deleted entries")],
    "store.engine.operation:FailedSlice.error": [((N(piece=N(path="p", start=0, end=9), reason="it is full", out_of_memory=True),),
        "p, bytes 0 to 9 needs more memory: it is full")],
    "store.facts.starts:_why_closed": [((Path("/nowhere"),), "")],
    "store.history.words:_entry_words": [((LedgerInfo(1, 2, 3, 4, **was), LedgerInfo(1, 2, 3, 4, **then)), said) for was, then, said in (
        ({}, {"offloaded": True}, "ledger 1 offloaded"), ({"offloaded": True}, {}, "ledger 1 no longer offloaded"),
        ({}, {"offload_uuid": "x"}, "ledger 1: offload started'"), ({"offload_uuid": "x"}, {"offload_uuid": "y"}, "offload started again"),
        ({}, {"bookkeeper_deleted": True}, "deleted from bookies, tiered storage has it"), ({"bookkeeper_deleted": True}, {},
        "on bookies again"))],
    "store.history.events:Event.what.fget": [((N(version=N(kind="set", path="/admin/x", value=b"1"), before=None),),
        "the previous one is unknown")],
    "store.model.nodes:_look": [(("/managed-ledgers/a/b/other/c", b"\xff"), "its form")],
    "store.rules.index:_check_block": [((0, N(ledger_id=7, header=N(first_slot=0, messages=2, payload_bytes=0, digest_bytes=0),
        slots=lambda: [0, 0], message_counts=lambda: [1, 1], sizes=lambda: np.array([32, 32]), files=lambda: 3,
        offsets=lambda: np.array([0, 0])), {}), said) for said in ("its entries are not in ascending order",
        "it points to file 3, which is not catalogued")],
    "store.rules.starts:_older_snapshot": [((N(values={"base": 16, "first": None, "names": ["snapshot.20"]}),),
        "snapshot.20 cannot be read: a server starts from snapshot.10 and forgets everything after it")],
    "store.rules.subscriptions:_says": [((N(marker="TXN_COMMIT", publish_ms=0), 0), "a marker, TXN_COMMIT, of 1970-01-01")],
    "store.rules.subscriptions:_ttl_unknown": [((N(of=N(message_ttl=None), pending=((0, 1),), overdue=Unknown("it is damaged"),
        future_dated=None, ttl_conflict=None),), "The effect of the TTL is unknown: it is damaged.")],
    "store.rules.subscriptions:_ranges_limit": [((N(cursor=N(name="s", state=N(ranges=range(10_000)))),), "s stores 10,000 ranges")],
    "store.rules.subscriptions:quota_effect": [((N(slowest=slowest, quota=N(policy="x"), evicts=True), N(is_deduplicated=True)), said)
        for slowest, said in (("__compaction", "drops the compacted view"), ("pulsar.repl.eu", "that cluster eu has not received"),
        ("pulsar.dedup", "forgets the sequence ids"), ("s", "drops the oldest messages"))],
    "store.search.explain:_why": [((None, 0, "auto", None, N(forgotten=7), None), "drops ledger 7: BookKeeper has no metadata"),
        ((None, 0, "auto", None, N(forgotten=None, used_compacted_ledger=8), None), "asks the compacted ledger 8, by publish time")],
    "store.sources.journals:_fault": [((body, 1 if "version" in said else 6, {0: b"a"}), said) for body, said in ((bytes(3),
        "a record of 3 bytes"),
        (struct.pack(">qq", 0, 0), "an entry of 16 bytes"), (struct.pack(">qq", 0, -0x2000), "in a journal of version 1"),
        (struct.pack(">qqi", 0, -0x1000, 5), "5 bytes in record -0x1000"), (struct.pack(">qqi", 0, -0x8000, 0),
        "an explicit LAC of 0 bytes"),
        (struct.pack(">qqi", 0, -0x1000, 1) + b"b", "another master key of ledger 0"))],
    "store.timespec:old_text": [((59_999,), "less than a minute old"), ((7_200_000,), "2 hours old")],
    "store.transfer.ensemble_export:_broker": [((N(value=b"x", path="/x"),), "of an owner that cannot be read"),
        ((N(value=b'{"httpUrl":"http://b"}', path="/x"),), "http://b"), ((N(value=b"{}", path="/x"),), "of an owner without an address"),
        ((N(value=b'{"nativeUrl":null,"nativeUrlTls":"pulsar+ssl://b"}', path="/x"),), "pulsar+ssl://b")],
    "store.transfer.ensemble_export:_explained": [((N(address="z:1"), N(holds=["/h"]), N(write=N(path=path), reason=reason)), said)
        for path, reason, said in (("/h", "", "/h was made meanwhile: a broker became the owner"), ("/x", "NotEmpty", "it has child nodes"),
        ("/x", "NoNode", "the ensemble says NoNode"))],
    "store.facts.starts:_replay": [((b"x" * 16,), "no header of a log, but b'xxxx'")],
    "store.recovery.ack_history:_move": [((None, N(name=A_TOPIC, ids=[5]), N(name="s", topic=A_TOPIC), N(at="x", force=False,
        past=N(states=lambda *_: [N(name="x", state=CursorState(Position(1, 2)), problem="")]))),
        "before ledger 5 is trimmed: it is not redelivered")],
    "store.sources.nodes:no_cluster": [(("m", ["x"]), "nothing of a cluster can be read: x"), (("m", []),
        "m has no metadata of Pulsar or BookKeeper")],
    "commands.nacks:_about": [((N(entries=5, entries_per_second=rate, batch_size=1, holes=holes, nacked_share=0.5),), said) for rate,
        holes, said in (
        (None, 0, "the topic: 5 entries, at one time, 1 message each; no holes taken"), (2.0, 2,
        "2 a second, 1 message each; 2 holes, 50.0% of"))],
    "commands.store.recover:_topic_lines": [((N(topics=[N(topic="t", ledgers=1, bytes=2)] * 30, topic_count=99),), said) for said in (
        "deleted ledgers, by 99 topics or cursors in the metadata:", "  t: 1 ledger, 2 B", "'  …'")],
    "commands.topics.ack_history:_plot": [(([],), "No state exists."),
        (([{"gaps": 1, "state": "x", "notBeforeTime": None, "backlogEntries": 5}],), "entries left, by state")],
    "store.dump.find_by_time:gaps_before": [((N(exact=False, doubts=(), unreadable=2, topic="t"),),
        "t: an earlier answer could be among 2 damaged entries that cannot be read")],
    "store.rules.scalable:_relations": [((N(scalable_topics=[N(name="t", record=N(next_segment_id=1, segments=[_segment(1, 0, 4,
        parents=[5],
        children=[6])]))]),), "; 3 more relations like that")],
    "store.rules.topics:_over_quota": [((N(quotas=(N(is_reached=True, slowest="s", quota=N(policy="x", limit_size_bytes=1,
        limit_time_seconds=1),
        closed_ms=1, used=5000, limit=1000, evicts=True, source="topic", kind="k"),), backlog_size_bytes=lambda _: 1, where="t",
        topic=N(name="t"),
        is_deduplicated=None),), "its oldest ledger with a backlog was closed 5s ago, 1s allowed: a broker drops the oldest messages")],
    "commands.compaction.checking:_render": [(({"topic": "t", "compacted": True, "compactedLedger": 1, "entries": 1, "messages": 1,
        "topicEntries": 1,
        "problems": 0, "findings": [], "lostEntries": 2},), "2 entries of the topic cannot be read: problems may be due to that")],
    "commands.store.bookie_disks:_render": [((N(bookie="b", directories=[], journals=N(files=1, replayed_entries=2, missing=["x"],
        unsure=3, stops=[]),
        cookies=["c"], maps=["m"], kept=kept, needed=needed, dry_run=True),), said) for kept, needed, said in (
        ([], True, "3 ledgers on this bookie that nobody closed may lack their last entries"), (["k"], False,
        "the salvage that was stopped is done"),
        ([], False, "nothing is wrong, nothing was written"), ([], True, "dry run, nothing was written"))],
    "commands.store.recover:_broker_lines": [((N(topics=1, bytes=2, inactive=NO_PART, trimmed=NO_PART, expired=NO_PART, expires=0,
        unread_cursors=2,
        rows=[N(topic="t", inactive=True, after_seconds=5, lost_bytes=9)] * 30),), said) for said in ("delete for inactivity: nothing",
        "2 cursors assumed to be at the position", "t: deleted after 5 s, 9 B", "'  …'")],
    "store.recovery.ledgers:_deleted_warnings": [(((), unknown), said) for unknown, said in (([5],
        "1 ledger that has entries here is not in the"),
        ([5, 6], "2 ledgers that have entries here are not in the history or have lost entry 0: 5"))],
    "store.recovery.rolling:_topic_part": [((N(), N(ids=[1], number_of_entries=1, name="t"), N(ids=[1], number_of_entries=1), [], {5, 6}),
        "deleted since, as no bookie has them: ledgers 5")],
}
# fmt: on
"""By function: what it is given, and a part of what it says then."""


def test_what_is_found_is_said() -> None:
    asked = [(place, given, text) for place, rows in SAID.items() for given, text in rows]
    told = [(place, text, str(to_builtins(_called(place, given), enc_hook=str))) for place, given, text in asked]
    assert [(place, text, said) for place, text, said in told if text not in said] == []


@pytest.mark.parametrize(
    ("place", "content", "text"),
    [
        ("config:_file_values", None, "cannot read "),
        ("config:_file_values", b'colour = "x"', " sets unknown colour"),
        ("config:_file_values", b'store = "a\\u0000"', "store holds a zero byte"),
        ("store.changes.plan:read_plan", None, "no plan "),
        ("store.codec.properties:read_properties", b"\xff", "is not UTF-8"),
        ("store.doctor.since:read_saved", b"\xff", "is no list of findings"),
        ("store.doctor.since:read_saved", b"x", "is no list of findings"),
        ("store.doctor.since:read_saved", b"[[]]", "an entry is [], not an object"),
        ("store.doctor.since:read_saved", b"{}", "'code' is missing"),
        ("store.scan.ledgers_map:read_head", None, "cannot be read"),
    ],
)
def test_a_file_of_something_else_is_refused(
    place: str, content: bytes | None, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    if content is not None:
        file.write_bytes(content)
    monkeypatch.setenv("PULSAR_ADMIN_CONFIG", str(file))
    given = {"config:_file_values": (), "store.codec.properties:read_properties": (file, "hint")}.get(place, (file,))
    assert text in _refusal(place, given)


def test_disks_that_are_wrong_in_one_way(tmp_path: Path) -> None:
    (tmp_path / "7ffffffe.log").touch()
    (tmp_path / "empty.json").touch()
    for call, text in (
        (partial(reclaim.next_log_id, tmp_path), "the ids of entry logs are used up"),
        (partial(reclaim.check_scratch, tmp_path, N(ledger_dirs=[tmp_path])), "frees nothing"),
        (partial(reclaim.check_scratch, tmp_path / "none", N(ledger_dirs=[])), "is not a directory"),
        (lambda: [*_iter_files({tmp_path / "empty.json": 2}, 1)], "it has 0 rows, its manifest says 2"),
    ):
        with pytest.raises(StoreError, match=text):
            call()
    log, header = tmp_path / "0.log", entrylog.encode_header(entrylog.EntryLogHeader(1, 1024, 1))
    for data, problems, said in (
        (b"x" * 2000, 0, "unknown: the header cannot be read"),
        (header + b"x" * 99, 1, "no ledgers map @ 0x400"),
    ):
        log.write_bytes(data)
        _verify_map(log, verdict := LogVerdict("0.log", "entry-log"), {})
        assert (verdict.problems, said in verdict.map, ledgers_map._ledgers_of(str(log))) == (problems, True, None)
    log.write_bytes(entrylog.encode_header(entrylog.EntryLogHeader(1, 0, 0)))
    unread: list[str] = []
    (found,) = iter_log_ledgers(N(logs=lambda: [tmp_path / "none.log", log]), unread)
    assert (found.path, len(unread)) == (log, 1)


def test_numbers_that_java_does_not_read() -> None:
    namespace = NamespaceName("a", "b")
    assert parse_bundle(namespace, "0x00000000_0x40000000").upper == 0x40000000
    for text in ("٠_0x40000000", "0x_1", "0xg_0x40000000"):
        with pytest.raises(InvalidValue):
            parse_bundle(namespace, text)


def _within(context: Any, error: Exception) -> None:
    with context:
        raise error


def test_stores_that_are_wrong_in_one_way(tmp_path: Path) -> None:
    (tmp_path / "newer").mkdir()
    (tmp_path / "newer" / "store.json").write_text(
        '{"formatVersion": 99, "created": 0, "state": "ready", "sources": []}'
    )
    (tmp_path / "short").write_bytes((narrow() / "meta" / "data.mdb").read_bytes()[:4096])
    p, short = Path("p"), os.open(tmp_path / "short", os.O_RDONLY)
    failed = N(path=p, _failed=DiskFull("it is full"))
    with lmdb.open(str(tmp_path / "empty"), max_dbs=1) as env:
        for call, said in (
            (
                partial(Store._check_change, N(path=narrow(), _last_change=lambda: -1)),
                "lost changes: expected 0, found -1",
            ),
            (partial(Store._open_databases, N(path=p, writable=False), env), "p lacks the database"),
            (
                partial(_within, _translated(p), lmdb.Error("mdb_put: Permission denied")),
                "p/meta: mdb_put: Permission denied",
            ),
            (partial(_within, _translated(p), lmdb.ReadonlyError("x")), "p is open for reading only"),
            (partial(_within, _translated(p), lmdb.CorruptedError("x")), "p/meta: x"),
            (partial(_within, Store._translated_once(N(path=p, _failed=None)), lmdb.PanicError("x")), "p/meta: x"),
            (partial(_within, Store._translated_once(failed), lmdb.PanicError("x")), "it is full"),
            (
                partial(_within, writer_lock(Path("/dev/null/x/y")), OSError()),
                "cannot create a store at /dev/null/x/y: Not a",
            ),
            (partial(read_store_info, tmp_path / "newer"), "has store format 99, this toolkit knows up to 2"),
            (partial(lmdb_file._read_metas, short, 4096), "it ends in its second page: 4096 bytes"),
        ):
            with pytest.raises(StoreError, match=re.escape(said)):
                call()
    os.close(short)


def test_directories_that_are_something_else(tmp_path: Path) -> None:
    def made(**files: str) -> Path:
        folder = tmp_path / str(len([*tmp_path.iterdir()]))
        for name, text in files.items():
            (folder / name.replace("__", "/")).parent.mkdir(parents=True, exist_ok=True)
            (folder / name.replace("__", "/")).write_text(text)
        return folder

    log = made(log="x" * 1024 + "\0\0\0\x64" + "\0" * 16) / "log"
    with log.open("rb") as file:
        assert "is a record that is cut" in _problem(LocationRow(0, 0, 0, 1028), file)
    for found, said in (
        (_nearest_hint(made(**{"tables.json": ""})), "store import tables"),
        (_nearest_hint(made(x__metadata__CURRENT="")), "name one of the directories in it that are: x"),
        (str(read_log_summary(made(**{"0.log": ""}) / "0.log").header), "empty: preallocated"),
        (_why_closed(made(CURRENT="MANIFEST-1\n")), "MANIFEST-1, which CURRENT names, is gone"),
        (_why_closed(made(CURRENT="MANIFEST-1")), "CURRENT file does not end with newline"),
        (_why_closed(made(**{"7.log": ""})), "CURRENT is gone, and 7.log is there"),
        (_why_epochs_refused(made(currentEpoch="2", acceptedEpoch="1"), 0), "acceptedEpoch has 1, less than 2"),
        (_why_epochs_refused(made(currentEpoch="x"), 0), "currentEpoch has 'x', expected a number"),
        (_why_epochs_refused(made(currentEpoch="1"), 2 << 32), "currentEpoch has 1, and transaction 0x200000000 is of"),
    ):
        assert said in found


PLAIN_LINES = {
    "bookies delete-bookie-rack -b a:1": (5, "Bookie rack placement configuration not found: a:1"),
    "ledgers entries 9 --from 5 --to 3": (2, "first=5 is after last=3"),
    "ledgers restore --to-bookies 9": (3, "is served by the bookies that its metadata names"),
    "nacks add public/default/plain -s half 9:1": (2, "Missing option '--delay'"),
    "nacks add public/default/plain -s half --delay 1m": (2, "name positions, or give --from-file FILE, or --holes"),
    "nacks add public/default/plain -s half --delay 1m 9:1 --holes": (2, "name positions, or give --from-file FILE"),
    "nacks plan --rate 5 -s half": (2, "-s: name its topic with --topic"),
    "namespaces create public/é": (2, "Invalid named entity: é"),
    "namespaces get-topic-positions public/default": (2, "Must pass one of the params: --bundle "),
    "namespaces split-bundle public/default": (2, "Must pass one of the params: --bundle / --bundle-type"),
    "namespaces split-bundle public/default -b 0x00000000_0x40000000 -san x": (2, "Unsupported namespace bundle split"),
    "sql from+read_csv('/etc/passwd')": (3, "read_csv(…): a statement here reads no files and calls only duckdb_"),
    "sql \udcff": (2, "the statement is not UTF-8"),
    "bookkeeper ledgermetadata -l 9 -dumptofile FILE --dry-run": (
        2,
        "--dry-run: --dumptofile writes a file and has no",
    ),
    "doctor --html FILE --dry-run": (2, "--dry-run: --html writes a file and has no preview"),
    "metrics --out FILE --dry-run": (2, "--dry-run: --out writes a file and has no preview"),
    "store export tables DIR --dry-run": (2, "--dry-run: this command writes files and has no preview"),
    "store export tables DIR --plan FILE": (2, "--plan: the work of this command is not kept as a plan"),
    "store bundle DIR --dry-run": (2, "--dry-run: this command writes files and has no preview"),
    "topics create-subscription public/default/plain -s new -p =a": (2, "'=a' is not a KEY=VALUE"),
    "topics delete topic://public/default/none": (
        3,
        "delete it with its segments: pulsar-admin scalable-topics delete",
    ),
    "topics search public/default/plain --text zzz --uncommitted": (5, "look into other topics, or at other times"),
    "topics update-properties public/default/plain -p a": (2, "'a' is not key=value"),
}


def test_lines_that_ask_for_what_there_is_not(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with assert_unchanged(narrow() / "meta" / "data.mdb"):
        for line, (code, said) in PLAIN_LINES.items():
            cli("--store", narrow(), *(word.replace("+", " ") for word in line.split())).ends(code, said)
    assert [*tmp_path.iterdir()] == []


RACK, ISOLATION = (
    b'{"default":{"a:1":{"rack":"/r","hostname":"h"}},"g":{}}',
    b'{"p":{"namespaces":["x"],"primary":["b.*"]}}',
)
IN_PUBLIC = "/admin/policies/public/"
EVENTS_OF_PUBLIC = parse_topic(f"public/default/{EVENTS}").path
CHANGING: list[tuple[dict[str, bytes | Callable[[bytes], bytes] | None], str, int, str]] = [
    ({}, "store undo 1", 3, "change 1 (store add offload) wrote outside the store: it cannot be undone"),
    ({RACKS_PATH: RACK}, "bookies get-bookie-rack -b a:1", 0, '"hostname" : "h"'),
    ({}, "bookies delete-bookie-rack -b a:1", 0, "default.a:1.rack: /r -> none"),
    ({}, "bookies racks-placement", 0, "{ }"),
    ({isolation_path("standalone"): ISOLATION}, "ns-isolation-policy list standalone", 0, "primary=[b.*]"),
    ({}, "ns-isolation-policy get standalone p", 0, '"primary" : [ "b.*" ]'),
    ({}, "ns-isolation-policy broker standalone --broker b:1", 0, '"policyName" : "p"'),
    ({}, "ns-isolation-policy get standalone q", 5, "Cannot find NamespaceIsolationPolicy q"),
    ({}, "clusters delete standalone", 3, "Cluster not empty"),
    ({isolation_path("standalone"): b"{}"}, "clusters delete standalone", 0, "isolation policies of cluster standalone"),
    ({}, "store undo 3", 0, ""),
    ({resource_group_path("g"): b"{}", IN_PUBLIC + "x": b'{"resource_group_name":"g"}'}, "resourcegroups list", 0, "g"),
    ({}, "resourcegroups get g", 0, '"publishRateInMsgs" : -1'),
    ({}, "resourcegroups delete g", 3, "by public/x"),
    ({IN_PUBLIC + "x": b"{}"}, "resourcegroups delete g", 0, "delete resource group g"),
    ({}, "brokers update-dynamic-config --config maxTenants --value 3", 0, ""),
    ({}, "brokers get-all-dynamic-config", 0, "maxTenants    3"),
    ({IN_PUBLIC + "x": b'{"replication_clusters":["b"]}'}, "namespaces delete public/x", 3, "belongs to cluster b"),
    ({}, "namespaces create public/y", 0, ""),
    ({IN_PUBLIC + "y": b"{}"}, "store undo 7", 4, "something outside the audit log touched"),
    ({EVENTS_OF_PUBLIC: lambda raw: encode_managed_ledger(replace(decode_managed_ledger(raw, ""), terminated=EARLIEST))},
        "topics set-max-producers public/default/plain -p 3", 3, "__change_events is terminated: no policy can be added"),
    ({}, "topics create public/default/e", 0, ""),
    ({}, "nacks plan --topic public/default/e", 2, "has no entry with a time, so no rate can be computed"),
    ({}, "scalable-topics create public/default/s", 0, "with 1 segment(s)"),
    ({}, "scalable-topics create public/default/s", 3, "Scalable topic already exists: topic://public/default/s"),
    ({}, "scalable-topics revoke-permission public/default/s --role r", 0, "Revoked the permissions of role r on topic"),
    ({}, "namespaces set-schema-compatibility-strategy public/default -c ALWAYS_INCOMPATIBLE", 0, ""),
    ({}, "schemas upload public/default/json -f schema.json", 3, "no schema may follow that of persistent://public/"),
    ({parse_topic("public/default/json").schema_path: b"\xff"}, "topics delete public/default/json", 6, "schema: --force"),
    ({}, "topics delete public/default/json --force --dry-run", 0, ""),
    ({parse_topic("public/default/plain").path: encode_managed_ledger(ManagedLedger((LedgerInfo(9, 25, 3988), LedgerInfo(18)))),
        ledger_path(9): None}, "ledgers restore 9", 3, "3,988 by its topic's list"),
    ({"/admin/clusters/a": b"{}", "/admin/clusters/b": b"{}", "/admin/clusters/standalone": None},
        "namespaces set-dispatch-rate public/y -md 5", 3, "the cluster of public/y is ambiguous"),
    ({IN_PUBLIC + "default": None, "/admin/policies/pulsar/system": None}, "store export tables tables", 2,
        "the metadata names several clusters: a, b"),
    ({parse_topic("public/default/plain").path: b"\xff"}, "topics delete public/default/plain", 6, "no ManagedLedgerInfo"),
]  # fmt: skip
"""In order, on one store: what its metadata have from then on, a line, its exit code, and what it prints."""


@pytest.mark.usefixtures("damages_stores")
def test_what_the_metadata_have_decides_on_a_change(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = narrow_copy(tmp_path)
    monkeypatch.chdir(tmp_path)
    Path("schema.json").write_text('{"type": "STRING", "schema": "", "properties": {}}')
    write_rows(path, lambda txn: append_change(txn, 0, "store add offload", ({},)))
    for nodes, line, code, said in CHANGING:
        for where, value in nodes.items():
            if callable(value):
                change_value(path, where, value)
            else:
                lose_nodes(path, where) if value is None else put_node(path, where, value)
        found = cli.on(path, line)
        assert (found.exit_code, said in found.stdout + found.stderr) == (code, True), (line, found)
