"""What mkdocs.yml leaves out: the parts of the site that have a page a task, a format, a group of commands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

PARTS = {"Runbooks by symptom": "runbooks", "By task": "howto", "Commands": "cli", "Bytes on disk": "formats"}


def on_config(config: Any) -> Any:  # Any: mkdocs' settings
    """Put every page of PARTS behind the pages that mkdocs.yml names, by title."""
    docs = Path(config["docs_dir"])
    at = 1 + next(number for number, item in enumerate(config["nav"]) if "tutorial.md" in item.values())
    parts = [{title: pages_of(docs, folder)} for title, folder in PARTS.items()]
    config["nav"][at:at] = parts
    return config


def pages_of(docs: Path, folder: str) -> list[dict[str, str]]:
    """Return title → path of every page in FOLDER."""
    found = {title_of(path): f"{folder}/{path.name}" for path in (docs / folder).glob("*.md")}
    return [{title: found[title]} for title in sorted(found, key=str.lower)]


def title_of(path: Path) -> str:
    """Return the first heading of the page PATH."""
    heading = re.search(r"^# (.*)$", path.read_text(), re.MULTILINE)
    assert heading is not None, path
    return heading[1]
