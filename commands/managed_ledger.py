"""``managed-ledger``: the commands of ``pulsar-managed-ledger-admin`` (4.0.8)."""

from collections.abc import Callable
from typing import Any

from pulsar_admin.context import App, Printed, Shown
from pulsar_admin.options import Command, flag
from pulsar_admin.store.errors import (
    InvalidValue,
    LedgerNotFound,
    Refused,
    StalePlan,
    StoreError,
    SubscriptionNotFound,
    TopicNotFound,
)
from pulsar_admin.store.names import parse_managed_ledger, parse_position
from pulsar_admin.upstream import mirrored

_HELPS = {
    "zk_server": "Has no effect: --store names the data.",
    "managed_ledger_path": "The topic as tenant/namespace/persistent/topic.",
    "ledger_ids": "Ledger ids, separated by commas.",
    "cursor_name": "The subscription, as its node is named.",
    "cursor_mark_delete": "The position, as LEDGER:ENTRY.",
}


def _declared(
    name: str, example: str, errors: list[type[StoreError]], *, changes: bool = False
) -> Callable[[Callable[..., Any]], Command]:
    """Declare the command ``name`` of upstream's script, with its ZooKeeper option made optional."""

    def decorate(function: Callable[..., Any]) -> Command:
        made = mirrored(
            f"managed-ledger {name}",
            example,
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
def print_managed_ledger(app: App, managed_ledger_path: str, **_ignored: object) -> Shown:
    """Show the stored ManagedLedgerInfo of a topic."""
    return Printed(app.topic(parse_managed_ledger(managed_ledger_path)).managed_ledger_text())


@_declared("print-cursor", "-mlp public/default/persistent/plain -cn half", [TopicNotFound, SubscriptionNotFound])
def print_cursor(app: App, managed_ledger_path: str, cursor_name: str | None, **_ignored: object) -> Shown:
    """Show the stored ManagedCursorInfo of a subscription.

    If it names a cursor ledger, the position is there: see `topics stats-internal`.
    """
    name, cursor = parse_managed_ledger(managed_ledger_path), _given(cursor_name, "--cursorName")
    return Printed(app.topic(name).cursor(cursor).cursor_info_text())


@_declared(
    "delete-managed-ledger-ids",
    "-mlp public/default/persistent/plain -lid 9,18",
    [TopicNotFound, LedgerNotFound, StalePlan],
    changes=True,
)
def delete_managed_ledger_ids(app: App, managed_ledger_path: str, ledger_ids: str | None, **_ignored: object) -> Shown:
    """Take ledgers out of the list of a topic.

    BookKeeper keeps their entries, and nothing references them: a broker's cursors skip them.
    """
    name, given = parse_managed_ledger(managed_ledger_path), _given(ledger_ids, "--ledgerIds").split(",")
    if not all(text.strip().isascii() and text.strip().isdigit() for text in given):
        raise InvalidValue(f"invalid ledger ids {ledger_ids!r}", hint="separate ids by commas: 3,7")
    topic = app.topic(name)
    app.change(topic.forget_ledgers(*{int(text) for text in given}))
    return _updated(app, f"{name.path} with value\n", topic.managed_ledger_text)


@_declared(
    "update-mark-delete-cursor",
    "-mlp public/default/persistent/plain -cn half -cm 9:3",
    [TopicNotFound, SubscriptionNotFound, Refused, StalePlan],
    changes=True,
)
@flag("--force", help="Also move cursors that a broker keeps for itself, such as __compaction.")
def update_mark_delete_cursor(
    app: App,
    managed_ledger_path: str,
    cursor_name: str | None,
    cursor_mark_delete: str | None,
    force: bool,
    **_ignored: object,
) -> Shown:
    """Set the mark-delete position of a subscription.

    Upstream's script has no effect where the position is in a cursor ledger. Here the whole state goes into the metadata then.
    A broker's own cursors (__compaction, pulsar.dedup, those of transaction logs) need --force.
    """
    name, cursor = parse_managed_ledger(managed_ledger_path), _given(cursor_name, "--cursorName")
    position = parse_position(_given(cursor_mark_delete, "--cursorMarkDelete"))
    subscription = app.topic(name).cursor(cursor)
    app.change(subscription.set_mark_delete(position, force=force))
    return _updated(app, f"{name.cursor_path(cursor)} with value \n", subscription.cursor_info_text)


def _updated(app: App, head: str, text: Callable[[], str]) -> Shown:
    """Return the text that upstream's script prints after a change; with ``-o`` the report is printed instead."""
    try:
        value = text()
    except StoreError as error:  # to fail now would say that nothing changed
        app.warn(f"the change is made, but the new value cannot be read: {error.message}")
        value = ""
    return Printed(f"Updated {head}{value}", of_change=True)
