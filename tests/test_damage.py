"""Damage anywhere: our own rows, ``store.json``, the metadata store's files, values, plans. One clear message, never a traceback."""

import random
import shutil
import zlib
from functools import cache
from itertools import product
from pathlib import Path

import pytest
import rocksdict

from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.db.tree import decode_node, tree_key
from pulsar_admin.store.errors import IndexCorrupt, MetadataCorrupt
from pulsar_admin.store.transfer.imports import ImportOptions
from tests.conftest import Cli
from tests.deep import deep_but_for
from tests.stores import copied, import_standalone, imported, narrow_copy, put_node, read_rows, write_rows
from tests.worlds import assert_unchanged, copy_tree, scratch_copy

COMMANDS: tuple[tuple[str, ...], ...] = (
    ("store", "info"),
    ("store", "check"),
    ("store", "ls", "-l", "/managed-ledgers/public/default/persistent"),
    ("store", "cat", "/managed-ledgers/public/default/persistent/plain/half"),
    ("store", "owner", "9"),
    ("store", "log"),
    ("ledgers", "list"),
    ("ledgers", "info", "9"),
    ("ledgers", "entries", "9"),
    ("ledgers", "orphans"),
    ("ledgers", "missing"),
    ("ledgers", "verify"),
    ("topics", "stats-internal", "public/default/plain"),
    ("topics", "find-by-time", "public/default/plain", "--time", "@1795089900000"),
)
KNOWN_CODES = {0, 1, 5, 6, 7, 8}


def assert_clear(cli: Cli, *arguments: object) -> int:
    """Run a command line: whatever it meets, it says so in a message (a bug fails in the fixture) and a known exit code."""
    answer = cli(*arguments)
    assert answer.exit_code in KNOWN_CODES, (arguments, answer.stderr)
    assert "Traceback" not in answer.stderr
    if answer.exit_code > 1 and answer.exit_code != 5:
        assert answer.stderr.startswith(("error: ", "warning: ")), answer.stderr
    return answer.exit_code


# -- our own rows -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("database", ["tree", "logs", "entries", "times", "owners"])
def test_a_bit_flipped_in_our_rows(database: str, tmp_path: Path, cli: Cli, damages_stores: None) -> None:
    path = copied("small", "clean", tmp_path) if database == "tree" else narrow_copy(tmp_path)
    random_ = random.Random(database)
    rows = read_rows(path, lambda txn: [(key, bytes(value)) for key, value in txn.items(database) if len(value)])
    for key, value in random_.sample(rows, min(len(rows), 4)):
        damaged = bytearray(value)
        damaged[random_.randrange(len(value))] ^= 1 << random_.randrange(8)
        _put(path, database, key, bytes(damaged))
        for arguments in random_.sample(COMMANDS, 5):
            assert_clear(cli, "--store", path, *arguments)
        if database in ("entries", "times"):
            assert assert_clear(cli, "--store", path, "store", "check", "--deep") == 1
        _put(path, database, key, value)
    assert cli("--store", path, "store", "check", "--deep").exit_code == 0


_ROWS = ((None, b""), (None, b"[]"), (None, b"\xff" * 40), (b"x", bytes(100)), (b"/\xff\xfe", bytes(100)))
_DATABASES = ("tree", "logs", "entries", "times", "owners", "changes", "damage")


@deep_but_for(
    (0, 1, 2, 4, 5, 8, 11, 14, 17, 20, 28, 29, 30, 31, 32, 34),
    ("key", "row", "database"),
    [(key, row, database) for key, row in _ROWS for database in _DATABASES],
    ids=str,
)
@pytest.mark.usefixtures("damages_stores")
def test_rubbish_in_our_rows(database: str, key: bytes | None, row: bytes, tmp_path: Path, cli: Cli) -> None:
    path = narrow_copy(tmp_path)
    first, _ = read_rows(path, lambda txn: next(txn.items(database), (bytes(12 if database == "damage" else 8), b"")))
    _put(path, database, key or first, row)
    for arguments in COMMANDS:
        assert_clear(cli, "--store", path, *arguments)


def _put(path: Path, database: str, key: bytes, value: bytes) -> None:
    write_rows(path, lambda txn: txn.put(database, key, value))


