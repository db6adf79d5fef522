"""What is so: typed values, gathered once from one snapshot of a store, each defined once with its upstream source.

A fact that cannot be known is an ``Unknown`` with its reason, never zero, empty or None. Facts judge nothing: ``store.rules`` does.
"""

from __future__ import annotations

from store.errors import StoreError
from store.frozen import frozen

__all__ = ["Unknown"]


@frozen
class Unknown:
    """A fact that the store does not tell; ``why``: what is missing, in words for a person; ``error``: what says so, if anything does."""

    why: str
    error: StoreError | None = None

    @property
    def code(self) -> str:
        """The code of the error, "" without one."""
        return "" if self.error is None else self.error.code

    @classmethod
    def of(cls, error: StoreError) -> Unknown:
        """Return the unknown fact that ``error`` kept from being read."""
        return cls(error.message, error)
