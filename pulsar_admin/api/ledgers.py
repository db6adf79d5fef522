"""Ledgers of BookKeeper, impending and actual losses of data, and plans that restore lost data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pulsar_admin import arguments
from pulsar_admin.api.plan import Plan, Planner, plan_of
from pulsar_admin.api.session import Session, session_of
from pulsar_admin.api.transfers import given_parts
from pulsar_admin.arguments import LedgerId, Time
from pulsar_admin.later import later, laters
from pulsar_admin.store.errors import InvalidValue
from pulsar_admin.store.names import LONG_MAX, parse_namespace, parse_topic

if TYPE_CHECKING:
    from pulsar_admin.store.changes import ledger_metadata as ledger_metadata
    from pulsar_admin.store.changes import ledger_references as ledger_references
    from pulsar_admin.store.facts import orphans
    from pulsar_admin.store.history import differences
    from pulsar_admin.store.model.ledger_owners import LedgerOwners
    from pulsar_admin.store.recovery import evidence, from_ledgers, missing_topics
    from pulsar_admin.store.recovery import ledgers as lost_ledgers
    from pulsar_admin.store.recovery import preflight as preflights
    from pulsar_admin.store.recovery import recover as recovering
    from pulsar_admin.store.recovery import restore as restoring
    from pulsar_admin.store.reports import ledger_facts
    from pulsar_admin.store.reports import ledgers as ledger_reports
    from pulsar_admin.store.reports import verify as verifying
    from pulsar_admin.store.scan import length_chains
    from pulsar_admin.store.sources.given_bookies import GivenBookie
else:
    ledger_metadata, ledger_references = laters("pulsar_admin.store.changes", "ledger_metadata ledger_references")
    orphans = later("pulsar_admin.store.facts.orphans")
    differences = later("pulsar_admin.store.history.differences")
    evidence, from_ledgers, lost_ledgers = laters("pulsar_admin.store.recovery", "evidence from_ledgers ledgers")
    missing_topics, preflights, recovering = laters("pulsar_admin.store.recovery", "missing_topics preflight recover")
    restoring = later("pulsar_admin.store.recovery.restore")
    ledger_facts, ledger_reports, verifying = laters("pulsar_admin.store.reports", "ledger_facts ledgers verify")
    length_chains = later("pulsar_admin.store.scan.length_chains")


RecoveryLevel = Literal["A", "B", "C"]


class Recoveries(Planner):
    """The part of ``Store`` about actual and impending losses."""

    def preflight(
        self, *, empty: bool = False, brokers: bool = False, broker_conf: Path | str | None = None
    ) -> preflights.Preflight:
        """Return what the store's bookies, as their disks are now, would delete on starting with its metadata: ``bookies``, ``topics``.

        ``empty`` assumes an empty metadata store. ``brokers`` adds what brokers with this ``broker_conf`` would delete after loading every
        topic. Unreadable parts give a PartialData warning. Raises Refused (no bookies), SourceNotFound, MetadataCorrupt, InvalidValue.
        """
        _check_topics(empty, brokers or broker_conf is not None)
        return forecast_of(self._session, self._session.ask(preflights.read_store_parts, empty), brokers, broker_conf)

    def diff(self, other: Recoveries, *, passing: bool = False) -> tuple[differences.Changed, ...]:
        """Return what differs in the metadata of another store, by topic, in words (``what``, ``subscriptions``) and ``nodes``.

        Subscriptions are compared by their actual positions. ``passing`` includes load reports, bundle ownership and assigned numbers.
        Raises MetadataCorrupt.
        """
        arguments.given_object("other", other, Recoveries)
        with self._session.reader() as one, other._session.reader() as second:
            return tuple(differences.compare_stores(one, second, passing=passing))

    def recover(
        self,
        *,
        level: RecoveryLevel | None = None,
        cluster: str | None = None,
        earlier: Recoveries | None = None,
        names: Path | str | None = None,
        rename: Path | str | None = None,
        probable: bool = False,
        accept_unknown_tree: Sequence[str] = (),
    ) -> Plan:
        """Plan rebuilding lost metadata from bookies and ledgers, at a level (default: the one that the store's state suggests).

        ``cluster`` is its name, if lost; ``earlier`` an open store of an earlier state; ``names`` the file of names of level C, which is
        read if it exists, else written; ``rename`` such a file that is applied to what level C made before; ``probable``: one witness
        joins ledgers there. ``accept_unknown_tree`` names metadata trees of another program or version that reference none of the ledgers;
        each one not named is Refused. Raises Refused, Unsupported, MetadataCorrupt, InvalidValue.
        """
        if rename is not None and not (level is None and earlier is None and names is None):
            hint = "leave out --level, --earlier and --names"
            raise InvalidValue("topics of an earlier recovery of level C are renamed", hint=hint)
        if earlier is not None:
            arguments.given_object("earlier", earlier, Recoveries)
        with (
            self._session.reader() as reader,
            nullcontext() if earlier is None else earlier._session.reader() as before,
            self._session.scanning(reader, evidence.unlisted_bytes(reader.txn), "recover") as scanning,
        ):
            sources = from_ledgers.Sources(scanning, self._session.clock_ms, before, cluster)
            if rename is not None:
                plan = recovering.plan_renaming(sources, Path(rename), probable=probable)
            else:
                file = None if names is None else Path(names)
                plan = recovering.plan_recovery(sources, level, file, accept_unknown_tree, probable=probable)
            return plan_of(plan, reader.txn)

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
        """Plan restoring deleted topics, all deleted topics of namespaces, or the trimmed part of existing topics.

        ``zookeeper`` names the files of more servers, ``dataDir[,dataLogDir]``; ``by_evidence`` uses entries in place
        of a history. ``trimmed`` also restores what was trimmed before a topic was deleted; ``with_gaps`` keeps the
        end of ledgers that lost earlier entries; ``copy`` writes new ledgers; ``hold`` is the subscription that
        retains what no other one does, "" for none. Raises TopicNotFound, NamespaceNotFound, AlreadyExists, Refused (also
        without a history), SourceNotFound, InvalidValue (``to`` for several topics, or ``in_place``).
        """
        wanted = restoring.RestoreDeleted(
            tuple(map(parse_topic, topics)),
            tuple(map(parse_namespace, namespaces)),
            restoring.Undelete(in_place=in_place, trimmed=trimmed, with_gaps=with_gaps, hold=hold, copy=copy),
            None if to is None else parse_topic(to),
            arguments.given_places("zookeeper", zookeeper),
            by_evidence,
        )
        return self._planned(restoring.plan_undelete, wanted)

    def deleted_topics(
        self, *, zookeeper: Sequence[str] = (), by_evidence: bool = False
    ) -> tuple[missing_topics.GoneTopic, ...]:
        """Return the topics that ``undelete`` may restore, and those that were trimmed: ``deleted_ms`` (None: it exists), how many
        ``ledgers`` it no longer lists, how many are ``here``, and their ``entries``. Gaps in the history give a PartialData warning.
        Raises Refused (no ZooKeeper files are known, and without ``by_evidence``), SourceNotFound.
        """
        places, keep = arguments.given_places("zookeeper", zookeeper), missing_topics.is_topic_node
        with self._session.reader() as reader:
            past = missing_topics.read_deletions(reader, places, keep, by_evidence=by_evidence)
            deleted = tuple(missing_topics.iter_gone(reader.txn, past))
        self._session.warn(f"the history is incomplete: {gap}" for gap in past.gaps)
        return deleted

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
        """Plan restoring a topic's state at a time as ``TOPIC-restored``, as ``to``, or ``in_place``; see ``undelete``.

        Also raises NothingMatches for a time that is counted from now, but after the end of an older copy.
        """
        wanted = restoring.RestoreAt(
            parse_topic(topic),
            self._session.time_ms(at, changes=True),
            restoring.Undelete(in_place, hold=hold, copy=copy),
            None if to is None else parse_topic(to),
            arguments.given_places("zookeeper", zookeeper),
        )
        return self._planned(restoring.plan_restore_at, wanted)

    def forget_ledgers(self, *ledgers: LedgerId, force: bool = False, accept_unknown_tree: Sequence[str] = ()) -> Plan:
        """Plan removing every reference to ledgers: topics, cursors, compacted views and schemas continue without them.

        ``accept_unknown_tree``: see ``recover``. Raises LedgerNotFound, Refused for an unreferenced or, without ``force``, whole ledger.
        """
        return self._planned(ledger_references.plan_forget, ledgers, force, accept_unknown_tree)

    def unmark_ledgers(self, *ledgers: LedgerId, force: bool = False) -> Plan:
        """Plan removing under-replication marks from ledgers, without any named from all that are deleted or complete.

        Raises NotFound for a ledger without a mark, and without ``force`` Refused for one that lacks copies or cannot be judged.
        """
        return self._planned_rows(lambda txn, _: ledger_references.plan_unmark(txn, ledgers, force=force))

    def restore_ledgers(self, *ledgers: LedgerId) -> Plan:
        """Plan rebuilding the lost metadata of ledgers from their entries, the bookies that hold them, and their references, or putting
        those that have metadata back into the list of their topic, where it lacks them. Raises LedgerNotFound, Refused.
        """
        return self._planned(ledger_metadata.plan_restore, ledgers)

    def extend_ledgers(self, *ledgers: LedgerId) -> Plan:
        """Plan extending closed ledgers, or all, to the last acknowledged entry; raises LedgerNotFound, Refused."""
        return self._planned(lost_ledgers.plan_extend, ledgers)

    def repoint_ledgers(self, *ledgers: LedgerId) -> Plan:
        """Plan changing the ensembles of ledgers, or of all that need it, to the imported bookies that hold their entries.

        A ledger that cannot be closed because its bookies are gone is closed at its last entry. Raises LedgerNotFound, Refused.
        """
        return self._planned(lost_ledgers.plan_repoint, ledgers)

    def undelete_ledgers(self, *ledgers: LedgerId, zookeeper: Sequence[str] = (), with_gaps: bool = False) -> Plan:
        """Plan restoring the last metadata of ledgers that a broker deleted, or of all that have entries, so that bookies keep these.

        No topic lists them. ``zookeeper`` and ``with_gaps`` are those of ``undelete``. Raises LedgerNotFound, Refused, SourceNotFound.
        """
        places = arguments.given_places("zookeeper", zookeeper)
        return self._planned(lost_ledgers.plan_restore_deleted, ledgers, places, with_gaps)

    def delete_ledgers(self, *ledgers: LedgerId, force: bool = False, accept_unknown_tree: Sequence[str] = ()) -> Plan:
        """Plan deleting the metadata of unreferenced ledgers, so that bookies free their entries.

        ``accept_unknown_tree``: see ``recover``. Raises LedgerNotFound, Refused for a ledger that is, or without ``force`` may be, in use.
        """
        with self._session.reader() as reader:
            plan = ledger_references.plan_delete_orphans(reader, ledgers, force=force, accepted=accept_unknown_tree)
            return plan_of(plan, reader.txn)


@arguments.checked
def preflight(
    *,
    metadata: Path | str | None = None,
    bookies: Iterable[str | GivenBookie] = (),
    client: Path | str | None = None,
    brokers: bool = False,
    broker_conf: Path | str | None = None,
    chroot: str | None = None,
    ledgers_root: str | None = None,
) -> preflights.Preflight:
    """Return what bookies would delete on starting with this metadata (None: an empty metadata store); see ``Store.preflight``.

    Parameters are those of ``import_cluster`` and ``Store.preflight``. Raises as ``import_cluster`` does before it reads.
    """
    _check_topics(metadata is None, brokers or broker_conf is not None)
    parts = preflights.read_parts(*given_parts(metadata, bookies, client, chroot, ledgers_root))
    return forecast_of(session_of(), parts, brokers, broker_conf)


def _check_topics(empty: bool, asked: object) -> None:
    if empty and asked:
        raise InvalidValue("an empty metadata store has no topics", hint="omit brokers, or name metadata")


def forecast_of(
    session: Session, parts: preflights.ClusterParts, brokers: bool, broker_conf: Path | str | None
) -> preflights.Preflight:
    """Return what bookies would delete or, without bookies, what brokers would delete."""
    conf = None if broker_conf is None else Path(broker_conf)
    return preflights.read_forecast(parts, session.reader, session.clock_ms, session.warn, brokers=brokers, conf=conf)


class Ledger(Planner):
    """A ledger of the metadata or of logs. Raises LedgerNotFound, and MetadataCorrupt for damaged metadata without entries."""

    def __init__(self, session: Session, ledger_id: int) -> None:
        self._session = session
        self._ledger_id = arguments.whole_number("ledger", ledger_id, 0, LONG_MAX)

    @property
    def ledger_id(self) -> int:
        """The ledger's id."""
        return self._ledger_id

    def info(self) -> ledger_facts.LedgerFacts:
        """Return state, end, sizes in bytes, metadata, entries, files and references; damaged metadata gives a PartialData warning."""
        with self._session.reporting() as problems:
            return self._session.ask(ledger_facts.read_ledger_facts, self._ledger_id, problems)

    def owners(self) -> LedgerOwners:
        """Return the ledger's references (topics, cursors, schemas, compactions, delayed indexes), ``claims`` and ``state``."""
        return self._session.ask(ledger_reports.read_stated_owners, self._ledger_id)

    def entries(self, first: int = 0, last: int | None = None) -> Iterator[verifying.EntryRow]:
        """Yield the entries ``first`` to ``last``, each read and its digest verified: location, times and sizes.

        ``state`` is ``ok``, ``missing`` (in no file), or the problem. Damaged metadata gives a PartialData warning. Raises EntryNotFound
        (``first`` is after the last one), InvalidValue.
        """
        start = arguments.whole_number("first", first, 0, LONG_MAX)
        end = None if last is None else arguments.whole_number("last", last, -1, LONG_MAX)
        with self._session.reader() as reader:
            yield from verifying.iter_entry_rows(
                reader, self._ledger_id, start, end, lambda error: self._session.partial([error])
            )

    def read(self, entry_id: int) -> bytes:
        """Return the payload of one entry, as a bookie would send it; raises EntryNotFound, EntryCorrupt."""
        number = arguments.whole_number("entry", entry_id, 0, LONG_MAX)
        with self._session.reader() as reader:
            return bytes(reader.read(self._ledger_id, number).payload)

    def verify(self) -> verifying.LedgerVerdict:
        """Read every entry and return the problems: ``problems`` counts, ``damaged`` names, ``missing`` has ranges of ids."""
        (verdict,) = verdicts_of(self._session, (self._ledger_id,))
        return verdict

    def forget(self, *, force: bool = False) -> Plan:
        """Plan removing every reference to the ledger, see ``Store.forget_ledgers``; raises Refused."""
        return Recoveries(self._session).forget_ledgers(self._ledger_id, force=force)

    def restore(self) -> Plan:
        """Plan rebuilding its lost metadata from its entries, the bookies that hold them, and its references; raises Refused."""
        return Recoveries(self._session).restore_ledgers(self._ledger_id)

    def delete(self, *, force: bool = False) -> Plan:
        """Plan deleting the metadata of an unreferenced ledger, see ``Store.delete_ledgers``; raises Refused."""
        return Recoveries(self._session).delete_ledgers(self._ledger_id, force=force)


def verdicts_of(session: Session, ledgers: Sequence[int]) -> Iterator[verifying.LedgerVerdict]:
    """Yield the problems of ledgers, or of all if none is named; raises LedgerNotFound, MetadataCorrupt."""
    with session.reader() as reader:
        chosen = ledgers or tuple(orphans.iter_all_ledger_ids(reader.txn))
        with session.scanning(reader, ledger_reports.indexed_bytes(reader.txn, chosen), "verify") as scanning:
            verify = partial(verifying.verify_ledger, scanning, chains=length_chains.LedgerChains(scanning, chosen))
            yield from session.each(chosen, verify)
