"""Copies of a store's database, ``backups/TRANSACTION``, made before the riskiest operations."""

from pathlib import Path

from pulsar_admin.store.db.file import DATA_FILE, RECORD_FILE, read_commit
from pulsar_admin.store.errors import IndexCorrupt, StoreError
from pulsar_admin.store.files import copy_file, create_directory, remove_tree, rename
from pulsar_admin.store.names import shell_word

_KEPT = 2


def iter_backups(path: Path) -> list[Path]:
    """Return the backups of a store, oldest first."""
    backups = [entry for entry in (path / "backups").glob("*") if entry.name.isdigit()]
    return sorted(backups, key=lambda entry: int(entry.name))


def back_up(path: Path, transaction: int) -> Path:
    """Copy the database of a store to ``backups``, durably; return the path of the copy.

    The caller holds the writer lock and writes nothing meanwhile. The newest ``_KEPT`` copies stay; a state that has a
    copy is not copied again. Raises DiskFull.
    """
    meta, folder = path / "meta", path / "backups"
    mode = meta.stat().st_mode & 0o777
    target = folder / str(transaction)
    if target.is_dir():
        return target
    create_directory(folder, exist_ok=True, mode=mode)
    unfinished = target.with_suffix(".unfinished")
    remove_tree(unfinished)
    create_directory(unfinished, mode=mode)
    try:
        for name in (DATA_FILE, RECORD_FILE):
            copy_file(meta / name, unfinished / name)
        rename(unfinished, target)
    except StoreError:
        remove_tree(unfinished)
        raise
    for old in iter_backups(path)[:-_KEPT]:
        remove_tree(old)
    return target


def keep_hint(path: Path) -> str:
    """Return the hint for a store that cannot be read: how to proceed without losing its changes."""
    for backup in reversed(iter_backups(path)):
        commit = read_commit(backup)
        if commit is not None:
            meta, damaged = shell_word(path / "meta"), shell_word(path / "meta.damaged")
            return (
                f"keep {path}; put its backup up to change {commit.change} in place with:"
                f" mv {meta} {damaged} && cp -a {shell_word(backup)} {meta}"
            )
    return (
        f"keep {path}: its changes exist nowhere else; put a copy of its directory meta in place,"
        " or import into another directory (--store NEW) and repeat them there"
    )


def damaged_store(path: Path, message: str) -> IndexCorrupt:
    """Return the error for a damaged store, with the hint that keeps its changes."""
    return IndexCorrupt(message, hint=keep_hint(path), path=str(path))
