"""Facts: typed values, gathered once from one snapshot of a store, each defined once with its upstream source.

A fact that cannot be known is an ``Unknown`` with its reason, never zero, empty or None. Judging facts is left to ``store.rules``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

from msgspec import Struct

from pulsar_admin.store.errors import NotSeen, StoreError

__all__ = ["Unknown", "fact", "known"]

_Value = TypeVar("_Value")


class Fact(Generic[_Value]):
    """A property that is computed on first use and cached: ``functools.cached_property`` without its lock, which costs more than most of
    the forty facts of a topic. Only one thread reads facts."""

    def __init__(self, read: Callable[[Any], _Value]) -> None:  # Any: whatever class has it
        self._read = read
        self.__doc__ = read.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Fact[_Value]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> _Value: ...
    def __get__(self, instance: object | None, owner: type) -> Fact[_Value] | _Value:
        if instance is None:
            return self
        value = instance.__dict__[self._name] = self._read(instance)
        return value


fact = Fact


class Unknown(Struct, frozen=True):
    """A fact that the store does not have; ``why``: the missing thing, in words; ``error``: the error that shows it, if any."""

    why: str
    error: StoreError | None = None

    @property
    def code(self) -> str:
        """The code of the error, "" without one."""
        return "" if self.error is None else self.error.code

    @property
    def unseen(self) -> tuple[str, ...]:
        """The bookies and journals that are not imported and may have it."""
        error: BaseException | None = self.error
        while error is not None and not isinstance(error, NotSeen):
            error = error.__cause__
        bookies = None if error is None else error.context.get("bookies")
        return bookies if isinstance(bookies, tuple) else ()

    @classmethod
    def of(cls, error: StoreError) -> Unknown:
        """Return the unknown fact that ``error`` kept from being read."""
        return cls(error.message, error)

    @classmethod
    def unless(cls, read: Callable[[], _Value]) -> _Value | Unknown:
        """Return the fact that ``read`` returns, or the unknown one if a StoreError prevents that."""
        try:
            return read()
        except StoreError as error:
            return cls.of(error)


def known(value: _Value | Unknown) -> _Value | None:
    """Return a fact, or None if it is not known: for callers that treat both alike."""
    return None if isinstance(value, Unknown) else value
