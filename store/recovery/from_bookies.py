"""Level C: only bookies are left. Every ledger gets new metadata, and groups of ledgers become topics by the evidence in their entries.

Ledgers that no two witnesses join stay apart; groups without a name become topics of ``lost-and-found/ledgers`` (no tenant's name has a
``+``). Once the ledgers have metadata, level A does the rest. Upstream: ``LedgerMetadataUtils``, ``BookKeeperAdmin.initNewCluster``
(Pulsar 4.0.8).

The operator names groups and subscriptions in a file (``names.csv``): one row per topic, and below it one per subscription. ``ledger``
identifies the row: any ledger of a topic's group, or a cursor ledger. Rows with the same name are one topic, so naming also joins.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import astuple, replace

from pulsar_admin.store.changes.ledger_metadata import LedgerEnd
from pulsar_admin.store.changes.packed import Packed
from pulsar_admin.store.changes.plan import ChangePart, Plan
from pulsar_admin.store.codec import ledgermetadata
from pulsar_admin.store.codec.bookie import COOKIE_FILE, decode_cookie
from pulsar_admin.store.codec.claims import (
    APPLICATION,
    COMPONENT,
    SCHEMA_KEY,
    compacted_claims,
    cursor_claims,
    topic_claims,
)
from pulsar_admin.store.codec.cursor import CursorState, decode_position_info
from pulsar_admin.store.codec.policies import PartitionedTopic, encode_json_object, encode_partitioned_topic
from pulsar_admin.store.db.bookies import disks_of, iter_imported_bookies
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.files import iter_differing
from pulsar_admin.store.db.tree import find_node, tree_key
from pulsar_admin.store.errors import InvalidValue, Refused, StoreError
from pulsar_admin.store.facts.indexes import NOT_INDEXED, find_collected, read_indexed, read_master_keys
from pulsar_admin.store.files import create_file, read_file
from pulsar_admin.store.model.coverage import read_disks, read_held
from pulsar_admin.store.model.cursors import COMPACTION_CURSOR, LOG_CURSOR, PENDING_ACK_CURSOR, read_cursor_ledger
from pulsar_admin.store.model.ledgers import read_ledger
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.resources import CLUSTER, TENANT, cluster_path, tenant_path
from pulsar_admin.store.model.topics import COMPACTED_LEDGER
from pulsar_admin.store.model.transactions import ASSIGN
from pulsar_admin.store.names import NamespaceName, Position, TopicName, parse_topic, shell_word
from pulsar_admin.store.recovery import from_ledgers
from pulsar_admin.store.recovery.chains import (
    LOST_AND_FOUND,
    ONE_WITNESS,
    Chains,
    GroupName,
    Join,
    LedgerGroup,
    find_chains,
    find_names,
    generated_name,
    likely_cluster,
    name_of,
)
from pulsar_admin.store.recovery.closing import close_ledger
from pulsar_admin.store.recovery.evidence import (
    COMPACTED,
    CURSOR,
    MESSAGES,
    PENDING_ACKS,
    SCHEMA,
    TRANSACTIONS,
    LedgerEvidence,
    iter_unlisted,
    read_evidence,
)
from pulsar_admin.store.wording import counted, listed, plural

_OWN_CURSORS = {TRANSACTIONS: LOG_CURSOR, PENDING_ACKS: PENDING_ACK_CURSOR}
_EMPTY_NODES = ("available", "available/readonly", "cookies")
_ID_DIGITS = 19
_PROPOSED = re.compile(r"recovered-\d+")
_BUILT_IN = (NamespaceName("public", "default"), NamespaceName("pulsar", "system"))


class NamedLedgers(Struct, frozen=True):
    """The evidence of ledgers, and the names that it and the operator give them."""

    evidence: dict[int, LedgerEvidence]
    chains: Chains
    names: Mapping[LedgerGroup, GroupName]
    given: GivenNames
    collected: tuple[int, ...]
    """Ledgers with entries that only bookies have whose index lost them: left apart, since nothing would serve these."""

    def name_of(self, group: LedgerGroup) -> TopicName:
        """Return the name of a group of ledgers: the operator's, the one that entries give, or a generated one."""
        return name_of(group, self.names, {*self.given.topics.values()})


