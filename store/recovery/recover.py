"""``store recover``: which level a store is at, and the plan for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from store.changes.plan import Plan
from store.changes.report import ChangePart
from store.db.environment import Txn
from store.errors import Refused
from store.facts.trees import check_accepted, unknown_trees
from store.names import parse_topic
from store.recovery.from_ledgers import COMMAND, Sources, plan_from_ledgers
from store.recovery.names_file import GivenNames, read_names, write_names
from store.recovery.rolling import plan_rolling
from store.recovery.survey import Condition, check_layout, read_condition, read_survey
from store.wording import counted, plural


def plan_recovery(
    sources: Sources, level: str | None, names: Path | None = None, accepted: Collection[str] = ()
) -> Plan:
    """Plan the recovery at LEVEL, by default at the one that the store shows; raises Refused, Unsupported, MetadataCorrupt.

    NAMES: the file of names that level C writes, or reads where it exists. ACCEPTED: unknown trees that reference none of the ledgers.
    """
    txn = sources.reader.txn
    check_accepted(unknown_trees(txn), accepted)
    check_layout(txn)
    survey = read_survey(txn)
    condition = read_condition(txn, survey)
    wanted = level or condition.level
    if names is not None and wanted != "C":
        raise Refused(
            f"--names gives names to what level C finds, and this store {f'is at level {wanted}' if wanted else 'lacks nothing'}",
            hint="leave out --names; to rename what a recovery made, undo it first: pulsar-admin store log",
        )
    if wanted is None:
        return _nothing(txn, condition)
    if level is None:
        for name in condition.leftovers:
            del survey.data[name]
    if wanted == "C":
        if condition.listed:
            raise Refused(
                f"the metadata lists {counted(condition.listed, 'ledger')}: bookies are not all there is",
                hint="take level B, which keeps what is listed, or a store of the bookies alone",
            )
        return _summed(_from_bookies(sources, names), "C", condition)
    plan = plan_from_ledgers(sources, survey) if wanted == "A" else plan_rolling(sources, survey)
    return _summed(plan, wanted, condition) if plan.steps else _nothing(txn, condition)


def _from_bookies(sources: Sources, names: Path | None) -> Plan:
    from store.recovery.from_bookies import find_ledgers, name_rows, plan_from_bookies

    is_there = names is not None and names.exists()
    given = read_names(names) if names is not None and is_there else GivenNames({}, {})
    found = find_ledgers(sources.reader, given, sources.cluster or "")
    plan = plan_from_bookies(sources, found)
    if names is not None and not is_there:
        write_names(names, name_rows(sources.reader, found))
    return plan


def _nothing(txn: Txn, condition: Condition) -> Plan:
    part = ChangePart(resource=_METADATA, after={"level": None, "listedLedgers": condition.listed})
    text = f"nothing to make again: {counted(condition.listed, 'ledger')} listed, and all that they name is there"
    warnings = (text, _leftover_text(condition)) if condition.leftovers else (text,)
    return Plan(COMMAND, txn.id, (), (replace(part, before=part.after),), warnings=warnings)


def _leftover_text(condition: Condition) -> str:
    names = ", ".join(map(str, condition.leftovers[:_NAMED]))
    return (
        f"ledgers name {counted(len(condition.leftovers), 'topic')} that {plural(len(condition.leftovers), 'has', 'have')} no node, beside"
        f" others of the namespace that have: {names}. As a deletion leaves them that was stopped; if they are lost: --level A"
    )


def _summed(plan: Plan, level: str, condition: Condition) -> Plan:
    """Return PLAN with a first part that counts the others, and what to do next."""
    of = Counter(_kind(part) for part in plan.parts)
    found = {"level": level, "listedLedgers": condition.listed, "youngerLedgers": len(condition.younger)}
    made = {"nodes": len(plan.steps), **{kind: of[kind] for kind in _KINDS if of[kind]}, **_sums(plan)}
    parts = (ChangePart(resource=_METADATA, after={**found, **made}), *plan.parts)
    again = (_AGAIN.format(counted(len(condition.younger), "ledger")),) if level == "A" and condition.younger else ()
    beside = (_leftover_text(condition),) if level != "A" and condition.leftovers else ()
    return replace(plan, parts=parts, warnings=(*plan.warnings, *beside, *again, NEXT))


def _sums(plan: Plan) -> dict[str, int]:
    """Return how many topics nothing names, the entries that topics get, and those that are lost in front of ledgers' ends."""
    from store.recovery.naming import LOST_AND_FOUND

    topics = [part for part in plan.parts if part.topic and _kind(part) == "topics"]
    nameless = sum(parse_topic(part.topic).namespace == LOST_AND_FOUND for part in topics if part.topic)
    now = sum((part.after or {}).get("entries", 0) for part in topics)
    before = sum((part.before or {}).get("entries", 0) for part in topics)
    missing = sum(sum((part.after or {}).get("missing", {}).values()) for part in topics)
    return {
        key: count
        for key, count in (("lostAndFound", nameless), ("entries", now - before), ("missing", missing))
        if count
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
_AGAIN = "{} of entries are younger than any that is listed: run the same again behind this, for level B"
NEXT = (
    "look at it with: pulsar-admin store check; then give it to ZooKeeper, which must not run: pulsar-admin store export"
    " zookeeper-snapshot DIR, where brokers and bookies start last"
)
