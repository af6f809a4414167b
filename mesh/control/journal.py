"""Journal entries: decisions and events with actor and cause, the story of an app.

Every process notes its actions.  The entries are in a dedicated JetStream stream
(``mesh.jetstream.journal``), so that the story remains when the processes are gone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from mesh.control.actions import (
    AssignStandby,
    Discard,
    DropForm,
    ForgetNode,
    PlaceInstance,
    RemoveApp,
    RemoveStandby,
    Retire,
    Withdraw,
    WriteGroupForm,
)
from mesh.model.cluster import InstanceState, Retired

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mesh.control.actions import Action
    from mesh.model.cluster import Assignment, InstanceStatus

#: A line names at most this many streams and counts the others.
NAMED_MAX: Final = 4


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One action or event."""

    #: Action in a few words that follow the actor: "placed A-g-1 on w2 in epoch 41".
    text: str
    #: Reason; empty where the text is enough.
    cause: str = ""
    #: Actor: "manager m1", "worker w2", or a user's name.
    by: str = ""
    #: Wall clock of the noting process, milliseconds since 1970.
    at_ms: int = 0
    #: Empty for entries about the cluster.
    app: str = ""
    instance: str = ""
    #: The worker that the entry concerns.
    worker: str = ""
    epoch: int | None = None
    #: Revision of the deciding leader's lease, 0 for other processes.
    lease_revision: int = 0


def of_action(action: Action, lease_revision: int) -> JournalEntry:
    """Entry of a leader that has performed ``action``."""
    return replace(_of_action(action), lease_revision=lease_revision)


def _of_action(action: Action) -> JournalEntry:
    match action:
        case PlaceInstance(assignment, cause):
            return _of_assignment(assignment, f"placed {assignment.instance} on", "", cause)
        case Withdraw(assignment, cause):
            target = f", to go to {assignment.next_worker}" if assignment.next_worker else ""
            return _of_assignment(assignment, f"withdrew {assignment.instance} from", target, cause)
        case WriteGroupForm(form, cause):
            count = form.spec.parallel
            text = f"gave group {form.group} {count} instance{'s' if count > 1 else ''}"
            return JournalEntry(text, cause, app=form.app)
        case DropForm(app, group, cause):
            return JournalEntry(f"deleted group {group}", cause, app=app)
        case Discard(instance, cause, app):
            text = f"deleted the assignment of {instance}"
            return JournalEntry(text, cause, app=app, instance=instance)
        case AssignStandby(standby, cause):
            name, worker = standby.instance, standby.worker
            text = f"made {worker} the standby of {name}"
            return JournalEntry(text, cause, app=standby.app, instance=name, worker=worker)
        case RemoveStandby(instance, cause, app):
            text = f"removed the standby of {instance}"
            return JournalEntry(text, cause, app=app, instance=instance)
        case ForgetNode(role, node, cause):
            worker = node if role == "worker" else ""
            return JournalEntry(f"deleted the record of {role} {node}", cause, worker=worker)
        case RemoveApp(record, _, cause):
            name = record.spec.name
            text = f"removed app {name}, its channels and its state"
            return JournalEntry(text, cause, app=name)
        case Retire(record, _, cause):
            retired = record.retired or Retired()
            what = [f"stream {channel.stream.name}" for channel in retired.channels]
            what += [f"group {name}" for name in retired.groups]
            text = f"removed the rest of {', '.join(what)}"
            return JournalEntry(text, cause, app=record.spec.name)


def _of_assignment(assignment: Assignment, before: str, after: str, cause: str) -> JournalEntry:
    return JournalEntry(
        f"{before} {assignment.worker} in epoch {assignment.epoch}{after}",
        cause,
        app=assignment.app,
        instance=assignment.instance,
        worker=assignment.worker,
        epoch=assignment.epoch,
    )


def of_refusal(action: Action, lease_revision: int, why: str) -> JournalEntry:
    """Entry of a leader whose ``action`` was not performed."""
    entry = of_action(action, lease_revision)
    return replace(entry, text=f"was refused: it would have {entry.text}", cause=why)


def of_failure(action: Action, lease_revision: int, error: str) -> JournalEntry:
    """Entry of a leader whose ``action`` failed, and is tried again later."""
    entry = of_action(action, lease_revision)
    return replace(entry, text=f"failed: it would have {entry.text}", cause=error)


def of_report(status: InstanceStatus) -> JournalEntry:
    """Entry of a worker: the state of an instance has changed."""
    verbs = {
        InstanceState.STARTING: "starts",
        InstanceState.RUNNING: "runs",
        InstanceState.RETRYING: "will start again",
        InstanceState.STOPPED: "has stopped",
    }
    settled = ", with its state shared" if status.settled else ""
    return JournalEntry(
        f"{verbs[status.state]} {status.instance} in epoch {status.epoch}{settled}",
        status.error or "",
        app=status.app,
        instance=status.instance,
        worker=status.worker,
        epoch=status.epoch,
    )


def of_elections(app: str, leaders: Mapping[str, str]) -> JournalEntry:
    """Entry of a manager: NATS has elected leaders of JetStream streams.

    Args:
        app: owner of the streams; empty for streams of the cluster.
        leaders: the server that leads now, by JetStream stream.
    """
    led: dict[str, list[str]] = {}
    for stream, leader in sorted(leaders.items()):
        led.setdefault(leader, []).append(stream)
    shown = "; ".join(f"{leader} of {_some(streams)}" for leader, streams in sorted(led.items()))
    return JournalEntry(f"NATS reported new leaders: {shown}", app=app)


def of_lost_quorum(app: str, stream: str) -> JournalEntry:
    """Entry of a manager: most servers of a stream are away, so it can't be written to."""
    return JournalEntry(f"NATS reported that {stream} has lost its quorum", app=app)


def of_different_copies(app: str, stream: str, first: int, last: int) -> JournalEntry:
    """Entry of a manager: servers hold different messages under the same sequences."""
    return JournalEntry(
        f"found that NATS's copies of {stream} differ in sequences {first} to {last}", app=app
    )


def of_lost_writes(bucket: str) -> JournalEntry:
    """Entry of a manager: revisions of a bucket have gone back."""
    return JournalEntry(f"found that NATS has lost writes of bucket {bucket}")


def _some(streams: Sequence[str]) -> str:
    shown = ", ".join(streams[:NAMED_MAX])
    return f"{shown} and {len(streams) - NAMED_MAX} more" if streams[NAMED_MAX:] else shown


def story(entries: Iterable[JournalEntry], app: str) -> list[JournalEntry]:
    """Story of ``app`` in order: its own entries, and the cluster's entries that concern it.

    Order is by the clocks of the noting processes, because entries of a process that was cut off
    arrive late.  Of the cluster's entries, those count that concern a worker of the app, or the
    leader, from the app's first entry on.
    """
    ordered = sorted(entries, key=lambda entry: entry.at_ms)
    app_entries = [entry for entry in ordered if entry.app == app]
    if not app_entries:
        return []
    workers = {entry.worker for entry in app_entries if entry.worker}
    return [
        entry
        for entry in ordered
        if entry.app == app
        or (
            not entry.app
            and entry.at_ms >= app_entries[0].at_ms
            and (not entry.worker or entry.worker in workers)
        )
    ]
