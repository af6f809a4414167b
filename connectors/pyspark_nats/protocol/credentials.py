"""Credentials for NATS: users, tokens, nkey seeds and the JWTs of credentials files.

They are passed as text, because a Spark executor signs with what the driver read.  No secret
appears in a ``repr`` or in an error.  The package ``nkeys`` is imported when a seed is used.
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pyspark_nats.errors import OptionError

if TYPE_CHECKING:
    from pyspark_nats.json_types import JsonObject

#: A line of dashes, text, and a line of dashes: the form of a JWT or a seed of ``nsc``.
_DECORATED = re.compile(
    r"-{3,}[ \t]*BEGIN ([A-Z ]+?)[ \t]*-{3,}\s+(\S+)\s+-{3,}[ \t]*END [^-\n]*-{3,}"
)
_SEED = re.compile(r"^\s*(S[A-Z2-7]{57})\s*$", re.MULTILINE)
_ROLES = {"A": "an account", "C": "a cluster", "N": "a server", "O": "an operator"}


@dataclass(frozen=True, slots=True)
class Credentials:
    """Credentials; all empty for an anonymous client."""

    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    #: A user's JWT, which requires the seed.
    jwt: str = field(default="", repr=False)
    #: An nkey seed, "SU...".
    seed: str = field(default="", repr=False)

    @property
    def is_present(self) -> bool:
        """Whether there are any credentials."""
        return self != NOBODY


NOBODY: Final = Credentials()


def in_file(text: str, label: str) -> Credentials:
    """The JWT and the seed in a ``.creds`` file.

    Args:
        text: the content of the file.
        label: names the option and the file in errors.

    Raises:
        OptionError: one of the two is missing or malformed, or they belong to two users.
    """
    parts = dict(_DECORATED.findall(text))
    jwt = next((value for kind, value in parts.items() if kind.endswith("JWT")), "")
    if not jwt:
        raise OptionError(
            f"{label} holds no JWT",
            hint='A credentials file has a line "-----BEGIN NATS USER JWT-----"; nsc writes it.',
        )
    return of_jwt(jwt, seed_in(text, label, is_needed=False), label)


def of_jwt(jwt: str, seed: str, label: str) -> Credentials:
    """The credentials of a JWT, checked against the seed; OptionError as for ``in_file``."""
    said = claims(jwt)
    if not said:
        raise OptionError(f"{label} holds a JWT that can't be decoded")
    about = said.get("nats") or {}
    if about.get("type", "user") != "user":
        raise OptionError(f"{label} holds the JWT of {about['type']!r}, not of a user")
    if not seed:
        if about.get("bearer_token"):
            return Credentials(jwt=jwt)
        raise OptionError(
            f"{label} holds a JWT and no seed", hint="The seed signs what the server asks for."
        )
    if said.get("sub") != public_key(seed):
        raise OptionError(
            f"{label} holds a seed that is not that of the JWT's user",
            detail=f"The JWT is of {said.get('sub')}, the seed of {public_key(seed)}.",
        )
    return Credentials(jwt=jwt, seed=seed)


def claims(jwt: str) -> JsonObject:
    """The claims of a JWT, not verified; empty if it can't be decoded."""
    parts = jwt.split(".")
    if len(parts) != 3:
        return {}
    try:
        said = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def seed_in(text: str, label: str, *, is_needed: bool = True) -> str:
    """The user's nkey seed in ``text``, decorated or bare; "" if missing and not needed.

    Raises:
        OptionError: there is none, it is mistyped, or it is not a user's.
    """
    seeds = [value for kind, value in _DECORATED.findall(text) if kind.endswith("SEED")]
    seeds = seeds or _SEED.findall(text)
    if not seeds:
        if is_needed or "SEED" in text:
            raise OptionError(
                f"{label} holds no nkey seed", hint='A seed has 58 letters and starts with "SU".'
            )
        return ""
    seed = str(seeds[0])
    nkeys = _nkeys()
    try:
        raw = base64.b32decode(seed + "=" * (-len(seed) % 8))
        # The package ignores the checksum, and a mistyped seed belongs to another user.
        is_whole = bytes(nkeys.crc16_checksum(bytearray(raw[:-2]))) == raw[-2:]
        nkeys.from_seed(seed.encode())
    except (ValueError, nkeys.NkeysError):
        is_whole = False
    if not is_whole or len(seed) != 58:
        raise OptionError(f"{label} holds a malformed nkey seed")
    if seed[1] != "U":
        role = _ROLES.get(seed[1], "something else")
        raise OptionError(f"{label} holds the nkey seed of {role}, not of a user")
    return seed


def public_key(seed: str) -> str:
    """The public key of a seed, "U..."."""
    pair = _nkeys().from_seed(seed.encode())
    return str(pair.public_key.decode())


def signature(seed: str, nonce: str) -> str:
    """Signature of a server's nonce in the form of ``CONNECT``."""
    signed = _nkeys().from_seed(seed.encode()).sign(nonce.encode())
    return base64.urlsafe_b64encode(signed).decode().rstrip("=")


def _nkeys() -> Any:
    try:
        import nkeys  # type: ignore[import-untyped]  # it ships none
    except ImportError as error:
        raise OptionError(
            "nkey seeds and credentials files need the package nkeys", hint="pip install nkeys"
        ) from error
    return nkeys
