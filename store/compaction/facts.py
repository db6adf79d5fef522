"""What phase one keeps of entries beside their keys: places and counts for phase two, and the numbers of the report.

The same of entries read here and of those that an engine's executors read, who return it as columns.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from msgspec import Struct, field

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.compaction.batches import MessageBatch
from pulsar_admin.store.kernels import compaction as kernel
from pulsar_admin.store.kernels import slots as slot_kernel
from pulsar_admin.store.scan.places import Part

WHOLE = (kernel.ENCRYPTED_BATCH, kernel.STRANGE, kernel.CHUNK)
"""Kinds of entries that phase two has to look at whatever is the latest."""


class Survey(Struct):
    """Numbers of what was read. ``keyed``: messages with a key and a value; bytes as in ``CompactionResult``."""

    entries: int = 0
    bytes: int = 0
    message_bytes: int = 0
    keyed: int = 0
    null_values: int = 0
    keyless: int = 0
    encrypted: int = 0
    uncommitted: int = 0
    undecodable: int = 0
    markers: int = 0

    def add(self, other: Survey) -> None:
        """Add what OTHER counted."""
        for name in Survey.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class EntryFacts(Struct):
    """Entries in order. ``runs``: (ledger, first entry, how many) where they were read; ``counts``: u32 messages of each, None: 1.

    ``always``: bool, entries that are wanted whatever is the latest; None: none of them. ``chunk_ends``: (uuid, number of the
    message) of the last chunks of messages. Numbers count from the first message of these entries.
    """

    entries: int
    messages: int
    runs: tuple[Part, ...]
    counts: Array | None
    always: Array | None
    chunk_ends: list[tuple[bytes, int]] = field(default_factory=list)
    survey: Survey = field(default_factory=Survey)

    @staticmethod
    def of(batches: Iterable[MessageBatch], retain_keyless: bool) -> EntryFacts:
        """Return the facts of BATCHES, which follow each other."""
        counts, always, ledgers, entries = [], [], [], []
        found = EntryFacts(0, 0, (), None, None)
        for batch in batches:
            counts.append(np.diff(batch.firsts).astype(np.uint32))
            always.append(_always(batch, retain_keyless))
            ledgers.append(batch.stored_ledgers)
            entries.append(batch.stored_entries)
            found.chunk_ends += _chunk_ends(batch, found.messages)
            found.survey.add(survey(batch))
            found.entries += len(batch.rows)
            found.messages += len(batch.slots)
        if counts:
            found.runs = _runs(np.concatenate(ledgers), np.concatenate(entries))
            found.counts = _unless((joined := np.concatenate(counts)), bool((joined == 1).all()))
            found.always = _unless((some := np.concatenate(always)), not some.any())
        return found


def survey(batch: MessageBatch) -> Survey:
    """Return the numbers of BATCH."""
    rows, slots = batch.rows, batch.slots
    is_there = slots["flags"] & slot_kernel.COMPACTED_OUT == 0
    has_key = is_there & (slots["key_length"] >= 0)
    nulls = int((has_key & (slots["value_bytes"] <= 0)).sum())
    kinds, sizes = rows["kind"], np.maximum(rows["messages"], 1)
    overhead = np.where(rows["id_end"] > 0, 8 + rows["id_end"] - rows["id_start"], 0)
    return Survey(
        entries=len(rows),
        bytes=int((rows["end"] - rows["start"] + overhead).sum()),
        message_bytes=int((rows["end"] - rows["meta_end"]).sum()),
        keyed=int(has_key.sum()) - nulls,
        null_values=nulls,
        keyless=int(is_there.sum()) - int(has_key.sum()),
        encrypted=int(sizes[kinds == kernel.ENCRYPTED_BATCH].sum()),
        uncommitted=int(sizes[kinds == kernel.UNCOMMITTED].sum()),
        undecodable=int((kinds == kernel.STRANGE).sum()),
        markers=int((kinds == kernel.MARKER).sum()),
    )


def uuid_of(batch: MessageBatch, index: int) -> bytes:
    """Return the uuid that the chunks of one message share."""
    row = batch.rows[index]
    return bytes(batch.data.data[row["uuid_start"] : row["uuid_start"] + row["uuid_length"]])


def _always(batch: MessageBatch, retain_keyless: bool) -> Array:
    always: Array = np.isin(batch.rows["kind"], WHOLE)
    if retain_keyless:
        keyless = batch.slots["key_length"] < 0
        always[np.repeat(np.arange(len(batch.rows)), np.diff(batch.firsts))[keyless]] = True
    return always


def _chunk_ends(batch: MessageBatch, first: int) -> list[tuple[bytes, int]]:
    rows = batch.rows
    ends = (rows["kind"] == kernel.CHUNK) & (rows["chunk_id"] == rows["chunks"] - 1)
    return [(uuid_of(batch, index), first + int(batch.firsts[index])) for index in np.flatnonzero(ends).tolist()]


def _unless(column: Array, empty: bool) -> Array | None:
    return None if empty else column


def _runs(ledgers: Array, entries: Array) -> tuple[Part, ...]:
    """Return runs of consecutive entries: (ledger, first entry, how many)."""
    if not len(entries):
        return ()
    cuts = np.flatnonzero((ledgers[1:] != ledgers[:-1]) | (entries[1:] != entries[:-1] + 1)) + 1
    starts, ends = [0, *cuts.tolist()], [*cuts.tolist(), len(entries)]
    return tuple(
        (int(ledgers[start]), int(entries[start]), end - start) for start, end in zip(starts, ends, strict=True)
    )
