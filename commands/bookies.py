"""``bookies``: which there are, and their racks."""

from __future__ import annotations

from typing import Any

from pulsar_admin.context import App, Printed, Shown
from pulsar_admin.store.errors import InvalidValue, MetadataCorrupt, ResourceNotFound, StoreNotFound
from pulsar_admin.upstream import mirrored

_HELPS = {
    "bookie": "The bookie, HOST:PORT.",
    "rack": "The rack, such as /rack-1; with regions /region/rack.",
    "group": "The group of bookies that it belongs to.",
    "hostname": "The host that it runs on.",
}
_SETS: Any = {"changes": True, "helps": _HELPS}  # Any: keywords of click


@mirrored("bookies list-bookies", examples=["pulsar-admin bookies list-bookies"], errors=[StoreNotFound])
def list_all(app: App) -> Shown:
    """List the bookies that have a cookie, whether they run or not."""
    return Printed({"bookies": [{"bookieId": bookie} for bookie in app.resources.bookies()]})


@mirrored("bookies racks-placement", examples=["pulsar-admin bookies racks-placement"], errors=[MetadataCorrupt])
def racks(app: App) -> Shown:
    """Show the racks of all bookies by group."""
    return Printed(app.resources.bookie_racks())


@mirrored(
    "bookies get-bookie-rack",
    helps=_HELPS,
    examples=[],
    elsewhere=["pulsar-admin bookies get-bookie-rack -b bookie-1:3181"],
    errors=[ResourceNotFound, MetadataCorrupt],
)
def get(app: App, bookie: str) -> Shown:
    """Show the rack of a bookie."""
    return Printed(app.resources.bookie_rack(bookie))


@mirrored(
    "bookies set-bookie-rack",
    examples=["pulsar-admin bookies set-bookie-rack -b bookie-1:3181 -r /rack-1 --dry-run"],
    errors=[InvalidValue],
    **_SETS,
)
def set_rack(app: App, bookie: str, rack: str, group: str, hostname: str | None) -> None:
    """Put a bookie into a rack."""
    app.change(app.resources.set_bookie_rack(bookie, rack, group=group, hostname=hostname))


@mirrored(
    "bookies delete-bookie-rack",
    examples=[],
    elsewhere=["pulsar-admin bookies delete-bookie-rack -b bookie-1:3181"],
    errors=[ResourceNotFound],
    **_SETS,
)
def delete(app: App, bookie: str) -> None:
    """Take a bookie out of its rack."""
    app.change(app.resources.delete_bookie_rack(bookie))
