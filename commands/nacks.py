"""``nacks add``, ``due`` and ``stats``: negative acks kept for scripts; ``nacks plan``: the cost of tracking at every precision."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from pulsar_admin.api.pending import KeptNacks, Nacks, NackSizes, nack_sizes
from pulsar_admin.columns import Column, size_text
from pulsar_admin.commands.topics.moving import read_lines, shown_path
from pulsar_admin.context import App, Result, Table
from pulsar_admin.jsonify import to_json
from pulsar_admin.numbers import INTEGER, NUMBER, whole
from pulsar_admin.options import (
    DURATION,
    POSITION,
    SIZE,
    TOPIC,
    command,
    flag,
    gather,
    picture_option,
    require_plot,
    subscription_option,
)
from pulsar_admin.plot import Chart, line_chart, save_charts
from pulsar_admin.store.errors import (
    AlreadyExists,
    ChangeNotFound,
    EntryNotFound,
    IndexCorrupt,
    InvalidValue,
    MissingComponent,
    NothingMatches,
    Refused,
    StalePlan,
    StoreBusy,
    SubscriptionNotFound,
    TopicNotFound,
)
from pulsar_admin.store.nacks.buckets import MIN_NACK_DELAY_MS
from pulsar_admin.store.names import Position, TopicName
from pulsar_admin.store.timespec import format_duration_ms
from pulsar_admin.store.wording import counted

if TYPE_CHECKING:
    from pulsar_admin.store.db.nacks import KeptGroup
    from pulsar_admin.store.nacks.holes import TopicNacks
    from pulsar_admin.store.nacks.sizes import NackLoad, TrackerSizing


# -- add --------------------------------------------------------------------------------------------------------------


class AddRequest(Struct, frozen=True):
    """The options of ``nacks add``: what to track, and for how long."""

    delay_ms: int
    positions: tuple[Position, ...]
    from_file: Path | None
    holes: bool
    bits: int | None
    force: bool


@command(
    "nacks add",
    changes=True,
    uses=["now", "wait"],
    examples=[
        "public/default/plain -s holes --delay 1h --holes",
        "public/default/plain -s half --delay 10m 29:20 29:21:3 --bits 10",
    ],
    elsewhere=["public/default/plain -s half --delay 10m --from-file positions.jsonl"],
    output="The change: how many entries wait for the subscription, when the first is due, how many are new, and the undo command.",
    errors=[TopicNotFound, SubscriptionNotFound, EntryNotFound, InvalidValue, Refused, StoreBusy, StalePlan],
)
@click.argument("topic", type=TOPIC)
@click.argument("positions", type=POSITION, nargs=-1)
@subscription_option
@click.option("--delay", "delay_ms", type=DURATION, required=True, help="Due this long from now.")
@click.option(
    "--from-file",
    type=click.Path(path_type=Path, allow_dash=True),
    metavar="FILE",
    help="A position per line; - is stdin.",
)
@flag("--holes", help="The subscription's own acknowledgement holes.")
@click.option("--bits", type=INTEGER, help="Precision bits, 0 to 62 [the subscription's; 8 when it is new].")
@flag("--force", help="Also accept positions and subscriptions that the store does not know.")
@gather(AddRequest)
def add(app: App, topic: TopicName, subscription: str, options: AddRequest) -> None:
    """Track entries of a subscription for later redelivery.

    They are kept as bitmaps by time bucket and ledger, as in PIP-393: never due later than asked, and earlier by less
    than 2^bits ms. Batch indexes are dropped. An entry that is added again with another delay is due both times.
    --holes: the entries between the mark-delete position and the last individually deleted one that are not deleted.
    Lines of the file are LEDGER:ENTRY or the output of `topics read -o jsonl` and `nacks due`, optionally with a
    "delay" of their own. Changes of one subscription are undone latest first.
    """
    lines = _check_sources(options)
    _tell_floor(app, options.delay_ms)
    nacks = Nacks(app.session, topic, subscription)
    delay_ms, bits = options.delay_ms, options.bits
    if options.holes:
        plan = nacks.add_holes(delay_ms, precision_bits=bits)
    elif options.from_file is not None:
        source = shown_path(options.from_file)
        plan = nacks.add_lines(lines, delay_ms, source=source, precision_bits=bits, force=options.force)
    else:
        plan = nacks.add(options.positions, delay_ms, precision_bits=bits, force=options.force)
    app.change(plan)


def _tell_floor(app: App, delay_ms: int) -> bool:
    """Return whether most clients raise ``delay_ms`` to their minimum, and warn if so."""
    is_below = 0 < delay_ms < MIN_NACK_DELAY_MS
    if is_below:
        app.warn(f"--delay {delay_ms}ms: the Java, C++ and Python clients make it {MIN_NACK_DELAY_MS}ms, Go's does not")
    return is_below


def _check_sources(options: AddRequest) -> list[str]:
    """Return the lines of --from-file, if given; raises a usage error unless there is exactly one source of positions."""
    if bool(options.positions) + (options.from_file is not None) + options.holes != 1:
        raise click.UsageError("name positions, or give --from-file FILE, or --holes", click.get_current_context())
    return [] if options.from_file is None else read_lines(options.from_file)


DUE_COLUMNS = (
    Column("DUE", "dueTime", "time"),
    Column("TOPIC", "topic"),
    Column("SUBSCRIPTION", "subscription"),
    Column("LEDGER", "ledgerId", "id"),
    Column("ENTRY", "entryId", "id"),
)
STATS_COLUMNS = (
    Column("TOPIC", "topic"),
    Column("SUBSCRIPTION", "subscription"),
    Column("BITS", "precision_bits", "id"),
    Column("ENTRIES", "entries", "number", sums=True),
    Column("DUE", "due_entries", "number"),
    Column("LEDGERS", "ledgers", "number", drop=3),
    Column("BUCKETS", "buckets", "number", drop=2),
    Column("BITMAPS", "bitmaps", "number", drop=1),
    Column("BYTES", "size_bytes", "bytes", drop=5, sums=True),
    Column("NEXT", "next_deadline_ms", "time"),
    Column("LAST", "last_deadline_ms", "time", drop=4),
)


# -- due --------------------------------------------------------------------------------------------------------------


@command(
    "nacks due",
    changes=True,
    uses=["now", "wait"],
    elsewhere=["", "public/default/plain -s holes --pop --wait 30s -o jsonl", "--popped 17"],
    output="One row per entry, in order of time: topic, subscription, position, when it was due and, with --pop, the change.",
    errors=[TopicNotFound, ChangeNotFound, NothingMatches, StoreBusy, StalePlan, IndexCorrupt],
)
@click.argument("topics", type=TOPIC, nargs=-1)
@click.option("-s", "--subscription", help="Only this subscription.")
@flag("--pop", help="Also remove them, in one change that records them.")
@click.option("--popped", type=whole(1), metavar="CHANGE", help="Show the messages that this change popped.")
def due(app: App, topics: tuple[TopicName, ...], subscription: str | None, pop: bool, popped: int | None) -> Result:
    """List the negative acks that are due, and optionally pop them.

    Whole buckets are listed, of the named subscriptions or all; buckets that are not due are not read. --pop removes
    what it lists in the same transaction that records it: if a job is killed before it used its list, `nacks due
    --popped CHANGE` prints it again, and `store undo CHANGE` puts it back. Nothing being due is not an error.
    """
    nacks = app.nacks(topics, subscription)
    if popped is not None:
        return _due(nacks.due_groups(popped=popped), popped)
    if pop:
        return _pop(app, nacks)
    if app.settings.plan is not None:
        raise click.UsageError("--plan: only with --pop", click.get_current_context())
    return _due(nacks.due_groups())


def _pop(app: App, nacks: KeptNacks) -> Result:
    with app.session.read():
        groups, plan = list(nacks.due_groups()), nacks.pop()
    app.confirm(plan)
    (report,) = app.apply(plan)
    return _due(groups, report.number)


def due_rows(groups: Iterable[KeptGroup], change: int | None) -> Iterator[dict[str, Any]]:  # Any: JSON
    """Yield one row per entry; ``change`` is the change that popped it."""
    for group in groups:
        head = {"topic": group.topic, "subscription": group.subscription, "ledgerId": group.ledger_id}
        tail: dict[str, Any] = {"dueTime": group.due_ms} | ({} if change is None else {"change": change})
        for entry_id in group.entry_ids:
            yield head | {"entryId": entry_id} | tail


def _due(groups: Iterable[KeptGroup], change: int | None = None) -> Result:
    columns = DUE_COLUMNS if change is None else (*DUE_COLUMNS, Column("CHANGE", "change", "id"))
    return Result(rows=due_rows(groups, change), columns=columns)


# -- stats ------------------------------------------------------------------------------------------------------------


@command(
    "nacks stats",
    uses=["now", "wait"],
    elsewhere=["", "public/default/plain -s holes -o json"],
    output="One row per subscription: precision, entries waiting and due, ledgers, buckets, bitmaps, bytes, first and last deadline.",
    errors=[TopicNotFound, IndexCorrupt],
)
@click.argument("topics", type=TOPIC, nargs=-1)
@click.option("-s", "--subscription", help="Only this subscription.")
def stats(app: App, topics: tuple[TopicName, ...], subscription: str | None) -> Result:
    """Count the negative acks kept for each subscription."""
    return Result(rows=app.nacks(topics, subscription).stats(), columns=STATS_COLUMNS)


Json = dict[str, Any]  # Any: JSON values

COLUMNS = (
    Column("TAKE", lambda row: "*" if row["wanted"] else ""),
    Column("BITS", "precisionBits", "id"),
    Column("BUCKET", "bucket", "duration"),
    Column("EARLY MAX", "worstEarly", "duration"),
    Column("EARLY MEAN", "meanEarly", "duration", drop=1),
    Column("BUCKETS", "buckets", "number", drop=4),
    Column("FIRES/MIN", lambda row: round(row["firingsPerMinute"], 1), "number"),
    Column("HASHMAP", "bytesHashMap", "size", drop=5),
    Column("PAIR MAP", "bytesPairMap", "size", drop=2),
    Column("JAVA 4.0.8", "bytesJavaClient", "size"),
    Column("PIP-393", "bytesFormula", "size", drop=7),
    Column("SERIALIZED", "bytesSerialized", "size", drop=3),
    Column("RESIDENT", "bytesResident", "size"),
    Column("BYTES/ENTRY", lambda row: f"{row['bytesPerEntry']:.3g}", "number", drop=6),
)


DOCUMENT_COLUMNS = (
    Column("SPACE, BY PIP-393", "figure"),
    Column("IT SAYS", "document", "number"),
    Column("REALLY", "really", "number"),
)


class PlanRequest(Struct, frozen=True):
    """The options of ``nacks plan``: the load or the topic to measure it on, and files for charts."""

    rate: float | None
    delay_ms: int
    batch_size: int | None
    entries_per_ledger: int | None
    acknowledged_every: int
    precision_ms: int | None
    memory_bytes: int
    topic: TopicName | None
    subscription: str | None
    png: Path | None
    svg: Path | None


@command(
    "nacks plan",
    examples=["--rate 10000 --delay 1h", "--topic public/default/plain -s holes --delay 10m --precision 1s"],
    elsewhere=["--rate 10000 --delay 5h --batch-size 10 --png nacks.png"],
    output="One row per precision from 0 to 16 bits, and a plot: how early, how many buckets and timer firings, and the bytes of all "
    "pending nacks in the Java client 4.0.8, in its maps before PIP-393, by its formula, and in this toolkit's tracker as measured on "
    "a sample. JSON also compares the document's space figures with the measured ones.",
    errors=[TopicNotFound, SubscriptionNotFound, InvalidValue, AlreadyExists, MissingComponent],
)
@click.option("--rate", type=NUMBER, help="Nacked messages a second [the topic's].")
@click.option("--delay", "delay_ms", type=DURATION, default="1m", show_default=True, help="Delay before redelivery.")
@click.option("--batch-size", type=whole(1), help="Messages per entry [1, or the topic's].")
@click.option("--entries-per-ledger", type=whole(1), help="managedLedgerMaxEntriesPerLedger [50000].")
@click.option("--acknowledged-every", type=INTEGER, default=0, help="Leave out every n-th entry, as acknowledged.")
@click.option(
    "--precision", "precision_ms", type=DURATION, help="The acceptable earliness, which marks the recommended row."
)
@click.option(
    "--memory",
    "memory_bytes",
    type=SIZE,
    default="64M",
    show_default=True,
    help="Memory that the Java client may use for nacks.",
)
@click.option("--topic", type=TOPIC, help="Use the rate and batch size of this topic.")
@click.option(
    "-s", "--subscription", help=("Derive the nacked share, and the positions, from its acknowledgement holes.")
)
@picture_option("png")
@picture_option("svg")
@gather(PlanRequest)
def plan(app: App, options: PlanRequest) -> Result:
    """Show what negative acks cost at every precision, before you set negativeAckPrecisionBitCnt.

    One nack per entry: a batch is tracked as one entry. With --topic the rate is computed from the times of its entries,
    without the first and the last hundredth; with -s the nacks are its ack holes. * marks the recommended row: the cheapest that is early
    by no more than --precision, otherwise the first from 8 bits on with which the Java client stays within --memory.
    """
    require_plot(app)
    sizes = _sizes(app, options)
    load, measured = sizes.load, sizes.measured
    wanted = sizes.recommended_bits(options.precision_ms, memory_bytes=options.memory_bytes)
    rows = [_row(sizing, sizing.precision_bits == wanted) for sizing in sizes.precisions]
    charts = _charts(rows)
    save_charts((options.png, options.svg), charts, _heading(load))
    document = _document(load)
    return Result(
        {"load": _load_json(load, measured), "precisions": rows, "document": document},
        rows=rows,
        columns=COLUMNS,
        screen=lambda _: [
            "".join(f"{line}\n" for line in [_heading(load), *_about(measured)]),
            Table(rows, COLUMNS),
            *(f"{line_chart(chart)}\n" for chart in charts),
            Table(document, DOCUMENT_COLUMNS),
        ],
    )


def _sizes(app: App, options: PlanRequest) -> NackSizes:
    if options.topic is None and options.subscription is not None:
        raise click.UsageError("-s: name its topic with --topic", click.get_current_context())
    measured = None
    if options.topic is not None:
        measured = app.topic(options.topic).measured_nacks(options.subscription)
    if options.rate is None and (measured is None or measured.entries_per_second is None):
        raise click.UsageError("how many nacks a second? Give --rate, or --topic", click.get_current_context())
    delay_ms = options.delay_ms
    if _tell_floor(app, delay_ms):
        delay_ms = MIN_NACK_DELAY_MS
    return nack_sizes(
        options.rate,
        delay_ms,
        measured=measured,
        batch_size=options.batch_size,
        entries_per_ledger=options.entries_per_ledger,
        acknowledged_every=options.acknowledged_every,
    )


def _row(sizing: TrackerSizing, wanted: bool) -> Json:
    head = {"precisionBits": sizing.precision_bits, "wanted": wanted}
    return {**head, **to_json(sizing), "bytesPerEntry": sizing.resident_bytes_per_entry}


def _document(load: NackLoad) -> list[Json]:
    """Return PIP-393's figures for the space of the old structure beside the actual ones."""
    from pulsar_admin.store.nacks.sizes import emptiest_pair_map_bytes, pair_map_bytes

    entries = load.pending_entries
    million = pair_map_bytes(10**6)
    figures = [
        (
            f"pair map at its fullest, 32/0.66 N = 48 N; N = {entries:,}",
            size_text(48 * entries),
            size_text(pair_map_bytes(entries)),
        ),
        (
            "pair map at its emptiest, 32/0.15 N = 213 N",
            size_text(213 * entries),
            size_text(emptiest_pair_map_bytes(entries)),
        ),
        ("pair map of 1,000,000 entries", "64 MB", f"{million / 2**20:g} MiB"),
        ("of which used", "30 MB", f"{32e6 / 2**20:.1f} MiB"),
        ("space utility rate", "0.46", f"{32e6 / million:.3f}"),
    ]
    return [{"figure": figure, "document": says, "really": really} for figure, says, really in figures]


