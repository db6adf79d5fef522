"""``store recover``: which level a store is at, and the plan for it."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.store.changes.packed import Packed
from pulsar_admin.store.changes.plan import ChangePart, Plan
from pulsar_admin.store.codec.ledgermetadata import LAYOUT, check_layout
from pulsar_admin.store.db.audit_log import Change, Step, iter_changes
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.files import iter_damage
from pulsar_admin.store.db.own_ledgers import find_own_ledgers
from pulsar_admin.store.db.tree import decode_node, find_node, iter_children
from pulsar_admin.store.errors import MetadataCorrupt, Refused, TopicNotFound
from pulsar_admin.store.facts import Unknown
from pulsar_admin.store.facts.indexes import NOT_INDEXED
from pulsar_admin.store.facts.trees import check_seen
from pulsar_admin.store.facts.unlisted import UnlistedLedgers
from pulsar_admin.store.model.coverage import bring_hint, find_absent_bookies, unseen_places
from pulsar_admin.store.model.ledgers import find_sums, iter_indexed_ids, sorted_ledger_ids
from pulsar_admin.store.model.topics import iter_topics, read_topic
from pulsar_admin.store.names import TopicName, parse_topic
from pulsar_admin.store.recovery.chains import LOST_AND_FOUND
from pulsar_admin.store.recovery.from_ledgers import (
    RECOVER,
    LedgerSurvey,
    Sources,
    find_cluster,
    newest_known,
    plan_from_ledgers,
    read_survey,
)
from pulsar_admin.store.recovery.rolling import plan_rolling
from pulsar_admin.store.wording import counted, listed, plural


class MetadataCondition(Struct, frozen=True):
    """The condition of a store's metadata: how many ledgers it lists, which ledgers are younger than it, and topics
    that ledgers name but that have no node, in namespaces without any topic node. ``leftovers``: such topics in other
    namespaces, as an interrupted deletion leaves their ledgers. ``headless``: topics of which only subscriptions are
    listed. ``unsure``: ledgers above all listed ones, if it is unknown which ids were allocated."""

    listed: int
    younger: tuple[int, ...]
    unsure: int
    lost_topics: tuple[TopicName, ...]
    lost_schemas: tuple[TopicName, ...]
    namespaces_without_policies: tuple[str, ...]
    leftovers: tuple[TopicName, ...]
    headless: tuple[TopicName, ...]

    @property
    def level(self) -> str | None:
        """A: ledgers are listed, the nodes that name them are lost. B: ledgers are listed, younger ones are not. C:
        none is listed. None: nothing is lost."""
        if not self.listed:
            return "C"
        if self.lost_topics or self.lost_schemas or self.namespaces_without_policies:
            return "A"
        return "B" if self.younger else None


def _read_condition(txn: Txn, survey: LedgerSurvey) -> MetadataCondition:
    """Return which parts of the store's metadata exist."""
    listed = sorted_ledger_ids(txn)
    newest = newest_known(txn)
    own = find_own_ledgers(txn)
    ours = range(0) if own is None else range(own.first_id, own.next_id)
    unlisted = UnlistedLedgers(txn)
    above = tuple(one for one in iter_indexed_ids(txn) if one > newest and one not in ours and unlisted.is_absent(one))
    is_known = not isinstance(unlisted.next_ledger_id, Unknown)
    topics = {name for name in survey.data if find_node(txn, name.path) is None}
    alive = {
        one for one in {name.namespace for name in topics} if next(iter_children(txn, one.managed_ledgers_path), None)
    }
    # Where other topics of the namespace have their nodes, ledgers without one look like a deletion under way: brokers
    # delete ledgers first. Only where all nodes of a namespace are gone is it a loss for certain.
    leftovers = {name for name in topics if name.namespace in alive}
    topics -= leftovers
    bases = {name.base for name in survey.data.keys() - leftovers}
    schemas = tuple(one for one in survey.schemas if one in bases and find_node(txn, one.schema_path) is None)
    spaces = {name.namespace for name in survey.data.keys() - leftovers if not name.namespace.cluster}
    bare = sorted(str(one) for one in spaces if find_node(txn, one.policies_path) is None)
    return MetadataCondition(
        len(listed),
        above if is_known else (),
        0 if is_known else len(above),
        tuple(sorted(topics)),
        schemas,
        tuple(bare),
        tuple(sorted(leftovers)),
        tuple(one for one in iter_topics(txn) if one not in survey.data and find_node(txn, one.path) is None),
    )


