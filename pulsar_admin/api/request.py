"""What was asked for, as a value: the call of a method that plans. A plan file keeps it, and whoever applies the file calls again.

The command line calls the same methods, so that a file from Python and one from a command are the same.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.store.errors import InvalidValue
from pulsar_admin.store.names import (
    LONG_MAX,
    NamespaceName,
    Position,
    TopicName,
    TopicSelection,
    parse_namespace,
    parse_position,
    parse_topic,
)

if TYPE_CHECKING:
    from pulsar_admin.api.plan import Plan
    from pulsar_admin.api.session import Session

_CLASSES = {
    "Cluster": "clusters",
    "Compaction": "compaction",
    "Compactions": "compaction",
    "Cursor": "cursor",
    "Cursors": "cursors",
    "KeptNacks": "nacks",
    "Ledger": "ledger",
    "Nacks": "nacks",
    "Namespace": "namespace",
    "Recoveries": "recovering",
    "Resources": "resources",
    "Store": "store",
    "Topic": "topic",
    "TopicPolicies": "topic_policies",
    "Transactions": "transactions",
}
"""What a plan file may call the methods of, and where it is."""
_HINT = "make one with --plan FILE on any command that changes"


class Planner:
    """What has methods that return a Plan: each of them notes the call, which is what ``Plan.save`` writes."""

    _session: Session
    _made_of: tuple[Any, ...]  # Any: what the class is made of

    def __new__(cls, *given: Any) -> Any:  # Any: as above
        made = super().__new__(cls)
        made._made_of = given[1:]
        return made

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name, method in list(vars(cls).items()):
            if _plans(name, method):
                setattr(cls, name, _noting(method))


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
    """Return VALUE as something that can be looked at again; a stream, which nothing keeps, stays what it is."""
    return tuple(value) if isinstance(value, Iterator) and not hasattr(value, "readline") else value


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
        if self.of.__name__ not in _CLASSES:
            raise ValueError(f"a {self.of.__name__}")
        return {
            "of": self.of.__name__,
            "madeOf": _encode(self.made_of),
            "method": self.method,
            "values": _encode(self.values),
            "options": {name: _encode(value) for name, value in self.options.items()},
            "now": int(self.moment.now_ms),
            "nowGiven": self.moment.is_given,
            "interceptors": _encode(self.moment.interceptors),
        }


def call_again(session: Session, request: Mapping[str, Any], *, as_then: bool) -> Plan:  # Any: JSON
    """Return what the call REQUEST, the JSON of one, plans on SESSION, AS_THEN or as by the clock of now; raises InvalidValue for one that
    no plan is made by.
    """
    from pulsar_admin.store.codec.given import integer

    try:
        of, method = request["of"], request["method"]
        cls = getattr(import_module(f"pulsar_admin.api.{_CLASSES[of]}"), of)
        if method == "load_plan" or not _plans(method, getattr(cls, method)):
            raise ValueError(f"{method} makes no plan")
        made_of = _tuple(_decode(request["madeOf"]))
        _check_kinds(cls, session, made_of)
        call = getattr(cls(session, *made_of), method)
        values = _tuple(_decode(request["values"]))
        options = {name: _decode(value) for name, value in request["options"].items()}
        inspect.signature(call).bind(*values, **options)
        moment = replace(session.moment, interceptors=_decode(request["interceptors"]))
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
    kinds = {kind.__name__: kind for kind in (str, *(kind for kind, _, _ in _KINDS))}
    for name, value in make.bind(None, session, *made_of).arguments.items():
        said = str(make.parameters[name].annotation)
        kind = kinds.get(said.removeprefix("Sequence[").removesuffix("]"))
        if kind is not None and not all(isinstance(one, kind) for one in (value if "[" in said else (value,))):
            raise ValueError(f"{name}: expected {said}")


def _encode(value: Any) -> Any:  # Any: JSON, and what it stands for
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, list):
        return [_encode(one) for one in value]
    if isinstance(value, Mapping):
        return {"object": {str(key): _encode(one) for key, one in value.items()}}
    for kind, encode, _ in _KINDS:
        if isinstance(value, kind):
            return {kind.__name__: encode(value)}
    raise ValueError(f"a {type(value).__name__}")


def _decode(value: Any) -> Any:  # Any: as above
    if isinstance(value, list):
        return [_decode(one) for one in value]
    if isinstance(value, float):
        raise ValueError("no method of ours is given a fraction")
    if not isinstance(value, dict):
        return value
    ((name, inner),) = value.items()
    if name == "object":
        return {key: _decode(one) for key, one in inner.items()}
    (decode,) = (decode for kind, _, decode in _KINDS if kind.__name__ == name)
    return decode(inner)


def _tuple(value: object) -> tuple[Any, ...]:  # Any: as above
    if not isinstance(value, tuple):
        raise ValueError("expected a tuple")
    return value


def _selection(inner: list[Any]) -> TopicSelection:  # Any: as above
    from pulsar_admin.store.codec.given import text

    topics, all_topics, pattern = inner
    return TopicSelection(
        tuple(map(parse_topic, topics)), all_topics is True, None if pattern is None else text(pattern, "pattern")
    )


_KINDS: tuple[tuple[type, Callable[[Any], Any], Callable[[Any], Any]], ...] = (  # Any: of each kind its own
    (tuple, lambda value: [_encode(one) for one in value], lambda inner: tuple(map(_decode, inner))),
    (TopicName, str, parse_topic),
    (NamespaceName, str, parse_namespace),
    (TopicSelection, lambda value: [[*map(str, value.topics)], value.all_topics, value.pattern], _selection),
    (Position, str, parse_position),
    (Path, os.path.abspath, Path),
    (datetime, datetime.isoformat, datetime.fromisoformat),
    (timedelta, lambda value: value // timedelta(microseconds=1), lambda inner: timedelta(microseconds=inner)),
)
"""What JSON has no kind for: how it is written, and read back."""
