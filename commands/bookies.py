"""``bookies``: which there are, and their racks."""

from __future__ import annotations

from typing import Any

from pulsar_admin.context import App
from pulsar_admin.upstream import mirrored
from store.changes.racks import plan_delete_rack, plan_set_rack
from store.errors import InvalidValue, MetadataCorrupt, ResourceNotFound, StoreNotFound
from store.model.racks import BOOKIE, list_bookies, read_rack, read_racks

_HELPS = {
    "bookie": "The bookie, HOST:PORT.",
    "rack": "The rack, such as /rack-1; with regions /region/rack.",
    "group": "The group of bookies that it belongs to.",
    "hostname": "The host that it runs on.",
}
_SETS: Any = {"changes": True, "writes_first": True, "helps": _HELPS}  # Any: keywords of click


@mirrored("bookies list-bookies", examples=["pulsar-admin bookies list-bookies"], errors=[StoreNotFound])
def list_all(app: App) -> None:
    """List the bookies that have a cookie, whether they run or not."""
    with app.session.read() as txn:
        app.answer({"bookies": [{"bookieId": bookie} for bookie in list_bookies(txn)]})


@mirrored("bookies racks-placement", examples=["pulsar-admin bookies racks-placement"], errors=[MetadataCorrupt])
def racks(app: App) -> None:
    """Show the racks of all bookies by group."""
    with app.session.read() as txn:
        app.answer(
            {group: {name: BOOKIE.show(one) for name, one in found.items()} for group, found in read_racks(txn).items()}
        )


@mirrored(
    "bookies get-bookie-rack",
    helps=_HELPS,
    examples=[],
    elsewhere=["pulsar-admin bookies get-bookie-rack -b bookie-1:3181"],
    errors=[ResourceNotFound, MetadataCorrupt],
)
def get(app: App, bookie: str) -> None:
    """Show the rack of a bookie."""
    with app.session.read() as txn:
        app.answer(BOOKIE.show(read_rack(txn, bookie)))


@mirrored(
    "bookies set-bookie-rack",
    examples=["pulsar-admin bookies set-bookie-rack -b bookie-1:3181 -r /rack-1 --dry-run"],
    errors=[InvalidValue],
    **_SETS,
)
def set_rack(app: App, bookie: str, rack: str, group: str, hostname: str | None) -> None:
    """Put a bookie into a rack."""
    app.change(app.session.plan_rows(plan_set_rack, bookie, group, {"rack": rack, "hostname": hostname}))


@mirrored(
    "bookies delete-bookie-rack",
    examples=[],
    elsewhere=["pulsar-admin bookies delete-bookie-rack -b bookie-1:3181"],
    errors=[ResourceNotFound],
    **_SETS,
)
def delete(app: App, bookie: str) -> None:
    """Take a bookie out of its rack."""
    app.change(app.session.plan_rows(plan_delete_rack, bookie))
