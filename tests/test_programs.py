"""The programs of docs/examples/programs, which ``make check`` type-checks strictly, do on a recorded world what they say."""

import csv
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

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


def test_decoded_messages(store: Path) -> None:
    name = "persistent://public/default/avro"
    printed = run("decoded_messages", store, "public/default/avro", "item").splitlines()
    assert printed == [row["value"]["item"] for row in oracle("small")["sent"] if row["topic"] == name]


@pytest.mark.deep
def test_fifty_resets_and_back(tmp_path: Path) -> None:
    path, file = copied("small", "clean", tmp_path), tmp_path / "resets.csv"
    names = [f"reader-{index}" for index in range(50)]
    with pa.open_store(path, writable=True, now=NOW_MS) as store:
        for name in names:
            store.apply(store.topic("plain").create_subscription(name, start="latest"))
    file.write_text("\n".join(["topic,subscription,to", *(f"plain,{name},29:20" for name in names), ""]))
    printed = run("many_resets", path, file).splitlines()
    assert printed == ["50 cursors would move", "change 51 moved 50", "undone: True"]


def test_storage_and_findings(store: Path) -> None:
    lines = run("storage_report", store).splitlines()
    sizes = {name: recorded["internal_stats"]["totalSize"] for name, recorded in TOPICS.items()}
    assert lines[0].endswith(f" persistent://{max(sizes, key=lambda name: sizes[name])}")
    assert lines[5:] == [""]  # nothing critical


@pytest.mark.deep
def test_tests_of_an_application(store: Path) -> None:
    line = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "test_my_topics.py"]
    done = subprocess.run(line, cwd=PROGRAMS, env={**os.environ, "STORE": str(store)}, capture_output=True, text=True)
    assert "2 passed" in done.stdout


@pytest.mark.deep
def test_a_web_endpoint_under_twenty_requests(store: Path) -> None:
    """At once, each answered with what the broker said; what is not there is 404, and the server goes on."""
    line = [sys.executable, str(PROGRAMS / "web_endpoint.py"), str(store), "0"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            base = f"http://localhost:{server.stdout.readline().strip()}"

            def ask(path: str) -> object:
                with urlopen(f"{base}/{path}", timeout=60) as answered:
                    return json.load(answered)

            names = [*TOPICS][:18]
            with ThreadPoolExecutor(20) as pool:
                findings, listed = pool.submit(ask, "findings"), pool.submit(ask, "topics")
                found = dict(zip(names, pool.map(lambda name: ask(f"topics/{name}"), names), strict=True))
            assert {name: one["storageSize"] for name, one in found.items()} == {
                name: TOPICS[name]["stats"]["storageSize"] for name in names
            }
            assert {f"persistent://{name}" for name in names} <= set(listed.result())
            assert {one["severity"] for one in findings.result()} == {"note"}
            with pytest.raises(HTTPError, match="404") as missing:
                ask("topics/public/default/nope")
            assert [*json.load(missing.value)] == ["topic-not-found"]
            assert ask("topics") == listed.result()
        finally:
            server.kill()


@pytest.mark.deep
def test_new_findings_alone(tmp_path: Path) -> None:
    path, saved = imported("small", "clean"), tmp_path / "findings.json"
    first = run("new_findings", path, saved)
    assert first.startswith("note ledgers-gone: ledgers 89, 90, 92, 93, 95 …\n  46 ledgers of 73,909 bytes ")
    assert run("new_findings", path, saved) == ""
    findings = json.loads(saved.read_text())
    saved.write_text(json.dumps([one for one in findings if one["code"] != "dead-bytes-kept"]))
    assert run("new_findings", path, saved).splitlines() == [
        "new note dead-bytes-kept: entry logs",
        "  99,909 bytes of deleted data in 1 entry log that is at least half live, so",
        "  compaction skips it; 1.log also holds data of",
        "  persistent://public/default/chunked",
        "  next: pulsar-admin store usage --by log",
    ]
