"""One fault under load, as a value: its name, its action, and the journal entries it must leave."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.chaos.stage import Topology

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bench.chaos.scene import Scene


@dataclass(frozen=True, slots=True)
class Scenario:
    """A fault under load."""

    name: str
    #: For people.
    fault: str
    play: Callable[[Scene], Awaitable[None]]
    #: Regular expressions that lines of the app's story match, in this order.
    story: tuple[str, ...] = ()
    #: The same of what goes on beside that, with no order between the two.
    beside: tuple[str, ...] = ()
    topology: Topology = Topology.ONE
    #: Whether it deploys the app itself.
    deploys: bool = False
    #: Whether w1 is the only one to run the receiver and what keeps no state, and w2 to run those
    #: groups that do.
    in_sides: bool = False
    #: Why it can't be played yet; empty when it can.
    missing: str = ""

    @property
    def app_name(self) -> str:
        """Of the app that it plays with."""
        return "".join(word.title() for word in self.name.split("-"))
