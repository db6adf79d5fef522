"""Ids for the ledgers that a change writes: behind every id the store and its source know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from store.codec.rocksvalue import decode_counter
from store.db.environment import Store, Txn
from store.db.own_ledgers import RESERVED_GAP, SEQUENCE_KEY, OwnLedgers, find_own_ledgers, largest_ledger_id
from store.wording import counted, listed


def next_own_ledgers(store: Store, txn: Txn) -> OwnLedgers:
    """Return the ids given so far; before the first one, where they begin. Looks at the source's sequence then."""
    found = find_own_ledgers(txn)
    above = largest_ledger_id(txn) + 1
    if found is not None:
        return OwnLedgers(found.first_id, max(found.next_id, above))
    first = max(above, source_sequence(store)) + (RESERVED_GAP if store.info.sources else 0)
    return OwnLedgers(first, first)


def source_sequence(store: Store) -> int:
    """Return the next id that the sequence of a source in RocksDB gives; 0 when the source is gone or has none."""
    from store.sources.rocksdb import read_values  # rocksdict costs 30 ms

    sequences = [0]
    for source in store.info.sources:
        path = Path(source.get("path", ""))
        metadata = path if source.get("kind") == "rocksdb" else path / "metadata"
        if source.get("kind") in ("standalone", "rocksdb") and (metadata / "CURRENT").is_file():
            raw = read_values(metadata, [SEQUENCE_KEY]).get(SEQUENCE_KEY)
            sequences.append(0 if raw is None else decode_counter(raw, str(metadata)))
    return max(sequences)


def way_back_of(store: Store, ledger_ids: Sequence[int]) -> tuple[str, ...]:
    """Return what an export leaves to do for LEDGER_IDS, which a change wrote: a standalone's export brings them to its bookie."""
    sources = [source for source in store.info.sources if not _is_standalone(source)]
    if not ledger_ids or not sources:
        return ()
    return (
        f"no bookie has {counted(len(ledger_ids), 'ledger')} that this wrote ({listed(ledger_ids, 3)}): bring the entries to bookies"
        " with `store export bookie` before `store export zookeeper`, which refuses them until then",
    )


def _is_standalone(source: Mapping[str, Any]) -> bool:  # Any: JSON
    """Whether SOURCE is a directory with RocksDB; one that is gone is taken for one."""
    root = Path(source.get("path", ""))
    return source.get("kind") == "standalone" and ((root / "metadata" / "CURRENT").is_file() or not root.is_dir())
