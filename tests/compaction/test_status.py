"""What ``compaction status`` says of cursors and ledgers that do not fit."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pulsar_admin.store.codec.cursor import CursorInfo, CursorState
from pulsar_admin.store.codec.digest import DigestType
from pulsar_admin.store.codec.ledgermetadata import (
    LedgerState,
    decode_ledger_metadata,
    encode_ledger_metadata,
    ledger_path,
)
from pulsar_admin.store.compaction import compactor, heads, last_id, occurrences, status, verify
from pulsar_admin.store.compaction.entries import find_published
from pulsar_admin.store.compaction.reading import bisect_view, find_in_view
from pulsar_admin.store.compaction.status import CompactionStatus, read_status
from pulsar_admin.store.db.environment import Store, Txn, open_store
from pulsar_admin.store.db.tree import find_node, put_nodes
from pulsar_admin.store.errors import EntryCorrupt, EntryNotFound
from pulsar_admin.store.facts import Unknown
from pulsar_admin.store.facts.vanished import DetachedView, _view_unseen_on, keys_of_view_alone
from pulsar_admin.store.model.compacted_view import find_compacted_view
from pulsar_admin.store.model.cursors import CursorSource
from pulsar_admin.store.model.ledgers import find_metadata
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.model.topics import read_topic
from pulsar_admin.store.names import EARLIEST, Position, parse_topic
from tests.at_bounds import MADE_TOPIC, Answers, N, Texts, Unreadable, asking
from tests.compaction.entries import PUBLISH_MS, Batch, Slot, compacted, entry
from tests.conftest import Cli
from tests.stores import change_value, lose_nodes, put_node, read_store, write_rows
from tests.synthetic import Made, MadeCompacted, MadeTopic, ledger_node, make_store

TOPIC = "public/default/t"
RAW = entry(Batch([Slot("k", b"v")], alone=True))


def _store(path: Path, **fields: object) -> Path:
    """Return a store whose topic of ten entries is compacted to 10:4 into ledger 77."""
    horizon = fields.pop("horizon", Position(10, 4))
    made = MadeCompacted(77, fields.pop("payloads", [compacted(10, 4, RAW)]), horizon, **fields)  # type: ignore[arg-type]
    entries = [Made(PUBLISH_MS, raw=RAW)] * 10
    return make_store(path / "pulsar-store", {TOPIC: MadeTopic([entries], compacted=made)})


def _status(path: Path) -> CompactionStatus:
    return read_store(path, lambda reader: read_status(reader, read_topic(reader.txn, parse_topic(TOPIC))))


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"compacted_to": Position(10, 6)}, "went backward: it is at 10:4, but its ledger is compacted to 10:6"),
        (
            {"horizon": Position(10, 6), "compacted_to": Position(10, 2)},
            "is ahead: it is at 10:6, but its ledger is compacted to 10:4",
        ),
        ({"horizon": Position(10, 12)}, "is at 10:12, after the end of the topic"),
        ({"claims": "persistent://public/default/u"}, "names ledger 77, the compacted ledger of persistent://public"),
        ({"lost": (0,)}, "the compacted ledger 77 lacks 1 of its 1 entry: lost or damaged"),
        ({"listed": False}, "the compacted ledger 77 is gone"),
    ],
)
def test_problems(tmp_path: Path, fields: dict[str, object], text: str) -> None:
    assert any(text in problem for problem in _status(_store(tmp_path, **fields)).problems)


def test_a_horizon_in_the_ledgers_metadata_that_cannot_be_read(tmp_path: Path, damages_stores: None) -> None:
    path = _store(tmp_path)

    def unreadable(value: bytes) -> bytes:
        metadata = decode_ledger_metadata(value, "test")
        return encode_ledger_metadata(replace(metadata, custom={**metadata.custom, "pulsar/compactedTo": b"\xff"}))

    change_value(path, ledger_path(77), unreadable)
    (problem,) = _status(path).problems
    assert "ledger 77, pulsar/compactedTo" in problem


def test_a_cursor_and_a_topic_that_cannot_be_read_leave_their_view_unknown(
    tmp_path: Path, damages_stores: None
) -> None:
    path, name = _store(tmp_path), parse_topic(TOPIC)
    put_node(path, name.cursor_path("__compaction"), b"\xff\xff")
    assert read_store(path, lambda reader: _view_unseen_on(reader, name)) is None
    put_node(path, name.path, b"\xff\xff")
    alone = read_store(path, lambda reader: keys_of_view_alone(reader, DetachedView(name, 77, 1, 1, "", ())))
    assert isinstance(alone, Unknown)


@pytest.mark.parametrize("find", [find_in_view, bisect_view, find_published])
@pytest.mark.parametrize("lost", [0, 2])
def test_a_search_in_a_ledger_that_lost_an_entry_is_stopped(find: Any, lost: int, tmp_path: Path) -> None:
    path = _store(tmp_path, payloads=[compacted(10, entry_id, RAW) for entry_id in range(3)], lost=(lost,))
    with open_store(path) as store, open_reader(store) as reader:
        view = find_compacted_view(reader, read_topic(reader.txn, parse_topic(TOPIC)))
        with pytest.raises(EntryCorrupt, match=f"entry 77:{lost} is lost"):
            find(reader, view, PUBLISH_MS + (1 if lost else 0))


ENTRIES = [compacted(10, entry_id, RAW) for entry_id in range(5)]


@pytest.mark.parametrize(
    ("lost", "behind_end", "missing"),
    [((), 1, 0), ((2,), 1, 1), ((0, 3), 1, 2), ((4,), 1, 0), ((1,), 3, 1), ((0, 1), 3, 2), ((), 5, 0)],
)
def test_entries_behind_the_recorded_end(
    lost: tuple[int, ...], behind_end: int, missing: int, tmp_path: Path, cli: Cli
) -> None:
    """They are none of the ledger's, so they neither count against it nor hide those that are destroyed."""
    made = MadeCompacted(77, ENTRIES, Position(10, 4), lost=lost, behind_end=behind_end)
    path = make_store(tmp_path / "s", {TOPIC: MadeTopic([[Made(PUBLISH_MS, raw=RAW)] * 10], compacted=made)})
    found = _status(path)
    assert (found.ledger.entries, found.ledger.missing_entries) == (5 - behind_end, missing)
    assert any("lacks" in problem for problem in found.problems) == bool(missing)
    there = sum(entry_id not in lost for entry_id in range(5 - behind_end, 5))
    assert found.ledger.unread_entries == there
    assert any(f"was closed at entry {4 - behind_end}: {there} entr" in text for text in found.problems) == bool(there)
    (row,) = (row for row in cli.json(path, "ledgers list") if row["ledgerId"] == 77)
    assert row["missingEntries"] == missing


