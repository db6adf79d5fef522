"""Packages that brokers of 4.0.8 and 5.0.1 kept in BookKeeper against what the real pulsar-admin said of them."""

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pulsar_admin.store.codec.ledgermetadata import closed_ledger, encode_ledger_metadata, ledger_path
from pulsar_admin.store.codec.packages import decode_log_segment, decode_package_metadata, iter_records
from pulsar_admin.store.db.blocks import ledger_key
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.db.tree import read_node
from pulsar_admin.store.errors import EntryCorrupt, MetadataCorrupt, Unsupported
from pulsar_admin.store.model.reader import open_reader
from tests.conftest import Cli
from tests.stores import imported_cluster, lose_nodes, put_node, read_rows, write_rows
from tests.worlds import oracle

SAID: dict[str, Any] = oracle("packages")  # Any: JSON
LARGE = "/pulsar/packages/function/public/default/large"
LEDGERS = {"4.0.8": 5, "5.0.1": 18}
"""Of the package ``large``, by its version: as ZooKeeper's nodes say."""


def asked(*commands: str) -> list[str]:
    return [words for words in SAID if words.startswith(tuple(f"packages {name} " for name in commands))]


@pytest.mark.parametrize("words", asked("list", "list-versions", "get-metadata"))
def test_it_says_what_pulsar_admin_said(words: str, cli: Cli) -> None:
    """ZooKeeper lists children in no order; a live one takes a name of a type that there is not and answers 500."""
    exit_code, text, error = SAID[words]
    found = cli("--store", imported_cluster("packages"), *words.split())
    if words.split()[1].startswith("list"):
        assert sorted(found.stdout.splitlines()) == sorted(text.splitlines())
    else:
        assert found.stdout == text
    assert (found.exit_code == 0) is (exit_code == 0)
    if exit_code and "widget" not in words:
        assert error in found.stderr


