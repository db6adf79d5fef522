"""Import what commands need, in a process that runs each in a fork of its own."""

from __future__ import annotations

from importlib import import_module

from pulsar_admin import table

_OF_MANY = ("rocksdict", "store.check", "store.transfer.imports", "store.transfer.refresh", "store.index.rebuild")


def import_commands() -> None:
    """Import the modules of all commands, and what many of them import when they run."""
    for rows in table.COMMANDS.values():
        for row in rows.values():
            import_module(row.target.partition(":")[0])
    for name in _OF_MANY:
        import_module(name)
