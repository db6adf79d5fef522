"""Makes the pictures of docs/images again: what commands print, and the doctor's page in a browser. Into build/pictures, to be
looked at before a release: screens of two sizes, and pages of the site on a desk and a phone, light and dark.

``make screenshots`` runs it, after ``make site``. It needs Chromium, and the packages playwright and pillow. Its data are the recorded
worlds of tests/golden; the doctor looks at one that was killed, that lost all journals but the last, and has zeros in two entry logs.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.page.browser import CHROMIUM, chromium  # noqa: E402
from tests.test_cli_output import on_terminal  # noqa: E402
from tests.worlds import world  # noqa: E402

IMAGES = ROOT / "docs" / "images"
COPIED, NOW = "2026-11-21T11:20:00Z", "2026-11-21T12:00:00Z"
_SHOWN = "/data/pulsar"  # instead of the scratch directory
LOST = (("0.log", 245_000, 268_000), ("1.log", 6_143_000, 6_149_000))
TERMINALS: dict[str, tuple[str, ...]] = {
    "screen-overview": ("overview",),
    "screen-why": ("topics", "why", "public/default/plain", "-s", "crash-holes"),
    "screen-usage": ("store", "usage", "--why", "--top", "4"),
    "screen-timeline": ("topics", "timeline", "public/default/steady"),
}
DOCTOR_HEIGHT, STRIPS_HEIGHT = 1240, 800
PAGES = {
    "screen-doctor": ("light", "header", DOCTOR_HEIGHT),
    "screen-doctor-dark": ("dark", "header", DOCTOR_HEIGHT),
    "screen-doctor-strips": ("light", "#subscriptions", STRIPS_HEIGHT),
}
SCREENS: dict[str, tuple[str, ...]] = {
    "overview": ("overview",),
    "doctor": ("doctor",),
    "why": ("topics", "why", "public/default/plain"),
    "usage": ("store", "usage"),
    "subscriptions": ("topics", "subscriptions", "--all-topics"),
    "read": ("topics", "read", "public/default/avro", "-n", "12"),
}
SIZES = ((80, 24), (140, 40))
SITE = {"first": "index.html", "commands": "cli/topics.html#topics-read", "finding": "doctor/clock-behind.html"}
WINDOWS = ((1440, 900), (390, 844))
LOOKED_AT = ROOT / "build" / "pictures"
_COLUMNS, _ROWS = 110, 50
_SCALE = 1.5
_FRAME = """<!DOCTYPE html><meta charset="utf-8"><style>
body{{margin:0;background:#0e131a}}
main{{display:inline-block;padding:18px 22px 20px;background:#171f29;color:#e7ecf3;min-width:900px}}
p{{margin:0 0 12px;font:700 13px/1 "DejaVu Sans Mono",monospace;color:#8fbcff}}
pre{{margin:0;font:13px/1.17 "DejaVu Sans Mono",Menlo,Consolas,monospace}}
</style><main><p>$ {command}</p><pre>{code}</pre></main>"""


def main() -> None:
    """Write the pictures whose names are given, or all of them."""
    lacking = [] if CHROMIUM else ["Chromium (apt install chromium)"]
    lacking += [f"{name} (pip install {name})" for name in ("playwright", "pillow") if not _has(name)]
    lacking += [] if (ROOT / "site" / "index.html").exists() else ["the site (make site)"]
    if lacking:
        raise SystemExit(f"error: the pictures need {', '.join(lacking)}")
    wanted = sys.argv[1:] or [*TERMINALS, *PAGES, *SCREENS, *SITE]
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        healthy, faulty = _stores(Path(folder))
        for name, words in TERMINALS.items():
            if name in wanted:
                _save(IMAGES / name, _terminal(browser, words, healthy, (_COLUMNS, _ROWS)))
        for name, (scheme, part, height) in PAGES.items():
            if name in wanted:
                _save(IMAGES / name, _doctor(browser, faulty, scheme, part, height))
        LOOKED_AT.mkdir(parents=True, exist_ok=True)
        for name, words in SCREENS.items():
            for size in SIZES if name in wanted else ():
                picture = _terminal(browser, words, healthy, size)
                _save(LOOKED_AT / f"{name}-{size[0]}x{size[1]}", picture)
        for name, page in SITE.items():
            for width, height in WINDOWS if name in wanted else ():
                for scheme in ("light", "dark"):
                    window = {"width": width, "height": height}
                    tab = browser.new_context(color_scheme=scheme, viewport=window).new_page()
                    tab.goto(f"{(ROOT / 'site').as_uri()}/{page}")
                    _save(LOOKED_AT / f"site-{name}-{width}-{scheme}", tab.screenshot())


def _has(package: str) -> bool:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return bool(version(package))
    except PackageNotFoundError:
        return False


def _stores(folder: Path) -> list[Path]:
    """Return two folders with a store: of a cluster that was killed, and of the same with a part of its files lost."""
    folders = [folder / "healthy", folder / "faulty"]
    for target in folders:
        shutil.copytree(world("small") / "crashed", target / "standalone")
        subprocess.run(["chmod", "-R", "u+w", str(target)], check=True)
        current = target / "standalone" / "bookkeeper" / "current"
        if target.name == "faulty":
            for name, start, end in LOST:
                with (current / name).open("r+b") as log:
                    log.seek(start)
                    log.write(bytes(end - start))
            for journal in sorted(current.glob("*.txn"))[:-1]:
                journal.unlink()
        _run(("-q", "--now", COPIED, "store", "import", "standalone", "standalone"), target)
    return folders


def _run(words: Sequence[str], folder: Path) -> None:
    command = [str(Path(sys.executable).with_name("pulsar-admin")), *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(done.stderr)


def _terminal(
    browser: Any, words: Sequence[str], folder: Path, size: tuple[int, int]
) -> bytes:  # Any: playwright's browser
    """Return the picture of what a command shows on a terminal of that size."""
    from rich.console import Console
    from rich.terminal_theme import MONOKAI
    from rich.text import Text

    store = folder / "pulsar-store"
    given = ("--store", str(store), "--now", NOW, "--no-progress", *words)
    text = on_terminal(size[0], *given, rows=size[1], program="pulsar_admin", PAGER="cat")
    for typed, shown in ((f" --store {store}", ""), (f" --now {NOW}", ""), (str(folder), _SHOWN)):
        text = text.replace(typed, shown)
    console = Console(record=True, width=size[0], file=StringIO())
    console.print(Text.from_ansi(text.rstrip()), soft_wrap=True)
    code = console.export_html(theme=MONOKAI, inline_styles=True, code_format="{code}")
    page = browser.new_context(device_scale_factor=_SCALE).new_page()
    page.set_content(_FRAME.format(command=f"pulsar-admin {' '.join(words)}", code=code))
    picture: bytes = page.locator("main").screenshot()
    return picture


def _doctor(browser: Any, folder: Path, scheme: str, part: str, height: int) -> bytes:  # Any: playwright's browser
    """Return ``height`` lines of the page from ``part`` on."""
    file = folder / "doctor.html"
    if not file.exists():
        _run(("--now", NOW, "doctor", "--html", file.name), folder)
        file.write_text(file.read_text().replace(str(folder), _SHOWN))
    page = browser.new_context(color_scheme=scheme, viewport={"width": 1280, "height": height}).new_page()
    page.goto(file.as_uri())
    top = 0 if part == "header" else page.locator(part).bounding_box()["y"]
    picture: bytes = page.screenshot(full_page=True, clip={"x": 0, "y": top, "width": 1280, "height": height})
    return picture


def _save(file: Path, picture: bytes) -> None:
    """Write ``picture`` with the 256 colours that it needs most: a third of the bytes, and nobody sees it."""
    from PIL import Image

    made = Image.open(BytesIO(picture)).convert("RGB").quantize(256, dither=Image.Dither.NONE)
    made.save(file := file.with_suffix(".png"), optimize=True)
    print(f"{file.name} {made.width} x {made.height}, {file.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
