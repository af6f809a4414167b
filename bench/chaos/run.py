"""One run of a scenario, from deploy to the comparison of its output."""

from __future__ import annotations

import asyncio
import contextlib
import traceback
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from nats.js.errors import NotFoundError

from bench.chaos import app
from bench.chaos.compare import Compared
from bench.chaos.scenario import CALM
from bench.chaos.scene import ScenarioError
from mesh.clock import SystemClock
from mesh.errors import MeshError
from mesh.jetstream.connection import UNREACHABLE
from mesh.model import names
from tests.support import databases

if TYPE_CHECKING:
    from bench.chaos.latency import Latency
    from bench.chaos.outages import Outage
    from bench.chaos.scenario import Scenario
    from bench.chaos.scene import Scene
    from bench.chaos.stage import Stage
    from tests.support.databases import DatabaseServer, TestDatabase
    from tools.cluster import Outside


_TOO_LONG: Final = (
    "outputs stopped for {0.output_s:.1f} s, elections took {0.election_s:.1f} s: "
    "more than {1:g} s longer"
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of one run."""

    scenario: str
    fault: str
    compared: Compared = field(default_factory=Compared)
    #: From the fault to the last row of the first events after it; None without a fault's time.
    recovery_s: float | None = None
    took_s: float = 0.0
    events: int = 0
    #: Patterns that the story lacks, or has out of order.
    untold: tuple[str, ...] = ()
    story: tuple[str, ...] = ()
    error: str = ""
    outage: Outage | None = None
    #: Of the last events, after all repairs.
    latency: Latency | None = None

    @property
    def is_good(self) -> bool:
        """Whether every row is there once and in order, and the story explains the run."""
        return self.compared.is_same and not self.error and not self.untold

    def beside(self, plain: Latency) -> Outcome:
        """The outcome, which has an error if its last events took longer than a plain run's may."""
        if self.error or self.latency is None:
            return self
        is_after_fault = self.scenario != CALM
        slow = self.latency.excess(plain, is_after_fault=is_after_fault)
        return replace(self, error=f"slower than a plain run: {slow}") if slow else self


def said(failure: Exception) -> str:
    """The errors, and their place unless a run may meet them."""
    text = f"{type(failure).__name__}: {failure}"
    if isinstance(failure, (AssertionError, ScenarioError, MeshError, *UNREACHABLE)):
        return text
    last = traceback.extract_tb(failure.__traceback__)[-1]
    return f"{text} ({last.filename}:{last.lineno})"


async def play(stage: Stage, scenario: Scenario, run: int) -> Outcome:
    """Play a scenario once; errors are in the outcome."""
    clock = SystemClock()
    started_s = clock.monotonic_s()
    name = f"{scenario.app_name}{run}"
    outcome = Outcome(scenario.name, scenario.fault)
    try:
        async with stage.look() as outside, contextlib.AsyncExitStack() as ends:
            store: TestDatabase | None = None
            server: DatabaseServer | None = None
            if scenario.has_database:
                server = await asyncio.to_thread(ends.enter_context, databases.postgresql())
                store = databases.new_database(server, stage.directory, "chaos")
            text = app.text(
                name,
                in_sides=scenario.in_sides,
                is_timed=scenario.is_timed,
                has_standbys=scenario.has_standbys,
                store=None if store is None else store.store(),
            )
            subject = names.subject(name, app.INPUT)
            scene = scenario.scene(stage, outside, name, text, subject)
            scene.server = server
            scene.is_lossy, scene.rate = scenario.is_lossy, scenario.rate
            try:
                if scenario.in_sides:
                    scene.subject = app.feed(name)
                    await stage.mended(outside)
                    await outside.js.add_stream(
                        name=scene.subject, subjects=[scene.subject], num_replicas=stage.replicas
                    )
                outcome = await _acted(scene, scenario, outcome)
            # Whatever it is, the other scenarios are still to be played.
            except Exception as failure:
                outcome = replace(outcome, error=said(failure))
                with contextlib.suppress(Exception):
                    story, _ = await scene.told()
                    outcome = replace(outcome, story=story)
            finally:
                await scene.give_up()
                if not scenario.spoils_stage:
                    await _cleared(stage, outside, name)
    except Exception as failure:
        if not outcome.error:
            outcome = replace(outcome, error=said(failure))
    return replace(outcome, took_s=clock.monotonic_s() - started_s)


async def _acted(scene: Scene, scenario: Scenario, outcome: Outcome) -> Outcome:
    await scene.stage.mended(scene.outside)
    if not scenario.deploys:
        await scene.begin()
    await scenario.play(scene)
    if scenario.may_stop:
        story, untold = await scene.told(scenario.story, within_s=90.0)
        if not untold:
            return replace(outcome, events=scene.published, story=story)
        scenario = replace(scenario, story=())
    await scene.end()
    compared, recovery_s = await scene.compared()
    story, untold = await scene.told(scenario.story, scenario.beside)
    outage, most_s = scene.outage, scenario.excess_s
    if outage is not None and most_s is not None and outage.excess_s > most_s:
        outcome = replace(outcome, error=_TOO_LONG.format(outage, most_s))
    return replace(
        outcome,
        outage=outage,
        latency=scene.latency,
        compared=compared,
        recovery_s=recovery_s,
        events=scene.published,
        untold=untold,
        story=story,
    )


async def _cleared(stage: Stage, outside: Outside, name: str) -> None:
    """Undo the changes of the scenario, and remove its app."""
    await stage.mend()
    for worker in ("w1", "w2"):
        with contextlib.suppress(MeshError):
            await outside.service.order_node(worker, "open")
    if outside.view.snapshot().app(name) is not None:
        await outside.service.undeploy(name)
        await outside.until(f"{name} is gone", lambda: outside.view.snapshot().app(name) is None)
    with contextlib.suppress(NotFoundError):
        await outside.js.delete_stream(app.feed(name))
