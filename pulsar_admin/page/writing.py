"""The page as a new file, whole or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from pulsar_admin.page.rendering import render_page
from pulsar_admin.page.values import Page
from pulsar_admin.store.files import raise_write_error, write_new_file


def check_new(path: Path) -> None:
    """Raise AlreadyExists or NotFound if ``write_page`` could not write a file: to be asked before long work."""
    if os.path.lexists(path):
        raise_write_error(OSError(errno.EEXIST, os.strerror(errno.EEXIST)), path)
    if not path.parent.is_dir():
        raise_write_error(OSError(errno.ENOENT, os.strerror(errno.ENOENT)), path)


def write_page(path: Path, page: Page) -> int:
    """Write a page into a new file and return its size in bytes; raises AlreadyExists, StoreBusy, DiskFull."""
    made = render_page(page)
    write_new_file(path, made)
    return len(made)
