#!/usr/bin/env bash
# Guess: `spark.sql.execution.arrow.maxBytesPerBatch`, a bound of 64 MB on each Arrow batch that Spark sends to Python,
# costs nothing where batches of 10,000 rows (`maxRecordsPerBatch`) never come near it.
#
# What happens: PySpark 4.3.0 adds up the bytes of the batch after each row, by walking all of its column writers.  A
# query whose Python side hands batches through untouched takes about twice as long with the bound as without.  What
# switches the sum off is the largest int, 2147483647, alone: with 2147483646, a bound no batch of Arrow can reach, the
# time is that of 64 MB.
#
# Why it matters here: each row on its way through a Python data source, mapInArrow or a pandas function pays it.
# Sessions of the mesh set it, and the page of the Spark source has the line for sessions of others.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.3.0 pyarrow==26.0.1 pandas==2.3.3 2>/dev/null
PYSPARK_PYTHON="$work/venv/bin/python" "$work/venv/bin/python" - 2> "$work/log" <<'PY'
import time

import pyspark
from pyspark.sql import SparkSession

BOUND = "spark.sql.execution.arrow.maxBytesPerBatch"
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
default = spark.conf.get(BOUND)
print("PySpark", pyspark.__version__, "bound by default:", default)
rows = spark.range(0, 4_000_000, 1, 1).selectExpr("id", "cast(id as double) as v", "cast(id % 1000 as string) as k")


def measure(bound):
    spark.conf.set(BOUND, bound)
    began = time.perf_counter()
    rows.mapInArrow(lambda batches: batches, rows.schema).write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


measure(default)
bounds = default, "2147483646", "2147483647"
runs = [[measure(bound) for bound in bounds] for _ in range(4)]
best = [min(run[at] for run in runs) for at in range(len(bounds))]
for bound, seconds in zip(bounds, best):
    print(f"{bound:>12}: {seconds:.2f} s for 4,000,000 rows")
assert best[0] > 1.4 * best[2], best
assert best[1] > 1.4 * best[2], best
PY
