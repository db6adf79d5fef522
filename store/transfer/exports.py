"""``store export standalone``: the store's changes back into a Pulsar data directory, so that a real broker starts on
them.

Only nodes whose value differs from the imported one (kept in database ``base``) are written, each with its RocksDB
header's version raised by one. If a node in the target is no longer as imported, the export stops before it writes
anything, unless the node has the value that an interrupted export in place meant to write (database ``state``). Ledgers
that this toolkit wrote go into the bookie first (``store.transfer.ledger_export``), then their metadata nodes.
"""

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from msgspec import Struct, field, to_builtins
from msgspec.structs import replace

from pulsar_admin.store.changes.plan import apply_plan
from pulsar_admin.store.changes.topics import plan_annotate
from pulsar_admin.store.codec.ledgermetadata import ledger_id_of_path
from pulsar_admin.store.codec.rocksvalue import NodeStat, decode_value, encode_counter, encode_value
from pulsar_admin.store.db.audit_log import append_change
from pulsar_admin.store.db.entry_files import EntryFiles
from pulsar_admin.store.db.environment import Store, Txn
from pulsar_admin.store.db.export_intent import Intent, delete_intent, find_intent, intended_node, put_intent
from pulsar_admin.store.db.files import FileMode, find_log
from pulsar_admin.store.db.ledger_ids import put_next_ledger_id
from pulsar_admin.store.db.own_ledgers import SEQUENCE_KEY, OwnLedgers, find_own_ledgers, find_placed, put_own_ledgers
from pulsar_admin.store.db.tree import Node, decode_node, find_imported, find_node, put_imported, tree_key
from pulsar_admin.store.errors import MetadataCorrupt, Refused, SourceNotFound, StalePlan, Unsupported, stale
from pulsar_admin.store.files import check_copyable, check_may_write_for, check_new, copy_tree, new_directory
from pulsar_admin.store.model.ledgers import find_metadata, iter_blocks
from pulsar_admin.store.model.publish_times import Form, annotated_value
from pulsar_admin.store.model.topics import iter_topics
from pulsar_admin.store.sources import rocksdb
from pulsar_admin.store.sources.layout import StandaloneDirectory, find_standalone
from pulsar_admin.store.transfer import ledger_export
from pulsar_admin.store.wording import Answer, counted, listed, plural

_TO_ZOOKEEPER = (
    "write the changes into the live ensemble: pulsar-admin store export zookeeper HOST:PORT; or make a snapshot that a server starts on:"
    " pulsar-admin store export zookeeper-snapshot DIR"
)


class ChangedNode(Struct, frozen=True):
    """A node to write: its imported value and the store's present one (None: it does not exist)."""

    path: str
    imported: Node | None
    current: Node | None

    @property
    def action(self) -> str:
        if self.current is None:
            return "delete"
        return "create" if self.imported is None else "update"


class NodeExported(Answer, frozen=True):
    """A metadata node of an export. ``action``: create, update or delete."""

    path: str
    action: str


class ExportReport(Answer, frozen=True, rename="camel"):
    """What an export wrote, or with ``dry_run`` would write. ``problems``: of the source's metadata."""

    source: str
    target: str
    in_place: bool
    nodes: tuple[NodeExported, ...]
    ledgers: tuple[ledger_export.LedgerExported, ...]
    problems: tuple[str, ...]
    dry_run: bool


class Previewed:
    """The common part of all exports' plans: a report for dry runs. There is no plan file, because it could not contain every byte."""

    __slots__ = ()

    def report(self, *, dry_run: bool) -> Answer:
        """Return the report of the export, or with ``dry_run`` of what it would do."""
        raise AssertionError

    def preview(self) -> object:
        """Return what ``--dry-run`` shows."""
        return self.report(dry_run=True)


class ExportPlan(Struct, Previewed, frozen=True):
    """The plan of an export. ``source`` is copied to ``target`` first unless the export is in place."""

    source: Path
    target: Path
    in_place: bool
    nodes: tuple[ChangedNode, ...] = ()
    ledgers: ledger_export.LedgerExport = field(default_factory=ledger_export.LedgerExport)
    problems: tuple[str, ...] = ()  # of the source's metadata; its readable part is in the target
    annotate: Form | None = None
    now_ms: int = 0

    @property
    def loses(self) -> str:
        if not self.in_place or not self.nodes:
            return ""
        return f"{counted(len(self.nodes), 'metadata node')} of {self.target} {plural(len(self.nodes), 'gets', 'get')} new values"

    def report(self, *, dry_run: bool) -> ExportReport:
        return ExportReport(
            source=str(self.source),
            target=str(self.target),
            in_place=self.in_place,
            nodes=nodes_exported(self.nodes),
            ledgers=self.ledgers.ledgers,
            problems=self.problems,
            dry_run=dry_run,
        )


