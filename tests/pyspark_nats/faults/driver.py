"""A user's program: a streaming query from JetStream streams to a JetStream stream.

Started by the tests as a process of its own, to be killed: ``python driver.py setup.json``.  It
ends with status 0 when the rows of the time of its start are written, and with the error otherwise.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

#: A short micro-batch, and as little of Java's warming up as possible.
CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "640m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
}

#: Every row with a number that is no multiple of five, with a "!" appended.
FILTER = "cast(split(cast(data AS string), ' ')[0] AS int) % 5 != 0"
ROW = ("concat('out.', stream) AS subject", "concat(cast(data AS string), '!') AS data")
#: Columns that give the sink the origin of each row.
PLACE = ("stream AS _stream", "sequence AS _sequence")


def main(setup: dict[str, Any]) -> None:
    """Run the query of ``setup`` (``tests.pyspark_nats.faults.query.Setup``) to its end."""
    builder = SparkSession.builder.master(setup["master"]).appName("faults")
    scratch = setup["scratch"]
    conf = {
        **CONF,
        "spark.local.dir": scratch,
        "spark.sql.warehouse.dir": scratch,
        "spark.driver.extraJavaOptions": (
            f"-Dderby.system.home={scratch} -XX:+UseSerialGC -XX:TieredStopAtLevel=1 "
            f"{setup['java']}"
        ),
    }
    for name, value in conf.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    rows = spark.readStream.format("nats").options(**setup["source"]).load()
    columns = (*ROW, *PLACE) if setup["carries_place"] else ROW
    writer = (
        rows.where(FILTER)
        .selectExpr(*columns)
        .writeStream.format("nats")
        .options(**setup["sink"])
        .option("checkpointLocation", setup["checkpoint"])
    )
    if "asyncProgressTrackingEnabled" in setup["sink"]:
        # Spark doesn't offer it for a query that ends on its own.
        writer.start().processAllAvailable()
    else:
        writer.trigger(availableNow=True).start().awaitTermination()
    # The program is through; taking Spark down in order would add two seconds to each test.
    os._exit(0)


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
