"""``compaction run``, ``upgrade`` and ``attach``: giving topics another compacted ledger."""

from typing import Any

import click

from pulsar_admin.commands.topics.answers import selected
from pulsar_admin.context import App
from pulsar_admin.numbers import whole
from pulsar_admin.options import TOPIC, TopicSelection, choice_option, command, flag, topics_argument
from pulsar_admin.store.compaction.forms import FORMATS, RULES
from pulsar_admin.store.errors import EntryCorrupt, LedgerNotFound, MetadataCorrupt, Refused, StalePlan, TopicNotFound
from pulsar_admin.store.names import TopicName

KEEP, BY_KEY = "keep", "by-key"


@command(
    "compaction run",
    changes=True,
    uses=("spark",),
    examples=["acme/orders/compacted-single --dry-run", "acme/orders/compacted-single --format legacy"],
    output="The change: horizon and compacted ledger before and after, keys, messages by reason, bytes, and the"
    " undo command.",
    errors=[TopicNotFound, MetadataCorrupt, EntryCorrupt, StalePlan],
)
@topics_argument
@flag("--retain-null-key", help="Keep messages without a key; the default drops them.")
@choice_option(
    "--format",
    "form",
    words=FORMATS,
    help="Format of batches. indexed: as Pulsar 4.2, with the kept indexes in the metadata and placeholders for"
    " the rest. legacy: as 4.0, placeholders only. reduced: indexes only, which clients of 4.0 cannot read.",
)
@choice_option(
    "--rule",
    words=RULES,
    help="Null values outside batches. 4.2: flagged as null, or empty. 4.0: with an uncompressed size of 0.",
)
@choice_option(
    "--encrypted",
    words=[KEEP, BY_KEY],
    help="Encrypted batches: keep them all, or treat each as one message with the entry's key, as 4.0.8 does.",
)
@flag("--from-start", help="Read the topic from its first entry instead of the existing compacted ledger.")
@flag("--skip-damaged", help="Leave out entries that cannot be read; older messages of their keys may reappear.")
def run(app: App, selection: TopicSelection, encrypted: str, **job: Any) -> None:  # Any: of CompactionJob
    """Compact topics: keep the latest message of every key in a new compacted ledger.

    Null values delete their keys. Batches that are encrypted or cannot be decoded are kept whole; markers and messages
    of aborted transactions are dropped. Brokers and clients of 4.0 and 4.2 read the default format;
    docs/howto/compaction.md compares the three formats.
    """
    compact_topics(app, selection, "compaction run", by_key=encrypted == BY_KEY, **job)


@command(
    "compaction upgrade",
    changes=True,
    examples=["acme/orders/compacted --dry-run"],
    output="The change, with payload bytes before and after.",
    errors=[TopicNotFound, MetadataCorrupt, EntryCorrupt, StalePlan],
)
@topics_argument
def upgrade(app: App, selection: TopicSelection) -> None:
    """Rewrite compacted ledgers in the format of Pulsar 4.2: the metadata of every batch lists the indexes that were
    kept.
    """
    compact_topics(app, selection, "compaction upgrade", everything=True)


@command(
    "compaction attach",
    changes=True,
    elsewhere=["acme/orders/compacted 91 --dry-run"],
    output="The change: the position of the __compaction cursor and its compacted ledger, before and after.",
    errors=[TopicNotFound, LedgerNotFound, MetadataCorrupt, EntryCorrupt, Refused, StalePlan],
)
@click.argument("topic", type=TOPIC)
@click.argument("ledger", type=whole())
def attach(app: App, topic: TopicName, ledger: int) -> None:
    """Attach a compacted ledger that its topic no longer references.

    A broker's `truncate` drops the compacted view, so that nothing references its ledger. This makes the __compaction
    cursor reference it and moves the cursor to its end: compacted reads return its keys, then the topic's later messages.
    """
    app.change(app.topic(topic).compaction().attach(ledger))


def compact_topics(app: App, selection: TopicSelection, command: str, **job: Any) -> None:  # Any: of CompactionJob
    """Run ``command`` (``compaction run`` or ``upgrade``) on the selected topics, as one change per topic."""
    from pulsar_admin.api.topics import Compactions

    with app.session.read() as txn:
        plan = Compactions(app.session, selected(app, txn, selection)).plan(command, **job)
    app.change(plan)
