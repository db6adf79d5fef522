"""Said whenever a command or program asks a store whose metadata could not be read whole. Imports little: every cold question asks."""

from __future__ import annotations

from pulsar_admin.store.db.environment import Store
from pulsar_admin.store.db.files import iter_incompleteness
from pulsar_admin.store.wording import counted


def tables_text(reason: str) -> str:
    """Return the warning about tables exported from incomplete metadata; empty if ``reason`` is."""
    return (
        f"these tables were exported from incomplete metadata, so this answer may be incomplete or out of date: "
        f"{reason} (export them again from a store with complete metadata)"
        if reason
        else ""
    )


def incomplete_text(store: Store) -> str:
    """Return the warning about a store with incomplete metadata; empty for other stores."""
    altered: list[bytes] = []
    with store.read() as txn, txn.passing_altered(altered.append):  # a check has to go on past them
        reasons = [damage.reason for damage in iter_incompleteness(txn)]
    if altered:
        reasons.append("rows that say what was wrong with it were altered on the disk")
    if not reasons:
        return ""
    more = f", and {counted(len(reasons) - 1, 'problem')} more" if len(reasons) > 1 else ""
    return (
        f"the metadata is incomplete, so this answer may lack something or be out of date: {reasons[0]}{more}"
        " (see: pulsar-admin store check)"
    )
