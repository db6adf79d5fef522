"""The numbers of plain topics are those that their facts give, on recorded worlds and beside damaged rows."""

import random
import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from pulsar_admin.store.codec.cursor import CursorInfo, CursorState, encode_cursor_info
from pulsar_admin.store.codec.ledgermetadata import LedgerState, decode_ledger_metadata, encode_ledger_metadata
from pulsar_admin.store.codec.schema import (
    TYPE_NUMBERS,
    IndexEntry,
    SchemaEntry,
    SchemaLocator,
    encode_schema_entry,
    encode_schema_locator,
)
from pulsar_admin.store.db.environment import Txn, open_store
from pulsar_admin.store.db.tree import Node, iter_nodes, put_nodes
from pulsar_admin.store.facts import values
from pulsar_admin.store.facts.numbers import PlainTopics, numbers_of
from pulsar_admin.store.facts.topics import TopicFacts
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.model.topics import iter_topics, read_topic
from pulsar_admin.store.names import Position, parse_topic
from tests.compaction.entries import Batch, Slot, compacted, entry
from tests.conftest import Cli
from tests.rules.test_quiet import damage_drawn
from tests.stores import NOW_MS, copied, imported, put_node, write_rows
from tests.synthetic import CREATED_MS, Made, MadeCompacted, MadeTopic, ledger_node, make_store
from tests.worlds import STATES

_LONG_AGO_MS = 1_600_000_000_000
_PLAIN = "public/default/persistent/plain"
_ENDS = ("-1", "-1-partition-0", "-2", "-", "*", "0", "a")


def _compare(store: Path) -> int:
    """Compare the numbers of plain topics with those of their facts, and return how many there are."""
    count = 0
    with open_store(store) as opened:
        for now_ms in (NOW_MS, _LONG_AGO_MS):
            with open_reader(opened) as reader, reader.txn.passing_altered():
                plain = PlainTopics(reader.txn, now_ms)
                for name in iter_topics(reader.txn):
                    found = plain.find(name)
                    if found is not None:
                        count += 1
                        facts = TopicFacts(reader, read_topic(reader.txn, name), now_ms)
                        assert found == numbers_of(facts), name
    return count


@pytest.mark.parametrize("state", STATES)
def test_numbers_of_recorded_worlds(state: str) -> None:
    assert _compare(imported("small", state)) > 20


