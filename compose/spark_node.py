"""Start Spark's master or a worker of it, by the image's Java: ``master`` or ``worker``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pyspark

from mesh.processes import java

MASTER = "spark-master"
ARGUMENTS = {
    "master": ("master.Master", "--host", MASTER, "--port", "7077", "--webui-port", "8080"),
    "worker": (
        "worker.Worker", "--cores", "2", "--memory", "1200m", "--webui-port", "8081",
        "--work-dir", "/var/lib/mesh/work", f"spark://{MASTER}:7077",
    ),
}  # fmt: skip


def main(kind: str) -> None:
    """Become the process of Spark."""
    program = Path(pyspark.__file__).parent / "bin" / "spark-class"
    name, *arguments = ARGUMENTS[kind]
    more = {
        "JAVA_HOME": str(java.java_home()),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_LOCAL_DIRS": "/var/lib/mesh/local",
        "SPARK_NO_DAEMONIZE": "1",
    }
    conf = ("--properties-file", "/run/mesh/spark.conf")
    command = [str(program), f"org.apache.spark.deploy.{name}", *conf, *arguments]
    os.execve(program, command, os.environ | more)


if __name__ == "__main__":
    main(sys.argv[1])
