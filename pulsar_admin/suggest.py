"""Which commands an unknown name may have meant, by its words: never by letters alone, and never a change for a question."""

import re
from collections.abc import Collection

_READING = "get list show describe read find peek examine stats stat status count check verify view print info dump"
_ALIKE_VERBS = ("set put update", "create add new make init", "remove delete del rm unset drop")
_CHANGING = (
    "seek abort annotate apply attach bookie build cancel clear clone compact convert copy disable enable expire export extract forget"
    " generate grant import index load mark move rebuild reclaim recover refresh rename reset restore revoke run salvage scale shutdown"
    " skip split standalone start stop switch terminate trim truncate undelete undo unload unmark unsubscribe upgrade upload zookeeper"
)
READS = frozenset(_READING.split())
_ALIKES = tuple(frozenset(verbs.split()) for verbs in _ALIKE_VERBS)
_CHANGES = frozenset(_CHANGING.split()).union(*_ALIKES)
_ALIKE = 0.8
_HALF = 0.5
_MOST = 3


def suggestions(name: str, known: Collection[str]) -> list[str]:
    """Return up to three known names that were probably meant, nearest first; rather none than wrong ones.

    The verbs must do the same. The nouns of a change must be equal or misspelt; those of a question may be up to half
    of the other's, or twice as many. A name that only differs in capitals and hyphens is the one meant.
    """
    if same := [other for other in known if _letters(other) == _letters(name)]:
        return same
    likely = [(likeness, other) for other in known if (likeness := _likeness(name, other))]
    return [other for _, other in sorted(likely, key=lambda pair: -pair[0])[:_MOST]]


def verbs_of(name: str) -> frozenset[str]:
    """Return the verbs that change the same as the name's verb, or READS if it changes nothing."""
    words = _words(name)
    found = _CHANGES.intersection(words)
    if words[0] in READS or not found:
        return READS
    return next((alike for alike in _ALIKES if alike & found), found)


def _likeness(name: str, other: str) -> float:
    """Return how alike two names are, from 0 to 1."""
    verbs = verbs_of(name)
    if verbs != verbs_of(other):
        return 0
    words, others = _words(name), _words(other)
    if verbs is not READS or (words[0] in READS and others[0] in READS and len(words) > 1):
        words, others = ([word for word in one if word not in verbs] for one in (words, others))
    both = sum(any(_same(word, one) for one in others) for word in words)
    share = both / max(len(words), len(others), 1)
    of_all = both == min(len(words), len(others))
    return share if of_all and share >= (_HALF if verbs is READS else 1) else 0


def _same(word: str, other: str) -> bool:
    """Return whether ``other`` is ``word``, possibly misspelt after its first letter."""
    if word == other:
        return True
    from difflib import SequenceMatcher

    return word[0] == other[0] and SequenceMatcher(None, word, other).ratio() >= _ALIKE


def _letters(name: str) -> str:
    return re.sub("[-_]", "", name).lower()


def _words(name: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[^a-z-]+", name)] or [name]
