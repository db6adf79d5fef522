"""Incident bundles: the same findings elsewhere, and nothing in them that somebody named or wrote."""

import gzip
import json
import os
import re
import subprocess
import sys
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from msgspec.structs import replace

from bench.generate import generate
from pulsar_admin.store.codec.cursor import decode_cursor_info, encode_cursor_info
from pulsar_admin.store.codec.ledgermetadata import ledger_id_of_path
from pulsar_admin.store.codec.managedledger import decode_managed_ledger, encode_managed_ledger
from pulsar_admin.store.codec.message import decode_message_entry
from pulsar_admin.store.codec.rocksvalue import NodeStat
from pulsar_admin.store.db.environment import Store, Txn, open_store
from pulsar_admin.store.db.files import iter_logs
from pulsar_admin.store.db.ledger_ids import DELETED as DELETED_LEDGERS
from pulsar_admin.store.db.ledger_ids import find_deleted
from pulsar_admin.store.db.tree import Node, find_node, iter_nodes, put_nodes, read_node
from pulsar_admin.store.doctor.diagnosing import check_store
from pulsar_admin.store.errors import IndexCorrupt, StoreError
from pulsar_admin.store.files import alone_at
from pulsar_admin.store.model.ledgers import iter_entry_ids
from pulsar_admin.store.model.nodes import _KNOWN_KEYS
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.model.redaction import WORDS
from pulsar_admin.store.model.references import index_owners
from pulsar_admin.store.model.topics import iter_namespaces, iter_topics, read_topic
from pulsar_admin.store.names import decode_name, parse_topic
from pulsar_admin.store.transfer import bundle as bundles
from tests.conftest import Cli
from tests.deep import deep_but_for
from tests.stores import copied, imported, read_rows, write_rows

STATES = [
    ("small", "crashed"),
    ("nometa", "clean"),
    ("cluster", "crashed"),
    ("policies", "clean"),
    ("shapes", "clean"),
    ("compacted", "clean"),
]
SALT = "5a" * 32
# What is in paths, what encoders write around values, and what every Pulsar has.
OURS = """managed-ledgers local-policies partitioned-topics schemas cookies idgen available clusters policies admin false true
 BookieMetadataFormatVersion bookieHost journalDir ledgerDirs instanceId indexDirs damaged __transaction __change_events
 __transaction_buffer_snapshot coordinator assign __transaction_pending_ack __transaction_log -partition-
 pulsar.internal.delayed.bucket LAYOUT readonly transaction_coordinator_assign mtime_ns
 pulsar-admin-toolkit"""
KNOWN = sorted({*WORDS, *(part for word in WORDS for part in word.split("/")), *OURS.split()}, key=len, reverse=True)
_KNOWN = re.compile("|".join(map(re.escape, KNOWN)))
_TOKEN = re.compile(rb"[A-Za-z0-9_.:%-]{4,}")


@pytest.fixture
def names(tmp_path: Path) -> Path:
    """A file of names with a salt that no chance is in."""
    path = tmp_path / "names.json"
    path.write_text(json.dumps({"salt": SALT, "names": {}}))
    return path


def bundle(cli: Cli, store: Path, file: Path, names: Path) -> Any:  # Any: JSON
    made = cli.done("--store", store, "store", "bundle", file, "--names", names, "-o", "json")
    return made.json


def there_and_back(cli: Cli, store: Path, names: Path) -> tuple[Path, set[str]]:
    """Make the store of a bundle of STORE, which has the same findings; return it and their codes."""
    there = names.with_name("there")
    told = bundle(cli, store, names.with_name("b"), names)["findings"]
    made = cli.done("--store", there, "store", "import", "bundle", names.with_name("b"), "-o", "json")
    assert made.json["findings"] == told
    assert made.json["sameFindings"] is True, told
    return there, {one["code"] for one in told}


# -- the same findings --------------------------------------------------------------------------------------------------


