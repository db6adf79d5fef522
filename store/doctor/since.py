"""Compares two diagnoses: which findings are new, worse, gone, or no longer visible.

Two findings are the same if their codes and places are. Places are compared without what may differ between two diagnoses of one
thing: how many ledgers are summed up, which of them are named, and the directory of a file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path, PurePath
from typing import Any

from msgspec import Struct, field
from msgspec.structs import asdict, replace

from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.db.storeinfo import check_pages
from pulsar_admin.store.doctor.diagnosing import DoctorOptions, Look, Ranking, count_of, diagnose, is_rest, rest_of
from pulsar_admin.store.errors import InvalidValue, StoreNotFound
from pulsar_admin.store.facts.starts import read_registered
from pulsar_admin.store.model.copy_age import find_as_of
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.rules.finding import Finding, Severity, place_of
from pulsar_admin.store.rules.masking import BLIND, BLIND_PLACES, BLIND_TOPIC, DEEP, FILES, UNREAD
from pulsar_admin.store.rules.table import RULES_BY_CODE
from pulsar_admin.store.wording import Answer

LISTED = 1_000
"""Findings of a code that are compared one by one, at least."""
_NEEDED, _TEXTS = ("code", "where", "message"), ("broker", "mend", "page")
"""What every version wrote, and what another one may not write."""
_HINT = "create the file with: pulsar-admin doctor -o json"
_LEDGER_IDS = re.compile(r"ledgers? \d[\d, ]*(…)?")


class ChangeSince(StrEnum):
    """What became of a finding. ``NOT_SEEN``: the later diagnosis lacks it, but did not or could not read what would show it."""

    NEW = "new"
    WORSE = "worse"
    NOT_SEEN = "not-seen"
    GONE = "gone"


class FindingBefore(Answer, frozen=True):
    """An earlier state of a finding: its severity, how many findings it summed up, and what was at stake."""

    severity: Severity
    findings: int
    at_stake_bytes: int = field(name="atStakeBytes")
    at_stake_messages: int


class FindingChange(Finding, frozen=True):
    """A finding that is new, worse, not seen or gone. ``before``: its earlier state, None for a new one.

    A finding that is gone or not seen keeps its other earlier values, but ``mend`` is empty: the command was for that state.
    """

    change: ChangeSince
    before: FindingBefore | None

    def paragraph(self) -> list[str]:
        """Return the lines of the finding's paragraph; the change is the first word."""
        first, *lines = super().paragraph()
        return [f"{self.change} {first}", *lines]


class FindingComparison(Answer, frozen=True):
    """The changes, in the order of ``ChangeSince`` and the worst first, and how many findings are unchanged or better.

    ``found``: all findings of the later diagnosis.
    """

    changes: tuple[FindingChange, ...]
    unchanged: int
    found: tuple[Finding, ...]

    def counts(self) -> str:
        """Return how many there are of each change: ``1 new, 2 gone, 9 unchanged``."""
        told = dict.fromkeys(ChangeSince, 0)
        for one in self.changes:
            told[one.change] += _count(one)
        parts = [f"{count:,} {change.value.replace('-', ' ')}" for change, count in told.items() if count]
        return ", ".join([*parts, f"{self.unchanged:,} unchanged"])


def compare(
    before: Iterable[Finding],
    found: Iterable[Finding],
    *,
    each: int,
    deep: bool = False,
    is_empty: bool = False,
    severities: Collection[str] = (),
) -> FindingComparison:
    """Compare the findings of an earlier diagnosis with ``found``, those of a later one.

    ``deep``: the later one read every byte; ``is_empty``: nothing was imported into its store. Per change and code, ``each`` findings are
    named and the rest is summed up; ``severities``: only these. If a diagnosis sums up a rest of some code, findings of that code that
    only the other one names are not named here, because only their numbers can be compared.
    """
    earlier, later = tuple(before), tuple(found)
    summed = {_place(one) for one in (*earlier, *later) if _ledgers_of(one)}
    rankings = {change: Ranking(each) for change in ChangeSince}
    unchanged, sight = 0, _Sight(later, deep=deep, is_empty=is_empty)
    for change, group, was in _changes(_Look(earlier, summed), _Look(later, summed), sight):
        if severities and group.worst.severity not in severities:
            continue
        if change is None:
            unchanged += group.count
        else:
            rankings[change].add(_changed(group.told, change, was))
    changes = (
        one if isinstance(one, FindingChange) else _changed(one, change, None)  # a ranking sums up what is beyond EACH
        for change, ranking in rankings.items()
        for one in ranking.ranked()
    )
    told = (one if one.change in (ChangeSince.NEW, ChangeSince.WORSE) else replace(one, mend="") for one in changes)
    meant = (one for one in later if not severities or one.severity in severities)
    return FindingComparison(tuple(told), unchanged, tuple(meant))


