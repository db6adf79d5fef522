"""What is so: typed values, gathered once from one snapshot of a store, each defined once with its upstream source.

A fact that cannot be known is an ``Unknown`` with its reason, never zero, empty or None. Facts judge nothing: ``store.rules`` does.
"""

from __future__ import annotations

from store.frozen import frozen

__all__ = ["Unknown"]


@frozen
class Unknown:
    """A fact that the store does not tell; ``why``: what is missing, in words for a person."""

    why: str
