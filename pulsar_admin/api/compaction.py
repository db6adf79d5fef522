"""The compacted view of a topic: how far it reaches, its last message, a time in it, its messages."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Literal

from pulsar_admin.api.given import given_flag, given_flags, given_ledgers, given_text, given_texts
from pulsar_admin.api.planner import Planner
from pulsar_admin.api.session import Session, Time, check_choice
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.model.topics import read_topic, topics_bytes
from pulsar_admin.store.names import TopicName

if TYPE_CHECKING:
    from pulsar_admin.api.messages import Messages
    from pulsar_admin.api.plan import Plan
    from pulsar_admin.store.changes.plan import ChangeReport
    from pulsar_admin.store.compaction.forms import Verification
    from pulsar_admin.store.compaction.last_id import LastId
    from pulsar_admin.store.compaction.occurrences import KeyHistory
    from pulsar_admin.store.compaction.reading import FoundInView
    from pulsar_admin.store.compaction.status import CompactionStatus
    from pulsar_admin.store.compaction.view import CompactedView
    from pulsar_admin.store.db.environment import Store as StoreFile
    from pulsar_admin.store.model.reader import EntryReader
    from pulsar_admin.store.model.topics import Topic as TopicModel

Form = Literal["indexed", "legacy", "reduced"]
Rule = Literal["4.2", "4.0"]
Encrypted = Literal["keep", "by-key"]
ViewRule = Literal["first-at-or-after", "broker"]


class Compaction(Planner):
    """What compaction left of a topic, as a reader with read-compacted gets it."""

    def __init__(self, session: Session, name: TopicName) -> None:
        self._session = session
        self._name = name

    def status(self, *, leaked: bool = True) -> CompactionStatus:
        """Return the horizon, the compacted ledger, what comes after the horizon (entries, messages, bytes), and ``problems`` in words.

        LEAKED: also compacted ledgers that nothing references, which are looked for among all ledgers. Raises TopicNotFound,
        MetadataCorrupt.
        """
        from pulsar_admin.store.compaction.status import read_status

        given_flags(leaked=leaked)
        with self._session.reader() as reader:
            topic = read_topic(reader.txn, self._name)
            return read_status(reader, topic, None if leaked else ())

    def last_id(self, *, verify: bool = False) -> LastId:
        """Return the last message: ``position`` (ids −1 where nothing remains), ``publish_ms``, and the ``rule`` that found it.

        From metadata bytes if they suffice (PIP-429); VERIFY reads the whole entry too. Raises TopicNotFound, MetadataCorrupt,
        EntryCorrupt.
        """
        from pulsar_admin.store.compaction.last_id import find_last_id

        given_flags(verify=verify)
        problems: list[StoreError] = []
        with self._session.reader() as reader:
            found = find_last_id(reader, read_topic(reader.txn, self._name), verify=verify, problems=problems)
        self._session.partial(problems)
        return found

    def find(self, time: Time, *, rule: ViewRule = "first-at-or-after") -> FoundInView | None:
        """Return the first entry of the compacted ledger published at or after TIME (``position`` None: nothing is).

        RULE ``broker``: by bisection, which takes clocks not to run backwards. None: the topic was never compacted. Raises
        TopicNotFound, InvalidValue, MetadataCorrupt, EntryCorrupt.
        """
        from pulsar_admin.store.compaction.view import open_view

        check_choice("rule", rule, ViewRule)
        problems: list[StoreError] = []
        wanted_ms = self._session.time_ms(time)
        with self._session.scan(problems) as reader:
            topic = read_topic(reader.txn, self._name)
            view = open_view(reader, topic, problems)
            found = None if view is None else _find_in(reader, topic, view, wanted_ms, rule)
        self._session.partial(problems)
        return found

    def verify(self) -> Verification | None:
        """Compare the compacted ledger with the entries that it was made from; None: the topic was never compacted.

        ``total`` counts what is wrong, ``findings`` has kind, position and message of the first of it; ``status().problems`` has
        what metadata shows. Raises TopicNotFound, MetadataCorrupt, EntryCorrupt.
        """
        from pulsar_admin.store.compaction.keys import keys_for
        from pulsar_admin.store.compaction.verify import verify_view
        from pulsar_admin.store.compaction.view import open_view

        with self._session.scan() as reader:
            topic = read_topic(reader.txn, self._name)
            view = open_view(reader, topic)
            if view is None:
                return None
            total, limit_keys = 2 * topic.rank(view.horizon), keys_for(self._session.memory_bytes)
            with self._session.progress(total, "entries", f"{self._name}: verify") as advance:
                return verify_view(reader, topic, view, limit_keys=limit_keys, advance=advance)

    def explain(self, key: str, *, rule: Rule = "4.2") -> KeyHistory:
        """Return the messages with KEY (``occurrences``): where they are, whether the compacted ledger holds them, and why or why not.

        Raises TopicNotFound, MetadataCorrupt.
        """
        from pulsar_admin.store.compaction.occurrences import explain_key
        from pulsar_admin.store.compaction.view import open_view

        check_choice("rule", rule, Rule)
        given_text("key", key)
        with self._session.reader() as reader:
            topic = read_topic(reader.txn, self._name)
            view = open_view(reader, topic)
            with self._session.progress(topic.number_of_entries, "entries", f"{self._name}: explain") as advance:
                found = explain_key(reader, topic, view, key, rule=rule, advance=advance)
        self._session.partial(found.damaged)
        return found

    def run(
        self,
        *,
        form: Form = "indexed",
        rule: Rule = "4.2",
        retain_null_key: bool = False,
        encrypted: Encrypted = "keep",
        from_start: bool = False,
        skip_damaged: bool = False,
    ) -> Plan:
        """Plan keeping the latest message of every key in a new compacted ledger; its preview reads all and writes nothing.

        FORM and RULE: of batches and of null values, docs/howto/compaction.md compares them. ENCRYPTED batches are kept, or each is one
        message with the entry's key, ``by-key``. FROM_START reads the topic from its first entry, SKIP_DAMAGED leaves out what cannot be
        read. Raises InvalidValue; previewed or applied TopicNotFound, MetadataCorrupt, EntryCorrupt, and applied DiskFull.
        """
        check_choice("encrypted", encrypted, Encrypted)
        return Compactions(self._session, (self._name,)).plan(
            "compaction run",
            form=form,
            rule=rule,
            retain_null_key=retain_null_key,
            by_key=encrypted == "by-key",
            from_start=from_start,
            skip_damaged=skip_damaged,
        )

    def upgrade(self) -> Plan:
        """Plan rewriting the compacted ledger as Pulsar 4.2 writes it, nothing dropped; raises as ``run``."""
        return Compactions(self._session, (self._name,)).plan("compaction upgrade", everything=True)

    def attach(self, ledger_id: int) -> Plan:
        """Plan that the topic has its compacted view in ledger LEDGER_ID again, which it names no more, as after a broker's truncate.

        Raises TopicNotFound, LedgerNotFound, MetadataCorrupt, EntryCorrupt, Refused.
        """
        from pulsar_admin.store.changes.compaction import plan_attach

        (ledger_id,) = given_ledgers([ledger_id])
        return self._session.plan(plan_attach, self._name, ledger_id)

    def messages(
        self,
        *,
        keys: Collection[str] | None = None,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> Messages:
        """Return the messages of the view, to be read when they are iterated over: what compaction kept, then what comes after it.

        Only those with KEYS, at most LIMIT; COLUMNS as of ``Topic.messages``. Raises InvalidValue.
        """
        from pulsar_admin.api.messages import MessageQuery, chosen_columns, messages_of

        chosen = () if keys is None else given_texts("keys", keys)
        limit = limit if keys is None or chosen else 0
        wanted = MessageQuery(columns=chosen_columns(columns), limit=limit, compacted=True, keys=chosen)
        return messages_of(self._session, lambda txn: [self._name], wanted, str(self._name))


class Compactions(Planner):
    """Compactions of the topics NAMES, a change each."""

    def __init__(self, session: Session, names: Sequence[TopicName]) -> None:
        self._session = session
        self._names = tuple(names)

    def plan(
        self,
        command: str,
        *,
        form: Form = "indexed",
        rule: Rule = "4.2",
        retain_null_key: bool = False,
        by_key: bool = False,
        from_start: bool = False,
        skip_damaged: bool = False,
        everything: bool = False,
    ) -> Plan:
        """Plan what COMMAND does: see ``CompactionJob``. Raises InvalidValue."""
        from pulsar_admin.api.plan import plan_of
        from pulsar_admin.store.changes.plan import WritingPlan
        from pulsar_admin.store.compaction.forms import CompactionJob

        check_choice("form", form, Form)
        check_choice("rule", rule, Rule)
        flags = {"retain_null_key": retain_null_key, "by_key": by_key, "from_start": from_start}
        flags |= {"skip_damaged": skip_damaged, "everything": everything}
        flags = {name: given_flag(name, flag) for name, flag in flags.items()}
        session, names, job = self._session, self._names, CompactionJob(command, form, rule, **flags)

        def compact(store: StoreFile, *, previews: bool) -> tuple[ChangeReport, ...]:
            from pulsar_admin.store.changes.compaction import Compactor

            def warn(text: str) -> None:
                session.warn([text])

            with session.engine([], size_bytes) as engine:
                compactor = Compactor(store, engine, session.clock_ms, session.memory_bytes, warn, session.progress)
                return tuple(session.each(names, lambda name: compactor.compact(name, job, previews=previews)))

        def shown() -> tuple[ChangeReport, ...]:
            with session.opened() as store:
                return compact(store, previews=True)

        with session.read() as txn:
            size_bytes = 0 if job.everything else topics_bytes(txn, names)
            return plan_of(WritingPlan(job.command, txn.id, shown, lambda store: compact(store, previews=False)), txn)


def _find_in(reader: EntryReader, topic: TopicModel, view: CompactedView, time_ms: int, rule: ViewRule) -> FoundInView:
    from pulsar_admin.store.compaction.reading import bisect_view, find_in_view, view_extent
    from pulsar_admin.store.search.window import is_few

    if rule == "broker":
        return bisect_view(reader, view, time_ms)
    if is_few(view_extent(reader.txn, topic, view), None):
        return find_in_view(reader, view, time_ms)
    from pulsar_admin.store.compaction.entries import find_published

    return find_published(reader, view, time_ms)
