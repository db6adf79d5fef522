"""What the comparison with the real pulsar-admin is made of: lines that fill a world, lines that change it, what to ask, what may differ.

A command of the mirror joins without a row here when its parameters and required options have values in the tables below.
"""

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from pulsar_admin.needs_broker import need_of
from pulsar_admin.suggest import READS, verbs_of
from pulsar_admin.upstream_list import upstream_commands

BASE = """
tenants create mirror -c standalone
namespaces create mirror/one
namespaces create mirror/set
namespaces create mirror/tp
namespaces create mirror/bare -b 4
topics create-partitioned-topic mirror/one/parts -p 2
topics create-partitioned-topic mirror/one/wide -p 3 -m a=b
topics create mirror/one/empty -m a=b
topics create mirror/one/batch
topics create mirror/one/plain
topics create mirror/one/delayed
topics create mirror/one/doomed
topics create mirror/one/ended
topics create mirror/tp/topic
topics create mirror/tp/other
topics create mirror/tp/mirrored
topics create-shadow-topic mirror/one/shadow -s mirror/one/plain
topics create-subscription mirror/one/plain -s sub -m earliest
topics create-subscription mirror/one/plain -s end
topics create-subscription mirror/one/batch -s sub -m earliest -p x=y
topics create-subscription mirror/one/batch -s s/slash:1 -m earliest
topics create-subscription mirror/one/parts -s sub -m earliest
topics create-subscription mirror/one/delayed -s sub -m earliest
topics create-subscription mirror/one/ended -s sub -m earliest
resourcegroups create rg -mp 1 -bp 2 -md 3 -bd 4
"""
"""Run on the broker before messages are sent and the copy is taken."""

_NAMESPACE = "namespaces {} mirror/set"
_TOPIC = ("topicPolicies {} mirror/tp/topic", "topicPolicies {} -g mirror/tp/topic", "topics {} mirror/tp/mirrored")
_BOTH = """
set-backlog-quota -l 9M -lt 100 -p producer_exception
set-backlog-quota -lt 200 -p consumer_backlog_eviction -t message_age
set-compaction-threshold -t 3M
set-deduplication -e
set-deduplication-snapshot-interval -i 17
set-delayed-delivery -e -t 2s -md 1h
set-dispatch-rate -md 5 -bd 6 -dt 7 -rp
set-inactive-topic-policies -e -t 8m -m delete_when_no_subscriptions
set-max-consumers-per-subscription -c 9
set-max-unacked-messages-per-consumer -m 11
set-max-unacked-messages-per-consumer -c 11
set-max-unacked-messages-per-subscription -m 12
set-max-unacked-messages-per-subscription -c 12
set-message-ttl -t 13m
set-message-ttl -ttl 13m
set-offload-policies -d filesystem -b bucket -t 10M -oat 10M
set-persistence -e 1 -w 1 -a 1 -r 2.5
set-publish-rate -m 14 -b 15
set-replicator-dispatch-rate -md 16 -bd 17 -dt 18
set-retention -t 3h -s 30M
set-subscribe-rate -sr 19 -st 20
set-subscription-dispatch-rate -md 21 -bd 22 -dt 23
set-subscription-types-enabled -t Shared,Exclusive
set-schema-compatibility-strategy -s FORWARD
set-schema-compatibility-strategy -c FORWARD
set-dispatcher-pause-on-ack-state-persistent
set-auto-subscription-creation -e
set-max-message-size -m 1000
set-max-producers -p 24
set-max-consumers -c 25
set-max-subscriptions-per-topic -s 26
set-max-subscriptions -m 26
set-replication-clusters -c standalone
set-schema-validation-enforce -e
"""
_NAMESPACES_ALONE = """
set-auto-topic-creation -e -t partitioned -n 3
set-anti-affinity-group -g group
set-bookie-affinity-group -pg primary -sg secondary
set-clusters -c standalone
set-allowed-clusters -c standalone
set-encryption-required -e
set-is-allow-auto-update-schema -d
set-max-consumers-per-topic -c 31
set-max-producers-per-topic -p 32
set-max-subscriptions-per-topic -m 33
set-max-topics-per-namespace -t 34
set-offload-deletion-lag -l 35m
set-offload-threshold -s 36M -t 5m
set-properties -p a=1,b=2
set-property -k c -v 3
set-resource-group -rgn rg
set-schema-autoupdate-strategy -c BACKWARD
set-subscription-auth-mode -m Prefix
set-subscription-expiration-time -t 37
grant-permission --role reader --actions consume,produce
grant-subscription-permission -s sub -rs reader,writer
"""
_REMOVALS = """
remove-backlog-quota
remove-retention
remove-message-ttl
remove-persistence
remove-max-producers
remove-dispatch-rate
"""
_OTHER_CHANGES = """
tenants create other -c standalone -r admin
tenants update other -r admin2 -c standalone
namespaces create other/new -b 8
namespaces delete other/new
tenants delete other
namespaces split-bundle mirror/bare -b 0x00000000_0x40000000
resourcegroups update rg -mp 5
resourcegroups create rg2 -md 7
resourcegroups delete rg2
clusters create far --url http://far:8080 --broker-url pulsar://far:6650
clusters update far --url http://far:8081
clusters create-failure-domain standalone --domain-name fd --broker-list b1,b2
clusters update-peer-clusters far --peer-clusters standalone
brokers update-dynamic-config -c dispatchThrottlingRatePerTopicInMsg -v 100
bookies set-bookie-rack -b 127.0.0.1:3181 -r /rack1 -g default -hn host
ns-isolation-policy set standalone iso --namespaces mirror/.* --primary b1 --auto-failover-policy-type min_available \
--auto-failover-policy-params min_limit=1,usage_threshold=80
resource-quotas set -n mirror/bare -b 0x40000000_0x80000000 -mi 1 -mo 2 -bi 3 -bo 4 -mem 5
topics create mirror/one/made -m k=v
topics create-partitioned-topic mirror/one/made-parts -p 2
topics update-partitioned-topic mirror/one/parts -p 4
topics update-properties mirror/one/plain -p p=q
topics remove-properties mirror/one/empty -k a
topics update-subscription-properties mirror/one/batch -s sub -p x=z
topics create-subscription mirror/one/plain -s made -m latest
topics skip mirror/one/plain -s sub -n 3
topics reset-cursor mirror/one/plain -s end -m earliest
topics clear-backlog mirror/one/delayed -s sub
topics unsubscribe mirror/one/batch -s s/slash:1
topics terminate mirror/one/ended
topics delete mirror/one/doomed
topics delete-partitioned-topic mirror/one/wide
topics grant-permission mirror/one/plain -r writer -a produce
"""


