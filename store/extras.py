"""Optional packages, the extras of pyproject.toml that install them, and the error for a missing package."""

from importlib import import_module

from pulsar_admin.store.errors import MissingComponent

_DISTRIBUTION = "pulsar-admin-toolkit"

EXTRAS = {
    "pyspark": "spark",
    "pandas": "pandas",
    "plotext": "plots",
    "matplotlib": "plots",
    "cryptography": "encryption",
    "duckdb": "sql",
    "pyiceberg": "iceberg",
}
"""Module → the extra that has its package."""


def require(module: str, feature: str, *, instead: str = "") -> None:
    """Import ``module``, which ``feature`` needs; raises MissingComponent that says how to get it, or what to do ``instead``."""
    try:
        import_module(module)
    except ImportError as error:
        hint = f"pip install {' '.join(_requirements(EXTRAS[module]))} (the extra [{EXTRAS[module]}])"
        raise MissingComponent(
            f"{feature} needs the package {module}, which cannot be imported: {error}",
            hint=f"{hint}, or {instead}" if instead else hint,
            extra=EXTRAS[module],
        ) from error


def _requirements(extra: str) -> list[str]:
    """Return the requirements of ``extra`` for pip, quoted for a shell; bare package names without installed
    metadata."""
    from importlib.metadata import PackageNotFoundError, requires
    from shlex import quote

    try:
        lines = [line.partition(";") for line in requires(_DISTRIBUTION) or ()]
    except PackageNotFoundError:
        lines = []
    found = [quote(wanted.strip()) for wanted, _, marker in lines if f"extra=='{extra}'" in _plain(marker)]
    return found or [name for name, brings in EXTRAS.items() if brings == extra]


def _plain(marker: str) -> str:
    return marker.replace(" ", "").replace('"', "'")
