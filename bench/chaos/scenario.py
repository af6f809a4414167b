"""One fault under load, as a value: its name, its action, and the journal entries it must leave."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from bench.chaos.scene import RATE, Scene
from bench.chaos.stage import Topology

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

#: Name of the scenario without a fault.
CALM: Final = "calm"


@dataclass(frozen=True, slots=True)
class Scenario:
    """A fault under load."""

    name: str
    #: For people.
    fault: str
    play: Callable[[Any], Awaitable[None]]
    #: Regular expressions that lines of the app's story match, in this order.
    story: tuple[str, ...] = ()
    #: The same for parallel events, with no order between the two.
    beside: tuple[str, ...] = ()
    topology: Topology = Topology.ONE
    #: Whether there must be no other server: its fault is the loss of the only one.
    has_one_server: bool = False
    #: Whether it deploys the app itself.
    deploys: bool = False
    #: Whether w1 alone runs the receiver and the groups without state, and w2 those with state.
    in_sides: bool = False
    #: Whether the app has a group with windows of time as well.
    is_timed: bool = False
    #: Whether its groups with state have a standby.
    has_standbys: bool = False
    #: Whether it takes acknowledged events away: the output is then that of the events left.
    is_lossy: bool = False
    #: Whether it may end with an alarm, which ``story`` tells, and an app that waits for a person.
    may_stop: bool = False
    #: Whether the servers may keep different records of their streams, which NATS does not repair.
    spoils_stage: bool = False
    #: The actions that it has.
    scene: type[Scene] = Scene
    #: Whether the app has an aggregation in PostgreSQL as well, which is played with.
    has_database: bool = False
    #: Whether it mounts directories of its own.
    needs_mounts: bool = False
    #: Whether it moves clocks, by a library that is compiled for it.
    needs_clocks: bool = False
    #: Events a second.
    rate: int = RATE
    #: Maximum time for which outputs may stop longer than the servers elect; None for any.
    excess_s: float | None = None

    @property
    def app_name(self) -> str:
        """The name of its app."""
        return "".join(word.title() for word in self.name.split("-"))
