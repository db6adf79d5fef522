"""``import pulsar_admin`` costs nothing, its names are those it promises, and nothing behind them is the command line's."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import pulsar_admin

ROOT = Path(__file__).resolve().parent.parent.parent


def loaded_by(code: str) -> set[str]:
    """The modules that are loaded when a fresh interpreter has run CODE."""
    shown = f"{code}\nimport sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", shown], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_the_package_imports_nothing_else() -> None:
    """Beside what an interpreter that runs the same command has anyway."""
    assert loaded_by("import pulsar_admin") - loaded_by("") == {"pulsar_admin"}


def test_opening_a_store_and_planning_needs_no_command_line(demo_store: Path) -> None:
    code = (
        f"import pulsar_admin as pa\nwith pa.open_store({str(demo_store)!r}) as store:\n"
        " store.topic('plain').cursor('half').reset(to='9:3').preview()\n"
        " store.topic('plain').find('2026-11-20T00:00:00Z')\n"
        " store.topic('plain').stats()"
    )
    assert not loaded_by(code) & {"click", "rich", "commands", "pyspark", "numpy", "pandas", "numba"}


def test_every_promised_name_is_there_and_says_what_it_is() -> None:
    assert set(pulsar_admin._HOMES) == set(pulsar_admin.__all__)
    for name in pulsar_admin.__all__:
        found = getattr(pulsar_admin, name)
        assert inspect.getdoc(found), name
        if inspect.isclass(found) and found.__module__.startswith("pulsar_admin."):
            for member, value in vars(found).items():
                if not member.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)):
                    assert inspect.getdoc(value), f"{name}.{member}"


def test_no_other_name_is_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'stores'"):
        pulsar_admin.stores  # noqa: B018


def test_a_type_checker_sees_the_names(tmp_path: Path) -> None:
    """A caller's module, checked strictly; the second line of output is of a wrong one."""
    good = "import pulsar_admin as pa\n\n\ndef first(store: pa.Store) -> pa.Position | None:\n"
    good += '    return store.topic("plain").find("3h").position\n'
    (tmp_path / "good.py").write_text(good)
    (tmp_path / "wrong.py").write_text(good.replace("pa.Position | None", "int").replace("first", "second"))
    arguments = ["--strict", "--config-file", "pyproject.toml", "--cache-dir", ".mypy_cache"]
    files = [str(tmp_path / "good.py"), str(tmp_path / "wrong.py")]
    done = subprocess.run([sys.executable, "-m", "mypy", *arguments, *files], cwd=ROOT, capture_output=True, text=True)
    assert [line for line in done.stdout.splitlines() if "error:" in line and "good.py" in line] == []
    assert 'Incompatible return value type (got "Position | None", expected "int")' in done.stdout
