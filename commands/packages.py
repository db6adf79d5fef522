"""``packages``: reading packages that a broker stores in BookKeeper, with upstream's command names."""

from pathlib import Path

from pulsar_admin.context import App, Lines, Printed, Shown
from pulsar_admin.store import errors
from pulsar_admin.store.files import write_new_file
from pulsar_admin.store.names import NamespaceName
from pulsar_admin.upstream import mirrored

_PACKAGE = "function://acme/orders/enrich"
_READS = [
    errors.ResourceNotFound,
    errors.EntryNotFound,
    errors.EntryCorrupt,
    errors.MetadataCorrupt,
    errors.InvalidValue,
]


@mirrored(
    "packages list",
    elsewhere=["acme/orders --type function"],
    output="Names, one per line.",
    errors=[errors.InvalidValue],
    helps={"type_": "function, sink or source."},
)
def list_packages(app: App, namespace: NamespaceName, type_: str) -> Shown:
    """List the packages of a type in a namespace.

    Packages that a broker keeps as files are not in a store.
    """
    from pulsar_admin.store.model.packages import package_names

    names = app.session.ask(package_names, type_, namespace)
    if not names:
        app.tell("the metadata has none: a broker may keep packages as files, which are in no store")
    return Lines(names)


@mirrored(
    "packages list-versions", elsewhere=[_PACKAGE], output="Versions, one per line.", errors=[errors.InvalidValue]
)
def list_versions(app: App, package_name: str) -> Shown:
    """List the versions of a package."""
    from pulsar_admin.store.model.packages import package_versions, parse_package

    return Lines(app.session.ask(package_versions, parse_package(package_name)), "VERSION")


@mirrored(
    "packages get-metadata",
    elsewhere=[f"{_PACKAGE}@1.2"],
    output="`description`, `contact`, `createTime`, `modificationTime` and `properties`, as far as it has them.",
    errors=_READS,
)
def get_metadata(app: App, package_name: str) -> Shown:
    """Show the metadata of a package."""
    from pulsar_admin.store.model.packages import parse_package, read_package_metadata

    name = parse_package(package_name)
    with app.session.reader() as reader:
        return Printed(read_package_metadata(reader, name))


@mirrored(
    "packages download",
    elsewhere=[f"{_PACKAGE}@1.2 --path enrich.nar"],
    output="The output of a live `pulsar-admin`.",
    errors=[*_READS, errors.AlreadyExists],
    helps={"path": "The file to write, which does not exist yet."},
    no_preview=True,
)
def download(app: App, package_name: str, path: str) -> Shown:
    """Write the content of a package to a file."""
    from pulsar_admin.store.model.packages import iter_package, parse_package

    name = parse_package(package_name)
    with app.session.reader() as reader:
        write_new_file(Path(path), b"".join(iter_package(reader, name)))
    return Printed(f"The package '{package_name}' downloaded to path '{path}' successfully")
