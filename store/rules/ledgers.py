"""Rules about ledgers that bookies hold and the metadata does not list."""

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from pulsar_admin.store.facts import Unknown
from pulsar_admin.store.facts.cluster import ClusterFacts
from pulsar_admin.store.facts.vanished import DetachedView, keys_of_view_alone
from pulsar_admin.store.model.coverage import bring_command
from pulsar_admin.store.rules.finding import Severity
from pulsar_admin.store.rules.rule import Evidence, Rules, first_of
from pulsar_admin.store.wording import counted, listed, plural

_LOST_WITH_LEDGERS = "pulsar-admin ledgers orphans"
"""What looks for a topic whose ledgers are not listed either."""
_SHOWN = 5
_VIEWS_READ = 5
"""Compacted views that are read for their keys."""
LEDGER_RULES = Rules[ClusterFacts]()


@LEDGER_RULES.row(
    "metadata-older",
    Severity.CRITICAL,
    "The metadata is older than the bookies",
    "Bookies have ledgers with ids that this metadata never assigned: it is an older copy or backup, or its newest "
    "changes are lost. The topics that it lists, their ends and the positions of subscriptions are as of then.",
    "Bookies delete the entries of ledgers that the metadata does not list (`ScanAndCompareGarbageCollector`). The ids "
    "are assigned a second time: bookies that have fenced such a ledger refuse its new entries, others mix entries of "
    "both under one id.",
    "pulsar-admin store recover --level B",
    "Start no bookie on it. Provide newer metadata, if you have any, and run `store refresh`. Otherwise roll it "
    "forward over the bookies' newer ledgers.",
    "Copy the metadata after the bookies' disks, or copy everything from a stopped cluster.",
    leads=True,
    loss="the entries of the ledgers, once a bookie starts on this metadata",
)
def _metadata_older(facts: ClusterFacts) -> Iterator[Evidence]:
    newer, next_id = facts.newer_ledgers, facts.next_ledger_id
    if newer is None or isinstance(next_id, Unknown):
        return
    named = f" ({newer.referenced:,} of them named by topics)" if newer.referenced else ""
    size = f"{counted(newer.entries, 'entry')} of {counted(newer.bytes, 'byte')}"
    # With no entry there is nothing to roll forward over: `ledgers missing` says what names the ledgers, and the command for each.
    mend, hint = None if newer.entries else "pulsar-admin ledgers missing", ""
    if newer.entries and facts.is_incomplete:  # recovery refuses that
        mend = "pulsar-admin store refresh"
        hint = (
            "Start no bookie on it. Provide intact or newer metadata, then run: pulsar-admin store refresh; if you have none, roll it "
            "forward without what could not be read: pulsar-admin store recover --level B --accept-unknown-tree /"
        )
    yield Evidence(
        "metadata",
        f"it is older than the bookies: its next ledger id is {next_id}, and {counted(newer.ledgers, 'ledger')} up to {newer.largest}"
        f"{named} with {size} {plural(newer.ledgers, 'is', 'are')} not in it: nobody deleted them, but a bookie that "
        "starts on this metadata will",
        {
            "nextLedgerId": next_id,
            "largestLedgerId": newer.largest,
            "ledgers": newer.ledgers,
            "referenced": newer.referenced,
            "entries": newer.entries,
            "bytes": newer.bytes,
        },
        hint,
        mend=mend,
    )


@LEDGER_RULES.row(
    "ledger-ids-repeated",
    Severity.CRITICAL,
    "The metadata will assign the ids of deleted ledgers again",
    "It lists ledgers whose ids its counter has not reached: its nodes were copied one by one, or loaded from a dump, "
    "into a new ZooKeeper, whose counter (the number of children ever created under `/ledgers/idgen`) started again; "
    "or clients chose the ids (`createLedgerAdv`). Which ids above the counter were already assigned is unknown. A "
    "warning while no bookie has entries of such ledgers.",
    "Skips the ids of listed ledgers, and assigns the others again (`LedgerCreateOp`). A bookie that still has entries "
    "of a deleted ledger then mixes both under one id: a recovery of the new ledger may include entries of the old "
    "one.",
    "pulsar-admin store export zookeeper-snapshot DIR",
    "Until then, let no broker create ledgers. The exported snapshot has the same nodes, and a counter above every id "
    "that the metadata or a bookie has. The counter of a RocksDB cannot be raised here: preflight says how many ids "
    "would be assigned twice.",
    "Move ZooKeeper by its own files (snapshot and logs), never node by node.",
    leads=True,
)
def _ids_repeated(facts: ClusterFacts) -> Iterator[Evidence]:
    beyond = facts.beyond_counter
    if beyond is not None:
        yield Evidence(
            "metadata",
            f"the next id that it assigns is {beyond.next_id}, but it lists {counted(beyond.ledgers, 'ledger')} from "
            f"there on, up to {beyond.largest}: it will assign the ids of deleted ledgers again"
            + (
                f", also those of {counted(beyond.held, 'ledger')} of which bookies have entries" if beyond.held else ""
            ),
            {
                "nextLedgerId": beyond.next_id,
                "largestLedgerId": beyond.largest,
                "ledgers": beyond.ledgers,
                "held": beyond.held,
            },
            severity=None if beyond.held else Severity.WARNING,
            mend="pulsar-admin store preflight" if facts.has_rocksdb else None,
        )


