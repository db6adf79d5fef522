"""A change as a value: ``Plan`` and ``Step``, applying, the audit log, undo.

Every change is one LMDB transaction that writes the steps, keeps the imported bytes of a node it touches for the first time
(database ``base``, what export compares with), keeps ``owners`` in step, and appends the audit record with what undo needs.
Row (database ``changes``): key change number u64 big-endian; value zlib-compressed JSON, the fields of ``Change`` and the link of
``store.changes.chain``.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from store.changes.chain import CHAIN_HEAD, check_link, next_link, put_link
from store.changes.recorded import decode_part
from store.changes.report import ChangePart, ChangeReport, Json
from store.codec.given import integer, json_object, text
from store.codec.rocksvalue import NodeStat
from store.db.entry_files import EntryFiles
from store.db.environment import DATABASES, Store, Txn
from store.db.owners import find_owners, put_owners
from store.db.tree import Node, decode_node, encode_node, find_node, tree_key
from store.errors import (
    ChangeNotFound,
    IndexCorrupt,
    InvalidValue,
    NotFound,
    Refused,
    StalePlan,
    UndoConflict,
    reason_of,
)
from store.files import read_file
from store.frozen import frozen
from store.model.reader import EntryReader
from store.model.references import references

_DELAYED_INDEX = b"index\0"  # rows that builds write: what can be made again from the entries is in no audit log
_NUMBER = struct.Struct(">Q")
PLAN_FORMAT = 3
_HINT = "make one with --plan FILE on any command that changes"
_AGAIN = "make the plan again and look at it"


@frozen
class Step:
    """One row to write: its bytes before (None: not there) and after (None: delete)."""

    database: str
    key: bytes
    before: bytes | None
    after: bytes | None


@frozen
class Plan:
    """A change that was computed on the store's transaction ``txn_id`` and is applied on exactly that state or not at all.

    ``parts``: what it does to each topic, subscription or namespace that it concerns. ``loses``: what undo cannot bring back, in numbers.
    """

    command: str
    txn_id: int
    steps: tuple[Step, ...]
    parts: tuple[ChangePart, ...]
    loses: str = ""
    undoes: int | None = None
    warnings: tuple[str, ...] = field(default=())
    untouched: frozenset[int] = frozenset()
    """Places in ``parts`` of what stays as it is beside what changes: shown, and no part of the change."""

    def preview(self) -> ChangeReport:
        """Return what applying would report, with ``dry_run``."""
        return ChangeReport(None, True, self.parts, self.warnings, command=self.command)

    def unchanged(self) -> ChangeReport:
        """Return the report of a plan without steps, which is applied by leaving everything as it is."""
        return ChangeReport(None, False, self.parts, self.warnings, command=self.command)


@frozen
class WritingPlan:
    """A change that writes ledgers before its steps are known: ``shown`` returns what it would do, ``made`` does it in a store open
    for writing.

    Both return a report for each change; ``made`` raises StalePlan and DiskFull.
    """

    command: str
    txn_id: int
    shown: Callable[[], tuple[ChangeReport, ...]]
    made: Callable[[Store], tuple[ChangeReport, ...]]
    loses: str = ""
    digest: Callable[[], str] = lambda: ""
    """Returns the digest of what is read that is not part of the store."""

    def preview(self) -> tuple[ChangeReport, ...]:
        """Return what applying would report."""
        return self.shown()


def check_current(store: Store, plan: Plan) -> None:
    """Raise StalePlan unless STORE is as it was when PLAN was made."""
    with store.read() as txn:
        _check_current(txn, plan, txn.id)


def check_state(store: Store, txn_id: int, state: str) -> None:
    """Raise StalePlan unless STORE is in that STATE, on the transaction TXN_ID."""
    with store.read() as txn:
        check_transaction(txn_id, txn.id)
        # The same number of transactions proves nothing: every fresh import has the same.
        if state_of(txn) != state:
            raise StalePlan("the plan was made on another store", hint="make the plan again on this store")


def state_of(txn: Txn) -> str:
    """Return what tells a store and its changes so far from other stores, copies of it included that were changed since (hex)."""
    return sha256(b"%d" % txn.store.info.created_ms + (txn.get("state", CHAIN_HEAD) or b"")).hexdigest()


def check_transaction(planned: int, found: int) -> None:
    """Raise StalePlan unless the transaction FOUND is the one that was planned on."""
    if found != planned:
        raise StalePlan(
            f"the store changed since the plan was made: planned on transaction {planned}, found {found}",
            hint=_AGAIN,
            planned=planned,
            found=found,
        )


def _check_current(txn: Txn, plan: Plan, found: int) -> None:
    check_transaction(plan.txn_id, found)
    # The same number of transactions proves nothing: a plan file may come from another store.
    written: dict[tuple[str, bytes], bytes | None] = {}
    for step in plan.steps:
        row = step.database, step.key
        if (written[row] if row in written else txn.get(*row)) != step.before:
            raise StalePlan(
                f"the plan was made on another store: {step.database} {step.key.decode('utf-8', 'replace')} differs",
                hint="make the plan again on this store",
            )
        written[row] = step.after


@frozen
class Change:
    """One line of the audit log. ``reports``: its parts, as JSON."""

    change: int
    time_ms: int
    command: str
    reports: tuple[Json, ...]
    steps: tuple[Step, ...]
    undoes: int | None = None


def apply_plan(store: Store, plan: Plan, now_ms: int, first: Callable[[Txn], None] = lambda txn: None) -> ChangeReport:
    """Apply PLAN in one transaction; return its report. Raises StalePlan.

    FIRST runs in the same transaction before the steps: what it writes is not part of the change, and undo leaves it.
    """

    def work(txn: Txn) -> int:
        _check_current(txn, plan, txn.id - 1)
        first(txn)
        return _apply(store, txn, plan, now_ms)

    change_number = store.write(work)
    return ChangeReport(change_number, False, plan.parts, plan.warnings, plan.untouched, plan.command)


def _apply(store: Store, txn: Txn, plan: Plan, now_ms: int) -> int:
    with EntryFiles(store, txn) as files:
        reader = EntryReader(files, txn)
        for step in plan.steps:
            if step.database == "tree":
                _apply_tree_step(txn, reader, step)
            else:
                _put(txn, step.database, step.key, step.after)
    reports = tuple(part.as_json() for place, part in enumerate(plan.parts) if place not in plan.untouched)
    return _append(txn, Change(0, now_ms, plan.command, reports, plan.steps, plan.undoes))


def append_change(txn: Txn, now_ms: int, command: str, reports: tuple[Json, ...]) -> int:
    """Append a line to the audit log for what changes no row of the store (an export); return its number."""
    return _append(txn, Change(0, now_ms, command, reports, ()))


def _append(txn: Txn, change: Change) -> int:
    last = txn.last("changes")
    number = 1 if last is None else int(_NUMBER.unpack(last[0])[0]) + 1
    key = _NUMBER.pack(number)
    put_link(txn, key, _encode_change(replace(change, change=number), next_link(txn)))
    return number


def _apply_tree_step(txn: Txn, reader: EntryReader, step: Step) -> None:
    before = None if step.before is None else decode_node(step.key, step.before)
    after = None if step.after is None else decode_node(step.key, step.after)
    if txn.view("base", step.key) is None:
        txn.put("base", step.key, step.before or b"")
    old = set(references(txn, reader, before)) if before else set()
    _put(txn, "tree", step.key, step.after)
    new = set(references(txn, reader, after)) if after else set()
    for ledger_id, owner in old - new:
        put_owners(txn, ledger_id, tuple(other for other in find_owners(txn, ledger_id) if other != owner))
    for ledger_id, owner in new - old:
        put_owners(txn, ledger_id, (*find_owners(txn, ledger_id), owner))


def _put(txn: Txn, database: str, key: bytes, value: bytes | None) -> None:
    if value is None:
        txn.delete(database, key)
    else:
        txn.put(database, key, value)


# -- steps ------------------------------------------------------------------------------------------------------------


def put_value_step(txn: Txn, path: str, value: bytes, now_ms: int) -> Step:
    """Return the step that sets the metadata node at PATH to VALUE as a broker would: version + 1, modified now."""
    key = tree_key(path)
    node = find_node(txn, path)
    if node is None:
        stat = NodeStat(0, 0, now_ms, now_ms, False)
        return Step("tree", key, None, encode_node(Node(path, stat, value)))
    stat = node.stat._replace(version=node.stat.version + 1, modified_ms=now_ms)
    return Step("tree", key, encode_node(node), encode_node(Node(path, stat, value)))


def delete_step(txn: Txn, path: str) -> Step:
    """Return the step that deletes the metadata node at PATH."""
    key = tree_key(path)
    return Step("tree", key, txn.get("tree", key), None)


# -- plan files -------------------------------------------------------------------------------------------------------


@frozen
class PlanFile:
    """A plan as a file keeps it: what was asked for (``request``), and what that came to: ``steps`` and ``reports`` are for who reviews it,
    and must come out the same when it is asked for again.

    ``steps`` is None for a change that writes ledgers first. ``state`` is ``state_of`` the store, whose transaction was
    ``txn_id``; ``reads``: the digest of what is read beside it.
    """

    command: str
    request: Json
    txn_id: int
    state: str
    steps: tuple[str, ...] | None
    reports: tuple[Json, ...]
    loses: str
    reads: str

    def dump(self) -> bytes:
        """Return it as the bytes of a plan file (JSON), with the digest of all of it."""
        fields: dict[str, Any] = {  # Any: JSON
            "planFormat": PLAN_FORMAT,
            "command": self.command,
            "request": self.request,
            "transaction": self.txn_id,
            "state": self.state,
            "steps": self.steps,
            "reports": self.reports,
            "loses": self.loses,
            "reads": self.reads,
        }
        return json.dumps({**fields, "digest": _digest_of(fields)}, indent=1).encode() + b"\n"

    def check_store(self, store: Store) -> None:
        """Raise StalePlan unless STORE is the one that it was planned on, in that state."""
        check_state(store, self.txn_id, self.state)

    def check(self, found: PlanFile) -> None:
        """Raise StalePlan unless FOUND, which was asked for now, comes to the same."""
        check_transaction(self.txn_id, found.txn_id)
        if found.reads != self.reads:
            raise StalePlan(f"what {self.command} reads has changed since the plan was made", hint=_AGAIN)
        came_to = (found.steps, found.reports, found.loses)
        if came_to != (self.steps, self.reports, self.loses):
            raise StalePlan(f"{self.command} would do something else now than the plan shows", hint=_AGAIN)


def plan_file(plan: Plan | WritingPlan, state: str, reports: tuple[ChangeReport, ...], request: Json) -> PlanFile:
    """Return what a file keeps of PLAN, which was made by REQUEST on a store in STATE, and shows REPORTS."""
    documents = [document for report in reports for document in report.documents()]
    return PlanFile(
        plan.command,
        request,
        plan.txn_id,
        state,
        tuple(map(_step_text, plan.steps)) if isinstance(plan, Plan) else None,
        tuple(json.loads(json.dumps(documents))),
        plan.loses,
        "" if isinstance(plan, Plan) else plan.digest(),
    )


def load_plan(data: bytes, where: str) -> PlanFile:
    """Return what is in the bytes of a plan file; raises InvalidValue for what none is, is of an earlier version, or was changed."""
    try:
        fields = json_object(data)
        form = integer(fields["planFormat"], "planFormat")
        if form != PLAN_FORMAT:
            raise InvalidValue(
                f"{where} is a plan of format {form}, this version applies format {PLAN_FORMAT}", hint=_AGAIN
            )
        if fields.pop("digest") != _digest_of(fields):
            raise InvalidValue(f"{where} was changed since the plan was made", hint=_AGAIN, path=where)
        steps = fields["steps"]
        return PlanFile(
            text(fields["command"], "command"),
            dict(fields["request"]),
            integer(fields["transaction"], "transaction"),
            text(fields["state"], "state"),
            None if steps is None else tuple(steps),
            tuple(fields["reports"]),
            text(fields["loses"], "loses"),
            text(fields["reads"], "reads"),
        )
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise InvalidValue(f"{where} is not a plan: {reason_of(error)}", hint=_HINT, path=where) from error


def read_plan(path: Path) -> PlanFile:
    """Return what is in the plan file PATH; raises NotFound, InvalidValue."""
    try:
        return load_plan(read_file(path), str(path))
    except FileNotFoundError as error:
        raise NotFound(f"no plan {path}", hint=_HINT, path=str(path)) from error
    except OSError as error:
        raise InvalidValue(f"{path} cannot be read: {error.strerror}", path=str(path)) from error


def _digest_of(fields: Mapping[str, Any]) -> str:  # Any: JSON
    return sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def _step_text(step: Step) -> str:
    """Return STEP as a line that tells what it writes, and from every other one by its digest."""
    name = step.key.decode("utf-8", "backslashreplace") if step.database == "tree" else step.key.hex()
    what = "delete" if step.after is None else "make" if step.before is None else "change"
    return f"{what} {step.database} {name} (sha256 {sha256(json.dumps(_step_json(step)).encode()).hexdigest()})"


# -- audit log and undo -----------------------------------------------------------------------------------------------


def iter_changes(txn: Txn) -> Iterator[Change]:
    """Yield the audit log, oldest first."""
    for key, row in txn.items("changes"):
        yield _decode_change(key, bytes(row))


def change_numbers(txn: Txn) -> tuple[int, ...]:
    """Return the numbers of all changes in the audit log, oldest first, those whose record is damaged included."""
    return tuple(_NUMBER.unpack(key)[0] for key in txn.keys("changes", b"") if len(key) == _NUMBER.size)


def read_change(txn: Txn, number: int) -> Change:
    """Return one change; raises ChangeNotFound."""
    key = _NUMBER.pack(number) if 0 <= number < 2**64 else b""
    row = txn.get("changes", key) if key else None
    if row is None:
        raise ChangeNotFound(f"no change {number}", hint="list them with: pulsar-admin store log", change=number)
    return _decode_change(key, row)


def plan_undo(txn: Txn, number: int) -> Plan:
    """Plan bringing back the exact bytes from before change NUMBER; raises ChangeNotFound, UndoConflict, and IndexCorrupt when its
    audit record was altered.
    """
    change = read_change(txn, number)
    key = _NUMBER.pack(number)
    check_link(txn, key, txn.get("changes", key) or b"")
    if not change.steps:
        raise Refused(f"change {number} ({change.command}) wrote outside the store: it cannot be undone", change=number)
    for step in change.steps:
        if txn.get(step.database, step.key) != step.after:
            _raise_conflict(txn, change, step)
    steps = tuple(Step(step.database, step.key, step.after, step.before) for step in reversed(change.steps))
    return Plan(f"store undo {number}", txn.id, steps, tuple(part.undone() for part in parts_of(change)), undoes=number)


def parts_of(change: Change) -> tuple[ChangePart, ...]:
    """Return what CHANGE did; raises IndexCorrupt where its record has not the form of one."""
    try:
        return tuple(map(decode_part, change.reports))
    except (InvalidValue, ValueError, KeyError, TypeError, AttributeError) as error:
        raise IndexCorrupt(
            f"the audit record of change {change.change} is damaged: {reason_of(error)}",
            hint="what it did is shown by: pulsar-admin store log -o json",
            change=change.change,
        ) from error


def _raise_conflict(txn: Txn, change: Change, step: Step) -> None:
    touched = [
        later
        for later in iter_changes(txn)
        if later.change > change.change
        and any((other.database, other.key) == (step.database, step.key) for other in later.steps)
    ]
    if touched and touched[-1].undoes == change.change:
        raise UndoConflict(
            f"change {change.change} is undone already, by change {touched[-1].change}",
            hint=f"do it again with: pulsar-admin store undo {touched[-1].change}",
            change=change.change,
        )
    hint = ""
    if touched:
        by = f"change {touched[-1].change} ({touched[-1].command})"
        hint = f"undo that first: pulsar-admin store undo {touched[-1].change}"
    elif step.database == "delayed" and step.key.startswith(_DELAYED_INDEX):
        by = "a delayed build"
        hint = (
            "the widths alone can be set as they were: pulsar-admin namespaces enable-delayed-message TENANT/NAMESPACE"
        )
    else:
        by = "something outside the audit log"
    key = step.key.decode("utf-8", "replace").replace("\0", " ")
    raise UndoConflict(
        f"change {change.change} cannot be undone: {by} touched {step.database} {key} since",
        hint=hint,
        change=change.change,
        later=touched[-1].change if touched else None,
    )


def _encode_change(change: Change, previous: str) -> bytes:
    fields = {
        "time": change.time_ms,
        "command": change.command,
        "reports": list(change.reports),
        "steps": [_step_json(step) for step in change.steps],
        "undoes": change.undoes,
        "previous": previous,
    }
    return zlib.compress(json.dumps(fields).encode())


def _decode_change(key: bytes, row: bytes) -> Change:
    try:
        fields = json.loads(zlib.decompress(row))
        return Change(
            _NUMBER.unpack(key)[0],
            fields["time"],
            fields["command"],
            tuple(fields["reports"]),
            tuple(step_of(step) for step in fields["steps"]),
            fields["undoes"],
        )
    except (ValueError, KeyError, TypeError, RecursionError, struct.error, zlib.error) as error:
        raise IndexCorrupt(
            f"the audit record {key.hex()} is damaged: {reason_of(error)}",
            hint="undo of that change is lost; the others still work",
        ) from error


def _step_json(step: Step) -> list[str | None]:
    return [
        step.database,
        *(None if raw is None else base64.b64encode(raw).decode() for raw in (step.key, step.before, step.after)),
    ]


def step_of(row: list[str | None]) -> Step:
    """Return the step that an audit record spells as ROW; raises ValueError, TypeError."""
    database, key, before, after = row
    decoded = [None if text is None else base64.b64decode(text, validate=True) for text in (key, before, after)]
    if database not in DATABASES or not decoded[0]:
        raise ValueError(f"a step without a key, or in no database: {database!r}")
    return Step(database, decoded[0], decoded[1], decoded[2])
