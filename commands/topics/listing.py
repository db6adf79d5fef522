"""``topics list``, ``describe``, ``subscriptions``, ``list-partitioned-topics`` and ``get-partitioned-topic-metadata``."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from pulsar_admin.columns import Column, messages_of, render_cell, size_text, telling, times_shown_in, words_of
from pulsar_admin.commands.topics.answers import TOPIC_COLUMN, answers_of, choose
from pulsar_admin.context import Answer, App, Lines, Result, Shown, Table
from pulsar_admin.jsonify import dump_json, to_json
from pulsar_admin.options import NAMESPACE, TopicSelection, command, flag, topics_argument
from pulsar_admin.spool import CellSpool, PackedCells
from pulsar_admin.store.codec.scalable import HASH_MAX, ScalableTopic, Segment
from pulsar_admin.store.db.files import iter_logs
from pulsar_admin.store.errors import InvalidValue, MetadataCorrupt, NamespaceNotFound, StoreError, TopicNotFound
from pulsar_admin.store.model.cursors import subscription_names
from pulsar_admin.store.model.scalable import read_scalable
from pulsar_admin.store.model.topics import iter_all_namespaces, scan_bytes, select_partitioned
from pulsar_admin.store.names import SCALABLE, NamespaceName, TopicName, in_hash_order, parse_topic
from pulsar_admin.store.timespec import format_age_ms
from pulsar_admin.store.wording import counted, counted_messages, shown_zone
from pulsar_admin.visible import clean_text

if TYPE_CHECKING:
    from datetime import tzinfo

    from pulsar_admin.store.facts.topics import TopicFacts
    from pulsar_admin.store.model.reader import EntryReader
    from pulsar_admin.store.reports.describe import TopicDescription
    from pulsar_admin.store.reports.subscriptions import Asked, SubscriptionFacts


_TOGETHER = 256
"""Topics that are read at once."""
_HELD_TOPICS = 20_000
"""JSON of up to this many topics is written once all of it is known; of more topics as it comes, as it would not fit into memory.
With ``--sort`` and without ``--top``, all of it is held nevertheless."""
_MANY = 1_000
"""Topics for which one look at all ledgers is cheaper than one at each of theirs, and all files are about as much as they have."""
_PART = 8 * _TOGETHER
"""Topics that one process gets at once."""

quick_option = flag("--quick", help="Read no entries: leaves out the age of the oldest one and delayed messages.")


def subscription_columns(now_ms: int) -> tuple[Column, ...]:
    """Return the columns of a table of ``SubscriptionFacts``; ages are those at ``now_ms``."""
    return (
        Column("SUBSCRIPTION", "subscription"),
        Column("POSITION", _position_text),
        Column("BACKLOG", "backlog_entries", "number"),
        Column("MESSAGES", lambda row: messages_of(row, "backlog_messages"), "number", drop=3),
        Column("OLDEST", "oldest_position", drop=4),
        Column("AGE", lambda row: None if row.oldest_publish_ms is None else now_ms - row.oldest_publish_ms, "age", 9),
        Column("ACK HOLES", "ack_holes", "number", drop=8),
        Column("ACKED BEYOND", "acknowledged_entries", "number", drop=2),
        Column("DELAYED", lambda row: row.delayed and row.delayed.entries, "number", drop=7),
        Column("NEXT DUE", lambda row: row.delayed and row.delayed.next_due_ms, "time", drop=1),
        Column("TTL", _ttl_text, drop=6),
        Column("CURSOR", "source", drop=5),
    )


def _position_text(row: SubscriptionFacts) -> str:
    stored = row.stored_mark_delete
    return str(row.mark_delete) if stored is None else f"{row.mark_delete} (stored: {stored})"


def _ttl_text(row: SubscriptionFacts) -> str | None:
    ttl = row.ttl
    return None if ttl is None or ttl.seconds <= 0 else f"{format_age_ms(ttl.seconds * 1000)} ({ttl.source})"


class _Part(Struct, frozen=True):
    """Topics whose table rows can be made in another process: the requested facts, and how cells are rendered."""

    names: tuple[TopicName, ...]
    asked: Asked
    now_ms: int
    bare: bool
    zone: tzinfo | None


def _spool(now_ms: int, *, bare: bool) -> CellSpool:
    """Return a spool for the cells of ``SubscriptionFacts``; ``bare``: see ``Column.cell``."""
    return CellSpool((TOPIC_COLUMN, *subscription_columns(now_ms)), bare=bare)


def _make_cells(reader: EntryReader, part: _Part) -> PackedCells | None:
    """Return the cells of all subscriptions of ``part``; None if there is a problem that the main process must report."""
    from pulsar_admin.broken import texts_of_broken
    from pulsar_admin.store.reports.subscriptions import iter_facts, prepare_facts

    problems: list[StoreError] = []
    with times_shown_in(part.zone), _spool(part.now_ms, bare=part.bare) as cells:
        for start in range(0, len(part.names), _TOGETHER):
            some = part.names[start : start + _TOGETHER]
            prepared = prepare_facts(reader, some, part.asked)
            try:
                cells.add([one for name in some for one in iter_facts(prepared[name], part.asked, problems.append)])
                doubtful = (one.topic for one in prepared.values() if not _is_whole(one))
                if problems or any(texts_of_broken(reader.txn, topic) for topic in doubtful):
                    return None
            except (StoreError, KeyError):  # a topic that was not prepared: the main process reports its error
                return None
        try:
            reader.txn.check_met()
        except StoreError:  # an altered row, which the main process reports
            return None
        return cells.packed()


def _add_cells(app: App, reader: EntryReader, names: Sequence[TopicName], cells: CellSpool, *, quick: bool) -> None:
    """Add the cells of all subscriptions of topics to ``cells``; for very many topics, several processes make them."""
    from pulsar_admin.store.facts.processes import Spread, others_that_pay
    from pulsar_admin.store.reports.subscriptions import Asked

    others = 0 if app.settings.spark else others_that_pay(reader.txn, app.settings.jobs)
    if not others:
        cells.add(_each_facts(app, reader, names, quick=quick))
        return
    asked = Asked.of(app.now_ms, quick=quick)
    several = [names[start : start + _PART] for start in range(0, len(names), _PART)]
    parts = [_Part(tuple(some), asked, app.now_ms, cells.bare, shown_zone.get()) for some in several]
    with Spread(reader, _make_cells, parts, others) as results:
        for some, packed in zip(several, results, strict=True):
            if packed is not None:
                cells.add_packed(packed)
                app.count_items(len(some))
                continue
            cells.add(_each_facts(app, reader, some, quick=quick))


def _each_facts(
    app: App, reader: EntryReader, names: Sequence[TopicName], *, quick: bool
) -> Iterator[SubscriptionFacts]:
    """Yield the facts of the subscriptions of topics, read for a group of topics at a time, and warn of broken ledgers."""
    from pulsar_admin.store.reports.subscriptions import Asked, iter_facts, prepare_facts

    asked = Asked.of(app.now_ms, quick=quick)
    prepared: dict[TopicName, TopicFacts] = {}

    def read(name: TopicName) -> Sequence[SubscriptionFacts]:
        topic_facts = prepared.pop(name, None)
        if topic_facts is None:
            return app.topic(name).subscription_facts(quick=quick)
        problems: list[StoreError] = []
        facts = [*iter_facts(topic_facts, asked, problems.append)]
        app.session.partial(problems)
        if not _is_whole(topic_facts):
            app.session.warn_of_broken(reader.txn, [name])
        return facts

    if len(names) >= _MANY:
        from pulsar_admin.store.model.coverage import find_whole_ledgers

        find_whole_ledgers(reader.txn)
    for start in range(0, len(names), _TOGETHER):
        some = names[start : start + _TOGETHER]
        if len(some) > 1:
            prepared = prepare_facts(reader, some, asked)
        yield from chain.from_iterable(app.each(some, read, alone=len(names) == 1))


def _is_whole(found: TopicFacts) -> bool:
    """Whether no warning is needed about a topic's ledgers, its compaction, or the policy events of its namespace."""
    from pulsar_admin.store.model.broken_beside import find_lost_events

    with suppress(StoreError):
        return not (
            found.broken or found.compaction_cursor is not None or find_lost_events(found.reader.txn, found.topic.name)
        )
    return False


