"""Changes that write ledgers before their steps are known: compactions, loads, topic policies, splits of indexes.

A plan file of one keeps what was asked for, and what that showed. It is applied by asking again, on the very state of the store that
it was planned on, and only when the command shows the same again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any

from store.changes.chain import CHAIN_HEAD
from store.changes.plan import Plan, apply_plan, check_transaction
from store.changes.report import ChangeReport, Json
from store.codec.given import text
from store.db.environment import Store, Txn
from store.errors import StalePlan
from store.frozen import frozen

INTENT_FORMAT = 2
WORDS_MAX = 10_000


@frozen
class WritingPlan:
    """A change that makes itself: ``shown`` returns what it would do, ``made`` does it in a store open for writing.

    Both return a report for each change; ``made`` raises StalePlan and DiskFull.
    """

    command: str
    txn_id: int
    shown: Callable[[], tuple[ChangeReport, ...]]
    made: Callable[[Store], tuple[ChangeReport, ...]]
    loses: str = ""
    digest: Callable[[], str] = lambda: ""
    """Returns the digest of what is read that is not part of the store."""

    def preview(self) -> tuple[ChangeReport, ...]:
        """Return what applying would report."""
        return self.shown()


def asked_again(plan: Plan, now_ms: int) -> WritingPlan:
    """Return PLAN as one whose plan file keeps what was asked for, which ``apply`` asks again."""

    def make(store: Store) -> tuple[ChangeReport, ...]:
        return (apply_plan(store, plan, now_ms) if plan.steps else plan.unchanged(),)

    return WritingPlan(plan.command, plan.txn_id, lambda: (plan.preview(),), make, plan.loses)


@frozen
class Intent:
    """What was asked for: the command's own WORDS, the interceptors in force, and the JSON that it showed.

    ``state`` is ``state_of`` the store that it was planned on, whose transaction was ``txn_id``; ``digest`` is of what was read beside it.
    """

    command: str
    txn_id: int
    state: str
    words: tuple[str, ...]
    interceptors: tuple[str, ...] | None
    reports: tuple[Json, ...]
    digest: str = ""

    def dump(self) -> bytes:
        """Return it as the bytes of a plan file (JSON)."""
        fields: dict[str, Any] = {  # Any: JSON
            "planFormat": INTENT_FORMAT,
            "command": self.command,
            "transaction": self.txn_id,
            "state": self.state,
            "words": list(self.words),
            "interceptors": None if self.interceptors is None else list(self.interceptors),
            "reports": list(self.reports),
            "digest": self.digest,
        }
        return json.dumps(fields, indent=1).encode() + b"\n"

    def check(self, plan: WritingPlan, reports: tuple[ChangeReport, ...]) -> None:
        """Raise StalePlan unless PLAN, which shows REPORTS now, is what was planned then."""
        check_transaction(self.txn_id, plan.txn_id)
        if plan.digest() != self.digest:
            raise StalePlan(
                f"what {self.command} reads has changed since the plan was made",
                hint="make the plan again and look at it",
            )
        if list(self.reports) != json.loads(json.dumps(documents_of(reports))):
            raise StalePlan(
                f"{self.command} would do something else now than the plan shows",
                hint="make the plan again and look at it",
            )

    def check_store(self, store: Store) -> None:
        """Raise StalePlan unless STORE is the one that it was planned on, in that state."""
        check_state(store, self.txn_id, self.state)


def check_state(store: Store, txn_id: int, state: str) -> None:
    """Raise StalePlan unless STORE is in that STATE, on the transaction TXN_ID."""
    with store.read() as txn:
        check_transaction(txn_id, txn.id)
        # The same number of transactions proves nothing: every fresh import has the same.
        if state_of(txn) != state:
            raise StalePlan("the plan was made on another store", hint="make the plan again on this store")


def state_of(txn: Txn) -> str:
    """Return what tells a store and its changes so far from other stores, copies of it included that were changed since (hex)."""
    return sha256(b"%d" % txn.store.info.created_ms + (txn.get("state", CHAIN_HEAD) or b"")).hexdigest()


def documents_of(reports: tuple[ChangeReport, ...]) -> list[Json]:
    """Return the JSON objects of all REPORTS."""
    return [document for report in reports for document in report.documents()]


def decode_intent(fields: Mapping[str, Any], command: str, txn_id: int) -> Intent:  # Any: JSON
    """Return the intent in the FIELDS of a plan file; raises ValueError, KeyError, TypeError."""
    words, interceptors, reports = fields["words"], fields["interceptors"], fields["reports"]
    state = text(fields["state"], "state")
    if not _is_texts(words) or not (interceptors is None or _is_texts(interceptors)):
        raise ValueError("words, interceptors: expected lists of texts")
    if not isinstance(reports, list) or not all(isinstance(report, dict) for report in reports):
        raise ValueError("reports: expected a list of objects")
    broker = None if interceptors is None else tuple(interceptors)
    return Intent(command, txn_id, state, tuple(words), broker, tuple(reports), text(fields["digest"], "digest"))


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and len(value) <= WORDS_MAX and all(isinstance(one, str) for one in value)
