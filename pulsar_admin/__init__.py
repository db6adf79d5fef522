"""Ask and change a store from Python: ``import pulsar_admin as pa``, then ``pa.open_store(…)``.

The names in ``__all__`` are the public interface, and nothing else is; docs/api.md is a tutorial of it. Each is imported when it
is first used: the import of this package costs nothing, to the command line neither.
"""

TYPE_CHECKING = False  # not typing's: that import would cost more than this package
if TYPE_CHECKING:
    from pulsar_admin.api.columns import SparkTables, register
    from pulsar_admin.api.compaction import Compaction
    from pulsar_admin.api.cursors import Cursor, CursorPlace, Cursors
    from pulsar_admin.api.delayed import Delayed
    from pulsar_admin.api.disks import log_files, log_records, reclaim, verify_logs
    from pulsar_admin.api.imports import (
        create_store,
        fetch_bookie,
        import_bundle,
        import_cluster,
        import_standalone,
        import_tables,
        preview_import,
        read_bookie_conf,
    )
    from pulsar_admin.api.ledger import Ledger
    from pulsar_admin.api.messages import Messages
    from pulsar_admin.api.metadata import MetadataChange, diff, history
    from pulsar_admin.api.nacks import (
        DueNack,
        KeptNacks,
        Nacks,
        NackSizes,
        nack_sizes,
    )
    from pulsar_admin.api.namespace import Namespace
    from pulsar_admin.api.plan import Plan
    from pulsar_admin.api.policies import PolicyValue, TopicPolicies
    from pulsar_admin.api.recovering import preflight
    from pulsar_admin.api.reports import Change, ChangeReport
    from pulsar_admin.api.resources import Cluster
    from pulsar_admin.api.session import PartialData
    from pulsar_admin.api.store import Store, open_store
    from pulsar_admin.api.topic import SchemaVersion, Topic
    from pulsar_admin.api.transactions import CursorTransactions, TopicTransactions, Transactions
    from pulsar_admin.store.changes.plan import BrokerMove, ChangePart, Deletable, FutureDated, LedgerPart
    from pulsar_admin.store.dump.finding import FoundEntry
    from pulsar_admin.store.errors import (
        AlreadyExists,
        ChangeNotFound,
        Corrupt,
        EntryCorrupt,
        EntryNotFound,
        InvalidValue,
        LedgerNotFound,
        MetadataCorrupt,
        NamespaceNotFound,
        NotFound,
        NothingMatches,
        NotWritable,
        PathNotFound,
        Refused,
        StalePlan,
        StoreBusy,
        StoreError,
        StoreNotFound,
        SubscriptionNotFound,
        TenantNotFound,
        TopicNotFound,
        UndoConflict,
    )
    from pulsar_admin.store.model.cursors import Extent
    from pulsar_admin.store.names import Position

