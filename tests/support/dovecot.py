"""A real IMAP server: any user with the password ``secret`` has a mailbox of its own."""

from __future__ import annotations

import contextlib
import getpass
import grp
import imaplib
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mesh.jetstream.server import free_ports
from mesh.processes.bounded_process import die_with_parent
from tests.support.certificates import Authority
from tests.support.mosquitto import listens
from tests.support.processes import look_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.certificates import Pair

PASSWORD = "secret"


@dataclass(frozen=True)
class Mailboxes:
    """A server, and messages that a test puts there."""

    #: Of plain connections, which offer STARTTLS, and of those with TLS from the start.
    port: int
    secure_port: int
    directory: Path

    @property
    def authority(self) -> Path:
        """Certificate of the authority that the server's is of."""
        return self.directory / "authority.pem"

    @contextlib.contextmanager
    def client(self, user: str, folder: str = "INBOX") -> Iterator[imaplib.IMAP4]:
        """A client with a folder selected."""
        with imaplib.IMAP4("127.0.0.1", self.port, timeout=10) as client:
            client.login(user, PASSWORD)
            client.create(folder)
            client.select(folder)
            yield client

    def put(self, user: str, *messages: bytes) -> None:
        """Add messages to the inbox of a user."""
        with self.client(user) as client:
            for message in messages:
                status, said = client.append("INBOX", "", "", message)
                assert status == "OK", said

    def flags(self, user: str, folder: str = "INBOX") -> list[str]:
        """UID and flags of each message of a folder, without ``\\Recent`` and the bracket."""
        with self.client(user, folder) as client:
            _, found = client.uid("FETCH", "1:*", "(FLAGS)")
        lines = [one.decode() for one in found if isinstance(one, bytes)]
        flags = [line.partition("(")[2].replace("\\Recent", "") for line in lines]
        return [line.rstrip(") ") for line in flags]

    def validity(self, user: str) -> bytes:
        """UIDVALIDITY of the inbox of a user."""
        with self.client(user) as client:
            _, found = client.response("UIDVALIDITY")
        return bytes(found[0] or b"")

    def replace(self, user: str, message: bytes) -> None:
        """Replace the inbox of a user by a new one with a message."""
        before = self.validity(user)
        # The number of a new one is the second of its creation.
        while self.validity(user) == before:
            shutil.rmtree(self.directory / "mail" / user)
        self.put(user, message)


def _configuration(
    directory: Path, pair: Pair, port: int, secure: int, user: str, group: str
) -> str:
    return f"""
        protocols = imap
        base_dir = {directory}/run
        state_dir = {directory}/state
        log_path = {directory}/log
        ssl = yes
        ssl_cert = <{pair.cert}
        ssl_key = <{pair.key}
        disable_plaintext_auth = no
        listen = 127.0.0.1
        default_internal_user = {user}
        default_internal_group = {group}
        default_login_user = {user}
        first_valid_uid = 1
        mail_location = maildir:{directory}/mail/%u
        service imap-login {{
          chroot =
          inet_listener imap {{
            port = {port}
          }}
          inet_listener imaps {{
            port = {secure}
          }}
        }}
        service anvil {{
          chroot =
        }}
        passdb {{
          driver = static
          args = password={PASSWORD}
        }}
        userdb {{
          driver = static
          args = uid={user} gid={group} home={directory}/mail/%u
        }}
    """


@contextlib.contextmanager
def server() -> Iterator[Mailboxes]:
    """A server on a free port."""
    binary = shutil.which("dovecot") or shutil.which("dovecot", path="/usr/sbin")
    if binary is None:
        pytest.skip("dovecot-imapd is not installed")
    port, secure = free_ports(2)
    # The server opens no mailbox of root, and nobody can't enter a directory of a test.
    user, group = "nobody", "nogroup"
    if os.getuid():
        user, group = getpass.getuser(), grp.getgrgid(os.getgid()).gr_name
    with tempfile.TemporaryDirectory(
        prefix="dovecot-", dir="/tmp", ignore_cleanup_errors=True
    ) as name:
        directory = Path(name)
        directory.chmod(0o755)
        (directory / "mail").mkdir(mode=0o777)
        (directory / "mail").chmod(0o777)
        pair = Authority(directory).issue("imap", hosts=("127.0.0.1",))
        configuration = directory / "dovecot.conf"
        configuration.write_text(_configuration(directory, pair, port, secure, user, group))
        with (directory / "output").open("wb") as log:
            process = subprocess.Popen(
                [binary, "-F", "-c", configuration], stdout=log, stderr=log,
                preexec_fn=die_with_parent(),
            )  # fmt: skip
        try:
            look_until(lambda: listens(port), process, "dovecot listens", 30)
            yield Mailboxes(port, secure, directory)
        finally:
            process.terminate()
            process.wait(30)
