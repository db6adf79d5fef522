"""Wheel and source archive hold what runs; the container image is built and run where buildah and its base are at hand."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.worlds import unpack, world

ROOT = Path(__file__).resolve().parent.parent
JOB = ROOT / "docs" / "examples" / "kubernetes" / "read-a-bookie.yaml"
IMAGE = "localhost/pulsar-admin-offline:latest"
_CHROOT = ("--isolation", "chroot")


_ASK = """
import commands, store
assert (commands.MINE, store.MINE) == (1, 1)
import sys
import pulsar_admin
from pulsar_admin import commands as theirs
assert theirs.__file__.startswith(sys.prefix)
"""
_IMPORT = """
if __name__ == "__main__":
    pulsar_admin.import_standalone(sys.argv[1], "made", jobs=2)
"""
_LIST = """
with pulsar_admin.open_store("made") as opened:
    print(opened.summary().entries)
"""


def _built(target: Path, what: str, root: Path = ROOT) -> Path:
    pytest.importorskip("hatchling")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", target, "-t", what], cwd=root, check=True)
    (found,) = target.iterdir()
    return found


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _built(tmp_path_factory.mktemp("wheel"), "wheel")


def _contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        assert len(names) == len(set(names))
        return {name: archive.read(name) for name in names}


def test_the_wheel_has_every_module_and_data_file(wheel: Path) -> None:
    names = set(_contents(wheel))
    command = ["git", "ls-files", "pulsar_admin", "store", "commands"]
    tracked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    links = {"pulsar_admin/store", "pulsar_admin/commands"}
    ours = {name if name.startswith("pulsar_admin/") else f"pulsar_admin/{name}" for name in tracked.stdout.split()}
    found = ours & {"pulsar_admin/pyspark_pulsar.py"}  # by Spark, beside the package
    assert ours - links - found <= names
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"pulsar_admin", "pyspark_pulsar.py"}
    assert [name for name in names if name.endswith("py.typed")] == ["pulsar_admin/py.typed"]


@pytest.mark.deep
def test_the_source_archive_holds_each_file_once_and_makes_the_same_wheel(tmp_path: Path, wheel: Path) -> None:
    source = _built(tmp_path / "archive", "sdist")
    with tarfile.open(source) as archive:
        listed = [name.partition("/")[2] for name in archive.getnames()]
    unpack(source, tmp_path)
    names = set(listed)
    assert len(names) == len(listed)
    assert {"pyproject.toml", "constraints.txt", "LICENSE", "NOTICE", "Containerfile", "Makefile"} <= names
    assert {"docs/install.md", "pulsar_admin/store/extras.py", "pulsar_admin/command_table.py"} <= names
    assert not [name for name in names if name.startswith(("store/", "commands/"))]
    (unpacked,) = tmp_path.glob("pulsar_admin_toolkit-*")
    assert _contents(_built(tmp_path / "wheel", "wheel", unpacked)) == _contents(wheel)


def test_an_installed_wheel_answers_beside_modules_of_a_user_and_uninstalls_whole(tmp_path: Path, wheel: Path) -> None:
    """Of a user who has modules named ``store`` and ``commands``, too, files as well as folders."""
    pytest.importorskip("pip")
    venv.create(tmp_path / "env", with_pip=False)
    python = tmp_path / "env" / "bin" / "python"
    (site,) = (tmp_path / "env" / "lib").glob("*/site-packages")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}

    def run(*words: str | Path) -> str:
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python)
    run(*pip, "install", "--no-deps", "--no-index", "--no-compile", wheel)
    others = site / "others.pth"
    others.write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
    for number, (form, code) in enumerate((("{}.py", _ASK + _IMPORT), ("{}/__init__.py", _ASK + _LIST))):
        for name in ("store", "commands"):
            mine = tmp_path / str(number) / form.format(name)
            mine.parent.mkdir(parents=True, exist_ok=True)
            mine.write_text("MINE = 1\n")
        program = tmp_path / str(number) / "program.py"
        program.write_text(code)
        said = run(python, program, world("small") / "clean")
    assert said == "2566\n"
    assert list(site.rglob("__pycache__"))
    others.unlink()
    run(*pip, "uninstall", "--yes", "pulsar-admin-toolkit")
    assert not list(site.glob("*"))  # pip also takes a directory in which nothing else is
    assert not list((tmp_path / "env" / "bin").glob("pulsar*"))


def test_constraints_are_pins_and_nothing_else() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert not [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line)]
    names = [line.partition("==")[0].lower() for line in lines]
    assert len(names) == len(set(names))


def _has_image() -> bool:
    if shutil.which("buildah") is None:
        return False
    return not subprocess.run(
        ["buildah", "inspect", "--type", "image", IMAGE], capture_output=True, check=False
    ).returncode


@pytest.mark.skipif(not _has_image(), reason="buildah with an image that `buildah bud -f Containerfile` made")
def test_the_image_imports_a_directory_that_it_may_only_read() -> None:
    def buildah(*words: str | Path) -> str:
        done = subprocess.run(["buildah", *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    container = buildah("from", "--pull-never", IMAGE)
    run = ["run", *_CHROOT, "-v", f"{world('small')}:/data:ro", container, "--"]
    try:
        assert buildah(*run, "id", "-u").strip() == "10000"
        assert buildah(*run, "id", "-G").strip() == "0"
        assert "entries             2,566" in buildah(
            *run, "pulsar-admin", "store", "import", "standalone", "/data/clean"
        )
        assert "persistent://acme/iot/skewed\n" in buildah(*run, "pulsar-admin", "topics", "list", "acme/iot") + "\n"
    finally:
        buildah("rm", container)


def _job() -> Any:  # Any: YAML
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load(JOB.read_text())


def test_the_job_writes_nothing_of_the_bookie() -> None:
    job = _job()
    pod = job["spec"]["template"]["spec"]
    claims = {
        volume["name"]: volume["persistentVolumeClaim"]
        for volume in pod["volumes"]
        if "persistentVolumeClaim" in volume
    }
    assert (job["apiVersion"], job["kind"], pod["restartPolicy"]) == ("batch/v1", "Job", "Never")
    assert len(claims) == 2
    assert all(claim["readOnly"] is True for claim in claims.values())
    assert {key: pod["securityContext"][key] for key in ("runAsUser", "runAsGroup", "runAsNonRoot")} == {
        "runAsUser": 10000,
        "runAsGroup": 0,
        "runAsNonRoot": True,
    }
    for container in (*pod["initContainers"], *pod["containers"]):
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
        assert {mount["name"] for mount in mounts.values()} <= {volume["name"] for volume in pod["volumes"]}
        assert all(mounts[name]["readOnly"] is True for name in claims)
        assert {mount["mountPath"] for name, mount in mounts.items() if name not in claims} == {
            "/stores",
            "/home/pulsar",
            "/tmp",
        }


def test_the_job_runs_on_the_node_of_the_bookie_whose_volumes_it_mounts() -> None:
    pod = _job()["spec"]["template"]["spec"]
    assert set(pod["affinity"]) == {"podAffinity"}
    (term,) = pod["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["topologyKey"] == "kubernetes.io/hostname"
    (bookie,) = term["labelSelector"]["matchLabels"].values()
    assert set(term["labelSelector"]["matchLabels"]) == {"statefulset.kubernetes.io/pod-name"}
    claims = [volume["persistentVolumeClaim"] for volume in pod["volumes"] if "persistentVolumeClaim" in volume]
    assert all(claim["claimName"].endswith(f"-{bookie}") for claim in claims)


def test_the_job_runs_commands_that_exist() -> None:
    from tests.test_docs import COMMANDS

    pod = _job()["spec"]["template"]["spec"]
    lines = [" ".join(container["args"]) for container in (*pod["initContainers"], *pod["containers"])]
    for line in lines:
        name = next(name for name in COMMANDS if line.startswith(f"{name}"))
        options = {text for option in COMMANDS[name].params for text in option.opts}
        assert {word for word in line.split() if word.startswith("--")} <= options
