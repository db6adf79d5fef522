"""``nacks add``: negative acks kept in the store for scripts."""

from __future__ import annotations

from pathlib import Path

import click
from msgspec import Struct

from pulsar_admin.api.nacks import Nacks
from pulsar_admin.commands.topics.moving import read_lines, shown_path
from pulsar_admin.context import App
from pulsar_admin.numbers import INTEGER
from pulsar_admin.options import DURATION, POSITION, TOPIC, command, gather, pass_app, subscription_option
from pulsar_admin.store.errors import (
    EntryNotFound,
    InvalidValue,
    Refused,
    StalePlan,
    StoreBusy,
    SubscriptionNotFound,
    TopicNotFound,
)
from pulsar_admin.store.names import Position, TopicName

# -- add --------------------------------------------------------------------------------------------------------------


class AddRequest(Struct, frozen=True):
    """What to track, and for how long."""

    delay_ms: int
    positions: tuple[Position, ...]
    from_file: Path | None
    holes: bool
    bits: int | None
    force: bool


@command(
    "add",
    changes=True,
    uses=["now", "wait"],
    examples=[
        "pulsar-admin nacks add public/default/plain -s holes --delay 1h --holes",
        "pulsar-admin nacks add public/default/plain -s half --delay 10m 29:20 29:21:3 --bits 10",
    ],
    elsewhere=["pulsar-admin nacks add public/default/plain -s half --delay 10m --from-file positions.jsonl"],
    output="The change: how many entries wait for the subscription, when the first is due, how many are new, and the undo command.",
    errors=[TopicNotFound, SubscriptionNotFound, EntryNotFound, InvalidValue, Refused, StoreBusy, StalePlan],
)
@click.argument("topic", type=TOPIC)
@click.argument("positions", type=POSITION, nargs=-1)
@subscription_option
@click.option("--delay", "delay_ms", type=DURATION, required=True, help="Due this long from now.")
@click.option(
    "--from-file",
    type=click.Path(path_type=Path, allow_dash=True),
    metavar="FILE",
    help="A position a line; - is stdin.",
)
@click.option("--holes", is_flag=True, help="The subscription's own acknowledgement holes.")
@click.option("--bits", type=INTEGER, help="Precision bits, 0 to 62 [the subscription's; 8 when it is new].")
@click.option("--force", is_flag=True, help="Also accept positions and subscriptions that the store does not know.")
@gather(AddRequest)
@pass_app
def add(app: App, topic: TopicName, subscription: str, options: AddRequest) -> None:
    """Track entries of a subscription for later redelivery.

    They are kept as bitmaps by time bucket and ledger, as in PIP-393: never due later than asked, and earlier by less
    than 2^bits ms. Batch indexes are dropped. An entry that is added again with another delay is due both times.
    --holes: the entries between the mark-delete position and the last individually deleted one that are not deleted.
    Lines of the file are LEDGER:ENTRY or the output of `topics read -o jsonl` and `nacks due`, optionally with a
    "delay" of their own. Changes of one subscription are undone latest first.
    """
    lines = _check_sources(options)
    nacks = Nacks(app.session, topic, subscription)
    delay_ms, bits = options.delay_ms, options.bits
    if options.holes:
        plan = nacks.add_holes(delay_ms, precision_bits=bits)
    elif options.from_file is not None:
        source = shown_path(options.from_file)
        plan = nacks.add_lines(lines, delay_ms, source=source, precision_bits=bits, force=options.force)
    else:
        plan = nacks.add(options.positions, delay_ms, precision_bits=bits, force=options.force)
    app.change(plan)


def _check_sources(options: AddRequest) -> list[str]:
    """Return the lines of the file; raises a usage error unless there is exactly one source of positions."""
    if bool(options.positions) + (options.from_file is not None) + options.holes != 1:
        raise click.UsageError("name positions, or give --from-file FILE, or --holes", click.get_current_context())
    return [] if options.from_file is None else read_lines(options.from_file)
