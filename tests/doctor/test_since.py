"""What changed between two looks of the doctor: files and stores, and lists of which the sets are known."""

import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from msgspec.structs import replace

from pulsar_admin import open_store as open_api
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.db.tree import tree_key
from pulsar_admin.store.doctor.diagnosing import Ranking
from pulsar_admin.store.doctor.since import ChangeSince, FindingChange, compare
from pulsar_admin.store.model.copy_age import AsOf, put_as_of
from pulsar_admin.store.rules.finding import Finding, Severity
from pulsar_admin.store.rules.masking import BLIND, BLIND_PLACES, DEEP, FILES, UNREAD
from pulsar_admin.store.rules.table import RULES_BY_CODE
from tests.conftest import Cli
from tests.stores import copied, imported, write_rows
from tests.worlds import oracle

ROOT = Path(__file__).resolve().parents[2]
T = "persistent://a/b/"
CODE = "ledger-missing"
LEAK = "leaked-ledgers"


def one(code: str, where: str, **evidence: object) -> Finding:
    return RULES_BY_CODE[code].at(where, "it is so", **evidence)


def changes(before: list[Finding], found: list[Finding], each: int = 10) -> list[tuple[str, str, str]]:
    return [(row.change, row.code, row.where) for row in compare(before, found, each=each).changes]


def ranked(found: list[Finding], each: int) -> list[Finding]:
    ranking = Ranking(each)
    for diagnosis in found:
        ranking.add(diagnosis)
    return list(ranking.ranked())


# -- two stores, and files ------------------------------------------------------------------------------------------------


@pytest.fixture
def stores(tmp_path: Path, cli: Cli) -> tuple[Path, Path]:
    """A store, and a copy of it in which a TTL drops delayed messages."""
    (tmp_path / "later").mkdir()
    first, later = copied("small", "clean", tmp_path), copied("small", "clean", tmp_path / "later")
    assert cli("--store", later, "namespaces", "set-message-ttl", "acme/delayed", "-ttl", "60").exit_code == 0
    return first, later


@pytest.mark.parametrize("form", ["json", "jsonl", "store"])
def test_new_and_gone(form: str, stores: tuple[Path, Path], tmp_path: Path, cli: Cli) -> None:
    subscriptions = oracle("small")["topics"]["acme/delayed/reminders"]["internal_stats"]["cursors"]
    places = {f"persistent://acme/delayed/reminders {name}" for name in subscriptions}
    since = []
    for path in stores:
        if form == "store":
            since.append(path)
            continue
        since.append(tmp_path / f"{len(since)}.{form}")
        since[-1].write_text(cli("--store", path, "doctor", "-o", form).stdout)
    for here, then, change in ((1, 0, "new"), (0, 1, "gone"), (0, 0, "")):
        if here == then and form == "store":
            continue
        answer = cli("--store", stores[here], "doctor", "--since", since[then], "-o", "json")
        assert {(row["change"], row["code"], row["where"]) for row in answer.json} == {
            (change, "delay-beyond-ttl", place) for place in places if change
        }
        assert answer.exit_code == (here == 1)  # the TTL's are warnings, new or old
        failing = cli("--store", stores[here], "doctor", "--since", since[then], "--fail-on", "new")
        assert failing.exit_code == (change == "new")
        told = [line.split(" ")[0] for line in failing.stdout.splitlines() if " delay-beyond-ttl: " in line]
        assert told == [change for _ in places if change]
    for text in failing.stdout.splitlines()[:2]:
        assert text.startswith(("as of ", "compared with "))


def test_a_store_of_another_cluster_is_told(stores: tuple[Path, Path], cli: Cli) -> None:
    words = ("--store", stores[0], "doctor", "--code", "delay-beyond-ttl", "--since")
    cli(*words, imported("nometa", "clean")).ends(0, " belongs to another cluster (")
    assert cli(*words, stores[1]).stderr == ""


