"""What is stored of tenants, clusters, namespaces …: each amount in its place, and changes beside what is so already."""

import json
import re
import shlex
from pathlib import Path

import pytest

from pulsar_admin.store.changes.plan import ChangeKind
from pulsar_admin.store.changes.resources import NodeChange, plan_nodes, read_cluster_file
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.errors import InvalidValue
from pulsar_admin.store.model.resources import find_expression, find_json, tenant_path
from pulsar_admin.store.names import parse_namespace
from tests.conftest import Cli
from tests.stores import imported, narrow_copy, put_node, read_rows

_ISOLATION = (
    "ns-isolation-policy set standalone {} --namespaces a/.* --primary b1 --auto-failover-policy-type min_available"
    " --auto-failover-policy-params"
)


def test_a_namespace_that_is_not_there_gets_no_bookies(cli: Cli, store: Path) -> None:
    for namespace, code in (("acme/none", 5), ("acme/iot", 0)):
        assert cli("--store", store, "namespaces", "set-bookie-affinity-group", namespace, "-pg", "a").exit_code == code


def test_what_is_so_already_stops_nothing_that_follows() -> None:
    """A change without a step, wherever it stands among others, is a part of the report alone."""
    with open_store(imported("small", "clean")) as opened, opened.read() as txn:
        acme, public, new, gone = (tenant_path(name) for name in ("acme", "public", "new", "gone"))
        same = NodeChange("same", acme, find_json(txn, acme))
        nothing = NodeChange("nothing", gone, None)
        changes = [
            NodeChange("changed", public, {"adminRoles": ["ops"]}),
            NodeChange("made", new, {}),
            NodeChange("deleted", acme, None),
        ]
        for given in (
            [same, nothing, *changes],
            [changes[0], same, changes[1], nothing, changes[2]],
            [*changes, nothing, same],
        ):
            plan = plan_nodes(txn, ChangeKind("test", "test"), given, 1, ["a warning"])
            assert [step.key.decode() for step in plan.steps] == [public, new, acme]
            assert [step.before is None for step in plan.steps] == [False, True, False]
            assert [step.after is None for step in plan.steps] == [False, False, True]
            assert [part.resource for part in plan.parts] == [change.resource for change in given]
            assert plan.warnings == ("a warning",)
        assert plan_nodes(txn, ChangeKind("test", "test"), [same, nothing], 1).steps == ()


def test_a_tenant_goes_with_no_replicated_namespace(cli: Cli, tmp_path: Path, damages_stores: None) -> None:
    """``TenantsBase`` (4.0.8) deletes each namespace as ``NamespacesBase.internalDeleteNamespaceAsync`` does."""
    path, name = narrow_copy(tmp_path), parse_namespace("public/default")
    policies = read_rows(path, lambda txn: find_json(txn, name.policies_path) or {})
    put_node(path, name.policies_path, json.dumps({**policies, "replication_clusters": ["standalone", "b"]}).encode())
    for words in (("namespaces", "delete", name), ("tenants", "delete", "public")):
        cli("--store", path, *words, "--force", "-y").ends(3, "still more than one replication clusters")


def test_a_file_of_a_clusters_settings_is_json_or_lines_of_yaml(tmp_path: Path) -> None:
    file = tmp_path / "west.yaml"
    meant = {"serviceUrl": "http://west:8080#1", "brokerClientTlsEnabled": True, "peerClusterNames": ["a", "b c"]}
    lines = """---
# a cluster

serviceUrl: http://west:8080#1  # of its proxy
brokerClientTlsEnabled: true
peerClusterNames: [a, 'b c',]
brokerServiceUrl: ~
unknownKey: "x"
"""
    for text in (lines, json.dumps({**meant, "brokerServiceUrl": None, "unknownKey": "x"})):
        file.write_text(text)
        assert read_cluster_file(file) == meant
    for text, said in (
        (" serviceUrl: x", "line 1: ' serviceUrl: x' is not key: value"),
        ("---\n- serviceUrl: x", "line 2: '- serviceUrl: x' is not"),
        ("\nserviceUrl", "line 2: 'serviceUrl' is not"),
        ("[1]", "expected keys of a cluster"),
    ):
        file.write_text(text)
        with pytest.raises(InvalidValue, match=re.escape(said)):
            read_cluster_file(file)


