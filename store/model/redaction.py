"""What ``--redact`` shows instead of payloads, keys, property values and decoded values: SHA-256 and length.

Equal contents stay recognizable as equal, also from one run to the next. The digest of a value that can be guessed, such as a short
key, can be found by trying: it hides from who reads along, not from who looks for something known.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

_PROPERTIES = frozenset({"properties", "cursorProperties", "subscriptionProperties"})
"""Keys of JSON under which metadata has what users name and fill as they like."""


def redact(value: bytes | str) -> str:
    """Return what is shown for VALUE."""
    data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    return f"sha256:{sha256(data).hexdigest()}:{len(data)}"


def redact_value(value: object) -> str:
    """Return what is shown for a decoded VALUE: of its JSON."""
    return redact(json.dumps(value, separators=(",", ":"), ensure_ascii=False))


def hide_secrets_in(value: Any) -> Any:  # Any: JSON values
    """Return JSON with the digests of secrets in their place: members such as ``s3ManagedLedgerOffloadCredentialSecret``."""
    if isinstance(value, list):
        return [hide_secrets_in(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: redact(item) if key.lower().endswith("secret") and isinstance(item, str) else hide_secrets_in(item)
        for key, item in value.items()
    }


def redact_metadata(value: Any) -> Any:  # Any: JSON values
    """Return JSON of metadata with the texts of properties redacted, wherever they stand; numbers, which are positions, stay."""
    if isinstance(value, list):
        return [redact_metadata(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _redact_texts(item) if key in _PROPERTIES and isinstance(item, dict) else redact_metadata(item)
        for key, item in value.items()
    }


def _redact_texts(properties: dict[str, Any]) -> dict[str, Any]:  # Any: JSON values
    return {name: redact(value) if isinstance(value, str) else value for name, value in properties.items()}
