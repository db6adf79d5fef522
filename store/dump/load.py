"""Loading dumps of entries into a store: new ledgers of BookKeeper's own format at the end of their topics, one change for all."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from itertools import groupby
from typing import Any

from msgspec import Struct, field

from pulsar_admin.store.changes import log_writer
from pulsar_admin.store.changes.plan import ChangeKind, ChangePart, ChangeReport, Plan, WritingPlan
from pulsar_admin.store.changes.topics import lost_warnings
from pulsar_admin.store.codec.claims import topic_claims
from pulsar_admin.store.codec.interceptors import InterceptorChain, open_chain
from pulsar_admin.store.codec.managedledger import LedgerInfo, decode_managed_ledger
from pulsar_admin.store.db.environment import Store, Txn
from pulsar_admin.store.db.tree import find_node, tree_key
from pulsar_admin.store.dump.source import EntryDump, EntryRows, ledger_runs
from pulsar_admin.store.errors import InvalidValue, Refused
from pulsar_admin.store.model.cursors import Extent
from pulsar_admin.store.model.reader import EntryReader, open_reader
from pulsar_admin.store.model.topics import partition_count, read_topic
from pulsar_admin.store.names import Position, TopicName, parse_topic
from pulsar_admin.store.scan.payloads import Payload, PayloadColumns
from pulsar_admin.store.wording import counted

LOAD = ChangeKind("topics load", "load entries into {place}")
Advance = Callable[[int], None]  # told how many more entries are done


class LoadOptions(Struct, frozen=True):
    """How to load. ``topic``: the topic to load into, for a dump of one; ``interceptors``: names for ``open_chain``;
    None: entries keep their bytes.

    ``keep_ids``: ledgers and entries keep their ids, which must be unknown to the store.
    """

    topic: TopicName | None
    interceptors: tuple[str, ...] | None
    keep_ids: bool
    now_ms: int


class LoadedLedger(Struct):
    """One ledger in a dump. ``ledger_id``: its id in the dumped store."""

    ledger_id: int
    closed_ms: int


class LoadedTopic(Struct):
    """The ledgers of one topic in a dump; ``gaps``: number of entries missing between those in the dump."""

    name: TopicName
    ledgers: list[LoadedLedger] = field(default_factory=list)
    entries: int = 0
    messages: int = 0
    size_bytes: int = 0
    gaps: int = 0
    properties: dict[str, str] = field(default_factory=dict)


def plan_load(
    txn: Txn,
    opened: Callable[[], AbstractContextManager[Store]],
    source: EntryDump,
    options: LoadOptions,
    progress: Callable[[], AbstractContextManager[Advance]],
) -> WritingPlan:
    """Plan loading a dump into the store that ``opened`` holds open; raises what ``preview_load`` and ``apply_load`` raise when it
    is previewed or applied."""

    def shown() -> tuple[ChangeReport, ...]:
        with opened() as store:
            return (preview_load(store, source, options),)

    def made(store: Store) -> tuple[ChangeReport, ...]:
        with progress() as advance:
            return (apply_load(store, source, options, advance),)

    return WritingPlan(LOAD, txn.id, shown, made, digest=source.digest)


def preview_load(store: Store, source: EntryDump, options: LoadOptions) -> ChangeReport:
    """Read a dump to its end and return what loading it would do, one part for each topic; raises what ``apply_load`` raises."""
    loaded: list[LoadedTopic] = []
    with open_reader(store) as reader:
        for topic, stream in _topics(reader.txn, source, options, loaded):
            for run in (run for rows in stream for run in ledger_runs(rows)):
                _count(topic, run)
        _check_any(loaded)
        parts = tuple(_part(reader.txn, topic, None) for topic in loaded)
        return ChangeReport(LOAD.command, LOAD.words, None, True, parts, _warnings(reader, loaded, options))


def apply_load(store: Store, source: EntryDump, options: LoadOptions, advance: Advance) -> ChangeReport:
    """Load a dump into a store that is open for writing; return the change's report.

    Raises Refused for a terminated topic or ids that are taken, InvalidValue for files that are not a dump, and Corrupt for a damaged one.
    """
    loaded: list[LoadedTopic] = []
    with open_reader(store) as reader:
        written = log_writer.write_ledgers(store, _iter_ledgers(reader, source, options, loaded, advance))
    with written:
        _check_any(loaded)
        with open_reader(store) as reader:
            plan = _plan(reader, written, loaded, options)
        return log_writer.apply_written(written, plan, options.now_ms)


# -- existing topics --------------------------------------------------------------------------------------------------


def _topics(
    txn: Txn, source: EntryDump, options: LoadOptions, found: list[LoadedTopic]
) -> Iterator[tuple[LoadedTopic, Iterator[EntryRows]]]:
    """Yield each topic of a dump under the name that it gets, with its entries; each is also appended to ``found``."""
    for name, stream in source.topics():
        if options.topic is not None and found:
            raise InvalidValue(
                f"the dump holds several topics, {options.topic} is one", hint="omit --topic: each keeps its name"
            )
        topic = LoadedTopic(parse_topic(name) if options.topic is None else options.topic)
        partitions = partition_count(txn, topic.name)
        if partitions:
            raise Refused(
                f"{topic.name} has {counted(partitions, 'partition')} and no entries of its own",
                hint=f"name one of them, for example --topic {topic.name.partition(0)}",
            )
        node = find_node(txn, topic.name.path)
        if node is not None and decode_managed_ledger(node.value, topic.name.path).terminated is not None:
            raise Refused(
                f"{topic.name} is terminated: nothing is added to it", hint="load into another topic with --topic"
            )
        found.append(topic)
        yield topic, stream


def _check_any(found: list[LoadedTopic]) -> None:
    if not any(topic.entries for topic in found):
        raise InvalidValue(
            "the dump holds no entries",
            hint="create one with: pulsar-admin topics dump TOPIC --level entries --directory DIR",
        )


def _count(topic: LoadedTopic, run: EntryRows) -> None:
    """Add a run, entries of one ledger, to a topic's runs."""
    ledger_id = int(run.ledger_ids[0])
    if not topic.ledgers or topic.ledgers[-1].ledger_id != ledger_id:
        topic.ledgers.append(LoadedLedger(ledger_id, int(run.closed_ms[0])))
    topic.entries += len(run)
    topic.messages += int(run.messages.sum())
    topic.size_bytes += int(run.sizes.sum())


