"""At the bound, with 0, with an empty one, and with a good one after a bad one: where most wrong comparisons hide."""

import os
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pyarrow as pa
import pytest
from msgspec.structs import replace

from pulsar_admin import (
    arguments,
    changes,
    columns,
    config,
    cures,
    jsonify,
    numbers,
    options,
    output,
    plot,
    query,
    table_layout,
    upstream,
)
from pulsar_admin.api import pending, plan, session
from pulsar_admin.api.cursors import Cursors
from pulsar_admin.commands import bookkeeper, nacks, overview
from pulsar_admin.commands.compaction import checking, last_id
from pulsar_admin.commands.store import bookie_disks, check, recover
from pulsar_admin.commands.topics import ack_history, clocks, listing, printout
from pulsar_admin.page import charts, rendering, texts
from pulsar_admin.store import files, names, urls, wording
from pulsar_admin.store.changes.plan import read_plan
from pulsar_admin.store.codec import entrylog, sequencefile
from pulsar_admin.store.codec.cursor import (
    Position,
)
from pulsar_admin.store.codec.dbledger import LocationRow
from pulsar_admin.store.codec.ledgermetadata import (
    LedgerState,
    ledger_path,
)
from pulsar_admin.store.codec.managedledger import (
    LedgerInfo,
    ManagedLedger,
    decode_managed_ledger,
    encode_managed_ledger,
)
from pulsar_admin.store.codec.properties import read_properties
from pulsar_admin.store.db import file as lmdb_file
from pulsar_admin.store.db.audit_log import append_change
from pulsar_admin.store.db.environment import Store, _translated
from pulsar_admin.store.db.locks import writer_lock
from pulsar_admin.store.db.storeinfo import read_store_info
from pulsar_admin.store.disks import live_records, logs, reclaim
from pulsar_admin.store.doctor import diagnosing, since
from pulsar_admin.store.dump import copying, find_by_time, messages, source, tables
from pulsar_admin.store.engine import local, memory, operation, slices, spark_session, workers
from pulsar_admin.store.errors import (
    Corrupt,
    DiskFull,
    InvalidValue,
    LimitExceeded,
    StoreError,
)
from pulsar_admin.store.facts.indexes import iter_log_ledgers
from pulsar_admin.store.facts.starts import _why_closed, _why_epochs_refused
from pulsar_admin.store.index import own_logs, rebuild, scan, unserved, writer
from pulsar_admin.store.index.idx_files import _problem
from pulsar_admin.store.kernels import wire
from pulsar_admin.store.model.resources import (
    RACKS_PATH,
    isolation_path,
    parse_bundle,
    resource_group_path,
)
from pulsar_admin.store.names import EARLIEST, EVENTS, FileKind, NamespaceName, parse_topic
from pulsar_admin.store.reports import internal_stats, scalable, shell, stats, timeline, verify
from pulsar_admin.store.reports.log_files import LogVerdict, _verify_map, read_log_summary
from pulsar_admin.store.scan import ledgers_map
from pulsar_admin.store.search.doubts import Doubt
from pulsar_admin.store.sources.layout import _nearest_hint
from pulsar_admin.store.transfer import bundle, ensemble_export, fetching, ledger_export, offloads, reading
from tests.at_bounds import DAY, LONE, LONG, PLACES, PLAIN, UNREADABLE, Answers, N, Texts, asking, refusal
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

