"""What a change does, as a value: one ``ChangePart`` a thing that it concerns, all of them a ``ChangeReport``.

Planning makes parts; the audit log keeps them as JSON, which ``store.changes.recorded`` reads back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from store.frozen import frozen
from store.model.extent import Extent
from store.model.redaction import hide_secrets_in
from store.names import Position, shell_word

Json = Mapping[str, Any]  # Any: JSON values


@frozen
class BrokerMove:
    """Where a broker would move the cursor to. ``entries``: how many more than we; below 0: fewer."""

    mark_delete: Position
    agrees: bool
    entries: int


@frozen
class Deletable:
    """The ledgers that a broker may delete after the change, and what retains the others."""

    ledgers: tuple[int, ...]
    entries: int
    bytes: int
    kept_by_retention: tuple[int, ...]
    blocked_by: str | None
    """The subscription that retains the rest."""
    blocked_at: Position | None = None
    """Its mark-delete position."""
    retained: tuple[int, ...] = ()
    """The ledgers that it retains; not in JSON."""


@frozen
class LedgerPart:
    """How much of one ledger a change concerns."""

    ledger_id: int
    extent: Extent


@frozen
class FutureDated:
    """What no age expires, because producers dated it in the future: how much, and the first position."""

    extent: Extent
    first: Position
    latest_time_ms: int
    producers: tuple[str, ...]


@frozen
class NotDue:
    """Delayed messages that go before they are due: how many, and the first of them with their due times."""

    messages: int
    first: tuple[tuple[Position, int], ...]


@frozen
class DelayLoss:
    """What an expiry does to delayed messages.

    ``ttl_conflict``: what the TTL drops of the rest before it is due; ``evicting_quotas``: types of backlog quotas that drop
    delayed messages too. ``checks_ttl``, ``checks_quotas``: whether these questions were asked.
    """

    not_due: NotDue | None = None
    ttl_conflict: NotDue | None = None
    evicting_quotas: tuple[str, ...] = ()
    checks_ttl: bool = False
    checks_quotas: bool = False


@frozen
class MoveBasis:
    """What a cursor was moved by: a position, a time, or the age limit of an expiry, of which ``ttl_seconds`` may be the reason.

    ``asked_broker``: whether the broker's answer was looked for; ``broker`` is None then where it answers an error.
    """

    rule: str
    position: Position | None = None
    time_ms: int | None = None
    limit_ms: int | None = None
    ttl_seconds: int | None = None
    ttl_source: str | None = None
    asked_broker: bool = False
    broker: BrokerMove | None = None


@frozen
class ExpiryDetails:
    """What an expiry says beyond a move. ``delays`` None: delayed messages were not looked for."""

    ledgers: tuple[LedgerPart, ...]
    future_dated: FutureDated | None
    delays: DelayLoss | None = None


@frozen
class WrittenEvent:
    """The event of a topic policy. ``topic`` None: the policies stand in a node. ``position`` None: it is not written."""

    topic: str | None
    position: Position | None


@frozen
class CompactionDetails:
    """What a compaction read and kept. Bytes are payload bytes of entries; ``payload_bytes``: of messages, before and after."""

    format: str
    keys: int | None
    deleted_keys: int | None
    entries_read: int
    bytes_read: int
    bytes_saved: int
    payload_bytes: Mapping[str, int]
    messages_by_reason: Mapping[str, int]
    damaged: int


@frozen
class SplitIndex:
    """What narrower partitions do to one delayed index."""

    topic: str
    subscription: str
    messages: int
    partitions_before: int
    partitions_after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePart:
    """What a change does to one thing: a cursor, the policies of a namespace, the nacks of a subscription …

    ``before`` and ``after`` have the keys of the command line's JSON, positions as text and times in ms; ``before`` is None for
    what is made, ``after`` for what is removed. What a kind of change does not say is None or empty.
    """

    topic: str | None = None
    subscription: str | None = None
    namespace: str | None = None
    resource: str | None = None
    """What else has a name: ``tenant acme``, ``cluster west`` …"""
    before: Json | None = None
    after: Json | None = None
    extent: Extent | None = None
    """How much it concerns; of a cursor, what is replayed and skipped together."""
    replayed: Extent | None = None
    skipped: Extent | None = None
    deletable: Deletable | None = None
    unreferenced_ledgers: tuple[int, ...] | None = None
    """Of a removed subscription: ledgers that nothing refers to any more."""
    basis: MoveBasis | None = None
    expiry: ExpiryDetails | None = None
    event: WrittenEvent | None = None
    compaction: CompactionDetails | None = None
    split: tuple[SplitIndex, ...] | None = None
    entries: int | None = None
    """Of negative acks: entries added or popped."""
    precision_bits: int | None = None
    already_tracked: int | None = None
    form: str | None = None
    """Of annotated ledgers: where the times are written."""
    annotated: tuple[int, ...] | None = None
    warnings: tuple[str, ...] = ()
    more: Json = field(default_factory=dict)
    """Keys of an audit record that this version does not know."""

    @property
    def broker(self) -> BrokerMove | None:
        """Where a broker would move the cursor to; None: nobody asked, or it answers an error."""
        return None if self.basis is None else self.basis.broker

    @property
    def ledgers(self) -> tuple[LedgerPart, ...]:
        """What an expiry drops, by ledger."""
        return () if self.expiry is None else self.expiry.ledgers

    @property
    def future_dated(self) -> FutureDated | None:
        """What no age expires."""
        return None if self.expiry is None else self.expiry.future_dated

    def undone(self) -> ChangePart:
        """Return the part of the change that undoes this one: without what is true of moving forward alone."""
        return replace(
            self,
            before=self.after,
            after=self.before,
            replayed=None,
            skipped=None,
            deletable=None,
            basis=None if self.basis is None else replace(self.basis, asked_broker=False, broker=None),
            expiry=None,
            warnings=(),
        )

    def as_json(self) -> dict[str, Any]:  # Any: JSON values
        """Return it with the keys of the command line's JSON."""
        return dict(self._items())

    def _items(self) -> Iterator[tuple[str, Any]]:  # Any: JSON values
        yield from _present(("topic", self.topic), ("subscription", self.subscription), ("namespace", self.namespace))
        yield from _present(("resource", self.resource))
        yield from _present(("precisionBits", self.precision_bits), ("form", self.form))
        yield "before", hide_secrets_in(self.before)
        yield "after", hide_secrets_in(self.after)
        if self.event is not None:
            yield "events", self.event.topic
            yield "position", _text(self.event.position)
        if self.extent is not None:
            yield from extent_json(self.extent).items()
        yield from _present(("entries", self.entries), ("alreadyTracked", self.already_tracked))
        if self.annotated is not None:
            yield "annotated", list(self.annotated)
        if self.replayed is not None:
            yield "replayed", extent_json(self.replayed)
        if self.skipped is not None:
            yield "skipped", extent_json(self.skipped)
        if self.deletable is not None:
            yield "deletable", _deletable_json(self.deletable)
        if self.unreferenced_ledgers is not None:
            yield "unreferencedLedgers", list(self.unreferenced_ledgers)
        if self.basis is not None:
            yield from _basis_items(self.basis)
        if self.expiry is not None:
            yield from _expiry_items(self.expiry)
        if self.compaction is not None:
            yield from _camel_json(self.compaction).items()
        if self.split is not None:
            yield "split", [_camel_json(one) for one in self.split]
        yield from self.more.items()
        if self.warnings:
            yield "warnings", list(self.warnings)


