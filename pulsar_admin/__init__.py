"""Ask and change a store from Python: ``import pulsar_admin as pa``, then ``pa.open_store(…)``.

The names in ``__all__`` are the public interface, and nothing else is; docs/api.md is a tutorial of it. Each is imported when it
is first used: the import of this package costs nothing, to the command line neither.
"""

TYPE_CHECKING = False  # not typing's: that import would cost more than this package
if TYPE_CHECKING:
    from pulsar_admin.api.cursors import Cursor, CursorPlace, Cursors
    from pulsar_admin.api.files import MetadataChange, diff, history, log_files, log_records, reclaim, verify_logs
    from pulsar_admin.api.ledgers import Ledger, preflight
    from pulsar_admin.api.messages import Batches, MessageRecord, Messages, SparkTables, register
    from pulsar_admin.api.namespaces import BundleTopics, Cluster, Namespace
    from pulsar_admin.api.pending import (
        CursorTransactions,
        Delayed,
        DueNack,
        KeptNacks,
        Nacks,
        NackSizes,
        TopicTransactions,
        Transactions,
        nack_sizes,
    )
    from pulsar_admin.api.plan import Plan
    from pulsar_admin.api.reports import Change, ChangeReport
    from pulsar_admin.api.session import PartialData
    from pulsar_admin.api.store import Store, open_store
    from pulsar_admin.api.topics import Compaction, PolicyValue, SchemaVersion, Topic, TopicPolicies
    from pulsar_admin.api.transfers import (
        create_store,
        fetch_bookie,
        import_bundle,
        import_cluster,
        import_standalone,
        import_tables,
        preview_import,
        read_bookie_conf,
    )
    from pulsar_admin.store.changes.plan import (
        BrokerMove,
        ChangePart,
        CompactionDetails,
        Deletable,
        ExpiryDetails,
        FutureDated,
        LedgerPart,
        MoveBasis,
        SplitIndex,
        Step,
    )
    from pulsar_admin.store.changes.policies import DelayedPolicy
    from pulsar_admin.store.codec.policies import PartitionedTopic, Policies
    from pulsar_admin.store.codec.schema import SchemaLocator
    from pulsar_admin.store.compaction.forms import Verification
    from pulsar_admin.store.compaction.last_id import LastId
    from pulsar_admin.store.compaction.occurrences import KeyHistory
    from pulsar_admin.store.compaction.reading import FoundInView
    from pulsar_admin.store.compaction.status import CompactionStatus
    from pulsar_admin.store.db.tree import Node
    from pulsar_admin.store.delayed.build import BuildResult
    from pulsar_admin.store.delayed.expiries import Forecast, ForecastInterval
    from pulsar_admin.store.delayed.summary import DelayedSummary
    from pulsar_admin.store.delayed.verify import Verified
    from pulsar_admin.store.delayed.waiting import Replayed
    from pulsar_admin.store.disks.forecast import LogForecast
    from pulsar_admin.store.disks.reclaim import ReclaimPlan, ReclaimResult
    from pulsar_admin.store.doctor.since import FindingComparison
    from pulsar_admin.store.dump.finding import FoundEntry
    from pulsar_admin.store.dump.job import DumpReport, DumpSize
    from pulsar_admin.store.errors import (
        AlreadyExists,
        BadSql,
        ChangeNotFound,
        Corrupt,
        DiskFailed,
        DiskFull,
        EncryptedPayload,
        EntryCorrupt,
        EntryLogCorrupt,
        EntryNotFound,
        IndexCorrupt,
        InvalidValue,
        JournalCorrupt,
        LedgerNotFound,
        LimitExceeded,
        MetadataCorrupt,
        MissingComponent,
        NamespaceNotFound,
        NeedsBroker,
        NotFound,
        NothingMatches,
        NotSeen,
        NotWritable,
        PathNotFound,
        Refused,
        ResourceNotFound,
        SliceFailed,
        SourceBusy,
        SourceChanged,
        SourceNotFound,
        StalePlan,
        StoreBusy,
        StoreError,
        StoreNotFound,
        SubscriptionNotFound,
        TenantNotFound,
        TopicNotFound,
        UndoConflict,
        Unsupported,
    )
    from pulsar_admin.store.facts.orphans import Orphan
    from pulsar_admin.store.history.differences import Changed
    from pulsar_admin.store.index.rebuild import RebuildResult
    from pulsar_admin.store.model.broken import Missing
    from pulsar_admin.store.model.cursors import Extent
    from pulsar_admin.store.model.ledger_owners import LedgerOwners
    from pulsar_admin.store.model.messages import LastMessageId, Message, MessageRow
    from pulsar_admin.store.nacks.holes import TopicNacks
    from pulsar_admin.store.nacks.kept import KeptGroup, KeptStats
    from pulsar_admin.store.names import Position, TopicName
    from pulsar_admin.store.policies.in_force import PoliciesInForce
    from pulsar_admin.store.recovery.acks import AckState
    from pulsar_admin.store.recovery.missing_topics import GoneTopic
    from pulsar_admin.store.recovery.preflight import Preflight
    from pulsar_admin.store.reports.backlog import BacklogAnalysis
    from pulsar_admin.store.reports.describe import TopicDescription
    from pulsar_admin.store.reports.internal_info import InternalInfo
    from pulsar_admin.store.reports.internal_stats import InternalStats
    from pulsar_admin.store.reports.ledger_facts import LedgerFacts
    from pulsar_admin.store.reports.ledgers import LedgerRow
    from pulsar_admin.store.reports.log_files import LogRecord, LogSummary, LogVerdict
    from pulsar_admin.store.reports.metrics import Metric
    from pulsar_admin.store.reports.overview import Overview
    from pulsar_admin.store.reports.partitioned_internals import PartitionedInternalStats
    from pulsar_admin.store.reports.replicas import UnderReplicated
    from pulsar_admin.store.reports.stats import PartitionedTopicStats, SubscriptionStats, TopicStats
    from pulsar_admin.store.reports.subscriptions import SubscriptionFacts
    from pulsar_admin.store.reports.summary import StoreSummary
    from pulsar_admin.store.reports.transactions import (
        BufferStats,
        CoordinatorStats,
        InBuffer,
        InPendingAcks,
        LogStats,
        PendingAckStats,
        TransactionMetadata,
    )
    from pulsar_admin.store.reports.usage import Usage
    from pulsar_admin.store.reports.verify import EntryRow, LedgerVerdict
    from pulsar_admin.store.rules.finding import Finding, Severity
    from pulsar_admin.store.search.by_index import IndexFound
    from pulsar_admin.store.search.skew import TopicSkew
    from pulsar_admin.store.sources.given_bookies import GivenBookie
    from pulsar_admin.store.tables.export import TablesReport
    from pulsar_admin.store.tables.importing import TablesImported
    from pulsar_admin.store.transfer.imports import ImportPreview, ImportResult
    from pulsar_admin.store.transfer.offloads import OffloadResult
    from pulsar_admin.store.transfer.refresh import RefreshPreview, RefreshResult
    from pulsar_admin.store.why.disk import WhyBytes
    from pulsar_admin.store.why.subscription import Why

    __version__: str

