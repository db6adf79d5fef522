"""What a change of a node means in words: each kind of value, each field of it, and values that cannot be read."""

from typing import Any

import pytest

from pulsar_admin.store.codec.cursor import CursorInfo, encode_cursor_info
from pulsar_admin.store.codec.ledgermetadata import LedgerMetadata, LedgerState, Segment, encode_ledger_metadata
from pulsar_admin.store.codec.managedledger import LedgerInfo, ManagedLedger, encode_managed_ledger
from pulsar_admin.store.codec.schema import IndexEntry, SchemaLocator, encode_schema_locator
from pulsar_admin.store.errors import InvalidValue
from pulsar_admin.store.history import as_of, differences, events, servers, words
from pulsar_admin.store.history.as_of import Moment
from pulsar_admin.store.history.events import iter_claims
from pulsar_admin.store.history.words import describe, subject_of
from pulsar_admin.store.names import Position
from tests.at_bounds import LONG, PLAIN, Answers, N, Texts, asking

TOPIC, CURSOR = "/managed-ledgers/a/b/persistent/t", "/managed-ledgers/a/b/persistent/t/s%2F1"
LEDGER, SCHEMA, POLICIES = "/ledgers/00/0000/L0007", "/schemas/a/b/t", "/admin/policies/a/b"
CLOSED = 1_700_000_000_000


def topic(*ledgers: tuple[int, int, int], **more: Any) -> bytes:
    """A list of ledgers: id, entries, and when it was closed; an entry has ten bytes."""
    infos = tuple(LedgerInfo(one, entries, 10 * entries, at) for one, entries, at in ledgers)
    return encode_managed_ledger(ManagedLedger(infos, **more))


def cursor(ledger_id: int = -1, at: tuple[int, int] = (5, 0), *ranges: tuple[int, int], **more: Any) -> bytes:
    held = tuple((Position(5, low), Position(5, high)) for low, high in ranges)
    return encode_cursor_info(CursorInfo(ledger_id, Position(*at), held, **more))


def ledger(state: LedgerState, *segments: tuple[int, str], last: int = -1, length: int = 0, **custom: bytes) -> bytes:
    parts = tuple(Segment(first, (bookie,)) for first, bookie in segments)
    named = {("pulsar/" if key != "component" else "") + key.replace("_", "-"): text for key, text in custom.items()}
    return encode_ledger_metadata(LedgerMetadata(3, 1, 1, 1, length, last, state, parts, None, None, 1, named, None))


def named(**custom: bytes) -> bytes:
    return ledger(LedgerState.OPEN, (0, "b1:3181"), **custom)


def schema(*versions: int) -> bytes:
    index = tuple(IndexEntry(version, Position(70 + version, 0), b"") for version in versions)
    return encode_schema_locator(SchemaLocator(index[-1], index))


OPEN = ledger(LedgerState.OPEN, (0, "b1:3181"))
SHUT = ledger(LedgerState.CLOSED, (0, "b1:3181"), last=9, length=1)
MOVED = ledger(LedgerState.IN_RECOVERY, (0, "b1:3181"), (4, "b2:3181"))
OWNED: dict[str, Any] = {"managed_ledger": b"a/b/persistent/t"}

