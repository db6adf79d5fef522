"""Digests of rows: an altered bit is never an answer, what a finding prints cures, and stores of earlier formats go on."""

import json
import os
import re
import shlex
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import sha256
from itertools import cycle, product
from pathlib import Path
from random import Random
from typing import Any
from zlib import compress

import lmdb
import pytest
from pyroaring import BitMap64

import pulsar_admin
from pulsar_admin.store.db import (
    audit_log,
    blocks,
    clocks,
    copies,
    delayed_entries,
    delayed_rules,
    entry_files,
    environment,
    export_intent,
    file,
    files,
    ledger_ids,
    locks,
    nacks,
    own_ledgers,
    owners,
    rows,
    tree,
)
from pulsar_admin.store.db import file as lmdb_file
from pulsar_admin.store.db.blocks import BLOCK_ENTRIES, BLOCK_HEADER
from pulsar_admin.store.db.entry_files import FileState
from pulsar_admin.store.db.environment import DATABASES, Store, Txn, _take_part, open_store
from pulsar_admin.store.db.file import CommitRecord
from pulsar_admin.store.db.files import iter_logs
from pulsar_admin.store.db.nacks import BUCKET, ID_SIZE_BYTES, _sealed
from pulsar_admin.store.db.own_ledgers import find_placed
from pulsar_admin.store.db.rows import DERIVED
from pulsar_admin.store.db.storeinfo import check_pages
from pulsar_admin.store.db.unserved import read_index_states, read_journal_marks, read_misled_bookies
from pulsar_admin.store.errors import EntryCorrupt, IndexCorrupt, InvalidValue, Refused, StalePlan, StoreError
from pulsar_admin.store.model.copy_age import find_as_of
from pulsar_admin.store.model.coverage import find_absent_bookies, find_unknown_bookies
from tests.altering import RawRow, alter, alter_branch_keys, raw_rows
from tests.at_bounds import LONG, Answers, N, Texts, asking
from tests.conftest import Cli
from tests.crash.killing import killing
from tests.nacks.test_bitmaps import crc32c
from tests.soundness import assert_sound
from tests.stores import imported, in_store, narrow_copy, read_rows, write_rows
from tests.worlds import GOLDEN, assert_unchanged, scratch_copy, unpack, world

ACROSS = "persistent://public/default/across"
NOW = ("--now", "2026-11-24T00:30:00Z")
FORMATS = {path.name: path for path in sorted(GOLDEN.glob("store-format-*.tar.xz"))}
ANSWERS = (
    ("topics", "list", "public/default"), ("topics", "stats", ACROSS), ("topics", "stats-internal", ACROSS),
    ("topics", "find-by-time", ACROSS, "--time", "2026-11-23T00:31:00Z"), ("topics", "read", ACROSS, "-o", "jsonl"),
    ("topics", "describe", ACROSS), ("delayed", "status", ACROSS), ("nacks", "stats"),
    ("nacks", "due"), ("namespaces", "policies", "public/default"), ("clusters", "list"), ("tenants", "list"),
    ("ledgers", "list"), ("ledgers", "orphans"), ("ledgers", "missing"), ("ledgers", "underreplicated"),
    ("ledgers", "info", "4"), ("ledgers", "entries", "9"), ("store", "owner", "12"), ("store", "info"), ("store", "log"),
    ("store", "log", "3"), ("store", "usage"), ("store", "ls", "/"), ("store", "ls", "/ledgers"), ("store", "check"),
    ("doctor",), ("overview",),
)  # fmt: skip
"""What is asked of a store with an altered bit."""


def unpacked(archive: Path, folder: Path) -> Path:
    unpack(archive, folder)
    return folder / "pulsar-store"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A store of format 1 that the program of that time wrote."""
    return unpacked(FORMATS["store-format-1.tar.xz"], tmp_path)


@pytest.fixture
def new(old: Path) -> Path:
    """The same store, its rows with digests."""
    in_store(old, lambda opened: opened.add_digests())
    return old


def rows_of(path: Path) -> dict[tuple[str, bytes], bytes]:
    """Return every row of the store at PATH as its readers see it."""
    with open_store(path) as opened, opened.read() as txn:
        return {(name, key): bytes(value) for name in DATABASES for key, value in txn.items(name)}


def one_of_each(path: Path) -> list[RawRow]:
    """Return a row of each database of the store at PATH, of those with most to say."""
    rows = sorted(raw_rows(path), key=lambda row: len(row.value))
    return [*{row.database: row for row in rows}.values()]


# -- digests ----------------------------------------------------------------------------------------------------------


def test_every_row_ends_with_the_crc32c_of_key_and_value(new: Path) -> None:
    assert crc32c(b"123456789") == 0xE3069283  # RFC 3720
    rows = [*raw_rows(new)]
    assert {row.database for row in rows} == {*DATABASES}
    for row in rows:
        value, digest = row.value[:-4], row.value[-4:]
        assert int.from_bytes(digest, "little") == crc32c(row.key + value), row


def test_new_stores_have_digests(tmp_path: Path) -> None:
    rows = [*raw_rows(narrow_copy(tmp_path))]
    assert len(rows) > 50
    assert all(int.from_bytes(row.value[-4:], "little") == crc32c(row.key + row.value[:-4]) for row in rows)


@pytest.mark.usefixtures("damages_stores")
def test_no_altered_bit_is_read(new: Path) -> None:
    """Each row in turn: who asks for it, or for its place, or passes over it by any way gets the error."""
    random = Random(35)
    whole = (new / "meta" / "data.mdb").read_bytes()
    rows = [*raw_rows(new)]
    for number, row in enumerate(rows):
        in_key = number % 2 == 1
        alter(new, row, random.randrange(len(row.key if in_key else row.value)), random.randrange(8), in_key=in_key)
        asked: list[Callable[[Txn], object]] = [
            lambda txn, row=row: txn.get(row.database, row.key),  # type: ignore[misc]  # binds this one
            lambda txn, row=row: txn.view(row.database, row.key),  # type: ignore[misc]
            lambda txn, row=row: [*txn.items(row.database)],  # type: ignore[misc]
            lambda txn, row=row: [*txn.items(row.database, row.key)],  # type: ignore[misc]
            lambda txn, row=row: [*txn.items(row.database, row.key[:8])],  # type: ignore[misc]
            lambda txn, row=row: [*txn.keys(row.database, row.key)],  # type: ignore[misc]
            lambda txn, row=row: [*txn.parts(row.database, row.key, row.key, 400)],  # type: ignore[misc]
        ]
        if not [other for other in rows if other != row and other.key.startswith(row.key)]:
            asked.append(lambda txn, row=row: txn.last(row.database, row.key))  # type: ignore[misc]
        with suppress(IndexCorrupt), open_store(new) as opened:  # a page whose keys are not in order is not opened
            for ask in asked:
                with pytest.raises(IndexCorrupt, match=f"database {row.database}"), opened.read() as txn:
                    ask(txn)
        (new / "meta" / "data.mdb").write_bytes(whole)


@pytest.mark.usefixtures("damages_stores")
def test_no_altered_key_of_a_page_above_hides_rows(new: Path) -> None:
    """LMDB's branch pages have copies of keys, which lead to the rows: who is led astray gets the error."""
    before = rows_of(new)
    random, tries, errors = Random(35), 0, 0
    check_pages(new)
    for _ in alter_branch_keys(new, 4):
        tries += 1
        was = errors
        with suppress(IndexCorrupt), open_store(new) as opened:
            for database, key in random.sample([*before], 40):
                try:
                    with opened.read() as txn:
                        found = {found: bytes(value) for found, value in txn.items(database, key)}
                        last = txn.last(database, key)
                except IndexCorrupt:
                    errors += 1
                    continue
                wanted = {row: value for (of, row), value in before.items() if of == database and row.startswith(key)}
                assert found == wanted
                assert last == max(wanted.items())
        if errors > was:  # a check finds whatever an answer fails of
            with pytest.raises(IndexCorrupt):
                check_pages(new)
    assert tries > 10
    assert errors


