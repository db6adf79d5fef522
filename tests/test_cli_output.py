"""Every result shape in every format; tables on a narrow terminal and in a pipe; progress."""

import csv
import fcntl
import importlib
import io
import itertools
import json
import os
import pkgutil
import pty
import re
import struct
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from pulsar_admin import command_table, commands, output
from pulsar_admin.columns import Column, kind_of, render_cell
from pulsar_admin.jsonify import dump_json, to_json
from pulsar_admin.plot import Chart, _set_value_ticks
from pulsar_admin.progress import BarProgress, open_progress
from pulsar_admin.store.codec.managedledger import LedgerInfo
from pulsar_admin.store.model.topics import iter_topics
from pulsar_admin.store.names import Position, parse_topic
from pulsar_admin.visible import wrapped
from tests.conftest import Cli
from tests.forked import start_line
from tests.sample_commands import SAMPLE_TABLE, sample_row
from tests.stores import read_rows

FORMATS = ("table", "json", "jsonl", "csv", "plain")
ROW = {
    "topic": "persistent://public/default/a",
    "position": {"ledgerId": 10, "entryId": 3, "partitionIndex": -1},
    "publishTime": 1_700_000_000_003,
    "size": 3000,
    "key": "00ff",
    "eventTime": None,
    "bytes": 7,
}


@pytest.fixture(autouse=True)
def _samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(command_table.GROUPS, "sample", "Samples.")
    monkeypatch.setitem(command_table.COMMANDS, "sample", SAMPLE_TABLE)


# -- values -----------------------------------------------------------------------------------------------------------


def test_values_as_json() -> None:
    assert to_json(sample_row(parse_topic("a"), 3)) == ROW
    assert to_json({1: {3, 1, 2}, "b": (b"\xff", memoryview(b"\x01")), "p": Position(1, 2, 3)}) == {
        "1": [1, 2, 3],
        "b": ["ff", "01"],
        "p": {"ledgerId": 1, "entryId": 2, "partitionIndex": -1, "batchIndex": 3},
    }
    found = to_json(LedgerInfo(5, 2, 64, timestamp_ms=None, properties={"a_b": "c"}))
    assert (found["ledgerId"], found["size"], found["timestamp"], found["properties"]) == (5, 64, None, {"a_b": "c"})


_TEXTS = st.sampled_from(["", "a", "}", "{", "},", "},\n  {", '"', "\\n", "é", "},\n    {\n"]) | st.text(max_size=3)
_LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | _TEXTS
_OBJECTS = st.dictionaries(_TEXTS, _LEAVES, max_size=3)


@settings(max_examples=25, derandomize=True, deadline=None)
@given(
    st.recursive(
        _LEAVES | _OBJECTS | st.lists(_OBJECTS, max_size=3),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXTS, inner, max_size=3),
        max_leaves=8,
    )
)
def test_pretty_json_is_what_jackson_writes(value: Any) -> None:  # Any: a JSON value
    assert dump_json(value, pretty=True) == "".join(_jackson(value, "\n"))


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [([], 0, 1), ([0.0], 0, 1), ([0.25, 0.5], 0, 0.5), ([-4.0, -2.0], -4, 0), ([-1.0, 3.0], -1, 3)],
)
def test_a_chart_reaches_from_zero_to_what_it_shows(values: list[float], low: float, high: float) -> None:
    plot = Mock()
    _set_value_ticks(plot, Chart("", [str(value) for value in values], {"a": values, "b": values[:1]}))
    plot.ylim.assert_called_once_with(low, high)
    (marks, _), _ = plot.yticks.call_args
    assert marks == [low + (high - low) * quarter / 4 for quarter in range(5)]


