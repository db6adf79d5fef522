"""Incident bundles: a store's metadata and index with pseudonyms for names and without the bytes of entries, in one file.

Gzip of JSON lines: a header (``FORMAT``, ``VERSION``), then rows, arrays whose first item says what they are::

    ["node", path, [version, owner, created ms, modified ms], value]   a row of ``tree``
    ["file", {fields of LogFile}]                                      a row of ``logs``
    ["owners", ledger id, [[kind, topic, cursor], …]]                  a row of ``owners``
    ["damage", {fields of Damage}]                                     a row of ``damage``
    ["row", database, key, value]                                      another row, unchanged: only numbers
    ["record", file id, offset, bytes]                                 an entry of a cursor ledger, which holds positions
    ["end", rows]                                                      so that a bundle that was cut is known

Bytes are base64. A line has at most LINE_MAX_BYTES: a small file may decompress to more than memory holds. An import makes a sparse file of
each catalogued one; only the records above are in it.

Metadata nodes: values rebuilt from their known fields, with pseudonyms for names.

Only decoded data is copied: of unknown fields the bundle has only their numbers, of unknown trees the nodes without values; other unknown
nodes are left out. A value that cannot be decoded becomes another one that cannot be decoded.
"""

import gzip
import json
import os
import platform
import re
import secrets
import struct
import zlib
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from importlib.metadata import version
from io import BytesIO
from pathlib import Path
from typing import Any

from msgspec import Struct, convert
from msgspec.structs import asdict, replace

from pulsar_admin.store import errors
from pulsar_admin.store.codec.bookie import Cookie, decode_cookie, encode_cookie
from pulsar_admin.store.codec.buffer import encode_varint
from pulsar_admin.store.codec.cursor import (
    decode_cursor_head,
    decode_cursor_info,
    encode_cursor_info,
    rename_properties,
)
from pulsar_admin.store.codec.digest import compute_digest
from pulsar_admin.store.codec.entry import ENTRY_HEADER_BYTES, Entry
from pulsar_admin.store.codec.ledgermetadata import (
    COOKIES,
    LedgerMetadata,
    Segment,
    decode_ledger_metadata,
    encode_ledger_metadata,
    find_listed_depths,
)
from pulsar_admin.store.codec.managedledger import LedgerInfo, decode_managed_ledger, encode_managed_ledger
from pulsar_admin.store.codec.packages import decode_log_segment, stream_of_path
from pulsar_admin.store.codec.policies import decode_json_object
from pulsar_admin.store.codec.rocksvalue import NodeStat
from pulsar_admin.store.codec.scalable import SegmentState, decode_scalable_topic
from pulsar_admin.store.codec.schema import IndexEntry, decode_schema_locator, encode_schema_locator
from pulsar_admin.store.codec.wrapper import MAGIC
from pulsar_admin.store.db.blocks import ledger_key
from pulsar_admin.store.db.delayed import find_index_ledgers
from pulsar_admin.store.db.entry_files import EntryFiles
from pulsar_admin.store.db.environment import Store, Txn, create_store, open_store
from pulsar_admin.store.db.files import (
    Damage,
    FileMode,
    LogFile,
    file_fingerprint,
    iter_damage,
    iter_logs,
    put_damage,
    put_log,
)
from pulsar_admin.store.db.ledger_ids import DELETED as DELETED_LEDGERS
from pulsar_admin.store.db.owners import Owner, OwnerKind, iter_owners, put_owners
from pulsar_admin.store.db.storeinfo import StoreState
from pulsar_admin.store.db.tree import Node, iter_nodes, put_nodes
from pulsar_admin.store.db.unserved import FAILING, UNSERVED
from pulsar_admin.store.facts.trees import WRITERS, unknown_tree_of
from pulsar_admin.store.facts.unlisted import Unlisted, UnlistedLedgers
from pulsar_admin.store.facts.vanished import find_vanished
from pulsar_admin.store.files import (
    PRIVATE_FILE,
    NotRegular,
    alone_at,
    create_file,
    new_directory,
    open_regular,
    raise_read_error,
    read_file,
    replace_file,
    sync_file,
    write_at,
    write_new_file,
)
from pulsar_admin.store.model.cursors import read_cursor
from pulsar_admin.store.model.nodes import cursor_of_path, structure_of, unknown_in
from pulsar_admin.store.model.publish_times import BEGIN, END
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.redaction import SALT_BYTES, Pseudonyms
from pulsar_admin.store.model.topics import read_topic
from pulsar_admin.store.names import SEGMENT, managed_ledger_of_path, parse_owner, parse_topic
from pulsar_admin.store.rules.finding import Finding
from pulsar_admin.store.rules.rows import WITHOUT_DIGESTS
from pulsar_admin.store.rules.table import RULES
from pulsar_admin.store.wording import Answer

