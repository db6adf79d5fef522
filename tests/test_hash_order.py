"""The order of Java's hash maps, of few names and of very many."""

import pytest

from pulsar_admin.store import names


@pytest.mark.parametrize("odd", ["plain", "ü", "\U0001f600", "\ud800", "", "a\0", "\0"])
def test_many_names_come_in_the_order_of_few(odd: str, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = [f"persistent://public/default/{'x' * (number % 7)}{odd}-{number}" for number in range(300)] + [odd]
    few = names.in_hash_order(listed)
    monkeypatch.setattr(names, "_MANY_NAMES", 64)
    assert names.in_hash_order(listed) == few != listed
