"""``store info``, ``store ls``, ``store cat``, ``store owner``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from pulsar_admin.columns import Column, render_cell
from pulsar_admin.context import App, Bytes, Lines, Result, Shown
from pulsar_admin.jsonify import redacted_json, to_json
from pulsar_admin.numbers import whole
from pulsar_admin.options import command, flag, redact_properties_option
from pulsar_admin.store.db.bookies import decode_bookie
from pulsar_admin.store.db.tree import Node, find_node, iter_children, list_children
from pulsar_admin.store.errors import LedgerNotFound, MetadataCorrupt, PathNotFound, StoreNotFound
from pulsar_admin.store.facts.managed_ledgers import OtherLedger, summed
from pulsar_admin.store.facts.trees import trees_text
from pulsar_admin.store.model.copy_age import AsOf
from pulsar_admin.store.model.nodes import structure_of
from pulsar_admin.store.sources.roots import below_text
from pulsar_admin.store.wording import counted, plural
from pulsar_admin.visible import clean_text

if TYPE_CHECKING:
    from pulsar_admin.store.model.counts import DiskBytes
    from pulsar_admin.store.reports.summary import StoreSummary

# -- info -------------------------------------------------------------------------------------------------------------


@command(
    "store info",
    examples=["", "-o json"],
    output="Sources, the numbers of topics, ledgers and entries, and every file of entries with its state.",
    errors=[StoreNotFound],
)
def info(app: App) -> Result:
    """Show what the store contains and where it came from.

    A file's state is `same`, `grown`, `missing`, `changed` (a different file, or shorter) or `unreadable`. The position
    of a cursor comes from its metadata, from its cursor ledger, or (metadata-fallback) from an old snapshot because its
    ledger is lost.
    """
    return Result(app.api.summary(), plain=_render_info)


def _source_text(source: Mapping[str, Any]) -> str:  # Any: JSON
    if source["kind"] != "bookie":
        return f"{source['kind']} {source['path']}{below_text(source)}, {source['mode']}"
    (bookie,) = map(decode_bookie, source["bookies"])
    return f"bookie {bookie.name}: {', '.join(map(str, bookie.directories))}, {source['mode']}"


def _render_info(summary: StoreSummary) -> str:
    rows = [
        ("store", f"{summary.store} (format {summary.format_version}, {summary.state})"),
        *([] if summary.row_digests else [("rows", "without digests; `store refresh` or the next change adds them")]),
        ("created", render_cell(summary.created_ms, "time")),
        ("as of", _as_of_text(summary)),
        *(("source", _source_text(source)) for source in summary.sources),
        ("metadata nodes", f"{summary.databases['tree']:,}"),
        *([("not known", trees_text(summary.unknown_trees))] if summary.unknown_trees else []),
        (
            "topics",
            _part(summary.topics, summary.system_topics, "the system")
            + (f" ({summary.unreadable_topics} unreadable)" * bool(summary.unreadable_topics)),
        ),
        ("subscriptions", _part(summary.subscriptions, summary.compactions, "compaction")),
        ("cursors", ", ".join(f"{count:,} {source}" for source, count in summary.cursors.items()) or "0"),
        ("ledgers", f"{summary.ledgers:,} in the metadata, {summary.indexed_ledgers:,} with entries"),
        (
            "indexed entries",
            f"{summary.entries:,} ({counted(summary.messages, 'message')}, {counted(summary.payload_bytes, 'byte')})",
        ),
        ("disk", _disk_text(summary.disk_bytes)),
        ("damaged places", f"{summary.damaged_places:,}"),
        ("changes", f"{summary.changes:,}"),
        ("index and metadata", f"{summary.meta_bytes:,} bytes"),
    ]
    lines = [f"{name:<20}{value}" for name, value in rows]
    lines += ["", "files of entries"]
    lines += [
        f"  {file.state:<9} {file.kind:<9} {_aligned(file.records, 'record', 20)} {_aligned(file.size_bytes, 'byte', 22)}  {file.path}"
        + (f"  ({counted(file.problems, 'damaged place')})" if file.problems else "")
        for file in summary.files
    ]
    lines += _other_lines(summary.other_ledgers)
    return "\n".join(clean_text(line) for line in lines)


def _part(count: int, others: int, whose: str) -> str:
    return f"{count:,}" + (f" and {others:,} of {whose}" if others else "")


def _disk_text(disk: DiskBytes) -> str:
    parts = (("entry logs", disk.entry_logs), ("journals", disk.journals), ("leftovers", disk.leftovers))
    return (
        f"{counted(disk.total, 'byte')}: {', '.join(f'{what} {size:,}' for what, size in parts if size)}".removesuffix(
            ": "
        )
    )


def _as_of_text(summary: StoreSummary) -> str:
    if summary.as_of_ms is None or summary.as_of_source is None:
        return "not known"
    return f"{render_cell(summary.as_of_ms, 'time')}, {AsOf(summary.as_of_ms, summary.as_of_source).said_by}"


def _other_lines(found: Sequence[OtherLedger]) -> list[str]:
    """Return lines about managed ledgers that are no topics: their sum, then the largest ones."""
    if not found:
        return []
    largest = sorted(found, key=lambda one: -one.bytes)[:_OTHERS]
    left = [f"  … and {len(found) - _OTHERS:,} more"] if len(found) > _OTHERS else []
    return [
        "",
        str(summed(found)),
        *(
            f"  {_aligned(one.ledgers, 'ledger', 20)} {_aligned(one.entries, 'entry', 20)} {_aligned(one.bytes, 'byte', 22)}  {one.name}"
            for one in largest
        ),
        *left,
    ]


_OTHERS = 20


def _aligned(count: int, noun: str, width: int) -> str:
    """Return a count and its noun, padded to ``width`` columns so that digits and nouns of several lines align."""
    return f"{count:>{width - len(noun) - 2},} {plural(count, noun):<{len(noun) + 1}}"


# -- ls ---------------------------------------------------------------------------------------------------------------

_NODE_COLUMNS = (
    Column("VERSION", "version", "id", drop=1),
    Column("MODIFIED", "modified", "time"),
    Column("BYTES", "bytes", "number"),
    Column("STRUCTURE", "structure"),
    Column("CHILDREN", "hasChildren", drop=2),
    Column("NAME", "name"),
)


@command(
    "store ls",
    examples=["", "-l /managed-ledgers/public/default/persistent"],
    output="The names directly below PATH, one per line; with -l also version, time, size and structure of each.",
    errors=[PathNotFound],
)
@click.argument("path", default="/")
@flag("-l", "--long", "long", help="Version, time of change, size and structure.")
def ls(app: App, path: str, long: bool) -> Iterator[Shown]:
    """List the metadata nodes below PATH, as in Pulsar's metadata store."""
    with app.session.read() as txn:
        names = list_children(txn, path)
        parent = path.rstrip("/")
        if long:
            nodes = ((name, find_node(txn, f"{parent}/{name}")) for name in names)
            rows = [
                _node_row(name, node, next(iter_children(txn, f"{parent}/{name}"), None) is not None)
                for name, node in nodes
            ]
            yield Result(rows=rows, columns=_NODE_COLUMNS)
        else:
            yield Lines(names)


