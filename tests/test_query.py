"""--where, --sort, --top and --columns: what Python's own sorted and filter make of the list's JSON."""

import csv
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pulsar_admin.query import Query, choose_rows, parse_query
from pulsar_admin.store.errors import InvalidValue
from pulsar_admin.store.names import Position
from tests.conftest import Cli
from tests.stores import imported

Row = dict[str, Any]  # Any: JSON values
LISTS = {
    "ledgers list": ("size", "entries", "ledgerId"),
    "store usage": ("bytes", "ledgers", "owner"),
    "topics stats --all-topics": ("storageSize", "backlogSize", "topic"),
    "topics read public/default/batched -n 200": ("size", "publishTime", "sequenceId"),
    "topics find-by-time --all-topics --time 2026-11-21T09:23:18Z": ("entryTime", "entriesRead", "topic"),
}
"""Two keys of numbers and one of texts, or of other numbers, of each list."""


@pytest.fixture(scope="module")
def store() -> Path:
    return imported("small", "mutated")


@pytest.fixture(params=LISTS)
def line(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def ask(cli: Cli, store: Path, line: str) -> Callable[..., list[Row]]:
    def asked(*options: str) -> list[Row]:
        done = cli("--store", store, *line.split(), "-o", "json", *options)
        assert done.exit_code in (0, 1), done.stderr
        return done.json  # type: ignore[no-any-return]

    return asked


def test_filtered_as_python_filters(ask: Callable[..., list[Row]], line: str) -> None:
    rows = ask()
    for key in LISTS[line]:
        values = sorted({row[key] for row in rows if row[key] is not None})
        middle = values[len(values) // 2]
        ordered = {
            "=": lambda value, middle=middle: value == middle,
            "<": lambda value, middle=middle: value is not None and value < middle,
            ">=": lambda value, middle=middle: value is not None and value >= middle,
            "!=": lambda value, middle=middle: value != middle,
        }
        for sign, keeps in ordered.items():
            kept = [row for row in rows if keeps(row[key])]
            assert ask("--where", f"{key}{sign}{middle}") == kept, (key, sign)
    name = LISTS[line][2]
    pattern = "o.*e|1$"
    assert ask("--where", f"{name}~{pattern}") == [row for row in rows if re.search(pattern, str(row[name]))]


def test_conditions_sort_top_and_columns_at_once(
    ask: Callable[..., list[Row]], line: str, cli: Cli, store: Path
) -> None:
    rows = ask()
    first, second, name = LISTS[line]
    least = min(row[first] for row in rows if row[first] is not None)
    kept = [row for row in rows if row[first] is not None and row[first] > least and row[second] is not None]
    kept.sort(key=lambda row: -row[second])
    options = ("--where", f"{first}>{least}", "--where", f"{second}!=", "--sort", f"{second}:desc", "--top", "4")
    expected = [{name: row[name], first: row[first]} for row in kept[:4]]
    assert ask(*options, "--columns", f"{name},{first}") == expected
    done = cli("--store", store, *options, "--columns", f"{name},{first}", *line.split(), "-o", "jsonl")
    assert done.json_lines == expected


def test_keys_of_one_object(cli: Cli, store: Path) -> None:
    whole = cli("--store", store, "topics", "stats", "public/default/plain").json
    done = cli.on(store, "topics stats public/default/plain --columns storage-size,subscriptions.half")
    assert done.json == {"storageSize": whole["storageSize"], "subscriptions.half": whole["subscriptions"]["half"]}


def _asked(rows: list[Any], **given: Any) -> list[Any]:  # Any: rows, options
    query = parse_query(given, now_ms=1_700_000_000_000, tz=None)
    assert isinstance(query, Query)
    return list(choose_rows(query, rows, (), None).rows)


@pytest.mark.parametrize(
    ("condition", "kept"),
    [
        ("size>10MiB", [2]),
        ("size>=10 MiB", [1, 2]),
        ("size<=1.5k", [0]),
        ("size=10,485,760", [1]),
        ("delay>1m", [2]),
        ("delay=60", [1]),
        ("created>2023-11-14T21:50:00Z", [1, 2]),
        ("created>-15m", [2]),
        ("created<@1699999000000", [0]),
        ("at>9:10", [1, 2]),
        ("at=10:0:1", [2]),
        ("id>9:10", [1, 2]),
        ("open=true", [0, 2]),
        ("note=", [0, 1]),
        ("note!=", [2]),
        ("note~^x", [2]),
        ("note!~x", [0, 1]),
        ("names=b", [0, 1]),
        ("names!=b", [2]),
        ("NAMES ~ ^c", [1]),
        ("topic=a/b/c", [0]),
        ("topic=persistent://a/b/c", [0]),
        ("inner.deep>1", [2]),
        ("Inner.Deep!=1", [0, 2]),
        ("late-key=5", [2]),
    ],
)
def test_what_is_typed_means_what_the_value_is(condition: str, kept: list[int]) -> None:
    rows = [
        {"size": 1024, "delay": 1, "created": 1_699_998_000_000, "at": "9:2", "id": Position(9, 2), "open": True}
        | {"note": None, "names": ["a", "b"], "topic": "persistent://a/b/c", "inner": {}},
        {"size": 10 << 20, "delay": 60_000, "created": 1_699_999_000_000, "at": "9:11", "id": Position(9, 11)}
        | {"open": False, "note": "", "names": ["b", "c"], "topic": "x", "inner": {"deep": 1}},
        {"size": 11 << 20, "delay": 60_001, "created": 1_700_000_000_000, "at": "10:0:1", "id": Position(10, 0)}
        | {"open": True, "note": "x y", "names": [], "topic": "y", "inner": {"deep": 2}, "lateKey": 5},
    ]
    assert [rows.index(row) for row in _asked(rows, where=(condition,))] == kept


def test_values_are_ordered_as_values() -> None:
    rows = [{"at": at} for at in ("10:0", "9:12", "9:2", None, "9:2:1")]
    assert [row["at"] for row in _asked(rows, sort=("at",))] == ["9:2", "9:2:1", "9:12", "10:0", None]
    assert [row["at"] for row in _asked(rows, sort=("at:desc",))] == ["10:0", "9:12", "9:2:1", "9:2", None]


@pytest.mark.parametrize("text", ["", "BYTES", "=5", ">", "BYTES~(", "~", "a.b"])
def test_conditions_that_are_none(text: str) -> None:
    with pytest.raises(InvalidValue):
        parse_query({"where": (text,)}, now_ms=0, tz=None)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--columns", "BYTE"), "did you mean BYTES?"),
        (("--sort", "BYTES:down"), "BYTES:desc"),
        (("--sort", ""), "empty"),
        (("--columns", "LEDGER,,BYTES"), "empty"),
        (("--where", "nobody=5"), "LEDGER, STATE, ENTRIES"),
        (("--where", "BYTES>much"), "write a size"),
        (("--where", "FROM>much"), "invalid time"),
        (("--top", "0"), "--top"),
        (("--top", "²"), "--top"),
    ],
)
def test_what_is_asked_wrong(options: tuple[str, str], said: str, cli: Cli, store: Path) -> None:
    done = cli("--store", store, "ledgers", "list", *options).ends(2, said)
    assert done.stdout == ""


