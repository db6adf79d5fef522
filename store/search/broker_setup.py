"""The broker whose search is reproduced, and its probes. Separate from the searches, which most queries by time do not import."""

from typing import Literal, get_args

from msgspec import Struct, field

from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.tree import find_node, iter_children, iter_nodes
from pulsar_admin.store.errors import check_choice
from pulsar_admin.store.names import Position
from pulsar_admin.store.wording import Answer

BrokerVersion = Literal["2.11", "4.0", "4.2", "5.0"]
BROKER_VERSIONS: tuple[BrokerVersion, ...] = get_args(BrokerVersion)
DEFAULT_VERSION: BrokerVersion = "4.0"


class BrokerRules(Struct, frozen=True):
    """How one version's broker searches by time. ``release``: whose answers and classes that was read from.

    ``asks_compacted``: messageid/TIME asks a compacted ledger first (apache/pulsar#21600). ``zero_is_earliest``: its answer for time 0 is
    −1:−1. ``prunes``: a reset leaves out ledgers by the times at which they were closed (#22792, #24219). ``expires_whole_ledgers``: an
    expiry by age first drops the ledgers that were closed before the limit. ``expires_as_it_resets``: it then asks the finder of resets,
    not the subscription's backlog. ``shares_ttl_search``: the check of a TTL asks that finder alone, once for all subscriptions
    (``PersistentTopic.checkMessageExpiry``). ``reads_batch_acks``: a cursor that is loaded from the metadata keeps the acknowledgements
    inside a batch, which all versions write there (``ManagedCursorImpl.recover``).
    """

    release: str
    asks_compacted: bool = True
    zero_is_earliest: bool = False
    prunes: bool = True
    expires_whole_ledgers: bool = True
    expires_as_it_resets: bool = False
    shares_ttl_search: bool = True
    reads_batch_acks: bool = False


RULES: dict[BrokerVersion, BrokerRules] = {
    "2.11": BrokerRules(
        "2.11.0", asks_compacted=False, prunes=False, expires_whole_ledgers=False, shares_ttl_search=False
    ),
    "4.0": BrokerRules("4.0.8"),
    "4.2": BrokerRules("4.2.4", zero_is_earliest=True, expires_as_it_resets=True),
    "5.0": BrokerRules("5.0.1", zero_is_earliest=True, expires_as_it_resets=True, reads_batch_acks=True),
}
"""All that differs between versions: nothing else here asks for one."""

MAX_CLOCK_SKEW_MS = 60_000
"""``managedLedgerCursorResetLedgerCloseTimestampMaxClockSkewMillis``: the default of all that have it."""
_WRITTEN_BY_5 = ("/txn/tc/parallelism", "/topics")
_KEY_OF_5 = b'"is_allow_auto_update_schema_with_replicator"'


def told_version(txn: Txn) -> tuple[BrokerVersion, str]:
    """Return the version that wrote the metadata, and the sign of it in the metadata ("" without one, for the default version).

    Only 5.0 leaves a sign of its own: nodes of its transactions and scalable topics, and a key in the policies of namespaces.
    """
    for path in _WRITTEN_BY_5:
        if find_node(txn, path) is not None or next(iter_children(txn, path), None) is not None:
            return "5.0", path
    for tenant in iter_children(txn, "/admin/policies"):
        for node in iter_nodes(txn, f"/admin/policies/{tenant}/"):
            return ("5.0", node.path) if _KEY_OF_5 in node.value else (DEFAULT_VERSION, "")
    return DEFAULT_VERSION, ""


def version_of(txn: Txn, given: BrokerVersion | None) -> BrokerVersion:
    """Return the version ``given``; if None, that of ``told_version``."""
    return told_version(txn)[0] if given is None else given


class BrokerSetup(Struct, frozen=True):
    """The broker whose search is reproduced.

    ``max_clock_skew_ms`` below 0: ledgers' close times prune nothing. ``loaded_ms``: when the broker loads the topic, which closes the
    last ledger and drops empty ones (``ManagedLedgerImpl.initialize``, ``initializeBookKeeper``); None: it is loaded already.
    """

    version: BrokerVersion = DEFAULT_VERSION
    max_clock_skew_ms: int = MAX_CLOCK_SKEW_MS
    loaded_ms: int | None = None

    def __post_init__(self) -> None:
        """Raise InvalidValue for a version whose rules are not known here."""
        check_choice("broker version", self.version, BrokerVersion)

    @property
    def rules(self) -> BrokerRules:
        """The rules of the broker's version."""
        return RULES[self.version]


DEFAULT_BROKER = BrokerSetup()


class Probe(Answer, frozen=True):
    """One entry that the broker reads: its time (None: unreadable, which counts as not matching) and whether it matched."""

    position: Position
    time_ms: int | None
    matches: bool = field(name="earlier")
