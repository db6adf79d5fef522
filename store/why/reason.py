"""What an answer to "why" is made of: reasons, each with a code that is for ever, a sentence, evidence and the next command."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pulsar_admin.store.wording import Answer


class Reason(Answer, frozen=True):
    """Why. ``evidence``: the figures that the sentence is made of; ``command``: what to type next, empty where nothing is to be done.

    ``code``: of a row of ``store.rules.subscriptions``, or of ``store.rules.holders``.
    """

    SHOWN = ("code", "sentence")

    code: str
    sentence: str
    evidence: Mapping[str, Any]  # Any: JSON values
    command: str = ""
