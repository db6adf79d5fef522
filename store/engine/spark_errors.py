"""What Spark's long messages say went wrong: the cause first, in one line."""

from __future__ import annotations

import re
import socket
import sys
from urllib.parse import urlsplit

from pulsar_admin.store.engine.secrets import hide_secrets, hide_url
from pulsar_admin.store.errors import InvalidValue, LimitExceeded, MissingComponent, Refused, StoreError

_CAUSE = re.compile(r"^\s*(?:Caused by: |: )?((?:[\w$]+\.)*_?[A-Z][\w$]*(?:Error|Exception|Exit|Interrupt)): (.+)$")
_WRAPPERS = ("Py4JJavaError", "SparkException", "PythonException", "PySparkRuntimeError", "SparkConnectGrpcException")
_DIED = ("worker exited unexpectedly", "ExecutorLostFailure", "Python worker failed")
_ABORTED = re.compile(r"Job aborted due to stage failure: [^\n]*most recent failure: [^\n]*?\(TID \d+\) \([^\n]*?\): ")
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
    """Return the innermost cause that a message with Java's or Python's traces names; its first line if it names none.

    Without secrets: Spark quotes URLs and settings.
    """
    return hide_secrets(_cause_of(text))[:_TEXT_BYTES]


def _cause_of(text: str) -> str:
    aborted = _ABORTED.search(text)
    reason = text if aborted is None else text[aborted.end() :]
    lines = [*text.splitlines(), *reason.splitlines()]
    found = [match for line in lines if (match := _CAUSE.match(line)) and match[2] != "null"]
    inner = [match for match in found if match[1].rpartition(".")[2] not in _WRAPPERS]
    for match in [*reversed(inner), *reversed(found)]:
        if not _ABORTED.search(match[2]):
            return f"{match[1].rpartition('.')[2]}: {match[2]}".partition(". Consider setting")[0]
    return reason.strip().split("\n", 1)[0]


def job_error(text: str) -> StoreError:
    """Return the error for a job that Spark gave up with this message."""
    cause = cause_of(text)
    if _OUT_OF_MEMORY.search(text):
        hint = "give executors more with --spark-conf spark.executor.memoryOverhead=2g, or less to do at once"
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
    """Raise InvalidValue for what Spark would not take for a master or a Connect server, which it says after seconds only."""
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
    """Raise Refused unless something listens at a URL (spark://host:port or sc://host:port); other URLs are Spark's to judge.

    Raises InvalidValue for a host or port that cannot be one.
    """
    try:
        parts = urlsplit(url.split(",", 1)[0])
        if parts.scheme not in ("spark", "sc") or not parts.hostname:
            return
        port = parts.port or {"spark": 7077, "sc": 15002}[parts.scheme]
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
