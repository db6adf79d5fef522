"""Rules about metadata nodes of every kind, and about journals that are missing beside them."""

from collections.abc import Iterator

from pulsar_admin.store.codec.ledgermetadata import ledger_id_of_path, ledger_path
from pulsar_admin.store.db.files import WHOLE_METADATA, iter_metadata_damage
from pulsar_admin.store.db.tree import decode_node
from pulsar_admin.store.errors import IndexCorrupt, StoreError, Unsupported
from pulsar_admin.store.facts.cluster import ClusterFacts
from pulsar_admin.store.facts.values import iter_unusual
from pulsar_admin.store.model.coverage import find_absent_journals
from pulsar_admin.store.model.nodes import decode_structure, structure_of
from pulsar_admin.store.names import topic_of_path
from pulsar_admin.store.rules.finding import Finding, Severity
from pulsar_admin.store.rules.rule import Sweep
from pulsar_admin.store.rules.words import NO_HAND, PREVENT, UNSEEN

_NODES = Sweep[ClusterFacts]("the metadata")
_JOURNALS = Sweep[ClusterFacts]("the journals")
NODE_SWEEPS = _NODES, _JOURNALS

NODE_DAMAGED = _NODES.row(
    "node-damaged",
    Severity.CRITICAL,
    "A metadata node of the store is damaged",
    "A row of the metadata tree cannot be read. The topic, cursor or policy of that path is missing in every answer.",
    UNSEEN,
    "pulsar-admin store refresh",
    "Read the source's metadata again.",
    PREVENT,
    scope="store",
)
NAME_NOT_ENCODED = _NODES.row(
    "name-not-encoded",
    Severity.WARNING,
    "No topic name leads to this node",
    "The node's name is not encoded as Pulsar encodes names. An old version or another program created it.",
    "Never finds it, and creates a new, empty topic of that name.",
    "pulsar-admin store cat {where}",
    "Read it in place. No command moves it.",
)
VALUE_UNDECODABLE = _NODES.row(
    "value-undecodable",
    Severity.CRITICAL,
    "A metadata value cannot be decoded",
    "The bytes of a node are not in Pulsar's format. The evidence names the node.",
    "Everything that depends on the node fails: a topic does not load, a policy is not read.",
    "pulsar-admin store cat {where} --hex",
    "Look at the value. Restore an earlier one from ZooKeeper's logs (`store history`) or a backup. `ledgers restore` rebuilds that of a "
    "ledger.",
    NO_HAND,
)
METADATA_INCOMPLETE = _NODES.row(
    "metadata-incomplete",
    Severity.CRITICAL,
    "The metadata is incomplete",
    "A file of the metadata store is damaged or missing: topics, cursors or ledgers in it may be missing or "
    "outdated here.",
    "RocksDB refuses to open a damaged database, but opens one with a damaged write-ahead log, without the changes after "
    "the damage. ZooKeeper refuses to start on a damaged snapshot or log.",
    "pulsar-admin store refresh",
    "Provide intact files (from another server of the ensemble, or a backup) and refresh. Do not start bookies"
    " on this metadata: they delete what it does not list.",
    "Copy metadata from a stopped server, or from several servers.",
)
JOURNAL_ABSENT = _JOURNALS.row(
    "journal-absent",
    Severity.WARNING,
    "The journal of a bookie was not imported",
    "Entries that were acknowledged and are not yet in an entry log exist only in the journal. Ledgers are "
    "open or lack entries.",
    "A bookie replays its journal when it starts; without it these entries are lost.",
    "pulsar-admin store refresh",
    "Copy the journal directory (`*.txn`), then refresh, or add it with `store add bookie`. If it is lost for good, `store salvage` puts "
    "the mark aside that points into it; a refresh, or `store add bookie` with an empty directory in a `--bookie-conf` if none was given, "
    "then calls lost what only the journal had.",
    "Back up journal and ledger directories together.",
)


@_NODES.by
def _check_nodes(facts: ClusterFacts) -> Iterator[Finding]:
    """Check that every row of the tree, and every value of a known structure, can be read."""
    txn = facts.reader.txn
    for key, row in iter_unusual(txn):
        try:
            node = decode_node(key, row)
        except IndexCorrupt as error:
            yield NODE_DAMAGED.of(error, f"tree {key.decode(errors='backslashreplace')}")
            continue
        topic = topic_of_path(node.path)
        if topic is not None and topic.path != node.path:
            yield NAME_NOT_ENCODED.at(node.path, f"the node of {topic} would be {topic.path}: no topic name leads to this one",
                "read it with: pulsar-admin store cat PATH",
            )  # fmt: skip
        # ``store.rules.copies`` decodes the metadata of ledgers, once for all that asks for it.
        ledger_id = ledger_id_of_path(node.path)
        is_of_ledger = ledger_id is not None and ledger_path(ledger_id) == node.path
        if structure_of(node.path, node.value) is not None and not is_of_ledger:
            try:
                decode_structure(node.path, node.value)
            except Unsupported:
                continue  # the rule of values that are not known here tells
            except StoreError as error:
                yield VALUE_UNDECODABLE.of(error, node.path)
    try:
        for damage in iter_metadata_damage(txn):
            if damage.offset >= WHOLE_METADATA:
                hint = "answers that depend on it may be incomplete or outdated: restore intact files, then run: pulsar-admin store refresh"
                yield METADATA_INCOMPLETE.at("metadata store", damage.reason, hint)
            else:
                hint = "the value was not imported: restore intact files, then run: pulsar-admin store refresh"
                yield VALUE_UNDECODABLE.at("metadata store", damage.reason, hint, "pulsar-admin store refresh")
    except IndexCorrupt:
        return  # the catalogue's check tells


@_JOURNALS.by
def _check_journals(facts: ClusterFacts) -> Iterator[Finding]:
    """Tell of bookies without a journal whose last entries may have been there only."""
    try:
        absent = find_absent_journals(facts.reader.txn)
    except IndexCorrupt:
        return  # the catalogue's check tells
    if absent is not None:
        yield JOURNAL_ABSENT.at(
            "journals", absent.text(), absent.hint(), absent.command(), bookies=list(absent.bookies)
        )
