"""Secrets in a bucket, encrypted: the key is in a file of managers and workers, never in NATS.

Each value is encrypted with AES-256-GCM, with a nonce of its own.  Its name, and the apps that may
use it, are additional data: without the key no value can be put in the place of another one, or be
opened to other apps.
"""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from nats.js.errors import NotFoundError

from mesh.errors import MeshError
from mesh.jetstream import kv
from mesh.model import names, secrets
from mesh.model.access import is_open_to

if TYPE_CHECKING:
    from collections.abc import Collection

    from nats.js import JetStreamContext

#: Name of the key as a credential of systemd (``LoadCredential=mesh-secrets-key:..``).
CREDENTIAL: Final = "mesh-secrets-key"
#: Header with the patterns of the apps that may use a secret.
_APPS: Final = "Mesh-Apps"
VALUE_BYTES_MAX: Final = 65_536
_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12


def read_key(path: str) -> bytes:
    """The key of a file, or of systemd's credential without one.

    Raises:
        MeshError: MESH-C140 where there is no key, or one of another length.
    """
    directory = os.environ.get("CREDENTIALS_DIRECTORY", "")
    key_file = Path(path) if path else Path(directory, CREDENTIAL) if directory else None
    if key_file is None:
        raise _no_key("secrets.key_file names no file.")
    try:
        key = base64.b64decode(key_file.read_bytes().strip(), validate=True)
    except (OSError, binascii.Error) as error:
        raise _no_key(f"{key_file}: {error}.") from error
    if len(key) != _KEY_BYTES:
        raise _no_key(f"{key_file} holds {len(key)} bytes in base64, not {_KEY_BYTES}.")
    return key


def encrypt(key: bytes, name: str, value: str, apps: str = "") -> bytes:
    """The nonce and the encrypted value of a secret."""
    nonce = os.urandom(_NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, value.encode(), _bound_to(name, apps))


def _bound_to(name: str, apps: str) -> bytes:
    return f"{name}\0{apps}".encode() if apps else name.encode()


def decrypt(key: bytes, name: str, data: bytes, apps: str = "") -> str:
    """The value of a secret; MESH-C141 if it was encrypted with another key, or changed."""
    try:
        nonce, rest = data[:_NONCE_BYTES], data[_NONCE_BYTES:]
        return AESGCM(key).decrypt(nonce, rest, _bound_to(name, apps)).decode()
    except (InvalidTag, ValueError) as error:
        raise MeshError(
            "MESH-C141",
            f'secret "{name}" can\'t be decrypted',
            detail="It was stored with another key, or was changed.",
            hint="Give all managers and workers the same key, or store the secret again.",
        ) from error


class SecretStore:
    """The bucket of secrets; the key is read when it is needed."""

    def __init__(self, js: JetStreamContext, key_file: str, replicas: int = 1) -> None:
        self._js = js
        self._key_file = key_file
        self._replicas = replicas

    async def put(self, name: str, value: str, apps: str = "") -> None:
        """Store a value; MESH-C140 without a key.

        Args:
            name: of the secret.
            value: of the secret.
            apps: patterns of the apps that may use it, comma-separated; empty for every app.
        """
        secrets.remember([value])
        data = encrypt(read_key(self._key_file), name, value, apps)
        await kv.ensure_bucket(self._js, names.SECRETS_BUCKET, self._replicas)
        headers = {_APPS: apps} if apps else None
        await self._js.publish(kv.subject(names.SECRETS_BUCKET, name), data, headers=headers)

    async def delete(self, name: str) -> bool:
        """Delete a value; False if there is none."""
        if name not in await self.listed():
            return False
        await kv.put(self._js, names.SECRETS_BUCKET, name, None)
        return True

    async def listed(self) -> list[str]:
        """The names, sorted."""
        return list(await self.apps())

    async def apps(self) -> dict[str, str]:
        """By name: the patterns of the apps that may use the secret; empty for every app."""
        entries = await kv.entries(self._js, names.SECRETS_BUCKET)
        return {name: (one.headers or {}).get(_APPS, "") for name, one in entries.items()}

    async def values(self, secret_names: Collection[str], app: str = "") -> dict[str, str]:
        """Values by name, for an app; without a name of one only those that every app may use.

        Raises:
            MeshError: MESH-C140 and MESH-C141 as above, MESH-C142 for a name without a value, and
                for one that is not open to the app.
        """
        if not secret_names:
            return {}
        key, stream = read_key(self._key_file), f"KV_{names.SECRETS_BUCKET}"
        plaintexts: dict[str, str] = {}
        for name in sorted(secret_names):
            try:
                info = await self._js.stream_info(stream)
                stored = await self._js.get_last_msg(
                    stream,
                    kv.subject(names.SECRETS_BUCKET, name),
                    direct=bool(info.config.allow_direct),
                )
            except NotFoundError as error:
                raise _no_value(name) from error
            headers = stored.headers or {}
            apps = headers.get(_APPS, "")
            if kv.OPERATION in headers or not is_open_to(apps or None, app):
                raise _no_value(name)
            plaintexts[name] = decrypt(key, name, stored.data or b"", apps)
        secrets.remember(plaintexts.values())
        return plaintexts


def _no_value(name: str) -> MeshError:
    return MeshError(
        "MESH-C142",
        f'secret "{name}" has no value',
        detail="Or it is not open to this app.",
        hint=f"mesh secret set {name}; --apps names patterns of apps that may use it",
    )


def _no_key(why: str) -> MeshError:
    return MeshError(
        "MESH-C140",
        "there is no key for secrets",
        detail=why,
        hint="Make one with 'openssl rand -base64 32', in a file that secrets.key_file names.",
    )
