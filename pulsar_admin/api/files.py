"""A cluster's files without a store: its metadata as ZooKeeper's servers had them, entry logs, journals, and the disks of a bookie."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack, overload

from pulsar_admin import arguments
from pulsar_admin.api.session import Session, session_of, warn_partial
from pulsar_admin.api.transfers import given_bookie, source_of
from pulsar_admin.arguments import Time
from pulsar_admin.store.errors import InvalidValue
from pulsar_admin.store.reports.log_files import (
    LogRecord,
    LogSummary,
    LogVerdict,
    iter_log_records,
    log_paths,
    log_place,
    read_log_summary,
    size_of,
    verify_indexes,
    verify_log,
)
from pulsar_admin.store.wording import Answer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pulsar_admin.api.store import Store
    from pulsar_admin.store.disks.reclaim import Nodes, ReclaimPlan, ReclaimResult
    from pulsar_admin.store.engine.operation import Engine
    from pulsar_admin.store.history.as_of import Moment
    from pulsar_admin.store.history.differences import Changed
    from pulsar_admin.store.history.events import Event, Question, Span
    from pulsar_admin.store.history.versions import Flaw
    from pulsar_admin.store.sources.given_bookies import GivenBookie
    from pulsar_admin.store.sources.zookeeper import Gap, ServerFiles


class MetadataChange(Answer, frozen=True):
    """One change of a metadata node: at ``time_ms``, by transaction ``zxid`` of ``session`` (None: only a snapshot has it) and ``who``, the
    broker or bookie of that session. ``kind``: create, set, delete, snapshot; ``what`` in words; ``old`` and ``new`` are exact bytes."""

    time_ms: int
    zxid: int
    session: int | None
    who: str
    kind: str
    path: str
    what: str
    old: bytes | None
    new: bytes | None


@arguments.checked
def history(
    zookeeper: Iterable[Path | str],
    what: str | None = None,
    *,
    since: Time | None = None,
    until: Time | None = None,
    chroot: str | None = None,
) -> Iterator[MetadataChange]:
    """Yield metadata changes from ZooKeeper's files, oldest first, as they are read.

    ``zookeeper`` names the files of servers of one ensemble, each ``dataDir`` or ``dataDir,dataLogDir``; ``chroot`` is
    the cluster's root path if the ensemble has several. ``what`` is a path, topic, tenant/namespace or ledger id
    (None: everything). ``since`` and ``until`` are times (texts must be absolute, or like "-3h"), or zxids such as "0x4a1".
    Missing or damaged files give a PartialData warning at the end. Raises SourceNotFound, Refused (no files are named),
    InvalidValue, MetadataCorrupt.
    """
    from pulsar_admin.store.history.events import Event, Span, parse_question
    from pulsar_admin.store.history.servers import find_servers

    problems: list[str] = []
    span = Span(*(None if one is None else arguments.moment_of(one) for one in (since, until)))
    servers = find_servers((), tuple(map(str, zookeeper)), arguments.wanted_of(chroot, None).chroot)
    for item in iter_history(session_of(), servers, parse_question(what), span):
        if not isinstance(item, Event):
            problems.append(item.text)
            continue
        version = item.version
        where = (version.time_ms, version.zxid, version.session, item.who, version.kind, version.path)
        yield MetadataChange(*where, item.what, item.before, version.value)
    warn_partial(problems)


def iter_history(
    session: Session, servers: Sequence[ServerFiles], question: Question, span: Span
) -> Iterator[Event | Gap | Flaw]:
    """Yield the changes within ``span`` that match the question, and what the servers' files lack."""
    from pulsar_admin.store.history.events import iter_events
    from pulsar_admin.store.history.versions import log_bytes

    with session.progress(log_bytes(servers), "bytes", "history") as advance:
        yield from iter_events(servers, question, span, advance)


