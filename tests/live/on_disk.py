"""What a broker has really written of its cursors, from its bookies' files and its metadata, by a reader of its own.

A broker counts an acknowledgement when it comes; in the cursor's ledger, or in the metadata, it is later. A test that compares
files with what the broker said waits until both are the same.
"""

import re
import shutil
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import google_crc32c
from msgspec import Struct

from pulsar_admin.store.proto.managed_ledger_pb2 import PositionInfo
from tests.live.broker import Admin, wait_until
from tests.live.comparing import place

Place = tuple[int, int]
LOG_HEADER_BYTES = 1024
JOURNAL_HEADER_BYTES = 512
_PADDING = -0x100
_DIGEST_AT, _PAYLOAD_AT = 32, 36
_LARGEST_BYTES = 1 << 22
_RANGE = re.compile(r"\((\d+):(-?\d+)\.\.(\d+):(-?\d+)]")


class Standing(Struct, frozen=True):
    """Where a cursor stands: its position, the entries acknowledged behind it, its properties."""

    mark_delete: Place
    acknowledged: frozenset[Place]
    properties: dict[str, int]


class Framed(Struct, frozen=True):
    """A record in a file: where its size is, its size, its ledger and entry, or what stands in their places."""

    offset: int
    size: int
    entry: Place


def wait_until_written(broker: Admin, topics: Sequence[str]) -> None:
    """Return when each durable cursor of TOPICS stands on disk where the broker says that it stands."""
    wait_until(lambda: are_written(broker, topics), "cursors are on disk")


def are_written(broker: Admin, topics: Sequence[str]) -> bool:
    """Whether each durable cursor of TOPICS stands on disk where the broker says that it stands."""
    said = {topic: broker.get(f"persistent/{topic}/internalStats")["cursors"] for topic in topics}
    files = _read_files(broker.folder)
    return all(
        _is_written(said[topic][name], info, files)
        for topic in topics
        for name, info in broker.get(f"persistent/{topic}/internal-info")["cursors"].items()
    )


def _is_written(said: dict[str, Any], info: dict[str, Any], files: Sequence[bytes]) -> bool:
    mark_delete = place(said["markDeletePosition"])
    broker = Standing(mark_delete, _entries(_ranges(said["individuallyDeletedMessages"])), said["properties"])
    ledger_id = info["cursorsLedgerId"]
    # Where the cursor's ledger was fenced, its state went into the metadata, and the broker still names that ledger.
    if said["cursorLedger"] not in (-1, ledger_id) and said["state"] != "NoLedger":
        return False
    if ledger_id < 0:
        at = info["markDelete"]
        ranges = [(_pair(one["from"]), _pair(one["to"])) for one in info.get("individualDeletedMessages") or ()]
        return broker == _stands(_pair(at), _entries(ranges), info.get("properties") or {})
    entry_id, payload = max(_entries_of(ledger_id, files), default=(-1, b""))
    if said["cursorLedger"] == ledger_id and said["cursorLedgerLastEntry"] != entry_id:
        return False
    return bool(payload) and broker == _standing(PositionInfo.FromString(payload))


def copy_at_rest(source: Path, target: Path) -> None:
    """Copy what a process may write to: again, until nothing changed meanwhile."""

    def state() -> dict[Path, tuple[int, int]]:
        found = {path: path.stat() for path in source.rglob("*")}
        return {path: (stat.st_size, stat.st_mtime_ns) for path, stat in found.items()}

    def is_copied() -> bool:
        shutil.rmtree(target, ignore_errors=True)
        with suppress(OSError):  # a file that was there is gone
            before = state()
            shutil.copytree(source, target)
            return state() == before
        return False

    wait_until(is_copied, f"{source} at rest")


def iter_records(path: Path) -> Iterator[Framed]:
    """Every whole record of a bookie's log or journal, those of no entry too."""
    data = path.read_bytes()
    for offset, length in _frames(data, path.suffix):
        size, ledger_id, entry_id = struct.unpack_from(">iqq", data, offset)
        if size != _PADDING:
            yield Framed(offset, length - 4, (ledger_id, entry_id))


