"""Figures of the session's JVM and of Spark, through some ten calls of py4j."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def figures(spark: SparkSession) -> dict[str, float]:
    """Heap in bytes, garbage collections in seconds and number, threads, queries and stages."""
    context: Any = spark.sparkContext
    management = context._jvm.java.lang.management.ManagementFactory
    heap = management.getMemoryMXBean().getHeapMemoryUsage()
    collectors = list(management.getGarbageCollectorMXBeans())
    return {
        "heap_used": float(heap.getUsed()),
        "heap_max": float(heap.getMax()),
        "threads": float(management.getThreadMXBean().getThreadCount()),
        "gc_s": sum(one.getCollectionTime() for one in collectors) / 1000,
        "gc_count": float(sum(one.getCollectionCount() for one in collectors)),
        "queries": float(len(spark.streams.active)),
        "stages": float(len(context.statusTracker().getActiveStageIds())),
    }
