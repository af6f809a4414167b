"""A session without instances that reports their states, in the protocol of the real one.

``FAKE_STOP_S`` is the time to stop an instance, seconds.  ``FAKE_EPOCH`` is the epoch of the
markers: an instance of a lower one is refused.  ``FAKE_READY`` is a named pipe: the session is
ready when it is opened for writing.
"""

from __future__ import annotations

import os
import sys
import time

from mesh.model.cluster import Assignment, InstanceState, InstanceStatus
from mesh.worker.protocol import (
    Ready,
    Report,
    StartInstance,
    StopInstance,
    from_line,
    read_config,
    to_line,
)


def status(assignment: Assignment, state: InstanceState, newer_epoch: int = 0) -> Report:
    return Report(
        InstanceStatus(
            assignment.instance, assignment.app, assignment.worker, assignment.epoch, state, 0,
            newer_epoch=newer_epoch,
        )
    )  # fmt: skip


def main() -> None:
    running: dict[str, Assignment] = {}

    def say(reply: Ready | Report) -> None:
        sys.stdout.buffer.write(to_line(reply))
        sys.stdout.buffer.flush()

    read_config()
    if "FAKE_READY" in os.environ:
        with open(os.environ["FAKE_READY"]) as pipe:
            pipe.read()
    say(Ready("none", 0.0))
    for line in sys.stdin.buffer:
        match from_line(line):
            case StartInstance(assignment, _):
                running[assignment.instance] = assignment
                say(status(assignment, InstanceState.STARTING))
                newer_epoch = int(os.environ.get("FAKE_EPOCH", "0"))
                if assignment.epoch < newer_epoch:
                    say(status(assignment, InstanceState.STOPPED, newer_epoch))
                    continue
                say(status(assignment, InstanceState.RUNNING))
            case StopInstance(instance) if instance in running:
                time.sleep(float(os.environ.get("FAKE_STOP_S", "0")))
                say(status(running.pop(instance), InstanceState.STOPPED))
            case _:
                pass


if __name__ == "__main__":
    main()
