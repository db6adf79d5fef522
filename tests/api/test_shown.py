"""What a notebook and a debugger show: which thing an object names, and on one line what an answer says."""

import re
from collections.abc import Callable
from html import escape
from pathlib import Path
from xml.etree import ElementTree

import pytest
from msgspec import Struct
from msgspec.structs import replace

import pulsar_admin as pa
from pulsar_admin.arguments import hint_in_python
from pulsar_admin.store.wording import Answer, one_line
from tests.conftest import Cli
from tests.stores import NOW_MS, imported
from tests.synthetic import CREATED_MS, Made, MadeTopic, make_store


def test_two_that_name_the_same_thing_are_equal(store: pa.Store) -> None:
    short, full = store.topic("public/default/plain"), store.topic("persistent://public/default/plain")
    assert short == full
    assert {short: 1}[full] == 1
    assert short.cursor("half") == full.cursor("half") != full.cursor("holes")
    assert short != store.topic("public/default/batched")
    assert len({store.namespace("public/default"), store.namespace("public/default")}) == 1
    assert store.ledger(9) == store.ledger(9) != store.ledger(10)
    assert short != "persistent://public/default/plain"


def test_what_is_named_is_shown_as_it_was_named(store: pa.Store) -> None:
    plain = store.topic("plain")
    assert repr(plain) == "Topic('persistent://public/default/plain')"
    assert repr(plain.cursor("half")) == "Cursor('persistent://public/default/plain', 'half')"
    assert repr(plain.compaction()) == "Compaction('persistent://public/default/plain')"
    assert repr(store.cursors("half", "plain")) == "Cursors('persistent://public/default/plain', 'half')"
    assert repr(store.cursors(None, pattern="acme/*")) == "Cursors('acme/*', None)"
    assert repr(store.topic_policies()) == "TopicPolicies(all topics)"
    assert repr(store.ledger(9)) == "Ledger(9)"
    assert repr(store.namespace("public/default")) == "Namespace('public/default')"
    assert repr(store.transactions()) == f"Transactions({str(store.path)!r})"
    assert repr(store.nacks("half")) == "KeptNacks(all topics, 'half')"
    assert repr(store.nacks(None, "plain")) == "KeptNacks('persistent://public/default/plain', None)"


LONGEST = 120
PLAIN = "persistent://public/default/plain"


def test_a_plan_says_what_it_would_do(store: pa.Store) -> None:
    plain = store.topic("plain")
    plan = plain.cursor("half").reset(to="29:20")
    assert repr(plan) == f"<plan: reset cursor half of {PLAIN}, markDeletePosition: 29:24 -> 29:19>"
    assert repr(plan.preview()) == f"<dry run, nothing was written: reset cursor half of {PLAIN}>"
    assert repr(store.apply(plan)) == f"<change 1: reset cursor half of {PLAIN}>"
    several = store.reset_cursors(
        [f'{{"topic":"{PLAIN}","subscription":"{name}","messageId":"earliest"}}' for name in ("half", "holes")]
    )
    assert repr(several) == f"<plan: reset 2 cursors of {PLAIN}>"
    compacted = store.topic("acme/orders/compacted")
    assert repr(compacted.compaction().run()) == f"<plan: compaction run of '{compacted.name}'>"
    assert repr(store.copy(PLAIN, source="other")) == f"<plan: topics copy of '{PLAIN}'>"


def test_messages_say_whose_they_are(store: pa.Store) -> None:
    plain = store.topic("plain")
    found = plain.messages(columns=["key", "size"], subscription="half", limit=3)
    assert repr(found) == f"<messages of {PLAIN}, subscription='half', limit=3: key and size>"
    assert repr(plain.search(keys=["a"], columns=["key"])) == f"<messages of {PLAIN}: key>"
    assert repr(store.search(columns=["key"])) == "<messages of topics: key>"
    assert repr(store.table("topics")).startswith("<rows of ")
    assert repr(plain.delayed("half")) == f"Delayed('{PLAIN}', 'half')"
    assert repr(plain.transactions()) == f"TopicTransactions('{PLAIN}')"


