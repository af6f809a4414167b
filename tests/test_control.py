"""Decisions of the control plane: scripts for what happens when, properties for what never does."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.control import duties, election, membership, reconcile, standby
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
from mesh.control.hosts import hosts as hosts_of
from mesh.control.journal import Entry, story
from mesh.control.lifecycle import AppState, app_status
from mesh.control.membership import Presence, presence
from mesh.control.placement import Admits, Host, Need, Placement, place
from mesh.control.snapshot import ClusterSnapshot, Seen
from mesh.control.survey import survey
from mesh.model import names
from mesh.model.app import AppSpec, Channel, GroupInput, GroupKind, GroupSpec, Strategy
from mesh.model.cluster import (
    Admission,
    AppRecord,
    Assignment,
    GroupForm,
    InstanceState,
    InstanceStatus,
    LeaseRecord,
    NodeOrder,
    NodeRecord,
    Retired,
    Role,
    Standby,
    StandbyStatus,
)
from mesh.model.types import StreamSchema
from mesh.settings import ManagerSettings, Settings, WorkerSettings
from tests import case_files

CASES = Path(__file__).parent / "cases" / "control"
#: The terms that the times in the cases are written for.
SETTINGS = Settings(
    manager=ManagerSettings(lease_ttl_s=2.0), worker=WorkerSettings(ttl_s=2.0, margin_s=0.5)
)
TTL_S, MARGIN_S = SETTINGS.worker.ttl_s, SETTINGS.worker.margin_s


def words(line: str) -> dict[str, str]:
    """``now=1 apps=A:g*2`` as a mapping; what has no ``=`` is the command and is left out."""
    return dict(word.split("=", 1) for word in line.split() if "=" in word)


def listed(text: str) -> list[list[str]]:
    """``a:b,c:d`` as lists."""
    return [item.split(":") for item in text.split(",") if item]


def node(name: str, seen_at_s: float, *options: str) -> Seen[NodeRecord]:
    """A worker; options are ``starting``, ``leaving``, ``anew``, ``cap2``, ``+label`` and so on."""
    labels = tuple(o[1:] for o in options if o.startswith("+"))
    record = NodeRecord(
        id=name,
        role=Role.WORKER,
        incarnation=f"{name}-{2 if 'anew' in options else 1}",
        address="",
        beat=1,
        ready="starting" not in options and "stuck" not in options,
        starting_s=99.0 if "stuck" in options else 0.0,
        leaving="leaving" in options,
        labels=labels,
        capacity=next((int(o[3:]) for o in options if o.startswith("cap")), 0),
        takes_receivers="queries" not in options,
        takes_queries="receivers" not in options,
    )
    return Seen(record, 1, seen_at_s)


def app(name: str, *groups: str) -> Seen[AppRecord]:
    """``-A`` is being undeployed, ``^A`` restored; groups as ``group`` reads them.

    ``?g`` is one of an earlier text, ``??g`` one that is being removed.
    """
    deleting, held = name.startswith("-"), "put back" if name.startswith("^") else ""
    name = name.lstrip("-^")
    specs = tuple(group(name, text) for text in groups if not text.startswith("?"))
    gone = [text for text in groups if text.startswith("?")]
    removing = any(text.startswith("??") for text in gone)
    retired = Retired((), tuple(text.lstrip("?") for text in gone), removing) if gone else None
    spec = AppSpec(name, "", (), specs)
    record = AppRecord(spec, f"{name}-1", 0, deleting=deleting, held=held, retired=retired)
    return Seen(record, 9, 0.0)


def group(app: str, text: str) -> GroupSpec:
    """``g*2`` has two instances.

    Behind that, ``+label``; ``!`` for a receiver, ``%`` for one that is divided by key, ``&`` for
    one that takes a stream in turn, ``~`` for standbys; ``/2`` for what its text says.
    """
    first, *labels = text.split("+")
    first, _, says = first.partition("/")
    name, _, parallel = first.rstrip("!%&~").partition("*")
    inputs: tuple[GroupInput, ...] = ()
    schema = StreamSchema("S", ())
    if "%" in first:
        channel = Channel(app, schema, key=("k",), partitions=8)
        inputs = (GroupInput(channel, Strategy.BY_KEY),)
    elif "&" in first:
        strategy = Strategy.ROUND_ROBIN if int(parallel or 1) > 1 else Strategy.ALL
        inputs = (GroupInput(Channel(app, schema), strategy),)
    return GroupSpec(
        app,
        name,
        int(parallel or 1),
        says,
        inputs,
        (),
        stateful="%" in first,
        kind=GroupKind.RECEIVER if "!" in first else GroupKind.QUERIES,
        node=tuple(labels),
        standby=int("~" in first),
    )


def form(app: str, text: str) -> Seen[GroupForm]:
    """``g*2@3`` is the third form after the first; ``g*2@3^7`` begins behind sequence 7."""
    spec, _, numbers = text.partition("@")
    number, _, start = numbers.partition("^")
    made = group(app, spec)
    begins = {"S": int(start)} if start else {}
    return Seen(GroupForm(app, made.name, f"{app}-1", made, int(number or 0), begins), 5, 0.0)


def assignment(instance: str, where: str, seen_at_s: float = 0.0) -> Seen[Assignment]:
    """``w1@5`` is placed, ``w1@5>w2`` withdrawn and on its way to w2, ``w1@5>`` only withdrawn.

    ``w1@5#2`` is of form 2, and ``w1@5|7`` runs up to sequence 7.
    """
    name, group, index = instance.rsplit("-", 2)
    placed, stop, target = where.partition(">")
    placed, ends, until = placed.partition("|")
    placed, _, number = placed.partition("#")
    worker, epoch = placed.split("@")
    made = Assignment(
        instance,
        name,
        group,
        int(index),
        f"{name}-1",
        worker,
        int(epoch),
        int(epoch),
        worker_incarnation=f"{worker}-1",
        stop=bool(stop),
        next_worker=target or None,
        cause="told so" if stop else "",
        form=int(number or 0),
        until=({"S": int(until)} if until else {}) if ends else None,
    )
    return Seen(made, 2, seen_at_s)


def report(instance: str, worker: str, epoch: int, state: str) -> Seen[InstanceStatus]:
    name = instance.rsplit("-", 2)[0]
    """``settled7``: stopped, and settled at sequence 7."""
    error = "boom" if state == "retrying" else None
    state, settled, position = state.partition("settled")
    known = InstanceState(state or "stopped")
    made = InstanceStatus(instance, name, worker, epoch, known, 0, error, restarts=3 * bool(error))
    if settled:
        made = replace(made, settled=True, position={"S": int(position)})
    return Seen(made, 3, 0.0)


def stands_by(instance: str, worker: str, *options: str) -> Seen[Standby]:
    """``A-g-1:w2``; ``before`` for a process that has ended since."""
    name, group, index = instance.rsplit("-", 2)
    process = f"{worker}-{0 if 'before' in options else 1}"
    return Seen(
        Standby(instance, name, group, int(index), 1, f"{name}-1", worker, process, 5), 2, 0.0
    )


def holds(instance: str, worker: str, snapshots: str, size: str) -> Seen[StandbyStatus]:
    name = instance.rsplit("-", 2)[0]
    return Seen(StandbyStatus(instance, name, worker, 0, int(snapshots), int(size)), 2, 0.0)


def order(name: str, admission: str) -> Seen[NodeOrder]:
    return Seen(NodeOrder(name, Admission(admission), "ada"), 4, 0.0)


def snapshot(line: str) -> ClusterSnapshot:
    """The cluster that a script's lines tell of."""
    given_words = words(line)
    lease: Seen[LeaseRecord | None] | None = None
    if "lease" in given_words:
        holder, revision = given_words["lease"].split("@")
        lease = Seen(LeaseRecord(holder, 1), int(revision), 0.0)
    reports = []
    for instance, where, state in listed(given_words.get("reports", "")):
        worker, epoch = where.split("@")
        reports.append(report(instance, worker, int(epoch), state))
    apps = tuple(app(name, *groups) for name, *groups in listed(given_words.get("apps", "")))
    # Where nothing else is said, groups are what they should be.
    forms = {
        (spec.app, spec.name): Seen(
            GroupForm(spec.app, spec.name, record.value.incarnation, spec, 0), 5, 0.0
        )
        for record in apps
        for spec in record.value.spec.groups
    }
    for name, text in listed(given_words.get("forms", "")):
        said = form(name, text)
        forms[name, said.value.group] = said
        if text == "none":
            forms = {}
    return ClusterSnapshot(
        now_s=float(given_words["now"]),
        lease=lease,
        nodes=tuple(
            node(name, float(seen), *rest)
            for name, seen, *rest in listed(given_words.get("workers", ""))
        ),
        apps=apps,
        forms=tuple(forms.values()),
        assignments=tuple(
            assignment(instance, where, float(seen[0]) if seen else 0.0)
            for instance, where, *seen in listed(given_words.get("placed", ""))
        ),
        statuses=tuple(reports),
        orders=tuple(order(*one) for one in listed(given_words.get("orders", ""))),
        standbys=tuple(stands_by(*one) for one in listed(given_words.get("standbys", ""))),
        held=tuple(holds(*one) for one in listed(given_words.get("held", ""))),
    )