def _node_row(name: str, node: Node | None, has_children: bool) -> dict[str, Any]:  # Any: JSON
    row: dict[str, Any] = {"name": name, "hasChildren": has_children}
    if node is None:
        return row | {"version": None, "created": None, "modified": None, "bytes": None, "structure": None}
    known = structure_of(node.path, node.value)
    return row | {
        "version": node.stat.version,
        "created": node.stat.created_ms,
        "modified": node.stat.modified_ms,
        "bytes": len(node.value),
        "structure": known[0] if known else None,
    }


# -- cat --------------------------------------------------------------------------------------------------------------


@command(
    "store cat",
    examples=[
        "/managed-ledgers/public/default/persistent/plain/half",
        "/ledgers/00/0000/L0009",
        "/admin/policies/public/default --hex",
    ],
    elsewhere=["/admin/policies/public/default --raw > policies.json"],
    output="The node's stat and its decoded value; for a cursor also its real position. --raw: the exact bytes.",
    errors=[PathNotFound, MetadataCorrupt],
)
@click.argument("path")
@click.option("--raw", "form", flag_value="raw", help="Write the value's exact bytes and nothing else.")
@click.option("--hex", "form", flag_value="hex", help="Show the value's bytes in hexadecimal.")
@redact_properties_option
def cat(app: App, path: str, form: str | None, redact: bool) -> Shown:
    """Show the value of one metadata node."""
    if redact and form is not None:
        raise click.UsageError("--redact: --raw and --hex are exact bytes")
    api = app.api
    if form == "raw":
        return Bytes(api.node(path).value)
    if form == "hex":
        return Result(api.node(path).value.hex())
    return Result(redacted_json(api.decoded(path)) if redact else api.decoded(path))


# -- owner ------------------------------------------------------------------------------------------------------------

_OWNER_COLUMNS = (
    Column("LEDGER", "ledger_id", "id"),
    Column("STATE", "state", drop=1),
    Column("KIND", lambda row: ", ".join(owner.kind for owner in row.owners) or "unreferenced"),
    Column("TOPIC", lambda row: ", ".join(dict.fromkeys(owner.topic for owner in row.owners))),
    Column("CURSOR", lambda row: ", ".join(owner.cursor for owner in row.owners if owner.cursor)),
    Column(
        "CLAIMS",
        lambda row: "" if row.owners else ", ".join(f"{key}={value}" for key, value in to_json(row.claims).items()),
    ),
)


@command(
    "store owner",
    examples=["9 113", "113 -o json"],
    output="One row per ledger: its state as `ledgers list` has it, what references it, and if nothing does, the owner "
    "that its own metadata names.",
    errors=[LedgerNotFound],
)
@click.argument("ledgers", type=whole(), nargs=-1, required=True)
def owner(app: App, ledgers: tuple[int, ...]) -> Iterator[Shown]:
    """Show which topic, cursor, schema, compaction or delayed index each LEDGER belongs to."""
    with app.session.read():
        yield Result(rows=app.each(ledgers, lambda ledger_id: app.ledger(ledger_id).owners()), columns=_OWNER_COLUMNS)
