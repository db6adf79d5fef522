"""The command table: all commands with their modules and one line of help. Reading it imports no command.

A group's key is its path (``store``, ``store import``); its rows map a command's name to module, attribute, help and
aliases. ``docs/generate.py`` writes the rows into ``commands.json`` from the commands' declarations. Help and
documentation pages follow the order of that file, in which new rows are added at the end of their group and may be moved.
"""

import os
from typing import Any, NamedTuple

from msgspec import json


class Row(NamedTuple):
    """One command: ``module:attribute``, the first sentence of its help, its aliases, and whether help hides it."""

    target: str
    help: str
    aliases: tuple[str, ...] = ()
    hidden: bool = False


ROOT = ""

GROUPS: dict[str, str] = {
    ROOT: "Inspect, repair and change Pulsar data on disk, without a broker.",
    "store": "Create, import, inspect, check, repair and export the store.",
    "store import": "Read Pulsar's own files into a new store.",
    "store add": "Add more parts of a cluster to a store.",
    "store export": "Write the store's changes back into Pulsar's own files.",
    "topics": "Topics: list, search by time, read, and move their cursors.",
    "topicPolicies": "Policies of topics, for this cluster or for all.",
    "scalable-topics": "Scalable topics of Pulsar 5.0: their segments, subscriptions and permissions.",
    "namespaces": "Namespaces: their topics and policies.",
    "tenants": "Tenants: who administers them, and the clusters they may use.",
    "clusters": "Clusters: their URLs, peers, migrations and failure domains.",
    "transactions": "Transactions: coordinators, open transactions, and what they hold.",
    "schemas": "Schemas: the versions of a topic's schema.",
    "packages": "Packages of functions, sinks and sources, if a broker keeps them in BookKeeper.",
    "brokers": "Brokers: their dynamic settings.",
    "bookies": "Bookies and their racks.",
    "resourcegroups": "Resource groups: rates that namespaces share.",
    "resource-quotas": "Quotas of bundles, which balance the load of brokers.",
    "ns-isolation-policy": "Isolation policies: namespaces that only some brokers serve.",
    "compaction": "Compacted topics: run, read and verify compaction.",
    "delayed": "Delayed messages: due times, and their index.",
    "nacks": "Negative acknowledgements: plan and track.",
    "ledgers": "Ledgers: metadata, entries, orphans and losses.",
    "logs": "One entry log file, without a store.",
    "bookkeeper": "Commands of `bookkeeper shell` that work on files.",
    "managed-ledger": "Commands of `pulsar-managed-ledger-admin`.",
}

ALIASES = {"persistent": "topics", "non-persistent": "topics", "sink": "sinks", "source": "sources"}
"""Upstream's other names of groups."""

OFTEN: dict[str, tuple[str, ...]] = {
    "Look": ("overview", "doctor", "topics why", "topics describe", "topics search", "store usage", "sql"),
    "Change": ("topics reset-cursor", "topics expire", "compaction run", "store undo"),
    "Repair": ("topics undelete", "ledgers missing", "store check", "store recover"),
    "Import and export": (
        "store import standalone",
        "store import cluster",
        "store export standalone",
        "store export zookeeper",
    ),
}
"""The most used commands, by title of the root's help, before all groups."""