def hosts(text: str) -> list[Host]:
    """``w1:cap2:+gpu:closed,w2`` as hosts."""
    return [
        Host(
            name,
            next((Admits(o) for o in options if o in ("closed", "emptying")), Admits.OPEN),
            next((int(o[3:]) for o in options if o.startswith("cap")), 0),
            frozenset(o[1:] for o in options if o.startswith("+")),
            "queries" not in options,
            "receivers" not in options,
            "is shut" if {"closed", "emptying"} & set(options) else "",
        )
        for name, *options in listed(text)
    ]


def need(text: str) -> Need:
    """``a-g-1+gpu`` asks for a label, ``a-g-1!`` is a receiver's."""
    first, *labels = text.split("+")
    instance = first.removesuffix("!")
    name, group, _ = instance.rsplit("-", 2)
    return Need(instance, name, group, frozenset(labels), first.endswith("!"))


def run_election(line: str) -> str:
    given_words = words(line)
    lease: Seen[LeaseRecord | None] | None = None
    if "lease" in given_words:
        holder, at = given_words["lease"].split("@")
        revision, _, term = at.partition("/")
        record = None if holder == "given-up" else LeaseRecord(holder, int(term))
        lease = Seen(record, int(revision), float(given_words["seen"]))
    return repr(election.decide(lease, given_words["me"], float(given_words["now"]), 2.0))


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
            case Place(made, cause):
                where = f"{made.instance} on {made.worker} epoch {made.epoch}"
                where += f" up to {dict(made.until)}" if made.until is not None else ""
                shown.append(f"place {where} fenced by {made.lease_revision}: {cause}")
            case Withdraw(made, cause):
                target = f" for {made.next_worker}" if made.next_worker else ""
                where = f"{made.instance} from {made.worker}{target} epoch {made.epoch}"
                shown.append(f"withdraw {where}: {cause}")
            case Shape(made_form, cause):
                begins = f" behind {dict(made_form.start)}" if made_form.start else ""
                which = f"{made_form.app}-{made_form.group}*{made_form.spec.parallel}{begins}"
                shown.append(f"shape {which} as {made_form.number} from {made_form.epoch}: {cause}")
            case DropForm(name, dropped, cause):
                shown.append(f"drop form {name}-{dropped}: {cause}")
            case Discard(instance, cause):
                shown.append(f"discard {instance}: {cause}")
            case StandBy(told, cause):
                shown.append(f"standby {told.worker} for {told.instance}: {cause}")
            case Dismiss(instance, cause):
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
    for duty in duties.decide(
        snapshot(line), "w1", me, running, stopping, may_start=may_start, at_ms=0
    ):
        match duty:
            case duties.Start(made, _):
                shown.append(f"start {made.instance} epoch {made.epoch}")
            case duties.Stop(made, settle):
                how = "" if settle else " at once"
                shown.append(f"stop {made.instance} epoch {made.epoch}{how}")
            case duties.Tell(status):
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
    status = app_status(survey(view, SETTINGS), view.apps[0].value)
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
    ],
)
def test_scripts(name: str, run: object, rewrite: bool) -> None:
    assert callable(run)
    case_files.check(CASES / f"{name}.txt", run, rewrite=rewrite)


