"""``topics skip``, ``clear-backlog``, ``create-subscription`` and ``unsubscribe``."""

from __future__ import annotations

import click

from pulsar_admin.context import App
from pulsar_admin.numbers import whole
from pulsar_admin.options import POSITION, TopicSelection, command, pass_app, subscription_option, topics_argument
from pulsar_admin.store.errors import (
    AlreadyExists,
    EntryNotFound,
    InvalidValue,
    LedgerNotFound,
    Refused,
    StalePlan,
    SubscriptionNotFound,
    TopicNotFound,
)
from pulsar_admin.store.names import Position

_MOVED = "The change: position before and after, what is skipped, what a broker may then delete, and its undo command."
_FORCE = click.option("--force", is_flag=True, help="Also move the cursors of compaction and deduplication.")


@command(
    "skip",
    changes=True,
    mirrors=True,
    examples=["pulsar-admin topics skip public/default/plain -s half -n 7"],
    output=_MOVED,
    errors=[TopicNotFound, SubscriptionNotFound, Refused, StalePlan],
)
@topics_argument
@subscription_option
@click.option("-n", "--count", type=whole(), required=True, help="How many entries; a batch is one.")
@_FORCE
@pass_app
def skip(app: App, selection: TopicSelection, subscription: str, count: int, force: bool) -> None:
    """Skip the next entries of a subscription.

    Entries that are already acknowledged do not count, a batch counts as one, and skipping stops after the last entry.
    Several topics are one change; each skips the same number.
    """
    app.change(app.session.cursors(selection, subscription).skip(count, force=force))


@command(
    "clear-backlog",
    changes=True,
    mirrors=True,
    examples=["pulsar-admin topics clear-backlog public/default/plain -s holes"],
    output=_MOVED,
    errors=[TopicNotFound, SubscriptionNotFound, Refused, StalePlan],
)
@topics_argument
@subscription_option
@_FORCE
@pass_app
def clear_backlog(app: App, selection: TopicSelection, subscription: str, force: bool) -> None:
    """Skip the whole backlog of a subscription.

    Several topics or partitions are one change. The subscription keeps its properties.
    """
    app.change(app.session.cursors(selection, subscription).clear(force=force))


def _pairs(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for text in values:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise InvalidValue(
                f"{param.get_error_hint(ctx)}: {text!r} is not a KEY=VALUE", hint="for example -p owner=billing"
            )
        pairs[key] = value
    return pairs


@command(
    "create-subscription",
    changes=True,
    mirrors=True,
    examples=[
        "pulsar-admin topics create-subscription public/default/plain -s audit -m earliest",
        "pulsar-admin topics create-subscription acme/orders/parts -s audit -p owner=billing --dry-run",
    ],
    output="The change: where it stands, its backlog, and the undo command.",
    errors=[TopicNotFound, LedgerNotFound, EntryNotFound, AlreadyExists, Refused, StalePlan],
)
@topics_argument
@subscription_option
@click.option("-m", "--messageId", "start", type=POSITION, default="latest", show_default=True, help="Where it starts.")
@click.option("-r", "--replicated", is_flag=True, help="Clusters share its position.")
@click.option("-p", "--property", "properties", multiple=True, callback=_pairs, metavar="KEY=VALUE", help="Repeat it.")
@pass_app
def create_subscription(
    app: App,
    selection: TopicSelection,
    subscription: str,
    start: Position,
    replicated: bool,
    properties: dict[str, str],
) -> None:
    """Create a subscription at a position.

    For a partitioned topic it is created on all partitions, for several topics on all or none.
    """
    made = app.session.cursors(selection, subscription)
    app.change(made.create(start=start, replicated=replicated, properties=properties))


@command(
    "unsubscribe",
    changes=True,
    mirrors=True,
    examples=["pulsar-admin topics unsubscribe public/default/plain -s never"],
    output="The change: where it stood, its backlog, what a broker may then delete, and the undo command.",
    errors=[TopicNotFound, SubscriptionNotFound, Refused, StalePlan],
)
@topics_argument
@subscription_option
@click.option("-f", "--force", is_flag=True, help="Also remove the broker's own cursors, and damaged ones.")
@pass_app
def unsubscribe(app: App, selection: TopicSelection, subscription: str, force: bool) -> None:
    """Remove a subscription.

    For a partitioned topic it is removed from all partitions, for several topics from all or none. Undo restores it as
    it was.
    """
    app.change(app.session.cursors(selection, subscription).delete(force=force))
