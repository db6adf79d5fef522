"""Checks the machines of a Spark cluster before the first job: their Python, its packages, our code, and the files to
read.

In a classic session, executors run a script without Spark's Python worker, so that machines without Python, or with
another version, also report. With Spark Connect, which does not tell which Python its executors run, a function runs in
the Python worker.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, redirect_stderr
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from inspect import getsource
from io import StringIO
from pickle import PicklingError
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql.functions import udf

from pulsar_admin.store.engine.slices import FileRange, files_of
from pulsar_admin.store.engine.spark_session import (
    PACKED,
    core_count,
    executor_count,
    has_executor,
    has_executors,
    is_connect,
    job_error,
    ship_code,
    text_of,
)
from pulsar_admin.store.errors import DiskFull, MissingComponent, NotOnWorkers
from pulsar_admin.store.secrets import hide_url

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NEEDED = {
    "numpy": "numpy",
    "pyarrow": "pyarrow",
    "numba": "numba",
    "cramjam": "cramjam",
    "google_crc32c": "google-crc32c",
    "msgspec": "msgspec",
    "lmdb": "lmdb",  # imported with the other readers of entries, never opened there
    "google.protobuf.message": "protobuf",  # Spark's own jar, which is on a worker's path, has a directory google/protobuf
}
"""Module → package of everything that a slice needs on an executor."""
_SOMETIMES = {"duckdb": "duckdb", "pyroaring": "pyroaring"}
"""The same of what operations name in ``needs``."""
_ROUNDS = 3  # for executors that start while others are asked
_CONNECT_TASKS = 8  # a session of Spark Connect does not say how many executors it has
_HOSTS_SHOWN = 3
_LOOK_S = 0.5
_SILENT_S = 15  # an executor starts within
_GIVE_UP_S = 300  # pods and containers on machines that start themselves need minutes
_TAG = "pulsar-admin-asks"
_OF_SESSION = re.compile(r"/spark-[0-9a-f-]{36}[^,]*")
_LOG = logging.getLogger(__name__)
_PREPARED: WeakKeyDictionary[SparkSession, set[str]] = WeakKeyDictionary()
"""Sessions whose executors can run slices, and the directories that these see."""
_THERE: WeakKeyDictionary[SparkSession, list[_Found]] = WeakKeyDictionary()
"""What their executors said first."""


def answer(request: Mapping[str, Any]) -> dict[str, Any]:  # Any: JSON
    """Return which of the requested things this process and its machine have.

    Its source also runs on executors, in any Python from 3.7 on, with this module's imports from the standard library.
    """

    def has(module: str) -> bool:
        try:
            return find_spec(module) is not None
        except (ImportError, ValueError):
            return False

    def code_digest(package: str) -> str:
        """Return a digest of the files of a package; "" where it is not installed."""
        spec = find_spec(package)
        if spec is None or not spec.origin or not os.path.isfile(spec.origin):
            return ""
        root = os.path.dirname(spec.origin)
        digest = hashlib.sha256()
        for folder, _, names in sorted(os.walk(root, followlinks=True)):
            for name in sorted(names):
                if name.endswith(tuple(request["kinds"])):
                    path = os.path.join(folder, name)
                    with open(path, "rb") as file:
                        digest.update(os.path.relpath(path, root).encode() + file.read())
        return digest.hexdigest()

    def first_bytes(path: str, end: int) -> list[str]:
        """Return [why the file cannot be read up to ``end``, "" if it can; digest of the bytes after its header, which
        never change]."""
        try:
            with open(path, "rb") as file:
                file.seek(1024)
                tail = file.read(max(min(end - 1024, 4096), 0))
                size = os.fstat(file.fileno()).st_size
        except OSError as error:
            return [error.strerror or str(error), ""]
        return [f"it has {size} bytes, not {end}" if size < end else "", hashlib.sha256(tail).hexdigest()]

    return {
        "python": sys.executable,
        "version": ".".join(map(str, sys.version_info[:2])),
        "missing": [module for module in request["modules"] if not has(module)],
        "code": code_digest(request["package"]),
        "spill": next(filter(None, map(os.environ.get, ("SPARK_EXECUTOR_DIRS", "LOCAL_DIRS", "SPARK_LOCAL_DIRS"))), ""),
        "files": [first_bytes(path, end) for path, end in request["files"]],
    }


class _Found(NamedTuple):
    """The report of an executor: the result of ``answer``, or empty with the reason, ``said``."""

    host: str
    said: str
    has: Mapping[str, Any]  # Any: JSON


def needs_of(operation: object) -> tuple[str, ...]:
    """Return the modules that an operation imports beside those that every operation imports."""
    return getattr(operation, "needs", ())


def prepare_workers(
    session: SparkSession, pieces: Iterable[FileRange] = (), needs: Iterable[str] = (), *, again: bool = False
) -> None:
    """Check that the executors of a session can read slices, and send our code to them unless all have it.

    Every executor checks one file of each directory, once per session unless ``again``. ``needs``: modules of
    ``_SOMETIMES``. Raises MissingComponent (a Python that lacks a package, or is another one), NotOnWorkers (a file
    that is missing or differs), Refused (the cluster gives up).
    """
    if not has_executors(session):
        return
    needed = NEEDED | {name: _SOMETIMES[name] for name in needs}
    seen = _PREPARED.get(session)
    files = {
        folder: file for folder, file in _file_of_each_folder(pieces).items() if again or folder not in (seen or ())
    }
    if seen is not None and not files:
        _check_python(_THERE[session], ".".join(map(str, sys.version_info[:2])), needed)
        return
    package = __name__.partition(".")[0]
    request = {"modules": [*NEEDED, *_SOMETIMES], "package": package, "kinds": PACKED, "files": list(files.values())}
    here, there = answer(request), _ask(session, request)
    _check_python(there, here["version"], needed)
    _check_files(there, [(path, *found) for (path, _), found in zip(files.values(), here["files"], strict=True)])
    if seen is None:
        if not there or any(found.has["code"] != here["code"] for found in there):
            ship_code(session)
        seen = _PREPARED[session] = set()
        _THERE[session] = there
    seen.update(files)


def spill_directories(session: SparkSession) -> dict[str, str]:
    """Return host → the directories to which its executors spill data; "": for hosts with other names."""
    directories = {one.host: _OF_SESSION.sub("", one.has.get("spill", "")) for one in _THERE.get(session, ())}
    everywhere = {*directories.values()} or {session.conf.get("spark.local.dir", None) or ""}
    return {"": everywhere.pop() if len(everywhere) == 1 else ""} | directories


@contextmanager
def sending(session: SparkSession) -> Iterator[None]:
    """Raise DiskFull if, in the block, this machine's disk has no room for data that pyspark sends to tasks."""
    try:
        with redirect_stderr(StringIO()):  # it prints a traceback
            yield
    except PicklingError as error:
        here = _OF_SESSION.sub("", getattr(session.sparkContext, "_temp_dir", ""))
        failure = job_error(str(error), {"": f"this machine, {here}"})
        if not isinstance(failure, DiskFull):
            raise
        raise failure from None