def _jackson(value: Any, margin: str) -> Iterator[str]:  # Any: a JSON value
    """Jackson's ``DefaultPrettyPrinter``, token by token: an array's items stand in one line and add no level."""
    inner = margin + "  "
    if isinstance(value, dict):
        yield "{"
        for number, (key, item) in enumerate(value.items()):
            yield "," * (number > 0) + inner + json.dumps(key, ensure_ascii=False) + " : "
            yield from _jackson(item, inner)
        yield (margin if value else " ") + "}"
    elif isinstance(value, list):
        yield "["
        for number, item in enumerate(value):
            yield "," * (number > 0) + " "
            yield from _jackson(item, margin)
        yield " ]"
    else:
        yield json.dumps(value, ensure_ascii=False)


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (None, "text", ""),
        (0, "number", "0"),
        (True, "text", "true"),
        (1_700_000_000_003, "time", "2023-11-14T22:13:20.003Z"),
        (90_000, "duration", "1m30s"),
        (1234.56, "duration", "1,234.6ms"),
        (3600, "seconds", "1h"),
        (30_130_114, "number", "30,130,114"),
        (30_130_114, "id", "30130114"),
        (30_130_114, "size", "28.7 MiB"),
        (1023, "size", "0.999 KiB"),
        (999, "size", "999 B"),
        (0.5, "number", "0.5"),
        (Position(1, 2), "text", "1:2"),
        (Position(1, 2, 3), "text", "1:2:3"),
        ({"ledgerId": 1, "entryId": 2, "partitionIndex": -1}, "text", "1:2"),
        ({"a": 1}, "text", '{"a":1}'),
        ([], "text", ""),
        (b"\x00\xff", "text", "00ff"),
        ("a\tb\x1b[2J\u202e\ud800", "text", "a\\tb\\x1b[2J\\u202e\\ud800"),
    ],
)
def test_cell(value: object, kind: str, text: str) -> None:
    assert render_cell(value, kind) == text


@pytest.mark.parametrize(
    ("key", "value", "kind"),
    [
        ("publishTime", 1_700_000_000_003, "time"),
        ("value.lastActive", 1_700_000_000_003, "time"),
        ("lastExpireTimestamp", 0, "number"),
        ("storageSize", 1_700_000_000_003, "number"),
        ("messageTTL", 3600, "seconds"),
        ("tickTime", 1000, "duration"),
        ("ledgerId", 30_130_114, "id"),
        ("entries", 30_130_114, "number"),
        ("torn", True, "text"),
        ("state", "OPEN", "text"),
    ],
)
def test_kind_of_a_key(key: str, value: object, kind: str) -> None:
    assert kind_of(key, value) == kind


def test_times_in_another_zone(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = {form: cli("sample", "rows", "a", "-o", form, "--tz", "Europe/Berlin").stdout for form in FORMATS}
    for form in ("table", "csv", "plain"):
        assert "2023-11-14T23:13:20.000+01:00" in shown[form]
    assert shown["json"] == cli("sample", "rows", "a", "-o", "json").stdout
    assert "2023-11-14T22:13:20.000Z" in cli("sample", "rows", "a", "-o", "csv").stdout
    monkeypatch.setenv("PULSAR_ADMIN_TZ", "-05:30")
    assert "2023-11-14T16:43:20.000-05:30" in cli("sample", "rows", "a", "-o", "csv").stdout
    refused = cli("sample", "rows", "a", "--tz", "Mars/Base")
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 2)
    assert "unknown time zone" in refused.stderr


# -- documents --------------------------------------------------------------------------------------------------------


def test_document_in_every_format(cli: Cli) -> None:
    def text(form: str) -> str:
        return cli("sample", "document", "a", "-o", form).stdout

    assert json.loads(text("json")) == ROW == json.loads(text("jsonl"))
    assert '\n  "size" : 3000,\n' in text("json")
    assert text("jsonl").count("\n") == 1
    assert text("plain").splitlines()[:2] == ["topic    persistent://public/default/a", "position    10:3"]
    assert text("table").splitlines()[:2] == ["FIELD        VALUE", "topic        persistent://public/default/a"]
    header, line = csv.reader(io.StringIO(text("csv")))
    assert header == list(ROW)
    assert line == ["persistent://public/default/a", "10:3", "2023-11-14T22:13:20.003Z", "3000", "00ff", "", "7"]
    assert cli("sample", "document", "a").stdout == text("json")


