"""What the real pulsar-admin has and says, against ours: every reading command on every object of a world, every change once.

The broker answers, is stopped, and its files answer the same questions. What changes is asked of the broker, and made here on
a copy taken before; then the metadata is compared value by value.
"""

import json
import shlex
import time
from collections import Counter
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pulsar  # type: ignore[import-untyped,import-not-found,unused-ignore]
import pytest
from click import Context
from msgspec import Struct, field

from pulsar_admin.cli import TableGroup, root
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.db.tree import find_node, iter_children
from tests.conftest import Cli
from tests.live import shell, upstream
from tests.live.broker import BASE_SETTINGS, BROKER_METADATA, Broker, wait_until
from tests.live.conftest import run_toolkit
from tests.live.distribution import find_distribution
from tests.live.mirroring import BASE, REASONS, UNKNOWN, changes, questions, reading_commands
from tests.live.on_disk import copy_at_rest, wait_until_written
from tests.live.producing import RECEIVE_MS, open_client
from tests.live.recipe import wait_until_settled
from tests.live.upstream import Said, UpstreamAdmin

pytestmark = pytest.mark.live

SETTINGS = {
    **BASE_SETTINGS,
    **BROKER_METADATA,
    "managedLedgerMaxEntriesPerLedger": "10",
    "transactionCoordinatorEnabled": "true",
    "dbStorage_writeCacheMaxSizeMb": "32",
    "dbStorage_readAheadCacheMaxSizeMb": "32",
    "managedLedgerCacheSizeMB": "64",
}


LAST, LAST_SECONDS = "persistent/mirror/tp/last", 4711
TOPICS_WITH_CURSORS = ("mirror/one/plain", "mirror/one/batch", "mirror/one/delayed")


class World(Struct):
    """What the real pulsar-admin said: of changes in order, of questions by line; stores of the files before and after."""

    before: Path
    after: Path
    changed: dict[str, Said] = field(default_factory=dict)
    said: dict[str, Said] = field(default_factory=dict)


def exists(path: str) -> bool:
    """Whether the command PATH of upstream is here."""
    context = Context(root(), info_name="pulsar-admin")
    for name in path.split():
        command = context.command.get_command(context, name) if isinstance(context.command, TableGroup) else None
        if command is None:
            return False
        context = Context(command, info_name=name, parent=context)
    return True


READING = [path for path in reading_commands() if exists(path)]
CHANGES = [line for line in dict.fromkeys(changes()) if exists(" ".join(line.split()[:2]))]


def test_the_commands_of_the_shells_are_those_of_the_checked_in_file() -> None:
    assert upstream.render(shell.commands()) == shell.FILE.read_text(), "python -m tests.live.shell"


def test_upstreams_commands_are_those_of_the_checked_in_file() -> None:
    assert upstream.render(upstream.commands()) == upstream.FILE.read_text(), "python -m tests.live.upstream"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("mirror")
    broker = Broker(find_distribution(), folder / "pulsar", SETTINGS)
    broker.start()
    admin = UpstreamAdmin(broker.web_url)
    try:
        for line in filter(None, BASE.split("\n")):
            said = admin.ask(*shlex.split(line))
            assert said.exit == 0, (line, said.stderr)
        fill(broker.service_url)
        wait_until_settled(broker, ["mirror/one/batch"])
        copy_at_rest(broker.data, folder / "copy")
        found = World(folder / "before", folder / "after")
        found.changed = {line: admin.ask(*shlex.split(line)) for line in CHANGES}
        wait_until_followed(broker)
        wait_until_written(broker, TOPICS_WITH_CURSORS)
        lines = [line for path in READING for line in questions(path)]
        found.said = {line: admin.ask(*shlex.split(line)) for line in lines}
        wait_until(lambda: is_said_again(admin, found), "what the broker wrote of the topics that questions loaded")
    finally:
        admin.close()
        broker.stop()
    run_toolkit(found.before, "store", "import", "standalone", folder / "copy")
    run_toolkit(found.after, "store", "import", "standalone", broker.data)
    return found


def is_said_again(admin: UpstreamAdmin, found: World) -> bool:
    """Whether the broker says the same of topics' metadata once more; it writes some seconds after a question that loads the topic."""
    lines = [line for line in found.said if line.startswith("topics info-internal ")]
    again = {line: admin.ask(*shlex.split(line)) for line in lines}
    is_same = all(
        compare(line, found.said[line], said) in ("same", "values", "refused") for line, said in again.items()
    )
    found.said |= again
    return is_same


def fill(service_url: str) -> None:
    client = open_client(service_url)
    for topic in ("mirror/one/plain", "mirror/one/parts", "mirror/one/ended"):
        producer = client.create_producer(topic)
        for number in range(25):
            producer.send(f"hello {number}".encode(), properties={"number": str(number)})
    producer = client.create_producer("mirror/one/delayed")
    for _ in range(3):
        producer.send(b"later", deliver_at=int(time.time() * 1000) + 86_400_000)
    producer = client.create_producer("mirror/one/batch", batching_enabled=True, batching_max_messages=5)
    for number in range(12):
        producer.send_async(
            b"in a batch", lambda *_: None, properties={"n": str(number)}, partition_key=f"k{number % 3}"
        )
    producer.flush()
    consumer = client.subscribe("mirror/one/batch", "sub", consumer_type=pulsar.ConsumerType.Shared)
    for message in [consumer.receive(RECEIVE_MS) for _ in range(10)]:
        consumer.acknowledge(message)
    client.close()


