"""Bookies as an operator names them: their directories, their owners, and combinations that are impossible.

Upstream ``BookieImpl.checkEnvironment`` and ``LegacyCookieValidation``: all directories of a bookie have the same cookie.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from glob import iglob
from itertools import chain
from pathlib import Path

from msgspec.structs import replace

from pulsar_admin.store.codec.bookie import COOKIE_FILE, LAST_ID_FILE, LAST_MARK_FILE, Cookie, decode_cookie
from pulsar_admin.store.db.bookies import Bookie, merge_bookies
from pulsar_admin.store.errors import InvalidValue, MetadataCorrupt, NotWritable, Refused, SourceNotFound, Unsupported
from pulsar_admin.store.files import read_file
from pulsar_admin.store.names import shell_word
from pulsar_admin.store.sources.bookies import (
    identity_of,
    place_in,
    read_bookie_cookie,
    read_bookie_directory,
    shared_end,
)
from pulsar_admin.store.wording import Answer, counted

_LEDGER, _JOURNAL, _INDEX = "ledger", "journal", "index"


class GivenBookie(Answer, frozen=True):
    """Directories given for one bookie, by the option or file ``where``. ``directories``: their kind follows from
    their content; the kind of the others was given.

    ``bookie_id``: "" for the cookie's; ``fallback_id``: used without a cookie; ``metadata_root``: BookKeeper's root in
    ZooKeeper, "" if not given.
    """

    where: str
    bookie_id: str
    directories: tuple[Path, ...]
    ledger_dirs: tuple[Path, ...] = ()
    journal_dirs: tuple[Path, ...] = ()
    index_dirs: tuple[Path, ...] = ()
    fallback_id: str = ""
    metadata_root: str = ""


def parse_bookie(text: str) -> GivenBookie:
    """Return the bookie that a text describes: ``ID=DIR,DIR`` or ``DIR,DIR``; raises InvalidValue."""
    head, equals, rest = text.partition("=")
    bookie_id, paths = (head, rest) if equals and "/" not in head else ("", text)
    directories = tuple(Path(part) for part in paths.split(",") if part)
    if not directories or (equals and not head):
        raise InvalidValue(f"{text!r} names no bookie", hint="write ID=DIR[,DIR…], or DIR[,DIR…]", value=text)
    return GivenBookie(text, bookie_id, directories)


def find_bookie(given: GivenBookie, renamed: Mapping[str, str] | None = None) -> Bookie:
    """Return the given bookie with the ``current`` of each directory.

    ``renamed``: earlier id → id of bookies that may have either in their configuration and their cookies; the earlier one is returned.
    Raises SourceNotFound, InvalidValue, Refused, Unsupported, MetadataCorrupt for directories that cannot be one
    bookie's disks.
    """
    directories, ledgers, journals, indexes = (
        _currents(given, paths)
        for paths in (given.directories, given.ledger_dirs, given.journal_dirs, given.index_dirs)
    )
    if directories:
        bookie = _by_content(given, directories)
    else:
        bookie = Bookie("", ledgers, journals, indexes)
        _check_roles(given, bookie)
    earlier = {new: old for old, new in (renamed or {}).items()}
    given = replace(given, bookie_id=earlier.get(given.bookie_id, given.bookie_id))
    cookies = {
        path: replace(cookie, bookie_id=earlier.get(cookie.bookie_id, cookie.bookie_id))
        for path in bookie.directories
        if (cookie := read_given_cookie(path)) is not None
    }
    _check_cookies(given, cookies)
    cookie = next(iter(cookies.values()), None)
    bookie_id = _id_of(given, cookie)
    if not any(read_bookie_directory(path).logs for path in bookie.ledger_dirs) and not any(
        read_bookie_directory(path).journals for path in bookie.journal_dirs
    ):
        raise SourceNotFound(
            f"{given.where}: {', '.join(map(str, bookie.directories))}: no entry log and no journal of bookie {bookie_id}",
            hint="name the directories that ledgerDirectories and journalDirectories of its bookkeeper.conf name",
            path=str(bookie.directories[0]),
        )
    if cookie is None:
        return Bookie(bookie_id, bookie.ledger_dirs, bookie.journal_dirs, bookie.index_dirs)
    _check_count(given, bookie_id, bookie, cookie)
    return Bookie(
        bookie_id,
        _in_order(bookie.ledger_dirs, cookie.ledger_dirs),
        _in_order(bookie.journal_dirs, cookie.journal_dirs),
        _in_order(bookie.index_dirs, cookie.index_dirs or ()),
    )


def _in_order(paths: tuple[Path, ...], named: Sequence[str]) -> tuple[Path, ...]:
    """Return paths in the order of the directories in the cookie, if their last components identify them.

    DbLedgerStorage puts a ledger into the directory of the number ``ledger id modulo directories``
    (``getLedgerStorage``).
    """
    places = [place_in(path, named) for path in paths]
    return (
        paths if len(set(places)) < len(places) else tuple(path for _, path in sorted(zip(places, paths, strict=True)))
    )


def _currents(given: GivenBookie, paths: Iterable[Path]) -> tuple[Path, ...]:
    currents: dict[Path, Path] = {}
    for path in (_current(path, given) for path in paths):
        other = currents.setdefault(path.resolve(), path)
        if other is not path:
            raise Refused(
                f"{given.where}: {path} is given twice" + (f", also as {other}" if other != path else ""),
                hint="give each directory once; a symbolic link to it is the same one",
                path=str(path),
            )
    return tuple(currents.values())


def _current(path: Path, given: GivenBookie) -> Path:
    inside = path / "current"
    current = inside if inside.is_dir() else path
    if not current.is_dir():
        reason = "is not a directory" if path.exists() else "does not exist"
        hint = "name a directory of the bookie, or with --root DIR the place to which its disks were copied"
        raise SourceNotFound(f"{_said_in(given, path)}{path} {reason}", hint=hint, path=str(path))
    try:
        next(current.iterdir(), None)
    except OSError as error:
        raise NotWritable(
            f"{_said_in(given, path)}{current} cannot be read: {error.strerror}", path=str(current)
        ) from error
    return current


def _said_in(given: GivenBookie, path: Path) -> str:
    """Return the option or file that names a path, as the beginning of a message; "" if it is the path itself."""
    return "" if Path(given.where) == path else f"{given.where}: "


def _by_content(given: GivenBookie, directories: Iterable[Path]) -> Bookie:
    roles: dict[Path, set[str]] = {}
    for path in directories:
        listed, names = read_bookie_directory(path), {entry.name for entry in path.iterdir()}
        # Not Path.glob, which fails where a directory is deleted meanwhile.
        is_index = bool(names & {"ledgers", "locations"}) or next(iglob("*/*/*.idx", root_dir=path), None) is not None
        # A bookie with several journals writes lastMark.0, lastMark.1 …
        is_ledger = bool(listed.logs) or any(name.startswith((LAST_ID_FILE, LAST_MARK_FILE)) for name in names)
        if not (listed.journals or is_ledger or is_index or COOKIE_FILE in names):
            raise SourceNotFound(
                f"{_said_in(given, path)}{path} is not a bookie's directory: expected files such as 0.log or 17f3a.txn, found none",
                hint=_inside(path)
                or "name the directories that ledgerDirectories and journalDirectories of its bookkeeper.conf name",
                path=str(path),
            )
        holds = {_JOURNAL: bool(listed.journals), _LEDGER: is_ledger, _INDEX: is_index and not is_ledger}
        roles[path] = {role for role, is_held in holds.items() if is_held}
    for tell in (_role_by_name, _role_by_count):
        for path, held in roles.items():
            cookie = None if held else read_given_cookie(path)  # with files that tell, it does not matter
            if cookie is not None:
                held |= tell(path, cookie, Counter(chain.from_iterable(roles.values())))
    for held in roles.values():
        if not held:
            held.add(_LEDGER)
    ledgers, journals, indexes = (
        tuple(path for path, held in roles.items() if role in held) for role in (_LEDGER, _JOURNAL, _INDEX)
    )
    return Bookie("", ledgers, journals, indexes)


def _role_by_name(path: Path, cookie: Cookie, others: Mapping[str, int]) -> set[str]:
    """Return the role of the directories in ``cookie`` that share the most last components with ``path``, as a set;
    empty if several roles do."""
    alike = {role: max((shared_end(path, Path(name)) for name in names), default=0) for role, names in _named(cookie)}
    roles = {role for role, common in alike.items() if common and common == max(alike.values())}
    return roles if len(roles) == 1 else set()


def _role_by_count(path: Path, cookie: Cookie, others: Mapping[str, int]) -> set[str]:
    """Return, as a set, the only role for which ``cookie`` names more directories than ``others`` has; empty if not
    just one."""
    roles = {role for role, names in _named(cookie) if others.get(role, 0) < len(set(names))}
    return roles if len(roles) == 1 else set()


def _named(cookie: Cookie) -> list[tuple[str, tuple[str, ...]]]:
    """Return (role, directories in the cookie) for each role; ledger directories do not count as index directories."""
    indexes = tuple(name for name in cookie.index_dirs or () if name not in cookie.ledger_dirs)
    return [(_LEDGER, cookie.ledger_dirs), (_JOURNAL, cookie.journal_dirs), (_INDEX, indexes)]


def _inside(path: Path) -> str:
    """Return a hint about a bookie's directories directly below a path, "" if there are none."""
    inner = [
        child
        for child in sorted(path.iterdir())
        if any((at / COOKIE_FILE).is_file() for at in (child, child / "current"))
    ]
    return f"name the directories in it: {shell_word(','.join(map(str, inner)))}" if inner else ""