_ERRORS = "pulsar_admin.store.errors"
_HOMES = {
    "SparkTables": "pulsar_admin.api.messages",
    "register": "pulsar_admin.api.messages",
    "Compaction": "pulsar_admin.api.topics",
    "Cursor": "pulsar_admin.api.cursors",
    "CursorPlace": "pulsar_admin.api.cursors",
    "Cursors": "pulsar_admin.api.cursors",
    "Delayed": "pulsar_admin.api.pending",
    "log_files": "pulsar_admin.api.files",
    "log_records": "pulsar_admin.api.files",
    "reclaim": "pulsar_admin.api.files",
    "verify_logs": "pulsar_admin.api.files",
    "create_store": "pulsar_admin.api.transfers",
    "fetch_bookie": "pulsar_admin.api.transfers",
    "import_bundle": "pulsar_admin.api.transfers",
    "import_cluster": "pulsar_admin.api.transfers",
    "import_standalone": "pulsar_admin.api.transfers",
    "import_tables": "pulsar_admin.api.transfers",
    "preview_import": "pulsar_admin.api.transfers",
    "read_bookie_conf": "pulsar_admin.api.transfers",
    "Ledger": "pulsar_admin.api.ledgers",
    "Batches": "pulsar_admin.api.messages",
    "MessageRecord": "pulsar_admin.api.messages",
    "Messages": "pulsar_admin.api.messages",
    "MetadataChange": "pulsar_admin.api.files",
    "diff": "pulsar_admin.api.files",
    "history": "pulsar_admin.api.files",
    "DueNack": "pulsar_admin.api.pending",
    "KeptNacks": "pulsar_admin.api.pending",
    "NackSizes": "pulsar_admin.api.pending",
    "Nacks": "pulsar_admin.api.pending",
    "nack_sizes": "pulsar_admin.api.pending",
    "BundleTopics": "pulsar_admin.api.namespaces",
    "Namespace": "pulsar_admin.api.namespaces",
    "Plan": "pulsar_admin.api.plan",
    "PolicyValue": "pulsar_admin.api.topics",
    "TopicPolicies": "pulsar_admin.api.topics",
    "preflight": "pulsar_admin.api.ledgers",
    "Change": "pulsar_admin.api.reports",
    "ChangeReport": "pulsar_admin.api.reports",
    "Cluster": "pulsar_admin.api.namespaces",
    "PartialData": "pulsar_admin.api.session",
    "Store": "pulsar_admin.api.store",
    "open_store": "pulsar_admin.api.store",
    "SchemaVersion": "pulsar_admin.api.topics",
    "Topic": "pulsar_admin.api.topics",
    "CursorTransactions": "pulsar_admin.api.pending",
    "TopicTransactions": "pulsar_admin.api.pending",
    "Transactions": "pulsar_admin.api.pending",
    "BrokerMove": "pulsar_admin.store.changes.plan",
    "CompactionDetails": "pulsar_admin.store.changes.plan",
    "ExpiryDetails": "pulsar_admin.store.changes.plan",
    "MoveBasis": "pulsar_admin.store.changes.plan",
    "SplitIndex": "pulsar_admin.store.changes.plan",
    "ChangePart": "pulsar_admin.store.changes.plan",
    "Deletable": "pulsar_admin.store.changes.plan",
    "FutureDated": "pulsar_admin.store.changes.plan",
    "LedgerPart": "pulsar_admin.store.changes.plan",
    "Step": "pulsar_admin.store.changes.plan",
    "DelayedPolicy": "pulsar_admin.store.changes.policies",
    "PartitionedTopic": "pulsar_admin.store.codec.policies",
    "Policies": "pulsar_admin.store.codec.policies",
    "SchemaLocator": "pulsar_admin.store.codec.schema",
    "Verification": "pulsar_admin.store.compaction.forms",
    "LastId": "pulsar_admin.store.compaction.last_id",
    "KeyHistory": "pulsar_admin.store.compaction.occurrences",
    "FoundInView": "pulsar_admin.store.compaction.reading",
    "CompactionStatus": "pulsar_admin.store.compaction.status",
    "Node": "pulsar_admin.store.db.tree",
    "BuildResult": "pulsar_admin.store.delayed.build",
    "Forecast": "pulsar_admin.store.delayed.expiries",
    "ForecastInterval": "pulsar_admin.store.delayed.expiries",
    "DelayedSummary": "pulsar_admin.store.delayed.summary",
    "Verified": "pulsar_admin.store.delayed.verify",
    "Replayed": "pulsar_admin.store.delayed.waiting",
    "LogForecast": "pulsar_admin.store.disks.forecast",
    "ReclaimPlan": "pulsar_admin.store.disks.reclaim",
    "ReclaimResult": "pulsar_admin.store.disks.reclaim",
    "FindingComparison": "pulsar_admin.store.doctor.since",
    "FoundEntry": "pulsar_admin.store.dump.finding",
    "DumpReport": "pulsar_admin.store.dump.job",
    "DumpSize": "pulsar_admin.store.dump.job",
    "Orphan": "pulsar_admin.store.facts.orphans",
    "Changed": "pulsar_admin.store.history.differences",
    "RebuildResult": "pulsar_admin.store.index.rebuild",
    "Missing": "pulsar_admin.store.model.broken",
    "Extent": "pulsar_admin.store.model.cursors",
    "LedgerOwners": "pulsar_admin.store.model.ledger_owners",
    "LastMessageId": "pulsar_admin.store.model.messages",
    "Message": "pulsar_admin.store.model.messages",
    "MessageRow": "pulsar_admin.store.model.messages",
    "TopicNacks": "pulsar_admin.store.nacks.holes",
    "KeptGroup": "pulsar_admin.store.nacks.kept",
    "KeptStats": "pulsar_admin.store.nacks.kept",
    "Position": "pulsar_admin.store.names",
    "TopicName": "pulsar_admin.store.names",
    "PoliciesInForce": "pulsar_admin.store.policies.in_force",
    "AckState": "pulsar_admin.store.recovery.acks",
    "GoneTopic": "pulsar_admin.store.recovery.missing_topics",
    "Preflight": "pulsar_admin.store.recovery.preflight",
    "BacklogAnalysis": "pulsar_admin.store.reports.backlog",
    "TopicDescription": "pulsar_admin.store.reports.describe",
    "InternalInfo": "pulsar_admin.store.reports.internal_info",
    "InternalStats": "pulsar_admin.store.reports.internal_stats",
    "LedgerFacts": "pulsar_admin.store.reports.ledger_facts",
    "LedgerRow": "pulsar_admin.store.reports.ledgers",
    "LogRecord": "pulsar_admin.store.reports.log_files",
    "LogSummary": "pulsar_admin.store.reports.log_files",
    "LogVerdict": "pulsar_admin.store.reports.log_files",
    "Metric": "pulsar_admin.store.reports.metrics",
    "Overview": "pulsar_admin.store.reports.overview",
    "PartitionedInternalStats": "pulsar_admin.store.reports.partitioned_internals",
    "UnderReplicated": "pulsar_admin.store.reports.replicas",
    "PartitionedTopicStats": "pulsar_admin.store.reports.stats",
    "SubscriptionStats": "pulsar_admin.store.reports.stats",
    "TopicStats": "pulsar_admin.store.reports.stats",
    "SubscriptionFacts": "pulsar_admin.store.reports.subscriptions",
    "StoreSummary": "pulsar_admin.store.reports.summary",
    "BufferStats": "pulsar_admin.store.reports.transactions",
    "CoordinatorStats": "pulsar_admin.store.reports.transactions",
    "InBuffer": "pulsar_admin.store.reports.transactions",
    "InPendingAcks": "pulsar_admin.store.reports.transactions",
    "LogStats": "pulsar_admin.store.reports.transactions",
    "PendingAckStats": "pulsar_admin.store.reports.transactions",
    "TransactionMetadata": "pulsar_admin.store.reports.transactions",
    "Usage": "pulsar_admin.store.reports.usage",
    "EntryRow": "pulsar_admin.store.reports.verify",
    "LedgerVerdict": "pulsar_admin.store.reports.verify",
    "Finding": "pulsar_admin.store.rules.finding",
    "Severity": "pulsar_admin.store.rules.finding",
    "IndexFound": "pulsar_admin.store.search.by_index",
    "TopicSkew": "pulsar_admin.store.search.skew",
    "GivenBookie": "pulsar_admin.store.sources.given_bookies",
    "TablesReport": "pulsar_admin.store.tables.export",
    "TablesImported": "pulsar_admin.store.tables.importing",
    "ImportPreview": "pulsar_admin.store.transfer.imports",
    "ImportResult": "pulsar_admin.store.transfer.imports",
    "OffloadResult": "pulsar_admin.store.transfer.offloads",
    "RefreshPreview": "pulsar_admin.store.transfer.refresh",
    "RefreshResult": "pulsar_admin.store.transfer.refresh",
    "WhyBytes": "pulsar_admin.store.why.disk",
    "Why": "pulsar_admin.store.why.subscription",
    "AlreadyExists": _ERRORS,
    "BadSql": _ERRORS,
    "ChangeNotFound": _ERRORS,
    "Corrupt": _ERRORS,
    "DiskFailed": _ERRORS,
    "DiskFull": _ERRORS,
    "EncryptedPayload": _ERRORS,
    "EntryCorrupt": _ERRORS,
    "EntryLogCorrupt": _ERRORS,
    "EntryNotFound": _ERRORS,
    "IndexCorrupt": _ERRORS,
    "InvalidValue": _ERRORS,
    "JournalCorrupt": _ERRORS,
    "LedgerNotFound": _ERRORS,
    "LimitExceeded": _ERRORS,
    "MetadataCorrupt": _ERRORS,
    "MissingComponent": _ERRORS,
    "NamespaceNotFound": _ERRORS,
    "NeedsBroker": _ERRORS,
    "NotFound": _ERRORS,
    "NotSeen": _ERRORS,
    "NotWritable": _ERRORS,
    "NothingMatches": _ERRORS,
    "PathNotFound": _ERRORS,
    "Refused": _ERRORS,
    "ResourceNotFound": _ERRORS,
    "SliceFailed": _ERRORS,
    "SourceBusy": _ERRORS,
    "SourceChanged": _ERRORS,
    "SourceNotFound": _ERRORS,
    "StalePlan": _ERRORS,
    "StoreBusy": _ERRORS,
    "StoreError": _ERRORS,
    "StoreNotFound": _ERRORS,
    "SubscriptionNotFound": _ERRORS,
    "TenantNotFound": _ERRORS,
    "TopicNotFound": _ERRORS,
    "UndoConflict": _ERRORS,
    "Unsupported": _ERRORS,
}

