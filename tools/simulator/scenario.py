"""Scenarios: the members of a simulated cluster and its events, as lines of text.

    manager m1
    worker w1 capacity=3 labels=gpu,big kind=queries
    app A g*2 h+gpu in!
    at 61.5 pause w1 3.2
    at 63 cut m1 up 4

``manager m1+`` is a second process with the id m1.  An app's groups are ``name*parallel`` with
``+label`` for each required label.  Marks: ``!`` receiver, ``%`` divided by key, ``&`` reads blocks
of its stream in turn, ``~`` with standbys; ``/2`` is the version of its text.  ``reform`` replaces
groups of an app.  Times are simulated seconds; an event that lasts has a duration.  ``lose`` has a
duration in which NATS is away, and the seconds of writes that the buckets of control, apps and
status have lost then.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from mesh.model.app import AppSpec, Channel, GroupInput, GroupKind, GroupSpec, Strategy
from mesh.model.types import StreamSchema
from tools.simulator.flows import STREAM
from tools.simulator.workers import WorkerKind

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

#: Faults and requests, with the weight of each in the draw.
KINDS: Final = {
    "pause": 4,
    "pause-agent": 3,
    "stall": 3,
    "cut": 6,
    "kill": 5,
    "stop": 2,
    "crash-session": 2,
    "fail": 3,
    "outage": 1,
    "flaky": 3,
    "deploy": 3,
    "undeploy": 2,
    "reform": 6,
    "cordon": 1,
    "drain": 1,
    "uncordon": 3,
}
#: Losses of acknowledged writes; drawn only where that is asked for.
LOSSES: Final = {"lose": 6}
LABELS: Final = ("gpu", "big")
#: Of groups that are divided by key.
PARTITIONS: Final = 4


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a scenario."""

    at_s: float
    kind: str
    arguments: tuple[str, ...]

    def __str__(self) -> str:
        return f"at {self.at_s:.1f} {' '.join((self.kind, *self.arguments))}"


@dataclass(frozen=True, slots=True)
class Scenario:
    """A cluster and its history."""

    managers: tuple[str, ...]
    workers: tuple[tuple[str, WorkerKind], ...]
    apps: tuple[tuple[str, tuple[str, ...]], ...]
    events: tuple[Event, ...]

    def __str__(self) -> str:
        lines = [f"manager {name}" for name in self.managers]
        lines += [f"worker {name}{_options(kind)}" for name, kind in self.workers]
        lines += [f"app {name} {' '.join(groups)}" for name, groups in self.apps]
        return "\n".join([*lines, *map(str, self.events)])


def read(text: str) -> Scenario:
    """The scenario of its lines; ``#`` begins a comment."""
    managers, workers, apps, events = [], [], [], []
    for line in text.splitlines():
        match line.partition("#")[0].split():
            case ["manager", name]:
                managers.append(name)
            case ["worker", name, *options]:
                workers.append((name, _kind(dict(o.split("=", 1) for o in options))))
            case ["app", name, *groups]:
                apps.append((name, tuple(groups)))
            case ["at", at_s, kind, *arguments] if kind in KINDS | LOSSES:
                events.append(Event(float(at_s), kind, tuple(arguments)))
            case []:
                continue
            case _:
                raise ValueError(f"not a line of a scenario: {line}")
    return Scenario(tuple(managers), tuple(workers), tuple(apps), tuple(events))


def draw(random: Random, hours: float, bursts_per_hour: float, *, loses: bool = False) -> Scenario:
    """A random scenario: faults occur in bursts, with quiet times between.

    Args:
        random: the source of chance.
        hours: the simulated time.
        bursts_per_hour: of faults.
        loses: whether NATS also loses acknowledged writes.
    """
    kinds = KINDS | (LOSSES if loses else {})
    managers = tuple(f"m{i}" for i in range(1, random.choice((1, 2, 2, 3)) + 1))
    workers = tuple(
        (f"w{i}", _draw_kind(random)) for i in range(1, random.choice((1, 2, 3, 3, 4)) + 1)
    )
    apps = tuple((name, _draw_groups(random)) for name in "ABC"[: random.choice((1, 2, 3))])
    events = []
    at_s = 60.0
    while (at_s := at_s + random.expovariate(bursts_per_hour / 3600)) < hours * 3600:
        for _ in range(random.choice((1, 1, 2, 2, 3, 5))):
            at_s += random.uniform(0.0, random.choice((0.5, 3.0, 8.0)))
            names = [name for name, _ in workers]
            events.append(_draw_event(random, at_s, managers, names, kinds))
    return Scenario(managers, workers, apps, tuple(events))


def app_spec(name: str, groups: tuple[str, ...]) -> AppSpec:
    """The plan of an app, as a manager would store it."""
    return AppSpec(name, "", (), tuple(_group(name, text) for text in groups))


