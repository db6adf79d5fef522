"""ZooKeeper's recorded files for the tests of this directory, and what its own classes say of every transaction in them."""

import gzip
import os
import tarfile
from functools import cache
from pathlib import Path
from typing import NamedTuple

from pulsar_admin.store.sources.zookeeper import ServerFiles

GOLDEN = Path(__file__).parent.parent / "golden"
WRITTEN_BYTES = 1 << 21  # every record lies before it; what follows are the zeros of preallocation


def unpack_zookeeper(folder: Path) -> Path:
    """Unpack the three snapshots and logs of a cluster into FOLDER, logs with some of their zeros."""
    for name, data in _recorded().items():
        (folder / name).write_bytes(data)
    return folder


@cache
def _recorded() -> dict[str, bytes]:
    with tarfile.open(GOLDEN / "zookeeper-version-2.tar.xz") as archive:
        files = ((member.name, archive.extractfile(member)) for member in archive)
        return {Path(name).name: file.read(WRITTEN_BYTES) for name, file in files if file is not None}


def linked(source: Path, folder: Path, *without: str) -> Path:
    """Link the files of SOURCE into the new FOLDER, but for those named."""
    folder.mkdir(parents=True)
    for file in source.iterdir():
        if file.name not in without:
            os.link(file, folder / file.name)
    return folder


def servers(*folders: Path) -> tuple[ServerFiles, ...]:
    """Each of FOLDERS as the files of a server."""
    return tuple(ServerFiles(folder, folder) for folder in folders)


class Said(NamedTuple):
    """One change as ZooKeeper's ``FileTxnLog`` and ``*Txn`` classes read it (``golden/ZooKeeperTransactions.java``)."""

    zxid: int
    time_ms: int
    session: int
    cxid: int
    kind: str
    path: str
    version: str
    data: bytes


def said_by_zookeeper() -> list[Said]:
    """Every change of every transaction in the logs of ``unpack_zookeeper``."""
    with gzip.open(GOLDEN / "zookeeper-version-2.tsv.gz", "rt") as file:
        rows = [line.rstrip("\n").split("\t") for line in file]
    return [Said(*map(int, row[:4]), *row[4:7], bytes.fromhex(row[7])) for row in rows]
