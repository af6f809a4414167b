"""Values of a sign-in by an identity provider, shared by the pages and the REST API's users."""

from __future__ import annotations

import base64
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import orjson

if TYPE_CHECKING:
    from mesh.model.access import Grant


def _random() -> str:
    return secrets.token_urlsafe(32)


@dataclass(frozen=True, slots=True)
class Attempt:
    """A sign-in that was begun; the browser keeps it in a cookie until the provider's answer.

    The cookie binds the answer to this browser, so no manager has to remember the attempt.
    """

    #: The path to open afterwards.
    target: str
    #: Of the answer: the provider repeats it in the URL.
    state: str = field(default_factory=_random, repr=False)
    #: Of the ID token: the provider repeats it in a claim.
    nonce: str = field(default_factory=_random, repr=False)
    #: The secret of PKCE (RFC 7636), of which the provider gets the digest first.
    verifier: str = field(default_factory=_random, repr=False)

    def to_text(self) -> str:
        """As the value of a cookie."""
        values = [self.target, self.state, self.nonce, self.verifier]
        return base64.urlsafe_b64encode(orjson.dumps(values)).decode().rstrip("=")

    @staticmethod
    def from_text(text: str) -> Attempt | None:
        """The attempt of a cookie; None for any other text."""
        try:
            values = orjson.loads(base64.urlsafe_b64decode(text + "==="))
        except ValueError:
            return None
        is_one = isinstance(values, list) and len(values) == 4
        if not is_one or not all(isinstance(one, str) and one for one in values):
            return None
        return Attempt(*values)


@dataclass(frozen=True, slots=True)
class SignedIn:
    """A user as the identity provider described it."""

    user: str
    grants: tuple[Grant, ...]
    #: The seconds for which the provider's answer holds.
    valid_s: float
    #: Renews the answer; empty if the provider gave none.
    refresh_token: str = field(default="", repr=False)
