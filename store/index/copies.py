"""Copies of one entry in files of several bookies: whether they are the same, without reading their payloads again.

Replicas of an entry are equal byte for byte, but for the last-add-confirmed that a recovery writes anew. Imports numpy.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.codec.entry import RECORD_MAX_BYTES
from pulsar_admin.store.db.files import LogFile
from pulsar_admin.store.errors import SourceChanged
from pulsar_admin.store.files import open_regular

_LENGTH_AT = 4 + 24  # of the length field in a record with its size; the digest follows
_MARK_BYTES = 16
_SPAN_BYTES = 4 << 20  # read at once for the marks of many records,
_SPARSE_BYTES = 16 << 10  # unless they lie further apart than this


class Copies:
    """Compares records of catalogued files. ``logs``: by file id; ``root``: the directory that their paths are relative to."""

    def __init__(self, root: Path, logs: Mapping[int, LogFile]) -> None:
        self._root = root
        self._logs = logs
        self._bookies = {file_id: log.disk for file_id, log in logs.items()}
        self._open: dict[int, int] = {}
        self._doubt = np.zeros(max(logs, default=0) + 1, np.int8)
        self._doubt[[file_id for file_id, log in logs.items() if log.stranger]] = 1
        self.several = len(set(self._bookies.values())) > 1

    def doubt(self, files: Array | int) -> Array:
        """Return 1 for each file (id) whose bookie is not proven to belong to the cluster, else 0."""
        found: Array = self._doubt[files]
        return found

    def path(self, file_id: int) -> str:
        """Return the path of a file for messages."""
        return str(self._logs[file_id].locate(self._root))

    def differ(
        self, files: Array, old: tuple[Array, Array], file_id: int, new: tuple[Array, Array], digest_bytes: int
    ) -> Array:
        """Return a mask of the entries whose old record (``offsets``, ``sizes`` in ``files``) differs from the new one in ``file_id``.

        Records on one bookie are taken to be equal.
        """
        (offsets, sizes), (new_offsets, new_sizes) = old, new
        differs = np.zeros(len(files), bool)
        for other in np.unique(files).tolist():
            if self._bookies[other] == self._bookies[file_id]:
                continue
            where = np.flatnonzero(files == other)
            marks = self._marks(other, offsets[where]), self._marks(file_id, new_offsets[where])
            doubtful = where[(sizes[where] != new_sizes[where]) | (marks[0] != marks[1]).any(axis=1)]
            for index in doubtful.tolist():
                payloads = (
                    self._content(other, int(offsets[index]), int(sizes[index]), digest_bytes),
                    self._content(file_id, int(new_offsets[index]), int(new_sizes[index]), digest_bytes),
                )
                differs[index] = payloads[0] != payloads[1]
        return differs

    def _marks(self, file_id: int, offsets: Array) -> Array:
        """Return the length and digest fields of the records at these offsets, u8 (n, 16)."""
        found = np.zeros((len(offsets), _MARK_BYTES), np.uint8)
        starts = offsets.astype(np.int64) + _LENGTH_AT
        first = 0
        while first < len(starts):
            # Records of a ledger lie close together in a log: one read for many.
            ascend = bool((starts[first + 1 :] > starts[first:-1]).all())
            last = int(np.searchsorted(starts, starts[first] + _SPAN_BYTES)) if ascend else first + 1
            if int(starts[last - 1] - starts[first]) > _SPARSE_BYTES * (last - first):
                last = first + 1
            base = int(starts[first])
            raw = self._read(file_id, base, int(starts[last - 1]) - base + _MARK_BYTES)
            if len(raw) == int(starts[last - 1]) - base + _MARK_BYTES:
                data = np.frombuffer(raw, np.uint8)
                found[first:last] = data[(starts[first:last] - base)[:, None] + np.arange(_MARK_BYTES)]
            first = last
        return found

    def _content(self, file_id: int, offset: int, size: int, digest_bytes: int) -> bytes:
        """Return the fields of a record that replicas share: ledger, entry, length, payload."""
        body = self._read(file_id, offset + 4, min(size, RECORD_MAX_BYTES))
        return body[:16] + body[24:32] + body[32 + digest_bytes :]

    def _read(self, file_id: int, offset: int, length: int) -> bytes:
        path = self._logs[file_id].locate(self._root)
        try:
            if file_id not in self._open:
                self._open[file_id] = open_regular(path)
            return os.pread(self._open[file_id], length, offset)
        except OSError as error:
            raise SourceChanged(f"{path} cannot be read any more: {error.strerror}", path=str(path)) from error

    def close(self) -> None:
        """Close the files that were read."""
        for descriptor in self._open.values():
            os.close(descriptor)
        self._open.clear()