def _check_roles(given: GivenBookie, bookie: Bookie) -> None:
    for path in bookie.directories:
        listed = read_bookie_directory(path)
        if path not in bookie.ledger_dirs and listed.logs and not listed.journals:
            raise InvalidValue(
                f"{given.where}: {path} is said to be a journal directory, but it holds "
                f"{counted(len(listed.logs), 'entry log')} and no journal",
                hint="set journalDirectories to the directory with files such as 17f3a.txn",
                path=str(path),
            )
        if path not in bookie.journal_dirs and listed.journals and not listed.logs:
            raise InvalidValue(
                f"{given.where}: {path} is said to be a ledger directory, but it holds "
                f"{counted(len(listed.journals), 'journal')} and no entry log",
                hint="set ledgerDirectories to the directory with files such as 0.log",
                path=str(path),
            )


def read_given_cookie(current: Path) -> Cookie | None:
    """Return the cookie of a directory, None if it has none; raises Unsupported, MetadataCorrupt."""
    file = current / COOKIE_FILE
    try:
        return decode_cookie(read_file(file), str(file)) if file.is_file() else None
    except (MetadataCorrupt, Unsupported) as error:
        error.change_hint("if the file is damaged, move it elsewhere and name the bookie: ID=DIR,DIR")
        raise


