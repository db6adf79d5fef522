"""What the Python of Spark's workers lacks: our own packages travel with a job, those that they import do not."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from sys import executable
from typing import TYPE_CHECKING

from msgspec import Struct
from pyspark.errors import PySparkException
from pyspark.sql.functions import udf

from pulsar_admin.store.errors import MissingComponent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DISTRIBUTION = "pulsar-admin-toolkit"
NEEDED = {
    "numpy": "numpy",
    "pyarrow": "pyarrow",
    "numba": "numba",
    "cramjam": "cramjam",
    "google_crc32c": "google-crc32c",
    "lmdb": "lmdb",  # imported with what else reads entries, never opened there
    "google.protobuf.message": "protobuf",  # Spark's own jar, which is on a worker's path, has a directory google/protobuf
}
"""Module → package of everything that a slice needs on an executor."""


class WorkerPython(Struct, frozen=True):
    """The Python of a worker: ``name`` and version, the modules that it lacks, and the version of our own packages there."""

    name: str
    missing: tuple[str, ...]
    ours: str

    @property
    def has_our_code(self) -> bool:
        """Whether our packages are installed there as here: they need not travel, and their compiled code is kept."""
        return self.ours == _version(_DISTRIBUTION)

    @property
    def lacking(self) -> MissingComponent | None:
        """The error that names all that the worker lacks; None where it lacks nothing."""
        if not self.missing:
            return None
        packages = [NEEDED[name] for name in self.missing]
        install = " ".join(f"{package}=={_version(package)}" for package in packages)
        return MissingComponent(
            f"a Spark worker lacks a package: no {', '.join(packages)} in {self.name}",
            hint=f"in the Python of every worker: pip install {install}; or name another one with --spark-conf "
            f"spark.pyspark.python=/path; for a session of your own set PYSPARK_PYTHON before it starts (here: {executable})",
            packages=packages,
            python=self.name,
        )


def probe_worker(session: SparkSession) -> WorkerPython | None:
    """Return what the Python of a worker of SESSION has; None where it says nothing."""
    modules = tuple(NEEDED)
    distribution = _DISTRIBUTION

    def probe(_: int) -> str:  # with the standard library alone
        import sys
        from importlib import import_module, metadata

        missing = []
        for name in modules:
            try:
                import_module(name)
            except ImportError:
                missing.append(name)
        try:
            ours = metadata.version(distribution)
        except metadata.PackageNotFoundError:
            ours = ""
        return "\n".join([f"{sys.executable}, Python {sys.version_info[0]}.{sys.version_info[1]}", ours, *missing])

    try:
        row = session.range(1).select(udf(probe, "string", useArrow=False)("id")).first()
    except PySparkException:
        return None
    if row is None:
        return None
    python, ours, *missing = str(row[0]).split("\n")
    return WorkerPython(python, tuple(missing), ours)


def lacking_packages(session: SparkSession) -> MissingComponent | None:
    """Return the error that names all that a worker of SESSION lacks; None where it lacks nothing, or says nothing."""
    found = probe_worker(session)
    return None if found is None else found.lacking


def _version(package: str) -> str:
    """Return the version that is installed here, which is one that works together."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "*"
