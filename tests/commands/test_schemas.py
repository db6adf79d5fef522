"""``schemas``: what a real broker 4.0.8 printed and stored for the same commands."""

import json
from base64 import b64encode
from pathlib import Path

import pytest
from msgspec.structs import replace

from pulsar_admin.store.changes.plan import WritingPlan
from pulsar_admin.store.changes.schemas import NewSchema, parse_schema, plan_upload
from pulsar_admin.store.codec.avrocompat import can_read
from pulsar_admin.store.codec.schema import SchemaEntry, decode_schema_entry
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.errors import InvalidValue
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.model.schemas import find_locator
from pulsar_admin.store.names import Position, parse_topic
from tests.commands.changing import check_undo, rows_of
from tests.conftest import Cli
from tests.stores import copied, in_store, put_node, read_store

TOPIC = "tdo/sch/pq"
DEFINITION = (
    '{"type": "record", "name": "R", "fields": [{"name": "a", "type": {"type": "array", "items": "int"}, "doc": '
    '"<\\u00e9>&=\'\\" x"}, {"name": "f", "type": "double", "default": 1.0}, {"name": "g", "type": "double", "default": 1e+30}]}'
)
PROPERTIES = {"zeta": "1", "aaa": "5", "b": "4", "alpha": "2", "mid": "3", "Zed": "6"}
UPLOADED = "2026-11-22T21:26:38.495Z"
"""When the broker was asked."""
ENTRIES = (
    "12bc020a0a74646f2f7363682f70711200180522e3017b2274797065223a20227265636f7264222c20226e616d65223a202252222c20226669656c6473223a20"
    "5b7b226e616d65223a202261222c202274797065223a207b2274797065223a20226172726179222c20226974656d73223a2022696e74227d2c2022646f63223a"
    "20223c5c75303065393e263d275c222078227d2c207b226e616d65223a202266222c202274797065223a2022646f75626c65222c202264656661756c74223a20"
    "312e307d2c207b226e616d65223a202267222c202274797065223a2022646f75626c65222c202264656661756c74223a2031652b33307d5d7d289fd19da9a034"
    "30003a090a047a6574611201313a080a036161611201353a060a01621201343a0a0a05616c7068611201323a080a036d69641201333a080a035a65641201362a"
    "3c0800121608ffffffffffffffffff0110ffffffffffffffffff011a2001003a7f8f76a8c9bd3cb24515afa5cac52dd1c36c0c4c754995a57221392840",
    "121b0a0a74646f2f7363682f7071120018012200288bd69da9a03430012a2b0800120508e70110001a2001003a7f8f76a8c9bd3cb24515afa5cac52dd1c36c0c"
    "4c754995a57221392840",
)
"""The payloads of two versions: an upload, and the deletion that followed at 21:26:39.115."""
DELETED_FIRST = (
    "121e0a0d74646f2f7363682f6e6576657212001801220028d0ce9da9a03430012a1c"
    "0800121608ffffffffffffffffff0110ffffffffffffffffff011a00"
)
"""Of a topic that had no schema, at 21:26:38.160."""
SHOWN = """{
  "version": 0,
  "schemaInfo": {
    "name": "pq",
    "schema": {
      "type": "record",
      "name": "R",
      "fields": [
        {
          "name": "a",
          "type": {
            "type": "array",
            "items": "int"
          },
          "doc": "\\u003cé\\u003e\\u0026\\u003d\\u0027\\" x"
        },
        {
          "name": "f",
          "type": "double",
          "default": 1.0
        },
        {
          "name": "g",
          "type": "double",
          "default": 1e+30
        }
      ]
    },
    "type": "AVRO",
    "timestamp": 1795382798495,
    "properties": {
      "Zed": "6",
      "aaa": "5",
      "alpha": "2",
      "b": "4",
      "mid": "3",
      "zeta": "1"
    }
  }
}
"""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    made = copied("small", "clean", tmp_path)
    put_node(made, "/admin/policies/tdo/sch", b"{}")
    return made


