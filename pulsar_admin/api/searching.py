"""What messages can be searched for."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypedDict

from pulsar_admin.api.given import (
    Clock,
    given_flags,
    given_keywords,
    given_mapping,
    given_properties,
    given_text,
    given_texts,
    whole_number,
)
from pulsar_admin.api.messages import Choose, MessageQuery, Messages, chosen_columns, messages_of
from pulsar_admin.api.session import Place, Session, Time
from pulsar_admin.store.model.jsonpath import parse_path_test
from pulsar_admin.store.scan.matching import Match


class Wanted(TypedDict, total=False):
    """Keywords of ``search``; everything given must hold.

    KEYS: one of them; PROPERTIES: name → value, None for any. TEXTS (one of them) and REGEX (RE2) are looked for in the payload, with
    IN_VALUE in the decoded value, too, with IGNORE_CASE in any case. JSON_PATHS: each holds in the decoded value, as
    ``$.order.id=42``. Times, positions, LIMIT, COLUMNS and UNCOMMITTED are those of ``Topic.messages``.
    """

    keys: Collection[str]
    key_prefix: str | None
    properties: Mapping[str, str | None]
    producer: str | None
    sequence_id: int | None
    texts: Collection[str]
    regex: str | None
    ignore_case: bool
    in_value: bool
    json_paths: Collection[str]
    since: Time | None
    until: Time | None
    start: Place
    end: Place
    clock: Clock
    limit: int | None
    columns: Sequence[str] | None
    uncommitted: bool


def search_of(session: Session, names: Choose, wanted: Wanted) -> Messages:
    """Return the messages of the topics NAMES that are WANTED; raises InvalidValue, also for an unknown keyword."""
    given_keywords(wanted, Wanted)
    bounds = wanted.get("since"), wanted.get("until"), wanted.get("start"), wanted.get("end")
    window = session.window(*bounds, clock=wanted.get("clock", "auto"))
    query = MessageQuery(
        window,
        chosen_columns(wanted.get("columns")),
        limit=wanted.get("limit"),
        uncommitted=wanted.get("uncommitted", False),
        match=_match(wanted),
    )
    return messages_of(session, names, query)


def _match(wanted: Wanted) -> Match:
    given_flags(**{name: wanted.get(name, False) for name in ("ignore_case", "in_value", "uncommitted")})
    for name in ("key_prefix", "producer", "regex"):
        if (text := wanted.get(name)) is not None:
            given_text(name, text)
    if (sequence_id := wanted.get("sequence_id")) is not None:
        whole_number("sequence_id", sequence_id)
    properties = given_mapping("properties", wanted.get("properties", {}))
    given_properties({name: one for name, one in properties.items() if one is not None})
    given_texts("properties", tuple(properties))
    return Match(
        keys=given_texts("keys", wanted.get("keys", ())),
        key_prefix=wanted.get("key_prefix"),
        properties=tuple(properties.items()),
        producer=wanted.get("producer"),
        sequence_id=wanted.get("sequence_id"),
        texts=given_texts("texts", wanted.get("texts", ())),
        regex=wanted.get("regex"),
        ignore_case=wanted.get("ignore_case", False),
        in_value=wanted.get("in_value", False),
        paths=tuple(map(parse_path_test, given_texts("json_paths", wanted.get("json_paths", ())))),
    ).check()
