"""``topics search`` as a whole process, beside ``ripgrep`` over the same entry logs: ``python -m bench --only search``.

ripgrep finds bytes where they lie as they are; it opens no batch, no codec and no lock, and proves no checksum. So the logs are of entries
of 1 KB, alone and uncompressed. It finds what is in digests and checksums, too.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator

from bench.data import TOPIC, Bench, logs_of, size_of
from bench.measuring import ADMIN, Row, run, side_by_side

QUESTIONS = {
    "a text": (["--text", "zQx"], ["-F", "zQx"]),
    "a regular expression": (["--regex", "[xyz][QRS][0-9]{2}"], ["-e", "(?-u)[xyz][QRS][0-9]{2}"]),
    "a key": (["--key", "nobody"], ["-F", "nobody"]),
}
WAYS = {"one process": ["--jobs", "1"], "a process a core": []}


def measure(bench: Bench) -> Iterator[Row]:
    """Every question, in one process and in several."""
    entries = bench.count("1M")
    store, logs = bench.imported(entries), logs_of(bench.generated(entries))
    for what, (ours, theirs) in QUESTIONS.items():
        for way, options in WAYS.items():
            subject = [ADMIN, "-q", "--store", store, "topics", "search", TOPIC, *ours, *options]
            peer = ["sh", "-c", 'rg -c -a "$@" || true', "rg", *theirs, *logs]
            note = ""
            if shutil.which("rg"):
                taken, other = side_by_side(subject, peer, bench.runs)
            else:
                taken, other, note = run(subject), None, "no ripgrep here; "
            rate = size_of(logs) / taken.seconds / 1e9
            processor = size_of(logs) / taken.processor_seconds / 1e9
            note += f"{rate:.2f} GB/s, {processor:.2f} GB a second of processor time, peak {taken.peak_bytes >> 20} MiB"
            yield Row(
                f"topics search, {what}, {way}",
                taken.seconds,
                taken.processor_seconds,
                "rg" if other else "",
                other.seconds if other else 0.0,
                note=note,
                runs=bench.runs,
                peer_processor_seconds=other.processor_seconds if other else 0.0,
            )
