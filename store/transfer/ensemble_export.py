"""``store export zookeeper``: the store's changes into a live ensemble, in one transaction that is applied completely
or not at all.

Every node must be as it was imported (value, version, time of creation), both when the change is planned and when it is
written: a set or delete names the version, and a new node must not exist. No broker may own the topics (Pulsar 4.0.8):
none of their bundles may have an owner at ``/namespace/TENANT/NAMESPACE/BUNDLE`` (``OwnershipCache``); the transaction
creates and deletes that node, so that no broker can become the owner meanwhile. Brokers with
``ExtensibleLoadManagerImpl`` keep owners in a topic, where this is not possible.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import pairwise

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from pulsar_admin.store.codec.ledgermetadata import INSTANCE_ID, ledger_id_of_path
from pulsar_admin.store.codec.policies import decode_json_object
from pulsar_admin.store.codec.rocksvalue import encode_value
from pulsar_admin.store.db import export_intent, own_ledgers
from pulsar_admin.store.db.audit_log import append_change
from pulsar_admin.store.db.environment import Store, Txn
from pulsar_admin.store.db.ledger_ids import put_next_ledger_id
from pulsar_admin.store.db.owners import find_owners
from pulsar_admin.store.db.tree import Node, find_node, iter_upwards, put_imported
from pulsar_admin.store.errors import LimitExceeded, MetadataCorrupt, Refused, StalePlan, stale
from pulsar_admin.store.model.resources import Bundle, local_policies_path, topic_hash
from pulsar_admin.store.names import NamespaceName, TopicName, parse_owner, topic_of_path
from pulsar_admin.store.sources import ensemble
from pulsar_admin.store.sources.roots import stored_roots
from pulsar_admin.store.transfer import exports
from pulsar_admin.store.wording import Answer, counted, listed

COMMAND = "store export zookeeper"
_BROKERS = "/loadbalance/brokers"
_OWNERS = "/namespace"
_HINT_MOVED = "refresh the store (pulsar-admin store refresh), undo the change if both changed the node, and repeat it"


class EnsembleExportReport(Answer, frozen=True, rename="camel"):
    """What an export wrote into an ensemble, or with ``dry_run`` would write. ``written``: nodes that had their values already.

    ``bytes``: of the one transaction; ``zxid``: its number, in hexadecimal, None where nothing was written. ``next_ledger_id``: what the
    ensemble's counter of ledgers is raised to, None: it stays.
    """

    target: str
    nodes: tuple[exports.NodeExported, ...]
    written: tuple[str, ...]
    next_ledger_id: int | None
    bytes: int
    zxid: str | None
    dry_run: bool


class EnsemblePlan(Struct, exports.Previewed, frozen=True):
    """The plan of an export into the ensemble at ``address``. ``written``: nodes that an interrupted export wrote."""

    address: ensemble.Address
    txn_id: int
    nodes: tuple[exports.ChangedNode, ...]
    written: tuple[exports.ChangedNode, ...]
    holds: tuple[str, ...]  # owner nodes of the topics' bundles, none of which exists, with their missing parents
    parents: tuple[str, ...]  # missing parents of nodes to create
    next_ledger_id: int | None  # which the ensemble is to give then; None: it brings no ledger of ours
    size_bytes: int
    limit_bytes: int

    @property
    def loses(self) -> str:
        return f"{counted(len(self.nodes), 'metadata node')} of {self.address} will be written" if self.nodes else ""

    def report(self, *, dry_run: bool, zxid: int | None = None) -> EnsembleExportReport:
        return EnsembleExportReport(
            target=str(self.address),
            nodes=exports.nodes_exported(self.nodes),
            written=tuple(node.path for node in self.written),
            next_ledger_id=self.next_ledger_id,
            bytes=self.size_bytes,
            zxid=None if zxid is None else f"{zxid:#x}",
            dry_run=dry_run,
        )


def plan_ensemble_export(
    store: Store, address: ensemble.Address, login: ensemble.Client, limit_bytes: int
) -> EnsemblePlan:
    """Plan an export to an ensemble whose servers take requests of ``limit_bytes``; reads the store and the ensemble, writes neither.

    If the address names no chroot, the changes go to the cluster's original path. Raises StalePlan for a node that
    changed, Refused for a topic that a broker owns and for ledgers that no bookie has, LimitExceeded.
    """
    roots = stored_roots(store.info)
    if address.chroot in ("", roots.chroot):
        address = address.at(roots)
    with ensemble.open_session(address, login) as session:
        return _plan(store, session, limit_bytes)


def _plan(store: Store, session: ensemble.Session, limit_bytes: int) -> EnsemblePlan:
    with store.read() as txn:
        intent, _ = export_intent.find_intent(txn)
        changed = {node.path: node for node in exports.iter_changed_nodes(txn)}
        live = session.find_nodes({*changed, *intent, INSTANCE_ID})
        ours, theirs = find_node(txn, INSTANCE_ID), live.get(INSTANCE_ID)
        if _value(ours) != _value(theirs):
            raise Refused(
                f"{session.address} is not the cluster that was imported: {INSTANCE_ID} is {_value(theirs)!r}, the store's"
                f" {_value(ours)!r}",
                hint="name the ensemble that was imported, with its chroot",
            )
        written = []
        for path, raw in intent.items():
            wanted, present = export_intent.intended_node(path, raw), live.get(path)
            if exports.state_of(wanted) == exports.state_of(present):
                written.append(exports.ChangedNode(path, present, find_node(txn, path)))
        for node in written:
            changed.pop(node.path, None)
            if _value(node.imported) != _value(node.current):
                changed[node.path] = node
        nodes = tuple(changed[path] for path in sorted(changed))
        for node in nodes:
            now = live.get(node.path)
            imported = node.imported
            is_same = imported is None or now is None or imported.stat.created_ms == now.stat.created_ms
            if exports.state_of(imported) != exports.state_of(now) or not is_same:
                raise _moved(
                    session, node.path, f"expected {exports.state_text(imported)}, found {exports.state_text(now)}"
                )
        exports.check_entries_are_there(txn, nodes)
        bundles = set(_free_bundles(session, _topics_of(txn, nodes)))
        holds = (*_absent_parents(session, bundles), *sorted(bundles))
        parents = tuple(_absent_parents(session, {node.path for node in nodes if node.action == "create"}))
        next_id = _next_ledger_id(txn, session, nodes)
        plan = EnsemblePlan(session.address, txn.id, nodes, tuple(written), holds, parents, next_id, 0, limit_bytes)
    size = ensemble.Transaction(session, _writes(plan)).size_bytes if nodes else 0
    if size > limit_bytes:
        raise LimitExceeded(
            f"the change is one transaction of {size:,} bytes ({counted(len(nodes), 'node')}); servers take {limit_bytes:,}",
            hint="name the servers' jute.maxbuffer with --jute-maxbuffer, or make fewer changes between exports",
            size=size,
            limit=limit_bytes,
        )
    return replace(plan, size_bytes=size)


def _next_ledger_id(txn: Txn, session: ensemble.Session, nodes: Iterable[exports.ChangedNode]) -> int | None:
    """Return the ledger id from which the ensemble must continue: after those of the nodes. Raises StalePlan if the
    ensemble allocated one of ours itself."""
    own = own_ledgers.find_own_ledgers(txn)
    created = (ledger_id_of_path(node.path) for node in nodes if node.action == "create")
    largest = max((ledger_id for ledger_id in created if ledger_id is not None), default=-1)
    if own is None or largest < own.first_id:
        # The ensemble may know no id of ledgers that were created again, as its state is older.
        return own_ledgers.largest_ledger_id(txn) + 1 if 0 <= ensemble.ledger_sequence(session) <= largest else None
    own_ledgers.sequence_after_export(own, ensemble.ledger_sequence(session), str(session.address))
    return own.next_id


# -- what moved -------------------------------------------------------------------------------------------------------


def _value(node: Node | None) -> bytes | None:
    return None if node is None else node.value


def _moved(session: ensemble.Session, path: str, what: str) -> StalePlan:
    return StalePlan(
        f"{session.address}: {path} is no longer as imported: {what}; nothing was written", hint=_HINT_MOVED, path=path
    )


# -- who owns it ------------------------------------------------------------------------------------------------------


def _topics_of(txn: Txn, nodes: Iterable[exports.ChangedNode]) -> set[TopicName]:
    """Return the topics whose metadata or cursors are among the nodes; a broker that serves one has them in memory."""
    topics = set()
    for node in nodes:
        parent = node.path.rpartition("/")[0]
        ledger_id = ledger_id_of_path(node.path)
        if ledger_id is not None:
            topics |= {parse_owner(owner.topic) for owner in find_owners(txn, ledger_id)}
        elif topic := topic_of_path(node.path) or topic_of_path(parent):
            topics.add(topic)
    return topics


def _free_bundles(session: ensemble.Session, topics: set[TopicName]) -> Iterator[str]:
    """Yield the paths of owner nodes of the topics' bundles; raises Refused if a broker owns one, naming the topic."""
    if not topics:
        return
    paths = [f"{_BROKERS}/{name}" for name in session.list_children(_BROKERS)]
    for path, node in session.find_nodes(paths).items():
        with suppress(MetadataCorrupt):
            manager = str(decode_json_object(node.value, path).get("loadManagerClassName"))
            if manager.endswith("ExtensibleLoadManagerImpl"):
                raise Refused(
                    f"broker {path.rpartition('/')[2]} is up and records in a topic of its own who serves "
                    f"{counted(len(topics), 'topic')} (ExtensibleLoadManagerImpl): nobody else can own them",
                    hint="stop the brokers",
                )
    for namespace in sorted({topic.namespace for topic in topics}, key=str):
        here = sorted((topic for topic in topics if topic.namespace == namespace), key=str)
        below = f"{_OWNERS}/{namespace}"
        owned = session.list_children(below)
        owners = session.find_nodes(f"{below}/{name}" for name in owned)
        served = [(topic, node) for topic in here for path, node in owners.items() if _holds(namespace, path, topic)]
        if served:
            names = listed((f"{topic} ({_broker(node)})" for topic, node in served), 5)
            raise Refused(
                f"{counted(len(served), 'topic is', 'topics are')} served by a broker: {names}",
                hint="stop the brokers, or stop the clients and unload the namespace on the live cluster (namespaces unload);"
                " a broker that was killed counts until its session ends (zooKeeperSessionTimeoutMillis, by default 30 s)",
                topics=[str(topic) for topic, _ in served[:100]],
            )
        yield from _bundle_paths(session, namespace, here)


