"""Rules about starts: what keeps a bookie or a ZooKeeper server from starting, and unwanted effects of a start."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from pulsar_admin.store.facts.cluster import ClusterFacts
from pulsar_admin.store.facts.starts import StartFault
from pulsar_admin.store.rules.finding import Severity
from pulsar_admin.store.rules.rule import Evidence, Rule, Rules

_SALVAGE = "pulsar-admin store salvage {disks}"
_SNAPSHOT = "pulsar-admin store export zookeeper-snapshot DIR"
_DIR = (
    "Write a snapshot from this store into an empty directory, which becomes the `dataDir` of each server. If the import counted losses, "
    "it asks for `--force`."
)
START_RULES = Rules[ClusterFacts]()


def _told(facts: ClusterFacts, *, code: str) -> Iterator[Evidence]:
    return (evidence_of(fault) for fault in facts.start_faults if fault.code == code)


def evidence_of(fault: StartFault) -> Evidence:
    """Return what a fault shows."""
    return Evidence(fault.where, fault.text, {**fault.values, "starts": fault.starts})


def _add(
    code: str, severity: Severity, title: str, means: str, broker: str, mend: str, how: str, loss: str = ""
) -> None:
    holds = partial(_told, code=code)
    START_RULES.append(Rule(code, severity, title, means, broker, mend, how, holds=holds, loss=loss, of_disks=True))


_add(
    "bookie-cookie-missing",
    Severity.CRITICAL,
    "A directory of a bookie has no cookie",
    "Its other directories have one (`VERSION`). The disk is not mounted, or was emptied.",
    "The bookie does not start: `InvalidCookieException`.",
    _SALVAGE,
    "If the disk is not mounted, mount it. If only the file is gone, salvage writes it again, as it is in the bookie's other directories; "
    "an empty ledger directory is refused. If no directory has one: `store cat /ledgers/cookies/BOOKIE --raw > DIR/current/VERSION`.",
)
_add(
    "bookie-cookie-refused",
    Severity.CRITICAL,
    "A bookie's cookie is not that of the metadata",
    "The metadata has another instance id, another cookie or none of this bookie: it was created anew, or the bookie got another address.",
    "The bookie does not start: `InvalidCookieException`. Once somebody changes the cookie it starts, and deletes every ledger that "
    "the metadata does not list.",
    "pulsar-admin store preflight",
    "See what it would delete. If the metadata is the right one and the bookie has a new address: `bookies rename`. If not, give it the "
    "metadata that it belongs to.",
    loss="what preflight counts, once somebody changes the cookie",
)
_add(
    "bookie-index-unreadable",
    Severity.CRITICAL,
    "A bookie's index cannot be opened or read",
    "A file of the RocksDB in `ledgers` or `locations` is empty, damaged or gone. Only a deep check reads every row.",
    "The bookie does not start (`RocksDBException`), or answers with an I/O error where a part of a file is damaged. Without the database "
    "it starts with an empty one, and deletes its entry logs.",
    _SALVAGE,
    "Do not delete it. While the bookie is stopped, salvage makes the index again from its entry logs and journals.",
)
_add(
    "bookie-index-missing",
    Severity.CRITICAL,
    "A bookie has entry logs and no index",
    "The RocksDB in `ledgers` or `locations` is gone, or the index directory is not mounted.",
    "The bookie starts with an empty one. Without `ledgers`, its first garbage collection deletes every entry log; without `locations`, it "
    "answers that it has none of its entries.",
    _SALVAGE,
    "Do not start it. Mount the index directory, or salvage the bookie, which makes the index again.",
    loss="the bookie's entry logs, once it starts",
)
_add(
    "bookie-journal-missing",
    Severity.CRITICAL,
    "The journal that a bookie starts from is gone",
    "`lastMark` names a journal that is not in the journal directory: the disk is not mounted, or the file was deleted.",
    "The bookie does not start: `Recovery log … is missing`.",
    _SALVAGE,
    "Mount the disk, or restore the file. If it is lost, salvage puts `lastMark` aside, and counts the ledgers that may lack their last "
    "entries on this bookie.",
    loss="entries that only this journal had",
)
_add(
    "bookie-journal-damaged",
    Severity.CRITICAL,
    "A record in a journal stops the start of a bookie",
    "A record that a start replays has an impossible length, is too short for its kind, or gives a ledger a second master key.",
    "The bookie does not start.",
    _SALVAGE,
    "Salvage cuts the journal before that record, and writes what can be read after it into an entry log.",
)
_add(
    "zookeeper-snapshot-missing",
    Severity.WARNING,
    "ZooKeeper has logs and no snapshot",
    "The snapshots were deleted, or only the log directory was copied.",
    "ZooKeeper does not start: `No snapshot found, but there are log entries`. With `zookeeper.snapshot.trust.empty=true`, which "
    "`bin/pulsar` sets, it starts with what the logs have.",
    _SNAPSHOT,
    _DIR,
)
_add(
    "zookeeper-snapshot-damaged",
    Severity.CRITICAL,
    "ZooKeeper cannot read its newest snapshot",
    "It is cut or damaged. The evidence says from which one a server starts, and whether the logs reach from there on.",
    "ZooKeeper starts from an older snapshot and its logs. It does not notice if logs are missing, and forgets what they had: bookies then "
    "delete ledgers. Without any snapshot that can be read, it does not start.",
    _SNAPSHOT,
    _DIR,
)
_add(
    "zookeeper-record-too-large",
    Severity.WARNING,
    "A transaction of ZooKeeper's log is longer than its default reads",
    "ZooKeeper reads records of up to twice `jute.maxbuffer` (default 1,048,575; `bin/pulsar` sets 10,485,760). A large transaction, "
    "or a topic with very many ledgers, is longer.",
    "ZooKeeper does not start with a smaller `jute.maxbuffer`: `Unreasonable length`.",
    _SNAPSHOT,
    "Start it with the `-Djute.maxbuffer` of the evidence, or from a snapshot of this store.",
)
_add(
    "zookeeper-log-unreadable",
    Severity.CRITICAL,
    "A log of ZooKeeper ends its start",
    "A record with a wrong checksum, or a log file without a header, as a full disk leaves it.",
    "ZooKeeper does not start (`CRC check failed`, `EOFException`).",
    _SNAPSHOT,
    _DIR,
)
