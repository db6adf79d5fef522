"""A block of the index that is passed by as usual is right: looked at one by one, all give the same findings and sums of files."""

import random
from pathlib import Path

import pytest

from pulsar_admin.store.db.environment import Txn, open_store
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.facts import file_sums
from pulsar_admin.store.facts.cluster import ClusterFacts
from pulsar_admin.store.facts.file_sums import IndexPass, journal_only, read_disk_totals
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.rules.index import INDEX_SWEEPS
from tests.stores import copied, imported
from tests.worlds import STATES

_NEVER = 1 << 62


def _judged(store: Path, many_rows: int, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], int]:
    """Return the findings of the index and the sums of files, and how many blocks were passed by where MANY_ROWS are many."""
    passes: list[IndexPass] = []

    class Kept(IndexPass):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments)  # type: ignore[arg-type]
            passes.append(self)

    with monkeypatch.context() as patch, open_store(store) as opened, open_reader(opened) as reader:
        patch.setattr(file_sums, "MANY_ROWS", many_rows)
        patch.setattr("pulsar_admin.store.rules.index.IndexPass", Kept)
        txn = reader.txn
        with txn.passing_altered():
            found = [repr(one) for one in INDEX_SWEEPS[0].judge(ClusterFacts(reader))]
            return [*found, *_sums(txn)], sum(one.usual for one in passes)


def _sums(txn: Txn) -> list[str]:
    sums = []
    for ask in (
        lambda: journal_only(txn),
        lambda: read_disk_totals(txn, 9),
    ):  # which keeps what the other one asks for
        try:
            sums.append(repr(ask()))
        except StoreError as error:
            sums.append(error.message)
    return sums


def _compare(store: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[int, list[str]]:
    with open_store(store) as opened, open_reader(opened) as reader:  # by nothing that another pass keeps
        sums = _sums(reader.txn)
    each, none = _judged(store, _NEVER, monkeypatch)
    many, usual = _judged(store, 0, monkeypatch)
    assert (none, many) == (0, each)
    assert many[-2:] == sums
    return usual, many[:-2]


@pytest.mark.parametrize("state", STATES)
def test_blocks_of_recorded_worlds(state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    usual, found = _compare(imported("small", state), monkeypatch)
    assert usual > 10
    assert not found


@pytest.mark.usefixtures("damages_stores")
@pytest.mark.parametrize("seed", range(8))
def test_blocks_beside_damaged_ones(seed: int, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(seed)
    with open_store(store, writable=True) as opened:
        damaged = opened.write(lambda txn: sum(_damage(txn, draw, database) for database in ("entries", "times")))
    usual, found = _compare(store, monkeypatch)
    assert damaged > 5
    assert usual > 10
    assert found


def _damage(txn: Txn, draw: random.Random, database: str) -> int:
    """Change a bit, or two bytes, of some rows, delete others, give some the value of others; return how many."""
    rows = list(txn.items(database))
    chosen = draw.sample(rows, len(rows) // 6)
    for key, value in chosen:
        place, changed = draw.randrange(len(value)), bytearray(value)
        changed[place] ^= 1 << draw.randrange(8)
        changed[draw.randrange(len(value))] ^= draw.choice((0, 1 << draw.randrange(8)))
        what = draw.choice((bytes(changed), bytes(changed), bytes(changed), value[:place], draw.choice(rows)[1], b""))
        if what:
            txn.put(database, key, what)
        else:
            txn.delete(database, key)
    return len(chosen)


def test_entries_of_journals_are_counted_beside_a_damaged_block(tmp_path: Path, damages_stores: None) -> None:
    path = copied("small", "crashed", tmp_path)
    told = []
    with open_store(path, writable=True) as store:
        for _ in range(2):
            with store.read() as txn:
                told.append([(log.file_id, *counts) for log, *counts in journal_only(txn)])
                key, row = next(txn.items("entries"))
            store.write(lambda txn, key=key, row=row: txn.put("entries", key, row[:-1]))  # type: ignore[misc]
    assert told[0] == told[1] != []
