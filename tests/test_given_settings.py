"""Settings, options and files of rows whose values are wrong: usage errors, never a bug."""

import re
from pathlib import Path

import pytest

from tests.conftest import Cli
from tests.stores import imported

ROOT = Path(__file__).resolve().parent.parent


def test_settings_of_every_kind_that_counts(
    cli: Cli, demo_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [
        f'store = "{demo_store}"',
        "jobs = 2",
        "memory = 536870912",
        "quiet = true",
        "verbose = false",
        "spark = 0",
    ]
    lines += ["now = 2024-05-01T09:00:00Z", 'tz = "UTC"', 'output = "json"', '[spark_conf]\n"a.b" = 1']
    (tmp_path / "config.toml").write_text("\n".join(lines))
    monkeypatch.setenv("PULSAR_ADMIN_CONFIG", str(tmp_path / "config.toml"))
    assert "persistent://public/default/plain" in cli("topics", "list", "public/default").json


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "1e999", "x", "0x1"])
def test_numbers_that_are_none(number: str, cli: Cli) -> None:
    assert cli("nacks", "plan", "--rate", number).exit_code == 2


_REFUSED = {
    "bookkeeper activeledgers": "-logId is missing",
    "bookkeeper readlog zz": "invalid entry log 'zz'",
    "bookkeeper cookie_get nobody:1": "Cookie not found for bookie 'nobody:1'",
    "managed-ledger delete-managed-ledger-ids -mlp public/default/persistent/plain --ledgerIds 1,x": "invalid ledger ids '1,x'",
    "namespaces split-bundle a/b -b LARGEST --split-algorithm-name specified_positions_divide --split-boundaries 1,x": "--split-boundaries",
    "namespaces get-anti-affinity-namespaces -c standalone -g heavy": "Tenant should not be null",
    "namespaces get-anti-affinity-namespaces -p public -c nope -g heavy": "Cluster nope does not exist.",
    "namespaces set-offload-policies public/default -d S3 -b x -r r -orp nope": "--offloadedReadPriority parameter must be one of",
    "namespaces set-property public/default -k EMPTY -v x": "--key, --value: neither may be empty",
    "namespaces revoke-subscription-permission public/default -s none --role x": "couldn't find subscription",
    "store reclaim": "name one bookie, DIR[,DIR…] or --bookie-conf FILE, and one metadata store at most",
    "store add bookie": "name the bookie's directories",
    "store export bookie": "name the bookies' directories",
    "store export bookie a=b --root /x": "1 --root for 0 --bookie-conf",
    "store log --redact --steps": "--redact: --steps are exact bytes",
    "store undo": "nothing was changed in this store",
    "store preflight --list --max-loss 1": "--list has no sums",
    "store preflight --no-metadata --brokers --bookie a=/b": "an empty metadata store has no topics",
    "store preflight --zookeeper /x --no-metadata --bookie a=/b": "name one of --zookeeper, --metadata and --no-metadata",
    "topics copy plain --from STORE": "--from STORE is this store itself",
    "topics copy plain json --from OTHER --to x": "--to names one topic",
    "topics create x --metadata a": "Invalid key value pair 'a'",
    "topics create x --metadata =a": "Invalid key value pair '=a'",
    "topics dump plain --interceptors none --directory OUT": "--interceptors: messages have no broker metadata",
    "topics dump plain --level entries --columns pulsar-spark --directory OUT": "other columns are for whole messages alone",
    "topics expire plain -s half -t 1s --forecast 1h -e": "a forecast goes by age: leave out --position and -e",
    "topics list public/default --columns a,,b": "--columns: a name of a column is empty",
    "topics list public/default --where TOPIC~(": "--where: '(' is not a regular expression",
    "topics list public/default --sort TOPIC:up": "--sort: 'TOPIC:up' ends in no direction",
    "delayed status --all-topics -s nope": "no topic that matches has a subscription 'nope'",
    "ledgers list --where ENTRIES>x": "--where ENTRIES: 'x' is not a number",
    "topics skip plain -s half -n 1 --sort A": "--sort: only the preview of this command is a list: add --dry-run",
    "topics read plain --from 9:9 --to 9:1": "9:1 is before 9:9",
    "topics reset-cursor plain -s half -m 9:1 --until 2024-05-01T11:00:00Z": "--until is the end of the messages",
    "topics reset-cursor plain -s half -t 2024-05-01T09:00Z --until 2024-05-01T11:00Z --rule broker": "--until: a broker resets to one",
    "topics set-shadow-topics plain -t persistent://a": "Invalid shadow topic name: persistent://a",
    "topics grant-permission nothere --role a --actions consume": "Topic persistent://public/default/nothere not found",
    "topics stats --pattern acme/none*": "no topic matches 'acme/none*'",
    "clusters update standalone --tls-enable --tls-enable-keystore": "You must specify tls-trust-store-type",
    "bookies set-bookie-rack -b EMPTY -r /a --hostname x": "--bookie: it is empty",
    "resource-quotas reset-namespace-bundle-quota -n public/default -b 0x00000000_0x40000000": "path /loadbalance/resource-quota",
    "ns-isolation-policy set standalone p --namespaces ( --primary b --auto-failover-policy-type min_available"
    " --auto-failover-policy-params min_limit=1,usage_threshold=80": "Invalid format of input policy data. policy: p",
    "packages get-metadata function://a/b": "Invalid package name 'function://a/b'",
    "transactions transaction-metadata -m 99 -l 1": "Transaction coordinator with id 99 not found!",
}  # fmt: skip


def test_lines_that_cannot_be_meant(cli: Cli, demo_store: Path, tmp_path: Path) -> None:
    """Each is refused for what is wrong with it, and nothing is written."""
    there = {
        "EMPTY": "",
        "STORE": str(demo_store),
        "OTHER": str(imported("small", "clean")),
        "OUT": str(tmp_path / "out"),
    }
    wrong = {}
    for line, said in _REFUSED.items():
        done = cli("--store", demo_store, *(there.get(word, word) for word in line.split()))
        if done.exit_code not in (2, 5) or not done.stderr.replace(str(demo_store), "STORE").startswith(
            f"error: {said}"
        ):
            wrong[line] = (done.exit_code, done.stderr)
    assert wrong == {}
    assert not (tmp_path / "out").exists()
    done = cli.on(demo_store, "namespaces get-anti-affinity-namespaces -p none -c standalone -g heavy")
    assert (done.exit_code, done.stdout) == (0, "")  # a broker does not look for the tenant either (4.0.8)


def test_every_number_of_the_command_line_is_bounded() -> None:
    """Click's own types take what no long holds."""
    for package in ("commands", "pulsar_admin"):
        for path in (ROOT / package).rglob("*.py"):
            assert not re.search(
                r"click\.(Int|Float)Range\(|type=(int|float)\b|click\.(INT|FLOAT)\b", path.read_text()
            ), path
