"""Ask and change a store from Python: ``import pulsar_admin as pa``, then ``pa.open_store(…)``.

Only the names in ``__all__`` are public; docs/api.md is a tutorial. Each is imported on first use, so that importing
this package costs nothing, also on the command line. Type checkers read ``__init__.pyi``, which ``make docs`` makes of
this table.
"""

_NAMES = {
    "api.cursors": "Cursor Cursors",
    "api.files": "diff history log_files log_records reclaim verify_logs",
    "api.ledgers": "Ledger preflight",
    "api.messages": "Batches Messages SparkTables register",
    "api.namespaces": "Cluster Namespace",
    "api.pending": "CursorTransactions Delayed KeptNacks NackSizes Nacks TopicTransactions Transactions nack_sizes",
    "api.plan": "Plan",
    "api.store": "Store open_store",
    "api.topics": "Compaction Topic TopicPolicies",
    "api.transfers": (
        "create_store fetch_bookie import_bundle import_cluster import_standalone import_tables preview_import "
        "read_bookie_conf"
    ),
    "broken": "PartialData",
    "changes": "Change ChangeReport",
    "jsonify": "to_json",
    "store.changes.plan": (
        "AnnotationPart BrokerMove ChangePart CompactionDetails CompactionPart CopiedPart CursorPart DelayLoss "
        "DelayedPart Deletable DeletedPart DroppedEarly DueMessage ExpiryDetails ForgottenPart FutureDated "
        "LedgerPart MoveBasis NacksPart PolicyPart RetainingSubscription ReturnedPart SplitIndex WrittenEvent"
    ),
    "store.changes.policies": "DelayedPolicy",
    "store.codec.cursor": "CursorState",
    "store.codec.digest": "DigestType",
    "store.codec.ledgermetadata": "LedgerMetadata LedgerState Segment",
    "store.codec.rocksvalue": "NodeStat",
    "store.codec.policies": "BacklogQuota DelayedDelivery PartitionedTopic Policies Retention",
    "store.codec.schema": "IndexEntry SchemaLocator",
    "store.compaction.forms": "CompactionFinding Verification",
    "store.compaction.last_id": "LastId Rejected",
    "store.compaction.occurrences": "KeyHistory Occurrence",
    "store.compaction.reading": "FoundInView",
    "store.compaction.status": "CompactedLedgerFacts CompactionStatus LeakedLedger",
    "store.db.audit_log": "Step",
    "store.db.blocks": "LedgerSums",
    "store.db.delayed_entries": "DelayedRows",
    "store.db.delayed_rules": "IndexRules",
    "store.db.entry_files": "FileState",
    "store.db.nacks": "DueNack KeptGroup KeptStats",
    "store.db.owners": "Owner OwnerKind",
    "store.db.tree": "Node",
    "store.delayed.build": "BuildResult",
    "store.delayed.expiry_plans": "Forecast ForecastInterval",
    "store.delayed.summary": "DelayedSummary IndexSummary",
    "store.delayed.trackers": "DelayedFinding Tracker Verified",
    "store.delayed.waiting": "Dispatch Replayed",
    "store.disks.clone": "CloneReport",
    "store.disks.reclaim": "LogAction LogForecast ReclaimPlan ReclaimResult",
    "store.disks.journals": "JournalStop",
    "store.disks.salvage": "DirectorySalvaged EntriesAdded JournalsFound LedgersFound LocationsFound SalvageReport",
    "store.doctor.since": "ChangeSince FindingBefore FindingChange FindingComparison",
    "store.dump.find_by_time": "FoundEntry",
    "store.dump.job": "DumpReport DumpSize",
    "store.dump.messages": "MessageRecord",
    "store.errors": (
        "AlreadyExists BadSql ChangeNotFound Corrupt DiskFailed DiskFull EncryptedPayload EntryCorrupt "
        "EntryLogCorrupt EntryNotFound IndexCorrupt InvalidValue JournalCorrupt LedgerNotFound LimitExceeded "
        "MetadataCorrupt MissingComponent NamespaceNotFound NeedsBroker NotFound NotOnWorkers NotSeen NotWritable NothingMatches "
        "PathNotFound Refused ResourceNotFound SliceFailed SourceBusy SourceChanged SourceNotFound StalePlan "
        "StoreBusy StoreError StoreNotFound SubscriptionNotFound TenantNotFound TopicNotFound UndoConflict Unsupported"
    ),
    "store.facts.backlogs": "NotDue",
    "store.model.counts": "DiskBytes",
    "store.facts.file_sums": "DiskTotals StuckLog",
    "store.facts.managed_ledgers": "OtherLedger OtherSum",
    "store.facts.numbers": "Blocker",
    "store.facts.orphans": "Orphan",
    "store.facts.trees": "UnknownTree",
    "store.history.differences": "Changed Difference",
    "store.history.events": "MetadataChange",
    "store.index.rebuild": "RebuildResult",
    "store.model.broken": "Missing",
    "store.model.coverage": "BookieCopies Coverage OpenEnd UnderReplicated UnservedEntries",
    "store.model.cursors": "CursorPlace Extent",
    "store.model.ledger_owners": "LedgerOwners",
    "store.model.messages": "Decoded LastMessageId Message MessageRow",
    "store.model.schemas": "SchemaVersion",
    "store.model.resources": (
        "AutoFailover BookieRack BrokerIsolation BundleQuota BundleTopics Bundles ClusterSettings ClusterUrls FailureDomain "
        "IsolationPolicy Migration ResourceGroup TenantInfo"
    ),
    "store.nacks.holes": "TopicNacks",
    "store.nacks.sizes": "NackLoad TrackerSizing",
    "store.names": "FileKind NamespaceName Position TopicName",
    "store.policies.in_force": "DeliveryInForce MessageTtl PoliciesInForce QuotaInForce RetentionInForce",
    "store.policies.values": "PolicyValue",
    "store.recovery.ack_history": "AckState TimeBound",
    "store.recovery.broker_forecast": "BrokerDefaults BrokerForecast TopicForecast TopicsDeleted",
    "store.recovery.missing_topics": "GoneTopic",
    "store.recovery.preflight": "BookieForecast LedgerIds LedgerLoss LedgerShare LogShare Preflight TopicLoss",
    "store.reports.backlog": "BacklogAnalysis",
    "store.reports.describe": "ListedLedger PolicyFacts SchemaFacts TopicDescription",
    "store.reports.internal_stats": (
        "CursorInfoRow CursorStats InternalInfo InternalStats LedgerInfoRow LedgerStats PartitionedInternalStats PositionInfo RangeInfo"
    ),
    "store.reports.ledger_facts": "LedgerFacts",
    "store.reports.ledgers": "LedgerRow",
    "store.reports.log_files": "LogRecord LogSummary LogVerdict",
    "store.reports.overview": "Backlog CopySource FindingsOfCode Metric MetricSample NamespaceTotal Overview TopicTotal",
    "store.reports.stats": "CompactionStats PartitionedTopicStats SubscriptionStats TopicStats",
    "store.reports.subscriptions": "SubscriptionFacts",
    "store.reports.summary": "FileSummary StoreSummary",
    "store.reports.transactions": (
        "BufferStats CoordinatorStats InBuffer InPendingAcks LogStats PendingAckStats TransactionMetadata "
        "TransactionState"
    ),
    "store.reports.usage": "FileUsage OwnerUsage Usage",
    "store.reports.verify": "EntryRow LedgerVerdict",
    "store.rules.finding": "Finding Severity",
    "store.rules.judging": "StartFault",
    "store.search.before_due": "TtlConflict",
    "store.search.broker_setup": "Probe",
    "store.search.by_index": "IndexFound NextIndex",
    "store.search.doubts": "Doubt",
    "store.search.expiry": "ForecastRow",
    "store.search.explain": "BlockRead BrokerAnswer LedgerAnswer LedgersLeftOut Neighbour",
    "store.search.skew": "ProducerSkew TopicSkew",
    "store.scan.unindexed": "ScanFound",
    "store.sources.given_bookies": "GivenBookie",
    "store.tables.export": "TableCommitted TableWritten TablesReport",
    "store.tables.importing": "TablesImported",
    "store.transfer.bookie_export": "BookieExportReport CookieWritten DirectoryWritten LedgerPlaced",
    "store.transfer.bundle": "BundleImported BundleReport FindingCount",
    "store.transfer.ensemble_export": "EnsembleExportReport",
    "store.transfer.exports": "ExportReport NodeExported",
    "store.transfer.imports": "ImportPreview ImportResult",
    "store.transfer.ledger_export": "LedgerExported",
    "store.transfer.offloads": "OffloadResult",
    "store.transfer.refresh": "RefreshPreview RefreshResult",
    "store.transfer.snapshot_export": "SnapshotExportReport",
    "store.doctor.why": "HeldBytes HeldTotal Reason Why WhyBytes",
}
"""The modules of this package, and which public names each has."""
_HOMES = {name: f"{__name__}.{module}" for module, names in _NAMES.items() for name in names.split()}
__all__ = sorted((*_HOMES, "__version__"))


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
