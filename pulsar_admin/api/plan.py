"""Plans: changes to preview, save and apply. A plan file contains the call that made the plan; applying it repeats the call.

Commands call the same methods, so their files are the same. Imports nothing that changes a store, because reading code also imports this.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin import arguments
from pulsar_admin.api.session import Given, Session
from pulsar_admin.arguments import Checked, Moment
from pulsar_admin.later import later
from pulsar_admin.store import names
from pulsar_admin.store.errors import InvalidValue, Refused
from pulsar_admin.store.files import write_new_file
from pulsar_admin.store.wording import bracketed, text_html

if TYPE_CHECKING:
    from pulsar_admin import changes
    from pulsar_admin.store.changes import plan as store_plans
    from pulsar_admin.store.db.environment import Txn
    from pulsar_admin.store.model.reader import EntryReader

    Steps = store_plans.Plan | store_plans.WritingPlan
else:
    changes, store_plans = later("pulsar_admin.changes"), later("pulsar_admin.store.changes.plan")


CLASSES = {
    name: module
    for module, names_there in {
        "cursors": "Cursor Cursors",
        "ledgers": "Ledger Recoveries",
        "namespaces": "Cluster Namespace Resources",
        "pending": "KeptNacks Nacks Transactions",
        "store": "Store",
        "topics": "Compaction Compactions Topic TopicPolicies",
    }.items()
    for name in names_there.split()
}
"""What a plan file may call the methods of, and where it is."""


class Request(Struct, frozen=True):
    """A call that makes a plan: class and its arguments, method and its arguments, and time."""

    of: type
    made_of: tuple[Any, ...]
    method: str
    values: tuple[Any, ...]
    options: Mapping[str, Any]
    moment: Moment

    def as_json(self) -> dict[str, Any]:  # Any: JSON
        """Return the request as JSON; raises ValueError for a value that no file can keep, such as an open stream."""
        if self.of.__name__ not in CLASSES:
            raise ValueError(f"a {self.of.__name__}")
        return {
            "of": self.of.__name__,
            "madeOf": store_plans.encode_argument(self.made_of),
            "method": self.method,
            "values": store_plans.encode_argument(self.values),
            "options": {name: store_plans.encode_argument(value) for name, value in self.options.items()},
            "now": int(self.moment.now_ms),
            "nowGiven": self.moment.is_given,
            "interceptors": store_plans.encode_argument(self.moment.interceptors),
        }


class Plan(Struct, frozen=True):
    """A planned change: ``preview`` shows it, ``Store.apply`` makes it.

    It belongs to the store's state at that moment. If the store changed since, ``apply`` raises StalePlan: plan again.
    """

    _plan: Steps
    _state: str = ""
    """Of the store that it is of."""
    _request: Request | None = None

    def __repr__(self) -> str:
        if not isinstance(self._plan, store_plans.Plan):  # what it would do may take long to find
            subject = self._request and (self._request.made_of or self._request.values)
            return bracketed(f"plan: {self.command}{f' of {_shown(subject)}' if subject else ''}")
        return bracketed(f"plan: {changes.change_words(self._plan.preview())}")

    def _repr_html_(self) -> str:
        """Return its preview, for a notebook, or only its name if the preview takes long."""
        return text_html(str(self.preview()) if isinstance(self._plan, store_plans.Plan) else repr(self))

    @property
    def command(self) -> str:
        """The command line's name of this change, which the audit log shows."""
        return self._plan.command

    @property
    def changes_nothing(self) -> bool:
        """Whether everything is as wanted already; applying it writes nothing. False where only applying it shows that."""
        return isinstance(self._plan, store_plans.Plan) and not self._plan.steps

    @property
    def loses(self) -> str:
        """What ``undo`` cannot restore, in words; empty if it restores everything."""
        return self._plan.loses

    @arguments.checked
    def preview(self) -> changes.ChangeReport:
        """Return what applying would do."""
        return changes.report_of(shown_by(self)[0])

    @arguments.checked
    def save(self, path: Path | str) -> None:
        """Write the plan into a new file, for ``Store.load_plan`` and ``pulsar-admin apply``.

        Raises AlreadyExists, and Refused for a plan from a stream, which cannot be read twice.
        """
        save_plan(self, shown_by(self), Path(path))

    def __str__(self) -> str:
        return str(self.preview())


