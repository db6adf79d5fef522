"""What negative acks cost at every precision, and what clients' timers make of them; no store is needed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypedDict, Unpack

from pulsar_admin.api.given import (
    delay_ms,
    given_items,
    given_keywords,
    given_number,
    given_object,
    given_spark,
    given_text,
    whole_number,
)
from store.errors import InvalidValue
from store.frozen import frozen
from store.nacks.buckets import DEFAULT_PRECISION_BITS, check_precision_bits
from store.nacks.load import GeneratedLoad, check_load, generate_events, read_events
from store.nacks.simulate import SweepRow, TimerResult, simulate
from store.nacks.sizes import ENTRIES_PER_LEDGER, NackLoad, TrackerSizing, size_sample, size_table
from store.nacks.sweep import Point, sweep_here, sweep_on_spark, sweep_points
from store.names import LONG_MAX

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pulsar_admin.api.session import Delay
    from store.nacks.load import NackEvents
    from store.nacks.measured import TopicNacks


@frozen
class NackSizes:
    """What a load costs: ``precisions`` has a sizing for each of 0 to 16 bits. ``measured``: the topic that it was taken from."""

    load: NackLoad
    measured: TopicNacks | None
    precisions: tuple[TrackerSizing, ...]

    def recommended_bits(self, precision: Delay | None = None, *, memory_bytes: int = 64 << 20) -> int:
        """Return the bits to take: the most that are early by no more than PRECISION.

        None: the least, from the clients' default up, with which Java's client stays within MEMORY_BYTES.
        """
        most = self.precisions[-1].precision_bits
        if precision is not None:
            return min((delay_ms(precision) + 1).bit_length() - 1, most)
        room = whole_number("memory_bytes", memory_bytes)
        fitting = [sizing.precision_bits for sizing in self.precisions if sizing.java_bytes <= room]
        return next((bits for bits in fitting if bits >= DEFAULT_PRECISION_BITS), most)


def nack_sizes(
    rate: float | None = None,
    delay: Delay = "1m",
    *,
    measured: TopicNacks | None = None,
    batch_size: int | None = None,
    entries_per_ledger: int | None = None,
    acknowledged_every: int = 0,
) -> NackSizes:
    """Return what RATE messages a second that are nacked for DELAY cost, in batches of BATCH_SIZE, 1 by default.

    MEASURED, from ``Topic.measured_nacks``, gives what is None, and where nacks lie. Each ACKNOWLEDGED_EVERY-th entry is left out, 0:
    none. Raises InvalidValue.
    """
    found = None if measured is None else _measured(measured)
    usual = (found.batch_size, found.entries_per_ledger) if found else (1, ENTRIES_PER_LEDGER)
    per_entry = usual[0] if batch_size is None else whole_number("batch_size", batch_size)
    per_ledger = usual[1] if entries_per_ledger is None else whole_number("entries_per_ledger", entries_per_ledger)
    if rate is None:
        if found is None or found.nacked_entries_per_second is None:
            raise InvalidValue("how many nacks a second?", hint="give rate, or measured, of entries of several times")
        rate = found.nacked_entries_per_second * per_entry
    every = whole_number("acknowledged_every", acknowledged_every)
    load = NackLoad(given_number("rate", rate), delay_ms(delay), per_entry, per_ledger, every)
    if found is None:
        return NackSizes(load, None, tuple(size_table(load)))
    return NackSizes(load, found, tuple(size_sample(load, (found.ledger_ids, found.entry_ids), found.times_ms)))


def _measured(value: TopicNacks) -> TopicNacks:
    from store.nacks.measured import TopicNacks  # here: loads need no store

    return given_object("measured", value, TopicNacks)


# -- timers -----------------------------------------------------------------------------------------------------------


class Traffic(TypedDict, total=False):
    """Keywords for messages to simulate, all of one RATE for DURATION (``1m``), some of which are nacked for a delay.

    BATCH_SIZE messages an entry (1), ENTRIES_PER_LEDGER (50,000), the share NACKED (1.0) of the messages, at most PROCESSING (0) after
    delivery. The same SEED (0) gives the same numbers.
    """

    duration: Delay
    batch_size: int
    entries_per_ledger: int
    nacked: float
    processing: Delay
    seed: int


@frozen
class NackSimulation:
    """What each client's timer made of the same nacks; ``load``: None for events of the caller's."""

    load: GeneratedLoad | None
    timers: tuple[TimerResult, ...]


def simulate_nacks(
    rate: float = 1000.0,
    delay: Delay = "1m",
    *,
    max_delay: Delay | None = None,
    precision_bits: int = DEFAULT_PRECISION_BITS,
    base_delay: Delay | None = None,
    **traffic: Unpack[Traffic],
) -> NackSimulation:
    """Return how early and late timers redeliver: RATE messages a second, nacked for DELAY, or evenly up to MAX_DELAY, and ``Traffic``.

    BASE_DELAY: the delay configured, of which some check every third; None: the shortest. Raises InvalidValue, LimitExceeded.
    """
    load = _load_of(rate, delay, max_delay, traffic)
    check_load(load)
    return _simulation(load, generate_events(load), precision_bits, base_delay)


def replay_nacks(
    lines: Iterable[str],
    *,
    source: str = "the lines",
    precision_bits: int = DEFAULT_PRECISION_BITS,
    base_delay: Delay | None = None,
) -> NackSimulation:
    """Return the same of LINES, a JSON object each: ``time`` and ``delay`` (ms, or ``1m``), ``ledgerId``, ``entryId``.

    SOURCE: what errors call LINES. Raises InvalidValue.
    """
    texts = (given_text("line", line) for line in given_items("lines", lines))
    return _simulation(None, read_events(texts, given_text("source", source)), precision_bits, base_delay)


def _simulation(
    load: GeneratedLoad | None, events: NackEvents, precision_bits: int, base_delay: Delay | None
) -> NackSimulation:
    base_ms = None if base_delay is None else whole_number("base_delay", delay_ms(base_delay), 0, LONG_MAX)
    return NackSimulation(load, tuple(simulate(events, whole_number("precision_bits", precision_bits), base_ms)))


@frozen
class NackGrid:
    """Simulations of every rate, delay and precision: ``points``."""

    points: tuple[Point, ...]

    def run(self, spark: SparkSession | None = None) -> tuple[SweepRow, ...]:
        """Return a row for each point and timer, of one job of SPARK, or worked out here."""
        if spark is None:
            return tuple(sweep_here(self.points))
        given_spark(spark)
        return tuple(sweep_on_spark(spark, self.points))


def nack_grid(
    rates: Iterable[float], delays: Iterable[Delay], precision_bits: Iterable[int], **traffic: Unpack[Traffic]
) -> NackGrid:
    """Return the simulations of all RATES, DELAYS and PRECISION_BITS, to be run; see ``simulate_nacks``, which raises the same."""
    bits = [check_precision_bits(whole_number("precision_bits", one)) for one in given_items("bits", precision_bits)]
    several = [given_number("rate", rate) for rate in given_items("rates", rates)]
    delays_ms = [delay_ms(delay) for delay in given_items("delays", delays)]
    points = sweep_points(_load_of(1, 0, None, traffic), several, delays_ms, bits)
    for load, _ in points:
        check_load(load)
    return NackGrid(tuple(points))


def _load_of(rate: float, delay: Delay, max_delay: Delay | None, traffic: Traffic) -> GeneratedLoad:
    given_keywords(traffic, Traffic)
    least_ms = delay_ms(delay)
    return GeneratedLoad(
        messages_per_second=given_number("rate", rate),
        duration_ms=delay_ms(traffic.get("duration", "1m")),
        min_delay_ms=least_ms,
        max_delay_ms=least_ms if max_delay is None else delay_ms(max_delay),
        batch_size=whole_number("batch_size", traffic.get("batch_size", 1)),
        entries_per_ledger=whole_number("entries_per_ledger", traffic.get("entries_per_ledger", ENTRIES_PER_LEDGER)),
        nacked=given_number("nacked", traffic.get("nacked", 1.0)),
        processing_ms=delay_ms(traffic.get("processing", 0)),
        seed=whole_number("seed", traffic.get("seed", 0)),
    )
