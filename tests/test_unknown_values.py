"""Values of a newer version inside of known trees: named once, kept byte for byte, never taken for damage, loss or a leak."""

import json
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from pulsar_admin.store.codec.buffer import encode_varint
from pulsar_admin.store.codec.compression import LZ4, compress
from pulsar_admin.store.codec.ledgermetadata import ledger_path
from pulsar_admin.store.codec.message import encode_message_entry
from pulsar_admin.store.db.environment import Txn, open_store
from pulsar_admin.store.db.tree import Node, find_node, put_nodes, read_node
from pulsar_admin.store.model.references import index_owners
from pulsar_admin.store.proto import managed_ledger_pb2, schema_pb2
from pulsar_admin.store.proto.pulsar_api_pb2 import MessageMetadata
from tests.conftest import Cli
from tests.stores import copied, narrow_copy, read_rows, write_rows
from tests.synthetic import Made, MadeTopic, make_store

FIELD = b"\xa2\x06\x04ever"
"""Field 100 with the four bytes "ever", as no message of Pulsar 5.0 or BookKeeper 4.18 has one."""
PLAIN = "/managed-ledgers/public/default/persistent/plain"
JSON = "/managed-ledgers/public/default/persistent/json"
SCHEMA = "/schemas/public/default/json"
PLAIN_LEDGER, CURSOR_ORPHAN, SCHEMA_ORPHAN, DELAYED_ORPHAN = 9, 113, 20, 111
"""The first ledger of ``plain``; orphans that say they are of its cursor ``holes``, of a schema, of a cursor of ``acme/delayed``."""
Change = Callable[[bytes], bytes]


def appended(value: bytes) -> bytes:
    return value + FIELD


def in_first_ledger(value: bytes) -> bytes:
    message = managed_ledger_pb2.ManagedLedgerInfo.FromString(value)
    message.ledgerInfo[0].MergeFromString(FIELD)
    return message.SerializeToString()


def in_first_version(value: bytes) -> bytes:
    message = schema_pb2.SchemaLocator.FromString(value)
    message.index[0].MergeFromString(FIELD)
    return message.SerializeToString()


def in_ledger_metadata(value: bytes) -> bytes:
    line, _, rest = value.partition(b"\n")
    size = next(size for size in range(1, 4) if rest[size - 1] < 0x80)  # of the varint in front
    message = rest[size:] + FIELD
    return line + b"\n" + encode_varint(len(message)) + message


def of_version_4(value: bytes) -> bytes:
    return value.replace(b"FormatVersion\t3\n", b"FormatVersion\t4\n")


def wrapped(codec: int) -> Change:
    def wrap(value: bytes) -> bytes:
        header = managed_ledger_pb2.ManagedLedgerInfoMetadata(compressionType=codec, uncompressedSize=len(value))
        head = header.SerializeToString()
        return struct.pack(">2sI", b"\x47\x78", len(head)) + head + compress(LZ4, value)

    return wrap


def with_key(value: bytes) -> bytes:
    """With a key that no version has, in front and behind of what is there, and a value that is not as Python writes it."""
    assert value[:1] == b"{"
    return b'{"aNewKey":{"\\u00e4":1.50E+3},' + value[1:-1] + b',"another":[]}'


KINDS: Mapping[str, tuple[str, Change, str]] = {
    "topic": (PLAIN, appended, "ManagedLedgerInfo: ManagedLedgerInfo field 100"),
    "ledger of a topic": (PLAIN, in_first_ledger, "ManagedLedgerInfo: LedgerInfo field 100"),
    "cursor": (f"{PLAIN}/half", appended, "ManagedCursorInfo: ManagedCursorInfo field 100"),
    "schema": (SCHEMA, appended, "SchemaLocator: SchemaLocator field 100"),
    "version of a schema": (SCHEMA, in_first_version, "SchemaLocator: IndexEntry field 100"),
    "ledger": (ledger_path(PLAIN_LEDGER), in_ledger_metadata, "LedgerMetadata: LedgerMetadataFormat field 100"),
    "version of ledger metadata": (
        ledger_path(PLAIN_LEDGER),
        of_version_4,
        "LedgerMetadata: ledger metadata version 4, known are 1 to 3",
    ),
    "compression": (PLAIN, wrapped(9), "ManagedLedgerInfo: compression type 9 is not known"),
    "compression of a cursor": (f"{PLAIN}/half", wrapped(9), "ManagedCursorInfo: compression type 9 is not known"),
    "policies": ("/admin/policies/public/default", with_key, "Policies: key aNewKey and key another"),
    "tenant": ("/admin/policies/public", with_key, "TenantInfo: key aNewKey and key another"),
    "cluster": ("/admin/clusters/standalone", with_key, "ClusterData: key aNewKey and key another"),
    "bundles": ("/admin/local-policies/public/default", with_key, "LocalPolicies: key aNewKey and key another"),
}