def _file_of_each_folder(pieces: Iterable[FileRange]) -> dict[str, tuple[str, int]]:
    """Return one local file for each directory with slices, and the end of its last slice."""
    ends: dict[str, tuple[str, int]] = {}
    for piece in pieces:
        for path in files_of(piece):
            folder = os.path.dirname(path)
            if "://" not in path and ends.get(folder, (path, 0))[0] == path:
                ends[folder] = path, max(piece.end if path == piece.path else 0, ends.get(folder, (path, 0))[1])
    return ends


# -- waiting -----------------------------------------------------------------------------------------------------------


def wait_for(session: SparkSession, jobs: Collection[Future[Any]], meanwhile: Callable[[], None] | None = None) -> None:
    """Return when the first of some jobs of a session has ended; ``meanwhile`` is called now and then.

    Spark silently waits for executors for ever: after some time this warns, and later it stops the jobs and raises
    MissingComponent.
    """
    alone_since, is_told = time.monotonic(), False
    while not wait(jobs, _LOOK_S, FIRST_COMPLETED).done:
        if meanwhile is not None:
            meanwhile()
        if has_executor(session):
            alone_since, is_told = time.monotonic(), False
            continue
        alone_s = time.monotonic() - alone_since
        where = hide_url(session.conf.get("spark.master") or "")
        if alone_s >= _SILENT_S and not is_told:
            is_told = True
            _LOG.warning(f"no executor has started on {where} yet: waiting for {_GIVE_UP_S} s at most")
        if alone_s >= _GIVE_UP_S:
            session.interruptAll()
            raise MissingComponent(
                f"no executor has started on {where} within {_GIVE_UP_S} s",
                hint=(
                    "see the master's page: other applications hold its cores, or no worker has enough; ask for less "
                    "with --spark-conf spark.executor.memory=1g --spark-conf spark.executor.cores=1"
                ),
            )


# -- asking ------------------------------------------------------------------------------------------------------------


def _ask(session: SparkSession, request: Mapping[str, Any]) -> list[_Found]:  # Any: JSON
    """Return a report of each executor; none if they cannot be queried. Raises Refused, MissingComponent."""
    ask = _ask_python if is_connect(session) else _ask_shell
    names = "hashlib, json, os, socket, sys"
    program = (
        f"from __future__ import annotations\nimport {names}\nfrom importlib.util import find_spec\n{getsource(answer)}"
    )
    answers: dict[str, _Found] = {}
    asked: Future[list[str]] | None = None
    pool = ThreadPoolExecutor(1)
    try:
        for _ in range(_ROUNDS):
            asked = pool.submit(ask, session, program, json.dumps(request))
            wait_for(session, [asked])
            for line in asked.result():
                host, folder, said = line.split("|", 2)
                answers[f"{host}:{folder}"] = _Found(host, said, json.loads(said) if said.startswith("{") else {})
            if len(answers) >= executor_count(session):
                break
    except PySparkException:
        return []
    except Py4JError as error:
        raise job_error(text_of(error)) from None
    finally:
        pool.shutdown(wait=False)
        if asked is not None and not asked.done() and not is_connect(session):
            session.sparkContext.cancelJobsWithTag(_TAG)  # what no query asks is not interrupted
    return list(answers.values())


