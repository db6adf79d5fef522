"""For each rule a fault: exactly what it brings is found, the printed command is run as it stands, and then all is as before.

A finding whose printed command only looks says so (``look:``): which those are, and why, is the second table. Faults that need files
of a bookie or metadata of their own have tests of their own, which the third table names.
"""

import inspect
import json
import shlex
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
from msgspec import Struct, field
from msgspec.structs import replace

from pulsar_admin.cures import cure_lines, look_first
from pulsar_admin.store.codec.cursor import CursorInfo, decode_cursor_info, encode_cursor_info
from pulsar_admin.store.codec.ledgermetadata import (
    LedgerState,
    decode_ledger_metadata,
    encode_ledger_metadata,
    ledger_path,
)
from pulsar_admin.store.codec.rocksvalue import NodeStat
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.db.tree import Node, find_node, put_nodes, tree_key
from pulsar_admin.store.model.references import index_owners
from pulsar_admin.store.names import Position
from pulsar_admin.store.rules.finding import Finding
from pulsar_admin.store.rules.table import RULES_BY_CODE
from tests import test_check
from tests.agreeing import check_agreement
from tests.commands.changing import rows_of
from tests.conftest import Cli
from tests.deep import deep_but_for
from tests.doctor.test_checked import told
from tests.stores import NOW_MS, copied, imported, narrow, narrow_copy
from tests.test_check import CASES, DEEP, Change, _drop, _set_value

PLAIN = "/managed-ledgers/public/default/persistent/plain"
SUBSCRIPTIONS = ("expire-me", "half", "holes", "never", "reset-me")
END = Position(46, 24)
"""The last entry of the topic."""


class Fault(Struct):
    """What plants a fault in a copy of the narrow store, and which findings it brings beside the rule's own.

    ``nodes``: the metadata nodes that the cure changes; without any, it gives the store the very rows that it had before the fault.
    ``leaves``: codes of findings that the cure leaves, or tells of what it did. ``deep``: a deep check alone finds it. ``state``: of the
    small world whose store is copied instead.
    """

    plant: Callable[[Path], object]
    brings: set[str] = field(default_factory=set)
    nodes: tuple[str, ...] = ()
    leaves: set[str] = field(default_factory=set)
    deep: bool = False
    state: str = "narrow"


def change(work: Change, *, owners: bool = True) -> Callable[[Path], object]:
    """Change rows of a store; OWNERS: and make what is derived from its metadata anew, as an import would."""

    def plant(path: Path) -> None:
        with open_store(path, writable=True) as store:
            store.write(work)
            if owners:
                store.write(lambda txn: index_owners(store, txn))

    return plant


def cursors(*, beside: dict[str, bytes] | None = None, **infos: CursorInfo) -> Change:
    """Set the cursors of ``public/default/plain``: all at its end but those of INFOS."""

    def work(txn):  # type: ignore[no-untyped-def]
        for name in SUBSCRIPTIONS:
            _set_value(
                f"{PLAIN}/{name}", lambda _, name=name: encode_cursor_info(infos.get(name, CursorInfo(-1, END)))
            )(txn)
        for name, value in (beside or {}).items():
            put_nodes(txn, [Node(f"{PLAIN}/{name}", NodeStat(0, 1, NOW_MS, NOW_MS, False), value)])

    return work


def stored(name: str) -> Callable[[Path], object]:
    """Plant a contradiction of the store's own rows."""
    return change({**CASES, **DEEP}[name][0], owners=False)


def replace_owners(path: Path) -> None:
    change(lambda txn: txn.put("owners", next(iter(txn.keys("owners", b""))), b"x"), owners=False)(path)


def ending(value: bytes, last_entry_id: int) -> bytes:
    """Return the metadata of a ledger whose end is recorded too early (bookkeeper#4812)."""
    return encode_ledger_metadata(replace(decode_ledger_metadata(value, "test"), last_entry_id=last_entry_id), value)


