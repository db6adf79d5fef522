"""The last message of a compacted view: every rule, on bytes; what is read for it; what is wrong with the data."""

import os
from pathlib import Path

import pytest

from pulsar_admin.store.codec.ledgermetadata import ledger_path
from pulsar_admin.store.compaction import last_id as rules
from pulsar_admin.store.compaction.last_id import LastId, find_last_id
from pulsar_admin.store.db.entry_files import EntryFiles
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.errors import EntryCorrupt, MetadataCorrupt, StoreError
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.model.topics import read_topic
from pulsar_admin.store.names import Position, parse_topic
from tests.compaction.entries import LZ4, NONE, PUBLISH_MS, SNAPPY, ZLIB, ZSTD, Batch, Slot, compacted, entry
from tests.conftest import Cli
from tests.stores import lose_nodes
from tests.synthetic import Made, MadeCompacted, MadeTopic, make_store
from tests.worlds import assert_unchanged

TOPIC = "public/default/t"
LEDGER = 77
VECTOR_6 = bytes.fromhex(
    "00000004 080a1003 00000031 0e011617538b 00000013 0a017010081880d095ffbc3148145802f80101"
    "0000000418002001 0000000612026b3118027631"
)
GONE = Slot(None, b"", compacted_out=True)
SEED = [Slot("k0", b"v0"), Slot("k0", b"v1"), Slot("k1", b"v0"), Slot("k1", None)]
SEED_LEGACY = [GONE, Slot("k0", b"v1"), GONE, Slot(None, None, compacted_out=True)]


def _made(path: Path, payloads: list[bytes], **fields: object) -> Path:
    """Return a store whose topic of four entries, 10:0 to 10:3, is compacted to its end into these entries."""
    made = MadeCompacted(LEDGER, payloads, Position(10, 3), **fields)  # type: ignore[arg-type]
    topic = MadeTopic([[Made(PUBLISH_MS, raw=entry(Batch(SEED))) for _ in range(4)]], compacted=made)
    return make_store(path / "pulsar-store", {TOPIC: topic})


def _last(store_path: Path, *, verify: bool = False, topic: str = TOPIC) -> LastId:
    with open_store(store_path) as store, open_reader(store) as reader:
        return find_last_id(reader, read_topic(reader.txn, parse_topic(topic)), verify=verify)


def _of(path: Path, *inner: Batch) -> LastId:
    payloads = [compacted(10, index, entry(batch)) for index, batch in enumerate(inner)]
    return _last(_made(path, payloads))


def test_example_of_the_proposal(tmp_path: Path) -> None:
    """k0, k0, k1, null of k1 in one LZ4 batch: message 1 is left, whichever way it was compacted."""
    legacy = _of(tmp_path / "a", Batch(SEED_LEGACY, LZ4))
    assert (legacy.position, legacy.rule, legacy.verified) == (Position(10, 0, 1), rules.BY_FLAGS, "digest")
    assert [(row.position.batch_index, row.reason) for row in legacy.rejected] == [
        (0, "compacted_out"),
        (2, "compacted_out"),
        (3, "compacted_out, a null value"),
    ]
    new = _of(tmp_path / "b", Batch([SEED[1]], LZ4, count=4, indexes=[1]))
    assert (new.position, new.rule, new.verified) == (Position(10, 0, 1), rules.BY_INDEXES, "structure")
    assert [row.position.batch_index for row in new.rejected] == [0, 2, 3]


@pytest.mark.parametrize("codec", [NONE, LZ4, ZLIB, ZSTD, SNAPPY])
def test_flags_in_every_codec(tmp_path: Path, codec: int) -> None:
    found = _of(tmp_path, Batch([GONE, Slot("a", b"x" * 500), Slot("b", b"y"), GONE], codec))
    assert (found.position.batch_index, found.batch_size, found.rule) == (2, 4, rules.BY_FLAGS)


