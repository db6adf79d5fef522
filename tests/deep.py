"""Parameters of tests that ``make test`` leaves out: those that stand for no branch of their own."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def deep_but_for(places: Collection[int], names: str | tuple[str, ...], cases: Iterable[Any], **options: Any) -> Any:
    """Return ``pytest.mark.parametrize`` of CASES, where all but those at PLACES are ``deep``.

    Any: what parametrize takes and returns.
    """
    is_one = isinstance(names, str) and "," not in names
    marked = []
    for place, case in enumerate(cases):
        values, marks, name = case if isinstance(case, type(pytest.param())) else ([case] if is_one else case, (), None)
        marked.append(pytest.param(*values, marks=[*marks, *([] if place in places else [pytest.mark.deep])], id=name))
    assert set(places) < set(range(len(marked))), f"{names}: of {len(marked)} cases {places}"
    return pytest.mark.parametrize(names, marked, **options)
