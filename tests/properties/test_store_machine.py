"""Random sequences of import, change, plan, undo, compaction, load, export and re-import against a model in plain Python.

The model starts from what the live broker said of its cursors (``oracle.json``), and knows of a change only what the command's page
says: which entries a subscription has still to be given, a namespace's TTL, how many entries a topic has, and that an undo brings
back what was there, or is refused when something later changed the same.
"""

import hashlib
import io
import itertools
import json
import re
import shutil
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from msgspec import Struct

from pulsar_admin.cli import run
from tests.conftest import Cli
from tests.stores import imported
from tests.worlds import oracle, world

PLAIN, STEADY, JSON, COMPACTED = (
    "public/default/plain",
    "public/default/steady",
    "public/default/json",
    "acme/orders/compacted",
)
CURSORS = ((PLAIN, "half"), (PLAIN, "holes"), (PLAIN, "never"), (STEADY, "reset-me"))
NAMESPACE = "public/default"
Position = tuple[int, int]
Cell = tuple[str, ...]
_RANGE = re.compile(r"\((-?\d+):(-?\d+)\.\.(-?\d+):(-?\d+)\]")


def positions_of(topic: str) -> tuple[Position, ...]:
    return tuple(dict.fromkeys((row[0], row[1]) for row in oracle("small")["topics"][topic]["messages"]))


def backlog_of(topic: str, subscription: str) -> tuple[Position, ...]:
    """What the broker said that the subscription has still to be given."""
    cursor = oracle("small")["topics"][topic]["internal_stats"]["cursors"][subscription]
    deleted = [tuple(map(int, found)) for found in _RANGE.findall(cursor["individuallyDeletedMessages"])]
    mark = tuple(map(int, cursor["markDeletePosition"].split(":")))
    return tuple(at for at in positions_of(topic) if at > mark and not any(low[:2] < at <= low[2:] for low in deleted))


class Value(Struct, frozen=True):
    """What a cell holds; two of equal content that two changes wrote are not the same."""

    content: Any  # Any: each cell's own


class Change(Struct, frozen=True):
    """One line of the audit log: the cells it wrote, before and after."""

    cells: dict[Cell, tuple[Value, Value]]


