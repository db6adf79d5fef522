"""The data of the page as plain values, which ``pulsar_admin.page.collecting`` reads from a store."""

from __future__ import annotations

from collections.abc import Mapping
from operator import add, sub
from typing import Any

from msgspec import Struct, field
from msgspec.structs import astuple

from pulsar_admin.store.facts.file_sums import DiskTotals
from pulsar_admin.store.reports.cursor_timeline import Strip
from pulsar_admin.store.reports.timeline import Timeline
from pulsar_admin.store.rules.finding import Finding
from pulsar_admin.store.rules.rule import Rule


class Fact(Struct, frozen=True):
    """One number at the head of the page, with its explanation."""

    label: str
    value: str
    note: str = ""


class Share(Struct, frozen=True):
    """Storage of one topic, or of several together, as brokers count it (one copy).

    ``done_bytes``: needed by no subscription.
    """

    tenant: str
    namespace: str
    topic: str
    size_bytes: int
    done_bytes: int = 0
    topics: int = 1


class Standing(Struct, frozen=True):
    """A subscription's backlog as a strip; ``oldest_ms``: publish time of its first unacknowledged entry, None if unknown."""

    strip: Strip
    oldest_ms: int | None = None


class Due(Struct, frozen=True):
    """Delayed entries of a subscription by due time: ``counts[i]`` from ``start_ms + i * width_ms`` on; ``first_ms``:
    the earliest."""

    topic: str
    subscription: str  # empty, as the topic: of all subscriptions together
    first_ms: int
    start_ms: int
    width_ms: int
    counts: tuple[int, ...]

    @property
    def entries(self) -> int:
        """The number of delayed entries."""
        return sum(self.counts)


class TopicRow(Struct, frozen=True):
    """A row of the table of topics. ``backlog_entries``: the largest backlog, of the subscription ``worst``."""

    namespace: str
    name: str
    entries: int
    size_bytes: int
    ledgers: int
    subscriptions: int
    backlog_entries: int = 0
    worst: str = ""
    oldest_ms: int | None = None
    findings: int = 0


class Rest(Struct, frozen=True):
    """Sums over the items that are left out of a list."""

    count: int = 0
    entries: int = 0
    size_bytes: int = 0
    done_bytes: int = 0
    backlog_entries: int = 0

    def __add__(self, other: Rest) -> Rest:
        return Rest(*map(add, astuple(self), astuple(other)))

    def __sub__(self, other: Rest) -> Rest:
        return Rest(*map(sub, astuple(self), astuple(other)))


class Page(Struct, frozen=True):
    """The page's data.

    Ages count back from ``now_ms``; ``as_of`` names the source of that time; ``made_ms`` is when the page was made (None: at
    ``now_ms``), by which ``version`` of the toolkit. ``rules`` explain the codes of findings. ``*_rest`` count rows that are not shown;
    ``unread`` lists what could not be read, one line each.
    """

    title: str
    source: str
    now_ms: int
    facts: tuple[Fact, ...] = ()
    findings: tuple[Finding, ...] = ()
    rules: Mapping[str, Rule[Any]] = field(default_factory=dict)
    disk: DiskTotals = DiskTotals()
    shares: tuple[Share, ...] = ()
    standings: tuple[Standing, ...] = ()
    standings_rest: Rest = Rest()
    traffic: tuple[Timeline, ...] = ()
    traffic_rest: Rest = Rest()
    due: tuple[Due, ...] = ()
    due_rest: Rest = Rest()
    topics: tuple[TopicRow, ...] = ()
    topics_rest: Rest = Rest()
    rest_by_namespace: Mapping[str, Rest] = field(default_factory=dict)
    unread: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()
    as_of: str = ""
    version: str = ""
    made_ms: int | None = None
