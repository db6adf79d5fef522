"""Cures: the commands that findings name, and the dry runs that show their effect first."""

import shlex
from importlib import import_module

from pulsar_admin.command_table import ROOT
from pulsar_admin.lookup import find_row, is_subgroup
from pulsar_admin.typable import typable

_LOOK = " --dry-run"
_READS = "--forecast"
"""The option with which an otherwise changing command only reads."""


def cure_of(command: str) -> str:
    """Return a command without a final ``--dry-run``, so that it makes the change."""
    return command.removesuffix(_LOOK)


def look_first(command: str) -> str:
    """Return the dry run of a command, "" if the command changes nothing."""
    cure = cure_of(command)
    path = ROOT
    try:
        words = shlex.split(cure)
    except ValueError:
        return ""  # a name in it is not valid shell syntax
    for word in words[1:]:
        if is_subgroup(path, word):
            path = f"{path} {word}".strip()
            continue
        row = find_row(path, word)
        if row is None:
            return ""
        module, _, attribute = row.target.partition(":")
        shown = getattr(import_module(module), attribute)
        return cure + _LOOK if (shown.changes or "dry_run" in shown.uses) and _READS not in words else ""
    return ""


def cure_lines(command: str) -> list[str]:
    """Return the lines that show a cure: its dry run, then the command itself, both ready to be typed.

    A command that changes nothing is a single line.
    """
    look = look_first(command)
    if not look:
        return [f"look: {typable(command)}"]
    return [f"look first: {typable(look)}", f"$ {typable(cure_of(command))}"]
