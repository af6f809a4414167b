"""Users of the REST API: of a file of names and argon2 hashes, and of the directory.

One user a line, ``name:hash`` or ``name:hash:view,monitor`` with permissions; blank lines and
lines that start with ``#`` are skipped.  ``mesh user add --file`` writes it.  The file is read
again when it changes, so a new user needs no restart.

The directory (``mesh.jetstream.directory``) is a bucket, so its users are known to every manager.
A user of the file counts before one of the directory with its name.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from mesh.errors import MeshError
from mesh.files.private_files import write_private
from mesh.model.access import ALL, Grant, Identity, Permission, read_permissions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mesh.jetstream.directory import Directory

_HASHER = PasswordHasher()
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}\Z")

#: Characters of a new password.
PASSWORD_MIN: Final = 12
#: Checked for a name that does not exist, so that the response takes as long as for a known one.
_NOBODY = _HASHER.hash(secrets.token_urlsafe(16))


@dataclass(frozen=True, slots=True)
class LoginCredentials:
    """A name and a password, as a request brings them."""

    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class User:
    """A user, as a line has it."""

    hash: str = field(repr=False)
    may: frozenset[Permission] = ALL
    #: Of a user of the directory: permissions for some apps, too.
    grants: tuple[Grant, ...] | None = None

    @property
    def all_grants(self) -> tuple[Grant, ...]:
        """Its grants; those of a line are for every app."""
        return self.grants if self.grants is not None else (Grant(self.may),)

    def line(self, name: str) -> str:
        """The line of the user called ``name``."""
        may = "" if self.may == ALL else f":{','.join(sorted(self.may))}"
        return f"{name}:{self.hash}{may}\n"


@dataclass(frozen=True, slots=True)
class _Contents:
    """One version of the file: a check under way keeps the version that it began with."""

    #: Of the file: modification time in nanoseconds, and size; and the directory's version.
    stamp: tuple[int, ...] | None = None
    users: dict[str, User] = field(default_factory=dict, repr=False)
    of_file: dict[str, User] = field(default_factory=dict, repr=False)
    #: Digests of the credentials that fit these users, with the user's name.
    fitted: dict[bytes, str] = field(default_factory=dict, repr=False)

    def still(self, now: dict[str, User]) -> dict[bytes, str]:
        """The credentials of the users whose hash is the same now."""
        same = {name for name, one in self.users.items() if name in now}
        same = {name for name in same if now[name].hash == self.users[name].hash}
        return {digest: name for digest, name in self.fitted.items() if name in same}


@dataclass(slots=True)
class Users:
    """The users of one file, if there is one, and of the directory, as they are now.

    Credentials that fit are kept as digests with a random key of this process, until the user's
    hash changes: a client with ten requests a second would cost half a core otherwise.
    """

    path: Path | None
    directory: Directory | None = None
    #: Grants by group or role of provisioned users.
    roles: Mapping[str, tuple[Grant, ...]] = field(default_factory=dict)
    #: Whether users of the identity provider have to be provisioned.
    is_provisioned_only: bool = False
    _now: _Contents = field(default_factory=_Contents, repr=False)
    _key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)

    def is_verified(self, credentials: LoginCredentials) -> bool:
        """Whether name and password have matched before; takes no time."""
        self.refresh()
        return self._digest(credentials) in self._now.fitted

    def check(self, credentials: LoginCredentials) -> bool:
        """Whether name and password match; a first check takes tens of milliseconds on purpose."""
        self.refresh()
        # The file may change during the check.  Its result is about these contents.
        now = self._now
        digest = self._digest(credentials)
        if digest in now.fitted:
            return True
        # A provisioned user has no hash, and takes as long as one who does not exist.
        stored_hash = now.users.get(credentials.user, User("")).hash
        try:
            _HASHER.verify(stored_hash or _NOBODY, credentials.password)
        except (VerificationError, InvalidHashError):
            return False
        if not stored_hash:
            return False
        now.fitted[digest] = credentials.user
        return True

    def _digest(self, credentials: LoginCredentials) -> bytes:
        # Neither part can hold the byte that separates them: users have no NUL in their names.
        text = f"{credentials.user}\0{credentials.password}".encode()
        return hashlib.blake2b(text, key=self._key).digest()

    def refresh(self) -> None:
        """Read the file if it changed.

        Raises:
            MeshError: MESH-A100 when it can't be read or a line of it is no user.
        """
        version = self.directory.version if self.directory is not None else 0
        stamp: tuple[int, ...] = (version,)
        text = ""
        if self.path is not None:
            try:
                stat = self.path.stat()
                stamp = (version, stat.st_mtime_ns, stat.st_size)
                text = "" if stamp == self._now.stamp else self.path.read_text()
            except (OSError, UnicodeDecodeError) as error:
                raise _unreadable(self.path, str(error)) from error
        if stamp == self._now.stamp:
            return
        users = {} if self.directory is None else _of_directory(self.directory, self.roles)
        of_file = _parse(self.path, text) if self.path else {}
        every = {**users, **of_file}
        self._now = _Contents(stamp, every, of_file, self._now.still(every))

    def may_sign_in(self, user: str) -> bool:
        """Whether there is such a user who may sign in."""
        return user in self._now.users

    def mark(self, user: str) -> str:
        """A digest of the user's hash, for the session that begins; empty without a password."""
        self.refresh()
        entry = self._now.users.get(user)
        return hashlib.sha256(entry.hash.encode()).hexdigest() if entry and entry.hash else ""

    def is_of_now(self, user: str, mark: str) -> bool:
        """Whether a user may sign in, and has the hash that a session was begun with.

        Sessions of earlier versions have no mark; they end after twelve hours at most.
        """
        return self.may_sign_in(user) and mark in ("", self.mark(user))

    def grants(self, user: str) -> tuple[Grant, ...]:
        """Grants of a user; none for an unknown one."""
        entry = self._now.users.get(user)
        return entry.all_grants if entry is not None else ()

    def with_provisioned(self, identity: Identity) -> Identity | None:
        """The user of an identity provider with what the directory grants; None if disabled."""
        if self.directory is None:
            return identity
        entry = self.directory.users.get(identity.user)
        record = self.directory.provisioned.get(identity.user.casefold())
        if record is None and self.is_provisioned_only:
            return None
        if (entry is not None and not entry.active) or (record is not None and not record.active):
            return None
        more = self.grants(record.name if record is not None else identity.user)
        return Identity(
            record.name if record is not None else identity.user,
            tuple(dict.fromkeys((*identity.grants, *more))),
            identity.how,
        )

    def is_provisioned(self, user: str) -> bool:
        """Whether the identity provider has provisioned a user, who may sign in."""
        record = self.directory.provisioned.get(user.casefold()) if self.directory else None
        return record is not None and record.active and record.name == user

    def of_file(self) -> dict[str, User]:
        """The users of the file alone."""
        self.refresh()
        return self._now.of_file

    def __len__(self) -> int:
        return len(self._now.users)


