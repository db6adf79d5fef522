"""Where a message lies: the bytes of its file at its offset are the record of its entry."""

import struct
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from pulsar_admin.store.engine.slices import Cut, plan_slices
from pulsar_admin.store.names import parse_topic
from pulsar_admin.store.scan import typed_values
from pulsar_admin.store.scan.operations import ReadEntries, ReadMessages
from pulsar_admin.store.scan.sources import source_files
from tests.worlds import world

_RECORD = struct.Struct(">iqq")  # size, ledger id, entry id: DefaultEntryLogger.addEntry, and a journal's record


@pytest.mark.parametrize("pattern", ["*.log", "*.txn"])
def test_messages_lie_at_their_offsets(pattern: str) -> None:
    """Also those that the ordinary reader reads (chunks, encrypted ones, transactions), and entries that lie there twice."""
    folder = world("small") / "clean" / "bookkeeper" / "current"
    seen: Counter[bool] = Counter()
    for piece in plan_slices(source_files(str(folder / pattern)), Cut(4 << 20)):
        held = Path(piece.path).read_bytes()
        for batch in ReadMessages().run(piece):
            for row in batch.to_pylist():
                assert row["path"] == piece.path
                _, ledger_id, entry_id = _RECORD.unpack_from(held, row["offset"])
                assert (ledger_id, entry_id) == (row["ledger_id"], row["entry_id"])
                seen[row["encrypted"] or row["transaction"] is not None] += 1
    assert seen[True] > 10
    assert seen[False] > 1000


def test_an_offset_alone_is_read() -> None:
    folder = str(world("small") / "clean" / "bookkeeper" / "current" / "*.log")
    (piece, *_) = plan_slices(source_files(folder), Cut())
    found = {row for batch in ReadMessages(columns=("offset",)).run(piece) for row in batch.column(0).to_pylist()}
    every = {row for batch in ReadEntries(columns=("offset",)).run(piece) for row in batch.column(0).to_pylist()}
    assert found
    assert found < every


def test_values_that_their_schema_does_not_have() -> None:
    decimal = typed_values._decimal({"precision": 3, "scale": 1}).convert
    for convert, value, text in (
        (typed_values._integer(8), 128, "128 is not a number of 8 bits"),
        (typed_values._integer(8), -129, "-129 is not a number of 8 bits"),
        (decimal, "x", "'x' is not a decimal number"),
        (decimal, "1" * 50, "has more than 3 digits"),
        (decimal, "123.4", "123.4 does not fit a decimal of 3 digits"),
        (decimal, "1.25", "1.25 does not fit a decimal of 3 digits"),
    ):
        with pytest.raises(ValueError, match=text):
            convert(value)
    keys = {"key": pa.array(["a", "_"]), "keyEncoded": pa.array([False, True])}
    assert typed_values._key_bytes(pa.RecordBatch.from_pydict(keys), parse_topic("a/b/c")).to_pylist() == [b"a", b"_"]
