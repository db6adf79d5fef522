"""Changes as values: plans and their steps, reports, plan files, applying, undo.

Every change is one LMDB transaction. It writes the steps, saves the imported bytes of each node on its first change
(database ``base``, with which export compares), updates ``owners``, and appends a record to the audit log
(``store.db.audit_log``) that suffices for undo.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from types import NoneType
from typing import Any, ClassVar, TypeVar, get_args, get_origin

from msgspec import UNSET, Struct, UnsetType, convert, field, to_builtins
from msgspec.structs import FieldInfo, fields, replace

from pulsar_admin.store.codec.rocksvalue import NodeStat
from pulsar_admin.store.codec.strict_values import integer, json_object, text
from pulsar_admin.store.db import audit_log
from pulsar_admin.store.db.entry_files import EntryFiles
from pulsar_admin.store.db.environment import Store, Txn
from pulsar_admin.store.db.owners import find_owners, put_owners
from pulsar_admin.store.db.tree import Node, decode_node, encode_node, find_node, tree_key
from pulsar_admin.store.errors import IndexCorrupt, InvalidValue, NotFound, Refused, StalePlan, UndoConflict, reason_of
from pulsar_admin.store.files import read_file
from pulsar_admin.store.model.cursors import Extent
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.redaction import hide_secrets_in
from pulsar_admin.store.model.references import references
from pulsar_admin.store.names import (
    MANAGED_LEDGERS,
    SCALABLE,
    SEGMENT,
    NamespaceName,
    Position,
    TopicName,
    TopicSelection,
    managed_ledger_of_path,
    parse_namespace,
    parse_position,
    parse_topic,
    shell_word,
)
from pulsar_admin.store.wording import Answer, json_keys, optional_fields

_DELAYED_INDEX = b"index\0"  # rows that builds write: they can be rebuilt from the entries, so no audit log has them
_COMPACTION = "/__compaction"
PLAN_FORMAT = 3
_HINT = "create one with --plan FILE on any command that changes something"
_AGAIN = "create a new plan and review it"


class ChangeKind(Struct, frozen=True):
    """The kind of a change: its ``command`` as the audit log shows it, and the ``words`` that are its report's title.

    In ``words``, ``{place}`` stands for the objects of the report's parts, ``{subscription}`` and ``{cursor}`` for
    their subscriptions, and ``{first}`` for the object of the first part, if the other parts only follow from it.
    """

    command: str
    words: str

    @classmethod
    def of(cls, command: str) -> ChangeKind:
        """Return a kind whose words are the command's name: ``namespaces set-property`` becomes "set property of {place}"."""
        words = command.partition(" ")[2].replace("-", " ").replace("ttl", "TTL")
        return cls(command, f"{words} of {{place}}")


class Plan(Struct, frozen=True):
    """A change computed at the store's transaction ``txn_id``; it is applied to exactly that state or not at all.

    ``parts``: its effect on each topic, subscription or namespace. ``loses``: what undo cannot restore, in numbers.
    """

    kind: ChangeKind
    txn_id: int
    steps: Sequence[audit_log.Step]
    parts: Sequence[ChangePart]
    loses: str = ""
    undoes: int | None = None
    warnings: tuple[str, ...] = field(default=())
    untouched: frozenset[int] = frozenset()
    """Indexes in ``parts`` of parts that do not change: shown, but not in the change."""

    @property
    def command(self) -> str:
        """The command that makes this plan."""
        return self.kind.command

    def preview(self) -> ChangeReport:
        """Return the report of a dry run."""
        return self.report(None, dry_run=True)

    def unchanged(self) -> ChangeReport:
        """Return the report of applying a plan without steps, which changes nothing."""
        return self.report(None)

    def report(self, number: int | None, *, dry_run: bool = False) -> ChangeReport:
        """Return the report of this change; ``number``: its number in the audit log, None if it is not written."""
        is_undo = self.undoes is not None
        command, words = self.kind.command, self.kind.words
        return ChangeReport(command, words, number, dry_run, self.parts, self.warnings, self.untouched, is_undo)


