"""Upstream's ``topics bundle-range``, ``compact``, ``compaction-status`` and ``offload-status``."""

from pulsar_admin.commands.compaction.changing import compact_topics
from pulsar_admin.context import App, Printed, Shown
from pulsar_admin.options import TopicSelection
from pulsar_admin.store.compaction.forms import LEGACY, RULE_4_0
from pulsar_admin.store.errors import EntryCorrupt, MetadataCorrupt, StalePlan, TopicNotFound
from pulsar_admin.store.model.topics import read_topic
from pulsar_admin.store.names import TopicName
from pulsar_admin.upstream import mirrored


@mirrored(
    "topics bundle-range",
    "public/default/plain",
    output="`0x40000000_0x80000000`; the topic need not exist.",
    errors=[MetadataCorrupt],
)
def bundle(app: App, topic: TopicName) -> Shown:
    """Show the bundle of its namespace that a topic's name hashes into."""
    return Printed(app.namespace(topic.namespace).bundle_range(str(topic)))


@mirrored(
    "topics compact",
    "acme/orders/compacted-single",
    changes=True,
    output="The sentence of pulsar-admin; the compaction is done when the command ends, and its report is on stderr.",
    errors=[TopicNotFound, MetadataCorrupt, EntryCorrupt, StalePlan],
)
def compact(app: App, topic: TopicName) -> Shown:
    """Compact a topic by the rules of 4.0, as a broker of that version would.

    ``compaction run`` has options for other rules and formats.
    """
    with app.session.read() as txn:
        read_topic(txn, topic)
    compact_topics(app, TopicSelection((topic,)), "topics compact", form=LEGACY, rule=RULE_4_0, by_key=True)
    return Printed(f"Topic compaction requested for {topic}", of_change=True)


@mirrored(
    "topics compaction-status",
    "public/default/plain",
    output="The sentence of a broker that has just started: no compaction runs in a store.",
    errors=[TopicNotFound],
    helps={"wait_complete": "Accepted: there is nothing to wait for."},
)
def compaction_status(app: App, topic: TopicName, wait_complete: bool) -> Shown:
    """Show whether a compaction of a topic is running.

    ``compaction status`` shows how far it is compacted.
    """
    with app.session.read() as txn:
        name = read_topic(txn, topic).name
    return Printed(f"Compaction has not been run for {name} since broker startup")


@mirrored(
    "topics offload-status",
    "public/default/plain",
    output="The sentence of a broker that has just started: nothing is offloaded in a store.",
    errors=[TopicNotFound],
    helps={"wait_complete": "Accepted: there is nothing to wait for."},
)
def offload_status(app: App, topic: TopicName, wait_complete: bool) -> Shown:
    """Show whether ledgers of a topic are being offloaded.

    ``topics stats-internal`` shows which ledgers are offloaded.
    """
    with app.session.read() as txn:
        name = read_topic(txn, topic).name
    return Printed(f"Offload has not been run for {name} since broker startup")
