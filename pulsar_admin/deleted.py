"""The hint for a missing topic that was deleted, by a change of the store or by a broker."""

from contextlib import suppress

from pulsar_admin.columns import render_cell
from pulsar_admin.store.changes.plan import undo_command
from pulsar_admin.store.db.audit_log import change_numbers, read_change
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.tree import find_node, iter_children
from pulsar_admin.store.errors import IndexCorrupt, Refused
from pulsar_admin.store.model.topics import list_partitions
from pulsar_admin.store.names import TopicName, shell_word

_CHANGES = 100
"""The last ones, which are looked at."""
_READ_BYTES = 1 << 28
"""Of ZooKeeper's logs that name the topic: more, which takes seconds, is not decoded for a hint."""


def deletion_hint(txn: Txn, name: TopicName) -> str:
    """Return when and by whom a topic was deleted, with commands to show and restore it; "" if it exists or nothing is
    known."""
    from pulsar_admin.store.history.events import find_deletion
    from pulsar_admin.store.history.servers import find_servers
    from pulsar_admin.store.history.versions import is_named, log_bytes

    if find_node(txn, name.path) or list_partitions(txn, name) or next(iter_children(txn, name.path), None) is not None:
        return ""
    undone: set[int] = set()
    for number in change_numbers(txn)[: -_CHANGES - 1 : -1]:
        with suppress(IndexCorrupt):
            row = read_change(txn, number)
            if number in undone:
                continue
            undone.update(() if row.undoes is None else (row.undoes,))
            if any(report.get("topic") == str(name) for report in row.reports if report.get("after", "") is None):
                return f"change {number} of this store deleted it at {render_cell(row.time_ms, 'time')}: {undo_command(number)}"
    with suppress(Refused):
        servers = find_servers(txn.store.info.sources)
        for path in (name.path, name.partitioned_path):
            if not is_named(servers, path):
                continue
            if log_bytes(servers) > _READ_BYTES:
                return f"whether it was deleted: pulsar-admin store history {shell_word(name)}"
            if (event := find_deletion(servers, path)) is not None:
                version = event.version
                time = render_cell(version.time_ms, "time")
                who = event.who or (
                    "an unknown session" if version.session is None else f"session {version.session:#x}"
                )
                return (
                    f"it was deleted at {time} by {who}: pulsar-admin store history {shell_word(name)}; "
                    f"to restore it: pulsar-admin topics undelete {shell_word(name)} --dry-run"
                )
    return ""
