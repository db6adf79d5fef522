"""Topics whose ledgers are lost, mended offline, are loaded and read by the real broker: all that is left, nothing twice."""

import json
from collections.abc import Iterator

import pulsar  # type: ignore[import-untyped,import-not-found,unused-ignore]
import pytest
from msgspec import Struct

from tests.live.breaking import (
    COMPACTED,
    CURSOR,
    DELETED,
    ENTRIES,
    EVENTS,
    FIRST,
    GONE,
    HOLES,
    KEPT,
    KEPT_COMPACTED,
    KEPT_EVENTS,
    KEPT_POLICED,
    KEPT_SCHEMA,
    KEYS,
    LAST,
    MIDDLE,
    PER_LEDGER,
    POLICED,
    SCHEMA,
    SETTINGS,
    Broken,
    fill,
    plant,
)
from tests.live.broker import Broker
from tests.live.conftest import run_toolkit
from tests.live.distribution import find_distribution
from tests.live.producing import RECEIVE_MS, SILENCE_MS, open_client

pytestmark = pytest.mark.live

FORGOTTEN = (FIRST, MIDDLE, LAST, HOLES, GONE, CURSOR, COMPACTED, SCHEMA, EVENTS)
RESTORED = (KEPT, KEPT_COMPACTED, KEPT_SCHEMA, KEPT_EVENTS)
REASONS = {HOLES: "entries", GONE: "no-ledger"}
Positions = list[tuple[int, int]]


class Mended(Struct, frozen=True):
    """A broker on mended data, what was lost, what the store said of it before, and how many problems it has after."""

    broker: Broker
    broken: Broken
    missing: dict[int, str]
    checked: set[str]
    left: int


@pytest.fixture(scope="module")
def mended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mended]:
    """One broker run to fill, one on what was broken, imported, mended and exported in place."""
    folder = tmp_path_factory.mktemp("mending")
    with Broker(find_distribution(), folder / "pulsar", SETTINGS, heap="600m") as broker:
        store = folder / "store"
        broker.start()
        broken = fill(broker)
        broker.stop()
        sound = folder / "sound"
        run_toolkit(sound, "store", "import", "standalone", broker.data)
        assert run_toolkit(sound, "ledgers", "missing") == []
        info = run_toolkit(sound, "topics", "info-internal", CURSOR)
        plant(broker, broken, info["cursors"]["holes"]["cursorsLedgerId"])
        # Its damaged records are of a ledger whose id was never given: the metadata looks older.
        run_toolkit(store, "store", "import", "standalone", broker.data, code=1)
        missing = run_toolkit(store, "ledgers", "missing", code=1)
        checked = run_toolkit(store, "store", "check", code=1)
        run_toolkit(store, "ledgers", "forget", *(broken.lost[what] for what in FORGOTTEN))
        run_toolkit(store, "ledgers", "restore", *(broken.lost[what] for what in RESTORED))
        run_toolkit(store, "topics", "delete", DELETED, "--force")
        left = run_toolkit(store, "ledgers", "missing")
        run_toolkit(store, "store", "export", "standalone", broker.data, "--in-place", "--yes")
        broker.start()
        codes = {row["code"] for row in checked if row["severity"] == "problem"}
        yield Mended(broker, broken, {row["ledgerId"]: row["reason"] for row in missing}, codes, len(left))
        broker.stop()


@pytest.fixture(scope="module")
def client(mended: Mended) -> Iterator[pulsar.Client]:
    client = open_client(mended.broker.service_url)
    yield client
    client.close()


def drained(client: pulsar.Client, topic: str, subscription: str, count: int) -> Positions:
    """Every message that a subscription gets, acknowledged: COUNT, and what comes behind them."""
    consumer = client.subscribe(f"persistent://{topic}", subscription, initial_position=pulsar.InitialPosition.Earliest)
    found: Positions = []
    try:
        while True:
            message = consumer.receive(RECEIVE_MS if len(found) < count else SILENCE_MS)
            found.append((message.message_id().ledger_id(), message.message_id().entry_id()))
            consumer.acknowledge(message)
    except pulsar.Timeout:
        return found
    finally:
        consumer.close()


def test_every_planted_loss_is_listed(mended: Mended) -> None:
    expected = {ledger: REASONS.get(what, "no-metadata") for what, ledger in mended.broken.lost.items()}
    assert mended.missing == expected
    assert mended.left == 0
    assert mended.checked == {
        "metadata-older",  # a ledger with an id that was never given
        "topic-unreadable",
        "value-undecodable",
        "ledger-missing",
        "ledger-without-metadata",
        "entries-missing",
        "copies-missing",
        "cursor-ledger-without-metadata",
        "compacted-ledger-without-metadata",
        "schema-ledger-without-metadata",
    }