@given(now_s=st.floats(0, 1e6), ttl_s=st.floats(0.1, 1e3), holder=st.sampled_from("ab"))
def test_a_standing_lease_is_never_taken_from_its_holder(
    now_s: float, ttl_s: float, holder: str
) -> None:
    lease: Seen[LeaseRecord | None] = Seen(LeaseRecord(holder, 1), 3, 0.0)
    rival = "b" if holder == "a" else "a"
    takes_it = isinstance(election.decide(lease, rival, now_s, ttl_s), election.Acquire)
    assert takes_it == (now_s >= ttl_s)


@given(now_s=st.floats(0, 100), seen_at_s=st.floats(0, 100))
def test_who_holds_the_lease_is_never_told_to_stand_by_past_its_end(
    now_s: float, seen_at_s: float
) -> None:
    now_s = max(now_s, seen_at_s)
    lease: Seen[LeaseRecord | None] = Seen(LeaseRecord("me", 1), 3, seen_at_s)
    decision = election.decide(lease, "me", now_s, 2.0)
    if isinstance(decision, election.StandBy):
        assert now_s < decision.until_s < seen_at_s + 2.0


WORKERS = ("w1", "w2", "w3", "w4")
NEEDS = tuple(need(names.instance_name("A", group, i)) for group in "gh" for i in range(1, 5))
LABELS = ("gpu", "big")


