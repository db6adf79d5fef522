"""Nothing is silently empty: a name that is not there, and a number of another unit, raise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

import pulsar_admin as pa
from tests.conftest import Cli
from tests.stores import NOW_MS, imported

Ask = Callable[[pa.Store], object]
ALL_HASHES = "0x00000000_0xffffffff"


@pytest.fixture
def store() -> Iterator[pa.Store]:
    with pa.open_store(imported("small", "clean"), now=NOW_MS) as opened:
        yield opened


NAMES: list[tuple[type[pa.StoreError], Ask]] = [
    (pa.NothingMatches, lambda store: [*store.ledger_rows("nope/ns")]),
    (pa.EntryNotFound, lambda store: [*store.ledger(9).entries(first=25)]),
    (pa.SubscriptionNotFound, lambda store: store.nacks("nope").due()),
    (pa.SubscriptionNotFound, lambda store: store.nacks("nope", "plain").stats()),
    (pa.SubscriptionNotFound, lambda store: store.nacks("nope").pop()),
    (pa.PathNotFound, lambda store: store.nodes("/nope")),
    (pa.TopicNotFound, lambda store: store.metrics(pattern="nope*")),
    (pa.TenantNotFound, lambda store: store.cluster("standalone").namespaces("nope")),
    (pa.TenantNotFound, lambda store: store.cluster("standalone").anti_affinity_namespaces("nope", "group")),
    (pa.TopicNotFound, lambda store: store.namespace("acme/iot").topic_hashes(ALL_HASHES, ["acme/iot/nope"])),
    (pa.InvalidValue, lambda store: store.namespace("acme/iot").topic_hashes(ALL_HASHES, ["plain"])),
    (pa.TopicNotFound, lambda store: store.topic("plain").partitioned_stats()),
    (pa.TopicNotFound, lambda store: store.topic("plain").partitioned_internal_stats()),
]
NUMBERS: list[tuple[str, Ask]] = [
    ("top -1: a whole number of 0 or more is wanted", lambda store: store.why_bytes(top=-1)),
    ("each 0", lambda store: store.doctor(each=0)),
    ("index -1", lambda store: store.topic("plain").find_by_index(-1)),
    ("number 0", lambda store: store.topic("plain").nth_position(0)),
    ("sequence_id -5", lambda store: store.topic("plain").search(sequence_id=-5)),
    ("first=5 is after last=2", lambda store: [*store.ledger(9).entries(first=5, last=2)]),
    ("negative", lambda store: store.topic("plain").find(timedelta(hours=-3))),
    ("negative", lambda store: store.topic("plain").cursor("half").expire(before=timedelta(seconds=-5))),
    ("keys is empty", lambda store: store.topic("plain").search(keys=[])),
    ("texts is empty", lambda store: store.search(texts=())),
    (
        "a migration has no serviceurl",
        lambda store: store.cluster("standalone").set_migration(migrated=True, urls={"serviceurl": "http://a"}),
    ),
    ("to names a single", lambda store: store.undelete("acme/secure/trimmed", "plain", to="x", by_evidence=True)),
    ("to names a single", lambda store: store.undelete("acme/secure/trimmed", to="x", in_place=True)),
    ("to names the restored", lambda store: store.restore("plain", at=NOW_MS, to="x", in_place=True)),
    ("payload is of the table messages", lambda store: store.export_tables("/dev/null/tables", payload=True)),
    ("catalog is for iceberg alone", lambda store: store.export_tables("/dev/null/tables", catalog="sqlite:///c")),
]


@pytest.mark.parametrize(("error", "ask"), NAMES)
def test_a_name_that_is_not_there_raises(store: pa.Store, error: type[pa.StoreError], ask: Ask) -> None:
    with pytest.raises(error) as raised:
        ask(store)
    assert type(raised.value) is error


@pytest.mark.parametrize(("said", "ask"), NUMBERS)
def test_a_number_that_means_nothing_is_refused(store: pa.Store, said: str, ask: Ask) -> None:
    with pytest.raises(pa.InvalidValue, match=said):
        ask(store)


def test_a_position_of_one_topic_is_one_of_all_of_its_subscriptions(store: pa.Store) -> None:
    """Positions are of a topic: however many of its cursors move there, none of them is in another one."""
    plain, names = store.cursors(None, "plain"), store.topic("plain").subscriptions()
    for plan in (plain.reset(to="9:3"), plain.expire(to="9:3")):
        assert sorted(part.subscription for part in plan.preview().parts) == sorted(names)
    for ask in (store.cursors("reset-me").reset, store.cursors("reset-me").expire):
        with pytest.raises(pa.InvalidValue, match="for 6 topics"):
            ask(to="9:3")


def test_what_is_there_and_empty_is_empty(store: pa.Store) -> None:
    """Names that are there: a subscription that keeps no negative acks, a node with none below it, a tenant without such namespaces."""
    assert store.nacks("half").due() == ()
    assert store.nacks("half", "plain").stats() == ()
    assert store.nodes("/ledgers/INSTANCEID") == ()
    assert store.cluster("standalone").namespaces("acme") == ()
    assert store.ledger(9).info().entries == len([*store.ledger(9).entries()]) == 25
    hashes = store.namespace("acme/iot").topic_hashes(ALL_HASHES, ["acme/iot/skewed"])
    assert [*hashes.topic_hash_positions] == ["persistent://acme/iot/skewed"]


@pytest.mark.parametrize(
    "words",
    [
        ("ledgers", "list", "--topic", "nope/ns"),
        ("ledgers", "entries", "9", "--from", "25"),
        ("nacks", "due", "-s", "nope"),
        ("metrics", "--pattern", "nope*"),
    ],
)
def test_so_it_is_on_the_command_line(cli: Cli, words: tuple[str, ...]) -> None:
    answered = cli("--store", imported("small", "clean"), *words)
    assert (answered.exit_code, answered.stdout) == (5, "")
