"""Both parts of the policy change together, can be undone, and warn of what drops messages before they are due."""

import json
from pathlib import Path

import pytest

from pulsar_admin.store.codec.policies import BacklogQuota, encode_policies
from pulsar_admin.store.codec.policies import Policies as StoredPolicies
from pulsar_admin.store.db.environment import open_store
from tests.commands.changing import rows_of
from tests.conftest import Cli
from tests.delayed.test_build import skip
from tests.delayed.world import TOPIC, build, held, index_of
from tests.stores import copied, in_store, put_node, read_rows

NAMESPACE = "acme/delayed"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return copied("small", "clean", tmp_path)


def stored(cli: Cli, path: Path) -> dict[str, object]:
    policies: dict[str, object] = cli.json(path, f"namespaces policies {NAMESPACE}")
    return policies


def test_enable_writes_both_parts(cli: Cli, path: Path) -> None:
    before = stored(cli, path)
    rows = rows_of(path, "tree", "delayed")
    done = cli.done("--store", path, *f"namespaces enable-delayed-message {NAMESPACE} -p 1h -t 500ms -o json".split())
    assert done.json["before"]["tickTime"] == 2000
    after = stored(cli, path)
    # The world's own policy has a maximum delay of ten days: it stays, as does every other key, in its place.
    assert after == {
        **before,
        "delayed_delivery_policies": {"tickTime": 500, "active": True, "maxDeliveryDelayInMillis": 864_000_000},
    }
    assert list(after) == list(before)
    # get-delayed-delivery prints upstream's policy alone; the widths of the index are with what is delayed.
    shown = cli.json(path, f"delayed status {NAMESPACE}/reminders")[0]["policy"]
    assert (shown["timePartitionGranularity"], shown["tickDuration"]) == (3_600_000, 500)
    row = read_rows(path, lambda txn: txn.get("delayed", b"policy\0acme/delayed"))
    assert json.loads(row or b"") == {"format": 1, "granularity": 3_600_000, "tick": 500}
    assert_undone(cli, path, rows)


def assert_undone(cli: Cli, path: Path, rows: dict[str, dict[bytes, bytes]]) -> None:
    cli.done("--store", path, "store", "undo", "1", "-o", "json")
    assert rows_of(path, "tree", "delayed") == rows


def test_split_cuts_indexes_in_the_same_change(cli: Cli, path: Path) -> None:
    """All partitions get as narrow as asked for, hold what they held, and undo brings every row back."""
    enable = ("--store", path, "namespaces", "enable-delayed-message", NAMESPACE, "-o", "json")
    assert cli(*enable, "-p", "1d").exit_code == 0
    with open_store(path, writable=True) as store:
        for subscription in ("workers", "audit"):
            build(store, subscription)
        before = [held(store, subscription) for subscription in ("workers", "audit")]
        wide = [len(index_of(store, subscription).partitions) for subscription in ("workers", "audit")]
    rows = rows_of(path, "tree", "delayed")
    preview = cli(*enable, "-p", "10m", "--split", "--dry-run").json
    assert rows_of(path, "tree", "delayed") == rows
    plan = path.parent / "plan.json"
    assert cli(*enable, "-p", "10m", "--split", "--plan", plan).json == preview
    assert rows_of(path, "tree", "delayed") == rows
    done = cli.json(path, f"apply {plan}")
    assert (preview["split"], preview["after"]) == (done["split"], done["after"])
    assert done["after"]["timePartitionGranularity"] == 600_000
    assert [(row["messages"], row["partitionsBefore"]) for row in sorted(done["split"], key=by_subscription)] == [
        (len(before[1]), wide[1]),
        (len(before[0]), wide[0]),
    ]
    with open_store(path) as store:
        assert [held(store, subscription) for subscription in ("workers", "audit")] == before
        for subscription in ("workers", "audit"):
            partitions = index_of(store, subscription).partitions
            assert {part.width_ms for part in partitions} == {600_000}
            assert {part.start_ms for part in partitions} == {
                tick // 600_000 * 600_000 for tick, _, _ in held(store, subscription)
            }
    result = cli.on(path, "delayed verify acme/delayed/reminders -o json")
    assert (result.exit_code, [row["findings"] for row in result.json]) == (0, [[], []])
    cli.done("--store", path, "store", "undo", done["change"], "-o", "json")
    assert rows_of(path, "tree", "delayed") == rows
    with open_store(path) as store:
        assert [held(store, subscription) for subscription in ("workers", "audit")] == before