@pytest.mark.parametrize("topic", [FIRST, MIDDLE, LAST, HOLES, GONE])
def test_what_is_left_is_consumed(topic: str, mended: Mended, client: pulsar.Client) -> None:
    left = [one for one in mended.broken.positions[topic] if one[0] != mended.broken.lost[topic]]
    assert len(left) == ENTRIES - (ENTRIES % PER_LEDGER if topic == LAST else PER_LEDGER)
    behind = [one for one in mended.broken.positions[topic][PER_LEDGER + 4 :] if one in left]
    assert drained(client, topic, "inside", len(behind)) == behind
    assert drained(client, topic, "start", len(left)) == left
    ledgers = mended.broker.get(f"persistent/{topic}/internalStats")["ledgers"]
    assert mended.broken.lost[topic] not in [row["ledgerId"] for row in ledgers]


def test_a_restored_ledger_is_consumed(mended: Mended, client: pulsar.Client) -> None:
    positions = mended.broken.positions[KEPT]
    assert drained(client, KEPT, "start", ENTRIES) == positions
    assert drained(client, KEPT, "inside", ENTRIES - PER_LEDGER - 4) == positions[PER_LEDGER + 4 :]


def test_a_cursor_goes_on_from_its_snapshot(mended: Mended, client: pulsar.Client) -> None:
    """The acknowledgements were in the lost ledger alone: all messages come again."""
    assert drained(client, CURSOR, "holes", ENTRIES) == mended.broken.positions[CURSOR]


@pytest.mark.parametrize("topic", [COMPACTED, KEPT_COMPACTED])
def test_the_compacted_view_is_read(topic: str, mended: Mended, client: pulsar.Client) -> None:
    positions = mended.broken.positions[topic]
    first = pulsar.MessageId.earliest
    reader = client.create_reader(f"persistent://{topic}", first, is_read_compacted=True)
    found = []
    while reader.has_message_available():
        message = reader.read_next(RECEIVE_MS).message_id()
        found.append((message.ledger_id(), message.entry_id()))
    reader.close()
    assert found == (positions if topic == COMPACTED else positions[-KEYS:])
    mended.broker.put(f"persistent/{topic}/compaction")


@pytest.mark.parametrize("topic", [SCHEMA, KEPT_SCHEMA])
def test_a_schema_is_served_and_followed(topic: str, mended: Mended) -> None:
    """No message may name a number that two schemas had: the one behind the lost version 2 is 3, the next one 4."""
    kept = topic == KEPT_SCHEMA
    newest = mended.broker.get(f"schemas/{topic}/schema")
    fields = json.loads(newest["data"])["fields"]
    assert (newest["version"], len(fields)) == ((2, 3) if kept else (3, 2))
    fields.append({"name": "more", "type": ["null", "int"], "default": None})
    definition = json.dumps({"type": "record", "name": "R", "fields": fields})
    mended.broker.post(f"schemas/{topic}/schema", {"type": "AVRO", "schema": definition, "properties": {}})
    assert mended.broker.get(f"schemas/{topic}/schema")["version"] == (3 if kept else 4)
    versions = mended.broker.get(f"schemas/{topic}/schemas")["getSchemaResponses"]
    assert [row["version"] for row in versions] == ([0, 1, 2, 3] if kept else [0, 1, 3, 4])


def test_topics_with_policies_load(mended: Mended) -> None:
    """The policies of ``one`` were in the lost ledger, those of ``two`` behind it; restored, both are there.

    A broker that is slow may have closed the ledger before the last change of ``one``.
    """
    lost = mended.broken.first_entries[EVENTS] >= PER_LEDGER
    for namespace, policies in ((POLICED, (None if lost else 1009, 1011)), (KEPT_POLICED, (1009, 1011))):
        found = []
        for topic in ("one", "two"):
            mended.broker.get(f"persistent/{namespace}/{topic}/stats")
            found.append(mended.broker.get(f"persistent/{namespace}/{topic}/messageTTL"))
        assert tuple(found) == policies


def test_a_deleted_topic_is_made_again(mended: Mended, client: pulsar.Client) -> None:
    topics = mended.broker.get("persistent/acme/mend")
    assert f"persistent://{DELETED}" not in topics
    producer = client.create_producer(f"persistent://{DELETED}")
    assert producer.send(b"again").entry_id() == 0
    producer.close()
