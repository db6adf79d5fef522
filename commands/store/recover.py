"""``store recover``."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pulsar_admin.commands.mending import accept_option
from pulsar_admin.context import App
from pulsar_admin.options import command, pass_app
from pulsar_admin.store.errors import MetadataCorrupt, Refused, StalePlan, StoreNotFound, Unsupported

if TYPE_CHECKING:
    from pulsar_admin.api.recovering import RecoveryLevel

_LEVELS = ("A", "B", "C")


@command(
    "recover",
    changes=True,
    examples=["pulsar-admin store recover --dry-run"],
    elsewhere=[
        "pulsar-admin store recover --level A --cluster prod --earlier backup-store",
        "pulsar-admin store recover --level B --plan recover.json",
        "pulsar-admin --store bookies-alone store recover --level C --names names.csv --dry-run",
    ],
    output="The change: each topic with its ledgers, each subscription with its position, schemas, namespaces, and their witnesses.",
    errors=[StoreNotFound, Refused, Unsupported, MetadataCorrupt, StalePlan],
    uses=["spark"],
)
@click.option("--level", type=click.Choice(_LEVELS), help="What is left [detected from the store].")
@click.option("--cluster", metavar="NAME", help="The cluster's name, if it is lost too.")
@click.option(
    "--earlier",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="STORE",
    help="A store with an earlier state of this metadata, for facts that no ledger records.",
)
@click.option(
    "--names",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Names for what level C finds: FILE is written if it does not exist, otherwise read.",
)
@accept_option
@pass_app
def recover(
    app: App,
    level: RecoveryLevel | None,
    cluster: str | None,
    earlier: Path | None,
    names: Path | None,
    accept_unknown_tree: tuple[str, ...],
) -> None:
    """Rebuild lost metadata from what bookies and ledgers still record.

    A: ledgers are listed (/ledgers), but their topics, schemas or policies are gone. B: the metadata is older than the
    bookies, for example a restored backup. C: only bookies are left. Only facts on which two sources agree are
    combined; A changes nothing that exists. Needs a store of all bookies.
    """
    from pulsar_admin import open_store

    with nullcontext() if earlier is None else open_store(earlier) as before:
        plan = app.session.api.recover(
            level=level, cluster=cluster, earlier=before, names=names, accept_unknown_tree=accept_unknown_tree
        )
    app.change(plan)
