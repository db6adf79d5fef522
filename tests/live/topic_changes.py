"""Records what a real broker does with the commands that make, change and delete topics: ``tests/golden/topic-changes.json``.

``python -m tests.live.topic_changes ADMIN METADATA`` runs every line of SESSION as ``ADMIN words…`` (the ``pulsar-admin`` of a
running standalone Pulsar whose metadata directory is METADATA), and keeps what it prints and which nodes there are behind it.
``tests/commands/test_topic_changes.py`` runs the same lines on a store.
"""

import json
import shlex
import shutil
import subprocess
import sys
import tempfile
from base64 import b64encode
from pathlib import Path

from pulsar_admin.store.db.files import Damage
from pulsar_admin.store.db.tree import decode_node
from pulsar_admin.store.sources.nodes import MetadataDirectory, iter_source_rows
from tests.worlds import GOLDEN

RECORDING = GOLDEN / "topic-changes.json"
NAMESPACE = "recorded/one"
SESSION = """
topics create recorded/one/plain -m a=b,c=d -m zeta=1 -m owner=me
topics create recorded/one/plain
topics create recorded/one/bare
topics create recorded/none/x
topics create recorded/one/x-partition-3
topics create recorded/one/bad/x -m x
topics create-partitioned-topic recorded/one/parts -p 3 -m zeta=1 -m alpha=2 -m mid=3 -m b=4 -m aaa=5
topics create-partitioned-topic recorded/one/parts -p 3
topics create-partitioned-topic recorded/one/plain -p 3
topics create-partitioned-topic recorded/one/zero -p 0
topics create-partitioned-topic recorded/one/x-partition-1 -p 2
topics create recorded/one/parts-partition-7
topics get-properties recorded/one/parts
topics get-properties recorded/one/plain
topics get-properties recorded/one/missing
topics update-properties recorded/one/plain -p q=1 -p c=2 -p zz=3
topics get-properties recorded/one/plain
topics update-properties recorded/one/parts -p q=1 -p c=2 -p zz=3
topics get-properties recorded/one/parts
topics remove-properties recorded/one/parts -k zeta
topics remove-properties recorded/one/plain -k zeta
topics remove-properties recorded/one/plain -k none
topics remove-properties recorded/one/plain
topics get-properties recorded/one/plain
topics create-subscription recorded/one/parts -s sub -p x=y -p owner=z
topics create-subscription recorded/one/parts -s bare
topics get-subscription-properties recorded/one/parts -s sub
topics get-subscription-properties recorded/one/parts-partition-0 -s sub
topics get-subscription-properties recorded/one/parts -s bare
topics get-subscription-properties recorded/one/parts -s missing
topics get-subscription-properties recorded/one/missing -s sub
topics update-subscription-properties recorded/one/parts -s sub -p k=v
topics update-subscription-properties recorded/one/parts -s sub
topics update-subscription-properties recorded/one/parts -s sub -c -p x=y
topics update-subscription-properties recorded/one/parts -s missing -p x=y
topics get-subscription-properties recorded/one/parts -s sub
topics update-partitioned-topic recorded/one/parts -p 2
topics update-partitioned-topic recorded/one/parts -p 3
topics update-partitioned-topic recorded/one/parts -p 5
topics update-partitioned-topic recorded/one/plain -p 5
topics update-partitioned-topic recorded/one/missing -p 5
topics update-partitioned-topic recorded/one/parts -p 0
topics update-subscription-properties recorded/one/parts -s sub -c
topics get-subscription-properties recorded/one/parts -s sub
topics create-missed-partitions recorded/one/parts
topics create-missed-partitions recorded/one/plain
topics get-replicated-subscription-status recorded/one/parts-partition-0 -s sub
topics set-replicated-subscription-status recorded/one/parts-partition-0 -s sub -e
topics get-replicated-subscription-status recorded/one/parts-partition-0 -s sub
topics set-replicated-subscription-status recorded/one/parts-partition-0 -s sub -d
topics get-replicated-subscription-status recorded/one/parts-partition-0 -s sub
topics set-replicated-subscription-status recorded/one/parts-partition-0 -s sub
topics set-replicated-subscription-status recorded/one/parts-partition-0 -s missing -e
topics create-shadow-topic recorded/one/shadow -s recorded/one/plain -p k=v
topics create-shadow-topic recorded/one/shadows -s recorded/one/parts
topics create-shadow-topic recorded/one/shadow2 -s recorded/one/missing
topics get-shadow-source recorded/one/shadow
topics get-shadow-source recorded/one/shadows
topics get-shadow-source recorded/one/plain
topics get-shadow-source recorded/one/missing
topics terminate recorded/one/missing
topics terminate recorded/one/parts
topics partitioned-terminate recorded/one/plain
topics trim-topic recorded/one/plain
topics trim-topic recorded/one/missing
topics truncate recorded/one/parts
topics truncate recorded/one/missing
topics list-partitioned-topics recorded/one
topics delete recorded/one/parts
topics delete recorded/one/missing
topics delete recorded/one/shadow
topics delete recorded/one/parts-partition-1
topics create-missed-partitions recorded/one/parts
topics delete-partitioned-topic recorded/one/missing
topics delete-partitioned-topic recorded/one/plain
topics delete-partitioned-topic recorded/one/parts-partition-0
topics delete-partitioned-topic recorded/one/parts
topics delete -r recorded/one/[bp].*
topics delete-partitioned-topic recorded/one/shadows
"""


def lines() -> list[list[str]]:
    """Return the words of every line of SESSION."""
    return [shlex.split(line) for line in SESSION.split("\n") if line]


def nodes_of(metadata: Path) -> dict[str, str]:
    """Return the nodes of NAMESPACE in a copy of the metadata of a running broker, values as base64."""
    with tempfile.TemporaryDirectory() as scratch:
        shutil.copytree(metadata, Path(scratch) / "metadata")
        found = iter_source_rows(MetadataDirectory(Path(scratch) / "metadata"))
        nodes = (decode_node(*one) for one in found if not isinstance(one, Damage))
        here = (node for node in nodes if f"/{NAMESPACE}/" in node.path)
        return {one.path: b64encode(one.value).decode() for one in here}


def main(admin: str, metadata: str) -> None:
    """Run the session and write the recording."""
    for words in (["tenants", "create", "recorded", "-c", "standalone"], ["namespaces", "create", NAMESPACE]):
        subprocess.run([admin, *words], check=True)
    steps = []
    before: dict[str, str] = {}
    for words in lines():
        ran = subprocess.run([admin, *words], capture_output=True, text=True)
        after = nodes_of(Path(metadata))
        steps.append(
            {
                "words": words,
                "exit": ran.returncode,
                "stdout": ran.stdout,
                "put": {path: value for path, value in after.items() if before.get(path) != value},
                "deleted": [path for path in before if path not in after],
            }
        )
        before = after
    RECORDING.write_text(json.dumps(steps, indent=0) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
