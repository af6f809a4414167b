"""Secrets in a bucket, encrypted: the key is in a file of managers and workers, never in NATS.

Each value is encrypted with AES-256-GCM, with a nonce of its own and its name as additional data,
so that a value can't be put in the place of another one.
"""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from nats.js.errors import BucketNotFoundError, KeyNotFoundError, NotFoundError

from mesh.errors import MeshError
from mesh.jetstream import kv
from mesh.model import names, secrets

if TYPE_CHECKING:
    from collections.abc import Collection

    from nats.js import JetStreamContext

#: Name of the key as a credential of systemd (``LoadCredential=mesh-secrets-key:..``).
CREDENTIAL: Final = "mesh-secrets-key"
VALUE_BYTES_MAX: Final = 65_536
_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12


def read_key(path: str) -> bytes:
    """The key of a file, or of systemd's credential without one.

    Raises:
        MeshError: MESH-C140 where there is no key, or one of another length.
    """
    directory = os.environ.get("CREDENTIALS_DIRECTORY", "")
    found = Path(path) if path else Path(directory, CREDENTIAL) if directory else None
    if found is None:
        raise _no_key("secrets.key_file names no file.")
    try:
        key = base64.b64decode(found.read_bytes().strip(), validate=True)
    except (OSError, binascii.Error) as error:
        raise _no_key(f"{found}: {error}.") from error
    if len(key) != _KEY_BYTES:
        raise _no_key(f"{found} holds {len(key)} bytes in base64, not {_KEY_BYTES}.")
    return key


def encrypt(key: bytes, name: str, value: str) -> bytes:
    """The nonce and the encrypted value of a secret."""
    nonce = os.urandom(_NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, value.encode(), name.encode())


def decrypt(key: bytes, name: str, data: bytes) -> str:
    """The value of a secret; MESH-C141 if it was encrypted with another key, or changed."""
    try:
        nonce, rest = data[:_NONCE_BYTES], data[_NONCE_BYTES:]
        return AESGCM(key).decrypt(nonce, rest, name.encode()).decode()
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

    async def put(self, name: str, value: str) -> None:
        """Store a value; MESH-C140 without a key."""
        secrets.remember([value])
        data = encrypt(read_key(self._key_file), name, value)
        await kv.ensure_bucket(self._js, names.SECRETS_BUCKET, self._replicas)
        await kv.put(self._js, names.SECRETS_BUCKET, name, data)

    async def delete(self, name: str) -> bool:
        """Delete a value; False if there is none."""
        if name not in await self.listed():
            return False
        await kv.put(self._js, names.SECRETS_BUCKET, name, None)
        return True

    async def listed(self) -> list[str]:
        """The names, sorted."""
        return list(await kv.entries(self._js, names.SECRETS_BUCKET))

    async def values(self, wanted: Collection[str]) -> dict[str, str]:
        """Values by name.

        Raises:
            MeshError: MESH-C140 and MESH-C141 as above, MESH-C142 for a name without a value.
        """
        if not wanted:
            return {}
        key = read_key(self._key_file)
        found: dict[str, str] = {}
        for name in sorted(wanted):
            try:
                bucket = await self._js.key_value(names.SECRETS_BUCKET)
                data = (await bucket.get(name)).value or b""
            except (BucketNotFoundError, KeyNotFoundError, NotFoundError) as error:
                raise MeshError(
                    "MESH-C142",
                    f'secret "{name}" has no value',
                    hint=f"mesh secret set {name}",
                ) from error
            found[name] = decrypt(key, name, data)
        secrets.remember(found.values())
        return found


def _no_key(why: str) -> MeshError:
    return MeshError(
        "MESH-C140",
        "there is no key for secrets",
        detail=why,
        hint="Make one with 'openssl rand -base64 32', in a file that secrets.key_file names.",
    )
