"""``topics stats-internal``, ``partitioned-stats-internal``."""

from __future__ import annotations

from collections.abc import Mapping

import click

from commands.topics.answers import answer, choose_partitioned, emit_answers, report
from pulsar_admin.columns import Column
from pulsar_admin.context import App
from pulsar_admin.options import TopicSelection, command, pass_app, topics_argument
from store.errors import MetadataCorrupt, StoreError, TopicNotFound
from store.model.reader import EntryReader, open_reader
from store.names import TopicName
from store.reports.internal_stats import InternalStats, read_internal_stats

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
def stats_internal(app: App, selection: TopicSelection, metadata: bool, explained: bool) -> None:
    """Show the ledgers and cursors of a topic.

    Cursors are shown where they really stand, also those whose newest state is in a cursor ledger.
    """
    problems: list[StoreError] = []

    def work(reader: EntryReader, name: TopicName) -> InternalStats:
        return read_internal_stats(reader, name, metadata=metadata, publish_times=explained, problems=problems)

    answer(app, selection, work, _STATS_COLUMNS)
    report(app, problems)


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
def partitioned_stats_internal(app: App, selection: TopicSelection, metadata: bool, explained: bool) -> None:
    """Show the ledgers and cursors of every partition of a topic."""
    problems: list[StoreError] = []
    with open_reader(app.store) as reader:
        chosen = choose_partitioned(app, reader.txn, selection)
        options = {"metadata": metadata, "publish_times": explained}
        found = list(chosen.each(app, lambda name: _partitions(reader, name, options, problems)))
    emit_answers(app, found, (), several=chosen.several)
    report(app, problems)


def _partitions(
    reader: EntryReader, name: TopicName, options: Mapping[str, bool], problems: list[StoreError]
) -> dict[str, object]:
    from store.model.partitions import existing_partitions, read_partitioned

    parts = {
        str(part): read_internal_stats(reader, part, problems=problems, **options)
        for part in existing_partitions(reader.txn, name)
    }
    return {"metadata": read_partitioned(reader.txn, name), "partitions": parts}