def test_every_key_that_pulsar_writes_is_still_one(cli: Cli, names: Path, tmp_path: Path) -> None:
    """Seen: pseudonyms of keys, which the other side took for a newer version's, so that findings differed."""
    store = copied("small", "clean", tmp_path)
    auth = ("--auth-plugin", "some.Class", "--auth-parameters", "token:SECRET")
    cli.done("--store", store, "clusters", "create", "eu", "--url", "http://a:80", *auth, "-y")
    cli.done("--store", store, "namespaces", "set-anti-affinity-group", "acme/iot", "-g", "racks", "-y")
    there, _ = there_and_back(cli, store, names)
    assert "unknown-value" not in {one[1] for one in found_in(there, {})}
    critical = cli("--store", there, "doctor", "--severity", "critical", "-o", "json")
    assert (critical.exit_code, critical.json) == (0, []), (
        "a bundle lacks the events of topic policies, which are not damaged"
    )
    assert all(keys <= WORDS for keys in _KNOWN_KEYS.values())
    assert b"SECRET" not in gzip.decompress(names.with_name("b").read_bytes())


def found_in(store: Path, back: dict[str, str]) -> list[tuple[str, str, str, str]]:
    """What ``store check`` finds, names translated by BACK."""
    with open_store(store) as opened:
        found = [(str(one.severity), one.code, one.where, one.message) for one in check_store(opened)]
    return sorted(
        tuple(re.sub(r"\bx[0-9a-f]{12}\b", lambda m: back.get(m[0], m[0]), text) for text in one) for one in found
    )  # type: ignore[misc]


def test_what_bookies_list_ledgers_by_is_kept(cli: Cli, names: Path) -> None:
    there, _ = there_and_back(cli, imported("cluster", "clean"), names)
    assert b"HierarchicalLedgerManagerFactory:1" in read_rows(
        there, lambda txn: read_node(txn, "/ledgers/LAYOUT").value
    )
    assert cli("--store", there, "doctor", "--severity", "critical", "-o", "json").json == []


@deep_but_for((0, 5), ("name", "state"), STATES)
def test_a_bundle_gives_the_same_findings(cli: Cli, names: Path, name: str, state: str) -> None:
    store = imported(name, state)
    there, _ = there_and_back(cli, store, names)
    back = json.loads(names.read_text())["names"]
    assert found_in(there, back) == found_in(store, back)
    for command in (("topics", "list", "public/default"), ("ledgers", "list"), ("ledgers", "orphans")):
        here, away = (cli("--store", one, *command, "-o", "json") for one in (store, there))
        assert len(here.json) == len(away.json)
    before, after = (
        [Path(log.origin) for log in read_rows(one, lambda txn: [*iter_logs(txn)])] for one in (store, there)
    )
    assert [(path.name, path.parts[1]) for path in before] == [(path.name, back[path.parts[1]]) for path in after]


def damage(txn: Txn) -> None:
    """A topic whose list is no protobuf, a ledger without metadata, a node with another name, a schema of no ledger."""
    stat = NodeStat(0, 1, 1, 1, False)
    plain = parse_topic("public/default/plain")
    first = next(node for node in iter_nodes(txn, "/ledgers/") if ledger_id_of_path(node.path) == 9)
    txn.delete("tree", first.path.encode())
    put_nodes(
        txn,
        [
            Node(parse_topic("public/default/steady").path, stat, b"\xff\xfe"),
            Node(f"{plain.path}/not%2dencoded", stat, find_node(txn, plain.cursor_path("half")).value),  # type: ignore[union-attr]
            Node("/admin/policies/acme/orders", stat, b"{secret-word"),
            Node("/admin/partitioned-topics/acme/orders/persistent/broken", stat, b"[1"),
        ],
    )


@pytest.mark.usefixtures("damages_stores")
def test_damage_is_found_there_too(cli: Cli, store: Path, tmp_path: Path, names: Path) -> None:
    write_rows(store, damage)
    _, codes = there_and_back(cli, store, names)
    assert codes >= {"ledger-without-metadata", "value-undecodable", "topic-unreadable"}
    assert b"secret-word" not in everything_in(tmp_path / "b")


