"""Clients of a manager's REST API, with a call for each operation of the table.

Both share all that is no I/O: requests are made and answers are read by ``_Calls``.
"""

from __future__ import annotations

import asyncio
import copy
import ssl
import time
from abc import abstractmethod
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Self, TypeVar, cast

from mesh.client.context import address
from mesh.client.taps import AsyncTap, Tap, publish, publish_blocking
from mesh.errors import MeshError, error_of
from mesh.model.operation import LIMIT_S, TEXT_TYPE, AsyncCaller, Caller
from mesh.model.operations import (
    AccountOperations,
    AppOperations,
    BackupOperations,
    ClusterOperations,
    EventOperations,
    QueryOperations,
    TimeOperations,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import httpx

    from mesh.client.context import ClientContext
    from mesh.model.answers import StatusAnswer
    from mesh.model.operation import Operation
    from mesh.model.values import JsonMapping, JsonObject

P = ParamSpec("P")
R = TypeVar("R")

#: Codes of a manager that is not there, and the pause before it is asked again, seconds.
_AWAY: Final = ("MESH-U112", "MESH-A503")
_AGAIN_S: Final = 0.5
#: For a limit of its own instead of that of the table.
_OF_TABLE: Final = -1.0


class _Calls(
    AppOperations,
    BackupOperations,
    TimeOperations,
    QueryOperations,
    EventOperations,
    ClusterOperations,
    AccountOperations,
):
    """Requests to a cluster and answers of it, without I/O."""

    #: Longest wait of one request for an app to run, of which a manager takes 300, seconds.
    poll_s: float = 60.0

    def __init__(
        self,
        context: ClientContext | None = None,
        *,
        server: str | None = None,
        user: str | None = None,
        password: str | None = None,
        token: str | None = None,
        ca: str | None = None,
        insecure: bool | None = None,
        nats: str | None = None,
    ) -> None:
        """Connect to nothing yet.

        Args:
            context: address and credentials; without it they are those of the other arguments,
                then of the environment, then of the context file, as for the command line.
            server: the URL of a manager.
            user: the name of a user.
            password: its password.
            token: an API token, in place of user and password.
            ca: path of the certificate of the authority that signed the manager's.
            insecure: accept any certificate.
            nats: the URL of NATS, for events.

        Raises:
            MeshError: MESH-U111 if no cluster is named, MESH-U130 for a file that can't be read.
        """
        if context is None:
            context = address(
                server=server, user=user, password=password, token=token, ca=ca,
                insecure=insecure, nats=nats,
            )  # fmt: skip
        if not context.server:
            raise MeshError(
                "MESH-U111",
                "no cluster named",
                detail="There is no --server, no MESH_SERVER and no context file.",
                hint="'mesh dev' starts a cluster and tells the other commands where it is.",
            )
        self._context = context
        self._limit_s: float | None = _OF_TABLE
        self._open(**self._options())

    @property
    def server(self) -> str:
        """The URL of the manager."""
        return self._context.server

    def patient(self, limit_s: float | None = None) -> Self:
        """This client with another time for answers, seconds; None for no limit."""
        clone = copy.copy(self)
        clone._limit_s = limit_s
        return clone

    @abstractmethod
    def _open(self, **options: object) -> None:
        """Make the client of httpx."""

    def _options(self) -> JsonObject:
        """The arguments of a client of httpx."""
        # Most commands have this module and no client.
        import httpx

        context = self._context
        return {
            "base_url": context.server,
            "auth": _auth(context),
            "headers": {"Authorization": f"Bearer {context.token}"} if context.token else None,
            "verify": _verify(context),
            "timeout": httpx.Timeout(LIMIT_S, connect=5.0),
        }

    def _request(
        self, http: httpx.Client | httpx.AsyncClient, of: Operation[P, R], *args: P.args,
        **values: P.kwargs,
    ) -> httpx.Request:  # fmt: skip
        import httpx

        request = of.request(*args, **values)
        charset = "; charset=utf-8" if request.media_type == TEXT_TYPE else ""
        headers = {"Content-Type": request.media_type + charset} if request.media_type else None
        limit_s = request.limit_s if self._limit_s == _OF_TABLE else self._limit_s
        return http.build_request(
            request.method,
            request.path,
            params=request.params,
            content=request.content,
            headers=headers,
            timeout=httpx.Timeout(limit_s, connect=5.0),
        )

    def _away(self, error: httpx.HTTPError) -> MeshError:
        """The error of a manager that did not answer."""
        import httpx

        if isinstance(error, httpx.TimeoutException):
            return MeshError("MESH-U112", f"manager at {self.server} does not answer in time")
        return MeshError(
            "MESH-U112",
            f"manager at {self.server} can't be reached",
            detail=f"{error}.",
            hint="Is it running?  --ca or --insecure is for its certificate.",
        )

    def _values(self, answer: httpx.Response) -> object:
        """The values of an answer; its error is raised."""
        kind = answer.headers.get("content-type", "")
        # A picture, or metrics; a page is no answer of a manager.
        if answer.is_success and not kind.endswith("json") and "html" not in kind:
            return answer.text
        try:
            values = answer.json()
        except ValueError as error:
            detail = f"HTTP {answer.status_code}, {kind or None}."
            # A proxy says so of a manager that is away.
            if answer.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR:
                raise MeshError(
                    "MESH-U112", f"manager at {self.server} can't be reached", detail=detail
                ) from error
            raise MeshError(
                "MESH-U113", f"the server at {self.server} is no manager", detail=detail
            ) from error
        if answer.is_success:
            return values
        values = {"code": f"MESH-A{answer.status_code}", "message": "request refused", **values}
        if answer.status_code == HTTPStatus.UNAUTHORIZED:
            values["hint"] = (
                "--user and --password, or MESH_USER and MESH_PASSWORD, say who you are; "
                "'mesh login' signs in by an identity provider."
            )
        raise error_of(values)


class Client(_Calls, Caller):
    """One cluster, with calls that block; a context manager."""

    _http: httpx.Client

    def _open(self, **options: Any) -> None:
        import httpx

        self._http = httpx.Client(**options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def call(self, operation: Operation[P, R], *args: P.args, **values: P.kwargs) -> R:
        """The answer to an operation.

        Raises:
            MeshError: the refusal; MESH-U112 if no manager answers, MESH-U113 if another server
                does.
        """
        return cast(
            "R", self._values(self._send(self._request(self._http, operation, *args, **values)))
        )

    def _send(self, request: httpx.Request) -> httpx.Response:
        import httpx

        try:
            return self._http.send(request)
        except httpx.HTTPError as error:
            raise self._away(error) from error

    def wait_running(
        self, app: str, timeout_s: float, note: Callable[[StatusAnswer], None] | None = None
    ) -> StatusAnswer:
        """The status once the app runs, or after ``timeout_s``.

        A manager that stops or starts again meanwhile is asked again.  ``note`` gets each status
        before that, every ``poll_s``.
        """
        wait = _Wait(timeout_s, self.poll_s, note)
        while True:
            try:
                status = self.status(app, wait="running", timeout_s=wait.next_s())
            except MeshError as error:
                time.sleep(wait.pause_s(error))
            else:
                if wait.is_done(status):
                    return status

    def tap(self, app: str, stream: str, *, from_start: bool = False) -> Tap:
        """The events of a stream from now on, or from the oldest that is stored; see ``Tap``.

        Where it is entered, it raises MESH-A404 for an app that is not deployed, MESH-N111 for a
        stream that no channel holds.
        """
        return Tap(self._context, app, stream, from_start=from_start)

    def publish(
        self, app: str, stream: str, events: Iterable[JsonMapping], *, time: str = ""
    ) -> int:
        """Publish events to a stream; returns their number once all are stored.

        Args:
            app: the app.
            stream: its stream.
            events: their values by attribute.
            time: the attribute with the event time, ms since 1970; without it that of the server.

        Raises:
            MeshError: MESH-A404 if the app is not deployed, MESH-N111 if no channel holds the
                stream, MESH-N112 if an event is not accepted.
        """
        return publish_blocking(self._context, app, stream, events, time)

    def is_up(self) -> bool:
        """Whether the manager answers."""
        import httpx

        try:
            return self._http.get("/health", timeout=2).is_success
        except httpx.HTTPError:
            return False

    def server_time_s(self) -> float:
        """The manager's clock, in whole seconds since 1970."""
        said = self._http.get("/health/live").headers["date"]
        return parsedate_to_datetime(said).timestamp()


class AsyncClient(_Calls, AsyncCaller):
    """One cluster, with calls that are coroutines; an asynchronous context manager."""

    _http: httpx.AsyncClient

    def _open(self, **options: Any) -> None:
        import httpx

        self._http = httpx.AsyncClient(**options)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def call(self, operation: Operation[P, R], *args: P.args, **values: P.kwargs) -> R:
        """As ``Client.call``."""
        import httpx

        request = self._request(self._http, operation, *args, **values)
        try:
            answer = await self._http.send(request)
        except httpx.HTTPError as error:
            raise self._away(error) from error
        return cast("R", self._values(answer))

    async def wait_running(
        self, app: str, timeout_s: float, note: Callable[[StatusAnswer], None] | None = None
    ) -> StatusAnswer:
        """As ``Client.wait_running``."""
        wait = _Wait(timeout_s, self.poll_s, note)
        while True:
            try:
                status = await self.status(app, wait="running", timeout_s=wait.next_s())
            except MeshError as error:
                await asyncio.sleep(wait.pause_s(error))
            else:
                if wait.is_done(status):
                    return status

    def tap(self, app: str, stream: str, *, from_start: bool = False) -> AsyncTap:
        """As ``Client.tap``."""
        return AsyncTap(self._context, app, stream, from_start=from_start)

    async def publish(
        self, app: str, stream: str, events: Iterable[JsonMapping], *, time: str = ""
    ) -> int:
        """As ``Client.publish``."""
        return await publish(self._context, app, stream, events, time)


class _Wait:
    """Requests that wait for an app, one after the other, until a time."""

    def __init__(
        self, timeout_s: float, poll_s: float, note: Callable[[StatusAnswer], None] | None
    ) -> None:
        self._ends_s = time.monotonic() + timeout_s
        self._poll_s = poll_s
        self._note = note
        self._left_s = timeout_s
        self._is_last = False

    def next_s(self) -> float:
        """The time that the next request waits."""
        self._left_s = max(0.0, self._ends_s - time.monotonic())
        self._is_last = self._left_s <= self._poll_s
        return min(self._left_s, self._poll_s)

    def is_done(self, status: StatusAnswer) -> bool:
        """Whether a status is the result; others are noted."""
        if self._is_last or status["state"] == "running":
            return True
        if self._note is not None:
            self._note(status)
        return False

    def pause_s(self, error: MeshError) -> float:
        """The pause after an error of a manager that is away; another error is raised."""
        if error.code not in _AWAY or not self._left_s:
            raise error
        return min(_AGAIN_S, self._left_s)


def _auth(context: ClientContext) -> httpx.Auth | None:
    """The credentials of a request; a token of the context is a header instead."""
    if context.token:
        return None
    # Only here: see ``Client``.
    import httpx

    from mesh.client import logins

    login = logins.find(Path(context.login), context.server) if context.login else None
    if login is not None:
        return logins.LoginAuth(Path(context.login), context.server, login)
    return httpx.BasicAuth(context.user, context.password) if context.user else None


def _verify(context: ClientContext) -> ssl.SSLContext | bool:
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
