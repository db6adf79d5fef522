"""How a namespace's delayed messages are indexed: the width of a partition and of a tick, and the row that keeps them.

Row (database ``delayed``): key ``policy\\0<tenant/namespace>``; value JSON ``{"format": 1, "granularity": ms, "tick": ms}``. It stands
beside Pulsar's own ``delayed_delivery_policies``, which knows the tick alone.
"""

import json
import re

from pulsar_admin.store.errors import IndexCorrupt, InvalidValue, Refused, Unsupported, reason_of
from pulsar_admin.store.names import LONG_MAX, shell_word
from pulsar_admin.store.timespec import format_duration_ms
from pulsar_admin.store.wording import Answer

FORMAT = 1
SLOTS_MAX = 1 << 20
"""Slots of a wheel: granularity / tick. More would cost memory for nothing, whatever they hold."""
_PREFIX = b"policy\0"
_HINT = "write an integer and a unit: 30s, 5m, 1h, 3d, 2w; a tick also 500ms"
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_WIDTH = re.compile(r"([0-9]+)(ms|[smhdw])")


class IndexRules(Answer, frozen=True):
    """Widths in ms: of a partition of the index, and of a tick of the wheel that it is loaded into."""

    granularity_ms: int = 300_000
    tick_ms: int = 1_000

    @property
    def slots(self) -> int:
        """Slots of the wheel; the last one may be narrower than a tick."""
        return -(-self.granularity_ms // self.tick_ms)


DEFAULT_RULES = IndexRules()


def default_tick_ms(granularity_ms: int) -> int:
    """Return the default tick: 1 s; more whole seconds if a partition would have too many ticks, less in a narrow one."""
    seconds = max(1, -(-granularity_ms // (SLOTS_MAX * 1000)))
    return min(seconds * 1000, granularity_ms)


def make_rules(granularity_ms: int, tick_ms: int | None) -> tuple[IndexRules, list[str]]:
    """Return the rules for these widths, and a warning if the default tick, for a ``tick_ms`` of None, is longer than usual."""
    rules = IndexRules(granularity_ms, default_tick_ms(granularity_ms) if tick_ms is None else tick_ms)
    if tick_ms is not None or rules.tick_ms <= DEFAULT_RULES.tick_ms:
        return rules, []
    return rules, [f"the tick is {format_duration_ms(rules.tick_ms)}: a partition has at most {SLOTS_MAX:,} of them"]


def parse_width_ms(text: str) -> int:
    """Parse ``30s``, ``5m``, ``1h``, ``3d``, ``2w`` or ``500ms`` to milliseconds; raises InvalidValue.

    The seed's grammar: one number, one unit, always a unit, above zero, within 64 bits.
    """
    match = _WIDTH.fullmatch(text.strip().lower())
    if match is None or len(match[1]) > 19:
        raise InvalidValue(f"invalid width {text!r}", hint=_HINT, value=text)
    width_ms = int(match[1]) * _UNIT_MS[match[2]]
    if width_ms <= 0:
        raise InvalidValue(f"width {text!r} must be above 0", hint=_HINT, value=text)
    if width_ms > LONG_MAX:
        raise InvalidValue(f"width {text!r} is beyond 64 bits of milliseconds", hint=_HINT, value=text)
    return width_ms


def check_rules(rules: IndexRules) -> None:
    """Raise InvalidValue unless the rules make a wheel."""
    if rules.granularity_ms <= 0 or rules.tick_ms <= 0:
        raise InvalidValue(
            f"granularity {rules.granularity_ms} ms and tick {rules.tick_ms} ms must be above 0", hint=_HINT
        )
    if rules.tick_ms > rules.granularity_ms:
        raise InvalidValue(
            f"the tick ({rules.tick_ms} ms) may not exceed the granularity ({rules.granularity_ms} ms)",
            hint="give a shorter tick, or a longer granularity with: namespaces enable-delayed-message -p",
            tick=rules.tick_ms,
            granularity=rules.granularity_ms,
        )
    if rules.slots > SLOTS_MAX:
        raise InvalidValue(
            f"{rules.granularity_ms} ms in ticks of {rules.tick_ms} ms are {rules.slots:,} slots, {SLOTS_MAX:,} at most",
            hint="give a longer --tick-duration or a shorter --time-partition-granularity",
            slots=rules.slots,
        )


def check_growth(before: IndexRules, after: IndexRules, *, split: bool) -> None:
    """Raise Refused if the granularity would shrink: partitions on disk would not fit the wheel, unless they are split."""
    if after.granularity_ms < before.granularity_ms and not split:
        raise Refused(
            f"the granularity may grow, never shrink: it is {before.granularity_ms} ms, asked for {after.granularity_ms} ms",
            hint="add --split: the same change repartitions the indexes",
            before=before.granularity_ms,
            after=after.granularity_ms,
        )


def rules_key(namespace: str) -> bytes:
    """Return the key of a namespace's row in ``delayed``."""
    return _PREFIX + namespace.encode()


def encode_rules(rules: IndexRules) -> bytes:
    """Return rules as a row."""
    return json.dumps({"format": FORMAT, "granularity": rules.granularity_ms, "tick": rules.tick_ms}).encode()


def decode_rules(row: bytes, namespace: str) -> IndexRules:
    """Return the rules in a row; raises IndexCorrupt, and Unsupported for one that a newer toolkit wrote."""
    try:
        fields = json.loads(row)
        written, rules = fields["format"], IndexRules(int(fields["granularity"]), int(fields["tick"]))
        if written > FORMAT:
            raise Unsupported(
                f"the delayed policy of {namespace} has format {written}, this toolkit knows up to {FORMAT}",
                hint="use the toolkit that wrote it",
            )
        check_rules(rules)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError, InvalidValue) as error:
        raise IndexCorrupt(
            f"the delayed policy of {namespace} is damaged: {reason_of(error)}",
            hint=f"set it again: pulsar-admin namespaces enable-delayed-message {shell_word(namespace)}",
        ) from error
    return rules
