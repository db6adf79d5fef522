"""``--redact``: no payload, key, property value or decoded value is shown, by whatever command, in whatever format."""

import base64
import hashlib
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pulsar_admin.cli import run
from pulsar_admin.store.codec.cursor import CursorInfo
from pulsar_admin.store.codec.message import encode_message_entry
from pulsar_admin.store.engine.slices import Cut, plan_slices
from pulsar_admin.store.model.redaction import redact
from pulsar_admin.store.names import Position
from pulsar_admin.store.proto.pulsar_api_pb2 import MessageMetadata
from pulsar_admin.store.scan.operations import ReadMessages
from pulsar_admin.store.scan.sources import source_files
from tests.conftest import Cli
from tests.synthetic import Made, MadeTopic, make_store

TOPIC = "public/default/t"
AT_MS = 1_700_000_000_000
SECRETS = ("payload-secret", "key-secret", "value-secret", "ordering-secret")


@pytest.fixture(scope="module")
def secret(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of one topic: 3 messages, each with all that is to be hidden."""
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=AT_MS)
    metadata.partition_key, metadata.ordering_key = "key-secret", b"ordering-secret"
    metadata.properties.add(key="name", value="value-secret")
    made = Made(AT_MS, raw=encode_message_entry(metadata, b"payload-secret"))
    cursor = CursorInfo(cursors_ledger_id=-1, mark_delete=Position(10, -1))
    topics = {TOPIC: MadeTopic([[made] * 3], cursors={"s": cursor})}
    return make_store(tmp_path_factory.mktemp("secret") / "store", topics)


COMMANDS = (
    ("topics", "read", TOPIC, "--payload"),
    ("topics", "read", TOPIC, "--payload", "--value"),
    ("topics", "read", TOPIC, "--payload", "--jobs", "2"),
    ("topics", "dump", TOPIC, "--payload"),
    ("topics", "dump", TOPIC, "--payload", "--value"),
    ("topics", "peek-messages", TOPIC, "-s", "s", "-n", "9", "--value"),
    ("topics", "examine-messages", TOPIC, "--value"),
    ("topics", "get-message-by-id", TOPIC, "-l", "10", "-e", "0", "--value"),
    ("compaction", "read", TOPIC, "--payload", "--value"),
)


def _forms(text: str) -> list[str]:
    """How TEXT may stand in output: as it is, in base64, in hexadecimal, in a hex dump."""
    data = text.encode()
    return [text, base64.b64encode(data).decode(), data.hex(), data[:8].hex(" "), hashlib.sha1(data).hexdigest()]


@pytest.mark.parametrize("form", ["default", "table", "json"])
@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_hidden_is_shown(command: tuple[str, ...], form: str, secret: Path, cli: Cli) -> None:
    options = () if form == "default" else ("-o", form)
    open_text = cli("--store", secret, *command, *options)
    assert any(found in open_text.stdout for text in SECRETS for found in _forms(text))
    done = cli("--store", secret, *command, "--redact", *options)
    assert done.exit_code == open_text.exit_code
    assert not [found for text in SECRETS for found in _forms(text) if found in done.stdout + done.stderr]
    assert "sha256:" in done.stdout


@pytest.fixture(scope="module")
def propertied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a subscription that has a property."""
    path = make_store(tmp_path_factory.mktemp("propertied") / "store", {TOPIC: MadeTopic([[Made(AT_MS)]])})
    made = ("topics", "create-subscription", TOPIC, "-s", "s", "-p", "name=property-secret")
    assert run(["--store", str(path), *made]) == 0
    return path


@pytest.mark.parametrize("form", ["default", "table", "json"])
@pytest.mark.parametrize(
    "words",
    [f"topics stats {TOPIC}", f"store cat /managed-ledgers/{TOPIC.replace('/t', '/persistent/t')}/s", "store log"],
)
def test_properties_of_subscriptions_are_hidden(words: str, form: str, propertied: Path, cli: Cli) -> None:
    options = () if form == "default" else ("-o", form)
    if form == "json":
        assert "property-secret" in cli("--store", propertied, *words.split(), *options).stdout
    done = cli.done("--store", propertied, *words.split(), "--redact", *options)
    assert not [found for found in _forms("property-secret") if found in done.stdout + done.stderr]
    if form == "json":
        assert redact("property-secret") in done.stdout


@pytest.mark.parametrize("words", ["store cat / --raw", "store cat / --hex", "store log --steps"])
def test_exact_bytes_are_not_redacted_by_halves(words: str, propertied: Path, cli: Cli) -> None:
    assert cli("--store", propertied, *words.split(), "--redact").exit_code == 2


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_dumped_files(form: str, secret: Path, cli: Cli, tmp_path: Path) -> None:
    common = ("topics", "dump", TOPIC, "--payload", "--value", "--format", form, "--directory", tmp_path / "d")
    assert cli("--store", secret, *common, "--redact").exit_code in (0, 1)
    (file,) = (tmp_path / "d").rglob("part-*")
    rows = (
        pq.read_table(file, partitioning=None).to_pylist()
        if form == "parquet"
        else [json.loads(line) for line in file.read_text().splitlines()]
    )
    for row in rows:
        assert row["payload"] == redact("payload-secret")
        assert row["key"] == redact("key-secret")
        assert row["orderingKey"] == redact("ordering-secret")
        assert dict(row["properties"]) == {"name": redact("value-secret")}
        assert row["sha1"] is None
    assert len(rows) == 3
    assert not [text for text in SECRETS if text.encode() in file.read_bytes()]


def test_entries_are_exact_bytes(secret: Path, cli: Cli) -> None:
    assert cli("--store", secret, "topics", "dump", TOPIC, "--level", "entries", "--redact").exit_code == 2


def test_the_data_source_hides_too(secret: Path) -> None:
    (piece,) = plan_slices(source_files(str(secret / "entries" / "0.log")), Cut())
    operation = ReadMessages(payload=True, redact=True)
    rows = [row for batch in operation.run(piece) for row in batch.to_pylist()]
    assert len(rows) == 3
    for row in rows:
        assert (row["payload"], row["key"]) == (redact("payload-secret"), redact("key-secret"))
        assert (row["ordering_key"], dict(row["properties"])) == (
            redact("ordering-secret"),
            {"name": redact("value-secret")},
        )
        assert all(batch.schema == operation.schema for batch in operation.run(piece))


def test_what_stands_instead() -> None:
    assert redact("") == "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855:0"
    assert redact(b"abc") == "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad:3"
    assert redact("\ud800").endswith(":3")
