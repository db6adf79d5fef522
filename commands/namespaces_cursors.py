"""``namespaces clear-backlog`` and ``namespaces unsubscribe``: the cursors of all topics of a namespace, as one change."""

from __future__ import annotations

import re
from collections.abc import Iterator
from zlib import crc32

import click

from commands.topics.moving import read_cursors
from pulsar_admin.context import App
from pulsar_admin.options import NAMESPACE, command, current_app, pass_app
from store.changes.cursors import CursorMove, cleared, plan_moves
from store.changes.subscriptions import plan_unsubscribe
from store.errors import InvalidValue, NamespaceNotFound, Refused, StalePlan, SubscriptionNotFound
from store.model.cursors import COMPACTION_CURSOR, DEDUP_CURSOR, Cursor, iter_cursor_names
from store.model.ledgers import EntryReader, open_reader
from store.model.topics import Topic, check_namespace, iter_topics, read_topic
from store.names import NamespaceName, TopicName, shell_word

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
    "-b", "--bundle", callback=_parse_bundle, metavar="0xLOW_0xHIGH", help="Only topics of this bundle."
)


def in_bundle(topic: TopicName, bundle: Bundle) -> bool:
    """Whether TOPIC hashes into BUNDLE (upstream NamespaceBundleFactory: CRC-32 of the full name; the last bundle is closed)."""
    low, high = bundle
    place = crc32(str(topic).encode())
    return low <= place and (place < high or high == _LAST_HASH)


def _iter_cursors(
    reader: EntryReader, namespace: NamespaceName, bundle: Bundle, subscription: str | None
) -> Iterator[tuple[Topic, Cursor]]:
    """Yield the cursors meant, report what cannot be read; raises NamespaceNotFound, and SubscriptionNotFound when there is none."""
    check_namespace(reader.txn, namespace)
    found = False
    for name in iter_topics(reader.txn, namespace):
        if name.is_system or not in_bundle(name, bundle):
            continue
        names = sorted(iter_cursor_names(reader.txn, name))
        wanted = [one for one in names if one == subscription or (subscription is None and not _is_own(one))]
        for topic in current_app().each([name], lambda name: read_topic(reader.txn, name), alone=False):
            for cursor in read_cursors(reader, topic, wanted, named=False):
                found = True
                yield topic, cursor
    if not found:
        what = "subscription" if subscription is None else f"subscription {subscription!r}"
        raise SubscriptionNotFound(
            f"no topic of {namespace} has a {what}",
            hint=f"see: pulsar-admin topics subscriptions --pattern {shell_word(f'{namespace}/*')}",
            namespace=str(namespace),
            subscription=subscription,
        )


def _is_own(cursor: str) -> bool:
    """Whether the broker keeps CURSOR for itself."""
    return cursor in (COMPACTION_CURSOR, DEDUP_CURSOR)


def _check_own(subscription: str | None) -> None:
    if subscription is not None and _is_own(subscription):
        raise Refused(
            f"{subscription} is the broker's own cursor",
            hint="name the topics: pulsar-admin topics … --force",
            subscription=subscription,
        )


@command(
    "clear-backlog",
    changes=True,
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
@click.option("-force", "--force", is_flag=True, help="For scripts: nothing is asked, the change can be undone.")
@pass_app
def clear_backlog(app: App, namespace: NamespaceName, subscription: str | None, bundle: Bundle, force: bool) -> None:
    """Skip the whole backlog of a namespace's subscriptions.

    The cursors of compaction and deduplication and the system topics stay.
    """
    _check_own(subscription)
    with open_reader(app.store) as reader:
        cursors = _iter_cursors(reader, namespace, bundle, subscription)
        moves = [CursorMove(topic, cursor, cleared(topic, cursor.state)) for topic, cursor in cursors]
        plan = plan_moves(reader, "namespaces clear-backlog", moves, app.now_ms)
    app.change(plan)


@command(
    "unsubscribe",
    changes=True,
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
    _check_own(subscription)
    with open_reader(app.store) as reader:
        cursors = list(_iter_cursors(reader, namespace, bundle, subscription))
        plan = plan_unsubscribe(reader, "namespaces unsubscribe", cursors, app.now_ms)
    app.change(plan)
