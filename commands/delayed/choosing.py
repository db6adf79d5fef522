"""Which subscriptions a command on delayed messages means, and what is said of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pulsar_admin.context import App
from pulsar_admin.options import topics_argument

if TYPE_CHECKING:
    from pulsar_admin.store.delayed.waiting import Waiting

Function = TypeVar("Function", bound=Callable[..., Any])  # Any: click calls commands with whatever was declared
UNKNOWN_TYPE = "whether a subscription is Shared or Key_Shared is not on disk; Exclusive and Failover ignore delays"


def delaying(function: Function) -> Function:
    """Add topics and ``-s/--subscription NAME``, handed over as ``selection`` and ``subscription`` (None: all that may delay)."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:  # Any: click calls it
        return function(*args, **kwargs)

    option = click.option("-s", "--subscription", help="Only this subscription [every one that may delay].")
    return topics_argument(option(wrapper))  # type: ignore[return-value]


def noted(app: App, waitings: Iterable[Waiting]) -> Iterator[Waiting]:
    """Yield WAITINGS; with --verbose say of each that has no index, and what is not known."""
    for waiting in waitings:
        if waiting.index is None:
            app.note(
                f"{waiting.topic} {waiting.subscription}: no current index, its entries are read: see delayed build"
            )
        yield waiting
    app.note(UNKNOWN_TYPE)
