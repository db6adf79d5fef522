"""Plan files, kept, changed and forged, and the audit log forged in the store: what is shown is what is done, or nothing is."""

import io
import json
import math
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from hashlib import sha1, sha256
from importlib import import_module
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
from msgspec.structs import replace

from pulsar_admin.api.plan import CLASSES, Planner
from pulsar_admin.store.changes.plan import read_plan
from pulsar_admin.store.db.audit_log import read_change
from pulsar_admin.store.db.environment import Txn, open_store
from tests.commands.changing import rows_of
from tests.conftest import Cli
from tests.stores import NOW_MS, copied, narrow_copy, read_rows, write_rows
from tests.worlds import assert_unchanged

Json = dict[str, Any]  # Any: JSON
TOPIC = "public/default/plain"
NOW = f"@{NOW_MS}"

PLANNED: dict[str, tuple[str, ...]] = {
    "reset": ("topics", "reset-cursor", TOPIC, "-s", "half", "-m", "9:3"),
    "reset several": ("topics", "reset-cursor", "--all-topics", "-s", "half", "-m", "earliest"),
    "skip": ("topics", "skip", TOPIC, "-s", "half", "-n", "2"),
    "clear": ("topics", "clear-backlog", TOPIC, "-s", "half"),
    "unsubscribe": ("topics", "unsubscribe", TOPIC, "-s", "half"),
    "create": ("topics", "create-subscription", TOPIC, "-s", "new one", "-m", "9:3", "-r", "-p", "a=b"),
    "expire": ("topics", "expire", TOPIC, "-s", "half", "-t", "1"),
    "namespace clear": ("namespaces", "clear-backlog", "public/default"),
    "namespace unsubscribe": ("namespaces", "unsubscribe", "public/default", "-s", "half"),
    "delay": ("namespaces", "enable-delayed-message", "public/default", "-p", "10m"),
    "delivery": ("namespaces", "set-delayed-delivery", "public/default", "-e", "-t", "2s"),
    "ttl": ("namespaces", "set-message-ttl", "public/default", "-ttl", "3600"),
    "retention": ("namespaces", "set-retention", "public/default", "-t", "2h", "-s", "1G"),
    "nacks": ("nacks", "add", TOPIC, "-s", "half", "--delay", "10s", "9:1", "9:2"),
    "annotate": ("store", "annotate", TOPIC, "--form", "fields"),
    "topic ttl": ("topics", "set-message-ttl", TOPIC, "-t", "3d"),
    "delete": ("topics", "delete", TOPIC),
    "compaction": ("compaction", "run", "acme/orders/compacted-single", "--retain-null-key", "--format", "legacy"),
    "tenant": ("tenants", "create", "new", "--allowed-clusters", "standalone"),
}


def _plan(cli: Cli, store: Path, name: str = "reset") -> tuple[Path, Json]:
    file = store.parent / "a.plan"
    cli.done("--store", store, "--now", NOW, *PLANNED[name], "--plan", file)
    assert file.stat().st_mode & 0o077 == 0
    return file, json.loads(file.read_bytes())


def _signed(fields: Json) -> Json:
    """Return FIELDS as one who knows how would forge them: with a digest that fits."""
    told = {name: value for name, value in fields.items() if name != "digest"}
    return {**told, "digest": sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()}


def _apply(cli: Cli, store: Path, file: Path, fields: Json, *options: str) -> Any:  # Any: CliResult
    file.write_text(json.dumps(fields))
    return cli("--store", store, "apply", file, "-o", "json", "--yes", *options)


