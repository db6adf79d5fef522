"""No changed byte of an exported file gives other rows, or ends the process: every one is named, whoever reads it."""

from __future__ import annotations

import random
import shutil
from base64 import b64decode
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import google_crc32c
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from store.tables.folder import Folder
from store.tables.manifest import Part
from store.tables.proven import BLOCK_BYTES, KEY, ProvenFile, ProvenSink
from store.tables.writing import write_part
from tests.conftest import Cli
from tests.stores import imported

READ_BY_SQL = ("topics", "ledgers", "cursors", "policies", "schemas", "messages", "nodes", "rows", "bodies", "entries")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All tables of ``small``."""
    from pulsar_admin.cli import run

    folder = tmp_path_factory.mktemp("exported") / "tables"
    store = str(imported("small", "clean"))
    assert run(["--store", store, "-q", "store", "export", "tables", str(folder), "--messages"]) == 0
    return folder


def damaged(folder: Path, table: str, places: Iterator[int]) -> Iterator[str]:
    """Change one byte of the table's file after the other; yield the file's name while it is changed."""
    (path,) = (folder / table).rglob("*.parquet")
    whole = path.read_bytes()
    for place in places:
        changed = bytearray(whole)
        changed[place] ^= 1 << place % 8
        path.write_bytes(changed)
        yield str(path.relative_to(folder))
    path.write_bytes(whole)


def spread(folder: Path, table: str, seed: int, pages: int, footers: int) -> Iterator[int]:
    """Yield places in the table's file: PAGES of what is before its footer, FOOTERS of that and what is behind."""
    (path,) = (folder / table).rglob("*.parquet")
    data = path.read_bytes()
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    chosen = random.Random(seed)
    yield from (chosen.randrange(start) for _ in range(pages))
    yield from (chosen.randrange(start, len(data)) for _ in range(footers))


def check(cli: Cli, folder: Path, table: str, places: Iterator[int]) -> None:
    """Read all of a table by SQL, with each of PLACES changed."""
    everything = ("sql", f"select min(columns(*)::varchar) from {table}")
    asked = [everything, ("sql", f"select count(*) from {table}")]
    right = {words: cli("--tables", folder, *words) for words in asked}
    assert {found.exit_code for found in right.values()} == {0}
    for name in damaged(folder, table, places):
        for words in asked:
            found = cli("--tables", folder, *words)
            if found.exit_code:
                assert (found.exit_code, found.stdout) == (6, "")
                assert found.stderr.startswith(f"error: {name} cannot be read: ")
            else:  # of what is in the footer, or in other columns, alone
                assert words is not everything
                assert found == right[words]


@pytest.fixture
def folder(exported: Path, tmp_path: Path) -> Path:
    """A copy, to be damaged."""
    return shutil.copytree(exported, tmp_path / "tables")


@pytest.mark.parametrize("table", READ_BY_SQL)
def test_a_changed_byte_is_named_or_not_read(table: str, cli: Cli, folder: Path) -> None:
    check(cli, folder, table, spread(folder, table, 1, pages=2, footers=2))


@pytest.mark.deep
@pytest.mark.parametrize("table", READ_BY_SQL)
def test_any_changed_byte_is_named_or_not_read(table: str, cli: Cli, folder: Path) -> None:
    check(cli, folder, table, spread(folder, table, 2, pages=300, footers=100))


def test_checksums_are_those_of_the_bytes(tmp_path: Path) -> None:
    """Of a file of several blocks, written group by group, counted over the file as it lies there."""
    values = random.Random(3)
    schema = pa.schema([("cluster", pa.string()), ("payload", pa.binary())])
    rows = [pa.record_batch([["c"] * 500, [values.randbytes(300) for _ in range(500)]], schema) for _ in range(5)]
    part = write_part(Folder(str(tmp_path)), "one.parquet", schema, rows)
    data = (tmp_path / "one.parquet").read_bytes()
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    assert start > 10 * BLOCK_BYTES
    assert (part.size_bytes, part.footer) == (len(data), google_crc32c.value(data[start:]))
    blocks = b"".join(
        google_crc32c.value(data[at : min(at + BLOCK_BYTES, start)]).to_bytes(4, "little")
        for at in range(0, start, BLOCK_BYTES)
    )
    listed = pq.read_metadata(tmp_path / "one.parquet").metadata[KEY.encode()]
    assert b64decode(listed) == blocks


def test_any_part_of_a_proven_file_is_read(tmp_path: Path) -> None:
    file, data = proven(tmp_path, 3 * BLOCK_BYTES + 17)
    edges = [
        0,
        1,
        BLOCK_BYTES - 1,
        BLOCK_BYTES,
        BLOCK_BYTES + 1,
        3 * BLOCK_BYTES,
        len(data) - 9,
        len(data) - 1,
        len(data),
    ]
    for start in edges:
        for size in (0, 1, 7, BLOCK_BYTES, 2 * BLOCK_BYTES + 3, len(data), -1):
            file.seek(start)
            assert file.read(size) == data[start : len(data) if size < 0 else start + size], (start, size)
            assert file.tell() == (len(data) if size < 0 else min(start + size, len(data)))


def proven(folder: Path, payload_bytes: int) -> tuple[ProvenFile, bytes]:
    """A file of one column whose pages take about PAYLOAD_BYTES."""
    schema = pa.schema([("payload", pa.binary())])
    payload = random.Random(5).randbytes(payload_bytes)
    part = write_part(Folder(str(folder)), "x.parquet", schema, [pa.record_batch([[payload]], schema)])
    (folder / "x.parquet").rename(folder / part.name)
    return ProvenFile(Folder(str(folder)), part.name), (folder / part.name).read_bytes()


def test_a_sink_counts_whatever_the_writes_are() -> None:
    data = random.Random(4).randbytes(3 * BLOCK_BYTES + 5)
    found = set()
    for size in (1 << 10, BLOCK_BYTES, BLOCK_BYTES + 1, len(data)):
        sink = ProvenSink(out := BytesIO())
        for start in range(0, len(data), size):
            sink.write(data[start : start + size])
        found.add(sink.blocks()[KEY])
        sink.write(b"123456789")
        assert (sink.footer, out.getvalue()) == (0xE3069283, data + b"123456789")  # the check value of CRC-32C
    assert len(found) == 1


def test_a_name_without_a_checksum_is_an_earlier_version(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1, 2]}), tmp_path / "part-1.parquet")
    assert Part("t/part-1.parquet", 2, 1).name == "part-1.parquet"
    assert pq.read_table(pa.PythonFile(ProvenFile(Folder(str(tmp_path)), "part-1.parquet"), "r")).num_rows == 2
