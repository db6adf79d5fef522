"""Ledgers of BookKeeper, losses of a store before and after they happen, and plans that restore lost data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

from pulsar_admin import arguments
from pulsar_admin.api.plan import Plan, Planner, plan_of
from pulsar_admin.api.session import Session, session_of
from pulsar_admin.api.transfers import given_parts
from pulsar_admin.arguments import LedgerId, Time
from pulsar_admin.later import later
from pulsar_admin.store.errors import InvalidValue, Refused, TopicNotFound
from pulsar_admin.store.names import LONG_MAX, parse_namespace, parse_topic
from pulsar_admin.store.wording import counted

if TYPE_CHECKING:
    from pulsar_admin.store.changes import ledger_references as ledger_references
    from pulsar_admin.store.changes.plan import Plan as StorePlan
    from pulsar_admin.store.history.differences import Changed
    from pulsar_admin.store.model.ledger_owners import LedgerOwners
    from pulsar_admin.store.model.reader import EntryReader
    from pulsar_admin.store.recovery import ledgers as lost_ledgers
    from pulsar_admin.store.recovery import preflight as preflights
    from pulsar_admin.store.recovery.deleted_nodes import Keep, Past
    from pulsar_admin.store.recovery.missing_topics import GoneTopic
    from pulsar_admin.store.recovery.preflight import ClusterParts, Preflight
    from pulsar_admin.store.reports.ledger_facts import LedgerFacts
    from pulsar_admin.store.reports.verify import EntryRow, LedgerVerdict
    from pulsar_admin.store.sources.given_bookies import GivenBookie
else:
    ledger_references = later("pulsar_admin.store.changes.ledger_references")
    lost_ledgers = later("pulsar_admin.store.recovery.ledgers")
    preflights = later("pulsar_admin.store.recovery.preflight")


RecoveryLevel = Literal["A", "B", "C"]


class Recoveries(Planner):
    """The part of ``Store`` about actual and impending losses."""

    def preflight(
        self, *, empty: bool = False, brokers: bool = False, broker_conf: Path | str | None = None
    ) -> Preflight:
        """Return what the store's bookies, as their disks are now, would delete on starting with its metadata:
        ``bookies``, ``topics``.

        ``empty`` assumes an empty metadata store. ``brokers`` adds what brokers with this ``broker_conf`` would delete
        after loading every topic. Unreadable parts give a PartialData warning. Raises Refused (no bookies),
        SourceNotFound, MetadataCorrupt, InvalidValue (``brokers`` and ``empty``).
        """
        _check_topics(empty, brokers or broker_conf is not None)
        return forecast_of(self._session, parts_of_store(self._session, empty=empty), brokers, broker_conf)

    def diff(self, other: Recoveries, *, passing: bool = False) -> tuple[Changed, ...]:
        """Return what differs in the metadata of another store, by topic, in words (``what``, ``subscriptions``)
        and ``nodes``.

        Subscriptions are compared by their actual positions. ``passing`` includes load reports, bundle ownership and
        assigned numbers. Raises MetadataCorrupt.
        """
        from pulsar_admin.store.history.differences import compare_stores

        arguments.given_object("other", other, Recoveries)
        with self._session.reader() as one, other._session.reader() as second:
            return tuple(compare_stores(one, second, passing=passing))

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
        """Plan rebuilding lost metadata from bookies and ledgers, at a level (default: the one that the store's
        state suggests).

        ``cluster`` is its name, if lost; ``earlier`` an open store of an earlier state; ``names`` the file of names of
        level C, which is read if it exists, else written; ``rename`` such a file that is applied to what level C made
        before; ``probable``: one witness joins ledgers there. ``accept_unknown_tree`` names metadata trees of another
        program or version that reference none of the ledgers; each one not named is Refused. Raises Refused,
        Unsupported, MetadataCorrupt, InvalidValue.
        """
        from pulsar_admin.store.recovery.evidence import unlisted_bytes
        from pulsar_admin.store.recovery.from_ledgers import Sources
        from pulsar_admin.store.recovery.recover import plan_recovery, plan_renaming

        place = None if names is None else Path(names)
        if rename is not None and not (level is None and earlier is None and names is None):
            hint = "leave out --level, --earlier and --names"
            raise InvalidValue("topics of an earlier recovery of level C are renamed", hint=hint)
        if earlier is not None:
            arguments.given_object("earlier", earlier, Recoveries)
        with (
            self._session.reader() as reader,
            nullcontext() if earlier is None else earlier._session.reader() as before,
            self._session.scanning(reader, unlisted_bytes(reader.txn), "recover") as scanning,
        ):
            sources = Sources(scanning, self._session.clock_ms, before, cluster)
            if rename is not None:
                return plan_of(plan_renaming(sources, Path(rename), probable=probable), reader.txn)
            return plan_of(plan_recovery(sources, level, place, accept_unknown_tree, probable=probable), reader.txn)

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
        from pulsar_admin.store.recovery.restore import Undelete, check_vanished, find_deleted, keep_of, plan_undelete

        if to is not None and (in_place or namespaces or len(topics) != 1):
            hint = "name one topic; leave out --namespace and --in-place"
            raise InvalidValue(f"the name {to} is for a single restored topic", hint=hint, value=to)
        names, spaces = [*map(parse_topic, topics)], [*map(parse_namespace, namespaces)]
        asked = Undelete(in_place=in_place, trimmed=trimmed, with_gaps=with_gaps, hold=hold, copy=copy)
        target = None if to is None else parse_topic(to)
        with self._session.reader() as reader:
            keep = keep_of((*(name.namespace for name in names), *spaces))
            try:
                past = _read_past(reader, zookeeper, keep, by_evidence=by_evidence)
                deleted = find_deleted(past, names, spaces)
                return plan_of(plan_undelete(reader, deleted, past, asked, self._session.clock_ms, target), reader.txn)
            except (TopicNotFound, Refused) as error:
                check_vanished(reader, names, error)
                raise

    def deleted_topics(self, *, zookeeper: Sequence[str] = (), by_evidence: bool = False) -> tuple[GoneTopic, ...]:
        """Return the topics that ``undelete`` may restore, and those that were trimmed: ``deleted_ms`` (None: it exists), how many
        ``ledgers`` it no longer lists, how many are ``here``, and their ``entries``. Gaps in the history give a PartialData warning.
        Raises Refused (no ZooKeeper files are known, and without ``by_evidence``), SourceNotFound.
        """
        from pulsar_admin.store.recovery.missing_topics import is_topic_node, iter_gone

        with self._session.reader() as reader:
            past = _read_past(reader, zookeeper, is_topic_node, by_evidence=by_evidence)
            deleted = tuple(iter_gone(reader.txn, past))
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
        """Plan restoring a topic's state at a time as ``TOPIC-restored``, as ``to``, or ``in_place``; other options and errors are
        those of ``undelete``.

        Also raises NothingMatches for a time that is counted from now, but after the end of an older copy.
        """
        from pulsar_admin.store.changes.resets import check_now_is_meant
        from pulsar_admin.store.history.servers import find_servers
        from pulsar_admin.store.recovery.deleted_nodes import read_past
        from pulsar_admin.store.recovery.restore import RestoreAt, Undelete, keep_of, plan_restore_at

        if to is not None and in_place:
            raise InvalidValue("to names the restored topic, in_place restores it under its own name", value=to)
        name, target = parse_topic(topic), None if to is None else parse_topic(to)
        wanted = RestoreAt(
            name, self._session.time_ms(at, changes=True), Undelete(in_place, hold=hold, copy=copy), target
        )
        with self._session.reader() as reader:
            check_now_is_meant(reader, wanted.at_ms, self._session.clock_ms)
            servers = find_servers(reader.txn.store.info.sources, arguments.given_places("zookeeper", zookeeper))
            past = read_past(servers, keep_of([name.namespace]), wanted.at_ms)
            return plan_of(plan_restore_at(reader, wanted, past, servers, self._session.clock_ms), reader.txn)

    def forget_ledgers(self, *ledgers: LedgerId, force: bool = False, accept_unknown_tree: Sequence[str] = ()) -> Plan:
        """Plan removing every reference to ledgers, so that topics, cursors, compacted views and schemas continue
        without them.

        ``accept_unknown_tree`` is that of ``recover``. Raises LedgerNotFound, and Refused for an unreferenced ledger
        or, without ``force``, a complete one.
        """
        plan = partial(ledger_references.plan_forget, force=force, accepted=accept_unknown_tree)
        return self._planned(plan, ledgers)

    def unmark_ledgers(self, *ledgers: LedgerId, force: bool = False) -> Plan:
        """Plan removing under-replication marks from ledgers, without any named from all that are deleted or
        complete.

        Raises NotFound for a ledger without a mark, and without ``force`` Refused for one that lacks copies or cannot
        be judged.
        """
        return self._planned_rows(lambda txn, _: ledger_references.plan_unmark(txn, ledgers, force=force))

    def restore_ledgers(self, *ledgers: LedgerId) -> Plan:
        """Plan rebuilding the lost metadata of ledgers from their entries, the bookies that hold them, and their
        references, or putting those that have metadata back into the list of their topic, where it lacks them.

        Raises LedgerNotFound, Refused.
        """
        from pulsar_admin.store.changes.ledger_metadata import plan_restore

        return self._planned(plan_restore, ledgers)

    def extend_ledgers(self, *ledgers: LedgerId) -> Plan:
        """Plan extending closed ledgers, or all, to the last acknowledged entry; raises LedgerNotFound, Refused."""
        return self._planned(lost_ledgers.plan_extend, ledgers)

    def repoint_ledgers(self, *ledgers: LedgerId) -> Plan:
        """Plan changing the ensembles of ledgers, or of all that need it, to the imported bookies that hold their
        entries.

        A ledger that cannot be closed because its bookies are gone is closed at its last entry. Raises LedgerNotFound,
        Refused.
        """
        return self._planned(lost_ledgers.plan_repoint, ledgers)

    def undelete_ledgers(self, *ledgers: LedgerId, zookeeper: Sequence[str] = (), with_gaps: bool = False) -> Plan:
        """Plan restoring the last metadata of ledgers that a broker deleted, or of all that have entries, so that
        bookies keep these.

        No topic lists the ledgers. ``zookeeper`` and ``with_gaps`` are those of ``undelete``. Raises LedgerNotFound,
        Refused, SourceNotFound.
        """
        from pulsar_admin.store.recovery.deleted_nodes import is_ledger

        def make(reader: EntryReader, now_ms: int) -> StorePlan:
            past = _read_past(reader, zookeeper, lambda path, _: is_ledger(path))
            return lost_ledgers.plan_restore_deleted(reader, ledgers, past, now_ms, with_gaps=with_gaps)

        return self._planned(make)

    def delete_ledgers(self, *ledgers: LedgerId, force: bool = False, accept_unknown_tree: Sequence[str] = ()) -> Plan:
        """Plan deleting the metadata of unreferenced ledgers, so that bookies free their entries.

        ``accept_unknown_tree`` is that of ``recover``. Raises LedgerNotFound, and Refused for a ledger that is
        referenced or, without ``force``, may be.
        """
        plan = partial(ledger_references.plan_delete_orphans, force=force, accepted=accept_unknown_tree)
        return self._planned(lambda reader, _: plan(reader, ledgers))


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
) -> Preflight:
    """Return what bookies would delete on starting with this metadata (None: an empty metadata store); see
    ``Store.preflight``.

    ``metadata``, ``bookies``, ``client``, ``chroot`` and ``ledgers_root`` are those of ``import_cluster``. Raises as
    ``import_cluster`` does before it reads.
    """
    _check_topics(metadata is None, brokers or broker_conf is not None)
    parts = preflights.read_parts(*given_parts(metadata, bookies, client, chroot, ledgers_root))
    return forecast_of(session_of(), parts, brokers, broker_conf)


def _check_topics(empty: bool, asked: object) -> None:
    if empty and asked:
        raise InvalidValue("an empty metadata store has no topics", hint="omit brokers, or name metadata")


def parts_of_store(session: Session, *, empty: bool = False) -> ClusterParts:
    """Return the parts for a forecast: the store's metadata, or with ``empty`` none, and its bookies."""
    with session.opened() as store, session.read() as txn:
        return preflights.read_store_parts(store, txn, empty=empty)


