"""A bookie's ``bookkeeper.conf``: which directories it has, and its id.

Upstream ``ServerConfiguration`` (4.17): ``journalDirectories`` or else ``journalDirectory``, ``ledgerDirectories``, ``indexDirectories``
(by default the ledger directories), ``bookieId`` or else ``advertisedAddress`` and ``bookiePort``; ``metadataServiceUri`` or else
``zkServers`` and ``zkLedgersRootPath``.
"""

import re
from pathlib import Path

from pulsar_admin.store.codec.ledgermetadata import LEDGERS_ROOT
from pulsar_admin.store.codec.properties import read_properties
from pulsar_admin.store.errors import InvalidValue
from pulsar_admin.store.sources.given_bookies import GivenBookie

_PORT = "3181"
_URI = re.compile(r"(?:metadata-store:)?zk(?:\+\w+)?:(?://)?[^/]+(/.*)")


def read_bookie_conf(file: Path, root: Path | None = None) -> GivenBookie:
    """Return the bookie that a bookkeeper.conf configures; ``root``: the directory that its disks were copied to, with
    their paths below it.

    Raises SourceNotFound, InvalidValue.
    """
    settings = read_properties(file, "name the bookie's bookkeeper.conf")
    ledgers = _directories(settings, "ledgerDirectories", root)
    journals = _directories(settings, "journalDirectories", root) or _directories(settings, "journalDirectory", root)
    for name, directories in (("ledgerDirectories", ledgers), ("journalDirectories or journalDirectory", journals)):
        if not directories:
            raise InvalidValue(
                f"{file} sets no {name}",
                hint="name the bookie's bookkeeper.conf, or the bookie's directories as ID=DIR,DIR",
                path=str(file),
            )
    address = settings.get("advertisedAddress", "").strip()
    fallback = f"{address}:{settings.get('bookiePort', _PORT).strip()}" if address else ""
    indexes = _directories(settings, "indexDirectories", root)
    # The path of ``metadataServiceUri`` (``zk+hierarchical://HOST:PORT/PATH``, ``metadata-store:zk:HOST:PORT/PATH``),
    # else ``zkLedgersRootPath`` below the chroot of ``zkServers``; "" where nothing says it.
    uri = _URI.fullmatch(settings.get("metadataServiceUri", "").strip())
    if uri is not None:
        metadata_root = uri[1].rstrip("/")
    else:
        _, slash, below = settings.get("zkServers", "").strip().partition("/")
        chroot = (slash + below).rstrip("/")
        below_chroot = settings.get("zkLedgersRootPath", LEDGERS_ROOT if chroot else "").strip().rstrip("/")
        metadata_root = chroot + below_chroot if below_chroot else ""
    return GivenBookie(
        str(file), settings.get("bookieId", "").strip(), (), ledgers, journals, indexes, fallback, metadata_root
    )


def _directories(settings: dict[str, str], name: str, root: Path | None) -> tuple[Path, ...]:
    paths = (Path(part.strip()) for part in settings.get(name, "").split(",") if part.strip())
    return tuple(path if root is None else root / path.relative_to(path.anchor) for path in paths)