def test_rebuilding_heals_the_index(tmp_path: Path, cli: Cli, damages_stores: None) -> None:
    path = copied("small", "crashed", tmp_path)
    with open_store(path, writable=True) as store:
        with store.read() as txn:
            before = {name: [(key, bytes(value)) for key, value in txn.items(name)] for name in ("entries", "times")}
        random_ = random.Random(5)
        for name, rows in before.items():
            for key, value in random_.sample(rows, 30):
                damaged = random_.choice([b"", value[:-1], random_.randbytes(len(value))])
                store.write(lambda txn, name=name, key=key, damaged=damaged: txn.put(name, key, damaged))
        store.write(lambda txn: txn.delete("entries", before["entries"][0][0]))
    assert cli("--store", path, "store", "check").exit_code == 1
    compared = cli("--store", path, "store", "index", "-o", "json").ends(1)
    assert compared.json["changedRows"] > 50
    assert cli.json(path, "store index --rebuild")["changedRows"] == compared.json["changedRows"]
    with open_store(path) as store, store.read() as txn:
        assert {name: [(key, bytes(value)) for key, value in txn.items(name)] for name in before} == before
    assert cli("--store", path, "store", "check", "--deep").exit_code == 0


_STORE_JSON = '{"formatVersion": %s, "created": 1, "state": "%s", "sources": %s}'
_NO_FORMAT = "formatVersion is %s, expected a whole number from 1 to 2"


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        *((text, 6, "put a copy of store.json in place") for text in ("", "{", '{"x', "[]", "{}", "\x00\xff")),
        ('{"formatVersion": 1}', 6, "store.json"),
        (_STORE_JSON % (3, "ready", "[]"), 7, "format 3"),
        (_STORE_JSON % (99, "ready", "[]"), 7, "up to 2"),
        *((_STORE_JSON % (value, "ready", "[]"), 6, _NO_FORMAT % value) for value in ("0", "2.5", '"x"', "true")),
        (_STORE_JSON % (1, "ready", "7"), 6, "store.json"),
        (_STORE_JSON % (1, "importing", "[]"), 3, "did not run to its end"),
    ],
)
def test_store_json(text: str, code: int, words: str, tmp_path: Path, cli: Cli, damages_stores: None) -> None:
    path = narrow_copy(tmp_path)
    (path / "store.json").write_bytes(text.encode("latin-1"))
    for arguments in (("store", "info"), ("topics", "stats", "public/default/plain"), ("store", "undo", "1")):
        answer = cli("--store", path, *arguments)
        assert answer.exit_code == code, answer.stderr
        assert answer.stderr.startswith("error: ")
        assert "hint: " in answer.stderr
        assert words in answer.stderr


@pytest.mark.parametrize("missing", ["meta", "meta/data.mdb"])
def test_half_a_store(missing: str, tmp_path: Path, cli: Cli, damages_stores: None) -> None:
    path = narrow_copy(tmp_path)
    shutil.move(path / missing, tmp_path / "away")
    cli("--store", path, "store", "info").ends(6, "hint: ")


@pytest.mark.parametrize("name", ["nothing", "directory", "file"])
def test_no_store(name: str, tmp_path: Path, cli: Cli) -> None:
    path = tmp_path / "s"
    if name == "directory":
        path.mkdir()
    elif name == "file":
        path.write_text("x")
    answer = cli("--store", path, "store", "info", "-o", "json").fails(5, "store-not-found")
    assert "store import standalone" in answer.error["hint"]
    assert not (path / "meta").exists()


def test_rubbish_instead_of_a_database(tmp_path: Path, cli: Cli, damages_stores: None) -> None:
    path = narrow_copy(tmp_path)
    for data in (b"", b"x", bytes(8192), random.Random(1).randbytes(20_000)):
        (path / "meta" / "data.mdb").write_bytes(data)
        cli("--store", path, "store", "info").ends(6, "hint: keep ")


# -- the metadata store -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def with_table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recorded data directory whose metadata lies in a table file instead of the write-ahead log."""
    source = scratch_copy("small", "clean", tmp_path_factory.mktemp("table"))
    database = rocksdict.Rdict(str(source / "metadata"), rocksdict.Options(raw_mode=True))
    database.flush()
    database.close()
    (source / "metadata" / "rocksdict-config.json").unlink()
    return source


