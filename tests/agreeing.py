"""The same questions asked of all screens of a store: what they say of one fault must not differ."""

import warnings
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from pulsar_admin import Store, open_store
from pulsar_admin.page.collecting import collect_page
from pulsar_admin.store.db.environment import open_store as open_raw
from pulsar_admin.store.doctor.diagnosing import EACH_MOST
from pulsar_admin.store.doctor.overview import count_findings
from pulsar_admin.store.errors import IndexCorrupt, MetadataCorrupt, Refused, SourceNotFound
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.names import parse_topic
from pulsar_admin.store.reports.overview import PREFIX, Overview
from pulsar_admin.store.rules.finding import Finding
from pulsar_admin.store.rules.holders import TRIM
from tests.stores import NOW_MS

SUMMED_UP = {"ledgers-unreferenced", "ledgers-deleted", "ledgers-gone"}
"""What ``store check`` counts, and the doctor tells by what the ledgers claim to be."""
LOST_STATES = {"cursor-ledger-lost", "cursor-ledger-without-metadata"}
UNREADABLE = {"topic-unreadable", "cursor-unreadable"}
NOT_READ = {
    "node-damaged",
    "topic-vanished",
    "unknown-value",
    "rows-altered",
    "node-rows-altered",
    "metadata-incomplete",
}
"""What else may leave something that cannot be read."""
NAMED_AND_GONE = {
    "bookie-index-missing",
    "entries-not-served",
    "idx-entries-not-served",
    "ledger-missing",
    "ledger-without-metadata",
    "cursor-ledger-without-metadata",
    "schema-ledger-without-metadata",
    "compacted-ledger-without-metadata",
    "bucket-ledger-without-metadata",
}
"""Findings about ledgers that something names and that bookies which start on this metadata delete."""
DESCRIBED = 3
"""Topics with findings that are described."""