def test_text_says_what_did_not_change_and_how_it_was(stores: tuple[Path, Path], tmp_path: Path, cli: Cli) -> None:
    asked = ("--store", stores[1], "doctor", "--since", tmp_path / "last.json", "--fail-on", "new")
    saved = json.loads(cli("--store", stores[1], "doctor", "-o", "json").stdout)
    (row,) = [row for row in saved if row["where"] == "persistent://acme/delayed/reminders audit"]
    assert (row["code"], row["atStakeMessages"]) == ("delay-beyond-ttl", 140)
    row["atStakeMessages"] = 100
    (tmp_path / "last.json").write_text(json.dumps(saved))
    answer = cli(*asked)
    lines = answer.stdout.splitlines()
    assert answer.exit_code == 1
    assert lines[1:3] == [
        f"compared with {tmp_path}/last.json: 1 worse, {len(saved) - 1} unchanged",
        "worse warning delay-beyond-ttl: acme/delayed/reminders audit",
    ]
    assert "  before: warning, 100 messages; now: warning, 140 messages" in lines
    table = cli(*asked, "-o", "table").stdout.splitlines()
    assert [re.split(" {2,}", line)[:2] for line in table] == [["CHANGE", "SEVERITY"], ["worse", "warning"]]
    before = cli(*asked, "-o", "json").json[0]["before"]
    assert before == {"severity": "warning", "findings": 1, "atStakeBytes": 0, "atStakeMessages": 100}


def test_filters_are_of_what_changed(stores: tuple[Path, Path], cli: Cli) -> None:
    asked = ("--store", stores[1], "doctor", "--since", stores[0], "-o", "json")
    assert cli(*asked, "--severity", "critical").json == []
    assert cli(*asked, "--code", "clock-ahead").json == []
    assert len(cli(*asked, "--code", "delay-beyond-ttl", "--severity", "warning").json) == 2
    with open_api(stores[1]) as store:
        found = store.compare_findings(stores[0], codes=["delay-beyond-ttl"])
    assert [(row.change, row.code) for row in found.changes] == [(ChangeSince.NEW, "delay-beyond-ttl")] * 2
    assert found.unchanged == 0


def test_a_store_is_judged_as_of_its_own_time(tmp_path: Path, damages_stores: None) -> None:
    """To a copy of 2020 all that the ledgers say lies in the future; to today's nothing does."""
    early = copied("small", "clean", tmp_path)
    write_rows(early, lambda txn: put_as_of(txn, AsOf(1_600_000_000_000, "files")))
    with open_api(imported("small", "clean")) as store:
        found = store.compare_findings(early, codes=["ledger-closed-in-future"])
    closed = {row.where for row in found.changes if row.change is ChangeSince.GONE}
    assert "persistent://public/default/plain" in closed
    assert all(row.change is ChangeSince.GONE for row in found.changes)


def test_what_cannot_be_read_is_not_gone(stores: tuple[Path, Path], tmp_path: Path, damages_stores: None) -> None:
    _, later = stores
    shutil.copytree(later, tmp_path / "damaged")
    with open_store(tmp_path / "damaged", writable=True) as store:
        store.write(lambda txn: txn.put("tree", tree_key("/managed-ledgers/acme/delayed/persistent/reminders"), b"x"))
    with open_api(tmp_path / "damaged") as store:
        found = store.compare_findings(later).changes
    assert {row.change for row in found if row.code == "delay-beyond-ttl"} == {ChangeSince.NOT_SEEN}
    assert any(row.change is ChangeSince.NEW and row.severity is Severity.CRITICAL for row in found)
    assert all(
        bool(row.mend) is (row.change in (ChangeSince.NEW, ChangeSince.WORSE)) for row in found
    )  # those of the other store


# -- exit codes -----------------------------------------------------------------------------------------------------------


def test_a_note_that_is_new_fails_nothing(cli: Cli) -> None:
    asked = ("--store", imported("small", "crashed"), "doctor", "--since", imported("small", "clean"))
    answer = cli(*asked, "--fail-on", "new", "-o", "json")
    assert {row["severity"] for row in answer.json if row["change"] == "new"} == {"note"}
    assert answer.exit_code == 0


def test_what_is_summed_up_hides_nothing_after_it(tmp_path: Path, cli: Cli) -> None:
    asked = ("--store", imported("small", "clean"), "doctor", "--each", 1, "-o", "json")
    (tmp_path / "file").write_text(cli(*asked).stdout)
    assert "more" in (tmp_path / "file").read_text()
    assert cli(*asked, "--since", tmp_path / "file").json == []


def test_what_is_refused(tmp_path: Path, cli: Cli) -> None:
    path = imported("small", "clean")
    for asked in (
        ("--fail-on", "new"),
        ("--since", tmp_path / "none"),
        ("--since", path),
        ("--since", tmp_path / "none", "--html", tmp_path / "page.html"),
    ):
        answer = cli("--store", path, "doctor", *asked)
        assert answer.exit_code == 2, asked
        assert answer.stderr
    nothing = cli("--store", path, "doctor", "--since", tmp_path, "-o", "json")  # a directory, and no store
    assert (nothing.exit_code, "import" in nothing.error["hint"]) == (5, False)
    assert not (tmp_path / "page.html").exists()