def test_damaged_tables_are_never_taken_for_fewer_nodes(with_table: Path, tmp_path: Path, cli: Cli) -> None:
    (table,) = (with_table / "metadata").glob("*.sst")
    random_, data = random.Random(3), table.read_bytes()
    for number in range(8):
        source = tmp_path / f"source{number}"
        source.mkdir()
        copy_tree(with_table / "metadata", source / "metadata")
        (source / "bookkeeper").symlink_to(with_table / "bookkeeper")
        at = random_.randrange(len(data))
        damaged = bytearray(data)
        damaged[at] ^= 1 << random_.randrange(8)
        (source / "metadata" / table.name).write_bytes(damaged if number % 2 else data[:at])
        answer = cli("--store", tmp_path / f"s{number}", "store", "import", "standalone", source, "-o", "json")
        if answer.exit_code == 0:  # bytes that nobody reads
            assert answer.json["nodes"] == 245
        elif answer.exit_code == 1:
            assert_told_as_incomplete(tmp_path / f"s{number}", cli)
        else:
            assert (answer.exit_code, answer.error["code"]) == (6, "metadata-corrupt")
            assert "RocksDB cannot read it" in answer.error["message"]


def assert_told_as_incomplete(store: Path, cli: Cli) -> None:
    """What was read of damaged metadata is marked, and nothing that judges by what is absent goes by it."""
    found = cli("--store", store, "store", "check", "-o", "json")
    assert "metadata-incomplete" in {row["code"] for row in found.json if row["severity"] == "problem"}
    assert cli("--store", store, "ledgers", "delete", "17", "--dry-run").exit_code == 3


def test_a_missing_table_is_named(with_table: Path, tmp_path: Path) -> None:
    copy_tree(with_table, tmp_path / "source")
    (table,) = (tmp_path / "source" / "metadata").glob("*.sst")
    table.unlink()
    with pytest.raises(MetadataCorrupt, match=table.name):
        import_standalone(tmp_path / "source", tmp_path / "s", ImportOptions(now_ms=1), lambda count: None)


@pytest.mark.parametrize("name", ["MANIFEST-000005", "CURRENT"])
def test_damaged_lists_of_files(name: str, tmp_path: Path, cli: Cli) -> None:
    random_ = random.Random(name)
    source = scratch_copy("small", "clean", tmp_path)
    data = (source / "metadata" / name).read_bytes()
    for number in range(3):
        damaged = bytearray(data)
        damaged[random_.randrange(len(data))] ^= 1 << random_.randrange(8)
        (source / "metadata" / name).write_bytes(damaged)
        answer = cli("--store", tmp_path / f"s{number}", "store", "import", "standalone", source, "-o", "json")
        if answer.exit_code == 0:  # rebuilt from its write-ahead logs
            assert answer.json["nodes"] == 245
        elif answer.exit_code == 1:
            assert answer.json["nodes"] <= 245
            assert_told_as_incomplete(tmp_path / f"s{number}", cli)
        else:
            assert (answer.exit_code, answer.error["code"]) == (6, "metadata-corrupt")
            assert answer.error["hint"]


def test_damaged_write_ahead_log(tmp_path: Path, cli: Cli) -> None:
    """What can be read of it is imported, and that some is lost is counted."""
    random_ = random.Random(8)
    source = scratch_copy("small", "clean", tmp_path)
    log = source / "metadata" / "000004.log"
    data = log.read_bytes()
    for number in range(4):
        at = random_.randrange(len(data))
        damaged = bytearray(data)
        damaged[at] ^= 1 << random_.randrange(8)
        log.write_bytes(damaged if number % 2 else data[:at])
        answer = cli("--store", tmp_path / f"s{number}", "store", "import", "standalone", source, "-o", "json")
        assert (answer.exit_code, answer.json["undecodableValues"]) == (1, 1)
        check = cli("--store", tmp_path / f"s{number}", "store", "check", "-o", "json")
        assert any("write-ahead log" in row["message"] for row in check.json)


# -- entry logs, end to end -------------------------------------------------------------------------------------------


def test_damaged_logs_are_imported_as_far_as_they_are_good(tmp_path: Path, cli: Cli) -> None:
    random_ = random.Random(9)
    source = scratch_copy("small", "crashed", tmp_path)
    files = [
        file
        for file in sorted((source / "bookkeeper/current").iterdir())
        if file.suffix in (".log", ".txn") and file.stat().st_size
    ]
    for number in range(3):
        file = random_.choice(files)
        data = file.read_bytes()
        written = len(data.rstrip(b"\0"))
        damaged = bytearray(data)
        for _ in range(5):
            damaged[random_.randrange(written)] ^= 1 << random_.randrange(8)
        file.write_bytes(damaged)
        with assert_unchanged(source):
            path = tmp_path / f"s{number}"
            answer = cli("--store", path, "store", "import", "standalone", source, "-o", "json")
            assert answer.exit_code in (0, 1)
            assert answer.json["entries"] >= 3346 - 5
            assert answer.exit_code == bool(answer.json["problems"])
            for arguments in COMMANDS:
                assert_clear(cli, "--store", path, *arguments)
            assert_clear(cli, "logs", "verify", file)
        file.write_bytes(data)


