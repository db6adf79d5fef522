"""Upstream commands that cannot be answered from files: why, and what to use instead.

Read for unknown command names.
"""

from fnmatch import fnmatchcase
from typing import NamedTuple


class Need(NamedTuple):
    """Why commands that match some patterns cannot be answered from files, what they need, and what to use instead, as
    text."""

    patterns: tuple[str, ...]
    reason: str
    instead: str = ""
    needed: str = "a running broker"


NEEDS: tuple[Need, ...] = (
    Need(
        ("topics unload", "persistent unload", "namespaces unload"),
        "it makes a running broker close its topics, and no broker has a store's topics open",
        "to add data that brokers wrote since the import: pulsar-admin store refresh",
    ),
    Need(
        ("topics lookup", "topics partitioned-lookup", "persistent lookup", "non-persistent lookup"),
        "running brokers decide which of them serves a topic",
        "the files of a topic: pulsar-admin topics info-internal TOPIC",
    ),
    Need(
        ("topics offload",),
        "a running broker copies ledgers to the storage of its offloader",
        "which ledgers are offloaded: pulsar-admin topics stats-internal TOPIC",
    ),
    Need(
        ("transactions abort-transaction",),
        "a coordinator ends a transaction together with the brokers of all its topics",
        "for messages of committed transactions only: pulsar-admin topics read TOPIC",
    ),
    Need(
        ("transactions position-stats-in-pending-ack",),
        "pulsar-admin 4.0.8 asks and prints nothing",
        "what holds acknowledgements: pulsar-admin transactions pending-ack-stats -t TOPIC -s SUBSCRIPTION",
    ),
    Need(
        ("schemas extract",),
        "it loads a class from a jar, which takes a Java machine with Pulsar's client",
        "hand a definition over with: pulsar-admin schemas upload TOPIC -f FILE",
    ),
    Need(
        (
            "non-persistent list",
            "non-persistent list-in-bundle",
            "non-persistent stats",
            "non-persistent stats-internal",
        ),
        "a topic that is not persistent exists only in the memory of a running broker",
    ),
    Need(
        (
            "brokers backlog-quota-check",
            "brokers get-internal-config",
            "brokers get-runtime-config",
            "brokers healthcheck",
            "brokers leader-broker",
            "brokers list",
            "brokers namespaces",
            "brokers shutdown",
            "brokers version",
            "ns-isolation-policy brokers",
        ),
        "it queries or controls a running broker",
        "to see a store's source: pulsar-admin store info",
    ),
    Need(
        ("broker-stats *",),
        "a running broker counts this in its memory",
        "what files say: pulsar-admin topics stats --all-topics",
    ),
    Need(("proxy-stats *",), "a running proxy counts this in its memory"),
    Need(
        ("functions *", "functions-worker *", "sinks *", "sources *"),
        "running workers keep, run and count functions, sinks and sources",
        "to list the topics in which workers keep them: pulsar-admin topics list public/functions",
    ),
    Need(
        ("scalable-topics merge-segments", "scalable-topics migrate", "scalable-topics split-segment"),
        "a controller seals segments and creates others together with the brokers of all of them",
        "to see the segments: pulsar-admin scalable-topics get-metadata TOPIC",
        "a running broker of Pulsar 5.0",
    ),
    Need(
        ("migration *",),
        "brokers copy their metadata into another store while they run",
        "to copy what is on disk: pulsar-admin store export zookeeper --help",
        "a running broker of Pulsar 5.0",
    ),
    Need(
        ("packages delete", "packages update-metadata", "packages upload"),
        "a broker writes packages, as files or as streams of DistributedLog",
        "those that it keeps in BookKeeper: pulsar-admin packages list NAMESPACE --type function",
    ),
    Need(
        (
            "bookkeeper bookieinfo",
            "bookkeeper bookiesanity",
            "bookkeeper endpointinfo",
            "bookkeeper simpletest",
        ),
        "it asks bookies, or writes to them, to see whether they answer",
        "what bookies left on disk: pulsar-admin store usage",
        "a running bookie",
    ),
    Need(
        (
            "bookkeeper autorecovery",
            "bookkeeper decommissionbookie",
            "bookkeeper forceauditchecks",
            "bookkeeper lostbookierecoverydelay",
            "bookkeeper queryautorecoverystatus",
            "bookkeeper recover",
            "bookkeeper triggeraudit",
            "bookkeeper whoisauditor",
        ),
        "an auditor and its workers replicate ledgers while bookies run",
        "the marked ledgers: pulsar-admin bookkeeper listunderreplicated",
        "running bookies",
    ),
    Need(
        (
            "bookkeeper bookieformat",
            "bookkeeper cookie_create",
            "bookkeeper cookie_delete",
            "bookkeeper cookie_generate",
            "bookkeeper cookie_update",
            "bookkeeper initbookie",
            "bookkeeper initnewcluster",
            "bookkeeper metaformat",
            "bookkeeper nukeexistingcluster",
            "bookkeeper updateBookieInLedger",
            "bookkeeper updatecookie",
            "bookkeeper updateledgers",
        ),
        "it creates, moves or deletes bookies and clusters",
        "the bookies that the metadata names: pulsar-admin bookkeeper listbookies -a",
        "BookKeeper's own shell",
    ),
    Need(
        ("bookkeeper deleteledger",),
        "only a running cluster knows whose ledger it is",
        "ledgers that nothing references: pulsar-admin ledgers orphans",
        "BookKeeper's own shell",
    ),
    Need(
        (
            "bookkeeper check-db-ledgers-index",
            "bookkeeper convert-to-db-storage",
            "bookkeeper convert-to-interleaved-storage",
            "bookkeeper localconsistencycheck",
            "bookkeeper rebuild-db-ledger-locations-index",
            "bookkeeper rebuild-db-ledgers-index",
            "bookkeeper regenerate-interleaved-storage-index-file",
        ),
        "it works on a bookie's own index, and a store has its own",
        "to check and repair the index of a stopped bookie: pulsar-admin store salvage --help",
        "BookKeeper's own shell",
    ),
)


def need_of(path: str) -> Need | None:
    """Return why an upstream command is not answered here, or None."""
    return next((need for need in NEEDS if any(fnmatchcase(path, pattern) for pattern in need.patterns)), None)


def group_need(name: str) -> Need | None:
    """Return why the commands of an upstream group are not answered here, or None."""
    return next((need for need in NEEDS if any(one.startswith(f"{name} ") for one in need.patterns)), None)
