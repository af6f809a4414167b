"""Answers of on-demand queries from the state that an instance stores on its worker's disk.

This runs in a process of its own (``mesh.processes.bounded_process``): it loads the operators, maps
the pieces read-only, and may be killed at any moment.  A state is stored at most a second after the
events in it were processed, and is never changed; old ones are dropped meanwhile.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson
import pyarrow as pa
import pyarrow.ipc

from mesh.errors import MeshError
from mesh.functions.objects import json_rows
from mesh.language.parser import parse, parse_on_demand_query
from mesh.model.partition import partitions
from mesh.model.question import Answer, AnswerTask, too_many_rows
from mesh.operators.aggregations.rollup import Aggregation
from mesh.operators.base import State, subset
from mesh.operators.divided import divide
from mesh.operators.executor import Executor
from mesh.operators.failures import FAILED
from mesh.operators.on_demand import answer, pieces_of, stores_of
from mesh.operators.tables.lookup_table import LookupTable
from mesh.plan.bind import bind, bind_on_demand
from mesh.plan.bound import AnswerOutput as Reads
from mesh.plan.bound import SourceKind
from mesh.spark.instance_io import LocalState, Manifest
from mesh.store.backends import read
from mesh.store.lookups import too_many
from mesh.store.reader import BehindError, read_rows
from mesh.store.sources import database, shard

if TYPE_CHECKING:
    from collections.abc import Callable

    from mesh.language.syntax import TimeUnit
    from mesh.model.stored import Clause
    from mesh.operators.aggregations.tables import AggregationTables
    from mesh.operators.expressions import Environment
    from mesh.plan.bound import BoundApp, BoundOnDemandQuery

#: Bytes of the states whose stores are kept for further questions; they need more in memory.
CACHE_BYTES: Final = 300_000_000
#: Rows of a table in a database that one question may read there.
READ_MAX: Final = 200_000
#: Most attempts to read a state: it may be dropped meanwhile.
_ATTEMPTS: Final = 5


@dataclass(frozen=True, slots=True)
class _CachedStores:
    """Stores of one part, of a version of its state; ``size``: bytes of its pieces."""

    version: object
    stores: Environment
    size: int


#: Stores by the place of their state, the one used last at the end.
CACHE: OrderedDict[object, _CachedStores] = OrderedDict()


def answer_task(task: AnswerTask) -> Answer | None:
    """The answer to a question; None if the stored state is not at ``at_least`` yet.

    Nor may it be older than rows of the part in a database.

    Raises:
        MeshError: MESH-A503, there is no state of this instance and epoch yet; MESH-A400, a
            stream in ``at_least`` that the part does not read; MESH-A413, the answer is too
            large; errors of the query.
    """
    for stream in task.at_least:
        if stream not in task.streams:
            raise MeshError(
                "MESH-A400",
                f'JetStream stream "{stream}" is not read by {task.instance}',
                detail=f"It reads {', '.join(task.streams)}.",
            )
    app = bound(task.app_text)
    query = bind_on_demand(parse_on_demand_query(task.query), app)
    if task.is_divided:
        query = divide(query).part
    is_read = isinstance(query.action, Reads)
    for _ in range(_ATTEMPTS):
        try:
            local, manifest = _newest(task)
            positions = _positions(manifest)
            if any(positions.get(s, 0) < n for s, n in task.at_least.items()):
                return None
            if not is_read:
                outcome = _outcome(task, manifest)
                return None if outcome is None else Answer(outcome, positions)
            stores = _stores(task, app, query, local, manifest)
        except FileNotFoundError:
            continue
        # The state has none of their rows, and those of another question are old.
        for table in stores.tables.values():
            if isinstance(table, LookupTable):
                table.find_rows = _reader(table, bound(task.app_text).name)
                table.forget()
        try:
            rows = answer(query, stores, time.time_ns() // 1_000_000)
        except BehindError:
            return None
        return _answer(rows, task, positions)
    raise MeshError(
        "MESH-A503",
        f"{task.instance} has no stored state yet",
        detail="It starts, or restores its last snapshot.",
        hint="Ask again in a moment.",
    )


def _outcome(task: AnswerTask, manifest: Manifest | None) -> bytes | None:
    """The outcome of a change, see ``table_changes``; None if it is not made yet.

    It may wait for other inputs although its message is in the state.
    """
    values = subset(State({}, manifest.scalars), "own").scalars if manifest is not None else {}
    outcome = values.get("changes", {}).get(task.change)
    return None if outcome is None else orjson.dumps(outcome)


@lru_cache(maxsize=16)
def bound(text: str) -> BoundApp:
    """The app of a text, bound."""
    return bind(parse(text))


@lru_cache(maxsize=16)
def _places(group_text: str, outputs: tuple[str, ...]) -> dict[str, str]:
    """``Executor.places`` of a group; see ``partition_task``, which makes its executors."""
    return Executor(bound(group_text), [*outputs, FAILED], shard=shard()).places


def _newest(task: AnswerTask) -> tuple[LocalState, Manifest | None]:
    """The state that was stored last in this epoch, by any run of the instance.

    Raises:
        FileNotFoundError: none is stored yet.
    """
    root = Path(task.directory) / task.instance
    runs = [*root.glob(f"{task.epoch}-*"), *root.glob(f"apart-*/{task.epoch}-*")]
    begun: list[LocalState] = []
    stored: list[tuple[int, LocalState]] = []
    for run in runs:
        local = LocalState(run / str(task.partition))
        times = [path.stat().st_mtime_ns for path in local.directory.glob("*.manifest")]
        if times:
            stored.append((max(times), local))
        else:
            begun.append(local)
    if stored:
        local = max(stored, key=lambda one: one[0])[1]
        return local, local.newest()
    for local in begun:
        return local, local.newest()
    raise FileNotFoundError


def _positions(manifest: Manifest | None) -> dict[str, int]:
    if manifest is None:
        return {}
    return {stream: sequence for stream, sequence, _ in manifest.position_of.streams}


def _stores(
    task: AnswerTask,
    app: BoundApp,
    query: BoundOnDemandQuery,
    local: LocalState,
    manifest: Manifest | None,
) -> Environment:
    """The stores that a query reads; kept until their state changes."""
    names = query.reads
    # A table's state is all in its pieces, and its place is known.
    is_node = query.store is not None and query.store.kind is not SourceKind.TABLE
    places = _places(task.group_text, task.outputs) if is_node else {}
    if manifest is None:
        return _with_tables(stores_of(app, State(), places, names, shard()), task, State())
    pieces = tuple(pieces_of(manifest.pieces, places, names))
    # Names of pieces are those of their contents, as long as the state grows from one origin.
    version = pieces, is_node and manifest.position
    place = str(local.directory), task.app_text, names
    entry = CACHE.get(place)
    if entry is None or entry.version != version:
        state = local.load(replace(manifest, pieces=pieces))
        stores = _with_tables(stores_of(app, state, places, names, shard()), task, state)
        size = sum(piece.nbytes for piece in state.pieces.values())
        entry = CACHE[place] = _CachedStores(version, stores, size)
    CACHE.move_to_end(place)
    while len(CACHE) > 1 and sum(one.size for one in CACHE.values()) > CACHE_BYTES:
        CACHE.popitem(last=False)
    return entry.stores


def _with_tables(stores: Environment, task: AnswerTask, state: State) -> Environment:
    """Let aggregations read the rows of their tables in databases."""
    position = state.scalars.get("own/outputs", 0)
    sources = {a.schema.name: a.input.schema.name for a in bound(task.app_text).aggregations}
    for name, one in stores.aggregations.items():
        cells = one.cells
        if isinstance(cells, Aggregation) and cells.tables is not None:
            key = task.keys.get(sources[name])
            cells.find_rows = _finder(cells.tables, task, position, key)
    return stores


def _finder(
    tables: AggregationTables,
    task: AnswerTask,
    position: int,
    key: tuple[tuple[str, ...], int] | None,
) -> Callable[[TimeUnit, int, int], list[pa.RecordBatch]]:
    """Reads the rows of a part: with a key those of its groups, of which no other part has any."""
    app = bound(task.app_text).name

    def find(per: TimeUnit, start: int, end: int) -> list[pa.RecordBatch]:
        where = database(tables.target.options, app)
        read = read_rows(where, tables.of(per), (start, end), task.producer, position)
        return [in_part(rows) for rows in read]

    def in_part(rows: pa.RecordBatch) -> pa.RecordBatch:
        if key is None:
            return rows
        names, count = key
        part = partitions([rows.column(name) for name in names], count)
        return rows.filter(pa.array(part == task.partition))

    return find


def _reader(table: LookupTable, app: str) -> Callable[[Clause], pa.RecordBatch]:
    def find(clause: Clause) -> pa.RecordBatch:
        where = database(table.target.options, app)
        rows, has_more = read(where, table.stored, clause, READ_MAX)
        if has_more:
            raise too_many(table.schema.name, READ_MAX)
        return rows

    return find


def _answer(rows: pa.RecordBatch, task: AnswerTask, positions: dict[str, int]) -> Answer:
    if rows.num_rows > task.rows_max and not task.is_divided:
        raise too_many_rows(rows.num_rows, task.rows_max)
    if task.may_be_json and rows.nbytes <= task.bytes_max:
        listed = json_rows([rows])
        if len(listed) <= task.bytes_max:
            return Answer(listed, positions, is_json=True)
    return Answer(_encoded(rows, task), positions)


def _encoded(rows: pa.RecordBatch, task: AnswerTask) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    data = sink.getvalue()
    if data.size > task.bytes_max:
        raise MeshError(
            "MESH-A413",
            f"the answer has {data.size} bytes",
            detail=f"queries.bytes_max allows {task.bytes_max}.",
            hint="Ask for less with 'select', 'on' and 'limit', or for aggregates.",
        )
    return bytes(data)
