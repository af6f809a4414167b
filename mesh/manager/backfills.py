"""Deploys with history: past events run into the states with which an app begins.

    making ──▶ channels ──▶ cut ──▶ events through groups, in a process ──▶ snapshots ──▶ running

The app is held until all of it is there.  A failure removes the app.  The next deploy of the same
history continues from its last checkpoint (``mesh.manager.history_runs``).  No output of the
history is published, so there is nothing that could be doubled.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mesh.control import restoring
from mesh.errors import MeshError
from mesh.jetstream import snapshots, stream_positions
from mesh.jetstream.connection import connector_options
from mesh.jetstream.history_checkpoints import HistoryCheckpoints
from mesh.manager.history_runs import COMMAND, HistoryRunner
from mesh.model.access import Permission, require
from mesh.model.addresses import split_list
from mesh.model.begin import StartPosition, StartPositionKind, parse_start_position
from mesh.model.history import Backfilled, HistoryTask
from mesh.plan import history_addresses
from mesh.plan.history import entrances
from mesh.store import sources

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nats.aio.client import Client

    from mesh.clock import Clock
    from mesh.control.restoring import JetStreamState
    from mesh.jetstream.blob_store import BlobStore
    from mesh.manager.deployments import Deployments, Tell
    from mesh.manager.planning import Planner
    from mesh.model.app import AppSpec
    from mesh.model.cluster import AppRecord
    from mesh.model.history import HistoryInput, HistoryReport
    from mesh.settings import Settings


@dataclass(slots=True)
class AppHistory:
    """The history of an app that is about to be deployed; a ``deployed.AppPast``."""

    of: Backfills
    inputs: tuple[HistoryInput, ...]
    #: Execution groups that it runs through.
    groups: tuple[str, ...]
    ends: Mapping[str, StartPosition]
    #: The outcome, as soon as its states are stored.
    done: Backfilled | None = None

    async def run(self, record: AppRecord, tell: Tell) -> Mapping[str, int]:
        """See ``deployed.AppPast.run``."""
        self.done = await self.of.run(record, self, tell)
        return {stream: n for stream, n in self.done.cuts.items() if n}

    async def ended(self, app: str) -> None:
        """See ``deployed.AppPast.ended``."""
        await HistoryCheckpoints(self.of.runner.js, self.of.runner.pieces, app).drop()


class Backfills:
    """Deploys apps that begin with the states of their past.

    ``command`` starts the process; tests give one of their own.
    """

    def __init__(
        self,
        client: Client,
        deployments: Deployments,
        planner: Planner,
        pieces: BlobStore,
        settings: Settings,
        clock: Clock,
        command: Sequence[str] = COMMAND,
    ) -> None:
        self._client = client
        self._deployments = deployments
        self._planner = planner
        self._root = settings.manager.history_dir
        self._catalogs = split_list(settings.manager.history_catalogs)
        self._databases = split_list(settings.manager.history_databases)
        self._clock = clock
        # The past has no shard of its own.
        variables = sources.variables(settings) | {sources.SHARD_VARIABLE: ""}
        self.runner = HistoryRunner(
            client.jetstream(), pieces, variables, connector_options(settings.nats), command
        )

    async def backfill(
        self, text: str, inputs: Sequence[HistoryInput], *, by: str = ""
    ) -> Backfilled:
        """Deploy a new app that begins with the states that past events give.

        Args:
            text: SiddhiQL.
            inputs: the past events of input streams besides those that the text names.
            by: the user.

        Raises:
            MeshError: MESH-C160 to MESH-C162 for an app, events or a process that fail, MESH-A409
                for an app that is there, MESH-A410 and MESH-A422 for an end that can't be kept; as
                ``Planner.plan`` for the text.
        """
        spec = await self._planner.plan(text)
        history = await self.history_of(spec, inputs)
        if history is None:
            raise MeshError("MESH-A422", "no past events are named")
        await self._deployments.deploy_after(spec, by, history)
        assert history.done is not None
        return history.done

    async def history_of(
        self, spec: AppSpec, inputs: Sequence[HistoryInput] = ()
    ) -> AppHistory | None:
        """The history of an app, by its text and ``inputs``; None without any.

        Raises:
            MeshError: as ``backfill``, for what can be said before the app is deployed.
        """
        inputs = (*inputs, *await self._planner.history_sources(spec))
        if not inputs:
            return None
        ends = {
            one.stream: parse_start_position(one.until) for one in inputs if one.until is not None
        }
        streams = tuple(dict.fromkeys(one.stream for one in inputs))
        if len(streams) < len(inputs):
            raise MeshError("MESH-A422", "a stream has two histories", detail="It may have one.")
        groups = await self._planner.history(spec, streams)
        for one in inputs:
            if history_addresses.is_stream(one.path):
                await self._check_stream(spec, one)
            else:
                await asyncio.to_thread(self._check, one.path)
        return AppHistory(self, inputs, groups, ends)

    async def run(self, record: AppRecord, history: AppHistory, tell: Tell) -> Backfilled:
        """Run the history of an app whose channels are there, and store the states.

        Raises:
            MeshError: as ``backfill``.
        """
        spec, inputs, began_s = record.spec, history.inputs, self._clock.monotonic_s()
        streams = tuple(one.stream for one in inputs)
        cuts: dict[str, int] = {}
        before_ms: dict[str, int] = {}
        states: dict[str, JetStreamState] = {}
        for one in inputs:
            end = history.ends.get(one.stream)
            cut, is_of_input = await self._cuts(spec, one, end, states)
            self._add(cuts, cut)
            # Of the input itself the cut alone divides past from future, and no time.
            if end is not None and end.time_ms and not is_of_input:
                before_ms[one.stream] = end.time_ms
        task = HistoryTask(
            spec, record.incarnation, inputs, history.groups, self._root, before_ms, cuts, ""
        )

        async def reported(report: HistoryReport) -> None:
            await tell(restoring.progress(", ".join(streams), report))

        try:
            report = await self.runner.run(task, reported)
        except BaseException:
            js, pieces = self.runner.js, self.runner.pieces
            await snapshots.purge(js, pieces, record.incarnation)
            raise
        seconds = round(self._clock.monotonic_s() - began_s, 3)
        return Backfilled(
            spec.name, streams, report.rows, report.later, report.emitted, report.failed, seconds,
            report.resumed, cuts, history.groups, report.unreadable,
        )  # fmt: skip

    def _check(self, path: str) -> None:
        """Refuse what is no history, before there is an app."""
        if path.startswith("iceberg:"):
            iceberg = history_addresses.iceberg_of(os.devnull, path)
            history_addresses.check_catalog(iceberg, self._catalogs)
            return
        if history_addresses.is_table(path):
            place = history_addresses.table_of(self._root or os.devnull, path)
            history_addresses.check_address(place, self._databases)
            return
        if not self._root:
            raise MeshError(
                "MESH-C161",
                "this manager reads no files of past events",
                detail="Its manager.history_dir is empty.",
                hint="Set it to a directory of the manager's machine, and put the files there.",
            )
        if history_addresses.is_iceberg(path):
            history_addresses.iceberg_of(self._root, path)
            return
        history_addresses.files_of(self._root, path)

    async def _check_stream(self, spec: AppSpec, history: HistoryInput) -> None:
        """Refuse a stream that is not there, and one of an app whose events the user may not read.

        Raises:
            MeshError: MESH-C161, MESH-A403.
        """
        place = history_addresses.stream_of(history.path)
        history_addresses.check_time(place, history.time, entrances(spec, history.stream)[0].stream)
        if place.app is not None:
            require(Permission.DATA_READ, place.app)
        if await stream_positions.state(self._client, place.js_stream) is None:
            raise history_addresses.unusable(
                f"there is no {place}", "It is on the mesh's own servers."
            )

    @staticmethod
    def _add(cuts: dict[str, int], more: Mapping[str, int]) -> None:
        """Add the cuts of a stream; two that read one JetStream stream end at one place."""
        for js_stream, sequence in more.items():
            if cuts.setdefault(js_stream, sequence) != sequence:
                raise MeshError(
                    "MESH-A422",
                    f"two histories end at different places of {js_stream}",
                    hint="Give both the same --until.",
                )

    async def _cuts(
        self,
        spec: AppSpec,
        history: HistoryInput,
        end: StartPosition | None,
        seen: dict[str, JetStreamState],
    ) -> tuple[dict[str, int], bool]:
        """By JetStream stream of the input: the last sequence that the past events include.

        And whether the past events are those of the input itself.  ``seen``: the streams as they
        were looked at first, so that two inputs in one stream end at one place.
        """
        channels = entrances(spec, history.stream)
        streams = [stream for channel in channels for stream in channel.js_streams]
        past = history.path if history_addresses.is_stream(history.path) else None
        is_of_input = past is not None and history_addresses.stream_of(past).js_stream in streams
        if end is None and not is_of_input:
            return dict.fromkeys(streams, 0), False
        for one in streams:
            if one not in seen:
                state = await stream_positions.state(self._client, one)
                seen |= {one: state} if state is not None else {}
        states = {one: seen[one] for one in streams if one in seen}
        if end is None:
            return {one: state.last for one, state in states.items()}, True
        last_before: dict[str, int] = {}
        if end.kind is StartPositionKind.TIME:
            last_before = await stream_positions.skipped_positions(self._client, streams, end)
        return restoring.cuts(end, states, last_before, self._clock.wall_ms()), is_of_input
