"""ZooKeeper's files read as a whole, for comparison."""

from collections.abc import Iterator
from pathlib import Path

from pulsar_admin.store.codec.jute import HEADER
from pulsar_admin.store.codec.zookeeper import ZooKeeperNode
from pulsar_admin.store.codec.zookeeper_log import BadRecord, Transaction, check_log_header, iter_records
from pulsar_admin.store.sources.zookeeper import Notes, ServerFiles, read_tree


def read_zookeeper_nodes(
    directory: Path, problems: list[str], notes: list[str] | None = None
) -> Iterator[ZooKeeperNode]:
    """Yield the persistent nodes of DIRECTORY in path order."""
    found = Notes()
    yield from read_tree((ServerFiles(directory, directory),), problems, notes=found).persistent()
    if notes is not None:
        notes += found.not_needed + found.log_ends


def iter_transactions(data: bytes | bytearray, where: str) -> Iterator[Transaction | BadRecord]:
    """Yield what is in the log DATA, which is in memory and taken apart without short cuts."""
    check_log_header(data[: HEADER.size], where)
    yield from iter_records(memoryview(data), HEADER.size, 0, where)