@pytest.mark.usefixtures("damages_stores")
@pytest.mark.parametrize("limit_bytes", [1 << 20, 1500])
@pytest.mark.parametrize("state", STATES)
def test_nodes_that_are_read_ahead_are_those_of_each_topic(
    state: str, limit_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of topics between whose node and cursors others lie: "t-1" is before "t/cursor"."""
    store = copied("small", state, tmp_path)
    write_rows(store, _add_names_that_begin_alike)
    monkeypatch.setattr(values, "_AHEAD_BYTES", limit_bytes)
    with open_store(store) as opened, open_reader(opened) as reader:
        txn = reader.txn
        paths = [name.path for name in iter_topics(txn)]
        expected = {path: values._read_plain_nodes(txn, path) for path in paths}
        for count in (1, 2, 3, 256):
            monkeypatch.setattr(values, "_AHEAD", count)
            read = dict[str, values.PlainNodes]()
            for _ in values.read_ahead(txn, iter_topics(txn)):
                read |= txn.memo[values.read_ahead]
            assert read == {path: nodes for path, nodes in expected.items() if path in read}
            assert count < 3 or len(read) > 5


def _add_names_that_begin_alike(txn: Txn) -> None:
    """Add topics like an existing one with cursors."""
    nodes = [*iter_nodes(txn, f"/managed-ledgers/{_PLAIN}")]
    assert len(nodes) > 1
    root = f"/managed-ledgers/{_PLAIN}"
    put_nodes(txn, [Node(node.path.replace(root, root + end), *node[1:]) for end in _ENDS for node in nodes])


@pytest.mark.parametrize("world", ["policies", "shapes", "compacted"])
def test_numbers_of_other_worlds(world: str) -> None:
    assert _compare(imported(world, "clean")) > 0


@pytest.mark.parametrize("seed", range(3))
def test_numbers_beside_damaged_rows(seed: int, store: Path) -> None:
    damage_drawn(store, random.Random(seed))
    assert _compare(store) > 10


_EDGES = [Position(ledger_id, entry_id) for ledger_id in (9, 10, 11, 12, 13) for entry_id in (-1, 0, 9, 10)]


@pytest.mark.parametrize("counts", [(10, 10, 10), (10, 10, 0), (0, 0, 0)])
def test_numbers_at_every_edge_of_a_ledger(counts: tuple[int, ...], tmp_path: Path) -> None:
    """Cursors before, in and after the ledgers 10, 11 and 12, with and without a range that begins or ends at such an edge."""
    ledgers = [[Made(_LONG_AGO_MS)] * count for count in counts]
    store = make_store(tmp_path / "s", {"public/default/t": MadeTopic(ledgers)})
    path, found = parse_topic("public/default/t").cursor_path("s"), 0
    for mark in _EDGES:
        ranges = [((edge, Position(edge.ledger_id, edge.entry_id + 2)),) for edge in _EDGES if mark < edge]
        for ranged in ((), *ranges):
            put_node(store, path, encode_cursor_info(CursorInfo(-1, mark, ranged)))
            found += _compare(store)
    assert found > 100


_FAR = 113  # takes one byte in protobuf, as 0 does
_QUESTIONS = """store check; doctor; overview; store usage; store usage --why; store usage --by log; ledgers list; ledgers verify; \
ledgers info {ledger}; ledgers entries {ledger}; store owner {ledger}; compaction status a/b/c; compaction read a/b/c; \
compaction verify a/b/c; compaction run a/b/c --from-start --dry-run; topics describe a/b/c; topics stats a/b/c; \
topics stats-internal a/b/c; topics info-internal a/b/c; topics subscriptions a/b/c --table; topics read a/b/c -n 9; \
topics why a/b/c -s s; topics why a/b/c -s t; topics why a/b/c --disk; topics analyze-backlog a/b/c -s s; \
topics get-message-by-id a/b/c -l {data} -e 0; topics find-by-time a/b/c --time @1700000000000; topics last-message-id a/b/c; \
topics subscription-history a/b/c -s s; topics peek-messages a/b/c -s s -n 3; topics unsubscribe a/b/c -s s --dry-run; \
topics reset-cursor a/b/c -s s -m {data}:3 --dry-run; topics delete a/b/c --force --dry-run; topics trim-topic a/b/c --dry-run; \
bookkeeper readlog 0 -l {ledger}; bookkeeper readlog 0 -l {ledger} -e 0; schemas get a/b/c; \
schemas metadata a/b/c; schemas delete a/b/c --dry-run; bookkeeper readlog 0"""


def _told(path: Path, cli: Cli, role: str, first: int) -> str:
    """What is told of a topic with a cursor ledger and a compacted one; the ledgers of ROLE count from FIRST, the others are larger."""
    at = {"data": 120, "cursor": 125, "compacted": 126, "schema": 127} | {role: first}
    payloads = [entry(Batch([Slot(key, b"v")], alone=True), number) for number, key in enumerate("ab")]
    horizon = Position(at["data"], 1)
    topic = MadeTopic(
        [[Made(CREATED_MS, raw=payload) for payload in payloads * 2]] * 3,
        cursors={"s": CursorInfo(at["cursor"]), "t": CursorInfo(-1, Position(at["data"], 2))},
        compacted=MadeCompacted(
            at["compacted"], [compacted(at["data"], number, one) for number, one in enumerate(payloads)], horizon
        ),
    )
    mark = Position(at["data"], 0)
    state = CursorState(mark, ranges=((Position(at["data"], 1), Position(at["data"], 2)),))
    schema = encode_schema_entry(SchemaEntry("c", "me", TYPE_NUMBERS["STRING"], b"", CREATED_MS, deleted=False))
    make_store(path, {"a/b/c": topic}, {at["cursor"]: state, at["schema"]: schema}, first=at["data"])
    version = IndexEntry(0, Position(at["schema"], 0), bytes(32))
    put_node(path, "/schemas/a/b/c", encode_schema_locator(SchemaLocator(version, (version,))))
    node = ledger_node(at["cursor"], 0, 0)
    metadata = decode_ledger_metadata(node.value, node.path)
    put_node(path, node.path, encode_ledger_metadata(replace(metadata, state=LedgerState.OPEN, last_entry_id=-1)))
    told = ""
    for line in _QUESTIONS.format(**at, ledger=at[role]).split("; "):
        done = cli.on(path, f"{line} -o json --now @1700000100000")
        assert done.exit_code in (0, 1), line
        told += f"\n$ {line}\n{done.exit_code}\n{done.stdout}{done.stderr}".replace(str(path), "")
    for number in range(3) if first else ():
        pattern = rf"\b(L0*)?{first + number}\b"
        told = re.sub(pattern, lambda found, to=number: f"L{to:04}" if found[1] else str(to), told)
    return told


@pytest.mark.parametrize("role", ["data", "cursor", "compacted", "schema"])
def test_the_first_ledger_of_a_cluster_is_one_as_any(role: str, cli: Cli, tmp_path: Path) -> None:
    assert _told(tmp_path / "zero", cli, role, 0) == _told(tmp_path / "far", cli, role, _FAR)