# -- names ------------------------------------------------------------------------------------------------------------


# -- records ----------------------------------------------------------------------------------------------------------


def test_records_in_every_format(cli: Cli) -> None:
    results = {form: cli("sample", "rows", "a", "b", "-o", form) for form in FORMATS}
    first, second = results["json"].json
    assert first == {**ROW, "position": {**ROW["position"], "entryId": 0}, "publishTime": 1_700_000_000_000, "size": 0}  # type: ignore[dict-item]
    assert results["jsonl"].json_lines == [first, second]
    assert results["csv"].stdout.splitlines() == [
        "TOPIC,POSITION,PUBLISHED,SIZE",
        "persistent://public/default/a,10:0,2023-11-14T22:13:20.000Z,0",
        "persistent://public/default/b,10:0,2023-11-14T22:13:20.000Z,0",
    ]
    assert results["plain"].stdout.splitlines()[0] == "persistent://public/default/a\t10:0\t2023-11-14T22:13:20.000Z\t0"
    assert results["table"].stdout.splitlines() == [
        "TOPIC                          POSITION  PUBLISHED                 SIZE",
        "persistent://public/default/a  10:0      2023-11-14T22:13:20.000Z     0",
        "persistent://public/default/b  10:0      2023-11-14T22:13:20.000Z     0",
    ]
    assert cli("sample", "rows", "a", "b").stdout == results["table"].stdout


def test_records_are_written_as_they_come() -> None:
    stream = io.StringIO()

    def records() -> Any:  # Any: a generator
        yield {"a": 1}
        assert stream.getvalue() == '{"a":1}\n'
        yield {"a": 2}

    output.emit_records(output.Writer(stream), records(), output.Style("jsonl"))
    assert stream.getvalue() == '{"a":1}\n{"a":2}\n'


# -- terminals --------------------------------------------------------------------------------------------------------


def on_terminal(columns: int, *arguments: str, rows: int = 24, stdout: int | None = None, **variables: str) -> str:
    """Run a command line with stdout, unless given, and stderr on a terminal of that size and return what it showed."""

    def set_variables() -> None:
        for name in ("COLUMNS", "LINES", "NO_COLOR"):
            os.environ.pop(name, None)
        os.environ.update({"TERM": "xterm", **variables})

    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    child = start_line(arguments, (follower, follower if stdout is None else stdout, follower), set_variables)
    os.close(follower)
    shown = b""
    while True:
        try:
            piece = os.read(leader, 65536)
        except OSError:  # Linux: the other end is closed
            break
        if not piece:
            break
        shown += piece
        if piece.endswith(b"[y/N] "):
            os.write(leader, b"n\n")
    os.close(leader)
    os.waitpid(child, 0)
    return shown.decode().replace("\r\n", "\n")


def test_table_on_80_columns() -> None:
    lines = on_terminal(80, "--color", "never", "sample", "rows", "a" * 60, "b").splitlines()
    assert [line.rstrip() for line in lines] == [
        "TOPIC                                       POSITION  PUBLISHED             SIZE",
        "public/default/                             10:0      2023-11-14T22:13:20Z     0",
        "a" * 42,
        "a" * 18,
        "public/default/b                            10:0      2023-11-14T22:13:20Z     0",
    ]


def test_narrow_terminal_shows_blocks() -> None:
    text = on_terminal(40, "sample", "rows", "a")
    assert text.splitlines() == [
        "TOPIC      persistent://public/default/a",
        "POSITION   10:0",
        "PUBLISHED  2023-11-14T22:13:20.000Z",
        "SIZE       0",
        "",
    ]