def written_bytes(path: Path) -> int:
    """Where the records of a log or journal end, and the padding behind the last one."""
    return max(offset + length for offset, length in _frames(path.read_bytes(), path.suffix))


def _frames(data: bytes, suffix: str) -> Iterator[Place]:
    """Offset and length of every whole record and padding."""
    offset = JOURNAL_HEADER_BYTES if suffix == ".txn" else LOG_HEADER_BYTES
    while offset + 20 <= len(data):
        size, padding = struct.unpack_from(">ii", data, offset)
        length = 8 + padding if size == _PADDING else 4 + size
        if (size <= 0 and size != _PADDING) or offset + length > len(data):
            return
        yield offset, length
        offset += length


def _read_files(folder: Path) -> list[bytes]:
    """Journals first: what leaves one is in a log by then."""
    found = []
    for suffix in (".txn", ".log"):
        for path in sorted(folder.rglob(f"current/*{suffix}")):
            with suppress(FileNotFoundError):  # a journal that is not needed any more
                found.append(path.read_bytes())
    return found


def _entries_of(ledger_id: int, files: Sequence[bytes]) -> Iterator[tuple[int, bytes]]:
    """Every entry of a ledger whose CRC-32C is right: number and payload."""
    key = struct.pack(">q", ledger_id)
    for content in files:
        at = content.find(key)
        while at >= 0:
            (size,) = struct.unpack_from(">i", content, at - 4) if at >= 4 else (0,)
            record = content[at : at + size] if _PAYLOAD_AT <= size < _LARGEST_BYTES else b""
            if len(record) == size > 0:
                (digest,) = struct.unpack_from(">I", record, _DIGEST_AT)
                if google_crc32c.value(record[:_DIGEST_AT] + record[_PAYLOAD_AT:]) == digest:
                    yield struct.unpack_from(">q", record, 8)[0], record[_PAYLOAD_AT:]
            at = content.find(key, at + 1)


def _standing(info: PositionInfo) -> Standing:
    ranges = [
        (
            (one.lowerEndpoint.ledgerId, one.lowerEndpoint.entryId),
            (one.upperEndpoint.ledgerId, one.upperEndpoint.entryId),
        )
        for one in info.individualDeletedMessages
    ]
    bits = {
        (ledger.key, 64 * number + bit)
        for ledger in info.individualDeletedMessageRanges
        for number, word in enumerate(ledger.values)
        for bit in range(64)
        if word >> bit & 1
    }
    properties = {one.name: one.value for one in info.properties}
    return _stands((info.ledgerId, info.entryId), _entries(ranges) | bits, properties)


def _stands(mark_delete: Place, acknowledged: frozenset[Place], properties: dict[str, int]) -> Standing:
    """A broker that is told to reset a cursor writes the ranges that it had, too: those up to the position count for nothing."""
    return Standing(mark_delete, frozenset(place for place in acknowledged if place > mark_delete), properties)


def _ranges(text: str) -> list[tuple[Place, Place]]:
    """Ranges as the broker prints them, open below and closed above: ``[(10:2..10:4],(10:7..10:8]]``."""
    found = [tuple(map(int, match)) for match in _RANGE.findall(text)]
    return [((one[0], one[1]), (one[2], one[3])) for one in found]


def _entries(ranges: Sequence[tuple[Place, Place]]) -> frozenset[Place]:
    """The entries in ranges; one that begins in an earlier ledger begins at that ledger's end."""
    return frozenset(
        (upper[0], entry_id)
        for lower, upper in ranges
        for entry_id in range(lower[1] + 1 if lower[0] == upper[0] else 0, upper[1] + 1)
    )


def _pair(position: dict[str, int]) -> Place:
    return position["ledgerId"], position["entryId"]
