"""Functions at their bounds, by table: what they answer, what they refuse and what they say."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
from msgspec import to_builtins

from pulsar_admin.store.errors import EntryCorrupt, MetadataCorrupt, StoreError, Unsupported
from pulsar_admin.store.names import Position, parse_topic

# The keys are functions, or properties of classes.
Answers = dict[Callable[..., object], list[tuple[Any, object]]]
"""By function: what it is given, and what it answers, or which error it raises."""
Texts = dict[Callable[..., object], list[tuple[Any, str]]]
"""By function: what it is given, and a part of what it says then, or of why it refuses."""

DAY, LONG = 86_400_000, 2**63 - 1
A_TOPIC, PLAIN = parse_topic("a/b/c"), "/managed-ledgers/a/b/persistent/c"
N = SimpleNamespace


class Unreadable:
    """In the place of a transaction or reader: whatever is asked of it is damaged."""

    def __init__(self, error: StoreError) -> None:
        self.memo, self._error = dict[object, object](), error

    def __getattr__(self, name: str) -> Any:
        if name in ("txn", "store"):
            return self

        def asked(*of: object, **more: object) -> None:
            raise EntryCorrupt("it is damaged") if name == "read" else self._error

        return asked


UNREADABLE, NEWER = Unreadable(MetadataCorrupt("it is damaged")), Unreadable(Unsupported("it is newer"))


RECORD_HEAD = b"ZKLG" + bytes(12)
MADE_TOPIC = N(
    number_of_entries=8,
    ids=[7, 9],
    ranks=[0, 5, 8],
    last_confirmed=Position(9, 2),
    first_position=Position(7, -1),
    ledgers=[N(ledger_id=7, entries=5), N(ledger_id=9, entries=3)],
)
LONE = N(
    ids=[7],
    ranks=[0, 5],
    number_of_entries=5,
    place=lambda position: position.entry_id + 1,
    rank=lambda position: position.entry_id,
    at_rank=lambda rank: Position(7, rank),
    last_confirmed=Position(7, 4),
    ledgers=[N(ledger_id=7, entries=5)],
)
PLACES = N(
    ledger_ids=np.array([0, 0, 1]),
    entry_ids=np.array([0, 1, 0]),
    messages=np.zeros(3, int),
    closed_ms=np.zeros(3, int),
    sizes=np.zeros(3, int),
    where="x",
)


def called(call: Callable[..., object], given: Any) -> object:
    call = call.fget or call if isinstance(call, property) else call
    found = call(**given) if isinstance(given, dict) else call(*given)
    return found.tolist() if isinstance(found, np.ndarray) else list(found) if isinstance(found, Iterator) else found


def _answer(call: Callable[..., object], given: Any) -> object:
    try:
        return called(call, given)
    except (StoreError, ValueError) as error:
        return type(error)


def refusal(call: Callable[..., object], given: Any) -> str:
    try:
        return f"no refusal: {called(call, given)}"
    except (StoreError, ValueError) as error:
        return str(error)


def asking(answers: Answers, *, refused: Texts | None = None, said: Texts | None = None) -> Callable[[], None]:
    """Return a test of what functions answer, refuse and say."""

    def test() -> None:
        found = [
            (call, given, _answer(call, given), wanted) for call, rows in answers.items() for given, wanted in rows
        ]
        wrong: list[object] = [row for row in found if row[2] != row[3]]
        told = [(call, text, refusal(call, given)) for call, rows in (refused or {}).items() for given, text in rows]
        for call, rows in (said or {}).items():
            told += [(call, text, str(to_builtins(called(call, given), enc_hook=str))) for given, text in rows]
        wrong += [row for row in told if row[1] not in row[2]]
        assert not wrong, wrong

    return test
