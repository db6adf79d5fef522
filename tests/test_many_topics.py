"""What several processes say of very many topics, screen by screen, is what a single process says."""

import random
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from pulsar_admin.columns import Column
from pulsar_admin.commands.topics import listing
from pulsar_admin.context import App
from pulsar_admin.spool import CellSpool, PackedCells
from pulsar_admin.store.engine import starting
from pulsar_admin.store.facts import parts, processes
from pulsar_admin.store.facts.processes import Spread
from pulsar_admin.store.facts.topics import TopicFacts
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.names import TopicName
from pulsar_admin.store.reports import subscriptions
from pulsar_admin.store.reports.overview import Largest
from pulsar_admin.store.reports.subscriptions import Asked
from tests.conftest import Cli
from tests.deep import deep_but_for
from tests.rules.test_quiet import damage_drawn
from tests.stores import imported

_TABLE = ("topics", "subscriptions", "--all-topics", "--table")


def _said(cli: Cli, store: Path, *options: str) -> tuple[int, str, str]:
    found = cli("--store", store, *_TABLE, *options)
    return found.exit_code, found.stdout, found.stderr


def _spread_over_processes(monkeypatch: pytest.MonkeyPatch) -> list[PackedCells]:
    """Let even few topics be told by several processes, and return what these hand back."""
    found: list[PackedCells] = []
    add = CellSpool.add_packed
    monkeypatch.setattr(processes, "MANY_NODES", 1)
    monkeypatch.setattr(listing, "_PART", 4)
    monkeypatch.setattr(listing, "_TOGETHER", 3)
    monkeypatch.setattr(CellSpool, "add_packed", lambda self, some: (found.append(some), add(self, some)))
    return found


@pytest.mark.parametrize("seed", range(2))
def test_processes_tell_the_same_of_damaged_rows(
    seed: int, store: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage_drawn(store, random.Random(seed))
    alone = _said(cli, store)
    packed = _spread_over_processes(monkeypatch)
    assert _said(cli, store, "--jobs", "2") == alone
    assert packed or not alone[1]


@pytest.mark.parametrize("screen", [("overview", "--top", "3"), ("metrics",), ("metrics", "--top", "4", "--no-check")])
@deep_but_for((1,), "seed", [None, 1])
def test_processes_count_the_same(
    screen: tuple[str, ...], seed: int | None, store: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seed is not None:
        damage_drawn(store, random.Random(seed))
    words = ("--store", store, "--now", "2026-01-02T03:04:05Z", *screen, "-o", "json")
    alone = cli(*words)
    merged: list[object] = []
    merge = Largest.merge
    monkeypatch.setattr(processes, "MANY_NODES", 1)
    monkeypatch.setattr(parts, "PART_TOPICS", 4)
    monkeypatch.setattr(Largest, "merge", lambda self, later: (merged.append(later), merge(self, later)))
    found = cli(*words, "--jobs", "2")
    assert (found.exit_code, _timeless(found.stdout), found.stderr) == (
        alone.exit_code,
        _timeless(alone.stdout),
        alone.stderr,
    )
    assert merged or not alone.stdout


@pytest.mark.parametrize("screen", [("overview", "--top", "3"), ("metrics",), ("metrics", "--top", "4", "--no-check")])
@deep_but_for((1,), "seed", [None, 1])
def test_a_process_that_is_forked_before_the_store_is_opened_counts_the_same(
    screen: tuple[str, ...], seed: int | None, store: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seed is not None:
        damage_drawn(store, random.Random(seed))
    words = ("--store", store, "--now", "2026-01-02T03:04:05Z", *screen, "-o", "json")
    alone = cli(*words, "--jobs", "1")
    answered: list[object] = []
    take = Spread._hear
    monkeypatch.setattr(processes, "FORKED_BYTES", range(1, 1 << 30))
    monkeypatch.setattr(processes, "active_count", lambda: 1)
    monkeypatch.setattr(Spread, "_hear", lambda self: (take(self), answered.extend(self._done)))
    monkeypatch.setattr(starting, "start_process", None)
    found = cli(*words, "--jobs", "2")
    assert (found.exit_code, _timeless(found.stdout), found.stderr) == (
        alone.exit_code,
        _timeless(alone.stdout),
        alone.stderr,
    )
    assert answered or not alone.stdout


def _timeless(text: str) -> str:
    """Return TEXT without the time of asking."""
    return "\n".join(line for line in text.split("\n") if "asked" not in line and "copyAge" not in line)


_ASKED = [
    (),
    ("--where", "BACKLOG>0", "--columns", "TOPIC,backlogEntries"),
    ("--top", "2"),
    ("--sort", "BACKLOG:desc", "--top", "3"),
]


@pytest.mark.parametrize("form", ["json", "jsonl"])
@pytest.mark.parametrize("asked", _ASKED)
def test_json_that_is_written_as_it_comes_is_the_same(
    asked: tuple[str, ...], form: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = imported("small", "mutated")
    held = _said(cli, store, "-o", form, *asked)
    assert len(held[1]) > 10
    monkeypatch.setattr(listing, "_HELD_TOPICS", 1)
    assert _said(cli, store, "-o", form, *asked) == held


def test_json_of_which_something_is_asked_is_written_before_all_is_read(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the rows of many topics a part is in memory at a time."""
    read = list[int]()
    prepare, emit = subscriptions.prepare_facts, App.emit_rows

    def count(reader: EntryReader, topics: Sequence[TopicName], asked: Asked) -> dict[TopicName, TopicFacts]:
        read.append(len(topics))
        return prepare(reader, topics, asked)

    def begin(app: App, rows: Iterable[object], *given: Sequence[Column], **how: bool) -> None:
        read.clear()
        emit(app, rows, *given, **how)

    monkeypatch.setattr(listing, "_HELD_TOPICS", 1)
    monkeypatch.setattr(listing, "_TOGETHER", 2)
    monkeypatch.setattr(subscriptions, "prepare_facts", count)
    monkeypatch.setattr(App, "emit_rows", begin)
    assert _said(cli, imported("small", "clean"), "-o", "jsonl", "--where", "TOPIC~.")[0] == 0
    assert len(read) > 3