def changes() -> Iterator[str]:
    """Yield the command lines that change the world, those that upstream has no command for left out."""
    for form in (_NAMESPACE, *_TOPIC):
        alone = _NAMESPACES_ALONE if form is _NAMESPACE else ""
        for line in (*_BOTH.split("\n"), *alone.split("\n"), *_REMOVALS.split("\n")):
            if line:
                verb, _, options = line.partition(" ")
                yield f"{form.format(verb)} {options}".strip()
    yield from filter(None, _OTHER_CHANGES.split("\n"))


TOPICS = (
    "mirror/one/plain",
    "mirror/one/batch",
    "mirror/one/parts",
    "mirror/one/parts-partition-0",
    "mirror/one/empty",
    "mirror/one/delayed",
    "mirror/one/ended",
    "mirror/one/shadow",
    "mirror/one/missing",
    "mirror/tp/topic",
    "mirror/tp/other",
    "mirror/tp/mirrored",
)
_SUBSCRIBED = tuple(f"mirror/one/{name}" for name in ("plain", "batch", "delayed", "parts-partition-0", "missing"))
"""Where the real one may peek: it creates a subscription that is not there (4.0.8)."""
_POLICY_TOPICS = (*TOPICS[-3:], "mirror/one/parts", "mirror/one/missing")
NAMESPACES = ("mirror/one", "mirror/tp", "mirror/set", "mirror/bare", "mirror/missing")
_PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "<topicName>": TOPICS,
    "<topic>": TOPICS,
    "<namespaceName>": NAMESPACES,
    "<namespace>": NAMESPACES,
    "<tenant>": ("mirror", "public", "missing"),
    "<clusterName>": ("standalone", "far", "missing"),
    "<cluster>": ("standalone", "far", "missing"),
    "<resourceGroupName>": ("rg", "missing"),
    "<policyName>": ("iso", "missing"),
}
"""What to ask about."""

_ASKED_WITH: Mapping[str, tuple[str, ...]] = {
    "topics list": ("-ist", "-td persistent", "-b 0x00000000_0x40000000"),
    "topics stats": ("-etb", "-sbs"),
    "topics stats-internal": (),
    "topics partitioned-stats": ("--per-partition",),
    "topics examine-messages": ("-i earliest", "-i earliest -m 3", "-m 2"),
    "topics peek-messages": ("-s sub", "-s sub -n 7"),
    "topics analyze-backlog": ("-s sub", "-s end"),
    "topics get-message-id": ("-d 2023-01-01T00:00:00Z", "-d 2033-01-01T00:00:00Z"),
    "topics get-subscription-properties": ("-s sub",),
    "topics get-replicated-subscription-status": ("-s sub",),
    "namespaces topics": ("-ist", "-m PERSISTENT"),
    "namespaces get-property": ("-k c", "-k missing"),
    "clusters get-failure-domain": ("--domain-name fd", "--domain-name missing"),
    "clusters list": ("-c",),
    "bookies get-bookie-rack": ("-b 127.0.0.1:3181",),
    "ns-isolation-policy broker": ("--broker b1",),
}
"""Options to ask with, beside none; a command whose required options have no values here is not asked."""


