"""Why a subscription stands where it does, by the rules of subscriptions (``store.rules.subscriptions``); why bytes stay on the disks
of bookies: every byte of every file, with who holds it.

Ledgers of topics by upstream's trimming (``store.policies.retention``: ``ManagedLedgerImpl.internalTrimLedgers``, 4.0.8); bytes of
deleted ledgers by BookKeeper's ``GarbageCollectorThread`` (4.17), which deletes an entry log when no ledger in it has metadata.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from msgspec import Struct, field

from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.files import LogFile, may_be_unread
from pulsar_admin.store.db.owners import OwnerKind
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.facts import Unknown
from pulsar_admin.store.facts.file_sums import read_file_sizes, read_shares
from pulsar_admin.store.facts.topics import ReadBudget, SubscriptionFacts, TopicFacts
from pulsar_admin.store.facts.unlisted import UnlistedLedgers
from pulsar_admin.store.model.cursors import Cursor, is_consumed, read_topic_cursor
from pulsar_admin.store.model.ledgers import has_node
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic, TopicLedger, iter_all_topics, read_topic
from pulsar_admin.store.names import PERSISTENT, Position, TopicName, parse_topic, shell_word
from pulsar_admin.store.rules import holders
from pulsar_admin.store.rules.backlogs import CHUNK_RULES, MARKER_RULES
from pulsar_admin.store.rules.subscriptions import STOPPING_RULES, SUBSCRIPTION_RULES
from pulsar_admin.store.rules.words import unchanging
from pulsar_admin.store.timespec import format_age_ms, shown_with_age
from pulsar_admin.store.wording import Answer, counted, listed, plural


class Reason(Answer, frozen=True):
    """One reason. ``evidence``: the figures in ``sentence``; ``command``: what to type next, empty if nothing is to be done.

    ``code``: of a row of ``store.rules.subscriptions``, or of ``store.rules.holders``.
    """

    SHOWN = ("code", "sentence")

    code: str
    sentence: str
    evidence: Mapping[str, Any]  # Any: JSON values
    command: str = ""


class Why(Answer, frozen=True):
    """The reasons, the most important one first. ``held``: whether something in the store keeps the subscription at its position."""

    topic: TopicName
    subscription: str
    held: bool
    reasons: tuple[Reason, ...]


def why_subscription(reader: EntryReader, topic: Topic, cursor: Cursor, now_ms: int) -> Why:
    """Return why ``cursor`` of ``topic`` does not move from its position; reads the headers of its backlog.

    Raises SourceChanged, EntryLogCorrupt, MetadataCorrupt.
    """
    facts = SubscriptionFacts(TopicFacts(reader, topic, now_ms, ReadBudget(unlimited=True)), cursor)
    matches = [(rule, evidence) for rule in SUBSCRIPTION_RULES for evidence in rule.holds(facts)]
    reasons = []
    for rule, evidence in matches:
        text, command = (
            evidence.sentence,
            evidence.hint or rule.mend_of(evidence, topic=facts.of.where, subscription=cursor.name),
        )
        sentence = text if text.endswith(".") else f"{text[:1].upper()}{text[1:]}."  # of the doctor's rows
        reasons.append(Reason(rule.code, sentence, dict(evidence.values), _shown(reader.txn, command)))
    return Why(topic.name, cursor.name, any(rule in STOPPING_RULES for rule, _ in matches), tuple(reasons))


def _shown(txn: Txn, command: str) -> str:
    return unchanging(command) if may_be_unread(txn) else command


def why_nothing_is_given(reader: EntryReader, name: TopicName, subscription: str, now_ms: int) -> tuple[str, ...]:
    """Return why a backlog has no message for a client although it has entries, without reading a long one; () if unknown.

    Raises TopicNotFound, SubscriptionNotFound, MetadataCorrupt.
    """
    topic, cursor = read_topic_cursor(reader, name, subscription)
    facts = SubscriptionFacts(TopicFacts(reader, topic, now_ms), cursor)
    return tuple(evidence.sentence for rule in (*CHUNK_RULES, *MARKER_RULES) for evidence in rule.holds(facts))


_OF_TOPICS = (holders.CURSOR, holders.RETENTION, holders.OPEN, holders.TRIM, holders.OFFLOADED)
_BY_KIND = {
    OwnerKind.CURSOR: (holders.CURSOR_LEDGER, "its ledger holds the position of {cursor}"),
    OwnerKind.COMPACTED: (holders.COMPACTED_LEDGER, "its compacted ledger"),
    OwnerKind.SCHEMA: (holders.SCHEMA_LEDGER, "its schemas"),
    OwnerKind.BUCKET: (holders.DELAYED_BUCKET, "a snapshot of the delayed messages of {cursor}"),
    OwnerKind.PACKAGE: (holders.PACKAGE, "a part of a package"),
    OwnerKind.INDEX: (holders.DELAYED_INDEX, "an index of the delayed messages of {cursor}, which only this store has"),
}
_MINUTE_MS = 60_000
_MEGABYTE = 1 << 20
_SHOWN = 3


class HeldBytes(Answer, frozen=True):
    """Bytes that stay for one reason: all copies of records, with their headers. ``topic``, ``subscription``: their owner, "" for none;
    ``path``: of the file, if the file itself holds them. ``reason`` says why, with evidence and the next command."""

    SHOWN = ("topic", "subscription", "ledgers", "bytes", "percent")

    reason: Reason
    topic: str
    subscription: str
    path: str
    ledgers: int
    bytes: int
    percent: float


class HeldTotal(Answer, frozen=True):
    """All bytes of one kind of reason."""

    code: str
    ledgers: int
    bytes: int
    percent: float


class WhyBytes(Answer, frozen=True):
    """Why bytes stay. ``totals``, a row per kind of reason, add up to ``bytes``; ``held`` has the largest of all ``holders``."""

    bytes: int
    holders: int
    totals: tuple[HeldTotal, ...]
    held: tuple[HeldBytes, ...]


class _Key(Struct, frozen=True, order=True):
    """The key by which bytes are summed up; holders of equally many bytes are sorted by it."""

    code: str
    topic: str = ""
    subscription: str = ""
    path: str = ""


class _Sum(Struct):
    bytes: int = 0
    ledgers: set[int] = field(default_factory=set)


def why_bytes(
    reader: EntryReader, now_ms: int, only: Collection[TopicName] | None = None, top: int | None = None
) -> WhyBytes:
    """Return why the bytes of a store's files stay. ``only``: just those of these topics, and the dead bytes that they alone keep.

    ``top``: how many of the largest holders are named. Raises IndexCorrupt.
    """
    keys: dict[int, _Key] = {}
    for name in iter_all_topics(reader.txn) if only is None else only:
        try:
            topic = read_topic(reader.txn, name)
        except StoreError:  # its ledgers have owners
            continue
        keys.update(_Teller(reader, topic, now_ms).iter_keys())
    sums: defaultdict[_Key, _Sum] = defaultdict(_Sum)
    logs: dict[str, _Log] = {}
    unlisted = UnlistedLedgers(reader.txn)
    for log, sizes in read_file_sizes(reader.txn, read_shares(reader.txn)):
        _add_file(reader.txn, log, sizes, keys, unlisted, sums, logs)
    meant = None if only is None else {str(name) for name in only}
    kept = {
        key: holding
        for key, holding in sums.items()
        if holding.bytes
        and (
            meant is None
            or key.topic in meant
            or (key.code == holders.SHARED and meant.issuperset(logs[key.path].owners))
        )
    }
    total = sum(holding.bytes for holding in kept.values())
    largest = sorted(kept.items(), key=lambda item: (-item[1].bytes, item[0]))[:top]
    held = tuple(_held(reader, key, holding, total, now_ms, logs) for key, holding in largest)
    by_code: defaultdict[str, _Sum] = defaultdict(_Sum)
    for key, one in kept.items():
        by_code[key.code].bytes += one.bytes
        by_code[key.code].ledgers |= one.ledgers
    rows = (HeldTotal(code, len(one.ledgers), one.bytes, _percent(one.bytes, total)) for code, one in by_code.items())
    return WhyBytes(total, len(kept), tuple(sorted(rows, key=lambda row: -row.bytes)), held)


def _percent(part: int, total: int) -> float:
    return round(100 * part / total, 2) if total else 0.0


# -- which ledger is held by what -------------------------------------------------------------------------------------


class _Teller:
    """Finds out why the ledgers of one topic stay, and words it."""

    def __init__(self, reader: EntryReader, topic: Topic, now_ms: int) -> None:
        self._facts = TopicFacts(reader, topic, now_ms)
        self._topic = topic
        self._now_ms = now_ms
        self._consumed, self._slowest = self._facts.consumed

    def iter_keys(self) -> Iterator[tuple[int, _Key]]:
        """Yield every listed ledger with the reason that retains it."""
        name, last = str(self._topic.name), len(self._topic.ledgers) - 1
        slowest = "" if self._slowest is None else self._slowest[0]
        keys = {
            code: _Key(code, name, slowest if code == holders.CURSOR else "") for code in _OF_TOPICS
        }  # of a million ledgers few differ
        for index, ledger in enumerate(self._topic.ledgers):
            if ledger.info.offloaded:
                code = holders.OFFLOADED
            elif index == last:
                code = holders.OPEN
            elif index >= self._consumed:
                code = holders.CURSOR
            else:
                code = holders.TRIM if index < self._facts.released else holders.RETENTION
            yield ledger.ledger_id, keys[code]

    def tell(self, code: str, ledger_ids: set[int]) -> Reason:
        """Return the reason for the ledgers ``ledger_ids``, which ``iter_keys`` yields with ``code``."""
        name = self._topic.name
        ledgers = [ledger for ledger in self._topic.ledgers if ledger.ledger_id in ledger_ids]
        evidence: dict[str, Any] = {"topic": str(name), "firstLedger": min(ledger_ids), "lastLedger": max(ledger_ids)}
        if code == holders.CURSOR:
            return self._cursor(ledgers, evidence)
        if code == holders.RETENTION:
            return self._retention(ledgers, evidence)
        if code == holders.OPEN:
            (ledger,) = ledgers
            state, command = "open" if ledger.is_open else "closed", ""
            evidence |= {"entries": ledger.entries, "state": state}
            text = (
                f"Ledger {ledger.ledger_id} is the last one of {name} ({state}, {counted(ledger.entries, 'entry')}): no broker "
                "deletes that, whatever was consumed. A broker that loads the topic begins a new one."
            )
        elif code == holders.TRIM:
            command = f"pulsar-admin topics trim-topic {shell_word(name)}"
            text = (
                f"Neither subscriptions nor retention need {counted(len(ledgers), 'ledger')} of {name}. A broker that has the topic "
                f"loaded deletes {plural(len(ledgers), 'it', 'them')} within retentionCheckIntervalInSeconds (120)."
            )
        else:
            command = f"pulsar-admin topics stats-internal {shell_word(name)}"
            text = (
                f"{counted(len(ledgers), 'ledger is', 'ledgers are')} in tiered storage, of {name}, and on bookies as well "
                "until managedLedgerOffloadDeletionLagMs is over."
            )
        return Reason(code, text, evidence, _shown(self._facts.reader.txn, command))

    def _cursor(self, ledgers: list[TopicLedger], evidence: dict[str, Any]) -> Reason:
        assert self._slowest is not None
        name, at = self._slowest
        end = Position(ledgers[-1].ledger_id, ledgers[-1].entries - 1)
        others = [one for one, position in self._facts.keeping.items() if position < end and one != name]
        also = f", and so do {listed(others)}" if others else ""
        kind = "Subscription" if is_consumed(name) else "Cursor"
        needed = f"{counted(len(ledgers), 'ledger')}{also}"
        text = f"{kind} {name} of {self._topic.name}, at {at}, still needs {needed}."
        command = f"pulsar-admin topics why {shell_word(self._topic.name)} -s {shell_word(name)}"
        if name not in dict(self._facts.cursor_readings):
            text = (
                f"A broker that loads {self._topic.name}, which is to be compacted, first creates its cursor {name} at the "
                f"beginning; that cursor needs {needed} until the topic is compacted."
            )
            command = f"pulsar-admin compaction status {shell_word(self._topic.name)}"
        return Reason(
            holders.CURSOR, text, {**evidence, "subscription": name, "markDelete": str(at), "others": others}, command
        )

    def _retention(self, ledgers: list[TopicLedger], evidence: dict[str, Any]) -> Reason:
        name, policies, now_ms = self._topic.name, self._facts.policies, self._now_ms
        past = f"{counted(len(ledgers), 'ledger')} of {name}"
        if isinstance(policies, Unknown):
            text = f"Every subscription is past {past}; which retention applies is unknown: {policies.why}."
            return Reason(holders.RETENTION, text, {**evidence, "error": policies.code})
        applied = policies.applied_retention
        minutes, size_mb = applied.retention.time_minutes, applied.retention.size_mb
        time, size, ends = "forever", "any size", []
        if minutes >= 0:
            time = format_age_ms(minutes * _MINUTE_MS)
            over_ms = (ledgers[0].info.timestamp_ms or now_ms) + minutes * _MINUTE_MS
            ends.append(f"when its time is over, {shown_with_age(over_ms, now_ms)}")
        if size_mb >= 0:
            size = f"{size_mb:,} MB"
            more = size_mb * _MEGABYTE - (self._topic.total_size_bytes - ledgers[0].size_bytes)
            ends.append(f"when {counted(max(more, 0), 'byte')} more are written")
        command = f"pulsar-admin topics get-retention {shell_word(name.base)} -ap"
        if name.domain != PERSISTENT:
            command = f"pulsar-admin namespaces get-retention {shell_word(name.namespace)}"
        until = f"; the first can be deleted {' or '.join(ends)}" if ends else ""
        return Reason(
            holders.RETENTION,
            f"Retention ({time}, {size}, set by the {applied.source}) keeps {past} that every subscription is past{until}.",
            {**evidence, "timeInMinutes": minutes, "sizeInMB": size_mb, "source": applied.source},
            command,
        )


# -- files ------------------------------------------------------------------------------------------------------------


class _Log(Struct, frozen=True):
    """The live ledgers of an entry log. ``owners``: the topics that own some of them, "" for none; ``live``: the ledgers' ids."""

    owners: tuple[str, ...]
    live: tuple[int, ...]


