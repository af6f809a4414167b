"""Files of an SFTP server, for source and sink ``file``; the server's key must be known."""

from __future__ import annotations

import contextlib
import posixpath
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import unquote, urlsplit

from mesh.connect.access import check_url
from mesh.connect.contract import library
from mesh.receiver.types.file_systems import FileState, checked_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import paramiko

    from mesh.connect.contract import NodeAccess, Options
    from mesh.model.values import JsonObject

T = TypeVar("T")
_CALL_S: Final = 15.0
_PORT: Final = 22


class SftpFiles:
    """See ``RemoteFiles``; paths are relative to the directory of the login."""

    is_remote = True

    def __init__(self, uri: str, options: Options, access: NodeAccess) -> None:
        self._ssh = library("paramiko", "sftp")
        parts = urlsplit(uri)
        check_url(access, uri, _PORT)
        self._address = (parts.hostname or "", parts.port or _PORT)
        hosts_file = options.get("ssh.known.hosts")
        if not hosts_file:
            raise ValueError("sftp needs ssh.known.hosts, a file with the key of the server")
        self._known_hosts = str(hosts_file).removeprefix("file:")
        self._login: JsonObject = {
            "username": unquote(parts.username or options.get("username") or ""),
            "password": unquote(parts.password or "") or options.get("password") or None,
            "key_filename": options.get("ssh.key") or None,
            "passphrase": options.get("ssh.key.password") or None,
        }
        self._client: Any = None
        self._files: paramiko.SFTPClient = None

    def path(self, uri: str) -> str:
        """See ``Files``."""
        parts = urlsplit(uri)
        if parts.scheme and (parts.hostname, parts.port or _PORT) != self._address:
            raise ValueError(f"{parts.hostname} is not the server of the other paths")
        return unquote(parts.path).strip("/") or "."

    def paths(self, directory: str) -> list[str]:
        """See ``Files``."""
        names = sorted(self._call(directory, lambda files: _names(files, directory)))
        return [posixpath.join(directory, name) for name in names]

    def checked(self, path: str) -> str:
        """See ``Files``."""
        return checked_name(path)

    def find(self, path: str) -> FileState | None:
        """See ``Files``."""
        try:
            attributes = self._call(path, lambda files: files.stat(path))
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(attributes.st_mode or 0):
            return None
        return FileState(0, attributes.st_size, attributes.st_mtime * 1_000_000_000)

    @contextmanager
    def opened(self, path: str) -> Iterator[tuple[FileState, Callable[[int, int], bytes]]]:
        """See ``Files``."""
        state = self.find(path)
        if state is None:
            raise FileNotFoundError(2, "there is no such file", path)

        def read(size: int, offset: int) -> bytes:
            def part(files: paramiko.SFTPClient) -> bytes:
                with files.open(path, "rb") as file:
                    file.seek(offset)
                    data: bytes = file.read(size)
                    return data

            return self._call(path, part)

        yield state, read

    def delete(self, path: str) -> None:
        """See ``Files``."""
        self._call(path, lambda files: files.remove(path))

    def move(self, path: str, target: str) -> None:
        """See ``Files``."""

        def moved(files: paramiko.SFTPClient) -> None:
            _make_directory(files, target)
            files.posix_rename(path, target)

        self._call(path, moved)

    def append(self, path: str, data: bytes) -> None:
        """See ``RemoteFiles``."""

        def appended(files: paramiko.SFTPClient) -> None:
            _make_directory(files, path)
            with files.open(path, "ab") as file:
                file.write(data)

        self._call(path, appended)

    def replace(self, path: str, data: bytes) -> None:
        """See ``RemoteFiles``."""
        directory, name = posixpath.split(path)
        part = posixpath.join(directory, f".{name}.part")

        def replaced(files: paramiko.SFTPClient) -> None:
            _make_directory(files, path)
            with files.open(part, "wb") as file:
                file.write(data)
            files.posix_rename(part, path)

        self._call(path, replaced)

    def _call(self, path: str, call: Callable[[paramiko.SFTPClient], T]) -> T:
        try:
            return call(self._connected())
        except (FileNotFoundError, PermissionError) as error:
            raise type(error)(error.errno, error.strerror, path) from error
        except OSError as error:
            channel = self._files.get_channel() if self._files is not None else None
            if error.errno is None and channel is not None and not channel.closed:
                # An answer of the server, which has no number of the system.
                raise PermissionError(13, str(error), path) from error
            raise self._lost(path, error) from error
        except (self._ssh.SSHException, EOFError) as error:
            raise self._lost(path, error) from error

    def _lost(self, path: str, error: Exception) -> OSError:
        """The failure of a call; its state is not known, and the next one connects."""
        self.close()
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return OSError(0, reason, path)

    def _connected(self) -> paramiko.SFTPClient:
        if self._files is None:
            client = self._client = self._ssh.SSHClient()
            client.set_missing_host_key_policy(self._ssh.RejectPolicy())
            client.load_host_keys(self._known_hosts)
            host, port = self._address
            client.connect(
                host, port, timeout=_CALL_S, banner_timeout=_CALL_S, auth_timeout=_CALL_S,
                # Keys of the worker's user are not the app's.
                allow_agent=False, look_for_keys=False, **self._login,
            )  # fmt: skip
            self._files = client.open_sftp()
            self._files.get_channel().settimeout(_CALL_S)
        return self._files

    def close(self) -> None:
        """See ``Files``."""
        client, self._client, self._files = self._client, None, None
        if client is not None:
            client.close()


def _names(files: paramiko.SFTPClient, directory: str) -> list[str]:
    """Names of the files in a directory; the library reads those only that are UTF-8.

    A name has surrogates for other bytes, as names of the worker have.
    """
    sftp = library("paramiko.sftp", "sftp")
    attributes = library("paramiko.sftp_attr", "sftp").SFTPAttributes
    _, message = files._request(sftp.CMD_OPENDIR, directory)
    handle, names = message.get_binary(), []
    while True:
        try:
            _, message = files._request(sftp.CMD_READDIR, handle)
        except EOFError:
            break
        for _ in range(message.get_int()):
            name = message.get_binary().decode(errors="surrogateescape")
            message.get_binary()
            if stat.S_ISREG(attributes._from_msg(message).st_mode or 0):
                names.append(name)
    files._request(sftp.CMD_CLOSE, handle)
    return names


def _make_directory(files: paramiko.SFTPClient, path: str) -> None:
    """Make the directories of a path that are missing."""
    directory = ""
    for part in posixpath.dirname(path).split("/"):
        directory = posixpath.join(directory, part)
        if directory:
            with contextlib.suppress(OSError):
                files.mkdir(directory)
