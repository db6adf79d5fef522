"""The table of causes: a row for every code that a check can find, and commands that parse."""

import shlex

import click
import pytest

from pulsar_admin.cli import root
from pulsar_admin.store.doctor.diagnosing import EACH_MOST, sum_up
from pulsar_admin.store.names import EVENTS
from pulsar_admin.store.rules.finding import Finding, Severity
from pulsar_admin.store.rules.judging import weight
from pulsar_admin.store.rules.table import RULES_BY_CODE
from tests.conftest import Cli


@pytest.mark.parametrize("code", RULES_BY_CODE)
def test_a_cause_says_everything(code: str) -> None:
    cause = RULES_BY_CODE[code]
    assert cause.code == code
    for text in (cause.means, cause.broker, cause.how):
        assert text.endswith("."), text
    assert not cause.title.endswith(".")
    assert not cause.loss.endswith(".")
    assert ("Can be lost\n" in cause.text()) == bool(cause.loss)


@pytest.mark.parametrize("code", RULES_BY_CODE)
def test_the_command_that_mends_parses(code: str) -> None:
    program, *words = shlex.split(
        RULES_BY_CODE[code].command({"ledgerId": 7, "where": "public/default/x", "topic": "public/default/x"})
    )
    assert program == "pulsar-admin"
    parses(words)


def parses(words: list[str]) -> None:
    """Parse WORDS as the program does, without running anything."""
    command: click.Command = root()
    context = click.Context(command, info_name="pulsar-admin")
    while isinstance(command, click.Group):
        name = words.pop(0)
        found = command.get_command(context, name)
        assert found is not None, name
        context = click.Context(found, info_name=name, parent=context)
        command = found
    command.make_parser(context).parse_args(list(words))
    given = [part for part in words if part.startswith("-")]
    known = {name for one in command.get_params(context) for name in (*one.opts, *one.secondary_opts)}
    assert set(given) <= known
    needed = sum(1 for one in command.get_params(context) if isinstance(one, click.Argument) and one.required)
    assert len(words) >= needed


def test_an_unknown_code_names_those_near(cli: Cli) -> None:
    cli("doctor", "--explain", "ledger-mising").ends(2, "ledger-missing")
    assert cli("doctor", "--code", "ledger-mising").exit_code == 2
    assert "autoSkipNonRecoverableData" in cli("doctor", "--explain", "ledger-missing").stdout
    assert cli("doctor", "--explain", "ledger-missing", "-o", "json").json["code"] == "ledger-missing"


def _finding(code: str, where: str) -> Finding:
    return Finding(Severity.WARNING, code, where, where, {}, 0, 0, "", "", "", "use", "", "")


def test_as_many_as_are_told_one_by_one() -> None:
    some = [_finding("ledger-without-metadata", f"ledger {number}") for number in range(EACH_MOST + 1)]
    assert len([*sum_up(some[:-1])]) == EACH_MOST
    assert len([*sum_up(some)]) == 1


def test_what_keeps_a_store_from_being_read_comes_before_policies_and_these_before_the_rest() -> None:
    from pulsar_admin.store.rules import judging

    (leading, *_) = sorted(judging._LEADING)
    worst = judging._WORST[0]
    where = ("x", f"persistent://a/b/{EVENTS}", "x")
    ranks = [weight(_finding(code, place)) for code, place in zip((leading, worst, worst), where, strict=True)]
    assert ranks == sorted(set(ranks))
