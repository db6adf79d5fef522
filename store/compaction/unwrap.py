"""Entries of a compacted ledger as what is in them, so that what reads a topic's entries reads them, too."""

from __future__ import annotations

import numpy as np

from pulsar_admin.store.kernels import compaction as kernel
from pulsar_admin.store.kernels.records import RECORD, read_payloads
from pulsar_admin.store.scan.places import EntryBatch

_BEFORE_BYTES = 4 + 32  # size field and header of an entry, which are in front of what is in it


def unwrapped(entries: EntryBatch) -> EntryBatch:
    """Return ENTRIES, a compacted ledger's, as the topic's entries in them; what is not a compacted entry is empty, and no message."""
    found = np.zeros(len(entries), kernel.ENTRY)
    begins = entries.offsets + _BEFORE_BYTES + entries.rows["digest_bytes"]
    kernel.read_entries(entries.data, begins, entries.offsets + 4 + entries.held, True, False, found)
    starts = np.where(found["kind"] == kernel.BROKEN, found["end"], found["start"])
    rows = np.zeros(len(entries), RECORD)
    read_payloads(entries.data, starts, found["end"], rows)
    offsets = starts - _BEFORE_BYTES
    return EntryBatch(found["ledger_id"], found["entry_id"], entries.data, offsets, found["end"] - offsets - 4, rows)