__all__ = [
    "AckState",
    "AlreadyExists",
    "BacklogAnalysis",
    "BadSql",
    "Batches",
    "BrokerMove",
    "BufferStats",
    "BuildResult",
    "BundleTopics",
    "Change",
    "ChangeNotFound",
    "ChangePart",
    "ChangeReport",
    "Changed",
    "Cluster",
    "Compaction",
    "CompactionDetails",
    "CompactionStatus",
    "CoordinatorStats",
    "Corrupt",
    "Cursor",
    "CursorPlace",
    "CursorTransactions",
    "Cursors",
    "Delayed",
    "DelayedPolicy",
    "DelayedSummary",
    "Deletable",
    "DiskFailed",
    "DiskFull",
    "DueNack",
    "DumpReport",
    "DumpSize",
    "EncryptedPayload",
    "EntryCorrupt",
    "EntryLogCorrupt",
    "EntryNotFound",
    "EntryRow",
    "ExpiryDetails",
    "Extent",
    "Finding",
    "FindingComparison",
    "Forecast",
    "ForecastInterval",
    "FoundEntry",
    "FoundInView",
    "FutureDated",
    "GivenBookie",
    "GoneTopic",
    "ImportPreview",
    "ImportResult",
    "InBuffer",
    "InPendingAcks",
    "IndexCorrupt",
    "IndexFound",
    "InternalInfo",
    "InternalStats",
    "InvalidValue",
    "JournalCorrupt",
    "KeptGroup",
    "KeptNacks",
    "KeptStats",
    "KeyHistory",
    "LastId",
    "LastMessageId",
    "Ledger",
    "LedgerFacts",
    "LedgerNotFound",
    "LedgerOwners",
    "LedgerPart",
    "LedgerRow",
    "LedgerVerdict",
    "LimitExceeded",
    "LogForecast",
    "LogRecord",
    "LogStats",
    "LogSummary",
    "LogVerdict",
    "Message",
    "MessageRecord",
    "MessageRow",
    "Messages",
    "MetadataChange",
    "MetadataCorrupt",
    "Metric",
    "Missing",
    "MissingComponent",
    "MoveBasis",
    "NackSizes",
    "Nacks",
    "Namespace",
    "NamespaceNotFound",
    "NeedsBroker",
    "Node",
    "NotFound",
    "NotSeen",
    "NotWritable",
    "NothingMatches",
    "OffloadResult",
    "Orphan",
    "Overview",
    "PartialData",
    "PartitionedInternalStats",
    "PartitionedTopic",
    "PartitionedTopicStats",
    "PathNotFound",
    "PendingAckStats",
    "Plan",
    "Policies",
    "PoliciesInForce",
    "PolicyValue",
    "Position",
    "Preflight",
    "RebuildResult",
    "ReclaimPlan",
    "ReclaimResult",
    "RefreshPreview",
    "RefreshResult",
    "Refused",
    "Replayed",
    "ResourceNotFound",
    "SchemaLocator",
    "SchemaVersion",
    "Severity",
    "SliceFailed",
    "SourceBusy",
    "SourceChanged",
    "SourceNotFound",
    "SparkTables",
    "SplitIndex",
    "StalePlan",
    "Step",
    "Store",
    "StoreBusy",
    "StoreError",
    "StoreNotFound",
    "StoreSummary",
    "SubscriptionFacts",
    "SubscriptionNotFound",
    "SubscriptionStats",
    "TablesImported",
    "TablesReport",
    "TenantNotFound",
    "Topic",
    "TopicDescription",
    "TopicNacks",
    "TopicName",
    "TopicNotFound",
    "TopicPolicies",
    "TopicSkew",
    "TopicStats",
    "TopicTransactions",
    "TransactionMetadata",
    "Transactions",
    "UnderReplicated",
    "UndoConflict",
    "Unsupported",
    "Usage",
    "Verification",
    "Verified",
    "Why",
    "WhyBytes",
    "__version__",
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
    if name == "__version__":
        from importlib.metadata import version

        return version("pulsar-admin-toolkit")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__]
