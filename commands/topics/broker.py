"""Options that say which broker ``--rule broker`` asks."""

from __future__ import annotations

import click

from pulsar_admin.options import DURATION_OR_MINUS
from store.broker_search import BROKER_VERSIONS, MAX_CLOCK_SKEW_MS

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
