"""A cluster as a line of text, for tests of decisions about it."""

from __future__ import annotations

from dataclasses import replace

from mesh.control import election
from mesh.control.placement import Admits, Candidate, Need
from mesh.control.snapshot import ClusterSnapshot, Revisioned
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
    NodeRole,
    Retired,
    Standby,
    StandbyStatus,
)
from mesh.model.types import StreamSchema
from mesh.settings import ManagerSettings, Settings, WorkerSettings

#: The terms that the times in the cases are written for.
SETTINGS = Settings(
    manager=ManagerSettings(lease_ttl_s=2.0), worker=WorkerSettings(ttl_s=2.0, margin_s=0.5)
)
TTL_S, MARGIN_S = SETTINGS.worker.ttl_s, SETTINGS.worker.margin_s


def words(line: str) -> dict[str, str]:
    """``now=1 apps=A:g*2`` as a mapping; a word without ``=`` is the command and is left out."""
    return dict(word.split("=", 1) for word in line.split() if "=" in word)


def listed(text: str) -> list[list[str]]:
    """``a:b,c:d`` as lists."""
    return [item.split(":") for item in text.split(",") if item]


def node(name: str, seen_at_s: float, *options: str) -> Revisioned[NodeRecord]:
    """A worker; options are ``starting``, ``cold``, ``anew``, ``cap2``, ``+label`` and so on."""
    labels = tuple(o[1:] for o in options if o.startswith("+"))
    record = NodeRecord(
        id=name,
        role=NodeRole.WORKER,
        incarnation=f"{name}-{2 if 'anew' in options else 1}",
        address="",
        beat=1,
        ready=not {"starting", "stuck", "cold"} & set(options),
        cold="cold" in options,
        starting_s=99.0 if "stuck" in options else 0.0,
        leaving="leaving" in options,
        labels=labels,
        capacity=next((int(o[3:]) for o in options if o.startswith("cap")), 0),
        takes_receivers="queries" not in options,
        takes_queries="receivers" not in options,
    )
    return Revisioned(record, 1, seen_at_s)


def app(name: str, *groups: str) -> Revisioned[AppRecord]:
    """``-A`` is being undeployed, ``^A`` restored, ``_A`` made, ``#A`` paused; groups as ``group``.

    ``?g`` is one of an earlier text, ``??g`` one that is being removed.
    """
    deleting, making = name.startswith("-"), name.startswith("_")
    held = "put back" if name.startswith(("^", "_")) else ""
    paused = name.startswith("#")
    name = name.lstrip("-^_#")
    specs = tuple(group(name, text) for text in groups if not text.startswith("?"))
    gone = [text for text in groups if text.startswith("?")]
    removing = any(text.startswith("??") for text in gone)
    retired = Retired((), tuple(text.lstrip("?") for text in gone), removing) if gone else None
    spec = AppSpec(name, "", (), specs)
    record = AppRecord(
        spec, f"{name}-1", 0, deleting=deleting, making=making, held=held, retired=retired,
        paused=paused,
    )  # fmt: skip
    return Revisioned(record, 9, 0.0)


def group(app: str, text: str) -> GroupSpec:
    """``g*2`` has two instances.

    After that, ``+label``; ``!`` for a receiver, ``%`` for one that is divided by key, ``&`` for
    one that reads blocks of a stream in turn, ``~`` for standbys; ``/2`` is its text.
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


def form(app: str, text: str) -> Revisioned[GroupForm]:
    """``g*2@3`` is the third form after the first; ``g*2@3^7`` begins after sequence 7."""
    spec, _, numbers = text.partition("@")
    number, _, start = numbers.partition("^")
    made = group(app, spec)
    begins = {"S": int(start)} if start else {}
    return Revisioned(GroupForm(app, made.name, f"{app}-1", made, int(number or 0), begins), 5, 0.0)


def assignment(instance: str, where: str, seen_at_s: float = 0.0) -> Revisioned[Assignment]:
    """``w1@5`` is placed, ``w1@5>w2`` withdrawn and on its way to w2, ``w1@5>`` only withdrawn.

    ``w1@5#2`` is of form 2, ``w1@5|7`` runs up to sequence 7, and ``w1@5<w2`` was on w2 before.
    """
    name, group, index = instance.rsplit("-", 2)
    placed, stop, target = where.partition(">")
    placed, _, former = placed.partition("<")
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
        former=former,
    )
    return Revisioned(made, 2, seen_at_s)


def report(instance: str, worker: str, epoch: int, state: str) -> Revisioned[InstanceStatus]:
    """``settled7``: stopped, and settled at sequence 7; ``refused57``: by a writer of epoch 57.

    ``running*9`` has 9 MB of state.
    """
    state, _, size = state.partition("*")
    name = instance.rsplit("-", 2)[0]
    state, _, newer = state.partition("refused")
    error = "boom" if state == "retrying" else None
    state, settled, position = state.partition("settled")
    known = InstanceState(state or "stopped")
    made = InstanceStatus(
        instance, name, worker, epoch, known, 0, error, restarts=3 * bool(error),
        newer_epoch=int(newer or 0), state_bytes=int(size or 0) * 1_000_000,
    )  # fmt: skip
    if settled:
        made = replace(made, settled=True, position={"S": int(position)})
    return Revisioned(made, 3, 0.0)


def stands_by(instance: str, worker: str, *options: str) -> Revisioned[Standby]:
    """``A-g-1:w2``; ``before`` for a process that has ended since."""
    name, group, index = instance.rsplit("-", 2)
    process = f"{worker}-{0 if 'before' in options else 1}"
    return Revisioned(
        Standby(instance, name, group, int(index), 1, f"{name}-1", worker, process, 5), 2, 0.0
    )


def holds(instance: str, worker: str, snapshots: str, size: str) -> Revisioned[StandbyStatus]:
    name = instance.rsplit("-", 2)[0]
    return Revisioned(StandbyStatus(instance, name, worker, 0, int(snapshots), int(size)), 2, 0.0)


def order(name: str, admission: str) -> Revisioned[NodeOrder]:
    return Revisioned(NodeOrder(name, Admission(admission), "ada"), 4, 0.0)


def snapshot(line: str) -> ClusterSnapshot:
    """The cluster that a script's lines describe."""
    given_words = words(line)
    lease: Revisioned[LeaseRecord | None] | None = None
    if "lease" in given_words:
        holder, revision = given_words["lease"].split("@")
        lease = Revisioned(LeaseRecord(holder, 1), int(revision), 0.0)
    reports = []
    for instance, where, state in listed(given_words.get("reports", "")):
        worker, epoch = where.split("@")
        reports.append(report(instance, worker, int(epoch), state))
    apps = tuple(app(name, *groups) for name, *groups in listed(given_words.get("apps", "")))
    # By default, groups are as desired.
    forms = {
        (spec.app, spec.name): Revisioned(
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


def hosts(text: str) -> list[Candidate]:
    """``w1:cap2:+gpu:closed,w2`` as hosts."""
    return [
        Candidate(
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
    """``a-g-1+gpu`` requires a label, ``a-g-1!`` is a receiver's."""
    first, *labels = text.split("+")
    instance = first.removesuffix("!")
    name, group, _ = instance.rsplit("-", 2)
    return Need(instance, name, group, frozenset(labels), first.endswith("!"))


def candidate(name: str) -> election.ManagerCandidate:
    """``a2`` is process 2 of manager ``a``."""
    return election.ManagerCandidate(name[0], name[1:])
