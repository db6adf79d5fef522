"""``topics why --disk`` and ``store usage --why``: every byte once, and its reason by what a broker said of the topic."""

import shlex
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pulsar_admin.store.codec.cursor import CursorInfo
from pulsar_admin.store.codec.logscan import Record, iter_records
from pulsar_admin.store.codec.managedledger import LedgerInfo, ManagedLedger, encode_managed_ledger
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.db.ledger_ids import put_next_ledger_id
from pulsar_admin.store.doctor.why import WhyBytes, why_bytes
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.model.topics import read_topic
from pulsar_admin.store.names import Position, parse_topic
from pulsar_admin.store.rules.holders import HOLDERS
from pulsar_admin.store.rules.topics import TOPIC_RULES
from tests.conftest import Cli
from tests.live.comparing import place
from tests.stores import NOW_MS as IMPORTED_MS
from tests.stores import copied, imported, lose_nodes, put_node, write_rows
from tests.synthetic import CREATED_MS, Made, MadeTopic, make_store
from tests.why.planted import HOUR_MS
from tests.worlds import CLUSTER, oracle, world

Json = Any  # a JSON value
NAME = "public/default/kept"
NOW_MS = CREATED_MS + 10 * HOUR_MS


def record_bytes(name: str, state: str) -> Counter[int]:
    """Bytes of each ledger's records in the entry logs, by the reference reader."""
    found: Counter[int] = Counter()
    for log in (world(name) / state / "bookkeeper" / "current").glob("*.log"):
        for item in iter_records(log.read_bytes(), log.name) if log.stat().st_size else ():
            if isinstance(item, Record) and item.ledger_id >= 0:
                found[item.ledger_id] += 4 + item.size
    return found


def expected_codes(stats: Json, retention: Json) -> dict[int, str]:
    """What holds each ledger of a topic, from what its broker said: cursors, and a retention that is infinite or none."""
    marks = [place(cursor["markDeletePosition"]) for cursor in stats["cursors"].values()]
    ledgers, codes = stats["ledgers"], {}
    for ledger in ledgers[:-1]:
        end = (ledger["ledgerId"], ledger["entries"] - 1)
        is_needed = any(mark < end for mark in marks) or "cursor" in codes.values()
        infinite = bool(retention) and retention["retentionTimeInMinutes"] < 0 and retention["retentionSizeInMB"] < 0
        codes[ledger["ledgerId"]] = "cursor" if is_needed else "retention" if infinite else "trim-due"
    codes[ledgers[-1]["ledgerId"]] = "open-ledger"
    return codes


@pytest.mark.parametrize("name", ["small", "nometa"])
def test_every_byte_of_a_recorded_store(name: str) -> None:
    with open_store(imported(name, "mutated")) as store, open_reader(store) as reader:
        found = why_bytes(reader, IMPORTED_MS)
    files = sum(
        path.stat().st_size for path in (world(name) / "mutated" / "bookkeeper" / "current").glob("*.[lt][ox][gn]")
    )
    assert found.bytes == files
    assert sum(row.bytes for row in found.held) == sum(row.bytes for row in found.totals) == found.bytes
    assert sum(row.percent for row in found.totals) == pytest.approx(100, abs=0.1)
    for row in found.held:
        if row.reason.code in ("dead-log", "dead-in-log"):
            assert (row.reason.evidence["path"], row.reason.evidence["deadLedgers"]) == (row.path, row.ledgers)
    sizes, answers = record_bytes(name, "mutated"), oracle(name)
    compared = 0
    for topic, told in answers["topics"].items():
        if "secure" in topic:  # those were trimmed while the broker stopped
            continue
        policies = answers["namespaces"][topic.rpartition("/")[0]]["policies"]
        expected: Counter[str] = Counter()
        for ledger_id, code in expected_codes(told["internal_stats_after"], policies.get("retention_policies")).items():
            expected[code] += sizes[ledger_id]
        rows = [row for row in found.held if row.topic == f"persistent://{topic}" and row.reason.code in expected]
        got = Counter({row.reason.code: row.bytes for row in rows})
        assert got == +expected, topic
        compared += bool(+expected)
        for row in rows:
            if row.reason.code == "cursor":
                cursors = told["internal_stats_after"]["cursors"]
                slowest = min(place(cursor["markDeletePosition"]) for cursor in cursors.values())
                assert place(row.reason.evidence["markDelete"]) == slowest
    assert compared > 15


