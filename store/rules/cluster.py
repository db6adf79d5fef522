"""Rules about the cluster as a whole."""

from collections.abc import Iterator
from itertools import groupby

from pulsar_admin.store.db.locks import is_written_now
from pulsar_admin.store.facts import known
from pulsar_admin.store.facts.cluster import ClusterFacts
from pulsar_admin.store.facts.managed_ledgers import summed
from pulsar_admin.store.model.transactions import ASSIGN
from pulsar_admin.store.rules.finding import Severity
from pulsar_admin.store.rules.rule import Evidence, Rules
from pulsar_admin.store.wording import counted, listed, plural

CLUSTER_RULES = Rules[ClusterFacts]()


@CLUSTER_RULES.row(
    "bookie-unknown",
    Severity.CRITICAL,
    "The metadata knows nothing of an imported bookie",
    "Neither a cookie nor the ensemble of a ledger names it. Metadata and disks belong to different clusters, or the "
    "metadata is new, or older than the bookie.",
    "The bookie refuses to start (InvalidCookieException). With a new cookie it deletes all its entries.",
    "pulsar-admin store ls /ledgers/cookies",
    "Import the metadata that the bookie's `bookkeeper.conf` names (`metadataServiceUri`) into a store of its own; of a ZooKeeper "
    "with several clusters, `--chroot` names one. If that is lost, import the bookies alone and run `store recover`.",
    "Run `store preflight` before bookies start on other metadata.",
    leads=True,
    loss="all entries of the bookie, if it starts on this metadata",
)
def _unknown_bookies(facts: ClusterFacts) -> Iterator[Evidence]:
    for bookie in known(facts.unknown_bookies) or ():
        why = "it belongs to another cluster, or to another part of this ZooKeeper"
        if bookie in facts.own_cookies:
            why = "it has the same instance id, so this metadata is older than it, or lost these nodes"
        yield Evidence(
            f"bookie {bookie}",
            f"the metadata does not name it, neither in a cookie nor in the ensemble of a ledger: {why}",
            {"bookie": bookie},
        )


@CLUSTER_RULES.row(
    "refresh-unfinished",
    Severity.WARNING,
    "A refresh or an addition was interrupted",
    "`store refresh` or `store add` did not finish: what it should have read is missing, or incomplete. A note while "
    "another process writes to the store, because the command may still be running.",
    "Nothing: only this store is affected.",
    "pulsar-admin store refresh",
    "Continue it, or wait if it is still running. Until then, data that seems to be missing may only be unread.",
    leads=True,
    scope="store",
)
def _unfinished(facts: ClusterFacts) -> Iterator[Evidence]:
    if facts.is_refresh_unfinished:
        added = facts.unfinished_sources
        what = f"`store add` of {listed(added, 3)}" if added else "`store refresh`"
        runs = not facts.store.writable and is_written_now(facts.store.path)
        yield Evidence(
            "store",
            f"{what} {'is running' if runs else 'was interrupted'}: the rest is missing here",
            {"sources": list(added)},
            severity=Severity.NOTE if runs else None,
        )


@CLUSTER_RULES.row(
    "bookkeeper-metadata-absent",
    Severity.CRITICAL,
    "The metadata lacks BookKeeper's part",
    "It has no ledger and no layout. Brokers may use another ZooKeeper or path (`bookkeeperMetadataServiceUri`).",
    "Bookies that start on it delete all their entries.",
    "pulsar-admin store ls /ledgers",
    "Import again with BookKeeper's root: `--ledgers-root`, or the `bookkeeper.conf` of a bookie. If it is lost, run `store "
    "recover`. Until then forget no ledger: missing metadata here does not mean that it was deleted.",
    leads=True,
)
def _no_bookkeeper(facts: ClusterFacts) -> Iterator[Evidence]:
    if facts.has_bookkeeper is False:
        yield Evidence(
            "metadata store",
            "it has no BookKeeper metadata (no ledger, no /ledgers/LAYOUT): that is elsewhere, or lost",
        )


