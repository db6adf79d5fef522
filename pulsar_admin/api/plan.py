"""Plans: what would change, to be looked at, kept and applied, and as a value the call of the method that made one.

Imports nothing that changes a store: what reads imports this, too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from pulsar_admin.store.errors import Refused
from pulsar_admin.store.names import (
    NamespaceName,
    Position,
    TopicName,
    TopicSelection,
    parse_namespace,
    parse_position,
    parse_topic,
)

if TYPE_CHECKING:
    from pulsar_admin.api.reports import ChangeReport
    from pulsar_admin.store.changes.plan import ChangeReport as Report
    from pulsar_admin.store.changes.plan import Plan as StorePlan
    from pulsar_admin.store.changes.plan import PlanFile, WritingPlan
    from pulsar_admin.store.db.environment import Store as StoreFile
    from pulsar_admin.store.db.environment import Txn

CLASSES = {
    "Cluster": "resources",
    "Compaction": "compaction",
    "Compactions": "compaction",
    "Cursor": "cursors",
    "Cursors": "cursors",
    "KeptNacks": "nacks",
    "Ledger": "ledger",
    "Nacks": "nacks",
    "Namespace": "namespace",
    "Recoveries": "recovering",
    "Resources": "resources",
    "Store": "store",
    "Topic": "topic",
    "TopicPolicies": "policies",
    "Transactions": "transactions",
}
"""What a plan file may call the methods of, and where it is."""


class Moment(Struct, frozen=True):
    """When a plan was made: the clock in epoch milliseconds, whether the caller named it, and the broker's interceptors in force."""

    now_ms: int
    is_given: bool
    interceptors: tuple[str, ...] | None


class Request(Struct, frozen=True):
    """A call: the class and what it was made of, the method and what it was given, and when."""

    of: type
    made_of: tuple[Any, ...]
    method: str
    values: tuple[Any, ...]
    options: Mapping[str, Any]
    moment: Moment

    def as_json(self) -> dict[str, Any]:  # Any: JSON
        """Return it as JSON; raises ValueError for what no file can keep: an open stream."""
        if self.of.__name__ not in CLASSES:
            raise ValueError(f"a {self.of.__name__}")
        return {
            "of": self.of.__name__,
            "madeOf": encode(self.made_of),
            "method": self.method,
            "values": encode(self.values),
            "options": {name: encode(value) for name, value in self.options.items()},
            "now": int(self.moment.now_ms),
            "nowGiven": self.moment.is_given,
            "interceptors": encode(self.moment.interceptors),
        }


class Plan(Struct, frozen=True):
    """A change that is worked out and not made: ``preview`` shows it, ``Store.apply`` makes it.

    It is of the store's state at that moment. When the store changed since, by whatever, ``apply`` raises StalePlan: plan again.
    """

    _plan: StorePlan | WritingPlan
    _state: str = ""
    """Of the store that it is of."""
    _request: Request | None = None

    def __repr__(self) -> str:
        from pulsar_admin.changes import change_words
        from pulsar_admin.store.changes.plan import Plan as StorePlan

        if not isinstance(self._plan, StorePlan):  # what it would do may take long to find
            return f"<plan: {self.command}>"
        return f"<plan: {change_words(self._plan.preview())}>"

    @property
    def command(self) -> str:
        """The command line's name of this change, which the audit log shows."""
        return self._plan.command

    @property
    def changes_nothing(self) -> bool:
        """Whether everything is as wanted already; applying it writes nothing. False where only applying it shows that."""
        from pulsar_admin.store.changes.plan import Plan as StorePlan

        return isinstance(self._plan, StorePlan) and not self._plan.steps

    @property
    def loses(self) -> str:
        """What ``undo`` cannot bring back, in words; empty: nothing."""
        return self._plan.loses

    def preview(self) -> ChangeReport:
        """Return what applying would do."""
        from pulsar_admin.api.reports import report_of

        return report_of(shown_by(self)[0])

    def save(self, path: Path | str) -> None:
        """Write the plan into the new file PATH, for ``Store.load_plan`` and ``pulsar-admin apply``.

        Raises AlreadyExists, and Refused for a plan of a stream, which nothing can read again.
        """
        from pulsar_admin.api.given import given_path

        save_plan(self, shown_by(self), given_path("path", path))

    def __str__(self) -> str:
        return str(self.preview())