@arguments.checked
def diff(
    zookeeper: Iterable[Path | str],
    *,
    since: Time,
    until: Time | None = None,
    passing: bool = False,
    chroot: str | None = None,
) -> tuple[Changed, ...]:
    """Return what differs between two moments (``until`` None: now), by topic, in words and ``nodes``, as
    ``Store.diff`` does.

    ``zookeeper``, ``chroot`` and moments are those of ``history``. Subscriptions are compared as far as the metadata
    has their positions. Missing files give a PartialData warning. Raises SourceNotFound, NothingMatches, InvalidValue,
    MetadataCorrupt.
    """
    from pulsar_admin.store.history.servers import find_servers

    last = None if until is None else arguments.moment_of(until)
    return diff_of(
        session_of(),
        find_servers((), tuple(map(str, zookeeper)), arguments.wanted_of(chroot, None).chroot),
        arguments.moment_of(since),
        last,
        passing=passing,
    )


def diff_of(
    session: Session, servers: Sequence[ServerFiles], since: Moment, until: Moment | None, *, passing: bool
) -> tuple[Changed, ...]:
    """Return the differences that ``diff`` returns, from servers' files."""
    from pulsar_admin.store.history.differences import compare_moments

    problems: list[str] = []
    differences = tuple(compare_moments(servers, since, until, problems, passing=passing))
    session.partial(dict.fromkeys(problems))
    return differences


class ReclaimOptions(TypedDict, total=False):
    """Keywords of ``reclaim``.

    ``client`` is the TOML file with the login to an ensemble. Logs with a live share below ``below_percent`` (default
    50) are compacted. ``chroot`` and ``ledgers_root`` choose the cluster of a ZooKeeper, see ``import_cluster``.
    ``scratch`` is a directory on another disk, for logs while space is short. ``force`` accepts metadata that may be
    older than the disks. ``accept_unknown_tree`` names metadata trees of another program or version that reference no
    ledger of these disks.
    """

    client: Path | str | None
    chroot: str | None
    ledgers_root: str | None
    below_percent: float
    scratch: Path | str | None
    force: bool
    accept_unknown_tree: Sequence[str]


@overload
def reclaim(
    bookie: str | GivenBookie,
    *,
    metadata: Store | Path | str,
    dry_run: Literal[False] = False,
    **options: Unpack[ReclaimOptions],
) -> ReclaimResult: ...


@overload
def reclaim(
    bookie: str | GivenBookie,
    *,
    metadata: Store | Path | str,
    dry_run: Literal[True],
    **options: Unpack[ReclaimOptions],
) -> ReclaimPlan: ...


@arguments.checked
def reclaim(
    bookie: str | GivenBookie, *, metadata: Store | Path | str, dry_run: bool = False, **options: Unpack[ReclaimOptions]
) -> ReclaimPlan | ReclaimResult:
    """Free the disks of a stopped bookie: delete entry logs of ledgers that the metadata does not list, compact
    others.

    ``bookie``, and ``metadata`` unless it is an open store, are those of ``import_cluster``; options are described at
    ``ReclaimOptions``. ``dry_run`` returns the plan: ``frees_bytes``, ``loses``, and what happens to each of ``logs``.
    Unfinished work is in ``passed_over`` and ``left`` of the result, and gives a PartialData warning; another call
    continues. Raises InvalidValue, Refused (doubtful metadata), SourceNotFound, SourceBusy (the bookie runs),
    NotFound, Unsupported (no DbLedgerStorage), StalePlan, MetadataCorrupt, IndexCorrupt, NotWritable, DiskFull.
    """
    from pulsar_admin.api.store import Store

    arguments.check_keywords(options, ReclaimOptions)
    if not isinstance(metadata, Store):
        arguments.given_path("metadata", metadata)
    session, place = (metadata._session, None) if isinstance(metadata, Store) else (session_of(), metadata)
    plan = reclaim_plan(session, bookie, place, options)
    return plan if dry_run else reclaimed(session, plan, options)