def test_color_only_when_wanted() -> None:
    assert "\x1b[1m" in on_terminal(100, "sample", "rows", "a")
    assert "\x1b" not in on_terminal(100, "sample", "rows", "a", "--color", "never")
    assert "\x1b" not in on_terminal(100, "sample", "rows", "a", NO_COLOR="1")
    assert "\x1b[1;31merror:\x1b[0m " in on_terminal(100, "sample", "absent")
    for words in (("--color", "never", "sample", "absent"), ("sample", "absent", "--color=never")):
        assert on_terminal(100, *words).startswith("error: ")
    assert on_terminal(100, "sample", "absent", NO_COLOR="1").startswith("error: ")


def test_a_pager_gets_the_table_where_it_is_asked_for() -> None:
    table = on_terminal(100, "--color", "never", "sample", "rows", "a")
    paged = on_terminal(100, "--color", "never", "--pager", "sample", "rows", "a", PAGER="sed s/^/page:/")
    assert paged.splitlines() == [f"page:{line}" for line in table.splitlines()]
    assert "page:" not in on_terminal(100, "sample", "rows", "a", PAGER="sed s/^/page:/")
    absent = on_terminal(100, "--color", "never", "--pager", "sample", "rows", "a", PAGER="no-such-pager")
    assert "--pager: cannot run 'no-such-pager'" in absent
    assert table in absent


def test_question_on_a_terminal() -> None:
    text = on_terminal(80, "--color", "never", "sample", "change", "-s", "w", "--lossy")
    assert "This cannot be undone: 3 ledgers\nContinue? [y/N] n\n" in text
    assert text.endswith("error: cancelled, nothing was changed\nhint: --dry-run shows the change\n")


# -- progress ---------------------------------------------------------------------------------------------------------


def test_no_progress_without_a_terminal(cli: Cli) -> None:
    assert cli("sample", "work") == (0, "", "")
    assert cli("sample", "work", "--verbose").stderr == "note: worked\n"


def test_bar_on_a_terminal() -> None:
    assert "scan" in on_terminal(80, "sample", "work")
    assert on_terminal(80, "sample", "work", "--no-progress") == ""
    assert on_terminal(80, "sample", "work", "-q") == ""


BARS = [
    (
        "persistent://public/default/compacted: phase two",
        "entries",
        1_200_000,
        ("/1,200,000", " entries/s", ": phase two"),
    ),
    (
        "persistent://acme/orders/a-topic-with-quite-a-long-name: explain",
        "entries",
        98_765_432,
        ("/98,765,432", ": explain"),
    ),
    ("read", "bytes", None, ("read ", "39.1 KiB ", "KiB/s")),
    ("read", "bytes", 5 << 30, ("read ", "2.5 GiB/5 GiB ", "iB/s ")),
    ("check", "topics", 1_000_000, ("check ", "500,000/1,000,000 ", " topics/s ")),
    ("metrics", "topics, ledgers and rows", None, ("metrics ", " topics, ledgers and rows/s")),
    (f"persistent://t/n/{12 * chr(0x6CE8)}: verify", "entries", 12_345_678, (": verify",)),
]


