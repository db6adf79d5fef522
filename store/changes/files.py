"""Plan files: what was planned, written by ``Plan.dump`` and read back from who knows whom.

Of a file only the steps count. They must be what a command that makes plans would write on this very store, to the byte: the
command's own planning is run again towards the state that the steps say, and has to come to the same steps. What is shown,
asked for and kept in the audit log is what that planning reports, never what the file says of itself.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from store.changes.annotate import plan_annotate
from store.changes.cursors import CursorMove, plan_moves
from store.changes.delayed import DelayedPolicy, delivery_warnings, find_rules, plan_rules
from store.changes.intent import INTENT_FORMAT, Intent, decode_intent
from store.changes.nacks import Nacks, plan_add, plan_pop
from store.changes.plan import PLAN_FORMAT, Plan, Step, plan_undo, put_value_step, step_of
from store.changes.policies import change_policies
from store.changes.report import ChangePart
from store.changes.subscriptions import NewSubscription, check_new, creation_part, plan_unsubscribe
from store.codec.cursor import CursorInfo, CursorState, decode_cursor_info, encode_cursor_info
from store.codec.given import integer, json_object, text
from store.codec.policies import Policies, decode_json_object, decode_policies, encode_json_object
from store.db.delayed_rules import IndexRules, check_growth, decode_rules, rules_key
from store.db.nacks import BUCKET, TRACKER, decode_bucket_row, decode_tracker_row, tracker_key
from store.db.tree import Node, decode_node
from store.errors import InvalidValue, NotFound, StoreError, reason_of
from store.files import read_file
from store.model.cursors import read_cursor
from store.model.publish_times import FORMS, annotated_value
from store.model.reader import EntryReader
from store.model.topics import read_topic
from store.nacks.kept import group_of
from store.names import NamespaceName, TopicName, decode_name, topic_of_path
from store.policies.table import POLICIES

COMMAND_MAX_BYTES = 200
_COMMAND = frozenset(string.ascii_letters + string.digits + " -")
_POLICIES = "/admin/policies/"
Value = TypeVar("Value")
_HINT = "make one with --plan FILE on any command that changes"


def load_plan(data: bytes, where: str) -> Plan | Intent:
    """Return the plan in the bytes of a plan file, without its reports; raises InvalidValue."""
    try:
        fields = json_object(data)
        form = integer(fields["planFormat"], "planFormat")
        if form not in (PLAN_FORMAT, INTENT_FORMAT):
            raise InvalidValue(f"{where}: plan format {form}, this toolkit knows {PLAN_FORMAT} and {INTENT_FORMAT}")
        command = text(fields["command"], "command")
        if not command or len(command) > COMMAND_MAX_BYTES or not _COMMAND.issuperset(command):
            raise ValueError("command: expected the name of a command")
        if form == INTENT_FORMAT:
            return decode_intent(fields, command, integer(fields["transaction"], "transaction"))
        for name in ("steps", "reports", "warnings"):
            if not isinstance(fields[name], list):
                raise ValueError(f"{name}: expected a list")
        undoes = fields["undoes"]
        return Plan(
            command,
            integer(fields["transaction"], "transaction"),
            tuple(step_of(step) for step in fields["steps"]),
            (),
            undoes=None if undoes is None else integer(undoes, "undoes", 1),
            forced=fields.get("forced") is True,
        )
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidValue(f"{where} is not a plan: {reason_of(error)}", hint=_HINT, path=where) from error


def read_plan(path: Path) -> Plan | Intent:
    """Return the plan in the file PATH, without its reports; raises NotFound, InvalidValue."""
    try:
        return load_plan(read_file(path), str(path))
    except FileNotFoundError as error:
        raise NotFound(f"no plan {path}", hint=_HINT, path=str(path)) from error
    except OSError as error:
        raise InvalidValue(f"{path} cannot be read: {error.strerror}", path=str(path)) from error


def derive_plan(reader: EntryReader, plan: Plan, now_ms: int) -> Plan:
    """Return PLAN, which is current, with reports made from its steps.

    Raises InvalidValue for steps that no command makes on this store, and what planning raises.
    """
    if plan.undoes is not None:
        undo = plan_undo(reader.txn, plan.undoes)
        _check_same(plan.steps, undo.steps)
        return undo
    if len({(step.database, step.key) for step in plan.steps}) < len(plan.steps):
        raise _foreign("it writes a row twice")
    if not plan.steps:
        return replace(plan, parts=(ChangePart(),))
    sorted_out = _SortedOut()
    for step in plan.steps:
        sorted_out.add(step)
    again = list(sorted_out.plans(reader, plan, now_ms))
    _check_same(plan.steps, tuple(step for one in again for step in one.steps))
    parts = tuple(part for one in again for part in one.parts)
    warnings = tuple(text for one in again for text in one.warnings)
    return replace(plan, parts=parts, warnings=warnings)


def _check_same(given: tuple[Step, ...], made: tuple[Step, ...]) -> None:
    wanted = {(step.database, step.key): step for step in made}
    for step in given:
        if wanted.get((step.database, step.key)) != step:
            raise _foreign(f"no command writes {step.database} {_name_of(step)} like that")
    if len(given) != len(made):
        raise _foreign(f"it has {len(given)} steps of {len(made)}")


def _foreign(what: str) -> InvalidValue:
    return InvalidValue(f"the plan was not made by a command on this store: {what}", hint=f"{_HINT} and look at it")


def _name_of(step: Step) -> str:
    return step.key.decode("utf-8", "replace") if step.database == "tree" else step.key.hex()


@dataclass(slots=True)
class _SortedOut:
    """The steps of a plan by what they change."""

    cursors: list[tuple[TopicName, str, Step]] = field(default_factory=list)
    policies: dict[NamespaceName, Step] = field(default_factory=dict)
    rules: dict[str, Step] = field(default_factory=dict)
    nacks: dict[bytes, list[Step]] = field(default_factory=dict)
    annotated: list[tuple[TopicName, Step]] = field(default_factory=list)

    def add(self, step: Step) -> None:
        """Take STEP; raises InvalidValue where no command that makes plans writes."""
        if step.before == step.after:
            raise _foreign(f"it does not change {_name_of(step)}")
        if step.database == "nacks" and step.key[:1] in (TRACKER, BUCKET):
            self.nacks.setdefault(step.key[1:9], []).append(step)
        elif step.database == "delayed" and step.key.startswith(rules_key("")):
            self.rules[step.key.removeprefix(rules_key("")).decode("utf-8", "replace")] = step
        elif step.database != "tree" or not self._add_node(step):
            raise _foreign(f"no command changes {step.database} {_name_of(step)} by a plan")

    def _add_node(self, step: Step) -> bool:
        node = _after(step) or _node(step, step.before)
        parent, _, component = node.path.rpartition("/")
        topic = topic_of_path(parent)
        if topic is not None and topic.cursor_path(decode_name(component)) == node.path:
            self.cursors.append((topic, decode_name(component), step))
            return True
        annotated = topic_of_path(node.path)
        if annotated is not None and annotated.path == node.path and step.before is not None and step.after is not None:
            self.annotated.append((annotated, step))
            return True
        parts = node.path.removeprefix(_POLICIES).split("/")
        if not node.path.startswith(_POLICIES) or step.before is None or step.after is None:
            return False
        self.policies[_namespace(parts)] = step
        return True

    def plans(self, reader: EntryReader, plan: Plan, now_ms: int) -> Iterator[Plan]:
        """Yield what the commands plan towards the states that the steps say, on READER's snapshot."""
        command, txn = plan.command, reader.txn
        moved = [one for one in self.cursors if one[2].before is not None and one[2].after is not None]
        removed = [one for one in self.cursors if one[2].after is None]
        made = [one for one in self.cursors if one[2].before is None]
        if moved:
            moves = [replace(_move(reader, *one), force=plan.forced) for one in moved]
            # Reports are of now, steps of when they were planned.
            steps = plan_moves(reader, command, moves, _planned_ms(moved[0][2])).steps
            yield replace(plan_moves(reader, command, moves, now_ms), steps=steps)
        if removed:
            found = [(topic, read_cursor(txn, reader, topic, name)) for topic, name in _read(reader, removed)]
            yield plan_unsubscribe(reader, command, found, now_ms, force=plan.forced)
        for one in made:
            yield _creation(reader, plan, *one)
        if self.annotated:
            yield _annotation(reader, plan, self.annotated)
        for namespace, step in self.policies.items():
            yield _policies_plan(reader, plan, namespace, step, self.rules.pop(str(namespace), None))
        for name, step in self.rules.items():
            yield _policies_plan(reader, plan, _namespace(name.split("/")), None, step)
        for identity, steps_of in self.nacks.items():
            yield _nacks_plan(reader, command, identity, steps_of, now_ms)