def check_agreement(path: Path, now_ms: int = NOW_MS) -> None:
    """Fail where doctor, check, overview, metrics, page, preflight, describe and why of the store at PATH contradict each other."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what cannot be read is what is asked for
        with open_store(path, now=now_ms) as store:
            found = store.doctor(each=1_000)
            _check_of_store(store, found)
            overview = _check_numbers(store, found)
            _check_preflight(store, found)
            _check_topics(store, found)
        if overview is not None:
            _check_page(path, found, overview, now_ms)


def _check_of_store(store: Store, found: Sequence[Finding]) -> None:
    """``store check`` and the doctor tell alike of what is damaged: of many that are alike, how many there are and what is at stake."""
    checks = [*store.check()]
    damage = [one for one in found if one.scope != "use"]
    many = {code for code, count in Counter(one.code for one in damage).items() if count > EACH_MOST}
    many |= {one.code for one in damage if "alike" in one.evidence} | SUMMED_UP
    checked = {(one.code, one.where): one for one in checks if one.code not in many}
    told = {(one.code, one.where): one for one in damage if one.code not in many}
    assert checked == told
    stakes: list[Counter[tuple[str, str]]] = [Counter(), Counter()]
    for counter, ones in zip(stakes, (checks, damage), strict=True):
        for one in ones:
            if one.code in many - SUMMED_UP:
                counter[one.severity, one.code] += one.at_stake_messages
    assert stakes[0] == stakes[1]


def _check_numbers(store: Store, found: Sequence[Finding]) -> Overview | None:
    """Return the overview; None where it refuses, as metrics do, for an index that the doctor tells of."""
    counts = {(one.severity, one.code): one.count for one in count_findings(found)}
    try:
        overview = store.overview(check=True)
    except IndexCorrupt:
        assert any(one.repair == "index" or one.severity == "critical" for one in found)
        with pytest.raises(IndexCorrupt):
            store.metrics(check=True)
        return None
    assert {(one.severity, one.code): one.count for one in overview.findings or ()} == counts
    metrics = {one.name.removeprefix(PREFIX): one.samples for one in store.metrics(check=True)}
    by_code = {(row.labels["severity"], row.labels["code"]): row.value for row in metrics["findings_by_code"]}
    assert by_code == counts
    assert sum(row.value for row in metrics["findings"]) == sum(counts.values())
    assert [row.value for row in metrics["unreadable"]] == [overview.unreadable]
    # What cannot be read is told by a finding, and no screen counts it as if it were not there.
    read = ("persistent://", "segment://")
    codes = {one.code for one in found if any(domain in one.where for domain in read) or one.code not in UNREADABLE}
    assert bool(codes & UNREADABLE) <= bool(overview.unreadable) <= bool(codes & {*NOT_READ, *UNREADABLE})
    with suppress(IndexCorrupt):
        summary = store.summary()
        for name in ("topics", "system_topics", "subscriptions", "compactions", "disk_bytes"):
            assert getattr(overview, name) == getattr(summary, name), name
    # What a broker would delete, and what cannot be read, is the same to all.
    with suppress(IndexCorrupt):  # of the sizes of ledgers in files, which it alone asks for
        # A topic's list has sizes also of what no file has: `store usage` counts disks.
        lost = {"ledger-missing", "entries-missing"} & {one.code for one in found}
        assert (
            not overview.disk.files
            or lost
            or bool(overview.held.get("trim")) == (TRIM in {one.code for one in store.why_bytes().totals})
        )
    for name in ("topics", "subscriptions", "backlog_entries"):
        assert sum(row.value for row in metrics[f"namespace_{name}"]) == getattr(overview, name)
    return overview


def _check_page(path: Path, found: tuple[Finding, ...], overview: Overview, now_ms: int) -> None:
    with open_raw(path) as store, open_reader(store) as reader, reader.txn.passing_altered():
        page = collect_page(reader, found, now_ms)
    assert page.findings == found
    assert len(page.unread) >= overview.unreadable
    shown = {fact.label: fact.value for fact in page.facts}
    numbers = (overview.topics, overview.subscriptions, overview.backlog_entries)
    assert [shown[label] for label in ("Topics", "Subscriptions", "Backlog")] == [f"{number:,}" for number in numbers]


def _check_preflight(store: Store, found: Sequence[Finding]) -> None:
    codes = {one.code for one in found}
    try:
        forecast = store.preflight()
    except (Refused, SourceNotFound):
        return  # there are no bookies, or their disks are not at hand
    except (IndexCorrupt, MetadataCorrupt):
        assert any(one.severity == "critical" for one in found)
        return
    assert ("bookie-unknown" in codes) <= any(one.refuses for one in forecast.bookies)
    assert any("newer" in one.reasons for one in forecast.bookies) <= ("metadata-older" in codes)
    # Bookies delete what a topic still names: no screen may call that sound.
    assert bool(forecast.topics) <= bool(codes & {*NAMED_AND_GONE, "metadata-older", "value-undecodable"})


def _check_topics(store: Store, found: Sequence[Finding]) -> None:
    """What ``describe`` and ``why`` say of the topics that the findings name."""
    told = {
        (one.code, one.evidence["topic"], one.evidence["subscription"]): one
        for one in found
        if "topic" in one.evidence and "subscription" in one.evidence
    }
    persistent = {str(topic) for _, topic, _ in told if str(topic).startswith("persistent://")}
    for name in sorted(persistent)[:DESCRIBED]:
        mine = {(code, str(subscription)): one for (code, topic, subscription), one in told.items() if topic == name}
        try:
            described = {one.subscription: one for one in store.topic(name).describe().subscriptions}
        except IndexCorrupt:  # a row of the store
            assert any(one.code == "node-damaged" for one in found)
            continue
        assert {subscription for code, subscription in mine if code == "cursor-unreadable"}.isdisjoint(described)
        stored = {row.subscription for row in described.values() if row.stored_mark_delete is not None}
        # Of the broker's own cursors it describes that of compaction alone.
        assert stored == {one for code, one in mine if code == "cursor-ahead"} & described.keys()
        for row in described.values():
            codes = {code for code, subscription in mine if subscription == row.subscription}
            is_fallback = row.source == "metadata-fallback"
            assert bool(codes & LOST_STATES) <= is_fallback <= bool(codes & {*LOST_STATES, "entries-not-seen"})
            assert bool(row.unreadable_states) == ("cursor-ledger-damaged" in codes) or codes & {"entries-not-seen"}
            if parse_topic(name).is_system:
                continue
            why = store.topic(name).cursor(row.subscription).why()
            reasons = {reason.code for reason in why.reasons}
            critical = {code for code in codes if mine[code, row.subscription].severity == "critical"}
            assert why.held or not critical
            assert bool(reasons & {"cursor-lost"}) == bool(codes & {*LOST_STATES, "cursor-ledger-damaged"})
            assert ("consumed" in reasons) <= (row.backlog_entries == 0)
            waiting = [reason.evidence for reason in why.reasons if reason.code == "backlog"]
            assert all(one["entries"] == row.backlog_entries for one in waiting)
            assert all(one.get("messages", row.backlog_messages) == row.backlog_messages for one in waiting)
