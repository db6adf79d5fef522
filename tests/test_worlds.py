"""The worlds are what their README says, and are shared read-only."""

import pytest

from tests import worlds


@pytest.mark.parametrize("name", [*worlds.WORLD_NAMES, worlds.CLUSTER])
def test_a_world_has_every_state(name: str) -> None:
    folder = worlds.world(name)
    for state in worlds.STATES:
        metadata, bookies = ("zookeeper/version-2", 3) if name == worlds.CLUSTER else ("metadata/CURRENT", 1)
        assert (folder / state / metadata).exists()
        assert len(list((folder / state).glob("bookkeeper*/current/VERSION"))) == bookies
    assert sorted(path.name for path in (folder / "keys").iterdir()) == ["priv.pem", "pub.pem"]
    assert all(path.stat().st_mode & 0o222 == 0 for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    ("name", "seed", "topics", "messages", "probes", "mutations"),
    [("small", 7, 26, 3354, 929, 14), ("nometa", 31337, 26, 6458, 1043, 14), ("cluster", 88, 26, 4127, 904, 14)],
)
def test_the_oracle_is_the_recorded_one(
    name: str, seed: int, topics: int, messages: int, probes: int, mutations: int
) -> None:
    answers = worlds.oracle(name)
    assert answers["version"] == "apache-pulsar-4.0.8"
    assert answers["seed"] == seed
    assert len(answers["topics"]) == topics
    assert sum(len(topic["messages"] or []) for topic in answers["topics"].values()) == messages
    assert sum(len(topic.get("by_time", {})) for topic in answers["topics"].values()) == probes
    assert len(answers["mutations"]) == mutations
