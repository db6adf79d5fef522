"""The table of causes: every code that the doctor knows."""

from __future__ import annotations

from store.doctor.causes_of_data import CAUSES_OF_DATA
from store.doctor.causes_of_store import CAUSES_OF_STORE
from store.doctor.causes_of_topics import CAUSES_OF_TOPICS
from store.rules.cause import Cause
from store.rules.table import RULES

CAUSES: dict[str, Cause] = {
    cause.code: cause
    for cause in (*(rule.cause for rule in RULES), *CAUSES_OF_DATA, *CAUSES_OF_TOPICS, *CAUSES_OF_STORE)
}
