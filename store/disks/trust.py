"""Whether metadata may decide what a bookie deletes: it may be empty, older than the disks, or of another cluster.

A bookie itself checks none of this (``ScanAndCompareGarbageCollector``, BookKeeper 4.17): ledgers that are not listed are garbage.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from msgspec.structs import replace

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.codec.ledgermetadata import LEDGERS_ROOT, decode_members, ledger_id_of_path
from pulsar_admin.store.db.bookies import Bookie
from pulsar_admin.store.db.environment import Store
from pulsar_admin.store.db.files import Damage, iter_metadata_damage
from pulsar_admin.store.db.tree import decode_node, iter_values
from pulsar_admin.store.errors import Refused, StoreError
from pulsar_admin.store.recovery.metadata_index import Known, read_known
from pulsar_admin.store.sources.bookies import identity_of
from pulsar_admin.store.sources.nodes import Source, iter_source_rows
from pulsar_admin.store.sources.storage import cookie_of
from pulsar_admin.store.wording import counted, plural


def read_stored(store: Store) -> Known:
    """Return the ledgers that a store lists, or listed at its import: a deletion that was not exported must delete nothing on a disk.

    The source's current next id is not read: the source may be newer than the store.
    """
    with store.read() as txn:
        problems = [damage.reason for damage in iter_metadata_damage(txn)]
        known = read_known(f"the store {store.path}", iter_values(txn, "/"), None, problems)
        rows = txn.items("base", f"{LEDGERS_ROOT}/".encode())
        ids = (ledger_id_of_path(decode_node(key, row).path) for key, row in rows if row)
        before = np.array([ledger_id for ledger_id in ids if ledger_id is not None], np.int64)
    return replace(known, ledgers=np.union1d(known.ledgers, before))


def stored_nodes(store: Store) -> Iterator[tuple[str, bytes]]:
    """Yield (path, value) of the ledgers' nodes in a store, as they are now and as they were imported."""
    with store.read() as txn:
        yield from iter_values(txn, f"{LEDGERS_ROOT}/")
        for key, row in txn.items("base", f"{LEDGERS_ROOT}/".encode()):
            if row:
                node = decode_node(key, row)
                yield node.path, node.value


def nodes_of(source: Source) -> Iterator[tuple[str, bytes]]:
    """Yield (path, value) of the ledgers' nodes in a source of metadata."""
    for row in iter_source_rows(source):
        if not isinstance(row, Damage) and row[0].startswith(f"{LEDGERS_ROOT}/".encode()):
            node = decode_node(*row)
            yield node.path, node.value


def find_members(nodes: Iterable[tuple[str, bytes]], ledgers: Array, bookie_id: str) -> Array:
    """Return those ledgers that may be on the bookie according to their metadata among ``nodes`` (path, value)."""
    wanted, members = set(ledgers.tolist()), []
    for path, value in nodes:
        ledger_id = ledger_id_of_path(path)
        if ledger_id is None or ledger_id not in wanted:
            continue
        try:
            may_have = bookie_id in decode_members(value, path)
        except StoreError:
            may_have = True  # metadata that cannot be read may name the bookie
        if may_have:
            members.append(ledger_id)
    return np.array(sorted(members), np.int64)


def check_is_of(known: Known, bookie: Bookie) -> None:
    """Raise Refused if a bookie certainly does not belong to this metadata's cluster."""
    cookie = cookie_of(bookie)
    # Cookies of layout 3 have no instance id: those prove nothing.
    if known.instance_id and cookie.instance_id not in (None, known.instance_id):
        raise Refused(
            f"bookie {cookie.bookie_id} belongs to another cluster: the instance id of its cookie is "
            f"{cookie.instance_id}, that of {known.name} is {known.instance_id}; all its entries would be deleted",
            hint="name the metadata of the bookie's own cluster: --zookeeper PLACE",
            expected=known.instance_id,
            found=cookie.instance_id,
        )
    registered = known.cookies.get(cookie.bookie_id)
    if registered is not None and identity_of(registered) != identity_of(cookie):
        raise Refused(
            f"the cookie (VERSION) in {bookie.directories[0]} is not the one that {known.name} has of bookie {cookie.bookie_id}",
            hint="name all directories of that bookie, or the metadata of its own cluster",
            bookie=cookie.bookie_id,
        )


def find_doubts(known: Known, bookie: Bookie, garbage: Array) -> list[str]:
    """Return reasons why the metadata may not list everything that the bookie should keep; ``garbage``: unlisted
    ledgers on its disks, ascending."""
    bookie_id = cookie_of(bookie).bookie_id
    doubts = []
    if known.problems:
        doubts.append(
            f"{known.name} could not be read completely ({known.problems[0]}): ledgers may be missing from it"
        )
    if known.cookies.get(bookie_id) is None:
        doubts.append(f"{known.name} has no cookie of bookie {bookie_id}: it may be a new one")
    # Metadata that is too old does no harm where nothing would be deleted.
    if not len(garbage):
        return doubts
    if not len(known.ledgers):
        return [*doubts, f"{known.name} lists no ledger at all, the bookie holds {counted(len(garbage), 'ledger')}"]
    named = np.intersect1d(known.names.ledgers, garbage)
    if len(named):
        doubts.append(
            f"{counted(len(named), 'ledger')} that topics name ({int(named[0])} to {int(named[-1])}) {plural(len(named), 'is', 'are')} not"
            f" listed: a part of {known.name} is missing"
        )
    # Without its counter, as when /ledgers/idgen is lost, the largest id that it lists is all that is known.
    first = known.largest + 1 if known.next_id is None else known.next_id
    younger = garbage[garbage >= first]
    if len(younger):
        doubts.append(
            f"{counted(len(younger), 'ledger')} of the bookie ({int(younger[0])} to {int(younger[-1])}) "
            f"{plural(len(younger), 'is', 'are')} newer than the newest id that {known.name} knows, {first - 1}: it may "
            "be older than the disks"
        )
    return doubts


def check_trusted(doubts: Sequence[str], *, force: bool) -> None:
    """Raise Refused if there are doubts, unless ``force`` is given."""
    if doubts and not force:
        raise Refused(
            f"ledgers that this metadata does not list would be deleted for good, and {'; '.join(doubts)}",
            hint="provide the newest metadata (pulsar-admin store refresh, or --zookeeper PLACE); see also: "
            "pulsar-admin store preflight; --force accepts this metadata as it is",
            doubts=list(doubts),
        )