def _bar_of(columns: int, bar: tuple[str, str, int | None], steps: list[int], monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the one line, no wider than the terminal, that a bar is behind STEPS."""
    label, unit, total = bar
    monkeypatch.setenv("COLUMNS", str(columns))
    seconds = itertools.count(100.0)
    monkeypatch.setattr("rich.console.monotonic", lambda: next(seconds))
    shown = BarProgress(total, unit, label, lambda: 0)
    for step in steps:
        shown.advance(step)
    console = Console(width=columns, file=io.StringIO(), record=True)
    console.print(shown._bar.get_renderable())
    shown.stop()
    text = console.export_text().rstrip("\n")
    assert "\n" not in text
    assert cell_len(text) <= columns
    return text


@pytest.mark.parametrize(("label", "unit", "total", "parts"), BARS)
def test_a_bar_on_80_columns_is_whole(
    label: str, unit: str, total: int | None, parts: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = _bar_of(80, (label, unit, total), [(total or 80_000) // 8] * 4, monkeypatch)
    assert not [part for part in parts if part not in text], text
    assert re.search(r"\d:\d\d:\d\d", text) or not total


def test_a_total_of_nothing_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a limit or an index saves is not read: 0 bytes were said to be the whole."""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with open_progress("bar", 0, "bytes", "read", int) as bar:
        bar.advance(4096)
        console = Console(width=80, file=io.StringIO(), record=True)
        console.print(bar._bar.get_renderable())  # type: ignore[attr-defined]
    text = console.export_text()
    assert " 4 KiB " in text
    assert "/0" not in text


@pytest.mark.parametrize("command", [("store", "check"), ("doctor",)])
def test_a_check_counts_topics(command: tuple[str, ...], cli: Cli, demo_store: Path) -> None:
    line = json.loads(cli("--store", demo_store, *command, "--progress", "json").stderr.splitlines()[-1])
    topics = read_rows(demo_store, lambda txn: len(list(iter_topics(txn))))
    assert (line["done"], line["unit"]) == (topics, "topics")


def test_numbers_of_ledgers_and_changes_have_no_separators() -> None:
    modules = [
        importlib.import_module(info.name)
        for info in pkgutil.walk_packages(commands.__path__, "pulsar_admin.commands.")
    ]
    groups = [found for module in modules for found in vars(module).values() if isinstance(found, tuple)]
    columns = [one for found in groups for one in found if isinstance(one, Column)]
    ids = [column for column in columns if column.header in {"LEDGER", "CHANGE"}]
    assert len(ids) > 4
    assert not [column for column in ids if column.kind == "number"]


@pytest.mark.parametrize("form", ["jsonl", "csv", "json", "plain"])
def test_what_comes_slowly_is_seen_as_it_comes(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stream(io.StringIO):
        flushed = ""

        def flush(self) -> None:
            self.flushed = self.getvalue()

    stream, seen = Stream(), list[str]()
    seconds = iter(range(0, 100_000, 2))
    monkeypatch.setattr(output, "monotonic", lambda: next(seconds))

    def found() -> Iterator[dict[str, str]]:
        for name in ("first", "second", "third"):
            seen.append(stream.flushed)
            yield {"name": name}

    style = output.Style(form, "never", (Column("NAME", "name"),), live=True)
    output.emit_records(output.Writer(stream), found(), style)
    assert "first" not in seen[0]
    assert "first" in seen[1]
    assert "second" in seen[2]
    assert "third" in stream.getvalue()


# -- screens of a terminal alone --------------------------------------------------------------------------------------


def test_a_note_on_a_terminal_is_not_folded_inside_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    command = "pulsar-admin topics reset-cursor public/default/plain -s half -m 9:3 --dry-run"
    said = wrapped(f"note: the words before it are folded where the line ends: {command}; and so are those after it")
    assert command in said
    assert max(len(line) for line in said.split("\n") if command not in line) <= 40
    assert wrapped(f"  look first: {command}") == f"  look first: {command}"
    table = wrapped(
        "source              standalone /data/pulsar, referenced\n    55  25 entries: not looked at: after it"
    )
    assert table.splitlines() == [
        "source              standalone",
        "                    /data/pulsar,",
        "                    referenced",
        "    55  25 entries: not looked at: after",
        "        it",
    ]


def test_what_upstream_prints_as_a_document_stays_one_in_a_terminal(
    cli: Cli, demo_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulsar_admin.results.Results.in_terminal", True)
    assert "bundles" in json.loads(cli.on(demo_store, "namespaces policies public/default").stdout)
    assert cli.on(demo_store, "ledgers info 9").stdout.startswith("FIELD ")
