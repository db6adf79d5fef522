"""A change that is stopped at any write leaves the store as it was, and the same command then finishes the job."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pulsar_admin.store.changes.cursors import CLEAR_BACKLOG, RESET, SKIP, CursorMove, cleared, plan_moves, skipped
from pulsar_admin.store.changes.plan import Plan, apply_plan, plan_undo
from pulsar_admin.store.changes.resets import Before, ExpiryRequest, expiry_move, reset_state
from pulsar_admin.store.changes.subscriptions import UNSUBSCRIBE, NewSubscription, plan_create, plan_unsubscribe
from pulsar_admin.store.db.environment import Txn, open_store
from pulsar_admin.store.delayed.expiry_plans import EXPIRE
from pulsar_admin.store.errors import UndoConflict
from pulsar_admin.store.model.cursors import read_cursor
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import read_topic
from pulsar_admin.store.names import EARLIEST, Position, parse_topic
from tests.commands.changing import rows_of
from tests.stores import copied, in_store, read_rows, read_store

NOW_MS = 1_795_260_000_000
DATABASES = ("tree", "base", "owners", "changes")
NAMES = (("public/default/plain", "crash-holes"), ("public/default/fresh", "crash-holes"))


class Stopped(Exception):
    """What ends the process, as far as the transaction can tell."""


def _moves(reader: EntryReader) -> list[CursorMove]:
    """Two cursors whose truth is in cursor ledgers: steps, first touches and owners are all written."""
    moves = []
    for name, subscription in NAMES:
        topic = read_topic(reader.txn, parse_topic(name))
        cursor = read_cursor(reader.txn, reader, topic, subscription)
        assert cursor.source == "cursor-ledger"
        moves.append(CursorMove(topic, cursor, skipped(topic, cursor.state, 5)))
    return moves


def _skip(reader: EntryReader) -> Plan:
    return plan_moves(reader, SKIP, _moves(reader), NOW_MS)


def _clear(reader: EntryReader) -> Plan:
    moves = [CursorMove(move.topic, move.cursor, cleared(move.topic, move.cursor.state)) for move in _moves(reader)]
    return plan_moves(reader, CLEAR_BACKLOG, moves, NOW_MS)


def _expire(reader: EntryReader) -> Plan:
    request = ExpiryRequest(NOW_MS, Before(NOW_MS))
    moves = [expiry_move(reader, move.topic, move.cursor, request) for move in _moves(reader)]
    return plan_moves(reader, EXPIRE, moves, NOW_MS)


def _reset(reader: EntryReader) -> Plan:
    moves = [
        CursorMove(
            move.topic,
            move.cursor,
            reset_state(reader, move.topic, move.cursor, Position(move.topic.ids[1], 3), exclude=False),
        )
        for move in _moves(reader)
    ]
    return plan_moves(reader, RESET, moves, NOW_MS)


def _create(reader: EntryReader) -> Plan:
    topics = [move.topic for move in _moves(reader)]
    return plan_create(reader, topics, NewSubscription("new", EARLIEST, False, {}), NOW_MS)


def _unsubscribe(reader: EntryReader) -> Plan:
    return plan_unsubscribe(reader, UNSUBSCRIBE, [(move.topic, move.cursor) for move in _moves(reader)], NOW_MS)


@pytest.mark.parametrize("make", [_skip, _clear, _expire, _reset, _create, _unsubscribe])
def test_stopped_at_every_write(
    make: Callable[[EntryReader], Plan], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = copied("small", "crashed", tmp_path)
    before = rows_of(path, *DATABASES)
    writes = 0
    while True:
        plan = read_store(path, make)
        try:
            with monkeypatch.context() as patch:
                _stop_after(patch, writes)
                _apply(path, plan)
        except Stopped:
            assert rows_of(path, *DATABASES) == before
            writes += 1
            continue
        break
    assert writes >= 5, "at least two steps, two first touches and the audit record are written"
    _check_undo(path, before["tree"], before["owners"])


def _stop_after(patch: pytest.MonkeyPatch, writes: int) -> None:
    """Let WRITES puts and deletes pass; the next one ends the process."""
    left = [writes]
    for name in ("put", "delete"):
        original = getattr(Txn, name)

        def stopping(*arguments: object, original: Callable[..., object] = original) -> object:
            if not left[0]:
                raise Stopped
            left[0] -= 1
            return original(*arguments)

        patch.setattr(Txn, name, stopping)


def _apply(path: Path, plan: Plan) -> None:
    in_store(path, lambda store: apply_plan(store, plan, NOW_MS))


def _check_undo(path: Path, tree: dict[bytes, bytes], owners: dict[bytes, bytes]) -> None:
    undo = read_rows(path, lambda txn: plan_undo(txn, 1))
    _apply(path, undo)
    assert rows_of(path) == {"tree": tree, "owners": owners}
    with open_store(path) as store, store.read() as txn, pytest.raises(UndoConflict, match="is undone already"):
        plan_undo(txn, 1)
