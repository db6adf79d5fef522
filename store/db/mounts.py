"""Which file systems cannot hold a store: those whose files other machines write, too.

LMDB maps its file into memory and locks it with fcntl and a table that is mapped by all processes. Neither holds between machines,
and most network file systems do not promise it between processes of one ("Do not use LMDB databases on remote filesystems", lmdb.h).
"""

from __future__ import annotations

import os
from pathlib import Path

from pulsar_admin.store.errors import Unsupported

MOUNTINFO = Path("/proc/self/mountinfo")
NETWORK = frozenset(
    {
        *("9p", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs"),
        *("nfs", "nfs4", "ocfs2", "orangefs", "smb2", "smb3", "smbfs"),
    }
)
_LOCAL_FUSE = frozenset({"fuseblk", "fuse.bindfs", "fuse.mergerfs", "fuse.fuse-overlayfs", "fuse.ntfs-3g", "fuse.zfs"})


def is_network(kind: str) -> bool:
    """Whether a kind of file system, by the kernel's name, is on a network; for FUSE, all but those known to be local."""
    return kind in NETWORK or (kind.startswith("fuse") and kind not in _LOCAL_FUSE)


def check_local(path: Path) -> None:
    """Raise Unsupported if a path, or its nearest existing parent, is on a network file system."""
    there = path.absolute()
    while not there.exists() and there != there.parent:
        there = there.parent
    device = there.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}".encode()
    try:
        lines = MOUNTINFO.read_bytes().splitlines()
    except OSError:
        return  # no Linux
    for line in lines:
        # "36 35 98:0 /root /mount/point options … - type source options", proc_pid_mountinfo(5)
        before, _, after = line.partition(b" - ")
        kind = after.partition(b" ")[0].decode("ascii", "replace")
        if before.split(b" ", 3)[2] == wanted and is_network(kind):
            raise Unsupported(
                f"{path} is on a network file system ({kind}): a store's index is mapped into memory and locked, which holds on one"
                " machine's own disk only",
                hint="keep the store on a local disk; the data that it is imported from may be where it is",
                path=str(path),
                fileSystem=kind,
            )