def change(path: Path, *changes: tuple[str, Change]) -> None:
    """Change values of nodes as if the store's source had them so; a node that is not there begins with a JSON object."""
    with open_store(path, writable=True) as store:

        def work(txn: Txn) -> None:
            for name, make in changes:
                node = find_node(txn, name) or Node(name, read_node(txn, PLAIN).stat, b'{"bundles":null}')
                put_nodes(txn, [Node(name, node.stat, make(node.value))])
            index_owners(store, txn)

        store.write(work)


def value_of(path: Path, name: str) -> bytes:
    return read_rows(path, lambda txn: read_node(txn, name).value)


def codes(cli: Cli, path: Path, *words: str) -> Iterator[tuple[str, str, str]]:
    for row in cli("--store", path, *words, "-o", "jsonl").json_lines:
        if row.get("code") not in (None, "checked"):
            yield row["severity"], row["code"], row["message"]


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_named_once_and_is_no_damage(kind: str, tmp_path: Path, cli: Cli) -> None:
    name, make, words = KINDS[kind]
    path = narrow_copy(tmp_path)
    before = set(codes(cli, path, "store", "check"))
    change(path, (name, make))
    found = set(codes(cli, path, "store", "check", "--deep"))
    (new,) = (row for row in found - before if row[1] != "ledgers-unreferenced")
    assert new == ("note", "unknown-value", f"{words} not known here, in 1 node, kept as they are")
    assert {row[1] for row in before - found} <= {"ledgers-unreferenced"}
    diagnosed = [*codes(cli, path, "doctor")]
    assert [row[0] for row in diagnosed if row[1] == "unknown-value"] == ["note"]
    assert not [row for row in diagnosed if row[0] == "critical"]
    assert cli("--store", path, "ledgers", "missing").exit_code == 0


def test_many_of_one_structure_are_one_finding(tmp_path: Path, cli: Cli) -> None:
    path = narrow_copy(tmp_path)
    change(path, (PLAIN, appended), (JSON, in_first_ledger))
    (found,) = [row for row in codes(cli, path, "store", "check") if row[1] == "unknown-value"]
    words = "ManagedLedgerInfo: LedgerInfo field 100 and ManagedLedgerInfo field 100 not known here, in 2 nodes, kept as they are"
    assert found[2] == words


def test_a_schema_keeps_what_its_versions_have(tmp_path: Path, cli: Cli) -> None:
    from pulsar_admin.store.codec.schema import decode_schema_locator, encode_schema_locator

    path = narrow_copy(tmp_path)
    value = in_first_version(appended(value_of(path, SCHEMA)))
    locator = decode_schema_locator(value, "test")
    made = encode_schema_locator(locator, value)
    assert made == value


# -- who owns what ----------------------------------------------------------------------------------------------------


def orphans(cli: Cli, path: Path) -> set[int]:
    rows = cli("--store", path, "ledgers", "orphans", "-o", "jsonl").json_lines
    return {row["ledgerId"] for row in rows if row["reason"] == "unreferenced"}


def refused(cli: Cli, path: Path, *words: object) -> str:
    answer = cli("--store", path, "ledgers", *words).ends(3)
    return answer.stderr


@pytest.mark.parametrize("kind", ["topic", "ledger of a topic", "compression"])
def test_a_ledger_that_says_it_is_of_such_a_node_is_owned(kind: str, tmp_path: Path, cli: Cli) -> None:
    name, make, _ = KINDS[kind]
    path = copied("small", "clean", tmp_path)
    all_of_them = orphans(cli, path)
    assert {CURSOR_ORPHAN, SCHEMA_ORPHAN} < all_of_them
    change(path, (name, make))
    assert orphans(cli, path) == all_of_them - {CURSOR_ORPHAN} - ({PLAIN_LEDGER} if kind != "compression" else set())
    for words in (("delete",), ("delete", "--force"), ("forget",), ("forget", "--force")):
        said = refused(cli, path, words[0], CURSOR_ORPHAN, *words[1:])
        assert "claim persistent://public/default/plain" in said or (kind == "compression" and words == ("delete",))
    (row,) = cli("--store", path, "store", "owner", CURSOR_ORPHAN, "-o", "json").json
    assert row["owners"] == [{"kind": "claim", "topic": "persistent://public/default/plain", "cursor": ""}]
    cli.done(
        "--store", path, "ledgers", "delete", DELAYED_ORPHAN, "--dry-run", *(["--force"] * (kind == "compression"))
    )


def test_the_ledgers_of_a_topic_that_cannot_be_read_are_its(tmp_path: Path, cli: Cli) -> None:
    """Of a topic in a compression of the future no row says which ledgers it lists."""
    path = narrow_copy(tmp_path)
    with open_store(path) as store, store.read() as txn:
        ledgers = {
            info.ledgerId
            for info in managed_ledger_pb2.ManagedLedgerInfo.FromString(read_node(txn, PLAIN).value).ledgerInfo
        }
    change(path, (PLAIN, wrapped(9)))
    assert not orphans(cli, path) & ledgers
    assert not [row for row in codes(cli, path, "doctor") if row[1].startswith("leaked-topic")]
    for ledger in sorted(ledgers):
        refused(cli, path, "delete", ledger, "--force")


