"""Which subscriptions a command on delayed messages means, and what they wait for."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pulsar_admin.api.cursors import read_cursors, read_topics
from pulsar_admin.context import App
from pulsar_admin.options import TopicSelection, topics_argument
from store.errors import SubscriptionNotFound
from store.model.cursors import Cursor, is_consumed, iter_cursor_names
from store.model.reader import EntryReader
from store.model.topics import Topic

if TYPE_CHECKING:
    from store.delayed.runs import RunFile
    from store.delayed.summary import Delivery
    from store.delayed.waiting import Waiting

Function = TypeVar("Function", bound=Callable[..., Any])  # Any: click calls commands with whatever was declared
UNKNOWN_TYPE = "whether a subscription is Shared or Key_Shared is not on disk; Exclusive and Failover ignore delays"


def delaying(function: Function) -> Function:
    """Add topics and ``-s/--subscription NAME``, handed over as ``selection`` and ``subscription`` (None: all that may delay)."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:  # Any: click calls it
        return function(*args, **kwargs)

    option = click.option("-s", "--subscription", help="Only this subscription [every one that may delay].")
    return topics_argument(option(wrapper))  # type: ignore[return-value]


def iter_delaying(
    app: App, reader: EntryReader, selection: TopicSelection, subscription: str | None, *, unsubscribed: bool = False
) -> Iterator[tuple[Topic, Cursor]]:
    """Yield the cursors meant: SUBSCRIPTION of each topic, or all but the broker's own; raises TopicNotFound, SubscriptionNotFound.

    With UNSUBSCRIBED, a topic that has none gives what a subscription created at its beginning would be, under an empty name.
    """
    from store.delayed.backlog import cursor_of_nobody

    named = bool(selection.topics)
    found = False
    for topic in read_topics(app.session, reader, selection):
        names = sorted(iter_cursor_names(reader.txn, topic.name))
        if subscription is None:
            names = [name for name in names if is_consumed(name)]
        elif selection.single is None or subscription in names:
            names = [name for name in names if name == subscription]
        else:
            names = [subscription]  # which raises that it is not there
        if not names and subscription is None and unsubscribed:
            yield topic, cursor_of_nobody(topic)
        for cursor in read_cursors(app.session, reader, topic, names, named=named):
            found = True
            yield topic, cursor
    if not found and subscription is not None:
        raise SubscriptionNotFound(f"no topic that matches has a subscription {subscription!r}")


def iter_waiting(
    app: App, reader: EntryReader, selection: TopicSelection, subscription: str | None, file: RunFile
) -> Iterator[Waiting]:
    """Yield what each subscription meant waits for, those with nothing delayed left out; FILE takes what memory does not."""
    for topic, cursor in iter_delaying(app, reader, selection, subscription, unsubscribed=True):
        waiting = open_delivery(app, reader, topic, cursor, file).waiting
        if waiting.messages:
            if waiting.index is None:
                app.note(f"{topic.name} {cursor.name}: no current index, its entries are read: see delayed build")
            yield waiting
    app.note(UNKNOWN_TYPE)


def open_delivery(app: App, reader: EntryReader, topic: Topic, cursor: Cursor, file: RunFile) -> Delivery:
    """Return what CURSOR waits for under the policy in force, and that policy; says where it is disabled."""
    from store.delayed.summary import open_delivery as open_summary

    delivery = open_summary(reader, topic, cursor, file, app.now_ms)
    if delivery.warning:
        app.warn(delivery.warning)
    return delivery