def test_cursor_whose_ledger_is_gone(tmp_path: Path) -> None:
    info = CursorInfo(cursors_ledger_id=500, mark_delete=Position(10, 1), properties={})
    topic = MadeTopic([[Made(PUBLISH_MS, raw=RAW)] * 3], cursors={"__compaction": info})
    found = _status(make_store(tmp_path / "s", {TOPIC: topic}))
    assert (found.compacted, found.cursor_source) == (False, "metadata-fallback")
    assert "may be stale" in found.problems[0]


def test_leaked_ledgers(tmp_path: Path) -> None:
    path = _store(tmp_path)

    def leak(store: Store) -> None:
        for ledger_id, owner in ((90, TOPIC), (91, "public/default/other")):
            claims = {"component": b"compacted-ledger", "pulsar/compactedTopic": f"persistent://{owner}".encode()}
            node = ledger_node(ledger_id, 3, 99, DigestType.CRC32, claims)
            store.write(lambda txn, node=node: put_nodes(txn, [node]))

    with open_store(path, writable=True) as store:
        leak(store)
        damaged = ledger_node(1, 3, 99, DigestType.CRC32, {})._replace(value=b"x")  # the first, which tells nothing
        store.write(lambda txn: put_nodes(txn, [damaged]))
    found = _status(path)
    assert [(row.ledger_id, row.entries, row.size_bytes) for row in found.leaked] == [(90, 3, 99)]
    assert found.problems == ("ledger 90: a compacted ledger of this topic that nothing references",)


# -- compaction attach ----------------------------------------------------------------------------------------------

CURSOR = "/managed-ledgers/public/default/persistent/t/__compaction"
DELETED = entry(Batch([Slot("k", b"")], alone=True))


