"""Ask the real pulsar-admin the lines of ``tests/golden/answers/NAME.txt`` again and write down what it says and leaves.

``python -m tests.live.answers NAME`` starts a broker of its own; ``--broker URL DATA`` asks one that runs on the directory DATA.
"""

import argparse
import shutil
import tempfile
from pathlib import Path

from pulsar_admin.store.db.tree import iter_nodes
from pulsar_admin.store.transfer.imports import ImportOptions
from tests.answers import Answer, Answers, given_nodes, own_nodes, read_answers, write_answers
from tests.live.broker import BASE_SETTINGS, Broker
from tests.live.distribution import find_distribution
from tests.live.upstream import UpstreamAdmin
from tests.stores import import_standalone, read_rows

SETTINGS = {**BASE_SETTINGS, "transactionCoordinatorEnabled": "true", "topicLevelPoliciesEnabled": "true"}


def nodes_of(data: Path) -> dict[str, bytes]:
    """Return all nodes in a copy of the metadata of DATA, whose broker may run."""
    with tempfile.TemporaryDirectory() as scratch:
        shutil.copytree(data, f"{scratch}/data")
        import_standalone(Path(scratch, "data"), Path(scratch, "store"), ImportOptions(now_ms=0), lambda _: None)
        return read_rows(Path(scratch, "store"), lambda txn: {node.path: node.value for node in iter_nodes(txn, "/")})


def ask_again(found: Answers, web_url: str, data: Path) -> Answers:
    """Return FOUND with what the broker at WEB_URL says now and leaves in DATA."""
    before = nodes_of(data)
    assert own_nodes(before).keys() <= given_nodes(before).keys(), "names of these lines are taken"
    admin = UpstreamAdmin(web_url)
    try:
        answers = [_ask(admin, one) for one in found.answers]
    finally:
        admin.close()
    return Answers(found.head, given_nodes(before), answers, own_nodes(nodes_of(data)))


def _ask(admin: UpstreamAdmin, asked: Answer) -> Answer:
    said = admin.ask(*asked.words)
    error = said.stderr.partition("\n")[0] if said.exit else None
    return Answer(asked.line, said.stdout, error)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--broker", nargs=2, metavar=("URL", "DATA"))
    asked = parser.parse_args()
    found = read_answers(asked.name)
    if asked.broker:
        write_answers(asked.name, ask_again(found, asked.broker[0], Path(asked.broker[1])))
        return
    with tempfile.TemporaryDirectory() as folder:
        broker = Broker(find_distribution(), Path(folder), SETTINGS)
        broker.start()
        try:
            write_answers(asked.name, ask_again(found, broker.web_url, broker.data))
        finally:
            broker.stop()


if __name__ == "__main__":
    main()
