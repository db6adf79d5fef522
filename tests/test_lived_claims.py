"""What recovery promises, on the cluster that has lived, against what was recorded of it: the figures of ``docs/howto/recover.md``."""

import shutil
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Cli
from tests.stores import lived, lived_bookie
from tests.test_recorded_lived import WORLD, rows_of, said
from tests.worlds import world

pytestmark = pytest.mark.deep
LEFT = ("acme/app/again", "acme/late/one", "acme/late/two")
"""Of the deleted topics, those whose entries no garbage collection has taken."""


def test_what_was_deleted_comes_back_as_far_as_bookies_have_it(cli: Cli, tmp_path: Path) -> None:
    store = shutil.copytree(lived(), tmp_path / "store")
    here = {row["topic"].removeprefix("persistent://"): row["entries"] for row in cli.json(store, "topics undelete")}
    deleted = said("deleted")
    assert {topic: here[topic] for topic in deleted} == {
        topic: len(one["rows"]) if topic in LEFT else 0 for topic, one in deleted.items()
    }
    for words in ("acme/app/again", "--namespace acme/late"):
        assert cli.on(store, f"topics undelete {words} --yes").exit_code == 0
    found: dict[str, list[Any]] = defaultdict(list)
    for topic, row in rows_of(cli, store):
        found[topic].append(row)
    assert all(found[f"{topic}-restored"] == deleted[topic]["rows"] for topic in LEFT)
    assert all(found[topic] == rows for topic, rows in said("rows").items())


@pytest.mark.parametrize(("options", "joins"), [("", 110), ("--probable", 143)])
def test_bookies_alone_give_every_message_and_no_wrong_link(cli: Cli, tmp_path: Path, options: str, joins: int) -> None:
    store, bookies = tmp_path / "store", sorted((world(WORLD) / "clean").glob("bookie*"))
    words = [word for bookie in bookies for word in ("--bookie", lived_bookie(bookie))]
    assert cli("--store", store, "store", "import", "cluster", *words).exit_code in (0, 1)
    cli.done("--store", store, "store", "recover", "--names", tmp_path / "names.csv", "--yes", *options.split())
    found: dict[int, str] = {}
    rows = []
    for topic, row in rows_of(cli, store, "--uncommitted"):
        found[row[0]] = topic
        rows.append(row)
    assert [row for topic in said("rows").values() for row in topic if row not in rows] == []
    topics = [*said("rows").values(), *(said("deleted")[topic]["rows"] for topic in LEFT)]
    ledgers = [list(dict.fromkeys(row[0] for row in topic)) for topic in topics]
    joined = [found[one] == found[other] for topic in ledgers for one, other in pairwise(topic)]
    assert (joined.count(True), len(joined)) == (joins, 143)
    of = [{found[ledger_id] for ledger_id in topic} for topic in ledgers]
    assert sum(map(len, of)) == len(set().union(*of))  # no two topics are one
