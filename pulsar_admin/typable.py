"""Making printed commands work as typed: each gets the options of this command line for the store and the time.

These are ``--store`` (as an absolute path), ``--tables``, ``--now`` and ``--tz``. Settings from the environment or the
settings file apply to the next command anyway and are not added.

This is applied to the program's own sentences only, when they are written, never to data, which may contain the same words.
"""

import os
import re
from collections.abc import Mapping
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from typing import Any

from pulsar_admin.store.names import shell_word

PROGRAM = "pulsar-admin"
WITHOUT_STORE = frozenset({"completion", "logs"})
OWN_TEXT = frozenset({"command", "hint", "mend", "message", "sentence", "undo", "warnings"})
"""Fields of records that hold sentences of ours, with commands in them."""
_CARRIED = {"store": "--store", "tables": "--tables", "tables_cluster": "--cluster", "now": "--now", "tz": "--tz"}
_OF_TABLES = ("sql",)
_QUOTED = r"""(?<=[\s=])(?:\$'(?:\\.|[^'\\\n])*'|'[^'\n]*'(?:"'"'[^'\n]*')*)"""
"""A word as ``shell_word`` quotes it. These patterns are compiled when a text has a command: 1 ms, and no cold answer has one."""
_COMMAND = rf"(?<![\w./-])pulsar-admin (?=((?:--[a-z-]+ (?:{_QUOTED}|\S+) )*)([a-z][\w-]*)([^\n]*))"
_END = r"[;,):`](?:\s|$)| \("
"""Where a command ends in a sentence."""
_program: ContextVar[str] = ContextVar("program", default=PROGRAM)
_runs: ContextVar[bool] = ContextVar("runs", default=False)
_words: ContextVar[tuple[tuple[str, str], ...]] = ContextVar("words", default=())
"""Options and values of the command line; a command in a text gets those that it does not have."""


def begin(program: str) -> None:
    """Start a command line of ``program``, without any options so far."""
    _program.set(program)
    _words.set(())
    _runs.set(True)


def end() -> None:
    """End the command line: later texts are for a Python program."""
    begin(PROGRAM)
    _runs.set(False)


def runs() -> bool:
    """Whether a command line is running, so that hints name its options."""
    return _runs.get()


def carry(given: Mapping[str, Any]) -> None:  # Any: raw option values from click
    """Remember the global options ``given`` so far, for printed commands."""
    found = []
    for name, option in _CARRIED.items():
        value = given.get(name)
        if value:
            is_path = name == "store" or (name == "tables" and "://" not in value)
            found.append((option, shell_word(_absolute(value) if is_path else str(value))))
    _words.set(tuple(found))


def _absolute(path: str) -> str:
    """Return the absolute path, resolving links only if a ``..`` follows one."""
    try:
        found = os.path.abspath(path)
        if os.pardir in path.split(os.sep) and os.path.realpath(found) != os.path.realpath(path):
            return os.path.realpath(path)
    except FileNotFoundError:  # the working directory is gone, so nothing lies at a path from there
        return path
    return found


def is_carrying() -> bool:
    """Whether ``typable`` changes anything."""
    return bool(_words.get()) or _program.get() != PROGRAM


def typable(text: str) -> str:
    """Return one of the program's texts, adding this run's options to each command that accepts and lacks them."""
    return _carried(text, _program.get(), _words.get()) if is_carrying() and PROGRAM in text else text


def typable_in(text: str, store: Path) -> str:
    """Return one of the program's texts, adding ``--store`` to its commands."""
    return _carried(text, PROGRAM, (("--store", shell_word(_absolute(str(store)))),)) if PROGRAM in text else text


@lru_cache(maxsize=64)
def _carried(text: str, program: str, words: tuple[tuple[str, str], ...]) -> str:
    """Return a text with ``words`` added to its commands; cached, because many records have the same text."""
    return re.sub(_COMMAND, lambda found: _typed(found, program, words), text)


def own_items(document: Mapping[str, Any]) -> dict[str, Any]:  # Any: JSON values
    """Return a document with ``typable`` applied to the program's own sentences in it."""
    return {key: _own(value) if key in OWN_TEXT else value for key, value in document.items()}


def own_text(record: object, name: str) -> Any:  # Any: the field's own type
    """Return the field ``name`` of a record, with ``typable`` applied if it has the program's own sentences."""
    value = getattr(record, name)
    return _own(value) if name in OWN_TEXT else value


def _own(value: Any) -> Any:  # Any: the field's own type
    if isinstance(value, (tuple, list)):
        return type(value)(map(_own, value))
    return typable(value) if isinstance(value, str) else value


def _typed(found: re.Match[str], program: str, words: tuple[tuple[str, str], ...]) -> str:
    from pulsar_admin.command_table import COMMANDS, GROUPS, ROOT

    word, rest = (
        found[2],
        f" {found[1]}" + re.split(_END, re.sub(_QUOTED, "''", found[3]).partition(f" {PROGRAM} ")[0])[0],
    )
    if word not in COMMANDS[ROOT] and word not in GROUPS:
        return found[0]
    program = f"{program} "
    if word in WITHOUT_STORE or " --help" in rest:
        return program
    named = (
        {"--store", "--tables", "--cluster"} if re.search(" --(store|tables) ", rest) else set()
    )  # one says where all is
    if word not in _OF_TABLES:
        named |= {"--tables", "--cluster"}
    options = (f"{option} {value} " for option, value in words if option not in named and f" {option}" not in rest)
    return program + "".join(options)
