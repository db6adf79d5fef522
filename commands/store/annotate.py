"""``store annotate``."""

from __future__ import annotations

import click

from pulsar_admin.context import App
from pulsar_admin.options import TopicSelection, command, pass_app, topics_argument
from pulsar_admin.store.errors import IndexCorrupt, MetadataCorrupt, StalePlan, TopicNotFound
from pulsar_admin.store.model.publish_times import FORMS, Form


@command(
    "annotate",
    changes=True,
    examples=["pulsar-admin store annotate public/default/plain --dry-run", "pulsar-admin store annotate --all-topics"],
    elsewhere=["pulsar-admin store annotate --pattern 'acme/*/*' --form fields"],
    output="The change: a row a topic, how many of its ledgers state their publish times, and the undo command.",
    errors=[TopicNotFound, MetadataCorrupt, IndexCorrupt, StalePlan],
)
@topics_argument
@click.option(
    "--form",
    type=click.Choice(FORMS),
    default=FORMS[0],
    show_default=True,
    help="Where: properties of the ledger, which brokers keep; fields 6 and 7 of LedgerInfo, as PIP-345 proposed them.",
)
@pass_app
def annotate(app: App, selection: TopicSelection, form: Form) -> None:
    """Write the first and last publish time (PIP-345) of closed ledgers into their topics' metadata.

    Taken from the index, for every ledger whose entries are all available. Later searches then know the times without
    the entries.
    """
    app.change(app.session.api.annotate(*map(str, selection.topics), pattern=selection.pattern, form=form))
