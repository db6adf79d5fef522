"""A store of the metadata of very many ledgers, written as an import writes it, without the files that an import would read.

``python -m bench.many_ledgers STORE --ledgers 3M --topics 1000``
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from bench.generate.spec import parse_count
from pulsar_admin.store.codec.digest import DigestType
from pulsar_admin.store.codec.ledgermetadata import (
    LedgerMetadata,
    LedgerState,
    Segment,
    encode_ledger_metadata,
    ledger_path,
)
from pulsar_admin.store.codec.managedledger import LedgerInfo, ManagedLedger, encode_managed_ledger
from pulsar_admin.store.codec.rocksvalue import NodeStat
from pulsar_admin.store.db.environment import Txn, create_store, open_store
from pulsar_admin.store.db.tree import Node, put_nodes
from pulsar_admin.store.model.references import index_owners
from pulsar_admin.store.names import parse_topic

CREATED_MS = 1_700_000_000_000
BATCH = 100_000
_STAT = NodeStat(0, 1, CREATED_MS, CREATED_MS, False)
_METADATA = LedgerMetadata(
    version=3,
    write_quorum=1,
    ensemble_size=1,
    ack_quorum=1,
    length=64,
    last_entry_id=0,
    state=LedgerState.CLOSED,
    segments=(Segment(0, ("127.0.0.1:3181",)),),
    digest_type=DigestType.CRC32C,
    password=b"",
    ctime_ms=None,
    custom={},
    ctoken=0,
)


def iter_nodes(ledgers: int, topics: int) -> Iterator[Node]:
    """Yield the nodes of ``topics`` topics that share ``ledgers`` ledgers, ids from 1 on."""
    metadata, share = encode_ledger_metadata(_METADATA), ledgers // topics
    yield from (Node(ledger_path(ledger), _STAT, metadata) for ledger in range(1, topics * share + 1))
    for topic in range(topics):
        ids = range(1 + topic * share, 1 + (topic + 1) * share)
        infos = tuple(LedgerInfo(ledger, entries=1, size_bytes=64, timestamp_ms=CREATED_MS) for ledger in ids)
        path = parse_topic(f"public/default/many-{topic}").path
        yield Node(path, _STAT, encode_managed_ledger(ManagedLedger(infos)))


def make(path: Path, ledgers: int, topics: int) -> None:
    """Make the store at ``path``."""
    create_store(path, now_ms=CREATED_MS)
    nodes = iter_nodes(ledgers, topics)
    with open_store(path, writable=True) as store:
        while batch := list(islice(nodes, BATCH)):
            store.write(lambda txn, batch=batch: _put(txn, batch))  # type: ignore[misc]  # binds this one
        store.write(lambda txn: index_owners(store, txn))


def _put(txn: Txn, batch: list[Node]) -> None:
    for node in batch:
        put_nodes(txn, [node])


def main() -> None:
    """Make the store from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store", type=Path)
    parser.add_argument("--ledgers", type=parse_count, default=3_000_000)
    parser.add_argument("--topics", type=parse_count, default=1000)
    arguments = parser.parse_args()
    make(arguments.store, arguments.ledgers, arguments.topics)


if __name__ == "__main__":
    main()
