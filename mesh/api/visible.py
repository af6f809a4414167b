"""Apps that the user of a request may see, and texts that it may deploy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.model.access import Permission, current, needed, require

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mesh.control.lifecycle import AppStatus
    from mesh.manager.service import ManagerService


async def visible_apps(service: ManagerService) -> Sequence[AppStatus]:
    """The apps that the user has the permission of the route for, else any permission.

    Each list of the API is made from these; a test finds handlers that ask the service itself.
    """
    apps = await service.apps()
    identity, permission = current.get(), needed.get()
    if identity is None:
        return apps
    grants = [one for one in identity.grants if permission is None or permission in one.may]
    return [app for app in apps if any(one.covers(app.app) for one in grants)]


async def require_for_text(service: ManagerService, permission: object, text: str) -> None:
    """Refuse a text whose app the user has no permission for: MESH-A403.

    A user with the permission for every app needs no look at the text here.
    """
    assert isinstance(permission, Permission), "a text is deployed with a permission"
    identity = current.get()
    if identity is None or identity.may(permission, None):
        return
    require(permission, await service.name_of(text))
