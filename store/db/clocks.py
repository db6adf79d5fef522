"""The clocks of entries: bounds of a block on a clock, and the first block that may contain a time."""

from bisect import bisect_left
from typing import Literal

from pulsar_admin.store.db.blocks import Block, LedgerTimes
from pulsar_admin.store.errors import InvalidValue

Clock = Literal["auto", "publish", "broker"]


def first_candidate(times: LedgerTimes, time_ms: int, clock: Clock) -> int | None:
    """Return the number of the first block whose running maximum reaches ``time_ms``, or None."""
    if clock == "broker":
        # Entries without a broker time are on no clock here: the blocks' own bounds decide.
        return times.sums.first_block if times.sums.broker_max_ms >= time_ms else None
    column = times.publish_max if clock == "publish" else times.auto_max
    index = bisect_left(column, time_ms)
    return times.sums.first_block + index if index < times.blocks else None


def block_max(block: Block, clock: Clock) -> int:
    """Return the newest time of a block's entries on a clock."""
    header = block.header
    return {"publish": header.publish_max_ms, "broker": header.broker_max_ms, "auto": header.auto_max_ms}[clock]


def block_min(block: Block, clock: Clock) -> int:
    """Return the oldest time of a block's entries on a clock."""
    header = block.header
    return {"publish": header.publish_min_ms, "broker": header.broker_min_ms, "auto": header.auto_min_ms}[clock]


def check_clock(clock: str) -> Clock:
    """Return the clock if the index knows it; raises InvalidValue."""
    if clock in ("auto", "publish", "broker"):
        return clock  # type: ignore[return-value]  # narrowed by the test above
    raise InvalidValue(f"clock {clock!r} is not indexed", hint="use auto, publish or broker", clock=clock)
