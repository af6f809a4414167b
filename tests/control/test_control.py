"""Decisions of the control plane, as scripts of events: tests/cases/control."""

from __future__ import annotations

import pytest

from mesh.control import election, reconcile, standby, worker_reconcile
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
from mesh.control.cluster_state import cluster_state_of
from mesh.control.lifecycle import app_status
from mesh.control.placement import place
from mesh.control.retries import Retries
from mesh.control.snapshot import Revisioned
from mesh.model.cluster import LeaseRecord
from tests.support import case_files, paths
from tests.support.cluster_lines import (
    SETTINGS,
    assignment,
    candidate,
    hosts,
    listed,
    need,
    snapshot,
    stands_by,
    words,
)

CASES = paths.CASES / "control"


def run_election(line: str) -> str:
    given_words = words(line)
    lease: Revisioned[LeaseRecord | None] | None = None
    if "lease" in given_words:
        holder, at = given_words["lease"].split("@")
        revision, _, term = at.partition("/")
        record = None if holder == "given-up" else LeaseRecord(holder[0], int(term), holder[1:])
        lease = Revisioned(record, int(revision), float(given_words["seen"]))
    return repr(
        election.decide(lease, candidate(given_words["me"]), float(given_words["now"]), 2.0)
    )


def run_placement(line: str) -> str:
    given_words = words(line)
    found = place(
        [need(text) for text in given_words["needs"].split(",")],
        dict(listed(given_words.get("current", ""))),
        hosts(given_words.get("hosts", "")),
        dict(listed(given_words.get("standbys", ""))),
    )
    shown = {name: f"{name} {worker}" for name, worker in found.where.items()}
    for name, why in found.moved.items():
        shown[name] += f", moved: {why}"
    for name, waiting in found.waiting.items():
        shown[name] = f"{name} waits: {waiting.reason}.  {waiting.cure}"
    for name, waiting in found.stuck.items():
        shown[name] += f", stuck: {waiting.reason}.  {waiting.cure}"
    return "\n".join(shown[name] for name in sorted(shown))


def run_reconcile(line: str) -> str:
    shown = []
    for action in reconcile.decide(snapshot(line), SETTINGS):
        match action:
            case PlaceInstance(made, cause):
                where = f"{made.instance} on {made.worker} epoch {made.epoch}"
                where += f" up to {dict(made.until)}" if made.until is not None else ""
                shown.append(f"place {where} fenced by {made.lease_revision}: {cause}")
            case Withdraw(made, cause):
                target = f" for {made.next_worker}" if made.next_worker else ""
                where = f"{made.instance} from {made.worker}{target} epoch {made.epoch}"
                where += f" up to {dict(made.until)}" if made.until is not None else ""
                shown.append(f"withdraw {where}: {cause}")
            case WriteGroupForm(made_form, cause):
                begins = f" behind {dict(made_form.start)}" if made_form.start else ""
                which = f"{made_form.app}-{made_form.group}*{made_form.spec.parallel}{begins}"
                shown.append(f"shape {which} as {made_form.number} from {made_form.epoch}: {cause}")
            case DropForm(name, dropped, cause):
                shown.append(f"drop form {name}-{dropped}: {cause}")
            case Discard(instance, cause, _):
                shown.append(f"discard {instance}: {cause}")
            case AssignStandby(told, cause):
                shown.append(f"standby {told.worker} for {told.instance}: {cause}")
            case RemoveStandby(instance, cause, _):
                shown.append(f"dismiss {instance}: {cause}")
            case ForgetNode(role, name, cause):
                shown.append(f"forget {role} {name}: {cause}")
            case RemoveApp(record, revision, cause):
                shown.append(f"remove {record.spec.name} at {revision}: {cause}")
            case Retire(record, revision, cause):
                assert record.retired is not None
                what = ", ".join(record.retired.groups)
                shown.append(f"retire {what} of {record.spec.name} at {revision}: {cause}")
    return "\n".join(shown) or "nothing"


def run_duties(line: str) -> str:
    given_words = words(line)
    running = {
        instance: assignment(instance, where).value
        for instance, where in listed(given_words.get("running", ""))
    }
    stopping = set(filter(None, given_words.get("stopping", "").split(",")))
    may_start = given_words.get("start", "yes") == "yes"
    shown = []
    me = given_words.get("me", "w1-1")
    for duty in worker_reconcile.decide(
        snapshot(line), "w1", me, running, stopping, may_start=may_start, at_ms=0
    ):
        match duty:
            case worker_reconcile.Start(made, _):
                shown.append(f"start {made.instance} epoch {made.epoch}")
            case worker_reconcile.Stop(made, settle):
                how = "" if settle else " at once"
                shown.append(f"stop {made.instance} epoch {made.epoch}{how}")
            case worker_reconcile.ReportStatus(status):
                settled = f", settled at {dict(status.position)}" if status.settled else ""
                told = f"tell {status.instance} epoch {status.epoch} {status.state}{settled}"
                shown.append(told)
    holding = {i: stands_by(i, *rest).value for i, *rest in listed(given_words.get("holding", ""))}
    for one in standby.duties(snapshot(line), "w1", me, holding, may_start=may_start):
        match one:
            case standby.Hold(record, _):
                shown.append(f"hold {record.instance}")
            case standby.Release(instance):
                shown.append(f"release {instance}")
    return "\n".join(shown) or "nothing"


def run_status(line: str) -> str:
    view = snapshot(line)
    status = app_status(cluster_state_of(view, SETTINGS), view.apps[0].value)
    first = f"{status.state}: {status.reason}" if status.reason else status.state.value
    first += f".  {status.cure}" if status.cure else ""
    instances = [
        f"  {i.instance} {i.worker or 'nowhere'} {i.state}"
        + (f", {i.reason}" if i.reason else "")
        + (f"; {i.standby} holds {i.standby_snapshots}, {i.standby_bytes} B" if i.standby else "")
        + (f"; no standby: {i.standby_reason}" if i.standby_reason else "")
        for i in status.instances
    ]
    return "\n".join([first, *instances])


def run_retries(line: str) -> str:
    """``fails@2``: fails at 2 s, for another reason than ``waited``; ``runs@3``."""
    options, _, events = line.partition(" | ")
    given_words = words(options)
    found = Retries(float(given_words["first"]), float(given_words["most"]))
    shown = []
    for event in events.split():
        what, _, at = event.partition("@")
        if what == "runs":
            found = found.running(float(at))
        else:
            found = found.failed(float(at), has_waited=what == "waited")
            shown.append(f"{event} rests {found.rest_s:g} s")
    return "\n".join(shown)


@pytest.mark.parametrize(
    ("name", "run"),
    [
        ("election", run_election),
        ("placement", run_placement),
        ("reconcile", run_reconcile),
        ("moves", run_reconcile),
        ("standbys", run_reconcile),
        ("forms", run_reconcile),
        ("duties", run_duties),
        ("status", run_status),
        ("retries", run_retries),
    ],
)
def test_scripts(name: str, run: object, rewrite: bool) -> None:
    assert callable(run)
    case_files.check(CASES / f"{name}.txt", run, rewrite=rewrite)