@pytest.mark.usefixtures("damages_stores")
def test_a_pass_is_cut_at_no_altered_row(new: Path) -> None:
    rows = [row for row in raw_rows(new) if row.database == "tree"]
    alter(new, rows[14], 1, 1)
    assert read_rows(new, lambda txn: txn.every("tree", 7)) == [row.key for row in rows[7::7] if row is not rows[14]]


@pytest.mark.usefixtures("damages_stores")
def test_rows_beside_an_altered_one_are_read(new: Path) -> None:
    row = next(row for row in raw_rows(new) if row.database == "tree" and row.key == b"/ledgers/00/0000/L0004")
    alter(new, row, 5, 1)
    with open_store(new) as opened, opened.read() as txn:
        assert txn.get("tree", b"/ledgers/00/0000/L0003")
        assert [*txn.keys("tree", b"/managed-ledgers/public")]
        found: list[bytes] = []
        with txn.passing_altered(found.append):
            passed = [*txn.keys("tree", b"/ledgers/00/0000/")]
        assert found == [row.key]
        assert b"/ledgers/00/0000/L0003" in passed
        assert row.key not in passed


@pytest.mark.usefixtures("damages_stores")
def test_what_suppresses_an_altered_row_fails_at_its_end(new: Path) -> None:
    row = next(row for row in raw_rows(new) if row.database == "times")
    alter(new, row, 5, 1)

    def work(txn: Txn) -> None:
        with suppress(StoreError):
            txn.get("times", row.key)
        txn.put("state", b"written", b"")

    with open_store(new, writable=True) as opened:
        with pytest.raises(IndexCorrupt, match="times"), opened.read() as txn, suppress(StoreError):
            txn.get("times", row.key)
        with pytest.raises(IndexCorrupt, match="times"):
            opened.write(work)
        with opened.read() as txn:
            assert txn.get("state", b"written") is None


