"""What a code means, in words."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches

from store.errors import InvalidValue
from store.rules.cause import Cause
from store.rules.table import CAUSES


def explanation(code: str) -> Cause:
    """Return the cause CODE; raises InvalidValue with those that are near."""
    cause = CAUSES.get(code)
    if cause is None:
        near = get_close_matches(code, CAUSES, 2) or [found for found in CAUSES if code in found][:3]
        hint = f"did you mean {' or '.join(near)}?" if near else "see docs/doctor.md"
        raise InvalidValue(f"the doctor knows no code {code!r}", hint=hint, code=code)
    return cause


def check_codes(codes: Collection[str]) -> tuple[str, ...]:
    """Return CODES; raises InvalidValue for one that is not there."""
    return tuple(explanation(code).code for code in codes)