def test_a_file_that_changes_after_the_import(tmp_path: Path, cli: Cli) -> None:
    source = scratch_copy("small", "clean", tmp_path)
    path, log = tmp_path / "s", source / "bookkeeper/current/0.log"
    assert cli("--store", path, "store", "import", "standalone", source).exit_code == 0
    data = log.read_bytes()
    cases = {"is gone": None, "became shorter": data[:3000], "is not the file": data[:1024] + bytes(5000) + data[6024:]}
    for text, changed in cases.items():
        log.unlink(missing_ok=True)
        if changed is not None:
            log.write_bytes(changed)
        answer = cli("--store", path, "topics", "peek-messages", "public/default/plain", "-s", "half", "-n", "1")
        assert answer.exit_code in (1, 6), text
        assert text in answer.stderr + answer.stdout
        check = cli("--store", path, "store", "check", "-o", "json").ends(1)
        assert any(row["code"] in ("file-missing", "file-changed") and str(log) in row["where"] for row in check.json)
        assert cli("--store", path, "store", "index", "--rebuild", "-o", "json").error["code"] == "source-changed"
    log.write_bytes(data)
    assert cli("--store", path, "store", "check", "--deep").exit_code == 0


# -- values -----------------------------------------------------------------------------------------------------------


def _with_value(tmp_path: Path, node: str, value: bytes) -> Path:
    path = narrow_copy(tmp_path)
    put_node(path, node, value)
    return path


def _bomb(codec: int, claimed: int, data: bytes) -> bytes:
    """A wrapped value: magic, size of the header, {compressionType = codec, uncompressedSize = claimed}, data."""
    varint = bytearray()
    while claimed >= 0x80:
        varint.append(claimed & 0x7F | 0x80)
        claimed >>= 7
    header = bytes([0x08, codec, 0x10]) + bytes(varint) + bytes([claimed])
    return b"\x47\x78" + len(header).to_bytes(4, "big") + header + data


@cache
def _compressed_zeros() -> bytes:
    return zlib.compress(bytes(50_000_000))


PLAIN = "/managed-ledgers/public/default/persistent/plain"


@pytest.mark.parametrize(("codec", "claimed"), [(1, 2**31 - 1), (2, 10), (3, 0), (4, 2**31 - 1)])
@pytest.mark.parametrize("node", [PLAIN, f"{PLAIN}/half"])
@pytest.mark.usefixtures("damages_stores")
def test_decompression_bombs(codec: int, claimed: int, node: str, tmp_path: Path, cli: Cli) -> None:
    path = _with_value(tmp_path, node, _bomb(codec, claimed, _compressed_zeros()))
    answer = cli("--store", path, "store", "cat", node)
    assert answer.exit_code in (6, 8)
    assert node in answer.stderr
    for arguments in (*COMMANDS, ("topics", "stats", "public/default/plain"), ("topics", "list", "public/default")):
        assert_clear(cli, "--store", path, *arguments)
    assert any(row["code"] == "value-undecodable" for row in cli("--store", path, "store", "check", "-o", "json").json)


_NODES = (
    *(PLAIN, f"{PLAIN}/half", "/ledgers/00/0000/L0009", "/admin/policies/public/default"),
    "/schemas/public/default/json",
)
_VALUES = (
    b"\xff" * 30,
    b"\x00",
    b"\x47\x78",
    b"\x47\x78\xff\xff\xff\xff",
    b"{",
    b"BookieMetadataFormatVersion\t3\n\xff",
)


@deep_but_for((0, 2, 9, 10, 12, 17, 23, 28), ("node", "value"), [*product(_NODES, _VALUES)])
def test_values_that_cannot_be_read(node: str, value: bytes, tmp_path: Path, cli: Cli, damages_stores: None) -> None:
    path = _with_value(tmp_path, node, value)
    assert_clear(cli, "--store", path, "store", "cat", node)
    raw = cli("--store", path, "store", "cat", node, "--hex")
    assert (raw.exit_code, raw.stdout.strip()) == (0, value.hex())
    for arguments in COMMANDS:
        assert_clear(cli, "--store", path, *arguments)


