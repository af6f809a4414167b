"""The marker step in Redis: a script moves the marker and changes rows, as one.

    mesh_marker:{producer}           epoch, position, and ``initial`` of the writer
    mesh_reads:{producer}:{number}   what a run has read
    mesh_reads:{producer}            numbers of these runs by time: old ones are removed

The server runs a script alone, and writes its changes to its log as one.  It looks at the marker
and at the types of all keys first, so it changes all or nothing.  If its outcome is unknown, the
connection is given up, and the next claim reads the marker; a script that comes late finds another
epoch or position, and changes nothing.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import msgpack  # type: ignore[import-untyped]  # it has no stubs
import orjson

from mesh.model.column_types import ColumnType, Kind
from mesh.model.stored import DELETED, EVERY_ROW, Backend, ReadRun, changes_channel
from mesh.store.engine import overtaken
from mesh.store.reads import LIFE_MS, packed, unpacked
from mesh.store.redis_client import (
    Hashes,
    check,
    connected,
    database_errors,
    finder,
    text_of,
    warn_of_loss,
)
from mesh.store.stored_rows import after, keys_of
from mesh.store.values import to_arrow

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    import pyarrow as pa

    from mesh.model.stored import Clause, Database, StoredTable
    from mesh.model.values import Row
    from mesh.store.refusals import RefusedRow
    from mesh.store.stored_rows import StoredRows

#: A field has any text.
_FIELD: Final = ColumnType(Backend.REDIS, "field", Kind.ANY)
#: Keys whose fields are read by one round trip.
_KEYS_MAX: Final = 1000
#: Epoch, and rows that were there before the first one; answers with epoch, position and initial.
_CLAIM: Final = """
local found = redis.call('HMGET', KEYS[1], 'epoch', 'position', 'initial')
if not found[1] then
  redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'position', '0', 'initial', ARGV[2])
  return {ARGV[1], '0', ARGV[2]}
end
if tonumber(found[1]) <= tonumber(ARGV[1]) then
  redis.call('HSET', KEYS[1], 'epoch', ARGV[1])
  found[1] = ARGV[1]
end
return found
"""
#: Epoch, old position, new position, and tables: their fields, seconds of life, whether changes
#: renew these, rows (key, values), keys that are gone.
_COMMIT: Final = """
local found = redis.call('HMGET', KEYS[1], 'epoch', 'position')
if found[1] ~= ARGV[1] or found[2] ~= ARGV[2] then return 0 end
local tables = cjson.decode(ARGV[4])
for _, changed in ipairs(tables) do
  for _, row in ipairs(changed.rows) do
    local kind = redis.call('TYPE', row[1]).ok
    if kind ~= 'hash' and kind ~= 'none' then
      return redis.error_reply('WRONGTYPE key ' .. row[1] .. ' is no hash, but a ' .. kind)
    end
  end
