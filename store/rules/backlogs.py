"""Rules about the contents of backlogs: chunks that no consumer can join, markers that no consumer gets."""

from collections.abc import Iterator

from pulsar_admin.store.facts import known
from pulsar_admin.store.facts.backlogs import CutMessage
from pulsar_admin.store.facts.topics import ReadBudget, SubscriptionFacts
from pulsar_admin.store.names import shell_word
from pulsar_admin.store.rules.finding import Severity
from pulsar_admin.store.rules.rule import Evidence, Rule, Rules, here
from pulsar_admin.store.wording import counted, listed, plural

_NAMED = 5
_CUT = (
    "A subscription was moved into a message of several chunks, or an expiry or a skip ended inside it (apache/pulsar#26395, #25120,"
    " #12171)."
)
_DROPS = (
    "Delivers the remaining chunks to a consumer, which drops them because the first is missing; before 5.0 it "
    "does not even deliver those of a shared subscription. Java's clients acknowledge dropped chunks after a "
    "minute (`expireTimeOfIncompleteChunkedMessage`). Otherwise the backlog never becomes empty, and ledgers up "
    "to their end are kept."
)
CHUNK_RULES = Rules[SubscriptionFacts]("use")
MARKER_RULES = Rules[SubscriptionFacts]("use")


@CHUNK_RULES.row(
    "chunk-cut",
    Severity.WARNING,
    "A subscription's position is inside a chunked message",
    _CUT,
    _DROPS,
    "pulsar-admin topics reset-cursor {topic} -s {subscription} -m {wholeFrom}",
    "Deliver the whole message again, from its first chunk on, before a consumer acknowledges the rest; acknowledged entries after that"
    " chunk are delivered again as well. To drop the message instead, use `topics skip`.",
    needs="has_edges",
)
def _cut(facts: SubscriptionFacts) -> Iterator[Evidence]:
    cut = facts.cut_message
    if cut is not None and cut.whole_from is not None:
        values = {**_cut_values(facts, cut), "first": str(cut.first), "wholeFrom": str(cut.whole_from)}
        yield here(_cut_text(cut, f"begins at {cut.first}"), values)
    elif cut is not None and not cut.is_gone:
        position = cut.position
        look = f"pulsar-admin topics get-message-by-id {shell_word(facts.of.topic.name)} -l {position.ledger_id} -e {position.entry_id}"
        how = "begins in an unreadable part, or very far before it"
        yield here(_cut_text(cut, how), _cut_values(facts, cut), mend=look)


@CHUNK_RULES.row(
    "chunk-remainder",
    Severity.WARNING,
    "A backlog begins with the rest of a chunked message",
    f"{_CUT} Its first chunk was trimmed, so the message cannot be joined any more.",
    _DROPS,
    "pulsar-admin topics skip {topic} -s {subscription} -n {left}",
    "Skip the remaining chunks. If messages lie before them, no command acknowledges the chunks alone: let consumers take those "
    "first, or the skip drops them as well.",
    loss="the message, which no consumer gets in any case",
    needs="has_edges",
)
def _remainder(facts: SubscriptionFacts) -> Iterator[Evidence]:
    cut = facts.cut_message
    if cut is not None and cut.is_gone:
        peek = f"pulsar-admin topics peek-messages {shell_word(facts.of.topic.name)} -s {shell_word(facts.cursor.name)} -n 1"
        text = _cut_text(cut, "no longer has its first chunk")
        later = "; no command acknowledges it alone: let consumers take the messages before it, then skip it"
        mend = None if cut.left else peek
        yield here(text + ("" if cut.left else later), _cut_values(facts, cut), mend=mend)


def _cut_text(cut: CutMessage, how: str) -> str:
    count, numbers = len(cut.acknowledged), [one + 1 for one in cut.acknowledged]
    done = (
        f"{plural(count, 'the chunk', f'the {count} chunks')} before it {plural(count, 'is', 'are')} acknowledged"
        if numbers == [*range(1, cut.chunk + 1)]
        else f"{plural(count, 'chunk', 'chunks')} {listed(numbers, _NAMED)} of it {plural(count, 'is', 'are')} acknowledged"
    )
    return (
        f"{cut.position} is chunk {cut.chunk + 1} of {cut.total} of a message that {how}: {done}, so"
        " consumers drop the rest, and none gets the message"
    )


def _cut_values(facts: SubscriptionFacts, cut: CutMessage) -> dict[str, object]:
    return {
        "topic": facts.of.where,
        "subscription": facts.cursor.name,
        "position": str(cut.position),
        "chunk": cut.chunk + 1,
        "chunks": cut.total,
        "acknowledgedChunks": len(cut.acknowledged),
        "producer": cut.producer,
        "left": cut.left,
    }


@MARKER_RULES.row(
    "markers-in-backlog",
    Severity.NOTE,
    "Half of a backlog or more is markers, which no client gets",
    "Brokers write markers into topics for replicated subscriptions and transactions (apache/pulsar#6437, #22926, #10054).",
    "Counts them in `msgBacklog`, delivers them to nobody, and acknowledges them when a consumer reads past them.",
    "pulsar-admin topics peek-messages {topic} -s {subscription} -n 1 -ssm",
    "Nothing to repair: connect a consumer.",
    needs="has_edges",
)
def _markers(facts: SubscriptionFacts) -> Iterator[Evidence]:
    held = known(facts.contents)
    if held is None or 2 * held.markers < max(held.entries, 1) or facts.cursor_bookies:
        return
    rest = held.entries - held.markers
    yield here(
        f"{held.markers:,} of the {counted(held.entries, 'entry')} of its backlog {plural(held.markers, 'is a marker', 'are markers')}"
        f" of brokers, which no client gets: {plural(held.markers, 'it goes', 'they go')} as soon as a consumer connects"
        + (
            f"; {counted(rest, 'entry')} {plural(rest, 'is', 'are')} left for it"
            if rest
            else ", and there is no other entry"
        ),
        {
            "topic": facts.of.where,
            "subscription": facts.cursor.name,
            "entries": held.entries,
            "markers": held.markers,
        },
    )


def _left_out(budget: ReadBudget) -> Iterator[Evidence]:
    count = budget.topics_left_out
    if count:
        yield Evidence(
            "topics",
            f"the backlogs of {counted(count, 'topic')} were not read, or not completely: cut chunks, markers and "
            "delayed messages that a TTL drops are reported for the other topics only",
            {"topics": count},
        )


BACKLOGS_LEFT_OUT: Rule[ReadBudget] = Rule(
    "backlogs-not-looked-at",
    Severity.NOTE,
    "Backlogs were not read completely",
    "Only the entries of a backlog show chunks, markers and delayed messages. Without `--deep` the doctor looks at the "
    "ends of 500 backlogs, and reads at most 100,000 entries of one and 2,000,000 in all.",
    "Nothing.",
    "pulsar-admin doctor --deep",
    "Read all of them, which reads every byte; `topics why` reads those of one topic or subscription.",
    holds=_left_out,
    scope="use",
)
