"""The programs of docs/examples/programs, which ``make check`` type-checks strictly, do on a recorded world what they say."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import pulsar_admin as pa
from tests.stores import NOW_MS, copied, imported
from tests.worlds import oracle

PROGRAMS = Path(__file__).resolve().parent.parent / "docs" / "examples" / "programs"
TOPICS = oracle("small")["topics"]


def run(name: str, *given: object, **variables: str) -> str:
    """What the program NAME prints, run as its docstring says; it ends with 0."""
    line = [sys.executable, str(PROGRAMS / f"{name}.py"), *map(str, given)]
    environment = {**os.environ, **variables}
    return subprocess.run(line, capture_output=True, text=True, check=True, env=environment).stdout


@pytest.fixture(scope="module")
def store() -> Path:
    return imported("small", "clean")


def test_backlogs_of_a_tenant(store: Path) -> None:
    rows = list(csv.DictReader(run("backlog_csv", store, "acme").splitlines()))
    found = {(row["topic"], row["subscription"]): int(row["entries"]) for row in rows}
    expected = {
        (f"persistent://{name}", subscription): facts["msgBacklog"]
        for name, recorded in TOPICS.items()
        if name.startswith("acme/")
        for subscription, facts in recorded["stats"]["subscriptions"].items()
    }
    assert found == expected


def test_a_time_in_all_partitions(store: Path) -> None:
    names = [f"acme/orders/parts-partition-{index}" for index in range(3)]
    times = sorted(row[3] for row in TOPICS[names[1]]["messages"])
    time_ms = times[len(times) // 2]
    expected = []
    for name in names:
        # An entry is as old as its first message.
        firsts = {tuple(row[:2]): row[3] for row in reversed(TOPICS[name]["messages"])}
        place = min((place for place, first_ms in firsts.items() if first_ms >= time_ms), default=None)
        expected.append(f"persistent://{name} {'-' if place is None else '{}:{}'.format(*place)}")
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time_ms)
    assert run("time_in_partitions", store, "acme/orders/parts", moment.isoformat()).splitlines() == expected


def test_decoded_messages(store: Path) -> None:
    name = "persistent://public/default/avro"
    printed = run("decoded_messages", store, "public/default/avro", "item").splitlines()
    assert printed == [row["value"]["item"] for row in oracle("small")["sent"] if row["topic"] == name]


def test_fifty_resets_and_back(tmp_path: Path) -> None:
    path, file = copied("small", "clean", tmp_path), tmp_path / "resets.csv"
    names = [f"reader-{index}" for index in range(50)]
    with pa.open_store(path, writable=True, now=NOW_MS) as store:
        for name in names:
            store.apply(store.topic("plain").create_subscription(name, start="latest"))
    file.write_text("\n".join(["topic,subscription,position", *(f"plain,{name},29:20" for name in names), ""]))
    printed = run("many_resets", path, file).splitlines()
    assert printed == ["50 cursors would move", "change 51 moved 50", "undone: True"]


def test_storage_and_findings(store: Path) -> None:
    lines = run("storage_report", store).splitlines()
    sizes = {name: recorded["internal_stats"]["totalSize"] for name, recorded in TOPICS.items()}
    assert lines[0].endswith(f" persistent://{max(sizes, key=lambda name: sizes[name])}")
    assert lines[5:] == [""]  # nothing critical


def test_tests_of_an_application(store: Path) -> None:
    line = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "test_my_topics.py"]
    done = subprocess.run(line, cwd=PROGRAMS, env={**os.environ, "STORE": str(store)}, capture_output=True, text=True)
    assert "2 passed" in done.stdout
