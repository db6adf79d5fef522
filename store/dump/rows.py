"""Entries of a dump as columns: cut at ledgers, and merged by position from files that each are in order."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from msgspec import Struct

from pulsar_admin.store.aliases import Array


class EntryRows(Struct):
    """Entries of one topic in order, as columns; ``data[starts[i]:][:sizes[i]]`` is the payload."""

    ledger_ids: Array  # i64
    entry_ids: Array  # i64
    messages: Array  # i64
    closed_ms: Array  # i64, 0 while the ledger was open
    data: Array  # u8
    starts: Array  # i64
    sizes: Array  # i64
    where: str  # the file, for messages

    def __len__(self) -> int:
        return len(self.ledger_ids)

    def slice(self, low: int, high: int) -> EntryRows:
        """Return rows LOW to HIGH (excluded); ``data`` is shared."""
        part = slice(low, high)
        return EntryRows(
            self.ledger_ids[part],
            self.entry_ids[part],
            self.messages[part],
            self.closed_ms[part],
            self.data,
            self.starts[part],
            self.sizes[part],
            self.where,
        )


def ledger_runs(rows: EntryRows) -> Iterator[EntryRows]:
    """Cut ROWS where the ledger changes."""
    cuts = (np.flatnonzero(rows.ledger_ids[1:] != rows.ledger_ids[:-1]) + 1).tolist()
    for low, high in pairwise([0, *cuts, len(rows)]):
        yield rows.slice(low, high)


def merged(streams: list[Iterator[EntryRows]]) -> Iterator[EntryRows]:
    """Merge streams that are each in order by position."""
    if len(streams) == 1:
        yield from streams[0]
        return
    heads = [(rows, stream) for stream in streams if (rows := next(stream, None)) is not None]
    while heads:
        bound = min((int(rows.ledger_ids[-1]), int(rows.entry_ids[-1])) for rows, _ in heads)
        taken: list[EntryRows] = []
        following: list[tuple[EntryRows, Iterator[EntryRows]]] = []
        for rows, stream in heads:
            before = (rows.ledger_ids < bound[0]) | ((rows.ledger_ids == bound[0]) & (rows.entry_ids <= bound[1]))
            count = int(before.sum())
            if count:
                taken.append(rows.slice(0, count))
            rest = rows.slice(count, len(rows)) if count < len(rows) else next(stream, None)
            if rest is not None:
                following.append((rest, stream))
        yield _joined(taken)
        heads = following


def _joined(parts: list[EntryRows]) -> EntryRows:
    """Put parts together in the order of their positions."""
    if len(parts) == 1:
        return parts[0]
    bases = np.cumsum([0, *(len(part.data) for part in parts)])
    columns = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in ("ledger_ids", "entry_ids", "messages", "closed_ms", "sizes")
    }
    starts = np.concatenate([part.starts + base for part, base in zip(parts, bases, strict=False)])
    order = np.lexsort((columns["entry_ids"], columns["ledger_ids"]))
    sizes = columns.pop("sizes")[order]
    data = np.concatenate([part.data for part in parts])
    ledger_ids, entry_ids, messages, closed_ms = (column[order] for column in columns.values())
    return EntryRows(ledger_ids, entry_ids, messages, closed_ms, data, starts[order], sizes, parts[0].where)