@pytest.mark.parametrize("package", [words.removeprefix("sha1 ") for words in SAID if words.startswith("sha1 ")])
def test_a_download_is_the_package(package: str, cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "package"
    words = ("packages", "download", package, "--path", path)
    done = cli("--store", imported_cluster("packages"), *words)
    assert done.stdout == f"The package '{package}' downloaded to path '{path}' successfully\n"
    assert hashlib.sha1(path.read_bytes()).hexdigest() == SAID[f"sha1 {package}"]
    assert cli("--store", imported_cluster("packages"), *words).exit_code == 3  # it is there


def test_what_is_not_there_is_no_file(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "package"
    words = ("packages", "download", "function://public/default/nothing@1", "--path", path)
    assert (cli("--store", imported_cluster("packages"), *words).exit_code, path.exists()) == (5, False)
    cli.on(imported_cluster("packages"), "packages delete function://public/default/large@1").ends(7, "packages list")


def test_their_ledgers_are_theirs_and_no_tree_is_unknown(cli: Cli) -> None:
    """What deleted packages and replaced descriptions leave is nobody's: DistributedLog deletes nodes alone."""
    path = imported_cluster("packages")
    rows = cli("--store", path, "ledgers", "list", "-o", "jsonl").json_lines
    owners = {row["ledgerId"]: [(one["kind"], one["topic"]) for one in row["owners"]] for row in rows}
    assert {version: owners[ledger] for version, ledger in LEDGERS.items()} == {
        version: [("package", f"{LARGE}/{version}")] for version in LEDGERS
    }
    assert sorted(one for one, some in owners.items() if not some) == [0, 2, 3, 13, 15, 16]
    assert cli("--store", path, "store", "info", "-o", "json").json["unknownTrees"] == []
    accepted = ("--accept-unknown-tree", "/managed-ledgers", "--dry-run")  # no topic was made
    for words in (("delete", "5", "--force"), ("forget", "5", "--force")):
        cli("--store", path, "ledgers", *words, *accepted).ends(3, f"{LARGE}/4.0.8")
    assert cli("--store", path, "ledgers", "delete", "0", "--force", *accepted).exit_code == 0


@pytest.mark.usefixtures("damages_stores")
def test_rows_of_an_earlier_version_do_not_protect_them_alone(cli: Cli, tmp_path: Path) -> None:
    path = Path(shutil.copytree(imported_cluster("packages"), tmp_path / "store"))
    write_rows(path, lambda txn: txn.delete("owners", ledger_key(5)))
    said = cli.on(path, "ledgers delete 5 --force --yes --accept-unknown-tree /managed-ledgers")
    assert (said.exit_code, f"ledger 5 is referenced: package {LARGE}/4.0.8" in said.stderr) == (3, True), said.stderr


def test_a_bundle_has_them_without_their_names(cli: Cli, tmp_path: Path) -> None:
    path, there = imported_cluster("packages"), tmp_path / "there"
    assert cli("--store", path, "store", "bundle", tmp_path / "b", "--names", tmp_path / "names.json").exit_code == 0
    assert cli("--store", there, "store", "import", "bundle", tmp_path / "b", "-o", "json").json["sameFindings"] is True
    kinds = [
        {row["ledgerId"]: [one["kind"] for one in row["owners"]] for row in cli.rows(one, "ledgers list")}
        for one in (path, there)
    ]
    assert kinds[0] == kinds[1]
    assert not {"large", "small", "empty"} & {*re.split("[/ ]", cli("--store", there, "ledgers", "list").stdout)}


def test_a_damaged_segment_and_a_newer_one_are_told(cli: Cli, tmp_path: Path) -> None:
    path = Path(shutil.copytree(imported_cluster("packages"), tmp_path / "store"))
    where = f"{LARGE}/4.0.8/<default>/ledgers/logrecs_000000000000000001"
    for value, code in ((b"5;x", "value-undecodable"), (b"6;5;1;2;3;1;0;0;0;0;0", "unknown-value")):
        put_node(path, where, value)
        found = {row["code"]: row["where"] for row in cli("--store", path, "doctor", "-o", "jsonl").json_lines}
        assert found[code] == where


def test_a_lost_ledger_of_a_package_is_told_and_not_restored(cli: Cli, tmp_path: Path) -> None:
    """What brokers wrote in its metadata is in no entry."""
    path = Path(shutil.copytree(imported_cluster("packages"), tmp_path / "store"))
    for damage, code in (
        (lambda: put_node(path, ledger_path(11), b"\xff"), "value-undecodable"),
        (lambda: lose_nodes(path, ledger_path(11)), "newer-ledger-missing"),
    ):
        damage()
        (found,) = (row for row in cli("--store", path, "doctor", "-o", "jsonl").json_lines if row["code"] == code)
        assert "restore" not in found["mend"]
        missing = cli.on(path, "ledgers missing")
        assert "a package can be uploaded again" in missing.stderr
        assert "pulsar-admin store ls /pulsar/packages/sink" in missing.stderr
        cli.on(path, "ledgers restore 11").ends(3, "upload the package again")


@pytest.mark.parametrize("node", ["/pulsar/packages-tail", "/pulsar/migration-coordinator/tail"])
def test_what_a_later_pulsar_adds_is_an_unknown_tree(node: str, cli: Cli, tmp_path: Path) -> None:
    path = Path(shutil.copytree(imported_cluster("packages"), tmp_path / "store"))
    put_node(path, node, b"1")
    assert [row["path"] for row in cli.json(path, "store info")["unknownTrees"]] == ["/pulsar"]
    cli("--store", path, "ledgers", "delete", "0", "--force", "--dry-run").ends(3, "--accept-unknown-tree /pulsar")


@pytest.mark.parametrize(
    ("value", "exit_code"),
    [
        (b"5;5;1;2;3;2;0;0;0;0;0", 5),
        (b"", 6),
        (b"5;x", 6),
        (b"\xff", 6),
        (b"6;5;1;2;3;1;0;0;0;0;0", 7),
        (b"5;999;1;2;3;1;0;0;0;0;0", 5),
    ],
)
def test_a_damaged_segment_says_so(value: bytes, exit_code: int, cli: Cli, tmp_path: Path) -> None:
    path = Path(shutil.copytree(imported_cluster("packages"), tmp_path / "store"))
    put_node(path, f"{LARGE}/4.0.8/<default>/ledgers/logrecs_000000000000000001", value)
    target = tmp_path / "package"
    found = cli("--store", path, "packages", "download", "function://public/default/large@4.0.8", "--path", target)
    assert (found.exit_code, target.exists()) == (exit_code, False)
    assert "Traceback" not in found.stderr


def test_a_package_without_the_entries_of_its_first_part_is_no_package(cli: Cli, tmp_path: Path) -> None:
    path = Path(shutil.copytree(imported_cluster("packages"), tmp_path / "store"))
    where = f"{LARGE}/4.0.8/<default>/ledgers/logrecs_00000000000000000"
    segment = read_rows(path, lambda txn: read_node(txn, f"{where}1").value).split(b";")
    for number, ledger in ((1, b"999"), (2, segment[1])):
        put_node(path, f"{where}{number}", b";".join([segment[0], ledger, *segment[2:5], b"%d" % number, *segment[6:]]))
    put_node(path, ledger_path(999), encode_ledger_metadata(closed_ledger("b:1", 0, 0, {})))
    words = ("packages", "download", "function://public/default/large@4.0.8", "--path", tmp_path / "package")
    cli("--store", path, *words).ends(5, "ledger 999 of ")


@pytest.mark.parametrize("field", [b"q\0~\0\2", b"r\0\1Z" + bytes(9) + b"\0\0xp", b"x", b"w\3abc"])
def test_a_description_is_texts_and_numbers(field: bytes) -> None:
    """Java objects whose field is the object itself, a class, an end and bytes: nothing that JSON could not have."""
    data = b"\xac\xed\0\5sr\0\1A" + bytes(8) + b"\2\0\1L\0\x0bdescriptiont\0\1Xxp" + field
    with pytest.raises(EntryCorrupt):
        decode_package_metadata(data, "test")
    assert decode_package_metadata(data[: -len(field)] + b"t\0\2hi", "test") == {"description": "hi"}


def test_damaged_bytes_are_errors_of_ours() -> None:
    """Every cut of what the brokers wrote, and every byte of it changed: an answer, or one of the errors that callers expect."""
    with open_store(imported_cluster("packages")) as store, open_reader(store) as reader:
        entries = [bytes(reader.read(ledger, 0).payload) for ledger in (1, 4, 17)]
    texts = [b"".join(filter(None, iter_records(entry, "test"))) for entry in entries]
    forms = [decode_package_metadata(text, "test") for text in texts if text[:1] in (b"{", b"\xac")]
    assert {text[:1] for text in texts} >= {b"{", b"\xac"}
    assert {form["contact"] for form in forms} == {"ops"}
    decoders: tuple[tuple[bytes, Callable[[bytes], object]], ...] = (
        *((entry, lambda some: [*iter_records(some, "test")]) for entry in entries),
        *((text, lambda some: decode_package_metadata(some, "test")) for text in texts),
        (b"4294967301;8;385;1;1795874819329;1;2;0;0;0;0", lambda some: decode_log_segment(some, "test").check("test")),
    )
    for data, decode in decoders:
        for at in range(len(data)):
            for changed in (data[:at], data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]):
                with suppress(EntryCorrupt, MetadataCorrupt, Unsupported):
                    json.dumps(decode(changed), default=repr)
