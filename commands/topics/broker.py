"""Which broker ``--rule broker`` asks, and what is to be said of the clock ``broker``."""

from __future__ import annotations

import click

from pulsar_admin.context import App
from pulsar_admin.options import DURATION_OR_MINUS
from store.model.reader import EntryReader
from store.model.topics import Topic
from store.search.broker_setup import BROKER_VERSIONS, MAX_CLOCK_SKEW_MS
from store.search.by_time import count_without_broker_time
from store.wording import counted

BROKER_VERSION = click.option(
    "--broker-version",
    type=click.Choice(BROKER_VERSIONS),
    default=BROKER_VERSIONS[0],
    show_default=True,
    help="The broker of --rule broker and of what is said of a broker; as read from 4.0.8 and 4.2.4.",
)
MAX_CLOCK_SKEW = click.option(
    "--max-clock-skew",
    "max_clock_skew_ms",
    type=DURATION_OR_MINUS,
    default=f"{MAX_CLOCK_SKEW_MS // 1000}s",
    show_default=True,
    help="The broker's managedLedgerCursorResetLedgerCloseTimestampMaxClockSkewMillis; -1: close times prune nothing.",
)


def warn_of_broker_clock(app: App, reader: EntryReader, topic: Topic) -> None:
    """Say so when --clock is the broker's and entries of TOPIC carry no broker time."""
    if app.settings.clock != "broker":
        return
    without, entries = count_without_broker_time(reader, topic)
    if without:
        app.warn(
            f"{topic.name}: {without:,} of {counted(entries, 'entry')} {'carries' if without == 1 else 'carry'} no broker time: "
            "--clock broker passes over them, --clock auto takes their publish time"
        )
