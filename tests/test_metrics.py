"""Metrics: their values against what the broker answered, their form against the text format of Prometheus."""

import os
import re
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from pulsar_admin.commands.metrics import render_metrics
from pulsar_admin.store.reports.overview import Metric, MetricSample
from tests.conftest import Cli
from tests.stores import imported
from tests.worlds import WORLD_NAMES, asked_topics, oracle

ROOT = Path(__file__).resolve().parent.parent
ALERTS = ROOT / "docs" / "examples" / "alerts.yml"
OWN = ("__compaction", "pulsar.dedup")
Labels = tuple[tuple[str, str], ...]

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_SAMPLE = re.compile(rf"({_NAME})(?:\{{(.*)\}})? (\S+)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)')


def parse(text: str) -> dict[str, dict[Labels, float]]:
    """Return metric → labels → value of TEXT in the text format: every metric has HELP and TYPE in front and stands in one place."""
    assert text.endswith("\n")
    found: dict[str, dict[Labels, float]] = {}
    lines = text[:-1].split("\n")
    while lines:
        helped, typed = (re.fullmatch(rf"# {word} ({_NAME}) (.+)", lines.pop(0)) for word in ("HELP", "TYPE"))
        name = helped[1]
        assert (typed[1], typed[2]) == (name, "gauge")
        assert name not in found
        found[name] = {}
        while lines and not lines[0].startswith("#"):
            sample = _SAMPLE.fullmatch(lines.pop(0))
            assert sample[1] == name
            labels = _labels(sample[2] or "")
            assert labels not in found[name]
            found[name][labels] = float(sample[3])
        assert found[name]
    return found


def _labels(text: str) -> Labels:
    assert _LABEL.sub("", text) == ""
    escapes = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}
    return tuple((name, re.sub(r"\\.", lambda one: escapes[one[0]], value)) for name, value in _LABEL.findall(text))


def written(cli: Cli, store: Path, out: Path, *words: str) -> dict[str, dict[Labels, float]]:
    """Return the metrics that the command writes to OUT, without the label of the cluster, which all have."""
    result = cli.done("--store", store, "metrics", "--out", out, *words)
    found = parse(out.read_text())
    assert result.json["samples"] == sum(map(len, found.values()))
    assert {labels[0] for values in found.values() for labels in values} == {("cluster", "standalone")}
    return {name: {labels[1:]: value for labels, value in values.items()} for name, values in found.items()}


@pytest.mark.parametrize("name", WORLD_NAMES)
def test_values_are_the_brokers(name: str, cli: Cli, tmp_path: Path) -> None:
    """``__compaction`` is a subscription to a broker: its backlog is the lag."""
    found = written(cli, imported(name, "clean"), tmp_path / "pulsar.prom")
    compared = 0
    for topic, answers in asked_topics(name).items():
        one = (("topic", f"persistent://{topic}"),)
        stats = answers["stats"]
        assert found["pulsar_offline_topic_storage_bytes"][one] == stats["storageSize"]
        for subscription, row in stats["subscriptions"].items():
            labels = (*one, ("subscription", subscription))
            if subscription == "__compaction":
                assert found["pulsar_offline_compaction_lag_entries"][one] == row["msgBacklog"]
            if subscription in OWN:
                continue
            assert found["pulsar_offline_subscription_backlog_entries"][labels] == row["msgBacklog"]
            assert found["pulsar_offline_subscription_backlog_bytes"][labels] == row["backlogSize"]
            compared += 1
    assert compared > 5
    assert found["pulsar_offline_rows_left_out"] == {(): 0}


def test_what_is_delayed_is_what_the_broker_held_back(cli: Cli, tmp_path: Path) -> None:
    """Between the broker's answer and the first change of the recording nothing fell due."""
    (topic,) = (name for name in oracle("small")["topics"] if name.endswith("/reminders"))
    labels = (("topic", f"persistent://{topic}"), ("subscription", "workers"))
    held = oracle("small")["topics"][topic]["stats"]["subscriptions"]["workers"]["msgDelayed"]
    due = [row["due"] for row in oracle("small")["sent"] if row["due"] and row["topic"].endswith(topic)]
    asked = oracle("small")["mutations"][0]["at_ms"]
    counts = []
    for now in (min(due) - 1, asked, max(due)):
        found = written(cli, imported("small", "clean"), tmp_path / "pulsar.prom", "--delayed", "--now", f"@{now}")
        names = ("delayed_entries", "delayed_due_entries")
        counts.append(tuple(found[f"pulsar_offline_subscription_{name}"][labels] for name in names))
    (every, none_due), (waiting, some_due), (none, all_due) = counts
    assert waiting == held == sum(time > asked for time in due)
    assert (none_due, none, all_due, waiting + some_due) == (0, 0, every, every)


