"""Parts of changes read back from the JSON that the audit log keeps, of older versions too."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from store.changes.report import (
    BrokerMove,
    ChangePart,
    CompactionDetails,
    DelayLoss,
    Deletable,
    ExpiryDetails,
    FutureDated,
    Json,
    LedgerPart,
    MoveBasis,
    NotDue,
    SplitIndex,
    WrittenEvent,
    camel_keys,
)
from store.model.extent import Extent
from store.names import Position, parse_position

Details = TypeVar("Details")


def decode_part(document: Json) -> ChangePart:
    """Return the part that ``as_json`` spells as DOCUMENT; raises KeyError, TypeError, InvalidValue for what it never wrote."""
    is_extent = "messages" in document or "bytes" in document
    part = ChangePart(
        topic=document.get("topic"),
        subscription=document.get("subscription"),
        namespace=document.get("namespace"),
        resource=document.get("resource"),
        before=document.get("before"),
        after=document.get("after"),
        extent=_extent(document) if is_extent else None,
        replayed=_extent(document["replayed"]) if "replayed" in document else None,
        skipped=_extent(document["skipped"]) if "skipped" in document else None,
        deletable=_deletable(document.get("deletable")),
        unreferenced_ledgers=_optional_ids(document.get("unreferencedLedgers")),
        basis=_basis(document) if "rule" in document else None,
        expiry=_expiry(document) if "futureDated" in document else None,
        event=WrittenEvent(document["events"], _position(document.get("position"))) if "events" in document else None,
        compaction=_from_camel(CompactionDetails, document) if "messagesByReason" in document else None,
        split=tuple(_from_camel(SplitIndex, one) for one in document["split"]) if "split" in document else None,
        entries=None if is_extent else document.get("entries"),
        precision_bits=document.get("precisionBits"),
        already_tracked=document.get("alreadyTracked"),
        form=document.get("form"),
        annotated=_optional_ids(document.get("annotated")),
        warnings=tuple(document.get("warnings", ())),
    )
    known = part.as_json()
    return replace(part, more={key: value for key, value in document.items() if key not in known})


def _extent(found: Json) -> Extent:
    return Extent(found.get("entries", 0), found.get("messages", 0), found.get("bytes", 0))


def _optional_ids(found: list[int] | None) -> tuple[int, ...] | None:
    return None if found is None else tuple(found)


def _position(found: str | None) -> Position | None:
    return None if found is None else parse_position(found)


def _deletable(found: Json | None) -> Deletable | None:
    if found is None:
        return None
    blocker = found["blockedBy"] or {}
    return Deletable(
        tuple(found["ledgers"]),
        found["entries"],
        found["bytes"],
        tuple(found["keptByRetention"]),
        blocker.get("subscription"),
        _position(blocker.get("markDeletePosition")),
    )


def _basis(document: Json) -> MoveBasis:
    move = document.get("broker")
    return MoveBasis(
        document["rule"],
        _position(document.get("position")),
        document.get("time"),
        document.get("limit"),
        document.get("ttl"),
        document.get("ttlSource"),
        "broker" in document,
        None
        if move is None
        else BrokerMove(parse_position(move["markDeletePosition"]), move["agrees"], move["entries"]),
    )


def _expiry(document: Json) -> ExpiryDetails:
    future, delays = document.get("futureDated"), None
    if "notDue" in document:
        delays = DelayLoss(
            _not_due(document["notDue"]),
            _not_due(document.get("ttlConflict")),
            tuple(document.get("evictingQuotas", ())),
            "ttlConflict" in document,
            "evictingQuotas" in document,
        )
    return ExpiryDetails(
        tuple(LedgerPart(row["ledgerId"], _extent(row)) for row in document["ledgers"]),
        None
        if future is None
        else FutureDated(
            _extent(future), parse_position(future["first"]), future["latestTime"], tuple(future["producers"])
        ),
        delays,
    )


def _not_due(found: Json | None) -> NotDue | None:
    if found is None:
        return None
    return NotDue(found["messages"], tuple((parse_position(one["position"]), one["dueTime"]) for one in found["first"]))


def _from_camel(cls: type[Details], document: Json) -> Details:
    return cls(**{name: document[key] for name, key in camel_keys(cls)})
