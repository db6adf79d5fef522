"""``@frozen``: what ``@dataclass(frozen=True, slots=True)`` makes, at a tenth of its cost.

The standard decorator compiles seven functions a class: 3.5 million instructions, where ``import click`` takes 170 million, and
a cold question meets thirty classes, most of which it only names. Here ``__init__`` alone is compiled, when the first instance is
made, and the standard decorator describes the fields when somebody asks: ``dataclasses.fields``, ``replace`` and ``asdict`` take
these classes as any dataclass. The other functions are shared.
"""

from __future__ import annotations

import sys
from collections import namedtuple
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from functools import partial
from inspect import get_annotations
from operator import attrgetter
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform

_T = TypeVar("_T")
_set = object.__setattr__
_FILLED = 8
_describing = RLock()
"""Held while a class is described, which asks for what it inherits from."""


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[_T] | None = None, /, *, order: bool = False) -> Any:  # Any: the class, or what decorates it
    """Make a class of annotated fields one whose instances are frozen, equal by their fields, and hashed; ORDER: compared, too."""
    return _made(order) if cls is None else _made(order)(cls)


def _made(order: bool) -> Callable[[type[_T]], type[_T]]:
    shared = (*_SHARED, *_ORDER) if order else _SHARED

    def make(written: type[_T]) -> type[_T]:
        parts = _parts_of(written)
        assert all(one.init for one in parts), f"{written.__qualname__}: a field that is no parameter"
        inherited = {name for base in written.__mro__[1:] for name in getattr(base, "__slots__", ())}
        left_out = {one.name for one in parts} | {"__dict__", "__weakref__"}
        own: dict[str, Any] = {name: value for name, value in vars(written).items() if name not in left_out}  # Any: its
        own["__slots__"] = tuple(one.name for one in parts if one.name not in inherited)
        own["__match_args__"] = tuple(one.name for one in parts)
        own["__dataclass_fields__"] = _Described(written, "__dataclass_fields__")
        own["__dataclass_params__"] = _Described(written, "__dataclass_params__")
        own["__init__"] = _FirstInit(parts)
        own["_key"] = _key_of([one.name for one in parts if one.compare])
        for function in shared:
            own.setdefault(function.__name__, function)
        metaclass: Any = type(written)  # Any: type checkers think of one with instances
        made: type[_T] = metaclass(written.__name__, written.__bases__, own)
        made.__qualname__ = written.__qualname__
        return made

    return make


class _Described:
    """What the standard decorator says of a class's fields; asked of the class as it was WRITTEN."""

    def __init__(self, written: type, name: str) -> None:
        self._written, self._name = written, name

    def __get__(self, instance: object, owner: type) -> Any:  # Any: of dataclasses, for dataclasses
        return vars(_described(self._written))[self._name]


class _FirstInit:
    """``__init__`` of a class: the first instances are filled field by field, for more of them one is compiled.

    Compiling takes as long as filling thirty instances, and a cold question makes one or two of most of its classes.
    """

    def __init__(self, parts: list[Field[Any]]) -> None:
        self._parts = parts
        self._left = _FILLED

    def __set_name__(self, owner: type, name: str) -> None:
        self._owner = owner

    def __get__(self, instance: object, owner: type) -> Callable[..., None]:
        if instance is not None and self._left > 0:
            self._left -= 1
            return partial(self._fill, instance)
        made: Any = _init_of(self._owner, self._parts)  # Any: a function, which is a descriptor
        self._owner.__init__ = made  # type: ignore[misc]
        return made if instance is None else made.__get__(instance)  # type: ignore[no-any-return]

    def _fill(self, instance: Any, /, *values: object, **named: object) -> None:
        given = dict(zip((one.name for one in self._parts), values, strict=False))
        wrong = len(values) > len(self._parts) or not given.keys().isdisjoint(named)
        given.update(named)
        taken = 0
        for one in self._parts:
            if one.name in given:
                found, taken = given[one.name], taken + 1
            elif one.default is not MISSING:
                found = one.default
            elif one.default_factory is not MISSING:
                found = one.default_factory()
            else:
                wrong = True
                break
            _set(instance, one.name, found)
        if wrong or taken < len(given):
            _init_of(self._owner, self._parts)(instance, *values, **named)  # raises what is wrong in Python's words
        elif hasattr(instance, "__post_init__"):
            instance.__post_init__()