def _broker(owner: Node) -> str:
    with suppress(MetadataCorrupt):
        data = decode_json_object(owner.value, owner.path)
        urls = (data.get(name) for name in ("nativeUrl", "nativeUrlTls", "httpUrl", "httpUrlTls"))
        return str(next(filter(None, urls), "of an owner without an address"))
    return "of an owner that cannot be read"


def _holds(namespace: NamespaceName, path: str, topic: TopicName) -> bool:
    """Whether a bundle contains a topic; a bundle whose name is not a range of hashes counts as containing all."""
    try:
        lower, upper = (int(bound, 16) for bound in path.rpartition("/")[2].split("_"))
    except ValueError:
        return True
    return Bundle(namespace, lower, upper).holds(topic_hash(topic))


def _bundle_paths(session: ensemble.Session, namespace: NamespaceName, topics: list[TopicName]) -> Iterator[str]:
    """Yield the paths where owners of the topics' bundles would be, by the ensemble's own policies."""
    nodes = session.find_nodes([local_policies_path(namespace), namespace.policies_path])
    bounds: list[str] = []
    for path in (local_policies_path(namespace), namespace.policies_path):
        if not bounds and path in nodes and nodes[path].value:
            bounds = [
                str(one)
                for one in (decode_json_object(nodes[path].value, path).get("bundles") or {}).get("boundaries") or ()
            ]
    for lower, upper in pairwise(bounds):
        if any(Bundle(namespace, int(lower, 16), int(upper, 16)).holds(topic_hash(topic)) for topic in topics):
            yield f"{_OWNERS}/{namespace}/{lower}_{upper}"


