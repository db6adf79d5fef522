"""``store preflight`` and ``store recover``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pulsar_admin.columns import Column, alarm, size_text
from pulsar_admin.commands.ledger_repairs import accept_option
from pulsar_admin.commands.store.importing import bookies_of, conf_options, metadata_options
from pulsar_admin.context import App, Result, Shown, Table
from pulsar_admin.options import ParsedType, command, flag
from pulsar_admin.store import errors
from pulsar_admin.store.wording import counted
from pulsar_admin.typable import typable
from pulsar_admin.visible import clean_document

if TYPE_CHECKING:
    from pulsar_admin.store.recovery.broker_forecast import BrokerForecast
    from pulsar_admin.store.recovery.preflight import ClusterParts, Preflight


_PATH = click.Path(path_type=Path)
_TOPICS_SHOWN = 10
_BOOKIES = (
    Column("BOOKIE", lambda row: row.bookie),
    Column("LEDGERS", lambda row: row.holds.ledgers, "number", sums=True),
    Column("DELETED", lambda row: row.loses.ledgers, "number", tone=alarm, sums=True),
    Column("ENTRIES", lambda row: row.loses.entries, "number", drop=1, sums=True),
    Column("BYTES", lambda row: row.loses.bytes, "bytes", tone=alarm, sums=True),
    Column("PERCENT", lambda row: f"{row.percent:.1f}"),
    Column("LOGS DELETED", lambda row: row.at_once.logs, "number", drop=2),
)
_LEDGERS = (
    Column("BOOKIE", lambda row: row.bookie),
    Column("LEDGER", lambda row: row.ledger_id),
    Column("WHY", lambda row: row.reason),
    Column("TOPIC", lambda row: row.topic),
)


def _percent(text: str) -> object:
    from pulsar_admin.store.recovery.preflight import parse_percent

    return parse_percent(text)


@command(
    "store preflight",
    examples=["", "--no-metadata", "--max-loss 5 -o json"],
    elsewhere=[
        "--zookeeper zk1:2181 --bookie-conf conf/bookkeeper.conf --max-loss 5",
        "--zookeeper /backup/zookeeper --bookie /disks/bk1/ledgers0,/disks/bk1/journal0",
        "--no-metadata --bookie-conf conf/bookkeeper.conf",
    ],
    output="What is deleted: each bookie's ledgers, entries, bytes, why, which logs; topics; ids that would be given twice. Exit code "
    "3 when a bookie loses more than --max-loss.",
    errors=[
        errors.InvalidValue,
        errors.Refused,
        errors.SourceNotFound,
        errors.StoreNotFound,
        errors.Unsupported,
        errors.MetadataCorrupt,
        errors.MissingComponent,
    ],
)
@metadata_options
@flag("--no-metadata", help="An empty metadata store, instead of --zookeeper or the store's.")
@click.option("--bookie", "bookies", multiple=True, metavar="[ID=]DIR,DIR", help="A bookie's directories; repeatable.")
@conf_options
@click.option(
    "--max-loss",
    "limit",
    type=ParsedType("percent", _percent, "PERCENT"),
    help="Exit with 3 if a bookie loses a larger share of its bytes.",
)
@flag("--list", "listing", help="List the ledgers that each bookie would delete, instead of sums.")
@flag("--brokers", help="Also what brokers would delete: consumed, expired, inactive.")
@click.option(
    "--broker-conf", "conf", type=_PATH, metavar="FILE", help="The brokers' broker.conf, instead of Pulsar's defaults."
)
def preflight(
    app: App, limit: float | None, listing: bool, **options: Any
) -> Iterator[Shown]:  # Any: the options above
    """Show what bookies would delete if they started with this metadata.

    After `gcWaitTime` (15 minutes), a bookie deletes every ledger that the metadata does not list, whatever the reason.
    This simulates that first garbage collection from index files and metadata; nothing is changed. By default the
    metadata is the store's, including its changes, and the bookies are those it was imported from, with their current
    disks. With --brokers, or for metadata without bookies: what brokers delete when they load every topic before any
    client connects.
    """
    from pulsar_admin.api.ledgers import forecast_of
    from pulsar_admin.store.recovery.preflight import check_loss, iter_lost

    brokers, conf = options.pop("brokers"), options.pop("conf")
    if listing and limit is not None:
        raise click.UsageError("--list has no sums: leave out --max-loss")
    if not listing and options["no_metadata"] and (brokers or conf):
        raise click.UsageError("an empty metadata store has no topics: leave out --brokers")
    parts = _parts(app, **options)
    if listing:
        yield Result(rows=iter_lost(parts.known, parts.bookies), columns=_LEDGERS)
        return
    forecast = forecast_of(app.session, parts, brokers, conf)
    yield Result(forecast, screen=lambda _: _preflight_screen(clean_document(forecast)))
    check_loss(forecast, limit)


def _parts(
    app: App,
    zookeeper: str | None,
    client: Path | None,
    metadata: Path | None,
    no_metadata: bool,
    bookies: tuple[str, ...],
    chroot: str | None,
    ledgers_root: str | None,
    **confs: Any,  # Any: of ``conf_options``
) -> ClusterParts:
    from pulsar_admin.api.transfers import given_parts
    from pulsar_admin.store.recovery.preflight import read_parts, read_store_parts

    given = bookies_of(bookies, **confs)
    places = [place for place in (zookeeper, metadata) if place]
    if len(places) + no_metadata > 1:
        raise click.UsageError("name one of --zookeeper, --metadata and --no-metadata")
    if given and not (places or no_metadata):
        raise click.UsageError("name the metadata of these bookies with --zookeeper, --metadata or --no-metadata")
    if not places and not given:
        return app.session.ask(read_store_parts, no_metadata)
    return read_parts(*given_parts(places[0] if places else None, given, client, chroot, ledgers_root))


def _preflight_screen(found: Preflight) -> Iterator[str | Table]:
    """Yield the forecast as text: the metadata used, a table of bookies, and lines about all other parts."""
    yield f"metadata: {found.metadata}: {counted(found.metadata_ledgers, 'ledger')}\n\n"
    if found.bookies:
        yield Table(found.bookies, _BOOKIES)
        yield "\n"
    lines = [*_start_lines(found), *_reason_lines(found), *_log_lines(found), *_topic_lines(found), *_id_lines(found)]
    lines += [] if found.brokers is None else _broker_lines(found.brokers)
    yield "\n".join(lines).rstrip("\n") + "\n"


def _start_lines(found: Preflight) -> list[str]:
    """Return lines that say which servers will start, with the faults of each and the command that mends a fault."""
    lines = []
    servers = () if found.zookeeper is None else (("ZooKeeper", found.zookeeper),)
    standalone = (("the standalone", found.rocksdb),) if found.rocksdb else ()
    for name, faults in (*((one.bookie, one.faults) for one in found.bookies), *servers, *standalone):
        ends = [fault for fault in faults if not fault.starts]
        lines.append(f"{name} {'does not start' if ends else 'starts'}{'' if faults else ': no problem found'}")
        for fault in (*ends, *(fault for fault in faults if fault.starts)):
            lines.append(f"  {fault.text}")
            if fault.cure != "pulsar-admin store preflight":  # this screen
                lines.append(typable(f"    next: {fault.cure}"))
    return [*lines, ""] if lines else []


def _reason_lines(found: Preflight) -> list[str]:
    from pulsar_admin.store.recovery.preflight import REASONS

    lines = []
    for reason, text in REASONS.items():
        whose = [one for one in found.bookies if reason in one.reasons]
        shares = [one.reasons[reason] for one in whose]
        if shares:
            copies, size = sum(share.ledgers for share in shares), sum(share.bytes for share in shares)
            lines.append(f"{counted(copies, 'copy of a ledger', 'copies of ledgers')}, {size_text(size)}: {text}")
    if not lines and found.bookies:
        lines = ["nothing is deleted"]
    return lines


def _log_lines(found: Preflight) -> list[str]:
    lines = []
    for name, text in (
        ("at_once", "entry logs that are deleted at once"),
        ("minor", "entry logs that wait for minor compaction (every hour)"),
        ("major", "entry logs that wait for major compaction (every day)"),
        ("kept", "entry logs that are at least half live, so compaction skips them"),
    ):
        rows = [getattr(one, name) for one in found.bookies]
        count, size = sum(row.logs for row in rows), sum(row.bytes for row in rows)
        if count:
            lines.append(f"{text}: {count:,}, {size_text(size)}")
    return lines


def _topic_lines(found: Preflight) -> list[str]:
    if not found.topics:
        return []
    shown = found.topics[:_TOPICS_SHOWN]
    lines = [
        "",
        f"deleted ledgers, by {counted(found.topic_count, 'topic or cursor', 'topics or cursors')} in the metadata:",
    ]
    lines += [f"  {row.topic}: {counted(row.ledgers, 'ledger')}, {size_text(row.bytes)}" for row in shown]
    return lines + (["  …"] if found.topic_count > len(shown) else [])


def _id_lines(found: Preflight) -> list[str]:
    ids = found.ids
    largest = f"the largest is {max(ids.largest_on_disk, ids.largest_in_metadata)}"
    if ids.next_id is None:
        return [f"the next ledger id is not known; {largest}"]
    text = f"the next ledger id is {ids.next_id}; {largest}"
    return [text if not ids.twice else f"{text}: {counted(ids.twice, 'id')} in use would be given twice"]


def _broker_lines(found: BrokerForecast) -> list[str]:
    lines = [
        "",
        f"brokers that load all {counted(found.topics, 'topic')} ({size_text(found.bytes)}) before any client connects:",
    ]
    for text, part in (
        ("delete for inactivity", found.inactive),
        ("trim what everybody has consumed", found.trimmed),
        (f"expire by TTL {counted(found.expires, 'entry', 'entries')} of subscriptions, and trim", found.expired),
    ):
        sums = f"{counted(part.ledgers, 'ledger')} of {counted(part.topics, 'topic')}, {size_text(part.bytes)}"
        lines.append(f"  {text}: {sums if part.topics else 'nothing'}")
    if found.unread_cursors:
        lines.append(
            f"  {counted(found.unread_cursors, 'cursor')} assumed to be at the position in their metadata: their ledgers were not read"
        )
    for row in found.rows[:_TOPICS_SHOWN]:
        what = (
            f"deleted after {row.after_seconds} s"
            if row.inactive
            else f"{counted(row.trimmed_ledgers + row.expired_ledgers, 'ledger')}"
        )
        lines.append(f"  {row.topic}: {what}, {size_text(row.lost_bytes)}")
    return lines + (["  …"] if len(found.rows) > _TOPICS_SHOWN else [])


_LEVELS = ("A", "B", "C")


@command(
    "store recover",
    changes=True,
    examples=["--dry-run"],
    elsewhere=[
        "--level A --cluster prod --earlier backup-store",
        "--level B --plan recover.json",
        "pulsar-admin --store bookies-alone store recover --level C --names names.csv --dry-run",
        "pulsar-admin --store bookies-alone store recover --rename names.csv",
    ],
    output="The change: each topic with its ledgers, each subscription with its position, schemas, namespaces, and their witnesses.",
    errors=[errors.StoreNotFound, errors.Refused, errors.Unsupported, errors.MetadataCorrupt, errors.StalePlan],
    uses=["spark"],
)
@click.option("--level", type=click.Choice(_LEVELS), help="How much is left [detected from the store].")
@click.option("--cluster", metavar="NAME", help="The cluster's name, if it is lost too.")
@click.option(
    "--earlier",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="STORE",
    help="A store with an earlier state of this metadata, for facts that no ledger records.",
)
@click.option(
    "--names",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Names for the topics that level C finds: FILE is written if it does not exist, otherwise read.",
)
@click.option(
    "--rename",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Give what level C made before other names: FILE is as for --names.",
)
@flag("--probable", help="At level C, also join ledgers with a single witness; otherwise they are listed as `apart`.")
@accept_option
def recover(app: App, earlier: Path | None, **options: Any) -> None:  # Any: of Store.recover
    """Rebuild lost metadata from what bookies and ledgers still record.

    A: ledgers are listed (/ledgers), but their topics, schemas or policies are gone. B: the metadata is older than the
    bookies, for example a restored backup. C: only bookies are left. Only facts on which two sources agree are
    combined; A changes nothing that exists. Needs a store of all bookies.
    """
    from pulsar_admin import open_store

    with nullcontext() if earlier is None else open_store(earlier) as before:
        plan = app.api.recover(earlier=before, **options)
    app.change(plan)
