"""``sql``: what it shows, what it refuses, and how it says what is wrong."""

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pulsar_admin.store.names import parse_topic
from pulsar_admin.store.tables.entries import read_all_schemas
from tests.conftest import Cli
from tests.deep import deep_but_for
from tests.stores import copied, imported, put_node, read_store
from tests.synthetic import CREATED_MS, Made, MadeTopic, make_store

TYPES = """
select timestamptz '2026-01-01 00:00:00.123456+00' a, timestamp '2026-01-01' b, date '2026-01-01' c, [1, null] d, map {'k': 1} e,
{'x': {'y': 1.5}} f, '\\x00\\xFF'::blob g, 12345678901234567.89 h, 170141183460469231731687303715884105727::hugeint i,
'nan'::double j, '-inf'::float k, interval '90' minute l, null m, true n, 1 a, '101'::bit o, uuid '00000000-0000-0000-0000-000000000001' p
"""
EXPECTED = {
    "a": "2026-01-01T00:00:00.123456Z",
    "b": "2026-01-01T00:00:00.000",
    "c": "2026-01-01",
    "d": [1, None],
    "e": {"k": 1},
    "f": {"x": {"y": 1.5}},
    "g": "00ff",
    "h": "12345678901234567.89",
    "i": 170141183460469231731687303715884105727,
    "j": "NaN",
    "k": "-Infinity",
    "l": "1h30m",
    "m": None,
    "n": True,
    "a_1": 1,
    "o": "101",
    "p": "00000000-0000-0000-0000-000000000001",
}


def test_every_type_in_every_format(cli: Cli) -> None:
    store = imported("small", "clean")
    assert cli("--store", store, "sql", TYPES, "-o", "json").json == [EXPECTED]
    assert json.loads(cli("--store", store, "sql", TYPES, "-o", "jsonl").stdout) == EXPECTED
    (row,) = csv.DictReader(io.StringIO(cli("--store", store, "sql", TYPES, "-o", "csv").stdout))
    assert (row["i"], row["g"], row["m"], row["d"], row["j"]) == (str(EXPECTED["i"]), "00ff", "", "[1,null]", "NaN")
    assert "1h30m" in cli("--store", store, "sql", TYPES, "-o", "table").stdout
    assert cli("--store", store, "sql", TYPES, "-o", "plain").stdout.count("\t") == len(EXPECTED) - 1


def test_a_schema_that_cannot_be_read_hides_no_other(cli: Cli, tmp_path: Path, damages_stores: None) -> None:
    path, words = copied("small", "clean", tmp_path), ("sql", "select topic from schemas order by all", "-o", "json")
    first, *others = dict.fromkeys(row["topic"] for row in cli("--store", path, *words).json)
    put_node(path, parse_topic(first).schema_path, b"\xff")
    found = cli("--store", path, *words)
    assert (found.exit_code, [*dict.fromkeys(row["topic"] for row in found.json)]) == (1, others)
    assert others
    assert [*read_store(path, read_all_schemas)] == others


REFUSED = (
    *("copy messages to 'out.csv'", "create table t as select 1", "attach 'x.db'", "install httpfs"),
    *("load json", "set threads = 1", "pragma version", "insert into messages select 1"),
    *("call pragma_version()", "export database 'x'", "prepare p as select 1"),
    *("select * from read_csv('/etc/passwd')", "select (select count(*) from read_text('/etc/passwd'))"),
    "with x as (from enable_logging(storage = 'file', storage_path = 'log')) from x",
    "select * from query('select * from read_text(''/etc/passwd'')')",
    *("explain analyze select * from glob('/*')", "EXPLAIN ANALYZE(select * from glob('/*'))"),
    *("select 1; copy messages to 'out.csv'", "pivot messages on topic using count(*)", "use memory"),
    *("update messages set key = 'x'", "delete from messages", "vacuum", "execute p"),
    *("select 1 --\n; copy messages to 'out.csv'", "select * from duckdb_secrets()"),
    *("select * from duckdb_settings()", "select * from parquet_metadata('/etc/passwd')"),
    "select * from messages where key in (select content from read_text('/etc/passwd'))",
    *("select * from seq_scan('messages')", "select * from query_table('/etc/passwd')"),
)


