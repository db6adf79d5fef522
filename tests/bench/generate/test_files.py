"""The same seed gives the same files of a cluster, whatever stamps the messages."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from bench.generate.cluster import apply_generate
from bench.generate.spec import ClusterSpec
from pulsar_admin.store.codec.interceptors import parse_interceptors
from pulsar_admin.store.sources.rocksdb import open_for_reading
from tests.bench.generate.conftest import Make
from tests.bench.generate.test_contents import CLUSTERS

EVERYTHING = CLUSTERS["everything"]


def _bytes(root: Path) -> dict[str, str]:
    current = root / "bookkeeper" / "current"
    files = sorted(path for path in current.iterdir() if path.is_file())
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    for name in ("metadata", "bookkeeper/current/ledgers", "bookkeeper/current/locations"):
        with open_for_reading(root / name) as items:
            found[name] = hashlib.sha256(b"".join(key + value for key, value in items)).hexdigest()
    return found


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(make: Make, tmp_path: Path) -> None:
    first = _bytes(make(EVERYTHING).root)
    apply_generate(tmp_path / "again", EVERYTHING)
    assert _bytes(tmp_path / "again") == first
    other = ClusterSpec(**{name: getattr(EVERYTHING, name) for name in ClusterSpec.__slots__} | {"seed": 8})
    apply_generate(tmp_path / "other", other)
    assert _bytes(tmp_path / "other")["0.log"] != first["0.log"]


def test_interceptors_of_others_write_the_same_bytes(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel makes the metadata of the two known interceptors; others are asked entry by entry."""
    from pulsar_admin.store.codec import interceptors

    class Both:
        def __init__(self) -> None:
            self.clock = interceptors.AppendBrokerTimestampMetadataInterceptor()
            self.counter = interceptors.AppendIndexMetadataInterceptor()

        def intercept(self, entry: interceptors.BrokerEntry, append: interceptors.Append) -> interceptors.BrokerEntry:
            return self.counter.intercept(self.clock.intercept(entry, append), append)

    monkeypatch.setattr(interceptors, "_entry_points", lambda: {"both": Both})
    spec = ClusterSpec(
        **{name: getattr(EVERYTHING, name) for name in ClusterSpec.__slots__}
        | {"interceptors": parse_interceptors("both")}
    )
    apply_generate(tmp_path / "made", spec)
    first, second = _bytes(make(EVERYTHING).root), _bytes(tmp_path / "made")
    assert {name: second[name] for name in second if name != "metadata"} == {
        name: first[name] for name in first if name != "metadata"
    }
