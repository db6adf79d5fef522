"""``scalable-topics``: the scalable topics of Pulsar 5.0, with the command names of its pulsar-admin."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from pulsar_admin.context import App, Lines, Printed, Result, Shown
from pulsar_admin.options import Command
from pulsar_admin.store import errors
from pulsar_admin.store.codec.java import java_text
from pulsar_admin.store.names import NamespaceName, TopicName, TopicSelection, parse_scalable
from pulsar_admin.upstream import mirrored, parse_pairs

if TYPE_CHECKING:
    from pulsar_admin.store.model.reader import EntryReader

_READS = [errors.TopicNotFound, errors.MetadataCorrupt, errors.InvalidValue]
_CHANGES = [errors.TopicNotFound, errors.Refused, errors.InvalidValue, errors.StalePlan]
_SAID = "The output of a live `pulsar-admin`; the change and its undo command are on stderr."


def _declared(
    path: str, example: str, **more: Any
) -> Callable[[Callable[..., Any]], Command]:  # Any: as ``mirrored`` takes them
    """Declare a command whose example needs a store of Pulsar 5.0 and so cannot run on the demo store."""
    return mirrored(path, elsewhere=[example], texts=("topic",), **more)


_changing = partial(_declared, changes=True, output=_SAID)


@_declared(
    "scalable-topics list",
    "acme/orders -p owner=billing",
    output="Names, one per line.",
    errors=[errors.NamespaceNotFound, errors.MetadataCorrupt],
    helps={"property": "Only topics with this property, KEY=VALUE; may be repeated."},
)
def list_topics(app: App, namespace: NamespaceName, property: tuple[str, ...]) -> Shown:
    """List the scalable topics of a namespace."""
    return Lines(app.api.scalable_topics(str(namespace), properties=parse_pairs(property)), "TOPIC")


@_declared(
    "scalable-topics get-metadata",
    "acme/orders/lines",
    output="The topic's epoch, its segments with hashes, state, parents and children, and its properties, with upstream's keys.",
    errors=_READS,
)
def get_metadata(app: App, topic: str) -> Shown:
    """Show the segments of a scalable topic as they are stored."""
    from pulsar_admin.store.model.scalable import read_scalable
    from pulsar_admin.store.reports.scalable import metadata_json

    return Printed(metadata_json(app.session.ask(read_scalable, parse_scalable(topic))))


@_declared(
    "scalable-topics stats",
    "acme/orders/lines",
    output="The segments, and the subscriptions with their backlog on each, with upstream's keys. What only a running controller knows is "
    "left out or 0: brokers, rates, its policy and last operation, consumers that are connected.",
    errors=_READS,
)
def stats(app: App, topic: str) -> Result:
    """Show the sizes and backlogs of a scalable topic over all of its segments."""
    from pulsar_admin.store.reports.scalable import read_scalable_stats

    return _read(app, read_scalable_stats, parse_scalable(topic))


@_declared(
    "scalable-topics segment-stats",
    "segment://acme/orders/lines/0000-7fff-3",
    output="Its size, and the backlog of its subscriptions, with upstream's keys; rates, consumers and producers are 0 or empty.",
    errors=_READS,
)
def segment_stats(app: App, segment: TopicName) -> Result:
    """Show the size and the backlogs of one segment of a scalable topic."""
    from pulsar_admin.store.reports.scalable import read_segment_stats

    return _read(app, read_segment_stats, segment)


def _read(
    app: App,
    read: Callable[[EntryReader, TopicName, list[errors.StoreError]], dict[str, Any]],  # Any: JSON
    name: TopicName,
) -> Result:
    problems: list[errors.StoreError] = []
    with app.session.reader() as reader:
        answer = read(reader, name, problems)
    app.session.partial(problems)
    return Result(answer)


@_changing(
    "scalable-topics create",
    "acme/orders/lines -s 4 -p owner=billing",
    errors=[errors.AlreadyExists, errors.NamespaceNotFound, errors.InvalidValue, errors.StalePlan],
    helps={
        "segments": "How many segments, which share the hashes.",
        "property": "A property, KEY=VALUE; may be repeated.",
    },
)
def create(app: App, topic: str, segments: int, property: tuple[str, ...]) -> Shown:
    """Create a scalable topic.

    Its segments have no ledgers until a broker loads them.
    """
    app.change(app.api.create_scalable_topic(topic, segments=segments, properties=parse_pairs(property)))
    return Printed(f"Created scalable topic {topic} with {segments} segment(s)", of_change=True)


@_changing(
    "scalable-topics delete",
    "acme/orders/lines --dry-run",
    errors=_CHANGES,
    helps={"force": "Delete even what cannot be read. (Offline, no consumer is connected.)"},
)
def delete(app: App, topic: str, force: bool) -> Shown:
    """Delete a scalable topic with its segments, subscriptions, ledgers and schema."""
    app.change(app.api.delete_scalable_topic(topic, force=force))
    return Printed(f"Deleted scalable topic {topic}", of_change=True)


@_changing(
    "scalable-topics seek",
    "acme/orders/lines -s audit -t 1h --dry-run",
    errors=[*_CHANGES, errors.SubscriptionNotFound],
    helps={
        "subscription": "The subscription.",
        "time": "To the first message of each segment that is not older than this.",
    },
)
def seek(app: App, topic: str, subscription: str, time: int) -> Shown:
    """Reset a subscription to a time, on every segment: exact, as `topics reset-cursor` is."""
    at_ms = app.clock_ms - time
    cursors = app.cursors(TopicSelection((parse_scalable(topic),)), subscription)
    app.change(cursors.reset(time=at_ms))
    said = f"Reset subscription {subscription} on topic {topic} to timestamp {at_ms} ({time}ms ago)"
    return Printed(said, of_change=True)


@_changing(
    "scalable-topics clear-backlog",
    "acme/orders/lines -s audit --dry-run",
    errors=[*_CHANGES, errors.SubscriptionNotFound],
    helps={"subscription": "The subscription."},
)
def clear_backlog(app: App, topic: str, subscription: str) -> Shown:
    """Skip the whole backlog of a subscription, on every segment."""
    app.change(app.cursors(TopicSelection((parse_scalable(topic),)), subscription).clear())
    return Printed(f"Cleared backlog of subscription {subscription} on topic {topic}", of_change=True)


@_declared("scalable-topics permissions", "acme/orders/lines", errors=[*_READS, errors.NamespaceNotFound])
def permissions(app: App, topic: str) -> Shown:
    """Show the permissions of roles on a scalable topic: its own, and those of its namespace."""
    return Printed(app.topic(parse_scalable(topic)).permissions(), as_map=java_text)


@_changing(
    "scalable-topics grant-permission",
    "acme/orders/lines -r app -a consume --dry-run",
    errors=_CHANGES,
    helps={"role": "The role.", "actions": "produce, consume, sources, sinks, functions, packages."},
)
def grant_permission(app: App, topic: str, role: str, actions: tuple[str, ...]) -> Shown:
    """Grant a role permissions on a scalable topic, replacing those it had there."""
    app.change(app.topic(parse_scalable(topic)).grant_permission(role, actions))
    return Printed(f"Granted {','.join(actions)} to role {role} on topic {topic}", of_change=True)


@_changing(
    "scalable-topics revoke-permission",
    "acme/orders/lines -r app --dry-run",
    errors=_CHANGES,
    helps={"role": "The role."},
)
def revoke_permission(app: App, topic: str, role: str) -> Shown:
    """Revoke a role's permissions on a scalable topic; those on the namespace are kept."""
    app.change(app.topic(parse_scalable(topic)).revoke_permission(role))
    return Printed(f"Revoked the permissions of role {role} on topic {topic}", of_change=True)
