"""What makes plans: methods that note their call. A plan file keeps it, and whoever applies the file calls again.

The command line calls the same methods, so that a file from Python and one from a command are the same.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from pulsar_admin.api.plan import CLASSES, KINDS, Plan, Request, decode, file_of, shown_by
from pulsar_admin.store.errors import InvalidValue, StoreError
from pulsar_admin.store.names import LONG_MAX, NamespaceName, TopicName, TopicSelection

if TYPE_CHECKING:
    from pulsar_admin.api.session import Session

_HINT = "make one with --plan FILE on any command that changes"


class Named:
    """What names a thing of an open store: those that name the same are equal, and are shown as they were named."""

    _session: Session
    _made_of: tuple[Any, ...]  # Any: what the class is made of

    def __new__(cls, *given: Any) -> Any:  # Any: as above
        made = super().__new__(cls)
        made._made_of = given[1:]
        return made

    def __eq__(self, other: object) -> bool:
        """Whether both name the same thing of the same open store."""
        if type(self) is not type(other) or not isinstance(other, Named):
            return NotImplemented
        return self._session is other._session and self._made_of == other._made_of

    def __hash__(self) -> int:
        return hash((type(self), id(self._session), self._made_of))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(_shown, self._made_of))})"


class Planner(Named):
    """What has methods that return a Plan: each of them notes the call, which is what ``Plan.save`` writes."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name, method in list(vars(cls).items()):
            if _plans(name, method):
                setattr(cls, name, _noting(method))


def _shown(value: object) -> str:
    """Return what a class is made of as its caller wrote it."""
    if isinstance(value, tuple):  # of topics
        return ", ".join(map(_shown, value)) or "all topics"
    if isinstance(value, TopicSelection):
        return repr(value.pattern) if value.pattern else _shown(value.topics)
    return repr(str(value) if isinstance(value, (TopicName, NamespaceName)) else value)


def _plans(name: str, method: object) -> bool:
    return not name.startswith("_") and getattr(method, "__annotations__", {}).get("return") == "Plan"


def _noting(method: Callable[..., Plan]) -> Callable[..., Plan]:
    @wraps(method)
    def call(self: Planner, *values: Any, **options: Any) -> Plan:  # Any: the method's own
        values = tuple(map(_kept, values))
        options = {name: _kept(value) for name, value in options.items()}
        moment = self._session.moment
        try:
            with self._session.at(moment):
                plan = method(self, *values, **options)
        except StoreError as error:
            self._session.say_in_python(error, inspect.signature(method).parameters)
            raise
        if plan._request is not None:  # a method that calls another one
            return plan
        return replace(plan, _request=Request(type(self), self._made_of, method.__name__, values, options, moment))

    return call


def _kept(value: object) -> object:
    """Return VALUE as something that can be looked at again; a stream, which nothing keeps, stays what it is."""
    return tuple(value) if isinstance(value, Iterator) and not hasattr(value, "readline") else value


def call_again(session: Session, request: Mapping[str, Any], *, as_then: bool) -> Plan:  # Any: JSON
    """Return what the call REQUEST, the JSON of one, plans on SESSION, AS_THEN or as by the clock of now; raises InvalidValue for one that
    no plan is made by.
    """
    from pulsar_admin.store.codec.given import integer

    try:
        of, method = request["of"], request["method"]
        cls = getattr(import_module(f"pulsar_admin.api.{CLASSES[of]}"), of)
        if method == "load_plan" or not _plans(method, getattr(cls, method)):
            raise ValueError(f"{method} makes no plan")
        made_of = _tuple(decode(request["madeOf"]))
        _check_kinds(cls, session, made_of)
        call = getattr(cls(session, *made_of), method)
        values = _tuple(decode(request["values"]))
        options = {name: decode(value) for name, value in request["options"].items()}
        inspect.signature(call).bind(*values, **options)
        moment = replace(session.moment, interceptors=decode(request["interceptors"]))
        if as_then:
            moment = replace(
                moment, now_ms=integer(request["now"], "now", -LONG_MAX), is_given=request["nowGiven"] is True
            )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InvalidValue("the plan was not made by a command: its request is no call of ours", hint=_HINT) from error
    with session.at(moment):
        plan: Plan = call(*values, **options)
    return plan


def _check_kinds(cls: type, session: Session, made_of: tuple[Any, ...]) -> None:  # Any: as a file has them
    """Raise TypeError or ValueError unless a CLS can be made of MADE_OF: of topics, namespaces and selections, as its parameters say."""
    make = inspect.signature(cls.__init__)  # type: ignore[misc]  # of the class itself
    kinds = {kind.__name__: kind for kind in (str, *(kind for kind, _, _ in KINDS))}
    for name, value in make.bind(None, session, *made_of).arguments.items():
        said = str(make.parameters[name].annotation)
        kind = kinds.get(said.removeprefix("Sequence[").removesuffix("]"))
        if kind is not None and not all(isinstance(one, kind) for one in (value if "[" in said else (value,))):
            raise ValueError(f"{name}: expected {said}")


def _tuple(value: object) -> tuple[Any, ...]:  # Any: as above
    if not isinstance(value, tuple):
        raise ValueError("expected a tuple")
    return value


def read_again(session: Session, path: Path) -> Plan:
    """Return the plan of the file PATH, made again on SESSION; raises NotFound, InvalidValue, and StalePlan where it is another one now."""
    from pulsar_admin.store.changes.plan import WritingPlan, read_plan

    kept = read_plan(path)
    with session.opened() as store:
        kept.check_store(store)
    plan = call_again(session, kept.request, as_then=kept.steps is not None)
    if plan.command != kept.command:
        raise InvalidValue(f"the plan is of {kept.command!r}, and asks for {plan.command}", hint="write a new plan")
    reports = shown_by(plan)
    kept.check(file_of(plan, reports))
    steps = plan._plan
    return replace(plan, _plan=replace(steps, shown=lambda: reports)) if isinstance(steps, WritingPlan) else plan
