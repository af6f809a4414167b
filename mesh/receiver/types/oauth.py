"""OAuth 2 login of HTTP sinks: a token, which is fetched once and again after a 401.

The options decide on the grant, as in the reference engine: ``oauth.username`` is ``password``,
``refresh.token`` is ``refresh_token``, neither is ``client_credentials``.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import httpx
import orjson

from mesh.connect.contract import Options, UnavailableError
from mesh.errors import MeshError
from mesh.http.web_answers import ask
from mesh.receiver.access import check_url

if TYPE_CHECKING:
    from mesh.connect.contract import NodeAccess

_KEYS: Final = ("consumer.key", "body.consumer.key")


class OAuth:
    """The tokens of one sink; nothing of them is in an error's text."""

    def __init__(self, options: Options, access: NodeAccess) -> None:
        self._url = str(options["token.url"])
        check_url(access, self._url, 443 if self._url.startswith("https:") else 80)
        self._login = None
        if options.get("consumer.key"):
            self._login = (str(options["consumer.key"]), str(options.get("consumer.secret") or ""))
        self._form = {"grant_type": "client_credentials"}
        if options.get("oauth.username"):
            self._form = {
                "grant_type": "password",
                "username": str(options["oauth.username"]),
                "password": str(options.get("oauth.password") or ""),
            }
        elif options.get("refresh.token"):
            self._form = {
                "grant_type": "refresh_token",
                "refresh_token": str(options["refresh.token"]),
            }
        if options.get("oauth.scope"):
            self._form["scope"] = str(options["oauth.scope"])
        if options.get("body.consumer.key"):
            self._form["client_id"] = str(options["body.consumer.key"])
            self._form["client_secret"] = str(options.get("body.consumer.secret") or "")
        self._token = ""
        self._fetching = asyncio.Lock()

    async def token(self, client: httpx.AsyncClient, stale: str = "") -> str:
        """The token; another one than ``stale``, which was refused.

        Requests that wait for a token at the same time wait for one request.

        Raises:
            UnavailableError: there is none now.
        """
        async with self._fetching:
            if not self._token or self._token == stale:
                self._token = await self._fetched(client)
            return self._token

    async def _fetched(self, client: httpx.AsyncClient) -> str:
        try:
            auth = httpx.BasicAuth(*self._login) if self._login else httpx.USE_CLIENT_DEFAULT
            answer = await ask(client, "POST", self._url, data=self._form, auth=auth)
        except (httpx.HTTPError, OSError) as error:
            said = str(error) or type(error).__name__
            raise UnavailableError(f"token.url gives no token: {said}") from error
        try:
            is_token = answer.response.is_success
            document = orjson.loads(answer.content) if is_token else {}
            token = document["access_token"]
        except (ValueError, KeyError, TypeError):
            raise UnavailableError(
                f"token.url gives no token: it answered {answer.response.status_code}"
            ) from None
        if document.get("refresh_token") and self._form["grant_type"] == "refresh_token":
            # A server that replaces refresh tokens takes each of them once.
            self._form["refresh_token"] = str(document["refresh_token"])
        return str(token)


def login_of(options: Options, access: NodeAccess) -> OAuth | None:
    """The login of the options; None without one.

    Raises:
        MeshError: MESH-C131 for a login without an address or a client.
    """
    names = ("token.url", "oauth.username", "refresh.token", *_KEYS)
    if not any(options.get(name) for name in names):
        return None
    if not options.get("token.url") or not any(options.get(name) for name in _KEYS):
        raise MeshError(
            "MESH-C131",
            "a login with OAuth needs token.url, and consumer.key or body.consumer.key",
            hint="Give them in the reference of the sink: ref='name'.",
        )
    return OAuth(options, access)
