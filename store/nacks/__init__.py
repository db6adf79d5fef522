"""Negative acknowledgements: the bitmap tracker of PIP-393 (apache/pulsar PR 23600, 23804), its sizes and its timing.

``from store.nacks import NegativeAcksTracker`` imports numpy and pyroaring; the package by itself does not, so that
commands can import their neighbours (``store.nacks.backoff``) cheaply.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pulsar_admin.store.nacks.due import DueNacks
    from pulsar_admin.store.nacks.tracker import NegativeAcksTracker

__all__ = ["DueNacks", "NegativeAcksTracker"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pulsar_admin.store.nacks import due, tracker

    return getattr(due if name == "DueNacks" else tracker, name)