@pytest.mark.parametrize("name", PLANNED)
def test_a_plan_does_what_its_command_does(name: str, cli: Cli, store: Path, tmp_path: Path) -> None:
    """The same rows, stamped with the time of the plan, the report of the dry run, and a line in the audit log of today."""
    (tmp_path / "other").mkdir()
    other = copied("small", "clean", tmp_path / "other")
    file, fields = _plan(cli, store, name)
    shown = cli("--store", other, "--now", NOW, *PLANNED[name], "-o", "json", "--dry-run").json
    assert cli("--store", other, "--now", NOW, *PLANNED[name], "--yes").exit_code == 0
    assert _apply(cli, store, file, fields, "--dry-run").json == shown
    assert rows_of(store, "changes") == {"changes": {}}
    # What writes ledgers first is stamped with the time at which it writes.
    done = _apply(cli, store, file, fields, *(() if fields["steps"] is not None else ("--now", NOW)))
    assert done.exit_code == 0, done.stderr
    assert rows_of(store, "tree", "owners", "nacks", "delayed") == rows_of(other, "tree", "owners", "nacks", "delayed")
    if fields["steps"] is not None:
        assert read_rows(store, lambda txn: read_change(txn, 1).time_ms) > NOW_MS + 3_600_000
    assert _apply(cli, store, file, fields).error["code"] == "stale-plan"


@pytest.mark.parametrize("form", [1, 2, 4])
def test_plans_of_other_versions_are_refused(form: int, cli: Cli, store: Path) -> None:
    file, fields = _plan(cli, store)
    refused = _apply(cli, store, file, {"planFormat": form, "command": "topics skip", "transaction": 8, "steps": []})
    assert refused.exit_code == 2
    assert refused.error["message"] == f"{file} is a plan of format {form}, this version applies format 3"
    assert refused.error["hint"] == "create a new plan and review it"
    assert _apply(cli, store, file, fields).exit_code == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("command", "topics clear-backlog"),
        ("request", {}),
        ("transaction", 9),
        ("state", ""),
        ("steps", []),
        ("reports", []),
        ("loses", "nothing"),
        ("more", 1),
        ("transaction", math.nan),
        ("transaction", 10**400),
        ("reports", [json.loads("[" * 500 + "]" * 500)]),
        ("command", "topics \ud800"),
    ],
)
def test_a_file_that_was_changed_is_refused(name: str, value: object, cli: Cli, store: Path) -> None:
    file, fields = _plan(cli, store)
    with assert_unchanged(store / "meta" / "data.mdb"):
        refused = _apply(cli, store, file, {**fields, name: value})
    assert (refused.exit_code, refused.error["code"]) == (2, "invalid-value")


@pytest.mark.parametrize(("name", "shown"), [("command", '"topics peek"'), ("reports", "[]"), ("steps", '["nothing"]')])
def test_a_name_that_is_there_twice_is_refused(name: str, shown: str, cli: Cli, store: Path) -> None:
    """Who reviews the file reads the first value, and the last one would be applied."""
    file, fields = _plan(cli, store)
    text = file.read_text().replace(f'"{name}":', f'"{name}": {shown}, "{name}":', 1)
    assert json.loads(text) == fields
    file.write_text(text)
    with assert_unchanged(store / "meta" / "data.mdb"):
        refused = cli.on(store, f"apply {file} -o json")
    assert refused.exit_code == 2
    assert refused.error["message"] == f"{file} is not a plan: '{name}' is there twice"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f'{{"planFormat": {"9" * 5000}}}', "a number has more digits than any that is meant"),
        ('{"planFormat": 3, "command": "\\ud800"}', "half of a surrogate pair is no character"),
    ],
)
def test_what_python_cannot_read_is_said_in_our_words(text: str, said: str, cli: Cli, store: Path) -> None:
    file = store.parent / "a.plan"
    file.write_text(text)
    assert cli.on(store, f"apply {file} -o json").error["message"] == f"{file} is not a plan: {said}"


def _called(**of: Any) -> Callable[[Json], Json]:  # Any: JSON
    return lambda fields: {"request": {**fields["request"], **of}}


