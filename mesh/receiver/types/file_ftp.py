"""Files of an FTP server, for source and sink ``file``; ``ftps`` encrypts commands and data."""

from __future__ import annotations

import contextlib
import ftplib
import io
import posixpath
import ssl
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import unquote, urlsplit

from mesh.connect.access import check_url
from mesh.receiver.tls import client_context
from mesh.receiver.types.file_systems import FileState, checked_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mesh.connect.contract import NodeAccess, Options

T = TypeVar("T")
_CALL_S: Final = 15.0
_BLOCK: Final = 64 << 10
#: Reply of a server that has no such file.
_MISSING: Final = "550"
#: Replies to what may be done later: the login, and the space of the server.
_AGAIN: Final = ("530", "532", "552")
_BYTES: Final = "latin-1"


class _Server(ftplib.FTP):
    """A connection on which each character is a byte: a name may be no UTF-8."""

    def putline(self, line: str) -> None:
        """Send a command in UTF-8."""
        super().putline(line.encode(errors="surrogateescape").decode(_BYTES))


class _SecureServer(_Server, ftplib.FTP_TLS):
    """The same, encrypted."""


def _name(text: str) -> str:
    """A name as it is listed, with surrogates for what is no UTF-8, as names of the worker have."""
    return text.encode(_BYTES).decode(errors="surrogateescape")


class FtpFiles:
    """See ``RemoteFiles``; paths are relative to the directory of the login."""

    is_remote = True

    def __init__(self, uri: str, options: Options, access: NodeAccess) -> None:
        parts = urlsplit(uri)
        check_url(access, uri, 21)
        self._host, self._port = parts.hostname or "", parts.port or 21
        self._user = unquote(parts.username or options.get("username") or "anonymous")
        self._password = unquote(parts.password or "") or options.get("password") or ""
        self._secure: ssl.SSLContext | None = None
        if parts.scheme.lower() == "ftps":
            self._secure = client_context(options) or ssl.create_default_context()
        self._address = (self._host, self._port)
        self._access = access
        self.server: ftplib.FTP | None = None

    def path(self, uri: str) -> str:
        """See ``Files``."""
        parts = urlsplit(uri)
        if parts.scheme and (parts.hostname, parts.port or 21) != self._address:
            raise ValueError(f"{parts.hostname} is not the server of the other paths")
        return unquote(parts.path).strip("/") or "."

    def paths(self, directory: str) -> list[str]:
        """See ``Files``."""

        def listed(server: ftplib.FTP) -> list[str]:
            try:
                facts = list(server.mlsd(directory, ["type"]))
                return [_name(name) for name, entry in facts if entry.get("type") == "file"]
            except ftplib.error_perm as error:
                if str(error)[:3] not in ("500", "501", "502", "504"):
                    raise
                return [posixpath.basename(_name(name)) for name in server.nlst(directory)]

        names = sorted(self._call(directory, listed))
        return [posixpath.join(directory, name) for name in names]

    def checked(self, path: str) -> str:
        """See ``Files``."""
        return checked_name(path)

    def find(self, path: str) -> FileState | None:
        """See ``Files``."""

        def state_of(server: ftplib.FTP) -> FileState | None:
            try:
                # Sizes are those of binary transfers.
                server.voidcmd("TYPE I")
                size = server.size(path) or 0
                reply = server.sendcmd(f"MDTM {path}")
            except ftplib.error_perm as error:
                if str(error).startswith(_MISSING):
                    return None
                raise
            time = datetime.strptime(reply[4:18], "%Y%m%d%H%M%S").replace(tzinfo=UTC)
            return FileState(0, size, int(time.timestamp()) * 1_000_000_000)

        return self._call(path, state_of)

    @contextmanager
    def opened(self, path: str) -> Iterator[tuple[FileState, Callable[[int, int], bytes]]]:
        """See ``Files``."""
        state = self.find(path)
        if state is None:
            raise FileNotFoundError(2, "there is no such file", path)
        yield (
            state,
            lambda size, offset: self._call(path, lambda s: _read(s, path, size, offset)),
        )

    def delete(self, path: str) -> None:
        """See ``Files``."""
        self._call(path, lambda server: server.delete(path))

    def move(self, path: str, target: str) -> None:
        """See ``Files``."""

        def moved(server: ftplib.FTP) -> None:
            _make_directory(server, target)
            _rename(server, path, target)

        self._call(path, moved)

    def append(self, path: str, data: bytes) -> None:
        """See ``RemoteFiles``."""

        def appended(server: ftplib.FTP) -> None:
            _make_directory(server, path)
            server.storbinary(f"APPE {path}", io.BytesIO(data))

        self._call(path, appended)

    def replace(self, path: str, data: bytes) -> None:
        """See ``RemoteFiles``."""
        directory, name = posixpath.split(path)
        part = posixpath.join(directory, f".{name}.part")

        def replaced(server: ftplib.FTP) -> None:
            _make_directory(server, path)
            server.storbinary(f"STOR {part}", io.BytesIO(data))
            _rename(server, part, path)

        self._call(path, replaced)

    def _call(self, path: str, call: Callable[[ftplib.FTP], T]) -> T:
        try:
            server = self._connected()
        except (ftplib.Error, EOFError, OSError) as error:
            raise self._lost(path, error) from error
        try:
            return call(server)
        except ftplib.error_perm as error:
            if str(error)[:3] in _AGAIN:
                raise OSError(0, str(error), path) from error
            raise PermissionError(13, str(error), path) from error
        except (ftplib.Error, EOFError, OSError) as error:
            raise self._lost(path, error) from error

    def _lost(self, path: str, error: Exception) -> OSError:
        """The failure of a call; its state is not known, and the next one connects."""
        self.close()
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return OSError(0, reason, path)

    def _connected(self) -> ftplib.FTP:
        if self.server is None:
            server = (
                _SecureServer(context=self._secure, timeout=_CALL_S, encoding=_BYTES)
                if self._secure is not None
                else _Server(timeout=_CALL_S, encoding=_BYTES)
            )
            self.server = server
            server.connect(self._host, self._port)
            server.login(self._user, self._password)
            if isinstance(server, ftplib.FTP_TLS):
                server.prot_p()
        return self.server

    def close(self) -> None:
        """See ``Files``."""
        server, self.server = self.server, None
        if server is not None:
            server.close()


def _make_directory(server: ftplib.FTP, path: str) -> None:
    """Make the directories of a path that are missing."""
    directory = ""
    for part in posixpath.dirname(path).split("/"):
        directory = posixpath.join(directory, part)
        if directory:
            with contextlib.suppress(ftplib.error_perm):
                server.mkd(directory)


def _rename(server: ftplib.FTP, path: str, target: str) -> None:
    try:
        server.rename(path, target)
    except ftplib.error_perm:
        # Not every server renames to a name that is taken; with others the file is never missing.
        with contextlib.suppress(ftplib.error_perm):
            server.delete(target)
        server.rename(path, target)


def _read(server: ftplib.FTP, path: str, size: int, offset: int) -> bytes:
    server.voidcmd("TYPE I")
    parts: list[bytes] = []
    left = size
    with server.transfercmd(f"RETR {path}", offset or None) as data:
        while left and (part := data.recv(min(left, _BLOCK))):
            parts.append(part)
            left -= len(part)
        if isinstance(data, ssl.SSLSocket) and left:
            with contextlib.suppress(OSError):
                data.unwrap()
    try:
        server.voidresp()
    except (ftplib.error_temp, ftplib.error_perm):
        # The transfer was ended before its end.
        if left:
            raise
    return b"".join(parts)