FORMAT, VERSION = "pulsar-admin incident bundle", 1
_PLAIN_ROWS = ("entries", "times", "copies")
_STATE_ROWS = ("bookies", "own-ledgers", "placed-ledgers", "copies", "as-of", "next-ledger-id")
LINE_MAX_BYTES = 32 << 20
_LEDGER_KEY_BYTES = len(ledger_key(0))
_BATCH, _BATCH_BYTES = 10_000, 64 << 20
Json = dict[str, Any]  # Any: JSON values


class BundleResult(Struct):
    """The content of a bundle in numbers. ``left_out``: nodes without information on topics, cursors and ledgers."""

    nodes: int = 0
    left_out: int = 0
    files: int = 0
    rows: int = 0
    cursor_entries: int = 0


class FindingCount(Answer, frozen=True):
    """How many findings of one ``code`` a check has; ``severity``: problem or note."""

    severity: str
    code: str
    count: int


class BundleReport(Answer, frozen=True):
    """What a bundle holds. ``left_out``: nodes without information on topics, cursors, ledgers; ``names``: the file of pseudonyms."""

    bundle: str
    names: str
    nodes: int
    left_out: int
    files: int
    rows: int
    cursor_entries: int
    findings: tuple[FindingCount, ...]


class BundleImported(Answer, frozen=True):
    """The contents of a bundle, the version that made it (``toolkit``), when (``created_ms``), and the findings of its
    check.

    ``same_findings``: whether a check here finds the same, apart from rules that need bookies' files.
    """

    store: str
    nodes: int
    left_out: int
    files: int
    rows: int
    cursor_entries: int
    toolkit: str | None
    created_ms: int | None
    findings: tuple[FindingCount, ...]
    same_findings: bool


def count_findings(findings: Iterable[Finding]) -> tuple[FindingCount, ...]:
    """Return how many findings of each code there are, problems first."""
    # A bundle has the content of rows, not their bytes, so a check there cannot find rows without digests.
    counts = Counter((not one.is_problem, one.code) for one in findings if one.code != WITHOUT_DIGESTS)
    return tuple(
        FindingCount("note" if is_note else "problem", code, count) for (is_note, code), count in sorted(counts.items())
    )


# -- names ------------------------------------------------------------------------------------------------------------


def read_names(path: Path) -> Pseudonyms:
    """Return the pseudonyms in a file, or new ones if it does not exist; raises InvalidValue for another kind of file."""
    try:
        names = json.loads(read_file(path))
        return Pseudonyms(bytes.fromhex(names["salt"]), dict(names["names"]))
    except FileNotFoundError:
        return Pseudonyms(secrets.token_bytes(SALT_BYTES))
    except OSError as error:
        raise_read_error(error, path)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise errors.InvalidValue(
            f"{path} is not a file of names that a bundle wrote", hint="name that of an earlier bundle, or a new one"
        ) from error