def _check_cookies(given: GivenBookie, cookies: dict[Path, Cookie]) -> None:
    first = next(iter(cookies), None)
    for path, cookie in cookies.items():
        if first is not None and identity_of(cookie) != identity_of(cookies[first]):
            raise Refused(
                f"{given.where}: {first} and {path} belong to different bookies: the cookie (VERSION) of the first is of"
                f" {_cookie_text(cookies[first])}, of the second of {_cookie_text(cookie)}",
                hint="give each bookie its own --bookie",
                path=str(path),
            )


def _cookie_text(cookie: Cookie) -> str:
    dirs = ",".join(dict.fromkeys((*cookie.ledger_dirs, *cookie.journal_dirs)))
    return f"{cookie.bookie_id} ({dirs}){f' of instance {cookie.instance_id}' if cookie.instance_id else ''}"


def _id_of(given: GivenBookie, cookie: Cookie | None) -> str:
    if cookie is None:
        if not (given.bookie_id or given.fallback_id):
            raise InvalidValue(
                f"{given.where}: no directory has a cookie (VERSION) that names the bookie", hint="write ID=DIR[,DIR…]"
            )
        return given.bookie_id or given.fallback_id
    if given.bookie_id and given.bookie_id != cookie.bookie_id:
        raise Refused(
            f"{given.where}: said to be bookie {given.bookie_id}, but its cookie (VERSION) is that of "
            f"{cookie.bookie_id}",
            hint="give the directories of that bookie, or omit the id: the cookie has it",
        )
    return cookie.bookie_id


