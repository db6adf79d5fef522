"""Synthetic clusters in genuine Pulsar files: a seeded plan, a compiled kernel that writes entry logs, and the metadata around them.

What a generated entry holds is a pure function of (seed, topic number, entry number): ``bench.generate.draws``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.generate.cluster import GenerateResult


def generate(directory: Path | str, *words: object) -> GenerateResult:
    """Write what ``python -m bench.generate DIRECTORY WORDS`` writes; raises what is wrong as click's errors or StoreErrors."""
    from bench.generate.__main__ import command

    made: GenerateResult = command.main([str(directory), *map(str, words)], standalone_mode=False)
    return made
