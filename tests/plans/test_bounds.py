"""Changes at their bounds: the first and last position, sizes and times that just fit, and what is refused."""

from pathlib import Path

import numpy as np

from pulsar_admin.store.changes import (
    bookies,
    compaction,
    cursors,
    deleting,
    ledger_metadata,
    ledger_references,
    log_writer,
    nacks,
    plan,
    policies,
    resets,
    resources,
    schemas,
    subscriptions,
    topics,
)
from pulsar_admin.store.codec.cursor import CursorState, Position
from pulsar_admin.store.errors import EntryNotFound, InvalidValue, MetadataCorrupt
from pulsar_admin.store.model.topics import PARTITIONS_MAX
from tests.at_bounds import A_TOPIC, LONE, LONG, UNREADABLE, Answers, N, Texts, asking

ANSWERS: Answers = {
    resets.bit_words: [(([63],), (-(2**63),)), (([64],), (0, 1)), (([62],), (2**62,))],
    resets._position: [(({"ledgerId": 1, "entryId": 2, "batchIndex": 0},), Position(1, 2, 0)),
        (({"ledgerId": 1, "entryId": 2},), Position(1, 2))],
    resources._yaml_value: [(("'",), "'"), (('"x"',), "x"), (("[a, b]",), ["a", "b"])],
    ledger_references.parse_ledger_ids: [((["0", "", '{"ledgerId":7}'], "x"), [0, 7]), ((["-1"], "x"), InvalidValue)],
    nacks.NackedEntries.add: [
        ((N(_topics={}, _default=None, _names="t"), Position(*ids), 0), answer)
        for ids, answer in (((0, 0), EntryNotFound), ((LONG - 1, LONG - 1), EntryNotFound), ((LONG, 0), InvalidValue),
            ((0, LONG), InvalidValue))],
    ledger_references._moved: [
        ((N(ids=[7, 9], last_confirmed=Position(9, 2)), Position(ledger_id, 3), {6, 8, 10}), answer)
        for ledger_id, answer in ((6, Position(7, -1)), (10, Position(9, 2)), (9, Position(9, 3)))],
    resets.check_position: [
        ((N(ledger=lambda ledger_id: N(entries=5), name="t"), Position(7, entry), ""),
            None if -1 <= entry <= 5 else EntryNotFound) for entry in (-2, -1, 5)],
    resets._ledgers_text: [
        ((N(ids=[5, 7]), Position(5, 0)), "its ledgers are 5 to 7"),
        ((N(ids=[5, 7]), Position(4, 0)), "what was before ledger 5 is trimmed")],
    resets._dated: [
        ((N(position="1:0", time_ms=5), 5), "1:0 of 1970-01-01T00:00:00.005Z, is 0s old"),
        ((N(position="1:0", time_ms=2005), 5), "1:0 of 1970-01-01T00:00:02.005Z, is dated 2s ahead of now")],
    resets._younger_warnings: [
        ((N(find_first=lambda limit_ms: N(position=Position(1, 5), time_ms=2)), N(mark_delete=Position(1, entry)), 1), answer)
        for entry, answer in ((4, []), (5, [
            "the broker's search drops 1:5 of 1970-01-01T00:00:00.002Z, which is younger than the limit 1970-01-01T00:00:00.001Z: "
            "clocks run backwards here"]))],
    resources._with_deleter: [
        (({"replication_clusters": ["a"], "allowed_clusters": allowed},),
         {"replication_clusters": ["a"], "allowed_clusters": allowed} | more)
        for allowed, more in ((["a"], {"clusterThatCanDeleteNamespace": "a"}), (["a", "b"], {}))],
    cursors.advanced: [
        ((LONE, CursorState(Position(7, 0), batch_deletes={Position(7, 2): (1,), Position(7, 3): (1,)}), Position(7, 2)),
         CursorState(Position(7, 2), batch_deletes={Position(7, 3): (1,)})),
        *(((LONE, CursorState(Position(7, 0), ((Position(7, 1), Position(7, 3)),)), Position(7, entry)), CursorState(Position(7, 3)))
          for entry in (1, 3))],
    cursors.skipped: [
        ((LONE, CursorState(Position(7, -1)), count), CursorState(Position(7, mark)))
        for count, mark in ((0, -1), (1, 0), (6, 4))],
    resets._with_batch: [
        ((LONE, CursorState(Position(7, 1)), Position(7, entry), (1,)),
            CursorState(Position(7, 1), batch_deletes={Position(7, 2): (1,)} if entry == 2 else {}))
        for entry in (2, 5)],
    policies._topic_warnings: [
        ((UNREADABLE, A_TOPIC.namespace), ("whether topics have a TTL or quota of their own is unknown: it is damaged",))],
    resets.reset_target: [
        ({"time_ms": 5, "position": None, "shift_by": None, "like": None, "until_ms": until_ms, "exclude": False}, answer)
        for until_ms, answer in ((5, InvalidValue), (6, resets.ToTime(5, False, 6)))],
    topics._missing: [((UNREADABLE, A_TOPIC, count, 0), answer)
        for count, answer in ((PARTITIONS_MAX, MetadataCorrupt), (PARTITIONS_MAX + 1, InvalidValue))],
    compaction._attach_warnings: [
        ((N(get=lambda *key: None, view=lambda *key: None), N(ids=ids, name=A_TOPIC, at_rank=lambda rank: Position(5, 0)),
          None, N(horizon=Position(ledger, 3), ledger_id=9)), answer)
        for ids, ledger, answer in (([], 4, []), ([5], 5, []), ([5], 4, [
            "what the topic had between 4:3 and 5:0 is gone: a key that was changed or deleted there gets back its value of 4:3"]))],
    log_writer.append_payload: [((b"\xff", None, 0), b"\xff")],
    log_writer.WrittenLedgers._discard: [((N(store=UNREADABLE, files=[Path("0.log")]),), None)],
    resets.ttl_warnings: [((UNREADABLE, N(name=A_TOPIC), N(name="s"), None, 0),
        ("whether a TTL skips the replayed messages is unknown: it is damaged",))],
}  # fmt: skip
REFUSED: Texts = {
    plan.decode_argument: [((1.5,), "no method takes a fraction")],
    resets._row: [(([], "f", None, int), "not a JSON object"), (({"x": 1}, "f", None, int), "unknown key 'x'"),
        (({"topic": "a"}, "f", None, int), "are required strings"),
        (({"topic": "a", "time": 1, "exclude": 1}, "f", "s", int), "exclude is true or false")],
    resets._target: [(({"toSubscription": 1}, False, int), "toSubscription must be a string")],
    resets._position: [((1,), "messageId is")],
    resets._time: [(([], int), "time is epoch milliseconds")],
    resources.plan_set_rack: [((None, "b:1", "g", {"rack": rack}, 0), text) for rack, text in (
        ("/", "rack name is invalid"), ("/a/b", "Bookie 'rack' parameter is invalid"))],
    resources.isolation_of: [(({"namespaces": ["a"], "primary": primary}, kind, {}, None), text)
        for primary, kind, text in (([""], "min_available", "unable to parse primary"), (["b"], "x", "policy type specified : x"),
        (["b"], "min_available", "policy params specified"))],
    resources._choose_bundle: [((None, None, "a", "HOT"), "mutually exclusive")],
    subscriptions.check_new: [((N(name="", properties={}),), "needs a name"),
        ((N(name="__compaction", properties={}),), "the broker's own cursors"),
        ((N(name="s", properties={"a": "", "#pulsar.internal.x": ""}),), "is the broker's own")],
    resets.iter_reset_rows: [((["", "x"], "f", None, int), "f line 2: "), (([""], "f", None, int), "no change in f")],
    bookies.plan_rename: [((None, "a:1", "b c", 0), "'b c' is not the id of a bookie")],
    deleting._terminal_position: [((N(ledgers=(), name=A_TOPIC),), "has no ledger yet")],
    resources.plan_set_setting: [((None, "maxTenants", "", 0), "the value is empty"),
        ((None, "loadManagerClassName", "x", 0), "Invalid dynamic-config value"), ((None, "x", "1", 0), "non-dynamic configuration")],
    schemas._check_definition: [
        ((N(type_name="INT32", definition=b"x"),), "Invalid schema definition data for int32 schema : 'x'")],
    plan.read_plan: [((Path("/"),), "/ cannot be read")],
    ledger_metadata.find_ensembles: [((7, {}, -1, None), "ledger 7 is empty"),
        ((7, {"a": np.arange(2), "b": np.arange(1)}, 1, None), "entry 1 is on a alone, others on 2 bookies")],
}  # fmt: skip
SAID: Texts = {
    resets._ledgers_text: [((N(ids=[]), Position(1, 2)), "it has no ledgers")],
}  # fmt: skip
test_at_bounds = asking(ANSWERS, refused=REFUSED, said=SAID)
