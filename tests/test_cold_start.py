"""What cold questions import, so that they stay fast: nothing here measures time."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.deep import deep_but_for
from tests.stores import imported
from tests.worlds import world

_TOPIC = "public/default/steady"
_HEAVY = {
    "numpy",
    "numba",
    "pyarrow",
    "pandas",
    "pyspark",
    "rich",
    "cramjam",
    "jinja2",
    "pulsar_admin.table_layout",
    "asyncio",
    "logging",
    "_hashlib",
    "dataclasses",  # costs as much as ten modules of ours
}
_PROTOBUF_IN_PYTHON = {
    "google.protobuf.descriptor_pool",
    "google.protobuf.internal.builder",
    "google.protobuf.internal.python_message",
    "google.protobuf.text_format",
}
_SCANNING = {
    "pulsar_admin.store.codec.logscan",
    "pulsar_admin.store.codec.entrylog",
    "pulsar_admin.store.engine.local",
    "mmap",
}
_OF_BROKEN_TOPICS = {
    "pulsar_admin.store.model.broken",
    "pulsar_admin.store.model.coverage",
    "pulsar_admin.store.search.doubts",
}
_QUESTIONS = {
    f"topics find-by-time {_TOPIC} --time 2026-11-20T16:00:00Z": {
        "pulsar_admin.store.search.broker",
        "pulsar_admin.store.model.publish_times",
    },
    f"topics stats-internal {_TOPIC}": {"pulsar_admin.store.search.by_time"},
    f"compaction last-id {_TOPIC}": {"pulsar_admin.store.search.by_time", "pulsar_admin.store.model.messages"},
}
_CODE = """
import sys
from pulsar_admin.cli import run
status = run(sys.argv[1:])
print(*sys.modules, file=sys.stderr)
sys.exit(status)
"""


@pytest.mark.parametrize("words", _QUESTIONS)
def test_a_cold_question_imports_little(words: str) -> None:
    arguments = ["--store", str(imported("small", "clean")), *words.split()]
    done = subprocess.run([sys.executable, "-c", _CODE, *arguments], capture_output=True, text=True, check=True)
    loaded = done.stderr.split("\n")[-2]
    assert "pulsar_admin.store.db.environment" in loaded.split()
    unneeded = _QUESTIONS[words] | _OF_BROKEN_TOPICS | _HEAVY | _PROTOBUF_IN_PYTHON | _SCANNING
    assert not unneeded & set(loaded.split())


_COMPILED = {"numba", "llvmlite", "pandas"}
# Bulk commands, and what they do without beside numba; NEW and WORLD are put in.
_BULK = {
    "topics skew public/default/plain": {"pyarrow"},
    "topics dump public/default/plain --directory NEW": set(),
    "topics analyze-backlog acme/iot/skewed -s reset-me": {
        "numpy",
        "pulsar_admin.store.changes",
        "pulsar_admin.store.search",
    },
    "ledgers list": {"numpy", "pulsar_admin.store.changes", "pulsar_admin.store.scan", "pulsar_admin.changes"},
    "compaction run acme/orders/compacted": {"pyarrow"},
    "delayed build acme/delayed/reminders": {"pyarrow"},
    "logs verify WORLD/bookkeeper/current": {"pyarrow"},
    "store check --deep": {"pyarrow"},
}


@deep_but_for((0, 2, 4, 7), "words", _BULK)
def test_a_bulk_command_on_little_data_loads_no_compiled_kernel(words: str, store: Path, tmp_path: Path) -> None:
    places = words.replace("NEW", str(tmp_path / "new")).replace("WORLD", str(world("small") / "clean"))
    _assert_unloaded(["--store", str(store), *places.split()], _COMPILED | _BULK[words])


def test_an_import_of_little_data_loads_no_compiled_kernel(tmp_path: Path) -> None:
    words = ["--store", str(tmp_path / "store"), "store", "import", "standalone", str(world("small") / "clean")]
    _assert_unloaded(words, _COMPILED | {"pyarrow"})


def _assert_unloaded(arguments: list[str], unneeded: set[str]) -> None:
    done = subprocess.run([sys.executable, "-c", _CODE, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stderr.splitlines()[-1].split())
    assert "pulsar_admin.store.kernels.compiled" in loaded or "numpy" in unneeded
    assert not unneeded & loaded


def test_what_an_executor_answers_is_packed_without_pandas() -> None:
    """Executors that have it would load it, for each of their cores."""
    code = """
import sys
from pulsar_admin.store.engine.operation import Packed, row_of, rows_of
rows = [row_of(3, Packed(b"found")), row_of(4, Packed(None, "gone", True))]
assert "pandas" not in sys.modules
(first, found), (second, failed) = [answer for row in rows for answer in rows_of(row)]
assert (first, bytes(found.result), found.reason, found.out_of_memory) == (3, b"found", None, False)
assert (second, *failed) == (4, None, "gone", True, False)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