def plan_of(plan: StorePlan | WritingPlan, txn: Txn) -> Plan:
    """Return PLAN, made on TXN, as callers see it."""
    from pulsar_admin.store.changes.plan import state_of

    return Plan(plan, state_of(txn))


def steps_of(plan: Plan) -> StorePlan | WritingPlan:
    """Return what PLAN writes."""
    return plan._plan


def shown_by(plan: Plan) -> tuple[Report, ...]:
    """Return what applying PLAN would report, a report a change."""
    found = plan._plan.preview()
    return found if isinstance(found, tuple) else (found,)


def check_planned_on(plan: Plan, store: StoreFile) -> None:
    """Raise StalePlan unless STORE is the one that PLAN, which has no steps yet, was made on, in that state."""
    from pulsar_admin.store.changes.plan import check_state

    check_state(store, plan._plan.txn_id, plan._state)


# -- plan files -------------------------------------------------------------------------------------------------------


def save_plan(plan: Plan, reports: tuple[Report, ...], path: Path) -> None:
    """Write PLAN, which shows REPORTS, into the new file PATH; raises as ``Plan.save``."""
    from pulsar_admin.store.files import write_new_file

    try:
        found = file_of(plan, reports)
    except ValueError as error:
        raise Refused(f"a plan of {plan.command} is not kept: it was made from {error}", hint="apply it") from error
    write_new_file(path, found.dump())


def file_of(plan: Plan, reports: tuple[Report, ...]) -> PlanFile:
    """Return what a file keeps of PLAN, which shows REPORTS; raises ValueError for an open stream."""
    from pulsar_admin.store.changes.plan import plan_file

    assert plan._request is not None  # each method that plans notes its call
    return plan_file(plan._plan, plan._state, reports, plan._request.as_json())


# -- calls ------------------------------------------------------------------------------------------------------------


def encode(value: Any) -> Any:  # Any: JSON, and what it stands for
    """Return the JSON of VALUE, which a method was given; raises ValueError for what no file can keep."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, list):
        return [encode(one) for one in value]
    if isinstance(value, Mapping):
        return {"object": {str(key): encode(one) for key, one in value.items()}}
    for kind, to_json, _ in KINDS:
        if isinstance(value, kind):
            return {kind.__name__: to_json(value)}
    raise ValueError(f"a {type(value).__name__}")


def decode(value: Any) -> Any:  # Any: as above
    """Return what VALUE, JSON of ``encode``, stands for; raises ValueError and TypeError."""
    if isinstance(value, list):
        return [decode(one) for one in value]
    if isinstance(value, float):
        raise ValueError("no method of ours is given a fraction")
    if not isinstance(value, dict):
        return value
    ((name, inner),) = value.items()
    if name == "object":
        return {key: decode(one) for key, one in inner.items()}
    (from_json,) = (from_json for kind, _, from_json in KINDS if kind.__name__ == name)
    return from_json(inner)


def _selection(inner: list[Any]) -> TopicSelection:  # Any: as above
    from pulsar_admin.store.codec.given import text

    topics, all_topics, pattern = inner
    return TopicSelection(
        tuple(map(parse_topic, topics)), all_topics is True, None if pattern is None else text(pattern, "pattern")
    )


KINDS: tuple[tuple[type, Callable[[Any], Any], Callable[[Any], Any]], ...] = (  # Any: of each kind its own
    (tuple, lambda value: [encode(one) for one in value], lambda inner: tuple(map(decode, inner))),
    (TopicName, str, parse_topic),
    (NamespaceName, str, parse_namespace),
    (TopicSelection, lambda value: [[*map(str, value.topics)], value.all_topics, value.pattern], _selection),
    (Position, str, parse_position),
    (Path, os.path.abspath, Path),
    (datetime, datetime.isoformat, datetime.fromisoformat),
    (timedelta, lambda value: value // timedelta(microseconds=1), lambda inner: timedelta(microseconds=inner)),
)
"""What JSON has no kind for: how it is written, and read back."""