def _check_count(given: GivenBookie, bookie_id: str, bookie: Bookie, cookie: Cookie) -> None:
    for what, present, named in _roles(bookie, cookie):
        if len(present) > len(set(named)):
            raise Refused(
                f"{given.where}: {counted(len(present), f'{what} directory', f'{what} directories')} given for bookie"
                f" {bookie_id}: {', '.join(map(str, present))}; its cookie names {len(set(named))}: {', '.join(named)}",
                hint=(
                    "give each directory once, and no old copies; its bookkeeper.conf says which is which: "
                    "--bookie-conf FILE"
                ),
            )


def join_bookies(one: Bookie, other: Bookie) -> Bookie:
    """Return one bookie with the directories of both; raises Refused if they cannot be one bookie's, Unsupported, MetadataCorrupt."""
    joined = merge_bookies((one, other))[0]
    given = GivenBookie(other.name, "", ())
    cookies = {path: cookie for path in joined.directories if (cookie := read_given_cookie(path)) is not None}
    _check_cookies(given, cookies)
    for cookie in [*cookies.values()][:1]:
        _check_count(given, joined.bookie_id, joined, cookie)
    return joined


def missing_directories(bookie: Bookie) -> list[str]:
    """Return warnings about directories that the cookie names and that were not given."""
    cookie = read_bookie_cookie(bookie)
    return [
        f"bookie {bookie.bookie_id}: {len(present)} of {len(set(named))} {what} directories given; by its cookie they are"
        f" {', '.join(dict.fromkeys(named))}: entries in the others are missing here; import them: pulsar-admin store "
        f"add bookie {shell_word(bookie.bookie_id)}=DIR"
        for what, present, named in ([] if cookie is None else _roles(bookie, cookie))
        if len(present) < len(set(named))
    ]


def _roles(bookie: Bookie, cookie: Cookie) -> list[tuple[str, tuple[Path, ...], tuple[str, ...]]]:
    return [(_LEDGER, bookie.ledger_dirs, cookie.ledger_dirs), (_JOURNAL, bookie.journal_dirs, cookie.journal_dirs)]


def check_apart(bookies: Sequence[Bookie]) -> None:
    """Raise Refused if two bookies have the same id or directory, or belong to different clusters by their cookies."""
    ids: dict[str, Bookie] = {}
    places: dict[Path, str] = {}
    for bookie in bookies:
        for path in bookie.directories:
            resolved = path.resolve()
            if resolved in places:
                raise Refused(
                    f"{path} is given twice: for bookie {places[resolved]} and for bookie {bookie.name}"
                    if bookie.name != places[resolved]
                    else f"{path} is given twice for bookie {bookie.name}",
                    hint="give each directory once; a symbolic link to it is the same one",
                    path=str(path),
                )
            places[resolved] = bookie.name
        other = ids.setdefault(bookie.name, bookie)
        if other is not bookie:
            raise Refused(
                f"{_places(other)} and {_places(bookie)} both claim to be bookie {bookie.bookie_id}",
                hint="one of them is an old copy, or belongs to the other: --bookie DIR,DIR takes all directories of one bookie",
                bookie=bookie.bookie_id,
            )
    instances: dict[str, Bookie] = {}
    for bookie in bookies:
        instance_id = instance_of(bookie)
        if instance_id:
            instances.setdefault(instance_id, bookie)
    if len(instances) > 1:
        text = "; ".join(f"{bookie.name} ({_places(bookie)}) of {instance}" for instance, bookie in instances.items())
        raise Refused(
            f"these bookies belong to different clusters, by the instance ids in their cookies: {text}",
            hint="import the bookies of one cluster",
        )


def instance_of(bookie: Bookie) -> str:
    """Return the cluster's instance id by the bookie's cookie, "" where none says it."""
    cookies = (read_given_cookie(path) for path in bookie.directories)
    return next((cookie.instance_id for cookie in cookies if cookie is not None and cookie.instance_id), "")


def _places(bookie: Bookie) -> str:
    return ",".join(map(str, bookie.directories))