def nodes_exported(nodes: Iterable[ChangedNode]) -> tuple[NodeExported, ...]:
    """Return the nodes as a report names them."""
    return tuple(NodeExported(node.path, node.action) for node in nodes)


def state_of(node: Node | None) -> tuple[int, bytes] | None:
    """Return (version, value) of a node, None if it does not exist: two states of a node differ in it."""
    return None if node is None else (node.stat.version, node.value)


def state_text(node: Node | None) -> str:
    """Return a node's version and size in words."""
    return "nothing" if node is None else f"version {node.stat.version} of {len(node.value)} bytes"


def iter_changed_nodes(txn: Txn) -> list[ChangedNode]:
    """Return the nodes whose value is not the imported one, in path order."""
    changed = []
    for key, row in txn.items("base"):
        imported = decode_node(key, row) if len(row) else None
        now = txn.get("tree", key)
        current = None if now is None else decode_node(key, now)
        node = imported or current
        if node is not None and (imported is None or current is None or imported.value != current.value):
            changed.append(ChangedNode(node.path, imported, current))
    return changed


def check_entries_are_there(txn: Txn, nodes: Iterable[ChangedNode]) -> None:
    """Raise Refused if nodes include metadata of ledgers that this toolkit wrote and no bookie has the entries."""
    placed = find_placed(txn)
    ours = [
        ledger_id
        for node in nodes
        for ledger_id in _new_ledger(node)
        if is_own(txn, ledger_id) and placed.get(ledger_id) != _members(txn, ledger_id)
    ]
    if ours:
        raise Refused(
            f"{counted(len(ours), 'ledger was', 'ledgers were')} written by this toolkit and no bookie has the entries: {listed(ours, 5)}",
            hint="put them on bookies first: pulsar-admin store export bookie ID=DIR; or undo the change that wrote them, see"
            " pulsar-admin store log",
            ledgers=ours[:100],
        )


def is_own(txn: Txn, ledger_id: int) -> bool:
    """Whether this toolkit wrote a ledger: its id is one of ours, or its entries are in a file of the store's own.

    A refresh also finds the entries in logs of bookies, once they were exported there.
    """
    own = find_own_ledgers(txn)
    if own is not None and own.first_id <= ledger_id < own.next_id:
        return True
    block = next(iter_blocks(txn, ledger_id), None)
    log = None if block is None else find_log(txn, block.place(0)[0])
    return log is not None and log.mode is FileMode.OWN


def _members(txn: Txn, ledger_id: int) -> tuple[str, ...]:
    """Return the bookies that the ledger's metadata names."""
    metadata = find_metadata(txn, ledger_id)
    return metadata.segments[0].members if metadata else ()


def plan_export(
    store: Store, target: Path, *, in_place: bool, annotate: Form | None = None, now_ms: int = 0
) -> ExportPlan:
    """Plan an export to a directory; raises AlreadyExists, SourceNotFound, SourceBusy, StalePlan, Refused before anything is written.

    With ``annotate`` the copy's ledgers get PIP-345's publish times in that form; the store does not: in place such a
    plan is only a preview.
    """
    if not store.info.sources:
        raise SourceNotFound(
            f"{store.path} was not imported from a Pulsar directory",
            hint="import one: pulsar-admin store import standalone DIR",
        )
    if store.info.sources[0]["kind"] != "standalone":
        raise Unsupported(
            f"{store.path} was imported from the parts of a cluster: there is no standalone directory to write",
            hint=_TO_ZOOKEEPER,
        )
    source = Path(store.info.sources[0]["path"])
    if not in_place:
        check_new(target, "name a new directory, or use --in-place to write the changes into this one")
        if target.resolve().is_relative_to(source.resolve()):
            raise Refused(
                f"{target} is inside {source}, which would be copied into itself", hint="name a directory elsewhere"
            )
        check_copyable(source)
    metadata = find_standalone(target if in_place else source).metadata
    if not rocksdb.is_rocksdb(metadata):
        raise Unsupported(
            f"{metadata} is ZooKeeper's, whose files only a server writes", hint=_TO_ZOOKEEPER, path=str(metadata)
        )
    rocksdb.check_unlocked(metadata)
    return _plan(store, ExportPlan(source, target, in_place, annotate=annotate, now_ms=now_ms))


