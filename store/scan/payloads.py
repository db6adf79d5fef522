"""Payloads of entries to write: one payload, or many as columns."""

from collections.abc import Iterator
from typing import Any

from msgspec import Struct


class PayloadColumns(Struct, frozen=True):
    """Payloads of many entries: data[starts[i]:starts[i] + sizes[i]]; numpy arrays (u8, i64, i64, i64).

    ``entry_ids`` ascend, None: the next ones.
    """

    data: Any  # Any: numpy is imported where it is used
    starts: Any
    sizes: Any
    entry_ids: Any = None

    def __iter__(self) -> Iterator[bytes]:
        for start, size in zip(self.starts.tolist(), self.sizes.tolist(), strict=True):
            yield bytes(self.data.data[start : start + size])


Payload = bytes | memoryview | PayloadColumns
