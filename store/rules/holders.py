"""What can keep bytes on the disks of bookies: the codes of ``topics why --disk`` and ``store usage --why``."""

from __future__ import annotations

from collections.abc import Mapping

HOLDERS: Mapping[str, str] = {
    "cursor": "ledgers that a subscription still needs: the slowest one is named",
    "retention": "ledgers that every cursor has left, and retention keeps",
    "open-ledger": "the last ledger of a topic, which no broker deletes",
    "trim-due": "ledgers that nothing keeps: a broker deletes them once it has the topic loaded",
    "offloaded": "ledgers that are in tiered storage as well, until the deletion lag is over",
    "compacted-ledger": "the compacted ledger of a topic",
    "schema-ledger": "schemas of a topic",
    "cursor-ledger": "the ledger that says where a cursor stands",
    "delayed-bucket": "a broker's snapshot of delayed messages",
    "delayed-index": "this store's own index of delayed messages",
    "topic-unreadable": "ledgers of a topic whose metadata cannot be read",
    "other-domain": "managed ledgers that only a newer Pulsar reads, such as segments of scalable topics",
    "orphan": "ledgers with metadata that nothing references",
    "unlisted": "ledgers that the metadata does not list, and that nothing shows to be deleted",
    "dead-in-log": "deleted ledgers in an entry log in which others live",
    "dead-log": "entry logs in which nothing lives: the next garbage collection deletes them",
    "journal": "journals",
    "overhead": "headers and maps of entry logs, damage, unwritten space",
}
"""The meaning of each code, for ever."""