def closed_beyond(value: bytes) -> bytes:
    """Return the metadata of the cursor ledger as closed behind an entry that is in no file."""
    metadata = decode_ledger_metadata(value, "test")
    return encode_ledger_metadata(
        replace(metadata, state=LedgerState.CLOSED, last_entry_id=CURSOR_ENTRIES, length=0), value
    )


def without(ledger_id: int) -> Callable[[Path], object]:
    """Take BookKeeper's metadata of a ledger away."""
    return change(lambda txn: txn.delete("tree", tree_key(ledger_path(ledger_id))))


FREE_LEDGER = 146
"""An id that was given, and whose ledger is gone."""
CURSOR_LEDGER, CURSOR_ENTRIES = 260, 3
"""Of the subscription crash-holes of the crashed world."""
COMPACTED_CURSOR = "/managed-ledgers/acme/orders/persistent/compacted/__compaction"
SCHEMA, BUCKET, COMPACTED = 75, 108, 91
"""Ledgers of a schema, of an index of delayed messages, and of a compacted view."""
WRITTEN = 65_712
"""The ledger that the first change which writes one gets: 176, which the metadata gives next, and the gap that keeps brokers apart."""


def with_ttl(value: bytes) -> bytes:
    """Return the policies of a namespace with a TTL that is shorter than its delays."""
    return json.dumps(json.loads(value) | {"message_ttl_in_seconds": 60}).encode()


def moved_back(value: bytes) -> bytes:
    """Return a compaction's cursor one entry before where its compacted ledger ends."""
    info = decode_cursor_info(value, "test")
    before = replace(info.mark_delete, entry_id=info.mark_delete.entry_id - 1)
    return encode_cursor_info(replace(info, mark_delete=before), value)


_ROWS = ("tree", "entries", "times", "owners", "copies", "logs", "damage")
LEAKS = {"ledgers-unreferenced", "ledgers-gone"}
"""What is told of ledgers without an owner where damage forbids to call them leaked."""
CURED: dict[str, Fault] = {
    "block-inconsistent": Fault(stored("messages of a block"), {"times-differ"}),
    "block-damaged": Fault(stored("count of a block")),
    "times-differ": Fault(stored("sum of a ledger")),
    "times-damaged": Fault(stored("version of a time row")),
    "times-missing": Fault(stored("no time row")),
    "times-surplus": Fault(stored("no block")),
    "owners-differ": Fault(stored("no owner"), LEAKS, state="clean"),
    "owners-damaged": Fault(replace_owners, LEAKS, state="clean"),
    "damage-without-file": Fault(stored("damage of no file")),
    "index-differs": Fault(stored("near offset"), deep=True),
    "node-damaged": Fault(stored("rubbish in the tree"), {"unknown-tree", *LEAKS}, state="clean"),
    "ledger-without-metadata": Fault(change(_drop("tree", tree_key(ledger_path(9)))), nodes=(ledger_path(9),)),
    "ledger-missing": Fault(
        change(lambda txn: _drop_ledger(txn, 9)),
        nodes=(PLAIN, *(f"{PLAIN}/{name}" for name in SUBSCRIPTIONS if name != "half")),  # these stand in it
        state="clean",
    ),
    "ledger-list-differs": Fault(
        change(_set_value(ledger_path(9), lambda value: ending(value, 20))), nodes=(ledger_path(9), PLAIN)
    ),
    "cursor-unreadable": Fault(
        stored("value of a cursor"), {"value-undecodable", *LEAKS}, nodes=(f"{PLAIN}/half",), state="clean"
    ),
    "cursor-ledger-lost": Fault(
        change(_set_value(f"{PLAIN}/half", lambda _: encode_cursor_info(CursorInfo(FREE_LEDGER, Position(9, 3))))),
        nodes=(f"{PLAIN}/half",),
    ),
    "namespace-vanished": Fault(
        change(_drop("tree", tree_key("/admin/policies/acme/orders"))),
        nodes=("/admin/policies/acme/orders",),
        state="clean",
    ),
    "schema-ledger-without-metadata": Fault(without(SCHEMA), nodes=(ledger_path(SCHEMA),)),
    "compacted-ledger-without-metadata": Fault(without(COMPACTED), nodes=(ledger_path(COMPACTED),), state="clean"),
    "bucket-ledger-without-metadata": Fault(
        without(BUCKET), nodes=("/managed-ledgers/acme/delayed/persistent/reminders/workers",), state="clean"
    ),
    "delay-beyond-ttl": Fault(
        change(_set_value("/admin/policies/acme/delayed", with_ttl)),
        nodes=(ledger_path(WRITTEN), "/managed-ledgers/acme/delayed/persistent/__change_events"),
        state="clean",
    ),
    "compaction-inconsistent": Fault(
        change(_set_value(COMPACTED_CURSOR, moved_back)),
        nodes=(ledger_path(COMPACTED), ledger_path(WRITTEN), COMPACTED_CURSOR),
        leaves={"ledgers-deleted"},
        state="clean",
    ),
    "cursor-ledger-without-metadata": Fault(
        without(CURSOR_LEDGER), nodes=(ledger_path(CURSOR_LEDGER),), state="crashed"
    ),
    "cursor-ledger-damaged": Fault(
        change(_set_value(ledger_path(CURSOR_LEDGER), closed_beyond)),
        {"entries-missing", "copies-missing"},
        nodes=(f"{PLAIN}/crash-holes",),
        leaves={"entries-missing", "copies-missing", "leaked-cursor-ledgers"},
        state="crashed",
    ),
    "compaction-stale": Fault(
        change(cursors(beside={"__compaction": encode_cursor_info(CursorInfo(-1, Position(9, 24)))})),
        nodes=(ledger_path(WRITTEN), f"{PLAIN}/__compaction"),
        state="clean",
    ),
}


