"""The forms of batches in compacted ledgers, and the rules for null values, by the brokers that write them."""

from __future__ import annotations

from msgspec import Struct

INDEXED, REDUCED, LEGACY = FORMATS = "indexed", "reduced", "legacy"
"""``legacy``: a placeholder, ``compacted_out``, for every message taken out (brokers before PIP-429). ``indexed``: the indexes of those
that stay in metadata field 31 as well (brokers since; seen with 4.2.4). ``reduced``: the indexes and no placeholder (the text of PIP-429;
no broker was seen to write it)."""

RULE_4_2, RULE_4_0 = RULES = "4.2", "4.0"
"""When a message outside batches is a null value. 4.2: it says so, or its value is empty. 4.0: its stated uncompressed size is 0, so that
an empty one that states none never is (upstream ``AbstractTwoPhaseCompactor.extractKeyAndSize``; PR 25817)."""


class CompactionJob(Struct, frozen=True):
    """What to do with a topic: ``command`` names it in the audit log; the form of batches, the rule for null values.

    ``by_key``: an encrypted batch is one message with the entry's key, as 4.0.8 takes it; else it stays. ``from_start``: read the
    topic from its first entry. ``everything``: rewrite what is kept, drop nothing (``upgrade``).
    """

    command: str
    form: str = INDEXED
    rule: str = RULE_4_2
    retain_null_key: bool = False
    by_key: bool = False
    from_start: bool = False
    skip_damaged: bool = False
    everything: bool = False
