"""``mesh trace``: one event followed from its publisher to the last sink, with times.

    publish ─▶ NATS ─▶ channel ─▶ group ─▶ channel ─▶ .. ─▶ sink
        └ Nats-Trace-Dest: hops inside the servers      └ position that its worker reports

The servers report the hops of the event itself (ADR-41 of NATS).  A group computes new events from
it, so of each later channel the first event after the one before it is shown.  That is the effect
of this event if no other one arrives meanwhile.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
import time
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import orjson
import typer

from mesh.cli.events import StreamArgument  # noqa: TC001 - typer reads it
from mesh.cli.options import AppArgument, OutputOption, takes_cluster_and_nats
from mesh.cli.output import Output, show_json, show_table
from mesh.errors import MeshError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nats.aio.client import Client as NatsClient
    from nats.aio.msg import Msg

    from mesh.client import ClientContext
    from mesh.model.answers import InstanceAnswer
    from mesh.model.app import AppSpec
    from mesh.model.values import JsonMapping, JsonObject

#: Kinds of connections in a trace event: clients, routes, gateways, JetStream, leaf nodes.
_KINDS: Final = {0: "client", 1: "route", 2: "gateway", 3: "system", 4: "leaf node", 5: "JetStream"}
_EVENTS: Final = {
    "in": "received from",
    "sm": "mapped to",
    "se": "exported to account",
    "si": "imported by account",
    "js": "stored in",
    "eg": "sent to",
}
#: Time after the last hop for further ones, and the interval at which sinks are asked, seconds.
_QUIET_S: Final = 0.5
_LOOK_S: Final = 0.25


@dataclass(frozen=True, slots=True)
class Hop:
    """A place that the event, or the first event computed after it, has reached."""

    #: Since it was published, milliseconds.
    after_ms: float
    where: str
    what: str


@dataclass(frozen=True, slots=True)
class TraceStep:
    """A channel after the first one."""

    stream: str
    group: str
    #: The channel before it.
    of: str
    subjects: tuple[str, ...]


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(rich_help_panel="Events")(trace)


@takes_cluster_and_nats
def trace(
    app: AppArgument,
    stream: StreamArgument,
    event: Annotated[
        str, typer.Option(metavar="JSON", help="The event; otherwise a line of standard input.")
    ] = "",
    wait: Annotated[
        float, typer.Option(help="Longest time to follow it, seconds.", min=0.1, max=300.0)
    ] = 5.0,
    *,
    at: ClientContext,
    output: OutputOption = Output.TEXT,
) -> None:
    """Publish one event, and show its hops: servers, channels, groups and sinks, with times.

    It is a real event: groups and sinks process it. The exit code is 1 if a channel or a sink after
    it was not reached in time; a filter may have dropped it.

    Example: `mesh trace Shop Orders --event '{"item": "tea", "count": 7}'`
    """
    data = (event or sys.stdin.readline()).strip().encode()
    try:
        orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise MeshError("MESH-D110", "the event is not JSON", detail=f"{error}.") from error
    hops, missing = asyncio.run(trace_event(at, app, stream, data, wait))
    if output is Output.JSON:
        values = [{"after_ms": h.after_ms, "where": h.where, "what": h.what} for h in hops]
        show_json({"app": app, "stream": stream, "hops": values, "missing": missing})
    else:
        show_table(("after ms", "where", "what"), [(h.after_ms, h.where, h.what) for h in hops])
        for name in missing:
            typer.echo(f"{name} was not reached within {wait:g} s")
    if missing:
        raise typer.Exit(1)


def steps(spec: AppSpec, stream: str) -> list[TraceStep]:
    """The channels that an event of ``stream`` may reach, nearest first, each once."""
    by_stream: dict[str, TraceStep] = {}
    reached, left = {stream}, [stream]
    while left:
        current = left.pop(0)
        for group in spec.groups:
            if all(one.channel.stream.name != current for one in group.inputs):
                continue
            for channel in group.outputs:
                name = channel.stream.name
                subjects = tuple(channel.subject(part) for part in range(channel.partitions))
                if name in by_stream:
                    step = by_stream[name]
                    more = tuple(dict.fromkeys((*step.subjects, *subjects)))
                    by_stream[name] = TraceStep(name, step.group, step.of, more)
                elif name not in reached:
                    reached.add(name)
                    left.append(name)
                    by_stream[name] = TraceStep(name, group.name, current, subjects)
    return list(by_stream.values())


def server_hops(reports: Sequence[JsonMapping]) -> list[Hop]:
    """The hops inside the servers, in order, from the payloads of their trace events.

    Times are those of the servers' clocks, since the first of them.
    """
    hops: list[tuple[float, Hop]] = []
    times = [_time_s(one["ts"]) for report in reports for one in report.get("events", ())]
    first_s = min(times, default=0.0)
    for report in reports:
        server = report.get("server", {}).get("name", "")
        for one in report.get("events", ()):
            at_s = _time_s(one["ts"])
            what = f"{_EVENTS.get(one['type'], one['type'])} {_target(one)}"
            if one.get("error"):
                what += f": {one['error']}"
            hops.append((at_s, Hop(round((at_s - first_s) * 1000, 3), f"server {server}", what)))
    return [hop for _, hop in sorted(hops, key=lambda pair: pair[0])]


def _target(one: JsonMapping) -> str:
    match one["type"]:
        case "js":
            return str(one.get("stream", ""))
        case "sm":
            return str(one.get("to", ""))
        case "se" | "si":
            return str(one.get("acc") or one.get("to", ""))
        case _:
            kind = _KINDS.get(one.get("kind", 0), "connection")
            return f"{kind} {one.get('name') or one.get('cid', '')}".strip()


def _time_s(text: str) -> float:
    # Nanoseconds, of which Python reads six digits.
    whole, _, rest = text.rstrip("Z").partition(".")
    return datetime.fromisoformat(f"{whole}.{(rest + '000000')[:6]}+00:00").timestamp()


async def trace_event(
    at: ClientContext, app: str, stream: str, data: bytes, wait_s: float
) -> tuple[list[Hop], list[str]]:
    """Publish an event, and follow it for ``wait_s``: its hops, and the outputs not reached."""
    from nats.js.errors import Error as JetStreamError
    from nats.js.errors import NoStreamResponseError

    from mesh.client import taps, wire
    from mesh.client.deployed import no_channel

    subject = taps.subject_of(at, app, stream)
    async with wire.connected(taps.checked(at)) as client:
        spec = await _spec(client, app)
        if spec.whole_channel(stream) is None:
            raise no_channel(spec, stream)
        ways = steps(spec, stream)
        arrivals: dict[str, float] = {}
        reports: list[JsonObject] = []
        news = asyncio.Event()

        async def report(message: Msg) -> None:
            reports.append(orjson.loads(message.data))
            news.set()

        inbox = client.new_inbox()
        await client.subscribe(inbox, cb=report)
        for step in ways:
            for one in step.subjects:
                await client.subscribe(one, cb=_arrival(step.stream, arrivals, news))
        await client.flush()
        # W3C trace context: version, trace, span, sampled.
        parent = f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01"
        headers = {"Nats-Trace-Dest": inbox, "traceparent": parent}
        started_s = time.monotonic()
        try:
            stored = await client.jetstream().publish(subject, data, headers=headers)
        except NoStreamResponseError as error:
            raise MeshError(
                "MESH-N111", f'no channel takes "{subject}"', hint="mesh apps"
            ) from error
        except JetStreamError as error:
            raise MeshError(
                "MESH-N112", "the event was not accepted", detail=f"{error}."
            ) from error
        acknowledged_s = time.monotonic()
        await _followed(ways, arrivals, news, started_s + wait_s)
        ends = await _ends(client, spec, {stream, *arrivals})
    hops = server_hops(reports)
    place = f"sequence {stored.seq} of {stored.stream}"
    hops.append(Hop(_ms(acknowledged_s - started_s), "publisher", f"acknowledged as {place}"))
    for step in ways:
        if step.stream in arrivals:
            after_ms = _ms(arrivals[step.stream] - started_s)
            hops.append(Hop(after_ms, f"group {step.group}", f"emitted to {step.stream}"))
    done, left = await _sinks(at, spec, ends, started_s, wait_s)
    missing = [f"stream {step.stream}" for step in ways if step.stream not in arrivals]
    return sorted([*hops, *done], key=lambda hop: hop.after_ms), [*missing, *left]


def _arrival(stream: str, arrivals: dict[str, float], news: asyncio.Event) -> Any:
    async def arrived(message: Msg) -> None:
        if stream not in arrivals:
            arrivals[stream] = time.monotonic()
            news.set()

    return arrived


async def _followed(
    ways: Sequence[TraceStep], arrivals: Mapping[str, float], news: asyncio.Event, deadline_s: float
) -> None:
    """Wait until each channel was reached and nothing more arrives, or for the deadline."""
    while True:
        is_whole = all(step.stream in arrivals for step in ways)
        left_s = deadline_s - time.monotonic()
        news.clear()
        try:
            async with asyncio.timeout(min(_QUIET_S, left_s) if is_whole else max(0.0, left_s)):
                await news.wait()
        except TimeoutError:
            return


async def _ends(client: NatsClient, spec: AppSpec, streams: set[str]) -> dict[str, int]:
    """The sequence of the last event of the channels that were reached, by stream.

    Markers of the groups may follow it, which no sink reads.
    """
    last = client.jetstream().get_last_msg
    return {
        channel.stream.name: (await last(channel.js_stream(), channel.subject())).seq or 0
        for channel in spec.channels
        if channel.stream.name in streams and channel.partitions == 1
    }


async def _sinks(
    at: ClientContext, spec: AppSpec, ends: Mapping[str, int], started_s: float, wait_s: float
) -> tuple[list[Hop], list[str]]:
    """The sinks that have sent what was in their channels, and those that have not."""
    targets = {
        instance: ends[one.channel.stream.name]
        for group in spec.groups
        if group.sinks and any(name.startswith("sink ") for name in group.connectors)
        for one in group.inputs
        if one.channel.stream.name in ends
        for instance in group.instances
    }
    done: dict[str, Hop] = {}
    deadline_s = started_s + wait_s
    while targets and at.server:
        for one in await asyncio.to_thread(_status, at, spec.name):
            for connector in one.get("connectors") or ():
                name = f"{connector['name']} of {one['instance']}"
                is_past = connector["position"] >= targets.get(one["instance"], sys.maxsize)
                if is_past and name not in done:
                    after_ms = _ms(time.monotonic() - started_s)
                    done[name] = Hop(after_ms, name, "has sent it, as its worker reports")
        left = [one for one in targets if not any(name.endswith(f" {one}") for name in done)]
        if not left or time.monotonic() > deadline_s:
            return list(done.values()), [f"sink {one}" for one in left]
        await asyncio.sleep(_LOOK_S)
    return [], []


def _status(at: ClientContext, app: str) -> list[InstanceAnswer]:
    from mesh.cli.options import CommandClient

    with CommandClient(at) as client:
        return client.status(app)["instances"]


async def _spec(client: NatsClient, app: str) -> AppSpec:
    from nats.js.errors import NotFoundError

    from mesh.client.deployed import not_deployed, spec_of

    try:
        return await spec_of(client, app)
    except NotFoundError as error:
        raise await not_deployed(client, app) from error


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)
