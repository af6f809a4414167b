"""Previews of texts, as any manager answers them: events are read, and a process plays them.

    text ──plan──▶ may the user? ──▶ stored events ──▶ process without NATS ──▶ outputs

The process that plays has no connection and no credentials.  The events of streams are read by the
process that answers questions about the past.

What-if, as any manager answers it: a process calibrates the app beside the cluster.

A group of the same text that runs in the cluster, in batches of many messages, has its rate from
the reports of its instances: that is the rate on a worker, with this app's events.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from mesh.errors import MeshError
from mesh.functions.script_switch import OF_MANAGERS
from mesh.manager.past import FunctionCalls
from mesh.manager.streams import channel_of
from mesh.model import names
from mesh.model.access import Permission, require
from mesh.model.begin import parse_start_position
from mesh.model.lineage import StoredStream
from mesh.processes.bounded_process import BoundedProcess

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mesh.jetstream.watch import ClusterView
    from mesh.manager.desired_state import DesiredState
    from mesh.manager.past import PastQuestions
    from mesh.manager.planning import Planner
    from mesh.model.app import AppSpec, Channel
    from mesh.model.cluster import InstanceStatus
    from mesh.processes.bounded_process import Process


#: Time for one answer, the start of the process among it, seconds.
CALIBRATION_S: Final = 240.0
#: Batches of fewer messages cost more for each than those of a busy instance.
BATCH_MIN: Final = 500
_CALIBRATION_MODULE: Final = "mesh.calibration.measure"

#: Time for one answer, seconds: the first one on a machine compiles native loops.
ANSWER_S: Final = 45.0
#: Events of each stream, unless the request has a number.
LAST: Final = 1000
#: Streams that a preview reads.
STREAMS_MAX: Final = 16
#: Most events of a preview.
EVENTS_MAX: Final = 10_000
_MODULE: Final = "mesh.testing.preview"


def _not_calibrated(detail: str) -> MeshError:
    return MeshError(
        "MESH-C170",
        "the app can't be calibrated within its limits",
        detail=detail,
        hint="'mesh plan --at-rate' does it on your machine, without limits.",
    )


#: Of this Python process, so that it is started once.
_CALIBRATION: Final = BoundedProcess(_CALIBRATION_MODULE, _not_calibrated, OF_MANAGERS)


class WhatIfs:
    """Needs of apps at rates; ``process`` measures, tests give one of their own."""

    def __init__(self, planner: Planner, view: ClusterView, process: Process | None = None) -> None:
        self._planner = planner
        self._view = view
        self._questions = FunctionCalls(
            process or _CALIBRATION, CALIBRATION_S, "questions about rates wait"
        )

    async def what_if(self, text: str, at_rate: Sequence[str], keys: int, cores: int) -> Any:
        """The needs of an app at a rate; see ``mesh.calibration.measure.answer``.

        Raises:
            MeshError: MESH-L*, MESH-P* for faults of the text; MESH-C170 for an app that can't be
                calibrated, MESH-C171 for rates that can't be used.
        """
        spec = await self._planner.plan(text)
        snapshot = self._view.snapshot()
        current = snapshot.app(spec.name)
        statuses = [seen.value for seen in snapshot.statuses]
        running = {} if current is None else running_rates(spec, current.value.spec, statuses)
        return await self._questions.ask(
            f"{_CALIBRATION_MODULE}:answer", spec, list(at_rate), keys, {}, cores, running
        )


def running_rates(
    spec: AppSpec, runs: AppSpec, statuses: Iterable[InstanceStatus]
) -> Mapping[str, float]:
    """By group, events a second of one busy instance, of groups that the running app has too.

    Args:
        spec: the app in question.
        runs: the plan of the running app of its name.
        statuses: reports of all instances.
    """
    texts = {g.name: g.text for g in spec.groups}
    of = {
        instance: group.name
        for group in runs.groups
        if texts.get(group.name) == group.text
        for instance in group.instances
    }
    events: Counter[str] = Counter()
    batches: Counter[str] = Counter()
    took_s: defaultdict[str, float] = defaultdict(float)
    for status in statuses:
        name = of.get(status.instance)
        if status.app == runs.name and name is not None:
            events[name] += status.events_in
            batches[name] += sum(status.batches)
            took_s[name] += status.batches_sum_s
    return {
        name: count / took_s[name]
        for name, count in events.items()
        if took_s[name] > 0 and count >= BATCH_MIN * max(1, batches[name])
    }


def _exceeded(detail: str) -> MeshError:
    return MeshError(
        "MESH-C172",
        "the preview exceeds its limits",
        detail=detail,
        hint="Give it fewer events.  If one event is enough for this, the text has no end.",
    )


#: Of this Python process, so that it is started once.
_PROCESS: Final = BoundedProcess(_MODULE, _exceeded, OF_MANAGERS)


class Previews:
    """Outputs of texts before a deploy; ``process`` plays, tests give one of their own."""

    def __init__(
        self,
        planner: Planner,
        desired: DesiredState,
        past: PastQuestions,
        process: Process | None = None,
    ) -> None:
        self._planner, self._desired, self._past = planner, desired, past
        self._questions = FunctionCalls(process or _PROCESS, ANSWER_S, "previews wait")

    async def preview(
        self,
        text: str,
        *,
        events: str = "",
        streams: Sequence[str] = (),
        last: int = LAST,
        since: str = "",
        until: str = "",
        against: str = "",
        keep: bool = False,
    ) -> Any:
        """The outputs of a text on events; see ``mesh.testing.preview.answer``.

        Args:
            text: SiddhiQL with a name.
            events: lines as in a file of ``mesh test``.
            streams: ``STREAM`` for events that the app of this name has stored, or that its source
                would read; ``STREAM=APP.OTHER`` for those of another app.
            last: most events of each of them.
            since: the first place of them, as for a deploy; empty for the beginning.
            until: the place before which they are read; empty for the end.
            against: a running app whose outputs on these events are compared; empty for none.
            keep: whether the answer has the YAML of a test.

        Raises:
            MeshError: what a deploy of the text is refused with; MESH-A403 for events of an app
                that the user may not read, MESH-A404 for an app or a stream that is not there,
                MESH-C172 for too much, MESH-U160 to MESH-U162 for events that don't fit.
        """
        spec = await self._planner.plan(text)
        running = None
        if against:
            require(Permission.APPS_VIEW, against)
            require(Permission.DATA_READ, against)
            running = against, self._desired.spec(against).text
        stored: list[Any] = []
        notes: list[str] = []
        if streams:
            if len(streams) > STREAMS_MAX:
                raise MeshError("MESH-A400", f"a preview reads {STREAMS_MAX} streams at most")
            bounds = [parse_start_position(one) if one else None for one in (since, until)]
            stored_streams = [self._stored(spec, one) for one in streams]
            stored, notes = await self._past.stored(stored_streams, min(last, EVENTS_MAX), *bounds)
        try:
            answer = await self._questions.ask(
                f"{_MODULE}:answer", spec.text, events, stored, running, keep
            )
        except MeshError as error:
            if error.code != "MESH-S131":
                raise
            hint = "Functions are run on workers, and by 'mesh preview --events' on your machine."
            raise MeshError(error.code, error.message, hint=hint, position=error.position) from None
        return {**answer, "notes": [*notes, *answer["notes"]]}

    def _stored(self, spec: AppSpec, reference: str) -> StoredStream:
        """The stream that a request names, if its user may read it."""
        stream, _, other = reference.partition("=")
        app, _, name = other.rpartition(".") if other else (spec.name, "", stream)
        # The planner has decided what sources may read.
        read = _read_by_source(spec, stream)
        schema = (read or channel_of(spec, stream)).stream
        channel = None if other else read
        if channel is None:
            if not names.is_app_name(app):
                raise MeshError(
                    "MESH-A400", f'"{reference}" is no stream: write STREAM or STREAM=APP.STREAM'
                )
            require(Permission.DATA_READ, app)
            channel = channel_of(self._desired.spec(app), name)
        places = tuple(
            (channel.js_stream(number), channel.subject(number))
            for number in range(channel.partitions)
        )
        return StoredStream(stream, places, replace(channel, stream=schema))


def _read_by_source(spec: AppSpec, stream: str) -> Channel | None:
    """The channel of a JetStream stream that a source of the text reads for a stream."""
    read = (one.channel for group in spec.groups for one in group.inputs)
    return next((c for c in read if c.foreign and c.stream.name == stream), None)
