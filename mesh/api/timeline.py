"""Handlers of an app's past: backups, forks, comparisons, lineage and past events."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from mesh.api.routing import Json, serves, user_of
from mesh.model import names
from mesh.model.access import Permission, require
from mesh.model.history import HistoryInput
from mesh.model.operation import parameter_error
from mesh.model.operations import BackupOperations, TimeOperations
from mesh.plan.history_addresses import is_stream

if TYPE_CHECKING:
    from starlette.requests import Request

    from mesh.manager.service import ManagerService


_NUMBER: Final = re.compile(r"[0-9]{1,18}")


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


class TimeRoutes:
    """Handlers of forks, comparisons, lineage and past events."""

    def __init__(self, service: ManagerService) -> None:
        self._service = service

    @serves(TimeOperations.backfill)
    async def backfill(
        self,
        request: Request,
        text: str,
        stream: list[str],
        path: list[str],
        time: list[str],
        until: list[str],
    ) -> object:
        inputs = _history(stream, path, time, until)
        done = await self._service.backfills.backfill(text, inputs, by=user_of(request))
        where = {"Location": f"/siddhi-apps/{done.app}"}
        return Json(done, HTTPStatus.CREATED, headers=where)

    @serves(TimeOperations.promote)
    async def promote(self, request: Request, app: str, replaces: str | None) -> object:
        calls = self._service.promotions
        require(Permission.APPS_MANAGE, calls.app_of(app))
        return await calls.promote(app, replaces=replaces, by=user_of(request))

    @serves(TimeOperations.compare)
    async def compare(
        self,
        request: Request,
        app: str,
        other: str,
        stream: list[str],
        key: list[str],
        ignore: list[str],
    ) -> Any:
        require(Permission.DATA_READ, other)
        return await self._service.past.compare(app, other, stream, key, ignore)

    @serves(TimeOperations.why)
    async def why(
        self, request: Request, app: str, stream: str, sequence: str, index: int
    ) -> object:
        if not _NUMBER.fullmatch(sequence):
            raise parameter_error("sequence", sequence, "a number")
        return await self._service.past.why(app, stream, int(sequence), index)

    @serves(TimeOperations.fork)
    async def fork(
        self,
        request: Request,
        app: str,
        other: str,
        begin: str,
        until: str | None,
        sinks: bool,
        text: str | None = None,
    ) -> Any:
        other = names.app_token(other)
        require(Permission.APPS_MANAGE, other)
        done = await self._service.forks.fork(
            app, other, text=text, begin=begin, until=until, sinks=sinks, by=user_of(request)
        )
        return Json(done, HTTPStatus.CREATED, headers={"Location": f"/siddhi-apps/{other}"})


def _history(
    streams: list[str], paths: list[str], times: list[str], ends: list[str]
) -> list[HistoryInput]:
    """The past events of streams that parameters name; MESH-A400 where they don't fit together."""
    if not streams or len(paths) != len(streams) or not all((*streams, *paths)):
        raise parameter_error("path", ", ".join(paths), "the past events, for each stream")
    times = _for_each(times, streams)
    has_times = [bool(time) or is_stream(path) for time, path in zip(times, paths, strict=False)]
    if len(times) != len(streams) or not all(has_times):
        raise parameter_error("time", ", ".join(times), "the column of times, for each stream")
    ends = _for_each(ends, streams)
    if len(ends) != len(streams):
        raise parameter_error("until", ", ".join(ends), "one end, or one for each stream")
    return [
        HistoryInput(stream, path, time, end or None)
        for stream, path, time, end in zip(streams, paths, times, ends, strict=True)
    ]


def _for_each(values: list[str], streams: list[str]) -> list[str]:
    """A parameter that may be given once for all streams, or not at all."""
    values = values or [""]
    return values * len(streams) if len(values) == 1 else values