def test_every_answer_is_shown_on_one_line_that_says_something(store: pa.Store) -> None:
    plain = store.topic("plain")
    half, ledger = plain.cursor("half"), store.ledger(9)
    answers = [
        *(plain.stats(), plain.internal_stats(), plain.describe(), plain.internal_info(), plain.policies()),
        *(plain.find("3h", explain=True), plain.skew(), plain.subscription_facts()[0], plain.compaction().status()),
        *(half.state(), half.analyze(), half.history()[0], half.why(), half.forecast("2h", ttl="1h")[0]),
        *(store.summary(), store.overview(), store.usage(), store.why_bytes(), store.metrics()[0], store.doctor()[0]),
        *(ledger.info(), ledger.owners(), next(ledger.entries()), next(store.ledger_rows()), store.node("/ledgers")),
        *(next(plain.messages().records()), store.orphans()[0], plain.delayed("half").status()),
    ]
    for answer in answers:
        assert repr(answer).startswith(f"{type(answer).__name__}(")
        assert len(repr(answer)) <= LONGEST, repr(answer)
        assert "\n" not in repr(answer)
        assert "=" in repr(answer)
    assert repr(plain.stats()).startswith("TopicStats(storage_size=53883, backlog_size=53883, len(subscriptions)=5")
    assert repr(half.backlog()) == "Extent(entries=150, messages=150, bytes=27009)"
    consumed = store.topic("acme/orders/compacted").cursor("__compaction").analyze()
    assert repr(consumed).startswith("BacklogAnalysis(entries=0, messages=0, ")
    retention = store.topic("acme/orders/compacted").policies_in_force().retention
    assert repr(retention) == "RetentionInForce(retention=Retention(time_minutes=-1, size_mb=-1), source='namespace')"


def cells_of(html: str) -> list[list[str]]:
    """The texts of the cells of each row of a table without tables in it; it is well formed, and every row has as many."""
    table = ElementTree.fromstring(f"<div>{html}</div>")
    rows = [["".join(cell.itertext()) for cell in row] for row in table.iter("tr")]
    assert len({len(row) for row in rows}) == 1
    return rows


def test_a_notebook_shows_answers_as_tables(store: pa.Store) -> None:
    """The columns are those of the command; text that data has is text."""
    plain = store.topic("plain")
    findings = store.doctor()
    assert isinstance(findings, tuple)
    head, *rows = cells_of(findings._repr_html_())
    assert head == ["severity", "code", "where", "message", "mend"]
    assert rows == [[one.severity.value, one.code, one.where, one.message, one.mend] for one in findings]
    assert repr(findings).startswith(f"<{len(findings)} rows, the first: Finding(severity='note', code='")
    assert len(repr(findings)) <= LONGEST
    forged = replace(findings[0], message="<script>alert(1)</script>", where="a&b\x1b")
    assert "<script>" not in forged._repr_html_()
    assert cells_of(type(findings)([forged])._repr_html_())[1][2:4] == ["a&b\\x1b", "<script>alert(1)</script>"]
    stats = ElementTree.fromstring(plain.stats()._repr_html_())
    first = {row[0].text: row[1] for row in stats.findall("tbody/tr")}
    assert first["storage_size"].text == "53,883"
    assert sorted(row[0].text or "" for row in first["subscriptions"].findall("table/tbody/tr")) == [
        *plain.subscriptions()
    ]
    overview = ElementTree.fromstring(store.overview()._repr_html_())
    shown = {row[0].text: row[1] for row in overview.findall("tbody/tr")}
    assert shown["now_ms"].text == "2026-11-21 11:20:00.000+00:00"
    assert shown["namespaces"].findtext("table/tbody/tr/td") == "public/default"


def test_a_notebook_shows_plans_and_columns(store: pa.Store) -> None:
    plan = store.topic("plain").cursor("half").reset(to="29:20")
    assert plan._repr_html_() == plan.preview()._repr_html_() == f"<pre>{escape(str(plan.preview()))}</pre>"
    assert "29:24 -&gt; 29:19" in plan._repr_html_()
    head, *rows = cells_of(store.topic("plain").messages(columns=["key", "size"])._repr_html_())
    assert (head, rows) == (["column", "type"], [["key", "string"], ["size", "int64"]])


def test_a_finding_as_text_is_the_paragraph_of_doctor(cli: Cli) -> None:
    """With the next command for whoever is in Python: a terminal's says how to look first."""
    path = imported("small", "clean")
    with pa.open_store(path) as store:
        found = store.doctor(codes=["dead-bytes-kept"])
    paragraph, command = str(found[0]).rsplit("\n", 1)
    assert command == f"  next: {found[0].mend}"
    assert paragraph + "\n" in cli.on(path, "doctor --code dead-bytes-kept").stdout
    assert paragraph.startswith("note dead-bytes-kept: entry logs\n  99,909 bytes of deleted data ")
    forged = replace(found[0], message="x\x1b[2J", where="a\nb", mend="")
    assert str(forged) == "note dead-bytes-kept: a\\nb\n  x\\x1b[2J"


