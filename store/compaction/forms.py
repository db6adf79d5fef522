"""The forms of batches in compacted ledgers, brokers' rules for null values, and the results of a verification."""

from msgspec import Struct, field

from pulsar_admin.store.names import Position
from pulsar_admin.store.wording import Answer, one_line

INDEXED, REDUCED, LEGACY = FORMATS = "indexed", "reduced", "legacy"
"""``legacy``: a placeholder, ``compacted_out``, for every message taken out (brokers before PIP-429). ``indexed``: the indexes of those
that stay in metadata field 31 as well (brokers since; seen with 4.2.4). ``reduced``: the indexes and no placeholder (the text of PIP-429;
no broker was seen to write it)."""

RULE_4_2, RULE_4_0 = RULES = "4.2", "4.0"
"""When a message outside batches is a null value. 4.2: it says so, or its value is empty. 4.0: its stated uncompressed size is 0, so that
an empty one that states none never is (upstream ``AbstractTwoPhaseCompactor.extractKeyAndSize``; PR 25817)."""


class CompactionJob(Struct, frozen=True):
    """How to compact a topic: the form of batches and the rule for null values; ``command`` names it in the audit log.

    ``by_key``: an encrypted batch is one message with the entry's key, as 4.0.8 treats it; otherwise it is kept.
    ``from_start``: read the topic from its first entry. ``everything``: rewrite the kept messages, drop none
    (``upgrade``).
    """

    command: str
    form: str = INDEXED
    rule: str = RULE_4_2
    retain_null_key: bool = False
    by_key: bool = False
    from_start: bool = False
    skip_damaged: bool = False
    everything: bool = False


FINDINGS_MAX = 1000
MISSING, STALE, DELETED, DIFFERS = "missing", "stale", "deleted", "differs"
ORDER, INDEXES, DAMAGED, FOREIGN = "order", "indexes", "damaged", "foreign"


class CompactionFinding(Answer, frozen=True):
    """A problem of a compacted ledger; ``position`` is the one in the topic, with the message's batch index."""

    kind: str
    position: Position | None
    message: str


class Verification(Struct):
    """The result of a verification. ``trimmed_before``: the topic's first entry, before which nothing could be compared.

    ``forms``: number of batches by form; ``nulls_kept`` and ``nulls_dropped``: messages that are null only by the rule
    of 4.2, present in the ledger or not. ``unchecked``: encrypted batches, whose keys are unknown. ``lost``: unreadable
    entries of the topic, which may explain a finding. ``findings`` has the first ones, ``total`` counts all.
    """

    __repr__ = one_line
    JSON_HIDDEN = ("nulls_kept", "nulls_dropped", "total", "findings")

    ledger_id: int = field(name="compactedLedger")
    horizon: Position
    entries: int = 0
    messages: int = 0
    topic_entries: int = 0
    topic_messages: int = 0
    trimmed_before: Position | None = None
    forms: dict[str, int] = field(default_factory=dict, name="formats")
    nulls_kept: int = 0
    nulls_dropped: int = 0
    keyless: int = 0
    unchecked: int = field(default=0, name="encryptedEntries")
    lost: int = field(default=0, name="lostEntries")
    total: int = 0
    findings: list[CompactionFinding] = field(default_factory=list)

    @property
    def rule(self) -> str | None:
        """The rule for null values by which the ledger was compacted: 4.0's, 4.2's, "both", or None if nothing shows it."""
        if self.nulls_kept:
            return "both" if self.nulls_dropped else RULE_4_0
        return RULE_4_2 if self.nulls_dropped else None

    def add(self, kind: str, position: Position | None, message: str) -> None:
        """Add a finding."""
        self.total += 1
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(CompactionFinding(kind, position, message))
