"""All faults: a name, the journal entries that each must leave, and its action.

A story's patterns have placeholders, with the state at the start of the load. ``<holder>`` is the
worker with the first instance of the group by key, ``<other>`` the one without. ``<leader>`` and
``<follower>`` are the managers, and ``<app>`` is the app.
"""

from __future__ import annotations

from typing import Final

from bench.chaos import connector_scenarios, hostile_scenarios, machine_scenarios
from bench.chaos.faults import databases, forms, managers, servers, workers
from bench.chaos.scenario import CALM, Scenario
from bench.chaos.stage import Topology
from tools.links import When

GONE: Final = (r"placed <app>-sums-1 on <other> .*worker <holder> is gone", r"runs <app>-sums-1")


_AWAY: Final = (r"lost its connection to NATS", r"is connected to NATS again")
_HOLDER_AWAY: Final = tuple(f"worker <holder> {told}" for told in _AWAY)
_TOOK_OVER: Final = (r"manager <follower> leads",)
_DRAINED: Final = (
    *_TOOK_OVER,
    r"manager <follower> withdrew <app>-sums-1 from <holder> .*drained",
    r"worker <holder> has stopped <app>-sums-1",
    r"manager <follower> placed <app>-sums-1 on <other>",
)
_CHANGED: Final = (
    r"changed app <app>",
    r"gave group whole 1 instance.*group whole changes",
    r"runs <app>-whole-1",
)


def _scaled(group: str, before: int, after: int) -> tuple[str, ...]:
    """Entries about a group that was rescaled."""
    return (
        rf"asked for {after} instances? of group {group}",
        rf"withdrew <app>-{group}-1 .*group {group} goes from {before} to {after}",
        rf"gave group {group} {after} instance",
        rf"runs <app>-{group}-1",
    )


