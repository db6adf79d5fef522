"""The command table: what exists, where it lives and its one line of help. Reading it imports no command.

A group's key is its path (``store``, ``store import``); its rows map a command's name to module, attribute, help and
aliases. A row that is a text has no more than help: its function has the command's name, and is in the group's module.
Only what exists is listed; help and documentation pages follow the order of this file.
"""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """One command: ``module:attribute``, the first sentence of its help, other names, and whether help leaves it out."""

    target: str
    help: str
    aliases: tuple[str, ...] = ()
    hidden: bool = False


def _row(target: str, text: str, aliases: tuple[str, ...] = (), hidden: bool = False) -> Row:
    """Return the row of a command in ``pulsar_admin.commands``."""
    return Row(f"pulsar_admin.commands.{target}", text, aliases, hidden)


_MODULES = {
    "managed-ledger": "managed_ledger",
    "ns-isolation-policy": "isolation",
    "resource-quotas": "limits",
    "resourcegroups": "limits",
    "scalable-topics": "scalable",
    "topicPolicies": "policies",
}
"""The modules of groups with another name."""


def _row_of(group: str, name: str, row: str | Row) -> Row:
    """Return a row with its function, by default ``name``; of a text alone that of a function in the module of the group."""
    made = _row(_MODULES.get(group, group), row) if isinstance(row, str) else row
    return made if ":" in made.target else made._replace(target=f"{made.target}:{name.replace('-', '_')}")


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

