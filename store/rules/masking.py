"""Which findings hide others: while one of them holds, other faults may exist without being found."""

from pulsar_admin.store.rules.deep import DEEP_SWEEPS

NAMELESS = frozenset(
    {
        "owners-differ",
        "owners-damaged",
        "node-damaged",
        "value-undecodable",
        "metadata-incomplete",
        "topic-unreadable",
        "cursor-unreadable",
        "rows-altered",
        "node-rows-altered",
        "index-rows-altered",
        "check-stopped",
    }
)
"""While one of these holds, no ledger may be called leaked: the damaged rows may reference it."""
BLIND = NAMELESS - {"cursor-unreadable", "owners-damaged", "owners-differ", "topic-unreadable"} | {"pages-damaged"}
"""Where one of these is found, a finding that is not told may be in rows that cannot be read."""
BLIND_PLACES = {"cursor-unreadable", "entries-not-seen", "topic-unreadable"}
"""The same, of the topic or ledger that they name."""
BLIND_TOPIC = "cursor-unreadable"
"""The same, of the topic in its evidence."""
UNREAD = {"not-checked", "scan-unfinished"}
"""Where one of these is found, a deep look did not read everything."""
DEEP = {rule.code for sweep in DEEP_SWEEPS for rule in sweep} - UNREAD
"""What only a deep look finds."""
FILES = {
    "copies-differ",
    "disk-full",
    "entries-only-in-journal",
    "entry-damaged",
    "entry-log-missing",
    "file-changed",
    "file-damaged",
    "file-grown",
    "file-missing",
    "file-touched",
    "file-unreadable",
    "idx-log-missing",
    "pages-damaged",
    "rows-without-digests",
    "stray-file",
}
"""Codes whose place is the path of a file, which is another in another store or on another machine."""
