"""How long ago: a duration in its two largest units, as people say it."""

from __future__ import annotations

_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000))


def age_text(age_ms: int) -> str:
    """Return AGE_MS as ``3d 4h``, ``12m 5s``, ``0s``; what lies ahead as ``in 3d 4h``. ``page.js`` does the same."""
    rest, parts = abs(age_ms), []
    for index, (unit, unit_ms) in enumerate(_UNITS):
        if rest < unit_ms:
            continue
        parts = [f"{rest // unit_ms:,}{unit}"]
        if index + 1 < len(_UNITS):
            small, small_ms = _UNITS[index + 1]
            count = rest % unit_ms // small_ms
            parts += [f"{count}{small}"] if count else []
        break
    text = " ".join(parts) or "0s"
    return f"in {text}" if age_ms <= -1000 else text
