"""``topics stats-internal``, ``partitioned-stats-internal``."""

from __future__ import annotations

import click

from pulsar_admin.columns import Column
from pulsar_admin.commands.topics.answers import answer, answer_partitioned
from pulsar_admin.context import App, Result
from pulsar_admin.options import TopicSelection, command, pass_app, topics_argument
from pulsar_admin.store.errors import MetadataCorrupt, TopicNotFound

_STATS_COLUMNS = (
    Column("ENTRIES", "numberOfEntries", "number", sums=True),
    Column("BYTES", "totalSize", "bytes", sums=True),
    Column("LAST ENTRY", "lastConfirmedEntry", drop=3),
    Column("STATE", "state", drop=1),
    Column("LEDGERS", lambda row: len(row["ledgers"]), "number", drop=4),
    Column("CURSORS", lambda row: len(row["cursors"]), "number", drop=2),
)
explain_option = click.option(
    "--explain",
    "explained",
    is_flag=True,
    help="Also beginPublishTimestamp and endPublishTimestamp of each ledger (PIP-345), and where they are from.",
)
_metadata_option = click.option("-m", "--metadata", is_flag=True, help="Also each ledger's metadata in BookKeeper.")


@command(
    "stats-internal",
    examples=[
        "pulsar-admin topics stats-internal public/default/plain",
        "pulsar-admin topics stats-internal acme/orders/compacted -m",
        "pulsar-admin topics stats-internal acme/orders/compacted --explain",
        "pulsar-admin topics stats-internal --pattern 'acme/*' -o table",
    ],
    output="Ledgers, cursors, schema and compacted ledgers with upstream's keys. docs/what-a-store-knows.md says which values "
    "a store cannot know.",
    errors=[TopicNotFound, MetadataCorrupt],
)
@topics_argument
@_metadata_option
@explain_option
@pass_app
def stats_internal(app: App, selection: TopicSelection, metadata: bool, explained: bool) -> Result:
    """Show the ledgers and cursors of a topic.

    Cursors are shown at their real positions, including those whose newest state is in a cursor ledger.
    """
    return answer(
        app,
        selection,
        lambda topic: topic.internal_stats(metadata=metadata, publish_times=explained),
        _STATS_COLUMNS,
    )


@command(
    "partitioned-stats-internal",
    examples=["pulsar-admin topics partitioned-stats-internal acme/orders/parts"],
    output="`metadata` with the number of partitions, `partitions`: name → what stats-internal shows.",
    errors=[TopicNotFound, MetadataCorrupt],
)
@topics_argument
@_metadata_option
@explain_option
@pass_app
def partitioned_stats_internal(app: App, selection: TopicSelection, metadata: bool, explained: bool) -> Result:
    """Show the ledgers and cursors of every partition of a topic."""
    return answer_partitioned(
        app, selection, lambda topic: topic.partitioned_internal_stats(metadata=metadata, publish_times=explained)
    )
