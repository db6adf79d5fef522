"""``namespaces clear-backlog`` and ``namespaces unsubscribe``: the cursors of all topics of a namespace, as one change."""

from __future__ import annotations

import re
from collections.abc import Iterator
from zlib import crc32

import click

from pulsar_admin.context import App
from pulsar_admin.options import NAMESPACE, command, pass_app
from store.changes.cursors import CursorMove, cleared, plan_moves
from store.changes.subscriptions import plan_unsubscribe
from store.errors import InvalidValue, NamespaceNotFound, Refused, StalePlan, SubscriptionNotFound
from store.model.cursors import Cursor, iter_namespace_cursors
from store.model.reader import EntryReader
from store.model.topics import Topic
from store.names import NamespaceName, TopicName

_LAST_HASH = 0xFFFFFFFF
_BUNDLE = re.compile(r"0x([0-9a-fA-F]{1,8})_0x([0-9a-fA-F]{1,8})")

Bundle = tuple[int, int]


def _parse_bundle(ctx: click.Context, param: click.Parameter, text: str | None) -> Bundle:
    if text is None:
        return 0, _LAST_HASH
    match = _BUNDLE.fullmatch(text)
    low, high = (int(part, 16) for part in match.groups()) if match else (0, 0)
    if low >= high:
        raise InvalidValue(
            f"{param.get_error_hint(ctx)}: invalid bundle {text!r}",
            hint="write it as 0x00000000_0x40000000",
            value=text,
        )
    return low, high


_BUNDLE_OPTION = click.option(
    "-b", "--bundle", callback=_parse_bundle, metavar="0xLOW_0xHIGH", help="Only topics in this bundle."
)


def in_bundle(topic: TopicName, bundle: Bundle) -> bool:
    """Whether TOPIC hashes into BUNDLE (upstream NamespaceBundleFactory: CRC-32 of the full name; the last bundle is closed)."""
    low, high = bundle
    place = crc32(str(topic).encode())
    return low <= place and (place < high or high == _LAST_HASH)


def _cursors(
    app: App, reader: EntryReader, namespace: NamespaceName, bundle: Bundle, subscription: str | None
) -> Iterator[tuple[Topic, Cursor]]:
    """Yield the cursors meant, report what cannot be read."""
    found = iter_namespace_cursors(reader, namespace, subscription, app.fail, lambda name: in_bundle(name, bundle))
    return app.each(found, lambda one: one, alone=False)


@command(
    "clear-backlog",
    changes=True,
    mirrors=True,
    examples=[
        "pulsar-admin namespaces clear-backlog public/default --dry-run",
        "pulsar-admin namespaces clear-backlog public/default -s expire-me",
    ],
    output="One change: before and after of every subscription, what is skipped, and the undo command.",
    errors=[NamespaceNotFound, SubscriptionNotFound, Refused, StalePlan],
)
@click.argument("namespace", type=NAMESPACE)
@click.option("-s", "--sub", "subscription", help="Only this subscription.")
@_BUNDLE_OPTION
@click.option(
    "-force",
    "--force",
    is_flag=True,
    help="Accepted for scripts: no question is asked, because the change can be undone.",
)
@pass_app
def clear_backlog(app: App, namespace: NamespaceName, subscription: str | None, bundle: Bundle, force: bool) -> None:
    """Skip the whole backlog of a namespace's subscriptions.

    System topics and the cursors of compaction and deduplication are not changed.
    """
    with app.session.reader() as reader:
        cursors = _cursors(app, reader, namespace, bundle, subscription)
        moves = [CursorMove(topic, cursor, cleared(topic, cursor.state)) for topic, cursor in cursors]
        plan = plan_moves(reader, "namespaces clear-backlog", moves, app.now_ms)
    app.change(plan)


@command(
    "unsubscribe",
    changes=True,
    mirrors=True,
    examples=["pulsar-admin namespaces unsubscribe public/default -s expire-me"],
    output="One change: where the subscription stood in every topic, its backlog, and the undo command.",
    errors=[NamespaceNotFound, SubscriptionNotFound, Refused, StalePlan],
)
@click.argument("namespace", type=NAMESPACE)
@click.option("-s", "--sub", "subscription", required=True, help="The subscription.")
@_BUNDLE_OPTION
@pass_app
def unsubscribe(app: App, namespace: NamespaceName, subscription: str, bundle: Bundle) -> None:
    """Remove a subscription from every topic of a namespace that has it.

    Undo brings all of them back as they were.
    """
    with app.session.reader() as reader:
        cursors = list(_cursors(app, reader, namespace, bundle, subscription))
        plan = plan_unsubscribe(reader, "namespaces unsubscribe", cursors, app.now_ms)
    app.change(plan)
