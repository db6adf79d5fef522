"""``ledgers restore --extend``: a ledger of real entries whose recorded end is moved to the front, as bookkeeper#4812 leaves one."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from pulsar_admin.store.changes.log_writer import LedgerSpec, apply_written, write_ledgers
from pulsar_admin.store.changes.plan import ChangeKind, Plan, apply_plan, put_value_step
from pulsar_admin.store.codec.ledgermetadata import encode_ledger_metadata, ledger_path
from pulsar_admin.store.codec.managedledger import LedgerInfo, encode_managed_ledger
from pulsar_admin.store.db.audit_log import Step
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.db.tree import read_node
from pulsar_admin.store.model.ledgers import find_metadata
from pulsar_admin.store.model.reader import EntryReader, open_reader
from pulsar_admin.store.model.topics import read_topic
from pulsar_admin.store.names import parse_topic
from tests.conftest import Cli
from tests.recovery.test_undelete import messages_of
from tests.stores import copied
from tests.worlds import CLUSTER, oracle

TOPIC = "public/default/steady"
LEDGER = 20  # of 40 entries, the last of which carries 38 as acknowledged


def shorten(path: Path, last: int, ack_quorum: int = 2) -> None:
    """Record that LEDGER ends with entry LAST, in its metadata and in its topic's list."""
    with open_store(path, writable=True) as store:
        with open_reader(store) as reader:
            plan = Plan(
                ChangeKind("shorten", "shorten"),
                reader.txn.id,
                (_ledger(reader, last, ack_quorum), _topic(reader, last)),
                (),
            )
        apply_plan(store, plan, 0)


def _ledger(reader: EntryReader, last: int, ack_quorum: int) -> Step:
    metadata = find_metadata(reader.txn, LEDGER)
    length = reader.read(LEDGER, last).length
    quorum = max(ack_quorum, metadata.write_quorum)
    shorter = replace(
        metadata, last_entry_id=last, length=length, ack_quorum=ack_quorum, write_quorum=quorum, ensemble_size=3
    )
    return put_value_step(reader.txn, ledger_path(LEDGER), encode_ledger_metadata(shorter), 0)


def _topic(reader: EntryReader, last: int) -> Step:
    name = parse_topic(TOPIC)
    managed = read_topic(reader.txn, name).managed
    size = reader.read(LEDGER, last).length
    infos = tuple(
        replace(info, entries=last + 1, size_bytes=size) if info.ledger_id == LEDGER else info
        for info in managed.ledgers
    )
    value = encode_managed_ledger(replace(managed, ledgers=infos), read_node(reader.txn, name.path).value)
    return put_value_step(reader.txn, name.path, value, 0)


def test_acknowledged_entries_come_back(cli: Cli, tmp_path: Path) -> None:
    store = copied(CLUSTER, "crashed", tmp_path)
    whole = messages_of(cli, store, TOPIC)
    sent = {tuple(row["id"][:2]): row["sha1"] for row in oracle(CLUSTER)["sent"] if row["topic"].endswith(TOPIC)}
    assert whole.items() <= sent.items()
    shorten(store, 36)
    assert whole.keys() - messages_of(cli, store, TOPIC).keys() == {(LEDGER, 37), (LEDGER, 38), (LEDGER, 39)}
    tried = cli("--store", store, "ledgers", "restore", "--extend", "--dry-run")
    # Entry 39 carries 38 as the last that was acknowledged; it has itself as many copies as the ack quorum.
    assert "3 entries after its end were acknowledged: 2 by a later entry, 1 by copies" in tried.stdout
    assert "subscriptions that are past them do not get them unless they are reset: " in tried.stdout
    cli("--store", store, "ledgers", "restore", "--extend")
    assert messages_of(cli, store, TOPIC) == whole
    info = cli("--store", store, "-o", "json", "ledgers", "info", str(LEDGER)).json
    assert (info["lastEntryId"], info["size"]) == (39, info["indexed"]["payloadBytes"])
    assert cli("--store", store, "ledgers", "restore", "--extend").exit_code == 5


@pytest.mark.parametrize("last", [37, 38])
def test_what_is_not_proven_stays_out(cli: Cli, tmp_path: Path, last: int) -> None:
    """With an ack quorum of 3, which no entry's copies reach."""
    store = copied(CLUSTER, "crashed", tmp_path)
    shorten(store, last, ack_quorum=3)
    result = cli("--store", store, "ledgers", "restore", "--extend", str(LEDGER))
    if last == 38:
        assert result.exit_code == 3
        assert "1 entry more is not proven to be acknowledged" in result.stderr
    else:
        assert "1 entry after its end was acknowledged: 1 by a later entry, 0 by copies" in result.stdout
        assert max(entry for ledger, entry in messages_of(cli, store, TOPIC) if ledger == LEDGER) == 38


def test_what_was_sent_again_stays_out(cli: Cli, tmp_path: Path) -> None:
    """The broker wrote the last entry to the next ledger again, because nobody told it that it was stored."""
    store = copied(CLUSTER, "crashed", tmp_path)
    shorten(store, 37)
    name = parse_topic(TOPIC)
    with open_store(store, writable=True) as opened:
        with open_reader(opened) as reader:
            again = bytes(reader.read(LEDGER, 39).payload)
            managed = read_topic(reader.txn, name).managed
        written = write_ledgers(opened, [(LedgerSpec({"component": b"managed-ledger"}), [again])])
        with open_reader(opened) as reader:
            infos = tuple(info for info in managed.ledgers if info.ledger_id <= LEDGER)
            new = LedgerInfo(written.ledgers[0].ledger_id, 1, len(again), 1)
            value = encode_managed_ledger(replace(managed, ledgers=(*infos, new)))
            steps = (*written.steps(reader.txn, 0), put_value_step(reader.txn, name.path, value, 0))
            plan = Plan(ChangeKind("sent again", "sent again"), reader.txn.id, steps, ())
        apply_written(written, plan, 0)
    result = cli("--store", store, "ledgers", "restore", "--extend", str(LEDGER))
    assert "1 entry after its end was acknowledged: 1 by a later entry" in result.stdout
    assert "1 entry more is in the next ledger again, and not restored" in result.stdout
    assert max(entry for ledger, entry in messages_of(cli, store, TOPIC) if ledger == LEDGER) == 38