@pytest.mark.usefixtures("damages_stores")
@pytest.mark.parametrize(
    ("database", "in_key"),
    [("tree", False), ("tree", True), ("entries", False), ("times", True), ("owners", False), ("state", False)],
)
def test_an_altered_bit_is_no_answer(database: str, in_key: bool, new: Path, cli: Cli) -> None:
    """Every answer is what it was, or an error or a finding that says so; a check finds it always."""
    command = ("--store", new, *NOW)
    before = {words: cli(*command, *words) for words in ANSWERS}
    assert {answer.exit_code for answer in before.values()} <= {0, 1}
    row = next(row for row in one_of_each(new) if row.database == database)
    alter(new, row, len(row.key if in_key else row.value) // 2, 2, in_key=in_key)
    for words, answer in before.items():
        now = cli(*command, *words)
        told = now.stdout + now.stderr
        if now[:2] != answer[:2] or words == ("store", "check"):
            assert "altered" in told or "not in order" in told, (words, told)
            assert now.exit_code or words == ("overview",), words  # which lists them as findings


@pytest.mark.usefixtures("damages_stores")
def test_checks_and_doctor_go_on_past_altered_rows(new: Path, cli: Cli) -> None:
    for row in one_of_each(new):
        alter(new, row, len(row.value) // 2, 3)
    for words in (("store", "check"), ("store", "check", "--deep"), ("doctor",)):
        found = cli("--store", new, *NOW, *words, "-o", "json").json
        codes = {row["code"] for row in found}
        assert codes >= {"rows-altered", "node-rows-altered", "index-rows-altered"}, words
        assert "file-damaged" in codes, words  # what lies behind them is looked at, too
        assert not {"ledgers-unreferenced", "ledgers-deleted", "ledgers-gone"} & codes or words[0] == "store"
    listed = {row["where"]: row for row in found if "rows-altered" in row["code"]}
    assert {where.split()[1] for where in listed} == {*DATABASES}


# -- cures ------------------------------------------------------------------------------------------------------------


def last_command(text: str) -> list[str]:
    """Return the words of the command that TEXT, a hint, ends with."""
    return shlex.split(text[text.index("pulsar-admin ") :])[1:]


@pytest.mark.usefixtures("damages_stores")
@pytest.mark.parametrize(("database", "in_key"), [*zip(DERIVED, [False, True] * 4, strict=False)])
def test_derived_rows_are_made_again(database: str, in_key: bool, new: Path, cli: Cli) -> None:
    before = rows_of(new)
    row = next(row for row in one_of_each(new) if row.database == database)
    alter(new, row, len(row.key) - 1 if in_key else 3, 0, in_key=in_key)
    (found,) = [row for row in cli("--store", new, "store", "check", "-o", "json").json if "altered" in row["code"]]
    assert found["code"] == "index-rows-altered"
    words = last_command(found["hint"])
    assert words == ["store", "index", "--rebuild"]
    mended = cli.done("--store", new, *words, "-o", "json")
    assert mended.json["changedRows"] >= 1
    assert rows_of(new) == before


@pytest.mark.usefixtures("damages_stores")
@pytest.mark.parametrize("in_key", [False, True], ids=["value", "key"])
def test_nodes_are_read_from_the_source_again(in_key: bool, tmp_path: Path, cli: Cli) -> None:
    store = narrow_copy(tmp_path)
    before = rows_of(store)
    for row in [row for row in raw_rows(store) if row.database == "tree"][3:9:2]:
        alter(store, row, len(row.key) - 1 if in_key else 40, 0, in_key=in_key)
    (found,) = [row for row in cli("--store", store, "doctor", "-o", "json").json if "altered" in row["code"]]
    assert found["code"] == "node-rows-altered"
    words = last_command(found["mend"])
    assert words == ["store", "refresh"]
    mended = cli("--store", store, *words)
    assert "3 nodes read from the source again" in mended.stderr
    now = rows_of(store)
    assert {row: value for row, value in now.items() if row[0] == "tree"} == {
        row: value for row, value in before.items() if row[0] == "tree"
    }
    assert_sound(store)


@pytest.mark.usefixtures("damages_stores")
@pytest.mark.parametrize(
    "path",
    [
        "/ledgers/INSTANCEID",
        "/ledgers/cookies/",
        "/ledgers/00/0000/L0046",
        "/schemas/public/default/json",
    ],
)
def test_what_is_printed_for_an_altered_node_and_what_follows_from_it_mends_it(
    path: str, tmp_path: Path, cli: Cli
) -> None:
    store = narrow_copy(tmp_path)
    row = next(row for row in raw_rows(store) if row.database == "tree" and row.key.startswith(path.encode()))
    alter(store, row, len(row.value) - 1, 0)
    follow = {"node-rows-altered", "owners-differ", "topic-unreadable", "bookie-cookie-refused"}
    found = {row["code"]: last_command(row["mend"]) for row in cli.rows(store, "doctor") if row["code"] in follow}
    assert {tuple(words) for words in found.values()} == {("store", "refresh")}
    cli.on(store, "store refresh --dry-run").ends(0, "a refresh reads 1 node from the source again")
    cli.on(store, "store refresh").ends(0, "1 node read from the source again")
    assert not [row for row in cli.rows(store, "doctor") if row["code"] in follow]


@pytest.mark.usefixtures("damages_stores")
def test_new_nodes_of_the_source_are_not_read_with_altered_ones(tmp_path: Path, cli: Cli) -> None:
    """They follow when their entries are indexed: a kill must not leave metadata without entries."""
    source, store = scratch_copy("small", "clean", tmp_path), tmp_path / "s"
    cli.on(store, f"store import standalone {source}").ends(0)
    shutil.rmtree(source)
    scratch_copy("small", "crashed", tmp_path).rename(source)
    row = next(row for row in raw_rows(store) if row.key.startswith(b"/ledgers/cookies/"))
    alter(store, row, len(row.value) - 1, 0)
    cli.on(store, "store refresh --dry-run").ends(0, "a refresh reads 1 node from the source again")
    cli.on(store, "store refresh").ends(0, "altered on the disk: 1 node read from the source again")


@pytest.mark.usefixtures("damages_stores")
@pytest.mark.parametrize("in_key", [False, True], ids=["value", "key"])
def test_a_changed_node_is_not_taken_from_the_source(in_key: bool, tmp_path: Path, cli: Cli) -> None:
    store = narrow_copy(tmp_path)
    cli("--store", store, "namespaces", "set-retention", "public/default", "--size", "10M", "--time", "1d", "-y")
    row = next(
        row for row in raw_rows(store) if row.database == "tree" and row.key == b"/admin/policies/public/default"
    )
    alter(store, row, len(row.key) - 1 if in_key else 40, 0, in_key=in_key)
    refused = cli("--store", store, "store", "refresh").ends(6, "altered")
    assert "back-up" in refused.stderr or "nowhere else" in refused.stderr


@pytest.mark.usefixtures("damages_stores")
@pytest.mark.parametrize("database", [name for name in DATABASES if name not in DERIVED])
def test_a_back_up_cures_what_is_nowhere_else(database: str, new: Path, cli: Cli) -> None:
    in_store(new, lambda opened: opened.back_up())
    before = rows_of(new)
    # The row of bookies is in the source, too: a refresh writes it again.
    rows = [row for row in raw_rows(new) if row.database == database and row.key != b"bookies"]
    row = max(rows, key=lambda row: len(row.value))
    alter(new, row, len(row.value) - 6, 4)
    found = [row for row in cli.json(new, "store check") if row["code"].endswith("rows-altered")]
    assert [row["where"] for row in found] == [f"database {database}"]
    with pytest.raises(IndexCorrupt) as raised, open_store(new) as opened, opened.read() as txn:
        txn.get(database, row.key)
    for hint in (found[0]["hint"], raised.value.hint):
        assert "mv " in hint
        if rows_are_whole(new):
            continue
        subprocess.run(hint[hint.index("mv ") :], shell=True, check=True)
    assert rows_of(new) == before


def rows_are_whole(path: Path) -> bool:
    try:
        rows_of(path)
    except IndexCorrupt:
        return False
    return True


# -- earlier formats --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("archive", FORMATS.values(), ids=FORMATS)
def test_a_store_of_an_earlier_format_is_read(archive: Path, tmp_path: Path, cli: Cli) -> None:
    store = unpacked(archive, tmp_path)
    raw = {(row.database, row.key): row.value for row in raw_rows(store)}
    assert {database for database, _ in raw} == {*DATABASES}
    with assert_unchanged(store / "entries"):
        assert rows_of(store) == raw
        with open_store(store) as opened, opened.read() as txn:
            assert all(txn.get(*row) == value for row, value in raw.items())
            assert all(
                txn.last(name) == max((key, raw[name, key]) for name_, key in raw if name_ == name)
                for name in DATABASES
            )
        info = cli("--store", store, "store", "info")
        assert "(format 1, ready)" in info.stdout
        assert "without digests" in info.stdout
        assert cli("--store", store, "store", "info", "-o", "json").json["rowDigests"] is False
        found = {row["code"]: row for row in cli("--store", store, "store", "check", "-o", "json").json}
        assert found["rows-without-digests"]["severity"] == "note"
    assert {(row.database, row.key): row.value for row in raw_rows(store)} == raw  # reading gave no digests


def test_answers_are_the_same_with_digests(old: Path, cli: Cli) -> None:
    say_so = {("store", "info"), ("store", "check"), ("doctor",), ("overview",)}

    def asked() -> dict[tuple[str, ...], str]:
        return {words: cli("--store", old, *NOW, "--quiet", *words).stdout for words in ANSWERS if words not in say_so}

    before, raw = asked(), rows_of(old)
    with open_store(old, writable=True) as opened:
        opened.add_digests()
    assert asked() == before
    assert rows_of(old) == raw


def test_the_first_change_gives_digests_and_undo_goes_on(old: Path, cli: Cli) -> None:
    before = rows_of(old)
    command = ("--store", old, *NOW)
    plan = old.parent / "plan.json"
    assert cli(*command, "topics", "unsubscribe", ACROSS, "-s", "late", "--plan", plan).exit_code == 0
    assert not has_digests(old)  # a plan changes nothing
    assert cli(*command, "apply", plan, "-y").exit_code == 0
    assert has_digests(old)
    assert '"formatVersion": 2' in (old / "store.json").read_text()
    assert cli(*command, "store", "undo", "8", "-y").exit_code == 0
    after = rows_of(old)
    assert {row: value for row, value in after.items() if row[0] == "tree"} == {
        row: value for row, value in before.items() if row[0] == "tree"
    }
    for change in (7, 4):  # made by the program of before
        assert cli(*command, "store", "undo", change, "-y").exit_code == 0
    assert [row["change"] for row in cli(*command, "store", "log", "-o", "json").json] == [*range(1, 12)]
    assert_sound(old)


def has_digests(path: Path) -> bool:
    return read_rows(path, lambda txn: txn.has_digests)


def test_a_refresh_gives_digests_also_without_a_source(old: Path, cli: Cli) -> None:
    before = rows_of(old)
    (row,) = [row for row in cli("--store", old, "doctor", "-o", "json").json if row["code"] == "rows-without-digests"]
    refreshed = cli("--store", old, *last_command(row["mend"]))
    assert refreshed.exit_code == 5  # the directories of its bookies are on another machine
    assert has_digests(old)
    assert rows_of(old) == before


def test_rows_get_digests_on_a_larger_map(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "_FIRST_MAP_BYTES", 1 << 12)
    before = rows_of(old)
    with open_store(old, writable=True) as opened:
        opened.write(lambda txn: txn.put("state", b"large", bytes(1 << 20)))
        with opened.read() as txn:
            assert txn.get("state", b"large") == bytes(1 << 20)
    assert rows_of(old) == before | {("state", b"large"): bytes(1 << 20)}


def test_a_change_that_fails_leaves_the_old_rows(old: Path) -> None:
    raw = [*raw_rows(old, "")]

    def fail(txn: Txn) -> None:
        txn.put("state", b"written", b"")
        raise StoreError("no")

    with open_store(old, writable=True) as opened:
        with pytest.raises(StoreError):
            opened.write(fail)
        with opened.read() as txn:
            assert not txn.has_digests
            assert txn.get("state", b"written") is None
        opened.write(lambda txn: txn.put("state", b"written", b""))
    assert has_digests(old)
    assert len(rows_of(old)) == len(raw) + 1


def test_rows_get_digests_in_parts_and_what_was_stopped_goes_on(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No transaction holds more than a part; behind a kill no row is written again."""
    before, part_bytes = rows_of(old), 4096
    _killed(old, _kills_in_parts(9))
    parts = []

    def take(rows: Iterator[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        parts.append(part := _take_part(rows))
        return part

    monkeypatch.setattr(environment, "_PART_BYTES", part_bytes)
    monkeypatch.setattr(environment, "_take_part", take)
    with open_store(old, writable=True) as opened:
        opened.add_digests()
    assert rows_of(old) == before
    assert has_digests(old)
    assert len(parts) > 5
    assert 0 < sum(map(len, parts)) < len(before)
    assert all(sum(len(key) + len(value) for key, value in part[:-1]) < part_bytes for part in parts)


def downgraded(path: Path) -> Path:
    """Take the digests of a store's rows away, as the program of format 1 would have written them."""
    with lmdb.open(str(path / "meta"), max_dbs=64, map_size=1 << 30) as env, env.begin(write=True) as txn:
        for name in [bytes(name) for name, _ in txn.cursor()]:
            new, old = name.removesuffix(b".crc32c"), env.open_db(name, txn=txn)
            database = env.open_db(new, txn=txn)
            for key, value in list(txn.cursor(db=old)):
                txn.put(key, value[:-4], db=database)
            txn.drop(old)
    file = path / "store.json"
    file.write_bytes(file.read_bytes().replace(b'"formatVersion": 2', b'"formatVersion": 1'))
    return path


@pytest.mark.parametrize("state", ["importing", "unindexed"])
def test_an_import_that_an_earlier_format_began_is_finished(state: str, tmp_path: Path, cli: Cli) -> None:
    path, source = tmp_path / "s", world("small") / "clean"
    words = ("--store", path, "store", "import", "standalone", source)
    assert cli(*words, "--no-index").exit_code == 0
    downgraded(path)
    if state == "importing":
        file = path / "store.json"
        file.write_bytes(file.read_bytes().replace(b'"unindexed"', b'"importing"'))
    else:
        assert cli("--store", path, "store", "export", "tables", tmp_path / "t", "--only", "topics").exit_code == 0
    with open_store(path, writable=True, unfinished=True) as opened:
        assert not opened.has_digests
    assert cli(*words).exit_code == 0
    assert has_digests(path)
    assert cli("--store", path, "store", "check").exit_code == 0
    listed, sound = (cli.on(one, "topics list public/default").stdout for one in (path, imported("small", "clean")))
    assert listed == sound


@pytest.mark.usefixtures("damages_stores")
def test_an_altered_key_above_derived_rows_is_cured_by_making_them_again(new: Path, tmp_path: Path, cli: Cli) -> None:
    """A back-up is named where rows are nowhere else; where others are made of others, the command that makes them."""
    copies = {}
    for _ in alter_branch_keys(new, 4):
        with suppress(IndexCorrupt):
            check_pages(new)
            continue
        answer = cli("--store", new, "store", "check")
        database = next(
            iter(re.findall(r"damaged: (\w+)\.crc32c, page \d+: its keys are not in order with", answer.stderr)), ""
        )
        if database and database not in copies:
            assert (answer.exit_code, "store index --rebuild" in answer.stderr) == (6, database in DERIVED)
            with pulsar_admin.open_store(
                new
            ) as opened:  # which verifies no page; commands do, unless another one writes
                assert "pages-damaged" in {one.code for one in opened.doctor()}
            copies[database] = shutil.copytree(new, tmp_path / f"copy-{database}")
    assert copies.keys() & {*DERIVED}
    for database in copies.keys() & {*DERIVED}:
        assert cli("--store", copies[database], "store", "index", "--rebuild").exit_code == 0
        assert not [row for row in cli.rows(copies[database], "store check") if row["code"] == "pages-damaged"]


def test_a_reader_that_is_open_sees_the_digests_come(old: Path) -> None:
    change = f"""
from pathlib import Path
from pulsar_admin.store.db.environment import open_store
with open_store(Path({str(old)!r}), writable=True) as opened:
    opened.write(lambda txn: txn.put("state", b"written", b"later"))
"""
    with open_store(old) as opened, opened.read() as first:
        before = {(name, key): bytes(value) for name in DATABASES for key, value in first.items(name)}
        subprocess.run([sys.executable, "-c", change], check=True)
        assert {(name, key): bytes(value) for name in DATABASES for key, value in first.items(name)} == before
        assert first.get("state", b"written") is None
        with opened.read() as second:
            assert second.has_digests
            assert second.get("state", b"written") == b"later"
        assert not first.has_digests


def test_a_back_up_of_before_comes_back(old: Path, cli: Cli) -> None:
    before = rows_of(old)
    with open_store(old, writable=True) as opened:
        backup = opened.back_up()
        opened.add_digests()
    shutil.move(old / "meta", old / "meta.damaged")
    shutil.copytree(backup, old / "meta")
    assert not has_digests(old)
    assert rows_of(old) == before
    assert cli("--store", old, *NOW, "store", "undo", "7", "-y").exit_code == 0
    assert has_digests(old)


def test_stores_of_two_formats_are_compared(old: Path, tmp_path: Path, cli: Cli) -> None:
    other = tmp_path / "other"
    shutil.copytree(old, other)
    in_store(other, lambda opened: opened.add_digests())
    assert cli("store", "diff", old, other, "-o", "json").json == []
    assert cli("--store", other, *NOW, "store", "undo", "4", "-y").exit_code == 0
    (row,) = cli("store", "diff", old, other, "-o", "json").json
    assert "public/default" in str(row)


def test_a_bundle_of_an_old_store_has_the_same_findings(old: Path, tmp_path: Path, cli: Cli) -> None:
    bundle, names = tmp_path / "bundle", tmp_path / "names.json"
    with open_store(old) as opened, opened.read() as txn:
        for log in iter_logs(txn):  # an archive has no nanoseconds
            os.utime(log.locate(old), ns=(log.mtime_ns, log.mtime_ns))
    made = cli("--store", old, *NOW, "store", "bundle", bundle, "--names", names)
    assert made.exit_code in (0, 1), made.stderr
    there = cli("--store", tmp_path / "there", *NOW, "store", "import", "bundle", bundle, "-o", "json")
    assert there.json["sameFindings"] is True
    assert has_digests(tmp_path / "there")
    assert not has_digests(old)


# -- kill -9 ----------------------------------------------------------------------------------------------------------


def _killed(path: Path, prepare: Callable[[pytest.MonkeyPatch], None]) -> None:
    """Make the first change of the store at PATH in a child that PREPARE makes kill itself."""
    child = os.fork()
    if not child:
        with pytest.MonkeyPatch.context() as patch:
            prepare(patch)
            write_rows(path, lambda txn: txn.put("state", b"written", b"later"))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == -9


def _kills(owner: object, name: str, calls: int = 1, *, before: bool) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setattr(owner, name, killing(getattr(owner, name), calls, before=before))


def _kills_in_parts(calls: int) -> Callable[[pytest.MonkeyPatch], None]:
    """Kill before the commit of a part of the rows, of parts of a KiB."""

    def prepare(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(environment, "_PART_BYTES", 1024)
        _kills(environment, "_take_part", calls, before=True)(patch)

    return prepare


KILLS = {
    "between rows": (_kills(environment, "sealed", 100, before=True), False),
    "in the last part": (_kills_in_parts(9), False),
    "after store.json": (_kills(Store, "update_info", before=False), False),
    "after the commit": (_kills(CommitRecord, "put", 2, before=True), True),
}
"""Where the first change of an old store is killed, and whether it is there then."""


@pytest.mark.parametrize("when", KILLS)
def test_a_kill_leaves_the_old_rows_or_the_new_ones(when: str, old: Path) -> None:
    prepare, is_done = KILLS[when]
    before = rows_of(old)
    _killed(old, prepare)
    after = rows_of(old)
    assert has_digests(old) is is_done
    assert after == (before | {("state", b"written"): b"later"} if is_done else before)
    assert_sound(old)
    write_rows(old, lambda txn: txn.put("state", b"written", b"last"))
    assert rows_of(old) == before | {("state", b"written"): b"last"}


@pytest.mark.usefixtures("damages_stores")
@pytest.mark.parametrize("key", [b"bookies", b"index-states", b"journal-marks", b"misled-bookies", b"as-of"])
def test_a_row_of_the_state_that_is_no_such_row_is_told(key: bytes, tmp_path: Path, cli: Cli) -> None:
    """As a bit makes it that turns where rows have no digests: what is read of it, or that it is damaged; never an end of the program."""
    path = narrow_copy(tmp_path)
    whole = read_rows(path, lambda txn: txn.get("state", key) or b'["bookie-1:3181"]')
    readers = (
        find_absent_bookies,
        find_unknown_bookies,
        read_journal_marks,
        read_index_states,
        read_misled_bookies,
        find_as_of,
    )
    draw, told = Random(7), 0
    cases = [b"", b"[]", b"{}", b"null", b'{"imported": 1, "absent": []}', b'{"a": 1}', b'{"a": [1]}']
    cases += [whole[:-1], whole[1:]]
    cases += [_turned(whole, draw.randrange(len(whole)), bit % 8) for bit in range(40)]
    for case in cases:
        write_rows(path, lambda txn, case=case: txn.put("state", key, case))
        for read in readers:
            with open_store(path) as opened, opened.read() as txn:
                try:
                    read(txn)
                except IndexCorrupt as error:
                    told += 1
                    assert error.hint.startswith(f"keep {path}")  # noqa: PT017
    assert told >= 5
    write_rows(path, lambda txn: txn.put("state", key, b'{"imported": 1}'))
    for words in ("store check", "doctor", "overview", "store refresh", "topics list public/default"):
        assert cli("--store", path, *words.split()).exit_code in (0, 1, 6)


@pytest.mark.usefixtures("damages_stores")
@pytest.mark.parametrize("row", [b"{}", b'{"bookie-1:3181": 1}', b'"bookie-1"'])
def test_misled_bookies_are_a_list(row: bytes, tmp_path: Path) -> None:
    path = narrow_copy(tmp_path)
    write_rows(path, lambda txn: txn.put("state", b"misled-bookies", row))
    with open_store(path) as opened, opened.read() as txn, pytest.raises(IndexCorrupt, match="misled bookies"):
        read_misled_bookies(txn)


@pytest.mark.usefixtures("damages_stores")
def test_a_catalogue_row_without_one_of_its_counts_is_damaged(tmp_path: Path) -> None:
    """Not a log of 0 records, or one that was never torn."""
    path = narrow_copy(tmp_path)
    with open_store(path) as opened, opened.read() as txn:
        [(key, row), *_] = txn.items("logs")
        fields = json.loads(bytes(row))
    for name in ("next_offset", "records", "problems", "torn", "sealed"):
        lacking = json.dumps({one: fields[one] for one in fields if one != name}).encode()
        write_rows(path, lambda txn, key=key, lacking=lacking: txn.put("logs", key, lacking))
        with open_store(path) as opened, opened.read() as txn, pytest.raises(IndexCorrupt, match=name):
            list(iter_logs(txn))


@pytest.mark.usefixtures("damages_stores")
def test_a_list_in_place_of_placed_ledgers_is_damaged(tmp_path: Path) -> None:
    path = narrow_copy(tmp_path)
    write_rows(path, lambda txn: txn.put("state", b"placed-ledgers", b"[]"))
    with open_store(path) as opened, opened.read() as txn, pytest.raises(IndexCorrupt, match="ledgers put on bookies"):
        find_placed(txn)


@pytest.mark.usefixtures("damages_stores")
def test_every_bit_of_a_row_counts(tmp_path: Path) -> None:
    path = narrow_copy(tmp_path)
    row = next(row for row in raw_rows(path) if row.database == "times")
    for place, bit in product(range(len(row.value)), range(8)):
        alter(path, row, place, bit)
        with open_store(path) as opened, pytest.raises(IndexCorrupt), opened.read() as txn:
            txn.get("times", row.key)
        alter(path, row._replace(value=_turned(row.value, place, bit)), place, bit)
    assert read_rows(path, lambda txn: txn.get("times", row.key)) == row.value[:-4]


def _turned(value: bytes, place: int, bit: int) -> bytes:
    return value[:place] + bytes([value[place] ^ 1 << bit]) + value[place + 1 :]


def test_a_view_with_other_rows_answers_as_a_store_that_has_them(tmp_path: Path, damages_stores: None) -> None:
    path = narrow_copy(tmp_path)

    def ask(txn: Txn, keys: list[bytes]) -> list[object]:
        found: list[object] = [
            txn.some("tree", keys),
            [txn.get("tree", key) for key in keys],
            txn.get("state", keys[0]),
        ]
        for database in ("tree", "state", "entries"):
            found += [txn.count(database), txn.last(database), [*txn.items(database)]]
        for key in keys:
            for prefix in (key[: end + 1] for end in range(len(key)) if key[end] == b"/"[0]):
                found += [[*txn.items("tree", prefix, key)], txn.last("tree", prefix)]
                found += [[*txn.parts("tree", prefix, start, limit)] for start in (prefix, key) for limit in (400, 30)]
        return found

    with open_store(path, writable=True) as store:
        with store.read() as txn:
            keys = [*txn.keys("tree", b"/")][::7]
            endings = cycle((b"-1", b"/a", b"/a/b", b"", b"0"))
            rows: dict[bytes, bytes | None] = {key + next(endings): b"new" for key in keys}
            rows |= dict.fromkeys([*keys[5::4], keys[-1]])
            keys = sorted({*keys, *rows})
            viewed = ask(txn.with_rows("tree", rows), keys)

        def change(txn: Txn) -> list[object]:
            for key, value in rows.items():
                if value is None:
                    txn.delete("tree", key)
                else:
                    txn.put("tree", key, value)
            return ask(txn, keys)

        assert viewed == store.write(change)


DEV_NULL = os.open(os.devnull, os.O_RDONLY)


def _sealed_row(*fields: Any) -> dict[str, bytes]:
    return {"key": b"k", "value": _sealed(b"k", *fields)}


AT_BOUNDS: Answers = {
    locks.is_written_now: [((Path("none"),), False)],
    tree.iter_children_and_keys: [((N(parts=lambda *of: [(b"\xff", b"k\xff"), (b"b", b"kb")]), "/t"), [("b", b"kb")])],
    nacks.check_precision_bits: [((0,), 0), ((62,), 62), ((63,), InvalidValue), ((-1,), InvalidValue)],
    delayed_rules.parse_width_ms: [(("1ms",), 1), (("0ms",), InvalidValue), ((f"{LONG}ms",), LONG),
        ((f"{LONG + 1}ms",), InvalidValue)],
    nacks.check_delay: [((0,), 0), ((LONG,), LONG), ((LONG + 1,), InvalidValue), ((-1,), InvalidValue)],
    nacks.due_time: [((0, LONG), LONG), ((1, LONG), InvalidValue), ((0, 0), 0)],
    blocks.LedgerSums.begin_publish_ms: [
        ((N(publish_min_ms=least, publish_max_ms=5),), answer) for least, answer in ((5, 5), (6, None))],
    blocks.LedgerSums.end_publish_ms: [
        ((N(publish_min_ms=least, publish_max_ms=5),), answer) for least, answer in ((5, 5), (6, None))],
    blocks.ledger_of_key: [((bytes(8),), 0), ((bytes(7),), IndexCorrupt)],
    clocks.first_candidate: [
        ((N(sums=N(first_block=3, broker_max_ms=5), blocks=2, publish_max=[1, 5], auto_max=[1, 5]), time_ms, clock),
            answer) for time_ms, clock, answer in ((5, "publish", 4), (6, "publish", None), (5, "broker", 3))],
    delayed_rules.check_rules: [
        ((N(granularity_ms=granularity_ms, tick_ms=tick_ms, slots=slots),), answer)
        for granularity_ms, tick_ms, slots, answer in ((1, 1, 1 << 20, None), (2, 0, 1, InvalidValue), (1, 2, 1, InvalidValue),
            (1, 1, (1 << 20) + 1, InvalidValue))],
    delayed_rules.check_growth: [
        ({"before": N(granularity_ms=5), "after": N(granularity_ms=after), "split": False}, None if after == 5 else Refused)
        for after in (4, 5)],
    file._newest: [
        (((N(transaction=5, page=0), N(transaction=other, page=1)),), N(transaction=max(5, other), page=int(other > 5)))
        for other in (5, 6)],
    file._Walk._mark: [
        ((N(_seen=[0, 0, 0], _pages=3), page), None if page == 2 else IndexCorrupt) for page in (1, 2, 3)],
    own_ledgers.sequence_after_export: [
        ((N(first_id=5, next_id=9), number, "x"), StalePlan if number == 6 else 9) for number in (5, 6, 9)],
    tree.tree_key: [(("x" * 500,), b"x" * 500),
        (("x" * 65_535,), b"x" * 400 + b"\xff" + sha256(b"x" * 65_535).digest()), (("x" * 65_536,), InvalidValue)],
    rows.side_by_side: [
        ((iter([(b"a", b"1"), (b"b", b"2")]), iter([(b"a", b"3"), (b"c", b"4")])),
         [(b"a", b"1", b"3"), (b"b", b"2", None), (b"c", None, b"4")])],
    delayed_entries._read_packed: [((b"", (0, 1, 1, 0), "x"), EntryCorrupt), ((b"\0", (0, 1, 1, 63), "x"), EntryCorrupt)],
    rows.name_of_row: [
        (("entries", struct.pack(">qq", 7, 2)), "(ledger 7, block 2)"), (("times", bytes(7)), "00" * 7),
        (("tree", b"/a\xff"), r"'/a\\xff'")],
    entry_files.path_state: [((None, Path("/nowhere")), FileState.MISSING), ((None, Path("/")), FileState.UNREADABLE)],
}  # fmt: skip
REFUSED: Texts = {
    delayed_entries._read_roaring: [((b"\0\0\1x", 1, "d"), "no RoaringBitmap")],
    file._check_metas: [
        (((N(transaction=2), N(transaction=0)), None), "one of its meta pages went back"),
        (((N(transaction=2, raw=b"a"), N(transaction=1, raw=b"b")),
        N(transaction=2, meta="62", change=1)), "is not the one that was committed")],
    nacks.bucket_of_key: [((BUCKET + bytes(ID_SIZE_BYTES) + b"\xff" * 16,), "beyond 63 bits")],
    nacks.bucket_row_entries: [((b"k", b""), "0 bytes")],
    nacks.decode_tracker_row: [(_sealed_row((0, 2, 0), b"\xff\xfe"), "6b is damaged: 'utf-8' codec"),
        (_sealed_row((0, 3, 0), b"ab"), "do not fit its key")],
    audit_log._decode_change: [((b"k", b"x"), "the audit record 6b is damaged")],
    audit_log._link_of: [((1, row), "the audit record of change 1 is damaged") for row in (b"x", compress(b"x"))],
    audit_log._step_of: [((["x", "YQ==", None, None],), "in no database: 'x'")],
    copies.decode_row: [((database, key, b"x"), f"the row {key.hex()} of {database} is damaged")
        for database, key in (("copies", b"x"), ("state", bytes(12)))],
    files.iter_damage: [((N(items=lambda *of: [(b"k", b"x")]),), "the damage row 6b is damaged")],
    ledger_ids.find_deleted: [((N(get=lambda *of, row=row: row),), "damaged") for row in (b"x", b"[true]")],
    owners.decode_owners: [((1, b"x"), "the owners row of ledger 1 is damaged")],
    tree._encoded: [(("\ud800",), "is not Unicode")],
    export_intent.find_intent: [((N(get=lambda *of: b"x"),), "what an export meant to write is damaged")],
    blocks.block_of_key: [((b"x",), "a key of 1 bytes: 78")],
    file._decode_meta: [((lmdb_file._PAGE_HEADER.pack(0, 0, 8, 0, 0) + lmdb_file._META_HEAD.pack(0xBEEFC0DE, 1, 0, 0)
        + lmdb_file._DATABASE.pack(7, *[0] * 7) + bytes(64), 0), "page 0: a page size of 7 bytes")],
    file._Walk.run: [((N(_meta=N(free=0, main=0, transaction=2), _rows=lambda *_, rows=rows: rows, _mark=id, _seen=""),), said)
        for rows, said in (([(bytes(8), b"x")], "a key of 8 and a value of 1 bytes"), ([(b"\3" + bytes(7), bytes(8))],
        "newest free pages are of transaction 3, its state is of 2"), ([(bytes(8), struct.pack("<QQ", 5, 3))],
        "a row of 1 free pages claims 5"))] + [
        ((N(_meta=N(free=0, main=1, transaction=0), _rows=lambda name, _: [(b"x", b"y")] if name == "databases" else []),),
        "the database 'x' is described in 1 bytes")],
    environment.Store.write: [((N(writable=False, path="p"), None), "p was opened for reading")],
    entry_files.EntryFiles.read: [
        ((N(_opened=lambda _: (-1, N(path="p"))), 0, 16, 4), "p @ 0x10: the disk cannot read it: Bad file descriptor"),
        ((None, 0, 16, 2**31), "the index claims a record of 2147483648 bytes")],
    blocks.Block: [((bytes(16), bytes(3)), "block 0 of ledger 0 is damaged: 3 bytes"),
        ((bytes(16), BLOCK_HEADER.pack(2, *[0] * 13, BLOCK_ENTRIES - 1) + bytes(16)), f"slots {BLOCK_ENTRIES - 1} to")],
    file._Walk._rows: [({"self": N(_meta=N(free=None)), "name": "x", "database": (0, 0, 0, 0, 0, 0, 5, 2**64 - 1)},
        "x: no root, and 5 rows"),
        ((N(_meta=N(free=None), _mark=id, _read=id, _read_page=lambda *_, **__: ([], [])), "x", (0, 0, 1, 0, 0, 0, 7, 5)),
        "x: expected 0 branch pages, 0 leaf pages and 7 rows, found 0, 1 and 0"),
        ((N(_meta=N(free=None), _mark=id, _read=id, _read_page=lambda *_, **__: ([(6, b"")], [])), "x", (0, 0, 1, 0, 0, 0, 0, 5)),
        "x, page 5: deeper than 1 levels")],
    file._Walk._read: [((N(_page_bytes=64, _descriptor=DEV_NULL), 7), "it ends in page 7")],
    file._Walk._overflow: [({"self": N(_pages=3, _page_bytes=64), "name": "x", "data": struct.pack("<Q", 9), "size_bytes": 1,
        "read": True},
        "x: a value lies in page 9, the file has 3 pages")],
    file._Walk._read_page: [({"self": N(_page_bytes=64), "name": "x", "page": struct.pack("<QHHHHH", 1, 0, 2, 18, 40,
        40).ljust(40, b"\0")
        + struct.pack("<HHHH", size, 0, flags, 1).ljust(24, b"\0"), "number": 1, "is_leaf": True}, said) for size, flags, said in (
        (0, 8, "x, page 1: a row with flags 0x8 and a key of 1 bytes"), (100, 0, "x, page 1: a row that ends at 149"))],
    nacks.decode_bucket_row: [(_sealed_row((0, 0, 1), b"x"), "6b is damaged: "),
        (_sealed_row((0, 0, 2), BitMap64([1]).serialize()), "1 entries, 2 expected")],
}  # fmt: skip
test_at_bounds = asking(AT_BOUNDS, refused=REFUSED)
