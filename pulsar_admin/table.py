"""The command table: what exists, where it lives and its one line of help. Reading it imports no command.

A group's key is its path (``store``, ``store import``); its rows map a command's name to module, attribute, help and
aliases. Only what exists is listed; help and documentation pages follow the order of this file.
"""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """One command: ``module:attribute``, the first sentence of its help, and other names it answers to."""

    target: str
    help: str
    aliases: tuple[str, ...] = ()


ROOT = ""

GROUPS: dict[str, str] = {
    ROOT: "pulsar-admin, offline: answers and changes on the bytes that Pulsar and BookKeeper left on disk.",
    "store": "Make, import, inspect, check, repair and export the store.",
    "store import": "Read Pulsar's own files into a new store.",
    "store export": "Write the store's changes back into Pulsar's own files.",
    "topics": "Topics: list, search by time, read, and move their cursors.",
    "namespaces": "Namespaces: their topics and policies.",
    "compaction": "Compacted topics: run, read and verify compaction.",
    "delayed": "Delayed messages: what is due, when, and its index.",
    "nacks": "Negative acknowledgements: plan, track and simulate.",
    "ledgers": "Ledgers: metadata, entries, orphans and losses.",
    "logs": "One entry log file, without a store.",
}

COMMANDS: dict[str, dict[str, Row]] = {
    ROOT: {
        "apply": Row(
            "commands.apply:apply", "Do what a plan file says, which --plan FILE of any changing command made."
        ),
        "completion": Row(
            "commands.completion:completion", "Print the script that completes commands and options in a shell."
        ),
    },
    "store": {
        "init": Row("commands.store.importing:init", "Make an empty store."),
        "info": Row("commands.store.inspect:info", "Show what the store holds and where it came from."),
        "ls": Row("commands.store.inspect:ls", "List the metadata nodes below PATH, as in Pulsar's metadata store."),
        "cat": Row("commands.store.inspect:cat", "Show the value of one metadata node."),
        "owner": Row(
            "commands.store.inspect:owner",
            "Tell which topic, cursor, schema, compaction or delayed index each LEDGER belongs to.",
        ),
        "log": Row("commands.store.history:log", "List the changes made to this store, or the CHANGEs named."),
        "undo": Row("commands.store.history:undo", "Bring back the exact bytes from before a change."),
    },
    "store import": {
        "standalone": Row(
            "commands.store.importing:standalone", "Read a standalone Pulsar's data directory into a new store."
        ),
    },
    "topics": {
        "find-by-time": Row(
            "commands.topics.find:find_by_time",
            "Find the first entry at or after a point in time.",
            ("get-message-id",),
        ),
        "reset-cursor": Row(
            "commands.topics.reset:reset_cursor",
            "Move a subscription so that the first entry given again is at a time or a position.",
        ),
    },
    "store export": {
        "standalone": Row(
            "commands.store.export:standalone", "Write the store's changes into a Pulsar data directory."
        ),
    },
    "namespaces": {},
    "compaction": {},
    "delayed": {},
    "nacks": {},
    "ledgers": {},
    "logs": {},
}


def rows_of(path: str) -> dict[str, Row]:
    """Return the commands directly in group PATH."""
    return COMMANDS.get(path, {})


def subgroups_of(path: str) -> dict[str, str]:
    """Return the groups directly in group PATH that hold a command, name → help."""
    prefix = f"{path} " if path else ""
    names = (key for key in GROUPS if key != ROOT and key.startswith(prefix))
    return {key[len(prefix) :]: GROUPS[key] for key in names if " " not in key[len(prefix) :] and is_used(key)}


def is_used(path: str) -> bool:
    """Return whether group PATH, or a group in it, holds a command."""
    return any(rows and (key == path or key.startswith(f"{path} ")) for key, rows in COMMANDS.items())


def find_row(path: str, name: str) -> Row | None:
    """Return the command that NAME, or an alias NAME, means in group PATH."""
    rows = rows_of(path)
    if name in rows:
        return rows[name]
    return next((row for row in rows.values() if name in row.aliases), None)
