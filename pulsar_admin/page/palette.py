"""The colours of the page: one name, a value for light and one for dark. ``CONTRASTS`` says what must be told apart from what."""

from __future__ import annotations

LIGHT = {
    "ground": "#f4f6f9",
    "card": "#ffffff",
    "raised": "#eef2f7",
    "ink": "#17212d",
    "muted": "#4f5d6d",
    "line": "#d5dde6",
    "accent": "#0b5cad",
    "critical": "#b01e24",
    "warning": "#8a5200",
    "note": "#3a5878",
    "critical-tint": "#fdecec",
    "warning-tint": "#fdf3e1",
    "note-tint": "#eaf1f8",
    "tile": "#c6dbf3",
    "tile-done": "#dfe9f4",
    "tile-dead": "#f3d5d3",
    "tile-ink": "#12263f",
    "acknowledged": "#7f92a6",
    "one-by-one": "#24805c",
    "unacknowledged": "#cf6c00",
    "delayed": "#6a4cc0",
    "lost": "#b01e24",
    "messages": "#2368b0",
    "bytes": "#24805c",
}
DARK = {
    "ground": "#0e131a",
    "card": "#171f29",
    "raised": "#202a36",
    "ink": "#e7ecf3",
    "muted": "#a7b4c3",
    "line": "#2e3a48",
    "accent": "#7db9ff",
    "critical": "#ff9a92",
    "warning": "#f3c469",
    "note": "#a4c8ec",
    "critical-tint": "#341a1d",
    "warning-tint": "#33270f",
    "note-tint": "#1a2837",
    "tile": "#214a7c",
    "tile-done": "#2b3b4e",
    "tile-dead": "#5e2a2d",
    "tile-ink": "#f0f4fa",
    "acknowledged": "#6c8096",
    "one-by-one": "#53c397",
    "unacknowledged": "#f09a44",
    "delayed": "#ad98ff",
    "lost": "#ff7f76",
    "messages": "#6fb1fb",
    "bytes": "#53c397",
}

TEXT, GRAPHIC = 4.5, 3.0
"""Contrasts that WCAG 2.2 asks for (AA): of text, and of what a chart is read by."""
_TINTS = ("critical", "warning", "note")
CONTRASTS: tuple[tuple[str, str, float], ...] = (
    *((ink, ground, TEXT) for ink in ("ink", "muted", "accent") for ground in ("ground", "card", "raised")),
    *((name, ground, TEXT) for name in _TINTS for ground in ("card", f"{name}-tint")),
    *(("tile-ink", tile, TEXT) for tile in ("tile", "tile-done", "tile-dead")),
    *((state, "card", GRAPHIC) for state in ("acknowledged", "one-by-one", "unacknowledged", "delayed", "lost")),
    ("messages", "card", GRAPHIC),
    ("bytes", "card", GRAPHIC),
)


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
