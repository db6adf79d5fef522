"""The files of a generated cluster are a bookie's and a metadata store's own: every digest, row, map and mark agrees."""

from __future__ import annotations

import hashlib
from itertools import pairwise
from pathlib import Path

import google_crc32c
import pytest

from bench.generate.cluster import apply_generate
from bench.generate.spec import ClusterSpec, Span, TopicSpec
from pulsar_admin.store.codec.bookie import decode_last_id
from pulsar_admin.store.codec.dbledger import decode_location_row
from pulsar_admin.store.codec.entrylog import Record, decode_header, decode_ledgers_map, iter_records, log_file_name
from pulsar_admin.store.codec.interceptors import parse_interceptors
from pulsar_admin.store.codec.ledgermetadata import LedgerState, decode_ledger_metadata, ledger_id_of_path
from pulsar_admin.store.codec.rocksvalue import decode_value
from pulsar_admin.store.names import parse_topic
from pulsar_admin.store.sources.rocksdb import open_for_reading
from tests.bench.generate.conftest import Make
from tests.bench.generate.test_contents import CLUSTERS
from tests.decoders import decode_ledgers_row

EVERYTHING = CLUSTERS["everything"]


def _records(root: Path) -> dict[tuple[int, int], tuple[int, int, bytes]]:
    """(ledger, entry) → (log id, offset of the size field, body)."""
    found = {}
    for path in sorted((root / "bookkeeper" / "current").glob("*.log")):
        data = memoryview(path.read_bytes())
        for item in iter_records(data, path.name):
            assert isinstance(item, Record)
            body = bytes(data[item.offset + 4 : item.offset + 4 + item.size])
            if item.ledger_id >= 0:
                found[item.ledger_id, item.entry_id] = (int(path.stem, 16), item.offset, body)
    return found


def _metadata(root: Path) -> dict[str, bytes]:
    with open_for_reading(root / "metadata") as items:
        return {key.decode(): value for key, value in items}


def test_both_checksums_of_every_entry_are_right(make: Make) -> None:
    for _, _, body in _records(make(EVERYTHING).root).values():
        assert int.from_bytes(body[32:36], "big") == google_crc32c.value(body[:32] + body[36:])
        payload = body[36:]
        assert payload[:2] == b"\x0e\x02"
        payload = payload[6 + int.from_bytes(payload[2:6], "big") :]
        assert payload[:2] == b"\x0e\x01"
        assert int.from_bytes(payload[2:6], "big") == google_crc32c.value(payload[6:])


def test_every_location_row_points_at_its_record(make: Make) -> None:
    root = make(EVERYTHING).root
    records = _records(root)
    with open_for_reading(root / "bookkeeper" / "current" / "locations") as items:
        rows = [decode_location_row(key, value, "locations") for key, value in items]
    assert [(row.ledger_id, row.entry_id) for row in rows] == sorted(records)
    assert all(records[row.ledger_id, row.entry_id][:2] == (row.log_id, row.pos - 4) for row in rows)


@pytest.mark.parametrize("entries", [1, 606, 607, 1213, 77_568])
def test_location_rows_at_the_edges_of_log_blocks(entries: int, tmp_path: Path) -> None:
    topic = TopicSpec(parse_topic("t"), entries=entries, size=Span(0, 0), rate=1e6)
    apply_generate(tmp_path / "made", ClusterSpec(1, (topic,), "/data"))
    with open_for_reading(tmp_path / "made" / "bookkeeper" / "current" / "locations") as items:
        rows = [decode_location_row(key, value, "locations") for key, value in items]
    assert [(row.ledger_id - 1) * 50_000 + row.entry_id for row in rows] == list(range(entries))
    assert all(before.pos < after.pos for before, after in pairwise(rows))


