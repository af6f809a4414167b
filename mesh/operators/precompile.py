"""Ahead-of-time compilation of the native loops: ``python -m mesh.operators.precompile``.

Numba compiles a loop when it is first called, and keeps the result beside the source, or in
``NUMBA_CACHE_DIR``.  All loops together take about a minute of
processor time, which would delay the first query.  So an app with every operator is run once when
mesh is installed, or else before a worker starts its first instance, patterns in a process beside
the others.  A file records that this is done, for this content of the sources and this kind of
processor.

The loops of time windows and of patterns without special elements come first: the first demo waits
for these only (``loop_cache.USUAL_VARIABLE``).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from mesh.operators import loop_cache
from mesh.processes.bounded_process import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from mesh.plan.bound import BoundApp

_DEFINITIONS: Final = """
@App:name('Native')
define stream S (k string, i int, l long, f float, d double, b bool);
define stream Q (k string, i int, l long, d double);
@PrimaryKey('k') define table T (k string, d double);
define window W (k string, d double) length(4) output all events;
"""
_USUAL_WINDOWS: Final = """
from S#window.time(1 sec) select avg(d) as m, i, l insert all events into O1;
from S#window.time(1 sec) select k, avg(d) as m group by k insert into O2;
from S[i >= 0 and d > 1.0] select k, i, d insert into O3;
"""
_USUAL_PATTERNS: Final = """
from every e1=S -> e2=S[e1.i == i and (e1.d + 1) <= d] within 10 sec
  select e1.i as i, e1.d as a, e2.d as b insert into O4;
"""
_WINDOWS: Final = """
from S#window.length(5) select k, avg(d) as a1, sum(i) as a2, sum(d) as a3, count() as a4,
  min(d) as a5, max(i) as a6, stdDev(d) as a7, min(l) as a8, max(f) as a9 group by k
  insert into O1;
from S#window.lengthBatch(4) select k, sum(l) as t, distinctCount(i) as n group by k insert into O2;
from S#window.time(1 sec) select k, avg(l) as m, max(d) as h insert all events into O3;
from S#window.timeBatch(1 sec) select max(d) as h, min(d) as l, sum(i) as t insert into O4;
from S#window.timeLength(1 sec, 4) select k, i insert expired events into O5;
from S#window.externalTime(l, 1 sec) select k, avg(d) as m group by k insert into O6;
from S#window.externalTimeBatch(l, 1 sec) select k, sum(d) as m group by k insert into O7;
from S#window.session(250 millisec, k) select k, count() as n insert into O8;
from S#window.sort(3, d, 'desc') select k, d insert expired events into O9;
from S#window.frequent(2, k) select k insert all events into O10;
from S#window.delay(100 millisec) select k insert into O12;
from S#window.batch() select k, sum(i) as t insert into O13;
"""
_JOINS: Final = """
from S select k, i output last every 3 events insert into O14;
from S select k, sum(i) as t group by k output last every 700 millisec insert into O15;
from S select k, minForever(d) as a, maxForever(i) as c, and(b) as e, or(b) as g group by k
  order by a limit 2 insert into O16;
from S#window.time(1 sec) as x join Q#window.time(1 sec) as y on x.k == y.k
  select x.i as a, y.i as c insert into O17;
from S#window.length(3) as x full outer join Q#window.length(2) as y on x.k == y.k and x.d > y.d
  select x.i as a, y.i as c insert into O18;
partition with (k of S, k of Q) begin
  from S#window.length(2) select k, i, avg(d) as m insert into #M;
  from #M#window.lengthBatch(2) select k, sum(i) as t insert into O24;
end;
from S select k, d insert into W;
from W select k, sum(d) as t insert into O26;
from S select k, d update or insert into T set T.d = d on T.k == k;
from S join T as t on S.k == t.k select t.d as d insert into O27;
"""
_PATTERNS: Final = """
from every e1=S -> e2=S[k == e1.k and d > e1.d] within 10 sec select e1.i as a insert into O19;
from every e1=S[i > 2] -> e2=Q[d > e1.d]<2:3> -> e3=S[k == e1.k] select e1.i as a insert into O20;
from every e1=S[k == 'k1'] -> not Q[k == e1.k] for 300 millisec select e1.i as a insert into O21;
from every e1=S, e2=S[d > e1.d]+, e3=S[d < e2[last].d] select e1.i as a insert into O22;
from every (e1=S[i > 5] and e2=Q[l > 3L]) -> e3=S[f > 1.0f] select e3.k as k insert into O23;
partition with (k of S, k of Q) begin
  from every e1=S -> e2=Q[d > e1.d] select e1.i as a insert into O25;