def find_ledgers(reader: EntryReader, given: GivenNames, cluster: str = "", *, probable: bool = False) -> NamedLedgers:
    """Read every ledger without metadata; raises InvalidValue if the operator named a ledger that does not exist.

    ``probable``: a single witness is enough to join ledgers to one topic.
    """
    unlisted = [*iter_unlisted(reader.txn)]
    collected = find_collected(reader.txn, unlisted)
    left_apart = {*collected}
    evidence = {one.ledger_id: one for one in read_evidence(reader, unlisted)}
    rows = Counter(given.topics.values())
    known = {one: str(name) for one, name in given.topics.items() if rows[name] > 1 or name != generated_name(one)}
    for ledger in (*known, *given.subscriptions):
        if ledger in left_apart:
            raise InvalidValue(
                f"the file of names has ledger {ledger}, whose entries are only on bookies whose index lost it: "
                "nothing would serve them",
                hint="rebuild the index first: pulsar-admin store salvage --collected ID=DIR,DIR; then import the disks again",
            )
        if ledger not in evidence:
            raise InvalidValue(
                f"the file of names has ledger {ledger}, but no imported file has an entry of it",
                hint="write a new one: pulsar-admin store recover --level C --dry-run --names FILE, where FILE does not exist",
            )
    # Ledgers that are left apart still prove which others belong together.
    chains = _without(find_chains(evidence.values(), known, cluster, probable=probable), left_apart)
    for ledger in left_apart:
        del evidence[ledger]
    named = NamedLedgers(evidence, chains, find_names(reader, evidence.values(), chains), given, tuple(collected))
    _check_apart(named)
    return named


def _check_apart(named: NamedLedgers) -> None:
    """Raise InvalidValue if the operator gives a topic the name that one without a row gets: they would be joined."""
    givers = {name: ledger for ledger, name in named.given.topics.items()}
    for group in named.chains.groups:
        name = named.name_of(group)
        giver = givers.get(name)
        if not group.topic and giver is not None and giver not in group.ledger_ids:
            first = group.ledger_ids[0]
            raise InvalidValue(
                f"the file of names gives ledger {giver} the name {name}, which ledger {first} gets: the file has no row of it",
                hint=f"add a row of ledger {first}: with the same name they become one topic, with another they stay two",
            )


def _without(chains: Chains, left_apart: Container[int]) -> Chains:
    """Return the groups without the ledgers that are left apart."""
    groups = []
    for group in chains.groups:
        ledgers = tuple(one for one in group.ledger_ids if one not in left_apart)
        beside = tuple(one for one in group.beside if one not in left_apart)
        groups += [replace(group, ledger_ids=ledgers, beside=beside)] if ledgers else []
    refused = [one for one in chains.refused if one.ledger_id not in left_apart and one.next_id not in left_apart]
    return Chains(tuple(groups), chains.joins, tuple(refused))


