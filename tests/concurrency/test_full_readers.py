"""LMDB's table of readers full beside a process that keeps the store open: everybody is served, and nobody's pages are written over."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.errors import StoreBusy
from tests.conftest import Cli
from tests.stores import narrow_copy, write_rows

_HOLDER = """
import sys
from pathlib import Path
from pulsar_admin.store.db.environment import open_store
with open_store(Path(sys.argv[1])) as opened, opened.read() as txn:
    seen = {key: bytes(value) for key, value in txn.items("tree")}
    print("open", flush=True)
    sys.stdin.readline()
    same = seen == {key: bytes(value) for key, value in txn.items("tree")}
    with opened.read() as later:
        print(same, later.get("state", b"written"), flush=True)
"""
_FILLER = """
import sys, lmdb
env = lmdb.open(sys.argv[1] + "/meta", readonly=True, create=False, max_dbs=64)
held = []
try:
    while len(held) < 2000:
        held.append(env.begin())
except lmdb.ReadersFullError:
    print(len(held), flush=True)
sys.stdin.readline()
"""
"""Takes every slot that is left, as that many readers do."""


@contextmanager
def _running(code: str, store: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    with subprocess.Popen(
        [sys.executable, "-c", code, str(store)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        try:
            yield process, process.stdout.readline().strip()
        finally:
            if process.poll() is None:
                process.kill()


def test_a_table_full_of_killed_readers_is_emptied(tmp_path: Path, cli: Cli) -> None:
    store = narrow_copy(tmp_path)
    with _running(_HOLDER, store) as (holder, said):
        assert said == "open"
        with _running(_FILLER, store) as (filler, slots):
            assert int(slots) > 500
            os.kill(filler.pid, signal.SIGKILL)
            filler.wait()
        assert cli("--store", store, "topics", "list", "public/default").exit_code == 0
        with _running(_FILLER, store) as (filler, slots):
            assert int(slots) > 500  # the reader freed them
            os.kill(filler.pid, signal.SIGKILL)
            filler.wait()
        for number in range(20):  # each writes over pages that nobody reads
            write_rows(store, lambda txn, number=number: txn.put("state", b"written", b"%d" % number))
        assert cli("--store", store, "store", "check").exit_code == 0
        assert holder.communicate("\n")[0].strip() == "True b'19'"  # what it reads is as it was, and what came is there


def test_beside_as_many_readers_as_there_are_places(tmp_path: Path, cli: Cli) -> None:
    store = narrow_copy(tmp_path)
    with _running(_FILLER, store) as (filler, slots):
        assert int(slots) > 500
        assert cli("--store", store, "topics", "list", "public/default").exit_code == 0
        with open_store(store) as reading:
            with pytest.raises(StoreBusy, match="table of readers"), open_store(store, writable=True):
                pass  # a writer would not see whom it writes over
            with reading.read() as txn:
                assert txn.count("tree")
        assert cli("--store", store, "store", "check").exit_code == 0
        filler.communicate("\n")
    write_rows(store, lambda txn: txn.put("state", b"written", b""))
