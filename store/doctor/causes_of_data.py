"""Causes in what Pulsar left, as ``store check`` finds them: metadata, ledgers, entries and their copies."""

from __future__ import annotations

from store.rules.cause import Cause, Severity

_KEEP_COPIES = (
    "Keep write quorum at 2 or more, back up ZooKeeper, and never start bookies on older metadata: run `store "
    "preflight` first."
)
_NO_HAND = "Never delete nodes or ledgers by hand; delete topics through a broker or this toolkit."
_STUCK = (
    "Loads the topic. A subscription that reaches the loss gets nothing more, and its consumers are not told; with"
    " `autoSkipNonRecoverableData=true` it skips the loss. A last ledger whose metadata is gone is dropped from "
    "the list."
)

CAUSES_OF_DATA = (
    Cause(
        "metadata-incomplete",
        Severity.CRITICAL,
        "The metadata is incomplete",
        "A file of the metadata store is damaged or missing: topics, cursors or ledgers in it may be missing or "
        "outdated here.",
        "RocksDB refuses to open a damaged database, and ZooKeeper refuses to start on a damaged snapshot or log.",
        "pulsar-admin store refresh",
        "Provide intact files (from another server of the ensemble, or a backup) and refresh. Do not start bookies"
        " on this metadata: they delete what it does not list.",
        "Copy metadata from a stopped server, or from several servers.",
    ),
    Cause(
        "value-undecodable",
        Severity.CRITICAL,
        "A metadata value cannot be decoded",
        "The bytes of a node are not in Pulsar's format. The evidence names the node.",
        "Everything that depends on the node fails: a topic does not load, a policy is not read.",
        "pulsar-admin store cat {where}",
        "Look at the value. Restore an earlier one from ZooKeeper's logs (`store history`) or a backup.",
        _NO_HAND,
    ),
    Cause(
        "name-not-encoded",
        Severity.WARNING,
        "No topic name leads to this node",
        "The node's name is not encoded as Pulsar encodes names. An old version or another program created it.",
        "Never finds it, and creates a new, empty topic of that name.",
        "pulsar-admin store cat {where}",
        "Read it in place. No command moves it.",
    ),
    Cause(
        "topic-unreadable",
        Severity.CRITICAL,
        "A topic's metadata cannot be read",
        "The list of the topic's ledgers is damaged: no message of it can be found.",
        "Fails to load the topic: producers and consumers get errors.",
        "pulsar-admin topics restore {where} --at TIME",
        "Restore an earlier list from ZooKeeper's logs, or rebuild it from the ledgers with `store recover`.",
        _NO_HAND,
    ),
    Cause(
        "ledger-missing",
        Severity.CRITICAL,
        "A topic lists a ledger that is lost completely",
        "The topic lists the ledger, but its BookKeeper metadata and all its entries are gone.",
        _STUCK,
        "pulsar-admin ledgers forget {ledgerId}",
        "If another bookie or a backup has its entries, add that first (`store add bookie`). Otherwise remove the "
        "ledger from the list.",
        _KEEP_COPIES,
    ),
    Cause(
        "newer-ledger-missing",
        Severity.CRITICAL,
        "A ledger that only a newer Pulsar reads is lost",
        "A segment of a scalable topic, or something else that this version does not know, names the ledger, and its BookKeeper metadata is"
        " gone.",
        _STUCK,
        "pulsar-admin ledgers missing {ledgerId}",
        "No command takes it out: nothing here changes what a newer version wrote. Bring another bookie or a backup that has it, and the"
        " metadata.",
        _KEEP_COPIES,
    ),
    Cause(
        "ledger-without-metadata",
        Severity.CRITICAL,
        "A topic's ledger has lost its BookKeeper metadata",
        "The topic lists the ledger and bookies may still have its entries. But the metadata does not list it, so "
        "their garbage collection deletes them.",
        _STUCK + " Bookies delete the entries at their next garbage collection (`gcWaitTime`, 15 minutes).",
        "pulsar-admin ledgers restore {ledgerId}",
        "Keep the bookies stopped. Rebuild the metadata from the entries; if they are gone, use `ledgers forget`.",
        _KEEP_COPIES,
    ),
    Cause(
        "ledger-list-differs",
        Severity.WARNING,
        "A topic's list and BookKeeper count a ledger differently",
        "The number of entries or bytes of a closed ledger differs between them.",
        "Trusts its own list for closed ledgers: entries behind the smaller count are not delivered.",
        "pulsar-admin ledgers restore {ledgerId} --extend",
        "Look at the end of the ledger. `--extend` proves that an end is too early, and moves it.",
        "See bookkeeper#4812.",
    ),
    Cause(
        "publish-time-differs",
        Severity.WARNING,
        "The recorded publish times of a ledger do not match its entries",
        "The first and last publish time (PIP-345) in the metadata contradict the entries.",
        "Searches by time use them, and look in the wrong ledger.",
        "pulsar-admin store annotate {topic}",
        "Write the times again from the entries.",
    ),
    Cause(
        "entries-missing",
        Severity.CRITICAL,
        "Entries of a ledger are in no file",
        "According to the metadata the ledger has them, but no imported bookie has a good record of them.",
        _STUCK,
        "pulsar-admin ledgers missing {ledgerId}",
        "Add a bookie or backup that has them (`store add bookie`). Otherwise dump what is readable, then use "
        "`ledgers forget`.",
        _KEEP_COPIES,
    ),
    Cause(
        "entries-not-seen",
        Severity.NOTE,
        "Entries exist only on a bookie that was not imported",
        "They need not be lost: their bookie is not here.",
        "Reads them from that bookie, if it runs.",
        "pulsar-admin store add bookie BOOKIE=DIR",
        "Add the bookie's disks to see them.",
    ),
    Cause(
        "entry-unreadable",
        Severity.CRITICAL,
        "The last entry of a ledger cannot be read",
        "Its record is damaged, or its digest is wrong.",
        _STUCK,
        "pulsar-admin ledgers verify {ledgerId}",
        "Read the whole ledger. Get a good copy of the file from another bookie or a backup.",
        _KEEP_COPIES,
    ),
    Cause(
        "entry-damaged",
        Severity.CRITICAL,
        "An entry that was good at import is damaged now",
        "A deep check read its bytes again, and the digest is wrong: the disk failed, or somebody wrote to the file.",
        "The client verifies the digest and asks another bookie. If none has a good copy, it stops there, as at a "
        "lost entry.",
        "pulsar-admin ledgers verify {ledgerId}",
        "Restore the file from another replica or a backup, then check the disk.",
        _KEEP_COPIES,
    ),
    Cause(
        "length-differs",
        Severity.WARNING,
        "A ledger's length does not match its entries",
        "The payload bytes in the metadata differ from those in the last entry, or from the sum of the payloads.",
        "Uses it for sizes, quotas and retention.",
        "pulsar-admin ledgers verify {ledgerId}",
        "Read the whole ledger. This alone loses nothing.",
    ),
    Cause(
        "file-damaged",
        Severity.WARNING,
        "An entry log or journal is damaged",
        "Parts of the file are not records, or are records with a wrong digest. Other findings list what was lost,"
        " by ledger.",
        "The bookie returns an error for entries there, and the client asks another bookie. One damaged log "
        "silently stops compaction (bookkeeper#4596).",
        "pulsar-admin logs verify {where}",
        "See which entries they were. If other copies are good, BookKeeper's `recover` makes the missing ones.",
        _KEEP_COPIES,
    ),
    Cause(
        "index-file-wrong",
        Severity.WARNING,
        "A bookie's index file points to the wrong place",
        "An `.idx` file names entry logs or offsets that do not have its ledger. This store reads the logs and "
        "needs no index.",
        "The bookie returns NoSuchEntry or another error, and a broker reads from another bookie with a copy.",
        "pulsar-admin store salvage BOOKIE",
        "Rebuild the bookie's index while it is stopped.",
    ),
    Cause(
        "recovery-fails",
        Severity.CRITICAL,
        "A ledger is open, and its recovery will fail",
        "No bookie has a good record of the entry after the last acknowledged one, and the bookies that should "
        "have it do not rule it out either.",
        "Cannot open the topic: each load tries to recover the ledger and fails.",
        "pulsar-admin ledgers info {ledgerId}",
        "Look at `openEnd`. Add the bookie that has the entry, or a good copy of its file.",
        _KEEP_COPIES,
    ),
    Cause(
        "copies-missing",
        Severity.WARNING,
        "Entries are on fewer bookies than their write quorum",
        "A bookie that should have them has no record of them. Other copies are good, unless another finding names"
        " the ledger.",
        "Reads from the remaining copies. Autorecovery replicates the ledger only if it knows that a bookie or "
        "disk is lost.",
        "pulsar-admin ledgers underreplicated",
        "On the live cluster: `bookkeeper shell recover BOOKIE`, or mark the ledgers with `bookkeeper shell "
        "triggeraudit`.",
        "Run autorecovery, and never replace a bookie's disk with an empty one under the same cookie.",
    ),
    Cause(
        "copies-damaged",
        Severity.NOTE,
        "Entries have damaged copies, and good ones",
        "Records on one bookie have a wrong digest. The same entries on another bookie are good.",
        "The client verifies the digest and reads the good copy.",
        "pulsar-admin ledgers underreplicated",
        "Replace the damaged bookie's disk through autorecovery before the other copy fails.",
    ),
    Cause(
        "copies-differ",
        Severity.WARNING,
        "Copies of an entry have different bytes",
        "Two bookies have good digests for the same entry but different content: disks of two clusters, or a "
        "reused ledger id.",
        "Delivers whichever copy it happens to read.",
        "pulsar-admin logs dump {where}",
        "Look at both. Remove disks of another cluster from the source directory and import again.",
        "Never restore an old ZooKeeper backup under bookies that kept running: ledger ids are assigned twice.",
    ),
    Cause(
        "copies-unknown",
        Severity.NOTE,
        "It is not known which bookie has which entry",
        "The store does not record which file belongs to which bookie.",
        "Nothing.",
        "pulsar-admin store index --rebuild",
        "Import the cluster's bookies by name to have copies counted.",
    ),
    Cause(
        "bookie-not-imported",
        Severity.NOTE,
        "A bookie of the cluster was not imported",
        "Ledgers name it, but its disks are not here. Nothing indicates a loss.",
        "Reads from it, if it runs.",
        "pulsar-admin store add bookie {bookie}=DIR",
        "Add its disks to check.",
    ),
    Cause(
        "bookie-not-known",
        Severity.WARNING,
        "Disks of a bookie that the cluster does not know",
        "The cookie of a directory is not in the metadata: the disks may belong to another cluster.",
        "A bookie with a cookie that the metadata does not have refuses to start (InvalidCookieException).",
        "pulsar-admin bookies list-bookies",
        "Remove the directory from the source and import into a new store, or keep it if you know it.",
    ),
    Cause(
        "journal-absent",
        Severity.WARNING,
        "The journal of a bookie is not here",
        "Entries that were acknowledged and are not yet in an entry log exist only in the journal. Ledgers are "
        "open or lack entries.",
        "A bookie replays its journal when it starts; without it these entries are lost.",
        "pulsar-admin store refresh",
        "Copy the journal directory (`*.txn`), then refresh, or add it with `store add bookie`.",
        "Back up journal and ledger directories together.",
    ),
    Cause(
        "ledgers-unreferenced",
        Severity.NOTE,
        "Ledgers that nothing references",
        "They have metadata, but no topic, cursor, schema, compaction or bucket names them.",
        "Never deletes them, and neither do bookies: they keep their disk space forever.",
        "pulsar-admin ledgers orphans",
        "Look at what they claim to be. `ledgers delete` frees them. If a topic lost its list, its ledgers are "
        "here: use `store recover`.",
    ),
    Cause(
        "ledgers-deleted",
        Severity.NOTE,
        "Deleted ledgers that still have entries on disk",
        "Their metadata is gone and nothing references them, so they wait for garbage collection. `topics "
        "undelete` may restore them. That somebody deleted them follows from metadata that is whole: RocksDB has no history that shows it.",
        "Bookies free them in a garbage collection, if a whole entry log is dead or compaction reaches them.",
        "pulsar-admin ledgers orphans",
        "Nothing to do. To keep them, stop the bookies and see `topics undelete`.",
    ),
    Cause(
        "cursor-unreadable",
        Severity.CRITICAL,
        "A subscription's position cannot be read",
        "The cursor's node is damaged.",
        "Fails to open the cursor; the topic does not load.",
        "pulsar-admin topics subscription-history {topic} -s {subscription}",
        "Restore an earlier state (`topics restore`), or create the subscription again.",
        _NO_HAND,
    ),
    Cause(
        "cursor-ledger-without-metadata",
        Severity.CRITICAL,
        "A cursor ledger has lost its BookKeeper metadata",
        "The entries of the cursor ledger are still here and show where the subscription stood, but no broker will"
        " see them.",
        "Starts the subscription at the snapshot in its node, and redelivers everything acknowledged since.",
        "pulsar-admin ledgers restore {ledgerId}",
        "Rebuild the ledger's metadata, or reset the subscription to the position in the evidence.",
        _KEEP_COPIES,
    ),
    Cause(
        "cursor-ledger-lost",
        Severity.CRITICAL,
        "A cursor's ledger is lost",
        "The ledger with the subscription's acknowledgements is gone, empty or unreadable.",
        "Starts the subscription at the snapshot in its node, and redelivers everything acknowledged since the "
        "ledger was created.",
        "pulsar-admin topics subscription-history {topic} -s {subscription}",
        "Find out how far consumers got and move the subscription there with `topics reset-cursor`.",
        _KEEP_COPIES,
    ),
    Cause(
        "cursor-ledger-damaged",
        Severity.CRITICAL,
        "The newest entries of a cursor's ledger cannot be read",
        "Only an older state of the subscription is left.",
        "Reads only the last entry of the ledger. If that fails, it starts at the snapshot in the cursor's node.",
        "pulsar-admin topics subscription-history {topic} -s {subscription}",
        "Find out how far consumers got and move the subscription there with `topics reset-cursor`.",
        _KEEP_COPIES,
    ),
    Cause(
        "compacted-ledger-without-metadata",
        Severity.CRITICAL,
        "A compacted ledger has lost its BookKeeper metadata",
        "The `__compaction` cursor names a compacted ledger that no broker can open.",
        "Readers of the compacted view, and compaction itself, hang.",
        "pulsar-admin ledgers restore {ledgerId}",
        "If its entries are gone, use `compaction run --from-start` or `ledgers forget`.",
        _KEEP_COPIES,
    ),
    Cause(
        "schema-ledger-without-metadata",
        Severity.CRITICAL,
        "The ledger of a schema version is lost",
        "A version of the topic's schema cannot be read.",
        "Answers 500 for that version. If it is the newest, the broker refuses producers with a schema.",
        "pulsar-admin ledgers restore {ledgerId}",
        "If its entries are gone, `ledgers forget` keeps the remaining versions of the schema.",
        _KEEP_COPIES,
    ),
    Cause(
        "bucket-ledger-without-metadata",
        Severity.WARNING,
        "The ledger of a bucket of delayed messages is lost",
        "The messages are still in the topic. Only their index is gone.",
        "Reads all the messages and builds the bucket again.",
        "pulsar-admin ledgers forget {ledgerId}",
        "Nothing is lost. Forget the ledger to save the broker the error.",
        _KEEP_COPIES,
    ),
)
"""A row for each code of ``store.check.data``, ``store.check.replicas`` and the deep check that is about what Pulsar left."""
