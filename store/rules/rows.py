"""Rules about the store's own rows."""

from collections.abc import Callable, Iterator
from typing import Any

from pulsar_admin.store.facts.cluster import ClusterFacts
from pulsar_admin.store.facts.rows import AlteredRows
from pulsar_admin.store.rules.finding import Severity
from pulsar_admin.store.rules.rule import Evidence, Rule, Rules
from pulsar_admin.store.rules.words import UNSEEN
from pulsar_admin.store.wording import counted, plural

_UNSEEN = (
    "Nothing: no broker reads the store. Until it is repaired, this toolkit refuses answers that depend on these rows."
)
_MEANS = (
    "A disk, its memory or another program changed bytes of rows in the store's database: their key and value do not "
    "match the digest stored with them. What the rows said is unknown."
)
WITHOUT_DIGESTS = "rows-without-digests"
_PREVENT = "Keep the store on a reliable disk, and change it only with this toolkit."


def _altered(is_meant: Callable[[AlteredRows], bool]) -> Callable[[ClusterFacts], Iterator[Evidence]]:
    def holds(facts: ClusterFacts) -> Iterator[Evidence]:
        for altered in filter(is_meant, facts.altered_rows):
            more = ", …" if altered.rows > len(altered.names) else ""
            yield Evidence(
                f"database {altered.database}",
                f"{counted(altered.rows, 'row')} of {altered.database} {plural(altered.rows, 'was', 'were')} altered:"
                f" {', '.join(altered.names)}{more}",
                {"database": altered.database, "rows": altered.rows, "names": list(altered.names)},
                altered.cure,
            )

    return holds


def _undigested(facts: ClusterFacts) -> Iterator[Evidence]:
    txn = facts.reader.txn
    if not txn.has_digests:
        yield Evidence(
            str(facts.store.path),
            "rows without digests: an earlier version wrote this store, and altered rows go unnoticed",
        )


ROW_RULES = Rules[ClusterFacts]("store")
ROW_RULES.row(
    "rows-altered",
    Severity.CRITICAL,
    "Rows of the store are not what was written",
    _MEANS,
    _UNSEEN,
    "pulsar-admin store log",
    "Put the newest backup of the database in place (`backups/` in the store), or import the source into a new "
    "store and repeat the changes.",
    _PREVENT,
)(_altered(lambda altered: not altered.derived and altered.database != "tree"))
ROW_RULES.row(
    "node-rows-altered",
    Severity.CRITICAL,
    "Metadata nodes in the store are not what was written",
    _MEANS,
    _UNSEEN,
    "pulsar-admin store refresh",
    "Read these nodes from the source again. Nodes that were changed in the store are only in a backup of its database "
    "(`backups/` in the store).",
    _PREVENT,
)(_altered(lambda altered: altered.database == "tree"))
ROW_RULES.row(
    "index-rows-altered",
    Severity.WARNING,
    "Rows of the index are not what was written",
    _MEANS,
    _UNSEEN,
    "pulsar-admin store index --rebuild",
    "Rebuild the index from the files. Metadata and changes of the store stay as they are.",
    _PREVENT,
)(_altered(lambda altered: altered.derived))
ROW_RULES.row(
    WITHOUT_DIGESTS,
    Severity.NOTE,
    "The store's rows have no digests",
    "An earlier version wrote the store. Its answers are the same, but a flipped bit on the disk goes unnoticed.",
    "Nothing: no broker reads the store.",
    "pulsar-admin store refresh",
    "The next change of the store gives all rows their digests, and so does a refresh. Earlier versions cannot read the "
    "store then.",
)(_undigested)
CHECK_STOPPED: Rule[Any] = Rule(
    "check-stopped",
    Severity.CRITICAL,
    "A check could not be finished",
    "A row that the check needs cannot be read. What comes after it was not checked.",
    UNSEEN,
    "pulsar-admin store check",
    "Repair the rows that other findings name, then check again.",
    scope="store",
)
"""What ``store.rules.judging`` says where a row stops it."""