def kept(path: Path, cursors: dict[str, tuple[int, int]], policies: bytes = b"") -> Path:
    """A topic of ledgers 10, 11 (closed at CREATED_MS) and 12, the last one, ten entries each."""
    infos = {name: CursorInfo(-1, Position(*at)) for name, at in cursors.items()}
    ledgers = [[Made(CREATED_MS, payload=b"x" * 100)] * 10 for _ in range(3)]
    make_store(path, {NAME: MadeTopic(ledgers, cursors=infos)})
    if policies:
        put_node(path, "/admin/policies/public/default", policies)
    return path


def why(path: Path, *, of_topic: bool = False) -> WhyBytes:
    with open_store(path) as store, open_reader(store) as reader:
        return why_bytes(reader, NOW_MS, (parse_topic(NAME),) if of_topic else None)


def codes_of(found: WhyBytes) -> dict[str, int]:
    return {row.reason.code: row.ledgers for row in found.held if row.reason.code != "overhead"}


def retention(minutes: int, size_mb: int) -> bytes:
    return b'{"retention_policies": {"retentionTimeInMinutes": %d, "retentionSizeInMB": %d}}' % (minutes, size_mb)


@pytest.mark.parametrize(
    ("cursors", "policies", "expected"),
    [
        ({"slow": (10, 4), "fast": (12, 9)}, b"", {"cursor": 2, "open-ledger": 1}),
        ({"slow": (10, 9), "fast": (12, 9)}, b"", {"trim-due": 1, "cursor": 1, "open-ledger": 1}),
        ({"slow": (12, 9)}, b"", {"trim-due": 2, "open-ledger": 1}),
        ({}, b"", {"trim-due": 2, "open-ledger": 1}),
        ({"slow": (12, 9)}, retention(24 * 60, 0), {"trim-due": 2, "open-ledger": 1}),
        ({"slow": (12, 9)}, retention(24 * 60, -1), {"retention": 2, "open-ledger": 1}),
        ({"slow": (12, 9)}, retention(60, -1), {"trim-due": 2, "open-ledger": 1}),
        ({"slow": (12, 9)}, retention(-1, 1), {"retention": 2, "open-ledger": 1}),
        ({"slow": (11, 9)}, retention(-1, -1), {"retention": 2, "open-ledger": 1}),
        ({"slow": (10, 9)}, retention(-1, -1), {"retention": 1, "cursor": 1, "open-ledger": 1}),
    ],
)
def test_planted_holders(
    cursors: dict[str, tuple[int, int]], policies: bytes, expected: object, tmp_path: Path
) -> None:
    path = kept(tmp_path / "s", cursors, policies)
    assert codes_of(why(path)) == expected
    assert codes_of(why(path, of_topic=True)) == expected


@pytest.mark.parametrize(("threshold", "codes"), [(0, {"trim-due": 2}), (1, {"cursor": 2})])
def test_ledgers_that_compaction_is_to_read_first(
    threshold: int, codes: dict[str, int], tmp_path: Path, cli: Cli
) -> None:
    """A broker creates compaction's cursor at the beginning when it loads the topic (``preCreateSubscriptionForCompactionIfNeeded``)."""
    path = kept(tmp_path / "s", {"done": (12, 9)}, b'{"compaction_threshold": %d}' % threshold)
    assert codes_of(why(path)) == {**codes, "open-ledger": 1}
    held = cli.on(path, "-o json overview").json["held"]
    assert {code.removesuffix("-due") for code in codes} == held.keys() - {"open-ledger"}
    gone = cli.on(path, f"-o json topics unsubscribe {NAME} -s done --dry-run").json
    assert ("__compaction" in str(gone)) == bool(threshold)


