"""The client of the commands: when a manager is waited for."""

from __future__ import annotations

import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mesh.cli.options import CommandClient
from mesh.client import ClientContext

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest


def test_a_manager_on_this_machine_that_does_not_listen_yet_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[str] = []

    @contextmanager
    def heard(what: str, **_: object) -> Iterator[None]:
        said.append(what)
        yield

    monkeypatch.setattr("mesh.cli.options.working", heard)
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        at = ClientContext(server=f"http://127.0.0.1:{bound.getsockname()[1]}")
        with CommandClient(at) as client:
            client.wait_until_up(0.0)
            assert said == [f"the manager at {at.server} starts"]
            bound.listen()
            client.wait_until_up(0.0)
            assert len(said) == 1
    # A wrong address of another machine is an error at once.
    with CommandClient(ClientContext(server="http://192.0.2.1:9543")) as client:
        client.wait_until_up(60.0)
    assert len(said) == 1
