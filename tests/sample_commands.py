"""Commands of no product, to test the framework without a store; ``SAMPLE_TABLE`` lists them."""

import errno
from collections.abc import Iterator

import click
from msgspec import Struct, field

from pulsar_admin.api.plan import Plan as ApiPlan
from pulsar_admin.columns import Column
from pulsar_admin.command_table import Row
from pulsar_admin.context import App
from pulsar_admin.options import (
    DURATION,
    NAMESPACE,
    POSITION,
    SIZE,
    TIME,
    TIME_OR_AGO,
    TIME_POINT,
    TopicSelection,
    command,
    gather,
    subscription_option,
    topics_argument,
)
from pulsar_admin.store.changes.cursors import SKIP
from pulsar_admin.store.changes.plan import ChangeReport, CursorPart, Plan
from pulsar_admin.store.errors import NothingMatches, TopicNotFound
from pulsar_admin.store.model.cursors import Extent
from pulsar_admin.store.names import NamespaceName, Position, TopicName


class SampleRow(Struct, frozen=True):
    topic: TopicName
    position: Position
    publish_time_ms: int
    size_bytes: int
    key: bytes
    event_time_ms: int | None = None
    length_bytes: int = field(default=7, name="bytes")
    hidden: int = 1
    absent: int | None = None

    JSON_HIDDEN = ("hidden",)
    JSON_OPTIONAL = ("absent",)


COLUMNS = (
    Column("TOPIC", "topic"),
    Column("POSITION", "position"),
    Column("PUBLISHED", "publish_time_ms", "time"),
    Column("SIZE", "size_bytes", "number"),
)


def sample_row(topic: TopicName, index: int = 0) -> SampleRow:
    return SampleRow(topic, Position(10, index), 1_700_000_000_000 + index, 1000 * index, b"\x00\xff")


@command("names", examples=["pulsar-admin sample names public/default"], output="Names.", errors=[TopicNotFound])
@click.argument("namespace", type=NAMESPACE)
def names(app: App, namespace: NamespaceName) -> None:
    """Print names."""
    app.emit([f"persistent://{namespace}/a", f"persistent://{namespace}/b\x1b[31m"])


@command("document", examples=["pulsar-admin sample document a"], output="A document.", errors=[TopicNotFound])
@topics_argument
def document(app: App, selection: TopicSelection) -> None:
    """Print one object."""
    app.emit(sample_row(selection.topics[0], 3))


@command(
    "rows", aliases=["alias-of-rows"], examples=["pulsar-admin sample rows a b"], output="Rows.", errors=[TopicNotFound]
)
@topics_argument
@click.option("--count", type=int, default=1)
def rows(app: App, selection: TopicSelection, count: int) -> None:
    """Print a table."""

    def produced() -> Iterator[SampleRow]:
        for topic in selection.topics:
            yield from (sample_row(topic, index) for index in range(count))

    app.emit_rows(produced(), COLUMNS)


class ParseOptions(Struct, frozen=True):
    time_ms: int | None
    point_ms: int | None
    ago_ms: int | None
    duration_ms: int | None
    size_bytes: int | None
    position: Position | None


@command("parse", examples=["pulsar-admin sample parse"], output="What was parsed.", errors=[TopicNotFound])
@click.option("--time", "time_ms", type=TIME)
@click.option("-d", "--datetime", "point_ms", type=TIME_POINT)
@click.option("-t", "--ago", "ago_ms", type=TIME_OR_AGO)
@click.option("--duration", "duration_ms", type=DURATION)
@click.option("--size", "size_bytes", type=SIZE)
@click.option("-m", "--messageId", "position", type=POSITION)
@gather(ParseOptions)
def parse(app: App, options: ParseOptions) -> None:
    """Print options."""
    app.emit(
        {"options": options, "dryRun": app.settings.dry_run, "store": app.settings.store, "clock": app.settings.clock}
    )


def change_report(*, dry_run: bool) -> ChangeReport:
    part = CursorPart(
        topic="persistent://public/default/a",
        subscription="workers",
        before={"markDeletePosition": "10:3", "same": 1},
        after={"markDeletePosition": "12:5", "same": 1, "new": "1:2"},
        extent=Extent(1203, 1, 1234567),
        replayed=Extent(),
        skipped=Extent(1203, 1, 1234567),
    )
    return ChangeReport(SKIP.command, SKIP.words, None if dry_run else 17, dry_run, (part,))


@command("change", examples=["pulsar-admin sample change -s w"], output="The change.", errors=[], changes=True)
@subscription_option
@click.option("--lossy", is_flag=True)
def change(app: App, subscription: str, lossy: bool) -> None:
    """Change something."""
    app.confirm(ApiPlan(Plan(SKIP, 1, (), change_report(dry_run=True).parts, "3 ledgers" if lossy else "")))
    app.show(change_report(dry_run=False))


@command("each", examples=["pulsar-admin sample each a"], output="Rows.", errors=[TopicNotFound], uses=["spark"])
@topics_argument
@click.option("--problems", type=int, default=0)
def each(app: App, selection: TopicSelection, problems: int) -> None:
    """Work on several topics."""

    def work(topic: TopicName) -> SampleRow:
        if topic.local_name.startswith("missing"):
            raise TopicNotFound(f"no topic {topic}", hint="pulsar-admin topics list", topic=topic)
        if topic.local_name.startswith("empty"):
            app.nothing_matches()
        return sample_row(topic)

    app.emit_rows(app.each(selection.topics, work), COLUMNS)
    app.problems(problems)


@command("fail", examples=["pulsar-admin sample fail"], output="Nothing.", errors=[NothingMatches])
@click.argument("kind")
def fail(app: App, kind: str) -> None:
    """Fail in a way."""
    errors: dict[str, BaseException] = {
        "bug": KeyError("x"),
        "interrupt": KeyboardInterrupt(),
        "memory": MemoryError(),
        "full": OSError(errno.ENOSPC, "No space left on device", "/data/x"),
        "nothing": NothingMatches("nothing is at or after the time", hint="look earlier", time=5, data=b"\x01"),
    }
    app.warn("about to fail")
    raise errors[kind]


@command("work", examples=["pulsar-admin sample work"], output="Nothing.", errors=[])
def work(app: App) -> None:
    """Work for a while."""
    with app.progress(1200, "bytes", "scan") as progress:
        progress.advance(600)
        progress.advance(600)
    app.note("worked")
    app.emit(None)


SAMPLE_TABLE = {
    name: Row(f"tests.sample_commands:{name}", f"Sample {name}.", ("alias-of-rows",) if name == "rows" else ())
    for name in ("names", "document", "rows", "parse", "change", "each", "fail", "work")
}