def plan_of(plan: Steps, txn: Txn) -> Plan:
    """Return a store's plan as the object that callers get."""
    return Plan(plan, store_plans.state_of(txn))


def shown_by(plan: Plan) -> tuple[store_plans.ChangeReport, ...]:
    """Return the reports that applying a plan would give, one for each change."""
    reports = plan._plan.preview()
    return reports if isinstance(reports, tuple) else (reports,)


def apply(session: Session, plan: Plan, *, checked: bool = False) -> tuple[store_plans.ChangeReport, ...]:
    """Apply a plan and return its reports; one without steps is compared with the store only if ``checked``. Raises as ``Store.apply``."""
    steps = plan._plan
    if isinstance(steps, store_plans.WritingPlan):
        with session.writing() as store:
            store_plans.check_state(store, steps.txn_id, plan._state)
            return steps.made(store)
    if steps.steps:
        with session.writing(beside_readers=True) as store:
            return (store_plans.apply_plan(store, steps, session.clock_ms),)
    if checked:
        with session.opened() as store:
            store_plans.check_current(store, steps)
    return (steps.unchanged(),)


# -- plan files -------------------------------------------------------------------------------------------------------


def save_plan(plan: Plan, reports: tuple[store_plans.ChangeReport, ...], path: Path) -> None:
    """Write a plan and its reports into a new file; raises as ``Plan.save``."""
    try:
        content = file_of(plan, reports)
    except ValueError as error:
        raise Refused(f"a plan of {plan.command} is not kept: it was made from {error}", hint="apply it") from error
    write_new_file(path, content.dump())


def file_of(plan: Plan, reports: tuple[store_plans.ChangeReport, ...]) -> store_plans.PlanFile:
    """Return a plan's file content; raises ValueError for an open stream."""
    assert plan._request is not None  # each method that plans notes its call
    return store_plans.plan_file(plan._plan, plan._state, reports, plan._request.as_json())


# -- calls ------------------------------------------------------------------------------------------------------------


class Named(Checked):
    """A named object of an open store; objects of the same name are equal, and ``repr`` shows the name."""

    _session: Session
    _made_of: tuple[Any, ...]  # Any: what the class is made of

    def __new__(cls, *given: Any) -> Any:  # Any: as above
        made = super().__new__(cls)
        made._made_of = given[1:]
        return made

    def __eq__(self, other: object) -> bool:
        """Whether both have the same type, store and name."""
        if type(self) is not type(other) or not isinstance(other, Named):
            return NotImplemented
        return self._session is other._session and self._made_of == other._made_of

    def __hash__(self) -> int:
        return hash((type(self), id(self._session), self._made_of))

    def __repr__(self) -> str:
        made_of = self._made_of or (str(self._session.path),)  # of the whole store
        return f"{type(self).__name__}({', '.join(map(_shown, made_of))})"