def test_no_batch(tmp_path: Path) -> None:
    alone = _of(tmp_path / "a", Batch([Slot("k", b"v")], alone=True))
    assert (alone.position, alone.rule) == (Position(10, 0, -1), rules.SINGLE)
    one = _of(tmp_path / "b", Batch([Slot("k", b"v")], indexes=[0]))
    assert (one.position, one.rule) == (Position(10, 0, -1), rules.SINGLE)


def test_custom_compaction_service(tmp_path: Path) -> None:
    """Its payload is not a list of single messages: field 31 answers, and without it the number of messages does."""
    for number, payload in enumerate((b"\xff" * 40, b"\x00\x00\x00\x02{}", b"hello")):
        told = _of(tmp_path / f"a{number}", Batch(SEED, payload=payload, indexes=[0, 2]))
        assert (told.position, told.rule) == (Position(10, 0, 2), rules.BY_INDEXES)
        untold = _of(tmp_path / f"b{number}", Batch(SEED, payload=payload))
        assert (untold.position, untold.rule) == (Position(10, 0, 3), rules.OPAQUE)
    unpacked = _of(tmp_path / "c", Batch(SEED, LZ4, payload=b"\xf0no block"))
    assert (unpacked.position, unpacked.rule) == (Position(10, 0, 3), rules.OPAQUE)


def test_nothing_remains(tmp_path: Path) -> None:
    empty = _last(_made(tmp_path / "a", []))
    assert (empty.position, empty.publish_ms, empty.rule) == (Position(-1, -1, 0), 0, rules.NOTHING)
    all_out = _of(tmp_path / "b", Batch([GONE, GONE]))
    assert (all_out.position, all_out.rule) == (Position(-1, -1, 0), rules.NOTHING)
    earlier = _of(tmp_path / "c", Batch([Slot("k", b"v"), GONE]), Batch([GONE, GONE]))
    assert earlier.position == Position(10, 0, 0)
    never = make_store(tmp_path / "d", {TOPIC: MadeTopic([[]])})
    assert _last(never).position == Position(-1, -1, 0)


# -- behind the horizon -----------------------------------------------------------------------------------------------


def _tail(path: Path, *tail: bytes) -> LastId:
    """Return the last id of a topic with one compacted entry, 10:0, and these behind the horizon."""
    entries = [Made(PUBLISH_MS, raw=entry(Batch([Slot("k", b"v")], alone=True)))]
    entries += [Made(PUBLISH_MS, raw=raw) for raw in tail]
    made = MadeCompacted(LEDGER, [compacted(10, 0, entries[0].raw or b"")], Position(10, 0))
    return _last(make_store(path, {TOPIC: MadeTopic([entries], compacted=made)}))


def _transaction(number: int, marker: int | None = None, **fields: int) -> bytes:
    more = {"txnid_most_bits": 0, "txnid_least_bits": number, **fields}
    if marker is not None:
        more["marker_type"] = marker
    return entry(Batch([Slot("k", b"v")], alone=True, more=more))


def test_what_readers_never_get(tmp_path: Path) -> None:
    marker = entry(Batch([Slot(None, b"")], alone=True, more={"marker_type": 10}))
    found = _tail(tmp_path / "a", entry(Batch(SEED)), marker, marker)
    assert (found.position, [row.position.entry_id for row in found.rejected]) == (Position(10, 1, 3), [3, 2])
    aborted = _tail(tmp_path / "b", entry(Batch(SEED)), _transaction(1), _transaction(1, 22))
    assert aborted.position == Position(10, 1, 3)
    committed = _tail(tmp_path / "c", entry(Batch(SEED)), _transaction(1), _transaction(1, 21))
    assert committed.position == Position(10, 2)
    open_one = _tail(tmp_path / "d", _transaction(1), _transaction(2), _transaction(1, 21), _transaction(1, 21))
    assert open_one.position == Position(10, 1)
    damaged = _tail(tmp_path / "f", _transaction(1), b"\xff", _transaction(1), _transaction(1, 21))
    assert damaged.position == Position(10, 3)
    all_open = _tail(tmp_path / "e", _transaction(1))
    assert (all_open.position, all_open.rule) == (Position(10, 0), rules.SINGLE)


