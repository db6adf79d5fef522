"""Why a subscription stands where it does: the rules by which a broker (4.0.8) would give it the next message, or would not.

Upstream: ``ManagedCursorImpl.recover``, ``OpReadEntry``, ``PersistentDispatcherMultipleConsumers``, ``TopicTransactionBuffer``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from store.errors import StoreError
from store.frozen import frozen
from store.model.absent_bookies import find_absent_bookies
from store.model.broken import NO_METADATA, NOT_SEEN, BrokenLedger, find_broken
from store.model.coverage import absent_of
from store.model.cursors import COMPACTION_CURSOR, DEDUP_CURSOR, REPLICATOR_PREFIX, Cursor, CursorSource, normal_ranges
from store.model.extent import Intervals, extent_of, pending_intervals, subtract
from store.model.reader import EntryReader
from store.model.topics import Topic
from store.model.whole import may_be_broken
from store.names import PENDING_ACK_SUFFIX, TRANSACTION_LOG_PREFIX, Position, TopicName, shell_word
from store.reports.subscriptions import NotDue, read_not_due
from store.timespec import shown_time
from store.why.front import Front, entries, message_command, read_front
from store.why.limits import iter_quota_reasons, iter_ttl_reasons
from store.why.pending import TransactionFacts, iter_transaction_reasons, read_transaction_facts
from store.why.reason import Reason, in_order, span, when
from store.wording import counted, listed, plural

MAX_UNACKED_RANGES = 10_000
"""``managedLedgerMaxUnackedRangesToPersist`` of a broker that sets nothing."""
_HOLES = 5
_UNSEEN = ("not-imported", "transactions-unknown")


@frozen
class Why:
    """The answer: reasons, the first one first. ``held``: whether something in the store holds the subscription where it stands."""

    topic: TopicName
    subscription: str
    held: bool
    reasons: tuple[Reason, ...]


@frozen
class Case:
    """What the rules look at. ``front``: None where nothing is left, or it cannot be read (``front_error``)."""

    reader: EntryReader
    topic: Topic
    cursor: Cursor
    now_ms: int
    pending: Intervals
    front: Front | None
    front_error: StoreError | None
    not_due: NotDue
    transactions: TransactionFacts

    @property
    def oldest(self) -> Position | None:
        """The first entry that is not acknowledged."""
        return self.topic.at_rank(self.pending[0][0]) if self.pending else None

    @property
    def shell_words(self) -> str:
        """The topic and the subscription as words of a command line."""
        return f"{shell_word(self.topic.name)} -s {shell_word(self.cursor.name)}"


def why_subscription(reader: EntryReader, topic: Topic, cursor: Cursor, now_ms: int) -> Why:
    """Return why CURSOR of TOPIC stands where it does; reads the headers of its backlog.

    Raises SourceChanged, EntryLogCorrupt, MetadataCorrupt.
    """
    pending = pending_intervals(topic, cursor.state)
    front, front_error = _front(reader, topic, cursor, pending)
    case = Case(
        reader,
        topic,
        cursor,
        now_ms,
        pending,
        front,
        front_error,
        _not_due(reader, topic, cursor, now_ms),
        read_transaction_facts(reader, topic, cursor, front),
    )
    reasons = in_order(reason for rule in _RULES for reason in rule(case))
    held = any(reason.holds for reason in reasons)
    if not held:
        unseen = any(reason.code in _UNSEEN for reason in reasons)
        reasons = in_order((*reasons, _nothing_holds(case, unseen=unseen)))
    return Why(topic.name, cursor.name, held, reasons)


def _front(
    reader: EntryReader, topic: Topic, cursor: Cursor, pending: Intervals
) -> tuple[Front | None, StoreError | None]:
    if not pending or not _holds_messages(topic.name):
        return None, None
    try:
        return read_front(reader, cursor.state, topic.at_rank(pending[0][0])), None
    except StoreError as error:  # a file that is gone or another one, too
        return None, error


def _not_due(reader: EntryReader, topic: Topic, cursor: Cursor, now_ms: int) -> NotDue:
    if not _holds_messages(topic.name):
        return NotDue(0, None, None)
    try:
        return read_not_due(reader, topic, cursor.state, now_ms)
    except StoreError:  # the TTL's reason says so
        return NotDue(0, None, None)


def _holds_messages(topic: TopicName) -> bool:
    """Whether the entries of TOPIC are messages, not the records of a log of transactions."""
    local = topic.base.local_name
    return not local.startswith(TRANSACTION_LOG_PREFIX) and not local.endswith(PENDING_ACK_SUFFIX)


def _nothing_holds(case: Case, *, unseen: bool) -> Reason:
    """Say that nothing holds it; UNSEEN: what might is not all seen."""
    name, oldest = case.cursor.name, case.oldest
    if oldest is None:
        end = case.topic.last_confirmed
        text = (
            f"everything through {end} is acknowledged" if case.topic.number_of_entries else "the topic has no entries"
        )
        return Reason("consumed", f"Nothing holds {name}: {text}.", {"markDelete": str(case.cursor.mark_delete)})
    extent = extent_of(case.reader.txn, case.topic, case.pending)
    messages = "" if unseen else f" ({counted(extent.messages, 'message')})"
    waits = f"{entries(extent.entries)}{messages} {plural(extent.entries, 'waits', 'wait')}"
    what, but = ("Nothing that is seen", ", and not all of it is seen") if unseen else ("Nothing in the store", "")
    said = f", {case.front.says(case.now_ms)}" if case.front is not None else ""
    return Reason(
        "backlog",
        f"{what} holds {name}: {waits} for a consumer{but}; the first is {oldest}{said}.",
        {
            "entries": extent.entries,
            **({} if unseen else {"messages": extent.messages}),
            "bytes": extent.bytes,
            **_told(case),
        },
        f"pulsar-admin topics peek-messages {case.shell_words} -n 1",
    )


def _told(case: Case) -> dict[str, object]:
    if case.front is not None:
        return {"oldest": case.front.evidence()}
    return {} if case.oldest is None else {"oldest": {"position": str(case.oldest)}}


# -- where it stands --------------------------------------------------------------------------------------------------


def _cursor_lost(case: Case) -> Iterator[Reason]:
    cursor = case.cursor
    ledger_id, history = cursor.info.cursors_ledger_id, f"pulsar-admin topics subscription-history {case.shell_words}"
    absent = absent_of(case.reader.txn, ledger_id) if cursor.is_incomplete else ()
    if absent:
        yield Reason(
            "not-imported",
            f"Where {cursor.name} stands is not known: the newest of its cursor ledger {ledger_id} may be on {', '.join(absent)}, which "
            f"{plural(len(absent), 'is', 'are')} not imported. What is shown starts at {cursor.mark_delete}, an older state.",
            {"bookies": list(absent), "cursorLedger": ledger_id, "markDelete": str(cursor.mark_delete)},
            f"pulsar-admin store add bookie {shell_word(absent[0])}=DIR,DIR",
        )
    elif cursor.source is CursorSource.FALLBACK:
        said = ""
        if cursor.recoverable is not None:
            said = f" The entries of that ledger still say {cursor.recoverable.mark_delete}, which no broker sees."
        yield Reason(
            "cursor-lost",
            f"Where {cursor.name} stood is lost: its cursor ledger {ledger_id} cannot be read. A broker starts it at "
            f"{cursor.mark_delete}, as its metadata says: what was acknowledged since comes again.{said}",
            {
                "cursorLedger": ledger_id,
                "markDelete": str(cursor.mark_delete),
                "recoverable": None if cursor.recoverable is None else str(cursor.recoverable.mark_delete),
            },
            history,
        )
    elif cursor.skipped_entries:
        states = counted(cursor.skipped_entries, "state")
        yield Reason(
            "cursor-lost",
            f"{cursor.name} stands at {cursor.mark_delete} by an older state: the newest {states} in its cursor ledger {ledger_id} "
            "cannot be read. What was acknowledged since comes again.",
            {
                "cursorLedger": ledger_id,
                "unreadableStates": cursor.skipped_entries,
                "markDelete": str(cursor.mark_delete),
            },
            history,
        )


def _own_cursor(case: Case) -> Iterator[Reason]:
    name, left = case.cursor.name, sum(end - start for start, end in case.pending)
    if name in (COMPACTION_CURSOR, DEDUP_CURSOR):
        what = "compaction" if name == COMPACTION_CURSOR else "deduplication"
        if left and name == COMPACTION_CURSOR:
            yield Reason(
                "compaction",
                f"{name} is the horizon of compaction, {case.cursor.mark_delete}: it moves only when {what} runs, and holds back the "
                f"{entries(left)} behind it until then.",
                {"horizon": str(case.cursor.mark_delete), "entries": left},
                f"pulsar-admin compaction status {shell_word(case.topic.name)}",
            )
    elif name.startswith(REPLICATOR_PREFIX) and left:
        cluster = name.removeprefix(REPLICATOR_PREFIX)
        yield Reason(
            "replicator",
            f"{name} is the cursor of replication to {cluster}: it moves when that cluster takes messages; {entries(left)} "
            f"{plural(left, 'waits', 'wait')}.",
            {"cluster": cluster, "entries": left},
            f"pulsar-admin clusters get {shell_word(cluster)}",
        )


# -- what cannot be read ----------------------------------------------------------------------------------------------


def _lost(case: Case) -> Iterator[Reason]:
    """Tell of the first entries of the backlog that are lost, and of all that is not seen of it."""
    if not case.pending or not may_be_broken(case.reader.txn, case.topic):
        return
    told, unseen = False, list[BrokenLedger]()
    for broken in find_broken(case.reader.txn, case.topic):
        if broken.not_seen() and case.topic.rank(Position(broken.ledger_id, broken.entries)) > case.pending[0][0]:
            unseen.append(broken)
        hit = () if told else _meets(case, broken)
        if hit:
            told = True
            yield _lost_reason(case, broken, hit)
    if unseen:
        yield _not_seen(case, unseen)


def _meets(case: Case, broken: BrokenLedger) -> Intervals:
    """Return the ranks of the backlog that are lost in BROKEN."""
    rank = case.topic.rank(Position(broken.ledger_id, 0))
    lost = tuple((rank + first, rank + last + 1) for first, last in broken.lost)
    return subtract(case.pending, subtract(case.pending, lost))


def _lost_reason(case: Case, broken: BrokenLedger, hit: Intervals) -> Reason:
    start, end = hit[0]
    first, last = case.topic.at_rank(start), case.topic.at_rank(end - 1)
    before = sum(min(stop, start) - low for low, stop in case.pending if low < start)
    count = sum(stop - low for low, stop in hit)
    at_once = before == 0
    where = f"ledger {broken.ledger_id}: {broken.what()}"
    lead = (
        f"Stuck at {span(first, last)}, which {broken.fate} ({where})"
        if at_once
        else f"{entries(before)} can be read; then comes {span(first, last)}, which {broken.fate} ({where})"
    )
    return Reason(
        "lost-entries" if at_once else "lost-ahead",
        f"{lead}: {broken.broker()}.",
        {
            "ledger": broken.ledger_id,
            "reason": broken.reason,
            "first": str(first),
            "last": str(last),
            "lostEntries": count,
            "entriesBefore": before,
        },
        _past_lost(case, broken, end),
    )


def _past_lost(case: Case, broken: BrokenLedger, end: int) -> str:
    if broken.cure:
        return broken.cure
    if broken.reason == NO_METADATA:
        return f"pulsar-admin ledgers restore {broken.ledger_id}"
    if end >= case.topic.number_of_entries:
        return f"pulsar-admin topics clear-backlog {case.shell_words}"
    return f"pulsar-admin topics reset-cursor {case.shell_words} -m {case.topic.at_rank(end)}"


def _not_seen(case: Case, found: list[BrokenLedger]) -> Reason:
    absent = find_absent_bookies(case.reader.txn)
    bookies = sorted({name for broken in found for name in broken.bookies})
    count = sum(broken.unseen_entries for broken in found)
    first = Position(found[0].ledger_id, found[0].unseen[0][0] if found[0].unseen else found[0].unseen_from or 0)
    what = (
        f"{counted(count, 'entry of its ledgers is', 'entries of its ledgers are')} not seen"
        if count
        else "more may be written there"
    )
    return Reason(
        "not-imported",
        f"{', '.join(bookies) or 'A bookie'} {plural(len(bookies), 'is', 'are')} not imported: {what}, from {first} on, in "
        f"{counted(len(found), 'ledger')}.",
        {"bookies": bookies, "entries": count, "ledgers": [broken.ledger_id for broken in found], "first": str(first)},
        "" if absent is None else absent.hint().rpartition(": ")[2],
    )


def _unreadable(case: Case) -> Iterator[Reason]:
    error, oldest = case.front_error, case.oldest
    if error is None or oldest is None or any(_lost_at(case, oldest)):
        return
    yield Reason(
        "unreadable",
        f"{oldest}, the oldest entry that is not acknowledged, cannot be read: {error.message}.",
        {"position": str(oldest), "error": error.code},
        f"pulsar-admin ledgers verify {oldest.ledger_id}",
    )


def _lost_at(case: Case, position: Position) -> Iterator[bool]:
    for broken in find_broken(case.reader.txn, case.topic):
        yield broken.holds(position) or (broken.reason == NOT_SEEN and broken.ledger_id == position.ledger_id)


# -- what is not given, or not acknowledged ---------------------------------------------------------------------------


def _delayed(case: Case) -> Iterator[Reason]:
    found, front = case.not_due, case.front
    if not found.entries or found.next_due_ms is None or found.last_due_ms is None:
        return
    left = sum(end - start for start, end in case.pending)
    waits = plural(found.entries, "waits for its time", "wait for their time")
    later = f"{found.entries:,} of {entries(left)} {waits}"
    times = f"the next is due {when(found.next_due_ms, case.now_ms)}, the last {shown_time(found.last_due_ms)}"
    evidence = {"entries": found.entries, "nextDue": found.next_due_ms, "lastDue": found.last_due_ms}
    command = f"pulsar-admin delayed status {case.shell_words}"
    if front is not None and front.deliver_at_ms > case.now_ms:
        due = when(front.deliver_at_ms, case.now_ms)
        yield Reason(
            "delayed",
            f"{front.position}, the oldest entry that is not acknowledged, is delayed until {due}: {front.says(case.now_ms)}. "
            f"{later}; {times}.",
            {**evidence, "oldest": front.evidence()},
            command,
        )
    else:
        yield Reason("delayed-later", f"{later}: {times}.", evidence, command)


def _ack_holes(case: Case) -> Iterator[Reason]:
    done = normal_ranges(case.topic, case.cursor.state)
    holes = [(start, end) for start, end in case.pending if done and end <= done[-1][0]]
    if not holes:
        return
    behind, left = sum(end - start for start, end in done), sum(end - start for start, end in holes)
    oldest = case.topic.at_rank(holes[0][0])
    spans = [span(case.topic.at_rank(start), case.topic.at_rank(end - 1)) for start, end in holes]
    said = f", {case.front.says(case.now_ms)}" if case.front is not None else ""
    yield Reason(
        "ack-holes",
        f"Stuck behind {oldest}{said}: it is not acknowledged, and {entries(behind)} behind it {plural(behind, 'is', 'are')}. "
        f"{counted(len(holes), 'hole')} of {entries(left)} in all: {listed(spans, _HOLES)}.",
        {
            "holes": len(holes),
            "holeEntries": left,
            "acknowledgedBehind": behind,
            "ranges": len(case.cursor.state.ranges),
            "firstHoles": spans[:_HOLES],
            **_told(case),
        },
        message_command(case.topic.name, oldest),
    )


def _ranges_limit(case: Case) -> Iterator[Reason]:
    count = len(case.cursor.state.ranges)
    if count >= MAX_UNACKED_RANGES:
        yield Reason(
            "ack-ranges-limit",
            f"{case.cursor.name} stores {count:,} ranges of acknowledgements. A broker keeps {MAX_UNACKED_RANGES:,} unless "
            "managedLedgerMaxUnackedRangesToPersist says more: what was acknowledged behind them comes again when it restarts.",
            {"ranges": count, "limit": MAX_UNACKED_RANGES},
        )


def _transactions(case: Case) -> Iterator[Reason]:
    yield from iter_transaction_reasons(case.topic, case.cursor, case.transactions, case.oldest, case.now_ms)


def _ttl(case: Case) -> Iterator[Reason]:
    if not case.pending:
        return
    try:
        yield from iter_ttl_reasons(case.reader, case.topic, case.cursor, case.front, case.not_due, case.now_ms)
    except StoreError as error:  # of entries: their times cannot be read
        yield Reason("ttl-unknown", f"What the TTL does is not known: {error.message}.", {"error": error.code})


def _quotas(case: Case) -> Iterator[Reason]:
    yield from iter_quota_reasons(case.reader, case.topic, case.now_ms)


_RULES: tuple[Callable[[Case], Iterator[Reason]], ...] = (
    _cursor_lost,
    _own_cursor,
    _lost,
    _unreadable,
    _delayed,
    _ack_holes,
    _ranges_limit,
    _transactions,
    _ttl,
    _quotas,
)