def _add_file(
    txn: Txn,
    log: LogFile,
    sizes: Mapping[int, int],
    keys: Mapping[int, _Key],
    unlisted: UnlistedLedgers,
    sums: defaultdict[_Key, _Sum],
    logs: dict[str, _Log],
) -> None:
    """Add the bytes of one file to ``sums``: its live ledgers, its dead ones, and the bytes that are no record."""
    dead: dict[int, int] = {}
    owners: dict[str, None] = {}
    live: list[int] = []
    for ledger_id, size_bytes in sizes.items():
        key = keys.get(ledger_id) or _key_of(txn, ledger_id, unlisted)
        if key is None:
            dead[ledger_id] = size_bytes
            continue
        live.append(ledger_id)
        owners[key.topic] = None
        sums[key].bytes += size_bytes
        sums[key].ledgers.add(ledger_id)
    if dead:
        waste = sums[_Key(holders.SHARED if live else holders.GARBAGE, path=log.path)]
        waste.bytes += sum(dead.values())
        waste.ledgers.update(dead)
        logs[log.path] = _Log(tuple(owners), tuple(live))
    is_log = log.kind == "entry-log"
    sums[_Key(holders.OVERHEAD if is_log else holders.JOURNAL)].bytes += max(log.size_bytes - sum(sizes.values()), 0)


