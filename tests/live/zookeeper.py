"""One ZooKeeper server of the distribution, as a process on a free port; its data lies in ``folder/version-2``."""

import atexit
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError

from pulsar_admin.store.codec.zookeeper import is_of_session
from tests.live.broker import free_port, wait_until

_SETTINGS = {"tickTime": "2000", "admin.enableServer": "false", "4lw.commands.whitelist": "*"}


class ZooKeeper:
    """Starts where ``folder`` is, with the files that lie in its ``version-2``."""

    def __init__(
        self,
        distribution: Path,
        folder: Path,
        settings: Mapping[str, str] | None = None,
        jvm: Sequence[str] = (),
        main: str = "ZooKeeperServerMain",
    ) -> None:
        self.folder = folder
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        folder.mkdir(parents=True, exist_ok=True)
        self._conf = folder / "zoo.cfg"
        lines = {**_SETTINGS, "dataDir": str(folder), "clientPort": str(self.port), **(settings or {})}
        self._conf.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        self._java = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *jvm]
        self._class_path = f"{distribution / 'lib'}/*"
        self._main = f"org.apache.zookeeper.server.{main}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it serves a client."""
        self.launch()
        wait_until(self._answers, f"{self.address} serves")

    def launch(self) -> None:
        """Start it: one of several serves when most of them run."""
        with open(self.folder / "server.log", "ab") as log:
            command = [*self._java, "-cp", self._class_path, self._main, str(self._conf)]
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        atexit.register(self.stop)  # a test that fails does not

    def _answers(self) -> bool:
        assert self._process.poll() is None, (self.folder / "server.log").read_text()[-3000:]
        client = KazooClient(self.address, timeout=2)
        try:
            client.start(timeout=1)
        except KazooTimeoutError:
            return False
        else:
            return True
        finally:
            client.stop()
            client.close()

    def stop(self) -> None:
        """End it as SIGKILL does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @contextmanager
    def client(self) -> Iterator[KazooClient]:
        """A client that is connected."""
        client = KazooClient(self.address)
        client.start()
        try:
            yield client
        finally:
            client.stop()
            client.close()


def nodes_of(client: KazooClient, root: str = "/") -> dict[str, tuple[bytes, int]]:
    """Value and version of every persistent node below ROOT, one by one."""
    found = {}
    waiting = [root]
    while waiting:
        path = waiting.pop()
        value, stat = client.get(path)
        if is_of_session(stat.ephemeralOwner):
            continue
        if path != "/":
            found[path] = (value or b"", stat.version)
        waiting += (f"{path.rstrip('/')}/{name}" for name in client.get_children(path))
    return found