def _read_bytes(reader: EntryReader, names: Sequence[TopicName]) -> int:
    """Return the most bytes that are read: a topic's bytes once per subscription, or those of all logs for very many topics.

    In the latter case it also announces the number of index rows to the kernels' meter, which decides whether to compile.
    """
    if len(names) >= _MANY:
        from pulsar_admin.store.kernels.compiled import METER

        METER.expect(reader.txn.count("entries"))
        return sum(log.size_bytes for log in iter_logs(reader.txn))
    sizes = ((name, scan_bytes(reader.txn, [name])) for name in names)
    return sum(size * len(subscription_names(reader.txn, name)) for name, size in sizes if size)


def show_subscriptions(app: App, selection: TopicSelection, *, quick: bool) -> Iterator[Shown]:
    """Show the facts of all subscriptions of the selected topics, one row each."""
    columns = subscription_columns(app.now_ms)
    with _spool(app.now_ms, bare=not app.writes_table) as cells:
        facts: list[SubscriptionFacts] = []
        with app.session.reader() as reader:
            chosen = choose(app, reader.txn, selection, broken=False)
            with app.scan(reader, 0 if quick else _read_bytes(reader, chosen.names), "subscriptions") as scanning:
                if app.query is not None or app.writes_json:
                    each = _each_facts(app, scanning, chosen.names, quick=quick)
                    is_sorted = app.query is not None and app.query.sort and not app.query.top
                    if app.writes_json and not is_sorted and len(chosen.names) > _HELD_TOPICS:
                        yield Result(rows=each, columns=(TOPIC_COLUMN, *columns))
                        deque(each, 0)  # unreadable topics after the first --top rows are reported too
                        return
                    facts = [*each]
                else:
                    _add_cells(app, scanning, chosen.names, cells, quick=quick)
        rows: Iterable[object] = cells.rows()
        told = cells.telling()
        if facts:
            rows, told = facts, (TOPIC_COLUMN, *telling(columns, facts))
        yield Result(rows=rows, columns=told if chosen.several else told[1:])