def _drop_ledger(txn, ledger_id):  # type: ignore[no-untyped-def]
    for key in [*txn.keys("entries", ledger_id.to_bytes(8, "big"))]:
        txn.delete("entries", key)
    txn.delete("times", ledger_id.to_bytes(8, "big"))
    txn.delete("tree", tree_key(ledger_path(ledger_id)))


def base(state: str) -> Path:
    """Return the store in which a fault is planted, without it."""
    return narrow() if state == "narrow" else imported("small", state)


@cache
def sound(state: str, *, deep: bool) -> frozenset[tuple[str, str]]:
    return frozenset(places(told(base(state), deep=deep)))


def places(found: list[Finding]) -> set[tuple[str, str]]:
    return {(one.code, one.where) for one in found}


@pytest.mark.parametrize("code", CURED)
def test_the_printed_command_cures_it(code: str, tmp_path: Path, cli: Cli, damages_stores: None) -> None:
    fault = CURED[code]
    path = narrow_copy(tmp_path) if fault.state == "narrow" else copied("small", fault.state, tmp_path)
    before = sound(fault.state, deep=fault.deep)
    fault.plant(path)
    found = [one for one in told(path, deep=fault.deep) if (one.code, one.where) not in before]
    assert {one.code for one in found} == {code} | fault.brings
    mine = next(one for one in found if one.code == code)
    assert look_first(mine.mend), "a look cures nothing"
    planted = rows_of(path, "tree")["tree"]
    cli.done("--store", path, "--now", f"@{NOW_MS}", *shlex.split(mine.mend)[1:])
    cured = rows_of(path, "tree")["tree"]
    if fault.nodes:
        changed = {key for key in planted.keys() | cured.keys() if planted.get(key) != cured.get(key)}
        assert changed == {*map(tree_key, fault.nodes)}
    else:
        assert rows_of(path, *_ROWS) == rows_of(base(fault.state), *_ROWS)
    left = places(told(path, deep=fault.deep))
    assert {one for one in left ^ before if one[0] not in fault.leaves} == set()