FORGERIES: dict[str, tuple[int, Callable[[Json], Json]]] = {
    "harmless reports": (4, lambda fields: {"reports": [{"topic": "nothing", "entries": 0}]}),
    "harmless steps": (4, lambda fields: {"steps": ["change tree /nothing"]}),
    "no steps": (4, lambda fields: {"steps": None}),
    "nothing is lost": (4, lambda fields: {"loses": "nothing at all"}),
    "another call": (2, _called(method="clear", options={})),
    "another place": (4, lambda fields: _called(options={**fields["request"]["options"], "exclude": True})(fields)),
    "another time": (4, _called(now=NOW_MS + 1)),
    "another transaction": (4, lambda fields: {"transaction": fields["transaction"] + 1}),
    "another store": (4, lambda fields: {"state": "00" * 32}),
    "another command": (2, lambda fields: {"command": "topics skip"}),
    "an escape": (2, lambda fields: {"command": "topics skip\x1b[2J"}),
    "another class": (2, _called(of="Session")),
    "a class of nothing": (2, _called(of=["Store"])),
    "what is no plan": (2, _called(method="backlog", options={})),
    "what is not ours to call": (2, _called(method="_cursors", options={})),
    "an attribute": (2, _called(method="__class__")),
    "another plan file": (2, _called(of="Store", madeOf={"tuple": []}, method="load_plan", values={"tuple": ["a"]})),
    "an option too many": (2, _called(options={"force": True, "forced": True})),
    "a wrong kind": (2, _called(options={"to": {"Position": [9, 3]}})),
    "no kind": (2, _called(options={"to": {"Popen": "true"}})),
    "two kinds": (2, _called(options={"to": {"Position": "9:3", "Path": "x"}})),
    "a wrong value": (2, _called(options={"to": "9:3", "force": 3})),
    "a wrong topic": (2, _called(madeOf={"tuple": [{"TopicSelection": [["a//b"], False, None]}, "half"]})),
    "a namespace for topics": (2, _called(madeOf={"tuple": [{"NamespaceName": "a/b"}, "half"]})),
    "nothing for topics": (2, _called(madeOf={"tuple": [None, "half"]})),
    "texts for topics": (2, _called(of="KeptNacks", madeOf={"tuple": [{"tuple": ["a/b"]}, "half"]}, method="clear")),
    "a number for a pattern": (2, _called(madeOf={"tuple": [{"TopicSelection": [[], False, 5]}, "half"]})),
    "no subscription": (2, _called(of="Nacks", madeOf={"tuple": [{"TopicName": TOPIC}, None]}, method="add")),
    "a fraction for an option": (
        2,
        lambda fields: _called(options={**fields["request"]["options"], "force": 1.5})(fields),
    ),
    "more time than there is": (2, _called(options={"to": {"timedelta": 10**30}})),
    "a fraction": (2, _called(now=1.5)),
    "no time": (2, _called(now=None)),
    "words for interceptors": (2, _called(interceptors={"Popen": "true"})),
    "lists of letters": (2, lambda fields: {"reports": 5}),
    "no request": (2, lambda fields: {"request": 7}),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_file_does_nothing(name: str, cli: Cli, store: Path) -> None:
    """Its digest fits, and what it asks for is no plan, or not the one that it shows."""
    code, forge = FORGERIES[name]
    file, fields = _plan(cli, store)
    with assert_unchanged(store / "meta" / "data.mdb"):
        refused = _apply(cli, store, file, _signed({**fields, **forge(fields)}))
    assert (refused.exit_code, refused.error["code"]) == (code, "stale-plan" if code == 4 else "invalid-value")
    assert _apply(cli, store, file, _signed(fields)).exit_code == 0


def test_a_plan_of_another_store_is_refused(cli: Cli, store: Path, tmp_path: Path) -> None:
    """Every fresh import has as many transactions, and so have two copies that were changed in different ways."""
    other = tmp_path / "other"
    copytree(store, other)
    for name in ("skip", "topic ttl"):
        file, fields = _plan(cli, store, name)
        assert _apply(cli, other, file, fields, "--dry-run").exit_code == 0
        info = json.loads((other / "store.json").read_text())
        (other / "store.json").write_text(json.dumps({**info, "created": info["created"] + 1}))
        assert _apply(cli, other, file, fields).error["message"] == "the plan was made on another store"
        (other / "store.json").write_text(json.dumps(info))
        file.unlink()
    for copy, messages in ((store, "1"), (other, "2")):
        assert cli.on(copy, f"topics skip {TOPIC} -s half -n {messages}").exit_code == 0
    refused = _apply(cli, other, *_plan(cli, store, "topic ttl"))
    assert (refused.exit_code, refused.error["message"]) == (4, "the plan was made on another store")


def test_another_dump_by_the_same_name_is_not_loaded(cli: Cli, store: Path, tmp_path: Path) -> None:
    """It has as many entries and bytes: only the bytes tell."""
    text = cli.on(store, f"topics dump {TOPIC} --level entries -o jsonl").stdout
    dump, plan = tmp_path / "dumped.jsonl", tmp_path / "a.plan"
    dump.write_text(text)
    load = ("topics", "load", dump, "--topic", "public/default/copy")
    assert cli("--store", store, *load, "--plan", plan).exit_code == 0
    first, rest = text.split("\n", 1)
    row = json.loads(first)
    payload = bytearray(b64decode(row["payload"]))
    payload[-1] ^= 1
    row |= {"payload": b64encode(payload).decode(), "sha1": sha1(payload).hexdigest()}
    dump.write_text(json.dumps(row) + "\n" + rest)
    assert cli("--store", store, *load, "--dry-run").exit_code == 0
    cli.on(store, f"apply {plan}").ends(4, "what topics load reads has changed")
    dump.write_text(text)
    assert cli.on(store, f"apply {plan}").exit_code == 0


def test_stdin_is_no_dump_of_a_plan(cli: Cli, store: Path, tmp_path: Path) -> None:
    result = cli("--store", store, "topics", "load", "-", "--plan", tmp_path / "a.plan", "-o", "json")
    assert result.error["message"].startswith("--plan: what stdin held is gone")
    assert not (tmp_path / "a.plan").exists()


def test_lines_of_stdin_are_kept(cli: Cli, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = tmp_path / "a.plan"
    line = json.dumps({"topic": TOPIC, "subscription": "half", "messageId": "9:3"})
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(line.encode())))
    assert cli.on(store, f"topics reset-cursor --from-file - --plan {plan}").exit_code == 0
    assert cli.json(store, f"apply {plan}")["after"]["markDeletePosition"] == "9:2"


