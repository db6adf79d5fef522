"""What must not be printed: passwords and tokens in URLs and settings, each replaced by ``***``."""

import re
from functools import cache

HIDDEN = "***"

_WORDS = r"token|passw(?:or)?d|passphrase|secret|credential|authorization|(?:access|account|api)[._-]?key|signature"
_NAMES = rf"(?!credential_kind\b)[\w.-]*(?:{_WORDS})[\w.-]*"


@cache
def _patterns() -> tuple[tuple[re.Pattern[str], str], ...]:
    """Return patterns of secrets with their replacements; compiled on use: 1 ms, and few messages hold an = or @."""
    return (
        # key:secret@ of a URL of objects: a secret may have slashes, and a path that was made of a URL has one less
        (
            re.compile(r"(\b(?:s3[an]?|gs|gcs|abfss?|wasbs?|hdfs):/{1,2})[^\s/?#'\":@]+:[^\s?#'\"@]*@", re.IGNORECASE),
            rf"\1{HIDDEN}@",
        ),
        # user:password@ of any URL
        (re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^\s/?#'\"]*@", re.IGNORECASE), rf"\1{HIDDEN}@"),
        # Spark Connect sends every parameter of its URL as a header, so any of them may be the secret
        (re.compile(r"(\bsc://[^\s;'\"]*;)[^\s'\"]+", re.IGNORECASE), rf"\1{HIDDEN}"),
        (re.compile(rf"(\b{_NAMES}\s*=\s*)(?:\"[^\"]*\"|'[^']*'|[^\s;&,'\"]+)", re.IGNORECASE), rf"\1{HIDDEN}"),
        # of a shared access signature of Azure
        (re.compile(r"(\bsig=)[^\s&'\"]+", re.IGNORECASE), rf"\1{HIDDEN}"),
        (re.compile(r"(\bBearer\s+)[^\s'\"]+", re.IGNORECASE), rf"\1{HIDDEN}"),
    )


def hide_secrets(text: str) -> str:
    """Return a text with the passwords, tokens and keys in its URLs and ``name=value`` pairs replaced by ``***``."""
    if "=" not in text and "@" not in text and "earer" not in text:
        return text
    for pattern, replacement in _patterns():
        text = pattern.sub(replacement, text)
    return text


def hide_url(url: str) -> str:
    """Return a URL with its user, password and other secrets replaced by ``***``, even secrets with blanks or
    quotes."""
    scheme, found, rest = url.partition("://")
    if not found:
        return hide_secrets(url)
    place, semicolon, _ = rest.partition(";")
    _, at, host = place.rpartition("@")
    return hide_secrets(f"{scheme}://{at and HIDDEN}{at}{host}") + (semicolon and f";{HIDDEN}")
