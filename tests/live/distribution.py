"""Where Apache Pulsar's binary distributions are on this machine; fetched from Maven Central when they are nowhere.

``python -m tests.live.distribution`` makes both and names their folders.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

VERSION = "4.0.8"
OLDER = "2.11.0"
NEWER = "4.2.4"
"""``NEWER`` has no binary distribution on Maven Central: its jars are taken one by one, scripts and settings from ``VERSION``."""

_GROUP_PATH = Path("org/apache/pulsar/pulsar-server-distribution")
_CACHE = Path(__file__).resolve().parent.parent.parent / ".cache" / "pulsar"
_REPOSITORY = Path.home() / ".m2" / "repository"
_JARS = ("pulsar-broker", "pulsar-client-original", "pulsar-client-admin-original", "pulsar-transaction-coordinator")
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>local</groupId><artifactId>broker</artifactId><version>1</version><packaging>pom</packaging>
  <dependencyManagement><dependencies><dependency>
    <groupId>org.apache.pulsar</groupId><artifactId>pulsar</artifactId><version>{version}</version>
    <type>pom</type><scope>import</scope>
  </dependency></dependencies></dependencyManagement>
  <dependencies>{dependencies}</dependencies>
</project>
"""
_DEPENDENCY = (
    "<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version></dependency>"
)
# The log configuration of VERSION counts log lines with it; without it the broker runs and logs nothing.
_LOG_COUNTER = _DEPENDENCY.format(group="io.prometheus", name="simpleclient_log4j2", version="0.16.0")


def find_distribution(version: str = VERSION) -> Path:
    """The folder ``apache-pulsar-<version>``: ``VERSION``'s is ``$PULSAR_DIST`` if set, else made once in the cache folder.

    The archive is taken from the local Maven repository; Maven is asked to download it (245 MB, ``OLDER``'s 404 MB) when it is
    not there. The jars of ``NEWER`` (240 MB) are always Maven's to find.
    """
    given = os.environ.get("PULSAR_DIST") if version == VERSION else None
    folder = Path(given) if given else _CACHE / f"apache-pulsar-{version}"
    if not given and not folder.is_dir():
        _make(_assemble if version == NEWER else _unpack, folder)
    assert (folder / "bin" / "pulsar").is_file(), f"{folder} is not a Pulsar distribution"
    return folder


def _make(make: Callable[[Path, str], None], folder: Path) -> None:
    """Make beside the target and rename, so that an interrupted run leaves nothing that looks finished."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".making-", dir=folder.parent))
    try:
        make(scratch, folder.name)
        (scratch / folder.name).rename(folder)
    finally:
        shutil.rmtree(scratch)


def _unpack(scratch: Path, name: str) -> None:
    version = name.removeprefix("apache-pulsar-")
    archive = _REPOSITORY / _GROUP_PATH / version / f"pulsar-server-distribution-{version}-bin.tar.gz"
    if not archive.is_file():
        coordinates = f"org.apache.pulsar:pulsar-server-distribution:{version}:tar.gz:bin"
        get = ["dependency:get", f"-Dartifact={coordinates}", "-Dtransitive=false"]
        _maven(get, scratch)  # outside any Maven project
    subprocess.run(["tar", "-xzf", str(archive), "-C", str(scratch)], check=True)


def _assemble(scratch: Path, name: str) -> None:
    version = name.removeprefix("apache-pulsar-")
    jars = (_DEPENDENCY.format(group="org.apache.pulsar", name=jar, version=version) for jar in _JARS)
    (scratch / "pom.xml").write_text(_POM.format(version=version, dependencies="".join((*jars, _LOG_COUNTER))))
    folder = scratch / name
    _maven(["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={folder / 'lib'}"], scratch)
    for part in ("bin", "conf"):
        shutil.copytree(find_distribution() / part, folder / part)


def _maven(goal: list[str], folder: Path) -> None:
    subprocess.run(["mvn", "-q", "-B", *goal, f"-Dmaven.repo.local={_REPOSITORY}"], cwd=folder, check=True)


def main() -> None:
    """Make both distributions."""
    for version in (VERSION, NEWER):
        print(find_distribution(version))


if __name__ == "__main__":
    main()
