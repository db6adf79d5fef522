"""The benches that ``python -m bench`` names are there, each is described, and what it is not given it says."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from bench.__main__ import MEASURES

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("name", MEASURES)
def test_every_bench_is_there_and_described(name: str) -> None:
    module, _, function = MEASURES[name].partition(":")
    assert callable(getattr(importlib.import_module(module), function))
    assert f"| `{name}` |" in (REPOSITORY / "docs" / "benchmarks.md").read_text()


@pytest.mark.deep
def test_what_a_command_takes_is_that_of_processes_forked_for_it_too(tmp_path: Path) -> None:
    script = tmp_path / "forks.py"
    script.write_text(
        "import multiprocessing, time\n"
        "def work():\n"
        "    kept = b'x' * (200 << 20)\n"
        "    while time.process_time() < 0.5:\n"
        "        pass\n"
        "if __name__ == '__main__':\n"
        "    process = multiprocessing.get_context('forkserver').Process(target=work)\n"
        "    process.start()\n"
        "    process.join()\n"
    )
    code = f"from bench.topics import watch; print(*watch([{sys.executable!r}, {str(script)!r}]))"
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    _, processor_seconds, anonymous_bytes = map(float, done.stdout.split())
    assert processor_seconds > 0.5
    assert anonymous_bytes > 200 << 20
