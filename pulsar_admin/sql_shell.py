"""The shell of ``sql``: statements typed on a terminal, each up to its semicolon."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pulsar_admin.errors import failure_of
from pulsar_admin.store.errors import StoreError
from pulsar_admin.visible import write_error

if TYPE_CHECKING:
    from pulsar_admin.context import App
    from pulsar_admin.store.tables.sql import Database

_PROMPT, _GOES_ON = "sql> ", "...> "
_HISTORY_LINES = 1000
_HELP = """\
A statement ends with a semicolon:        select topic, count(*) from messages group by 1;
A topic is a table, in double quotes:     from "public/default/orders" limit 5;
tables          the tables that every store has
describe TABLE  its columns
help, quit      this; the end, as Ctrl-D"""
_KEYWORDS = ("select", "from", "where", "group by", "order by", "limit", "count(*)", "join", "tables", "describe")


def run_shell(app: App, database: Database, answer: Callable[[str], None]) -> None:
    """Read and answer statements until the end of input; after an error or Ctrl-C it prompts again."""
    history = Path.home() / ".pulsar_admin_sql_history"
    with suppress(ImportError):  # a Python without readline reads lines as they are
        _set_up(database, history)
    app.tell("end a statement with a semicolon; help lists the rest")
    for statement in _statements(database):
        try:
            answer(statement)
        except StoreError as error:
            app.suggest(error)
            failure_of(error).write(as_json=False)
        except KeyboardInterrupt:
            write_error("interrupted")
    with suppress(ImportError, OSError):
        import readline

        readline.write_history_file(history)


def _statements(database: Database) -> Iterator[str]:
    """Yield the typed statements."""
    typed = ""
    while True:
        try:
            typed += _line(_GOES_ON if typed else _PROMPT) + "\n"
        except KeyboardInterrupt:
            typed = ""
            write_error("")
            continue
        except EOFError:
            write_error("")
            return
        word = typed.strip().rstrip(";").strip()
        if word.lower() in ("quit", "exit", r"\q"):
            return
        if word.lower() in ("help", r"\?", r"\h"):
            write_error(_HELP)
        elif statement := _expanded(word):
            yield statement
        elif word and database.is_open(typed):
            continue
        elif word:
            yield typed
        typed = ""


def _line(prompt: str) -> str:
    if sys.stdout.isatty():
        return input(prompt)
    write_error(prompt, end="")  # stdout is the result
    return input()


def _expanded(word: str) -> str:
    """Return the statement for one of the shell's own words, "" for any other word."""
    if word.lower() in ("tables", r"\d", r"\dt"):
        return "show tables"
    match = re.fullmatch(r"(?:describe|\\d)\s+(\S+)", word, re.I)
    name = match[1].strip('"').replace('"', '""') if match else ""
    return f'describe "{name}"' if name else ""


def _set_up(database: Database, history: Path) -> None:
    """Let readline keep a history file, and complete names of tables, topics and columns."""
    import readline

    with suppress(OSError):
        readline.read_history_file(history)
    readline.set_history_length(_HISTORY_LINES)
    readline.set_completer_delims(" \t\n,()='\";")
    readline.parse_and_bind("tab: complete")
    completions: list[str] = []

    def complete(text: str, state: int) -> str | None:
        if not state:
            names = (*_KEYWORDS, *database.words(text))
            completions[:] = [name for name in names if name.lower().startswith(text.lower())]
        return completions[state] if state < len(completions) else None

    readline.set_completer(complete)