class WritingPlan(Struct, frozen=True):
    """A change that must write ledgers before its steps are known.

    ``shown`` returns the reports of a dry run, ``made`` applies the change to a store open for writing and returns its
    reports; it raises StalePlan and DiskFull.
    """

    kind: ChangeKind
    txn_id: int
    shown: Callable[[], tuple[ChangeReport, ...]]
    made: Callable[[Store], tuple[ChangeReport, ...]]
    loses: str = ""
    digest: Callable[[], str] = lambda: ""
    """Returns the digest of inputs from outside the store."""

    @property
    def command(self) -> str:
        """The command that makes this plan."""
        return self.kind.command

    def preview(self) -> tuple[ChangeReport, ...]:
        """Return the reports of a dry run."""
        return self.shown()


def check_current(store: Store, plan: Plan) -> None:
    """Raise StalePlan if the store changed since ``plan`` was made."""
    with store.read() as txn:
        _check_current(txn, plan, txn.id)


def check_state(store: Store, txn_id: int, state: str) -> None:
    """Raise StalePlan if the store's state or transaction id differs."""
    with store.read() as txn:
        check_transaction(txn_id, txn.id)
        # The same number of transactions proves nothing: every fresh import has the same.
        if state_of(txn) != state:
            raise StalePlan("the plan was made on another store", hint="plan again on this store")


def state_of(txn: Txn) -> str:
    """Return a hex digest of a store's identity and its changes so far; a copy that was changed since has a different one."""
    return sha256(b"%d" % txn.store.info.created_ms + (txn.get("state", audit_log.CHAIN_HEAD) or b"")).hexdigest()


def check_transaction(planned: int, found: int) -> None:
    """Raise StalePlan if the transaction id ``found`` differs from the planned one."""
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
    # A row that an earlier step writes is compared with what that step leaves.
    written: dict[tuple[str, bytes], bytes | None] = {}
    for step in plan.steps:
        row = step.database, step.key
        if (written[row] if row in written else txn.get(*row)) != step.before:
            raise StalePlan(
                f"the plan was made on another store: {step.database} {step.key.decode('utf-8', 'replace')} differs",
                hint="plan again on this store",
            )
        written[row] = step.after


def apply_plan(store: Store, plan: Plan, now_ms: int, first: Callable[[Txn], None] = lambda txn: None) -> ChangeReport:
    """Apply a plan in one transaction and return its report. Raises StalePlan.

    ``first`` runs before the steps in the same transaction; its writes are not part of the change, and undo leaves
    them.
    """

    def work(txn: Txn) -> int:
        _check_current(txn, plan, txn.id - 1)
        first(txn)
        return _apply(store, txn, plan, now_ms)

    change_number = store.write(work)
    return plan.report(change_number)


def _apply(store: Store, txn: Txn, plan: Plan, now_ms: int) -> int:
    with EntryFiles(store, txn) as files:
        reader = EntryReader(files, txn)
        for step in plan.steps:
            if step.database == "tree":
                _apply_tree_step(txn, reader, step)
            else:
                txn.put_or_delete(step.database, step.key, step.after)
    reports = tuple(part.as_json() for place, part in enumerate(plan.parts) if place not in plan.untouched)
    return audit_log.append_change(txn, now_ms, plan.command, reports, plan.steps, plan.undoes)


def _apply_tree_step(txn: Txn, reader: EntryReader, step: audit_log.Step) -> None:
    before = None if step.before is None else decode_node(step.key, step.before)
    after = None if step.after is None else decode_node(step.key, step.after)
    if txn.view("base", step.key) is None:  # later changes keep the imported row: exports compare with that
        txn.put("base", step.key, step.before or b"")
    old = set(references(txn, reader, before)) if before else set()
    txn.put_or_delete("tree", step.key, step.after)
    # After the write: of the cursor of compaction, ``references`` reads the tree.
    new = set(references(txn, reader, after)) if after else set()
    for ledger_id, owner in old - new:
        put_owners(txn, ledger_id, tuple(other for other in find_owners(txn, ledger_id) if other != owner))
    for ledger_id, owner in new - old:
        put_owners(txn, ledger_id, (*find_owners(txn, ledger_id), owner))


# -- steps ------------------------------------------------------------------------------------------------------------


def check_new_path(path: str) -> None:
    """Raise InvalidValue for a path with an empty name, ``.`` or ``..``: no request to a broker can name it, and ZooKeeper has none.

    Where brokers keep metadata in RocksDB, clients create such topics and subscriptions: what exists is copied and recovered.
    """
    if not {"", ".", ".."}.isdisjoint(path.split("/")[1:]):
        raise InvalidValue(f"{path}: a name in a metadata path is empty, . or ..", path=path)


