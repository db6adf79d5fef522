"""Options and files of topics: what is understood, and one clear refusal for each thing that is not."""

from pathlib import Path

from bench.generate import spec
from bench.generate.draws import mix
from bench.generate.request import ClusterRequest, TopicOptions, plan_cluster
from pulsar_admin.store.codec import compression
from pulsar_admin.store.names import parse_topic


def test_the_draws_are_splitmix64() -> None:
    # First outputs of the reference generator (Vigna, splitmix64.c) for the state 1234567.
    states = [1234567 + 0x9E3779B97F4A7C15 * step for step in (1, 2, 3)]
    assert [mix(state) for state in states] == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def _plan(cluster: ClusterRequest, topic: TopicOptions | None = None) -> spec.ClusterSpec:
    return plan_cluster(Path("/data"), cluster, topic or {})


def test_names_of_topics() -> None:
    names = [str(topic.name) for topic in _plan(ClusterRequest()).topics]
    assert names == ["persistent://public/default/generated"]
    request = ClusterRequest(topic=(parse_topic("a/b/c"),), topics=2)
    names = [topic.name.local_name for topic in _plan(request, {"partitions": 2}).topics]
    assert names == [f"{base}-partition-{index}" for base in ("c", "generated-0", "generated-1") for index in (0, 1)]


def test_a_file_of_topics(tmp_path: Path) -> None:
    file = tmp_path / "topics.jsonl"
    file.write_text(
        '{"topic":"a/b/c","entries":"2K","rate":0.25,"event-time":true,"message-size":"1..9","delayed":2.5}\n'
        '\n{"topic":"a/b/d","partitions":2,"codecs":"zstd","start":1700000000123}\n'
    )
    topics = _plan(ClusterRequest(from_file=file), {"keys": 5}).topics
    assert [topic.name.local_name for topic in topics] == ["c", "d-partition-0", "d-partition-1"]
    assert (topics[0].entries, topics[0].rate, topics[0].event_time, topics[0].delayed) == (2000, 0.25, True, 250)
    assert (topics[1].codecs, topics[1].start_ms, topics[1].keys) == ((compression.ZSTD,), 1_700_000_000_123, 5)
