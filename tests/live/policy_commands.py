"""Every policy command of the real pulsar-admin, in order, on a broker of its own: ``tests/golden/policies.txt`` and ``.json``.

``python -m tests.live.policy_commands`` asks the lines of the text file that begin with ``$`` and writes what they print:
``! `` is the first line of stderr, ``? `` the exit code where it is not 0. The JSON file has the nodes before them, and the stored
policies of namespaces and topics behind them. A test replays both here.
"""

import json
import shlex
import shutil
import tempfile
from pathlib import Path
from typing import Any

from pulsar_admin.store.codec.policies import decode_json_object
from pulsar_admin.store.db.environment import Txn, open_store
from pulsar_admin.store.db.tree import find_node, iter_children
from pulsar_admin.store.names import parse_namespace
from pulsar_admin.store.policies.events import find_policy_events
from pulsar_admin.store.transfer.imports import ImportOptions
from tests.live.broker import BASE_SETTINGS, Broker
from tests.live.distribution import find_distribution
from tests.live.upstream import Said, UpstreamAdmin
from tests.stores import import_standalone

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
LINES, STORED = GOLDEN / "policies.txt", GOLDEN / "policies.json"
NAMESPACES = ("pol/a", "pol/b", "pol/c", "pol/d", "pol/e")
_SETUP = (
    "tenants create pol -c standalone",
    *(f"namespaces create {name}" for name in NAMESPACES),
    *(f"topics create pol/{name}" for name in ("b/t", "d/t", "e/t")),
    "topics create-partitioned-topic pol/b/p -p 2",
    "topics create-shadow-topic pol/b/s -s pol/b/t",
    "resourcegroups create rgp -md 1 -bd 1 -mp 1 -bp 1",
)
# A broker that sets nothing answers --applied as itself; no topic may be too idle to live.
_SETTINGS = {
    **{key: value for key, value in BASE_SETTINGS.items() if not key.startswith(("defaultRetention", "brokerDelete"))},
    "brokerDeleteInactiveTopicsFrequencySeconds": "36000",
    "backlogQuotaDefaultLimitGB": "-1",  # as broker.conf has it
}
_NODES = ("/admin/clusters", "/admin/policies/pol", "/admin/resourcegroups", "/admin/partitioned-topics/pol")
_LEDGERS = "/managed-ledgers/pol"


def commands_of(text: str) -> list[str]:
    """Return the command lines of the text file."""
    return [line[2:] for line in text.splitlines() if line.startswith("$ ")]


def render(command: str, said: Said) -> str:
    """Return a line and what it said as the text file has them."""
    first = next(iter(said.stderr.splitlines()), "")
    refused = f"! {first}\n" if said.exit else ""
    return f"$ {command}\n{said.stdout}{refused}" + (f"? {said.exit}\n" if said.exit else "")


def stored_policies(txn: Txn) -> dict[str, Any]:
    """Return what namespaces and topics have, by name; a topic's local and global policies without what is null."""
    found: dict[str, Any] = {}
    for name in NAMESPACES:
        node = find_node(txn, f"/admin/policies/{name}")
        found[name] = decode_json_object(node.value, node.path)
        events = find_policy_events(txn, parse_namespace(name))
        for scope, kept in (("local", events.local), ("global", events.global_)) if events is not None else ():
            for topic, fields in kept.items():
                found[f"{scope} {topic}"] = {key: value for key, value in fields.items() if value is not None}
    return found


def _nodes(txn: Txn, path: str) -> dict[str, str]:
    node = find_node(txn, path)
    found = {} if node is None or "/__" in path else {path: node.value.hex()}
    for name in iter_children(txn, path):
        found |= _nodes(txn, f"{path}/{name}")
    return found


def _snapshot(data: Path, folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(data, folder / "data")
    import_standalone(folder / "data", folder / "store", ImportOptions(now_ms=0), lambda _: None)
    return folder / "store"


def main() -> None:
    """Record."""
    folder = Path(tempfile.mkdtemp())
    broker = Broker(find_distribution("4.0.8"), folder / "broker", _SETTINGS)
    broker.start()
    admin = UpstreamAdmin(broker.web_url)
    for line in _SETUP:
        said = admin.ask(*line.split())
        assert said.exit == 0, said
    with open_store(_snapshot(folder / "broker" / "data", folder / "copy")) as store, store.read() as txn:
        nodes = {path: value for root in (*_NODES, _LEDGERS) for path, value in _nodes(txn, root).items()}
    LINES.write_text("".join(render(line, admin.ask(*shlex.split(line))) for line in commands_of(LINES.read_text())))
    with open_store(_snapshot(folder / "broker" / "data", folder / "copy")) as store, store.read() as txn:
        STORED.write_text(json.dumps({"nodes": nodes, "stored": stored_policies(txn)}, indent=1) + "\n")
    admin.close()
    broker.kill()
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
