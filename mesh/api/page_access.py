"""The users of the REST API, for the pages: identities of sessions, limits of rates, the audit."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from mesh.api.account_service import AccountService
from mesh.api.auth import LOGIN, PATH_MAX, logged
from mesh.errors import MeshError
from mesh.jetstream.audit import AuditEntry
from mesh.jetstream.sessions import refresh_token
from mesh.model.access import ANYONE, Identity
from mesh.model.sign_in import SignedIn
from mesh.telemetry.logs import fields

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mesh.api.auth import Access
    from mesh.api.sign_in import SignIn
    from mesh.jetstream.sessions import UserSession, UserSessions
    from mesh.model.access import Permission

log = logging.getLogger(__name__)

#: Sessions end if the provider was not reached for so many times ``oidc.recheck_s``.
_GRACE: Final = 3


class PageAccess:
    """The API's access, as the pages use it."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self.accounts = AccountService(access)

    @property
    def is_open(self) -> bool:
        """Whether there are no users: every client on this machine has all permissions."""
        return self._access.is_open

    @property
    def sessions(self) -> UserSessions | None:
        """The sessions of the cluster; None where access is anonymous."""
        return self._access.sessions

    @property
    def provider(self) -> SignIn | None:
        """The sign-in by an identity provider; None without one."""
        return self._access.sign_in_by

    async def session(self, name: str, *, is_used: bool = True) -> UserSession | None:
        """The session of a cookie, confirmed by its identity provider where it has one.

        Raises:
            MeshError: MESH-A503 as ``UserSessions.find``.
        """
        sessions = self._access.sessions
        user_session = (
            await sessions.find(name, is_used=is_used) if sessions is not None and name else None
        )
        if user_session is not None and user_session.how == LOGIN:
            return None
        if user_session is None or sessions is None or user_session.renewal is None:
            return user_session
        now_ms, renewal = self._access.clock.wall_ms(), user_session.renewal
        age_ms = now_ms - renewal.confirmed_ms
        provider = self._access.sign_in_by
        if provider is None or not renewal.sealed:
            return user_session if provider is not None and age_ms <= renewal.valid_ms else None
        wait_ms = provider.provider.settings.recheck_s * 1000
        if now_ms - renewal.asked_ms >= wait_ms and await sessions.claim(name):
            return await self._confirm(sessions, provider, name, user_session)
        return user_session if age_ms <= _GRACE * wait_ms else None

    async def _confirm(
        self, sessions: UserSessions, provider: SignIn, name: str, user_session: UserSession
    ) -> UserSession | None:
        """The session as the provider confirms it now; it ends if the provider refuses."""
        previous = SignedIn(
            user_session.user, user_session.grants or (), 0.0, refresh_token(user_session, name)
        )
        try:
            user = await provider.renew(previous)
        except MeshError as error:
            log.warning("session not confirmed", extra=fields(user=user_session.user, error=error))
            if error.code == "MESH-A108":
                # The provider is away: the user stays for some time.
                assert user_session.renewal is not None
                age_ms = self._access.clock.wall_ms() - user_session.renewal.confirmed_ms
                limit_ms = _GRACE * provider.provider.settings.recheck_s * 1000
                return user_session if age_ms <= limit_ms else None
            user = None
        if user is None:
            log.info("session ended by the provider", extra=fields(user=user_session.user))
            await sessions.end(name)
            return None
        return await sessions.renew(name, user)

    def reason_against(self, headers: Mapping[str, str]) -> str | None:
        """The reason to refuse a request by its headers; None if there is none."""
        return self._access.reason_against(headers)

    def admits(self, name: str) -> bool:
        """Whether an address, or a user as ``user NAME``, may ask once more now."""
        return self._access.limits.admit(name, self._access.clock.monotonic_s())

    def warn(self, message: str, address: str, **more: object) -> None:
        """Log a failed sign-in, at most one of an address each minute."""
        self._access.warn(message, address, **more)

    async def sign_in(self, user: str, password: str, address: str) -> bool | None:
        """Whether name and password match; None if too many are being checked."""
        return await self._access.sign_in(user, password, address)

    def mark(self, user: str) -> str:
        """A digest of the user's password hash, for a session that begins."""
        return self._access.users.mark(user) if self._access.users is not None else ""

    def identity(self, session: UserSession) -> Identity | None:
        """The user of a session with its grants as they are now; None if it may not sign in."""
        users = self._access.users
        if users is None:
            return ANYONE
        users.refresh()
        if session.grants is not None:
            return users.with_provisioned(Identity(session.user, session.grants, session.how))
        if not users.is_of_now(session.user, session.mark):
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
                logged(identity.user if identity is not None else claimed),
                identity.how if identity is not None else "",
                source,
                method,
                logged(path, PATH_MAX),
                status,
                logged(app, PATH_MAX),
                permission or "",
            )
        )
