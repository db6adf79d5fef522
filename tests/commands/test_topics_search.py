"""``topics search``: against what the real client read of the recorded worlds, whatever runs the scan."""

import hashlib
import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import pulsar_admin
from pulsar_admin.store.names import parse_topic
from tests.conftest import Cli
from tests.deep import deep_but_for
from tests.stores import imported, put_node
from tests.synthetic import Made, MadeTopic, make_store
from tests.why.planted import TOPIC, Planted, plant
from tests.worlds import CLUSTER, asked_topics

LEDGER, ENTRY, BATCH, PUBLISHED, EVENT, KEY, _, _, SHA1, PROPERTIES, PRODUCER = range(11)
Row = list[Any]  # of the oracle


def searched(cli: Cli, store: Path, *arguments: str, exit_code: int = 0) -> list[Any]:
    result = cli("--store", store, "topics", "search", *arguments, "-o", "jsonl")
    assert result.exit_code == exit_code, result.stderr
    return result.json_lines


def ids(rows: list[Any]) -> list[tuple[Any, ...]]:
    return [(row["topic"], row["ledgerId"], row["entryId"], row["batchIndex"]) for row in rows]


@cache
def recorded(world: str) -> dict[str, list[Row]]:
    """What a client with the key read, by topic; encrypted topics left out."""
    return {
        f"persistent://{topic}": answers["messages"]
        for topic, answers in sorted(asked_topics(world).items())
        if not topic.startswith("acme/secure/") or topic.endswith("/trimmed")
    }


def expected(world: str, is_wanted: Callable[[Row], bool]) -> list[tuple[Any, ...]]:
    return [(topic, *row[:3]) for topic, rows in recorded(world).items() for row in rows if is_wanted(row)]


QUESTIONS: list[tuple[tuple[str, ...], Callable[[Row], bool]]] = [
    (("--key", "k0003"), lambda row: row[KEY] == "k0003"),
    (("--key", "k0003", "--key", "k0021"), lambda row: row[KEY] in ("k0003", "k0021")),
    (("--key-prefix", "k000"), lambda row: row[KEY].startswith("k000")),
    (("--property", "i=7"), lambda row: row[PROPERTIES].get("i") == "7"),
    (("--property", "src"), lambda row: "src" in row[PROPERTIES]),
    (("--property", "i=7", "--property", "src=x"), lambda row: row[PROPERTIES] == {"i": "7", "src": "x"}),
    (("--producer", "codec-lz4"), lambda row: row[PRODUCER] == "codec-lz4"),
    (("--producer", "codec-zstd", "--key-prefix", "k"), lambda row: row[PRODUCER] == "codec-zstd" and row[KEY] != ""),
]


@deep_but_for(
    (0, 3),
    ("world", "engine", "chosen"),
    [
        ("small", (), slice(None)),
        ("nometa", (), slice(2, 4)),
        (CLUSTER, (), slice(2, 4)),
        ("small", ("--jobs", "2"), slice(2, 4)),
    ],
)
def test_what_is_found_is_what_the_client_read(world: str, engine: tuple[str, ...], chosen: slice, cli: Cli) -> None:
    topics = list(recorded(world))
    found = 0
    for question, is_wanted in QUESTIONS[chosen]:
        wanted = expected(world, is_wanted)
        rows = searched(cli, imported(world, "clean"), *topics, *question, *engine, exit_code=0 if wanted else 5)
        assert ids(rows) == wanted, question
        found += len(rows)
    assert found > 300


