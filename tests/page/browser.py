"""Chromium, headless: pages are opened from the disk, and whatever they ask for beside themselves is noted."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Watched:
    """A page in a browser. ``requests``: all but the file itself, none of which is let through; ``errors``: of console and script."""

    def __init__(self, page: Any, file: Path) -> None:  # Any: playwright's page
        self.page = page
        self.requests: list[str] = []
        self.errors: list[str] = []
        page.on("console", lambda message: self.errors.append(message.text))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.route("**/*", lambda route: self._answer(route, file.as_uri()))
        page.goto(file.as_uri())

    def _answer(self, route: Any, own: str) -> None:  # Any: playwright's route
        if route.request.url == own:
            route.continue_()
            return
        self.requests.append(route.request.url)
        route.abort()


@contextmanager
def chromium() -> Iterator[Any]:  # Any: playwright's browser
    """Hand out a headless browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()