# -- what is the same finding ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "found", "expected"),
    [
        (one(LEAK, "ledger 7", ledgerIds=[7], bytes=9), one(LEAK, "ledgers 7, 8 …", ledgerIds=[7, 8], bytes=9), []),
        (one(LEAK, "ledger 7", ledgerIds=[7], bytes=9), one(LEAK, "ledgers 7, 8", ledgerIds=[7, 8], bytes=10), ["worse"]),
        (one(CODE, f"ledger 7 of {T}c", ledgerId=7), one(CODE, f"ledger 8 of {T}c", ledgerId=8), ["new", "gone"]),
        (one(CODE, f"1,234 ledgers of {T}c", alike=1234), one(CODE, f"1,233 ledgers of {T}c", alike=1233), []),
        (one(CODE, f"1,234 ledgers of {T}c", alike=1234), one(CODE, f"1,235 ledgers of {T}c", alike=1235), ["worse"]),
        (one(CODE, f"101 ledgers of {T}c", ledgers=101), one(CODE, f"101 ledgers of {T}d", ledgers=101), ["new", "gone"]),
        (one("file-damaged", "/old/current/3.log", problems=1), one("file-damaged", "/new/current/3.log", problems=1), []),
        (one("value-undecodable", "/admin/a/x"), one("value-undecodable", "/admin/b/x"), ["new", "not-seen"]),
        (replace(one(CODE, T), severity=Severity.NOTE), one(CODE, T), ["worse"]),
        (one(CODE, T), replace(one(CODE, T), severity=Severity.NOTE, at_stake_bytes=5), []),
        (one("clock-ahead", T, messages=3), one("clock-ahead", T, messages=2), []),
        (one("entry-damaged", "/a/1.log @ 0x1"), one("clock-ahead", T), ["new", "not-seen"]),  # this look is not deep
    ],
)  # fmt: skip
def test_the_same_finding(before: Finding, found: Finding, expected: list[str]) -> None:
    assert [change for change, _, _ in changes([before], [found])] == expected


@pytest.mark.parametrize("seed", range(60))
def test_against_the_sets_themselves(seed: int) -> None:
    """Whatever two looks left out: named changes are true, and new less gone is what was added."""
    rng = random.Random(seed)
    names = [f"{T}{number}" for number in range(rng.choice([3, 12, 40]))]
    sets = [set(rng.sample(names, rng.randrange(len(names) + 1))) for _ in range(2)]
    looks = [
        ranked(
            [one("clock-ahead", where, messages=rng.randrange(9)) for where in sorted(found)], rng.choice([2, 5, 100])
        )
        for found in sets
    ]
    compared = compare(*looks, each=rng.choice([1, 5, 100]))
    sums: Counter[ChangeSince] = Counter()
    for row in compared.changes:
        assert isinstance(row, FindingChange)
        more = row.evidence.get("more")
        sums[row.change] += more if isinstance(more, int) else 1
        if more is None:
            assert (row.where in sets[0]) is (row.change is not ChangeSince.NEW)
            assert (row.where in sets[1]) is (row.change is not ChangeSince.GONE)
    assert sums[ChangeSince.NEW] - sums[ChangeSince.GONE] == len(sets[1]) - len(sets[0])
    if not any(row.where.endswith(" more") for look in looks for row in look):
        assert sums[ChangeSince.NEW] == len(sets[1] - sets[0])
        assert sums[ChangeSince.WORSE] + compared.unchanged == len(sets[0] & sets[1])


_ROW = dict.fromkeys(("severity", "code", "where", "message", "broker", "mend", "page"), "x") | {
    "atStakeBytes": 0,
    "atStakeMessages": 0,
}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", None),
        ("[]", None),
        ("[", "is no list of findings"),
        ("{}", "'code' is missing"),
        ("[1]", "an entry is 1, not an object"),
        ('[{"change":"new"}]', "it was made with --since"),
        (json.dumps([_ROW | {"message": 5}]), "a value has another kind"),
        (json.dumps([_ROW | {"atStakeBytes": "5"}]), "a value has another kind"),
        ("[" * 100_000, "is no list of findings"),
        ("\udcff", "is no list of findings"),
    ],
)
def test_a_file_of_something_else(text: str, said: str | None, tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "file").write_bytes(text.encode(errors="surrogateescape"))
    answer = cli("--store", imported("small", "clean"), "doctor", "--since", tmp_path / "file")
    if said is None:  # nothing was found then
        assert answer.stdout.splitlines()[1].endswith(" 13 new, 0 unchanged")
    else:
        assert answer.exit_code == 2
        assert said in answer.stderr
        assert "pulsar-admin doctor -o json" in answer.stderr


