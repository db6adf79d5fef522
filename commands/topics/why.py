"""``topics why``: sentences that say why a subscription stands where it does, each with the command to type next."""

from __future__ import annotations

from shutil import get_terminal_size
from typing import TYPE_CHECKING

from commands.topics.answers import choose, size_of
from commands.topics.moving import iter_cursors
from pulsar_admin.columns import Column
from pulsar_admin.context import App
from pulsar_admin.options import TopicSelection, command, pass_app, subscription_option, topics_argument
from pulsar_admin.visible import clean_text
from store.errors import MetadataCorrupt, SubscriptionNotFound, TopicNotFound
from store.model.ledgers import open_reader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store.why.reason import Reason
    from store.why.subscription import Why

_WIDTH = 100
_COLUMNS = (
    Column("TOPIC", "topic"),
    Column("SUBSCRIPTION", "subscription"),
    Column("HELD", "held"),
    Column("CODE", lambda row: row.reasons[0].code if row.reasons else ""),
    Column("REASON", lambda row: row.reasons[0].sentence if row.reasons else ""),
)


@command(
    "why",
    examples=[
        "pulsar-admin topics why public/default/plain -s holes",
        "pulsar-admin topics why acme/delayed/reminders -s workers -o json",
        "pulsar-admin topics why acme/iot/skewed acme/iot/skewed-batched -s reset-me -o table",
    ],
    output="Sentences, what holds it first, each with the command to type next. As json reasons with `code`, `sentence`, `evidence` and "
    "`command`, and `held`: whether something in the store holds it. docs/howto/why.md has the codes.",
    errors=[TopicNotFound, SubscriptionNotFound, MetadataCorrupt],
    uses=["now", "spark"],
)
@topics_argument
@subscription_option
@pass_app
def why(app: App, selection: TopicSelection, subscription: str) -> None:
    """Say why a subscription stands where it does.

    Looked at are the message that it would be given next, acknowledgements behind it, delays, lost and unreadable entries, open
    transactions, the TTL in force and when it fires, and backlog quotas. A subscription that nothing holds is said to be so: its
    messages wait for a consumer. Headers of its backlog are read. What is in a broker's memory alone (consumers, permits, messages
    given and not acknowledged) is in no store.
    """
    from store.why.subscription import why_subscription

    with open_reader(app.store) as reader:
        chosen = choose(app, reader.txn, selection)
        with app.scan(reader, size_of(reader, chosen.names), "why"):
            found = [
                why_subscription(reader, topic, cursor, app.now_ms)
                for topic, cursor in iter_cursors(reader, selection, subscription)
            ]
    _emit(app, found, several=chosen.several)


def _emit(app: App, found: Sequence[Why], *, several: bool) -> None:
    form = app.settings.output
    if form in (None, "plain"):
        heads = [(f"{one.topic}, subscription {one.subscription}", one.reasons) for one in found]
        app.writer.write("\n".join(_text(head, reasons, _width(app)) for head, reasons in heads))
    elif several or form != "json":
        app.emit_rows(found, _COLUMNS)
    else:
        app.emit(found[0])


def _width(app: App) -> int:
    return min(get_terminal_size().columns, _WIDTH) if app.writer.stream.isatty() else _WIDTH


def _text(head: str, reasons: Sequence[Reason], width: int) -> str:
    """Return HEAD and REASONS as text, sentences folded; commands are not, so that they can be pasted."""
    from textwrap import fill

    lines = [clean_text(head)]
    for reason in reasons:
        lines += ["", fill(clean_text(reason.sentence), width, break_long_words=False, break_on_hyphens=False)]
        if reason.command:
            lines.append(f"  $ {clean_text(reason.command)}")
    return "\n".join(lines) + "\n"