def put_value_step(txn: Txn, path: str, value: bytes, now_ms: int, *, whole_topic: bool = False) -> audit_log.Step:
    """Return the step that creates or sets a metadata node as a broker would: version + 1, modified now.

    Raises Refused for a segment of a scalable topic, unless the ``whole_topic`` is created with it.
    """
    key = tree_key(path)
    node = find_node(txn, path)
    if not whole_topic:
        _check_segment(path)
    if node is None:
        stat = NodeStat(0, 0, now_ms, now_ms, False)
        return audit_log.Step("tree", key, None, encode_node(Node(path, stat, value)))
    stat = node.stat._replace(version=node.stat.version + 1, modified_ms=now_ms)
    return audit_log.Step("tree", key, encode_node(node), encode_node(Node(path, stat, value)))


def _check_segment(path: str) -> None:
    """Raise Refused for the managed ledger of a segment or scalable topic, which a live controller keeps consistent
    with the topic's record. Cursors of segments may change, except for compaction's, which Pulsar 5.0 was not seen to
    use there."""
    at = path.removesuffix(_COMPACTION)
    name = managed_ledger_of_path(at) if path.startswith(f"{MANAGED_LEDGERS}/") else None
    if name is not None and name.domain in (SCALABLE, SEGMENT):
        raise Refused(
            f"{name} is {'a scalable topic' if name.domain == SCALABLE else 'a segment of ' + str(name.whole)}: a broker's controller "
            "creates, seals and deletes segments",
            hint="those of topics that are created or deleted as a whole go with them: see pulsar-admin scalable-topics --help",
            topic=str(name),
        )


def delete_step(txn: Txn, path: str, *, whole_topic: bool = False) -> audit_log.Step:
    """Return the step that deletes the node at ``path``; raises Refused for a segment, unless the ``whole_topic`` is
    deleted."""
    key = tree_key(path)
    if not whole_topic:
        _check_segment(path)
    return audit_log.Step("tree", key, txn.get("tree", key), None)


# -- plan files -------------------------------------------------------------------------------------------------------


class PlanFile(Struct, frozen=True):
    """A plan as stored in a file: the ``request``, and the ``steps`` and ``reports`` for its reviewer.

    Planning the request once more must give the same steps and reports. ``steps`` is None for a change that writes
    ledgers first. ``state`` is the store's ``state_of`` at transaction ``txn_id``; ``reads`` is the digest of the
    other input files.
    """

    command: str
    request: Json
    txn_id: int = field(name="transaction")
    state: str
    steps: tuple[str, ...] | None
    reports: tuple[Json, ...]
    loses: str
    reads: str

    def dump(self) -> bytes:
        """Return the bytes of the plan file: JSON with a digest of its whole content."""
        document = {"planFormat": PLAN_FORMAT, **record_json(self)}
        return json.dumps({**document, "digest": _document_digest(document)}, indent=1).encode() + b"\n"

    def check_store(self, store: Store) -> None:
        """Raise StalePlan unless the store is the one that was planned on, in that state."""
        check_state(store, self.txn_id, self.state)

    def check(self, found: PlanFile) -> None:
        """Raise StalePlan unless ``found``, planned from the same request now, has the same steps and reports."""
        check_transaction(self.txn_id, found.txn_id)
        if found.reads != self.reads:
            raise StalePlan(f"what {self.command} reads has changed since the plan was made", hint=_AGAIN)
        came_to = (found.steps, found.reports, found.loses)
        if came_to != (self.steps, self.reports, self.loses):
            raise StalePlan(f"{self.command} would now do something other than the plan shows", hint=_AGAIN)


def plan_file(plan: Plan | WritingPlan, state: str, reports: tuple[ChangeReport, ...], request: Json) -> PlanFile:
    """Return the plan file of a plan that ``request`` produced on a store in ``state``."""
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
    """Return the plan in the bytes of a plan file; raises InvalidValue if they are not one, an earlier version, or were edited."""
    try:
        document = json_object(data, once=True)
        form = integer(document["planFormat"], "planFormat")
        if form != PLAN_FORMAT:
            raise InvalidValue(
                f"{where} is a plan of format {form}, this version applies format {PLAN_FORMAT}", hint=_AGAIN
            )
        if document.pop("digest") != _document_digest(document):
            raise InvalidValue(f"{where} was changed since the plan was made", hint=_AGAIN, path=where)
        return convert(document, PlanFile)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise InvalidValue(f"{where} is not a plan: {reason_of(error)}", hint=_HINT, path=where) from error