@deep_but_for(range(0, len(CURED), 3), "code", CURED)
def test_all_screens_say_the_same_of_it(code: str, tmp_path: Path, damages_stores: None) -> None:
    fault = CURED[code]
    path = narrow_copy(tmp_path) if fault.state == "narrow" else copied("small", fault.state, tmp_path)
    fault.plant(path)
    check_agreement(path)


@pytest.mark.parametrize("name", ["half", "__compaction"])
@pytest.mark.parametrize("words", [("reset-cursor", "-m", "earliest"), ("unsubscribe",)])
def test_a_damaged_cursor_is_replaced_or_removed_with_force(
    name: str, words: tuple[str, ...], tmp_path: Path, cli: Cli, damages_stores: None
) -> None:
    """Neither a preview nor a refusal writes anything, and undo brings the damaged bytes back."""
    path, value = copied("small", "clean", tmp_path), b"\xff"
    node = f"{PLAIN}/{name}"
    change(lambda txn: put_nodes(txn, [Node(node, NodeStat(0, 1, NOW_MS, NOW_MS, False), value)]))(path)
    command = ("--store", path, "topics", words[0], "public/default/plain", "-s", name, *words[1:])
    cli(*command, "-o", "json").fails(6, "metadata-corrupt")
    previewed = cli(*command, "--force", "--dry-run")
    assert (previewed.exit_code, "acknowledgements and properties are lost" in previewed.stdout) == (0, True)
    assert node_value(path, node) == value
    assert cli(*command, "--force", "--yes").exit_code == 0
    after = node_value(path, node)
    expected = encode_cursor_info(CursorInfo(-1, Position(9, -1))) if words[0] == "reset-cursor" else None
    assert after == expected
    assert cli("--store", path, "store", "undo", 1).exit_code == 0
    assert node_value(path, node) == value


def node_value(path: Path, node: str) -> bytes | None:
    with open_store(path) as store, store.read() as txn:
        found = find_node(txn, node)
        return None if found is None else found.value


# -- what no command cures ------------------------------------------------------------------------------------------------

_LOOKS = (
    (
        "what could cure it is not here: another file, disk, copy or metadata",
        "compacted-view-unfit ledgers-unlisted bookie-unknown bookkeeper-metadata-absent segment-missing "
        "idx-log-missing value-undecodable topic-unreadable newer-ledger-missing entries-missing entry-unreadable "
        "entry-damaged file-damaged recovery-fails recovery-needs-bookie recovery-drops-entries "
        "open-end-uncertain copies-differ bookie-not-known bookie-cookie-refused",
    ),
    (
        "nothing is wrong",
        "nacks-of-nobody file-touched bookkeeper-shared unknown-tree other-managed-ledgers unknown-value "
        "ledger-huge length-differs ledgers-deleted ledgers-gone not-closed entries-only-in-journal "
        "backlogs-not-looked-at leaked-index",
    ),
    (
        "which of several changes is meant nobody but its owner knows, and some lose data",
        "ledgers-of-others migration-unfinished ttl-blocked backlog-over-quota ack-hole-pins-ledgers "
        "ledgers-unreferenced leaked-compacted-ledgers leaked-buckets leaked-cursor-ledgers leaked-schema-ledgers "
        "leaked-topic-ledgers leaked-ledgers disk-full",
    ),
    (
        "only a backup of the store, or a new import, has what is lost",
        "rows-altered pages-damaged catalogue-damaged base-damaged changes-damaged changes-altered nacks-damaged",
    ),
    (
        "clients do: their clock, their acknowledgements, what they send",
        "clock-ahead clock-behind ack-ranges-at-limit markers-in-backlog dedup-holds-ledgers "
        "acknowledgements-not-stored",
    ),
    (
        "only a controller of Pulsar 5.0 changes the record of a scalable topic and seals its segments",
        "segment-hashes segment-relations segment-unlisted segment-not-sealed",
    ),
    ("BookKeeper makes it again itself", "index-file-wrong idx-entries-not-served"),
    ("a running cluster replicates", "copies-missing copies-damaged"),
    (
        "bookies write the node anew; `how` says with which program of Pulsar it is deleted",
        "bookkeeper-layout-unknown",
    ),
    ("the rows that stopped it have findings and cures of their own", "check-stopped"),
    ("whether a command still runs that needs it cannot be seen from here", "stray-file"),
    ("time passes, or the clock is set", "ledger-closed-in-future"),
    ("a broker deletes ledgers and never merges them", "ledgers-tiny"),
    ("the finding of the bookie that has them has the cure", "pending-ack-entries-not-served"),
    ("no command renames nodes", "name-not-encoded"),
    ("without a good copy, only their owner can set the policies again", "topic-policies-unreadable"),
    ("which ledgers a bookie may lose is decided by those who own them", "dead-bytes-kept"),
)
"""What no command of this toolkit cures, and why: its command is a look, and its words say what to do by hand."""
LOOKS = {code: why for why, codes in _LOOKS for code in codes.split()}


