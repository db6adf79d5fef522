"""``topics why``: sentences that explain the position of subscriptions, each with a command to run next."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pulsar_admin.columns import Column, size_text
from pulsar_admin.commands.topics.answers import choose
from pulsar_admin.context import App, Result, Table
from pulsar_admin.cures import cure_lines
from pulsar_admin.options import TopicSelection, command, flag, topics_argument
from pulsar_admin.store.errors import MetadataCorrupt, SubscriptionNotFound, TopicNotFound
from pulsar_admin.store.model.topics import scan_bytes
from pulsar_admin.store.names import shell_word
from pulsar_admin.store.wording import counted, listed
from pulsar_admin.visible import clean_text, folded_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pulsar_admin.store.doctor.why import Reason, WhyBytes

_TOP = 20
_COLUMNS = (
    Column("TOPIC", "topic"),
    Column("SUBSCRIPTION", "subscription"),
    Column("HELD", "held"),
    Column("CODE", lambda row: row.reasons[0].code if row.reasons else ""),
    Column("REASON", lambda row: row.reasons[0].sentence if row.reasons else ""),
)

_TOTAL_COLUMNS = (
    Column("REASON", "code"),
    Column("SIZE", "bytes", "size"),
    Column("%", lambda row: f"{row.percent:.1f}", "number"),
    Column("LEDGERS", "ledgers", "number"),
    Column("WHAT", lambda row: _means(row.code), drop=1),
)
_HELD_COLUMNS = (
    Column("REASON", lambda row: row.reason.code),
    Column("TOPIC", "topic"),
    Column("SUBSCRIPTION", "subscription"),
    Column("BYTES", "bytes", "number"),
    Column("PERCENT", "percent"),
    Column("LEDGERS", "ledgers", "number"),
    Column("FILE", "path", drop=1),
)


def _means(code: str) -> str:
    from pulsar_admin.store.rules.holders import HOLDERS

    return HOLDERS[code]


@command(
    "topics why",
    examples=[
        "public/default/plain",
        "public/default/plain -s holes",
        "acme/delayed/reminders -s workers -o json",
        "acme/iot/skewed acme/iot/skewed-batched -s reset-me -o table",
        "public/default/plain --disk",
    ],
    output="Sentences, what holds it first, each with the command to type next. As json reasons with `code`, `sentence`, `evidence` and "
    "`command`, and `held`: whether something in the store holds it; without -s an array. docs/howto/why.md has the codes.",
    errors=[TopicNotFound, SubscriptionNotFound, MetadataCorrupt],
    uses=["now", "spark"],
)
@topics_argument
@click.option("-s", "--subscription", help="The subscription [all].")
@flag("--disk", help="Explain instead why the bytes of the topics stay on disk.")
def why(app: App, selection: TopicSelection, subscription: str | None, disk: bool) -> Result:
    """Explain why a subscription is where it is, or why bytes stay on disk.

    Considers the message that would be delivered next, acknowledgements after it, delays, lost and unreadable entries,
    open transactions, the TTL in force and when it fires, and backlog quotas. If nothing in the store blocks a
    subscription, the answer says so: its messages wait for a consumer. Headers of its backlog are read. What is only in
    a broker's memory (consumers, permits, messages delivered but not acknowledged) is not in a store.

    --disk: what keeps the bytes of the topics (the slowest cursor, retention, the last ledger), of their cursors,
    schemas and compacted ledgers, and the dead bytes of entry logs that contain nothing else live. `store usage --why`
    covers the whole store.
    """
    if disk and subscription is not None:
        raise click.UsageError("give -s or --disk, not both", click.get_current_context())
    if disk:
        return disk_result(app, selection)
    with app.session.reader() as reader:
        chosen = choose(app, reader.txn, selection)
        with app.scan(reader, scan_bytes(reader.txn, chosen.names), "why") as reader:
            bare = []
            if subscription is None:
                listed = dict(chosen.each(app, lambda name: app.topic(name).subscriptions()))
                asked = [(name, cursor) for name, cursors in listed.items() for cursor in cursors]
                bare = [name for name, cursors in listed.items() if not cursors]
            else:
                cursors = app.session.iter_cursors(reader, selection, subscription)
                asked = [(topic.name, subscription) for topic, _ in cursors]
            explained = [*app.each(asked, lambda one: app.topic(one[0]).cursor(one[1]).why())]
    is_long = (
        subscription is None and len(explained) > 1
    )  # then those that nothing holds are told in one sentence each, at the end
    told = sorted(explained, key=lambda one: not one.held) if is_long else explained
    heads = [
        (f"{one.topic}, subscription {one.subscription}", one.reasons[:1] if is_long and not one.held else one.reasons)
        for one in told
    ]
    return Result(
        lambda: explained[0],
        rows=explained,
        columns=_COLUMNS,
        screen=lambda width: ["\n".join(_text(head, reasons, width) for head, reasons in heads)],
        documents=() if chosen.several or subscription is None else ("json",),
        notes=[
            f"{name} has no subscription; why its bytes stay: pulsar-admin topics why {shell_word(name)} --disk"
            for name in bare
        ],
    )


def note_unseen_disks(app: App) -> None:
    """Print a note about bookies whose disks are not counted because they were not imported."""
    from pulsar_admin.store.model.coverage import find_absent_bookies

    with app.session.read() as txn:
        absent = find_absent_bookies(txn)
    if absent is not None:
        app.tell(f"{absent.counts()}: the disks of {listed(absent.absent, 5)} are not counted; {absent.hint()}")


def disk_result(app: App, selection: TopicSelection | None) -> Result:
    """Return the reasons why bytes of the selected topics (None: of the whole store) stay on disk; --top limits the rows."""
    note_unseen_disks(app)
    top = app.take_top()
    shown = _TOP if top is None and selection is None else top

    def find(most: int | None = None) -> WhyBytes:
        with app.bulk(), app.session.reader() as reader:
            names = () if selection is None else choose(app, reader.txn, selection).names
            return app.api.why_bytes(*map(str, names), top=most)

    return Result(
        lambda: find(top),
        rows=lambda: find().held,
        columns=_HELD_COLUMNS,
        screen=lambda width: _disk_screen(find(shown), width),
    )


def _disk_screen(found: WhyBytes, width: int) -> Iterator[str | Table]:
    yield f"{size_text(found.bytes)} on the disks of this copy\n\n"
    yield Table(found.totals, _TOTAL_COLUMNS)
    for row in found.held:
        head = f"{size_text(row.bytes)} ({row.percent:.1f}%)"
        yield "\n" + _text(head, [row.reason], width).replace("\n\n", "\n", 1)
    if found.holders > len(found.held):
        yield f"\nthe {len(found.held)} largest of {counted(found.holders, 'holder')}; --top N shows more\n"


def _text(head: str, reasons: Sequence[Reason], width: int) -> str:
    """Return ``head`` and ``reasons`` as text; sentences are folded, commands are not, so that they can be pasted."""
    lines = [clean_text(head)]
    for reason in reasons:
        lines += ["", folded_text(reason.sentence, width, hang="")]
        if reason.command:
            lines += [f"  {clean_text(line)}" for line in cure_lines(reason.command)]
    return "\n".join(lines) + "\n"
