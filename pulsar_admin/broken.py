"""Warnings about incomplete answers: incomplete metadata, and topics with broken ledgers, with what a broker does there."""

import sys
import warnings
from collections.abc import Iterable
from contextlib import suppress
from typing import Protocol

from pulsar_admin.store.db.environment import Store, Txn
from pulsar_admin.store.db.files import iter_incompleteness
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.model.broken_beside import find_broken_beside, find_lost_events
from pulsar_admin.store.model.topics import Topic, find_plain_size, may_be_broken, read_topic
from pulsar_admin.store.names import TopicName
from pulsar_admin.store.wording import counted


def tables_text(reason: str) -> str:
    """Return the warning about tables exported from an incomplete store for ``reason``, "" if that is ""."""
    return (
        f"these tables were exported from an incomplete store, so this answer may be incomplete or out of date: "
        f"{reason} (export them again from a complete one)"
        if reason
        else ""
    )


def incomplete_text(store: Store) -> str:
    """Return the warning about a store with incomplete metadata, "" for other stores."""
    altered: list[bytes] = []
    with store.read() as txn, txn.passing_altered(altered.append):  # a check has to go on past them
        reasons = [damage.reason for damage in iter_incompleteness(txn)]
    if altered:
        reasons.append("rows that say what was wrong with it were altered on the disk")
    if not reasons:
        return ""
    more = f", and {counted(len(reasons) - 1, 'problem')} more" if len(reasons) > 1 else ""
    return (
        f"the metadata is incomplete, so this answer may lack something or be out of date: {reasons[0]}{more}"
        " (see: pulsar-admin store check)"
    )


_SHOWN = 5
_MANY = 1_000
"""Topics for which one look at all ledgers is cheaper than one at each of theirs."""


class Told(Protocol):
    """The receiver of warnings: the running command. ``broken_topics``: how many it was told of."""

    broken_topics: int

    def warn(self, message: str) -> None:
        """Print a warning on stderr."""

    def problems(self, count: int) -> None:
        """Count problems in the data, which make the exit code 1."""


def warn_of_broken(told: Told, txn: Txn, names: Iterable[TopicName]) -> None:
    """Warn of the broken ledgers of topics; any makes the exit code 1. A topic that cannot be read is reported by
    the command that reads it.
    """
    listed = list(names)
    if len(listed) >= _MANY:
        from pulsar_admin.store.model.coverage import find_whole_ledgers  # a look at all ledgers

        find_whole_ledgers(txn)
    for name in listed:
        with suppress(StoreError):
            if find_plain_size(txn, name) is not None and not find_lost_events(txn, name):
                continue
            warn_of_broken_ledgers(told, txn, read_topic(txn, name))


def warn_of_broken_ledgers(told: Told, txn: Txn, topic: Topic) -> None:
    """Warn of a topic's broken ledgers and of parts that the store does not have, in detail for the first few topics;
    any makes the exit code 1."""
    count, texts = _broken(txn, topic)
    told.broken_topics += bool(texts)
    for text in texts if told.broken_topics <= _SHOWN else ():
        told.warn(text)
    told.problems(count)


def warn_of_more_broken(told: Told) -> None:
    """Warn of the topics with broken ledgers that were counted only."""
    if told.broken_topics > _SHOWN:
        more = counted(told.broken_topics - _SHOWN, "more topic")
        told.warn(f"{more} with ledgers that are broken or not seen: see pulsar-admin doctor")


def broken_texts(txn: Txn, names: Iterable[TopicName]) -> list[str]:
    """Return the warnings about the broken ledgers of readable topics."""
    return [text for name in names for text in texts_of_broken(txn, read_topic(txn, name))]


def texts_of_broken(txn: Txn, topic: Topic) -> list[str]:
    """Return the warnings about a topic's broken ledgers."""
    return _broken(txn, topic)[1]


def _broken(txn: Txn, topic: Topic) -> tuple[int, list[str]]:
    """Return the number of broken or unavailable ledgers of a topic and its related topics, and the warnings."""
    beside = find_broken_beside(txn, topic)
    if not beside and not may_be_broken(txn, topic):
        return 0, []
    # Imported here: hardly any topic is broken.
    from pulsar_admin.store.model.broken import NOT_SEEN, find_broken
    from pulsar_admin.store.model.coverage import bring_hint, find_absent_bookies, is_journal

    every = find_broken(txn, topic)
    absent = find_absent_bookies(txn)
    texts = []
    for broken in every[:_SHOWN]:
        if broken.reason != NOT_SEEN:
            texts.append(f"ledger {broken.ledger_id}: {broken.what()}: {broken.broker()}")
        if broken.not_seen():
            is_counted = absent and not any(map(is_journal, broken.bookies))
            which = absent.counts() if absent and is_counted else f"{', '.join(broken.bookies)} not imported"
            texts.append(f"{which}: {broken.not_seen()}")
    if len(every) > _SHOWN:
        texts.append(f"{len(every):,} ledgers are broken or not seen; the first {_SHOWN} are shown")
    texts += beside
    cures = dict.fromkeys(broken.cure for broken in every if broken.cure)
    if cures:
        texts.append(
            f"to repair it, start with: {next(iter(cures))}"
            + (f", and {len(cures) - 1:,} more like it" if len(cures) > 1 else "")
        )
    if beside or any(broken.reason != NOT_SEEN and not broken.cure for broken in every):
        texts.append("see the losses and their repair with: pulsar-admin ledgers missing")
    bookies = [bookie for broken in every if broken.not_seen() for bookie in broken.bookies]
    if bookies:
        texts.append(bring_hint(sorted(bookies)))
    return len(every) + len(beside), [f"{topic.name}: {text}" for text in texts]


_NOT_CALLERS = frozenset({"contextlib", "pulsar_admin"})


class PartialData(UserWarning):
    """An answer lacks what could not be read: an entry that is lost or damaged, a cursor, a value without its schema.

    Turn it into an error with ``warnings.simplefilter("error", pulsar_admin.PartialData)``.
    """


def warn_partial(problems: Iterable[StoreError | str]) -> None:
    """Warn about parts that an answer lacks, at the line that called this library."""
    for problem in problems:
        text = problem if isinstance(problem, str) else problem.message
        warnings.warn(text, PartialData, stacklevel=_callers_level())


def _callers_level() -> int:
    """Return the ``stacklevel`` of the line that called this library, counted from the function that calls this one."""
    level, frame = 1, sys._getframe(1)
    # ``with`` blocks and wrapped methods put frames of contextlib between ours.
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _NOT_CALLERS:
        level, frame = level + 1, frame.f_back
    return level