_TABLE: dict[str, dict[str, str | Row]] = {
    ROOT: {
        "overview": _row(
            "overview",
            "Show the whole store on one screen: age, sizes, worst backlogs, disk usage, findings, and what to run next.",
        ),
        "metrics": _row(
            "metrics", "Write a store's backlogs, ages, sizes, dead bytes and findings as metrics for Prometheus."
        ),
        "sql": _row(
            "sql",
            "Query the store in SQL: a topic is a table, values are columns, and data that a condition rules out is not read.",
        ),
        "apply": _row("store.history", "Apply a plan file, written by --plan FILE of any changing command."),
        "completion": _row("completion", "Print the script that completes commands, options and names in a shell."),
        "doctor": _row("doctor", "Find problems in a store and in the data that Pulsar left, the worst first."),
    },
    "store": {
        "init": _row("store.importing", "Create an empty store."),
        "info": _row("store.inspect", "Show what the store contains and where it came from."),
        "ls": _row("store.inspect", "List the metadata nodes below PATH, as in Pulsar's metadata store."),
        "cat": _row("store.inspect", "Show the value of one metadata node."),
        "owner": _row(
            "store.inspect", "Show which topic, cursor, schema, compaction or delayed index each LEDGER belongs to."
        ),
        "check": _row(
            "store.check",
            "Check the store: files, index, owners, audit log, and whether metadata, ledgers and cursors agree.",
        ),
        "refresh": _row("store.importing", "Bring the store up to date with the directory it was imported from."),
        "index": _row(
            "store.importing",
            "Rebuild the location and time index from the files and compare it with the existing one.",
        ),
        "annotate": _row(
            "store.history",
            "Write the first and last publish time (PIP-345) of closed ledgers into their topics' metadata.",
        ),
        "usage": _row(
            "store.usage", "Show what uses the disk, how much is dead, and how much garbage collection would free."
        ),
        "preflight": _row("store.recover", "Show what bookies would delete if they started with this metadata."),
        "reclaim": _row(
            "store.bookie_disks",
            "Free the disks of a stopped, full bookie: garbage collection and compaction of its entry logs.",
        ),
        "salvage": _row(
            "store.bookie_disks",
            "Rebuild the index of a stopped bookie, and truncate a journal that prevents it from starting.",
        ),
        "clone": _row("store.export", "Write the store's cluster as one standalone directory that can be started."),
        "history": _row(
            "store.past",
            "Show who changed what in the cluster's metadata, and when, from ZooKeeper's transaction logs and snapshots.",
        ),
        "diff": _row(
            "store.past", "Show the differences between the metadata of two stores, or of two moments, by topic."
        ),
        "bundle": _row("store.export", "Write metadata, index and findings into FILE, to share with others."),
        "log": _row("store.history", "List the changes made to this store, or the CHANGEs named."),
        "undo": _row("store.history", "Restore the exact bytes from before a change."),
        "recover": _row("store.recover", "Rebuild lost metadata from what bookies and ledgers still record."),
    },
    "store import": {
        "standalone": _row("store.importing", "Read a standalone Pulsar's data directory into a new store."),
        "cluster": _row(
            "store.clusters",
            "Read the parts of a cluster, its metadata and the disks of its bookies, into a new store.",
        ),
        "bundle": _row("store.export:import_bundle", "Create a store from the incident bundle FILE."),
        "tables": _row(
            "store.tables:import_tables", "Create a store from the tables that `store export tables` wrote."
        ),
    },
    "store add": {
        "bookie": _row("store.clusters:add_bookie", "Add the disks of another bookie of the cluster to the store."),
        "zookeeper": _row(
            "store.clusters:add_zookeeper", "Add the cluster's metadata to a store that has only bookies."
        ),
        "offload": _row(
            "store.clusters:add_offload", "Add ledgers that were offloaded to tiered storage to the store."
        ),
    },
    "topics": {
        "list": _row("topics.listing:list_topics", "List the topics of a namespace, or all topics."),
        "list-partitioned-topics": _row(
            "topics.listing:list_partitioned", "List the partitioned topics of a namespace."
        ),
        "get-partitioned-topic-metadata": _row(
            "topics.listing:partitioned_metadata", "Show how many partitions a topic has."
        ),
        "stats": _row("topics.stats", "Show the size of a topic and the backlog of its subscriptions."),
        "partitioned-stats": _row(
            "topics.stats", "Show the size and the backlogs of a partitioned topic, summed over its partitions."
        ),
        "stats-internal": _row("topics.stats", "Show the ledgers and cursors of a topic."),
        "partitioned-stats-internal": _row(
            "topics.stats", "Show the ledgers and cursors of every partition of a topic."
        ),
        "info-internal": _row("topics.stats", "Show the stored metadata of a topic."),
        "subscriptions": _row("topics.listing", "List the subscriptions of a topic."),
        "why": _row("topics.why", "Explain why a subscription is where it is, or why bytes stay on disk."),
        "describe": _row("topics.listing", "Show everything known about a topic on one screen."),
        "subscription-history": _row(
            "topics.ack_history", "Show every recorded state of a subscription's acknowledgements."
        ),
        "last-message-id": _row("topics.messages", "Show the id of the last message of a topic."),
        "get-message-by-id": _row("topics.messages", "Show one entry of a topic by its id."),
        "examine-messages": _row("topics.messages", "Show the n-th entry of a topic from its beginning or its end."),
        "peek-messages": _row("topics.messages", "Show the first messages of a subscription's backlog."),
        "read": _row(
            "topics.messages", "Read the messages of a topic: batches split, chunks joined, payloads decompressed."
        ),
        "search": _row(
            "topics.messages", "Search the messages of topics: by key, property, producer, time, payload or value."
        ),
        "get-backlog-size": _row("topics.stats", "Show how many bytes follow a position."),
        "analyze-backlog": _row("topics.stats:analyze", "Count a subscription's backlog."),
        "find-by-time": _row("topics.find", "Find the first entry at or after a point in time."),
        "get-message-id": _row("topics.message_id", "Show the id that a broker finds for a point in time."),
        "get-message-id-by-index": _row(
            "topics.message_id", "Show the id of the entry with an index assigned by the broker."
        ),
        "find-by-index": _row("topics.message_id", "Find a message by the index assigned by the broker."),
        "dump": _row("topics.dumping", "Write messages or entries of topics as JSON lines or Parquet."),
        "copy": _row(
            "topics.dumping",
            "Copy whole topics from another store: messages, partitions, subscriptions with their acknowledgements, schema, properties.",
        ),
        "load": _row("topics.dumping", "Append the entries of a dump to their topics."),
        "skew": _row("topics.clocks", "Find the producers whose clocks are wrong."),
        "timeline": _row("topics.clocks", "Plot how many entries, messages and bytes arrived when."),
        "reset-cursor": _row(
            "topics.cursors", "Move a subscription so that redelivery starts at a time or a position."
        ),
        "expire": _row(
            "topics.cursors",
            "Expire the messages of a subscription that are older than a limit, or up to a position.",
            ("expire-messages",),
        ),
        "expire-all-subscriptions": _row(
            "topics.cursors",
            "Expire the messages of every subscription that are older than a limit.",
            ("expire-messages-all-subscriptions",),
        ),
        "skip": _row("topics.cursors", "Skip the next entries of a subscription."),
        "clear-backlog": _row("topics.cursors", "Skip the whole backlog of a subscription.", ("skip-all",)),
        "create-subscription": _row("topics.cursors", "Create a subscription at a position."),
        "unsubscribe": _row("topics.cursors", "Remove a subscription."),
        "create": _row("topics.lifecycle", "Create a topic without partitions."),
        "create-partitioned-topic": _row(
            "topics.lifecycle:create_partitioned", "Create a partitioned topic and its partitions."
        ),
        "create-missed-partitions": _row(
            "topics.lifecycle:create_missed", "Create the missing partitions of a partitioned topic."
        ),
        "update-partitioned-topic": _row(
            "topics.lifecycle:update_partitioned", "Add partitions to a partitioned topic."
        ),
        "create-shadow-topic": _row(
            "topics.lifecycle:create_shadow",
            "Create a shadow topic: it shows the entries of another topic and has its own subscriptions.",
        ),
        "get-shadow-source": _row("topics.lifecycle", "Show the source topic of a shadow topic."),
        "get-properties": _row("topics.properties:get", "Show the properties of a topic."),
        "update-properties": _row("topics.properties:update", "Set properties of a topic and keep the others."),
        "remove-properties": _row("topics.properties:remove", "Remove one property of a topic."),
        "get-subscription-properties": _row(
            "topics.properties:get_of_subscription", "Show the properties of a subscription."
        ),
        "update-subscription-properties": _row(
            "topics.properties:update_of_subscription", "Set the properties of a subscription, replacing those it has."
        ),
        "get-replicated-subscription-status": _row(
            "topics.properties:get_replicated", "Show whether clusters share the position of a subscription."
        ),
        "set-replicated-subscription-status": _row(
            "topics.properties:set_replicated", "Set whether clusters share the position of a subscription."
        ),
        "bundle-range": _row(
            "topics.status:bundle", "Show the bundle of its namespace that a topic's name hashes into."
        ),
        "compact": _row("topics.status", "Compact a topic by the rules of 4.0, as a broker of that version would."),
        "compaction-status": _row("topics.status", "Show whether a compaction of a topic is running."),
        "offload-status": _row("topics.status", "Show whether ledgers of a topic are being offloaded."),
        "terminate": _row("topics.lifecycle", "Terminate a topic: no more messages can be added."),
        "partitioned-terminate": _row(
            "topics.lifecycle", "Terminate all partitions of a topic: no more messages can be added."
        ),
        "trim-topic": _row(
            "topics.lifecycle:trim",
            "Delete the ledgers of a topic that every subscription has consumed and retention does not keep, except the last one.",
        ),
        "truncate": _row(
            "topics.lifecycle",
            "Move every subscription of a topic to its end and delete its ledgers except the last one, regardless of retention.",
        ),
        "undelete": _row(
            "topics.lifecycle", "Restore deleted topics, or trimmed parts of topics, if bookies still have the entries."
        ),
        "restore": _row(
            "topics.lifecycle",
            "Restore a topic as it was at a point in time: its ledgers, and its subscriptions at their positions.",
        ),
        "delete": _row("topics.lifecycle", "Delete a topic with its subscriptions, ledgers, schema and policies."),
        "delete-partitioned-topic": _row(
            "topics.lifecycle:delete_partitioned",
            "Delete a partitioned topic and its partitions with their subscriptions, ledgers, schema and policies.",
        ),
        "permissions": _row(
            "topics.properties", "Show the permissions of roles on a topic: its own, and those of its namespace."
        ),
        "grant-permission": _row(
            "topics.properties:grant", "Grant a role permissions on a topic, replacing those it had on the topic."
        ),
        "revoke-permission": _row(
            "topics.properties:revoke", "Revoke a role's permissions on a topic; those on the namespace are kept."
        ),
    },
    "store export": {
        "standalone": _row("store.export", "Write the store's changes into a Pulsar data directory."),
        "zookeeper": _row("store.export", "Write the store's changes into a live ZooKeeper ensemble."),
        "bookie": _row(
            "store.clusters:export_bookie",
            "Write the ledgers created here (compaction, load, policies) to bookies of the cluster, which must be stopped.",
        ),
        "tables": _row(
            "store.tables:export",
            "Write what the store knows as Parquet tables: topics, ledgers, cursors, entries and more.",
        ),
        "zookeeper-snapshot": _row(
            "store.export", "Write the store's metadata as a snapshot that a ZooKeeper server can start from."
        ),
    },
    "topicPolicies": {
        "delete": "Delete all policies of topics, including global ones.",
    },
    "scalable-topics": {
        "list": _row("scalable:list_topics", "List the scalable topics of a namespace."),
        "get-metadata": "Show the segments of a scalable topic as they are stored.",
        "stats": "Show the sizes and backlogs of a scalable topic over all of its segments.",
        "segment-stats": "Show the size and the backlogs of one segment of a scalable topic.",
        "create": "Create a scalable topic.",
        "delete": "Delete a scalable topic with its segments, subscriptions, ledgers and schema.",
        "seek": "Reset a subscription to a time, on every segment: exact, as `topics reset-cursor` is.",
        "clear-backlog": "Skip the whole backlog of a subscription, on every segment.",
        "permissions": "Show the permissions of roles on a scalable topic: its own, and those of its namespace.",
        "grant-permission": "Grant a role permissions on a scalable topic, replacing those it had there.",
        "revoke-permission": "Revoke a role's permissions on a scalable topic; those on the namespace are kept.",
    },
    "namespaces": {
        "list": _row("namespaces:list_namespaces", "List the namespaces of a tenant, or all namespaces."),
        "topics": _row("namespaces", "List the topics of a namespace.", ("destinations",)),
        "list-cluster": "List the namespaces of TENANT/CLUSTER that have a cluster in their name.",
        "policies": "Show the policies of a namespace as they are stored.",
        "clear-backlog": "Skip the whole backlog of a namespace's subscriptions.",
        "unsubscribe": "Remove a subscription from every topic of a namespace that has it.",
        "enable-delayed-message": "Enable delayed messages for all topics of a namespace.",
        "disable-delayed-message": "Disable delayed messages for all topics of a namespace: a broker delivers everything at once.",
        "create": "Create a namespace.",
        "delete": "Delete a namespace without topics; with --force also its topics, subscriptions, ledgers and schemas.",
        "bundles": _row("namespaces:show_bundles", "Show the bounds of a namespace's bundles."),
        "split-bundle": "Split a bundle of a namespace.",
        "get-topic-positions": "Show the hashes of the persistent topics in a bundle.",
        "get-properties": "Show the properties of a namespace.",
        "get-property": "Show a property of a namespace, null if it does not exist.",
        "set-property": "Set a property of a namespace.",
        "set-properties": "Set properties of a namespace and keep the others.",
        "remove-property": "Remove a property of a namespace.",
        "clear-properties": "Remove all properties of a namespace.",
        "permissions": "Show the permissions of roles on a namespace.",
        "grant-permission": "Grant a role permissions on a namespace, replacing those it had.",
        "revoke-permission": "Revoke a role's permissions on a namespace.",
        "subscription-permission": "Show the roles of each subscription that is restricted to some roles.",
        "grant-subscription-permission": "Restrict a subscription name in a namespace to some roles.",
        "revoke-subscription-permission": "Revoke a role's access to a subscription; without roles, all may use it.",
        "get-allowed-clusters": "List the clusters that a namespace may replicate to; an empty list means those of its tenant.",
        "set-allowed-clusters": "Set the clusters that a namespace may replicate to.",
        "get-anti-affinity-group": "Show a namespace's anti-affinity group; an empty line if not set.",
        "set-anti-affinity-group": "Put a namespace into a group whose members brokers keep apart.",
        "delete-anti-affinity-group": "Take a namespace out of its anti-affinity group.",
        "get-anti-affinity-namespaces": "List the namespaces of a tenant in an anti-affinity group.",
        "get-bookie-affinity-group": "Show the bookie groups that store a namespace's data, null if all do.",
        "set-bookie-affinity-group": "Restrict a namespace's data to some bookie groups.",
        "delete-bookie-affinity-group": "Let all bookies store a namespace's data.",
        "update-migration-state": "Set whether a namespace is migrated to the target of its cluster.",
    },
    "tenants": {
        "list": _row("tenants:list_all", "List the tenants."),
        "get": "Show the roles and clusters of a tenant.",
        "create": "Create a tenant; without clusters it may use all.",
        "update": "Change the roles or the clusters of a tenant; options that are not given are kept.",
        "delete": "Delete a tenant that has no namespaces; with --force also its namespaces and their topics.",
    },
    "clusters": {
        "list": _row("clusters:list_all", "List the clusters."),
        "get": "Show the URLs and settings of a cluster.",
        "create": "Add a cluster.",
        "update": "Replace the settings of a cluster: options that are not given are cleared, including its peers.",
        "delete": "Delete a cluster; tenants and namespaces may still name it.",
        "get-peer-clusters": "Show a cluster's peers; null if it has none.",
        "update-peer-clusters": "Set the peers of a cluster.",
        "get-cluster-migration": "Show whether a cluster is migrated, and to where.",
        "update-cluster-migration": "Set whether a cluster is migrated, and to where.",
        "list-failure-domains": "List the failure domains of a cluster with their brokers.",
        "get-failure-domain": "Show the brokers of a failure domain.",
        "create-failure-domain": "Create a failure domain of a cluster, or replace its brokers.",
        "update-failure-domain": "Replace the brokers of a failure domain; it is created if it does not exist.",
        "delete-failure-domain": "Delete a failure domain of a cluster.",
    },
    "transactions": {
        "coordinators-list": "List the transaction coordinators.",
        "coordinator-stats": "Show what a transaction coordinator's log says.",
        "coordinator-internal-stats": "Show the managed ledger of a transaction coordinator's log.",
        "transaction-metadata": "Show an open transaction.",
        "slow-transactions": "List the open transactions whose timeout is longer than a given time.",
        "transaction-buffer-stats": "Show what the entries of a topic record about transactions.",
        "transaction-in-buffer-stats": "Show what the entries of a topic record about one transaction.",
        "pending-ack-stats": "Show which transactions hold acknowledgements on a subscription.",
        "transaction-in-pending-ack-stats": "Show what a subscription records about one transaction.",
        "pending-ack-internal-stats": "Show the managed ledger of the pending acknowledgements of a subscription.",
        "buffer-snapshot-internal-stats": "Show the managed ledger of the snapshots of a topic's transactions.",
        "scale-transactionCoordinators": _row("transactions:scale", "Increase the number of transaction coordinators."),
    },
    "schemas": {
        "get": "Show the schema of a topic.",
        "metadata": "Show where the versions of a topic's schema are stored.",
        "upload": "Register a new version of a topic's schema, if it is compatible with the existing versions.",
        "compatibility": "Check whether a schema is compatible with the versions of a topic's schema.",
        "delete": "Delete the schema of a topic.",
    },
    "packages": {
        "list": _row("packages:list_packages", "List the packages of a type in a namespace."),
        "list-versions": "List the versions of a package.",
        "get-metadata": "Show the description of a package, of Pulsar 4 and 5.",
        "download": "Write the content of a package to a file.",
    },
    "brokers": {
        "list-dynamic-config": "List the settings that may change while brokers run.",
        "get-all-dynamic-config": "Show the dynamic settings that were changed.",
        "update-dynamic-config": "Set a dynamic setting of all brokers.",
        "delete-dynamic-config": "Remove a dynamic setting: each broker's configuration file applies again.",
    },
    "bookies": {
        "list-bookies": "List the bookies that have a cookie, whether they run or not.",
        "racks-placement": "Show the racks of all bookies by group.",
        "get-bookie-rack": "Show the rack of a bookie.",
        "set-bookie-rack": "Put a bookie into a rack.",
        "delete-bookie-rack": "Take a bookie out of its rack.",
        "rename": "Give a bookie another id everywhere in the metadata.",
    },
    "resourcegroups": {
        "list": _row("limits:list_all", "List the resource groups."),
        "get": "Show the rates of a resource group.",
        "create": "Create a resource group, or change the given rates of an existing one.",
        "update": "Change rates of a resource group; it is created if it does not exist.",
        "delete": "Delete a resource group that no namespace is in.",
    },
    "resource-quotas": {
        "get": _row("limits:get_quota", "Show the quota in force for a bundle, or the default one."),
        "set": _row("limits:set_quota", "Set the quota of a bundle, or the default one."),
        "reset-namespace-bundle-quota": "Remove the quota of a bundle: the default quota applies again.",
    },
    "ns-isolation-policy": {
        "list": _row("isolation:list_all", "List the isolation policies of a cluster."),
        "get": "Show an isolation policy.",
        "broker": "Show the isolation policies that apply to a broker.",
        "set": _row("isolation:set_policy", "Let only some brokers serve some namespaces."),
        "delete": "Delete an isolation policy.",
    },
    "compaction": {
        "last-id": _row("compaction.last_id", "Show the last message of a topic's compacted view."),
        "status": _row("compaction.reading", "Show how far topics are compacted, and any problems."),
        "read": _row(
            "compaction.reading", "Read the compacted view message by message, as a reader with read-compacted does."
        ),
        "find-by-time": _row(
            "compaction.reading", "Find the first entry of a compacted ledger published at or after a point in time."
        ),
        "run": _row(
            "compaction.changing", "Compact topics: keep the latest message of every key in a new compacted ledger."
        ),
        "explain": _row("compaction.checking", "Show every message of a key, whether compaction keeps it, and why."),
        "verify": _row("compaction.checking", "Check compacted ledgers against their topic's messages."),
        "attach": _row("compaction.changing", "Attach a compacted ledger that its topic no longer references."),
        "upgrade": _row(
            "compaction.changing",
            "Rewrite compacted ledgers in the format of Pulsar 4.2: the metadata of every batch lists the indexes that were kept.",
        ),
    },
    "delayed": {
        "build": "Build or update the index of delayed messages.",
        "due": "List the delayed messages that a broker would dispatch up to a point in time.",
        "histogram": "Plot how many delayed messages fall due when.",
        "replay": "Replay delayed messages in the order in which a broker would dispatch them and, with --speed, at its pace.",
        "status": "Show the delayed backlog of subscriptions, its cost, and what a TTL or quota drops before it is due.",
        "verify": "Compare a broker's bucket snapshots and our index with the topic's entries and acknowledgements.",
    },
    "nacks": {
        "add": "Track entries of a subscription for later redelivery.",
        "due": "List the negative acks that are due, and optionally pop them.",
        "stats": "Count the negative acks kept for each subscription.",
        "plan": "Show what negative acks cost at every precision, before you set negativeAckPrecisionBitCnt.",
    },
    "ledgers": {
        "list": _row("ledgers:list_ledgers", "List every ledger of the metadata and of the entry logs."),
        "info": "Show everything known about a ledger.",
        "entries": "List the entries of a ledger, each read and its digest verified.",
        "orphans": "List ledgers that no topic, cursor, schema, compaction or delayed index references.",
        "missing": "List losses: referenced ledgers that do not exist, and entries that no file has.",
        "underreplicated": "List ledgers with entries on fewer bookies than their write quorum.",
        "verify": "Read every entry of the ledgers named, or of all, and check digests, ids and lengths.",
        "forget": _row(
            "ledger_repairs",
            "Remove lost ledgers from everything that references them, so that a broker continues after them.",
        ),
        "restore": _row(
            "ledger_repairs",
            "Rebuild the lost metadata of ledgers from their entries, the bookies that hold them, and what references them.",
        ),
        "delete": _row(
            "ledger_repairs",
            "Delete the metadata of ledgers that nothing references, so that bookies free their entries.",
        ),
        "unmark": _row("ledger_repairs", "Remove the under-replication marks of ledgers that are gone or complete."),
    },
    "logs": {
        "list": _row("logs:list_logs", "List the entry logs and journals of a bookie directory."),
        "dump": "List the records of one entry log or journal.",
        "verify": "Verify whole entry logs and journals: framing, every digest, the ledgers map.",
    },
    "bookkeeper": {
        "listledgers": "List the ledgers of the metadata.",
        "ledgermetadata": "Show the metadata of a ledger, or write it to a file.",
        "ledger": "Show where the entries of a ledger are.",
        "readledger": "Show the entries of a ledger, each read and its digest verified.",
        "readlog": "Show the records of an entry log.",
        "readlogmetadata": "Show how many bytes of each ledger an entry log holds.",
        "readjournal": "Show the records of a journal.",
        "activeledgers": "List the ledgers of an entry log that are still in the metadata.",
        "lastmark": "Show the journal position up to which a bookie's entry logs are complete.",
        "listfilesondisc": "List the files of the bookies that the store came from.",
        "listbookies": "List bookies.",
        "cookie_get": "Show the cookie of a bookie.",
        "listunderreplicated": "List the ledgers that are marked as under-replicated.",
        "whatisinstanceid": "Show the instance id of the cluster.",
        "clusterinfo": "Count the bookies of the cluster.",
    },
    "managed-ledger": {
        "print-managed-ledger": "Show the stored ManagedLedgerInfo of a topic.",
        "print-cursor": "Show the stored ManagedCursorInfo of a subscription.",
        "delete-managed-ledger-ids": "Take ledgers out of the list of a topic.",
        "update-mark-delete-cursor": "Set the mark-delete position of a subscription.",
    },
}

COMMANDS: dict[str, dict[str, Row]] = {
    group: {name: _row_of(group, name, row) for name, row in rows.items()} for group, rows in _TABLE.items()
}