def _key_of(txn: Txn, ledger_id: int, unlisted: UnlistedLedgers) -> _Key | None:
    """Return the reason that keeps a ledger that no topic lists; None for a ledger that bookies free."""
    if unlisted.is_freed(ledger_id):
        return None
    owners = unlisted.owners(ledger_id)
    if not owners:
        return _Key(holders.ORPHAN if has_node(txn, ledger_id) else holders.UNLISTED)
    owner = owners[0]
    code = _BY_KIND.get(owner.kind, (holders.UNREADABLE if owner.is_of_topic else holders.OTHER_DOMAIN, ""))[0]
    return _Key(code, owner.topic, owner.cursor)


def _held(reader: EntryReader, key: _Key, found: _Sum, total: int, now_ms: int, logs: Mapping[str, _Log]) -> HeldBytes:
    if key.code in _OF_TOPICS:
        topic = read_topic(reader.txn, parse_topic(key.topic))
        reason = _Teller(reader, topic, now_ms).tell(key.code, found.ledgers)
    elif key.path:
        reason = _log_reason(key, logs[key.path], found)
    else:
        reason = _other_reason(key, found)
    return HeldBytes(
        reason, key.topic, key.subscription, key.path, len(found.ledgers), found.bytes, _percent(found.bytes, total)
    )


