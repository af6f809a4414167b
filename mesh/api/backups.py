"""Backups through the REST API.

POST   /siddhi-apps/{app}/backup     201, the backup; Location names it
GET    /siddhi-apps/{app}/revisions  those of an app, oldest first, also when it is undeployed
POST   /siddhi-apps/{app}/restore    ?revision= or ?before=TIME, else the newest; ?as=NAME;
?replay=false
DELETE /siddhi-apps/{app}/revisions  all; /revisions/{revision} one
"""

from __future__ import annotations

from datetime import UTC, datetime
from http import HTTPStatus
from typing import TYPE_CHECKING

from mesh.api.paths import route
from mesh.api.responses import Json, parameter, user_of
from mesh.model import names
from mesh.model.access import Permission, require

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from mesh.manager.service import ManagerService


class BackupRoutes:
    """Routes of backups, one method each."""

    def __init__(self, service: ManagerService) -> None:
        self._service = service

    def routes(self) -> list[Route]:
        """For the application."""
        app = "/siddhi-apps/{app}"
        return [
            route(f"{app}/backup", self.make, "POST"),
            route(f"{app}/restore", self.restore, "POST"),
            route(f"{app}/revisions", self.known, "GET"),
            route(f"{app}/revisions", self.delete, "DELETE"),
            route(f"{app}/revisions/{{revision}}", self.delete, "DELETE"),
        ]

    async def make(self, request: Request) -> Response:
        """Back an app up."""
        app = request.path_params["app"]
        made = await self._service.backups.make(app, by=user_of(request))
        where = f"/siddhi-apps/{app}/revisions/{made.revision}"
        return Json(made, HTTPStatus.CREATED, headers={"Location": where})

    async def known(self, request: Request) -> Response:
        """The backups of an app."""
        return Json(await self._service.backups.known(request.path_params["app"]))

    async def delete(self, request: Request) -> Response:
        """Delete one backup, or all of an app."""
        app, revision = request.path_params["app"], request.path_params.get("revision")
        count = await self._service.backups.delete(app, revision, by=user_of(request))
        return Json({"app": app, "deleted": count})

    async def restore(self, request: Request) -> Response:
        """Put the state of a backup back."""
        asked = request.query_params
        replay = asked.get("replay", "true")
        if replay not in ("true", "false"):
            raise parameter("replay", replay, "true or false")
        before = asked.get("before")
        if (other := asked.get("as")) is not None:
            other = names.app_token(other)
            require(Permission.APPS_MANAGE, other)
        return Json(
            await self._service.backups.restore(
                request.path_params["app"],
                revision=asked.get("revision"),
                before_ms=None if before is None else _time_ms(before),
                other=other,
                replay=replay == "true",
                by=user_of(request),
            )
        )


def _time_ms(text: str) -> int:
    try:
        at = datetime.fromisoformat(text)
        # Without a zone it is UTC, as revisions are.
        return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError) as error:
        raise parameter("before", text, "a time like 2026-11-21T20:30:00Z") from error
