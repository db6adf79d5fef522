"""``metrics``: a store's numbers for Prometheus."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from pulsar_admin.context import App, Result
from pulsar_admin.numbers import whole
from pulsar_admin.options import command, flag
from pulsar_admin.store.errors import AlreadyExists, DiskFull, IndexCorrupt, NotWritable, StoreNotFound
from pulsar_admin.store.facts.processes import process_ready
from pulsar_admin.store.files import open_file, raise_write_error, replace_file
from pulsar_admin.store.reports.overview import TOP_ROWS, Metric
from pulsar_admin.visible import clean_text

_BEGIN = b"# HELP "
_ALL_MAY_READ = 0o644  # node_exporter runs as another user


@command(
    "metrics",
    examples=["", "--out pulsar.prom --top 100 --pattern 'public/default/*'"],
    output="Gauges in Prometheus' text format: backlogs, the age of their first entries, compaction lag, sizes, dead bytes, findings, the "
    "age of the copy. --out: how many; the file is replaced whole, if it is empty or holds metrics.",
    errors=[StoreNotFound, IndexCorrupt, AlreadyExists, NotWritable, DiskFull],
    uses=["now"],
)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE.prom", help="Replace this file.")
@click.option(
    "--top",
    type=whole(1, 1_000_000),
    default=TOP_ROWS,
    show_default=True,
    metavar="N",
    help="Rows of each metric with a topic: the largest, and those with most entries left.",
)
@click.option("--pattern", metavar="GLOB", help="Rows only for topics whose name matches; sums cover all topics.")
@flag("--delayed", help="Also count delayed entries: reads the headers of these backlogs.")
@click.option("--check/--no-check", default=None, help="Count findings of `doctor` [unless the store is large].")
def metrics(app: App, out: Path | None, **asked: Any) -> Result:  # Any: of Store.metrics
    """Write a store's backlogs, ages, sizes, dead bytes and findings as metrics for Prometheus.

    With --out FILE.prom in the directory that node_exporter's textfile collector reads.
    """
    if out is not None:
        _check_replaceable(out)
    with process_ready(app.settings.store, app.settings.jobs):
        gauges = app.api.metrics(**asked)
    if out is None:
        return Result({"metrics": gauges}, plain=lambda document: render_metrics(gauges))
    replace_file(out, render_metrics(gauges).encode(), mode=_ALL_MAY_READ)
    if out.suffix != ".prom":
        app.warn(f"{out}: node_exporter reads files that end in .prom")
    return Result({"out": str(out), "metrics": len(gauges), "samples": sum(len(metric.samples) for metric in gauges)})


def _check_replaceable(out: Path) -> None:
    """Raise AlreadyExists for a file without metrics: a typo must not overwrite one of the store's files."""
    try:
        with open_file(out) as file:
            begin = file.read(len(_BEGIN))
    except FileNotFoundError:
        return
    except OSError as error:
        raise_write_error(error, out)
    if begin not in (b"", _BEGIN):
        raise AlreadyExists(
            f"{out} exists and does not hold metrics", hint="name another file, such as pulsar.prom", path=str(out)
        )


def render_metrics(found: Sequence[Metric]) -> str:
    """Return metrics in Prometheus's text format, version 0.0.4, without those that have no samples."""
    return "".join(line + "\n" for metric in found if metric.samples for line in _lines(metric))


def _lines(metric: Metric) -> Iterator[str]:
    yield f"# HELP {metric.name} {metric.help}"
    yield f"# TYPE {metric.name} gauge"
    for sample in metric.samples:
        yield f"{metric.name}{_labels(sample.labels)} {sample.value!r}"


def _labels(labels: Mapping[str, str]) -> str:
    pairs = (f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{','.join(pairs)}}}" if labels else ""


def _escaped(value: str) -> str:
    """Return a label's ``value`` escaped; invisible characters, which the format cannot escape, become visible text."""
    return clean_text(value).replace("\\", r"\\").replace('"', r"\"")
