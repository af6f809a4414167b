"""The plain program in C (``peer.c``), compiled where the machine has a compiler."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.connector.wire import Wire
from mesh.files import scratch

if TYPE_CHECKING:
    from bench.flow.plain import Job

SOURCE: Final = Path(__file__).with_name("peer.c")
_TIMEOUT_S: Final = 900.0


def run(job: Job) -> float | None:
    """Run a job in a process; the seconds that it took, None without a compiler or with TLS."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or job.access.ca:
        return None
    with scratch.directory("peer") as directory:
        program = directory / "peer"
        subprocess.run([compiler, "-O2", "-o", str(program), str(SOURCE)], check=True)
        name = f"c-peer-{os.getpid()}-{job.kind}"
        config = {"name": name, "deliver_policy": "all", "ack_policy": "none",
                  "mem_storage": True, "num_replicas": 1}  # fmt: skip
        with Wire(job.access) as wire:
            subject = f"CONSUMER.CREATE.{job.stream}.{name}"
            wire.call(subject, stream_name=job.stream, config=config)
            words = [job.access.port, job.stream, name, job.count, job.subject, job.kind]
            done = subprocess.run(
                [str(program), *map(str, words)],
                stdout=subprocess.PIPE, check=True, timeout=_TIMEOUT_S,
            )  # fmt: skip
    return float(json.loads(done.stdout))
