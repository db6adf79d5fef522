"""Refusals of what goes by time and meets nothing there: a reset past the newest entry, an expiry before the oldest, one past the copy.

A broker does all three without a word: the first skips the whole backlog, and so does the last on a copy that is a day old.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from store.changes.cursors import CursorMove
from store.db.blocks import decode_latest, ledger_key
from store.db.clocks import Clock
from store.errors import NothingMatches
from store.model.copy_age import AsOf, find_as_of, read_copy_age
from store.model.extent import Extent, extent_of, pending_intervals, subtract
from store.model.reader import EntryReader
from store.model.topics import Topic
from store.search.by_time import find_first_at_or_after
from store.search.expiry import BROKER
from store.search.pending import Dated, PendingSearch
from store.timespec import FromNow, format_age_ms, format_time_ms
from store.wording import counted

_SHOWN = 3


def check_now_is_meant(reader: EntryReader, time_ms: int, clock_ms: int) -> None:
    """Raise NothingMatches for a time that was counted from the clock's now, where the copy's own time is another."""
    as_of = find_as_of(reader.txn)
    if as_of is not None and isinstance(time_ms, FromNow) and as_of.time_ms != clock_ms:
        earlier_ms = time_ms - (clock_ms - as_of.time_ms)
        raise _which_now(
            as_of,
            clock_ms,
            f"the time is {format_time_ms(time_ms)}",
            f"{format_time_ms(earlier_ms)}",
        )


def check_nows_agree(
    reader: EntryReader, moves: Sequence[CursorMove], plan: Callable[[int], Sequence[CursorMove]], clock_ms: int
) -> None:
    """Raise NothingMatches where MOVES, whose times were counted from the clock's now, go elsewhere counted from the copy's own.

    ``plan`` returns the moves for times that are so many ms less. Who means what a broker would do with the copy today, and who means what
    one would have done when it was made, types the same words.
    """
    as_of = find_as_of(reader.txn)
    if as_of is None or as_of.time_ms == clock_ms:
        return
    others = plan(clock_ms - as_of.time_ms)
    differing = [(one, other) for one, other in zip(moves, others, strict=True) if one.state != other.state]
    if not differing:
        return
    move, other = differing[0]
    more = f", and {counted(len(differing) - 1, 'other')}" if len(differing) > 1 else ""
    raise _which_now(
        as_of,
        clock_ms,
        f"{move.cursor.name} of {move.topic.name}{more} would get to {move.state.mark_delete}",
        f"to {other.state.mark_delete}",
        topic=str(move.topic.name),
        subscription=move.cursor.name,
    )


def _which_now(as_of: AsOf, clock_ms: int, then: str, otherwise: str, **context: object) -> NothingMatches:
    """Return the error that asks which now is meant: counted from the clock's it is so ``then``, from the copy's own ``otherwise``."""
    return NothingMatches(
        f"which now is meant? Counted from the clock's, {format_time_ms(clock_ms)}, {then}; from the time of this copy,"
        f" {format_time_ms(as_of.time_ms)} ({as_of.said_by}), {otherwise}",
        hint=f"say it with --now {format_time_ms(as_of.time_ms)}, or with --now now for the clock's",
        **context,
        clock=int(clock_ms),
        asOf=as_of.time_ms,
        nows=[format_time_ms(as_of.time_ms), "now"],
    )


def newest_entry(reader: EntryReader, topic: Topic, clock: Clock) -> Dated | None:
    """Return the entry of TOPIC with the latest time on CLOCK; None where no entry with a time is here."""
    rows = ((ledger_id, reader.txn.view("times", ledger_key(ledger_id))) for ledger_id in topic.ids)
    latest = max((decode_latest(ledger_id, row, clock) for ledger_id, row in rows if row is not None), default=0)
    found = find_first_at_or_after(reader, topic, latest, clock) if latest > 0 else None
    if found is None or found.position is None or found.entry_time_ms is None:
        return None
    return Dated(found.position, found.entry_time_ms, 0)


def check_resets_meet(
    reader: EntryReader, moves: Sequence[CursorMove], missed: Sequence[CursorMove], clock: Clock, now_ms: int
) -> None:
    """Raise NothingMatches where MISSED, those of MOVES that find nothing at or after their time, skip anything, or are all."""
    skipping = [move for move in missed if _gone(reader, move).entries]
    if not missed or (not skipping and len(missed) < len(moves)):
        return
    first, *others = skipping or missed
    assert first.basis is not None
    assert first.basis.time_ms is not None
    time_ms = first.basis.time_ms
    newest = newest_entry(reader, first.topic, clock)
    gone = _gone(reader, first)
    who = "a broker finds nothing" if first.basis.rule == BROKER else "nothing is"
    text = f"{first.topic.name}: {who} at or after {format_time_ms(time_ms)}"
    if gone.entries:
        text += f": {first.cursor.name} would move to the end and skip {counted(gone.messages, 'message')}"
    if newest is not None:
        text += f"; the newest entry, {_dated(newest, now_ms)}"
    if others:
        text += f"; so it is with {_others(others)}"
    ways = "to move to the end all the same: --force"
    if first.basis.rule == BROKER:
        ways = f"leave out --rule broker to search exactly; {ways}"
    if newest is not None and isinstance(time_ms, FromNow):
        ways = f"to count back from the newest entry: --now {format_time_ms(newest.time_ms)}; {ways}"
    raise NothingMatches(
        text,
        hint=ways,
        topic=str(first.topic.name),
        subscription=first.cursor.name,
        time=int(time_ms),
        newestPosition=None if newest is None else str(newest.position),
        newestTime=None if newest is None else newest.time_ms,
        skips={"entries": gone.entries, "messages": gone.messages, "bytes": gone.bytes},
    )


def check_expiries_meet(
    reader: EntryReader, moves: Sequence[CursorMove], limit_ms: int, clock: Clock, now_ms: int
) -> None:
    """Raise NothingMatches where none of MOVES drops anything although there is a backlog, or where LIMIT_MS, counted from now, is
    past the end of the copy, so that whatever is in it goes."""
    gone = [_gone(reader, move) for move in moves]
    if not any(extent.entries for extent in gone):
        _raise_for_nothing_older(reader, [move for move in moves if _backlog(move)], limit_ms, clock, now_ms)
    elif isinstance(limit_ms, FromNow):
        emptied = [move for move, extent in zip(moves, gone, strict=True) if extent.entries and not _left(move)]
        _check_copy_reaches(reader, emptied, limit_ms, clock, now_ms)


def _raise_for_nothing_older(
    reader: EntryReader, moves: Sequence[CursorMove], limit_ms: int, clock: Clock, now_ms: int
) -> None:
    if not moves:
        return
    first, *others = moves
    search = PendingSearch(reader, first.topic, first.cursor.state, clock)
    oldest = next(search.iter_late(0), None)
    text = f"{first.topic.name}: {first.cursor.name} has nothing to expire before {format_time_ms(limit_ms)}"
    if oldest is not None:
        text += f"; the first entry it is to get, {_dated(oldest, now_ms)}"
    if others:
        text += f"; so it is with {_others(others)}"
    raise NothingMatches(
        text,
        hint="name a later time, another --now, or a position with -p; for scripts, to change nothing and go on: --force",
        topic=str(first.topic.name),
        subscription=first.cursor.name,
        limit=int(limit_ms),
        oldestPosition=None if oldest is None else str(oldest.position),
        oldestTime=None if oldest is None else oldest.time_ms,
    )


def _check_copy_reaches(
    reader: EntryReader, emptied: Sequence[CursorMove], limit_ms: int, clock: Clock, now_ms: int
) -> None:
    end_ms = read_copy_age(reader.txn.store, reader.txn).end_ms
    if not emptied or limit_ms <= end_ms:
        return
    total = sum((_gone(reader, move) for move in emptied), Extent())
    newest = max(
        (found.time_ms for move in emptied if (found := newest_entry(reader, move.topic, clock))), default=end_ms
    )
    raise NothingMatches(
        f"this copy ends at {format_time_ms(end_ms)}, {format_age_ms(now_ms - end_ms)} ago: all of it is older than the limit"
        f" {format_time_ms(limit_ms)}, and {_others(emptied)} would lose {counted(total.messages, 'message')}, the whole backlog",
        hint=f"to count back from the newest entry: --now {format_time_ms(newest)}; to drop all of it: --force",
        topic=str(emptied[0].topic.name),
        subscription=emptied[0].cursor.name,
        limit=int(limit_ms),
        copyEnd=end_ms,
        expires={"entries": total.entries, "messages": total.messages, "bytes": total.bytes},
    )


def _dated(entry: Dated, now_ms: int) -> str:
    """Return where ENTRY is, its time, and how old that is."""
    age_ms = now_ms - entry.time_ms
    old = f"is {format_age_ms(age_ms)} old" if age_ms >= 0 else f"is dated {format_age_ms(-age_ms)} ahead of now"
    return f"{entry.position} of {format_time_ms(entry.time_ms)}, {old}"


def _gone(reader: EntryReader, move: CursorMove) -> Extent:
    """Return what MOVE takes from the backlog."""
    before, after = _backlog(move), _left(move)
    return extent_of(reader.txn, move.topic, subtract(before, after))


def _backlog(move: CursorMove) -> tuple[tuple[int, int], ...]:
    return tuple(pending_intervals(move.topic, move.cursor.state))


def _left(move: CursorMove) -> tuple[tuple[int, int], ...]:
    return tuple(pending_intervals(move.topic, move.state))


def _others(moves: Sequence[CursorMove]) -> str:
    """Return whose cursors these are: the first names, and how many more."""
    names = [f"{move.cursor.name} of {move.topic.name}" for move in moves[:_SHOWN]]
    more = len(moves) - len(names)
    return ", ".join(names) + (f" and {counted(more, 'other')}" if more else "")
