"""What is judged: how bad it is, and the cause that a finding names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from textwrap import wrap

from store.frozen import frozen
from store.names import shell_word

PAGE = "docs/doctor.md"
MEND = "mend"
"""The key of evidence with the command that cures what is found, where that is another than the cause's: how it is decides."""
_PLACE = re.compile(r"\{(\w+)\}")


class Severity(StrEnum):
    """Data is lost or cannot be served; it will be, or something is wrong that nobody sees yet; worth knowing."""

    CRITICAL = "critical"
    WARNING = "warning"
    NOTE = "note"


@frozen
class Cause:
    """One thing that can be wrong: a row of the table. ``code`` is for ever.

    ``means``: what it is and what shows it; ``broker``: what Pulsar and BookKeeper do (4.0.8); ``how`` and ``prevent``: in words;
    ``mend``: the command, with ``{keys}`` of the evidence in it. ``leads``: other findings may come of it, so it is told first.
    What is told of one subscription alone (``topics why``) has a title, and the command if that is always the same.
    """

    code: str
    severity: Severity
    title: str
    means: str = ""
    broker: str = ""
    mend: str = ""
    how: str = ""
    prevent: str = ""
    leads: bool = field(default=False, metadata={"json": None})

    def text(self) -> str:
        """Return all of it for a terminal."""
        parts = (
            (f"{self.code} ({self.severity}): {self.title}", _wrapped(self.means)),
            ("What a broker does", _wrapped(self.broker)),
            # The command in one line, to be pasted.
            ("Repair", f"{_wrapped(self.how)}\n  {self.command({})}".lstrip("\n")),
            ("Prevent", _wrapped(self.prevent)),
        )
        return "\n\n".join(f"{title}\n{text}" for title, text in parts if text.strip()) + f"\n\nSee {self.page}"

    @property
    def page(self) -> str:
        """Where the documentation tells of it."""
        return f"{PAGE}#{self.code}"

    def command(self, evidence: Mapping[str, object]) -> str:
        """Return the command that repairs what EVIDENCE shows; a place that it does not fill stays in capitals."""
        if MEND in evidence:
            return str(evidence[MEND])
        return _PLACE.sub(lambda found: _filled(found[1], evidence), self.mend)


def _wrapped(text: str) -> str:
    return "\n".join(
        "\n".join(wrap(line, 78, initial_indent="  ", subsequent_indent="  ")) for line in text.splitlines()
    )


def _filled(key: str, evidence: Mapping[str, object]) -> str:
    if key not in evidence:
        return re.sub(r"(?<!^)([A-Z])", r"-\1", key).upper()
    value = evidence[key]
    return " ".join(shell_word(str(one)) for one in (value if isinstance(value, (list, tuple)) else [value]))
