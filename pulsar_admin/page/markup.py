"""HTML and SVG that cannot be broken out of: every text and attribute is escaped where it becomes markup.

Only ``element`` and ``joined`` make ``Markup``; whatever is no ``Markup`` is text from data, with what is not seen made visible
(``pulsar_admin.visible``), and long names are cut by ``clipped``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from html import escape

from pulsar_admin.visible import clean_lines, clean_text

CLIPPED = 160
_VOID = frozenset({"meta", "link", "input", "br", "rect", "line", "path", "use"})


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Child = object
"""Markup, a text or number to be escaped, or None, which is left out."""


def text(value: object) -> Markup:
    """Return VALUE as escaped text; Markup stays as it is."""
    if isinstance(value, Markup):
        return value
    return Markup(escape(clean_text(str(value)), quote=True))


def joined(children: Iterable[Child]) -> Markup:
    """Return CHILDREN one behind the other."""
    return Markup("".join(text(child) for child in children if child is not None))


def element(tag: str, *children: Child, **attributes: object) -> Markup:
    """Return an element. ``class_`` is ``class``, ``data_x`` ``data-x``; None and False leave an attribute out, True has no value."""
    shown = "".join(_attribute(name, value) for name, value in attributes.items() if value not in (None, False))
    if tag in _VOID and not children:
        return Markup(f"<{tag}{shown}/>")
    return Markup(f"<{tag}{shown}>{joined(children)}</{tag}>")


def _attribute(name: str, value: object) -> str:
    name = name.rstrip("_").replace("_", "-")
    if value is True:
        return f" {name}"
    if isinstance(value, float):
        value = f"{value:.2f}".rstrip("0").rstrip(".")
    return f' {name}="{escape(clean_text(str(value)), quote=True)}"'


def clipped(name: object, most: int = CLIPPED) -> str:
    """Return NAME with what is not seen made visible, and with its middle left out where it is longer than MOST characters."""
    shown = clean_text(str(name))
    if len(shown) <= most:
        return shown
    end = most // 4
    return f"{shown[: most - end]} … {shown[-end:]} ({len(shown):,} characters)"


def data_block(identity: str, value: object) -> Markup:
    """Return VALUE as a block of JSON that no browser runs; nothing in it ends the block or begins a comment."""
    found = clean_lines(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
    for character in "<>&":
        found = found.replace(character, f"\\u{ord(character):04x}")
    return Markup(f'<script type="application/json" id="{escape(identity)}">{found}</script>')
