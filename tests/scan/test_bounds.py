"""Scans at their bounds: parts that touch, windows that end, and options that mean nothing."""

from functools import partial
from pathlib import Path

import numpy as np

from pulsar_admin.store.codec.cursor import Position
from pulsar_admin.store.codec.digest import DIGEST_SIZE
from pulsar_admin.store.engine.slices import FileRange
from pulsar_admin.store.errors import EntryCorrupt, EntryLogCorrupt, InvalidValue
from pulsar_admin.store.names import FileKind
from pulsar_admin.store.scan import (
    entries,
    files,
    following,
    integer_rows,
    ledgers_map,
    messages,
    operations,
    source_options,
    sources,
    topic_reads,
    unindexed,
)
from tests.at_bounds import PLACES, Answers, N, Texts, asking

WINDOW = {"base": 5, "data": b"abc", "_buffer": b"abcd", "_fill": partial(int, "x")}
"""A window onto a file from byte 5 to before 8; reading elsewhere is an error."""
FILE = N(kind=FileKind.ENTRY_LOG, path="0.log", id=5)
PART = N(start=0, end=10)
ANSWERS: Answers = {
    source_options._read_slice_bytes: [(("4096",), 4096), (("4095",), InvalidValue)],
    source_options._time: [(("1",), 1), (("0",), InvalidValue)],
    sources.split_paths: [(("a,{b,c},d",), ["a", "{b,c}", "d"])],
    entries.window_ranks: [
        ((None, N(first=Position(1, 0, first), last=Position(1, 5, last))), InvalidValue) for first, last in ((0, -1), (-1, 0))],
    files.FileScan.reaches: [
        ((N(slice=N(seek=False), records=0, is_inside=False, torn=False, next_offset=5), end), end <= 5) for end in (5, 6)],
    files.FileScan._digest_sizes: [((N(ledgers=(np.array([7]), np.array([8]))), 7), (8,)),
        ((N(ledgers=(np.array([7]), np.array([8]))), 9), tuple(DIGEST_SIZE.values()))],
    files.FileWindow.move_to: [((N(**WINDOW), offset), None if 5 <= offset < 8 else ValueError) for offset in (5, 8)],
    files.FileWindow.cover: [((N(**WINDOW), *edges), answer)
        for edges, answer in (((5, 8), None), ((5, 9), ValueError))],
    files.close_together: [((iter([(0, 1), ((8 << 20) - 5, size)]), 9), answer)
        for size, answer in ((1, [[(0, 1), ((8 << 20) - 5, 1)]]), (2, [[(0, 1)], [((8 << 20) - 5, 2)]]))],
    following._Folder.is_done: [
        ((N(done=[(1, 5)], begun={}), N(id=number, name="x")), 1 <= number <= 5) for number in (0, 5)],
    following._pieces_of: [
        ((FILE, 0, 10, 10), [FileRange("0.log", FileKind.ENTRY_LOG, -1, 0, 10, seek=False, limit=10)]), ((FILE, 5, 5, 10), []),
        ((FILE, 0, 10, 5), [FileRange("0.log", FileKind.ENTRY_LOG, -1, start, start + 5, seek=start > 0, limit=10)
            for start in (0, 5)])],
    following._between: [((PART, np.array([2]), np.array([8])), [(0, 2), (8, 10)]),
        ((PART, np.array([0, 6]), np.array([5, 10])), [(5, 6)])],
    following._Taking._journal_start: [
        ((N(_marks={"o": (log_id, 9)},
            _follower=N(has_logs=True, look=lambda *given, **how: N(offsets=np.array([8, 9, 12]), end=20))),
            FILE, "o", start), answer) for log_id, start, answer in ((6, 0, -1), (4, 0, 0), (5, 9, 9), (5, 8, 9))],
    following._Taking._cut: [
        ({"self": N(_bytes_left=5, _follower=N(look=lambda *given, **how: N(ends=np.array([3, 5, 9])))),
          "file": N(size_bytes=20), "start": 0, "end": end, "looked_at": True}, 5) for end in (5, 6)],
    integer_rows._Front.fill: [
        ((N(_held=[], _next=0, _read_rows=2, _run=N(rows=rows, read=lambda start, end: [[1] * (end - start)])),), rows > 0)
        for rows in (0, 1)],
    messages._iter_places: [((b"aba", b"a"), [0, 2])],
    ledgers_map.compare_map: [
        ({"mapped": {1: 5}, "records": {1: size}, "is_sound": is_sound}, answer)
        for size, is_sound, answer in ((5, True, None), (6, False, ledgers_map.FalseMap((), (1,), 5, 6)))],
    operations.check_is_log: [(("x", FileKind.ENTRY_LOG, head), answer)
        for head, answer in ((b"BK", None), (b"BX", EntryLogCorrupt), ((b"BKLO" + bytes(3) + b"\1").ljust(1024, b"\0"), None))],
    source_options.pattern_namespace: [(("t.*",), "public/default"), (("persistent://a/b/.*",), "a/b")],
    ledgers_map._ledgers_of: [(("/nowhere/0.log",), None)],
}  # fmt: skip
REFUSED: Texts = {
    messages.match_of: [(({name: []},), f"{name} is empty") for name in ("keys", "properties")],
    following._listed_at: [(("/a/x.log", 1), "neither as an entry log nor as a journal")],
    following.Progress.decode: [(({"version": 0},), "has an offset of version 0")],
    source_options._paths: [(("x",), "no JSON list of texts"), (("[1]",), "no JSON list of texts")],
    source_options._count: [(("0",), "no number from 1 on")],
    source_options._trigger_bytes: [(("0",), "no size from 1 on")],
    source_options._offsets: [(({}, "latest", "Latest"), "can't be latest"),
        (({}, "earliest", '{"a/b/c": "-1:-1"}'), "can't be earliest for a topic")],
    source_options._message_id: [((value,), "has no message id ") for value in (5, {})],
    source_options.read_connector_options: [
        (({"pulsar.reader.readCompacted": "true"}, {}), "compacted views are not read here")],
    source_options._topics: [
        (({"topic": "", "topics": "", "topicsPattern": ""},), "none is given"),
        (({"topic": "a,b", "topics": "", "topicsPattern": ""},), "names one topic")],
    source_options._places: [(({"startingOffsets": 1, "startingTime": 2}, "starting"), "are both given")],
    source_options.pattern_topics: [(("(", []), "is not a regular expression")],
    operations.PlainFiles.read: [((operations.PlainFiles({0: "/nowhere"}), 0, 0, 1), "/nowhere is gone"),
        ((operations.PlainFiles({0: __file__}), 0, 2**40, 4), ".py @ 0x10000000000: expected 4 bytes, found 0")],
    operations.PlainFiles.read_into: [((operations.PlainFiles({0: "/nowhere"}), memoryview(bytearray(4)), 0, 0), "/nowhere is gone"),
        ((operations.PlainFiles({0: __file__}), memoryview(bytearray(4)), 0, 2**40), "expected 4 bytes, found 0")],
    topic_reads._PlacedReader._group_of: [((N(_groups=[PLACES]), 9, 0), "entry 9:0 is not among those of its topic")],
    topic_reads.ReadTopicPieces._check: [((N(fail=True), N(unfinished=None, errors=[EntryCorrupt("damaged")])), "damaged"),
        ((N(fail=True), N(unfinished="x", errors=[])), "x belongs to a transaction that may end in another task")],
    unindexed.find_unindexed: [((N(run=lambda *_: (), failed=[N(error=lambda: EntryCorrupt("it failed"))], memory_bytes=1),
        N(items=lambda *_: (), store=N(path=Path())), None, (), 0, "auto"), "it failed")],
    following.Follower.owner: [((N(_owners={"a": "a"}, owner=lambda one: one.folder), N(folder="a", path="a/1.txn",
        kind=FileKind.JOURNAL),
        [N(folder="b", kind=FileKind.ENTRY_LOG), N(folder="c", kind=FileKind.ENTRY_LOG)]), "nothing says whose journal a/1.txn is")],
}  # fmt: skip
test_at_bounds = asking(ANSWERS, refused=REFUSED)