def forecast_of(session: Session, parts: ClusterParts, brokers: bool, broker_conf: Path | str | None) -> Preflight:
    """Return what bookies would delete; without bookies, what brokers would."""
    forecast = preflights.read_preflight(parts.known, parts.bookies, parts.servers)
    with session.warnings() as warn:
        for text in (*parts.known.problems, *(text for one in forecast.bookies for text in one.problems)):
            warn(text)
        if parts.blank:
            warn(f"{counted(parts.blank, 'bookie')} without any data: a first start")
    if (parts.bookies or parts.blank) and not (brokers or broker_conf is not None):
        return forecast
    from pulsar_admin.store.model.reader import open_reader
    from pulsar_admin.store.recovery.broker_forecast import BrokerDefaults, read_broker_conf, read_broker_forecast

    defaults = BrokerDefaults() if broker_conf is None else read_broker_conf(Path(broker_conf))
    with ExitStack() as stack:
        if parts.source is None:
            reader = stack.enter_context(session.reader())
        else:
            store = stack.enter_context(preflights.open_metadata_alone(parts.source, session.clock_ms))
            reader = stack.enter_context(open_reader(store))
        return replace(forecast, brokers=read_broker_forecast(reader, session.clock_ms, defaults))


def _read_past(reader: EntryReader, zookeeper: Sequence[str], keep: Keep, *, by_evidence: bool = False) -> Past:
    """Return earlier metadata from the store's and the given ZooKeeper files, or with ``by_evidence`` from entries."""
    if by_evidence:
        from pulsar_admin.store.recovery.missing_topics import read_past_by_evidence

        return read_past_by_evidence(reader)
    from pulsar_admin.store.history.servers import find_servers
    from pulsar_admin.store.recovery.deleted_nodes import read_past

    return read_past(find_servers(reader.txn.store.info.sources, arguments.given_places("zookeeper", zookeeper)), keep)