def read_plan(path: Path) -> PlanFile:
    """Return the plan in a plan file; raises NotFound, InvalidValue."""
    try:
        return load_plan(read_file(path), str(path))
    except FileNotFoundError as error:
        raise NotFound(f"no plan {path}", hint=_HINT, path=str(path)) from error
    except OSError as error:
        raise InvalidValue(f"{path} cannot be read: {error.strerror}", path=str(path)) from error


def _document_digest(fields: Mapping[str, Any]) -> str:  # Any: JSON
    return sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def _step_text(step: audit_log.Step) -> str:
    """Return a line that describes what a step writes, with its digest, so that lines of different steps differ."""
    name = step.key.decode("utf-8", "backslashreplace") if step.database == "tree" else step.key.hex()
    what = "delete" if step.after is None else "make" if step.before is None else "change"
    return f"{what} {step.database} {name} (sha256 {sha256(json.dumps(to_builtins(step)).encode()).hexdigest()})"


def encode_argument(value: Any) -> Any:  # Any: JSON, and what it stands for
    """Return an argument of a request as JSON; raises ValueError for a type that a plan file cannot contain."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, list):
        return [encode_argument(one) for one in value]
    if isinstance(value, Mapping):
        return {"object": {str(key): encode_argument(one) for key, one in value.items()}}
    for kind, to_json, _ in KINDS:
        if isinstance(value, kind):
            return {kind.__name__: to_json(value)}
    raise ValueError(f"a {type(value).__name__}")


def decode_argument(value: Any) -> Any:  # Any: as above
    """Return the argument that ``encode_argument`` turned into JSON; raises ValueError and TypeError for other JSON."""
    if isinstance(value, list):
        return [decode_argument(one) for one in value]
    if isinstance(value, float):
        raise ValueError("no method takes a fraction")
    if not isinstance(value, dict):
        return value
    ((name, inner),) = value.items()
    if name == "object":
        return {key: decode_argument(one) for key, one in inner.items()}
    (from_json,) = (from_json for kind, _, from_json in KINDS if kind.__name__ == name)
    return from_json(inner)


def _selection(inner: list[Any]) -> TopicSelection:  # Any: as above
    topics, all_topics, pattern = inner
    return TopicSelection(
        tuple(map(parse_topic, topics)), all_topics is True, None if pattern is None else text(pattern, "pattern")
    )


KINDS: tuple[tuple[type, Callable[[Any], Any], Callable[[Any], Any]], ...] = (  # Any: of each kind its own
    (tuple, lambda value: [encode_argument(one) for one in value], lambda inner: tuple(map(decode_argument, inner))),
    (TopicName, str, parse_topic),
    (NamespaceName, str, parse_namespace),
    (TopicSelection, lambda value: [[*map(str, value.topics)], value.all_topics, value.pattern], _selection),
    (Position, str, parse_position),
    (Path, os.path.abspath, Path),
    (datetime, datetime.isoformat, datetime.fromisoformat),
    (timedelta, lambda value: value // timedelta(microseconds=1), lambda inner: timedelta(microseconds=inner)),
)
"""What JSON has no kind for: how it is written, and read back."""


# -- undo ------------------------------------------------------------------------------------------------------------


def plan_undo(txn: Txn, number: int) -> Plan:
    """Plan restoring the exact bytes from before a change; raises ChangeNotFound, UndoConflict, and IndexCorrupt if
    its audit record was edited.
    """
    change = audit_log.read_change(txn, number)
    audit_log.check_unaltered(txn, number)
    if not change.steps:
        raise Refused(f"change {number} ({change.command}) wrote outside the store: it cannot be undone", change=number)
    for step in change.steps:
        if txn.get(step.database, step.key) != step.after:
            _raise_conflict(txn, change, step)
    steps = tuple(audit_log.Step(step.database, step.key, step.after, step.before) for step in reversed(change.steps))
    parts = tuple(part.undone() for part in parts_of(change))
    where = "{subscription} of {place}" if any(part.subscription for part in parts) else "{place}"
    kind = ChangeKind(f"store undo {number}", f"undo change {number} ({change.command}), {where}")
    return Plan(kind, txn.id, steps, parts, undoes=number)


def parts_of(change: audit_log.Change) -> tuple[ChangePart, ...]:
    """Return the parts of a change; raises IndexCorrupt if its record is malformed."""
    try:
        return tuple(map(decode_part, change.reports))
    except (InvalidValue, ValueError, KeyError, TypeError, AttributeError) as error:
        raise IndexCorrupt(
            f"the audit record of change {change.change} is damaged: {reason_of(error)}",
            hint="to see that change: pulsar-admin store log -o json",
            change=change.change,
        ) from error


def _raise_conflict(txn: Txn, change: audit_log.Change, step: audit_log.Step) -> None:
    touched = [
        later
        for later in audit_log.iter_changes(txn)
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


# -- records as JSON, and back ----------------------------------------------------------------------------------------


Record = TypeVar("Record", bound=Struct)


@functools.cache
def _fields_of(kind: type[Struct]) -> tuple[tuple[str, str, FieldInfo], ...]:
    """Return (name, JSON key, FieldInfo) of a record type's fields in JSON order; the key is "" for a field that is
    inlined."""
    inline, places, last = (getattr(kind, f"JSON_{what}", {}) for what in ("INLINE", "BEFORE", "LAST"))
    infos, keys = {one.name: one for one in fields(kind)}, json_keys(kind)
    names: list[str] = [*(name for name in infos if name not in last), *last]
    order = sorted(names, key=lambda name: (names.index(places.get(name) or name), name not in places))
    return tuple((name, "" if name in inline else keys[name], infos[name]) for name in order if name in keys)


def _keys_in(kind: type[Struct], document: Collection[str]) -> set[str]:
    """Return the keys of ``document`` that a record of type ``kind`` has fields for, including those of inlined records.

    Empty if a key that ``record_json`` always writes is missing: records of other changes share some key names.
    """
    rows = _fields_of(kind)
    keys = {key for _, key, _ in rows if key}
    omits, optional = kind.__struct_config__.omit_defaults, optional_fields(kind)
    always = (key for name, key, one in rows if one.required or not (omits or name in optional or one.default is UNSET))
    if not all(key in document for key in always if key):
        return set()
    inlined = (_record_of(one.type) for _, key, one in rows if not key)
    return keys.intersection(document).union(*(_keys_in(one, document) for one in inlined if one))


def _record_of(hint: Any) -> type[Struct] | None:  # Any: a type as annotated
    """Return the record type in an annotation such as ``Extent | None``; None if it has none."""
    return next((one for one in get_args(hint) or (hint,) if isinstance(one, type) and issubclass(one, Struct)), None)


def record_json(record: Struct) -> dict[str, Any]:  # Any: JSON values
    """Return a record with the command line's JSON keys, positions as text.

    Fields that are UNSET are left out, and with ``omit_defaults`` those with default values; those in ``JSON_OPTIONAL`` while they are
    None. Fields of records named in ``JSON_INLINE`` stand among the record's own keys.
    """
    document: dict[str, Any] = {}  # Any: JSON values
    omits, optional = record.__struct_config__.omit_defaults, optional_fields(type(record))
    for name, key, one in _fields_of(type(record)):
        value = getattr(record, name)
        if value is not UNSET and not (value is None and name in optional) and not (omits and value == one.default):
            document |= {key: _plain(value)} if key else _plain(value)
    return document


def _plain(value: Any) -> Any:  # Any: of a field, as JSON
    if isinstance(value, Position):
        return str(value)
    if isinstance(value, Struct):
        return record_json(value)
    return [*map(_plain, value)] if isinstance(value, tuple) else value


def read_record(kind: type[Record], document: Json) -> Record:
    """Return the record that ``record_json`` wrote as ``document``; one of an older version may have fewer or more
    keys.

    Raises KeyError, TypeError, AttributeError and InvalidValue for any other document.
    """
    values: dict[str, Any] = {}  # Any: of the fields
    rows = _fields_of(kind)
    own = {key for _, key, _ in rows}
    for name, key, one in rows:
        inner = None if key else _record_of(one.type)
        if key in document:
            values[name] = _read(one.type, document[key])
        elif inner and _keys_in(inner, document.keys()) - own:
            values[name] = read_record(inner, document)
    return kind(**values)


def _read(hint: Any, value: Any) -> Any:  # Any: a type as annotated, JSON, and what that type has
    if value is None:
        return None
    for one in (hint, *get_args(hint)):
        if get_origin(one) is tuple:
            return tuple(_read(get_args(one)[0], item) for item in value)
    kind = _record_of(hint)
    return value if kind is None else parse_position(value) if kind is Position else read_record(kind, value)


@functools.lru_cache
def _kind_of(keys: frozenset[str]) -> type[ChangePart]:
    """Return the subclass of ChangePart that has fields for most of ``keys``; of several, the one listed first."""
    kinds: list[type[ChangePart]] = [ChangePart, *ChangePart.__subclasses__()]
    return max(kinds, key=lambda kind: len(_keys_in(kind, keys)))


def decode_part(document: Json) -> ChangePart:
    """Return the part from a document that ``as_json`` wrote; raises as ``read_record``."""
    part = read_record(_kind_of(frozenset(document)), document)
    known = part.as_json()
    return replace(part, more={key: value for key, value in document.items() if key not in known})


# -- what a change does: parts, and reports of all of them -------------------------------------------------------------


Json = Mapping[str, Any]  # Any: JSON values


class BrokerMove(Answer, frozen=True):
    """The position to which a broker would move the cursor.

    ``entries``: how many more entries than this toolkit it would redeliver or, if the move expires, drop; below 0: fewer.
    """

    mark_delete: Position = field(name="markDeletePosition")
    agrees: bool
    entries: int


class RetainingSubscription(Answer, frozen=True):
    """A subscription that retains ledgers, and its position."""

    subscription: str
    mark_delete: Position | None = field(name="markDeletePosition")


class Deletable(Answer, frozen=True):
    """The ledgers that a broker may delete after the change, and what retains the others."""

    JSON_HIDDEN = ("retained",)

    ledgers: tuple[int, ...]
    entries: int
    bytes: int
    kept_by_retention: tuple[int, ...]
    blocker: RetainingSubscription | None = field(name="blockedBy")
    """The subscription that retains the other ledgers."""
    retained: tuple[int, ...] = ()
    """The ledgers that the subscription retains; not in JSON."""

    @property
    def blocked_by(self) -> str | None:
        """The name of the subscription that retains the other ledgers."""
        return None if self.blocker is None else self.blocker.subscription

    @property
    def blocked_at(self) -> Position | None:
        """The mark-delete position of that subscription."""
        return None if self.blocker is None else self.blocker.mark_delete


class LedgerPart(Answer, frozen=True):
    """The entries, messages and bytes of one ledger that a change concerns."""

    JSON_INLINE = ("extent",)

    ledger_id: int
    extent: Extent


class FutureDated(Answer, frozen=True):
    """Messages that no age expires, because producers dated them in the future: their number, and the first position."""

    entries: int
    messages: int
    first: Position
    latest_time_ms: int
    producers: tuple[str, ...]

    @property
    def extent(self) -> Extent:
        """The number of entries and messages; bytes are not counted."""
        return Extent(self.entries, self.messages)


class DueMessage(Answer, frozen=True):
    """A delayed message, and when it is due."""

    position: Position
    due_time_ms: int


class DroppedEarly(Answer, frozen=True):
    """Delayed messages that are dropped before they are due: how many, and the first of them."""

    messages: int
    first: tuple[DueMessage, ...]


class DelayLoss(Answer, frozen=True):
    """The delayed messages that an expiry drops before they are due (``not_due``).

    ``ttl_conflict``: those of the remaining ones that the TTL will drop before they are due; ``evicting_quotas``: types
    of backlog quotas that also drop delayed messages. UNSET: not determined.
    """

    not_due: DroppedEarly | None = None
    ttl_conflict: DroppedEarly | UnsetType | None = UNSET
    evicting_quotas: tuple[str, ...] | UnsetType = UNSET


class MoveBasis(Answer, frozen=True, omit_defaults=True):
    """What determined a move: a position, a time (with ``until_ms``: only entries before that one), or the limit of an
    expiry, from a TTL if ``ttl_seconds`` is set.

    ``broker``: where a broker would move the cursor; UNSET if not computed, None if a broker would return an error.
    """

    rule: str
    position: Position | None = None
    time_ms: int | None = None
    until_ms: int | None = None
    limit_ms: int | None = None
    ttl_seconds: int | None = field(default=None, name="ttl")
    ttl_source: str | None = None
    broker: BrokerMove | UnsetType | None = UNSET


class ExpiryDetails(Answer, frozen=True, omit_defaults=True):
    """Details of an expiry. ``ledgers``: the dropped messages by ledger.

    ``delays`` None: delayed messages were not examined.
    """

    JSON_INLINE = ("delays",)

    ledgers: tuple[LedgerPart, ...]
    future_dated: FutureDated | None
    delays: DelayLoss | None = None


class WrittenEvent(Answer, frozen=True):
    """The event that changes a topic's policies.

    ``topic`` None: they are in a node; ``position`` None: no event was written.
    """

    topic: str | None = field(name="events")
    position: Position | None = None


class CompactionDetails(Answer, frozen=True):
    """What a compaction read and kept.

    Bytes are entry payloads; ``payload_bytes``: message payloads ``before`` and ``after``.
    """

    format: str
    keys: int | None
    deleted_keys: int | None
    entries_read: int
    bytes_read: int
    bytes_saved: int
    payload_bytes: Mapping[str, int] = field(name="payloadBytes")
    messages_by_reason: Mapping[str, int]
    damaged: int


class SplitIndex(Answer, frozen=True):
    """The effect of narrower partitions on one delayed-message index."""

    topic: str
    subscription: str
    messages: int
    partitions_before: int
    partitions_after: int


class ChangePart(Answer, frozen=True, kw_only=True, omit_defaults=True):
    """The effect of a change on one object: a cursor, the policies of a namespace, the nacks of a subscription …

    ``before`` and ``after`` have the command line's JSON keys, positions as text and times in ms; ``before`` is None
    for a created object, ``after`` for a removed one. Kinds of change with further fields are subclasses.
    """

    JSON_INLINE: ClassVar[tuple[str, ...]] = ("extent", "more")
    JSON_LAST = ("more", "warnings")
    JSON_BEFORE: ClassVar[Mapping[str, str]] = {}
    """Field of a subclass → field of this class that its key precedes in JSON; keys of other fields precede ``JSON_LAST``."""
    VERB: ClassVar[str] = ""
    """The verb for what the change does to the messages of ``extent``."""

    topic: str | None = None
    subscription: str | None = None
    namespace: str | None = None
    resource: str | None = None
    """An object of another kind: ``tenant acme``, ``cluster west`` …"""
    before: Json | None = field(default_factory=NoneType)
    after: Json | None = field(default_factory=NoneType)
    extent: Extent | None = None
    """How many entries the change concerns; for a cursor, those replayed and skipped together."""
    unreferenced_ledgers: tuple[int, ...] | None = None
    """Ledgers that nothing references after a removal."""
    more: Json = field(default_factory=dict)
    """Keys of an audit record that this version does not know."""
    warnings: tuple[str, ...] = ()

    def undone(self) -> ChangePart:
        """Return the part of the change that undoes this one, without statements that only hold for moving forward."""
        return replace(self, before=self.after, after=self.before, warnings=())

    def as_json(self) -> dict[str, Any]:  # Any: JSON values
        """Return the part with the keys of the command line's JSON."""
        return record_json(self) | {"before": hide_secrets_in(self.before), "after": hide_secrets_in(self.after)}