def plan_from_bookies(sources: from_ledgers.Sources, named: NamedLedgers) -> Plan:
    """Plan all metadata of a cluster; raises Refused, Unsupported, InvalidValue.

    The evidence in ``named`` is freed on the way, because memory has no room for both evidence and plan of millions of ledgers.
    """
    txn = sources.reader.txn
    cluster = sources.cluster or likely_cluster(named.evidence.values())
    if not cluster:
        raise Refused(
            "the name of the cluster is in no entry",
            hint="use `clusterName` from broker.conf: pulsar-admin store recover --cluster NAME",
        )
    sources = replace(sources, cluster=cluster)
    work = _MadeOfBookies(sources, named=named)
    claims = work.claims()
    work.close_ledgers(claims)
    del claims
    named.evidence.clear()
    plan = from_ledgers.plan_from_ledgers(sources, work.survey, work.steps, work.shown)
    cluster_nodes = {tree_key(path): (path, value) for path, value in _cluster_nodes(txn, cluster, work)}
    for key in [step.key for step in work.steps if step.key in cluster_nodes]:
        del cluster_nodes[key]
    for path, value in cluster_nodes.values():
        if find_node(txn, path) is None:
            work.put(path, value)
    parts = plan.parts
    assert isinstance(parts, Packed)
    parts.extend(work.parts)
    for join in named.chains.refused:
        after = {"apart": join.refused, "witnesses": list(join.witnesses)}
        parts.append(ChangePart(resource=f"ledgers {join.ledger_id} and {join.next_id}", after=after))
    parts.extend(ChangePart(resource=f"ledger {one}", after={"apart": NOT_INDEXED}) for one in named.collected)
    return replace(plan, warnings=(*work.notes(cluster), *plan.warnings))