class Ledger(Planner):
    """A ledger, listed in the metadata or only known from entries in logs. All methods raise LedgerNotFound."""

    def __init__(self, session: Session, ledger_id: int) -> None:
        self._session = session
        self._ledger_id = arguments.whole_number("ledger", ledger_id, 0, LONG_MAX)

    @property
    def ledger_id(self) -> int:
        """The id."""
        return self._ledger_id

    def info(self) -> LedgerFacts:
        """Return state, end, sizes in bytes, metadata, indexed entries, files, references, and missing entries.

        Raises MetadataCorrupt.
        """
        from pulsar_admin.store.reports.ledger_facts import read_ledger_facts

        return self._session.ask(read_ledger_facts, self._ledger_id)

    def owners(self) -> LedgerOwners:
        """Return what references it (topics, cursors, schemas, compactions, delayed indexes), its ``claims`` and its ``state``."""
        from pulsar_admin.store.reports.ledgers import read_stated_owners

        return self._session.ask(read_stated_owners, self._ledger_id)

    def entries(self, first: int = 0, last: int | None = None) -> Iterator[EntryRow]:
        """Yield the entries ``first`` to ``last``, each read and its digest verified: location, times and sizes.

        ``state`` is ``ok``, ``missing`` (in no file), or the problem. Raises LedgerNotFound, EntryNotFound (``first``
        is after the last entry), InvalidValue (``first`` is after ``last``).
        """
        from pulsar_admin.store.model.ledgers import read_ledger
        from pulsar_admin.store.reports.verify import iter_entry_rows

        start, end = (
            arguments.whole_number("first", first, 0, LONG_MAX),
            None if last is None else arguments.whole_number("last", last, -1, LONG_MAX),
        )
        with self._session.reader() as reader:
            # -1 is the last entry id of an empty ledger, and of no other.
            if end is not None and start > end and (end > -1 or read_ledger(reader.txn, self._ledger_id).entries):
                raise InvalidValue(f"first={start} is after last={end}")
            yield from iter_entry_rows(reader, self._ledger_id, start, end)

    def read(self, entry_id: int) -> bytes:
        """Return the payload of one entry, as a bookie would send it; raises EntryNotFound, EntryCorrupt."""
        number = arguments.whole_number("entry", entry_id, 0, LONG_MAX)
        with self._session.reader() as reader:
            return bytes(reader.read(self._ledger_id, number).payload)

    def verify(self) -> LedgerVerdict:
        """Read every entry and return the problems: ``problems`` counts, ``damaged`` names, ``missing`` has ranges of ids."""
        (verdict,) = verdicts_of(self._session, (self._ledger_id,))
        return verdict

    def forget(self, *, force: bool = False) -> Plan:
        """Plan removing every reference to the ledger, so that topics, cursors, compacted views and schemas
        continue without it.

        Raises Refused for an unreferenced ledger or, without ``force``, a complete one.
        """
        return Recoveries(self._session).forget_ledgers(self._ledger_id, force=force)

    def restore(self) -> Plan:
        """Plan rebuilding its lost metadata from its entries, the bookies that hold them, and its references; raises Refused."""
        return Recoveries(self._session).restore_ledgers(self._ledger_id)

    def delete(self, *, force: bool = False) -> Plan:
        """Plan deleting the metadata of an unreferenced ledger, so that bookies free its entries.

        Raises Refused for a ledger that is referenced or, without ``force``, may be.
        """
        return Recoveries(self._session).delete_ledgers(self._ledger_id, force=force)


def verdicts_of(session: Session, ledgers: Sequence[int]) -> Iterator[LedgerVerdict]:
    """Yield the problems of ledgers, or of all if none is named; raises LedgerNotFound, MetadataCorrupt."""
    from pulsar_admin.store.facts.orphans import iter_all_ledger_ids
    from pulsar_admin.store.reports.ledgers import indexed_bytes
    from pulsar_admin.store.reports.verify import verify_ledger
    from pulsar_admin.store.scan.length_chains import LedgerChains

    with session.reader() as reader:
        chosen = ledgers or tuple(iter_all_ledger_ids(reader.txn))
        with session.scanning(reader, indexed_bytes(reader.txn, chosen), "verify") as scanning:
            chains = LedgerChains(scanning, chosen)
            yield from session.each(chosen, lambda ledger_id: verify_ledger(scanning, ledger_id, chains))
