"""Cost of an idle query: processor time and memory."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Final

import psutil

from bench.connector.harness import Figure
from bench.connector.queries import queries

if TYPE_CHECKING:
    from bench.connector.harness import Bench

QUERIES: Final = 10
#: Time for compilers and caches to come to rest after the starts.
SETTLE_S: Final = 8.0
MEASURED_S: Final = 60.0


def measure(bench: Bench) -> list[Figure]:
    """Ten queries at once, a minute long, after each has had one message."""
    with queries(bench, "IDLE", QUERIES + 1) as made:
        # The first one includes the cost that all of them share.
        made.start(0, made.load(0))
        heap_before = _heap_mb(bench)
        for number in range(1, QUERIES):
            made.start(number, made.load(number))
        time.sleep(SETTLE_S)
        server, jvm, python, seconds = _used(bench, MEASURED_S)
        heap = (_heap_mb(bench) - heap_before) / (QUERIES - 1)
        planners = _planners_mb()
        start_s = made.start(QUERIES, made.load(QUERIES))
    share = 100 / seconds / QUERIES  # per cent of a core for each query
    return [
        Figure(
            "idle query, of a core", (jvm + python) * share, "%", 1.0, at_least=False,
            note=f"JVM {jvm * share:.2f}, Python {python * share:.2f};"
            f" the server besides {server * share:.2f}",
        ),
        Figure(
            "memory of an idle query, Python", statistics.median(planners), "MB",
            note=f"proportional set size of its planner; {len(planners)} of them",
        ),
        Figure("memory of an idle query, JVM heap", heap, "MB", note="after a full collection"),
        Figure(
            "start of a query after an idle minute", start_s, "s",
            note="Spark has ended its Python workers by then",
        ),
    ]  # fmt: skip


def _used(bench: Bench, seconds: float) -> tuple[float, float, float, float]:
    """Processor time of server, JVM and Python in the next ``seconds``, and the exact duration.

    Spark ends Python workers that have been idle for a minute, and the time that those used would
    be lost.  So the time is sampled often, and the last sample of each process counts.
    """
    began_s = time.perf_counter()
    begins = _processor_times()
    latest = dict(begins)
    while (left_s := seconds - (time.perf_counter() - began_s)) > 0:
        time.sleep(min(left_s, 2.0))
        latest |= _processor_times()
    taken_s = time.perf_counter() - began_s
    used = {"server": 0.0, "java": 0.0, "python": 0.0}
    for (process, name), end_s in latest.items():
        is_server = process.pid == bench.server.process.pid
        kind = "server" if is_server else "java" if name == "java" else "python"
        # One that started within the time has used all of it within the time.
        used[kind] += end_s - begins.get((process, name), 0.0)
    return used["server"], used["java"], used["python"], taken_s


def _processor_times() -> dict[tuple[psutil.Process, str], float]:
    """Seconds used so far by each process below this one; the name is the kind."""
    found: dict[tuple[psutil.Process, str], float] = {}
    for process in psutil.Process().children(recursive=True):
        try:
            times = process.cpu_times()
            found[process, process.name()] = times.user + times.system
        except psutil.NoSuchProcess:
            continue
    return found


def _heap_mb(bench: Bench) -> float:
    """Live objects of the JVM."""
    jvm = bench.quick_spark._jvm
    assert jvm is not None, "the session has ended"
    runtime = jvm.java.lang.Runtime.getRuntime()
    runtime.gc()
    return float(runtime.totalMemory() - runtime.freeMemory()) / 2**20


def _planners_mb() -> list[float]:
    """The process that stays with each query; a page that several share counts once."""
    sizes: list[float] = []
    for process in psutil.Process().children(recursive=True):
        try:
            if any("source_runner" in word for word in process.cmdline()):
                sizes.append(process.memory_full_info().pss / 2**20)
        except psutil.NoSuchProcess:
            continue
    return sizes
