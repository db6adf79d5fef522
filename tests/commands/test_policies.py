"""Every policy command against the real pulsar-admin 4.0.8: what it printed and refused, and what its broker then had stored."""

import json
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from pulsar_admin import lookup
from pulsar_admin.lookup import policy_rows
from pulsar_admin.store.changes.plan import ChangeKind, Plan, apply_plan, put_value_step
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.names import LONG_MAX
from pulsar_admin.upstream_list import upstream_commands
from tests.conftest import Cli
from tests.live.policy_commands import LINES, STORED, commands_of, stored_policies
from tests.stores import lose_nodes, narrow_copy, read_rows

RECORDED: dict[str, Any] = json.loads(STORED.read_text())
IGNORED = {"is_allow_auto_update_schema", "dispatcherPauseOnAckStatePersistentEnabled"}
"""4.0.8 writes the first beside any other member once it was asked for: its default, merged into what its cache holds. It does not
wait for a topic's event of the second, which the next change may overtake: two recordings differ in it."""
OTHER_WORDS = {"bad", "full", "pol/none", "nope/none", "pol/b/none", "pol/none/x", "non-persistent://pol/b/x"}
"""What is not there, or has no valid name, is refused in the words of all our commands."""
NOT_KNOWN = {"set-entry-filters", "set-entry-filters-per-topic", "get-entry-filters", "get-entry-filters-per-topic"}
"""Which filters a broker has is in no store: any name is taken."""


UNHEARD = {f"topicPolicies set-replication-clusters pol/b/t -c {names}" for names in ("standalone,x", "global")}
"""The real command does not wait for the broker, which refused these (412) and stored nothing; here they are refused."""
UNORDERED = {"get-subscription-types-enabled", "get-backlog-quotas", "get-backlog-quota"}


def _blocks() -> Iterator[tuple[str, str, str, int]]:
    """Yield (command, stdout, the first line of stderr, exit code) as recorded."""
    for block in LINES.read_text().split("$ ")[1:]:
        command, *rest = block.splitlines()
        refused = next((line[2:] for line in rest if line.startswith("! ")), "")
        code = next((int(line[2:]) for line in rest if line.startswith("? ")), 0)
        yield command, "".join(f"{line}\n" for line in rest if line[:2] not in ("! ", "? ")), refused, code


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    """The narrow store with the recorded nodes in it."""
    path = narrow_copy(tmp_path)
    with open_store(path, writable=True) as store:
        with store.read() as txn:
            nodes = {name: bytes.fromhex(value) for name, value in RECORDED["nodes"].items()}
            steps = tuple(put_value_step(txn, name, value, 0) for name, value in nodes.items())
            plan = Plan(ChangeKind("store init", "store init"), txn.id, steps, ())
        apply_plan(store, plan, 0)
    return path


def _namespace(words: Sequence[str]) -> str:
    """The one of ``SHARES`` that a command line is about: no line of one of them changes what another has stored."""
    named = next((word for word in words[2:] if "pol/" in word), "")
    return next((name for name in SHARES if name in named), "")


SHARES = ("pol/a", "pol/b", "")
COMPACTED_EVERY = 40
"""Command lines after which the events of topic policies are compacted, as at a broker: else each command reads those of all before it."""


@pytest.mark.parametrize("share", SHARES)
def test_the_recorded_lines(share: str, cli: Cli, prepared: Path) -> None:
    differ, asked = [], 0
    for command, stdout, refused, code in _blocks():
        words = shlex.split(command)
        if _namespace(words) != share:
            continue
        asked += 1
        if share == "pol/b" and asked % COMPACTED_EVERY == 0:
            assert cli("--store", prepared, "-q", "compaction", "run", f"{share}/__change_events").exit_code == 0
        said = cli("--store", prepared, "-q", *words)
        reason = refused.rpartition("Exception: ")[2].strip()
        if (said.stdout, bool(said.exit_code)) != (stdout, bool(code)) or (code and reason not in said.stderr):
            if reason and OTHER_WORDS.intersection(words[2:]) and said.exit_code:
                continue
            if words[1] in NOT_KNOWN or (command in UNHEARD and said.exit_code):
                continue
            if words[1] in UNORDERED and _any_order(said.stdout) == _any_order(stdout):
                continue
            differ.append(
                f"$ {command}\n--- real ({code})\n{stdout}{refused}\n--- ours ({said.exit_code})\n{said.stdout}{said.stderr}"
            )
    assert asked > 100
    found = read_rows(prepared, stored_policies)
    for name, values in RECORDED["stored"].items():
        for key in {*values, *found.get(name, {})} - IGNORED if _namespace(("", "", name)) == share else ():
            theirs, ours = values.get(key), found.get(name, {}).get(key)
            if theirs != ours and _comparable(theirs) != _comparable(ours):
                differ.append(f"{name} {key}: real {theirs}, ours {ours}")
    assert not differ, "\n".join(differ)


