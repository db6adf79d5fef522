"""Cures: commands that a finding names, with the look at what they would change first."""

import shlex
from importlib import import_module

from pulsar_admin.command_table import ROOT
from pulsar_admin.lookup import find_row, is_subgroup
from pulsar_admin.typable import typable

_LOOK = " --dry-run"
_READS = "--forecast"
"""The option with which a command that changes something shows something instead."""


def cure_of(command: str) -> str:
    """Return a command without the ``--dry-run`` that it may end in: what it cures with."""
    return command.removesuffix(_LOOK)


def look_first(command: str) -> str:
    """Return what shows what a command would change, and changes nothing; "": it changes nothing itself."""
    cure = cure_of(command)
    path = ROOT
    try:
        words = shlex.split(cure)
    except ValueError:
        return ""  # a text of a name that no shell takes for words
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
    """Return the lines of a text that names a cure: the look first, then the command itself, both as they are typed here.

    A command that changes nothing cures nothing: it is a look alone.
    """
    look = look_first(command)
    if not look:
        return [f"look: {typable(command)}"]
    return [f"look first: {typable(look)}", f"$ {typable(cure_of(command))}"]
