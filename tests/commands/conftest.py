"""A store of each test's own, which it may change."""

from pathlib import Path

import pytest

from tests.stores import copied


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return copied("small", "clean", tmp_path)
