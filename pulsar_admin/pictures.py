"""Plots, and the options ``--plot``, ``--png`` and ``--svg``: what draws is looked for before there is anything to draw."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pulsar_admin.store.extras import require

if TYPE_CHECKING:
    from pulsar_admin.context import App


def picture_option(form: str) -> Callable[[Any], Any]:  # Any: click's decorators
    """Add ``--FORM FILE``, handed over as ``FORM: Path | None``; raises MissingComponent."""
    text = f"Also draw it into a new {form.upper()} file."
    path = click.Path(path_type=Path)
    return click.option(f"--{form}", type=path, callback=_check, metavar="FILE", help=text)


def plot_option(text: str) -> Callable[[Any], Any]:  # Any: click's decorators
    """Add the flag ``--plot`` with the help ``text``; raises MissingComponent."""
    return click.option("--plot", is_flag=True, callback=_check_plot, help=text)


def require_plot(app: App | None = None) -> None:
    """Raise MissingComponent if the answer has a plot in this format and no plotting library is installed."""
    if app is None or app.writes_text:
        require("plotext", "a plot", instead="ask for the numbers: -o json")


def _check_plot(ctx: click.Context, parameter: click.Parameter, plot: bool) -> bool:
    if plot:
        require_plot()
    return plot


def _check(ctx: click.Context, parameter: click.Parameter, path: Path | None) -> Path | None:
    if path is not None:
        require("matplotlib", f"--{parameter.name}")
    return path
