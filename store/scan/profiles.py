"""The tool whose names of columns are known here; what they are is in ``store.scan.known_columns``."""

from __future__ import annotations

from typing import Literal, get_args

Profile = Literal["pulsar-spark"]
PROFILES: tuple[Profile, ...] = get_args(Profile)
