"""Disks of another cluster beside a cluster's own, and copies of one entry that differ: nothing takes the place of anything in silence."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pulsar_admin.store.codec.digest import DigestType
from pulsar_admin.store.codec.entry import Entry
from pulsar_admin.store.db.blocks import ledger_of_key
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.db.files import LogFile, iter_differing
from pulsar_admin.store.index.writer import Copies
from pulsar_admin.store.model.ledgers import iter_blocks
from pulsar_admin.store.model.reader import open_reader
from tests.conftest import Cli
from tests.encoders import encode_entry
from tests.stores import imported, read_rows
from tests.worlds import copy_tree, world

OWN, OTHER = world("small") / "clean", world("nometa") / "clean"
Payloads = dict[tuple[int, int], bytes]


def _payloads(path: Path) -> Payloads:
    """Every entry of a store."""
    found: Payloads = {}
    with open_store(path) as store, open_reader(store) as reader:
        for key, _ in reader.txn.items("times"):
            ledger_id = ledger_of_key(key)
            for block in iter_blocks(reader.txn, ledger_id):
                for index in range(len(block)):
                    entry = reader.read_at(ledger_id, block.entry_id(index), block.place(index))
                    found[ledger_id, entry.entry_id] = bytes(entry.payload)
    return found


@pytest.fixture(scope="module")
def own() -> Payloads:
    return _payloads(imported("small", "clean"))


@pytest.fixture(scope="module")
def other() -> Payloads:
    return _payloads(imported("nometa", "clean"))


def _source(path: Path, second: Path, cookie: str | None = None) -> Path:
    """A data directory of OWN with the disks SECOND linked in, their cookie replaced by COOKIE."""
    path.mkdir()
    (path / "metadata").symlink_to(OWN / "metadata")
    (path / "bookkeeper").symlink_to(OWN / "bookkeeper")
    if cookie is None:
        (path / "bookkeeper2").symlink_to(second / "bookkeeper")
    else:
        copy_tree(second / "bookkeeper", path / "bookkeeper2")
        (path / "bookkeeper2" / "current" / "VERSION").write_text(cookie)
    return path


def _rows(path: Path, cli: Cli, code: str) -> list[Any]:  # Any: JSON
    return [row for row in cli("--store", path, "store", "check", "-o", "json").json if row["code"] == code]


def _cookie(world_: Path) -> str:
    return (world_ / "bookkeeper" / "current" / "VERSION").read_text()


@pytest.mark.parametrize("cookie", [None, re.sub("instanceId.*\n", "", _cookie(OTHER))])
def test_disks_of_another_cluster_are_left_out(cookie: str | None, own: Payloads, tmp_path: Path, cli: Cli) -> None:
    """By the instance id; without one, as the bookie is neither registered nor in an ensemble."""
    source, path = _source(tmp_path / "source", OTHER, cookie), tmp_path / "s"
    answer = cli("--store", path, "store", "import", "standalone", source, "-o", "json")
    assert (answer.exit_code, answer.json["differingCopies"]) == (1, 0)
    (text,) = answer.json["strangers"]
    assert text.startswith(f"{source}/bookkeeper2/current: ")
    assert text.endswith("it is not read")
    assert text in answer.stderr
    assert _payloads(path) == own
    for _ in range(2):
        (row,) = _rows(path, cli, "bookie-not-known")
        assert (row["severity"], row["message"]) == ("problem", text)
        answer = cli("--store", path, "store", "refresh", "-o", "json")
        assert (answer.exit_code, answer.json["newFiles"], answer.json["strangers"]) == (1, [], [text])


def test_a_bookie_that_is_not_the_registered_one_replaces_nothing(
    own: Payloads, other: Payloads, tmp_path: Path, cli: Cli
) -> None:
    """The registered bookie's id with other directories: perhaps its disks were moved."""
    cookie = re.sub("journalDir: .*\n", 'journalDir: "/elsewhere"\n', _cookie(OWN))
    source, path = _source(tmp_path / "source", OTHER, cookie), tmp_path / "s"
    answer = cli("--store", path, "store", "import", "standalone", source, "-o", "json").ends(1)
    assert "is not the one that the metadata has" in answer.json["strangers"][0]
    found = _payloads(path)
    assert {place: found[place] for place in own} == own
    assert answer.json["differingCopies"] > 100
    rows = _rows(path, cli, "copies-differ")
    assert rows
    assert all("bookkeeper2" in row["where"] and "metadata knows" in row["hint"] for row in rows)


