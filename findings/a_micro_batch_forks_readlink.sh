#!/usr/bin/env bash
# Guess: a micro-batch of Structured Streaming with its checkpoint on a local disk writes a few small files, in a
# millisecond or two.
#
# What happens: PySpark 4.3.0 (Hadoop 3.5 without its native library, as the wheel comes) asks the shell about each of
# these files.  Its default manager of checkpoint files goes through FileContext, which runs `readlink` to learn whether
# a path is a symbolic link, 16 times a batch, and `chmod` for what it creates: 20 processes for each batch, which take
# some hundred milliseconds on a small machine, more than the batch.  The other manager that Spark has, by FileSystem,
# runs only the `chmod`s.  The class has another package than in earlier
# versions.
#
# Why it matters here: a query of its own, in micro-batches, has this time as its floor.  Sessions of the mesh set the
# other manager and switch checksum files off; queries of users with the Spark source get the two lines in its page.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.3.0 2>/dev/null
# Programs that a Java process finds by their names: these count, and then run the real ones.
mkdir "$work/bin"
for name in chmod readlink; do
    printf '#!/bin/sh\necho %s >> "%s/calls"\nexec %s "$@"\n' "$name" "$work" "$(command -v "$name")" > "$work/bin/$name"
    chmod +x "$work/bin/$name"
done
PATH="$work/bin:$PATH" "$work/venv/bin/python" - "$work" 2> "$work/log" <<'PY'
import collections
import sys
import time

import pyspark
from pyspark.sql import SparkSession

BATCHES = 10
work = sys.argv[1]
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
print("PySpark", pyspark.__version__, "Hadoop", spark._jvm.org.apache.hadoop.util.VersionInfo.getVersion())


def forks(name):
    """Programs that ten micro-batches run, by name, and the median time of a batch in milliseconds."""
    events = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    query = events.writeStream.format("noop").option("checkpointLocation", f"{work}/{name}").start()

    def done():
        assert query.exception() is None, query.exception()
        return query.lastProgress["batchId"] if query.lastProgress else -1

    while done() < 3:
        time.sleep(0.05)
    open(f"{work}/calls", "w").close()
    first = done()
    while done() < first + BATCHES:
        time.sleep(0.05)
    with open(f"{work}/calls") as file:
        calls = collections.Counter(line.strip() for line in file)
    times = sorted(one["durationMs"]["triggerExecution"] for one in query.recentProgress[-BATCHES:])
    query.stop()
    return calls, times[BATCHES // 2]


default, default_ms = forks("default")
print(f"default: {dict(default)} in {BATCHES} batches, {default_ms} ms each")
package = "org.apache.spark.sql.execution.streaming.checkpointing"
spark.conf.set("spark.sql.streaming.checkpointFileManagerClass", f"{package}.FileSystemBasedCheckpointFileManager")
spark.conf.set("spark.sql.streaming.checkpoint.fileChecksum.enabled", "false")
other, other_ms = forks("other")
print(f"by FileSystem: {dict(other)} in {BATCHES} batches, {other_ms} ms each")
assert default["readlink"] >= 10 * BATCHES, default
assert not other["readlink"], other
PY
