"""``store clone``: a cluster, or some of its topics, as one standalone directory that boots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from pulsar_admin.context import App
from pulsar_admin.options import TOPIC, command, pass_app
from pulsar_admin.store.errors import AlreadyExists, InvalidValue, Refused, SourceChanged, StalePlan, TopicNotFound
from pulsar_admin.store.names import TopicName


@command(
    "clone",
    changes=True,
    no_plan="a clone is not kept as a plan",
    examples=["pulsar-admin store clone copy --boot-at /pulsar/data --dry-run"],
    elsewhere=["pulsar-admin store clone copy --topic acme/orders/parts --cluster prod=lab --boot-at /lab/pulsar"],
    output="Where it starts and as what; topics, ledgers, entries and bytes; entries that are missing, by ledger; how to start it.",
    errors=[AlreadyExists, InvalidValue, Refused, TopicNotFound, StalePlan, SourceChanged],
)
@click.argument("directory", type=click.Path(path_type=Path))
@click.option(
    "--boot-at", type=click.Path(path_type=Path), metavar="PATH", help="Where DIRECTORY will be when it starts."
)
@click.option("--topic", "topics", type=TOPIC, multiple=True, help="Clone only this topic; repeatable.")
@click.option("--cluster", default="", metavar="NAME[=NEW]", help="The name of this cluster, also in the clone.")
@click.option("--bookie-id", default="127.0.0.1:3181", show_default=True, metavar="HOST:PORT", help="The bookie's id.")
@pass_app
def clone(app: App, directory: Path, topics: tuple[TopicName, ...], **where: Any) -> None:  # Any: the options above
    """Write the store's cluster as one standalone directory that can be started.

    All entries are on one bookie, which is the ensemble of every ledger; cookies, instance id and bookie are new, and
    other clusters get addresses that do not exist. A bookie's cookie contains its path: start the clone at --boot-at
    (by default DIRECTORY). With --topic, only that topic is cloned, with its schema, its namespace's policies and the
    system topics. The original is not changed.
    """
    app.emit(app.session.api.clone(directory, topics=[*map(str, topics)], **where))
