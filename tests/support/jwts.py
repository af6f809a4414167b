"""Operators, accounts and users of NATS with their JWTs, as ``nsc`` makes them, for tests."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import nkeys  # type: ignore[import-untyped]  # it ships none

if TYPE_CHECKING:
    from pathlib import Path

_ROLES = {
    "operator": nkeys.PREFIX_BYTE_OPERATOR,
    "account": nkeys.PREFIX_BYTE_ACCOUNT,
    "user": nkeys.PREFIX_BYTE_USER,
}
_NO_LIMIT = {"subs": -1, "data": -1, "payload": -1}


@dataclass(frozen=True)
class Key:
    """A key pair of a role."""

    seed: str
    public: str


def key(role: str) -> Key:
    """A new key of an operator, an account or a user."""
    seed = nkeys.encode_seed(os.urandom(32), _ROLES[role])
    return Key(seed.decode(), nkeys.from_seed(seed).public_key.decode())


def signed(issuer: Key, subject: Key, name: str, about: dict[str, Any], expires_s: int = 0) -> str:
    """A JWT about ``subject``; ``expires_s`` is since 1970, 0 for never."""
    said: dict[str, Any] = {
        "iat": 1_700_000_000, "iss": issuer.public, "sub": subject.public, "name": name,
        "nats": {**about, "version": 2},
    }  # fmt: skip
    if expires_s:
        said["exp"] = expires_s
    digest = hashlib.new("sha512_256", json.dumps(said).encode()).digest()
    said["jti"] = base64.b32encode(digest).decode().rstrip("=")
    head = _encoded(json.dumps({"typ": "JWT", "alg": "ed25519-nkey"}).encode())
    text = f"{head}.{_encoded(json.dumps(said).encode())}"
    signature = nkeys.from_seed(issuer.seed.encode()).sign(text.encode())
    return f"{text}.{_encoded(signature)}"


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


@dataclass
class Operator:
    """An operator with one account that has JetStream."""

    key: Key = field(default_factory=lambda: key("operator"))
    account: Key = field(default_factory=lambda: key("account"))
    system: Key = field(default_factory=lambda: key("account"))

    def configuration(self, *, account_expires_s: int = 0) -> str:
        """The part of a server's configuration that admits the account's users."""
        operator = signed(self.key, self.key, "op", {"type": "operator"})
        limits = {
            **_NO_LIMIT, "imports": -1, "exports": -1, "wildcards": True, "conn": -1, "leaf": -1,
        }  # fmt: skip
        jetstream = {"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1}
        account = signed(
            self.key, self.account, "A",
            {"type": "account", "limits": {**limits, **jetstream}}, account_expires_s,
        )  # fmt: skip
        system = signed(self.key, self.system, "SYS", {"type": "account", "limits": limits})
        return (
            f"operator: {operator}\nsystem_account: {self.system.public}\nresolver: MEMORY\n"
            f"resolver_preload: {{ {self.account.public}: {account}\n"
            f"{self.system.public}: {system} }}\n"
        )

    def user_jwt(self, user: Key, *, expires_s: int = 0, **about: Any) -> str:
        """The JWT of a user of the account."""
        what = {"type": "user", **_NO_LIMIT, **about}
        return signed(self.account, user, "ann", what, expires_s)


def creds(path: Path, jwt: str, seed: str) -> Path:
    """Write a credentials file as ``nsc`` does."""
    path.write_text(
        f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
        "************************* IMPORTANT *************************\n"
        "NKEY Seed printed below can be used to sign and prove identity.\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n\n"
        "*************************************************************\n"
    )
    return path
