"""Where a message lies: the bytes of its file at its offset are the record of its entry."""

import struct
from collections import Counter
from pathlib import Path

import pytest

from pulsar_admin.store.engine.slices import Cut, plan_slices
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
