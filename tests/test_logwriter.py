"""Ledgers written by the toolkit: their bytes, their ids, and what a stop in between leaves."""

import os
import signal
from functools import partial
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest
from msgspec.structs import replace

from pulsar_admin.store.changes.log_writer import LedgerSpec, WrittenLedgers, apply_written, write_ledgers
from pulsar_admin.store.changes.plan import ChangeKind, ChangePart, Plan, apply_plan, plan_undo
from pulsar_admin.store.codec import entrylog
from pulsar_admin.store.codec.digest import DigestType
from pulsar_admin.store.codec.entry import decode_entry
from pulsar_admin.store.codec.entrylog import decode_header, decode_ledgers_map
from pulsar_admin.store.codec.logscan import iter_records
from pulsar_admin.store.codec.rocksvalue import NodeStat, decode_counter
from pulsar_admin.store.db.environment import Store, create_store, open_store
from pulsar_admin.store.db.own_ledgers import (
    RESERVED_GAP,
    SEQUENCE_KEY,
    OwnLedgers,
    find_own_ledgers,
    largest_ledger_id,
    sequence_after_export,
)
from pulsar_admin.store.db.owners import Owner, OwnerKind, find_owners, put_owners
from pulsar_admin.store.db.tree import Node, put_nodes, read_node
from pulsar_admin.store.doctor.diagnosing import check_store
from pulsar_admin.store.errors import DiskFull, LimitExceeded, Refused, StalePlan
from pulsar_admin.store.index.own_logs import LogWriter
from pulsar_admin.store.model.ledgers import find_metadata, iter_ledger_ids, read_ledger, sorted_ledger_ids
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.names import LONG_MAX
from pulsar_admin.store.scan.payloads import PayloadColumns
from pulsar_admin.store.sources import log_files
from pulsar_admin.store.sources.rocksdb import read_values
from tests.conftest import Cli
from tests.stores import NOW_MS, copied, lose_nodes, put_node, read_rows
from tests.test_check import PLAIN, _stranger_in_list
from tests.worlds import world

PAYLOADS = [bytes([number]) * (number * 7) for number in range(200)]


def _apply(written: WrittenLedgers) -> object:
    with written.store.read() as txn:
        plan = Plan(ChangeKind("test", "test"), txn.id, written.steps(txn, NOW_MS), (ChangePart(before={}, after={}),))
    return apply_written(written, plan, NOW_MS)


def _strays(store: Store) -> list[str]:
    """The files that ``store check`` says nobody names."""
    return [Path(finding.where).name for finding in check_store(store) if finding.code == "stray-file"]


def test_written_ledgers_read_back(tmp_path: Path) -> None:
    path = copied("small", "clean", tmp_path)
    with open_store(path, writable=True) as store:
        with store.read() as txn:
            known = max(iter_ledger_ids(txn))
        written = write_ledgers(
            store,
            [
                (LedgerSpec({"component": b"managed-ledger", "pulsar/managed-ledger": b"t/n/persistent/x"}), PAYLOADS),
                (LedgerSpec({"component": b"compacted-ledger"}, digest_type=DigestType.CRC32), PAYLOADS[:3]),
                (LedgerSpec({"component": b"managed-ledger"}), []),
            ],
        )
        _apply(written)
        ids = [ledger.ledger_id for ledger in written.ledgers]
        # The recorded cluster's sequence, read from its RocksDB by name.
        metadata = world("small") / "clean" / "metadata"
        sequence = decode_counter(read_values(metadata, [SEQUENCE_KEY])[SEQUENCE_KEY], "sequence")
        assert sequence > known
        assert ids == [sequence + RESERVED_GAP + number for number in range(3)]
        with open_reader(store) as reader:
            for ledger_id, payloads in zip(ids, (PAYLOADS, PAYLOADS[:3], []), strict=True):
                ledger = read_ledger(reader.txn, ledger_id)
                assert (ledger.last_entry_id, ledger.size_bytes) == (len(payloads) - 1, sum(map(len, payloads)))
                assert [bytes(reader.read(ledger_id, entry).payload) for entry in range(len(payloads))] == payloads
            assert read_ledger(reader.txn, ids[0]).metadata.custom == {  # type: ignore[union-attr]
                "application": b"pulsar",
                "component": b"managed-ledger",
                "pulsar/managed-ledger": b"t/n/persistent/x",
            }
            assert largest_ledger_id(reader.txn) == ids[2]
        assert _strays(store) == []