def _log_reason(key: _Key, log: _Log, found: _Sum) -> Reason:
    dead = counted(len(found.ledgers), "deleted ledger")
    evidence: dict[str, Any] = {"path": key.path, "deadLedgers": len(found.ledgers), "liveLedgers": len(log.live)}
    if key.code == holders.GARBAGE:
        return Reason(
            holders.GARBAGE,
            f"Nothing in {key.path} is live: it holds {dead}. A running bookie deletes it in its next garbage "
            "collection (gcWaitTime), unless it still writes to it.",
            evidence,
            "pulsar-admin store usage --by log",
        )
    last = f"ledger {log.live[0]} alone lives" if len(log.live) == 1 else f"{len(log.live):,} ledgers live"
    whose = listed([name for name in log.owners if name] or ["nobody"])
    return Reason(
        holders.SHARED,
        f"{dead} in {key.path} {plural(len(found.ledgers), 'stays', 'stay')} on disk because {last} in the same log, of {whose}. "
        "Bookies delete whole logs, and rewrite logs with little live data.",
        {**evidence, "owners": list(log.owners), "liveLedger": log.live[0] if len(log.live) == 1 else None},
        "pulsar-admin store usage --by log",
    )


_NO_LEDGERS = {
    holders.JOURNAL: "Journals, which a bookie deletes once their entries are in entry logs.",
    holders.OVERHEAD: "Headers and ledgers maps of entry logs, damaged places, and space that is not written yet.",
}