@LEDGER_RULES.row(
    "topic-vanished",
    Severity.CRITICAL,
    "A topic is gone from the metadata without having been deleted",
    "Listed ledgers name it as their owner, or its subscriptions still exist. Its node was lost, or deleted by hand.",
    "Does not know the topic: a client that uses it gets a new, empty one. Nobody deletes the ledgers, and nobody reads them.",
    "pulsar-admin store recover --level A",
    "Restore it before clients create it again. `topics undelete TOPIC --in-place` also restores the positions of "
    "subscriptions if ZooKeeper's logs show how the node was lost, and refuses if they do not. If its ledgers are"
    " not listed either, they are `gone` in `ledgers orphans`: start no bookie before they are restored from a backup of the"
    " metadata or ZooKeeper's older files. Delete none of its ledgers. Topics of another Pulsar that has its own ZooKeeper but"
    " uses this BookKeeper are reported as well: leave them alone.",
    "Delete topics with `topics delete`, never nodes of the metadata store.",
    loss="the messages of the topic, if its ledgers are deleted",
)
def _vanished(facts: ClusterFacts) -> Iterator[Evidence]:
    for topic in facts.vanished.topics:
        count, size = len(topic.ledger_ids), f"{counted(topic.entries, 'entry')} of {counted(topic.bytes, 'byte')}"
        ledgers = [f"{counted(count, 'ledger')} with {size}"] if count else []
        held = [f"{counted(len(topic.subscriptions), 'subscription')}"] if topic.subscriptions else []
        left = " and ".join(ledgers + held) or "nodes below it"
        is_one = count + len(topic.subscriptions) == 1
        yield Evidence(
            str(topic.name),
            f"its node is gone, and {left} {plural(1 if is_one else 2, 'is', 'are')} still listed: a broker that deletes a topic deletes"
            f" {'its ledgers' if count else 'its subscriptions and ledgers'} first, and no log shows that"
            + (
                ""
                if topic.has_namespace
                else "; its namespace does not exist here either: it is lost, or belongs to another Pulsar on this BookKeeper"
            ),
            {
                "topic": str(topic.name),
                "ledgers": count,
                "ledgerIds": first_of(topic.ledger_ids, _SHOWN),
                "entries": topic.entries,
                "bytes": topic.bytes,
                "subscriptions": first_of(topic.subscriptions, _SHOWN),
            },
            mend=None if count else _LOST_WITH_LEDGERS,
        )


@LEDGER_RULES.row(
    "namespace-vanished",
    Severity.CRITICAL,
    "The policies of a namespace that has topics are gone",
    "Its node below `/admin/policies` was lost, or deleted by hand: a broker that deletes a namespace deletes its topics first.",
    "Refuses all clients of the namespace (`Policies not found`).",
    "pulsar-admin store recover --level A",
    "It creates them as a broker would, with a retention that keeps all messages; set permissions, quotas and the rest again. An earlier "
    "state of the metadata has them (`--earlier STORE`).",
    "Delete namespaces with `namespaces delete`, never nodes of the metadata store.",
)
def _bare_namespaces(facts: ClusterFacts) -> Iterator[Evidence]:
    for one in facts.bare_namespaces:
        yield Evidence(
            str(one.name),
            f"its policies are gone, and {counted(one.topics, 'topic')} {plural(one.topics, 'is', 'are')} there: no broker serves"
            f" {plural(one.topics, 'it', 'them')}",
            {"namespace": str(one.name), "topics": one.topics},
        )