@pytest.mark.parametrize("namespace", ["pulsar/standalone/localhost:8080", "pulsar/broker-1.example:8080"])
def test_the_topic_of_a_health_check(cli: Cli, store: Path, names: Path, namespace: str) -> None:
    """Its namespace is the address of a broker, with a colon that metadata paths of namespaces keep, as no topic's does."""
    stat = NodeStat(0, 1, 1, 1, False)
    old, new = parse_topic("public/default/plain"), f"/managed-ledgers/{namespace}/persistent/healthcheck"
    schema = "/schemas/public/default/avro"

    def move(txn: Txn) -> None:
        for node in [*iter_nodes(txn, old.path)]:
            put_nodes(txn, [Node(node.path.replace(old.path, new), stat, node.value)])
            txn.delete("tree", node.path.encode())
        for path in (schema, f"/schemas/{namespace}/healthcheck", f"/schemas/{namespace}/Gr%C3%BC%C3%9Fe+an+alle"):
            found = find_node(txn, schema)
            put_nodes(txn, [Node(path, stat, found.value)])

    with open_store(store, writable=True) as opened:
        opened.write(move)
        opened.write(lambda txn: index_owners(opened, txn))
    assert "owners-differ" not in there_and_back(cli, store, names)[1]


# -- nothing that somebody named or wrote ---------------------------------------------------------------------------------


def everything_in(file: Path) -> bytes:
    """The decompressed bundle, and behind it the bytes of each base64 in it."""
    text = gzip.decompress(file.read_bytes())
    parts = [text]
    for line in text.splitlines():
        row = json.loads(line)
        for item in row if isinstance(row, list) else ():
            if isinstance(item, str) and len(item) % 4 == 0 and re.fullmatch(r"[A-Za-z0-9+/]+={0,2}", item):
                parts.append(b64decode(item))
    return b"\n".join(parts)


def named_in(store: Path) -> set[str]:
    """Every name and word in the metadata, of the directories it came from, and of producers, keys and properties of messages."""
    found = set(map(decode_name, str(json.loads((store / "store.json").read_text())["sources"]).split("/")))
    with open_store(store) as opened, open_reader(opened) as reader:
        for node in iter_nodes(reader.txn, "/"):
            if ledger_id_of_path(node.path) is None:
                found |= set(map(decode_name, node.path.split("/")))
            found |= {token.decode() for token in _TOKEN.findall(node.value)}
        for entry in entries_of(reader):
            try:
                metadata = decode_message_entry(entry, "entry").metadata
            except StoreError:
                continue
            found |= {metadata.producer_name, metadata.partition_key, metadata.replicated_from}
            found |= {text for pair in metadata.properties for text in (pair.key, pair.value)}
    plain = {
        part
        for text in found
        for part in (text, *re.split(r"[^A-Za-z0-9_.:-]+", text), *re.split(r"-partition-\d+", text))
    }
    return {text for text in plain if is_telling(text)}


def is_telling(text: str) -> bool:
    """Whether TEXT is long enough not to be there by chance, no number, and more than words of Pulsar's or of our format."""
    if len(text) < 4 or re.fullmatch(r"[0-9a-fx_.]+|A+[A-Za-z]?=*", text):
        return False
    if any(text.rstrip("Z").lower() in word.lower() for word in KNOWN):  # Z: of protobuf, the tag behind a text
        return False
    return len(re.sub(r"[^A-Za-z]", "", _KNOWN.sub("", text))) >= 3


@pytest.mark.parametrize("row", [b'"123"', b'{"1": 2}', b"[1.5]", b"[true]", b"[[" * 50_000, b"\xff", b"null", b""])
def test_a_row_of_deleted_ledgers_that_is_none_says_of_no_ledger_that_it_was_deleted(
    tmp_path: Path, row: bytes
) -> None:
    with open_store(copied("small", "clean", tmp_path), writable=True) as store:
        store.write(lambda txn: txn.put("state", DELETED_LEDGERS, b"[7, 9]"))
        with store.read() as txn:
            assert find_deleted(txn) == {7, 9}
        store.write(lambda txn: txn.put("state", DELETED_LEDGERS, row))
        with store.read() as txn, pytest.raises(IndexCorrupt, match="deletion a bundle shows"):
            find_deleted(txn)


