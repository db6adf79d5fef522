"""Notes about relative times: the "now" that they count back from, and its source."""

from __future__ import annotations

from pulsar_admin.store.model.copy_age import AsOf
from pulsar_admin.store.timespec import format_age_ms, format_time_ms


def now_text(text: str, clock_ms: int, as_of: AsOf | None, *, changes: bool) -> str:
    """Return the sentence for ``text``, a time that was counted from now: a command that ``changes`` counts from the clock's."""
    if as_of is None:
        return f"{text} is counted back from now ({format_time_ms(clock_ms)}); the time of this copy is not known"
    copy = f"{format_time_ms(as_of.time_ms)}, {format_age_ms(clock_ms - as_of.time_ms)} ago ({as_of.said_by})"
    if changes:
        return f"{text} is counted back from now ({format_time_ms(clock_ms)}), but this copy ends {copy}"
    return f"{text} is counted back from the time of this copy, {copy}; --now now counts from the clock"