REFUSALS = [
    ("namespaces set-anti-affinity-group public/default -g ''", "antiAffinityGroup can't be empty"),
    ("namespaces set-anti-affinity-group public/default -g ' '", "antiAffinityGroup can't be empty"),
    ("namespaces grant-permission public/default --role '' --actions produce", "as the name of a role"),
    ("namespaces revoke-permission public/default --role ''", "as the name of a role"),
    ("topics grant-permission public/default/plain -r '' -a produce", "as the name of a role"),
    ("topics revoke-permission public/default/plain -r ''", "as the name of a role"),
    ("namespaces grant-subscription-permission public/default -s '' -rs r", "as the name of a subscription"),
    ("tenants create new -r ' ops' -c standalone", "AdminRoles contains whitespace in the beginning or end."),
    ("tenants update public -r ' '", "AdminRoles contains whitespace in the beginning or end."),
    ("tenants create .. -c standalone", "is empty, . or .."),
    ("namespaces create public/.", "is empty, . or .."),
    (
        "namespaces create public/west/new",
        "Cluster [west] is not in the list of allowed clusters list for tenant [public]",
    ),
    ("namespaces create public/new -b 2147483647", "2,147,483,647 bundles of public/new: expected at most 80,659"),
    ("clusters create . --url http://h:8080", "is empty, . or .."),
    ("topics create public/default/..", "is empty, . or .."),
    ("topics create-subscription public/default/plain -s .", "is empty, . or .."),
    ("resourcegroups create a/b", "as the name of a resource group"),
    ("clusters create-failure-domain standalone --domain-name a/b --broker-list b1", "as the name of a failure domain"),
    (
        f"{_ISOLATION.format('i')} min_limit=2147483648,usage_threshold=80",
        "Invalid format of input policy data. policy: i",
    ),
    (
        f"{_ISOLATION.format('i')} min_limit=-2147483649,usage_threshold=80",
        "Invalid format of input policy data. policy: i",
    ),
    (
        f"{_ISOLATION.format('i').replace('a/.*', 'a{1,2}')} min_limit=1,usage_threshold=80",
        "Invalid format of input policy data.",
    ),
    (f"{_ISOLATION.format('a/b')} min_limit=1,usage_threshold=80", "as the name of an isolation policy"),
    ("topics create public/default/a-partition--1", "numeric value if there isn't a partitioned topic a created."),
    ("topics create public/default/a-partition-00", "numeric value if there isn't a partitioned topic a created."),
]
"""Lines that a broker of 4.0.8 refused too, in its words or with 404 and 405 for an address that it does not have; but for the
bundles, for which it has no limit: 80,659 bounds of 13 bytes are the MiB less one byte that ZooKeeper takes by default."""


@pytest.mark.parametrize(("line", "refused"), REFUSALS, ids=[line for line, _ in REFUSALS])
def test_what_upstream_refuses(cli: Cli, tmp_path: Path, line: str, refused: str) -> None:
    said = cli("--store", narrow_copy(tmp_path), *shlex.split(line))
    assert (said.exit_code, said.stdout) in ((2, ""), (3, "")), said.stderr
    assert refused in said.stderr


EXPRESSIONS = {
    **dict.fromkeys(("a/[", "*", "a/x{2", "(?P<n>a)", "a{,3}", "(?(1)a)", "\\", "\\k<n>", "a**", "b[1"), False),
    **dict.fromkeys(
        ("a/.*", "1}", "a{2}", "[{]", "\\{", "a/(?<n>x)", "(?<!a)b", "\\z", "(?i)a", "a++", "[a&&b]"), True
    ),
}
"""Patterns, and whether brokers of 4.0.8 and 5.0.1 took them in an isolation policy."""


@pytest.mark.parametrize(("pattern", "is_taken"), EXPRESSIONS.items())
def test_patterns_are_javas(pattern: str, is_taken: bool) -> None:
    assert (find_expression(pattern) is not None) is is_taken


_PEERS = "standalone's peer-clusters [west] can't be part of replication-clusters [standalone, west]"
_SUBSCRIPTIONS = "Exceed the maximum number of subscriptions of the topic: persistent://two/a/"
IN_TURN = [
    ("clusters create west --url http://west:1", ""),
    ("tenants create two -c standalone,west", ""),
    ("namespaces create two/a -c standalone", ""),
    ("namespaces set-allowed-clusters two/a -c standalone", ""),
    (
        "namespaces set-clusters two/a -c standalone,west",
        "is not in the list of allowed clusters list for namespace [two/a]",
    ),
    ("namespaces create two/b -c standalone", ""),
    ("clusters update-peer-clusters standalone --peer-clusters west", ""),
    ("namespaces set-clusters two/b -c standalone,west", _PEERS),
    ("namespaces set-allowed-clusters two/b -c standalone,west", _PEERS),
    ("namespaces create two/c -c standalone,west", ""),
    ("namespaces set-max-topics-per-namespace two/a -t 2", ""),
    ("topics create two/a/one", ""),
    ("topics create-partitioned-topic two/a/p -p 2", "Exceed maximum number of topics in namespace."),
    ("topics create two/a/two", ""),
    ("topics create two/a/three", "Exceed maximum number of topics in namespace."),
    ("namespaces set-max-topics-per-namespace two/a -t 3", ""),  # as the refusal printed
    ("topics create two/a/three", ""),
    ("namespaces set-max-subscriptions-per-topic two/a -m 1", ""),
    ("topics create-subscription two/a/one -s one", ""),
    ("topics create-subscription two/a/one -s two", f"{_SUBSCRIPTIONS}one"),
    ("topicPolicies set-max-subscriptions-per-topic two/a/two -s 2", ""),
    ("topics create-subscription two/a/two -s one", ""),
    ("topics create-subscription two/a/two -s two", ""),
    ("topics create-subscription two/a/two -s three", f"{_SUBSCRIPTIONS}two"),
]
"""Lines one after the other, and what a broker of 4.0.8 refused them with."""


def test_what_upstream_refuses_for_what_was_set_before(cli: Cli, tmp_path: Path) -> None:
    store = narrow_copy(tmp_path)
    for line, refused in IN_TURN:
        said = cli.on(store, line)
        assert (said.exit_code in (2, 3), refused in said.stderr) == (bool(refused), True), (line, said.stderr)
        if line == "topics create two/a/three" and refused:
            assert said.stderr.endswith("set-max-topics-per-namespace two/a --max-topics-per-namespace 3\n")
