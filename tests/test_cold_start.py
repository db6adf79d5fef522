"""What cold questions import, so that they stay fast: nothing here measures time."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.stores import imported

_TOPIC = "public/default/steady"
_HEAVY = {
    "numpy",
    "numba",
    "pyarrow",
    "pandas",
    "pyspark",
    "rich",
    "cramjam",
    "pulsar_admin.narrow",
    "asyncio",
    "logging",
}
_PROTOBUF_IN_PYTHON = {
    "google.protobuf.descriptor_pool",
    "google.protobuf.internal.builder",
    "google.protobuf.internal.python_message",
    "google.protobuf.text_format",
}
_SCANNING = {"store.codec.logscan", "store.codec.entrylog", "store.engine.local", "mmap"}
_QUESTIONS = {
    f"topics find-by-time {_TOPIC} --time 2026-11-20T16:00:00Z": {"store.search.broker"},
    f"topics stats-internal {_TOPIC}": {"store.search.by_time"},
    f"compaction last-id {_TOPIC}": {"google_crc32c", "store.search.by_time", "store.model.messages"},
}
_CODE = """
import sys
from pulsar_admin.cli import run
status = run(sys.argv[1:])
own = [module for name, module in sys.modules.items() if name.partition(".")[0] in ("store", "pulsar_admin", "commands")]
made = {value for module in own for value in vars(module).values() if hasattr(value, "__dataclass_params__")}
print(*(f"{one.__module__}.{one.__qualname__}" for one in made if one.__dataclass_params__.eq), file=sys.stderr)
print(*sys.modules, file=sys.stderr)
sys.exit(status)
"""


@pytest.mark.parametrize("words", _QUESTIONS)
def test_a_cold_question_imports_little_and_compiles_no_class(words: str) -> None:
    arguments = ["--store", str(imported("small", "clean")), *words.split()]
    done = subprocess.run([sys.executable, "-c", _CODE, *arguments], capture_output=True, text=True, check=True)
    *_, compiled, loaded = done.stderr.split("\n")[:-1]
    assert "store.db.environment" in loaded.split()
    unneeded = _QUESTIONS[words] | _HEAVY | _PROTOBUF_IN_PYTHON | _SCANNING
    assert not unneeded & set(loaded.split())
    assert compiled == "", "make it with store.frozen: the standard decorator costs a cold command 0.5 ms a class"
