"""What a store says of losses before and after them, and plans that bring back what is lost."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pulsar_admin.api.plan import Plan, plan_of
from pulsar_admin.api.session import Session, Time, check_choice
from store.names import parse_namespace, parse_topic

if TYPE_CHECKING:
    from store.history.differences import Changed
    from store.model.reader import EntryReader
    from store.recovery.gone import GoneTopic
    from store.recovery.past import Keep, Past
    from store.recovery.preflight import Preflight

RecoveryLevel = Literal["A", "B", "C"]


class Recoveries:
    """The part of ``Store`` that is about what is lost, or would be."""

    def __init__(self, session: Session) -> None:
        self._session = session

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

    def diff(self, other: Recoveries, *, passing: bool = False) -> tuple[Changed, ...]:
        """Return what is another in the metadata of the store OTHER, by topic, in words (``what``, ``subscriptions``) and ``nodes``.

        Subscriptions are compared where they really stand. PASSING: also load reports, bundle ownership and numbers handed out. Raises
        MetadataCorrupt.
        """
        from store.history.stores import compare_stores

        with self._session.reader() as one, other._session.reader() as second:
            return tuple(compare_stores(one, second, passing=passing))

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
        from store.recovery.evidence import unlisted_bytes
        from store.recovery.from_ledgers import Sources
        from store.recovery.recover import plan_recovery

        if level is not None:
            check_choice("level", level, RecoveryLevel)
        with (
            self._session.reader() as reader,
            nullcontext() if earlier is None else earlier._session.reader() as before,
        ):
            sources = Sources(reader, self._session.now_ms, before, cluster)
            with self._session.scanning(reader, unlisted_bytes(reader.txn), "recover"):
                return plan_of(plan_recovery(sources, level, None if names is None else Path(names)))

    def undelete(
        self,
        *topics: str,
        namespaces: Sequence[str] = (),
        to: str | None = None,
        zookeeper: Sequence[str] = (),
        by_evidence: bool = False,
        in_place: bool = False,
        trimmed: bool = False,
        with_gaps: bool = False,
        copy: bool = False,
        hold: str = "restored",
    ) -> Plan:
        """Plan bringing back deleted TOPICS and all deleted topics of NAMESPACES, or what was trimmed of topics that are there.

        ZOOKEEPER: more servers' files, ``dataDir[,dataLogDir]``; BY_EVIDENCE: what entries say in place of a history. TRIMMED: of deleted
        topics also what was trimmed before; WITH_GAPS: ledgers keep their end though entries before it are lost; COPY: into new ledgers;
        HOLD: the subscription that keeps what no other one does, "" for none. Raises TopicNotFound, NamespaceNotFound, AlreadyExists,
        Refused, SourceNotFound.
        """
        from store.recovery.restore import plan_undelete
        from store.recovery.undelete import Undelete, find_deleted, keep_of

        names, spaces = [*map(parse_topic, topics)], [*map(parse_namespace, namespaces)]
        asked = Undelete(in_place=in_place, trimmed=trimmed, with_gaps=with_gaps, hold=hold, copy=copy)
        target = None if to is None else parse_topic(to)
        with self._session.reader() as reader:
            keep = keep_of((*(name.namespace for name in names), *spaces))
            past = _read_past(reader, zookeeper, keep, by_evidence=by_evidence)
            found = find_deleted(past, names, spaces)
            return plan_of(plan_undelete(reader, found, past, asked, self._session.now_ms, target))

    def deleted_topics(self, *, zookeeper: Sequence[str] = (), by_evidence: bool = False) -> tuple[GoneTopic, ...]:
        """Return the topics that ``undelete`` may bring back, and those that were trimmed: ``deleted_ms`` (None: it is there), how many
        ``ledgers`` it no longer lists, how many are ``here``, and their ``entries``. What the history lacks is a PartialData warning.
        """
        from store.recovery.gone import iter_gone, keeps_topics

        with self._session.reader() as reader:
            past = _read_past(reader, zookeeper, keeps_topics, by_evidence=by_evidence)
            found = tuple(iter_gone(reader.txn, past))
        self._session.warn(f"the history is incomplete: {gap}" for gap in past.gaps)
        return found

    def restore(
        self,
        topic: str,
        *,
        at: Time,
        to: str | None = None,
        zookeeper: Sequence[str] = (),
        in_place: bool = False,
        copy: bool = False,
        hold: str = "restored",
    ) -> Plan:
        """Plan bringing TOPIC back as it was AT a time, as ``TOPIC-restored``, TO, or IN_PLACE; the rest is as of ``undelete``."""
        from store.history.servers import find_servers
        from store.recovery.past import read_past
        from store.recovery.restore import RestoreAt, plan_restore_at
        from store.recovery.undelete import Undelete, keep_of

        name, target = parse_topic(topic), None if to is None else parse_topic(to)
        wanted = RestoreAt(name, self._session.time_ms(at), Undelete(in_place=in_place, hold=hold, copy=copy), target)
        with self._session.reader() as reader:
            servers = find_servers(reader.txn.store.info.sources, zookeeper)
            past = read_past(servers, keep_of([name.namespace]), wanted.at_ms)
            return plan_of(plan_restore_at(reader, wanted, past, servers, self._session.now_ms))

    def forget_ledgers(self, *ledgers: int, force: bool = False) -> Plan:
        """Plan that nothing references LEDGERS any more: topics, cursors, compacted views and schemas go on without them.

        Raises LedgerNotFound, and Refused where nothing references one or, without FORCE, nothing of it is lost.
        """
        from store.changes.mending import plan_forget

        with self._session.reader() as reader:
            return plan_of(plan_forget(reader, ledgers, self._session.now_ms, force=force))

    def restore_ledgers(self, *ledgers: int) -> Plan:
        """Plan the lost metadata of LEDGERS made again from their entries, the bookies that hold them, and what references them.

        Raises LedgerNotFound, Refused.
        """
        from store.changes.restoring import plan_restore

        with self._session.reader() as reader:
            return plan_of(plan_restore(reader, ledgers, self._session.now_ms))

    def extend_ledgers(self, *ledgers: int) -> Plan:
        """Plan that closed LEDGERS, or all, end behind the last entry that was acknowledged; raises LedgerNotFound, Refused."""
        from store.recovery.extend import plan_extend

        with self._session.reader() as reader:
            return plan_of(plan_extend(reader, ledgers, self._session.now_ms))

    def undelete_ledgers(self, *ledgers: int, zookeeper: Sequence[str] = (), with_gaps: bool = False) -> Plan:
        """Plan the last metadata of LEDGERS that a broker deleted, or of all that have entries here, so that bookies keep these.

        No topic lists them. ZOOKEEPER, WITH_GAPS: as of ``undelete``. Raises LedgerNotFound, Refused, SourceNotFound.
        """
        from store.recovery.ledgers import plan_restore_deleted
        from store.recovery.past import is_ledger

        with self._session.reader() as reader:
            past = _read_past(reader, zookeeper, lambda path, _: is_ledger(path))
            return plan_of(plan_restore_deleted(reader, ledgers, past, self._session.now_ms, with_gaps=with_gaps))

    def delete_ledgers(self, *ledgers: int, force: bool = False) -> Plan:
        """Plan deleting the metadata of LEDGERS that nothing references: bookies free their entries.

        Raises LedgerNotFound, and Refused where something references one or, without FORCE, might.
        """
        from store.changes.orphans import plan_delete_orphans

        with self._session.read() as txn:
            return plan_of(plan_delete_orphans(txn, ledgers, force=force))


def _read_past(reader: EntryReader, zookeeper: Sequence[str], keep: Keep, *, by_evidence: bool = False) -> Past:
    """Return what the store's ZooKeeper files and those at ZOOKEEPER, or BY_EVIDENCE the entries, tell of earlier metadata."""
    if by_evidence:
        from store.recovery.by_evidence import read_past_by_evidence

        return read_past_by_evidence(reader)
    from store.history.servers import find_servers
    from store.recovery.past import read_past

    return read_past(find_servers(reader.txn.store.info.sources, zookeeper), keep)