class CursorPart(ChangePart, frozen=True, kw_only=True, omit_defaults=True):
    """A cursor that is moved or removed: messages ``replayed`` and ``skipped``, the ledgers that a broker may then
    delete, the ``basis`` of the move, and details of an ``expiry``."""

    JSON_INLINE = (*ChangePart.JSON_INLINE, "basis", "expiry")
    JSON_BEFORE = dict.fromkeys(("replayed", "skipped", "deletable"), "unreferenced_ledgers")

    replayed: Extent | None = None
    skipped: Extent | None = None
    deletable: Deletable | None = None
    basis: MoveBasis | None = None
    expiry: ExpiryDetails | None = None

    @property
    def broker(self) -> BrokerMove | None:
        """Where a broker would move the cursor; None if not computed, or if a broker would return an error."""
        return (self.basis and self.basis.broker) or None

    @property
    def ledgers(self) -> tuple[LedgerPart, ...]:
        """The messages that an expiry drops, by ledger."""
        return () if self.expiry is None else self.expiry.ledgers

    @property
    def future_dated(self) -> FutureDated | None:
        """Messages that no age expires, because they are dated in the future."""
        return None if self.expiry is None else self.expiry.future_dated

    def undone(self) -> ChangePart:
        """Return the part of the change that undoes this one, without statements that only hold for moving forward."""
        basis = None if self.basis is None else replace(self.basis, broker=UNSET)
        return replace(super().undone(), replayed=None, skipped=None, deletable=None, basis=basis, expiry=None)