@pytest.mark.parametrize("name", ["skip", "topic ttl"])
def test_a_plan_file_is_never_overwritten(name: str, cli: Cli, store: Path) -> None:
    file, _ = _plan(cli, store, name)
    again = cli("--store", store, *PLANNED[name], "--plan", file)
    assert (again.exit_code, again.stdout, "exists already" in again.stderr) == (3, "", True)


def test_every_class_whose_methods_plan_can_be_called_again() -> None:
    parts = {"Changes", "NamespaceResources", "PolicyPlans", "TopicPlans"}  # of classes that are in the table
    for name, module in CLASSES.items():
        assert issubclass(getattr(import_module(f"pulsar_admin.api.{module}"), name), Planner)
    assert {cls.__name__ for cls in _all_subclasses(Planner)} - parts == set(CLASSES)


def _all_subclasses(cls: type) -> Iterator[type]:
    for one in cls.__subclasses__():
        yield one
        yield from _all_subclasses(one)


# -- the audit log ----------------------------------------------------------------------------------------------------


def _findings(cli: Cli, store: Path) -> set[str]:
    rows = [json.loads(line) for line in cli.on(store, "store check -o jsonl").stdout.splitlines()]
    return {row["code"] for row in rows if "code" in row and row["code"].startswith("changes-")}


@pytest.fixture
def changed(cli: Cli, store: Path) -> Path:
    for name in ("skip", "ttl", "clear"):
        assert cli("--store", store, *PLANNED[name]).exit_code == 0
    assert cli.on(store, "store undo 3").exit_code == 0
    assert _findings(cli, store) == set()
    return store


def _key(number: int) -> bytes:
    return number.to_bytes(8, "big")


def _edited(number: int) -> Callable[[Txn], object]:
    def edit(txn: Txn) -> None:
        fields = json.loads(zlib.decompress(txn.get("changes", _key(number)) or b""))
        fields["command"] = "topics peek"
        txn.put("changes", _key(number), zlib.compress(json.dumps(fields).encode()))

    return edit


def _moved(txn: Txn) -> None:
    first, second = (txn.get("changes", _key(number)) or b"" for number in (1, 2))
    txn.put("changes", _key(1), second)
    txn.put("changes", _key(2), first)


