"""Records an example of each finding into ``docs/examples/findings.json``, from tests that plant it; ``docs/doctor/`` shows them.

``.venv/bin/python -m pytest -p tests.doctor.recording TESTS…`` adds an example of each code that has none; delete those that are to be
recorded again. ``test_examples.py`` fails for a code without an example, and for one that the sources do not say any more.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples" / "findings.json"
_HERE = re.compile(r"/(?:dev/shm|tmp|work|root|home)/[^\s,:;]*/(?=[^/\s,:;])")
_found: dict[str, list[dict[str, str]]] = {}


def pytest_configure() -> None:
    from pulsar_admin.store.rules.finding import Finding
    from pulsar_admin.store.rules.rule import Evidence, Rule

    found = Rule.found

    def noted(self: Rule[object], evidence: Evidence) -> Finding:
        one = found(self, evidence)
        told = {"severity": str(one.severity), "where": _placed(one.where), "message": _placed(one.message)}
        if one.message != "it is so":  # of a test of comparisons
            _found.setdefault(one.code, []).append(told)
        return one

    Rule.found = noted  # type: ignore[method-assign]


def pytest_unconfigure() -> None:
    known = json.loads(EXAMPLES.read_text()) if EXAMPLES.exists() else {}
    for code, rows in _found.items():
        known.setdefault(code, min(rows, key=lambda row: ("/" in row["where"], len(row["where"] + row["message"]))))
    EXAMPLES.write_text(json.dumps(dict(sorted(known.items())), indent=1, ensure_ascii=False) + "\n")


def _placed(text: str) -> str:
    """Return TEXT with its directories of a test as such of a server."""
    return _HERE.sub("/data/", text)