def _load_json(load: NackLoad, found: TopicNacks | None) -> Json:
    rates = {"messagesPerSecond": load.messages_per_second, "entriesPerSecond": load.entries_per_second}
    holes = {"holes": found and found.holes, "nackedShare": found and found.nacked_share}
    return {**rates, **to_json(load), "pendingEntries": load.pending_entries, **holes}


def _heading(load: NackLoad) -> str:
    return (
        f"{load.entries_per_second:,.6g} nacked entries a second, due after {format_duration_ms(load.delay_ms)}: "
        f"{load.pending_entries:,} wait"
    )


def _about(found: TopicNacks | None) -> list[str]:
    if found is None:
        return []
    rate = "at one time" if found.entries_per_second is None else f"{found.entries_per_second:,.4g} a second"
    holes = (
        f"{counted(found.holes, 'hole')}, {found.nacked_share:.1%} of the entries up to the last acknowledged one"
        if found.holes
        else "no holes taken"
    )
    return [
        f"the topic: {counted(found.entries, 'entry')}, {rate}, {counted(found.batch_size, 'message')} each; {holes}"
    ]


def _charts(rows: Sequence[Json]) -> list[Chart]:
    """Return charts of bytes per entry and of the worst earliness by precision bits, both on a logarithmic scale."""
    labels = [str(row["precisionBits"]) for row in rows]
    names = {
        "HashMap": "bytesHashMap",
        "pair map": "bytesPairMap",
        "PIP-393": "bytesFormula",
        "Java 4.0.8": "bytesJavaClient",
        "resident": "bytesResident",
    }
    sizes = {name: [_power(row[key] / max(row["pendingEntries"], 1)) for row in rows] for name, key in names.items()}
    early = {"worst": [_power(row["worstEarly"] or 1) for row in rows]}
    return [
        Chart("bytes an entry over precision bits, as a power of ten", labels, sizes, "log10(bytes)"),
        Chart("earliest redelivery over precision bits, ms as a power of ten", labels, early, "log10(ms)"),
    ]


def _power(value: float) -> float:
    return math.log10(value) if value > 0 else 0.0