def _ask_shell(session: SparkSession, program: str, request: str) -> list[str]:
    """Return reports of a shell command, in as many tasks as cores: they start at once, so every executor has some."""
    program += "\nprint(json.dumps(answer(json.loads(sys.stdin.readline()))))\n"
    # What a Python says last, or the shell of one that is not there; who writes to it never finds it gone.
    script = 'said=$({ "$@"; cat >/dev/null; } 2>&1 | tail -n 1); printf "%s|%s|%s\\n" "$HOSTNAME" "$PWD" "$said"'
    words = ["bash", "-c", script, "bash", session.sparkContext.pythonExec, "-c", program]
    tasks = core_count(session)
    session.sparkContext.addJobTag(_TAG)
    asked = session.sparkContext._jsc.parallelize([request] * tasks, tasks).pipe(words)
    return [*map(str, asked.collect())]


def _ask_python(session: SparkSession, program: str, request: str) -> list[str]:
    """Return reports made by a function in Spark's Python worker."""

    def ask(_: int) -> str:
        names: dict[str, Any] = {}  # Any: what the program defines
        exec(program, names)
        said = names["json"].dumps(names["answer"](names["json"].loads(request)))
        return "|".join([names["socket"].gethostname(), names["os"].getcwd(), said])

    rows = (
        session.range(0, _CONNECT_TASKS, 1, _CONNECT_TASKS).select(udf(ask, "string", useArrow=False)("id")).collect()
    )
    return [str(row[0]) for row in rows]


# -- judging -----------------------------------------------------------------------------------------------------------


def _hosts(found: Sequence[_Found]) -> str:
    hosts = list(dict.fromkeys(one.host for one in found))
    return ", ".join(hosts[:_HOSTS_SHOWN]) + (
        f" and {len(hosts) - _HOSTS_SHOWN} more" if len(hosts) > _HOSTS_SHOWN else ""
    )


def _check_python(there: Sequence[_Found], version_here: str, needed: Mapping[str, str] = NEEDED) -> None:
    """Raise MissingComponent unless each executor has a Python of this version with the packages that are needed."""
    silent = [worker for worker in there if not worker.has]
    if silent:
        raise MissingComponent(
            f"a Spark worker has no such Python: {silent[0].said} (on {_hosts(silent)})",
            hint=f"name a Python {version_here} that the workers have: --spark-conf spark.pyspark.python=/path",
        )
    others = [worker for worker in there if worker.has["version"] != version_here]
    if others:
        has = others[0].has
        raise MissingComponent(
            f"a Spark worker lacks this Python: {has['python']} is {has['version']}, here is {version_here} (on {_hosts(others)})",
            hint=f"name a Python {version_here} that the workers have: --spark-conf spark.pyspark.python=/path",
        )
    lacking = [worker for worker in there if not needed.keys().isdisjoint(worker.has["missing"])]
    if lacking:
        has = lacking[0].has
        packages = [needed[module] for module in has["missing"] if module in needed]
        install = " ".join(f"{package}=={_version(package)}" for package in packages)
        raise MissingComponent(
            f"a Spark worker lacks a package: no {', '.join(packages)} in {has['python']}, Python {has['version']} "
            f"(on {_hosts(lacking)})",
            hint=f"in the Python of every worker: pip install {install}; or name another Python with --spark-conf "
            f"spark.pyspark.python=/path; for a session of your own set PYSPARK_PYTHON before it starts (here: {sys.executable})",
            packages=packages,
            python=has["python"],
        )


def _check_files(there: Sequence[_Found], here: Sequence[tuple[str, str, str]]) -> None:
    """Raise NotOnWorkers for a file (path, why it cannot be read here, digest) that an executor lacks, or has in
    another version."""
    for number, (path, failure, digest) in enumerate(here):
        if failure:
            continue  # who reads it says so
        others = [worker for worker in there if worker.has["files"][number] != ["", digest]]
        if others:
            reason = others[0].has["files"][number][0] or "it is another file there"
            raise NotOnWorkers(
                f"{path}: {reason} (on {_hosts(others)})",
                hint="every machine that reads or writes has to see it: name a path that they share, or a URL; "
                "--spark-local-fallback reads it on this machine instead",
                path=path,
                host=others[0].host,
            )


def _version(package: str) -> str:
    """Return the version of a package installed here, "*" if none is; executors are told to install it."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "*"
