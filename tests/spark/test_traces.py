"""Traces of events through groups: links to messages, the header of the output, limits."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

import pytest

from mesh.telemetry import traces
from pyspark_nats.protocol import frames
from tests.support.collector import PARENT, TRACE, attributes
from tests.support.slots import mesh, shared

if TYPE_CHECKING:
    from tests.support.collector import Collector
    from tests.support.environment import Variables
    from tests.support.own_slots import Mesh, QueryWithoutSpark


__all__ = ("mesh", "shared")

pytestmark = [pytest.mark.nats, pytest.mark.timeout(60)]


def header_of(mesh: Mesh, stream: str, sequence: int) -> str:
    """The headers of a message, as it is stored."""
    call = f"$JS.API.STREAM.MSG.GET.mesh-A-{stream}", json.dumps({"seq": sequence}).encode()
    message = json.loads(mesh.hand.ask(call))["message"]
    return base64.b64decode(message.get("hdrs", "")).decode()


def test_a_trace_continues_through_channels_with_links_to_its_messages(
    collector: Collector, mesh: Mesh, shared: QueryWithoutSpark
) -> None:
    one = mesh.start("sums")
    mesh.runs("sums")
    broker, other = mesh.hand.broker, "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"
    for n, parent in enumerate([PARENT, other, "no such thing"]):
        block = frames.header_block({"traceparent": parent})
        frame = frames.publish("mesh.A.Numbers", b'{"n": %d}' % n, header=block)
        broker.retry_while_unavailable("publishing", lambda one=frame: broker.send(one))  # type: ignore[misc]
    mesh.rows("Sums", 3)
    one.stop(settle=True)
    one.join()
    traces.flush()
    linked = {TRACE, "ab" * 16}
    spans = collector.until(
        lambda spans: linked <= {link.trace_id.hex() for span in spans for link in span.links}
    )
    (run,) = [s for s in spans if TRACE in {link.trace_id.hex() for link in s.links}]
    assert run.name == "process sums"
    # The first message's trace continues below the span of its publisher.
    assert (run.trace_id.hex(), run.parent_span_id.hex()) == (TRACE, "b7ad6b7169203331")
    assert attributes(run)["messaging.system"] == "nats"
    assert attributes(run)["mesh.instance"] == "A-sums-1"
    (publish,) = [s for s in spans if s.parent_span_id == run.span_id]
    assert (publish.name, publish.trace_id.hex()) == ("publish sums", TRACE)
    wanted = f"traceparent: 00-{TRACE}-{publish.span_id.hex()}-01\r\n"
    assert wanted in header_of(mesh, "Sums", 1)


def test_links_are_bounded_and_what_is_not_sampled_is_not_sent(
    collector: Collector, environment: Variables
) -> None:
    many = traces.begin("process many")
    assert many is not None
    many.look(f"00-{n + 1:032x}-{n + 1:016x}-01" for n in range(2 * traces.LINKS_MAX))
    assert many.header_line().startswith(b"traceparent: 00-")
    many.look([PARENT])
    many.end(ValueError("broken"))
    traces.flush()
    (run,) = [s for s in collector.until(lambda s: len(s) == 2) if s.name == "process many"]
    assert len(run.links) == traces.LINKS_MAX
    assert run.status.code == 2
    traces.close()
    environment[traces.RATIO_VARIABLE] = "0.0"
    quiet = traces.begin("process quiet")
    assert quiet is not None
    assert quiet.header_line() == b""
    quiet.end()
    # A publisher who does not sample its trace: the header stays, nothing is sent.
    unsampled = traces.begin("process unsampled")
    assert unsampled is not None
    unsampled.look([PARENT[:-1] + "0"])
    assert TRACE.encode() in unsampled.header_line()
    unsampled.end()
    traces.flush()
    assert len(collector.spans) == 2
    del environment[traces.ENDPOINT_VARIABLE]
    assert traces.begin("process none") is None