end;
"""
#: Queries whose loops are compiled in a process beside the others.
_BESIDE: Final = {"usual": _USUAL_PATTERNS, "patterns": _PATTERNS}
_EVENTS: Final = 40
_LOW_PRIORITY: Final = 5


def compile_once() -> None:
    """Compile the loops unless that is done; one process at a time, the others wait for it."""
    loop_cache.CACHE.mkdir(parents=True, exist_ok=True)
    with (loop_cache.CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not loop_cache.is_compiled():
            compile_loops()
            _drop_others()


def _drop_others() -> None:
    """Remove code compiled from other contents of these sources, some 10 MB each.

    Where a user named the directory, other versions of mesh may use it too.
    """
    if loop_cache.CACHE.parent == loop_cache.HERE / "__pycache__":
        for other in loop_cache.CACHE.parent.glob("native-*"):
            if other != loop_cache.CACHE:
                shutil.rmtree(other, ignore_errors=True)


def compile_loops() -> None:
    """Compile the loops that are not yet cached, the usual ones first."""
    loop_cache.CACHE.mkdir(parents=True, exist_ok=True)
    if not loop_cache.usual_mark().exists():
        _run_both(_USUAL_WINDOWS, "usual")
        loop_cache.usual_mark().touch()
    if os.environ.get(loop_cache.USUAL_VARIABLE):
        # Apps run meanwhile.
        os.nice(_LOW_PRIORITY)
    _run_both(_WINDOWS + _JOINS, "patterns", _compile_declared)
    loop_cache.compiled_mark().touch()


def _run_both(queries: str, other: str, last: Callable[[], None] | None = None) -> None:
    """Run queries, and then ``last``; and those named ``other`` in a process beside this one."""
    command = [sys.executable, "-m", "mesh.operators.precompile", other]
    with subprocess.Popen(command, preexec_fn=die_with_parent()) as beside:
        _run(queries)
        if last is not None:
            last()
    if beside.returncode:
        _run(_BESIDE[other])


def _compile_declared() -> None:
    """Compile the loops with a signature that no query has run."""
    from mesh.operators.native import compile_declared

    compile_declared()


def _run(queries: str) -> None:
    """Run queries over a few events, and compile what they need."""
    import numpy as np
    import pyarrow as pa

    from mesh.language.parser import parse
    from mesh.operators.executor import Executor, InputRun
    from mesh.operators.select.hashing import RowNumbers, TextNumbers
    from mesh.plan.bind import bind

    app = bind(parse(_DEFINITIONS + queries))
    outputs = [stream.name for stream in app.streams if stream.name.startswith("O")]
    executor = Executor(app, outputs)
    times = np.arange(_EVENTS, dtype=np.int64) * 97
    runs = [
        InputRun(name, np.arange(1, _EVENTS + 1), times, _rows(app, name)) for name in ("S", "Q")
    ]
    executor.run(runs, {"S": int(times[-1]), "Q": int(times[-1])})
    executor.restore(executor.snapshot())
    # Questions for one group look a key up.
    text, rows = TextNumbers(), RowNumbers(1)
    text.number(pa.array(["k"]))
    text.find("k")
    rows.number(np.zeros((1, 1), dtype=np.int64), np.zeros(1, dtype=np.bool_))
    rows.find(np.zeros(1, dtype=np.int64))


def _rows(app: BoundApp, stream: str) -> pa.RecordBatch:
    """A few events; every value is a number that rises and falls, or a key out of three."""
    import numpy as np
    import pyarrow as pa

    numbers = np.arange(_EVENTS) % 7
    schema = app.stream(stream).arrow
    columns = [
        pa.array([f"k{n % 3}" for n in numbers]) if pa.types.is_string(field.type)
        else pa.array(numbers).cast(field.type)
        for field in schema
    ]  # fmt: skip
    return pa.RecordBatch.from_arrays(columns, schema=schema)


if __name__ == "__main__":
    if sys.argv[1:]:
        _run(_BESIDE[sys.argv[1]])
    else:
        compile_once()
