"""A driver killed, paused, run twice, or reset to an old checkpoint: its output stays exact.

Moments are chosen by the progress of the output, with a random number of a fixed seed.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from pyspark_nats import tuning
from pyspark_nats.errors import FENCED, DivergedError
from tests.pyspark_nats.faults.query import INPUTS, OTHER_CUT, Setup, batches, compare, fill
from tests.pyspark_nats.faults.relay import stored
from tests.support.nats_cluster import create_replicated

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.pyspark_nats.faults.query import Driver
    from tests.support.broker import Broker
    from tests.support.nats_cluster import Cluster

    Start = Callable[[Setup], Driver]

pytestmark = [pytest.mark.nats, pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def setup(broker: Broker, tmp_path: Path) -> Setup:
    """A query from two streams to one, in small batches."""
    for name in INPUTS:
        broker.create(name)
    broker.create("OUT", "out.>")
    return Setup.between(broker.url, tmp_path)


def check(broker: Broker, rows: int, *, may_stop_short: bool = False) -> None:
    """Compare OUT with the output for ``rows`` of each input."""
    compare(stored(broker, "OUT"), dict.fromkeys(INPUTS, rows), may_stop_short=may_stop_short)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [1])
def test_a_driver_killed_at_random_moments(
    broker: Broker, setup: Setup, start: Start, seed: int
) -> None:
    chance = random.Random(seed)
    fill(broker, 2500)

    def kill(driver: Driver, *, most: int) -> None:
        driver.wait(broker, broker.info("OUT").last + chance.randint(300, most))
        if chance.random() < 0.5:
            driver.kill()
        else:
            driver.kill_program()

    kill(start(setup), most=1000)
    # Large batches go out in several atomic ones: the kill falls between those, or into one.
    kill(start(setup.cut(6000)), most=1800)
    rows = 4000
    fill(broker, rows, first=2500)
    kill(start(setup), most=1000)
    start(setup).finish()
    check(broker, rows)
    assert batches(setup.checkpoint) >= 80


@pytest.mark.extended
@pytest.mark.parametrize("seed", [1])
def test_python_workers_killed_at_random_moments(
    broker: Broker, setup: Setup, start: Start, seed: int
) -> None:
    chance = random.Random(seed)
    rows = 2000
    fill(broker, rows)
    # A task may fail four times before its query does.
    driver = start(setup.on("local[2,4]"))
    kills = 0
    for _ in range(9):
        driver.wait(broker, broker.info("OUT").last + chance.randint(50, 300))
        workers = driver.workers()
        if workers:
            chance.choice(workers).kill()
            kills += 1
    driver.finish()
    check(broker, rows)
    assert kills >= 6
    assert batches(setup.checkpoint) >= 130


@pytest.mark.extended
def test_a_paused_driver_that_was_replaced_is_refused_when_it_wakes(
    broker: Broker, setup: Setup, start: Start
) -> None:
    rows = 1500
    fill(broker, rows)
    paused = start(setup.to(epoch="1"))
    paused.wait(broker, 500)
    paused.pause()
    heir = start(setup.copied("heir").to(epoch="2"))
    heir.wait(broker, broker.info("OUT").last + 100)
    paused.resume()
    assert FENCED in paused.failure()
    heir.finish()
    check(broker, rows)


def with_old_checkpoint(broker: Broker, setup: Setup, start: Start) -> Setup:
    """Continue with a copy of the old checkpoint; returns the query with the copy."""
    driver = start(setup)
    driver.wait(broker, 500)
    # A copy of files that do not move.
    driver.pause()
    old = setup.copied("old")
    driver.resume()
    driver.wait(broker, broker.info("OUT").last + 500)
    driver.kill()
    assert batches(setup.checkpoint) > batches(old.checkpoint) + 5
    return old


@pytest.mark.extended
def test_an_old_checkpoint_doubles_nothing_when_rows_carry_their_place(
    broker: Broker, setup: Setup, start: Start
) -> None:
    rows = 1500
    fill(broker, rows)
    old = with_old_checkpoint(broker, setup.carrying_place(), start)
    start(old.cut(OTHER_CUT)).finish()
    check(broker, rows)


@pytest.mark.extended
def test_a_driver_killed_whose_checkpoint_is_behind_its_output(
    broker: Broker, setup: Setup, start: Start
) -> None:
    rows = 1500
    fill(broker, rows)
    setup = setup.carrying_place().to(**tuning.asynchronous_progress(interval_s=3600))
    driver = start(setup)
    driver.wait(broker, 700)
    driver.kill()
    assert batches(setup.checkpoint) == 1
    start(setup.cut(OTHER_CUT)).finish()
    check(broker, rows)


@pytest.mark.extended
def test_an_old_checkpoint_is_refused_when_rows_do_not_carry_their_place(
    broker: Broker, setup: Setup, start: Start
) -> None:
    rows = 1500
    fill(broker, rows)
    old = with_old_checkpoint(broker, setup, start)
    assert DivergedError.code in start(old.cut(OTHER_CUT)).failure()
    check(broker, rows, may_stop_short=True)


@pytest.mark.extended
def test_two_drivers_on_copies_of_a_checkpoint(broker: Broker, setup: Setup, start: Start) -> None:
    rows = 1500
    fill(broker, rows)
    setup = setup.carrying_place()
    before = start(setup)
    before.wait(broker, 300)
    before.kill()
    both = [start(setup), start(setup.copied("twin").cut(OTHER_CUT))]
    for driver in both:
        driver.finish()
    check(broker, rows)


@pytest.mark.extended
def test_two_drivers_of_one_producer_are_exact_or_refused(
    broker: Broker, setup: Setup, start: Start
) -> None:
    rows = 1000
    fill(broker, rows)
    setup = setup.to(producer="p")
    both = [start(setup), start(setup.copied("twin").cut(OTHER_CUT))]
    failures = [driver.failure() for driver in both]
    assert all(DivergedError.code in failure for failure in failures if failure)
    check(broker, rows, may_stop_short=all(failures))


@pytest.mark.extended
def test_leaders_killed_under_a_running_query(
    cluster: Cluster, cluster_broker: Broker, tmp_path: Path, start: Start
) -> None:
    rows = 2000
    for name in INPUTS:
        create_replicated(cluster_broker, name)
    create_replicated(cluster_broker, "OUT", "out.>")
    fill(cluster_broker, rows)
    driver = start(Setup.between(cluster_broker.url, tmp_path))
    for stream in ("OUT", "IN0"):
        cluster.wait_for_replicas(cluster_broker, *INPUTS, "OUT")
        driver.wait(cluster_broker, cluster_broker.info("OUT").last + 300)
        killed = cluster.leader_of(cluster_broker, stream)
        cluster.kill(killed)
        driver.wait(cluster_broker, cluster_broker.info("OUT").last + 300)
        cluster.restart(killed)
    driver.finish()
    check(cluster_broker, rows)
