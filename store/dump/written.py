"""Files of a dump that other processes write: their task, and the files they report. Picklable plain data."""

from typing import Literal

from msgspec import Struct

from pulsar_admin.store.db.clocks import Clock

Format = Literal["parquet", "jsonl"]


class WrittenFile(Struct):
    """A file of a dump; ``host``: the machine that wrote it ("": this one), ``undecoded``: undecodable values in it."""

    path: str
    day: int
    rows: int = 0
    bytes: int = 0
    host: str = ""
    undecoded: int = 0


class WriteTo(Struct, frozen=True):
    """The directory (absolute) in which other processes write files of a dump, and how. ``lock``: a file of the dump; a
    process that sees it sees the directory.

    ``hidden``: columns that only determine a row's day. ``redact``: as in ``DumpOptions``.
    """

    directory: str
    lock: str
    form: Format
    clock: Clock
    hidden: list[str]
    redact: bool
