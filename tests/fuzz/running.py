"""Running a target: what may come of an input, and what an input may cost."""

import os
import random
import resource
import signal
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct, field

from pulsar_admin.store.errors import StoreError
from tests.fuzz.targets import TARGETS

HERE = Path(__file__).resolve().parent
CORPUS, REGRESSIONS = HERE / "corpus", HERE / "regressions"
MAX_SECONDS = 0.1
MAX_BYTES = 64 << 20
_SCALE_BYTES = 1024  # larger inputs may take as much more
_HANGS_AFTER_SECONDS = 10


class Hang(BaseException):
    """An input that takes longer than anything may; no ``except Exception`` stops it."""


class Found(Struct):
    """What was found: where, and how often."""

    data: bytes
    what: str
    times: int = 1


class Runner(Struct, dict=True):
    """Runs inputs of one target, counts them, and keeps the smallest input of each finding."""

    name: str
    is_measured: bool = True
    executions: int = 0
    slowest_seconds: float = 0.0
    most_bytes: int = 0
    found: dict[str, Found] = field(default_factory=dict)
    _peak_bytes: int = 0

    def __post_init__(self) -> None:
        self.target = TARGETS[self.name]
        if self.is_measured:
            signal.signal(signal.SIGALRM, _hang)
            self._peak_bytes = _peak_bytes()

    def run(self, data: bytes) -> bool:
        """Run DATA; return whether it was read without an error."""
        self.executions += 1
        return self._measured(data) if self.is_measured else self._run(data)

    def _measured(self, data: bytes) -> bool:
        signal.setitimer(signal.ITIMER_REAL, _HANGS_AFTER_SECONDS)
        started = time.thread_time()
        is_good = self._run(data)
        seconds = time.thread_time() - started
        signal.setitimer(signal.ITIMER_REAL, 0)
        scale = max(1.0, len(data) / _SCALE_BYTES)
        if seconds > MAX_SECONDS * scale:
            seconds = min(seconds, *(self._seconds(data) for _ in range(2)))
            if seconds > MAX_SECONDS * scale:
                self._note("slow", data, f"{seconds:.2f} s for {len(data)} bytes")
        self.slowest_seconds = max(self.slowest_seconds, seconds / scale)
        peak = _peak_bytes()
        if peak > self._peak_bytes:
            grown, self._peak_bytes = peak - self._peak_bytes, peak
            self.most_bytes = max(self.most_bytes, int(grown / scale))
            if grown > MAX_BYTES * scale:
                self._note("memory", data, f"{grown >> 20} MiB for {len(data)} bytes")
        return is_good

    def warm_up(self, inputs: Sequence[bytes]) -> None:
        """Run INPUTS without counting what they cost: functions are compiled and modules imported."""
        for data in [b"", *inputs, *inputs]:
            self._run(data)
        self._peak_bytes = _peak_bytes()

    def _run(self, data: bytes) -> bool:
        try:
            self.target.run(data)
        except StoreError:
            return False
        except (Exception, Hang) as error:  # noqa: BLE001  # any other is what is looked for
            self._note(_place(error), data, f"{type(error).__name__}: {error}"[:300])
            return False
        return True

    def _seconds(self, data: bytes) -> float:
        started = time.thread_time()
        self._run(data)
        return time.thread_time() - started

    def _note(self, key: str, data: bytes, what: str) -> None:
        known = self.found.get(key)
        if known is None:
            self.found[key] = Found(data, what)
            return
        known.times += 1
        if len(data) < len(known.data):
            known.data, known.what = data, what

    def save(self, folder: Path) -> None:
        """Write each finding to FOLDER, in a file whose name says what it is."""
        for key, found in self.found.items():
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{self.name}--{key}").write_bytes(found.data)
            (folder / f"{self.name}--{key}.txt").write_text(f"{found.what}\n{found.times} times\n")


def _hang(number: int, frame: object) -> None:
    raise Hang(f"more than {_HANGS_AFTER_SECONDS} s")


def _place(error: BaseException) -> str:
    """Return the error's type and the innermost line of ours."""
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if f"{os.sep}store{os.sep}" in frame.filename
    ]
    last = (frames or traceback.extract_tb(error.__traceback__))[-1]
    return f"{type(error).__name__}-{Path(last.filename).stem}-{last.name.strip('<>')}"


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def inputs_of(name: str, folder: Path = CORPUS) -> list[bytes]:
    """Return the inputs kept for a target, the smallest first."""
    return sorted((file.read_bytes() for file in (folder / name).glob("*")), key=lambda data: (len(data), data))


def mutated(name: str, source: random.Random, corpus: Sequence[bytes]) -> Iterator[bytes]:
    """Yield inputs made of those in CORPUS without end; three of four have right checksums."""
    target = TARGETS[name]
    while True:
        data = source.choice(corpus) if corpus else b""
        for _ in range(source.choice([1, 1, 1, 2, 5])):
            data = target.mutate(data, source, corpus)[:8192]
        yield target.seal(data) if source.randrange(4) else data
