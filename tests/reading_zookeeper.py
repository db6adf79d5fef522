"""ZooKeeper's logs taken apart by hand, as ``org.apache.zookeeper.server.persistence.FileTxnLog`` writes them."""

import struct
from collections.abc import Iterator
from pathlib import Path


def transactions_of(directory: Path) -> Iterator[tuple[int, int]]:
    """Yield zxid and time of each transaction in the logs of ``directory``."""
    for log in directory.glob("log.*"):
        data, offset = log.read_bytes(), 16
        while offset + 12 <= len(data):
            (length,) = struct.unpack_from(">i", data, offset + 8)
            if length <= 0 or data[offset + 12 + length : offset + 13 + length] != b"B":
                break
            _, _, zxid, time_ms = struct.unpack_from(">qiqq", data, offset + 12)
            yield zxid, time_ms
            offset += 13 + length


def last_time_of(directory: Path, until_ms: int = 1 << 62) -> int:
    """Return the time of the last transaction in the logs of ``directory``, by ``until_ms``."""
    return max((time_ms for _, time_ms in transactions_of(directory) if time_ms <= until_ms), default=0)
