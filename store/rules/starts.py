"""Rules about starts: what keeps a bookie or a ZooKeeper server from starting, and unwanted effects of a start."""

from collections.abc import Callable, Iterator

from pulsar_admin.store.codec.bookie import LAST_MARK_FILE
from pulsar_admin.store.codec.ledgermetadata import COOKIES
from pulsar_admin.store.db.bookies import disks_text
from pulsar_admin.store.facts.cluster import ClusterFacts
from pulsar_admin.store.facts.starts import PULSAR_JUTE_BYTES, Refusal, Start, StartFact, has_index_files
from pulsar_admin.store.names import shell_word
from pulsar_admin.store.rules.finding import Severity
from pulsar_admin.store.rules.rule import Evidence, Rules
from pulsar_admin.store.wording import counted, listed, plural

_SALVAGE = "pulsar-admin store salvage {disks}"
_SALVAGED = {Start.COOKIE_MISSING, Start.NO_JOURNAL, Start.JOURNAL_DAMAGED, Start.JOURNAL_SKIPPED}
"""What a bookie with ``.idx`` files meets, too, which a salvage refuses."""
_LOOK_AT = "pulsar-admin logs verify {}"
_SNAPSHOT = "pulsar-admin store export zookeeper-snapshot DIR"
_DIR = (
    "Write a snapshot from this store into an empty directory, which becomes the `dataDir` of each server. If the import counted losses, "
    "it asks for `--force`."
)
START_RULES = Rules[ClusterFacts]()


_REFUSALS = {
    Refusal.NONE: "its directories are not empty and have no readable cookie (VERSION)",
    Refusal.INSTANCE: "the instance id of its cookie is {ours}, of the metadata {theirs}",
    Refusal.UNREGISTERED: "the metadata has no cookie of {bookie}",
    Refusal.OTHER: "its cookie is not the one that the metadata has of {bookie}",
    Refusal.LACKING: "no readable cookie (VERSION) in {directories}",
}


def refusal_text(one: StartFact) -> str:
    """Return why a bookie does not start with its cookies."""
    directories = ", ".join(map(str, one.values.get("directories", ())))
    ours, theirs = one.values.get("ours") or "none", one.values.get("theirs") or "none"
    bookie = "" if one.bookie is None else one.bookie.bookie_id
    return _REFUSALS[one.values["refusal"]].format(bookie=bookie, ours=ours, theirs=theirs, directories=directories)


def _index_files(one: StartFact) -> str:
    ids = one.values["ledgers"]
    return (
        f"{counted(len(ids), '.idx file')} cannot be read (of {plural(len(ids), 'ledger')} {listed(ids)}; {one.values['why']}): the bookie"
        " starts, and fails to read and to flush them (Missing ledger signature)"
    )


def _off_index(one: StartFact) -> str:
    ledgers = counted(one.values["ledgers"], "ledger")
    return f"the index of {one.values['disk']} lacks {ledgers} that the metadata has on it: rebuild it first"


def _no_snapshot(one: StartFact) -> str:
    first = one.values["first"]
    cut = "" if first <= 1 else f", and it would start without the transactions before {first:#x}"
    return (
        "logs but no snapshot (No snapshot found, but there are log entries): a server starts only with "
        f"zookeeper.snapshot.trust.empty=true, which bin/pulsar sets{cut}"
    )


def _older_snapshot(one: StartFact) -> str:
    base, first = one.values["base"], one.values["first"]
    if first is None:
        then = "and forgets everything after it, because there are no logs"
    elif first <= base + 1:  # the log that goes on from a snapshot begins right after it at the latest
        then = "and its logs from there on"
    else:
        then = f"and forgets what came after it, because those logs are missing: the first one begins at {first:#x}"
    return f"{listed(one.values['names'])} cannot be read: a server starts from snapshot.{base:x} {then}"


