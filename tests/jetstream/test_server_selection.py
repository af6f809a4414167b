"""Choice of the next server after a lost connection."""

from __future__ import annotations

from urllib.parse import urlparse

import pytest
from nats.aio.client import Server

from mesh.jetstream.connection import HURRY_S, ServerSelection


def servers(count: int) -> list[Server]:
    return [Server(urlparse(f"nats://n{number}:4222")) for number in range(1, count + 1)]


def tried(turns: ServerSelection, known: list[Server], times: int) -> list[tuple[str, float]]:
    found = []
    for _ in range(times):
        server, pause_s = turns.next(known, {})
        assert server is not None
        found.append((str(server.uri.hostname), pause_s))
    return found


def test_the_server_that_was_left_comes_last_and_has_time_when_all_had_a_turn() -> None:
    waits: list[float] = []
    turns = ServerSelection(lambda: "n2:4222", waits.append, timeout_s=5.0, pause_s=0.2)
    first = tried(turns, servers(3), 3)
    assert [name for name, _ in first[:2]] in (["n1", "n3"], ["n3", "n1"])
    assert first[2] == ("n2", 0.0)
    assert waits == [HURRY_S] * 3
    # Once more around, in the same order, with a pause before each.
    assert tried(turns, servers(3), 3) == [(name, 0.2) for name, _ in first]
    assert waits[3:] == [5.0] * 3
    turns.begin()
    assert tried(turns, servers(3), 3)[2] == ("n2", 0.0)


def test_a_server_that_is_told_of_meanwhile_has_its_turn() -> None:
    turns = ServerSelection(lambda: "n1:4222", lambda _: None, timeout_s=5.0, pause_s=0.2)
    assert tried(turns, servers(2), 1) == [("n2", 0.0)]
    assert tried(turns, servers(3), 2) == [("n1", 0.0), ("n3", 0.0)]
    # One that has left the cluster has none.
    assert tried(turns, servers(1), 2) == [("n1", 0.2), ("n1", 0.2)]


@pytest.mark.parametrize("timeout_s", [0.5, 5.0])
def test_the_only_server_has_all_the_time(timeout_s: float) -> None:
    waits: list[float] = []
    turns = ServerSelection(lambda: "n1:4222", waits.append, timeout_s=timeout_s, pause_s=0.2)
    assert tried(turns, servers(1), 2) == [("n1", 0.0), ("n1", 0.2)]
    assert waits == [timeout_s] * 2
