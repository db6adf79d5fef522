"""``topics stats-internal``, ``partitioned-stats-internal``, ``info-internal``."""

from __future__ import annotations

import click

from commands.topics.answers import answer, emit_answers, report, selected
from pulsar_admin.columns import Column
from pulsar_admin.context import App
from pulsar_admin.options import TopicSelection, command, pass_app, topics_argument
from store.errors import MetadataCorrupt, StoreError, TopicNotFound
from store.internalstats import InternalInfo, InternalStats, read_internal_info, read_internal_stats
from store.ledgers import EntryReader, open_reader
from store.names import TopicName

_STATS_COLUMNS = (
    Column("ENTRIES", "numberOfEntries", "number"),
    Column("BYTES", "totalSize", "number"),
    Column("LAST ENTRY", "lastConfirmedEntry"),
    Column("STATE", "state"),
    Column("LEDGERS", lambda row: len(row["ledgers"]), "number"),
    Column("CURSORS", lambda row: len(row["cursors"]), "number"),
)
_INFO_COLUMNS = (
    Column("VERSION", "version", "number"),
    Column("CREATED", "creationDate"),
    Column("MODIFIED", "modificationDate"),
    Column("LEDGERS", lambda row: len(row["ledgers"]), "number"),
    Column("CURSORS", lambda row: len(row["cursors"]), "number"),
)
_metadata_option = click.option("-m", "--metadata", is_flag=True, help="Also each ledger's metadata in BookKeeper.")


@command(
    "stats-internal",
    examples=[
        "pulsar-admin topics stats-internal public/default/plain",
        "pulsar-admin topics stats-internal acme/orders/compacted -m",
        "pulsar-admin topics stats-internal --pattern 'acme/*' -o table",
    ],
    output="Ledgers, cursors, schema and compacted ledgers with upstream's keys, and beginPublishTimestamp and "
    "endPublishTimestamp of each ledger. docs/what-a-store-knows.md says which values a store cannot know.",
    errors=[TopicNotFound, MetadataCorrupt],
)
@topics_argument
@_metadata_option
@pass_app
def stats_internal(app: App, selection: TopicSelection, metadata: bool) -> None:
    """Show the ledgers and cursors of a topic.

    Cursors are shown where they really stand, also those whose newest state is in a cursor ledger.
    """
    problems: list[StoreError] = []

    def work(reader: EntryReader, name: TopicName) -> InternalStats:
        return read_internal_stats(reader, name, metadata=metadata, problems=problems)

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
@pass_app
def partitioned_stats_internal(app: App, selection: TopicSelection, metadata: bool) -> None:
    """Show the ledgers and cursors of every partition of a topic."""
    # Imported here: stats-internal is the one that has to be quick.
    from store.partitions import select_partitioned

    problems: list[StoreError] = []
    with open_reader(app.store) as reader:
        names = select_partitioned(
            reader.txn, selection.topics, all_topics=selection.all_topics, pattern=selection.pattern
        )
        found = list(app.each(names, lambda name: (name, _partitions(reader, name, metadata, problems))))
    emit_answers(app, names, found, ())
    report(app, problems)


def _partitions(reader: EntryReader, name: TopicName, metadata: bool, problems: list[StoreError]) -> dict[str, object]:
    from store.partitions import existing_partitions, read_partitioned

    parts = {
        str(part): read_internal_stats(reader, part, metadata=metadata, problems=problems)
        for part in existing_partitions(reader.txn, name)
    }
    return {"metadata": {"partitions": read_partitioned(reader.txn, name).partitions}, "partitions": parts}


@command(
    "info-internal",
    examples=[
        "pulsar-admin topics info-internal acme/iot/skewed",
        "pulsar-admin topics info-internal acme/orders/parts",
        "pulsar-admin topics info-internal --all-topics -o table",
    ],
    output="The stored metadata of the topic and its cursors with upstream's keys, and beginPublishTimestamp and "
    "endPublishTimestamp of each ledger; of a partitioned topic `partitions`: name → the same.",
    errors=[TopicNotFound, MetadataCorrupt],
)
@topics_argument
@pass_app
def info_internal(app: App, selection: TopicSelection) -> None:
    """Show the metadata of a topic as it is stored.

    A cursor with a cursorsLedgerId is elsewhere than its markDelete here says: stats-internal shows where.
    """
    problems: list[StoreError] = []
    with open_reader(app.store) as reader:
        names = selected(reader.txn, selection)

        def work(name: TopicName) -> tuple[TopicName, InternalInfo]:
            return name, read_internal_info(reader.txn, name, problems=problems)

        found = list(app.each(names, work))
    if selection.single is not None and selection.single != names[0]:
        app.emit({"version": 0, "partitions": {str(name): info for name, info in found}})
    else:
        emit_answers(app, names, found, _INFO_COLUMNS)
    report(app, problems)