# -- writing ----------------------------------------------------------------------------------------------------------


def _iter_ledgers(
    reader: EntryReader, source: EntryDump, options: LoadOptions, found: list[LoadedTopic], advance: Advance
) -> Iterator[tuple[log_writer.LedgerSpec, Iterator[Payload]]]:
    for topic, stream in _topics(reader.txn, source, options, found):
        chain = open_chain(options.interceptors or ())
        if chain:
            log_writer.recover_chain(reader, topic.name, chain)
        runs = (run for rows in stream for run in ledger_runs(rows))
        for ledger_id, group in groupby(runs, key=lambda run: int(run.ledger_ids[0])):
            spec = log_writer.LedgerSpec(topic_claims(topic.name), ledger_id=ledger_id if options.keep_ids else None)
            yield spec, _payloads(topic, group, chain, options, advance)
        topic.properties = chain.properties()


def _payloads(
    topic: LoadedTopic, runs: Iterable[EntryRows], chain: InterceptorChain, options: LoadOptions, advance: Advance
) -> Iterator[Payload]:
    following = 0
    for run in runs:
        _count(topic, run)
        last = int(run.entry_ids[-1])
        topic.gaps += last + 1 - following - len(run)
        following = last + 1
        ids = run.entry_ids if options.keep_ids else None
        columns = PayloadColumns(run.data, run.starts, run.sizes, ids)
        if options.interceptors is not None:
            columns = _intercepted(columns, chain, options.now_ms)
            topic.size_bytes += int(columns.sizes.sum()) - int(run.sizes.sum())
        yield columns
        advance(len(run))