def test_sealed_logs_have_their_map_and_the_newest_has_none(make: Make) -> None:
    root = make(EVERYTHING).root
    current = root / "bookkeeper" / "current"
    records = _records(root)
    logs = sorted(int(path.stem, 16) for path in current.glob("*.log"))
    assert logs == list(range(len(logs)))
    assert len(logs) == make(EVERYTHING).result.logs > 3
    assert decode_last_id((current / "lastId").read_bytes(), "lastId") == logs[-1]
    for log in logs:
        data = (current / log_file_name(log)).read_bytes()
        header = decode_header(data, str(log))
        if log == logs[-1]:
            assert header.ledgers_map_offset == header.ledgers_count == 0
            continue
        expected: dict[int, int] = {}
        for (ledger, _), (place, _, body) in records.items():
            if place == log:
                expected[ledger] = expected.get(ledger, 0) + 4 + len(body)
        assert decode_ledgers_map(data, header, str(log)) == expected
        assert header.ledgers_map_offset <= EVERYTHING.log_size_limit_bytes


def test_ledgers_are_known_to_bookie_and_metadata(make: Make) -> None:
    root = make(EVERYTHING).root
    records = _records(root)
    stored = {ledger for ledger, _ in records}
    with open_for_reading(root / "bookkeeper" / "current" / "ledgers") as items:
        assert {decode_ledgers_row(key, value)[0] for key, value in items} == stored
    listed = {}
    for path, raw in _metadata(root).items():
        ledger_id = ledger_id_of_path(path)
        if ledger_id is not None:
            listed[ledger_id] = decode_ledger_metadata(decode_value(raw, path)[1], path)
    assert stored <= set(listed)
    for ledger_id, metadata in listed.items():
        last = max((entry for ledger, entry in stored_entries(records, ledger_id)), default=-1)
        length = int.from_bytes(records[ledger_id, last][2][24:32], "big") if last >= 0 else 0
        assert (metadata.state, metadata.last_entry_id, metadata.length) == (LedgerState.CLOSED, last, length)
        assert metadata.segments[0].members == (EVERYTHING.bookie_id,)


def stored_entries(records: dict[tuple[int, int], object], ledger_id: int) -> list[tuple[int, int]]:
    return [place for place in records if place[0] == ledger_id]


def _bytes(root: Path) -> dict[str, str]:
    current = root / "bookkeeper" / "current"
    files = sorted(path for path in current.iterdir() if path.is_file())
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    for name in ("metadata", "bookkeeper/current/ledgers", "bookkeeper/current/locations"):
        with open_for_reading(root / name) as items:
            found[name] = hashlib.sha256(b"".join(key + value for key, value in items)).hexdigest()
    return found


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(make: Make, tmp_path: Path) -> None:
    first = _bytes(make(EVERYTHING).root)
    apply_generate(tmp_path / "again", EVERYTHING)
    assert _bytes(tmp_path / "again") == first
    other = ClusterSpec(**{name: getattr(EVERYTHING, name) for name in ClusterSpec.__slots__} | {"seed": 8})
    apply_generate(tmp_path / "other", other)
    assert _bytes(tmp_path / "other")["0.log"] != first["0.log"]


def test_interceptors_of_others_write_the_same_bytes(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel makes the metadata of the two known interceptors; others are asked entry by entry."""
    from pulsar_admin.store.codec import interceptors

    class Both:
        def __init__(self) -> None:
            self.clock = interceptors.AppendBrokerTimestampMetadataInterceptor()
            self.counter = interceptors.AppendIndexMetadataInterceptor()

        def intercept(self, entry: interceptors.BrokerEntry, append: interceptors.Append) -> interceptors.BrokerEntry:
            return self.counter.intercept(self.clock.intercept(entry, append), append)

    monkeypatch.setattr(interceptors, "_entry_points", lambda: {"both": Both})
    spec = ClusterSpec(
        **{name: getattr(EVERYTHING, name) for name in ClusterSpec.__slots__}
        | {"interceptors": parse_interceptors("both")}
    )
    apply_generate(tmp_path / "made", spec)
    first, second = _bytes(make(EVERYTHING).root), _bytes(tmp_path / "made")
    assert {name: second[name] for name in second if name != "metadata"} == {
        name: first[name] for name in first if name != "metadata"
    }
