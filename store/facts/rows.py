"""Facts of the store's own rows: which do not match their digests."""

from msgspec import Struct

from pulsar_admin.store.db.environment import DATABASES, Txn
from pulsar_admin.store.db.rows import DERIVED, cure_of, name_of_row

_NAMED = 3


class AlteredRows(Struct, frozen=True):
    """Altered rows of one database: key or value differ from what was written. ``names``: the first ones; ``cure``: what to do.

    ``derived``: whether they can be rebuilt from the files and the metadata.
    """

    database: str
    rows: int
    names: tuple[str, ...]
    derived: bool
    cure: str


def altered_rows(txn: Txn) -> tuple[AlteredRows, ...]:
    """Return the altered rows by database, from one pass over all rows of the store; rows without digests cannot be checked."""
    if not txn.has_digests:
        return ()
    altered = []
    for database in DATABASES:
        keys = txn.find_altered(database)
        if keys:
            names = tuple(name_of_row(database, key) for key in keys[:_NAMED])
            altered.append(
                AlteredRows(database, len(keys), names, database in DERIVED, cure_of(txn.store.path, database, keys))
            )
    return tuple(altered)