# -- cursors ----------------------------------------------------------------------------------------------------------


def _read(reader: EntryReader, listed: list[tuple[TopicName, str, Step]]) -> Iterator[tuple[Any, str]]:  # Any: Topic
    for topic, name, _ in listed:
        yield read_topic(reader.txn, topic), name


def _move(reader: EntryReader, name: TopicName, subscription: str, step: Step) -> CursorMove:
    topic = read_topic(reader.txn, name)
    cursor = read_cursor(reader.txn, reader, topic, subscription)
    state = _state(step)
    if dict(state.properties) != dict(cursor.state.properties):
        raise _foreign(f"moving {subscription!r} does not change its properties")
    return CursorMove(topic, cursor, state)


def _creation(reader: EntryReader, plan: Plan, name: TopicName, subscription: str, step: Step) -> Plan:
    topic = read_topic(reader.txn, name)
    info, state, node = _info(step), _state(step), _after(step)
    assert node is not None
    new = NewSubscription(subscription, state.mark_delete, bool(state.properties), dict(info.cursor_properties))
    check_new(new)
    if info.last_active_ms != node.stat.modified_ms or dict(state.properties) != new.long_properties:
        raise _foreign(f"no command makes {subscription!r} like that")
    made = put_value_step(reader.txn, node.path, encode_cursor_info(info), node.stat.modified_ms)
    return replace(plan, steps=(made,), parts=(creation_part(reader, topic, new, state),))


