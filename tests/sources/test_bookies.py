"""Whose directory is whose, and in which order the files of a bookie were written."""

from __future__ import annotations

from pathlib import Path

from pulsar_admin.store.db.bookies import Bookie, decode_bookie, encode_bookie
from pulsar_admin.store.sources.bookies import files_of, group_directories

COOKIE = '4\nbookieHost: "{}"\njournalDir: "/j"\nledgerDirs: "2\\t/l0\\t/l1"\n'


def _directory(path: Path, bookie_id: str, *names: str) -> Path:
    path.mkdir(parents=True)
    (path / "VERSION").write_text(COOKIE.format(bookie_id))
    for name in names:
        (path / name).write_bytes(b"x")
    return path


def test_directories_of_one_bookie_are_grouped_by_its_cookie(tmp_path: Path) -> None:
    paths = [_directory(tmp_path / name, bookie) for name, bookie in (("a", "bk1"), ("b", "bk2"), ("c", "bk1"))]
    assert [(one.bookie_id, one.directories) for one in group_directories(paths)] == [
        ("bk1", (paths[0], paths[2])),
        ("bk2", (paths[1],)),
    ]


def test_directories_that_cannot_all_be_one_bookies_have_no_id(tmp_path: Path) -> None:
    """Four directories, where the cookie names three; and no cookie."""
    paths = [_directory(tmp_path / name, "bk1") for name in "abcd"]
    (tmp_path / "e").mkdir()
    found = group_directories([*paths, tmp_path / "e"])
    assert [(one.bookie_id, one.directories) for one in found] == [("", (path,)) for path in (*paths, tmp_path / "e")]


def test_files_of_a_bookie_come_in_the_order_they_were_written(tmp_path: Path) -> None:
    """One sequence of numbers over two ledger directories (Interleaved), and one each (DbLedgerStorage)."""
    one = _directory(tmp_path / "l0", "bk1", "0.log", "2.log", "a.log")
    other = _directory(tmp_path / "l1", "bk1", "1.log", "2.log", "3.log")
    journals = [_directory(tmp_path / name, "bk1", file) for name, file in (("j0", "b.txn"), ("j1", "a.txn"))]
    files = [str(file.path.relative_to(tmp_path)) for file in files_of([Bookie("bk1", (one, other), tuple(journals))])]
    assert files == ["l0/0.log", "l1/1.log", "l0/2.log", "l1/2.log", "l1/3.log", "l0/a.log", "j1/a.txn", "j0/b.txn"]


def test_rows_of_store_json(tmp_path: Path) -> None:
    bookie = Bookie("bk1", (tmp_path / "l0", tmp_path / "l1"), (tmp_path / "j",), ())
    assert decode_bookie(encode_bookie(bookie)) == bookie
    assert decode_bookie("/data/bookkeeper/current").directories == (Path("/data/bookkeeper/current"),)
