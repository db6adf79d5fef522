"""Small clusters, generated and imported once a run."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from bench.generate.cluster import GenerateResult, apply_generate
from bench.generate.spec import ClusterSpec
from pulsar_admin.store.transfer.imports import ImportOptions, ImportResult
from tests.stores import import_standalone


class Made(NamedTuple):
    """A generated cluster, the store it was imported into, and what both said."""

    root: Path
    store: Path
    result: GenerateResult
    imported: ImportResult


Make = Callable[[ClusterSpec], Made]


@pytest.fixture(scope="session")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Generate a cluster and import it; the same spec again is the same directory, only to be read."""

    @cache
    def make_cluster(spec: ClusterSpec) -> Made:
        folder = tmp_path_factory.mktemp("cluster")
        root, store = folder / "made", folder / "store"
        result = apply_generate(root, spec)
        return Made(root, store, result, import_standalone(root, store, ImportOptions(now_ms=1), lambda _: None))

    return make_cluster
