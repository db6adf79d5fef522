"""The trees of a metadata store: children of its root, those that Pulsar writes and those that it does not.

An unknown tree may reference ledgers that nothing else does. Code that destroys or rebuilds unreferenced ledgers calls
``check_accepted`` first.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable
from itertools import groupby

from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.files import iter_incompleteness
from pulsar_admin.store.db.tree import iter_children, iter_paths, tree_key
from pulsar_admin.store.errors import Refused
from pulsar_admin.store.model.coverage import knows_no_bookie
from pulsar_admin.store.model.ledgers import iter_ledger_ids
from pulsar_admin.store.names import LEDGERS, MANAGED_LEDGERS, shell_word
from pulsar_admin.store.sources.roots import stored_roots
from pulsar_admin.store.wording import Answer, counted, plural

LAYOUT = b"/ledgers/LAYOUT"
_KNOWN_TREES = frozenset(
    [
        "admin",
        "bookies",
        "counters",
        "ledgers",
        "loadbalance",
        "managed-ledgers",
        "namespace",
        "schemas",
        "service_unit_state",
        "stream",
        "zookeeper",
    ]
)
"""Children of the root that brokers, bookies and ZooKeeper of Pulsar 2.11 to 5.0 write.

``service_unit_state``: ``ServiceUnitStateMetadataStoreTableViewImpl`` (PIP-378); ``stream``: BookKeeper's stream storage.
"""
_KNOWN_PATHS = re.compile(
    r"/topics(/[^/]+){0,3}|/topics(/[^/]+){3}/(controller|segments(/\d+(/load)?)?|subscriptions(/.+)?)"
    r"|/topic-creation-locks(/[^/]+){0,4}"
    r"|/txn(/tc(/parallelism|/leader(/\d+)?)?|/tc-seq(/\d+)?|/segment-state(/(watermark|aborted)(/[^/]+)?)?"
    r"|/(id|op|segment-events|subscription-events)(/[^/]+)?)?"
    r"|/pulsar/migration-coordinator(/(migration|participants(/[^/]+)?))?"
)
"""Of trees of Pulsar 5.0.1 that are known in part: scalable topics and what controllers note of them, transactions of segments. None of
these nodes references a ledger that the segments do not (``ScalableTopicResources``, ``TxnPaths``); a newer Pulsar may add some that do."""
_PACKAGES = ("/pulsar/functions/", "/pulsar/packages/")
"""``WorkerUtils.initializeDlogNamespace``, ``BookKeeperPackagesStorage``: packages, as DistributedLog keeps them. The rest of ``/pulsar``
is not known: a chroot of another cluster often has that name."""
NEWER_PULSAR, UNKNOWN = "a newer Pulsar", "a newer Pulsar or another program"
KAFKA, HBASE = "another program (Kafka)", "another program (HBase)"
WRITERS = {
    **dict.fromkeys(("topic-creation-locks", "topics", "txn", "txn-op"), NEWER_PULSAR),
    **dict.fromkeys(
        (
            "brokers",
            "cluster",
            "config",
            "consumers",
            "controller",
            "controller_epoch",
            "delegation_token",
            "feature",
            "isr_change_notification",
            "kafka",
            "kafka-acl",
            "kafka-acl-changes",
            "kafka-acl-extended",
            "kafka-acl-extended-changes",
            "latest_producer_id_block",
            "log_dir_event_notification",
            "migration",
        ),
        KAFKA,
    ),
    **dict.fromkeys(("hbase", "hbase-secure", "hbase-unsecure"), HBASE),
}
"""Names of trees of others, as far as they are not known (of a Pulsar after 5.0.1; Kafka's ``KafkaZkClient``)."""


class UnknownTree(Answer, frozen=True):
    """A child of the metadata's root that no known Pulsar writes. ``nodes``: the number of its nodes, itself included if it is one.

    ``writer``: the program that writes a tree of this name, in words.
    """

    path: str
    nodes: int
    writer: str

    def __str__(self) -> str:
        return f"1 tree of {self.writer}: {counted(self.nodes, 'node')}, kept as they are"


def unknown_trees(txn: Txn) -> tuple[UnknownTree, ...]:
    """Return the unknown trees of the store, by path; one seek for each child of the root, and one for each node that is unknown."""
    counts = Counter[str]()
    for name in iter_children(txn, "/"):
        if name not in _KNOWN_TREES:
            root = f"/{name}"
            if txn.view("tree", tree_key(root)) is not None:
                add_path(counts, root)
            for path in iter_paths(txn, f"{root}/"):
                add_path(counts, path)
    return trees_of(counts)


def add_path(counts: Counter[str], path: str) -> None:
    """Count the node at ``path`` in ``counts`` (name of an unknown tree → its nodes) if it belongs to an unknown tree."""
    name = unknown_tree_of(path)
    if name:
        counts[name] += 1


def unknown_tree_of(path: str) -> str:
    """Return the name of the unknown tree that the node at ``path`` belongs to; "" if its tree is known."""
    name = path[1:].partition("/")[0]
    known = name in _KNOWN_TREES or path == "/pulsar" or f"{path}/".startswith(_PACKAGES)
    return "" if known or _KNOWN_PATHS.fullmatch(path) is not None else name


def trees_of(counts: Counter[str]) -> tuple[UnknownTree, ...]:
    """Return the unknown trees that ``add_path`` counted, by path."""
    return tuple(UnknownTree(f"/{name}", counts[name], WRITERS.get(name, UNKNOWN)) for name in sorted(counts))


def trees_text(trees: Iterable[UnknownTree]) -> str:
    """Return ``trees`` in words, summed up by who writes them: "2 trees of a newer Pulsar: 14 nodes, kept as they are (/topics, /txn)"."""
    texts = []
    for writer, some in groupby(sorted(trees, key=lambda tree: (tree.writer, tree.path)), key=lambda tree: tree.writer):
        every = [*some]
        nodes, names = sum(tree.nodes for tree in every), ", ".join(tree.path for tree in every)
        texts.append(f"{counted(len(every), 'tree')} of {writer}: {counted(nodes, 'node')}, kept as they are ({names})")
    return "; ".join(texts)


def check_seen(txn: Txn, accepted: Collection[str]) -> None:
    """Raise Refused unless all trees that are unknown or could not be read are among the paths ``accepted``.

    For changes that destroy or rebuild unreferenced ledgers. Unknown trees, and those of other Pulsars that may use the same BookKeeper,
    have their paths; "/" accepts a tree of which a part could not be read.
    """
    reasons = [damage.reason for damage in iter_incompleteness(txn)]
    if reasons and not any(path.strip("/") == "" for path in accepted):
        raise Refused(
            f"the metadata is incomplete: {reasons[0]}: the missing part may reference ledgers that nothing else references",
            hint=(
                "restore undamaged files, then run: pulsar-admin store refresh; if you have none, add "
                "--accept-unknown-tree /"
            ),
            trees=[{"path": "/", "problems": reasons}],
        )
    check_accepted(unknown_trees(txn), accepted)
    others = [chroot or "/" for chroot in stored_roots(txn.store.info).shared]
    left = [path for path in others if path not in _rooted(accepted)]
    if left:
        raise Refused(
            f"{plural(len(left), 'another Pulsar', 'other Pulsars')} of the same ZooKeeper, at {', '.join(left)}, may use this BookKeeper:"
            " ledgers that nothing here references may be theirs",
            hint="see: pulsar-admin doctor --code bookkeeper-shared; if they have a BookKeeper of their own, add "
            + " ".join(f"--accept-unknown-tree {shell_word(path)}" for path in left),
            trees=[{"path": path, "nodes": 0} for path in left],
        )


def lacks_managed_ledgers(txn: Txn) -> bool:
    """Whether the metadata lists ledgers but no managed ledger: brokers' metadata is in another store, or lost."""
    return next(iter_paths(txn, f"{MANAGED_LEDGERS}/"), None) is None and next(iter_ledger_ids(txn), None) is not None


def check_owners_seen(txn: Txn, accepted: Collection[str]) -> None:
    """Raise Refused as ``check_seen``, and if the store lacks a tree that references ledgers, unless ``accepted`` has its path."""
    check_seen(txn, accepted)
    if lacks_managed_ledgers(txn) and MANAGED_LEDGERS not in _rooted(accepted):
        raise Refused(
            f"the metadata lists ledgers and has no {MANAGED_LEDGERS}: their owners are elsewhere, or lost",
            hint=(
                "see: pulsar-admin doctor --code pulsar-metadata-absent; if brokers never used this BookKeeper, add "
                f"--accept-unknown-tree {MANAGED_LEDGERS}"
            ),
            trees=[{"path": MANAGED_LEDGERS, "nodes": 0}],
        )


def lacks_ledgers(txn: Txn) -> bool:
    """Whether the metadata has no part of BookKeeper: no layout (``LedgerLayout``), and not one ledger."""
    return txn.view("tree", LAYOUT) is None and next(iter_ledger_ids(txn), None) is None


def check_ledgers_seen(txn: Txn, accepted: Collection[str]) -> None:
    """Raise Refused as ``check_owners_seen``, and if the metadata is not the bookies', unless ``accepted`` has the path of ledgers.

    For changes that give up ledgers without metadata and entries: BookKeeper's metadata may be elsewhere.
    """
    check_owners_seen(txn, accepted)
    if LEDGERS in _rooted(accepted):
        return
    if lacks_ledgers(txn):
        why, see = "the metadata has no part of BookKeeper", "pulsar-admin doctor --code bookkeeper-metadata-absent"
    elif knows_no_bookie(txn):
        why, see = "the metadata knows none of the imported bookies", "pulsar-admin doctor --code bookie-unknown"
    else:
        return
    raise Refused(
        f"{why}: missing metadata here does not mean that a ledger was deleted",
        hint=f"see: {see}; if BookKeeper's metadata is lost, add --accept-unknown-tree {LEDGERS}",
        trees=[{"path": LEDGERS, "nodes": 0}],
    )


def _rooted(paths: Collection[str]) -> Collection[str]:
    return {"/" + path.strip("/") for path in paths}


def check_accepted(trees: Iterable[UnknownTree], accepted: Collection[str]) -> None:
    """Raise Refused unless each of the unknown ``trees`` is among the paths ``accepted``.

    For changes that destroy or rebuild unreferenced ledgers: an unknown tree may reference them.
    """
    left = [tree for tree in trees if tree.path not in _rooted(accepted)]
    if left:
        options = " ".join(f"--accept-unknown-tree {shell_word(tree.path)}" for tree in left)
        raise Refused(
            f"{trees_text(left)}: its nodes may reference ledgers that nothing else references",
            hint=f"list the nodes: pulsar-admin store ls {shell_word(left[0].path)}; if they have nothing to do with "
            f"these ledgers, add {options}",
            trees=[{"path": tree.path, "nodes": tree.nodes} for tree in left],
        )
