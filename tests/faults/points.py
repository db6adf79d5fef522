"""Disturb a command at each call that changes a file, and look at what is there then: the harness of this directory.

After every point: the store opens; ``store check --deep`` finds nothing that it does not find without the disturbance; the store
is in the old state or the new one; the source is untouched; a run that said it is done is done; the same command, run again, ends
in the state that an undisturbed run ends in. What is not so is a ``Loss``.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from tests.fake_zookeeper import FakeZooKeeper
from tests.faults.scenarios import Scenario
from tests.faults.server import HUNG, STOPPED, Fault, Ran, Server
from tests.stores import nodes_of
from tests.worlds import copy_tree, digest_of, world

NOW = "2026-11-22T00:00:00Z"
State = dict[str, Any]  # Any: JSON of tests.faults.states
TOLD = {"ENOSPC": {3, 8}, "EIO": {1, 3, 6, 8}, "EINTR": {1, 3, 6, 8}}
"""The exit codes that a run may end with when a call failed so, beside 0 for a run that is done nevertheless."""
DONE_ALREADY = {0, 1, 3, 4, 5}

KINDS = (
    ("kill", "EIO"),
    ("torn", "EIO"),
    ("stop", "EIO"),
    ("fail", "EIO"),
    ("fail-on", "ENOSPC"),
    ("fail", "EINTR"),
    ("short", "EIO"),
)
"""Disturbances: mode and errno of ``Fault``."""
_MEANT: dict[tuple[str, str], tuple[str, ...]] = {
    ("torn", "EIO"): ("write",),
    ("short", "EIO"): ("write",),
    ("fail-on", "ENOSPC"): ("create", "write", "fallocate", "mkdir", "link", "rename"),
    ("fail", "EINTR"): ("write", "fsync", "fdatasync", "msync", "fallocate"),
}
"""Which calls a disturbance can come to; others: to all."""


WARMING = (
    "store check",
    "topics dump public/default/batched --level entries",
    "compaction run acme/orders/compacted --from-start --dry-run",
    "delayed build acme/delayed/reminders --dry-run",
)
"""They only read; what they import and compile most others need. None opens a bookie's index: a fork has none of RocksDB's threads, and
waits for them."""


class Loss(Struct, frozen=True):
    """What went wrong at one point."""

    scenario: str
    fault: Fault
    call: str
    what: str

    def __str__(self) -> str:
        return f"{self.scenario}: {self.fault} ({self.call}): {self.what}"


class Tally(Struct):
    """What was tried with one command. ``told``: the last line of each run that failed."""

    scenario: str
    calls: int = 0
    points: int = 0
    losses: list[Loss] = field(default_factory=list)
    told: set[str] = field(default_factory=set)

    def __str__(self) -> str:
        return f"{self.scenario}: {self.calls} calls, {self.points} points, {len(self.losses)} losses"


def points(calls: list[str], kinds: Iterable[tuple[str, str]] = KINDS) -> Iterator[Fault]:
    """Yield every disturbance that means something at one of CALLS."""
    for mode, error in kinds:
        meant = _MEANT.get((mode, error), ("",))
        for number, call in enumerate(calls, 1):
            name, _, path = call.partition(" ")
            if mode == "stop" and name in ("create", "open") and path.endswith(".mdb"):
                continue  # who opens LMDB holds a lock that readers wait for
            if any(part in name for part in meant):
                yield Fault(mode, number, error)


_known: dict[tuple[str, str], set[str]] = {}
"""What the check finds in stores that scenarios begin with, by what it looks at in the store and the signature of the source."""


class Bench:
    """One scenario below FOLDER, which is set back before every point. Benches of one folder share what is imported."""

    def __init__(self, server: Server, folder: Path, scenario: Scenario) -> None:
        self.server = server
        self.scenario = scenario
        self.folder = folder
        self.work, self.prepared = folder / "work", folder / "prepared"
        self.store = self.work / "store"
        self.source = self.work / "data" if scenario.in_place else folder / f"source of {scenario.world}"
        self.zookeeper = FakeZooKeeper({})
        self.checked: dict[str, list[str]] = {}
        server.watched = [self.work]
        try:
            self._prepare()
            self._run_undisturbed()
        except BaseException:
            self._clear()  # the next scenario of this folder must not find it
            raise

    def _run_undisturbed(self) -> None:
        self.signed = self._signature()
        self.old = self.state()
        old = self._looked_at(self.old)
        if (old, self.signed) not in _known:
            _known[old, self.signed] = self.findings()
        self.known = set(_known[old, self.signed])
        self.plain = self.run(Fault())
        assert self.plain.status == 0, (self.plain.status, self.plain.stderr)
        self.new = self.state()
        assert self.new != self.old
        self.known |= self.findings()
        self.checked = {key: [] for key in (old, self._looked_at(self.new))}

    def _prepare(self) -> None:
        scenario = self.scenario
        self._import()
        if scenario.no_store:
            shutil.rmtree(self.work)
            self.work.mkdir()
        if scenario.state != "clean":
            shutil.rmtree(self.source)
            copy_tree(world(scenario.world) / scenario.state, self.source)
        if scenario.ensemble:
            self.zookeeper.__enter__()
            self.imported = nodes_of(self.store)
        for command in scenario.before:
            self._must(command)
        if scenario.damaged_index:
            self.server.call("lose_rows", self.store)
        if scenario.emptied_bookie:
            self.server.call("empty_bookie_index", self.source)
        if scenario.lost:
            self.server.call("lose_nodes", self.store, *scenario.lost)
        copy_tree(self.work, self.prepared)
        self._reset_ensemble()

    def _reset_ensemble(self) -> None:
        self.zookeeper.zxid = 100
        if self.scenario.ensemble:
            self.zookeeper.nodes = dict(self.imported)

    def _import(self) -> None:
        base = self.folder / ("base in place" if self.scenario.in_place else f"base of {self.scenario.world}")
        if not self.source.exists() and not (self.scenario.in_place and base.exists()):
            copy_tree(world(self.scenario.world) / "clean", self.source)
        if base.exists():
            copy_tree(base, self.work)
            return
        self._must("store import standalone {source}")
        copy_tree(self.work, base)
        for command in WARMING:
            self.server.warm(*self.words(command))

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        self._clear()

    def _clear(self) -> None:
        if self.zookeeper.port:
            self.zookeeper.__exit__(None, None, None)
        for place in (self.work, self.prepared, *([self.source] if self.scenario.state != "clean" else [])):
            shutil.rmtree(place, ignore_errors=not place.exists())

    def _signature(self) -> str:
        return digest_of(self.source) if "linked" in self.scenario.name else signature(self.source)

    def words(self, command: str) -> list[str]:
        places = {"store": self.store, "source": self.source, "work": self.work, "zookeeper": self.zookeeper.address}
        words = [word.format(**places) for word in shlex.split(command)]
        now = [] if "--now" in words else ["--now", NOW]
        return ["--store", str(self.store), *words, *now, "-q", "-o", "json", "--jobs", "1"]

    def _must(self, command: str) -> None:
        ran = self.server.run(*self.words(command))
        assert ran.status == 0, ran.stderr

    def reset(self) -> None:
        """Put back what was there before the command."""
        shutil.rmtree(self.work)
        copy_tree(self.prepared, self.work)
        self._reset_ensemble()

    def run(self, fault: Fault | None = None) -> Ran:
        return self.server.run(*self.words(self.scenario.command), fault=fault)

    def state(self) -> State:
        found: State = {"store": self.server.call("store_state", self.store)}
        if (self.scenario.in_place or self.scenario.steps or self.scenario.ensemble) and "changes" in found["store"]:
            # What it has still to do, and reports, depends on what is done.
            found["store"]["changes"] = found["store"]["changes"].split()[0]
            for name in ("state changes-head", "state export-intent"):
                found["store"].pop(name, None)
        if self.scenario.ensemble:
            found["ensemble"] = {path: str(node) for path, node in self.zookeeper.nodes.items()}
        if self.scenario.target:
            found["target"] = self.server.call("directory_state", self.work / self.scenario.target)
        return found

    def findings(self) -> set[str]:
        if not (self.store / "store.json").exists():
            return set()
        ran = self.server.run("--store", self.store, "store", "check", "--deep", "-o", "jsonl", "-q")
        if ran.status not in (0, 1):
            return {f"store check ends with {ran.status}: {ran.stderr[-300:]}"}
        rows = [json.loads(line) for line in ran.stdout.splitlines()]
        return {f"{row['code']} {row['where']}: {row['message']}" for row in rows if row["severity"] == "problem"}

    # -- one point ----------------------------------------------------------------------------------------------------

    def try_all(self, faults: Iterable[Fault]) -> Tally:
        """Try FAULTS one by one."""
        calls = self.plain.calls
        tally = Tally(self.scenario.name, len(calls))
        for fault in faults:
            tally.points += 1
            self.reset()
            wrong = self._stopped(fault, tally) if fault.mode == "stop" else self._disturbed(fault, tally)
            tally.losses += [Loss(tally.scenario, fault, calls[fault.at - 1], what) for what in wrong]
        return tally

    def _disturbed(self, fault: Fault, tally: Tally) -> Iterator[str]:
        ran = self.run(fault)
        yield from self._wrong_ending(ran, fault, tally)
        state = self.state()
        where = self._where(state)
        if where is None:
            yield f"neither the old state nor the new one: {differences(state, self.old, self.new)}"
        if ran.status == 0 and where != "new":
            yield f"exit 0, and the state is {where or 'a third one'}"
        if ran.status > 0 and where == "new" and self.scenario.repeats:
            yield f"exit {ran.status}, and it is done: {ran.stderr[-300:]}"
        yield from self._unsound(state)
        if where == "new" and self.scenario.repeats:
            return
        again = self.run()
        final = self.state()
        if again.status not in (DONE_ALREADY if where == "new" else {0}):
            yield f"run again ({where or 'third state'}) it ends with {again.status}: {again.stderr[-300:]}"
        elif where != "new" and final != self.new:
            yield f"run again, it ends in another state: {differences(final, self.new)}"
        yield from self._unsound(final)

    def _stopped(self, fault: Fault, tally: Tally) -> Iterator[str]:
        """Stop the command, let another do the same, and let the first go on."""
        first = self.run(fault)
        if first.status != STOPPED:
            yield f"was not stopped: {first.status}"
            return
        state = self.state()
        if self._where(state) is None:
            yield f"stopped in neither the old state nor the new one: {differences(state, self.old, self.new)}"
        yield from self._unsound(state)
        other = self.run()
        ended = self.server.resume()
        statuses = [ended.status, other.status]
        for ran in (ended, other):
            yield from self._wrong_ending(ran, fault, tally)
        state = self.state()
        yield from self._unsound(state)
        if 0 not in statuses:
            yield f"of two none is done: {statuses}, {ended.stderr[-200:]} {other.stderr[-200:]}"
        elif self.scenario.new_target and statuses == [0, 0]:
            yield "both say that they have made it"
        elif (not self.scenario.repeats or statuses != [0, 0]) and state != self.new:
            yield f"of two, which end with {statuses}, another state is left: {differences(state, self.new)}"

    def _wrong_ending(self, ran: Ran, fault: Fault, tally: Tally) -> Iterator[str]:
        told = (ran.stderr.splitlines() or [""])[-1]
        if ran.status == HUNG:
            yield "hangs"
        elif ran.status < 0 and fault.mode not in ("kill", "torn"):
            yield f"killed by signal {-ran.status}"
        elif ran.status == 70 or "Traceback" in ran.stderr:
            yield f"exit {ran.status}: {told[:200]} … {told[-200:]}"
        elif ran.status > 0:
            tally.told.add(f"{fault.mode} {fault.error} {ran.status} {told}".replace(str(self.work), "{work}"))
            if fault.mode.startswith("fail") and ran.status not in TOLD[fault.error]:
                yield f"{fault.error} is told as exit {ran.status}: {told[:300]}"

    def _unsound(self, state: State) -> Iterator[str]:
        key = self._looked_at(state)
        if key not in self.checked:
            found = [] if state["store"].get("is") == "importing" else sorted(self.findings() - self.known)
            self.checked[key] = found
        # An interrupted refresh is told until it is run again.
        is_told = self._where(state) == "between"
        told = (one for one in self.checked[key] if not (is_told and one.startswith("refresh-unfinished ")))
        yield from (f"store check: {finding}" for finding in told)
        if not self.scenario.in_place and self._signature() != self.signed:
            yield "the source was changed"

    def _looked_at(self, state: State) -> str:
        """Return STATE as text, and the names of the store's files: what the check looks at."""
        return json.dumps([state, sorted(str(path) for path in self.store.rglob("*"))], sort_keys=True)

    def _where(self, state: State) -> str | None:
        """Return "old", "new", "between" where that is good, or None."""
        if state == self.new:
            return "new"
        if state == self.old:
            return "old"
        if self.scenario.steps:
            return "between"
        if self.scenario.ensemble:  # killed behind the transaction, before it is recorded
            behind = (state["store"], state["ensemble"]) == (self.old["store"], self.new["ensemble"])
            return "between" if behind else None
        target = state.get("target")
        if target is not None and state["store"] in (self.old["store"], self.new["store"]):
            return "between" if self._may_be_left(target) else None
        return None

    def _may_be_left(self, target: State) -> bool:
        """Whether an unfinished TARGET is as good as old: what was there is there, and what is new is whole."""
        old, new = self.old["target"], self.new["target"]
        if not self.scenario.in_place:
            return bool(target == old)
        names = ("bookkeeper/current/ledgers", "bookkeeper/current/locations")
        if any(old[name].items() - target[name].items() or target[name].items() - new[name].items() for name in names):
            return False
        if target["metadata"] not in (old["metadata"], new["metadata"]):
            return False
        # Metadata names the ledgers: with it, all of them must be there.
        whole = target["metadata"] == old["metadata"] or all(target[name] == new[name] for name in names)
        return whole and not (old["files"].items() & new["files"].items()) - target["files"].items()