def _other_reason(key: _Key, found: _Sum) -> Reason:
    if key.code in _NO_LEDGERS:
        return Reason(key.code, _NO_LEDGERS[key.code], {})
    count = len(found.ledgers)
    ledgers, evidence = counted(count, "ledger"), {"ledgers": count}
    if key.code == holders.ORPHAN:
        text = f"{counted(count, 'ledger has', 'ledgers have')} metadata, but no topic, cursor or schema references it."
        return Reason(key.code, text, evidence, "pulsar-admin ledgers orphans")
    if key.code == holders.UNLISTED:
        text = f"The metadata does not list {ledgers}, and nothing shows that they were deleted: it is older, or incomplete."
        return Reason(key.code, text, evidence, "pulsar-admin doctor")
    told = {
        holders.UNREADABLE: "it cannot be read",
        holders.OTHER_DOMAIN: "a managed ledger that only a newer Pulsar reads",
    }
    said = {**told, **dict(_BY_KIND.values())}[key.code].format(cursor=key.subscription)
    command = f"pulsar-admin ledgers info {min(found.ledgers)}" if found.ledgers else ""
    evidence_of_topic = {"topic": key.topic, "subscription": key.subscription, **evidence}
    return Reason(key.code, f"{key.topic}: {said} ({ledgers}).", evidence_of_topic, command)