def plan_recovery(
    sources: Sources, level: str | None, names: Path | None, accepted: Collection[str] = (), *, probable: bool
) -> Plan:
    """Plan the recovery at a level, by default the one that the store's condition calls for; raises Refused,
    Unsupported, MetadataCorrupt.

    ``names``: the file of names that level C writes, or reads if it exists. ``accepted``: unknown trees that reference
    none of the ledgers. ``probable``: at level C a single witness is enough to join ledgers.
    """
    txn = sources.reader.txn
    check_seen(txn, accepted)
    _check_layout(txn)
    survey = read_survey(txn)
    condition = _read_condition(txn, survey)
    wanted = level or condition.level
    if names is not None and wanted != "C":
        raise Refused(
            "--names names what level C finds, but this store "
            f"{f'is at level {wanted}' if wanted else 'lacks nothing'}",
            hint="to rename what a recovery made: pulsar-admin store recover --rename FILE",
        )
    if probable and wanted != "C":
        raise Refused(
            f"--probable is for level C, but this store {f'is at level {wanted}' if wanted else 'lacks nothing'}",
            hint="leave it out",
        )
    if wanted is None:
        return _nothing(txn, condition, survey, None)
    if level is None:
        for name in condition.leftovers:
            del survey.data[name]
    if wanted == "C":
        if condition.listed:
            raise Refused(
                f"the metadata lists {counted(condition.listed, 'ledger')}: this is not a copy of bookies alone",
                hint="use level B, which keeps the listed ledgers, or a store imported from the bookies alone",
            )
        return _summed(txn, _from_bookies(sources, names, probable=probable), "C", condition, survey)
    if wanted == "A":
        plan = plan_from_ledgers(sources, survey)
        survey.passed_over.update(_undecodable_topics(txn))
    else:
        plan = plan_rolling(sources, survey)
    if wanted == level == "A":
        condition = replace(condition, leftovers=())  # they are also created again
    if not plan.steps:
        return _nothing(txn, condition, survey, wanted)
    return _summed(txn, plan, wanted, condition, survey)


def plan_renaming(sources: Sources, names: Path, *, probable: bool) -> Plan:
    """Plan to replace the metadata of a recovery from bookies alone by the metadata that this file of names would have given.

    Raises Refused if there was no such recovery, or if a later change concerns its metadata. A file that does not exist is
    written, and nothing else changes.
    """
    txn = sources.reader.txn
    before: dict[bytes, bytes | None] = {}
    made: dict[bytes, bytes | None] = {}
    changes, last = _standing_changes(txn), 0
    for change in changes:
        if change.command == RECOVER.command and change.reports and _level_of(change) == "C":
            for step in change.steps:
                before.setdefault(step.key, step.before)
                made[step.key] = step.after
            last = change.change
    if not made:
        raise Refused(
            "this store has no recovery of bookies alone, whose topics could get other names",
            hint="names are for what level C finds: pulsar-admin store recover --names FILE",
        )
    changed = [key for key, value in made.items() if txn.get("tree", key) != value]
    if changed:
        raise Refused(
            f"{counted(len(changed), 'node')} of the recovery changed since, the first is {changed[0].decode(errors='replace')}",
            hint="undo these changes first: pulsar-admin store log",
        )
    exported = [change for change in changes if change.change > last and change.command.startswith("store export ")]
    if exported:
        raise Refused(
            f"what the recovery made was exported since, by change {exported[-1].change} ({exported[-1].command}): a cluster that runs"
            " on it has the earlier names",
            hint="choose names before the export; a new store of the bookies alone can be recovered with --names FILE",
            change=exported[-1].change,
        )
    is_there = names.exists()
    reader = sources.reader.seeing(txn.with_rows("tree", before))
    plan = plan_recovery(replace(sources, reader=reader, cluster=find_cluster(sources)), "C", names, probable=probable)
    after = {step.key: step.after for step in plan.steps}
    # A node that differs only in the time of planning stays.
    steps = (
        Step("tree", key, value, after.get(key, before.get(key)))
        for key in dict.fromkeys((*made, *after))
        if _value(key, value := made.get(key)) != _value(key, after.get(key, before.get(key)))
    )
    # A file that was just written only has proposals, which replace no name given earlier.
    renamed = tuple(steps) if is_there else ()
    return replace(
        plan, txn_id=txn.id, steps=renamed, warnings=(*plan.warnings, _EXPORTED) if renamed else plan.warnings
    )


def _standing_changes(txn: Txn) -> list[Change]:
    """Return the changes of the audit log that are not undone, oldest first."""
    standing: list[Change] = []
    undone: set[int] = set()
    for change in reversed([*iter_changes(txn)]):
        if change.change not in undone:
            standing.append(change)
            undone.update([] if change.undoes is None else [change.undoes])
    return standing[::-1]


