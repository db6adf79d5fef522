"""What is so: typed values, gathered once from one snapshot of a store, each defined once with its upstream source.

A fact that cannot be known is an ``Unknown`` with its reason, never zero, empty or None. Facts judge nothing: ``store.rules`` does.
"""

from __future__ import annotations

from store.errors import StoreError
from store.frozen import frozen

__all__ = ["Unknown"]


@frozen
class Unknown:
    """A fact that the store does not tell; ``why``: what is missing, in words for a person; ``code``: of the error that says so, if any."""

    why: str
    code: str = ""

    @classmethod
    def of(cls, error: StoreError) -> Unknown:
        """Return the unknown fact that ``error`` kept from being read."""
        return cls(error.message, error.code)