class _MadeOfBookies(from_ledgers.Remade, kw_only=True):
    """The metadata rebuilt so far.

    ``missing``: ledger → entries before its end that no bookie has; ``behind``: number of entries after ledgers' ends;
    ``joins``: (number, join) by the first ledger of the join.
    """

    named: NamedLedgers
    survey: from_ledgers.LedgerSurvey = field(default_factory=from_ledgers.LedgerSurvey)
    missing: dict[int, int] = field(default_factory=dict)
    behind: int = 0
    groups: dict[TopicName, LedgerGroup] = field(default_factory=dict)
    joins: dict[int, list[tuple[int, Join]]] = field(default_factory=dict)
    coordinators: int = 0

    def __post_init__(self) -> None:
        for number, join in enumerate(self.named.chains.joins):
            self.joins.setdefault(join.ledger_id, []).append((number, join))

    def claims(self) -> dict[int, Callable[[], dict[str, bytes]]]:
        """Fill the survey; return, for each ledger, a function that returns custom metadata as its creator wrote it."""
        claims: dict[int, Callable[[], dict[str, bytes]]] = {}
        for group in self.named.chains.groups:
            name = self.named.name_of(group)
            self.groups[name] = group
            self.survey.data[name] = sorted({*self.survey.data.get(name, ()), *group.ledger_ids})
            claims |= dict.fromkeys(group.ledger_ids, partial(topic_claims, name))
            if group.kind == TRANSACTIONS:
                most = {most for ledger in group.ledger_ids for most, _ in self.named.evidence[ledger].txns}
                self.coordinators = max(self.coordinators, *(one + 1 for one in most))
            cursors = self.survey.cursors.setdefault(name, {})
            for subscription, ledgers in _subscriptions(self.sources.reader, self.named, group):
                if subscription in cursors:
                    raise InvalidValue(
                        f"the file of names calls two subscriptions of {name} {subscription!r}: those of ledgers"
                        f" {cursors[subscription][-1]} and {ledgers[-1]}",
                        hint="each has its own position: give the subscriptions of a topic different names",
                    )
                cursors[subscription] = ledgers
                claims |= dict.fromkeys(ledgers, partial(cursor_claims, name, subscription))
            for ledger in [one for one in group.beside if self.named.evidence[one].kind == COMPACTED][-1:]:
                # The horizon of a compacted ledger is at least the last entry that it holds.
                horizon = Position(*max((one, last) for one, (_, last) in self.named.evidence[ledger].points.items()))
                self.survey.compacted.setdefault(name, []).append(from_ledgers.CompactedClaim(ledger, horizon))
                claims[ledger] = partial(compacted_claims, name, horizon)
        for one in self.named.evidence.values():
            for schema in one.topics if one.kind == SCHEMA and len(one.topics) == 1 else ():
                claims[one.ledger_id] = partial(dict, {COMPONENT: b"schema", SCHEMA_KEY: schema.encode()})
                with suppress(StoreError):
                    self.survey.schemas.setdefault(parse_topic(f"persistent://{schema}"), []).append(one.ledger_id)
        return claims

    def close_ledgers(self, claims: Mapping[int, Callable[[], Mapping[str, bytes]]]) -> None:
        """Give every ledger metadata, because bookies delete the entries of ledgers without metadata."""
        for ledger_id in self.named.evidence:
            custom = {**APPLICATION, **claims[ledger_id]()} if ledger_id in claims else {}
            closed = close_ledger(self.sources.reader, ledger_id, custom)
            end = LedgerEnd(closed.metadata.last_entry_id, closed.metadata.length)
            ledger = read_ledger(self.txn, ledger_id)
            if end != (ledger.last_entry_id, ledger.size_bytes):
                self.survey.closed[ledger_id] = end
            self.missing.update({ledger_id: closed.missing} if closed.missing else {})
            self.behind += closed.behind
            self.put(ledgermetadata.ledger_path(ledger_id), ledgermetadata.encode_ledger_metadata(closed.metadata))
        for ledger_id, one in self.named.evidence.items():
            if ledger_id not in claims:
                after = {"kind": one.kind, "entries": one.entries, "witness": "nothing says whose it is"}
                self.parts.append(ChangePart(resource=f"ledger {ledger_id}", after=after))

    def shown(self, part: ChangePart) -> ChangePart:
        """Return a part of the report with the evidence that its ledgers belong together, and with their losses."""
        after = part.after or {}
        if not part.topic or "ledgers" not in after:
            return part
        group = self.groups.get(parse_topic(part.topic))
        if group is None:
            return part
        joins = [join for _, join in sorted(one for ledger in group.ledger_ids for one in self.joins.get(ledger, ()))]
        naming = self.named.names.get(group)
        named = naming.witnesses if naming is not None and str(naming.topic) == part.topic else ()
        lost = {str(one): self.missing[one] for one in group.ledger_ids if one in self.missing}
        more: dict[str, Any] = {"missing": lost} if lost else {}  # Any: JSON
        told = {
            "witness": list(named) or ["the operator" if group.topic else "nothing names it"],
            "joins": [{"ledgers": [one.ledger_id, one.next_id], "witnesses": list(one.witnesses)} for one in joins],
        }
        return replace(part, after={**after, **told, **more})

    def notes(self, cluster: str) -> Iterator[str]:
        """Yield sentences for the operator."""
        nameless = sum(name.namespace == LOST_AND_FOUND and not group.topic for name, group in self.groups.items())
        if nameless:
            yield (
                f"nothing names {counted(nameless, 'group')} of ledgers: they are topics of {LOST_AND_FOUND}. To name them, edit the"
                " column name of the file that --names FILE writes, and run the same command again; or afterwards, before the"
                " export: pulsar-admin store recover --rename FILE"
            )
        probable = sum(one.refused == ONE_WITNESS for one in self.named.chains.refused)
        if probable:
            yield (
                f"{counted(probable, 'join')} with one witness {plural(probable, 'is', 'are')} left apart: see the "
                "column probablyWith of the file of names; --probable makes these joins"
            )
        lost = sum(self.missing.values())
        if lost:
            yield f"{counted(lost, 'entry', 'entries')} before the ends of ledgers are on no bookie of this store"
        if self.behind:
            yield (
                f"{counted(self.behind, 'entry', 'entries')} come after a gap, where BookKeeper's recovery ends a ledger: no client will"
                " read them"
            )
        differing = sorted({one.ledger_id for one in iter_differing(self.txn)})
        if differing:
            yield (
                f"bookies have different bytes for entries of {counted(len(differing), 'ledger')} ({listed(differing)}), and one copy is"
                " used: the disks are of two clusters, which belong into two stores, or ids of ledgers were assigned twice. See: "
                "pulsar-admin store check"
            )
        yield from self._collected_notes()
        keys = read_master_keys(self.sources.reader.txn)
        if keys.locked:
            yield (
                f"bookies' master keys say that {counted(len(keys.locked), 'ledger')} have a password "
                f"({listed(keys.locked)}), which is in no file: they get none, and no client can open them"
            )
        yield "ledgers that brokers had deleted and bookies still hold are included: nothing distinguishes them"
        yield (
            f"cluster {cluster} has no addresses: set them with: pulsar-admin clusters update {shell_word(cluster)} "
            "--url http://HOST:8080 --broker-url pulsar://HOST:6650"
        )

    def _collected_notes(self) -> Iterator[str]:
        """Yield sentences on what was left apart, how to include it, and which bookies' indexes could not be read."""
        txn, collected = self.sources.reader.txn, self.named.collected
        if collected:
            disks = read_disks(txn)
            bookies = sorted({bookie for one in collected for bookie in read_held(txn, one, disks) or ()})
            yield (
                f"{counted(len(collected), 'ledger')} {plural(len(collected), 'is', 'are')} left apart "
                f"({listed(collected)}): entry logs have entries that no bookie serves, because garbage collection "
                "removed the ledger from its index. To include them, rebuild the indexes first and import the disks "
                "again: "
                + "; ".join(
                    f"pulsar-admin store salvage --collected {shell_word(disks_of(txn.store.info, bookie))}"
                    for bookie in bookies
                )
            )
        unread = sorted(bookie for bookie, ids in read_indexed(txn.store.info).items() if ids is None)
        if unread:
            yield (
                f"the index of {listed(unread)} was not read, or not with its journal: ledgers that"
                f" {plural(len(unread), 'it', 'they')} collected may be among those that are rebuilt"
            )