# -- what is read -----------------------------------------------------------------------------------------------------


@pytest.fixture
def bytes_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    lengths: list[int] = []
    read = EntryFiles.read

    def counting(self: EntryFiles, file_id: int, offset: int, length: int) -> bytes:
        lengths.append(length)
        return read(self, file_id, offset, length)

    monkeypatch.setattr(EntryFiles, "read", counting)
    return lengths


def test_payload_is_not_read(tmp_path: Path, bytes_read: list[int]) -> None:
    """From 1 KB to 5 MB, compressed, plain or encrypted: the same bytes are read."""
    amounts = set()
    for number, size in enumerate((1 << 10, 1 << 16, 5 << 20)):
        kinds = (
            Batch([Slot("a", b"z" * size)], LZ4, count=4, indexes=[2]),
            Batch([Slot("a", os.urandom(size))], count=4, indexes=[2]),
            Batch([], ZSTD, count=4, indexes=[2], encrypted=True, payload=os.urandom(size)),
        )
        for kind, batch in enumerate(kinds):
            store = _made(tmp_path / f"{number}{kind}", [compacted(10, 0, entry(batch))])
            bytes_read.clear()
            found = _last(store)
            assert (found.position, found.rule) == (Position(10, 0, 2), rules.BY_INDEXES)
            assert sum(bytes_read) == found.bytes_read
            amounts.add(sum(bytes_read))
    assert max(amounts) < 1100


def test_verify_reads_what_the_fast_path_leaves(tmp_path: Path) -> None:
    """A payload that changed on disk: the metadata still answers; --verify says that the entry is damaged."""
    store = _made(tmp_path, [compacted(10, 0, entry(Batch([Slot("a", b"q" * 9000)], count=4, indexes=[2])))])
    log = store / "entries" / "0.log"
    times = log.stat().st_atime_ns, log.stat().st_mtime_ns
    data = bytearray(log.read_bytes())
    at = data.rindex(b"q" * 4000)
    data[at] ^= 1
    log.write_bytes(data)
    os.utime(log, ns=times)
    assert _last(store).position == Position(10, 0, 2)
    with pytest.raises(EntryCorrupt, match="digest"):
        _last(store, verify=True)


# -- bad input --------------------------------------------------------------------------------------------------------

BAD_INDEXES = {
    "unsorted": ([2, 0], "0 is not ascending"),
    "doubled": ([1, 1], "1 is doubled"),
    "too large": ([0, 4], "4 is out of range"),
    "negative": ([-1, 2], "-1 is out of range"),
}


@pytest.mark.parametrize("case", BAD_INDEXES)
def test_bad_indexes(tmp_path: Path, case: str) -> None:
    indexes, text = BAD_INDEXES[case]
    with pytest.raises(EntryCorrupt, match=rf"entry 77:0: compacted_batch_indexes.*{text}"):
        _of(tmp_path, Batch([SEED[0], SEED[1]], count=4, indexes=indexes))


@pytest.mark.parametrize(("cut", "said"), [(None, "its framing says"), (-1, "its framing says"), (20, "its framing")])
def test_an_entry_has_the_length_that_its_framing_says(tmp_path: Path, cut: int | None, said: str) -> None:
    whole = compacted(10, 0, entry(Batch(SEED)))
    with pytest.raises(EntryCorrupt, match=f"entry 77:0.* bytes, {said}"):
        _last(_made(tmp_path / "s", [whole + b"x" if cut is None else whole[:cut]]))


@pytest.mark.parametrize("count", [2, 3, 5, 100])
def test_count_disagrees_with_the_payload(tmp_path: Path, count: int) -> None:
    with pytest.raises(EntryCorrupt, match=f"a batch of {count} messages holds 4"):
        _of(tmp_path, Batch(SEED_LEGACY, LZ4, count=count))


