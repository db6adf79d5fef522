"""Run the command lines of a transcript and write down what they say."""

from __future__ import annotations

import fcntl
import io
import os
import re
import shlex
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, chdir, contextmanager
from pathlib import Path
from unittest.mock import patch

from msgspec import Struct

from bench.generate import generate
from pulsar_admin.cli import run
from pulsar_admin.config import environment_variables
from pulsar_admin.store.codec.ledgermetadata import ledger_path
from tests.stores import apply_values, lose_nodes, put_back
from tests.worlds import scratch_copy

FOLDER = Path(__file__).resolve().parent
PROGRAM = "pulsar-admin"
NOW = "2026-11-22T12:00:00Z"
DIRECTORY = "/tmp/transcript-XXXXXXXX"
"""Stands for the directory of a run, whose name is as long: what is laid out, folded or counted comes out the same."""
MASKS = (
    (re.compile(r"(pulsar-admin-toolkit) \d+\.\d+\.\d+"), r"\1 VERSION"),
    (re.compile(r'("toolkit" : )"\d+\.\d+\.\d+"'), r'\1"VERSION"'),
    (re.compile(r"\d+:\d+ (?=/tmp/transcript-)"), "DEVICE "),  # of store usage --by disk
)
_SETTINGS = {"PULSAR_ADMIN_NOW": NOW, "COLUMNS": "80", "LINES": "24", "TERM": "xterm-256color"}
_REMOVED = ("FORCE_COLOR", "COLORTERM", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "JAVA_HOME")


class Line(Struct, frozen=True):
    """A command line as a shell would take it apart."""

    text: str
    words: tuple[str, ...]
    settings: dict[str, str]
    redirections: dict[str, str]
    """``<``, ``<<<`` or ``>`` → the word behind it."""


