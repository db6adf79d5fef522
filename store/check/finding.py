"""One thing that a check found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from enum import StrEnum

from store.errors import IndexCorrupt, StoreError
from store.frozen import frozen
from store.names import EVENTS
from store.rules.table import LEADING


class Severity(StrEnum):
    """What is wrong, what is worth knowing, and the row that sums up a check."""

    PROBLEM = "problem"
    NOTE = "note"
    SUMMARY = "summary"


@frozen
class Finding:
    """What is wrong or worth knowing, with a stable ``code``.

    ``scope``: "store" for our own rows, "data" for what Pulsar left. ``repair``: the derived databases that ``store index --rebuild``
    makes again ("index"), or empty. ``context``: names and numbers by key; with ``severity`` where a rule says how bad it is here.
    """

    severity: Severity
    code: str
    scope: str
    where: str
    message: str
    hint: str = ""
    repair: str = ""
    context: Mapping[str, object] = field(default_factory=dict)


def store_problem(code: str, where: str, message: str, **more: object) -> Finding:
    """Return a problem of our own rows that ``store index --rebuild`` solves."""
    hint = "rebuild the index with: pulsar-admin store index --rebuild"
    return Finding(Severity.PROBLEM, code, "store", where, message, hint, "index", more)


def data_problem(code: str, where: str, message: str, hint: str = "", **more: object) -> Finding:
    """Return a problem of the data."""
    return Finding(Severity.PROBLEM, code, "data", where, message, hint, "", more)


def note(code: str, where: str, message: str, hint: str = "", **more: object) -> Finding:
    """Return something worth knowing about the data."""
    return Finding(Severity.NOTE, code, "data", where, message, hint, "", more)


def problem_of(error: StoreError, code: str, scope: str, where: str) -> Finding:
    """Return the problem that ERROR tells of."""
    return Finding(Severity.PROBLEM, code, scope, where, error.message, error.hint, "", error.context)


def to_the_end(found: Iterator[Finding], where: str) -> Iterator[Finding]:
    """Yield what is FOUND; where a row stops it that a later check can do without, say that WHERE was not checked to its end."""
    try:
        yield from found
    except IndexCorrupt as error:
        yield problem_of(error, "check-stopped", "store", where)


_WORST = (
    *(
        "pages-damaged",
        "rows-altered",
        "node-rows-altered",
        "catalogue-damaged",
        "node-damaged",
        "metadata-incomplete",
        "topic-unreadable",
        "value-undecodable",
    ),
    *("ledger-missing", "ledger-without-metadata", "entries-missing", "schema-ledger-without-metadata"),
    *("compacted-ledger-without-metadata", "cursor-unreadable"),
)
"""Codes of problems by what they keep from whom: whole namespaces and topics first, then messages, then positions and the rest."""


_LEADING = {rule.cause.code for rule in LEADING}


def weight(finding: Finding) -> tuple[int, int]:
    """Return what findings are sorted by: problems before notes, those that concern most first."""
    if finding.severity is not Severity.PROBLEM:
        return 1, 0
    if finding.code in _LEADING:
        return 0, -2
    if EVENTS in finding.where:  # no topic of its namespace loads
        return 0, -1
    return 0, _WORST.index(finding.code) if finding.code in _WORST else len(_WORST)