def _of_directory(directory: Directory, roles: Mapping[str, tuple[Grant, ...]]) -> dict[str, User]:
    disabled = {name for name, one in directory.users.items() if not one.active}
    users = {
        one.name: User("", frozenset(), tuple(g for role in one.roles for g in roles.get(role, ())))
        for one in directory.provisioned.values()
        if one.active and one.name not in disabled
    }
    users |= {
        name: User(one.hash, frozenset(), one.grants)
        for name, one in directory.users.items()
        if one.active
    }
    return users


def parse_basic(header: str) -> LoginCredentials | None:
    """Name and password of an ``Authorization: Basic`` header; None when it is none."""
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        text = base64.b64decode(encoded.strip(), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
    user, colon, password = text.partition(":")
    return LoginCredentials(user, password) if colon else None


def add(path: Path, user: str, password: str, may: frozenset[Permission] | None = None) -> bool:
    """Put ``user`` into the file, which is made readable by its owner only; True when new.

    Without ``may`` a new user gets all permissions, and a known one keeps its own.

    Raises:
        MeshError: MESH-A101 for a name or a password that can't be used.
    """
    hashed = hash_of(user, password)
    users = _parse(path, path.read_text()) if path.exists() else {}
    entry = users.get(user)
    before = entry.may if entry is not None else ALL
    users[user] = User(hashed, may if may is not None else before)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_private(path, "".join(one.line(name) for name, one in sorted(users.items())))
    return entry is None


def check_password(user: str, password: str) -> None:
    """Refuse a new password that is easily guessed: MESH-A101."""
    if len(password) < PASSWORD_MIN:
        raise MeshError(
            "MESH-A101",
            f'password of user "{user}" is too short',
            detail=f"A new password has at least {PASSWORD_MIN} characters.",
            hint="Take several words, or a random one: openssl rand -base64 15",
        )


def hash_of(user: str, password: str) -> str:
    """The hash of a password; takes tens of milliseconds.

    Raises:
        MeshError: MESH-A101 for a name or a password that can't be used.
    """
    if not _NAME.match(user):
        raise MeshError(
            "MESH-A101",
            f'user name "{user}" can\'t be used',
            hint="A name has letters, digits, '.', '_', '@' and '-', 64 at most.",
        )
    if not password:
        raise MeshError("MESH-A101", f'password of user "{user}" is empty')
    return _HASHER.hash(password)


def _parse(path: Path, text: str) -> dict[str, User]:
    users: dict[str, User] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, colon, rest = line.strip().partition(":")
        value, _, may = rest.partition(":")
        if not colon or not _NAME.match(name) or not value.startswith("$argon2"):
            raise _unreadable(path, f"Line {number} is not 'name:argon2 hash'")
        try:
            users[name] = User(value, read_permissions(may))
        except MeshError as error:
            raise _unreadable(path, f"Line {number}: {error.message}") from error
    return users


def _unreadable(path: Path, why: str) -> MeshError:
    return MeshError(
        "MESH-A100",
        f'users file "{path}" can\'t be used',
        detail=f"{why}.",
        hint=f"Make one: mesh user add NAME --file {path}",
    )
