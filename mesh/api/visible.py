"""The service as the user of a request may see it: lists hold the apps of its grants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mesh.model.access import Permission, current, needed, require

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mesh.manager.service import ManagerService


class VisibleService:
    """Passes each call on; ``apps`` leaves out what the user may not see."""

    def __init__(self, service: ManagerService) -> None:
        self._service = service

    def __getattr__(self, name: str) -> Any:
        return getattr(self._service, name)

    async def apps(self) -> Sequence[Any]:
        """The apps that the user has the permission of the route for, else any permission."""
        found = await self._service.apps()
        identity, wanted = current.get(), needed.get()
        if identity is None:
            return found
        grants = [one for one in identity.grants if wanted is None or wanted in one.may]
        return [app for app in found if any(one.covers(app.app) for one in grants)]


async def require_for_text(service: ManagerService, permission: Permission, text: str) -> None:
    """Refuse a text whose app the user has no permission for: MESH-A403.

    A user with the permission for every app needs no look at the text here.
    """
    identity = current.get()
    if identity is None or identity.may(permission, None):
        return
    require(permission, await service.name_of(text))