def _described(written: type) -> Any:  # Any: a dataclass
    with _describing:  # the decorator takes the fields' defaults out of the class: a second thread would not find them
        known = "__dataclass_fields__" in vars(written)
        return written if known else dataclass(init=False, repr=False, eq=False, frozen=True)(written)


def _parts_of(written: type) -> list[Field[Any]]:
    """Return the fields of a class; unlike those of ``dataclasses.fields`` they know nothing of kinds where nothing is inherited."""
    if written.__bases__ != (object,):
        return list(fields(_described(written)))
    parts = []
    for name, kind in get_annotations(written).items():
        if not kind.startswith("ClassVar"):
            value = vars(written).get(name, MISSING)
            part = value if isinstance(value, Field) else field(default=value)
            part.name, part.type = name, kind
            parts.append(part)
    return parts


def _key_of(names: list[str]) -> Callable[[object], Any]:  # Any: the field, or the tuple of them
    return attrgetter(*names) if names else lambda self: ()


def _init_of(cls: type, parts: list[Field[Any]]) -> Callable[..., None]:
    names: dict[str, Any] = {"_set": _set, "_MISSING": MISSING}  # Any: what the code below names, the defaults among it
    parameters, lines = [], []
    for one in parts:
        found = one.name
        if one.default_factory is not MISSING:
            names[f"_new_{found}"] = one.default_factory
            parameters.append(f"{found}=_MISSING")
            found = f"_new_{found}() if {found} is _MISSING else {found}"
        elif one.default is not MISSING:
            names[f"_default_{found}"] = one.default
            parameters.append(f"{found}=_default_{found}")
        else:
            parameters.append(found)
        lines.append(f"  _set(self, {one.name!r}, {found})\n")
    if hasattr(cls, "__post_init__"):
        lines.append("  self.__post_init__()\n")
    code = f" def __init__(self, {', '.join(parameters)}):\n{''.join(lines) or '  pass'}"
    local: dict[str, Any] = {}  # Any: the one function
    exec(f"def make({', '.join(names)}):\n{code}\n return __init__", vars(sys.modules[cls.__module__]), local)
    made: Callable[..., None] = local["make"](**names)
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    made.__annotations__ = {one.name: one.type for one in parts} | {"return": None}
    return made


if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:

    class _NamedTuples(type):
        def __new__(cls, name, bases, own):
            if not bases:
                return super().__new__(cls, name, bases, own)
            kinds = own.get("__annotations__", {})
            defaults = [own[one] for one in kinds if one in own]
            made = namedtuple(name, kinds, defaults=defaults, module=own["__module__"])
            for one, value in own.items():
                if one not in kinds:
                    setattr(made, one, value)
            return made

    class NamedTuple(metaclass=_NamedTuples):
        """``typing.NamedTuple`` without its look at each annotation, which it compiles: half of its cost."""


# -- what every class shares: SELF is an instance of one that ``frozen`` made ----------------------------------------------


def __repr__(self: Any) -> str:
    shown = ", ".join(f"{one.name}={getattr(self, one.name)!r}" for one in fields(self) if one.repr)
    return f"{type(self).__qualname__}({shown})"


def __eq__(self: Any, other: Any) -> bool:
    kind = type(self)
    return kind._key(self) == kind._key(other) if type(other) is kind else NotImplemented


def __hash__(self: Any) -> int:
    return hash(type(self)._key(self))


def __lt__(self: Any, other: Any) -> bool:
    kind = type(self)
    return kind._key(self) < kind._key(other) if type(other) is kind else NotImplemented


def __le__(self: Any, other: Any) -> bool:
    kind = type(self)
    return kind._key(self) <= kind._key(other) if type(other) is kind else NotImplemented


def __gt__(self: Any, other: Any) -> bool:
    kind = type(self)
    return kind._key(self) > kind._key(other) if type(other) is kind else NotImplemented


def __ge__(self: Any, other: Any) -> bool:
    kind = type(self)
    return kind._key(self) >= kind._key(other) if type(other) is kind else NotImplemented


def __setattr__(self: Any, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def __delattr__(self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def __getstate__(self: Any) -> list[Any]:
    return [getattr(self, name) for name in type(self).__match_args__]


def __setstate__(self: Any, state: list[Any]) -> None:
    for name, found in zip(type(self).__match_args__, state, strict=True):
        _set(self, name, found)


_SHARED = (__repr__, __eq__, __hash__, __setattr__, __delattr__, __getstate__, __setstate__)
_ORDER = (__lt__, __le__, __gt__, __ge__)