# -- the transaction --------------------------------------------------------------------------------------------------


def _absent_parents(session: ensemble.Session, created: set[str]) -> Iterator[str]:
    wanted = {parent for path in created for parent in iter_upwards(path)} - created
    yield from sorted(wanted - session.find_nodes(wanted).keys())


def _writes(plan: EnsemblePlan) -> list[ensemble.Write]:
    """Return the operations of a plan: parents before children, and deletions in reverse."""
    made = [ensemble.Write(path, b"", None) for path in plan.parents]
    made += (
        ensemble.Write(node.path, node.current.value, None) for node in plan.nodes if node.current and not node.imported
    )
    holds = [ensemble.Write(path, b"", None) for path in plan.holds]
    sets = [
        ensemble.Write(node.path, node.current.value, node.imported.stat.version)
        for node in plan.nodes
        if node.current and node.imported
    ]
    gone = [
        ensemble.Write(node.path, None, node.imported.stat.version)
        for node in plan.nodes
        if node.imported and not node.current
    ]
    return [
        *holds,
        *sorted(made, key=lambda write: write.path),
        *sets,
        *sorted(gone, key=lambda write: write.path, reverse=True),
        *(ensemble.Write(write.path, None, 0) for write in reversed(holds)),
    ]


def run_ensemble_export(store: Store, plan: EnsemblePlan, login: ensemble.Client, now_ms: int) -> EnsembleExportReport:
    """Write a plan, completely or not at all, then record it in the store; return the report with the zxid.

    Raises as planning, StalePlan if a node or an owner changed since, and SourceBusy if it is unknown whether the
    transaction was applied: the next export checks.
    """
    with ensemble.open_session(plan.address, login) as session:
        if plan.next_ledger_id is not None:
            # Before the ledgers are there: a topic's ledgers are in the order of their ids, so that the broker's next one must be above.
            ensemble.raise_ledger_sequence(session, plan.next_ledger_id)
        # Now that the counter is raised, a new plan would not raise it: the plans are compared without that.
        current = replace(_plan(store, session, plan.limit_bytes), next_ledger_id=plan.next_ledger_id)
        # Nodes without a value above others come and go: ZooKeeper deletes containers when they are empty.
        if replace(current, holds=plan.holds, parents=plan.parents, size_bytes=plan.size_bytes) != plan:
            raise stale(f"{store.path} or {plan.address}", "the export")
        plan = current
        zxid = _commit(store, session, plan) if plan.nodes else None
        live = session.find_nodes(node.path for node in plan.nodes)
        seen = zxid or session.zxid
    report = plan.report(dry_run=False, zxid=zxid)
    if plan.nodes or plan.written:

        def record(txn: Txn) -> None:
            # The written nodes are the base of the next export, with the server's times unless they were written
            # again since.
            for node in plan.written:
                put_imported(txn, node.path, node.imported)
            for node in plan.nodes:
                written = _written_node(node)
                if written is not None and exports.state_of(live.get(node.path)) == exports.state_of(written):
                    written = live[node.path]
                put_imported(txn, node.path, written)
            export_intent.delete_intent(txn)
            export_intent.put_exported_zxid(txn, seen)
            append_change(txn, now_ms, COMMAND, (to_builtins(report),))

        store.write(record)
    return report


