"""Modules that are imported when something of theirs is asked for: what reads a store goes without what changes it."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType


class _Later(ModuleType):
    def __getattr__(self, name: str) -> object:
        return getattr(import_module(self.__name__), name)


def later(name: str) -> ModuleType:
    """Return the module NAME, not imported yet. Beside it stands the import under ``TYPE_CHECKING``, by which it is checked."""
    return _Later(name)
