"""The options that describe the broker for ``--rule broker``."""

from datetime import timedelta

import click

from pulsar_admin.options import DURATION_OR_MINUS
from pulsar_admin.store.search.broker_setup import BROKER_VERSIONS, MAX_CLOCK_SKEW_MS

BROKER_VERSION = click.option(
    "--broker-version",
    type=click.Choice(BROKER_VERSIONS),
    help="The broker version for --rule broker and for notes about brokers [5.0 if the metadata shows that it wrote it; else 4.0].",
)
MAX_CLOCK_SKEW = click.option(
    "--max-clock-skew",
    type=DURATION_OR_MINUS,
    callback=lambda ctx, param, value: timedelta(milliseconds=value),
    default=f"{MAX_CLOCK_SKEW_MS // 1000}s",
    show_default=True,
    help="The broker's managedLedgerCursorResetLedgerCloseTimestampMaxClockSkewMillis; -1: do not skip ledgers "
    "by close time.",
)
