"""Sign-in of people by an identity provider: authorization code with PKCE (RFC 7636).

    browser ──GET /login/oidc──▶ manager ──303──▶ provider: state, nonce, challenge
    browser ◀──303 code, state── provider
    browser ──GET /login/oidc/callback──▶ manager ──code, verifier──▶ provider: ID token

The ID token has to be for our client, with the nonce of this sign-in.  Roles are those of the ID
token, else of the access token if it is a token for the API, else of the userinfo endpoint.
A session is renewed with the refresh token, so a user whom the provider no longer knows loses it.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

import httpx
import orjson

from mesh.api.oidc import grants_of, is_secure
from mesh.errors import MeshError
from mesh.http.web_answers import ask
from mesh.model.sign_in import Attempt, SignedIn
from mesh.telemetry.logs import fields

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mesh.api.oidc import Provider
    from mesh.model.access import Grant, Identity
    from mesh.model.values import JsonObject
    from mesh.settings import OidcSettings

log = logging.getLogger(__name__)

CALLBACK: Final = "/login/oidc/callback"
_TIMEOUT_S: Final = 10.0
#: Lifetime of an answer that names none.
_VALID_S: Final = 300.0
#: Errors of a token endpoint that say that this user or this client is refused, for good.
_REFUSALS: Final = frozenset(
    {"invalid_grant", "access_denied", "unauthorized_client", "invalid_client"}
)


def read_client_secret(settings: OidcSettings) -> str:
    """The secret of our client, from the setting or the file; MESH-A107 without the file."""
    if not settings.client_secret_file:
        return settings.client_secret
    try:
        return Path(settings.client_secret_file).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise MeshError(
            "MESH-A107",
            "settings of the identity provider can't be used",
            detail=f"oidc.client_secret_file can't be read: {error}.",
        ) from error


@dataclass
class SignIn:
    """The sign-in of one client at one provider."""

    provider: Provider
    client_id: str
    client_secret: str = field(repr=False)
    scopes: str
    #: The URL that browsers know this dashboard by; empty for that of the request.
    public_url: str = ""

    async def begin(self, url: str, target: str) -> tuple[str, Attempt]:
        """The provider's page for a sign-in, and the attempt that the browser has to keep.

        Args:
            url: of the request, whose host counts if ``public_url`` is empty.
            target: the path to open afterwards.

        Raises:
            MeshError: MESH-A108 if the provider can't be reached.
        """
        from authlib.oauth2.rfc7636 import create_s256_code_challenge

        attempt = Attempt(target)
        query = {
            "response_type": "code",
            "client_id": self.client_id,
            "redirect_uri": self._redirect_uri(url),
            "scope": self.scopes,
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": create_s256_code_challenge(attempt.verifier),
            "code_challenge_method": "S256",
        }
        if "offline_access" in self.scopes.split():
            # A condition of OpenID Connect for refresh tokens that outlive the provider's session.
            query["prompt"] = "consent"
        page = await self._endpoint("authorization_endpoint")
        return f"{page}{'&' if urlsplit(page).query else '?'}{urlencode(query)}", attempt

    async def complete(
        self, attempt: Attempt | None, answer: Mapping[str, str], url: str
    ) -> SignedIn:
        """The user of the provider's answer in the query of the callback.

        Raises:
            MeshError: MESH-A401 for an answer that is not to this attempt, an error of the
                provider, or a token that is not valid; MESH-A108 if the provider can't be reached.
        """
        if attempt is None or not secrets.compare_digest(
            answer.get("state", "").encode(), attempt.state.encode()
        ):
            raise _refused("the answer is not to a sign-in of this browser")
        issuer = self.provider.settings.issuer
        # RFC 9207: an answer of another provider.
        if answer.get("iss", issuer) != issuer:
            raise _refused("the answer is of another provider")
        if "error" in answer:
            raise _refused(f"the provider answers {answer['error'][:80]!r}")
        tokens = await self._tokens(
            grant_type="authorization_code",
            code=answer.get("code", ""),
            redirect_uri=self._redirect_uri(url),
            code_verifier=attempt.verifier,
        )
        if tokens is None:
            raise _refused("the provider refuses the code")
        return await self._user(tokens, nonce=attempt.nonce)

    async def renew(self, previous: SignedIn) -> SignedIn | None:
        """The user as the provider describes it now; None if it refuses.

        Raises:
            MeshError: MESH-A108 if the provider can't be reached, MESH-A401 for tokens that are
                not valid.
        """
        tokens = await self._tokens(
            grant_type="refresh_token", refresh_token=previous.refresh_token
        )
        if tokens is None:
            return None
        # A refresh may answer without an ID token, and one has no nonce.
        tokens = {"refresh_token": previous.refresh_token, **tokens}
        user = await self._user(tokens) if tokens.get("id_token") else None
        if user is None:
            identity = await self._api_user(str(tokens.get("access_token", "")))
            if identity is None:
                raise _refused("the provider's answer names no user")
            user = SignedIn(
                identity.user, identity.grants, _valid_s(tokens), str(tokens["refresh_token"])
            )
        if user.user != previous.user:
            raise _refused("the provider's answer is about another user")
        return user

    async def _user(self, tokens: JsonObject, nonce: str | None = None) -> SignedIn:
        claims = await self.provider.claims(
            str(tokens.get("id_token", "")), self.client_id, is_direct=True, nonce=nonce
        )
        if claims.get("azp", self.client_id) != self.client_id:
            raise _refused("the ID token is for another client")
        identity = self.provider.identity_of(claims)
        grants = identity.grants or await self._other_grants(claims, tokens)
        return SignedIn(
            identity.user, grants, _valid_s(tokens), str(tokens.get("refresh_token") or "")
        )

    async def _other_grants(self, claims: JsonObject, tokens: JsonObject) -> tuple[Grant, ...]:
        """Grants by an access token for the API, or else by the userinfo endpoint."""
        token = str(tokens.get("access_token", ""))
        identity = await self._api_user(token)
        named = self.provider.identity_of(claims).user
        if identity is not None and identity.user == named and identity.grants:
            return identity.grants
        endpoint = (await self.provider.metadata()).get("userinfo_endpoint")
        if not endpoint or not token:
            return ()
        headers = [("Authorization", f"Bearer {token}")]
        status, values = await self._call("GET", str(endpoint), headers=headers)
        # Another subject would be a substituted token (OpenID Connect Core 5.3.2).
        if status >= 400 or values.get("sub") != claims["sub"]:
            return ()
        return grants_of(values, self.provider.settings)

    async def _api_user(self, token: str) -> Identity | None:
        """The user of an access token, if it is one for the API; others are not for us to read."""
        try:
            return await self.provider.identity(token, is_direct=True)
        except MeshError:
            return None

    async def _tokens(self, **form: str) -> JsonObject | None:
        """The token endpoint's answer; None if it refuses the code or the refresh token."""
        headers, values = [("Accept", "application/json")], dict(form)
        auth = None
        if self.client_secret:
            # RFC 6749 2.3.1: both are encoded as in a form.
            auth = httpx.BasicAuth(quote(self.client_id), quote(self.client_secret))
        else:
            values["client_id"] = self.client_id
        url = await self._endpoint("token_endpoint")
        status, answer = await self._call("POST", url, data=values, headers=headers, auth=auth)
        if status < 400:
            return answer
        error = str(answer.get("error", ""))[:80]
        log.warning("provider refused", extra=fields(grant=form["grant_type"], error=error))
        if error in _REFUSALS:
            return None
        raise _unreachable(f"HTTP {status}, {error}")

    async def _call(self, method: str, url: str, **more: Any) -> tuple[int, JsonObject]:
        if not is_secure(url):
            raise _unreachable("an endpoint is not an https URL")
        try:
            async with (
                asyncio.timeout(_TIMEOUT_S),
                httpx.AsyncClient(timeout=_TIMEOUT_S, follow_redirects=False) as client,
            ):
                answer = await ask(client, method, url, **more)
            values = orjson.loads(answer.whole())
        except (httpx.HTTPError, ValueError, OSError) as error:
            raise _unreachable(f"{type(error).__name__}: {error}") from error
        if not isinstance(values, dict):
            raise _unreachable("the answer is no JSON object")
        return answer.response.status_code, values

    async def _endpoint(self, name: str) -> str:
        url = (await self.provider.metadata()).get(name)
        if not isinstance(url, str) or not is_secure(url):
            raise _unreachable(f"it has no {name} with an https URL")
        return url

    def _redirect_uri(self, url: str) -> str:
        """Our callback.  The name in a request's ``Host`` counts for this machine only."""
        base = self.public_url.rstrip("/")
        if not base:
            parts = urlsplit(url)
            base = urlunsplit((parts.scheme, parts.netloc, "", "", ""))
            if parts.hostname not in ("localhost", "127.0.0.1", "::1"):
                raise MeshError(
                    "MESH-A422",
                    "sign-in by the identity provider needs manager.public_url",
                    hint="Set it to the URL that browsers know the dashboard by.",
                )
        return base + CALLBACK


