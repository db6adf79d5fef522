"""Where Apache Pulsar's binary distribution is on this machine; fetched from Maven Central when it is nowhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

VERSION = "4.0.8"
_GROUP_PATH = Path("org/apache/pulsar/pulsar-server-distribution")
_COORDINATES = f"org.apache.pulsar:pulsar-server-distribution:{VERSION}:tar.gz:bin"
_CACHE = Path(__file__).resolve().parent.parent.parent / ".cache" / "pulsar"


def find_distribution() -> Path:
    """The folder ``apache-pulsar-<VERSION>``: ``$PULSAR_DIST`` if set, else unpacked once into the cache folder.

    The archive is taken from the local Maven repository; Maven is asked to download it (245 MB) when it is not there.
    """
    given = os.environ.get("PULSAR_DIST")
    folder = Path(given) if given else _CACHE / f"apache-pulsar-{VERSION}"
    if not given and not folder.is_dir():
        _unpack(_find_archive(), folder)
    assert (folder / "bin" / "pulsar").is_file(), f"{folder} is not a Pulsar distribution"
    return folder


def _find_archive() -> Path:
    repository = Path.home() / ".m2" / "repository"
    archive = repository / _GROUP_PATH / VERSION / f"pulsar-server-distribution-{VERSION}-bin.tar.gz"
    if not archive.is_file():
        get = ["mvn", "-q", "-B", "dependency:get", f"-Dartifact={_COORDINATES}", "-Dtransitive=false"]
        with tempfile.TemporaryDirectory() as outside_any_project:
            subprocess.run([*get, f"-Dmaven.repo.local={repository}"], cwd=outside_any_project, check=True)
    return archive


def _unpack(archive: Path, folder: Path) -> None:
    """Unpack beside the target and rename, so that an interrupted run leaves nothing that looks finished."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".unpacking-", dir=folder.parent))
    try:
        subprocess.run(["tar", "-xzf", str(archive), "-C", str(scratch)], check=True)
        (scratch / folder.name).rename(folder)
    finally:
        shutil.rmtree(scratch)
