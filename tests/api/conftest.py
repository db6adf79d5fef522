"""A store of each test's own, which it may change."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import pulsar_admin as pa
from tests.stores import NOW_MS, copied


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return copied("small", "clean", tmp_path)


@pytest.fixture
def store(path: Path) -> Iterator[pa.Store]:
    with pa.open_store(path, writable=True, now=NOW_MS) as opened:
        yield opened