def test_undo_of_a_split_after_a_build_is_refused(cli: Cli, path: Path) -> None:
    """The build's directory names ledgers that the old one does not: nothing is written, and what was built stays."""
    enable = ("--store", path, "namespaces", "enable-delayed-message", NAMESPACE, "-o", "json")
    cli(*enable, "-p", "1d")
    with open_store(path, writable=True) as store:
        build(store, "workers")
        build(store, "audit")
    change = cli(*enable, "-p", "10m", "--split").json["change"]
    in_store(path, lambda store: skip(store, "audit", 40))
    skipped = cli.json(path, "store log")
    assert cli.on(path, f"delayed build {TOPIC} -s audit").exit_code == 0
    assert cli.json(path, "store log") == skipped
    rows = rows_of(path, "tree", "delayed")
    refused = cli.on(path, f"store undo {change} -o json")
    assert refused.error["code"] == "undo-conflict"
    assert f"a delayed build touched delayed index {TOPIC} audit since" in refused.error["message"]
    assert rows_of(path, "tree", "delayed") == rows
    # A later change of the policy is named as what it is.
    later = cli(*enable, "-p", "1h").json["change"]
    refused = cli.on(path, f"store undo {change} -o json")
    assert f"change {later} (" in refused.error["message"]
    assert f"store undo {later}" in refused.error["hint"]


def by_subscription(row: dict[str, str]) -> str:
    return row["subscription"]


def test_granularity_grows_and_never_shrinks(cli: Cli, path: Path) -> None:
    assert cli.on(path, f"namespaces enable-delayed-message {NAMESPACE}").exit_code == 0
    assert cli.on(path, f"namespaces enable-delayed-message {NAMESPACE} -p 10m").exit_code == 0
    refused = cli.on(path, f"namespaces enable-delayed-message {NAMESPACE} -p 2m -o json")
    assert refused.error["code"] == "refused"
    assert "600000 ms" in refused.error["message"]
    assert "120000 ms" in refused.error["message"]
    split = cli.on(path, f"namespaces enable-delayed-message {NAMESPACE} -p 2m --split -o json")
    assert split.json["after"]["timePartitionGranularity"] == 120_000


def test_disable_keeps_the_widths(cli: Cli, path: Path) -> None:
    cli.on(path, f"namespaces enable-delayed-message {NAMESPACE} -p 10m")
    done = cli.json(path, f"namespaces disable-delayed-message {NAMESPACE}")
    assert done["after"] == {**done["before"], "active": False}
    assert done["after"]["timePartitionGranularity"] == 600_000


def test_conflicts_are_warned_of(cli: Cli, path: Path) -> None:
    """A TTL and an evicting quota in the policies: the change says so at once."""
    node = f"/admin/policies/{NAMESPACE}"
    quota = BacklogQuota(1, -1, "consumer_backlog_eviction")
    wanted = StoredPolicies(message_ttl_seconds=60, backlog_quotas={"destination_storage": quota})
    put_node(path, node, encode_policies(wanted))
    done = cli.json(path, f"namespaces enable-delayed-message {NAMESPACE}")
    assert len(done["warnings"]) == 2
    assert "60 s" in done["warnings"][0]
    assert "destination_storage" in done["warnings"][1]


@pytest.mark.parametrize(("granularity", "tick_ms"), [("1w", 1000), ("2w", 2000), ("52w", 30_000), ("1s", 1000)])
def test_a_wide_partition_gets_a_tick_that_fits(cli: Cli, path: Path, granularity: str, tick_ms: int) -> None:
    """-p 2w, the proposal's own example, needs no -t: the tick that is taken is said."""
    done = cli.on(path, f"namespaces enable-delayed-message {NAMESPACE} -p {granularity} -o json")
    assert (done.exit_code, done.json["after"]["tickDuration"]) == (0, tick_ms)
    assert ("the tick is" in done.stderr) == (tick_ms > 1000)