def _group(app: str, text: str) -> GroupSpec:
    first, *labels = text.split("+")
    first, _, says = first.partition("/")
    name, _, parallel = first.rstrip("!%&~").partition("*")
    kind = GroupKind.RECEIVER if "!" in first else GroupKind.QUERIES
    count = int(parallel or 1)
    inputs: tuple[GroupInput, ...] = ()
    schema = StreamSchema(STREAM, ())
    if "%" in first:
        channel = Channel(app, schema, key=("k",), partitions=PARTITIONS)
        inputs = (GroupInput(channel, Strategy.BY_KEY),)
    elif "&" in first:
        strategy = Strategy.ROUND_ROBIN if count > 1 else Strategy.ALL
        inputs = (GroupInput(Channel(app, schema), strategy),)
    is_keyed = "%" in first
    return GroupSpec(
        app,
        name,
        count,
        says,
        inputs,
        (),
        stateful=is_keyed,
        kind=kind,
        node=tuple(labels),
        standby=int("~" in first),
    )


def reformed(group: GroupSpec, texts: tuple[str, ...]) -> GroupSpec:
    """A group as in one of ``texts``, with its own labels and inputs; or unchanged."""
    for text in texts:
        new = _group(group.app, text)
        if new.name == group.name and group.inputs:
            is_keyed = group.inputs[0].strategy is Strategy.BY_KEY
            mark = ("%" if is_keyed else "&") + ("~" if group.standby else "")
            count = min(new.parallel, PARTITIONS) if is_keyed else new.parallel
            same = f"{new.name}*{count}{mark}/{new.text}"
            return replace(_group(group.app, same), node=group.node)
    return group


def _kind(options: dict[str, str]) -> WorkerKind:
    takes = options.get("kind", "all")
    return WorkerKind(
        capacity=int(options.get("capacity", "0")),
        labels=tuple(filter(None, options.get("labels", "").split(","))),
        takes_receivers=takes != "queries",
        takes_queries=takes != "receivers",
    )


def _options(kind: WorkerKind) -> str:
    said = f" capacity={kind.capacity}" if kind.capacity else ""
    said += f" labels={','.join(kind.labels)}" if kind.labels else ""
    if not kind.takes_receivers:
        said += " kind=queries"
    return said + ("" if kind.takes_queries else " kind=receivers")


def _draw_kind(random: Random) -> WorkerKind:
    return WorkerKind(
        capacity=random.choice((0, 0, 0, 2, 3, 4)),
        labels=tuple(label for label in LABELS if random.random() < 0.4),
        takes_receivers=random.random() < 0.85,
        takes_queries=random.random() < 0.9,
    )


def _draw_groups(random: Random) -> tuple[str, ...]:
    groups = []
    for name in "ghi"[: random.choice((1, 2, 2, 3))]:
        text = f"{name}*{random.choice((1, 1, 2, 3))}"
        text += random.choice("!%%%&&& ").strip()
        text += "~" if random.random() < 0.3 else ""
        text += f"/{random.choice('12')}" if "!" not in text else ""
        text += f"+{random.choice(LABELS)}" if random.random() < 0.2 else ""
        groups.append(text)
    return tuple(groups)


def _draw_event(
    random: Random,
    at_s: float,
    managers: tuple[str, ...],
    workers: list[str],
    kinds: Mapping[str, int],
) -> Event:
    (kind,) = random.choices(list(kinds), list(kinds.values()))
    anybody, worker = random.choice((*managers, *workers)), random.choice(workers)
    lasts = f"{random.uniform(0.1, random.choice((1.0, 3.0, 8.0, 30.0))):.1f}"
    match kind:
        case "pause" | "flaky" | "kill":
            arguments: tuple[str, ...] = (anybody, lasts)
        case "stall":
            # Stopped between a decision and its writes.
            arguments = (random.choice(managers), lasts)
        case "cut":
            arguments = (anybody, random.choice(("up", "down", "both")), lasts)
        case "pause-agent" | "stop":
            arguments = (worker, lasts)
        case "outage":
            arguments = (lasts,)
        case "lose":
            # Each bucket is a stream of its own, and loses another part.
            spans = ("0", "0", "0.5", "0.5", "5", "5", "60", "60", "120", "inf")
            arguments = (lasts, *random.choices(spans, k=3))
        case "deploy":
            arguments = (random.choice("ABCD"), *_draw_groups(random))
        case "undeploy":
            arguments = (random.choice("ABCD"),)
        case "reform":
            arguments = (random.choice("ABC"), *_draw_groups(random))
        case _:
            arguments = (worker,)
    return Event(at_s, kind, arguments)