@pytest.fixture
def given(tmp_path: Path) -> Path:
    path = tmp_path / "schema.json"
    path.write_text(json.dumps({"type": "AVRO", "schema": DEFINITION, "properties": PROPERTIES}))
    return path


def payloads_of(store: Path, topic: str) -> list[bytes]:
    with open_store(store) as opened, open_reader(opened) as reader:
        locator = find_locator(reader.txn, parse_topic(topic))
        return [bytes(reader.read(one.position.ledger_id, 0).payload) for one in locator.index]


def without_ledgers(payload: bytes) -> SchemaEntry:
    entry = decode_schema_entry(payload, "entry")
    return replace(entry, index=tuple(replace(one, position=Position(-1, -1)) for one in entry.index))


def test_upload_and_delete(cli: Cli, store: Path, given: Path) -> None:
    rows = rows_of(store)
    assert cli.on(store, f"schemas upload {TOPIC} -f {given} --now {UPLOADED}").ends(0).stdout == ""
    assert payloads_of(store, TOPIC) == [bytes.fromhex(ENTRIES[0])]
    assert cli.on(store, f"schemas get {TOPIC}").stdout == SHOWN
    again = cli.on(store, f"schemas upload {TOPIC} -f {given}")
    alone = cli.on(store, f"schemas get {TOPIC} -v 0").stdout
    assert json.loads(alone) == json.loads(SHOWN)["schemaInfo"]
    assert alone.startswith('{\n  "name": "pq",\n  "schema": {\n    "type": "record",\n')
    assert cli.on(store, f"schemas get {TOPIC} --version 1").exit_code == 5
    below = cli("--store", store, "schemas", "get", TOPIC, "-v", -1)
    assert (below.exit_code, "Option --version must be greater than 0, but found -1" in below.stderr) == (2, True)
    both = cli.on(store, f"schemas get {TOPIC} -v 0 -a")
    assert "Only one or neither of --version and --all-version can be specified." in both.stderr
    assert again.stderr.startswith("no change")
    assert cli.on(store, f"schemas delete {TOPIC} --now 2026-11-22T21:26:39.115Z").stdout == ""
    assert [*map(without_ledgers, payloads_of(store, TOPIC))] == [*map(without_ledgers, map(bytes.fromhex, ENTRIES))]
    assert cli.on(store, f"schemas get {TOPIC}").exit_code == 5
    assert cli.on(store, f"schemas get {TOPIC} -a").stdout == ""
    cli.on(store, f"schemas delete {TOPIC} -f")
    assert cli.on(store, f"schemas metadata {TOPIC}").stdout == "null\n"
    for change in (3, 2):
        assert cli.on(store, f"store undo {change}").exit_code == 0
    check_undo(cli, store, 1, rows)


def test_a_definition_of_a_primitive_is_base64(cli: Cli, store: Path) -> None:
    """``schemas get`` of a STRING schema of the Python client, which sends ``null``, by the real pulsar-admin 4.0.8."""
    register(store, NewSchema("STRING", b"null"))
    shown = json.loads(cli.on(store, "schemas get public/default/plain").stdout)
    assert (shown["schemaInfo"]["type"], shown["schemaInfo"]["schema"]) == ("STRING", "bnVsbA==")


