"""Rules about scalable topics whose record of segments and existing managed ledgers disagree."""

from collections.abc import Iterator

from pulsar_admin.store.facts.cluster import ClusterFacts
from pulsar_admin.store.facts.scalable import ScalableFacts, SegmentFacts, iter_untiled
from pulsar_admin.store.names import TopicName
from pulsar_admin.store.rules.finding import Severity
from pulsar_admin.store.rules.rule import Evidence, Rules, first_of
from pulsar_admin.store.wording import counted, listed, plural

_NAMED = 5
_LOOK = "pulsar-admin scalable-topics get-metadata {topic}"
SCALABLE_RULES = Rules[ClusterFacts]()


def _iter_segments(facts: ClusterFacts) -> Iterator[tuple[ScalableFacts, SegmentFacts]]:
    return ((one, segment) for one in facts.scalable_topics for segment in one.segments)


@SCALABLE_RULES.row(
    "segment-hashes",
    Severity.CRITICAL,
    "The segments of a scalable topic do not cover each hash once",
    "In every epoch, the segments that producers write to cover the hashes 0000 to ffff, each exactly once. The "
    "topic's record was edited, or mixes two moments.",
    "Clients find no segment, or two, for the keys of these hashes: sends fail, and order by key is lost.",
    _LOOK,
    "Restore an earlier record of the topic (`store history`, or a backup of the metadata). No command of this toolkit edits it.",
    "Change the layout only with `split-segment` and `merge-segments`.",
)
def _hashes(facts: ClusterFacts) -> Iterator[Evidence]:
    for one in facts.scalable_topics:
        if one.record is None or one.record.deleted:
            continue
        for epoch, live in one.record.iter_live():
            wrong = iter_untiled(live)
            if one.is_pruned and epoch < one.record.epoch:
                wrong = [part for part in wrong if part[2]]  # what had these hashes then may be consumed and gone
            if wrong:
                first, last, ids = wrong[0]
                which = f"segments {listed(ids, _NAMED)} have" if ids else "no segment has"
                yield Evidence(
                    str(one.name),
                    f"in epoch {epoch} {which} the hashes {first:04x} to {last:04x}"
                    + (f", and {counted(len(wrong) - 1, 'other range')} is wrong" if len(wrong) > 1 else ""),
                    {"topic": str(one.name), "epoch": epoch, "start": first, "end": last, "segments": list(ids)},
                )
                break


@SCALABLE_RULES.row(
    "segment-relations",
    Severity.WARNING,
    "Segments of a scalable topic do not agree on their parents and children",
    "A segment names a parent or child that the record does not have or that does not name it, has children while producers still"
    " write to it, comes before its own parent, or has the ledger of another.",
    "Consumers wait for a parent to be consumed before they get its children: with a wrong parent they get messages of a key in the wrong"
    " order, or never.",
    _LOOK,
    "Restore an earlier record of the topic (`store history`, or a backup of the metadata).",
)
def _relations(facts: ClusterFacts) -> Iterator[Evidence]:
    for one in facts.scalable_topics:
        wrong = list(_wrong_relations(one))
        if wrong:
            yield Evidence(
                str(one.name),
                wrong[0] + (f"; {counted(len(wrong) - 1, 'more relation')} like that" if len(wrong) > 1 else ""),
                {"topic": str(one.name), "relations": first_of(wrong, _NAMED)},
            )


