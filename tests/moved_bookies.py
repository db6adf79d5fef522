"""Clusters whose bookies were renamed, moved or lost, made of recorded ones."""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from msgspec.structs import replace

from pulsar_admin.store.codec.ledgermetadata import (
    COOKIES,
    LedgerMetadata,
    Segment,
    decode_ledger_metadata,
    encode_ledger_metadata,
    ledger_id_of_path,
)
from pulsar_admin.store.db.environment import Txn, open_store
from pulsar_admin.store.db.tree import Node, iter_nodes, row_of, tree_key
from pulsar_admin.store.model.coverage import index_absent_bookies

Change = Callable[[int, LedgerMetadata], LedgerMetadata]


def renamed(names: Mapping[str, str], ledgers: Collection[int] | None = None) -> Change:
    """Return what gives the bookies of LEDGERS, None: of all, the NAMES that they have there."""

    def change(ledger_id: int, metadata: LedgerMetadata) -> LedgerMetadata:
        if ledgers is not None and ledger_id not in ledgers:
            return metadata
        segments = (
            Segment(one.first_entry_id, tuple(names.get(member, member) for member in one.members))
            for one in metadata.segments
        )
        return replace(metadata, segments=tuple(segments))

    return change


def change_ledgers(path: Path, change: Change, without_cookies: Collection[str] = ()) -> None:
    """Let the metadata of every ledger in the store at PATH be what CHANGE makes of it, as if it had been imported so."""

    def work(txn: Txn) -> None:
        for node in list(iter_nodes(txn, "/ledgers/")):
            ledger_id = ledger_id_of_path(node.path)
            if ledger_id is not None:
                metadata = decode_ledger_metadata(node.value, node.path)
                value = encode_ledger_metadata(change(ledger_id, metadata), node.value)
                txn.put("tree", *row_of(Node(node.path, node.stat, value)))
        for bookie in without_cookies:
            txn.delete("tree", tree_key(f"{COOKIES}/{bookie}"))
        index_absent_bookies(store, txn, (), None, {}, {})

    with open_store(path, writable=True) as store:
        store.write(work)
