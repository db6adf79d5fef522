"""How a command asks the Python interface: the objects that callers have, on the session of the command."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pulsar_admin.api.cursors import Cursors
    from pulsar_admin.api.ledger import Ledger
    from pulsar_admin.api.namespace import Namespace
    from pulsar_admin.api.store import Store
    from pulsar_admin.api.topic import Topic
    from pulsar_admin.command_session import CommandSession
    from store.names import NamespaceName, TopicName, TopicSelection


class Asking(ABC):
    """The part of ``App`` that reaches the Python interface."""

    @property
    @abstractmethod
    def session(self) -> CommandSession:
        """What the objects of the Python interface work on here."""

    @property
    def api(self) -> Store:
        """The store as the Python interface has it."""
        from pulsar_admin.api.store import Store

        return Store(self.session)

    def topic(self, name: TopicName) -> Topic:
        """Return the topic NAME as the Python interface has it; whether it is there is seen when it is used."""
        from pulsar_admin.api.topic import Topic

        return Topic(self.session, name)

    def namespace(self, name: NamespaceName) -> Namespace:
        """Return the namespace NAME as the Python interface has it; whether it is there is seen when it is used."""
        from pulsar_admin.api.namespace import Namespace

        return Namespace(self.session, name)

    def cursors(self, selection: TopicSelection, subscription: str) -> Cursors:
        """Return the cursors of SUBSCRIPTION in the topics meant as the Python interface has them."""
        from pulsar_admin.api.cursors import Cursors

        return Cursors(self.session, selection, subscription)

    def ledger(self, ledger_id: int) -> Ledger:
        """Return a ledger as the Python interface has it; whether it is there is seen when it is used."""
        from pulsar_admin.api.ledger import Ledger

        return Ledger(self.session, ledger_id)
