"""Checks of the negative acks kept for scripts: every row whole, of a subscription, and that subscription still there."""

from __future__ import annotations

from collections.abc import Iterator

from store.check.finding import Finding, note, problem_of
from store.db.environment import Txn
from store.errors import IndexCorrupt, InvalidValue, Unsupported
from store.model.cursors import iter_cursor_names
from store.nacks.kept import iter_trackers, iter_wrong_rows
from store.names import parse_topic, shell_word


def check_nacks(txn: Txn) -> Iterator[Finding]:
    """Check the rows of kept negative acks."""
    damaged = False
    try:
        for error in iter_wrong_rows(txn):
            damaged = True
            yield problem_of(error, "nacks-damaged", "store", "nacks")
        if damaged:
            return
        for tracker in iter_trackers(txn):
            if tracker.subscription not in iter_cursor_names(txn, parse_topic(tracker.topic)):
                yield note(
                    "nacks-of-nobody",
                    f"{tracker.topic} {tracker.subscription}",
                    "negative acks were kept for a subscription that is not there",
                    f"see them with: pulsar-admin nacks stats {shell_word(tracker.topic)}",
                )
    except (IndexCorrupt, InvalidValue, Unsupported) as error:
        yield problem_of(error, "nacks-damaged", "store", "nacks")