def call(store: Path, *words: object) -> tuple[int, Any]:  # Any: JSON
    """Run a command; return its exit code, and its result where it has one."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run(["--store", str(store), *map(str, words), "-q", "-o", "json"])
    assert code != 70, err.getvalue()
    return code, json.loads(out.getvalue()) if out.getvalue() else err.getvalue()


class StoreMachine(RuleBasedStateMachine):
    """The store on one side, cells on the other."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="store-machine-"))
        self.numbers = itertools.count()
        self.cells: dict[Cell, Value] = {
            ("ttl",): Value(None),
            ("compacted",): Value(None),
            ("entries", JSON): Value(len(positions_of(JSON))),
        }
        for cursor in CURSORS:
            self.cells["cursor", *cursor] = Value(backlog_of(*cursor))
        self.changes: list[Change] = []
        self.plan: tuple[int, dict[Cell, Any]] | None = None

    @initialize()
    def import_world(self) -> None:
        self.store = Path(shutil.copytree(imported("small", "clean"), self.folder / "store"))
        code, _ = call(self.store, "topics", "dump", JSON, "--level", "entries", "--directory", self.folder / "dump")
        assert code == 0

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    # -- what both sides do -------------------------------------------------------------------------------------------

    def change(self, contents: dict[Cell, Any], *words: object) -> None:
        """Run a command that gives the cells of CONTENTS these contents."""
        code, result = call(self.store, *words, "--yes")
        assert code == 0, result
        self.note(contents)

    def note(self, contents: dict[Cell, Any]) -> None:
        self.write({cell: Value(content) for cell, content in contents.items()})

    def write(self, values: dict[Cell, Value]) -> None:
        self.changes.append(Change({cell: (self.cells[cell], value) for cell, value in values.items()}))
        self.cells |= values
        for cell in values:
            self.compare(cell)
        assert len(call(self.store, "store", "log")[1]) == len(self.changes)

    def compare(self, cell: Cell) -> None:
        """Ask the store for what CELL holds."""
        content = self.cells[cell].content
        if cell == ("ttl",):
            assert call(self.store, "namespaces", "get-message-ttl", NAMESPACE)[1] == content
        elif cell[0] == "entries":
            assert call(self.store, "topics", "stats-internal", cell[1])[1]["numberOfEntries"] == content
        elif cell[0] == "cursor":
            found = call(self.store, "topics", "stats", cell[1])[1]["subscriptions"].get(cell[2])
            assert (None if found is None else found["msgBacklog"]) == (None if content is None else len(content))
            if content:
                (first,) = call(self.store, "topics", "peek-messages", cell[1], "-s", cell[2], "-n", 1)[1]
                assert (first["ledgerId"], first["entryId"]) == content[0]

    # -- changes ------------------------------------------------------------------------------------------------------

    @rule(cursor=st.sampled_from(CURSORS), count=st.integers(1, 400), later=st.booleans())
    def skip(self, cursor: tuple[str, str], count: int, later: bool) -> None:
        backlog = self.cells["cursor", *cursor].content
        if not backlog:
            return
        contents = {("cursor", *cursor): backlog[count:]}
        words = ("topics", "skip", cursor[0], "-s", cursor[1], "-n", count)
        if later:
            file = self.folder / f"{next(self.numbers)}.plan"
            assert call(self.store, *words, "--plan", file)[0] == 0
            self.plan = (len(self.changes), contents)
            self.plan_file = file
        else:
            self.change(contents, *words)

    @precondition(lambda self: self.plan is not None)
    @rule()
    def apply(self) -> None:
        assert self.plan is not None
        planned_on, contents = self.plan
        code, _ = call(self.store, "apply", self.plan_file)
        assert code == (0 if planned_on == len(self.changes) else 4)
        if code == 0:
            self.note(contents)

    @rule(cursor=st.sampled_from(CURSORS), index=st.integers(0, 239))
    def reset(self, cursor: tuple[str, str], index: int) -> None:
        positions = positions_of(cursor[0])
        wanted = positions[index:]
        if self.cells["cursor", *cursor].content in (None, wanted):
            return
        at = f"{positions[index][0]}:{positions[index][1]}"
        self.change({("cursor", *cursor): wanted}, "topics", "reset-cursor", cursor[0], "-s", cursor[1], "-m", at)

    @rule(cursor=st.sampled_from(CURSORS))
    def clear(self, cursor: tuple[str, str]) -> None:
        if self.cells["cursor", *cursor].content:
            self.change({("cursor", *cursor): ()}, "topics", "clear-backlog", cursor[0], "-s", cursor[1])

    @rule(cursor=st.sampled_from(CURSORS))
    def unsubscribe_or_make(self, cursor: tuple[str, str]) -> None:
        topic, subscription = cursor
        if self.cells["cursor", *cursor].content is None:
            words: tuple[object, ...] = ("create-subscription", topic, "-s", subscription, "-m", "earliest")
            self.change({("cursor", *cursor): positions_of(topic)}, "topics", *words)
        else:
            self.change({("cursor", *cursor): None}, "topics", "unsubscribe", topic, "-s", subscription)

    @rule(seconds=st.integers(1, 10**6))
    def ttl(self, seconds: int) -> None:
        if self.cells["ttl",].content != seconds:
            self.change({("ttl",): seconds}, "namespaces", "set-message-ttl", NAMESPACE, "-ttl", seconds)

    @rule()
    def load(self) -> None:
        added = len(positions_of(JSON))
        wanted = self.cells["entries", JSON].content + added
        self.change({("entries", JSON): wanted}, "topics", "load", self.folder / "dump")

    @rule()
    def compact(self) -> None:
        self.change({("compacted",): None}, "compaction", "run", COMPACTED, "--from-start")

    @precondition(lambda self: self.changes)
    @rule(data=st.data())
    def undo(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(1, len(self.changes)))
        cells = self.changes[number - 1].cells
        code, _ = call(self.store, "store", "undo", number, "--yes")
        # Every cell must still hold the very value that the change gave it.
        if any(self.cells[cell] is not after for cell, (_, after) in cells.items()):
            assert code == 4
            return
        assert code == 0
        self.write({cell: before for cell, (before, _) in cells.items()})

    # -- out and in again ---------------------------------------------------------------------------------------------

    @rule()
    def export_and_import(self) -> None:
        number = next(self.numbers)
        out, store = self.folder / f"out-{number}", self.folder / f"store-{number}"
        code, result = call(self.store, "store", "export", "standalone", out)
        assert code == 0, result
        code, result = call(store, "store", "import", "standalone", out)
        assert code == 0, result
        self.store, self.changes, self.plan = store, [], None
        self.cells = {cell: Value(value.content) for cell, value in self.cells.items()}
        for cell in self.cells:
            self.compare(cell)


def check(*, examples: int, steps: int) -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        StoreMachine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            derandomize=True,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_a_few_sequences() -> None:
    check(examples=1, steps=14)


@pytest.mark.deep
def test_many_sequences() -> None:
    check(examples=150, steps=40)


@pytest.mark.parametrize(
    "name", ["shapes", "policies", *(pytest.param(name, marks=pytest.mark.deep) for name in ("small", "nometa"))]
)
def test_without_a_change_an_export_is_the_source(name: str, cli: Cli, tmp_path: Path) -> None:
    """Every name, byte, mode and time; what has no clean end, too."""
    for state in sorted(path for path in world(name).iterdir() if (path / "metadata").is_dir()):
        store, out = tmp_path / state.name, tmp_path / f"{state.name}-out"
        assert cli("--store", store, "store", "import", "standalone", state, "-q").exit_code in (0, 1)
        assert cli("--store", store, "store", "export", "standalone", out, "-q").exit_code == 0
        assert contents(out) == contents(state)


def contents(root: Path) -> list[tuple[str, int, int, str]]:
    """Name, permissions that a reader has, time of change and bytes of every file of a tree."""
    return [
        (str(file.relative_to(root)), file.stat().st_mode & 0o444, file.stat().st_mtime_ns, bytes_of(file))
        for file in sorted(root.rglob("*"))
        if file.is_file()
    ]


def bytes_of(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "blake2b").hexdigest()
