"""Number options: range-checked when parsed, so that no later code checks for 64 bits."""

import math
from typing import TYPE_CHECKING, NoReturn

import click

from pulsar_admin.store.names import LONG_MAX

if TYPE_CHECKING:
    _ParamType = click.ParamType[object]
else:
    _ParamType = click.ParamType  # older releases of click cannot be subscripted

_SHOWN = 40


class WholeNumber(_ParamType):
    """A whole number from ``low`` to ``high`` in ASCII digits; Python itself also accepts ``1_000``, ``٣`` and any length."""

    name = "integer"

    def __init__(self, low: int = -LONG_MAX, high: int = LONG_MAX) -> None:
        self._low = low
        self._high = high

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> object:
        if not isinstance(value, str):
            return value
        digits = value[1:] if value[:1] in ("-", "+") else value
        if not digits.isascii() or not digits.isdigit():
            self.fail(f"{value[:_SHOWN]!r} is not a valid integer.", param, ctx)
        digits = digits.lstrip("0") or "0"
        number = int(digits) if len(digits) <= len(str(LONG_MAX)) else LONG_MAX + 1
        number = -number if value.startswith("-") else number
        if not self._low <= number <= self._high:
            shown = value if len(value) <= _SHOWN else f"{value[:_SHOWN]}…"
            self.fail(f"{shown} is not {self._range()}.", param, ctx)
        return number

    def _range(self) -> str:
        if self._high == LONG_MAX:
            return "a 64-bit number" + ("" if self._low == -LONG_MAX else f" of {self._low} or more")
        return f"from {self._low} to {self._high}"


class Number(_ParamType):
    """A finite number (no NaN) from ``low`` to ``high``."""

    name = "float"

    def __init__(self, low: float = -math.inf, high: float = math.inf) -> None:
        self._low = low
        self._high = high

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> object:
        if not isinstance(value, str):
            return value
        try:
            number = float(value)
        except ValueError:
            self._refuse(value, param, ctx)
        if not math.isfinite(number):
            self._refuse(value, param, ctx)
        if not self._low <= number <= self._high:
            self.fail(f"{number:g} is not from {self._low:g} to {self._high:g}.", param, ctx)
        return number

    def _refuse(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> NoReturn:
        self.fail(f"{value[:_SHOWN]!r} is not a valid float.", param, ctx)


def whole(low: int = 0, high: int = LONG_MAX) -> WholeNumber:
    """Return the option type of whole numbers from ``low`` to ``high``."""
    return WholeNumber(low, high)


INTEGER = WholeNumber()
NUMBER = Number()
PERCENT = Number(0, 100)
