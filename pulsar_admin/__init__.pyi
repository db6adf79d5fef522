# made by docs/generate.py: `make docs` writes it again

from pulsar_admin.api.cursors import Cursor, Cursors
from pulsar_admin.api.files import diff, history, log_files, log_records, reclaim, verify_logs
from pulsar_admin.api.ledgers import Ledger, preflight
from pulsar_admin.api.messages import Batches, Messages, SparkTables, register
from pulsar_admin.api.namespaces import Cluster, Namespace
from pulsar_admin.api.pending import (
    CursorTransactions,
    Delayed,
    KeptNacks,
    Nacks,
    NackSizes,
    TopicTransactions,
    Transactions,
    nack_sizes,
)
from pulsar_admin.api.plan import Plan
from pulsar_admin.api.store import Store, open_store
from pulsar_admin.api.topics import Compaction, Topic, TopicPolicies
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
from pulsar_admin.broken import PartialData
from pulsar_admin.changes import Change, ChangeReport
from pulsar_admin.jsonify import to_json
from pulsar_admin.store.changes.plan import (
    AnnotationPart,
    BrokerMove,
    ChangePart,
    CompactionDetails,
    CompactionPart,
    CopiedPart,
    CursorPart,
    DelayedPart,
    DelayLoss,
    Deletable,
    DeletedPart,
    DroppedEarly,
    DueMessage,
    ExpiryDetails,
    ForgottenPart,
    FutureDated,
    LedgerPart,
    MoveBasis,
    NacksPart,
    PolicyPart,
    RetainingSubscription,
    ReturnedPart,
    SplitIndex,
    WrittenEvent,
)
from pulsar_admin.store.changes.policies import DelayedPolicy
from pulsar_admin.store.codec.cursor import CursorState
from pulsar_admin.store.codec.digest import DigestType
from pulsar_admin.store.codec.ledgermetadata import LedgerMetadata, LedgerState, Segment
from pulsar_admin.store.codec.policies import BacklogQuota, DelayedDelivery, PartitionedTopic, Policies, Retention
from pulsar_admin.store.codec.rocksvalue import NodeStat
from pulsar_admin.store.codec.schema import IndexEntry, SchemaLocator
from pulsar_admin.store.compaction.forms import CompactionFinding, Verification
from pulsar_admin.store.compaction.last_id import LastId, Rejected
from pulsar_admin.store.compaction.occurrences import KeyHistory, Occurrence
from pulsar_admin.store.compaction.reading import FoundInView
from pulsar_admin.store.compaction.status import CompactedLedgerFacts, CompactionStatus, LeakedLedger
from pulsar_admin.store.db.audit_log import Step
from pulsar_admin.store.db.blocks import LedgerSums
from pulsar_admin.store.db.delayed_entries import DelayedRows
from pulsar_admin.store.db.delayed_rules import IndexRules
from pulsar_admin.store.db.entry_files import FileState
from pulsar_admin.store.db.nacks import DueNack, KeptGroup, KeptStats
from pulsar_admin.store.db.owners import Owner, OwnerKind
from pulsar_admin.store.db.tree import Node
from pulsar_admin.store.delayed.build import BuildResult
from pulsar_admin.store.delayed.expiry_plans import Forecast, ForecastInterval
from pulsar_admin.store.delayed.summary import DelayedSummary, IndexSummary
from pulsar_admin.store.delayed.trackers import DelayedFinding, Tracker, Verified
from pulsar_admin.store.delayed.waiting import Dispatch, Replayed
from pulsar_admin.store.disks.clone import CloneReport
from pulsar_admin.store.disks.journals import JournalStop
from pulsar_admin.store.disks.reclaim import LogAction, LogForecast, ReclaimPlan, ReclaimResult
from pulsar_admin.store.disks.salvage import (
    DirectorySalvaged,
    EntriesAdded,
    JournalsFound,
    LedgersFound,
    LocationsFound,
    SalvageReport,
)
from pulsar_admin.store.doctor.since import ChangeSince, FindingBefore, FindingChange, FindingComparison
from pulsar_admin.store.doctor.why import HeldBytes, HeldTotal, Reason, Why, WhyBytes
from pulsar_admin.store.dump.find_by_time import FoundEntry
from pulsar_admin.store.dump.job import DumpReport, DumpSize
from pulsar_admin.store.dump.messages import MessageRecord
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
    NotOnWorkers,
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
from pulsar_admin.store.facts.backlogs import NotDue
from pulsar_admin.store.facts.file_sums import DiskTotals, StuckLog
from pulsar_admin.store.facts.managed_ledgers import OtherLedger, OtherSum
from pulsar_admin.store.facts.numbers import Blocker
from pulsar_admin.store.facts.orphans import Orphan
from pulsar_admin.store.facts.trees import UnknownTree
from pulsar_admin.store.history.differences import Changed, Difference
from pulsar_admin.store.history.events import MetadataChange
from pulsar_admin.store.index.rebuild import RebuildResult
from pulsar_admin.store.model.broken import Missing
from pulsar_admin.store.model.counts import DiskBytes
from pulsar_admin.store.model.coverage import BookieCopies, Coverage, OpenEnd, UnderReplicated, UnservedEntries
from pulsar_admin.store.model.cursors import CursorPlace, Extent
from pulsar_admin.store.model.ledger_owners import LedgerOwners
from pulsar_admin.store.model.messages import Decoded, LastMessageId, Message, MessageRow
from pulsar_admin.store.model.resources import (
    AutoFailover,
    BookieRack,
    BrokerIsolation,
    BundleQuota,
    Bundles,
    BundleTopics,
    ClusterSettings,
    ClusterUrls,
    FailureDomain,
    IsolationPolicy,
    Migration,
    ResourceGroup,
    TenantInfo,
)
from pulsar_admin.store.model.schemas import SchemaVersion
from pulsar_admin.store.nacks.holes import TopicNacks
from pulsar_admin.store.nacks.sizes import NackLoad, TrackerSizing
from pulsar_admin.store.names import FileKind, NamespaceName, Position, TopicName
from pulsar_admin.store.policies.in_force import (
    DeliveryInForce,
    MessageTtl,
    PoliciesInForce,
    QuotaInForce,
    RetentionInForce,
)
from pulsar_admin.store.policies.values import PolicyValue
from pulsar_admin.store.recovery.ack_history import AckState, TimeBound
from pulsar_admin.store.recovery.broker_forecast import BrokerDefaults, BrokerForecast, TopicForecast, TopicsDeleted
from pulsar_admin.store.recovery.missing_topics import GoneTopic
from pulsar_admin.store.recovery.preflight import (
    BookieForecast,
    LedgerIds,
    LedgerLoss,
    LedgerShare,
    LogShare,
    Preflight,
    TopicLoss,
)
from pulsar_admin.store.reports.backlog import BacklogAnalysis
from pulsar_admin.store.reports.describe import ListedLedger, PolicyFacts, SchemaFacts, TopicDescription
from pulsar_admin.store.reports.internal_stats import (
    CursorInfoRow,
    CursorStats,
    InternalInfo,
    InternalStats,
    LedgerInfoRow,
    LedgerStats,
    PartitionedInternalStats,
    PositionInfo,
    RangeInfo,
)
from pulsar_admin.store.reports.ledger_facts import LedgerFacts
from pulsar_admin.store.reports.ledgers import LedgerRow
from pulsar_admin.store.reports.log_files import LogRecord, LogSummary, LogVerdict
from pulsar_admin.store.reports.overview import (
    Backlog,
    CopySource,
    FindingsOfCode,
    Metric,
    MetricSample,
    NamespaceTotal,
    Overview,
    TopicTotal,
)
from pulsar_admin.store.reports.stats import CompactionStats, PartitionedTopicStats, SubscriptionStats, TopicStats
from pulsar_admin.store.reports.subscriptions import SubscriptionFacts
from pulsar_admin.store.reports.summary import FileSummary, StoreSummary
from pulsar_admin.store.reports.transactions import (
    BufferStats,
    CoordinatorStats,
    InBuffer,
    InPendingAcks,
    LogStats,
    PendingAckStats,
    TransactionMetadata,
    TransactionState,
)
from pulsar_admin.store.reports.usage import FileUsage, OwnerUsage, Usage
from pulsar_admin.store.reports.verify import EntryRow, LedgerVerdict
from pulsar_admin.store.rules.finding import Finding, Severity
from pulsar_admin.store.rules.judging import StartFault
from pulsar_admin.store.scan.unindexed import ScanFound
from pulsar_admin.store.search.before_due import TtlConflict
from pulsar_admin.store.search.broker_setup import Probe
from pulsar_admin.store.search.by_index import IndexFound, NextIndex
from pulsar_admin.store.search.doubts import Doubt
from pulsar_admin.store.search.expiry import ForecastRow
from pulsar_admin.store.search.explain import BlockRead, BrokerAnswer, LedgerAnswer, LedgersLeftOut, Neighbour
from pulsar_admin.store.search.skew import ProducerSkew, TopicSkew
from pulsar_admin.store.sources.given_bookies import GivenBookie
from pulsar_admin.store.tables.export import TableCommitted, TablesReport, TableWritten
from pulsar_admin.store.tables.importing import TablesImported
from pulsar_admin.store.transfer.bookie_export import BookieExportReport, CookieWritten, DirectoryWritten, LedgerPlaced
from pulsar_admin.store.transfer.bundle import BundleImported, BundleReport, FindingCount
from pulsar_admin.store.transfer.ensemble_export import EnsembleExportReport
from pulsar_admin.store.transfer.exports import ExportReport, NodeExported
from pulsar_admin.store.transfer.imports import ImportPreview, ImportResult
from pulsar_admin.store.transfer.ledger_export import LedgerExported
from pulsar_admin.store.transfer.offloads import OffloadResult
from pulsar_admin.store.transfer.refresh import RefreshPreview, RefreshResult
from pulsar_admin.store.transfer.snapshot_export import SnapshotExportReport

