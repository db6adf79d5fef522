"""What a store says of losses before and after them, and plans that bring back what is lost."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pulsar_admin.api.plan import Plan, plan_of
from pulsar_admin.api.session import Session, Time, check_choice
from store.names import parse_namespace, parse_topic

if TYPE_CHECKING:
    from store.history.differences import Changed
    from store.recovery.preflight import Preflight

RecoveryLevel = Literal["A", "B", "C"]


class Recoveries:
    """The part of ``Store`` that is about what is lost, or would be."""

    _session: Session

    def preflight(self) -> Preflight:
        """Return what its bookies, as their disks are now, would delete if they started on the store's metadata: ``bookies``, ``topics``.

        What cannot be read is a PartialData warning. Raises Refused (it has no bookies), SourceNotFound, MetadataCorrupt.
        """
        from store.recovery.parts import read_store_parts
        from store.recovery.preflight import read_preflight

        with self._session.opened() as store, self._session.read() as txn:
            parts = read_store_parts(store, txn)
            found = read_preflight(parts.known, parts.bookies)
        self._session.partial([*parts.known.problems, *(text for one in found.bookies for text in one.problems)])
        return found

    def diff(self, other: Recoveries) -> tuple[Changed, ...]:
        """Return what is another in the metadata of the store OTHER, by topic, in words (``what``, ``subscriptions``) and ``nodes``.

        Subscriptions are compared where they really stand. Raises MetadataCorrupt.
        """
        from store.history.stores import compare_stores

        with self._session.reader() as one, other._session.reader() as second:
            return tuple(compare_stores(one, second))

    def recover(
        self,
        *,
        level: RecoveryLevel | None = None,
        cluster: str | None = None,
        earlier: Recoveries | None = None,
        names: Path | str | None = None,
    ) -> Plan:
        """Plan making lost metadata again from what bookies and ledgers still say, at LEVEL (default: what the store shows).

        CLUSTER: its name, where that is lost; EARLIER: an open store of an earlier state; NAMES: the file of names of level C, which is
        written now where it is not there yet, else read. Raises Refused, Unsupported, MetadataCorrupt, InvalidValue.
        """
        from store.recovery.from_ledgers import Sources
        from store.recovery.recover import plan_recovery

        if level is not None:
            check_choice("level", level, RecoveryLevel)
        with ExitStack() as stack:
            reader = stack.enter_context(self._session.scan())
            before = None if earlier is None else stack.enter_context(earlier._session.reader())
            sources = Sources(reader, self._session.now_ms, before, cluster)
            return plan_of(plan_recovery(sources, level, None if names is None else Path(names)))

    def undelete(
        self,
        *topics: str,
        namespaces: Sequence[str] = (),
        to: str | None = None,
        zookeeper: Sequence[str] = (),
        in_place: bool = False,
        copy: bool = False,
    ) -> Plan:
        """Plan bringing back deleted TOPICS and all deleted topics of NAMESPACES, or what was trimmed of topics that are there.

        ZOOKEEPER: more servers' files, ``dataDir[,dataLogDir]``. COPY: into new ledgers. Raises TopicNotFound, NamespaceNotFound,
        AlreadyExists, Refused, SourceNotFound.
        """
        from store.history.servers import find_servers
        from store.recovery.past import read_past
        from store.recovery.restore import plan_undelete
        from store.recovery.undelete import Undelete, find_deleted, keep_of

        names, spaces = [*map(parse_topic, topics)], [*map(parse_namespace, namespaces)]
        asked = Undelete(in_place=in_place, copy=copy)
        with self._session.opened() as store:
            servers = find_servers(store.info.sources, zookeeper)
        past = read_past(servers, keep_of((*(name.namespace for name in names), *spaces)))
        with self._session.reader() as reader:
            found = find_deleted(past, names, spaces)
            target = None if to is None else parse_topic(to)
            return plan_of(plan_undelete(reader, found, past, asked, self._session.now_ms, target))

    def restore(
        self, topic: str, *, at: Time, to: str | None = None, zookeeper: Sequence[str] = (), in_place: bool = False
    ) -> Plan:
        """Plan bringing TOPIC back as it was AT a time, as ``TOPIC-restored``, TO, or IN_PLACE; raises as ``undelete``."""
        from store.history.servers import find_servers
        from store.recovery.past import read_past
        from store.recovery.restore import RestoreAt, plan_restore_at
        from store.recovery.undelete import Undelete, keep_of

        name, target = parse_topic(topic), None if to is None else parse_topic(to)
        wanted = RestoreAt(name, self._session.time_ms(at), Undelete(in_place=in_place), target)
        with self._session.opened() as store:
            servers = find_servers(store.info.sources, zookeeper)
        past = read_past(servers, keep_of([name.namespace]), wanted.at_ms)
        with self._session.reader() as reader:
            return plan_of(plan_restore_at(reader, wanted, past, servers, self._session.now_ms))
