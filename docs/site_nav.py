"""What mkdocs.yml leaves out: the changelog, the parts of the site that have a page a task, a format, a command group or a finding, and
which lines of a console are commands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

PARTS = {"Commands": "cli", "Findings": "doctor", "Bytes on disk": "formats"}
"""Folders whose pages are listed by title."""
SOURCE = Path(__file__).resolve().parent


def on_config(config: Any) -> Any:  # Any: mkdocs' settings
    """Put the runbooks and tasks, in the order in which README.md lists them, and every page of PARTS behind the first pages."""
    symptoms, tasks = (
        (SOURCE / "README.md").read_text().partition(f"## {name}\n")[2].partition("\n## ")[0]
        for name in ("By symptom", "By task")
    )
    groups = re.findall(r"^(\w[^\n]*):\n\n((?:[- ].*\n)+)", tasks, re.MULTILINE)
    parts = [{title: pages_of(SOURCE, folder)} for title, folder in PARTS.items()]
    config["nav"][1:1] = [
        {"Runbooks": links_in(symptoms, "runbooks")},
        {"Tasks": [{title: links_in(lines, "howto")} for title, lines in groups]},
        *parts,
    ]
    config["site_name"] += " " + version()
    return config


def on_files(files: Any, config: Any) -> Any:  # Any: mkdocs' files
    """Add the changelog, whose links start at the root of the repository."""
    from mkdocs.structure.files import File

    text = (SOURCE.parent / "CHANGELOG.md").read_text()
    files.append(File.generated(config, "changelog.md", content=text.replace("](docs/", "](")))
    return files


def links_in(text: str, folder: str) -> list[dict[str, str]]:
    """Return the links to pages of ``folder``: title → path. Other pages are in mkdocs.yml."""
    return [{title: path} for title, path in re.findall(r"\[([^\]]+)\]\((\S+\.md)\)", text) if path.startswith(folder)]


def pages_of(docs: Path, folder: str) -> list[dict[str, str]]:
    """Return title → path of every page in ``folder``."""
    found = {title_of(path): f"{folder}/{path.name}" for path in (docs / folder).glob("*.md")}
    return [{title: found[title]} for title in sorted(found, key=str.lower)]


def title_of(path: Path) -> str:
    """Return the first heading of the page ``path``."""
    heading = re.search(r"^# (.*)$", path.read_text(), re.MULTILINE)
    assert heading is not None, path
    return heading[1]


def version() -> str:
    """Return the version of the program, as pyproject.toml has it."""
    found = re.search(r'^version = "(.*)"', (SOURCE.parent / "pyproject.toml").read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


def on_page_content(html: str, **_: Any) -> str:  # Any: mkdocs' page, settings and files
    """Mark commands that a command printed, behind blanks, as output: the copy button leaves them out (``site.css``)."""
    return html.replace('<span class="gp">  $', '<span class="gp go">  $')
