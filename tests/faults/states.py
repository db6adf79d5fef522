"""What a store, or a Pulsar directory, holds: digests of its content that do not depend on how and when it was written."""

import hashlib
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from pulsar_admin.store.db.environment import DATABASES, Txn, open_store
from pulsar_admin.store.db.files import iter_logs
from pulsar_admin.store.db.storeinfo import read_store_info
from pulsar_admin.store.dump.files import LOCK, MANIFEST
from pulsar_admin.store.errors import StoreError


def store_state(path: str) -> dict[str, str]:
    """Return a digest of each database of the store at PATH and of its own files, and what ``store.json`` says.

    Of files that the toolkit wrote, name and time of change are left out: bytes count.
    """
    root = Path(path)
    try:
        info = read_store_info(root)
    except StoreError as error:
        return {"is": error.code}
    found = {"is": info.state, "sources": json.dumps(info.sources)}
    with open_store(root, unfinished=True) as store, store.read() as txn:
        found |= {f"state {key.decode()}": _digest(value) for key, value in txn.items("state")}
        for name in DATABASES:
            if name == "state":
                continue
            digest = hashlib.blake2b(digest_size=12)
            if name == "logs":
                for log in iter_logs(txn):
                    digest.update(json.dumps(_log_facts(root, asdict(log)), sort_keys=True, default=str).encode())
            else:
                for key, value in txn.items(name):
                    digest.update(b"%d %d " % (len(key), len(value)) + key + value)
            found[name] = f"{txn.count(name)} {digest.hexdigest()}"
    return found


def _log_facts(root: Path, log: dict[str, Any]) -> dict[str, Any]:  # Any: the fields of LogFile
    if log["mode"] != "referenced":
        data = (root / log["path"]).read_bytes()
        log["content"] = hashlib.blake2b(data, digest_size=12).hexdigest()
    if log["mode"] == "own":
        for name in ("mtime_ns", "path", "log_id"):
            del log[name]
    return log


_CURRENT = "bookkeeper/current"
_DATABASES = ("metadata", f"{_CURRENT}/ledgers", f"{_CURRENT}/locations")
_LAST_ID = f"{_CURRENT}/lastId"


def directory_state(path: str) -> dict[str, Any]:  # Any: JSON
    """Return what the Pulsar directory (or other output) PATH holds: key → digest of the value of its databases, of each location
    the entry there; a digest of each other file but entry logs, which locations are for; and what should not be there.

    Databases are read by RocksDB itself, from a copy, as a broker's would: what it does not see is not there.
    """
    root = Path(path)
    if root.is_file():
        return {"files": {root.name: _digest(root.read_bytes())}, "odd": []}
    found: dict[str, Any] = {name: _pairs(root, name) for name in _DATABASES if (root / name).is_dir()}
    files = {str(file.relative_to(root)): file for file in sorted(root.rglob("*")) if file.is_file()}
    known = [name for name in files if str(Path(name).parent) in _DATABASES or name == _LAST_ID]
    known += [name for name in files if name.startswith(f"{_CURRENT}/") and name.endswith(".log")]
    known += [LOCK] if MANIFEST in files else []  # a dump has its name, and then its lock goes: nobody reads it
    found["files"] = {name: _digest(file.read_bytes()) for name, file in files.items() if name not in known}
    found["odd"] = [name for name in files if "rocksdict" in name or name.endswith((".unfinished", ".tmp"))]
    return found


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=12).hexdigest()


def _pairs(root: Path, name: str) -> dict[str, str]:
    import rocksdict

    with tempfile.TemporaryDirectory() as scratch:
        copy = shutil.copytree(root / name, Path(scratch, "copy"))
        database = rocksdict.Rdict(str(copy), rocksdict.Options(raw_mode=True))
        try:
            pairs = [(bytes(key).hex(), bytes(value)) for key, value in database.items()]
        finally:
            database.close()
    if name.endswith("locations"):
        return {key: _digest(_entry_at(root, int.from_bytes(value, "big"))) for key, value in pairs}
    return {key: _digest(value) for key, value in pairs}


def _entry_at(root: Path, location: int) -> bytes:
    """Return the entry at LOCATION: log id << 32 | offset, behind the record's size; nothing where the log is gone."""
    log = root / _CURRENT / f"{location >> 32:x}.log"
    if not log.exists():
        return b""
    with log.open("rb") as file:
        file.seek((location & 0xFFFFFFFF) - 4)
        return file.read(int.from_bytes(file.read(4), "big"))


def lose_rows(path: str) -> None:
    """Take every third row out of the index of the store at PATH, as damage would."""
    with open_store(Path(path), writable=True) as store:

        def lose(txn: Txn) -> None:
            for name in ("entries", "times"):
                for key in [key for key, _ in txn.items(name)][::3]:
                    txn.delete(name, key)

        store.write(lose)


def lose_nodes(path: str, *prefixes: str) -> None:
    """Take metadata nodes out of the store at PATH."""
    from tests import stores  # imports what this process must not, before a fork

    stores.lose_nodes(Path(path), *prefixes)


def empty_bookie_index(path: str) -> None:
    """Leave the bookie of the directory PATH an index without a row, as it makes one where it finds none."""
    from pulsar_admin.store.sources.rocksdb import create_database

    for name in ("ledgers", "locations"):
        database = Path(path, _CURRENT, name)
        shutil.rmtree(database)
        create_database(database, ())