CHANGES: list[tuple[str, bytes | None, bytes | None, str]] = [
    (TOPIC, None, topic(), "topic created"),
    (TOPIC, None, topic((5, 0, 0)), "topic created with ledger 5"),
    (TOPIC, None, topic((5, 1, CLOSED), (6, 0, 0)), "topic created with ledgers 5, 6 (1 entry)"),
    (TOPIC, topic((5, 0, 0)), topic((5, 9, CLOSED), (6, 0, 0)), "ledger 5 closed with 9 entries (90 bytes); rolled over to ledger 6"),
    (TOPIC, topic((5, 0, 0)), topic((6, 0, 0)), "rolled over: open ledger 5 replaced by ledger 6"),
    (TOPIC, topic((5, 0, CLOSED)), topic((6, 0, 0)), "rolled over: empty ledger 5 replaced by ledger 6"),
    (TOPIC, topic((5, 0, CLOSED), (6, 0, 0)), topic((7, 0, 0)), "rolled over: open ledgers 5, 6 replaced by ledger 7"),
    (TOPIC, topic((5, 1, CLOSED), (9, 0, 0)), topic((5, 1, CLOSED), (7, 0, 0), (9, 0, 0)), "listed: ledger 7"),
    (TOPIC, topic((5, 9, CLOSED), (6, 0, 0)), topic((6, 0, 0)), "trimmed ledger 5 (9 entries)"),
    (TOPIC, topic((5, 0, CLOSED), (6, 0, 0)), topic((6, 0, 0)), "no longer listed: ledger 5 (empty)"),
    (TOPIC, topic((5, 9, CLOSED), (6, 0, 0)), topic((5, 9, CLOSED)), "no longer listed: ledger 6 (open)"),
    (TOPIC, topic((6, 0, 0)), topic((5, 9, CLOSED), (6, 0, 0)), "listed: ledger 5"),
    (TOPIC, topic((5, 1, CLOSED)), topic((5, 2, CLOSED)), "ledger 5: 1 entry (10 bytes) → 2 entries (20 bytes)"),
    (TOPIC, topic(*((n, 0, 1) for n in range(6))), None, "topic deleted, which had ledgers 0, 1, 2, 3, 4, 5"),
    (TOPIC, topic(*((n, 1, 1) for n in range(7))), None, "topic deleted, which had 7 ledgers, 0 to 6 (7 entries)"),
    (TOPIC, topic(), topic(terminated=Position(5, 3)), "terminated at 5:3"),
    (TOPIC, topic(terminated=Position(5, 3)), topic(properties={"k": "v"}), "no longer terminated; property k: none → v"),
    (TOPIC, topic((5, 0, 0)), topic((5, 0, 0)), "written again with the same value"),
    (TOPIC, b"\xff", topic((5, 0, 0)), "a value that could not be read was replaced: topic created with ledger 5"),
    (TOPIC, b"\xff", None, "deleted"),
    (TOPIC, None, None, "deleted"),
    (CURSOR, None, cursor(), "subscription created; mark-delete 5:0"),
    (CURSOR, None, cursor(9), "subscription created; its position is in ledger 9"),
    (CURSOR, cursor(), cursor(0), "its position is in ledger 0 from here on"),
    (CURSOR, cursor(0), cursor(9), "its position is in ledger 9 from here on, before in ledger 0"),
    (CURSOR, cursor(9), cursor(-1, (5, 1), (2, 3)), "closed; mark-delete 5:1, 1 range acknowledged after it"),
    (CURSOR, cursor(), cursor(-1, (5, 1)), "mark-delete 5:0 → 5:1"),
    (CURSOR, cursor(), cursor(-1, (5, 0), (2, 3), (5, 6)), "mark-delete 5:0, 2 ranges acknowledged after it"),
    (CURSOR, cursor(), cursor(batch_deletes={Position(5, 1): (1,)}), "mark-delete 5:0"),
    (CURSOR, cursor(last_active_ms=1), cursor(last_active_ms=CLOSED), "last active 2023-11-14T22:13:20.000Z"),
    (CURSOR, cursor(last_active_ms=1), cursor(), "the same, in other bytes"),
    (CURSOR, cursor(), cursor(properties={"p": 1}, cursor_properties={"k": "v"}), "position property p: none → 1; property k: none → v"),
    (CURSOR, cursor(9), None, "subscription deleted; its position is in ledger 9"),
    (LEDGER, None, OPEN, "ledger created for no owner that it names: open, on b1:3181"),
    (LEDGER, None, named(**OWNED), "ledger created for persistent://a/b/t: open, on b1:3181"),
    (LEDGER, None, named(**OWNED, cursor=b"s%2F1"), "ledger created for cursor s/1 of persistent://a/b/t: open, on b1:3181"),
    (LEDGER, None, named(component=b"schema", schemaId=b"a/b/t"), "ledger created for schema of a/b/t: open, on b1:3181"),
    (LEDGER, None, named(component=b"view", compactedTopic=b"x://a"), "ledger created for view of x://a: open, on b1:3181"),
    (LEDGER, None, MOVED, "ledger created for no owner that it names: in recovery, on b2:3181"),
    (LEDGER, OPEN, SHUT, "closed with last entry 9, 1 byte"),
    (LEDGER, SHUT, ledger(LedgerState.CLOSED, (0, "b1:3181"), last=8, length=1000), "last entry 9 → 8, bytes 1 → 1,000"),
    (LEDGER, OPEN, MOVED, "from entry 4 on bookies b2:3181; recovery begun: no more entries are taken"),
    (LEDGER, SHUT, OPEN, "open again"),
    (LEDGER, SHUT, None, "ledger deleted: closed, last entry 9, 1 byte, on b1:3181"),
    (SCHEMA, None, schema(0, 1), "schema version 0 in ledger 70; schema version 1 in ledger 71"),
    (SCHEMA, schema(0, 1, 2), schema(2, 3), "schema version 3 in ledger 73; schema versions 0, 1 taken out"),
    (POLICIES, b'{"a":{"b":1,"c":2}}', b'{"a":{"b":1,"c":3},"d":null,"e":[]}', "a.c: 2 → 3; e: none → []"),
    (POLICIES, b'{"a":"' + b"x" * 90 + b'"}', b'{"a":"' + b"y" * 91 + b'"}', f"a: {'x' * 90} → {'y' * 90}…"),
    (POLICIES, b'{"a":1}', '{"a":["ü"]}'.encode(), 'a: 1 → ["ü"]'),
    (POLICIES, b'{"a":1}', b"{", "a value that cannot be read: "),
    ("/counters/x", b"1", b"22", "1 → 22"),
    ("/counters/x", b"\xff", b"\xff\xfe", "1 byte → 2 bytes"),
    ("/counters/x", None, b"", "created"),
    ("/counters/x", b"22", None, "deleted; it was 22"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "old", "new", "said"), CHANGES, ids=[said[:60] for *_, said in CHANGES])
