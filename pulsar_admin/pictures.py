"""The options ``--png`` and ``--svg``: what draws the picture is looked for before there is anything to draw."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from store.extras import require


def picture_option(form: str) -> Callable[[Any], Any]:  # Any: click's decorators
    """Add ``--FORM FILE``, handed over as ``FORM: Path | None``; raises MissingComponent."""
    text = f"Also draw it into a new {form.upper()} file."
    path = click.Path(path_type=Path)
    return click.option(f"--{form}", type=path, callback=_check, metavar="FILE", help=text)


def _check(ctx: click.Context, parameter: click.Parameter, path: Path | None) -> Path | None:
    if path is not None:
        require("matplotlib", f"--{parameter.name}")
    return path
