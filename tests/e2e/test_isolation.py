"""Apps that share a worker: errors of one of them must not affect the others."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

from mesh.model.cluster import InstanceState
from tests.support.events import rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from tools.cluster import MeshClusterView

pytestmark = [pytest.mark.nats, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(280)]

#: An instance of each group on each worker, so the others of both workers are checked.
GOOD = """@App:name('{name}')
define stream Feed (n int);
@dist(execGroup='sum', parallel='2')
partition with (n of Feed) begin from Feed select n, count() as c insert into Counts; end;
@dist(execGroup='copy', parallel='2')
from Feed select n insert into Copies;
"""

#: One event of it performs the action filled in.
DEADLY = """@App:name('Deadly')
define stream Feed (n int);
define function odd[python] return int {{
    import os
    while data[0] == 13:
        {does}
    return data[0]
}};
from Feed select odd(n) as n insert into Out;
"""
#: Each event keeps a task for some 20 ms.
SLOW = """@App:name('Slow')
define stream Feed (n int);
define function odd[python] return int {
    import hashlib
    hashlib.pbkdf2_hmac('sha256', b'', b'', 15000)
    return data[0]
};
from Feed select odd(n) as n insert into Out;
"""


async def publish(view: MeshClusterView, app: str, first: int, last: int) -> None:
    for n in range(first, last + 1):
        await view.js.publish(f"mesh.{app}.Feed", json.dumps({"n": n}).encode())


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("does", "times"),
    [
        pytest.param("os.kill(os.getpid(), 9)", 3, id="kills its process"),
        # Detected after 45 s; only instances with functions would wait so long.
        pytest.param("pass", 1, id="hangs", marks=pytest.mark.long),
    ],
)
def test_one_that_breaks_the_query_is_set_apart(
    play: Callable[..., None], does: str, times: int
) -> None:
    async def scene(view: MeshClusterView) -> None:
        await view.service.deploy(GOOD.format(name="Bystander"))
        await view.service.deploy(DEADLY.format(does=does))
        await view.until_running("Bystander")
        await view.until_running("Deadly")
        await publish(view, "Bystander", 1, 50)
        await publish(view, "Deadly", 1, 20)

        def is_failing() -> bool:
            statuses = [s.value for s in view.view.snapshot().statuses if s.value.app == "Deadly"]
            return any(s.restarts >= times for s in statuses)

        # Functions run in processes of their own, so the others do not even start again.
        await publish(view, "Bystander", 51, 75)
        assert len(await rows(view, "Bystander", "Copies", 75)) == 75
        assert does != "pass" or not is_failing()
        # By then it fails in a query of its own.
        await view.until(f"{times} failures", is_failing)
        await publish(view, "Bystander", 76, 100)
        counts = await rows(view, "Bystander", "Counts", 100)
        assert sorted((row["n"], row["c"]) for row in counts) == [(n, 1) for n in range(1, 101)]
        assert len(await rows(view, "Bystander", "Copies", 100)) == 100

        found = [s.value for s in view.view.snapshot().statuses if s.value.app == "Bystander"]
        assert {(s.state, s.restarts) for s in found} == {(InstanceState.RUNNING, 0)}
        if times > 1:
            # The event is found then: the others of the app go on.
            out = [row["n"] for row in await rows(view, "Deadly", "Out", 19)]
            assert out == [n for n in range(1, 21) if n != 13]
            # Its entry is in another stream than the rows of the same run.
            (entry,) = await view.until(
                "the entry", lambda: view.service.events.failed("Deadly", 10)
            )
            assert (entry["sequence"], entry["data"]) == (13, '{"n":13}')
            assert "at this message: Its process died." in entry["reason"]
        for name in ("Deadly", "Bystander"):
            await view.service.undeploy(name)

    play(scene)


@pytest.mark.extended
def test_a_slow_one_does_not_hold_the_others_up_for_long(play: Callable[..., None]) -> None:
    async def scene(view: MeshClusterView) -> None:
        await view.service.deploy(GOOD.format(name="Quick"))
        await view.service.deploy(SLOW)
        await view.until_running("Quick")
        await view.until_running("Slow")
        # Forty seconds of work.
        await publish(view, "Slow", 1, 2000)
        took_s = []
        for n in range(1, 31):
            began_s = time.monotonic()
            await publish(view, "Quick", n, n)
            await rows(view, "Quick", "Copies", n)
            took_s.append(time.monotonic() - began_s)
        done = await view.count("mesh-Slow-Out", "mesh.Slow.Out")
        assert done < 2000, "it was to be at work all the time"
        # Its first batch has 200 events, and the size of the next ones follows from a fair
        # duration.
        assert max(took_s) < 15, took_s
        assert sorted(took_s)[15] < 3, took_s
        assert len(await rows(view, "Quick", "Counts", 30)) == 30
        assert len(await rows(view, "Slow", "Out", 2000)) == 2000
        for name in ("Slow", "Quick"):
            await view.service.undeploy(name)

    play(scene)
