"""The process of one target: ``python -m tests.fuzz.one TARGET SECONDS EXECUTIONS SEED ENGINE DIRECTORY``."""

import json
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

_MOST_BYTES = 8192
_INSTRUMENTED = [
    "pulsar_admin.store.codec",
    "pulsar_admin.store.changes.plan",
    "pulsar_admin.store.dump.source",
    "pulsar_admin.store.sources.zookeeper",
    "pulsar_admin.store.names",
    "pulsar_admin.store.timespec",
]
_INSTRUMENTED += [
    "pulsar_admin.store.db.tree",
    "pulsar_admin.store.codec.strict_values",
    "pulsar_admin.store.changes.resets",
    "pulsar_admin.config",
]


def main() -> None:
    name, seconds, executions, seed, engine, work = sys.argv[1:]
    run = _atheris() if engine != "plain" else None
    if run is None and engine == "atheris":
        sys.exit("atheris is not installed: pip install -e '.[fuzz]'")
    (run or _plain)(name, int(seconds), int(executions), int(seed), Path(work))


Run = Callable[[str, int, int, int, Path], None]


class _Report:
    """Writes what is known of a run every second, as libFuzzer ends the process by itself."""

    def __init__(self, name: str, work: Path) -> None:
        from tests.fuzz.running import Runner, inputs_of

        self.inputs = inputs_of(name)
        self.runner = Runner(name)
        self.runner.warm_up(self.inputs)
        self._work = work
        self._began = self._wrote = time.monotonic()
        self._findings = 0
        self.coverage = 0
        (work / "findings").mkdir(parents=True, exist_ok=True)

    def run(self, data: bytes) -> None:
        runner = self.runner
        runner.run(data)
        if runner.executions % 64 == 0 or len(runner.found) > self._findings:
            self._findings = len(runner.found)
            if time.monotonic() - self._wrote > 1 or runner.executions < 128:
                self.write()

    def write(self) -> None:
        runner = self.runner
        self._wrote = time.monotonic()
        row = {
            "target": runner.name,
            "executions": runner.executions,
            "perSecond": round(runner.executions / max(self._wrote - self._began, 0.001)),
            "coverage": self.coverage,
            "slowestMs": round(1000 * runner.slowest_seconds, 1),
            "mostMiB": round(runner.most_bytes / (1 << 20), 1),
            "findings": len(runner.found),
            "died": False,
        }
        scratch = self._work / f"{runner.name}.new"
        scratch.write_text(json.dumps(row))
        scratch.rename(self._work / f"{runner.name}.json")
        runner.save(self._work / "findings")


def _plain(name: str, seconds: int, executions: int, seed: int, work: Path) -> None:
    from tests.fuzz.running import mutated

    report = _Report(name, work)
    ends = time.monotonic() + seconds
    for data in mutated(name, random.Random(seed), report.inputs):
        report.run(data)
        if time.monotonic() > ends or report.runner.executions == executions:
            break
    report.write()


def _atheris() -> Run | None:
    with suppress(ImportError):
        import atheris

        with atheris.instrument_imports(include=["store", "commands", "pulsar_admin"], exclude=list(_apart())):
            import tests.fuzz.targets  # noqa: F401  # what is fuzzed is imported here
        return _guided
    return None


def _apart() -> Iterator[str]:
    """Yield the modules of ours that are not fuzzed: numba cannot compile what is instrumented."""
    root = Path(__file__).resolve().parents[2]
    for file in (file for package in ("store", "commands", "pulsar_admin") for file in (root / package).rglob("*.py")):
        name = ".".join(file.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        if not any(name == part or name.startswith(part + ".") for part in _INSTRUMENTED):
            yield name


def _guided(name: str, seconds: int, executions: int, seed: int, work: Path) -> None:
    import atheris

    from tests.fuzz.running import CORPUS, mutated
    from tests.fuzz.targets import TARGETS

    report = _Report(name, work)
    target = TARGETS[name]

    source = random.Random(seed)  # one a run: making one costs more than most inputs

    def mutate(data: bytes, most: int, number: int) -> bytes:
        if source.randrange(3) == 0:
            changed: bytes = atheris.Mutate(data, most)
        else:
            changed = next(mutated(name, source, [data, *report.inputs[:8]] if source.randrange(4) == 0 else [data]))
        return (target.seal(changed) if source.randrange(4) else changed)[:most]

    def run(data: bytes) -> None:
        report.run(data)

    kept = work / "corpus" / name
    kept.mkdir(parents=True, exist_ok=True)
    arguments: list[Any] = [
        "fuzz",
        f"-max_total_time={seconds}",
        *([f"-runs={executions}"] if executions else []),
        f"-seed={seed}",
        f"-max_len={_MOST_BYTES}",
        "-timeout=60",
        "-rss_limit_mb=3000",
        "-print_final_stats=1",
        f"-artifact_prefix={work / 'findings'}/{name}--died-",
        str(kept),
        str(CORPUS / name),
    ]
    atheris.Setup([str(argument) for argument in arguments], run, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