@command(
    "topics describe",
    examples=["public/default/plain", "acme/orders/compacted --quick -o json"],
    output="Size and times, the policies that are set and where, schema, compaction, a line per subscription and per "
    "ledger. Empty columns are omitted; -o json has everything.",
    errors=[TopicNotFound, MetadataCorrupt],
    uses=["now", "spark"],
)
@topics_argument
@quick_option
def describe(app: App, selection: TopicSelection, quick: bool) -> Result:
    """Show everything known about a topic on one screen.

    A scalable topic begins with a picture of its segments. The age of a backlog is that of its first
    unacknowledged entry, by publish time. ACK HOLES are gaps before entries that were acknowledged individually;
    ACKED BEYOND counts those entries. DELAYED entries wait for their time if delayed delivery is enabled: their
    headers are read. Policies that are not set are omitted: a store does not contain a broker's defaults.
    """
    with app.session.reader() as reader:
        chosen = choose(app, reader.txn, selection)
        with app.scan(reader, 0 if quick else _read_bytes(reader, chosen.names), "describe"):
            descriptions = [one for _, one in chosen.each(app, lambda name: app.topic(name).describe(quick=quick))]
        scalable = [read_scalable(reader.txn, name) for name in selection.topics if name.domain == SCALABLE]
    return Result(
        lambda: descriptions[0],
        rows=descriptions,
        columns=_TOPIC_COLUMNS,
        screen=lambda _: chain(_layouts(scalable), _screen(descriptions, app.now_ms, app.in_terminal)),
        documents=() if chosen.several else ("json", "jsonl", "table"),
    )


_TOPIC_COLUMNS = (
    TOPIC_COLUMN,
    Column("STATE", "state"),
    Column("ENTRIES", "entries", "number"),
    Column("BYTES", "size_bytes", "number"),
    Column("FIRST PUBLISHED", "first_publish_ms", "time"),
    Column("LAST PUBLISHED", "last_publish_ms", "time"),
    Column("SUBSCRIPTIONS", lambda row: len(row.subscriptions), "number"),
    Column("LEDGERS", lambda row: len(row.ledgers), "number"),
)
_LEDGER_COLUMNS = (
    Column("LEDGER", "ledger_id", "id"),
    Column("STATE", "state"),
    Column("ENTRIES", "entries", "number"),
    Column("SIZE", "size_bytes", "size"),
    Column("FIRST PUBLISHED", "begin_publish_ms", "time"),
    Column("LAST PUBLISHED", "end_publish_ms", "time"),
    Column("CLOSED", "closed_ms", "time", drop=1),
)
_LEDGERS_SHOWN = 20
_SEGMENT_COLUMNS = (
    Column("SEGMENT", "segment_id", "id"),
    Column("HASHES", lambda row: f"{row.start:04x}-{row.end:04x}"),
    Column("STATE", lambda row: row.state.lower()),
    Column("PARENTS", lambda row: ", ".join(map(str, row.parents)) or None),
    Column("CHILDREN", lambda row: ", ".join(map(str, row.children)) or None),
    Column("CREATED", "created_ms", "time"),
    Column("SEALED", lambda row: None if row.is_active else row.sealed_ms, "time"),
    Column("TOPIC", "topic", drop=1),
)
_HASH_CELLS = 64
"""Letters of the picture that all hashes have; segments of less than three of them are not drawn one by one."""


