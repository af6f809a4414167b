"""``mesh plan --at-rate``: instances, workers and state that an app needs for a rate."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import typer

from mesh.cli.options import CommandClient
from mesh.cli.output import show_table
from mesh.processes.progress import working

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from mesh.client import ClientContext
    from mesh.model.values import JsonObject

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def measured_here(
    text: str, at_rate: Sequence[str], keys: float, events: Path | None, cores: int
) -> JsonObject:
    """The values of ``Capacity``, measured on this machine.

    Raises:
        MeshError: MESH-L*, MESH-P* of the text; MESH-C170 for an app that can't be calibrated;
            MESH-C171 for rates or keys that can't be used; MESH-U160 for another file of events.
    """
    from mesh.calibration.measure import answer
    from mesh.plan.build import plan

    samples = _samples(events) if events is not None else {}
    with working("groups are measured on events, with a NATS server of their own"):
        return answer(plan(text).spec, at_rate, round(keys), samples, cores)


def measured_there(
    text: str, at_rate: Sequence[str], keys: float, cores: int, cluster: ClientContext
) -> JsonObject:
    """The same, measured by a manager; errors as above."""
    with working("a manager measures the groups"), CommandClient(cluster) as client:
        return client.what_if(text, at_rate=at_rate, keys=round(keys), cores=cores)


def _samples(path: Path) -> dict[str, tuple[str, ...]]:
    import orjson

    from mesh.testing.app_tests import read

    samples: dict[str, list[str]] = {}
    for one in read(path):
        if one.stream:
            samples.setdefault(one.stream, []).append(orjson.dumps(one.event).decode())
    return {stream: tuple(ones) for stream, ones in samples.items()}


def show(needs: JsonObject) -> None:
    """Print the answer as a table and sentences."""
    show_table(
        ("group", "events/s", "emits", "has", "needs", "busy", "holds", "cores", "state", "by"),
        [
            (
                one["group"],
                round(one["events"]),
                ", ".join(f"{name} {share:.3g}" for name, share in one["rows"].items()),
                one["present"],
                one["instances"],
                f"{one['utilisation']:.0%}",
                rate_text(one["present_limit"]),
                f"{one['worker_cores']:.2f}",
                size_text(one),
                one["source"],
            )
            for one in needs["groups"]
        ],
    )
    workers = f"{needs['workers']} worker{'' if needs['workers'] == 1 else 's'}"
    typer.echo(
        f"{needs['rate']:,.0f} events a second need {workers} of {needs['cores']} cores; NATS uses "
        f"{needs['nats_cores']:.2f} cores, and states have {bytes_text(needs['state_bytes'])}."
    )
    typer.echo(
        f"As it is, group {needs['present_first']} saturates first, at "
        f"{rate_text(needs['present_limit'])}; with the most instances, group {needs['first']}, at "
        f"{rate_text(needs['limit'])}."
    )
    for note in needs["notes"]:
        typer.echo(f"note: {note}")


def rate_text(rate: float | None) -> str:
    """Events a second in three digits; no bound is ``-``."""
    if rate is None or math.isinf(rate):
        return "-"
    digits = max(0, math.floor(math.log10(max(rate, 1.0))) - 2)
    return f"{round(rate, -digits):,.0f}/s"


def size_text(need: JsonObject) -> str:
    """The state of a group for the table."""
    if need["state_bytes"] is not None:
        return bytes_text(need["state_bytes"])
    return f"+{need['event_bytes']:.3g} B an event" if need["event_bytes"] else ""


def bytes_text(size: float) -> str:
    """Bytes with a decimal unit."""
    power = min(len(_UNITS) - 1, math.floor(math.log(max(size, 1.0), 1000)))
    return f"{size / 1000**power:.3g} {_UNITS[power]}"
