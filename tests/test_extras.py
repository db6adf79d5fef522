"""What only one feature needs is neither imported nor required without it: the base packages are enough for the rest."""

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest

from pulsar_admin.store.errors import MissingComponent
from pulsar_admin.store.extras import EXTRAS, require
from tests.stores import imported

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MODULES = {"PyYAML": "yaml"}  # where the package is called otherwise than what it brings
_CODE = """
import sys
blocked = set(sys.argv[1].split(","))
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocker())
from pulsar_admin.cli import run
failed = 0
for line in sys.stdin.read().split("\\n"):
    status = run(line.split("\\t"))
    print(f"== {status}", file=sys.stderr, flush=True)
"""


def _names(requirements: Iterable[str]) -> set[str]:
    return {text.split(">")[0].split("<")[0].split("[")[0].strip() for text in requirements}


def _without(packages: Iterable[str], *lines: list[str], store: Path | None = None) -> list[tuple[int, str]]:
    """Run command lines in a process that has none of PACKAGES; returns (status, stderr) of each."""
    environment = {**os.environ, **({"PULSAR_ADMIN_STORE": str(store)} if store else {})}
    said = subprocess.run(
        [sys.executable, "-c", _CODE, ",".join(packages)],
        input="\n".join("\t".join(line) for line in lines),
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env=environment,
    ).stderr
    found = []
    text = ""
    for line in said.splitlines(keepends=True):
        if line.startswith("== "):
            found.append((int(line[3:]), text))
            text = ""
        else:
            text += line
    assert len(found) == len(lines), said
    return found


def test_the_table_has_every_package_of_every_extra_of_the_product() -> None:
    extras = PROJECT["optional-dependencies"]
    told = {(MODULES.get(name, name), extra) for extra in set(EXTRAS.values()) for name in _names(extras[extra])}
    assert told >= set(EXTRAS.items())
    assert {module for module, _ in told} == set(EXTRAS)
    assert not _names(PROJECT["dependencies"]) & set(EXTRAS)


def test_all_and_dev_bring_every_extra() -> None:
    extras = PROJECT["optional-dependencies"]
    asked = {name for text in extras["all"] for name in text.partition("[")[2].rstrip("]").split(",")}
    assert {"connect" if extra == "spark" else extra for extra in EXTRAS.values()} <= asked  # connect has spark's
    assert "pulsar-admin-toolkit[spark]" in extras["connect"]
    assert any(text.startswith("pulsar-admin-toolkit[all") for text in extras["dev"])


def test_help_of_every_command_needs_only_the_base() -> None:
    """Of one of each module: help imports it whole."""
    from tests.test_docs import COMMANDS

    names = {command.callback.__module__: name for name, command in COMMANDS.items()}.values()
    found = _without(EXTRAS, *([*name.split(), "--help"] for name in names))
    assert [(name, said) for name, (status, said) in zip(names, found, strict=True) if status] == []


def test_the_main_job_needs_only_the_base(tmp_path: Path) -> None:
    """Import, ask, change, undo, scan and export with the base packages alone."""
    source = ROOT / "tests" / "golden" / "pulsar-4.0.8-small.tar.xz"
    subprocess.run(["tar", "-xJf", source, "-C", tmp_path, "pulsar-4.0.8-small/clean"], check=True)
    data = str(tmp_path / "pulsar-4.0.8-small" / "clean")
    lines = [
        ["store", "import", "standalone", data],
        ["topics", "list", "acme/iot"],
        ["topics", "read", "public/default/plain", "--from", "29:20", "-n", "3"],
        ["topics", "reset-cursor", "public/default/plain", "-s", "half", "-m", "29:20"],
        ["store", "undo", "1"],
        ["store", "index", "--rebuild"],
        ["topics", "skew", "acme/iot/skewed"],
        ["topics", "search", "acme/orders/compacted", "--key", "k0003"],
        ["delayed", "due", "acme/delayed/reminders", "-s", "workers", "--end-time", "2026-11-21T12:00:00Z"],
        ["compaction", "last-id", "acme/orders/compacted"],
        ["nacks", "plan", "--topic", "public/default/plain", "-s", "holes", "--delay", "10m", "-o", "json"],
        ["store", "check"],
        ["store", "export", "standalone", str(tmp_path / "exported")],
    ]
    found = _without(EXTRAS, *lines, store=tmp_path / "store")
    assert [(line, said) for line, (status, said) in zip(lines, found, strict=True) if status] == []


_PLAN = ["nacks", "plan", "--topic", "public/default/plain", "-s", "holes", "--delay", "10m"]
_SCAN = ["topics", "skew", "acme/iot/skewed"]
LACKING = [
    ("plotext", _PLAN, "a plot", "plots"),
    ("plotext", ["topics", "subscription-history", "public/default/plain", "-s", "half", "--plot"], "a plot", "plots"),
    ("plotext", ["sql", "--plot", "select from nowhere"], "a plot", "plots"),
    ("plotext", ["topics", "timeline", "public/default/there-is-none"], "a plot", "plots"),
    ("plotext", ["delayed", "histogram", "public/default/there-is-none"], "a plot", "plots"),
    ("matplotlib", [*_PLAN, "--png", "plan.png"], "--png", "plots"),
    ("matplotlib", ["topics", "timeline", "acme/iot/skewed", "--svg", "a.svg"], "--svg", "plots"),
    ("pyspark", [*_SCAN, "--spark"], "--spark", "spark"),
    ("pandas", [*_SCAN, "--spark"], "--spark", "pandas"),
    ("cryptography", ["topics", "read", "acme/secure/secret", "--private-key", "k.pem"], "--private-key", "encryption"),
]


@pytest.mark.parametrize("package", dict.fromkeys(row[0] for row in LACKING))
def test_what_is_missing_is_told(package: str) -> None:
    rows = [row for row in LACKING if row[0] == package]
    answers = _without([package], *(line for _, line, _, _ in rows), store=imported("small", "clean"))
    for (_, line, feature, extra), (status, said) in zip(rows, answers, strict=True):
        assert status == 7, line
        error, hint = said.splitlines()
        assert error == (
            f"error: {feature} needs the package {package}, which cannot be imported: No module named '{package}'"
        )
        assert all(name in hint for name in _names(PROJECT["optional-dependencies"][extra]))
        assert f"(the extra [{extra}])" in hint


def test_what_is_missing_as_json() -> None:
    ((status, said),) = _without(["matplotlib"], [*_PLAN, "--png", "x.png", "-o", "json"])
    assert status == 7
    assert json.loads(said)["error"]["code"] == "missing-component"
    assert json.loads(said)["error"]["context"] == {"extra": "plots"}


def test_what_to_install_is_what_the_extra_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the versions of the metadata of the installation, as hatchling writes them."""
    lines = ["click>=8.2", 'p<3,>=2.2; extra == "pandas"', "q>=4.0; extra == 'pandas'", "x; extra == 'plots'"]
    monkeypatch.setattr("importlib.metadata.requires", lambda name: lines)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingComponent) as raised:
        require("pandas", "this")
    assert raised.value.hint == "pip install 'p<3,>=2.2' 'q>=4.0' (the extra [pandas])"


def test_to_pandas_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    import pulsar_admin as pa

    monkeypatch.setitem(sys.modules, "pandas", None)
    with (
        pa.open_store(imported("small", "clean")) as store,
        pytest.raises(MissingComponent, match="to_pandas needs the package pandas") as raised,
    ):
        store.topic("public/default/plain").messages().to_pandas()
    assert "take to_arrow()" in raised.value.hint