def _wrong_relations(one: ScalableFacts) -> Iterator[str]:
    segments = () if one.record is None else one.record.segments
    by_id = {segment.segment_id: segment for segment in segments}
    by_ledger: dict[TopicName, int] = {}
    passed: set[int] = set()
    for segment in segments:  # parents first, as far as there is such an order
        passed.add(segment.segment_id)
        if by_ledger.setdefault(segment.topic, segment.segment_id) != segment.segment_id:
            yield f"segments {by_ledger[segment.topic]} and {segment.segment_id} are the same ledger, {segment.topic}"
        for parent_id in segment.parents:
            parent = by_id.get(parent_id)
            if parent_id == segment.segment_id or (parent is not None and parent_id not in passed):
                yield (
                    f"segment {segment.segment_id} comes after its parent {parent_id}, and before it: they form a "
                    "circle"
                )
            if parent is None:
                yield f"segment {segment.segment_id} has the parent {parent_id}, which is not in the record"
            elif segment.segment_id not in parent.children:
                yield f"segment {segment.segment_id} has the parent {parent_id}, which has no such child"
            elif parent.start > segment.end or segment.start > parent.end:
                yield f"segment {segment.segment_id} has none of the hashes of its parent {parent_id}"
        for child_id in segment.children:
            child = by_id.get(child_id)
            if child is None:
                yield f"segment {segment.segment_id} has the child {child_id}, which is not in the record"
            elif segment.segment_id not in child.parents:
                yield f"segment {segment.segment_id} has the child {child_id}, which has no such parent"
        if segment.is_active == bool(segment.children):
            what = "is active and has children" if segment.is_active else "is sealed and has no children"
            yield f"segment {segment.segment_id} {what}"
        if one.record is not None and segment.segment_id >= one.record.next_segment_id:
            yield f"segment {segment.segment_id} has the id that the next segment gets ({one.record.next_segment_id})"


@SCALABLE_RULES.row(
    "segment-missing",
    Severity.CRITICAL,
    "A segment of a scalable topic has no managed ledger",
    "The record lists the segment, but no node below `/managed-ledgers` has its ledgers: the node was deleted, or the "
    "metadata mixes two moments.",
    "Creates an active segment again, empty, when it loads the topic. For a sealed one, consumers wait for messages "
    "that nobody has.",
    "pulsar-admin ledgers orphans",
    "Look for the segment's ledgers among those that nothing references; restore the node from a backup of the metadata, or by"
    " `store history`.",
    loss="the messages of the segment, unless its node comes back before bookies delete its ledgers",
)
def _missing(facts: ClusterFacts) -> Iterator[Evidence]:
    for one, segment in _iter_segments(facts):
        said = segment.said
        if said is not None and not said.is_legacy and not segment.is_there:
            what = f"segment {said.segment_id} of {one.name}, {said.state.lower()} since epoch "
            what += str(said.created_epoch if said.is_active else said.sealed_epoch)
            yield Evidence(
                str(segment.name),
                f"the managed ledger of {what}, does not exist",
                {"topic": str(one.name), "segment": str(segment.name), "segmentId": said.segment_id},
                severity=Severity.WARNING if said.is_active and not said.parents else None,
            )


@SCALABLE_RULES.row(
    "segment-unlisted",
    Severity.WARNING,
    "A segment that no scalable topic lists",
    "Its managed ledger exists, but no record names it: a split or a deletion that did not finish, or a record that "
    "was lost.",
    "No client reads or writes it. Its ledgers stay.",
    "pulsar-admin topics stats-internal {segment}",
    "If it has no messages, a broker that carries out the same split again uses it. If the record was lost, restore it from a backup of"
    " the metadata or by `store history`.",
    loss="nothing yet, but nobody can reach the messages",
)
def _unlisted(facts: ClusterFacts) -> Iterator[Evidence]:
    for one, segment in _iter_segments(facts):
        if segment.said is None and one.error is None:
            entries = 0 if segment.topic is None else segment.topic.number_of_entries
            why = "has no record" if one.record is None else "does not list it"
            text = f"{one.name} {why}, and the segment has {counted(entries, 'entry')}"
            yield _of_segment(one, segment, text, entries=entries)


