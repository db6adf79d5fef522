"""Explains the answer of a search by time, and where the broker's answer differs from it."""

from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

from msgspec import Struct, field

from pulsar_admin.store.codec.message import decode_message_entry
from pulsar_admin.store.db.clocks import Clock
from pulsar_admin.store.errors import ENTRY_UNREADABLE, NotSeen
from pulsar_admin.store.model.entry_times import clock_time
from pulsar_admin.store.model.ledgers import find_block, find_times
from pulsar_admin.store.model.publish_times import is_stated_earlier, stated_times
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic, TopicLedger, may_be_broken
from pulsar_admin.store.names import EARLIEST, Position
from pulsar_admin.store.search.broker import SEARCH_FAILS, BrokerSearch
from pulsar_admin.store.search.broker_setup import DEFAULT_BROKER, BrokerSetup, Probe
from pulsar_admin.store.search.by_time import find_first_at_or_after
from pulsar_admin.store.search.doubts import find_doubt
from pulsar_admin.store.timespec import format_time_ms
from pulsar_admin.store.wording import Answer, counted, one_line

NEIGHBOURS = 3
HOLDS = "holds the answer"
_NEAR = 10
"""Ledgers that are shown on each side of the one with the answer; of those farther away with lost entries as many."""


class LedgerAnswer(Answer, frozen=True):
    """The index's answer for one ledger: its newest time on the clock of the search, and whether its entries had to be searched.

    ``lost``: entries that no bookie has; ``unseen``: entries that may be on bookies or in tiered storage that were not
    imported.
    """

    ledger_id: int
    entries: int
    newest_ms: int | None = field(name="newestTime")
    verdict: str
    lost: int = 0
    unseen: int = 0


class LedgersLeftOut(Answer, frozen=True):
    """Ledgers with the same ``verdict`` that are not shown one by one, and their entries."""

    verdict: str
    ledgers: int
    entries: int
    lost: int
    unseen: int


class Neighbour(Answer, frozen=True):
    """One entry around the answer; ``backwards``: its time is before that of the entry before it."""

    position: Position
    time_ms: int | None
    publish_ms: int = field(name="publishTime")
    broker_ms: int | None = field(name="brokerTime")
    producer: str
    backwards: bool


class BrokerAnswer(Answer, frozen=True):
    """A broker's answer. ``position`` may name an entry that does not exist yet (after the last one); None: it fails,
    or its answer is not known, and then ``agrees`` is None as well.

    ``version``: the release whose rules apply; ``exact``: the first entry at or after the time.
    """

    position: Position | None
    agrees: bool | None
    why: str | None
    version: str
    exact: Position | None
    probes: tuple[Probe, ...]


class BlockRead(NamedTuple):
    """A block of the index that was read: its first entry, and how many it has."""

    first: Position
    entries: int

    def __repr__(self) -> str:
        return one_line(self)


class Explanation(Struct, frozen=True):
    """The proof of an answer. ``ledgers``: those around the answer and those with lost entries; ``left_out``: the others, by verdict."""

    ledgers: tuple[LedgerAnswer, ...]
    left_out: tuple[LedgersLeftOut, ...]
    block: BlockRead | None
    neighbours: tuple[Neighbour, ...]
    broker: BrokerAnswer


def explain(
    reader: EntryReader,
    topic: Topic,
    time_ms: int,
    clock: Clock,
    found: Position | None,
    broker: BrokerSetup = DEFAULT_BROKER,
) -> Explanation:
    """Return why the found entry is the first at or after ``time_ms`` on a clock, and the broker's answer."""
    verdicts = _ledger_verdicts(reader, topic, time_ms, clock, found)
    # Shown one by one are those around the answer, and some of those that lack entries.
    end = next((place for place, verdict in enumerate(verdicts) if verdict.verdict == HOLDS), len(verdicts))
    near = range(max(end - _NEAR, 0), min(end + _NEAR + 1, len(verdicts)))
    broken = (place for place, verdict in enumerate(verdicts) if verdict.lost or verdict.unseen)
    shown = sorted({*near, *islice(broken, _NEAR)})
    block = find_block(reader.txn, found.ledger_id, found.entry_id) if found is not None else None
    return Explanation(
        tuple(verdicts[place] for place in shown),
        _left_out(verdict for place, verdict in enumerate(verdicts) if place not in shown),
        None if block is None else BlockRead(Position(block.ledger_id, block.entry_id(0)), len(block)),
        _neighbours(reader, topic, clock, found),
        _broker_answer(reader, topic, time_ms, clock, found, broker),
    )