def questions(path: str) -> list[str]:
    """Return the command lines that ask the reading command PATH; none where a value is missing in the tables."""
    row = upstream_commands()[path]
    given = [
        _ASKED_WITH.get(path, ()),
        *(("-ap",) for _ in _options(row, "-ap")),
        *(("-g",) for _ in _options(row, "-g")),
    ]
    options = [one for some in given for one in some]
    if not any(option.get("required") for option in row.get("options", ())):
        options.insert(0, "")
    places = [_PARAMETERS.get(parameter["label"], ()) for parameter in row.get("parameters", ())]
    if path == "topics peek-messages":
        places = [_SUBSCRIBED]
    if places == [TOPICS] and (path.startswith("topicPolicies ") or list(_options(row, "-ap"))):
        places = [_POLICY_TOPICS]
    return [" ".join(filter(None, (path, option, *subject))) for subject in product(*places) for option in options]


def _options(row: Mapping[str, Any], name: str) -> Iterator[Mapping[str, Any]]:  # Any: JSON
    return (option for option in row.get("options", ()) if name in option["names"])


def reading_commands() -> list[str]:
    """Return upstream's commands that change nothing and need no running broker, of the groups that are shown."""
    return [
        path
        for path, row in upstream_commands().items()
        if path
        and verbs_of(path.rpartition(" ")[2]) is READS
        and need_of(path) is None
        and not path.startswith(_OLD)
        and "since" not in row  # the broker that is asked is of 4.0.8
    ]


_OLD = ("persistent ", "non-persistent ", "documents ", "bookkeeper ", "managed-ledger ")

_UNKNOWN = (
    "bytesInCounter msgInCounter bytesOutCounter msgOutCounter averageMsgSize msgRateIn msgThroughputIn msgRateOut"
    " msgThroughputOut backlogQuotaLimitSize ownerBroker lastConsumedFlowTimestamp lastConsumedTimestamp lastAckedTimestamp"
    " lastMarkDeleteAdvancedTimestamp type messageAckRate oldestBacklogMessageAgeSeconds oldestBacklogMessageSubscriptionName"
    " deduplicationStatus systemTopicBytesInCounter bytesOutInternalCounter"
    # stats-internal
    " entriesAddedCounter lastLedgerCreatedTimestamp readPosition messagesConsumedCounter cursorLedger cursorLedgerLastEntry"
    " lastLedgerSwitchTimestamp state numberOfEntriesSinceFirstNotAckedMessage currentLedgerEntries currentLedgerSize"
    " lastLedgerCreationFailureTimestamp waitingCursorsCount active subscriptionHavePendingRead"
    # transactions
    " recoverStartTime recoverEndTime lastSnapshotTimestamps lowWaterMarks"
    # info-internal: a clean stop writes the topic and its cursors anew
    " version modificationDate timestamp cursorsLedgerId markDelete individualDeletedMessages properties entries size"
)
UNKNOWN = frozenset(_UNKNOWN.split())
"""Keys that docs/what-a-store-knows.md lists: a running broker's memory, its configuration, and what its stop writes anew."""

REASONS: Mapping[str, str] = {
    "topics * mirror/one/parts": "upstream refuses a partitioned topic; here each partition is a row",
    "topics peek-messages * mirror/one/missing": "upstream says nothing of a topic that is not there, and ends with 0",
    "topics stats -etb *": "of a topic without a backlog upstream shows 0 or -1, as it was loaded",
    "namespaces permissions *": "the order of a set",
    "* get-subscription-types-enabled *": "the order of a set",
    "namespaces get-schema-autoupdate-strategy *": "upstream's command fails where nothing is set",
    "topics get-shadow-topics *": "upstream's command fails where nothing is set",
    "topics get-properties mirror/one/parts": "upstream's command fails where nothing is set",
    "topicPolicies get-dispatcher-pause-on-ack-state-persistent *": "upstream's command prints a future in place of its value",
    "topicPolicies set-replication-clusters -g *": "upstream's command does not wait for the broker, which refuses without replication",
    "topic* get-retention -ap *": "the broker's configuration",
    "topic* get-backlog-quota* -ap *": "the broker's configuration",
    "topic* get-inactive-topic-policies -ap *": "the broker's configuration",
    "topic* get-dispatch-rate -ap *": "the broker's dynamic configuration, which the changes set",
    "topics set-offload-policies *": "upstream's command refuses an option by both of its names",
    "transactions coordinator-stats": "a broker without transactions has no coordinator, and says so with its stack",
    "topic* remove-backlog-quota *": "the broker's configuration: its default quota must stay below the retention",
    "topics terminate *": "the ledger that a broker opened when it loaded the topic",
    "namespaces policies mirror/set": "the order of a set",
}
"""Lines, as globs, that differ, and why."""