def test_rows_are_bounded_and_chosen(cli: Cli, tmp_path: Path) -> None:
    out, store = tmp_path / "pulsar.prom", imported("small", "clean")
    everything = written(cli, store, out)
    few = written(cli, store, out, "--top", "2")
    for name, rows in everything.items():
        topics = "topic" in dict(next(iter(rows)))
        assert len(few[name]) == (min(len(rows), 2) if topics else len(rows))
    sizes = everything["pulsar_offline_topic_storage_bytes"]
    assert sorted(few["pulsar_offline_topic_storage_bytes"].values()) == sorted(sizes.values())[-2:]
    left = sum(len(rows) - len(few[name]) for name, rows in everything.items() if name.endswith(
        ("subscription_backlog_entries", "topic_storage_bytes", "compaction_lag_bytes")))  # fmt: skip
    assert few["pulsar_offline_rows_left_out"] == {(): left}
    some = written(cli, store, out, "--pattern", "acme/*")
    for name in ("topic_storage_bytes", "subscription_backlog_entries"):
        whole = {
            labels: value for labels, value in everything[f"pulsar_offline_{name}"].items()
            if dict(labels)["topic"].startswith("persistent://acme/")
        }  # fmt: skip
        assert some[f"pulsar_offline_{name}"] == whole
    name = "pulsar_offline_namespace_storage_bytes"
    assert some[name] == everything[name]


def test_the_file_is_replaced_whole_and_all_may_read_it(cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "pulsar.prom"
    out.write_text("# HELP old\n")
    out.chmod(0o600)
    written(cli, imported("small", "clean"), out)
    assert stat.S_IMODE(out.stat().st_mode) == 0o644
    assert [path.name for path in tmp_path.iterdir()] == ["pulsar.prom"]
    other = cli("--store", imported("small", "clean"), "metrics", "--out", tmp_path / "pulsar.txt")
    assert "end in .prom" in other.stderr
    absent = cli("--store", imported("small", "clean"), "metrics", "--out", tmp_path / "absent" / "pulsar.prom")
    assert absent.exit_code not in (0, 70)


HOSTILE = Metric(
    "x_bytes", "Bytes.", tuple(MetricSample({"topic": text}, 1) for text in ('a"b', "a\\b", "a\\nb", "ä ☃,}", "{", ""))
)


def test_what_holds_no_metrics_is_not_replaced(store: Path, tmp_path: Path, cli: Cli) -> None:
    out, pipe = store / "store.json", tmp_path / "pipe"
    os.mkfifo(pipe)
    before = out.read_bytes()
    for target, code in ((out, "already-exists"), (pipe, "not-writable")):
        result = cli("--store", store, "-o", "json", "metrics", "--no-check", "--out", target)
        assert (result.exit_code, result.error["code"]) == (3, code)
    assert out.read_bytes() == before
    assert pipe.is_fifo()


def test_labels_are_escaped() -> None:
    found = parse(render_metrics([HOSTILE]))["x_bytes"]
    assert set(found) == {tuple(sample.labels.items()) for sample in HOSTILE.samples}
    (line,) = render_metrics([Metric("x", "X.", (MetricSample({"topic": "a\nb\r"}, 1),))]).splitlines()[2:]
    assert line == 'x{topic="a\\\\nb\\\\r"} 1'


needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")


@needs_promtool
def test_promtool_takes_metrics_and_rules(cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "pulsar.prom"
    written(cli, imported("small", "crashed"), out, "--delayed")
    for text in (out.read_text(), render_metrics([HOSTILE])):
        done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
    done = subprocess.run(["promtool", "check", "rules", ALERTS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout


def test_alerts_and_the_page_name_metrics_that_are_there(cli: Cli) -> None:
    rows = cli("--store", imported("small", "crashed"), "metrics", "--delayed", "-o", "json").json["metrics"]
    there = {row["name"] for row in rows}
    assert set(re.findall(r"pulsar_offline_\w+", ALERTS.read_text())) <= there
    page = (ROOT / "docs" / "howto" / "monitor.md").read_text()
    table = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    assert {f"pulsar_offline_{name}" for cell in table for name in re.findall(r"`(\w+)`", cell)} == there