MEANT = {
    "undo": "store undo",
    "log": "store log",
    "history": "store history",
    "diff": "store diff",
    "import": "store import",
    "usage": "store usage",
    "du": "store usage",
    "search": "topics search",
    "why": "topics why",
    "version": "--version",
    "documents": "Here it is: pulsar-admin --help",
    "backlog": "topics subscriptions --table",
    "backlog -s": "topics analyze-backlog",
    "topics backlog": "topics subscriptions --table",
    "topics backlog -s": "topics analyze-backlog",
    "topics find": "topics find-by-time",
    "topics history": "store history",
    "topics history -s": "topics subscription-history",
    "topics subscriptions history -s": "topics subscription-history",
    "topics move": "A topic is copied, from another store: pulsar-admin topics copy {TOPIC} --from STORE --to {NEW}",
    "topics rename": "A topic is copied, from another store: pulsar-admin topics copy {TOPIC} --from STORE --to {NEW}",
    "topics producers": "Which producers wrote its messages, and their clocks: pulsar-admin topics skew {TOPIC}",
    "ledgers show": "ledgers info",
    "topics clone": "A topic is copied, from another store: pulsar-admin topics copy {TOPIC} --from STORE --to {NEW}",
    **dict.fromkeys(("tail", "topics tail"), "The last entry: pulsar-admin topics read {TOPIC} --from latest"),
    "topics grep": "Here it is: pulsar-admin topics search {TOPIC} --text {TEXT}",
    "topics consumers": "Consumers are at brokers; their subscriptions: pulsar-admin topics subscriptions {TOPIC} --table",
    "open": "Here it is: pulsar-admin overview --store {DIR}",
    "use": "Here it is: pulsar-admin overview --store {DIR}",
    **dict.fromkeys(("html", "page", "report", "serve", "web"), "In one file: pulsar-admin doctor --html {FILE}"),
    **{
        plain: meant
        for meant, words in {
            "bookies": "bookie",
            "brokers": "broker",
            "clusters": "cluster",
            "doctor": "fix,repair,store repair",
            "ledgers": "ledger",
            "metrics": "prometheus",
            "namespaces": "namespace,ns",
            "overview": "info,stats,status,top",
            "schemas": "schema",
            "sql": "query,repl,select,shell",
            "store check": "check,fsck,scrub,verify,store fsck,store scrub,store verify",
            "store import": "create-store",
            "store info": "store list,store show,store stats,store status",
            "store log": "audit,changes,store audit,store changes",
            "store ls": "store tree",
            "store cat": "store get",
            "store usage": "df,disk,size,space,store df,store size",
            "tenants": "tenant",
            "tenants get": "tenants describe,tenants show",
            "topics": "topic",
            "topics describe": "describe,topics policies,topics show",
            "topics get-partitioned-topic-metadata": "topics partitions",
            "topics list": "list,list_queues,ls,store topics,topics ls",
            "topics read": "cat,consume,messages,read,topics cat,topics consume,topics head,topics messages",
            "topics stats": "topics count,topics size",
            "topics stats-internal": "topics ledgers",
            "topics subscriptions": "consumer-groups,subscriptions,subscriptions list,topics consumer-groups",
            "topics subscriptions --table": "cursors,lag,offsets,topics cursors,topics lag,topics offsets",
            "topics why": "topics check",
            "namespaces list": "namespaces ls",
            "compaction status": "compaction list",
            "namespaces policies": "namespaces describe,namespaces get,namespaces show",
            "schemas get": "schemas show,topics schema",
            "schemas get --all-version": "schemas history,schemas list,schemas versions",
            "ledgers info": "ledgers describe,ledgers get",
            "ledgers entries": "ledgers dump,ledgers read",
            "ledgers list": "ledgers ls,store ledgers",
            "ledgers verify": "ledgers check",
            "logs dump": "logs cat,logs read,logs show",
            "logs list": "logs ls",
            "compaction read": "compaction show",
            "compaction verify": "compaction check",
            "delayed due": "delayed list,delayed messages,delayed show",
            "delayed status": "delayed count,delayed index",
            "nacks due": "nacks list,nacks show",
        }.items()
        for plain in words.split(",")
    },
}
"""Plain words, followed by ``-s`` where a subscription has to be named → the words that take their place, or a sentence
with the command to type, in which what was typed is put."""

OFFERED = {
    plain: offered
    for offered, words in {
        "topics peek-messages": "peek",
        "topics skip": "skip-messages,topics skip-messages",
        "topics clear-backlog": "purge -s,topics purge -s",
        "topics truncate": "delete-records,purge,topics delete-records,topics purge",
        "topics trim-topic": "topics trim",
        "topics reset-cursor": "replay,reset-offsets,rewind,seek,topics replay,topics reset,topics reset-offsets,topics rewind,topics seek",
        "topics unsubscribe": "topics delete-subscription,topics remove-subscription",
        "topics create-subscription": "subscribe,topics subscribe",
        "topics undelete": "topics recover,topics restore-topic",
        "topics dump": "topics backup,topics export",
        "topics load": "produce,topics import,topics produce",
        "topics copy": "copy",
        "store undo": "revert,rollback,store revert,store rollback",
        "store reclaim": "clean,gc,bookies gc,store gc,store compact",
        "store clone": "backup,store backup,store copy",
        "store import": "store create,store open",
        "compaction run": "compaction compact",
    }.items()
    for plain in words.split(",")
}
"""Words that may mean a change, or need a subscription → the command that is offered, with the typed arguments; it does not run."""

LEFT: dict[str, str] = {
    "store generate": "docs/howto/generate.md",
    "nacks simulate": "docs/howto/negative-acks.md",
}
"""Commands (``group name``), options of all commands (``--name``) and of one (``group name --name``) that 0.1 had → the page
that says what to use instead. They answer with a sentence for this version; help and completion do not know them."""

LEFT_COLUMNS = dict.fromkeys(("trino", "lakehouse"), "docs/formats/dump.md")
"""Values of an option, ``--columns`` of messages, that 0.1 had → the page."""


def read_rows() -> dict[str, dict[str, Row]]:
    """Return the rows of ``commands.json``: group → name → row."""
    loader: Any = __spec__.loader  # from a folder or from the archive that Spark's executors have
    data = loader.get_data(os.path.join(os.path.dirname(__file__), "commands.json"))
    return json.decode(data, type=dict[str, dict[str, Row]])


COMMANDS = read_rows()