def _plan(store: Store, request: ExportPlan) -> ExportPlan:
    """Return the request with everything that is to be written; opens no file LOCK, so that it can be called under the locks."""
    layout = find_standalone(request.target if request.in_place else request.source)
    with store.read() as txn:
        intent, sequence = find_intent(txn)
        nodes = _since_stopped(txn, layout.metadata, iter_changed_nodes(txn), intent)
        if request.annotate is not None:
            nodes = _annotated(txn, nodes, request.annotate, request.now_ms)
        problems = _check_unmoved(layout.metadata, nodes)
        if problems and not request.in_place:
            _check_whole(txn, layout.metadata)
        created = [ledger_id for node in nodes for ledger_id in _new_ledger(node)]
        ledgers = ledger_export.plan_ledger_export(txn, layout, created, problems, sequence)
    if request.in_place:
        if problems:
            raise rocksdb.damaged_in_place(problems)
        for database in _databases(ledgers, layout) if nodes else ():
            check_may_write_for(database / "CURRENT")
    return replace(request, nodes=nodes, ledgers=ledgers, problems=tuple(problems))


def _databases(ledgers: ledger_export.LedgerExport, layout: StandaloneDirectory) -> list[Path]:
    return [layout.metadata, *ledger_export.databases_of(ledgers, layout.root)]


def _annotated(txn: Txn, nodes: tuple[ChangedNode, ...], form: Form, now_ms: int) -> tuple[ChangedNode, ...]:
    """Return the nodes, and every topic whose value the annotation changes."""
    changed = {node.path: node for node in nodes}
    for name in iter_topics(txn):
        current = find_node(txn, name.path)
        if current is None:  # only its subscriptions exist: no list to write to
            continue
        value = annotated_value(txn, current.path, current.value, form)
        if value != current.value:
            stat = current.stat._replace(modified_ms=now_ms)
            imported = find_imported(txn, name.path)
            changed[name.path] = ChangedNode(name.path, imported, Node(name.path, stat, value))
    return tuple(changed[path] for path in sorted(changed))


def _new_ledger(node: ChangedNode) -> list[int]:
    """Return, in a list, the id of the ledger that a node creates in the target; empty for any other node."""
    ledger_id = ledger_id_of_path(node.path) if node.action == "create" else None
    return [] if ledger_id is None else [ledger_id]


def _since_stopped(txn: Txn, metadata: Path, nodes: list[ChangedNode], intent: Intent) -> tuple[ChangedNode, ...]:
    """Return the nodes to write, after an interrupted export in place also those that it wrote and that have another
    value by now.

    They are changes of what the interrupted export left in the target.
    """
    if not intent:
        return tuple(nodes)
    values = rocksdb.read_values(metadata, [path.encode() for path in intent])
    changed = {node.path: node for node in nodes}
    for path, raw in intent.items():
        if values.get(path.encode()) != raw or (path in changed and _new_value(changed[path]) == raw):
            continue
        current = find_node(txn, path)
        written = intended_node(path, raw)
        if (written and written.value) != (current and current.value):
            changed[path] = ChangedNode(path, written, current)
        else:
            changed.pop(path, None)
    return tuple(changed[path] for path in sorted(changed))


def _check_unmoved(metadata: Path, nodes: tuple[ChangedNode, ...]) -> list[str]:
    """Return the damage of the target's metadata; raises StalePlan unless every node is as imported, or has its new
    value.

    An export that was interrupted before it was recorded in the store leaves new values.
    """
    problems: list[str] = []
    wanted = {node.path.encode() for node in nodes}
    with rocksdb.open_for_reading(metadata, problems) as pairs:
        values = {key: value for key, value in pairs if key in wanted}
    for node in nodes:
        raw = values.get(node.path.encode())
        if raw == _new_value(node):
            continue
        found_node = intended_node(node.path, raw)
        if state_of(found_node) != state_of(node.imported):
            raise StalePlan(
                f"{metadata}: {node.path} is no longer what was imported:"
                f" expected {state_text(node.imported)}, found {state_text(found_node)}",
                hint="import it into another directory (--store NEW) and make the change there; keep this store, `store log` lists its"
                " changes",
                path=node.path,
            )
    return problems


def _check_whole(txn: Txn, metadata: Path) -> None:
    """Raise MetadataCorrupt if the readable part of damaged metadata lacks an imported node."""
    with rocksdb.open_for_reading(metadata) as pairs:
        values = {tree_key(key.decode("utf-8", "replace")): value for key, value in pairs if key.startswith(b"/")}
    base = {key: bytes(row) for key, row in txn.items("base")}
    imported = {**{key: bytes(row) for key, row in txn.items("tree")}, **base}
    lost = [
        node.path for key, row in imported.items() if row and _is_lost(node := decode_node(key, row), values.get(key))
    ]
    if lost:
        raise MetadataCorrupt(
            f"{metadata} is damaged, and {counted(len(lost), 'node is', 'nodes are')} not what was imported: first {lost[0]}",
            hint="keep this store: it has them; restore an undamaged copy of the directory and export again",
            path=str(metadata),
            lost=lost[:100],
        )