def _state(step: Step) -> CursorState:
    info = _info(step)
    if info.cursors_ledger_id != -1 or info.mark_delete is None:
        raise _foreign("a cursor that is moved or made stands in its metadata")
    return CursorState(info.mark_delete, info.ranges, info.batch_deletes, info.properties)


def _info(step: Step) -> CursorInfo:
    node = _after(step)
    assert node is not None
    return _decoded(lambda: decode_cursor_info(node.value, node.path))


def _planned_ms(step: Step) -> int:
    node = _after(step)
    return 0 if node is None else node.stat.modified_ms


def _after(step: Step) -> Node | None:
    return None if step.after is None else _node(step, step.after)


def _node(step: Step, row: bytes | None) -> Node:
    if row is None:
        raise _foreign("it writes nothing")
    return _decoded(lambda: decode_node(step.key, row))


def _decoded(decode: Callable[[], Value]) -> Value:
    """Return what DECODE makes of bytes of the plan; damaged ones are the plan's fault, not the data's."""
    try:
        return decode()
    except InvalidValue:
        raise
    except StoreError as error:
        raise _foreign(error.message) from error


def _annotation(reader: EntryReader, plan: Plan, listed: list[tuple[TopicName, Step]]) -> Plan:
    """Return the plan of ``store annotate`` in the form that the first step shows."""
    name, step = listed[0]
    before, after = _node(step, step.before), _node(step, step.after)
    forms = [form for form in FORMS if annotated_value(reader.txn, name.path, before.value, form) == after.value]
    if not forms:
        raise _foreign(f"no command writes the ledgers of {name} like that")
    return replace(
        plan_annotate(reader.txn, [one for one, _ in listed], forms[0], after.stat.modified_ms), command=plan.command
    )


# -- policies ---------------------------------------------------------------------------------------------------------


