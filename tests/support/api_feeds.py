"""Simulations of the small service in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mesh.control.simulating import transition
from mesh.errors import MeshError
from mesh.model.simulation import FeedState, feed_of


def feed(name: str, app: str = "Shop", **more: Any) -> dict[str, Any]:
    """The configuration of a simulation."""
    rule = {"type": "PRIMITIVE_BASED", "primitiveType": "INT", "min": "0", "max": "9"}
    source = {
        "siddhiAppName": app, "streamName": "Orders", "timestampInterval": "1000",
        "simulationType": "RANDOM_DATA_SIMULATION", "attributeConfiguration": [rule],
    }  # fmt: skip
    return {"properties": {"simulationName": name, "timeInterval": "10", **more},
            "sources": [source]}  # fmt: skip


@dataclass(frozen=True, slots=True)
class FakeFeedStatus:
    state: FeedState
    events: int = 3
    reason: str = ""


STATES = {"Idle": FeedState.STOP, "Busy": FeedState.RUN, "Resting": FeedState.PAUSE}


@dataclass
class FakeFeeds:
    """A simulation in each state, and a file."""

    states: dict[str, FeedState] = field(default_factory=lambda: dict(STATES))
    values: dict[str, dict[str, Any]] = field(default_factory=dict)
    stored: dict[str, bytes] = field(default_factory=lambda: {"events.csv": b"pen,1"})

    async def create(self, values: Any, *, by: str) -> str:
        name = feed_of(values).name
        if name in self.states:
            raise MeshError("MESH-A409", f'simulation "{name}" exists already')
        self.states[name], self.values[name] = FeedState.STOP, values
        return name

    async def update(self, name: str, values: Any, *, by: str) -> None:
        self.states[name], self.values[name] = FeedState.STOP, values

    async def delete(self, name: str) -> None:
        del self.states[name]

    async def configuration(self, name: str) -> dict[str, Any]:
        if name not in self.states:
            raise MeshError("MESH-A404", f'simulation "{name}" does not exist')
        return self.values.get(name, feed(name, "Other" if name == "Others" else "Shop"))

    async def list_all(self) -> list[tuple[dict[str, Any], str]]:
        return [
            (await self.configuration(name), "" if state is FeedState.RUN else "no app")
            for name, state in self.states.items()
        ]

    async def status(self, name: str) -> FakeFeedStatus:
        return FakeFeedStatus(self.states[name])

    async def operate(self, name: str, action: str, *, by: str) -> tuple[int, str]:
        state, text = transition(action, self.states[name])
        if not isinstance(state, FeedState):
            return state, text
        self.states[name] = state
        return 200, text

    async def files(self) -> list[str]:
        return sorted(self.stored)

    async def put_file(self, name: str, data: bytes, *, is_new: bool) -> None:
        if is_new == (name in self.stored):
            raise MeshError("MESH-A409" if is_new else "MESH-A404", f'file "{name}"')
        self.stored[name] = data

    async def delete_file(self, name: str) -> None:
        if self.stored.pop(name, None) is None:
            raise MeshError("MESH-A404", f'file "{name}" does not exist')