class PolicyPart(ChangePart, frozen=True, kw_only=True, omit_defaults=True):
    """Policies of a topic, changed by an event."""

    JSON_INLINE = (*ChangePart.JSON_INLINE, "event")
    JSON_BEFORE: ClassVar = {"event": "extent"}

    event: WrittenEvent | None = None


class CompactionPart(ChangePart, frozen=True, kw_only=True, omit_defaults=True):
    """A topic that gets another compacted ledger."""

    JSON_INLINE = (*ChangePart.JSON_INLINE, "compaction")
    VERB = "keeps"

    compaction: CompactionDetails | None = None


class DelayedPart(ChangePart, frozen=True, kw_only=True, omit_defaults=True):
    """The delayed-delivery policy of a namespace; ``split``: its indexes that get narrower partitions."""

    split: tuple[SplitIndex, ...] | None = None


class NacksPart(ChangePart, frozen=True, kw_only=True, omit_defaults=True):
    """Negative acks that are tracked (with their precision) or popped."""

    JSON_BEFORE: ClassVar = {"precision_bits": "before"}

    entries: int | None = None
    precision_bits: int | None = None
    already_tracked: int | None = None


class AnnotationPart(ChangePart, frozen=True, kw_only=True, omit_defaults=True):
    """Ledgers of a topic whose publish times are written into its metadata. ``form``: where in the metadata."""

    JSON_BEFORE: ClassVar = {"form": "before"}

    form: str | None = None
    annotated: tuple[int, ...] | None = None