def _below(cls: type[Struct]) -> list[type[Struct]]:
    return [found for one in cls.__subclasses__() for found in (one, *_below(one))]


def test_answers_have_that_form() -> None:
    """Those that a method returns, and those in them: a new one gets it by its class. None can be changed."""
    own = {"Change", "ChangeReport", "Plan", "Position"}
    kinds = {name: cls for name in pa.__all__ if isinstance(cls := getattr(pa, name), type)}
    records = {name: cls for name, cls in kinds.items() if issubclass(cls, Struct)}
    assert all(cls.__struct_config__.frozen for cls in records.values() if issubclass(cls, Answer))
    assert {name for name, cls in records.items() if cls.__repr__ not in (Answer.__repr__, one_line)} == own
    assert all(cls.__struct_config__.frozen for cls in _below(Answer))
    for name, cls in kinds.items():
        if issubclass(cls, tuple):
            made = cls(*["/a" * 200 for _ in cls._fields])
            assert re.fullmatch(rf"{name}\([^\n]+\)", repr(made))
            assert len(repr(made)) <= LONGEST


def test_a_warning_is_of_the_callers_line(tmp_path: Path) -> None:
    """Whatever lies between: methods that plan, generators, ``with`` blocks, Arrow's reading of batches."""
    entries = [Made(CREATED_MS), Made(CREATED_MS + 2, lost=True), Made(CREATED_MS + 5)]
    path = make_store(tmp_path / "made", {"a/b/t": MadeTopic([entries])})
    with pa.open_store(imported("nometa", "clean"), now=NOW_MS) as store, pa.open_store(path, now=NOW_MS) as lossy:
        skewed, lost = store.topic("acme/iot/skewed"), lossy.topic("a/b/t")
        cursor = skewed.cursor(skewed.subscriptions()[0])
        asks: list[Callable[[], object]] = [
            lambda: skewed.find("2026-11-20T00:00:00Z", clock="broker"),
            lambda: cursor.reset(time="2026-11-20T00:00:00Z", clock="broker", force=True),
            lambda: [*lost.messages(columns=["entry_id"]).rows()],
            lambda: [*lost.messages().records()],
            lambda: lost.messages(columns=["entry_id"]).to_arrow(),
            lambda: lost.skew(),
            lambda: lost.stats(),
        ]
        for ask in asks:
            with pytest.warns(pa.PartialData) as caught:
                ask()
            assert {(one.filename, one.lineno) for one in caught} == {(__file__, ask.__code__.co_firstlineno)}


@pytest.mark.parametrize("name", ["ttl", "before", "time"])
def test_an_age_is_what_the_method_calls_it(name: str) -> None:
    hint = "give the age with -t, for example -t 3d, as in pulsar-admin topics expire X -t 3d"
    words = f"give the age with {name}, for example {name}='3d', as in pulsar-admin topics expire X -t 3d"
    assert hint_in_python(hint, {name: "Duration | None"}) == words
    assert hint_in_python("as -t 2024-05-01T09:00:00Z", {name: "Time"}) == f"as {name}='2024-05-01T09:00:00Z'"


def test_hints_of_all_calls_are_in_pythons_words(store: pa.Store, path: Path, cli: Cli) -> None:
    """Functions, methods, plans and what is yielded; a command that runs in the same process names its options."""
    topic, now = store.topic("plain"), "2027-03-01T00:00:00Z"
    assert hint_in_python("or give --private-key FILE", {}) == "or give open_store(private_keys=FILE)"
    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: pa.open_store(path / "none"), "or name another with path"),
        (lambda: pa.create_store(path), "name a new directory with path"),
        (lambda: store.delete_namespace("acme/iot"), "force=True deletes them as well"),
        (
            lambda: topic.cursor("half").expire(before="2020-01-01T00:00:00Z"),
            "another open_store(now=…), or a position; in",
        ),
        (lambda: store.forget_ledgers(9), "add force=True to forget it anyway"),
        (
            lambda: store.copy("plain", source=imported("small", "mutated")).preview(),
            "on the command line: name another topic",
        ),
        (lambda: topic.find(now.removesuffix("Z")), "or give a datetime with a zone"),
    ]
    for call, words in calls:
        with pytest.raises(pa.StoreError) as raised:
            call()
        assert words in raised.value.hint, raised.value.hint
        assert raised.value.__notes__ == [raised.value.hint]
    assert "name another with --store" in cli.on(path / "none", "topics list acme/iot").stderr
    with pytest.raises(pa.StoreNotFound) as again:
        pa.open_store(path / "none")
    assert "name another with path" in again.value.hint