_ERRORS = "pulsar_admin.store.errors"
_HOMES = {
    "open_store": "pulsar_admin.api.store",
    "Store": "pulsar_admin.api.store",
    "import_bundle": "pulsar_admin.api.imports",
    "import_cluster": "pulsar_admin.api.imports",
    "import_standalone": "pulsar_admin.api.imports",
    "import_tables": "pulsar_admin.api.imports",
    "preview_import": "pulsar_admin.api.imports",
    "create_store": "pulsar_admin.api.imports",
    "read_bookie_conf": "pulsar_admin.api.imports",
    "fetch_bookie": "pulsar_admin.api.imports",
    "history": "pulsar_admin.api.metadata",
    "diff": "pulsar_admin.api.metadata",
    "MetadataChange": "pulsar_admin.api.metadata",
    "log_files": "pulsar_admin.api.disks",
    "log_records": "pulsar_admin.api.disks",
    "verify_logs": "pulsar_admin.api.disks",
    "Topic": "pulsar_admin.api.topic",
    "TopicPolicies": "pulsar_admin.api.policies",
    "CursorTransactions": "pulsar_admin.api.transactions",
    "TopicTransactions": "pulsar_admin.api.transactions",
    "Transactions": "pulsar_admin.api.transactions",
    "PolicyValue": "pulsar_admin.api.policies",
    "FoundEntry": "pulsar_admin.store.dump.finding",
    "Messages": "pulsar_admin.api.messages",
    "Cursor": "pulsar_admin.api.cursors",
    "CursorPlace": "pulsar_admin.api.cursors",
    "Cursors": "pulsar_admin.api.cursors",
    "Cluster": "pulsar_admin.api.resources",
    "Compaction": "pulsar_admin.api.compaction",
    "Delayed": "pulsar_admin.api.delayed",
    "Ledger": "pulsar_admin.api.ledger",
    "Namespace": "pulsar_admin.api.namespace",
    "KeptNacks": "pulsar_admin.api.nacks",
    "Nacks": "pulsar_admin.api.nacks",
    "DueNack": "pulsar_admin.api.nacks",
    "NackSizes": "pulsar_admin.api.nacks",
    "nack_sizes": "pulsar_admin.api.nacks",
    "SchemaVersion": "pulsar_admin.api.topic",
    "SparkTables": "pulsar_admin.api.columns",
    "preflight": "pulsar_admin.api.recovering",
    "reclaim": "pulsar_admin.api.disks",
    "register": "pulsar_admin.api.columns",
    "Plan": "pulsar_admin.api.plan",
    "ChangeReport": "pulsar_admin.api.reports",
    "ChangePart": "pulsar_admin.store.changes.plan",
    "Change": "pulsar_admin.api.reports",
    "BrokerMove": "pulsar_admin.store.changes.plan",
    "Deletable": "pulsar_admin.store.changes.plan",
    "FutureDated": "pulsar_admin.store.changes.plan",
    "LedgerPart": "pulsar_admin.store.changes.plan",
    "PartialData": "pulsar_admin.api.session",
    "Position": "pulsar_admin.store.names",
    "Extent": "pulsar_admin.store.model.cursors",
    "StoreError": _ERRORS,
    "AlreadyExists": _ERRORS,
    "Corrupt": _ERRORS,
    "InvalidValue": _ERRORS,
    "NotFound": _ERRORS,
    "NamespaceNotFound": _ERRORS,
    "MetadataCorrupt": _ERRORS,
    "LedgerNotFound": _ERRORS,
    "EntryNotFound": _ERRORS,
    "EntryCorrupt": _ERRORS,
    "ChangeNotFound": _ERRORS,
    "NothingMatches": _ERRORS,
    "NotWritable": _ERRORS,
    "PathNotFound": _ERRORS,
    "Refused": _ERRORS,
    "StalePlan": _ERRORS,
    "StoreBusy": _ERRORS,
    "StoreNotFound": _ERRORS,
    "SubscriptionNotFound": _ERRORS,
    "TenantNotFound": _ERRORS,
    "TopicNotFound": _ERRORS,
    "UndoConflict": _ERRORS,
}

__all__ = [
    "AlreadyExists",
    "BrokerMove",
    "Change",
    "ChangeNotFound",
    "ChangePart",
    "ChangeReport",
    "Cluster",
    "Compaction",
    "Corrupt",
    "Cursor",
    "CursorPlace",
    "CursorTransactions",
    "Cursors",
    "Delayed",
    "Deletable",
    "DueNack",
    "EntryCorrupt",
    "EntryNotFound",
    "Extent",
    "FoundEntry",
    "FutureDated",
    "InvalidValue",
    "KeptNacks",
    "Ledger",
    "LedgerNotFound",
    "LedgerPart",
    "Messages",
    "MetadataChange",
    "MetadataCorrupt",
    "NackSizes",
    "Nacks",
    "Namespace",
    "NamespaceNotFound",
    "NotFound",
    "NotWritable",
    "NothingMatches",
    "PartialData",
    "PathNotFound",
    "Plan",
    "PolicyValue",
    "Position",
    "Refused",
    "SchemaVersion",
    "SparkTables",
    "StalePlan",
    "Store",
    "StoreBusy",
    "StoreError",
    "StoreNotFound",
    "SubscriptionNotFound",
    "TenantNotFound",
    "Topic",
    "TopicNotFound",
    "TopicPolicies",
    "TopicTransactions",
    "Transactions",
    "UndoConflict",
    "create_store",
    "diff",
    "fetch_bookie",
    "history",
    "import_bundle",
    "import_cluster",
    "import_standalone",
    "import_tables",
    "log_files",
    "log_records",
    "nack_sizes",
    "open_store",
    "preflight",
    "preview_import",
    "read_bookie_conf",
    "reclaim",
    "register",
    "verify_logs",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__]
