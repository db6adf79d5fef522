"""Write a synthetic Pulsar data directory: ``python -m bench.generate DIRECTORY``, in a checkout; ``--help`` lists the options."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from bench.generate.cluster import GenerateResult, apply_generate
from bench.generate.request import plan_cluster, split_options
from bench.generate.spec import (
    parse_batch,
    parse_clocks,
    parse_codecs,
    parse_count,
    parse_delays,
    parse_rate,
    parse_share,
    parse_sizes,
    parse_start,
)
from pulsar_admin.numbers import whole
from pulsar_admin.options import SIZE, TOPIC, Function, ParsedType
from pulsar_admin.store.codec.interceptors import parse_interceptors
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.wording import counted


def _type(parse: Callable[[str], object], metavar: str) -> ParsedType:
    return ParsedType(parse.__name__.removeprefix("parse_"), parse, metavar)


_COUNT, _SHARE = _type(parse_count, "N"), _type(parse_share, "PERCENT")


def _option(name: str, kind: Any, default: str, text: str) -> Callable[[Function], Function]:  # Any: click's types
    return click.option(f"--{name}", type=kind, default=default, show_default=True, help=text)


@click.command()
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--topic", type=TOPIC, multiple=True, help="A topic; may be repeated [public/default/generated].")
@_option("topics", _COUNT, "0", "Also topics public/default/generated-0, -1 … of the same kind.")
@click.option("--from-file", type=click.Path(path_type=Path), help="Topics as JSON objects, one a line (see docs).")
@_option("partitions", _COUNT, "0", "Make each topic a partitioned one; each partition gets --entries.")
@_option("entries", _COUNT, "10000", "Entries of each topic: 1000000, 1_000_000 or 1M.")
@_option("rate", _type(parse_rate, "N"), "1000", "Entries a second of each topic, by the broker's clock.")
@_option("start", _type(parse_start, "TIME"), "@1700000000000", "When the first entry was appended.")
@_option("message-size", _type(parse_sizes, "SIZE"), "1024", "Payload bytes of a message: N, LOW..HIGH or LOW~HIGH.")
@_option("batch", _type(parse_batch, "N"), "0", "Messages of a batch, N or LOW..HIGH; 0: no batches.")
@_option(
    "codecs", _type(parse_codecs, "CODECS"), "none", "Codecs that entries are drawn from: none,lz4,zlib,zstd,snappy."
)
@_option("producers", _COUNT, "1", "Producers of each topic.")
@_option(
    "clocks",
    _type(parse_clocks, "CLOCKS"),
    "steady",
    "Their clocks in turn: steady,fast,slow,future,jumping,+2h,-3d.",
)
@_option("keys", _COUNT, "0", "Different message keys; 0: no keys.")
@_option("tombstones", _SHARE, "0", "Share of messages with a null value.")
@_option("delayed", _SHARE, "0", "Share of entries that are delayed messages.")
@_option("delay", _type(parse_delays, "DURATION"), "1m..1d", "How long these are delayed.")
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
@_option(
    "interceptors",
    _type(parse_interceptors, "NAMES"),
    "none",
    "Broker entry metadata to write: timestamp,index, class names, or none.",
)
def command(directory: Path, **options: Any) -> GenerateResult:  # Any: click's values, by name
    """Write a synthetic Pulsar data directory.

    DIRECTORY, which must not exist, becomes what a standalone Pulsar leaves after a clean stop: `store import
    standalone` reads it, and a broker starts on it. The same options produce the same entry logs, byte for byte.
    """
    return apply_generate(directory, plan_cluster(directory, *split_options(options)))


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


if __name__ == "__main__":
    try:
        made = command.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except StoreError as error:
        sys.exit(f"error: {error.message}\nhint: {error.hint}")
    if made:  # not where help was asked for
        print(render_generate(made))