@frozen
class ChangeReport:
    """What a plan would do (``dry_run``), or what a change did.

    ``number``: of the change in the audit log, None for a plan and where nothing was to change. ``untouched``: places in ``parts``
    of what stays as it is. ``plan_warnings`` concern all parts. ``command``: the name of what plans or makes it. ``store``: the directory
    that the undo command names; "": the one that is meant where none is named.
    """

    number: int | None
    dry_run: bool
    parts: tuple[ChangePart, ...]
    plan_warnings: tuple[str, ...] = ()
    untouched: frozenset[int] = frozenset()
    command: str = ""
    store: str = ""

    @property
    def replayed(self) -> Extent:
        """What is redelivered, over all parts."""
        return sum((part.replayed for part in self.parts if part.replayed is not None), Extent())

    @property
    def skipped(self) -> Extent:
        """What is not delivered any more, over all parts."""
        return sum((part.skipped for part in self.parts if part.skipped is not None), Extent())

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings of the plan and of all parts."""
        texts = (*self.plan_warnings, *(text for part in self.parts for text in part.warnings))
        return tuple(dict.fromkeys(texts))

    def documents(self) -> tuple[dict[str, Any], ...]:  # Any: JSON values
        """Return one JSON object a part."""
        return tuple(
            self._document(part, None if place in self.untouched else self.number)
            for place, part in enumerate(self.parts)
        )

    def _document(self, part: ChangePart, number: int | None) -> dict[str, Any]:  # Any: JSON values
        document: dict[str, Any] = {"change": number, **part.as_json(), "dryRun": self.dry_run}
        document["undo"] = None if number is None else undo_command(number, self.store)
        if self.plan_warnings:
            document["warnings"] = list(self.plan_warnings)
        return document


def undo_command(number: int, store: str = "") -> str:
    """Return what to type to undo the change NUMBER of the store in a directory; "": the one that is meant where none is named."""
    return f"pulsar-admin {f'--store {shell_word(store)} ' if store else ''}store undo {number}"


# -- JSON -------------------------------------------------------------------------------------------------------------


def extent_json(extent: Extent) -> dict[str, int]:
    """Return EXTENT in a report's terms."""
    return {"entries": extent.entries, "messages": extent.messages, "bytes": extent.bytes}