@pytest.mark.parametrize("clock", ["publish", "event"])
def test_times(clock: str, cli: Cli) -> None:
    column = PUBLISHED if clock == "publish" else EVENT
    times = sorted(row[column] for rows in recorded("small").values() for row in rows if row[column])
    start, end = times[len(times) // 3], times[len(times) // 2]
    wanted = expected("small", lambda row: row[KEY].startswith("k00") and start <= row[column] < end)
    window = ("--start-time", f"@{start}", "--end-time", f"@{end}", "--clock", clock, "--key-prefix", "k00")
    assert wanted
    assert ids(searched(cli, imported("small", "clean"), *recorded("small"), *window)) == wanted


@cache
def payloads() -> list[tuple[tuple[Any, ...], bytes]]:
    """The payloads of all messages of ``small`` by their ids: those of the digests that the client saw."""
    found = []
    with pulsar_admin.open_store(imported("small", "clean")) as store:
        for topic, rows in recorded("small").items():
            read = [row["payload"] for row in store.topic(topic).messages(columns=["payload"]).rows()]
            assert [hashlib.sha1(one, usedforsecurity=False).hexdigest() for one in read] == [row[SHA1] for row in rows]
            found += [((topic, *row[:3]), one) for row, one in zip(rows, read, strict=True)]
    return found


@deep_but_for(
    (0, 2, 4, 5),
    ("question", "pattern"),
    [
        (("--text", "item-5"), b"item-5"),
        (("--text", "a7"), b"a7"),
        (("--text", "A7", "-i"), b"(?i)a7"),
        (("--text", "aa7", "--text", "bb"), b"aa7|bb"),
        (("--regex", "^.{0,9}[0-9]{2}"), rb"\A.{0,9}[0-9]{2}"),
        (("--regex", "[a-c]{2}", "--jobs", "2"), rb"[a-c]{2}"),
    ],
)
def test_payloads(question: tuple[str, ...], pattern: bytes, cli: Cli) -> None:
    found = [place for place, payload in payloads() if re.search(pattern, payload)]
    assert found
    assert ids(searched(cli, imported("small", "clean"), *recorded("small"), *question)) == found


def test_bytes_that_are_no_text(cli: Cli) -> None:
    found = [place for place, payload in payloads() if b"\xff\x00" in payload or b"\xfe\xfe" in payload]
    assert found
    question = ("--text", "\udcff\x00", "--text", "\udcfe\udcfe")
    assert ids(searched(cli, imported("small", "clean"), *recorded("small"), *question)) == found


AVRO, JSON = "persistent://public/default/avro", "persistent://public/default/json"


def test_a_value_that_was_sent_without_a_schema_is_taken_for_json(cli: Cli, tmp_path: Path) -> None:
    bodies = [b'{"order":{"id":42}}', b"no JSON", b'{"order":{"id":"42"}}', b'{"order":{"id":43}}', b"[" * 100_000]
    entries = [Made(1_700_000_000_000 + number, payload=body) for number, body in enumerate(bodies)]
    store = make_store(tmp_path / "store", {"persistent://public/default/t": MadeTopic([entries])})
    found = searched(cli, store, "--all-topics", "--json-path", "$.order.id=42")
    assert [row["entryId"] for row in found] == [0, 2]


@pytest.mark.parametrize("sides", [("-B", "2"), ("-A", "3"), ("-C", "2"), ("-C", "1", "-A", "0"), ("-B", "100")])
def test_context_is_what_grep_would_show(sides: tuple[str, ...], cli: Cli) -> None:
    topic = "persistent://public/default/batched"
    before, after = {"-B2": (2, 0), "-A3": (0, 3), "-C2": (2, 2), "-C1-A0": (1, 0), "-B100": (100, 0)}["".join(sides)]
    rows = recorded("small")[topic]
    hits = [number for number, row in enumerate(rows) if row[KEY] == "k0003"]
    shown = sorted({near for hit in hits for near in range(hit - before, hit + after + 1) if 0 <= near < len(rows)})
    found = searched(cli, imported("small", "clean"), topic, "--key", "k0003", *sides)
    assert ids(found) == [(topic, *rows[number][:3]) for number in shown]
    assert [not row.get("context") for row in found] == [number in hits for number in shown]


def test_what_cannot_be_read_is_not_said_to_be_nowhere(tmp_path: Path, cli: Cli, damages_stores: None) -> None:
    path = plant(tmp_path / "s", Planted())
    assert cli("--store", path, "topics", "search", TOPIC, "--text", "no such").exit_code == 5
    (path / "entries" / "0.log").unlink()
    result = cli.on(path, f"topics search {TOPIC} --text x").ends(1)
    assert "no message matches" not in result.stderr


@pytest.mark.usefixtures("damages_stores")
def test_nothing_found_beside_a_topic_that_cannot_be_read_is_an_empty_list(tmp_path: Path, cli: Cli) -> None:
    path = plant(tmp_path / "s", Planted())
    put_node(path, parse_topic("public/default/damaged").path, b"\xff")
    for form, shown in (("json", []), ("jsonl", None)):
        result = cli("--store", path, "topics", "search", "--all-topics", "--text", "no such", "-o", form)
        assert result.exit_code == 1
        assert "damaged" in result.stderr
        assert json.loads(result.stdout or "null") == shown


def test_the_first_of_all_topics(cli: Cli) -> None:
    wanted = expected("small", lambda row: row[KEY] == "k0003")
    assert ids(searched(cli, imported("small", "clean"), *recorded("small"), "--key", "k0003", "-n", "3")) == wanted[:3]


def test_what_is_encrypted_and_cannot_be_told_is_counted(cli: Cli) -> None:
    store = imported("small", "clean")
    result = cli.on(store, "topics search acme/secure/secret-single --text a")
    assert result.exit_code == 1
    assert "10 encrypted entries cannot be read and may contain matches" in result.stderr
    # The key of a message that is alone in its entry can be read.
    found = searched(cli, store, "acme/secure/secret-single", "--key", "k0009")
    assert found
    assert {row["key"] for row in found} == {"k0009"}
    # What cannot be from another producer is not looked into.
    assert searched(cli, store, "acme/secure/secret", "--producer", "nobody", "--text", "a", exit_code=5) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--regex", "(a"), "not a regular expression: '(a'"),
        (("--regex", r"(a)\1"), "not a regular expression"),
        (("--json-path", "order.id=42"), "is not a path into a value"),
        (("--json-path", "$..id"), "'..id' is not understood"),
        (("--property", "=5"), "names no property"),
        (("--key", "\udcff"), "is not text in UTF-8"),
        (("--property", "a=\udcff"), "is not text in UTF-8"),
        (("--text", "\udcff", "-i"), "is not text in UTF-8"),
        (("--text", ""), "an empty text is in every message"),
        (("-n", "0"), "0 is not a 64-bit number of 1 or more"),
        (("-n", "9" * 40), f" {'9' * 40} is not a 64-bit number"),
        (("-n", "9" * 41), f" {'9' * 40}… is not a 64-bit number"),
    ],
)
def test_what_cannot_be_looked_for(options: tuple[str, ...], said: str, cli: Cli) -> None:
    cli("--store", imported("small", "clean"), "topics", "search", "--all-topics", *options).ends(2, said)
