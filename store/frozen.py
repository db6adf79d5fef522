"""``@frozen``: what ``@dataclass(frozen=True, slots=True)`` makes, at a fifth of its cost.

The standard decorator compiles seven functions a class: 3.5 million instructions, where ``import click`` takes 170 million, and
a cold question meets thirty classes. Here ``__init__`` alone is compiled; the other functions are shared, and read the fields'
names. ``dataclasses.fields``, ``replace`` and ``asdict`` take its classes as any dataclass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

_T = TypeVar("_T")
_set = object.__setattr__


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[_T] | None = None, /, *, order: bool = False) -> Any:  # Any: the class, or what decorates it
    """Make a class of annotated fields one whose instances are frozen, equal by their fields, and hashed; ORDER: compared, too."""
    return _made(order) if cls is None else _made(order)(cls)


def _made(order: bool) -> Callable[[type[_T]], type[_T]]:
    shared = (*_SHARED, *_ORDER) if order else _SHARED

    def make(cls: type[_T]) -> type[_T]:
        own = set(vars(cls))
        made: Any = dataclass(init=False, repr=False, eq=False, slots=True)(cls)  # Any: its functions are put in below
        made.__init__ = _init_of(made)
        made._key = _key_of([one.name for one in fields(made) if one.compare])
        for function in shared:
            if function.__name__ not in own:
                setattr(made, function.__name__, function)
        return made  # type: ignore[no-any-return]

    return make


def _key_of(names: list[str]) -> Callable[[object], Any]:  # Any: the field, or the tuple of them
    return attrgetter(*names) if names else lambda self: ()


def _init_of(cls: Any) -> Callable[..., None]:  # Any: a dataclass
    names: dict[str, Any] = {"_set": _set, "_MISSING": MISSING}  # Any: what the code below names, the defaults among it
    parameters, lines = [], []
    for one in fields(cls):
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
        lines.append(f" _set(self, {one.name!r}, {found})\n")
    if hasattr(cls, "__post_init__"):
        lines.append(" self.__post_init__()\n")
    exec(f"def __init__(self, {', '.join(parameters)}):\n{''.join(lines) or ' pass'}", names)
    made: Callable[..., None] = names["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    made.__annotations__ = {one.name: one.type for one in fields(cls)} | {"return": None}
    return made


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
    return [getattr(self, one.name) for one in fields(self)]


def __setstate__(self: Any, state: list[Any]) -> None:
    for one, found in zip(fields(self), state, strict=True):
        _set(self, one.name, found)


_SHARED = (__repr__, __eq__, __hash__, __setattr__, __delattr__, __getstate__, __setstate__)
_ORDER = (__lt__, __le__, __gt__, __ge__)
