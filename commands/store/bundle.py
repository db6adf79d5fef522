"""``store bundle`` and ``store import bundle``: a store without names and bytes of entries, for others to look at."""

from __future__ import annotations

from pathlib import Path

import click

from pulsar_admin.context import App
from pulsar_admin.options import command, pass_app
from pulsar_admin.store.errors import (
    AlreadyExists,
    DiskFull,
    InvalidValue,
    MetadataCorrupt,
    NotWritable,
    SourceNotFound,
    StoreBusy,
    StoreNotFound,
    Unsupported,
)

_PATH = click.Path(path_type=Path)


@command(
    "bundle",
    examples=["pulsar-admin store bundle incident.bundle"],
    elsewhere=["pulsar-admin store bundle incident.bundle --names names.json"],
    output="What is in the bundle, where the names are, and what store check finds, by its codes.",
    errors=[StoreNotFound, AlreadyExists, InvalidValue, StoreBusy, DiskFull, NotWritable],
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
    app.emit(app.session.api.write_bundle(file, names=names_file))


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
    from pulsar_admin.api.imports import store_of_bundle

    done = store_of_bundle(app.session, file, app.store_path)
    app.problems(not done["sameFindings"])
    app.emit(done)
