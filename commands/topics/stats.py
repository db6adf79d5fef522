"""``topics stats``, ``topics partitioned-stats``."""

from __future__ import annotations

import click
from msgspec import Struct

from pulsar_admin.columns import Column, caution
from pulsar_admin.commands.topics.answers import answer, answer_partitioned
from pulsar_admin.context import App
from pulsar_admin.options import TopicSelection, command, gather, pass_app, redact_properties_option, topics_argument
from pulsar_admin.store.errors import MetadataCorrupt, TopicNotFound

_COLUMNS = (
    Column("BYTES", "storageSize", "bytes", sums=True),
    Column("BACKLOG BYTES", "backlogSize", "bytes", tone=caution, sums=True),
    Column("SUBSCRIPTIONS", lambda row: len(row["subscriptions"]), "number", drop=1),
    Column(
        "MOST BACKLOG",
        lambda row: max((s["msgBacklog"] for s in row["subscriptions"].values()), default=0),
        "number",
        drop=2,
    ),
)
_precise = click.option(
    "-gpb", "--get-precise-backlog", "precise", is_flag=True, help="Accepted: the backlog is always precise."
)
_sizes = click.option(
    "-sbs",
    "--get-subscription-backlog-size",
    "sizes",
    is_flag=True,
    default=True,
    flag_value=False,
    help="Without the size of each subscription's backlog (-1): upstream's flag switches off what is on by default.",
)
_earliest = click.option(
    "-etb",
    "--get-earliest-time-in-backlog",
    "earliest",
    is_flag=True,
    help="Also the time of the oldest entry in the backlog.",
)


class TopicOptions(Struct, frozen=True):
    """Which sizes and times are there, and whether to show properties."""

    sizes: bool
    earliest: bool
    explain: bool
    redact: bool


@command(
    "stats",
    examples=[
        "pulsar-admin topics stats public/default/plain",
        "pulsar-admin topics stats acme/delayed/reminders -etb",
        "pulsar-admin topics stats --pattern 'acme/*' -o table",
    ],
    output="Sizes, backlogs and subscriptions with upstream's keys; rates and counters of a running broker are 0. "
    "docs/what-a-store-knows.md lists them.",
    errors=[TopicNotFound, MetadataCorrupt],
)
@topics_argument
@_precise
@_sizes
@_earliest
@click.option(
    "--explain", is_flag=True, help="Also topicCreationTimeStamp and lastPublishTimeStamp, as brokers from 4.1 on."
)
@redact_properties_option
@gather(TopicOptions)
@pass_app
def stats(app: App, selection: TopicSelection, options: TopicOptions, precise: bool) -> None:
    """Show the size of a topic and the backlog of its subscriptions."""
    wanted = {"earliest_time": options.earliest, "backlog_size": options.sizes, "newer_keys": options.explain}
    answer(app, selection, lambda topic: topic.stats(**wanted), _COLUMNS, redact=options.redact)


class PartitionedOptions(Struct, frozen=True):
    """What to add to the sums, whether sizes of backlogs are there, and whether to show properties."""

    per_partition: bool
    sizes: bool
    earliest: bool
    redact: bool


@command(
    "partitioned-stats",
    examples=[
        "pulsar-admin topics partitioned-stats acme/orders/parts",
        "pulsar-admin topics partitioned-stats acme/orders/parts --per-partition",
    ],
    output="What stats shows, summed over the partitions, and `metadata`, `partitions`.",
    errors=[TopicNotFound, MetadataCorrupt],
)
@topics_argument
@click.option("--per-partition", is_flag=True, help="Also each partition.")
@_precise
@_sizes
@_earliest
@redact_properties_option
@gather(PartitionedOptions)
@pass_app
def partitioned_stats(app: App, selection: TopicSelection, options: PartitionedOptions, precise: bool) -> None:
    """Show the size and the backlogs of a partitioned topic, summed over its partitions."""
    wanted = {
        "per_partition": options.per_partition,
        "earliest_time": options.earliest,
        "backlog_size": options.sizes,
    }
    answer_partitioned(app, selection, lambda topic: topic.partitioned_stats(**wanted), _COLUMNS, redact=options.redact)