# -- subscriptions ----------------------------------------------------------------------------------------------------


class _CursorLedger(Struct, frozen=True):
    ledger_id: int
    first: CursorState | None
    last: CursorState


def _subscriptions(reader: EntryReader, named: NamedLedgers, group: LedgerGroup) -> Iterator[tuple[str, list[int]]]:
    """Yield (name, cursor ledgers in order) of a topic's cursors: a ledger that begins where exactly one other ended
    continues that cursor."""
    ledgers = [one for ledger in group.beside if (one := _read_cursor(reader, named.evidence[ledger])) is not None]
    own = [one for one in ledgers if COMPACTED_LEDGER in one.last.properties]
    # The compacted ledger says the same of itself: a cursor whose ledger is gone would have brokers look for it.
    chains = list(_cursor_chains([one for one in ledgers if one not in own]))
    if group.kind != MESSAGES:
        yield from ((_OWN_CURSORS[group.kind], chain) for chain in chains if len(chains) == 1)
        return
    newest = own[-1:] if own and own[-1].last.properties[COMPACTED_LEDGER] in named.evidence else []
    yield from ((COMPACTION_CURSOR, [one.ledger_id]) for one in newest)
    given = named.given.subscriptions
    names = [next((given[one] for one in reversed(chain) if one in given), "") for chain in chains]
    for number, chain in enumerate(chains):
        # Two topics that the operator joined may have the same proposed name.
        if not names[number] or (_PROPOSED.fullmatch(names[number]) and names[number] in names[:number]):
            proposals = (f"recovered-{one}" for one in count(number + 1))
            names[number] = next(one for one in proposals if one not in names)
        yield names[number], chain


def _cursor_chains(ledgers: Sequence[_CursorLedger]) -> Iterator[list[int]]:
    ends: dict[Any, list[int]] = defaultdict(list)  # Any: what a state is equal by
    starts: dict[Any, list[int]] = defaultdict(list)  # Any: as above
    for one in ledgers:
        ends[_key(one.last)].append(one.ledger_id)
        starts[_key(one.first)].append(one.ledger_id)
    before: dict[int, int] = {}
    for one in ledgers:
        ended = [ledger for ledger in ends[_key(one.first)] if ledger != one.ledger_id]
        began = [ledger for ledger in starts[_key(one.first)] if ledger not in ended]
        if one.first is not None and len(ended) == 1 and began == [one.ledger_id] and ended[0] < one.ledger_id:
            before[one.ledger_id] = ended[0]
    chains: dict[int, list[int]] = {}
    for one in ledgers:
        chain = chains.pop(before.get(one.ledger_id, -1), [])
        chains[one.ledger_id] = [*chain, one.ledger_id]
    yield from sorted(chains.values())


