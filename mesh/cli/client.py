"""Client of commands: its requests and waits show their progress."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING, Final

from mesh import client
from mesh.client.context import is_loopback
from mesh.processes.progress import working

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx

    from mesh.model.answers import StatusAnswer
    from mesh.model.values import JsonMapping, JsonObject

#: Interval at which a manager that starts is asked, seconds.
_LOOK_S: Final = 0.2


class CommandClient(client.Client):
    """One cluster's API; what takes long is shown on standard error."""

    #: Between two lines of progress.
    poll_s = 2.0

    def wait_running(
        self, app: str, timeout_s: float, note: Callable[[StatusAnswer], None] | None = None
    ) -> StatusAnswer:
        """The status once the app runs, or after ``timeout_s``."""
        with working(f'app "{app}" starts', at_most_s=timeout_s) as work:

            def show(status: StatusAnswer) -> None:
                states = [one["state"] for one in status["instances"]]
                reason = f": {status['reason']}" if status.get("reason") else ""
                message = f'app "{app}" is {status["state"]}{reason}'
                # What it waits for does not come the sooner, the more instances run.
                is_open = status["state"] in ("waiting", "failing")
                work.tell(message, states.count("running"), 0 if is_open else len(states))

            return super().wait_running(app, timeout_s, note or show)

    def wait_until_up(self, limit_s: float) -> None:
        """Wait for a manager on this machine that does not listen yet.

        Another machine's manager is not waited for: a wrong address is more likely.
        """
        if not is_loopback(self.server) or self._listens():
            return
        deadline_s = time.monotonic() + limit_s
        with working(f"the manager at {self.server} starts", at_most_s=limit_s):
            while time.monotonic() < deadline_s and not self._listens():
                time.sleep(_LOOK_S)

    def _listens(self) -> bool:
        """Whether the manager's port is bound; a certificate that does not fit is no reason."""
        url = self._http.base_url
        port = url.port or (443 if url.scheme == "https" else 80)
        try:
            socket.create_connection((url.host, port), timeout=2).close()
        except OSError:
            return False
        return True

    def _send(self, request: httpx.Request) -> httpx.Response:
        with working(f"the manager answers {request.method} {request.url.path}"):
            return super()._send(request)


def with_status(client: CommandClient, done: JsonMapping, app: str, timeout_s: float) -> JsonObject:
    """An outcome with the status of its app, and whether it runs; as it is without a time."""
    if not timeout_s:
        return dict(done)
    status = client.wait_running(app, timeout_s)
    return {**done, "status": status, "running": status["state"] == "running"}
