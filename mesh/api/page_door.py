"""The users of the REST API, for the pages: identities of sessions, limits of rates, the audit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.api.account_service import Accounts
from mesh.jetstream.audit import AuditEntry
from mesh.model.access import ANYONE, Identity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mesh.api.auth import Access
    from mesh.jetstream.sessions import Session, Sessions
    from mesh.model.access import Permission

_PATH_MAX = 200
_NAME_MAX = 64


class PageDoor:
    """The API's access, as the pages use it."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self.accounts = Accounts(access)

    @property
    def is_open(self) -> bool:
        """Whether there are no users: every client on this machine has all permissions."""
        return self._access.is_open

    @property
    def sessions(self) -> Sessions | None:
        """The sessions of the cluster; None where access is anonymous."""
        return self._access.sessions

    def reason_against(self, headers: Mapping[str, str]) -> str | None:
        """The reason to refuse a request by its headers; None if there is none."""
        return self._access.reason_against(headers)

    def admits(self, name: str) -> bool:
        """Whether an address, or a user as ``user NAME``, may ask once more now."""
        return self._access.limits.admit(name, self._access.clock.monotonic_s())

    async def sign_in(self, user: str, password: str, address: str) -> bool | None:
        """Whether name and password match; None if too many are being checked."""
        return await self._access.sign_in(user, password, address)

    def identity(self, session: Session) -> Identity | None:
        """The user of a session with its grants as they are now; None if it may not sign in."""
        users = self._access.users
        if users is None:
            return ANYONE
        if session.grants is not None:
            return Identity(session.user, session.grants, session.how)
        users.refresh()
        if not users.is_known(session.user):
            return None
        return Identity(session.user, users.grants(session.user), session.how)

    def note(
        self,
        identity: Identity | None,
        source: str,
        method: str,
        path: str,
        status: int,
        needed: tuple[Permission | None, str],
        claimed: str = "",
    ) -> None:
        """Audit a request of a page; ``needed`` is the permission and the app."""
        permission, app = needed
        self._access.note(
            AuditEntry(
                self._access.clock.wall_ms(),
                _shown(identity.user if identity is not None else claimed, _NAME_MAX),
                identity.how if identity is not None else "",
                source,
                method,
                _shown(path, _PATH_MAX),
                status,
                app,
                permission or "",
            )
        )


def _shown(text: str, most: int) -> str:
    return text[:most].encode("unicode_escape").decode()
