"""A provider's own token, changed in each way that a manager has to refuse."""

from __future__ import annotations

import base64
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import anyio
import orjson
import pytest

from mesh.api.oidc import Provider
from mesh.clock import SystemClock
from mesh.errors import MeshError

if TYPE_CHECKING:
    from mesh.model.access import Identity
    from mesh.settings import OidcSettings


@dataclass
class StoppedClock:
    """A clock that shows one second since 1970."""

    at_s: float

    def monotonic_s(self) -> float:
        return self.at_s

    def wall_ms(self) -> int:
        return int(self.at_s * 1000)


def check_token(settings: OidcSettings, token: str, user: str) -> None:
    """Assert that a manager accepts the token, and none that was changed or is of another time."""
    head, body, signature = token.split(".")
    header, claims = _decoded(head), _decoded(body)
    made_s, ends_s, leeway_s = claims["iat"], claims["exp"], settings.leeway_s
    assert _identity(settings, token).user == user
    for now_s in (made_s - leeway_s + 1, ends_s + leeway_s - 1):
        assert _identity(settings, token, now_s).user == user
    more = _encoded({**claims, settings.roles_claim: ["ADMIN"], "exp": ends_s + 1})
    refused = [
        (replace(settings, audience="another"), token, None),
        (settings, f"{_encoded({**header, 'alg': 'none'})}.{body}.", None),
        (settings, f"{_encoded({**header, 'alg': 'none'})}.{body}.{signature}", None),
        (settings, f"{_encoded({**header, 'alg': 'HS256'})}.{body}.{signature}", None),
        (settings, f"{head}.{more}.{signature}", None),
        (settings, token, made_s - leeway_s - 1),
        (settings, token, ends_s + leeway_s + 1),
    ]
    for wanted, given, at_s in refused:
        with pytest.raises(MeshError, match="A401"):
            _identity(wanted, given, at_s)


def _identity(settings: OidcSettings, token: str, at_s: float | None = None) -> Identity:
    clock = SystemClock() if at_s is None else StoppedClock(at_s)
    return anyio.run(Provider(settings, clock).identity, token)


def _decoded(part: str) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return found


def _encoded(values: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(orjson.dumps(values)).decode().rstrip("=")