@CLUSTER_RULES.row(
    "pulsar-metadata-absent",
    Severity.CRITICAL,
    "The metadata lacks the brokers' part",
    "It lists ledgers, but no topic, subscription or schema that could own them. The brokers' metadata is in another "
    "ZooKeeper or path (`metadataStoreUrl`), or it is lost.",
    "Serves none of these ledgers. Bookies keep them.",
    "pulsar-admin store recover --level A",
    "Import again with the brokers' metadata, if it exists, and BookKeeper's root by `--ledgers-root`. Until then "
    "delete no ledger. If it is lost, rebuild it from the ledgers' metadata.",
    leads=True,
    loss="all topics, if the ledgers are deleted",
)
def _no_brokers(facts: ClusterFacts) -> Iterator[Evidence]:
    if facts.bare_ledgers:
        yield Evidence(
            "metadata store",
            f"it lists {counted(facts.bare_ledgers, 'ledger')} but no topic: /managed-ledgers is empty, so the "
            "brokers' metadata is elsewhere, or lost",
            {"ledgers": facts.bare_ledgers},
        )


@CLUSTER_RULES.row(
    "bookkeeper-shared",
    Severity.NOTE,
    "Another Pulsar may use the same BookKeeper",
    "The ZooKeeper has a Pulsar at another path and no BookKeeper there (`zkLedgersRootPath`, `bookkeeperMetadataServiceUri`).",
    "Ignores ledgers of others.",
    "pulsar-admin ledgers orphans",
    "Nothing to repair. Ledgers without a reference are not called leaked; commands that delete or rebuild refuse "
    "until `--accept-unknown-tree` names the other path.",
)
def _shared(facts: ClusterFacts) -> Iterator[Evidence]:
    if facts.sharing_pulsars:
        others = [chroot or "/" for chroot in facts.sharing_pulsars]
        ledgers = len(facts.vanished.foreign)
        yield Evidence(
            ", ".join(others),
            f"{plural(len(others), 'another Pulsar', 'other Pulsars')} of the same ZooKeeper may use this BookKeeper:"
            f" {counted(ledgers, 'ledger')} that nothing here references may be {plural(len(others), 'its', 'theirs')}",
            {"paths": others, "ledgers": ledgers},
        )


@CLUSTER_RULES.row(
    "transaction-coordinators-unassigned",
    Severity.WARNING,
    "Transaction coordinators have logs, but no client asks for them",
    "The partitioned topic `pulsar/system/transaction_coordinator_assign`, whose partitions count the coordinators, is gone or "
    "counts fewer than there are logs. Critical if transactions are open in them.",
    "Does not load their logs, so their transactions never end: consumers get no message from the first one of an open transaction on. "
    "Without the topic, no client can use transactions.",
    "pulsar-admin transactions scale-transactionCoordinators -r {coordinators}",
    "Set the number so that it counts every log.",
)
def _unassigned(facts: ClusterFacts) -> Iterator[Evidence]:
    found = facts.unassigned_coordinators
    if found is not None and found.matters:
        counts = counted(found.recorded, "coordinator") if found.recorded else "no coordinators"
        which = f"{plural(len(found.numbers), 'coordinator', 'coordinators')} {listed(found.numbers, 5)}"
        have, them = plural(len(found.numbers), "has a log", "have logs"), plural(len(found.numbers), "it", "them")
        open_ = "" if found.open is None else f" with {counted(found.open, 'open transaction')}"
        yield Evidence(
            str(ASSIGN),
            f"the metadata counts {counts}, but {which} {have}{open_}: no broker loads {them}",
            {
                "recorded": found.recorded,
                "numbers": list(found.numbers),
                "open": found.open,
                "coordinators": found.numbers[-1] + 1,
            },
            severity=Severity.CRITICAL if found.open else None,
        )


