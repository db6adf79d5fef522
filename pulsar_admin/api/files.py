"""A cluster's files without a store: its metadata as ZooKeeper's servers had them, entry logs, journals, and the disks of a bookie."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack, overload

from pulsar_admin import arguments
from pulsar_admin.api.session import Session, session_of
from pulsar_admin.api.transfers import given_parts
from pulsar_admin.arguments import Time
from pulsar_admin.broken import warn_partial
from pulsar_admin.later import later, laters
from pulsar_admin.store.reports import log_files as logs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pulsar_admin.api.store import Store
    from pulsar_admin.store.disks import reclaim as reclaiming
    from pulsar_admin.store.history import differences, events, servers, versions
    from pulsar_admin.store.history.as_of import Moment
    from pulsar_admin.store.sources import given_bookies
    from pulsar_admin.store.sources.given_bookies import GivenBookie
    from pulsar_admin.store.sources.zookeeper import Gap, ServerFiles
else:
    reclaiming = later("pulsar_admin.store.disks.reclaim")
    differences, events, servers, versions = laters("pulsar_admin.store.history", "differences events servers versions")
    given_bookies = later("pulsar_admin.store.sources.given_bookies")


@arguments.checked
def history(
    zookeeper: Iterable[Path | str],
    what: str | None = None,
    *,
    since: Time | None = None,
    until: Time | None = None,
    chroot: str | None = None,
) -> Iterator[events.MetadataChange]:
    """Yield metadata changes from ZooKeeper's files, oldest first, as they are read.

    ``zookeeper`` names the files of servers of one ensemble, each ``dataDir`` or ``dataDir,dataLogDir``; ``chroot`` is the cluster's root
    path if the ensemble has several. ``what`` is a path, topic, tenant/namespace or ledger id (None: everything). ``since`` and ``until``
    are times (texts must be absolute, or like "-3h"), or zxids such as "0x4a1". Missing or damaged files give a PartialData warning at the
    end. Raises SourceNotFound, Refused (no files are named), InvalidValue, MetadataCorrupt.
    """
    problems: list[str] = []
    span = events.Span(*(None if one is None else arguments.moment_of(one) for one in (since, until)))
    for item in iter_history(session_of(), _servers_at(zookeeper, chroot), events.parse_question(what), span):
        if isinstance(item, events.Event):
            yield item.change
        else:
            problems.append(item.text)
    warn_partial(problems)


def _servers_at(zookeeper: Iterable[Path | str], chroot: str | None) -> tuple[ServerFiles, ...]:
    return servers.find_servers((), map(str, zookeeper), arguments.wanted_of(chroot, None).chroot)


def iter_history(
    session: Session, files: Sequence[ServerFiles], question: events.Question, span: events.Span
) -> Iterator[events.Event | Gap | versions.Flaw]:
    """Yield the changes within ``span`` that match the question, and what the servers' files lack."""
    with session.progress(versions.log_bytes(files), "bytes", "history") as advance:
        yield from events.iter_events(files, question, span, advance)


@arguments.checked
def diff(
    zookeeper: Iterable[Path | str],
    *,
    since: Time,
    until: Time | None = None,
    passing: bool = False,
    chroot: str | None = None,
) -> tuple[differences.Changed, ...]:
    """Return the differences between two moments (``until`` None: now), by topic, in words and ``nodes``, as ``Store.diff``.

    ``zookeeper``, ``chroot`` and moments are those of ``history``. Subscriptions are compared as far as the metadata has their positions.
    Missing files give a PartialData warning. Raises SourceNotFound, NothingMatches, InvalidValue, MetadataCorrupt.
    """
    first, last = arguments.moment_of(since), None if until is None else arguments.moment_of(until)
    return diff_of(session_of(), _servers_at(zookeeper, chroot), first, last, passing=passing)


def diff_of(
    session: Session, files: Sequence[ServerFiles], since: Moment, until: Moment | None, *, passing: bool
) -> tuple[differences.Changed, ...]:
    """Return the differences that ``diff`` returns, from servers' files."""
    problems: list[str] = []
    changed = tuple(differences.compare_moments(files, since, until, problems, passing=passing))
    session.partial(dict.fromkeys(problems))
    return changed


