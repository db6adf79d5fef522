"""Rules about partitioned topics whose metadata and existing partitions disagree."""

from collections.abc import Iterator, Sequence

from pulsar_admin.store.facts.cluster import ClusterFacts
from pulsar_admin.store.facts.partitions import Partitions
from pulsar_admin.store.names import PARTITION_SUFFIX, shell_word
from pulsar_admin.store.rules.finding import Severity
from pulsar_admin.store.rules.rule import Evidence, Rules, first_of
from pulsar_admin.store.wording import counted, listed, plural

_NAMED = 5
_UNREAD = "pulsar-admin doctor --code topic-unreadable"
"""The look where one that would be deleted cannot be read, which is refused."""
PARTITION_RULES = Rules[ClusterFacts]()


@PARTITION_RULES.row(
    "partitions-without-metadata",
    Severity.WARNING,
    "Partitions exist without the metadata of their topic",
    "The node below `/admin/partitioned-topics` with the topic's number of partitions is gone (apache/pulsar#24225).",
    "Does not find the topic. Consumers and producers get a new topic of that name without partitions, or none if "
    "topics are not created automatically; only clients that name a partition get its messages.",
    "pulsar-admin topics create-partitioned-topic {topic} -p {partitions}",
    "Create the metadata again before a client creates a topic of that name: the existing partitions become part of it unchanged.",
    "Delete partitioned topics with `delete-partitioned-topic`, never nodes of the metadata store.",
)
def _without_metadata(facts: ClusterFacts) -> Iterator[Evidence]:
    for one in facts.disagreeing_partitions:
        if one.record is None and one.there and not one.is_plain:
            yield Evidence(
                str(one.name),
                f"{_there(one)}, and no metadata says that it is partitioned: a producer that uses the name creates a "
                f"new topic without partitions, if topics are created automatically{_doubt(facts, one)}",
                {**_of(one), "partitions": one.there[-1] + 1},
                mend=_look(facts, one, f"pulsar-admin topics stats {shell_word(one.name.partition(one.there[-1]))}"),
            )


@PARTITION_RULES.row(
    "partitions-beyond-metadata",
    Severity.WARNING,
    "More partitions exist than the topic's metadata says",
    "The number in the metadata was lowered, or comes from an older copy.",
    "Gives clients only the partitions that the metadata counts. The others keep their messages and subscriptions.",
    "pulsar-admin topics update-partitioned-topic {topic} -p {partitions}",
    "Raise the number to all existing partitions. Keys map to other partitions from then on.",
)
def _beyond(facts: ClusterFacts) -> Iterator[Evidence]:
    for one in facts.disagreeing_partitions:
        if one.record is not None and one.beyond and not _is_told(one):
            exists, them = plural(len(one.beyond), "exists", "exist"), plural(len(one.beyond), "it", "them")
            yield Evidence(
                str(one.name),
                f"its metadata {_says(one)}, and {_numbered(one.beyond)} also {exists}: no client of the topic reads or writes {them}"
                f"{_doubt(facts, one)}",
                {**_of(one), "partitions": one.beyond[-1] + 1, "beyond": first_of(one.beyond, _NAMED)},
                mend=_look(facts, one, f"pulsar-admin topics stats {shell_word(one.name.partition(one.beyond[-1]))}"),
            )


@PARTITION_RULES.row(
    "partitions-missing",
    Severity.WARNING,
    "Partitions that the topic's metadata counts do not exist",
    "A note if none exists: a broker that deletes inactive topics leaves the metadata (unless "
    "`brokerDeleteInactivePartitionedTopicMetadataEnabled`). If others exist, a creation did not finish, or one was deleted.",
    "Creates a partition when a client asks for it, if topics are created automatically. Otherwise clients of the whole topic fail"
    " (`TopicNotFoundException`).",
    "pulsar-admin topics create-missed-partitions {topic}",
    "Create the missing partitions, without subscriptions.",
)
def _missing(facts: ClusterFacts) -> Iterator[Evidence]:
    for one in facts.disagreeing_partitions:
        if one.missing and not one.beyond and not _is_told(one):
            first = one.first_missing(_NAMED)
            lacks = f"{_numbered(first, one.missing)} {plural(one.missing, 'is', 'are')} missing"
            yield Evidence(
                str(one.name),
                f"its metadata {_says(one)}, and {lacks if one.there else 'none is there'}{_doubt(facts, one)}",
                {**_of(one), "missingPartitions": list(first)},
                severity=None if one.there else Severity.NOTE,
                mend=_look(facts, one, f"pulsar-admin topics get-partitioned-topic-metadata {shell_word(one.name)}"),
            )


@PARTITION_RULES.row(
    "partitioned-topic-half-deleted",
    Severity.WARNING,
    "The deletion of a partitioned topic did not finish",
    "A broker marks the metadata as deleted, deletes the partitions, and removes the metadata last.",
    "Refuses clients of the topic and creates none of its partitions as long as the mark exists.",
    "pulsar-admin topics delete-partitioned-topic {topic}",
    "Finish the deletion. To keep the remaining entries, copy them first (`topics dump --level entries`).",
    loss="the remaining messages of its partitions, by the command",
)
def _half_deleted(facts: ClusterFacts) -> Iterator[Evidence]:
    for one in facts.disagreeing_partitions:
        if one.record is not None and one.record.deleted:
            left = f"{_there(one)}" if one.there else "none of its partitions is left"
            if one.damaged:
                left += f"; the list of ledgers of {_numbered(one.damaged)} is damaged: --force deletes it as well, and its ledgers stay"
            if one.beyond:
                left += f"; the deletion leaves {_numbered(one.beyond)}, beyond the number in the metadata"
            forced = f"pulsar-admin topics delete-partitioned-topic {shell_word(one.name)} --force"
            yield Evidence(
                str(one.name),
                f"its deletion began and did not finish: its metadata says deleted, and {left}",
                _of(one),
                mend=forced if one.damaged else _UNREAD if one.entries is None else None,
            )


