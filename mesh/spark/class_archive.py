"""Archive of Spark's loaded classes, which halves the start time of a session.

Half of a cold start is the JVM reading, checking and linking some fifteen thousand classes.  A JVM
can write them to an archive when it exits, and later ones map it (JEP 350).  ``python -m
mesh.worker.prepare`` creates the archive, once per installation.  Without an archive, or with one
of another Java, everything works but starts more slowly.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from typing import Final

import pyspark

from mesh.processes import java
from pyspark_nats import tuning

#: Environment variable: the session writes an archive instead of using one.
WRITE_VARIABLE: Final = "MESH_CLASS_ARCHIVE_WRITE"


def directory() -> Path:
    """Directory of files that are created once per installation: within the virtual environment."""
    return Path(sys.prefix) / "share" / "mesh"


def spark_home() -> Path:
    """Path of the ``SPARK_HOME`` of this installation, which names its version and its jars."""
    jars = hashlib.sha256(" ".join(tuning.UNUSED_JARS).encode()).hexdigest()[:6]
    return directory() / f"spark-{pyspark.__version__}-{jars}"


def default_path() -> Path:
    """Path of the archive for this installation and this Java."""
    # An archive is for one class path.
    identity = f"{spark_home().name} {java.java_home()}"
    key = hashlib.sha256(identity.encode()).hexdigest()[:12]
    return directory() / f"spark-{key}.jsa"


def unfinished(path: Path) -> Path:
    """Path of the archive while it is incomplete."""
    return path.with_suffix(".new")


def is_written() -> bool:
    """Whether the session's JVM writes an archive when it exits."""
    return bool(os.environ.get(WRITE_VARIABLE))


def java_option(path: Path) -> str:
    """The JVM option to write the archive or to map it; empty without an archive.

    Spark splits it at blanks outside of double quotes, as a shell does.
    """
    if is_written():
        return f'"-XX:ArchiveClassesAtExit={unfinished(path)}" -Xlog:cds=off -Xlog:cds+dynamic=off'
    # A file that doesn't fit the JVM is ignored; the log reports that at another level.
    # At the address it was written for, pages need no relocation: those not used stay on disk, and
    # the JVMs of several workers share the others.
    mapped = "-XX:+UnlockDiagnosticVMOptions -XX:ArchiveRelocationMode=0"
    return (
        f'"-XX:SharedArchiveFile={path}" {mapped} -Xlog:cds=off' if os.access(path, os.R_OK) else ""
    )
