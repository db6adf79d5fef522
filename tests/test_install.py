"""Wheel and source archive hold what runs; the container image is built and run where buildah and its base are at hand."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.worlds import world

ROOT = Path(__file__).resolve().parent.parent
JOB = ROOT / "docs" / "examples" / "kubernetes" / "read-a-bookie.yaml"
IMAGE = "localhost/pulsar-admin-offline:latest"
_CHROOT = ("--isolation", "chroot")


def _built(tmp_path: Path, *what: str) -> Path:
    pytest.importorskip("hatchling")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", tmp_path, *what], cwd=ROOT, check=True)
    (found,) = tmp_path.iterdir()
    return found


def test_the_wheel_has_every_module_and_data_file(tmp_path: Path) -> None:
    names = set(zipfile.ZipFile(_built(tmp_path, "-t", "wheel")).namelist())
    command = ["git", "ls-files", "pulsar_admin", "store", "commands"]
    tracked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    links = {"pulsar_admin/store", "pulsar_admin/commands"}
    ours = {name if name.startswith("pulsar_admin/") else f"pulsar_admin/{name}" for name in tracked.stdout.split()}
    assert ours - links <= names
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"pulsar_admin"}
    assert not [name for name in names if name.startswith(("tests", "docs", "bench"))]


def test_the_source_archive_builds_and_holds_licence_and_docs(tmp_path: Path) -> None:
    with tarfile.open(_built(tmp_path, "-t", "sdist")) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "constraints.txt", "LICENSE", "NOTICE", "Containerfile", "Makefile"} <= names
    assert {"docs/install.md", "pulsar_admin/store/extras.py", "pulsar_admin/table.py"} <= names


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