def entries_of(reader: Any) -> Iterator[bytes]:
    """Payloads of all entries of all topics of all namespaces."""
    tenants = {
        node.path.split("/")[2] for node in iter_nodes(reader.txn, "/managed-ledgers/") if node.path.count("/") > 3
    }
    for tenant in sorted(tenants):
        for namespace in iter_namespaces(reader.txn, tenant):
            for name in iter_topics(reader.txn, namespace):
                for ledger in read_topic(reader.txn, name).ids:
                    for entry_id in iter_entry_ids(reader.txn, ledger):
                        yield bytes(reader.read(ledger, entry_id).payload)


def forms_of(text: str) -> Iterator[bytes]:
    """TEXT as it may lie in files: plain, URL-encoded, in hex, and in base64 wherever it begins."""
    raw = text.encode("utf-8", "surrogatepass")
    yield raw
    yield quote(text, safe="").encode()
    yield quote_plus(text).encode()
    yield json.dumps(text)[1:-1].encode()
    if len(raw) >= 6:
        yield raw.hex().encode()
        yield raw.hex().upper().encode()
        yield raw.decode("utf-8", "replace").encode("utf-16-le")
        for shift in range(3):
            inner = b64encode(b"\0" * shift + raw)[4 if shift else 0 : -4]
            if len(inner) >= 12:  # fewer letters are those of other words, too
                yield inner


@deep_but_for((0, 5), ("name", "state"), STATES)
def test_no_name_and_no_payload_is_in_a_bundle(cli: Cli, tmp_path: Path, names: Path, name: str, state: str) -> None:
    store = imported(name, state)
    bundle(cli, store, tmp_path / "b", names)
    blob = everything_in(tmp_path / "b").replace(
        b"ledgers-gone", b""
    )  # the code of a finding; a topic is called "gone"
    secrets = named_in(store)
    assert len(secrets) > 20
    assert name not in ("small", "cluster") or {"acme", "reminders", "expire-me", "half"} <= secrets
    secrets -= {"org.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1"}  # the class in /ledgers/LAYOUT is kept
    assert not {text for text in secrets if any(form in blob for form in forms_of(text) if len(form) >= 4)}
    with open_store(store) as opened, open_reader(opened) as reader:
        parts = {payload[at:][:16] for payload in entries_of(reader) for at in (-16, -40, -100) if len(payload) > 140}
    taken = [part for part in parts if len(set(part)) > 8]  # no run of zeros
    assert name == "compacted" or len(taken) > 10
    assert not [piece for piece in taken if piece in blob]


# -- bad input ------------------------------------------------------------------------------------------------------------


def test_what_is_no_bundle_leaves_nothing(cli: Cli, tmp_path: Path, names: Path) -> None:
    bundle(cli, imported("small", "clean"), tmp_path / "b", names)
    lines = gzip.decompress((tmp_path / "b").read_bytes()).splitlines(keepends=True)
    header = json.loads(lines[0])
    cases = {
        "cut": (tmp_path / "b").read_bytes()[:-4000],
        "no gzip": b"nothing of the kind",
        "other": gzip.compress(b'{"format": "other"}\n'),
        "newer": gzip.compress(json.dumps(header | {"version": 2}).encode() + b"\n"),
        "row gone": gzip.compress(b"".join([*lines[:5], *lines[6:]])),
        "end too early": gzip.compress(b"".join([*lines[:-1], b'["end", 1]\n', lines[-1]])),
        "no row": gzip.compress(b"".join([*lines[:-1], b"{}\n", lines[-1]])),
        "no end": gzip.compress(b"".join(lines[:-1])),
        "bad row": gzip.compress(lines[0] + b'["node", "/x", [1], "AA=="]\n["end", 1]\n'),
        "bad base64": gzip.compress(lines[0] + b'["node", "/x", [1, 1, 1, 1], "A"]\n["end", 1]\n'),
        "bad file": gzip.compress(lines[0] + b'["file", {"path": "../../x"}]\n["end", 1]\n'),
        "record outside": gzip.compress(b"".join([*lines[:-1], b'["record", 1, 99999999999, "AAAA"]\n'])),
        "record of nothing": gzip.compress(lines[0] + b'["record", 1, 0, "AAAA"]\n'),
        "bad database": gzip.compress(lines[0] + b'["row", "changes", "AA==", "AA=="]\n["end", 1]\n'),
    }
    for name, data in cases.items():
        (tmp_path / name).write_bytes(data)
        failed = cli("--store", tmp_path / "there", "store", "import", "bundle", tmp_path / name)
        assert failed.exit_code in (6, 7), (name, failed.stderr)
        assert "error: " in failed.stderr
        assert not [*tmp_path.glob("*there*")], name
    assert cli("--store", tmp_path / "there", "store", "import", "bundle", tmp_path / "nowhere").exit_code == 5


