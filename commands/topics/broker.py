"""Which broker ``--rule broker`` asks, and what is to be said of the clock ``broker``."""

from __future__ import annotations

import click

from pulsar_admin.context import App
from pulsar_admin.options import DURATION_OR_MINUS
from store.model.topics import read_topic
from store.names import TopicName
from store.search.broker_setup import BROKER_VERSIONS, MAX_CLOCK_SKEW_MS
from store.search.by_time import count_without_broker_time
from store.wording import counted

BROKER_VERSION = click.option(
    "--broker-version",
    type=click.Choice(BROKER_VERSIONS),
    default=BROKER_VERSIONS[0],
    show_default=True,
    help="The broker version for --rule broker and for notes about brokers; taken from 4.0.8 and 4.2.4.",
)
MAX_CLOCK_SKEW = click.option(
    "--max-clock-skew",
    "max_clock_skew_ms",
    type=DURATION_OR_MINUS,
    default=f"{MAX_CLOCK_SKEW_MS // 1000}s",
    show_default=True,
    help="The broker's managedLedgerCursorResetLedgerCloseTimestampMaxClockSkewMillis; -1: do not skip ledgers "
    "by close time.",
)


def warn_of_broker_clock(app: App, name: TopicName) -> None:
    """Say so when --clock is the broker's and entries of the topic NAME carry no broker time."""
    if app.settings.clock != "broker":
        return
    with app.session.reader() as reader:
        without, entries = count_without_broker_time(reader, read_topic(reader.txn, name))
    if without:
        app.warn(
            f"{name}: {without:,} of {counted(entries, 'entry')} {'carries' if without == 1 else 'carry'} no broker time: "
            "--clock broker passes over them, --clock auto takes their publish time"
        )