@dataclass(frozen=True)
class Case:
    needs: tuple[Need, ...]
    current: dict[str, str]
    hosts: list[Host]

    def place(self) -> Placement:
        return place(self.needs, self.current, self.hosts)

    @property
    def open(self) -> list[str]:
        return [host.name for host in self.hosts if host.admits is Admits.OPEN]


@st.composite
def plain(draw: st.DrawFn) -> Case:
    """Workers that take anything and any number, some of them gone or closed."""
    needs = NEEDS[: draw(st.integers(0, len(NEEDS)))]
    current = {n.instance: draw(st.sampled_from(WORKERS)) for n in needs if draw(st.booleans())}
    found = [
        Host(name, draw(st.sampled_from((Admits.OPEN, Admits.OPEN, Admits.CLOSED))))
        for name in sorted(draw(st.sets(st.sampled_from(WORKERS))))
    ]
    return Case(needs, current, found)


@st.composite
def choosy(draw: st.DrawFn) -> Case:
    """Workers with labels and capacities, needs that ask for labels."""
    needs = tuple(
        replace(one, labels=draw(st.frozensets(st.sampled_from(LABELS), max_size=1)))
        for one in NEEDS[: draw(st.integers(0, len(NEEDS)))]
    )
    current = {n.instance: draw(st.sampled_from(WORKERS)) for n in needs if draw(st.booleans())}
    found = [
        Host(
            name,
            draw(st.sampled_from((Admits.OPEN, Admits.OPEN, Admits.CLOSED, Admits.EMPTYING))),
            capacity=draw(st.integers(0, 3)),
            labels=draw(st.frozensets(st.sampled_from(LABELS))),
        )
        for name in sorted(draw(st.sets(st.sampled_from(WORKERS))))
    ]
    return Case(needs, current, found)


def most_placeable(case: Case, kept: set[str]) -> int:
    """How many of the needs that aren't ``kept`` fit on open workers at most, by trying all ways.

    Seat by seat (Kuhn), which has nothing in common with how placement goes about it.
    """
    needs = [n for n in case.needs if n.instance not in kept]
    seats = [
        (host, number)
        for host in case.hosts
        if host.admits is Admits.OPEN
        for number in range(host.capacity or len(case.needs))
    ]
    taken: dict[int, Need] = {}

    def sit(one: Need, tried: set[int]) -> bool:
        for at, (host, _) in enumerate(seats):
            if at in tried or not one.fits(host):
                continue
            tried.add(at)
            if at not in taken or sit(taken[at], tried):
                taken[at] = one
                return True
        return False

    return sum(sit(one, set()) for one in needs)


@given(plain())
def test_everything_is_placed_and_nothing_on_who_is_gone(case: Case) -> None:
    where = case.place().where
    assert set(where.values()) <= {host.name for host in case.hosts}
    if case.open:
        assert set(where) == {n.instance for n in case.needs}


@given(plain())
def test_counts_of_open_workers_differ_by_one_at_most(case: Case) -> None:
    counts = Counter(case.place().where.values())
    loads = [counts[worker] for worker in case.open]
    assert not loads or max(loads) - min(loads) <= 1


