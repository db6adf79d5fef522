"""Said whenever a command answers on a topic that lists a broken ledger: what is lost, and what a broker does there."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from store.errors import StoreError
from store.model.broken import find_broken
from store.model.topics import Topic, read_topic
from store.names import TopicName

if TYPE_CHECKING:
    from pulsar_admin.context import App
    from store.db.environment import Txn

_SHOWN = 5


def warn_of_broken(app: App, txn: Txn, names: Iterable[TopicName]) -> None:
    """Warn of the broken ledgers of the topics NAMES; any makes the exit code 1. One that cannot be read is told by who reads it."""
    for name in names:
        with suppress(StoreError):
            warn_of_broken_ledgers(app, txn, read_topic(txn, name))


def warn_of_broken_ledgers(app: App, txn: Txn, topic: Topic) -> None:
    """Warn of the broken ledgers of TOPIC; any makes the exit code 1."""
    found = find_broken(txn, topic)
    for broken in found[:_SHOWN]:
        app.warn(f"{topic.name}: ledger {broken.ledger_id}: {broken.what()}: {broken.broker()}")
    if len(found) > _SHOWN:
        app.warn(f"{topic.name}: {len(found):,} ledgers are broken; the first {_SHOWN} are shown")
    if found:
        app.problems(len(found))
        app.warn(f"{topic.name}: see what is lost with: pulsar-admin ledgers missing")
