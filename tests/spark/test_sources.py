"""Files at URLs: the rows of local files, read by ranges; what is not there, and what became shorter."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from store.errors import SourceNotFound
from store.scan import sources
from store.scan.engine_scan import Engine
from store.scan.local import LocalEngine
from store.scan.message_rows import ReadMessages
from store.scan.operations import Operation, ReadEntries
from store.scan.slices import Cut, FileRange, plan_slices
from store.scan.sources import source_files
from tests.worlds import world

FOLDER = world("small") / "crashed" / "bookkeeper" / "current"
COLUMNS = ("ledger_id", "entry_id", "offset", "publish_time", "digest_ok")


def _rows(operation: Operation, pieces: list[FileRange]) -> list[dict[str, object]]:
    engine: Engine = LocalEngine(1)
    found = dict(engine.run(operation, pieces, lambda _: None))
    assert not engine.failed
    return [row for piece in pieces for row in found[piece].to_pylist()]


@pytest.mark.parametrize("ahead_bytes", [100, sources.READ_AHEAD_BYTES])
@pytest.mark.parametrize("operation", [ReadEntries(columns=COLUMNS), ReadMessages(columns=COLUMNS[:2], payload=True)])
def test_a_url_has_the_rows_of_the_file(
    operation: Operation, ahead_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the last record of a slice reaches far over what is fetched at first."""
    monkeypatch.setattr(sources, "READ_AHEAD_BYTES", ahead_bytes)
    local = _rows(operation, plan_slices(source_files(str(FOLDER)), Cut()))
    files = source_files(f"{FOLDER.as_uri()}/*.log")
    assert len(local) > 1000
    for cut in (Cut(), Cut(300_000)):
        assert _rows(operation, plan_slices(files, cut)) == local


def test_urls_name_a_file_a_folder_or_a_glob() -> None:
    names = sorted(str(path.stat().st_size) for path in FOLDER.glob("*.log") if path.stat().st_size)
    for pattern in (FOLDER.as_uri(), FOLDER.as_uri() + "/*.log"):
        assert sorted(str(size) for _, _, size in source_files(pattern)) == names
    one = f"{FOLDER.as_uri()}/0.log"
    assert [path for path, _, _ in source_files(one)] == [one]


@pytest.mark.parametrize("pattern", ["file:///nowhere/*.log", "file:///nowhere", "/nowhere/*.log"])
def test_nothing_there(pattern: str) -> None:
    with pytest.raises(SourceNotFound, match="no entry log at"):
        source_files(pattern)


def test_a_truncated_object_is_one_failed_slice(tmp_path: Path) -> None:
    log = tmp_path / "0.log"
    shutil.copy(FOLDER / "0.log", log)
    pieces = plan_slices(source_files(log.as_uri()), Cut(1 << 20))
    with open(log, "r+b") as file:
        file.truncate(log.stat().st_size - 1000)
    engine = LocalEngine(1)
    found = dict(engine.run(ReadEntries(columns=COLUMNS), pieces, lambda _: None))
    assert [failed.piece for failed in engine.failed] == [pieces[-1]]
    assert "became shorter" in engine.failed[0].reason
    assert set(found) == set(pieces[:-1])
