"""Modules that are imported on first use, so that reading a store does not load the code that changes it."""

from collections.abc import Iterator
from importlib import import_module
from types import ModuleType


class _Later(ModuleType):
    def __getattr__(self, name: str) -> object:
        return getattr(import_module(self.__name__), name)


def later(name: str) -> ModuleType:
    """Return a module that is imported on first use. Type checkers see the import under ``TYPE_CHECKING`` beside it."""
    return _Later(name)


def laters(package: str, names: str) -> Iterator[ModuleType]:
    """Return ``later`` of each of a package's modules; ``names`` are separated by blanks."""
    return (later(f"{package}.{name}") for name in names.split())