def _ledger_verdicts(
    reader: EntryReader, topic: Topic, time_ms: int, clock: Clock, answer: Position | None
) -> list[LedgerAnswer]:
    whole = not may_be_broken(reader.txn, topic) and not any(ledger.info.offloaded for ledger in topic.ledgers)
    verdicts: list[LedgerAnswer] = []
    for ledger in topic.ledgers:
        times = find_times(reader.txn, ledger.ledger_id) if ledger.entries else None
        newest = None
        if times is not None:
            auto = times.auto_max[times.blocks - 1]
            newest = {"publish": times.sums.publish_max_ms, "broker": times.sums.broker_max_ms, "auto": auto}[clock]
        doubt = None if whole else find_doubt(reader.txn, ledger, ledger.entries)
        if answer is not None and ledger.ledger_id == answer.ledger_id:
            verdict = HOLDS
        elif answer is not None and ledger.ledger_id > answer.ledger_id:
            verdict = "not looked at: after the answer"
        elif newest is None:
            verdict = _unseen(reader, topic, ledger, time_ms, clock)
        elif doubt is not None and not is_stated_earlier(reader.txn, topic, ledger, time_ms, clock):
            here = "its imported entries are earlier" if newest < time_ms else "searched its imported entries"
            verdict = f"{here}: an earlier answer could be in the rest"
        else:
            verdict = "pruned: all its entries are earlier" if newest < time_ms else "looked into"
        lost, unseen = (0, 0) if doubt is None else (doubt.lost, doubt.unseen)
        verdicts.append(LedgerAnswer(ledger.ledger_id, ledger.entries, newest, verdict, lost, unseen))
    return verdicts


def _left_out(verdicts: Iterable[LedgerAnswer]) -> tuple[LedgersLeftOut, ...]:
    sums: dict[str, LedgersLeftOut] = {}
    for one in verdicts:
        kind = one.verdict if one.newest_ms is not None or not one.entries else "not here"
        sum_ = sums.get(kind, LedgersLeftOut(kind, 0, 0, 0, 0))
        sums[kind] = LedgersLeftOut(
            kind, sum_.ledgers + 1, sum_.entries + one.entries, sum_.lost + one.lost, sum_.unseen + one.unseen
        )
    return tuple(sums.values())


def _unseen(reader: EntryReader, topic: Topic, ledger: TopicLedger, time_ms: int, clock: Clock) -> str:
    if not ledger.entries:
        return "empty"
    stated = stated_times(ledger.info)
    if stated is not None and is_stated_earlier(reader.txn, topic, ledger, time_ms, clock):
        return f"pruned: not here, its {stated.source} states that it ends at {format_time_ms(stated.end_ms)}"
    return "not imported: no file has its entries"


def _neighbours(reader: EntryReader, topic: Topic, clock: Clock, answer: Position | None) -> tuple[Neighbour, ...]:
    middle = topic.number_of_entries if answer is None else topic.rank(answer)
    ranks = range(max(middle - NEIGHBOURS, 0), min(middle + NEIGHBOURS + 1, topic.number_of_entries))
    neighbours: list[Neighbour] = []
    for rank in ranks:
        position = topic.at_rank(rank)
        try:
            header = decode_message_entry(
                reader.read(position.ledger_id, position.entry_id).payload, f"entry {position}"
            )
        except ENTRY_UNREADABLE:
            continue
        publish_ms = header.metadata.publish_time
        broker_ms = header.broker.timestamp_ms if header.broker else None
        time_ms = clock_time(publish_ms, broker_ms, clock)
        before = neighbours[-1].time_ms if neighbours else None
        backwards = before is not None and time_ms is not None and time_ms < before
        neighbours.append(Neighbour(position, time_ms, publish_ms, broker_ms, header.metadata.producer_name, backwards))
    return tuple(neighbours)


def _broker_answer(
    reader: EntryReader, topic: Topic, time_ms: int, clock: Clock, found: Position | None, broker: BrokerSetup
) -> BrokerAnswer:
    """Return the broker's answer to the question and, if it differs from the found entry, the entries that misled it."""
    search = BrokerSearch(reader, topic, broker)
    exact = None if found is None else found.entry
    position: Position | None = None
    agrees: bool | None = False
    try:
        position = search.message_id_by_time(time_ms)
    except SEARCH_FAILS as error:
        why: str | None = error.message
    except NotSeen as error:
        agrees, why = None, error.message
    else:
        if position == EARLIEST:
            agrees = exact is not None and topic.rank(exact) == 0
            why = "it takes time 0 for the topic's beginning"
        else:
            agrees = position == found if found is not None else not topic.is_entry(position)
            why = None if agrees else _why(topic, time_ms, clock, found, search, position)
    return BrokerAnswer(position, agrees, None if agrees else why, broker.rules.release, exact, tuple(search.probes))


def _why(
    topic: Topic, time_ms: int, clock: Clock, found: Position | None, search: BrokerSearch, position: Position
) -> str:
    if search.forgotten is not None:
        return f"a broker that loads the topic drops ledger {search.forgotten}: BookKeeper has no metadata for it"
    if search.used_compacted_ledger is not None:
        return (
            f"the broker asks the compacted ledger {search.used_compacted_ledger}, by publish time: "
            "it sees only entries that compaction kept, on the clients' clocks"
        )
    exact = found if clock == "auto" else find_first_at_or_after(search.reader, topic, time_ms, "auto").position
    if exact == position:
        return f"the broker uses the broker time of entries that have one, but the question was about the {clock} clock"
    first = topic.number_of_entries if exact is None else topic.rank(exact)
    misled = [probe for probe in search.probes if probe.matches and topic.rank(probe.position) >= first]
    if not misled:
        return "the broker's probes missed it"
    probe = misled[0]
    shown = "unreadable" if probe.time_ms is None else format_time_ms(probe.time_ms)
    return (
        f"the clock runs backwards: probe {probe.position} comes after the answer but is stamped {shown}, before the time asked for, "
        f"so the broker continued its search after it ({len(misled)} of {counted(len(search.probes), 'probe')} misled it)"
    )