end
for _, changed in ipairs(tables) do
  for _, row in ipairs(changed.rows) do
    local key, given, nulls = row[1], {}, {}
    for at, name in ipairs(changed.fields) do
      local value = row[at + 1]
      if value == cjson.null then
        nulls[#nulls + 1] = name
      else
        given[#given + 1] = name
        given[#given + 1] = value
      end
    end
    local begins = changed.seconds > 0 and (changed.renews or redis.call('EXISTS', key) == 0)
    redis.call('HSET', key, unpack(given))
    if #nulls > 0 then redis.call('HDEL', key, unpack(nulls)) end
    if begins then redis.call('EXPIRE', key, changed.seconds) end
  end
end
for _, changed in ipairs(tables) do
  for _, key in ipairs(changed.gone) do redis.call('DEL', key) end
end
redis.call('HSET', KEYS[1], 'position', ARGV[3])
return 1
"""
#: Epoch, position, number of the run, what was read, now, the time before which runs are old, and
#: the life of reads, all in milliseconds.  As with SQL, nothing is old while no run is recorded.
_RECORD: Final = """
local found = redis.call('HMGET', KEYS[1], 'epoch', 'position')
if found[1] ~= ARGV[1] or found[2] ~= ARGV[2] then return 0 end
redis.call('SET', KEYS[2] .. ':' .. ARGV[3], ARGV[4], 'PX', ARGV[7])
redis.call('ZADD', KEYS[2], ARGV[5], ARGV[3])
redis.call('PEXPIRE', KEYS[2], ARGV[7])
for _, number in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', ARGV[6], 'LIMIT', 0, 1000)) do
  redis.call('DEL', KEYS[2] .. ':' .. number)
  redis.call('ZREM', KEYS[2], number)
end
return 1
"""
#: Life of the reads of an app that is away, or was undeployed.
_AWAY_MS: Final = 30 * 86_400_000

#: Keys, bytes after which it ends, and the names of fields.  Answers with the fields of the first
#: keys; a missing one is false.
_READ: Final = """
local found, left = {}, tonumber(ARGV[2])
for at, key in ipairs(cjson.decode(ARGV[1])) do
  local row = redis.call('TYPE', key).ok == 'hash' and redis.call('HMGET', key, unpack(ARGV, 3))
  found[at] = row
  for _, value in ipairs(row or {}) do left = left - (value and #value or 0) end
  if left <= 0 then break end
end
return cmsgpack.pack(found)
"""
#: Bytes of one answer: the server holds it several times.
_READ_BYTES: Final = 8 << 20

#: Seconds, and keys; rows that others have given no life stay as they are.
_RENEW: Final = """
for _, key in ipairs(cjson.decode(ARGV[2])) do
  if redis.call('TTL', key) >= 0 then redis.call('EXPIRE', key, ARGV[1]) end
end
"""


class RedisWriter:
    """See ``mesh.store.backends.Writer``."""

    def __init__(
        self,
        database: Database,
        producer: str,
        epoch: int,
        tables: Sequence[StoredTable],
        full_tables: Collection[str] = (),
        records: bool = False,
    ) -> None:
        """A writer without a connection; see ``StoreWriter``."""
        self.database = database
        self.producer = producer
        self._epoch = epoch
        self.tables = tuple(
            replace(t, columns=tuple(replace(c, actual=_FIELD) for c in t.columns)) for t in tables
        )
        self._changed = {changes_channel(table.name): table for table in self.tables}
        self._full_tables = tuple(full_tables)
        self._records = records
        self._client: Any = None
        self.initial = 0
        self.position = 0

    def __repr__(self) -> str:
        return f"RedisWriter({self.database}, {self.producer}, epoch={self._epoch})"

    @property
    def _marker(self) -> str:
        return f"mesh_marker:{self.producer}"

    def open(self) -> None:
        """See ``Writer``."""
        if self._client is not None:
            return
        check(self.database)
        client = connected(self.database)
        try:
            with database_errors(self.database, "when the marker is claimed"):
                warn_of_loss(client, self.database)
                self._claim(client)
        except BaseException:
            client.close()
            raise
        self._client = client

    def _claim(self, client: Any) -> None:
        initial = 0
        if not client.exists(self._marker):
            tables = (table for table in self.tables if table.name in self._full_tables)
            initial = sum(
                1 for table in tables for _ in _find_rows(client, Hashes(table), EVERY_ROW)
            )
        epoch, position, before = client.eval(_CLAIM, 1, self._marker, self._epoch, initial)
        if int(epoch) > self._epoch:
            raise overtaken(self.database, self.producer, self._epoch, int(epoch))
        self.position, self.initial = int(position), int(before or 0)

    @contextmanager
    def _connected(self, doing: str) -> Iterator[Any]:
        """The client, which is given up after any error."""
        self.open()
        try:
            with database_errors(self.database, doing):
                yield self._client
        except BaseException:
            self.close()
            raise

    def commit(self, batches: Sequence[StoredRows]) -> None:
        """See ``Writer``."""
        self.open()
        pending = [
            batch for batch in (after(b, self.position) for b in batches) if batch.rows.num_rows
        ]
        if not pending:
            return
        last = max(int(batch.position[-1]) for batch in pending)
        changed = [_changes(self._changed[batch.channel], batch.rows) for batch in pending]
        with self._connected("when rows are written") as client:
            self._moved(
                client.eval(
                    _COMMIT, 1, self._marker, self._epoch, self.position, last,
                    orjson.dumps(changed),
                )
            )  # fmt: skip
        self.position = last

    def _moved(self, answer: int) -> None:
        if answer != 1:
            raise overtaken(self.database, self.producer, self._epoch, None)

    def find(self, table: StoredTable, clause: Clause) -> pa.RecordBatch:
        """See ``Writer``."""
        with self._connected(f"when table {table.name} is read") as client:
            hashes = Hashes(table)
            # SCAN has another order each time.
            return to_arrow(sorted(_find_rows(client, hashes, clause), key=hashes.values_of), table)

    def rows(self, table: StoredTable) -> pa.RecordBatch:
        """See ``Writer``."""
        return self.find(table, EVERY_ROW)

    def record(self, run: ReadRun) -> None:
        """See ``Writer``."""
        assert self._records, "it records"
        head = orjson.dumps([run.until, run.known_ms, run.continues])
        data = head + b"\n" + packed(run.rows)
        now_ms = time.time_ns() // 1_000_000
        with self._connected("when reads are recorded") as client:
            self._moved(
                client.eval(
                    _RECORD, 2, self._marker, self._reads, self._epoch, self.position, run.number,
                    data, now_ms, now_ms - LIFE_MS, _AWAY_MS,
                )
            )  # fmt: skip

    def recorded(self, after: int) -> list[ReadRun]:
        """See ``Writer``."""
        runs: list[ReadRun] = []
        with self._connected("when recorded reads are read") as client:
            while data := client.get(f"{self._reads}:{(number := after + len(runs) + 1)}"):
                head, _, rows = data.partition(b"\n")
                until, watermark_ms, continues = orjson.loads(head)
                runs.append(ReadRun(number, until, watermark_ms, continues, unpacked(rows)))
        return runs

    @property
    def _reads(self) -> str:
        return f"mesh_reads:{self.producer}"

    def refused(self, after: int) -> list[RefusedRow]:
        """See ``Writer``: Redis refuses no row."""
        return []

    def drop_refused(self, until: int) -> None:
        """See ``Writer``."""

    def close(self) -> None:
        """See ``Writer``."""
        if self._client is not None:
            self._client.close()
            self._client = None


def read(
    database: Database, table: StoredTable, clause: Clause, rows_max: int
) -> tuple[pa.RecordBatch, bool]:
    """See ``mesh.store.backends.read``."""
    client = connected(database)
    try:
        with database_errors(database, f"when table {table.name} is read"):
            rows: list[Any] = []
            for row in _find_rows(client, Hashes(table), clause):
                if len(rows) == rows_max:
                    return to_arrow(rows, table), True
                rows.append(row)
            return to_arrow(rows, table), False
    finally:
        client.close()


def _changes(table: StoredTable, rows: pa.RecordBatch) -> dict[str, Any]:
    """The last state of each row, for the script."""
    hashes = Hashes(table)
    keys = [hashes.key_of(key) for key in keys_of(table, rows)]
    last = {key: row for row, key in enumerate(keys)}
    is_gone = rows.column(DELETED).to_pylist()
    columns = [
        [None if value is None else text_of(value, column.type) for value in values]
        for column in table.columns
        for values in (rows.column(column.name).to_pylist(),)
    ]
    life = table.life
    return {
        "fields": hashes.names,
        "seconds": 0 if life is None else life.seconds,
        "renews": life is not None and life.is_renewed,
        "rows": [
            [key, *(column[row] for column in columns)]
            for key, row in last.items()
            if not is_gone[row]
        ],
        "gone": [key for key, row in last.items() if is_gone[row]],
    }


def _find_rows(client: Any, hashes: Hashes, clause: Clause) -> Iterator[Row]:
    """The rows that a look-up finds: by their keys, or among all of the table."""
    meets = None if clause == EVERY_ROW else finder(clause)
    keys = hashes.keys_in(clause)
    pages = _pages(client, hashes) if keys is None else _parts(list(dict.fromkeys(keys)))
    for page in pages:
        rows = [
            row
            for row in _rows(client, hashes, page)
            if meets is None or meets(dict(zip(hashes.names, row, strict=True)))
        ]
        life = hashes.table.life
        if rows and life is not None and life.is_renewed_by_reads:
            client.eval(_RENEW, 0, life.seconds, orjson.dumps([*map(hashes.key_of_row, rows)]))
        yield from rows


def _parts(keys: list[Row]) -> Iterator[list[Row]]:
    for start in range(0, len(keys), _KEYS_MAX):
        yield keys[start : start + _KEYS_MAX]


def _pages(client: Any, hashes: Hashes) -> Iterator[list[Row]]:
    """The keys of all rows; SCAN may show one twice."""
    seen: set[Row] = set()
    cursor: Any = 0
    while True:
        cursor, page = client.scan(cursor, hashes.pattern, _KEYS_MAX, _type="hash")
        new = {key for one in page if (key := hashes.key_in(one)) is not None} - seen
        seen |= new
        yield list(new)
        if int(cursor) == 0:
            return


def _rows(client: Any, hashes: Hashes, keys: Sequence[Row]) -> Iterator[Row]:
    """The rows with these keys; a key of another type is no row."""
    while keys:
        places = orjson.dumps([hashes.key_of(key) for key in keys])
        # One value, which is read many times as fast as a reply for each key.
        answer = client.eval(_READ, 0, places, _READ_BYTES, *hashes.names)
        replies = msgpack.unpackb(answer, raw=True)
        for key, fields in zip(keys, replies, strict=False):
            row = hashes.row_of(key, fields) if fields else None
            if row is not None:
                yield row
        keys = keys[len(replies) :]
