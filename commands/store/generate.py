"""``store generate``."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pulsar_admin.context import App
from pulsar_admin.numbers import whole
from pulsar_admin.options import SIZE, TOPIC, Function, ParsedType, command, pass_app
from store.errors import AlreadyExists, DiskFull, InvalidValue, NotWritable
from store.wording import counted

if TYPE_CHECKING:
    from store.generate.cluster import GenerateResult


def _type(function: str, metavar: str) -> ParsedType:
    def parse(text: str) -> object:
        return getattr(import_module("store.generate.spec"), function)(text)

    return ParsedType(function.removeprefix("parse_"), parse, metavar)


_COUNT, _SHARE = _type("parse_count", "N"), _type("parse_share", "PERCENT")


def _option(name: str, kind: Any, default: str, text: str) -> Callable[[Function], Function]:  # Any: click's types
    return click.option(f"--{name}", type=kind, default=default, show_default=True, help=text)


@command(
    "generate",
    changes=True,
    no_plan="a cluster to generate is not kept as a plan",
    examples=[
        "pulsar-admin store generate made --entries 2000 --message-size 100~2000 --keys 50",
        "pulsar-admin store generate skewed --entries 1000 --producers 3 --clocks steady,slow,jumping --interceptors timestamp,index",
        "pulsar-admin store generate batched --entries 500 --batch 1..20 --codecs lz4,zstd --subscriptions 2 --holes 5",
    ],
    elsewhere=["pulsar-admin store generate big --topics 100 --entries 10M --log-size-limit 1G --seed 7"],
    output="What was written: topics, ledgers, entries, messages, bytes, and entries a second.",
    errors=[AlreadyExists, InvalidValue, DiskFull, NotWritable],
    uses=["interceptors", "broker_conf"],
)
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--topic", type=TOPIC, multiple=True, help="A topic; may be repeated [public/default/generated].")
@_option("topics", _COUNT, "0", "Also topics public/default/generated-0, -1 … of the same kind.")
@click.option("--from-file", type=click.Path(path_type=Path), help="Topics as JSON objects, one a line (see docs).")
@_option("partitions", _COUNT, "0", "Make each topic a partitioned one; each partition gets --entries.")
@_option("entries", _COUNT, "10000", "Entries of each topic: 1000000, 1_000_000 or 1M.")
@_option("rate", _type("parse_rate", "N"), "1000", "Entries a second of each topic, by the broker's clock.")
@_option("start", _type("parse_start", "TIME"), "@1700000000000", "When the first entry was appended.")
@_option("message-size", _type("parse_sizes", "SIZE"), "1024", "Payload bytes of a message: N, LOW..HIGH or LOW~HIGH.")
@_option("batch", _type("parse_batch", "N"), "0", "Messages of a batch, N or LOW..HIGH; 0: no batches.")
@_option(
    "codecs", _type("parse_codecs", "CODECS"), "none", "Codecs that entries are drawn from: none,lz4,zlib,zstd,snappy."
)
@_option("producers", _COUNT, "1", "Producers of each topic.")
@_option(
    "clocks",
    _type("parse_clocks", "CLOCKS"),
    "steady",
    "Their clocks in turn: steady,fast,slow,future,jumping,+2h,-3d.",
)
@_option("keys", _COUNT, "0", "Different message keys; 0: no keys.")
@_option("tombstones", _SHARE, "0", "Share of messages with a null value.")
@_option("delayed", _SHARE, "0", "Share of entries that are delayed messages.")
@_option("delay", _type("parse_delays", "DURATION"), "1m..1d", "How long these are delayed.")
@click.option("--event-time", is_flag=True, help="Messages have an event time, up to a minute before they were sent.")
@_option("subscriptions", _COUNT, "0", "Subscriptions of each topic, sub-0, sub-1 …")
@_option("acked", _SHARE, "50", "How far the last of them has acknowledged everything.")
@_option("holes", _COUNT, "0", "Runs of entries that each acknowledged one by one behind that.")
@_option("entries-per-ledger", _COUNT, "50000", "Entries after which a topic begins its next ledger.")
@click.option("--log-size-limit", type=SIZE, default="1G", show_default=True, help="Bytes of an entry log.")
@_option("seed", whole(), "1", "Another seed gives other data of the same kind.")
@click.option(
    "--bookie-id", default="127.0.0.1:3181", show_default=True, metavar="HOST:PORT", help="The bookie's name."
)
@click.option("--data-path", default="", metavar="DIR", help="Where a broker will find DIRECTORY [where it is].")
@pass_app
def generate(app: App, directory: Path, **options: Any) -> None:  # Any: click's values, by name
    """Write a synthetic Pulsar data directory.

    DIRECTORY, which must not exist, becomes what a standalone Pulsar leaves after a clean stop: `store import
    standalone` reads it, and a broker starts on it. The same options produce the same entry logs, byte for byte.
    """
    from pulsar_admin.api.generating import generated

    result = generated(app.session, directory, {**options, "interceptors": app.settings.interceptors or ()})
    app.emit(result, plain=render_generate)


def render_generate(result: GenerateResult) -> str:
    """Return the result as lines of text."""
    rows = [
        ("directory", result.directory),
        ("seed", str(result.seed)),
        ("topics", f"{result.topics:,} in {counted(result.ledgers, 'ledger')}, {counted(result.cursors, 'cursor')}"),
        ("entries", f"{result.entries:,}"),
        ("messages", f"{result.messages:,}"),
        ("entry logs", f"{result.logs:,} ({result.bytes:,} bytes)"),
        ("metadata nodes", f"{result.nodes:,}"),
        ("seconds", f"{result.seconds:.1f} ({result.entries_per_second:,} entries/s)"),
    ]
    return "\n".join(f"{name:<20}{value}" for name, value in rows)