SMALL = N(entries=0, live_bytes=1, live_ledgers=1)
BAD = N(bad={0: [N(offset=10, length_bytes=5, ledger_id=0), N(offset=20, length_bytes=7, ledger_id=-1)]})
READ = N(file_id=1, problems=4)
NO_PART = N(ledgers=0, topics=0, bytes=0)
MAP_FILE = b"SEQ\x06" + b"".join(
    bytes([len(name)]) + name.encode() for name in (sequencefile._KEY, sequencefile._VALUE)
)
ANSWERS: Answers = {
    urls._family: [((scheme,), family) for scheme, family in (("gcs", "gs"), ("abfss", "abfs"), ("s3", "s3"))],
    writer.Copies.differ: [
        ((N(_bookies={1: "a", 2: "b", 9: "a"}, _marks=lambda *of: np.zeros((1, 1)), _content=lambda file_id, *of: bytes([file_id])),
          np.array([1, 2]), (np.zeros(2, int), np.ones(2, int)), 9, (np.zeros(2, int), np.full(2, 2)), 0), [False, True])],
    bundle._value: [
        ((N(path="/topics/a/b/c", value=b'{"segments":{"0":{"segmentId":0,"hashRange":{"start":0,"end":65535},"state":"NEWER",'
            b'"legacyTopicName":"persistent://a/b/secret"}}}'), None),
         b'{"segments":{"0":{"segmentId":0,"hashRange":{"start":0,"end":65535},"state":"NEWER"}}}')],
    bookkeeper._ledger_id: [((0,), 0)],
    overview._part: [((1, 100), "1 %"), ((1, 101), "<1 %"), ((0, 5), "0 %")],
    overview._cut: [(("abc", 3), "abc"), (("abcd", 3), "ab…")],
    overview._cell: [(("abc", 3, True), "abc"), (("  abcd", 5, True), "  …cd")],
    check._screen: [((iter([check.CheckRow(severity="summary", code="", where="w", message="m"),
        check.CheckRow(severity="problem", code="c", where="w", message="m")]), 80), ["w: m\n", "problem c\n  w: m\n", "\n"])],
    clocks._labels: [(([0, DAY], DAY), ["1970-01-01", "1970-01-02"]),
        (([0, 61_000], 1000), ["00:00:00", "00:01:01"]), (([0, DAY], 60_000), ["01-01 00:00", "01-02 00:00"]),
        (([0, 365 * DAY], 1), ["1970-01-01 00:00:00.000", "1971-01-01 00:00:00.000"])],
    printout._beginning: [(("x" * 120,), "x" * 120), (("x" * 121,), "x" * 120 + " …")],
    arguments.whole_number: [(("n", 5, 5, 5), 5), (("n", 4, 5), InvalidValue), (("n", 6, 5, 5), InvalidValue)],
    changes._ledgers: [((tuple(range(10)),), "ledgers 0, 1, 2, 3, 4, 5, 6, 7, 8, 9"),
        ((tuple(range(11)),), "11 ledgers from 0 to 10")],
    columns._offset_text: [((0,), "0s"), ((DAY,), "+1d"), ((9_999,), "+9s999ms")],
    columns.size_text: [((999.5,), "0.976 KiB"), ((1000 * 2**40,), "1,000 TiB")],
    columns.age_text: [((DAY,), "1d0h"), ((59_999,), "59s")],
    columns.kind_of: [(("closeTime", 10**11), "time"), (("closeTime", 10**11 - 1), "number")],
    config._jobs: [((1,), 1), ((1024,), 1024), ((0,), InvalidValue), ((1025,), InvalidValue)],
    jsonify.node_json: [((PLAIN, b"\xff"), {"structure": "unreadable", "value": "ff",
        "error": f"{PLAIN}: no ManagedLedgerInfo: the protobuf cannot be parsed"})],
    jsonify.position_json: [
        ((Position(1, 2, 0),), {"ledgerId": 1, "entryId": 2, "partitionIndex": -1, "batchIndex": 0})],
    output._told_text: [(("sizeBytes", 0), "0 B")],
    output._widest: [((["ab", "abc"], 2), 2)],
    rendering._value: [(("x", 10**12), "2001-09-09T01:46:40.000Z")],
    texts.age_text: [((DAY + 3_600_000,), "1d 1h"), ((-1000,), "in 1s"), ((-999,), "0s")],
    texts.clipped: [(("x" * 8, 8), "x" * 8), (("123456789", 8), "123456 … 89 (9 characters)")],
    plot.short_number: [((1000.0,), "1k"), ((999.0,), "999")],
    plot._ticks: [((3, 3), [0, 1, 2])],
    table_layout._shrunk: [(([(5, 2), (5, 2)], 7), (3, 4)), (([(5, 5), (5, 2)], 9), (5, 4))],
    source._check_entry: [((5_252_620 + 2**20, "x"), None), ((5_252_621 + 2**20, "x"), LimitExceeded)],
    tables.day_name: [((-719_162,), "0001-01-01"), ((-719_163,), "day-719163"),
        ((2_932_896,), "9999-12-31"), ((2_932_897,), "day2932897")],
    memory.check_memory: [((198 << 20,), None), (((198 << 20) - 1,), LimitExceeded)],
    own_logs._check_size: [((5_252_620, 0), None), ((5_252_621, 0), LimitExceeded)],
    names.parse_position: [((f"{LONG}:{LONG}:{2**31 - 1}",), Position(LONG, LONG, 2**31 - 1)),
        ((f"0:0:{2**31}",), InvalidValue), ((f"0:{2**63}",), InvalidValue)],
    internal_stats.iso_time: [((0,), "1970-01-01T00:00:00Z"), ((253_402_300_799_999,), "9999-12-31T23:59:59.999Z"),
        ((253_402_300_800_000,), "253402300800000ms"), ((-1,), "-1ms")],
    stats._earliest: [(([0, 5, 7],), 5)],
    timeline.choose_bucket_ms: [((0, 59), 1), ((0, 60), 2)],
    wording.listed: [((range(3), 3), "0, 1 and 2"), ((range(4), 2), "0, 1 and 2 more")],
    wording.shortened: [(("abc", 3), "abc"), (("abcd", 3), "ab…")],
    wording.says: [(("",), False), (("x",), True)],
    arguments.time_ms_of: [((0, 0), 0), ((253_402_300_799_999, 0), 253_402_300_799_999), ((-1, 0), InvalidValue),
        ((timedelta(), 5), 5), ((10**8 - 1, 0), 10**8 - 1), ((10**8, 0), InvalidValue), ((10**11 - 1, 0), InvalidValue),
        ((10**11, 0), 10**11)],
    arguments.delay_ms: [((0,), 0), ((-1,), InvalidValue)],
    logs.LogSurvey.lost_bytes: [((BAD,), 7)],
    logs.LogSurvey.is_bad: [((BAD, 0, place), place in range(10, 15)) for place in (9, 10, 15)],
    diagnosing._Run.told: [((N(_count=2, _first=[1, 2]), 2), [1, 2])],
    shell._holds: [
        ((N(state=LedgerState.CLOSED, last_entry_id=last, ensemble_size=2, write_quorum=1,
            segments=[N(first_entry_id=0, members=("a", "b"))]), bookie), answer)
        for last, bookie, answer in ((-1, "a", False), (0, "a", True))],
    shell.Selection.takes: [
        ((shell.Selection(start=10, end=20), N(offset=20, size_bytes=9)), True),
        ((shell.Selection(start=10, end=20), N(offset=21, size_bytes=9)), False),
        ((shell.Selection(start=10), N(offset=0, size_bytes=7)), True), ((shell.Selection(start=10), N(offset=0, size_bytes=6)), False),
        ((shell.Selection(start=0, end=0), N(offset=1, size_bytes=9)), False),
        ((shell.Selection(0, 3), N(ledger_id=0, entry_id=4)), False)],
    shell.Selection.title: [
        ((shell.Selection(start=0, end=0), 1), "Scan entry log 1 (1.log) for PositionRange: 0 - 0"),
        ((shell.Selection(0, 0), 1), "Scan entry log 1 (1.log) for LedgerId 0  for EntryId 0")],
    table_layout.fold: [(("abc", 3, len), ["abc"]), (("a b c", 3, len), ["a b", "c"]),
        (("abcd", 3, len), ["abc", "d"])],
    messages.MessageQuery.check: [
        ((N(limit=limit, columns=["key"], window=N(clock="auto")),), answer)
        for limit, answer in ((0, None), (LONG, None), (LONG + 1, InvalidValue), (-1, InvalidValue))],
    messages._cell: [((N(publish_time=0), "publish_time"), None),
        ((N(publish_time=1), "publish_time"), datetime(1970, 1, 1, 0, 0, 0, 1000, UTC))],
    source._checked: [(([PLACES],), [PLACES]), (([PLACES, PLACES],), Corrupt),
        *((([N(**vars(PLACES) | {name: np.array([0, 1, -1])})],), Corrupt)
            for name in ("entry_ids", "messages", "closed_ms")),
        (([N(**vars(PLACES) | {"entry_ids": np.array([1, 1, 0])})],), Corrupt)],
    local.Worker.can_take: [((N(tasks=[N(alone=False)] * count), N(alone=False)), count < 2) for count in (0, 1, 2)],
    slices.plan_slices: [
        (([("0.log", 3, 10), ("1.log", 4, 0)],), [slices.FileRange("0.log", FileKind.ENTRY_LOG, 3, 0, 10, False)])],
    workers._hosts: [
        (([N(host=host) for host in "abc"],), "a, b, c"), (([N(host=host) for host in "abcd"],), "a, b, c and 1 more")],
    rebuild._differences: [
        (("d", iter([(b"a", b"1"), (b"b", b"2"), (b"d", b"4")]), iter([(b"a", b"1"), (b"c", b"3"), (b"d", b"5")])),
         [rebuild.Difference("d", b"b", "surplus"), rebuild.Difference("d", b"c", "missing"), rebuild.Difference("d", b"d", "different")])],
    scan.EngineScan.missing: [((N(pieces=[7], _due=0),), 7), ((N(pieces=[7], _due=1),), None)],
    unserved._start: [
        ((N(origin="/d/1.txn", log_id=log_id), {"/d": (5, 9)}), answer) for log_id, answer in ((5, 9), (6, 0))],
    last_id._text: [
        (({"ledgerId": 1, "entryId": 2, "batchIndex": index},), text) for index, text in ((0, "1:2:0"), (-1, "1:2"))],
    nacks._tell_floor: [((N(warn=len), delay_ms), 0 < delay_ms < 100) for delay_ms in (0, 1, 99, 100)],
    overview._ago: [
        ((0, time_ms, N(tight=True)), answer) for time_ms, answer in ((0, "0s ago"), (1000, "1s AHEAD of now"))],
    overview._findings: [
        ((N(findings=[N(severity="note", count=count, code="c", where="w")] * codes), N(rows=1)), answer)
        for count, codes, answer in ((1, 1, ["FINDINGS  1 note", "  note 1 × c: w"]),
            (2, 1, ["FINDINGS  2 notes", "  note 2 × c: w, …"]))],
    listing._ttl_text: [
        ((N(ttl=N(seconds=seconds, source="x")),), answer) for seconds, answer in ((0, None), (1, "1s (x)"))],
    printout._position: [((N(ledger_id=1, entry_id=2, batch_index=0),), "1:2:0")],
    pending.NackSizes.recommended_bits: [
        ({"self": N(precisions=[N(precision_bits=bits, java_bytes=size) for bits, size in sizes]), "memory_bytes": 10},
            answer) for sizes, answer in ((((7, 10), (8, 10), (9, 5)), 8), (((8, 11), (9, 11)), 9))],
    session.Program.__init__: [
        ((N(), None, None, jobs, None), None if jobs == 0 else InvalidValue) for jobs in (0, -1)],
    columns._number_text: [((0, "seconds", False), "0s"), ((-1, "seconds", False), "-"), ((0, "age", False), "0s")],
    numbers.WholeNumber.convert: [
        ((N(_low=0, _high=high, _range=str, fail=lambda *said: int("x")), text, None, None), answer)
        for high, text, answer in ((5, "0", 0), (5, "+5", 5), (5, "6", ValueError), (LONG, str(LONG), LONG))],
    numbers.Number.convert: [
        ((N(_low=0.0, _high=5.0, fail=lambda *said: int("x")), text, None, None), answer)
        for text, answer in (("0", 0.0), ("5", 5.0), ("5.1", ValueError))],
    options._without_equals: [(("-a=x",), "-ax"), (("-a=",), "-a=")],
    charts._label: [
        ((name, charts.Box(0, 0, width, height), "k"), [(5, 13, "k", shown)] if shown else [])
        for name, width, height, shown in (
            ("abcd", 34, 16, "abcd"), ("abcde", 34, 16, "abc…"), ("abcd", 33.9, 16, ""), ("abcd", 34, 15.9, ""))],
    query._Descending.__lt__: [((N(value=1), N(value=other)), other < 1) for other in (0, 1)],
    table_layout._cut: [(("abc", 2, len), 2), (("abc", 0, len), 1)],
    upstream._default: [
        (({"default": text, "converter": "Seconds"},), int(text) * 1000) for text in ("0", "1")] + [
        (({"default": "-1", "converter": "Seconds"},), -1)],
    names._ansi_c: [(("\udc80",), "\\200"), (("\udcff",), "\\377")],
    names.Position.__str__: [((Position(1, 2, 0),), "1:2:0"), ((Position(1, 2),), "1:2")],
    names.Position.entry: [((Position(1, 2, 0),), Position(1, 2))],
    columns.render_cell: [(({"ledgerId": 1, "entryId": 2, "batchIndex": 0},), "1:2:0"), (({"ledgerId": 1, "entryId": 2},), "1:2"),
        ((["a", "b", "c"], "names"), "a, b, c"), ((["a", "b", "c", "d"], "names"), "a, b, c and 1 more")],
    wire.varint.plain: [((b"\xff" * 9 + b"\1", 0, 10), (-1, 10)), ((b"\xff" * 8 + b"\x7f", 0, 9), (LONG, 9)),
        ((b"\x80", 0, 1), (0, -1))],
    reading._half_seen: [
        ((N(rows={1: READ}, before=before), N(is_live=bool)), [READ] if is_new else [])
        for before, is_new in (({1: N(problems=6, tail_problems=2)}, False), ({1: N(problems=5, tail_problems=2)}, True))],
    copying._moved: [
        ((N(ledgers=LONE.ledgers, at_rank=LONE.at_rank, place=lambda position, rank=rank: rank), Position(9, 0), {}), Position(7, rank - 1))
        for rank in (0, 1)],
    scan.EngineScan._lacks_lengths: [
        ((N(_lengths={1: (5, 3)}), {"problems": [(0, 0, "", ledger_id, 0)], "unknown": [(1, entry_id, surplus)]}), answer)
        for ledger_id, entry_id, surplus, answer in (
            (0, 6, -3, False), (0, 6, -2, True), (0, 5, 9, False), (-1, 5, 0, True))],
    listing._drawn: [
        (([N(start=0, end=0x7FFF, segment_id=1, is_active=False),
            N(start=0x8000, end=0xFFFF, segment_id=2, is_active=True)],), f"[{'1':-^30}][{'2':=^30}]")],
    spark_session.cause_of: [(("x" * 301,), "x" * 300)],
    table_layout._iter_pieces: [(("ab-c d", 4, len), ["ab-c ", "d"])],
    reclaim.fitting: [  # a group is the first of those that wait, also where a later one would fit
        ((N(logs="/", index="/"), [SMALL, N(entries=0, live_bytes=1 << 40, live_ledgers=1), SMALL],
        reclaim.Room(1 << 62, 1 << 62)), [SMALL])],
    workers._version: [(("no-such-package",), "*")],
    bundle._has_ledger: [((N(value=b"\xff", path="p"),), False)],
    live_records._is_good: [((Path("/nowhere/0.log"), (0, 0), (7, 0)), False)],
    reclaim._ledgers_in: [((Path("/nowhere/0.log"), None), [])],
    stats._earliest_time: [((UNREADABLE, N(next_valid=lambda at: at, is_entry=lambda at: True), Position(7, 0)), -1)],
    verify._entry_row: [((N(txn=N(get=lambda *of: None), read_at=UNREADABLE.read),
        N(ledger_id=7, place=lambda index: (1, 10, 5), entry_id=lambda index: 3), 0, False),
        verify.EntryRow(7, 3, "it is damaged", None, 10, 5))],
    ledger_export._is_entry: [((Path("/nowhere"), N(metadata=None), N(log_id=0, pos=0), 5), False)],
    reading._state_of: [((Path("/nowhere"),), None)],
    bundle._custom: [((b"\xff", None), b"")],
}  # fmt: skip
REFUSED: Texts = {
    files._entries: [((Path("none"),), "cannot read none: No such file")],
    files._open_to_copy: [((Path("none"),), "cannot read none: No such file")],
    bundle.read_names: [((Path("/"),), "cannot read /: it is a directory")],
    arguments.time_ms_of: [((timedelta(-1), 0), "is an age, and negative"), ((datetime(2026, 1, 1), 0), "has no time zone")],
    plan._tuple: [(([],), "expected a tuple")],
    plan.Request.as_json: [((N(of=int),), "a int")],
    config.check_path: [(("s3://a/b",), "is a URL")],
    config._plain: [(("f", "x", value), f"sets x to {kind}") for value, kind in (({}, "a table"), ([], "a list"))],
    config._flag: [(("x", "maybe"), "x is 'maybe'")],
    config._pairs: [((("a=b", "c"),), "is not a pair")],
    bundle._create_stand_in: [((Path(), N(size_bytes=-1)), "a file of less than 0 bytes")],
    upstream.parse_pairs: [(([pair],), f"Invalid key value pair '{pair}'") for pair in ("a", "=b")],
    files.open_lock_file: [((Path("/"),), "it is a directory")],
    since._finding_of: [(({"change": "new"},), "it was made with --since")],
    names.parse_topic: [(("non-persistent://a/b/c",), "it has no data on disk")],
    names.parse_scalable: [(("segment://a/b/c/0000-ffff-0",), "is a segment")],
    names.parse_topics: [((["a"], "b"), "not both")],
    scalable._rates: [((N(path="p", value=b'{"msgRateIn": "1"}'),), "msgRateIn: expected a number, found a text")],
    live_records._read: [((N(name="f", fileno=partial(os.open, os.devnull, os.O_RDONLY)), 0, 4),
        "f @ 0x0: wanted 4 bytes, got 0")],
    fetching._check_keeps_no_secret: [((url,), "has a password, and a store keeps the URLs") for url in (
        "s3://u:p@b/x", "s3://b/x?secret_key=y")],
    offloads._in_order: [((iter([(0, b""), (2, b"")]), "o"), "o: expected entry 1, found 2")],
    offloads._open_ledger: [((N(size=lambda _: 1, read=lambda *_: MAP_FILE + bytes(22)),
        N(index_path="", data_path="d")), "d: the ledger's metadata is not its first record")],
    urls._explained: [(("s3://b", text), said) for text, said in (("Unrecognized filesystem type in URI: s3://b",
        "there is no file system s3://"),
        ("Unable to load libhdfs", "needs Hadoop's native client"), ("x", "s3://b cannot be read: x"))],
    jsonify._fields: [((plan.Plan,), "a Plan is not an answer")],
    jsonify.to_json: [((object.__new__(Cursors),), "a Cursors is not an answer")],
    source._rows_of: [((pa.RecordBatch.from_pydict({"ledgerId": [1], "entryId": [None], "payload": [b"x"]}), "p"),
        "a position, payload or digest is null")],
}  # fmt: skip
SAID: Texts = {
    overview._oldest: [((N(oldest_age_ms=None),), "unknown")],
    printout.value_line: [(((None, "it is cut"),), "Value: not decoded: it is cut\n")],
    columns._number_text: [((1.5, "duration", False), "1.5ms")],
    columns.words_of: [(({"a": [1, 2], "b": {}},), "a 1, 2, b none")],
    cures.look_first: [(("pulsar-admin store check 'x",), ""), (("pulsar-admin no such",), "")],
    operation.FailedSlice.error: [((N(piece=N(path="p", start=0, end=9), reason="it is full", out_of_memory=True),),
        "p, bytes 0 to 9 needs more memory: it is full")],
    ensemble_export._broker: [
        ((N(value=b"x", path="/x"),), "of an owner that cannot be read"),
        ((N(value=b'{"httpUrl":"http://b"}', path="/x"),), "http://b")],
    ensemble_export._explained: [((N(address="z:1"), N(holds=["/h"]), N(write=N(path=path), reason=reason)), said)
        for path, reason, said in (("/h", "", "/h was made meanwhile: a broker became the owner"), ("/x", "NotEmpty", "it has child nodes"),
        ("/x", "NoNode", "the ensemble says NoNode"))],
    nacks._about: [((N(entries=5, entries_per_second=rate, batch_size=1, holes=holes, nacked_share=0.5),), said)
        for rate, holes, said in (
        (None, 0, "the topic: 5 entries, at one time, 1 message each; no holes taken"), (2.0, 2,
        "2 a second, 1 message each; 2 holes, 50.0% of"))],
    recover._topic_lines: [
        ((N(topics=[N(topic="t", ledgers=1, bytes=2)] * 30, topic_count=99),), said)
        for said in ("deleted ledgers, by 99 topics or cursors in the metadata:", "'  …'")],
    ack_history._plot: [(([],), "No state exists."),
        (([{"gaps": 1, "state": "x", "notBeforeTime": None, "backlogEntries": 5}],), "entries left, by state")],
    find_by_time.gaps_before: [((N(exact=False, doubts=(), unreadable=2, topic="t"),),
        "t: an earlier answer could be among 2 damaged entries that cannot be read"),
        ((N(exact=False, doubts=(Doubt(7, 0, 1, lost=2),), unreadable=0, topic="t", rule="exact"),),
        "t: see the losses with: pulsar-admin ledgers missing")],
    checking._render: [(({"topic": "t", "compacted": True, "compactedLedger": 1, "entries": 1, "messages": 1,
        "topicEntries": 1,
        "problems": 0, "findings": [], "lostEntries": 2},), "2 entries of the topic cannot be read: problems may be due to that")],
    bookie_disks._render: [((N(bookie="b", directories=[], journals=N(files=1, replayed_entries=2, missing=["x"],
        unsure=3, stops=[]),
        cookies=["c"], maps=["m"], kept=kept, needed=needed, dry_run=True), "start it"), said) for kept, needed, said in (
        ([], True, "3 ledgers on this bookie that nobody closed may lack their last entries"), (["k"], False,
        "the salvage that was stopped is done"),
        ([], False, "nothing is wrong, nothing was written"), ([], True, "dry run, nothing was written"))],
    recover._broker_lines: [((N(topics=1, bytes=2, inactive=NO_PART, trimmed=NO_PART, expired=NO_PART, expires=0,
        unread_cursors=2,
        rows=[N(topic="t", inactive=True, after_seconds=5, lost_bytes=9)] * 30),), said) for said in ("delete for inactivity: nothing",
        "2 cursors assumed to be at the position", "t: deleted after 5 s, 9 B", "'  …'")],
}  # fmt: skip
test_at_bounds = asking(ANSWERS, refused=REFUSED, said=SAID)


