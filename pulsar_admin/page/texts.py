"""Texts of the page: ages, and names cut to a length."""

from pulsar_admin.visible import clean_text

CLIPPED = 160

_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000))


def age_text(age_ms: int) -> str:
    """Return an age as ``3d 4h``, ``12m 5s``, ``0s``; a future time as ``in 3d 4h``. ``page.js`` does the same."""
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


def clipped(name: object, most: int = CLIPPED) -> str:
    """Return a name with invisible characters shown, its middle left out if longer than ``most`` characters."""
    shown = clean_text(str(name))
    if len(shown) <= most:
        return shown
    end = most // 4
    return f"{shown[: most - end]} … {shown[-end:]} ({len(shown):,} characters)"