@pytest.mark.parametrize("code", LOOKS)
def test_what_has_no_cure_says_so(code: str, cli: Cli) -> None:
    cause = RULES_BY_CODE[code]
    (line,) = cure_lines(cause.command({}))
    assert line == f"look: {cause.command({})}"
    assert cause.how
    assert f"Repair{without_spaces(cause.how)}" in without_spaces(cli("doctor", "--explain", code).stdout)


def without_spaces(text: str) -> str:
    return "".join(text.split())


# -- planted elsewhere ----------------------------------------------------------------------------------------------------

PLANTED = """
commands.test_nacks::test_a_damaged_row nacks-damaged
commands.test_nacks::test_force_tracks_what_the_store_does_not_know nacks-of-nobody
compaction.test_status::test_one_that_readers_would_not_get_all_of_is_refused compacted-view-unfit
cures.test_backlogs::test_a_cursor_inside_a_chunked_message chunk-cut
cures.test_backlogs::test_backlogs_that_are_not_looked_at backlogs-not-looked-at
cures.test_backlogs::test_markers_in_a_backlog markers-in-backlog
cures.test_backlogs::test_the_rest_of_a_message_whose_beginning_is_trimmed chunk-remainder
cures.test_cursors::test_a_cursor_of_deduplication_that_is_off dedup-cursor-left
cures.test_cursors::test_a_cursor_of_deduplication_that_keeps_much dedup-holds-ledgers
cures.test_cursors::test_a_cursor_stored_ahead_of_its_topic cursor-ahead
cures.test_files::test_a_file_that_is_not_as_it_was file-missing file-changed file-unreadable file-grown not-checked
cures.test_files::test_a_list_that_is_too_large_is_trimmed ledger-list-large
cures.test_files::test_a_scan_that_was_stopped scan-unfinished
cures.test_marks::test_marks_without_a_reason marks-stale
cures.test_partitions::test_it_is_told_and_cured ledgers-deleted partitions-without-metadata partitions-beyond-metadata
cures.test_partitions::test_it_is_told_and_cured partitions-missing partitioned-topic-half-deleted partitioned-name-over-topic
cures.test_partitions::test_it_is_told_and_cured topic-beside-partitions
cures.test_transactions::test_a_ledger_of_a_log_without_metadata pending-ack-ledger-lost
cures.test_transactions::test_a_log_whose_replay_never_ends pending-ack-replay-endless
cures.test_transactions::test_coordinators_that_no_client_asks_for transaction-coordinators-unassigned
cures.test_transactions::test_entries_of_a_log_that_are_in_no_file entries-missing pending-ack-entries-lost
delayed.test_verify::test_leaked_ledgers_are_told_apart leaked-index
doctor.test_checked::test_every_contradiction_is_told catalogue-damaged base-damaged changes-damaged check-stopped value-undecodable
doctor.test_checked::test_many_that_one_command_repairs_keep_it topic-unreadable
doctor.test_checked::test_of_a_code_the_rest_is_summed_up clock-behind
doctor.test_healthy::test_no_false_alarm clock-ahead
doctor.test_planted::test_a_backlog_over_its_quota backlog-over-quota
doctor.test_planted::test_a_full_disk disk-full
doctor.test_planted::test_a_ledger_closed_in_the_future ledger-closed-in-future
doctor.test_planted::test_dead_bytes_that_compaction_leaves dead-bytes-kept
doctor.test_planted::test_ledgers_of_odd_sizes ledgers-tiny ledger-huge
doctor.test_planted::test_ledgers_that_nothing_references leaked-compacted-ledgers leaked-buckets leaked-cursor-ledgers
doctor.test_planted::test_ledgers_that_nothing_references leaked-schema-ledgers leaked-topic-ledgers leaked-ledgers
doctor.test_planted::test_more_ranges_than_a_broker_stores ack-ranges-at-limit
doctor.test_planted::test_nothing_is_called_leaked_where_metadata_is_damaged ledgers-unreferenced
doctor.test_planted::test_one_hole_that_pins_ledgers ack-hole-pins-ledgers
doctor.test_planted::test_what_a_crash_cost not-closed acknowledgements-not-stored entries-only-in-journal
plans.test_plan_files::test_forged_audit_logs changes-altered
recovery.test_from_bookies::test_what_bookies_collected_is_left_apart ledgers-not-indexed
recovery.test_preflight::test_another_layout_is_told_and_nothing_is_deleted_by_it bookkeeper-layout-unknown
rules.test_apart::test_ledgers_alone_are_told_kept_and_cured pulsar-metadata-absent
rules.test_apart::test_ledgers_of_another_pulsar_on_the_same_bookkeeper_are_not_leaked bookkeeper-shared
rules.test_apart::test_the_pulsar_without_gives_up_no_ledger_of_its_own bookie-unknown bookkeeper-metadata-absent
rules.test_ledgers::test_a_snapshot_of_the_store_has_a_counter_above_all_ids ledger-ids-repeated
rules.test_ledgers::test_the_printed_command_cures_it metadata-older
rules.test_ledgers::test_where_the_generator_is_not_known_nothing_is_called_deleted ledgers-unlisted
rules.test_topics::test_a_ttl_is_checked_once_for_all_subscriptions ttl-blocked
rules.test_topics::test_events_of_policies_that_nobody_can_read topic-policies-unreadable
rules.test_vanished::test_a_ledger_of_a_schema_that_is_not_here_is_of_others ledgers-of-others
rules.test_vanished::test_a_schema_whose_node_is_gone_is_lost_not_leaked schema-vanished
rules.test_vanished::test_a_view_that_a_truncate_dropped_is_attached_again compacted-view-detached
rules.test_vanished::test_of_rocksdb topic-vanished
sources.test_damaged_metadata::test_a_damaged_snapshot_that_was_not_needed_is_a_note metadata-file-damaged
sources.test_damaged_metadata::test_each_answer_of_an_incomplete_store_says_so_until_sound_files_come metadata-incomplete
sources.test_damaged_metadata::test_metadata_whose_addition_was_stopped_is_not_seen_rather_than_absent refresh-unfinished
sources.test_log_ends::test_a_write_that_may_have_been_stopped_is_a_note_until_the_whole_log_comes zookeeper-log-end
test_annotate::test_wrong_times_are_written_again publish-time-differs
test_check::test_a_file_of_another_time file-touched
test_check::test_a_record_that_rotted_since_import entry-unreadable entry-damaged
test_check::test_an_open_ledger_whose_next_entry_is_damaged recovery-fails
test_check::test_files_nobody_names stray-file
test_check::test_only_a_deep_check_finds length-differs
test_check::test_recorded_worlds_have_no_problem ledgers-gone
test_combined_faults::test_a_recovery_that_needs_a_bookie_is_told recovery-needs-bookie
test_combined_faults::test_entries_after_a_gap_are_told recovery-drops-entries open-end-uncertain
test_copies::test_a_bookie_that_is_not_the_registered_one_replaces_nothing copies-differ
test_copies::test_disks_of_another_cluster_are_left_out bookie-not-known
test_coverage::test_a_bit_flipped_in_one_copy copies-damaged
test_coverage::test_a_removed_entry_log_of_one_bookie copies-missing
test_coverage::test_a_store_of_before_says_that_it_does_not_know copies-unknown
test_coverage::test_bookies_that_come_later entries-not-seen bookie-not-imported
test_coverage::test_damage_of_our_rows_is_found_and_healed copies-row-damaged copies-without-file
test_false_maps::test_a_flipped_ledger_and_a_flipped_size_are_told_and_salvage_cures_them ledgers-map-false
test_gone_bookies::test_a_bookie_that_is_not_here bookie-gone
test_gone_bookies::test_renamed_bookies ensemble-elsewhere ledger-on-gone-bookies
test_import::test_an_import_without_journals_says_what_may_be_missing journal-absent
test_kinds::test_an_index_in_a_directory_of_its_own_is_followed_to_the_logs_of_all index-file-wrong
test_lost_logs::test_a_mark_that_moved_on entries-not-served
test_lost_logs::test_an_entry_log_of_a_bookie_of_every_storage idx-log-missing
test_lost_logs::test_an_entry_log_of_the_only_bookie entry-log-missing
test_lost_logs::test_rows_of_one_of_several_bookies_that_lead_to_other_records index-rows-wrong
test_lost_logs::test_rows_of_the_indexes_of_every_storage idx-entries-not-served
test_newer_pulsar::test_no_command_is_printed_that_newer_ledgers_are_refused_by newer-ledger-missing
test_newer_pulsar::test_what_is_not_known_is_told_of_once unknown-tree other-managed-ledgers unknown-value
test_rows::test_a_refresh_gives_digests_also_without_a_source rows-without-digests
test_rows::test_an_altered_key_above_derived_rows_is_cured_by_making_them_again pages-damaged
test_rows::test_checks_and_doctor_go_on_past_altered_rows rows-altered file-damaged
test_rows::test_derived_rows_are_made_again index-rows-altered
test_rows::test_nodes_are_read_from_the_source_again node-rows-altered
test_scalable::test_a_damaged_record_is_told segment-hashes segment-relations segment-unlisted segment-not-sealed
test_scalable::test_segments_and_cursors_that_are_gone_are_told segment-missing migration-unfinished segment-cursor-missing
test_starts::test_a_server zookeeper-snapshot-damaged zookeeper-record-too-large zookeeper-log-unreadable
test_starts::test_a_snapshot_of_the_store_mends_a_server zookeeper-snapshot-missing zookeeper-epochs-refused
test_starts::test_cookies_of_bookies bookie-cookie-refused bookie-cookie-missing
test_starts::test_indexes_and_journals_of_bookies bookie-index-unreadable bookie-index-missing bookie-journal-missing
test_starts::test_indexes_and_journals_of_bookies bookie-journal-damaged
test_truth::test_only_names_that_commands_find_are_listed name-not-encoded
why.test_agreement::test_a_log_that_no_bookie_serves pending-ack-entries-not-served
"""
"""What plants a fault that needs files, metadata or topics of its own, and runs its cure unless that only looks."""


ELSEWHERE = {code: line.split()[0] for line in PLANTED.strip().splitlines() for code in line.split()[1:]}


@pytest.mark.parametrize("code", ELSEWHERE)
def test_another_test_plants_it(code: str) -> None:
    name, _, function = ELSEWHERE[code].partition("::")
    module = import_module(f"tests.{name}")
    assert callable(getattr(module, function))
    assert f'"{code}"' in inspect.getsource(module) + inspect.getsource(test_check)  # which has cases for several


def test_every_cause_has_a_planted_cure_or_says_that_it_has_none() -> None:
    assert not CURED.keys() & ELSEWHERE.keys()
    assert CURED.keys() | ELSEWHERE.keys() == RULES_BY_CODE.keys()
    assert LOOKS.keys() < ELSEWHERE.keys()
