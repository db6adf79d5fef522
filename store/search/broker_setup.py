"""Which broker is asked, and what it looks at. Apart from its searches, which most questions by time do not import."""

from __future__ import annotations

from typing import Literal, get_args

from msgspec import Struct, field

from pulsar_admin.store.errors import check_choice
from pulsar_admin.store.names import Position
from pulsar_admin.store.wording import Answer

BrokerVersion = Literal["4.0", "4.2"]
BROKER_VERSIONS: tuple[BrokerVersion, ...] = get_args(BrokerVersion)
READ_FROM: dict[BrokerVersion, str] = {"4.0": "4.0.8", "4.2": "4.2.4"}
"""The release whose answers and classes each version's rules were read from."""

MAX_CLOCK_SKEW_MS = 60_000
"""``managedLedgerCursorResetLedgerCloseTimestampMaxClockSkewMillis``: the default of both."""


class BrokerSetup(Struct, frozen=True):
    """The broker that is asked.

    ``max_clock_skew_ms`` below 0: ledgers' close times prune nothing. ``loaded_ms``: when it loads the topic, which closes the
    last ledger and drops empty ones (``ManagedLedgerImpl.initialize``, ``initializeBookKeeper``); None: it had it loaded all along.
    """

    version: BrokerVersion = "4.0"
    max_clock_skew_ms: int = MAX_CLOCK_SKEW_MS
    loaded_ms: int | None = None

    def __post_init__(self) -> None:
        """Raise InvalidValue for a version whose rules are not known here."""
        check_choice("broker version", self.version, BrokerVersion)


DEFAULT_BROKER = BrokerSetup()


class Probe(Answer, frozen=True):
    """One entry the broker looks at: its time (None: unreadable, which counts as not matching) and whether it matched."""

    position: Position
    time_ms: int | None
    matches: bool = field(name="earlier")
