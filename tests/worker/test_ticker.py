"""Triggers in a cluster: each time once, with any publisher and any fault in between."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from nats.js import api

from mesh.clock import SystemClock
from mesh.control.retries import Retries
from mesh.jetstream.channels import ensure_channels
from mesh.jetstream.connection import close, connect
from mesh.model.cluster import Assignment, InstanceState, InstanceStatus
from mesh.plan.build import plan
from mesh.processes.signals import end
from mesh.settings import ChannelSettings, NatsSettings
from mesh.spark.instance_io import InstanceIO
from mesh.worker.ticker import Ticker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from nats.aio.client import Client

    from mesh.jetstream import server
    from mesh.model.app import AppSpec

pytestmark = pytest.mark.nats

APP = """@App:name('Ticks')
define trigger Often at every 100 millisec;
define trigger Once at 'start';
define trigger Clock at '*/2 * * * * ?';
from Often select triggered_time insert into A;
from Once select triggered_time insert into B;
from Clock select triggered_time insert into C;
"""
START_MS = 1_700_000_000_050


class HandClock(SystemClock):
    """A wall clock that is set by hand."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms

    def wall_ms(self) -> int:
        return self.now_ms


class Stage:
    """One server with the app's channels, with tickers on it."""

    def __init__(self, client: Client, spec: AppSpec) -> None:
        self.client = client
        self.spec = spec
        self.clock = HandClock(START_MS)
        self.reports: list[InstanceStatus] = []
        self._reported = asyncio.Event()

    def _report(self, status: InstanceStatus) -> None:
        self.reports.append(status)
        self._reported.set()

    def ticker(self, trigger: str, epoch: int, **options: Any) -> Ticker:
        group = self.spec.group(f"trigger-{trigger}")
        assert group is not None
        assignment = Assignment(
            group.instances[0], self.spec.name, group.name, 1, "inc", "w1", epoch, lease_revision=1
        )
        return Ticker(
            self.client,
            InstanceIO(group, assignment),
            self._report,
            self.clock,
            worker="w1",
            retries=Retries(0.05, 0.05),
            **{"refresh_s": 600.0, **options},
        )

    async def times(self, trigger: str, count: int) -> list[int]:
        """The times of its events, as soon as there are ``count`` of them."""
        stream, subject = f"mesh-Ticks-{trigger}", f"mesh.Ticks.{trigger}"
        js = self.client.jetstream()
        events = await js.subscribe(subject, stream=stream, ordered_consumer=True)
        found: list[int] = []
        waiting = 1
        while len(found) < count or waiting:
            message = await events.next_msg(20)
            found.append(json.loads(message.data)["triggered_time"])
            waiting = message.metadata.num_pending
        await events.unsubscribe()
        return found

    async def state(self, state: InstanceState, epoch: int, instance: str = "") -> None:
        """Wait for a report."""
        async with asyncio.timeout(20):
            while not any(
                report.state is state
                and report.epoch == epoch
                and instance in ("", report.instance)
                for report in self.reports
            ):
                self._reported.clear()
                await self._reported.wait()


@asynccontextmanager
async def stage_of(nats_server: server.NatsServer) -> AsyncIterator[Stage]:
    client = await connect(NatsSettings(url=nats_server.url), "test")
    spec = plan(APP).spec
    await ensure_channels(client, spec, ChannelSettings())
    try:
        yield Stage(client, spec)
    finally:
        await close(client)


async def test_who_takes_over_goes_on_behind_the_last_event(nats_server: server.NatsServer) -> None:
    async with stage_of(nats_server) as stage:
        first = stage.ticker("Often", 1)
        first.start()
        await stage.state(InstanceState.RUNNING, 1)
        stage.clock.now_ms += 1_030
        assert await stage.times("Often", 10) == [START_MS + 100 * n for n in range(1, 11)]
        # The worker is gone, without a word, and for a while; the first times are late then.
        assert first.task is not None
        await end([first.task])
        stage.clock.now_ms += 60_000
        second = stage.ticker("Often", 2)
        second.start()
        wanted = [START_MS + 100 * n for n in range(1, 611)]
        assert await stage.times("Often", 610) == wanted
        second.stop()
        await asyncio.to_thread(second.join)
        assert stage.reports[-1].state is InstanceState.STOPPED
        assert stage.reports[-1].events_out == 600


async def test_an_older_epoch_that_wakes_up_publishes_nothing(
    nats_server: server.NatsServer,
) -> None:
    async with stage_of(nats_server) as stage:
        older, newer = stage.ticker("Often", 1), stage.ticker("Often", 2)
        older.start()
        await stage.state(InstanceState.RUNNING, 1)
        newer.start()
        await stage.state(InstanceState.RUNNING, 2)
        stage.clock.now_ms += 500
        await stage.state(InstanceState.STOPPED, 1)
        # The leader places it above that epoch, should it be the one that is meant to run.
        assert [r.newer_epoch for r in stage.reports if r.state is InstanceState.STOPPED] == [2]
        stage.clock.now_ms += 500
        assert await stage.times("Often", 10) == [START_MS + 100 * n for n in range(1, 11)]
        newer.stop()
        await asyncio.to_thread(newer.join)