def _is_lost(imported: Node, raw: bytes | None) -> bool:
    if raw is None:
        return True
    stat, value = decode_value(raw, imported.path)
    return stat.version < imported.stat.version or (stat.version == imported.stat.version and value != imported.value)


def apply_export(store: Store, plan: ExportPlan, now_ms: int) -> ExportReport:
    """Write a plan: copy (unless in place), write ledgers, then the changed nodes, then the audit log; return the report.

    Raises StalePlan if the store or the target changed since, SourceBusy if a process opened the target.
    """
    if plan.in_place:
        layout = find_standalone(plan.target)
        with ExitStack() as locks:
            for database in _databases(plan.ledgers, layout) if plan.nodes else ():
                locks.enter_context(rocksdb.lock_database(database))
            _check_current(store, plan)
            store.write(lambda txn: _put_intent(txn, plan))
            _apply_to(store, plan, plan.target)
            store.write(lambda txn: _record(txn, plan, now_ms))
        return plan.report(dry_run=False)
    _check_current(store, plan)
    with new_directory(plan.target) as unfinished:
        copy_tree(plan.source, unfinished)
        rocksdb.check_unlocked(find_standalone(plan.source).metadata)  # nobody may have written while it was copied
        _apply_to(store, plan, unfinished)
    return plan.report(dry_run=False)


def run_export(store: Store, plan: ExportPlan, now_ms: int) -> ExportReport:
    """Apply a plan as ``apply_export`` does; in place after a backup of the store, and with its annotation first as a
    change of the store."""
    if plan.in_place:
        store.back_up()
    if plan.in_place and plan.annotate is not None:
        with store.read() as txn:
            change = plan_annotate(txn, iter_topics(txn), plan.annotate, now_ms)
        if change.steps:
            apply_plan(store, change, now_ms)
        plan = plan_export(store, plan.target, in_place=True)
    return apply_export(store, plan, now_ms)


def _check_current(store: Store, plan: ExportPlan) -> None:
    if _plan(store, plan) != plan:
        raise stale(f"{store.path} or {plan.target if plan.in_place else plan.source}", "the export")


def _apply_to(store: Store, plan: ExportPlan, root: Path) -> None:
    source = None if plan.in_place else plan.source
    if plan.ledgers.ledgers:
        with store.read() as txn, EntryFiles(store, txn) as files:
            ledger_export.apply_ledger_export(files, txn, plan.ledgers, root, source)
    values = {node.path.encode(): _new_value(node) for node in plan.nodes}
    if plan.ledgers.sequence is not None:
        values[SEQUENCE_KEY] = encode_counter(plan.ledgers.sequence)
    rows = sorted(values.items())
    if rows or plan.problems:
        original = None if source is None else find_standalone(source).metadata
        rocksdb.apply_changes(find_standalone(root).metadata, lambda: rows, original)


def _new_stat(node: ChangedNode) -> NodeStat:
    assert node.current is not None
    if node.imported is None:
        return node.current.stat._replace(version=0)
    return node.imported.stat._replace(
        version=node.imported.stat.version + 1, modified_ms=node.current.stat.modified_ms
    )


def _new_value(node: ChangedNode) -> bytes | None:
    return None if node.current is None else encode_value(_new_stat(node), node.current.value)


def _put_intent(txn: Txn, plan: ExportPlan) -> None:
    """Record the old and new values of a plan: after an interruption, each node of the target has one of the two."""
    for node in plan.nodes:
        put_imported(txn, node.path, node.imported)
    if plan.ledgers.own is not None:
        put_own_ledgers(txn, plan.ledgers.own)
    put_intent(txn, {node.path: _new_value(node) for node in plan.nodes}, plan.ledgers.sequence)


def _record(txn: Txn, plan: ExportPlan, now_ms: int) -> None:
    """Record the nodes written in place as the base of the next export."""
    for node in plan.nodes:
        written = None if node.current is None else Node(node.path, _new_stat(node), node.current.value)
        put_imported(txn, node.path, written)
    delete_intent(txn)
    own = plan.ledgers.own
    if own is not None:
        # The target has these ids now: its own may follow them.
        put_own_ledgers(txn, OwnLedgers(own.next_id, own.next_id))
        put_next_ledger_id(txn, own.next_id)
    append_change(txn, now_ms, "store export standalone --in-place", (to_builtins(plan.report(dry_run=False)),))