def test_metadata_of_a_newer_version_is_not_judged(store: Path, cli: Cli) -> None:
    """Neither of an orphan nor of a topic's ledger: not lost, not leaked, not made again, not deleted."""
    named = [ledger_path(one) for one in (SCHEMA_ORPHAN, PLAIN_LEDGER)]
    change(store, *((name, of_version_4) for name in named))
    before = [value_of(store, name) for name in named]
    assert SCHEMA_ORPHAN not in orphans(cli, store)
    for ledger in (SCHEMA_ORPHAN, PLAIN_LEDGER):
        for words in (("delete", ledger, "--force"), ("forget", ledger, "--force"), ("restore", ledger)):
            refused(cli, store, *words)
    assert [value_of(store, name) for name in named] == before
    assert cli("--store", store, "store", "owner", SCHEMA_ORPHAN).exit_code == 0


def test_a_ledger_of_a_component_that_is_not_known_needs_force(tmp_path: Path, cli: Cli) -> None:
    path = narrow_copy(tmp_path)
    change(path, (ledger_path(SCHEMA_ORPHAN), lambda value: value.replace(b"pulsar/schemaId", b"pulsar/sagaId01")))
    assert "other programs may use it" in refused(cli, path, "delete", SCHEMA_ORPHAN)


def test_owners_of_an_older_version_delete_nothing(tmp_path: Path, cli: Cli, damages_stores: None) -> None:
    """What destroys reads the nodes, not the rows that were derived from them."""
    path = copied("scalable", "clean", tmp_path)
    write_rows(path, lambda txn: txn.delete("owners", (26).to_bytes(8, "big")))
    words = ("delete", 26, "--force")
    assert "segment://acme/n/scal/0000-ffff-2" in refused(cli, path, *words)


# -- entries ----------------------------------------------------------------------------------------------------------


def entry(sequence_id: int, **fields: int) -> Made:
    metadata = MessageMetadata(producer_name="p", sequence_id=sequence_id, publish_time=1_700_000_000_000 + sequence_id)
    for name, number in fields.items():
        setattr(metadata, name, number)
    metadata.MergeFromString(FIELD)
    return Made(metadata.publish_time, raw=encode_message_entry(metadata, b"payload"))


@pytest.fixture
def entries(tmp_path: Path) -> Path:
    """One message as ever but for its unknown field, 20 of a compression and 2 markers of a type that nobody knows."""
    made = [
        entry(0),
        *(entry(1 + one, compression=9) for one in range(20)),
        entry(21, marker_type=99),
        entry(22, marker_type=99),
    ]
    return make_store(tmp_path / "entries", {"public/default/t": MadeTopic([made])})


def test_markers_of_an_unknown_type_are_the_brokers_own(entries: Path, cli: Cli) -> None:
    rows = cli("--store", entries, "topics", "read", "t", "--markers", "-o", "jsonl").json_lines
    assert [row["markerType"] for row in rows if "markerType" in row] == ["99", "99"]


@pytest.mark.parametrize("kind", ["topic", "version of ledger metadata", "compression", "bundles"])
def test_it_stays_when_what_is_beside_it_changes(kind: str, tmp_path: Path, cli: Cli) -> None:
    name, make, _ = KINDS[kind]
    path = copied("small", "clean", tmp_path)
    change(path, (name, make))
    before = value_of(path, name)
    for words in (
        ("topics", "create-subscription", "public/default/json", "-s", "new"),
        ("topics", "reset-cursor", "public/default/json", "-s", "new", "-m", "earliest"),
        ("topics", "terminate", "public/default/json"),
        ("namespaces", "set-message-ttl", "acme/orders", "--messageTTL", "100"),
        ("topics", "delete", "public/default/batched", "--force", "-y"),
    ):
        cli.done("--store", path, *words)
    assert value_of(path, name) == before


def test_it_stays_when_the_node_itself_changes(tmp_path: Path, cli: Cli) -> None:
    path = narrow_copy(tmp_path)
    kinds = ("topic", "cursor", "version of a schema", "policies", "ledger of a topic")
    change(path, *(KINDS[kind][:2] for kind in kinds))
    for words in (
        ("topics", "terminate", "public/default/plain"),
        ("topics", "reset-cursor", "public/default/plain", "-s", "half", "-m", "earliest"),
        ("namespaces", "set-message-ttl", "public/default", "--messageTTL", "100"),
    ):
        cli.done("--store", path, *words)
    assert value_of(path, PLAIN).count(FIELD) == 2
    assert value_of(path, f"{PLAIN}/half").count(FIELD) == 1
    policies = json.loads(value_of(path, "/admin/policies/public/default"))
    assert (policies["aNewKey"], policies["another"], policies["message_ttl_in_seconds"]) == ({"ä": 1500.0}, [], 100)