def test_where_nothing_proves_which_copy_is_right_both_are_named(
    own: Payloads, other: Payloads, tmp_path: Path, cli: Cli
) -> None:
    """The other cluster's disks with a copy of the right cookie."""
    source, path = _source(tmp_path / "source", OTHER, _cookie(OWN)), tmp_path / "s"
    answer = cli("--store", path, "store", "import", "standalone", source, "-o", "json")
    assert (answer.exit_code, answer.json["strangers"]) == (1, [])
    found = _payloads(path)
    replaced = {place for place in own if found[place] != own[place]}
    named = read_rows(path, lambda txn: {(damage.ledger_id, damage.entry_id) for damage in iter_differing(txn)})
    assert replaced <= named
    assert named <= {place for place in own if other.get(place, own[place]) != own[place]}
    assert len(named) > 100
    rows = _rows(path, cli, "copies-differ")
    assert sum(row["context"]["entries"] for row in rows) == answer.json["differingCopies"]
    assert cli("--store", path, "store", "index", "-o", "json").json["changedRows"] == 0


def test_replicas_are_copies(own: Payloads, tmp_path: Path, cli: Cli) -> None:
    source, path = _source(tmp_path / "source", OWN), tmp_path / "s"
    answer = cli("--store", path, "store", "import", "standalone", source, "-o", "json")
    assert (answer.exit_code, answer.json["differingCopies"], answer.json["strangers"]) == (0, 0, [])
    assert _payloads(path) == own


def test_metadata_made_anew_makes_no_bookie_foreign(tmp_path: Path, cli: Cli) -> None:
    """No cookie has the metadata's instance id: the entries are all the same read, and it is said."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "metadata").symlink_to(OWN / "metadata")
    (source / "bookkeeper").symlink_to(OTHER / "bookkeeper")
    answer = cli("--store", tmp_path / "s", "store", "import", "standalone", source, "-o", "json").ends(1)
    assert "belongs to another cluster" in answer.json["strangers"][0]
    assert answer.json["entries"] > 1000


def test_what_makes_copies_differ(tmp_path: Path) -> None:
    """Not the last-add-confirmed, which a recovery writes anew and which the digest covers; any other bit."""

    def entry(number: int, last: int, length: int, payload: bytes = b"0123456789") -> Entry:
        return Entry(5, number, last, length, DigestType.CRC32C, memoryview(payload))

    entries = [entry(number, number - 1, 10 * number + 10) for number in range(8)]
    changed = [entries[0], entry(1, -1, 20), entry(2, 1, 30, b"012345678_"), entry(3, 2, 41)]
    changed += [entry(4, 3, 50, b"01234567890"), *entries[5:]]
    logs, places = {}, []
    for file_id, (bookie, rows) in enumerate((("a", entries), ("b", changed), ("a", changed)), 1):
        file = tmp_path / bookie / f"{file_id}.log"
        file.parent.mkdir(exist_ok=True)
        raw, offsets, sizes = bytearray(b"head"), [], []
        for row in rows:
            body = encode_entry(row)
            offsets.append(len(raw))
            sizes.append(len(body))
            raw += len(body).to_bytes(4, "big") + body + bytes(20_000 * (row.entry_id == 5))
        file.write_bytes(raw)
        logs[file_id] = LogFile(
            file_id, str(file), "entry-log", file_id, "", "referenced", 0, 0, "", 0, 0, 0, False, False
        )
        places.append((np.array(offsets, "<u4"), np.array(sizes, "<u4")))
    copies = Copies(tmp_path, logs)
    ones = np.ones(8, "<u4")
    assert np.flatnonzero(copies.differ(ones, places[0], 2, places[1], 4)).tolist() == [2, 3, 4]
    assert not copies.differ(ones, places[0], 3, places[2], 4).any()  # one bookie
    copies.close()
