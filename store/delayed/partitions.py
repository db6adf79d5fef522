"""Reading the partitions of an index: the source of the time wheel, and of everything that lists what is due."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

import numpy as np

from pulsar_admin.store.db.delayed import Index, Partition
from pulsar_admin.store.db.delayed_entries import DelayedRows, decode_entry_rows, join_rows
from pulsar_admin.store.errors import Corrupt, IndexCorrupt, NotFound
from pulsar_admin.store.model.ledgers import find_times, iter_entry_ids
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.names import LONG_MAX, LONG_MIN, shell_word


class PartitionSource:
    """The messages of one index, by due time; each partition is read from its ledgers when its time is asked for.

    Partitions may overlap: those made before the granularity grew lie inside newer ones. One that is wider than what is asked
    for is split: what is due at other times stays out.
    """

    def __init__(self, reader: EntryReader, index: Index) -> None:
        self._reader = reader
        self._index = index
        self._partitions = sorted(index.partitions, key=lambda partition: partition.start_ms)
        self._starts = [partition.start_ms for partition in self._partitions]
        self._widest_ms = max((partition.width_ms for partition in self._partitions), default=0)

    def load(self, start_ms: int, end_ms: int) -> DelayedRows:
        """Return what is due from START_MS on, before END_MS, in order; raises IndexCorrupt for a ledger lost or damaged."""
        low, high = bisect_left(self._starts, start_ms - self._widest_ms), bisect_left(self._starts, end_ms)
        chosen = [part for part in self._partitions[low:high] if part.end_ms > start_ms]
        rows = join_rows([rows for partition in chosen for rows in self.read(partition)])
        edges = np.searchsorted(rows.times_ms, [max(start_ms, LONG_MIN), min(end_ms, LONG_MAX)]).tolist()
        return rows.take(slice(*edges))

    def next_time_ms(self, start_ms: int) -> int | None:
        """Return when the first partition that ends behind START_MS begins, but not before START_MS; None: none does."""
        for index in range(bisect_left(self._starts, start_ms - self._widest_ms), len(self._starts)):
            if self._partitions[index].end_ms > start_ms:
                return max(self._starts[index], start_ms)
        return None

    def read(self, partition: Partition) -> Iterator[DelayedRows]:
        """Yield the rows of each entry of PARTITION; raises IndexCorrupt."""
        for ledger_id, messages, _ in partition.ledgers:
            found = 0
            for rows in read_ledger_rows(self._reader, self._index, ledger_id):
                found += len(rows)
                yield rows
            if found != messages:
                raise _lost(self._index, ledger_id, f"it holds {found} messages, expected {messages}")

    def all_rows(self) -> DelayedRows:
        """Return everything in the index, in order."""
        return join_rows(list(self.iter_rows()))

    def iter_rows(self) -> Iterator[DelayedRows]:
        """Yield everything in the index, entry by entry; raises IndexCorrupt."""
        return (rows for partition in self._partitions for rows in self.read(partition))


def read_ledger_rows(reader: EntryReader, index: Index, ledger_id: int) -> Iterator[DelayedRows]:
    """Yield the rows of each entry of one ledger of INDEX; raises IndexCorrupt naming the ledger."""
    if find_times(reader.txn, ledger_id) is None:
        raise _lost(index, ledger_id, "it is not there")
    for entry_id in iter_entry_ids(reader.txn, ledger_id):
        try:
            payload = reader.read(ledger_id, entry_id).payload
            yield decode_entry_rows(payload, f"delayed index ledger {ledger_id}:{entry_id}")[1]
        except (Corrupt, NotFound) as error:
            raise _lost(index, ledger_id, error.message) from error


def _lost(index: Index, ledger_id: int, why: str) -> IndexCorrupt:
    return IndexCorrupt(
        f"ledger {ledger_id} of the delayed index of {index.topic} {index.subscription}: {why}",
        hint=f"make the index again: pulsar-admin delayed build {shell_word(index.topic)} -s {shell_word(index.subscription)} --rebuild",
        ledgerId=ledger_id,
        topic=str(index.topic),
        subscription=index.subscription,
    )
