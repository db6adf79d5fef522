"""Ctrl-C in the middle of a scan, as a terminal sends it (to everybody) and as ``kill -INT`` does: a clean end, nothing left."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from pulsar_admin.store.engine.starting import _without_interrupts

SLOWLY = """
import sys
if any(word in " ".join(sys.orig_argv) for word in ("pulsar-admin", "forkserver", "pyspark")):
    import os, time
    import pulsar_admin.progress as progress
    import pulsar_admin.store.engine.operation as packed
    progress._LINE_INTERVAL_S = 0
    pack = packed.pack_slice
    def pack_slowly(*arguments):
        try:
            os.close(os.open(__file__ + ".first", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            time.sleep(20)
        return pack(*arguments)
    packed.pack_slice = pack_slowly
"""
"""Of all processes that import this one packs a slice at once and shows it, the others wait, so that there is a middle."""


def _session_of(pid: int) -> list[str]:
    """Return what runs in the session that PID began."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == pid and fields[0] != "Z":
                found.append(f"{folder.name}: {(folder / 'cmdline').read_text()[:200]}")
        except (OSError, IndexError, ValueError):
            continue
    return found


def _none_left(pid: int) -> bool:
    """Whether all that runs in the session ends by itself: the server of processes notices that its master is gone."""
    for _ in range(50):
        if not _session_of(pid):
            return True
        time.sleep(0.1)
    return False


def _start(folder: Path, store: Path, *words: str) -> subprocess.Popen[str]:
    (folder / "sitecustomize.py").write_text(SLOWLY)
    program = Path(sys.executable).with_name("pulsar-admin")
    return subprocess.Popen(
        [program, "--store", store, "--progress", "json", *words],
        env=os.environ | {"PYTHONPATH": str(folder)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _interrupt(running: subprocess.Popen[str], *, everybody: bool) -> tuple[str, float]:
    """Send SIGINT when the first progress is shown; return what the command said then, and how long it took to end."""
    line = json.loads(running.stderr.readline())
    assert not line["finished"]
    assert line["failedSlices"] == 0
    began = time.monotonic()
    (os.killpg if everybody else os.kill)(running.pid, signal.SIGINT)
    said = running.stderr.read()
    running.wait(timeout=60)
    return said, time.monotonic() - began


WORDS = [
    pytest.param(("--jobs", "2"), id="processes"),
    pytest.param(("--spark-master", "local[2]"), marks=[pytest.mark.spark, pytest.mark.deep], id="spark"),
]


@pytest.mark.parametrize("everybody", [True, pytest.param(False, marks=pytest.mark.deep)], ids=["terminal", "kill"])
@pytest.mark.parametrize("words", WORDS)
def test_ctrl_c_ends_cleanly(demo_store: Path, tmp_path: Path, words: tuple[str, ...], everybody: bool) -> None:
    with _start(tmp_path, demo_store, "store", "check", "--deep", *words) as running:
        try:
            said, seconds = _interrupt(running, everybody=everybody)
        finally:
            if running.poll() is None:
                os.killpg(running.pid, signal.SIGKILL)
    print(f"{words}: {seconds:.2f} s")
    assert running.returncode == 130, said
    assert "Traceback" not in said
    stopped = "check: stopped after [0-9,]+ of [0-9,]+ bytes; the same command starts again"
    assert re.search(rf"warning: {stopped}\nerror: interrupted\n$", said), said
    assert _none_left(running.pid), _session_of(running.pid)


def test_an_interrupt_that_another_thread_gets_waits_until_a_process_has_started() -> None:
    started, done = threading.Event(), []

    def interrupt() -> None:
        started.wait()
        signal.raise_signal(signal.SIGINT)

    def start() -> None:
        with _without_interrupts():
            started.set()
            other.join()
            done.append("start")

    other = threading.Thread(target=interrupt)
    other.start()
    with pytest.raises(KeyboardInterrupt):
        start()
    assert done == ["start"]


@pytest.mark.spark
def test_ctrl_c_while_java_starts(demo_store: Path, tmp_path: Path) -> None:
    """Nobody knows the JVM yet but the operating system."""
    with _start(tmp_path, demo_store, "store", "check", "--deep", "--spark-master", "local[2]") as running:
        try:
            while not any("/java" in process for process in _session_of(running.pid)):
                assert running.poll() is None
            os.killpg(running.pid, signal.SIGINT)
            said = running.stderr.read()
        finally:
            if running.poll() is None:
                os.killpg(running.pid, signal.SIGKILL)
    assert running.returncode == 130, said
    assert "Traceback" not in said
    assert said.endswith("error: interrupted\n")
    assert _none_left(running.pid), _session_of(running.pid)
