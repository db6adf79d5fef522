"""The site builds without a warning, every page is in it, and every link and anchor of its pages is there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
RUNBOOKS = (
    *("disk-full", "stuck-subscription", "expired", "delayed-late", "after-a-crash", "ledger-lost"),
    *("replay-two-hours", "find-a-message", "compacted-key-missing", "move-a-topic", "milvus-disk-full"),
    *("bookie-does-not-start", "zookeeper-does-not-start"),
)


def test_the_site_builds_strictly(tmp_path: Path) -> None:
    pytest.importorskip("material")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    pages = {path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")}
    assert {page for page in pages if not (tmp_path / _built(page)).is_file()} == set()
    start = (tmp_path / "index.html").read_text()
    assert [page for page in pages if f'href="{_built(page)}"' not in start and page.name != "README.md"] == []


def _built(page: Path) -> Path:
    return page.with_name("index.html") if page.name == "README.md" else page.with_suffix(".html")


@pytest.mark.parametrize("name", RUNBOOKS)
def test_a_runbook_has_its_parts(name: str) -> None:
    """Symptom, two commands at most, what to read, how to check."""
    text = (ROOT / "docs" / "runbooks" / f"{name}.md").read_text()
    assert "**Symptom.**" in text
    for heading in ("## Two commands", "## Read it", "## Change it", "## Check"):
        assert f"\n{heading}" in text
    first = text.partition("## Two commands")[2].partition("\n## ")[0]
    assert 1 <= first.count("\n$ pulsar-admin ") <= 2
    assert text.count("--dry-run") or name == "after-a-crash"
