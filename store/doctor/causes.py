"""The table of causes: every code that the doctor knows."""

from __future__ import annotations

from store.doctor.causes_of_topics import CAUSES_OF_TOPICS
from store.rules.cause import Cause
from store.rules.table import CAUSES as CAUSES_OF_RULES

CAUSES: dict[str, Cause] = CAUSES_OF_RULES | {cause.code: cause for cause in CAUSES_OF_TOPICS}