ORDER = (
    '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"},'
    '{"name":"item","type":["null","string"],"default":null}]}'
)
PAIR_PROPERTIES = {
    "key.schema.properties": "{}",
    "value.schema.properties": "{}",
    "value.schema.type": "AVRO",
    "key.schema.name": "String",
    "value.schema.name": "Order",
    "kv.encoding.type": "INLINE",
    "key.schema.type": "STRING",
}
SHOWN_PAIR = """    "key": {
      "name": "String",
      "schema": "",
      "type": "STRING",
      "timestamp": 0,
      "properties": {}
    },
    "value": {
      "name": "Order",
      "schema": {
        "type": "record",
        "name": "Order",
        "fields": [
          {
            "name": "id",
            "type": "long"
          },
          {
            "name": "item",
            "type": [
              "null",
              "string"
            ]
          }
        ]
      },
      "type": "AVRO",
      "timestamp": 0,
      "properties": {}
    }
"""
PAIR_DEFINITION = (
    '{"key":{"name":"String","schema":"","type":"STRING","timestamp":0,"properties":{}},"value":{"name":"Order","schema":{"type":'
    '"record","name":"Order","fields":[{"name":"id","type":"long"},{"name":"item","type":["null","string"]}]},"type":"AVRO",'
    '"timestamp":0,"properties":{}}}'
)
"""As pulsar-admin 4.0.8 shows a schema that the Java client registered at 4.2.4."""


def register(store: Path, new: NewSchema) -> None:
    """Register a schema of public/default/plain."""
    plan = read_store(store, lambda reader: plan_upload(reader, parse_topic("public/default/plain"), new, now_ms=1))
    assert isinstance(plan, WritingPlan)
    in_store(store, lambda opened: plan.made(opened))


def test_a_pair_is_uploaded_and_shown_as_two_schemas(tmp_path: Path, cli: Cli, store: Path) -> None:
    stored, file = bytes(7) + bytes([len(ORDER)]) + ORDER.encode(), tmp_path / "pair.json"
    pair = json.dumps({"key": "", "value": json.loads(ORDER)})
    file.write_text(json.dumps({"type": "KEY_VALUE", "schema": pair, "properties": PAIR_PROPERTIES}))
    assert cli("--store", store, "schemas", "upload", "public/default/plain", "-f", file).exit_code == 0
    shown = cli.on(store, "schemas get public/default/plain -v 0").stdout
    assert shown.startswith('{\n  "name": "plain",\n  "schema": {\n' + SHOWN_PAIR + '  },\n  "type": "KEY_VALUE",\n')
    one = cli.on(store, "schemas get public/default/plain -a").json
    assert (one["schemaDefinition"], one["schema"]) == (PAIR_DEFINITION, b64encode(stored).decode())
    again = cli("--store", store, "schemas", "upload", "public/default/plain", "-f", file)
    assert again.stderr.startswith("no change")


@pytest.mark.parametrize(
    ("definition", "kind"),
    [
        ("", "KEY_VALUE"),
        ("[]", "KEY_VALUE"),
        ('{"key": ""}', "KEY_VALUE"),
        ("{", "KEY_VALUE"),
        (
            '{"key": "", "value": {"type": "nothing"}}',
            "AVRO",
        ),  # a broker of 4.2.4 says so of a name that Avro does not allow
        ('{"key": {"type": "string"}, "value": "string"}', "string"),
    ],
)
def test_what_is_no_pair_is_refused(definition: str, kind: str, tmp_path: Path, cli: Cli, store: Path) -> None:
    file = tmp_path / "pair.json"
    file.write_text(json.dumps({"type": "KEY_VALUE", "schema": definition, "properties": PAIR_PROPERTIES}))
    said = cli("--store", store, "schemas", "upload", "public/default/plain", "-f", file)
    assert (said.exit_code, f"Invalid schema definition data for {kind} schema" in said.stderr) == (2, True)


def test_a_damaged_pair_is_an_error(cli: Cli, store: Path) -> None:
    register(store, NewSchema("KEY_VALUE", b"\0\0\0\7", PAIR_PROPERTIES))
    cli.on(store, "schemas get public/default/plain").ends(6, "the definition of a KEY_VALUE schema")


def test_a_native_protobuf_definition_is_text(cli: Cli, store: Path) -> None:
    text = '{"fileDescriptorSet":"Cg==","rootMessageTypeName":"a.B","rootFileDescriptorName":"a.proto"}'
    register(store, NewSchema("PROTOBUF_NATIVE", text.encode()))
    assert json.loads(cli.on(store, "schemas get public/default/plain -v 0").stdout)["schema"] == text