@given(plain() | choosy())
def test_placing_again_moves_nothing(case: Case) -> None:
    where = case.place().where
    assert place(case.needs, where, case.hosts).where == where


@given(plain())
def test_only_what_exceeds_an_even_share_is_moved_off_a_worker_that_is_there(case: Case) -> None:
    where = case.place().where
    there = {host.name for host in case.hosts}
    moved = Counter(w for i, w in case.current.items() if w in there and where[i] != w)
    had, kept = Counter(case.current.values()), Counter(where.values())
    for worker, count in moved.items():
        assert worker in case.open
        assert count == had[worker] - kept[worker]


@given(choosy())
def test_labels_and_capacities_are_kept_to(case: Case) -> None:
    found = case.place()
    by_name = {host.name: host for host in case.hosts}
    for one in case.needs:
        if one.instance in found.where:
            assert one.fits(by_name[found.where[one.instance]])
    settled = Counter(w for i, w in found.where.items() if i not in found.stuck)
    for host in case.hosts:
        assert not host.capacity or settled[host.name] <= host.capacity


@given(choosy())
def test_what_fits_somewhere_is_placed_and_what_is_not_says_why(case: Case) -> None:
    found = case.place()
    closed = {h.name for h in case.hosts if h.admits is Admits.CLOSED}
    kept = {i for i, worker in found.where.items() if worker in closed}
    # Who stays on a closed worker takes no seat of an open one.
    placed = len(found.where) - len(kept) - len(found.stuck)
    assert placed == most_placeable(case, kept)
    assert {n.instance for n in case.needs} == found.where.keys() | found.waiting.keys()
    for waiting in (*found.waiting.values(), *found.stuck.values()):
        assert waiting.reason
        assert waiting.cure


@given(
    ages_s=st.lists(st.floats(0, 5), min_size=1, max_size=4),
    epochs=st.lists(st.integers(1, 100), min_size=0, max_size=4),
    stopped=st.sets(st.integers(1, 4)),
    revision=st.integers(1, 120),
)
def test_epochs_grow_and_nothing_is_placed_twice(
    ages_s: list[float], epochs: list[int], stopped: set[int], revision: int
) -> None:
    workers = tuple(node(f"w{i}", 10.0 - age_s) for i, age_s in enumerate(ages_s))
    placed = tuple(
        assignment(f"A-g-{i}", f"w{i % len(workers)}@{epoch}{'>' if i in stopped else ''}")
        for i, epoch in enumerate(epochs, 1)
    )
    view = ClusterSnapshot(
        now_s=10.0,
        lease=Seen(LeaseRecord("me", 1), revision, 9.5),
        nodes=workers,
        apps=(app("A", "g*4"),),
        assignments=placed,
    )
    before = {a.value.instance: a.value for a in placed}
    grades = {w.value.id: presence(w, 10.0, TTL_S, MARGIN_S) for w in workers}
    made = [a for a in reconcile.decide(view, SETTINGS) if isinstance(a, Place | Withdraw)]
    assert len({a.assignment.instance for a in made}) == len(made)
    for action in made:
        one = action.assignment
        known = before.get(one.instance)
        assert one.lease_revision == revision
        assert known is None or one.epoch > known.epoch
        if isinstance(action, Place):
            assert grades[one.worker] is Presence.ALIVE
            # Nobody has said that it stopped, so only who is gone has lost it.
            assert known is None or grades[known.worker] is Presence.GONE


def test_the_next_deadline_is_when_a_silent_worker_is_gone() -> None:
    line = "now=10 lease=me@40 workers=w1:10,w2:8.5 apps=A:g*2 placed=A-g-1:w1@5,A-g-2:w2@5"
    view = snapshot(line)
    assert reconcile.decide(view, SETTINGS) == []
    assert 10.0 < reconcile.next_deadline_s(view, SETTINGS) <= 8.5 + TTL_S + MARGIN_S


@pytest.mark.parametrize(
    ("age_s", "incarnation", "taken"),
    [(0.0, "w1-2", True), (2.4, "w1-2", True), (2.6, "w1-2", False), (0.0, "w1-1", False)],
)
def test_a_name_is_taken_while_another_process_beats(
    age_s: float, incarnation: str, taken: bool
) -> None:
    held = node("w1", 10.0 - age_s)
    assert membership.is_taken(held, incarnation, 10.0, TTL_S, MARGIN_S) == taken


