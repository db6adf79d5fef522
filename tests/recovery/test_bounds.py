"""Recovery at its bounds: times that just meet, the last entry, one more than is told, and evidence that cannot be read."""

import numpy as np
from msgspec.structs import replace

from pulsar_admin.store.codec.cursor import CursorInfo, CursorState, Position, encode_cursor_info
from pulsar_admin.store.codec.ledgermetadata import DigestType
from pulsar_admin.store.errors import InvalidValue, NothingMatches, Refused
from pulsar_admin.store.names import EARLIEST
from pulsar_admin.store.recovery import (
    ack_history,
    chains,
    closing,
    deleted_nodes,
    from_bookies,
    from_ledgers,
    journal_times,
    ledgers,
    preflight,
    recover,
    restore,
    rolling,
)
from pulsar_admin.store.recovery.ack_history import ChosenState, TimeBound
from pulsar_admin.store.recovery.evidence import COMPACTED, CURSOR
from tests.at_bounds import A_TOPIC, UNREADABLE, Answers, N, Texts, Unreadable, asking

IN_LEDGER = encode_cursor_info(CursorInfo(7, Position(1, 2)))
IN_LEDGER_THEN = deleted_nodes.PastCursor(
    CursorInfo(7, Position(1, 2)), CursorState(Position(1, 2)), IN_LEDGER, "it is damaged"
)
COMPACTING = CursorState(EARLIEST, properties={rolling.COMPACTED_LEDGER: 9})
LEDGERS = N(names=set(), kinds=set(), indexed=[], timed=[], contradiction="")
SAME = N(pending=N(count=1))
ANSWERS: Answers = {
    from_ledgers.newer_index: [(("5", 5), {"index": "5"})],
    preflight.parse_percent: [(("0",), 0.0), (("100%",), 100.0), (("100.1",), InvalidValue), (("-0.1",), InvalidValue)],
    recover._named: [((range(10),), "0, 1, 2, 3, 4, 5, 6, 7, 8, 9"), ((range(11),), "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 …")],
    ack_history._StatesReader._raise: [
        ((N(_floor=TimeBound(5, "f")), TimeBound(7, "b"), TimeBound(end, "e")), answer)
        for end, answer in ((7, TimeBound(7, "b")), (5, TimeBound(5, "f")), (4, None))],
    ack_history._Possible.was_there_by: [
        ((N(first=N(not_after=N(time_ms=5))), time_ms), time_ms >= 5) for time_ms in (4, 5)],
    ack_history.Pending.has: [((N(entries=((2, 4),)), rank), rank in (2, 3)) for rank in (2, 4)],
    chains._meeting: [(([1, 3], [3, 5]), [(1, 3), (3, 3), (3, 5)]), (([3, 5], [1, 3]), [(1, 3), (3, 3), (3, 5)]),
        (([1, 3], [4, 5]), [(3, 4)]), (([4, 5], [1, 3]), [(3, 4)])],
    chains._shared: [
        (({"p": [(N(low=1, high=2, first_publish_ms=1, last_publish_ms=2), 0),
                 (N(low=low, high=4, first_publish_ms=2, last_publish_ms=3), 0)]},), answer)
        for low, answer in ((3, []), (2, ["p"]))],
    chains._has_fields: [((b'{"a":1}', {"a"}), True), ((b'{"a":1}', {"b"}), False)],
    deleted_nodes._went_with: [
        ((N(gone_ms=gone_ms), N(gone_ms=60_000)), 0 <= gone_ms <= 60_000) for gone_ms in (-1, 0, 60_000)],
    journal_times._together: [
        (([journal_times.WriteTime(5, 10, "f"), journal_times.WriteTime(10, 20, "g")],), (5, 20, "f")),
        (([journal_times.WriteTime(5, 10, "f"), journal_times.WriteTime(11, 20, "g")],), (5, 10, "f"))],
    journal_times._between: [(([5], [7], 7, "f"), (5, 107, "f"))],
    preflight.check_loss: [
        ((N(brokers=N(percent=5.0), bookies=[N(percent=5.0, bookie="b")]), 5.0), None),
        ((N(brokers=None, bookies=[N(percent=5.1, bookie="b")]), 5.0), Refused),
        ((N(brokers=N(percent=5.1), bookies=[]), 5.0), Refused)],
    restore._is_held: [
        ((N(ledger=lambda one: N(entries=5), rank=lambda one: one.entry_id, place=int), 7, [N(mark_delete=rank)]), rank < 5)
        for rank in (4, 5)],
    rolling._is_distinct: [
        ((N(place=int, number_of_entries=5), N(ranges=(), mark_delete=place)), 0 < place < 5) for place in (0, 1, 5)],
    restore._not_deleted: [
        ((b'{"partitions":3,"deleted":true}', "x"), b'{"partitions":3,"deleted":false}'),
        ((b'{"partitions":3}', "x"), b'{"partitions":3}')],
    rolling.newest_compaction: [((N(ids=[1]), [N(last=CursorState(EARLIEST), ledger_id=5),
        N(last=COMPACTING, ledger_id=6)], {9: N(kind=COMPACTED, is_whole=True, points={1: 0}, ledger_id=9)}),
        rolling.FollowedCursor(COMPACTING, (6,), 9))],
    chains._NamesSaid.say: [((None, None, "a//b", ""), None)],
    chains._read_own: [((N(key="a/b/c", null_value=False, payload=b"\xff"), b"x"), ("", None))],
    from_bookies._read_cursor: [((N(txn=UNREADABLE, read=UNREADABLE.read), N(kind=CURSOR, ledger_id=7)), None)],
    ledgers._key: [((UNREADABLE, 7, 0), None)],
    rolling._is_told_of: [((UNREADABLE, A_TOPIC), False)],
    ack_history.state_in_force: [  # not written before the time, and written by it, both ends included
        ((iter([N(state=None, name=name, problem="p", not_before=N(time_ms=before), not_after=N(time_ms=after, by="b"))
            for name, before, after in (("A", 5, 7), ("B", *span))]), None, N(name="s"), 10, "refuse"), answer)
        for span, answer in (((10, 20), ChosenState(None, "2 states, A to B", "p")), ((11, 20), ChosenState(None, "A", "p")),
                             ((8, 10), ChosenState(None, "B", "p")), ((8, 11), ChosenState(None, "2 states, A to B", "p")))],
    chains._LedgerSets.join_pointed: [  # joins, here an error, what names entries that both ledgers have
        ((N(found={1: N(kind="messages", last_entry=5), 2: N(kind="messages", last_entry=3)}, join=lambda join: int("x")),
          N(points={1: span, 2: (0, 3)}, kind="cursor", ledger_id=9)), answer)
        for span, answer in (((-1, 5), ValueError), ((-2, 5), None), ((0, 6), None))],
    chains._LedgerSets._contradiction: [
        ((N(found={1: N(index=(3, 4, 8), broker_ms=(0, last)), 2: N(index=(8, first, 12), broker_ms=(10**6, 10**7))}),
            N(**vars(LEDGERS) | {"indexed": [1], "timed": [1]}),
            N(**vars(LEDGERS) | {"indexed": [2], "timed": [2]})), answer)
        for first, last, answer in ((8, 5, "the broker's index goes back from ledger 1 to 2"), (9, 10**6 + chains.CLOCK_SKEW_MS, ""),
            (9, 10**6 + chains.CLOCK_SKEW_MS + 1, "the broker's time goes back from ledger 1 to 2"))] + [((N(),
            N(**vars(LEDGERS) | {"names": {"a"}}), N(**vars(LEDGERS) | {"names": {name}})), answer)
        for name, answer in (("a", ""), ("b", "the metadata names them a and b"))] + [((N(),
            N(**vars(LEDGERS) | {"kinds": {"a"}}), N(**vars(LEDGERS) | {"kinds": {kind}, "contradiction": "c"})),
            answer) for kind, answer in (("a", "c"), ("b", "their contents differ in kind"))],
    closing._end_of: [
        ((N(txn=UNREADABLE, read=lambda *ids: N(length=3, digest_type=None)), 7, last, 9), (length, DigestType.CRC32C))
        for last, length in ((0, 3), (-1, 0))],
    preflight._Forecast._add_log: [((N(), N(bytes=np.array([100])), 100), None)],
    recover._left_out: [
        ((N(leftovers=(), headless=(), namespaces_without_policies=(), unsure=0),
            N(left_out=(), passed_over=dict.fromkeys(range(count), "x")), None), answer)
        for count, answer in ((10, ["10 nodes that cannot be decoded stay as they are:", *["x"] * 10]),
            (11, ["11 nodes that cannot be decoded stay as they are:", *["x"] * 10,
            "… and 1 more: see them with: pulsar-admin store check"]))],
    restore._cursor: [((None, N(name=A_TOPIC, stat=None), "s", IN_LEDGER,
        Unreadable(NothingMatches("it is unknown")), 0), replace(IN_LEDGER_THEN, problem="it is unknown"))],
    deleted_nodes._read_cursor_then: [((UNREADABLE, "p", IN_LEDGER), IN_LEDGER_THEN)],
    chains._decoder_of: [((N(type_name=kind, definition=text),), None)
        for kind, text in (("AVRO", b"x"), ("JSON", b"x"), ("JSON", b"[" * 5000), ("STRING", b'{"fields": []}'))],
    from_bookies._time: [((10**18,), str(10**18))],
}  # fmt: skip
REFUSED: Texts = {
    preflight._Forecast._add_log: [  # BookKeeper's getUsage() < threshold: what it counts is the error's word
        ((N(_count=lambda *row: int(str(row))), N(bytes=np.array([total, 0]), size_bytes=7), live), counted)
        for total, live, counted in ((100, 0, "('at_once', 7)"), (100, 1, "('minor', 99)"), (100, 19, "('minor', 81)"),
                                     (100, 20, "('major', 80)"), (100, 49, "('major', 51)"), (100, 50, "('kept', 50)"),
                                     (0, 0, "('at_once', 7)"))],
    preflight.parse_percent: [((text,), "is not a percentage from 0 to 100") for text in ("x", "101%")],
    ack_history._move: [((None, N(name=A_TOPIC), N(name="s", topic=A_TOPIC), N(at="x",
        past=N(states=lambda *_: [N(name="x", state=None, problem="")]))), "x is not a state: s was deleted then")],
    ack_history._chosen: [((N(name="s", topic=A_TOPIC), N(most=SAME, least=SAME, last=N(name="x", not_after=None),
        states=[],
        text=lambda: "x", was_there_by=lambda _: False, unknown=[N(name="y")]), 0, "refuse"), said) for said in (
        ", or earlier: the time of the first state is unknown", "; of y it is unknown what was acknowledged")],
    from_bookies.plan_from_bookies: [((N(reader=N(txn=None), cluster=""), N(evidence={})),
        "the name of the cluster is in no entry")],
    restore.RestoreAt.__post_init__: [((N(to="x", asked=N(in_place=True)),), "to names the restored topic")],
    restore.RestoreDeleted.__post_init__: [
        ((N(to="x", asked=N(in_place=False), namespaces=(), topics=()),), "the name x is for a single restored topic")],
}  # fmt: skip
SAID: Texts = {
    ack_history._move: [((None, N(name=A_TOPIC, ids=[5]), N(name="s", topic=A_TOPIC), N(at="x", force=False,
        past=N(states=lambda *_: [N(name="x", state=CursorState(Position(1, 2)), problem="")]))),
        "before ledger 5 is trimmed: it is not redelivered")],
    ledgers._deleted_warnings: [(((), unknown), said) for unknown, said in (([5],
        "1 ledger that has entries here is not in the"),
        ([5, 6], "2 ledgers that have entries here are not in the history or have lost entry 0: 5"))],
    rolling._topic_part: [((N(), N(ids=[1], number_of_entries=1, name="t"), N(ids=[1], number_of_entries=1), [], {5, 6}),
        "deleted since, as no bookie has them: ledgers 5")],
}  # fmt: skip
test_at_bounds = asking(ANSWERS, refused=REFUSED, said=SAID)