def test_ledgers_that_are_offloaded_too(tmp_path: Path) -> None:
    """The first one is in tiered storage, and the deletion lag keeps it on bookies, which a cursor would not."""
    path = kept(tmp_path / "s", {"done": (12, 9)})
    with open_store(path) as store, open_reader(store) as reader:
        first, *others = read_topic(reader.txn, parse_topic(NAME)).managed.ledgers
    offloaded = replace(first, offloaded=True, offload_uuid="0f9c8f5e-9d0f-4a3a-9b8e-3f1f8a6d2c11")
    put_node(path, parse_topic(NAME).path, encode_managed_ledger(ManagedLedger((offloaded, *others))))
    assert codes_of(why(path)) == {"offloaded": 1, "trim-due": 1, "open-ledger": 1}
    (row,) = (row for row in why(path).held if row.reason.code == "offloaded")
    assert row.reason.evidence["firstLedger"] == row.reason.evidence["lastLedger"] == first.ledger_id


def test_ledgers_of_a_topic_that_cannot_be_read(tmp_path: Path, damages_stores: None) -> None:
    path = kept(tmp_path / "s", {"slow": (10, 4)})
    held = {row.reason.code: row.bytes for row in why(path).held}
    put_node(path, parse_topic(NAME).path, b"\xff")
    found = {row.reason.code: row for row in why(path).held}
    assert found["topic-unreadable"].ledgers == 3
    assert found["topic-unreadable"].topic == f"persistent://{NAME}"
    assert found["topic-unreadable"].reason.evidence["topic"] == f"persistent://{NAME}"
    assert found["topic-unreadable"].reason.evidence["subscription"] == ""
    assert found["topic-unreadable"].bytes == held["cursor"] + held["open-ledger"]


def test_when_retention_lets_go(tmp_path: Path) -> None:
    """Closed ten hours ago and kept for a day: in fourteen hours."""
    found = why(kept(tmp_path / "s", {"slow": (12, 9)}, retention(24 * 60, -1)))
    row = next(row for row in found.held if row.reason.code == "retention")
    assert "Retention (1d, any size, set by the namespace) keeps 2 ledgers" in row.reason.sentence
    assert "(in 14h)" in row.reason.sentence


def test_how_much_more_retention_takes(tmp_path: Path, cli: Cli) -> None:
    """A broker deletes the first ledger once those behind it are a megabyte."""
    path = kept(tmp_path / "s", {"slow": (12, 9)}, retention(-1, 1))
    stats = cli.json(path, f"topics stats-internal {NAME}")
    row = next(row for row in why(path).held if row.reason.code == "retention")
    more = (1 << 20) - stats["ledgers"][1]["size"] - stats["currentLedgerSize"]
    assert "Retention (forever, 1 MB, set by the namespace) keeps" in row.reason.sentence
    assert f"when {more:,} bytes more are written" in row.reason.sentence


def test_deleted_ledgers_stay_with_the_last_that_lives(tmp_path: Path, damages_stores: None) -> None:
    path = kept(tmp_path / "s", {"slow": (12, 9)})
    put_node(path, parse_topic(NAME).path, encode_managed_ledger(ManagedLedger((LedgerInfo(12),))))
    assert lose_nodes(path, "/ledgers/00/0000/L0010", "/ledgers/00/0000/L0011") == 2
    found = why(path, of_topic=True)
    row = next(row for row in found.held if row.reason.code == "dead-in-log")
    assert (row.ledgers, row.reason.evidence["liveLedger"]) == (2, 12)
    assert "ledger 12 alone lives" in row.reason.sentence
    put_node(path, parse_topic(NAME).path, encode_managed_ledger(ManagedLedger()))
    assert lose_nodes(path, "/ledgers/00/0000/L0012") == 1
    assert codes_of(why(path)) == {"dead-log": 3}
    assert why(path, of_topic=True).bytes == 0


