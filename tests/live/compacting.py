"""Topics to compact, filled by real clients, and what a real reader with read-compacted gets of one.

``python -m tests.live.compacting SERVICE_URL TOPIC [KEYS]`` reads one topic and prints its messages as one JSON line: a client that
cannot read what it is given may die, so it does so in a process of its own.
"""

import hashlib
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pulsar  # type: ignore[import-untyped,import-not-found,unused-ignore]
from msgspec import Struct

from tests.live.broker import Admin, wait_until
from tests.live.on_disk import wait_until_written
from tests.live.producing import RECEIVE_MS, open_client


class Keyed(Struct, frozen=True):
    """A topic to fill: messages with keys, of which a ``null_share`` are null values: half say so, half are only empty."""

    name: str
    messages: int
    keys: int
    batch: int = 0  # messages a batch; 0 sends each alone
    codec: str = "NONE"
    null_share: float = 0.2
    encrypted: bool = False
    form: str = "indexed"  # of the ledger that the toolkit writes

    @property
    def topic(self) -> str:
        return f"public/default/{self.name}"


TOPICS = (
    *(Keyed(f"batched-{codec.lower()}", 240, 30, 8, codec) for codec in ("NONE", "LZ4", "ZLib", "ZSTD", "SNAPPY")),
    Keyed("single", 120, 30),
    Keyed("single-lz4", 120, 30, codec="LZ4"),
    Keyed("all-null", 24, 3, 8, "LZ4", null_share=1),
    Keyed("keyless", 24, 0, 6),
    Keyed("secret", 60, 10, 5, encrypted=True),
    Keyed("parts-partition-1", 80, 10, 5),
    *(
        Keyed(f"{form}-{codec.lower()}", 80, 10, 5, codec, form=form)
        for form in ("legacy", "reduced")
        for codec in ("NONE", "LZ4")
    ),
    Keyed("reduced-single", 40, 10, form="reduced"),
)


def fill(client: Any, keyed: Keyed, seed: int, keys_folder: Path) -> None:  # Any: pulsar.Client
    """Publish the messages of one topic."""
    rng = random.Random(f"{seed} {keyed.name}")
    options: dict[str, Any] = {}
    if keyed.encrypted:
        options = {"encryption_key": "k", "crypto_key_reader": _key_reader(keys_folder)}
    producer = client.create_producer(
        f"persistent://{keyed.topic}",
        batching_enabled=keyed.batch > 0,
        batching_max_messages=keyed.batch or 1000,
        batching_max_publish_delay_ms=200,
        compression_type=getattr(pulsar.CompressionType, keyed.codec),
        block_if_queue_full=True,
        **options,
    )
    results: list[object] = []
    for _ in range(keyed.messages):
        is_null = rng.random() < keyed.null_share
        value = rng.choice((b"", None)) if is_null else rng.randbytes(rng.randint(20, 200))
        key = {"partition_key": f"key-{rng.randrange(keyed.keys):02}"} if keyed.keys else {}
        producer.send_async(value, lambda result, _: results.append(result), **key)
    producer.flush()
    producer.close()
    assert results == [pulsar.Result.Ok] * keyed.messages


def _key_reader(folder: Path) -> Any:
    return pulsar.CryptoKeyReader(str(folder / "pub.pem"), str(folder / "priv.pem"))


def compact(broker: Admin, topic: str) -> str:
    """Let the broker compact a topic; how that ended. Readers get the new view, and it is on disk."""
    path = f"persistent/{topic}/compaction"

    def ledger() -> int:
        return int(broker.get(f"persistent/{topic}/internalStats")["compactedLedger"]["ledgerId"])

    before = ledger()
    broker.put(path)
    status: str = wait_until(
        lambda: (found := broker.get(path)["status"]) in ("SUCCESS", "ERROR") and found, f"compaction of {topic}"
    )
    if status == "SUCCESS":  # said before the ledger is in use, and before its number is in the cursor
        wait_until(lambda: ledger() != before, f"the compacted ledger of {topic}")
        wait_until_written(broker, [topic])
    return status


def read_compacted(
    service_url: str, topic: str, keys_folder: Path | None = None, *, is_compacted: bool = True
) -> list[list[Any]]:
    """What a real reader with read-compacted gets: ledger, entry, batch index, key, SHA-1 of the value, its size.

    Without the empty messages that the C++ client makes of those compacted out. A last row of one text tells why it stopped.
    ``is_compacted`` False: without read-compacted.
    """
    client = open_client(service_url)
    options = {} if keys_folder is None else {"crypto_key_reader": _key_reader(keys_folder)}
    reader = client.create_reader(
        f"persistent://{topic}", pulsar.MessageId.earliest, is_read_compacted=is_compacted, **options
    )
    rows: list[list[Any]] = []
    try:
        while reader.has_message_available():
            message = reader.read_next(RECEIVE_MS)
            place, value = message.message_id(), message.data()
            if value or message.partition_key() or place.batch_index() < 0:
                digest = hashlib.sha1(value).hexdigest()
                rows.append(
                    [
                        place.ledger_id(),
                        place.entry_id(),
                        place.batch_index(),
                        message.partition_key(),
                        digest,
                        len(value),
                    ]
                )
    except pulsar.PulsarException as error:
        rows.append([str(error)])
    client.close()
    return rows


def read_apart(service_url: str, topic: str, keys_folder: Path | None = None) -> list[list[Any]]:
    """``read_compacted`` in a process of its own; one row ``["died", exit code]`` when the client does not survive it."""
    command = [sys.executable, "-m", "tests.live.compacting", service_url, topic]
    command += [] if keys_folder is None else [str(keys_folder)]
    finished = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], timeout=120)
    if finished.returncode:
        return [["died", finished.returncode]]
    rows: list[list[Any]] = json.loads(finished.stdout.splitlines()[-1])  # the client's own log is in front
    return rows


def last_message_id(client: Any, topic: str) -> tuple[int, int, int]:  # Any: pulsar.Client
    """What the broker answers a consumer with read-compacted to GetLastMessageId."""
    consumer = client.subscribe(f"persistent://{topic}", "asks-for-the-last-id", is_read_compacted=True)
    place = consumer.get_last_message_id()
    consumer.unsubscribe()
    consumer.close()
    return place.ledger_id(), place.entry_id(), place.batch_index()


if __name__ == "__main__":
    print(json.dumps(read_compacted(sys.argv[1], sys.argv[2], Path(sys.argv[3]) if len(sys.argv) > 3 else None)))