def wait_until_followed(broker: Broker) -> None:
    """Return when the broker has read all events of policies: it answers a change before, and reads them in their order."""
    broker.put(LAST)
    broker.post(f"{LAST}/messageTTL?messageTTL={LAST_SECONDS}")
    wait_until(lambda: broker.get(f"{LAST}/messageTTL") == LAST_SECONDS, "the last event of policies")


COUNTS: Counter[str] = Counter()


@pytest.mark.parametrize("path", READING)
def test_a_question_has_the_same_answer(path: str, world: World, cli: Cli) -> None:
    """Bytes are counted as the same; JSON may differ in the keys that a store cannot know."""
    offences = []
    for line in questions(path):
        ours = cli("--store", world.after, *shlex.split(line))
        verdict = compare(line, world.said[line], Said(*ours))
        COUNTS[verdict.partition(":")[0]] += 1
        if verdict.startswith("differs"):
            offences.append(f"{line}: {verdict}")
    assert not offences, "\n".join(offences)


def compare(line: str, theirs: Said, ours: Said) -> str:
    """Return ``same``, ``values`` (JSON without the keys of UNKNOWN), ``refused`` (both refuse), ``reason: …`` or ``differs: …``."""
    if theirs.exit and ours.exit:
        return "refused"
    if theirs.exit == ours.exit == 0:
        if theirs.stdout == ours.stdout:
            return "same"
        if known(theirs.stdout) == known(ours.stdout):
            return "values"
    reason = next((reason for glob, reason in REASONS.items() if fnmatchcase(line, glob)), None)
    return f"reason: {reason}" if reason else f"differs: {theirs}\n  ours {ours}"


def known(text: str) -> Any:  # Any: JSON, or lines
    try:
        return _without_unknown(json.loads(text))
    except ValueError:
        return sorted(text.splitlines())


def _without_unknown(value: Any) -> Any:  # Any: JSON
    if isinstance(value, dict):
        return {key: _without_unknown(item) for key, item in value.items() if key not in UNKNOWN}
    return [_without_unknown(item) for item in value] if isinstance(value, list) else value


def test_counts(world: World) -> None:
    print("\nreading commands", len(READING), dict(COUNTS))
    assert COUNTS["same"] > COUNTS["values"]


def test_changes_print_the_same_and_leave_the_same_metadata(world: World, cli: Cli) -> None:
    offences = []
    for line in CHANGES:
        theirs, ours = world.changed[line], cli("--store", world.before, *shlex.split(line), "-y")
        same = (theirs.exit == 0) is (ours.exit_code == 0) and (theirs.exit != 0 or theirs.stdout == ours.stdout)
        if not same and not any(fnmatchcase(line, glob) for glob in REASONS):
            offences.append(f"{line}: {theirs}\n  ours {ours}")
    left_out = [line for line in changes() if line not in CHANGES]
    print(f"\nchanges {len(CHANGES)}, not the same {len(offences)}, not here {len(left_out)}")
    nodes, expected = tree(world.before), tree(world.after)
    for path in sorted(nodes.keys() | expected.keys()):
        if nodes.get(path) != expected.get(path) and path not in LOADED:
            offences.append(f"{path}:\n  theirs {expected.get(path)}\n  ours   {nodes.get(path)}")
    assert not offences, "\n".join(offences)


LOADED = ("/admin/local-policies/public/default", "/admin/local-policies/pulsar/system")
"""Written by a broker that loads a bundle."""


def tree(store: Path) -> dict[str, Any]:  # Any: JSON of metadata nodes
    """Return the values of the nodes below /admin and /bookies, by path."""
    found: dict[str, Any] = {}

    def add(txn: Any, path: str) -> None:
        node = find_node(txn, path)
        if node is not None and node.value:
            found[path] = _ordered(json.loads(node.value))
            if isinstance(found[path], dict):
                found[path].pop("is_allow_auto_update_schema", None)  # a broker that was asked writes its default
        for child in iter_children(txn, path):
            add(txn, f"{path}/{child}")

    with open_store(store) as opened, opened.read() as txn:
        for path in ("/admin", "/bookies", "/loadbalance/resource-quota"):
            add(txn, path)
    return found


def _ordered(value: Any) -> Any:  # Any: JSON
    """VALUE with lists of texts sorted: roles' actions and others are sets, in the order of their hashes."""
    if isinstance(value, dict):
        return {key: _ordered(item) for key, item in value.items()}
    if isinstance(value, list):
        return sorted(value) if all(isinstance(item, str) for item in value) else [_ordered(item) for item in value]
    return value
