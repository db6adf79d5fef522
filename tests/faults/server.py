"""Commands in forked processes, with a fault at the N-th call that changes a file: a server that is warm, and its client.

The server is a process of its own because ``faults.c`` must be preloaded. It never opens RocksDB or LMDB itself: their threads
and locks do not survive a fork.
"""

from __future__ import annotations

import ctypes
import errno
import gc
import json
import os
import select
import signal
import subprocess
import sys
import traceback
from functools import cache
from pathlib import Path
from typing import IO, Any

from msgspec import Struct

ROOT = Path(__file__).resolve().parents[2]
MODES = ("count", "kill", "stop", "fail", "fail-on", "short", "torn")
"""As in ``faults.c``; ``fail-on``: from there on all that takes room fails."""
LIMIT_SECONDS = 60
HUNG, STOPPED = 1000, 1001
"""What ``Ran.status`` says of a process that did not end, and of one that was stopped; a signal is negative."""


class Fault(Struct, frozen=True):
    """What happens at call AT (from 1 on) that changes a file below one of the directories watched."""

    mode: str = "count"
    at: int = 0
    error: str = "EIO"

    def __str__(self) -> str:
        return f"{self.mode}{f' {self.error}' if self.mode.startswith('fail') else ''} at call {self.at}"


class Ran(Struct, frozen=True):
    """How a command ended. ``calls``: what it did to files, "write /path" each; ``fired``: which one was disturbed, 0: none."""

    status: int
    stdout: str
    stderr: str
    calls: list[str]
    fired: int


@cache
def library(folder: Path) -> Path:
    """Compile ``faults.c`` into FOLDER."""
    target, source = folder / "faults.so", Path(__file__).with_name("faults.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", target, source, "-ldl"], check=True)
    return target


class Server:
    """The client's side. FOLDER: for the library and the commands' output; ``watched``: the directories whose calls count."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.watched: list[Path] = []
        environment = {name: text for name, text in os.environ.items() if not name.startswith("PULSAR_ADMIN_")}
        preload = {"LD_PRELOAD": str(library(folder)), "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tests.faults.server", str(library(folder))],
            cwd=folder,
            env=environment | preload,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: object, fault: Fault | None = None) -> Ran:
        """Run a command line in a new process."""
        watched = "\n".join(map(str, self.watched))
        how = None if fault is None else [watched, fault.at, MODES.index(fault.mode), getattr(errno, fault.error)]
        return self._ran({"arguments": [str(argument) for argument in arguments], "fault": how})

    def resume(self) -> Ran:
        """Let the stopped process go on, and wait for its end."""
        return self._ran({"resume": True})

    def call(self, name: str, *arguments: object) -> Any:  # Any: JSON, the function's own
        """Call ``tests.faults.states.NAME`` in a new process."""
        ran = self._ran({"call": name, "arguments": [str(argument) for argument in arguments]})
        if ran.status != 0:
            return {"is": f"{name} ends with {ran.status}: {ran.stderr[-300:]}"}
        return json.loads(ran.stdout)

    def warm(self, *arguments: object) -> None:
        """Run a command line in the server itself: what it imports and compiles, all others have."""
        ran = self._ran({"arguments": [str(argument) for argument in arguments], "warm": True})
        assert ran.status in (0, 1), ran.stderr

    def _ran(self, request: dict[str, Any]) -> Ran:  # Any: JSON
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        name = answer.pop("output")
        texts = [(self._folder / f"{name}.{number}").read_text(errors="replace") for number in (1, 2)]
        return Ran(answer["status"], *texts, answer["calls"], answer["fired"])

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def serve(faults: ctypes.CDLL, requests: IO[str], answers: IO[str]) -> None:
    _warm()
    stopped: int | None = None
    for number, line in enumerate(requests):
        request = json.loads(line)
        if "warm" in request:
            print(
                json.dumps({"status": _run_here(request["arguments"]), "output": "warm", "calls": [], "fired": 0}),
                file=answers,
                flush=True,
            )
            continue
        if "resume" in request:
            assert stopped is not None
            process, output = stopped, "stopped"
            os.kill(process, signal.SIGCONT)
        else:
            output = f"output-{number % 2}"
            process = _fork(faults, request, output)
        status = _wait(process)
        if status == STOPPED:
            stopped = process
            for stream in (1, 2):
                # The process goes on writing into the file that it has open.
                os.replace(f"{output}.{stream}", f"stopped.{stream}")
        calls: list[str] = []
        if request.get("fault"):
            calls = [faults.faults_call(call + 1).decode("utf-8", "replace") for call in range(faults.faults_count())]
        answer = {"status": status, "output": output if status != STOPPED else "stopped", "calls": calls}
        print(json.dumps(answer | {"fired": faults.faults_fired()}), file=answers, flush=True)


def _warm() -> None:
    """Import and compile what commands need, so that a fork has it."""
    from importlib import import_module

    from tests.warming import import_commands, load_kernels

    import_commands()
    load_kernels()
    import_module("tests.faults.states")
    gc.freeze()  # a fork that looks through all of it for garbage copies it


def _run_here(arguments: list[str]) -> int:
    from pulsar_admin.cli import run

    kept = os.dup(1), os.dup(2)
    for stream in (1, 2):
        os.dup2(os.open(f"warm.{stream}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), stream)
    try:
        return run(arguments)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for stream, descriptor in enumerate(kept, 1):
            os.dup2(descriptor, stream)


def _fork(faults: ctypes.CDLL, request: dict[str, Any], output: str) -> int:  # Any: JSON
    for stream in (1, 2):
        open(f"{output}.{stream}", "wb").close()
    process = os.fork()
    if process:
        return process
    code = 99
    try:
        os.setpgid(0, 0)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        for stream in (1, 2):
            os.dup2(os.open(f"{output}.{stream}", os.O_WRONLY), stream)
        if "call" in request:
            from tests.faults import states

            print(json.dumps(getattr(states, request["call"])(*request["arguments"])))
            code = 0
        else:
            from pulsar_admin.cli import run

            if request["fault"]:
                watched, *how = request["fault"]
                faults.faults_arm(watched.encode(), *how)
            code = run(request["arguments"])
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:  # noqa: BLE001 - the child ends here, whatever it is
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _wait(process: int) -> int:
    """Return how PROCESS ended: its exit code, minus its signal, HUNG or STOPPED."""
    descriptor = os.pidfd_open(process)
    try:
        # A stopped process does not wake who waits for its end.
        for _ in range(LIMIT_SECONDS * 20):
            ended, _, _ = select.select([descriptor], [], [], 0.05)
            found, status = os.waitpid(process, os.WNOHANG | os.WUNTRACED)
            if found and os.WIFSTOPPED(status):
                return STOPPED
            if found:
                return os.waitstatus_to_exitcode(status)
            assert not ended
    finally:
        os.close(descriptor)
    os.killpg(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return HUNG


if __name__ == "__main__":
    _library = ctypes.CDLL(sys.argv[1])
    _library.faults_call.restype = ctypes.c_char_p
    serve(_library, sys.stdin, os.fdopen(os.dup(1), "w"))