class _Group(Struct):
    """The findings of one code and place, nearly always a single one; ``worst``: the first of them."""

    worst: Finding
    count: int = 0
    size_bytes: int = 0
    messages: int = 0

    def add(self, one: Finding) -> None:
        self.count += _count(one)
        self.size_bytes += one.at_stake_bytes
        self.messages += one.at_stake_messages

    @property
    def told(self) -> Finding:
        return replace(self.worst, at_stake_bytes=self.size_bytes, at_stake_messages=self.messages)

    @property
    def before(self) -> FindingBefore:
        return FindingBefore(self.worst.severity, self.count, self.size_bytes, self.messages)

    def is_worse(self, before: _Group) -> bool:
        order = list(Severity)
        worst, was = order.index(self.worst.severity), order.index(before.worst.severity)
        more = self.count > before.count or self.messages > before.messages or self.size_bytes > before.size_bytes
        return worst < was or (worst == was and more)


class _Look:
    """The findings of one diagnosis: groups by code and place, and by code the rest that it sums up."""

    def __init__(self, found: Sequence[Finding], summed: Container[_Place]) -> None:
        self.groups: dict[_Place, _Group] = {}
        self.rests: dict[str, _Group] = {}
        for one in found:
            if is_rest(one):
                self.rests.setdefault(one.code, _Group(one)).add(one)
                continue
            place = one.code, _named(one)
            self.groups.setdefault(_place(one) if _place(one) in summed else place, _Group(one)).add(one)


class _Sight:
    """What a diagnosis could not see, judged by its own findings."""

    def __init__(self, found: Sequence[Finding], *, deep: bool, is_empty: bool) -> None:
        self._deep = deep and not any(one.code in UNREAD for one in found)
        self._is_blind = is_empty or any(one.code in BLIND for one in found)
        hiding = [one for one in found if one.code in BLIND_PLACES]
        self._places = {one.where for one in hiding} | {
            one.evidence["topic"] for one in hiding if one.code == BLIND_TOPIC and "topic" in one.evidence
        }

    def missed(self, gone: Finding) -> bool:
        """Whether ``gone``, a finding that the diagnosis lacks, may still hold."""
        if (
            self._is_blind or (gone.code in DEEP and not self._deep) or gone.code not in RULES_BY_CODE
        ):  # another version's
            return True
        return gone.where in self._places or gone.evidence.get("topic") in self._places


def _changes(old: _Look, new: _Look, sight: _Sight) -> Iterator[tuple[ChangeSince | None, _Group, _Group | None]]:
    """Yield (change or None, group, earlier state) of each group of findings."""
    more: dict[str, int] = {}
    examples: dict[str, Finding] = {}

    def leave(group: _Group, sign: int) -> None:
        code = group.worst.code
        more[code] = more.get(code, 0) + sign * group.count
        examples.setdefault(code, group.worst)

    for place, group in new.groups.items():
        was = old.groups.get(place)
        if was is not None:
            yield ChangeSince.WORSE if group.is_worse(was) else None, group, was
        elif place[0] in old.rests:  # it may have been one of them
            leave(group, 1)
        else:
            yield ChangeSince.NEW, group, None
    for place, was in old.groups.items():
        if place in new.groups:
            continue
        if place[0] in new.rests:
            leave(was, -1)
        else:
            yield ChangeSince.NOT_SEEN if sight.missed(was.worst) else ChangeSince.GONE, was, was
    for look, sign in ((new, 1), (old, -1)):
        for rest in look.rests.values():
            leave(rest, sign)
    for code, count in more.items():
        if count:
            change = (
                ChangeSince.NEW
                if count > 0
                else ChangeSince.NOT_SEEN
                if sight.missed(examples[code])
                else ChangeSince.GONE
            )
            group = _Group(rest_of(examples[code], abs(count)), abs(count))
            yield change, group, None if count > 0 else group


def _changed(one: Finding, change: ChangeSince, was: _Group | None) -> FindingChange:
    return FindingChange(**asdict(one), change=change, before=None if was is None else was.before)


_Place = tuple[str, str]
"""A code, and a place without what differs between two looks."""


def _named(one: Finding) -> str:
    """Return the place of a finding, its ledger included."""
    if "ledgerIds" in one.evidence and _LEDGER_IDS.fullmatch(one.where):  # the first of them are named
        bookies = one.evidence.get("bookies", ())
        return f"ledgers {bookies}"
    if one.code in FILES:
        return f"{one.evidence.get('bookie') or ''} {PurePath(one.where).name}"
    return one.where


def _place(one: Finding) -> _Place:
    """Return the place of a finding without its ledger, or the number of its ledgers."""
    summed = _ledgers_of(one)
    where = one.where.replace(f"{summed:,} ledgers", "ledger", 1) if summed else place_of(_named(one))
    return one.code, where


