"""Entry point of a worker's Spark process: ``python -m mesh.worker.session_process``.

Java takes longest to start.  So it starts first, and Python processes import meanwhile what
instances need: this one and the daemon of the tasks.
"""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mesh.clock import SystemClock
from mesh.files import scratch
from mesh.processes import java
from mesh.processes.imports import import_arrow, import_spark
from mesh.telemetry import logs
from mesh.worker import state_directory
from mesh.worker.protocol import read_config


def main() -> None:
    """Run the process: its configuration is the first line of standard input."""
    clock = SystemClock()
    started_s = clock.monotonic_s()
    # Its files hold events and credentials; the JVM and the Python processes inherit this.
    os.umask(0o077)
    import_arrow()
    import_spark()
    from mesh.spark import cluster
    from mesh.spark import session as spark_session

    config = read_config()
    settings = config.settings
    logs.configure(settings.log.level, settings.log.style)
    directory = state_directory.for_session(Path(config.directory))
    scratch.redirect(directory / "tmp")
    is_local = cluster.is_local(settings.spark.master)
    start_daemon = spark_session.daemon_ahead_of(directory) if is_local else None
    os.environ["JAVA_HOME"] = str(java.java_home())
    with ThreadPoolExecutor(1) as pool:
        spark = pool.submit(
            spark_session.start, settings.spark, f"mesh {config.worker}", directory / "spark"
        )
        from mesh.worker import session
        from mesh.worker.protocol import Replies

        if start_daemon is not None:
            start_daemon()
        asyncio.run(session.run(config, Replies(), directory, spark, started_s))


if __name__ == "__main__":
    main()
