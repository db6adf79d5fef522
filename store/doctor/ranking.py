"""The worst diagnoses of each code, in bounded memory, ranked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from heapq import heappush, heappushpop

from store.doctor.diagnosis import Diagnosis
from store.rules.alike import message_of, place_of
from store.rules.cause import Severity
from store.rules.table import CAUSES
from store.wording import counted

_MORE, _ALIKE = "more", "alike"


class Ranking:
    """Keeps EACH diagnoses of a severity and code: those with most at stake. The rest is summed up in one more.

    More than EACH that come one after the other and differ in the ledger alone, of a topic or of none, count as one.
    """

    def __init__(self, each: int) -> None:
        self._each = each
        self._kept: dict[tuple[Severity, str], list[tuple[tuple[int, int], int, Diagnosis]]] = {}
        self._left: dict[tuple[Severity, str], list[int]] = {}
        self._runs: dict[tuple[Severity, str], _Run] = {}
        self._count = 0

    def add(self, diagnosis: Diagnosis) -> None:
        key, place = (diagnosis.severity, diagnosis.code), place_of(diagnosis.where)
        if place == diagnosis.where:  # it names no ledger
            self._keep(diagnosis)
            return
        run = self._runs.get(key)
        if run is None or run.place != place:
            self._end(self._runs.pop(key, None))
            run = self._runs[key] = _Run(place)
        run.add(diagnosis, self._each)

    def _end(self, run: _Run | None) -> None:
        for diagnosis in () if run is None else run.told(self._each):
            self._keep(diagnosis)

    def _keep(self, diagnosis: Diagnosis) -> None:
        self._count += 1
        key = diagnosis.severity, diagnosis.code
        kept = self._kept.setdefault(key, [])
        row = _stake(diagnosis), -self._count, diagnosis
        if len(kept) < self._each:
            heappush(kept, row)
            return
        least = heappushpop(kept, row)[2]
        left = self._left.setdefault(key, [0, 0, 0])
        for index, more in enumerate((count_of(least), least.at_stake_bytes, least.at_stake_messages)):
            left[index] += more

    def ranked(self) -> Iterator[Diagnosis]:
        """Yield what is kept: by severity, what others come of first, then by messages and bytes at stake; after the last of a code what
        was left out of it."""
        while self._runs:
            self._end(self._runs.popitem()[1])
        for severity in Severity:
            groups = [key for key in self._kept if key[0] is severity]
            for key in sorted(groups, key=lambda key: (CAUSES[key[1]].leads, max(self._kept[key])[0]), reverse=True):
                yield from (row[2] for row in sorted(self._kept[key], reverse=True))
                if key in self._left:
                    yield _rest(*key, *self._left[key])


class _Run:
    """Diagnoses of a code that differ in the ledger alone: the first of them, how many there are, and what is at stake."""

    def __init__(self, place: str) -> None:
        self.place = place
        self._first: list[Diagnosis] = []
        self._mend = ""
        """The command that repairs all of them; "": each has its own."""
        self._count = self._bytes = self._messages = 0

    def add(self, diagnosis: Diagnosis, each: int) -> None:
        if len(self._first) < each:
            self._first.append(diagnosis)
        self._mend = diagnosis.mend if self._count == 0 or diagnosis.mend == self._mend else ""
        self._count += 1
        self._bytes += diagnosis.at_stake_bytes
        self._messages += diagnosis.at_stake_messages

    def told(self, each: int) -> Iterable[Diagnosis]:
        """Return them one by one, or as one where there are more than EACH."""
        if self._count <= each:
            return self._first
        first = self._first[0]
        return [
            replace(
                first,
                where=place_of(first.where, f"{self._count:,} ledgers"),
                message=message_of(first.message, first.where),
                evidence={_ALIKE: self._count, "first": first.where},
                at_stake_bytes=self._bytes,
                at_stake_messages=self._messages,
                mend=self._mend or _list(first.code),
            )
        ]


def _list(code: str) -> str:
    return f"pulsar-admin doctor --code {code} --each 1000000"


def _stake(diagnosis: Diagnosis) -> tuple[int, int]:
    return diagnosis.at_stake_messages, diagnosis.at_stake_bytes


def _rest(severity: Severity, code: str, count: int, size_bytes: int, messages: int) -> Diagnosis:
    cause = CAUSES[code]
    return Diagnosis(
        severity=severity,
        code=code,
        where=f"{count:,} more",
        message=f"{counted(count, 'more finding')} of this code with no more at stake",
        evidence={_MORE: count},
        at_stake_bytes=size_bytes,
        at_stake_messages=messages,
        broker=cause.broker,
        mend=_list(code),
        page=cause.page,
    )


def rest_of(one: Diagnosis, count: int) -> Diagnosis:
    """Return COUNT findings with the severity and code of ONE of which neither place nor stake is known."""
    return _rest(one.severity, one.code, count, 0, 0)


def is_rest(diagnosis: Diagnosis) -> bool:
    """Whether DIAGNOSIS sums up what was left out."""
    return set(diagnosis.evidence) == {_MORE}


def count_of(diagnosis: Diagnosis) -> int:
    """Return how many findings DIAGNOSIS tells of."""
    count = diagnosis.evidence.get(_MORE if is_rest(diagnosis) else _ALIKE, 1)
    return count if isinstance(count, int) else 1
