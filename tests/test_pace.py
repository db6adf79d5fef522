"""Reading beside production: bounded a second, and the page cache afterwards as it was before."""

import mmap
import os
import time
from itertools import accumulate
from pathlib import Path
from types import SimpleNamespace

import pytest

import pulsar_admin
from pulsar_admin.store import pace as pacing
from pulsar_admin.store.pace import PACE, ColdPages, Pace, _resident
from tests.conftest import Cli
from tests.deep import deep_but_for
from tests.worlds import scratch_copy, world

MEGA = 1 << 20
FIRST_PAGES = 8  # of the header, and of what is digested to know the file again, with what the system reads ahead


def hot(path: Path) -> int:
    """Return how many pages of PATH are in the page cache."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        return sum(_resident(file.fileno(), 0, size, -(-size // mmap.PAGESIZE)))


def pages_of(path: Path) -> int:
    return -(-path.stat().st_size // mmap.PAGESIZE)


def evict(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@pytest.fixture
def disk() -> Path:
    """A directory on a disk: memory file systems are the page cache."""
    place = Path(__file__).parent.parent / ".cache" / f"pace-{os.getpid()}"
    place.mkdir(parents=True)
    yield place  # type: ignore[misc]  # a generator
    import shutil

    shutil.rmtree(place)


def test_a_pace_bounds_each_second_and_gives_no_credit(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=lambda seconds: now.__setitem__(0, now[0] + seconds))
    monkeypatch.setattr(pacing, "time", clock)
    pace = Pace()
    pace.take(1 << 40)
    assert now[0] == 100.0
    pace.limit(1000)
    assert pace.step_bytes == 4096
    ends = []
    for count in (500, 500, 2000):
        pace.take(count)
        ends.append(now[0] - 100)
    assert ends == pytest.approx([*accumulate([0.5, 0.5, 2.0])])
    now[0] += 60  # nothing was read meanwhile
    pace.take(1000)
    assert now[0] - 100 == pytest.approx(3 + 60 + 1)


def test_what_was_hot_stays_and_what_was_cold_goes(disk: Path) -> None:
    path = disk / "file"
    path.write_bytes(os.urandom(4 * MEGA))
    evict(path)
    assert hot(path) == 0
    with path.open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)  # no page that was not asked for
        os.pread(file.fileno(), MEGA, MEGA)
        before = hot(path)
        assert before == MEGA // mmap.PAGESIZE
        cold = ColdPages(file.fileno(), 0, 4 * MEGA)
        os.pread(file.fileno(), 4 * MEGA, 0)
        assert hot(path) == pages_of(path)
        cold.drop(0, MEGA // 2)
        assert hot(path) == pages_of(path) - MEGA // 2 // mmap.PAGESIZE
        cold.drop_all()
    assert hot(path) == before


@pytest.mark.parametrize("ours", [False, True])
def test_bytes_before_the_part_that_is_read(ours: bool, disk: Path) -> None:
    """A scan that goes on in the middle of a file has a window that begins at 0 and is empty."""
    path = disk / "file"
    path.write_bytes(os.urandom(MEGA))
    with path.open("rb", buffering=0) as file:
        cold = ColdPages(file.fileno(), MEGA // 2 + 100, MEGA, ours=ours)
        before = hot(path)
        cold.drop(0, 0)
        cold.drop(0, MEGA // 4)
        cold.drop(2 * MEGA, 0)
        assert hot(path) == before


@deep_but_for((0,), "how", [["--copy"], ["--jobs", "2"]])
def test_an_import_leaves_the_page_cache_as_it_was(how: list[str], disk: Path, cli: Cli) -> None:
    current = scratch_copy("small", "clean", disk) / "bookkeeper" / "current"
    files = [*current.glob("*.log"), *current.glob("*.txn")]
    for file in files:
        evict(file)
    warm = current / "1.log"
    warm.read_bytes()
    before = {file.name: hot(file) for file in files}
    assert cli("--store", disk / "s", "store", "import", "standalone", current.parent.parent, *how).exit_code == 0
    after = {file.name: hot(file) for file in files}
    # Not one page less on an idle machine; the kernel takes a few by itself where other processes need memory.
    assert min(before["1.log"], after["1.log"]) >= pages_of(warm) * 99 // 100
    assert all(after[name] <= before[name] + FIRST_PAGES for name in after), (before, after)
    for copy in (disk / "s" / "entries").glob("*-*.log"):
        assert hot(copy) <= FIRST_PAGES


def test_an_import_is_bounded(disk: Path, cli: Cli) -> None:
    source = scratch_copy("small", "clean", disk)
    size = sum(file.stat().st_size for file in (source / "bookkeeper" / "current").iterdir() if file.is_file())
    started = time.monotonic()
    assert cli("--store", disk / "s", "store", "import", "standalone", source, "--max-rate", "40M").exit_code == 0
    assert time.monotonic() - started >= size / (40 * MEGA) * 0.9
    assert not PACE.is_limited
    cli.done("--store", disk / "s", "store", "check", "--deep", "--max-rate", "1G")
    for wrong in ("0", "-1", "fast"):
        assert cli("--store", disk / "t", "store", "import", "standalone", source, "--max-rate", wrong).exit_code == 2
    both = cli("--store", disk / "t", "store", "import", "standalone", source, "--max-rate", "1M", "--spark")
    assert both.exit_code == 2
    assert "--spark reads in others" in both.stderr


def test_python_bounds_imports_and_deep_checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was waited is what the bytes take at that rate, and afterwards nothing waits."""
    waited: list[float] = []
    # Only the module's own: threads that other tests left wait, too.
    monkeypatch.setattr(pacing, "time", SimpleNamespace(sleep=waited.append, monotonic=lambda: sum(waited)))
    path, rate = tmp_path / "s", 10_000_000
    result = pulsar_admin.import_standalone(world("small") / "clean", path, max_rate=rate)
    assert sum(waited) >= result.bytes / rate
    waited.clear()
    with pulsar_admin.open_store(path) as store:
        store.check(deep=True, max_rate=rate)
        assert sum(waited) >= result.bytes / rate
        waited.clear()
        store.check(deep=True)
        with pytest.raises(pulsar_admin.StoreError, match="max_rate"):
            store.check(max_rate=0)
    assert not sum(waited)