def _any_order(stdout: str) -> list[str]:
    """The members of a set, or the lines of a map: upstream's order is that of objects' addresses."""
    return sorted(json.loads(stdout) if stdout.startswith("[") else stdout.splitlines())


def _comparable(value: Any) -> Any:
    """Members that are null are as those that are not there: AVRO writes them, JSON does not."""
    return {key: part for key, part in value.items() if part is not None} if isinstance(value, dict) else value


@pytest.mark.parametrize("group", lookup.OF_POLICIES)
def test_every_policy_command_is_recorded(group: str) -> None:
    asked = {" ".join(shlex.split(line)[:2]) for line in commands_of(LINES.read_text())}
    older = {
        path for path, row in upstream_commands().items() if "since" not in row
    }  # of 5.0: golden/answers-5.0.1.txt
    unasked = older.intersection(f"{group} {name}" for name in policy_rows(group)) - asked
    assert unasked == UNRECORDED.get(group, set())


UNRECORDED: dict[str, set[str]] = {
    "topicPolicies": {"topicPolicies get-dispatcher-pause-on-ack-state-persistent"}  # 4.0.8 prints a future of its own
}


_NO_LOCAL = "Can not remove local cluster from the local topic-level replication clusters policy"
_NO_REPLICATION = "Please do not use the global topic level policy when namespace-level replication is not enabled"
REFUSALS = [
    ("namespaces set-offload-policies pol/a -d azureblob", "The bucket must be specified for namespace offload."),
    ("topics set-offload-policies pol/b/t -d aws-s3 -r x", "The bucket must be specified for namespace offload."),
    ("topicPolicies set-offload-policies pol/b/t -d azureblob -b x -m 0", "maxBlockSizeInBytes cannot be less than"),
    ("topicPolicies set-offload-policies pol/b/t -d azureblob -b x -rb=-2", "readBufferSizeInBytes cannot be less"),
    ("topics set-offload-policies pol/b/t -d azureblob -b x -m 0", ""),
    ("namespaces set-offload-policies pol/a -d filesystem", ""),
    ("topics set-replication-clusters pol/b/t -c x", _NO_LOCAL),
    ("topics set-replication-clusters pol/b/t -c ,", "ClusterIds should not be null or empty"),
    ("topics set-replication-clusters pol/b/t -c standalone,", ""),
    ("topicPolicies set-replication-clusters pol/b/t -c standalone,x", "Invalid cluster id: x"),
    ("topicPolicies set-replication-clusters pol/b/t -c global", "Cannot specify global in the list"),
    ("topicPolicies set-replication-clusters pol/b/t -c west", _NO_LOCAL),
    ("topicPolicies set-replication-clusters pol/b/t -g -c standalone", _NO_REPLICATION),
    ("namespaces set-clusters pol/a -c ,", "ClusterIds should not be null or empty"),
    ("namespaces set-clusters pol/a -c standalone,", ""),
    ("topics set-shadow-topics pol/b/p -t pol/b/t,", ""),
    ("namespaces set-entry-filters pol/a -efn ,", "entryFilterNames can't be empty"),
    ("namespaces set-message-ttl pol/a -ttl 1ms", "1 ms: this policy has whole seconds"),
]
"""Lines, and the first words of what a broker of 4.0.8 refuses them with."""


@pytest.mark.parametrize(("line", "refused"), REFUSALS, ids=[line for line, _ in REFUSALS])
def test_what_upstream_refuses(cli: Cli, prepared: Path, line: str, refused: str) -> None:
    said = cli("--store", prepared, *line.split())
    assert said.exit_code == (2 if refused else 0), said.stderr
    assert refused in said.stderr


