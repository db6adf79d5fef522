"""Read model of packages of functions, sinks and sources that a broker keeps in BookKeeper: each is two streams of DistributedLog.

Upstream: ``BookKeeperPackagesStorage`` (Pulsar 4.0.8, 5.0.1). The stream ``TYPE/TENANT/NAMESPACE/NAME/VERSION`` below ``/pulsar/packages``
is the package, ``meta`` below it its description.
"""

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from pulsar_admin.store.codec.packages import decode_log_segment, decode_package_metadata, iter_records
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.tree import iter_children, iter_nodes
from pulsar_admin.store.errors import EntryNotFound, InvalidValue, ResourceNotFound
from pulsar_admin.store.model.ledgers import read_ledger
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.names import NamespaceName, shell_word

PACKAGES = "/pulsar/packages"
KINDS = ("function", "sink", "source")
_STREAM = "<default>"
"""The only part of a stream that has no parts."""


class PackageName(Struct, frozen=True):
    """The name of a package, ``function://acme/orders/enrich@1.2``."""

    kind: str
    tenant: str
    namespace: str
    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.kind}://{self.tenant}/{self.namespace}/{self.name}@{self.version}"

    @property
    def versions_path(self) -> str:
        """The node below which its versions are."""
        return f"{PACKAGES}/{self.kind}/{self.tenant}/{self.namespace}/{self.name}"


def parse_package(text: str) -> PackageName:
    """Return the name; without a version it is that of ``latest``. Raises InvalidValue."""
    kind, _, rest = text.partition("://")
    path, _, version = rest.partition("@")
    parts = path.split("/")
    if kind not in KINDS or len(parts) != 3 or not all(parts) or "@" in version or "/" in version:
        raise InvalidValue(
            f"Invalid package name '{text}'",
            hint="TYPE://TENANT/NAMESPACE/NAME@VERSION; TYPE is one of " + ", ".join(KINDS),
        )
    tenant, namespace, name = parts
    return PackageName(kind, tenant, namespace, name, version or "latest")


def package_names(txn: Txn, kind: str, namespace: NamespaceName) -> list[str]:
    """Return the names of packages of a namespace; raises InvalidValue."""
    if kind not in KINDS:
        raise InvalidValue(f"type of a package {kind!r} is not one of {', '.join(KINDS)}")
    return [*iter_children(txn, f"{PACKAGES}/{kind}/{namespace}")]


def package_versions(txn: Txn, name: PackageName) -> list[str]:
    """Return the versions of a package."""
    return [*iter_children(txn, name.versions_path)]


def read_package_metadata(reader: EntryReader, name: PackageName) -> dict[str, Any]:  # Any: JSON
    """Return the description of a package; raises ResourceNotFound, EntryNotFound, EntryCorrupt, MetadataCorrupt, Unsupported."""
    path = f"{name.versions_path}/{name.version}/meta"
    return decode_package_metadata(
        b"".join(_read_stream(reader, path, f"Package '{name}' metadata does not exist")), path
    )


def iter_package(reader: EntryReader, name: PackageName) -> Iterator[bytes]:
    """Yield the bytes of a package; raises as ``read_package_metadata``."""
    yield from _read_stream(reader, f"{name.versions_path}/{name.version}", f"Package '{name}' does not exist")


def _read_stream(reader: EntryReader, path: str, missing: str) -> Iterator[bytes]:
    root = f"{path}/{_STREAM}/ledgers/"
    segments = sorted(decode_log_segment(node.value, node.path) for node in iter_nodes(reader.txn, root))
    if not segments:
        raise ResourceNotFound(
            missing, hint=f"see: pulsar-admin store ls {shell_word(PACKAGES)}; a broker may keep packages as files"
        )
    is_whole = False
    for number, segment in enumerate(segments, 1):
        segment.check(path)
        if segment.sequence != number:
            raise EntryNotFound(f"{path}: segment {number} is not here, but segment {segment.sequence} is", where=path)
        last = read_ledger(reader.txn, segment.ledger_id).last_entry_id
        if last < 0:
            raise EntryNotFound(f"ledger {segment.ledger_id} of {path} has no entries here", ledgerId=segment.ledger_id)
        for entry_id in range(last + 1):
            payload = reader.read(segment.ledger_id, entry_id).payload
            for record in iter_records(payload, f"{path}: entry {segment.ledger_id}:{entry_id}"):
                if record is None:
                    is_whole = True
                else:
                    yield record
    if not is_whole:
        raise EntryNotFound(
            f"{path}: its end is not here", hint="a broker was still writing it, or did not finish it", where=path
        )
