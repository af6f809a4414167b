"""The actions of a decision, each with its cause.  ``mesh.jetstream.removal`` performs them."""

from __future__ import annotations

from dataclasses import dataclass

from mesh.model import names
from mesh.model.cluster import AppRecord, Assignment, GroupForm, Standby


@dataclass(frozen=True, slots=True)
class PlaceInstance:
    """Write an assignment; it replaces an older one of the same instance."""

    assignment: Assignment
    cause: str


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Write an assignment that makes the worker stop the instance and report the stop."""

    assignment: Assignment
    cause: str


@dataclass(frozen=True, slots=True)
class WriteGroupForm:
    """Write a group's revision; it replaces an older one."""

    form: GroupForm
    cause: str


@dataclass(frozen=True, slots=True)
class Discard:
    """Delete an assignment that is neither desired nor run by a worker any more."""

    instance: str
    cause: str
    app: str


@dataclass(frozen=True, slots=True)
class AssignStandby:
    """Write the record of an instance's standby; it replaces an older one."""

    standby: Standby
    cause: str


@dataclass(frozen=True, slots=True)
class RemoveStandby:
    """Delete the record of an instance's standby."""

    instance: str
    cause: str
    app: str


@dataclass(frozen=True, slots=True)
class DropForm:
    """Delete the revision of a group that is not desired any more and has no assignments."""

    app: str
    group: str
    cause: str


@dataclass(frozen=True, slots=True)
class ForgetNode:
    """Delete the record of a node that is gone."""

    role: str
    node: str
    cause: str


@dataclass(frozen=True, slots=True)
class RemoveApp:
    """Delete an app's channels, snapshots and reports, and at last its desired state."""

    app: AppRecord
    #: Of the desired state: it must not have changed.
    revision: int
    cause: str


@dataclass(frozen=True, slots=True)
class Retire:
    """Delete channels and snapshots that an app no longer has; update its desired state."""

    app: AppRecord
    #: Of the desired state: it must not have changed.
    revision: int
    cause: str


#: Actions of one or two writes.
RecordAction = (
    PlaceInstance
    | Withdraw
    | WriteGroupForm
    | Discard
    | DropForm
    | AssignStandby
    | RemoveStandby
    | ForgetNode
)
#: Actions that delete streams and stored states; they may take minutes.
Removal = RemoveApp | Retire
Action = RecordAction | Removal


def target_of(action: Action) -> str:
    """The kind of an action and the key of its record; the same for each attempt."""
    match action:
        case PlaceInstance(assignment, _) | Withdraw(assignment, _):
            key = names.assignment_key(assignment.instance)
        case Discard(instance, _, _):
            key = names.assignment_key(instance)
        case WriteGroupForm(form, _):
            key = names.form_key(form.app, form.group)
        case DropForm(app, group, _):
            key = names.form_key(app, group)
        case AssignStandby(standby, _):
            key = names.standby_key(standby.instance)
        case RemoveStandby(instance, _, _):
            key = names.standby_key(instance)
        case ForgetNode(role, node, _):
            key = names.node_key(role, node)
        case RemoveApp(record, _, _) | Retire(record, _, _):
            key = names.app_key(record.spec.name)
    return f"{type(action).__name__} {key}"
