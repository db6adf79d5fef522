"""Two processes on one store: whatever step one of them is stopped at, the other one loses nothing of it, nor it of the other."""

from itertools import count
from pathlib import Path

import pytest

from pulsar_admin.cli import run
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.db.storeinfo import read_store_info
from tests.conftest import Cli
from tests.crash.stopping import Stopped
from tests.soundness import assert_sound, bytes_of_store
from tests.worlds import world

ENTRIES = 3346  # of the small world, crashed: as the import's own tests count them in the source


@pytest.mark.parametrize("stride", [8, pytest.param(1, marks=pytest.mark.deep)])
def test_two_imports_into_one_path(stride: int, tmp_path: Path, cli: Cli) -> None:
    """One makes the store, the other one is told who does, or that it is there; nothing finished is ever begun again."""
    for number in count(0, stride):
        path = tmp_path / str(number) / "s"
        arguments = ["--store", str(path), "-q", "store", "import", "standalone", str(world("small") / "crashed")]
        first = Stopped(lambda arguments=arguments: run(arguments), path, number)
        ended = first.ended
        second = cli(*arguments)
        after_second = bytes_of_store(path)
        codes = first.go_on(), second.exit_code
        assert sorted(codes) in ([0, 3], [0, 4]), f"stopped at step {number}: {codes}, {second.stderr}"
        if second.exit_code == 0:
            assert bytes_of_store(path) == after_second, f"stopped at step {number}: the finished store changed"
        assert read_store_info(path).state == "ready"
        with open_store(path) as store, store.read() as txn:
            assert txn.count("tree") > 0
            assert_sound(path, store)
        cli(*arguments, "-o", "json").fails(3, "already-exists")
        assert cli("--store", path, "store", "info", "-o", "json").json["entries"] == ENTRIES
        if ended:
            assert number > 10, "the steps of an import are not seen"
            return