def test_an_undeployed_app_does_not_wait_for_a_worker_that_is_gone() -> None:
    view = snapshot("now=10 lease=me@40 workers=w1:10,w2:7 apps=-A:g*1 placed=A-g-1:w2@5>")
    assert any(isinstance(a, Discard) for a in reconcile.decide(view, SETTINGS))


def test_a_story_has_what_the_cluster_did_beside_the_app() -> None:
    told = [
        Entry("leads", by="manager m1", at_ms=1),
        Entry("deployed app A", by="user ada", at_ms=2, app="A"),
        Entry("deployed app B", by="user ada", at_ms=3, app="B"),
        Entry("is ready", by="worker w9", at_ms=4, worker="w9"),
        Entry("placed A-g-1 on w1", by="manager m1", at_ms=5, app="A", worker="w1"),
        Entry("leads", by="manager m2", at_ms=8),
        # Noted while it was cut off, and stored late.
        Entry("stops A-g-1", by="worker w1", at_ms=7, worker="w1"),
    ]
    found = [f"{entry.at_ms} {entry.text}" for entry in story(told, "A")]
    assert found == ["2 deployed app A", "5 placed A-g-1 on w1", "7 stops A-g-1", "8 leads"]
    assert story(told, "C") == []


DOCUMENT = Path(__file__).parent.parent / "docs" / "control-plane.md"

#: What the document says of a worker, as options of ``node``, an order, and its age.
SAID_OF_A_WORKER = {
    "it was told to end, and waits for its instances to go": ("leaving", "", 0.0),
    "an operator drains it": ("", "draining", 0.0),
    "its session has not been ready for `manager.hold_s`": ("stuck", "", 0.0),
    "it is suspect": ("", "", 2.2),
    "an operator has cordoned it": ("", "cordoned", 0.0),
    "its session is not ready": ("starting", "", 0.0),
    "none of these": ("", "", 0.0),
}


def table(heading: str, columns: int = 2) -> list[list[str]]:
    """The rows of the first table below a heading of the document."""
    below = DOCUMENT.read_text().partition(f"\n## {heading}\n")[2]
    lines = below[below.index("|") :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.split("|")[1 : columns + 1]] for line in lines]


def test_what_a_worker_admits_is_as_documented() -> None:
    rows = table("What a worker admits")
    assert [said for said, _ in rows] == list(SAID_OF_A_WORKER)
    for number, (_, admits) in enumerate(rows):
        # The first row that holds counts, whatever else holds.
        for other, _ in rows[number:]:
            said = [SAID_OF_A_WORKER[rows[number][0]], SAID_OF_A_WORKER[other]]
            options = [option for option, _, _ in said if option]
            told = next((admission for _, admission, _ in said if admission), "open")
            age_s = max(age for _, _, age in said)
            view = ClusterSnapshot(
                now_s=10.0,
                nodes=(node("w1", 10.0 - age_s, *options),),
                orders=(order("w1", told),),
            )
            (host,) = hosts_of(view, SETTINGS)
            assert host.admits == admits, (rows[number], other)


def test_presence_is_as_documented() -> None:
    ends = [TTL_S, TTL_S + MARGIN_S, 100.0]
    rows = table("Membership")
    assert [row[1] for row in rows] == [grade.value for grade in Presence]
    for end_s, (_, grade) in zip(ends, rows, strict=True):
        assert presence(node("w1", 0.0), end_s - 0.01, TTL_S, MARGIN_S) == grade


def test_an_apps_states_are_as_documented() -> None:
    rows = table("An app's state")
    assert {state.split(",")[0] for _, state in rows} == {state.value for state in AppState}


def test_what_a_gone_worker_had_moves_even_below_the_least_number_of_workers() -> None:
    view = snapshot("now=10 lease=me@40 workers=w1:10 apps=A:g*2 placed=A-g-1:w1@5,A-g-2:w2@5")
    settings = replace(SETTINGS, manager=replace(SETTINGS.manager, min_workers=2))
    assert [a for a in reconcile.decide(view, settings) if isinstance(a, Place)]