def _commit(store: Store, session: ensemble.Session, plan: EnsemblePlan) -> int:
    next_id = plan.next_ledger_id
    if next_id is not None:

        def take_ids(txn: Txn) -> None:
            own_ledgers.put_own_ledgers(txn, own_ledgers.OwnLedgers(next_id, next_id))
            put_next_ledger_id(txn, next_id)

        store.write(take_ids)
    transaction = ensemble.Transaction(session, _writes(plan))
    store.write(lambda txn: _put_intent(txn, plan))
    try:
        return transaction.commit()
    except ensemble.Conflict as conflict:
        store.write(export_intent.delete_intent)
        raise _explained(session, plan, conflict) from conflict
    except Refused:
        store.write(export_intent.delete_intent)
        raise


def _explained(session: ensemble.Session, plan: EnsemblePlan, conflict: ensemble.Conflict) -> StalePlan | Refused:
    path = conflict.write.path
    if path in plan.holds:
        return Refused(
            f"{session.address}: {path} was made meanwhile: a broker became the owner of topics that the change "
            "affects; nothing was written",
            hint="stop the brokers, or unload the namespace and stop its clients",
        )
    if conflict.reason == "NotEmpty":
        return _moved(session, path, "it has child nodes that the store does not know")
    return _moved(session, path, f"the ensemble says {conflict.reason}")


def _written_node(node: exports.ChangedNode) -> Node | None:
    """Return a node as the ensemble has it after the export, with the server's times."""
    if node.current is None:
        return None
    version = 0 if node.imported is None else node.imported.stat.version + 1
    created = node.current.stat.created_ms if node.imported is None else node.imported.stat.created_ms
    return Node(node.path, node.current.stat._replace(version=version, created_ms=created), node.current.value)


def _put_intent(txn: Txn, plan: EnsemblePlan) -> None:
    for node in plan.written:
        put_imported(txn, node.path, node.imported)
    values = ((node.path, _written_node(node)) for node in plan.nodes)
    export_intent.put_intent(
        txn, {path: None if node is None else encode_value(node.stat, node.value) for path, node in values}, None
    )