def _present(*items: tuple[str, object]) -> Iterator[tuple[str, object]]:
    return ((key, value) for key, value in items if value is not None)


def _text(position: Position | None) -> str | None:
    return None if position is None else str(position)


def _deletable_json(found: Deletable) -> dict[str, Any]:  # Any: JSON
    blocker = None
    if found.blocked_by is not None:
        blocker = {"subscription": found.blocked_by, "markDeletePosition": _text(found.blocked_at)}
    return {
        "ledgers": list(found.ledgers),
        "entries": found.entries,
        "bytes": found.bytes,
        "keptByRetention": list(found.kept_by_retention),
        "blockedBy": blocker,
    }


def _basis_items(basis: MoveBasis) -> Iterator[tuple[str, Any]]:  # Any: JSON
    yield "rule", basis.rule
    yield from _present(
        ("position", _text(basis.position)),
        ("time", basis.time_ms),
        ("limit", basis.limit_ms),
        ("ttl", basis.ttl_seconds),
        ("ttlSource", basis.ttl_source),
    )
    if basis.asked_broker:
        move = basis.broker
        yield (
            "broker",
            None
            if move is None
            else {"markDeletePosition": str(move.mark_delete), "agrees": move.agrees, "entries": move.entries},
        )


def _expiry_items(expiry: ExpiryDetails) -> Iterator[tuple[str, Any]]:  # Any: JSON
    yield "ledgers", [{"ledgerId": row.ledger_id, **extent_json(row.extent)} for row in expiry.ledgers]
    future = expiry.future_dated
    yield (
        "futureDated",
        None
        if future is None
        else {
            "entries": future.extent.entries,
            "messages": future.extent.messages,
            "first": str(future.first),
            "latestTime": future.latest_time_ms,
            "producers": list(future.producers),
        },
    )
    delays = expiry.delays
    if delays is None:
        return
    yield "notDue", _not_due_json(delays.not_due)
    if delays.checks_ttl:
        yield "ttlConflict", _not_due_json(delays.ttl_conflict)
    if delays.checks_quotas:
        yield "evictingQuotas", list(delays.evicting_quotas)


def _not_due_json(found: NotDue | None) -> dict[str, Any] | None:  # Any: JSON
    if found is None:
        return None
    first = [{"position": str(position), "dueTime": due_ms} for position, due_ms in found.first]
    return {"messages": found.messages, "first": first}


def _camel_json(found: CompactionDetails | SplitIndex) -> dict[str, Any]:  # Any: JSON
    return {key: getattr(found, name) for name, key in camel_keys(type(found))}


def camel_keys(cls: type) -> Iterator[tuple[str, str]]:
    """Yield (field, JSON key) of dataclass CLS."""
    for one in fields(cls):
        first, *rest = one.name.split("_")
        yield one.name, first + "".join(map(str.capitalize, rest))
