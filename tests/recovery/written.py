"""A reading of its own of what a stopped cluster left: entry logs and ZooKeeper's logs, record by record, with none of our code."""

import struct
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path


def entries_of(bookies: list[Path]) -> dict[int, dict[int, bytes]]:
    """Ledger → entry → the record's bytes behind its size, over the entry logs and journals of BOOKIES' directories."""
    found: dict[int, dict[int, bytes]] = defaultdict(dict)
    for bookie in bookies:
        for log in sorted((bookie / "current").glob("*.log")):
            for record in _records(log.read_bytes()):
                ledger_id, entry_id = struct.unpack_from(">qq", record)
                if ledger_id >= 0:
                    found[ledger_id][entry_id] = record
        for journal in sorted((bookie / "current").glob("*.txn")):
            for record in _journal_records(journal.read_bytes()):
                ledger_id, entry_id = struct.unpack_from(">qq", record)
                if entry_id >= 0:
                    found[ledger_id].setdefault(entry_id, record)
    return found


def _records(data: bytes) -> Iterator[bytes]:
    offset = 1024
    while offset + 4 <= len(data):
        (size,) = struct.unpack_from(">i", data, offset)
        if size <= 0:
            break
        yield data[offset + 4 : offset + 4 + size]
        offset += 4 + size


def _journal_records(data: bytes) -> Iterator[bytes]:
    """Records of a journal of version 5 or 6: padding is skipped, and the header is padded to 512 bytes."""
    offset = 512
    while offset + 4 <= len(data):
        (size,) = struct.unpack_from(">i", data, offset)
        if size == 0:
            return
        if size == -0x100:  # padding
            (skipped,) = struct.unpack_from(">i", data, offset + 4)
            offset += 8 + skipped
            continue
        yield data[offset + 4 : offset + 4 + size]
        offset += 4 + size


def writes_of(version_2: Path) -> Iterator[tuple[int, str, bytes | None]]:
    """(time in ms, path, value or None) of every create, set and delete in the logs of ZooKeeper, in order."""
    for log in sorted(version_2.glob("log.*"), key=lambda file: int(file.name[4:], 16)):
        data, offset = log.read_bytes(), 16
        while offset + 12 <= len(data):
            _, size = struct.unpack_from(">qi", data, offset)
            if size <= 0:
                break
            body = data[offset + 12 : offset + 12 + size]
            (time_ms, kind) = struct.unpack_from(">qi", body, 20)
            yield from ((time_ms, path, value) for path, value in _writes(kind, body[32:]))
            offset += 12 + size + 1


def _writes(kind: int, body: bytes) -> Iterator[tuple[str, bytes | None]]:
    if kind == 14:
        (count,) = struct.unpack_from(">i", body)
        offset, parts = 4, []
        for _ in range(count):
            part, size = struct.unpack_from(">ii", body, offset)
            parts.append((part, body[offset + 8 : offset + 8 + size]))
            offset += 8 + size
        if all(part != -1 for part, _ in parts):
            for part, raw in parts:
                yield from _writes(part, raw)
    elif kind in (1, 5, 15, 19, 21, 2, 20):
        (size,) = struct.unpack_from(">i", body)
        path, rest = body[4 : 4 + size].decode(), body[4 + size :]
        if kind in (2, 20):
            yield path, None
            return
        (size,) = struct.unpack_from(">i", rest)
        yield path, rest[4 : 4 + size] if size > 0 else b""


def deleted_ledgers(version_2: Path) -> set[int]:
    """The ledgers whose node was made and is gone."""
    alive: dict[int, bool] = {}
    for _, path, value in writes_of(version_2):
        parts = path.split("/")
        if parts[1] == "ledgers" and len(parts) == 5 and parts[4].startswith("L"):
            alive[int(parts[2] + parts[3] + parts[4][1:])] = value is not None
    return {ledger_id for ledger_id, there in alive.items() if not there}