def detached(tmp_path: Path, entries: int = 5, *, raw: bytes = RAW, **fields: object) -> Path:
    """Return a store whose topic of ten entries lost the cursor that named ledger 77, of the first of them."""
    payloads = [compacted(10, entry_id, RAW) for entry_id in range(entries)]
    made = MadeCompacted(77, payloads, Position(10, 4), **fields)  # type: ignore[arg-type]
    topic = MadeTopic([[Made(PUBLISH_MS, raw=RAW)] * entries + [Made(PUBLISH_MS, raw=raw)] * 5], compacted=made)
    path = make_store(tmp_path / "pulsar-store", {TOPIC: topic})
    lose_nodes(path, CURSOR)
    return path


def left_open(path: Path) -> None:
    def change(txn: Txn) -> None:
        node, metadata = find_node(txn, ledger_path(77)), find_metadata(txn, 77)
        assert metadata is not None
        opened = replace(metadata, state=LedgerState.OPEN, last_entry_id=-1, length=0)
        put_nodes(txn, [node._replace(value=encode_ledger_metadata(opened))])

    write_rows(path, change)


@pytest.mark.parametrize(
    ("fields", "horizon"),
    [
        ({}, "10:4"),
        ({"compacted_to": Position(10, 6), "raw": DELETED}, "10:6"),  # what lies between was deleted
        ({"compacted_to": Position(10, 2)}, "10:4"),  # 2.11.0 takes a batch with one null value for deleted
    ],
)
def test_the_cursor_stands_where_the_ledger_ends(
    fields: dict[str, object], horizon: str, cli: Cli, tmp_path: Path
) -> None:
    """As a broker takes it for the horizon: neither in front of what was compacted out, nor behind what the ledger has not."""
    store = detached(tmp_path, **fields)  # type: ignore[arg-type]
    done = cli.json(store, f"compaction attach {TOPIC} 77")
    assert done["after"] == {"markDeletePosition": horizon, "compactedLedger": 77}
    assert cli.json(store, f"compaction status {TOPIC}")["problems"] == []
    again = cli.on(store, f"compaction attach {TOPIC} 77")
    assert (again.exit_code, again.stdout.splitlines()[0].partition(":")[0]) == (0, "no change")


@pytest.mark.usefixtures("damages_stores")
def test_one_of_a_topic_that_cannot_be_read_is_told_of_as_unfit(cli: Cli, tmp_path: Path) -> None:
    store, name = detached(tmp_path), parse_topic(TOPIC)
    put_node(store, name.path, b"\xff\xff")
    found = {row["code"]: row for row in cli.rows(store, "doctor")}
    assert "compacted-view-detached" not in found
    assert f"{name.path}: no ManagedLedgerInfo" in found["compacted-view-unfit"]["message"]


@pytest.mark.usefixtures("damages_stores")
@pytest.mark.parametrize(
    ("fields", "open_", "text"),
    [
        ({}, True, "it was never closed"),
        ({"compacted_to": Position(10, 7)}, False, "was to reach 10:7: 10:5 is missing from it"),
        ({"lost": (2,)}, False, "clients do not get all its entries"),
        ({"claims": "persistent://public/default/u"}, False, "the compacted ledger of persistent://public/default/u"),
    ],
)
def test_one_that_readers_would_not_get_all_of_is_refused(
    fields: dict[str, object], open_: bool, text: str, cli: Cli, tmp_path: Path
) -> None:
    """And no finding prints a command that is refused."""
    store = detached(tmp_path, **fields)  # type: ignore[arg-type]
    if open_:
        left_open(store)
    refused = cli.on(store, f"-o json compaction attach {TOPIC} 77 -y").ends(3)
    assert text in refused.error["message"]
    found = {row["code"]: row for row in cli.rows(store, "doctor")}
    assert "compacted-view-detached" not in found
    if "claims" not in fields:
        assert text in found["compacted-view-unfit"]["message"]
        assert cli("--store", store, *found["compacted-view-unfit"]["mend"].split()[1:]).exit_code in (0, 1)


@pytest.mark.usefixtures("damages_stores")
def test_one_beside_the_view_that_the_topic_has_is_refused(cli: Cli, tmp_path: Path) -> None:
    store = detached(tmp_path)
    assert cli.on(store, f"compaction run {TOPIC}").exit_code == 0
    refused = cli.on(store, f"-o json compaction attach {TOPIC} 77 -y").ends(3)
    assert "has a compacted view in ledger" in refused.error["message"]


