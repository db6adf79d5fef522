"""What can keep bytes on the disks of bookies: the codes of ``topics why --disk`` and ``store usage --why``."""

from collections.abc import Mapping

CURSOR, RETENTION, OPEN, TRIM, OFFLOADED = "cursor", "retention", "open-ledger", "trim-due", "offloaded"
SHARED, GARBAGE, ORPHAN, UNLISTED = "dead-in-log", "dead-log", "orphan", "unlisted"
JOURNAL, OVERHEAD = "journal", "overhead"
UNREADABLE, OTHER_DOMAIN = "topic-unreadable", "other-domain"
CURSOR_LEDGER, COMPACTED_LEDGER, SCHEMA_LEDGER = "cursor-ledger", "compacted-ledger", "schema-ledger"
DELAYED_BUCKET, DELAYED_INDEX, PACKAGE = "delayed-bucket", "delayed-index", "package"

HOLDERS: Mapping[str, str] = {
    CURSOR: "ledgers that a subscription still needs: the slowest one is named",
    RETENTION: "ledgers that every subscription has consumed, kept by retention",
    OPEN: "the last ledger of a topic, which no broker deletes",
    TRIM: "ledgers that can be deleted: a broker deletes them once it has the topic loaded",
    OFFLOADED: "ledgers that are in tiered storage as well, until the deletion lag is over",
    COMPACTED_LEDGER: "the compacted ledger of a topic",
    SCHEMA_LEDGER: "schemas of a topic",
    CURSOR_LEDGER: "the ledger that stores a cursor's position",
    DELAYED_BUCKET: "a broker's snapshot of delayed messages",
    DELAYED_INDEX: "this store's own index of delayed messages",
    PACKAGE: "a package of functions, sinks or sources, or its description",
    UNREADABLE: "ledgers of a topic whose metadata cannot be read",
    OTHER_DOMAIN: "managed ledgers that only a newer Pulsar reads",
    ORPHAN: "ledgers with metadata that nothing references",
    UNLISTED: "ledgers that the metadata does not list, without a sign that they were deleted",
    SHARED: "ledgers without metadata, in entry logs that also hold live ones",
    GARBAGE: "entry logs without live ledgers: the next garbage collection deletes them",
    JOURNAL: "journals",
    OVERHEAD: "headers and maps of entry logs, damage, unwritten space",
}
"""The meaning of each code, which never changes."""
