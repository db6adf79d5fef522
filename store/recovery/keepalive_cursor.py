"""The subscription that keeps a topic's messages if no other is known: brokers delete messages that no subscription needs.

Upstream, Pulsar 4.0.8: ``ManagedLedgerImpl.internalTrimLedgers`` takes all but the last ledger of a topic without cursors once retention
has passed, ``PersistentTopic.checkGC`` deletes a topic without subscriptions. Of the broker's own topics it is the cursor that their
readers make, at the beginning, as they do.
"""

from __future__ import annotations

from pulsar_admin.store.model.cursors import COMPACTION_CURSOR, LOG_CURSOR, PENDING_ACK_CURSOR
from pulsar_admin.store.model.topics import Topic
from pulsar_admin.store.names import PENDING_ACK_SUFFIX, TRANSACTION_LOG_PREFIX

HOLDING = "recovered"


def holding_name(topic: Topic, names: set[str]) -> str | None:
    """Return the subscription that a topic needs besides the named cursors, or None if its data is kept without one."""
    # The broker itself makes a cursor on topics of its own.
    local = topic.name.base.local_name
    own = COMPACTION_CURSOR if topic.name.is_system else None
    if local.endswith(PENDING_ACK_SUFFIX):
        own = PENDING_ACK_CURSOR
    elif local.startswith(TRANSACTION_LOG_PREFIX):
        own = LOG_CURSOR
    if own is not None:
        return None if own in names else own
    return HOLDING if topic.number_of_entries and not names - {COMPACTION_CURSOR} else None