@PARTITION_RULES.row(
    "partitioned-name-over-topic",
    Severity.WARNING,
    "A topic without partitions has metadata of a partitioned topic",
    "Both were created under one name, and no partition exists.",
    "Gives clients new partitions, or none. The topic's messages and subscriptions remain, but nobody can reach them.",
    "pulsar-admin topics delete-partitioned-topic {topic}",
    "Remove the metadata of partitions: the topic itself, its schema and its policies stay.",
    "Let brokers create only one kind of topic automatically (`allowAutoTopicCreationType`), and create the others "
    "before clients connect.",
)
def _record_over_plain(facts: ClusterFacts) -> Iterator[Evidence]:
    for one in facts.disagreeing_partitions:
        if one.is_plain and one.record is not None and not one.record.deleted and not one.there:
            yield Evidence(
                str(one.name),
                f"its metadata {_says(one)}, none exists, but a topic of that name without partitions does: clients "
                "ask for the partitions, and no longer get its messages",
                _of(one),
            )


@PARTITION_RULES.row(
    "topic-beside-partitions",
    Severity.WARNING,
    "A topic without partitions and partitions share one name",
    "Both were created under one name, or the metadata of the partitions was lost and a client created the topic.",
    "Gives clients one of the two, according to the metadata of partitions. Messages and subscriptions of the other "
    "remain, but nobody can reach them.",
    "pulsar-admin topics delete {topic}",
    "First load the messages that are still needed into a partition (`topics dump --level entries`, `topics load --topic`). The"
    " partitions, their metadata, schema and policies stay.",
    "Let brokers create only one kind of topic automatically (`allowAutoTopicCreationType`), and create the others "
    "before clients connect.",
    loss="the messages of the topic without partitions, by the command",
)
def _plain_beside(facts: ClusterFacts) -> Iterator[Evidence]:
    for one in facts.disagreeing_partitions:
        if one.is_plain and one.there and not (one.record is not None and one.record.deleted):
            says = (
                "and no metadata says that the name is partitioned: clients use this topic, not the partitions"
                if one.record is None
                else f"and its metadata {_says(one)}: clients use the partitions, not this topic"
            )
            holds = "" if one.plain_entries is None else f" and with {counted(one.plain_entries, 'entry')}"
            yield Evidence(
                str(one.name),
                f"a topic of that name without partitions{holds} exists beside {_numbered(one.there)}, {says}",
                {**_of(one), "topicEntries": one.plain_entries},
                mend=_UNREAD if one.plain_entries is None else None,
            )


def _is_told(one: Partitions) -> bool:
    """Whether another rule reports this name."""
    return one.is_plain or (one.record is not None and one.record.deleted)


def _there(one: Partitions) -> str:
    size = "" if one.entries is None else f" with {counted(one.entries, 'entry')} of {counted(one.bytes or 0, 'byte')}"
    return f"{_numbered(one.there)} {plural(len(one.there), 'is', 'are')} there{size}"


def _doubt(facts: ClusterFacts, one: Partitions) -> str:
    """Return why no command is printed that creates the missing partitions or metadata; "" if one is."""
    if _lost(facts, one):
        return f"; of {_numbered(_lost(facts, one))} ledgers or subscriptions remain, which an empty one would hide"
    if one.is_refused:
        return f"; `create-partitioned-topic` refuses a name with `{PARTITION_SUFFIX}`, so no command creates it"
    if not one.counts_too_many:
        return ""
    return "; all of these would have to be created: the number is probably part of a name, or damaged"


def _look(facts: ClusterFacts, one: Partitions, command: str) -> str | None:
    """Return the reading command that is printed instead of one that creates partitions; None if ``command`` is to be printed as usual."""
    if _lost(facts, one):
        return "pulsar-admin doctor --code topic-vanished"
    return command if one.is_refused or one.counts_too_many else None


def _lost(facts: ClusterFacts, one: Partitions) -> list[int]:
    """Return the numbers of the partitions that vanished: creating them anew would orphan their remaining ledgers and cursors."""
    names = (topic.name for topic in facts.vanished.topics)
    return sorted(name.partition_index for name in names if name.is_partition and name.base == one.name)


def _numbered(numbers: Sequence[int], count: int = 0) -> str:
    """Return the partition numbers ``numbers`` in words. ``count``: how many there are in all if ``numbers`` are only the first ones."""
    more = (f"{count - len(numbers):,} more",) if count > len(numbers) else ()
    return f"{plural(count or len(numbers), 'partition', 'partitions')} {listed((*numbers, *more), _NAMED + len(more))}"


def _says(one: Partitions) -> str:
    return f"says {counted(one.record.partitions if one.record else 0, 'partition')}"


def _of(one: Partitions) -> dict[str, object]:
    return {
        "topic": str(one.name),
        "there": first_of(one.there, _NAMED),
        "recorded": None if one.record is None else one.record.partitions,
        "entries": one.entries,
        "bytes": one.bytes,
    }
