"""Any changed byte of an exported file is named before a row of it is read; pages are proven again whenever they are read."""

import hashlib
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pulsar_admin.store.errors import Corrupt
from pulsar_admin.store.tables.folder import Folder, TableFile
from pulsar_admin.store.tables.parquet import check_file, read_groups, write_part
from tests.altering import flip

SCHEMA = pa.schema([("cluster", pa.string()), ("payload", pa.binary())])


@pytest.fixture
def part(tmp_path: Path) -> TableFile:
    """A file of several row groups, written group by group."""
    values = random.Random(3)
    rows = [pa.record_batch([["c"] * 500, [values.randbytes(300) for _ in range(500)]], SCHEMA) for _ in range(5)]
    return write_part(Folder(str(tmp_path)), "one.parquet", SCHEMA, rows)


def test_the_digest_is_that_of_the_bytes(part: TableFile, tmp_path: Path) -> None:
    data = (tmp_path / "one.parquet").read_bytes()
    assert (part.size_bytes, part.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    check_file(Folder(str(tmp_path)), part)


def test_a_changed_byte_anywhere_is_named(part: TableFile, tmp_path: Path) -> None:
    path = tmp_path / "one.parquet"
    whole = path.read_bytes()
    for place in range(0, len(whole), len(whole) // 200):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ (1 << place % 8)]) + whole[place + 1 :])
        with pytest.raises(Corrupt, match=r"^one\.parquet cannot be read: tables\.json has SHA-256 "):
            check_file(Folder(str(tmp_path)), part)


def test_pages_have_checksums_that_readers_of_ours_verify(part: TableFile, tmp_path: Path) -> None:
    """What was changed after the file was proven is not read either."""
    path = tmp_path / "one.parquet"
    column = pq.read_metadata(path).row_group(0).column(1)
    flip(path, (column.dictionary_page_offset or column.data_page_offset) + column.total_compressed_size // 2)
    with pytest.raises(Corrupt, match=r"one\.parquet cannot be read: .*CRC"):
        list(read_groups(Folder(str(tmp_path)), part, SCHEMA))
    from pyarrow.dataset import FileSystemDataset

    from pulsar_admin.store.tables.catalog import _PARQUET

    with pytest.raises(OSError, match="CRC"):
        FileSystemDataset(
            [_PARQUET.make_fragment(str(path), pa.fs.LocalFileSystem())], SCHEMA, _PARQUET, pa.fs.LocalFileSystem()
        ).to_table()
