"""Rules about what changes wrote: the audit log, what an export compares with, and kept negative acks."""

from collections.abc import Iterator

from pulsar_admin.store.db.audit_log import iter_breaks, iter_changes
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.nacks import iter_trackers, iter_wrong_rows
from pulsar_admin.store.db.tree import decode_node
from pulsar_admin.store.errors import IndexCorrupt, InvalidValue, StoreError, Unsupported
from pulsar_admin.store.facts.cluster import ClusterFacts
from pulsar_admin.store.model.cursors import iter_cursor_names
from pulsar_admin.store.names import parse_topic, shell_word
from pulsar_admin.store.rules.finding import Finding, Severity
from pulsar_admin.store.rules.rule import Sweep
from pulsar_admin.store.rules.words import PREVENT, UNSEEN

_CHANGES = Sweep[ClusterFacts]("the audit log", "store")
_NACKS = Sweep[ClusterFacts]("negative acks")
CHANGE_SWEEPS = _CHANGES, _NACKS

CHANGES_DAMAGED = _CHANGES.row(
    "changes-damaged",
    Severity.WARNING,
    "The log of changes is damaged",
    "A record of a change made with this toolkit cannot be read, so the change cannot be undone.",
    UNSEEN,
    "pulsar-admin store log",
    "Look at the remaining changes. Exported changes are not affected.",
    PREVENT,
)
CHANGES_ALTERED = _CHANGES.row(
    "changes-altered",
    Severity.WARNING,
    "The log of changes was altered",
    "Each change has the digest of the previous one. One digest is wrong: a record was altered or removed.",
    UNSEEN,
    "pulsar-admin store log",
    "Find out who altered it before you trust the log. It cannot be repaired.",
    PREVENT,
)
BASE_DAMAGED = _CHANGES.row(
    "base-damaged",
    Severity.WARNING,
    "The imported value of a changed node cannot be read",
    "An export compares with it and will refuse.",
    UNSEEN,
    "pulsar-admin store log",
    "Import the source into a new store (`store import`), and repeat the changes that the log shows.",
    PREVENT,
)
NACKS_DAMAGED = _NACKS.row(
    "nacks-damaged",
    Severity.WARNING,
    "Kept negative acks are damaged",
    "A row of the negative acks that scripts keep in the store cannot be read.",
    UNSEEN,
    "pulsar-admin nacks stats",
    "Look at the remaining positions and add the lost ones again with `nacks add`.",
    PREVENT,
    scope="store",
)
NACKS_OF_NOBODY = _NACKS.row(
    "nacks-of-nobody",
    Severity.NOTE,
    "Negative acks are kept for a subscription that does not exist",
    "The subscription was deleted since they were kept.",
    UNSEEN,
    "pulsar-admin nacks stats",
    "Nothing needs them. They cost a few bytes.",
)


@_CHANGES.by
def _check_changes(facts: ClusterFacts) -> Iterator[Finding]:
    """Check that the audit log is the one chain that was written, and that every imported node kept for export can be read."""
    txn = facts.reader.txn
    try:
        for change in iter_changes(txn):
            if change.undoes is not None and change.undoes >= change.change:
                yield CHANGES_DAMAGED.at(f"change {change.change}", f"it undoes change {change.undoes}")
        for number, what in iter_breaks(txn):
            yield CHANGES_ALTERED.at(f"change {number}", what)
    except StoreError as error:
        yield CHANGES_DAMAGED.of(error, "changes")
    for key, row in txn.items("base"):
        try:
            if len(row):
                decode_node(key, row)
        except IndexCorrupt as error:
            yield BASE_DAMAGED.of(error, "base")


def check_nacks(txn: Txn) -> Iterator[Finding]:
    """Check the rows of kept negative acks: every row whole, of a subscription, and that subscription still there."""
    damaged = False
    try:
        for error in iter_wrong_rows(txn):
            damaged = True
            yield NACKS_DAMAGED.of(error, "nacks")
        if damaged:
            return
        for tracker in iter_trackers(txn):
            if tracker.subscription not in iter_cursor_names(txn, parse_topic(tracker.topic)):
                yield NACKS_OF_NOBODY.at(
                    f"{tracker.topic} {tracker.subscription}",
                    "negative acks are kept for a subscription that does not exist",
                    f"see them with: pulsar-admin nacks stats {shell_word(tracker.topic)}",
                )
    except (IndexCorrupt, InvalidValue, Unsupported) as error:
        yield NACKS_DAMAGED.of(error, "nacks")


_NACKS.by(lambda facts: check_nacks(facts.reader.txn))
