"""One thing that a check found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from store.errors import StoreError


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong (severity "problem") or worth knowing ("note"), with a stable ``code``.

    ``scope``: "store" for our own rows, "data" for what Pulsar left. ``repair``: the derived databases that ``store index --rebuild``
    makes again ("index"), or empty.
    """

    severity: str
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
    return Finding("problem", code, "store", where, message, hint, "index", more)


def data_problem(code: str, where: str, message: str, hint: str = "", **more: object) -> Finding:
    """Return a problem of the data."""
    return Finding("problem", code, "data", where, message, hint, "", more)


def note(code: str, where: str, message: str, hint: str = "", **more: object) -> Finding:
    """Return something worth knowing about the data."""
    return Finding("note", code, "data", where, message, hint, "", more)


def problem_of(error: StoreError, code: str, scope: str, where: str) -> Finding:
    """Return the problem that ERROR tells of."""
    return Finding("problem", code, scope, where, error.message, error.hint, "", error.context)
