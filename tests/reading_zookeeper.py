"""ZooKeeper's logs taken apart by hand, as ``org.apache.zookeeper.server.persistence.FileTxnLog`` writes them."""

from __future__ import annotations

import struct
from pathlib import Path


def last_time_of(directory: Path, until_ms: int = 1 << 62) -> int:
    """Return the time of the last transaction in the logs of ``directory``, by ``until_ms``."""
    latest = 0
    for log in directory.glob("log.*"):
        data, offset = log.read_bytes(), 16
        while offset + 12 <= len(data):
            (length,) = struct.unpack_from(">i", data, offset + 8)
            if length <= 0 or data[offset + 12 + length : offset + 13 + length] != b"B":
                break
            _, _, _, time_ms = struct.unpack_from(">qiqq", data, offset + 12)
            latest = max(latest, time_ms if time_ms <= until_ms else 0)
            offset += 13 + length
    return latest