class DeletedPart(ChangePart, frozen=True, kw_only=True, omit_defaults=True):
    """A topic, schema or ledger that is permanently lost once a broker has the change."""

    VERB = "deletes"


class ForgottenPart(ChangePart, frozen=True, kw_only=True, omit_defaults=True):
    """Lost ledgers that are removed from the lists that name them."""

    VERB = "drops"


class ReturnedPart(ChangePart, frozen=True, kw_only=True, omit_defaults=True):
    """A part whose entries or nodes are restored."""

    VERB = "restores"


class CopiedPart(ChangePart, frozen=True, kw_only=True, omit_defaults=True):
    """A topic that is copied."""

    VERB = "copies"


class ChangeReport(Struct, frozen=True):
    """What a plan would do (``dry_run``), or what a change did.

    ``command`` and ``words`` are those of its ``ChangeKind``. ``number``: the change's in the audit log, None for a
    plan or if nothing was changed. ``untouched``: indexes of the ``parts`` that do not change. ``plan_warnings``
    concern all parts. ``is_undo``: the change undoes another one. ``store``: the directory that the undo command names,
    "" for the default store.
    """

    command: str
    words: str
    number: int | None
    dry_run: bool
    parts: Sequence[ChangePart]
    plan_warnings: tuple[str, ...] = ()
    untouched: frozenset[int] = frozenset()
    is_undo: bool = False
    store: str = ""

    @property
    def replayed(self) -> Extent:
        """The sum of what all moves redeliver."""
        return sum((part.replayed for part in self._cursors() if part.replayed is not None), Extent())

    @property
    def skipped(self) -> Extent:
        """The sum of what all moves skip."""
        return sum((part.skipped for part in self._cursors() if part.skipped is not None), Extent())

    def _cursors(self) -> list[CursorPart]:
        return [part for part in self.parts if isinstance(part, CursorPart)]

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings of the plan and of all parts."""
        texts = (*self.plan_warnings, *(text for part in self.parts for text in part.warnings))
        return tuple(dict.fromkeys(texts))

    def documents(self) -> tuple[dict[str, Any], ...]:  # Any: JSON values
        """Return one JSON object per part."""
        return tuple(self.iter_documents())

    def iter_documents(self) -> Iterator[dict[str, Any]]:  # Any: JSON values
        """Yield one JSON object per part."""
        return (
            self._document(part, None if place in self.untouched else self.number)
            for place, part in enumerate(self.parts)
        )

    def _document(self, part: ChangePart, number: int | None) -> dict[str, Any]:  # Any: JSON values
        document: dict[str, Any] = {"change": number, **part.as_json(), "dryRun": self.dry_run}
        document["undo"] = None if number is None else undo_command(number, self.store)
        if self.plan_warnings:
            document["warnings"] = list(dict.fromkeys((*self.plan_warnings, *part.warnings)))
        return document


def undo_command(number: int, store: str = "") -> str:
    """Return the command that undoes change ``number`` of the store in the directory ``store``, "" for the default
    store.
    """
    return f"pulsar-admin {f'--store {shell_word(store)} ' if store else ''}store undo {number}"
