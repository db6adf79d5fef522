"""``topics last-message-id``, ``get-message-by-id``, ``examine-messages``, ``peek-messages``."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import click
from msgspec import Struct

from pulsar_admin.api.messages import MessageQuery, Messages, messages_of
from pulsar_admin.columns import Column
from pulsar_admin.commands.topics.answers import answer, choose
from pulsar_admin.commands.topics.printout import SEPARATOR, Printing, columns_for, message_columns, render_message
from pulsar_admin.commands.topics.values import open_with, private_key_option, redact_option, value_line, value_option
from pulsar_admin.context import App
from pulsar_admin.numbers import INTEGER, whole
from pulsar_admin.options import TopicSelection, command, gather, pass_app, subscription_option, topics_argument
from pulsar_admin.store.errors import EntryCorrupt, EntryNotFound, NothingMatches, SubscriptionNotFound, TopicNotFound
from pulsar_admin.store.model.messages import find_topic_of, nth_position, redacted
from pulsar_admin.store.names import Position
from pulsar_admin.visible import clean_text

_ID_COLUMNS = (
    Column("LEDGER", "ledgerId", "id"),
    Column("ENTRY", "entryId", "id"),
    Column("BATCH INDEX", "batchIndex", "id"),
)


# -- last-message-id --------------------------------------------------------------------------------------------------


@command(
    "last-message-id",
    examples=[
        "pulsar-admin topics last-message-id public/default/batched",
        "pulsar-admin topics last-message-id acme/orders/parts -o jsonl",
    ],
    output="The id with upstream's keys; `batchIndex` is that of the last message of a batch. Several topics: one row each.",
    errors=[TopicNotFound],
)
@topics_argument
@pass_app
def last_message_id(app: App, selection: TopicSelection) -> None:
    """Show the id of the last message of a topic.

    The last entry counts even if it is a marker or an encrypted batch; for a topic without entries the entry id is -1.
    """
    answer(app, selection, lambda topic: topic.last_entry_id(), _ID_COLUMNS)


class MessageOptions(Struct, frozen=True):
    """How to show single messages."""

    value: bool
    redact: bool
    private_keys: tuple[Path, ...]


# -- one entry --------------------------------------------------------------------------------------------------------


@command(
    "get-message-by-id",
    examples=[
        "pulsar-admin topics get-message-by-id public/default/plain -l 9 -e 3",
        "pulsar-admin topics get-message-by-id public/default/batched -l 8 -e 0 -o json",
    ],
    output="The message as text with a hex dump, of a batch the first one; as JSON with its payload in base64. --value: the "
    "value below it, and the keys of `topics read --value`.",
    errors=[TopicNotFound, EntryNotFound, EntryCorrupt],
)
@topics_argument
@click.option("-l", "--ledgerId", "ledger_id", type=INTEGER, required=True, help="The ledger.")
@click.option("-e", "--entryId", "entry_id", type=INTEGER, required=True, help="The entry.")
@value_option
@redact_option
@private_key_option
@gather(MessageOptions)
@pass_app
def get_message_by_id(
    app: App, selection: TopicSelection, ledger_id: int, entry_id: int, options: MessageOptions
) -> None:
    """Show one entry of a topic by its id.

    `topics read --from LEDGER:ENTRY --to LEDGER:ENTRY` shows all messages of a batch.
    """
    position = Position(ledger_id, entry_id)
    query = _query(options, entry=lambda topic: position)
    with app.session.reader() as reader:
        open_with(reader, options.private_keys)
        topic = find_topic_of(reader.txn, choose(app, reader.txn, selection).names, position)
        found = messages_of(app.session, lambda txn: (topic,), query)
        _emit_messages(app, found, _Style(False, options.value, _printing(app, options, redelivery=True)), one=True)
    app.report(found.problems)


def _query(options: MessageOptions | PeekOptions, **wanted: Any) -> MessageQuery:  # Any: fields of MessageQuery
    return MessageQuery(columns=message_columns(payload=True, value=options.value), each=True, **wanted)


def _printing(app: App, options: MessageOptions | PeekOptions, **what: bool) -> Printing:
    return Printing(iso=app.settings.tz is not None, redact=options.redact, **what)


# -- examine-messages -------------------------------------------------------------------------------------------------


@command(
    "examine-messages",
    examples=[
        "pulsar-admin topics examine-messages public/default/plain -i earliest -m 10",
        "pulsar-admin topics examine-messages acme/orders/parts",
    ],
    output="The message as text with a hex dump, of a batch the first one; as JSON with its payload in base64.",
    errors=[TopicNotFound, NothingMatches, EntryNotFound, EntryCorrupt],
)
@topics_argument
@click.option(
    "-i",
    "--initialPosition",
    "origin",
    type=click.Choice(["latest", "earliest"]),
    default="latest",
    show_default=True,
    help="The end of the topic to count from.",
)
@click.option("-m", "--messagePosition", "number", type=INTEGER, default=1, help="Which one, counted in entries [1].")
@value_option
@redact_option
@private_key_option
@gather(MessageOptions)
@pass_app
def examine_messages(app: App, selection: TopicSelection, origin: str, number: int, options: MessageOptions) -> None:
    """Show the n-th entry of a topic from its beginning or its end."""
    query = _query(options, entry=lambda topic: nth_position(topic, number, from_end=origin == "latest"))
    with app.session.reader() as reader:
        open_with(reader, options.private_keys)
        chosen = choose(app, reader.txn, selection)
        found = messages_of(app.session, lambda txn: chosen.names, query)
        _emit_messages(app, found, _Style(chosen.several, options.value, _printing(app, options)))
    app.report(found.problems)


class _Style(Struct, frozen=True):
    """What is shown of messages beside themselves: of SEVERAL topics their names, and VALUE."""

    several: bool
    value: bool
    printing: Printing


def _emit_messages(app: App, found: Messages, style: _Style, *, one: bool = False) -> bool:
    """Write messages as pulsar-admin prints them, or as rows in the format asked for; ONE: as an object. Return whether there are any."""
    form, hide = app.settings.output, style.printing.redact
    if form not in (None, "plain") or app.settings.query is not None:
        records = found.records()
        first = next(records, None)
        records = chain(() if first is None else (first,), records)
        rows = map(redacted, records) if hide else records
        columns = columns_for(form, several=style.several, value=style.value)
        if one:
            app.emit(next(rows), columns)
        else:
            app.emit_rows(rows, columns)
        return first is not None
    number = -1
    for number, (name, message, decoded) in enumerate(found.as_admin_shows()):
        title = f"Topic: {clean_text(str(name))}\n" if style.several else ""
        text = render_message(message, style.printing) + value_line(decoded, redacted=hide)
        app.writer.write((SEPARATOR if number else "") + title + text)
    return number >= 0


# -- peek-messages ----------------------------------------------------------------------------------------------------


_COMMITTED = "READ_COMMITTED"


class PeekOptions(Struct, frozen=True):
    """How many, and what beside committed messages."""

    count: int
    markers: bool
    isolation: str
    value: bool
    redact: bool
    private_keys: tuple[Path, ...]


@command(
    "peek-messages",
    examples=[
        "pulsar-admin topics peek-messages public/default/plain -s holes -n 3",
        "pulsar-admin topics peek-messages public/default/batched -s batch-holes -n 25 -o jsonl",
    ],
    output="Messages as text with a hex dump, a line of dashes between them; as JSON with payloads in base64. "
    "Entries that cannot be read are passed over and make the exit code 1.",
    errors=[TopicNotFound, SubscriptionNotFound],
)
@topics_argument
@subscription_option
@click.option("-n", "--count", type=whole(1), default=1, help="How many messages [1].")
@click.option("-ssm", "--show-server-marker", "markers", is_flag=True, help="Also markers of the broker.")
@click.option(
    "-til",
    "--transaction-isolation-level",
    "isolation",
    type=click.Choice([_COMMITTED, "READ_UNCOMMITTED"]),
    default=_COMMITTED,
    show_default=True,
    help="READ_UNCOMMITTED: also messages of open and aborted transactions.",
)
@value_option
@redact_option
@private_key_option
@gather(PeekOptions)
@pass_app
def peek_messages(app: App, selection: TopicSelection, subscription: str, options: PeekOptions) -> None:
    """Show the first messages of a subscription's backlog.

    Individually deleted entries are left out and batches are split; nothing is acknowledged.
    """
    wanted = {"limit": options.count, "uncommitted": options.isolation != _COMMITTED, "markers": options.markers}
    query = _query(options, subscription=subscription, **wanted)
    with app.session.reader() as reader:
        open_with(reader, options.private_keys)
        chosen = choose(app, reader.txn, selection)
        found = messages_of(app.session, lambda txn: chosen.names, query)
        style = _Style(chosen.several, options.value, _printing(app, options, markers=options.markers))
        if not _emit_messages(app, found, style):
            from pulsar_admin.store.why.subscription import (
                why_nothing_is_given,  # all rules: few backlogs have nothing to show
            )

            for name in chosen.names:
                for sentence in why_nothing_is_given(reader, name, subscription, app.now_ms):
                    app.warn(f"{subscription} of {name}: {sentence}")
    app.report(found.problems)
