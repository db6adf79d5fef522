"""Measure compaction: ``last-id`` while the last entry grows, ``run`` on keyed messages beside a real broker's, payload bytes.

``python -m bench.compaction [--messages N] [--runs N] [--broker] [--json FILE] [--plots FOLDER]``. ``--broker`` starts the Pulsar
that the live tests use on the very directories that were generated, and lets it compact each topic twice, a copy first: what is
compared is a warm broker. Whole processes, medians; seconds of processor time beside those on the clock, since other work on the
machine changes only the latter. ``python -m bench --only compaction`` takes its rows from ``measure``.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench import cold, measuring
from bench.generate import generate
from bench.measuring import ADMIN, CLICK, Run, machine, median, run, side_by_side

Row = dict[str, Any]

TOPIC, WARM = "public/default/generated", "public/default/generated-0"
SIZES = {"1 KB": 1 << 10, "16 KB": 1 << 14, "256 KB": 1 << 18, "1 MB": 1 << 20, "5 MB": 5_200_000}
KINDS = (
    "LZ4, indexes listed",
    "not compressed, indexes listed",
    "encrypted, indexes listed",
    "encrypted",
    "LZ4, flags",
)
LAYOUTS = {
    "alone": ("--entries", "{messages}", "--message-size", "200"),
    "batches of 100": ("--entries", "{hundredth}", "--batch", "100", "--message-size", "240"),
    "batches of 100, LZ4": ("--entries", "{hundredth}", "--batch", "100", "--message-size", "240", "--codecs", "lz4"),
}
KEYS_SHARE = 10  # one key for so many messages


# -- last-id ----------------------------------------------------------------------------------------------------------


def last_entry(kind: str, size: int) -> bytes:
    """Return the last entry of a compacted ledger: a batch of four of which one is left."""
    from tests.compaction.entries import LZ4, NONE, Batch, Slot, entry

    gone = Slot(None, b"", compacted_out=True)
    value = os.urandom(size)
    if kind == "LZ4, flags":
        return entry(Batch([gone, gone, Slot("k", value), gone], LZ4))
    indexes = [2] if "indexes" in kind else []
    if kind.startswith("encrypted"):
        return entry(Batch([], LZ4, count=4, indexes=indexes, encrypted=True, payload=value))
    return entry(Batch([Slot("k", value)], LZ4 if kind.startswith("LZ4") else NONE, count=4, indexes=indexes))


def measure_last_id(folder: Path, runs: int) -> Iterator[Row]:
    """Cold ``compaction last-id`` for every kind and size of the last entry, beside an interpreter that imports click."""
    from pulsar_admin.store.names import Position
    from tests.compaction.entries import PUBLISH_MS, compacted
    from tests.synthetic import Made, MadeCompacted, MadeTopic, make_store

    for kind in KINDS:
        for name, size in SIZES.items():
            raw = last_entry(kind, size)
            made = MadeCompacted(77, [compacted(10, 0, raw)], Position(10, 0))
            store = folder / "last-id"
            make_store(store, {TOPIC: MadeTopic([[Made(PUBLISH_MS, raw=raw[:200])]], compacted=made)})
            command: list[str | Path] = [
                ADMIN,
                "--store",
                store,
                "compaction",
                "last-id",
                TOPIC,
                "--explain",
                "-o",
                "json",
            ]
            said = json.loads(subprocess.run(list(map(str, command)), capture_output=True, check=True).stdout)
            ours, theirs = side_by_side(command, CLICK, runs)
            yield {
                "what": "last-id",
                "kind": kind,
                "size": name,
                "entryBytes": len(raw),
                "rule": said["rule"],
                "bytesRead": said["bytesRead"],
                **_times(ours, theirs),
            }
            shutil.rmtree(store)


def _times(ours: Run, theirs: Run) -> Row:
    return {
        "seconds": ours.seconds,
        "processorSeconds": ours.processor_seconds,
        "clickSeconds": theirs.seconds,
        "ratio": ours.seconds / theirs.seconds,
    }


# -- run --------------------------------------------------------------------------------------------------------------


def measure_run(folder: Path, messages: int, runs: int, *, broker: bool) -> Iterator[Row]:
    """``compaction run`` of ``messages`` keyed messages in every layout, in every format, and the broker's compaction of them."""
    for layout, words in LAYOUTS.items():
        data, store = folder / "data", folder / "store"
        options = [word.format(messages=messages, hundredth=messages // 100) for word in words]
        keys = [
            "--keys",
            str(messages // KEYS_SHARE),
            "--tombstones",
            "5",
            "--topic",
            TOPIC,
            "--topics",
            "1",
            "--bookie-id",
            _bookie_id(),
            "--data-path",  # where the broker will find it
            str(folder / "pulsar" / "data"),
        ]
        generate(data, *options, *keys)
        run([ADMIN, "-q", "--store", store, "store", "import", "standalone", data])
        taken, report, last_id_seconds = _run_ours(store, "indexed", runs)
        others = {form: _run_ours(store, form, 0)[1] for form in ("legacy", "reduced")}
        row = {
            "what": "run",
            "layout": layout,
            "messages": messages,
            "bytes": report["bytesRead"],
            "keys": report["keys"],
            "entriesKept": report["entries"],
            "payloadBytes": {
                "before": report["payloadBytes"]["before"],
                "indexed": report["payloadBytes"]["after"],
                **{form: other["payloadBytes"]["after"] for form, other in others.items()},
            },
            "ledgerBytes": {"indexed": report["bytes"], **{form: other["bytes"] for form, other in others.items()}},
            "seconds": taken.seconds,
            "processorSeconds": taken.processor_seconds,
            "peakBytes": taken.peak_bytes,
            "lastIdSeconds": last_id_seconds,
        }
        if broker:
            row |= _run_broker(folder / "pulsar", data)
            row["timesFaster"] = row["brokerSeconds"] / row["seconds"] if "brokerSeconds" in row else None
        yield row
        shutil.rmtree(store)
        shutil.rmtree(data, ignore_errors=True)


def _run_ours(store: Path, form: str, runs: int) -> tuple[Run, Row, float]:
    """Compact the topic ``runs`` + 1 times, each time undone; the medians, the last report, seconds of a cold ``last-id`` on it."""
    words: list[str | Path] = [ADMIN, "--store", store, "-o", "json", "compaction", "run", TOPIC, "--format", form]
    taken = []
    for _ in range(runs):
        taken.append(run(words))
        run([ADMIN, "-q", "--store", store, "store", "undo", _last_change(store)])
    report: Row = json.loads(subprocess.run(list(map(str, words)), capture_output=True, check=True).stdout)
    asked = [run([ADMIN, "--store", store, "compaction", "last-id", TOPIC, "-o", "json"]) for _ in range(runs + 1)]
    run([ADMIN, "-q", "--store", store, "store", "undo", str(report["change"])])
    return (median(taken) if taken else Run(0, 0, 0)), report, statistics.median(one.seconds for one in asked)


def _last_change(store: Path) -> str:
    said = subprocess.run([ADMIN, "--store", str(store), "store", "log", "-o", "json"], capture_output=True, check=True)
    return str(max(row["change"] for row in json.loads(said.stdout)))


def _bookie_id() -> str:
    from tests.live.broker import free_port

    return f"127.0.0.1:{free_port()}"


def _run_broker(folder: Path, data: Path) -> Row:
    """Let a broker started on ``data`` compact the topic of the same kind beside it, then the topic; seconds of the second."""
    from tests.live.broker import BASE_SETTINGS, Broker
    from tests.live.distribution import VERSION, find_distribution

    shutil.rmtree(folder, ignore_errors=True)
    broker = Broker(find_distribution(), folder, BASE_SETTINGS, heap="2g")
    shutil.move(data, broker.data)
    try:
        broker.start()
        first, error = _compact(broker, WARM)
        before = broker.processor_seconds()
        warm, error = _compact(broker, TOPIC) if not error else (0.0, error)
        processor = broker.processor_seconds() - before
        broker.stop()
    finally:
        broker.kill()
        shutil.rmtree(folder, ignore_errors=True)
    if error:
        return {"broker": VERSION, "brokerError": error}
    return {
        "broker": VERSION,
        "brokerFirstSeconds": first,
        "brokerSeconds": warm,
        "brokerProcessorSeconds": processor,
    }


def _compact(broker: Any, topic: str) -> tuple[float, str]:  # Any: tests.live.broker.Broker
    """Return the seconds of a compaction and its error: 4.0.8 fails on many compressed batches (apache/pulsar issue 26290)."""
    path = f"persistent/{topic}/compaction"
    begin = time.perf_counter()
    broker.put(path)
    while (found := broker.get(path))["status"] in ("RUNNING", "NOT_RUN"):
        time.sleep(0.02)
    return time.perf_counter() - begin, found["lastError"]


# -- results ----------------------------------------------------------------------------------------------------------


def show(row: Row) -> None:
    """Print one row."""
    if row["what"] == "last-id":
        print(
            f"last-id  {row['kind']:<32} {row['size']:>7}: {row['seconds'] * 1000:6.1f} ms ({row['ratio']:.1f} × import click,"
            f" {row['processorSeconds'] * 1000:.0f} ms of processor), {row['bytesRead']:>9,} bytes read  {row['rule']}",
            flush=True,
        )
        return
    payload = row["payloadBytes"]
    beside = (
        f", broker {row['brokerSeconds']:.2f} s ({row['brokerProcessorSeconds']:.2f} s of processor):"
        f" {row['timesFaster']:.1f} × faster"
        if "brokerSeconds" in row
        else ""
    )
    if "brokerError" in row:
        beside = f", the broker fails: {row['brokerError']}"
    print(
        f"run      {row['messages']:,} messages {row['layout']}: {row['seconds']:.2f} s ({row['processorSeconds']:.2f} s of"
        f" processor, {row['peakBytes'] >> 20} MiB){beside}; payload {payload['before']:,} → indexed {payload['indexed']:,}, legacy"
        f" {payload['legacy']:,}, reduced {payload['reduced']:,} bytes; last-id then {row['lastIdSeconds'] * 1000:.0f} ms",
        flush=True,
    )


def charts(rows: list[Row]) -> list[Any]:
    """A cold ``last-id`` by the size of the last entry, a line a kind: milliseconds of processor time, and KB read of the entry.

    Not the time on the clock: that is in the rows, and also tells of whatever else the machine did.
    """
    from pulsar_admin.plot import Chart

    found = [row for row in rows if row["what"] == "last-id"]

    def drawn(key: str, factor: float, text: str, unit: str) -> Any:
        series = {kind: [row[key] * factor for row in found if row["kind"] == kind] for kind in KINDS}
        return Chart(f"compaction last-id, cold process, by size of the last entry: {text}", tuple(SIZES), series, unit)

    return [drawn("processorSeconds", 1000, "processor time", "ms"), drawn("bytesRead", 1 / 1024, "read of it", "KB")]


def save_plots(rows: list[Row], folder: Path) -> None:
    """Write ``compaction-last-id.png`` and ``.svg`` into ``folder``."""
    from pulsar_admin.plot import save_charts

    for form in ("png", "svg"):
        path = folder / f"compaction-last-id.{form}"
        path.unlink(missing_ok=True)
        save_charts([path], charts(rows))


def measure_all(runs: int, messages: int, *, broker: bool, plots: Path | None) -> Iterator[Row]:
    """Yield every row: ``last-id``, its plot into ``plots``, and ``run`` of ``messages`` (0: none), beside a broker if ``broker``."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as name:
        for row in measure_last_id(Path(name), runs):
            rows.append(row)
            yield row
        if plots is not None:
            save_plots(rows, plots)
        if messages:
            yield from measure_run(Path(name), messages, runs, broker=broker)


def measure(
    runs: int, sizes: Sequence[str], *, broker: bool = False, plots: Path | None = None
) -> Iterator[measuring.Row]:
    """Yield the rows of ``measure_all`` as ``python -m bench`` shows them; the largest of ``sizes`` says how many messages."""
    from bench.generate.spec import parse_count

    for row in measure_all(runs, parse_count(sizes[-1]), broker=broker, plots=plots):
        yield _last_id_row(row, runs) if row["what"] == "last-id" else _run_row(row, runs)


def _last_id_row(row: Row, runs: int) -> measuring.Row:
    return measuring.Row(
        f"compaction last-id, last entry {row['size']}, {row['kind']}", row["seconds"], row["processorSeconds"],
        'python -c "import click"', row["clickSeconds"], cold.GOAL,
        f"{row['bytesRead']:,} bytes read, rule {row['rule']}", runs,
    )  # fmt: skip


def _run_row(row: Row, runs: int) -> measuring.Row:
    payload = row["payloadBytes"]
    note = (
        f"peak {row['peakBytes'] >> 20} MiB, payload {payload['before']:,} → indexed {payload['indexed']:,}, legacy"
        f" {payload['legacy']:,}, reduced {payload['reduced']:,} bytes, last-id then {row['lastIdSeconds'] * 1000:.0f} ms"
    )
    if "brokerProcessorSeconds" in row:
        note += f"; the broker takes {row['brokerProcessorSeconds']:.2f} s of processor"
    if "brokerError" in row:
        note += f"; the broker fails: {row['brokerError']}"
    return measuring.Row(
        f"compaction run, {row['messages']:,} messages {row['layout']}", row["seconds"], row["processorSeconds"],
        f"Pulsar {row['broker']}, warm" if "broker" in row else "", row.get("brokerSeconds", 0.0), "≥ 2 × faster", note, runs,
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--broker", action="store_true", help="measure a real broker too")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plots", type=Path, help="folder for the plot, as PNG and SVG")
    options = parser.parse_args()
    rows: list[Row] = []
    for row in measure_all(options.runs, options.messages, broker=options.broker, plots=options.plots):
        rows.append(row)
        show(row)
    from pulsar_admin.plot import line_chart

    print(line_chart(charts(rows)[0]))
    if options.json:
        options.json.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