def reclaim_plan(
    session: Session, bookie: str | GivenBookie, place: Path | str | None, options: ReclaimOptions
) -> ReclaimPlan:
    """Plan reclaiming by the metadata at ``place``, None: of the session's store."""
    from pulsar_admin.store.disks.reclaim import check_scratch, plan_reclaim
    from pulsar_admin.store.disks.trust import nodes_of, read_stored, stored_nodes
    from pulsar_admin.store.recovery.preflight import read_source
    from pulsar_admin.store.sources.given_bookies import find_bookie

    below, scratch = options.get("below_percent", 50), _scratch(options)
    force, accepted = options.get("force", False), tuple(options.get("accept_unknown_tree", ()))
    if not 0 <= below <= 100:
        raise InvalidValue(f"below_percent {below:g} is not from 0 to 100", value=below)
    bookie = given_bookie(bookie)
    wanted = arguments.wanted_of(options.get("chroot"), options.get("ledgers_root"))
    source = source_of(place, options.get("client"), wanted, [bookie])
    nodes: Nodes
    with ExitStack() as stack:
        if source is None:
            store = stack.enter_context(session.opened())
            known, nodes = read_stored(store), partial(stored_nodes, store)
        else:
            known, nodes = read_source(source), partial(nodes_of, source)
        can_lend = scratch is not None
        plan = plan_reclaim(find_bookie(bookie), known, nodes, below, force=force, accepted=accepted, can_lend=can_lend)
    check_scratch(scratch, plan.bookie)
    return plan


def reclaimed(session: Session, plan: ReclaimPlan, options: ReclaimOptions) -> ReclaimResult:
    """Execute a plan after the session's confirmation."""
    from pulsar_admin.store.disks.reclaim import apply_reclaim

    session.confirm(plan)
    with session.warnings() as warn, session.progress(plan.reads_bytes, "bytes", "reclaim", resumes=True) as tell:
        return apply_reclaim(plan, _scratch(options), tell, warn)


def _scratch(options: ReclaimOptions) -> Path | None:
    scratch = options.get("scratch")
    return None if scratch is None else Path(scratch)


@arguments.checked
def log_files(path: Path | str) -> tuple[LogSummary, ...]:
    """Return the facts in the name and header of a log, or of all logs and journals in a bookie's directory.

    Raises SourceNotFound, SourceChanged, EntryLogCorrupt.
    """
    return tuple(map(read_log_summary, log_paths(log_place(path))))


@arguments.checked
def log_records(
    path: Path | str, *, verify: bool = True, jobs: int = 1, spark: SparkSession | None = None
) -> Iterator[LogRecord]:
    """Yield the records of one log or journal in file order, damaged bytes included; ``state`` is ``ok`` or the
    problem.

    ``verify`` checks digests. ``jobs`` and ``spark`` are those of ``open_store``. Raises SourceNotFound,
    SourceChanged, EntryLogCorrupt, InvalidValue.
    """
    return records_of(session_of(jobs=jobs, spark=spark), log_place(path), verify=verify)


@arguments.checked
def verify_logs(path: Path | str, *, jobs: int = 1, spark: SparkSession | None = None) -> tuple[LogVerdict, ...]:
    """Read whole logs, or those of a bookie's directory with their ``.idx`` files; return records, ``problems`` and
    ``details`` of each.

    ``jobs`` and ``spark`` are those of ``open_store``. Raises SourceNotFound, SourceChanged, EntryLogCorrupt,
    InvalidValue.
    """
    return tuple(verdicts_of(session_of(jobs=jobs, spark=spark), log_place(path)))


def records_of(session: Session, path: Path | str, *, verify: bool) -> Iterator[LogRecord]:
    """Yield the records of the logs at a path."""
    for file in log_paths(path):
        with session.engine([], size_of(file)) as engine:
            yield from iter_log_records(file, verify=verify, engine=_engine_for(path, engine))


def _engine_for(path: Path | str, engine: Engine | None) -> Engine | None:
    """Return what scans the logs at ``path``: for a URL this process as an engine, where there is no other."""
    if engine is not None or isinstance(path, Path):
        return engine
    from pulsar_admin.store.engine.local import LocalEngine
    from pulsar_admin.store.engine.memory import own_memory_bytes

    return LocalEngine(1, own_memory_bytes())


def verdicts_of(session: Session, path: Path | str) -> Iterator[LogVerdict]:
    """Yield the problems of each of the logs at a path, and of indexes beside them."""
    files = log_paths(path)
    total = sum(map(size_of, files))
    with session.engine([], total) as engine, session.progress(total, "bytes", "verify") as advance:
        yield from (verify_log(file, advance, _engine_for(path, engine)) for file in files)
        if isinstance(path, Path):
            yield from verify_indexes(path)
