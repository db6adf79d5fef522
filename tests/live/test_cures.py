"""Rules of the doctor on a real cluster: the broker fails as the sentence says, and serves once the printed command was typed.

Five in every run; with ``ALL=1`` in the environment the others, too.
"""

import json
import os
import shutil
import signal
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pulsar  # type: ignore[import-untyped,import-not-found,unused-ignore]
import pytest
from kazoo.client import KazooClient

from pulsar_admin.store.codec.bookie import LogMark, decode_last_mark
from pulsar_admin.store.codec.cursor import CursorInfo, decode_cursor_info, encode_cursor_info
from pulsar_admin.store.codec.ledgermetadata import ledger_path
from pulsar_admin.store.codec.managedledger import ManagedLedger, decode_managed_ledger, encode_managed_ledger
from pulsar_admin.store.model.cursors import PENDING_ACK_CURSOR
from pulsar_admin.store.model.transactions import ASSIGN
from pulsar_admin.store.names import Position, TopicName
from tests.cures.test_marks import mark_path
from tests.live.broker import BASE_SETTINGS, BrokerError, Daemon, wait_until
from tests.live.cluster import Cluster, Disks
from tests.live.compacting import compact
from tests.live.on_disk import copy_at_rest, iter_records
from tests.live.planted import (
    KEYS,
    OPERATION_SECONDS,
    SUBSCRIPTION,
    Fault,
    Json,
    Planted,
    key_of,
    receive,
    run_perf,
    send,
    texts,
)
from tests.live.producing import RECEIVE_MS, SILENCE_MS
from tests.worlds import copy_tree

pytestmark = pytest.mark.live

PER_LEDGER, ENTRIES, PARTITIONS = 10, 25, 3
CHUNK_BYTES = 20_000
LOG_BYTES = 1 << 16
SETTINGS = {
    **BASE_SETTINGS,
    **{f"managedLedgerDefault{name}": "1" for name in ("AckQuorum", "EnsembleSize", "WriteQuorum")},
    "backlogQuotaCheckEnabled": "true",
    "backlogQuotaCheckIntervalInSeconds": "1",
    "managedLedgerMaxEntriesPerLedger": str(PER_LEDGER),
    "managedLedgerMaxUnackedRangesToPersistInMetadataStore": "3",
    "maxMessageSize": str(CHUNK_BYTES),
}


def ledgers_of(broker: Cluster, topic: str) -> list[int]:
    return [one["ledgerId"] for one in broker.get(f"persistent/{topic}/internalStats")["ledgers"]]


def deleted_ledger(broker: Cluster, client: pulsar.Client, topic: str) -> int:
    """A ledger without an entry, of a topic that the broker deleted."""
    client.create_producer(f"persistent://{topic}-gone").close()
    (found,) = ledgers_of(broker, f"{topic}-gone")
    broker.request("DELETE", f"persistent/{topic}-gone")
    return found


def view(client: pulsar.Client, topic: str) -> dict[str, bytes]:
    """What a reader of the compacted view gets: the value of each key."""
    reader = client.create_reader(f"persistent://{topic}", pulsar.MessageId.earliest, is_read_compacted=True)
    found = {}
    while reader.has_message_available():
        message = reader.read_next(SILENCE_MS)
        if message.data():
            found[message.partition_key()] = message.data()
    reader.close()
    return found


def values(first: int) -> dict[str, bytes]:
    """The last value of each key from the message with the number FIRST on."""
    return {key_of(number): b"%d" % number for number in range(first, ENTRIES)}


class Filled(Fault):
    """A topic of several ledgers with a subscription at its beginning."""

    def fill(self, broker: Cluster, client: pulsar.Client) -> None:
        broker.subscribe(self.topic, SUBSCRIPTION)
        self.sent = [Position(one.ledger_id(), one.entry_id()) for one in send(client, self.topic, ENTRIES)]

    def serves(self, broker: Cluster, client: pulsar.Client) -> None:
        assert receive(client, self.topic) == texts(ENTRIES)
        send(client, self.topic, 1)


