"""ZooKeeper's recorded files, unpacked once a file of tests."""

from pathlib import Path

import pytest

from tests.history.files import unpack_zookeeper


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack_zookeeper(tmp_path_factory.mktemp("zookeeper"))
