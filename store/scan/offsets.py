"""The offset of a stream: how far each file was read, as plain JSON, and as objects.

Of each folder it has the ids of the files that were read to their end, as ranges (``0-4,6``), and of each other file that was begun
the bytes of the last batch, a digest of its first bytes, and how it was read. Files that a batch read to their end stay in its
offset, so that the batch can be planned once more; the next one folds them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from typing import Any

from store.codec.entrylog import log_id_of
from store.codec.journal import journal_id_of
from store.errors import Unsupported
from store.frozen import frozen
from store.names import FileKind
from store.scan.recent import NO_MARK, Mark, Recent

Offset = dict[str, Any]
"""What Spark keeps in its checkpoint."""

VERSION = 1
FAR = 1 << 62


@frozen
class Listed:
    """A file that is there."""

    path: str
    folder: str
    name: str
    id: int
    size_bytes: int

    @property
    def path_in_folder(self) -> str:
        """Its path without the query of a URL."""
        return f"{self.folder}/{self.name}"

    @property
    def kind(self) -> FileKind:
        return FileKind.JOURNAL if self.name.endswith(".txn") else FileKind.ENTRY_LOG


@frozen
class Begun:
    """The last batch that read of a file read bytes START to END; ``digest`` of its first bytes, up to END. How: see ``Part``."""

    start: int
    end: int
    digest: str
    complete: bool
    looked_at: bool
    remembered: bool

    def encode(self) -> list[Any]:  # Any: JSON
        return [self.start, self.end, self.digest, self.complete + 2 * self.looked_at + 4 * self.remembered]

    @staticmethod
    def decode(value: list[Any]) -> Begun:  # Any: JSON
        start, end, digest, flags = value
        return Begun(start, end, digest, bool(flags & 1), bool(flags & 2), bool(flags & 4))


@dataclass(slots=True)
class Folder:
    """What was read of the logs, or journals, of one folder."""

    owner: str  # whose disk it is on
    done: list[tuple[int, int]] = field(default_factory=list)  # ranges of ids, both ends included
    begun: dict[str, Begun] = field(default_factory=dict)  # by name

    def is_done(self, file: Listed) -> bool:
        """Whether FILE was read to its end."""
        at = bisect_right(self.done, (file.id, FAR))
        begun = self.begun.get(file.name)
        return (at > 0 and file.id <= self.done[at - 1][1]) or (begun is not None and begun.complete)

    def fold(self, there: Container[str]) -> None:
        """Let the complete files be ids alone, and leave out what is not THERE any more."""
        ids = sorted([*self.done, *((id_of(name),) * 2 for name, one in self.begun.items() if one.complete)])
        self.begun = {name: one for name, one in self.begun.items() if not one.complete and name in there}
        self.done = []
        for first, last in ids:
            if self.done and first <= self.done[-1][1] + 1:
                self.done[-1] = (self.done[-1][0], max(last, self.done[-1][1]))
            else:
                self.done.append((first, last))

    def pass_before(self, file_id: int) -> None:
        """Let what is older than FILE_ID be read: of journals before lastMark all is in logs."""
        self.begun = {name: one for name, one in self.begun.items() if id_of(name) >= file_id}
        self.done = [(0, file_id - 1), *self.done] if file_id > 0 else self.done
        self.fold(self.begun)

    def encode(self) -> Offset:
        done = ",".join(f"{first:x}" if first == last else f"{first:x}-{last:x}" for first, last in self.done)
        begun = {name: one.encode() for name, one in self.begun.items()}
        return {"owner": self.owner, "done": done, "begun": begun}

    @staticmethod
    def decode(value: Offset) -> Folder:
        ranges = [text.partition("-") for text in value["done"].split(",") if text]
        done = [(int(first, 16), int(last or first, 16)) for first, _, last in ranges]
        return Folder(value["owner"], done, {name: Begun.decode(one) for name, one in value["begun"].items()})


@dataclass(slots=True)
class Place:
    """An offset as objects; ``marks``: where the bookies' lastMark were when all of their logs were read."""

    folders: dict[FileKind, dict[str, Folder]] = field(
        default_factory=lambda: {FileKind.ENTRY_LOG: {}, FileKind.JOURNAL: {}}
    )
    marks: dict[str, Mark] = field(default_factory=dict)
    recent: dict[str, Recent] = field(default_factory=dict)

    def of(self, file: Listed, owner: str = "") -> Folder:
        """Return the folder of FILE, a new one, of OWNER's, where nothing of it was read."""
        return self.folders[file.kind].setdefault(file.folder, Folder(owner))

    def journal_end(self, owner: str) -> Mark:
        """Return the place in OWNER's journals up to which they were read."""
        folders = [folder for folder in self.folders[FileKind.JOURNAL].values() if folder.owner == owner]
        return max(
            [(id_of(name), one.end) for folder in folders for name, one in folder.begun.items()]
            + [(folder.done[-1][1], FAR) for folder in folders if folder.done],
            default=NO_MARK,
        )

    def newly_read(self, before: Place) -> Iterator[tuple[str, Begun]]:
        """Yield path and bytes of what was read since BEFORE."""
        old = dict(before.each_begun())
        for path, begun in self.each_begun():
            if begun.end > begun.start and (path not in old or old[path].end != begun.end):
                yield path, begun

    def each_begun(self) -> Iterator[tuple[str, Begun]]:
        """Yield the path of each file that was begun, and how far it was read."""
        for folders in self.folders.values():
            for name, folder in folders.items():
                yield from ((f"{name}/{file_name}", begun) for file_name, begun in folder.begun.items())

    def encode(self) -> Offset:
        logs, journals = ({name: folder.encode() for name, folder in self.folders[kind].items()} for kind in FileKind)
        marks = {name: list(mark) for name, mark in self.marks.items()}
        recent = {name: kept.encode() for name, kept in self.recent.items() if kept.given}
        return {"version": VERSION, "logs": logs, "journals": journals, "marks": marks, "recent": recent}

    @staticmethod
    def decode(offset: Offset) -> Place:
        if offset.get("version") != VERSION:
            raise Unsupported(
                f"the checkpoint has an offset of version {offset.get('version')}, known is {VERSION}",
                hint="begin with a new checkpointLocation",
            )
        logs, journals = (
            {name: Folder.decode(value) for name, value in offset[kind].items()} for kind in ("logs", "journals")
        )
        marks = {name: (mark[0], mark[1]) for name, mark in offset["marks"].items()}
        recent = {name: Recent.decode(kept) for name, kept in offset["recent"].items()}
        return Place({FileKind.ENTRY_LOG: logs, FileKind.JOURNAL: journals}, marks, recent)


FIRST: Offset = Place().encode()


def id_of(name: str) -> int:
    """Return the id of the log or journal called NAME; raises ValueError."""
    found = journal_id_of(name) if name.endswith(".txn") else log_id_of(name)
    if found is None:
        raise ValueError(name)
    return found


def order_of(file: Listed) -> tuple[str, int, str]:
    """Return what files are sorted by: logs before journals, the oldest first."""
    return file.kind, file.id, file.folder