@pytest.mark.parametrize(
    "line",
    ["topics stats public/default/plain", "store cat /admin/clusters/standalone", "topics delete public/default/plain"],
)
def test_what_is_no_list(line: str, cli: Cli, store: Path) -> None:
    done = cli("--store", store, *line.split(), "--top", "3").ends(2)
    assert done.stdout == ""


def test_a_total_of_what_is_shown(cli: Cli, store: Path) -> None:
    asked = ("ledgers", "list", "--where", "BYTES>10K", "--columns", "LEDGER,ENTRIES,BYTES,OWNER")
    rows = cli("--store", store, *asked, "-o", "json").json
    lines = cli("--store", store, *asked, "--total").stdout.splitlines()
    assert lines[-1].split() == ["TOTAL", f"{sum(r['entries'] for r in rows):,}", f"{sum(r['size'] for r in rows):,}"]
    assert len(lines) == len(rows) + 2
    for form in ("json", "jsonl", "csv", "plain"):
        done = cli("--store", store, *asked, "--total", "-o", form)
        assert (done.exit_code, done.stdout) == (2, ""), form


@pytest.mark.parametrize(
    "line", ["topics list acme/orders", "ledgers list --columns owner", "topics stats public/default/plain"]
)
def test_no_total_where_nothing_adds_up(line: str, cli: Cli, store: Path) -> None:
    assert cli("--store", store, *line.split(), "--total").ends(2, "--total").stdout == ""


@pytest.mark.parametrize(
    ("line", "any_code"),
    [
        ("topics list public/default", 1),
        ("topics list-partitioned-topics public/default", 0),
        ("ledgers list --where ENTRIES>100000", 0),
        ("doctor --code clock-ahead -o json", 1),
    ],
)
def test_a_list_with_rows_or_without_can_fail(line: str, any_code: int, cli: Cli, store: Path) -> None:
    assert cli("--store", store, *line.split(), "--fail-if-any").exit_code == any_code
    assert cli("--store", store, *line.split(), "--fail-if-none").exit_code == 1 - any_code
    assert cli("--store", store, *line.split(), "--fail-if-any", "--fail-if-none").exit_code == 2
    cli("--store", store, "store", "info", "--fail-if-any").ends(2, "--fail-if-any")


def test_offsets_of_clocks_are_durations_with_a_sign(cli: Cli, store: Path) -> None:
    """By text ``+2h6m`` lies in front of ``+7m44s``, and ``-2d23h`` behind both."""
    asked = ("--store", store, "topics", "skew", "acme/iot/skewed", "-o", "json")
    offsets = {row["producer"]: row["offsetMax"] for row in cli(*asked).json["producers"]}
    assert min(offsets.values()) < -3_600_000
    assert sum(ms > 3_600_000 for ms in offsets.values()) == 2

    def names(*options: str) -> list[str]:
        lines = cli(*asked[:-1], "csv", *options).stdout
        return [row["PRODUCER"] for row in csv.DictReader(io.StringIO(lines))]

    assert set(names("--where", "max > 1h")) == {name for name, ms in offsets.items() if ms > 3_600_000}
    assert set(names("--where", "max < -1h")) == {name for name, ms in offsets.items() if ms < -3_600_000}
    assert names("--sort", "max") == sorted(offsets, key=lambda name: offsets[name])
    cli(*asked[:-1], "csv", "--where", "max > high").ends(2, "invalid duration 'high'")
