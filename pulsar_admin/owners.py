"""The three packages have generic names: refuse to run when another distribution or a directory hides one of ours."""

from __future__ import annotations

from importlib import import_module

_OWNER = "pulsar-admin"
_PACKAGES = ("pulsar_admin", "store", "commands")


def check_owners() -> None:
    """End the process with an explanation when a package is not ours; imports nothing but the packages' markers."""
    for name in _PACKAGES:
        module = import_module(name)
        if getattr(module, "OWNER", None) != _OWNER:
            place = getattr(module, "__file__", None) or ", ".join(getattr(module, "__path__", []))
            raise SystemExit(
                f"error: the Python package {name!r} at {place} is not pulsar-admin's: another distribution or a "
                f"directory of that name hides it\nhint: install pulsar-admin-toolkit in an environment of its own "
                f"(pipx install pulsar-admin-toolkit), or start it from another directory"
            )
