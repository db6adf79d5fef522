"""Numbers of a topic: ``topics stats``, ``stats-internal``, ``info-internal``, ``get-backlog-size``, ``analyze-backlog``."""

from collections.abc import Iterator

import click
from msgspec.structs import replace

from pulsar_admin.columns import Column, caution, messages_of, telling
from pulsar_admin.commands.topics.answers import TOPIC_COLUMN, answer, answer_partitioned, answers_of, choose
from pulsar_admin.context import App, Result, Table
from pulsar_admin.jsonify import dump_gson, to_json
from pulsar_admin.options import (
    POSITION,
    TopicSelection,
    command,
    flag,
    redact_properties_option,
    subscription_option,
    topics_argument,
)
from pulsar_admin.store.errors import MetadataCorrupt, SubscriptionNotFound, TopicNotFound
from pulsar_admin.store.names import Position

_STATS_COLUMNS = (
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
_INTERNAL_COLUMNS = (
    Column("ENTRIES", "numberOfEntries", "number", sums=True),
    Column("BYTES", "totalSize", "bytes", sums=True),
    Column("LAST ENTRY", "lastConfirmedEntry", drop=3),
    Column("STATE", "state", drop=1),
    Column("LEDGERS", lambda row: len(row["ledgers"]), "number", drop=4),
    Column("CURSORS", lambda row: len(row["cursors"]), "number", drop=2),
)
_precise = flag("-gpb", "--get-precise-backlog", "precise", help="Accepted: the backlog is always precise.")
_sizes = click.option(
    "-sbs",
    "--get-subscription-backlog-size",
    "sizes",
    is_flag=True,
    default=True,
    flag_value=False,
    help="Without the size of each subscription's backlog (-1): upstream's flag switches it off.",
)
_earliest = flag(
    "-etb", "--get-earliest-time-in-backlog", "earliest", help="Also the time of the oldest entry in the backlog."
)
_explain = flag(
    "--explain",
    "explained",
    help="Also beginPublishTimestamp and endPublishTimestamp of each ledger (PIP-345), and where they are from.",
)
_metadata = flag("-m", "--metadata", help="Also each ledger's metadata in BookKeeper.")


@command(
    "topics stats",
    examples=["public/default/plain", "acme/delayed/reminders -etb", "--pattern 'acme/*' -o table"],
    output="Sizes, backlogs and subscriptions with upstream's keys; rates and counters of a running broker are 0. "
    "docs/what-a-store-knows.md lists them.",
    errors=[TopicNotFound, MetadataCorrupt],
)
@topics_argument
@_precise
@_sizes
@_earliest
@flag("--explain", help="Also topicCreationTimeStamp and lastPublishTimeStamp, as brokers from 4.1 on.")
@redact_properties_option
def stats(
    app: App, selection: TopicSelection, sizes: bool, earliest: bool, explain: bool, redact: bool, precise: bool
) -> Result:
    """Show the size of a topic and the backlog of its subscriptions."""
    wanted = {"earliest_time": earliest, "backlog_size": sizes, "newer_keys": explain}
    return _in_words(answer(app, selection, lambda topic: topic.stats(**wanted), _STATS_COLUMNS, redact=redact))


_OF_SUBSCRIPTION = (
    Column("SUBSCRIPTION", "name"),
    Column("BACKLOG", "msgBacklog", "number"),
    Column("SIZE", "backlogSize", "size"),
    Column("OLDEST", "earliestMsgPublishTimeInBacklog", "time"),
    Column("DELAYED", "msgDelayed", "number"),
    Column("ACKED RANGES", "nonContiguousDeletedMessagesRanges", "number"),
)


def _in_words(result: Result) -> Result:
    """Return ``result`` with a screen without zeros and a row per subscription, if it is the answer for one topic."""
    if result.value is None:
        return result

    def screen(_: int) -> Iterator[str | Table]:
        from pulsar_admin.output import NOTHING, TOLD, told_fields

        document = to_json(result.value)
        subscriptions = [{"name": name, **one} for name, one in document.pop("subscriptions", {}).items()]
        told = [(key, value) for key, value in told_fields(document) if value not in NOTHING]
        if told:
            yield Table(told, TOLD)
        if subscriptions:
            yield "\n"
            yield Table(subscriptions, telling(_OF_SUBSCRIPTION, subscriptions))
        yield "\nZeros, such as a broker's rates and counters, are left out; -o json has all.\n"

    return replace(result, terminal=screen)


@command(
    "topics partitioned-stats",
    examples=["acme/orders/parts", "acme/orders/parts --per-partition"],
    output="What stats shows, summed over the partitions, and `metadata`, `partitions`.",
    errors=[TopicNotFound, MetadataCorrupt],
)
@topics_argument
@flag("--per-partition", help="Also each partition.")
@_precise
@_sizes
@_earliest
@redact_properties_option
def partitioned_stats(
    app: App, selection: TopicSelection, per_partition: bool, sizes: bool, earliest: bool, redact: bool, precise: bool
) -> Result:
    """Show the size and the backlogs of a partitioned topic, summed over its partitions."""
    wanted = {"per_partition": per_partition, "earliest_time": earliest, "backlog_size": sizes}
    return _in_words(
        answer_partitioned(
            app, selection, lambda topic: topic.partitioned_stats(**wanted), _STATS_COLUMNS, redact=redact
        )
    )


def _time_ms(text: str) -> int:
    """Return the epoch ms of upstream's time text, which omits trailing zeros of the fraction of a second."""
    from pulsar_admin.store.timespec import parse_time

    return parse_time(text, now_ms=0)


_INFO_COLUMNS = (
    Column("VERSION", "version", "id", drop=1),
    Column("CREATED", lambda row: _time_ms(row["creationDate"]), "time"),
    Column("MODIFIED", lambda row: _time_ms(row["modificationDate"]), "time", drop=2),
    Column("LEDGERS", lambda row: len(row["ledgers"]), "number"),
    Column("CURSORS", lambda row: len(row["cursors"]), "number"),
)


@command(
    "topics stats-internal",
    examples=[
        "public/default/plain",
        "acme/orders/compacted -m",
        "acme/orders/compacted --explain",
        "--pattern 'acme/*' -o table",
    ],
    output="Ledgers, cursors, schema and compacted ledgers with upstream's keys. docs/what-a-store-knows.md says which values "
    "a store cannot know.",
    errors=[TopicNotFound, MetadataCorrupt],
)
@topics_argument
@_metadata
@_explain
def stats_internal(app: App, selection: TopicSelection, metadata: bool, explained: bool) -> Result:
    """Show the ledgers and cursors of a topic.

    Cursors are shown at their real positions, including those whose newest state is in a cursor ledger.
    """
    return answer(
        app,
        selection,
        lambda topic: topic.internal_stats(metadata=metadata, publish_times=explained),
        _INTERNAL_COLUMNS,
    )


@command(
    "topics partitioned-stats-internal",
    examples=["acme/orders/parts"],
    output="`metadata` with the number of partitions, `partitions`: name → what stats-internal shows.",
    errors=[TopicNotFound, MetadataCorrupt],
)
@topics_argument
@_metadata
@_explain
def partitioned_stats_internal(app: App, selection: TopicSelection, metadata: bool, explained: bool) -> Result:
    """Show the ledgers and cursors of every partition of a topic."""
    return answer_partitioned(
        app, selection, lambda topic: topic.partitioned_internal_stats(metadata=metadata, publish_times=explained)
    )


@command(
    "topics info-internal",
    examples=["acme/iot/skewed", "acme/orders/parts", "--all-topics -o table"],
    output="The stored metadata of the topic and its cursors with upstream's keys; of a partitioned topic `partitions`: name → "
    "the same.",
    errors=[TopicNotFound, MetadataCorrupt],
)
@topics_argument
@_explain
def info_internal(app: App, selection: TopicSelection, explained: bool) -> Result:
    """Show the stored metadata of a topic.

    A cursor with a cursorsLedgerId is not at the markDelete shown here: use stats-internal.
    """
    with app.session.read() as txn:
        chosen = choose(app, txn, selection)
        infos = list(chosen.each(app, lambda name: app.topic(name).internal_info(publish_times=explained)))
    if selection.single is not None and selection.single not in chosen.names:
        return _by_gson(Result({"version": 0, "partitions": {str(name): info for name, info in infos}}))
    answers = answers_of(infos, _INFO_COLUMNS, several=chosen.several)
    return answers if chosen.several else _by_gson(answers)


def _by_gson(found: Result) -> Result:
    """Return the answer in Gson's format, which upstream uses for this command instead of Jackson's."""
    return replace(found, screen=lambda _: [dump_gson(found.value) + "\n"], texts=(None,))


_SIZE_COLUMNS = (TOPIC_COLUMN, Column("BACKLOG BYTES", "backlogSize", "bytes", tone=caution, sums=True))


@command(
    "topics get-backlog-size",
    examples=["public/default/plain", "public/default/plain -m 9:3", "--pattern 'acme/*' -o jsonl"],
    output="Bytes after the position, estimated as the broker does. Several topics: one row each.",
    errors=[TopicNotFound, MetadataCorrupt],
)
@topics_argument
@click.option(
    "-m",
    "--messageId",
    "position",
    type=POSITION,
    default="-1:-1",
    help="Count from after this position [the whole topic].",
)
def get_backlog_size(app: App, selection: TopicSelection, position: Position) -> Result:
    """Show how many bytes follow a position."""
    with app.session.read() as txn:
        chosen = choose(app, txn, selection)
        sizes = list(chosen.each(app, lambda name: app.topic(name).backlog_size(position)))
    if not chosen.several:
        return Result(sizes[0][1])
    return Result(rows=({"topic": str(name), "backlogSize": size} for name, size in sizes), columns=_SIZE_COLUMNS)


_ANALYSIS_COLUMNS = (
    Column("ENTRIES", "entries", "number"),
    Column("MESSAGES", messages_of, "number"),
    Column("FIRST", "firstMessageId"),
    Column("LAST", "lastMessageId"),
)


@command(
    "topics analyze-backlog",
    examples=["public/default/plain -s holes", "public/default/batched -s batch-holes -p earliest"],
    output="Entries and messages of the backlog, the first and the last, with upstream's keys. Nothing is capped: `aborted` is false.",
    errors=[TopicNotFound, SubscriptionNotFound, MetadataCorrupt],
    uses=["spark"],
)
@topics_argument
@subscription_option
@click.option("-p", "--position", type=POSITION, help="Count from here, even before the mark-delete position.")
def analyze(app: App, selection: TopicSelection, subscription: str, position: Position | None) -> Result:
    """Count a subscription's backlog.

    Individually deleted entries are not counted; acknowledgements inside a batch are not subtracted, as the broker does. How many
    messages an entry without bytes has is not known: `uncountedEntries` counts such entries, and the exit code is 1.
    """
    with app.bulk():
        return answer(app, selection, lambda topic: topic.cursor(subscription).analyze(position), _ANALYSIS_COLUMNS)
