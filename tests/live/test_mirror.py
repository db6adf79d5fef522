"""What the real pulsar-admin has and says, against ours."""

from __future__ import annotations

import pytest

from tests.live import upstream

pytestmark = pytest.mark.live


def test_upstreams_commands_are_those_of_the_checked_in_file() -> None:
    assert upstream.render(upstream.commands()) == upstream.FILE.read_text(), "python -m tests.live.upstream"