async def test_a_start_before_the_first_event_keeps_when_it_began(
    nats_server: server.NatsServer,
) -> None:
    async with stage_of(nats_server) as stage:
        for epoch in (1, 2):
            ticker = stage.ticker("Often", epoch)
            ticker.start()
            await stage.state(InstanceState.RUNNING, epoch)
            ticker.stop()
            await asyncio.to_thread(ticker.join)
            stage.clock.now_ms += 60
        last = stage.ticker("Often", 3)
        last.start()
        assert await stage.times("Often", 1) == [START_MS + 100]
        last.stop()


async def test_a_marker_that_is_none_ends_no_trigger(nats_server: server.NatsServer) -> None:
    async with stage_of(nats_server) as stage:
        marker = stage.ticker("Often", 1).marker_subject
        js = stage.client.jetstream()
        for payload in (b"{}", b"no JSON"):
            await js.publish(marker, payload)
        running = stage.ticker("Often", 1)
        running.start()
        await stage.state(InstanceState.RETRYING, 1)
        # An administrator removes the marker: the trigger begins anew.
        await js.purge_stream("mesh-Ticks-Often", subject=marker)
        await stage.state(InstanceState.RUNNING, 1)
        stage.clock.now_ms += 100
        assert await stage.times("Often", 1) == [START_MS + 100]
        running.stop()
        await asyncio.to_thread(running.join)


async def test_a_trigger_that_waits_for_a_clock_that_was_set_back_says_so(
    nats_server: server.NatsServer,
) -> None:
    async with stage_of(nats_server) as stage:
        running = stage.ticker("Often", 1, report_s=0.01)
        running.start()
        await stage.state(InstanceState.RUNNING, 1)
        stage.clock.now_ms += 100
        await stage.times("Often", 1)
        stage.clock.now_ms -= 3_600_000
        await stage.state(InstanceState.RETRYING, 1)
        late = stage.reports[-1]
        assert late.error is not None
        assert "clock is 3600 s earlier than the last event" in late.error
        assert late.retry_at_ms == START_MS + 100
        # No time has two events.
        stage.reports.clear()
        stage.clock.now_ms += 3_600_100
        assert await stage.times("Often", 2) == [START_MS + 100, START_MS + 200]
        await stage.state(InstanceState.RUNNING, 1)
        running.stop()
        await asyncio.to_thread(running.join)


async def test_a_stream_that_takes_no_more_is_told_and_no_time_is_left_out(
    nats_server: server.NatsServer,
) -> None:
    async with stage_of(nats_server) as stage:
        js = stage.client.jetstream()
        running = stage.ticker("Often", 1)
        running.start()
        await stage.state(InstanceState.RUNNING, 1)
        config = (await js.stream_info("mesh-Ticks-Often")).config
        await js.update_stream(config.evolve(max_msgs=1, discard=api.DiscardPolicy.NEW))
        stage.clock.now_ms += 300
        await stage.state(InstanceState.RETRYING, 1)
        errors = [one.error or "" for one in stage.reports]
        assert any("The server says: maximum messages exceeded" in one for one in errors)
        await js.update_stream(config)
        assert await stage.times("Often", 3) == [START_MS + 100 * n for n in (1, 2, 3)]
        running.stop()
        await asyncio.to_thread(running.join)


async def test_start_fires_once_and_cron_by_the_calendar(nats_server: server.NatsServer) -> None:
    async with stage_of(nats_server) as stage:
        for epoch in (1, 2):
            tickers = [stage.ticker(name, epoch, refresh_s=0.0) for name in ("Once", "Clock")]
            for ticker in tickers:
                ticker.start()
                await stage.state(InstanceState.RUNNING, epoch, ticker.io.assignment.instance)
            stage.clock.now_ms += 3_000
            await stage.times("Clock", 2 * epoch)
            for ticker in tickers:
                ticker.stop()
                await asyncio.to_thread(ticker.join)
        assert await stage.times("Once", 1) == [START_MS]
        # As in the engine the second in which it starts counts, if the expression holds in it.
        even = START_MS - START_MS % 2_000
        assert await stage.times("Clock", 4) == [START_MS, even + 2_000, even + 4_000, even + 6_000]


@pytest.mark.slow
async def test_old_markers_are_purged(nats_server: server.NatsServer) -> None:
    async with stage_of(nats_server) as stage:
        running = stage.ticker("Often", 1, markers_max=3)
        running.start()
        await stage.state(InstanceState.RUNNING, 1)
        for count in range(1, 12):
            stage.clock.now_ms += 100
            assert len(await stage.times("Often", count)) == count
        running.stop()
        await asyncio.to_thread(running.join)
        info = await stage.client.jetstream().stream_info("mesh-Ticks-Often", subjects_filter=">")
        (left,) = (n for name, n in (info.state.subjects or {}).items() if "_marker" in name)
        # One to begin with, one for each event.
        assert left == 12 % 3 + 1