def test_delete_of_nothing_is_a_version(cli: Cli, store: Path) -> None:
    cli.on(store, "schemas delete tdo/sch/never --now 2026-11-22T21:26:38.160Z")
    assert payloads_of(store, "tdo/sch/never") == [bytes.fromhex(DELETED_FIRST)]


def test_refusals(cli: Cli, store: Path, given: Path, tmp_path: Path) -> None:
    def upload(kind: str, definition: object, topic: str = TOPIC) -> str:
        path = tmp_path / "other.json"
        path.write_text(json.dumps({"type": kind, "schema": definition, "properties": {}}))
        return cli.on(store, f"schemas upload {topic} -f {path}").stderr

    cli.on(store, f"schemas upload {TOPIC} -f {given}")
    empty = json.dumps({"type": "record", "name": "R", "fields": []})
    more = json.dumps({"type": "record", "name": "R", "fields": [{"name": "new", "type": "int"}]})
    assert "Incompatible schema: exists schema type AVRO, new schema type JSON" in upload("JSON", empty)
    assert "Error during schema compatibility check with strategy FULL" in upload("AVRO", more)
    assert "No enum constant org.apache.pulsar.common.schema.SchemaType.FOO" in upload("FOO", "")
    assert "Invalid schema definition data for AVRO schema" in upload("AVRO", '{"type":"nonsense"}')
    assert '"schema" is not text' in upload("AVRO", {"type": "record"})
    assert "namespace" in upload("AVRO", empty, "tdo/none/x")
    missing = cli("--store", store, "schemas", "upload", TOPIC, "-f", tmp_path / "none.json")
    assert "none.json is not found." in missing.stderr


def _record(**members: object) -> str:
    return json.dumps({"type": "record", "name": "A", "fields": [], **members})


def _field(**members: object) -> str:
    return _record(fields=[{"name": "a", "type": "int", **members}])


DEFINITIONS = [
    (_record(name="A-b"), False),
    (_record(name="1A"), False),
    (_record(name=""), False),
    (_record(name="A b"), False),
    (_record(name="a²"), False),
    (_record(name="int"), False),
    (_record(name="Ä"), True),
    (_record(name="a.b.C"), True),
    (_record(namespace=""), True),
    (_record(aliases=["a-b"]), False),
    (_record(aliases=5), False),
    (_record(fields=[{"name": "a", "type": "int"}] * 2), False),
    ('{"type":"record","name":"A"}', False),
    (_field(name="a-b"), False),
    (_field(name=""), False),
    (_field(aliases=["a-b"]), True),
    (_field(order="x"), False),
    (_field(default="x"), True),
    (_field(type=["null", "int"], default=5), True),
    (_field(type=["int", "int"]), False),
    (_field(type=[["int"], "null"]), False),
    ('{"type":"fixed","name":"F","size":-1}', False),
    ('{"type":"array","items":"int"}', True),
    ('{"type":"array","items":{"x":1}}', False),
    ('["null","int"]', False),
]
"""Definitions, and whether brokers of 4.0.8, 4.2.4 and 5.0.1 took them as AVRO: all three did the same."""


@pytest.mark.parametrize(("definition", "is_taken"), DEFINITIONS, ids=[definition for definition, _ in DEFINITIONS])
def test_definitions_that_brokers_take(definition: str, is_taken: bool) -> None:
    given = {"type": "AVRO", "schema": definition}
    if is_taken:
        assert parse_schema(given, "it").definition == definition.encode()
    else:
        with pytest.raises(InvalidValue):
            parse_schema(given, "it")


NATIVE = {"fileDescriptorSet": "ChcKB2EucHJvdG8SAWEiCQoBQhoECgJDRA==", "rootFileDescriptorName": "a.proto"}
"""A file a.proto of package a with the message B, in which there is a message CD."""