def transcripts() -> dict[str, Path]:
    """Return every transcript by its name."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.txt"))}


def lines_of(text: str) -> list[Line]:
    """Return the command lines of a transcript."""
    return [_parsed(line[2:]) for line in text.splitlines() if line.startswith("$ ")]


def _parsed(text: str) -> Line:
    words = [] if text.startswith("#") else shlex.split(text)
    settings = {}
    while words and re.match(r"[A-Z_]+=", words[0]):
        name, _, value = words.pop(0).partition("=")
        settings[name] = value
    redirections = {}
    while len(words) > 1 and words[-2] in ("<", "<<<", ">"):
        redirections[words[-2]] = words[-1]
        del words[-2:]
    return Line(text, tuple(words), settings, redirections)


Then = Callable[[Line, str], None]
"""Told of a line of the program just after it ran, and of what it printed."""


def record(text: str, then: Then = lambda line, said: None) -> str:
    """Return the transcript TEXT with what its command lines say now."""
    head = text.partition("$ ")[0]
    blocks = []
    with own_directory() as (directory, clock), ExitStack() as held:
        for line in lines_of(text):
            clock.start()
            blocks.append(_record_line(line, directory, held, then))
    return head + "\n".join(blocks)


def _record_line(line: Line, directory: Path, held: ExitStack, then: Then) -> str:
    block = [f"$ {line.text}\n"]
    if line.words:
        code, stdout, stderr = run_line(line, held)
        shown = (masked(text, directory) for text in (stdout, stderr))
        block += _shown(next(shown), "")
        block += _shown(next(shown), "! ")
        block += [f"? {code}\n"] if code else []
        if line.words[0] == PROGRAM:
            then(line, f"{stdout}\n{stderr}")
    return "".join(block)


def masked(text: str, directory: Path) -> str:
    """Return TEXT without what differs from run to run."""
    text = text.replace(str(directory), DIRECTORY)
    for pattern, replacement in MASKS:
        text = pattern.sub(replacement, text)
    return text


def _shown(text: str, prefix: str) -> list[str]:
    lines = [prefix + line.replace("\x1b", "␛") for line in text.splitlines(keepends=True)]
    assert not any(re.match(r"\$ |! |\? ", line) for line in lines if not prefix), (
        f"looks like the recorder's own: {text}"
    )
    assert all(line.rstrip("\n").replace("\t", "").isprintable() for line in lines), (
        f"cannot be read in a diff: {text!r}"
    )
    if lines and not lines[-1].endswith("\n"):
        lines.append("\n\\ no line break at the end\n")
    return lines


def run_line(line: Line, held: ExitStack) -> tuple[int, str, str]:
    into = line.redirections.get(">")
    typed = line.redirections.get("<<<")
    given = Path(line.redirections["<"]).read_bytes() if "<" in line.redirections else b""
    stdin = _Stream(given if typed is None else f"{typed}\n".encode(), terminal=typed is not None)
    stdout, stderr = _Stream(terminal=into == "/dev/tty"), _Stream(terminal=typed is not None)
    with (
        patch.dict(os.environ, line.settings),
        patch.object(sys, "stdin", stdin),
        patch.object(sys, "stdout", stdout),
        patch.object(sys, "stderr", stderr),
    ):
        name, *arguments = line.words
        code = run(arguments) if name == PROGRAM else STEPS[name](arguments, held)
    assert code != 70, f"{line.text}: {stderr.text()}"
    text = stdout.text()
    if into is not None and into != "/dev/tty":
        Path(into).write_bytes(text.encode())
        text = ""
    return code, text, stderr.text()


class _Stream(io.TextIOWrapper):
    """A standard stream in memory that says whether it is a terminal."""

    def __init__(self, given: bytes = b"", *, terminal: bool) -> None:
        self._bytes = io.BytesIO(given)
        super().__init__(self._bytes, encoding="utf-8", newline="", write_through=True)
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal

    def text(self) -> str:
        return self._bytes.getvalue().decode()


@contextmanager
def own_directory() -> Iterator[tuple[Path, _Clock]]:
    """Work in a new directory, without settings of this machine, by a clock of our own."""
    clock = _Clock()
    memory = os.access("/dev/shm", os.W_OK)  # where no commit waits for a disk
    directory = Path(
        tempfile.mkdtemp(prefix="script-", dir="/dev/shm")
        if memory
        else tempfile.mkdtemp(prefix="transcript-", dir="/tmp")
    )
    assert len(str(directory)) == len(DIRECTORY)
    unset = {name: value for name, value in os.environ.items() if name not in (*environment_variables(), *_REMOVED)}
    try:
        with (
            chdir(directory),
            patch.dict(os.environ, unset | _SETTINGS, clear=True),
            patch.object(time, "monotonic", clock.monotonic),
            patch.object(time, "sleep", clock.sleep),
        ):
            yield directory, clock
    finally:
        shutil.rmtree(directory)


class _Clock:
    """What a command measures takes one second, however often it looks at the clock; waiting takes no time.

    For this thread only: what other tests left behind (py4j's threads) shares the module and goes by the real clock.
    """

    def __init__(self) -> None:
        self._seconds = 0.0
        self._asked = False
        self._thread = threading.get_ident()
        self._monotonic, self._sleep = time.monotonic, time.sleep

    def start(self) -> None:
        """The next command begins."""
        self._asked = False

    def monotonic(self) -> float:
        if threading.get_ident() != self._thread:
            return self._monotonic()
        seconds = self._seconds
        if not self._asked:
            self._asked = True
            self._seconds += 1
        return seconds

    def sleep(self, seconds: float) -> None:
        if threading.get_ident() != self._thread:
            self._sleep(seconds)
        else:
            self._seconds += seconds


# -- the other commands -----------------------------------------------------------------------------------------------


def _world(arguments: Sequence[str], held: ExitStack) -> int:
    """``world NAME STATE FOLDER``: put a recorded Pulsar there."""
    name, state, folder = arguments
    scratch_copy(name, state, Path()).rename(folder)
    return 0


def _generate(arguments: Sequence[str], held: ExitStack) -> int:
    """``generate FOLDER OPTION…``: what ``python -m bench.generate`` writes."""
    generate(*arguments)
    return 0


def _copy(arguments: Sequence[str], held: ExitStack) -> int:
    """``cp SOURCE TARGET``: a file or a whole directory, with its times."""
    source, target = map(Path, arguments)
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copy2(source, target)
    return 0


def _cat(arguments: Sequence[str], held: ExitStack) -> int:
    """``cat FILE``"""
    sys.stdout.write(Path(arguments[0]).read_text())
    return 0


def _list(arguments: Sequence[str], held: ExitStack) -> int:
    """``ls FOLDER``"""
    for path in sorted(Path(arguments[0]).iterdir()):
        sys.stdout.write(path.name + "\n")
    return 0


def _remove(arguments: Sequence[str], held: ExitStack) -> int:
    """``rm FILE``: or the directory."""
    path = Path(arguments[0])
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    return 0


def _truncate(arguments: Sequence[str], held: ExitStack) -> int:
    """``truncate FILE BYTES``"""
    os.truncate(arguments[0], int(arguments[1]))
    return 0


def _lose(arguments: Sequence[str], held: ExitStack) -> int:
    """``lose FOLDER LEDGER…``: delete the metadata of ledgers from the metadata store of a Pulsar."""
    folder, *ledgers = arguments
    apply_values(Path(folder) / "metadata", {ledger_path(int(ledger)).encode(): None for ledger in ledgers})
    return 0


def _lose_nodes(arguments: Sequence[str], held: ExitStack) -> int:
    """``lose-nodes STORE PREFIX…``: take the metadata nodes below PREFIXES out of a store."""
    lose_nodes(Path(arguments[0]), *arguments[1:])
    return 0


def _put_back(arguments: Sequence[str], held: ExitStack) -> int:
    """``put-back STORE ZOOKEEPER ZXID``: give a store the metadata that ZooKeeper's files had as of then."""
    store, zookeeper, zxid = arguments
    put_back(Path(store), Path(zookeeper), int(zxid, 16))
    return 0


def _flip(arguments: Sequence[str], held: ExitStack) -> int:
    """``flip FILE OFFSET``: turn every bit of one byte over; the file's time stays."""
    path, offset = Path(arguments[0]), int(arguments[1])
    status = path.stat()
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 0xFF]))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    return 0


def _lock(arguments: Sequence[str], held: ExitStack) -> int:
    """``lock FILE``: be the process 4242 that writes the store, until ``unlock``."""
    descriptor = os.open(arguments[0], os.O_RDWR)
    held.callback(os.close, descriptor)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.ftruncate(descriptor, 0)
    os.write(descriptor, b"process 4242\n")
    return 0


def _unlock(arguments: Sequence[str], held: ExitStack) -> int:
    """``unlock``"""
    held.close()
    return 0


STEPS: dict[str, Callable[[Sequence[str], ExitStack], int]] = {
    "world": _world,
    "generate": _generate,
    "cp": _copy,
    "cat": _cat,
    "ls": _list,
    "rm": _remove,
    "truncate": _truncate,
    "lose": _lose,
    "lose-nodes": _lose_nodes,
    "put-back": _put_back,
    "flip": _flip,
    "lock": _lock,
    "unlock": _unlock,
}
