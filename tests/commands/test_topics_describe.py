"""``topics describe`` and ``topics subscriptions --table`` against what the live brokers answered."""

from __future__ import annotations

import csv
import json
import shutil
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from pulsar_admin.store.names import encode_name
from tests.conftest import Cli
from tests.stores import imported
from tests.worlds import asked_topics, oracle

NOW = "2026-11-21T12:00:00Z"
Json = Any  # a JSON value


def text_of(position: Json) -> str:
    return f"{position['ledgerId']}:{position['entryId']}"


@pytest.mark.parametrize("world", ["small", "cluster"])
def test_every_topic_has_the_brokers_numbers(world: str, cli: Cli) -> None:
    store = imported(world, "clean")
    found = {
        row["topic"].removeprefix("persistent://"): row
        for row in cli("--store", store, "topics", "describe", "--all-topics", "--now", NOW, "-o", "json").json
    }
    compared = 0
    for topic, answers in asked_topics(world).items():
        row, internal = found[topic], answers["internal_stats"]
        assert (row["entries"], row["size"]) == (internal["numberOfEntries"], internal["totalSize"])
        assert text_of(row["lastConfirmed"]) == internal["lastConfirmedEntry"]
        sizes = {one["ledgerId"]: (one["entries"], one["size"]) for one in row["ledgers"]}
        for one in internal["ledgers"][:-1]:
            assert sizes[one["ledgerId"]] == (one["entries"], one["size"])
        if "txn" not in topic and answers["messages"] and not topic.endswith("chunked"):
            times = [message[3] for message in answers["messages"]]
            assert (row["firstPublish"], row["lastPublish"]) == (min(times), max(times))
            assert row["messages"] == len(times)
            compared += 1
        cursors = {encode_name(one["subscription"]): one for one in row["subscriptions"]}
        for name, cursor in internal["cursors"].items():
            if name != "pulsar.dedup":
                assert text_of(cursors[name]["markDelete"]) == cursor["markDeletePosition"]
                assert cursors[name]["ackRanges"] == cursor["totalNonContiguousDeletedMessagesRange"]
    assert compared > 10


def test_policies_are_those_of_the_namespace(cli: Cli) -> None:
    store = imported("small", "clean")
    for namespace, answers in oracle("small")["namespaces"].items():
        topics = [topic for topic in oracle("small")["topics"] if topic.rpartition("/")[0] == namespace]
        if not topics:
            continue
        said = answers.get("policies", answers)
        found = cli("--store", store, "topics", "describe", topics[0], "--quick", "-o", "json").json
        policies = {one["name"]: (one["value"], one["source"]) for one in found["policies"]}
        for ours, theirs in (("message-ttl", "message_ttl_in_seconds"), ("retention", "retention_policies")):
            expected = said.get(theirs)
            assert policies.get(ours) == (None if expected is None else (expected, "namespace"))


def test_the_table_leaves_out_what_says_nothing(cli: Cli) -> None:
    """No subscription of the plain topic delays anything, has a TTL, or acknowledgements behind its position."""
    store = imported("small", "mutated")
    text = cli("--store", store, "topics", "subscriptions", "public/default/plain", "--table", "--now", NOW).stdout
    header, *lines = text.splitlines()
    assert header.split() == ["SUBSCRIPTION", "POSITION", "BACKLOG", "MESSAGES", "OLDEST", "AGE", "CURSOR"]
    cursors = oracle("small")["topics"]["public/default/plain"]["internal_stats_after"]["cursors"]
    assert {line.split()[0]: line.split()[1] for line in lines} == {
        name: cursor["markDeletePosition"] for name, cursor in cursors.items()
    }


def test_several_topics_have_their_names_in_front(cli: Cli) -> None:
    arguments = ("topics", "subscriptions", "--pattern", "acme/*", "--table", "--now", NOW, "-o", "csv")
    rows = list(csv.DictReader(StringIO(cli("--store", imported("small", "clean"), *arguments).stdout)))
    expected = {
        (f"persistent://{topic}", name)
        for topic, answers in oracle("small")["topics"].items()
        if topic.startswith("acme/")
        for name in answers["subscriptions"]
    }
    assert {(row["TOPIC"], row["SUBSCRIPTION"]) for row in rows} == expected


def test_quick_reads_no_entries(cli: Cli, tmp_path: Path, damages_stores: None) -> None:
    """Without the files of entries metadata and index still answer."""
    store = tmp_path / "store"
    shutil.copytree(imported("small", "clean"), store)
    full = cli("--store", store, "topics", "describe", "acme/delayed/reminders", "--now", NOW, "-o", "json").json
    quick = cli("--store", store, "topics", "describe", "acme/delayed/reminders", "--quick", "-o", "json").json
    for one in full["subscriptions"]:
        assert one["delayed"]["entries"]
        assert one["oldestPublishTime"]
        one["delayed"] = one["oldestPublishTime"] = None
    assert json.dumps(quick) == json.dumps(full)


def test_an_unreadable_cursor_is_told_and_the_rest_is_shown(cli: Cli, tmp_path: Path, damages_stores: None) -> None:
    from pulsar_admin.store.db.environment import Txn, open_store
    from pulsar_admin.store.db.tree import Node, find_node, put_nodes
    from pulsar_admin.store.names import parse_topic

    store = tmp_path / "store"
    shutil.copytree(imported("small", "clean"), store)
    path = parse_topic("public/default/plain").cursor_path("half")

    def damage(txn: Txn) -> None:
        node = find_node(txn, path)
        put_nodes(txn, [Node(path, node.stat, b"\xff\xff")])

    with open_store(store, writable=True) as opened:
        opened.write(damage)
    result = cli("--store", store, "topics", "describe", "public/default/plain", "--now", NOW)
    assert result.exit_code == 1
    assert "half" in result.stderr
    assert "never" in result.stdout
    assert "\nhalf" not in result.stdout