@pytest.mark.parametrize(
    ("definition", "is_taken"),
    [
        ("", False),
        ("{}", False),
        ("x", False),
        ('{"fileDescriptorSet":"","rootMessageTypeName":"a.B","rootFileDescriptorName":"a.proto"}', False),
        (json.dumps({**NATIVE, "rootMessageTypeName": "a.C"}), False),
        (json.dumps({**NATIVE, "rootMessageTypeName": "a.B"}), True),
        (json.dumps({**NATIVE, "rootMessageTypeName": "a.B.CD"}), True),
    ],
)
def test_a_native_protobuf_definition_has_its_message(definition: str, is_taken: bool) -> None:
    """Brokers of 4.0.8, 4.2.4 and 5.0.1 refused the first four: ``ProtobufNativeSchemaDataValidator``."""
    given = {"type": "PROTOBUF_NATIVE", "schema": definition}
    if is_taken:
        assert parse_schema(given, "it").definition == definition.encode()
    else:
        with pytest.raises(InvalidValue, match="deserialize ProtobufNative Schema failed"):
            parse_schema(given, "it")


@pytest.mark.parametrize(("strategy", "code"), [("BACKWARD", 0), ("BACKWARD_TRANSITIVE", 3)])
def test_only_a_transitive_strategy_looks_at_older_versions(
    strategy: str, code: int, tmp_path: Path, cli: Cli, store: Path
) -> None:
    """Upstream ``SchemaRegistryServiceImpl.checkCompatible``: the last field has a type that the first version's data cannot be read by."""
    cli.on(store, f"namespaces set-schema-compatibility-strategy tdo/sch --compatibility {strategy}")
    codes = []
    for fields in ([("a", "int", 0)], [("b", "int", 0)], [("a", "string", "")]):
        record = {"type": "record", "name": "R", "fields": [{"name": n, "type": k, "default": d} for n, k, d in fields]}
        (tmp_path / "new.json").write_text(json.dumps({"type": "AVRO", "schema": json.dumps(record), "properties": {}}))
        codes.append(cli.on(store, f"schemas upload tdo/sch/older -f {tmp_path / 'new.json'}").exit_code)
    assert codes == [0, 0, code]


INT, TEXT = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}, "string"
WIDER = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}
MORE = {
    "type": "record",
    "name": "x.R",
    "fields": [*INT["fields"], {"name": "b", "type": ["null", "int"], "default": None}],
}


def _twice(name: str, of: object, later: object) -> object:
    return {"type": "record", "name": name, "fields": [{"name": "a", "type": of}, {"name": "b", "type": later}]}


OLD = {"type": "record", "name": "Old", "fields": [{"name": "a", "type": "int"}]}
STRICT = {"type": "record", "name": "Strict", "aliases": ["Old"], "fields": [{"name": "new", "type": "int"}]}
LAX = {"type": "record", "name": "Lax", "aliases": ["Old"], "fields": []}
RECURSIVE = {"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"]}]}


@pytest.mark.parametrize(
    ("reader", "writer", "expected"),
    [
        (INT, INT, True),
        (WIDER, INT, True),
        (INT, WIDER, False),
        (MORE, INT, True),
        (INT, MORE, True),
        (["null", "int"], "int", True),
        ("int", ["null", "int"], False),
        (RECURSIVE, RECURSIVE, True),
        (_twice("T", [STRICT, LAX], "Strict"), _twice("T", OLD, "Old"), False),  # it fails in the union first
        (_twice("T", [STRICT, LAX], "Lax"), _twice("T", OLD, "Old"), True),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, {"type": "enum", "name": "E", "symbols": ["A", "B"]}, False),
        ({"type": "fixed", "name": "F", "size": 2}, {"type": "fixed", "name": "F", "size": 3}, False),
        ({"type": "map", "values": "double"}, {"type": "map", "values": "float"}, True),
        ({"type": "array", "items": "int"}, {"type": "array", "items": "string"}, False),
        ("bytes", TEXT, True),
    ],
)
def test_can_read(reader: object, writer: object, expected: bool) -> None:
    """Rules of AVRO's specification, "Schema Resolution"."""
    assert can_read(reader, writer) is expected
