"""What is said of times that count back from now: which now that is, and how old the copy is that they are asked of."""

from __future__ import annotations

from store.db.environment import Store
from store.model.copy_age import read_copy_age
from store.timespec import format_age_ms, format_time_ms


def now_text(store: Store, text: str, now_ms: int) -> str:
    """Return the sentence for TEXT, a time that was counted from NOW_MS."""
    with store.read() as txn:
        age = read_copy_age(store, txn)
    said = f"{text} counts from the clock's now, {format_time_ms(now_ms)}; "
    said += f"this copy was read {format_age_ms(now_ms - age.read_ms)} ago"
    if age.written_ms is None:
        return said
    return f"{said}, its files were last written {format_age_ms(now_ms - age.written_ms)} ago"