def test_what_changed_in_ledgers_that_are_gone_is_told(cli: Cli, tmp_path: Path) -> None:
    payloads = [compacted(10, entry_id, RAW) for entry_id in range(3)]
    made = MadeCompacted(77, payloads, Position(10, 2))
    ledgers = [[Made(PUBLISH_MS, raw=RAW)] * 3, [Made(PUBLISH_MS, raw=DELETED)] * 4, [Made(PUBLISH_MS, raw=RAW)] * 2]
    store = make_store(tmp_path / "s", {TOPIC: MadeTopic(ledgers, compacted=made)})
    assert cli.on(store, f"topics truncate {TOPIC} -y").exit_code == 0
    shown = cli.json(store, f"compaction attach {TOPIC} 77 --dry-run")
    assert shown["after"]["markDeletePosition"] == "10:2"
    assert [text for text in shown["warnings"] if "between 10:2 and 12:0 is gone" in text]


@pytest.mark.parametrize(("entries", "loses"), [(3, False), (4, True)])
def test_between_the_ends_of_two_ledgers_nothing_is_lost(entries: int, loses: bool, cli: Cli, tmp_path: Path) -> None:
    """The view ends at 10:2, and the topic begins with ledger 11."""
    made = MadeCompacted(77, [compacted(10, entry_id, RAW) for entry_id in range(3)], Position(10, 2))
    ledgers = [[Made(PUBLISH_MS, raw=RAW)] * entries, [Made(PUBLISH_MS, raw=RAW)] * 2]
    store = make_store(tmp_path / "s", {TOPIC: MadeTopic(ledgers, compacted=made)})
    assert cli.on(store, f"topics truncate {TOPIC} -y").exit_code == 0
    shown = cli.json(store, f"compaction attach {TOPIC} 77 --dry-run")
    assert any("between 10:2 and 11:0 is gone" in text for text in shown.get("warnings", ())) is loses


ANSWERS: Answers = {
    compactor.passes_open_transaction: [
        ((N(transactional=False, transactions=lambda: N(first_open=1)), count), count > 0) for count in (0, 1)],
    heads._Head.take: [
        ((N(total_bytes=5, _data=memoryview(b"abcde"), where="x"), 2, 3), b"cde"),
        ((N(total_bytes=5, _data=memoryview(b"abcde"), where="x"), 2, 4), EntryCorrupt)],
    heads.why_unread: [
        ((N(position=Position(1, 5)), N(first_open=Position(1, 5))), "at or after 1:5, where a transaction is open")],
    status._cursor_problems: [
        ((N(last_confirmed=Position(1, 5)), N(source=CursorSource.METADATA, info=N(mark_delete=Position(*place)),
                                              state=N(ranges=()), skipped_entries=0)), answer)
        for place, answer in (((1, 5), []), ((2, -1), []),
                              ((2, 0), ["__compaction is at 2:0, after the end of the topic (1:5)"]))],
    last_id.check_indexes: [(([0, 2], 3, "x"), [0, 2]), *(((wrong, 3, "x"), EntryCorrupt) for wrong in ([3], [-1]))],
    last_id._of_compacted_ledger: [
        ((Unreadable(EntryNotFound("it is gone")), N(last_entry_id=0, ledger_id=7), (), False), EntryCorrupt)],
    verify._why_strange: [((N(position=Position(1, 2), batch=N(stored=lambda index: b"\xff"), index=0),),
        "compacted entry of 1:2: the entry has 1 bytes, its framing asks for 4")],
}  # fmt: skip
SAID: Texts = {
    occurrences._judged: [(([N(slot=None, position=Position(1, 2, 0), publish_ms=0, size=0, null=False, in_view=False)],
        None), "of a transaction that was")],
    status._cursor_problems: [((MADE_TOPIC, N(source=CursorSource.LEDGER, skipped_entries=2, state=CursorState(EARLIEST,
        ranges=((1, 2),)),
        info=CursorInfo(7, Position(1, 2)))), said) for said in ("2 newer states of __compaction", "has individually deleted entries")],
}  # fmt: skip
test_at_bounds = asking(ANSWERS, said=SAID)