SCENARIOS: Final = (
    Scenario(CALM, "nothing at all", servers.calm, topology=Topology.THREE, rate=200),
    *(
        Scenario(
            f"worker-killed-{when}-commit",
            f"worker killed {when} a sink's commit",
            workers.killed_at(when),
            GONE,
        )
        for when in When
    ),
    Scenario(
        "session-killed",
        "a worker's Spark session killed",
        workers.session_killed,
        (r"worker <holder> starts another session", r"runs <app>-sums-1"),
    ),
    Scenario(
        "worker-restarted",
        "worker killed and started again at once",
        workers.worker_restarted,
        (
            r"placed <app>-sums-1 on <other> .*worker <holder> (is gone|was started again)",
            r"runs <app>-sums-1",
        ),
        (r"worker <holder> began",),
    ),
    Scenario(
        "worker-replaced",
        "worker killed, a new one in its place",
        workers.worker_replaced,
        (r"placed <app>-sums-1 on w3 .*worker <holder> is gone", r"worker w3 runs <app>-sums-1"),
    ),
    Scenario("worker-paused", "worker paused past its term", workers.worker_paused, GONE),
    Scenario(
        "agent-paused",
        "new parts run before old ones have stopped (agent paused)",
        workers.agent_paused,
        GONE,
    ),
    Scenario(
        "worker-cut-up",
        "nothing from a worker arrives",
        workers.worker_cut(up=True, down=False),
        GONE,
    ),
    Scenario(
        "worker-cut-down", "nothing reaches a worker", workers.worker_cut(up=False, down=True), GONE
    ),
    Scenario(
        "worker-cut", "worker cut off both ways", workers.worker_cut(up=True, down=True), GONE
    ),
    Scenario(
        "duplicate-turned-away",
        "second worker of one name",
        workers.turned_away,
        (r"was refused the name w1",),
    ),
    Scenario(
        "duplicate-takes-over",
        "second worker takes a paused one's name",
        workers.name_taken,
        GONE,
        (r"worker <holder> began", r"worker <holder> ends.*took its name"),
    ),
    Scenario(
        "rolling-restart",
        "workers restarted one after the other",
        workers.rolling_restart,
        (
            r"worker w1 hands over and ends",
            r"withdrew <app>-\S+ from w1 ",
            r"worker w1 began",
            r"worker w2 hands over and ends",
            r"worker w2 began",
        ),
    ),
    Scenario(
        "storm",
        "workers join and leave",
        workers.storm,
        (r"withdrew <app>-\S+ from w1 .*drained", r"worker w3 is ready", r"worker w2 began"),
    ),
    Scenario(
        "moved-about",
        "everything moved twice each way",
        workers.moved_about,
        (
            r"withdrew <app>-sums-1 from <holder> ",
            r"placed <app>-sums-1 on <other> ",
            r"withdrew <app>-sums-1 from <other> ",
            r"placed <app>-sums-1 on <holder> ",
        ),
    ),
    Scenario(
        "receiver-lost-receiver-first",
        "receiver and readers lost, receiver started first",
        workers.lost_and_started("w1", "w2"),
        (r"worker w1 began", r"worker w2 began", r"runs <app>-sums-1"),
        (r"worker w1 began", r"runs <app>-receiver-S-1"),
        in_sides=True,
    ),
    Scenario(
        "receiver-lost-readers-first",
        "receiver and readers lost, readers started first",
        workers.lost_and_started("w2", "w1"),
        (r"worker w2 began", r"worker w1 began", r"runs <app>-receiver-S-1"),
        (r"worker w2 began", r"runs <app>-sums-1"),
        in_sides=True,
    ),
    Scenario(
        "receiver-lost",
        "receiver lost alone",
        workers.lost_and_started("w1"),
        (r"worker w1 began", r"runs <app>-receiver-S-1"),
        in_sides=True,
    ),
    Scenario("leader-paused", "leader paused past its lease", managers.leader_paused, _DRAINED),
    Scenario(
        "leader-cut-up",
        "nothing from the leader arrives",
        managers.leader_cut(up=True, down=False),
        _DRAINED,
    ),
    Scenario(
        "leader-cut-down",
        "nothing reaches the leader",
        managers.leader_cut(up=False, down=True),
        _DRAINED,
    ),
    Scenario(
        "leader-cut", "leader cut off both ways", managers.leader_cut(up=True, down=True), _DRAINED
    ),
    Scenario("managers-killed", "all managers killed", managers.managers_killed, _TOOK_OVER),
    Scenario(
        "leader-killed-placing",
        "leader killed half-way through a deploy's placements",
        managers.killed_placing,
        (
            # The leader's last entries died with it.
            r"manager <leader> placed <app>-flat-1",
            r"manager <follower> leads",
            r"manager <follower> placed <app>-sums-2",
            r"runs <app>-sums-2",
        ),
        deploys=True,
    ),
    Scenario(
        "leader-killed-answering",
        "manager killed before it has written a deploy down",
        managers.killed_answering,
        (r"deployed app <app>", r"manager <follower> placed <app>-sums-1"),
        deploys=True,
    ),
    Scenario(
        "two-deploys",
        "two deploys of one app at once",
        managers.two_deploys,
        (r"deployed app <app>", r"placed <app>-sums-1", r"runs <app>-sums-1"),
        deploys=True,
    ),
    Scenario(
        "rescaled",
        "groups of 2 instances scaled to 4, then to 1",
        forms.rescaled,
        (*_scaled("sums", 2, 4), *_scaled("sums", 4, 1)),
        (*_scaled("flat", 2, 4), *_scaled("flat", 4, 1)),
    ),
    Scenario(
        "rescaled-worker-killed",
        "worker killed while groups are scaled",
        forms.rescaled_killed,
        _scaled("sums", 2, 4),
        # Its groups that were not rescaled.
        (r"asked for 4 instances of group flat", r"worker <holder> is gone"),
    ),
    Scenario(
        "rescaled-leader-killed",
        "leader killed while groups are scaled",
        forms.rescaled_led,
        # The leader's last entries died with it.
        (
            r"asked for 1 instance of group sums",
            r"group sums goes from 2 to 1",
            r"runs <app>-sums-1",
        ),
        (r"asked for 1 instance of group flat", *_TOOK_OVER),
    ),
    Scenario("edited", "a query added to a group with state", forms.edited, _CHANGED),
    Scenario(
        "edited-worker-killed",
        "worker killed while a group is changed",
        forms.edited_killed,
        _CHANGED,
        (r"changed app <app>", r"worker \w+ is gone"),
    ),
    Scenario(
        "server-restarted",
        "NATS server restarted",
        servers.server_restarted,
        _AWAY,
        has_one_server=True,
    ),
    Scenario(
        "server-killed",
        "NATS server killed",
        servers.server_killed,
        _AWAY,
        has_one_server=True,
    ),
    Scenario(
        "nats-away",
        "no NATS server for 30 s",
        servers.nats_away,
        (
            r"lost its connection to NATS",
            r"worker <holder> stops .*no heartbeat was accepted",
            r"worker <holder> is connected to NATS again",
            r"runs <app>-sums-1",
        ),
        has_one_server=True,
    ),
    Scenario(
        "leaders-stepped-down",
        "leaders of all streams step down",
        servers.stepped_down,
        (r"NATS reported new leaders: .* of mesh-<app>-",),
        (r"NATS reported new leaders: .* of KV_mesh_",),
        topology=Topology.THREE,
    ),
    Scenario(
        "node-killed",
        "one NATS server of three killed",
        servers.node_killed,
        _HOLDER_AWAY,
        topology=Topology.THREE,
    ),
    *(
        Scenario(
            f"{role}-leader-killed",
            f"the NATS server of three killed that leads {what}",
            servers.leader_killed(role),
            topology=Topology.THREE,
            rate=200,
            excess_s=1.0,
        )
        for role, what in (
            ("input", "an app's input"),
            ("outputs", "an app's outputs"),
            ("records", "the records and states"),
            ("cluster", "the cluster"),
            ("no", "nothing"),
        )
    ),
    Scenario(
        "machine-killed",
        "one of two machines dies: a worker, the leader and a NATS server",
        servers.host_killed,
        (r"manager <follower> leads", *GONE),
        topology=Topology.THREE,
        has_standbys=True,
    ),
    Scenario(
        "nodes-killed",
        "all three NATS servers killed",
        servers.nodes_killed,
        _AWAY,
        topology=Topology.THREE,
    ),
    Scenario(
        "node-cut",
        "one NATS server of three cut off",
        servers.node_cut,
        _HOLDER_AWAY,
        topology=Topology.APART,
    ),
    Scenario(
        "database-restarted",
        "PostgreSQL with an aggregation killed and started again",
        databases.restarted,
        has_database=True,
    ),
    Scenario(
        "database-away",
        "no PostgreSQL for 25 s",
        databases.away,
        (r"will start again <app>-stored-1 .*does not answer", r"runs <app>-stored-1"),
        has_database=True,
    ),
    Scenario(
        "database-writer-killed",
        "worker that writes PostgreSQL killed",
        databases.writer_killed,
        (r"runs <app>-stored-1", r"placed <app>-stored-1", r"runs <app>-stored-1"),
        has_database=True,
    ),
    Scenario(
        "database-and-writer-killed",
        "PostgreSQL and the worker that writes it killed",
        databases.both_killed,
        (r"runs <app>-stored-1", r"placed <app>-stored-1", r"runs <app>-stored-1"),
        has_database=True,
    ),
    *hostile_scenarios.SCENARIOS,
    *machine_scenarios.SCENARIOS,
    *connector_scenarios.SCENARIOS,
)