BOUNDED = """
import re, sys
from pathlib import Path
from pulsar_admin.cli import run
code = run(sys.argv[1:])
print(code, re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1] + "000")
"""


def test_a_bundle_of_one_endless_line_takes_no_memory(tmp_path: Path) -> None:
    """A quarter of a gigabyte of zeros is a quarter of a megabyte of gzip."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    mega = bytes(1 << 20)
    (tmp_path / "b").write_bytes(b"".join([*(packer.compress(mega) for _ in range(256)), packer.flush()]))
    words = [sys.executable, "-c", BOUNDED, "--store", tmp_path / "s", "store", "import", "bundle", tmp_path / "b"]
    ended = subprocess.run(words, capture_output=True, text=True, check=True)
    code, most_bytes = map(int, ended.stdout.split())
    assert (code, most_bytes < 200 << 20) == (8, True), most_bytes
    assert "a line has more than 33,554,432 bytes" in ended.stderr
    assert not (tmp_path / "s").exists()


def test_rows_do_not_gather_in_memory(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head = {"format": bundles.FORMAT, "version": bundles.VERSION, "sources": [], "findings": []}
    rows = [["node", f"/schemas/x{number}", [1, 1, 1, 1], "A" * 4000] for number in range(100)]
    lines = "".join(json.dumps(line) + "\n" for line in (head, *rows, ["end", len(rows)]))
    (tmp_path / "b").write_bytes(gzip.compress(lines.encode()))
    put, sizes = bundles._put, list[int]()

    def counted(store: Store, batch: list[list[Any]]) -> None:
        sizes.append(len(batch))
        put(store, batch)

    monkeypatch.setattr(bundles, "_put", counted)
    monkeypatch.setattr(bundles, "_BATCH_BYTES", 100_000)
    cli("--store", tmp_path / "s", "store", "import", "bundle", tmp_path / "b")
    assert sum(sizes) == 100
    assert max(sizes) == 25


def test_a_row_that_no_import_would_take_is_not_written(
    cli: Cli, tmp_path: Path, names: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundles, "LINE_MAX_BYTES", 500)
    cli("--store", imported("small", "clean"), "store", "bundle", tmp_path / "b", "--names", names).ends(8)
    assert not (tmp_path / "b").exists()


def test_a_bundle_is_written_over_nothing(cli: Cli, tmp_path: Path, names: Path) -> None:
    bundle(cli, imported("small", "clean"), tmp_path / "b", names)
    cli("--store", imported("small", "clean"), "store", "bundle", tmp_path / "b", "--names", names).ends(3)
    (tmp_path / "other").write_text("{}")
    cli("--store", imported("small", "clean"), "store", "bundle", tmp_path / "c", "--names", tmp_path / "other").ends(2)
    assert not (tmp_path / "c").exists()


def test_a_bundle_that_cannot_be_written_leaves_no_names(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "file").touch()
    words = ("--store", imported("small", "clean"), "store", "bundle")
    before = sorted(tmp_path.rglob("*"))
    for place, code in (("there", 3), ("file", 3), ("nowhere/b", 5), ("file/b", 5)):
        refused = cli(*words, tmp_path / place, "--names", tmp_path / "names")
        assert (refused.exit_code, sorted(tmp_path.rglob("*"))) == (code, before), refused.stderr
    both = cli(*words, tmp_path / "b", "--names", tmp_path / "b")
    assert (both.exit_code, sorted(tmp_path.rglob("*"))) == (2, before)
    assert "cannot be both the bundle and the file of its names" in both.stderr


def test_two_bundles_with_one_file_of_names_are_made_one_behind_the_other(cli: Cli, tmp_path: Path) -> None:
    """The one that ended last kept its names, and nobody could tell what those of the other stood for."""
    words = ("--store", imported("small", "clean"), "store", "bundle", tmp_path / "b", "--names", tmp_path / "names")
    with alone_at(tmp_path / "names"):
        before = sorted(tmp_path.rglob("*"))
        busy = cli(*words)
        assert (busy.exit_code, sorted(tmp_path.rglob("*"))) == (4, before)
        assert "another process is writing" in busy.stderr
    assert not any(tmp_path.iterdir())
    assert cli(*words).exit_code == 0
    assert {path.name for path in tmp_path.iterdir()} == {"b", "names"}


def test_a_store_of_a_bundle_says_that_it_has_no_entries(cli: Cli, names: Path) -> None:
    there, _ = there_and_back(cli, imported("small", "clean"), names)
    cli("--store", there, "store", "check", "--deep").ends(3, "comes from an incident bundle")
    assert cli("--store", there, "ledgers", "read-entry", "9", "0").exit_code != 70


# -- names that want to be something else ---------------------------------------------------------------------------------

HOSTILE = [
    "cafe.log", "feedface.txn", "0x00000000_0x40000000",
    "metadata", "consume", "12345678901234567", "0x0badcafe", "x0123456789ab", "a-partition-3-DLQ-partition-0",
    "persistent://evil/secret/topic", "geheimer Umsatz/2026", "клиенты", "客户-台帳", "../../etc/passwd-file",
    "pulsar.repl.rivals-cluster", "billing__transaction_pending_ack", "__change_events_of_mine", "\u202ereversed-name",
]  # fmt: skip
POLICIES = json.loads("""{
"auth_policies": {"namespace_auth": {"role-of-somebody": ["produce"]}, "unknown-field-here": {"deep-key-here": "deep-value"}},
"replication_clusters": ["cluster-of-rivals"],
"offload_policies": {"s3ManagedLedgerOffloadCredentialSecret": "wJalrXUtnFEMI", "s3ManagedLedgerOffloadBucket": "bucket-of-ours"},
"properties": {"cost-centre": "4711-0815", "phone": "4915123456789", "limit": "4012888888881881", "number": 4222222222222}
}""")
TOPIC_PROPERTIES = {
    "id": "4915551234567", "limit": "5105105105105100", "index": "3530111333300000", "endPublishTimestamp": "6011111111111117",
}  # fmt: skip

SEGMENT = {
    "segmentId": 0, "hashRange": {"start": 0, "end": 65535}, "state": "ACTIVE", "createdAtEpoch": 0, "owner-key": "owner-of-ours",
    "legacyTopicName": "persistent://acme/orders/legacy-of-ours", "entryBucketSplits": ["split-of-ours"],
}  # fmt: skip


def hostile(txn: Txn) -> None:
    """Subscriptions, properties, policies, a role and a cluster that are called as nobody should."""
    stat = NodeStat(0, 1, 1, 1, False)
    plain = parse_topic("public/default/plain")
    node = find_node(txn, plain.cursor_path("half"))
    found = decode_cursor_info(node.value, node.path)
    properties = dict.fromkeys(HOSTILE, 7)
    of_plain = find_node(txn, plain.path)
    topic = replace(decode_managed_ledger(of_plain.value, plain.path), properties=TOPIC_PROPERTIES)
    info = encode_cursor_info(
        replace(found, properties=properties, cursor_properties=dict(zip(HOSTILE, HOSTILE, strict=True)))
    )
    put_nodes(txn, [Node(plain.cursor_path(name), stat, info) for name in HOSTILE])
    put_nodes(
        txn,
        [
            Node("/admin/policies/acme/orders", stat, json.dumps(POLICIES).encode()),
            Node(
                "/admin/clusters/cluster-of-rivals",
                stat,
                b'{"serviceUrl":"https://user:token-of-ours@host-of-rivals:8443"}',
            ),
            Node("/admin/policies/tenant-of-rivals", stat, b'{"adminRoles":["role-of-somebody"],"allowedClusters":[]}'),
            Node("/admin/policies/decade.log", stat, b'{"adminRoles":["0xfacefeed"],"allowedClusters":[]}'),
            Node("/admin/policies/decade.log/ab12.txn", stat, b"{}"),
            Node(parse_topic("decade.log/ab12.txn/beef.log").path, stat, encode_managed_ledger(topic)),
            Node("/unknown/place-of-ours", stat, b"value-of-ours"),
            Node("/topics/acme/orders/segments-of-ours", stat, json.dumps({"segments": {"0": SEGMENT}}).encode()),
            Node("/ledgers/underreplication/place-of-ours", stat, b"value-of-ours"),
        ],
    )


@pytest.mark.usefixtures("damages_stores")
def test_hostile_names_stay_here(cli: Cli, store: Path, tmp_path: Path, names: Path) -> None:
    write_rows(store, hostile)
    there, _ = there_and_back(cli, store, names)
    blob = everything_in(tmp_path / "b")
    texts = {*HOSTILE, *re.findall(r'"([^"]+)"', json.dumps(POLICIES)), *TOPIC_PROPERTIES.values()}
    texts |= {"token-of-ours", "host-of-rivals", "tenant-of-rivals", "place-of-ours", "value-of-ours", "decade.log"}
    texts |= {"ab12.txn", "beef.log", "0xfacefeed", "4222222222222", "passwd", "Umsatz", "geheimer", "rivals"}
    texts |= {"billing", "of_mine", "evil", "secret/topic"}
    texts |= {"segments-of-ours", "owner-key", "owner-of-ours", "legacy-of-ours", "split-of-ours"}
    kept = {"metadata", "consume", "auth_policies", "namespace_auth", "produce", "replication_clusters", "properties"}
    kept |= {"offload_policies", "limit"}
    assert not {text for text in texts - kept if any(form in blob for form in forms_of(text) if len(form) >= 4)}
    subscriptions = cli("--store", there, "topics", "subscriptions", "--pattern", "*", "-o", "json")
    back = json.loads(names.read_text())["names"]
    shown = json.dumps(subscriptions.json)
    assert "metadata" not in shown
    assert {"клиенты", "metadata", "12345678901234567"} <= {
        back.get(name) for name in re.findall(r"x[0-9a-f]{12}", shown)
    }


@pytest.mark.usefixtures("damages_stores")
def test_a_lost_entry_log_is_no_difference(cli: Cli, tmp_path: Path, names: Path) -> None:
    """Which log a bookie's index names is in its own files, which no bundle has; seen: ``sameFindings: false``, exit code 1."""
    made = tmp_path / "made"
    sizes = ("--entries", "600", "--entries-per-ledger", "100", "--log-size-limit", "300K", "--interceptors", "none")
    generate(made, *sizes)
    (made / "bookkeeper" / "current" / "1.log").unlink()
    assert cli("--store", tmp_path / "s", "store", "import", "standalone", made, "-q").exit_code == 0
    assert {"entry-log-missing", "entries-missing"} <= there_and_back(cli, tmp_path / "s", names)[1]


def test_a_topic_deleted_by_a_change_is_no_difference(cli: Cli, store: Path, names: Path) -> None:
    """The change shows that its cursor's ledgers are nobody's, and no bundle has it; seen: ``ledgers-of-others`` in the bundle's store."""
    assert cli("--store", store, "topics", "delete", "public/default/plain", "--yes").exit_code == 0
    assert "ledgers-of-others" not in there_and_back(cli, store, names)[1]


def test_a_fifo_is_no_bundle_and_is_not_waited_for(cli: Cli, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    refused = cli("--store", tmp_path / "s", "store", "import", "bundle", tmp_path / "fifo")
    assert (refused.exit_code, "it is a FIFO, not a regular file" in refused.stderr) == (5, True)
    assert not (tmp_path / "s").exists()
