"""``store export``: into a data directory, a live ZooKeeper ensemble or a snapshot of one; ``store clone`` and ``store bundle``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pulsar_admin.columns import size_text
from pulsar_admin.context import App, Result
from pulsar_admin.numbers import whole
from pulsar_admin.options import TOPIC, command, flag
from pulsar_admin.store.errors import (
    AlreadyExists,
    DiskFull,
    InvalidValue,
    LimitExceeded,
    MetadataCorrupt,
    NotWritable,
    Refused,
    SourceBusy,
    SourceChanged,
    SourceNotFound,
    StalePlan,
    StoreBusy,
    StoreNotFound,
    TopicNotFound,
    Unsupported,
)
from pulsar_admin.store.model.publish_times import FORMS, Form
from pulsar_admin.store.names import TopicName, shell_word, topic_of_path
from pulsar_admin.store.wording import counted
from pulsar_admin.typable import typable
from pulsar_admin.visible import clean_text

if TYPE_CHECKING:
    from collections import Counter

    from pulsar_admin.store.transfer.ensemble_export import EnsembleExportReport
    from pulsar_admin.store.transfer.exports import ExportReport, NodeExported
    from pulsar_admin.store.transfer.snapshot_export import SnapshotExportReport

_SHOWN = 10
client_option = click.option(
    "--zookeeper-client",
    type=click.Path(path_type=Path),
    help="A TOML file that says how to log in: user, password-file, ca, certificate, key.",
)


@command(
    "store export standalone",
    changes=True,
    no_plan="an export is not kept as a plan",
    examples=["exported --dry-run"],
    elsewhere=["exported --annotate", "/pulsar/data --in-place --yes"],
    output="Source, target and every metadata node written.",
    errors=[AlreadyExists, SourceBusy, StalePlan, Refused],
)
@click.argument("directory", type=click.Path(path_type=Path))
@flag("--in-place", help="Write the changes into DIRECTORY, which exists.")
@click.option(
    "--annotate",
    type=click.Choice(FORMS),
    is_flag=False,
    flag_value=FORMS[0],
    help="Write the first and last publish time of ledgers as ledger properties, or as the proposal's fields.",
)
def standalone(app: App, directory: Path, in_place: bool, annotate: Form | None) -> Result:
    """Write the store's changes into a Pulsar data directory.

    DIRECTORY becomes a copy of the imported one with the changes applied. With --in-place they are written into
    DIRECTORY itself, unless a changed node is no longer what was imported. Start the broker where the data was created:
    a bookie's cookie contains its path. --annotate adds beginPublishTimestamp and endPublishTimestamp (PIP-345) to
    closed ledgers of the copy; with --in-place it first changes the store, as `store annotate` does.
    """
    app.screen_of = _exported_copy
    return _exported_copy(app.api.export(directory, in_place=in_place, annotate=annotate))


def _exported_copy(done: ExportReport) -> Result:
    if done.in_place:
        steps = ["start Pulsar on it", "compare with the live pulsar-admin: pulsar-admin topics stats-internal TOPIC"]
    else:
        steps = [
            f"stop Pulsar, and keep what it has: mv {shell_word(done.source)} {shell_word(f'{done.source}.before')}",
            f"put this in its place, because the bookie's cookie names that path: mv {shell_word(done.target)} "
            f"{shell_word(done.source)}",
            "start Pulsar, and compare with its own pulsar-admin: pulsar-admin topics stats-internal TOPIC",
        ]
    written = [f"{counted(len(done.ledgers), 'ledger')} of {size_text(sum(ledger.bytes for ledger in done.ledgers))}"]
    return Result(done, terminal=lambda _: [_exported(done, done.nodes, written * bool(done.ledgers), steps)])


def _exported(
    done: ExportReport | EnsembleExportReport | SnapshotExportReport,
    nodes: Sequence[NodeExported],
    more: Sequence[str],
    steps: Sequence[str],
) -> str:
    """Return the text about an export: nodes written, totals and by topic, and the next steps.

    ``more``: what it wrote besides changed nodes.
    """
    from collections import Counter

    from pulsar_admin.store.model.nodes import cursor_of_path

    actions: dict[str, Counter[str]] = {}
    for node in nodes:
        owner = topic_of_path(node.path) or (cursor_of_path(node.path) or (node.path,))[0]
        actions.setdefault(clean_text(str(owner)), Counter())[node.action] += 1
    what = ", ".join((f"{counted(len(nodes), 'metadata node')} ({_counted(sum(actions.values(), Counter()))})", *more))
    if not nodes:
        what = ", ".join(more) or "a plain copy"
    lines = [f"{'would write' if done.dry_run else 'wrote'} to {clean_text(done.target)}: {what}"]
    lines += [f"  {owner}: {_counted(counts)}" for owner, counts in list(actions.items())[:_SHOWN]]
    lines += [f"  and {len(actions) - _SHOWN:,} more; -o json has all"] * (len(actions) > _SHOWN)
    return "\n".join((*lines, *next_lines(steps, dry_run=done.dry_run))) + "\n"


def next_lines(steps: Sequence[str], *, dry_run: bool) -> list[str]:
    """Return the lines that say what to do after an export."""
    steps = ["run it again without --dry-run"] if dry_run else steps
    return ["", "Next:", *(f"  {number}. {clean_text(typable(step))}" for number, step in enumerate(steps, 1))]


def _counted(actions: Counter[str]) -> str:
    """Return the number of nodes of each action as text: "2 created, 1 updated"."""
    return ", ".join(f"{actions[action]:,} {action}d" for action in ("create", "update", "delete") if actions[action])


@command(
    "store export zookeeper",
    changes=True,
    no_plan="an export is not kept as a plan",
    elsewhere=["zk1:2181,zk2:2181/pulsar --dry-run", "zk1:2281 --zookeeper-client client.toml --yes"],
    output="The ensemble, every metadata node written, and the zxid of the transaction.",
    errors=[StalePlan, Refused, SourceNotFound, SourceBusy, LimitExceeded],
)
@click.argument("ensemble", metavar="HOST:PORT[,HOST:PORT][/CHROOT]")
@client_option
@click.option(
    "--jute-maxbuffer",
    type=whole(1),
    default=1_048_575,
    show_default=True,
    help="Largest request in bytes that the servers accept.",
)
def zookeeper(app: App, ensemble: str, zookeeper_client: Path | None, jute_maxbuffer: int) -> Result:
    """Write the store's changes into a live ZooKeeper ensemble.

    They are one transaction that checks the version of every node: if one is no longer what was imported, nothing is
    written. No broker may serve the topics: stop the brokers, or unload the namespaces with their clients stopped.
    """
    app.screen_of = _exported_live
    return _exported_live(app.api.export_zookeeper(ensemble, client=zookeeper_client, jute_maxbuffer=jute_maxbuffer))


def _exported_live(done: EnsembleExportReport) -> Result:
    steps = [
        "start the brokers, or let them load the namespaces again",
        "compare with the live pulsar-admin: pulsar-admin topics stats-internal TOPIC",
        "bring the store up to date: pulsar-admin store refresh",
    ]
    size = [f"one transaction of {size_text(done.bytes)}"] * bool(done.bytes)
    known = [f"{counted(len(done.written), 'node')} written before"] * bool(done.written)
    return Result(done, terminal=lambda _: [_exported(done, done.nodes, [*size, *known] or ["nothing"], steps)])


@command(
    "store export zookeeper-snapshot",
    changes=True,
    no_plan="an export is not kept as a plan",
    examples=["zookeeper --dry-run"],
    elsewhere=["/restored/zookeeper"],
    output="The snapshot's file, its zxid, its number of nodes, and the nodes that were changed here.",
    errors=[AlreadyExists, Refused, MetadataCorrupt, Unsupported],
)
@click.argument("directory", type=click.Path(path_type=Path))
@flag("--force", help="Write the snapshot even if some nodes could not be imported.")
def zookeeper_snapshot(app: App, directory: Path, force: bool) -> Result:
    """Write the store's metadata as a snapshot that a ZooKeeper server can start from.

    DIRECTORY, which must not exist, becomes the server's dataDir: its `version-2` contains one snapshot of the current
    tree, including the changes made here, even if it was imported from RocksDB. A store has no ACLs: every node is open
    to all. New ledger ids continue above all known ones.
    """
    app.screen_of = _exported_snapshot
    return _exported_snapshot(app.api.export_snapshot(directory, force=force))


def _exported_snapshot(done: SnapshotExportReport) -> Result:
    steps = [
        f"stop the ensemble, and put aside dataDir and dataLogDir of each server; copy {done.target} there as its dataDir, with the"
        " server's myid",
        f"start the servers, then bookies and brokers; clients go on with ledger ids from {done.next_ledger_id:,}",
        "compare with the live pulsar-admin: pulsar-admin topics stats-internal TOPIC",
    ]
    whole = [f"a snapshot of {counted(done.nodes, 'node')}, zxid {done.zxid}"]
    return Result(done, terminal=lambda _: [_exported(done, done.changes, whole, steps)])


@command(
    "store clone",
    changes=True,
    no_plan="a clone is not kept as a plan",
    examples=["copy --boot-at /pulsar/data --dry-run"],
    elsewhere=["copy --topic acme/orders/parts --cluster prod=lab --boot-at /lab/pulsar"],
    output="Where it starts and as what; topics, ledgers, entries and bytes; entries that are missing, by ledger; how to start it.",
    errors=[AlreadyExists, InvalidValue, Refused, TopicNotFound, StalePlan, SourceChanged],
)
@click.argument("directory", type=click.Path(path_type=Path))
@click.option(
    "--boot-at", type=click.Path(path_type=Path), metavar="PATH", help="Where DIRECTORY will be when it starts."
)
@click.option("--topic", "topics", type=TOPIC, multiple=True, help="Clone only this topic; repeatable.")
@click.option("--cluster", default="", metavar="NAME[=NEW]", help="The name of this cluster, also in the clone.")
@click.option("--bookie-id", default="127.0.0.1:3181", show_default=True, metavar="HOST:PORT", help="The bookie's id.")
def clone(app: App, directory: Path, topics: tuple[TopicName, ...], **where: Any) -> Result:  # Any: the options above
    """Write the store's cluster as one standalone directory that can be started.

    All entries are on one bookie, which is the ensemble of every ledger; cookies, instance id and bookie are new, and
    other clusters get addresses that do not exist. A bookie's cookie contains its path: start the clone at --boot-at
    (by default DIRECTORY). With --topic, only that topic is cloned, with its schema, its namespace's policies and the
    system topics. The original is not changed.
    """
    return Result(app.api.clone(directory, topics=[*map(str, topics)], **where))


_PATH = click.Path(path_type=Path)


@command(
    "store bundle",
    examples=["incident.bundle"],
    elsewhere=["incident.bundle --names names.json"],
    output="The contents of the bundle, the file of names, and the findings of store check by code.",
    errors=[StoreNotFound, AlreadyExists, InvalidValue, StoreBusy, DiskFull, NotWritable],
    uses=["now"],
    no_preview=True,
)
@click.argument("file", type=_PATH)
@click.option("--names", "names_file", type=_PATH, metavar="FILE", help="The file of names [FILE.names.json].")
def bundle(app: App, file: Path, names_file: Path | None) -> Result:
    """Write metadata, index and findings into FILE, to share with others.

    Names of tenants, namespaces, topics, subscriptions, producers, roles, clusters, bookies, hosts and directories, and
    property values, are replaced by pseudonyms; payloads and keys of messages are never included. The file of names
    maps them back: keep it. With the file of an earlier bundle, names get the same pseudonyms again.
    """
    return Result(app.api.write_bundle(file, names=names_file))


@command(
    "store import bundle",
    elsewhere=["pulsar-admin --store incident store import bundle incident.bundle"],
    output="The contents of the bundle, and whether store check has the same findings as where the bundle was made.",
    errors=[SourceNotFound, AlreadyExists, MetadataCorrupt, Unsupported, DiskFull, NotWritable],
    uses=["now"],
    no_preview=True,
)
@click.argument("file", type=_PATH)
def import_bundle(app: App, file: Path) -> Result:
    """Create a store from the incident bundle FILE.

    It answers every question that needs only metadata and the index. Entries cannot be read: their files are empty,
    with the original sizes.
    """
    from pulsar_admin.api.transfers import store_of_bundle

    done = store_of_bundle(app.session, file, app.store_path)
    app.problems(not done.same_findings)
    return Result(done)
