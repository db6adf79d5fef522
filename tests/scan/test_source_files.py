"""Which files a path, a glob, a directory and a lookup below one mean, local and as URLs."""

import shutil
from pathlib import Path

import pytest
from pyarrow import fs

from pulsar_admin.store.errors import InvalidValue, SourceNotFound
from pulsar_admin.store.scan.sources import list_prefix, source_files
from tests.shapes import logs


@pytest.fixture
def bookies(tmp_path: Path) -> Path:
    """Two bookies' directories, one log each; beside a log lie the RocksDBs that a bookie has beside its logs."""
    for name, log in (("bookie-1", "0.log"), ("bookie[2]", "1.log")):
        current = tmp_path / name / "current"
        current.mkdir(parents=True)
        shutil.copy(logs() / "0.log", current / log)
        for beside in ("ledgers", "locations"):
            shutil.copytree(logs() / beside, current / beside)
    assert list(tmp_path.glob("*/current/locations/*.log"))
    return tmp_path


@pytest.mark.parametrize("scheme", ["", "file://"])
@pytest.mark.parametrize(
    ("pattern", "recursive"),
    [("*/current", False), ("*/current/*.log", False), ("bookie*/cur*/*.log", False), ("", True), ("*", True)],
)
def test_what_a_pattern_means(bookies: Path, scheme: str, pattern: str, recursive: bool) -> None:
    found = source_files([f"{scheme}{bookies}/{pattern}"], recursive=recursive)
    logs_of_both = [f"{scheme}{bookies}/{name}" for name in ("bookie-1/current/0.log", "bookie[2]/current/1.log")]
    assert [path for path, _, _ in found] == logs_of_both
    assert [size for _, _, size in found] == [(logs() / name).stat().st_size for name in ("0.log", "0.log")]


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_alternatives_and_what_hadoop_writes_for_not(tmp_path: Path, scheme: str) -> None:
    folder = tmp_path / "disk 1%20{x}"
    folder.mkdir()
    for name in ("0.log", "1.log", "2.log", "a.log", "lastMark", "VERSION"):
        (folder / name).write_bytes(b"x")
    place = f"{scheme}{tmp_path}/disk 1%*" if scheme else f"{tmp_path}/disk 1%20?x?"

    def names(pattern: str) -> list[str]:
        return [path.rpartition("/")[2] for path, _, _ in source_files([f"{place}/{pattern}"])]

    assert names("{0,1}.log") == ["0.log", "1.log"]
    assert names("{0,9}.log") == ["0.log"]
    assert sorted(names("{{0,1},[a-f]}.l{og,ag}")) == ["0.log", "1.log", "a.log"]
    assert names("[^0-9].log") == ["a.log"]
    assert names("*") == ["0.log", "1.log", "2.log", "a.log"]
    with pytest.raises(SourceNotFound, match=r"no entry log at .*\{8,9}"):
        names("{8,9}.log")
    with pytest.raises(InvalidValue, match="more than 10,000 globs"):
        names("{a,b,c,d,e,f,g,h,i,j}" * 5)
    plain = f"{tmp_path}/disk 1%20{{x}}"
    assert [path for path, _, _ in source_files([plain])] == [f"{plain}/{name}.log" for name in "012a"]


def test_a_glob_that_meets_a_database_takes_no_file_of_it(bookies: Path) -> None:
    names = [Path(path).name for path, _, _ in source_files(str(bookies / "bookie-1" / "current" / "*"))]
    assert names == ["0.log"]


def test_a_file_is_itself_whatever_its_name_is_and_comes_once(bookies: Path) -> None:
    named = str(bookies / "bookie[2]" / "current" / "1.log")
    assert [path for path, _, _ in source_files([named, named])] == [named]
    url = f"file://{bookies}/a #1/%20.log"
    (bookies / "a #1").mkdir()
    shutil.copy(logs() / "0.log", bookies / "a #1" / "%20.log")
    assert [path for path, _, _ in source_files([url])] == [url]


def test_current_is_looked_into_where_it_is_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "pulsar_admin.store.scan.sources.file_system_of", lambda url: (fs.LocalFileSystem(), str(tmp_path))
    )
    (tmp_path / "current").write_bytes(b"x")
    assert [one[:3] for one in list_prefix("s3://x")] == [("current", "s3://x/current", 1)]
    (tmp_path / "current").unlink()
    (tmp_path / "current" / "locations").mkdir(parents=True)
    assert [(one.name, one.size_bytes) for one in list_prefix("s3://x")] == [("locations", None)]