BAD_LEDGERS: dict[str, tuple[dict[str, object], type[StoreError], str]] = {
    "missing": ({"listed": False}, MetadataCorrupt, "compacted ledger 77 of .* is gone"),
    "another topic's": (
        {"claims": "persistent://public/default/u"},
        MetadataCorrupt,
        "names ledger 77, the compacted ledger of persistent://public/default/u",
    ),
    "cut": ({"lost": (0,)}, EntryCorrupt, "entry 77:0 is lost"),
}


@pytest.mark.parametrize("case", BAD_LEDGERS)
def test_bad_ledger(tmp_path: Path, case: str, cli: Cli) -> None:
    fields, error, text = BAD_LEDGERS[case]
    store = _made(tmp_path, [VECTOR_6], **fields)
    with pytest.raises(error, match=text):
        _last(store)
    with assert_unchanged(store / "entries"), assert_unchanged(store / "meta" / "data.mdb"):
        assert cli.on(store, f"compaction last-id {TOPIC} -o json").exit_code == 6
        assert cli.on(store, f"compaction read {TOPIC}").exit_code in (1, 6)
        assert cli.on(store, f"compaction status {TOPIC}").exit_code == 1


@pytest.mark.parametrize("at", [0, 3, 8, 40, 60])
def test_damaged_entry(tmp_path: Path, at: int, cli: Cli) -> None:
    """A bit that flipped before the ledger was written: its digest is right, and the framing or the checksum is not."""
    store = _made(tmp_path, [VECTOR_6[:at] + bytes([VECTOR_6[at] ^ 0x40]) + VECTOR_6[at + 1 :]])
    result = cli.on(store, f"compaction last-id {TOPIC} --verify -o json").ends(6)
    assert "77:0" in result.error["message"]


# -- commands ---------------------------------------------------------------------------------------------------------


def test_json_of_the_command(tmp_path: Path, cli: Cli) -> None:
    store = _made(tmp_path, [VECTOR_6])
    document = cli.json(store, f"compaction last-id {TOPIC}")
    assert document == {
        "topic": "persistent://public/default/t",
        "ledgerId": 10,
        "entryId": 3,
        "batchIndex": 1,
        "publishTime": PUBLISH_MS,
        "rule": "compacted-batch-indexes",
    }
    explained = cli.json(store, f"compaction last-id {TOPIC} --explain")
    assert explained["rejected"] == [
        {"ledgerId": 10, "entryId": 3, "batchIndex": 0, "why": "compacted_batch_indexes does not list it"}
    ]
    text = cli.on(store, f"compaction last-id {TOPIC} --explain").stdout
    assert "10:3:1" in text
    assert "not 10:3:0: compacted_batch_indexes does not list it" in text


def test_batch_that_claims_billions(tmp_path: Path) -> None:
    """What is listed as rejected is bounded; a count that contradicts the indexes is named."""
    slots = [Slot("k", b"v"), Slot("l", b"w")]
    found = _of(tmp_path / "a", Batch(slots, LZ4, count=2**31 - 1, indexes=[1, 5]))
    assert (found.position.batch_index, found.rule) == (5, rules.BY_INDEXES)
    assert [row.position.batch_index for row in found.rejected[:6]] == [0, 2, 3, 4, 6, 7]
    assert len(found.rejected) == rules.LISTED_MAX
    for count in (-5, 0, 1):
        with pytest.raises(EntryCorrupt, match="out of range"):
            _of(tmp_path / f"b{count}", Batch(slots, count=count, indexes=[0, 2]))


def test_a_view_without_metadata_of_its_ledger_is_read_and_told(tmp_path: Path, cli: Cli, damages_stores: None) -> None:
    path = tmp_path / "s"
    _tail(path)
    asked = ("last-id", "read", "find-by-time --time @1700000000000", "explain --key k", "run --dry-run")
    before = [cli.on(path, f"compaction {words} {TOPIC} -o json") for words in asked]
    lose_nodes(path, ledger_path(LEDGER))
    for words, whole in zip(asked, before, strict=True):
        found = cli.on(path, f"compaction {words} {TOPIC} -o json")
        assert (whole.exit_code, found.exit_code, found.stdout) == (0, 1, whole.stdout), words
        assert f"compacted ledger {LEDGER} is" in found.stderr
