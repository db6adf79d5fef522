"""``--private-key``: encrypted topics of the recorded worlds as the consumer with the key read them, and keys that do not fit."""

import base64
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cryptography")

from tests.commands.test_topics_read import as_recorded
from tests.conftest import Cli
from tests.stores import imported
from tests.worlds import CLUSTER, asked_topics, oracle, world

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "encrypted"
SECRET = "acme/secure/secret"


def encrypted_topics(name: str) -> dict[str, list[Any]]:
    topics = asked_topics(name).items()
    return {
        topic: answers["messages"]
        for topic, answers in topics
        if topic.startswith("acme/secure/") and not topic.endswith("trimmed")
    }


@pytest.mark.parametrize(("name", "engine"), [("small", ()), ("small", ("--jobs", "2")), ("nometa", ()), (CLUSTER, ())])
@pytest.mark.parametrize("command", ["read", "dump"])
def test_every_encrypted_message_of_the_worlds(name: str, engine: tuple[str, ...], command: str, cli: Cli) -> None:
    topics = encrypted_topics(name)
    keys = ("--private-key", world(name) / "keys")
    result = cli.done("--store", imported(name, "clean"), "topics", command, *topics, *keys, *engine, "-o", "jsonl")
    assert [as_recorded(row) for row in result.json_lines] == [row for rows in topics.values() for row in rows]
    assert not any("encrypted" in row for row in result.json_lines)


def test_searching_behind_the_lock(cli: Cli) -> None:
    store, rows = imported("small", "clean"), encrypted_topics("small")[SECRET]
    keys = ("--private-key", world("small") / "keys" / "priv.pem")
    found = cli("--store", store, "topics", "search", SECRET, "--key", "k0009", *keys, "-o", "jsonl").json_lines
    assert [as_recorded(row) for row in found] == [row for row in rows if row[5] == "k0009"]
    everything = cli("--store", store, "topics", "read", SECRET, "--payload", *keys, "-o", "jsonl").json_lines
    text = "a"
    expected = [row for row in everything if text.encode() in base64.b64decode(row["payload"])]
    found = cli.done("--store", store, "topics", "search", SECRET, "--text", text, "--payload", *keys, "-o", "jsonl")
    assert found.json_lines == expected != []


def test_a_wrong_key_costs_the_messages_it_is_not_for_and_reading_goes_on(cli: Cli) -> None:
    store, wrong = imported("small", "clean"), ("--private-key", GOLDEN / "rsa.priv.pem")
    plain = "public/default/plain"
    result = cli("--store", store, "topics", "read", SECRET, plain, *wrong, "-o", "jsonl")
    assert result.exit_code == 1
    assert "is encrypted for k1: 1 private key that was given is for none of these" in result.stderr
    rows = result.json_lines
    sealed = {(row[0], row[1]) for row in encrypted_topics("small")[SECRET]}
    assert [(row["ledgerId"], row["entryId"]) for row in rows if row.get("encrypted")] == sorted(sealed)
    assert len([row for row in rows if not row.get("encrypted")]) == len(asked_topics("small")[plain]["messages"])
    first = encrypted_topics("small")[SECRET][0]
    cli("--store", store, "topics", "get-message-by-id", SECRET, "-l", first[0], "-e", first[1], *wrong).ends(7)


def test_entries_are_dumped_as_they_are(cli: Cli) -> None:
    line = f"topics dump {SECRET} --level entries --private-key {GOLDEN / 'rsa.priv.pem'}"
    cli.on(imported("small", "clean"), line).ends(2, "--private-key: entries are exact bytes")


@pytest.mark.parametrize("given", [False, True], ids=["closed", "opened"])
def test_properties_of_an_encrypted_batch_are_those_that_the_broker_said(given: bool, cli: Cli) -> None:
    key = ("--private-key", world("small") / "keys" / "priv.pem") if given else ()
    asked = oracle("small")["topics"][SECRET]["peek"]
    assert asked
    for one in asked:
        place = ("-l", one["ledger"], "-e", one["entry"])
        said = cli("--store", imported("small", "clean"), "topics", "get-message-by-id", SECRET, *place, *key).stdout
        expected = {name: one["headers"][name] for name in ("X-Pulsar-batch-size", "X-Pulsar-num-batch-message")}
        shown = [line.split("    ") for line in said.splitlines() if line.startswith("X-Pulsar-")]
        assert dict(shown) == expected
