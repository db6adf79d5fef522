"""``nacks simulate``: how early, how late and how often, by the old timer and the new ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from commands.nacks.delays import configured_delay_ms
from commands.nacks.drawing import save_charts, table_text
from commands.topics.moving import read_lines, shown_path
from pulsar_admin.columns import Column
from pulsar_admin.context import App
from pulsar_admin.numbers import INTEGER, NUMBER, SHARE, whole
from pulsar_admin.options import DURATION, command, gather, pass_app
from pulsar_admin.pictures import picture_option, require_plot
from pulsar_admin.plot import Chart, line_chart
from store.errors import AlreadyExists, InvalidValue, LimitExceeded, MissingComponent
from store.frozen import frozen
from store.nacks.buckets import DEFAULT_PRECISION_BITS, check_precision_bits
from store.timespec import format_duration_ms

if TYPE_CHECKING:
    from pulsar_admin.api.nack_studies import Traffic
    from store.nacks.simulate import SweepRow, TimerResult

_TIMERS = (
    "interval: Java before PIP-393; merged: PIP-393 as in Java's client 4.0.8; cpp: the C++, Python and Node clients;\n"
    "go: the Go client; deadline: PIP-393's buckets with an exact timer"
)

TIMER_COLUMNS = (
    Column("TIMER", "timer"),
    Column("BITS", "precision_bits", "id"),
    Column("NACKS", "nacks", "number", drop=4),
    Column("REDELIVERIES", "redeliveries", "number"),
    Column("DOUBLED", "doubled", "number", drop=5),
    Column("FIRINGS", "firings", "number"),
    Column("VISITED", "visited", "number", drop=1),
    Column("EARLY MEAN", lambda row: row.early.mean_ms, "duration"),
    Column("EARLY P99", lambda row: row.early.p99_ms, "duration", drop=2),
    Column("EARLY MAX", lambda row: row.early.max_ms, "duration"),
    Column("LATE MEAN", lambda row: row.late.mean_ms, "duration"),
    Column("LATE P99", lambda row: row.late.p99_ms, "duration", drop=3),
    Column("LATE MAX", lambda row: row.late.max_ms, "duration"),
    Column("PEAK", "peak_bytes", "size", drop=6),
)
SWEEP_COLUMNS = (
    Column("RATE", "messages_per_second", "number"),
    Column("DELAY", "delay_ms", "duration"),
    Column("BITS", "precision_bits", "id"),
    Column("TIMER", "timer"),
    Column("REDELIVERIES", "redeliveries", "number"),
    Column("DOUBLED", "doubled", "number", drop=1),
    Column("FIRINGS", "firings", "number", drop=3),
    Column("EARLY MEAN", "mean_early_ms", "duration"),
    Column("EARLY MAX", "max_early_ms", "duration"),
    Column("LATE MEAN", "mean_late_ms", "duration"),
    Column("LATE MAX", "max_late_ms", "duration"),
    Column("PEAK", "peak_bytes", "size", drop=2),
)


@frozen
class SimulateRequest:
    """The events, or the load to generate; several rates, delays or bits make a grid."""

    events: Path | None
    rates: tuple[float, ...]
    delays_ms: tuple[int, ...]
    max_delay_ms: int | None
    bits: tuple[int, ...]
    duration_ms: int
    batch_size: int
    entries_per_ledger: int
    nacked: float
    processing_ms: int
    seed: int
    base_delay_ms: int | None
    png: Path | None
    svg: Path | None

    @property
    def is_grid(self) -> bool:
        return max(len(self.rates), len(self.delays_ms), len(self.bits)) > 1

    @property
    def traffic(self) -> Traffic:
        return {
            "duration": self.duration_ms,
            "batch_size": self.batch_size,
            "entries_per_ledger": self.entries_per_ledger,
            "nacked": self.nacked,
            "processing": self.processing_ms,
            "seed": self.seed,
        }


@command(
    "simulate",
    uses=["spark"],
    examples=[
        "pulsar-admin nacks simulate --rate 200 --duration 20s --delay 6s",
        "pulsar-admin nacks simulate --rate 100 --rate 1000 --duration 3s --delay 1s --delay 3s --bits 0 --bits 8 -o csv",
    ],
    elsewhere=[
        "pulsar-admin nacks simulate --events nacks.jsonl --bits 10 --png nacks.png",
        "pulsar-admin nacks simulate --rate 100 --rate 10000 --delay 1m --bits 0 --bits 8 --bits 16 --spark",
    ],
    output="A row a timer: redeliveries, those doubled, firings, entries looked at, how early, how late, peak memory; and plots of "
    "lateness and memory over time. JSON has the distributions and the memory curve. A grid is one row per point and timer.",
    errors=[InvalidValue, LimitExceeded, AlreadyExists, MissingComponent],
)
@click.option(
    "--events",
    type=click.Path(path_type=Path, allow_dash=True),
    metavar="FILE",
    help='Replay JSON lines {"time":ms,"ledgerId":…,"entryId":…,"delay":ms or text}; - is stdin.',
)
@click.option(
    "--rate", "rates", type=NUMBER, multiple=True, default=(1000.0,), help="Messages a second; repeat it. [1000]"
)
@click.option("--delay", "delays_ms", type=DURATION, multiple=True, default=("1m",), help="Delay; repeat it. [1m]")
@click.option("--max-delay", "max_delay_ms", type=DURATION, help="Draw delays evenly from --delay up to this.")
@click.option(
    "--bits", type=INTEGER, multiple=True, default=(DEFAULT_PRECISION_BITS,), help="Precision; repeat it. [8]"
)
@click.option(
    "--duration",
    "duration_ms",
    type=DURATION,
    default="1m",
    show_default=True,
    help="Duration of the simulated traffic.",
)
@click.option("--batch-size", type=whole(1), default=1, show_default=True, help="Messages an entry.")
@click.option("--entries-per-ledger", type=whole(1), default=50_000, show_default=True, help="Entries per ledger.")
@click.option("--nacked", type=SHARE, default=1.0, show_default=True, help="Share of messages that are nacked.")
@click.option(
    "--processing", "processing_ms", type=DURATION, default="0s", help="Nacked at most this long after delivery."
)
@click.option("--seed", type=whole(0, 2**32 - 1), default=0, show_default=True, help="Seed of the random draws.")
@click.option(
    "--base-delay",
    "base_delay_ms",
    type=DURATION,
    help="The delay configured, of which interval, cpp and go take a third [the shortest].",
)
@picture_option("png")
@picture_option("svg")
@gather(SimulateRequest)
@pass_app
def simulate(app: App, options: SimulateRequest) -> None:
    """Replay negative acks through the clients' timers, and measure how early and how late they are.

    interval is the Java client before PIP-393, which looks at everything each third of the delay; merged is its client 4.0.8,
    whose timer a shorter nack waits for; cpp the clients of C++, Python and Node, whose timer of a third of the delay every nack
    arms anew; go the client of Go, which looks each third of the delay, and really is later where it passes over buckets; deadline
    is PIP-393 with a timer set for the earliest. Time is simulated, and the same options and seed give the same numbers. With
    several rates, delays or bits, or --spark, every combination is run; --spark runs them as one job.
    """
    require_plot(app.settings.output)
    for bits in options.bits:
        check_precision_bits(bits)
    if options.events is None and options.max_delay_ms is None:
        options = replace(options, delays_ms=tuple(configured_delay_ms(app, delay) for delay in options.delays_ms))
    if options.events is None and (options.is_grid or app.settings.spark):
        _sweep(app, options)
    else:
        _run(app, options)


# -- one run ----------------------------------------------------------------------------------------------------------


def _run(app: App, options: SimulateRequest) -> None:
    # Imported here: numpy.
    from pulsar_admin.api.nack_studies import replay_nacks, simulate_nacks

    if options.events is not None and (options.is_grid or app.settings.spark):
        raise click.UsageError("--events: one run, without --spark", click.get_current_context())
    bits, base_ms = options.bits[0], options.base_delay_ms
    if options.events is None:
        rate, (delay_ms, *_) = options.rates[0], options.delays_ms
        found = simulate_nacks(
            rate, delay_ms, max_delay=options.max_delay_ms, precision_bits=bits, base_delay=base_ms, **options.traffic
        )
    else:
        lines, source = read_lines(options.events), shown_path(options.events)
        found = replay_nacks(lines, source=source, precision_bits=bits, base_delay=base_ms)
    charts = _charts(found.timers)
    heading = f"{found.timers[0].nacks:,} nacks"
    save_charts((options.png, options.svg), charts, heading)
    form = app.settings.output
    if form in (None, "plain"):
        drawn = [line_chart(chart) for chart in charts]
        app.emit("\n".join([heading, table_text(found.timers, TIMER_COLUMNS), _TIMERS, *drawn]))
    elif form == "json":
        app.emit(found)
    else:
        app.emit_rows(found.timers, TIMER_COLUMNS)


def _charts(results: Sequence[TimerResult]) -> list[Chart]:
    """Return memory over time, and which share is at most so late, and so early."""
    samples = min(len(result.memory) for result in results)
    charts = []
    if samples:
        labels = [format_duration_ms(point.time_ms - results[0].memory[0].time_ms) for point in results[0].memory]
        sizes = {
            result.timer: [point.size_bytes or 0 for point in result.memory[:samples]]
            for result in results
            if result.peak_bytes is not None
        }
        charts.append(Chart("memory over time", labels[:samples], sizes, "bytes"))
    for name in ("late", "early"):
        bounds = max((getattr(result, name).histogram for result in results), key=len)
        labels = [format_duration_ms(bound) for bound, _ in bounds]
        shares = {result.timer: _shares(getattr(result, name).histogram, len(bounds)) for result in results}
        if len(bounds) > 1:
            charts.append(Chart(f"percent of the nacks redelivered at most so {name}", labels, shares, "%"))
    return charts


def _shares(histogram: Sequence[tuple[int, int]], count: int) -> list[float]:
    total = histogram[-1][1] if histogram else 0
    shares = [100 * found / total for _, found in histogram]
    return shares + [100.0] * (count - len(shares))


# -- a grid -----------------------------------------------------------------------------------------------------------


def _sweep(app: App, options: SimulateRequest) -> None:
    from pulsar_admin.api.nack_studies import nack_grid

    if options.max_delay_ms is not None or options.base_delay_ms is not None:
        raise click.UsageError("--max-delay, --base-delay: only in a single run", click.get_current_context())
    grid = nack_grid(options.rates, options.delays_ms, options.bits, **options.traffic)
    with app.spark() as engine:
        rows = grid.run(None if engine is None else engine.session)
    charts = _grid_charts(rows)
    save_charts((options.png, options.svg), charts, f"{len(grid.points)} simulations")
    if app.settings.output in (None, "plain"):
        app.emit("\n".join([table_text(rows, SWEEP_COLUMNS), _TIMERS, *map(line_chart, charts)]))
    else:
        app.emit_rows(rows, SWEEP_COLUMNS)


def _grid_charts(rows: Sequence[SweepRow]) -> list[Chart]:
    timers = list(dict.fromkeys(row.timer for row in rows))
    first = [row for row in rows if row.timer == timers[0]]
    labels = [f"{row.messages_per_second:g}/{format_duration_ms(row.delay_ms)}/{row.precision_bits}" for row in first]
    late: dict[str, Any] = {}  # Any: Chart takes any numbers
    sizes: dict[str, Any] = {}
    for timer in timers:
        late[timer] = [row.mean_late_ms - row.mean_early_ms for row in rows if row.timer == timer]
        peaks = [row.peak_bytes for row in rows if row.timer == timer]
        if None not in peaks:
            sizes[timer] = peaks
    return [
        Chart("mean lateness less mean earliness, by rate/delay/bits", labels, late, "ms"),
        Chart("peak memory, by rate/delay/bits", labels, sizes, "bytes"),
    ]