def encode_names(names: Pseudonyms) -> bytes:
    """Return the content of a file of pseudonyms."""
    document = {"salt": names.salt.hex(), "names": dict(sorted(names.names.items()))}
    return json.dumps(document, indent=1, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"


# -- out --------------------------------------------------------------------------------------------------------------


def write_bundle(
    store: Store, path: Path, names_path: Path | None, findings: Iterable[Finding], now_ms: int
) -> BundleReport:
    """Write the bundle of a store, of which a check has ``findings``, to a new file, and before it the pseudonyms to ``names_path``, by
    default ``path`` with ``.names.json`` appended.

    Raises AlreadyExists, InvalidValue, DiskFull, NotWritable, and StoreBusy while another bundle is made with these
    names.
    """
    if not path.name:
        raise errors.InvalidValue(f"file {str(path)!r} has no name", value=str(path))
    names_path = path.with_name(f"{path.name}.names.json") if names_path is None else names_path
    if names_path == path:
        raise errors.InvalidValue(
            f"{path} cannot be both the bundle and the file of its names", hint="name another file"
        )
    result, counts = BundleResult(), count_findings(findings)
    header = {
        "toolkit": version("pulsar-admin-toolkit"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "created": now_ms,
        "findings": [asdict(one) for one in counts],
    }
    with alone_at(names_path):
        names = read_names(names_path)
        buffer = BytesIO()
        with gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as file, store.read() as txn:
            hidden = ({key: _source(key, value, names) for key, value in row.items()} for row in store.info.sources)
            sources = [{"bundle": True} | row for row in hidden]
            file.write(_line({"format": FORMAT, "version": VERSION, **header, "sources": sources}))
            for row in _iter_rows(store, txn, names, result):
                result.rows += 1
                file.write(_line(row))
            file.write(_line(["end", result.rows]))
        data = buffer.getvalue()
        write_new_file(path, data, before=lambda: replace_file(names_path, encode_names(names), mode=PRIVATE_FILE))
    return BundleReport(bundle=str(path), names=str(names_path), findings=counts, **asdict(result))


def _line(value: object) -> bytes:
    line = json.dumps(value, separators=(",", ":")).encode() + b"\n"
    if len(line) > LINE_MAX_BYTES:
        raise errors.LimitExceeded(
            f"a row of the bundle would have {len(line):,} bytes, the limit is {LINE_MAX_BYTES:,}",
            limit_bytes=LINE_MAX_BYTES,
        )
    return line


def _text(data: bytes | memoryview) -> str:
    return b64encode(data).decode()


def _iter_rows(store: Store, txn: Txn, names: Pseudonyms, result: BundleResult) -> Iterator[list[object]]:
    for node in iter_nodes(txn, "/"):
        made = bundled_node(node, names)
        if made is None:
            result.left_out += 1
            continue
        result.nodes += 1
        yield ["node", made.path, list(made.stat[:4]), _text(made.value)]
    for log in iter_logs(txn):
        result.files += 1
        yield ["file", _log_fields(log, names)]
    for damage in iter_damage(txn):
        reason = "damaged" if damage.file_id else "not included: its text may contain names"
        yield ["damage", {**asdict(damage), "reason": reason}]
    for ledger_id, owners in iter_owners(txn):
        hidden = [[owner.kind, _owner_name(owner, names), names.local(owner.cursor)] for owner in owners]
        yield ["owners", ledger_id, hidden]
    indexes = {
        ledger_key(ledger_id) for ledger_id in find_index_ledgers(txn)
    }  # of delayed messages; a build writes them again
    for database in _PLAIN_ROWS:
        for key, value in txn.items(database):
            if bytes(key[:_LEDGER_KEY_BYTES]) not in indexes:
                yield ["row", database, _text(key), _text(value)]
    for name in _STATE_ROWS:
        row = txn.get("state", name.encode())
        if row is not None:
            yield ["row", "state", _text(name.encode()), _text(_state(name, row, names))]
    for kind in (UNSERVED, FAILING):
        for key, value in txn.items("state", kind):
            yield ["row", "state", _text(key), _text(value)]
    deleted = [ledger_id for ledger_id, why in UnlistedLedgers(txn).iter_unowned() if why is Unlisted.DELETED]
    with EntryFiles(store, txn) as files:
        deleted += sorted(find_vanished(EntryReader(files, txn)).disowned)
    if deleted:  # by ZooKeeper's logs or a change of the store, of which a bundle has neither
        yield ["row", "state", _text(DELETED_LEDGERS), _text(json.dumps(deleted).encode())]
    yield from _iter_records(store, txn, names, result)


def _state(name: str, value: bytes, names: Pseudonyms) -> bytes:
    if name not in ("bookies", "placed-ledgers"):
        return value

    def hide(ids: Any) -> object:  # Any: JSON
        whole = names.whole
        return {whole(one): ms for one, ms in ids.items()} if isinstance(ids, dict) else [whole(one) for one in ids]

    return json.dumps({key: hide(ids) for key, ids in json.loads(value).items()}).encode()


def _source(key: str, value: object, names: Pseudonyms) -> object:
    if key != "bookies" or not isinstance(value, list):
        return names.json(value)
    rows = [row if isinstance(row, dict) else {"ledgers": [row], "journals": [row]} for row in value]
    return [
        {
            key: names.whole(one) if isinstance(one, str) else [names.path(path) for path in one]
            for key, one in row.items()
        }
        for row in rows
    ]


def _log_fields(log: LogFile, names: Pseudonyms) -> Json:
    hidden = replace(
        log,
        path=names.file(log.path),
        origin=names.file(log.origin),
        fingerprint="",
        mtime_ns=0,
        stranger="its bookie is not proven to be of this cluster" if log.stranger else "",
        bookie=names.whole(log.bookie),
    )
    return asdict(hidden)


class _Recorder(EntryReader):
    """Remembers the entries that are read."""

    def __init__(self, files: EntryFiles, txn: Txn) -> None:
        super().__init__(files, txn)
        self.taken: list[tuple[int, int, int]] = []
        self.entries: list[Entry] = []

    def read_at(self, ledger_id: int, entry_id: int, place: tuple[int, int, int]) -> Entry:
        entry = super().read_at(ledger_id, entry_id, place)
        self.taken.append(place)
        self.entries.append(entry)
        return entry


def _iter_records(store: Store, txn: Txn, names: Pseudonyms, result: BundleResult) -> Iterator[list[object]]:
    """Yield the records with cursors' positions; parts of a state that is split over several entries are skipped."""
    with EntryFiles(store, txn) as files:
        for place, entry in _iter_cursor_entries(files, txn):
            record = _hidden_record(bytes(files.read_record(place)), entry, names)
            if record is not None:
                result.cursor_entries += 1
                yield ["record", place[0], place[1], _text(record)]


def _iter_cursor_entries(files: EntryFiles, txn: Txn) -> Iterator[tuple[tuple[int, int, int], Entry]]:
    """Yield the entries of cursor ledgers that contain positions, with their places."""
    for node in iter_nodes(txn, "/managed-ledgers/"):
        cursor = cursor_of_path(node.path)
        if cursor is not None and _has_ledger(node):
            recorder = _Recorder(files, txn)
            with suppress(errors.StoreError):
                read_cursor(txn, recorder, read_topic(txn, cursor[0]), cursor[1])
            yield from zip(recorder.taken, recorder.entries, strict=True)


def _has_ledger(node: Node) -> bool:
    try:
        return decode_cursor_head(node.value, node.path).is_in_ledger
    except errors.StoreError:
        return False


def _owner_name(owner: Owner, names: Pseudonyms) -> str:
    """Return the pseudonym of an owner's topic, or of its counterpart in another domain, as in the bundle's nodes."""
    if owner.is_of_topic and owner.kind is not OwnerKind.SCHEMA:  # whose topic is the path of its node
        return names.text(owner.topic)
    domain, mark, rest = owner.topic.partition("://")
    if domain == SEGMENT:  # whose topic is not encoded, as it is in the path of its node
        return str(managed_ledger_of_path(_bundled_path(parse_owner(owner.topic).path, names) or ""))
    return f"{names.local(domain)}://{names.path(rest)}" if mark else _bundled_path(owner.topic, names) or ""


def _hidden_record(body: bytes, entry: Entry, names: Pseudonyms) -> bytes | None:
    """Return the record of a PositionInfo with names in it replaced, of the same size; None for other records."""
    payload = rename_properties(entry.payload, names.same_length)
    if payload is None or len(payload) != len(entry.payload):
        return None
    header = body[:ENTRY_HEADER_BYTES]
    digest = compute_digest(entry.digest_type, memoryview(header), memoryview(payload), b"")
    return len(body).to_bytes(4, "big") + header + digest + payload


# -- in ---------------------------------------------------------------------------------------------------------------


def import_bundle(
    path: Path, store_path: Path, now_ms: int, check: Callable[[Store], Iterable[Finding]]
) -> BundleImported:
    """Create a new store from a bundle, and compare the findings of ``check`` there with those recorded in the bundle.

    Nothing is created if it cannot be read. Raises SourceNotFound, MetadataCorrupt, Unsupported, AlreadyExists,
    DiskFull.
    """
    result = BundleResult()
    with new_directory(store_path) as making:
        lines = _iter_lines(path)
        header = next(lines, (0, None))[1]
        if (
            not isinstance(header, dict)
            or header.get("format") != FORMAT
            or not isinstance(header.get("sources"), list)
        ):
            raise errors.MetadataCorrupt(
                f"{path} is not an incident bundle", hint="create one with: pulsar-admin store bundle FILE"
            )
        if header.get("version") != VERSION:
            raise errors.Unsupported(
                f"{path} is a bundle of version {header.get('version')}, only {VERSION} is known",
                hint="use the toolkit that wrote it",
            )
        create_store(making, now_ms=now_ms, state=StoreState.IMPORTING, sources=tuple(header["sources"]))
        with open_store(making, writable=True, unfinished=True) as store:
            _fill(store, _checked(path, lines, result), result)
            store.update_info(state=StoreState.READY)
    with open_store(store_path) as store:  # what it checks may be damaged
        here = count_findings(check(store))
    told = convert(header.get("findings") or [], tuple[FindingCount, ...])
    of_disks = {rule.code for rule in RULES if rule.of_disks}
    same, was = ([one for one in counts if one.code not in of_disks] for counts in (here, told))
    return BundleImported(
        store=str(store_path),
        toolkit=header.get("toolkit"),
        created_ms=header.get("created"),
        findings=told,
        same_findings=same == was,
        **asdict(result),
    )


def _iter_lines(path: Path) -> Iterator[tuple[int, Any]]:  # Any: JSON
    """Yield (bytes, value) of each line; raises SourceNotFound, MetadataCorrupt, LimitExceeded."""
    try:
        with os.fdopen(open_regular(path), "rb") as raw, gzip.open(raw, "rb") as file:
            while line := file.readline(LINE_MAX_BYTES + 1):
                if len(line) > LINE_MAX_BYTES:
                    raise errors.LimitExceeded(
                        f"{path} is not a bundle: a line has more than {LINE_MAX_BYTES:,} bytes",
                        hint="ask its sender for another copy",
                        path=str(path),
                        limit_bytes=LINE_MAX_BYTES,
                    )
                yield len(line), json.loads(line)
    except FileNotFoundError as error:
        raise errors.SourceNotFound(f"there is no file {path}", path=str(path)) from error
    except NotRegular as error:  # a FIFO would be waited for
        raise errors.SourceNotFound(
            f"{path}: {error.strerror}", hint="name the bundle's file", path=str(path)
        ) from error
    except (OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
        raise errors.MetadataCorrupt(
            f"{path} is damaged or not a bundle: {error}", hint="ask its sender for another copy"
        ) from error


def _checked(
    path: Path, lines: Iterator[tuple[int, Any]], result: BundleResult
) -> Iterator[tuple[int, list[Any]]]:  # Any: JSON
    """Yield the rows before the end marker, which must exist, and how many bytes each takes."""
    for size_bytes, line in lines:
        if not isinstance(line, list) or not line:
            break
        if line[0] == "end":
            if line[1:] == [result.rows]:
                return
            break
        result.rows += 1
        yield size_bytes, line
    raise errors.MetadataCorrupt(
        f"{path} was cut: row {result.rows + 1} is missing", hint="ask its sender for another copy"
    )


def _fill(store: Store, rows: Iterable[tuple[int, list[Any]]], result: BundleResult) -> None:  # Any: JSON
    batch: list[list[Any]] = []
    batch_bytes = 0
    logs: dict[int, LogFile] = {}
    try:
        for size_bytes, row in rows:
            if row[0] == "file":
                log = LogFile(**row[1])
                logs[int(log.file_id)] = _create_stand_in(store.path, log)
            elif row[0] == "record":
                log, offset, record = logs[int(row[1])], int(row[2]), b64decode(row[3])
                if not 0 <= offset <= log.size_bytes - len(record):
                    raise ValueError("a record outside its file")
                write_at(store.path / log.path, offset, record)
                result.cursor_entries += 1
            else:
                result.nodes += row[0] == "node"
                batch.append(row)
                batch_bytes += size_bytes
            if len(batch) >= _BATCH or batch_bytes >= _BATCH_BYTES:
                _put(store, batch)
                batch, batch_bytes = [], 0
        _put(store, batch)
        made = [_as_it_is(store.path, log) for log in logs.values()]
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise errors.MetadataCorrupt(
            f"row {result.rows} of the bundle is damaged: {error}", hint="ask its sender for another copy"
        ) from error

    def put(txn: Txn) -> None:
        for log in made:
            put_log(txn, log)

    store.write(put)
    result.files = len(made)


def _node(path: str, stat: list[int], value: str) -> Node:
    version, owner, created_ms, modified_ms = map(int, stat)
    return Node(path, NodeStat(version, owner, created_ms, modified_ms, False), b64decode(value))


def _owner(fields: list[Any]) -> Owner:  # Any: JSON
    kind, topic, cursor = map(str, fields)
    return Owner(OwnerKind(kind), topic, cursor)


def _put(store: Store, batch: list[list[Any]]) -> None:  # Any: JSON
    nodes = [_node(*row[1:]) for row in batch if row[0] == "node"]
    plain = [(row[1], b64decode(row[2]), b64decode(row[3])) for row in batch if row[0] == "row"]
    owners = [(int(row[1]), tuple(map(_owner, row[2]))) for row in batch if row[0] == "owners"]
    damages = [Damage(**row[1]) for row in batch if row[0] == "damage"]
    if any(database not in (*_PLAIN_ROWS, "state") for database, _, _ in plain):
        raise ValueError("a row of a database that bundles do not have")

    def put(txn: Txn) -> None:
        put_nodes(txn, nodes)
        for database, key, value in plain:
            txn.put(database, key, value)
        for ledger_id, some in owners:
            put_owners(txn, ledger_id, some)
        for damage in damages:
            put_damage(txn, damage)

    store.write(put)


def _create_stand_in(store_path: Path, log: LogFile) -> LogFile:
    """Create the sparse file that stands for an entry file, and return its row."""
    if int(log.size_bytes) < 0:
        raise ValueError("a file of less than 0 bytes")
    place = f"entries/bundled-{int(log.file_id)}{Path(log.path).suffix}"
    with create_file(store_path / place) as opened:
        opened.truncate(int(log.size_bytes))
    mode = FileMode.OWN if log.mode == FileMode.OWN else FileMode.COPIED  # an own file is of no bookie, here as there
    return replace(log, path=place, mode=mode)


def _as_it_is(store_path: Path, log: LogFile) -> LogFile:
    """Return the row of a complete stand-in file, with its present modification time and fingerprint."""
    file = store_path / log.path
    sync_file(file)
    fingerprint = file_fingerprint(file, min(log.next_offset, log.size_bytes))
    return replace(log, mtime_ns=file.stat().st_mtime_ns, fingerprint=fingerprint)


UNDECODABLE = b"\xff\xff\xff"
_VERSION_LINE = re.compile(rb"[\w\t]+\n")
_ROOTS = re.compile(
    "/(managed-ledgers|schemas|ledgers|admin/(policies|local-policies|partitioned-topics|clusters))(/.*)?|/topics/[^/]+/[^/]+/[^/]+"
    "|/pulsar/(functions|packages)/.+/<default>/ledgers/(logrecs|inprogress)_[0-9a-f_]{1,60}",
    re.DOTALL,
)
_LEDGERS = re.compile(
    r"/ledgers(/[0-9]{1,19}|/L[0-9]{1,19}|/idgen|/idgen-long|/HOB[0-9]{1,10}|/ID-[0-9]{1,19}|/available|/cookies|/readonly)*"
)
_LAYOUT = "/ledgers/LAYOUT"
_NUMBER = re.compile("-?[0-9]{1,19}")
_FIELD = re.compile(r" field ([0-9]+)$")
_WRAPPER = struct.Struct(">2sI")
_LEDGER_METADATA = b"BookieMetadataFormatVersion\t3\n"
_LAST = 0x80  # only the last byte of a varint is smaller
_BUCKET = re.compile(r"#pulsar\.internal\.delayed\.bucket_[0-9_]{1,60}")


def bundled_node(node: Node, names: Pseudonyms) -> Node | None:
    """Return a node in the form that goes into a bundle, None if it is left out: of unknown trees only their existence is kept."""
    if unknown_tree_of(node.path):
        return Node(_bundled_path(node.path, names) or "", node.stat, b"")
    if _ROOTS.fullmatch(node.path) is None:
        return None
    path = _bundled_path(node.path, names)
    return None if path is None else Node(path, node.stat, _value(node, names))


def _bundled_path(path: str, names: Pseudonyms) -> str | None:
    """Return the pseudonymous path of a node, None for one below /ledgers that carries no information."""
    if path.startswith(f"{COOKIES}/"):
        return f"{COOKIES}/" + names.whole(path.removeprefix(f"{COOKIES}/"))
    if path == "/ledgers" or path.startswith("/ledgers/"):
        return path if path == _LAYOUT or _LEDGERS.fullmatch(path) else None
    stream = stream_of_path(path)
    if stream is not None:
        return f"{_bundled_path(stream, names)}{path.removeprefix(stream)}"
    root, _, rest = path.removeprefix("/").partition("/")
    if unknown_tree_of(path) and root not in WRITERS:
        root = names.component(root)
    if root in ("admin", "pulsar"):
        below, _, rest = rest.partition("/")
        root = f"{root}/{below}"
    return f"/{root}/{names.path(rest)}" if rest else f"/{root}"


def _value(node: Node, names: Pseudonyms) -> bytes:
    if node.path == _LAYOUT and find_listed_depths(node.value) is not None:
        return node.value  # the name of a class of BookKeeper
    structure = structure_of(node.path, node.value)
    if structure is None:
        return b""
    try:
        made = _MAKERS.get(structure[0], _json)(node, names)
    except errors.Unsupported:
        # The part of a value that shows an unknown form, and nothing else: its version, its compression, or its segments.
        if structure[0] == "ScalableTopicMetadata":
            return _segments(node, names)
        if node.value[: len(MAGIC)] == MAGIC:
            return node.value[: _WRAPPER.size + _WRAPPER.unpack_from(node.value)[1]]
        version = _VERSION_LINE.match(node.value)
        return version[0] if version else UNDECODABLE
    except errors.StoreError:
        return UNDECODABLE
    # The numbers of unknown fields tell their reader which they are; their values are zeros.
    _, what = unknown_in(node.path, node.value)
    numbers = sorted({int(match[1]) for text in what if (match := _FIELD.search(text))})
    fields = b"".join(encode_varint(number << 3) + b"\0" for number in numbers)
    if not fields or not made.startswith(_LEDGER_METADATA):
        return made + fields
    message = made[len(_LEDGER_METADATA) :]
    size = next(size for size in range(1, len(message)) if message[size - 1] < _LAST)
    return _LEDGER_METADATA + encode_varint(len(message) - size + len(fields)) + message[size:] + fields


def _managed_ledger(node: Node, names: Pseudonyms) -> bytes:
    if not node.value:
        return b""
    managed = decode_managed_ledger(node.value, node.path, as_stored=True)
    ledgers = tuple(_ledger_info(info, names) for info in managed.ledgers)
    return encode_managed_ledger(replace(managed, ledgers=ledgers, properties=_properties(managed.properties, names)))


def _ledger_info(info: LedgerInfo, names: Pseudonyms) -> LedgerInfo:
    if not info.properties:
        return info
    # Brokers alone write these; of a topic's properties, which users write, a number says as much as a text.
    times = {key: value for key, value in info.properties.items() if key in (BEGIN, END) and _NUMBER.fullmatch(value)}
    return replace(info, properties=_properties(info.properties, names) | times)


def _properties(found: Mapping[str, str], names: Pseudonyms) -> dict[str, str]:
    return {names.word(key): names.text(value) for key, value in found.items()}


def _cursor(node: Node, names: Pseudonyms) -> bytes:
    info = decode_cursor_info(node.value, node.path)
    properties = {names.same_length(key): value for key, value in info.properties.items()}
    cursor_properties = dict(
        (key, value) if _BUCKET.fullmatch(key) and _NUMBER.fullmatch(value) else (names.whole(key), names.whole(value))
        for key, value in info.cursor_properties.items()
    )
    return encode_cursor_info(replace(info, properties=properties, cursor_properties=cursor_properties))


def _ledger(node: Node, names: Pseudonyms) -> bytes:
    metadata: LedgerMetadata = decode_ledger_metadata(node.value, node.path)
    segments = tuple(
        Segment(segment.first_entry_id, tuple(names.whole(member) for member in segment.members))
        for segment in metadata.segments
    )
    custom = {names.word(key): _custom(value, names) for key, value in metadata.custom.items()}
    password = None if metadata.password is None else b""
    return encode_ledger_metadata(replace(metadata, segments=segments, custom=custom, password=password, ctoken=None))


def _custom(value: bytes, names: Pseudonyms) -> bytes:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return b""
    if not text.isprintable():  # such as MessageIdData
        return b""
    return (text if _BUCKET.fullmatch(text) else names.text(text)).encode()


def _schema(node: Node, names: Pseudonyms) -> bytes:
    locator = decode_schema_locator(node.value, node.path)

    def hidden(entry: IndexEntry) -> IndexEntry:
        return replace(entry, hash=names.digest(entry.hash))

    return encode_schema_locator(
        replace(locator, newest=hidden(locator.newest), index=tuple(map(hidden, locator.index)))
    )


def _cookie(node: Node, names: Pseudonyms) -> bytes:
    cookie = decode_cookie(node.value, node.path)
    return encode_cookie(
        Cookie(
            cookie.layout_version,
            names.whole(cookie.bookie_id),
            tuple(map(names.path, cookie.journal_dirs)),
            tuple(map(names.path, cookie.ledger_dirs)),
            None if cookie.instance_id is None else names.whole(cookie.instance_id),
            None if cookie.index_dirs is None else tuple(map(names.path, cookie.index_dirs)),
        )
    )


def _json(node: Node, names: Pseudonyms) -> bytes:
    if not node.value:
        return b""
    try:
        return json.dumps(names.json(json.loads(node.value)), separators=(",", ":")).encode()
    except (ValueError, RecursionError):
        return UNDECODABLE


def _scalable_topic(node: Node, names: Pseudonyms) -> bytes:
    decoded = decode_scalable_topic(node.value, node.path, parse_topic("topic://any/any/any"))
    record: dict[str, Any] = {
        key: one for key, one in decoded.record.items() if key in ("epoch", "nextSegmentId", "deleted")
    }
    record["segments"] = {key: names.json(row) for key, row in decoded.record.get("segments", {}).items()}
    record["properties"] = _properties(decoded.properties, names)
    return json.dumps(record, separators=(",", ":")).encode()


def _segments(node: Node, names: Pseudonyms) -> bytes:
    """Return the segments up to the first with an unknown state, and of that one the id, hashes and state: the rest was not checked."""
    kept = {}
    for key, row in decode_json_object(node.value, node.path)["segments"].items():
        state = row.get("state")
        if state in (*SegmentState,):
            kept[key] = names.json(row)
            continue
        is_word = isinstance(state, str) and _STATE.fullmatch(state) is not None
        hashes = {end: row["hashRange"][end] for end in ("start", "end")}
        shown = state if is_word else names.json(state)
        kept[key] = {"segmentId": row["segmentId"], "hashRange": hashes, "state": shown}
        break
    return json.dumps({"segments": kept}, separators=(",", ":")).encode()


_STATE = re.compile("[A-Z_]+")


def _log_segment(node: Node, _: Pseudonyms) -> bytes:
    decode_log_segment(node.value, node.path)  # numbers alone
    return node.value


_MAKERS = {
    "ManagedLedgerInfo": _managed_ledger,
    "ManagedCursorInfo": _cursor,
    "LedgerMetadata": _ledger,
    "ScalableTopicMetadata": _scalable_topic,
    "LogSegmentMetadata": _log_segment,
    "SchemaLocator": _schema,
    "Cookie": _cookie,
}
