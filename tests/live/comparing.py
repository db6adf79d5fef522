"""What two accounts of one world (``recipe.ask``) must agree on when nothing but a restart lies between them."""

from typing import Any
from urllib.parse import unquote

# What a restart itself changes and no store could keep: counters of the process, times of opening, ids of the ledgers
# a broker opens when it loads a topic or moves a cursor.
Facts = dict[str, Any]


def facts_of(said: dict[str, Any]) -> Facts:
    """Flat facts: ``topic what`` or ``topic subscription what`` or ``namespace what`` to the broker's answer."""
    facts: Facts = {f"{namespace} policies": policies for namespace, policies in said["policies"].items()}
    for topic, internal in said["internal"].items():
        facts[f"{topic} entries"] = internal["numberOfEntries"]
        facts[f"{topic} bytes"] = internal["totalSize"]
        facts[f"{topic} last"] = internal["lastConfirmedEntry"]
        facts[f"{topic} ledgers"] = _ledgers(internal)
        facts[f"{topic} compacted"] = internal["compactedLedger"]["ledgerId"]
        facts[f"{topic} messages"] = said["rows"][topic]
        for encoded, cursor in internal["cursors"].items():
            facts |= _cursor_facts(f"{topic} {unquote(encoded)}", cursor)
            subscription = said["stats"][topic]["subscriptions"][unquote(encoded)]
            facts[f"{topic} {unquote(encoded)} backlog"] = subscription["msgBacklog"]
            facts[f"{topic} {unquote(encoded)} backlog bytes"] = subscription["backlogSize"]
    return facts


def _ledgers(internal: dict[str, Any]) -> dict[int, tuple[int, int]]:
    """Entries and bytes by ledger, empty ones left out: each load of a topic adds an empty one at its end."""
    found = {ledger["ledgerId"]: (ledger["entries"], ledger["size"]) for ledger in internal["ledgers"]}
    found[internal["ledgers"][-1]["ledgerId"]] = (internal["currentLedgerEntries"], internal["currentLedgerSize"])
    return {ledger: size for ledger, size in found.items() if size != (0, 0)}


def _cursor_facts(name: str, cursor: dict[str, Any]) -> Facts:
    return {
        f"{name} mark-delete": cursor["markDeletePosition"],
        f"{name} acknowledged": cursor["individuallyDeletedMessages"],
        f"{name} properties": cursor["properties"],
    }


def moved(before: Facts, after: Facts) -> dict[str, tuple[Any, Any]]:
    """The facts that differ: name to (before, after), None where one side has no such fact."""
    names = sorted(before.keys() | after.keys())
    return {name: (before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)}


def first_unacknowledged(rows: list[list[Any]], cursor: dict[str, Any]) -> tuple[int, int] | None:
    """The first (ledger, entry) a consumer of this cursor gets."""
    return next(iter(unacknowledged(rows, cursor)), None)


def unacknowledged(rows: list[list[Any]], cursor: dict[str, Any]) -> list[tuple[int, int]]:
    """Every (ledger, entry) a consumer of this cursor gets: after its mark-delete and in none of its ranges."""
    ranges = [_range(text) for text in cursor["individuallyDeletedMessages"].strip("[]").split(",") if text]
    mark_delete = place(cursor["markDeletePosition"])
    return [
        position
        for position in sorted({(row[0], row[1]) for row in rows})
        if position > mark_delete and not any(low < position <= high for low, high in ranges)
    ]


def _range(text: str) -> tuple[tuple[int, int], tuple[int, int]]:
    """A range as the broker prints it, open below and closed above: ``(10:2..10:4]``."""
    low, high = text.strip().strip("(]").split("..")
    return place(low), place(high)


def place(text: str) -> tuple[int, int]:
    ledger, entry = text.split(":")
    return int(ledger), int(entry)
