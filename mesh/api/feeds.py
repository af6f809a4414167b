"""Handlers of simulations, in the words of the system before this one.

An answer is ``{"status", "message"}``; configurations are JSON within the message.  Files belong to
all simulations, so changes need the permission for every app.
"""

from __future__ import annotations

import re
from email.parser import BytesParser
from email.policy import HTTP
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import orjson

from mesh.api.routing import Json, error_type, json_body, serves, user_of
from mesh.errors import MeshError
from mesh.http.request_body import read_body
from mesh.model.access import Permission, require, sees
from mesh.model.foreign_operations import SimulationOperations
from mesh.model.operation import parameter_error
from mesh.model.simulation import BYTES_MAX, feed_of

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from mesh.manager.service import ManagerService
    from mesh.model.values import JsonObject

ACTIONS: Final = ("run", "pause", "resume", "stop")
#: Of a file, and of the form around it.
FILE_BYTES_MAX: Final = 8 << 20
_FORM_BYTES: Final = 10_000
_FILE_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9 ._-]{0,80}\.csv\Z")


class FeedRoutes:
    """Handlers of simulations."""

    def __init__(self, service: ManagerService) -> None:
        self._feeds = service.feeds

    async def create(self, request: Request, values: object) -> Response:
        """Store a simulation."""
        _require_for(values)
        try:
            name = await self._feeds.create(values, by=user_of(request))
        except MeshError as error:
            return _refused(error, HTTPStatus.CONFLICT, "MESH-A409")
        return _said(HTTPStatus.CREATED, f"stored simulation '{name}'")

    @serves(SimulationOperations.feeds)
    async def all(self, request: Request) -> Response:
        active = []
        inactive = []
        for values, reason in await self._feeds.list_all():
            if not all(sees(Permission.APPS_VIEW, app) for app in feed_of(values).apps):
                continue
            if reason:
                inactive.append({**values, "exceptionReason": reason})
            else:
                active.append(values)
        return _response({"activeSimulations": active, "inActiveSimulations": inactive})

    @serves(SimulationOperations.feed_of)
    async def one(self, request: Request, feed: str) -> Response:
        return _response({"Simulation configuration": await self._visible(feed)})

    @serves(SimulationOperations.update_feed)
    async def update(self, request: Request, feed: str) -> Response:
        values = await json_body(request, BYTES_MAX)
        name = await self._changed(feed)
        _require_for(values)
        await self._feeds.update(name, values, by=user_of(request))
        return _said(HTTPStatus.OK, f"changed simulation '{name}'")

    @serves(SimulationOperations.operate_feed)
    async def operate(self, request: Request, feed: str, action: str) -> Response:
        if action.lower() not in ACTIONS:
            raise parameter_error("action", action, f"one of {', '.join(ACTIONS)}")
        name = await self._changed(feed)
        status, text = await self._feeds.operate(name, action.lower(), by=user_of(request))
        if status != HTTPStatus.OK:
            error = MeshError("MESH-A409", f"simulation '{name}' {text}")
            return _refused(error, HTTPStatus(status), error.code)
        return _said(HTTPStatus.OK, f"{text} simulation '{name}'")

    @serves(SimulationOperations.delete_feed)
    async def delete(self, request: Request, feed: str) -> Response:
        name = await self._changed(feed)
        await self._feeds.delete(name)
        return _said(HTTPStatus.OK, f"deleted simulation '{name}'")

    @serves(SimulationOperations.feed_status)
    async def status(self, request: Request, feed: str) -> Response:
        await self._visible(feed)
        feed_state = await self._feeds.status(feed)
        more = {"events": feed_state.events, "reason": feed_state.reason}
        return _said(HTTPStatus.OK, str(feed_state.state), **more)

    @serves(SimulationOperations.files)
    async def files(self, request: Request) -> object:
        return await self._feeds.files()

    @serves(SimulationOperations.upload, SimulationOperations.replace_file)
    async def upload(self, request: Request, file: str | None = None) -> Response:
        name, data = _file_of(request, await read_body(request, FILE_BYTES_MAX + _FORM_BYTES))
        if file is None:
            await self._feeds.put_file(name, data, is_new=True)
            return _said(HTTPStatus.CREATED, f"stored file '{name}'")
        await self._feeds.put_file(_csv(file), data, is_new=False)
        return _said(HTTPStatus.OK, f"replaced file '{file}' by file '{name}'")

    @serves(SimulationOperations.delete_file)
    async def delete_file(self, request: Request, file: str) -> Response:
        await self._feeds.delete_file(file)
        return _said(HTTPStatus.OK, f"deleted file '{file}'")

    async def _visible(self, name: str) -> JsonObject:
        """The configuration of a simulation whose apps the user may see; MESH-A404."""
        config = await self._feeds.configuration(name)
        if not all(sees(Permission.APPS_VIEW, app) for app in feed_of(config).apps):
            raise MeshError("MESH-A404", f'simulation "{name}" does not exist')
        return config

    async def _changed(self, name: str) -> str:
        """The name of a simulation that the user may change; MESH-A404, MESH-A403."""
        _require_for(await self._visible(name))
        return name


def _require_for(values: object) -> None:
    for app in feed_of(values).apps:
        require(Permission.DATA_WRITE, app)


def _said(status: HTTPStatus, message: str, **more: object) -> Response:
    word = status.phrase.replace(" ", "_").upper()
    return Json({"status": word, "message": message, **more}, status)


def _response(values: JsonObject) -> Response:
    """JSON in the message, as its clients read it."""
    return _said(HTTPStatus.OK, orjson.dumps(values).decode())


def _refused(error: MeshError, status: HTTPStatus, code: str) -> Response:
    """An error of this code with the word for its status; others are raised."""
    if error.code != code:
        raise error
    word = status.phrase.replace(" ", "_").upper()
    return Json({"status": word, **error.to_dict(), "type": error_type(status)}, status)


def _csv(name: str) -> str:
    if not _FILE_NAME.match(name):
        raise MeshError(
            "MESH-A400",
            f"{name!r} is no name of a CSV file",
            hint="Letters, digits, blanks, '.', '_' and '-', and '.csv' at the end.",
        )
    return name


def _file_of(request: Request, data: bytes) -> tuple[str, bytes]:
    """Name and content of the file of a form; MESH-A400 for another body."""
    kind = request.headers.get("content-type", "")
    head = b"Content-Type: " + kind.encode("latin-1", "replace") + b"\r\n\r\n"
    form = BytesParser(policy=HTTP).parsebytes(head + data)
    for part in form.iter_parts() if form.get_content_type() == "multipart/form-data" else ():
        name = part.get_filename()
        if name is not None and part.get_param("name", header="content-disposition") == "file":
            content = part.get_payload(decode=True)
            if isinstance(content, bytes):
                return _csv(name), content
    raise MeshError(
        "MESH-A400",
        'a file is sent as the field "file" of a form',
        hint="With curl: -F 'file=@events.csv'",
    )