WRONG = {
    "offload_policies": (
        "get-offload-policies pol/a",
        "set-offload-threshold pol/a -s 10M",
        "clear-offload-deletion-lag pol/a",
    ),
    "publishMaxMessageRate": ("get-publish-rate pol/a", "set-publish-rate pol/a -m 4"),
    "backlog_quota_map": ("get-backlog-quotas pol/a", "set-backlog-quota pol/a -l 1K -p producer_exception"),
    "retention_policies": ("get-retention pol/a", "set-backlog-quota pol/a -l 1K -p producer_exception"),
    "replication_clusters": ("get-clusters pol/a", "set-dispatch-rate pol/a -md 4"),
}


@pytest.mark.parametrize("member", WRONG)
def test_a_member_of_another_kind_is_damage(cli: Cli, prepared: Path, member: str) -> None:
    path = "/admin/policies/pol/a"
    stored = json.loads(bytes.fromhex(RECORDED["nodes"][path])) | {member: "x"}
    with open_store(prepared, writable=True) as store:
        with store.read() as txn:
            plan = Plan(
                ChangeKind("store init", "store init"),
                txn.id,
                (put_value_step(txn, path, json.dumps(stored).encode(), 0),),
                (),
            )
        apply_plan(store, plan, 0)
    for line in WRONG[member]:
        said = cli("--store", prepared, "namespaces", *line.split())
        assert (said.exit_code, said.stdout) == (6, ""), line
        assert f"{path}: {member}: expected an" in said.stderr


STORED_VALUES = [
    ("topics set-replication-clusters pol/b/t -c standalone,standalone", '["standalone","standalone"]'),
    ("topics set-subscription-types-enabled pol/b/t -t Shared,Shared", '["Shared"]'),
    ("topicPolicies set-subscription-types-enabled pol/b/t -t Key_Shared,Shared,Key_Shared", '["Key_Shared","Shared"]'),
    (f"namespaces set-retention pol/a -t 10m -s {LONG_MAX}", f'"retentionSizeInMB":{LONG_MAX >> 20}'),
    ("namespaces set-retention pol/a -t 119s -s 2097151", '{"retentionTimeInMinutes":1,"retentionSizeInMB":1}'),
    ("namespaces set-schema-autoupdate-strategy pol/a -c None", "AlwaysCompatible"),
    ("namespaces set-auto-topic-creation pol/a -d -n 2", '"defaultNumPartitions":2'),
    ("namespaces set-auto-topic-creation pol/a -e -t Partitioned -n 2", '"topicType":"partitioned"'),
]
"""Lines, and what a broker of 4.0.8 stores of them; the order of subscription types is that of objects' addresses there."""


@pytest.mark.parametrize(("line", "stored"), STORED_VALUES, ids=[line for line, _ in STORED_VALUES])
def test_values_are_stored_as_a_broker_does(cli: Cli, prepared: Path, line: str, stored: str) -> None:
    (change,) = cli.rows(prepared, line)
    after = (change.get("parts") or [change])[0]["after"]
    assert stored in json.dumps(after, separators=(",", ":")), after


def test_clusters_that_were_not_imported_are_not_missing(cli: Cli, prepared: Path) -> None:
    lose_nodes(prepared, "/admin/clusters/standalone")
    for line in ("topics set-replication-clusters pol/b/t -c standalone", "tenants create other -c standalone"):
        cli.on(prepared, line).ends(0)


def test_a_quota_of_as_much_as_is_retained_is_refused(cli: Cli, tmp_path: Path) -> None:
    from tests.stores import copied

    store = copied("small", "clean", tmp_path)
    quota = "set-backlog-quota public/default/plain -lt 3600 -p producer_exception -t message_age"
    assert cli.on(store, f"topicPolicies {quota}").exit_code == 0
    for minutes, code in ((60, 2), (61, 0)):
        answer = cli.on(store, f"topicPolicies set-retention public/default/plain -t {minutes}m -s -1")
        assert answer.exit_code == code, answer.stderr


def test_every_update_strategy(cli: Cli, tmp_path: Path) -> None:
    store, before = narrow_copy(tmp_path), "none"
    for given, stored in (("full", "Full"), ("BACKWARD", "Backward"), ("Forward", "Forward")):
        words = ("namespaces", "set-schema-autoupdate-strategy", "public/default", "--compatibility", given)
        said = cli.done("--store", store, *words).stderr
        assert f"schema_auto_update_compatibility_strategy: {before} -> {stored}\n" in said
        assert cli.on(store, "namespaces get-schema-autoupdate-strategy public/default").stdout == f"{given.upper()}\n"
        before = stored