_DELIVERY = "delayed_delivery_policies"  # shown with the widths of the index
_MEMBERS = frozenset(
    member for policy in POLICIES if policy.namespace is not None for member in policy.namespace.members
)


def _policies_plan(
    reader: EntryReader, plan: Plan, namespace: NamespaceName, step: Step | None, rules: Step | None
) -> Plan:
    steps: list[Step] = []
    before, after = dict[str, Any](), dict[str, Any]()  # Any: JSON
    warnings: tuple[str, ...] = ()
    changed = change_policies(reader.txn, namespace, lambda found: found, now_ms=0)
    if step is not None:
        node = _after(step)
        assert node is not None
        policies: Policies = _decoded(lambda: decode_policies(node.value, node.path))
        changed = replace(changed, after=policies)
        old = decode_json_object(_node(step, step.before).value, node.path)
        new = decode_json_object(node.value, node.path)
        keys = [key for key in {**old, **new} if old.get(key) != new.get(key)]
        if not _MEMBERS.issuperset(keys):
            raise _foreign(f"no command changes {', '.join(sorted({*keys} - _MEMBERS))}")
        made = encode_json_object({key: new[key] for key in {**old, **new} if key in new})
        steps.append(put_value_step(reader.txn, namespace.policies_path, made, node.stat.modified_ms))
        before.update({key: old.get(key) for key in keys if key != _DELIVERY})
        after.update({key: new.get(key) for key in keys if key != _DELIVERY})
    was = now = find_rules(reader.txn, namespace)
    if rules is not None:
        was, now = (_rules(row, namespace) for row in (rules.before, rules.after))
        if was is not None and now is not None:
            check_growth(was, now, split=False)
        steps += plan_rules(reader.txn, namespace, now)
    if was != now or changed.before.delayed_delivery != changed.after.delayed_delivery:
        before.update(DelayedPolicy(changed.before.delayed_delivery, was).as_json())
        after.update(DelayedPolicy(changed.after.delayed_delivery, now).as_json())
        warnings = delivery_warnings(reader.txn, namespace, changed.after)
    part = ChangePart(namespace=str(namespace), before=before, after=after)
    return replace(plan, steps=tuple(steps), parts=(part,), warnings=warnings)


def _rules(row: bytes | None, namespace: NamespaceName) -> IndexRules | None:
    return None if row is None else _decoded(lambda: decode_rules(row, str(namespace)))


def _namespace(parts: list[str]) -> NamespaceName:
    if len(parts) not in (2, 3):
        raise _foreign(f"{'/'.join(parts)} is not a namespace")
    return NamespaceName(parts[0], parts[-1], parts[1] if len(parts) == 3 else "")


# -- negative acks ----------------------------------------------------------------------------------------------------


def _nacks_plan(reader: EntryReader, command: str, identity: bytes, steps: list[Step], now_ms: int) -> Plan:
    txn, key = reader.txn, tracker_key(identity)
    own = next((step.after for step in steps if step.key == key), None) or txn.get("nacks", key)
    if own is None:
        raise _foreign("it changes negative acks without an owner")
    tracker = _decoded(lambda: decode_tracker_row(key, own))
    buckets = [step for step in steps if step.key != key]
    if all(step.after is None for step in buckets) and len(buckets) == len(steps):
        groups = [group_of(tracker.topic, tracker.subscription, step.key, step.before or b"") for step in buckets]
        last_ms = max(group.due_ms for group in groups)
        if last_ms > now_ms:
            raise _foreign("it pops negative acks that are not due")
        return plan_pop(txn, groups, last_ms)
    entries = {}
    for step in buckets:
        group = _decoded(partial(group_of, tracker.topic, tracker.subscription, step.key, step.after or b""))
        there = None if step.before is None else decode_bucket_row(step.key, step.before)
        entries[group.due_ms, group.ledger_id] = group.entry_ids if there is None else group.entry_ids - there
    nacks = Nacks(tracker.topic, tracker.subscription, entries, tracker.precision_bits)
    return plan_add(txn, command, [nacks])