def test_what_nothing_shows_to_be_deleted_is_not_dead(tmp_path: Path, damages_stores: None) -> None:
    """A ledger that its topic still lists; one that is newer than the metadata; any, where the metadata does not say what it gave."""
    path = kept(tmp_path / "s", {"slow": (12, 9)})
    assert lose_nodes(path, "/ledgers/00/0000/L0010") == 1
    assert "dead-in-log" not in codes_of(why(path))
    put_node(path, parse_topic(NAME).path, encode_managed_ledger(ManagedLedger((LedgerInfo(11),))))
    assert lose_nodes(path, "/ledgers/00/0000/L0012") == 1
    write_rows(path, lambda txn: put_next_ledger_id(txn, 12))
    assert (codes_of(why(path))["unlisted"], codes_of(why(path))["dead-in-log"]) == (1, 1)
    write_rows(path, lambda txn: put_next_ledger_id(txn, None))
    assert (codes_of(why(path))["unlisted"], "dead-in-log" in codes_of(why(path))) == (2, False)


def test_what_nothing_references(tmp_path: Path, damages_stores: None) -> None:
    path = kept(tmp_path / "s", {"slow": (12, 9)})
    assert lose_nodes(path, "/managed-ledgers/public/default/persistent/kept") == 2
    assert codes_of(why(path)) == {"orphan": 3}


def test_top_and_shapes(cli: Cli) -> None:
    store = imported("small", "clean")
    arguments = ("--store", store, "store", "usage", "--why", "--now", "2026-11-21T12:00:00Z")
    document = cli(*arguments, "-o", "json").json
    assert set(HOLDERS) >= {row["reason"]["code"] for row in document["held"]}
    top = cli(*arguments, "--top", "3", "-o", "json").json
    assert top["held"] == document["held"][:3]
    assert top["totals"] == document["totals"]
    assert f"the 3 largest of {document['holders']} holders" in cli(*arguments, "--top", "3").stdout
    assert len(cli(*arguments, "-o", "csv").stdout.splitlines()) == 1 + len(document["held"])
    assert cli(*arguments, "--sort", "BYTES").exit_code == 2
    assert len(cli("--store", store, "store", "usage", "--top", "3").stdout.splitlines()) == 1 + 3
    assert cli("--store", store, "topics", "why", "public/default/plain").exit_code == 0  # of all its subscriptions
    assert cli("--store", store, "topics", "why", "public/default/plain", "-s", "half", "--disk").exit_code == 2


def test_commands_about_the_policies_of_a_partition_name_its_topic(tmp_path: Path, cli: Cli) -> None:
    """Upstream refuses topic policies of a partition."""
    store = copied(CLUSTER, "crashed", tmp_path)
    one = "acme/orders/parts-partition-1"
    cli.on(store, "topics create-subscription acme/orders/parts -s late -m earliest").ends(0)
    cli.on(store, "namespaces set-backlog-quota acme/orders -l 1G -p producer_exception").ends(0)
    cli.on(store, "topics create-subscription acme/orders/parts -s done -m latest").ends(0)
    (reason,) = (row for row in cli.json(store, f"topics why {one} -s late")["reasons"] if row["code"] == "quota-left")
    cli("--store", store, *shlex.split(reason["command"])[1:]).ends(0)
    cli.on(store, "topics unsubscribe acme/orders/parts -s late -f").ends(0)
    kept = [
        row["reason"]
        for row in cli.json(store, f"topics why {one} --disk")["held"]
        if row["reason"]["code"] == "retention"
    ]
    assert kept
    cli("--store", store, *shlex.split(kept[0]["command"])[1:]).ends(0)
    said = (rule.command({"topic": f"persistent://{one}"}) for rule in TOPIC_RULES if rule.code == "delay-beyond-ttl")
    assert [*said] == ["pulsar-admin topics set-message-ttl persistent://acme/orders/parts -t 0"]