def test_a_file_of_another_version(tmp_path: Path, cli: Cli) -> None:
    """A code that this version does not look for is not gone, and keys that it does not write are not missed."""
    row = {"severity": "warning", "code": "told-by-another-version", "where": "x", "message": "y", "later": 1}
    (tmp_path / "file").write_text(json.dumps([row | {"where": f"x{place}"} for place in range(12)]))
    found = cli("--store", imported("small", "clean"), "doctor", "--since", tmp_path / "file", "-o", "json").json
    assert [one["change"] for one in found if one["code"] == row["code"]] == ["not-seen"] * 11  # ten, and the rest


def test_in_an_empty_store_nothing_is_gone(tmp_path: Path, cli: Cli) -> None:
    assert cli("--store", tmp_path / "s", "store", "init").exit_code == 0
    found = cli("--store", tmp_path / "s", "doctor", "--since", imported("small", "clean"), "-o", "json").json
    assert {one["change"] for one in found} == {"not-seen"}
    nothing = cli("--store", tmp_path / "s", "doctor", "--severity", "note").stdout
    assert nothing.endswith("\nNothing of this kind was found.\n")


def test_the_codes_are_known() -> None:
    assert set(RULES_BY_CODE) >= BLIND | BLIND_PLACES | DEEP | FILES | UNREAD


# -- the page -------------------------------------------------------------------------------------------------------------


def test_the_script_for_cron(stores: tuple[Path, Path], tmp_path: Path) -> None:
    """Nothing is printed in a night without news; what is printed is mailed."""
    page = (ROOT / "docs/howto/doctor-since.md").read_text()
    (script,) = re.findall(r"^```sh\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    folder = tmp_path / "night"
    folder.mkdir()
    (folder / "pulsar-doctor").write_text(script)
    (folder / "bin").mkdir()
    program = folder / "bin/pulsar-admin"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m pulsar_admin "$@"\n')
    program.chmod(0o755)

    def night(store: Path) -> str:
        environment = {
            "PATH": f"{program.parent}:{os.environ['PATH']}",
            "DOCTOR_DIR": str(folder),
            "PULSAR_ADMIN_STORE": str(store),
            "PYTHONPATH": str(ROOT),
        }
        done = subprocess.run(
            ["sh", str(folder / "pulsar-doctor")], env=environment, capture_output=True, text=True, check=False
        )
        assert done.stderr == ""
        return done.stdout

    assert "last.json cannot be read" in night(stores[0])
    assert night(stores[0]) == ""
    assert "\nnew warning delay-beyond-ttl: " in night(stores[1])


def test_of_a_topic_that_cannot_be_read_nothing_is_gone() -> None:
    before = [one("clock-ahead", f"{T}c", topic=f"{T}c"), one("clock-ahead", f"{T}d", topic=f"{T}d")]
    assert changes(before, [one("topic-unreadable", f"{T}c")])[1:] == [
        ("not-seen", "clock-ahead", f"{T}c"),
        ("gone", "clock-ahead", f"{T}d"),
    ]
    assert {change for change, *_ in changes(before, [one("metadata-incomplete", "x")])} == {"new", "not-seen"}


def test_findings_of_other_severities_are_left_out() -> None:
    found = [one("clock-ahead", f"{T}c"), replace(one(CODE, T), severity=Severity.CRITICAL)]
    compared = compare([], found, each=9, severities=[Severity.CRITICAL])
    assert (compared.found, [row.code for row in compared.changes]) == ((found[1],), [CODE])


def test_of_what_a_deep_look_could_not_read_nothing_is_gone() -> None:
    before = [one("entry-damaged", "/a/1.log @ 0x1")]
    assert compare(before, [], each=9, deep=True).changes[0].change is ChangeSince.GONE
    for code in UNREAD:
        assert compare(before, [one(code, "/a/1.log")], each=9, deep=True).changes[-1].change is ChangeSince.NOT_SEEN