def _added(txn: Txn) -> None:
    txn.put("changes", _key(5), txn.get("changes", _key(4)) or b"")


AUDIT_FORGERIES: dict[str, Callable[[Txn], object]] = {
    "the first edited": _edited(1),
    "one in the middle edited": _edited(2),
    "the last edited": _edited(4),
    "the first removed": lambda txn: txn.delete("changes", _key(1)),
    "one in the middle removed": lambda txn: txn.delete("changes", _key(2)),
    "the last removed": lambda txn: txn.delete("changes", _key(4)),
    "all removed": lambda txn: txn.clear("changes"),
    "two exchanged": _moved,
    "one added": _added,
    "the head removed": lambda txn: txn.delete("state", b"changes-head"),
}


@pytest.mark.usefixtures("damages_stores")
@pytest.mark.parametrize("name", AUDIT_FORGERIES)
def test_forged_audit_logs(name: str, cli: Cli, changed: Path) -> None:
    write_rows(changed, AUDIT_FORGERIES[name])
    assert "changes-altered" in _findings(cli, changed)


@pytest.mark.usefixtures("damages_stores")
def test_a_forged_change_is_not_undone(cli: Cli, changed: Path) -> None:
    write_rows(changed, _edited(2))
    before = rows_of(changed, "tree", "changes")
    cli.on(changed, "store undo 2 -o json").fails(6, "index-corrupt")
    assert rows_of(changed, "tree", "changes") == before
    assert cli.on(changed, "store undo 1").exit_code == 0  # whose own record is whole


@pytest.mark.usefixtures("damages_stores")
def test_a_chain_begins_where_it_begins(cli: Cli, store: Path) -> None:
    """A store of before the chain: its records count, and are sealed by the next change."""
    for name in ("skip", "ttl"):
        assert cli("--store", store, *PLANNED[name]).exit_code == 0

    def unchained(txn: Txn) -> None:
        for key, row in list(txn.items("changes")):
            fields = json.loads(zlib.decompress(row))
            del fields["previous"]
            txn.put("changes", key, zlib.compress(json.dumps(fields).encode()))
        txn.delete("state", b"changes-head")

    write_rows(store, unchained)
    assert _findings(cli, store) == set()
    assert cli.on(store, "store undo 2").exit_code == 0
    assert _findings(cli, store) == set()
    for number in (1, 2):
        with open_store(store, writable=True) as opened:
            kept = opened.write(lambda txn, number=number: txn.get("changes", _key(number)))
            opened.write(_edited(number))
        assert _findings(cli, store) == {"changes-altered"}
        write_rows(store, lambda txn, number=number, kept=kept: txn.put("changes", _key(number), kept or b""))
    assert _findings(cli, store) == set()


def test_nacks_are_popped_when_they_are_due(cli: Cli, store: Path) -> None:
    assert cli("--store", store, "--now", NOW, *PLANNED["nacks"]).exit_code == 0
    file = store.parent / "pop.plan"
    later = f"@{NOW_MS + 20_000}"
    assert cli.on(store, f"--now {later} nacks due --pop --plan {file}").exit_code == 0
    done = cli.on(store, f"apply {file} -o json")
    assert (done.exit_code, done.json["entries"], done.json["after"]["nextDeadline"]) == (0, 2, None)


def test_a_plan_of_another_request_is_refused(cli: Cli, tmp_path: Path) -> None:
    path, plan, forged = narrow_copy(tmp_path), tmp_path / "plan.json", tmp_path / "forged.json"
    cli.on(path, f"topics create public/default/new --plan {plan}").ends(0)
    kept = read_plan(plan)
    for other, said in (
        (replace(kept, command="topics delete"), "the plan names 'topics delete', but its request is 'topics create'"),
        (replace(kept, request=kept.request | {"method": "load_plan"}), "the plan was not made by a command"),
        (replace(kept, request=kept.request | {"method": "topics"}), "the plan was not made by a command"),
        (replace(kept, steps=()), "topics create would now do something other than the plan shows"),
    ):
        forged.write_bytes(other.dump())
        assert said in cli.on(path, f"apply {forged}").stderr
    cli.on(path, f"apply {plan}").ends(0)
