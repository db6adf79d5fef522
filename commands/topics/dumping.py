"""``topics dump`` and its inverse, ``topics load``."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from pulsar_admin.commands.topics.printout import open_with, private_key_option, redact_option
from pulsar_admin.context import App, Result, Shown
from pulsar_admin.jsonify import to_json
from pulsar_admin.options import (
    POSITION,
    TIME,
    TOPIC,
    ColumnsOf,
    TopicSelection,
    choice_option,
    command,
    flag,
    topics_argument,
)
from pulsar_admin.store.db.clocks import check_clock
from pulsar_admin.store.errors import AlreadyExists, Corrupt, DiskFull, InvalidValue, NotFound, Refused, TopicNotFound
from pulsar_admin.store.names import PROFILES, TopicName
from pulsar_admin.store.wording import counted


@command(
    "topics dump",
    examples=[
        "public/default/plain",
        "--pattern 'acme/orders/*' --directory dumped",
        "public/default/avro --columns pulsar-spark",
        "public/default/batched --level entries --from 8:0 --to 8:3 | gzip > entries.jsonl.gz",
    ],
    output="JSON lines, one per message or entry; with --directory a report, and files in topic=…/day=…/part-N. Entries that "
    "cannot be read are skipped, named on stderr and make the exit code 1.",
    errors=[TopicNotFound, InvalidValue, AlreadyExists, DiskFull],
    uses=["clock", "dry_run", "spark"],
)
@topics_argument
@choice_option(
    "--level",
    words=["messages", "entries"],
    help="messages: as a consumer sees them. entries: exact bytes, for `topics load`.",
)
@flag("--payload", help="Also payloads of messages; entries always have theirs.")
@flag("--value", help="Also values of messages, decoded by the topic's schema, as JSON.")
@click.option("--from", "start", type=POSITION, help="From this position on.")
@click.option("--to", "end", type=POSITION, help="Through this position.")
@click.option("--start-time", "since", type=TIME, help="Messages or entries at or after this time.")
@click.option("--end-time", "until", type=TIME, help="Messages or entries before this time.")
@click.option("--directory", type=click.Path(path_type=Path), help="Write files into this new directory.")
@choice_option("--format", "form", words=["parquet", "jsonl"], help="Format of the files in --directory.")
@click.option(
    "--interceptors",
    type=click.Choice(["none"]),
    help="With entries: none removes their broker metadata and leaves what a client receives.",
)
@click.option(
    "--columns",
    type=ColumnsOf(PROFILES),
    help="Of messages, under the names and types that the Spark connector gives them. Decoded values are among them; --payload has "
    "them as bytes.",
)
@redact_option
@private_key_option
def dump(
    app: App,
    selection: TopicSelection,
    directory: Path | None,
    form: Any,  # Any: click checked that it is one of the two
    interceptors: str | None,
    private_keys: tuple[Path, ...],
    **options: Any,  # Any: of DumpWanted
) -> Iterator[Shown]:
    """Write messages or entries of topics as JSON lines or Parquet.

    Messages have the columns of `topics read`. Files are partitioned by topic and by day, on the clock given by --clock
    (auto: broker time if the entry has one, otherwise publish time), which also applies to the time options.
    """
    if interceptors is not None and options["level"] != "entries":
        raise click.UsageError("--interceptors: messages have no broker metadata; it is for --level entries")
    if private_keys and options["level"] == "entries":
        raise click.UsageError("--private-key: entries are exact bytes; it is for --level messages")
    clock, topics = check_clock(app.settings.clock), map(str, selection.topics)
    wanted = {**options, "pattern": selection.pattern, "clock": clock, "stripped": interceptors is not None}
    with app.session.reader() as reader:
        store = app.api
        if app.settings.dry_run:
            place = None if directory is None else str(directory)
            size = to_json(store.dump_size(*topics, **wanted))
            yield Result({"directory": place, "level": options["level"], **size, "dryRun": True})
            return
        open_with(reader, private_keys)
        if directory is None:
            yield _lines(store.dump_lines(*topics, **wanted))
            return
        yield Result(store.dump(directory, *topics, form=form, **wanted), plain=_render)


def _lines(pieces: Iterator[str]) -> Result:
    from pulsar_admin.store.dump.tables import whole_lines

    rows = (json.loads(line) for line in whole_lines(pieces))
    return Result(rows=rows, screen=lambda _: pieces, texts=(None, "jsonl", "plain"))


def _render(done: Any) -> str:  # Any: DumpReport, without its import
    rows = counted(done.rows, "entry" if done.level == "entries" else "message")
    topics, files = counted(done.topics, "topic"), counted(done.files, "file")
    missing = counted(done.missing_entries, "entry is missing", "entries are missing")
    text = f"{done.directory}: {rows} of {topics} in {files}, {counted(done.bytes, 'byte')}"
    return text + (f"\n{missing}" if done.missing_entries else "")


# -- copy -------------------------------------------------------------------------------------------------------------


@command(
    "topics copy",
    changes=True,
    elsewhere=[
        "public/default/orders --from yesterday-store --dry-run",
        "public/default/orders --from yesterday-store --to public/default/orders-yesterday",
    ],
    output="The change: each topic with its ledgers and entries, each subscription with its position, the parts that "
    "are not copied, and the undo command.",
    errors=[TopicNotFound, NotFound, AlreadyExists, InvalidValue, Corrupt, Refused, DiskFull],
)
@click.argument("topics", type=TOPIC, nargs=-1, required=True)
@click.option("--from", "source", type=click.Path(path_type=Path), required=True, help="The store to copy from.")
@click.option("--to", metavar="TOPIC", type=TOPIC, help="New name, for one topic.")
def copy(app: App, topics: tuple[TopicName, ...], source: Path, to: TopicName | None) -> None:
    """Copy whole topics from another store: messages, partitions, subscriptions with their acknowledgements, schema,
    properties.

    Entries keep their exact bytes and ids, ledgers get new ids, and all positions are adjusted. The tenant and the
    namespace with its policies are created if they do not exist. Whatever is not copied is listed, also with --dry-run:
    compacted views, policies of topics, open transactions. A topic that already exists, or whose entries are not all in
    the source, is refused.
    """
    app.change(app.api.copy(*map(str, topics), source=source, to=None if to is None else str(to)))


# -- load -------------------------------------------------------------------------------------------------------------


@command(
    "topics load",
    changes=True,
    elsewhere=[
        "entries.jsonl --topic public/default/copy --dry-run",
        "dumped --interceptors timestamp,index",
        "pulsar-admin --store a topics dump x --level entries | pulsar-admin --store b topics load -",
    ],
    output="The change: per topic its state before and after, and the undo command.",
    errors=[NotFound, InvalidValue, Corrupt, Refused, DiskFull],
    uses=["interceptors", "broker_conf"],
)
@click.argument("dump", type=click.Path(path_type=Path))
@click.option("--topic", type=TOPIC, help="Load into this topic (a dump of one).")
@flag("--keep-ledger-ids", help="Keep ledger and entry ids, which must be unknown here.")
def load(app: App, dump: Path, topic: TopicName | None, keep_ledger_ids: bool) -> None:
    """Append the entries of a dump to their topics.

    DUMP is the output of `topics dump --level entries`: a directory, a file, or - for JSON lines on standard input.
    Missing topics are created. Entries keep their exact bytes, unless --interceptors or --broker-conf adds broker
    metadata (PIP-70) as a broker with these interceptors would; none removes it and leaves what a client receives.
    Everything is one change.
    """
    if app.settings.plan is not None and str(dump) == "-":
        raise InvalidValue("--plan: what stdin held is gone when the plan is applied", hint="load from a file")
    chain = app.settings.interceptors
    plan = app.api.load(
        sys.stdin.buffer if str(dump) == "-" else dump,
        topic=None if topic is None else str(topic),
        interceptors=None if chain is None else ",".join(chain) or "none",
        keep_ledger_ids=keep_ledger_ids,
    )
    app.change(plan)
