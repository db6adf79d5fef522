"""The worst diagnoses of each code, in bounded memory, ranked."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappush, heappushpop

from store.doctor.causes import CAUSES
from store.doctor.diagnosis import Diagnosis
from store.rules.cause import Severity
from store.wording import counted

_MORE = "more"


class Ranking:
    """Keeps EACH diagnoses of a severity and code: those with most at stake. The rest is summed up in one more."""

    def __init__(self, each: int) -> None:
        self._each = each
        self._kept: dict[tuple[Severity, str], list[tuple[tuple[int, int], int, Diagnosis]]] = {}
        self._left: dict[tuple[Severity, str], list[int]] = {}
        self._count = 0

    def add(self, diagnosis: Diagnosis) -> None:
        self._count += 1
        key = diagnosis.severity, diagnosis.code
        kept = self._kept.setdefault(key, [])
        row = _stake(diagnosis), -self._count, diagnosis
        if len(kept) < self._each:
            heappush(kept, row)
            return
        least = heappushpop(kept, row)[2]
        left = self._left.setdefault(key, [0, 0, 0])
        for index, more in enumerate((1, least.at_stake_bytes, least.at_stake_messages)):
            left[index] += more

    def ranked(self) -> Iterator[Diagnosis]:
        """Yield what is kept: by severity, what others come of first, then by messages and bytes at stake; after the last of a code what
        was left out of it."""
        for severity in Severity:
            groups = [key for key in self._kept if key[0] is severity]
            for key in sorted(groups, key=lambda key: (CAUSES[key[1]].leads, max(self._kept[key])[0]), reverse=True):
                yield from (row[2] for row in sorted(self._kept[key], reverse=True))
                if key in self._left:
                    yield _rest(*key, *self._left[key])


def _stake(diagnosis: Diagnosis) -> tuple[int, int]:
    return diagnosis.at_stake_messages, diagnosis.at_stake_bytes


def _rest(severity: Severity, code: str, count: int, size_bytes: int, messages: int) -> Diagnosis:
    cause = CAUSES[code]
    return Diagnosis(
        severity=severity,
        code=code,
        where=f"{count:,} more",
        message=f"{counted(count, 'more finding')} of this code with less at stake",
        evidence={_MORE: count},
        at_stake_bytes=size_bytes,
        at_stake_messages=messages,
        broker=cause.broker,
        mend=f"pulsar-admin doctor --code {code} --each 1000000",
        page=cause.page,
    )


def left_out(diagnosis: Diagnosis) -> int:
    """Return how many diagnoses DIAGNOSIS sums up; 0: it is one itself."""
    count = diagnosis.evidence.get(_MORE)
    return count if isinstance(count, int) and set(diagnosis.evidence) == {_MORE} else 0
