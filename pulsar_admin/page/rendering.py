"""The page as bytes: one file from a template, whose policy lets nothing else load or run.

Every text is escaped as markup, with invisible characters shown (``_shown``); long names are cut (``clipped``).
"""

from __future__ import annotations

import errno
import json
import os
from base64 import b64encode
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from pulsar_admin.columns import size_text, time_text
from pulsar_admin.cures import cure_of, look_first
from pulsar_admin.page import charts, sections
from pulsar_admin.page.texts import age_text, clipped
from pulsar_admin.page.values import Page
from pulsar_admin.store.files import raise_write_error, write_new_file
from pulsar_admin.store.timespec import format_duration_ms
from pulsar_admin.store.wording import counted, plural
from pulsar_admin.typable import typable
from pulsar_admin.visible import clean_text

_FOLDER = Path(__file__).parent
_LOADER: Any = __spec__.loader  # from a folder or from the archive that Spark's executors have
_PALETTES: dict[str, dict[str, str]] = json.loads(_LOADER.get_data(str(_FOLDER / "palettes.json")))
LIGHT, DARK = _PALETTES["light"], _PALETTES["dark"]


def style_of_palettes() -> str:
    """Return both palettes as variables of CSS: what the system prefers, unless the switch says otherwise, and light on paper."""
    light, dark = _variables(LIGHT, "light"), _variables(DARK, "dark")
    return (
        f":root{{{light}}}\n"
        f"@media (prefers-color-scheme:dark){{:root{{{dark}}}}}\n"
        f":root:has(#scheme-light:checked){{{light}}}\n"
        f":root:has(#scheme-dark:checked){{{dark}}}\n"
        f"@media print{{:root,:root:has(input:checked){{{light}}}}}\n"
    )


def _variables(palette: dict[str, str], scheme: str) -> str:
    return f"color-scheme:{scheme};" + "".join(f"--{name}:{value};" for name, value in palette.items())


SEVERITIES = {"critical": "▲", "warning": "◆", "note": "●"}
"""Severity → the sign that says it without colour."""
HEADERS = (
    ("Topic", "text"),
    ("Entries", "number"),
    ("Bytes", "size"),
    ("Ledgers", "number"),
    ("Subscriptions", "number"),
    ("Largest backlog", "number"),
    ("Its subscription", "text"),
    ("Its oldest entry", "age"),
    ("Findings", "number"),
)
_MADE = (
    *(clipped, typable, cure_of, look_first, counted, plural, charts.treemap, charts.fold),
    *(charts.blocks, charts.strip_parts, charts.strip_label, charts.ledger_marks, charts.bars),
    *(
        sections.left_out,
        sections.grouped,
        sections.headline,
        sections.sentence,
        sections.split_code,
        sections.evidence,
    ),
    *(sections.at_stake, sections.logs, sections.namespaces, sections.figure, sections.due_bars),
    *(sections.time_ends, sections.data),
)
"""Filters of the template, by their own names."""


def render_page(page: Page) -> bytes:
    """Return the page as HTML that needs no other file and no network, and JavaScript only to sort, filter and copy."""
    # Neither file has "</": text between these tags is not escaped.
    style = style_of_palettes() + (_FOLDER / "page.css").read_text("utf-8")
    script = (_FOLDER / "page.js").read_text("utf-8")
    policy = (
        f"default-src 'none'; style-src {_digest(style)}; script-src {_digest(script)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    made = _environment().get_template("page.html")
    return made.render(page=page, policy=policy, style=Markup(style), script=Markup(script)).encode()


def _digest(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(_FOLDER / "templates"),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":")}
    made.filters.update((function.__name__, function) for function in _MADE)
    made.filters.update(number="{:,}".format, size=size_text, time=time_text, age=age_text, duration=format_duration_ms)
    made.globals.update(signs=SEVERITIES, states=charts.STATE_NAMES, hatchings=charts.HATCHINGS)
    made.globals.update(headers=HEADERS, rows=sections.ROWS)
    return made


def _shown(value: object) -> object:
    """Return a value as text with invisible characters shown, before escaping; markup stays unchanged."""
    if isinstance(value, Markup):
        return value
    if isinstance(value, float):
        value = f"{value:.2f}".rstrip("0").rstrip(".")
    return clean_text(str(value))


def check_new(path: Path) -> None:
    """Raise AlreadyExists or NotFound if ``write_page`` could not write a file: to be asked before long work."""
    if os.path.lexists(path):
        raise_write_error(OSError(errno.EEXIST, os.strerror(errno.EEXIST)), path)
    if not path.parent.is_dir():
        raise_write_error(OSError(errno.ENOENT, os.strerror(errno.ENOENT)), path)


def write_page(path: Path, page: Page) -> int:
    """Write a page into a new file and return its size in bytes; raises AlreadyExists, StoreBusy, DiskFull."""
    made = render_page(page)
    write_new_file(path, made)
    return len(made)
