"""Spark's own servers on loopback, started from the pyspark wheel: a standalone cluster, and a Connect server."""

import atexit
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib.metadata import distribution
from pathlib import Path
from shlex import quote

from pulsar_admin.store.engine.workers import NEEDED


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    """Return when something listens at PORT of this machine."""
    for _ in range(600):
        assert process.poll() is None, "the server ended"
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.2)
        else:
            return
    raise AssertionError("the server does not start")


@contextmanager
def server_of(*module: str) -> Iterator[int]:
    """Run MODULE, which takes its port as last word, as a server on loopback; give the port."""
    port = free_port()
    command = [sys.executable, "-m", *module, str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(port, server)
        yield port
    finally:
        server.kill()
        server.wait()


@cache
def _s3_server() -> int:
    """Return the port of a server like S3's, which runs until the tests of this process end: it takes seconds to start."""
    server = ExitStack()
    atexit.register(server.close)
    return server.enter_context(server_of("moto.server", "-H", "127.0.0.1", "-p"))


def s3_bucket(name: str) -> str:
    """Return the URL of a new bucket on loopback; ``{}`` stands for the object."""
    from pyarrow import fs

    url = f"s3://key:secret@{name}/{{}}?endpoint_override=127.0.0.1%3A{_s3_server()}&scheme=http&region=us-east-1"
    system, _ = fs.FileSystem.from_uri(url.format("x") + "&allow_bucket_creation=true")
    system.create_dir(name)
    return url


def bare_python(folder: Path) -> str:
    """Make a Python in FOLDER that has nothing but the standard library; return its path."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    return str(folder / "bin" / "python")


def libraries_alone(folder: Path) -> dict[str, str]:
    """Return the environment of a Python in FOLDER that has the libraries that executors need, and nothing else."""
    libraries = folder / "libraries"
    libraries.mkdir()
    for package in (*NEEDED.values(), "llvmlite"):  # which numba needs
        found = distribution(package)
        for name in {Path(file).parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
            (libraries / name).symlink_to(found.locate_file(name))
    return {"PYSPARK_PYTHON": bare_python(folder / "bare"), "PYTHONPATH": str(libraries), "PYTHONSAFEPATH": "1"}


class Servers:
    """Processes of Spark, each a process group of its own, with a directory of its own in FOLDER."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        import pyspark

        self._home = Path(pyspark.__file__).parent
        self._folder = folder
        self._environment = environment
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, *words: str, hidden: Sequence[Path] = ()) -> subprocess.Popen[bytes]:
        """Start spark-class with WORDS, where directories that are HIDDEN are empty."""
        folder = self._folder / f"server-{len(self.processes)}"
        folder.mkdir()
        settings = {
            "SPARK_HOME": str(self._home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_WORKER_DIR": str(folder),
            "PYSPARK_PYTHON": sys.executable,
            **self._environment,
        }
        command = [str(self._home / "bin" / "spark-class"), *words]
        if hidden:
            empty = "".join(f"mount -t tmpfs -o size=1m none {quote(str(path))} && " for path in hidden)
            command = ["unshare", "-m", "sh", "-c", f'{empty}exec "$@"', "sh", *command]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                command,
                env=os.environ | settings,
                cwd=folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """Kill a process and its executors with -9."""
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def close(self) -> None:
        for process in self.processes:
            self.kill(process)


class Cluster(Servers):
    """One master, two workers of one core each, which find HIDDEN directories empty."""

    def __init__(self, folder: Path, environment: Mapping[str, str], hidden: Sequence[Path] = ()) -> None:
        super().__init__(folder, environment)
        port = free_port()
        self.url = f"spark://127.0.0.1:{port}"
        deploy = "org.apache.spark.deploy"
        words = ("--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
        wait_for(port, self.start(f"{deploy}.master.Master", *words))
        words = ("--host", "127.0.0.1", "-c", "1", "-m", "1g", "--webui-port", "0", self.url)
        self.workers = [self.start(f"{deploy}.worker.Worker", *words, hidden=hidden) for _ in range(2)]


class ConnectServer(Servers):
    """A Spark Connect server that runs its jobs itself."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        super().__init__(folder, environment)
        port = free_port()
        self.url = f"sc://127.0.0.1:{port}"
        conf = {
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(port),
            "spark.ui.enabled": "false",
        }
        self.process = self.start(
            "org.apache.spark.deploy.SparkSubmit",
            *("--master", "local[2]", "--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
            *(word for key, value in conf.items() for word in ("--conf", f"{key}={value}")),
            "spark-internal",
        )
        wait_for(port, self.process)

    def log(self) -> str:
        """Return what the server wrote."""
        return (self._folder / "server-0" / "log").read_text(errors="replace")
