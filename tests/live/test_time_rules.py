"""``--rule broker`` against brokers of both versions: time 0, and resets to times ahead, where close times prune the search."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from pulsar_admin.store.search.broker_setup import MAX_CLOCK_SKEW_MS
from tests.live.broker import BASE_SETTINGS, Broker
from tests.live.conftest import run_toolkit
from tests.live.distribution import NEWER, VERSION, find_distribution
from tests.live.wire import Stamped, StampingProducer

pytestmark = pytest.mark.live

TOPIC = "public/default/ahead"
ENTRIES, LEDGER_ENTRIES = 25, 10
HOUR_MS = 3_600_000
AHEAD_MS = 365 * 24 * HOUR_MS  # the clock of one producer
SETTINGS = BASE_SETTINGS | {"managedLedgerMaxEntriesPerLedger": str(LEDGER_ENTRIES)}
SHIFTS_MS = (-HOUR_MS, 0, MAX_CLOCK_SKEW_MS // 2, HOUR_MS, 2 * AHEAD_MS)  # of the times asked for, from now


class Asked(Struct, frozen=True):
    """What the toolkit and the broker that started afterwards say: mark-delete by time, and the answer to time 0."""

    version: str
    places: list[tuple[int, int]]
    ours: list[str]
    theirs: list[str]
    first: tuple[list[int], list[int]]
    settings: dict[str, Any]


@pytest.fixture(scope="module", params=[VERSION, NEWER])
def asked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    folder = tmp_path_factory.mktemp(request.param)
    with Broker(find_distribution(request.param), folder / "pulsar", SETTINGS) as broker:
        yield _ask(broker, folder / "store", request.param)


def _ask(broker: Broker, store: Path, version: str) -> Asked:
    broker.start()
    for number in range(len(SHIFTS_MS)):
        broker.subscribe(TOPIC, f"at-{number}")
    now_ms = time.time_ns() // 1_000_000
    producer = StampingProducer(broker.port, TOPIC, "ahead")
    # The last entry of the second ledger, where the search begins when close times rule out what is before.
    sent = [now_ms + (AHEAD_MS if number == 2 * LEDGER_ENTRIES - 1 else number) for number in range(ENTRIES)]
    places = [producer.send(Stamped(publish_ms, (b"x",), False)) for publish_ms in sent]
    producer.close()
    broker.stop()
    run_toolkit(store, "store", "import", "standalone", broker.data)
    rule = ("--rule", "broker", "--broker-version", version.rpartition(".")[0])
    reset = (*rule, "--force", "--dry-run")  # --force: a broker does not refuse times that nothing is at or after
    moments = [now_ms + shift_ms for shift_ms in SHIFTS_MS]
    ours = [
        run_toolkit(store, "topics", "reset-cursor", TOPIC, "-s", f"at-{number}", "-t", f"@{moment}", *reset)["after"][
            "markDeletePosition"
        ]
        for number, moment in enumerate(moments)
    ]
    first = run_toolkit(store, "topics", "find-by-time", TOPIC, "--time", "@0", *rule)["position"]
    broker.start()
    answer = broker.get(f"persistent/{TOPIC}/messageid/0")
    for number, moment in enumerate(moments):
        broker.post(f"persistent/{TOPIC}/subscription/at-{number}/resetcursor/{moment}")
    cursors = broker.get(f"persistent/{TOPIC}/internalStats")["cursors"]
    theirs = [cursors[f"at-{number}"]["markDeletePosition"] for number in range(len(moments))]
    said = ([first["ledgerId"], first["entryId"]], [answer["ledgerId"], answer["entryId"]])
    return Asked(version, places, ours, theirs, said, broker.get("brokers/configuration/runtime"))


def test_a_reset_ends_where_the_broker_that_loads_the_topic_ends(asked: Asked) -> None:
    """It closes the last ledger first: an hour ahead the search begins at its end, not at the entry of the clock that is a year ahead."""
    assert asked.ours == asked.theirs
    assert len({ledger_id for ledger_id, _ in asked.places}) == 3
    last = "{}:{}".format(*asked.places[-1])
    assert asked.theirs[SHIFTS_MS.index(HOUR_MS)] == last


def test_time_0(asked: Asked) -> None:
    ours, theirs = asked.first
    assert ours == theirs
    assert theirs == ([-1, -1] if asked.version == NEWER else list(asked.places[0]))


def test_the_margin_of_clocks_is_the_broker_s(asked: Asked) -> None:
    said = asked.settings["managedLedgerCursorResetLedgerCloseTimestampMaxClockSkewMillis"]
    assert int(said) == MAX_CLOCK_SKEW_MS
