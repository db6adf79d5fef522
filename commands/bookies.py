"""``bookies``: listing and renaming bookies, and their racks."""

from typing import Any

import click

from pulsar_admin.context import App, Printed, Shown
from pulsar_admin.options import command
from pulsar_admin.store import errors
from pulsar_admin.upstream import mirrored

_HELPS = {
    "bookie": "The bookie, HOST:PORT.",
    "rack": "The rack, such as /rack-1; with regions /region/rack.",
    "group": "The group of bookies that it belongs to.",
    "hostname": "The host that it runs on.",
}
_SETS: Any = {"changes": True, "helps": _HELPS}  # Any: keywords of click


@mirrored("bookies list-bookies", "", errors=[errors.StoreNotFound])
def list_bookies(app: App) -> Shown:
    """List the bookies that have a cookie, whether they run or not."""
    return Printed({"bookies": [{"bookieId": bookie} for bookie in app.resources.bookies()]})


@mirrored("bookies racks-placement", "", errors=[errors.MetadataCorrupt])
def racks_placement(app: App) -> Shown:
    """Show the racks of all bookies by group."""
    return Printed(app.resources.bookie_racks())


@mirrored(
    "bookies get-bookie-rack",
    elsewhere=["-b bookie-1:3181"],
    helps=_HELPS,
    errors=[errors.ResourceNotFound, errors.MetadataCorrupt],
)
def get_bookie_rack(app: App, bookie: str) -> Shown:
    """Show the rack of a bookie."""
    return Printed(app.resources.bookie_rack(bookie))


@mirrored("bookies set-bookie-rack", "-b bookie-1:3181 -r /rack-1 --dry-run", errors=[errors.InvalidValue], **_SETS)
def set_bookie_rack(app: App, bookie: str, rack: str, group: str, hostname: str | None) -> None:
    """Put a bookie into a rack."""
    app.change(app.resources.set_bookie_rack(bookie, rack, group=group, hostname=hostname))


@mirrored("bookies delete-bookie-rack", elsewhere=["-b bookie-1:3181"], errors=[errors.ResourceNotFound], **_SETS)
def delete_bookie_rack(app: App, bookie: str) -> None:
    """Take a bookie out of its rack."""
    app.change(app.resources.delete_bookie_rack(bookie))


@command(
    "bookies rename",
    changes=True,
    elsewhere=["10.0.3.17:3181 bookie-1.bookie.pulsar.svc.cluster.local:3181 --dry-run", "bk1:3181 bk9:3181"],
    output="The change: the cookie, and how many ledgers, ensembles and under-replication marks name the new id.",
    errors=[errors.ResourceNotFound, errors.AlreadyExists, errors.InvalidValue, errors.Refused, errors.StalePlan],
)
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
def rename(app: App, old: str, new: str) -> None:
    """Give a bookie another id everywhere in the metadata.

    For disks whose bookie got a new address: its cookie, the ensembles of ledgers, under-replication marks and racks name NEW
    in the place of OLD. Nothing on the disks changes: `store export bookie DIR,DIR` writes the `VERSION` of the stopped
    bookie's directories, and an export of the metadata the rest. Then the bookie starts as NEW, and clients find its entries.
    """
    app.change(app.resources.rename_bookie(old, new))