class CursorUnreadable(Filled):
    code = "cursor-unreadable"
    brings = ("value-undecodable",)

    def plant(self, keeper: KazooClient) -> None:
        keeper.set(self.cursor_path, b"\xff\xff")

    def fails(self, broker: Cluster, client: pulsar.Client) -> None:
        with pytest.raises(BrokerError):
            broker.get(f"persistent/{self.topic}/internalStats")
        with pytest.raises(pulsar.PulsarException):
            send(client, self.topic, 1)


class LedgerWithoutMetadata(Filled):
    code = "ledger-without-metadata"

    def plant(self, keeper: KazooClient) -> None:
        keeper.delete(ledger_path(self.sent[PER_LEDGER].ledger_id))

    def fails(self, broker: Cluster, client: pulsar.Client) -> None:
        assert receive(client, self.topic) == texts(PER_LEDGER)


class LastLedgerWithoutMetadata(Filled):
    code, kind = "ledger-without-metadata", "last"

    def plant(self, keeper: KazooClient) -> None:
        keeper.delete(ledger_path(self.sent[-1].ledger_id))

    def fails(self, broker: Cluster, client: pulsar.Client) -> None:
        assert self.sent[-1].ledger_id not in ledgers_of(broker, self.topic)
        assert receive(client, self.topic) == texts(ENTRIES // PER_LEDGER * PER_LEDGER)


class LedgerMetadataDamaged(Filled):
    """A broker passes by nothing that it cannot read: consumers wait before it."""

    code = "value-undecodable"
    which = PER_LEDGER

    def is_of(self, row: Json) -> bool:
        return bool(row["where"] == ledger_path(self.sent[self.which].ledger_id))

    def plant(self, keeper: KazooClient) -> None:
        keeper.set(ledger_path(self.sent[self.which].ledger_id), b"BookieMetadataFormatVersion\t3\ndamaged")

    def fails(self, broker: Cluster, client: pulsar.Client) -> None:
        assert receive(client, self.topic) == texts(PER_LEDGER)


class LastLedgerMetadataDamaged(LedgerMetadataDamaged):
    kind, which = "last", -1

    def fails(self, broker: Cluster, client: pulsar.Client) -> None:
        with pytest.raises(BrokerError):
            broker.get(f"persistent/{self.topic}/internalStats")


class LedgerOffList(Filled):
    code = "leaked-topic-ledgers"

    def plant(self, keeper: KazooClient) -> None:
        path = self.topic_name.path
        managed = decode_managed_ledger(keeper.get(path)[0], path)
        left = tuple(info for info in managed.ledgers if info.ledger_id != self.sent[PER_LEDGER].ledger_id)
        keeper.set(path, encode_managed_ledger(ManagedLedger(left, managed.terminated, managed.properties)))

    def is_of(self, row: Json) -> bool:
        return row["code"] == self.code and row["severity"] == "warning"

    def fails(self, broker: Cluster, client: pulsar.Client) -> None:
        assert receive(client, self.topic) == [*texts(PER_LEDGER), *texts(ENTRIES)[2 * PER_LEDGER :]]


class Acknowledged(Filled):
    """Every second message is acknowledged: so many ranges are in a cursor ledger alone."""

    def fill(self, broker: Cluster, client: pulsar.Client) -> None:
        super().fill(broker, client)
        consumer = client.subscribe(f"persistent://{self.topic}", SUBSCRIPTION, pulsar.ConsumerType.Shared)
        for _ in range(ENTRIES):
            message = consumer.receive(RECEIVE_MS)
            if int(message.data()) % 2:
                consumer.acknowledge(message)
        consumer.close()

    def serves(self, broker: Cluster, client: pulsar.Client) -> None:
        assert receive(client, self.topic) == texts(ENTRIES)[::2]


class CursorLedgerWithoutMetadata(Acknowledged):
    code = "cursor-ledger-without-metadata"

    def plant(self, keeper: KazooClient) -> None:
        info = decode_cursor_info(keeper.get(self.cursor_path)[0], self.topic)
        keeper.delete(ledger_path(info.cursors_ledger_id))

    def fails(self, broker: Cluster, client: pulsar.Client) -> None:
        assert receive(client, self.topic) == texts(ENTRIES)


class CursorLedgerLost(Acknowledged):
    code = "cursor-ledger-lost"

    def fill(self, broker: Cluster, client: pulsar.Client) -> None:
        super().fill(broker, client)
        self.gone = deleted_ledger(broker, client, self.topic)

    def plant(self, keeper: KazooClient) -> None:
        keeper.set(self.cursor_path, encode_cursor_info(CursorInfo(self.gone, self.sent[4])))

    def fails(self, broker: Cluster, client: pulsar.Client) -> None:
        assert receive(client, self.topic) == texts(ENTRIES)[5:]

    def serves(self, broker: Cluster, client: pulsar.Client) -> None:
        assert receive(client, self.topic) == texts(ENTRIES)[5:]


class CursorAhead(Filled):
    code = "cursor-ahead"

    def fill(self, broker: Cluster, client: pulsar.Client) -> None:
        super().fill(broker, client)
        self.gone = deleted_ledger(broker, client, self.topic)

    def plant(self, keeper: KazooClient) -> None:
        keeper.set(self.cursor_path, encode_cursor_info(CursorInfo(-1, Position(self.gone, 3))))

    def fails(self, broker: Cluster, client: pulsar.Client) -> None:
        assert receive(client, self.topic) == []
        send(client, self.topic, 1)
        assert receive(client, self.topic) == texts(1)

    serves = fails


class ChunkCut(Fault):
    code = "chunk-cut"

    def fill(self, broker: Cluster, client: pulsar.Client) -> None:
        broker.subscribe(self.topic, SUBSCRIPTION)
        producer = client.create_producer(f"persistent://{self.topic}", batching_enabled=False, chunking_enabled=True)
        self.messages = [b"first", bytes(range(250)) * (3 * CHUNK_BYTES // 250), b"last"]
        places = [producer.send(message) for message in self.messages]
        producer.close()
        self.inside = Position(places[0].ledger_id(), places[0].entry_id() + 1)
        self.left = places[2].entry_id() - self.inside.entry_id - 1
        assert self.left > 1

    def plant(self, keeper: KazooClient) -> None:
        keeper.set(self.cursor_path, encode_cursor_info(CursorInfo(-1, self.inside)))

    def _backlog(self, broker: Cluster) -> int:
        return int(broker.get(f"persistent/{self.topic}/stats")["subscriptions"][SUBSCRIPTION]["msgBacklog"])

    def fails(self, broker: Cluster, client: pulsar.Client) -> None:
        assert receive(client, self.topic, acknowledge=True) == self.messages[2:]
        assert self._backlog(broker) == self.left

    def serves(self, broker: Cluster, client: pulsar.Client) -> None:
        assert receive(client, self.topic, acknowledge=True) == self.messages[1:]
        wait_until(lambda: self._backlog(broker) == 0, "the acknowledgement")


class Partitioned(Fault):
    """A partitioned topic with a message in each partition at least."""

    def fill(self, broker: Cluster, client: pulsar.Client) -> None:
        broker.put(f"persistent/{self.topic}/partitions", PARTITIONS)
        broker.subscribe(self.topic, SUBSCRIPTION)
        producer = client.create_producer(
            f"persistent://{self.topic}", message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution
        )
        self.sent = [producer.send(text).partition() for text in texts(ENTRIES)]
        producer.close()
        assert set(self.sent) == set(range(PARTITIONS))

    def serves(self, broker: Cluster, client: pulsar.Client) -> None:
        assert sorted(receive(client, self.topic)) == sorted(texts(ENTRIES))


class PartitionsWithoutMetadata(Partitioned):
    code = "partitions-without-metadata"

    def plant(self, keeper: KazooClient) -> None:
        keeper.delete(self.topic_name.partitioned_path)

    def fails(self, broker: Cluster, client: pulsar.Client) -> None:
        with pytest.raises(BrokerError) as refused:
            broker.get(f"persistent/{self.topic}/partitions")
        assert refused.value.status == 404
        assert receive(client, self.topic) == []
        assert f"persistent://{self.topic}" in broker.get("persistent/public/default")
        partition = f"{self.topic}-partition-0"
        assert len(receive(client, partition)) == self.sent.count(0)


class PartitionsBeyondMetadata(Partitioned):
    code = "partitions-beyond-metadata"

    def plant(self, keeper: KazooClient) -> None:
        keeper.set(self.topic_name.partitioned_path, json.dumps({"partitions": PARTITIONS - 1}).encode())

    def fails(self, broker: Cluster, client: pulsar.Client) -> None:
        assert len(receive(client, self.topic)) == sum(one < PARTITIONS - 1 for one in self.sent)


class PartitionedTopicHalfDeleted(Fault):
    code = "partitioned-topic-half-deleted"

    def fill(self, broker: Cluster, client: pulsar.Client) -> None:
        """As a broker marks the topic; it had no partition yet."""

    def plant(self, keeper: KazooClient) -> None:
        value = json.dumps({"partitions": PARTITIONS, "deleted": True}).encode()
        keeper.create(self.topic_name.partitioned_path, value, makepath=True)

    def fails(self, broker: Cluster, client: pulsar.Client) -> None:
        with pytest.raises(pulsar.PulsarException):
            send(client, self.topic, 1)
        with pytest.raises(BrokerError):
            broker.put(f"persistent/{self.topic}/partitions", PARTITIONS)
        assert not [one for one in broker.get("persistent/public/default") if self.topic in one]

    def serves(self, broker: Cluster, client: pulsar.Client) -> None:
        broker.put(f"persistent/{self.topic}/partitions", PARTITIONS)
        send(client, self.topic, 1)


class PartitionedNameOverTopic(Filled):
    code = "partitioned-name-over-topic"

    def plant(self, keeper: KazooClient) -> None:
        keeper.create(self.topic_name.partitioned_path, json.dumps({"partitions": 2}).encode(), makepath=True)

    def fails(self, broker: Cluster, client: pulsar.Client) -> None:
        assert receive(client, self.topic) == []


class Compacted(Filled):
    def fill(self, broker: Cluster, client: pulsar.Client) -> None:
        super().fill(broker, client)
        assert compact(broker, self.topic) == "SUCCESS"

    def serves(self, broker: Cluster, client: pulsar.Client) -> None:
        assert view(client, self.topic) == values(0)


class CompactedViewDetached(Compacted):
    code = "compacted-view-detached"

    def fill(self, broker: Cluster, client: pulsar.Client) -> None:
        super().fill(broker, client)
        broker.request("DELETE", f"persistent/{self.topic}/truncate")

    def fails(self, broker: Cluster, client: pulsar.Client) -> None:
        (left,) = {one.ledger_id for one in self.sent} & {*ledgers_of(broker, self.topic)}
        assert view(client, self.topic) == values([one.ledger_id for one in self.sent].index(left))


class CompactedLedgerWithoutMetadata(Compacted):
    code = "compacted-ledger-without-metadata"

    def fill(self, broker: Cluster, client: pulsar.Client) -> None:
        super().fill(broker, client)
        self.ledger = broker.get(f"persistent/{self.topic}/internalStats")["compactedLedger"]["ledgerId"]

    def plant(self, keeper: KazooClient) -> None:
        keeper.delete(ledger_path(self.ledger))

    def fails(self, broker: Cluster, client: pulsar.Client) -> None:
        """Nothing is behind the view: a reader that asks where it ends is refused, one that reads on waits, and compaction fails."""
        reader = client.create_reader(f"persistent://{self.topic}", pulsar.MessageId.earliest, is_read_compacted=True)
        with pytest.raises(pulsar.BrokerMetadataError):
            reader.has_message_available()
        with pytest.raises(pulsar.Timeout):
            reader.read_next(SILENCE_MS)
        reader.close()
        self._compact(broker)
        wait_until(lambda: self._compaction(broker) == "ERROR", "compaction to fail")

    def _compact(self, broker: Cluster) -> None:
        broker.put(f"persistent/{self.topic}/compaction")

    def _compaction(self, broker: Cluster) -> str:
        return str(broker.get(f"persistent/{self.topic}/compaction")["status"])


class CompactedLedgerWithoutMetadataBehind(CompactedLedgerWithoutMetadata):
    """Messages are behind the view: compaction waits for what is in front of them, too."""

    kind = "behind"

    def fill(self, broker: Cluster, client: pulsar.Client) -> None:
        super().fill(broker, client)
        send(client, self.topic, KEYS)

    def fails(self, broker: Cluster, client: pulsar.Client) -> None:
        reader = client.create_reader(f"persistent://{self.topic}", pulsar.MessageId.earliest, is_read_compacted=True)
        assert reader.has_message_available()
        with pytest.raises(pulsar.Timeout):
            reader.read_next(SILENCE_MS)
        reader.close()
        self._compact(broker)
        with pytest.raises(BrokerError):
            wait_until(lambda: self._compaction(broker) != "RUNNING", "compaction to end", OPERATION_SECONDS)

    def serves(self, broker: Cluster, client: pulsar.Client) -> None:
        assert view(client, self.topic) == {key_of(number): b"%d" % number for number in range(KEYS)}


class SchemaLedgerWithoutMetadata(Fault):
    code = "schema-ledger-without-metadata"
    schema = '{"type":"record","name":"R","fields":[{"name":"f","type":"int"}]}'

    def fill(self, broker: Cluster, client: pulsar.Client) -> None:
        broker.put(f"persistent/{self.topic}")
        broker.post(f"schemas/{self.topic}/schema", {"type": "AVRO", "schema": self.schema, "properties": {}})
        (self.ledger,) = (
            one["ledgerId"] for one in broker.get(f"persistent/{self.topic}/internalStats")["schemaLedgers"]
        )

    def plant(self, keeper: KazooClient) -> None:
        keeper.delete(ledger_path(self.ledger))

    def fails(self, broker: Cluster, client: pulsar.Client) -> None:
        with pytest.raises(BrokerError):
            broker.get(f"schemas/{self.topic}/schema")

    def serves(self, broker: Cluster, client: pulsar.Client) -> None:
        assert json.loads(broker.get(f"schemas/{self.topic}/schema")["data"]) == json.loads(self.schema)


class DedupCursorLeft(Filled):
    code = "dedup-cursor-left"
    namespace = "public/dedup"

    def fill(self, broker: Cluster, client: pulsar.Client) -> None:
        broker.put(f"namespaces/{self.namespace}", {})
        broker.post(f"namespaces/{self.namespace}/deduplication", True)
        super().fill(broker, client)

    def plant(self, keeper: KazooClient) -> None:
        path = f"/admin/policies/{self.namespace}"
        policies = json.loads(keeper.get(path)[0])
        assert policies["deduplicationEnabled"]
        keeper.set(path, json.dumps(policies | {"deduplicationEnabled": False}).encode())

    def fails(self, broker: Cluster, client: pulsar.Client) -> None:
        """A broker of 2.11 and later removes it when it loads the topic."""
        path = self.topic_name.cursor_path("pulsar.dedup")
        with broker.zookeeper() as keeper:
            assert keeper.exists(path)
            assert receive(client, self.topic) == texts(ENTRIES)
            wait_until(lambda: not keeper.exists(path), "the cursor to go")

    def serves(self, broker: Cluster, client: pulsar.Client) -> None:
        with broker.zookeeper() as keeper:
            assert not keeper.exists(self.topic_name.cursor_path("pulsar.dedup"))
        super().serves(broker, client)


class BacklogOverQuota(Filled):
    code = "backlog-over-quota"
    namespace = "public/quota"

    def __init__(self) -> None:
        super().__init__()
        self.by_hand = (f"pulsar-admin topics clear-backlog {self.topic} -s {SUBSCRIPTION}",)

    def fill(self, broker: Cluster, client: pulsar.Client) -> None:
        broker.put(f"namespaces/{self.namespace}", {})
        super().fill(broker, client)

    def plant(self, keeper: KazooClient) -> None:
        path = f"/admin/policies/{self.namespace}"
        policies = json.loads(keeper.get(path)[0])
        quota = {"destination_storage": {"limitSize": 100, "limitTime": -1, "policy": "producer_exception"}}
        keeper.set(path, json.dumps(policies | {"backlog_quota_map": quota}).encode())

    def fails(self, broker: Cluster, client: pulsar.Client) -> None:
        def is_refused() -> bool:
            try:
                client.create_producer(f"persistent://{self.topic}").close()
            except pulsar.ProducerBlockedQuotaExceededException:
                return True
            return False

        wait_until(is_refused, "producers to be refused")

    def serves(self, broker: Cluster, client: pulsar.Client) -> None:
        send(client, self.topic, 1)


class Transacted(Filled):
    """Half of the messages are acknowledged by transactions."""

    done = ENTRIES // 2

    @property
    def log(self) -> TopicName:
        return self.topic_name.pending_ack(SUBSCRIPTION)

    def fill(self, broker: Cluster, client: pulsar.Client) -> None:
        super().fill(broker, client)
        self.transact(broker)
        broker.put(f"persistent/{self.topic}/unload")
        assert receive(client, self.topic) == texts(ENTRIES)[self.done :]

    def transact(self, broker: Cluster) -> None:
        run_perf(
            broker,
            *("transaction", "-u", broker.service_url, "-au", broker.web_url, "-ntxn", self.done, "-ss", SUBSCRIPTION),
            *("--topics-c", f"persistent://{self.topic}", "--topics-p", f"persistent://{self.topic}-out"),
        )

    def listed(self, keeper: KazooClient) -> ManagedLedger:
        return decode_managed_ledger(keeper.get(self.log.path)[0], self.log.path)

    def fails(self, broker: Cluster, client: pulsar.Client) -> None:
        with suppress(pulsar.PulsarException):
            assert receive(client, self.topic) == []

    def serves(self, broker: Cluster, client: pulsar.Client) -> None:
        assert receive(client, self.topic) == texts(ENTRIES)[self.done :]


class PendingAckLedgerLost(Transacted):
    code = "pending-ack-ledger-lost"
    brings = ("ledger-without-metadata",)

    def plant(self, keeper: KazooClient) -> None:
        keeper.delete(ledger_path(self.listed(keeper).ledgers[1].ledger_id))


class PendingAckReplayEndless(Transacted):
    """All that is consumed is trimmed: the ledger that the last load of the log made is left, without an entry."""

    code = "pending-ack-replay-endless"

    def plant(self, keeper: KazooClient) -> None:
        *consumed, empty = self.listed(keeper).ledgers
        assert not empty.entries
        assert consumed[-1].entries
        end = Position(consumed[-1].ledger_id, consumed[-1].entries - 1)
        keeper.set(self.log.path, encode_managed_ledger(ManagedLedger((empty,))))
        keeper.set(self.log.cursor_path(PENDING_ACK_CURSOR), encode_cursor_info(CursorInfo(-1, end)))
        for ledger in consumed:
            keeper.delete(ledger_path(ledger.ledger_id))


class PendingAckLogWithoutLedgers(PendingAckReplayEndless):
    """Its list is empty, too: what is there is a cursor."""

    kind = "no-ledger"

    def plant(self, keeper: KazooClient) -> None:
        super().plant(keeper)
        (empty,) = self.listed(keeper).ledgers
        keeper.set(self.log.path, encode_managed_ledger(ManagedLedger()))
        keeper.delete(ledger_path(empty.ledger_id))


class CoordinatorsUnassigned(Transacted):
    code = "transaction-coordinators-unassigned"

    def is_of(self, row: Json) -> bool:
        return bool(row["code"] == self.code)

    def plant(self, keeper: KazooClient) -> None:
        keeper.delete(ASSIGN.partitioned_path)

    def fails(self, broker: Cluster, client: pulsar.Client) -> None:
        with pytest.raises(AssertionError, match="the transaction coordinator has not initialized"):
            self.transact(broker)

    def serves(self, broker: Cluster, client: pulsar.Client) -> None:
        self.transact(broker)


class EntryLogMissing(Filled):
    """The log with the topic, of the only bookie; its journals have the entries in front of their mark."""

    code = "entry-log-missing"
    asks = True
    then = ("pulsar-admin store refresh",)

    def fill(self, broker: Cluster, client: pulsar.Client) -> None:
        self._roll(broker, client)  # what a broker needs of the cluster is in a log before
        super().fill(broker, client)
        self._roll(broker, client)
        wait_until(lambda: self._is_marked(broker), "the mark to be behind the topic's entries")

    def _is_marked(self, broker: Cluster) -> bool:
        """Whether no start reads the topic's entries from the journals again."""
        (bookie,) = broker.bookies
        data = (bookie.ledgers[0] / "current" / "lastMark").read_bytes()
        if not data:
            return False  # it is being written
        mark = decode_last_mark(data, "lastMark")
        sent = {(one.ledger_id, one.entry_id) for one in self.sent}
        return all(
            LogMark(int(journal.stem, 16), record.offset + record.size) < mark
            for journal in (bookie.journals[0] / "current").glob("*.txn")
            for record in iter_records(journal)
            if record.entry in sent
        )

    def _roll(self, broker: Cluster, client: pulsar.Client) -> None:
        """Write until there is another log."""
        before = len(self._logs(broker))
        producer = client.create_producer(f"persistent://{self.topic}-more", batching_enabled=False)
        for _ in range(2 * LOG_BYTES // CHUNK_BYTES + 2):
            producer.send(bytes(CHUNK_BYTES // 2))
        producer.close()
        wait_until(lambda: len(self._logs(broker)) > before, "another log")

    @staticmethod
    def _logs(broker: Cluster) -> list[Path]:
        return sorted((broker.bookies[0].ledgers[0] / "current").glob("*.log"))

    def plant_files(self, cluster: Cluster) -> None:
        sent = {(one.ledger_id, one.entry_id) for one in self.sent}
        lost = [log for log in self._logs(cluster) if sent & {one.entry for one in iter_records(log)}]
        assert lost
        assert self._logs(cluster)[0] not in lost
        for log in lost:
            log.unlink()

    def fails(self, broker: Cluster, client: pulsar.Client) -> None:
        assert receive(client, self.topic) == []


class MetadataOlder(Fault):
    """ZooKeeper's files are of a moment when the topic had half of its messages; its producer goes on."""

    code = "metadata-older"

    def fill(self, broker: Cluster, client: pulsar.Client) -> None:
        broker.subscribe(self.topic, SUBSCRIPTION)
        producer = client.create_producer(f"persistent://{self.topic}", batching_enabled=False)
        for text in texts(ENTRIES):
            producer.send(text)
        broker.put(
            "namespaces/public/default/unload"
        )  # else the broker's session, which is in the copy, owns the topic
        self.older = broker.folder.with_name("older")
        copy_at_rest(broker.zookeeper_data, self.older)
        self.newer = {producer.send(text).ledger_id() for text in texts(2 * ENTRIES)[ENTRIES:]}
        producer.close()

    def plant_files(self, cluster: Cluster) -> None:
        shutil.rmtree(cluster.zookeeper_data)
        copy_tree(self.older, cluster.zookeeper_data)

    def fails(self, broker: Cluster, client: pulsar.Client) -> None:
        """The topic ends where it did; ids that were given are given again."""
        assert receive(client, self.topic) == texts(ENTRIES)
        assert ledgers_of(broker, self.topic)[-1] in self.newer

    def serves(self, broker: Cluster, client: pulsar.Client) -> None:
        assert receive(client, self.topic) == texts(2 * ENTRIES)
        assert send(client, self.topic, 1)[0].ledger_id() not in self.newer


class MarksStale(Filled):
    """Of a ledger that was deleted, and of one that is complete."""

    code = "marks-stale"

    def fill(self, broker: Cluster, client: pulsar.Client) -> None:
        super().fill(broker, client)
        self.marked = {deleted_ledger(broker, client, self.topic), self.sent[0].ledger_id}

    def plant(self, keeper: KazooClient) -> None:
        for ledger_id in self.marked:
            keeper.create(mark_path(ledger_id), b'replica: "gone:3181"\nctime: 1700000000000\n', makepath=True)

    def _left(self, broker: Cluster) -> set[int]:
        with broker.zookeeper() as keeper:
            return {ledger_id for ledger_id in self.marked if keeper.exists(mark_path(ledger_id))}

    def fails(self, broker: Cluster, client: pulsar.Client) -> None:
        """They stay while no autorecovery runs; one that does removes them."""
        assert self._left(broker) == self.marked
        autorecovery = Daemon("autorecovery", broker.folder)
        broker.launch_autorecovery(autorecovery)
        try:
            wait_until(lambda: not self._left(broker), "autorecovery to remove the marks")
        finally:
            autorecovery.end(signal.SIGKILL)

    def serves(self, broker: Cluster, client: pulsar.Client) -> None:
        assert self._left(broker) == set()
        super().serves(broker, client)


SAMPLE = (CursorUnreadable, LedgerWithoutMetadata, ChunkCut, PartitionsWithoutMetadata, CompactedViewDetached)
OTHERS = (
    LastLedgerWithoutMetadata,
    LedgerMetadataDamaged,
    LastLedgerMetadataDamaged,
    LedgerOffList,
    CursorLedgerWithoutMetadata,
    CursorLedgerLost,
    CursorAhead,
    PartitionsBeyondMetadata,
    PartitionedTopicHalfDeleted,
    PartitionedNameOverTopic,
    CompactedLedgerWithoutMetadata,
    CompactedLedgerWithoutMetadataBehind,
    SchemaLedgerWithoutMetadata,
    DedupCursorLeft,
    BacklogOverQuota,
    MarksStale,
)
BOOKIE = {"journalSyncData": "true"}  # without, the mark of its journal stays behind
TRANSACTIONS = {"transactionCoordinatorEnabled": "true", "acknowledgmentAtBatchIndexLevelEnabled": "true"}
WORLDS: dict[str, tuple[dict[str, str], tuple[type[Fault], ...]]] = {"topics": (SETTINGS, SAMPLE)}
if os.environ.get("ALL"):
    WORLDS = {
        "topics": (SETTINGS, (*SAMPLE, *OTHERS)),
        "transactions": (
            SETTINGS | TRANSACTIONS,
            (PendingAckLedgerLost, PendingAckReplayEndless, PendingAckLogWithoutLedgers, CoordinatorsUnassigned),
        ),
        "entry log": (SETTINGS, (EntryLogMissing,)),
        "metadata": (SETTINGS, (MetadataOlder,)),
    }


@pytest.mark.parametrize("world", WORLDS)
def test_a_broker_fails_as_it_is_told_and_serves_when_it_is_cured(world: str, tmp_path: Path) -> None:
    settings, kinds = WORLDS[world]
    with Cluster(tmp_path / "cluster", settings, [BOOKIE], [Disks(("journal",), ("ledgers",))]) as cluster:
        faults = [kind() for kind in kinds]
        planted = Planted(cluster, faults)
        planted.plant()
        wrong = planted.ask_before()
        before, after = planted.cure()
        assert before == Counter(code for fault in faults for code in (fault.code, *fault.brings))
        assert after == Counter()
        wrong += planted.ask_after()
    print(planted.seconds)
    assert wrong == []