class ReclaimOptions(TypedDict, total=False):
    """Keywords of ``reclaim``; ``client``, ``chroot`` and ``ledgers_root`` are those of ``import_cluster``.

    Logs with a live share below ``below_percent`` (default 50) are compacted. ``scratch`` is a directory on another disk, for logs while
    space is short. ``force`` accepts metadata that may be older than the disks. ``accept_unknown_tree`` names metadata trees of another
    program or version that reference no ledger of these disks.
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
) -> reclaiming.ReclaimResult: ...


@overload
def reclaim(
    bookie: str | GivenBookie,
    *,
    metadata: Store | Path | str,
    dry_run: Literal[True],
    **options: Unpack[ReclaimOptions],
) -> reclaiming.ReclaimPlan: ...


@arguments.checked
def reclaim(
    bookie: str | GivenBookie, *, metadata: Store | Path | str, dry_run: bool = False, **options: Unpack[ReclaimOptions]
) -> reclaiming.ReclaimPlan | reclaiming.ReclaimResult:
    """Free the disks of a stopped bookie: delete entry logs of ledgers that the metadata does not list, compact others.

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
) -> reclaiming.ReclaimPlan:
    """Plan reclaiming by the metadata at ``place``, None: of the session's store."""
    request = _request(options)
    roots = options.get("chroot"), options.get("ledgers_root")
    source, (given,) = given_parts(place, [bookie], options.get("client"), *roots)
    with session.opened() if source is None else nullcontext(source) as metadata:
        return reclaiming.plan_reclaim(given_bookies.find_bookie(given), metadata, request)


def _request(options: ReclaimOptions) -> reclaiming.ReclaimRequest:
    return reclaiming.ReclaimRequest(
        options.get("below_percent", 50),
        None if (scratch := options.get("scratch")) is None else Path(scratch),
        options.get("force", False),
        options.get("accept_unknown_tree", ()),
    )


def reclaimed(session: Session, plan: reclaiming.ReclaimPlan, options: ReclaimOptions) -> reclaiming.ReclaimResult:
    """Execute a plan after the session's confirmation."""
    session.confirm(plan)
    with session.warnings() as warn, session.progress(plan.reads_bytes, "bytes", "reclaim", resumes=True) as tell:
        return reclaiming.apply_reclaim(plan, _request(options).scratch, tell, warn)


@arguments.checked
def log_files(path: Path | str) -> tuple[logs.LogSummary, ...]:
    """Return the facts in the name and header of a log, or of all logs and journals in a bookie's directory. Raises SourceNotFound,
    SourceChanged, EntryLogCorrupt.
    """
    return tuple(map(logs.read_log_summary, logs.log_paths(logs.log_place(path))))


@arguments.checked
def log_records(
    path: Path | str, *, verify: bool = True, jobs: int = 1, spark: SparkSession | None = None
) -> Iterator[logs.LogRecord]:
    """Yield the records of one log or journal in file order, damaged bytes included; ``state`` is ``ok`` or the problem.

    ``verify`` checks digests; ``jobs``, ``spark``: see ``open_store``. Raises SourceNotFound, SourceChanged, EntryLogCorrupt, InvalidValue.
    """
    return records_of(session_of(jobs=jobs, spark=spark), logs.log_place(path), verify=verify)


@arguments.checked
def verify_logs(path: Path | str, *, jobs: int = 1, spark: SparkSession | None = None) -> tuple[logs.LogVerdict, ...]:
    """Read whole logs, or those of a bookie's directory with their ``.idx`` files; return records, ``problems`` and ``details`` of each.

    ``jobs`` and ``spark`` are those of ``open_store``. Raises SourceNotFound, SourceChanged, EntryLogCorrupt, InvalidValue.
    """
    return tuple(verdicts_of(session_of(jobs=jobs, spark=spark), logs.log_place(path)))


def records_of(session: Session, path: Path | str, *, verify: bool) -> Iterator[logs.LogRecord]:
    """Yield the records of the logs at a path."""
    for file in logs.log_paths(path):
        with session.engine([], logs.size_of(file)) as engine:
            yield from logs.iter_log_records(file, verify=verify, engine=engine)


def verdicts_of(session: Session, path: Path | str) -> Iterator[logs.LogVerdict]:
    """Yield the problems of each of the logs at a path, and of indexes beside them."""
    files = logs.log_paths(path)
    total = sum(map(logs.size_of, files))
    with session.engine([], total) as engine, session.progress(total, "bytes", "verify") as advance:
        yield from logs.iter_verdicts(path, files, advance, engine)
