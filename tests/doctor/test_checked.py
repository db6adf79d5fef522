"""Whatever ``store check`` finds the doctor tells, ranked, with evidence and a command; damage alone makes no other finding."""

from functools import cache
from pathlib import Path

import pytest

from pulsar_admin.store.codec.ledgermetadata import ledger_path
from pulsar_admin.store.db.environment import Store, open_store
from pulsar_admin.store.db.tree import tree_key
from pulsar_admin.store.doctor.diagnosing import DoctorOptions, diagnose
from pulsar_admin.store.doctor.overview import count_findings
from pulsar_admin.store.model.topics import read_topic
from pulsar_admin.store.names import parse_topic
from pulsar_admin.store.rules.finding import Finding
from tests.stores import NOW_MS, copied, imported, narrow, narrow_copy, write_rows
from tests.test_check import CASES, DEEP, findings

CODE = "ledger-without-metadata"
_SUMMED_UP = {"ledgers-unreferenced", "ledgers-deleted", "ledgers-gone"}


def told(path: Path, *, deep: bool = False, now_ms: int = NOW_MS) -> list[Finding]:
    with open_store(path) as store:
        return list(diagnose(store, now_ms=now_ms, options=DoctorOptions(deep=deep, each=100_000)))


@cache
def codes_before(path: Path) -> set[str]:
    """What is told of every copy of the store at PATH that nothing was planted in."""
    return {one.code for one in told(path)}


def plant(name: str, path: Path) -> None:
    change, _ = {**CASES, **DEEP}[name]
    write_rows(path, change)


@pytest.mark.parametrize("case", [*CASES, *DEEP])
def test_every_contradiction_is_told(case: str, tmp_path: Path, damages_stores: None) -> None:
    needs_more = "partitions" in case
    path = copied("small", "clean", tmp_path) if needs_more else narrow_copy(tmp_path)
    before = codes_before(imported("small", "clean") if needs_more else narrow())
    plant(case, path)
    deep = case in DEEP
    found, checked = told(path, deep=deep), findings(path, deep=deep)
    assert {one.code for one in found} - before - _SUMMED_UP == {one.code for one in checked} - _SUMMED_UP
    assert {**CASES, **DEEP}[case][1] <= {one.code for one in found} & {one.code for one in checked if one.is_problem}
    for one in found:
        assert one.where
        assert one.message
        assert one.broker
        assert one.mend.startswith("pulsar-admin ")
        assert one.page == f"docs/doctor/{one.code}.md"


def test_of_a_code_the_rest_is_summed_up() -> None:
    with open_store(imported("small", "clean")) as store:
        whole = [one for one in diagnose(store, now_ms=NOW_MS) if one.code == "clock-behind"]
        some = [
            one for one in diagnose(store, now_ms=NOW_MS, options=DoctorOptions(each=2)) if one.code == "clock-behind"
        ]
    assert len(whole) > 3
    assert some[:2] == whole[:2]
    assert some[2].where == f"{len(whole) - 2} more"
    assert some[2].at_stake_messages == sum(one.at_stake_messages for one in whole[2:])
    assert len(some) == 3


def test_many_lost_ledgers_of_a_topic_hide_no_other(tmp_path: Path, damages_stores: None) -> None:
    """Seen: a topic that lost 1,221 ledgers was told ten times, and a topic that lost one not at all."""
    plain, other = "persistent://public/default/plain", "persistent://public/default/json"
    path = copied("small", "clean", tmp_path)
    with open_store(path, writable=True) as store:
        with store.read() as txn:
            lost = [*read_topic(txn, parse_topic(plain)).ids[:-1], read_topic(txn, parse_topic(other)).ids[0]]
        store.write(lambda txn: [txn.delete("tree", tree_key(ledger_path(ledger_id))) for ledger_id in lost])
    with open_store(path) as store:
        one_by_one = [one for one in diagnose(store, now_ms=NOW_MS, options=DoctorOptions(each=99)) if one.code == CODE]
        found = [one for one in diagnose(store, now_ms=NOW_MS, options=DoctorOptions(each=2)) if one.code == CODE]
        counted = read_findings(store)
    many = len(lost) - 1
    assert {one.where for one in one_by_one if plain in one.where} == {f"ledger {one} of {plain}" for one in lost[:-1]}
    assert sorted(one.where for one in found) == sorted([f"{many} ledgers of {plain}", f"ledger {lost[-1]} of {other}"])
    (summed,) = (one for one in found if plain in one.where)
    assert summed.at_stake_messages == sum(one.at_stake_messages for one in one_by_one if plain in one.where)
    assert summed.mend == f"pulsar-admin doctor --code {CODE} --each 1000000"
    assert counted == len(lost)


def read_findings(store: Store) -> int:
    """How many of the code the overview counts."""
    found = count_findings(diagnose(store, now_ms=NOW_MS, options=DoctorOptions(each=1)))
    return sum(one.count for one in found if one.code == CODE)


def test_many_that_one_command_repairs_keep_it(tmp_path: Path, damages_stores: None) -> None:
    """A topic whose node cannot be read has no command but a look at it."""
    path = copied("small", "clean", tmp_path)
    plant("value of a topic", path)
    with open_store(path) as store:
        found = {one.code: one for one in diagnose(store, now_ms=NOW_MS, options=DoctorOptions(each=2))}
    assert found["owners-differ"].where.endswith(" ledgers")
    assert found["owners-differ"].mend == "pulsar-admin store index --rebuild"
    path_of_node = "/managed-ledgers/public/default/persistent/plain"
    assert found["topic-unreadable"].mend == f"pulsar-admin store cat {path_of_node} --hex"
