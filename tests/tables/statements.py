"""Random statements over the tables of a store, for a comparison of what is read with what there is."""

from collections.abc import Sequence
from random import Random

_MESSAGES = ("messages", '"public/default/*"', '"public/default/avro"', '"acme/iot/*"')
_TIMES = ("publish_time", "broker_time", "event_time")
_CONSTANTS = {
    "topic": (
        *("'persistent://public/default/plain'", "'persistent://public/default/avro'", "'nothing'", "null", "'q'"),
        *("'persistent://acme/iot/skewed-batched'", "'persistent://acme/orders/codecs'"),
    ),
    "ledger_id": ("8", "9", "18", "50", "70", "0", "-1", "9.5", "null", "1e30"),
    "entry_id": ("0", "3", "24", "12.5", "1000", "null"),
    "batch_index": ("-1", "0", "5"),
    "key": ("'key-1'", "''", "null", "'k'"),
    "size": ("10", "100", "64"),
    "sequence_id": ("0", "7"),
}
_NAMES = (*_CONSTANTS, *_TIMES)
OF_ENTRIES = ("topic", "ledger_id", "entry_id", "sequence_id", "size", "publish_time", "broker_time")


class Statements:
    """Makes statements. TIMES: texts of instants to compare with; NAMES: the columns that conditions are about."""

    def __init__(self, seed: int, times: list[str], names: Sequence[str] = _NAMES) -> None:
        self._random = Random(seed)
        self._columns = names
        self._times = [f"timestamptz '{time}'" for time in times]

    def make(self) -> str:
        """Return a statement whose rows do not depend on an order."""
        kind = self._random.randrange(9)
        where, other = self.condition(""), self.condition("")
        table, second = self._random.choice(_MESSAGES), self._random.choice(_MESSAGES)
        columns = ", ".join(self._random.sample(_NAMES, 2))
        if kind <= 2:
            return f"select {columns} from {table} where {where}"
        if kind == 3:
            return f"select topic, count(*), max(size) from {table} where {where} group by topic having count(*) > 3"
        if kind == 4:
            same = f"a.ledger_id = b.ledger_id and {self.condition('a.')} and a.entry_id = b.entry_id"
            joined = f"{table} a left join {second} b on {same}"
            return f"select a.ledger_id, a.entry_id, b.key from {joined} where {self.condition('b.')}"
        if kind == 5:
            first = f"with c as (select * from {table} where {where}) select count(*) from c where {other}"
            return f"{first} union all select count(*) from {second} where {where}"
        if kind == 6:
            ledgers = f"select ledger_id from ledgers where {self._small()}"
            return f"select count(*), min(entry_id) from {table} where ledger_id in ({ledgers}) and {where}"
        if kind == 7:
            joined = f"ledgers l full join {table} m on l.ledger_id = m.ledger_id"
            return f"select m.topic, l.ledger_id, count(m.size) from {joined} where {self.condition('m.')} group by all"
        if self._random.random() < 0.3:
            return f"select count(*) from (from {table} where {where} except from {table} where {other}) t"
        joined = f"cursors c, topics t where c.topic = t.topic and {self._topic('t.')}"
        return f"select c.topic, subscription, count(*) from {joined} group by all"

    def condition(self, of: str, depth: int = 0) -> str:
        """Return a condition on columns of messages, with the table OF in front of each."""
        kind = self._random.random()
        if depth < 3 and kind < 0.5:
            word = self._random.choice(("and", "and", "or"))
            return f"({self.condition(of, depth + 1)} {word} {self.condition(of, depth + 1)})"
        if kind < 0.6:
            return f"not {self.condition(of, depth + 1)}" if depth < 4 else "true"
        name = self._random.choice(self._columns)
        column, constants = of + name, _CONSTANTS.get(name, self._times)
        pick = self._random.choice
        if kind < 0.66:
            return f"{column} is {pick(('', 'not '))}null"
        if kind < 0.73:
            listed = ", ".join(pick(constants) for _ in range(self._random.randrange(1, 4)))
            return f"{column} {pick(('', 'not '))}in ({listed})"
        if kind < 0.78:
            return f"{column} {pick(('', 'not '))}between {pick(constants)} and {pick(constants)}"
        if kind < 0.81:
            return f"{column} is {pick(('', 'not '))}distinct from {pick(constants)}"
        if kind < 0.84:
            return f"{pick(constants)} {pick(('<', '>=', '='))} {column}"
        if kind < 0.87:
            return f"coalesce({column}, {pick(constants)}) {pick(('<=', '='))} {pick(constants)}"
        if kind < 0.9 and name in _TIMES:
            unit, sign = pick(("hour", "day", "minute")), pick(("=", "<"))
            return f"date_trunc('{unit}', {column}) {sign} date_trunc('hour', {pick(constants)})"
        if kind < 0.92:
            return f"{of}topic like '{pick(('%plain', 'persistent://acme/%', '%skewed_batched', '%'))}'"
        return f"{column} {pick(('=', '<>', '<', '<=', '>', '>='))} {pick(constants)}"

    def _small(self) -> str:
        conditions = (
            "entries > 3",
            "topic is null",
            "topic is not null",
            "state = 'CLOSED'",
            "ledger_id < 40",
            self._topic(""),
        )
        return self._random.choice(conditions)

    def _topic(self, of: str) -> str:
        word = self._random.choice(("=", "<>", "<", ">=", "is distinct from"))
        return f"{of}topic {word} {self._random.choice(_CONSTANTS['topic'])}"