@pytest.mark.parametrize(
    ("names", "largest"),
    [
        (("00/0000/L0007", "21/4748/L3646", "LAYOUT"), 2147483646),
        (("00/0000/L0007", "000/0000/0021/4748/L3648", "922/3372/0368/5477/L5807", "available/b:3181"), 2**63 - 1),
        (("00/0000/L0007", "01/0000/idgen", "L0000000012", "underreplication/lostBookieRecoveryDelay"), 12),
        (("!", "00-x", "00/0000/L0007", "INSTANCEID"), 7),
    ],
)
def test_the_largest_id_is_in_the_last_directory_of_any_layout(
    names: tuple[str, ...], largest: int, tmp_path: Path
) -> None:
    nodes = [Node(f"/ledgers/{name}", NodeStat(0, 0, NOW_MS, NOW_MS, False), b"") for name in names]
    create_store(tmp_path / "s", now_ms=NOW_MS)
    with open_store(tmp_path / "s", writable=True) as store:
        store.write(lambda txn: put_nodes(txn, nodes))
        with store.read() as txn:
            assert largest_ledger_id(txn) == largest


def test_a_damaged_id_is_not_the_largest_and_hides_no_other(tmp_path: Path) -> None:
    create_store(tmp_path / "s", now_ms=NOW_MS)
    with open_store(tmp_path / "s", writable=True) as store:
        for ledger_id in (9, -5, LONG_MAX):
            store.write(
                partial(put_owners, ledger_id=ledger_id, owners=(Owner(OwnerKind.TOPIC, "persistent://a/b/c"),))
            )
            with store.read() as txn:
                assert largest_ledger_id(txn) == 9


def test_log_is_what_bookkeeper_writes(tmp_path: Path) -> None:
    """Checked with the reference reader: framing, digests, cumulative lengths, ledgers map."""
    with LogWriter(tmp_path, 5, limit_bytes=20_000) as writer:
        writer.write_ledger(7, DigestType.CRC32C, PAYLOADS)
        writer.write_ledger(8, DigestType.CRC32, PAYLOADS)
        files = writer.finish()
    assert len(files) > 10
    assert files[0].name == "own-5.log"
    found: dict[int, list[bytes]] = {7: [], 8: []}
    lengths = {7: 0, 8: 0}
    for file in files:
        data = file.read_bytes()
        assert len(data) < 20_000 + 24 + 32
        header = decode_header(data, file.name)
        sizes: dict[int, int] = {}
        for record in iter_records(memoryview(data)[: header.ledgers_map_offset], file.name):
            kind = {7: DigestType.CRC32C, 8: DigestType.CRC32}[record.ledger_id]  # type: ignore[union-attr]
            body = data[record.offset + 4 : record.offset + 4 + record.size]  # type: ignore[union-attr]
            entry = decode_entry(body, kind, where=file.name)
            lengths[entry.ledger_id] += len(entry.payload)
            assert entry.length == lengths[entry.ledger_id]
            assert entry.entry_id == len(found[entry.ledger_id])
            assert entry.last_add_confirmed == entry.entry_id - 1
            found[entry.ledger_id].append(bytes(entry.payload))
            sizes[entry.ledger_id] = sizes.get(entry.ledger_id, 0) + 4 + len(body)
        assert decode_ledgers_map(data, header, file.name) == sizes
    assert found == {7: PAYLOADS, 8: PAYLOADS}


@pytest.mark.parametrize("digest_type", [DigestType.CRC32C, DigestType.CRC32])
def test_columns_are_written_as_single_payloads_are(tmp_path: Path, digest_type: DigestType) -> None:
    """The compiled writer against the plain one, with blocks of payloads that begin anywhere in their bytes."""
    data = np.frombuffer(b"??" + b"".join(PAYLOADS), np.uint8)
    sizes = np.array([len(payload) for payload in PAYLOADS], np.int64)
    columns = PayloadColumns(data, np.cumsum(sizes) - sizes + 2, sizes)
    files = []
    for name, payloads in (("a", PAYLOADS), ("b", [columns])):
        (tmp_path / name).mkdir()
        with LogWriter(tmp_path / name, 0) as writer:
            assert writer.write_ledger(3, digest_type, payloads) == (200, sum(map(len, PAYLOADS)))
            files.append(writer.finish()[0].read_bytes())
    assert files[0] == files[1]


def test_undo_keeps_the_ids_taken_and_can_be_undone(tmp_path: Path) -> None:
    path = copied("small", "clean", tmp_path)
    with open_store(path, writable=True) as store:
        written = write_ledgers(store, [(LedgerSpec({"component": b"managed-ledger"}), PAYLOADS)])
        (ledger,) = written.ledgers
        _apply(written)
        for wanted in (False, True):
            with store.read() as txn:
                number = len(list(txn.items("changes")))
                plan = plan_undo(txn, number)
            apply_plan(store, plan, NOW_MS)
            with open_reader(store) as reader:
                assert (read_ledger(reader.txn, ledger.ledger_id).metadata is not None) == wanted
                assert bytes(reader.read(ledger.ledger_id, 9).payload) == PAYLOADS[9]
        again = write_ledgers(store, [(LedgerSpec({"component": b"managed-ledger"}), PAYLOADS)])
        assert again.ledgers[0].ledger_id == ledger.ledger_id + 1


