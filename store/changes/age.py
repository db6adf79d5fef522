"""When anything was last brought into a store."""

from __future__ import annotations

from store.changes.plan import iter_changes
from store.db.environment import Store, Txn

_COPYING = ("store refresh", "store add")


def read_copied_ms(store: Store, txn: Txn) -> int:
    """Return the time of the last import, addition or refresh, that of its making for a store that nothing was imported into."""
    imported = [source["imported"] for source in store.info.sources if "imported" in source]
    refreshed = [change.time_ms for change in iter_changes(txn) if change.command in _COPYING]
    return max((*imported, *refreshed), default=store.info.created_ms)
