"""Entries of ledgers that the index does not know, looked for in the catalogued files themselves."""

from collections.abc import Callable, Mapping, Sequence

import pyarrow.compute as pc
from pyroaring import BitMap64

from pulsar_admin.store.db.clocks import Clock
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.files import iter_logs
from pulsar_admin.store.engine.memory import cut_for
from pulsar_admin.store.engine.operation import Engine
from pulsar_admin.store.engine.slices import plan_slices
from pulsar_admin.store.names import Position
from pulsar_admin.store.scan.operations import ReadEntries, ScanOptions
from pulsar_admin.store.urls import file_info
from pulsar_admin.store.wording import Answer

Advance = Callable[[int], None]
_COLUMNS = ("ledger_id", "entry_id", "publish_time", "broker_time")


class ScanFound(Answer, frozen=True):
    """The first entry at or after the time among those found, its time in ms; how many entries, in how much; ``held``: their ids, by
    ledger."""

    JSON_HIDDEN = ("held",)

    position: Position | None
    time_ms: int | None
    entries: int
    files: int
    bytes: int
    held: Mapping[int, BitMap64]


def find_unindexed(
    engine: Engine, txn: Txn, advance: Advance, ledgers: Sequence[int], time_ms: int, clock: Clock
) -> ScanFound:
    """Scan every catalogued file, at its present length, for entries of these ledgers; raises SliceFailed: nothing is certain then.

    ``advance`` gets bytes as they are scanned.
    """
    places = [log.place(txn.store.path) for log in iter_logs(txn)]
    files = [(place, -1, size) for place in places if (size := file_info(place)[0])]
    operation = ReadEntries(ScanOptions(ledgers=tuple(ledgers)), _COLUMNS)
    best: tuple[Position, int] | None = None
    entries = 0
    held = {ledger_id: BitMap64() for ledger_id in ledgers}
    for _, table in engine.run(
        operation, plan_slices(files, cut_for(engine.memory_bytes)), lambda piece: advance(piece.bytes)
    ):
        entries += len(table)
        ledger_ids, entry_ids = (table[name].to_numpy() for name in _COLUMNS[:2])
        for ledger_id in ledgers:
            held[ledger_id] |= BitMap64(entry_ids[ledger_ids == ledger_id].astype("uint64"))
        publish, broker = (pc.cast(table[name], "int64") for name in _COLUMNS[2:])
        times = {"publish": publish, "broker": broker, "auto": pc.coalesce(broker, publish)}[clock]
        times = pc.divide(times, 1000)  # the columns are in µs
        chosen = pc.greater_equal(times, time_ms)
        columns = (table["ledger_id"], table["entry_id"], times)
        rows = zip(*(column.filter(chosen).to_pylist() for column in columns), strict=True)
        unindexed = [(Position(ledger_id, entry_id), entry_ms) for ledger_id, entry_id, entry_ms in rows]
        best = min([*unindexed, *([best] if best else [])], default=None)
    if engine.failed:
        raise engine.failed.pop().error()
    position, found_ms = best or (None, None)
    return ScanFound(position, found_ms, entries, len(files), sum(size for _, _, size in files), held)
