"""Handlers of backups."""

from __future__ import annotations

from datetime import UTC, datetime
from http import HTTPStatus
from typing import TYPE_CHECKING

from mesh.api.responses import Json, user_of
from mesh.api.routing import serves
from mesh.model import names
from mesh.model.access import Permission, require
from mesh.model.operation import parameter_error
from mesh.model.operations import BackupOperations

if TYPE_CHECKING:
    from starlette.requests import Request

    from mesh.manager.service import ManagerService


class BackupRoutes:
    """Handlers of backups."""

    def __init__(self, service: ManagerService) -> None:
        self._service = service

    @serves(BackupOperations.backup)
    async def make(self, request: Request, app: str) -> object:
        backup = await self._service.backups.make(app, by=user_of(request))
        where = f"/siddhi-apps/{app}/revisions/{backup.revision}"
        return Json(backup, HTTPStatus.CREATED, headers={"Location": where})

    @serves(BackupOperations.backups)
    async def list_all(self, request: Request, app: str) -> object:
        return await self._service.backups.list_all(app)

    @serves(BackupOperations.delete_backup, BackupOperations.delete_backups)
    async def delete(self, request: Request, app: str, revision: str | None = None) -> object:
        count = await self._service.backups.delete(app, revision, by=user_of(request))
        return {"app": app, "deleted": count}

    @serves(BackupOperations.restore)
    async def restore(
        self,
        request: Request,
        app: str,
        revision: str | None,
        before: str | None,
        other: str | None,
        replay: bool,
    ) -> object:
        if other is not None:
            other = names.app_token(other)
            require(Permission.APPS_MANAGE, other)
        return await self._service.backups.restore(
            app,
            revision=revision,
            before_ms=None if before is None else _time_ms(before),
            other=other,
            replay=replay,
            by=user_of(request),
        )


def _time_ms(text: str) -> int:
    try:
        at = datetime.fromisoformat(text)
        # Without a zone it is UTC, as revisions are.
        return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError) as error:
        raise parameter_error("before", text, "a time like 2026-11-21T20:30:00Z") from error
