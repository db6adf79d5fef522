"""Hypothesis strategies and settings that the codec tests share."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st

from pulsar_admin.store.names import Position

quick = settings(derandomize=True, deadline=None, max_examples=24)

int64 = st.integers(-(2**63), 2**63 - 1)
uint64 = st.integers(0, 2**64 - 1)
ids = st.integers(0, 2**63 - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
positions = st.builds(Position, ids, st.integers(-1, 2**63 - 1))
properties = st.dictionaries(texts, texts, max_size=3)
long_properties = st.dictionaries(texts, int64, max_size=3)
ranges = st.lists(st.tuples(positions, positions).map(lambda pair: (min(pair), max(pair))), max_size=4).map(tuple)
words = st.lists(int64, min_size=1, max_size=3).map(tuple)
batch_deletes = st.dictionaries(positions, words, max_size=3)