def _key(state: CursorState | None) -> Any:  # Any: what a state is equal by
    return None if state is None else (state.mark_delete, state.ranges)


def _read_cursor(reader: EntryReader, one: LedgerEvidence) -> _CursorLedger | None:
    if one.kind != CURSOR:
        return None
    try:
        last, _ = read_cursor_ledger(reader.txn, reader, one.ledger_id)
    except StoreError:
        return None
    first = None
    with suppress(StoreError):
        first = decode_position_info(reader.read(one.ledger_id, 0).payload, "first entry")
    return None if last is None else _CursorLedger(one.ledger_id, first, last)


# -- what belongs to no topic -----------------------------------------------------------------------------------------


def _cluster_nodes(txn: Txn, cluster: str, work: _MadeOfBookies) -> Iterator[tuple[str, bytes]]:
    """Yield what ``initNewCluster`` and ``initialize-cluster-metadata`` write: layout, instance, cookies, tenants, namespaces."""
    yield ledgermetadata.LAYOUT, ledgermetadata.PULSARS_LAYOUT.encode()
    instances = set()
    for bookie in iter_imported_bookies(txn.store.info):
        files = [path / COOKIE_FILE for path in bookie.directories if (path / COOKIE_FILE).is_file()]
        for file in files[:1]:
            raw = read_file(file)
            yield f"{ledgermetadata.COOKIES}/{bookie.bookie_id}", raw
            instances.add(decode_cookie(raw, bookie.bookie_id).instance_id)
    if len(instances) > 1:
        raise Refused(
            f"the bookies belong to several clusters: instances {', '.join(sorted(map(str, instances)))}",
            hint="import each cluster into its own store: pulsar-admin --store NEW store import cluster --bookie …",
        )
    yield from ((ledgermetadata.INSTANCE_ID, one.encode()) for one in instances if one)
    yield from ((f"{ledgermetadata.LEDGERS_ROOT}/{name}", b"") for name in _EMPTY_NODES)
    yield "/counters/producer-name", b""  # names that were given are not given again
    yield cluster_path(cluster), encode_json_object(CLUSTER.replace(None, {}))
    for namespace in _BUILT_IN:
        yield tenant_path(namespace.tenant), encode_json_object(TENANT.replace(None, {"allowedClusters": [cluster]}))
        yield namespace.policies_path, encode_json_object(from_ledgers.default_policies(cluster))
    if work.coordinators:
        yield ASSIGN.partitioned_path, encode_partitioned_topic(PartitionedTopic(work.coordinators))


# -- names ------------------------------------------------------------------------------------------------------------


def name_rows(reader: EntryReader, named: NamedLedgers) -> Iterator[NameRow]:
    """Yield the rows of a file of names: each topic, and its subscriptions below it."""
    probable = named.chains.probable()
    for group in named.chains.groups:
        ledgers = [named.evidence[one] for one in group.ledger_ids]
        times = [one.publish_ms for one in ledgers if one.publish_ms]
        # People read these rows to name the topic: ten of its producers are enough for that.
        naming = named.names.get(group)
        yield NameRow(
            TOPIC,
            group.ledger_ids[0],
            str(named.name_of(group)),
            ledgers=" ".join(map(str, group.ledger_ids)),
            entries=sum(one.entries for one in ledgers),
            messages=sum(one.messages for one in ledgers),
            first=_time(min(low for low, _ in times)) if times else "",
            last=_time(max(high for _, high in times)) if times else "",
            producers=" ".join(sorted({str(name) for one in ledgers for name in one.producers})[:10]),
            evidence="; ".join(naming.witnesses) if naming else group.kind,
            probably_with=" ".join(map(str, probable.get(group.ledger_ids[0], ()))),
        )
        for name, chain in _subscriptions(reader, named, group):
            last, _ = read_cursor_ledger(reader.txn, reader, chain[-1])
            at = "" if last is None else f"at {last.mark_delete}"
            yield NameRow(SUBSCRIPTION, chain[-1], name, group.ledger_ids[0], " ".join(map(str, chain)), evidence=at)