def _level_of(change: Change) -> object:
    return (change.reports[0].get("after") or {}).get("level")


def _value(key: bytes, row: bytes | None) -> bytes | None:
    return None if row is None else decode_node(key, row).value


def _check_layout(txn: Txn) -> None:
    """Raise Unsupported if the metadata has another layout of ledger paths than the one we write."""
    node = find_node(txn, LAYOUT)
    if node is not None:
        check_layout(node.value, "metadata of another layout cannot be rebuilt")


def _undecodable_topics(txn: Txn) -> Iterator[tuple[str, str]]:
    """Yield (path, problem) of each topic's node that cannot be decoded: the topic exists, so level A does not rebuild it."""
    for name in iter_topics(txn):
        try:
            read_topic(txn, name)
        except TopicNotFound:
            continue  # only its cursors exist: level A creates its node
        except MetadataCorrupt as error:
            yield name.path, error.message


def _from_bookies(sources: Sources, names: Path | None, *, probable: bool) -> Plan:
    from pulsar_admin.store.recovery.from_bookies import (
        GivenNames,
        find_ledgers,
        name_rows,
        plan_from_bookies,
        read_names,
        write_names,
    )

    is_there = names is not None and names.exists()
    given = read_names(names) if names is not None and is_there else GivenNames({}, {})
    named = find_ledgers(sources.reader, given, sources.cluster or "", probable=probable)
    rows = [*name_rows(sources.reader, named)] if names is not None and not is_there else []
    plan = plan_from_bookies(sources, named)
    if names is not None and not is_there:
        write_names(names, rows)
    return plan


def _nothing(txn: Txn, condition: MetadataCondition, survey: LedgerSurvey, level: str | None) -> Plan:
    left_out = (*_left_out(condition, survey, level),)
    after = {"level": None, "listedLedgers": condition.listed, **_left(condition, survey, level)}
    text = f"nothing to rebuild{f' at level {level}' if level and left_out else ''}: {counted(condition.listed, 'ledger')} listed"
    if not left_out:
        text += ", and everything that they name exists"
    part = ChangePart(resource=_METADATA, before=after, after=after)
    return Plan(RECOVER, txn.id, (), (part,), warnings=(text, *left_out))


def _left_out(condition: MetadataCondition, survey: LedgerSurvey, level: str | None) -> Iterator[str]:
    """Yield sentences about what a recovery at this level does not restore; level None: nothing has to be rebuilt."""
    yield from survey.left_out
    if condition.leftovers:
        count = len(condition.leftovers)
        yield (
            f"not rebuilt: {counted(count, 'topic')} that ledgers name, without a node, though other topics of the "
            f"namespace have theirs: {_named(condition.leftovers)}. A broker deletes a topic's ledgers before its node: "
            "if they were lost, --level A restores them"
        )
    if condition.headless:
        count = len(condition.headless)
        yield (
            f"not rebuilt: {counted(count, 'topic')} of which only subscriptions are left: {_named(condition.headless)}. No"
            f" list names {plural(count, 'its', 'their')} ledgers; bookies may still hold them (see: pulsar-admin ledgers orphans), "
            "and delete them when they start on this metadata. An older copy of the metadata has the lists"
        )
    lost = _lost(condition, level)
    if lost:
        yield (
            f"not rebuilt at level B: {counted(len(lost), 'topic')} that ledgers name and whose node or schema is "
            f"lost: {_named(lost)}. To restore them: pulsar-admin store recover --level A"
        )
    if level == "B" and condition.namespaces_without_policies:
        bare = condition.namespaces_without_policies
        yield (
            f"not rebuilt at level B: the policies of {counted(len(bare), 'namespace')}: {_named(bare)}. To restore "
            "them: pulsar-admin store recover --level A"
        )
    if condition.unsure and level in (None, "A"):  # the other levels read their entries
        yield (
            f"{counted(condition.unsure, 'ledger')} of bookies have ids above all that the metadata lists, and it "
            "does not say which ids it assigned: they were deleted, or it is older than the bookies. Then: --level B"
        )
    if survey.passed_over:
        count, shown = len(survey.passed_over), list(survey.passed_over.values())[:_NAMED]
        yield f"{counted(count, 'node that', 'nodes that')} cannot be decoded {plural(count, 'stays as it is', 'stay as they are')}:"
        yield from shown
        if count > _NAMED:
            yield f"… and {count - _NAMED:,} more: see them with: pulsar-admin store check"


