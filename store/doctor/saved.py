"""Findings that ``doctor -o json`` or ``-o jsonl`` wrote into a file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from store.doctor.diagnosis import Diagnosis
from store.doctor.explaining import check_codes
from store.errors import InvalidValue
from store.rules.cause import Severity

_TEXTS = ("code", "where", "message", "broker", "mend", "page")
_HINT = "put into the file what this prints: pulsar-admin doctor -o json"


def read_saved(path: Path) -> tuple[Diagnosis, ...]:
    """Return the findings in the file PATH; raises InvalidValue for one that has something else."""
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise InvalidValue(f"{path} cannot be read: {error.strerror}", hint=_HINT, path=str(path)) from error
    except UnicodeDecodeError as error:
        raise _wrong(path, error) from error
    try:
        rows: Any = (
            json.loads(text) if text.lstrip().startswith("[") else [json.loads(line) for line in text.splitlines()]
        )
        found = tuple(map(_diagnosis_of, rows))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _wrong(path, error) from error
    check_codes({one.code for one in found})
    return found


def _wrong(path: Path, error: Exception) -> InvalidValue:
    what = f"{error} is missing" if isinstance(error, KeyError) else error
    return InvalidValue(f"{path} is no list of findings as doctor writes it: {what}", hint=_HINT, path=str(path))


def _diagnosis_of(row: Mapping[str, Any]) -> Diagnosis:  # Any: JSON
    if not isinstance(row, dict):
        raise TypeError(f"an entry is {json.dumps(row)[:40]}, not an object")
    if "change" in row:
        raise ValueError("it was made with --since and lacks what had not changed")
    texts = {key: row[key] for key in _TEXTS}
    numbers = {"at_stake_bytes": row["atStakeBytes"], "at_stake_messages": row["atStakeMessages"]}
    if not all(type(one) is str for one in texts.values()) or not all(type(one) is int for one in numbers.values()):
        raise TypeError("a value is of another kind")
    return Diagnosis(severity=Severity(row["severity"]), evidence=dict(row["evidence"]), **texts, **numbers)
