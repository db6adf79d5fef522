"""Findings that differ in the ledger alone, told as one."""

from __future__ import annotations

import re

_LEDGER = re.compile(r"\bledger \d+")


def place_of(where: str, ledgers: str = "ledger") -> str:
    """Return WHERE with LEDGERS in place of its ledger: the same for all findings that differ in that alone."""
    return _LEDGER.sub(ledgers, where, count=1)


def message_of(first: str, where: str) -> str:
    """Return the message of many findings, the FIRST of which is of WHERE."""
    return f"{first} (of {where}, and so for each of them)"
