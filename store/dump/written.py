"""Files of a dump that other processes write: what these are told, and what they say. Plain data, which travels."""

from typing import Literal

from msgspec import Struct

from pulsar_admin.store.db.clocks import Clock

Format = Literal["parquet", "jsonl"]


class WrittenFile(Struct):
    """A file of a dump: its day, rows and bytes, the machine that wrote it (by default this one), and values in it that cannot be
    decoded."""

    path: str
    day: int
    rows: int = 0
    bytes: int = 0
    host: str = ""
    undecoded: int = 0


class WriteTo(Struct, frozen=True):
    """The directory (absolute) in which other processes write files of a dump, and how; a process that sees it finds the file
    ``lock``.

    ``hidden``: columns that only say a row's day. ``redact``: as in ``DumpOptions``.
    """

    directory: str
    lock: str
    form: Format
    clock: Clock
    hidden: list[str]
    redact: bool