MAP_FILE = b"SEQ\x06" + b"".join(
    bytes([len(name)]) + name.encode() for name in (sequencefile._KEY, sequencefile._VALUE)
)
A, B, C = (parse_topic(f"a/b/{name}") for name in "abc")


@pytest.mark.parametrize(
    ("call", "content", "text"),
    [
        (config._file_values, None, "cannot read "),
        (config._file_values, b'colour = "x"', " sets unknown colour"),
        (config._file_values, b'store = "a\\u0000"', "store holds a zero byte"),
        (read_plan, None, "no plan "),
        (read_properties, b"\xff", "is not UTF-8"),
        (since.read_saved, b"\xff", "is no list of findings"),
        (since.read_saved, b"x", "is no list of findings"),
        (since.read_saved, b"[[]]", "an entry is [], not an object"),
        (since.read_saved, b"{}", "'code' is missing"),
        (ledgers_map.read_head, None, "cannot be read"),
    ],
)
def test_a_file_of_something_else_is_refused(
    call: Callable[..., object], content: bytes | None, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    if content is not None:
        file.write_bytes(content)
    monkeypatch.setenv("PULSAR_ADMIN_CONFIG", str(file))
    given = {config._file_values: (), read_properties: (file, "hint")}.get(call, (file,))
    assert text in refusal(call, given)


def test_disks_that_are_wrong_in_one_way(tmp_path: Path) -> None:
    (tmp_path / "7ffffffe.log").touch()
    (tmp_path / "empty.json").touch()
    for call, text in (
        (partial(reclaim.next_log_id, tmp_path), "the ids of entry logs are used up"),
        (partial(reclaim.check_scratch, tmp_path, N(ledger_dirs=[tmp_path])), "frees nothing"),
        (partial(reclaim.check_scratch, tmp_path / "none", N(ledger_dirs=[])), "is not a directory"),
        (lambda: [*source._iter_files({tmp_path / "empty.json": 2}, 1)], "it has 0 rows, its manifest says 2"),
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
    (tmp_path / "folder" / "store.json").mkdir(parents=True)
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
            (partial(read_store_info, tmp_path / "folder"), "store.json cannot be read: it is a directory"),
            (partial(rendering.check_new, tmp_path / "none" / "page.html"), f"{tmp_path}/none"),
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
    "store preflight --bookie a=DIR": (2, "hint: see: pulsar-admin store preflight --help"),
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
