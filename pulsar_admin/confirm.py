"""Confirming plans: only a loss that undo cannot restore needs ``--yes``, or an answer on a terminal."""

import sys
from typing import Protocol

from pulsar_admin.store.errors import Cancelled, Refused
from pulsar_admin.visible import clean_text, write_error


class Plan(Protocol):
    """The part of a plan of ``store.changes`` that the command line needs."""

    @property
    def loses(self) -> str:
        """The permanent loss in numbers, "" if ``store undo`` restores everything."""

    def preview(self) -> object:
        """Return the report of a dry run."""


def confirm_loss(loses: str, *, yes: bool) -> None:
    """Ask for confirmation of a permanent loss, unless ``loses`` is "" or ``yes`` is given.

    Raises Cancelled if the answer is no, Refused if stdin cannot answer.
    """
    if not loses or yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Refused(f"this cannot be undone: {loses}", hint="add --yes to do it, --dry-run to see it", loses=loses)
    write_error(f"This cannot be undone: {clean_text(loses)}")
    write_error("Continue? [y/N] ", end="")
    answer = sys.stdin.readline()
    if not answer:
        raise KeyboardInterrupt
    if answer.strip().lower() not in {"y", "yes"}:
        raise Cancelled("cancelled, nothing was changed", hint="--dry-run shows the change", loses=loses)