@LEDGER_RULES.row(
    "compacted-view-detached",
    Severity.WARNING,
    "Nothing references a topic's compacted view any more",
    "The compaction cursor lost the property that names the compacted ledger, as after `topics truncate` on a 4.0 "
    "broker.",
    "Serves compacted reads only from the topic's own ledgers. Nobody deletes the compacted ledger.",
    "pulsar-admin compaction attach {topic} {ledgerId}",
    "Attach it to the topic again: readers get its keys, then the topic's later messages. A key whose later value was "
    "in ledgers that are gone gets its old value back.",
    "Compact a topic to its end before truncating it, and read the view from another topic afterwards.",
    loss="keys whose messages were trimmed, if the ledger is deleted",
)
def _detached_views(facts: ClusterFacts) -> Iterator[Evidence]:
    for number, view in enumerate(one for one in facts.vanished.views if not one.unfit):
        keys = keys_of_view_alone(facts.reader, view) if number < _VIEWS_READ else Unknown("other views were read")
        if isinstance(keys, Unknown):
            only = "it is the only copy of keys whose messages were trimmed"
        elif keys:
            only = f"{counted(len(keys), 'key')} ({listed(map(repr, keys), _SHOWN)}) {plural(len(keys), 'is', 'are')} only in it"
        else:
            only = "the topic's own ledgers also have all its keys"
        told = {} if isinstance(keys, Unknown) else {"keys": len(keys), "firstKeys": first_of(keys, _SHOWN)}
        yield _of_view(view, f"is no longer referenced, and the topic has no other: {only}", told)


@LEDGER_RULES.row(
    "compacted-view-unfit",
    Severity.WARNING,
    "A compacted ledger without a reference is incomplete for readers",
    "It was never closed, because its compaction did not finish, or some of its entries are lost. The topic has no "
    "other compacted view. A note if bookies that are not imported may have these entries, or its reference.",
    "Serves compacted reads only from the topic's own ledgers. Nobody deletes the compacted ledger.",
    "pulsar-admin ledgers entries {ledgerId}",
    "No command completes it: look at its entries, and import the bookies that have the rest. If the topic's own "
    "ledgers still have everything that it was made from, `compaction run TOPIC` creates another.",
    loss="keys whose messages were trimmed, if the ledger is deleted",
)
def _unfit_views(facts: ClusterFacts) -> Iterator[Evidence]:
    for view in facts.vanished.views:
        if view.absent:
            names, are = ", ".join(view.absent), plural(len(view.absent), "is", "are")
            what = (
                "may still be referenced: the newest state of `__compaction`"
                if view.may_name_it
                else "is no longer referenced; the entries that it lacks here"
            )
            unknown = f"{what} should be on {names}, which {are} not imported"
            yield replace(_of_view(view, unknown, {}), severity=Severity.NOTE, mend=bring_command(view.absent[0]))
        elif view.unfit:
            yield _of_view(view, f"is no longer referenced and cannot be attached again: {view.unfit}", {})


def _of_view(view: DetachedView, what: str, told: Mapping[str, object]) -> Evidence:
    return Evidence(
        str(view.name),
        f"its compacted view in ledger {view.ledger_id}, {counted(view.entries, 'entry')} of {counted(view.bytes, 'byte')}, {what}",
        {"topic": str(view.name), "ledgerId": view.ledger_id, "entries": view.entries, "bytes": view.bytes, **told},
    )


@LEDGER_RULES.row(
    "schema-vanished",
    Severity.WARNING,
    "A topic's schema is gone from the metadata without having been deleted",
    "Listed ledgers name this schema as their owner, but its node in `/schemas` was lost, or deleted by hand. A "
    "deleted schema can look the same if brokers had created one of its ledgers twice.",
    "Counts versions from 0 again when a producer registers a schema. Messages that name an older version are "
    "decoded with another schema, or not at all. Nobody deletes the ledgers.",
    "pulsar-admin store recover --level A",
    "Restore it before producers connect. Delete none of its ledgers.",
    "Delete schemas with `schemas delete`, never nodes of the metadata store.",
    loss="the versions of the schema, if the ledgers are deleted",
)
def _vanished_schemas(facts: ClusterFacts) -> Iterator[Evidence]:
    for schema in facts.vanished.schemas:
        count = len(schema.ledger_ids)
        yield Evidence(
            str(schema.name),
            f"its schema's node is gone, but {counted(count, 'ledger')} with its versions {plural(count, 'is', 'are')} still listed: a"
            " broker that deletes a schema deletes its ledgers first",
            {"topic": str(schema.name), "ledgers": count, "ledgerIds": first_of(schema.ledger_ids, _SHOWN)},
        )