@pytest.mark.parametrize(
    ("node", "value", "command", "said"),
    [
        ("local-policies", b'{"bundles":7}', "namespaces bundles public/default", "such as 0x40000000, found 7"),
        (
            "policies",
            b'{"bundles":{"boundaries":["zz",null]}}',
            "topics bundle-range public/default/plain",
            '"zz", null',
        ),
        (
            "policies",
            b'{"backlog_quota_map":{"x":7}}',
            "namespaces get-backlog-quotas public/default",
            "x: expected an object",
        ),
    ],
)
def test_policies_of_another_kind(node: str, value: bytes, command: str, said: str, tmp_path: Path, cli: Cli) -> None:
    path = _with_value(tmp_path, f"/admin/{node}/public/default", value)
    if node == "policies":
        put_node(path, "/admin/local-policies/public/default", b"{}")
    cli.on(path, command).ends(6, said)
    assert_clear(cli, "--store", path, "topics", "describe", "public/default/plain")


@pytest.mark.parametrize("command", ["store bundle b --names", "clusters create x --cluster-config-file"])
def test_files_of_values_deep_in_each_other(command: str, tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "deep").write_text("[" * 5000)
    cli("--store", narrow_copy(tmp_path), *command.split(), tmp_path / "deep").ends(2, "deep")


def test_an_import_goes_on_past_values_that_cannot_be_read(tmp_path: Path, cli: Cli) -> None:
    source = scratch_copy("small", "clean", tmp_path)
    database = rocksdict.Rdict(str(source / "metadata"), rocksdict.Options(raw_mode=True))
    for node in (PLAIN, f"{PLAIN}/half", "/ledgers/00/0000/L0010", "/schemas/public/default/json"):
        raw = database[node.encode()]
        database[node.encode()] = raw[:41] + b"\xff" * 20
    database.close()
    answer = cli("--store", tmp_path / "s", "store", "import", "standalone", source, "-o", "json")
    assert (answer.exit_code, answer.json["nodes"], answer.json["entries"]) == (0, 245, 2566)
    found = {row["where"] for row in cli.json(tmp_path / "s", "store check") if row["code"] == "value-undecodable"}
    assert found == {PLAIN, f"{PLAIN}/half", "/ledgers/00/0000/L0010", "/schemas/public/default/json"}


def test_odd_references(tmp_path: Path) -> None:
    """A ledger id of 20 digits in a cursor's properties is nobody's."""
    from pulsar_admin.store.codec.cursor import CursorInfo, encode_cursor_info
    from pulsar_admin.store.db.blocks import ledger_of_key
    from pulsar_admin.store.model.references import find_references
    from pulsar_admin.store.names import Position

    info = CursorInfo(-1, Position(9, 3), cursor_properties={"#pulsar.internal.delayed.bucket_9_9": "9" * 20})
    path = _with_value(tmp_path, f"{PLAIN}/half", encode_cursor_info(info))
    with open_store(path) as store, store.read() as txn:
        assert max(ledger_of_key(key) for key, _ in find_references(store, txn).rows()) < 1000


def test_decode_node_names_the_row() -> None:
    with pytest.raises(IndexCorrupt, match="/x"):
        decode_node(tree_key("/x"), b"\x01" + bytes(32) + b"\xff\xff")


# -- not there --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("store", "cat", "/nowhere"), "path-not-found"),
        (("store", "ls", "/nowhere"), "path-not-found"),
        (("store", "owner", "99999"), "ledger-not-found"),
        (("store", "undo", "7"), "change-not-found"),
        (("store", "log", "7"), "change-not-found"),
        (("ledgers", "info", "99999"), "ledger-not-found"),
        (("ledgers", "entries", "99999"), "ledger-not-found"),
        (("ledgers", "verify", "99999"), "ledger-not-found"),
        (("ledgers", "missing", "99999"), "ledger-not-found"),
        (("topics", "stats", "public/default/nowhere"), "topic-not-found"),
        (("apply", "nowhere.plan"), "not-found"),
        (("logs", "list", "nowhere"), "source-not-found"),
        (("logs", "dump", "nowhere"), "source-not-found"),
        (("logs", "verify", "nowhere"), "source-not-found"),
    ],
)
def test_not_there(arguments: tuple[str, ...], code: str, cli: Cli) -> None:
    answer = cli("--store", imported("small", "clean"), *arguments, "-o", "json")
    assert (answer.exit_code, answer.error["code"]) == (5, code)
    assert answer.error["hint"]
    assert answer.stdout in ("", "[]\n")
