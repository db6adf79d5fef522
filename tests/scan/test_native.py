"""The kernels' image: made once, loaded without numba, bound to its source, and done without where it cannot be."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from store.scan import image, kernel, native
from store.scan.blocks import sum_blocks
from store.scan.record import END, MORE, RECORD, RUN
from tests.worlds import world

KNOWN = (np.array([1], np.int64), np.array([4], np.int16))


def _window() -> np.ndarray:
    """All of a recorded log behind its header."""
    return np.fromfile(world("small") / "clean" / "bookkeeper" / "current" / "0.log", np.uint8)[1024:]


@pytest.mark.parametrize("verify", [True, False])
def test_both_ways_give_the_same_rows(verify: bool) -> None:
    window = _window()
    ours, theirs = np.zeros(1 << 14, RECORD), np.zeros(1 << 14, RECORD)
    found = native.scan_log(window, 0, len(window), 0, (KNOWN, verify), ours)
    assert found == kernel.scan_log(window, 0, len(window), 0, KNOWN, verify, theirs)
    assert found[0] > 1000
    assert found[2] == END
    assert (ours == theirs).all()
    ordered = np.sort(ours[: found[0]], order=["ledger_id", "entry_id"])
    runs, others = np.zeros(len(ordered), RUN), np.zeros(len(ordered), RUN)
    count = native.sum_blocks(ordered, runs)
    assert count == sum_blocks(ordered, others)
    assert (runs[: max(count, 0)] == others[: max(count, 0)]).all()


def test_a_journal_too() -> None:
    (journal,) = (world("small") / "clean" / "bookkeeper" / "current").glob("*.txn")
    window = np.fromfile(journal, np.uint8)
    ours, theirs = np.zeros(1 << 14, RECORD), np.zeros(1 << 14, RECORD)
    found = native.scan_journal(window, 512, 0, (KNOWN, True), ours)
    assert found == kernel.scan_journal(window, 512, 0, KNOWN, True, theirs)
    assert found[0] > 1000
    assert (ours == theirs).all()


def test_nothing_at_all() -> None:
    rows = np.zeros(4, RECORD)
    none = (np.zeros(0, np.int64), np.zeros(0, np.int16))
    assert native.scan_log(np.zeros(0, np.uint8), 0, 0, 0, (none, True), rows) == (0, 0, END)
    assert native.scan_log(np.zeros(10, np.uint8), 0, 10, 50, (none, True), rows) == (0, 0, MORE)
    assert native.sum_blocks(rows[:0], np.zeros(1, RUN)) == 0


def test_rows_to_be_filled_lie_in_one_piece() -> None:
    with pytest.raises(AssertionError, match="own"):
        native.scan_log(_window(), 0, 10, 0, (KNOWN, True), np.zeros(8, RECORD)[::2])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An image in a folder of its own."""
    path = tmp_path_factory.mktemp("image") / "kernels-1.image"
    (path.parent / "kernels-0.image").write_bytes(b"of an older version")
    image.make_entry(path)
    return path


def test_an_image_replaces_those_of_other_versions(made: Path) -> None:
    assert [path.name for path in made.parent.iterdir()] == ["kernels-1.image"]


def test_another_process_loads_it_without_numba(made: Path) -> None:
    code = (
        f"import sys; sys.path[:] = {sys.path!r}\n"
        "from pathlib import Path; import numpy as np; from store.scan import native; from store.scan.record import RECORD\n"
        f"native._entry.cache_clear(); native.image_path = lambda: Path({str(made)!r})\n"
        f"window = np.fromfile({str(world('small') / 'clean' / 'bookkeeper' / 'current' / '0.log')!r}, np.uint8)[1024:]\n"
        "known = (np.array([1], np.int64), np.array([4], np.int16))\n"
        "print(*native.scan_log(window, 0, len(window), 0, (known, True), np.zeros(1 << 14, RECORD)), 'numba' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    count, at, why = kernel.scan_log(_window(), 0, len(_window()), 0, KNOWN, True, np.zeros(1 << 14, RECORD))
    assert done.stdout.split() == [str(count), str(at), str(why), "False"]


@pytest.mark.parametrize("damage", ["absent", "empty", "cut", "flipped"])
def test_an_image_that_is_not_whole_is_not_loaded(damage: str, made: Path, tmp_path: Path) -> None:
    path, raw = tmp_path / "kernels-1.image", bytearray(made.read_bytes())
    if damage == "flipped":
        raw[len(raw) // 2] ^= 1
    if damage != "absent":
        path.write_bytes({"empty": b"", "cut": bytes(raw[:-1]), "flipped": bytes(raw)}[damage])
    assert native.load(path) is None


def test_where_nothing_can_be_written_numba_is_asked(tmp_path: Path) -> None:
    entry = image.make_entry(tmp_path / "absent" / "kernels-1.image")
    assert callable(entry)
    assert list(tmp_path.iterdir()) == []


def test_an_image_that_no_process_can_load_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image, "_loads", lambda _: False)
    image.make_entry(tmp_path / "kernels-1.image")
    assert not (tmp_path / "kernels-1.image").exists()


def test_undefined_names_are_helpers_of_numba_and_python(made: Path) -> None:
    code = made.read_bytes()[32:].partition(b"\n")[2]
    names = set(image.undefined_symbols(code))
    assert "PyErr_WriteUnraisable" in names
    assert all(name.startswith(("Py", "NRT_", "numba_", "mem", "_GLOBAL_OFFSET_TABLE_")) for name in names), names
