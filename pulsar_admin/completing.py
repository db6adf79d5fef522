"""Completion in bash, zsh and fish: the scripts, and the words that they request, including names from the store.

A script passes the command line up to the cursor (``COMP_LINE``) and gets a line for each possible word: its kind
(``plain``, ``dir``, ``file``), the word as it is typed, and a description, separated by tabs. Names with a line break
are left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem, ShellComplete, split_arg_string

from pulsar_admin.config import build_settings, completion_instruction, completion_line
from pulsar_admin.store.errors import StoreError

if TYPE_CHECKING:
    from pulsar_admin.store.db.environment import Txn

    Item = CompletionItem[str]
    Names = Callable[[Txn, click.Context, str], Iterator[Item]]

WORDS_MAX = 1_000
_LOOKED_AT_MAX = 5_000
_DOMAIN = "persistent://"
_TO_QUOTE = re.compile(r"([^\w@%+=:,./~^-])")
_DIGITS_MAX = 19
_MARK = "\0"

SHELLS = ("bash", "zsh", "fish")
"""Each has its script in ``completion.SHELL``."""


def script(shell: str, program: str) -> str:
    """Return the completion script of a program for a shell."""
    variable, _ = completion_instruction(program)
    function = f"_{program.replace('-', '_')}_completion"
    # `read` with a tab as its separator drops none of the fields: kind and word are never empty, and help comes last.
    text = Path(__file__).with_name(f"completion.{shell}").read_text("utf-8")
    return text % {"function": function, "variable": variable, "program": program}


def complete(group: click.Command, program: str, instruction: str) -> int:
    """Print the completions at the cursor, or the script: ``instruction`` is ``SHELL_complete`` or ``SHELL_source``."""
    from pulsar_admin.output import Writer

    writer = Writer()
    shell, _, wanted = instruction.partition("_")
    if shell not in SHELLS or wanted not in ("complete", "source"):
        return 1
    if wanted == "source":
        writer.write(script(shell, program))
        return 0
    line, breaks = completion_line()
    # The mark makes the text at the cursor a word, even if it is empty or a quoted blank.
    *words, last = split_arg_string(f"{line}{_MARK}")
    incomplete = last.removesuffix(_MARK)
    for item in _items(group, program, words[1:], incomplete):
        word = _as_typed(shell, item.value, incomplete, breaks)
        help_text = " ".join((item.help or "").split())
        writer.write(f"{item.type}\t{word}\t{help_text}\n")
    return 0


def _items(group: click.Command, program: str, words: list[str], incomplete: str) -> Iterator[Item]:
    asked = ShellComplete(group, {}, program, "")
    option, equals, _ = incomplete.partition("=") if incomplete.startswith("-") else ("", "", "")
    head = option + equals if equals else ""
    for item in islice(asked.get_completions(words, incomplete), WORDS_MAX):
        if item.value.isprintable():
            yield CompletionItem(head + item.value, item.type, item.help)


def _as_typed(shell: str, word: str, incomplete: str, breaks: str) -> str:
    """Return a word as typed in a shell; for bash only the part after the last character at which it breaks words."""
    if shell == "fish":
        return word  # it quotes by itself
    ends = [incomplete.rfind(mark) + 1 for mark in ":=" if shell == "bash" and mark in breaks]
    return _TO_QUOTE.sub(r"\\\1", word[max(ends, default=0) :])


# -- names of the store -----------------------------------------------------------------------------------------------


def from_store(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Item]:
    """Return the completions of a parameter from the store that the command line names so far; [] without a store."""
    from pulsar_admin.store.db.environment import open_store

    items: list[Item] = []
    with suppress(StoreError, OSError, click.ClickException):
        settings = build_settings(ctx.meta.get("pulsar_admin.given", {}))
        with open_store(settings.store) as store, store.read() as txn:
            kind = param.name if param.name in NAMES else param.type.name
            items += islice(NAMES[kind or ""](txn, ctx, incomplete), WORDS_MAX)
    return items


def _below(txn: Txn, path: str, start: str) -> Iterator[str]:
    """Yield decoded names below a path that begin with ``start``."""
    from pulsar_admin.store.db.tree import iter_children_like
    from pulsar_admin.store.names import decode_name, encode_name

    yield from map(decode_name, islice(iter_children_like(txn, path, encode_name(start)), _LOOKED_AT_MAX))


def _tenants(txn: Txn, ctx: click.Context, start: str) -> Iterator[Item]:
    for name in sorted({*_below(txn, "/admin/policies", start), *_below(txn, "/managed-ledgers", start)}):
        yield CompletionItem(name)


def _namespaces(txn: Txn, ctx: click.Context, start: str) -> Iterator[Item]:
    tenant, slash, local = start.partition("/")
    if not slash:
        yield from (CompletionItem(f"{item.value}/") for item in _tenants(txn, ctx, tenant))
        return
    paths = (f"/admin/policies/{tenant}", f"/managed-ledgers/{tenant}")
    for name_below in sorted({name for path in paths for name in _below(txn, path, local)}):
        yield CompletionItem(f"{tenant}/{name_below}")


def _topics(txn: Txn, ctx: click.Context, start: str) -> Iterator[Item]:
    """Yield tenants, namespaces or topics by the number of slashes typed; without one also topics of public/default."""
    domain = _DOMAIN if start.startswith(_DOMAIN) else ""
    rest = start[len(domain) :]
    if rest.count("/") < 2:
        ends = "" if "/" not in rest else "/"
        yield from (CompletionItem(f"{domain}{item.value}{ends}") for item in _namespaces(txn, ctx, rest))
        if rest and not domain and "/" not in rest:
            yield from (CompletionItem(name) for name in _locals(txn, "public/default", rest))
            yield from [CompletionItem(_DOMAIN)] * _DOMAIN.startswith(rest)
        return
    tenant, namespace, local = rest.split("/", 2)
    for name in _locals(txn, f"{tenant}/{namespace}", local):
        yield CompletionItem(f"{domain}{tenant}/{namespace}/{name}")


def _locals(txn: Txn, namespace: str, start: str) -> Iterator[str]:
    """Yield topic names of a namespace that begin with ``start``; partitions only if their suffix is being typed."""
    from pulsar_admin.store.names import PARTITION_SUFFIX, TopicName, parse_namespace

    parsed = parse_namespace(namespace)
    names = (TopicName(parsed, name) for name in _below(txn, parsed.managed_ledgers_path, start))
    shown = (name for name in names if start.startswith("__") or not name.is_system)
    whole = PARTITION_SUFFIX in start
    yield from dict.fromkeys(name.local_name if whole else name.base.local_name for name in shown)


def _subscriptions(txn: Txn, ctx: click.Context, start: str) -> Iterator[Item]:
    from pulsar_admin.store.model.topics import expand_topic, iter_topics
    from pulsar_admin.store.names import NamespaceName, TopicName

    params = _given(ctx)
    given = [one for value in params.values() for one in (value if isinstance(value, tuple) else (value,))]
    topics = [one for one in given if isinstance(one, TopicName)]
    namespace = next((one for one in given if isinstance(one, NamespaceName)), None)
    if namespace is not None and not topics:
        topics = list(islice(iter_topics(txn, namespace), WORDS_MAX))
    parts = [part for topic in topics for part in expand_topic(txn, topic)]
    for name in sorted({name for part in parts for name in _below(txn, part.path, start)}):
        yield CompletionItem(name)


def _given(ctx: click.Context) -> dict[str, Any]:  # Any: click's values
    """Return the parameters in the words so far, also if the last option lacks its value, which click could not parse."""
    words = list(ctx.meta.get("pulsar_admin.words", ()))
    if not words or not words[-1].startswith("-"):
        return ctx.params
    context = ctx.command.make_context(ctx.info_name, words[:-1], parent=ctx.parent, resilient_parsing=True)
    return context.params


def _ledgers(txn: Txn, ctx: click.Context, start: str) -> Iterator[Item]:
    """Yield ledger ids that begin with ``start``, each with the ledger's owners as description."""
    from pulsar_admin.store.db.blocks import ledger_key, ledger_of_key
    from pulsar_admin.store.db.owners import find_owners

    if start and not (start.isascii() and start.isdigit()):
        return
    for more in range(_DIGITS_MAX - len(start)) if start else (_DIGITS_MAX - 1,):
        first, last = (int(start) * 10**more, (int(start) + 1) * 10**more - 1) if start else (0, 10**more)
        for key, _ in txn.items("times", start=ledger_key(first)):
            ledger_id = ledger_of_key(key)
            if ledger_id > last:
                break
            owners = ", ".join(f"{owner.kind} {owner.topic}" for owner in find_owners(txn, ledger_id))
            yield CompletionItem(str(ledger_id), help=owners)


NAMES: Mapping[str, Names] = {
    "topic": _topics,
    "topics": _topics,
    "namespace": _namespaces,
    "tenant": _tenants,
    "subscription": _subscriptions,
    "sub": _subscriptions,
    "ledger": _ledgers,
    "ledgers": _ledgers,
    "ledger_id": _ledgers,
    "ledgerid": _ledgers,
}
"""What completes a parameter, by its name."""