def test_a_change_is_said(path: str, old: bytes | None, new: bytes | None, said: str) -> None:
    found = describe(path, old, new)
    assert found == said or (said.endswith("read: ") and found.startswith(said))


def test_what_cannot_be_read_belongs_to_nobody() -> None:
    assert [*iter_claims(LEDGER, b"\xff")] == []
    assert [*iter_claims(LEDGER, named(component=b"view", compactedTopic=b"x://a"))] == [""]


@pytest.mark.parametrize(
    ("path", "subject"),
    [
        (TOPIC, "topic persistent://a/b/t"),
        (CURSOR, "subscription s/1 of persistent://a/b/t"),
        (LEDGER, "ledger 7"),
        ("/admin/policies/a", "tenant a"),
        ("/admin/policies/a/b", "namespace a/b"),
        ("/admin/policies/a/b/c/d", ""),
        ("/admin/policies/a/", ""),
        ("/admin/local-policies/a/b", "bundles of a/b"),
        ("/admin/partitioned-topics/a/b/persistent/t", "partitioned topic a/b/persistent/t"),
        ("/ledgers/available/b:1", "bookie b:1"),
        ("/ledgers/available/readonly/b:1", "read-only bookie b:1"),
        ("/ledgers/cookies/b:1", "cookie of bookie b:1"),
        ("/loadbalance/brokers/h:1", "broker h:1"),
        ("/elsewhere", ""),
    ],
)
def test_whose_a_node_is(path: str, subject: str) -> None:
    assert subject_of(path) == subject


NODES = [N(path=f"/ledgers/00/0000/L000{number}", change="created") for number in range(7)]
ANSWERS: Answers = {
    words._ids: [((range(6),), "ledgers 0, 1, 2, 3, 4, 5"), ((range(7),), "7 ledgers, 0 to 6")],
    words._shown: [(({1},), "{1}"), (("x" * 90,), "x" * 90), (("x" * 91,), "x" * 90 + "…")],
    as_of.parse_moment: [
        ({"text": "0x7fffffffffffffff", "now_ms": 0}, Moment(zxid=LONG)),
        ({"text": "0x8000000000000000", "now_ms": 0}, InvalidValue)],
    differences._part_words: [
        ((NODES[:6],), ["6 ledgers created in BookKeeper: 0, 1, 2, 3, 4, 5"]),
        ((NODES,), ["7 ledgers created in BookKeeper: 0 to 6"])],
    events.Span.has_begun: [((N(since=Moment(zxid=5)), 5, 0), True), ((N(since=Moment(time_ms=5)), 9, 4), False)],
    events.Span.is_over: [((N(until=Moment(zxid=5)), 5, 0), False), ((N(until=Moment(zxid=5)), 6, 0), True)],
    words.entries_between: [
        (([N(ledger_id=1, entries=5), N(ledger_id=2, entries=3)], Position(1, 0), Position(2, 1)), 6),
        (([N(ledger_id=1, entries=5)], Position(1, 2), Position(1, 2)), 0),
        (([N(ledger_id=1, entries=5)], Position(2, 1), Position(1, 0)), -6)],
    differences._belongs_to: [
        ((N(path=path, before=b"", after=b""),), (2, "topic", "persistent://t/n/x"))
        for path in ("/admin/partitioned-topics/t/n/persistent/x", "/schemas/t/n/x")],
    servers.iter_gone_texts: [(([{"kind": kind, "path": "/none"}],),
        ["/none no longer has metadata, or cannot be read: the history was in its files"])
        for kind in ("standalone", "zookeeper")],
    words._deleted: [((PLAIN, b"\xff"), ["deleted"])],
    words.describe: [((PLAIN, None, b"\xff"),
        f"a value that cannot be read: {PLAIN}: no ManagedLedgerInfo: the protobuf cannot be parsed"),
        ((PLAIN, b"\xff", encode_managed_ledger(ManagedLedger())),
        "a value that could not be read was replaced: topic created")],
}  # fmt: skip
SAID: Texts = {
    words._entry_words: [
        ((LedgerInfo(1, 2, 3, 4, **was), LedgerInfo(1, 2, 3, 4, **then)), said)
        for was, then, said in (({}, {"offloaded": True}, "ledger 1 offloaded"),
            ({}, {"offload_uuid": "x"}, "ledger 1: offload started'"),
            ({}, {"bookkeeper_deleted": True}, "deleted from bookies, tiered storage has it"))],
    events.Event.what: [((N(version=N(kind="set", path="/admin/x", value=b"1"), before=None),),
        "the previous one is unknown")],
}  # fmt: skip
test_at_bounds = asking(ANSWERS, said=SAID)