def _layouts(found: Sequence[ScalableTopic]) -> Iterator[str | Table]:
    """Yield a picture of each scalable topic: a line per epoch shows the hash ranges of its segments, active ones in
    double lines."""
    for one in found:
        active = sum(segment.is_active for segment in one.segments)
        title = f"{one.topic}: epoch {one.epoch}, {counted(len(one.segments), 'segment')}, {active} active"
        lines = [f"{'epoch':<7}0000{'ffff':>{_HASH_CELLS - 4}}"]
        lines += (f"{epoch:<7}{_drawn(live)}" for epoch, live in one.iter_live())
        yield "\n".join([clean_text(title), *lines]) + "\n\n"
        yield Table(one.segments, telling(_SEGMENT_COLUMNS, one.segments))
        yield "\n"


def _drawn(live: Sequence[Segment]) -> str:
    cells = [" "] * _HASH_CELLS
    for segment in live:
        first, after = (edge * _HASH_CELLS // (HASH_MAX + 1) for edge in (segment.start, segment.end + 1))
        inner = max(after - first - 2, 0)
        text = f"[{str(segment.segment_id)[:inner].center(inner, '=' if segment.is_active else '-')}]"
        cells[first:after] = text[: after - first]
    return "".join(cells).rstrip()


def _screen(found: Sequence[TopicDescription], now_ms: int, in_words: bool) -> Iterator[str | Table]:
    for index, one in enumerate(found):
        rows = [f"{name:<12}{clean_text(text)}" for name, text in _facts(one, now_ms, in_words)]
        yield "\n" * bool(index) + "\n".join([clean_text(str(one.topic)), *rows]) + "\n"
        if one.subscriptions:
            yield "\n"
            yield Table(one.subscriptions, telling(subscription_columns(now_ms), one.subscriptions))
        shown = one.ledgers[-_LEDGERS_SHOWN:]
        if shown:
            yield "\n"
            yield Table(shown, telling(_LEDGER_COLUMNS, shown))
        if len(one.ledgers) > len(shown):
            yield f"the last {len(shown)} of {counted(len(one.ledgers), 'ledger')}; -o json has all\n"


def _facts(one: TopicDescription, now_ms: int, in_words: bool) -> Iterator[tuple[str, str]]:
    yield "state", f"{one.state}, created {render_cell(one.created_ms, 'time')}, last entry {one.last_confirmed}"
    amounts = f"{counted(one.entries, 'entry')}, {counted_messages(one.messages, one.uncounted_entries)}, {size_text(one.size_bytes)}"
    yield "size", f"{amounts} in {counted(len(one.ledgers), 'ledger')}"
    if one.last_publish_ms is not None:
        first, last = render_cell(one.first_publish_ms, "time"), render_cell(one.last_publish_ms, "time")
        age = render_cell(now_ms - one.last_publish_ms, "age")
        yield "published", f"{first} to {last} ({age if one.last_publish_ms > now_ms else f'{age} ago'})"
    yield from zip_longest(("policies",), _policies(one, in_words), fillvalue="")
    if one.schema is not None:
        yield "schema", f"{one.schema.type}, version {one.schema.version} of {counted(one.schema.versions, 'version')}"
    if one.compaction is not None:
        since = f"{counted(one.compaction.entries_since, 'entry')} since"
        view = "through" if one.compaction.compacted else "no compacted view; its cursor is at"
        yield "compaction", f"{view} {one.compaction.horizon}, {since}"
        for problem in one.compaction.problems:
            yield "", problem
    for key, value in sorted(one.properties.items()):
        yield "property", f"{key}={value}"


def _policies(one: TopicDescription, in_words: bool) -> Iterable[str]:
    if one.policies is None:
        return ["cannot be read"]
    if not one.policies:
        return ["none is set: a broker's defaults"]
    if in_words:
        return [f"{row.name} {words_of(to_json(row.value))} ({row.source})" for row in one.policies]
    return [f"{row.name} {dump_json(to_json(row.value), pretty=False)} ({row.source})" for row in one.policies]


@command(
    "topics list",
    examples=["public/default", "acme/orders -ist -o json", ""],
    output="Names, one per line, of a namespace in the order of pulsar-admin; a partitioned topic as its partitions.",
    errors=[NamespaceNotFound, InvalidValue],
)
@click.argument("namespace", type=NAMESPACE, required=False)
@click.option(
    "-td",
    "--topic-domain",
    type=click.Choice(["persistent", "non_persistent", "non-persistent"], case_sensitive=False),
    help="Only this domain; nothing of a non-persistent topic is on disk.",
)
@click.option("-b", "--bundle", metavar="0xLOW_0xHIGH", help="Only topics of this bundle of the namespace.")
@flag("-ist", "--include-system-topic", help="Also system topics, except those of transactions.")
def list_topics(
    app: App, namespace: NamespaceName | None, topic_domain: str | None, bundle: str | None, include_system_topic: bool
) -> Iterator[Shown]:
    """List the topics of a namespace, or all topics.

    All topics are listed namespace by namespace; --bundle needs a namespace.
    """
    domain: Any = (topic_domain or "persistent").replace("_", "-")  # Any: click checked that it is one of the two
    if bundle is not None and namespace is None:
        raise click.UsageError("--bundle: name the namespace that the bundle is of")
    with app.session.read() as txn:
        namespaces = iter_all_namespaces(txn) if namespace is None else (namespace,)
        of_namespaces = (
            app.namespace(one).topics(system=include_system_topic, bundle=bundle, domain=domain) for one in namespaces
        )
        names = (name for names in of_namespaces for name in in_hash_order(names))
        yield Lines(
            (name for name in names if "transaction" not in name or not parse_topic(name).is_of_transactions), "TOPIC"
        )


@command(
    "topics list-partitioned-topics",
    examples=["acme/orders"],
    output="Names, one per line, without partition numbers.",
    errors=[NamespaceNotFound],
)
@click.argument("namespace", type=NAMESPACE)
@flag("-ist", "--include-system-topic", help="Also system topics.")
def list_partitioned(app: App, namespace: NamespaceName, include_system_topic: bool) -> Iterator[Shown]:
    """List the partitioned topics of a namespace."""
    with app.session.read():
        names = app.namespace(namespace).partitioned_topics(system=include_system_topic)
        yield Lines(in_hash_order(names), "TOPIC")


_METADATA_COLUMNS = (Column("PARTITIONS", "partitions", "number"), Column("DELETED", "deleted"))


@command(
    "topics get-partitioned-topic-metadata",
    examples=["acme/orders/parts", "--all-topics"],
    output="`partitions`, `deleted`, and `properties` if it has any; 0 partitions for a topic that is not partitioned.",
    errors=[TopicNotFound, MetadataCorrupt],
)
@topics_argument
def partitioned_metadata(app: App, selection: TopicSelection) -> Result:
    """Show how many partitions a topic has."""
    with app.session.read() as txn:
        names = selection.topics or select_partitioned(txn, selection.pattern)
        partitioned = list(app.each(names, lambda name: (name, app.topic(name).partitioned_metadata())))
    return answers_of(partitioned, _METADATA_COLUMNS, several=selection.single is None)


_SUBSCRIPTION_COLUMNS = (TOPIC_COLUMN, Column("SUBSCRIPTIONS", lambda row: ", ".join(row["subscriptions"])))


@command(
    "topics subscriptions",
    examples=["public/default/plain", "--pattern 'public/default/*'", "public/default/plain --table"],
    output="Names, one per line; of a partitioned topic those of all its partitions. Several topics: one row each. With --table, and in "
    "a terminal without -o, one row per subscription, as in `topics describe`.",
    errors=[TopicNotFound],
    uses=["now", "spark"],
)
@topics_argument
@flag("--table", help="Position, backlog, its age, ack holes, delays and TTL of each.")
@quick_option
def subscriptions(app: App, selection: TopicSelection, table: bool, quick: bool) -> Answer:
    """List the subscriptions of a topic.

    Like pulsar-admin, leaves out the cursors of deduplication and replication and includes that of compaction.
    """
    if table or app.in_terminal:
        return show_subscriptions(app, selection, quick=quick)
    with app.session.reader() as reader:
        chosen = choose(app, reader.txn, selection)
        by_topic = dict(chosen.each(app, lambda name: app.topic(name).subscriptions()))
    if selection.single is not None:
        return Lines(in_hash_order(dict.fromkeys(chain.from_iterable(by_topic.values()))), "SUBSCRIPTION")
    rows = [{"topic": str(name), "subscriptions": cursors} for name, cursors in by_topic.items()]
    return Result(rows=rows, columns=_SUBSCRIPTION_COLUMNS)
