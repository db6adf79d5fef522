"""``store bundle`` and ``store import bundle``: a store without names and bytes of entries, for others to look at."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import click

from pulsar_admin.context import App
from pulsar_admin.options import command, pass_app
from store.check.finding import Severity
from store.db.environment import Store, open_store
from store.errors import (
    AlreadyExists,
    DiskFull,
    InvalidValue,
    MetadataCorrupt,
    NotWritable,
    SourceNotFound,
    StoreNotFound,
    Unsupported,
)

Json = dict[str, Any]  # Any: JSON values
_PATH = click.Path(path_type=Path)


@command(
    "bundle",
    examples=["pulsar-admin store bundle incident.bundle"],
    elsewhere=["pulsar-admin store bundle incident.bundle --names names.json"],
    output="What is in the bundle, where the names are, and what store check finds, by its codes.",
    errors=[StoreNotFound, AlreadyExists, InvalidValue, DiskFull, NotWritable],
    uses=["now"],
)
@click.argument("file", type=_PATH)
@click.option("--names", "names_file", type=_PATH, metavar="FILE", help="The file of names [FILE.names.json].")
@pass_app
def bundle(app: App, file: Path, names_file: Path | None) -> None:
    """Write metadata, index and findings into FILE, to share with others.

    Names of tenants, namespaces, topics, subscriptions, producers, roles, clusters, bookies, hosts and directories, and
    property values, are replaced by pseudonyms; payloads and keys of messages are never included. The file of names
    maps them back: keep it. With the file of an earlier bundle, names get the same pseudonyms again.
    """
    from store.transfer.bundle import write_bundle

    names = names_file or file.with_name(f"{file.name}.names.json")
    findings = _findings(app.store)
    result = write_bundle(app.store, file, names, {**_versions(), "created": app.now_ms, "findings": findings})
    app.emit({"bundle": str(file), "names": str(names), **_counts(result), "findings": findings})


@command(
    "bundle",
    examples=[],
    elsewhere=["pulsar-admin --store incident store import bundle incident.bundle"],
    output="What the bundle held, and whether store check finds what it found where the bundle was made.",
    errors=[SourceNotFound, AlreadyExists, MetadataCorrupt, Unsupported, DiskFull, NotWritable],
    uses=["now"],
)
@click.argument("file", type=_PATH)
@pass_app
def import_bundle(app: App, file: Path) -> None:
    """Make a store of the incident bundle FILE.

    It answers every question that needs only metadata and the index. Entries cannot be read: their files are empty,
    with the original sizes.
    """
    from store.transfer.bundle import import_bundle as import_file

    result, header = import_file(file, app.store_path, app.now_ms)
    with open_store(app.settings.store) as store:
        same = _findings(store) == header.get("findings")
    app.problems(not same)
    told = {key: header.get(key) for key in ("toolkit", "created", "findings")}
    app.emit({"store": str(app.settings.store), **_counts(result), **told, "sameFindings": same})


def _counts(result: Any) -> Json:  # Any: BundleResult, imported on use
    return {
        "nodes": result.nodes,
        "leftOut": result.left_out,
        "files": result.files,
        "rows": result.rows,
        "cursorEntries": result.cursor_entries,
    }


def _versions() -> Json:
    import platform
    from importlib.metadata import version

    return {
        "toolkit": version("pulsar-admin-toolkit"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def _findings(store: Store) -> list[Json]:
    """Return how many findings of each code there are."""
    from store.check import check_store

    found = Counter((finding.severity, finding.code) for finding in check_store(store))
    return [
        {"severity": str(severity), "code": code, "count": count}
        for (severity, code), count in sorted(
            found.items(), key=lambda item: (item[0][0] is not Severity.PROBLEM, item[0])
        )
    ]
