"""Client of a manager's REST API."""

from __future__ import annotations

import socket
import ssl
import time
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from mesh.cli.context import is_loopback
from mesh.errors import MeshError, Position
from mesh.progress import working

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import httpx

    from mesh.cli.context import Context
    from mesh.progress import Work

#: Longest wait of one request, after which progress is shown, and time for its answer, seconds.
_WAIT_S, _MARGIN_S = 2.0, 15.0
#: Codes of a manager that is not there, and the pause before it is asked again, seconds.
_AWAY, _AGAIN_S = ("MESH-U112", "MESH-A503"), 0.5
_REPLACE_S = 60.0
#: Interval at which a manager that starts is asked, seconds.
_LOOK_S = 0.2
#: Workers open one source or sink after the other; a manager measures each group.
_CHECK_S, _WHAT_IF_S = 210.0, 270.0
_TEXT = {"Content-Type": "text/plain; charset=utf-8"}
#: A state may be large.
_BACKUP_S = 600.0


class Client:
    """One cluster's API; used as a context manager."""

    def __init__(self, context: Context) -> None:
        if not context.server:
            raise MeshError(
                "MESH-U111",
                "no cluster named",
                detail="There is no --server, no MESH_SERVER and no context file.",
                hint="'mesh dev' starts a cluster and tells the other commands where it is.",
            )
        # Most commands have this module and no client.
        import httpx

        self._context = context
        self._http = httpx.Client(
            base_url=context.server,
            auth=_auth(context),
            headers={"Authorization": f"Bearer {context.token}"} if context.token else None,
            verify=_verify(context),
            timeout=httpx.Timeout(_MARGIN_S, connect=5.0),
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    @property
    def server(self) -> str:
        """The URL of the manager."""
        return self._context.server

    def server_time_s(self) -> float:
        """The manager's clock, in whole seconds since 1970."""
        said = self._http.get("/health/live").headers["date"]
        return parsedate_to_datetime(said).timestamp()

    def deploy(self, text: str) -> dict[str, Any]:
        """Deploy an app; the values have ``is_new``."""
        return self._one("POST", "/siddhi-apps", **_body(text))

    def update(
        self, text: str, *, replace: bool = False, reset: Sequence[str] = (), begin: str = "",
        has_history: bool = False,
    ) -> dict[str, Any]:  # fmt: skip
        """Deploy an app, or change the one of its name; ``has_history``: that may take long."""
        wanted = {
            "replace": "true" if replace else "false",
            "reset": list(reset),
            **({"from": begin} if begin else {}),
        }
        # The old one may be removed meanwhile.
        limit_s = None if has_history else _REPLACE_S
        return self._one("PUT", "/siddhi-apps", timeout=limit_s, **_body(text, wanted))

    def check(self, text: str) -> list[dict[str, Any]]:
        """Open an app's sources and sinks where they would run; the results."""
        return self._many("POST", "/siddhi-apps/check", timeout=_CHECK_S, **_body(text))

    def preview(self, text: str) -> dict[str, Any]:
        """The plan of a text on the cluster; see ``mesh.manager.deployed.Preview``."""
        return self._one("POST", "/siddhi-apps/plan", **_body(text))

    def what_if(self, text: str, at_rate: Sequence[str], keys: int, cores: int) -> dict[str, Any]:
        """The needs of an app at a rate; see ``mesh.plan.capacity``."""
        asked = {"at_rate": list(at_rate), "keys": str(keys), "cores": str(cores)}
        return self._one("POST", "/siddhi-apps/what-if", timeout=_WHAT_IF_S, **_body(text, asked))

    def scale(self, app: str, group: str, parallel: int) -> dict[str, Any]:
        """Change the number of instances of a group; returns the app's status."""
        wanted = {"group": group, "parallel": str(parallel)}
        return self._one("POST", _path(app, "/scale"), params=wanted)

    def switch(self, app: str, *, active: bool) -> dict[str, Any]:
        """Pause an app, or resume it; returns the app's status."""
        return self._one("PUT", _path(app), params={"active": "true" if active else "false"})

    def undeploy(self, app: str) -> dict[str, Any]:
        """Remove an app."""
        return self._one("DELETE", _path(app))

    def apps(self) -> list[dict[str, Any]]:
        """All apps."""
        return self._many("GET", "/siddhi-apps", params={"details": "true"})

    def app(self, app: str) -> dict[str, Any]:
        """An app's text and streams."""
        return self._one("GET", _path(app))

    def status(self, app: str) -> dict[str, Any]:
        """An app's state and its instances'."""
        return self._one("GET", _path(app, "/status"))

    def verify(self, app: str) -> dict[str, Any]:
        """Faults and risks of what NATS stores of an app."""
        return self._one("GET", _path(app, "/verification"))

    def wait_running(self, app: str, timeout_s: float) -> dict[str, Any]:
        """The status once the app runs, or after ``timeout_s``; with progress meanwhile.

        A manager that stops or starts again meanwhile is asked again.
        """
        with working(f'app "{app}" starts', at_most_s=timeout_s) as work:
            return self._wait_running(app, timeout_s, work)

    def _wait_running(self, app: str, timeout_s: float, work: Work) -> dict[str, Any]:
        ends_s = time.monotonic() + timeout_s
        while True:
            left_s = max(0.0, ends_s - time.monotonic())
            asked_s = min(left_s, _WAIT_S)
            parameters = {"wait": "running", "timeout": f"{asked_s:g}"}
            try:
                found = self._one(
                    "GET", _path(app, "/status"), params=parameters, timeout=asked_s + _MARGIN_S
                )
            except MeshError as error:
                if error.code not in _AWAY or not left_s:
                    raise
                time.sleep(min(_AGAIN_S, left_s))
            else:
                if asked_s == left_s or found["state"] == "running":
                    return found
                states = [one.get("state") for one in found.get("instances") or ()]
                work.tell(_progress_of(app, found), states.count("running"), len(states))

    def query(
        self, app: str, query: str, min_position: dict[str, int], *, partial: bool
    ) -> dict[str, Any]:
        """The answer to an on-demand query, with its columns."""
        wanted: dict[str, Any] = {"appName": app, "query": query, "details": True}
        wanted |= {"min_position": min_position, "partial": partial}
        return self._one("POST", "/stores/query", json=wanted)

    def failed(self, app: str, limit: int) -> list[dict[str, Any]]:
        """Events that could not be read or failed in a query."""
        return self._many("GET", _failed(app), params={"limit": limit})

    def replay(
        self,
        app: str,
        ids: list[int] | None,
        event: dict[str, Any] | None = None,
        *,
        to_stream: bool = False,
    ) -> dict[str, Any]:
        """Replay failed events, None for all; a single one as ``event``."""
        wanted: dict[str, Any] = {"all": True} if ids is None else {"ids": ids}
        if ids is not None and event is not None:
            wanted = {"id": ids[0], "event": event}
        if to_stream:
            wanted["to"] = "stream"
        return self._one("POST", _failed(app, "/replay"), json=wanted, timeout=_REPLACE_S)

    def discard(self, app: str, id_: int) -> dict[str, Any]:
        """Discard a failed event."""
        return self._one("DELETE", _failed(app, f"/{id_}"))

    def discard_many(self, app: str, older_than_s: float | None = None) -> dict[str, Any]:
        """Discard all failed events, or the older ones."""
        which = {"all": "true"} if older_than_s is None else {"olderThan": f"{older_than_s:g}"}
        return self._one("DELETE", _failed(app), params=which, timeout=_REPLACE_S)

    def backup(self, app: str) -> dict[str, Any]:
        """Back an app up; returns the backup."""
        return self._one("POST", _path(app, "/backup"), timeout=_BACKUP_S)

    def backups(self, app: str) -> list[dict[str, Any]]:
        """The backups of an app, oldest first."""
        return self._many("GET", _path(app, "/revisions"))

    def delete_backups(self, app: str, revision: str | None) -> dict[str, Any]:
        """Delete one backup of an app, or all with None."""
        which = "" if revision is None else f"/{quote(revision, safe='')}"
        return self._one("DELETE", _path(app, f"/revisions{which}"), timeout=_REPLACE_S)

    def restore(self, app: str, **which: str) -> dict[str, Any]:
        """Restore a backup; ``which`` are the parameters of the REST API."""
        return self._one("POST", _path(app, "/restore"), params=which, timeout=_BACKUP_S)

    def fork(self, app: str, text: str | None, **which: str) -> dict[str, Any]:
        """Fork an app; ``which`` are the parameters of the REST API."""
        more = {"params": which} if text is None else _body(text, which)
        return self._one("POST", _path(app, "/fork"), timeout=_BACKUP_S, **more)

    def backfill(self, text: str, which: dict[str, list[str]]) -> dict[str, Any]:
        """Deploy an app after its history; ``which`` are the parameters of the REST API."""
        return self._one("POST", "/siddhi-apps/backfill", timeout=None, **_body(text, which))

    def promote(self, fork: str, replaces: str | None) -> dict[str, Any]:
        """Give the app of a fork the fork's text, and remove the fork."""
        asked = {} if replaces is None else {"replaces": replaces}
        return self._one("POST", _path(fork, "/promote"), params=asked, timeout=_BACKUP_S)

    def compare(
        self, app: str, other: str, streams: Sequence[str], key: Sequence[str]
    ) -> dict[str, Any]:
        """The differences of the outputs of two apps."""
        path = _path(app, f"/compare/{quote(other, safe='')}")
        asked = {"stream": list(streams), "key": list(key)}
        return self._one("GET", path, params=asked, timeout=_BACKUP_S)

    def why(self, app: str, stream: str, sequence: int, index: int) -> dict[str, Any]:
        """The lineage of an event."""
        path = _path(app, f"/why/{quote(stream, safe='')}/{sequence}")
        return self._one("GET", path, params={"index": index}, timeout=_BACKUP_S)

    def nodes(self) -> list[dict[str, Any]]:
        """Managers and workers."""
        return self._many("GET", "/nodes")

    def overview(self) -> dict[str, Any]:
        """Problems, apps, nodes and flows, the worst first."""
        return self._one("GET", "/overview")

    def story(self, app: str) -> list[dict[str, Any]]:
        """The journal entries of an app."""
        return self._many("GET", _path(app, "/story"))

    def order_node(self, node: str, order: str) -> dict[str, Any]:
        """Order a worker to ``cordon``, ``uncordon`` or ``drain``."""
        return self._one("POST", f"/nodes/{quote(node, safe='')}/{order}")

    def wait_until_up(self, limit_s: float) -> None:
        """Wait for a manager on this machine that does not listen yet.

        Another machine's manager is not waited for: a wrong address is more likely.
        """
        if not is_loopback(self._context.server) or self._listens():
            return
        deadline_s = time.monotonic() + limit_s
        with working(f"the manager at {self._context.server} starts", at_most_s=limit_s):
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

    def health(self) -> bool:
        """Whether the manager answers."""
        import httpx

        try:
            return self._http.get("/health", timeout=2).is_success
        except httpx.HTTPError:
            return False

    def _one(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        found: dict[str, Any] = self.ask(method, path, **more)
        return found

    def _many(self, method: str, path: str, **more: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ask(method, path, **more)
        return found

    def ask(self, method: str, path: str, **more: Any) -> Any:
        """The values of any answer; ``more`` as for httpx."""
        import httpx

        try:
            with working(f"the manager answers {method} {path}"):
                answer = self._http.request(method, path, **more)
        except httpx.TimeoutException as error:
            raise MeshError(
                "MESH-U112", f"manager at {self._context.server} does not answer in time"
            ) from error
        except httpx.HTTPError as error:
            raise MeshError(
                "MESH-U112",
                f"manager at {self._context.server} can't be reached",
                detail=f"{error}.",
                hint="Is it running?  --ca or --insecure is for its certificate.",
            ) from error
        return self._values(answer)

    def _values(self, answer: httpx.Response) -> Any:
        try:
            values = answer.json()
        except ValueError as error:
            detail = f"HTTP {answer.status_code}, {answer.headers.get('content-type')}."
            server = self._context.server
            # A proxy says so of a manager that is away.
            if answer.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR:
                raise MeshError(
                    "MESH-U112", f"manager at {server} can't be reached", detail=detail
                ) from error
            raise MeshError(
                "MESH-U113", f"the server at {server} is no manager", detail=detail
            ) from error
        if answer.is_success:
            return values
        if answer.status_code == HTTPStatus.UNAUTHORIZED:
            values["hint"] = (
                "--user and --password, or MESH_USER and MESH_PASSWORD, say who you are; "
                "'mesh login' signs in by an identity provider."
            )
        position = values.get("position")
        raise MeshError(
            values.get("code", f"MESH-A{answer.status_code}"),
            values.get("message", "request refused"),
            detail=values.get("detail"),
            hint=values.get("hint"),
            position=Position(**position) if position else None,
        )


def ask(at: Context, method: str, path: str, **more: Any) -> Any:
    """The values of one answer of a cluster."""
    with Client(at) as client:
        return client.ask(method, path, **more)


def with_status(client: Client, done: dict[str, Any], app: str, timeout_s: float) -> dict[str, Any]:
    """An outcome with the status of its app, and whether it runs; as it is without a time."""
    if not timeout_s:
        return done
    status = client.wait_running(app, timeout_s)
    return {**done, "status": status, "running": status["state"] == "running"}


def _progress_of(app: str, status: Mapping[str, Any]) -> str:
    reason = f": {status['reason']}" if status.get("reason") else ""
    return f'app "{app}" is {status["state"]}{reason}'


def _body(text: str, asked: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A request with the text of an app; positions in errors are those of the text as given."""
    from mesh.language.naming import NamedText

    parameters, body = dict(asked or {}), text
    if isinstance(text, NamedText):
        body, parameters["name"] = text.given, text.name
    return {"content": body.encode(), "headers": _TEXT, "params": parameters}


def _path(app: str, rest: str = "") -> str:
    return f"/siddhi-apps/{quote(app, safe='')}{rest}"


def _failed(app: str, rest: str = "") -> str:
    return f"/error-handler/{quote(app, safe='')}{rest}"


def _auth(context: Context) -> httpx.Auth | None:
    """The credentials of a request; a token of the context is a header instead."""
    if context.token:
        return None
    # Only here: see ``Client``.
    import httpx

    from mesh.cli import logins

    login = logins.find(Path(context.login), context.server) if context.login else None
    if login is not None:
        return logins.LoginAuth(Path(context.login), context.server, login)
    return httpx.BasicAuth(context.user, context.password) if context.user else None


def _verify(context: Context) -> ssl.SSLContext | bool:
    if context.insecure:
        return False
    if not context.ca:
        return True
    try:
        return ssl.create_default_context(cafile=context.ca)
    except (OSError, ssl.SSLError) as error:
        raise MeshError(
            "MESH-U130", f'certificate "{context.ca}" can\'t be used', detail=f"{error}."
        ) from error
