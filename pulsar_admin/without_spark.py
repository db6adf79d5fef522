"""The reasons why commands without ``--spark`` need none.

A test checks that every command has the option or a reason.
"""

from fnmatch import fnmatchcase

WITHOUT_SPARK: dict[str, tuple[str, ...]] = {
    "it answers from metadata": (
        "store info",
        "store ls",
        "store cat",
        "store owner",
        "store log",
        "store history",
        "store diff",
        "topics get-message-id-by-index",
        "nacks due",
        "nacks stats",
        "logs list",
    ),
    "it answers from metadata and index rows": (
        "overview",
        "metrics",
        "topics stats",
        "topics subscription-history",
        "store bundle",
        "store import bundle",
        "topics partitioned-stats",
        "topics stats-internal",
        "topics partitioned-stats-internal",
        "topics get-backlog-size",
        "compaction status",
        "nacks add",
        "nacks plan",
        "ledgers list",
        "ledgers info",
        "ledgers orphans",
        "ledgers missing",
        "ledgers underreplicated",
    ),
    "it reads metadata and bookies' index files, no entries": ("store preflight",),
    "it reads an entry, or a block's worth of heads": (
        "topics last-message-id",
        "topics get-message-by-id",
        "topics examine-messages",
        "topics reset-cursor",
        "topics skip",
        "topics clear-backlog",
        "topics create-subscription",
        "topics unsubscribe",
        "namespaces clear-backlog",
        "namespaces unsubscribe",
        "compaction last-id",
        "compaction attach",
    ),
    "it reads as many messages as it shows, one after the other": (
        "topics peek-messages",
        "ledgers entries",
        "bookkeeper *",
    ),
    "it reads the entries of one topic, one after the other": (
        "compaction explain",
        "transactions transaction-buffer-stats",
        "transactions transaction-in-buffer-stats",
    ),
    "it changes metadata": (
        "apply",
        "store init",
        "store undo",
        "store annotate",
        "bookies rename",
        "ledgers forget",
        "ledgers unmark",
        "store add zookeeper",
        "store add offload",
        "ledgers restore",
        "topics undelete",
        "topics restore",
        "ledgers delete",
        "namespaces enable-delayed-message",
        "namespaces disable-delayed-message",
    ),
    "a single writer copies what it reads into new files": (
        "topics copy",
        "topics load",
        "store import tables",
        "store export standalone",
        "store export zookeeper",
        "store export zookeeper-snapshot",
        "store export bookie",
        "store reclaim",
        "store salvage",
        "store clone",
        "compaction upgrade",
    ),
    "it reads no data": ("completion",),
}
"""Why a command takes no ``--spark``; every other one does its bulk work on it, the same bytes as here.

Commands of upstream that answer from metadata, or change it, need no row.
"""

_BULK = ("topics analyze-backlog", "topics subscriptions")
"""Commands of upstream's that read messages on Spark; a test compares it with what commands take."""


def reason_without_spark(name: str) -> str | None:
    """Return why a command has no ``--spark``; None for a command that is not in the table."""
    listed = (reason for reason, names in WITHOUT_SPARK.items() if any(fnmatchcase(name, part) for part in names))
    return next(listed, None) or _reason_of_upstreams(name)


def _reason_of_upstreams(name: str) -> str | None:
    """Return the reason for an upstream command that the table does not name: it reads or changes metadata."""
    from pulsar_admin.suggest import READS, verbs_of
    from pulsar_admin.upstream_list import upstream_commands

    if name in _BULK or name not in upstream_commands():
        return None
    return "it answers from metadata" if verbs_of(name.rpartition(" ")[2]) is READS else "it changes metadata"
