"""What negative acks cost at every precision; no store is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from pulsar_admin.api.given import delay_ms, given_number, given_object, whole_number
from pulsar_admin.store.errors import InvalidValue
from pulsar_admin.store.nacks.buckets import DEFAULT_PRECISION_BITS
from pulsar_admin.store.nacks.sizes import ENTRIES_PER_LEDGER, NackLoad, TrackerSizing, size_sample, size_table

if TYPE_CHECKING:
    from pulsar_admin.api.given import Delay
    from pulsar_admin.store.nacks.measured import TopicNacks


class NackSizes(Struct, frozen=True):
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
    from pulsar_admin.store.nacks.measured import TopicNacks  # here: loads need no store

    return given_object("measured", value, TopicNacks)
