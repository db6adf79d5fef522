"""A command's answer in every format, without the command asking which one it is."""

from pathlib import Path

from tests.conftest import Cli

_PLAIN = "public/default/plain"


def test_a_screen_gives_way_where_something_is_asked_of_rows(cli: Cli, demo_store: Path) -> None:
    why = ("--store", demo_store, "topics", "why", _PLAIN, "-s", "holes")
    assert "subscription holes" in cli(*why).stdout
    assert cli(*why, "--columns", "subscription").stdout.split() == ["SUBSCRIPTION", "holes"]
    assert cli(*why, "-o", "csv").stdout.startswith("TOPIC,SUBSCRIPTION,")