def _unreadable(txn: Txn) -> Iterator[str]:
    """Yield a sentence about ledgers without metadata of which damaged records are all that is left."""
    newest = newest_known(txn)
    named = {one.ledger_id for one in iter_damage(txn) if one.ledger_id > newest}
    ids = sorted(one for one in named if find_sums(txn, one) is None)
    if ids:
        yield (
            f"{counted(len(ids), 'ledger')} ({listed(ids)}) {plural(len(ids), 'gets', 'get')} no metadata, because no entry has a right "
            f"digest: bookies delete what is left, unless {plural(len(ids), 'the id itself is', 'the ids themselves are')} damaged. "
            "Keep a copy of their disks"
        )


def _lost(condition: MetadataCondition, level: str | None) -> Sequence[TopicName]:
    """Return the topics that level A rebuilds and level B does not."""
    return sorted({*condition.lost_topics, *condition.lost_schemas}, key=str) if level == "B" else ()


def _left(condition: MetadataCondition, survey: LedgerSurvey, level: str | None) -> dict[str, list[str]]:
    """Return the topics and nodes that this level does not rebuild, for the report's first part."""
    left = {
        "leftOut": [*map(str, (*condition.leftovers, *condition.headless, *_lost(condition, level)))],
        "passedOver": [*survey.passed_over],
    }
    return {key: names for key, names in left.items() if names}


def _named(names: Sequence[object]) -> str:
    return ", ".join(map(str, names[:_NAMED])) + (" …" if len(names) > _NAMED else "")


def _summed(txn: Txn, plan: Plan, level: str, condition: MetadataCondition, survey: LedgerSurvey) -> Plan:
    """Return the plan with a first part that counts the others, and with the next steps."""
    counts = Counter[str]()
    for part in plan.parts:
        counts.update(_sums(part))
    after = {"level": level, "listedLedgers": condition.listed, "youngerLedgers": len(condition.younger)}
    sums = {key: counts[key] for key in (*_KINDS, *_SUMS) if counts[key]}
    made = {"nodes": len(plan.steps), **sums}
    left = _left(condition, survey, level)
    assert isinstance(plan.parts, Packed)  # not copied: of millions of ledgers it is the most of a plan
    plan.parts.put_first(ChangePart(resource=_METADATA, after={**after, **made, **left}))
    again = (_AGAIN.format(counted(len(condition.younger), "ledger")),) if level == "A" and condition.younger else ()
    absent, places = find_absent_bookies(txn), [*unseen_places(txn).values()]
    imported = "" if absent is None else f"{absent.counts()}: "
    unseen = (
        (
            f"{imported}entries that only {listed(places, 5)} {plural(len(places), 'has', 'have')} are not seen: the rebuilt metadata ends "
            f"ledgers before them. First {bring_hint(places)}",
        )
        if places
        else ()
    )
    if level != "A":
        unseen = (*unseen, *_unreadable(txn))
    return replace(plan, warnings=(*unseen, *plan.warnings, *_left_out(condition, survey, level), *again, NEXT))


def _sums(part: ChangePart) -> dict[str, int]:
    """Return the numbers of a report part that are added up: 1 by its kind; ``leftApart`` 1 for a ledger that no index
    has.

    For a topic also ``lostAndFound`` (1 if its name is unknown), its new ``entries``, and those ``missing`` before
    ledgers' ends.
    """
    kind, before, after = _kind(part), part.before or {}, part.after or {}
    if after.get("apart") == NOT_INDEXED:
        return {kind: 1, "leftApart": 1}
    if not part.topic or kind != "topics":
        return {kind: 1}
    return {
        kind: 1,
        "lostAndFound": int(parse_topic(part.topic).namespace == LOST_AND_FOUND),
        "entries": after.get("entries", 0) - before.get("entries", 0),
        "missing": sum(after.get("missing", {}).values()),
    }


def _kind(part: ChangePart) -> str:
    after = part.after or {}
    if part.subscription:
        return "subscriptions"
    if part.namespace:
        return "namespaces"
    return next((kind for key, kind in _BY_KEY if key in after), "others")


_NAMED = 10
_METADATA = "the metadata"
_BY_KEY = (("ledgers", "topics"), ("partitions", "partitionedTopics"), ("schemaVersions", "schemas"))
_KINDS = ("topics", "partitionedTopics", "subscriptions", "schemas", "namespaces", "others")
_SUMS = ("lostAndFound", "entries", "missing", "leftApart")
_EXPORTED = "a snapshot that was exported before this has the earlier names: export it again, as no store keeps a list of exports"
_AGAIN = "{} of entries are newer than every listed one: run the same command again after this one, for level B"
NEXT = (
    "look at it with: pulsar-admin store check; then, while ZooKeeper is stopped: pulsar-admin store export"
    " zookeeper-snapshot DIR; start ZooKeeper first, then bookies and brokers"
)
