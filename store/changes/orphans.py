"""Deleting the metadata of ledgers that nothing references; their bookies collect the entries then.

A ledger is given up only where everything that could reference it was read.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from typing import NoReturn

from store.changes.plan import ChangePart, Plan, delete_step
from store.codec.claims import NAMING_KEYS
from store.codec.ledgermetadata import ledger_path
from store.db.delayed import find_index_ledgers
from store.db.environment import Txn
from store.db.files import iter_metadata_damage
from store.db.owners import Owner, OwnerKind
from store.db.tree import find_node, iter_values
from store.errors import InvalidValue, LedgerNotFound, MetadataCorrupt, Refused, StoreError
from store.facts.trees import check_owners_seen
from store.facts.unlisted import find_newer
from store.facts.vanished import find_vanished
from store.model.extent import Extent
from store.model.ledger_owners import all_owners, custom_text
from store.model.ledgers import find_metadata, find_times
from store.model.reader import EntryReader
from store.model.references import read_namings
from store.names import MANAGED_LEDGERS
from store.wording import counted, listed, plural

UNREFERENCED = "unreferenced"
"""Why a ledger with metadata is an orphan, as ``ledgers orphans`` says it."""


def plan_delete_orphans(
    reader: EntryReader, ledger_ids: Iterable[int], *, force: bool = False, accepted: Collection[str] = ()
) -> Plan:
    """Plan deleting the metadata of LEDGER_IDS; raises LedgerNotFound, and Refused for one that is referenced, or may be.

    FORCE: also where what is unreadable, or no part of Pulsar's topics, could reference it, where the metadata is older than the bookies
    and newer metadata could, and where it may be the only copy of something. ACCEPTED: unknown trees that do not.
    """
    txn = reader.txn
    check_owners_seen(txn, accepted)
    indexes = find_index_ledgers(txn)
    ids = tuple(dict.fromkeys(ledger_ids))
    _check_references(txn, set(ids), force=force)
    kept = set() if force else find_vanished(reader).kept & set(ids)
    parts = tuple(_part(txn, ledger_id, indexes, force=force) for ledger_id in ids)
    newer = None if force else find_newer(txn)
    if newer is not None:
        raise Refused(
            f"the metadata is older than the bookies, which hold {counted(newer.ledgers, 'ledger')} up to {newer.largest} that it never"
            " gave an id: what is newer may reference these ledgers",
            hint="bring newer metadata and run: pulsar-admin store refresh; where there is none: pulsar-admin store recover --level B;"
            " --force deletes them all the same",
            ledgerIds=sorted(ids),
        )
    if kept:
        raise Refused(
            f"{plural(len(kept), 'ledger')} {listed(sorted(kept))} may be the only copy of what a topic had: its node or its schema is"
            " gone without a deletion, or of another Pulsar on this BookKeeper, or it lost its compacted view",
            hint="see: pulsar-admin doctor; --force deletes them all the same",
            ledgerIds=sorted(kept),
        )
    return Plan("ledgers delete", txn.id, tuple(delete_step(txn, ledger_path(one)) for one in ids), parts)


def parse_ledger_ids(lines: Iterable[str], where: str) -> Iterator[int]:
    """Yield the ledger ids in LINES: numbers, or JSON objects with ``ledgerId`` as ``ledgers orphans -o jsonl`` prints them, where
    those that have no metadata are left out.

    Raises InvalidValue naming WHERE and the line.
    """
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
            ledger_id = found["ledgerId"] if isinstance(found, dict) else found
        except (ValueError, KeyError, RecursionError):
            found, ledger_id = None, None
        if isinstance(found, dict) and found.get("reason", UNREFERENCED) != UNREFERENCED:
            continue
        if type(ledger_id) is not int or ledger_id < 0:
            raise InvalidValue(
                f"{where}, line {number}: no ledger id: {line.strip()[:60]!r}",
                hint='one a line: 7, or {"ledgerId":7}',
            )
        yield ledger_id


def _check_references(txn: Txn, ledger_ids: Collection[int], *, force: bool) -> None:
    """Raise Refused where a node names one of LEDGER_IDS and, without FORCE, where a part of the metadata cannot be read: it could.

    What destroys reads the nodes themselves: the rows of ``owners`` are derived from them, by an older version perhaps.
    """
    problem = next((damage.reason for damage in iter_metadata_damage(txn)), None)
    for path, value in chain(iter_values(txn, f"{MANAGED_LEDGERS}/"), iter_values(txn, "/schemas/")):
        try:
            namings = read_namings(path, value)
        except StoreError as error:
            problem = problem or error.message
            continue
        for kind, name, cursor, named in namings:
            for ledger_id in named:
                if ledger_id in ledger_ids:
                    _refuse(ledger_id, Owner(kind, name, cursor))
    if problem is not None and not force:
        raise Refused(
            f"what references ledgers cannot be read whole: {problem}",
            hint="see: pulsar-admin store check; --force deletes them all the same",
        )


def _refuse(ledger_id: int, owner: Owner) -> NoReturn:
    raise Refused(
        f"ledger {ledger_id} is referenced: {owner}",
        hint="what nothing references is listed by: pulsar-admin ledgers orphans",
        ledgerId=ledger_id,
    )


def _part(txn: Txn, ledger_id: int, indexes: Collection[int], *, force: bool) -> ChangePart:
    if find_node(txn, ledger_path(ledger_id)) is None:
        raise LedgerNotFound(
            f"ledger {ledger_id} has no metadata: there is nothing to delete",
            hint="what has none: pulsar-admin ledgers orphans",
            ledgerId=ledger_id,
        )
    owners = all_owners(txn, ledger_id)
    if owners or ledger_id in indexes:
        _refuse(ledger_id, owners[0] if owners else Owner(OwnerKind.INDEX, ""))
    try:
        metadata = find_metadata(txn, ledger_id)
    except MetadataCorrupt:
        metadata = None
    claims = {} if metadata is None else custom_text(metadata)
    if (claims.get("application") != "pulsar" or not claims.keys() & NAMING_KEYS) and not force:
        raise Refused(
            f"ledger {ledger_id} does not say that it is of a topic, cursor or schema: others may use it",
            hint="packages of functions and other programs keep ledgers, too; --force deletes it all the same",
            ledgerId=ledger_id,
        )
    times = find_times(txn, ledger_id)
    extent = Extent() if times is None else Extent(times.sums.entries, times.sums.messages, times.sums.payload_bytes)
    before = {"state": "UNREADABLE" if metadata is None else metadata.state.name, "customMetadata": claims}
    return ChangePart(resource=f"ledger {ledger_id}", before=before, extent=extent, unreferenced_ledgers=(ledger_id,))
