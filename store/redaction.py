"""What ``--redact`` shows instead of payloads, keys, property values and decoded values: SHA-256 and length.

Equal contents stay recognizable as equal, also from one run to the next. The digest of a value that can be guessed, such as a short
key, can be found by trying: it hides from who reads along, not from who looks for something known.
"""

from __future__ import annotations

import json
from hashlib import sha256


def redact(value: bytes | str) -> str:
    """Return what is shown for VALUE."""
    data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    return f"sha256:{sha256(data).hexdigest()}:{len(data)}"


def redact_value(value: object) -> str:
    """Return what is shown for a decoded VALUE: of its JSON."""
    return redact(json.dumps(value, separators=(",", ":"), ensure_ascii=False))
