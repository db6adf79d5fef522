"""What the Python of Spark's workers lacks: our own packages travel with a job, those that they import do not."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql.functions import udf

from store.errors import MissingComponent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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


def lacking_packages(session: SparkSession) -> MissingComponent | None:
    """Return the error that names all that a worker of SESSION lacks; None where it lacks nothing, or says nothing."""
    modules = tuple(NEEDED)

    def probe(_: int) -> str:  # with the standard library alone
        import sys
        from importlib import import_module

        missing = []
        for name in modules:
            try:
                import_module(name)
            except ImportError:
                missing.append(name)
        return "\n".join([f"{sys.executable}, Python {sys.version_info[0]}.{sys.version_info[1]}", *missing])

    try:
        row = session.range(1).select(udf(probe, "string", useArrow=False)("id")).first()
    except PySparkException:
        return None
    python, *missing = str(row[0]).split("\n") if row is not None else ("",)
    if not missing:
        return None
    packages = [NEEDED[name] for name in missing]
    install = " ".join(f"{package}=={_version(package)}" for package in packages)
    return MissingComponent(
        f"a Spark worker lacks a package: no {', '.join(packages)} in {python}",
        hint=f"in the Python of every worker: pip install {install}; or name another one with --spark-conf "
        "spark.pyspark.python=/path",
        packages=packages,
        python=python,
    )


def _version(package: str) -> str:
    """Return the version that is installed here, which is one that works together."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "*"