class Planner(Named):
    """Base of classes with methods that return a Plan; such a method records its call, which ``Plan.save`` writes."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name, method in list(vars(cls).items()):
            if _plans(name, method):
                setattr(cls, name, _noting(method))

    def _planned(self, make: Callable[[EntryReader, *Given, int], Steps], *given: *Given) -> Plan:
        """Return the plan that ``make`` makes on one snapshot at the current time."""
        with self._session.reader() as reader:
            return plan_of(make(reader, *given, self._session.clock_ms), reader.txn)

    def _planned_rows(self, make: Callable[[Txn, *Given, int], Steps], *given: *Given) -> Plan:
        """Return the plan of a ``make`` that reads no entries; see ``_planned``."""
        with self._session.read() as txn:
            return plan_of(make(txn, *given, self._session.clock_ms), txn)


def _shown(value: object) -> str:
    """Return the argument with which an object was made, as its caller wrote it."""
    if isinstance(value, tuple):  # of topics
        return ", ".join(map(_shown, value)) or "all topics"
    if isinstance(value, names.TopicSelection):
        return repr(value.pattern) if value.pattern else _shown(value.topics)
    return repr(str(value) if isinstance(value, (names.TopicName, names.NamespaceName)) else value)


def _plans(name: str, method: object) -> bool:
    return not name.startswith("_") and getattr(method, "__annotations__", {}).get("return") == "Plan"


def _noting(method: Callable[..., Plan]) -> Callable[..., Plan]:
    @wraps(method)
    def call(self: Planner, *values: Any, **options: Any) -> Plan:  # Any: the method's own
        values = tuple(map(_kept, values))
        options = {name: _kept(value) for name, value in options.items()}
        moment = self._session.moment
        with self._session.at(moment):
            plan = method(self, *values, **options)
        if plan._request is not None:  # a method that calls another one
            return plan
        return replace(plan, _request=Request(type(self), self._made_of, method.__name__, values, options, moment))

    return call


def _kept(value: object) -> object:
    """Return a value that can be read twice; an open stream is returned unchanged."""
    return tuple(value) if isinstance(value, Iterator) and not hasattr(value, "readline") else value


def call_again(session: Session, request: Mapping[str, Any], *, as_then: bool) -> Plan:  # Any: JSON
    """Return the plan of a call stored as JSON, at the clock's time, or ``as_then``; raises InvalidValue if it makes no plan."""
    from pulsar_admin.store.codec.strict_values import integer

    try:
        of, method = request["of"], request["method"]
        cls = getattr(import_module(f"pulsar_admin.api.{CLASSES[of]}"), of)
        if method == "load_plan" or not _plans(method, getattr(cls, method)):
            raise ValueError(f"{method} makes no plan")
        made_of = _tuple(store_plans.decode_argument(request["madeOf"]))
        _check_kinds(cls, session, made_of)
        call = getattr(cls(session, *made_of), method)
        values = _tuple(store_plans.decode_argument(request["values"]))
        options = {name: store_plans.decode_argument(value) for name, value in request["options"].items()}
        inspect.signature(call).bind(*values, **options)
        moment = replace(session.moment, interceptors=store_plans.decode_argument(request["interceptors"]))
        if as_then:
            moment = replace(
                moment, now_ms=integer(request["now"], "now", -names.LONG_MAX), is_given=request["nowGiven"] is True
            )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InvalidValue(
            "the plan was not made by a command: its request is not a call of this library",
            hint="create one with --plan FILE on any command that changes something",
        ) from error
    with session.at(moment):
        plan: Plan = call(*values, **options)
    return plan


def _check_kinds(cls: type, session: Session, made_of: tuple[Any, ...]) -> None:  # Any: as a file has them
    """Raise TypeError or ValueError unless ``cls`` can be created from these topics, namespaces and selections."""
    make = inspect.signature(cls.__init__)  # type: ignore[misc]  # of the class itself
    kinds = {kind.__name__: kind for kind in (str, *(kind for kind, _, _ in store_plans.KINDS))}
    for name, value in make.bind(None, session, *made_of).arguments.items():
        said = str(make.parameters[name].annotation)
        kind = kinds.get(said.removeprefix("Sequence[").removesuffix("]"))
        if kind is not None and not all(isinstance(one, kind) for one in (value if "[" in said else (value,))):
            raise ValueError(f"{name}: expected {said}")


def _tuple(value: object) -> tuple[Any, ...]:  # Any: as above
    if not isinstance(value, tuple):
        raise ValueError("expected a tuple")
    return value


def read_plan_file(session: Session, path: Path) -> Plan:
    """Return the plan in a file, computed again; raises NotFound, InvalidValue, and StalePlan if it differs now."""
    kept = store_plans.read_plan(path)
    with session.opened() as store:
        kept.check_store(store)
    plan = call_again(session, kept.request, as_then=kept.steps is not None)
    if plan.command != kept.command:
        raise InvalidValue(
            f"the plan names {kept.command!r}, but its request is {plan.command!r}", hint="write a new plan"
        )
    reports = shown_by(plan)
    kept.check(file_of(plan, reports))
    steps = plan._plan
    if isinstance(steps, store_plans.WritingPlan):
        return replace(plan, _plan=replace(steps, shown=lambda: reports))
    return plan