def _time(time_ms: int) -> str:
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return str(time_ms)


# -- the file of names ------------------------------------------------------------------------------------------------


TOPIC, SUBSCRIPTION = "topic", "subscription"


class NameRow(Struct, frozen=True, rename="camel"):
    """A row of the file of names, and its columns: its kind, the ledger that identifies the object, its name, and hints for
    finding the name.

    ``probably_with``: topic rows, by ``ledger``, that only one witness would join; giving them one name joins them.
    """

    kind: str
    ledger: int
    name: str
    of: int | None = None
    ledgers: str = ""
    entries: int | None = None
    messages: int | None = None
    first: str = ""
    last: str = ""
    producers: str = ""
    evidence: str = ""
    probably_with: str = ""


class GivenNames(Struct, frozen=True):
    """The operator's names: ledger → topic, cursor ledger → subscription."""

    topics: dict[int, TopicName]
    subscriptions: dict[int, str]


def write_names(path: Path, rows: Iterable[NameRow]) -> None:
    """Write the proposed names of topics into a new file."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(NameRow.__struct_encode_fields__)
    writer.writerows(map(astuple, rows))
    with create_file(path) as file:
        file.write(text.getvalue().encode())


def read_names(path: Path) -> GivenNames:
    """Return the names in a file of names; raises InvalidValue with the file, the line and the expected form."""
    topics: dict[int, TopicName] = {}
    subscriptions: dict[int, str] = {}
    given: dict[tuple[str | None, int], str] = {}
    try:
        table = csv.DictReader(io.StringIO(read_file(path).decode("utf-8-sig")), strict=True)
        missing = {"kind", "ledger", "name"} - {*(table.fieldnames or ())}
        if missing:
            raise InvalidValue(
                f"{path}: expected the columns kind, ledger and name, found {', '.join(table.fieldnames or ()) or 'none'}",
                hint="write a new one: pulsar-admin store recover --level C --dry-run --names FILE, where FILE does not exist",
            )
        rows = [(table.line_num, row) for row in table]
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidValue(f"{path} is not CSV in UTF-8: {error}", hint="save it as CSV, in UTF-8") from error
    for number, row in rows:
        where = f"{path}, line {number}"
        text = row.get("ledger")
        if text is None or not text.strip().isascii() or not text.strip().isdigit() or len(text.strip()) > _ID_DIGITS:
            raise InvalidValue(
                f"{where}: ledger: expected a number, found {text!r}", hint="change the column name only"
            )
        ledger, name = int(text), (row.get("name") or "").strip()
        if name and given.setdefault((row.get("kind"), ledger), name) != name:
            raise InvalidValue(
                f"{where}: ledger {ledger} has the name {given[row.get('kind'), ledger]!r} in a line before",
                hint="leave one of the two lines",
            )
        if row.get("kind") == TOPIC and name:
            try:
                topics[ledger] = parse_topic(name)
            except StoreError as error:
                raise InvalidValue(f"{where}: {error.message}", hint=error.hint) from error
        elif row.get("kind") == SUBSCRIPTION and name:
            subscriptions[ledger] = name
        elif row.get("kind") not in (TOPIC, SUBSCRIPTION):
            raise InvalidValue(
                f"{where}: kind: expected {TOPIC} or {SUBSCRIPTION}, found {row.get('kind')!r}",
                hint="change the column name only",
            )
    return GivenNames(topics, subscriptions)