@LEDGER_RULES.row(
    "ledgers-of-others",
    Severity.NOTE,
    "Ledgers of topics or schemas that this metadata does not have",
    "They have metadata, but the owner that they name does not exist here: it was deleted before the oldest log, "
    "or lost, or it belongs to another Pulsar that uses the same BookKeeper.",
    "Ignores them, and bookies keep them.",
    "pulsar-admin ledgers orphans",
    "Find their owner. Ledgers of another Pulsar must stay. `ledgers delete --force` frees them.",
)
def _foreign(facts: ClusterFacts) -> Iterator[Evidence]:
    if facts.sharing_pulsars or facts.bare_ledgers:
        return  # ``store.rules.cluster`` tells
    gone = facts.vanished
    told = {one for topic in gone.topics for one in topic.ledger_ids} | {
        one for schema in gone.schemas for one in schema.ledger_ids
    }
    ids = sorted(gone.foreign - told)
    if ids:
        shown = f"{', '.join(map(str, ids[:_SHOWN]))}{' …' if len(ids) > _SHOWN else ''}"
        owners = list(dict.fromkeys(gone.owners[one] for one in ids))
        yield Evidence(
            f"{plural(len(ids), 'ledger')} {shown}",
            f"{counted(len(ids), 'ledger')} {plural(len(ids), 'names an owner', 'name owners')} that this metadata does not have, and no"
            f" log shows that {plural(len(ids), 'it was', 'they were')} deleted: {listed(owners, _SHOWN)}",
            {"ledgers": len(ids), "ledgerIds": first_of(ids, _SHOWN), "owners": first_of(owners, _SHOWN)},
        )


@LEDGER_RULES.row(
    "ledgers-unlisted",
    Severity.NOTE,
    "Ledgers that the metadata does not list, for an unknown reason",
    "They have entries and no metadata. The metadata is incomplete, or does not say which ledger ids it assigned: they "
    "may be lost, newer than the metadata, or deleted.",
    "Bookies free what the metadata of a running cluster does not list.",
    "pulsar-admin ledgers orphans",
    "Provide the complete metadata, then run `store refresh`; if it is lost, `store recover --dry-run` shows what can be "
    "rebuilt. Until then start no bookie on this metadata.",
    loss="the entries of the ledgers, once a bookie starts on this metadata",
)
def _unlisted(facts: ClusterFacts) -> Iterator[Evidence]:
    left = facts.unlisted_ledgers
    if left is None:
        return
    ids = ", ".join(map(str, left.first_ids))
    yield Evidence(
        f"{plural(left.ledgers, 'ledger')} {ids}{' …' if left.ledgers > len(left.first_ids) else ''}",
        f"{counted(left.ledgers, 'ledger')} of {counted(left.bytes, 'byte')}; the metadata does not list them, and nothing shows whether"
        " they were deleted",
        {"ledgers": left.ledgers, "entries": left.entries, "bytes": left.bytes, "ledgerIds": list(left.first_ids)},
    )


@LEDGER_RULES.row(
    "ledgers-not-indexed",
    Severity.NOTE,
    "Ledgers that exist only in entry logs",
    "The metadata does not list them, and the index of no bookie has them: garbage collection leaves deleted ledgers "
    "in this state until their entry logs are freed, and so does a start on the wrong metadata.",
    "A bookie without an index row answers that it has no such entry. `store recover` (C) leaves such ledgers apart.",
    "pulsar-admin store salvage --collected {disks}",
    "Only if messages are missed that were not deleted on purpose: rebuild the index of each such bookie while it is stopped, import its "
    "disks again, and only then recover.",
    of_disks=True,
)
def _not_indexed(facts: ClusterFacts) -> Iterator[Evidence]:
    for bookie, ids in facts.not_indexed.items():
        yield Evidence(
            f"bookie {bookie}",
            f"its entry logs have entries of {counted(len(ids), 'ledger')} that no bookie's index has and the metadata does not list"
            f" ({listed(ids)})",
            {
                "bookie": bookie,
                "ledgers": len(ids),
                "ledgerIds": first_of(ids, _SHOWN),
                "disks": facts.bookies.disks(bookie),
            },
        )
