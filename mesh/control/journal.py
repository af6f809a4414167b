"""Journal entries: each decision with its actor and cause; together they are an app's story.

Every process writes entries about its own actions to a JetStream stream of their own
(``mesh.jetstream.journal``), so the story outlives the process.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from mesh.control.actions import (
    Discard,
    Dismiss,
    DropForm,
    ForgetNode,
    Place,
    RemoveApp,
    Retire,
    Shape,
    StandBy,
    Withdraw,
)
from mesh.model.cluster import InstanceState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mesh.control.actions import Action
    from mesh.model.cluster import Assignment, InstanceStatus

#: A line names so many streams, and counts the others.
NAMED_MAX: Final = 4


@dataclass(frozen=True, slots=True)
class Entry:
    """One event of the cluster's history."""

    #: The act, in a few words that follow the actor: "placed A-g-1 on w2 in epoch 41".
    text: str
    #: The reason; empty if the text is sufficient.
    cause: str = ""
    #: The actor: "manager m1", "worker w2", or a user's name.
    by: str = ""
    #: Wall clock of the process that wrote the entry, milliseconds since 1970.
    at_ms: int = 0
    #: Empty if it concerns the cluster.
    app: str = ""
    instance: str = ""
    #: The worker that it is about.
    worker: str = ""
    epoch: int | None = None
    #: Revision of the lease that a leader decided under, 0 if there was no leader.
    lease_revision: int = 0


def of_action(action: Action, lease_revision: int) -> Entry:
    """Entry of a leader that has performed ``action``."""
    match action:
        case Place(made, cause):
            return _of_assignment(made, f"placed {made.instance} on", "", cause, lease_revision)
        case Withdraw(made, cause):
            target = f", to go to {made.next_worker}" if made.next_worker else ""
            text = f"withdrew {made.instance} from"
            return _of_assignment(made, text, target, cause, lease_revision)
        case Shape(form, cause):
            count = form.spec.parallel
            text = f"gave group {form.group} {count} instance{'s' if count > 1 else ''}"
            return Entry(text, cause, app=form.app, lease_revision=lease_revision)
        case DropForm(app_name, group, cause):
            text = f"deleted group {group}"
            return Entry(text, cause, app=app_name, lease_revision=lease_revision)
        case Discard(instance, cause):
            app = instance.rsplit("-", 2)[0]
            text = f"deleted the assignment of {instance}"
            return Entry(text, cause, app=app, instance=instance, lease_revision=lease_revision)
        case StandBy(standby, cause):
            return Entry(
                f"has {standby.worker} stand by for {standby.instance}",
                cause,
                app=standby.app,
                instance=standby.instance,
                worker=standby.worker,
                lease_revision=lease_revision,
            )
        case Dismiss(instance, cause):
            app = instance.rsplit("-", 2)[0]
            text = f"has nobody stand by for {instance}"
            return Entry(text, cause, app=app, instance=instance, lease_revision=lease_revision)
        case ForgetNode(role, node, cause):
            text = f"deleted the record of {role} {node}"
            worker = node if role == "worker" else ""
            return Entry(text, cause, worker=worker, lease_revision=lease_revision)
        case RemoveApp(app_record, _, cause):
            name = app_record.spec.name
            text = f"removed app {name}, its channels and its state"
            return Entry(text, cause, app=name, lease_revision=lease_revision)
        case Retire(app_record, _, cause):
            name, retired = app_record.spec.name, app_record.retired
            streams = [channel.stream.name for channel in retired.channels] if retired else []
            groups = list(retired.groups) if retired else []
            what = [f"stream {name}" for name in streams] + [f"group {name}" for name in groups]
            text = f"removed what was left of {', '.join(what)}"
            return Entry(text, cause, app=name, lease_revision=lease_revision)


def _of_assignment(
    made: Assignment, before: str, behind: str, cause: str, lease_revision: int
) -> Entry:
    return Entry(
        f"{before} {made.worker} in epoch {made.epoch}{behind}",
        cause,
        app=made.app,
        instance=made.instance,
        worker=made.worker,
        epoch=made.epoch,
        lease_revision=lease_revision,
    )


def of_failure(action: Action, lease_revision: int, why: str) -> Entry:
    """Entry of a leader about an ``action`` that was not performed."""
    entry = of_action(action, lease_revision)
    return replace(entry, text=f"was refused: it would have {entry.text}", cause=why)


def of_report(status: InstanceStatus) -> Entry:
    """Entry of a worker about an instance's new state."""
    verbs = {
        InstanceState.STARTING: "starts",
        InstanceState.RUNNING: "runs",
        InstanceState.RETRYING: "will start again",
        InstanceState.STOPPED: "has stopped",
    }
    settled = ", with its state shared" if status.settled else ""
    return Entry(
        f"{verbs[status.state]} {status.instance} in epoch {status.epoch}{settled}",
        status.error or "",
        app=status.app,
        instance=status.instance,
        worker=status.worker,
        epoch=status.epoch,
    )


def of_elections(app: str, leaders: Mapping[str, str]) -> Entry:
    """Entry of a manager about leaders that NATS has elected.

    Args:
        app: the owner of the streams; empty for streams that no app owns.
        leaders: the current leading server, by JetStream stream.
    """
    led: dict[str, list[str]] = {}
    for stream, leader in sorted(leaders.items()):
        led.setdefault(leader, []).append(stream)
    told = "; ".join(f"{leader} of {_some(streams)}" for leader, streams in sorted(led.items()))
    return Entry(f"was told by NATS of new leaders: {told}", app=app)


def of_lost_quorum(app: str, stream: str) -> Entry:
    """Entry of a manager about a stream without a quorum, which can't be written to."""
    return Entry(f"was told by NATS that {stream} has lost its quorum", app=app)


def _some(streams: Sequence[str]) -> str:
    shown = ", ".join(streams[:NAMED_MAX])
    return f"{shown} and {len(streams) - NAMED_MAX} more" if streams[NAMED_MAX:] else shown


def story(entries: Iterable[Entry], app: str) -> list[Entry]:
    """The entries of ``app`` in order, with those of the cluster that concern it.

    The order is by the clock of each entry's process, because entries of a process that was cut off
    arrive late.  Of the cluster's entries, those count that concern a worker with instances of the
    app, or a leader, from the app's first entry on.
    """
    ordered = sorted(entries, key=lambda entry: entry.at_ms)
    own = [entry for entry in ordered if entry.app == app]
    if not own:
        return []
    workers = {entry.worker for entry in own if entry.worker}
    return [
        entry
        for entry in ordered
        if entry.app == app
        or (
            not entry.app
            and entry.at_ms >= own[0].at_ms
            and (not entry.worker or entry.worker in workers)
        )
    ]
