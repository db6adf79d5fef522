"""``topics create``, ``create-partitioned-topic``, ``update-partitioned-topic`` and their kind, spelled as upstream spells them."""

from __future__ import annotations

from collections.abc import Sequence

from pulsar_admin.context import App
from pulsar_admin.store.errors import AlreadyExists, InvalidValue, NamespaceNotFound, Refused, StalePlan, TopicNotFound
from pulsar_admin.store.names import TopicName
from pulsar_admin.upstream import mirrored

_METADATA = {"metadata": "A property, KEY=VALUE; repeat it."}
_NOTHING = "Nothing, like pulsar-admin; the change and its undo command are on stderr."


def parse_pairs(pairs: Sequence[str]) -> dict[str, str]:
    """Return KEY=VALUE texts as a map (upstream ``CmdBase.parseListKeyValueMap``); raises InvalidValue."""
    found = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise InvalidValue(f"Invalid key value pair '{pair}', valid format like 'a=b'.", value=pair)
        found[key] = value
    return found


@mirrored(
    "topics create",
    changes=True,
    examples=["pulsar-admin topics create public/default/made -m owner=billing"],
    output=_NOTHING,
    errors=[AlreadyExists, NamespaceNotFound, InvalidValue, StalePlan],
    helps=_METADATA,
)
def create(app: App, topic: TopicName, metadata: tuple[str, ...]) -> None:
    """Create a topic without partitions.

    It has no ledger until a broker loads it.
    """
    app.change(app.session.api.create_topic(str(topic), properties=parse_pairs(metadata)))


@mirrored(
    "topics create-partitioned-topic",
    changes=True,
    examples=["pulsar-admin topics create-partitioned-topic public/default/made -p 4"],
    output=_NOTHING,
    errors=[AlreadyExists, NamespaceNotFound, InvalidValue, StalePlan],
    helps={**_METADATA, "partitions": "How many partitions."},
)
def create_partitioned(app: App, topic: TopicName, partitions: int, metadata: tuple[str, ...]) -> None:
    """Create a partitioned topic and its partitions."""
    app.change(app.session.api.create_topic(str(topic), partitions=partitions, properties=parse_pairs(metadata)))


@mirrored(
    "topics create-missed-partitions",
    changes=True,
    examples=["pulsar-admin topics create-missed-partitions acme/orders/parts"],
    output=_NOTHING,
    errors=[TopicNotFound, StalePlan],
)
def create_missed(app: App, topic: TopicName) -> None:
    """Create the missing partitions of a partitioned topic."""
    app.change(app.session.topic(topic).create_missed_partitions())


@mirrored(
    "topics update-partitioned-topic",
    changes=True,
    examples=["pulsar-admin topics update-partitioned-topic acme/orders/parts -p 8"],
    output=_NOTHING,
    errors=[InvalidValue, Refused, StalePlan],
    helps={
        "partitions": "How many partitions it is to have; never fewer than now.",
        "update_local_only": "Accepted and ignored: a store is of one cluster.",
        "force": "Accepted and ignored: partitions that are there already are kept in any case.",
    },
)
def update_partitioned(app: App, topic: TopicName, partitions: int, update_local_only: bool, force: bool) -> None:
    """Add partitions to a partitioned topic.

    The new ones get the subscriptions of the first partition, at their end. Keys map to other partitions from then on.
    """
    app.change(app.session.topic(topic).set_partitions(partitions))


@mirrored(
    "topics create-shadow-topic",
    changes=True,
    examples=["pulsar-admin topics create-shadow-topic public/default/shadow -s public/default/plain"],
    output=_NOTHING,
    errors=[AlreadyExists, NamespaceNotFound, TopicNotFound, StalePlan],
    helps={"source": "The topic whose entries it shows.", "properties": "A property, KEY=VALUE; repeat it."},
)
def create_shadow(app: App, topic: TopicName, source: str, properties: dict[str, str]) -> None:
    """Create a shadow topic: it shows the entries of another topic and has its own subscriptions."""
    app.change(app.session.api.create_shadow_topic(str(topic), source, properties=properties))


@mirrored(
    "topics get-shadow-source",
    examples=(),
    elsewhere=["pulsar-admin topics get-shadow-source public/default/shadow"],
    output="The topic's name, or `null`.",
    errors=[TopicNotFound],
)
def get_shadow_source(app: App, topic: TopicName) -> None:
    """Show the source topic of a shadow topic."""
    app.answer(app.session.topic(topic).shadow_source())
