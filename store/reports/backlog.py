"""Read model of ``analyze-backlog``: a subscription's backlog, counted from the location index.

Upstream: ``PersistentSubscription.analyzeBacklog`` (Pulsar 4.0.8), without its limit of 10,000 entries and two minutes: an index
row answers for up to 1,024 entries. Batches count their messages, markers one, and acknowledgements inside a batch are not
subtracted, as upstream does.
"""

from pulsar_admin.store.codec.cursor import CursorState
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.model import cursors
from pulsar_admin.store.model.topics import Topic
from pulsar_admin.store.names import Position
from pulsar_admin.store.wording import Answer


class BacklogAnalysis(Answer, frozen=True):
    """``topics analyze-backlog``; ids are None, left out of its JSON, when nothing is left.

    Filters are a broker's: here every entry is accepted.
    """

    JSON_OPTIONAL = ("first_message_id", "last_message_id", "uncounted_entries")

    entries: int
    messages: int
    filter_rejected_entries: int
    filter_accepted_entries: int
    filter_rescheduled_entries: int
    filter_rejected_messages: int
    filter_accepted_messages: int
    filter_rescheduled_messages: int
    aborted: bool
    first_message_id: str | None
    last_message_id: str | None
    uncounted_entries: int | None = None


def analyze_backlog(txn: Txn, topic: Topic, state: CursorState, start: Position | None) -> BacklogAnalysis:
    """Count the entries not yet deleted after the mark-delete, or from ``start`` on, even when that lies before it.

    Entries whose bytes are not here are ``uncounted_entries``: their messages are in no sum.
    """
    intervals = _intervals(topic, state, start)
    extent = cursors.extent_of(txn, topic, intervals)
    return BacklogAnalysis(
        entries=extent.entries,
        messages=extent.messages,
        filter_rejected_entries=0,
        filter_accepted_entries=extent.entries,
        filter_rescheduled_entries=0,
        filter_rejected_messages=0,
        filter_accepted_messages=extent.messages,
        filter_rescheduled_messages=0,
        aborted=False,
        first_message_id=str(topic.at_rank(intervals[0][0])) if intervals else None,
        last_message_id=str(topic.at_rank(intervals[-1][1] - 1)) if intervals else None,
        uncounted_entries=extent.uncounted_entries,
    )


def _intervals(topic: Topic, state: CursorState, start: Position | None) -> cursors.Intervals:
    """Return the ranks that an analysis looks at."""
    if start is None:
        return cursors.pending_intervals(topic, state)
    first = topic.rank(start)
    if first >= topic.number_of_entries:
        return ()
    return cursors.subtract(((first, topic.number_of_entries),), cursors.normal_ranges(topic, state))
