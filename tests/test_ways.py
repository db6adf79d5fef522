"""How many modules a question passes from its command to the bytes: every one more is a form that it changes on its way."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

import pulsar_admin
from pulsar_admin import to_json
from pulsar_admin.cli import run
from tests.conftest import Cli
from tests.stores import imported
from tests.worlds import world

HARNESS = {"pulsar_admin.cli", "pulsar_admin.options"}
"""What every command passes before it begins."""


def modules_of(frame: FrameType | None) -> set[str]:
    names = set()
    while frame is not None:
        names.add(str(frame.f_globals.get("__name__", "")))
        frame = frame.f_back
    return {name for name in names - HARNESS if name.startswith("pulsar_admin.")}


def modules_to(function: str, command: list[str], monkeypatch: pytest.MonkeyPatch, last: str) -> set[str]:
    """Return the modules on the longest way of the command to a call of a function of ``os`` by the module ``last``."""
    ways: list[set[str]] = []
    read: Callable[..., object] = getattr(os, function)

    def watched(*values: object) -> object:
        frame: FrameType | None = sys._getframe(1)
        if frame is not None and frame.f_globals["__name__"] == last:
            ways.append(modules_of(frame))
        return read(*values)

    with monkeypatch.context() as patch:
        patch.setattr(os, function, watched)
        assert run(command) == 0
    return max(ways, key=len)


def test_find_by_time_passes_six_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["--store", str(imported("small", "clean")), "topics", "find-by-time", "public/default/plain"]
    way = modules_to(
        "pread", [*command, "--time", "2024-01-01T00:00Z"], monkeypatch, "pulsar_admin.store.db.entry_files"
    )
    assert len(way) <= 6, sorted(way)


def test_an_import_passes_seven_modules(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    source = world("small") / "clean"
    command = ["--store", str(tmp_path / "store"), "store", "import", "standalone", str(source), "--jobs", "1"]
    way = modules_to("preadv", command, monkeypatch, "pulsar_admin.store.scan.files")
    assert len(way) <= 7, sorted(way)


@pytest.mark.parametrize("place", [["-m", "9:3", "-e"], ["-t", "2026-11-21T09:23:15Z", "--rule", "broker"]], ids=str)
def test_a_reset_passes_twelve_modules_to_its_step(place: list[str]) -> None:
    """All modules on the ways to functions that take the request or make the step."""
    ways: list[set[str]] = []

    def watch(frame: FrameType, event: str, value: object) -> None:
        if event != "call":  # the locals of a frame that ends kill Python 3.13.0
            return
        requests = (type(one).__name__ == "ResetRequest" for one in frame.f_locals.values())
        if frame.f_code.co_name == "put_value_step" or any(requests):
            ways.append(modules_of(frame))

    command = [
        "--store",
        str(imported("small", "clean")),
        "topics",
        "reset-cursor",
        "public/default/plain",
        "-s",
        "half",
    ]
    sys.setprofile(watch)
    try:
        assert run([*command, *place, "--dry-run"]) == 0
    finally:
        sys.setprofile(None)
    way = set().union(*ways)
    assert 5 < len(way) <= 12, sorted(way)


@pytest.mark.parametrize(
    "options", [{}, {"explain": True}, {"rule": "broker"}, {"rule": "broker", "explain": True}], ids=str
)
def test_the_answer_is_its_json(cli: Cli, options: dict[str, object]) -> None:
    topic, path = "acme/orders/parts-partition-2", imported("small", "clean")
    words = [f"--{name}" if value is True else f"--{name}={value}" for name, value in options.items()]
    shown = cli(
        "--store", path, "topics", "find-by-time", topic, "--time", "2024-01-01T00:00Z", *words, "-o", "json"
    ).json
    with pulsar_admin.open_store(path) as store:
        found = store.topic(topic).find("2024-01-01T00:00Z", **options)  # type: ignore[arg-type]  # words of its own
    assert to_json(found) == shown
    assert shown["position"]["partitionIndex"] == 2