def _intercepted(columns: PayloadColumns, chain: InterceptorChain, now_ms: int) -> PayloadColumns:
    """Return the payloads with their broker entry metadata replaced by that of the interceptor chain."""
    import numpy as np

    view = memoryview(columns.data.data)
    parts: list[bytes] = []
    for start, size in zip(columns.starts.tolist(), columns.sizes.tolist(), strict=True):
        parts.append(log_writer.append_payload(view[start : start + size], chain, now_ms))
    sizes = np.array([len(part) for part in parts], np.int64)
    data = np.frombuffer(b"".join(parts), np.uint8)
    return PayloadColumns(data, np.cumsum(sizes) - sizes, sizes, columns.entry_ids)


# -- the change -------------------------------------------------------------------------------------------------------


def _plan(
    reader: EntryReader, written: log_writer.WrittenLedgers, found: list[LoadedTopic], options: LoadOptions
) -> Plan:
    txn = reader.txn
    steps = list(written.steps(txn, options.now_ms))
    parts = []
    rest = iter(written.ledgers)
    for topic in found:
        infos = [
            LedgerInfo(
                ledger.ledger_id, ledger.entries, ledger.size_bytes, timestamp_ms=loaded.closed_ms or options.now_ms
            )
            for loaded, ledger in zip(topic.ledgers, rest, strict=False)
        ]
        parts.append(_part(txn, topic, infos))
        if infos and not topic.ledgers[-1].closed_ms:
            infos[-1] = LedgerInfo(infos[-1].ledger_id)  # it was open: a broker looks for its end itself
        if infos:
            steps.append(log_writer.append_ledgers(txn, topic.name, infos, topic.properties, options.now_ms))
    return Plan(LOAD, txn.id, tuple(steps), tuple(parts), warnings=_warnings(reader, found, options))


def _warnings(reader: EntryReader, found: list[LoadedTopic], options: LoadOptions) -> tuple[str, ...]:
    warnings = [
        f"{topic.name}: {counted(topic.gaps, 'entry is', 'entries are')} missing in the dump; later entries moved up"
        for topic in found
        if topic.gaps and not options.keep_ids
    ]
    warnings += [
        f"{namespace} has no policies here: a broker serves its topics only when the namespace exists"
        for namespace in sorted({topic.name.namespace for topic in found})
        if find_node(reader.txn, namespace.policies_path) is None
    ]
    new = {tree_key(topic.name.path) for topic in found if find_node(reader.txn, topic.name.path) is None}
    return (*warnings, *lost_warnings(reader, new))


def _part(txn: Txn, topic: LoadedTopic, infos: list[LedgerInfo] | None) -> ChangePart:
    before: dict[str, Any] = {"ledgers": 0, "numberOfEntries": 0, "lastConfirmedEntry": None}  # Any: JSON
    if find_node(txn, topic.name.path) is not None:
        there = read_topic(txn, topic.name)
        before = {
            "ledgers": len(there.ledgers),
            "numberOfEntries": there.number_of_entries,
            "lastConfirmedEntry": str(there.last_confirmed),
        }
    last = str(Position(infos[-1].ledger_id, infos[-1].entries - 1)) if infos else None
    added = topic.entries if infos is None else sum(info.entries for info in infos)
    after = {
        "ledgers": before["ledgers"] + len(topic.ledgers),
        "numberOfEntries": before["numberOfEntries"] + added,
        "lastConfirmedEntry": last,
    }
    extent = Extent(topic.entries, topic.messages, topic.size_bytes)
    return ChangePart(topic=str(topic.name), before=before, after=after, extent=extent)
