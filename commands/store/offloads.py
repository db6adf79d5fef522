"""``store add offload``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pulsar_admin.commands.store.importing import text_rows
from pulsar_admin.context import App
from pulsar_admin.options import command, pass_app
from pulsar_admin.store.errors import (
    DiskFull,
    EntryLogCorrupt,
    MetadataCorrupt,
    NotFound,
    NotWritable,
    SourceNotFound,
    StoreBusy,
    Unsupported,
)
from pulsar_admin.store.wording import counted, listed

if TYPE_CHECKING:
    from pulsar_admin.store.transfer.offloads import OffloadResult


@command(
    "offload",
    examples=[],
    elsewhere=[
        "pulsar-admin store add offload /copy/bucket",
        "pulsar-admin store add offload s3://bucket/prefix?region=us-east-1",
    ],
    output="Ledgers, entries and bytes; ledgers that are not there. Exit code 1 when any is not.",
    errors=[SourceNotFound, NotFound, EntryLogCorrupt, MetadataCorrupt, Unsupported, StoreBusy, DiskFull, NotWritable],
    uses=["dry_run", "now"],
)
@click.argument("place", metavar="DIR|URL")
@pass_app
def add_offload(app: App, place: str) -> None:
    """Add ledgers that were offloaded to tiered storage to the store.

    Reads the ledgers that topics name and the store lacks: objects of the jcloud offloader (a directory of them, or the
    URL of a bucket and prefix), and MapFiles of the file system offloader. All of their entries are copied into the
    store, or none.
    """
    result = app.session.api.add_offload(place, dry_run=app.settings.dry_run)
    app.problems(len(result.absent))
    app.emit(result, plain=render)


def render(result: OffloadResult) -> str:
    """Return the result as lines of text."""
    absent = listed(result.absent, 20)
    rows = [
        ("store", result.store),
        ("place", result.place),
        ("ledgers", f"{result.ledgers:,}"),
        ("entries", f"{result.entries:,} ({result.bytes:,} bytes)"),
        ("here already", counted(result.here, "ledger")),
        ("not there", f"{counted(len(result.absent), 'ledger')}{': ' if absent else ''}{absent}"),
    ]
    return text_rows(rows + [("dry run", "nothing was written")] * result.dry_run)
