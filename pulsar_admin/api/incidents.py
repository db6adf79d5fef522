"""Incident bundles: a store without names and bytes of entries, for others to look at, and stores made of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pulsar_admin.api.given import given_path
from pulsar_admin.api.session import Caller, Session, Time
from pulsar_admin.jsonify import to_json

if TYPE_CHECKING:
    from pulsar_admin.store.db.environment import Store

Json = dict[str, Any]  # Any: JSON values


def bundle_of(session: Session, file: Path, names: Path) -> Json:
    """Write the bundle of the store to FILE, with pseudonyms that NAMES maps back."""
    from pulsar_admin.store.transfer.bundle import write_bundle

    with session.opened() as store:
        findings = _findings(store)
        told = {**_versions(), "created": session.clock_ms, "findings": findings}
        result = write_bundle(store, file, names, told)
    return {"bundle": str(file), "names": str(names), **to_json(result), "findings": findings}


def import_bundle(file: Path | str, path: Path | str, *, now: Time | None = None) -> Mapping[str, Any]:  # Any: JSON
    """Make a store at PATH of the incident bundle FILE; it answers what needs only metadata and the index.

    Returns what the bundle held, and ``sameFindings``: whether a check finds what it found where the bundle was made, of all that
    needs no bookies' files.
    Raises SourceNotFound, AlreadyExists, MetadataCorrupt, Unsupported, DiskFull, NotWritable.
    """
    return store_of_bundle(Caller(now), given_path("file", file), given_path("path", path))


def store_of_bundle(caller: Caller, file: Path, path: Path) -> Json:
    """Make a store at PATH of the bundle FILE for CALLER."""
    from pulsar_admin.store.db.environment import open_store
    from pulsar_admin.store.transfer.bundle import import_bundle as import_file

    result, header = import_file(file, path, caller.clock_ms)
    with open_store(path) as store:  # what it checks may be damaged
        same = _of_bundles(_findings(store)) == _of_bundles(header.get("findings") or [])
    told = {key: header.get(key) for key in ("toolkit", "created", "findings")}
    return {"store": str(path), **to_json(result), **told, "sameFindings": same}


def _versions() -> Json:
    import platform
    from importlib.metadata import version

    return {
        "toolkit": version("pulsar-admin-toolkit"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def _of_bundles(findings: list[Json]) -> list[Json]:
    """Return those of FINDINGS that need no bookies' files."""
    from pulsar_admin.store.rules.table import RULES

    of_disks = {rule.code for rule in RULES if rule.of_disks}
    return [found for found in findings if found["code"] not in of_disks]


def _findings(store: Store) -> list[Json]:
    """Return how many findings of each code there are, problems first."""
    from pulsar_admin.store.check import check_store

    # A bundle has the content of rows and not their bytes: whether those of its store have digests is not found again.
    found = Counter(
        (not finding.is_problem, finding.code)
        for finding in check_store(store)
        if finding.code != "rows-without-digests"
    )
    return [
        {"severity": "note" if is_note else "problem", "code": code, "count": count}
        for (is_note, code), count in sorted(found.items())
    ]
