"""A bookie's directory that is partly dead, and what is in one, read with nothing of ours: RocksDB itself and the record's own bytes."""

import hashlib
import shutil
import struct
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path

import rocksdict

from bench.generate import generate

CURRENT = Path("bookkeeper", "current")
Entry = tuple[int, int]
_IDS = struct.Struct(">qq")


def database(path: Path) -> dict[bytes, bytes]:
    """Return all rows of the RocksDB at PATH, opened as a bookie opens it, from a copy."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = shutil.copytree(path, Path(scratch, "copy"))
        opened = rocksdict.Rdict(str(copy), rocksdict.Options(raw_mode=True))
        try:
            return {bytes(key): bytes(value) for key, value in opened.items()}
        finally:
            opened.close()


def places(current: Path) -> dict[Entry, tuple[int, int]]:
    """Return (log id, offset of the size field) of every entry that the index names."""
    found = {}
    for key, value in database(current / "locations").items():
        location = int.from_bytes(value, "big")
        ledger_id, entry_id = _IDS.unpack(key)
        found[ledger_id, entry_id] = (location >> 32, (location & 0xFFFFFFFF) - 4)
    return found


def entries(current: Path, ledgers: Collection[int]) -> dict[Entry, str]:
    """Return a digest of each entry of LEDGERS, where the index names it; the ids in the record must be its own."""
    found = {}
    for entry, (log_id, offset) in places(current).items():
        if entry[0] not in ledgers:
            continue
        with (current / f"{log_id:x}.log").open("rb") as file:
            file.seek(offset)
            body = file.read(int.from_bytes(file.read(4), "big"))
        assert _IDS.unpack(body[:16]) == entry
        found[entry] = hashlib.sha256(body).hexdigest()
    return found


def records(log: Path) -> Iterator[tuple[int, int, int]]:
    """Yield (ledger, entry, bytes with the size field) of the records of LOG, its ledgers map too."""
    data = log.read_bytes()
    at = 1024
    while at + 20 <= len(data):
        size = int.from_bytes(data[at : at + 4], "big") + 4
        yield *_IDS.unpack(data[at + 4 : at + 20]), size
        at += size


def listed_ledgers(metadata: Path) -> set[int]:
    """Return the ids of the ledgers that have a node."""
    nodes = (key.decode() for key in database(metadata) if b"/L" in key and key.startswith(b"/ledgers/"))
    return {int("".join(path.split("/")[2:]).replace("L", "")) for path in nodes}


def delete_ledgers(metadata: Path, ledgers: Collection[int]) -> None:
    """Delete the nodes of LEDGERS, and what may name them."""
    opened = rocksdict.Rdict(str(metadata), rocksdict.Options(raw_mode=True))
    try:
        for ledger_id in ledgers:
            name = f"{ledger_id:010d}"
            key = f"/ledgers/{name[:2]}/{name[2:6]}/L{name[6:]}".encode()
            assert key in opened
            opened.delete(key)
        for key in [key for key in opened.keys() if key.startswith(b"/managed-ledgers/")]:  # noqa: SIM118
            opened.delete(key)
        opened.flush()
    finally:
        opened.close()
    (metadata / "rocksdict-config.json").unlink()


def disk_bytes(path: Path) -> int:
    """Return what the files below PATH take on the disk, as ``du`` counts them."""
    return sum(file.lstat().st_blocks * 512 for file in path.rglob("*") if not file.is_dir())


def half_dead_bookie(folder: Path) -> Path:
    """Make FOLDER a standalone directory of 24 ledgers in small logs, of which about two thirds have no metadata any more."""

    topics = [word for name in "abcd" for word in ("--topic", f"public/default/{name}")]
    size = [
        "--entries",
        "600",
        "--entries-per-ledger",
        "100",
        "--log-size-limit",
        "256k",
        "--message-size",
        "1000..1400",
    ]
    generate(folder, *topics, *size)
    ledgers = sorted({ledger_id for ledger_id, _ in places(folder / CURRENT)})
    dead = [ledger_id for number, ledger_id in enumerate(ledgers[:-1]) if number < 6 or number % 2]
    delete_ledgers(folder / "metadata", dead)
    return folder