def make_sign_in(provider: Provider | None, public_url: str = "") -> SignIn | None:
    """The sign-in of the settings; None without a provider or without ``oidc.client_id``.

    Raises:
        MeshError: MESH-A107 for a secret that can't be read, or without the extra ``oidc``.
    """
    if provider is None or not provider.settings.client_id:
        return None
    try:
        import authlib  # noqa: F401 - asked for its presence
    except ImportError as error:
        raise MeshError(
            "MESH-A107",
            "sign-in by an identity provider needs the package authlib",
            hint="pip install 'nats-event-mesh[oidc]'",
        ) from error
    settings = provider.settings
    secret = read_client_secret(settings)
    return SignIn(provider, settings.client_id, secret, settings.scopes, public_url)


def _valid_s(tokens: JsonObject) -> float:
    lifetime = tokens.get("expires_in")
    is_number = isinstance(lifetime, int | float) and not isinstance(lifetime, bool)
    return max(0.0, float(lifetime)) if is_number and lifetime is not None else _VALID_S


def _refused(why: str) -> MeshError:
    return MeshError("MESH-A401", "the sign-in is not valid", detail=f"{why}.")


def _unreachable(why: str) -> MeshError:
    return MeshError("MESH-A108", "the identity provider does not answer", detail=f"{why}.")
