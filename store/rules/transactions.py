"""Rules about logs of transactions, which a broker replays before it serves what they belong to."""

from collections.abc import Callable, Iterator
from functools import partial

from pulsar_admin.store.facts import known
from pulsar_admin.store.facts.topics import SubscriptionFacts
from pulsar_admin.store.facts.transactions import PendingAckLog
from pulsar_admin.store.model.broken import NO_METADATA, BrokenLedger
from pulsar_admin.store.rules.finding import Severity
from pulsar_admin.store.rules.rule import Evidence, Rules, here
from pulsar_admin.store.wording import listed, plural

_NAMED = 5
_MEANS = (
    "A broker keeps what transactions acknowledge on a subscription in a log of its own, `TOPIC-SUBSCRIPTION__transaction_pending_ack`,"
    " and replays it before the subscription's first consumer."
)
_BROKER = (
    "`PendingAckHandleImpl` stays in state Initializing: consumers of the subscription wait, and so do other subscriptions whose logs the"
    " same thread replays."
)
TRANSACTION_RULES = Rules[SubscriptionFacts]("use")


@TRANSACTION_RULES.row(
    "pending-ack-replay-endless",
    Severity.CRITICAL,
    "The replay of a subscription's pending-ack log never ends",
    f"{_MEANS} The log's ledgers are empty, or it lists none, and its cursor is still at an entry of a deleted ledger "
    "before them (apache/pulsar#26368).",
    _BROKER,
    "pulsar-admin managed-ledger update-mark-delete-cursor -mlp {log} -cn __pending_ack_state -cm {position}",
    "Move the log's cursor to the beginning of the last ledger, or to -1:-1 if the log lists none. This skips no "
    "entry, so nothing is lost.",
    needs="has_pending_acks",
)
def _replay_endless(facts: SubscriptionFacts) -> Iterator[Evidence]:
    log = known(facts.pending_ack_log)
    if log is not None and log.endless_until is not None:
        ends = "lists no ledger" if log.endless_until.ledger_id < 0 else f"is empty and ends at {log.endless_until}"
        yield here(
            f"its pending-ack log {ends}, but the log's cursor is at {log.mark_delete}, an entry of a deleted ledger: a broker reads in an "
            "endless loop, and nobody can open the subscription",
            {**_log_of(facts, log), "markDelete": str(log.mark_delete), "position": str(log.endless_until)},
        )


def _lost(facts: SubscriptionFacts, is_meant: Callable[[BrokenLedger], bool]) -> Iterator[Evidence]:
    log = known(facts.pending_ack_log)
    lost = [] if log is None else [broken for broken in log.lost if is_meant(broken)]
    if log is not None and lost:
        ids = [broken.ledger_id for broken in lost]
        yield here(
            f"{plural(len(ids), 'ledger', 'ledgers')} {listed(ids, _NAMED)} of its pending-ack log cannot be read "
            f"({lost[0].what()}): a broker never finishes replaying the log, and nobody can open the subscription",
            {**_log_of(facts, log), "ledgerIds": ids, "entries": sum(broken.lost_entries for broken in lost)},
            lost[0].cure,
        )


def _log_of(facts: SubscriptionFacts, log: PendingAckLog) -> dict[str, object]:
    return {"topic": facts.of.where, "subscription": facts.cursor.name, "log": log.name.managed_ledger_name}


TRANSACTION_RULES.row(
    "pending-ack-ledger-lost",
    Severity.CRITICAL,
    "Metadata of a ledger of a subscription's pending-ack log is lost",
    f"{_MEANS} BookKeeper does not know a ledger of the log (apache/pulsar#26374).",
    f"{_BROKER} With `autoSkipNonRecoverableData=true` the broker skips the ledger.",
    "pulsar-admin ledgers restore {ledgerIds}",
    "Rebuild the metadata from the entries. If entries are also lost, `ledgers forget` lets the log continue without them.",
    loss="what open transactions acknowledged, if the ledgers are forgotten",
    needs="has_pending_acks",
)(partial(_lost, is_meant=lambda broken: broken.reason == NO_METADATA))


TRANSACTION_RULES.row(
    "pending-ack-entries-lost",
    Severity.CRITICAL,
    "Entries of a subscription's pending-ack log are lost",
    f"{_MEANS} Ledgers of the log, or entries of them, are in no file.",
    f"{_BROKER} With `autoSkipNonRecoverableData=true` the broker skips them.",
    "pulsar-admin ledgers forget {ledgerIds}",
    "Import the disks that have them, if any exist. Otherwise remove the ledgers from the log: messages that open "
    "transactions acknowledged in them are delivered again.",
    loss="what open transactions acknowledged in the ledgers",
    needs="has_pending_acks",
)(partial(_lost, is_meant=lambda broken: broken.reason != NO_METADATA and not broken.cure))


TRANSACTION_RULES.row(
    "pending-ack-entries-not-served",
    Severity.CRITICAL,
    "No client gets entries of a subscription's pending-ack log",
    f"{_MEANS} Files have entries of the log that no bookie serves: they are in journals that no bookie replays, on "
    "bookies that the metadata does not name, or in ledgers that nobody can close.",
    f"{_BROKER} With `autoSkipNonRecoverableData=true` the broker skips them.",
    "pulsar-admin ledgers missing {ledgerIds}",
    "The command says where the entries are and how to make them readable: `store salvage`, or `ledgers restore "
    "--to-bookies`.",
    needs="has_pending_acks",
)(partial(_lost, is_meant=lambda broken: broken.reason != NO_METADATA and bool(broken.cure)))
