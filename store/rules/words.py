"""Texts that several rules share."""

import re
from typing import Any

from pulsar_admin.store.model.cursors import Cursor, is_own
from pulsar_admin.store.names import shell_word
from pulsar_admin.store.rules.finding import Severity
from pulsar_admin.store.rules.rule import Rule, Sweep

KEEP_COPIES = (
    "Keep write quorum at 2 or more, back up ZooKeeper, and never start bookies on older metadata: run `store "
    "preflight` first."
)
NO_HAND = "Never delete nodes or ledgers by hand; delete topics through a broker or this toolkit."
STUCK = (
    "Loads the topic. Consumers stop at the loss without an error; with `autoSkipNonRecoverableData=true` the broker "
    "skips the loss. A last ledger whose metadata is gone is dropped from the list."
)
LISTED_AT_ONCE = 100
"""How many ledgers a printed `ledgers restore` names: it cures these, and the next diagnosis prints one for the rest."""
UNSEEN = "Nothing: no broker reads the store. Until it is repaired, this toolkit's answers and changes may be wrong."
PREVENT = "Change a store only with this toolkit, and keep it on a reliable disk."
REBUILD = "pulsar-admin store index --rebuild"
REFRESH = "pulsar-admin store refresh"
_CHANGES = re.compile(
    r" ledgers forget | reset-cursor | topics (clear-backlog|delete|skip|trim-topic|unsubscribe) | update-mark-delete-cursor |"
    r"-partitioned-topic |-missed-partitions "
)
"""In commands that give up, create or delete what may be there, or move a cursor that may be elsewhere."""


def unchanging(command: str) -> str:
    """Return what to print beside metadata that was not read completely: ``store refresh`` for a command of ``_CHANGES``, as what is
    missing may only be unread; else the command."""
    return REFRESH if _CHANGES.search(command) else command


HOW_REBUILD = (
    "Rebuild the index from the files. Metadata and changes of the store stay as they are; the old index is kept "
    "as a backup."
)


def of_index(sweep: Sweep[Any], code: str, title: str, means: str) -> Rule[Any]:
    """Return a rule of ``sweep`` about rows that ``store index --rebuild`` recreates."""
    texts = code, Severity.WARNING, title, means, UNSEEN, REBUILD, HOW_REBUILD, PREVENT
    return sweep.row(*texts, scope="store", repair="index")


def forced_reset(cursor: Cursor, place: str, *, is_lost: bool = False) -> str | None:
    """Return the command that resets a cursor to ``place`` if that needs --force, as for a broker's own cursor or where
    ``is_lost`` says that nothing can be read; otherwise None.
    """
    command = (
        f"pulsar-admin topics reset-cursor {shell_word(cursor.topic)} -s {shell_word(cursor.name)} -m {place} --force"
    )
    return command if is_lost or is_own(cursor.name) else None
