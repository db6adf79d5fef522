"""Which messages a search looks for: plain data that travels to executors, and what chooses messages by it.

Entries whose bytes cannot hold a match are left out before they are taken apart; messages are chosen by columns, values one by one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.errors import InvalidValue
from pulsar_admin.store.kernels.records import CHUNK, COMPRESSED, ENCRYPTED, TRANSACTION, UNFRAMED
from pulsar_admin.store.model.jsonpath import PathTest
from pulsar_admin.store.scan.arrow import bools_of, numbers_of, scalar, strings
from pulsar_admin.store.scan.places import EntryBatch

UNDECIDED = "undecided"
"""The column that says of a message that nobody can tell whether it is looked for: it is encrypted, or its value cannot be decoded."""
_NEEDLES = 4  # each is a pass over the bytes
_OPAQUE = UNFRAMED | COMPRESSED | ENCRYPTED | CHUNK | TRANSACTION
"""Entries whose bytes do not show what is in them, or that are a part of something else."""


class Match(Struct, frozen=True):
    """What a message must be; all that is given must hold, of ``keys`` and ``texts`` one.

    ``properties``: (name, value or None for any value). ``texts`` and ``regex`` are looked for in the payload, with ``in_value``
    in the decoded value's JSON, too. ``ignore_case`` is theirs. ``paths``: of the decoded value.
    """

    keys: tuple[str, ...] = ()
    key_prefix: str | None = None
    properties: tuple[tuple[str, str | None], ...] = ()
    producer: str | None = None
    sequence_id: int | None = None
    texts: tuple[str, ...] = ()
    regex: str | None = None
    ignore_case: bool = False
    in_value: bool = False
    paths: tuple[PathTest, ...] = ()

    def check(self) -> Match:
        """Return it; raises InvalidValue for an expression that is none, and where nothing is looked for."""
        self._check_texts()
        if self.regex is not None:
            try:
                pc.match_substring_regex(b"", self._pattern(self.regex))
                if not self.regex.isascii():
                    re.compile(self.regex)
            except (pa.ArrowInvalid, re.error) as error:
                text = str(error).partition(": ")[2] or str(error)
                hint = "look-around and back references are not known: the syntax is that of RE2"
                raise InvalidValue(f"no regular expression: {self.regex!r}: {text}", hint=hint) from error
        return self

    def _check_texts(self) -> None:
        """Raise InvalidValue for an empty text, and for one that no key, name or decoded value can have: it is not UTF-8."""
        for given in (*self.keys, *self.texts, self.key_prefix, self.regex):
            if given == "":
                raise InvalidValue("an empty text is in every message", hint="leave the option out")
        said = [
            *self.keys,
            self.key_prefix,
            self.producer,
            self.regex,
            *(text for pair in self.properties for text in pair),
        ]
        said += self.texts if self.in_value or self.ignore_case else ()
        for text in said:
            try:
                (text or "").encode()
            except UnicodeEncodeError as error:
                hint = "--text alone, without --value and -i, takes any bytes"
                raise InvalidValue(f"{text!r} is not text in UTF-8", hint=hint, value=text) from error

    @property
    def needs(self) -> frozenset[str]:
        """Columns of ``store.scan.messages`` that ``mask`` looks at."""
        names = {"encrypted", "sealedBatch"}
        names |= {"key"} if self.keys or self.key_prefix is not None else set()
        names |= {"properties"} if self.properties else set()
        names |= {"producer"} if self.producer is not None else set()
        names |= {"sequenceId"} if self.sequence_id is not None else set()
        return frozenset(names | ({"payload"} if self._has_text or self.paths else set()))

    @property
    def needs_value(self) -> bool:
        """Whether values are to be decoded."""
        return bool(self.paths) or (self.in_value and self._has_text)

    @property
    def _has_text(self) -> bool:
        return bool(self.texts) or self.regex is not None

    # -- entries ------------------------------------------------------------------------------------------------------

    @property
    def _needles(self) -> tuple[bytes, ...]:
        """Texts of which an entry with a match holds one as it is; none: any entry may hold a match."""
        if self.texts and not self.ignore_case and not self.in_value:
            found: tuple[str, ...] = self.texts
        elif self.keys:
            found = self.keys
        else:
            value = max((value or name for name, value in self.properties), key=len, default=None)
            found = tuple(text for text in (value or self.key_prefix or self.producer,) if text)
        return tuple(map(_bytes, found)) if len(found) <= _NEEDLES else ()

    def screened(self, entries: EntryBatch) -> EntryBatch:
        """Return ENTRIES without those whose bytes show that no match is in them."""
        if not self._needles or not len(entries):
            return entries
        hits = np.concatenate([_places(entries.data, needle) for needle in self._needles])
        order = np.argsort(entries.offsets)
        starts = entries.offsets[order]
        owners = np.searchsorted(starts, hits, "right") - 1
        kept = np.zeros(len(entries), bool)
        kept[order[owners[owners >= 0]]] = True
        return entries.take(kept | (entries.rows["flags"] & _OPAQUE != 0))

    # -- messages -----------------------------------------------------------------------------------------------------

    def mask(self, batch: pa.RecordBatch) -> Array:
        """Return which messages of BATCH, which has the columns ``needs``, may be looked for, by all but their values."""
        sealed = bools_of(batch.column("sealedBatch"))
        of_entry = self._test(batch, "producer", self.producer)
        of_message = self._test(batch, "sequenceId", self.sequence_id)
        if self.keys:
            of_message &= bools_of(pc.is_in(batch.column("key"), strings(self.keys, pa.string())))
        if self.key_prefix is not None:
            of_message &= bools_of(pc.starts_with(batch.column("key"), self.key_prefix))
        for name, value in self.properties:
            of_message &= _has_property(batch.column("properties"), name, value)
        if self._has_text and not self.in_value:
            of_message &= self._finds(batch.column("payload")) | bools_of(batch.column("encrypted"))
        found: Array = of_entry & (of_message | sealed)
        return found

    def _test(self, batch: pa.RecordBatch, name: str, wanted: object) -> Array:
        if wanted is None:
            return np.ones(len(batch), bool)
        found = batch.column(name)
        kind = found.type.value_type if pa.types.is_dictionary(found.type) else found.type
        return bools_of(pc.equal(found.cast(kind), wanted))

    def settle(self, batch: pa.RecordBatch, values: pa.Array | None, errors: pa.Array | None) -> tuple[Array, Array]:
        """Return which messages of BATCH, whose ``mask`` is true, are looked for, and of which nobody can tell.

        VALUES and ERRORS: what their schemas make of them, where ``needs_value``.
        """
        sealed, encrypted = bools_of(batch.column("sealedBatch")), bools_of(batch.column("encrypted"))
        asks_content = self._has_text or bool(self.paths)
        undecided: Array = (encrypted & asks_content) | (sealed & self._asks_message)
        if values is None or errors is None:
            return ~undecided, undecided
        found = np.ones(len(batch), bool)
        if self._has_text and self.in_value:
            found &= self._finds(batch.column("payload")) | self._finds(values)
        failed = bools_of(pc.is_valid(errors))
        if self.paths:
            held = [self._holds(*pair) for pair in zip(values.to_pylist(), batch.column("payload"), strict=True)]
            found &= np.array(held, bool)
        undecided |= failed & ~found
        return found & ~undecided, undecided

    @property
    def _asks_message(self) -> bool:
        return bool(self.keys or self.key_prefix or self.properties or self.sequence_id is not None) or self._has_text

    def _holds(self, text: str | None, payload: pa.Scalar) -> bool:
        """Whether the value of JSON TEXT, or without one the payload where it is JSON, passes every test of a path."""
        try:
            value = json.loads(payload.as_py() if text is None else text)
        except (ValueError, RecursionError):
            return False
        return all(test.holds(value) for test in self.paths)

    def _finds(self, column: pa.Array) -> Array:
        """Return in which values of COLUMN, text or bytes, one of the texts, and the expression, is."""
        found = np.zeros(len(column), bool) if self.texts else np.ones(len(column), bool)
        for text in self.texts:
            if self.ignore_case:
                found |= self._matches(column, re.escape(text))
            else:
                found |= bools_of(pc.match_substring(column, _bytes(text)))
        if self.regex is not None:
            found &= self._matches(column, self.regex)
        return found

    def _matches(self, column: pa.Array, pattern: str) -> Array:
        if pattern.isascii():
            return bools_of(pc.match_substring_regex(column, self._pattern(pattern)))
        # RE2 takes bytes for Latin-1: a letter beyond ASCII would be several.
        find = re.compile(pattern, re.IGNORECASE if self.ignore_case else 0).search
        values = column.to_pylist()
        texts = (value.decode("utf-8", "replace") if isinstance(value, bytes) else value for value in values)
        return np.array([text is not None and find(text) is not None for text in texts], bool)

    def _pattern(self, pattern: str) -> str:
        return f"(?i){pattern}" if self.ignore_case else pattern


def _bytes(text: str) -> bytes:
    """Return TEXT as it was typed: what is not UTF-8 on a command line is a surrogate in Python."""
    return text.encode("utf-8", "surrogateescape")


def _places(data: Array, needle: bytes) -> Array:
    """Return where NEEDLE is in DATA."""
    return np.fromiter(_iter_places(data.tobytes(), needle), np.int64)


def _iter_places(data: bytes, needle: bytes) -> Iterator[int]:
    at = data.find(needle)
    while at >= 0:
        yield at
        at = data.find(needle, at + 1)


def _has_property(pairs: pa.MapArray, name: str, value: str | None) -> Array:
    """Return which rows of PAIRS have the property."""
    same = pc.equal(pairs.keys, scalar(name, pairs.keys.type))
    same = same if value is None else pc.and_(same, pc.equal(pairs.items, scalar(value, pairs.items.type)))
    before = np.append(0, np.cumsum(bools_of(same)))
    offsets, _ = numbers_of(pairs.offsets)
    found: Array = before[offsets[1:]] > before[offsets[:-1]]
    return found
