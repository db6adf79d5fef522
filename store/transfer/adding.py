"""``store add``: a part of a cluster comes to a store that has others. It is added to the sources, then the store is refreshed.

A source is marked in ``store.json`` until all of it is there: what was stopped goes on with the same command, or with the next refresh.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from pulsar_admin.store.codec.ledgermetadata import INSTANCE_ID
from pulsar_admin.store.db.bookies import UNFINISHED
from pulsar_admin.store.db.environment import Store
from pulsar_admin.store.db.storeinfo import StoreInfo
from pulsar_admin.store.db.tree import find_node
from pulsar_admin.store.index.build import Advance
from pulsar_admin.store.sources.bookies import find_strangers
from pulsar_admin.store.sources.cluster import (
    check_addable,
    check_instance,
    check_known,
    read_stored_layout,
    without_known,
)
from pulsar_admin.store.sources.layout import Layout
from pulsar_admin.store.transfer.imports import (
    ImportOptions,
    ImportPreview,
    Warn,
    check_outside,
    preview_of,
    source_place,
    source_rows,
)
from pulsar_admin.store.transfer.refresh import RefreshOptions, RefreshResult, refresh_store


def preview_add(store: Store, layout: Layout) -> ImportPreview:
    """Return what adding LAYOUT to STORE would read; raises what ``add_sources`` raises before it writes."""
    layout = without_known(store.info, layout)
    rows = _added_rows(store, layout, ImportOptions())
    with store.read() as txn:
        node = find_node(txn, INSTANCE_ID)
        check_known(find_strangers(txn, read_stored_layout(store.info, rows).bookies), rows)
    check_instance(layout, [] if node is None else [node])
    return preview_of(layout, store.path)


def add_sources(
    store: Store, layout: Layout, options: ImportOptions, advance: Advance, warn: Warn = lambda text: None
) -> RefreshResult:
    """Add the parts of LAYOUT to STORE (open for writing), or finish an addition of the same ones that was stopped.

    Raises Refused for what the store has already or what is of another cluster, AlreadyExists where the store lies in one of them.
    """
    rows = _added_rows(store, without_known(store.info, layout), options)
    return refresh_store(
        store, RefreshOptions(options.verify, False, options.now_ms, options.engine, rows), advance, warn
    )


def _added_rows(store: Store, layout: Layout, options: ImportOptions) -> tuple[dict[str, Any], ...]:  # Any: JSON
    rows = source_rows(layout, options)
    begun = {source_place(source) for source in store.info.sources if UNFINISHED in source}
    begun &= {source_place(row) for row in rows}
    check_outside(store.path, layout)
    check_addable(_without(store.info, begun), layout)
    return tuple(row | {UNFINISHED: True} for row in rows if source_place(row) not in begun)


def _without(info: StoreInfo, places: set[tuple[object, ...]]) -> StoreInfo:
    return replace(info, sources=tuple(source for source in info.sources if source_place(source) not in places))