def _jute(one: StartFact) -> int:
    """Return the ``jute.maxbuffer`` with which a server reads its longest transaction."""
    return -(-int(one.values["size"]) // 2)


def _long_record(one: StartFact) -> str:
    is_enough = _jute(one) <= PULSAR_JUTE_BYTES
    pulsar = "bin/pulsar sets 10485760, which is enough" if is_enough else "more than what bin/pulsar sets"
    return (
        f"{one.where} has a transaction of {one.values['size']:,} bytes (Unreasonable length): a server starts only with"
        f" -Djute.maxbuffer={_jute(one)} or more; {pulsar}"
    )


_EMPTIED = (
    "a start creates an empty one, and the first garbage collection deletes its entry logs, whatever the metadata says"
)
_UNLOCATED = (
    "a start creates an empty one, and the bookie answers that it has none of its entries, which a recovery takes as "
    "proof"
)
_TOLD: dict[Start, tuple[str, bool, str | Callable[[StartFact], str]]] = {
    Start.COOKIE_MISSING: ("bookie-cookie-missing", False, refusal_text),
    Start.COOKIE_REFUSED: ("bookie-cookie-refused", False, refusal_text),
    Start.INDEX_CLOSED: ("bookie-index-unreadable", False, "{where} does not open: {why}"),
    Start.INDEX_DAMAGED: ("bookie-index-unreadable", True, "{where} opens, but a part cannot be read: {why}"),
    Start.NO_LEDGERS: ("bookie-index-missing", True, f"{{where}} is no database: {_EMPTIED}"),
    Start.NO_LOCATIONS: ("bookie-index-missing", True, f"{{where}} is no database: {_UNLOCATED}"),
    Start.NO_INDEX: ("bookie-index-missing", True, f"{{disk}} has entry logs and no index: {_EMPTIED}"),
    Start.NOT_INDEXED: ("entries-not-served", True, _off_index),
    Start.NOT_IN_INDEX_FILES: ("idx-entries-not-served", True, _off_index),
    Start.NO_JOURNAL: (
        "bookie-journal-missing",
        False,
        f"{LAST_MARK_FILE} names journal {{journal:x}}.txn, which is not in {{where}}: Recovery log {{journal}} is missing",
    ),
    Start.JOURNAL_DAMAGED: ("bookie-journal-damaged", False, "{where} @ {offset:#x}: {why}, at which a start fails"),
    Start.JOURNAL_SKIPPED: (
        "bookie-journal-damaged",
        True,
        "{where} @ {offset:#x}: {why}: a start takes this for the end of the journal",
    ),
    Start.JOURNAL_UNKNOWN: ("bookie-journal-damaged", False, "{where}: {why}, at which a start fails"),
    Start.INDEX_FILES_DAMAGED: ("index-file-wrong", True, _index_files),
    Start.DISK_FULL: (
        "disk-full",
        True,
        "the disk of {disks} is {used:.0%} full: the bookie starts read-only, and compaction stops",
    ),
    Start.NO_SNAPSHOT: ("zookeeper-snapshot-missing", False, _no_snapshot),
    Start.NO_WHOLE_SNAPSHOT: (
        "zookeeper-snapshot-damaged",
        False,
        "{names} cannot be read, and there is no other snapshot to start from",
    ),
    Start.SNAPSHOT_DAMAGED: ("zookeeper-snapshot-damaged", True, _older_snapshot),
    Start.LOG_DAMAGED: (
        "zookeeper-log-unreadable",
        False,
        "{where} @ {offset:#x}: {why}, at which a server stops starting",
    ),
    Start.LOG_SKIPPED: (
        "zookeeper-log-unreadable",
        True,
        "{where} @ {offset:#x}: no record: a server starts, takes this for the end of the log, and forgets {forgotten} that "
        "this log has after it, from {first:#x} on",
    ),
    Start.LOG_GAP: (
        "metadata-incomplete",
        True,
        "{where}: no log has the {lost} before {before:#x}: a server starts without them",
    ),
    Start.LONG_RECORD: ("zookeeper-record-too-large", False, _long_record),
    Start.EPOCHS: (
        "zookeeper-epochs-refused",
        False,
        "{why}: a server of an ensemble does not start, a standalone one does",
    ),
    Start.LAYOUT: (
        "bookkeeper-layout-unknown",
        False,
        "{where} says {layout}: a bookie that reads it does not start (Failed to instantiate ledger manager factory)",
    ),
    Start.OTHER_LAYOUT: (
        "bookkeeper-layout-unknown",
        True,
        "{where} says {layout}: a bookie that reads it lists ledgers at other paths than Pulsar's, and deletes all that it does not list",
    ),
    Start.ROCKSDB: ("metadata-file-damaged", False, "{why}"),
    Start.ROCKSDB_LOG: ("metadata-incomplete", True, "{why}"),
}
"""What a start meets → the code of its rule, whether the start succeeds, and the sentence."""


def code_of(fact: StartFact) -> str:
    """Return the code of the rule that holds where a start meets this."""
    return _TOLD[fact.kind][0]


def evidence_of(fact: StartFact) -> Evidence:
    """Return the evidence of the rule that a fact of a start violates."""
    _, starts, text = _TOLD[fact.kind]
    values, mend, lost = dict[str, object](), None, ""
    if fact.bookie is not None:
        values = {"bookie": fact.bookie.name, "disks": disks_text(fact.bookie)}
        salvages = fact.kind not in _SALVAGED or not has_index_files(fact.bookie)
        # No directory has a cookie to copy, or none is copied: the metadata has it.
        known = fact.values.get("registered", "" if salvages else fact.bookie.bookie_id)
        if fact.kind is Start.COOKIE_MISSING and known:
            mend = f"pulsar-admin store cat {shell_word(f'{COOKIES}/{known}')} --raw"
        elif fact.kind is Start.COOKIE_MISSING and "registered" in fact.values:
            mend = "pulsar-admin store ls /ledgers"
        elif not salvages:
            is_gone = fact.kind is Start.NO_JOURNAL
            mend = "pulsar-admin bookkeeper lastmark" if is_gone else _LOOK_AT.format(shell_word(str(fact.where)))
        if fact.kind is Start.NO_JOURNAL and fact.bookie.bookie_id and not fact.values["given"]:
            lost = f"; if it is lost for good: {mend or _SALVAGE.format(disks=disks_text(fact.bookie))}"
            mend = f"pulsar-admin store add bookie {shell_word(fact.bookie.bookie_id)}=JOURNAL-DIR"
    if fact.kind is Start.INDEX_FILES_DAMAGED:
        values["ledgerId"] = fact.values["ledgers"][0]
    elif fact.kind is Start.LONG_RECORD:
        values["jute"] = _jute(fact)
    elif fact.kind in (Start.ROCKSDB, Start.ROCKSDB_LOG):
        mend = "pulsar-admin store clone DIR"
    elif fact.kind is Start.JOURNAL_UNKNOWN:
        mend = _LOOK_AT.format(shell_word(str(fact.where)))
    shown = {key: listed(one) if isinstance(one, list) else one for key, one in fact.values.items()}
    sentence = text.format(where=fact.where, **shown) if isinstance(text, str) else text(fact)
    return Evidence(
        str(fact.where), sentence + lost, {**values, "starts": starts}, fact.values.get("hint", ""), mend=mend
    )


def _add(
    code: str, severity: Severity, title: str, means: str, broker: str, mend: str, how: str, loss: str = ""
) -> None:
    def holds(facts: ClusterFacts) -> Iterator[Evidence]:
        return (evidence_of(fact) for fact in facts.start_facts if code_of(fact) == code)

    START_RULES.row(code, severity, title, means, broker, mend, how, loss=loss, of_disks=True)(holds)


_add(
    "bookie-cookie-missing",
    Severity.CRITICAL,
    "A directory of a bookie has no cookie",
    "Its other directories have one (`VERSION`). The disk is not mounted, was emptied, or the file is damaged.",
    "The bookie does not start: `InvalidCookieException`.",
    _SALVAGE,
    "If the disk is not mounted, mount it. Move a damaged file elsewhere first. If only the file is missing, salvage copies it "
    "from the bookie's other directories; it refuses an empty ledger directory. If no directory has one, "
    "or the bookie has `.idx` files, which salvage refuses: `store cat /ledgers/cookies/BOOKIE --raw > DIR/current/VERSION`.",
)
_add(
    "bookie-cookie-refused",
    Severity.CRITICAL,
    "A bookie's cookie is not that of the metadata",
    "The metadata has another instance id, another cookie or none of this bookie: it was created anew, or the bookie got another address.",
    "The bookie does not start: `InvalidCookieException`. Once somebody changes the cookie it starts, and deletes every ledger that "
    "the metadata does not list.",
    "pulsar-admin store preflight",
    "See what it would delete. If the metadata is right and the bookie has a new address: `bookies rename`. Otherwise "
    "start it with the metadata of its own cluster.",
    loss="what preflight counts, once somebody changes the cookie",
)
_add(
    "bookie-index-unreadable",
    Severity.CRITICAL,
    "A bookie's index cannot be opened or read",
    "A file of the RocksDB in `ledgers` or `locations` is empty, damaged or gone. Only a deep check reads every row.",
    "The bookie does not start (`RocksDBException`), or answers with an I/O error if part of a file is damaged. "
    "Without the database it starts with an empty one, and deletes its entry logs.",
    _SALVAGE,
    "Do not delete it. While the bookie is stopped, salvage rebuilds the index from its entry logs and journals.",
)
_add(
    "bookie-index-missing",
    Severity.CRITICAL,
    "A bookie has entry logs but no index",
    "The RocksDB in `ledgers` or `locations` is gone, or the index directory is not mounted.",
    "The bookie starts with an empty one. Without `ledgers`, its first garbage collection deletes every entry log; without `locations`, it "
    "answers that it has none of its entries.",
    _SALVAGE,
    "Do not start it. Mount the index directory, or salvage the bookie, which rebuilds the index.",
    loss="the bookie's entry logs, once it starts",
)
_add(
    "bookie-journal-missing",
    Severity.CRITICAL,
    "The journal that a bookie starts from is gone",
    "`lastMark` names a journal that is not in the journal directory: the disk is not mounted, or the file was deleted.",
    "The bookie does not start: `Recovery log … is missing`.",
    _SALVAGE,
    "Mount the disk, restore the file, or add a journal directory that was not imported. If it is lost, salvage puts `lastMark` aside, and "
    "counts the ledgers that may lack their last entries on this bookie. It refuses a bookie with `.idx` files: move its `lastMark` aside "
    "yourself.",
    loss="entries that only this journal had",
)
_add(
    "bookie-journal-damaged",
    Severity.CRITICAL,
    "A place in a journal ends the replay of a bookie",
    "A record that a start replays has an impossible length, is too short for its kind, or gives a ledger a second "
    "master key. Or zeros are between records. A journal of an unknown version is reported as well, but not cut.",
    "The bookie does not start. With zeros between records it starts, and loses the records after them.",
    _SALVAGE,
    "Salvage cuts the journal before that place, and writes readable entries after it to an entry log. It refuses a bookie with `.idx` "
    "files: see the place in the journal.",
)
_add(
    "bookkeeper-layout-unknown",
    Severity.CRITICAL,
    "The metadata names another class than Pulsar's to list ledgers",
    "`/ledgers/LAYOUT` says how bookies list ledgers: `2`, and `org.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1`. Here it is "
    "damaged, names a class or version that BookKeeper does not have, or one that looks at other paths.",
    "A bookie does not start, or deletes the ledgers that it does not list. With `metadataServiceUri=metadata-store:…` it does not read "
    "that node. Brokers do not read it.",
    "pulsar-admin store cat /ledgers/LAYOUT --raw",
    "No command repairs it. Before bookies start, delete the node (`bin/pulsar zookeeper-shell delete /ledgers/LAYOUT`): the first bookie "
    "that starts writes Pulsar's. Then `store refresh`.",
    loss="all ledgers at other paths, where a bookie starts",
)
_add(
    "zookeeper-snapshot-missing",
    Severity.WARNING,
    "ZooKeeper has logs but no snapshot",
    "The snapshots were deleted, or only the log directory was copied.",
    "ZooKeeper does not start: `No snapshot found, but there are log entries`. With "
    "`zookeeper.snapshot.trust.empty=true`, which `bin/pulsar` sets, it starts with the content of the logs.",
    _SNAPSHOT,
    _DIR,
)
_add(
    "zookeeper-snapshot-damaged",
    Severity.CRITICAL,
    "ZooKeeper cannot read its newest snapshot",
    "It is truncated or damaged. The evidence says from which snapshot a server starts, and whether the logs are "
    "complete from there.",
    "ZooKeeper starts from an older snapshot and its logs. It does not notice if logs are missing, and forgets what "
    "they contained: bookies then delete ledgers. Without a readable snapshot, it does not start.",
    _SNAPSHOT,
    _DIR,
)
_add(
    "zookeeper-record-too-large",
    Severity.WARNING,
    "A transaction of ZooKeeper's log is longer than its default reads",
    "ZooKeeper reads records of up to twice `jute.maxbuffer` (default 1,048,575; `bin/pulsar` sets 10,485,760). A large transaction, "
    "or a topic with very many ledgers, is longer.",
    "ZooKeeper does not start with a smaller `jute.maxbuffer`: `Unreasonable length`.",
    _SNAPSHOT,
    "Start it with the `-Djute.maxbuffer` of the evidence, or from a snapshot of this store.",
)
_add(
    "zookeeper-log-unreadable",
    Severity.CRITICAL,
    "ZooKeeper cannot replay all of a log",
    "A record with a wrong checksum, or a log file without a header, for example after a full disk. Or zeros or part of a record "
    "between complete records, which look like the end of the log.",
    "ZooKeeper does not start (`CRC check failed`, `EOFException`). With zeros in the middle it starts without a word, and forgets "
    "what the rest of the log says: bookies then delete ledgers.",
    _SNAPSHOT,
    _DIR,
)
_add(
    "zookeeper-epochs-refused",
    Severity.WARNING,
    "The epoch files of a ZooKeeper server contradict each other or its transactions",
    "`currentEpoch` or `acceptedEpoch`, beside the snapshots, is not a number, or older than the other or than the "
    "last transaction: files from different times were mixed, or a disk was full.",
    "A server of an ensemble does not start: `Unable to load database on disk`. A standalone one does not read these files.",
    _SNAPSHOT,
    "If other servers are intact, empty this server's `version-2`: it then gets everything from the leader. Otherwise "
    "start from a snapshot of this store in a new directory, which has no such files.",
)