def test_nothing_is_left_when_a_payload_fails(tmp_path: Path) -> None:
    create_store(tmp_path / "s", now_ms=NOW_MS)
    with open_store(tmp_path / "s", writable=True) as store:
        with pytest.raises(LimitExceeded):
            write_ledgers(store, [(LedgerSpec({"component": b"managed-ledger"}), [b"x", b"y" * 6_000_000])])
        assert list((tmp_path / "s" / "entries").iterdir()) == []
        one = [(LedgerSpec({"component": b"managed-ledger"}), [b"x"])]
        with pytest.raises(StalePlan), write_ledgers(store, one) as written:
            apply_written(written, Plan(ChangeKind("test", "test"), 10**6, (), (ChangePart(),)), NOW_MS)
        assert list((tmp_path / "s" / "entries").iterdir()) == []


def test_an_id_is_taken_by_a_ledger_by_a_reference_and_by_one_written_with_it(tmp_path: Path) -> None:
    path = copied("small", "clean", tmp_path)
    value = read_rows(path, lambda txn: read_node(txn, PLAIN).value)
    put_node(path, PLAIN, _stranger_in_list(value))  # a reference to a ledger that is not there
    lose_nodes(path, "/managed-ledgers/acme/orders/")  # whose ledgers nothing references then
    spec = LedgerSpec({"component": b"managed-ledger"})
    with open_store(path, writable=True) as store:
        with store.read() as txn:
            alone = [one for one in sorted_ledger_ids(txn) if find_metadata(txn, one) and not find_owners(txn, one)]
        for ids in ([alone[0]], [1_000_000], [7_000_000, 7_000_000]):
            with pytest.raises(Refused, match=f"ledger {ids[0]} is in this store already"):
                write_ledgers(store, [(replace(spec, ledger_id=one), [b"x"]) for one in ids])
        assert [*(path / "entries").iterdir()] == []


_WRITING = (
    "topics set-message-ttl public/default/plain --ttl 60",
    "topics delete public/default/plain --force",
    "schemas delete public/default/json",
    "compaction run acme/orders/compacted --from-start",
    "topics load dump --topic public/default/again",
)


def test_no_command_leaves_files_when_what_follows_fails(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ledgers are on disk before the change that names them is planned."""
    monkeypatch.chdir(tmp_path)
    path = copied("small", "clean", tmp_path)
    for line in (_WRITING[0], "topics dump public/default/json --level entries --directory dump"):
        assert cli("--store", path, *line.split()).exit_code == 0
    before = sorted((path / "entries").iterdir())

    def full(*_: object) -> NoReturn:
        raise DiskFull("no room for the metadata")

    monkeypatch.setattr(WrittenLedgers, "steps", full)
    for line in (_WRITING[0].replace("60", "61"), *_WRITING[1:]):
        result = cli("--store", path, "--yes", *line.split())
        assert (result.exit_code, "no room for the metadata" in result.stderr) == (8, True), (line, result)
        assert sorted((path / "entries").iterdir()) == before, line


@pytest.mark.parametrize("stop", ["written", "indexed"])
def test_a_killed_process_leaves_an_orphan_file_at_most(tmp_path: Path, stop: str) -> None:
    """The process dies after the bytes are durable, or inside the transaction that would point at them."""
    create_store(tmp_path / "s", now_ms=NOW_MS)
    child = os.fork()
    if child == 0:
        store = open_store(tmp_path / "s", writable=True)
        written = write_ledgers(store, [(LedgerSpec({"component": b"managed-ledger"}), PAYLOADS)])
        if stop == "indexed":
            store.write(lambda txn: (written.index(txn), os.kill(os.getpid(), signal.SIGKILL)))
        os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    with open_store(tmp_path / "s", writable=True) as store:
        assert _strays(store) == ["own-1.log"]
        with store.read() as txn:
            assert find_own_ledgers(txn) is None
            assert largest_ledger_id(txn) == -1
        written = write_ledgers(store, [(LedgerSpec({"component": b"managed-ledger"}), PAYLOADS)])
        assert [path.name for path in written.files] == ["own-2.log"]
        assert [ledger.ledger_id for ledger in written.ledgers] == [0]
        _apply(written)
        with open_reader(store) as reader:
            assert bytes(reader.read(0, 5).payload) == PAYLOADS[5]


def test_the_sequence_after_an_export() -> None:
    own = OwnLedgers(70_000, 70_010)
    assert sequence_after_export(own, 300, "target") == 70_010
    assert sequence_after_export(own, 70_000, "target") == 70_010
    assert sequence_after_export(own, 70_010, "target") == 70_010
    with pytest.raises(StalePlan):
        sequence_after_export(own, 70_001, "target")


def test_a_log_takes_what_fits_to_the_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entrylog, "LOG_LIMIT_BYTES", entrylog.HEADER_BYTES + 2 * (4 + 20))
    left: list[bytes | memoryview] = []
    entries = log_files.LoggedEntries()
    assert len([*entries.taken(iter([bytes(20)] * 3), left)]) == 2
    assert (left, entries.positions.tolist()) == ([bytes(20)], [1028, 1052])