def signature(path: Path) -> str:
    """Return a digest of names, sizes, modes and times of change of a tree; nothing but a link sets ctime without a change."""
    digest = hashlib.blake2b(digest_size=12)
    for found in sorted(path.rglob("*")):
        status = found.lstat()
        digest.update(
            f"{found}\0{status.st_size} {status.st_mode} {status.st_mtime_ns} {status.st_ctime_ns}\0".encode()
        )
    return digest.hexdigest()


def differences(state: State, *others: State) -> str:
    """Name the parts in which STATE is none of OTHERS."""
    parts = []
    for part, found in state.items():
        for name, value in found.items():
            wanted = [other.get(part, {}).get(name) for other in others]
            if value not in wanted:
                parts.append(f"{part}.{name} {_difference(value, wanted[-1])}")
    return ", ".join(parts) or "parts of both"


def _difference(value: Any, wanted: Any) -> str:  # Any: JSON
    if not isinstance(value, dict) or not isinstance(wanted, dict):
        return f"{str(value)[:60]} for {str(wanted)[:60]}"
    changed = sum(value[key] != wanted[key] for key in value.keys() & wanted.keys())
    return (
        f"{len(wanted.keys() - value.keys())} missing, {len(value.keys() - wanted.keys())} surplus, {changed} changed"
    )
