"""The tools whose names of columns are known here; what they are is in ``store.scan.known_columns``."""

from __future__ import annotations

from typing import Literal, get_args

Profile = Literal["pulsar-spark", "trino", "lakehouse"]
PROFILES: tuple[Profile, ...] = get_args(Profile)