__version__: str

__all__ = [
    "AckState",
    "AlreadyExists",
    "AnnotationPart",
    "AutoFailover",
    "Backlog",
    "BacklogAnalysis",
    "BacklogQuota",
    "BadSql",
    "Batches",
    "BlockRead",
    "Blocker",
    "BookieCopies",
    "BookieExportReport",
    "BookieForecast",
    "BookieRack",
    "BrokerAnswer",
    "BrokerDefaults",
    "BrokerForecast",
    "BrokerIsolation",
    "BrokerMove",
    "BufferStats",
    "BuildResult",
    "BundleImported",
    "BundleQuota",
    "BundleReport",
    "BundleTopics",
    "Bundles",
    "Change",
    "ChangeNotFound",
    "ChangePart",
    "ChangeReport",
    "ChangeSince",
    "Changed",
    "CloneReport",
    "Cluster",
    "ClusterSettings",
    "ClusterUrls",
    "CompactedLedgerFacts",
    "Compaction",
    "CompactionDetails",
    "CompactionFinding",
    "CompactionPart",
    "CompactionStats",
    "CompactionStatus",
    "CookieWritten",
    "CoordinatorStats",
    "CopiedPart",
    "CopySource",
    "Corrupt",
    "Coverage",
    "Cursor",
    "CursorInfoRow",
    "CursorPart",
    "CursorPlace",
    "CursorState",
    "CursorStats",
    "CursorTransactions",
    "Cursors",
    "Decoded",
    "DelayLoss",
    "Delayed",
    "DelayedDelivery",
    "DelayedFinding",
    "DelayedPart",
    "DelayedPolicy",
    "DelayedRows",
    "DelayedSummary",
    "Deletable",
    "DeletedPart",
    "DeliveryInForce",
    "Difference",
    "DigestType",
    "DirectorySalvaged",
    "DirectoryWritten",
    "DiskBytes",
    "DiskFailed",
    "DiskFull",
    "DiskTotals",
    "Dispatch",
    "Doubt",
    "DroppedEarly",
    "DueMessage",
    "DueNack",
    "DumpReport",
    "DumpSize",
    "EncryptedPayload",
    "EnsembleExportReport",
    "EntriesAdded",
    "EntryCorrupt",
    "EntryLogCorrupt",
    "EntryNotFound",
    "EntryRow",
    "ExpiryDetails",
    "ExportReport",
    "Extent",
    "FailureDomain",
    "FileKind",
    "FileState",
    "FileSummary",
    "FileUsage",
    "Finding",
    "FindingBefore",
    "FindingChange",
    "FindingComparison",
    "FindingCount",
    "FindingsOfCode",
    "Forecast",
    "ForecastInterval",
    "ForecastRow",
    "ForgottenPart",
    "FoundEntry",
    "FoundInView",
    "FutureDated",
    "GivenBookie",
    "GoneTopic",
    "HeldBytes",
    "HeldTotal",
    "ImportPreview",
    "ImportResult",
    "InBuffer",
    "InPendingAcks",
    "IndexCorrupt",
    "IndexEntry",
    "IndexFound",
    "IndexRules",
    "IndexSummary",
    "InternalInfo",
    "InternalStats",
    "InvalidValue",
    "IsolationPolicy",
    "JournalCorrupt",
    "JournalStop",
    "JournalsFound",
    "KeptGroup",
    "KeptNacks",
    "KeptStats",
    "KeyHistory",
    "LastId",
    "LastMessageId",
    "LeakedLedger",
    "Ledger",
    "LedgerAnswer",
    "LedgerExported",
    "LedgerFacts",
    "LedgerIds",
    "LedgerInfoRow",
    "LedgerLoss",
    "LedgerMetadata",
    "LedgerNotFound",
    "LedgerOwners",
    "LedgerPart",
    "LedgerPlaced",
    "LedgerRow",
    "LedgerShare",
    "LedgerState",
    "LedgerStats",
    "LedgerSums",
    "LedgerVerdict",
    "LedgersFound",
    "LedgersLeftOut",
    "LimitExceeded",
    "ListedLedger",
    "LocationsFound",
    "LogAction",
    "LogForecast",
    "LogRecord",
    "LogShare",
    "LogStats",
    "LogSummary",
    "LogVerdict",
    "Message",
    "MessageRecord",
    "MessageRow",
    "MessageTtl",
    "Messages",
    "MetadataChange",
    "MetadataCorrupt",
    "Metric",
    "MetricSample",
    "Migration",
    "Missing",
    "MissingComponent",
    "MoveBasis",
    "NackLoad",
    "NackSizes",
    "Nacks",
    "NacksPart",
    "Namespace",
    "NamespaceName",
    "NamespaceNotFound",
    "NamespaceTotal",
    "NeedsBroker",
    "Neighbour",
    "NextIndex",
    "Node",
    "NodeExported",
    "NodeStat",
    "NotDue",
    "NotFound",
    "NotOnWorkers",
    "NotSeen",
    "NotWritable",
    "NothingMatches",
    "Occurrence",
    "OffloadResult",
    "OpenEnd",
    "Orphan",
    "OtherLedger",
    "OtherSum",
    "Overview",
    "Owner",
    "OwnerKind",
    "OwnerUsage",
    "PartialData",
    "PartitionedInternalStats",
    "PartitionedTopic",
    "PartitionedTopicStats",
    "PathNotFound",
    "PendingAckStats",
    "Plan",
    "Policies",
    "PoliciesInForce",
    "PolicyFacts",
    "PolicyPart",
    "PolicyValue",
    "Position",
    "PositionInfo",
    "Preflight",
    "Probe",
    "ProducerSkew",
    "QuotaInForce",
    "RangeInfo",
    "Reason",
    "RebuildResult",
    "ReclaimPlan",
    "ReclaimResult",
    "RefreshPreview",
    "RefreshResult",
    "Refused",
    "Rejected",
    "Replayed",
    "ResourceGroup",
    "ResourceNotFound",
    "RetainingSubscription",
    "Retention",
    "RetentionInForce",
    "ReturnedPart",
    "SalvageReport",
    "ScanFound",
    "SchemaFacts",
    "SchemaLocator",
    "SchemaVersion",
    "Segment",
    "Severity",
    "SliceFailed",
    "SnapshotExportReport",
    "SourceBusy",
    "SourceChanged",
    "SourceNotFound",
    "SparkTables",
    "SplitIndex",
    "StalePlan",
    "StartFault",
    "Step",
    "Store",
    "StoreBusy",
    "StoreError",
    "StoreNotFound",
    "StoreSummary",
    "StuckLog",
    "SubscriptionFacts",
    "SubscriptionNotFound",
    "SubscriptionStats",
    "TableCommitted",
    "TableWritten",
    "TablesImported",
    "TablesReport",
    "TenantInfo",
    "TenantNotFound",
    "TimeBound",
    "Topic",
    "TopicDescription",
    "TopicForecast",
    "TopicLoss",
    "TopicNacks",
    "TopicName",
    "TopicNotFound",
    "TopicPolicies",
    "TopicSkew",
    "TopicStats",
    "TopicTotal",
    "TopicTransactions",
    "TopicsDeleted",
    "Tracker",
    "TrackerSizing",
    "TransactionMetadata",
    "TransactionState",
    "Transactions",
    "TtlConflict",
    "UnderReplicated",
    "UndoConflict",
    "UnknownTree",
    "UnservedEntries",
    "Unsupported",
    "Usage",
    "Verification",
    "Verified",
    "Why",
    "WhyBytes",
    "WrittenEvent",
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
    "to_json",
    "verify_logs",
]
