"""``managed-ledger``: the commands of ``pulsar-managed-ledger-admin`` (4.0.8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pulsar_admin.context import App
from pulsar_admin.options import Command
from pulsar_admin.upstream import mirrored
from store.changes.managed_ledgers import parse_managed_ledger, plan_forget_ledgers, plan_mark_delete
from store.codec.cursor import cursor_info_text
from store.codec.managedledger import managed_ledger_text
from store.db.environment import Txn
from store.db.tree import read_node
from store.errors import InvalidValue, LedgerNotFound, StalePlan, StoreError, SubscriptionNotFound, TopicNotFound
from store.model.cursors import read_cursor
from store.model.topics import read_topic
from store.names import TopicName, parse_position

_HELPS = {
    "zk_server": "Of no effect: --store names the data.",
    "managed_ledger_path": "The topic as tenant/namespace/persistent/topic.",
    "ledger_ids": "Ledger ids, with commas between.",
    "cursor_name": "The subscription, as its node is named.",
    "cursor_mark_delete": "The position, as LEDGER:ENTRY.",
}


def _declared(
    name: str, example: str, errors: list[type[StoreError]], *, changes: bool = False
) -> Callable[[Callable[..., Any]], Command]:
    """Declare the command NAME of upstream's script; its ZooKeeper need not be given."""

    def decorate(function: Callable[..., Any]) -> Command:
        made = mirrored(
            f"managed-ledger {name}",
            examples=[f"pulsar-admin managed-ledger {name} {example}"],
            helps=_HELPS,
            output="The message in protobuf's text format, as upstream's script prints it.",
            errors=errors,
            changes=changes,
        )(function)
        for param in made.params:
            param.required = param.required and param.name != "zk_server"
        return made

    return decorate


def _given(value: str | None, option: str) -> str:
    if not value:
        raise InvalidValue(f"{option} is missing", hint="see: pulsar-admin managed-ledger --help")
    return value


@_declared("print-managed-ledger", "-mlp public/default/persistent/plain", [TopicNotFound, InvalidValue])
def print_managed_ledger(app: App, managed_ledger_path: str, **_ignored: object) -> None:
    """Show the stored ManagedLedgerInfo of a topic."""
    name = parse_managed_ledger(managed_ledger_path)
    with app.session.read() as txn:
        app.answer(_topic_text(txn, name))


@_declared("print-cursor", "-mlp public/default/persistent/plain -cn half", [TopicNotFound, SubscriptionNotFound])
def print_cursor(app: App, managed_ledger_path: str, cursor_name: str | None, **_ignored: object) -> None:
    """Show the stored ManagedCursorInfo of a subscription.

    Where it names a cursor ledger, that has the position: see topics stats-internal.
    """
    name, cursor = parse_managed_ledger(managed_ledger_path), _given(cursor_name, "--cursorName")
    with app.session.reader() as reader:
        read_cursor(reader.txn, reader, read_topic(reader.txn, name), cursor)
        app.answer(_cursor_text(reader.txn, name, cursor))


@_declared(
    "delete-managed-ledger-ids",
    "-mlp public/default/persistent/plain -lid 9,18",
    [TopicNotFound, LedgerNotFound, StalePlan],
    changes=True,
)
def delete_managed_ledger_ids(app: App, managed_ledger_path: str, ledger_ids: str | None, **_ignored: object) -> None:
    """Take ledgers out of the list of a topic.

    Their entries stay with BookKeeper, and nothing references them: a broker's cursors hop over them.
    """
    name, given = parse_managed_ledger(managed_ledger_path), _given(ledger_ids, "--ledgerIds").split(",")
    if not all(text.strip().isascii() and text.strip().isdigit() for text in given):
        raise InvalidValue(f"invalid ledger ids {ledger_ids!r}", hint="write ids with commas between: 3,7")
    app.change(app.session.plan_rows(plan_forget_ledgers, name, {int(text) for text in given}))
    _print_updated(app, f"{name.path} with value\n", lambda txn: _topic_text(txn, name))


@_declared(
    "update-mark-delete-cursor",
    "-mlp public/default/persistent/plain -cn half -cm 9:3",
    [TopicNotFound, SubscriptionNotFound, StalePlan],
    changes=True,
)
def update_mark_delete_cursor(
    app: App, managed_ledger_path: str, cursor_name: str | None, cursor_mark_delete: str | None, **_ignored: object
) -> None:
    """Set the mark-delete position of a subscription.

    Upstream's script has no effect where the position is in a cursor ledger. Here the whole state goes into the metadata then.
    """
    name, cursor = parse_managed_ledger(managed_ledger_path), _given(cursor_name, "--cursorName")
    position = parse_position(_given(cursor_mark_delete, "--cursorMarkDelete"))
    app.change(app.session.plan(plan_mark_delete, name, cursor, position))
    _print_updated(app, f"{name.cursor_path(cursor)} with value \n", lambda txn: _cursor_text(txn, name, cursor))


def _print_updated(app: App, head: str, text_of: Callable[[Txn], str]) -> None:
    """Write what upstream's script prints behind a change; with ``-o`` the report stands there."""
    if app.settings.output is None:
        with app.session.read() as txn:
            app.answer(f"Updated {head}{text_of(txn)}")


def _topic_text(txn: Txn, name: TopicName) -> str:
    read_topic(txn, name)
    return managed_ledger_text(read_node(txn, name.path).value, name.path)


def _cursor_text(txn: Txn, name: TopicName, cursor: str) -> str:
    path = name.cursor_path(cursor)
    return cursor_info_text(read_node(txn, path).value, path)