@pytest.mark.parametrize("statement", REFUSED)
def test_a_statement_only_reads(statement: str, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = cli("--store", imported("small", "clean"), "sql", statement)
    assert found.exit_code in (2, 3), found
    assert found.stdout == ""
    assert found.stderr.startswith("error: ")
    assert "root:" not in found.stderr
    said = [line for line in found.stderr.splitlines() if not line.startswith(("hint: ", "LINE ", " ", "Did you mean"))]
    assert len([line for line in said if line]) == 1, "what is wrong is one line"
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("file", ["/etc/passwd", "secret.csv", "http://localhost/x.parquet"])
def test_files_are_no_tables(file: str, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret.csv").write_text("a\n42\n")
    found = cli("--store", imported("small", "clean"), "sql", f"select * from '{file}'")
    assert found.exit_code in (2, 3)
    assert "42" not in found.stdout


def test_statements_come_from_a_file_and_from_stdin(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "questions.sql"
    file.write_text("select 1 as a; -- the first\nselect ';' as b;\n")
    store = imported("small", "clean")
    expected = [{"a": 1}, {"b": ";"}]
    assert cli("--store", store, "sql", "-f", file, "-o", "jsonl").json_lines == expected
    monkeypatch.setattr("sys.stdin", io.StringIO(file.read_text()))
    assert cli("--store", store, "sql", "-o", "jsonl").json_lines == expected
    assert cli("--store", store, "sql", "select 1", "-f", file).exit_code == 2
    file.write_bytes(b"select '\xff'")
    assert "UTF-8" in cli("--store", store, "sql", "-f", file).stderr


class _Typed(io.StringIO):
    """A terminal; the line ^C is that key."""

    def isatty(self) -> bool:
        return True

    def readline(self, size: int | None = -1, /) -> str:
        if (line := super().readline(-1)) == "^C\n":
            raise KeyboardInterrupt
        return line


def test_statements_are_typed_line_by_line(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    lines = ("select 1", "^C", "select 2", "+ 3 as a;", "select 'x;", "y' as a;", "help", "none;", "select 4 as a;")
    monkeypatch.setattr("sys.stdin", _Typed("\n".join((*lines, "quit", "select 5 as a;\n"))))
    asked = cli("--store", imported("small", "clean"), "sql", "-o", "jsonl")
    assert asked.json_lines == [{"a": 5}, {"a": "x;\ny"}, {"a": 4}]
    assert "A statement ends with a semicolon" in asked.stderr


def test_a_plot_of_two_columns(cli: Cli, tmp_path: Path) -> None:
    store = imported("small", "clean")
    text = "select subscription, sum(backlog_entries) backlog from cursors group by 1 order by 1"
    found = cli("--store", store, "sql", text, "--plot", "--svg", tmp_path / "plot.svg")
    assert "backlog" in found.stdout
    assert (tmp_path / "plot.svg").read_bytes().startswith(b"<?xml")
    assert "two columns" in cli("--store", store, "sql", "select 1", "--plot").stderr
    assert "not a number" in cli("--store", store, "sql", "select 1, 'x'", "--plot").stderr
    for number in ("NaN", "inf", "-inf"):
        cli("--store", store, "sql", f"select 1, '{number}'::double", "--plot").ends(2, "cannot be drawn")


def _busy_seconds(pid: int) -> float:
    """How long a process has used processors, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@deep_but_for(
    (0,),
    "statement",
    [
        "select count(*) n from range(10000000000000) t(x) where x % 7 = 3",
        "select count(*) n from messages a, messages b, messages c where a.size + b.size + c.size = 7",
    ],
)
def test_ctrl_c_ends_a_long_statement(statement: str) -> None:
    """Wherever it is: a thread that waits for DuckDB's own has to hear it, too."""
    words = [sys.executable, "-m", "pulsar_admin", "--store", str(imported("small", "clean")), "sql"]
    running = subprocess.Popen(
        [*words, f"select 1 a; {statement}", "-o", "jsonl"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        assert running.stdout.readline() == '{"a":1}\n'
        begun = _busy_seconds(running.pid)
        while _busy_seconds(running.pid) < begun + 0.2 and running.poll() is None:
            time.sleep(0.01)
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)
    finally:
        running.kill()
    assert (running.returncode, out) == (130, "")
    assert "Traceback" not in err
    assert json.loads(err.splitlines()[-1])["error"]["code"] == "interrupted"


SHORT = "public/default/plain"


@pytest.mark.parametrize(
    "condition",
    [
        f"topic = '{SHORT}'",
        f"'{SHORT}' = m.TOPIC",
        f"m.topic <> '{SHORT}'",
        f"topic in ('persistent://a/b/c', '{SHORT}')",
        f"key is null and not (topic not in ('{SHORT}') or size > 5)",
        f"ledger_id in (select ledger_id from ledgers where topic = '{SHORT}')",
    ],
)
def test_a_short_name_of_a_topic_is_told(condition: str, cli: Cli) -> None:
    found = cli("--store", imported("small", "clean"), "sql", f"select count(*) from messages m where {condition}")
    assert (found.exit_code, found.stdout) == (5, "")
    assert found.stderr.splitlines() == [
        f"error: no row has the topic '{SHORT}': topics have their full names here",
        f"hint: write 'persistent://{SHORT}'",
    ]


@pytest.mark.parametrize("text", ["", " ;", " -- select 1"])
def test_no_statement_is_told(text: str, cli: Cli) -> None:
    found = cli("--store", imported("small", "clean"), "sql", text)
    assert (found.exit_code, found.stdout) == (2, "")
    assert found.stderr.startswith("error: there is no statement")


def test_entries_that_are_gone_are_said_to_be_missing(cli: Cli, tmp_path: Path) -> None:
    """The answer is of what is there, and the exit code says that something was not."""
    store = make_store(tmp_path / "s", {"a/b/c": MadeTopic([[Made(CREATED_MS), Made(CREATED_MS, lost=True)]])})
    found = cli("--store", store, "sql", "select count(*) n from messages", "-o", "json")
    assert found.ends(1, "1 entry is in no imported file").json == [{"n": 1}]
