"""``@frozen``: what ``@dataclass(frozen=True, slots=True)`` makes, at a tenth of its cost.

The standard decorator compiles seven functions a class: 3.5 million instructions, where ``import click`` takes 170 million, and
a cold question meets thirty classes, most of which it only names. Here ``__init__`` alone is compiled, once there are a few instances,
and the standard decorator describes the fields when somebody asks: ``dataclasses.fields``, ``replace`` and ``asdict`` take these
classes as any dataclass. The other functions are shared. ``dataclasses`` itself, which costs as much as ten modules of ours, is not
imported before.
"""

from __future__ import annotations

import sys
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from inspect import get_annotations
from operator import attrgetter
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform

if TYPE_CHECKING:
    from dataclasses import field as field
else:

    def field(**settings):
        """Return what ``dataclasses.field`` returns, for classes that ``frozen`` makes."""
        return Field(settings)


_T = TypeVar("_T")
_set = object.__setattr__
_MISSING: Any = object()  # Any: a default of any kind


class Field:
    """A field: its name and type, and what ``field`` was given."""

    __slots__ = ("compare", "default", "default_factory", "metadata", "name", "settings", "type")

    def __init__(self, settings: Mapping[str, Any]) -> None:  # Any: of dataclasses.field
        self.settings = settings
        self.default = settings.get("default", _MISSING)
        self.default_factory = settings.get("default_factory", _MISSING)
        self.compare: bool = settings.get("compare", True)
        self.metadata: Mapping[str, Any] = settings.get("metadata") or {}
        self.name = self.type = ""


_SETTINGS = ("default", "default_factory", "init", "repr", "compare", "hash", "metadata", "kw_only")
_FILLED = 8
"""Instances of a class that are made without compiling."""
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
        assert all(one.settings.get("init", True) for one in parts), (
            f"{written.__qualname__}: a field that is no parameter"
        )
        have = [one.default is not _MISSING or one.default_factory is not _MISSING for one in parts]
        assert have == sorted(have), f"{written.__qualname__}: a field without a default behind one with it"
        inherited = {name for base in written.__mro__[1:] for name in getattr(base, "__slots__", ())}
        left_out = {one.name for one in parts} | {"__dict__", "__weakref__"}
        own: dict[str, Any] = {name: value for name, value in vars(written).items() if name not in left_out}  # Any: its
        own["__slots__"] = tuple(one.name for one in parts if one.name not in inherited)
        own["__match_args__"] = tuple(one.name for one in parts)
        own["__dataclass_fields__"] = _Described(written, "__dataclass_fields__")
        own["__dataclass_params__"] = _Described(written, "__dataclass_params__")
        own["__init__"] = _FirstInit(parts)
        own["_parts"] = parts
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

    def __init__(self, parts: list[Field]) -> None:
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
            elif one.default is not _MISSING:
                found = one.default
            elif one.default_factory is not _MISSING:
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
        if "__dataclass_fields__" not in vars(written):
            import dataclasses

            ours = {name: value for name, value in vars(written).items() if isinstance(value, Field)}
            for name, value in ours.items():
                setattr(written, name, dataclasses.field(**value.settings))
            dataclasses.dataclass(init=False, repr=False, eq=False, frozen=True)(written)
        return written


def _parts_of(written: type) -> list[Field]:
    if written.__bases__ != (object,):
        from dataclasses import fields

        return [_as_ours(one, one.name, one.type) for one in fields(_described(written))]
    found = [(name, kind) for name, kind in get_annotations(written).items() if not kind.startswith("ClassVar")]
    return [_as_ours(vars(written).get(name, _MISSING), name, kind) for name, kind in found]


def _as_ours(given: Any, name: str, kind: Any) -> Field:  # Any: a field of either kind or a default; a type or its name
    dataclasses = sys.modules.get("dataclasses")
    if isinstance(given, Field):
        one = given
    elif dataclasses is not None and isinstance(given, dataclasses.Field):
        settings = {named: getattr(given, named) for named in _SETTINGS}
        one = Field({named: value for named, value in settings.items() if value is not dataclasses.MISSING})
    else:
        one = Field({} if given is _MISSING else {"default": given})
    one.name, one.type = name, kind
    return one


def replace(instance: _T, /, **changes: object) -> _T:
    """Return INSTANCE of a class that ``frozen`` made with some fields changed."""
    kind: Any = type(instance)  # Any: a class with fields
    made: _T = kind(**{name: getattr(instance, name) for name in kind.__match_args__} | changes)
    return made


def is_record(value: object) -> bool:
    """Whether VALUE is an instance of a dataclass of either kind; ``dataclasses.is_dataclass`` describes its class."""
    return hasattr(type(value), "_parts") or hasattr(type(value), "__dataclass_fields__")


def fields_of(kind: type) -> Sequence[Field]:
    """Return the fields of KIND, a dataclass of either kind."""
    if "_parts" in vars(kind):
        parts: Sequence[Field] = vars(kind)["_parts"]
        return parts
    from dataclasses import fields

    return [_as_ours(one, one.name, one.type) for one in fields(kind)]


def _key_of(names: list[str]) -> Callable[[object], Any]:  # Any: the field, or the tuple of them
    return attrgetter(*names) if names else lambda self: ()


def _init_of(cls: type, parts: list[Field]) -> Callable[..., None]:
    # Any: what the code below names, the defaults among it
    names: dict[str, Any] = {"_set": _set, "_MISSING": _MISSING}
    parameters, lines = [], []
    for one in parts:
        found = one.name
        if one.default_factory is not _MISSING:
            names[f"_new_{found}"] = one.default_factory
            parameters.append(f"{found}=_MISSING")
            found = f"_new_{found}() if {found} is _MISSING else {found}"
        elif one.default is not _MISSING:
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
    shown = ", ".join(
        f"{one.name}={getattr(self, one.name)!r}" for one in self._parts if one.settings.get("repr", True)
    )
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
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def __delattr__(self: Any, name: str) -> None:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot delete field {name!r}")


def __getstate__(self: Any) -> list[Any]:
    return [getattr(self, name) for name in type(self).__match_args__]


def __setstate__(self: Any, state: list[Any]) -> None:
    for name, found in zip(type(self).__match_args__, state, strict=True):
        _set(self, name, found)


_SHARED = (__repr__, __eq__, __hash__, __setattr__, __delattr__, __getstate__, __setstate__)
_ORDER = (__lt__, __le__, __gt__, __ge__)