def _ledgers_of(one: Finding) -> int:
    """Return how many ledgers a finding sums up; 0 if it is about one place."""
    count = one.evidence.get("alike", one.evidence.get("ledgers"))
    return count if isinstance(count, int) and f"{count:,} ledgers" in one.where else 0


def _count(one: Finding) -> int:
    return _ledgers_of(one) or count_of(one)


# -- the earlier look -------------------------------------------------------------------------------------------------


def check_earlier(path: Path, own: Path) -> None:
    """Raise InvalidValue if ``path`` is the store at ``own`` itself, StoreNotFound for a directory that is no store."""
    hint = "name an earlier copy of this store, or a file that doctor -o json wrote"
    if path.resolve() == own.resolve():
        raise InvalidValue(f"{path} is this store itself", hint=hint)
    if path.is_dir() and not (path / "store.json").exists():
        raise StoreNotFound(f"{path} is not a store (no store.json there)", hint=hint, path=str(path))


def compare_with(
    path: Path, look: Look, options: DoctorOptions, now_ms: int, processes: int, warn: Callable[[Iterable[str]], None]
) -> FindingComparison:
    """Compare the findings in the store or saved file at ``path`` with those of a diagnosis.

    A store is diagnosed at its own time, or at ``now_ms`` if that is unknown, with ``processes`` as in ``diagnose``. ``warn`` gets a
    warning if it is another cluster's. Raises InvalidValue, IndexCorrupt."""
    listed = replace(options, each=max(options.each, LISTED), severities=())
    if path.is_dir():
        before, cluster = _findings_of(path, now_ms, listed, look)
        own = read_registered(look.reader.txn).instance_id
        if cluster and own and cluster != own:
            whose = f"{path} belongs to another cluster ({cluster}; this store: {own})"
            warn([f"{whose}: nothing that is new or gone shows a change"])
    else:
        before = [one for one in read_saved(path) if not options.codes or one.code in options.codes]
    store = look.reader.txn.store
    now = diagnose(store, now_ms=now_ms, options=listed, look=look, processes=processes)
    return compare(
        before,
        now,
        each=options.each,
        deep=options.deep,
        is_empty=not store.info.sources,
        severities=options.severities,
    )


def _findings_of(path: Path, now_ms: int, options: DoctorOptions, look: Look) -> tuple[list[Finding], str]:
    """Return the findings of the store at a path, and its BookKeeper's id."""
    walked = check_pages(path)  # before LMDB reads them: it dies of damage
    with open_store(path) as store:
        store.walked = walked
        with open_reader(store) as reader:
            as_of, cluster = find_as_of(reader.txn), read_registered(reader.txn).instance_id
            then_ms = now_ms if as_of is None else as_of.time_ms
            return [*diagnose(store, now_ms=then_ms, options=options, look=Look(reader, look.engine))], cluster


# -- findings that were saved -----------------------------------------------------------------------------------------


def read_saved(path: Path) -> tuple[Finding, ...]:
    """Return the findings that were saved in a file; raises InvalidValue if it contains anything else."""
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise InvalidValue(f"{path} cannot be read: {error.strerror}", hint=_HINT, path=str(path)) from error
    except UnicodeDecodeError as error:
        raise _wrong(path, error) from error
    try:
        rows: Any = (
            json.loads(text) if text.lstrip().startswith("[") else [json.loads(line) for line in text.splitlines()]
        )
        findings = tuple(map(_finding_of, rows))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _wrong(path, error) from error
    return findings


def _wrong(path: Path, error: Exception) -> InvalidValue:
    what = f"{error} is missing" if isinstance(error, KeyError) else error
    return InvalidValue(f"{path} is no list of findings as doctor writes it: {what}", hint=_HINT, path=str(path))


def _finding_of(row: Mapping[str, Any]) -> Finding:  # Any: JSON
    if not isinstance(row, dict):
        raise TypeError(f"an entry is {json.dumps(row)[:40]}, not an object")
    if "change" in row:
        raise ValueError("it was made with --since and lacks findings that had not changed")
    texts = {key: row[key] for key in _NEEDED} | {key: row.get(key, "") for key in _TEXTS}
    numbers = {"at_stake_bytes": row.get("atStakeBytes", 0), "at_stake_messages": row.get("atStakeMessages", 0)}
    if not all(type(one) is str for one in texts.values()) or not all(type(one) is int for one in numbers.values()):
        raise TypeError("a value has another kind")
    return Finding(
        severity=Severity(row["severity"]),
        evidence=dict(row.get("evidence", {})),
        **texts,
        **numbers,
        scope="use",
        hint="",
        repair="",
    )