@SCALABLE_RULES.row(
    "segment-not-sealed",
    Severity.WARNING,
    "A segment's managed ledger and its record do not agree on whether it is sealed",
    "A sealed segment's managed ledger is terminated before its children get messages. Here only one of the two "
    "happened, or the metadata mixes two moments.",
    "Producers that still know a sealed segment write to it after its children: the order by key is lost. Nobody can "
    "write to an active one that is terminated.",
    "pulsar-admin topics stats-internal {segment}",
    "Start the broker: its controller finishes the layout when it loads the topic. If it does not, restore an earlier record.",
)
def _seals(facts: ClusterFacts) -> Iterator[Evidence]:
    for one, segment in _iter_segments(facts):
        said = segment.said
        if said is None or segment.topic is None or said.is_legacy:
            continue
        is_terminated = segment.topic.managed.terminated is not None
        if is_terminated == said.is_active:
            state = "terminated, and" if is_terminated else "not terminated, and"
            yield _of_segment(one, segment, f"its managed ledger is {state} the record says {said.state}")


@SCALABLE_RULES.row(
    "migration-unfinished",
    Severity.WARNING,
    "A topic that was migrated to a scalable one is still written under its former name",
    "The scalable topic has the former topic, or its partitions, as its first segments, which must exist and be "
    "terminated. One of them does not, or is not.",
    "Messages that clients write under the former name reach clients of the scalable topic out of order, or not at "
    "all.",
    _LOOK,
    "If the former topic exists and is not terminated, terminate it: `pulsar-admin topics terminate TOPIC`. If it is "
    "gone, so are its messages: restore it (`topics undelete`).",
)
def _migrations(facts: ClusterFacts) -> Iterator[Evidence]:
    for one, segment in _iter_segments(facts):
        if segment.said is None or not segment.said.is_legacy:
            continue
        if not segment.is_there:
            yield _of_segment(one, segment, f"{one.name} has it as segment {segment.said.segment_id}, and it is gone")
        elif segment.topic is not None and segment.topic.managed.terminated is None:
            yield _of_segment(
                one,
                segment,
                f"{one.name} has it as sealed segment {segment.said.segment_id}, and it is not terminated",
            )


@SCALABLE_RULES.row(
    "segment-cursor-missing",
    Severity.WARNING,
    "A subscription of a scalable topic has no cursor on a segment",
    "It has one on a parent of the segment: a split or a merge creates the cursors of the new segments before the old ones are sealed.",
    "Creates the cursor when a consumer connects, at the end of the segment if the subscription begins at the latest "
    "message: earlier messages are never delivered. Until then nothing keeps the segment's ledgers from being trimmed.",
    "pulsar-admin topics create-subscription {segment} -s {subscription} -m earliest",
    "Create the cursor at the beginning of the segment: everything after the parent's position is then delivered.",
    loss="the messages of the segment for this subscription, once a consumer creates the cursor at its end",
)
def _cursors(facts: ClusterFacts) -> Iterator[Evidence]:
    for one in facts.scalable_topics:
        by_id = {segment.said.segment_id: segment for segment in one.segments if segment.said is not None}
        for segment in by_id.values():
            if segment.said is None or not segment.is_there:
                continue
            parents = [by_id[parent] for parent in segment.said.parents if parent in by_id]
            # Those of a former topic a consumer of the scalable one creates on its segments when it comes.
            asked = (parent for parent in parents if parent.said is not None and not parent.said.is_legacy)
            wanted = {name for parent in asked for name in parent.subscriptions}
            for name in sorted(wanted - segment.subscriptions):
                with_it = [parent.said.segment_id for parent in parents if parent.said and name in parent.subscriptions]
                entries = 0 if segment.topic is None else segment.topic.number_of_entries
                text = (
                    f"subscription {name} has no cursor on segment {segment.said.segment_id}, and has one on its"
                    f" {plural(len(with_it), 'parent')} {listed(with_it, _NAMED)}: {counted(entries, 'entry')} at stake"
                )
                yield _of_segment(one, segment, text, subscription=name, entries=entries)


def _of_segment(one: ScalableFacts, segment: SegmentFacts, sentence: str, **more: object) -> Evidence:
    return Evidence(str(segment.name), sentence, {"topic": str(one.name), "segment": str(segment.name), **more})
