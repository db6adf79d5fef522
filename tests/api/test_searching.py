"""``search`` from Python: what the command finds, with columns of one's own, and the private keys of a session."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

import pulsar_admin
from tests.stores import imported
from tests.worlds import oracle, world

KEYED = "acme/orders/compacted"


def test_search_of_a_topic_and_of_the_store() -> None:
    rows = oracle("small")["topics"][KEYED]["messages"]
    with pulsar_admin.open_store(imported("small", "clean")) as store:
        found = store.topic(KEYED).search(keys=["k0003"], columns=["entry_id", "batch_index"])
        assert [(row["entry_id"], row["batch_index"]) for row in found.rows()] == [
            (row[1], row[2]) for row in rows if row[5] == "k0003"
        ]
        properties = oracle("small")["topics"]["public/default/plain"]["messages"]
        names = ("public/default/plain", KEYED)
        table = store.search(*names, properties={"i": "7"}).to_arrow()
        assert table.column("topic").to_pylist() == ["persistent://public/default/plain"] * sum(
            row[9].get("i") == "7" for row in properties
        )
        everywhere = store.search(key_prefix="k000", limit=7, columns=["key", "topic"]).to_arrow()
        assert len(everywhere) == 7
        assert everywhere.column_names == ["key", "topic"]
        only = store.search(*names, keys=["k0003"], columns=["topic"]).to_arrow()
        assert len(only) == sum(row[5] == "k0003" for row in rows)


def test_what_is_encrypted_needs_the_key() -> None:
    topic, path = "acme/secure/secret", imported("small", "clean")
    rows = oracle("small")["topics"][topic]["messages"]
    with pulsar_admin.open_store(path) as store, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        locked = store.topic(topic).search(keys=["k0009"])
        assert len(locked.to_arrow()) == 0
        assert [problem.code for problem in locked.problems] == ["encrypted-payload"]
        assert said
    pytest.importorskip("cryptography")
    with pulsar_admin.open_store(path, private_keys=[world("small") / "keys"]) as store:
        found = store.topic(topic).search(keys=["k0009"], columns=["sha1"]).to_arrow()
        assert [digest.hex() for digest in found.column("sha1").to_pylist()] == [
            row[8] for row in rows if row[5] == "k0009"
        ]


def test_what_cannot_be_searched_for(tmp_path: Path) -> None:
    with pulsar_admin.open_store(imported("small", "clean")) as store:
        topic = store.topic(KEYED)
        for wanted, said in (
            ({"keys": "k0003"}, "is a text"),
            ({"regex": "("}, "not a regular expression"),
            ({"json_paths": ["id=1"]}, "is not a path"),
            ({"nothing": 1}, "unknown keyword: nothing"),
            ({"limit": -1}, "limit -1"),
        ):
            with pytest.raises(pulsar_admin.InvalidValue, match=said):
                topic.search(**wanted)  # type: ignore[arg-type]
