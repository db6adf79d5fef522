"""Every changing command, disturbed at calls that change a file: a sample of the points here, all of them in ``make test-deep``."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.points import KINDS, Bench, points
from tests.faults.scenarios import SCENARIOS, Scenario
from tests.faults.server import Fault, Server

pytestmark = [pytest.mark.faults, pytest.mark.usefixtures("damages_stores")]
NAMED = {scenario.name: scenario for scenario in SCENARIOS}
SAMPLED = {
    "import": (2, 4),
    "import copied": (0, 2),
    "import linked": (0, 2),
    "set-message-ttl": (3, 4),
    "load": (2, 4),
    "delayed build": (2, 0),
    "rebuild": (2, 0),
    "clone": (1, 2),
    "export in place": (0, 5),
}
"""Commands of the short form, at how many points each is disturbed in one of all ways, and at how many of its calls it is killed: at the
last of each of as many parts. Those of an export in place have made its backup, entry logs, index of entries, index of ledgers, and all."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("faults")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    (folder / "server").mkdir()
    with Server(folder / "server") as running:
        yield running


@pytest.mark.parametrize("name", SAMPLED)
def test_some_points(name: str, server: Server, folder: Path) -> None:
    with Bench(server, folder, NAMED[name]) as bench:
        sample: list[Fault] = []
        for number, kinds in zip(SAMPLED[name], (KINDS, KINDS[:1]), strict=True):
            every = list(points(bench.plain.calls, kinds))
            sample += [every[len(every) * part // number - 1] for part in range(1, number + 1)]
        tally = bench.try_all(sample)
    assert not tally.losses, "\n".join(map(str, tally.losses))


@pytest.mark.deep
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_every_point(scenario: Scenario, server: Server, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Bench(server, folder, scenario) as bench:
        tally = bench.try_all(points(bench.plain.calls))
    with capsys.disabled():
        print(f"\n{tally}")
    assert not tally.losses, "\n".join(map(str, tally.losses))


def test_a_loss_is_told(server: Server, folder: Path) -> None:
    """The harness itself: rows of the index that are gone, as if the command had lost them."""
    with Bench(server, folder, NAMED["skip"]) as bench:
        server.call("lose_rows", bench.prepared / "store")
        losses = [loss.what for loss in bench.try_all([Fault("kill", 1)]).losses]
    assert any(what.startswith("neither the old state nor the new one: store.entries") for what in losses)
    assert any(what.startswith("store check: ") for what in losses)


def test_a_commit_that_the_disk_refuses_is_a_full_disk(server: Server, folder: Path) -> None:
    """LMDB's environment is dead after its meta page failed: what comes after must not say that the store is damaged."""
    with Bench(server, folder, NAMED["import linked"]) as bench:
        calls = [call.rpartition("/")[2] == "data.mdb" and call.partition(" ")[0] for call in bench.plain.calls]
        meta_pages = [
            number + 2
            for number in range(len(calls) - 1)
            if calls[number] != "pwrite" and calls[number + 1] == "pwrite"
        ]
        tally = bench.try_all(Fault("fail-on", number, "ENOSPC") for number in meta_pages[-2:])
    assert len(meta_pages) >= 5
    assert not tally.losses, "\n".join(map(str, tally.losses))


def test_a_salvage_stopped_at_its_last_rename_is_finished(server: Server, folder: Path) -> None:
    """The new index is in its place and nothing else is to be done; and one that waited while another salvaged does nothing."""
    with Bench(server, folder, NAMED["salvage"]) as bench:
        calls = bench.plain.calls
        last = max(at for at, call in enumerate(calls, 1) if call.endswith("/ledgers-before-salvage"))
        locks = next(at for at, call in enumerate(calls, 1) if call.endswith("/ledgers/LOCK"))
        tally = bench.try_all([Fault("kill", last), Fault("stop", locks)])
    assert not tally.losses, "\n".join(map(str, tally.losses))