@CLUSTER_RULES.row(
    "metadata-file-damaged",
    Severity.NOTE,
    "A damaged file of the metadata was not needed",
    "Other files have its content, so nothing is missing here. A warning for a standalone's RocksDB, which has no others to fall back to.",
    "ZooKeeper also falls back to an older snapshot and its logs. RocksDB refuses to open a damaged database, or to read the damaged part: "
    "a standalone Pulsar does not start, or fails there.",
    "pulsar-admin store refresh",
    "Replace the disk if it failed. A refresh ends the note once the file is intact, or removed. Instead of a RocksDB, "
    "write a new directory: `store clone DIR`.",
)
def _not_needed(facts: ClusterFacts) -> Iterator[Evidence]:
    for reason in facts.not_needed:
        if facts.has_rocksdb:
            hint = "a standalone does not start on it, or fails there; write a directory that starts: pulsar-admin store clone DIR"
            yield Evidence("metadata store", reason, {}, hint, Severity.WARNING, "pulsar-admin store clone DIR")
        else:
            yield Evidence("metadata store", reason)


CLUSTER_RULES.row(
    "zookeeper-log-end",
    Severity.NOTE,
    "ZooKeeper's newest log may have lost its end",
    "Its last transaction is unfinished, or a newer epoch began. A kill or a power failure does this without losing "
    "anything that was acknowledged; so do zeros at the end of the log. `metadata-older` is reported if bookies have "
    "newer ledgers.",
    "ZooKeeper silently treats it as the end of the log.",
    "pulsar-admin store refresh",
    "Use the files of another server of the ensemble, which may be newer, or a newer copy, and refresh.",
)(lambda facts: (Evidence("metadata store", reason) for reason in facts.log_ends))


@CLUSTER_RULES.row(
    "unknown-tree",
    Severity.NOTE,
    "The metadata has a tree that this version does not know",
    "A newer Pulsar, or another program in the same ZooKeeper, wrote it. Its nodes may reference ledgers.",
    "A Pulsar that does not know it ignores it.",
    "pulsar-admin store ls {path}",
    "Look at its nodes. Commands that depend on a ledger being unreferenced refuse until `--accept-unknown-tree` names the tree.",
)
def _unknown_trees(facts: ClusterFacts) -> Iterator[Evidence]:
    for tree in facts.unknown_trees:
        yield Evidence(tree.path, str(tree), {"path": tree.path, "nodes": tree.nodes, "writer": tree.writer})


@CLUSTER_RULES.row(
    "other-managed-ledgers",
    Severity.NOTE,
    "Managed ledgers that are no topics of this version",
    "A newer Pulsar stores such nodes beside topics and segments of scalable topics. They own their ledgers.",
    "A Pulsar that does not know them does not serve them.",
    "pulsar-admin store ls {path}",
    "Nothing to repair. `store info` names them with their sizes; commands on topics do not read or change them.",
)
def _other_ledgers(facts: ClusterFacts) -> Iterator[Evidence]:
    for domain, some in groupby(facts.other_ledgers, key=lambda one: one.domain):
        sums = summed([*some])
        yield Evidence(
            domain,
            str(sums),
            {
                "path": domain,
                "managedLedgers": sums.managed_ledgers,
                "ledgers": sums.ledgers,
                "entries": sums.entries,
                "bytes": sums.bytes,
            },
        )


@CLUSTER_RULES.row(
    "unknown-value",
    Severity.NOTE,
    "Metadata values with fields that this version does not know",
    "A newer Pulsar or BookKeeper wrote them: fields, keys, versions or compression that are not known here.",
    "A Pulsar that does not know them ignores fields and keys, and cannot read other versions and compression.",
    "pulsar-admin store cat {path} --hex",
    "Nothing to repair. They stay unchanged, even when other fields of the same node change; a ledger that names "
    "such a node as its owner counts as referenced.",
)
def _unknown_values(facts: ClusterFacts) -> Iterator[Evidence]:
    for one in facts.unknown_values:
        values = {"path": one.path, "structure": one.structure, "unknown": list(one.what), "nodes": one.nodes}
        yield Evidence(one.path, str(one), values)
